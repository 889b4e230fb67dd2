//! Many groups at once: as many packets, cut into few groups or many, and what the groups of others
//! cost a program that has none.
//!
//! A conference server has a thousand rooms of ten, not one of ten thousand. A run sends to each
//! group in turn, so many rounds; every member is another port at the sink. While the groups are
//! there a socket without a group sends by the same device, turn about with one that sends by a
//! device without groups: what the difference is, every program on the machine pays (the *tax*).
//! The two devices are compared before there is any group, too, and what they differ in then is
//! taken off.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

use onrush_group::{Group, Options, Way};
use onrush_sys::thread::{allowed_cores, pin_to, raise_open_files_limit};
use onrush_testkit::sink::{Counts, Sink};
use onrush_testkit::testbed::{self, Mode, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed};
use serde::{Deserialize, Serialize};

use super::run::settle;
use super::{GroupRecord, Load, Run, Settings};
use crate::error::{ExperimentError, what_is};
use crate::setup::{system, until_valid};
use crate::stats::{median, ratio, to_f64};
use crate::table::{Column, Mean, Table, Verdict, gather, table};

/// So many groups of so many members, each member in one of them.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Many {
    /// Groups.
    pub groups: u16,
    /// Members of each.
    pub members: u16,
}

/// Sends to many groups, one after the other, as fast as they go.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ManyRun {
    /// Who cut trains.
    pub mode: Mode,
    /// By which way.
    pub way: String,
    /// What was sent.
    pub load: Load,
    /// To how many.
    pub many: Many,
    /// Which repeat, from 0. Ways of the same repeat took turns.
    pub repeat: u32,
    /// Rounds: sends of each group.
    pub rounds: u32,
    /// Time of a send to every group, in ns.
    pub round_ns: f64,
    /// Packets that arrived, trains counted by their packets.
    pub arrived: u64,
    /// Packets, or trains, that a program cloned.
    pub clones: u64,
    /// Why it does not count; empty if it does.
    pub void: String,
}

/// Sends of a socket without a group, past the groups of others.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ForeignRun {
    /// Who cut trains.
    pub mode: Mode,
    /// Groups that send by the same device; 0 for no program there.
    pub groups: u16,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Time of a `sendto` of 100 B, in ns: the median of many short slices.
    pub send_ns: f64,
    /// The same by a device that never had a group, turn about.
    pub bare_ns: f64,
    /// Why it does not count; empty if it does.
    pub void: String,
}

impl Many {
    /// What a full run measures: 10,000 receivers each time.
    pub const ALL: [Self; 3] = [
        Self::new(1000, 10),
        Self::new(100, 100),
        Self::new(1, 10_000),
    ];

    /// So many groups of so many members.
    #[must_use]
    pub const fn new(groups: u16, members: u16) -> Self {
        Self { groups, members }
    }

    /// Members of all groups together.
    #[must_use]
    pub fn receivers(self) -> u32 {
        u32::from(self.groups) * u32::from(self.members)
    }
}

/// Ways that are worth a thousand groups: each `uring` group has a ring and registered memory.
const WAYS: [Way; 3] = [Way::Kernel, Way::Sendmmsg, Way::Loop];

/// Members of all groups together: each has a port at the sink.
pub const RECEIVERS_MAX: u32 = 10_000;

/// The port of the first member at the sink.
const PORT_FIRST: u16 = 20_000;
const LOOK_EVERY: u16 = 1000;
/// Rounds of a run, at least.
const ROUNDS_MIN: u32 = 3;
/// Slices of a run past the groups of others, and sends of each: a few tenths of a millisecond.
const SLICES: usize = 200;
const SLICE_SENDS: u32 = 200;
const FOREIGN_BYTES: usize = 100;

struct Bench<'a> {
    settings: &'a Settings,
    site: Site,
    /// Where there are no groups.
    bare: Site,
}

/// Two namespaces, and who counts what arrives in the second.
struct Site {
    testbed: Testbed,
    sink: Sink,
}

/// Groups of one way.
type Groups = (Way, Vec<Group>);

/// What is measured in a row.
#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    load: Load,
    many: Many,
}

/// Whether the settings can be carried out.
pub(super) fn check(settings: &Settings) -> Result<(), ExperimentError> {
    let is_possible = |many: &Many| (1..=RECEIVERS_MAX).contains(&many.receivers());
    if settings.many.iter().all(is_possible) {
        return Ok(());
    }
    Err(ExperimentError::Settings(format!(
        "many groups of the experiment have 1 to {RECEIVERS_MAX} members together"
    )))
}

