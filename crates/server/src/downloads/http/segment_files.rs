//! Computed segments as files in memory, for whoever asks next: one `sendfile` then sends all of a
//! segment, as it does of one that lies cut on a disk.
//!
//! A segment in CMAF is a head and some hundred pieces of a film, which the kernel copies for each
//! client as long as they lie apart. When somebody asks for one that was asked for lately, another
//! thread gathers it into a file in memory (`memfd`). Nobody waits for that: until it is there,
//! segments are sent as they lie in the film. So a film that one client watches costs no more.
//!
//! A file is never written again once it is kept, because TCP sends its pages themselves; what goes
//! is the whole file, when nobody reads it. It is called by its segment's entity tag, and is of
//! the film's very version: device, inode, length and time.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lru::LruCache;
use onrush_lock::memfd;
use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::cue;
use onrush_wire::media::segments::Segment;
use tokio::task::spawn_local;
use tracing::debug;

use crate::downloads::Site;
use crate::downloads::admission::FileSlot;
use crate::downloads::spare::Spare;
use crate::engine::shared::bump;
use crate::library::{Identity, Media, blocking};
use crate::transfer::PIECE_BYTES_MAX;

/// Segments that are kept: each is an open file.
pub const KEPT_SEGMENTS_MAX: usize = 1024;

/// Segments that are gathered at once. Others are sent as they lie, and gathered when somebody asks
/// for them again.
pub const GATHERED_AT_ONCE_MAX: usize = 2;

/// No segment takes more than this part of the whole: so there is always room for a few.
const PARTS_MIN: u64 = 8;

/// What was used so lately does not go for another, so that films which do not fit beside each
/// other are not gathered again and again.
const KEPT_NS_MIN: u64 = 10_000_000_000;

/// What nobody has used for so long goes, and its memory is others'.
const UNUSED_NS_MAX: u64 = 60_000_000_000;

/// Bytes that are read before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// Bytes of the film that are brought into memory at once.
const WARMED_BYTES_MAX: u64 = 64 << 20;

/// The segments that are kept, those that were used last in front of the others.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    bytes_max: u64,
    /// Of what memory there is, whatever may be kept.
    spare: Spare,
    stats: Arc<SegmentStats>,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    kept: LruCache<String, Kept>,
    /// Bytes of those.
    bytes: u64,
    /// How many of them are gathered now.
    gathered: usize,
}

#[derive(Debug)]
struct Kept {
    /// What it is made of.
    film: Identity,
    bytes: u64,
    used_ns: u64,
    /// `None` while it is gathered.
    file: Option<Arc<File>>,
    _slot: Option<FileSlot>,
}

/// What became of requests for segments that can be kept. Written by the thread of downloads alone.
#[derive(Debug, Default)]
pub(crate) struct SegmentStats {
    /// Requests that were answered from memory.
    pub(crate) hits: AtomicU64,
    /// Those that were answered from the film.
    pub(crate) misses: AtomicU64,
    /// Segments that were gathered.
    pub(crate) gathered: AtomicU64,
    /// Those that could not be: the film had changed, or memory or a disk failed.
    pub(crate) failed: AtomicU64,
    /// Those that found no room among what is used.
    pub(crate) no_room: AtomicU64,
    /// Those that have gone for others, or because nobody used them.
    pub(crate) evicted: AtomicU64,
    /// Segments that there are.
    pub(crate) kept: AtomicU64,
    /// Their bytes.
    pub(crate) kept_bytes: AtomicU64,
}

impl SegmentFiles {
    /// Keeps up to so many bytes, where there is memory for them; none at 0.
    pub(crate) fn new(bytes_max: u64, stats: Arc<SegmentStats>) -> Rc<Self> {
        Self::within(bytes_max, stats, Spare::new())
    }

    fn within(bytes_max: u64, stats: Arc<SegmentStats>, spare: Spare) -> Rc<Self> {
        Rc::new(Self {
            bytes_max,
            spare,
            stats,
            state: RefCell::new(State {
                kept: LruCache::unbounded(),
                bytes: 0,
                gathered: 0,
            }),
        })
    }

    /// The segment of that tag, and how long it is, if it is kept and of this version of the film.
    pub(super) fn get(&self, etag: &str, film: Identity) -> Option<(Arc<File>, u64)> {
        let mut state = self.state.borrow_mut();
        let kept = state.kept.get_mut(etag).filter(|it| it.film == film)?;
        kept.used_ns = monotonic_ns();
        let found = (Arc::clone(kept.file.as_ref()?), kept.bytes);
        bump(&self.stats.hits, 1);
        Some(found)
    }

    /// A segment is sent from the film's file.
    pub(super) fn missed(&self, segment: &Segment) {
        bump(&self.stats.misses, u64::from(self.suits(segment)));
    }

