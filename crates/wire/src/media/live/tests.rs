//! Live media cut into segments and parts.

use std::ops::Range;

use proptest::prelude::*;

use super::description::describe;
use super::units::Units;
use super::*;
use crate::media::codec::testing::hex;
use crate::media::colour::VideoRange;
use crate::media::track::{Medium, Track};
use crate::rtp::Header;

/// Of baseline profile, 320x180, as x264 writes them.
const SPS: &[u8] = &[
    0x67, 0x42, 0xc0, 0x0c, 0xd9, 0x01, 0x41, 0x9f, 0x9f, 0x01, 0x10, 0x00, 0x00, 0x03, 0x00, 0x10,
    0x00, 0x00, 0x03, 0x03, 0x20, 0xf1, 0x42, 0xa4, 0x80,
];
const PPS: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x20];
const PPS_OF_ANOTHER: &[u8] = &[0x68, 0xcb, 0x83, 0xcb, 0x40];

fn pictures() -> Track {
    Track {
        medium: Medium::Video,
        payload_type: 96,
        encoding: "H264".into(),
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some("packetization-mode=1".to_owned()),
    }
}

fn sound() -> Track {
    let parameters = "streamtype=5; mode=AAC-hbr; sizelength=13; indexlength=3; config=1190";
    Track {
        medium: Medium::Audio,
        payload_type: 97,
        encoding: "mpeg4-generic".into(),
        clock_hz: 48_000,
        channels: Some(2),
        format_parameters: Some(parameters.to_owned()),
    }
}

fn packet(sequence: u16, timestamp: u32, marker: bool, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        marker,
        payload_type: 96,
        sequence,
        timestamp,
        ssrc: 1,
    };
    [&header.to_bytes()[..], payload].concat()
}

fn stap(units: &[&[u8]]) -> Vec<u8> {
    let mut out = vec![0x78];
    for unit in units {
        out.extend(u16::try_from(unit.len()).unwrap().to_be_bytes());
        out.extend_from_slice(unit);
    }
    out
}

fn ticks(all: u64) -> u32 {
    u32::try_from(all % (1 << 32)).unwrap()
}

/// The timestamp of a picture, and when it comes.
fn line_of(picture: u64) -> (u32, u64) {
    // Timestamps wrap on the way.
    let first = u32::MAX.wrapping_sub(90_000 * 3);
    let timestamp = first.wrapping_add(ticks(picture * 3600));
    (timestamp, 1_000_000_000 + picture * 40_000_000)
}

/// Gives a cutter pictures of 40 ms and sound, by their numbers from 0 on.
struct Sender {
    cutter: LiveCutter,
    sequence: [u16; 2],
    pps: &'static [u8],
    out: Vec<Output>,
    frame: u64,
    /// By how many seconds the clocks of pictures and sound were set.
    set_s: [i64; 2],
}

impl Sender {
    fn new(tracks: &[Track]) -> Self {
        Self {
            cutter: LiveCutter::new(tracks, 0).unwrap(),
            sequence: [0; 2],
            pps: PPS,
            out: Vec::new(),
            frame: 0,
            set_s: [0; 2],
        }
    }

    /// What is added to timestamps because the clock was set.
    fn set_ticks(&self, track: usize) -> u32 {
        let ticks = self.set_s[track] * [90_000, 48_000][track];
        u32::try_from(ticks.rem_euclid(1 << 32)).unwrap()
    }

    fn number(&mut self, track: usize) -> u16 {
        self.sequence[track] = self.sequence[track].wrapping_add(1);
        self.sequence[track]
    }

    fn picture(&mut self, at: u64, is_sync: bool) {
        let (timestamp, now_ns) = line_of(at);
        self.picture_of(timestamp, now_ns, is_sync);
    }

    fn picture_of(&mut self, timestamp: u32, now_ns: u64, is_sync: bool) {
        let payload = match is_sync {
            true => stap(&[SPS, self.pps, &[0x65, 0x88, 0x84]]),
            false => vec![0x41, 0x9a, 1],
        };
        let timestamp = timestamp.wrapping_add(self.set_ticks(0));
        let packet = packet(self.number(0), timestamp, true, &payload);
        self.cutter.push(0, &packet, now_ns, &mut self.out);
    }

    /// A second of both.
    fn second(&mut self, has_sync: bool, has_sound: bool) {
        for of_second in 0..25 {
            self.picture(self.frame, has_sync && of_second == 0);
            self.frame += 1;
            if has_sound {
                self.sound(self.frame);
            }
        }
    }

    /// The frames of sound that begin while the picture before this one is shown.
    fn sound(&mut self, picture: u64) {
        let now_ns = 1_000_000_000 + picture * 40_000_000;
        self.frames((picture - 1) * 1920 / 1024..picture * 1920 / 1024, now_ns);
    }

    fn frames(&mut self, frames: Range<u64>, now_ns: u64) {
        for frame in frames {
            let payload = [&[0, 16, 0, 5 << 3][..], &[1, 2, 3, 4, 5]].concat();
            let timestamp = ticks(frame * 1024).wrapping_add(self.set_ticks(1));
            let packet = packet(self.number(1), timestamp, true, &payload);
            self.cutter.push(1, &packet, now_ns, &mut self.out);
        }
    }

    /// Of each whole segment of a rendition how long it lasts, in ms, and whether a decoder can
    /// start where it begins.
    fn segments(&self, of: usize) -> Vec<(u64, bool)> {
        let (mut all, mut open) = (Vec::new(), None);
        for output in &self.out {
            match output {
                Output::Part { rendition, part } if *rendition == of => {
                    let (us, _) = open.get_or_insert((0, part.begins_with_sync));
                    *us += part.lasts_us;
                }
                Output::SegmentEnd { rendition } if *rendition == of => {
                    let (us, is_independent): (u64, bool) = open.take().expect("it has parts");
                    all.push(((us + 500) / 1000, is_independent));
                }
                _ => {}
            }
        }
        all
    }

    /// The parts of a rendition.
    fn parts(&self, of: usize) -> impl Iterator<Item = &PartOf> {
        self.out.iter().filter_map(move |output| match output {
            Output::Part { rendition, part } if *rendition == of => Some(part),
            _ => None,
        })
    }

    fn count(&self, is_it: impl Fn(&Output) -> bool) -> usize {
        self.out.iter().filter(|output| is_it(output)).count()
    }

    /// The target duration, in seconds.
    fn target_s(&self) -> u64 {
        let mut told = self.out.iter().filter_map(|output| match output {
            Output::Target(seconds) => Some(*seconds),
            _ => None,
        });
        told.next().unwrap()
    }

    /// Whether none of these segments is too long: the target is compared with what is rounded.
    fn are_within_target(&self, segments: &[(u64, bool)]) -> bool {
        let target_s = self.target_s();
        segments.iter().all(|(ms, _)| (ms + 500) / 1000 <= target_s)
    }
}

#[test]
fn segments_begin_with_sync_samples_in_all_tracks() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    for second in 0..12 {
        sender.second(second % 2 == 0, true);
    }
    assert_eq!(sender.segments(0)[..5], [(2000, true); 5]);
    let sound = sender.segments(1);
    assert!(sound.len() >= 4, "{sound:?}");
    // What came before the first picture is left out.
    assert!(sound[0].0 > 1900 && sound[1..].iter().all(|(ms, _)| ms.abs_diff(2000) < 22));
    let parts = sender.out.iter().filter_map(|output| match output {
        Output::Part { part, .. } => Some(part.lasts_us),
        _ => None,
    });
    assert!(parts.clone().count() > 30 && parts.clone().all(|us| us <= PART_US));
    // Eight pictures.
    assert_eq!(sender.out[0], Output::PartTarget(320_008));
    assert_eq!(sender.count(|it| *it == Output::Target(4)), 1);
    assert_eq!(sender.count(|it| matches!(it, Output::Break { .. })), 0);
}

/// Ticks of a picture, and pictures from one key frame to the next: 4, 5 and 6 seconds as it is
/// called at 29.97 pictures a second, what x264 does at 60, 30 and 24 by itself, whole seconds.
const GOPS: [(u64, u64); 9] = [
    (3003, 120),
    (3003, 150),
    (3003, 180),
    (1500, 250),
    (3000, 250),
    (3750, 250),
    (3600, 100),
    (3600, 250),
    // Of which sound has up to a frame more than that is rounded up.
    (3750, 107),
];

