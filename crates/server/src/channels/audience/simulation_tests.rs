//! A live channel under a clock of its own: what is kept, trains, backlogs, groups, keys and
//! numbers as they are, with a publisher and viewers that are drawn from a seed.
//!
//! Nothing waits for real time but datagrams on loopback: a step goes to the next moment at which
//! the channel's thread would wake. The publisher loses packets, falls silent, is replaced by
//! another, and has few sync samples or more between two than are kept. The thread is held up for a
//! second, the clock leaps by an hour. Viewers come, wait for long before they play, pause, leave,
//! vanish, and come again at the port of a session that is still there; they get packets in the
//! clear, by a key that all share, or by one of their own. Checked is each datagram that a viewer
//! gets: it begins with a sync sample, where it was told, and from there on has every packet of its
//! track, once, in order and byte for byte, numbered on from what came before a pause. What counts
//! as sent is what has come. When nobody watches nothing is sent or encrypted.
//!
//! Connections (TCP, TLS) are left out: what they hold is the engines', and simulated with them.

mod publisher_tests;
mod viewer_tests;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::channels::srtp::{ChannelKeys, ChannelKeysInUse};
use crate::channels::viewer::SYNC_AWAITED_MAX;
use crate::testing::seeds_tests::{Random, run_seeds, tell};
use publisher_tests::Publisher;
use viewer_tests::Viewer;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const START_NS: u64 = 1_000_000 * SECOND;
const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// How long a seed's publisher publishes, if it is an ordinary one.
const LASTS_NS: u64 = 30 * SECOND;

/// Of so many seeds one has pictures of many hundred packets.
const HEAVY_EVERY: u64 = 8;

/// Packets that come before sockets are read: fewer than a socket holds.
const READ_EVERY: usize = 16;

/// Real time that datagrams may take over loopback.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(20);

/// How long the thread sleeps if there is nothing to do.
const IDLE_NS: u64 = 100 * MS;

/// What a seed came to.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    virtual_ns: u64,
    steps: u64,
    given: u64,
    received: u64,
    came: u64,
    paused: u64,
    vanished: u64,
    dropped: u64,
}

