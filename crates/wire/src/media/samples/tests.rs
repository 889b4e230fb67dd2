//! Tables of samples: what was put in comes back, in little memory.

use proptest::prelude::*;

use super::*;

/// What a container may tell of a track: gaps between runs, either way; times that stand still or
/// go on; anything shown before or after it is decoded.
fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let one = (
        1_u32..100_000,
        0..4_u8,
        0..3_u32,
        -500..500_i64,
        any::<bool>(),
        0..50_u16,
    );
    prop::collection::vec(one, 1..600).prop_map(|samples| {
        let (mut offset, mut decode_ticks) = (1_u64 << 30, -700);
        let of_one = samples
            .into_iter()
            .map(|(bytes, gap, step, shown, is_sync, entry)| {
                offset = match gap {
                    0 => offset + 1_000_000,
                    1 => offset - 500_000,
                    _ => offset,
                };
                let sample = Sample {
                    offset,
                    bytes,
                    decode_ticks,
                    composition_ticks: shown,
                    is_sync,
                    entry: u16::from(entry == 0),
                };
                offset += u64::from(bytes);
                decode_ticks += i64::from(step) * 512;
                sample
            });
        of_one.collect()
    })
}

fn table(samples: &[Sample]) -> Samples {
    let mut table = Samples::default();
    for &sample in samples {
        table.push(sample, 512).unwrap();
    }
    table
}

proptest! {
    /// Samples with other bytes in between, or with fewer in the file than they have.
    #[test]
    fn samples_reach_over_what_was_put_in(
        samples in samples(), spreads in prop::collection::vec(0.5..3.0_f64, 600),
    ) {
        let (mut table, mut parts) = (Samples::default(), Vec::new());
        let mut offset = 0;
        for (sample, spread) in samples.iter().zip(&spreads) {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a size")]
            let file_bytes = (f64::from(sample.bytes) * spread).ceil() as u32;
            let sample = Sample { offset, ..*sample };
            table.push_spread(sample, 512, file_bytes).unwrap();
            parts.push(offset..offset + u64::from(file_bytes));
            // One in three begins where the one before ends.
            offset += u64::from(file_bytes) + u64::from(sample.bytes % 3);
        }
        for (at, part) in parts.iter().enumerate() {
            prop_assert_eq!(table.file_part(at), Some(part.clone()));
            prop_assert_eq!(table.get(at).unwrap().bytes, samples[at].bytes);
            if at % 100 == 0 {
                prop_assert_eq!(table.within(part), at..at + 1);
            }
        }
        let all = parts[0].start..parts[parts.len() - 1].end;
        prop_assert_eq!(table.file_range(0..parts.len()), all);
        let walked: Vec<_> = table.walk(0..parts.len()).map(|(sample, _)| sample).collect();
        let looked_up = (0..parts.len()).map(|at| table.get(at).unwrap());
        prop_assert_eq!(walked, looked_up.collect::<Vec<_>>());
        prop_assert_eq!(table.first(parts.len()), table);
    }

    #[test]
    fn the_first_samples_are_those_that_came_first(
        samples in samples(), count in 0..700_usize, with_parts in 0..600_usize,
    ) {
        let parts = |at: usize| vec![7_u32; at % 4];
        let mut all = table(&samples);
        for at in 0..with_parts.min(samples.len()) {
            all.push_parts(&parts(at));
        }
        let count = count.min(samples.len());
        let mut first = Samples::default();
        for (at, sample) in samples.iter().take(count).enumerate() {
            // The last lasts until the next is decoded.
            let next_ticks = all.decode_ticks(at + 1);
            let lasts = u32::try_from(next_ticks - sample.decode_ticks).unwrap();
            first.push(*sample, lasts).unwrap();
        }
        for at in 0..with_parts.min(count) {
            first.push_parts(&parts(at));
        }
        prop_assert_eq!(all.first(count), first);
    }

    #[test]
    fn a_table_tells_what_was_put_in(samples in samples()) {
        let table = table(&samples);
        prop_assert_eq!(table.len(), samples.len());
        for (at, sample) in samples.iter().enumerate() {
            prop_assert_eq!(table.get(at), Some(*sample));
        }
        prop_assert_eq!(table.get(samples.len()), None);
        let syncs: Vec<_> = (0..table.syncs()).map(|number| table.sync(number)).collect();
        let expected = samples.iter().enumerate().filter(|(_, sample)| sample.is_sync);
        prop_assert_eq!(syncs, expected.map(|(at, _)| at).collect::<Vec<_>>());
        let last = samples[samples.len() - 1];
        prop_assert_eq!(table.end_ticks(), last.decode_ticks + 512);
    }

    #[test]
    fn a_file_range_holds_its_samples_and_no_more(
        samples in samples(), start in 0..600_usize, count in 0..600_usize,
    ) {
        let table = table(&samples);
        let range = start.min(samples.len())..(start + count).min(samples.len());
        let of = &samples[range.clone()];
        let first = of.iter().map(|it| it.offset).min();
        let end = of.iter().map(|it| it.offset + u64::from(it.bytes)).max();
        let expected = first.unwrap_or(0)..end.unwrap_or(0);
        prop_assert_eq!(table.file_range(range), expected);
    }

    #[test]
    fn samples_are_found_by_what_part_of_the_file_they_have(
        samples in samples(), start in 0..2_000_000_u64, bytes in 1..3_000_000_u64,
    ) {
        let table = table(&samples);
        let start = (1 << 30) - 1_000_000 + start;
        let has = |it: &Sample| {
            it.offset < start + bytes && it.offset + u64::from(it.bytes) > start
        };
        let first = samples.iter().position(has).unwrap_or(samples.len());
        let end = samples.iter().rposition(has).map_or(samples.len(), |last| last + 1);
        prop_assert_eq!(table.within(&(start..start + bytes)), first..end);
    }

    #[test]
    fn parts_come_back_sample_by_sample(
        parts in prop::collection::vec(prop::collection::vec(0_u32..100_000, 0..5), 1..400),
    ) {
        let sample = |at: usize| Sample {
            offset: at as u64,
            bytes: 1,
            decode_ticks: 0,
            composition_ticks: 0,
            is_sync: true,
            entry: 0,
        };
        let mut table = table(&(0..parts.len()).map(sample).collect::<Vec<_>>());
        for (at, parts) in parts.iter().enumerate() {
            prop_assert_eq!(table.with_parts(), at);
            table.push_parts(parts);
        }
        for (at, expected) in parts.iter().enumerate() {
            let mut found = Vec::new();
            table.parts(at, &mut found);
            prop_assert_eq!(&found, expected);
        }
    }
}

