//! RTP packets and bursts of an indexed file (RFC 2250, section 2).
//!
//! RTP packet `i` carries transport packets `n * i` to `n * i + n`, whatever gaps lie between them in the
//! file; only the last is shorter. So every packet's place, size and time follow from its number alone,
//! and two sessions that ask for the same packets get the same bytes.

use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::clock::Cursor;
use super::{Index, SYNC_BYTE, TS_PACKET_BYTES};
use crate::rtp;

/// Transport packets in an RTP packet at the most: seven fill an Ethernet frame.
pub const TS_PACKETS_PER_RTP_MAX: u8 = 7;

/// A file's RTP packets: which bytes, due when.
#[derive(Debug)]
pub struct Plan {
    index: Arc<Index>,
    ts_per_rtp: u64,
    burst_ns: u64,
}

/// How a file is cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Packetisation {
    /// Transport packets in an RTP packet, 1 to [`TS_PACKETS_PER_RTP_MAX`].
    pub ts_packets_per_rtp: u8,
    /// Packets that are due within one interval of this length are handed over together. Not 0.
    pub burst_ns: u64,
}

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

/// What the RTP headers of a file count from.
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
    /// No piece holds the transport packet there.
    #[error(
        "the transport packet at file offset {file_offset} is not at hand: the file became shorter"
    )]
    Bytes {
        /// Where the packet starts.
        file_offset: u64,
    },
    /// There is no sync byte where the index says a packet starts.
    #[error(
        "no transport packet at file offset {file_offset}: the file was changed since it was indexed"
    )]
    Sync {
        /// Where the sync byte should be.
        file_offset: u64,
    },
    /// The plan has fewer packets, or the place for the images is too small.
    #[error(
        "packets {start}..{end} of {rtp_packets} do not go into {out_bytes} bytes; ask for fewer at \
         a time"
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

impl RtpOrigin {
    /// The sequence number of RTP packet `rtp_packet` of a plan.
    #[must_use]
    pub fn sequence_of(&self, rtp_packet: u64) -> u16 {
        self.sequence.wrapping_add((rtp_packet & 0xffff) as u16)
    }

