//! Packet images: `[RTP header | payload]`, as they will be on the wire (RFC 2250, section 2).
//!
//! A [`Plan`] says which bytes of the file a packet carries and when it is due; here they are put
//! together. Headers count from an origin that is the file's, so whoever writes an image writes the
//! same bytes.

use std::ops::Range;

use super::index::{SAMPLE_EVERY, SyncRun, sample};
use super::{Plan, SYNC_BYTE, TS_PACKET_BYTES};
use crate::media::plan::{FilePiece, ImageError, RtpOrigin};
use crate::rtp;

impl Plan {
    /// Writes the images `[RTP header | payload]` of `packets` into `out`, at the
    /// stride of full ones. `pieces` are parts of the file that together hold every transport
    /// packet of them, each packet whole in one: as a rule one piece, of [`Self::file_range`]. What
    /// lies in `out` beyond a short last image stays as it is.
    ///
    /// # Errors
    ///
    /// If the bytes are too few, if there is no transport packet where the index has one (the file
    /// was changed), or if `out` is too small. `out` then holds no particular bytes.
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
            samples: &self.index.samples,
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
}

/// Reads transport packets of rising numbers out of a part of the file.
struct Source<'a> {
    runs: &'a [SyncRun],
    samples: &'a [u32],
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
            let adjoining = if usize::from(run.packet_stride) == TS_PACKET_BYTES {
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
            check_sample(self.samples, ts_packet, now).map_err(|i| ImageError::Changed {
                file_offset: run.offset_of(ts_packet + i),
            })?;
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

/// Compares the packet that is remembered, if one of these, from `ts_packet` on, is; at most one
/// RTP packet's.
fn check_sample(samples: &[u32], ts_packet: u64, packets: &[u8]) -> Result<(), u64> {
    let sampled = ts_packet.next_multiple_of(SAMPLE_EVERY);
    let at = sampled - ts_packet;
    let index = usize::try_from(sampled / SAMPLE_EVERY).ok();
    let known = index.and_then(|index| samples.get(index));
    let packet = usize::try_from(at)
        .ok()
        .and_then(|at| packets.chunks_exact(TS_PACKET_BYTES).nth(at))
        .and_then(|packet| packet.first_chunk());
    match (known, packet) {
        (Some(&known), Some(packet)) if known != sample(packet) => Err(at),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::media::ts::plan::tests::{files, plan};
    use crate::media::ts::synth::{constant_rate, to_m2ts};

    const ORIGIN: RtpOrigin = RtpOrigin {
        sequence: 65_530,
        timestamp: u32::MAX - 1000,
        ssrc: 0x1234_5678,
    };

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
    fn a_remembered_packet_that_is_another_is_noticed() {
        let mut file = to_m2ts(&constant_rate(700, 0, 27_000), 1000);
        let plan = plan(&file, 7);
        let mut out = vec![0; plan.stride() * 100];
        let mut write = |file: &[u8], packets| {
            let piece = FilePiece {
                offset: 0,
                bytes: file,
            };
            plan.write_images(packets, &[piece], ORIGIN, &mut out)
        };
        // Number 512 is in RTP packet 73.
        file[512 * 192 + 4 + 187] ^= 1;
        let file_offset = 512 * 192 + 4;
        assert_eq!(
            write(&file, 0..100),
            Err(ImageError::Changed { file_offset })
        );
        assert_eq!(
            write(&file, 73..74),
            Err(ImageError::Changed { file_offset })
        );
        assert_eq!(
            (write(&file, 0..73), write(&file, 74..100)),
            (Ok(()), Ok(()))
        );
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
}
