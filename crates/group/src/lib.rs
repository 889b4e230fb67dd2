//! Group unicast: one send, the same bytes to every member of a group.
//!
//! The paper (Karsten, Song, Kwok, Brecht: *Efficient Operating System Support for Group Unicast*)
//! gave the kernel a socket option, `SO_SETSENDGRP`, and let `send` replicate. A stock kernel has
//! neither, but it has what both are made of. A [`Group`] owns a UDP socket and a list of members;
//! what is sent goes to each of them once, by one of four ways that keep one contract:
//!
//! | way | who replicates | crossings a send |
//! |---|---|---|
//! | [`Way::Kernel`] | an eBPF program at the device clones the packet | one for many members |
//! | [`Way::Uring`] | the ring, from registered memory | one for a batch of members |
//! | [`Way::Sendmmsg`] | the kernel's loop over messages | one for a batch of members |
//! | [`Way::Loop`] | ours over `sendto`: the paper's user-groupcast | one a member and packet |
//!
//! A group is changed and sent to through `&mut`, so a send sees the old group or the new one and
//! never a mixture. A member that cannot be sent to is counted, with its error, and keeps nobody
//! waiting: every send is `MSG_DONTWAIT`. Only who wants memory back that was sent from
//! ([`Group::area_mut`], [`Group::send_cached`]) waits for it. TCP connections have a
//! [`StreamGroup`]. Not here: who the members are, pace, retransmission, and any answer from a
//! member.

#![warn(clippy::missing_errors_doc)]

mod agent;
mod arrival;
mod bpf;
mod cached;
mod chosen;
mod device;
mod direct;
mod error;
mod ingress;
mod kernel;
mod lane;
mod lane_key;
mod making;
mod members;
mod netlink;
mod netns;
mod network;
mod placed;
mod serving;
mod streams;
mod table;
mod targets;
mod train;
mod unacknowledged;
mod uring;

use std::fmt;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;

pub use agent::{Agent, AgentOptions, SOCKET_MEMBERS_MAX, TARGETS_MAX};
pub use arrival::{Heard, RtpPacket, Taken};
use cached::Cached;
use chosen::{Chosen, choose_without_program};
pub use device::GROUPS_MAX;
use direct::{Direct, Slots, SocketBefore};
pub use error::{AgentError, GroupError, KernelError, StreamError};
pub use ingress::Ingress;
use kernel::Kernel;
pub use kernel::LANES_MAX;
use members::Members;
use onrush_lock::Budget;
use onrush_lock::memory::Area;
pub use streams::{StreamCounters, StreamEnd, StreamGroup, StreamId, StreamOptions};
use train::Train;
use uring::Uring;
pub use uring::UringError;

/// Members that a group may be opened for.
pub const MEMBERS_MAX: usize = 131_072;

/// Connections that a group of streams may be opened for.
pub const STREAMS_MAX: usize = 16_384;

/// A UDP socket whose sends go to every member.
pub struct Group {
    socket: UdpSocket,
    before: SocketBefore,
    way: Way,
    reason: String,
    members: Members,
    sender: Sender,
    area: Option<Area>,
    cached: Option<Box<Cached>>,
    cache_budget: Budget,
    sends: u64,
    sent: Sent,
}

/// Who sends.
enum Sender {
    Chosen(Box<Chosen>),
    Direct(Direct),
    Kernel(Box<Kernel>),
    Uring(Box<Uring>),
}

/// A way to replicate, best first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Way {
    /// A program at the sending device clones one packet for all members behind that device.
    Kernel,
    /// A batch of zero-copy sends from registered memory.
    Uring,
    /// `sendmmsg`, with UDP_SEGMENT for trains.
    Sendmmsg,
    /// `sendto` for each member and packet.
    Loop,
}

/// What can be chosen about a group.
#[derive(Clone, Debug)]
pub struct Options {
    /// This way, or none: a way asked for by name runs as itself or not at all. `None` takes
    /// [`Way::Kernel`] where it opens, and else the cheapest of the others, measured while it
    /// sends.
    pub way: Option<Way>,
    /// Members at once, at most; up to [`MEMBERS_MAX`].
    pub members_max: usize,
    /// Bytes of the area that [`Group::send_registered`] sends from; 0 for none.
    pub area_bytes: usize,
}

