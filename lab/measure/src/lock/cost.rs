//! One round of all that is timed.

use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use onrush_lock::bare::{self, BareRing, Private};
use onrush_lock::{Budget, Cache, Keep, Kind, Manager, Segment};
use onrush_primitives::segment::shm_unlock;

use super::reliability::{Mapped, Task, Worker};
use super::{Memory, Run, Settings, StartWorker, Way};
use crate::error::ExperimentError;
use crate::random::Random;
use crate::setup::{in_turn, system};
use crate::stats::{median, to_f64};

/// Memory that the areas of the crowded measurement lie in.
const CROWD_BYTES: usize = 64 << 20;

/// The largest of them.
pub(super) const AREA_BYTES_MAX: usize = AREA_PAGES_MAX * PAGE_BYTES;
const AREA_PAGES_MAX: usize = 16;

/// What a registration that is kept pins.
pub(super) const KEPT_BYTES: usize = PAGE_BYTES;

/// Calls that one sample of the crowded measurement and of the hits is the median or mean of.
const CALLS: usize = 1001;
const HITS: usize = 100_000;
/// Pages of the measurement of areas apart, each locked twice.
const CALLS_APART: usize = 500;

/// What the ways need.
struct Tools {
    ring: BareRing,
    /// Keeps one range.
    small: Cache,
}

/// Everything once.
pub(super) fn round(
    settings: &Settings,
    repeat: u32,
    worker: Option<StartWorker<'_>>,
    runs: &mut Vec<Run>,
) -> Result<(), ExperimentError> {
    let mut tools = Tools {
        ring: BareRing::open().map_err(system("open a ring"))?,
        small: cache(1)?,
    };
    for &bytes in &settings.sizes_bytes {
        for memory in Memory::ALL {
            for way in in_turn(&Way::ALL, repeat) {
                if !memory.is_locked_by(way, worker.is_some()) {
                    continue;
                }
                let (lock_ns, unlock_ns) = cost(&mut tools, memory, way, bytes, worker)?;
                runs.push(Run::Cost {
                    memory,
                    way,
                    bytes,
                    repeat,
                    lock_ns,
                    unlock_ns,
                });
            }
        }
    }
    // With what it keeps: it would count against the same limit.
    drop(tools);
    for &areas in &settings.areas {
        crowd(areas, repeat, runs)?;
    }
    for &areas in &settings.apart {
        apart(areas, repeat, runs)?;
    }
    for &kept in &settings.kept {
        let hit_ns = hits(kept)?;
        runs.push(Run::Hit {
            kept,
            repeat,
            hit_ns,
        });
    }
    Ok(())
}

/// The medians of some calls.
fn cost(
    tools: &mut Tools,
    memory: Memory,
    way: Way,
    bytes: usize,
    worker: Option<StartWorker<'_>>,
) -> Result<(f64, f64), ExperimentError> {
    let is_first = !matches!(memory, Memory::PrivateAgain | Memory::SysvAgain);
    let calls = ((4 << 20) / bytes).clamp(3, if is_first { 33 } else { 101 });
    let elsewhere = match worker {
        Some(worker) if memory == Memory::SysvElsewhere => Some(Elsewhere::pin(bytes, worker)?),
        _ => None,
    };
    let map = || match &elsewhere {
        Some(elsewhere) => Ok(Mapped::Segment(Segment::attach_sysv(elsewhere.id)?)),
        None => memory.map(bytes),
    };
    let mut mapped = map()?;
    let mut other = map()?;
    let mut times = Vec::with_capacity(calls);
    // The first warms up.
    for call in 0..=calls {
        if is_first {
            mapped = map()?;
        } else {
            // The cache keeps one of the two, and is asked for the other.
            std::mem::swap(&mut mapped, &mut other);
        }
        let time = tools.once(way, &mapped)?;
        if call > 0 {
            times.push(time);
        }
    }
    if let Some(elsewhere) = elsewhere {
        elsewhere.worker.end()?;
    }
    Ok(medians(&times))
}

/// A segment that another process has attached and pinned.
struct Elsewhere {
    id: i32,
    worker: Worker,
    /// Goes with its last attachment.
    _segment: Segment,
}

