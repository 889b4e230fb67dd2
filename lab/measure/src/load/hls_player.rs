//! One player: it reads playlists, fetches what they name in order, and plays it in real time from
//! a buffer that knows how long what it has plays, and nothing else.
//!
//! Each rendition is fetched on a connection of its own. A film is fetched as far ahead as the
//! buffer goes, and begun again at its end; a live channel is followed, part by part where there
//! are parts. What a player does not do: change between variants, fetch hinted parts before they
//! are listed, read deltas.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use thiserror::Error;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use url::Url;

use super::hls_connection::PlayerConnection;
use super::hls_playlist::{BadPlaylist, Media, Parsed, Playlist, Resource, Segment};
use super::http_client::{FetchError, Target};

/// Why a player stopped.
#[derive(Debug, Error)]
pub(super) enum PlayError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Playlist(#[from] BadPlaylist),
    #[error("the playlist names another host, or something that is no URL")]
    Elsewhere,
    #[error("the playlist names playlists where media is to be")]
    Nested,
    #[error(
        "the live playlist did not change for {} target durations",
        UNCHANGED_MAX
    )]
    StoodStill,
}

/// Target durations without anything new in a live playlist.
const UNCHANGED_MAX: u32 = 5;

/// What a player has, and where it is.
#[derive(Debug)]
pub(super) struct Player {
    begin: Instant,
    renditions: Vec<Buffered>,
    /// When that was recorded at which it begins, in us since 1970, once a live playlist told.
    start_unix_us: Option<i64>,
    /// Where it was when the clock was set, in us of what plays.
    position_us: u64,
    /// Since when it plays from there; `None` while it waits for more.
    since: Option<Instant>,
    waits_since: Option<Instant>,
    /// What it has seen so far.
    pub(super) seen: Seen,
}

/// What a player has of a rendition.
#[derive(Clone, Copy, Debug, Default)]
struct Buffered {
    /// How long it plays, in us, from the position on at which all renditions begin together.
    until_us: u64,
    /// What is in front of that, and comes first.
    skipped_us: u64,
}

/// What a player has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    pub(super) segments: u64,
    pub(super) parts: u64,
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// How often it stood still, and for how long.
    pub(super) stalls: u64,
    pub(super) stalled_us: u64,
    /// From its first request to the first picture.
    pub(super) start_up_us: Option<u64>,
}

impl Player {
    fn new(renditions: usize, begin: Instant) -> Self {
        Self {
            begin,
            renditions: vec![Buffered::default(); renditions],
            start_unix_us: None,
            position_us: 0,
            since: None,
            waits_since: None,
            seen: Seen::default(),
        }
    }

    /// Where it is now. Once it has used up what it has, it stands still.
    fn position_us(&mut self, now: Instant) -> u64 {
        let most_us = self.until_us();
        let Some(since) = self.since else {
            return self.position_us;
        };
        let at_us = self.position_us + micros(now.saturating_duration_since(since));
        if at_us <= most_us {
            return at_us;
        }
        let ran_out = since + Duration::from_micros(most_us.saturating_sub(self.position_us));
        (self.position_us, self.since) = (most_us, None);
        self.waits_since = Some(ran_out);
        self.seen.stalls += 1;
        most_us
    }

    fn until_us(&self) -> u64 {
        let all = self.renditions.iter().map(|it| it.until_us);
        all.min().unwrap_or(0)
    }

    /// So much more of a rendition is there.
    fn append(&mut self, rendition: usize, lasts_us: u64, now: Instant) {
        self.position_us(now);
        let buffered = &mut self.renditions[rendition];
        let skipped_us = buffered.skipped_us.min(lasts_us);
        buffered.skipped_us -= skipped_us;
        buffered.until_us += lasts_us - skipped_us;
        if self.since.is_some() || self.until_us() <= self.position_us {
            return;
        }
        self.since = Some(now);
        if let Some(since) = self.waits_since.take() {
            self.seen.stalled_us += micros(now.saturating_duration_since(since));
        }
        let begin = self.begin;
        let start_up_us = &mut self.seen.start_up_us;
        start_up_us.get_or_insert_with(|| micros(now.saturating_duration_since(begin)));
    }

    /// How much a rendition has that was not played yet.
    fn ahead_us(&mut self, rendition: usize, now: Instant) -> u64 {
        let at_us = self.position_us(now);
        self.renditions[rendition].until_us.saturating_sub(at_us)
    }

