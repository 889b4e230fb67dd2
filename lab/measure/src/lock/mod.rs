//! `onrush-lab bench lock`: what locked memory costs, and whether it stays where it is.
//!
//! The costs are those of the paper's tables 1 and 2 and figures 7 and 8, beside the bare system
//! calls, turn about on the same memory. [`reliability`] is the proof: memory is fragmented and
//! compacted, reclaimed, swapped and forked, and every frame number is compared. [`reuse`] sends
//! from memory that is registered, copied, or found in a cache; [`caches`] asks caches alone, ours
//! and another's.

pub mod caches;
mod cost;
pub mod reliability;
mod report;
pub mod reuse;

use std::process::Command;

use onrush_lock::LockError;
use onrush_lock::memory::{lockable_bytes, page_bytes};
use onrush_primitives::named;
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use reliability::Task;
pub use report::report;

/// Its name on the command line and in files.
pub const NAME: &str = "lock";

/// What is measured.
pub type LockRecord = Record<Settings, Run>;

/// The command of a process that attaches the memory of that address and does that task, with a
/// seed.
pub type StartWorker<'a> = &'a dyn Fn(&str, Task, u64) -> Command;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How large the memory is, each time.
    pub sizes_bytes: Vec<usize>,
    /// How often everything has its turn.
    pub repeats: u32,
    /// Areas that are locked while another is locked and unlocked.
    pub areas: Vec<usize>,
    /// Areas that are locked so that none touches another, while one more is locked and unlocked;
    /// records of before have none.
    #[serde(default)]
    pub apart: Vec<usize>,
    /// Registrations that are kept while one of them is looked for.
    pub kept: Vec<usize>,
    /// What was left out of these, and why: nothing, if the account may lock any amount.
    #[serde(default)]
    pub left_out: Vec<String>,
}

named! {
    /// Which memory is locked.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Memory {
        /// Private memory that nobody has touched.
        PrivateFirst = "private, first",
        /// Private memory that is in use.
        PrivateAgain = "private, again",
        /// A SysV segment that nobody has used: the paper's table 2.
        SysvFirst = "SysV, first",
        /// A SysV segment that was used before: table 1.
        SysvAgain = "SysV, again",
        /// A SysV segment that another process has pinned, attached anew for each lock.
        SysvElsewhere = "SysV, pinned by another process",
    }
}

named! {
    /// How it is locked and unlocked.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Way {
        /// Registered with a ring, by the bare system call.
        Ring = "bare ring",
        /// By the manager, pinned.
        Pinned = "pinned",
        /// `mlock` and `munlock`, by the bare system call.
        Mlock = "bare mlock",
        /// SHM_LOCK and SHM_UNLOCK of the whole segment, by the bare system call: pages that are
        /// not there yet are not brought in.
        ShmLock = "bare SHM_LOCK",
        /// By the manager, resident.
        Resident = "resident",
        /// By the manager, resident and then pinned: the paper's extra `mlock`.
        ResidentAndPinned = "mlock+pinned",
        /// Asked of a cache that keeps another range and has room for one.
        Miss = "cache miss",
    }
}

/// One sample, the median of several calls; times in ns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
pub enum Run {
    /// Locking and unlocking memory.
    Cost {
        /// Which memory.
        memory: Memory,
        /// How.
        way: Way,
        /// How much.
        bytes: usize,
        /// Which repeat, from 0. What has the same was measured turn about.
        repeat: u32,
        /// To lock it.
        lock_ns: f64,
        /// To unlock it.
        unlock_ns: f64,
    },
    /// Locking and unlocking one page while much else is locked.
    Many {
        /// Areas that are locked, all over the memory that the page is in.
        areas: usize,
        /// How.
        way: Way,
        /// Which repeat.
        repeat: u32,
        /// To lock it.
        lock_ns: f64,
        /// To unlock it.
        unlock_ns: f64,
    },
    /// Pinning and unpinning one page beside areas of a page each that touch none of each other, so
    /// that each is an interval of its own.
    Apart {
        /// The areas that are pinned.
        areas: usize,
        /// Whether nobody has used the page before.
        is_first: bool,
        /// Which repeat.
        repeat: u32,
        /// To lock it.
        lock_ns: f64,
        /// To unlock it.
        unlock_ns: f64,
    },
    /// Finding a registration again, and giving it back.
    Hit {
        /// Registrations that are kept.
        kept: usize,
        /// Which repeat.
        repeat: u32,
        /// Both together.
        hit_ns: f64,
    },
}