    /// The RTP timestamp of media time `time_ns`.
    #[must_use]
    pub fn timestamp_of(&self, time_ns: u64) -> u32 {
        self.timestamp.wrapping_add(rtp::ticks(time_ns))
    }
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
            index,
            ts_per_rtp: u64::from(ts_packets_per_rtp),
            burst_ns,
        }
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
        self.index.ts_packets.div_ceil(self.ts_per_rtp)
    }

    /// The RTP packet that carries transport packet `ts_packet`.
    #[must_use]
    pub fn rtp_packet_of(&self, ts_packet: u64) -> u64 {
        ts_packet / self.ts_per_rtp
    }

    /// The first RTP packet due at `time_ns` or later; [`Self::rtp_packets`] if none is.
    #[must_use]
    pub fn rtp_packet_at(&self, time_ns: u64) -> u64 {
        self.index.ts_packet_at(time_ns).div_ceil(self.ts_per_rtp)
    }

    /// When RTP packet `rtp_packet` is due, in ns since the start of the media: when its first transport
    /// packet is.
    #[must_use]
    pub fn due_ns(&self, rtp_packet: u64) -> u64 {
        self.index
            .due_ns(rtp_packet.saturating_mul(self.ts_per_rtp))
    }

    /// Bytes of the payload of `rtp_packet`; 0 beyond the last.
    #[must_use]
    pub fn payload_bytes(&self, rtp_packet: u64) -> usize {
        let first = rtp_packet.saturating_mul(self.ts_per_rtp);
        let left = self.index.ts_packets.saturating_sub(first);
        // At most 7, so the conversion holds.
        usize::try_from(left.min(self.ts_per_rtp)).unwrap_or(0) * TS_PACKET_BYTES
    }

    /// Bytes between the starts of two images: RTP header and full payload.
    #[must_use]
    pub fn stride(&self) -> usize {
        rtp::HEADER_BYTES + usize::try_from(self.ts_per_rtp).unwrap_or(0) * TS_PACKET_BYTES
    }

    /// The smallest range of the file that holds all of these packets' payload; empty if there are none.
    #[must_use]
    pub fn file_range(&self, packets: Range<u64>) -> Range<u64> {
        let first = packets.start.saturating_mul(self.ts_per_rtp);
        let end = packets
            .end
            .saturating_mul(self.ts_per_rtp)
            .min(self.index.ts_packets);
        if first >= end {
            return 0..0;
        }
        let runs = &self.index.runs;
        let last = end - 1;
        runs[self.run_of(first)].offset_of(first)
            ..runs[self.run_of(last)].offset_of(last) + TS_PACKET_BYTES as u64
    }

    /// Appends the bursts of `packets` to `out`; the first and the last may be cut short by the range's
    /// ends. Numbers beyond the plan's last packet are left out.
    pub fn bursts(&self, packets: Range<u64>, out: &mut Vec<Burst>) {
        self.each_burst(packets, |burst| out.push(burst));
    }

    /// As [`Self::bursts`], without a list.
    pub(super) fn each_burst(&self, packets: Range<u64>, mut each: impl FnMut(Burst)) {
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
        (first..end.min(self.index.ts_packets))
            .map(|ts_packet| self.index.runs[self.run_of(ts_packet)].offset_of(ts_packet))
    }

    /// Writes the images `[RTP header | payload]` of `packets` into `out`, one every [`Self::stride`]
    /// bytes. `pieces` are parts of the file that together hold every transport packet of them, each
    /// packet whole in one: as a rule one piece, of [`Self::file_range`]. What lies in `out` beyond a short
    /// last image stays as it is.
    ///
    /// # Errors
    ///
    /// If the bytes are too few, if there is no transport packet where the index has one (the file was
    /// changed), or if `out` is too small. `out` then holds no particular bytes.
    pub fn write_images(
        &self,
        packets: Range<u64>,
        pieces: &[FilePiece<'_>],
        origin: RtpOrigin,
        out: &mut [u8],
    ) -> Result<(), ImageError> {
        if packets.is_empty() {
            return Ok(());
        }
        self.check_room(&packets, out.len())?;
        let mut times = self.times(packets.start);
        let mut source = Source {
            runs: &self.index.runs,
            run: self.run_of(packets.start * self.ts_per_rtp),
            pieces,
        };
        for (packet, image) in packets.zip(out.chunks_mut(self.stride())) {
            let header = rtp::Header {
                marker: false,
                payload_type: rtp::PAYLOAD_TYPE_MP2T,
                sequence: origin.sequence_of(packet),
                timestamp: origin.timestamp_of(times.due_ns(packet)),
                ssrc: origin.ssrc,
            };
            let (head, payload) = image.split_at_mut(rtp::HEADER_BYTES);
            head.copy_from_slice(&header.to_bytes());
            let payload_bytes = self.payload_bytes(packet);
            source.copy(packet * self.ts_per_rtp, &mut payload[..payload_bytes])?;
        }
        Ok(())
    }

    fn check_room(&self, packets: &Range<u64>, out_bytes: usize) -> Result<(), ImageError> {
        let rtp_packets = self.rtp_packets();
        let last = packets.end - 1;
        let needed = usize::try_from(last - packets.start)
            .ok()
            .and_then(|full| full.checked_mul(self.stride()))
            .and_then(|full| full.checked_add(rtp::HEADER_BYTES + self.payload_bytes(last)));
        if packets.end > rtp_packets || needed.is_none_or(|needed| needed > out_bytes) {
            let Range { start, end } = *packets;
            return Err(ImageError::Room {
                start,
                end,
                rtp_packets,
                out_bytes,
            });
        }
        Ok(())
    }

    /// The number of the run that holds `ts_packet`, which is one of the file's.
    fn run_of(&self, ts_packet: u64) -> usize {
        self.index
            .runs
            .partition_point(|run| run.first <= ts_packet)
            - 1
    }

    /// Due times of RTP packets from `first` on, in rising order.
    fn times(&self, first: u64) -> Times<'_> {
        let cursor = self
            .index
            .clock
            .cursor(first.saturating_mul(self.ts_per_rtp));
        Times { plan: self, cursor }
    }
}

/// Looks up due times of rising packet numbers without searching.
struct Times<'a> {
    plan: &'a Plan,
    cursor: Cursor,
}

impl Times<'_> {
    fn due_ns(&mut self, rtp_packet: u64) -> u64 {
        self.plan
            .index
            .clock
            .time_ns_from(&mut self.cursor, rtp_packet * self.plan.ts_per_rtp)
    }
}

/// Reads transport packets of rising numbers out of a part of the file.
struct Source<'a> {
    runs: &'a [super::SyncRun],
    run: usize,
    pieces: &'a [FilePiece<'a>],
}

