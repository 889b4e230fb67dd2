//! From transport streams to packet plans.
//!
//! A [`ts::Scanner`] reads a file's bytes once, in order, and yields an [`Index`]: where the transport
//! packets are, when each is due, and where a decoder can start. A [`Plan`] cuts the index into RTP
//! packets and bursts. The one idea: the index is small (a few points of a piecewise linear clock, the
//! runs of unbroken sync, the seek points), and everything about any packet is computed from it.
//!
//! Nothing here changes a byte of the stream, reorders it, or repairs what is broken in it.

pub mod clock;
mod demux;
mod descriptor;
mod header;
mod image;
pub mod plan;
pub mod psi;
pub mod report;
mod seek;
pub mod synth;
pub mod ts;

use std::sync::Arc;

pub use image::{FilePiece, ImageError, RtpOrigin};
pub use plan::{Burst, Packetisation, Plan};
pub use report::Report;

use clock::Clock;
use report::Facts;

/// Bytes of a transport packet (ISO/IEC 13818-1, section 2.4.3.2).
pub const TS_PACKET_BYTES: usize = 188;

/// What every transport packet starts with.
pub const SYNC_BYTE: u8 = 0x47;

/// What one pass over a transport stream learned.
#[derive(Debug)]
pub struct Index {
    pub(crate) ts_packets: u64,
    pub(crate) runs: Vec<SyncRun>,
    pub(crate) clock: Clock,
    pub(crate) seek_points: Vec<SeekPoint>,
    pub(crate) facts: Facts,
}

/// Transport packets that lie in the file one after the other at one distance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SyncRun {
    /// Where in the file the first packet's sync byte is.
    pub file_offset: u64,
    /// The number of the first packet.
    pub first: u64,
    /// How many packets.
    pub packets: u64,
    /// Bytes from sync byte to sync byte: 188, or 192 with the time stamps of M2TS.
    pub distance: u16,
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
    /// The last random-access point at or before `time_ns`. The start of the file is one always.
    #[must_use]
    pub fn seek(&self, time_ns: u64) -> SeekPoint {
        let after = self
            .seek_points
            .partition_point(|point| point.time_ns <= time_ns);
        self.seek_points[after.saturating_sub(1)]
    }

    /// From the first transport packet to the end of the last, in ns.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.clock.time_ns(self.ts_packets)
    }

    /// Transport packets in the file.
    #[must_use]
    pub fn ts_packets(&self) -> u64 {
        self.ts_packets
    }

    /// When transport packet `ts_packet` is due, in ns since the start of the media. Never less than for
    /// the packet before; [`Self::duration_ns`] for a packet beyond the last.
    #[must_use]
    pub fn due_ns(&self, ts_packet: u64) -> u64 {
        self.clock.time_ns(ts_packet)
    }

    /// The first transport packet that is due at `time_ns` or later; [`Self::ts_packets`] if none is.
    #[must_use]
    pub fn ts_packet_at(&self, time_ns: u64) -> u64 {
        self.clock.packet_at(time_ns)
    }

    /// All points where a decoder can start, in order. Never empty: the first is the start of the file.
    #[must_use]
    pub fn seek_points(&self) -> &[SeekPoint] {
        &self.seek_points
    }

    /// Where in the file the packets are. Never empty; each run starts where the one before ended,
    /// counted in packets.
    #[must_use]
    pub fn runs(&self) -> &[SyncRun] {
        &self.runs
    }

    /// All that is worth telling about the file when it is cut as `packetisation` says.
    #[must_use]
    pub fn report(self: &Arc<Self>, packetisation: Packetisation) -> Report {
        Report::new(self, packetisation)
    }
}

impl SyncRun {
    /// Where in the file `ts_packet` of this run starts.
    pub(crate) fn offset_of(&self, ts_packet: u64) -> u64 {
        self.file_offset + (ts_packet - self.first) * u64::from(self.distance)
    }

    /// The number of the first packet after this run.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.packets
    }
}
