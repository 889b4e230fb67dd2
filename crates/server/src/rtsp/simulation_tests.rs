//! Sessions under a clock of their own: control as it is, with its connections, sessions, ports and
//! time-outs, a library and an engine, on one thread, with clients that are drawn from a seed.
//!
//! Tokio's clock stands still and goes on by hand, together with the engine's. Clients come, play,
//! seek, pause, fall silent for longer than their sessions last, come back by another connection,
//! lie, hang up, vanish with and without their ports; reads take long; the clock leaps by up to
//! twenty minutes (a machine that slept). Every fourth seed is quiet: a session lasts for a day
//! without a sign, and most of weeks goes by without a packet. Checked: each request is answered,
//! and soon; a session is known as long as its client gave a sign, and gone when that was too long
//! ago; the first packet after an answer to PLAY is the one that it told, those behind it follow
//! without a gap, and none follows the answer to PAUSE. When all clients have gone, nothing is
//! left.
//!
//! `./test simulation` runs more seeds; one that fails says the command that repeats it.

mod client_tests;

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use onrush_lock::memory::Area;
use onrush_sys::pool::Pool;
use onrush_wire::media::ts::synth::constant_rate;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet, spawn_local, yield_now};

use self::client_tests::{Client, Sums};
use super::{Content, Control, Sending, Signals};
use crate::channels::published::{PublishedChannels, Pulls};
use crate::config::Config;
use crate::data::Data;
use crate::engine::testing::{ManualEngine, Network};
use crate::experiments::Faults;
use crate::library::Library;
use crate::listening::Draining;
use crate::store::Store;
use crate::store::testing::{ManualBuilder, Reading};
use crate::testing::CHUNK_BYTES;
use crate::testing::seeds_tests::{Random, run_seeds, tell};
use crate::users::{Authorizer, UsersConfig};
use crate::watching::wishes;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const START_NS: u64 = 1_000_000 * SECOND;

/// How long a session lives without a sign of its client, where much happens.
const TIMEOUT_NS: u64 = 20 * SECOND;

/// Of so many seeds one is quiet: all that takes seconds elsewhere takes so many times as long, a
/// session's time a day.
const QUIET_EVERY: u64 = 4;
const QUIET_TIMES: u64 = 4320;

/// How long the film is, of 1 Mbit/s.
const FILM_SECONDS: u64 = 60;

/// The clock goes on by so much, while something plays and while nothing does.
const STEP_NS: u64 = 5 * MS;
const IDLE_STEP_NS: u64 = 20 * MS;

/// In a quiet seed it goes on by as much as this once nothing has played for so many steps.
const QUIET_STEP_NS: u64 = 20 * SECOND;
const QUIET_AFTER: u32 = 100;

/// Turns of all tasks in a step, at least, and at most while somebody waits for an answer: files
/// are opened by other threads, which have no clock by hand.
const TURNS: (usize, usize) = (8, 60);

/// Whoever waits for longer than this waits for such a thread, which a busy machine gives no turn.
const PATIENCE_NS: u64 = 3 * SECOND;

/// Chunks of the cache: more than all clients hold at once.
const CHUNKS: usize = 64;

const CLIENTS_MAX: usize = 12;

/// How long all clients of a seed may take, where much happens.
const SEED_NS_MAX: u64 = 4 * 3600 * SECOND;

/// How fast things happen.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// How many times as long as elsewhere everybody rests.
    times: u64,
    timeout_ns: u64,
    /// The most that the clock goes on by at once while nothing plays.
    idle_step_ns: u64,
}

impl Pace {
    fn of(seed: u64) -> Self {
        let is_quiet = seed.is_multiple_of(QUIET_EVERY);
        let times = if is_quiet { QUIET_TIMES } else { 1 };
        Self {
            times,
            timeout_ns: TIMEOUT_NS * times,
            idle_step_ns: match is_quiet {
                true => QUIET_STEP_NS,
                false => IDLE_STEP_NS,
            },
        }
    }

    fn is_quiet(self) -> bool {
        self.times > 1
    }
}

