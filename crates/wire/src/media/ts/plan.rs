//! RTP packets and bursts of an indexed file (RFC 2250, section 2).
//!
//! RTP packet `i` carries transport packets `n * i` to `n * i + n`, whatever gaps lie between them
//! in the file; only the last is shorter. So every packet's place, size and time follow from its
//! number alone, and two sessions that ask for the same packets get the same bytes.

use std::ops::Range;
use std::sync::Arc;

use super::{Index, TS_PACKET_BYTES};
use crate::media::plan::SeekPoint;
use crate::media::plan::{Burst, FilePiece, ImageError, Packets, RtpOrigin};
use crate::media::ts::clock::Cursor;
use crate::rtp;

/// Transport packets in an RTP packet at the most: seven fill an Ethernet frame.
pub const TS_PACKETS_PER_RTP_MAX: u8 = 7;

/// A file's RTP packets: which bytes, due when.
#[derive(Debug)]
pub struct Plan {
    pub(in crate::media) index: Arc<Index>,
    pub(in crate::media) ts_per_rtp: u64,
    burst_ns: u64,
    /// Those of the index, or what of them makes whole RTP packets.
    pub(in crate::media) ts_packets: u64,
}

/// How a file is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packetisation {
    /// Transport packets in an RTP packet, 1 to [`TS_PACKETS_PER_RTP_MAX`].
    pub ts_packets_per_rtp: u8,
    /// Packets that are due within one interval of this length are handed over together. Not 0.
    pub burst_ns: u64,
}

impl Plan {
    /// Cuts `index` into RTP packets and bursts.
    ///
    /// # Panics
    ///
    /// If `packetisation` is not within its bounds.
    #[must_use]
    pub fn new(index: Arc<Index>, packetisation: Packetisation) -> Self {
        let Packetisation {
            ts_packets_per_rtp,
            burst_ns,
        } = packetisation;
        assert!(
            (1..=TS_PACKETS_PER_RTP_MAX).contains(&ts_packets_per_rtp),
            "1 to 7 fit a frame"
        );
        assert!(burst_ns > 0, "a burst lasts");
        Self {
            ts_packets: index.ts_packets,
            index,
            ts_per_rtp: u64::from(ts_packets_per_rtp),
            burst_ns,
        }
    }

    /// The same of a file that goes on: the last transport packets are left out unless they fill an
    /// RTP packet, because the next ones belong to it, too.
    ///
    /// # Panics
    ///
    /// If `packetisation` is not within its bounds.
    #[must_use]
    pub fn unfinished(index: Arc<Index>, packetisation: Packetisation) -> Self {
        let mut plan = Self::new(index, packetisation);
        plan.ts_packets -= plan.ts_packets % plan.ts_per_rtp;
        plan
    }

    /// Transport packets in all of its RTP packets.
    #[must_use]
    pub fn ts_packets(&self) -> u64 {
        self.ts_packets
    }

    /// Transport packets in an RTP packet, but for the last.
    #[must_use]
    pub fn ts_packets_per_rtp(&self) -> u64 {
        self.ts_per_rtp
    }

