use super::ebml::id;
use super::testing::*;
use super::*;
use crate::media::samples::Sample;

/// What a scanner makes of a file that is there as a whole.
fn read(file: &[u8]) -> Result<SampledIndex, MatroskaError> {
    let mut scanner = Scanner::default();
    push(&mut scanner, file, usize::MAX)?;
    scanner.finish()
}

/// Gives a scanner what it wants of a file, so many bytes at a time.
fn push(scanner: &mut Scanner, file: &[u8], step: usize) -> Result<(), MatroskaError> {
    let mut turns = 0;
    while let Some(wanted) = scanner.wants(file.len() as u64) {
        turns += 1;
        assert!(turns < 1000 + 10 * file.len(), "it asks without end");
        let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
        assert!(start < end && end <= file.len());
        scanner.push(&file[start..end.min(start.saturating_add(step))])?;
    }
    Ok(())
}

fn samples(index: &SampledIndex, track: usize) -> Vec<Sample> {
    let samples = &index.sampled[track].samples;
    (0..samples.len())
        .filter_map(|at| samples.get(at))
        .collect()
}

/// Where `bytes` are in a file, once.
fn find(file: &[u8], bytes: &[u8]) -> u64 {
    let places: Vec<_> = file.windows(bytes.len()).enumerate().collect();
    let places: Vec<_> = places.iter().filter(|(_, it)| *it == bytes).collect();
    assert_eq!(places.len(), 1);
    places[0].0 as u64
}

#[test]
fn blocks_of_both_kinds_become_samples() {
    let file = file(&[
        tracks(&[track(1, VP8, b""), track(2, AAC, b"")]),
        cluster(
            0,
            &[
                simple(1, 0, KEYFRAME, b"key frame"),
                simple(2, 3, 0, b"sound"),
                simple(1, 40, 0, b"another"),
                group(2, 24, b"more", b""),
            ],
        ),
        cluster(
            80,
            &[
                group(1, 0, b"predicted", &integer(id::REFERENCE_BLOCK, 40)),
                group(1, 40, b"key frame too", &integer(id::BLOCK_DURATION, 40)),
            ],
        ),
    ]);
    let index = read(&file).unwrap();
    let told = |track| {
        let samples = samples(&index, track).into_iter();
        let told = samples.map(|it| (it.offset, it.bytes, it.decode_ticks, it.is_sync));
        told.collect::<Vec<_>>()
    };
    let at = |bytes: &[u8]| find(&file, bytes);
    assert_eq!(
        told(0),
        [
            (at(b"key frame\xa3"), 9, 0, true),
            (at(b"another"), 7, 40, false),
            (at(b"predicted"), 9, 80, false),
            (at(b"key frame too"), 13, 120, true),
        ]
    );
    assert_eq!(
        told(1),
        [(at(b"sound"), 5, 3, true), (at(b"more"), 4, 24, true)]
    );
}

/// A film of pictures with two NAL units each and sound, in clusters of a second.
fn film(clusters: u64) -> Vec<u8> {
    let of_cluster = |number: u64| {
        let blocks = (0..25_i16).flat_map(|at| {
            let flags = if at == 0 { KEYFRAME } else { 0 };
            let length = 20 + u16::try_from((at * 7 + 3) % 40).unwrap();
            let sound = vec![0x21; 9 + usize::try_from(at).unwrap() % 5];
            // I P B P B: shown in another order than they lie in.
            let shown = match at % 2 {
                _ if at == 0 => 0,
                1 => at + 1,
                _ => at - 1,
            };
            [
                simple(1, shown.min(24) * 40, flags, &nals(&[4, length])),
                simple(2, at * 40, KEYFRAME, &sound),
            ]
        });
        cluster(number * 1000, &blocks.collect::<Vec<_>>())
    };
    let clusters = (0..clusters).map(of_cluster);
    let front = [tracks(&[track(1, AVC, b""), track(2, AAC, b"")])];
    file(&front.into_iter().chain(clusters).collect::<Vec<_>>())
}

