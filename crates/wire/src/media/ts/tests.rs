//! Tests of [`super`].

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::media::container::{self, Container, Continued};
use crate::media::ts::report::Report;
use crate::media::ts::synth::{constant_rate, to_m2ts, with_parity};

const PACKETISATION: Packetisation = Packetisation {
    ts_packets_per_rtp: 7,
    burst_ns: 20_000_000,
};

fn scan(bytes: &[u8]) -> Result<Index, MediaError> {
    scan_split(bytes, &[])
}

/// Scans `bytes` in pieces that end at `ends`.
fn scan_split(bytes: &[u8], ends: &[usize]) -> Result<Index, MediaError> {
    let mut scanner = Scanner::new(ScanOptions::default());
    let mut start = 0;
    for end in ends.iter().copied().chain([bytes.len()]) {
        let end = end.clamp(start, bytes.len());
        scanner.push(&bytes[start..end])?;
        start = end;
    }
    scanner.finish()
}

fn report(bytes: &[u8]) -> Report {
    Arc::new(scan(bytes).unwrap()).report(PACKETISATION)
}

fn run(file_offset: u64, first: u64, packets: u64, packet_stride: u16) -> SyncRun {
    SyncRun {
        file_offset,
        first,
        packets,
        packet_stride,
    }
}

#[test]
fn leading_garbage_is_passed_over() {
    let stream = constant_rate(300, 0, 10_000);
    // With sync bytes of its own, which nothing confirms.
    let file = [&[0x47, 1, 2, 0x47, 3][..], &stream].concat();
    let index = scan(&file).unwrap();
    assert_eq!(index.runs(), [run(5, 0, 300, 188)]);
    assert_eq!(report(&file).packets.leading_bytes, 5);
}

#[test]
fn time_stamps_of_m2ts_are_no_payload() {
    let file = to_m2ts(&constant_rate(300, 0, 10_000), 10_000);
    let index = scan(&file).unwrap();
    assert_eq!(index.runs(), [run(4, 0, 300, 192)]);
    assert_eq!(report(&file).packets.leading_bytes, 0);
}

#[test]
fn parity_behind_packets_is_no_payload() {
    let stream = constant_rate(300, 0, 10_000);
    let file = with_parity(&stream);
    let index = scan(&file).unwrap();
    assert_eq!(index.runs(), [run(0, 0, 300, 204)]);
    assert_eq!(index.duration_ns(), scan(&stream).unwrap().duration_ns());
    let seen = report(&file);
    assert_eq!(seen.packet_stride_bytes, 204);
    let packets = seen.packets;
    assert_eq!((packets.leading_bytes, packets.trailing_bytes), (0, 0));
    assert_eq!((packets.sync_losses, packets.continuity_errors), (0, 0));
    // Lost and found again, and a last packet that is cut within its parity.
    let (front, back) = file.split_at(100 * 204);
    let cut = [front, &[0; 77], &back[..back.len() - 10]].concat();
    assert_eq!(
        scan(&cut).unwrap().runs(),
        [run(0, 0, 100, 204), run(100 * 204 + 77, 100, 199, 204)]
    );
}

#[test]
fn lost_sync_is_found_again() {
    let stream = constant_rate(300, 0, 10_000);
    let (front, back) = stream.split_at(100 * 188);
    let file = [front, &[0; 77], back].concat();
    let index = scan(&file).unwrap();
    assert_eq!(
        index.runs(),
        [run(0, 0, 100, 188), run(100 * 188 + 77, 100, 200, 188)]
    );
    let packets = report(&file).packets;
    assert_eq!(
        (packets.sync_losses, packets.garbage_bytes, packets.total),
        (1, 77, 300)
    );
}

#[test]
fn a_packet_cut_in_the_middle_costs_itself_and_the_next() {
    let mut file = constant_rate(300, 0, 10_000);
    file.drain(100 * 188 + 50..100 * 188 + 90);
    let index = scan(&file).unwrap();
    // The cut packet is still 188 bytes from its sync byte on, the last 40 of them another's.
    assert_eq!(
        index.runs(),
        [run(0, 0, 101, 188), run(102 * 188 - 40, 101, 198, 188)]
    );
}

#[test]
fn few_packets_suffice_at_the_end_but_not_one_alone() {
    let stream = constant_rate(50, 0, 10_000);
    for (tail, total) in [(1, 48), (2, 50), (4, 52)] {
        let file = [&stream[..48 * 188], &[1; 9], &stream[..tail * 188]].concat();
        assert_eq!(scan(&file).unwrap().ts_packets(), total, "{tail}");
    }
}

