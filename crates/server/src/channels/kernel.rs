//! The thread of a stream that is relayed in the kernel: it never sees a packet.
//!
//! A program at tc ingress gives packets to the members. This thread writes the members into the
//! program's maps and publishes what it counted, as the [worker](super::worker) does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use onrush_group::{Heard, Ingress, KernelError, Taken};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::receive::join_arrivals;
use onrush_wire::live::{self, Note};
use onrush_wire::rtp::HEADER_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::channel::{Channel, Command, MemberCounts, Stats};
use super::config::ChannelsConfig;
use super::input::Input;
use super::members::MEMBERS_MAX;
use super::outlet::{unspecified, wildcard};
use super::players::Players;
use super::viewing::{ViewerCommand, ViewerTrack, Way};
use super::worker::ANYBODY;

/// Controls the program of a stream.
#[derive(Debug)]
pub(super) struct KernelWorker {
    channel: Arc<Channel>,
    ingress: Ingress,
    silence_ns: u64,
    /// Outlets of members by the IP version's wildcard, and of players by our address.
    members: BTreeMap<SocketAddr, usize>,
    players: BTreeMap<SocketAddr, usize>,
    sessions: Players,
    /// By the numbers of their sessions, and whether they play.
    viewers: BTreeMap<u64, (ViewerTrack, bool)>,
    silences: u64,
    is_silent: bool,
    /// Who is refused, as logged last.
    other: Option<SocketAddr>,
    said: Said,
    stats: Stats,
    arrivals: Arrivals,
    /// Who waits until the members are placed.
    settled: Vec<oneshot::Sender<()>>,
    /// Holds the port, and the membership of a group: nothing comes to it.
    _socket: UdpSocket,
}

/// Counters of anomalies as they were logged last, and when that was.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    counts: [u64; ANOMALIES.len()],
    at_ns: u64,
}

/// Datagrams that came between two readings of the counters, and their bytes. Of packets that left
/// it is only counted how many they were.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    datagrams: u64,
    bytes: u64,
}

impl KernelWorker {
    /// Loads and attaches the program. The calling thread must be in the network namespace of
    /// `socket`.
    pub(super) fn open(
        channel: Arc<Channel>,
        socket: UdpSocket,
        config: &ChannelsConfig,
    ) -> Result<Self, KernelError> {
        let Input {
            address,
            source,
            interface,
        } = channel.input();
        let taken = Taken {
            address: *address,
            sender: *source,
            sender_kept_ns: config.sender_kept_ns(channel.input()),
        };
        // Nothing comes to this socket, but the kernel looks at it when it joins what has come.
        if let Err(error) = join_arrivals(&socket) {
            info!(
                "source {}: packets are not joined where they arrive: {error}",
                channel.name()
            );
        }
        let ingress = Ingress::open(&taken, interface.as_deref(), MEMBERS_MAX)?;
        let devices = ingress.devices().join(", ");
        info!(
            "source {}: replicated at tc ingress of {devices}",
            channel.name()
        );
        Ok(Self {
            channel,
            ingress,
            silence_ns: u64::try_from(config.silence.as_nanos()).unwrap_or(u64::MAX),
            members: BTreeMap::new(),
            players: BTreeMap::new(),
            sessions: Players::default(),
            viewers: BTreeMap::new(),
            silences: 0,
            is_silent: false,
            other: None,
            said: Said::default(),
            stats: Stats::default(),
            arrivals: Arrivals::default(),
            settled: Vec::new(),
            _socket: socket,
        })
    }

    /// Runs until [`Command::Stop`].
    pub(super) fn run(mut self) {
        loop {
            for command in self.channel.commands() {
                if matches!(command, Command::Stop) {
                    // First: what it takes meanwhile counts, too.
                    self.ingress.detach();
                    // What is not logged yet is now.
                    self.said.at_ns = 0;
                    self.read_counters();
                    return self.channel.publish_last(&self.stats);
                }
                if let Err(error) = self.apply(command) {
                    warn!("source {}: {error}", self.channel.name());
                }
            }
            self.ingress.poll();
            if self.ingress.is_settled() {
                for answer in self.settled.drain(..) {
                    // Who asked may have gone.
                    answer.send(()).unwrap_or_default();
                }
            }
            self.read_counters();
            self.channel.publish(&self.stats);
            self.wait();
        }
    }

