//! Short pieces of a file that lie near each other, as pictures with sound between them: sent from
//! a mapping of the file, many by one call.
//!
//! Of pieces that fill most of the pages that they touch these pages themselves are sent, through a
//! pipe, as `sendfile` does. Of shorter ones, and for a connection that the kernel seals, bytes are
//! copied: TCP has a fragment for each page, however little of it is sent, and some work with it.
//! And for a connection that spaces out what it sends (BBR) in packets as large as loopback's: the
//! kernel gives TCP sixteen pages of a pipe at a time (`splice_to_socket`), parts of pages are less
//! than such a packet holds, and each time that TCP is not to send yet it starts a timer, which may
//! cost more than the copy. A packet of a network holds less.
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
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::fs::cached_metadata;
use onrush_sys::path::cue::mapped::{MAPPED_PIECES_MAX, MappedRange};
use onrush_sys::path::cue::pipe::Pipe;
use onrush_sys::path::cue::{self, Step, StepEnd};
use rustix::net::sockopt;
use socket2::SockRef;
use tokio::net::TcpStream;
use tracing::debug;

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

/// Pieces that have as a mean at least so many bytes of each page that they touch are not copied:
/// with fewer, a fragment of TCP's for each page is taken to cost more than the copy of its bytes.
const LENT_BYTES_MIN: u64 = 2560;

/// Pages that the kernel gives TCP at once, of a pipe (`splice_to_socket`).
const SPLICED_PAGES: u64 = 16;

/// Pieces that are longer go alone by `sendfile`, also where pages are sent.
const LENT_BYTES_MAX: u64 = 1 << 20;

/// What is put into the pipe at once: each full socket has as much as that put there for nothing.
const PIPE_BYTES: usize = 1 << 20;

/// How long all pieces are copied after the kernel lent no pages.
const REFUSED_NS: u64 = 60_000_000_000;

/// Windows of files, those that were used last behind the others.
#[derive(Debug, Default)]
pub(super) struct Mappings(RefCell<Windows>);

#[derive(Debug, Default)]
struct Windows {
    kept: Vec<Window>,
    /// Pieces that are sent together.
    group: Vec<Range<u64>>,
    lender: Lender,
}

/// The pipe that pages go through, which is empty between steps.
#[derive(Debug, Default)]
struct Lender {
    pipe: Option<Pipe>,
    /// When the kernel, or who watches over this process, lent no pages.
    refused_ns: Option<u64>,
}

/// Where pieces go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Destination<'a> {
    pub(super) socket: &'a TcpStream,
    /// Whether it is worth to give it pages.
    takes_pages: bool,
}

impl<'a> Destination<'a> {
    pub(super) fn plain(socket: &'a TcpStream) -> Self {
        let takes_pages = !is_paced(socket.as_fd()) || !has_large_packets(socket);
        Self {
            socket,
            takes_pages,
        }
    }

    /// The kernel reads what it seals anyway.
    pub(super) fn sealed(socket: &'a TcpStream) -> Self {
        Self {
            socket,
            takes_pages: false,
        }
    }
}

/// Whether the connection's congestion control spaces out what it sends.
fn is_paced(socket: BorrowedFd<'_>) -> bool {
    sockopt::tcp_congestion(socket).is_ok_and(|it| it.starts_with("bbr"))
}

/// Whether a packet of the connection's holds more than the kernel gives TCP of a pipe at once.
fn has_large_packets(socket: &TcpStream) -> bool {
    let segment_bytes = SockRef::from(socket).tcp_mss();
    segment_bytes.is_ok_and(|it| u64::from(it) > SPLICED_PAGES * LENT_BYTES_MIN)
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
        to: Destination<'_>,
    ) -> io::Result<(Step, u64)> {
        let windows = &mut *self.0.borrow_mut();
        let lends = to.takes_pages && !windows.lender.is_refused();
        let bytes_max = if lends {
            LENT_BYTES_MAX
        } else {
            PIECE_BYTES_MAX
        };
        group(first.clone(), pieces, bytes_max, &mut windows.group);
        let lengths = windows.group.iter().map(|it| it.end - it.start);
        let bytes = lengths.sum();
        if windows.group.len() > 1
            && end.is_beyond(file, &windows.group)?
            && let Some(step) = windows.step(file, to)?
        {
            return Ok((step, bytes));
        }
        // One that is alone or long. And of what the file has no longer, or cannot be read, this
        // tells which.
        let first_bytes = first.end - first.start;
        let step = cue::step(file.as_fd(), first.start, first_bytes, to.socket.as_fd())?;
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
            None => cached_metadata(file)?.file_bytes,
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
        let is_it = || cached_metadata(file).is_ok_and(|it| it.file_bytes >= self.sent_to);
        self.sent_to == 0 || is_it()
    }
}

