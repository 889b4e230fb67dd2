//! Paths that see or do what no other does: one looks whether memory changes while the kernel has
//! it, one meddles with crossings, one refuses trains or parts of them, one those of one socket,
//! one never says that trains are released.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI32, AtomicUsize};

use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::{Completion, Counters, Sent, To, Train};

use super::tests::{Rig, config, rig, rig_of};
use super::*;

/// A path that keeps every train for some turns and then looks whether its memory is still the
/// same.
#[derive(Debug)]
pub(super) struct Watchful {
    inner: Box<dyn Path>,
    pool: Arc<Pool>,
    memory: File,
    kept: Vec<Kept>,
    sums: HashMap<u32, (Train, u64)>,
    turn: u64,
    spoilt: Arc<AtomicUsize>,
    /// Answered in place of what the kernel says, if not 0.
    errno: Arc<AtomicI32>,
}

#[derive(Debug)]
struct Kept {
    token: u32,
    until_turn: u64,
}

/// Longer than six chunks of 4 Mbit/s last, so that the memory of a train that is given up too
/// early is written again while the train is kept.
const KEPT_TURNS: u64 = 200;

impl Watchful {
    fn sum(&self, train: &Train) -> u64 {
        // Read through the kernel, as a device would: nobody may hold a pin of it any more, and
        // then a builder may be writing there.
        let address = self.pool.area().base().as_ptr().addr() + train.offset;
        let mut bytes = vec![0; train.bytes as usize];
        self.memory
            .read_exact_at(&mut bytes, address as u64)
            .expect("the area is mapped");
        bytes
            .iter()
            .fold(17, |sum, &b| sum * 31 % 1_000_000_007 + u64::from(b))
    }
}

impl Path for Watchful {
    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, train: Train) {
        let sum = self.sum(&train);
        self.sums.insert(train.token, (train, sum));
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.turn += 1;
        self.inner.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.turn += 1;
        // Never without a deadline while trains are kept, for the kernel will not report them.
        let soon_ns = monotonic_ns() + 1_000_000;
        let deadline_ns = if self.kept.is_empty() {
            deadline_ns
        } else {
            deadline_ns.or(Some(soon_ns))
        };
        self.inner.submit_and_sleep(deadline_ns)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.kept.len()
    }

    fn completion(&mut self) -> Option<Completion> {
        if let Some(mut completion) = self.inner.completion() {
            assert!(completion.released, "the copying paths release at once");
            completion.released = false;
            let until_turn = self.turn + KEPT_TURNS;
            self.kept.push(Kept {
                token: completion.token,
                until_turn,
            });
            let errno = self.errno.load(Ordering::Relaxed);
            if errno != 0 {
                completion.sent = Some(Sent { bytes: 0, errno });
            }
            return Some(completion);
        }
        let ripe = self
            .kept
            .iter()
            .position(|kept| kept.until_turn <= self.turn)?;
        let token = self.kept.swap_remove(ripe).token;
        let (train, sum) = self.sums.remove(&token).expect("it was queued");
        if self.sum(&train) != sum {
            self.spoilt.fetch_add(1, Ordering::Relaxed);
        }
        Some(Completion {
            token,
            sent: None,
            released: true,
            referred: None,
        })
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// An engine on a watchful path; the count of trains whose memory changed in flight; the errno to
/// answer.
pub(super) fn watchful(faults: Faults) -> (Rig, Arc<AtomicUsize>, Arc<AtomicI32>) {
    let (spoilt, errno) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicI32::new(0)));
    let shown = (Arc::clone(&spoilt), Arc::clone(&errno));
    let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let inner = path::open(name, pool, waker)?;
        if name != PathName::SendmmsgGso {
            return Ok(inner);
        }
        let watchful = Watchful {
            inner,
            pool: Arc::clone(pool),
            memory: File::open("/proc/self/mem").expect("our own memory"),
            kept: Vec::new(),
            sums: HashMap::new(),
            turn: 0,
            spoilt: Arc::clone(&spoilt),
            errno: Arc::clone(&errno),
        };
        Ok(Box::new(watchful) as Box<dyn Path>)
    };
    let config = EngineConfig {
        path: PathName::SendmmsgGso,
        open_path: Arc::new(open_path),
        faults,
        ..config()
    };
    // As few chunks as one reader needs and as trains in flight hold: each is soon used again.
    (rig_of(config, 6), shown.0, shown.1)
}

