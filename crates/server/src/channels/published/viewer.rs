//! Those who watch a published channel, as its thread sees them.
//!
//! What a viewer has not been sent yet is its backlog. Who gets datagrams becomes a member of the
//! group when its backlog is empty, so that it misses nothing and gets nothing twice; who gets
//! frames always has one, which is bounded.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use onrush_wire::live::RecentPacket;
use onrush_wire::rtp::{Header, Position};
use onrush_wire::rtsp::{FRAME_PREFIX_BYTES, frame_prefix};

use super::channel::{Viewing, Way};
use super::{RECENT_BYTES_MAX, SYNC_AWAITED_MAX};
use crate::engine::InterleavedConnection;

/// Somebody who watches.
#[derive(Debug)]
pub(super) struct Viewer {
    pub(super) id: u64,
    pub(super) tracks: Vec<Watched>,
    /// It has not been told yet that it plays.
    pub(super) is_held: bool,
}

/// One track of a viewer.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) track: usize,
    pub(super) way: Way,
    pub(super) viewing: Arc<Viewing>,
    backlog: VecDeque<RecentPacket>,
    backlog_bytes: usize,
    /// What comes is of use only from the next sync sample on; since when it waits.
    awaits_sync: Option<u64>,
    /// It gets everything from the group.
    pub(super) is_member: bool,
    /// The timestamp of the last packet that was sent or is still to be sent.
    last_timestamp: Option<u32>,
    /// What its client had not acknowledged when that was looked at last, and since when.
    progress: (usize, u64),
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    /// Nothing is left.
    All,
    /// Something is.
    Some,
    /// Its client has taken nothing for too long.
    Stalled,
}

/// Bounds on what a viewer holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) backlog_bytes_max: usize,
    pub(super) stall_ns_max: u64,
}

impl Watched {
    /// One that begins with `recent`, if that is there; else with the next sync sample.
    pub(super) fn new(
        (track, way, viewing): (usize, Way, Arc<Viewing>),
        recent: Option<&VecDeque<RecentPacket>>,
        now_ns: u64,
    ) -> Self {
        let mut watched = Self {
            track,
            way,
            viewing,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            awaits_sync: None,
            is_member: false,
            last_timestamp: None,
            progress: (0, now_ns),
        };
        match recent {
            Some(recent) => watched.extend(recent),
            None => watched.awaits_sync = Some(now_ns),
        }
        watched
    }

    /// The numbers of its first packet, if that is known.
    pub(super) fn start(&self) -> Option<Position> {
        let header = Header::read(&self.backlog.front()?.bytes)?;
        Some(Position {
            sequence: header.sequence,
            timestamp: header.timestamp,
        })
    }

    /// A packet of its track has come; with what a decoder can start with now, if that begins with
    /// this packet's access unit. How many packets are dropped for it.
    pub(super) fn take(
        &mut self,
        packet: &RecentPacket,
        begun: Option<&VecDeque<RecentPacket>>,
        (is_everywhere, bounds, now_ns): (bool, Bounds, u64),
    ) -> u64 {
        if self.is_member {
            return 0;
        }
        if let Some(since_ns) = self.awaits_sync {
            let waited_ns = now_ns.saturating_sub(since_ns);
            if let Some(begun) = begun {
                self.awaits_sync = None;
                self.extend(begun);
            } else if u128::from(waited_ns) >= SYNC_AWAITED_MAX.as_nanos() {
                self.awaits_sync = None;
                self.push(packet);
            } else if self.is_of_last_unit(packet) {
                self.push(packet);
            }
        } else {
            self.push(packet);
        }
        let bytes_max = match self.way {
            Way::Datagrams(..) => RECENT_BYTES_MAX,
            // What a sync sample brings at once may be more, and is not dropped for that.
            Way::Frames(..) => bounds.backlog_bytes_max.max(RECENT_BYTES_MAX / 4),
        };
        match self.backlog_bytes > bytes_max {
            true => self.drop_backlog(is_everywhere, now_ns),
            false => 0,
        }
    }