#[test]
fn gops_are_segments_of_tracks_whatever_their_length() {
    for (each, gop) in GOPS {
        let mut sender = Sender::new(&[pictures(), sound()]);
        let frame = |picture: u64| picture * each * 48 / 90 / 1024;
        for at in 0..gop * 20 {
            let now_ns = 1_000_000_000 + at * each * 100_000 / 9;
            sender.picture_of(ticks(at * each), now_ns, at.is_multiple_of(gop));
            sender.frames(frame(at)..frame(at + 1), now_ns);
        }
        let segments = sender.segments(0);
        let expected = ((gop * each + 45) / 90, true);
        assert_eq!(segments, [expected; 19], "{each} {gop}");
        assert!(sender.are_within_target(&segments), "{each} {gop}");
        let sound = sender.segments(1);
        assert!(sound.len() >= 18, "{each} {gop}: {sound:?}");
        let is_whole = |(ms, _): &(u64, bool)| ms.abs_diff(expected.0) < 23;
        assert!(sound.iter().all(is_whole), "{each} {gop}: {sound:?}");
        assert!(sender.are_within_target(&sound), "{each} {gop}: {sound:?}");
    }
}

/// One of five seconds, where two were expected.
#[test]
fn segments_begin_with_sync_samples_again_behind_a_long_gop() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    for second in 0..20 {
        sender.second(
            second == 0 || second == 2 || second >= 7 && second % 2 == 1,
            true,
        );
    }
    let expected = [
        (2000, true),
        (4440, true),
        (560, false),
        (2000, true),
        (2000, true),
    ];
    assert_eq!(sender.segments(0)[..5], expected);
    assert!(sender.are_within_target(&sender.segments(1)));
    assert_eq!(breaks_of(&sender), [0, 0]);
}

/// A camera whose pictures are announced and do not come, or cease to.
#[test]
fn sound_goes_on_without_the_pictures_beside_it() {
    for first in [0, 250] {
        let mut sender = Sender::new(&[pictures(), sound()]);
        (0..first / 25).for_each(|second| sender.second(second % 2 == 0, true));
        (first + 1..=1000).for_each(|picture| sender.sound(picture));
        let expected = vec![(2000, true); if first == 0 { 0 } else { 5 }];
        assert_eq!(sender.segments(0), expected);
        let sound = sender.segments(1);
        assert!(
            sound.len() >= 14 && sender.are_within_target(&sound),
            "{sound:?}"
        );
        assert!(
            sound[sound.len() - 8..]
                .iter()
                .all(|it| *it == (1920, true))
        );
        assert_eq!(breaks_of(&sender), [0, 0]);
        // They come, and both begin anew with a key frame.
        sender.frame = 1000;
        sender.second(false, true);
        (0..6).for_each(|second| sender.second(second % 2 == 0, true));
        assert_eq!(breaks_of(&sender), [1, 1]);
        let segments = sender.segments(0).split_off(expected.len());
        assert_eq!(segments, [(2000, true); 2]);
        assert!(sender.segments(1).last().unwrap().0.abs_diff(2000) < 22);
    }
}

#[test]
fn parts_are_as_long_as_the_target_allows() {
    for rate in 1..=120 {
        let picture_us = 1_000_000_u64.div_ceil(rate);
        let target_us = part_target_us(picture_us);
        assert!(target_us <= PART_US || target_us == picture_us);
        let pictures = (target_us * rate / 1_000_000).max(1);
        let part_us = pictures * 1_000_000 / rate;
        assert!(
            (target_us * 85..=target_us * 100).contains(&(part_us * 100)),
            "{rate}"
        );
    }
    assert_eq!(
        (part_target_us(0), part_target_us(u64::MAX)),
        (PART_US, PICTURE_US_MAX)
    );
}

#[test]
fn a_stream_without_sync_samples_is_cut_all_the_same() {
    let mut sender = Sender::new(&[pictures()]);
    sender.second(true, false);
    for _ in 0..300 {
        sender.second(false, false);
    }
    let segments = sender.segments(0);
    assert!(segments.iter().all(|(ms, _)| *ms <= 12_000), "{segments:?}");
    assert!(segments.len() >= 24 && !segments[1].1, "{segments:?}");
    assert_eq!(sender.count(|it| *it == Output::Target(12)), 1);
}

/// While pictures stall, sound goes on, and its segment is the first that is long.
#[test]
fn no_segment_is_longer_than_the_target_when_pictures_come_late() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    sender.second(true, true);
    (26..=250).for_each(|picture| sender.sound(picture));
    (1..10).for_each(|second| sender.second(second % 2 == 0, false));
    (10..20).for_each(|second| sender.second(second % 2 == 0, true));
    let targets = sender.out.iter().filter_map(|output| match output {
        Output::Target(seconds) => Some(*seconds),
        _ => None,
    });
    let targets: Vec<_> = targets.collect();
    for of in [0, 1] {
        let segments = sender.segments(of);
        assert!(segments.len() >= 4, "{segments:?}");
        let longest_s = segments.iter().map(|(ms, _)| (ms + 500) / 1000).max();
        assert!(
            longest_s <= targets.first().copied(),
            "{segments:?} of {targets:?}"
        );
    }
    assert_eq!(targets, [8]);
}

#[test]
fn another_codec_or_publisher_begins_behind_a_break() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    (0..4).for_each(|second| sender.second(second % 2 == 0, true));
    sender.pps = PPS_OF_ANOTHER;
    (0..4).for_each(|second| sender.second(second % 2 == 0, true));
    let breaks = |sender: &Sender, of| {
        sender.count(|it| matches!(it, Output::Break { rendition, .. } if *rendition == of))
    };
    let inits =
        |sender: &Sender| sender.count(|it| matches!(it, Output::Init { rendition: 0, .. }));
    assert_eq!(
        (breaks(&sender, 0), breaks(&sender, 1), inits(&sender)),
        (1, 1, 2)
    );
    let Sender { cutter, out, .. } = &mut sender;
    cutter.begin(out);
    sender.frame += 25 * 60;
    (0..4).for_each(|second| sender.second(second % 2 == 0, true));
    assert_eq!((breaks(&sender, 0), breaks(&sender, 1)), (2, 2));
}

/// NAL units with their lengths.
fn with_lengths(units: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for unit in units {
        out.extend(u32::try_from(unit.len()).unwrap().to_be_bytes());
        out.extend_from_slice(unit);
    }
    out
}

/// Players that keep the first initialization segment decode by these.
#[test]
fn sync_samples_have_their_parameter_sets_in_front() {
    let mut sender = Sender::new(&[pictures()]);
    (0..4).for_each(|second| sender.second(second % 2 == 0, false));
    sender.pps = PPS_OF_ANOTHER;
    (0..4).for_each(|second| sender.second(second % 2 == 0, false));
    let has = |part: &&PartOf, sample: &[u8]| {
        let mut places = part.bytes.windows(sample.len());
        places.any(|it| it == sample)
    };
    for pps in [PPS, PPS_OF_ANOTHER] {
        let sample = with_lengths(&[SPS, pps, &[0x65, 0x88, 0x84]]);
        let parts = sender.parts(0).filter(|part| has(part, &sample));
        assert_eq!(parts.count(), 2, "{pps:?}");
    }
    // In the order in which decoders want them.
    let mut units = Units::new(&pictures()).unwrap();
    let mut found = Vec::new();
    let packet = packet(0, 0, true, &stap(&[PPS, SPS, &[0x65, 1]]));
    units.push(&packet, |units, unit| {
        found.push(units.with_sets(unit).data);
    });
    assert_eq!(found, [with_lengths(&[SPS, PPS, &[0x65, 1]])]);
}

/// Breaks of pictures and of sound, of those that were told.
fn breaks_of(sender: &Sender) -> [u64; 2] {
    [0, 1].map(|of| {
        let breaks = sender.out.iter().filter_map(|output| match output {
            Output::Break { rendition, breaks } => Some(*breaks).filter(|_| *rendition == of),
            _ => None,
        });
        breaks.sum()
    })
}

/// A publisher ends, and after a minute one begins that has sound, or has none.
fn publish_anew(sender: &mut Sender, has_sound: bool) {
    let Sender { cutter, out, .. } = sender;
    cutter.begin(out);
    sender.frame += 25 * 60;
    (0..4).for_each(|second| sender.second(second % 2 == 0, has_sound));
}

#[test]
fn sound_that_comes_and_goes_has_the_breaks_of_pictures() {
    let mut late = Sender::new(&[pictures(), sound()]);
    (0..4).for_each(|second| late.second(second % 2 == 0, false));
    publish_anew(&mut late, true);
    assert_eq!(breaks_of(&late), [1, 1]);
    let mut paused = Sender::new(&[pictures(), sound()]);
    (0..4).for_each(|second| paused.second(second % 2 == 0, true));
    publish_anew(&mut paused, false);
    // Another description while there is no sound.
    paused.pps = PPS_OF_ANOTHER;
    (0..4).for_each(|second| paused.second(second % 2 == 0, false));
    assert_eq!(breaks_of(&paused), [2, 0]);
    publish_anew(&mut paused, true);
    assert_eq!(breaks_of(&paused), [3, 3]);
}

