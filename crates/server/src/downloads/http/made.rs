//! What was made for a request: bytes of our own in front of pieces of a file, with all that HTTP
//! says of them.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use onrush_wire::calendar::clamped;
use onrush_wire::http::{Coding, Codings, Resource, Validators};
use onrush_wire::media::segments::Segment;
use socket2::SockRef;
use tracing::warn;

use crate::downloads::Site;
use crate::downloads::admission::FileSlot;
use crate::downloads::clock::http_date;
use crate::downloads::http::assets::Asset;
use crate::downloads::http::segment_cache::memory_bytes;
use crate::downloads::memory::{Part, Reserved};
use crate::downloads::send::To;
use crate::hls_live::SentText;
use crate::library::{Identity, Media, blocking};
use crate::remote::Held;
use crate::transfer::{Control, Policy, SentFile, TransferError};

/// What is in URLs with a version never changes; all else is asked for again, and as a rule has not
/// changed.
pub(super) const FOR_EVER: &str = "max-age=31536000, immutable";
pub(super) const ASK_AGAIN: &str = "no-cache";

/// Texts that are shorter fit into a packet as they are.
pub(super) const COMPRESSED_BYTES_MIN: usize = 1024;

/// As quick as gzip's fastest, and smaller.
const ZSTD_LEVEL: i32 = 3;

/// Of texts that are compressed anew for each client: what they repeat becomes short so, too.
const ZSTD_LEVEL_FOR_ONE: i32 = 1;

/// Texts that are longer are compressed on another thread.
pub(super) const COMPRESSED_HERE_BYTES_MAX: usize = 32 << 10;

/// A resource of a film.
#[derive(Debug)]
pub(super) struct Made {
    content: Rc<Segment>,
    /// What follows on that: bytes that others send, too.
    shared: Vec<Arc<[u8]>>,
    /// Of which its pieces are, if it has any.
    file: Option<Arc<File>>,
    /// What keeps them in the file, if that has holes.
    held: Option<Held>,
    /// What the file is to be until the last of them has left, if they are of one version of it.
    film: Option<Identity>,
    /// Its room in memory until what it holds is counted.
    reserved: Option<Reserved>,
    etag: String,
    modified_s: i64,
    last_modified: String,
    media_type: &'static str,
    cache_control: Cow<'static, str>,
    policy: Option<Cow<'static, str>>,
    /// Whether it is text, which is compressed for whoever likes that.
    is_text: bool,
    coding: Option<Coding>,
}

/// How bytes go to a client.
pub(super) struct Way<'a> {
    pub(super) to: To<'a>,
    pub(super) site: &'a Site,
    pub(super) policy: &'a Policy,
    pub(super) control: &'a Control,
    pub(super) stall_time_max: Duration,
}

impl Way<'_> {
    /// Counts what was sent out of memory, which is no transfer.
    fn count_made(&self, bytes: u64) {
        let counter = &self.site.statistics.hls.sent_bytes;
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.control.count(bytes);
    }
}

impl Made {
    /// What is all in memory: subtitles and pages.
    pub(super) fn text(media: &Media, text: Vec<u8>, media_type: &'static str) -> Self {
        let etag = tag_of(&text);
        Self::tagged_text(media, text, etag, media_type)
    }

    /// The same of a text whose tag was made where it was written.
    pub(super) fn tagged_text(
        media: &Media,
        text: Vec<u8>,
        etag: String,
        media_type: &'static str,
    ) -> Self {
        let mut made = Self::new(media, in_memory(text), etag, media_type, ASK_AGAIN);
        made.is_text = true;
        made
    }

    /// The same under a URL whose bytes never change.
    pub(super) fn that_stays(mut self) -> Self {
        self.cache_control = FOR_EVER.into();
        self
    }

    /// The same as a page, which may load and run what `policy` says.
    pub(super) fn page(media: &Media, text: String, policy: Cow<'static, str>) -> Self {
        let mut made = Self::text(media, text.into_bytes(), "text/html; charset=utf-8");
        made.policy = Some(policy);
        made
    }

