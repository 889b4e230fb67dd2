//! What formats have in common that put a few bytes in front of whole frames, or of a part of one.

use std::ops::Range;

use super::super::packetizer::{PacketSink, Unit};

/// What one packet carries.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Carried {
    /// So many whole samples.
    Whole(usize),
    /// Part of one.
    Fragment {
        /// Which of its bytes.
        part: Range<usize>,
        /// All of its bytes.
        of_bytes: usize,
        /// The packets that have them.
        packets: usize,
    },
}

/// Tells `sink` the packets of `unit`, each of which begins with what `header` says. The marker is
/// set where `marks_ends` is and a sample ends.
pub(super) fn packetize<const HEADER_BYTES: usize>(
    unit: &Unit<'_>,
    payload_bytes_max: usize,
    sink: &mut dyn PacketSink,
    marks_ends: bool,
    header: impl Fn(&Carried) -> [u8; HEADER_BYTES],
) {
    let room = payload_bytes_max - HEADER_BYTES;
    if let [sample] = unit.samples
        && sample.bytes as usize > room
    {
        let of_bytes = sample.bytes as usize;
        let packets = of_bytes.div_ceil(room);
        for start in (0..of_bytes).step_by(room) {
            let end = of_bytes.min(start + room);
            let part = start..end;
            sink.literal(&header(&Carried::Fragment {
                part: part.clone(),
                of_bytes,
                packets,
            }));
            sink.sample(0, part);
            sink.end(marks_ends && end == of_bytes);
        }
        return;
    }
    sink.literal(&header(&Carried::Whole(unit.samples.len())));
    for (at, sample) in unit.samples.iter().enumerate() {
        sink.sample(at, 0..sample.bytes as usize);
    }
    sink.end(marks_ends);
}