    /// Drops whole access units: what is left is the rest of the one that has been begun.
    fn drop_backlog(&mut self, is_everywhere: bool, now_ns: u64) -> u64 {
        let sent = self.last_timestamp;
        let is_begun = |packet: &RecentPacket| {
            Header::read(&packet.bytes).map(|header| header.timestamp) == sent
        };
        let kept = self.backlog.iter().take_while(|packet| is_begun(packet));
        let kept = if is_everywhere { 0 } else { kept.count() };
        let dropped = self.backlog.len() - kept;
        self.backlog.truncate(kept);
        self.backlog_bytes = self.backlog.iter().map(|packet| packet.bytes.len()).sum();
        if !is_everywhere {
            self.awaits_sync = Some(now_ns);
        }
        dropped as u64
    }

    fn is_of_last_unit(&self, packet: &RecentPacket) -> bool {
        let timestamp = Header::read(&packet.bytes).map(|header| header.timestamp);
        self.last_timestamp.is_some() && timestamp == self.last_timestamp
    }

    fn extend(&mut self, packets: &VecDeque<RecentPacket>) {
        packets.iter().for_each(|packet| self.push(packet));
    }

    fn push(&mut self, packet: &RecentPacket) {
        self.backlog_bytes += packet.bytes.len();
        self.backlog.push_back(packet.clone());
    }

    fn pop(&mut self) -> Option<RecentPacket> {
        let packet = self.backlog.pop_front()?;
        self.backlog_bytes -= packet.bytes.len();
        self.last_timestamp = Header::read(&packet.bytes).map(|header| header.timestamp);
        self.viewing.count(packet.bytes.len());
        Some(packet)
    }

    /// Whether something waits to be sent, or it may become a member.
    pub(super) fn is_due(&self) -> bool {
        !self.is_member && (!self.backlog.is_empty() || self.may_join())
    }

    /// Whether the group has all that is to come.
    pub(super) fn may_join(&self) -> bool {
        let is_datagrams = matches!(self.way, Way::Datagrams(..));
        is_datagrams && !self.is_member && self.backlog.is_empty() && self.awaits_sync.is_none()
    }

    /// Sends datagrams of the backlog, few enough for a player's socket to hold.
    pub(super) fn send_datagrams(&mut self, socket: &UdpSocket, to: SocketAddr) -> Sent {
        for _ in 0..CATCH_UP_PACKETS {
            let Some(packet) = self.backlog.front() else {
                return Sent::All;
            };
            // What the network says of one of them is not worth a second attempt.
            if let Err(error) = socket.send_to(&packet.bytes, to)
                && error.kind() == ErrorKind::WouldBlock
            {
                return Sent::Some;
            }
            self.pop();
        }
        match self.backlog.is_empty() {
            true => Sent::All,
            false => Sent::Some,
        }
    }

    /// Sends frames of the backlog, as many as its connection takes.
    pub(super) fn send_frames(
        &mut self,
        connection: &InterleavedConnection,
        channel: u8,
        bounds: Bounds,
        now_ns: u64,
    ) -> Sent {
        while !self.backlog.is_empty() {
            // One message goes, however long its packet is.
            let unacknowledged = connection.unacknowledged_bytes();
            if unacknowledged > 0 && unacknowledged + MESSAGE_BYTES > bounds.backlog_bytes_max {
                break;
            }
            let mut message = Vec::with_capacity(MESSAGE_BYTES.min(2 * self.backlog_bytes));
            while let Some(packet) = self.backlog.front() {
                let whole = packet.bytes.len() + FRAME_PREFIX_BYTES;
                if !message.is_empty() && message.len() + whole > MESSAGE_BYTES {
                    break;
                }
                let Some(packet) = self.pop() else { break };
                let Ok(bytes) = u16::try_from(packet.bytes.len()) else {
                    continue;
                };
                message.extend_from_slice(&frame_prefix(channel, bytes));
                message.extend_from_slice(&packet.bytes);
            }
            match connection.try_send_within(message, usize::MAX) {
                Ok(()) => {}
                // Too much waits for the engine: the numbers show the gap.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Sent::Stalled,
            }
        }
        let left = connection.unacknowledged_bytes();
        if left == 0 || left != self.progress.0 {
            self.progress = (left, now_ns);
        } else if now_ns.saturating_sub(self.progress.1) > bounds.stall_ns_max {
            return Sent::Stalled;
        }
        match self.backlog.is_empty() && left == 0 {
            true => Sent::All,
            false => Sent::Some,
        }
    }
}