#[test]
fn however_bytes_come_the_index_is_the_same() {
    let file = film(2);
    let whole = read(&file).unwrap();
    assert_eq!(samples(&whole, 0).len(), 50);
    for step in [1, 2, 3, 7, 100, 4096] {
        let mut scanner = Scanner::default();
        push(&mut scanner, &file, step).unwrap();
        let index = scanner.finish().unwrap();
        for track in 0..2 {
            let [a, b] = [&index, &whole].map(|index| &index.sampled[track].samples);
            assert_eq!(a, b, "in steps of {step}");
        }
    }
}

/// Only heads are read: the bytes of frames matter to nobody.
#[test]
fn payloads_are_not_read() {
    let blocks = (0..100).map(|at| simple(1, at, KEYFRAME, &[7; 50_000]));
    let blocks: Vec<_> = blocks.collect();
    let file = file(&[tracks(&[track(1, VP8, b"")]), cluster(0, &blocks)]);
    let mut scanner = Scanner::default();
    let mut read = 0;
    while let Some(wanted) = scanner.wants(file.len() as u64) {
        let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
        read += end - start;
        scanner.push(&file[start..end]).unwrap();
    }
    assert_eq!(samples(&scanner.finish().unwrap(), 0).len(), 100);
    assert!(read < 100 * 40 + 300, "{read} bytes");
}

#[test]
fn a_file_cut_anywhere_has_the_samples_before_the_cut() {
    let file = film(2);
    let whole = read(&file).unwrap();
    let whole = [samples(&whole, 0), samples(&whole, 1)];
    for end in 0..file.len() {
        let mut scanner = Scanner::default();
        let pushed = push(&mut scanner, &file[..end], usize::MAX);
        assert!(pushed.is_ok(), "{end}: {pushed:?}");
        let settled = scanner
            .settled()
            .map(|it| [samples(&it, 0), samples(&it, 1)]);
        for (known, whole) in settled.iter().flatten().zip(&whole) {
            assert!(whole.starts_with(known), "{end}");
        }
        let Ok(index) = scanner.finish() else {
            assert!(end < 100 + file.len() / 2 && settled.is_err());
            continue;
        };
        for (track, whole) in whole.iter().enumerate() {
            // How many frames a decoder holds back may not be known from the first few.
            let places = |samples: &[Sample]| {
                let places = samples.iter().map(|it| (it.offset, it.bytes));
                places.collect::<Vec<_>>()
            };
            let known = samples(&index, track);
            assert!(places(whole).starts_with(&places(&known)), "{end}");
            assert!(
                known
                    .iter()
                    .all(|it| it.offset + u64::from(it.bytes) <= end as u64)
            );
        }
    }
}

#[test]
fn a_file_that_grows_is_followed() {
    let whole = film(3);
    // A live muxer knows no sizes.
    let at = usize::try_from(find(&whole, &[0x18, 0x53, 0x80, 0x67])).unwrap();
    let body = ebml::head(&whole[at..]).unwrap().unwrap().head_bytes + at;
    let live = [header(), unsized_element(id::SEGMENT, &whole[body..])].concat();
    let mut scanner = Scanner::default();
    let mut before = [Vec::new(), Vec::new()];
    for end in (0..live.len()).step_by(97).chain([live.len()]) {
        push(&mut scanner, &live[..end], usize::MAX).unwrap();
        let Ok(index) = scanner.settled() else {
            assert!(before[0].is_empty());
            continue;
        };
        for (track, before) in before.iter_mut().enumerate() {
            let now = samples(&index, track);
            assert!(now.starts_with(before));
            *before = now;
        }
    }
    assert_eq!(before.map(|samples| samples.len()), [74, 74]);
    assert_eq!(samples(&scanner.finish().unwrap(), 0).len(), 75);
}

