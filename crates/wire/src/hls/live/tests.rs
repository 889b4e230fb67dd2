//! Windows of live media, their playlists and what is asked of them.

use std::sync::Arc;

use proptest::prelude::*;

use super::segment::BREAKS_TOLD_MAX;
use super::*;
use crate::hls::Version;
use crate::media::live::{InitSegment, LiveRendition, Output, PartOf};
use crate::media::segments::Format;
use crate::media::{Medium, VideoRange};

pub(super) const FIRST: u64 = 1000;
pub(super) const TIMESCALE: u32 = 90_000;

/// When the first segment of each rendition begins.
pub(super) const FIRST_TICKS: i64 = 900_000;

pub(super) fn window(window_s: u64, bytes_max: usize) -> Window {
    storing_window(window_s, bytes_max, 0)
}

fn storing_window(window_s: u64, bytes_max: usize, stored_bytes_max: u64) -> Window {
    let settings = WindowSettings {
        window_us: window_s * 1_000_000,
        bytes_max,
        stored_bytes_max,
        first_number: FIRST,
        first_break: FIRST,
        version: 0xab,
    };
    let of = |name, medium| LiveRendition {
        name,
        medium,
        format: Format::Cmaf,
    };
    let renditions = vec![of("video", Medium::Video), of("audio", Medium::Audio)];
    let mut window = Window::new(settings, renditions);
    window.apply(Output::PartTarget(330_000));
    window.apply(Output::Target(4));
    (0..2).for_each(|rendition| describe(&mut window, rendition, 1));
    window
}

pub(super) fn describe(window: &mut Window, rendition: usize, byte: u8) {
    let init = InitSegment {
        bytes: Arc::from([byte]),
        codec: Some("avc1.42c00c".to_owned()),
        dimensions: Some((320, 180)),
        video_range: Some(VideoRange::Sdr),
        channels: None,
        timescale: TIMESCALE,
    };
    let init = Arc::new(init);
    window.apply(Output::Init { rendition, init });
}

/// A part that goes on where the one before has ended.
pub(super) fn part(window: &mut Window, rendition: usize, bytes: usize) {
    part_after(window, rendition, bytes, 0);
}

/// A part that begins so many seconds behind the end of the one before.
pub(super) fn part_after(window: &mut Window, rendition: usize, bytes: usize, gap_s: i64) {
    let last = window.renditions[rendition].segments.back();
    let first = (1_700_000_000_123_000_000, FIRST_TICKS);
    let (starts_unix_ns, starts_ticks) = last.map_or(first, |it| {
        let lasts_ns = it.lasts_us.cast_signed() * 1000;
        let gap_ticks = gap_s * i64::from(TIMESCALE);
        (
            it.starts_unix_ns + lasts_ns + gap_s * 1_000_000_000,
            it.starts_ticks + it.ticks + gap_ticks,
        )
    });
    let part = PartOf {
        bytes: vec![7; bytes].into(),
        lasts_us: 320_000,
        starts_unix_ns,
        starts_ticks,
        ticks: i64::from(TIMESCALE) * 320 / 1000,
        is_independent: true,
        begins_with_sync: true,
        samples: 8,
    };
    window.apply(Output::Part { rendition, part });
}

/// A segment of 3.2 s of each rendition.
pub(super) fn segment(window: &mut Window, bytes: usize) {
    segment_after(window, bytes, 0);
}

/// One that begins so many seconds behind the end of the one before.
pub(super) fn segment_after(window: &mut Window, bytes: usize, gap_s: i64) {
    for rendition in 0..2 {
        part_after(window, rendition, bytes / 10, gap_s);
        (1..10).for_each(|_| part(window, rendition, bytes / 10));
        window.apply(Output::SegmentEnd { rendition });
    }
}

fn text(window: &Window) -> String {
    window.media_playlist("video", "", false).unwrap()
}

fn count(text: &str, what: &str) -> usize {
    text.lines().filter(|line| line.starts_with(what)).count()
}

