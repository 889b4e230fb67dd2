//! Plans: a track as numbered packets, grouped in bursts with due times.
//!
//! Every packet's size, time and place in the file follow from its number alone, and so do its
//! bytes, given those of the file: two sessions that ask for the same packets get the same bytes.
//! Who has a plan knows neither what is in a packet nor whether packets are of one size.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use thiserror::Error;

use super::scale::Timeline;
use crate::rtp::{self, HEADER_BYTES, Position};

/// How much later than a burst the one after it may be due for a sender that is behind to let them
/// leave together: two pictures, at 24 a second or more.
pub const JOINED_NS_MAX: u64 = 50_000_000;

/// Where to start for a wished-for time: one place for all tracks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeekPoint {
    /// Its media time in ns.
    pub time_ns: u64,
    /// Where that is, as the container counts.
    pub(super) place: u64,
}

/// A track's RTP packets: which bytes, due when.
#[derive(Debug)]
pub struct Plan {
    packets: Box<dyn Packets>,
    burst_ns: u64,
    /// Ticks a second of its timestamps.
    clock_hz: u32,
    timeline: Timeline,
}

/// Packets of one size, but for the last, which may be shorter, that are handed over together: what
/// one `UDP_SEGMENT` send, or several, can carry. Where packets that are due together differ in
/// size they are several of these, one after the other, with the same `due_ns`. Packets of sound
/// may be due later than the one with which they leave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Burst {
    /// The plan's number of its first RTP packet.
    pub first: u64,
    /// How many RTP packets.
    pub packets: u32,
    /// When the first of what is due together is due, in ns since the start of the media.
    pub due_ns: u64,
    /// Where its first image starts, counted from that of the first packet that was asked about.
    pub offset: u64,
    /// Bytes of all its images.
    pub bytes: u64,
    /// Bytes of an image, RTP header included; the last may be shorter.
    pub segment_bytes: u16,
}

/// What the RTP headers of a track count from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RtpOrigin {
    /// The sequence number of RTP packet 0.
    pub sequence: u16,
    /// The RTP timestamp of media time 0.
    pub timestamp: u32,
    /// The synchronisation source.
    pub ssrc: u32,
}

/// A part of a file, in memory.
#[derive(Clone, Copy, Debug)]
pub struct FilePiece<'a> {
    /// Where in the file it starts.
    pub offset: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Why no images could be written.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ImageError {
    /// No piece holds what belongs there.
    #[error("the packet at file offset {file_offset} is not at hand: the file became shorter")]
    Bytes {
        /// Where the packet starts.
        file_offset: u64,
    },
    /// There is no packet where the index says that one starts.
    #[error("no packet at file offset {file_offset}: the file was changed since it was indexed")]
    Sync {
        /// Where it should start.
        file_offset: u64,
    },
    /// The packet there has other bytes than when it was indexed.
    #[error(
        "another packet at file offset {file_offset}: the file was changed since it was indexed"
    )]
    Changed {
        /// Where the packet starts.
        file_offset: u64,
    },
    /// The plan has fewer packets, or the place for the images is too small.
    #[error(
        "packets {start}..{end} of {rtp_packets} do not go into {out_bytes} bytes; ask for fewer \
         at a time"
    )]
    Room {
        /// The first packet asked for.
        start: u64,
        /// One after the last packet asked for.
        end: u64,
        /// Packets of the plan.
        rtp_packets: u64,
        /// Bytes of room given.
        out_bytes: usize,
    },
}

