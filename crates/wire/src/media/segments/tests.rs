//! Where films are cut, and what comes back of their segments.

use std::sync::Arc;

use proptest::prelude::*;

use super::testing::{Told, film, index, pictures, sent, sound};
use super::*;
use crate::media::Scanner;
use crate::media::codec::config::CodecConfig;
use crate::media::codec::dolby_vision::DolbyVision;
use crate::media::codec::testing::hex;
use crate::media::colour::Colour;
use crate::media::sampled::{SampledIndex, SampledTrack};
use crate::media::samples::column::look_ups;
use crate::media::ts::clock::{PCR_HZ, PCR_WRAP};
use crate::media::ts::synth;

/// What is told of each sample: when it is decoded and shown, in ns from the start of the file, how
/// long it is, whether it is a sync sample, and its bytes.
type Seen = (i64, i64, u32, bool, Vec<u8>);

fn seen(track: &SampledTrack, file: &[u8]) -> Vec<Seen> {
    let bytes = |offset: u64, bytes: u32| {
        let start = usize::try_from(offset).unwrap();
        file[start..start + bytes as usize].to_vec()
    };
    let walk = track.samples.walk(0..track.samples.len());
    walk.map(|(it, _)| {
        (
            track.time_ns(it.decode_ticks),
            track.time_ns(it.decode_ticks + it.composition_ticks),
            it.bytes,
            it.is_sync,
            bytes(it.offset, it.bytes),
        )
    })
    .collect()
}

/// The segments of a rendition as one file, after its initialization segment.
fn joined(rendition: &Rendition, file: &[u8]) -> Vec<u8> {
    let mut out = rendition.init_segment().unwrap();
    for number in 1..=rendition.segments() as u64 {
        let segment = rendition.segment(number).unwrap();
        let bytes = sent(&segment, file);
        assert_eq!(bytes.len() as u64, segment.bytes());
        out.extend(bytes);
    }
    out
}

/// A file whose bytes differ from place to place.
fn file_bytes(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7919).to_be_bytes()[6]).collect()
}

fn told() -> impl Strategy<Value = Vec<Told>> {
    let one = (
        1..3000_u32,
        0..3000_i64,
        1..90_u32,
        prop::bool::weighted(0.1),
    );
    prop::collection::vec(one, 1..300)
}

proptest! {
    /// Our own reader of fragmented MP4 finds in the segments what the track has.
    #[test]
    fn segments_hold_all_samples_of_the_track(
        told in told(), gap in 0..3_u64, shift in -5000..5000_i64, is_sound: bool,
    ) {
        let mut place = 0;
        let mut next = 0;
        let places: Vec<_> = told.iter().map(|it| {
            place = next + if it.2 % 3 == 0 { gap } else { 0 };
            next = place + u64::from(it.2);
            place
        }).collect();
        let file = file_bytes(usize::try_from(next).unwrap());
        let mut track = match is_sound {
            true => sound(&told, |at| places[at]),
            false => pictures(&told, |at| places[at]),
        };
        track.shift_ticks = shift;
        let before = seen(&track, &file);
        let cut = Segmented::new(&index(vec![track]), true, |_| None).unwrap();
        let rendition = &cut.renditions[0];
        check_picture_rates(rendition);
        let all = joined(rendition, &file);
        let mut scanner = Scanner::default();
        scanner.read(&all).unwrap();
        let read = scanner.finish().unwrap();
        let mut after = seen(&read.as_sampled().unwrap().sampled[0], &all);
        // A reader takes the beginning of the first fragment for that of the file, and a picture
        // that is shown before it.
        let late = match is_sound || before[0].1 >= 0 {
            true => before[0].0.max(0) - after[0].0.max(0),
            false => before[0].1,
        };
        for it in &mut after {
            (it.0, it.1) = (it.0 + late, it.1 + late);
        }
        for (after, before) in after.iter().zip(&before) {
            prop_assert!((after.0 - before.0).abs() < 2, "{} {}", after.0, before.0);
            prop_assert!((after.1 - before.1).abs() < 2, "{} {}", after.1, before.1);
            // A decoder can start at any frame of sound.
            let is_sync = before.3 || is_sound;
            prop_assert_eq!((after.2, after.3, &after.4), (before.2, is_sync, &before.4));
        }
        prop_assert_eq!(after.len(), before.len());
    }

    #[test]
    fn a_part_of_a_segment_is_that_part_of_its_bytes(
        head in 0..50_usize, pieces in prop::collection::vec((0..20_u64, 1..30_u64), 0..9),
        (from, bytes) in (0..400_u64, 0..400_u64),
    ) {
        let file = file_bytes(1000);
        let mut at = 0;
        let pieces = pieces.into_iter().map(|(gap, bytes)| {
            at += gap + bytes;
            at - bytes..at
        }).collect();
        let segment = Segment { head: vec![1; head], pieces };
        let whole = sent(&segment, &file);
        let (head, pieces) = segment.part(from..from + bytes);
        let part = sent(&Segment { head: head.to_vec(), pieces: pieces.clone() }, &file);
        let at = |at: u64| usize::try_from(at).unwrap().min(whole.len());
        prop_assert_eq!(&part, &whole[at(from)..at(from + bytes)]);
        prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
    }
}