impl Elsewhere {
    fn pin(bytes: usize, worker: StartWorker<'_>) -> Result<Self, ExperimentError> {
        let segment = Segment::sysv(bytes)?;
        let id = segment.sysv_id().expect("it is a SysV segment");
        let worker = Worker::start(worker(&format!("sysv:{id}"), Task::Hold, 0))?;
        Ok(Self {
            id,
            worker,
            _segment: segment,
        })
    }
}

impl Tools {
    /// Locks and unlocks once, and says how long each took.
    fn once(&mut self, way: Way, mapped: &Mapped) -> Result<(f64, f64), ExperimentError> {
        let (manager, bytes) = (Manager::of_process(), mapped.bytes());
        let begin = Instant::now();
        Ok(match way {
            Way::Ring => {
                self.ring
                    .register(&bytes)
                    .map_err(system("register memory"))?;
                let locked = Instant::now();
                self.ring
                    .unregister()
                    .map_err(system("unregister memory"))?;
                since(begin, locked)
            }
            Way::Mlock => {
                bare::mlock(&bytes).map_err(system("mlock"))?;
                let locked = Instant::now();
                bare::munlock(&bytes).map_err(system("munlock"))?;
                since(begin, locked)
            }
            Way::ShmLock => {
                let id = mapped.sysv_id().expect("it is a SysV segment");
                bare::shm_lock(id).map_err(system("SHM_LOCK"))?;
                let locked = Instant::now();
                shm_unlock(id).map_err(system("SHM_UNLOCK"))?;
                since(begin, locked)
            }
            Way::Pinned | Way::Resident => {
                let kind = if way == Way::Pinned {
                    Kind::Pinned
                } else {
                    Kind::Resident
                };
                let area = manager.lock(bytes, kind)?;
                let locked = Instant::now();
                drop(area);
                since(begin, locked)
            }
            Way::ResidentAndPinned => {
                let resident = manager.lock(bytes.clone(), Kind::Resident)?;
                let pinned = manager.lock(bytes, Kind::Pinned)?;
                let locked = Instant::now();
                drop((pinned, resident));
                since(begin, locked)
            }
            Way::Miss => {
                let loan = self.small.acquire(bytes)?;
                let locked = Instant::now();
                self.small.release(loan);
                since(begin, locked)
            }
        })
    }
}

/// One page among many areas.
fn crowd(areas: usize, repeat: u32, runs: &mut Vec<Run>) -> Result<(), ExperimentError> {
    let mut memory = Private::map(CROWD_BYTES).map_err(system("map memory"))?;
    memory.write(1);
    let manager = Manager::of_process();
    let mut random = Random::new(11);
    let mut range = |pages_max: usize| {
        let pages = 1 + random.index(pages_max);
        let first = random.index(CROWD_BYTES / PAGE_BYTES - pages);
        let start = memory.bytes().start + first * PAGE_BYTES;
        start..start + pages * PAGE_BYTES
    };
    for (way, kind) in [(Way::Pinned, Kind::Pinned), (Way::Resident, Kind::Resident)] {
        let held: Result<Vec<_>, _> = (0..areas)
            .map(|_| manager.lock(range(AREA_PAGES_MAX), kind))
            .collect();
        let held = held?;
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let bytes = range(1);
            let begin = Instant::now();
            let area = manager.lock(bytes, kind)?;
            let locked = Instant::now();
            drop(area);
            times.push(since(begin, locked));
        }
        drop(held);
        let (lock_ns, unlock_ns) = medians(&times);
        runs.push(Run::Many {
            areas,
            way,
            repeat,
            lock_ns,
            unlock_ns,
        });
    }
    Ok(())
}