/// Datagrams that a viewer is sent in a step while it catches up: what its socket holds, which is
/// 212,992 bytes of the kernel's own accounting by default, is several times as much.
const CATCH_UP_PACKETS: usize = 24;

/// Bytes of frames that are handed over together.
const MESSAGE_BYTES: usize = 32 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds {
        backlog_bytes_max: 0,
        stall_ns_max: 1,
    };

    fn packet(order: u64, timestamp: u32) -> RecentPacket {
        let header = Header {
            marker: false,
            payload_type: 96,
            sequence: u16::try_from(order).unwrap(),
            timestamp,
            ssrc: 1,
        };
        let mut bytes = header.to_bytes().to_vec();
        bytes.resize(60_000, 0);
        RecentPacket {
            order,
            bytes: bytes.into(),
        }
    }

    fn watched(recent: Option<&VecDeque<RecentPacket>>) -> Watched {
        let way = Way::Datagrams([127, 0, 0, 1].into(), ([127, 0, 0, 1], 9).into());
        Watched::new((0, way, Arc::default()), recent, 0)
    }

    fn orders(watched: &Watched) -> Vec<u64> {
        watched.backlog.iter().map(|packet| packet.order).collect()
    }

    #[test]
    fn a_viewer_begins_with_what_is_recent_and_misses_nothing() {
        let recent: VecDeque<_> = (0..3).map(|order| packet(order, 0)).collect();
        let mut viewer = watched(Some(&recent));
        assert_eq!(viewer.start().unwrap().sequence, 0);
        viewer.take(&packet(3, 1), None, (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [0, 1, 2, 3]);
        assert!(!viewer.may_join());
        while viewer.pop().is_some() {}
        assert!(viewer.may_join());
    }

    #[test]
    fn without_a_sync_sample_it_waits_for_the_next_but_not_for_ever() {
        let mut viewer = watched(None);
        assert_eq!(viewer.start(), None);
        viewer.take(&packet(0, 0), None, (false, BOUNDS, 0));
        assert!(orders(&viewer).is_empty() && !viewer.may_join());
        let begun: VecDeque<_> = (1..3).map(|order| packet(order, 1)).collect();
        viewer.take(&packet(2, 1), Some(&begun), (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, 2]);
        let mut viewer = watched(None);
        let late_ns = u64::try_from(SYNC_AWAITED_MAX.as_nanos()).unwrap();
        viewer.take(&packet(0, 0), None, (false, BOUNDS, late_ns - 1));
        assert!(orders(&viewer).is_empty());
        viewer.take(&packet(1, 1), None, (false, BOUNDS, late_ns));
        assert_eq!(orders(&viewer), [1]);
    }

    #[test]
    fn what_a_slow_viewer_loses_are_whole_access_units() {
        let mut viewer = watched(Some(&VecDeque::new()));
        // Of the first unit a packet has left.
        viewer.take(&packet(0, 0), None, (false, BOUNDS, 0));
        viewer.pop();
        let (mut order, mut dropped) = (1, 0);
        viewer.take(&packet(order, 0), None, (false, BOUNDS, 0));
        while dropped == 0 {
            order += 1;
            let timestamp = u32::try_from(order).unwrap();
            dropped = viewer.take(&packet(order, timestamp), None, (false, BOUNDS, 0));
        }
        assert!(viewer.backlog_bytes < RECENT_BYTES_MAX);
        assert_eq!((orders(&viewer), dropped), (vec![1], order - 1));
        // What is still to come of the unit that was begun goes on, what is not does not.
        viewer.take(&packet(order + 1, 0), None, (false, BOUNDS, 0));
        viewer.take(&packet(order + 2, 9999), None, (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, order + 1]);
        let begun = VecDeque::from([packet(order + 3, 10_000)]);
        viewer.take(&packet(order + 3, 10_000), Some(&begun), (false, BOUNDS, 0));
        assert_eq!(orders(&viewer), [1, order + 1, order + 3]);
    }
}