/// Players refuse a part that is longer than the target.
#[test]
fn a_longer_part_raises_the_target_while_it_is_listed() {
    let mut window = window(60, 1 << 20);
    segment(&mut window, 100);
    part(&mut window, 0, 10);
    let newest = window.renditions[0].segments.back_mut().unwrap();
    newest.parts[0].lasts_us = 900_000;
    newest.lasts_us = 900_000;
    let told = |window: &Window| {
        ["video", "audio"].map(|rendition| {
            let text = window.media_playlist(rendition, "", false).unwrap();
            let has = |what: &str| text.contains(what);
            (
                has("PART-TARGET=0.900000\n") && has("PART-HOLD-BACK=2.700000,"),
                has("PART-TARGET=0.330000\n") && has("PART-HOLD-BACK=1.000000,"),
            )
        })
    };
    assert_eq!(told(&window), [(true, false); 2]);
    window.apply(Output::SegmentEnd { rendition: 0 });
    (0..3).for_each(|_| segment(&mut window, 100));
    assert_eq!(told(&window), [(true, false); 2], "9.6 s are behind it");
    segment(&mut window, 100);
    assert_eq!(told(&window), [(false, true); 2], "12.8 s are");
}

#[test]
fn a_playlist_has_what_low_latency_asks_for() {
    let mut window = window(60, 1 << 20);
    part(&mut window, 0, 10);
    assert!(
        window.media_playlist("video", "", false).is_none(),
        "no segment is whole"
    );
    window.apply(Output::SegmentEnd { rendition: 0 });
    segment(&mut window, 100);
    segment(&mut window, 100);
    part(&mut window, 0, 10);
    let text = text(&window);
    for line in [
        "#EXT-X-VERSION:9",
        "#EXT-X-TARGETDURATION:4",
        "#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.000000,CAN-SKIP-UNTIL=24.0",
        "#EXT-X-PART-INF:PART-TARGET=0.330000",
        "#EXT-X-MEDIA-SEQUENCE:1000",
        "#EXT-X-DISCONTINUITY-SEQUENCE:1000",
        "#EXT-X-MAP:URI=\"00000000000000ab/init.mp4\"",
        "#EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:13:20.123Z",
        "#EXTINF:3.200000,",
        "00000000000000ab/1002.m4s",
        "#EXT-X-PART:DURATION=0.320000,URI=\"00000000000000ab/1003.0.m4s\",INDEPENDENT=YES",
        "#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"00000000000000ab/1003.1.m4s\"",
        "#EXT-X-RENDITION-REPORT:URI=\"../audio/index.m3u8\",LAST-MSN=1001,LAST-PART=9",
    ] {
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }
    let main = window.main_playlist("?k=1", false).unwrap();
    assert!(
        main.contains("CODECS=\"avc1.42c00c,avc1.42c00c\",RESOLUTION=320x180"),
        "{main}"
    );
    assert!(
        main.contains("FRAME-RATE=25.000,AUDIO=\"audio1\"\nvideo/index.m3u8?k=1"),
        "{main}"
    );
}

#[test]
fn a_high_dynamic_range_is_told_of_pictures() {
    for (video_range, told, code) in [
        (VideoRange::Sdr, None, None),
        (VideoRange::Hlg, Some("HLG"), Some("18")),
        (VideoRange::Pq, Some("PQ"), Some("16")),
    ] {
        let mut window = window(60, 1 << 20);
        let init = InitSegment {
            video_range: Some(video_range),
            ..window.renditions[0].init().clone()
        };
        let init = Arc::new(init);
        window.apply(Output::Init { rendition: 0, init });
        segment(&mut window, 100);
        let main = window.main_playlist("", false).unwrap();
        let told = told.map(|it| format!(",RESOLUTION=320x180,VIDEO-RANGE={it},FRAME-RATE="));
        let is_told = told.is_some_and(|it| main.contains(&it));
        assert_eq!(is_told, main.contains("VIDEO-RANGE"), "{main}");
        assert_eq!(is_told, video_range.is_high(), "{main}");
        let manifest = window.manifest("").unwrap();
        let scheme = "schemeIdUri=\"urn:mpeg:mpegB:cicp:TransferCharacteristics\"";
        let property =
            code.map(|it| format!(">\n<SupplementalProperty {scheme} value=\"{it}\"/>\n<"));
        let is_told = property.is_some_and(|it| manifest.contains(&it));
        assert_eq!(is_told, video_range.is_high(), "{manifest}");
        assert_eq!(
            count(&manifest, "<SupplementalProperty"),
            usize::from(is_told)
        );
    }
}

