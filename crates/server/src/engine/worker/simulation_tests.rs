//! The engines under a clock of their own: workers, store, admission, shedding and moves as they
//! are, on one thread, with a disk, a network and viewers that are drawn from a seed.
//!
//! Nothing waits for real time: a step goes to the next moment at which anything happens. Viewers
//! come, play, seek, pause, ask for what there is not, move, vanish and go. Reads take from
//! microseconds to many seconds, networks refuse, take a part, or keep memory; processors are taken
//! away, the clock leaps by up to an hour (a machine that slept), a film's disk fails. Checked at
//! each step: every packet is the next of its viewer's film, byte for byte and number for number,
//! none too early, none too many at once; memory stays as it is while the network has it; all
//! accounts agree. When the trouble has ended all who play are on time; when all have gone, nothing
//! is left.
//!
//! A seed that fails says the command that repeats it. `./test simulation` runs for a minute,
//! `./test simulation --hours 8` for a night.

mod device_tests;
mod viewer_tests;

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker as TaskWaker};

use onrush_lock::memory::Area;
use onrush_sys::path::{Path, PathName};
use onrush_sys::pool::Pool;
use onrush_sys::wake::Waker;
use onrush_wire::media::ts::synth::constant_rate;

use super::super::clock::Clock;
use super::super::stream_end::Ended;
use super::super::{Engine, EngineConfig, Engines, Remote};
use super::{Worker, signed};
use crate::experiments::Faults;
use crate::store::testing::{ManualBuilder, Reading};
use crate::testing::seeds_tests::{Random, run_seed, run_seeds, tell};
use crate::testing::{CHUNK_BYTES, TestSource};
use device_tests::{Device, EngineSleep, FilmImages, World, locked};
use viewer_tests::Viewer;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const START_NS: u64 = 1_000_000 * SECOND;
const TICK_NS: u64 = 5 * MS;

/// A picture of the films lasts so long, which is more than a burst.
const PICTURE_NS: u64 = 40 * MS;

/// How long the trouble of one seed lasts.
const TROUBLE_NS: u64 = 40 * SECOND;

/// Of so many seeds one has a crowd.
const CROWD_EVERY: u64 = 6;

/// How long the film of a crowd is, of 1 Mbit/s.
const FILM_SECONDS: u64 = 300;

/// How long an engine may leave streams out when it could send them all again: after trials that
/// were too soon it waits for longer.
const LEFT_OUT_NS_MAX: u64 = 200 * SECOND;

/// Reads at the same time, as there are builders for one disk.
const READS: usize = crate::store::DEVICE_BUILDERS_MAX;

/// Steps at one moment: more, and it does not come to rest.
const STEPS_AT_ONCE_MAX: u32 = 2000;

/// How a film is made anew for each seed, and what its packets are.
struct Kind {
    make: fn() -> TestSource,
    images: Arc<FilmImages>,
}

/// A film of one seed.
struct Film {
    test: TestSource,
    images: Arc<FilmImages>,
    /// Its disk may fail.
    fails: bool,
}

fn kinds() -> Vec<Kind> {
    let films: [fn() -> TestSource; 3] = [
        || TestSource::lasting(6000),
        || TestSource::film(300),
        || TestSource::of(constant_rate(FILM_SECONDS * 665, 0, 40_608)),
    ];
    let kind = |make: fn() -> TestSource| {
        let test = make();
        let (images, mut bursts) = (test.images(), Vec::new());
        let plan = test.source.plan();
        plan.bursts(0..plan.rtp_packets(), &mut bursts);
        let images = FilmImages {
            images,
            sequence: test.source.origin().sequence,
            bursts: bursts.iter().map(|burst| burst.first).collect(),
        };
        Kind {
            make,
            images: Arc::new(images),
        }
    };
    films.map(kind).into()
}

/// What a seed came to.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Outcome {
    steps: u64,
    /// How long the clock went, without its leaps.
    virtual_ns: u64,
    packets: u64,
    opened: u64,
    refused: u64,
    ended: u64,
    moved: u64,
    shed: u64,
    /// Over all that was sent, and when.
    trace: u64,
}