#[test]
fn sizes_may_be_unknown_and_voids_anywhere() {
    let void = element(id::VOID, &[0xa3; 9]);
    let crc = element(id::CRC_32, &[1; 4]);
    let blocks = |time: u64| {
        let mut blocks = vec![crc.clone(), integer(id::TIMESTAMP, time), void.clone()];
        blocks.push(simple(1, 0, KEYFRAME, b"one"));
        blocks.push(void.clone());
        blocks.push(group(1, 20, b"two", &void));
        blocks.concat()
    };
    let segment = [
        void.clone(),
        tracks(&[crc.clone(), track(1, VP8, &void)]),
        void.clone(),
        unsized_element(id::CLUSTER, &blocks(0)),
        unsized_element(id::CLUSTER, &blocks(40)),
        element(id::CUES, b"any"),
        unsized_element(id::CLUSTER, &blocks(80)),
        element(id::TAGS, b""),
        element(id::CLUSTER, &blocks(120)),
        void.clone(),
    ];
    let file = [
        header(),
        void,
        unsized_element(id::SEGMENT, &segment.concat()),
    ]
    .concat();
    let index = read(&file).unwrap();
    let times: Vec<_> = samples(&index, 0)
        .iter()
        .map(|it| it.decode_ticks)
        .collect();
    assert_eq!(times, [0, 20, 40, 60, 80, 100, 120, 140]);
    assert_eq!(index.sampled[0].facts.problems, [""; 0]);
}

#[test]
fn laces_of_all_kinds_are_taken_apart() {
    let frames = |flags: u8, sizes: &[u8], payload: &[u8]| {
        let lace = [sizes, payload].concat();
        let default = integer(0x23_e383, 10_000_000);
        let file = file(&[
            tracks(&[track(1, VP8, &default)]),
            cluster(0, &[simple(1, 0, KEYFRAME | flags, &lace)]),
        ]);
        let index = read(&file).unwrap_or_else(|_| panic!("{sizes:?}"));
        let start = file.len() as u64 - payload.len() as u64;
        let samples = samples(&index, 0).into_iter();
        let told = samples.map(|it| (it.offset - start, it.bytes, it.decode_ticks / 900));
        told.collect::<Vec<_>>()
    };
    // 2, 300 and what is left.
    let all = [(0, 2, 0), (2, 300, 1), (302, 8, 2)];
    assert_eq!(frames(0x02, &[2, 2, 255, 45], &[9; 310]), all);
    // A step of 298 is 0x2129, less 8191.
    assert_eq!(frames(0x06, &[2, 0x82, 0x61, 0x29], &[9; 310]), all);
    assert_eq!(
        frames(0x04, &[2], &[9; 9]),
        [(0, 3, 0), (3, 3, 1), (6, 3, 2)]
    );
    // Frames without bytes are none, and the others keep their times.
    assert_eq!(frames(0x02, &[2, 4, 0], &[9; 6]), [(0, 4, 0), (4, 2, 1)]);
}

#[test]
fn laces_that_lie_are_left_out_and_told() {
    let lies: [(u8, &[u8]); 11] = [
        (0x02, &[]),
        (0x02, &[255]),
        (0x02, &[1, 255, 255]),
        (0x02, &[1, 200, 1, 2]),
        (0x02, &[255, 255, 255, 255, 0]),
        (0x04, &[1, 1, 2, 3]),
        (0x06, &[1]),
        (0x06, &[1, 0x00]),
        (0x06, &[2, 0x81, 0x80, 1, 1, 1]),
        (0x06, &[2, 0x82, 0x41]),
        (
            0x06,
            &[1, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 1],
        ),
    ];
    for (flags, lace) in lies {
        let blocks = [
            simple(1, 0, KEYFRAME, b"one"),
            simple(1, 1, KEYFRAME | flags, lace),
            simple(1, 2, KEYFRAME, b"two"),
        ];
        let index = read(&file(&[tracks(&[track(1, VP8, b"")]), cluster(0, &blocks)])).unwrap();
        assert_eq!(samples(&index, 0).len(), 2, "{flags}: {lace:?}");
        let problems = &index.sampled[0].facts.problems;
        assert_eq!(problems, &["1 blocks are broken, and left out"], "{lace:?}");
    }
}

#[test]
fn frames_of_a_lace_share_the_time_until_the_next_block() {
    let blocks = [
        simple(1, 10, KEYFRAME | 0x04, &[1, 5, 6]),
        simple(1, 50, KEYFRAME | 0x04, &[1, 5, 6]),
    ];
    let index = read(&file(&[tracks(&[track(1, VP8, b"")]), cluster(0, &blocks)])).unwrap();
    let times: Vec<_> = samples(&index, 0)
        .iter()
        .map(|it| it.decode_ticks)
        .collect();
    assert_eq!(times, [10, 30, 50, 70]);
    assert_eq!(index.sampled[0].samples.end_ticks(), 90);
}