/// Carries it out; `progress` is told which part of it is done.
pub(super) fn run_all(
    settings: &Settings,
    runs: &mut Vec<Run>,
    mut progress: impl FnMut(f64),
) -> Result<(), ExperimentError> {
    let Some(receivers) = settings.many.iter().map(|many| many.receivers()).max() else {
        return Ok(());
    };
    // A group by the program has a socket, three maps and a life sign, and asks by two more.
    raise_open_files_limit();
    let core = *allowed_cores().last().expect("this runs on one");
    pin_to(core).map_err(system("pin the sender to a processor"))?;
    let mut bench = Bench {
        settings,
        site: Site::new(receivers)?,
        bare: Site::new(1)?,
    };
    // The kernel waits for all processors whenever a group comes or goes, so that none comes twice.
    let mut all = settings.many.clone();
    all.sort_by_key(|many| many.groups);
    for &mode in &settings.modes {
        bench.set_mode(mode)?;
        bench.foreign(mode, &[], runs)?;
    }
    for (number, &many) in all.iter().enumerate() {
        let mut by_way = WAYS
            .into_iter()
            .map(|way| bench.open(way, many))
            .collect::<Result<Vec<_>, _>>()?;
        for &mode in &settings.modes {
            bench.set_mode(mode)?;
            bench.groups(mode, many, &mut by_way, runs)?;
            bench.foreign(mode, &by_way[0].1, runs)?;
        }
        progress(ratio(number as u64 + 1, all.len() as u64));
    }
    Ok(())
}

impl Site {
    fn new(receivers: u32) -> Result<Self, ExperimentError> {
        let testbed = Testbed::new(testbed::Options::default())?;
        let last = u32::from(PORT_FIRST) + receivers - 1;
        let last = u16::try_from(last).expect("checked against RECEIVERS_MAX");
        let ports = PORT_FIRST..=last;
        let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, ports, LOOK_EVERY)?;
        Ok(Self { testbed, sink })
    }

    /// A socket without a group, which has found its way.
    fn foreigner(&self) -> Result<UdpSocket, ExperimentError> {
        let socket = self.testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
        let socket = socket.map_err(system("open a socket"))?;
        send_slice(&socket)?;
        Ok(socket)
    }
}

/// So many sends to the first member; the time of one, in ns.
fn send_slice(socket: &UdpSocket) -> Result<f64, ExperimentError> {
    let image = [0x47; FOREIGN_BYTES];
    let begin = Instant::now();
    for _ in 0..SLICE_SENDS {
        let sent = socket.send_to(&image, (RCV_IPV4, PORT_FIRST));
        sent.map_err(system("send"))?;
    }
    Ok(begin.elapsed().as_secs_f64() * 1e9 / f64::from(SLICE_SENDS))
}

