//! Live channels by HLS (RFC 8216bis) and DASH: requests that wait for what comes next, and bytes
//! that are shared by all who ask.
//!
//! A channel's resources lie beneath its name as a film's do beneath its file. Waiting is bounded:
//! by three target durations, by so many requests for a channel, and by a part of as many from one
//! address.

mod segments;
mod texts;

use std::cell::Cell;
use std::time::Duration;

use onrush_wire::hls::live::{BadReload, Found, Reload, date_time};
use onrush_wire::hls::{self, Resource as Asked};
use onrush_wire::http::{ASSETS, Codings, ListedChannel, PAGE_POLICY, Status, assets_from};
use onrush_wire::media::Medium;
use onrush_wire::media::segments::Format;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use self::segments::{number_at, segment};
use self::texts::{Written, written};
use super::film::MANIFEST;
use super::made::{ASK_AGAIN, Made};
use crate::downloads::Site;
use crate::downloads::admission::{Share, of_address};
use crate::downloads::clock::Clock;
use crate::downloads::memory::Memory;
use crate::hls_live::{LiveStream, NotCut, add};

/// How long the first playlist of a channel is waited for: until a segment is whole.
pub const FIRST_SEGMENT_WAIT_MAX: Duration = Duration::from_secs(20);

/// What comes next is waited for so many target durations (RFC 8216bis, section 6.2.5.2).
const TARGETS_WAITED: u64 = 3;

const PLAYLIST: &str = "application/vnd.apple.mpegurl";

type Refusal = (Status, String);

/// Whether a request waits for what comes next of a channel. While it does, whoever has its
/// connection looks whether the client is still there, and drops the request if it is not: then its
/// place among those who wait is free at once.
#[derive(Debug)]
pub(super) struct Waits {
    is_waiting: Cell<bool>,
    /// What those of its address have together, and how many of them may wait.
    share: Share,
    most: usize,
}

impl Waits {
    /// Those of a request from an address that has this.
    pub(super) fn new(site: &Site, share: &Share) -> Self {
        let of_channel = site.settings.hls.hls_waiting_max;
        Self {
            is_waiting: Cell::new(false),
            share: share.clone(),
            most: of_address(&site.settings.limits, of_channel),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.get()
    }
}

/// The resource of a live channel that `path` names, or why there is none; `None` if it names
/// something else. `memory` is that of whoever asks.
pub(super) async fn find(
    site: &Site,
    (path, query, codings): (&str, Option<&str>, Codings),
    waits: &Waits,
    memory: &Memory,
) -> Option<Result<Made, Refusal>> {
    let (name, asked) = hls::parse(path)?;
    let stream = match site.live.find(name).await? {
        Ok(stream) => stream,
        Err(NotCut::Never(note)) => return Some(Err((Status::NotFound, note))),
        Err(NotCut::Now(full)) => {
            return Some(Err((Status::ServiceUnavailable, full.to_string())));
        }
        Err(NotCut::Silent) => {
            let note = "its source does not answer; try later";
            return Some(Err((Status::ServiceUnavailable, note.to_owned())));
        }
    };
    let stream = Awaited {
        stream: &stream,
        waits,
    };
    let by = By {
        query,
        codings,
        memory,
    };
    Some(make(site, stream, (name, asked), by).await)
}

/// The channels that the page of a folder shows. Which of them somebody may play is not known of a
/// page: where not everybody may play all, none is named.
pub(super) fn listed(site: &Site, folder: &str) -> Vec<ListedChannel> {
    match folder.is_empty() && site.authorizer.is_open() {
        true => site.live.listed(),
        false => Vec::new(),
    }
}

/// A channel, and what tells that a request waits for it.
#[derive(Clone, Copy)]
struct Awaited<'a> {
    stream: &'a LiveStream,
    waits: &'a Waits,
}

impl std::ops::Deref for Awaited<'_> {
    type Target = LiveStream;

    fn deref(&self) -> &LiveStream {
        self.stream
    }
}

/// What a text is asked for by, and where it may be written.
#[derive(Clone, Copy)]
struct By<'a> {
    /// What the request's target has behind its `?`.
    query: Option<&'a str>,
    codings: Codings,
    memory: &'a Memory,
}

