//! Parts and segments of live channels as files in memory, while many ask for them.
//!
//! All viewers of a channel ask for its newest part within a moment. A `send` copies the part into
//! memory of each socket, which was most of what five thousand viewers cost; `sendfile` hands over
//! the same pages to all of them. What is asked for the fourth time ([`ASKED_MIN`]) is therefore
//! written once into a file in memory (`memfd`), and whoever asks from then on gets that. A channel
//! that a few watch costs nothing more.
//!
//! A file is never written again, because TCP sends its pages themselves; what goes is the whole
//! file, when nobody sends it. It is called by its entity tag, of which the version is random for
//! each run of a channel.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use lru::LruCache;
use onrush_lock::memfd;
use onrush_sys::clock::monotonic_ns;
use tracing::debug;

use crate::downloads::admission::FileSlot;

/// Parts and segments of channels that are files in memory: each is an open file.
pub const LIVE_FILES_MAX: usize = 256;

/// Those that were asked for lately, files or not.
const KNOWN_MAX: usize = 4096;

/// Shorter ones are copied as quickly as `sendfile` finds their pages.
const FILE_BYTES_MIN: usize = 32 << 10;

/// How often something is asked for until it becomes a file. Before that it is copied to each: the
/// file costs one copy more, and its making.
const ASKED_MIN: u32 = 4;

/// None takes more than this part of the whole.
const PARTS_MIN: u64 = 8;

/// What nobody has asked for so long goes: viewers are at newer parts.
const UNUSED_NS_MAX: u64 = 10_000_000_000;

/// What was asked for lately, the last in front of the others.
#[derive(Debug)]
pub(crate) struct LiveFiles {
    bytes_max: u64,
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    known: LruCache<String, Known>,
    /// Those of them that are files, and their bytes.
    files: usize,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Known {
    asked: u32,
    used_ns: u64,
    file: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    file: Arc<File>,
    bytes: u64,
    _slot: FileSlot,
}

impl LiveFiles {
    /// Of up to so many bytes; none at 0.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            state: RefCell::new(State {
                known: LruCache::unbounded(),
                files: 0,
                bytes: 0,
            }),
        }
    }

    /// Somebody asks for what has this tag and these bytes: the file that they are in, if enough
    /// have asked and there is room for one. `slot` is its place among the files that are open.
    pub(super) fn ask(
        &self,
        etag: &str,
        bytes: &[Arc<[u8]>],
        slot: impl FnOnce() -> Option<FileSlot>,
    ) -> Option<Arc<File>> {
        self.ask_at(monotonic_ns(), etag, bytes, slot)
    }

    fn ask_at(
        &self,
        now_ns: u64,
        etag: &str,
        pieces: &[Arc<[u8]>],
        slot: impl FnOnce() -> Option<FileSlot>,
    ) -> Option<Arc<File>> {
        let bytes: usize = pieces.iter().map(|it| it.len()).sum();
        let length = bytes as u64;
        if bytes < FILE_BYTES_MIN || length > self.bytes_max / PARTS_MIN {
            return None;
        }
        let state = &mut *self.state.borrow_mut();
        if !state.known.contains(etag) {
            if state.known.len() >= KNOWN_MAX {
                state.forget_oldest();
            }
            state.known.put(etag.to_owned(), Known::default());
        }
        let known = state.known.get_mut(etag)?;
        known.asked = known.asked.saturating_add(1);
        known.used_ns = now_ns;
        if let Some(kept) = &known.file {
            return Some(Arc::clone(&kept.file));
        }
        if known.asked < ASKED_MIN || !state.has_room(length, self.bytes_max) {
            return None;
        }
        let slot = slot()?;
        let made = in_memory(bytes, pieces);
        // It may be the one that made room.
        let known = state.known.get_mut(etag)?;
        match made {
            Ok(file) => {
                let file = Arc::new(file);
                known.file = Some(Kept {
                    file: Arc::clone(&file),
                    bytes: length,
                    _slot: slot,
                });
                state.files += 1;
                state.bytes += length;
                Some(file)
            }
            Err(error) => {
                debug!("{etag} is sent by copies, as it does not become a file: {error}");
                known.asked = 0;
                None
            }
        }
    }

    /// Lets go of what nobody has asked for lately. To be called now and then.
    pub(crate) fn sweep(&self) {
        self.sweep_at(monotonic_ns());
    }

    fn sweep_at(&self, now_ns: u64) {
        let state = &mut *self.state.borrow_mut();
        let is_old = |it: &Known| now_ns.saturating_sub(it.used_ns) >= UNUSED_NS_MAX;
        while state.known.peek_lru().is_some_and(|(_, it)| is_old(it)) {
            state.forget_oldest();
        }
    }
}