/// A microphone that is switched on while the pictures are cut already.
#[test]
fn sound_that_begins_later_has_the_times_of_pictures() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    (0..4).for_each(|second| sender.second(second % 2 == 0, false));
    assert_eq!(sender.parts(1).count(), 0);
    (4..10).for_each(|second| sender.second(second % 2 == 0, true));
    assert_eq!(breaks_of(&sender), [0, 0]);
    // What makes dates of times of the media is the same for both.
    let offsets = [(0, 90_000), (1, 48_000)].map(|(rendition, timescale)| {
        let offsets = sender.parts(rendition).map(|part| {
            let media_us = part.starts_ticks * 1_000_000 / timescale;
            (part.starts_unix_ns / 1000 - media_us + 500).div_euclid(1000)
        });
        let mut offsets: Vec<_> = offsets.collect();
        offsets.dedup();
        offsets
    });
    let are_the_same = offsets[0].len() == 1 && offsets[0] == offsets[1];
    assert!(are_the_same, "{offsets:?}");
    // It came with this picture.
    let first = sender.parts(1).next().unwrap();
    let came_ns = line_of(101).1.cast_signed();
    let late_ns = first.starts_unix_ns - came_ns;
    assert!(late_ns.abs() < 100_000_000, "{late_ns}");
    let sound = sender.segments(1);
    let is_cut_alike = sound[1..].iter().all(|(ms, _)| ms.abs_diff(2000) < 22);
    assert!(sound.len() >= 2 && is_cut_alike, "{sound:?}");
}

/// 50 ppm are 4.3 s a day.
#[test]
fn a_clock_that_runs_away_is_tied_anew() {
    let mut sender = Sender::new(&[pictures()]);
    let mut seconds = |lates_ms: &[u64]| {
        for late_ms in lates_ms {
            let (timestamp, now_ns) = line_of(sender.frame);
            for _ in 0..3 {
                let at_ns = now_ns + late_ms * 1_000_000;
                sender.cutter.line(0, timestamp, at_ns, true);
            }
            sender.second(sender.frame.is_multiple_of(50), false);
        }
        let ends_ns = |part: &PartOf| part.starts_unix_ns + part.lasts_us.cast_signed() * 1000;
        let parts: Vec<_> = sender.parts(0).collect();
        let steps = parts.windows(2);
        let steps = steps.map(|pair| pair[1].starts_unix_ns - ends_ns(pair[0]));
        let steps = steps.map(|ns| (ns + 500_000).div_euclid(1_000_000));
        let steps: Vec<_> = steps.filter(|ms| *ms != 0).collect();
        (steps, breaks_of(&sender)[0])
    };
    // Of arrivals, some are late.
    assert_eq!(seconds(&[0, 0, 0, 0, 3000].repeat(4)), (vec![], 0));
    assert_eq!(seconds(&[0, 400].repeat(10)), (vec![], 0));
    assert_eq!(seconds(&[600; 20]), (vec![600], 1));
    assert_eq!(seconds(&[0; 20]), (vec![600, -600], 2));
}

/// Pictures come late, of an encoder that looks ahead; what is told of the clocks at first are
/// arrivals.
#[test]
fn tracks_that_were_tied_by_arrivals_are_tied_anew_by_reports() {
    for (lates_ms, reported, expected) in [
        ([300, 0], [true, true], [1, 1]),
        ([300, 300], [true, true], [0, 0]),
        ([30, 0], [true, true], [0, 0]),
        // It is not known of both.
        ([300, 0], [true, false], [0, 0]),
    ] {
        let mut sender = Sender::new(&[pictures(), sound()]);
        for second in 0..12 {
            // Sound is told to be of the picture with which it came.
            let lines = [line_of(0), (0, line_of(1).1)];
            for track in [0, 1] {
                let (timestamp, at_ns) = lines[track];
                let is_reported = reported[track] && second >= 4;
                let late_ns = if is_reported {
                    lates_ms[track] * 1_000_000
                } else {
                    0
                };
                let cutter = &mut sender.cutter;
                // One that was told before is not told again.
                let timestamp = timestamp.wrapping_add(u32::from(is_reported));
                cutter.line(track, timestamp, at_ns - late_ns, is_reported);
            }
            sender.second(second % 2 == 0, true);
        }
        assert_eq!(breaks_of(&sender), expected, "{lates_ms:?}");
        if expected == [1, 1] {
            let off_ms = [0, 1].map(|of| dates_off_ms(&sender, of, [299, 100])[1]);
            let are_right = (-301..=-299).contains(&off_ms[0]) && off_ms[1].abs() < 100;
            assert!(are_right, "{off_ms:?}");
        }
    }
}

/// By how many ms the date of the last part of a rendition is off that of a picture's arrival, and
/// of the first part behind the last break.
fn dates_off_ms(sender: &Sender, of: usize, [last, begins]: [u64; 2]) -> [i64; 2] {
    let is_break = |it: &Output| matches!(it, Output::Break { rendition, .. } if *rendition == of);
    let behind = sender.out.iter().rposition(is_break).unwrap_or(0);
    let date = |output: &Output| match output {
        Output::Part { rendition, part } if *rendition == of => Some(part.starts_unix_ns),
        _ => None,
    };
    let dates: Vec<_> = sender.out[behind..].iter().filter_map(date).collect();
    let off_ms = |date: &i64, picture| (date - line_of(picture).1.cast_signed()) / 1_000_000;
    [
        off_ms(dates.last().unwrap(), last),
        off_ms(&dates[0], begins),
    ]
}

/// What was told of a clock is told on until there is something else to say of it.
#[test]
fn a_line_from_before_a_jump_ties_nothing() {
    for jump_s in [-3600, -5, 5, 3600] {
        let mut sender = Sender::new(&[pictures(), sound()]);
        for second in 0..8 {
            let (timestamp, at_ns) = line_of(0);
            sender.cutter.line(0, timestamp, at_ns, true);
            sender.cutter.line(1, 0, at_ns, true);
            if second == 4 {
                // Sound is a picture later, and nothing is missing for that.
                sender.set_s[0] = jump_s;
                sender.picture(100, true);
                sender.sound(101);
                sender.set_s[1] = jump_s;
                for picture in 101..125 {
                    sender.picture(picture, false);
                    sender.sound(picture + 1);
                }
                sender.frame = 125;
            } else {
                sender.second(second % 2 == 0, true);
            }
        }
        assert_eq!(breaks_of(&sender), [1, 1], "{jump_s}");
        for of in [0, 1] {
            let off_ms = dates_off_ms(&sender, of, [199, 100]);
            assert!(
                (-1000..=0).contains(&off_ms[0]) && off_ms[1].abs() < 100,
                "{jump_s} {of}: {off_ms:?}"
            );
        }
    }
}

/// Of pictures that came 300 ms late, and then none for five seconds.
#[test]
fn what_was_told_of_a_clock_holds_over_a_pause() {
    let mut sender = Sender::new(&[pictures()]);
    for second in 0..8 {
        let (timestamp, at_ns) = line_of(0);
        sender.cutter.line(0, timestamp, at_ns - 300_000_000, true);
        sender.frame += if second == 4 { 125 } else { 0 };
        sender.second(second % 2 == 0, false);
    }
    assert_eq!(breaks_of(&sender), [1, 0]);
    let off_ms = dates_off_ms(&sender, 0, [324, 225])[1];
    assert!((-301..=-299).contains(&off_ms), "{off_ms}");
}

/// A microphone that is muted, and switched on again between two key frames.
#[test]
fn sound_that_pauses_takes_no_pictures_away() {
    let mut sender = Sender::new(&[pictures(), sound()]);
    (0..4).for_each(|second| sender.second(second % 2 == 0, true));
    (4..9).for_each(|second| sender.second(second % 2 == 0, false));
    (9..14).for_each(|second| sender.second(second % 2 == 0, true));
    let parts: Vec<_> = sender.parts(0).collect();
    let is_next = |pair: &[&PartOf]| {
        let ends_ns = pair[0].starts_unix_ns + pair[0].lasts_us.cast_signed() * 1000;
        pair[1].starts_unix_ns.abs_diff(ends_ns) < 1_000_000
    };
    assert!(parts.windows(2).all(is_next));
    // Sound is back with the next key frame, and both have a discontinuity there.
    assert_eq!(breaks_of(&sender), [1, 1]);
    for of in [0, 1] {
        let [off_ms, begins_ms] = dates_off_ms(&sender, of, [349, 250]);
        assert!(
            (-1000..=0).contains(&off_ms) && begins_ms.abs() < 100,
            "{of}: {off_ms} {begins_ms}"
        );
    }
}