struct Simulation {
    random: Random,
    now_ns: u64,
    /// What the clock went without leaps.
    lasted_ns: u64,
    audience: Audience,
    given: Vec<Arc<Given>>,
    publisher: Publisher,
    viewers: Vec<Viewer>,
    keys: ChannelKeysInUse,
    /// Those whose ports are open.
    opened: Vec<Arc<ChannelKeys>>,
    trouble_ns: u64,
    /// Until then the thread is held up.
    held_until_ns: u64,
    last_id: u64,
    is_delayed: bool,
    outcome: Outcome,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let is_heavy = seed.is_multiple_of(HEAVY_EVERY);
        let publisher = Publisher::new(Random(random.next()), is_heavy, START_NS);
        let given: Vec<_> = publisher.tracks.iter().map(|_| Arc::default()).collect();
        let is_delayed = random.one_in(2);
        let settings = AudienceSettings {
            way: Some(match random.below(3) {
                0 => group::Way::Loop,
                _ => group::Way::Sendmmsg,
            }),
            delay_ns: if is_delayed { 20 * MS } else { 0 },
            is_next_awaited: random.one_in(4),
            bounds: Bounds {
                backlog_bytes_max: 1 << 20,
                stall_ns_max: 10 * SECOND,
            },
        };
        let tracks = publisher.tracks.iter().zip(&given);
        let tracks = tracks.map(|(track, given)| (track.rule, track.clock_hz, Arc::clone(given)));
        let mut simulation = Self {
            audience: Audience::new(tracks, settings),
            given,
            publisher,
            viewers: Vec::new(),
            keys: ChannelKeysInUse::default(),
            opened: Vec::new(),
            trouble_ns: START_NS + SECOND,
            held_until_ns: 0,
            now_ns: START_NS,
            lasted_ns: 0,
            last_id: 0,
            is_delayed,
            outcome: Outcome::default(),
            random,
        };
        for track in 0..simulation.publisher.tracks.len() {
            simulation.open(track, None);
        }
        let viewers = if is_heavy {
            2
        } else {
            1 + simulation.random.below(12)
        };
        for _ in 0..viewers {
            let random = Random(simulation.random.next());
            let tracks = &simulation.publisher.tracks;
            simulation
                .viewers
                .push(Viewer::new(random, tracks, START_NS));
        }
        simulation
    }

    /// Ports for viewers of a track, of those who share that key.
    fn open(&mut self, track: usize, shared: Option<Arc<ChannelKey>>) {
        let socket = || UdpSocket::bind((LOCAL, 0)).expect("loopback");
        let ports = ViewerPorts {
            track,
            local: (LOCAL, 0).into(),
            shared,
            sockets: [socket(), socket()],
        };
        self.audience.open(ports).expect("a group on loopback");
    }

    /// Trouble, then none, then nobody.
    fn run(mut self) -> Outcome {
        let lasts_ns = self.publisher.lasts_ns();
        self.run_until(START_NS + lasts_ns, true);
        self.publisher.stop();
        for at in 0..self.viewers.len() {
            self.settle(at);
        }
        // All that is left goes, as nothing new wakes the thread.
        self.run_until(self.now_ns + 30 * SECOND, false);
        assert_eq!(
            self.audience.due_in_ns(self.now_ns),
            None,
            "all has been sent"
        );
        for at in 0..self.viewers.len() {
            self.has_all(at);
        }
        for at in 0..self.viewers.len() {
            self.leave_for_good(at);
        }
        self.nothing_is_sent_to_nobody();
        Outcome {
            virtual_ns: self.lasted_ns,
            dropped: self.audience.dropped,
            ..self.outcome
        }
    }

    fn run_until(&mut self, until_ns: u64, is_troubled: bool) {
        loop {
            let next_ns = self.next_ns(is_troubled).max(self.now_ns);
            if next_ns > until_ns {
                self.lasted_ns += until_ns.saturating_sub(self.now_ns);
                self.now_ns = self.now_ns.max(until_ns);
                return;
            }
            self.lasted_ns += next_ns - self.now_ns;
            self.now_ns = next_ns;
            self.outcome.steps += 1;
            if is_troubled && self.trouble_ns <= next_ns {
                self.make_trouble();
            }
            self.turn(is_troubled);
        }
    }

    /// When the thread wakes, or anything else happens.
    fn next_ns(&self, is_troubled: bool) -> u64 {
        let wakes_ns = match self.audience.due_in_ns(self.now_ns) {
            // A step of no time at all would never end.
            Some(due_in_ns) => self.now_ns + due_in_ns.max(MS / 10),
            None => self.now_ns + IDLE_NS,
        };
        let viewers_ns = self.viewers.iter().map(|viewer| viewer.acts_ns);
        let own_ns = viewers_ns.fold(wakes_ns, u64::min);
        let own_ns = own_ns.min(self.publisher.next_ns()).max(self.held_until_ns);
        if is_troubled {
            own_ns.min(self.trouble_ns)
        } else {
            own_ns
        }
    }

    /// One round of the channel's thread: commands, what has come, what is due.
    fn turn(&mut self, is_troubled: bool) {
        let now_ns = self.now_ns;
        if now_ns < self.held_until_ns {
            return;
        }
        for at in 0..self.viewers.len() {
            if is_troubled && self.viewers[at].acts_ns <= now_ns {
                self.act(at);
            }
        }
        self.receive();
        self.audience.flush_due(now_ns);
        self.audience.send_backlogs(now_ns);
        self.hear();
        self.check_bounds();
    }

    fn receive(&mut self) {
        let mut count = 0;
        while let Some(come) = self.publisher.take(self.now_ns) {
            if come.is_other_publisher {
                self.audience.forget();
            }
            let fits = self
                .audience
                .give(come.track, come.bytes, (come.at_ns, self.now_ns));
            assert!(fits, "it is shorter than a group's packets may be");
            self.outcome.given += 1;
            count += 1;
            if count % READ_EVERY == 0 {
                self.audience.flush();
                self.hear();
            }
        }
        if !self.is_delayed {
            self.audience.flush();
        }
    }

    /// Viewers take what has come.
    fn hear(&mut self) {
        let (now_ns, dropped) = (self.now_ns, self.audience.dropped);
        for viewer in &mut self.viewers {
            let received = viewer.hear(&self.publisher.tracks, now_ns, dropped);
            self.outcome.received += received;
        }
    }

    /// What is kept has bounds, whatever comes.
    fn check_bounds(&self) {
        for track in &self.audience.tracks {
            let kept = track.recent.kept();
            assert!(kept.len() <= RECENT_PACKETS_MAX && track.recent.bytes() <= RECENT_BYTES_MAX);
            for shared in &track.shared {
                let images = shared.images().len();
                assert!(images <= RECENT_PACKETS_MAX, "{images} encrypted images");
            }
        }
        let viewers = || self.audience.viewers.all();
        for watched in viewers().flat_map(|viewer| &viewer.tracks) {
            let waits = watched.backlog_bytes();
            assert!(waits <= RECENT_BYTES_MAX, "{waits} bytes wait");
        }
        self.check_members();
    }

    /// Each group has those that are members of it, and who comes from groups alone is set apart.
    fn check_members(&self) {
        let viewers = || self.audience.viewers.all();
        let watched = viewers().flat_map(|viewer| &viewer.tracks);
        let members: Vec<_> = watched.filter(|watched| watched.is_member).collect();
        assert!(self.audience.members.are(members.iter().copied()));
        let places: BTreeSet<_> = members
            .iter()
            .map(|watched| match &watched.way {
                Way::Datagrams(local, to) => {
                    let key = watched.ports().map(Arc::as_ptr);
                    (watched.track, key, *local, *to)
                }
                Way::Frames(..) => panic!("a connection is member of no group"),
            })
            .collect();
        let receivers: usize = self.audience.lanes().map(Lane::receivers).sum();
        assert_eq!(receivers, places.len(), "members of groups");
        let busy = self.audience.viewers.busy();
        let joined = busy.filter(|viewer| viewer.tracks.iter().all(|it| it.is_member));
        assert_eq!(joined.count(), 0, "nothing is sent to them alone");
        let playing = viewers().filter(|viewer| !viewer.is_held).count();
        assert_eq!(self.audience.watching(), playing);
    }

    fn make_trouble(&mut self) {
        let now_ns = self.now_ns;
        self.trouble_ns = now_ns + (200 + self.random.below(4000)) * MS;
        match self.random.below(10) {
            0..3 => self.held_until_ns = now_ns + self.random.below(1000) * MS,
            3 => {
                let leap_ns = self.random.below(3600) * SECOND;
                self.now_ns += leap_ns;
                self.trouble_ns += leap_ns;
                self.publisher.leap(leap_ns);
                for viewer in &mut self.viewers {
                    viewer.acts_ns = viewer.acts_ns.saturating_add(leap_ns);
                }
            }
            _ => self.publisher.make_trouble(now_ns),
        }
    }

    /// Nobody is a member, and packets that come leave to nobody, encrypted for nobody.
    fn nothing_is_sent_to_nobody(&mut self) {
        assert_eq!(
            (
                self.audience.watching(),
                self.audience.viewers.all().count()
            ),
            (0, 0)
        );
        let members: usize = self.audience.lanes().map(Lane::receivers).sum();
        assert_eq!(members, 0, "members of groups");
        let (encrypted, packets) = (self.audience.encrypted(), self.packets_sent());
        self.publisher.go_on(self.now_ns);
        self.now_ns += SECOND;
        self.receive();
        self.audience.flush();
        self.audience.send_backlogs(self.now_ns);
        assert_eq!(self.audience.encrypted(), encrypted, "encrypted for nobody");
        assert_eq!(self.packets_sent(), packets, "sent to nobody");
        for viewer in &mut self.viewers {
            viewer.hears_nothing();
        }
    }

    fn packets_sent(&self) -> u64 {
        self.audience
            .lanes()
            .map(|lane| lane.counts().packets)
            .sum()
    }
}

impl Outcome {
    fn with(self, other: Self) -> Self {
        Self {
            virtual_ns: self.virtual_ns + other.virtual_ns,
            steps: self.steps + other.steps,
            given: self.given + other.given,
            received: self.received + other.received,
            came: self.came + other.came,
            paused: self.paused + other.paused,
            vanished: self.vanished + other.vanished,
            dropped: self.dropped + other.dropped,
        }
    }
}

#[test]
fn a_channels_simulation_keeps_all_that_is_promised() {
    let mut sum = Outcome::default();
    let seeds = run_seeds(|seed| sum = sum.with(Simulation::new(seed).run()));
    tell(seeds, sum.virtual_ns, &sum);
    assert!(
        seeds == 1 || sum.received > 10_000 && sum.came > 30,
        "{sum:?}"
    );
}