    fn wait(&self) {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: WAIT_NS,
        };
        let mut awaited = [PollFd::from_borrowed_fd(
            self.channel.waker().as_fd(),
            PollFlags::IN,
        )];
        // A signal only makes the round come early.
        poll(&mut awaited, Some(&timeout)).ok();
    }

    fn apply(&mut self, command: Command) -> io::Result<()> {
        match command {
            Command::SetMembers(members) => {
                let (v4, v6): (Vec<_>, Vec<_>) = members.iter().partition(|m| m.is_ipv4());
                for (is_ipv4, members) in [(true, v4), (false, v6)] {
                    if !members.is_empty() || self.members.contains_key(&unspecified(is_ipv4)) {
                        let outlet = self.outlet(is_ipv4)?;
                        self.ingress.set_members(outlet, members);
                    }
                }
            }
            Command::AddMembers(members) => {
                for member in members {
                    let outlet = self.outlet(member.is_ipv4())?;
                    self.ingress.add(outlet, member);
                }
            }
            Command::RemoveMembers(members) => {
                for member in members {
                    let outlet = self.outlet(member.is_ipv4())?;
                    self.ingress.remove(outlet, member);
                }
            }
            Command::Viewer(command) => self.apply_for_viewers(command)?,
            // No packet comes here.
            Command::Tap(tap) => tap.close(),
            Command::CountMembers(answer) => {
                let outlets = self.members.values();
                let all = outlets.flat_map(|&outlet| self.ingress.member_counters(outlet));
                let all = all.map(|(address, counters)| MemberCounts {
                    address,
                    packets: counters.packets,
                    refused: counters.refused,
                });
                // Who asked may have gone.
                drop(answer.send(all.collect()));
            }
            Command::Settle(answer) => self.settled.push(answer),
            // The program takes what that of the process before does not.
            Command::Receive | Command::Stop => {}
        }
        Ok(())
    }

    /// Nothing is kept here that a player could begin with.
    fn apply_for_viewers(&mut self, command: ViewerCommand) -> io::Result<()> {
        match command {
            ViewerCommand::Open(ports) => {
                let [of_group, _] = ports.sockets;
                let outlet = self.ingress.outlet(of_group)?;
                self.players.insert(ports.local, outlet);
            }
            ViewerCommand::Prepare(id, tracks, answer) => {
                self.leave(id);
                // Who asked may have gone.
                drop(answer.send(tracks.iter().map(|_| None).collect()));
                if let Some(track) = tracks.into_iter().next() {
                    self.viewers.insert(id, (track, false));
                }
            }
            ViewerCommand::Start(id) => {
                let Some((track, has_joined)) = self.viewers.get_mut(&id) else {
                    return Ok(());
                };
                if let (Way::Datagrams(local, player), false) = (&track.way, *has_joined) {
                    *has_joined = true;
                    track.viewing.join(&self.channel.given);
                    self.sessions.add(*local, *player);
                    if let Some(&outlet) = self.players.get(local) {
                        self.ingress.add(outlet, *player);
                    }
                }
            }
            ViewerCommand::Leave(id) => self.leave(id),
        }
        Ok(())
    }

    fn leave(&mut self, id: u64) {
        if let Some((track, true)) = self.viewers.remove(&id)
            && let Way::Datagrams(local, player) = track.way
        {
            track.viewing.part(&self.channel.given);
            self.remove_player(local, player);
        }
    }

    fn remove_player(&mut self, local: SocketAddr, player: SocketAddr) {
        if self.sessions.remove(local, player)
            && let Some(&outlet) = self.players.get(&local)
        {
            self.ingress.remove(outlet, player);
        }
    }

    /// The outlet for members of an IP version, opened with the first of them.
    fn outlet(&mut self, is_ipv4: bool) -> io::Result<usize> {
        match self.members.entry(unspecified(is_ipv4)) {
            Entry::Occupied(entry) => Ok(*entry.get()),
            Entry::Vacant(entry) => Ok(*entry.insert(self.ingress.outlet(wildcard(is_ipv4)?)?)),
        }
    }

    /// Reads the program's counters, and logs anomalies.
    fn read_counters(&mut self) {
        let (name, before) = (self.channel.name().to_owned(), self.stats.heard);
        let heard = match self.ingress.heard() {
            Ok(heard) => heard,
            Err(error) => return warn!("source {name}: {error}"),
        };
        self.log_changes(&name, &heard, &before);
        self.update_stats(&heard);
    }

    /// Logs what a change of the counters shows.
    fn log_changes(&mut self, name: &str, heard: &Heard, before: &live::Heard) {
        let now_ns = monotonic_ns();
        let silent_ns = now_ns.saturating_sub(heard.arrived_ns);
        let is_silent = heard.datagrams > 0 && silent_ns >= self.silence_ns;
        if is_silent && !self.is_silent {
            self.silences += 1;
            warn!("source {name} is silent");
        } else if self.is_silent && !is_silent {
            info!("source {name} is back after a silence");
        }
        self.is_silent = is_silent;
        if let (0, Some(from)) = (before.datagrams, heard.from) {
            info!("source {name} comes from {from}");
        }
        if let (Some(from), Some(kept)) = (heard.other, heard.from)
            && heard.other != self.other
        {
            let note = Note::Refused { from, kept };
            warn!("source {name} {note}; {ANYBODY}");
        }
        self.other = heard.other;
        for (more, what) in self.said.risen(heard, now_ns) {
            warn!("source {name}: {more} {what}");
        }
    }

    fn update_stats(&mut self, heard: &Heard) {
        self.arrivals = self.arrivals.since(&self.stats.heard, heard);
        self.arrivals.count_sent(heard, &mut self.stats);
        self.stats.heard = live::Heard {
            datagrams: heard.datagrams,
            bytes: heard.bytes,
            rtp: heard.rtp,
            transport_streams: heard.transport_streams,
            missing: heard.missing,
            behind: heard.behind,
            restarts: heard.restarts,
            source_changes: heard.source_changes,
            ssrc_changes: heard.ssrc_changes,
            silences: self.silences,
            from_others: heard.from_others,
        };
        let stats = &mut self.stats;
        stats.is_heard = heard.datagrams > 0 && !self.is_silent;
        stats.from = heard.from;
        stats.playable = heard.last_rtp.map(|last| {
            let packet = (last.payload_type, last.ssrc, last.timestamp);
            self.channel.playable(packet, heard.arrived_ns)
        });
        stats.trains = heard.passes;
        stats.refused = heard.refused;
        self.channel.given.set(stats.played);
        let of = |outlets: &BTreeMap<SocketAddr, usize>| -> usize {
            outlets
                .values()
                .map(|&outlet| self.ingress.len(outlet))
                .sum()
        };
        stats.members = of(&self.members);
        stats.players = of(&self.players);
    }
}

