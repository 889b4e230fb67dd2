//! `onrush-lab bench cue`: what moving files to sockets costs, and what it leaves of the processor
//! to others.
//!
//! The paper's sets in today's terms. Senders of several kinds move a file over loopback TCP, all
//! on one processor; on the same processor a *metering* thread makes a cheap system call in a loop,
//! and how often it comes round tells what was left to it. Receivers on another processor count and
//! throw away without copying, so that the sender is what is measured. A run counts only if they
//! counted what was sent.

mod report;
mod run;
pub mod scan;
mod senders;
mod watch;

use std::fmt;

use onrush_primitives::named;
use serde::{Deserialize, Serialize};

use crate::counters::Counted;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
pub use report::report;

/// Its name on the command line and in files.
pub const NAME: &str = "cue";

/// What is measured.
pub type CueRecord = Record<Settings, Run>;

/// Bytes of a block in the paper, and of a user-driven read and write.
pub const BLOCK_BYTES: u32 = 8192;

/// Bytes of a block that is to a machine of today what [`BLOCK_BYTES`] were to the paper's.
pub const BLOCK_BYTES_TODAY: u32 = 256 << 10;

/// Bytes that are sent while nobody reads, at the most. The receiver's window holds them.
pub(crate) const HELD_BYTES_MAX: u64 = 128 << 20;

/// Transfers at once, at the most.
pub const TRANSFERS_MAX: u32 = 256;

/// Transfers at once that are judged.
pub const TRANSFERS_JUDGED: u32 = 64;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How often everything has its turn.
    pub repeats: u32,
    /// How long each is measured, once it runs.
    pub measured_ns: u64,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
    /// The part of the processor that the adaptive schedule leaves to others.
    pub left_to_others: f64,
    /// The file that is in memory; 12 MB in the paper.
    pub small_bytes: u64,
    /// The file that is read from the disk.
    pub large_bytes: u64,
    /// What all receivers together take of a line that is slower than the senders.
    pub line_bytes_a_second: u64,
    /// Numbers of transfers, for how things scale.
    pub scaling: Vec<u32>,
    /// Whether the paper's sets are measured, too.
    pub sets: bool,
}

/// Who moves the file.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Contestant {
    /// Nobody: the metering thread has the processor for itself.
    Nobody,
    /// The paper's yardstick: for each transfer a thread that reads and writes 8 KiB at a time.
    UserDriven,
    /// The best of that kind: one thread for all transfers, 64 KiB at a time.
    UserLoop,
    /// For each transfer a thread that calls `sendfile` once for the whole file, and waits in it.
    SendfileLoop,
    /// Cue with the schedule (k, t).
    Fixed {
        /// Bytes of a block.
        block_bytes: u32,
        /// k.
        blocks: u32,
        /// t.
        pause_ms: u32,
    },
    /// The same, each file handed over in one entry of the ring: a thread for each transfer.
    Chain {
        /// Bytes of a block.
        block_bytes: u32,
        /// k.
        blocks: u32,
        /// t.
        pause_ms: u32,
    },
    /// Cue with equal shares.
    Fair,
    /// Cue with a schedule that arranges itself.
    Adaptive,
    /// Cue with the schedule (k, t) while somebody waits for the processor, and fair otherwise.
    Yielding {
        /// Bytes of a block.
        block_bytes: u32,
        /// k.
        blocks: u32,
        /// t.
        pause_ms: u32,
    },
    /// vsftpd, a process for each client.
    Vsftpd {
        /// Whether it sends by `sendfile`, or reads and writes.
        sendfile: bool,
    },
}

named! {
    /// Which question a run answers.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Set {
        /// Sets 1 to 4, tables 1 to 5: one transfer beside the metering thread.
        One = "one transfer",
        /// Sets 5 and 6, table 6: two of them.
        Two = "two transfers",
        /// Sets 6, 8 and 9, table 7: two to four, with nobody beside them.
        Parallel = "in parallel",
        /// Many, beside the metering thread.
        Scaling = "many",
        /// As many as are judged, over a line that is slower than they are.
        Line = "over a slow line",
        /// One large file as fast as it goes.
        Bare = "one large file",
        /// A part of it, that nobody reads before all of it was sent: what the sender does by
        /// itself.
        Held = "while nobody reads",
        /// A file that is not in memory.
        Cold = "cold file",
    }
}

/// What is measured in one run.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Cell {
    /// Which question.
    pub set: Set,
    /// Who.
    #[serde(flatten)]
    pub contestant: Contestant,
    /// How many transfers at once.
    pub transfers: u32,
    /// Whether the metering thread runs beside.
    pub metered: bool,
}

/// One run. Times in ns; counts are those of the measured stretch.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// What was measured.
    #[serde(flatten)]
    pub cell: Cell,
    /// Which repeat, from 0. What has the same was measured turn about.
    pub repeat: u32,
    /// How long.
    pub wall_ns: u64,
    /// Processor time of the senders' threads.
    pub cpu_ns: u64,
    /// What the processor counted of the senders' threads meanwhile, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// How often they gave the processor up.
    pub voluntary: u64,
    /// How often it was taken from them.
    pub involuntary: u64,
    /// Rounds of the metering thread.
    pub calls: u64,
    /// What each receiver counted.
    pub received_bytes: Vec<u64>,
    /// What was sent from beginning to end, and what was counted.
    pub total_bytes: (u64, u64),
    /// Why the run says nothing.
    pub void: Option<String>,
}

