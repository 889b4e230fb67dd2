//! What caches of registrations cost by themselves, ours beside UCX's, and what they notice.
//!
//! Nothing is sent here: memory is asked for and given back. All of them register buffers with a
//! ring, by the same call, so that what differs is how a registration is found again, how a cache
//! hears that memory is not what it was, and what that costs whoever unmaps it. UCX's cache
//! (`ucs_rcache_get`) is asked by a program in C that is compiled when the experiment begins; it
//! exchanges functions of libc while it lives, so that it is a process of its own. libfabric has a
//! cache, too, but shows it to its providers alone, of which those that pin memory need a device.

mod report;
mod ucx;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use onrush_lock::bare::{self, Private};
use onrush_lock::{Budget, Cache, Keep, Sealed};
use onrush_primitives::named;
use onrush_primitives::remap::Change;
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::random::Random;
use crate::setup::{in_turn, on_core, system, two_cores};
use crate::stats::{ratio, to_f64};
pub use report::report;
use ucx::Ucx;

/// Its name in files.
pub const NAME: &str = "lock-caches";

/// What is measured.
pub type CachesRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How much memory is asked for at once.
    pub sizes_bytes: Vec<usize>,
    /// How often the same is, before it is unmapped.
    pub uses: Vec<u32>,
    /// Requests of a sample, about.
    pub requests: u32,
    /// Bytes that a sample maps, unless that would be less than once.
    pub mapped_bytes_max: usize,
    /// Registrations that are kept while one of them is looked for.
    pub kept: Vec<u32>,
    /// How often one is.
    pub hits: u32,
    /// How often everything has its turn.
    pub repeats: u32,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

named! {
    /// Who keeps registrations.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Keeper {
        /// Nobody: memory is registered each time.
        Nobody = "nobody",
        /// Ours, of memory that it watches.
        Watched = "watched cache",
        /// Ours, of memory that nobody can change.
        Sealed = "sealed cache",
        /// UCX's, of memory whose changes libc tells.
        Ucx = "UCX's cache",
    }
}

/// One sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
pub enum Run {
    /// Memory that is asked for and given back, again and again, and then unmapped.
    Use {
        /// By whom.
        keeper: Keeper,
        /// How much memory.
        bytes: usize,
        /// How often before it is unmapped.
        uses: u32,
        /// Which repeat, from 0. What has the same was measured turn about.
        repeat: u32,
        /// Time to ask for it and give it back, in ns.
        use_ns: f64,
        /// Time to unmap it, in ns; 0 where it is not unmapped.
        unmap_ns: f64,
        /// Registrations for each mapping.
        registrations: f64,
    },
    /// Memory that is kept, and asked for in no order.
    Hit {
        /// By whom.
        keeper: Keeper,
        /// How many pieces are kept.
        kept: u32,
        /// Which repeat, from 0.
        repeat: u32,
        /// Time of a hit and its return, in ns.
        hit_ns: f64,
    },
    /// Memory that is kept, and whose pages are exchanged.
    Change {
        /// By whom.
        keeper: Keeper,
        /// How.
        how: String,
        /// Whether the old registration is given out afterwards.
        is_stale: bool,
    },
}

impl Settings {
    /// All of it: some minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: (3..=12).map(|shift| 1 << (2 * shift)).collect(),
            uses: vec![1, 10, 100, 1000],
            requests: 2000,
            mapped_bytes_max: 1 << 30,
            kept: vec![10, 100, 1000, 10_000],
            hits: 200_000,
            repeats: 7,
            left_out: Vec::new(),
        }
    }

    /// Few sizes and uses: less than a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes_bytes: vec![64, 4 << 10, 64 << 10, 1 << 20],
            uses: vec![1, 10, 100],
            requests: 500,
            mapped_bytes_max: 128 << 20,
            kept: vec![10, 10_000],
            repeats: 3,
            ..Self::full()
        }
    }

    /// Mappings of a sample.
    fn messages(&self, bytes: usize, uses: u32) -> u32 {
        let most = u32::try_from(self.mapped_bytes_max / bytes.max(1)).unwrap_or(u32::MAX);
        (self.requests / uses).min(most).max(1)
    }
}