#[test]
fn a_jump_of_the_clock_is_a_break() {
    let mut sender = Sender::new(&[pictures()]);
    (0..4).for_each(|second| sender.second(second % 2 == 0, false));
    sender.frame += 25 * 3600;
    (0..4).for_each(|second| sender.second(second % 2 == 0, false));
    assert_eq!(sender.count(|it| matches!(it, Output::Break { .. })), 1);
    assert!(sender.segments(0).iter().all(|(ms, _)| *ms <= 4000));
}

/// The times of fragments' first samples (`tfdt`), as they are written.
fn decode_times(out: &[Output]) -> Vec<u64> {
    let parts = out.iter().filter_map(|output| match output {
        Output::Part { part, .. } => Some(&part.bytes),
        _ => None,
    });
    let time = |bytes: &[u8]| {
        let at = bytes.windows(4).position(|it| it == b"tfdt").unwrap() + 4;
        assert_eq!(bytes[at], 1, "of 64 bits");
        u64::from_be_bytes(*bytes[at + 4..].first_chunk().unwrap())
    };
    parts.map(|bytes| time(bytes)).collect()
}

/// A channel is asked for 14 s after its key frame, and all that is kept since comes at once.
#[test]
fn what_came_long_before_it_was_asked_for_has_times_of_its_own() {
    let mut cutter = LiveCutter::new(&[pictures()], 0).unwrap();
    let mut out = Vec::new();
    let now_ns = 20_000_000_000;
    cutter.line(0, 14 * 90_000, now_ns, true);
    for at in 0..400_u16 {
        let payload = match at {
            0 => stap(&[SPS, PPS, &[0x65, 0x88, 0x84]]),
            _ => vec![0x41, 0x9a, 1],
        };
        let packet = packet(at, u32::from(at) * 3600, true, &payload);
        cutter.push(0, &packet, now_ns, &mut out);
    }
    let times = decode_times(&out);
    assert!(times.len() > 30 && times[0] > 0, "{times:?}");
    assert!(times.is_sorted_by(|one, next| one < next), "{times:?}");
    let first = out.iter().find_map(|output| match output {
        Output::Part { part, .. } => Some(part.starts_unix_ns),
        _ => None,
    });
    assert_eq!(first, Some(6_000_000_000), "14 s before now");
}

#[test]
fn units_are_put_together_or_left_out() {
    let mut units = Units::new(&pictures()).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    };
    push(65_535, 0, false, &stap(&[&[9, 0x10], SPS, PPS]));
    push(0, 0, false, &[0x7c, 0x85, 1, 2]);
    push(1, 0, true, &[0x7c, 0x45, 3]);
    // Its middle is missing; the next has no marker and ends with what follows.
    push(2, 10, false, &[0x7c, 0x81, 1]);
    push(4, 10, true, &[0x7c, 0x41, 3]);
    push(5, 20, false, &[0x41, 1]);
    push(6, 30, true, &[0x41, 2]);
    // Out of order, broken, empty.
    push(3, 10, true, &[0x41, 3]);
    push(7, 40, true, &[0x78, 0, 9, 1]);
    push(8, 50, true, &[]);
    // What is reserved is passed over.
    push(9, 60, false, &[0x1e, 9]);
    push(10, 60, true, &[0x41, 3]);
    let unit = |bytes: &[u8]| {
        let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        [&length[..], bytes].concat()
    };
    let expected = [
        (unit(&[0x65, 1, 2, 3]), true),
        (unit(&[0x41, 1]), false),
        (unit(&[0x41, 2]), false),
        (unit(&[0x41, 3]), false),
    ];
    assert_eq!(found, expected);
    assert_eq!((units.sets().len(), units.changes()), (2, 1));
}

/// Some cameras have zeros behind the parameter sets in front of each sync sample.
#[test]
fn zeros_behind_an_aggregate_are_passed_over() {
    for zeros in [1, 2, 5] {
        let mut units = Units::new(&pictures()).unwrap();
        let mut found = Vec::new();
        let sets = [stap(&[SPS, PPS]), vec![0; zeros]].concat();
        for (sequence, payload) in [(0, &sets[..]), (1, &[0x65, 1, 2][..])] {
            let packet = packet(sequence, 0, sequence == 1, payload);
            units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
        }
        assert_eq!(found, [(vec![0, 0, 0, 3, 0x65, 1, 2], true)], "{zeros}");
        assert_eq!(units.sets().len(), 2, "{zeros}");
    }
}

/// All of a sync sample in one unit, as a V380 sends it: fragmented, and alone.
#[test]
fn units_that_are_byte_streams_are_split() {
    let picture: &[u8] = &[0x65, 0x88, 0x84];
    let stream = [SPS, &[0, 0, 0, 1], PPS, &[0, 0, 1], picture].concat();
    let mut units = Units::new(&pictures()).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    };
    push(0, 0, false, &[&[0x7c, 0x87], &stream[1..27]].concat());
    push(1, 0, true, &[&[0x7c, 0x47], &stream[27..]].concat());
    push(2, 10, true, &stream);
    let expected = ([&[0, 0, 0, 3], picture].concat(), true);
    assert_eq!(found, [expected.clone(), expected]);
    assert!(units.sets().iter().map(|it| &**it).eq([SPS, PPS]));
    assert_eq!(units.changes(), 1);

    let mut units = Units::new(&pictures_of("H265")).unwrap();
    let mut found = Vec::new();
    let stream: &[u8] = &[
        64, 1, 7, 0, 0, 1, 66, 1, 7, 0, 0, 1, 68, 1, 7, 0, 0, 1, 38, 1, 7,
    ];
    let packet = packet(0, 0, true, stream);
    units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    assert_eq!(found, [(vec![0, 0, 0, 3, 38, 1, 7], true)]);
    assert_eq!((units.sets().len(), units.changes()), (3, 1));
}

/// A camera that begins again has the SSRC that it had.
#[test]
fn numbers_that_begin_anew_are_a_gap() {
    let mut units = Units::new(&pictures()).unwrap();
    let mut found = Vec::new();
    // One is late by as much as one may be, another by more.
    for sequence in [
        20_000_u16, 20_001, 19_902, 20_002, 19_800, 20_003, 3, 4, 5, 6,
    ] {
        let packet = packet(sequence, sequence.into(), true, &[0x41, 1]);
        units.push(&packet, |_, unit| found.push(unit.timestamp));
    }
    assert_eq!(found, [20_000, 20_001, 20_002, 20_003, 5, 6]);
}

/// Two of another picture come again while one is put together, and behind it.
#[test]
fn packets_that_are_very_late_cost_no_picture() {
    let mut units = Units::new(&pictures()).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push(unit.timestamp));
    };
    push(30_000, 10, false, &[0x7c, 0x81, 1]);
    push(29_700, 0, false, &[0x7c, 0x01, 1]);
    push(30_001, 10, true, &[0x7c, 0x41, 3]);
    push(29_701, 0, true, &[0x7c, 0x41, 3]);
    push(30_002, 20, true, &[0x41, 1]);
    assert_eq!(found, [10, 20]);
}

/// AAC as GStreamer publishes it.
fn latm(parameters: &str) -> Track {
    Track {
        encoding: "MP4A-LATM".into(),
        format_parameters: Some(parameters.to_owned()),
        ..sound()
    }
}

#[test]
fn elements_of_latm_are_put_together() {
    let mut units = Units::new(&latm("cpresent=0;config=40002320adca00")).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push((unit.timestamp, unit.data)));
    };
    push(0, 0, true, &[3, 1, 2, 3]);
    // In two packets.
    let long = [&[255, 45][..], &[7; 300]].concat();
    push(1, 10, false, &long[..200]);
    push(2, 10, true, &long[200..]);
    // Shorter than it says; with data of others behind it.
    push(3, 20, true, &[2, 1]);
    push(4, 30, true, &[1, 8, 0xff]);
    // A packet is missing, which may be the beginning of this one.
    push(6, 40, true, &[1, 9]);
    push(7, 50, true, &[1, 9]);
    let expected = [
        (0, vec![1, 2, 3]),
        (10, vec![7; 300]),
        (30, vec![8]),
        (50, vec![9]),
    ];
    assert_eq!(found, expected);
}

/// As the metadata of Dolby Vision; what a PACI packet carries is left out.
#[test]
fn units_of_unspecified_types_stay_with_their_picture() {
    let mut units = Units::new(&pictures_of("H265")).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    };
    push(0, 0, false, &[49 << 1, 1, 0x80 | 19, 1, 2]);
    push(1, 0, false, &[49 << 1, 1, 0x40 | 19, 3]);
    push(2, 0, true, &[62 << 1, 1, 7]);
    push(3, 10, true, &[50 << 1, 1, 0, 0, 1 << 1, 1, 7]);
    let picture: &[u8] = &[0, 0, 0, 5, 38, 1, 1, 2, 3];
    let metadata: &[u8] = &[0, 0, 0, 3, 124, 1, 7];
    assert_eq!(found, [([picture, metadata].concat(), true)]);
}

