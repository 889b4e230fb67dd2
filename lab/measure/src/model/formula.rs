//! Formulas: of what parts each path is made. The counts are those of the catalogue, for many
//! packets.

use thiserror::Error;

use super::Term::{
    Account, Append, Clone, ColdByte, ColdTrain, ColdTrainByte, Crossing, Entry, EntrySend, Fault,
    HeldPacket, HotByte, Lend, Link, LinkSend, LoopByte, MemoryPage, Message, Miss, Notification,
    Packet, Piece, PinFault, PinnedHugePage, PinnedPage, PinnedPiece, PinnedRelease, Planned,
    PolledEntry, ReadCall, ReferredSegment, Release, RingCrossing, Segment, Session, Set, Sleep,
    SpliceCall, SpliceOut, SpliceOutPage, SplicePage, StreamByte, StreamWrite, Train, TrainByte,
};
use super::{Formula, Term};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes of the file in a packet.
    pub payload_bytes: f64,
    /// Bytes in front of them; 0 for downloads.
    pub header_bytes: f64,
    /// Packets that are due together, and so can be a train; as many as fit if the whole file is.
    pub burst_packets: f64,
}

/// Why there is no prediction.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum NotPredicted {
    /// A probe that it needs has no valid sample.
    #[error("a probe has no valid sample; measure again")]
    Probes,
    /// Nobody has that name.
    #[error("the model knows no path or way {0:?}")]
    Name(String),
}

/// Bytes of a send (udp(7)); packets of a train; pieces of one (MAX_SKB_FRAGS); entries of a batch.
const SEND_BYTES_MAX: f64 = 65_507.0;
const TRAIN_PACKETS_MAX: f64 = 64.0;
const FRAGMENTS_MAX: f64 = 17.0;
const BATCH_ENTRIES: f64 = 256.0;
const PAGE_BYTES: f64 = 4096.0;
/// What Cue hands over at once.
const STEP_BYTES: f64 = 262_144.0;

/// What a packet costs by a path of the catalogue, or by Cue (`cue`); over UDP by those that send
/// over both.
///
/// # Errors
///
/// If there is no such path.
pub fn path(name: &str, load: &Load) -> Result<Formula, NotPredicted> {
    let known = alone(name, load)
        .or_else(|| streams(name, load, StreamByte))
        .or_else(|| trains(name, load))
        .or_else(|| rings(name, load));
    known.ok_or_else(|| NotPredicted::Name(name.to_owned()))
}

/// Paths that send each packet by itself, by calls.
fn alone(name: &str, load: &Load) -> Option<Formula> {
    let (payload, header) = (load.payload_bytes, load.header_bytes);
    let none = Formula::default;
    let packet = none().with(1.0, Crossing).with(1.0, Packet);
    let copied = none().with(1.0, Miss).with(payload, ColdByte);
    let read = copied.clone().with(1.0, Crossing).with(1.0, ReadCall);
    let read_and_sent = read.and(1.0, &packet).with(payload + header, HotByte);
    let held = none()
        .with(2.0, Crossing)
        .with(2.0, Set)
        .with(1.0, HeldPacket)
        .and(1.0, &load.header_appended());
    let (mapped, spliced) = (load.mapped(), load.spliced());
    Some(match name {
        "read_write" | "read_send_rtp" => read_and_sent,
        "read_writev" => read_and_sent.with(1.0, Piece),
        "mmap_send" => packet.and(1.0, &mapped).and(1.0, &copied),
        "mmap_writev" => packet
            .and(1.0, &mapped)
            .and(1.0, &copied)
            .with(header, HotByte)
            .with(1.0, Piece),
        "mmap_send_rtp" => held
            .and(1.0, &mapped)
            .and(1.0, &copied)
            .with(1.0, Crossing)
            .with(1.0, Append),
        "sendfile_udp" => spliced.with(1.0, Packet).with(1.0, SpliceOut),
        // Without UDP_SEGMENT the processor sums what was spliced while it was held: it reads all
        // of it.
        "rtp_sendfile" => held.and(1.0, &spliced).with(1.0, Append).and(1.0, &copied),
        "mmap_send_msend" => held
            .and(1.0, &load.mapped_by_reference())
            .with(2.0, Crossing)
            .with(1.0, Lend)
            .with(1.0, Append)
            .and(1.0, &copied),
        "mmap_msend" => packet
            .and(1.0, &load.mapped_by_reference())
            .with(1.0, Notification)
            .with(load.pages(), PinnedPage),
        "sendto" => packet.and(1.0, &copied).with(header, ColdByte),
        "sendmmsg" => copied
            .with(1.0, Message)
            .with(header, ColdByte)
            .with(1.0 / load.train(payload + header), Crossing),
        _ => return None,
    })
}