/// One page beside so many that are pinned, none of which touches another: first when nobody has
/// used it, and then again.
fn apart(areas: usize, repeat: u32, runs: &mut Vec<Run>) -> Result<(), ExperimentError> {
    let all = areas + CALLS_APART;
    let memory = Private::map(all * 2 * PAGE_BYTES).map_err(system("map memory"))?;
    let page = |number: usize| {
        let start = memory.bytes().start + number * 2 * PAGE_BYTES;
        start..start + PAGE_BYTES
    };
    let manager = Manager::of_process();
    // Those that are measured lie among the others.
    let every = all / CALLS_APART;
    let is_measured = |number: usize| number.is_multiple_of(every) && number / every < CALLS_APART;
    let others = (0..all).filter(|&number| !is_measured(number));
    let held: Result<Vec<_>, _> = others
        .map(|number| manager.lock(page(number), Kind::Pinned))
        .collect();
    let held = held?;
    for is_first in [true, false] {
        let mut times = Vec::with_capacity(CALLS_APART);
        for number in (0..all).filter(|&number| is_measured(number)) {
            let begin = Instant::now();
            let area = manager.lock(page(number), Kind::Pinned)?;
            let locked = Instant::now();
            drop(area);
            times.push(since(begin, locked));
        }
        let (lock_ns, unlock_ns) = medians(&times);
        runs.push(Run::Apart {
            areas,
            is_first,
            repeat,
            lock_ns,
            unlock_ns,
        });
    }
    drop(held);
    Ok(())
}

/// The mean time of a hit and its return, over all that is kept in no order.
fn hits(kept: usize) -> Result<f64, ExperimentError> {
    let mut memory = Private::map(kept * 2 * PAGE_BYTES).map_err(system("map memory"))?;
    memory.write(1);
    let mut cache = cache(kept)?;
    let start = memory.bytes().start;
    let page = |entry: usize| start + entry * 2 * PAGE_BYTES..start + (entry * 2 + 1) * PAGE_BYTES;
    for entry in 0..kept {
        let loan = cache.acquire(page(entry))?;
        cache.release(loan);
    }
    let mut random = Random::new(5);
    let order: Vec<_> = (0..HITS).map(|_| page(random.index(kept))).collect();
    let misses = cache.counters().misses;
    let begin = Instant::now();
    for bytes in order {
        let loan = cache.acquire(bytes)?;
        black_box(loan.buffer());
        cache.release(loan);
    }
    let elapsed_ns = begin.elapsed().as_secs_f64() * 1e9;
    assert_eq!(
        cache.counters().misses,
        misses,
        "everything asked for is kept"
    );
    Ok(elapsed_ns / to_f64(HITS))
}

impl Memory {
    /// Whether that way is tried on it.
    pub(super) fn is_locked_by(self, way: Way, has_worker: bool) -> bool {
        let is_sysv = matches!(
            self,
            Self::SysvFirst | Self::SysvAgain | Self::SysvElsewhere
        );
        let is_there = self != Self::SysvElsewhere || has_worker;
        is_there
            && match way {
                Way::Miss => self == Self::PrivateAgain,
                Way::ShmLock => is_sysv,
                _ => true,
            }
    }

    fn map(self, bytes: usize) -> Result<Mapped, ExperimentError> {
        let mut mapped = match self {
            Self::PrivateFirst | Self::PrivateAgain => {
                Mapped::Private(Private::map(bytes).map_err(system("map memory"))?)
            }
            _ => Mapped::Segment(Segment::sysv(bytes)?),
        };
        match &mut mapped {
            Mapped::Private(private) if self == Self::PrivateAgain => private.write(1),
            Mapped::Segment(segment) if self == Self::SysvAgain => {
                drop(Manager::of_process().lock(segment.bytes(), Kind::Resident)?);
            }
            _ => {}
        }
        Ok(mapped)
    }
}

fn cache(entries_max: usize) -> Result<Cache, ExperimentError> {
    let ring: OwnedFd = bare::ring().map_err(system("open a ring"))?;
    let budget = Budget {
        keep: Keep::Watched,
        entries_max,
        bytes_max: usize::MAX,
    };
    Ok(Cache::new(ring.as_fd(), budget)?)
}

fn medians(times: &[(f64, f64)]) -> (f64, f64) {
    let of = |of: fn(&(f64, f64)) -> f64| median(times.iter().map(of)).unwrap_or(f64::NAN);
    (of(|t| t.0), of(|t| t.1))
}

/// From the beginning to the middle, and from there to now, in ns.
fn since(begin: Instant, middle: Instant) -> (f64, f64) {
    let unlock = middle.elapsed();
    let lock = middle - begin;
    (lock.as_secs_f64() * 1e9, unlock.as_secs_f64() * 1e9)
}

const PAGE_BYTES: usize = 4096;
