//! The network of a simulation: a data path that sends nothing, and compares every packet that is
//! handed to it, and once more when it lets go of the memory, with what its viewer is to get.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_sys::path::{Completion, Counters, Path, PathName, Sent, To, Train};
use onrush_sys::pool::Pool;
use onrush_wire::rtp::HEADER_BYTES;

/// What all of a simulation share.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) now_ns: Arc<AtomicU64>,
    /// How long handing a train over takes.
    pub(super) train_ns: u64,
    /// How long the network needs the memory of a train.
    pub(super) release_ns: u64,
    /// By the inode of the viewer's socket, which says who it is on whatever path.
    pub(super) ledgers: HashMap<u64, Ledger>,
    /// Packets that were answered for, taken or refused.
    pub(super) answered: u64,
    pub(super) engines: Vec<EngineSleep>,
    /// A sum over all that was handed over, to tell two runs apart.
    pub(super) trace: u64,
}

/// What an engine waits for.
#[derive(Clone, Debug, Default)]
pub(super) struct EngineSleep {
    pub(super) deadline_ns: Option<u64>,
    pub(super) cpu_ns: Arc<AtomicU64>,
    /// When the next train's memory is released on the path in use.
    pub(super) release_ns: Option<u64>,
}

/// What one viewer is to get, and has got.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) film: Arc<FilmImages>,
    /// The packet of the film that comes next; none before the first play.
    pub(super) next: Option<u64>,
    pub(super) stop: u64,
    /// The number that the next packet has, once one was sent.
    pub(super) sequence: Option<u16>,
    /// It was left out since its last packet: bursts may be missing.
    pub(super) may_skip: bool,
    /// Nothing may come: it is paused, or has gone.
    pub(super) is_silent: bool,
    /// What the kernel answers; 0 takes all.
    pub(super) errno: i32,
    /// Of each train only the first packet is taken.
    pub(super) in_part: bool,
    /// Until then the network keeps the memory of its trains.
    pub(super) holds_until_ns: u64,
    /// First and last packet of this turn.
    pub(super) turn: Option<(u64, u64)>,
    pub(super) packets: u64,
}

/// All packets of a film.
#[derive(Debug)]
pub(super) struct FilmImages {
    pub(super) images: Vec<Vec<u8>>,
    /// The number of the first.
    pub(super) sequence: u16,
    /// The first packets of bursts.
    pub(super) bursts: BTreeSet<u64>,
}

impl Ledger {
    pub(super) fn new(film: Arc<FilmImages>) -> Self {
        Self {
            film,
            next: None,
            stop: 0,
            sequence: None,
            may_skip: false,
            is_silent: true,
            errno: 0,
            in_part: false,
            holds_until_ns: 0,
            turn: None,
            packets: 0,
        }
    }

    /// Compares packets with what is to come.
    fn take(&mut self, bytes: &[u8], stride: usize, headers: Option<&[u8]>) {
        assert!(!self.is_silent, "a packet comes after a pause or an end");
        for (at, packet) in bytes.chunks(stride).enumerate() {
            let expected = self.next.expect("something was asked for");
            let of_film = number_of(packet).wrapping_sub(self.film.sequence);
            let ahead = of_film.wrapping_sub((expected & 0xffff) as u16);
            let number = expected + u64::from(ahead);
            if number != expected {
                let is_whole = at == 0 && self.film.bursts.contains(&number);
                assert!(
                    self.may_skip && is_whole,
                    "packet {number} comes in place of {expected}"
                );
                self.sequence = self.sequence.map(|it| it.wrapping_add(ahead));
            }
            self.may_skip = false;
            assert!(number < self.stop, "{number} is behind {}", self.stop);
            let image = usize::try_from(number).expect("a short film");
            assert!(
                self.film.images[image] == packet,
                "packet {number} has other bytes"
            );
            let header = headers.map_or(packet, |all| &all[at * HEADER_BYTES..]);
            let sequence = number_of(header);
            let is_next = self.sequence.is_none_or(|it| it == sequence);
            assert!(
                is_next,
                "packet {number} is numbered {sequence} in place of {:?}",
                self.sequence
            );
            self.sequence = Some(sequence.wrapping_add(1));
            self.next = Some(number + 1);
            self.turn = Some((self.turn.map_or(number, |(first, _)| first), number));
            self.packets += 1;
        }
    }
}

fn number_of(header: &[u8]) -> u16 {
    u16::from_be_bytes([header[2], header[3]])
}

/// Who a socket belongs to, however many descriptors it has.
pub(super) fn inode(socket: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(socket).expect("it is open").st_ino
}

