//! Short pieces of a file that lie near each other, as pictures with sound between them: sent from
//! a mapping of the file, many by one call.
//!
//! What is mapped are windows of files, which are kept for whoever comes next: a page that was
//! mapped costs nothing more. Pages of a window count as the process's, as long as it is kept, and
//! are the page cache's all the same. A window goes when its file is closed, when others are used
//! that came later, and when nobody has used it for a while.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::iter::Peekable;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::cue::mapped::{MAPPED_PIECES_MAX, MappedRange};
use onrush_sys::path::cue::{self, Step, StepEnd};
use tokio::net::TcpStream;

/// Windows begin at multiples of it.
const WINDOW_BYTES: u64 = 8 << 20;

const WINDOWS_MAX: usize = 32;

/// Bytes of files that are mapped at the most, by one thread of transfers.
pub const MAPPED_BYTES_MAX: u64 = WINDOWS_MAX as u64 * WINDOW_BYTES;

/// How long a window is kept that nobody uses.
const UNUSED_NS_MAX: u64 = 10_000_000_000;

/// Pieces that are shorter are copied if there are several. For longer ones a `sendfile` each,
/// which copies nothing, is as good.
pub(crate) const PIECE_BYTES_MAX: u64 = 64 << 10;

/// Windows of files, those that were used last behind the others.
#[derive(Debug, Default)]
pub(super) struct Mappings(RefCell<Windows>);

#[derive(Debug, Default)]
struct Windows {
    kept: Vec<Window>,
    /// Pieces that are sent together.
    group: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Window {
    file: Weak<File>,
    mapped: MappedRange,
    used_ns: u64,
}

impl Mappings {
    /// Moves what the socket takes of `first` and of those behind it that go together with it; and
    /// how many bytes these have. `end` knows how long the file was.
    ///
    /// # Errors
    ///
    /// As [`cue::step`].
    pub(super) fn step(
        &self,
        (file, end): (&Arc<File>, &mut FileEnd),
        first: Range<u64>,
        pieces: &mut Peekable<impl Iterator<Item = Range<u64>>>,
        socket: &TcpStream,
    ) -> io::Result<(Step, u64)> {
        let windows = &mut *self.0.borrow_mut();
        group(first.clone(), pieces, &mut windows.group);
        let lengths = windows.group.iter().map(|it| it.end - it.start);
        let bytes = lengths.sum();
        if windows.group.len() > 1
            && end.is_beyond(file, &windows.group)?
            && let Some(step) = windows.step(file, socket)?
        {
            return Ok((step, bytes));
        }
        // One that is alone or long. And of what the file has no longer, or cannot be read, this
        // tells which.
        let first_bytes = first.end - first.start;
        let step = cue::step(file.as_fd(), first.start, first_bytes, socket.as_fd())?;
        Ok((step, bytes))
    }

    /// Lets go of windows that nobody needs.
    pub(super) fn sweep(&self) {
        self.0.borrow_mut().sweep(monotonic_ns());
    }
}

/// Where a file ends of which is sent from a mapping: what lies beyond, in its last page, is zero
/// there and no error. It is asked once in front of a step, however many groups that has, and once
/// behind it.
#[derive(Debug, Default)]
pub(super) struct FileEnd {
    /// How long it was.
    file_bytes: Option<u64>,
    /// Where the last piece ends that was sent from a mapping.
    sent_to: u64,
}

impl FileEnd {
    /// Whether all of these pieces were in the file, so that they may be sent from a mapping.
    fn is_beyond(&mut self, file: &File, pieces: &[Range<u64>]) -> io::Result<bool> {
        let file_bytes = match self.file_bytes {
            Some(bytes) => bytes,
            None => file.metadata()?.len(),
        };
        self.file_bytes = Some(file_bytes);
        let to = pieces.iter().map(|it| it.end).max().unwrap_or(0);
        let is_beyond = file_bytes >= to;
        if is_beyond {
            self.sent_to = self.sent_to.max(to);
        }
        Ok(is_beyond)
    }

    /// Whether all that was sent is in the file still: what was cut off meanwhile may have left as
    /// zeroes.
    pub(super) fn is_still_beyond(&self, file: &File) -> bool {
        let is_it = || file.metadata().is_ok_and(|it| it.len() >= self.sent_to);
        self.sent_to == 0 || is_it()
    }
}

impl Windows {
    /// Sends what the socket takes of the group. `None` if the file cannot be sent from its
    /// mapping.
    fn step(&mut self, file: &Arc<File>, socket: &TcpStream) -> io::Result<Option<Step>> {
        let Ok(at) = self.window(file) else {
            return Ok(None);
        };
        send(&self.kept[at].mapped, &mut self.group, socket)
    }

    /// Where the window is that the group lies in.
    fn window(&mut self, file: &Arc<File>) -> io::Result<usize> {
        let range = window_of(self.group.first().map_or(0, |it| it.start));
        let is_it = |it: &Window| {
            std::ptr::eq(it.file.as_ptr(), Arc::as_ptr(file)) && *it.mapped.range() == range
        };
        let window = match self.kept.iter().position(is_it) {
            Some(at) => self.kept.remove(at),
            None => Window {
                file: Arc::downgrade(file),
                mapped: MappedRange::new(file, range)?,
                used_ns: 0,
            },
        };
        if self.kept.len() >= WINDOWS_MAX {
            self.kept.remove(0);
        }
        let used_ns = monotonic_ns();
        self.kept.push(Window { used_ns, ..window });
        Ok(self.kept.len() - 1)
    }