impl State {
    /// Whether there is room for another file, after the oldest that nobody sends have gone.
    fn has_room(&mut self, bytes: u64, bytes_max: u64) -> bool {
        while self.files >= LIVE_FILES_MAX || self.bytes + bytes > bytes_max {
            let is_unused = |it: &Kept| Arc::strong_count(&it.file) == 1;
            let mut oldest_first = self.known.iter().rev();
            let goes = oldest_first.find(|(_, it)| it.file.as_ref().is_some_and(is_unused));
            let Some(etag) = goes.map(|(etag, _)| etag.clone()) else {
                return false;
            };
            if let Some(known) = self.known.peek_mut(&etag) {
                // It becomes a file again if as many ask as before.
                known.asked = 0;
                let file = known.file.take();
                self.is_gone(file);
            }
        }
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, known)) = self.known.pop_lru() {
            self.is_gone(known.file);
        }
    }

    fn is_gone(&mut self, file: Option<Kept>) {
        if let Some(file) = file {
            self.files -= 1;
            self.bytes -= file.bytes;
        }
    }
}

/// These bytes, one piece behind the other, in a file of their own.
fn in_memory(bytes: usize, pieces: &[Arc<[u8]>]) -> io::Result<File> {
    let file = memfd(bytes).map_err(io::Error::other)?;
    let mut at = 0;
    for piece in pieces {
        file.write_all_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::statistics::Statistics;

    /// Of 64 KiB, in two pieces.
    fn part(seed: u8) -> [Arc<[u8]>; 2] {
        [vec![seed; 3].into(), vec![seed + 1; (64 << 10) - 3].into()]
    }

    fn slot() -> Option<FileSlot> {
        Some(FileSlot::of(&Arc::<Statistics>::default()))
    }

    /// As often as it takes until it is a file.
    fn ask(files: &LiveFiles, now_ns: u64, etag: &str) -> Option<Arc<File>> {
        let mut last = None;
        for _ in 0..ASKED_MIN {
            last = files.ask_at(now_ns, etag, &part(1), slot);
        }
        last
    }

    fn kept(files: &LiveFiles) -> (usize, u64) {
        let state = files.state.borrow();
        (state.files, state.bytes)
    }

    #[test]
    fn what_many_ask_for_becomes_one_file() {
        let files = LiveFiles::new(1 << 20);
        for _ in 1..ASKED_MIN {
            assert!(files.ask("a", &part(5), slot).is_none());
            assert!(files.ask("b", &part(7), slot).is_none());
        }
        let file = files.ask("a", &part(5), slot).unwrap();
        let again = files.ask("a", &part(5), slot).unwrap();
        assert!(Arc::ptr_eq(&file, &again));
        let mut all = Vec::new();
        (&*file).read_to_end(&mut all).unwrap();
        assert!(all == part(5).concat());
        assert_eq!(kept(&files), (1, 64 << 10));
        // No descriptor is left.
        assert!(files.ask("b", &part(7), || None).is_none());
        assert!(files.ask("b", &part(7), slot).is_some());
    }

    #[test]
    fn what_is_short_or_too_long_is_no_file() {
        let ask_of = |files: &LiveFiles| ask(files, 0, "a");
        let files = LiveFiles::new(8 * (64 << 10));
        let ask = |bytes: usize| {
            let etag = bytes.to_string();
            let piece: [Arc<[u8]>; 1] = [vec![0; bytes].into()];
            let ask = || files.ask(&etag, &piece, slot).is_some();
            (0..ASKED_MIN).fold(false, |_, _| ask())
        };
        assert!(!ask(FILE_BYTES_MIN - 1) && ask(FILE_BYTES_MIN));
        assert!(ask(64 << 10) && !ask((64 << 10) + 1));
        assert!(ask_of(&LiveFiles::new(0)).is_none());
    }

    #[test]
    fn there_are_no_more_live_files_than_may_be() {
        let files = LiveFiles::new(8 * (64 << 10));
        for i in 0..8 {
            assert!(ask(&files, i, &i.to_string()).is_some());
        }
        assert_eq!(kept(&files), (8, 8 * (64 << 10)));
        let sent: Vec<_> = (0..8)
            .map(|i| files.ask_at(9, &i.to_string(), &part(1), slot).unwrap())
            .collect();
        assert!(ask(&files, 10, "8").is_none(), "all are being sent");
        drop(sent);
        assert!(files.ask_at(11, "8", &part(1), slot).is_some());
        assert_eq!(kept(&files), (8, 8 * (64 << 10)));
        assert!(
            files.ask_at(11, "0", &part(1), slot).is_none(),
            "it has gone"
        );
        let many = LiveFiles::new(u64::MAX);
        for i in 0..=LIVE_FILES_MAX {
            assert!(ask(&many, 0, &i.to_string()).is_some());
        }
        assert_eq!(kept(&many).0, LIVE_FILES_MAX);
    }

    #[test]
    fn what_nobody_asks_for_is_forgotten() {
        let files = LiveFiles::new(1 << 20);
        ask(&files, 0, "a").unwrap();
        ask(&files, 5, "b").unwrap();
        files.sweep_at(UNUSED_NS_MAX - 1);
        assert_eq!(kept(&files).0, 2);
        files.sweep_at(UNUSED_NS_MAX);
        assert_eq!(kept(&files), (1, 64 << 10));
        let part = part(1);
        for i in 0..2 * KNOWN_MAX {
            files.ask_at(UNUSED_NS_MAX, &format!("n{i}"), &part, slot);
        }
        assert_eq!(files.state.borrow().known.len(), KNOWN_MAX);
        assert_eq!(kept(&files), (0, 0));
    }
}