/// With spectral band replication the clock may run twice as fast as what is coded.
#[test]
fn frames_of_aac_last_as_long_as_their_configuration_says() {
    for (parameters, ticks) in [
        ("config=1190", 1024),
        ("config=1194", 960),
        ("config=1310", 2048),
        ("config=2B118800", 2048),
        ("config=1310; constantduration=1024", 1024),
        ("config=1", 1024),
    ] {
        let track = Track {
            format_parameters: Some(parameters.to_owned()),
            ..sound()
        };
        let mut units = Units::new(&track).unwrap();
        let mut found = Vec::new();
        // Two access units of a byte.
        let packet = packet(0, 7, true, &[0, 32, 0, 1 << 3, 0, 1 << 3, 1, 2]);
        units.push(&packet, |_, unit| found.push(unit.timestamp));
        assert_eq!(found, [7, 7 + ticks], "{parameters}");
    }
}

/// As libavformat and GStreamer cut them: each packet says how long the whole is, and the last one
/// has the marker (RFC 3640, section 3.2.3).
#[test]
fn aac_frames_in_several_packets_are_put_together() {
    const FRAME_BYTES: u16 = 3000;
    let mut units = Units::new(&sound()).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, size: u16, bytes: &[u8]| {
        let payload = [&[0, 16][..], &(size << 3).to_be_bytes()[..], bytes].concat();
        let packet = packet(sequence, timestamp, marker, &payload);
        units.push(&packet, |_, unit| found.push((unit.timestamp, unit.data)));
    };
    let long = |first: u8| -> Vec<u8> {
        let bytes = (first..250).cycle();
        bytes.take(FRAME_BYTES.into()).collect()
    };
    let (one, other) = (long(0), long(7));
    let [of_one, of_other] = [&one, &other].map(|it| it.chunks(1456).collect::<Vec<_>>());
    assert_eq!(of_one.len(), 3);
    push(65_533, 0, true, 2, &[1, 2]);
    push(65_534, 1024, false, FRAME_BYTES, of_one[0]);
    push(65_535, 1024, false, FRAME_BYTES, of_one[1]);
    push(0, 1024, true, FRAME_BYTES, of_one[2]);
    push(1, 2048, false, FRAME_BYTES, of_other[0]);
    push(2, 2048, false, FRAME_BYTES, of_other[1]);
    push(3, 2048, true, FRAME_BYTES, of_other[2]);
    // The middle is missing, the end, and the beginning.
    push(4, 3072, false, FRAME_BYTES, of_one[0]);
    push(6, 3072, true, FRAME_BYTES, of_one[2]);
    push(7, 4096, false, FRAME_BYTES, of_other[0]);
    push(8, 4096, false, FRAME_BYTES, of_other[1]);
    push(11, 5120, false, FRAME_BYTES, of_one[1]);
    push(12, 5120, true, FRAME_BYTES, of_one[2]);
    push(13, 6144, true, 2, &[3, 4]);
    let expected = [
        (0, vec![1, 2]),
        (1024, one.clone()),
        (2048, other.clone()),
        (6144, vec![3, 4]),
    ];
    assert_eq!(found, expected);
}

/// Of 48 kHz and two channels, in front of two bytes.
const ADTS: &[u8] = &[0xff, 0xf1, 0x4c, 0x80, 0x01, 0x3f, 0xfc];

/// Some leave the length of indexes out, which is 0 then, or headers of ADTS in.
#[test]
fn aac_is_taken_as_cameras_send_it() {
    let track = Track {
        format_parameters: Some("mode=AAC-hbr; sizelength=13; config=1190".to_owned()),
        ..sound()
    };
    let mut units = Units::new(&track).unwrap();
    let mut found = Vec::new();
    // Lengths of 9 and 2, of 13 bits each; of 10, which is not what the header says.
    let two = [&[0, 26, 0x00, 0x48, 0x00, 0x80], ADTS, &[7, 8, 1, 2]].concat();
    let other = [&[0, 13, 0x00, 0x50], ADTS, &[7, 8, 9]].concat();
    for (sequence, payload) in [(0, two), (1, other)] {
        let packet = packet(sequence, 0, true, &payload);
        units.push(&packet, |_, unit| found.push(unit.data));
    }
    let other = [ADTS, &[7, 8, 9]].concat();
    assert_eq!(found, [vec![7, 8], vec![1, 2], other]);
}

/// Pictures by another payload format.
fn pictures_of(encoding: &'static str) -> Track {
    Track {
        encoding: encoding.into(),
        format_parameters: None,
        ..pictures()
    }
}

/// As SVT-AV1 writes it for 320x180, without its size.
const SEQUENCE_HEADER: &[u8] = &[
    0x08, 0x00, 0x00, 0x00, 0x04, 0x3c, 0xfe, 0xcc, 0x02, 0xf8, 0x00, 0x40,
];

/// The beginning of a key frame of VP9, 320x180, and of one that is none.
const VP9_KEY: &[u8] = &[0x82, 0x49, 0x83, 0x42, 0x40, 0x13, 0xf0, 0x0b, 0x30, 7];
const VP9_OTHER: &[u8] = &[0x86, 7];

#[test]
fn temporal_units_of_av1_are_put_together() {
    let mut units = Units::new(&pictures_of("AV1")).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, payload: &[u8]| {
        let packet = packet(sequence, timestamp, marker, payload);
        units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    };
    // A delimiter, a sequence header, and a key frame that goes on in the next packet.
    push(0, 0, false, &[0x78, 1, 0x10, 2, 0x08, 5, 0x30, 0x10, 7]);
    push(1, 0, true, &[0x90, 8]);
    // Two frames, the first of which is shown again; no marker.
    push(2, 10, false, &[0x20, 2, 0x18, 0x80, 0x30, 0x30]);
    // A key frame without a sequence header; its second half is missing, and one is that begins so.
    push(3, 20, true, &[0x10, 0x30, 0x10]);
    push(4, 30, false, &[0x50, 0x30, 0x10]);
    push(6, 30, true, &[0x90, 8]);
    push(7, 40, true, &[0x90, 8]);
    push(8, 50, true, &[0x10, 0x30, 0x30]);
    let expected = [
        (vec![0x0a, 1, 5, 0x32, 3, 0x10, 7, 8], true),
        (vec![0x1a, 1, 0x80, 0x32, 1, 0x30], false),
        (vec![0x32, 1, 0x10], false),
        (vec![0x32, 1, 0x30], false),
    ];
    assert_eq!(found, expected);
    assert_eq!(
        (units.sets(), units.changes()),
        (&[vec![0x0a, 1, 5].into()][..], 1)
    );
}

#[test]
fn frames_of_vp9_are_put_together() {
    let mut units = Units::new(&pictures_of("VP9")).unwrap();
    let mut found = Vec::new();
    let mut push = |sequence, timestamp, marker, head: u8, bytes: &[u8]| {
        let packet = packet(sequence, timestamp, marker, &[&[head], bytes].concat());
        units.push(&packet, |_, unit| found.push((unit.data, unit.is_sync)));
    };
    push(0, 0, false, 0x08, &VP9_KEY[..4]);
    push(1, 0, true, 0x04, &VP9_KEY[4..]);
    push(2, 10, true, 0x4c, VP9_OTHER);
    // Its end is missing; it has no beginning; a second frame at its time.
    push(3, 20, true, 0x48, VP9_OTHER);
    push(4, 30, true, 0x44, VP9_OTHER);
    push(5, 40, false, 0x4c, VP9_OTHER);
    push(6, 40, true, 0x4c, VP9_OTHER);
    // The upper one of two spatial layers is left out.
    push(7, 50, false, 0x6c, &[&[0x00, 1], VP9_OTHER].concat());
    push(8, 50, true, 0x6c, &[&[0x02, 1], VP9_OTHER].concat());
    let expected = [
        (VP9_KEY.to_vec(), true),
        (VP9_OTHER.to_vec(), false),
        (VP9_OTHER.to_vec(), false),
    ];
    assert_eq!(found, expected);
    assert_eq!((units.sets()[0].as_ref(), units.changes()), (VP9_KEY, 1));
}

/// As libx265 writes them of BT.2020 and PQ.
#[test]
fn the_range_of_a_channel_is_that_of_its_parameter_sets() {
    let sets = [
        "40010c01ffff02200000030090000003000003003c959809",
        "42010102200000030090000003000003003ca00a080b9f6d96566924caf016a12201208000000300\
         8000000c84",
        "4401c172b46240",
    ];
    let sets = sets.map(|it| hex(it).into_boxed_slice());
    let told = describe(&pictures_of("H265"), &sets).unwrap().unwrap();
    assert_eq!(told.dimensions, Some((320, 180)));
    assert_eq!(told.video_range, Some(VideoRange::Pq));
    let told = describe(&pictures(), &[SPS, PPS].map(Box::from))
        .unwrap()
        .unwrap();
    assert_eq!(told.video_range, Some(VideoRange::Sdr));
    let told = describe(&sound(), &[]).unwrap().unwrap();
    assert_eq!(told.video_range, None);
}

