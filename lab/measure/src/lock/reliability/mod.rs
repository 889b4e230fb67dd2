//! The proof that pinned memory stays where it is, and that the rest does not.
//!
//! Every row is some memory and a way to hold it (`subject`). All rows together live through the
//! same (`pressure`): memory is fragmented and compacted, reclaimed into a swap file, and written
//! to beside a forked child. Meanwhile other processes (`crowd`) attach the shared rows that are
//! pinned, lock and unlock overlapping parts at random, and some are killed. After each of these,
//! every page is touched and its frame compared with the one before. Unlocked rows have to move, or
//! the run proves nothing.

mod crowd;
mod pressure;
mod report;
mod subject;
mod worker;

use std::process::Command;
use std::time::Duration;

use onrush_lock::LockError;
use onrush_lock::bare::{self, Private};
use onrush_primitives::named;
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::setup::system;
use crowd::Crowd;
pub use pressure::SWAP_FILE;
use pressure::{Swap, compact, push_out, remove_swap};
pub use report::report;
pub(super) use subject::Mapped;
use subject::Subject;
pub(super) use worker::Worker;
pub use worker::{Task, work};

/// Its name in files.
pub const NAME: &str = "lock-reliability";

/// What needs root.
const DOES: &str = "the reliability run reads frame numbers, compacts memory and adds a swap file";

/// How often memory is fragmented and compacted until anything has moved.
const COMPACTIONS_MAX: usize = 6;

const PAGE_BYTES: usize = 4096;

/// What is found.
pub type ReliabilityRecord = Record<Settings, Row>;

/// How the run is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Bytes of every row.
    pub row_bytes: usize,
    /// How many other processes there are, pass by pass.
    pub processes: Vec<u32>,
    /// Memory that is fragmented, at most half of what is free.
    pub hog_bytes: usize,
    /// The size of the swap file.
    pub swap_bytes: usize,
    /// How long the memory is pushed into it, in ms.
    pub swap_ms: u64,
}

named! {
    /// Where memory comes from.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Memory {
        /// Private and anonymous.
        Private = "private",
        /// A SysV segment.
        Sysv = "SysV",
        /// POSIX shared memory.
        Posix = "POSIX",
        /// A memfd.
        Memfd = "memfd",
    }
}

named! {
    /// How it is held.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Hold {
        /// Not at all.
        Unlocked = "unlocked",
        /// By a bare `mlock`.
        Mlock = "mlock",
        /// By SHM_LOCK, the whole segment.
        ShmLock = "SHM_LOCK",
        /// By the manager, resident.
        Resident = "resident",
        /// By the manager, pinned.
        Pinned = "pinned",
        /// By the manager of another process, pinned.
        PinnedElsewhere = "pinned by another",
    }
}

/// How many pages of some memory were at another frame afterwards.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Which memory.
    pub memory: Memory,
    /// How it was held.
    pub hold: Hold,
    /// Other processes, for those rows that have them.
    pub processes: u32,
    /// Its pages.
    pub pages: usize,
    /// After fragmenting and compacting, until some page of some row had moved.
    pub moved_by_compaction: usize,
    /// After reclaim into the swap file.
    pub moved_by_swapping: usize,
    /// After a write beside a forked child; private memory only.
    pub moved_by_fork: Option<usize>,
}

impl Settings {
    /// The whole proof: about a minute.
    #[must_use]
    pub fn full() -> Self {
        Self {
            row_bytes: 16 << 20,
            processes: vec![1, 2, 4, 8],
            hog_bytes: 4 << 30,
            swap_bytes: 512 << 20,
            swap_ms: 5000,
        }
    }

    /// One pass of it, with less memory.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            row_bytes: 4 << 20,
            processes: vec![2],
            hog_bytes: 2 << 30,
            swap_bytes: 128 << 20,
            swap_ms: 1000,
        }
    }
}

