//! Formulas: of what parts each path is made. The counts are those of the catalogue, for many
//! packets. A formula is written as a sum, `2.0 * Crossing + Packet`, and what it costs is the sum.

use std::fmt;
use std::ops::{Add, Mul};

use thiserror::Error;

use super::cost::Costs;
use super::term::Term::{
    self, Account, Append, Clone, ColdByte, ColdTrain, ColdTrainByte, Crossing, Entry, EntrySend,
    Fault, HeldPacket, HotByte, Lend, Link, LinkSend, LoopByte, MemoryPage, Message, Miss,
    Notification, Packet, Piece, PinFault, PinnedHugePage, PinnedPage, PinnedPiece, PinnedRelease,
    Planned, PolledEntry, ReadCall, ReferredSegment, Release, RingCrossing, Segment, Session, Set,
    Sleep, SpliceCall, SpliceOut, SpliceOutPage, SplicePage, StreamByte, StreamWrite, Train,
    TrainByte,
};
use crate::paths::MTU_PACKET_BYTES;

/// How often each term is in a path, for a packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formula {
    pub(super) terms: Vec<(f64, Term)>,
}

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
    /// The kernel fragments such packets and makes no trains of them; no term is of fragments.
    #[error("packets beyond the MTU ({MTU_PACKET_BYTES} B) are fragmented")]
    BeyondMtu,
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
/// If there is no such path, or a datagram is larger than the MTU.
pub fn path(name: &str, load: &Load) -> Result<Formula, NotPredicted> {
    if let Some(formula) = streams(name, load, StreamByte) {
        return Ok(formula);
    }
    let known = alone(name, load)
        .or_else(|| trains(name, load))
        .or_else(|| rings(name, load));
    load.unfragmented(known.ok_or_else(|| NotPredicted::Name(name.to_owned()))?)
}

/// Paths that send each packet by itself, by calls.
fn alone(name: &str, load: &Load) -> Option<Formula> {
    let (payload, header) = (load.payload_bytes, load.header_bytes);
    let packet = Crossing + Packet;
    let copied = load.copied();
    let read_and_sent = || load.read() + packet.clone() + (payload + header) * HotByte;
    let held = 2.0 * Crossing + 2.0 * Set + HeldPacket + load.header_appended();
    Some(match name {
        "read_write" | "read_send_rtp" => read_and_sent(),
        "read_writev" => read_and_sent() + Piece,
        "mmap_send" => packet + load.mapped() + copied,
        "mmap_writev" => packet + load.mapped() + copied + header * HotByte + Piece,
        "mmap_send_rtp" => held + load.mapped() + copied + Crossing + Append,
        "sendfile_udp" => load.spliced() + Packet + SpliceOut,
        // Without UDP_SEGMENT the processor sums what was spliced while it was held: it reads all
        // of it.
        "rtp_sendfile" => held + load.spliced() + Append + copied,
        "mmap_send_msend" => {
            held + load.mapped_by_reference() + 2.0 * Crossing + Lend + Append + copied
        }
        "mmap_msend" => {
            packet + load.mapped_by_reference() + Notification + load.pages() * PinnedPage
        }
        "sendto" => packet + copied + header * ColdByte,
        "sendmmsg" => {
            copied + Message + header * ColdByte + 1.0 / load.train(payload + header) * Crossing
        }
        _ => return None,
    })
}

