//! One run: a server that ticks, its groups, and what arrived; and the search for the most players.

use std::net::{SocketAddr, UdpSocket};

use onrush_group::{Group, Options, Way};
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::thread::{allowed_cores, pin_to};
use onrush_testkit::sink::Sink;
use onrush_testkit::testbed::{self, RCV_DEVICE, RCV_IPV4, SND_IPV4, Testbed};

use super::world::{PARTS, World};
use super::{PLAYERS_MAX, Run, Settings, WAYS};
use crate::error::{ExperimentError, what_is};
use crate::group::settle;
use crate::setup::{network, system};
use crate::stats::ratio;

/// The port of the first player at the sink.
const PORT_FIRST: u16 = 20_000;
const LOOK_EVERY: u16 = 1000;
/// Bytes of a packet, and packets of a train.
const PACKET_BYTES: usize = 1328;
const TRAIN_PACKETS: usize = 40;
/// A search ends when the most that are held and the fewest that are not are so near.
const NEAR: f64 = 1.05;
/// The first number that a search tries.
const PLAYERS_FIRST: u16 = 500;

pub(super) struct Bench<'a> {
    settings: &'a Settings,
    testbed: Testbed,
    sink: Sink,
}

/// What is tried.
#[derive(Clone, Copy)]
struct Case {
    rate_hz: u32,
    way: Way,
    players: u16,
    repeat: u32,
}

/// A server: its world, and a group for each part of it.
struct Server {
    world: World,
    groups: Vec<Group>,
}

/// What a run adds up.
#[derive(Default)]
struct Sums {
    late: u32,
    send_ns: u64,
    other_ns: u64,
    moves: u64,
    packets: u64,
    bytes: u64,
}

