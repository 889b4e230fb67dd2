//! The test container's plans against a model, and what holds for the bursts of any plan.

use proptest::prelude::*;

use super::*;
use crate::media::{Scale, ScanOptions, Scanner};

const BURST_NS: u64 = 20_000_000;
const CLOCKS: [(u8, u32); 4] = [(96, 90_000), (97, 48_000), (98, 90_000), (99, 8000)];
const ORIGIN: RtpOrigin = RtpOrigin {
    sequence: 65_530,
    timestamp: u32::MAX - 1000,
    ssrc: 0x1234_5678,
};

/// Packets of several tracks, whose times never step back in each.
fn films() -> impl Strategy<Value = (usize, Vec<Packet>)> {
    let sizes = prop_oneof![Just(1400_usize), 1..1400_usize, 1..20_usize];
    let steps = (0..3_u64, 0..200_u8);
    let packet = (0..4_usize, steps, any::<[bool; 3]>(), sizes, any::<u8>());
    let packets = prop::collection::vec(packet, 1..150);
    (1..=4_usize, packets).prop_map(|(tracks, packets)| {
        let mut due_ns = [0; 4];
        let packets = packets.into_iter().enumerate().map(|(i, packet)| {
            let (track, (step, shown_later_ms), [marker, is_sync, is_split], size, byte) = packet;
            // The first is of the first track, which is not to be empty.
            let track = if i == 0 { 0 } else { track % tracks };
            due_ns[track] += step * 7_000_000;
            let bytes = (0..=250).cycle().take(size);
            Packet {
                track,
                due_ns: due_ns[track],
                shown_later_ms,
                marker,
                is_sync,
                is_split,
                bytes: bytes.map(|i| byte.wrapping_add(i)).collect(),
            }
        });
        let packets = packets.collect();
        (tracks, packets)
    })
}

fn scan(file: &[u8], pushes: usize) -> Index {
    let mut scanner = Scanner::new(ScanOptions::default());
    for piece in file.chunks(file.len().div_ceil(pushes)) {
        scanner.push(piece).unwrap();
    }
    assert_eq!(scanner.wants(file.len() as u64), None);
    scanner.finish().unwrap()
}

fn plans(index: &Index) -> Vec<crate::media::Plan> {
    let tracks = 0..index.tracks().len();
    let cut = |track| index.cut(track, 1460).unwrap();
    tracks
        .map(|track| index.plan(track, cut(track), BURST_NS, false))
        .collect()
}

/// The packets of a track as they are on the wire, by the words of RFC 3550 and nothing clever.
fn model(track: usize, packets: &[Packet]) -> Vec<Vec<u8>> {
    let (payload_type, clock_hz) = CLOCKS[track];
    let packets = packets.iter().filter(|packet| packet.track == track);
    let image = |(number, packet): (u32, &Packet)| {
        let shown_ns = packet.due_ns + u64::from(packet.shown_later_ms) * 1_000_000;
        let ticks = u128::from(shown_ns) * u128::from(clock_hz) / 1_000_000_000;
        let sequence = ORIGIN.sequence.wrapping_add((number & 0xffff) as u16);
        let timestamp = ORIGIN.timestamp.wrapping_add((ticks & 0xffff_ffff) as u32);
        let second = payload_type | if packet.marker { 0x80 } else { 0 };
        let mut image = vec![0x80, second];
        image.extend(sequence.to_be_bytes());
        image.extend(timestamp.to_be_bytes());
        image.extend(ORIGIN.ssrc.to_be_bytes());
        image.extend(packet.payload(number));
        image
    };
    (0..).zip(packets).map(image).collect()
}