impl Bench<'_> {
    fn set_mode(&mut self, mode: Mode) -> Result<(), ExperimentError> {
        self.site.testbed.set_mode(mode)?;
        Ok(self.bare.testbed.set_mode(mode)?)
    }

    fn groups(
        &mut self,
        mode: Mode,
        many: Many,
        by_way: &mut [Groups],
        runs: &mut Vec<Run>,
    ) -> Result<(), ExperimentError> {
        let settings = self.settings;
        for &load in &settings.loads {
            let case = Case { mode, load, many };
            for repeat in 0..settings.repeats {
                for (way, groups) in &mut *by_way {
                    let run = |_| self.run(*way, groups, case, repeat).map(Run::Many);
                    until_valid(runs, is_valid, run)?;
                }
            }
        }
        Ok(())
    }

    fn open(&self, way: Way, many: Many) -> Result<Groups, ExperimentError> {
        let group = |number: u16| {
            let socket = self.site.testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
            let socket = socket.map_err(system("open a socket"))?;
            let options = Options {
                way: Some(way),
                members_max: usize::from(many.members),
                area_bytes: 0,
            };
            let mut group = Group::open(socket, &options)?;
            let first = PORT_FIRST + number * many.members;
            let member = |i| SocketAddr::from((RCV_IPV4, first + i));
            let members: Vec<_> = (0..many.members).map(member).collect();
            group.set_members(&members)?;
            Ok(group)
        };
        let groups: Result<Vec<_>, ExperimentError> = (0..many.groups).map(group).collect();
        Ok((way, groups?))
    }

    fn run(
        &mut self,
        way: Way,
        groups: &mut [Group],
        case: Case,
        repeat: u32,
    ) -> Result<ManyRun, ExperimentError> {
        let Case { mode, load, many } = case;
        let rounds = self.settings.rounds_of(load, many);
        let image = vec![0x47; load.packets * load.bytes];
        let round = |groups: &mut [Group]| -> Result<(), ExperimentError> {
            for group in groups {
                group.send_train(&image, load.bytes)?;
            }
            Ok(())
        };
        round(groups)?;
        settle(&self.site.sink)?;
        self.site.sink.reset()?;
        let before = cloned(groups).0;
        let begin = Instant::now();
        for _ in 0..rounds {
            round(groups)?;
        }
        let elapsed = begin.elapsed();
        let arrived = settle(&self.site.sink)?;
        let clones = cloned(groups).0 - before;
        let sends = u64::from(rounds) * u64::from(many.receivers());
        let is_by_program = way == Way::Kernel && many.members > 1;
        Ok(ManyRun {
            mode,
            way: way.as_str().to_owned(),
            load,
            many,
            repeat,
            rounds,
            round_ns: elapsed.as_secs_f64() * 1e9 / f64::from(rounds),
            arrived: arrived.packets,
            clones,
            void: judge(arrived, load, sends, is_by_program && clones != sends),
        })
    }

    /// Sends past these groups, and where there are none.
    fn foreign(
        &mut self,
        mode: Mode,
        groups: &[Group],
        runs: &mut Vec<Run>,
    ) -> Result<(), ExperimentError> {
        for repeat in 0..self.settings.repeats {
            let run = |_| self.run_foreign(mode, groups, repeat).map(Run::Foreign);
            until_valid(runs, is_valid, run)?;
        }
        Ok(())
    }

    fn run_foreign(
        &mut self,
        mode: Mode,
        groups: &[Group],
        repeat: u32,
    ) -> Result<ForeignRun, ExperimentError> {
        let sockets = [self.site.foreigner()?, self.bare.foreigner()?];
        for site in [&mut self.site, &mut self.bare] {
            settle(&site.sink)?;
            site.sink.reset()?;
        }
        // Turn about in short slices, so that what slows the machine down for a while slows both;
        // who is first takes turns, too.
        let mut times_ns = [const { Vec::new() }; 2];
        for number in 0..SLICES {
            for at in [number % 2, 1 - number % 2] {
                times_ns[at].push(send_slice(&sockets[at])?);
            }
        }
        let [send_ns, bare_ns] = times_ns.map(|ns| median(ns).expect("there are slices"));
        let (arrived, bare_arrived) = (settle(&self.site.sink)?, settle(&self.bare.sink)?);
        let load = Load::new(1, FOREIGN_BYTES);
        let sends = SLICES as u64 * u64::from(SLICE_SENDS);
        let is_unused = !groups.is_empty() && cloned(groups).1 == 0;
        let void = [
            judge(arrived, load, sends, is_unused),
            judge(bare_arrived, load, sends, false),
        ];
        Ok(ForeignRun {
            mode,
            groups: u16::try_from(groups.len()).expect("they were so many"),
            repeat,
            send_ns,
            bare_ns,
            void: void.concat(),
        })
    }
}

impl Settings {
    /// Rounds of a run of so many groups.
    #[must_use]
    pub fn rounds_of(&self, load: Load, many: Many) -> u32 {
        let packets = u32::try_from(load.packets).unwrap_or(u32::MAX);
        let each = packets.saturating_mul(many.receivers()).max(1);
        let rounds_min = ROUNDS_MIN.min(self.sends);
        (self.packets_max / each).clamp(rounds_min, self.sends)
    }
}

/// What the program has cloned for these groups, and in how many passes that reached it.
fn cloned(groups: &[Group]) -> (u64, u64) {
    let all = groups.iter().map(Group::counters);
    all.fold((0, 0), |(clones, passes), of| {
        (clones + of.clones, passes + of.passes)
    })
}

fn is_valid(run: &Run) -> bool {
    !run.is_void()
}

/// Why a run does not count.
fn judge(arrived: Counts, load: Load, sends: u64, is_otherwise: bool) -> String {
    let expected = sends * load.packets as u64;
    let (packets, bytes) = (arrived.packets, arrived.bytes);
    let why = what_is! {
        packets != expected || bytes != expected * load.bytes as u64
            => "{packets} of {expected} packets arrived";
        is_otherwise => "the program did not make the packets up";
    };
    why.join("; ")
}

/// What a packet of others may cost more while there are groups, in ns.
const FOREIGN_TAX_NS_MAX: f64 = 30.0;

