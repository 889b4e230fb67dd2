//! Films by HLS and DASH: playlists that are made when they are asked for, and segments that are a
//! few bytes of our own in front of pieces of the file.
//!
//! What a path means, [`onrush_wire::hls`] says; where films are cut, the library's media. Pieces
//! go as all bodies do, within the kernel; only where they are so small that each would cost more
//! than copying it, they are read and sent as bytes of our own. What may take long, or wait for a
//! disk, is done on another thread.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use onrush_sys::path::cue;
use onrush_wire::calendar::clamped;
use onrush_wire::dash;
use onrush_wire::hls::{self, PlayerFile, Resource as Asked, Version};
use onrush_wire::http::{Resource, Status, Validators};
use onrush_wire::media::Medium;
use onrush_wire::media::segments::{Format, Rendition, Segment, Segmented, SegmentsError};
use onrush_wire::name::shown;
use socket2::SockRef;
use tracing::warn;

use crate::byte_stream::ByteStream;
use crate::downloads::Site;
use crate::downloads::clock::http_date;
use crate::downloads::send::send_on;
use crate::library::{Media, OpenError, blocking};
use crate::transfer::{Control, Policy, TransferError, Transfers};

/// How long a playlist of a film waits that is not read to its end. After that it has what is
/// known, and says that more follows.
pub const INDEX_WAIT_MAX: Duration = Duration::from_secs(10);

/// Segments of more samples than these are made on another thread.
const SAMPLES_HERE_MAX: u64 = 4096;

/// Pieces that are shorter than this, as a mean, are copied: to send one within the kernel costs
/// about as much.
const PIECE_BYTES_MIN: u64 = 4096;

/// Bytes of a segment that are copied at the most; of what is larger, pieces go as they are.
const COPIED_BYTES_MAX: u64 = 4 << 20;

/// Bytes of the file that are brought into memory for that at once.
const WARMED_BYTES_MAX: u64 = 64 << 20;

/// What is in URLs with a version never changes; all else is asked for again, and as a rule has not
/// changed.
const FOR_EVER: &str = "max-age=31536000, immutable";
const ASK_AGAIN: &str = "no-cache";

const PLAYLIST: &str = "application/vnd.apple.mpegurl";
const MANIFEST: &str = "application/dash+xml";

/// What the page of a film may load and run: its own files and the film.
const PLAYER_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     media-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'self'";

/// What a client is told instead of a resource.
pub(super) type Refusal = (Status, String);

/// A resource of a film.
#[derive(Debug)]
pub(super) struct Made {
    content: Segment,
    file: Arc<File>,
    etag: String,
    modified_s: i64,
    last_modified: String,
    media_type: &'static str,
    cache_control: &'static str,
    policy: Option<&'static str>,
}

/// How bytes go to a client.
pub(super) struct Way<'a> {
    pub(super) socket: &'a ByteStream,
    pub(super) transfers: &'a Transfers,
    pub(super) policy: &'a Policy,
    pub(super) control: &'a Control,
    pub(super) stall_time_max: Duration,
}

/// The film that `path` is a playlist, a manifest or a segment of, if it is spelled as one.
pub(super) fn of(path: &str) -> Option<&str> {
    hls::parse(path).map(|(film, _)| film)
}

/// The resource of a film that `path` names, or why there is none; `None` if it names something
/// else.
pub(super) async fn find(site: &Site, path: &str) -> Option<Result<Made, Refusal>> {
    let (name, asked) = hls::parse(path)?;
    let media = match site.library.open(name).await {
        Ok(media) => media,
        // There may be a file by this name, in a folder.
        Err(OpenError::Directory { .. } | OpenError::NotFound { .. }) => return None,
        Err(error @ OpenError::NotMedia { .. }) => {
            return Some(Err((Status::NotFound, error.to_string())));
        }
        Err(error) => {
            warn!("{}: {error}", shown(path));
            let note = "the server is short of something".to_owned();
            return Some(Err((Status::ServiceUnavailable, note)));
        }
    };
    Some(make(media, asked).await)
}

