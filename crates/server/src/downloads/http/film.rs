//! Films by HLS and DASH: playlists that are made when they are asked for, and segments that are a
//! few bytes of our own in front of pieces of the file.
//!
//! What a path means, [`onrush_wire::hls`] says; where films are cut, the library's media. Pieces
//! go as all bodies do, within the kernel; only where they are so small that each would cost more
//! than copying it, they are read and sent as bytes of our own. What may take long, or wait for a
//! disk, is done on another thread.

mod cutting;

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use onrush_wire::dash;
use onrush_wire::hls::{self, Resource as Asked, Text};
use onrush_wire::http::{PAGE_POLICY, Status, assets_from, page_policy_with};
use onrush_wire::media::Medium;
use onrush_wire::media::segments::{Format, Rendition, Segment, Segmented};
use onrush_wire::name::shown;
use onrush_wire::rtsp::ELEMENTARY;
use tracing::{debug, warn};

pub use self::cutting::{ANSWER_WAIT_MAX, INDEX_WAIT_MAX};
use self::cutting::{Films, cut_all};
use super::made::{ASK_AGAIN, FOR_EVER, Made, tag_of};
use super::segment_files::{gather, warm};
use super::several::{self, Files, Player};
use super::texts::Texts;
use crate::downloads::Site;
use crate::downloads::memory::{CROWDED, Memory, Reserved};
use crate::library::{Identity, Media, OpenError, blocking};
use crate::peer_log::{Escaped, PEER_LOG_LINES_MAX, Throttle};
use crate::remote::FilmFile;
use crate::users::Refusal as NotAllowed;

/// Segments of more samples than these are made on another thread.
const SAMPLES_HERE_MAX: u64 = 4096;

/// Pieces that are shorter than this, as a mean, are copied: to send one within the kernel costs
/// about as much.
const PIECE_BYTES_MIN: u64 = 4096;

/// Bytes of a segment that are copied at the most; of what is larger, pieces go as they are.
const COPIED_BYTES_MAX: u64 = 4 << 20;

const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const SUBTITLES: &str = "text/vtt; charset=utf-8";
pub(super) const MANIFEST: &str = "application/dash+xml";

/// What a client is told instead of a resource.
pub(super) type Refusal = (Status, String);

/// The film that `path` is a playlist, a manifest or a segment of, if it is spelled as one: by its
/// own name, which rights are about, and not by the one that RTSP has for its streams.
pub(super) fn of(path: &str) -> Option<&str> {
    let (film, _) = hls::parse(path)?;
    (!film.ends_with(ELEMENTARY)).then_some(film)
}

/// The resource of a film that `path` names, or why there is none; `None` if it names something
/// else. `query` is what the request's target has behind its `?`, `memory` of whoever asks, and
/// `player` who that is where its rights to the film are not all that counts.
///
/// # Errors
///
/// If that one may not play it.
pub(super) async fn find(
    site: &Site,
    (path, query): (&str, Option<&str>),
    player: Option<&Player<'_>>,
    memory: &Memory,
) -> Result<Option<Result<Made, Refusal>>, NotAllowed> {
    let Some((name, asked)) = hls::parse(path) else {
        return Ok(None);
    };
    // Only live channels have these.
    if matches!(
        asked,
        Asked::Part { .. } | Asked::SegmentAt { .. } | Asked::Time
    ) {
        return Ok(None);
    }
    let files = several::played(site, name, player).await?;
    let found = found(site, (name, asked, query), files, memory).await;
    Ok(found.map(|found| {
        found.map_err(|refusal| match (asked, refusal) {
            // Pages of folders ask for one of each film, and cannot know which have pictures.
            (Asked::Poster, (Status::NotFound, note)) => (Status::NoContent, note),
            (_, refusal) => refusal,
        })
    }))
}

