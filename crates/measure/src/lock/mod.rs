//! `onrush bench lock`: what locked memory costs, and whether it stays where it is.
//!
//! The costs are those of the paper's tables 1 and 2 and figures 7 and 8, beside the bare system calls, turn
//! about on the same memory. [`reliability`] is the proof: memory is fragmented and compacted, reclaimed,
//! swapped and forked, and every frame number is compared.

mod cost;
pub mod plots;
pub mod reliability;
pub mod report;

use std::io;

use onrush_sys::lock::{CacheError, LockError, SegmentError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiment::{Environment, Record};

/// Its name on the command line and in files.
pub const NAME: &str = "lock";

/// What is measured.
pub type LockRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How large the memory is, each time.
    pub sizes_bytes: Vec<usize>,
    /// How often everything has its turn.
    pub repeats: u32,
    /// Areas that are locked while another is locked and unlocked.
    pub areas: Vec<usize>,
    /// Registrations that are kept while one of them is looked for.
    pub kept: Vec<usize>,
}

/// Which memory is locked.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Private memory that nobody has touched.
    PrivateFirst,
    /// Private memory that is in use.
    PrivateAgain,
    /// A SysV segment that nobody has used: the paper's table 2.
    SysvFirst,
    /// A SysV segment that was used before: table 1.
    SysvAgain,
}

/// How it is locked and unlocked.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Registered with a ring, by the bare system call.
    Ring,
    /// `mlock` and `munlock`, by the bare system call.
    Mlock,
    /// By the manager, pinned.
    Pinned,
    /// By the manager, resident.
    Resident,
    /// By the manager, resident and then pinned: the paper's extra `mlock`.
    ResidentAndPinned,
    /// Asked of a cache that keeps another range and has room for one.
    Miss,
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

/// Why there is no result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockBenchError {
    /// The manager refused.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The cache refused.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// There is no segment.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// A system call failed.
    #[error("can not {action}: {source}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The reliability run needs what only root has.
    #[error(
        "the reliability run reads frame numbers, compacts memory and adds a swap file: it needs root"
    )]
    Root,
}

impl Memory {
    /// All, in the order of the report.
    pub const ALL: [Self; 4] = [
        Self::PrivateFirst,
        Self::PrivateAgain,
        Self::SysvFirst,
        Self::SysvAgain,
    ];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PrivateFirst => "private, first",
            Self::PrivateAgain => "private, again",
            Self::SysvFirst => "SysV, first",
            Self::SysvAgain => "SysV, again",
        }
    }
}

impl Way {
    /// All, in the order of the report.
    pub const ALL: [Self; 6] = [
        Self::Ring,
        Self::Pinned,
        Self::Mlock,
        Self::Resident,
        Self::ResidentAndPinned,
        Self::Miss,
    ];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ring => "bare ring",
            Self::Mlock => "bare mlock",
            Self::Pinned => "pinned",
            Self::Resident => "resident",
            Self::ResidentAndPinned => "mlock+pinned",
            Self::Miss => "cache miss",
        }
    }
}

impl Settings {
    /// The whole experiment: about a minute.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes_bytes: (12..=24).map(|shift| 1 << shift).collect(),
            repeats: 15,
            areas: vec![100, 100_000],
            kept: vec![10, 10_000],
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
}

/// Measures all of it. `progress` hears how much of the whole is done.
///
/// # Errors
///
/// If memory can not be had or locked; RLIMIT_MEMLOCK stands in the way of those without CAP_IPC_LOCK.
pub fn carry_out(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64),
) -> Result<LockRecord, LockBenchError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let rounds = f64::from(settings.repeats);
    for repeat in 0..settings.repeats {
        cost::round(settings, repeat, &mut record.runs)?;
        progress(f64::from(repeat + 1) / rounds);
    }
    Ok(record)
}
