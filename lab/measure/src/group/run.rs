//! One run: a group, so many sends, and what arrived.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use onrush_group::{Counters, Group, Options, Way};
use onrush_primitives::sendgrp::ADDRESSES_MAX;
use onrush_sys::thread::{allowed_cores, pin_to};
use onrush_testkit::sink::{Counts, Sink};
use onrush_testkit::testbed::{
    self, Mode, RCV_DEVICE, RCV_IPV4, RCV_MAC, SND_DEVICE, SND_IPV4, Testbed, TestbedError,
};

use super::sendgrp::{self, Served};
use super::{CONNECTED, Change, GroupRun, Load, PLAIN, Run, SENDGRP, Settings};
use crate::counters::{Counted, Counting};
use crate::error::{ExperimentError, what_is};
use crate::machine::SenderClock;
use crate::setup::{network, system, until_valid};
use crate::stats::ratio;

/// The port of the first member at the sink.
const PORT_FIRST: u16 = 20_000;

/// Where the members are that take turns with those at the receiver's address: at the same ports,
/// so that the sink has the same to do.
const OTHER_IPV4: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 3);

/// The sink looks into every so many socket buffers of a port: seldom, because nothing here is RTP.
const LOOK_EVERY: u16 = 1000;

pub(super) struct Bench<'a> {
    settings: &'a Settings,
    ways: Vec<Way>,
    testbed: Testbed,
    sink: Sink,
    clock: SenderClock,
}

/// One point of the experiment.
#[derive(Clone, Copy)]
struct Case {
    mode: Mode,
    load: Load,
    members: u16,
    change: Change,
}