    /// Lets go of what nobody has used for a while. To be called now and then.
    pub(crate) fn sweep(&self) {
        self.sweep_at(monotonic_ns());
    }

    /// Whether it has short pieces, and not too many of them.
    fn suits(&self, segment: &Segment) -> bool {
        let (bytes, pieces) = (segment.file_bytes(), segment.pieces.len() as u64);
        let is_short = pieces > 1 && bytes < pieces.saturating_mul(PIECE_BYTES_MAX);
        is_short && segment.bytes() <= self.bytes_max / PARTS_MIN
    }
}

/// Gathers a segment that was asked for again, if there is room for it and nobody is at it.
pub(super) fn gather(site: &Site, media: &Media, etag: &str, segment: &Segment) {
    let files = &site.segment_files;
    let of = media.file();
    // What is written still has no version that its bytes could be told by, and that of an object
    // is not its file's.
    if !files.suits(segment) || media.grows() || of.remote.is_some() {
        return;
    }
    let film = media.identity();
    let slot = || FileSlot::spare(site);
    if !files.reserve((etag, film), segment.bytes(), monotonic_ns(), slot) {
        return;
    }
    let (files, etag) = (Rc::clone(files), etag.to_owned());
    let (of, segment) = (of.file, segment.clone());
    drop(spawn_local(async move {
        let gathered = blocking(move || in_memory(&of, film, &segment)).await;
        files.finish(&etag, gathered);
    }));
}

impl SegmentFiles {
    /// Makes room for a segment that is gathered now. Whether there is any.
    fn reserve(
        &self,
        (etag, film): (&str, Identity),
        bytes: u64,
        now_ns: u64,
        slot: impl FnOnce() -> Option<FileSlot>,
    ) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.gathered >= GATHERED_AT_ONCE_MAX || state.kept.contains(etag) {
            return false;
        }
        let slot = match self.has_room(state, bytes, now_ns) {
            true => slot(),
            false => None,
        };
        if slot.is_none() {
            bump(&self.stats.no_room, 1);
            return false;
        }
        state.gathered += 1;
        state.bytes += bytes;
        let kept = Kept {
            film,
            bytes,
            used_ns: now_ns,
            file: None,
            _slot: slot,
        };
        state.kept.put(etag.to_owned(), kept);
        self.tell(state);
        true
    }

    /// Whether there is room for so many bytes, after what may go for them has gone.
    fn has_room(&self, state: &mut State, bytes: u64, now_ns: u64) -> bool {
        let bytes_max = self.spare.bytes_max(state.bytes, now_ns);
        let bytes_max = bytes_max.min(self.bytes_max);
        while state.kept.len() >= KEPT_SEGMENTS_MAX || state.bytes + bytes > bytes_max {
            let Some(goes) = state.first_unused(now_ns, KEPT_NS_MIN) else {
                return false;
            };
            self.evict(state, &goes);
        }
        true
    }

    /// A segment that was gathered is there, or could not be made.
    fn finish(&self, etag: &str, gathered: io::Result<File>) {
        let state = &mut *self.state.borrow_mut();
        state.gathered -= 1;
        match gathered {
            Ok(file) => {
                bump(&self.stats.gathered, 1);
                if let Some(kept) = state.kept.peek_mut(etag) {
                    kept.file = Some(Arc::new(file));
                }
            }
            Err(error) => {
                debug!("segment {etag} is not kept in memory: {error}");
                bump(&self.stats.failed, 1);
                state.remove(etag);
            }
        }
        self.tell(state);
    }

    fn sweep_at(&self, now_ns: u64) {
        let state = &mut *self.state.borrow_mut();
        while let Some(goes) = state.first_unused(now_ns, UNUSED_NS_MAX) {
            self.evict(state, &goes);
        }
        self.tell(state);
    }

    fn evict(&self, state: &mut State, etag: &str) {
        state.remove(etag);
        bump(&self.stats.evicted, 1);
    }

    fn tell(&self, state: &State) {
        use std::sync::atomic::Ordering::Relaxed;
        self.stats.kept.store(state.kept.len() as u64, Relaxed);
        self.stats.kept_bytes.store(state.bytes, Relaxed);
    }
}

impl State {
    /// The one that was used longest ago, of those that nobody has used for so long or sends now.
    fn first_unused(&self, now_ns: u64, unused_ns: u64) -> Option<String> {
        let is_old = |it: &Kept| now_ns.saturating_sub(it.used_ns) >= unused_ns;
        let mut old = self.kept.iter().rev().take_while(|(_, it)| is_old(it));
        let goes = old.find(|(_, it)| {
            it.file
                .as_ref()
                .is_some_and(|it| Arc::strong_count(it) == 1)
        });
        goes.map(|(etag, _)| etag.clone())
    }