impl Said {
    /// What has risen, and by how much; nothing for a while after there was something.
    fn risen(&mut self, heard: &Heard, now_ns: u64) -> Vec<(u64, &'static str)> {
        if now_ns.saturating_sub(self.at_ns) < LOG_EVERY_NS {
            return Vec::new();
        }
        let counts = [
            heard.missing,
            heard.behind,
            heard.restarts,
            heard.source_changes,
            heard.ssrc_changes,
        ];
        let before = std::mem::replace(&mut self.counts, counts);
        let more = counts.iter().zip(before).zip(ANOMALIES);
        let more = more.map(|((now, then), what)| (now.saturating_sub(then), what));
        let risen: Vec<_> = more.filter(|it| it.0 > 0).collect();
        if !risen.is_empty() {
            self.at_ns = now_ns;
        }
        risen
    }
}

impl Arrivals {
    /// Those since `before`; if nothing has come since, what still leaves is of these.
    fn since(self, before: &live::Heard, heard: &Heard) -> Self {
        match heard.datagrams.saturating_sub(before.datagrams) {
            0 => self,
            datagrams => Self {
                datagrams,
                bytes: heard.bytes.saturating_sub(before.bytes),
            },
        }
    }

    /// Bytes of so many packets, if they have the mean length of these.
    fn bytes_of(self, packets: u64) -> u64 {
        let bytes = u128::from(packets) * u128::from(self.bytes);
        u64::try_from(bytes / u128::from(self.datagrams.max(1))).unwrap_or(u64::MAX)
    }