/// A path to whose crossings something happens first.
pub(super) struct Meddled {
    pub(super) inner: Box<dyn Path>,
    pub(super) meddle: Arc<Meddle>,
    /// Answered to trains in place of what the kernel says, if not 0.
    pub(super) errno: i32,
    /// No more descriptors may be open.
    pub(super) lacks_descriptors: bool,
}

/// What happens, told how many trains are in flight.
pub(super) type Meddle = dyn Fn(usize) -> io::Result<()> + Send + Sync;

impl std::fmt::Debug for Meddled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl Path for Meddled {
    fn register_files(&mut self, places: u32) -> u32 {
        self.inner.register_files(places)
    }

    fn install_file(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.inner.install_file(place, socket)
    }

    fn release_file(&mut self, place: u32) {
        self.inner.release_file(place);
    }

    fn descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        match self.lacks_descriptors {
            true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
            false => self.inner.descriptor(place),
        }
    }

    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, train: Train) {
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        (self.meddle)(self.inner.in_flight())?;
        self.inner.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        (self.meddle)(self.inner.in_flight())?;
        self.inner.submit_and_sleep(deadline_ns)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn completion(&mut self) -> Option<Completion> {
        let mut completion = self.inner.completion()?;
        if self.errno != 0 {
            let errno = self.errno;
            completion.sent = completion.sent.and(Some(Sent { bytes: 0, errno }));
        }
        Some(completion)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

pub(super) fn meddled(
    meddle: impl Fn(usize) -> io::Result<()> + Send + Sync + 'static,
) -> EngineConfig {
    let meddle: Arc<Meddle> = Arc::new(meddle);
    let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let (inner, meddle) = (path::open(name, pool, waker)?, Arc::clone(&meddle));
        let errno = 0;
        Ok(Box::new(Meddled {
            inner,
            meddle,
            errno,
            lacks_descriptors: false,
        }) as Box<dyn Path>)
    };
    EngineConfig {
        open_path: Arc::new(open_path),
        ..config()
    }
}

/// Paths that have no descriptor to give, and of which those that have the kernel cut trains answer
/// with `errno`, if it is not 0.
pub(super) fn without_descriptors(errno: i32) -> EngineConfig {
    let open_path = move |name: PathName, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let inner = path::open(name, pool, waker)?;
        Ok(Box::new(Meddled {
            inner,
            meddle: Arc::new(|_| Ok(())),
            errno: if name.segments() { errno } else { 0 },
            lacks_descriptors: true,
        }) as Box<dyn Path>)
    };
    EngineConfig {
        open_path: Arc::new(open_path),
        ..config()
    }
}

/// A path that refuses, with an errno.
#[derive(Debug)]
struct Refusing {
    inner: Box<dyn Path>,
    refuses: Refuses,
    errno: i32,
    queued: Vec<u32>,
    /// Trains that are refused, whole or in part.
    refused: HashSet<u32>,
}

/// What it refuses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refuses {
    /// What is behind so many packets of a train.
    Behind(u32),
    /// Trains that are handed over before the end of a turn, to make room.
    MakingRoom,
}