    fn sweep(&mut self, now_ns: u64) {
        let is_needed = |it: &Window| {
            it.file.strong_count() > 0 && now_ns.saturating_sub(it.used_ns) < UNUSED_NS_MAX
        };
        self.kept.retain(is_needed);
    }
}

/// The window that begins at or before this byte.
fn window_of(at: u64) -> Range<u64> {
    let start = at / WINDOW_BYTES * WINDOW_BYTES;
    start..start.saturating_add(WINDOW_BYTES)
}

/// Takes from `pieces` those that go together with `first`, which it may do alone.
fn group(
    first: Range<u64>,
    pieces: &mut Peekable<impl Iterator<Item = Range<u64>>>,
    group: &mut Vec<Range<u64>>,
) {
    let window = window_of(first.start);
    let goes = |it: &Range<u64>| {
        it.end - it.start < PIECE_BYTES_MAX && window.start <= it.start && it.end <= window.end
    };
    let goes_on = goes(&first);
    group.clear();
    group.push(first);
    while goes_on && group.len() < MAPPED_PIECES_MAX {
        match pieces.next_if(goes) {
            Some(next) => group.push(next),
            None => break,
        }
    }
}

/// Sends until all is sent or the socket says that it is full: only then does it tell of the room
/// to come. `None` if nothing of it can be read.
fn send(
    mapped: &MappedRange,
    group: &mut [Range<u64>],
    socket: &TcpStream,
) -> io::Result<Option<Step>> {
    let (mut left, mut sent_bytes) = (group, 0);
    while !left.is_empty() {
        match mapped.send(left, socket.as_fd()) {
            Ok(sent) => {
                sent_bytes += sent as u64;
                left = advance(left, sent as u64);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let end = StepEnd::Full;
                return Ok(Some(Step { sent_bytes, end }));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It is met again by the next step.
            Err(_) if sent_bytes > 0 => break,
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    let end = StepEnd::Done;
    Ok(Some(Step { sent_bytes, end }))
}

/// What is left of these pieces behind so many bytes.
fn advance(mut pieces: &mut [Range<u64>], mut bytes: u64) -> &mut [Range<u64>] {
    while let [first, ..] = pieces {
        let of_first = bytes.min(first.end - first.start);
        first.start += of_first;
        bytes -= of_first;
        if !first.is_empty() {
            break;
        }
        pieces = &mut pieces[1..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_of_a_window_go_together() {
        let groups = |pieces: &[Range<u64>]| {
            let mut pieces = pieces.iter().cloned().peekable();
            let (mut of, mut all) = (Vec::new(), Vec::new());
            while let Some(first) = pieces.next() {
                group(first, &mut pieces, &mut of);
                all.push(of.len());
            }
            all
        };
        assert_eq!(groups(&[200..300, 0..100, 150..300]), [3]);
        let (long, window) = (PIECE_BYTES_MAX, WINDOW_BYTES);
        assert_eq!(groups(&[0..100, 200..200 + long, 0..1]), [1, 1, 1]);
        let across = [
            0..9,
            window - 1..window + 1,
            window + 1..window + 2,
            window..window + 1,
        ];
        assert_eq!(groups(&across), [1, 1, 2]);
        let many: Vec<_> = (0..600).map(|at| at * 2..at * 2 + 1).collect();
        let most = MAPPED_PIECES_MAX;
        assert_eq!(groups(&many), [most, most, 600 - 2 * most]);
    }

    #[test]
    fn what_is_left_begins_behind_what_was_sent() {
        let of = |bytes| advance(&mut [0..10, 20..30, 40..41], bytes).to_vec();
        assert_eq!(of(0), [0..10, 20..30, 40..41]);
        assert_eq!(of(9), [9..10, 20..30, 40..41]);
        assert_eq!(of(10), [20..30, 40..41]);
        assert_eq!(of(19), [29..30, 40..41]);
        assert_eq!(of(21), []);
    }

    /// Those that were used last stay; of a closed file none does.
    #[test]
    fn windows_are_kept_within_the_bound() {
        let file = || Arc::new(tempfile::tempfile().unwrap());
        let (one, other) = (file(), file());
        let mut windows = Windows::default();
        let ask = |windows: &mut Windows, file: &Arc<File>, at: usize| {
            let start = at as u64 * WINDOW_BYTES;
            windows.group = vec![start + 1..start + 2, start..start + 1];
            let found = windows.window(file).unwrap();
            assert_eq!(windows.kept[found].mapped.range().start, start);
        };
        for at in 0..3 * WINDOWS_MAX {
            ask(&mut windows, &one, at);
            ask(&mut windows, &other, 0);
            assert!(windows.kept.len() <= WINDOWS_MAX);
        }
        let of = |windows: &Windows, file: &Arc<File>| {
            let all = windows.kept.iter();
            let its = all.filter(|it| std::ptr::eq(it.file.as_ptr(), Arc::as_ptr(file)));
            its.count()
        };
        assert_eq!(of(&windows, &one), WINDOWS_MAX - 1);
        assert_eq!(of(&windows, &other), 1);
        let now_ns = monotonic_ns();
        drop(one);
        windows.sweep(now_ns);
        assert_eq!((windows.kept.len(), of(&windows, &other)), (1, 1));
        windows.sweep(now_ns + 2 * UNUSED_NS_MAX);
        assert!(windows.kept.is_empty());
    }
}