#[test]
fn the_poster_is_what_the_newest_segment_begins_with() {
    let mut window = window(60, 1 << 20);
    assert!(window.has_posters() && window.poster().is_none());
    segment(&mut window, 100);
    let first = window.poster().unwrap();
    assert_eq!((first.number, &first.bytes[0][..]), (FIRST, &[1][..]));
    assert_eq!(&first.bytes[1][..], &[7; 10]);
    // As soon as the next one has begun.
    describe(&mut window, 0, 2);
    part(&mut window, 0, 20);
    let next = window.poster().unwrap();
    assert_eq!((next.number, next.bytes[1].len()), (FIRST + 1, 20));
    assert!(next.version != first.version && next.bytes[0][..] == [2]);
    // What no decoder can start with is passed over.
    window.renditions[0].segments[1].is_independent = false;
    assert_eq!(window.poster().unwrap(), first);
}

#[test]
fn parts_are_listed_near_the_end_alone() {
    let mut window = window(120, 1 << 20);
    (0..20).for_each(|_| segment(&mut window, 100));
    // Within 12 s: those of four segments.
    assert_eq!(count(&text(&window), "#EXT-X-PART:"), 40);
}

#[test]
fn what_is_kept_is_bounded_by_time_and_bytes() {
    let mut window = window(12, 1 << 20);
    (0..100).for_each(|_| segment(&mut window, 100));
    let text = text(&window);
    assert_eq!(count(&text, "#EXTINF"), 4, "{text}");
    assert!(text.contains("#EXT-X-MEDIA-SEQUENCE:1096\n"));
    let found = |number| window.segment("video", Version(0xab), number);
    // What has left the playlist is there for as long again.
    assert!(matches!(found(1092), Found::Bytes(bytes) if bytes.len() == 10));
    assert_eq!(found(1091), Found::Nothing);
    let mut small = self::window(3600, 100_000);
    for _ in 0..100 {
        segment(&mut small, 5000);
        assert!(small.bytes() <= 100_000, "{}", small.bytes());
    }
    let listed = count(&self::text(&small), "#EXTINF");
    assert!((4..=6).contains(&listed), "half of the bytes: {listed}");
}

/// As of a publisher that describes each of its pictures anew, or whose clock jumps at each.
#[test]
fn short_segments_are_bounded_in_number_and_bytes() {
    const INIT_BYTES: usize = 1000;
    const PART_BYTES: usize = 200;
    let of_a_second = usize::try_from(SEGMENTS_PER_SECOND_MAX).unwrap();
    let of_time = 2 * 12 * of_a_second;
    let of_bytes = 50_000 / (INIT_BYTES + PART_BYTES);
    for (bytes_max, most) in [(1 << 20, of_time), (50_000, of_bytes)] {
        let mut window = window(12, bytes_max);
        let rendition = 0;
        for number in 0..1000_u16 {
            let init = InitSegment {
                bytes: vec![u8::from(number % 2 == 0); INIT_BYTES].into(),
                ..window.renditions[rendition].init().clone()
            };
            let part = PartOf {
                bytes: vec![7; PART_BYTES].into(),
                lasts_us: 1,
                starts_unix_ns: i64::from(number) * 1000,
                starts_ticks: number.into(),
                ticks: 1,
                is_independent: true,
                begins_with_sync: true,
                samples: 1,
            };
            let (breaks, init) = (1, Arc::new(init));
            window.apply(Output::Break { rendition, breaks });
            window.apply(Output::Init { rendition, init });
            window.apply(Output::Part { rendition, part });
            window.apply(Output::SegmentEnd { rendition });
            assert!(window.bytes() <= bytes_max, "{}", window.bytes());
        }
        let kept = window.renditions[rendition].segments.len();
        assert!((most / 2..=most).contains(&kept), "{kept} of {most}");
        let listed = count(&text(&window), "#EXTINF");
        assert!((kept / 4..=kept / 2 + 1).contains(&listed), "{listed}");
    }
}