async fn found(
    site: &Site,
    (name, asked, query): (&str, Asked<'_>, Option<&str>),
    files: Files,
    memory: &Memory,
) -> Option<Result<Made, Refusal>> {
    let files = match files {
        Some(Ok(files)) => files,
        Some(Err(refusal)) => return Some(Err(refusal)),
        None => vec![name.to_owned()],
    };
    let is_alone = files.len() == 1;
    let mut parts = Vec::with_capacity(files.len());
    for file in &files {
        match open(site, file).await {
            Some(Ok(media)) => parts.push(media),
            Some(Err((_, error))) if !is_alone => {
                let (shown, error) = (shown(file), error.escape_debug());
                let file = Escaped(&shown);
                tell(name, format_args!("{file} is left out: {error}"));
            }
            Some(Err(refusal)) => return Some(Err(refusal)),
            None => {}
        }
    }
    // There may be a file by this name, in a folder.
    let first = parts.first()?;
    if asked == Asked::Page {
        return Some(Ok(page(site, first, name)));
    }
    let texts = match asked {
        Asked::Main | Asked::Media { .. } | Asked::Manifest | Asked::Text { .. } => {
            Texts::find(site, name, &parts).await
        }
        _ => Texts::default(),
    };
    if let Asked::Text { .. } = asked {
        return Some(text(site, &parts, &texts, asked).await);
    }
    let listed = (name, texts.listed(), query);
    Some(make(site, &parts, asked, listed, memory).await)
}

/// Subtitles, or a segment of them.
async fn text(
    site: &Site,
    parts: &[Arc<Media>],
    texts: &Texts,
    asked: Asked<'_>,
) -> Result<Made, Refusal> {
    let Asked::Text {
        name,
        version,
        number,
    } = asked
    else {
        return Err(changed());
    };
    let media = parts.first().ok_or_else(changed)?;
    let ends_ms = match number {
        Some(_) => None,
        None => {
            let films = cut_all(parts, asked).await?;
            Some(films.presentation("").duration_ns().div_ceil(1_000_000))
        }
    };
    let text = texts.webvtt(site, (name, version), number, ends_ms).await;
    let text = text.map_err(|error| {
        tell(media.name(), format_args!("subtitles: {error}"));
        let note = "the subtitles cannot be read".to_owned();
        (Status::ServiceUnavailable, note)
    })?;
    let text = text.ok_or_else(changed)?;
    Ok(Made::text(media, text.into_bytes(), SUBTITLES).that_stays())
}

async fn open(site: &Site, name: &str) -> Option<Result<Arc<Media>, Refusal>> {
    match site.library.open(name).await {
        Ok(media) => Some(Ok(media)),
        Err(error) => refused(name, &error).map(Err),
    }
}

/// What a client is told of a film that cannot be opened; nothing where there is none. It chose the
/// name, so that nothing of that may end a line of the log.
fn refused(name: &str, error: &OpenError) -> Option<Refusal> {
    match error {
        OpenError::Directory { .. } | OpenError::NotFound { .. } => None,
        OpenError::NotMedia { .. } => Some((Status::NotFound, error.to_string())),
        // As of the file itself.
        OpenError::Read { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some((Status::Forbidden, "this cannot be read".to_owned()))
        }
        _ => {
            tell(name, format_args!("{}", error.to_string().escape_debug()));
            let note = "the server is short of something".to_owned();
            Some((Status::ServiceUnavailable, note))
        }
    }
}

async fn make(
    site: &Site,
    parts: &[Arc<Media>],
    asked: Asked<'_>,
    listed: (&str, Vec<Text>, Option<&str>),
    memory: &Memory,
) -> Result<Made, Refusal> {
    let version = asked.version();
    if version.is_some_and(|version| !parts.iter().any(|it| it.has_version(version))) {
        return Err(changed());
    }
    if version.is_some() {
        site.stats.segment_asked();
    }
    let films = cut_all(parts, asked).await?;
    let rendition = match asked {
        Asked::Segment { rendition, .. }
        | Asked::Picture { rendition, .. }
        | Asked::Init { rendition, .. } => rendition,
        Asked::Poster => "video",
        Asked::Main | Asked::Media { .. } | Asked::Pictures { .. } | Asked::Manifest => {
            return playlist(site, films, asked, listed, memory).await;
        }
        _ => return Err(changed()),
    };
    let view = films.presentation("");
    let no_track = || (Status::NotFound, "the film has no such track".to_owned());
    let listed = view.rendition(rendition).ok_or_else(no_track)?;
    let (media, cut) = &films.0[listed.part];
    // Before it is asked whether the version is this one's.
    let film = lasting(media);
    if version.is_some_and(|version| !media.has_version(version)) {
        return Err(changed());
    }
    let none = || (Status::NotFound, "the film has no such segment".to_owned());
    if matches!(asked, Asked::Segment { format, .. } if format != listed.of.format()) {
        return Err(none());
    }
    let (etag, media_type) = described(media, listed.of, asked);
    let cache_control = match asked {
        Asked::Poster => ASK_AGAIN,
        _ => FOR_EVER,
    };
    if let Some(kept) = site.segment_files.get(&etag, media.identity()) {
        let told = (etag, media_type, cache_control);
        return Ok(Made::of_file(media, kept, told));
    }
    // It is given back when the answer is there, which then has it counted.
    let (segment, _memory) = match site.segments.get(&etag, media.identity()) {
        Some(lately) => {
            gather(site, media, &etag, &lately);
            (lately, None)
        }
        None => {
            let segment = segment(cut, listed.of, asked).await?;
            let segment = segment.ok_or_else(none)?;
            as_sent(site, (media, film, &etag), segment, memory).await?
        }
    };
    site.segment_files.missed(&segment);
    let held = media.file().hold(&segment.pieces).await.map_err(|error| {
        tell(media.name(), format_args!("{error}"));
        let note = "the film cannot be read now; try again in a few seconds";
        (Status::ServiceUnavailable, note.to_owned())
    })?;
    let made = Made::new(media, segment, etag, media_type, cache_control);
    Ok(made.that_holds(held).that_is_of(film))
}

/// What a film's file is to be until a segment has left; of one that may be written still, or lies
/// elsewhere, nothing can be told by it.
fn lasting(media: &Media) -> Option<Identity> {
    let may_change = media.goes_on() || media.file().remote.is_some();
    (!may_change).then(|| media.identity())
}

/// The entity tag and the media type of what is asked of a rendition.
fn described(media: &Media, of: &Rendition, asked: Asked<'_>) -> (String, &'static str) {
    let media_type = match (of.format(), of.medium) {
        (Format::Ts, _) => "video/mp2t",
        (Format::Cmaf, Medium::Audio) => "audio/mp4",
        (Format::Cmaf, _) => "video/mp4",
    };
    let (kind, version, number) = match asked {
        Asked::Segment {
            version, number, ..
        } => ("s", version, number),
        Asked::Picture {
            version, number, ..
        } => ("i", version, number),
        Asked::Init { version, .. } => ("init", version, 0),
        _ => ("poster", media.version(), 1),
    };
    let etag = format!("\"{version}-{}-{kind}{number}\"", of.name);
    (etag, media_type)
}

/// Says in the log what is wrong with a film: whoever asks for it has that said.
fn tell(name: &str, what: fmt::Arguments<'_>) {
    static LINES: Throttle = Throttle::new(PEER_LOG_LINES_MAX);
    let shown = shown(name);
    let name = Escaped(&shown);
    match LINES.admit() {
        Some(omitted) => warn!("{name}: {what}{omitted}"),
        None => debug!("{name}: {what}"),
    }
}

/// Answers hold all the memory that they may.
pub(super) fn crowded() -> Refusal {
    (Status::ServiceUnavailable, CROWDED.to_owned())
}

fn changed() -> Refusal {
    let note = "the film has changed; load its playlist again";
    (Status::NotFound, note.to_owned())
}

/// What is asked of a rendition, if there is such a thing.
async fn segment(
    film: &Arc<Segmented>,
    of: &Rendition,
    asked: Asked<'_>,
) -> Result<Option<Segment>, Refusal> {
    Ok(match asked {
        Asked::Segment { number, .. } => {
            if of.weight(number) > SAMPLES_HERE_MAX {
                let (film, name) = (Arc::clone(film), of.name.clone());
                return elsewhere(move || film.rendition(&name)?.segment(number)).await;
            }
            of.segment(number)
        }
        Asked::Picture { number, .. } => of.picture(number),
        Asked::Poster => poster(of),
        _ => of.init_segment().map(|head| Segment {
            head,
            pieces: Vec::new(),
        }),
    })
}

async fn playlist(
    site: &Site,
    films: Films,
    asked: Asked<'_>,
    (name, texts, query): (&str, Vec<Text>, Option<&str>),
    memory: &Memory,
) -> Result<Made, Refusal> {
    // Of a list that was stored each file has a right of its own.
    let own = films.0.iter().map(|(media, _)| media.name());
    let own = own.filter(|_| several::is_stored(site, name));
    let paths = [name].into_iter().chain(own);
    let carried = site.authorizer.carried(paths, query);
    let query = carried.map_err(|error| (Status::UriTooLong, error.to_string()))?;
    let media = Arc::clone(&films.0[0].0);
    let (media_type, name) = match asked {
        Asked::Manifest => (MANIFEST, None),
        Asked::Media { rendition } | Asked::Pictures { rendition } => {
            (PLAYLIST, Some(rendition.to_owned()))
        }
        _ => (PLAYLIST, None),
    };
    let has_pictures = matches!(asked, Asked::Pictures { .. });
    let is_manifest = matches!(asked, Asked::Manifest);
    if is_manifest && !films.presentation("").is_complete {
        let note = "the film is not read to its end yet, or is written still".to_owned();
        return Err((Status::ServiceUnavailable, note));
    }
    // Before it waits for its turn to be written: many may.
    let reserved = memory.reserve(films.presentation(&query).text_bytes(&asked));
    let reserved = reserved.ok_or_else(crowded)?;
    let listed_max = films.listed_max();
    let write = move || {
        let mut film = films.presentation(&query);
        film.listed_max = listed_max;
        if film.is_complete {
            film.texts = texts;
        }
        let text = name.as_deref().and_then(|name| film.text(name));
        let text = match name.as_deref().map(|name| film.rendition(name)) {
            _ if is_manifest => dash::manifest(&film),
            _ if text.is_some() && !has_pictures => Some(hls::text_playlist(&film, text?)),
            Some(of) if has_pictures => hls::picture_playlist(&film, of?),
            Some(of) => Some(hls::media_playlist(&film, of?)),
            None => Some(hls::main_playlist(&film)),
        };
        let text = text?.into_bytes();
        Some((tag_of(&text), text))
    };
    let text = elsewhere(write).await?;
    let none = || "the film has nothing of this kind".to_owned();
    let (etag, text) = text.ok_or_else(|| (Status::NotFound, none()))?;
    let made = Made::tagged_text(&media, text, etag, media_type);
    Ok(made.that_has_room(reserved))
}

/// The page that plays the film `name`. In a cluster its script has the film from the node that is
/// its home, and from here if that one goes.
fn page(site: &Site, media: &Media, name: &str) -> Made {
    // It lies two folders below the film.
    let assets = assets_from(&format!("{name}/hls"));
    let text = include_str!("page/player.html").replace("{assets}", &assets);
    let cluster = site.statistics.cluster_of_many();
    let policy = cluster.map_or(Cow::Borrowed(PAGE_POLICY), |cluster| {
        page_policy_with(&cluster.origins(name)).into()
    });
    Made::page(media, text, policy)
}

/// A film of one picture: the first of a rendition that can be shown alone.
fn poster(of: &Rendition) -> Option<Segment> {
    let Segment { head, pieces } = of.picture(1)?;
    let head = [of.init_segment()?, head].concat();
    Some(Segment { head, pieces })
}

/// A segment as it is sent, and what it takes of `memory`: copied, if that costs less and there is
/// room for it. It is kept for whoever asks next, unless it lacked that room.
async fn as_sent(
    site: &Site,
    (media, film, etag): (&Media, Option<Identity>, &str),
    mut segment: Segment,
    memory: &Memory,
) -> Result<(Rc<Segment>, Option<Reserved>), Refusal> {
    let mut reserved = None;
    if is_scattered(&segment) {
        let bytes = usize::try_from(segment.bytes()).unwrap_or(usize::MAX);
        reserved = memory.reserve(bytes);
        if reserved.is_none() {
            return Ok((Rc::new(segment), None));
        }
        let file = media.file();
        let copied = blocking(move || copied(&file, film, segment)).await;
        segment = copied.map_err(|error| {
            tell(media.name(), format_args!("{error}"));
            let note = "the file cannot be read; it may have been cut or written over";
            (Status::ServiceUnavailable, note.to_owned())
        })?;
    }
    let segment = Rc::new(segment);
    site.segments.insert(etag, media.identity(), &segment);
    Ok((segment, reserved))
}

/// Whether it costs less to copy its pieces.
fn is_scattered(segment: &Segment) -> bool {
    let (bytes, pieces) = (segment.file_bytes(), segment.pieces.len() as u64);
    pieces > 1 && bytes < pieces * PIECE_BYTES_MIN && bytes <= COPIED_BYTES_MAX
}

/// Where pieces lie that have hardly anything between them, as packets of M2TS: all of it is read
/// by one call.
fn dense(pieces: &[Range<u64>], bytes: u64) -> Option<Range<u64>> {
    let all = pieces.first()?.start..pieces.last()?.end;
    let is_in_order = pieces.windows(2).all(|it| it[0].end <= it[1].start);
    (is_in_order && all.end - all.start <= bytes + bytes / 8).then_some(all)
}

/// The same segment, all of it in memory, if its file is that film until then. Blocks.
fn copied(file: &FilmFile, film: Option<Identity>, segment: Segment) -> io::Result<Segment> {
    let Segment { mut head, pieces } = segment;
    let start = pieces.iter().map(|it| it.start).min().unwrap_or(0);
    let end = pieces.iter().map(|it| it.end).max().unwrap_or(0);
    let _held = file.hold_blocking(start..end)?;
    let file = &*file.file;
    warm(file, &pieces)?;
    let bytes = pieces.iter().map(|it| it.end - it.start).sum::<u64>();
    head.reserve_exact(usize::try_from(bytes).unwrap_or(0));
    if let Some(all) = dense(&pieces, bytes) {
        let mut span = vec![0; usize::try_from(all.end - all.start).map_err(io::Error::other)?];
        file.read_exact_at(&mut span, all.start)?;
        let at = |offset: u64| usize::try_from(offset - all.start).unwrap_or(usize::MAX);
        for piece in pieces {
            head.extend_from_slice(&span[at(piece.start)..at(piece.end)]);
        }
    } else {
        for piece in pieces {
            let at = head.len();
            let bytes = usize::try_from(piece.end - piece.start).unwrap_or(0);
            head.resize(at + bytes, 0);
            file.read_exact_at(&mut head[at..], piece.start)?;
        }
    }
    // Whatever was read before is then of the same version. Here a file server may be asked.
    if let Some(film) = film
        && Identity::of(&file.metadata()?) != film
    {
        return Err(io::Error::other("the film was changed meanwhile"));
    }
    Ok(Segment {
        head,
        pieces: Vec::new(),
    })
}

/// Does on another thread what may take a while.
async fn elsewhere<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = blocking(move || Ok(work())).await;
    done.map_err(|error| {
        warn!("making a playlist or a segment: {error}");
        let note = "the server is short of something";
        (Status::ServiceUnavailable, note.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// As of a film that is written over while a segment of it is read.
    #[test]
    fn nothing_is_copied_of_another_version() {
        let mut written = tempfile::tempfile().unwrap();
        written.write_all(&[7; 100]).unwrap();
        let film = Identity::of(&written.metadata().unwrap());
        let file = FilmFile::from(written);
        let earlier = Identity {
            modified_ns: film.modified_ns - 1,
            ..film
        };
        for pieces in [vec![0..10, 10..20], vec![0..10, 90..100]] {
            let copied = |film| {
                let (head, pieces) = (vec![1_u8], pieces.clone());
                copied(&file, film, Segment { head, pieces })
            };
            let whole = [&[1_u8][..], &[7; 20]].concat();
            assert_eq!(copied(Some(film)).unwrap().head, whole);
            assert_eq!(copied(None).unwrap().head, whole);
            copied(Some(earlier)).unwrap_err();
        }
    }

    #[test]
    fn a_film_has_one_name() {
        assert_eq!(of("a/b.ts/hls/index.m3u8"), Some("a/b.ts"));
        for path in ["hls/index.m3u8", "dash/manifest.mpd"] {
            assert_eq!(of(&format!("a/b.ts/tracks=elementary/{path}")), None);
        }
    }

    #[test]
    fn what_cannot_be_opened_is_told_as_of_files() {
        let status = |kind: io::ErrorKind| {
            let name = "film.mp4".to_owned();
            let source = kind.into();
            let error = OpenError::Read { name, source };
            refused("film.mp4", &error).map(|(status, _)| status)
        };
        let denied = status(io::ErrorKind::PermissionDenied);
        assert_eq!(denied, Some(Status::Forbidden));
        let other = status(io::ErrorKind::Other);
        assert_eq!(other, Some(Status::ServiceUnavailable));
        let name = "film.mp4".to_owned();
        assert_eq!(refused("film.mp4", &OpenError::NotFound { name }), None);
    }
}