proptest! {
    #[test]
    fn images_from_any_split_are_those_of_the_model(
        (tracks, packets) in films(),
        pushes in 1..2000_usize,
        mut cuts in prop::collection::vec(0..150_u64, 0..6),
    ) {
        let file = write(&CLOCKS[..tracks], &packets);
        let index = scan(&file, pushes);
        prop_assert_eq!(index.tracks().len(), tracks);
        cuts.sort_unstable();
        for (track, plan) in plans(&index).iter().enumerate() {
            let all = plan.rtp_packets();
            let ends = cuts.iter().map(|&cut| cut.min(all)).chain([all]);
            let (mut start, mut written) = (0, Vec::new());
            for end in ends {
                let range = plan.file_range(start..end);
                let at = |offset| usize::try_from(offset).unwrap();
                let bytes = &file[at(range.start)..at(range.end)];
                let piece = FilePiece { offset: range.start, bytes };
                let mut out = vec![0; at(plan.images_bytes(start..end))];
                plan.write_images(start..end, &[piece], ORIGIN, &mut out).unwrap();
                // The same from one piece a part, in no order.
                let parts = (start..end).rev().flat_map(|packet| plan.file_pieces(packet));
                let pieces: Vec<_> = parts.map(|part| FilePiece {
                    offset: part.start,
                    bytes: &file[at(part.start)..at(part.end)],
                }).collect();
                let mut again = vec![0; out.len()];
                plan.write_images(start..end, &pieces, ORIGIN, &mut again).unwrap();
                prop_assert!(out == again);
                written.extend(out);
                start = end;
            }
            prop_assert!(written == model(track, &packets).concat());
        }
    }

    #[test]
    fn bursts_are_trains_of_what_is_due_together(
        (tracks, packets) in films(),
        start in 0..60_u64,
        count in 0..150_u64,
    ) {
        let index = scan(&write(&CLOCKS[..tracks], &packets), 1);
        for plan in plans(&index) {
            let mut bursts = Vec::new();
            plan.bursts(start..start + count, &mut bursts);
            let end = (start + count).min(plan.rtp_packets()).max(start);
            let (mut next, mut offset) = (start, 0);
            for burst in &bursts {
                prop_assert_eq!((burst.first, burst.offset), (next, offset));
                next += u64::from(burst.packets);
                let sizes: Vec<_> = (burst.first..next).map(|it| plan.image_bytes(it)).collect();
                let (last, others) = sizes.split_last().unwrap();
                let segment_bytes = usize::from(burst.segment_bytes);
                prop_assert!(others.iter().all(|&bytes| bytes == segment_bytes));
                prop_assert!(*last <= segment_bytes);
                prop_assert_eq!(burst.bytes, sizes.iter().sum::<usize>() as u64);
                offset += burst.bytes;
                for packet in burst.first..next {
                    prop_assert_eq!(plan.due_ns(packet) / BURST_NS, burst.due_ns / BURST_NS);
                }
            }
            prop_assert_eq!(next, end);
            prop_assert_eq!(offset, plan.images_bytes(start..end));
            // As few as may be, and one due time to an interval.
            for two in bursts.windows(2) {
                let is_one = two[0].due_ns / BURST_NS == two[1].due_ns / BURST_NS;
                prop_assert_eq!(is_one, two[0].due_ns == two[1].due_ns);
                let is_full = two[0].bytes
                    == u64::from(two[0].packets) * u64::from(two[0].segment_bytes);
                let fits = plan.image_bytes(two[1].first) <= two[0].segment_bytes.into();
                prop_assert!(!(is_one && is_full && fits));
            }
        }
    }

    #[test]
    fn whatever_chunk_it_is_its_packets_fit(
        (tracks, packets) in films(),
        bytes in 1500_usize..20_000,
    ) {
        let index = scan(&write(&CLOCKS[..tracks], &packets), 1);
        for plan in plans(&index) {
            let per_chunk = plan.packets_per_chunk(bytes, 24);
            prop_assert!(per_chunk > 0);
            for start in (0..plan.rtp_packets()).step_by(usize::try_from(per_chunk).unwrap()) {
                let images = plan.images_bytes(start..start + per_chunk);
                prop_assert!(images + per_chunk * 24 <= bytes as u64);
            }
        }
    }

    #[test]
    fn a_seek_finds_one_place_for_all_tracks(
        (tracks, packets) in films(),
        time_ns in 0..1_000_000_000_u64,
    ) {
        let index = scan(&write(&CLOCKS[..tracks], &packets), 1);
        let point = index.seek(time_ns);
        prop_assert!(point.time_ns <= time_ns);
        let syncs = packets.iter().filter(|it| it.track == 0 && it.is_sync && it.due_ns <= time_ns);
        prop_assert_eq!(point.time_ns, syncs.map(|it| it.due_ns).max().unwrap_or(0));
        for plan in plans(&index) {
            let from = plan.rtp_packet_from(point);
            prop_assert!(from == plan.rtp_packets() || plan.due_ns(from) >= point.time_ns);
            prop_assert!(from == 0 || plan.due_ns(from - 1) < point.time_ns);
        }
    }

    #[test]
    fn packets_in_a_part_are_those_that_have_bytes_there(
        (tracks, packets) in films(),
        part in (0..100_000_u64, 1..5000_u64),
    ) {
        let index = scan(&write(&CLOCKS[..tracks], &packets), 1);
        let part = part.0..part.0 + part.1;
        for plan in plans(&index) {
            let found = plan.rtp_packets_in(part.clone());
            for packet in 0..plan.rtp_packets() {
                let parts = plan.file_pieces(packet);
                let has = parts.iter().any(|it| it.start < part.end && part.start < it.end);
                prop_assert!(!has || found.contains(&packet), "{} {:?}", packet, found);
            }
        }
    }
}