#[test]
fn a_partial_last_packet_is_left_out() {
    let mut file = constant_rate(300, 0, 10_000);
    file.truncate(299 * 188 + 100);
    let packets = report(&file).packets;
    assert_eq!((packets.total, packets.trailing_bytes), (299, 100));
}

#[test]
fn what_is_no_transport_stream_is_refused_with_the_reason() {
    assert_eq!(scan(&[]).unwrap_err(), MediaError::Empty);
    assert_eq!(
        scan(b"hello").unwrap_err(),
        MediaError::TooShort { file_bytes: 5 }
    );
    let stream = constant_rate(5, 0, 10_000);
    assert_eq!(scan(&stream).unwrap().ts_packets(), 5);
    let one_less = scan(&stream[..4 * 188]).unwrap_err();
    assert_eq!(
        one_less,
        MediaError::TooShort {
            file_bytes: 4 * 188
        }
    );
    let text = b"GGood text has many Gs, but not at a distance that means anything. ".repeat(99);
    let searched_bytes = text.len() as u64;
    assert_eq!(
        scan(&text).unwrap_err(),
        MediaError::NotTransportStream { searched_bytes }
    );
}

#[test]
fn settled_times_are_those_of_the_whole_file() {
    // Its rate changes, so that times beyond the last reference are guessed wrong.
    let mut file = constant_rate(500, 0, 30_000);
    file.extend(constant_rate(500, 500 * 30_000, 10_000));
    file.extend(constant_rate(500, 1000 * 20_000, 90_000));
    let whole = scan(&file).unwrap();
    let mut scanner = Scanner::new(ScanOptions::default());
    let mut settled_max = 0;
    for (i, piece) in file.chunks(7001).enumerate() {
        scanner.push(piece).unwrap();
        let Ok(settled) = scanner.settled() else {
            continue;
        };
        let pushed = ((i as u64 + 1) * 7001 / 188).min(1500);
        if i >= 2 {
            assert!(
                settled.ts_packets() + 40 > pushed,
                "{} of {pushed}",
                settled.ts_packets()
            );
            settled_max = settled.ts_packets();
            assert_eq!(settled.duration_ns(), whole.due_ns(settled_max));
        }
        for packet in (0..settled.ts_packets()).filter(|_| i >= 2) {
            assert_eq!(settled.due_ns(packet), whole.due_ns(packet), "{packet}");
        }
    }
    assert!(settled_max > 1400);
}

#[test]
fn another_file_does_not_continue_the_one_before() {
    let file = constant_rate(1000, 0, 10_000);
    let old = scan(&file[..600 * 188]).unwrap();
    let with = |change: fn(&mut Vec<u8>)| {
        let mut file = file.clone();
        change(&mut file);
        scan(&file).unwrap().continuing(&old).is_some()
    };
    assert!(with(|_| {}));
    assert!(with(|file| file.truncate(600 * 188)));
    assert!(!with(|file| file.truncate(599 * 188)));
    assert!(!with(|file| file[512 * 188 + 100] ^= 1));
    assert!(!with(|file| drop(file.drain(..188))));
    assert!(!with(|file| drop(
        file.splice(300 * 188..300 * 188, [0; 50])
    )));
    // What is not remembered is not seen, and what comes after may be anything.
    assert!(with(|file| file[700 * 188 + 100] ^= 1));
}

/// As somebody does who saves it.
#[test]
fn an_index_continues_another_while_somebody_has_it() {
    let file = constant_rate(500, 0, 10_152);
    let index = |bytes: &[u8]| container::Index::of(scan(bytes).unwrap());
    let (old, new) = (index(&file[..300 * 188]), index(&file));
    let held = new.clone();
    assert!(matches!(new.continuing(&old), Continued::More(_)));
    assert_eq!(held.duration_ns(), index(&file).duration_ns());
}

#[test]
fn packets_are_counted_up_to_a_byte_of_the_file() {
    let stream = constant_rate(300, 0, 10_000);
    let (front, back) = stream.split_at(100 * 188);
    let index = scan(&[front, &[0; 77], back].concat()).unwrap();
    for (file_bytes, packets) in [
        (0, 0),
        (187, 0),
        (188, 1),
        (100 * 188 + 77, 100),
        (101 * 188 + 76, 100),
        (101 * 188 + 77, 101),
        (u64::MAX / 2, 300),
    ] {
        assert_eq!(index.ts_packets_within(file_bytes), packets, "{file_bytes}");
    }
    let m2ts = scan(&to_m2ts(&stream, 10_000)).unwrap();
    assert_eq!(
        [191, 192, 383, 384].map(|n| m2ts.ts_packets_within(n)),
        [0, 1, 1, 2]
    );
}