/// That they are those of the pictures as they are sent, and cost nothing to ask for.
fn check_picture_rates(rendition: &Rendition) {
    let pictures = rendition.pictures();
    let sizes = pictures.iter().map(|picture| {
        let segment = rendition.picture(picture.number).unwrap();
        let lasts_ns = ns(picture.lasts_ticks, rendition.timescale);
        (segment.bytes(), lasts_ns)
    });
    let sizes: Vec<_> = sizes.collect();
    let expected = (!sizes.is_empty()).then(|| Rates::of(&sizes));
    let before = look_ups();
    assert_eq!(rendition.picture_rates(), expected);
    assert_eq!(look_ups(), before, "no sample is looked at");
}

#[test]
fn all_tracks_are_cut_with_the_pictures() {
    let film = film(40, 50);
    let names: Vec<_> = film.renditions.iter().map(|it| &it.name[..]).collect();
    assert_eq!(names, ["video", "audio", "audio-2"]);
    let starts = |name: &str| -> Vec<u64> {
        let rendition = film.rendition(name).unwrap();
        rendition
            .times()
            .map(|(start, _)| ns(start, rendition.timescale) / 1_000_000)
            .collect()
    };
    assert_eq!(
        starts("video"),
        [0, 6000, 12_000, 18_000, 24_000, 30_000, 36_000]
    );
    for name in ["audio", "audio-2"] {
        let frame_ms = 22;
        for (sound, picture) in starts(name).iter().zip(starts("video")) {
            assert!(
                (picture..picture + frame_ms).contains(sound),
                "{sound} {picture}"
            );
        }
        assert_eq!(starts(name).len(), 7);
    }
    let rendition = film.rendition("video").unwrap();
    assert_eq!(rendition.duration_ns(), 40_000_000_000);
    assert_eq!(
        (rendition.frame_rate, rendition.is_independent),
        (Some(25.0), true)
    );
    assert!(film.is_complete);
}

#[test]
fn rates_are_those_of_what_is_sent() {
    let film = film(40, 50);
    for rendition in &film.renditions {
        let sizes = (1..=7).map(|it| rendition.segment(it).unwrap().bytes());
        let lasts = rendition
            .times()
            .map(|(_, lasts)| ns(lasts, rendition.timescale));
        let sizes: Vec<_> = sizes.zip(lasts).collect();
        assert_eq!(rendition.rates, Rates::of(&sizes), "{}", rendition.name);
    }
}

#[test]
fn there_are_segments_from_1_to_the_last() {
    let film = film(40, 50);
    let rendition = &film.renditions[0];
    for number in [0, 8, 1 << 31, 1 << 32, u64::MAX] {
        assert_eq!(rendition.segment(number), None, "{number}");
        assert_eq!(rendition.weight(number), 0, "{number}");
        assert_eq!(
            rendition.picture(number + 20 * u64::from(number == 8)),
            None,
            "{number}"
        );
    }
    assert_eq!(rendition.weight(1), 150);
    assert_eq!(rendition.weight(7), 100);
}

#[test]
fn one_sync_sample_makes_one_segment() {
    let film = film(600, usize::MAX);
    let times: Vec<_> = film.renditions[0].times().collect();
    assert_eq!(times, [(0, 600_000)]);
    assert_eq!(film.renditions[0].longest_ns(), 600_000_000_000);
    // Sound goes with it, and behind it as ever.
    assert_eq!(film.renditions[1].segments(), 100);
}

#[test]
fn a_segment_has_no_more_samples_than_it_may() {
    let max = SEGMENT_SAMPLES_MAX;
    for (samples, expected) in [(max, vec![max]), (max + 1, vec![max, 1])] {
        let told: Vec<Told> = (0..samples).map(|at| (1, 0, 1, at == 0)).collect();
        let track = pictures(&told, |at| at as u64);
        let film = Segmented::new(&index(vec![track]), true, |_| None).unwrap();
        let rendition = &film.renditions[0];
        let weights = (1..=rendition.segments() as u64).map(|it| rendition.weight(it));
        assert!(weights.eq(expected.iter().map(|&it: &usize| it as u64)));
        assert_eq!(rendition.is_independent, expected.len() == 1);
    }
}