impl<'a> Bench<'a> {
    pub(super) fn set_up(settings: &'a Settings, ways: Vec<Way>) -> Result<Self, ExperimentError> {
        let testbed = Testbed::new(testbed::Options::default())?;
        let members = settings.members.iter().max().copied().unwrap_or(1);
        let ports = PORT_FIRST..=PORT_FIRST + (members - 1);
        let neighbour = format!(
            "neigh add {OTHER_IPV4} lladdr {} dev {SND_DEVICE} nud permanent",
            RCV_MAC
        );
        testbed
            .snd
            .tool("ip", neighbour.split(' '))
            .map_err(TestbedError::from)?;
        let route = format!("route add 10.80.0.0/15 via {RCV_IPV4}");
        let route = testbed.snd.tool("ip", route.split(' '));
        route.map_err(TestbedError::from)?;
        let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, ports, LOOK_EVERY)?;
        // The last: interrupts go to the first as a rule.
        let core = *allowed_cores().last().expect("this runs on one");
        pin_to(core).map_err(system("pin the sender to a processor"))?;
        Ok(Self {
            settings,
            ways,
            testbed,
            sink,
            clock: SenderClock::bound_to(core),
        })
    }

    /// The sending device and what it does in hardware, or here in nobody's.
    pub(super) fn network(&self) -> Result<String, ExperimentError> {
        Ok(network(&self.testbed, &["tx-"])?)
    }

    pub(super) fn run_all(
        &mut self,
        runs: &mut Vec<Run>,
        mut progress: impl FnMut(f64),
    ) -> Result<(), ExperimentError> {
        let cases = self.cases();
        let all = cases.len() * self.settings.repeats as usize;
        let mut done = 0;
        // What is changed takes turns like the ways: the one is judged beside the other.
        let is_beside =
            |a: &Case, b: &Case| (a.mode, a.load, a.members) == (b.mode, b.load, b.members);
        for beside in cases.chunk_by(is_beside) {
            self.testbed.set_mode(beside[0].mode)?;
            let mut groups = Vec::new();
            for &case in beside {
                let by_way = self.ways.iter().map(|&way| self.open(way, case));
                groups.push((case, by_way.collect::<Result<Vec<_>, _>>()?));
            }
            for repeat in 0..self.settings.repeats {
                for (case, by_way) in &mut groups {
                    self.turn(*case, by_way, repeat, runs)?;
                    done += 1;
                    progress(ratio(done, all as u64));
                }
            }
        }
        Ok(())
    }

    /// Every way once.
    fn turn(
        &mut self,
        case: Case,
        by_way: &mut [Group],
        repeat: u32,
        runs: &mut Vec<Run>,
    ) -> Result<(), ExperimentError> {
        if case.members == 1 && case.change == Change::None && case.load.packets == 1 {
            for way in [PLAIN, CONNECTED] {
                runs.push(Run::Group(self.run_plain(way, case, repeat)?));
            }
        }
        let is_valid = |run: &Run| !run.is_void();
        for group in by_way {
            let run = |_| self.run(group, case, repeat).map(Run::Group);
            until_valid(runs, is_valid, run)?;
        }
        let is_asked = self.settings.ways.iter().any(|way| way == SENDGRP);
        if is_asked && sendgrp::is_possible(case.mode, case.load, case.members, case.change) {
            let run = |_| self.run_sendgrp(case, repeat).map(Run::Group);
            until_valid(runs, is_valid, run)?;
        }
        Ok(())
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &mode in &self.settings.modes {
            for &load in &self.settings.loads {
                for &members in &self.settings.members {
                    for &change in &self.settings.changes {
                        cases.push(Case {
                            mode,
                            load,
                            members,
                            change,
                        });
                    }
                }
            }
        }
        cases
    }

    fn open(&self, way: Way, case: Case) -> Result<Group, ExperimentError> {
        let socket = self.testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
        let socket = socket.map_err(system("open a socket"))?;
        let options = Options {
            way: Some(way),
            members_max: usize::from(case.members),
            area_bytes: case.load.packets * case.load.bytes,
        };
        Ok(Group::open(socket, &options)?)
    }

    fn run(
        &mut self,
        group: &mut Group,
        case: Case,
        repeat: u32,
    ) -> Result<GroupRun, ExperimentError> {
        let sends = self.settings.sends_of(case.load, case.members);
        let groups = [0, 1].map(|which| self.members(which, case.members));
        let image = vec![0x47; case.load.packets * case.load.bytes];
        let area = group.area_mut(0..image.len())?;
        area.copy_from_slice(&image);
        let mut number = 0_usize;
        let mut send = |group: &mut Group| -> Result<(), ExperimentError> {
            number += 1;
            match case.change {
                Change::None => {}
                Change::All => group.set_members(&groups[number % 2])?,
                Change::One => {
                    // Each in turn leaves for its other self.
                    let (turn, place) = (
                        number / usize::from(case.members),
                        number % usize::from(case.members),
                    );
                    group.remove(groups[turn % 2][place]);
                    group.add(groups[(turn + 1) % 2][place])?;
                }
            }
            match (group.way(), case.load.packets) {
                (Way::Uring, _) => group.send_registered(0..image.len(), case.load.bytes)?,
                (_, 1) => group.send(&image)?,
                _ => group.send_train(&image, case.load.bytes)?,
            };
            Ok(())
        };
        group.set_members(&groups[0])?;
        for _ in 0..sends.div_ceil(20) {
            send(group)?;
        }
        settle(&self.sink)?;
        let before = group.counters();
        let (run, arrived) = self.timed(case, sends, || send(group))?;
        let after = group.counters();
        let expected = u64::from(sends) * u64::from(case.members) * case.load.packets as u64;
        Ok(GroupRun {
            way: group.way().as_str().to_owned(),
            repeat,
            crossings: ratio(after.crossings - before.crossings, sends.into()),
            clones: after.clones - before.clones,
            void: judge(group.way(), case, expected, &before, &after, arrived),
            ..run
        })
    }

    /// One receiver, and no group: what a group of one is compared with.
    fn run_plain(
        &mut self,
        way: &str,
        case: Case,
        repeat: u32,
    ) -> Result<GroupRun, ExperimentError> {
        let socket = self.testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
        let socket = socket.map_err(system("open a socket"))?;
        let to = self.members(0, 1)[0];
        if way == CONNECTED {
            socket.connect(to).map_err(system("connect a socket"))?;
        }
        let (sends, image) = (self.settings.sends, vec![0x47; case.load.bytes]);
        let send = || {
            let sent = match way {
                CONNECTED => socket.send(&image),
                _ => socket.send_to(&image, to),
            };
            Ok(sent.map(drop).map_err(system("send"))?)
        };
        for _ in 0..sends.div_ceil(20) {
            send()?;
        }
        settle(&self.sink)?;
        let (run, arrived) = self.timed(case, sends, send)?;
        let is_whole = arrived.packets == u64::from(sends);
        let void = (!is_whole).then(|| format!("{} of {sends} packets arrived", arrived.packets));
        Ok(GroupRun {
            way: way.to_owned(),
            repeat,
            void: void.unwrap_or_default(),
            ..run
        })
    }

    /// A socket that has its members by `SO_SETSENDGRP`.
    fn run_sendgrp(&mut self, case: Case, repeat: u32) -> Result<GroupRun, ExperimentError> {
        let sends = self.settings.sends_of(case.load, case.members);
        let groups = [0, 1].map(|which| self.members(which, case.members));
        let image = vec![0x47; case.load.packets * case.load.bytes];
        let served = Served::open(&self.testbed, case.load, &groups)?;
        let mut number = 0_usize;
        let mut send = || {
            number += 1;
            if case.change == Change::All {
                served.replace(&groups[number % 2])?;
            }
            served.send(&image)
        };
        for _ in 0..sends.div_ceil(20) {
            send()?;
        }
        settle(&self.sink)?;
        let before = served.packets()?;
        let (run, arrived) = self.timed(case, sends, send)?;
        let given = served.packets()? - before;
        let members = u64::from(sends) * u64::from(case.members);
        let expected = members * case.load.packets as u64;
        let skbs = match case.mode {
            Mode::Uso => members,
            Mode::SoftwareGso => expected,
        };
        let changes = match case.change {
            Change::All => usize::from(case.members).div_ceil(ADDRESSES_MAX),
            _ => 0,
        };
        let void = what_is! {
            arrived.packets != expected || arrived.bytes != expected * case.load.bytes as u64
                => "{} of {expected} packets arrived", arrived.packets;
            given != expected => "the program gave {given} of {expected} packets";
            arrived.skbs != skbs => "{} socket buffers came instead of {skbs}", arrived.skbs;
        };
        Ok(GroupRun {
            way: SENDGRP.to_owned(),
            repeat,
            crossings: 1.0 + ratio(changes as u64, 1),
            clones: skbs,
            void: void.join("; "),
            ..run
        })
    }

    /// So many sends, a crossing each until somebody knows better, and what arrived.
    fn timed(
        &mut self,
        case: Case,
        sends: u32,
        mut send: impl FnMut() -> Result<(), ExperimentError>,
    ) -> Result<(GroupRun, Counts), ExperimentError> {
        self.sink.reset()?;
        let (begin_cpu_ns, begin) = (self.clock.now_ns(), Instant::now());
        let this_thread = 0;
        let counting = Counting::of_threads(self.settings.counters, &[this_thread]);
        let begun = counting.now();
        for _ in 0..sends {
            send()?;
        }
        let counted = Counted::between(begun, counting.now());
        let (elapsed, cpu_ns) = (begin.elapsed(), self.clock.now_ns() - begin_cpu_ns);
        let arrived = settle(&self.sink)?;
        let run = GroupRun {
            mode: case.mode,
            way: String::new(),
            load: case.load,
            members: case.members,
            change: case.change,
            repeat: 0,
            sends,
            send_ns: elapsed.as_secs_f64() * 1e9 / f64::from(sends),
            cpu_ns: ratio(cpu_ns, sends.into()),
            counted,
            crossings: 1.0,
            arrived: arrived.packets,
            arrived_skbs: arrived.skbs,
            clones: 0,
            void: String::new(),
        };
        Ok((run, arrived))
    }

    /// One of two lists of so many members, who have nobody in common and the same ports at the
    /// sink.
    fn members(&self, which: u8, count: u16) -> Vec<SocketAddr> {
        let member = |i: u16| {
            let [high, low] = i.to_be_bytes();
            let ip = match which {
                _ if self.settings.spread => Ipv4Addr::new(10, 80 + which, high, low),
                0 => RCV_IPV4,
                _ => OTHER_IPV4,
            };
            SocketAddr::from((ip, PORT_FIRST + i))
        };
        (0..count).map(member).collect()
    }
}

