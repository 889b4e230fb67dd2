//! A track's packets, encrypted once for all viewers who share a key.
//!
//! What is kept for those who join is kept encrypted, too, as long as anybody has that key.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use onrush_wire::live::{Recent, RecentPacket};
use onrush_wire::rtp::Header;
use onrush_wire::srtp::Arrival;

use super::lane::Lane;
use super::srtp::ChannelKey;

/// A track as those get it who share a key.
#[derive(Debug)]
pub(super) struct SharedLane {
    key: Arc<ChannelKey>,
    pub(super) lane: Lane,
    /// To send to single viewers from, by address of ours.
    pub(super) single: BTreeMap<SocketAddr, UdpSocket>,
    /// What is kept of the track, encrypted.
    images: VecDeque<RecentPacket>,
    /// The last of what has come.
    newest: Option<RecentPacket>,
    /// Somebody has the key: packets are encrypted.
    is_active: bool,
    /// Packets that were encrypted, and those whose numbers were used.
    pub(super) encrypted: u64,
    pub(super) unencrypted: u64,
}

impl SharedLane {
    pub(super) fn new(key: &Arc<ChannelKey>) -> Self {
        Self {
            key: Arc::clone(key),
            lane: Lane::new(),
            single: BTreeMap::new(),
            images: VecDeque::new(),
            newest: None,
            is_active: false,
            encrypted: 0,
            unencrypted: 0,
        }
    }

    pub(super) fn is_of(&self, key: &Arc<ChannelKey>) -> bool {
        Arc::ptr_eq(&self.key, key)
    }

    /// Nobody has its key, or is told it any more.
    pub(super) fn is_retired(&self) -> bool {
        self.key.is_retired()
    }

    /// Somebody is about to watch: from now on all that comes is encrypted, and before it what is
    /// kept.
    pub(super) fn activate(&mut self, recent: &Recent, at: Arrival) {
        if !self.is_active {
            self.is_active = true;
            // Some of it was encrypted before, perhaps, and has other numbers now.
            self.key.begin_anew();
            for packet in recent.kept() {
                self.seal(packet, at);
            }
        }
        self.trim(recent);
    }

    /// Nothing is encrypted.
    pub(super) fn rests(&self) -> bool {
        !self.is_active
    }

    /// Nobody watches any more.
    pub(super) fn rest(&mut self) {
        self.is_active = false;
        self.newest = None;
        self.forget();
    }

    /// What is kept is of no use to anybody who joins.
    pub(super) fn forget(&mut self) {
        self.images.clear();
        self.key.set_first(None);
    }

    /// Takes the next packet, which is among the `recent` already, and arrived then.
    pub(super) fn give(
        &mut self,
        packet: &RecentPacket,
        recent: &Recent,
        (arrived_ns, at): (u64, Arrival),
    ) {
        self.newest = None;
        if !self.is_active {
            return;
        }
        if self.seal(packet, at) {
            self.newest = self.images.back().cloned();
        }
        if let Some(sealed) = &self.newest {
            self.lane.push(&[], &sealed.bytes, arrived_ns);
        }
        self.trim(recent);
    }

    /// The packet that was [given](Self::give) last, if it is encrypted.
    pub(super) fn newest(&self) -> Option<&RecentPacket> {
        self.newest.as_ref()
    }

    /// All that is kept.
    pub(super) fn images(&self) -> &VecDeque<RecentPacket> {
        &self.images
    }

    /// Keeps no more than is kept of the track in the clear.
    fn trim(&mut self, recent: &Recent) {
        let first = recent.kept().front().map_or(u64::MAX, |it| it.order);
        while self.images.front().is_some_and(|it| it.order < first) {
            self.images.pop_front();
        }
        let is_known = recent.packets().is_some();
        let first = self.images.front().filter(|_| is_known);
        let sequence = first.and_then(|first| Header::read(&first.bytes));
        self.key.set_first(sequence.map(|header| header.sequence));
    }

    fn seal(&mut self, packet: &RecentPacket, at: Arrival) -> bool {
        let sealed = self.key.seal(packet, at);
        let is_sealed = sealed.is_some();
        self.encrypted += u64::from(is_sealed);
        self.unencrypted += u64::from(!is_sealed);
        self.images.extend(sealed);
        is_sealed
    }
}