/// What became of a send, in packets: a train counts each of its own, for each member.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Sent {
    /// Taken by the kernel.
    pub packets: u64,
    /// Refused; [`Group::member_counters`] tells for whom and why.
    pub refused: u64,
}

/// What a group has done so far, members that have left included.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Calls of [`Group::send`] and its like.
    pub sends: u64,
    /// Packets taken by the kernel.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// Entries into the kernel that sent.
    pub crossings: u64,
    /// Trains that were refused whole and sent as single packets instead.
    pub trains_cut: u64,
    /// Members that the program replicates to at the moment; the others are sent to by `sendmmsg`.
    pub members_in_lanes: usize,
    /// Sends, each to a member, that the ring made without a copy, as the kernel has reported so
    /// far.
    pub zero_copy: u64,
    /// Sends from registered memory that the kernel copied all the same.
    pub copied: u64,
    /// Packets, or whole trains, that the program has cloned.
    pub clones: u64,
    /// Packets, or whole trains, that were cloned for many members.
    pub passes: u64,
    /// Those that did not reach the program, so that their members were sent to by `sendmmsg`.
    pub passes_missed: u64,
}

/// What was sent to a member since it joined.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MemberCounters {
    /// Packets taken by the kernel.
    pub packets: u64,
    /// Packets refused by it.
    pub refused: u64,
    /// The errno of the last that was refused; 0 if none was.
    pub errno_last: i32,
}

impl Group {
    /// A group without members on `socket`, which it owns from now on: nobody else should send on
    /// it. Of a descriptor that somebody has kept UDP_SEGMENT and SO_SNDBUF are again what they
    /// were when the group goes.
    ///
    /// # Errors
    ///
    /// If the way that `options` asks for is not available here, or the socket cannot be used.
    /// Without a way asked for, [`Way::Loop`] always is.
    pub fn open(socket: UdpSocket, options: &Options) -> Result<Self, GroupError> {
        Self::open_by(socket, options, choose)
    }

    fn open_by(
        socket: UdpSocket,
        options: &Options,
        choose: fn(&UdpSocket, &Options) -> Choice,
    ) -> Result<Self, GroupError> {
        let members_max = options.members_max;
        if members_max > MEMBERS_MAX {
            return Err(GroupError::OptionMembersMax { members_max });
        }
        let local = socket.local_addr().map_err(GroupError::Socket)?;
        let members = Members::new(local, members_max);
        let before = SocketBefore::of(&socket);
        let chosen = choose(&socket, options).inspect_err(|_| before.restore(&socket));
        let (way, reason, sender) = chosen?;
        // The ring holds the memory that it has registered.
        let area = match sender.uring() {
            Some(_) => None,
            None => map_area(options).inspect_err(|_| before.restore(&socket))?,
        };
        Ok(Self {
            socket,
            before,
            way,
            reason,
            members,
            sender,
            area,
            cached: None,
            cache_budget: cached::BUDGET,
            sends: 0,
            sent: Sent::default(),
        })
    }

    /// Replaces the whole group in one step. Who is named twice is a member once. All counters of
    /// members begin at nothing.
    ///
    /// This is what became of the paper's `setsockopt(SO_SETSENDGRP)`: a stock kernel has no such
    /// option, so the list is ours, and by [`Way::Kernel`] it is written to memory that the program
    /// at the device reads; no system call is made. [`Group::add`] and [`Group::remove`], which the
    /// paper left open, cost one member.
    ///
    /// # Errors
    ///
    /// If there are too many or one cannot be reached from this socket's family; the old group
    /// stays.
    pub fn set_members(&mut self, addresses: &[SocketAddr]) -> Result<(), GroupError> {
        self.members.replace(addresses)?;
        if let Sender::Kernel(kernel) = &mut self.sender {
            kernel.replace(&self.socket, &self.members);
        }
        Ok(())
    }

    /// Adds a member; whether it was none before. By [`Way::Kernel`] it waits for nothing: where
    /// the group is not at the member's device yet, it is entered there by another thread.
    ///
    /// # Errors
    ///
    /// As [`Group::set_members`].
    pub fn add(&mut self, address: SocketAddr) -> Result<bool, GroupError> {
        let is_new = self.members.add(address)?;
        if is_new && let Sender::Kernel(kernel) = &mut self.sender {
            kernel.add(&self.socket, &self.members);
        }
        Ok(is_new)
    }

