//! How long a transport stream is, by its two ends alone.

use super::clock::{PCR_HZ, PCR_WRAP};
use super::header::Header;
use super::index::TS_PACKET_BYTES;
use super::{SYNC_CONFIRMATIONS, UNITS, is_synced};

/// The time in ns from the first clock reference in `head`, some of a file's first bytes, to the
/// last of the same clock in `tail`, some of its last. `None` if it has no such clock. The clock
/// starts again after 26 hours, and may jump: so it is an estimate.
#[must_use]
pub fn clock_span_ns(head: &[u8], tail: &[u8]) -> Option<u64> {
    let (pid, first) = references(head).next()?;
    let (_, last) = references(tail).filter(|(of, _)| *of == pid).last()?;
    let ticks = (last + PCR_WRAP - first) % PCR_WRAP;
    let span_ns = u128::from(ticks) * 1_000_000_000 / u128::from(PCR_HZ);
    u64::try_from(span_ns).ok()
}

/// The clock references of the packets in `bytes`, of which the first may be cut: which clock's,
/// and its ticks.
fn references(bytes: &[u8]) -> impl Iterator<Item = (u16, u64)> + '_ {
    let found = (0..bytes.len()).find_map(|at| {
        let is_it = |unit: &&super::Unit| is_synced(&bytes[at..], **unit, SYNC_CONFIRMATIONS);
        Some((at, *UNITS.iter().find(is_it)?))
    });
    let (at, unit) = found.unwrap_or((bytes.len(), UNITS[0]));
    let packets = bytes[at..].chunks_exact(unit.bytes);
    packets.filter_map(move |bytes| {
        let packet = bytes[unit.packet..].first_chunk::<TS_PACKET_BYTES>()?;
        let header = Header::read(packet);
        Some((header.pid, header.pcr?))
    })
}

#[cfg(test)]
mod tests {
    use super::super::synth;
    use super::*;

    #[test]
    fn the_span_is_from_the_first_to_the_last_reference() {
        let stream = synth::constant_rate(2000, PCR_WRAP - 1_000_000, 10_152);
        let (head, tail) = (
            &stream[..188 * 100],
            &stream[stream.len() - 188 * 100 - 77..],
        );
        let mut references = stream.chunks(188).filter_map(synth::pcr_of);
        let (first, last) = (references.next().unwrap(), references.next_back().unwrap());
        assert!(last < first, "the clock has started again");
        let expected_ns = (last + PCR_WRAP - first) * 1000 / 27;
        assert_eq!(clock_span_ns(head, tail), Some(expected_ns));
        assert_eq!(clock_span_ns(&stream[..188 * 2], tail), None);
        assert_eq!(clock_span_ns(head, &[]), None);
    }
}