impl Settings {
    /// The whole experiment: about four minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            repeats: 3,
            measured_ns: 700_000_000,
            counters: false,
            left_to_others: onrush_server::transfer::Settings::default().left_to_others,
            small_bytes: 12 << 20,
            large_bytes: 1 << 30,
            line_bytes_a_second: 2_500_000_000,
            scaling: vec![1, 4, 16, 64, 256],
            sets: true,
        }
    }

    /// Only what is judged: half a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            measured_ns: 500_000_000,
            large_bytes: 256 << 20,
            scaling: vec![1, 64],
            sets: false,
            ..Self::full()
        }
    }

    /// What is measured in each repeat, in this order.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let mut add = |set, transfers, metered, contestants: &[Contestant]| {
            cells.extend(contestants.iter().map(|&contestant| Cell {
                set,
                contestant,
                transfers,
                metered,
            }));
        };
        use Contestant::{Adaptive, Fair, SendfileLoop, UserDriven, UserLoop};
        let fixed = Contestant::fixed;
        add(Set::One, 0, true, &[Contestant::Nobody]);
        if self.sets {
            let today = |blocks, pause_ms| Contestant::Fixed {
                block_bytes: BLOCK_BYTES_TODAY,
                blocks,
                pause_ms,
            };
            let chain = Contestant::Chain {
                block_bytes: BLOCK_BYTES,
                blocks: 4,
                pause_ms: 16,
            };
            let paper = [(3, 70), (4, 70), (1, 16), (1, 20), (4, 16)].map(|(k, t)| fixed(k, t));
            add(Set::One, 1, true, &[UserDriven]);
            add(Set::One, 1, true, &paper);
            add(Set::One, 1, true, &[chain, today(3, 70), today(4, 16)]);
            add(Set::Two, 2, true, &[UserDriven, fixed(3, 16), fixed(4, 16)]);
            add(Set::Two, 2, false, &[fixed(4, 16)]);
            for transfers in 2..=4 {
                let all = [UserDriven, fixed(4, 16), today(4, 16), Fair];
                add(Set::Parallel, transfers, false, &all);
            }
        }
        for &transfers in &self.scaling {
            let all = [UserDriven, UserLoop, Fair, Adaptive];
            add(Set::Scaling, transfers, true, &all);
        }
        add(
            Set::Line,
            TRANSFERS_JUDGED,
            true,
            &[UserDriven, UserLoop, Fair, Adaptive],
        );
        for _ in 0..3 {
            add(Set::Bare, 1, false, &[SendfileLoop, Fair]);
        }
        for _ in 0..3 {
            add(Set::Held, 1, false, &[SendfileLoop, Fair]);
        }
        if self.sets {
            for transfers in [1, 16] {
                add(Set::Cold, transfers, true, &[UserDriven, Fair, Adaptive]);
            }
        }
        cells
    }
}

impl Contestant {
    /// Cue with blocks of the paper's size.
    #[must_use]
    pub fn fixed(blocks: u32, pause_ms: u32) -> Self {
        Self::Fixed {
            block_bytes: BLOCK_BYTES,
            blocks,
            pause_ms,
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schedule = |name: &str, block_bytes: u32, blocks: u32, pause_ms: u32| {
            let size = match block_bytes {
                BLOCK_BYTES => String::new(),
                bytes if bytes % (1 << 20) == 0 => format!(" of {} MiB", bytes >> 20),
                bytes => format!(" of {} KiB", bytes >> 10),
            };
            format!("{name} ({blocks},{pause_ms}){size}")
        };
        let name = match *self {
            Self::Nobody => "nobody".to_owned(),
            Self::UserDriven => "user-driven".to_owned(),
            Self::UserLoop => "user loop".to_owned(),
            Self::SendfileLoop => "bare sendfile".to_owned(),
            Self::Fixed {
                block_bytes,
                blocks,
                pause_ms,
            } => schedule("cue", block_bytes, blocks, pause_ms),
            Self::Chain {
                block_bytes,
                blocks,
                pause_ms,
            } => schedule("chain", block_bytes, blocks, pause_ms),
            Self::Fair => "cue fair".to_owned(),
            Self::Adaptive => "cue adaptive".to_owned(),
            Self::Yielding {
                block_bytes,
                blocks,
                pause_ms,
            } => schedule("yielding", block_bytes, blocks, pause_ms),
            Self::Vsftpd { sendfile: true } => "vsftpd sendfile".to_owned(),
            Self::Vsftpd { sendfile: false } => "vsftpd".to_owned(),
        };
        f.pad(&name)
    }
}

/// Measures all of it. `progress` hears how much of the whole is done.
///
/// # Errors
///
/// If files, sockets or threads cannot be had, or there is only one processor.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64),
) -> Result<CueRecord, ExperimentError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let stage = run::Stage::set_up(settings)?;
    let mut cells = settings.cells();
    // Ordinary accounts do without.
    cells.retain(|cell| cell.set != Set::Held || crate::window::may_widen());
    let rounds = f64::from(settings.repeats);
    for repeat in 0..settings.repeats {
        for (done, &cell) in (0u32..).zip(&cells) {
            record.runs.push(stage.run(cell, repeat)?);
            let part = f64::from(done + 1) / f64::from(u32::try_from(cells.len()).unwrap_or(1));
            progress((f64::from(repeat) + part) / rounds);
        }
    }
    Ok(record)
}