struct Simulation {
    random: Random,
    now_ns: Arc<AtomicU64>,
    world: Arc<Mutex<World>>,
    store: ManualBuilder,
    reads: Vec<(u64, Reading)>,
    read_ns: (u64, u64),
    engines: Arc<Engines>,
    workers: Vec<Worker>,
    /// Until then a processor is taken away.
    stalled_until_ns: Vec<u64>,
    films: Vec<Film>,
    viewers: Vec<Viewer>,
    ends: BTreeSet<u64>,
    trouble_ns: u64,
    leapt_ns: u64,
    /// Two hundred watch one long film by one engine, which is too slow at times.
    is_crowd: bool,
    may_demote: bool,
    chunks_at_rest: usize,
    steps: u64,
    opened: u64,
    refused: u64,
    ended: u64,
    moved: u64,
}

impl Simulation {
    fn new(seed: u64, kinds: &[Kind]) -> Self {
        let mut random = Random(seed);
        let is_crowd = seed.is_multiple_of(CROWD_EVERY);
        let films = kinds.iter().map(|kind| Film {
            test: (kind.make)(),
            images: Arc::clone(&kind.images),
            fails: false,
        });
        let (films, now_ns) = (films.collect::<Vec<_>>(), Arc::new(START_NS.into()));
        let count = if is_crowd { 1 } else { 1 + random.index(2) };
        let engines = vec![EngineSleep::default(); count];
        let engines = engines.into_iter().map(|_| EngineSleep::default());
        let world = Arc::new(Mutex::new(World {
            now_ns: Arc::clone(&now_ns),
            engines: engines.collect(),
            ..World::default()
        }));
        let chunks = if is_crowd {
            700
        } else {
            24 + random.index(180)
        };
        let area = Area::map(chunks * CHUNK_BYTES).expect("a little memory");
        let pool = Arc::new(Pool::with_slabs(area, CHUNK_BYTES, count));
        let store = ManualBuilder::new(pool, Faults::default());
        let (engines, workers) = open_engines(count, &store, &world);
        let mut simulation = Self {
            chunks_at_rest: store.shared().pool().chunks_in_use(),
            now_ns,
            world,
            store,
            reads: Vec::new(),
            read_ns: (MS / 10, 3 * MS),
            engines: Arc::new(engines),
            stalled_until_ns: vec![0; workers.len()],
            workers,
            films,
            viewers: Vec::new(),
            ends: BTreeSet::new(),
            trouble_ns: START_NS + SECOND,
            leapt_ns: 0,
            is_crowd,
            may_demote: random.one_in(6),
            steps: 0,
            opened: 0,
            refused: 0,
            ended: 0,
            moved: 0,
            random,
        };
        let viewers = if is_crowd {
            220
        } else {
            1 + simulation.random.below(30)
        };
        for owner in 1..=viewers {
            let random = Random(simulation.random.next());
            let viewer = Viewer::new(random, owner, START_NS);
            simulation.viewers.push(viewer);
        }
        simulation
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    /// Trouble, then none, then nobody.
    fn run(mut self) -> Outcome {
        self.run_until(START_NS + TROUBLE_NS, true);
        self.quieten();
        self.run_until(self.now_ns() + 4 * SECOND, false);
        let give_up_ns = self.now_ns() + LEFT_OUT_NS_MAX;
        let shed = |it: &Self| {
            it.engines
                .counters()
                .any(|it| it.shed.load(Ordering::Relaxed) > 0)
        };
        while shed(&self) {
            assert!(self.now_ns() < give_up_ns, "somebody stays left out");
            self.run_until(self.now_ns() + SECOND, false);
        }
        self.all_are_on_time();
        let give_up_ns = self.now_ns() + 20 * SECOND;
        while !self.all_leave() {
            assert!(self.now_ns() < give_up_ns, "somebody cannot leave");
            self.run_until(self.now_ns() + 10 * MS, false);
        }
        self.run_until(self.now_ns() + 3 * SECOND, false);
        self.nothing_is_left();
        let world = locked(&self.world);
        let counters = self.engines.counters();
        Outcome {
            steps: self.steps,
            virtual_ns: self.now_ns() - START_NS - self.leapt_ns,
            packets: world.answered,
            opened: self.opened,
            refused: self.refused,
            ended: self.ended,
            moved: self.moved,
            shed: counters.map(|it| it.sheds.load(Ordering::Relaxed)).sum(),
            trace: world.trace,
        }
    }

    fn run_until(&mut self, until_ns: u64, is_troubled: bool) {
        let (mut last_ns, mut at_once) = (0, 0);
        loop {
            let now_ns = self.now_ns();
            at_once = if now_ns == last_ns { at_once + 1 } else { 0 };
            assert!(at_once < STEPS_AT_ONCE_MAX, "it does not come to rest");
            last_ns = now_ns;
            let next_ns = self.next_ns(is_troubled).max(now_ns);
            if next_ns > until_ns {
                self.now_ns.fetch_max(until_ns, Ordering::AcqRel);
                return;
            }
            self.now_ns.store(next_ns, Ordering::Release);
            self.steps += 1;
            if is_troubled && self.trouble_ns <= next_ns {
                self.make_trouble();
            }
            self.turn_disk();
            for at in 0..self.viewers.len() {
                if self.viewers[at].acts_ns <= next_ns {
                    self.act(at);
                }
            }
            self.poll_tasks();
            for engine in 0..self.workers.len() {
                if self.wakes_ns(engine) <= next_ns {
                    self.turn_engine(engine);
                }
            }
            self.poll_tasks();
            self.hear_ends();
        }
    }

    /// When something happens next.
    fn next_ns(&self, is_troubled: bool) -> u64 {
        let trouble_ns = if is_troubled {
            self.trouble_ns
        } else {
            u64::MAX
        };
        let reads_ns = self.reads.iter().map(|read| read.0);
        let viewers_ns = self.viewers.iter().map(|viewer| viewer.acts_ns);
        let engines_ns = (0..self.workers.len()).map(|engine| self.wakes_ns(engine));
        let all_ns = reads_ns.chain(viewers_ns).chain(engines_ns);
        all_ns.fold(trouble_ns, u64::min)
    }

    /// When an engine comes back from its sleep.
    fn wakes_ns(&self, engine: usize) -> u64 {
        let sleep = &locked(&self.world).engines[engine];
        let is_told = !self.workers[engine].remote.commands.is_empty();
        let wakes_ns = match sleep.deadline_ns {
            Some(deadline_ns) => deadline_ns,
            None if is_told => 0,
            None => sleep.release_ns.unwrap_or(u64::MAX),
        };
        wakes_ns.max(self.stalled_until_ns[engine])
    }

    /// The disk begins and ends reads.
    fn turn_disk(&mut self) {
        let now_ns = self.now_ns();
        while let Some(at) = self.reads.iter().position(|read| read.0 <= now_ns) {
            let (_, reading) = self.reads.remove(at);
            self.store.finish(reading);
        }
        while self.reads.len() < READS
            && let Some(reading) = self.store.begin()
        {
            let (least_ns, most_ns) = self.read_ns;
            let takes_ns = least_ns + self.random.below(most_ns - least_ns + 1);
            self.reads.push((now_ns + takes_ns, reading));
        }
    }

    fn turn_engine(&mut self, engine: usize) {
        self.tell_ledgers(engine);
        // What the kernel has said while it slept.
        self.workers[engine].hand_over(|path| path.submit());
        let now_ns = self.now_ns();
        let worker = &mut self.workers[engine];
        let joins = worker.joins_until_ns > now_ns;
        assert!(worker.turn(), "nobody has stopped it");
        let joins = joins || worker.joins_until_ns > now_ns;
        self.check_engine(engine, now_ns, joins);
        self.turn_disk();
    }

    /// What must hold between two turns.
    fn check_engine(&mut self, engine: usize, turn_ns: u64, joins: bool) {
        let world = Arc::clone(&self.world);
        let mut world = locked(&world);
        let worker = &mut self.workers[engine];
        let shed: BTreeSet<_> = worker.streams.playing(true).collect();
        let sent: BTreeSet<_> = worker.streams.playing(false).collect();
        let work = |numbers: &BTreeSet<u32>| -> u64 {
            let streams = numbers.iter().filter_map(|&it| worker.streams.get(it));
            streams.map(|stream| stream.demand.work()).sum()
        };
        assert_eq!(worker.streams.work_sent(), work(&sent), "work sent");
        assert_eq!(worker.streams.work_left_out(), work(&shed), "work left out");
        let shared = &worker.remote.shared;
        let playing = shared.playing.load(Ordering::Relaxed);
        assert_eq!(playing, (shed.len() + sent.len()) as u64, "who plays");
        assert_eq!(shared.shed.load(Ordering::Relaxed), shed.len() as u64);
        let is_idle = playing == 0;
        assert!(is_idle || worker.streams.next_ns().is_some(), "no timer");
        let mut trains = 0;
        for (number, stream) in worker.streams.iter_mut() {
            trains += u64::from(stream.trains);
            let Some(socket) = self
                .viewers
                .iter()
                .find_map(|it| it.socket_of(&stream.shared))
            else {
                continue;
            };
            let Some(ledger) = world.ledgers.get_mut(&socket) else {
                continue;
            };
            ledger.may_skip |= shed.contains(&number);
            let Some((first, last)) = ledger.turn.take() else {
                continue;
            };
            let plan = stream.shared.source.plan();
            let ahead_ns = stream.line().due_ns(plan.due_ns(last)) - signed(turn_ns);
            let joined_ns = if joins { 2 * PICTURE_NS } else { 0 };
            let ahead_ns_max = signed(TICK_NS + PICTURE_NS + joined_ns);
            assert!(
                ahead_ns <= ahead_ns_max,
                "{last} leaves {ahead_ns} ns early"
            );
            let media_ns = plan.due_ns(last) - plan.due_ns(first);
            assert!(media_ns <= 5 * PICTURE_NS, "{media_ns} ns of media at once");
        }
        assert_eq!(trains, worker.transmitter.in_flight() as u64, "in flight");
    }

    /// Who has ended, as control hears it.
    fn hear_ends(&mut self) {
        let mut context = Context::from_waker(TaskWaker::noop());
        let mut missed = false;
        while let Poll::Ready(ended) = pin!(self.engines.ends().ended()).poll(&mut context) {
            match ended {
                Ended::Of(owner) => {
                    self.ends.insert(owner);
                }
                Ended::Many => missed = true,
            }
        }
        if missed {
            let owners = self.viewers.iter().map(|viewer| viewer.owner);
            self.ends.extend(owners);
        }
    }

    fn make_trouble(&mut self) {
        let now_ns = self.now_ns();
        let random = &mut self.random;
        let least_ms = if self.is_crowd { 3000 } else { 200 };
        self.trouble_ns = now_ns + (least_ms + random.below(4000)) * MS;
        self.read_ns = match random.below(6) {
            0 => (50 * MS, 400 * MS),
            1 => (SECOND, 20 * SECOND),
            _ => (MS / 10, 3 * MS),
        };
        let mut world = locked(&self.world);
        world.release_ns = random.below(2 * MS);
        world.train_ns = match random.below(4) {
            // Half of what a crowd asks for.
            0..3 if self.is_crowd => 200_000,
            2 => 50_000,
            _ => 1000,
        };
        drop(world);
        match random.below(20) {
            0..5 => {
                let engine = random.index(self.workers.len());
                self.stalled_until_ns[engine] = now_ns + random.below(3000) * MS;
            }
            5 => {
                let leap_ns = random.below(3600) * SECOND;
                self.now_ns.fetch_add(leap_ns, Ordering::AcqRel);
                self.leapt_ns += leap_ns;
            }
            6 => {
                let at = random.index(self.films.len());
                let film = &mut self.films[at];
                film.fails = true;
                let mut trouble = film.test.backing.trouble.lock().expect("no panic");
                *trouble = Some("its disk fails".to_owned());
            }
            _ => {}
        }
    }

    /// All works again.
    fn quieten(&mut self) {
        let now_ns = self.now_ns();
        self.read_ns = (MS / 10, MS);
        for (done_ns, _) in &mut self.reads {
            *done_ns = (*done_ns).min(now_ns + MS);
        }
        self.stalled_until_ns.fill(0);
        for viewer in &mut self.viewers {
            viewer.acts_ns = u64::MAX;
        }
        let mut world = locked(&self.world);
        (world.train_ns, world.release_ns) = (0, MS);
        for ledger in world.ledgers.values_mut() {
            (ledger.errno, ledger.in_part, ledger.holds_until_ns) = (0, false, 0);
        }
    }

    /// Whoever plays is where it is to be, unless it is left out or has its second chunk to wait
    /// for.
    fn all_are_on_time(&mut self) {
        let now_ns = signed(self.now_ns());
        let pool = self.store.shared().pool();
        let has_room = pool.chunks_in_use() + self.viewers.len() < pool.chunks();
        for worker in &mut self.workers {
            for (number, stream) in worker.streams.iter_mut() {
                if !stream.playing || stream.is_shed || !has_room || stream.trains > 60 {
                    continue;
                }
                let plan = stream.shared.source.plan();
                let next = stream.reader.next_packet();
                if next >= plan.rtp_packets().min(stream.reader.stop_before()) {
                    continue;
                }
                let late_ns = now_ns - stream.due_ns(plan.due_ns(next));
                assert!(late_ns <= 25_000_000, "{number} is {late_ns} ns late");
            }
        }
        for at in 0..self.viewers.len() {
            self.look_at_end(at);
        }
    }

    /// All has been given back, and what was counted is what was sent.
    fn nothing_is_left(&self) {
        assert_eq!(self.engines.streams(), 0, "streams");
        let in_use = self.store.shared().pool().chunks_in_use();
        assert_eq!(in_use, self.chunks_at_rest, "chunks in use");
        let mut packets = 0;
        for (worker, counted) in self.workers.iter().zip(self.engines.counters()) {
            let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            assert_eq!(counted.admission.work(), 0, "work promised");
            assert_eq!(worker.transmitter.in_flight(), 0, "trains in flight");
            assert_eq!([&counted.playing, &counted.shed].map(count), [0, 0]);
            assert_eq!(worker.streams.work_sent(), 0);
            assert_eq!(worker.streams.work_left_out(), 0);
            packets += count(&counted.packets) + count(&counted.packets_refused);
        }
        assert_eq!(packets, locked(&self.world).answered, "packets counted");
    }
}

fn open_engines(
    count: usize,
    store: &ManualBuilder,
    world: &Arc<Mutex<World>>,
) -> (Engines, Vec<Worker>) {
    let (mut engines, mut workers) = (Vec::new(), Vec::new());
    let mut burst_ns = 0;
    for engine in 0..count {
        let its_world = Arc::clone(world);
        let open_path = move |name, pool: &Arc<Pool>, _: &Arc<Waker>| {
            Ok(Box::new(Device::new(name, engine, &its_world, pool)) as Box<dyn Path>)
        };
        let (now_ns, cpu_ns) = {
            let world = locked(world);
            let cpu_ns = Arc::clone(&world.engines[engine].cpu_ns);
            (Arc::clone(&world.now_ns), cpu_ns)
        };
        let config = EngineConfig {
            cores: vec![engine],
            streams_max: 256,
            path: PathName::SendmmsgGso,
            open_path: Arc::new(open_path),
            clock: Clock::by_hand(now_ns, cpu_ns),
            trains_per_stream_max: 64,
            ..EngineConfig::default()
        };
        burst_ns = super::nanos(config.burst);
        let waker = Arc::new(Waker::new().expect("a descriptor"));
        let remote = Arc::new(Remote::new(&config, waker));
        let shared = Arc::clone(store.shared());
        let worker = Worker::open(&config, shared, Arc::clone(&remote), |name, error| {
            panic!("{name} is there: {error}");
        });
        workers.push(worker);
        engines.push(Engine {
            remote,
            thread: None,
        });
    }
    let engines = Engines {
        engines,
        store: Arc::clone(store.shared()),
        ends: Arc::default(),
        burst_ns,
        headers: super::RtpHeaders::default(),
    };
    (engines, workers)
}

/// One seed if it is named, else as many as fit the time.
#[test]
fn simulation_keeps_all_that_is_promised() {
    let (kinds, mut sum) = (kinds(), Outcome::default());
    let seeds = run_seeds(|seed| sum = sum.with(Simulation::new(seed, &kinds).run()));
    tell(seeds, sum.virtual_ns, &sum);
    assert!(
        seeds == 1 || sum.packets > 10_000 && sum.opened > 50,
        "{sum:?}"
    );
}

#[test]
fn a_simulation_is_the_same_again() {
    let kinds = kinds();
    let [first, again, other] =
        [3, 3, 4].map(|seed| run_seed(seed, |seed| Simulation::new(seed, &kinds).run()));
    assert_eq!(first, again);
    assert_ne!(first.trace, other.trace);
}

impl Outcome {
    fn with(self, other: Self) -> Self {
        Self {
            steps: self.steps + other.steps,
            virtual_ns: self.virtual_ns + other.virtual_ns,
            packets: self.packets + other.packets,
            opened: self.opened + other.opened,
            refused: self.refused + other.refused,
            ended: self.ended + other.ended,
            moved: self.moved + other.moved,
            shed: self.shed + other.shed,
            trace: self.trace ^ other.trace,
        }
    }
}