/// What the clients of a simulation share with whoever moves the clock.
struct World {
    pace: Pace,
    now_ns: Arc<AtomicU64>,
    server: SocketAddr,
    network: Arc<Network>,
    /// Clients that wait for an answer, and since when somebody does.
    waiting: Cell<usize>,
    waiting_since_ns: Cell<u64>,
    /// When the clock leapt last.
    leapt_ns: Cell<u64>,
    sums: Cell<Sums>,
}

impl World {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    fn begin_waiting(&self) {
        if self.waiting.get() == 0 {
            self.waiting_since_ns.set(self.now_ns());
        }
        self.waiting.update(|it| it + 1);
    }

    fn end_waiting(&self) {
        self.waiting.update(|it| it - 1);
    }
}

struct Simulation {
    random: Random,
    world: Rc<World>,
    control: Rc<Control>,
    serving: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    engine: ManualEngine,
    builder: ManualBuilder,
    /// Chunks that are read, and until when.
    reads: Vec<(u64, Reading)>,
    /// When the clock leaps next, and how long it has leapt in all.
    leaps_ns: u64,
    leapt_ns: u64,
    /// Steps since something played last, or somebody waited.
    idle_steps: u32,
    clients: Vec<JoinHandle<()>>,
}

impl Simulation {
    async fn new(seed: u64, folder: PathBuf) -> Self {
        let (mut random, pace) = (Random(seed), Pace::of(seed));
        let now_ns = Arc::new(AtomicU64::new(START_NS));
        let network = Arc::<Network>::default();
        let area = Area::map(CHUNKS * CHUNK_BYTES).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, CHUNK_BYTES, 1));
        let builder = ManualBuilder::new(pool, Faults::default());
        let (engines, engine) = ManualEngine::open(&now_ns, builder.shared(), &network);
        let data = Data::by_hand(engines, Store::without_builders(builder.shared()));
        let mut config = Config {
            media_root: folder,
            ..Config::default()
        };
        config.limits.session_timeout = Duration::from_nanos(pace.timeout_ns);
        let library = Library::new(&config).expect("a folder");
        let live = PublishedChannels::new(&config.channels, &config.limits);
        let users = Authorizer::open(&UsersConfig::default(), Arc::default());
        let content = Content {
            library: Some(Arc::new(library)),
            sending: Sending::by(data),
            channels: Vec::new(),
            pulls: Pulls::start(&[], &live, None),
            published: live,
            authorizer: Arc::new(users.expect("there are none")),
        };
        let control = Control::new(config, content, Arc::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let world = Rc::new(World {
            pace,
            now_ns,
            server: listener.local_addr().expect("bound"),
            network,
            waiting: Cell::default(),
            waiting_since_ns: Cell::default(),
            leapt_ns: Cell::default(),
            sums: Cell::default(),
        });
        let ((wishes, queue), (drain, draining)) = (wishes(), Draining::new());
        let (stop, signals) = Signals::new(queue, draining);
        let serving = Rc::clone(&control).run(vec![(listener, None)], signals);
        let serving = spawn_local(async move {
            serving.await;
            drop((wishes, drain));
        });
        let clients = (0..=random.index(CLIENTS_MAX)).map(|_| {
            let client = Client::new(Random(random.next()), &world);
            spawn_local(client.live())
        });
        let clients = clients.collect();
        Self {
            world,
            control,
            serving,
            stop,
            engine,
            builder,
            reads: Vec::new(),
            leaps_ns: START_NS + random.below(600) * pace.times * SECOND,
            leapt_ns: 0,
            idle_steps: 0,
            clients,
            random,
        }
    }

    /// Until all clients have gone, their sessions with them, and the server.
    async fn run(mut self) -> (Sums, u64) {
        let pace = self.world.pace;
        let lasts_ns_max = SEED_NS_MAX * pace.times;
        while !self.clients.iter().all(JoinHandle::is_finished) {
            assert!(self.world.now_ns() < START_NS + self.leapt_ns + lasts_ns_max);
            if self.world.now_ns() >= self.leaps_ns {
                self.leap().await;
            }
            self.step().await;
        }
        for client in std::mem::take(&mut self.clients) {
            client
                .await
                .expect("a client that found a fault has said so");
        }
        let until_ns = self.world.now_ns() + pace.timeout_ns + pace.idle_step_ns + 2 * SECOND;
        while self.world.now_ns() < until_ns {
            self.step().await;
        }
        let control = &self.control;
        assert_eq!(control.sessions.borrow().len(), 0, "sessions");
        assert!(control.sessions_by_address.borrow().is_empty());
        let connections = control.statistics.connections.load(Ordering::Relaxed);
        assert_eq!(connections, 0, "connections");
        let data = control.content.sending.get().expect("it sends");
        assert_eq!(data.engines().streams(), 0, "streams");
        assert_eq!(control.sum(|engine| &engine.playing), 0);
        self.stop.send(()).ok();
        for _ in 0..1000 {
            if self.serving.is_finished() {
                break;
            }
            yield_now().await;
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(self.serving.is_finished(), "the server does not stop");
        let virtual_ns = self.world.now_ns() - START_NS - self.leapt_ns;
        (self.world.sums.get(), virtual_ns)
    }

    /// Everybody does what is to be done now; then the clock goes on.
    async fn step(&mut self) {
        for turn in 0..TURNS.1 {
            if turn >= TURNS.0 && self.world.waiting.get() == 0 {
                break;
            }
            yield_now().await;
        }
        let now_ns = self.world.now_ns();
        let is_late = now_ns > self.world.waiting_since_ns.get() + PATIENCE_NS;
        if self.world.waiting.get() > 0 && is_late {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.turn_disk(now_ns);
        if self.engine.wakes_ns() <= now_ns {
            self.engine.turn();
            self.turn_disk(now_ns);
        }
        let is_read = self.reads.is_empty() && self.world.waiting.get() == 0;
        let is_idle = self.engine.wakes_ns() == u64::MAX && is_read;
        self.idle_steps = if is_idle { self.idle_steps + 1 } else { 0 };
        self.go_on(match self.idle_steps {
            0 => STEP_NS,
            1..QUIET_AFTER => IDLE_STEP_NS,
            _ => self.world.pace.idle_step_ns,
        })
        .await;
    }

    async fn leap(&mut self) {
        let leap_ns = self.random.below(1200) * SECOND;
        let rests_ns = self.random.below(1800) * self.world.pace.times * SECOND;
        self.leaps_ns = self.world.now_ns() + leap_ns + rests_ns;
        self.leapt_ns += leap_ns;
        self.go_on(leap_ns).await;
        self.world.leapt_ns.set(self.world.now_ns());
    }

    async fn go_on(&self, ns: u64) {
        self.world.now_ns.fetch_add(ns, Ordering::AcqRel);
        tokio::time::advance(Duration::from_nanos(ns)).await;
    }

    /// The disk ends reads and begins others, which take up to half a second, now and then.
    fn turn_disk(&mut self, now_ns: u64) {
        while let Some(at) = self
            .reads
            .iter()
            .position(|(done_ns, _)| *done_ns <= now_ns)
        {
            let (_, reading) = self.reads.remove(at);
            self.builder.finish(reading);
        }
        while let Some(reading) = self.builder.begin() {
            let takes_ns_max = if self.random.one_in(50) {
                500 * MS
            } else {
                3 * MS
            };
            let takes_ns = self.random.below(takes_ns_max);
            self.reads.push((now_ns + takes_ns, reading));
        }
    }
}

/// A folder with a film that does not grow.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let film = folder.path().join("film.ts");
    std::fs::write(&film, constant_rate(FILM_SECONDS * 665, 0, 40_608)).expect("8 MB of disk");
    onrush_testkit::media::age(&film).expect("it is ours");
    folder
}

/// One seed if it is named, else as many as fit the time.
#[test]
fn simulation_keeps_sessions() {
    let folder = folder();
    let (mut sums, mut virtual_ns) = (Sums::default(), 0);
    let seeds = run_seeds(|seed| {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let path = folder.path().to_owned();
        let (of_seed, ns) = runtime.block_on(
            LocalSet::new().run_until(async move { Simulation::new(seed, path).await.run().await }),
        );
        sums = sums.with(of_seed);
        virtual_ns += ns;
    });
    tell(seeds, virtual_ns, &sums);
    let is_seen = sums.played > 50 && sums.timed_out > 5 && sums.paused > 20;
    assert!(seeds == 1 || is_seen, "{sums:?}");
}
