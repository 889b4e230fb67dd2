//! A player among those who get a live stream.
//!
//! All players of a stream that come to one address of ours are sent to from one socket, so that
//! one send is for all of them, and report to one port. Dropping a player makes it leave.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use super::moment::Moment;
use super::ports::{Pair, Ports};
use crate::channels::{Channel, Playable, Played};

/// The ports of live streams, by stream and by address of ours. They stay taken as long as the
/// server runs.
#[derive(Debug, Default)]
pub(super) struct LivePorts {
    pairs: RefCell<HashMap<(String, IpAddr), Rc<Pair>>>,
}

/// One player of a channel.
#[derive(Debug)]
pub(super) struct LivePlayer {
    channel: Arc<Channel>,
    local: IpAddr,
    player: SocketAddr,
    has_joined: Cell<bool>,
    /// What the stream had sent when the player joined.
    at_start: Cell<Played>,
    /// What the player was sent in the times before.
    before: Cell<Played>,
}

impl LivePorts {
    /// The ports that players of `channel` are sent from, and report to, at `local`.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is no free pair.
    pub(super) fn share(
        &self,
        ports: &Ports,
        channel: &Channel,
        local: SocketAddr,
    ) -> io::Result<Rc<Pair>> {
        let key = (channel.name().to_owned(), local.ip());
        let mut pairs = self.pairs.borrow_mut();
        if let Some(pair) = pairs.get(&key) {
            return Ok(Rc::clone(pair));
        }
        let pair = ports.pair(local)?;
        channel.open_players(local.ip(), pair.rtp_socket()?);
        pairs.insert(key, Rc::clone(&pair));
        Ok(pair)
    }
}

impl LivePlayer {
    /// The player whose RTP port is `player`, which has not joined yet.
    pub(super) fn new(channel: Arc<Channel>, local: IpAddr, player: SocketAddr) -> Self {
        Self {
            channel,
            local,
            player,
            has_joined: Cell::new(false),
            at_start: Cell::default(),
            before: Cell::default(),
        }
    }

    /// From now on the player gets the stream.
    pub(super) fn join(&self) {
        if !self.has_joined.replace(true) {
            self.at_start.set(self.channel.stats().played);
            self.channel.add_player(self.local, self.player);
        }
    }

    /// The player gets the stream no longer.
    pub(super) fn leave(&self) {
        let sent = self.sent();
        if self.has_joined.replace(false) {
            self.before.set(sent);
            self.channel.remove_player(self.local, self.player);
        }
    }

    /// Packets that the player was sent, and bytes of their payload, as nearly as is known without
    /// counting for each.
    pub(super) fn sent(&self) -> Played {
        let before = self.before.get();
        if !self.has_joined.get() {
            return before;
        }
        let (now, then) = (self.channel.stats().played, self.at_start.get());
        Played {
            packets: before.packets + now.packets.saturating_sub(then.packets),
            payload_bytes: before.payload_bytes
                + now.payload_bytes.saturating_sub(then.payload_bytes),
        }
    }

    /// The stream, as far as it is known.
    pub(super) fn playable(&self) -> Option<Playable> {
        self.channel.stats().playable
    }

    /// The timestamp that a packet would have at that moment.
    pub(super) fn timestamp(&self, at: Moment) -> u32 {
        self.playable()
            .map_or(0, |playable| playable.timestamp_at(at.monotonic_ns))
    }

    pub(super) fn name(&self) -> &str {
        self.channel.name()
    }
}

impl Drop for LivePlayer {
    fn drop(&mut self) {
        self.leave();
    }
}
