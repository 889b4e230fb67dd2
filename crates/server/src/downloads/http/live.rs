//! Live channels by HLS (RFC 8216bis) and DASH: requests that wait for what comes next, and bytes
//! that are shared by all who ask.
//!
//! A channel's resources lie beneath its name as a film's do beneath its file. Waiting is bounded:
//! by three target durations, and by so many requests for a channel.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use onrush_wire::auth::carried_query;
use onrush_wire::hls::live::{BadReload, Found, Reload, date_time};
use onrush_wire::hls::{self, Resource as Asked};
use onrush_wire::http::{ASSETS, Coding, Codings, ListedChannel, PAGE_POLICY, Status, assets_from};
use onrush_wire::media::Medium;
use onrush_wire::media::segments::Format;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::film::MANIFEST;
use super::made::{
    ASK_AGAIN, COMPRESSED_BYTES_MIN, COMPRESSED_HERE_BYTES_MAX, Made, compressed, of_texts, tagged,
};
use crate::downloads::Site;
use crate::downloads::clock::Clock;
use crate::hls_live::{LiveStream, SegmentBytes, SentText, add};
use crate::library::blocking;

/// How long the first playlist of a channel is waited for: until a segment is whole.
pub const FIRST_SEGMENT_WAIT_MAX: Duration = Duration::from_secs(20);

/// What comes next is waited for so many target durations (RFC 8216bis, section 6.2.5.2).
const TARGETS_WAITED: u64 = 3;

const PLAYLIST: &str = "application/vnd.apple.mpegurl";

type Refusal = (Status, String);

/// Whether a request waits for what comes next of a channel. While it does, whoever has its
/// connection looks whether the client is still there, and drops the request if it is not: then its
/// place among those who wait is free at once.
#[derive(Debug, Default)]
pub(super) struct Waits(Cell<bool>);

impl Waits {
    pub(super) fn is_waiting(&self) -> bool {
        self.0.get()
    }
}

