//! One track on its way to one viewer: what all know of it, and not the channel's thread alone.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_wire::rtp::{HEADER_BYTES, Numbering, Position};
use onrush_wire::rtsp::LiveStart;
use tokio::sync::oneshot;

use super::srtp::{ChannelKey, ChannelKeysInUse, ViewerSrtp};
use crate::engine::InterleavedConnection;

/// A live channel, as those see it who bring it to viewers.
pub(crate) trait LiveChannel: std::fmt::Debug + Send + Sync {
    /// Its name, as a path.
    fn live_path(&self) -> String;
    /// Leaves a command for its thread.
    fn command(&self, command: ViewerCommand);
    /// A track of a viewer is there, or no longer.
    fn count_viewer(&self, is_there: bool);
    /// Ticks a second of a track's timestamps.
    fn clock_hz(&self, track: usize) -> u32;
    /// The SSRC that viewers of a track get, if it is known.
    fn ssrc_now(&self, track: usize) -> Option<u32>;
    /// The timestamp of a packet of a track that is of that moment of the monotonic clock; nothing
    /// while none of its packets has come.
    fn timestamp_at(&self, track: usize, now_ns: u64) -> Option<u32>;
    /// What the group of a track has been given.
    fn given(&self, track: usize) -> &Given;
    /// Why its viewers are to end, if they are.
    fn end(&self) -> Option<String>;
    /// Whether it can be sent as frames of a viewer's connection.
    fn has_frames(&self) -> bool;
    /// The keys that its viewers share (SRTP).
    fn shared_keys(&self) -> &ChannelKeysInUse;
    /// Whether it is there as long as the server runs, and so are its ports.
    fn is_permanent(&self) -> bool;
}

/// What the thread of a channel is asked to do for viewers.
#[derive(Debug)]
pub(crate) enum ViewerCommand {
    /// Viewers of a track that come to an address of ours are sent to from there.
    Open(ViewerPorts),
    /// Somebody will watch.
    Prepare(u64, Vec<ViewerTrack>, oneshot::Sender<Vec<Start>>),
    /// It watches from now on.
    Start(u64),
    /// It watches no longer.
    Leave(u64),
}

/// Where viewers of a track are sent to from.
#[derive(Debug)]
pub(crate) struct ViewerPorts {
    /// Its number, from 0 on.
    pub(crate) track: usize,
    /// The address of ours that they come to, with its scope and port 0.
    pub(crate) local: SocketAddr,
    /// The key that they share, if what they get is encrypted for all of them.
    pub(crate) shared: Option<Arc<ChannelKey>>,
    /// The first is the group's, from the second single ones are sent to.
    pub(crate) sockets: [UdpSocket; 2],
}

/// Where the packets of a track begin for a viewer, if that is known.
pub(crate) type Start = Option<Position>;

/// A track that somebody will watch.
#[derive(Clone, Debug)]
pub(crate) struct ViewerTrack {
    /// Its number, from 0 on.
    pub(crate) track: usize,
    pub(crate) way: Way,
    pub(crate) viewing: Arc<Viewing>,
    /// Where it asks to begin, if it does: else where the channel has all begin.
    pub(crate) start: Option<LiveStart>,
    /// What its packets are encrypted with, if they are.
    pub(crate) srtp: Option<Arc<ViewerSrtp>>,
}

/// How packets go to a viewer.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// To that port (the second), from that address of ours, as [`ViewerPorts::local`] has it.
    Datagrams(SocketAddr, SocketAddr),
    /// On that channel of its connection.
    Frames(Arc<InterleavedConnection>, u8),
}

/// Packets that were given to somebody, and bytes of their payload.
#[derive(Debug, Default)]
pub(crate) struct Given {
    packets: AtomicU64,
    payload_bytes: AtomicU64,
}

/// What all players of a channel were given, each packet counted once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Played {
    /// Packets.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
}

/// One track on its way to one viewer.
#[derive(Debug, Default)]
pub(crate) struct Viewing {
    /// To it alone.
    alone: Given,
    /// What the group had been given when it became a member.
    member_since: Mutex<Option<Played>>,
    /// Why it gets nothing any more, if so.
    end: Mutex<Option<String>>,
    numbers: Mutex<(Numbering, Option<Last>)>,
}

/// The last that a viewer was sent before it has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// As the viewer has it.
    pub(super) own: Position,
    /// As the channel has it.
    pub(super) timestamp: u32,
    pub(super) ssrc: u32,
    /// When it left, by the monotonic clock.
    pub(super) left_ns: u64,
}

impl Given {
    /// A packet more.
    pub(super) fn count(&self, packet_bytes: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        let payload_bytes = packet_bytes.saturating_sub(HEADER_BYTES) as u64;
        self.payload_bytes
            .fetch_add(payload_bytes, Ordering::Relaxed);
    }

    /// What is counted elsewhere.
    pub(super) fn set(&self, played: Played) {
        self.packets.store(played.packets, Ordering::Relaxed);
        self.payload_bytes
            .store(played.payload_bytes, Ordering::Relaxed);
    }

    pub(super) fn played(&self) -> Played {
        Played {
            packets: self.packets.load(Ordering::Relaxed),
            payload_bytes: self.payload_bytes.load(Ordering::Relaxed),
        }
    }
}

impl Viewing {
    /// Counts what was sent to it alone.
    pub(super) fn count(&self, packet_bytes: usize) {
        self.alone.count(packet_bytes);
    }

    /// What it was sent so far, as nearly as is known without counting for each; `group` is what
    /// the group of its track was given.
    pub(crate) fn sent(&self, group: &Given) -> Played {
        let mut sent = self.alone.played();
        if let Some(then) = *lock(&self.member_since) {
            let now = group.played();
            sent.packets += now.packets.saturating_sub(then.packets);
            sent.payload_bytes += now.payload_bytes.saturating_sub(then.payload_bytes);
        }
        sent
    }

    /// For the thread: it is a member of its track's group from now on.
    pub(super) fn join(&self, group: &Given) {
        *lock(&self.member_since) = Some(group.played());
    }

    /// For the thread: it is no longer. Whether it was sent something as a member.
    pub(super) fn part(&self, group: &Given) -> bool {
        let (alone, sent) = (self.alone.played(), self.sent(group));
        *lock(&self.member_since) = None;
        self.alone.set(sent);
        sent.packets > alone.packets
    }

    /// Why it gets nothing any more, if so.
    pub(crate) fn end(&self) -> Option<String> {
        lock(&self.end).clone()
    }

    pub(super) fn set_end(&self, why: &str) {
        lock(&self.end).get_or_insert_with(|| why.to_owned());
    }

    /// How its numbers differ from the channel's: not at all until it has paused.
    pub(crate) fn numbering(&self) -> Numbering {
        lock(&self.numbers).0
    }

    pub(super) fn set_numbering(&self, numbering: Numbering) {
        lock(&self.numbers).0 = numbering;
    }

    /// What it was sent last, if it has left since.
    pub(super) fn last(&self) -> Option<Last> {
        lock(&self.numbers).1
    }

    pub(super) fn forget_last(&self) {
        lock(&self.numbers).1 = None;
    }

    pub(super) fn set_last(&self, last: Last) {
        lock(&self.numbers).1 = Some(last);
    }
}

/// Nothing that is locked here is ever left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