async fn make(
    site: &Site,
    stream: Awaited<'_>,
    (name, asked): (&str, Asked<'_>),
    by: By<'_>,
) -> Result<Made, Refusal> {
    count(&stream, asked);
    match asked {
        Asked::Main => playlist(site, stream, (name, None), by).await,
        Asked::Media { rendition } => playlist(site, stream, (name, Some(rendition)), by).await,
        Asked::Manifest => manifest(site, stream, name, by).await,
        Asked::Time => Ok(Made::time(now_iso())),
        Asked::Page => {
            let assets = assets_from(&format!("{name}/hls"));
            let page = include_str!("page/player.html").replace("{assets}", &assets);
            // Channels lie in no folder that could be gone back to.
            let root = assets.trim_end_matches(ASSETS);
            let page = page.replace("href=\"../../\"", &format!("href=\"{root}\""));
            Ok(Made::live_page(page, now_s(site), PAGE_POLICY))
        }
        Asked::Init { rendition, version } => {
            let init = stream.window().init(rendition, version);
            let bytes = init.ok_or_else(nothing)?;
            let etag = format!("\"{version}-{rendition}-init\"");
            let media_type = media_type(&stream, rendition);
            Ok(Made::live(vec![bytes], etag, media_type, now_s(site)))
        }
        Asked::Segment {
            rendition,
            version,
            number,
            format,
        } => segment(site, &stream, (rendition, version, number), format),
        Asked::SegmentAt {
            rendition,
            version,
            ticks,
        } => {
            let number = number_at(stream, (rendition, version, ticks)).await?;
            segment(site, &stream, (rendition, version, number), Format::Cmaf)
        }
        Asked::Part {
            rendition,
            version,
            number,
            part,
            format,
        } => {
            is_of(&stream, rendition, format).ok_or_else(nothing)?;
            let found = || stream.window().part(rendition, version, number, part);
            let bytes = wait_for(stream, || match found() {
                Found::Bytes(bytes) => Some(Ok(bytes)),
                Found::Awaited => None,
                // What is stored has no parts.
                Found::Stored(_) | Found::Nothing => Some(Err(nothing())),
            });
            let etag = format!("\"{version}-{rendition}-{number}.{part}\"");
            let media_type = media_type_of(format, rendition);
            Ok(Made::live(bytes.await?, etag, media_type, now_s(site)))
        }
        Asked::Poster => poster(site, stream).await,
        Asked::Pictures { .. } | Asked::Picture { .. } | Asked::Text { .. } => Err(nothing()),
    }
}

fn nothing() -> Refusal {
    (Status::NotFound, "the channel has no such thing".to_owned())
}

/// The newest picture that can be shown alone, as a film of some pictures.
async fn poster(site: &Site, stream: Awaited<'_>) -> Result<Made, Refusal> {
    let none = || {
        let note = "of a channel without pictures, or of a transport stream, there is no poster";
        (Status::NotFound, note.to_owned())
    };
    if !stream.window().has_posters() {
        return Err(none());
    }
    let found = wait_for(stream, || stream.window().poster().map(Ok)).await?;
    let etag = format!("\"{}-poster-{}\"", found.version, found.number);
    let made = Made::live(found.bytes.to_vec(), etag, "video/mp4", now_s(site));
    Ok(made.that_changes())
}

fn count(stream: &LiveStream, asked: Asked<'_>) {
    match asked {
        Asked::Main | Asked::Media { .. } | Asked::Manifest => add(&stream.stats().playlists),
        Asked::Segment { .. } | Asked::SegmentAt { .. } | Asked::Part { .. } => {
            add(&stream.stats().media);
        }
        _ => {}
    }
}

async fn playlist(
    site: &Site,
    stream: Awaited<'_>,
    (name, rendition): (&str, Option<&str>),
    by: By<'_>,
) -> Result<Made, Refusal> {
    let reload = Reload::parse(by.query).map_err(bad)?;
    let carried = carried(site, name, by.query)?;
    let text = playlist_text(stream, rendition, &reload, &carried, by);
    let (text, coding, reserved) = text.await?;
    // What was waited for is the same for all who wait for it, and what follows asks for more.
    let target_s = stream.window().target_s().unwrap_or(1);
    let cache_control = match reload.until {
        Some(_) => format!("max-age={}", 6 * target_s).into(),
        None => ASK_AGAIN.into(),
    };
    let made = Made::live_text(text, coding, PLAYLIST, cache_control, now_s(site));
    Ok(made.that_has_room(reserved))
}

/// What the URLs of a text of the channel `name` end in.
fn carried(site: &Site, name: &str, query: Option<&str>) -> Result<String, Refusal> {
    let carried = site.authorizer.carried([name], query);
    carried.map_err(|error| (Status::UriTooLong, error.to_string()))
}

/// Its text, once it has what `reload` waits for.
async fn playlist_text(
    stream: Awaited<'_>,
    rendition: Option<&str>,
    reload: &Reload,
    carried: &str,
    by: By<'_>,
) -> Result<Written, Refusal> {
    let no_track = || (Status::NotFound, "the channel has no such track".to_owned());
    // Its renditions are known from the start. Of other names nothing is waited for, and no text is
    // kept: whoever asks may choose as many as it likes.
    if rendition.is_some_and(|of| stream.window().kept(of).is_none()) {
        return Err(no_track());
    }
    wait_for_first(stream).await?;
    // Of a transport stream there is one playlist, which is that of its rendition, too.
    let of = rendition.unwrap_or("stream");
    wait_for(stream, || match stream.window().has(of, reload) {
        Ok(true) => Some(Ok(())),
        Ok(false) => None,
        Err(error) => Some(Err(bad(error))),
    })
    .await?;
    let write = |end: &str| {
        let window = stream.window();
        let text = match rendition {
            None => window.main_playlist(end, reload.skips),
            Some(of) => window.media_playlist(of, end, reload.skips),
        };
        text.map(String::into_bytes).ok_or_else(no_track)
    };
    let key = (rendition.unwrap_or_default(), reload.skips);
    written(&stream, key, carried, by, write).await
}

fn bad(reload: BadReload) -> Refusal {
    (Status::BadRequest, reload.note().to_owned())
}

/// The manifest of DASH. Nobody waits for what comes next of it: players ask again.
async fn manifest(
    site: &Site,
    stream: Awaited<'_>,
    name: &str,
    by: By<'_>,
) -> Result<Made, Refusal> {
    let carried = carried(site, name, by.query)?;
    wait_for_first(stream).await?;
    let write = |end: &str| {
        let text = stream.window().manifest(end).map(String::into_bytes);
        let note = "channels of transport streams have no manifest, as DASH players take none; \
                    there is hls/index.m3u8";
        text.ok_or_else(|| (Status::NotFound, note.to_owned()))
    };
    // No rendition is called that.
    let key = ("manifest.mpd", false);
    // As it stands in XML, of which credentials have nothing else.
    let end = carried.replace('&', "&amp;");
    let (text, coding, reserved) = written(&stream, key, &end, by, write).await?;
    let made = Made::live_text(text, coding, MANIFEST, ASK_AGAIN.into(), now_s(site));
    Ok(made.that_has_room(reserved))
}

async fn wait_for_first(stream: Awaited<'_>) -> Result<(), Refusal> {
    wait_until(
        stream,
        Instant::now() + FIRST_SEGMENT_WAIT_MAX,
        || stream.window().is_ready().then_some(Ok(())),
        "no segment of the channel is whole yet",
    )
    .await
}

/// Waits for what comes next, no longer than three target durations.
async fn wait_for<T>(
    stream: Awaited<'_>,
    look: impl FnMut() -> Option<Result<T, Refusal>>,
) -> Result<T, Refusal> {
    let target_s = stream.window().target_s().unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(TARGETS_WAITED * target_s);
    wait_until(
        stream,
        until,
        look,
        "nothing has come of the channel in time",
    )
    .await
}

/// Looks until there is something, each time that something has changed.
async fn wait_until<T>(
    stream: Awaited<'_>,
    until: Instant,
    mut look: impl FnMut() -> Option<Result<T, Refusal>>,
    late: &str,
) -> Result<T, Refusal> {
    let mut changes: watch::Receiver<u64> = stream.changes();
    if let Some(found) = look() {
        return found;
    }
    let gone = |note: &str| Err((Status::ServiceUnavailable, note.to_owned()));
    let waits = stream.waits;
    let of_address = waits.share.wait(waits.most);
    let Some(waiting) = stream.wait(of_address.is_some()) else {
        return gone("too many wait for this channel, or from this address");
    };
    waits.is_waiting.set(true);
    let waited = loop {
        if stream.is_closed() {
            break gone("the channel has ended");
        }
        match timeout_at(until, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break gone("the channel has ended"),
            Err(_) => {
                add(&stream.stats().waits_late);
                break gone(late);
            }
        }
        if let Some(found) = look() {
            break found;
        }
    };
    waits.is_waiting.set(false);
    waiting.end();
    waited
}

fn is_of(stream: &LiveStream, rendition: &str, format: Format) -> Option<()> {
    let window = stream.window();
    let kept = window.kept(rendition)?;
    (kept.of.format == format).then_some(())
}

fn media_type(stream: &LiveStream, rendition: &str) -> &'static str {
    let window = stream.window();
    match window.kept(rendition).map(|kept| kept.of.medium) {
        Some(Medium::Audio) => "audio/mp4",
        _ => "video/mp4",
    }
}