pub(super) fn locked(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The path of one engine.
#[derive(Debug)]
pub(super) struct Device {
    name: PathName,
    engine: usize,
    world: Arc<Mutex<World>>,
    memory: File,
    base: u64,
    files: Vec<Option<OwnedFd>>,
    queued: Vec<(u64, Train)>,
    answers: VecDeque<Completion>,
    /// What it has not let go of, by when it will and in which order it came.
    held: BTreeMap<(u64, u64), Held>,
    counters: Counters,
}

#[derive(Debug)]
struct Held {
    token: u32,
    offset: usize,
    bytes: Vec<u8>,
}

impl Device {
    pub(super) fn new(
        name: PathName,
        engine: usize,
        world: &Arc<Mutex<World>>,
        pool: &Pool,
    ) -> Self {
        Self {
            name,
            engine,
            world: Arc::clone(world),
            memory: File::open("/proc/self/mem").expect("our own memory"),
            base: pool.area().base().as_ptr().addr() as u64,
            files: Vec::new(),
            queued: Vec::new(),
            answers: VecDeque::new(),
            held: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Reads as a device would, whoever holds pins.
    fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        let at = self.base + offset as u64;
        self.memory.read_exact_at(&mut read, at).expect("mapped");
        read
    }

    fn viewer(&self, to: To) -> u64 {
        match to {
            To::RegisteredFile(place) => {
                let file = self.files[place as usize].as_ref();
                inode(file.expect("a socket is there").as_fd())
            }
            To::Descriptor(fd) => {
                let path = format!("/proc/self/fd/{fd}");
                rustix::fs::stat(path).expect("it is open").st_ino
            }
        }
    }

    /// Takes all that is queued, and answers for it.
    fn send(&mut self) {
        let world = Arc::clone(&self.world);
        let mut world = locked(&world);
        self.counters.crossings += 1;
        for (viewer, train) in std::mem::take(&mut self.queued) {
            let worked_ns = world.train_ns;
            let now_ns = world.now_ns.fetch_add(worked_ns, Ordering::AcqRel) + worked_ns;
            let cpu_ns = &world.engines[self.engine].cpu_ns;
            cpu_ns.fetch_add(worked_ns, Ordering::AcqRel);
            let release_ns = now_ns + world.release_ns;
            let ledger = world.ledgers.get(&viewer);
            let (errno, in_part, holds_ns) = ledger.map_or((0, false, 0), |it| {
                (it.errno, it.in_part, it.holds_until_ns)
            });
            let bytes = match (errno, in_part) {
                (0, false) => train.bytes,
                (0, true) => train.bytes.min(u32::from(train.stride)),
                _ => 0,
            };
            world.answered += u64::from(train.bytes.div_ceil(u32::from(train.stride)));
            self.answers.push_back(Completion {
                token: train.token,
                sent: Some(Sent { bytes, errno }),
                released: false,
                referred: None,
            });
            self.counters.trains += 1;
            let key = (release_ns.max(holds_ns), self.counters.trains);
            let held = Held {
                token: train.token,
                offset: train.offset,
                bytes: self.read(train.offset, train.bytes as usize),
            };
            self.held.insert(key, held);
        }
    }
}

impl Path for Device {
    fn name(&self) -> PathName {
        self.name
    }

    fn register_files(&mut self, places: u32) -> u32 {
        // Some have no place, as under a limit.
        let places = places / 2;
        self.files.resize_with(places as usize, || None);
        places
    }

    fn install_file(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let file = &mut self.files[place as usize];
        assert!(file.is_none(), "place {place} is taken");
        *file = Some(socket.try_clone_to_owned()?);
        Ok(())
    }

    fn release_file(&mut self, place: u32) {
        let file = self.files[place as usize].take();
        assert!(file.is_some(), "place {place} is free");
    }

    fn descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        let file = self.files[place as usize].as_ref();
        file.expect("a socket is there").try_clone()
    }

    fn room(&self) -> usize {
        onrush_sys::path::BATCH_TRAINS_MAX - self.queued.len()
    }

    fn queue(&mut self, train: Train) {
        assert!(self.room() > 0, "there is no room for a train");
        let viewer = self.viewer(train.to);
        let bytes = self.read(train.offset, train.bytes as usize);
        let stride = usize::from(train.stride);
        let packets = bytes.len().div_ceil(stride);
        let headers = train.headers.map(|it| {
            assert_eq!(usize::from(it.bytes), HEADER_BYTES);
            self.read(it.offset, packets * HEADER_BYTES)
        });
        {
            let mut world = locked(&self.world);
            let now_ns = world.now_ns.load(Ordering::Acquire);
            let ledger = world.ledgers.get_mut(&viewer);
            let ledger = ledger.expect("a train is of a viewer");
            ledger.take(&bytes, stride, headers.as_deref());
            let mark = now_ns ^ ledger.next.unwrap_or(0) << 32 ^ u64::from(train.bytes);
            world.trace = (world.trace ^ mark).wrapping_mul(0x0100_0000_01b3);
        }
        self.queued.push((viewer, train));
    }

    fn submit(&mut self) -> io::Result<()> {
        self.send();
        Ok(())
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.send();
        let release_ns = self.held.first_key_value().map(|(key, _)| key.0);
        let engine = &mut locked(&self.world).engines[self.engine];
        (engine.deadline_ns, engine.release_ns) = (deadline_ns, release_ns);
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.queued.len() + self.held.len()
    }

    fn completion(&mut self) -> Option<Completion> {
        if let Some(answer) = self.answers.pop_front() {
            return Some(answer);
        }
        let now_ns = locked(&self.world).now_ns.load(Ordering::Acquire);
        let first = self.held.first_entry().filter(|it| it.key().0 <= now_ns)?;
        let Held {
            token,
            offset,
            bytes,
        } = first.remove();
        assert!(
            self.read(offset, bytes.len()) == bytes,
            "memory was written while the network had it"
        );
        Some(Completion {
            token,
            sent: None,
            released: true,
            referred: None,
        })
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