    /// A segment.
    pub(super) fn new(
        media: &Media,
        content: Rc<Segment>,
        etag: String,
        media_type: &'static str,
        cache_control: &'static str,
    ) -> Self {
        let modified_s = media.identity().modified_ns.div_euclid(1_000_000_000);
        let modified_s = clamped(i64::try_from(modified_s).unwrap_or(0));
        Self {
            content,
            shared: Vec::new(),
            file: Some(media.file().file),
            held: None,
            film: None,
            reserved: None,
            etag,
            modified_s,
            last_modified: http_date(modified_s),
            media_type,
            cache_control: cache_control.into(),
            policy: None,
            is_text: false,
            coding: None,
        }
    }

    /// A segment of which all is in a file of its own, so many bytes; with its tag, its type, and
    /// how long it holds.
    pub(super) fn of_file(
        media: &Media,
        (file, bytes): (Arc<File>, u64),
        (etag, media_type, cache_control): (String, &'static str, &'static str),
    ) -> Self {
        let whole = 0..bytes;
        let content = Rc::new(Segment {
            head: Vec::new(),
            pieces: vec![whole],
        });
        let mut made = Self::new(media, content, etag, media_type, cache_control);
        made.file = Some(file);
        made
    }

    /// A file of the pages, which is as old as the server's run.
    pub(super) fn asset(asset: Asset, started_s: i64) -> Self {
        Self {
            content: in_memory(asset.text.to_vec()),
            shared: Vec::new(),
            file: None,
            held: None,
            film: None,
            reserved: None,
            etag: format!("\"{:016x}\"", fnv(asset.text)),
            modified_s: clamped(started_s),
            last_modified: http_date(started_s),
            media_type: asset.media_type,
            cache_control: ASK_AGAIN.into(),
            policy: None,
            is_text: true,
            coding: None,
        }
    }

    /// What lies in memory for all: a segment of a live channel, or a part of it.
    pub(super) fn live(
        shared: Vec<Arc<[u8]>>,
        etag: String,
        media_type: &'static str,
        modified_s: i64,
    ) -> Self {
        Self {
            content: Rc::default(),
            shared,
            file: None,
            held: None,
            film: None,
            reserved: None,
            etag,
            modified_s: clamped(modified_s),
            last_modified: http_date(modified_s),
            media_type,
            cache_control: FOR_EVER.into(),
            policy: None,
            is_text: false,
            coding: None,
        }
    }

    /// The same with what keeps its pieces in their file.
    pub(super) fn that_holds(mut self, held: Option<Held>) -> Self {
        self.held = held;
        self
    }

    /// The same whose pieces are sent to their end only while its file is that film.
    pub(super) fn that_is_of(mut self, film: Option<Identity>) -> Self {
        self.film = film;
        self
    }

    /// The same with the room in memory that it was made in.
    pub(super) fn that_has_room(mut self, reserved: impl Into<Option<Reserved>>) -> Self {
        self.reserved = reserved.into();
        self
    }

    /// Gives that room back. What it holds is to be counted at once.
    pub(super) fn give_room_back(&mut self) {
        self.reserved = None;
    }

    /// A segment of one that lies in a part of a file.
    pub(super) fn stored(
        (file, at): (Arc<File>, Range<u64>),
        etag: String,
        media_type: &'static str,
        modified_s: i64,
    ) -> Self {
        let mut made = Self::live(Vec::new(), etag, media_type, modified_s);
        made.file = Some(file);
        made.content = Rc::new(Segment {
            head: Vec::new(),
            pieces: vec![at],
        });
        made
    }

    /// A playlist of one, which is compressed already if it has a coding.
    pub(super) fn live_text(
        SentText { bytes, etag }: SentText,
        coding: Option<Coding>,
        media_type: &'static str,
        cache_control: Cow<'static, str>,
        modified_s: i64,
    ) -> Self {
        let mut made = Self::live(vec![bytes], etag.to_string(), media_type, modified_s);
        (made.cache_control, made.coding, made.is_text) = (cache_control, coding, true);
        made
    }