impl Windows {
    /// Sends what the socket takes of the group. `None` if the file cannot be sent from its
    /// mapping.
    fn step(&mut self, file: &Arc<File>, to: Destination<'_>) -> io::Result<Option<Step>> {
        let Ok(at) = self.window(file) else {
            return Ok(None);
        };
        let Self {
            kept,
            group,
            lender,
        } = self;
        let lender = Some(lender).filter(|it| to.takes_pages && it.is_worth(group));
        send(&kept[at].mapped, group, lender, to.socket.as_fd())
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
    bytes_max: u64,
    group: &mut Vec<Range<u64>>,
) {
    let window = window_of(first.start);
    let goes = |it: &Range<u64>| {
        it.end - it.start < bytes_max && window.start <= it.start && it.end <= window.end
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
    mut lender: Option<&mut Lender>,
    socket: BorrowedFd<'_>,
) -> io::Result<Option<Step>> {
    let (mut left, mut sent_bytes) = (group, 0);
    let step = |sent_bytes, end| Ok(Some(Step { sent_bytes, end }));
    while !left.is_empty() {
        let lender = lender.as_mut().filter(|it| !it.is_refused());
        let sent = match lender {
            Some(lender) => lender.send(mapped, left, socket),
            None => mapped.send(left, socket).map(Given::of),
        };
        match sent {
            Ok(given) => {
                sent_bytes += given.bytes;
                left = advance(left, given.bytes);
                if given.is_full {
                    return step(sent_bytes, StepEnd::Full);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return step(sent_bytes, StepEnd::Full);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It is met again by the next step.
            Err(_) if sent_bytes > 0 => break,
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    step(sent_bytes, StepEnd::Done)
}

/// What a socket took.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    bytes: u64,
    /// It has said that it takes no more.
    is_full: bool,
}

impl Given {
    fn of(bytes: usize) -> Self {
        Self {
            bytes: bytes as u64,
            is_full: false,
        }
    }
}

impl Lender {
    /// Whether it is not to be tried now. It is again later: descriptors or memory may have been
    /// short.
    fn is_refused(&self) -> bool {
        let is_lately = |at| monotonic_ns().saturating_sub(at) < REFUSED_NS;
        self.refused_ns.is_some_and(is_lately)
    }

    /// Whether the pages of these pieces cost less than a copy of their bytes.
    fn is_worth(&self, pieces: &[Range<u64>]) -> bool {
        let page_bytes = rustix::param::page_size() as u64;
        let pages = |it: &Range<u64>| it.end.div_ceil(page_bytes) - it.start / page_bytes;
        let pages: u64 = pieces.iter().map(pages).sum();
        let bytes: u64 = pieces.iter().map(|it| it.end - it.start).sum();
        !self.is_refused() && bytes >= pages * LENT_BYTES_MIN
    }

    /// Gives a socket pages of the first of these pieces.
    ///
    /// # Errors
    ///
    /// As [`MappedRange::send`].
    fn send(
        &mut self,
        mapped: &MappedRange,
        pieces: &[Range<u64>],
        socket: BorrowedFd<'_>,
    ) -> io::Result<Given> {
        let pipe = match self.pipe.take() {
            Some(pipe) => Ok(pipe),
            None => Pipe::of_bytes(PIPE_BYTES),
        };
        let lent = pipe.and_then(|pipe| Ok((mapped.lend(pieces, &pipe)?, pipe)));
        let (lent, pipe) = match lent {
            Ok((lent, pipe)) => (lent as u64, pipe),
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Err(error),
            Err(error) => {
                debug!("short pieces are copied for a while: vmsplice: {error}");
                self.refused_ns = Some(monotonic_ns());
                return Ok(Given::default());
            }
        };
        let mut given = Given::default();
        let has_more = pieces.iter().map(|it| it.end - it.start).sum::<u64>() > lent;
        while given.bytes < lent {
            match pipe.send(socket, lent - given.bytes, has_more) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => given.bytes += sent,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // What is left in the pipe goes with it.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    given.is_full = true;
                    return Ok(given);
                }
                Err(_) if given.bytes > 0 => return Ok(given),
                Err(error) => return Err(error),
            }
        }
        self.pipe = Some(pipe);
        Ok(given)
    }
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
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream as Peer};
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn short_pieces_of_a_window_go_together() {
        let groups = |pieces: &[Range<u64>]| {
            let mut pieces = pieces.iter().cloned().peekable();
            let (mut of, mut all) = (Vec::new(), Vec::new());
            while let Some(first) = pieces.next() {
                group(first, &mut pieces, PIECE_BYTES_MAX, &mut of);
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

    #[test]
    fn pieces_that_fill_their_pages_are_not_copied() {
        let lender = Lender::default();
        let page = rustix::param::page_size() as u64;
        let least = LENT_BYTES_MIN;
        let worth = |pieces: &[Range<u64>]| lender.is_worth(pieces);
        assert!(worth(&[page..page + least, 7 * page - least..7 * page]));
        assert!(!worth(&[
            page..page + least,
            7 * page - least + 1..7 * page
        ]));
        // As much of two pages.
        let alone = |piece: Range<u64>| worth(&[piece]);
        assert!(!alone(page - 1..page - 1 + least));
        let refused_before = |ns| Lender {
            refused_ns: Some(monotonic_ns() - ns),
            ..Lender::default()
        };
        let whole = [0..page, page..2 * page];
        assert!(!refused_before(REFUSED_NS / 2).is_worth(&whole));
        assert!(
            refused_before(REFUSED_NS).is_worth(&whole),
            "it is for good"
        );
    }

    fn pair() -> (Peer, Peer) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = Peer::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_that_is_paced_is_known() {
        let (near, _far) = pair();
        sockopt::set_tcp_congestion(&near, "reno").unwrap();
        assert!(!is_paced(near.as_fd()));
        // Not every kernel has it.
        if sockopt::set_tcp_congestion(&near, "bbr").is_ok() {
            assert!(is_paced(near.as_fd()));
        }
    }

    /// A full socket leaves nothing behind for the next one; and where the kernel lends no pages,
    /// they are copied.
    #[test]
    fn what_a_full_socket_left_goes_to_no_other() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        let content: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        file.write_all(&content).unwrap();
        let mapped = MappedRange::new(&file, 0..content.len() as u64).unwrap();
        let pieces = (0..190).map(|at| at * 20_000 + 9..at * 20_000 + 19_000);
        let pieces: Vec<Range<u64>> = pieces.collect();
        let of = |piece: &Range<u64>| {
            let at = |it| usize::try_from(it).unwrap();
            content[at(piece.start)..at(piece.end)].to_vec()
        };
        let expected: Vec<u8> = pieces.iter().flat_map(of).collect();
        let mut lender = Lender::default();
        assert!(lender.is_worth(&pieces));
        let mut give = |near: &Peer, group: &mut [Range<u64>], is_refused: bool| {
            lender.refused_ns = is_refused.then(monotonic_ns);
            let step = send(&mapped, group, Some(&mut lender), near.as_fd());
            step.unwrap().unwrap()
        };
        let (near, _far) = pair();
        let mut steps = (0..64).map(|_| give(&near, &mut pieces.clone(), false).end);
        assert!(steps.any(|end| end == StepEnd::Full), "nobody reads");
        for is_refused in [false, true] {
            let (near, mut far) = pair();
            let reading = thread::spawn(move || {
                let mut bytes = Vec::new();
                far.read_to_end(&mut bytes).map(|_| bytes)
            });
            let mut left = pieces.clone();
            let mut left = &mut left[..];
            while !left.is_empty() {
                let step = give(&near, &mut left.to_vec(), is_refused);
                left = advance(left, step.sent_bytes);
                if step.end == StepEnd::Full {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            drop(near);
            let received = reading.join().unwrap().unwrap();
            assert!(received == expected, "{is_refused}");
        }
    }
}