/// A track's packets, as its packetizer makes them. Each has at least one byte behind its header.
pub(super) trait Packets: Any + fmt::Debug + Send + Sync {
    fn count(&self) -> u64;
    /// Never less than for the packet before; the end of the track for what is beyond its last
    /// packet.
    fn due_ns(&self, packet: u64) -> u64;
    fn packet_at(&self, time_ns: u64) -> u64;
    fn packet_from(&self, point: SeekPoint) -> u64;
    /// The RTP timestamp, counted from that of media time 0.
    fn ticks(&self, packet: u64) -> u32;
    fn payload_bytes(&self, packet: u64) -> usize;
    fn payload_bytes_max(&self) -> usize;
    fn images_bytes(&self, packets: Range<u64>) -> u64;
    fn file_range(&self, packets: Range<u64>) -> Range<u64>;
    fn file_pieces(&self, packet: u64) -> Vec<Range<u64>>;
    fn file_parts(&self, packets: Range<u64>, _gap_bytes_max: u64) -> Vec<Range<u64>> {
        vec![self.file_range(packets)]
    }
    fn packets_in(&self, part: Range<u64>) -> Range<u64>;
    fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>);
    fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        out: &mut [u8],
    ) -> Result<(), ImageError>;

    /// Whether a packet would be longer if the file went on.
    fn is_partial(&self, _packet: u64) -> bool {
        false
    }

    /// Sends that all of it takes if one carries at most so many packets. `None` if that is not
    /// counted, because a burst is a send unless it has more.
    fn sends(&self, _packets_max: u32) -> Option<u64> {
        None
    }
}

impl Plan {
    pub(super) fn new(
        packets: Box<dyn Packets>,
        burst_ns: u64,
        clock_hz: u32,
        timeline: Timeline,
    ) -> Self {
        Self {
            packets,
            burst_ns,
            clock_hz,
            timeline,
        }
    }

    /// What made it, for one that goes on where it ends.
    pub(super) fn maker(&self) -> &dyn Any {
        &*self.packets
    }

