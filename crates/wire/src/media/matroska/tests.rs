//! Files made to order, whole, damaged, cut and growing.

use proptest::prelude::*;

use super::ebml::id;
use super::testing::*;
use super::*;
use crate::media::codec::config::CodecConfig;
use crate::media::codec::dolby_vision::DolbyVision;
use crate::media::codec::text::TextKind;
use crate::media::colour::Colour;
use crate::media::container::{Container, Continued, Index};
use crate::media::frame_rate::FrameRate;
use crate::media::samples::Sample;
use crate::media::track::{Medium, TEXTS_MAX, TRACKS_MAX};

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
    // 3 ms, and a frame of 1024 ticks later, which is 24 ms, rounded.
    assert_eq!(
        told(1),
        [
            (at(b"sound"), 5, 144, true),
            (at(b"more"), 4, 144 + 1024, true)
        ]
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

/// Whatever its entry calls its kind.
#[test]
fn a_track_is_of_the_kind_of_its_codec() {
    let other = integer(0x83, 9);
    let front = [track(1, AAC, &other), track(2, AVC, &other)];
    let blocks = [
        simple(1, 0, KEYFRAME, b"sound"),
        simple(2, 0, KEYFRAME, &nals(&[4])),
        simple(2, 40, 0, &nals(&[4])),
    ];
    let index = read(&file(&[tracks(&front), cluster(0, &blocks)])).unwrap();
    let mediums: Vec<_> = index.sampled.iter().map(|it| it.codec.medium).collect();
    assert_eq!(mediums, [Medium::Video, Medium::Audio], "pictures first");
    let syncs: Vec<_> = samples(&index, 0).iter().map(|it| it.is_sync).collect();
    assert_eq!(syncs, [true, false]);
    assert_eq!(index.sampled[1].facts.sound, Some((8000, 1)), "by default");
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

/// The tracks of a file, those left out and why.
fn left_out(entry: &[u8]) -> String {
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let tracks = tracks(&[track(1, VP8, b""), entry.to_vec()]);
    let index = read(&file(&[tracks, cluster(0, &blocks)])).unwrap();
    let [left_out] = &index.left_out[..] else {
        panic!("{:?}", index.left_out);
    };
    format!("{}: {}: {}", left_out.id, left_out.what, left_out.reason)
}

fn encoding(more: &[u8]) -> Vec<u8> {
    element(0x6d80, &element(0x6240, more))
}

#[test]
fn what_cannot_be_played_is_left_out_and_told() {
    let zlib = encoding(&element(0x5034, b""));
    let lzo = encoding(&element(0x5034, &integer(0x4254, 2)));
    let encrypted = encoding(&[integer(0x5033, 1), element(0x5035, b"")].concat());
    let table = [
        (
            track(2, "S_TEXT/UTF8", b""),
            "subtitles (S_TEXT/UTF8): not in RTP; in HLS and DASH it is WebVTT",
        ),
        (
            track(2, VP8, &zlib),
            "video (V_VP8): its frames are compressed by zlib",
        ),
        (
            track(2, VP8, &lzo),
            "video (V_VP8): its frames are compressed by LZO",
        ),
        (track(2, AAC, &encrypted), "audio (A_AAC): it is encrypted"),
        (
            track(2, "V_THEORA", b""),
            "video (V_THEORA): no payload format for this codec",
        ),
        (track(2, "A_OPUS", b""), "audio (A_OPUS): Opus: "),
    ];
    for (entry, told) in table {
        let left_out = left_out(&entry);
        assert!(left_out.starts_with(&format!("2: {told}")), "{left_out}");
    }
}

/// As AVI has them, whose times are of decoding.
#[test]
fn pictures_of_windows_are_played_if_they_are_in_order() {
    use crate::media::codec::testing::hex;
    // Of libxvid: without pictures that are shown later, and with.
    let [in_order, reordered] = ["bc0406c5", "bc040685"].map(|layer| {
        let front = "000001b003000001b509000001000000012000";
        hex(&format!("{front}{layer}d4c307d31684481463"))
    });
    let entry = |number, fourcc: &[u8], configuration: &[u8]| {
        let format = [&[0; 16][..], fourcc, &[0; 20], configuration].concat();
        track(number, "V_MS/VFW/FOURCC", &element(0x63a2, &format))
    };
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let tracks = tracks(&[entry(1, b"xvid", &in_order)]);
    let index = read(&file(&[tracks, cluster(0, &blocks)])).unwrap();
    let codec = &index.sampled[0].codec;
    assert_eq!(codec.encoding, "MP4V-ES");
    assert_eq!(codec.dimensions, Some((720, 576)));
    let parameters = codec.format_parameters.as_deref().unwrap();
    let begins = "profile-level-id=3; config=000001B003";
    assert!(parameters.starts_with(begins), "{parameters}");
    let not_told = "when pictures are shown is not told";
    let cases = [
        (entry(2, b"DX50", &reordered), not_told),
        (entry(2, b"FMP4", b""), not_told),
        (entry(2, b"DIV3", b""), "this codec is not played"),
        (track(2, "V_MS/VFW/FOURCC", b""), "less than a"),
    ];
    for (entry, reason) in cases {
        let told = left_out(&entry);
        let expected = format!("2: video (V_MS/VFW/FOURCC): V_MS/VFW/FOURCC: {reason}");
        assert!(told.starts_with(&expected), "{told}");
    }
}

#[test]
fn what_is_stripped_from_frames_becomes_their_prefix() {
    let strip = |order, bytes: &[u8]| {
        let settings = [integer(0x4254, 3), element(0x4255, bytes)].concat();
        element(
            0x6240,
            &[integer(0x5031, order), element(0x5034, &settings)].concat(),
        )
    };
    // The length of the first NAL unit and its first byte are not in the file.
    let encodings = element(0x6d80, &[strip(1, &[4, 0x65]), strip(0, &[0])].concat());
    let frame = [&[1, 2, 3][..], &nals(&[5])].concat();
    let index = read(&file(&[
        tracks(&[track(1, AVC, &encodings)]),
        cluster(0, &[simple(1, 0, KEYFRAME, &frame)]),
    ]));
    let index = index.unwrap();
    let track = &index.sampled[0];
    assert_eq!(
        (&track.prefix[..], track.samples.size(0)),
        (&[0, 4, 0x65][..], 10)
    );
    assert_eq!((track.playable(), &track.facts.problems[..]), (1, &[][..]));
}

#[test]
fn a_track_that_breaks_is_played_up_to_there() {
    let blocks = [
        simple(1, 0, KEYFRAME, &nals(&[9])),
        simple(2, 0, KEYFRAME, b"sound"),
        simple(1, 40, 0, &[0, 200, 1, 2]),
        simple(2, 20, KEYFRAME, b"more"),
        simple(1, 80, 0, &nals(&[9])),
    ];
    let tracks = tracks(&[track(1, AVC, b""), track(2, AAC, b"")]);
    let index = read(&file(&[tracks, cluster(0, &blocks)])).unwrap();
    assert_eq!((samples(&index, 0).len(), samples(&index, 1).len()), (1, 2));
    let [problem] = &index.sampled[0].facts.problems[..] else {
        panic!("{:?}", index.sampled[0].facts);
    };
    assert!(
        problem.starts_with("it is played up to there: sample 1:"),
        "{problem}"
    );
}

#[test]
fn a_track_whose_first_frame_is_broken_is_left_out() {
    let broken = simple(1, 0, KEYFRAME, &[0, 200, 1, 2]);
    let entries = [track(1, AVC, b""), track(2, AAC, b"")];
    let with = |blocks: &[Vec<u8>]| read(&file(&[tracks(&entries), cluster(0, blocks)]));
    let index = with(&[broken.clone(), simple(2, 0, KEYFRAME, b"sound")]).unwrap();
    assert_eq!((index.sampled.len(), index.left_out[0].id), (1, 1));
    let reason = &index.left_out[0].reason;
    assert!(reason.starts_with("sample 0:"), "{reason}");
    let entries = tracks(&entries[..1]);
    let error = read(&file(&[entries, cluster(0, &[broken])])).unwrap_err();
    let told = "nothing in the Matroska file can be played: avc1.010203: sample 0:";
    assert!(error.to_string().starts_with(told), "{error}");
}

/// Clients that play the file already were told of it.
#[test]
fn a_track_that_breaks_once_the_file_plays_stays_one() {
    let pictures: Vec<_> = (0..40)
        .map(|at| simple(1, at * 40, KEYFRAME, b"picture"))
        .collect();
    let entries = tracks(&[track(1, VP8, b""), track(2, AAC, b"")]);
    // More than a packet of AAC can say.
    let late = simple(2, 1600, KEYFRAME, &[7; 8192]);
    let film = file(&[entries, cluster(0, &pictures), cluster(1600, &[late])]);
    let mut scanner = Scanner::default();
    push(&mut scanner, &film[..film.len() - 8000], usize::MAX).unwrap();
    let before = Index::of(scanner.settled().unwrap());
    push(&mut scanner, &film, usize::MAX).unwrap();
    let after = scanner.finish().unwrap();
    assert!(after.left_out.is_empty(), "{:?}", after.left_out);
    let [problem] = &after.sampled[1].facts.problems[..] else {
        panic!("{:?}", after.sampled[1].facts);
    };
    let told = "it is played up to there: sample 0:";
    assert!(problem.starts_with(told), "{problem}");
    let continued = Index::of(after).continuing(&before);
    assert!(matches!(continued, Continued::More(_)), "{continued:?}");
}

#[test]
fn facts_are_those_of_the_track() {
    let more = [
        element(0x536e, b"Director's cut\0\0"),
        element(0x22_b59c, b"ger"),
        element(0x22_b59d, b"de-AT"),
        integer(0x56aa, 6_500_000),
        element(
            0xe0,
            &[
                integer(0xb0, 720),
                integer(0xba, 576),
                integer(0x54b0, 1024),
                element(0x7670, &element(0x7675, &(-90.0_f32).to_be_bytes())),
            ]
            .concat(),
        ),
    ];
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let named = file(&[
        tracks(&[track(1, VP8, &more.concat())]),
        cluster(0, &blocks),
    ]);
    let index = read(&named).unwrap();
    let facts = &index.sampled[0].facts;
    assert_eq!(facts.name.as_deref(), Some("Director's cut"));
    assert_eq!(facts.language.as_deref(), Some("de-AT"));
    assert_eq!(
        (facts.id, facts.dimensions, facts.rotation_degrees),
        (1, Some((1024, 576)), 90)
    );
    assert_eq!((facts.coded, facts.colour), (Some((720, 576)), None));
    assert_eq!(index.sampled[0].time_ns(0), -7_000_000);
    let plain = [simple(1, 0, KEYFRAME, b"one")];
    let plain = read(&file(&[tracks(&[track(1, VP8, b"")]), cluster(0, &plain)]));
    assert_eq!(
        plain.unwrap().sampled[0].facts.language.as_deref(),
        Some("eng")
    );
}

/// By a ratio, as ffmpeg tells of pixels that are not square, and by sizes that others hang up.
#[test]
fn a_ratio_tells_how_wide_pictures_are_shown() {
    let shown = |unit: u64, size: Option<(u64, u64)>| {
        let mut video = vec![
            integer(0xb0, 720),
            integer(0xba, 576),
            integer(0x54b2, unit),
        ];
        video.extend(size.map(|(width, _)| integer(0x54b0, width)));
        video.extend(size.map(|(_, height)| integer(0x54ba, height)));
        let entry = track(1, VP8, &element(0xe0, &video.concat()));
        let blocks = [simple(1, 0, KEYFRAME, b"one")];
        let index = read(&file(&[tracks(&[entry]), cluster(0, &blocks)])).unwrap();
        let facts = &index.sampled[0].facts;
        assert_eq!(facts.coded, Some((720, 576)));
        facts.dimensions.unwrap()
    };
    assert_eq!(shown(3, Some((16, 9))), (1024, 576));
    assert_eq!(shown(1, Some((40, 30))), (768, 576));
    assert_eq!(shown(2, Some((4, 3))), (768, 576));
    assert_eq!(shown(0, Some((16, 9))), (16, 9));
    // What is no ratio, is too large, or of an unknown unit.
    for (unit, size) in [
        (3, None),
        (3, Some((16, 0))),
        (3, Some((0, 9))),
        (3, Some((u32::MAX.into(), 1))),
        (4, Some((16, 9))),
        (0, None),
    ] {
        assert_eq!(shown(unit, size), (720, 576), "unit {unit}: {size:?}");
    }
}

/// As ffmpeg writes it of BT.2020 and PQ.
#[test]
fn colours_are_those_of_the_track() {
    let of = |colour: &[Vec<u8>]| {
        let video = element(0xe0, &element(0x55b0, &colour.concat()));
        let entry = track(1, VP8, &video);
        let blocks = [simple(1, 0, KEYFRAME, b"one")];
        let index = read(&file(&[tracks(&[entry]), cluster(0, &blocks)])).unwrap();
        index.sampled[0].facts.colour.unwrap()
    };
    let told = [
        integer(0x55ba, 16),
        integer(0x55b1, 9),
        integer(0x55bb, 9),
        integer(0x55b9, 2),
    ];
    let expected = Colour {
        primaries: 9,
        transfer: 16,
        matrix: 9,
        is_full_range: true,
    };
    assert_eq!(of(&told), expected);
    assert_eq!(of(&[]), Colour::default());
    assert_eq!(of(&[integer(0x55ba, 300)]), Colour::default());
}

/// By a mapping whose type is the name of its box in MP4.
#[test]
fn dolby_vision_is_told_of_the_track() {
    let of = |kind: u64, record: &[u8]| {
        let mapping = [integer(0x41e7, kind), element(0x41ed, record)].concat();
        let entry = track(1, VP8, &element(0x41e4, &mapping));
        let blocks = [simple(1, 0, KEYFRAME, b"one")];
        let index = read(&file(&[tracks(&[entry]), cluster(0, &blocks)])).unwrap();
        index.sampled[0].facts.dolby_vision
    };
    let record = [1, 0, 5 << 1, 6 << 3 | 5, 0];
    let told = of(0x6476_6343, &record);
    assert!(told.is_some() && told == DolbyVision::read(&record));
    assert_eq!(of(4, &record), None);
}

#[test]
fn tracks_are_default_if_they_do_not_say_otherwise() {
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let of = |more: &[u8]| {
        let text = track(2, "S_TEXT/UTF8", more);
        let tracks = tracks(&[track(1, VP8, more), text]);
        let index = read(&file(&[tracks, cluster(0, &blocks)])).unwrap();
        let facts = [&index.sampled[0], &index.texts[0]].map(|it| &it.facts);
        facts.map(|it| (it.is_default, it.is_forced))
    };
    assert_eq!(of(b""), [(true, false); 2]);
    assert_eq!(of(&element(0x88, b"")), [(true, false); 2]);
    assert_eq!(of(&integer(0x88, 0)), [(false, false); 2]);
    let both = [integer(0x88, 1), integer(0x55aa, 1)].concat();
    assert_eq!(of(&both), [(true, true); 2]);
}

/// Two more subtitles than there may be, in front of as many other tracks as are played.
#[test]
fn subtitles_do_not_count_among_the_tracks_that_are_played() {
    let texts = 1..=TEXTS_MAX as u64 + 2;
    let texts = texts.map(|number| track(number, "S_TEXT/UTF8", b""));
    let sounds = (31..30 + TRACKS_MAX as u64).map(|number| track(number, AAC, b""));
    let entries: Vec<_> = texts.chain(sounds).chain([track(41, VP8, b"")]).collect();
    let blocks = [simple(41, 0, KEYFRAME, b"one")];
    let index = read(&file(&[tracks(&entries), cluster(0, &blocks)])).unwrap();
    let sampled = index.sampled.iter().map(|it| it.facts.id);
    assert!(sampled.eq([41, 31, 32, 33, 34, 35, 36, 37]));
    let texts = index.texts.iter().map(|it| it.facts.id);
    assert!(texts.eq(1..=TEXTS_MAX as u64));
    let beyond = index.left_out.iter().filter(|it| it.id > 16);
    let told: Vec<_> = beyond.map(|it| (it.id, &*it.what, &*it.reason)).collect();
    let reason = "only 16 subtitles of a film are shown";
    let of = |id| (id, "subtitles (S_TEXT/UTF8)", reason);
    assert_eq!(told, [of(17), of(18)]);
    assert_eq!(index.left_out.len(), TEXTS_MAX + 2, "each is told of");
}

#[test]
fn webvtt_of_webm_is_subtitles_but_for_metadata() {
    let kinds = ["SUBTITLES", "CAPTIONS", "DESCRIPTIONS", "METADATA"];
    let texts = (2..).zip(kinds).map(|(number, kind)| {
        let codec = format!("D_WEBVTT/{kind}");
        track(number, &codec, b"")
    });
    let entries: Vec<_> = [track(1, VP8, b"")].into_iter().chain(texts).collect();
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let index = read(&file(&[tracks(&entries), cluster(0, &blocks)])).unwrap();
    let kind = TextKind::WebMVtt;
    let unit_ns = 1_000_000;
    for text in &index.texts {
        let config = text.config.as_deref();
        assert_eq!(config, Some(&CodecConfig::Text { kind, unit_ns }));
    }
    assert_eq!(index.texts.len(), 3);
    let metadata = index.left_out.iter().find(|it| it.id == 5).unwrap();
    assert_eq!(metadata.reason, "only pictures and sound are played");
}

/// `Tracks` behind the first cluster, and a `SeekHead` that says so or lies.
#[test]
fn late_tracks_are_found_by_the_seek_head_alone() {
    let cluster = cluster(
        0,
        &[simple(1, 0, KEYFRAME, b"one"), simple(1, 40, 0, b"two")],
    );
    let seek = |position: u64| {
        let position = element(id::SEEK_POSITION, &position.to_be_bytes());
        let tracks = element(id::SEEK_ID, &id::TRACKS.to_be_bytes());
        element(
            id::SEEK_HEAD,
            &element(id::SEEK, &[tracks, position].concat()),
        )
    };
    let tracks = tracks(&[track(1, VP8, b"")]);
    let place = (seek(0).len() + cluster.len()) as u64;
    let found = file(&[seek(place), cluster.clone(), tracks.clone()]);
    assert_eq!(samples(&read(&found).unwrap(), 0).len(), 2);
    // At itself, at the cluster, beyond the end, beyond all ends; and none.
    let in_file = [0, seek(0).len() as u64, 1 << 20, u64::MAX];
    let lies = in_file.map(|place| file(&[seek(place), cluster.clone(), tracks.clone()]));
    for lie in lies
        .iter()
        .chain([&file(&[cluster.clone(), tracks.clone()])])
    {
        let error = read(lie).unwrap_err();
        assert!(
            matches!(error, MatroskaError::TracksLate | MatroskaError::Empty),
            "{error}"
        );
    }
}

#[test]
fn headers_of_other_formats_and_versions_are_refused() {
    let with = |of: &[Vec<u8>]| {
        let rest = element(id::SEGMENT, &tracks(&[track(1, VP8, b"")]));
        read(&[element(id::EBML, &of.concat()), rest].concat()).unwrap_err()
    };
    let table = [
        (integer(id::READ_VERSION, 2), "0x42f7 is more than 1"),
        (
            integer(id::DOC_TYPE_READ_VERSION, 5),
            "0x4285 is more than 4",
        ),
        (integer(id::MAX_SIZE_LENGTH, 9), "0x42f3 is more than 8"),
        (element(id::DOC_TYPE, b"other"), "its DocType is \"other\""),
    ];
    for (element, told) in table {
        let error = with(&[element]).to_string();
        assert!(error.ends_with(told), "{error}");
    }
    assert_eq!(
        with(&[element(id::DOC_TYPE, b"webm")]),
        MatroskaError::Empty
    );
}

#[test]
fn sizes_that_lie_cost_no_more_than_their_cluster() {
    let good = |time| cluster(time, &[simple(1, 0, KEYFRAME, b"good")]);
    let block = block(1, 1, KEYFRAME, b"bad");
    let beyond = (1 << 56) - 2;
    let bad_blocks = [
        sized(id::SIMPLE_BLOCK, 1000, 2, &block),
        sized(id::SIMPLE_BLOCK, beyond, 8, &block),
        unsized_element(id::SIMPLE_BLOCK, &block),
        sized(id::BLOCK_GROUP, beyond, 8, &block),
        sized(id::VOID, beyond, 8, b""),
        [0; 20].to_vec(),
        element(id::BLOCK_GROUP, &sized(id::BLOCK, 100, 1, &block)),
    ];
    for bad in bad_blocks {
        let file = file(&[
            tracks(&[track(1, VP8, b"")]),
            cluster(0, &[simple(1, 0, KEYFRAME, b"first"), bad.clone()]),
            good(40),
            good(80),
        ]);
        let index = read(&file).unwrap();
        assert_eq!(samples(&index, 0).len(), 3, "{bad:x?}");
        let problems = &index.sampled[0].facts.problems;
        assert!(
            problems[0].starts_with("1 places are damaged"),
            "{problems:?}"
        );
    }
}

#[test]
fn blocks_without_bytes_or_time_are_left_out_and_told() {
    let bad = [
        element(id::SIMPLE_BLOCK, b""),
        element(id::SIMPLE_BLOCK, &[0x81, 0]),
        simple(1, 0, KEYFRAME, b""),
        element(id::SIMPLE_BLOCK, &[0; 30]),
    ];
    let clusters = [
        cluster(0, &[&bad[..], &[simple(1, 9, KEYFRAME, b"good")]].concat()),
        // No timestamp.
        element(id::CLUSTER, &simple(1, 0, KEYFRAME, b"when?")),
    ];
    let index = read(&file(&[tracks(&[track(1, VP8, b"")]), clusters.concat()])).unwrap();
    assert_eq!(samples(&index, 0).len(), 1);
    let problems = &index.sampled[0].facts.problems;
    assert_eq!(problems, &["5 blocks are broken, and left out"]);
}

#[test]
fn the_next_cluster_is_found_behind_garbage() {
    let garbage = |bytes: usize| vec![0x03; bytes];
    let good = |time| cluster(time, &[simple(1, 0, KEYFRAME, b"good")]);
    let front = [header(), tracks(&[track(1, VP8, b"")])];
    let with = |bytes| {
        let segment = [front[1].clone(), good(0), garbage(bytes), good(40)].concat();
        read(&[front[0].clone(), unsized_element(id::SEGMENT, &segment)].concat()).unwrap()
    };
    for bytes in [1, 3, 4, 100_000, 16 << 20] {
        let index = with(bytes);
        assert_eq!(samples(&index, 0).len(), 2, "{bytes}");
        assert_eq!(index.sampled[0].facts.problems.len(), 1);
    }
    let index = with((16 << 20) + (128 << 10));
    assert_eq!(samples(&index, 0).len(), 1);
    let problems = &index.sampled[0].facts.problems;
    assert!(
        problems[1].ends_with("no cluster within 16 MiB of the damage"),
        "{problems:?}"
    );
}

#[test]
fn only_the_first_segment_is_played() {
    let one = file(&[
        tracks(&[track(1, VP8, b"")]),
        cluster(0, &[simple(1, 0, KEYFRAME, b"one")]),
    ]);
    let index = read(&[one.clone(), one].concat()).unwrap();
    assert_eq!(samples(&index, 0).len(), 1);
    let problems = &index.sampled[0].facts.problems;
    assert!(
        problems[0].ends_with("only the first of its segments is played"),
        "{problems:?}"
    );
}

/// What was told when the segment was over stays, whatever is appended.
#[test]
fn what_follows_the_segment_is_not_played() {
    let block = |at| cluster(at, &[simple(1, 0, KEYFRAME, b"one")]);
    let segment = file(&[tracks(&[track(1, VP8, b"")]), block(0)]);
    let mut scanner = Scanner::default();
    let push = |scanner: &mut Scanner, file: &[u8]| {
        while let Some(wanted) = scanner.wants(file.len() as u64) {
            let part = usize::try_from(wanted.start).unwrap()..usize::try_from(wanted.end).unwrap();
            scanner.push(&file[part]).unwrap();
        }
        samples(&scanner.settled().unwrap(), 0)
    };
    let whole = push(&mut scanner, &segment);
    assert_eq!(whole.len(), 1);
    for more in [block(40), b"\0\0\0\0\0\0\0\0".to_vec()] {
        let mut scanner = scanner.clone();
        let file = [&segment[..], &more, &block(80)].concat();
        assert_eq!(push(&mut scanner, &file), whole);
        let problems = &scanner.finish().unwrap().sampled[0].facts.problems;
        assert!(
            problems[0].ends_with("what follows its segment is not played"),
            "{problems:?}"
        );
    }
}

#[test]
fn a_description_is_bounded() {
    let large = sized(id::TRACKS, 5 << 20, 4, b"");
    let error = read(&file(&[large])).unwrap_err();
    assert_eq!(error, MatroskaError::Large { bytes: 5 << 20 });
    // Deep nesting is not followed: what is in an element is looked at no deeper than it may be.
    let mut deep = Vec::new();
    for _ in 0..1000 {
        deep = element(0x6d80, &deep);
    }
    let blocks = [simple(1, 0, KEYFRAME, b"one")];
    let many: Vec<_> = (1..100).map(|number| track(number, VP8, &deep)).collect();
    let index = read(&file(&[tracks(&many), cluster(0, &blocks)])).unwrap();
    assert_eq!((index.sampled.len(), index.left_out.len()), (8, 64 - 8));
}

#[test]
fn a_file_that_begins_late_begins_at_its_first_cluster() {
    let clusters = [
        cluster(3_600_000, &[simple(1, 20, KEYFRAME, b"one")]),
        cluster(3_601_000, &[simple(1, 0, KEYFRAME, b"two")]),
    ];
    let duration = element(id::DURATION, &3_601_040.0_f64.to_be_bytes());
    let info = element(id::INFO, &duration);
    let front = [info, tracks(&[track(1, VP8, b"")])].concat();
    let file = [
        header(),
        unsized_element(id::SEGMENT, &[front, clusters.concat()].concat()),
    ];
    let mut scanner = Scanner::default();
    push(&mut scanner, &file.concat(), usize::MAX).unwrap();
    let index = scanner.settled().unwrap();
    assert_eq!(index.told_duration_ns, Some(1_040_000_000));
    let times: Vec<_> = samples(&index, 0)
        .iter()
        .map(|it| it.decode_ticks)
        .collect();
    assert_eq!(times, [20]);
    assert!(index.is_partial);
    let whole = scanner.finish().unwrap();
    assert_eq!(
        (whole.told_duration_ns, samples(&whole, 0).len()),
        (None, 2)
    );
}

#[test]
fn samples_are_bounded() {
    let mut scanner = Scanner::default();
    let front = tracks(&[track(1, VP8, b""), track(2, AAC, b"")]);
    let front = [header(), unsized_element(id::SEGMENT, &front)].concat();
    push(&mut scanner, &front, usize::MAX).unwrap();
    scanner
        .0
        .set_samples(crate::media::samples::SAMPLES_MAX - 3);
    let blocks: Vec<_> = (0..5)
        .map(|at| simple(1 + at % 2, at.into(), KEYFRAME, b"one"))
        .collect();
    let file = [front, cluster(0, &blocks)].concat();
    push(&mut scanner, &file, usize::MAX).unwrap();
    let index = scanner.finish().unwrap();
    let known = [0, 1].map(|track| samples(&index, track).len());
    assert_eq!(known, [2, 1]);
    let problems = index.sampled.iter().flat_map(|track| &track.facts.problems);
    let problems: Vec<_> = problems.collect();
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0].ends_with("more than 16777216 samples"),
        "{problems:?}"
    );
}