/// The same over TCP; a packet is then what one write has.
///
/// # Errors
///
/// If there is no such path.
pub fn over_tcp(name: &str, load: &Load) -> Result<Formula, NotPredicted> {
    let write = Crossing + StreamWrite;
    let known = match name {
        "read_write" => Some(write + load.read() + load.payload_bytes * HotByte),
        "mmap_send" => Some(write + load.mapped() + load.copied()),
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
    let sent = load.payload_bytes * byte + load.pages() * SplicePage;
    let steps = load.payload_bytes / STEP_BYTES;
    match name {
        // One crossing for 2 GiB.
        "sendfile_tcp" => Some(sent),
        "cue" => Some(sent + steps * Crossing + steps * SpliceCall),
        _ => None,
    }
}

/// Paths that send trains by calls.
fn trains(name: &str, load: &Load) -> Option<Formula> {
    let bytes = load.payload_bytes + load.header_bytes;
    let pages = bytes / PAGE_BYTES;
    // Trains a packet, of images and of what lies apart.
    let (images, apart) = (1.0 / load.train(bytes), 1.0 / load.train_apart());
    let train = |trains: f64| trains * Crossing + Planned + trains * Train;
    let copied = train(images) + Segment + bytes * ColdTrainByte;
    Some(match name {
        "sendmmsg_gso" => copied,
        "gso" => copied + load.mapped() + 2.0 * Piece,
        "gso_sendfile" => {
            let spliced = images * SpliceCall + images * SpliceOut + pages * SpliceOutPage;
            train(images) + spliced + pages * MemoryPage + ReferredSegment
        }
        "gso_zerocopy" => {
            train(images) + images * Notification + pages * PinnedHugePage + ReferredSegment
        }
        "rtpsendfile" => {
            let pieces = load.header_appended() + load.spliced() + Append;
            train(apart) + apart * Crossing + 2.0 * apart * Set + pieces + ReferredSegment
        }
        "mmap_rtpmsend" => {
            let pinned = (2.0 - apart) * PinnedPiece + load.pages() * PinnedPage;
            let mapped = load.mapped_by_reference() + pinned;
            train(apart) + mapped + apart * Notification + ReferredSegment
        }
        _ => return None,
    })
}

/// Paths that send by a ring.
fn rings(name: &str, load: &Load) -> Option<Formula> {
    let bytes = load.payload_bytes + load.header_bytes;
    let pages = bytes / PAGE_BYTES;
    let (images, apart) = (1.0 / load.train(bytes), 1.0 / load.train_apart());
    // Rings of the catalogue send in order; the server's leaves the links out.
    let linked = |entries: f64| {
        let batches = entries / BATCH_ENTRIES;
        let entry = entries * Entry + entries * Account + entries * Link + entries * LinkSend;
        entry + batches * Crossing + batches * RingCrossing
    };
    let registered = |trains: f64| {
        let train = trains * Train + trains * ColdTrain + trains * Release;
        linked(trains) + Planned + train + ReferredSegment
    };
    let pinned = || {
        let pages = load.mapped_by_reference() + load.pages() * PinnedPage;
        let train = apart * Train + apart * PinnedRelease;
        linked(apart) + pages + train + Planned + ReferredSegment
    };
    // Each packet is two pieces.
    let pieces = (2.0 - apart) * PinnedPiece;
    Some(match name {
        // What the kernel's thread does meanwhile is not the sender's, who sleeps once, until all
        // is done.
        "uring_sqpoll" => {
            let batches = images / BATCH_ENTRIES;
            Planned + images * PolledEntry + batches * Crossing + batches * Sleep
        }
        "ksendfile" | "krtpsendfile" => registered(images),
        // Trains are shorter.
        "uring_vectored_zc" => registered(apart) + pieces,
        "kmsend" => pinned(),
        "krtpmsend" => pinned() + pieces,
        "uring" => {
            linked(1.0) + load.mapped() + Packet + EntrySend + Piece + Miss + bytes * ColdByte
        }
        "uring_zc" => linked(1.0) + Packet + PinnedRelease + pages * PinnedPage + pages * Miss,
        "uring_registered" => linked(1.0) + Packet + Release + pages * Miss,
        _ => return None,
    })
}

/// What a packet costs for each member of a group, by a way of [`onrush_group`].
///
/// # Errors
///
/// If the way costs what the model has no term for, or a datagram is larger than the MTU.
pub fn group(way: &str, load: &Load) -> Result<Formula, NotPredicted> {
    let images = load.train(load.payload_bytes + load.header_bytes);
    let bytes = load.payload_bytes + load.header_bytes;
    // The first member's copy is cold, all others' are hot.
    let hot = |name| path(name, load).map(|formula| hot(formula, bytes));
    match way {
        "loop" => hot("sendto"),
        "sendmmsg" if images > 1.0 => hot("sendmmsg_gso"),
        "sendmmsg" => hot("sendmmsg"),
        // Members need no order among them.
        "uring" => path("krtpsendfile", load).map(unlinked),
        // Segments are cut for each copy, where the kernel cuts them; a train of one is none.
        "kernel" if images > 1.0 => load.unfragmented(1.0 / images * Clone + ReferredSegment),
        "kernel" => load.unfragmented(Clone.into()),
        _ => Err(NotPredicted::Name(way.to_owned())),
    }
}

/// The same if every burst is another client's: what the kernel has of its socket is in no cache,
/// and no client waits for another.
#[must_use]
pub fn of_many(formula: Formula, load: &Load) -> Formula {
    unlinked(formula) + 1.0 / load.burst_packets.max(1.0) * Session
}

fn unlinked(formula: Formula) -> Formula {
    formula.without(Link).without(LinkSend)
}

fn hot(formula: Formula, bytes: f64) -> Formula {
    let fixed = formula.without(Miss).without(ColdByte);
    match fixed.count(ColdTrainByte) > 0.0 {
        true => fixed.without(ColdTrainByte) + bytes * TrainByte,
        false => fixed + bytes * HotByte,
    }
}

impl Mul<Term> for f64 {
    type Output = Formula;

    fn mul(self, term: Term) -> Formula {
        let terms = vec![(self, term)];
        Formula { terms }
    }
}

impl From<Term> for Formula {
    fn from(term: Term) -> Self {
        1.0 * term
    }
}

impl<T> Add<T> for Formula
where
    Self: From<T>,
{
    type Output = Self;

    fn add(mut self, other: T) -> Self {
        for (count, term) in Self::from(other).terms {
            match self.terms.iter_mut().find(|(_, known)| *known == term) {
                Some((known, _)) => *known += count,
                None => self.terms.push((count, term)),
            }
        }
        self
    }
}

impl<T: Into<Formula>> Add<T> for Term {
    type Output = Formula;

    fn add(self, other: T) -> Formula {
        1.0 * self + other.into()
    }
}

impl Formula {
    /// The same with none of a term.
    #[must_use]
    pub fn without(mut self, term: Term) -> Self {
        self.terms.retain(|(_, known)| *known != term);
        self
    }

    /// How many of a term.
    #[must_use]
    pub fn count(&self, term: Term) -> f64 {
        let of = self.terms.iter().filter(|(_, known)| *known == term);
        of.map(|(count, _)| count).sum()
    }

    /// What it costs, in ns.
    ///
    /// # Errors
    ///
    /// If a probe of one of its terms has no samples.
    pub fn predict(&self, costs: &Costs) -> Result<f64, NotPredicted> {
        let ns = self.ns(costs);
        if ns.is_nan() {
            return Err(NotPredicted::Probes);
        }
        Ok(ns)
    }

    /// What it costs, in ns; not a number if a probe of one of its terms has no samples.
    #[must_use]
    pub fn ns(&self, costs: &Costs) -> f64 {
        self.terms
            .iter()
            .map(|(count, term)| count * costs.ns(*term))
            .sum()
    }

    /// What each term adds, in ns, the most first.
    #[must_use]
    pub fn parts(&self, costs: &Costs) -> Vec<(Term, f64)> {
        let part = |(count, term): &(f64, Term)| (*term, count * costs.ns(*term));
        let mut parts: Vec<_> = self.terms.iter().map(part).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        parts
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (count, term)) in self.terms.iter().enumerate() {
            let plus = if i > 0 { " + " } else { "" };
            let count = (count * 1e3).round() / 1e3;
            write!(f, "{plus}{count} {}", term.name())?;
        }
        Ok(())
    }
}

impl Load {
    /// What packets cost that fit the MTU.
    fn unfragmented(&self, formula: Formula) -> Result<Formula, NotPredicted> {
        if self.payload_bytes + self.header_bytes > f64::from(MTU_PACKET_BYTES) {
            return Err(NotPredicted::BeyondMtu);
        }
        Ok(formula)
    }

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

    fn copied(&self) -> Formula {
        Miss + self.payload_bytes * ColdByte
    }

    fn read(&self) -> Formula {
        self.copied() + Crossing + ReadCall
    }

    fn mapped(&self) -> Formula {
        self.pages() * Fault
    }

    /// Mapped, and not touched before the kernel refers to it.
    fn mapped_by_reference(&self) -> Formula {
        self.pages() * PinFault
    }

    fn spliced(&self) -> Formula {
        // A packet lies in one page more than it fills.
        Crossing + SpliceCall + (1.0 + self.pages()) * SplicePage
    }

    fn header_appended(&self) -> Formula {
        Crossing + Append + self.header_bytes * HotByte
    }
}
