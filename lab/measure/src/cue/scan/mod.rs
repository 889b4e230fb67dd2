//! `onrush-lab bench cue --scan`: the paper's sets one by one, and what schedules cost and leave
//! over all of their settings.
//!
//! A set is what it is in the paper: whole files of 12 MB, sixty of them, one after the other, by
//! as many transfers as the set has, beside metering processes on the same processor. Under a
//! schedule by which sixty would take longer than a bound it is as many as go in that time, and at
//! least one. Warm is one file that is in memory, sent again and again; cold are sixty files of
//! which nothing is, which is looked at before.

mod cells;
mod claims;
mod ftp;
mod report;
mod run;
mod values;

use std::path::Path;

use onrush_primitives::named;
use serde::{Deserialize, Serialize};

use super::Contestant;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Keep, Record};
use crate::setup::in_turn;
use crate::stats::to_f64;
pub use report::report;

/// Its name in files.
pub const NAME: &str = "cue_scan";

/// What is measured.
pub type ScanRecord = Record<Settings, Run>;

/// Files of a set, at the most; what the paper's sets have.
pub const FILES_MAX: u32 = 60;

/// Bytes of a block that is to a time slice of today (3 ms) what 8 KiB were to that of the paper's
/// machine (100 ms): a third of what moves in it. Pauses are a thirtieth of the paper's.
pub const SLICE_BLOCK_BYTES: u32 = 4 << 20;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How often everything has its turn.
    pub repeats: u32,
    /// Files of a set.
    pub files: u32,
    /// Bytes of each.
    pub file_bytes: u64,
    /// Bytes of each of those of which one alone takes longer than `set_ns_max`.
    pub paced_file_bytes: u64,
    /// How long a schedule's pauses may make a set, if it has more than one file.
    pub set_ns_max: u64,
    /// The part of the processor that the adaptive schedule leaves to others.
    pub left_to_others: f64,
    /// Whether the paper's sets are measured.
    pub sets: bool,
    /// k and t, in ms, of the schedules that are scanned, with blocks of 256 KiB.
    pub schedules: (Vec<u32>, Vec<u32>),
    /// Transfers at once, where schedules are scanned; none, if they are not.
    pub transfers: Vec<u32>,
    /// Metering processes, where schedules are scanned.
    pub meterings: Vec<u32>,
    /// FTP clients at once; none, if there are to be none.
    pub ftp_clients: Vec<u32>,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// The paper's sets.
    Sets,
    /// Every schedule, and files that are sent block by block in no order.
    Schedules,
    /// The paper's table 8.
    Ftp,
}

named! {
    /// Which question a run answers.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Set {
        /// Tables 1 and 2: (3,70), one transfer, one metering process.
        One = "set 1",
        /// Table 3: (4,70).
        Two = "set 2",
        /// Table 4: (1,16).
        Three = "set 3",
        /// Table 4: (1,20).
        Four = "set 4",
        /// Table 6: two transfers, two metering processes, (3,16) and (4,16).
        Five = "set 5",
        /// Tables 6 and 7: two transfers alone, (4,16).
        Six = "set 6",
        /// Table 7: three.
        Eight = "set 8",
        /// Table 7: four.
        Nine = "set 9",
        /// FTP.
        Ftp = "table 8",
        /// Every schedule.
        Schedules = "schedules",
        /// Files that are sent block by block in no order.
        Random = "random access",
    }
}

/// Whether files are in memory when a set begins.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// They are.
    Warm,
    /// Nothing of them is.
    Cold,
}

/// What is measured in one run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Cell {
    /// Which question.
    pub set: Set,
    /// Who.
    #[serde(flatten)]
    pub contestant: Contestant,
    /// How many transfers, or FTP clients, at once.
    pub transfers: u32,
    /// Metering processes beside them.
    pub meterings: u32,
    /// Whether files are in memory.
    pub state: State,
}

/// One run: a set. Times in ns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Which repeat, from 0. What has the same was measured turn about.
    pub repeat: u32,
    /// Files that were sent, in all.
    pub files: u32,
    /// Bytes of each.
    pub file_bytes: u64,
    /// From the first byte until all transfers had sent what they had.
    pub wall_ns: u64,
    /// The same of each transfer, in no order.
    pub done_ns: Vec<u64>,
    /// Processor time of the senders in user mode, and in the kernel; not counted of vsftpd.
    pub cpu_ns: (u64, u64),
    /// How often they gave the processor up, and how often it was taken from them; 0 of FTP
    /// servers.
    pub switches: (u64, u64),
    /// Calls of all metering processes, and in which time.
    pub calls: (u64, u64),
    /// Pauses of a schedule that yields.
    pub yields: u64,
    /// What each receiver counted.
    pub received_bytes: Vec<u64>,
    /// What was sent, and what was counted.
    pub total_bytes: (u64, u64),
    /// Why the run says nothing.
    pub void: Option<String>,
}

