//! Locked memory: locks that nest and overlap, beside a count for every page; and registrations
//! that a cache keeps, lends and gives up, beside what the kernel sends by them.

use std::io::{PipeReader, PipeWriter, Read};
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, types};
use onrush_lock::bare::Private;
use onrush_lock::memory::page_bytes;
use onrush_lock::{
    Budget, Cache, Counts, Keep, Kind, Loan, LockError, LockedArea, Manager, Sealed, Uncached,
    pages_in_memory,
};

use crate::random::Random;

/// Pages that are locked and unlocked.
const PAGES: usize = 32;

/// Pages of each piece of memory that is registered.
const PIECE_PAGES: usize = 6;

/// Operations of an input, at the most.
const OPERATIONS_MAX: usize = 300;

/// Locks and handles that are out at a time.
const OUT_MAX: usize = 24;

/// Does what an input says: three bytes an operation, first as locks and then as registrations.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    locks(input);
    registrations(input);
}

/// Three bytes of each operation.
fn operations(input: &[u8]) -> impl Iterator<Item = [usize; 3]> + '_ {
    let all = input.chunks_exact(3).take(OPERATIONS_MAX);
    all.map(|it| [it[0], it[1], it[2]].map(usize::from))
}

/// A range of at least one of so many.
fn range(first: usize, length: usize, all: usize) -> Range<usize> {
    let first = first % all;
    first..first + 1 + length % (all - first)
}

/// Locks on some memory, and how many hold each of its pages.
struct Locks {
    memory: Private,
    counts: [Counts; PAGES],
    out: Vec<(LockedArea, Range<usize>)>,
}

fn locks(input: &[u8]) {
    let memory = Private::map(PAGES * page_bytes()).expect("a little memory");
    let mut locks = Locks {
        memory,
        counts: [Counts::default(); PAGES],
        out: Vec::new(),
    };
    for [what, first, length] in operations(input) {
        match what % 8 {
            0..=3 if locks.out.len() < OUT_MAX => {
                let kind = [Kind::Resident, Kind::OnFault, Kind::Pinned][what / 8 % 3];
                locks.lock(range(first, length, PAGES), kind);
            }
            4 => locks.extend(first, length),
            5 => locks.refused(first, length),
            _ => locks.unlock(first),
        }
        locks.compare();
    }
    while !locks.out.is_empty() {
        locks.unlock(0);
    }
    locks.compare();
}

impl Locks {
    fn bytes(&self, pages: &Range<usize>) -> Range<usize> {
        let start = self.memory.bytes().start;
        start + pages.start * page_bytes()..start + pages.end * page_bytes()
    }

    fn count(&mut self, pages: &Range<usize>, kind: Kind, change: fn(&mut u32)) {
        for counts in &mut self.counts[pages.clone()] {
            change(match kind {
                Kind::Resident => &mut counts.resident,
                Kind::OnFault => &mut counts.on_fault,
                Kind::Pinned => &mut counts.pinned,
            });
        }
    }

    fn lock(&mut self, pages: Range<usize>, kind: Kind) {
        let bytes = self.bytes(&pages);
        match Manager::of_process().lock(bytes.clone(), kind) {
            Ok(area) => {
                assert_eq!((area.bytes(), area.kind()), (bytes.clone(), kind));
                let are_there = kind == Kind::OnFault
                    || pages_in_memory(&bytes).is_ok_and(|there| there == pages.len());
                assert!(are_there, "{kind:?} pages are not in memory");
                self.count(&pages, kind, |count| *count += 1);
                self.out.push((area, pages));
            }
            Err(error) => assert_limit(&error),
        }
    }

    /// Makes a lock longer, if there is memory behind it.
    fn extend(&mut self, at: usize, length: usize) {
        let Some(at) = at.checked_rem(self.out.len()) else {
            return;
        };
        let end = self.out[at].1.end;
        if end == PAGES {
            return;
        }
        let more = range(end, length, PAGES);
        let (bytes, kind) = (self.bytes(&more), self.out[at].0.kind());
        match self.out[at].0.extend(bytes.clone()) {
            Ok(()) => {
                assert_eq!(self.out[at].0.bytes().end, bytes.end);
                self.out[at].1.end = more.end;
                self.count(&more, kind, |count| *count += 1);
            }
            Err(error) => assert_limit(&error),
        }
    }

