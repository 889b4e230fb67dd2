//! A track of a live channel on its way to a viewer.
//!
//! All viewers of a track that come to one address of ours by UDP are sent to from one port, so
//! that one send is for all of them. Dropping the last track of a viewer makes it leave.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use onrush_sys::probe;
use onrush_wire::rtp::Position;
use onrush_wire::rtsp::LiveStart;

use super::ports::{Pair, Ports, local_address};
use crate::channels::{
    ChannelKey, LiveChannel, Played, ViewerCommand, ViewerPorts, ViewerSrtp, ViewerTrack, Viewing,
    Way,
};

/// Addresses of ours that live channels are sent from, whatever they are: all of 127.0.0.0/8 is
/// this machine's, and a route can make it more. A channel keeps what it has for an address, so
/// that whoever connects to one after the other would take all descriptors. Beyond so many, only
/// those that an interface has.
pub const LIVE_ADDRESSES_MAX: usize = 64;

/// Descriptors of a pair: one that hears reports, and two that channels send by.
const PAIR_FILES: usize = 3;

/// The ports of live channels: by channel, track, key that is shared and address of ours. Those of
/// channels that are there as long as the server runs stay taken, but for those of a key.
#[derive(Debug, Default)]
pub(super) struct LivePorts {
    pairs: RefCell<HashMap<PairKey, Kept>>,
    /// The addresses of ours of all that were ever opened.
    addresses: RefCell<HashSet<IpAddr>>,
}

/// Where a channel and a key that is shared lie in memory, between them the track; and the address.
type PairKey = (usize, usize, Option<usize>, SocketAddr);

#[derive(Debug)]
struct Kept {
    pair: Weak<Pair>,
    _stays: Option<Rc<Pair>>,
}

/// One track of a viewer.
#[derive(Debug)]
pub(super) struct LivePlayer {
    channel: Arc<dyn LiveChannel>,
    track: usize,
    way: Way,
    viewing: Arc<Viewing>,
    /// What its packets are encrypted with, if they are.
    srtp: Option<Arc<ViewerSrtp>>,
    /// The viewer, once it has a name.
    viewer: Cell<u64>,
}

impl LivePorts {
    /// The ports that viewers of a track who share that key, or get it in the clear, are sent from,
    /// and report to, at `local`.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair, or nothing more is sent from that address.
    pub(super) fn share(
        &self,
        ports: &Ports,
        (channel, track, shared): (&Arc<dyn LiveChannel>, usize, Option<&Arc<ChannelKey>>),
        local: SocketAddr,
    ) -> io::Result<Rc<Pair>> {
        let of_key = shared.map(|key| Arc::as_ptr(key).addr());
        let local = local_address(local);
        let key = (Arc::as_ptr(channel).addr(), track, of_key, local);
        let mut pairs = self.pairs.borrow_mut();
        pairs.retain(|_, kept| kept.pair.strong_count() > 0);
        if let Some(pair) = pairs.get(&key).and_then(|kept| kept.pair.upgrade()) {
            return Ok(pair);
        }
        if !self.may_send_from(local.ip()) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let pair = ports.pair(local)?;
        let sockets = [pair.rtp_socket()?, pair.rtp_socket()?];
        channel.command(ViewerCommand::Open(ViewerPorts {
            track,
            local,
            shared: shared.map(Arc::clone),
            sockets,
        }));
        // Keys come and go.
        let stays = channel.is_permanent() && shared.is_none();
        let kept = Kept {
            pair: Rc::downgrade(&pair),
            _stays: stays.then(|| Rc::clone(&pair)),
        };
        pairs.insert(key, kept);
        Ok(pair)
    }

    /// Descriptors that they take.
    pub(super) fn descriptors(&self) -> usize {
        PAIR_FILES * self.pairs.borrow().len()
    }