#[test]
fn a_film_of_200_hours_has_no_more_segments_than_any() {
    let hours = 200;
    let told: Vec<Told> = vec![(1000, 0, 10, true); 3600 * hours];
    let track = pictures(&told, |at| at as u64 * 10);
    let film = Segmented::new(&index(vec![track]), true, |_| None).unwrap();
    let segments = film.renditions[0].segments();
    assert!(
        (SEGMENTS_MAX / 2..=SEGMENTS_MAX + SEGMENTS_MAX / 16).contains(&segments),
        "{segments}"
    );
    assert!(film.renditions[0].pictures().len() <= SEGMENTS_MAX + SEGMENTS_MAX / 16);
}

#[test]
fn sound_that_begins_late_makes_a_longer_segment() {
    let told: Vec<Told> = (0..1000).map(|at| (40, 0, 1000, at % 50 == 0)).collect();
    let video = pictures(&told, |at| at as u64 * 1000);
    let mut audio = sound(&vec![(1024, 0, 300, true); 900], |at| {
        2_000_000 + at as u64 * 300
    });
    audio.shift_ticks = 48_000 * 20;
    let film = Segmented::new(&index(vec![video, audio]), true, |_| None).unwrap();
    let rendition = &film.renditions[1];
    let (start, lasts) = rendition.times().next().unwrap();
    assert_eq!(start, 48_000 * 20);
    assert_eq!(rendition.longest_ns() / 1_000_000_000, 24);
    assert!(lasts < 48_000 * 5);
}

#[test]
fn what_grows_has_no_segment_that_may_become_longer() {
    let told: Vec<Told> = (0..1000).map(|at| (40, 0, 1000, at % 50 == 0)).collect();
    let cut = |count: usize| {
        let track = pictures(&told[..count], |at| at as u64 * 1000);
        let tracks = [track];
        let of = SampledIndex::new("Matroska", tracks, Vec::new());
        Segmented::new(&Index::of(of.unwrap()), false, |_| None)
    };
    assert!(cut(140).is_err(), "nothing is certain yet");
    let (before, after) = (cut(400).unwrap(), cut(1000).unwrap());
    assert!(!before.is_complete);
    let times = |film: &Segmented| film.renditions[0].times().collect::<Vec<_>>();
    assert_eq!(times(&before).len(), 2);
    assert_eq!(times(&after)[..2], times(&before));
    for number in 1..=2 {
        let segments = [&before, &after].map(|it| it.renditions[0].segment(number).unwrap());
        assert_eq!(segments[0], segments[1]);
    }
    assert_eq!(before.renditions[0].segment(3), None);
}

/// Behind the last picture that it can be cut at, too: the next one may be anywhere.
#[test]
fn sound_of_what_grows_keeps_its_segments() {
    let seconds = 60;
    let pictures_told: Vec<Told> = (0..25 * seconds)
        .map(|at| (40, 0, 1000, at % 250 == 0))
        .collect();
    let sound_told: Vec<Told> = vec![(1024, 0, 300, true); 48_000 * seconds / 1024];
    let listed = |known: usize, is_whole: bool| -> Option<Vec<Vec<Segment>>> {
        let video = pictures(&pictures_told[..pictures_told.len() * known / 120], |at| {
            at as u64 * 20_000
        });
        let audio = sound(&sound_told[..sound_told.len() * known / 120], |at| {
            10_000 + at as u64 * 1000
        });
        let of = SampledIndex::new("Matroska", [video, audio], Vec::new());
        let film = Segmented::new(&Index::of(of.unwrap()), is_whole, |_| None).ok()?;
        let segments = |of: &Rendition| -> Vec<Segment> {
            let all = 1..=of.segments() as u64;
            all.map(|number| of.segment(number).unwrap()).collect()
        };
        Some(film.renditions.iter().map(segments).collect())
    };
    let mut before = vec![Vec::new(); 2];
    // Half a second more each time.
    let steps = (1..=120).map(|known| (known, false));
    for (known, is_whole) in steps.chain([(120, true)]) {
        let Some(now) = listed(known, is_whole) else {
            continue;
        };
        for (before, now) in before.iter().zip(&now) {
            assert!(now.starts_with(before), "at {known}");
        }
        before = now;
    }
    assert_eq!(before.iter().map(Vec::len).collect::<Vec<_>>(), [6, 7]);
}

/// Though it begins later than at 0.
#[test]
fn what_has_no_segment_yet_lasts_no_time() {
    let told: Vec<Told> = (0..400).map(|at| (40, 0, 1000, at % 50 == 0)).collect();
    let video = pictures(&told, |at| at as u64 * 1000);
    let mut audio = sound(&[(1024, 0, 300, true); 10], |at| {
        2_000_000 + at as u64 * 300
    });
    audio.shift_ticks = 4800;
    let of = SampledIndex::new("Matroska", [video, audio], Vec::new());
    let film = Segmented::new(&Index::of(of.unwrap()), false, |_| None).unwrap();
    let [video, audio] = &film.renditions[..] else {
        panic!("pictures and sound");
    };
    assert_eq!((audio.segments(), audio.duration_ns()), (0, 0));
    assert_eq!(film.duration_ns(), video.duration_ns());
}