/// Puts all that is to leave memory somewhere: each segment into a file of its own.
fn store_all(window: &mut Window, next: &mut u64) {
    while let Some(leaving) = window.leaving() {
        let bytes = leaving.parts.iter().map(|it| it.len() as u64).sum();
        let (file, start) = (*next, 7);
        *next += 1;
        window.has_stored(&leaving, Stored { file, start, bytes });
    }
}

#[test]
fn what_leaves_memory_stays_in_the_window() {
    // Half an hour, of which memory has room for ten segments of both.
    let mut window = storing_window(1800, 10_000, 1 << 20);
    let mut next = 1;
    for round in 0..400_u64 {
        segment(&mut window, 500);
        store_all(&mut window, &mut next);
        assert!(window.bytes() <= 10_000, "{}", window.bytes());
        assert!(window.stored_bytes() <= 1 << 20);
        let whole = usize::try_from(round + 1).unwrap();
        assert_eq!(count(&text(&window), "#EXTINF"), whole);
    }
    let stored = |number| window.segment("video", Version(0xab), number);
    let Found::Stored(first) = stored(FIRST) else {
        panic!("the first is not stored");
    };
    assert_eq!((first.start, first.bytes), (7, 500));
    assert!(matches!(stored(FIRST + 399), Found::Bytes(_)));
    assert_eq!(
        window.part("video", Version(0xab), FIRST, 0),
        Found::Nothing
    );
    // What is said of a segment is the same wherever it is.
    let manifest = window.manifest("").unwrap();
    assert!(manifest.contains("d=\"288000\" r=\"399\""), "{manifest}");
    assert!(text(&window).contains("#EXT-X-PROGRAM-DATE-TIME:2023-11-14T22:13:20.123Z\n"));
    assert_eq!(window.first_file(), Some(1));
}

#[test]
fn what_is_stored_is_bounded_and_leaves_the_window() {
    let mut window = storing_window(3600, 10_000, 50_000);
    let mut next = 1;
    for _ in 0..300 {
        segment(&mut window, 500);
        store_all(&mut window, &mut next);
        assert!(window.stored_bytes() <= 50_000, "{}", window.stored_bytes());
    }
    assert!(window.stored_bytes() > 45_000, "{}", window.stored_bytes());
    // Half of what is kept is listed, as in memory: of each rendition 50 are stored.
    let listed = count(&text(&window), "#EXTINF");
    assert!((28..=34).contains(&listed), "{listed}");
    assert!(window.first_file().unwrap() > 400);
    // By time, too.
    let mut short = storing_window(60, 10_000, 1 << 20);
    for _ in 0..300 {
        segment(&mut short, 500);
        store_all(&mut short, &mut next);
    }
    let listed = count(&text(&short), "#EXTINF");
    assert!((18..=20).contains(&listed), "{listed}");
}

#[test]
fn what_cannot_be_stored_makes_the_window_shorter() {
    let mut window = storing_window(3600, 10_000, 1 << 20);
    let mut next = 1;
    for _ in 0..100 {
        segment(&mut window, 500);
        store_all(&mut window, &mut next);
    }
    let before = window.stored_bytes();
    assert!(window.could_not_store());
    assert!((before * 7 / 10..before * 8 / 10).contains(&window.stored_bytes()));
    assert!(text(&window).contains("#EXT-X-MEDIA-SEQUENCE:102"));
    // Nothing can be stored any more: what is beyond memory goes, and what was stored before it.
    for _ in 0..100 {
        segment(&mut window, 500);
        window.could_not_store();
        assert!(window.bytes() <= 10_000, "{}", window.bytes());
    }
    assert_eq!((window.stored_bytes(), window.first_file()), (0, None));
    assert!(count(&text(&window), "#EXTINF") >= 4);
    assert!(!window.could_not_store());
}