    /// Whether channels are sent from that address: it is one of [`LIVE_ADDRESSES_MAX`], or an
    /// interface's.
    fn may_send_from(&self, ip: IpAddr) -> bool {
        let mut addresses = self.addresses.borrow_mut();
        if addresses.contains(&ip) {
            return true;
        }
        if addresses.len() < LIVE_ADDRESSES_MAX {
            addresses.insert(ip);
            return true;
        }
        drop(addresses);
        probe::all_addresses().is_ok_and(|all| all.contains(&ip))
    }
}

impl LivePlayer {
    pub(super) fn new(
        channel: Arc<dyn LiveChannel>,
        track: usize,
        (way, srtp): (Way, Option<Arc<ViewerSrtp>>),
    ) -> Self {
        channel.count_viewer(true);
        Self {
            channel,
            track,
            way,
            viewing: Arc::default(),
            srtp,
            viewer: Cell::new(0),
        }
    }

    pub(super) fn belongs_to(&self, session: u64) {
        self.viewer.set(session);
    }

    pub(super) fn track(&self) -> usize {
        self.track
    }

    /// What is asked of the channel for it, which begins there.
    pub(super) fn wanted(&self, start: Option<LiveStart>) -> ViewerTrack {
        ViewerTrack {
            track: self.track,
            way: self.way.clone(),
            viewing: Arc::clone(&self.viewing),
            start,
            srtp: self.srtp.as_ref().map(Arc::clone),
        }
    }

    /// It gets nothing more, and neither do the viewer's other tracks.
    pub(super) fn leave(&self) {
        self.channel
            .command(ViewerCommand::Leave(self.viewer.get()));
    }

    /// Why it gets nothing any more, if so.
    pub(super) fn end(&self) -> Option<String> {
        self.viewing.end().or_else(|| self.channel.end())
    }

    pub(super) fn sent(&self) -> Played {
        self.viewing.sent(self.channel.given(self.track))
    }

    /// The timestamp that a packet would have that is of that moment, once one has come.
    pub(super) fn timestamp(&self, at_ns: u64) -> Option<u32> {
        let timestamp = self.channel.timestamp_at(self.track, at_ns)?;
        let of_channel = Position {
            sequence: 0,
            timestamp,
        };
        let position = self.viewing.numbering().position(of_channel);
        let srtp = self.srtp.as_ref();
        let position = srtp.map_or(position, |srtp| srtp.position(position));
        Some(position.timestamp)
    }

    /// Whether no packet of it has come yet.
    pub(super) fn is_waiting(&self) -> bool {
        self.channel.timestamp_at(self.track, 0).is_none()
    }

    /// A live stream may become another one while it plays.
    pub(super) fn ssrc(&self) -> Option<u32> {
        match &self.srtp {
            Some(srtp) => Some(srtp.ssrc()),
            None => self.channel.ssrc_now(self.track),
        }
    }

    pub(super) fn clock_hz(&self) -> u32 {
        self.channel.clock_hz(self.track)
    }

    pub(super) fn is_interleaved(&self) -> bool {
        matches!(self.way, Way::Frames(..))
    }

    pub(super) fn name(&self) -> String {
        match self.channel.is_permanent() {
            true => self.channel.live_path(),
            false => format!("{} track{}", self.channel.live_path(), self.track + 1),
        }
    }
}

impl Drop for LivePlayer {
    fn drop(&mut self) {
        self.leave();
        self.channel.count_viewer(false);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_that_no_interface_has_are_bounded() {
        let ports = LivePorts::default();
        // For documentation, and of no machine (RFC 5737).
        let most = u8::try_from(LIVE_ADDRESSES_MAX).expect("64");
        let address = |number| IpAddr::from([192, 0, 2, number]);
        for _ in 0..2 {
            for number in 0..most {
                assert!(ports.may_send_from(address(number)), "{number}");
            }
            assert!(!ports.may_send_from(address(most)), "one more");
        }
        assert_eq!(ports.addresses.borrow().len(), LIVE_ADDRESSES_MAX);
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        assert!(ports.may_send_from(own), "an interface has it");
        assert!(!ports.may_send_from([127, 83, 0, 1].into()), "none has it");
    }
}