fn sample(offset: u64, decode_ticks: i64) -> Sample {
    Sample {
        offset,
        bytes: 10,
        decode_ticks,
        composition_ticks: 0,
        is_sync: true,
        entry: 0,
    }
}

#[test]
fn what_no_file_has_is_refused() {
    let mut table = Samples::default();
    let far = 1 << 60;
    assert!(table.push(sample(far, 0), 1).is_err());
    assert!(table.push(sample(0, i64::MIN), 1).is_err());
    let bytes = SAMPLE_BYTES_MAX + 1;
    assert!(
        table
            .push(
                Sample {
                    bytes,
                    ..sample(0, 0)
                },
                1
            )
            .is_err()
    );
    table.push(sample(0, 7), 1).unwrap();
    let error = table.push(sample(10, 6), 1).unwrap_err();
    let said = "sample 1 is to be decoded 1 ticks before the one in front of it";
    assert_eq!(error.to_string(), said);
    assert_eq!(table.len(), 1);
}

/// Two hours at 25 pictures a second beside sound, interleaved frame by frame, as ffmpeg writes
/// them: the largest table that is usual.
#[test]
fn a_film_of_two_hours_stays_below_two_mebibytes() {
    let (mut video, mut audio, mut offset) = (Samples::default(), Samples::default(), 48);
    let mut sound = 0_i64;
    for frame in 0..180_000_i64 {
        let is_sync = frame % 50 == 0;
        let bytes = match is_sync {
            true => 110_000 + frame * 7919 % 30_000,
            false => 8_000 + frame * 104_729 % 20_000,
        };
        let bytes = u32::try_from(bytes).unwrap();
        let composition_ticks = [1024, 512, 0, 1536][usize::try_from(frame % 4).unwrap()];
        let picture = Sample {
            bytes,
            is_sync,
            composition_ticks,
            ..sample(offset, frame * 512)
        };
        video.push(picture, 512).unwrap();
        video.push_parts(&[]);
        offset += u64::from(bytes);
        while sound * 1024 * 25 < (frame + 1) * 48_000 {
            let bytes = u32::try_from(300 + sound * 7919 % 100).unwrap();
            let frame = Sample {
                bytes,
                ..sample(offset, sound * 1024)
            };
            audio.push(frame, 1024).unwrap();
            offset += u64::from(bytes);
            sound += 1;
        }
    }
    // A copy, as an index has one, has no room to grow.
    let bytes = video.clone().memory_bytes() + audio.clone().memory_bytes();
    assert!(bytes < 2 << 20, "{bytes}");
}