impl Settings {
    /// The whole experiment: about a minute.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: (12..=24).map(|shift| 1 << shift).collect(),
            repeats: 15,
            areas: vec![100, 100_000],
            apart: vec![100, 100_000],
            kept: vec![10, 10_000],
            left_out: Vec::new(),
        }
    }

    /// Only what is judged, at a few sizes: some seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes_bytes: [12, 14, 16, 20].map(|shift| 1 << shift).to_vec(),
            repeats: 7,
            ..Self::full()
        }
    }

    /// As much of it as an account can that may lock so many bytes.
    #[must_use]
    pub fn within(mut self, lockable_bytes: u64) -> Self {
        let remedy = "raise it (ulimit -l, LimitMEMLOCK=) or grant CAP_IPC_LOCK";
        let mut keep = |what: &str, amounts: &mut Vec<usize>, bytes_each: usize| {
            let fits = |amount: usize| amount.saturating_mul(bytes_each) as u64 <= lockable_bytes;
            let (fit, more): (Vec<usize>, Vec<usize>) = amounts.iter().partition(|&&a| fits(a));
            *amounts = fit;
            let more: Vec<_> = more.iter().map(usize::to_string).collect();
            if !more.is_empty() {
                self.left_out.push(format!(
                    "{what} {}: more than RLIMIT_MEMLOCK ({lockable_bytes} bytes) allows; {remedy}",
                    more.join(", ")
                ));
            }
        };
        // The cache keeps another range of the same size meanwhile.
        keep("sizes of", &mut self.sizes_bytes, 2);
        keep("areas:", &mut self.areas, cost::AREA_BYTES_MAX);
        keep("areas apart:", &mut self.apart, cost::KEPT_BYTES);
        keep("kept registrations:", &mut self.kept, cost::KEPT_BYTES);
        self
    }
}

/// Measures all of it, as far as this account may lock memory; the record's settings say what was
/// left out. `progress` hears how much of the whole is done.
///
/// # Errors
///
/// If memory cannot be had, or none be locked. `worker` starts this program as the other process,
/// which is to call [`reliability::work`]; without it that memory is left out.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    worker: Option<StartWorker<'_>>,
    mut progress: impl FnMut(f64),
) -> Result<LockRecord, ExperimentError> {
    let environment = Environment::here(version, command);
    let settings = settings.clone().within(lockable_bytes());
    if settings.sizes_bytes.is_empty() {
        let error = match lockable_bytes() {
            0 => LockError::NotPermitted,
            limit_bytes => LockError::Limit {
                bytes: 2 * page_bytes(),
                limit_bytes,
            },
        };
        return Err(error.into());
    }
    let mut record = Record::new(NAME, environment, settings.clone());
    let rounds = f64::from(settings.repeats);
    for repeat in 0..settings.repeats {
        cost::round(&settings, repeat, worker, &mut record.runs)?;
        progress(f64::from(repeat + 1) / rounds);
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_the_limit_is_left_out_by_name() {
        let full = Settings::full();
        assert_eq!(full.clone().within(u64::MAX), full);
        let little = full.clone().within(8 << 20);
        assert_eq!(little.sizes_bytes.last(), Some(&(4 << 20)));
        assert_eq!((&*little.areas, &*little.kept), (&[100][..], &[10][..]));
        assert_eq!(little.apart, [100]);
        assert_eq!(little.left_out.len(), 4);
        assert!(
            little.left_out[0].starts_with("sizes of 8388608, 16777216: more than RLIMIT_MEMLOCK"),
            "{little:?}"
        );
        // The largest size at its bound, and a byte below.
        let most = full.clone().within(32 << 20);
        assert_eq!(most.sizes_bytes, full.sizes_bytes);
        let less = full.within((32 << 20) - 1);
        assert_eq!(less.sizes_bytes.last(), Some(&(8 << 20)));
    }
}