    /// What is no whole pages, nothing, or of other memory: refused, and nothing changes.
    fn refused(&self, first: usize, length: usize) {
        let bytes = self.bytes(&range(first, length, PAGES));
        let other = match length % 4 {
            0 => bytes.start + 1 + first..bytes.end,
            1 => bytes.start..bytes.start,
            2 => bytes.end..bytes.start,
            _ => 0..page_bytes(),
        };
        let error = Manager::of_process().lock(other, Kind::Resident);
        assert!(!error.expect_err("it is refused").to_string().is_empty());
    }

    fn unlock(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.out.len()) else {
            return;
        };
        let (area, pages) = self.out.swap_remove(at);
        let kind = area.kind();
        assert!(area.is_held());
        drop(area);
        self.count(&pages, kind, |count| *count -= 1);
    }

    /// The manager's intervals count what the handles do; none is empty, and neighbours differ.
    fn compare(&self) {
        let memory = self.memory.bytes();
        let mut found = [Counts::default(); PAGES];
        let mut last: Option<(usize, Counts)> = None;
        for interval in Manager::of_process().areas() {
            // Others lock, too, where this is one of several tests.
            if !memory.contains(&interval.bytes.start) {
                continue;
            }
            let (bytes, counts) = (interval.bytes, interval.counts);
            assert!(!bytes.is_empty() && bytes.end <= memory.end && counts != Counts::default());
            assert_ne!(last, Some((bytes.start, counts)), "two intervals are one");
            last = Some((bytes.end, counts));
            let page = |address: usize| (address - memory.start) / page_bytes();
            found[page(bytes.start)..page(bytes.end)].fill(counts);
        }
        assert_eq!(found, self.counts);
    }
}

/// An account that may lock little is refused, and no other reason is one.
fn assert_limit(error: &LockError) {
    let is_limit = matches!(error, LockError::Limit { .. } | LockError::NotPermitted);
    assert!(is_limit, "{error}");
}

/// Memory whose bytes tell where they are.
#[derive(Debug)]
enum Piece {
    Sealed(Sealed),
    Private(Private),
}

impl Piece {
    fn bytes(&self) -> Range<usize> {
        match self {
            Self::Sealed(memory) => memory.bytes(),
            Self::Private(memory) => memory.bytes(),
        }
    }

    fn contents(&self) -> &[u8] {
        match self {
            Self::Sealed(memory) => memory,
            Self::Private(memory) => memory,
        }
    }
}

/// Loans of a cache, and where what the kernel sends by them arrives.
struct Loans {
    cache: Cache,
    ring: IoUring,
    pipe: (PipeReader, PipeWriter),
    pieces: Vec<Piece>,
    budget: Budget,
    out: Vec<(Loan, usize, Range<usize>)>,
    asked: u64,
}

fn registrations(input: &[u8]) {
    let mut random = Random::of(input);
    let budget = Budget {
        keep: *random.pick(&[Keep::Sealed, Keep::Watched]),
        entries_max: 1 + random.index(4),
        bytes_max: (1 + random.index(2 * PIECE_PAGES)) * page_bytes(),
    };
    let ring = IoUring::new(4).expect("a ring");
    // SAFETY: the ring is open, and lives longer than this borrow.
    let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
    let cache = Cache::new(fd, budget).expect("a table of buffers");
    let mut loans = Loans {
        cache,
        ring,
        pipe: std::io::pipe().expect("a pipe"),
        pieces: pieces(),
        budget,
        out: Vec::new(),
        asked: 0,
    };
    for [what, first, length] in operations(input) {
        match what % 8 {
            0..=3 if loans.out.len() < OUT_MAX => loans.acquire(what / 8, first, length),
            4 => loans.cache.sweep(),
            5 => loans.change(what / 8, first),
            _ => loans.release(first),
        }
        let (kept, bytes) = (loans.cache.kept(), loans.cache.kept_bytes());
        assert!(
            kept <= budget.entries_max && bytes <= budget.bytes_max,
            "{kept}, {bytes}"
        );
        let counters = loans.cache.counters();
        assert_eq!(counters.hits + counters.misses, loans.asked);
        assert!(counters.uncached <= counters.misses);
    }
    while !loans.out.is_empty() {
        loans.release(0);
    }
}

