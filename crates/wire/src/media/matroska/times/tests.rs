//! Orders of decoding, rounding, and times that cannot be.

use proptest::prelude::*;

use super::*;

fn frame(number: usize) -> Frame {
    Frame {
        offset: number as u64,
        bytes: 1,
        is_sync: false,
        parts: Box::default(),
        shown: 0,
    }
}

/// What becomes of frames that are stamped so: what was certain before the end, and all.
fn timed(mut times: Times, units: &[i64]) -> (usize, Vec<Timed>) {
    let mut out = Vec::new();
    for (number, &units) in units.iter().enumerate() {
        times.block(units, None, &mut vec![frame(number)], &mut out);
    }
    let certain = out.len();
    times.finish(&mut out);
    (certain, out)
}

fn in_ms(is_reordered: bool) -> Times {
    Times::new(1_000_000, None, None, 90_000, is_reordered)
}

#[test]
fn decoding_is_as_much_earlier_as_frames_are_held_back() {
    // Shown in the order of the numbers, each 40 ms; and how many frames are held back.
    let table: [(&[i64], i64); 5] = [
        (&[0, 1, 2, 3, 4], 0),
        (&[0, 2, 1, 4, 3], 1),
        (&[0, 3, 1, 2, 6, 4, 5], 1),
        // Pyramids of two and three levels.
        (&[0, 4, 2, 1, 3, 8, 6, 5, 7], 2),
        (&[0, 8, 4, 2, 1, 3, 6, 5, 7, 9], 3),
    ];
    for (order, depth) in table {
        let units: Vec<_> = order.iter().map(|at| at * 40).collect();
        let (_, timed) = timed(in_ms(true), &units);
        let decoded: Vec<_> = timed.iter().map(|it| it.decoded).collect();
        let count = i64::try_from(order.len()).unwrap();
        let expected: Vec<_> = (0..count).map(|at| (at - depth) * 40).collect();
        assert_eq!(decoded, expected, "{order:?}");
        assert!(timed.iter().all(|it| it.lasts == 40));
        assert!(timed.iter().all(|it| it.decoded <= it.frame.shown));
    }
}

#[test]
fn more_frames_may_be_held_back_than_the_first_show() {
    // In order for longer than is looked ahead; then two are held back.
    let mut units: Vec<_> = (0..100).map(|at| at * 40).collect();
    for at in (40..90).step_by(4) {
        units[at..at + 4].rotate_right(1);
        units[at + 1..at + 4].rotate_right(1);
    }
    let (certain, timed) = timed(in_ms(true), &units);
    assert_eq!((certain, timed.len()), (99, 100));
    assert!(timed.iter().all(|it| it.lasts >= 0));
    assert!(
        timed
            .iter()
            .all(|it| (-120..=200).contains(&(it.frame.shown - it.decoded)))
    );
    // The first of them is late; those that follow are not.
    assert!(timed[44..].iter().all(|it| it.decoded <= it.frame.shown));
}

#[test]
fn rounded_times_go_back_to_where_they_were() {
    // What a frame lasts in ns, ticks a second that have it exactly, and in how many of them.
    let table = [
        (40_000_000, 90_000, 3600),
        (33_366_667, 90_000, 3003),
        (16_683_333, 720_000, 12_012),
        (41_708_333, 720_000, 30_030),
        (21_333_333, 90_000, 1920),
    ];
    for (ns, hz, period) in table {
        for first in [0, 17] {
            let units: Vec<_> = (0..5000)
                .map(|at| first + (at * ns + 500_000) / 1_000_000)
                .collect();
            let default = Some(u64::try_from(ns).unwrap());
            let times = Times::new(1_000_000, default, None, 90_000, false);
            assert_eq!(times.hz(), hz);
            let (_, timed) = timed(times, &units);
            assert!(timed.iter().all(|it| it.lasts == period), "{ns}");
        }
    }
    // Frames of AAC, of a track that says nothing.
    let units: Vec<_> = (0..5000)
        .map(|at| (at * 1024 * 1000 + 22_050) / 44_100)
        .collect();
    let frame = Some(Period {
        ticks: 1024,
        hz: 44_100,
    });
    let (_, aac) = timed(Times::new(1_000_000, None, frame, 44_100, false), &units);
    assert!(aac.iter().all(|it| it.lasts == 1024));
}

#[test]
fn the_last_frame_lasts_as_long_as_the_file_says() {
    let last = |default, blocks: &[(i64, Option<u64>)]| {
        let mut times = Times::new(1_000_000, default, None, 90_000, true);
        let mut out = Vec::new();
        for (number, &(units, lasts)) in blocks.iter().enumerate() {
            times.block(units, lasts, &mut vec![frame(number)], &mut out);
        }
        times.finish(&mut out);
        out.last().map(|it| it.lasts)
    };
    // A picture alone, and one behind another.
    assert_eq!(last(None, &[(0, Some(5000))]), Some(5000));
    assert_eq!(last(None, &[(0, Some(40)), (40, Some(700))]), Some(700));
    assert_eq!(last(Some(40_000_000), &[(0, Some(33))]), Some(3600));
    // Nothing is said of it, or that it lasts no time.
    for lasts in [None, Some(0)] {
        assert_eq!(last(None, &[(0, Some(30)), (40, lasts)]), Some(40));
        assert_eq!(last(None, &[(0, lasts)]), Some(0));
    }
}

#[test]
fn times_that_are_no_multiples_stay_as_they_are() {
    let units = [0, 40, 95, 120, 171, 200];
    let times = Times::new(1_000_000, Some(40_000_000), None, 90_000, false);
    let (_, timed) = timed(times, &units);
    let shown: Vec<_> = timed.iter().map(|it| it.frame.shown / 90).collect();
    assert_eq!(shown, units);
}

#[test]
fn frames_that_run_back_for_seconds_are_left_out() {
    let mut times = in_ms(false);
    let mut out = Vec::new();
    for (number, units) in [0, 40, 20_000, 80, 14_999, 15_000, 20_040]
        .into_iter()
        .enumerate()
    {
        times.block(units, None, &mut vec![frame(number)], &mut out);
    }
    times.finish(&mut out);
    let numbers: Vec<_> = out.iter().map(|it| it.frame.offset).collect();
    assert_eq!((times.left_out, &numbers[..]), (2, &[0, 1, 2, 5, 6][..]));
    assert!(out.iter().all(|it| it.lasts >= 0));
}

proptest! {
    /// Whatever order and times frames have: times of decoding ascend, and what was certain once
    /// stays.
    #[test]
    fn certain_times_ascend_and_stay(
        units in prop::collection::vec(
            prop_oneof![20 => 0..3000_i64, 1 => any::<i64>()], 0..150,
        ),
        cut in 0..150_usize,
        default in prop::option::of(1..100_000_000_u64),
    ) {
        let times = || Times::new(1_000_000, default, None, 90_000, true);
        let (_, all) = timed(times(), &units);
        let (certain, part) = timed(times(), &units[..cut.min(units.len())]);
        prop_assert!(all.windows(2).all(|pair| pair[0].decoded <= pair[1].decoded));
        prop_assert!(all.iter().all(|it| it.lasts >= 0));
        let of = |it: &Timed| (it.decoded, it.lasts, it.frame.shown);
        let same = all.iter().zip(&part[..certain]).all(|(a, b)| of(a) == of(b));
        prop_assert!(same);
        // No more wait than are looked at ahead.
        prop_assert!(part.len() - certain <= AHEAD_FRAMES);
    }
}