    /// Removes a member; whether it was one.
    pub fn remove(&mut self, address: SocketAddr) -> bool {
        let Some(slot) = self.members.slot_of(address) else {
            return false;
        };
        if let Sender::Kernel(kernel) = &mut self.sender {
            kernel.remove(&mut self.members, slot);
        }
        self.members.remove(slot);
        true
    }

    /// Sends one datagram to every member.
    ///
    /// # Errors
    ///
    /// If no datagram is that long. What goes wrong with a member is counted, not returned.
    pub fn send(&mut self, bytes: &[u8]) -> Result<Sent, GroupError> {
        self.send_train(bytes, bytes.len().max(1))
    }

    /// Sends a train to every member: packets of `stride` bytes, the last may be shorter.
    ///
    /// # Errors
    ///
    /// As [`Group::send`].
    pub fn send_train(&mut self, bytes: &[u8], stride: usize) -> Result<Sent, GroupError> {
        let train = Train::new(bytes, stride)?;
        let sent = self.sender.send(&self.socket, &mut self.members, train);
        self.sends += 1;
        self.sent.add(sent);
        Ok(sent)
    }

    /// Sends a train that lies in the area, without a copy where the way can.
    ///
    /// # Errors
    ///
    /// As [`Group::send`], and if the area has no such bytes.
    pub fn send_registered(
        &mut self,
        range: Range<usize>,
        stride: usize,
    ) -> Result<Sent, GroupError> {
        let (start, length) = self.area_range(&range)?;
        // SAFETY: `area_range` has seen that the range lies within the area, which is mapped,
        // initialised (zeroed by the kernel) and lives as long as `self`. It is written through
        // `area_mut` alone, whose borrow has ended.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast_const(), length) };
        self.send_train(bytes, stride)
    }

    /// Part of the area, to be written. It waits until the kernel has let go of what was sent from
    /// the area. By [`Way::Uring`] that takes some 3 s if a member is on the link and its address
    /// does not resolve, for so long the kernel keeps what it was sent; who cannot wait sends other
    /// memory by [`Group::send_train`].
    ///
    /// # Errors
    ///
    /// If the area has no such bytes.
    pub fn area_mut(&mut self, range: Range<usize>) -> Result<&mut [u8], GroupError> {
        let (start, length) = self.area_range(&range)?;
        if let Some(uring) = self.sender.uring_mut() {
            uring.settle();
        }
        // SAFETY: `area_range` has seen that the range lies within the area, which is mapped
        // writable and lives as long as `self`. The group has the area's only handle and gives out
        // references to it through `&mut self` alone, so that this one is alone as long as it
        // lives.
        Ok(unsafe { std::slice::from_raw_parts_mut(start, length) })
    }

    fn area_range(&self, range: &Range<usize>) -> Result<(*mut u8, usize), GroupError> {
        let area = match self.sender.uring() {
            Some(uring) => uring.area.as_ref(),
            None => self.area.as_ref(),
        };
        let area_bytes = area.map_or(0, Area::bytes_total);
        let (start, end) = (range.start, range.end);
        let Some(area) = area.filter(|_| start <= end && end <= area_bytes) else {
            return Err(GroupError::Outside {
                start,
                end,
                area_bytes,
            });
        };
        Ok((area.base().as_ptr().wrapping_add(start), end - start))
    }

    /// The way it sends, or sent last where it was not asked for one and has the choice.
    #[must_use]
    pub fn way(&self) -> Way {
        match &self.sender {
            Sender::Chosen(chosen) => chosen.way,
            _ => self.way,
        }
    }

    /// Why it sends that way, in words.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How many members it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether it has no members.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.len() == 0
    }

    /// The members, in no order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = SocketAddr> + '_ {
        self.members.addresses()
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Sent { packets, refused } = self.sent;
        let direct = self.sender.direct();
        let mut counters = Counters {
            sends: self.sends,
            packets,
            refused,
            crossings: direct.crossings,
            trains_cut: direct.trains_cut,
            ..Counters::default()
        };
        if let Sender::Kernel(kernel) = &self.sender {
            (counters.clones, counters.members_in_lanes) = kernel.clones();
            (counters.passes, counters.passes_missed) = (kernel.passes, kernel.passes_missed);
        }
        if let Some(uring) = self.sender.uring() {
            (counters.zero_copy, counters.copied) = (uring.sends.zero_copy, uring.sends.copied);
        }
        if let Some((zero_copy, copied)) = self.cached.as_ref().map(|cached| cached.usage()) {
            counters.zero_copy += zero_copy;
            counters.copied += copied;
        }
        counters
    }

    /// What was sent to a member since it joined; `None` if it is none.
    #[must_use]
    pub fn member_counters(&self, address: SocketAddr) -> Option<MemberCounters> {
        let slot = self.members.slot_of(address)?;
        let mut counters = self.members.counters(slot);
        if let Sender::Kernel(kernel) = &self.sender {
            counters.add(kernel.counters(slot));
        }
        Some(counters)
    }
}