    /// The index it was made from.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        &self.index
    }

    /// The length of a burst in ns.
    #[must_use]
    pub fn burst_ns(&self) -> u64 {
        self.burst_ns
    }

    /// RTP packets in all.
    #[must_use]
    pub fn rtp_packets(&self) -> u64 {
        self.ts_packets.div_ceil(self.ts_per_rtp)
    }

    /// The RTP packet that carries transport packet `ts_packet`.
    #[must_use]
    pub fn rtp_packet_of(&self, ts_packet: u64) -> u64 {
        ts_packet / self.ts_per_rtp
    }

    /// The first RTP packet due at `time_ns` or later; [`Self::rtp_packets`] if none is.
    #[must_use]
    pub fn rtp_packet_at(&self, time_ns: u64) -> u64 {
        let packet = self.index.ts_packet_at(time_ns).div_ceil(self.ts_per_rtp);
        packet.min(self.rtp_packets())
    }

    /// When RTP packet `rtp_packet` is due, in ns since the start of the media: when its first
    /// transport packet is.
    #[must_use]
    pub fn due_ns(&self, rtp_packet: u64) -> u64 {
        self.index
            .due_ns(rtp_packet.saturating_mul(self.ts_per_rtp))
    }

    /// Bytes of the payload of `rtp_packet`; 0 beyond the last.
    #[must_use]
    pub fn payload_bytes(&self, rtp_packet: u64) -> usize {
        let first = rtp_packet.saturating_mul(self.ts_per_rtp);
        let left = self.ts_packets.saturating_sub(first);
        // At most 7, so the conversion holds.
        usize::try_from(left.min(self.ts_per_rtp)).unwrap_or(0) * TS_PACKET_BYTES
    }

    /// Bytes between the starts of two images: RTP header and full payload.
    pub(in crate::media) fn stride(&self) -> usize {
        rtp::HEADER_BYTES + usize::try_from(self.ts_per_rtp).unwrap_or(0) * TS_PACKET_BYTES
    }

    /// Bytes of the image of `rtp_packet`, RTP header included; 0 beyond the last.
    #[must_use]
    pub fn image_bytes(&self, rtp_packet: u64) -> usize {
        match self.payload_bytes(rtp_packet) {
            0 => 0,
            payload_bytes => rtp::HEADER_BYTES + payload_bytes,
        }
    }

    /// Bytes of the largest image that it may have, however it goes on.
    #[must_use]
    pub fn image_bytes_max(&self) -> usize {
        self.stride()
    }

    /// Bytes of the images of `packets`, which lie one behind the other; nothing is beyond the
    /// last.
    #[must_use]
    pub fn images_bytes(&self, packets: Range<u64>) -> u64 {
        let end = packets.end.min(self.rtp_packets());
        let Some(before_last) = end.checked_sub(packets.start + 1) else {
            return 0;
        };
        before_last * self.stride() as u64 + self.image_bytes(end - 1) as u64
    }

    /// Whether a packet would be longer if the file went on: the last may be.
    #[must_use]
    pub fn is_partial(&self, rtp_packet: u64) -> bool {
        rtp_packet + 1 >= self.rtp_packets() && self.image_bytes(rtp_packet) < self.stride()
    }

    /// The smallest range of the file that holds all of these packets' payload; empty if there are
    /// none.
    #[must_use]
    pub fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        let first = packets.start.saturating_mul(self.ts_per_rtp);
        let end = packets
            .end
            .saturating_mul(self.ts_per_rtp)
            .min(self.ts_packets);
        if first >= end {
            return 0..0;
        }
        let runs = &self.index.runs;
        let last = end - 1;
        runs[self.run_of(first)].offset_of(first)
            ..runs[self.run_of(last)].offset_of(last) + TS_PACKET_BYTES as u64
    }

    /// Appends the bursts of `packets` to `out`; the first and the last may be cut short by the
    /// range's ends. Numbers beyond the plan's last packet are left out.
    pub fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        let stride = self.stride() as u64;
        self.each_burst(packets.clone(), |mut burst| {
            burst.offset = (burst.first - packets.start) * stride;
            let end = burst.first + u64::from(burst.packets);
            burst.bytes = self.images_bytes(burst.first..end);
            out.push(burst);
        });
    }

    /// As [`Self::bursts`], without a list, and without saying where the images lie.
    pub(in crate::media) fn each_burst(&self, packets: Range<u64>, mut each: impl FnMut(Burst)) {
        let segment_bytes = u16::try_from(self.stride()).unwrap_or(u16::MAX);
        let end = packets.end.min(self.rtp_packets());
        let mut times = self.times(packets.start);
        let mut open: Option<(Burst, u64)> = None;
        for packet in packets.start..end {
            let due_ns = times.due_ns(packet);
            match &mut open {
                Some((burst, end_ns)) if due_ns < *end_ns && burst.packets < u32::MAX => {
                    burst.packets += 1;
                }
                _ => {
                    let burst = Burst {
                        first: packet,
                        packets: 1,
                        due_ns,
                        offset: 0,
                        bytes: 0,
                        segment_bytes,
                    };
                    // Compared with the interval's end, so that there is no division per packet.
                    let end_ns = (due_ns - due_ns % self.burst_ns).saturating_add(self.burst_ns);
                    if let Some((done, _)) = open.replace((burst, end_ns)) {
                        each(done);
                    }
                }
            }
        }
        if let Some((done, _)) = open {
            each(done);
        }
    }

    /// Where in the file the transport packets of `rtp_packet` are, in order; none beyond the last.
    pub fn file_offsets(&self, rtp_packet: u64) -> impl Iterator<Item = u64> {
        let first = rtp_packet.saturating_mul(self.ts_per_rtp);
        let end = first.saturating_add(self.ts_per_rtp);
        (first..end.min(self.ts_packets))
            .map(|ts_packet| self.index.runs[self.run_of(ts_packet)].offset_of(ts_packet))
    }

    /// The number of the run that holds `ts_packet`, which is one of the file's.
    pub(in crate::media) fn run_of(&self, ts_packet: u64) -> usize {
        self.index.run_of(ts_packet)
    }

    /// Due times of RTP packets from `first` on, in rising order.
    pub(in crate::media) fn times(&self, first: u64) -> Times<'_> {
        let cursor = self
            .index
            .clock
            .cursor(first.saturating_mul(self.ts_per_rtp));
        Times { plan: self, cursor }
    }
}

