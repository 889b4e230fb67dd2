//! A track of a published channel on its way to a viewer.
//!
//! All viewers of a track that come to one address of ours by UDP are sent to from one port, so
//! that one send is for all of them. Dropping the last track of a viewer makes it leave.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::moment::Moment;
use super::ports::{Pair, Ports};
use crate::channels::Played;
use crate::channels::published::{PublishedChannel, ViewerTrack, Viewing, Way};

/// The ports of published channels: by channel, track and address of ours.
#[derive(Debug, Default)]
pub(super) struct PublishedPorts {
    pairs: RefCell<HashMap<(usize, usize, IpAddr), Weak<Pair>>>,
}

/// One track of a viewer.
#[derive(Debug)]
pub(super) struct PublishedPlayer {
    channel: Arc<PublishedChannel>,
    track: usize,
    way: Way,
    viewing: Arc<Viewing>,
    /// The viewer, once it has a name.
    viewer: std::cell::Cell<u64>,
}

impl PublishedPorts {
    /// The ports that viewers of a track are sent from, and report to, at `local`.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair.
    pub(super) fn share(
        &self,
        ports: &Ports,
        (channel, track): (&Arc<PublishedChannel>, usize),
        local: SocketAddr,
    ) -> io::Result<Rc<Pair>> {
        let key = (Arc::as_ptr(channel).addr(), track, local.ip());
        let mut pairs = self.pairs.borrow_mut();
        pairs.retain(|_, pair| pair.strong_count() > 0);
        if let Some(pair) = pairs.get(&key).and_then(Weak::upgrade) {
            return Ok(pair);
        }
        let pair = ports.pair(local)?;
        channel.open(track, local.ip(), [pair.rtp_socket()?, pair.rtp_socket()?]);
        pairs.insert(key, Rc::downgrade(&pair));
        Ok(pair)
    }
}

impl PublishedPlayer {
    pub(super) fn new(channel: &Arc<PublishedChannel>, track: usize, way: Way) -> Self {
        channel.count_in();
        Self {
            channel: Arc::clone(channel),
            track,
            way,
            viewing: Arc::default(),
            viewer: std::cell::Cell::new(0),
        }
    }

    pub(super) fn belongs_to(&self, session: u64) {
        self.viewer.set(session);
    }

    pub(super) fn track(&self) -> usize {
        self.track
    }

    /// What is asked of the channel for it.
    pub(super) fn wanted(&self) -> ViewerTrack {
        ViewerTrack {
            track: self.track,
            way: self.way.clone(),
            viewing: Arc::clone(&self.viewing),
        }
    }

    /// It gets nothing more, and neither do the viewer's other tracks.
    pub(super) fn leave(&self) {
        self.channel.leave(self.viewer.get());
    }

    /// Why it gets nothing any more, if so.
    pub(super) fn end(&self) -> Option<String> {
        self.viewing.end().or_else(|| self.channel.end())
    }

    pub(super) fn sent(&self) -> Played {
        self.channel.sent(self.track, &self.viewing)
    }

    pub(super) fn timestamp(&self, at: Moment) -> u32 {
        self.channel.timestamp_at(self.track, at.monotonic_ns)
    }

    pub(super) fn clock_hz(&self) -> u32 {
        self.channel.tracks()[self.track].clock_hz
    }

    pub(super) fn is_interleaved(&self) -> bool {
        matches!(self.way, Way::Frames(..))
    }

    pub(super) fn name(&self) -> String {
        format!("{} track{}", self.channel.path(), self.track + 1)
    }
}

impl Drop for PublishedPlayer {
    fn drop(&mut self) {
        self.leave();
        self.channel.count_out();
    }
}