/// The same over TCP; a packet is then what one write has.
///
/// # Errors
///
/// If there is no such path.
pub fn over_tcp(name: &str, load: &Load) -> Result<Formula, NotPredicted> {
    let payload = load.payload_bytes;
    let none = Formula::default;
    let copied = none().with(1.0, Miss).with(payload, ColdByte);
    let write = none().with(1.0, Crossing).with(1.0, StreamWrite);
    let known = match name {
        "read_write" => Some(
            write
                .and(1.0, &copied)
                .with(1.0, Crossing)
                .with(1.0, ReadCall)
                .with(payload, HotByte),
        ),
        "mmap_send" => Some(write.and(1.0, &load.mapped()).and(1.0, &copied)),
        _ => streams(name, load, StreamByte),
    };
    known.ok_or_else(|| NotPredicted::Name(name.to_owned()))
}

/// The same over loopback, where the sender's processor receives, too.
///
/// # Errors
///
/// If there is no such path, or it is only known over a device.
pub fn over_loopback(name: &str, load: &Load) -> Result<Formula, NotPredicted> {
    streams(name, load, LoopByte).ok_or_else(|| NotPredicted::Name(name.to_owned()))
}

/// Paths that refer TCP to a file.
fn streams(name: &str, load: &Load, byte: Term) -> Option<Formula> {
    let sent = Formula::default()
        .with(load.payload_bytes, byte)
        .with(load.pages(), SplicePage);
    let steps = load.payload_bytes / STEP_BYTES;
    match name {
        // One crossing for 2 GiB.
        "sendfile_tcp" => Some(sent),
        "cue" => Some(sent.with(steps, Crossing).with(steps, SpliceCall)),
        _ => None,
    }
}

/// Paths that send trains by calls.
fn trains(name: &str, load: &Load) -> Option<Formula> {
    let bytes = load.payload_bytes + load.header_bytes;
    let (images, apart) = (load.train(bytes), load.train_apart());
    let train = |packets: f64| {
        let train = Formula::default()
            .with(1.0 / packets, Crossing)
            .with(1.0, Planned);
        train.with(1.0 / packets, Train)
    };
    let copied = train(images).with(1.0, Segment).with(bytes, ColdTrainByte);
    Some(match name {
        "sendmmsg_gso" => copied,
        "gso" => copied.and(1.0, &load.mapped()).with(2.0, Piece),
        "gso_sendfile" => train(images)
            .with(1.0 / images, SpliceCall)
            .with(1.0 / images, SpliceOut)
            .with(bytes / PAGE_BYTES, MemoryPage)
            .with(bytes / PAGE_BYTES, SpliceOutPage)
            .with(1.0, ReferredSegment),
        "gso_zerocopy" => train(images)
            .with(1.0 / images, Notification)
            .with(bytes / PAGE_BYTES, PinnedHugePage)
            .with(1.0, ReferredSegment),
        "rtpsendfile" => train(apart)
            .with(1.0 / apart, Crossing)
            .with(2.0 / apart, Set)
            .and(1.0, &load.header_appended())
            .and(1.0, &load.spliced())
            .with(1.0, Append)
            .with(1.0, ReferredSegment),
        "mmap_rtpmsend" => train(apart)
            .and(1.0, &load.mapped_by_reference())
            .with(1.0 / apart, Notification)
            .with(2.0 - 1.0 / apart, PinnedPiece)
            .with(load.pages(), PinnedPage)
            .with(1.0, ReferredSegment),
        _ => return None,
    })
}

/// Paths that send by a ring.
fn rings(name: &str, load: &Load) -> Option<Formula> {
    let bytes = load.payload_bytes + load.header_bytes;
    let (images, apart) = (load.train(bytes), load.train_apart());
    let entry = |packets: f64| {
        let batch = BATCH_ENTRIES * packets;
        Formula::default()
            .with(1.0 / packets, Entry)
            .with(1.0 / packets, Account)
            .with(1.0 / batch, Crossing)
            .with(1.0 / batch, RingCrossing)
    };
    // Rings of the catalogue send in order; the server's leaves the links out.
    let linked = |packets: f64| {
        let links = 1.0 / packets;
        entry(packets).with(links, Link).with(links, LinkSend)
    };
    let pinned = linked(apart)
        .and(1.0, &load.mapped_by_reference())
        .with(1.0 / apart, Train)
        .with(1.0 / apart, PinnedRelease)
        .with(1.0, Planned)
        .with(load.pages(), PinnedPage)
        .with(1.0, ReferredSegment);
    Some(match name {
        // What the kernel's thread does meanwhile is not the sender's, who sleeps once, until all
        // is done.
        "uring_sqpoll" => Formula::default()
            .with(1.0, Planned)
            .with(1.0 / images, PolledEntry)
            .with(1.0 / BATCH_ENTRIES / images, Crossing)
            .with(1.0 / BATCH_ENTRIES / images, Sleep),
        "ksendfile" | "krtpsendfile" => linked(images)
            .with(1.0, Planned)
            .with(1.0 / images, Train)
            .with(1.0 / images, ColdTrain)
            .with(1.0 / images, Release)
            .with(1.0, ReferredSegment),
        // Trains are shorter, and each packet is two pieces.
        "uring_vectored_zc" => linked(apart)
            .with(1.0, Planned)
            .with(1.0 / apart, Train)
            .with(1.0 / apart, ColdTrain)
            .with(1.0 / apart, Release)
            .with(1.0, ReferredSegment)
            .with(2.0 - 1.0 / apart, PinnedPiece),
        "kmsend" => pinned,
        "krtpmsend" => pinned.with(2.0 - 1.0 / apart, PinnedPiece),
        "uring" => linked(1.0)
            .and(1.0, &load.mapped())
            .with(1.0, Packet)
            .with(1.0, EntrySend)
            .with(1.0, Piece)
            .with(1.0, Miss)
            .with(bytes, ColdByte),
        "uring_zc" => linked(1.0)
            .with(1.0, Packet)
            .with(1.0, PinnedRelease)
            .with(bytes / PAGE_BYTES, PinnedPage)
            .with(bytes / PAGE_BYTES, Miss),
        "uring_registered" => linked(1.0)
            .with(1.0, Packet)
            .with(1.0, Release)
            .with(bytes / PAGE_BYTES, Miss),
        _ => return None,
    })
}