#[test]
fn tracks_without_segments_are_told_with_reasons() {
    let told: Vec<Told> = vec![(40, 0, 1000, true); 10];
    let place = |at: usize| at as u64 * 1000;
    let mut stripped = pictures(&told, place);
    stripped.prefix = [0].into();
    let mut unknown = sound(&told, place);
    unknown.config = None;
    let tracks = vec![pictures(&told, place), pictures(&told, place), unknown];
    let film = Segmented::new(&index(tracks), true, |_| None).unwrap();
    assert_eq!(film.renditions.len(), 1);
    let reasons: Vec<_> = film.left_out.iter().map(|it| &it.reason[..]).collect();
    let expected = [
        "another track of pictures goes first",
        "the file has no configuration for a decoder",
    ];
    assert_eq!(reasons, expected);
    let error = Segmented::new(&index(vec![stripped]), true, |_| None).unwrap_err();
    let error = error.to_string();
    assert!(
        error.ends_with("the start of each of its frames is not in the file"),
        "{error}"
    );
}

#[test]
fn a_configuration_is_made_of_the_first_frame() {
    let told: Vec<Told> = vec![(40, 0, 1000, true); 10];
    let mut track = pictures(&told, |at| 77 + at as u64 * 1000);
    track.config = None;
    let frame = [0x82, 0x49, 0x83, 0x42, 0x40, 0x13, 0xf0, 0x0b, 0x30];
    let read = |part: Range<u64>| (part == (77..109)).then(|| frame.to_vec());
    let film = Segmented::new(&index(vec![track]), true, read).unwrap();
    assert_eq!(film.renditions[0].codec.as_deref(), Some("vp09.00.11.08"));
}

/// A decoder's configuration tells nothing of what only Matroska tells of VP9.
#[test]
fn what_a_container_tells_of_colours_is_told_on() {
    let told: Vec<Told> = vec![(40, 0, 1000, true); 10];
    let mut track = pictures(&told, |at| at as u64 * 1000);
    let config = CodecConfig::Vp9(None);
    track.codec = config.codec().unwrap();
    track.config = Some(Arc::new(config));
    let frame = [0x92, 0x49, 0x83, 0x42, 0x50, 0x09, 0xf8, 0x05, 0x9b, 0x03];
    let range = |transfer| {
        let mut track = track.clone();
        track.facts.colour = Some(Colour {
            primaries: 9,
            transfer,
            matrix: 9,
            is_full_range: false,
        });
        let film = Segmented::new(&index(vec![track]), true, |_| Some(frame.to_vec())).unwrap();
        let init = film.renditions[0].init_segment().unwrap();
        let at = init.windows(4).position(|it| it == b"vpcC").unwrap();
        assert_eq!(init[at + 8..at + 14], [2, 11, 0xa2, 9, transfer, 9]);
        film.renditions[0].video_range
    };
    assert_eq!(range(16), Some(VideoRange::Pq));
    assert_eq!(range(18), Some(VideoRange::Hlg));
    assert_eq!(range(2), Some(VideoRange::Sdr));
}

/// The sample entry of what is shown wider than it is coded, read by our own reader: AV1 and VP9,
/// whose configurations tell no size; and a transfer function that the configuration does not.
#[test]
fn sample_entries_tell_the_coded_size_and_colours() {
    let told: Vec<Told> = vec![(40, 0, 1000, true); 10];
    let untold = Colour {
        primaries: 9,
        transfer: 18,
        matrix: 9,
        is_full_range: true,
    };
    for (transfer, range) in [
        (2, VideoRange::Hlg),
        (16, VideoRange::Pq),
        (1, VideoRange::Sdr),
    ] {
        let vpcc = [1, 0, 0, 0, 2, 10, 0xa2, 9, transfer, 9, 0, 0];
        let av1c = [0x81, 0x04, 0x0c, 0];
        let is_untold = transfer == 2;
        let configs = [
            Some(CodecConfig::Vp9(Some(vpcc.into()))),
            is_untold.then(|| CodecConfig::Av1(vec![av1c.into()])),
        ];
        for config in configs.into_iter().flatten() {
            let mut track = pictures(&told, |at| at as u64 * 1000);
            track.codec = config.codec().unwrap();
            track.config = Some(Arc::new(config));
            track.facts.dimensions = Some((1024, 576));
            track.facts.coded = Some((720, 576));
            track.facts.colour = Some(untold);
            let film = Segmented::new(&index(vec![track]), true, |_| None).unwrap();
            let rendition = &film.renditions[0];
            assert_eq!(rendition.dimensions, Some((1024, 576)));
            assert_eq!(rendition.video_range, Some(range));
            let all = joined(rendition, &file_bytes(10_000));
            let pasp: Vec<u8> = [b"pasp", &(1024 * 576_u32).to_be_bytes()[..]].concat();
            let at = all.windows(8).position(|it| it == pasp).unwrap();
            assert_eq!(all[at + 8..at + 12], (576 * 720_u32).to_be_bytes());
            let mut scanner = Scanner::default();
            scanner.read(&all).unwrap();
            let read = scanner.finish().unwrap();
            let facts = &read.as_sampled().unwrap().sampled[0].facts;
            assert_eq!(facts.dimensions, Some((1024, 576)));
            assert_eq!(facts.coded, Some((720, 576)));
            assert_eq!(facts.colour, Some(untold).filter(|_| is_untold));
        }
    }
}