impl<'a> Bench<'a> {
    pub(super) fn set_up(settings: &'a Settings) -> Result<Self, ExperimentError> {
        let options = testbed::Options {
            mode: settings.mode,
            ..testbed::Options::default()
        };
        let testbed = Testbed::new(options)?;
        let ports = PORT_FIRST..=PORT_FIRST + (PLAYERS_MAX - 1);
        let sink = Sink::attach_seldom_looking(&testbed.rcv, RCV_DEVICE, ports, LOOK_EVERY)?;
        let core = *allowed_cores().last().expect("this runs on one");
        pin_to(core).map_err(system("pin the server to a processor"))?;
        Ok(Self {
            settings,
            testbed,
            sink,
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
        let settings = self.settings;
        let all = u64::from(settings.repeats) * settings.rates_hz.len() as u64;
        let mut done = 0;
        for repeat in 0..settings.repeats {
            for &rate_hz in &settings.rates_hz {
                for &players in &settings.players {
                    for way in WAYS {
                        runs.push(self.run(Case {
                            rate_hz,
                            way,
                            players,
                            repeat,
                        })?);
                    }
                }
                for way in WAYS {
                    self.search(rate_hz, way, repeat, runs)?;
                }
                done += 1;
                progress(ratio(done, all));
            }
        }
        Ok(())
    }

    /// Tries more and more players, and then between the most that were held and the fewest that
    /// were not.
    fn search(
        &mut self,
        rate_hz: u32,
        way: Way,
        repeat: u32,
        runs: &mut Vec<Run>,
    ) -> Result<(), ExperimentError> {
        let mut step = Step::new(self.settings.players_max);
        while let Some(players) = step.next() {
            let run = self.run(Case {
                rate_hz,
                way,
                players,
                repeat,
            })?;
            step.tried(players, run.is_held());
            runs.push(Run {
                is_search: true,
                ..run
            });
        }
        Ok(())
    }

    fn run(&mut self, case: Case) -> Result<Run, ExperimentError> {
        let Case {
            rate_hz,
            way,
            players,
            repeat,
        } = case;
        let mut server = self.start(way, players)?;
        let ticks = self.settings.ticks;
        // The first sends find out about the way, and are no part of it.
        server.tick(&mut Sums::default(), u64::MAX)?;
        settle(&self.sink)?;
        self.sink.reset()?;
        let period_ns = 1_000_000_000 / u64::from(rate_hz);
        let begin_ns = monotonic_ns() + 1_000_000;
        let mut sums = Sums::default();
        for number in 0..u64::from(ticks) {
            let due_ns = begin_ns + number * period_ns;
            sleep_until_ns(due_ns);
            server.tick(&mut sums, due_ns + period_ns)?;
        }
        let arrived = settle(&self.sink)?;
        let (packets, bytes) = (arrived.packets, arrived.bytes);
        let void = what_is! {
            packets != sums.packets || bytes != sums.bytes
                => "{packets} of {} packets arrived", sums.packets;
        };
        let told = ratio(sums.bytes, u64::from(ticks) * u64::from(players));
        Ok(Run {
            rate_hz,
            way: way.as_str().to_owned(),
            players,
            is_search: false,
            repeat,
            ticks,
            late: sums.late,
            other_ns: ratio(sums.other_ns, ticks.into()),
            send_ns: ratio(sums.send_ns, ticks.into()),
            state_bytes: told,
            moved: ratio(sums.moves, ticks.into()),
            arrived: packets,
            void: void.join("; "),
        })
    }

    fn start(&self, way: Way, players: u16) -> Result<Server, ExperimentError> {
        let world = World::new(players.into());
        let group = |part: usize| {
            let socket = self.testbed.snd.run(|| UdpSocket::bind((SND_IPV4, 0)));
            let socket = socket.map_err(system("open a socket"))?;
            let options = Options {
                way: Some(way),
                members_max: players.into(),
                area_bytes: 0,
            };
            let mut group = Group::open(socket, &options)?;
            let members: Vec<_> = world.players_in(part).map(address).collect();
            group.set_members(&members)?;
            Ok(group)
        };
        let groups: Result<Vec<_>, ExperimentError> = (0..PARTS).map(group).collect();
        let groups = groups?;
        Ok(Server { world, groups })
    }
}

impl Server {
    /// Everybody walks and is told of those around. What it took goes into `sums`.
    fn tick(&mut self, sums: &mut Sums, next_due_ns: u64) -> Result<(), ExperimentError> {
        let begin_ns = monotonic_ns();
        let (mut moves, mut state) = (Vec::new(), Vec::new());
        self.world.tick(&mut moves);
        let mut send_ns = 0;
        let changed_ns = monotonic_ns();
        for change in &moves {
            let player = address(change.player);
            self.groups[change.from].remove(player);
            self.groups[change.to].add(player)?;
        }
        send_ns += monotonic_ns() - changed_ns;
        for (part, group) in self.groups.iter_mut().enumerate() {
            self.world.state(part, &mut state);
            let members = group.len() as u64;
            let sent_ns = monotonic_ns();
            for train in state.chunks(PACKET_BYTES * TRAIN_PACKETS) {
                group.send_train(train, PACKET_BYTES)?;
            }
            send_ns += monotonic_ns() - sent_ns;
            sums.packets += state.len().div_ceil(PACKET_BYTES) as u64 * members;
            sums.bytes += state.len() as u64 * members;
        }
        let end_ns = monotonic_ns();
        sums.late += u32::from(end_ns > next_due_ns);
        sums.send_ns += send_ns;
        sums.other_ns += end_ns - begin_ns - send_ns;
        sums.moves += moves.len() as u64;
        Ok(())
    }
}

/// Where that player is.
fn address(player: usize) -> SocketAddr {
    let number = u16::try_from(player).expect("below PLAYERS_MAX");
    SocketAddr::from((RCV_IPV4, PORT_FIRST + number))
}

/// A search: the most that were held, and the fewest that were not.
struct Step {
    most: u16,
    held: Option<u16>,
    missed: Option<u16>,
}

impl Step {
    fn new(most: u16) -> Self {
        Self {
            most,
            held: None,
            missed: None,
        }
    }

    /// How many are tried next; `None` at the end.
    fn next(&self) -> Option<u16> {
        match (self.held, self.missed) {
            (None, None) => Some(PLAYERS_FIRST.min(self.most)),
            (Some(held), None) => (held < self.most).then(|| held.saturating_mul(2).min(self.most)),
            (None, Some(missed)) => (missed > 1).then_some(missed / 2),
            (Some(held), Some(missed)) => {
                let is_near = f64::from(missed) <= f64::from(held) * NEAR || missed <= held + 1;
                (!is_near).then_some(held + (missed - held) / 2)
            }
        }
    }

    fn tried(&mut self, players: u16, is_held: bool) {
        let place = if is_held {
            &mut self.held
        } else {
            &mut self.missed
        };
        *place = Some(players);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_ends_near_the_most_that_are_held() {
        for (limit, most) in [
            (0, 40_000),
            (1, 40_000),
            (3_333, 40_000),
            (60_000, 40_000),
            (7, 10),
        ] {
            let (mut step, mut tries) = (Step::new(most), 0);
            while let Some(players) = step.next() {
                assert!((1..=most).contains(&players));
                step.tried(players, u32::from(players) <= limit);
                tries += 1;
            }
            assert!(tries < 20, "{limit} {tries}");
            let held = u32::from(step.held.unwrap_or(0));
            assert!(held <= limit, "{limit} {held}");
            let reachable = limit.min(most.into());
            assert!(
                f64::from(reachable) <= f64::from(held) * NEAR,
                "{limit} {held}"
            );
        }
    }
}