/// Carries it out. `worker` makes the command that calls [`work`] with an address, a task and a
/// seed, and prints a line when it says that it is ready. `progress` hears how much of the whole is
/// done.
///
/// # Errors
///
/// [`ExperimentError::Root`] without root; else what could not be had.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    worker: &dyn Fn(&str, Task, u64) -> Command,
    mut progress: impl FnMut(f64),
) -> Result<ReliabilityRecord, ExperimentError> {
    // Before anything is locked, so that who lacks the right hears of that and not of a limit.
    let page = Private::map(PAGE_BYTES).map_err(system("map memory"))?;
    if matches!(bare::frames(&page.bytes()), Err(LockError::FramesHidden)) {
        return Err(ExperimentError::Root(DOES));
    }
    remove_swap();
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let passes = u32::try_from(settings.processes.len()).unwrap_or(u32::MAX);
    for (pass, &processes) in (0u32..).zip(&settings.processes) {
        record.runs.extend(one_pass(settings, processes, worker)?);
        progress(f64::from(pass + 1) / f64::from(passes));
    }
    Ok(record)
}

fn one_pass(
    settings: &Settings,
    processes: u32,
    worker: &dyn Fn(&str, Task, u64) -> Command,
) -> Result<Vec<Row>, ExperimentError> {
    let mut subjects = Vec::new();
    for memory in Memory::ALL {
        for &hold in memory.holds() {
            subjects.push(Subject::new(memory, hold, settings.row_bytes, worker)?);
        }
    }
    let mut crowd = Crowd::gather(&subjects, processes, worker)?;
    let mut compaction = Changes(vec![0; subjects.len()]);
    for _ in 0..COMPACTIONS_MAX {
        let more = Changes::of(&subjects, || compact(settings.hog_bytes))?;
        compaction
            .0
            .iter_mut()
            .zip(more.0)
            .for_each(|(all, n)| *all += n);
        // Where free memory lies decides whether any of ours is in its way.
        if compaction.0.iter().any(|&moved| moved > 0) {
            break;
        }
    }
    crowd.replace_some()?;
    let swapping = {
        let _swap = Swap::on(settings.swap_bytes)?;
        Changes::of(&subjects, || {
            push_out(&subjects, Duration::from_millis(settings.swap_ms))
        })?
    };
    let before = frames(&subjects)?;
    for subject in &mut subjects {
        if let Mapped::Private(private) = &mut subject.mapped {
            private.write_beside_a_child(3).map_err(system("fork"))?;
        }
    }
    let forking = Changes::between(&before, &frames(&subjects)?);
    crowd.end()?;
    let rows = subjects.iter().enumerate().map(|(i, subject)| Row {
        memory: subject.memory,
        hold: subject.hold,
        processes,
        pages: settings.row_bytes / PAGE_BYTES,
        moved_by_compaction: compaction.0[i],
        moved_by_swapping: swapping.0[i],
        moved_by_fork: (subject.memory == Memory::Private).then_some(forking.0[i]),
    });
    Ok(rows.collect())
}

impl Hold {
    fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::PinnedElsewhere)
    }
}

/// How many pages of each subject have moved.
struct Changes(Vec<usize>);

impl Changes {
    fn of(
        subjects: &[Subject],
        mut happen: impl FnMut() -> Result<(), ExperimentError>,
    ) -> Result<Self, ExperimentError> {
        let before = frames(subjects)?;
        happen()?;
        Ok(Self::between(&before, &frames(subjects)?))
    }

    fn between(before: &[Vec<u64>], after: &[Vec<u64>]) -> Self {
        let moved =
            |(b, a): (&Vec<u64>, &Vec<u64>)| b.iter().zip(a).filter(|(b, a)| b != a).count();
        Self(before.iter().zip(after).map(moved).collect())
    }
}

fn frames(subjects: &[Subject]) -> Result<Vec<Vec<u64>>, ExperimentError> {
    let frames = |subject: &Subject| bare::frames(&subject.mapped.bytes());
    subjects
        .iter()
        .map(|subject| match frames(subject) {
            Err(LockError::FramesHidden) => Err(ExperimentError::Root(DOES)),
            frames => Ok(frames?),
        })
        .collect()
}