impl Packets for Plan {
    fn count(&self) -> u64 {
        self.rtp_packets()
    }

    fn due_ns(&self, packet: u64) -> u64 {
        self.due_ns(packet)
    }

    fn packet_at(&self, time_ns: u64) -> u64 {
        self.rtp_packet_at(time_ns)
    }

    fn packet_from(&self, point: SeekPoint) -> u64 {
        self.rtp_packet_of(point.place)
    }

    fn ticks(&self, packet: u64) -> u32 {
        rtp::ticks(self.due_ns(packet))
    }

    fn payload_bytes(&self, packet: u64) -> usize {
        self.payload_bytes(packet)
    }

    fn payload_bytes_max(&self) -> usize {
        self.stride() - rtp::HEADER_BYTES
    }

    fn images_bytes(&self, packets: Range<u64>) -> u64 {
        self.images_bytes(packets)
    }

    fn is_partial(&self, packet: u64) -> bool {
        self.is_partial(packet)
    }

    fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        self.file_range(packets)
    }

    fn file_pieces(&self, packet: u64) -> Vec<Range<u64>> {
        let offsets = self.file_offsets(packet);
        let piece = |offset| offset..offset + TS_PACKET_BYTES as u64;
        offsets.map(piece).collect()
    }

    fn packets_in(&self, part: Range<u64>) -> Range<u64> {
        let ts_packets = self.index.ts_packets_in(part);
        let end = match ts_packets.end {
            u64::MAX => u64::MAX,
            end => end.div_ceil(self.ts_per_rtp),
        };
        self.rtp_packet_of(ts_packets.start)..end
    }

    fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        self.bursts(packets, out);
    }

    fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        self.write_images(packets, pieces, origin, out)
    }
}

/// Looks up due times of rising packet numbers without searching.
pub(in crate::media) struct Times<'a> {
    plan: &'a Plan,
    cursor: Cursor,
}

impl Times<'_> {
    pub(in crate::media) fn due_ns(&mut self, rtp_packet: u64) -> u64 {
        self.plan
            .index
            .clock
            .time_ns_from(&mut self.cursor, rtp_packet * self.plan.ts_per_rtp)
    }
}