/// Sequence parameter sets of 720 x 576, made to order, by the shape of a pixel that they tell. Who
/// plays in a browser goes by what is told before the pictures.
#[test]
fn the_shape_of_a_pixel_is_told_of_a_channel() {
    for (sps, shown, pixel) in [
        // 64:45; 12:11; 1:1; nothing; 4000:1, which nobody shows, and 1:4000.
        (
            "6742c01eda02d049bff0040002d008",
            (1024, 576),
            Some((1024, 720)),
        ),
        ("6742c01eda02d049b02008", (785, 576), Some((785, 720))),
        ("6742c01eda02d049b01008", (720, 576), None),
        ("6742c01eda02d04990", (720, 576), None),
        ("6742c01eda02d049bff0fa00001008", (720, 576), None),
        ("6742c01eda02d049bff00010fa0008", (720, 576), None),
    ] {
        let sets = [hex(sps).into_boxed_slice(), PPS.into()];
        let told = describe(&pictures(), &sets).unwrap().unwrap();
        assert_eq!(told.dimensions, Some(shown), "{sps}");
        let at = told.bytes.windows(4).position(|it| it == b"pasp");
        let number = |at: usize| u32::from_be_bytes(*told.bytes[at..].first_chunk().unwrap());
        let found = at.map(|at| (u64::from(number(at + 4)), u64::from(number(at + 8))));
        assert_eq!(found.is_some(), pixel.is_some(), "{sps}");
        // As a ratio.
        if let (Some(found), Some(pixel)) = (found, pixel) {
            assert_eq!(found.0 * pixel.1, found.1 * pixel.0, "{sps}");
        }
    }
    // Of H.265, as libx265 writes them.
    let sets = [
        "40010c01ffff02200000030090000003000003003c959809",
        "42010102200000030090000003000003003ca00a080b9f6d96662a491bb5e20d4244824100000300\
         01000003001908",
        "4401c172b46240",
    ];
    let sets = sets.map(|it| hex(it).into_boxed_slice());
    let told = describe(&pictures_of("H265"), &sets).unwrap().unwrap();
    assert_eq!(told.dimensions, Some((640, 180)));
}

/// What decoders are told of other codecs is read of the stream, and told anew when it changes.
#[test]
fn av1_and_vp9_are_described_by_their_pictures() {
    let av1 = [
        &[0x20, u8::try_from(SEQUENCE_HEADER.len()).unwrap()],
        SEQUENCE_HEADER,
    ]
    .concat();
    let av1 = [&av1[..], &[0x30, 0x10, 7]].concat();
    let vp9 = |width| {
        let mut frame = [&[0x0c], VP9_KEY].concat();
        frame[7] = width;
        frame
    };
    for (encoding, sync, codec, dimensions) in [
        ("AV1", av1, "av01.0.00M.08", (320, 180)),
        ("VP9", vp9(0xf0), "vp09.00.20.08", (320, 180)),
    ] {
        let mut cutter = LiveCutter::new(&[pictures_of(encoding)], 0).unwrap();
        let (mut out, mut sequence) = (Vec::new(), 0);
        let mut give = |cutter: &mut LiveCutter, payload: &[u8]| {
            let packet = packet(sequence, u32::from(sequence) * 3600, true, payload);
            cutter.push(0, &packet, u64::from(sequence) * 40_000_000, &mut out);
            sequence += 1;
        };
        let other: &[u8] = if encoding == "AV1" {
            &[0x10, 0x30, 0x30]
        } else {
            &[0x4c, 0x86]
        };
        for second in 0..8 {
            let changed = vp9(0xe0);
            let is_changed = second >= 4 && encoding == "VP9";
            give(&mut cutter, if is_changed { &changed } else { &sync });
            (0..24).for_each(|_| give(&mut cutter, other));
        }
        let inits = out.iter().filter_map(|output| match output {
            Output::Init { init, .. } => Some((init.codec.clone().unwrap(), init.dimensions)),
            _ => None,
        });
        let inits: Vec<_> = inits.collect();
        assert!(inits[0].0.starts_with(codec), "{inits:?}");
        assert_eq!(inits[0].1, Some(dimensions));
        let breaks = out
            .iter()
            .filter(|it| matches!(it, Output::Break { .. }))
            .count();
        let expected = if encoding == "VP9" { (2, 1) } else { (1, 0) };
        assert_eq!((inits.len(), breaks), expected, "{encoding}: {inits:?}");
        assert!(
            out.iter()
                .filter(|it| matches!(it, Output::SegmentEnd { .. }))
                .count()
                >= 3
        );
    }
}

/// The sample entry and `dOps` have the same channels, or Chromium refuses both.
#[test]
fn opus_of_one_channel_is_told_as_such() {
    for (parameters, channels) in [("sprop-stereo=0", 1), ("sprop-stereo=1", 2)] {
        let track = Track {
            encoding: "opus".into(),
            format_parameters: Some(parameters.to_owned()),
            ..sound()
        };
        let init = describe(&track, &[]).unwrap().unwrap();
        let at = |name: &[u8]| {
            let found = init.bytes.windows(4).position(|it| it == name);
            found.unwrap() + 4
        };
        // Behind the head of a sample entry and eight bytes; behind the version.
        assert_eq!(init.bytes[at(b"Opus") + 17], channels);
        assert_eq!(init.bytes[at(b"dOps") + 1], channels);
        assert_eq!(init.channels, Some(channels));
    }
}

#[test]
fn tracks_that_cannot_be_cut_are_told() {
    let mut other = pictures();
    other.encoding = "JPEG".into();
    let error = LiveCutter::new(&[other.clone()], 0).unwrap_err();
    assert!(error.contains("JPEG"), "{error}");
    let tracks = [other, sound()];
    let cutter = LiveCutter::new(&tracks, 0).unwrap();
    assert_eq!(cutter.renditions()[0].name, "audio");
    let left_out = LiveCutter::left_out(&tracks);
    assert_eq!(left_out, [(0, "JPEG is not made into segments".to_owned())]);
    let transport: Track = crate::rtp::StaticPayload::MP2T.into();
    assert!(LiveCutter::left_out(&[transport]).is_empty());
}

#[test]
fn aac_in_latm_is_cut_or_it_is_told_why_not() {
    for (parameters, expected) in [
        ("cpresent=0;config=40002320adca00", None),
        ("cpresent=0; config=400023203fc0; object=2", None),
        (
            "cpresent=0;config=410023203fc0",
            Some("LATM: several access units in an element"),
        ),
        (
            "config=40002320",
            Some("LATM whose configuration is not in its description"),
        ),
    ] {
        let tracks = [pictures(), latm(parameters)];
        let left_out = LiveCutter::left_out(&tracks).pop();
        let why = left_out.map(|(_, why)| why);
        assert_eq!(why.as_deref(), expected, "{parameters}");
        let renditions = LiveCutter::new(&tracks, 0).unwrap().renditions();
        assert_eq!(renditions.len() == 2, expected.is_none(), "{parameters}");
        if expected.is_none() {
            let told = describe(&tracks[1], &[]).unwrap().unwrap();
            assert_eq!(told.codec.as_deref(), Some("mp4a.40.2"));
            assert_eq!((told.channels, told.timescale), (Some(2), 48_000));
        }
    }
}

/// A packet of a picture's beginning, with its table when it is a start.
fn transport(out: &mut Vec<u8>, at: u64, is_start: bool) {
    transport_of(out, at * 3600, is_start);
}

/// That of a picture at this time.
fn transport_of(out: &mut Vec<u8>, ticks: u64, is_start: bool) {
    use crate::media::ts::psi::in_packets as packets;
    if is_start {
        out.extend(packets(0, ASSOCIATION));
        out.extend(packets(0x1000, MAP));
    }
    let time = ticks % (1 << 33);
    let byte = |shift: u32, mask: u64| u8::try_from(time >> shift & mask).unwrap();
    let stamp = [
        0x21 | byte(30, 7) << 1,
        byte(22, 0xff),
        1 | byte(15, 0x7f) << 1,
        byte(7, 0xff),
        1 | byte(0, 0x7f) << 1,
    ];
    let flags = if is_start { 0x40 } else { 0 };
    let mut packet = vec![0x47, 0x41, 0x00, 0x30, 1, flags];
    packet.extend([0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5]);
    packet.extend(stamp);
    packet.resize(188, 0xff);
    out.extend(packet);
}