#[test]
fn probes_are_spread_from_the_first_to_the_last() {
    let stream = constant_rate(2600, 0, 10_000);
    let index = scan(&[&[0; 7], &stream[..]].concat()).unwrap();
    let numbers = |most| {
        let probes = index.probes(most);
        for probe in &probes {
            let start = usize::try_from(probe.part.start).unwrap() - 7;
            assert_eq!(probe.part.end - probe.part.start, 188);
            assert!(probe.matches(&stream[start..start + 188]));
            assert!(!probe.matches(&[0x47; 188]) && !probe.matches(&stream[start..][..187]));
            let ts_packet = start as u64 / 188;
            assert_eq!(
                index.ts_packets_in(probe.part.clone()),
                ts_packet..ts_packet + 1
            );
        }
        probes
            .iter()
            .map(|probe| (probe.part.start - 7) / 188 / 256)
            .collect::<Vec<_>>()
    };
    assert_eq!(numbers(0), [0_u64; 0]);
    assert_eq!(numbers(1), [10]);
    assert_eq!(numbers(3), [0, 5, 10]);
    assert_eq!(numbers(99), (0..=10).collect::<Vec<_>>());
}

#[test]
fn the_search_for_a_first_packet_ends_at_its_limit() {
    let max = usize::try_from(LEADING_BYTES_MAX).unwrap();
    let stream = constant_rate(20, 0, 10_000);
    let mut file = vec![0; max];
    file.extend(&stream);
    assert_eq!(scan(&file).unwrap().ts_packets(), 20);
    file.insert(0, 0);
    let refused = MediaError::NotTransportStream {
        searched_bytes: LEADING_BYTES_MAX,
    };
    assert_eq!(scan(&file).unwrap_err(), refused);
    // And at once, not at the end.
    let mut scanner = Scanner::new(ScanOptions::default());
    assert_eq!(scanner.push(&vec![0; max + 2 * WINDOW_BYTES]), Err(refused));
}

#[test]
fn sync_may_be_lost_only_so_often() {
    let run = [&constant_rate(5, 0, 10_000)[..], &[0]].concat();
    let mut file = run.repeat(SYNC_RUNS_MAX);
    assert_eq!(scan(&file).unwrap().runs().len(), SYNC_RUNS_MAX);
    let file_offset = file.len() as u64;
    file.extend(&run);
    let refused = MediaError::TooManySyncLosses {
        runs_max: SYNC_RUNS_MAX,
        file_offset,
    };
    assert_eq!(scan(&file).unwrap_err(), refused);
}

/// Pieces of transport streams, garbage between them, and a cut at the end.
fn files() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (0_u64..40, 0_u64..2 << 33, 1_u64..2_000_000)
            .prop_map(|(packets, start, ticks)| constant_rate(packets, start, ticks)),
        (0_u64..40).prop_map(|packets| to_m2ts(&constant_rate(packets, 0, 5000), 5000)),
        (0_u64..40).prop_map(|packets| with_parity(&constant_rate(packets, 0, 5000))),
        prop::collection::vec(any::<u8>(), 0..2000),
        prop::collection::vec(prop_oneof![Just(SYNC_BYTE), any::<u8>()], 0..2000),
    ];
    (prop::collection::vec(piece, 0..6), 0_usize..400).prop_map(|(pieces, cut)| {
        let mut file = pieces.concat();
        file.truncate(file.len().saturating_sub(cut));
        file
    })
}