/// Carries it out. `version` and `command` go into the record; `progress` hears how much of the
/// whole is done. Without UCX's headers the record says that it was left out.
///
/// # Errors
///
/// If it could not run.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64) + Send,
) -> Result<CachesRecord, ExperimentError> {
    let environment = Environment::here(version, command);
    let mut settings = settings.clone();
    let ucx = match Ucx::start()? {
        Ok(ucx) => Some(ucx),
        Err(why) => {
            settings.left_out.push(why);
            None
        }
    };
    let mut record = Record::new(NAME, environment, settings.clone());
    let (_, core) = two_cores("the caches")?;
    let mut bench = Bench {
        settings: &settings,
        ucx,
    };
    let runs = &mut record.runs;
    on_core(core, || bench.run_all(core, runs, &mut progress))?;
    Ok(record)
}

struct Bench<'a> {
    settings: &'a Settings,
    ucx: Option<Ucx>,
}

impl Bench<'_> {
    fn run_all(
        &mut self,
        core: usize,
        runs: &mut Vec<Run>,
        progress: &mut impl FnMut(f64),
    ) -> Result<(), ExperimentError> {
        let settings = self.settings;
        if let Some(ucx) = &self.ucx {
            ucx.pin_to(core)?;
        }
        let has_ucx = self.ucx.is_some();
        let keepers = Keeper::ALL.into_iter();
        let keepers: Vec<_> = keepers
            .filter(|&keeper| keeper != Keeper::Ucx || has_ucx)
            .collect();
        for repeat in 0..settings.repeats {
            for &bytes in &settings.sizes_bytes {
                for &uses in &settings.uses {
                    for keeper in in_turn(&keepers, repeat) {
                        runs.push(self.uses(keeper, bytes, uses, repeat)?);
                    }
                }
            }
            for &kept in &settings.kept {
                for keeper in in_turn(&keepers, repeat) {
                    runs.extend(self.hits(keeper, kept, repeat)?);
                }
            }
            progress(ratio(u64::from(repeat) + 1, settings.repeats.into()));
        }
        for keeper in keepers {
            for change in Change::ALL {
                runs.extend(self.change(keeper, change)?);
            }
        }
        Ok(())
    }

    fn uses(
        &mut self,
        keeper: Keeper,
        bytes: usize,
        uses: u32,
        repeat: u32,
    ) -> Result<Run, ExperimentError> {
        let messages = self.settings.messages(bytes, uses);
        let (use_ns, unmap_ns, registrations) = match (keeper, &mut self.ucx) {
            (Keeper::Ucx, Some(ucx)) => ucx.uses(bytes, uses, messages)?,
            _ => uses_of_ours(keeper, bytes, uses, messages)?,
        };
        Ok(Run::Use {
            keeper,
            bytes,
            uses,
            repeat,
            use_ns,
            unmap_ns,
            registrations: ratio(registrations, messages.into()),
        })
    }

    /// Who keeps nothing has none.
    fn hits(
        &mut self,
        keeper: Keeper,
        kept: u32,
        repeat: u32,
    ) -> Result<Option<Run>, ExperimentError> {
        let hit_ns = match (keeper, &mut self.ucx) {
            // Sealed memory is found as watched memory is, and each piece stays for ever.
            (Keeper::Nobody | Keeper::Sealed, _) => return Ok(None),
            (Keeper::Ucx, Some(ucx)) => ucx.hits(kept, self.settings.hits)?,
            _ => hits_of_ours(kept, self.settings.hits)?,
        };
        Ok(Some(Run::Hit {
            keeper,
            kept,
            repeat,
            hit_ns,
        }))
    }

    /// Sealed memory cannot be changed.
    fn change(&mut self, keeper: Keeper, change: Change) -> Result<Option<Run>, ExperimentError> {
        let is_stale = match (keeper, &mut self.ucx) {
            (Keeper::Nobody | Keeper::Sealed, _) => return Ok(None),
            (Keeper::Ucx, Some(ucx)) => ucx.is_stale_after(change)?,
            _ => is_ours_stale_after(change)?,
        };
        Ok(Some(Run::Change {
            keeper,
            how: change.name().to_owned(),
            is_stale,
        }))
    }
}

/// A mapping that is asked for.
enum Message {
    Private(Private),
    Sealed(Sealed),
}

impl Message {
    fn map(keeper: Keeper, bytes: usize) -> Result<Self, ExperimentError> {
        if keeper == Keeper::Sealed {
            let mut sealed = Sealed::map(bytes)?;
            sealed.fill(0x47);
            return Ok(Self::Sealed(sealed));
        }
        let mut private = Private::map(bytes).map_err(system("map memory"))?;
        private.write(0x47);
        Ok(Self::Private(private))
    }

