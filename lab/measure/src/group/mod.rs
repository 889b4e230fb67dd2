//! `onrush-lab bench group`: what a group send costs, by every way, as the group grows.
//!
//! The paper's experiments (Karsten, Song, Kwok, Brecht: *Efficient Operating System Support for
//! Group Unicast*): figures 3 and 4, the time of a send over the size of the group, with the group
//! replaced before every send and not; figure 5, where that time goes, by [`slicing`]; and table 1,
//! the players that a game server could add. Beside the paper, [many groups](many) at once. Runs of
//! all ways take turns, and a run is void unless the sink counted exactly what was to be sent.

pub mod many;
mod report;
mod run;
mod sendgrp;
pub mod slicing;

use onrush_group::Way;
use onrush_primitives::named;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use crate::counters::Counted;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use many::{ForeignRun, Many, ManyRun};
pub(crate) use report::PAPER;
pub use report::report;
use run::Bench;
pub(crate) use run::settle;
use slicing::{ClonePoint, Point};

/// Its name on the command line and in files.
pub const NAME: &str = "group";

/// What is measured.
pub type GroupRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Members of the group, each of these numbers in turn.
    pub members: Vec<u16>,
    /// What is sent.
    pub loads: Vec<Load>,
    /// By which ways.
    pub ways: Vec<String>,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// What happens to the group before every send.
    pub changes: Vec<Change>,
    /// Whether each member has an address of its own, behind one gateway; else all share two.
    pub spread: bool,
    /// Sends of a run, at most.
    pub sends: u32,
    /// Packets of a run, at most, unless that would be less than [`SENDS_MIN`] sends.
    pub packets_max: u32,
    /// How often everything has its turn.
    pub repeats: u32,
    /// Bytes of the datagrams that are sliced; none for no slicing.
    pub sliced_bytes: Vec<usize>,
    /// Many groups at once; records of before have none.
    #[serde(default)]
    pub many: Vec<Many>,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
}

named! {
    /// What happens to the group before a send.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Change {
        /// Nothing.
        None = "none",
        /// All members are replaced by others, as the paper's interface does.
        All = "all",
        /// One member leaves and another joins, as the paper left it open.
        One = "one",
    }
}

/// One datagram, or a train of several.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Load {
    /// Packets of a send, for each member.
    pub packets: usize,
    /// Bytes of a packet.
    pub bytes: usize,
}

/// One sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "measured", rename_all = "snake_case")]
pub enum Run {
    /// Sends to a group.
    Group(GroupRun),
    /// Sends to many groups.
    Many(ManyRun),
    /// Sends past the groups of others.
    Foreign(ForeignRun),
    /// Sends of single datagrams that are dropped somewhere on their way.
    Slice {
        /// Where.
        point: Point,
        /// Bytes of the datagram.
        bytes: usize,
        /// Which repeat, from 0.
        repeat: u32,
        /// Time of a send, in ns.
        send_ns: f64,
        /// What the processor counted of a send, if it shows that.
        #[serde(default)]
        counted: Option<CountedOfSend>,
    },
    /// Sends to a group by `kernel`, whose clones are dropped somewhere on their way.
    Clones {
        /// Where.
        point: ClonePoint,
        /// Bytes of the datagram.
        bytes: usize,
        /// Members of the group.
        members: u16,
        /// Which repeat, from 0.
        repeat: u32,
        /// Time of a send to all of them, in ns.
        send_ns: f64,
        /// What the processor counted of it, if it shows that.
        #[serde(default)]
        counted: Option<CountedOfSend>,
    },
}

/// What the processor counted of one send, user and kernel.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct CountedOfSend {
    /// Instructions.
    pub instructions: f64,
    /// Misses of the last cache.
    pub misses: f64,
}

/// Sends to a group, one after the other, as fast as they go.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct GroupRun {
    /// Who cut trains.
    pub mode: Mode,
    /// By which way; [`PLAIN`] or [`CONNECTED`] for no group at all, [`SENDGRP`] for a socket's.
    pub way: String,
    /// What was sent.
    pub load: Load,
    /// To how many.
    pub members: u16,
    /// What happened to the group before every send.
    pub change: Change,
    /// Which repeat, from 0. Ways of the same repeat took turns.
    pub repeat: u32,
    /// Sends.
    pub sends: u32,
    /// Time of a send, in ns, the change included.
    pub send_ns: f64,
    /// Time that the sending thread's processor was charged for a send, in ns.
    pub cpu_ns: f64,
    /// What the processor counted of the sending thread meanwhile, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Entries into the kernel for a send.
    pub crossings: f64,
    /// Packets that arrived, trains counted by their packets.
    pub arrived: u64,
    /// Socket buffers that arrived: trains, or single packets.
    pub arrived_skbs: u64,
    /// Packets, or trains, that a program cloned.
    pub clones: u64,
    /// Why it does not count; empty if it does.
    pub void: String,
}