impl Sender {
    fn send(&mut self, socket: &UdpSocket, members: &mut Members, train: Train<'_>) -> Sent {
        match self {
            Self::Direct(direct) => {
                let all = Slots::All(members.len());
                direct.send(socket.as_raw_fd(), members, all, train)
            }
            Self::Chosen(chosen) => chosen.send(socket.as_raw_fd(), members, train),
            Self::Kernel(kernel) => kernel.send(socket, members, train),
            Self::Uring(uring) => uring.send(socket.as_raw_fd(), members, train),
        }
    }

    fn uring(&self) -> Option<&Uring> {
        match self {
            Self::Chosen(chosen) => chosen.uring(),
            Self::Uring(uring) => Some(uring),
            Self::Direct(_) | Self::Kernel(_) => None,
        }
    }

    fn uring_mut(&mut self) -> Option<&mut Uring> {
        match self {
            Self::Chosen(chosen) => chosen.uring_mut(),
            Self::Uring(uring) => Some(uring),
            Self::Direct(_) | Self::Kernel(_) => None,
        }
    }

    fn direct(&self) -> &Direct {
        match self {
            Self::Chosen(chosen) => chosen.direct(),
            Self::Direct(direct) => direct,
            Self::Kernel(kernel) => &kernel.direct,
            Self::Uring(uring) => &uring.direct,
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.before.restore(&self.socket);
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("socket", &self.socket)
            .field("way", &self.way)
            .field("members", &self.members.len())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

impl Sent {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.refused += other.refused;
    }
}

impl MemberCounters {
    fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.refused += other.refused;
        if other.refused > 0 {
            self.errno_last = other.errno_last;
        }
    }
}

impl Way {
    /// All, best first.
    pub const ALL: [Self; 4] = [Self::Kernel, Self::Uring, Self::Sendmmsg, Self::Loop];

    /// Its name everywhere.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Uring => "uring",
            Self::Sendmmsg => "sendmmsg",
            Self::Loop => "loop",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|way| way.as_str() == name)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::as_str).join(", ");
                format!("no way is named {name:?}; there are {names}")
            })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            way: None,
            members_max: 16_384,
            area_bytes: 0,
        }
    }
}

/// A way, why it is that one, and who sends by it.
type Choice = Result<(Way, String, Sender), GroupError>;

fn choose(socket: &UdpSocket, options: &Options) -> Choice {
    if let Some(way) = options.way {
        return Ok((way, "asked for".to_owned(), open_way(socket, way, options)?));
    }
    match open_way(socket, Way::Kernel, options) {
        Ok(sender) => Ok((Way::Kernel, "the best there is".to_owned(), sender)),
        Err(error) => {
            let (way, reason, sender) = choose_without_program(socket, options)?;
            Ok((way, format!("not kernel: {error}; {reason}"), sender))
        }
    }
}

fn open_way(socket: &UdpSocket, way: Way, options: &Options) -> Result<Sender, GroupError> {
    Ok(match way {
        Way::Kernel => {
            let direct = Direct::sendmmsg(socket)?;
            let kernel = Kernel::open(socket, direct, options.members_max)?;
            Sender::Kernel(Box::new(kernel))
        }
        Way::Uring => {
            let area = map_area(options)?;
            Sender::Uring(Box::new(Uring::open(Direct::sendmmsg(socket)?, area)?))
        }
        Way::Sendmmsg => Sender::Direct(Direct::sendmmsg(socket)?),
        Way::Loop => Sender::Direct(Direct::by_loop(socket.as_raw_fd())?),
    })
}

fn map_area(options: &Options) -> Result<Option<Area>, GroupError> {
    let bytes = options.area_bytes;
    Ok((bytes > 0).then(|| Area::map(bytes)).transpose()?)
}

#[cfg(test)]
mod tests;

/// The example of the README is compiled and run with the other doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