    /// The page of one, which may load and run what `policy` says.
    pub(super) fn live_page(text: String, modified_s: i64, policy: &'static str) -> Self {
        let bytes = text.into_bytes();
        let media_type = "text/html; charset=utf-8";
        let mut made = Self::live(Vec::new(), tag_of(&bytes), media_type, modified_s);
        made.content = in_memory(bytes);
        (made.cache_control, made.is_text) = (ASK_AGAIN.into(), true);
        made.policy = Some(policy.into());
        made
    }

    /// The same under a URL that has other bytes later.
    pub(super) fn that_changes(mut self) -> Self {
        self.cache_control = ASK_AGAIN.into();
        self
    }

    /// The time of day, which nobody keeps.
    pub(super) fn time(text: String) -> Self {
        let etag = format!("\"{text}\"");
        let mut made = Self::live(
            vec![text.into_bytes().into()],
            etag,
            "text/plain; charset=utf-8",
            0,
        );
        made.cache_control = "no-store".into();
        made
    }

    /// What it holds of memory.
    pub(super) fn memory(&self) -> Vec<Part> {
        let content = &self.content;
        let content = Part::shared(Rc::as_ptr(content).addr(), memory_bytes(content));
        // Of texts a channel keeps the newest alone.
        let part = match self.is_text {
            true => Part::shared,
            false => Part::kept,
        };
        let shared = self.shared.iter();
        let shared = shared.map(|it| part(it.as_ptr().addr(), it.len()));
        shared.chain([content]).collect()
    }

    fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|it| it.len() as u64).sum()
    }

    /// The same, compressed if it is text and its client likes that.
    pub(super) async fn in_coding(mut self, codings: Codings) -> Self {
        let bytes = self.content.head.len();
        if !self.is_text || self.coding.is_some() || bytes < COMPRESSED_BYTES_MIN {
            return self;
        }
        let Some(coding) = of_texts(codings) else {
            return self;
        };
        let shorter = if bytes > COMPRESSED_HERE_BYTES_MAX {
            let text = self.content.head.clone();
            blocking(move || compressed(&text, coding)).await
        } else {
            compressed(&self.content.head, coding)
        };
        match shorter {
            Ok(shorter) => {
                self.content = in_memory(shorter);
                self.coding = Some(coding);
                // Other bytes, another tag.
                let end = self.etag.len() - 1;
                self.etag.insert_str(end, &format!("-{}", coding.name()));
            }
            Err(error) => warn!("compressing a text: {error}; it is sent as it is"),
        }
        self
    }

    /// As HTTP speaks of it.
    pub(super) fn resource(&self) -> Resource<'_> {
        Resource {
            file_bytes: self.content.bytes() + self.shared_bytes(),
            validators: Validators {
                etag: &self.etag,
                modified_s: self.modified_s.cast_unsigned(),
            },
            last_modified: &self.last_modified,
            media_type: self.media_type,
            coding: self.coding,
            varies: self.is_text,
            cache_control: Some(&self.cache_control),
            content_security_policy: self.policy.as_deref(),
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
        if !self.shared.is_empty() {
            return self.send_shared(part, more, way).await;
        }
        let (head, pieces) = self.content.part(part);
        let follows = more || !pieces.is_empty();
        let sent = way.to.send(head, follows, way.stall_time_max).await;
        sent.map_err(TransferError::Peer)?;
        way.count_made(head.len() as u64);
        if pieces.is_empty() {
            return Ok(());
        }
        // Without it each piece would end in a packet that is not full.
        let socket = way.to.socket().filter(|_| pieces.len() > 1);
        let corked = socket.map(SockRef::from);
        let corked = corked.filter(|socket| socket.set_tcp_cork(true).is_ok());
        let Way {
            site,
            policy,
            control,
            ..
        } = way;
        let file = self.file.as_ref().expect("pieces are of a file");
        // Under a URL whose bytes never change a whole of two versions would be kept for ever.
        let is_same = |file: &File| self.film.is_none_or(|film| film.is_still(file));
        let file = SentFile::from(file).while_same(&is_same);
        let transfers = &site.transfers;
        let gathered = transfers.gather(file, &pieces, way.to.outlet(), policy, control);
        gathered.await?;
        if let Some(socket) = corked {
            socket.set_tcp_cork(false).map_err(TransferError::Peer)?;
        }
        Ok(())
    }
}