proptest! {
    #[test]
    fn how_a_file_is_split_makes_no_difference(
        file in files(),
        mut ends in prop::collection::vec(0_usize..30_000, 0..40),
    ) {
        ends.sort_unstable();
        let (whole, split) = (scan(&file), scan_split(&file, &ends));
        prop_assert_eq!(format!("{whole:?}"), format!("{split:?}"));
    }

    #[test]
    fn what_was_told_of_a_growing_file_stays_true(
        file in files(),
        mut ends in prop::collection::vec((0_usize..30_000, any::<bool>()), 1..12),
    ) {
        ends.sort_unstable();
        let mut scanner = Scanner::new(ScanOptions::default());
        let mut start = 0;
        let mut seen: Option<Index> = None;
        for (end, is_over) in ends {
            let end = end.clamp(start, file.len());
            scanner.push(&file[start..end]).unwrap();
            start = end;
            prop_assert_eq!(scanner.pushed_bytes(), end as u64);
            let now = if is_over { scanner.clone().finish() } else { scanner.settled() };
            let Ok(now) = now else { continue };
            let Some(old) = &seen else { seen = Some(now); continue };
            if now.ts_packets() < old.ts_packets() {
                continue;
            }
            // What was found at an end by fewer sync bytes may turn out to be none.
            let Some(now) = now.continuing(old) else { return Ok(()) };
            for packet in 0..old.ts_packets() {
                let run = |index: &Index| index.runs()[index.run_of(packet)];
                let place = |index: &Index| run(index).offset_of(packet);
                prop_assert_eq!(now.due_ns(packet), old.due_ns(packet), "{}", packet);
                prop_assert_eq!(place(&now), place(old), "{}", packet);
            }
            let times: Vec<_> = (0..=now.ts_packets()).map(|i| now.due_ns(i)).collect();
            prop_assert!(times.is_sorted());
            prop_assert!(now.seek_points().is_sorted_by(|a, b| a.ts_packet < b.ts_packet));
            prop_assert!(now.seek_points().iter().all(|p| p.ts_packet < now.ts_packets()));
            seen = Some(now);
        }
        scanner.push(&file[start..]).unwrap();
        // That it was asked in between makes no difference.
        let (whole, grown) = (scan(&file), scanner.finish());
        prop_assert_eq!(format!("{whole:?}"), format!("{grown:?}"));
    }

    #[test]
    fn what_is_settled_goes_on_however_the_file_does(
        file in files(),
        end in 0_usize..30_000,
    ) {
        let mut scanner = Scanner::new(ScanOptions::default());
        let end = end.min(file.len());
        scanner.push(&file[..end]).unwrap();
        let Ok(settled) = scanner.settled() else { return Ok(()) };
        scanner.push(&file[end..]).unwrap();
        prop_assert!(scanner.settled().unwrap().continuing(&settled).is_some());
        prop_assert!(scanner.finish().unwrap().continuing(&settled).is_some());
    }

    #[test]
    fn every_byte_is_accounted_for_once(file in files()) {
        let Ok(index) = scan(&file) else { return Ok(()) };
        let (mut end, mut first) = (0, 0);
        for run in index.runs() {
            prop_assert!(run.packets > 0);
            prop_assert!(run.file_offset >= end);
            prop_assert_eq!(run.first, first);
            for packet in run.first..run.end() {
                let at = usize::try_from(run.offset_of(packet)).unwrap();
                prop_assert_eq!(file[at], SYNC_BYTE);
                prop_assert!(at + TS_PACKET_BYTES <= file.len());
            }
            (end, first) = (run.offset_of(run.end() - 1) + 188, run.end());
        }
        prop_assert_eq!(first, index.ts_packets());
        let packets = Arc::new(index).report(PACKETISATION).packets;
        let stamps: u64 =
            packets.leading_bytes + packets.garbage_bytes + packets.trailing_bytes;
        let left = file.len() as u64 - packets.total * 188 - stamps;
        prop_assert!(left.is_multiple_of(4) && left <= packets.total * 16);
    }

    #[test]
    fn noise_of_any_kind_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        if let Ok(index) = scan(&bytes) {
            prop_assert!(index.ts_packets() > 0);
            let total = index.ts_packets();
            prop_assert_eq!(Arc::new(index).report(PACKETISATION).packets.total, total);
        }
    }

    #[test]
    fn packets_of_noise_are_answered(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 187), 5..60),
        pid_mask in prop::sample::select(vec![0xff_u8, 0x00, 0x01]),
    ) {
        let mut file = Vec::new();
        for mut body in bodies {
            // Mostly few pids, so that tables, clocks and pictures are found in the noise.
            body[0] &= 0xe0;
            body[1] &= pid_mask;
            file.push(SYNC_BYTE);
            file.extend(body);
        }
        let index = scan(&file).unwrap();
        let times: Vec<u64> = (0..=index.ts_packets()).map(|i| index.due_ns(i)).collect();
        prop_assert!(times.is_sorted());
        prop_assert_eq!(times[0], 0);
        prop_assert!(Arc::new(index).report(PACKETISATION).bursts.count > 0);
    }
}
