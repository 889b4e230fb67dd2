//! The viewers of a channel's simulation: each does what control does for a client, at random, and
//! knows what it may get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_wire::live::SyncRule;
use onrush_wire::rtp::{HEADER_BYTES, Header, Position};
use onrush_wire::rtsp::LiveStart;
use onrush_wire::srtp::{MasterKey, RtpReceiver, Suite};

use super::publisher_tests::{Entry, Track};
use super::{ARRIVAL_TIME_MAX, LOCAL, MS, SECOND, SYNC_AWAITED_MAX, Simulation};
use crate::channels::srtp::ViewerSrtp;
use crate::channels::viewing::{Start, ViewerTrack, Viewing, Way};
use crate::testing::seeds_tests::Random;

/// What a viewer is at.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// It has no session, or one that it has forgotten.
    Away,
    /// It has not been told yet that it plays.
    Prepared,
    Playing,
    Paused,
    /// Its sockets are closed, and its session is still there.
    Vanished,
}

/// How what it gets is encrypted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Clear,
    SharedKey,
    OwnKey,
}

#[derive(Debug)]
pub(super) struct Viewer {
    random: Random,
    state: State,
    kind: Kind,
    /// The number of its session, and of one that it has forgotten.
    id: u64,
    forgotten: Option<u64>,
    pub(super) acts_ns: u64,
    tracks: Vec<Listening>,
}

/// A track of a viewer.
#[derive(Debug)]
struct Listening {
    track: usize,
    socket: UdpSocket,
    to: SocketAddr,
    viewing: Arc<Viewing>,
    srtp: Option<(Arc<ViewerSrtp>, MasterKey)>,
    decrypting: BTreeMap<u32, RtpReceiver>,
    /// Packets that came of this session.
    received: u64,
    /// What came last, before a pause as well.
    last: Option<Last>,
    /// What is known since it was prepared.
    play: Play,
}

/// What a viewer had last.
#[derive(Clone, Copy, Debug)]
struct Last {
    own: Header,
    /// Whose it was.
    publisher: u32,
}

#[derive(Debug, Default)]
struct Play {
    prepared_ns: u64,
    /// Where it is to begin, if it was told.
    told: Start,
    /// The next packet's number in the log, once one has come.
    next: Option<usize>,
    /// What its numbers are beside the publisher's, and whose.
    offset: Option<(Position, u32)>,
    /// Packets that had been dropped for slow viewers.
    dropped: u64,
    /// All numbers in the log that have come, where two sessions send to one port.
    mixed: Option<BTreeSet<usize>>,
}

impl Simulation {
    /// A viewer does what comes to its mind.
    pub(super) fn act(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let viewer = &mut self.viewers[at];
        let rests_ns = viewer.random.below(6000) * MS;
        viewer.acts_ns = now_ns + rests_ns + MS;
        let choice = viewer.random.below(12);
        match viewer.state {
            State::Away => self.come(at),
            State::Prepared => self.play(at),
            State::Paused if choice == 0 => self.leave_for_good(at),
            State::Paused => self.prepare(at),
            State::Vanished => self.leave_for_good(at),
            State::Playing => match choice {
                0..3 => self.leave_for_good(at),
                3..8 if viewer.is_mixed() => self.leave_for_good(at),
                3..8 => self.pause(at),
                8 => self.vanish(at),
                9 => self.come_again(at),
                _ => {}
            },
        }
    }

    /// A new session, at new ports.
    fn come(&mut self, at: usize) {
        self.outcome.came += 1;
        let viewer = &mut self.viewers[at];
        viewer.kind = match viewer.random.below(4) {
            0 => Kind::SharedKey,
            1 => Kind::OwnKey,
            _ => Kind::Clear,
        };
        for listening in &mut viewer.tracks {
            *listening = Listening::new(listening.track);
        }
        self.give_keys(at);
        self.prepare(at);
    }

    /// Another session at the ports of one that is still there: its player has died, and came back.
    fn come_again(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        if viewer.kind != Kind::Clear || viewer.forgotten.is_some() {
            return;
        }
        self.outcome.came += 1;
        viewer.forgotten = Some(viewer.id);
        for listening in &mut viewer.tracks {
            listening.viewing = Arc::default();
            listening.last = None;
            listening.play = Play {
                mixed: Some(BTreeSet::new()),
                ..Play::default()
            };
        }
        self.prepare(at);
    }