/// Profile 5: no other decoder knows its colours.
#[test]
fn dolby_vision_that_stands_alone_is_told_as_such() {
    let told: Vec<Told> = vec![(40, 0, 1000, true); 10];
    let mut track = pictures(&told, |at| at as u64 * 1000);
    let hvcc = hex("0101600000009000000000005df000fcfdf8f800000f00");
    let config = CodecConfig::H265(vec![hvcc.into()]);
    track.codec = config.codec().unwrap();
    track.config = Some(Arc::new(config));
    let dolby_vision = DolbyVision::read(&[1, 0, 5 << 1, 6 << 3 | 5, 0]);
    track.facts.dolby_vision = dolby_vision;
    let film = Segmented::new(&index(vec![track]), true, |_| None).unwrap();
    let rendition = &film.renditions[0];
    assert_eq!(rendition.codec.as_deref(), Some("dvhe.05.06"));
    assert_eq!(rendition.video_range, Some(VideoRange::Pq));
    let sample = [&996_u32.to_be_bytes()[..], &[0x26; 996]].concat();
    let all = joined(rendition, &sample.repeat(10));
    assert!(all.windows(4).any(|it| it == b"dvhe"));
    let mut scanner = Scanner::default();
    scanner.read(&all).unwrap();
    let read = scanner.finish().unwrap();
    let facts = &read.as_sampled().unwrap().sampled[0].facts;
    assert_eq!(facts.dolby_vision, dolby_vision);
}

fn ts(stream: &[u8], is_whole: bool) -> Result<(Segmented, Index), SegmentsError> {
    let mut scanner = Scanner::default();
    scanner.read(stream).unwrap();
    let index = scanner.finish().unwrap();
    let read = |part: Range<u64>| {
        let at = |place: u64| usize::try_from(place).unwrap();
        Some(stream[at(part.start)..at(part.end)].to_vec())
    };
    Ok((Segmented::new(&index, is_whole, read)?, index))
}

/// Pictures every two seconds, each of which a decoder can start at.
fn stream() -> Vec<u8> {
    synth::pictures(&[(10, 2000); 20], 27_000)
}

#[test]
fn segments_of_a_stream_are_its_packets_behind_its_tables() {
    let stream = stream();
    let (film, _) = ts(&stream, true).unwrap();
    let rendition = &film.renditions[0];
    assert_eq!(
        (rendition.format(), &rendition.name[..]),
        (Format::Ts, "stream")
    );
    let mut joined = Vec::new();
    let count = rendition.segments() as u64;
    assert!(count > 3, "{count}");
    for number in 1..=count {
        let segment = rendition.segment(number).unwrap();
        assert_eq!(segment.head.len() % TS_BYTES, 0);
        assert_eq!(
            segment.head[..4],
            [0x47, 0x40, 0, 0x10],
            "the program association table"
        );
        joined.extend(sent(
            &Segment {
                head: Vec::new(),
                ..segment.clone()
            },
            &stream,
        ));
        // A reader finds the program in each.
        let mut scanner = Scanner::default();
        scanner.read(&sent(&segment, &stream)).unwrap();
        let index = scanner.finish().unwrap();
        let programs = &index.as_ts().unwrap().facts.streams.programs;
        assert_eq!(programs[0].streams.len(), 1);
    }
    assert_eq!(joined, stream);
    assert_eq!(rendition.segment(count + 1), None);
    assert_eq!(rendition.init_segment(), None);
}