fn media_type_of(format: Format, rendition: &str) -> &'static str {
    match (format, rendition) {
        (Format::Ts, _) => "video/mp2t",
        (Format::Cmaf, "audio") => "audio/mp4",
        (Format::Cmaf, _) => "video/mp4",
    }
}

/// The time of day as ISO 8601 writes it.
fn now_iso() -> String {
    let now_ns = i64::try_from(Clock::now_ms()).unwrap_or(i64::MAX);
    date_time(now_ns.saturating_mul(1_000_000))
}

fn now_s(site: &Site) -> i64 {
    site.clock.with_now(|now_s, _| now_s.cast_signed())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::film::crowded;
    use super::*;
    use crate::downloads::memory::{CONNECTION_MADE_BYTES_MAX, MADE_BYTES_MAX, MadeBytes};
    use crate::hls_live::SentText;

    /// A text without a query, but for what its URLs end in, for who has that memory.
    async fn written(
        stream: &LiveStream,
        rendition: Option<&str>,
        (carried, memory): (&str, &Memory),
    ) -> Result<Written, Refusal> {
        let waits = Waits {
            is_waiting: Cell::default(),
            share: Share::default(),
            most: 1,
        };
        let stream = Awaited {
            stream,
            waits: &waits,
        };
        let by = By {
            query: None,
            codings: Codings::default(),
            memory,
        };
        playlist_text(stream, rendition, &Reload::default(), carried, by).await
    }

    fn memory() -> Memory {
        let all = MadeBytes::new(MADE_BYTES_MAX, &Arc::default());
        all.of_connection(&Share::default().made_bytes)
    }

    async fn text(stream: &LiveStream, rendition: Option<&str>) -> Result<SentText, Refusal> {
        let written = written(stream, rendition, ("", &memory())).await;
        written.map(|(text, _, _)| text)
    }

    /// Whoever asks may choose names. That of the main playlist's text is none of a track, nor is
    /// that of the manifest's.
    #[tokio::test]
    async fn playlists_of_unknown_tracks_are_not_kept() {
        let stream = LiveStream::with_segment();
        for rendition in [None, Some("video")] {
            text(&stream, rendition).await.unwrap();
        }
        assert_eq!(stream.texts_kept(), 2);
        let unknown = (0..1000).map(|number| format!("AAAA{number:04}"));
        for name in unknown.chain([String::new(), "manifest.mpd".to_owned()]) {
            let refused = text(&stream, Some(&name)).await.unwrap_err();
            assert_eq!(refused.0, Status::NotFound, "{name}");
        }
        assert_eq!(stream.texts_kept(), 2);
    }

    /// What is for all is kept once, whoever asks; what has somebody's token, for each.
    #[tokio::test]
    async fn a_text_for_one_alone_has_its_room_before_it_is_written() {
        let (stream, memory) = (LiveStream::with_segment(), memory());
        let token = format!("?token={}", "a".repeat(2000));
        let own = written(&stream, Some("video"), (&token, &memory)).await;
        let (text, _, reserved) = own.unwrap();
        assert!(text.bytes.len() > token.len() && reserved.is_some());
        let full = memory.reserve(CONNECTION_MADE_BYTES_MAX).unwrap();
        let refused = written(&stream, Some("video"), (&token, &memory)).await;
        assert_eq!(refused.unwrap_err(), crowded());
        // The one that names it has one URL, which is less than is counted.
        let main = written(&stream, None, (&token, &memory)).await;
        assert!(main.is_ok());
        let of_all = written(&stream, Some("video"), ("", &memory)).await;
        assert!(of_all.unwrap().2.is_none());
        drop(full);
        let again = written(&stream, Some("video"), (&token, &memory)).await;
        assert!(again.is_ok());
    }

    #[tokio::test]
    async fn those_of_an_address_do_not_take_all_places_of_a_channel() {
        let stream = LiveStream::with_segment();
        let share = Share::default();
        let wait = async |share: &Share| {
            let waits = Waits {
                is_waiting: Cell::default(),
                share: share.clone(),
                most: 1,
            };
            let stream = Awaited {
                stream: &stream,
                waits: &waits,
            };
            let until = Instant::now() + Duration::from_millis(1);
            wait_until(stream, until, || None::<Result<(), Refusal>>, "late").await
        };
        let taken = share.wait(1);
        let refused = wait(&share).await.unwrap_err();
        assert!(refused.1.starts_with("too many wait"), "{refused:?}");
        assert_eq!(wait(&Share::default()).await.unwrap_err().1, "late");
        drop(taken);
        assert_eq!(wait(&share).await.unwrap_err().1, "late");
    }
}