#[test]
fn a_sample_that_reaches_too_far_is_refused() {
    let sample = Sample {
        offset: 0,
        bytes: 10,
        decode_ticks: 0,
        composition_ticks: 0,
        is_sync: true,
        entry: 0,
    };
    let mut table = Samples::default();
    table.push_spread(sample, 1, SPREAD_BYTES_MAX).unwrap();
    for file_bytes in [0, SPREAD_BYTES_MAX + 1] {
        let error = table.push_spread(sample, 1, file_bytes).unwrap_err();
        let expected = format!("sample 1: its spread {file_bytes} is beyond all bounds");
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(table.len(), 1);
}

proptest! {
    #[test]
    fn a_saved_table_comes_back_without_a_fault(
        samples in samples(),
        parts in prop::collection::vec(1..99_u32, 0..5),
    ) {
        let mut table = table(&samples);
        (0..samples.len() / 2).for_each(|_| table.push_parts(&parts));
        let bytes = postcard::to_allocvec(&table).unwrap();
        let back: Samples = postcard::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&back, &table);
        prop_assert_eq!(back.fault(), None);
    }
}

fn column(numbers: &[i64]) -> Column {
    let mut column = Column::default();
    numbers.iter().for_each(|&number| column.push(number));
    column
}

/// A column of so many equal numbers, as it is saved.
fn equal(count: usize) -> Column {
    let block = (4_i64, 0_u8, u32::try_from(count).unwrap());
    let saved = (vec![block], Vec::<u8>::new(), Vec::<i64>::new());
    postcard::from_bytes(&postcard::to_allocvec(&saved).unwrap()).unwrap()
}

#[test]
fn a_track_has_no_more_parts_than_it_may() {
    let mut table = table(&[sample(0, 0)]);
    table.parts = equal(TRACK_PARTS_MAX - 2);
    assert_eq!(table.check_parts(2), Ok(()));
    let error = table.check_parts(3).unwrap_err().to_string();
    assert_eq!(error, "with its parts there are more than 134217728 in all");
}

/// Of each thing that is asked of samples when they are pushed, one that is not so.
#[test]
fn a_table_that_nobody_can_have_filled_has_a_fault() {
    let sample = |offset, decode_ticks| Sample {
        offset,
        bytes: 10,
        decode_ticks,
        composition_ticks: 0,
        is_sync: true,
        entry: 0,
    };
    let mut filled = table(&[sample(0, 0), sample(10, 512), sample(100, 1024)]);
    filled.push_parts(&[3, 4]);
    assert_eq!(filled.fault(), None);
    type Change = fn(&mut Samples);
    let changes: [(&str, Change); 25] = [
        ("sizes", |it| it.sizes = column(&[10, 0, 10])),
        ("sizes", |it| it.sizes = column(&[10, 1 << 25, 10])),
        ("places", |it| it.spreads = column(&[0, 0])),
        ("places", |it| it.spreads = column(&[0, -10, 0])),
        ("places", |it| it.spreads = column(&[0, 1 << 26, 0])),
        ("times", |it| it.durations = column(&[0, 512])),
        ("times", |it| it.durations = column(&[0, 512, -1])),
        ("times", |it| it.durations = column(&[-VALUE_MAX, 0, 0])),
        ("times", |it| it.compositions = column(&[0, 0, VALUE_MAX])),
        ("times", |it| it.compositions = column(&[])),
        ("times", |it| it.end_ticks = i64::MIN),
        ("places", |it| it.run_samples = column(&[3])),
        ("places", |it| it.run_samples = column(&[3, -1])),
        ("places", |it| it.run_gaps = column(&[0])),
        ("places", |it| it.run_gaps = column(&[0, -50])),
        ("places", |it| it.run_gaps = column(&[0, VALUE_MAX])),
        ("places", |it| it.open_run = 1),
        ("places", |it| it.end_offset = 5),
        ("sync", |it| it.sync_steps = column(&[0, 1, 2])),
        ("sync", |it| it.sync_steps = column(&[0, 0, 1])),
        ("sync", |it| it.sync_steps = column(&[-1, 1])),
        ("entries", |it| it.entries = vec![(3, 1)]),
        ("entries", |it| it.entries = vec![(1, 1), (1, 2)]),
        ("parts", |it| it.part_counts = column(&[3])),
        ("parts", |it| it.parts = column(&[3, -4])),
    ];
    for (number, (what, change)) in changes.into_iter().enumerate() {
        let mut changed = filled.clone();
        change(&mut changed);
        let fault = changed.fault().unwrap_or("none");
        assert!(fault.contains(what), "{number}: {fault}, not {what}");
    }
}