#[test]
fn one_large_segment_is_kept_whatever_the_bound() {
    let mut window = window(12, 1000);
    (0..5).for_each(|_| segment(&mut window, 5000));
    assert_eq!(count(&text(&window), "#EXTINF"), 2);
    assert!(window.bytes() <= 4 * 5000);
}

#[test]
fn reloads_wait_for_what_is_next_and_no_further() {
    let mut window = window(60, 1 << 20);
    segment(&mut window, 100);
    part(&mut window, 0, 10);
    let has = |window: &Window, query: &str| {
        let reload = Reload::parse(Some(query))?;
        window.has("video", &reload)
    };
    for (query, expected) in [
        ("", Ok(true)),
        ("_HLS_msn=1000", Ok(true)),
        ("_HLS_msn=1000&_HLS_part=99", Ok(true)),
        ("_HLS_msn=1001&_HLS_part=0", Ok(true)),
        ("_HLS_msn=1001&_HLS_part=1", Ok(false)),
        ("_HLS_msn=1001", Ok(false)),
        ("a=1&_HLS_msn=1003&_HLS_other=2", Ok(false)),
        ("_HLS_msn=1004", Err(BadReload::TooFar)),
        ("_HLS_msn=18446744073709551616", Err(BadReload::TooFar)),
        ("_HLS_part=1", Err(BadReload::PartAlone)),
        ("_HLS_msn=-1", Err(BadReload::Number)),
        ("_HLS_msn=", Err(BadReload::Number)),
    ] {
        assert_eq!(has(&window, query), expected, "{query}");
    }
    let part_of = |window: &Window, number, part| window.part("video", Version(0xab), number, part);
    assert_eq!(part_of(&window, 1001, 1), Found::Awaited);
    assert_eq!(part_of(&window, 1001, 2), Found::Nothing);
    assert_eq!(part_of(&window, u64::MAX, u64::MAX), Found::Nothing);
    part(&mut window, 0, 10);
    assert!(matches!(part_of(&window, 1001, 1), Found::Bytes(_)));
    window.apply(Output::SegmentEnd { rendition: 0 });
    assert_eq!(
        part_of(&window, 1001, 2),
        Found::Nothing,
        "the segment has ended"
    );
    assert_eq!(part_of(&window, 1002, 0), Found::Awaited);
    // A part beyond the last of a segment is the first of the next.
    let beyond = ["_HLS_msn=1001&_HLS_part=2", "_HLS_msn=1001&_HLS_part=7"];
    assert_eq!(has(&window, "_HLS_msn=1001&_HLS_part=1"), Ok(true));
    assert_eq!(beyond.map(|query| has(&window, query)), [Ok(false); 2]);
    part(&mut window, 0, 10);
    assert_eq!(beyond.map(|query| has(&window, query)), [Ok(true); 2]);
}

#[test]
fn a_delta_leaves_out_what_is_old_and_nothing_else() {
    let mut window = window(120, 1 << 20);
    (0..20).for_each(|_| segment(&mut window, 100));
    let (whole, delta) = (
        text(&window),
        window.media_playlist("video", "", true).unwrap(),
    );
    // Within 24 s: eight segments.
    assert!(
        delta.contains("#EXT-X-SKIP:SKIPPED-SEGMENTS=12\n"),
        "{delta}"
    );
    assert_eq!(count(&whole, "#EXTINF"), 20);
    assert_eq!(count(&delta, "#EXTINF"), 8);
    assert!(whole.ends_with(delta.split_once("#EXTINF").unwrap().1));
}