    /// What its due times are to the times of the media.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        self.timeline
    }

    /// The length of a burst in ns.
    #[must_use]
    pub fn burst_ns(&self) -> u64 {
        self.burst_ns
    }

    /// RTP packets in all.
    #[must_use]
    pub fn rtp_packets(&self) -> u64 {
        self.packets.count()
    }

    /// When RTP packet `rtp_packet` is due, in ns since the start of the media; for what is beyond
    /// the last, when the track is over.
    #[must_use]
    pub fn due_ns(&self, rtp_packet: u64) -> u64 {
        self.packets.due_ns(rtp_packet)
    }

    /// The first RTP packet due at `time_ns` or later; [`Self::rtp_packets`] if none is.
    #[must_use]
    pub fn rtp_packet_at(&self, time_ns: u64) -> u64 {
        self.packets.packet_at(time_ns)
    }

    /// The RTP packet to start from at a place of the index.
    #[must_use]
    pub fn rtp_packet_from(&self, point: SeekPoint) -> u64 {
        self.packets.packet_from(point)
    }

    /// The RTP packets that are made of bytes in a part of the file. Where that has no end
    /// (`u64::MAX`), those that are still to come are among them.
    #[must_use]
    pub fn rtp_packets_in(&self, part: Range<u64>) -> Range<u64> {
        self.packets.packets_in(part)
    }

    /// What the header of `rtp_packet` says; of the one after the last, too.
    #[must_use]
    pub fn position(&self, rtp_packet: u64, origin: RtpOrigin) -> Position {
        let ticks = self.packets.ticks(rtp_packet);
        Position {
            sequence: origin.sequence_of(rtp_packet),
            timestamp: origin.timestamp.wrapping_add(ticks),
        }
    }

    /// The RTP timestamp of what is due at `due_ns`, by the line on which the pairs of due time and
    /// timestamp lie: that of a packet may be another, where pictures are shown in another order
    /// than they are sent.
    #[must_use]
    pub fn timestamp_of(&self, due_ns: u64, origin: RtpOrigin) -> u32 {
        let ticks = rtp::ticks_of(due_ns, self.clock_hz.into());
        origin.timestamp.wrapping_add(ticks)
    }

    /// Bytes of the payload of `rtp_packet`; 0 beyond the last.
    #[must_use]
    pub fn payload_bytes(&self, rtp_packet: u64) -> usize {
        self.packets.payload_bytes(rtp_packet)
    }

    /// Bytes of the image of `rtp_packet`, RTP header included; 0 beyond the last.
    #[must_use]
    pub fn image_bytes(&self, rtp_packet: u64) -> usize {
        match self.payload_bytes(rtp_packet) {
            0 => 0,
            payload_bytes => HEADER_BYTES + payload_bytes,
        }
    }

    /// Bytes of the largest image that it may have, however it goes on.
    #[must_use]
    pub fn image_bytes_max(&self) -> usize {
        HEADER_BYTES + self.packets.payload_bytes_max()
    }

    /// Bytes of the images of `packets`, which lie one behind the other; nothing is beyond the
    /// last.
    #[must_use]
    pub fn images_bytes(&self, packets: Range<u64>) -> u64 {
        self.packets.images_bytes(packets)
    }

    /// Packets of a chunk, so that any so many from a multiple of that number on, with
    /// `entry_bytes` for each, fit `bytes`. So the chunk of a packet follows from its number alone,
    /// also in what is still to come of a file that grows.
    #[must_use]
    pub fn packets_per_chunk(&self, bytes: usize, entry_bytes: usize) -> u64 {
        (bytes / (self.image_bytes_max() + entry_bytes)) as u64
    }

    /// Whether a packet would be longer if the file went on: the last may be.
    #[must_use]
    pub fn is_partial(&self, rtp_packet: u64) -> bool {
        self.packets.is_partial(rtp_packet)
    }

    /// Sends that all of it takes if one carries at most so many packets, which are of one size but
    /// for the last. `None` where all packets are of one size: then bursts can be counted instead.
    #[must_use]
    pub fn sends(&self, packets_max: u32) -> Option<u64> {
        self.packets.sends(packets_max)
    }

    /// The smallest range of the file that holds all of these packets' payload; empty if there are
    /// none.
    #[must_use]
    pub fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        self.packets.file_range(packets)
    }

    /// The same without what lies between and is not needed: parts of the file, in its order, with
    /// more than `gap_bytes_max` bytes from one to the next where that is known.
    #[must_use]
    pub fn file_parts(&self, packets: Range<u64>, gap_bytes_max: u64) -> Vec<Range<u64>> {
        self.packets.file_parts(packets, gap_bytes_max)
    }

    /// The parts of the file that the payload of `rtp_packet` is made of, in order; none beyond the
    /// last. None is longer than a MiB: what is lies in several, one behind the other.
    #[must_use]
    pub fn file_pieces(&self, rtp_packet: u64) -> Vec<Range<u64>> {
        self.packets.file_pieces(rtp_packet)
    }

    /// Appends the bursts of `packets` to `out`; the first and the last may be cut short by the
    /// range's ends. Numbers beyond the plan's last packet are left out.
    pub fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        self.packets.bursts(packets, out);
    }

    /// Writes the images `[RTP header | payload]` of `packets` into `out`, one behind the other.
    /// `pieces` are parts of the file that together hold each of [`Self::file_pieces`] of them
    /// whole in one: as a rule one piece, of [`Self::file_range`]. What lies in `out` beyond the
    /// last image stays as it is.
    ///
    /// # Errors
    ///
    /// If the bytes are too few, if they are not those that were indexed (the file was changed), or
    /// if `out` is too small. `out` then holds no particular bytes.
    pub fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        self.packets.write_images(packets, pieces, origin, out)
    }
}

impl RtpOrigin {
    /// The sequence number of RTP packet `rtp_packet` of a plan.
    #[must_use]
    pub fn sequence_of(&self, rtp_packet: u64) -> u16 {
        self.sequence.wrapping_add((rtp_packet & 0xffff) as u16)
    }

    /// The RTP timestamp of media time `time_ns` by a clock of 90 kHz.
    #[must_use]
    pub fn timestamp_of(&self, time_ns: u64) -> u32 {
        self.timestamp.wrapping_add(rtp::ticks(time_ns))
    }
}