impl Path for Refusing {
    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, mut train: Train) {
        self.queued.push(train.token);
        if let Refuses::Behind(packets) = self.refuses
            && train.bytes > packets * u32::from(train.stride)
        {
            train.bytes = packets * u32::from(train.stride);
            self.refused.insert(train.token);
        }
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.refuses == Refuses::MakingRoom {
            self.refused.extend(&self.queued);
        }
        self.queued.clear();
        self.inner.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.queued.clear();
        self.inner.submit_and_sleep(deadline_ns)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn completion(&mut self) -> Option<Completion> {
        let mut completion = self.inner.completion()?;
        if self.refused.remove(&completion.token)
            && let Some(sent) = &mut completion.sent
        {
            assert_eq!(sent.errno, 0, "the path itself takes all");
            sent.errno = self.errno;
            if self.refuses == Refuses::MakingRoom {
                sent.bytes = 0;
            }
        }
        Some(completion)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// A way to open `sendmmsg_gso` so that it refuses with `errno`.
pub(super) fn refusing(refuses: Refuses, errno: i32) -> EngineConfig {
    let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        Ok(Box::new(Refusing {
            inner: path::open(name, pool, waker)?,
            refuses,
            errno,
            queued: Vec::new(),
            refused: HashSet::new(),
        }) as Box<dyn Path>)
    };
    EngineConfig {
        path: PathName::SendmmsgGso,
        open_path: Arc::new(open_path),
        ..config()
    }
}

/// A path that answers EIO to the trains of one socket, as the kernel does where IPsec is on the
/// way to its client. Packets that leave singly it takes.
#[derive(Debug)]
struct Secured {
    inner: Box<dyn Path>,
    /// Sockets that it was given.
    installed: usize,
    /// The place of the second.
    place: Option<u32>,
    refused: HashSet<u32>,
}

impl Path for Secured {
    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn register_files(&mut self, places: u32) -> u32 {
        self.inner.register_files(places)
    }

    fn install_file(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.installed += 1;
        if self.installed == 2 {
            self.place = Some(place);
        }
        self.inner.install_file(place, socket)
    }

    fn release_file(&mut self, place: u32) {
        self.inner.release_file(place);
    }

    fn descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        self.inner.descriptor(place)
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, train: Train) {
        let place = self.place.map(To::RegisteredFile);
        if place == Some(train.to) && !train.is_single() {
            self.refused.insert(train.token);
        }
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.inner.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.inner.submit_and_sleep(deadline_ns)
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn completion(&mut self) -> Option<Completion> {
        let mut completion = self.inner.completion()?;
        if completion.sent.is_some() && self.refused.remove(&completion.token) {
            let errno = libc::EIO;
            completion.sent = Some(Sent { bytes: 0, errno });
        }
        Some(completion)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// Of the sockets that the path is given, the second takes no trains.
pub(super) fn secured() -> EngineConfig {
    let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        Ok(Box::new(Secured {
            inner: path::open(name, pool, waker)?,
            installed: 0,
            place: None,
            refused: HashSet::new(),
        }) as Box<dyn Path>)
    };
    EngineConfig {
        open_path: Arc::new(open_path),
        ..config()
    }
}

/// A path that does not say that trains are released, as long as they are withheld.
#[derive(Debug)]
pub(super) struct Withholding {
    inner: Box<dyn Path>,
    /// The socket whose trains are withheld; -1: none's.
    withheld_fd: Arc<AtomicI32>,
    fds: HashMap<u32, i32>,
    kept: Vec<u32>,
}

impl Path for Withholding {
    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, train: Train) {
        let To::Descriptor(fd) = train.to else {
            panic!("the copying paths keep no sockets");
        };
        self.fds.insert(train.token, fd);
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.inner.submit()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let soon_ns = monotonic_ns() + 1_000_000;
        self.inner.submit_and_sleep(deadline_ns.or(Some(soon_ns)))
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.kept.len()
    }

    fn completion(&mut self) -> Option<Completion> {
        let withheld_fd = self.withheld_fd.load(Ordering::Relaxed);
        let Some(mut completion) = self.inner.completion() else {
            let free = self.kept.iter().position(|t| self.fds[t] != withheld_fd)?;
            return Some(Completion {
                token: self.kept.swap_remove(free),
                sent: None,
                released: true,
                referred: None,
            });
        };
        if self.fds[&completion.token] == withheld_fd {
            assert!(completion.released, "the copying paths release at once");
            completion.released = false;
            self.kept.push(completion.token);
        }
        Some(completion)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

/// An engine of so many trains a stream, and the socket whose trains it never hears of again.
pub(super) fn withholding(trains_per_stream_max: u32) -> (Rig, Arc<AtomicI32>) {
    let withheld_fd = Arc::new(AtomicI32::new(-1));
    let shown = Arc::clone(&withheld_fd);
    let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
        let inner = path::open(name, pool, waker)?;
        let withheld_fd = Arc::clone(&withheld_fd);
        let (fds, kept) = (HashMap::new(), Vec::new());
        Ok(Box::new(Withholding {
            inner,
            withheld_fd,
            fds,
            kept,
        }) as Box<dyn Path>)
    };
    let config = EngineConfig {
        path: PathName::SendmmsgGso,
        open_path: Arc::new(open_path),
        trains_per_stream_max,
        ..config()
    };
    (rig(config), shown)
}