#[test]
fn breaks_are_counted_when_they_have_gone() {
    let mut window = window(12, 1 << 20);
    segment(&mut window, 100);
    window.apply(Output::Break {
        rendition: 0,
        breaks: 1,
    });
    describe(&mut window, 0, 2);
    segment(&mut window, 100);
    let before = text(&window);
    assert!(
        before.contains("#EXT-X-DISCONTINUITY-SEQUENCE:1000\n"),
        "{before}"
    );
    let expected = "#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"00000000000000ac/init.mp4\"\n";
    assert!(before.contains(expected), "{before}");
    assert_eq!(
        window.init("video", Version(0xab)).as_deref(),
        Some(&[1][..])
    );
    assert_eq!(
        window.init("video", Version(0xac)).as_deref(),
        Some(&[2][..])
    );
    assert_eq!(window.segment("video", Version(0xab), 1001), Found::Nothing);
    (0..20).for_each(|_| segment(&mut window, 100));
    let after = text(&window);
    assert!(
        after.contains("#EXT-X-DISCONTINUITY-SEQUENCE:1001\n"),
        "{after}"
    );
    assert!(!after.contains("#EXT-X-DISCONTINUITY\n"), "{after}");
}

/// A segment of one rendition, behind so many breaks.
pub(super) fn segment_behind(window: &mut Window, rendition: usize, breaks: u64) {
    if breaks > 0 {
        window.apply(Output::Break { rendition, breaks });
    }
    (0..10).for_each(|_| part(window, rendition, 10));
    window.apply(Output::SegmentEnd { rendition });
}

/// The number of discontinuities in front of a playlist's first segment, and of its last one.
fn discontinuities(window: &Window, rendition: &str) -> (u64, u64) {
    let text = window.media_playlist(rendition, "", false).unwrap();
    let tag = "#EXT-X-DISCONTINUITY-SEQUENCE:";
    let gone = text.lines().find_map(|line| line.strip_prefix(tag));
    let gone: u64 = gone.unwrap().parse().unwrap();
    let of = |text: &str| gone + text.matches("#EXT-X-DISCONTINUITY\n").count() as u64;
    (of(text.split_once("#EXTINF").unwrap().0), of(&text))
}

#[test]
fn pictures_and_sound_count_the_same_breaks() {
    let mut window = window(60, 1 << 20);
    segment_behind(&mut window, 0, 0);
    segment_behind(&mut window, 0, 1);
    // Sound that has come late begins in the second period.
    segment_behind(&mut window, 1, 1);
    assert_eq!(discontinuities(&window, "video"), (FIRST, FIRST + 1));
    assert_eq!(discontinuities(&window, "audio"), (FIRST + 1, FIRST + 1));
    // And is not there in the third.
    (0..2).for_each(|_| segment_behind(&mut window, 0, 1));
    segment_behind(&mut window, 1, 2);
    assert_eq!(discontinuities(&window, "video"), (FIRST, FIRST + 3));
    assert_eq!(discontinuities(&window, "audio"), (FIRST + 1, FIRST + 3));
    let manifest = window.manifest("").unwrap();
    assert!(manifest.contains("start=\"PT0.000S\""), "{manifest}");
}

/// Those who play pictures go on, and find it once a segment of it is whole.
#[test]
fn sound_that_comes_late_takes_no_playlist_away() {
    let mut window = window(60, 1 << 20);
    let named = |window: &Window| {
        let main = window.main_playlist("", false).unwrap();
        let pictures = window.media_playlist("video", "", false).unwrap();
        let sound = window.media_playlist("audio", "", false);
        let manifest = window.manifest("").unwrap();
        let places = [main.contains("audio"), pictures.contains("../audio/")];
        (places, sound.is_some(), manifest.contains("audio/mp4"))
    };
    (0..2).for_each(|_| segment_behind(&mut window, 0, 0));
    assert!(!window.is_ready());
    // Nor while the third is written.
    part(&mut window, 0, 10);
    assert!(!window.is_ready());
    window.apply(Output::SegmentEnd { rendition: 0 });
    assert_eq!(named(&window), ([false; 2], false, false));
    part(&mut window, 1, 10);
    assert_eq!(named(&window), ([false; 2], false, false));
    window.apply(Output::SegmentEnd { rendition: 1 });
    assert_eq!(named(&window), ([true; 2], true, true));
}