/// What a packet costs for each member of a group, by a way of [`onrush_group`].
///
/// # Errors
///
/// If the way costs what the model has no term for.
pub fn group(way: &str, load: &Load) -> Result<Formula, NotPredicted> {
    let images = load.train(load.payload_bytes + load.header_bytes);
    let bytes = load.payload_bytes + load.header_bytes;
    // The first member's copy is cold, all others' are hot.
    match way {
        "loop" => path("sendto", load).map(|formula| hot(formula, bytes)),
        "sendmmsg" if images > 1.0 => path("sendmmsg_gso", load).map(|formula| hot(formula, bytes)),
        "sendmmsg" => path("sendmmsg", load).map(|formula| hot(formula, bytes)),
        // Members need no order among them.
        "uring" => path("krtpsendfile", load).map(unlinked),
        // Segments are cut for each copy, where the kernel cuts them; a train of one is none.
        "kernel" if images > 1.0 => Ok(Formula::default()
            .with(1.0 / images, Clone)
            .with(1.0, ReferredSegment)),
        "kernel" => Ok(Formula::default().with(1.0, Clone)),
        _ => Err(NotPredicted::Name(way.to_owned())),
    }
}

/// The same if every burst is another client's: what the kernel has of its socket is in no cache,
/// and no client waits for another.
#[must_use]
pub fn of_many(formula: Formula, load: &Load) -> Formula {
    unlinked(formula).with(1.0 / load.burst_packets.max(1.0), Session)
}

fn unlinked(formula: Formula) -> Formula {
    formula.without(Link).without(LinkSend)
}

fn hot(formula: Formula, bytes: f64) -> Formula {
    let fixed = formula.without(Miss).without(ColdByte);
    match fixed.count(ColdTrainByte) > 0.0 {
        true => fixed.without(ColdTrainByte).with(bytes, TrainByte),
        false => fixed.with(bytes, HotByte),
    }
}

impl Load {
    /// Packets of these bytes that leave together.
    fn train(&self, bytes: f64) -> f64 {
        let fit = (SEND_BYTES_MAX / bytes.max(1.0)).floor();
        fit.min(TRAIN_PACKETS_MAX).min(self.burst_packets).max(1.0)
    }

    /// The same if headers and payloads are apart, as many as the pieces of a send hold.
    fn train_apart(&self) -> f64 {
        let train = self.train(self.payload_bytes + self.header_bytes);
        if self.header_bytes == 0.0 {
            return train;
        }
        let pieces = 2.0 + self.pages();
        train.min((FRAGMENTS_MAX / pieces).floor()).max(1.0)
    }

    /// Pages of the file that a packet is the first to need.
    fn pages(&self) -> f64 {
        self.payload_bytes / PAGE_BYTES
    }

    fn mapped(&self) -> Formula {
        Formula::default().with(self.pages(), Fault)
    }

    /// Mapped, and not touched before the kernel refers to it.
    fn mapped_by_reference(&self) -> Formula {
        Formula::default().with(self.pages(), PinFault)
    }

    fn spliced(&self) -> Formula {
        let call = Formula::default().with(1.0, Crossing).with(1.0, SpliceCall);
        // A packet lies in one page more than it fills.
        call.with(1.0 + self.pages(), SplicePage)
    }

    fn header_appended(&self) -> Formula {
        let call = Formula::default().with(1.0, Crossing).with(1.0, Append);
        call.with(self.header_bytes, HotByte)
    }
}