/// Why a run does not count: other things arrived than were to, or in another way.
fn judge(
    way: Way,
    case: Case,
    expected: u64,
    before: &Counters,
    after: &Counters,
    arrived: Counts,
) -> String {
    let (packets, skbs, trains) = (arrived.packets, arrived.skbs, case.load.packets as u64);
    let taken = after.packets - before.packets;
    let (clones, passes) = (after.clones - before.clones, after.passes - before.passes);
    // The loop sends each packet alone, the kernel cuts in software before the device, else trains
    // stay whole.
    let due = match case.mode == Mode::Uso && way != Way::Loop {
        true => expected / trains,
        false => expected,
    };
    let is_made_up = clones == expected / trains && after.passes_missed == 0;
    let why = what_is! {
        packets != expected || arrived.bytes != expected * case.load.bytes as u64
            => "{packets} of {expected} packets arrived";
        taken != expected => "{taken} of {expected} packets were taken";
        skbs != due => "{skbs} socket buffers came instead of {due}";
        way == Way::Kernel && case.members > 1 && !is_made_up
            => "{clones} clones in {passes} passes do not make it up";
    };
    why.join("; ")
}

/// What has arrived once nothing more does: softirqs may be left to a thread of the kernel's.
pub(crate) fn settle(sink: &Sink) -> Result<Counts, ExperimentError> {
    let mut before = sink.totals()?;
    for _ in 0..500 {
        thread::sleep(Duration::from_millis(2));
        let now = sink.totals()?;
        if now == before {
            return Ok(now);
        }
        before = now;
    }
    let source = io::Error::from(io::ErrorKind::TimedOut);
    Err(system("wait for the sink")(source).into())
}