    fn remove(&mut self, etag: &str) {
        if let Some(kept) = self.kept.pop(etag) {
            self.bytes -= kept.bytes;
        }
    }
}

/// A segment in a file of its own, in memory. Blocks.
///
/// # Errors
///
/// If the film's file cannot be read or is another by now, or there is no memory.
fn in_memory(of: &File, film: Identity, segment: &Segment) -> io::Result<File> {
    let bytes = usize::try_from(segment.bytes()).map_err(io::Error::other)?;
    let memory = memfd(bytes).map_err(io::Error::other)?;
    warm(of, &segment.pieces)?;
    let (mut buffer, mut at) = (segment.head.clone(), 0);
    for piece in &segment.pieces {
        let start = buffer.len();
        let end = start + usize::try_from(piece.end - piece.start).map_err(io::Error::other)?;
        buffer.resize(end, 0);
        of.read_exact_at(&mut buffer[start..], piece.start)?;
        if buffer.len() >= BUFFER_BYTES {
            memory.write_all_at(&buffer, at)?;
            at += buffer.len() as u64;
            buffer.clear();
        }
    }
    memory.write_all_at(&buffer, at)?;
    // Whatever was read before is then of the same version.
    match Identity::of(&of.metadata()?) == film {
        true => Ok(memory),
        false => Err(io::Error::other("the film was changed meanwhile")),
    }
}