/// As receivers record one program of several: their table names the network and all programs, of
/// which one has a map here.
fn one_of_several() -> Vec<u8> {
    let video = synth::MapEntry {
        pid: 0x100,
        stream_type: 0x1b,
        descriptors: &[],
    };
    let named = [(0, 0x10), (7, 0x700), (1, 0x1000)];
    let mut writer = synth::Writer::new();
    for seconds in (0..40).step_by(2) {
        let start = synth::pes((seconds * 1000 + 700) * 90, &[0, 0, 1, 0x65]);
        writer.pat(&named);
        writer.pmt(0x1000, 1, video.pid, &[video]);
        for number in 0..10 {
            if number == 5 {
                writer.pat(&named);
            }
            let is_first = number == 0;
            writer.packet(synth::Packet {
                pid: video.pid,
                unit_start: is_first,
                random_access: is_first,
                pcr: is_first.then_some(seconds * PCR_HZ),
                payload: if is_first { &start } else { &[0x55; 184] },
                ..synth::Packet::default()
            });
        }
    }
    writer.finish()
}

/// hls.js, Shaka and mux.js take the first program of each table that comes, Chromium refuses a
/// table of several.
#[test]
fn segments_name_their_own_program_alone() {
    let stream = one_of_several();
    let mut own = synth::Writer::new();
    own.pat(&[(1, 0x1000)]);
    let own = own.finish();
    let is_table = |packet: &&[u8]| packet[1..3] == [0x40, 0];
    let others = stream.chunks(TS_BYTES).filter(|it| !is_table(it));
    let expected: Vec<u8> = others.flatten().copied().collect();
    let at = |place: u64| usize::try_from(place).unwrap();
    for file in [synth::to_m2ts(&stream, 1000), stream] {
        let (film, _) = ts(&file, true).unwrap();
        let rendition = &film.renditions[0];
        let mut joined = Vec::new();
        for number in 1..=rendition.segments() as u64 {
            let segment = rendition.segment(number).unwrap();
            assert_eq!(segment.head[..TS_BYTES], own);
            joined.extend_from_slice(&sent(&segment, &file)[segment.head.len()..]);
        }
        assert!(joined == expected, "all but its tables");
        let pictures = rendition.pictures();
        assert_eq!(pictures.len(), 20);
        for part in pictures.iter().filter_map(|it| it.part) {
            let bytes = sent(&rendition.segment(part.segment).unwrap(), &file);
            let found = &bytes[at(part.offset)..at(part.offset + part.bytes)];
            assert_eq!(found.len(), 10 * TS_BYTES);
            assert!(found.chunks(TS_BYTES).all(|it| it[1] & 0x1f == 1));
        }
    }
}

/// Pictures every two seconds, in front of each of which there are these NAL units.
fn stream_with(stream_type: u8, nals: &[&[u8]]) -> Vec<u8> {
    let video = synth::MapEntry {
        pid: 0x100,
        stream_type,
        descriptors: &[],
    };
    let coded = |nal: &&[u8]| [&[0, 0, 1][..], *nal].concat();
    let unit: Vec<u8> = nals.iter().flat_map(coded).collect();
    let mut writer = synth::Writer::new();
    writer.pat(&[(1, 0x1000)]);
    writer.pmt(0x1000, 1, video.pid, &[video]);
    for seconds in (0..20).step_by(2) {
        let start = synth::pes((seconds * 1000 + 700) * 90, &unit);
        for number in 0..10 {
            let is_first = number == 0;
            writer.packet(synth::Packet {
                pid: video.pid,
                unit_start: is_first,
                random_access: is_first,
                pcr: is_first.then_some(seconds * PCR_HZ),
                payload: if is_first { &start } else { &[0x55; 184] },
                ..synth::Packet::default()
            });
        }
    }
    writer.finish()
}

/// Parameter sets of H.264 and of H.265 that libx264 and libx265 have made.
#[test]
fn parameter_sets_of_a_stream_tell_its_dynamic_range() {
    let pq = "676e000ca6cd941419f9f04b50910094000003000400000300c83c50a658";
    let hlg = "42010102200000030090000003000003003ca00a080b9f6d96662a491bb5e20d424482410000030\
               001000003001908";
    let sdr = "6764001facd9405005bb011000000300100000030320f1831960";
    let avc = |sps: &str| stream_with(0x1b, &[&hex(sps), b"\x68\xeb", b"\x65\x88"]);
    let hevc = |sps: &str| {
        let vps = b"\x40\x01\x0c";
        stream_with(0x24, &[vps, &hex(sps), b"\x44\x01\xc1", b"\x26\x01\xaf"])
    };
    for (stream, range) in [
        (avc(pq), Some(VideoRange::Pq)),
        (hevc(hlg), Some(VideoRange::Hlg)),
        (avc(sdr), None),
        (stream(), None),
    ] {
        for file in [
            synth::to_m2ts(&stream, 1000),
            synth::with_parity(&stream),
            stream,
        ] {
            let (film, _) = ts(&file, true).unwrap();
            assert_eq!(film.renditions[0].video_range, range);
        }
    }
}