    fn start(&self) -> usize {
        match self {
            Self::Private(private) => private.bytes().start,
            Self::Sealed(sealed) => sealed.bytes().start,
        }
    }
}

fn cache(keeper: Keeper, entries_max: usize) -> Result<Cache, ExperimentError> {
    let ring = bare::ring().map_err(system("open a ring"))?;
    let budget = Budget {
        keep: match keeper {
            Keeper::Watched => Keep::Watched,
            // Private memory is not kept by it.
            _ => Keep::Sealed,
        },
        entries_max,
        bytes_max: BYTES_MAX,
    };
    Ok(Cache::new(ring.as_fd(), budget)?)
}

/// Times of a use and of unmapping, in ns, and registrations.
fn uses_of_ours(
    keeper: Keeper,
    bytes: usize,
    uses: u32,
    messages: u32,
) -> Result<(f64, f64, u64), ExperimentError> {
    let mut cache = cache(keeper, ENTRIES_MAX)?;
    let (mut using, mut unmapping, mut before) = (Duration::ZERO, Duration::ZERO, 0);
    // The first warms up.
    for number in 0..=messages {
        let message = Message::map(keeper, bytes)?;
        let asked = message.start()..message.start() + bytes;
        let begin = Instant::now();
        for _ in 0..uses {
            let loan = cache.acquire(asked.clone())?;
            cache.release(loan);
        }
        let used = Instant::now();
        let is_unmapped = matches!(message, Message::Private(_));
        drop(message);
        let unmapped = used.elapsed();
        if number == 0 {
            before = cache.counters().misses;
            continue;
        }
        using += used - begin;
        unmapping += if is_unmapped {
            unmapped
        } else {
            Duration::ZERO
        };
    }
    let of = |time: Duration, count: u64| time.as_secs_f64() * 1e9 / to_f64(count);
    let requests = u64::from(messages) * u64::from(uses);
    let registrations = cache.counters().misses - before;
    Ok((
        of(using, requests),
        of(unmapping, messages.into()),
        registrations,
    ))
}

/// The time of a hit and its return, in ns.
fn hits_of_ours(kept: u32, hits: u32) -> Result<f64, ExperimentError> {
    let kept = kept as usize;
    let mut memory = Private::map(kept * 2 * PAGE_BYTES).map_err(system("map memory"))?;
    memory.write(1);
    let mut cache = cache(Keeper::Watched, kept)?;
    let start = memory.bytes().start;
    let page = |entry: usize| start + entry * 2 * PAGE_BYTES..start + (entry * 2 + 1) * PAGE_BYTES;
    for entry in 0..kept {
        let loan = cache.acquire(page(entry))?;
        cache.release(loan);
    }
    let mut random = Random::new(5);
    let order: Vec<_> = (0..hits).map(|_| page(random.index(kept))).collect();
    let misses = cache.counters().misses;
    let begin = Instant::now();
    for bytes in order {
        let loan = cache.acquire(bytes)?;
        cache.release(loan);
    }
    let elapsed = begin.elapsed();
    only_hits(cache.counters().misses - misses)?;
    Ok(elapsed.as_secs_f64() * 1e9 / f64::from(hits))
}

fn only_hits(registrations: u64) -> Result<(), ExperimentError> {
    match registrations {
        0 => Ok(()),
        _ => Err(ExperimentError::subject(
            "what was kept had to be registered anew",
        )),
    }
}

fn is_ours_stale_after(change: Change) -> Result<bool, ExperimentError> {
    let mut memory = Private::map(PAGE_BYTES).map_err(system("map memory"))?;
    memory.write(1);
    let mut cache = cache(Keeper::Watched, ENTRIES_MAX)?;
    let loan = cache.acquire(memory.bytes())?;
    cache.release(loan);
    change.make(&mut memory).map_err(system("change memory"))?;
    memory.write(1);
    let before = cache.counters().misses;
    let loan = cache.acquire(memory.bytes())?;
    cache.release(loan);
    Ok(cache.counters().misses == before)
}

const PAGE_BYTES: usize = 4096;
/// What is kept while messages come and go, as in ucx.c.
const ENTRIES_MAX: usize = 16;
const BYTES_MAX: usize = 256 << 20;