/// The numbers in their track of the packets of sync samples, each from a sync packet to a marker
/// or to the next, with the times by which one seeks to them.
fn sync_samples(packets: &[Packet]) -> Vec<(u64, Vec<u32>)> {
    let mut samples: Vec<(u64, Vec<u32>)> = Vec::new();
    let mut is_open = false;
    for (number, packet) in (0..).zip(packets) {
        if packet.is_sync {
            samples.push((packet.due_ns, Vec::new()));
            is_open = true;
        }
        if is_open && let Some((_, numbers)) = samples.last_mut() {
            numbers.push(number);
            is_open = !packet.marker;
        }
    }
    samples
}

proptest! {
    #[test]
    fn at_a_scale_sync_samples_alone_come_at_their_times(
        (tracks, packets) in films(),
        scale in prop::sample::select(Scale::ALL.to_vec()),
        seek_ns in 0..1_000_000_000_u64,
    ) {
        let file = write(&CLOCKS[..tracks], &packets);
        let index = scan(&file, 1);
        let (point, duration_ns) = (index.seek(seek_ns), index.duration_ns());
        for track in 0..tracks {
            let of_track: Vec<_> = packets.iter().filter(|it| it.track == track).cloned().collect();
            let cut = index.cut(track, 1460).unwrap();
            let trick = index.trick(track, cut, BURST_NS, scale);
            let mut samples = sync_samples(&of_track);
            let is_there = !samples.is_empty() && scale.value() != 1;
            prop_assert_eq!(trick.is_some(), is_there);
            let Some(plan) = trick else {
                continue;
            };
            if scale.is_reverse() {
                samples.reverse();
            }
            let (timeline, mut packet) = (plan.timeline(), 0);
            for (media_ns, numbers) in samples {
                let since_ns = if scale.is_reverse() { duration_ns - media_ns } else { media_ns };
                let due_ns = since_ns / u64::from(scale.value().unsigned_abs());
                if track == 0 && media_ns == point.time_ns {
                    let from = plan.rtp_packet_at(timeline.due_ns(point.time_ns));
                    prop_assert_eq!(plan.due_ns(from), due_ns, "where a seek goes");
                }
                for number in numbers {
                    prop_assert_eq!(plan.due_ns(packet), due_ns);
                    let stamp = plan.position(packet, ORIGIN).timestamp;
                    prop_assert_eq!(stamp, plan.timestamp_of(due_ns, ORIGIN));
                    let range = plan.file_range(packet..packet + 1);
                    let at = |offset| usize::try_from(offset).unwrap();
                    let bytes = &file[at(range.start)..at(range.end)];
                    let piece = FilePiece { offset: range.start, bytes };
                    let mut image = vec![0; plan.image_bytes(packet)];
                    plan.write_images(packet..packet + 1, &[piece], ORIGIN, &mut image).unwrap();
                    let expected = of_track[number as usize].payload(number);
                    prop_assert!(image[HEADER_BYTES..] == expected[..]);
                    prop_assert!(plan.rtp_packets_in(range).contains(&packet));
                    packet += 1;
                }
            }
            prop_assert_eq!(plan.rtp_packets(), packet);
            prop_assert!(plan.due_ns(packet) >= plan.due_ns(packet - 1));
            prop_assert!(plan.file_range(0..packet).end <= file.len() as u64);
        }
    }
}

#[test]
fn what_no_path_carries_is_not_cut() {
    let packet = |bytes: usize| Packet {
        track: 0,
        due_ns: 0,
        shown_later_ms: 0,
        marker: false,
        is_sync: true,
        is_split: false,
        bytes: vec![7; bytes],
    };
    let index = scan(&write(&CLOCKS[..1], &[packet(100), packet(1000)]), 1);
    assert_eq!(index.cut(0, 1003), None);
    let cut = index.cut(0, 1004).unwrap();
    assert_eq!((cut.number(), cut.payload_bytes_max()), (0, 1004));
    assert!(index.as_ts().is_none());
}