    /// Counts what has left since `stats`. Counters are not read all at once, and what is made of
    /// them never falls.
    fn count_sent(self, heard: &Heard, stats: &mut Stats) {
        let sent = heard.clones.saturating_sub(heard.refused);
        let sent = sent.saturating_sub(stats.packets);
        stats.packets += sent;
        stats.bytes += self.bytes_of(sent);
        let played = &mut stats.played;
        let given = heard.rtp.saturating_sub(played.packets);
        played.packets += given;
        let header_bytes = given * HEADER_BYTES as u64;
        played.payload_bytes += self.bytes_of(given).saturating_sub(header_bytes);
    }
}

/// Between two readings of the counters.
const WAIT_NS: i64 = 20_000_000;

/// Anomalies are logged so often at the most.
const LOG_EVERY_NS: u64 = 1_000_000_000;

/// What is said of so many of each.
const ANOMALIES: [&str; 5] = [
    "packets are missing",
    "packets came again or out of order",
    "times its numbers began anew",
    "times its sender changed",
    "times it became another RTP stream",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anomalies_are_said_once_a_second() {
        let mut said = Said::default();
        let mut risen = |missing, restarts, now_ms: u64| -> Vec<u64> {
            let heard = Heard {
                missing,
                restarts,
                ..Heard::default()
            };
            let risen = said.risen(&heard, now_ms * 1_000_000);
            risen.iter().map(|it| it.0).collect()
        };
        assert_eq!(risen(2, 0, 5000), [2]);
        for round in 1..50 {
            assert!(risen(2 + round, round, 5000 + 20 * round).is_empty());
        }
        assert_eq!(risen(52, 50, 6000), [50, 50]);
        assert!(risen(52, 50, 7000).is_empty());
        assert_eq!(risen(53, 50, 7020), [1]);
    }

    #[test]
    fn bytes_that_left_have_the_mean_of_their_time() {
        let (mut stats, mut arrivals) = (Stats::default(), Arrivals::default());
        let mut read = |(datagrams, bytes), clones| {
            let heard = Heard {
                datagrams,
                bytes,
                rtp: datagrams,
                clones,
                ..Heard::default()
            };
            arrivals = arrivals.since(&stats.heard, &heard);
            arrivals.count_sent(&heard, &mut stats);
            (stats.heard.datagrams, stats.heard.bytes) = (datagrams, bytes);
            (stats.packets, stats.bytes, stats.played.payload_bytes)
        };
        // Ten of 1328 bytes, to a thousand members.
        assert_eq!(
            read((10, 13_280), 10_000),
            (10_000, 13_280_000, 10 * (1328 - 12))
        );
        // A hundred of 212, when all have gone.
        let payload_bytes = 10 * (1328 - 12) + 100 * (212 - 12);
        let before = (10_000, 13_280_000, payload_bytes);
        assert_eq!(read((110, 34_480), 10_000), before);
        // Two that were on their way leave when nothing comes any more.
        let after = (10_002, 13_280_000 + 2 * 212, payload_bytes);
        assert_eq!(read((110, 34_480), 10_002), after);
        assert_eq!(read((110, 34_480), 10_001), after, "no counter falls");
    }
}