/// Those who come then would wait for it, and see nothing.
#[test]
fn sound_that_has_paused_is_named_once_it_is_back() {
    let mut window = window(60, 1 << 20);
    let is_named = |window: &Window| {
        let main = window.main_playlist("", false).unwrap();
        assert!(main.ends_with("video/index.m3u8\n"), "{main}");
        let places = [
            "audio/index.m3u8",
            ",AUDIO=\"audio1\"",
            "CODECS=\"avc1.42c00c,",
        ];
        let named = places.map(|it| main.contains(it));
        assert!(named == [named[0]; 3], "{main}");
        named[0]
    };
    segment(&mut window, 100);
    // 9.6 s behind, and 12.8 s.
    (0..3).for_each(|_| segment_behind(&mut window, 0, 0));
    assert!(is_named(&window));
    segment_behind(&mut window, 0, 0);
    assert!(!is_named(&window));
    // Who has it already goes on asking for it.
    assert!(window.media_playlist("audio", "", false).is_some());
    part_after(&mut window, 1, 10, 12);
    assert!(is_named(&window));
}

/// Those who come then would see what was shown long ago, and stand still.
#[test]
fn pictures_that_have_paused_are_named_once_they_are_back() {
    let mut window = window(60, 1 << 20);
    let are_named = |window: &Window| {
        let main = window.main_playlist("", false).unwrap();
        let manifest = window.manifest("").unwrap();
        let (_, newest) = manifest.rsplit_once("<Period ").unwrap();
        assert!(main.contains("audio/index.m3u8") && newest.contains("audio/mp4"));
        let named = main.ends_with("\nvideo/index.m3u8\n");
        assert_eq!(named, !main.ends_with("\naudio/index.m3u8\n"), "{main}");
        assert_eq!(named, main.contains(",AUDIO=\"audio1\""), "{main}");
        (named, newest.contains("video/mp4"))
    };
    segment(&mut window, 100);
    // 9.6 s behind, and 12.8 s.
    (0..3).for_each(|_| segment_behind(&mut window, 1, 0));
    assert_eq!(are_named(&window), (true, true));
    segment_behind(&mut window, 1, 0);
    assert_eq!(are_named(&window), (false, false));
    // Who has them already goes on asking for them.
    assert!(window.media_playlist("video", "", false).is_some());
    segment_behind(&mut window, 1, 0);
    (0..2).for_each(|rendition| {
        window.apply(Output::Break {
            rendition,
            breaks: 1,
        });
    });
    part_after(&mut window, 0, 10, 16);
    // The manifest lists no parts, and no period that sound is still to begin.
    assert_eq!(are_named(&window), (true, false));
    window.apply(Output::SegmentEnd { rendition: 0 });
    assert_eq!(are_named(&window), (true, false));
    part(&mut window, 1, 10);
    window.apply(Output::SegmentEnd { rendition: 1 });
    assert_eq!(are_named(&window), (true, true));
}

/// Its first part has a sync sample, and other pictures in front of that.
#[test]
fn a_segment_that_begins_with_other_pictures_is_no_poster() {
    let mut window = window(60, 1 << 20);
    segment(&mut window, 100);
    let is_told = |window: &Window| {
        let manifest = window.manifest("").unwrap();
        manifest.matches("startWithSAP=\"1\"").count()
    };
    assert_eq!(is_told(&window), 2);
    let mut part = window.renditions[0].segments[0].parts[0].clone();
    part.begins_with_sync = false;
    part.starts_unix_ns += 3_200_000_000;
    part.starts_ticks += 32 * i64::from(TIMESCALE) / 10;
    let rendition = 0;
    window.apply(Output::Part { rendition, part });
    window.apply(Output::SegmentEnd { rendition });
    assert_eq!(is_told(&window), 1, "of sound alone");
    assert_eq!(window.poster().unwrap().number, FIRST);
    let newest = ",URI=\"00000000000000ab/1001.0.m4s\",INDEPENDENT=YES\n";
    assert!(text(&window).contains(newest), "{}", text(&window));
}