const ASSOCIATION: &[u8] = &[
    0x00, 0xb0, 0x0d, 0x00, 0x01, 0xc1, 0x00, 0x00, 0x00, 0x01, 0xf0, 0x00, 0x2a, 0xb1, 0x04, 0xb2,
];
const MAP: &[u8] = &[
    0x02, 0xb0, 0x12, 0x00, 0x01, 0xc1, 0x00, 0x00, 0xe1, 0x00, 0xf0, 0x00, 0x1b, 0xe1, 0x00, 0xf0,
    0x00, 0x15, 0xbd, 0x4d, 0x56,
];

#[test]
fn a_transport_stream_is_cut_where_decoders_can_start() {
    let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
    // Over the wrapping of its times.
    let first = (1 << 33) / 3600 - 100;
    for at in 0..400 {
        let mut packets = Vec::new();
        transport(&mut packets, first + at, at % 75 == 10);
        sender
            .cutter
            .push_transport(&packets, at * 40_000_000, &mut sender.out);
    }
    let segments = sender.segments(0);
    assert_eq!(segments, [(3000, true); 5], "{:?}", sender.out.len());
    let first = sender.out.iter().find_map(|output| match output {
        Output::Part { part, .. } => Some(&part.bytes),
        _ => None,
    });
    assert_eq!(
        first.unwrap()[..5],
        [0x47, 0x40, 0, 0x10, 0],
        "its tables come first"
    );
    // One that goes on without random access points.
    for at in 400..2400 {
        let mut packets = Vec::new();
        transport(&mut packets, first_of(at), false);
        sender
            .cutter
            .push_transport(&packets, at * 40_000_000, &mut sender.out);
    }
    // The last that begins with one waits for another as long as it may.
    let segments = sender.segments(0);
    assert!(segments[6..].iter().all(|(ms, _)| *ms <= 4000));
    assert_eq!(segments[5], (4480, true));
    assert!(segments.len() > 20 && sender.are_within_target(&segments));
}

#[test]
fn gops_are_segments_of_transport_streams_whatever_their_length() {
    for (each, gop) in GOPS {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..gop * 20 {
            let mut packets = Vec::new();
            transport_of(&mut packets, at * each, at.is_multiple_of(gop));
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&packets, at * each * 100_000 / 9, out);
        }
        let segments = sender.segments(0);
        let expected = ((gop * each + 45) / 90, true);
        assert_eq!(segments, [expected; 19], "{each} {gop}");
        assert!(sender.are_within_target(&segments), "{each} {gop}");
    }
}

/// A network that is away for 1.4 s and for 2.8 s, while a key frame passes.
#[test]
fn what_is_lost_makes_no_segment_too_long() {
    for (lost, expected) in [
        (
            190..225,
            &[(4000, true), (3560, true), (4000, false), (440, false)],
        ),
        (
            190..260,
            &[(4000, true), (3560, true), (2840, false), (1600, false)],
        ),
    ] {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in (0..800_u64).filter(|at| !lost.contains(at)) {
            let mut packets = Vec::new();
            transport(&mut packets, at, at.is_multiple_of(100));
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&packets, at * 40_000_000, out);
        }
        let segments = sender.segments(0);
        assert_eq!(segments[..4], *expected);
        assert_eq!(segments[4..], [(4000, true); 4]);
        assert!(sender.are_within_target(&segments));
        assert_eq!(sender.count(|it| matches!(it, Output::Break { .. })), 0);
        // All that came is in them, in its order.
        let ends = sender.parts(0).map(|it| it.starts_ticks + it.ticks);
        let begins = sender.parts(0).skip(1).map(|it| it.starts_ticks);
        assert!(begins.zip(ends).all(|(begins, ends)| begins == ends));
        let whole = sender.parts(0).filter(|it| it.starts_ticks < 28_000_000);
        let units: u32 = whole.map(|it| it.samples).sum();
        assert_eq!(units, 700 - u32::try_from(lost.count()).unwrap());
    }
}

/// The tables of a program with these streams, and the beginnings of units at that time: of which
/// pid, what their bytes say they are, and whether their headers say random access.
fn units(streams: &[(u16, u8)], units: &[(u16, u8, bool)], ticks: u64) -> Vec<u8> {
    use crate::media::ts::synth::{MapEntry, Packet, Writer, pes};
    let entries = streams.iter().map(|&(pid, stream_type)| MapEntry {
        pid,
        stream_type,
        descriptors: &[],
    });
    let entries: Vec<_> = entries.collect();
    let mut writer = Writer::new();
    writer.pat(&[(1, 0x1000)]);
    writer.pmt(0x1000, 1, 0x100, &entries);
    for &(pid, code, random_access) in units {
        writer.packet(Packet {
            pid,
            unit_start: true,
            random_access,
            payload: &pes(ticks, &[0, 0, 1, code]),
            ..Packet::default()
        });
    }
    writer.finish()
}

/// Another publisher, a clock that is set, a splicer.
#[test]
fn an_encoder_without_random_access_may_follow_one_with_it() {
    for (begins, jump) in [(true, 0), (false, 10 * 90_000), (false, 0)] {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..600_u64 {
            let (is_sync, is_other) = (at.is_multiple_of(50), at >= 300);
            let Sender { cutter, out, .. } = &mut sender;
            if begins && at == 300 {
                cutter.begin(out);
            }
            let code = if is_sync { 0x65 } else { 0x41 };
            let unit = (0x100, code, is_sync && !is_other);
            let ticks = at * 3600 + if is_other { jump } else { 0 };
            let packets = units(&[(0x100, 0x1b)], &[unit], ticks);
            cutter.push_transport(&packets, at * 40_000_000, out);
        }
        let segments = sender.segments(0);
        let is_break = begins || jump > 0;
        let breaks = sender.count(|it| matches!(it, Output::Break { .. }));
        assert_eq!(breaks, usize::from(is_break));
        let expected = match is_break {
            true => vec![(2000, true); 11],
            // From 10 s on it is waited for, and then the bytes tell.
            false => [
                &[(2000, true); 5][..],
                &[(4480, true), (1520, false)],
                &[(2000, true); 3],
            ]
            .concat(),
        };
        assert_eq!(segments, expected, "{begins} {jump}");
    }
}

/// Pictures of which none come for 16 s, beside sound.
#[test]
fn times_of_sound_count_while_no_pictures_come() {
    let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
    for at in 0..800_u64 {
        let is_sync = at.is_multiple_of(50);
        let picture = (0x100, if is_sync { 0x65 } else { 0x41 }, is_sync);
        let sound = (0x101, 0, false);
        let both = [picture, sound];
        let first = usize::from((200..600).contains(&at));
        let streams = [(0x100, 0x1b), (0x101, 0x0f)];
        let packets = units(&streams, &both[first..], at * 3600);
        let Sender { cutter, out, .. } = &mut sender;
        cutter.push_transport(&packets, at * 40_000_000, out);
    }
    let expected = [
        &[(2000, true); 4][..],
        // From 10.96 s on.
        &[(1920, true); 6],
        &[(1520, true)],
        &[(2000, true); 3],
    ]
    .concat();
    assert_eq!(sender.segments(0), expected);
    assert_eq!(sender.count(|it| matches!(it, Output::Break { .. })), 2);
}

/// RFC 8216bis, section 4.4.4.3: number, type, and identifiers of tracks.
#[test]
fn another_map_begins_behind_a_break_if_tracks_are_others() {
    let before = [(0x100, 0x1b), (0x101, 0x0f)];
    let cases: [(&[(u16, u8)], usize); 7] = [
        (&before, 0),
        (&[before[1], before[0]], 0),
        (&[(0x100, 0x24), before[1]], 1),
        (&[before[0], (0x101, 0x81)], 1),
        (&[before[0], (0x102, 0x0f)], 1),
        (&[before[0], before[1], (0x102, 0x0f)], 1),
        (&before[..1], 1),
    ];
    for (after, breaks) in cases {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..400_u64 {
            let streams = if at < 200 { &before[..] } else { after };
            let is_hevc = streams.contains(&(0x100, 0x24));
            let code = match (is_hevc, at.is_multiple_of(50)) {
                (false, true) => 0x65,
                (false, false) => 0x41,
                (true, true) => 0x26,
                (true, false) => 0x02,
            };
            let unit = (0x100, code, false);
            let packets = units(streams, &[unit], at * 3600);
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&packets, at * 40_000_000, out);
        }
        let found = sender.count(|it| matches!(it, Output::Break { .. }));
        assert_eq!(found, breaks, "{after:?}");
        assert_eq!(sender.segments(0), [(2000, true); 7], "{after:?}");
    }
}