/// Two pieces that are sealed, if this kernel seals, and one that is not.
fn pieces() -> Vec<Piece> {
    let bytes = PIECE_PAGES * page_bytes();
    let sealed = (0..2).filter_map(|_| Sealed::map(bytes).ok());
    let mut sealed: Vec<_> = sealed.collect();
    for (number, memory) in (1_u8..).zip(&mut sealed) {
        for (at, byte) in (0_usize..).zip(memory.iter_mut()) {
            *byte = number
                .wrapping_mul(100)
                .wrapping_add((at / 61).to_le_bytes()[0]);
        }
    }
    let mut private = Private::map(bytes).expect("a little memory");
    private.write(7);
    let pieces = sealed.into_iter().map(Piece::Sealed);
    pieces.chain([Piece::Private(private)]).collect()
}

impl Loans {
    fn acquire(&mut self, piece: usize, first: usize, length: usize) {
        let piece = piece % self.pieces.len();
        // Not only whole pages: a message begins and ends anywhere.
        let part = range(first * 97, length * 97, PIECE_PAGES * page_bytes());
        let start = self.pieces[piece].bytes().start;
        let bytes = start + part.start..start + part.end;
        let loan = match self.cache.acquire(bytes) {
            Ok(loan) => loan,
            Err(onrush_lock::CacheError::Lock(error)) => return assert_limit(&error),
            Err(error) => panic!("{error}"),
        };
        self.asked += 1;
        match (&self.pieces[piece], loan.uncached()) {
            (_, None | Some(Uncached::Budget)) => {}
            (Piece::Sealed(_), Some(why)) => panic!("sealed memory is not kept: {why:?}"),
            (Piece::Private(_), Some(why)) => {
                let is_watched = self.budget.keep == Keep::Watched;
                assert_eq!(why == Uncached::NotSealed, !is_watched, "{why:?}");
            }
        }
        self.out.push((loan, piece, part));
        self.send(self.out.len() - 1);
    }

    /// What the kernel sends by a loan is what lies there.
    fn send(&mut self, at: usize) {
        let (loan, piece, part) = &self.out[at];
        let expected = &self.pieces[*piece].contents()[part.clone()];
        let length = u32::try_from(expected.len()).expect("a few pages");
        let to = types::Fd(self.pipe.1.as_raw_fd());
        let write = opcode::WriteFixed::new(to, expected.as_ptr(), length, loan.buffer());
        // SAFETY: the bytes are registered, and live until the write is over, which is waited for
        // below.
        unsafe { self.ring.submission().push(&write.build()) }.expect("room for one");
        self.ring.submit_and_wait(1).expect("it is over");
        let done = self.ring.completion().next().expect("it is over");
        let result = usize::try_from(done.result());
        assert_eq!(result, Ok(expected.len()), "{} of {part:?}", done.result());
        let mut sent = vec![0; expected.len()];
        self.pipe
            .0
            .read_exact(&mut sent)
            .expect("as much as was sent");
        assert!(
            sent == expected,
            "{part:?} of piece {piece} was sent as something else"
        );
    }

    fn release(&mut self, at: usize) {
        let Some(at) = at.checked_rem(self.out.len()) else {
            return;
        };
        self.send(at);
        let (loan, ..) = self.out.swap_remove(at);
        self.cache.release(loan);
    }

    /// Private memory gets other contents, or loses them, or is unmapped and mapped anew, while
    /// nobody has it on loan.
    fn change(&mut self, how: usize, byte: usize) {
        let last = self.pieces.len() - 1;
        if self.out.iter().any(|(_, piece, _)| *piece == last) {
            return;
        }
        let Piece::Private(memory) = &mut self.pieces[last] else {
            return;
        };
        match how % 4 {
            0 | 1 => memory.write(byte.to_le_bytes()[0]),
            2 => memory.perforate(),
            _ => {
                // At the same addresses, as a rule.
                drop(self.pieces.pop());
                let mut memory = Private::map(PIECE_PAGES * page_bytes()).expect("a little memory");
                memory.write(byte.to_le_bytes()[0]);
                self.pieces.push(Piece::Private(memory));
            }
        }
    }
}
