//! From files to packet plans.

use std::ops::Range;
use std::sync::Arc;

/// What one pass over a transport stream learned.
#[derive(Debug)]
pub struct Index;

/// A file's RTP packets: which bytes, due when.
#[derive(Debug)]
pub struct Plan;

/// Packets that are handed over together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Burst {
    /// The plan's number of its first RTP packet.
    pub first: u64,
    /// How many RTP packets.
    pub packets: u32,
    /// When the first of them is due, in ns since the start of the media.
    pub due_ns: u64,
}

/// Where to start reading for a wished-for time.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SeekPoint {
    /// The number of the transport packet.
    pub ts_packet: u64,
    /// Its media time in ns.
    pub time_ns: u64,
}

impl Index {
    /// The last random-access point at or before `time_ns`.
    #[must_use]
    pub fn seek(&self, time_ns: u64) -> SeekPoint {
        todo!("{time_ns}")
    }

    /// From the first transport packet to the end of the last, in ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        todo!()
    }

    /// Transport packets in the file.
    #[must_use]
    pub fn ts_packets(&self) -> u64 {
        todo!()
    }

    /// When transport packet `ts_packet` is due, in ns since the start of the media.
    #[must_use]
    pub fn due_ns(&self, ts_packet: u64) -> u64 {
        todo!("{ts_packet}")
    }
}

impl Plan {
    /// RTP packets in all.
    #[must_use]
    pub fn rtp_packets(&self) -> u64 {
        todo!()
    }

    /// The RTP packet that carries transport packet `ts_packet`.
    #[must_use]
    pub fn rtp_packet_of(&self, ts_packet: u64) -> u64 {
        todo!("{ts_packet}")
    }

    /// When RTP packet `rtp_packet` is due, in ns since the start of the media.
    #[must_use]
    pub fn due_ns(&self, rtp_packet: u64) -> u64 {
        todo!("{rtp_packet}")
    }

    /// Bytes of the payload of `rtp_packet`.
    #[must_use]
    pub fn payload_bytes(&self, rtp_packet: u64) -> usize {
        todo!("{rtp_packet}")
    }

    /// Bytes between the starts of two images: RTP header and full payload.
    #[must_use]
    pub fn stride(&self) -> usize {
        todo!()
    }

    /// The smallest range of the file that holds all of these packets' payload.
    #[must_use]
    pub fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        todo!("{packets:?}")
    }

    /// Appends the bursts of `packets` to `out`; the last may be cut short by the range's end.
    pub fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        todo!("{packets:?} {out:?}")
    }

    /// The index it was made from.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        todo!()
    }
}
