//! Where a channel's packets go beside its viewers: to a thread that makes segments of them.
//!
//! The channel's thread never waits for that one: what finds no room is dropped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onrush_wire::live::RecentPacket;

/// Bytes of packets that wait, and of what each takes beside them, at the most; more are dropped,
/// and what is made has a gap.
pub const TAP_BYTES_MAX: usize = 24 << 20;

/// What a packet that waits takes beside its bytes, about: its place in a queue, what is counted of
/// it, and what the allocator adds. Without that, many that are short or empty would be no bytes.
pub(super) const PACKET_COST: usize = 64;

/// Packets on their way.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    queue: Mutex<Queue>,
    ready: Condvar,
    is_closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    all: VecDeque<Tapped>,
    bytes: usize,
}

/// What comes of a channel.
#[derive(Clone, Debug)]
pub(crate) enum Tapped {
    /// Another publisher begins.
    Begin,
    /// An RTP packet of a track, and when it came.
    Packet(usize, Arc<[u8]>, u64),
    /// Transport packets, likewise.
    Transport(Arc<[u8]>, u64),
}

impl Tap {
    /// Takes what comes, if there is room.
    pub(super) fn push(&self, tapped: Tapped) {
        let bytes = match &tapped {
            Tapped::Begin => 0,
            Tapped::Packet(_, bytes, _) | Tapped::Transport(bytes, _) => bytes.len() + PACKET_COST,
        };
        let mut queue = self.queue();
        if queue.bytes + bytes <= TAP_BYTES_MAX && !self.is_closed() {
            queue.bytes += bytes;
            queue.all.push_back(tapped);
            drop(queue);
            self.ready.notify_one();
        }
    }

    /// Takes what each track keeps for those who join, in the order in which it came.
    pub(super) fn push_kept(&self, tracks: Vec<Option<&VecDeque<RecentPacket>>>, now_ns: u64) {
        let tracks = tracks.into_iter().enumerate();
        let tracks = tracks.filter_map(|(number, packets)| Some((number, packets?)));
        let all = tracks.flat_map(|(number, packets)| packets.iter().map(move |it| (number, it)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, packet)| packet.order);
        for (track, packet) in all {
            self.push(Tapped::Packet(track, Arc::clone(&packet.bytes), now_ns));
        }
    }

    /// What has come, once something has; nothing after `time`.
    pub(crate) fn take(&self, time: Duration) -> VecDeque<Tapped> {
        let queue = self.queue();
        let waited = self
            .ready
            .wait_timeout_while(queue, time, |queue| queue.all.is_empty());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.bytes = 0;
        std::mem::take(&mut queue.all)
    }

    /// Nothing more is wanted.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        *self.queue() = Queue::default();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_dropped() {
        let tap = Tap::default();
        let packet = |bytes| Tapped::Packet(0, vec![0; bytes].into(), 0);
        tap.push(packet(TAP_BYTES_MAX - PACKET_COST));
        tap.push(packet(1));
        assert_eq!(tap.take(Duration::ZERO).len(), 1);
        tap.push(packet(1));
        assert_eq!(tap.take(Duration::ZERO).len(), 1, "there is room again");
        let most = TAP_BYTES_MAX / PACKET_COST;
        (0..=most).for_each(|_| tap.push(packet(0)));
        assert_eq!(tap.take(Duration::ZERO).len(), most, "they have no bytes");
        tap.close();
        tap.push(packet(1));
        assert!(tap.take(Duration::ZERO).is_empty());
    }
}