/// The table of many groups.
pub(super) fn groups_told(record: &GroupRecord) -> Table {
    let runs = record.runs.iter().filter_map(|run| match run {
        Run::Many(run) if run.void.is_empty() => Some(run),
        _ => None,
    });
    let rounds = gather(runs.map(|run| {
        let case = (run.mode, run.load, run.many, run.way.as_str());
        (case, run.round_ns)
    }));
    table! {
        "Many groups: means, with what holds the true one with 99.9 %",
        for ((mode, load, many, way), round_ns) in &rounds,
        let packets = to_f64(load.packets) * f64::from(many.receivers());
        Column::key("mode") => mode.name(),
        Column::key("load") => load.told(),
        Column::key("groups") => many.groups.to_string(),
        Column::key("members of each") => many.members.to_string(),
        Column::key("way") => *way,
        Column::us("a send to all groups", 0).as_mean().less() => round_ns.clone(),
        Column::ns("a packet", 1) => Mean::of(round_ns).map(|round| round.mean / packets),
    }
}

/// What a packet of others costs, and the part of it that is the groups'.
pub(super) fn foreign_told(record: &GroupRecord) -> Table {
    table! {
        "A sendto of 100 B past others' groups: means, with what holds the true one with 99.9 %",
        for (mode, groups) in foreign(record),
        let of = |of: fn(&ForeignRun) -> f64| samples(record, mode, groups, of);
        Column::key("mode") => mode.name(),
        Column::key("groups at the device") => groups.to_string(),
        Column::ns("a sendto", 0).as_mean().less() => of(|run| run.send_ns),
        Column::ns("by a device without", 0).as_mean() => of(|run| run.bare_ns),
        Column::ns("the groups' part", 1) => tax_ns(record, mode, groups),
    }
}

/// The tax on packets of others, for each number of groups.
pub(super) fn verdicts(record: &GroupRecord) -> Vec<Verdict> {
    let with_groups = foreign(record).into_iter().filter(|row| row.1 > 0);
    let verdict = |(mode, groups): (Mode, u16)| {
        let what = format!(
            "{}, a packet of others past {groups} groups: ns more",
            mode.name()
        );
        Verdict::at_most(what, tax_ns(record, mode, groups), FOREIGN_TAX_NS_MAX, 1)
    };
    with_groups.map(verdict).collect()
}

/// Modes and numbers of groups that were measured.
fn foreign(record: &GroupRecord) -> Vec<(Mode, u16)> {
    let runs = record.runs.iter().filter_map(|run| match run {
        Run::Foreign(run) => Some(((run.mode, run.groups), ())),
        _ => None,
    });
    gather(runs).into_iter().map(|(row, _)| row).collect()
}

fn samples(record: &GroupRecord, mode: Mode, groups: u16, of: fn(&ForeignRun) -> f64) -> Vec<f64> {
    let runs = record.runs.iter().filter_map(|run| match run {
        Run::Foreign(run) if run.void.is_empty() => Some(run),
        _ => None,
    });
    let runs = runs.filter(|run| (run.mode, run.groups) == (mode, groups));
    runs.map(of).collect()
}

/// How much longer a send takes with so many groups than without, in ns: of two devices that are
/// alike as long as neither has any.
fn tax_ns(record: &GroupRecord, mode: Mode, groups: u16) -> Option<f64> {
    let longer = |groups| {
        let longer = samples(record, mode, groups, |run| run.send_ns - run.bare_ns);
        Some(Mean::of(&longer)?.mean)
    };
    Some(longer(groups)? - longer(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::table::Outcome;

    fn past(groups: u16, send_ns: f64, void: &str) -> Run {
        Run::Foreign(ForeignRun {
            mode: Mode::Uso,
            groups,
            repeat: 0,
            send_ns,
            bare_ns: 590.0,
            void: void.to_owned(),
        })
    }

    #[test]
    fn the_tax_is_judged_at_its_bound_and_beyond() {
        let judged = |runs: Vec<Run>| {
            let here = Environment::here("1", "c");
            let mut record = Record::new(super::super::NAME, here, Settings::quick());
            record.runs = runs;
            let verdicts = verdicts(&record);
            assert_eq!(verdicts.len(), 1);
            verdicts[0].outcome
        };
        let bare = || past(0, 600.0, "");
        assert_eq!(judged(vec![past(1000, 630.0, ""), bare()]), Outcome::Kept);
        assert_eq!(judged(vec![bare(), past(1000, 630.1, "")]), Outcome::Missed);
        let lost = past(0, 600.0, "lost");
        assert_eq!(judged(vec![lost, past(1000, 600.0, "")]), Outcome::Void);
    }

    #[test]
    fn more_members_than_ports_are_refused() {
        let settings = |many| Settings {
            many: vec![many],
            ..Settings::quick()
        };
        assert!(check(&settings(Many::new(1000, 10))).is_ok());
        assert!(check(&settings(Many::new(1, 10_001))).is_err());
        assert!(check(&settings(Many::new(0, 10))).is_err());
    }
}
