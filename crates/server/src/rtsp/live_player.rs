//! A track of a live channel on its way to a viewer.
//!
//! All viewers of a track that come to one address of ours by UDP are sent to from one port, so
//! that one send is for all of them. Dropping the last track of a viewer makes it leave.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use onrush_wire::rtp::Position;
use onrush_wire::rtsp::LiveStart;

use super::moment::Moment;
use super::ports::{Pair, Ports, local_address};
use crate::channels::{
    ChannelKey, LiveChannel, Played, ViewerCommand, ViewerPorts, ViewerSrtp, ViewerTrack, Viewing,
    Way,
};

/// The ports of live channels: by channel, track, key that is shared and address of ours. Those of
/// channels that are there as long as the server runs stay taken, but for those of a key.
#[derive(Debug, Default)]
pub(super) struct LivePorts {
    pairs: RefCell<HashMap<PairKey, Kept>>,
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
    /// `AddrInUse` if there is no free pair.
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
    pub(super) fn timestamp(&self, at: Moment) -> Option<u32> {
        let timestamp = self.channel.timestamp_at(self.track, at.monotonic_ns)?;
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