/// The resource of a live channel that `path` names, or why there is none; `None` if it names
/// something else.
pub(super) async fn find(
    site: &Site,
    (path, query, codings): (&str, Option<&str>, Codings),
    waits: &Waits,
) -> Option<Result<Made, Refusal>> {
    let (name, asked) = hls::parse(path)?;
    let stream = match site.live.find(name).await? {
        Ok(stream) => stream,
        Err(note) => return Some(Err((Status::NotFound, note))),
    };
    let stream = Awaited {
        stream: &stream,
        waits,
    };
    Some(make(site, stream, name, asked, query, codings).await)
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

async fn make(
    site: &Site,
    stream: Awaited<'_>,
    name: &str,
    asked: Asked<'_>,
    query: Option<&str>,
    codings: Codings,
) -> Result<Made, Refusal> {
    let nothing = || (Status::NotFound, "the channel has no such thing".to_owned());
    count(&stream, asked);
    match asked {
        Asked::Main => playlist(site, stream, None, query, codings).await,
        Asked::Media { rendition } => playlist(site, stream, Some(rendition), query, codings).await,
        Asked::Manifest => manifest(site, stream, query, codings).await,
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
        } => {
            is_of(&stream, rendition, format).ok_or_else(nothing)?;
            let etag = format!("\"{version}-{rendition}-{number}\"");
            let (media_type, now_s) = (media_type_of(format, rendition), now_s(site));
            let found = stream.segment(rendition, version, number);
            Ok(match found.ok_or_else(nothing)? {
                SegmentBytes::Shared(bytes) => Made::live(bytes, etag, media_type, now_s),
                SegmentBytes::Stored(file, at) => Made::stored((file, at), etag, media_type, now_s),
            })
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
        Asked::Segment { .. } | Asked::Part { .. } => add(&stream.stats().media),
        _ => {}
    }
}

async fn playlist(
    site: &Site,
    stream: Awaited<'_>,
    rendition: Option<&str>,
    query: Option<&str>,
    codings: Codings,
) -> Result<Made, Refusal> {
    let reload = Reload::parse(query).map_err(bad)?;
    let carried = carried_query(query);
    let (text, coding) = playlist_text(stream, rendition, &reload, &carried, codings).await?;
    // What was waited for is the same for all who wait for it, and what follows asks for more.
    let target_s = stream.window().target_s().unwrap_or(1);
    let cache_control = match reload.until {
        Some(_) => format!("max-age={}", 6 * target_s).into(),
        None => ASK_AGAIN.into(),
    };
    Ok(Made::live_text(
        text,
        coding,
        PLAYLIST,
        cache_control,
        now_s(site),
    ))
}

/// Its text, once it has what `reload` waits for.
async fn playlist_text(
    stream: Awaited<'_>,
    rendition: Option<&str>,
    reload: &Reload,
    carried: &str,
    codings: Codings,
) -> Result<(SentText, Option<Coding>), Refusal> {
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
    let write = || {
        let window = stream.window();
        let text = match rendition {
            None => window.main_playlist(carried, reload.skips),
            Some(of) => window.media_playlist(of, carried, reload.skips),
        };
        text.map(String::into_bytes).ok_or_else(no_track)
    };
    let key = (rendition.unwrap_or_default(), reload.skips);
    written(&stream, key, carried, codings, write).await
}

fn bad(reload: BadReload) -> Refusal {
    (Status::BadRequest, reload.note().to_owned())
}

/// The manifest of DASH. Nobody waits for what comes next of it: players ask again.
async fn manifest(
    site: &Site,
    stream: Awaited<'_>,
    query: Option<&str>,
    codings: Codings,
) -> Result<Made, Refusal> {
    wait_for_first(stream).await?;
    let carried = carried_query(query);
    let write = || {
        let text = stream.window().manifest(&carried).map(String::into_bytes);
        let note = "channels of transport streams have no manifest, as DASH players take none; \
                    there is hls/index.m3u8";
        text.ok_or_else(|| (Status::NotFound, note.to_owned()))
    };
    // No rendition is called that.
    let key = ("manifest.mpd", false);
    let (text, coding) = written(&stream, key, &carried, codings, write).await?;
    let cache_control = ASK_AGAIN.into();
    Ok(Made::live_text(
        text,
        coding,
        MANIFEST,
        cache_control,
        now_s(site),
    ))
}

/// A text as it is sent.
async fn written(
    stream: &LiveStream,
    (name, skips): (&str, bool),
    carried: &str,
    codings: Codings,
    write: impl FnOnce() -> Result<Vec<u8>, Refusal>,
) -> Result<(SentText, Option<Coding>), Refusal> {
    // Known before anything is written: what is compressed is of the same changes.
    let changes = stream.change_count();
    let shared = Shared {
        stream,
        changes,
        is_for_all: carried.is_empty(),
    };
    let plain = async { write().map(tagged) };
    let plain = shared.text((name, skips, None), plain).await?;
    let coding = of_texts(codings).filter(|_| plain.bytes.len() >= COMPRESSED_BYTES_MIN);
    let Some(coding) = coding else {
        return Ok((plain, None));
    };
    let shorter = shorter(Arc::clone(&plain.bytes), coding);
    let shorter = shared.text((name, skips, Some(coding)), shorter).await?;
    Ok((shorter, Some(coding)))
}

/// Texts of so many changes or more: the same bytes for all whose URLs carry no credentials.
struct Shared<'a> {
    stream: &'a LiveStream,
    changes: u64,
    is_for_all: bool,
}

impl Shared<'_> {
    async fn text(
        &self,
        key: (&str, bool, Option<Coding>),
        make: impl Future<Output = Result<SentText, Refusal>>,
    ) -> Result<SentText, Refusal> {
        match self.is_for_all {
            true => self.stream.text(self.changes, key, make).await,
            false => make.await,
        }
    }
}

/// A text compressed, on another thread if it is long.
async fn shorter(text: Arc<[u8]>, coding: Coding) -> Result<SentText, Refusal> {
    let shorter = match text.len() > COMPRESSED_HERE_BYTES_MAX {
        true => blocking(move || compressed(&text, coding)).await,
        false => compressed(&text, coding),
    };
    let note = "the server is short of something";
    let shorter = shorter.map_err(|_| (Status::ServiceUnavailable, note.to_owned()));
    shorter.map(tagged)
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
    let Some(waiting) = stream.wait() else {
        return gone("too many wait for this channel");
    };
    stream.waits.0.set(true);
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
    stream.waits.0.set(false);
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
    use super::*;

    async fn text(stream: &LiveStream, rendition: Option<&str>) -> Result<SentText, Refusal> {
        let waits = Waits::default();
        let stream = Awaited {
            stream,
            waits: &waits,
        };
        let (reload, codings) = (Reload::default(), Codings::default());
        let text = playlist_text(stream, rendition, &reload, "", codings).await;
        text.map(|(text, _)| text)
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
}
