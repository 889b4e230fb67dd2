//! Where a track's reports go, and whose come back: two UDP ports, a channel of the connection, or
//! a multicast group, whose sender reports are its own.

use std::io;
use std::net::IpAddr;

use onrush_wire::rtsp::ServedAt;

use super::group::GroupSlot;
use super::interleaving::ChannelSlot;
use super::ports::PortPairSlot;

/// What a track has for its reports.
#[derive(Debug)]
pub(super) enum Reports {
    Ports(PortPairSlot),
    Channel(ChannelSlot),
    Group(GroupSlot),
}

impl Reports {
    /// From now on what the client says is told with this number.
    pub(super) fn belongs_to(&self, owner: u64) {
        match self {
            Self::Ports(ports) => ports.belongs_to(owner),
            Self::Channel(channel) => channel.belongs_to(owner),
            Self::Group(slot) => slot.belongs_to(owner),
        }
    }

    /// Where packets come from, as the client is told.
    pub(super) fn served_at(&self) -> ServedAt {
        match self {
            Self::Ports(ports) => ServedAt::Port(ports.rtp_port()),
            Self::Channel(channel) => ServedAt::Channels(channel.channels),
            Self::Group(slot) => ServedAt::Group(slot.address()),
        }
    }

    pub(super) fn local_ip(&self) -> IpAddr {
        match self {
            Self::Ports(ports) => ports.local_ip(),
            Self::Channel(channel) => channel.local_ip(),
            Self::Group(slot) => slot.address().source,
        }
    }

    pub(super) fn peer_ip(&self) -> IpAddr {
        match self {
            Self::Ports(ports) => ports.peer_ip(),
            Self::Channel(channel) => channel.peer_ip(),
            Self::Group(slot) => slot.peer_ip(),
        }
    }

    /// Whether it is known that nothing reaches the client any more.
    pub(super) fn is_cut_off(&self) -> bool {
        match self {
            Self::Ports(_) | Self::Group(_) => false,
            Self::Channel(channel) => channel.is_cut_off(),
        }
    }

    /// Wakes the task of the connection, if that is where packets go.
    pub(super) fn wake_connection(&self) {
        if let Self::Channel(channel) = self
            && let Some(reader) = &*channel.interleaving.reader.borrow()
        {
            reader.wake_by_ref();
        }
    }

    /// Sends a report.
    ///
    /// # Errors
    ///
    /// The system's; `WouldBlock` if the client has left too much else unread.
    pub(super) fn send(&self, report: &[u8]) -> io::Result<()> {
        match self {
            Self::Ports(ports) => ports.send(report),
            Self::Channel(channel) => channel.send(report),
            // Whoever sends to the group reports there.
            Self::Group(_) => Ok(()),
        }
    }
}