fn times(file: &[u8], track: usize) -> Vec<i64> {
    let samples = samples(&read(file).unwrap(), track).into_iter();
    samples.map(|it| it.decode_ticks).collect()
}

#[test]
fn files_may_count_in_other_units() {
    let with = |unit_ns: u64, times: &[i16]| {
        let info = element(id::INFO, &integer(id::TIMESTAMP_SCALE, unit_ns));
        let blocks = times.iter().map(|&at| simple(1, at, KEYFRAME, b"frame"));
        let blocks: Vec<_> = blocks.collect();
        file(&[info, tracks(&[track(1, VP8, b"")]), cluster(0, &blocks)])
    };
    assert_eq!(times(&with(0, &[0, 7]), 0), [0, 7]);
    assert_eq!(times(&with(1_000_000, &[0, 7]), 0), [0, 7]);
    assert_eq!(times(&with(10_000_000, &[0, 7]), 0), [0, 70]);
    // Samples of 44.1 kHz, in microseconds.
    assert_eq!(times(&with(22_676, &[0, 100]), 0), [0, 2268]);
    // Beyond all bounds: it is played up to there.
    assert_eq!(times(&with(u64::MAX / 2, &[0, 1]), 0), [0]);
}

proptest! {
    /// Whatever bytes a file has changed, cut out or put in: an end, no panic, and samples within
    /// the file; and the same however the bytes come.
    #[test]
    fn damaged_files_are_read_to_their_end(
        changes in prop::collection::vec(
            (0.0..1.0_f64, prop::collection::vec(any::<u8>(), 0..5), 0..9_usize),
            1..6,
        ),
        step in 1..60_usize,
    ) {
        let mut file = film(2);
        for (place, bytes, cut) in changes {
            #[allow(
                clippy::cast_precision_loss, clippy::cast_possible_truncation,
                clippy::cast_sign_loss, reason = "any place"
            )]
            let at = (place * file.len() as f64) as usize;
            let end = (at + cut).min(file.len());
            file.splice(at..end, bytes);
        }
        let read = |step| {
            let mut scanner = Scanner::default();
            push(&mut scanner, &file, step)?;
            let settled = scanner.settled();
            let whole = scanner.finish()?;
            Ok::<_, MatroskaError>((settled.ok(), whole))
        };
        let (whole, parts) = (read(usize::MAX), read(step));
        prop_assert_eq!(whole.is_ok(), parts.is_ok());
        let (Ok((settled, whole)), Ok((_, parts))) = (whole, parts) else { return Ok(()) };
        for track in 0..whole.sampled.len() {
            prop_assert_eq!(&whole.sampled[track].samples, &parts.sampled[track].samples);
            let samples = samples(&whole, track);
            for sample in &samples {
                prop_assert!(sample.offset + u64::from(sample.bytes) <= file.len() as u64);
            }
        }
        if let Some(settled) = settled.filter(|it| it.sampled.len() == whole.sampled.len()) {
            for (now, then) in whole.sampled.iter().zip(&settled.sampled) {
                prop_assert!(now.samples.continues(&then.samples, usize::MAX));
            }
        }
    }

    /// The same of bytes that are nothing but a header.
    #[test]
    fn any_bytes_behind_a_header_are_read_to_their_end(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        has_tracks in any::<bool>(),
    ) {
        let tracks = tracks(&[track(1, VP8, b""), track(2, AVC, b"")]);
        let tracks = if has_tracks { tracks } else { Vec::new() };
        let segment = unsized_element(id::SEGMENT, &[tracks, bytes].concat());
        let index = read(&[header(), segment].concat());
        prop_assert!(index.is_err() || has_tracks);
    }
}