impl Settings {
    /// The whole experiment: about three hours.
    #[must_use]
    pub fn full() -> Self {
        Self {
            repeats: 10,
            files: FILES_MAX,
            file_bytes: 12 << 20,
            paced_file_bytes: 12 << 20,
            set_ns_max: 15_000_000_000,
            left_to_others: onrush_server::transfer::LEFT_TO_OTHERS,
            sets: true,
            schedules: (vec![2, 8, 32], vec![1, 4, 16]),
            transfers: vec![1, 4],
            meterings: vec![1, 2],
            ftp_clients: vec![1, 2, 3, 4],
        }
    }

    /// The same in a few minutes: three repeats of fewer schedules; and under the paper's own,
    /// files of 1 MB.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            repeats: 3,
            paced_file_bytes: 1 << 20,
            set_ns_max: 1_000_000_000,
            schedules: (vec![8], vec![4]),
            meterings: vec![1],
            ftp_clients: vec![1, 4],
            ..Self::full()
        }
    }

    /// The same, of this part alone.
    #[must_use]
    pub fn only(mut self, part: Part) -> Self {
        self.sets &= part == Part::Sets;
        if part != Part::Schedules {
            self.transfers.clear();
        }
        if part != Part::Ftp {
            self.ftp_clients.clear();
        }
        self
    }

    /// Files that a set of this contestant has for each of its transfers, and bytes of each.
    #[must_use]
    pub fn extent(&self, contestant: Contestant, transfers: u32) -> (u32, u64) {
        let files = self.files.div_ceil(transfers.max(1));
        let Contestant::Fixed {
            block_bytes,
            blocks,
            pause_ms,
        } = contestant
        else {
            return (files, self.file_bytes);
        };
        let paused_ns = |bytes: u64| {
            let pauses = bytes / (u64::from(block_bytes) * u64::from(blocks));
            pauses * u64::from(pause_ms) * 1_000_000
        };
        let file_bytes = match paused_ns(self.file_bytes) > self.set_ns_max {
            true => self.paced_file_bytes,
            false => self.file_bytes,
        };
        let most = self.set_ns_max / paused_ns(file_bytes).max(1);
        let most = u32::try_from(most).unwrap_or(u32::MAX).max(1);
        (files.min(most), file_bytes)
    }
}

impl Run {
    /// One of which nothing was measured yet.
    fn of(cell: Cell, repeat: u32, (files_each, file_bytes): (u32, u64)) -> Self {
        Self {
            cell,
            repeat,
            files: files_each * cell.transfers,
            file_bytes,
            wall_ns: 0,
            done_ns: Vec::new(),
            cpu_ns: (0, 0),
            switches: (0, 0),
            calls: (0, 0),
            yields: 0,
            received_bytes: Vec::new(),
            total_bytes: (0, 0),
            void: None,
        }
    }
}

/// Measures all of it. `program` is the server `onrush`, for FTP. `progress` hears how much of the
/// whole is done, `keep` has the record after each set.
///
/// # Errors
///
/// If files, sockets, processes or servers cannot be had, or there is only one processor.
pub fn run(
    settings: &Settings,
    program: &Path,
    (version, command): (&str, &str),
    mut progress: impl FnMut(f64),
    keep: Keep<'_, Settings, Run>,
) -> Result<ScanRecord, ExperimentError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let stage = run::Stage::set_up(settings)?;
    let cells = cells::cells(settings);
    let (of_ftp, others): (Vec<_>, Vec<_>) = cells.into_iter().partition(Cell::is_ftp);
    let mut progress = Progress {
        told: &mut progress,
        done: 0,
        all: settings.repeats as usize * (of_ftp.len() + others.len()),
    };
    // Each repeat begins with another, so that nobody is always first.
    for (repeat, cell) in turns(settings, &others) {
        record.runs.push(stage.run(cell, repeat)?);
        keep(&record);
        progress.advance();
    }
    // Servers are not there while anybody else is measured.
    let servers = ftp::Servers::start(program, &stage, &of_ftp)?;
    for (repeat, cell) in turns(settings, &of_ftp) {
        record.runs.extend(servers.run(&stage, cell, repeat)?);
        keep(&record);
        progress.advance();
    }
    Ok(record)
}

impl Cell {
    fn is_ftp(&self) -> bool {
        self.set == Set::Ftp
    }
}

fn turns(settings: &Settings, cells: &[Cell]) -> impl Iterator<Item = (u32, Cell)> {
    let turn = |repeat| in_turn(cells, repeat).map(move |cell| (repeat, cell));
    (0..settings.repeats).flat_map(turn)
}

/// How much of the whole is done.
struct Progress<'a> {
    told: &'a mut dyn FnMut(f64),
    done: usize,
    all: usize,
}

impl Progress<'_> {
    fn advance(&mut self) {
        self.done += 1;
        (self.told)(to_f64(self.done) / to_f64(self.all));
    }
}