impl Source<'_> {
    /// Fills `payload`, whole packets long, with the packets from `ts_packet` on.
    fn copy(&mut self, mut ts_packet: u64, mut payload: &mut [u8]) -> Result<(), ImageError> {
        while !payload.is_empty() {
            while self.runs[self.run].end() <= ts_packet {
                self.run += 1;
            }
            let run = self.runs[self.run];
            let wanted = payload.len() / TS_PACKET_BYTES;
            let adjoining = if usize::from(run.distance) == TS_PACKET_BYTES {
                wanted.min(usize::try_from(run.end() - ts_packet).unwrap_or(wanted))
            } else {
                1
            };
            let file_offset = run.offset_of(ts_packet);
            let found = self.bytes_at(file_offset, adjoining * TS_PACKET_BYTES)?;
            let adjoining = found.len() / TS_PACKET_BYTES;
            let (now, rest) = payload.split_at_mut(found.len());
            now.copy_from_slice(found);
            // The copy is checked, not the source: a mapped file can change in between.
            if let Some(i) = now
                .chunks(TS_PACKET_BYTES)
                .position(|ts| ts[0] != SYNC_BYTE)
            {
                let file_offset = file_offset + (i * TS_PACKET_BYTES) as u64;
                return Err(ImageError::Sync { file_offset });
            }
            ts_packet += adjoining as u64;
            payload = rest;
        }
        Ok(())
    }

    /// The file's bytes from there on: up to so many, whole packets, at least one.
    fn bytes_at(&self, file_offset: u64, bytes_max: usize) -> Result<&[u8], ImageError> {
        let found = self.pieces.iter().find_map(|piece| {
            let at = usize::try_from(file_offset.checked_sub(piece.offset)?).ok()?;
            let bytes = piece.bytes.get(at..)?;
            let whole = bytes.len().min(bytes_max) / TS_PACKET_BYTES * TS_PACKET_BYTES;
            (whole > 0).then(|| &bytes[..whole])
        });
        found.ok_or(ImageError::Bytes { file_offset })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::media::SyncRun;
    use crate::media::synth::{constant_rate, to_m2ts};
    use crate::media::ts::{ScanOptions, Scanner};

    const ORIGIN: RtpOrigin = RtpOrigin {
        sequence: 65_530,
        timestamp: u32::MAX - 1000,
        ssrc: 0x1234_5678,
    };

    /// A plan of `file`, 10 ms a burst.
    fn plan(file: &[u8], ts_packets_per_rtp: u8) -> Plan {
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

    /// The images of `packets`, by the words of RFC 2250 and nothing clever.
    fn model(plan: &Plan, file: &[u8], packets: Range<u64>) -> Vec<u8> {
        let index = plan.index();
        let offset = |ts_packet: u64| {
            let holds = |run: &&SyncRun| (run.first..run.end()).contains(&ts_packet);
            let run = index.runs().iter().find(holds).unwrap();
            usize::try_from(run.offset_of(ts_packet)).unwrap()
        };
        let mut images = Vec::new();
        for packet in packets {
            let first = packet * plan.ts_per_rtp;
            let ticks = u128::from(index.due_ns(first)) * 9 / 100_000;
            images.extend([0x80, 33]);
            images.extend(
                ORIGIN
                    .sequence
                    .wrapping_add((packet & 0xffff) as u16)
                    .to_be_bytes(),
            );
            images.extend(
                ORIGIN
                    .timestamp
                    .wrapping_add((ticks & 0xffff_ffff) as u32)
                    .to_be_bytes(),
            );
            images.extend(ORIGIN.ssrc.to_be_bytes());
            for ts_packet in first..(first + plan.ts_per_rtp).min(index.ts_packets()) {
                images.extend(&file[offset(ts_packet)..][..188]);
            }
        }
        images
    }

    /// Writes the images of `packets` from the smallest piece of the file that will do.
    fn images(plan: &Plan, file: &[u8], packets: Range<u64>) -> Vec<u8> {
        let range = plan.file_range(packets.clone());
        let at = |offset| usize::try_from(offset).unwrap();
        let bytes = &file[at(range.start)..at(range.end)];
        let offset = range.start;
        let mut out = vec![0; at(packets.end - packets.start) * plan.stride()];
        plan.write_images(
            packets.clone(),
            &[FilePiece { offset, bytes }],
            ORIGIN,
            &mut out,
        )
        .unwrap();
        assert_eq!(out, scattered_images(plan, file, packets.clone()));
        let last = packets.end.saturating_sub(1);
        out.truncate(out.len() - (plan.stride() - 12 - plan.payload_bytes(last)));
        out
    }

    /// The same from one piece a transport packet, in no order.
    fn scattered_images(plan: &Plan, file: &[u8], packets: Range<u64>) -> Vec<u8> {
        let mut pieces: Vec<_> = packets
            .clone()
            .flat_map(|packet| plan.file_offsets(packet))
            .map(|offset| FilePiece {
                offset,
                bytes: &file[usize::try_from(offset).unwrap()..][..TS_PACKET_BYTES],
            })
            .collect();
        pieces.reverse();
        let count = usize::try_from(packets.end - packets.start).unwrap();
        let mut out = vec![0; count * plan.stride()];
        plan.write_images(packets, &pieces, ORIGIN, &mut out)
            .unwrap();
        out
    }

    /// Files with gaps, both distances, and any number of packets.
    fn files() -> impl Strategy<Value = Vec<u8>> {
        let piece = (5_u64..60, 1_u64..500_000, any::<bool>(), 0_usize..300);
        prop::collection::vec(piece, 1..5).prop_map(|pieces| {
            let mut file = Vec::new();
            for (packets, ticks, m2ts, garbage) in pieces {
                let stream = constant_rate(packets, 0, ticks);
                file.extend(if m2ts { to_m2ts(&stream, 1000) } else { stream });
                file.extend(vec![0; garbage]);
            }
            file
        })
    }

    proptest! {
        #[test]
        fn images_from_any_split_are_those_of_the_model(
            file in files(),
            ts_packets_per_rtp in 1_u8..=7,
            mut cuts in prop::collection::vec(0_u64..300, 0..6),
        ) {
            let plan = plan(&file, ts_packets_per_rtp);
            let all = plan.rtp_packets();
            cuts.extend([0, all]);
            cuts.sort_unstable();
            let expected = model(&plan, &file, 0..all);
            let mut written = Vec::new();
            for cut in cuts.windows(2) {
                let (start, end) = (cut[0].min(all), cut[1].min(all));
                if start < end {
                    written.extend(images(&plan, &file, start..end));
                }
            }
            prop_assert!(written == expected);
        }

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
    fn a_changed_file_is_noticed() {
        let mut file = constant_rate(100, 0, 10_000);
        let plan = plan(&file, 7);
        let mut out = vec![0; 20 * plan.stride()];
        let mut write = |bytes: &[u8], offset, packets| {
            plan.write_images(packets, &[FilePiece { offset, bytes }], ORIGIN, &mut out)
        };
        assert_eq!(write(&file, 0, 0..15), Ok(()));
        let missing = |file_offset| Err(ImageError::Bytes { file_offset });
        assert_eq!(write(&file[..99 * 188], 0, 0..15), missing(99 * 188));
        assert_eq!(write(&file[..100 * 188 - 1], 0, 0..15), missing(99 * 188));
        assert_eq!(write(&file, 1, 0..15), missing(0));
        file[40 * 188] = 0x46;
        assert_eq!(
            write(&file, 0, 0..15),
            Err(ImageError::Sync {
                file_offset: 40 * 188
            })
        );
        assert_eq!(write(&file, 0, 6..15), Ok(()));
    }

    #[test]
    fn images_need_room_and_packets() {
        let file = constant_rate(100, 0, 10_000);
        let plan = plan(&file, 7);
        // 14 full packets and one of two transport packets.
        assert_eq!(
            (
                plan.rtp_packets(),
                plan.payload_bytes(14),
                plan.payload_bytes(15)
            ),
            (15, 376, 0)
        );
        let whole = [FilePiece {
            offset: 0,
            bytes: &file,
        }];
        let room = 14 * plan.stride() + 12 + 376;
        let mut out = vec![0xee; 20 * plan.stride()];
        assert_eq!(plan.write_images(0..15, &whole, ORIGIN, &mut out), Ok(()));
        assert_eq!(out[room], 0xee);
        for (packets, bytes) in [(0..15, room - 1), (0..16, 20 * 1328), (14..15, 387)] {
            let error = plan.write_images(packets, &whole, ORIGIN, &mut out[..bytes]);
            assert!(matches!(error, Err(ImageError::Room { .. })), "{error:?}");
        }
        assert_eq!(plan.write_images(3..3, &[], ORIGIN, &mut []), Ok(()));
        assert_eq!(plan.file_range(15..20), 0..0);
        assert_eq!(plan.file_range(13..20), 91 * 188..100 * 188);
    }

    #[test]
    fn a_packet_due_as_an_interval_ends_belongs_to_the_next() {
        // 5 ms a packet, 10 ms a burst.
        let plan = plan(&constant_rate(100, 0, 27_000), 5);
        let mut bursts = Vec::new();
        plan.bursts(3..7, &mut bursts);
        let burst = |first, packets, due_ns| Burst {
            first,
            packets,
            due_ns,
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