#[test]
fn pictures_of_a_stream_are_parts_of_its_segments() {
    let stream = stream();
    let (film, _) = ts(&stream, true).unwrap();
    let rendition = &film.renditions[0];
    let pictures = rendition.pictures();
    assert_eq!(pictures.len(), 20);
    let lasts: i64 = pictures.iter().map(|it| it.lasts_ticks).sum();
    assert_eq!(lasts.unsigned_abs(), film.duration_ns());
    let init_bytes = rendition.init_bytes().unwrap();
    for (number, picture) in (0..).zip(&pictures) {
        let part = picture.part.expect("no segment of its own");
        let segment = rendition.segment(part.segment).unwrap();
        let bytes = sent(&segment, &stream);
        assert_eq!(init_bytes, segment.head.len() as u64);
        let at = |offset: u64| usize::try_from(offset).unwrap();
        let found = &bytes[at(part.offset)..at(part.offset + part.bytes)];
        // Behind the tables there is nothing but pictures of ten packets.
        let place = (2 + number * 10) * TS_BYTES;
        assert_eq!(found, &stream[place..place + 10 * TS_BYTES]);
        assert_eq!(rendition.picture(picture.number), None);
    }
    assert!(rendition.picture_rates().is_some());
    // What may become longer is not listed.
    let (film, _) = ts(&stream, false).unwrap();
    let rendition = &film.renditions[0];
    let listed = rendition.segments() as u64;
    let last = rendition.pictures().last().and_then(|it| it.part);
    assert_eq!(last.map(|it| it.segment), Some(listed));
}

const TS_BYTES: usize = crate::media::TS_PACKET_BYTES;

/// M2TS has four bytes in front of each packet, a Reed-Solomon code 16 behind each.
#[test]
fn segments_leave_out_what_lies_between_packets() {
    let stream = stream();
    let (plain, _) = ts(&stream, true).unwrap();
    for file in [synth::to_m2ts(&stream, 1000), synth::with_parity(&stream)] {
        let (film, _) = ts(&file, true).unwrap();
        let (of, plain) = (&film.renditions[0], &plain.renditions[0]);
        assert_eq!((of.segments(), of.rates), (plain.segments(), plain.rates));
        assert_eq!(of.pictures(), plain.pictures());
        for number in 1..=of.segments() as u64 {
            let (segment, expected) = (of.segment(number), plain.segment(number));
            let (segment, expected) = (segment.unwrap(), expected.unwrap());
            assert_eq!(segment.pieces.len() as u64, of.weight(number), "{number}");
            assert!(
                sent(&segment, &file) == sent(&expected, &stream),
                "{number}"
            );
        }
    }
}

#[test]
fn more_packets_apart_than_a_segment_may_have_are_refused() {
    let of = |packets: usize| {
        // Packets of no stream behind the last picture.
        let mut stream = synth::pictures(&[(10, 2000)], 27_000);
        let null = [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; TS_BYTES - 4]].concat();
        let missing = packets - stream.len() / TS_BYTES;
        stream.extend(null.repeat(missing));
        stream
    };
    let most = synth::to_m2ts(&of(SEGMENT_SAMPLES_MAX), 1000);
    assert!(ts(&most, true).is_ok());
    let stream = of(SEGMENT_SAMPLES_MAX + 1);
    assert!(ts(&stream, true).is_ok(), "one range is enough");
    let beyond = synth::to_m2ts(&stream, 1000);
    assert_eq!(ts(&beyond, true).unwrap_err(), SegmentsError::Stride);
}

#[test]
fn streams_without_tables_have_no_segments() {
    // Its first two packets are its tables.
    let bare = &stream()[2 * TS_BYTES..];
    assert_eq!(ts(bare, true).unwrap_err(), SegmentsError::NoProgram);
}

const PACKET_BYTES: u64 = TS_BYTES as u64;

/// An hour later by all of its clocks.
fn an_hour_later(mut stream: Vec<u8>) -> Vec<u8> {
    synth::shift_clock(&mut stream, |_| 3600 * PCR_HZ);
    stream
}

/// Of each segment the packets of the file.
fn packets_of(rendition: &Rendition) -> Vec<Range<u64>> {
    let all = (1..=rendition.segments() as u64).map(|it| rendition.segment(it).unwrap());
    let range = |it: Segment| match &it.pieces[..] {
        [piece] => piece.start / PACKET_BYTES..piece.end / PACKET_BYTES,
        pieces => panic!("{pieces:?}"),
    };
    all.map(range).collect()
}

/// The packets at which segments begin that have another time base than those before.
fn changes_of(rendition: &Rendition) -> Vec<u64> {
    let packets = packets_of(rendition);
    let place = |number: &u64| packets[usize::try_from(*number).unwrap() - 1].start;
    rendition.breaks().iter().map(place).collect()
}