async fn make(media: Arc<Media>, asked: Asked<'_>) -> Result<Made, Refusal> {
    let version = match asked {
        Asked::Init { version, .. }
        | Asked::Segment { version, .. }
        | Asked::Picture { version, .. } => Some(version),
        _ => None,
    };
    if let Asked::Player(file) = asked {
        return Ok(player(&media, file));
    }
    if version.is_some_and(|version| !media.has_version(version)) {
        let note = "the film has changed; load its playlist again";
        return Err((Status::NotFound, note.to_owned()));
    }
    let film = cut(&media, version.is_none()).await?;
    match asked {
        Asked::Segment {
            rendition,
            number,
            format,
            ..
        } => {
            let rendition = of_name(&film, rendition)?;
            let is_one = rendition.format() == format;
            if !is_one || rendition.weight(number) <= SAMPLES_HERE_MAX {
                let segment = rendition.segment(number).filter(|_| is_one);
                return segment_of(&media, rendition, segment, asked).await;
            }
            let (film, name) = (Arc::clone(&film), rendition.name.clone());
            let made = elsewhere(move || film.rendition(&name)?.segment(number)).await?;
            segment_of(&media, rendition, made, asked).await
        }
        Asked::Picture {
            rendition, number, ..
        } => {
            let rendition = of_name(&film, rendition)?;
            segment_of(&media, rendition, rendition.picture(number), asked).await
        }
        Asked::Init { rendition, .. } => {
            let rendition = of_name(&film, rendition)?;
            let head = rendition.init_segment();
            let segment = head.map(|head| Segment {
                head,
                pieces: Vec::new(),
            });
            segment_of(&media, rendition, segment, asked).await
        }
        _ => playlist(&media, film, asked).await,
    }
}

/// The film in segments. With `waits` until all of it is known, if that does not take too long.
async fn cut(media: &Arc<Media>, waits: bool) -> Result<Arc<Segmented>, Refusal> {
    let cut_now = async || -> Result<_, Refusal> {
        if media.is_segmented() {
            return Ok(media.segmented());
        }
        let media = Arc::clone(media);
        elsewhere(move || media.segmented()).await
    };
    let mut film = cut_now().await?;
    let is_complete = film.as_ref().is_ok_and(|film| film.is_complete);
    if waits && !is_complete && media.is_partial() {
        media.known_to(u64::MAX, INDEX_WAIT_MAX).await;
        film = cut_now().await?;
    }
    film.map_err(|error: SegmentsError| (Status::NotFound, error.to_string()))
}

fn of_name<'a>(film: &'a Segmented, name: &str) -> Result<&'a Rendition, Refusal> {
    let none = || (Status::NotFound, "the film has no such track".to_owned());
    film.rendition(name).ok_or_else(none)
}

async fn playlist(
    media: &Arc<Media>,
    film: Arc<Segmented>,
    asked: Asked<'_>,
) -> Result<Made, Refusal> {
    let version = media.version();
    let (media_type, name) = match asked {
        Asked::Manifest => (MANIFEST, None),
        Asked::Media { rendition } | Asked::Pictures { rendition } => {
            (PLAYLIST, Some(of_name(&film, rendition)?.name.clone()))
        }
        _ => (PLAYLIST, None),
    };
    let has_pictures = matches!(asked, Asked::Pictures { .. });
    let is_manifest = matches!(asked, Asked::Manifest);
    let is_complete = film.is_complete;
    let write = move || {
        let rendition = name.and_then(|name| film.rendition(&name));
        match rendition {
            _ if is_manifest => dash::manifest(&film, version),
            Some(of) if has_pictures => hls::picture_playlist(&film, of, version),
            Some(of) => Some(hls::media_playlist(&film, of, version)),
            None => Some(hls::main_playlist(&film, version)),
        }
    };
    if is_manifest && !is_complete {
        let note = "the film is not read to its end yet, or is written still".to_owned();
        return Err((Status::ServiceUnavailable, note));
    }
    let text = elsewhere(write).await?;
    let none = || {
        (
            Status::NotFound,
            "the film has nothing of this kind".to_owned(),
        )
    };
    let head = text.ok_or_else(none)?.into_bytes();
    let etag = format!("\"{:016x}-{:x}\"", fnv(&head), head.len());
    let content = Segment {
        head,
        pieces: Vec::new(),
    };
    Ok(Made::new(media, content, etag, media_type, ASK_AGAIN))
}

/// A file of the page that plays a film.
fn player(media: &Media, file: PlayerFile) -> Made {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    let (text, media_type) = match file {
        PlayerFile::Page => (
            &include_bytes!("player/player.html")[..],
            "text/html; charset=utf-8",
        ),
        PlayerFile::Style => (
            &include_bytes!("player/player.css")[..],
            "text/css; charset=utf-8",
        ),
        PlayerFile::Script => (&include_bytes!("player/player.js")[..], SCRIPT),
        PlayerFile::Playlist => (&include_bytes!("player/playlist.js")[..], SCRIPT),
    };
    let content = Segment {
        head: text.to_vec(),
        pieces: Vec::new(),
    };
    let etag = format!("\"{:016x}\"", fnv(text));
    let mut made = Made::new(media, content, etag, media_type, ASK_AGAIN);
    made.policy = Some(PLAYER_POLICY);
    made
}