    /// How old what it shows is, if it plays and that is told: below 0 by a clock that is behind
    /// the server's.
    pub(super) fn latency_us(&mut self, now: Instant, unix_us: i64) -> Option<i64> {
        let at_us = self.position_us(now);
        let start_us = self.start_unix_us.filter(|_| self.since.is_some())?;
        let shown_us = start_us.checked_add_unsigned(at_us)?;
        Some(unix_us.saturating_sub(shown_us))
    }

    /// All that it has seen until now.
    pub(super) fn seen(&mut self, now: Instant) -> Seen {
        self.position_us(now);
        let mut seen = self.seen;
        if let Some(since) = self.waits_since {
            seen.stalled_us += micros(now.saturating_duration_since(since));
        }
        seen
    }

    /// Whether it shows something new now.
    pub(super) fn is_playing(&mut self, now: Instant) -> bool {
        self.position_us(now);
        self.since.is_some()
    }
}

/// A player that others look at while it plays.
pub(super) type SharedPlayer = Rc<RefCell<Player>>;

pub(super) fn player() -> SharedPlayer {
    Rc::new(RefCell::new(Player::new(0, Instant::now())))
}

/// Plays what is there, without end.
pub(super) async fn play(
    (target, url): (Rc<Target>, Url),
    parsed: Rc<Parsed>,
    buffer: Duration,
    player: SharedPlayer,
) -> Result<(), PlayError> {
    let mut connection = PlayerConnection::new(Rc::clone(&target));
    let text = connection.text(&url).await;
    count(&player, &mut connection);
    let (text, moved) = text?;
    // What a playlist names is beside where it was, not where it was asked for.
    let url = moved.unwrap_or(url);
    let urls = match parsed.parse(text)? {
        Playlist::Media(_) => vec![url],
        Playlist::Main(uris) => {
            let joined = uris.iter().map(|uri| join(&url, uri));
            joined.collect::<Result<_, _>>()?
        }
    };
    let begun = player.borrow().begin;
    let seen = player.borrow().seen;
    *player.borrow_mut() = Player {
        seen,
        ..Player::new(urls.len(), begun)
    };
    drop(connection);
    let mut renditions = JoinSet::new();
    for (rendition, url) in urls.into_iter().enumerate() {
        let (target, player) = (Rc::clone(&target), Rc::clone(&player));
        let parsed = Rc::clone(&parsed);
        renditions.spawn_local(async move {
            let mut following = Following {
                connection: PlayerConnection::new(target),
                parsed,
                player,
                rendition,
                url,
                buffer,
                map: None,
                next: (0, 0),
            };
            following.run().await
        });
    }
    while let Some(ended) = renditions.join_next().await {
        match ended {
            Ok(ended) => ended?,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }
    Ok(())
}

/// A rendition that is fetched.
struct Following {
    connection: PlayerConnection,
    parsed: Rc<Parsed>,
    player: SharedPlayer,
    rendition: usize,
    url: Url,
    buffer: Duration,
    /// What was fetched last of what segments have in common.
    map: Option<Resource>,
    /// The segment and the part of it that are fetched next.
    next: (u64, usize),
}

impl Following {
    async fn run(&mut self) -> Result<(), PlayError> {
        let mut media = self.load(None).await?;
        self.start(&media);
        let mut changed = Instant::now();
        loop {
            let before = self.next;
            for segment in &media.segments {
                self.segment(segment, &media).await?;
            }
            if media.has_ended {
                if media.lasts_us() == 0 {
                    return Err(BadPlaylist::Empty.into());
                }
                // A film is played again, from its start.
                self.next = (0, 0);
                continue;
            }
            let is_unchanged = self.next == before;
            if !is_unchanged {
                changed = Instant::now();
            } else if changed.elapsed() > UNCHANGED_MAX * target(&media) {
                return Err(PlayError::StoodStill);
            }
            media = self.reload(&media, is_unchanged).await?;
        }
    }

    /// Where a player begins: of a live channel as far from the end as its playlist says, with what
    /// can be decoded without what was before.
    fn start(&mut self, media: &Media) {
        let first = media.segments.first();
        self.next = (first.map_or(0, |it| it.number), 0);
        if media.has_ended {
            return;
        }
        let start_us = self.start_us(media, media.recorded_us());
        let (mut at_us, mut begin_us) = (0, 0);
        for segment in &media.segments {
            let mut begins = |number, part, at_us: u64| {
                if at_us <= start_us {
                    (self.next, begin_us) = ((number, part), at_us);
                }
            };
            begins(segment.number, 0, at_us);
            let mut part_us = at_us;
            for (number, part) in segment.parts.iter().enumerate() {
                if part.is_independent {
                    begins(segment.number, number, part_us);
                }
                part_us += part.lasts_us;
            }
            at_us += segment.lasts_us;
        }
        let mut player = self.player.borrow_mut();
        player.renditions[self.rendition].skipped_us = start_us - begin_us;
    }

    /// Where in a live playlist a player begins: all renditions at what was recorded at one time,
    /// where playlists tell that.
    fn start_us(&self, media: &Media, recorded_us: Option<i64>) -> u64 {
        let start_us = media.lasts_us().saturating_sub(media.hold_back_us());
        let mut player = self.player.borrow_mut();
        let Some(recorded_us) = recorded_us else {
            return start_us;
        };
        let here_us = recorded_us.saturating_add_unsigned(start_us);
        let start_unix_us = *player.start_unix_us.get_or_insert(here_us);
        let from_us = start_unix_us.saturating_sub(recorded_us);
        u64::try_from(from_us).unwrap_or(0).min(media.lasts_us())
    }

    /// Fetches what is next of a segment, if it is this one or a later one.
    async fn segment(&mut self, segment: &Segment, media: &Media) -> Result<(), PlayError> {
        if segment.number < self.next.0 {
            return Ok(());
        }
        if segment.number > self.next.0 {
            // What is between has gone.
            self.next = (segment.number, 0);
        }
        let is_new = |it: &&Resource| !segment.is_gap && self.map.as_ref() != Some(*it);
        if let Some(map) = segment.map.as_ref().filter(is_new) {
            self.fetch(map).await?;
            self.map = Some(map.clone());
        }
        if let (Some(resource), 0) = (&segment.resource, self.next.1) {
            self.wait_for_room(media).await;
            let taken = (segment.lasts_us, segment.is_gap);
            self.take(resource, taken, |seen| seen.segments += 1)
                .await?;
            self.next = (segment.number + 1, 0);
            return Ok(());
        }
        while let Some(part) = segment.parts.get(self.next.1) {
            let taken = (part.lasts_us, part.is_gap);
            self.take(&part.resource, taken, |seen| seen.parts += 1)
                .await?;
            self.next.1 += 1;
        }
        if segment.resource.is_some() {
            self.next = (segment.number + 1, 0);
        }
        Ok(())
    }

    /// Fetches what lasts so long, and has it to play. A gap is not asked for (section 4.4.4.7),
    /// and takes its time all the same.
    async fn take(
        &mut self,
        resource: &Resource,
        (lasts_us, is_gap): (u64, bool),
        counted: impl FnOnce(&mut Seen),
    ) -> Result<(), PlayError> {
        if is_gap {
            self.append(lasts_us, |_| ());
        } else {
            self.fetch(resource).await?;
            self.append(lasts_us, counted);
        }
        Ok(())
    }

    /// Waits until the buffer has room for another segment.
    async fn wait_for_room(&self, media: &Media) {
        if !media.has_ended {
            return;
        }
        let ahead_us = |now| self.player.borrow_mut().ahead_us(self.rendition, now);
        loop {
            let ahead = Duration::from_micros(ahead_us(Instant::now()));
            match ahead.checked_sub(self.buffer) {
                Some(more) if !more.is_zero() => sleep(more).await,
                _ => return,
            }
        }
    }

    /// The playlist again, once it has something new where the server says when.
    async fn reload(&mut self, media: &Media, is_unchanged: bool) -> Result<Rc<Media>, PlayError> {
        if media.can_block && !is_unchanged {
            let (number, part) = self.next;
            let mut until = format!("_HLS_msn={number}");
            if media.part_us.is_some() {
                until += &format!("&_HLS_part={part}");
            }
            return self.load(Some(&until)).await;
        }
        // Section 6.3.4: half a target duration, if nothing was new.
        let target = target(media);
        sleep(if is_unchanged { target / 2 } else { target }).await;
        self.load(None).await
    }

    async fn load(&mut self, until: Option<&str>) -> Result<Rc<Media>, PlayError> {
        let mut url = self.url.clone();
        if let Some(until) = until {
            let query = url.query().map_or_else(String::new, |it| format!("{it}&"));
            url.set_query(Some(&(query + until)));
        }
        let text = self.connection.text(&url).await;
        count(&self.player, &mut self.connection);
        let (text, moved) = text?;
        if let Some(moved) = moved {
            self.url = without_directives(moved);
        }
        match self.parsed.parse(text)? {
            Playlist::Media(media) => Ok(media),
            Playlist::Main(_) => Err(PlayError::Nested),
        }
    }

    async fn fetch(&mut self, resource: &Resource) -> Result<(), PlayError> {
        let url = join(&self.url, &resource.uri)?;
        let fetched = self.connection.discard(&url, resource.range).await;
        count(&self.player, &mut self.connection);
        Ok(fetched?)
    }

    fn append(&self, lasts_us: u64, counted: impl FnOnce(&mut Seen)) {
        let mut player = self.player.borrow_mut();
        counted(&mut player.seen);
        player.append(self.rendition, lasts_us, Instant::now());
    }
}

/// The target duration of a playlist, a second at the least.
fn target(media: &Media) -> Duration {
    Duration::from_micros(media.target_us.max(MICROS_A_SECOND))
}

/// What a connection has brought is the player's.
fn count(player: &SharedPlayer, connection: &mut PlayerConnection) {
    let seen = &mut player.borrow_mut().seen;
    seen.requests += std::mem::take(&mut connection.requests);
    seen.bytes += std::mem::take(&mut connection.bytes);
}

/// The URL without what a reload waits for (section 6.2.5.2), which is said anew each time.
fn without_directives(mut url: Url) -> Url {
    let query = url.query().unwrap_or_default().split('&');
    let kept: Vec<_> = query.filter(|it| !it.starts_with("_HLS_")).collect();
    let kept = kept.join("&");
    url.set_query(Some(kept.as_str()).filter(|it| !it.is_empty()));
    url
}

/// What a playlist names, on the same server.
fn join(base: &Url, uri: &str) -> Result<Url, PlayError> {
    let joined = base.join(uri).map_err(|_| PlayError::Elsewhere)?;
    let is_here = joined.origin() == base.origin();
    is_here.then_some(joined).ok_or(PlayError::Elsewhere)
}

/// Now, in us since 1970.
pub(super) fn unix_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

const MICROS_A_SECOND: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    /// Of a server that does not answer.
    fn following(buffer: Duration) -> (Rc<RefCell<Player>>, Following) {
        let target = Target {
            addresses: vec![([127, 0, 0, 1], 1).into()],
            host: "127.0.0.1:1".to_owned(),
            path: String::new(),
        };
        let shared = Rc::new(RefCell::new(Player::new(1, Instant::now())));
        let following = Following {
            connection: PlayerConnection::new(Rc::new(target)),
            parsed: Rc::default(),
            player: Rc::clone(&shared),
            rendition: 0,
            url: Url::parse("http://127.0.0.1:1/x").unwrap(),
            buffer,
            map: None,
            next: (0, 0),
        };
        (shared, following)
    }

    #[test]
    fn a_player_stands_still_when_it_has_nothing_and_says_so() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut player = Player::new(2, begin);
        player.start_unix_us = Some(5_000_000);
        player.append(0, 2_000_000, at(100));
        assert!(!player.is_playing(at(100)), "the sound is not there");
        player.append(1, 3_000_000, at(250));
        assert_eq!(player.seen.start_up_us, Some(250_000));
        assert_eq!(player.position_us(at(1250)), 1_000_000);
        assert_eq!(player.ahead_us(1, at(1250)), 2_000_000);
        // It shows what was recorded at 6 s.
        assert_eq!(player.latency_us(at(1250), 6_500_000), Some(500_000));
        assert_eq!(player.latency_us(at(1250), 3_000_000), Some(-3_000_000));
        // At 2.25 s it has no more pictures, and 0.5 s later it has.
        assert_eq!(player.position_us(at(2500)), 2_000_000);
        assert_eq!(player.latency_us(at(2500), 9_000_000), None);
        assert_eq!(player.seen(at(2500)).stalled_us, 250_000);
        player.append(0, 2_000_000, at(2750));
        assert_eq!((player.seen.stalls, player.seen.stalled_us), (1, 500_000));
        assert_eq!(player.position_us(at(3000)), 2_250_000);
    }

    fn x() -> Resource {
        Resource {
            uri: "x".to_owned(),
            range: None,
        }
    }

    #[test]
    fn a_live_player_begins_where_its_playlist_says() {
        let segment = |number, parts: &[bool]| Segment {
            number,
            resource: parts.is_empty().then(x),
            lasts_us: 4_000_000,
            // Of the first alone.
            recorded_us: (number == 10).then_some(1_000_000),
            parts: parts
                .iter()
                .map(|&is_independent| super::super::hls_playlist::Part {
                    resource: x(),
                    lasts_us: 1_000_000,
                    is_independent,
                    is_gap: false,
                })
                .collect(),
            ..Segment::default()
        };
        let (shared, mut following) = following(Duration::ZERO);
        // Twelve seconds from the end are four from the beginning.
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nx\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("a playlist");
        };
        let mut media = (*media).clone();
        media.segments = (10..14).map(|it| segment(it, &[])).collect();
        following.start(&media);
        assert_eq!(following.next, (11, 0));
        shared.borrow_mut().start_unix_us = None;
        // Two and a half from the end: in the part before, which begins with a sync sample.
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-PART-INF:PART-TARGET=1\n\
                    #EXT-X-SERVER-CONTROL:PART-HOLD-BACK=2.5\n#EXTINF:4,\nx\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("a playlist");
        };
        let mut media = (*media).clone();
        media.segments = vec![segment(10, &[]), segment(11, &[true, true, false, false])];
        following.start(&media);
        assert_eq!(following.next, (11, 1));
        // The first segment was recorded at 1 s.
        assert_eq!(shared.borrow().renditions[0].skipped_us, 500_000);
        assert_eq!(shared.borrow().start_unix_us, Some(6_500_000));
        // Another rendition, whose playlist goes on for longer, begins at the same time.
        media.segments.push(segment(12, &[true; 4]));
        following.start(&media);
        assert_eq!(following.next, (11, 1));
    }

    #[test]
    fn a_gap_takes_its_time_and_is_not_asked_for() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (shared, mut following) = following(Duration::from_secs(60));
        let text = "#EXTM3U\n#EXT-X-MAP:URI=\"x\"\n#EXT-X-GAP\n#EXTINF:4,\na\n#EXTINF:4,\nb\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("a playlist");
        };
        let gap = following.segment(&media.segments[0], &media);
        runtime.block_on(gap).unwrap();
        assert_eq!(following.next, (1, 0));
        assert_eq!(shared.borrow().renditions[0].until_us, 4_000_000);
        assert_eq!(
            (shared.borrow().seen.segments, shared.borrow().seen.requests),
            (0, 0)
        );
        let whole = following.segment(&media.segments[1], &media);
        assert!(runtime.block_on(whole).is_err());
    }

    /// A server of a live playlist that never changes, which is its segment, too; its URL.
    fn server_that_stands_still() -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x", listener.local_addr().unwrap());
        thread::spawn(move || {
            let text = "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nx\n";
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", text.len());
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                for _ in lines.filter(|line| line.is_empty()) {
                    // Who has given it up does not read on.
                    (&stream).write_all(format!("{head}{text}").as_bytes()).ok();
                }
            }
        });
        url.parse().unwrap()
    }

    #[test]
    fn a_playlist_may_stand_still_for_five_target_durations() {
        let url = server_that_stands_still();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (shared, mut following) = following(Duration::from_secs(60));
        runtime.block_on(async {
            let target = Target::of(url.as_str()).await.unwrap();
            following.connection = PlayerConnection::new(Rc::new(target));
            following.url = url;
            let begin = Instant::now();
            let ended = following.run().await;
            assert!(matches!(ended, Err(PlayError::StoodStill)), "{ended:?}");
            assert!(begin.elapsed() > Duration::from_secs(5));
        });
        assert_eq!(shared.borrow().seen.segments, 1);
    }

    #[test]
    fn reloads_are_asked_for_where_the_player_was_sent_to() {
        for (moved, kept) in [
            ("http://h/x?_HLS_msn=5&_HLS_part=1", "http://h/x"),
            ("http://h/x?a=b&_HLS_msn=5", "http://h/x?a=b"),
            ("http://h/x?a=b", "http://h/x?a=b"),
            ("http://h/x", "http://h/x"),
        ] {
            let url = without_directives(Url::parse(moved).unwrap());
            assert_eq!(url.as_str(), kept);
        }
    }

    #[test]
    fn playlists_lead_to_no_other_host() {
        let base = Url::parse("http://h:1/a/b.m3u8?k=1").unwrap();
        assert_eq!(join(&base, "c?k=1").unwrap().as_str(), "http://h:1/a/c?k=1");
        assert!(join(&base, "http://h:2/c").is_err() && join(&base, "//other/c").is_err());
    }
}