#[cfg(test)]
pub(in crate::media) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::media::ts::synth::{constant_rate, to_m2ts, with_parity};
    use crate::media::ts::{ScanOptions, Scanner};

    /// A plan of `file`, 10 ms a burst.
    pub(in crate::media) fn plan(file: &[u8], ts_packets_per_rtp: u8) -> Plan {
        let mut scanner = Scanner::new(ScanOptions::default());
        scanner.push(file).unwrap();
        let index = Arc::new(scanner.finish().unwrap());
        Plan::new(
            index,
            Packetisation {
                ts_packets_per_rtp,
                burst_ns: 10_000_000,
            },
        )
    }

    /// Files with gaps, all distances, and any number of packets.
    pub(in crate::media) fn files() -> impl Strategy<Value = Vec<u8>> {
        let piece = (5_u64..60, 1_u64..500_000, 0..3, 0_usize..300);
        prop::collection::vec(piece, 1..5).prop_map(|pieces| {
            let mut file = Vec::new();
            for (packets, ticks, kind, garbage) in pieces {
                let stream = constant_rate(packets, 0, ticks);
                file.extend(match kind {
                    0 => stream,
                    1 => to_m2ts(&stream, 1000),
                    _ => with_parity(&stream),
                });
                file.extend(vec![0; garbage]);
            }
            file
        })
    }

    proptest! {
        #[test]
        fn a_plan_covers_each_transport_packet_once_and_in_order(
            file in files(),
            ts_packets_per_rtp in 1_u8..=7,
        ) {
            let plan = plan(&file, ts_packets_per_rtp);
            let mut ts_packet = 0;
            for packet in 0..plan.rtp_packets() {
                prop_assert_eq!(plan.rtp_packet_of(ts_packet), packet);
                prop_assert_eq!(plan.due_ns(packet), plan.index().due_ns(ts_packet));
                let payload_bytes = plan.payload_bytes(packet);
                let full = usize::from(ts_packets_per_rtp) * 188;
                let is_last = packet + 1 == plan.rtp_packets();
                prop_assert!(payload_bytes == full || is_last && payload_bytes > 0);
                ts_packet += payload_bytes as u64 / 188;
            }
            prop_assert_eq!(ts_packet, plan.index().ts_packets());
        }

        #[test]
        fn bursts_part_the_packets_at_the_intervals_of_time(
            file in files(),
            ts_packets_per_rtp in 1_u8..=7,
            start in 0_u64..50,
            count in 0_u64..300,
        ) {
            let plan = plan(&file, ts_packets_per_rtp);
            let mut bursts = Vec::new();
            plan.bursts(start..start + count, &mut bursts);
            let mut next = start;
            for burst in &bursts {
                prop_assert_eq!(burst.first, next);
                prop_assert_eq!(burst.due_ns, plan.due_ns(next));
                next += u64::from(burst.packets);
                let interval = |packet| plan.due_ns(packet) / 10_000_000;
                prop_assert_eq!(interval(burst.first), interval(next - 1));
                if burst != bursts.last().unwrap() {
                    prop_assert!(interval(burst.first) < interval(next));
                }
            }
            prop_assert_eq!(next, (start + count).min(plan.rtp_packets()).max(start));
        }
    }

    #[test]
    fn of_what_goes_on_only_whole_packets_are_planned() {
        let file = constant_rate(700, 0, 27_000);
        for (ts_packets, whole, all) in [(693, 99, 99), (694, 99, 100), (699, 99, 100)] {
            let finished = plan(&file[..ts_packets * 188], 7);
            let packetisation = Packetisation {
                ts_packets_per_rtp: 7,
                burst_ns: 10_000_000,
            };
            let unfinished = Plan::unfinished(Arc::clone(finished.index()), packetisation);
            assert_eq!(
                (unfinished.rtp_packets(), finished.rtp_packets()),
                (whole, all)
            );
            assert_eq!(unfinished.payload_bytes(98), 7 * 188);
            assert_eq!(
                (
                    unfinished.payload_bytes(99),
                    unfinished.file_offsets(99).count()
                ),
                (0, 0)
            );
            assert_eq!(unfinished.rtp_packet_at(u64::MAX), whole);
        }
    }

    #[test]
    fn a_packet_due_as_an_interval_ends_belongs_to_the_next() {
        // 5 ms a packet, 10 ms a burst.
        let plan = plan(&constant_rate(100, 0, 27_000), 5);
        let mut bursts = Vec::new();
        plan.bursts(3..7, &mut bursts);
        let burst = |first, packets: u32, due_ns| Burst {
            first,
            packets,
            due_ns,
            offset: (first - 3) * 952,
            bytes: u64::from(packets) * 952,
            segment_bytes: 952,
        };
        assert_eq!(
            bursts,
            [
                burst(3, 1, 15_000_000),
                burst(4, 2, 20_000_000),
                burst(6, 1, 30_000_000)
            ]
        );
    }

    #[test]
    fn the_packet_at_a_time_is_not_before_it() {
        let plan = plan(&constant_rate(700, 0, 27_000), 7);
        for (time_ns, packet) in [
            (0, 0),
            (1, 1),
            (7_000_000, 1),
            (7_000_001, 2),
            (u64::MAX, 100),
        ] {
            assert_eq!(plan.rtp_packet_at(time_ns), packet, "{time_ns}");
        }
    }
}