/// A segment as it is sent, if there is one.
async fn segment_of(
    media: &Arc<Media>,
    rendition: &Rendition,
    segment: Option<Segment>,
    asked: Asked<'_>,
) -> Result<Made, Refusal> {
    let none = || (Status::NotFound, "the film has no such segment".to_owned());
    let mut segment = segment.ok_or_else(none)?;
    if is_scattered(&segment) {
        let file = media.file();
        let copied = blocking(move || copied(&file, segment)).await;
        segment = copied.map_err(|error| {
            warn!("{:?}: {error}", media.name());
            let note = "the file cannot be read; it may have been cut";
            (Status::ServiceUnavailable, note.to_owned())
        })?;
    }
    let media_type = match (rendition.format(), rendition.medium) {
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
        _ => ("", Version(0), 0),
    };
    let etag = format!("\"{version}-{}-{kind}{number}\"", rendition.name);
    Ok(Made::new(media, segment, etag, media_type, FOR_EVER))
}

/// Whether it costs less to copy its pieces.
fn is_scattered(segment: &Segment) -> bool {
    let (bytes, pieces) = (segment.file_bytes(), segment.pieces.len() as u64);
    pieces > 1 && bytes < pieces * PIECE_BYTES_MIN && bytes <= COPIED_BYTES_MAX
}

/// The same segment, all of it in memory. Blocks.
fn copied(file: &File, segment: Segment) -> io::Result<Segment> {
    let Segment { mut head, pieces } = segment;
    let start = pieces.iter().map(|it| it.start).min().unwrap_or(0);
    let end = pieces.iter().map(|it| it.end).max().unwrap_or(0);
    // What lies between is read, too, where that is less than to wait for each.
    if end - start <= WARMED_BYTES_MAX && !cue::is_resident(file, start, end - start) {
        cue::warm(file, start, end - start)?;
    }
    let bytes = pieces.iter().map(|it| it.end - it.start).sum::<u64>();
    head.reserve_exact(usize::try_from(bytes).unwrap_or(0));
    for piece in pieces {
        let at = head.len();
        let bytes = usize::try_from(piece.end - piece.start).unwrap_or(0);
        head.resize(at + bytes, 0);
        file.read_exact_at(&mut head[at..], piece.start)?;
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

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

impl Made {
    fn new(
        media: &Media,
        content: Segment,
        etag: String,
        media_type: &'static str,
        cache_control: &'static str,
    ) -> Self {
        let modified_s = media.identity().modified_ns.div_euclid(1_000_000_000);
        let modified_s = clamped(i64::try_from(modified_s).unwrap_or(0));
        Self {
            content,
            file: media.file(),
            etag,
            modified_s,
            last_modified: http_date(modified_s),
            media_type,
            cache_control,
            policy: None,
        }
    }

    /// As HTTP speaks of it.
    pub(super) fn resource(&self) -> Resource<'_> {
        Resource {
            file_bytes: self.content.bytes(),
            validators: Validators {
                etag: &self.etag,
                modified_s: self.modified_s.cast_unsigned(),
            },
            last_modified: &self.last_modified,
            media_type: self.media_type,
            coding: None,
            varies: false,
            cache_control: Some(self.cache_control),
            content_security_policy: self.policy,
            is_for_all_origins: self.policy.is_none(),
        }
    }

    /// Sends a part of it; with `more`, something follows at once.
    pub(super) async fn send(
        &self,
        part: Range<u64>,
        more: bool,
        way: &Way<'_>,
    ) -> Result<(), TransferError> {
        let (head, pieces) = self.content.part(part);
        let follows = more || !pieces.is_empty();
        let sent = send_on(way.socket, head, follows, way.stall_time_max).await;
        sent.map_err(TransferError::Peer)?;
        if pieces.is_empty() {
            return Ok(());
        }
        // Without it each piece would end in a packet that is not full.
        let socket = SockRef::from(way.socket.socket());
        let is_corked = pieces.len() > 1 && socket.set_tcp_cork(true).is_ok();
        let Way {
            transfers,
            policy,
            control,
            ..
        } = way;
        let gathered = transfers.gather(&self.file, &pieces, way.socket, policy, control);
        gathered.await?;
        if is_corked {
            socket.set_tcp_cork(false).map_err(TransferError::Peer)?;
        }
        Ok(())
    }
}