/// Brings pieces of a file into memory, and what lies between, where that is less than to wait for
/// each. Blocks.
///
/// # Errors
///
/// What the disk says.
pub(super) fn warm(file: &File, pieces: &[Range<u64>]) -> io::Result<()> {
    let start = pieces.iter().map(|it| it.start).min().unwrap_or(0);
    let end = pieces.iter().map(|it| it.end).max().unwrap_or(0);
    if end - start <= WARMED_BYTES_MAX && !cue::is_resident(file, start, end - start) {
        cue::warm(file, start, end - start)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::statistics::Statistics;

    const S: u64 = 1_000_000_000;

    /// One that keeps eight segments of a MiB.
    fn files() -> Rc<SegmentFiles> {
        beside(8 << 20, || u64::MAX)
    }

    /// One that keeps so many bytes where so many are left.
    fn beside(bytes_max: u64, available_bytes: fn() -> u64) -> Rc<SegmentFiles> {
        SegmentFiles::within(bytes_max, Arc::default(), Spare::of(available_bytes))
    }

    fn film(inode: u64) -> Identity {
        Identity {
            device: 1,
            inode,
            file_bytes: 3,
            modified_ns: 4,
        }
    }

    fn slot() -> Option<FileSlot> {
        Some(FileSlot::of(&Arc::<Statistics>::default()))
    }

    fn reserve(files: &SegmentFiles, etag: &str, now_ns: u64) -> bool {
        files.reserve((etag, film(7)), 1 << 20, now_ns, slot)
    }

    fn keep(files: &SegmentFiles, etag: &str, now_ns: u64) {
        assert!(reserve(files, etag, now_ns), "{etag}");
        files.finish(etag, tempfile::tempfile());
    }

    fn count(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    #[test]
    fn no_more_is_kept_than_may_be_and_nothing_that_is_used() {
        let files = files();
        for i in 0..8 {
            keep(&files, &i.to_string(), i);
        }
        let bytes = || count(&files.stats.kept_bytes);
        assert_eq!((bytes(), count(&files.stats.kept)), (8 << 20, 8));
        // They were used a moment ago.
        assert!(!reserve(&files, "8", S));
        assert_eq!(count(&files.stats.no_room), 1);
        // The oldest is being sent, so the next one goes.
        let sent = files
            .state
            .borrow_mut()
            .kept
            .peek("0")
            .unwrap()
            .file
            .clone();
        keep(&files, "8", KEPT_NS_MIN + 1);
        assert_eq!(bytes(), 8 << 20);
        let has = |etag: &str| files.state.borrow().kept.contains(etag);
        assert!(has("0") && !has("1") && has("2") && has("8"));
        drop(sent);
        keep(&files, "9", KEPT_NS_MIN + 3);
        assert!(!has("0") && has("2"));
        assert_eq!(count(&files.stats.evicted), 2);
    }

    /// Shared memory is not given back where a container has no more: it is ended.
    #[test]
    fn half_of_what_memory_is_left_is_kept_at_the_most() {
        let files = beside(8 << 20, || 4 << 20);
        keep(&files, "a", 0);
        keep(&files, "b", 0);
        assert!(!reserve(&files, "c", 1));
        assert_eq!(count(&files.stats.no_room), 1);
        // What is kept was left before. It goes for another when nobody has used it for a while.
        keep(&files, "c", S);
        assert!(!reserve(&files, "d", S));
        keep(&files, "d", KEPT_NS_MIN);
        assert_eq!(count(&files.stats.evicted), 1);
        assert_eq!(count(&files.stats.kept_bytes), 3 << 20);
    }

    #[test]
    fn no_more_segments_are_kept_than_may_be() {
        let files = beside(u64::MAX, || u64::MAX);
        for i in 0..KEPT_SEGMENTS_MAX {
            keep(&files, &i.to_string(), 0);
        }
        assert!(!reserve(&files, "one more", KEPT_NS_MIN - 1));
        keep(&files, "one more", KEPT_NS_MIN);
        assert_eq!(count(&files.stats.kept), KEPT_SEGMENTS_MAX as u64);
    }

    #[test]
    fn one_is_gathered_once_and_only_two_at_a_time() {
        let files = files();
        assert!(reserve(&files, "a", 0) && !reserve(&files, "a", 0));
        assert!(files.get("a", film(7)).is_none(), "it is not there yet");
        assert!(reserve(&files, "b", 0) && !reserve(&files, "c", 0));
        files.finish("a", Err(io::ErrorKind::OutOfMemory.into()));
        assert_eq!(count(&files.stats.kept_bytes), 1 << 20);
        assert!(reserve(&files, "c", 0) && !reserve(&files, "d", 0));
        files.finish("b", tempfile::tempfile());
        assert_eq!(files.get("b", film(7)).unwrap().1, 1 << 20);
        assert_eq!(
            (count(&files.stats.failed), count(&files.stats.hits)),
            (1, 1)
        );
        // No descriptor is left.
        assert!(!files.reserve(("d", film(7)), 1, 0, || None));
        assert!(files.get("b", film(8)).is_none(), "it is of another film");
    }

    #[test]
    fn what_nobody_uses_goes_and_what_is_gathered_stays() {
        let files = files();
        keep(&files, "a", 0);
        assert!(reserve(&files, "b", 0));
        files.sweep_at(UNUSED_NS_MAX - 1);
        assert_eq!(count(&files.stats.kept), 2);
        files.sweep_at(UNUSED_NS_MAX);
        assert_eq!(count(&files.stats.kept), 1);
        files.finish("b", tempfile::tempfile());
        files.sweep_at(UNUSED_NS_MAX);
        assert_eq!(
            (count(&files.stats.kept), count(&files.stats.kept_bytes)),
            (0, 0)
        );
    }

    #[test]
    fn short_pieces_that_fit_are_gathered() {
        let files = files();
        let of = |lengths: &[u64]| Segment {
            head: vec![0; 100],
            pieces: lengths.iter().map(|&it| 0..it).collect(),
        };
        assert!(files.suits(&of(&[1000; 150])));
        assert!(!files.suits(&of(&[1000])), "sendfile sends it as well");
        assert!(!files.suits(&of(&[PIECE_BYTES_MAX; 2])));
        let long = |pieces| of(&vec![PIECE_BYTES_MAX - 1; pieces]);
        assert!(
            files.suits(&long(15)) && !files.suits(&long(16)),
            "an eighth is a MiB"
        );
        let none = beside(0, || u64::MAX);
        assert!(!none.suits(&of(&[1, 1])));
    }

    /// All of it is there, byte for byte, and nothing of a film that was written to.
    #[test]
    fn a_segment_is_gathered_of_its_version_of_the_film() {
        let of = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..1_000_000u32).flat_map(|it| it.to_le_bytes()).collect();
        std::fs::write(of.path(), &content).unwrap();
        let file = File::open(of.path()).unwrap();
        let film = Identity::of(&file.metadata().unwrap());
        let segment = Segment {
            head: b"head".to_vec(),
            pieces: vec![9..20, 3_000_000..3_900_001, 0..300_000, 20..21],
        };
        let mut expected = segment.head.clone();
        for piece in &segment.pieces {
            let at = |offset| usize::try_from(offset).unwrap();
            expected.extend_from_slice(&content[at(piece.start)..at(piece.end)]);
        }
        let mut all = Vec::new();
        let gathered = in_memory(&file, film, &segment).unwrap();
        (&gathered).read_to_end(&mut all).unwrap();
        assert!(all == expected);
        let beyond = Segment {
            pieces: vec![0..9, 3_999_999..4_000_001],
            ..segment.clone()
        };
        in_memory(&file, film, &beyond).unwrap_err();
        let changed = Identity {
            modified_ns: film.modified_ns - 1,
            ..film
        };
        let error = in_memory(&file, changed, &segment).unwrap_err();
        assert!(error.to_string().contains("changed"), "{error}");
    }
}