    fn give_keys(&mut self, at: usize) {
        let kind = self.viewers[at].kind;
        let suite = Suite::default();
        let tracks = self.publisher.tracks.len();
        if kind == Kind::SharedKey {
            let keys = self.keys.current(suite, tracks);
            if !self.opened.iter().any(|opened| Arc::ptr_eq(opened, &keys)) {
                for track in 0..tracks {
                    self.open(track, Some(Arc::clone(keys.track(track))));
                }
                self.opened.push(Arc::clone(&keys));
            }
            for listening in &mut self.viewers[at].tracks {
                let key = keys.track(listening.track);
                let master = key.key().master().clone();
                listening.srtp = Some((ViewerSrtp::shared(Arc::clone(key)), master));
            }
        }
        if kind == Kind::OwnKey {
            for listening in &mut self.viewers[at].tracks {
                let bytes = vec![listening.to.port().to_be_bytes()[1]; suite.master_bytes()];
                let master = MasterKey::new(suite, &bytes).expect("as long as a key is");
                listening.srtp = Some((ViewerSrtp::own(&master), master));
            }
        }
    }

    fn prepare(&mut self, at: usize) {
        self.last_id += 1;
        let (id, now_ns) = (self.last_id, self.now_ns);
        let viewer = &mut self.viewers[at];
        viewer.id = id;
        let start = match viewer.random.below(4) {
            0 => Some(LiveStart::Next),
            1 => Some(LiveStart::Last),
            _ => None,
        };
        let tracks = viewer.tracks.iter().map(|listening| ViewerTrack {
            track: listening.track,
            way: Way::Datagrams((LOCAL, 0).into(), listening.to),
            viewing: Arc::clone(&listening.viewing),
            start,
            srtp: listening.srtp.as_ref().map(|(srtp, _)| Arc::clone(srtp)),
        });
        let starts = self.audience.prepare(id, tracks.collect(), now_ns);
        let dropped = self.audience.dropped;
        let viewer = &mut self.viewers[at];
        for (listening, told) in viewer.tracks.iter_mut().zip(starts) {
            listening.play = Play {
                prepared_ns: now_ns,
                told,
                dropped,
                mixed: listening.play.mixed.take(),
                ..Play::default()
            };
        }
        viewer.state = State::Prepared;
        // Some take long: what waits for them has a bound.
        let soon_ns = match viewer.random.one_in(20) {
            true => 40 * SECOND,
            false => viewer.random.below(300) * MS,
        };
        viewer.acts_ns = now_ns + soon_ns;
    }

    fn play(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        viewer.state = State::Playing;
        self.audience.start(viewer.id);
    }

    fn pause(&mut self, at: usize) {
        self.outcome.paused += 1;
        self.leave(at);
        self.viewers[at].state = State::Paused;
    }

    fn vanish(&mut self, at: usize) {
        self.outcome.vanished += 1;
        let viewer = &mut self.viewers[at];
        viewer.state = State::Vanished;
        for listening in &mut viewer.tracks {
            listening.mute();
        }
    }

    /// Leaves, and has had all that counts as sent.
    fn leave(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        let is_heard = viewer.state != State::Vanished;
        let is_mixed = viewer.is_mixed();
        for id in viewer.forgotten.take().into_iter().chain([viewer.id]) {
            self.audience.leave(id, self.now_ns);
        }
        if is_mixed {
            // How many come of two sessions nobody knows.
            self.viewers[at].tracks.iter_mut().for_each(Listening::mute);
        } else if is_heard {
            self.has_as_many_as_sent(at);
        }
    }

    pub(super) fn leave_for_good(&mut self, at: usize) {
        if self.viewers[at].state == State::Away {
            return;
        }
        self.leave(at);
        let viewer = &mut self.viewers[at];
        viewer.state = State::Away;
    }

    /// Plays on until the end, if it is there.
    pub(super) fn settle(&mut self, at: usize) {
        match self.viewers[at].state {
            State::Prepared => self.play(at),
            State::Paused => {
                self.prepare(at);
                self.play(at);
            }
            State::Vanished => self.leave_for_good(at),
            State::Playing | State::Away => {}
        }
        self.viewers[at].acts_ns = u64::MAX;
    }

