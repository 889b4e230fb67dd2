//! What making a plan comes to, unit by unit: from where one ends, one of more of the same track
//! goes on.

use super::filling::{Filler, PacketCut};
use crate::media::grouping::{BurstLengths, Grouping, Rule};
use crate::media::samples::column::Column;
use crate::rtp::HEADER_BYTES;

/// What is known of the units of a plan, and what the next one depends on.
#[derive(Clone, Debug)]
pub(super) struct Made {
    /// How many packets each unit makes.
    pub(super) packets: Column,
    /// How each unit is cut, as the [number](PacketCut::number) of that.
    pub(super) cuts: Column,
    /// Bytes behind the RTP header of the largest.
    pub(super) payload_bytes_max: usize,
    /// Bytes of all images. Who lets viewers in asks for it for each of them, and to packetize a
    /// film once more takes as long as the film.
    pub(super) images_bytes: u64,
    /// Decides which units are filled.
    pub(super) filler: Filler,
    /// When the last unit is due, if there is one.
    pub(super) last_ns: Option<u64>,
    /// Has the last burst.
    grouping: Grouping,
    /// How many packets the bursts before it have: asked for as often as their bytes.
    burst_lengths: BurstLengths,
}

impl Made {
    /// Nothing yet.
    pub(super) fn new(rule: Rule) -> Self {
        Self {
            packets: Column::default(),
            cuts: Column::default(),
            payload_bytes_max: 0,
            images_bytes: 0,
            filler: Filler::default(),
            last_ns: None,
            grouping: Grouping::new(0, rule),
            burst_lengths: BurstLengths::default(),
        }
    }

    /// Takes the next unit, by when it is due, how it is cut, and the lengths of its packets.
    pub(super) fn push(&mut self, due_ns: u64, cut: PacketCut, lengths: &[usize]) {
        debug_assert!(!lengths.is_empty(), "a unit makes a packet");
        let packets = i64::try_from(lengths.len()).unwrap_or(i64::MAX);
        self.packets.push(packets);
        self.cuts.push(cut.number());
        for &bytes in lengths {
            self.payload_bytes_max = self.payload_bytes_max.max(bytes);
            self.images_bytes += (HEADER_BYTES + bytes) as u64;
            if let Some(burst) = self.grouping.push(due_ns, HEADER_BYTES + bytes) {
                self.burst_lengths.count(&burst);
            }
        }
        self.last_ns = Some(due_ns);
    }

    /// How many units there are.
    pub(super) fn units(&self) -> usize {
        self.packets.len()
    }

    /// Sends that all of it takes if one carries at most so many packets.
    pub(super) fn sends(&self, packets_max: u32) -> u64 {
        let mut lengths = self.burst_lengths.clone();
        if let Some(last) = self.grouping.clone().end() {
            lengths.count(&last);
        }
        lengths.sends(packets_max)
    }
}
