//! An engine without a thread, and a network that takes everything at once, and never releases what
//! leaves on connections: whoever tests with them has a clock of their own, and says when the
//! engine takes its turn.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_sys::path::{Completion, Counters, Path, PathName, Sent, StreamSend, To, Train};
use onrush_sys::pool::Pool;
use onrush_sys::wake::Waker;

use super::super::clock::Clock;
use super::super::{Engine, EngineConfig, Engines, Remote};
use super::Worker;
use crate::store;

/// What has left so far, by where it was sent to: the sequence numbers of all packets.
#[derive(Debug, Default)]
pub(crate) struct Network(Mutex<HashMap<SocketAddr, Vec<u16>>>);

/// An engine whose turns are taken by hand.
pub(crate) struct ManualEngine {
    pub(super) worker: Worker,
    /// Until when it sleeps, if it does not wait for a command.
    deadline_ns: Arc<Mutex<Option<u64>>>,
}

impl Network {
    /// How many packets have left for a client.
    pub(crate) fn count(&self, to: SocketAddr) -> usize {
        self.all().get(&to).map_or(0, Vec::len)
    }

    /// The numbers of those from the one on that had so many before it.
    pub(crate) fn numbers(&self, to: SocketAddr, from: usize) -> Vec<u16> {
        let all = self.all();
        let numbers = all.get(&to).and_then(|numbers| numbers.get(from..));
        numbers.unwrap_or_default().to_vec()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SocketAddr, Vec<u16>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ManualEngine {
    /// One engine, by the clock that shows `now_ns`. It takes no time to send.
    pub(crate) fn open(
        now_ns: &Arc<AtomicU64>,
        store: &Arc<store::Shared>,
        network: &Arc<Network>,
    ) -> (Engines, Self) {
        let deadline_ns = Arc::<Mutex<Option<u64>>>::default();
        let (its_deadline, its_network) = (Arc::clone(&deadline_ns), Arc::clone(network));
        let open_path = move |name, pool: &Arc<Pool>, _: &Arc<Waker>| {
            let device = Device {
                name,
                memory: File::open("/proc/self/mem").expect("our own memory"),
                base: pool.area().base().as_ptr().addr() as u64,
                files: Vec::new(),
                answers: VecDeque::new(),
                deadline_ns: Arc::clone(&its_deadline),
                network: Arc::clone(&its_network),
                counters: Counters::default(),
            };
            Ok(Box::new(device) as Box<dyn Path>)
        };
        let config = EngineConfig {
            cores: vec![0],
            streams_max: 1024,
            path: PathName::SendmmsgGso,
            open_path: Arc::new(open_path),
            clock: Clock::by_hand(Arc::clone(now_ns), Arc::default()),
            ..EngineConfig::default()
        };
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let remote = Arc::new(Remote::new(&config, waker));
        let its_store = Arc::clone(store);
        let worker = Worker::open(&config, its_store, Arc::clone(&remote), |name, error| {
            panic!("{name} is there: {error}");
        });
        let engines = Engines {
            engines: vec![Engine {
                remote,
                thread: None,
            }],
            store: Arc::clone(store),
            ends: Arc::default(),
            burst_ns: super::nanos(config.burst),
            headers: config.headers,
        };
        let engine = Self {
            worker,
            deadline_ns,
        };
        (engines, engine)
    }

    /// When it comes back from its sleep; never, if only a command would wake it.
    pub(crate) fn wakes_ns(&self) -> u64 {
        let is_told = !self.worker.remote.commands.is_empty();
        let deadline_ns = *self
            .deadline_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match deadline_ns {
            _ if is_told => 0,
            Some(deadline_ns) => deadline_ns,
            None => u64::MAX,
        }
    }

    /// Does what is due.
    pub(crate) fn turn(&mut self) {
        assert!(self.worker.turn(), "nobody has stopped it");
    }
}

#[derive(Debug)]
struct Device {
    name: PathName,
    memory: File,
    base: u64,
    files: Vec<Option<OwnedFd>>,
    answers: VecDeque<Completion>,
    deadline_ns: Arc<Mutex<Option<u64>>>,
    network: Arc<Network>,
    counters: Counters,
}

impl Device {
    /// The sequence number of the RTP header there.
    fn number_at(&self, offset: usize) -> u16 {
        let mut number = [0; 2];
        let at = self.base + offset as u64 + 2;
        self.memory.read_exact_at(&mut number, at).expect("mapped");
        u16::from_be_bytes(number)
    }

    fn peer(&self, to: To) -> SocketAddr {
        let peer = match to {
            To::RegisteredFile(place) => {
                let file = self.files[place as usize].as_ref();
                rustix::net::getpeername(file.expect("a socket is there"))
            }
            To::Descriptor(fd) => {
                // SAFETY: a train's descriptor stays open until it was sent.
                let socket = unsafe { BorrowedFd::borrow_raw(fd) };
                rustix::net::getpeername(socket)
            }
        };
        let peer = peer.expect("it was asked").expect("it is connected");
        SocketAddr::try_from(peer).expect("to an address of IP")
    }
}

impl Path for Device {
    fn name(&self) -> PathName {
        self.name
    }

    fn register_files(&mut self, places: u32) -> u32 {
        self.files.resize_with(places as usize, || None);
        places
    }

    fn install_file(&mut self, place: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.files[place as usize] = Some(socket.try_clone_to_owned()?);
        Ok(())
    }

    fn release_file(&mut self, place: u32) {
        self.files[place as usize] = None;
    }

    fn descriptor(&mut self, place: u32) -> io::Result<OwnedFd> {
        let file = self.files[place as usize].as_ref();
        file.expect("a socket is there")
            .as_fd()
            .try_clone_to_owned()
    }

    fn room(&self) -> usize {
        onrush_sys::path::BATCH_TRAINS_MAX
    }

    fn queue(&mut self, train: Train) {
        let packets = train.bytes.div_ceil(u32::from(train.stride)) as usize;
        let number = |packet: usize| match train.headers {
            Some(headers) => self.number_at(headers.offset + packet * usize::from(headers.bytes)),
            None => self.number_at(train.offset + packet * usize::from(train.stride)),
        };
        let numbers: Vec<_> = (0..packets).map(number).collect();
        let peer = self.peer(train.to);
        self.network.all().entry(peer).or_default().extend(numbers);
        self.answers.push_back(Completion {
            token: train.token,
            sent: Some(Sent {
                bytes: train.bytes,
                errno: 0,
            }),
            released: true,
            referred: None,
        });
        self.counters.trains += 1;
    }

    fn sends_streams(&self) -> bool {
        true
    }

    /// Whoever is at the other end acknowledges nothing.
    fn queue_stream(&mut self, send: StreamSend) {
        self.answers.push_back(Completion {
            token: send.token,
            sent: Some(Sent {
                bytes: u32::MAX,
                errno: 0,
            }),
            released: false,
            referred: None,
        });
    }

    fn submit(&mut self) -> io::Result<()> {
        self.counters.crossings += 1;
        Ok(())
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        let mut deadline = self
            .deadline_ns
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *deadline = deadline_ns;
        drop(deadline);
        self.submit()
    }

    fn in_flight(&self) -> usize {
        self.answers.len()
    }

    fn completion(&mut self) -> Option<Completion> {
        self.answers.pop_front()
    }

    fn counters(&self) -> Counters {
        self.counters
    }
}