#[test]
fn a_playlist_begins_behind_more_breaks_than_it_tells() {
    let mut window = window(60, 1 << 20);
    for breaks in [0, BREAKS_TOLD_MAX] {
        (0..2).for_each(|it| segment_behind(&mut window, it, breaks));
    }
    let last = FIRST + BREAKS_TOLD_MAX;
    assert_eq!(discontinuities(&window, "audio"), (FIRST, last));
    (0..=BREAKS_TOLD_MAX).for_each(|_| segment_behind(&mut window, 0, 1));
    segment_behind(&mut window, 1, BREAKS_TOLD_MAX + 1);
    let last = last + BREAKS_TOLD_MAX + 1;
    assert_eq!(discontinuities(&window, "video").1, last);
    assert_eq!(discontinuities(&window, "audio"), (last, last));
    segment_behind(&mut window, 1, 1);
    assert_eq!(discontinuities(&window, "audio"), (last, last + 1));
}

/// As it is by servers that write a text once for all.
#[test]
fn what_urls_end_in_may_be_put_in_later() {
    let mut window = window(60, 1 << 20);
    (0..2).for_each(|it| segment_behind(&mut window, it, 0));
    (0..12).for_each(|_| segment(&mut window, 100));
    let (mark, end) = ("\u{e000}", "?rights=play&expires=9");
    for skips in [false, true] {
        let main = |end| window.main_playlist(end, skips).unwrap();
        let media = |end| window.media_playlist("video", end, skips).unwrap();
        assert_eq!(main(mark).replace(mark, end), main(end));
        assert_eq!(media(mark).replace(mark, end), media(end));
        assert!(main(mark).contains(mark) && media(mark).contains(mark));
    }
    let manifest = |end| window.manifest(end).unwrap();
    let of_xml = end.replace('&', "&amp;");
    assert_eq!(manifest(mark).replace(mark, &of_xml), manifest(end));
    assert!(manifest(mark).contains(mark));
}

proptest! {
    #[test]
    fn what_was_listed_once_stays_or_goes_for_good(
        steps in prop::collection::vec((0..8_u8, 10..4000_usize), 1..300),
        stored_bytes_max in (0..3_u64).prop_map(|it| it * 30_000),
    ) {
        let mut window = storing_window(12 + stored_bytes_max / 100, 20_000, stored_bytes_max);
        let (mut last, mut next) = (0, 1);
        for (step, bytes) in steps {
            match step {
                0 => { window.apply(Output::SegmentEnd { rendition: 0 }); }
                1 => { window.apply(Output::Break { rendition: 0, breaks: 1 }); }
                2 => segment(&mut window, bytes),
                3 => store_all(&mut window, &mut next),
                4 => { window.could_not_store(); }
                _ => part(&mut window, 0, bytes),
            }
            let Some(text) = window.media_playlist("video", "", false) else { continue };
            let tag = "#EXT-X-MEDIA-SEQUENCE:";
            let first = text.lines().find_map(|line| line.strip_prefix(tag)).unwrap();
            let first: u64 = first.parse().unwrap();
            prop_assert!(first >= last);
            last = first;
            // Its sums are those of its segments.
            let (mut bytes, mut stored) = (0, 0);
            for it in window.renditions.iter().flat_map(|it| &it.segments) {
                bytes += it.init_bytes;
                match it.stored {
                    Some(it) => stored += it.bytes,
                    None => bytes += it.bytes,
                }
            }
            prop_assert_eq!((bytes, stored), (window.bytes(), window.stored_bytes()));
        }
    }

    #[test]
    fn no_query_is_too_odd(query in "(_HLS_(msn|part|skip)|=|&|[0-9]{1,25}|YES|\\PC){0,9}") {
        let window = window(12, 1000);
        if let Ok(reload) = Reload::parse(Some(&query)) {
            let _any = window.has("video", &reload);
        }
    }
}