    /// Whoever plays has everything.
    pub(super) fn has_all(&mut self, at: usize) {
        let viewer = &self.viewers[at];
        if viewer.state != State::Playing {
            return;
        }
        if !viewer.is_mixed() {
            self.has_as_many_as_sent(at);
        }
        let (begin, dropped) = (Instant::now(), self.audience.dropped);
        let lacks = |viewer: &Viewer, tracks: &[Track]| {
            let lacks = |it: &Listening| it.lacks(&tracks[it.track], dropped);
            viewer.tracks.iter().find_map(lacks)
        };
        while let Some(lacking) = lacks(&self.viewers[at], &self.publisher.tracks) {
            assert!(begin.elapsed() < ARRIVAL_TIME_MAX, "{lacking}");
            thread::sleep(Duration::from_millis(1));
            self.hear_one(at);
        }
    }

    /// What counts as sent to a viewer comes, and no more.
    fn has_as_many_as_sent(&mut self, at: usize) {
        let begin = Instant::now();
        loop {
            self.hear_one(at);
            let viewer = &self.viewers[at];
            let mut lacks = viewer.tracks.iter().filter_map(|listening| {
                let sent = listening.viewing.sent(&self.given[listening.track]).packets;
                (sent != listening.received).then_some((sent, listening.received))
            });
            let Some((sent, received)) = lacks.next() else {
                return;
            };
            let is_late = begin.elapsed() > ARRIVAL_TIME_MAX;
            assert!(
                !is_late && received <= sent,
                "{received} of {sent} came: {viewer:?}"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn hear_one(&mut self, at: usize) {
        let (now_ns, dropped) = (self.now_ns, self.audience.dropped);
        let tracks = &self.publisher.tracks;
        self.outcome.received += self.viewers[at].hear(tracks, now_ns, dropped);
    }
}

impl Viewer {
    pub(super) fn new(mut random: Random, tracks: &[Track], now_ns: u64) -> Self {
        Self {
            state: State::Away,
            kind: Kind::Clear,
            id: 0,
            forgotten: None,
            acts_ns: now_ns + random.below(5000) * MS,
            tracks: (0..tracks.len()).map(Listening::new).collect(),
            random,
        }
    }

    /// Takes what has come. How many packets.
    pub(super) fn hear(&mut self, tracks: &[Track], now_ns: u64, dropped: u64) -> u64 {
        let mut received = 0;
        let mut datagram = [0; 2048];
        for listening in &mut self.tracks {
            while let Ok(length) = listening.socket.recv(&mut datagram) {
                assert_ne!(self.state, State::Away, "nobody is to be sent anything");
                assert_ne!(self.state, State::Paused, "it has paused");
                let is_held = self.state == State::Prepared && listening.play.mixed.is_none();
                assert!(!is_held, "it does not play yet");
                let track = &tracks[listening.track];
                listening.take(&mut datagram[..length], track, now_ns, dropped);
                received += 1;
            }
        }
        received
    }

    /// Whether two sessions send to its ports.
    fn is_mixed(&self) -> bool {
        self.tracks.iter().any(|it| it.play.mixed.is_some())
    }

    pub(super) fn hears_nothing(&mut self) {
        assert_eq!(self.hear(&[], 0, 0), 0);
    }
}

impl Listening {
    /// Nobody listens at its port any more, and nobody else is given it.
    fn mute(&mut self) {
        let nobody = (LOCAL, 9);
        self.socket.connect(nobody).expect("an address");
        let mut datagram = [0; 16];
        while self.socket.recv(&mut datagram).is_ok() {}
    }

    fn new(track: usize) -> Self {
        let socket = UdpSocket::bind((LOCAL, 0)).expect("loopback");
        socket.set_nonblocking(true).expect("a socket");
        Self {
            track,
            to: socket.local_addr().expect("it is bound"),
            socket,
            viewing: Arc::default(),
            srtp: None,
            decrypting: BTreeMap::new(),
            received: 0,
            last: None,
            play: Play::default(),
        }
    }

    /// A packet has come: it is the one that it must be.
    fn take(&mut self, packet: &mut [u8], track: &Track, now_ns: u64, dropped: u64) {
        self.received += 1;
        let own = Header::read(packet).expect("an RTP packet");
        let packet = match &self.srtp {
            None => packet,
            Some((srtp, master)) => {
                assert_eq!(
                    own.ssrc,
                    srtp.ssrc(),
                    "its SSRC is the one that it was told"
                );
                let receiver = self.decrypting.entry(own.ssrc);
                let receiver = receiver.or_insert_with(|| RtpReceiver::new(master));
                let decrypted = receiver.unprotect(packet);
                decrypted.expect("it is encrypted with the key that it has")
            }
        };
        let payload = &packet[HEADER_BYTES..];
        let number = Entry::number(payload);
        let entry = &track.log[number];
        assert_eq!(payload, &entry.bytes[HEADER_BYTES..], "its bytes");
        if let Some(mixed) = &mut self.play.mixed {
            mixed.insert(number);
            return;
        }
        let may_skip = self.play.dropped != dropped;
        match self.play.next {
            None => self.begins_well(&own, entry, track, (now_ns, may_skip)),
            Some(next) if may_skip => assert!(number >= next, "{number} again, after {next}"),
            Some(next) => assert_eq!(number, next, "the next packet"),
        }
        // Somebody's were dropped: if its own, the rest of what was begun comes before the gap.
        let unit = |number: usize| track.log[number].header.timestamp;
        let is_rest = self.play.next == Some(number) && unit(number) == unit(number - 1);
        if !is_rest {
            self.play.dropped = dropped;
        }
        self.is_numbered_on(&own, entry);
        self.play.next = Some(number + 1);
        let publisher = entry.header.ssrc;
        self.last = Some(Last { own, publisher });
    }

    /// The first packet of a play.
    fn begins_well(
        &self,
        own: &Header,
        entry: &Entry,
        track: &Track,
        (now_ns, may_skip): (u64, bool),
    ) {
        let waited = Duration::from_nanos(now_ns - self.play.prepared_ns);
        let is_start = entry.is_start || track.rule == SyncRule::Every;
        let header = entry.header;
        assert!(
            is_start || waited >= SYNC_AWAITED_MAX,
            "{waited:?} after it came it begins with what is no start: {header:?}"
        );
        let Some(told) = self.play.told.filter(|_| !may_skip) else {
            return;
        };
        assert_eq!(
            (own.sequence, own.timestamp),
            (told.sequence, told.timestamp)
        );
    }

    /// Its numbers go on from what came before, and are as far from the publisher's as before.
    fn is_numbered_on(&mut self, own: &Header, entry: &Entry) {
        let (source, publisher) = (&entry.header, entry.header.ssrc);
        let offset = Position {
            sequence: own.sequence.wrapping_sub(source.sequence),
            timestamp: own.timestamp.wrapping_sub(source.timestamp),
        };
        let is_encrypted = self.srtp.is_some();
        // In the clear they stay as far from those of another publisher, too.
        let is_known = |of: &(Position, u32)| of.1 == publisher || !is_encrypted;
        let known = self.play.offset.filter(is_known);
        self.play.offset = Some((offset, publisher));
        if let Some((known, _)) = known {
            assert_eq!(
                offset, known,
                "numbers differ from the publisher's as before"
            );
            return;
        }
        let before = self.last.filter(|last| last.own.ssrc == own.ssrc);
        match before {
            // Its numbers are its own: they go on, whoever publishes.
            Some(last) if is_encrypted || last.publisher == publisher => {
                let next = last.own.sequence.wrapping_add(1);
                assert_eq!(
                    own.sequence, next,
                    "the next number: {own:?}, after {last:?}"
                );
                let ticks = own.timestamp.wrapping_sub(last.own.timestamp);
                assert!(ticks < 1 << 31, "time goes on: {own:?}, after {last:?}");
            }
            _ if is_encrypted => {}
            _ => assert_eq!(offset, Position::default(), "the publisher's own numbers"),
        }
    }

    /// What it lacks of all that has come since it began, in words.
    fn lacks(&self, track: &Track, dropped: u64) -> Option<String> {
        if self.play.dropped != dropped {
            return None;
        }
        if let Some(mixed) = &self.play.mixed {
            let told = self.play.told?;
            let first = track.log.iter().rposition(|entry| {
                let Header {
                    sequence,
                    timestamp,
                    ..
                } = entry.header;
                Position {
                    sequence,
                    timestamp,
                } == told
            })?;
            let lacking = (first..track.log.len()).find(|number| !mixed.contains(number))?;
            return Some(format!("{lacking} of two sessions at a port never came"));
        }
        let end = track.log.len();
        let Some(next) = self.play.next else {
            let told = self.play.told?;
            return Some(format!("nothing has come, and it was told {told:?}"));
        };
        (next != end).then(|| format!("{next} is next, and {end} have come"))
    }
}