#[test]
fn a_segment_begins_where_the_time_base_changes() {
    // Twenty seconds each: tables, and pictures of ten packets.
    let pictures = || synth::pictures(&[(10, 2000); 10], 27_000);
    let file = [
        an_hour_later(pictures()),
        pictures(),
        an_hour_later(pictures()),
    ]
    .concat();
    let (film, _) = ts(&file, true).unwrap();
    let rendition = &film.renditions[0];
    let packets = packets_of(rendition);
    assert_eq!(
        changes_of(rendition),
        [102, 204],
        "the tables of what follows"
    );
    assert!(rendition.is_independent);
    assert!(packets.windows(2).all(|pair| pair[0].end == pair[1].start));
    for number in 1..=packets.len() as u64 {
        let (_, index) = ts(&sent(&rendition.segment(number).unwrap(), &file), true).unwrap();
        let of = index.as_ts().unwrap();
        assert!(of.clock.breaks().is_empty(), "{number}");
    }
    // The first picture of each is listed, however near to the one before.
    let pictures = rendition.pictures();
    for first in rendition.breaks() {
        assert!(pictures.iter().any(|it| it.part.unwrap().segment == *first));
    }
    let (plain, _) = ts(&synth::pictures(&[(10, 2000); 10], 27_000), true).unwrap();
    assert!(plain.renditions[0].breaks().is_empty());
}

#[test]
fn the_time_base_changes_where_no_decoder_can_start() {
    let mut file = synth::constant_rate(2000, 7 * PCR_HZ, 270_000);
    synth::shift_clock(&mut file, |packet| u64::from(packet > 545) * 3600 * PCR_HZ);
    let (film, _) = ts(&file, true).unwrap();
    let rendition = &film.renditions[0];
    assert_eq!(changes_of(rendition), [552], "its first reference");
    assert!(!rendition.is_independent);
}

/// Over the wrapping of its clocks as anywhere.
#[test]
fn a_wrap_is_no_change_of_the_time_base() {
    let mut file = stream();
    synth::shift_clock(&mut file, |_| PCR_WRAP - 20 * PCR_HZ);
    let (film, _) = ts(&file, true).unwrap();
    assert!(film.renditions[0].breaks().is_empty());
    assert_eq!(
        packets_of(&film.renditions[0]),
        packets_of(&ts(&stream(), true).unwrap().0.renditions[0])
    );
}

#[test]
fn a_file_that_grows_keeps_its_segments_over_a_break() {
    let pictures = || synth::pictures(&[(10, 2000); 10], 27_000);
    let file = [an_hour_later(pictures()), pictures()].concat();
    let (whole, _) = ts(&file, true).unwrap();
    let whole = &whole.renditions[0];
    let all = packets_of(whole);
    let mut scanner = Scanner::default();
    let mut told = 0;
    for packet in file.chunks(TS_BYTES) {
        scanner.push(packet).unwrap();
        let Ok(index) = scanner.settled() else {
            continue;
        };
        let Ok(film) = Segmented::new(&index, false, |_| None) else {
            continue;
        };
        let rendition = &film.renditions[0];
        let packets = packets_of(rendition);
        assert_eq!(packets, all[..packets.len()]);
        let is_listed = |it: &&u64| **it <= packets.len() as u64;
        let breaks = rendition.breaks().iter().filter(is_listed);
        assert!(breaks.eq(whole.breaks().iter().filter(is_listed)));
        assert!(packets.len() >= told);
        told = packets.len();
    }
    assert!(told as u64 > whole.breaks()[0], "{told}");
}

/// Two that ffmpeg made, the later one first.
#[test]
fn films_behind_one_another_have_a_break_between_them() {
    let made = |offset: &str| {
        let pictures = "-v error -f lavfi -i testsrc2=size=160x90:rate=25 -f lavfi \
                        -i sine=sample_rate=48000 -t 8 -c:v libx264 -preset ultrafast -bf 2 -g 50 \
                        -pix_fmt yuv420p -c:a aac -ac 2";
        let mut ffmpeg = std::process::Command::new("ffmpeg");
        ffmpeg.arg("-nostdin").args(pictures.split_whitespace());
        ffmpeg.args(["-output_ts_offset", offset, "-f", "mpegts", "-"]);
        let made = ffmpeg.output().expect("it is installed");
        assert!(
            made.status.success(),
            "{:?}",
            String::from_utf8(made.stderr)
        );
        made.stdout
    };
    let (evening, morning) = (made("3600"), made("0"));
    let file = [&evening[..], &morning].concat();
    let (film, _) = ts(&file, true).unwrap();
    let rendition = &film.renditions[0];
    let [begins] = changes_of(rendition)[..] else {
        panic!("{:?}", rendition.breaks());
    };
    // ffmpeg writes a table of services in front of the others.
    let between = (evening.len() / TS_BYTES) as u64;
    assert!(
        (between..between + 2).contains(&begins),
        "{begins}, not {between}"
    );
    assert!(rendition.is_independent);
}