/// Pictures of 29.97 frames a second, whose times are rounded to milliseconds, in a track and a
/// segment that say so.
fn rounded_film(of_track: &[u8], of_info: &[u8], start_ms: u64) -> SampledIndex {
    let block = |at: u64| {
        let ms = i16::try_from((at * 1001 + 15) / 30).unwrap();
        simple(1, ms, KEYFRAME, b"a picture")
    };
    let film = file(&[
        element(id::INFO, of_info),
        tracks(&[track(1, VP8, of_track)]),
        cluster(start_ms, &(0..90).map(block).collect::<Vec<_>>()),
    ]);
    read(&film).unwrap()
}

#[test]
fn a_constant_frame_rate_is_found_through_rounding() {
    let default = integer(0x23_e383, 33_366_667);
    let rate = |of_track: &[u8]| rounded_film(of_track, b"", 0).frame_rate();
    assert_eq!(rate(&default), Some(FrameRate::NTSC));
    // What the file says of another film is not so.
    assert_eq!(rate(&integer(0x23_e383, 40_000_000)), None);
    assert_eq!(rate(b""), None);
}

#[test]
fn a_date_says_when_a_file_began() {
    let began = |date: &[u8], start_ms| {
        let info = element(id::DATE_UTC, date);
        rounded_film(b"", &info, start_ms).wall_clock_start_ns()
    };
    let day_ns = 86_400_000_000_000_i64;
    let unix_2001_ns = 978_307_200_000_000_000;
    assert_eq!(began(&0_i64.to_be_bytes(), 0), Some(unix_2001_ns));
    let before = Some(unix_2001_ns - day_ns.unsigned_abs());
    assert_eq!(began(&(-day_ns).to_be_bytes(), 0), before);
    // Whose clock began an hour before it.
    assert_eq!(began(&0_i64.to_be_bytes(), 3_600_000), None);
    for wrong in [
        &[][..],
        &[0; 4],
        &i64::MIN.to_be_bytes(),
        &i64::MAX.to_be_bytes(),
    ] {
        assert_eq!(began(wrong, 0), None, "{wrong:?}");
    }
}