/// A sender whose clock is slow by 300 ppm, for an hour.
#[test]
fn dates_of_a_transport_stream_follow_the_clock() {
    let mut cutter = LiveCutter::transport(0);
    let (mut out, mut parts) = (Vec::new(), 0);
    let came_ns = |picture: u64| picture * 40_012_000;
    for at in 0..90_000_u64 {
        let mut packets = Vec::new();
        transport(&mut packets, at, at.is_multiple_of(75));
        cutter.push_transport(&packets, came_ns(at), &mut out);
        for output in out.drain(..) {
            assert!(!matches!(output, Output::Break { .. }));
            if let Output::Part { part, .. } = output {
                let expected_ns = came_ns(part.starts_ticks.cast_unsigned() / 40_000);
                let off_ns = part.starts_unix_ns - expected_ns.cast_signed();
                assert!(off_ns.abs() < 100_000_000, "{off_ns} at {at}");
                parts += 1;
            }
        }
    }
    assert!(parts > 1000, "{parts}");
}

/// Nothing marks where: their first bytes tell. Of a codec that nobody here knows, any begins one.
#[test]
fn transport_streams_of_other_pictures_are_cut() {
    use crate::media::ts::synth::{MapEntry, Packet, Writer, pes};
    // MPEG-4 part 2, VC-1, H.265 as private data, H.266.
    let cases: [(u8, &[u8], [u8; 2], u64); 4] = [
        (0x10, b"", [0xb0, 0xb6], 3000),
        (0xea, b"", [0x0f, 0x0d], 3000),
        (0x06, b"\x05\x04HEVC", [0x40, 0x02], 3000),
        (0x33, b"", [0, 0], 1920),
    ];
    for (stream_type, descriptors, [sync, other], expected_ms) in cases {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..400_u64 {
            let mut writer = Writer::new();
            let mut code = other;
            if at.is_multiple_of(75) {
                let entry = MapEntry {
                    pid: 0x100,
                    stream_type,
                    descriptors,
                };
                writer.pat(&[(1, 0x1000)]);
                writer.pmt(0x1000, 1, 0x100, &[entry]);
                code = sync;
            }
            writer.packet(Packet {
                pid: 0x100,
                unit_start: true,
                payload: &pes(at * 3600, &[0, 0, 1, code]),
                ..Packet::default()
            });
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&writer.finish(), at * 40_000_000, out);
        }
        let segments = sender.segments(0);
        let is_right = segments.iter().all(|it| *it == (expected_ms, true));
        assert!(
            is_right && segments.len() >= 5,
            "{stream_type:#x}: {segments:?}"
        );
    }
}

/// The table names the network, a program without a map, and one of sound in front of that with
/// pictures. Segments name the one that is cut.
#[test]
fn one_program_of_several_is_cut() {
    use crate::media::ts::synth::{MapEntry, Packet, Writer, pes};
    let entry = |pid, stream_type| MapEntry {
        pid,
        stream_type,
        descriptors: &[],
    };
    for (own, has_pictures) in [((2, 0x1001), true), ((1, 0x1000), false)] {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..400_u64 {
            let mut writer = Writer::new();
            writer.pat(&[(0, 0x10), (7, 0x700), (1, 0x1000), (2, 0x1001)]);
            writer.pmt(0x1000, 1, 0x101, &[entry(0x101, 0x0f)]);
            if has_pictures {
                writer.pmt(0x1001, 2, 0x102, &[entry(0x102, 0x1b)]);
            }
            let is_sync = at.is_multiple_of(75);
            for pid in [0x101, 0x102] {
                writer.packet(Packet {
                    pid,
                    unit_start: true,
                    random_access: is_sync,
                    payload: &pes(at * 3600, &[0, 0, 1, if is_sync { 0x65 } else { 0x41 }]),
                    ..Packet::default()
                });
            }
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&writer.finish(), at * 40_000_000, out);
        }
        let segments = sender.segments(0);
        let lasts_ms = if has_pictures { 3000 } else { 1920 };
        assert!(segments.iter().all(|it| *it == (lasts_ms, true)));
        assert!(segments.len() >= 4, "{segments:?}");
        let mut table = Writer::new();
        table.pat(&[own]);
        let table = table.finish();
        let parts = sender.parts(0).map(|it| &it.bytes[..]);
        let packets = parts.flat_map(|it| it.chunks(188));
        let tables: Vec<_> = packets.filter(|it| it[1..3] == [0x40, 0]).collect();
        assert!(tables.len() >= segments.len());
        assert!(tables.iter().all(|it| *it == table));
    }
}

/// A multiplex that is taken in front of the map of its last program; of another one none comes.
#[test]
fn of_several_programs_the_first_with_pictures_is_cut() {
    use crate::media::ts::synth::{MapEntry, Packet, Writer, pes};
    let both = [(1, 0x1000), (2, 0x1001)];
    for named in [&both[..], &[(9, 0x900), both[0], both[1]]] {
        let mut sender = Sender::new(&[crate::rtp::StaticPayload::MP2T.into()]);
        for at in 0..200_u64 {
            let mut writer = Writer::new();
            writer.pat(named);
            for (number, map_pid) in both.into_iter().rev() {
                let pid = 0x100 + number;
                let entry = MapEntry {
                    pid,
                    stream_type: 0x1b,
                    descriptors: &[],
                };
                writer.pmt(map_pid, number, pid, &[entry]);
                writer.packet(Packet {
                    pid,
                    unit_start: true,
                    random_access: true,
                    payload: &pes(at * 3600, &[0, 0, 1, 0x65]),
                    ..Packet::default()
                });
            }
            let Sender { cutter, out, .. } = &mut sender;
            cutter.push_transport(&writer.finish(), at * 40_000_000, out);
        }
        let mut table = Writer::new();
        table.pat(&both[..1]);
        let table = table.finish();
        let mut parts = sender.parts(0).peekable();
        assert!(parts.peek().is_some(), "{named:?}");
        assert!(parts.all(|it| it.bytes[1..3] != [0x40, 0] || it.bytes[..188] == table));
        assert!(sender.segments(0).len() >= 2, "{named:?}");
    }
}

fn first_of(at: u64) -> u64 {
    (1 << 33) / 3600 - 100 + at
}

proptest! {
    #[test]
    fn no_packets_are_too_odd(
        packets in prop::collection::vec(
            (0..3_usize, any::<u16>(), any::<u32>(), any::<bool>(),
             prop::collection::vec(any::<u8>(), 0..40), 0..5_u64),
            0..200,
        ),
    ) {
        let mut h265 = pictures();
        h265.encoding = "H265".into();
        let mut opus = sound();
        opus.encoding = "opus".into();
        let others = [pictures_of("AV1"), pictures_of("VP9")].map(|it| [it, sound()]);
        for tracks in [[pictures(), sound()], [h265, opus]].into_iter().chain(others) {
            let mut cutter = LiveCutter::new(&tracks, i64::MAX).unwrap();
            let (mut out, mut now_ns) = (Vec::new(), 0);
            for (track, sequence, timestamp, marker, payload, step) in &packets {
                now_ns += step * 100_000_000;
                let packet = packet(sequence % 64, *timestamp, *marker, payload);
                cutter.line(*track, *timestamp, now_ns, *marker);
                cutter.push(*track, &packet, now_ns, &mut out);
            }
            cutter.begin(&mut out);
        }
    }

    #[test]
    fn no_clock_is_too_odd(steps in prop::collection::vec((any::<u32>(), any::<bool>()), 0..200)) {
        let mut cutter = LiveCutter::new(&[pictures()], 0).unwrap();
        let (mut out, mut timestamp) = (Vec::new(), 0_u32);
        for (number, (step, is_far)) in (0_u16..).zip(steps) {
            timestamp = timestamp.wrapping_add(if is_far { step } else { step % 9000 });
            let packet = packet(number, timestamp, true, &stap(&[SPS, PPS, &[0x65, 1]]));
            cutter.push(0, &packet, u64::from(number) * 40_000_000, &mut out);
        }
        for output in out {
            if let Output::Part { part, .. } = output {
                prop_assert!(part.lasts_us <= 4_000_000);
            }
        }
    }

    #[test]
    fn no_transport_packets_are_too_odd(
        heads in prop::collection::vec(
            (prop::collection::vec(any::<u8>(), 4..40), 0..3_u8),
            0..200,
        ),
    ) {
        let mut cutter = LiveCutter::transport(0);
        let mut out = Vec::new();
        for (mut packet, kind) in heads {
            packet.resize(188, 0xff);
            packet[0] = 0x47;
            let mut all = Vec::new();
            transport(&mut all, 1, kind == 0);
            if kind == 1 {
                (packet[1], packet[2]) = (0x41, 0);
            }
            all.extend(packet);
            cutter.push_transport(&all, 0, &mut out);
        }
    }
}