impl Run {
    /// Whether it does not count.
    fn is_void(&self) -> bool {
        match self {
            Self::Group(run) => !run.void.is_empty(),
            Self::Many(run) => !run.void.is_empty(),
            Self::Foreign(run) => !run.void.is_empty(),
            Self::Slice { .. } | Self::Clones { .. } => false,
        }
    }
}

impl Settings {
    /// What the bounds are about, and little more.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            members: vec![1, 40, 480],
            changes: vec![Change::None, Change::All],
            sends: 200,
            packets_max: 48_000,
            repeats: 5,
            sliced_bytes: vec![0, 100, 1000, 9000],
            modes: vec![Mode::Uso],
            ..Self::default()
        }
    }

    /// Sends of a run of so many members.
    #[must_use]
    pub fn sends_of(&self, load: Load, members: u16) -> u32 {
        let each = u32::try_from(load.packets).unwrap_or(u32::MAX) * u32::from(members.max(1));
        (self.packets_max / each).clamp(SENDS_MIN.min(self.sends), self.sends)
    }

    fn ways(&self) -> Result<Vec<Way>, ExperimentError> {
        let ways = self.ways.iter().filter(|name| *name != SENDGRP);
        let ways = ways.map(|name| name.parse());
        ways.collect::<Result<_, _>>()
            .map_err(ExperimentError::Settings)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            members: vec![1, 40, 120, 240, 360, 480, 1000, 2000, 4000],
            loads: vec![
                Load::new(1, 100),
                Load::new(1, 1000),
                Load::new(8, 1328),
                Load::new(40, 1328),
            ],
            ways: (Way::ALL.iter().map(|way| way.as_str()))
                .chain([SENDGRP])
                .map(str::to_owned)
                .collect(),
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            changes: vec![Change::None, Change::All, Change::One],
            spread: false,
            sends: 1000,
            packets_max: 480_000,
            repeats: 10,
            sliced_bytes: vec![
                0, 100, 250, 500, 750, 1000, 1250, 1472, 2000, 4000, 6000, 9000,
            ],
            many: Many::ALL.to_vec(),
            counters: false,
        }
    }
}

impl Load {
    /// So many packets of so many bytes.
    #[must_use]
    pub const fn new(packets: usize, bytes: usize) -> Self {
        Self { packets, bytes }
    }

    /// As people say it.
    #[must_use]
    pub fn told(self) -> String {
        match self.packets {
            1 => format!("{} B", self.bytes),
            packets => format!("{packets} x {} B", self.bytes),
        }
    }
}

/// Carries the experiment out. `version` and `command` go into the record; `progress` is told which
/// part of it is done.
///
/// # Errors
///
/// If it could not run. What went wrong with a run makes that run void.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    mut progress: impl FnMut(f64),
) -> Result<GroupRecord, ExperimentError> {
    let ways = settings.ways()?;
    if settings
        .members
        .iter()
        .any(|&members| members == 0 || members > MEMBERS_MAX)
    {
        return Err(ExperimentError::Settings(
            "a group of the experiment has 1 to 8000 members".to_owned(),
        ));
    }
    many::check(settings)?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let slices = if settings.sliced_bytes.is_empty() {
        0.0
    } else {
        0.1
    };
    let many = match (settings.members.is_empty(), settings.many.is_empty()) {
        (_, true) => 0.0,
        (true, false) => 1.0 - slices,
        (false, false) => 0.2,
    };
    let groups = 1.0 - slices - many;
    let mut bench = Bench::set_up(settings, ways)?;
    record.environment.network = bench.network()?;
    bench.run_all(&mut record.runs, |part| progress(part * groups))?;
    drop(bench);
    many::run_all(settings, &mut record.runs, |part| {
        progress(groups + part * many)
    })?;
    slicing::run_all(settings, &mut record.runs, |part| {
        progress(1.0 - slices + part * slices)
    })?;
    Ok(record)
}

/// The way of a run that sends to one receiver by a plain `sendto`, without a group.
pub const PLAIN: &str = "sendto";

/// The same by a socket that is connected to the receiver, which spares the route: no server of
/// many can.
pub const CONNECTED: &str = "connected";

/// The way of a run whose socket has its members by `SO_SETSENDGRP`.
pub const SENDGRP: &str = "sendgrp";

/// Members of a measured group: each has a port at the sink.
pub const MEMBERS_MAX: u16 = 8000;

/// Sends of a run, at least.
pub const SENDS_MIN: u32 = 10;
