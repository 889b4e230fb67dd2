//! The thread of a stream that is relayed in the kernel: it never sees a packet.
//!
//! A program at tc ingress gives packets to the members; here the members are told to it, and what
//! it counted is told to everybody else, as the [worker](super::worker) would.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use onrush_group::{Heard, Ingress, KernelError, Taken};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::receive::join_arrivals;
use onrush_wire::live::{self, Note};
use onrush_wire::rtp::StaticPayload;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use super::channel::{Channel, Command, MemberCounts, Playable, Stats};
use super::config::ChannelsConfig;
use super::input::Input;
use super::members::MEMBERS_MAX;
use super::outlet::wildcard;
use super::players::Seats;
use super::worker::ANYBODY;

/// Looks after a program.
#[derive(Debug)]
pub(super) struct KernelWorker {
    channel: Arc<Channel>,
    ingress: Ingress,
    silence_ns: u64,
    /// Outlets of members by the IP version's wildcard, and of players by our address.
    members: BTreeMap<IpAddr, usize>,
    players: BTreeMap<IpAddr, usize>,
    seats: Seats,
    silences: u64,
    is_silent: bool,
    /// Who is refused, as told last.
    other: Option<SocketAddr>,
    told: Stats,
    /// Holds the port, and the membership of a group: nothing comes to it.
    _socket: UdpSocket,
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
            seats: Seats::default(),
            silences: 0,
            is_silent: false,
            other: None,
            told: Stats::default(),
            _socket: socket,
        })
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        loop {
            for command in self.channel.commands() {
                if matches!(command, Command::Stop) {
                    self.look();
                    return self.channel.publish_last(&self.told);
                }
                if let Err(error) = self.apply(command) {
                    warn!("source {}: {error}", self.channel.name());
                }
            }
            self.ingress.poll();
            self.look();
            self.channel.publish(&self.told);
            self.wait();
        }
    }

    fn wait(&self) {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: REST_NS,
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
            Command::OpenPlayers(local, socket) => {
                let outlet = self.ingress.outlet(socket)?;
                self.players.insert(local, outlet);
            }
            Command::AddPlayer(local, player) => {
                self.seats.take(local, player);
                if let Some(&outlet) = self.players.get(&local) {
                    self.ingress.add(outlet, player);
                }
            }
            Command::RemovePlayer(local, player) => self.remove_player(local, player),
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
            Command::Stop => {}
        }
        Ok(())
    }

    fn remove_player(&mut self, local: IpAddr, player: SocketAddr) {
        if self.seats.leave(local, player)
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

    /// Reads the program's counters, and says what is odd.
    fn look(&mut self) {
        let (name, before) = (self.channel.name().to_owned(), self.told.heard);
        let heard = match self.ingress.heard() {
            Ok(heard) => heard,
            Err(error) => return warn!("source {name}: {error}"),
        };
        self.note(&name, &heard, &before);
        self.tell(&heard);
    }

    /// What only a change of the counters tells.
    fn note(&mut self, name: &str, heard: &Heard, before: &live::Heard) {
        let silent_ns = monotonic_ns().saturating_sub(heard.arrived_ns);
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
        for (now, then, what) in [
            (heard.missing, before.missing, "packets are missing"),
            (
                heard.behind,
                before.behind,
                "packets came again or out of order",
            ),
            (
                heard.restarts,
                before.restarts,
                "times its numbers began anew",
            ),
            (
                heard.source_changes,
                before.source_changes,
                "times its sender changed",
            ),
            (
                heard.ssrc_changes,
                before.ssrc_changes,
                "times it became another RTP stream",
            ),
        ] {
            if now > then {
                warn!("source {name}: {} {what}", now - then);
            }
        }
    }

    fn tell(&mut self, heard: &Heard) {
        self.told.heard = live::Heard {
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
        let told = &mut self.told;
        told.is_heard = heard.datagrams > 0 && !self.is_silent;
        told.from = heard.from;
        told.playable = heard
            .last_rtp
            .map(|(payload_type, ssrc, timestamp)| Playable {
                ssrc,
                payload: StaticPayload::of(payload_type).ok_or(payload_type),
                last: (timestamp, heard.arrived_ns),
            });
        told.trains = heard.passes;
        told.packets = heard.clones.saturating_sub(heard.refused);
        told.refused = heard.refused;
        let mean_bytes = heard.bytes.checked_div(heard.datagrams).unwrap_or(0);
        told.bytes = told.packets * mean_bytes;
        told.played = (heard.rtp, heard.rtp * mean_bytes);
        let of = |outlets: &BTreeMap<IpAddr, usize>| -> usize {
            outlets
                .values()
                .map(|&outlet| self.ingress.len(outlet))
                .sum()
        };
        told.members = of(&self.members);
        told.players = of(&self.players);
    }
}

fn unspecified(is_ipv4: bool) -> IpAddr {
    if is_ipv4 {
        IpAddr::from([0; 4])
    } else {
        IpAddr::from([0_u16; 8])
    }
}

/// Between two looks.
const REST_NS: i64 = 20_000_000;