impl Made {
    /// Sends a head and a part of what is shared by as few calls as can be: from the file that it
    /// is in, if many ask for it, or both together if it is one piece. `None` if it is neither.
    pub(super) async fn send_live(
        &self,
        head: &[u8],
        part: &Range<u64>,
        way: &Way<'_>,
    ) -> Option<io::Result<()>> {
        let Way {
            to, stall_time_max, ..
        } = *way;
        let body_bytes = part.end.saturating_sub(part.start);
        if !self.is_text && !self.shared.is_empty() {
            let asked = to.ask_kernel(body_bytes, stall_time_max).await;
            if let Err(error) = asked {
                return Some(Err(error));
            }
        }
        if let Some(file) = self.live_file(way) {
            let sent = async {
                to.send(head, true, stall_time_max).await?;
                to.send_file(&file, part.clone(), stall_time_max).await
            };
            return Some(sent.await.inspect(|()| way.count_made(body_bytes)));
        }
        let [bytes] = &self.shared[..] else {
            return None;
        };
        let at = |at: u64| usize::try_from(at).ok();
        let body = bytes.get(at(part.start)?..at(part.end)?)?;
        let sent = to.send_both(head, body, stall_time_max).await;
        Some(sent.inspect(|()| way.count_made(body_bytes)))
    }

    /// The file that has what is shared, if many ask for it on connections like this one.
    fn live_file(&self, way: &Way<'_>) -> Option<Arc<File>> {
        if self.is_text || self.shared.is_empty() || !way.to.takes_files() {
            return None;
        }
        let slot = || FileSlot::spare(way.site);
        way.site.live_files.ask(&self.etag, &self.shared, slot)
    }

    /// Sends a part of what is shared.
    async fn send_shared(
        &self,
        part: Range<u64>,
        more: bool,
        way: &Way<'_>,
    ) -> Result<(), TransferError> {
        let mut start = 0;
        for bytes in &self.shared {
            let end = start + bytes.len() as u64;
            let (from, to) = (part.start.max(start), part.end.min(end));
            if from < to {
                let within = |at: u64| usize::try_from(at - start).unwrap_or(usize::MAX);
                let piece = &bytes[within(from)..within(to)];
                let follows = more || to < part.end;
                let sent = way.to.send(piece, follows, way.stall_time_max).await;
                sent.map_err(TransferError::Peer)?;
                way.count_made(to - from);
            }
            start = end;
        }
        Ok(())
    }
}

fn in_memory(head: Vec<u8>) -> Rc<Segment> {
    let pieces = Vec::new();
    Rc::new(Segment { head, pieces })
}

/// A text with its entity tag.
pub(super) fn tagged(text: Vec<u8>) -> SentText {
    SentText {
        etag: tag_of(&text).into(),
        bytes: text.into(),
    }
}

/// The entity tag of a text.
pub(super) fn tag_of(text: &[u8]) -> String {
    format!("\"{:016x}-{:x}\"", fnv(text), text.len())
}

/// FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// What a text is compressed by for a client: what it likes best of what is written here.
pub(super) fn of_texts(codings: Codings) -> Option<Coding> {
    let mut liked = codings.wanted();
    liked.find(|coding| matches!(coding, Coding::Zstd | Coding::Gzip))
}

pub(super) fn compressed(text: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Zstd => zstd::bulk::compress(text, ZSTD_LEVEL),
        _ => gzip(text),
    }
}

/// The same for one client alone: as quickly as can be.
pub(super) fn compressed_for_one(text: &[u8], coding: Coding) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Zstd => zstd::bulk::compress(text, ZSTD_LEVEL_FOR_ONE),
        _ => gzip(text),
    }
}

fn gzip(text: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(text.len() / 4), Compression::fast());
    encoder.write_all(text)?;
    encoder.finish()
}
