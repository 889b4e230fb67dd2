//! Plans of samples: what comes back of packets, and where they begin.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::media::packetizer::{Aggregation, CodecError, PacketSink, Packetizer, Part, Unit};
use crate::media::plan::{FilePiece, RtpOrigin};
use crate::media::samples::Sample;
use crate::media::samples::column::look_ups;
use crate::media::{Burst, Plan};
use crate::rtp::{Header, payload};

/// Pictures: parts with their length in two bytes in front. Each packet has bytes of one part
/// behind its number in the unit; parts of sync samples come after a packet of three bytes.
#[derive(Debug)]
struct Pictures;

impl Packetizer for Pictures {
    fn parts(&self) -> Parts {
        Parts::Chained { head_bytes: 2 }
    }

    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let &[a, b] = head else {
            let (bytes, left) = (2, left.into());
            return Err(CodecError::PartBeyondSample { bytes, left });
        };
        let number = u32::from(u16::from_be_bytes([a, b]));
        let bytes = number + 2;
        Ok(Part { number, bytes })
    }

    fn only_part(&self, bytes: u32) -> Option<u32> {
        bytes.checked_sub(2)
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        if unit.is_sync {
            sink.literal(b"set");
            sink.end(false);
        }
        let [sample] = unit.samples else {
            panic!("one")
        };
        let mut at = 0;
        for (number, &part) in sample.parts.iter().enumerate() {
            let end = at + 2 + part as usize;
            at += 2;
            loop {
                let next = end.min(at + payload_bytes_max - 1);
                // What is in the file decides what is in the packet.
                sink.literal(&[unit.byte(0, at.min(end - 1))]);
                sink.sample(0, at..next);
                let is_last = next == end && number + 1 == sample.parts.len();
                sink.end(is_last);
                at = next;
                if at == end {
                    break;
                }
            }
        }
    }
}

/// Sound: up to four frames of any size a packet, a byte in front of each and two of all.
#[derive(Debug)]
struct Sound;

impl Packetizer for Sound {
    fn aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation {
            packet_bytes: 2,
            sample_bytes: 1,
            samples_max: 4,
        })
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        if let [sample] = unit.samples {
            let bytes = sample.bytes as usize;
            for start in (0..bytes).step_by(payload_bytes_max - 3) {
                sink.literal(b"one");
                sink.sample(0, start..bytes.min(start + payload_bytes_max - 3));
                sink.end(true);
            }
            return;
        }
        sink.literal(b"-+");
        for (number, sample) in unit.samples.iter().enumerate() {
            sink.literal(b".");
            sink.sample(number, 0..sample.bytes as usize);
        }
        sink.end(true);
    }
}

/// Sound that counts how often it is packetized.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Packetizer for Counted {
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        self.0.fetch_add(1, Ordering::Relaxed);
        Sound.packetize(unit, payload_bytes_max, sink);
    }
}

fn codec(medium: Medium, packetizer: impl Packetizer + 'static) -> Codec {
    Codec {
        medium,
        payload_type: None,
        encoding: "X-TEST",
        clock_hz: 90_000,
        channels: None,
        format_parameters: None,
        codec_string: "test".to_owned(),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(packetizer),
    }
}

/// A sample of a picture, by the lengths of its parts; or of sound, by its own.
#[derive(Clone, Debug)]
enum Kind {
    Picture(Vec<u16>, bool),
    Frame(u16),
}

/// A file with the samples of both tracks between each other, and what it is made of.
#[derive(Debug)]
struct File {
    bytes: Vec<u8>,
    tracks: Vec<SampledTrack>,
}

const SHIFT: i64 = -300;

fn file(kinds: &[Kind]) -> File {
    let mut bytes = vec![0x55; 10];
    let track = |codec| SampledTrack {
        codec,
        config: None,
        timescale: 1000,
        shift_ticks: SHIFT,
        samples: Samples::default(),
        prefix: Arc::from(&b""[..]),
        carriage: None,
        facts: TrackFacts::default(),
    };
    let pictures = track(codec(Medium::Video, Pictures));
    let mut sound = track(codec(Medium::Audio, Sound));
    // It says once for all what each frame begins with.
    sound.prefix = Arc::from(&b"\x0b\x77"[..]);
    let mut tracks = vec![pictures, sound];
    for (at, kind) in kinds.iter().enumerate() {
        let offset = bytes.len() as u64;
        let (number, is_sync, shown) = match kind {
            Kind::Picture(parts, is_sync) => {
                for (part, &length) in parts.iter().enumerate() {
                    bytes.extend(length.to_be_bytes());
                    bytes.extend((0..length).map(|it| noise(at + part, it.into())));
                }
                (0, *is_sync, 40)
            }
            Kind::Frame(length) => {
                bytes.extend((0..*length).map(|it| noise(at, it.into())));
                (1, true, 0)
            }
        };
        let samples = &mut tracks[number].samples;
        let sample = Sample {
            offset,
            bytes: u32::try_from(bytes.len() as u64 - offset).unwrap(),
            decode_ticks: i64::try_from(samples.len()).unwrap() * [40, 21][number],
            composition_ticks: shown,
            is_sync: is_sync || samples.len() == 0,
            entry: 0,
        };
        samples.push(sample, [40, 21][number]).unwrap();
        if at % 5 == 0 {
            bytes.extend([0x55; 7]);
        }
    }
    File { bytes, tracks }
}

fn noise(a: usize, b: usize) -> u8 {
    u8::try_from((a * 31 + b * 7 + b / 256) % 251).unwrap()
}

fn read_parts(file: &mut File) -> PartReader {
    let mut reader = PartReader::default();
    let length = file.bytes.len() as u64;
    while let Some(wanted) = reader.wants(&file.tracks, length) {
        let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
        // A byte at a time, and once all there is.
        let end = if start % 3 == 0 { end } else { start + 1 };
        let pushed = reader.push(&mut file.tracks, &file.bytes[start..end]);
        pushed.unwrap();
    }
    reader
}

fn kinds() -> impl Strategy<Value = Vec<Kind>> {
    let parts = prop::collection::vec(prop_oneof![0..30_u16, 0..4000_u16], 1..5);
    let picture = (parts, any::<bool>()).prop_map(|(parts, is_sync)| Kind::Picture(parts, is_sync));
    let frame = prop_oneof![1..300_u16, 1..4000_u16].prop_map(Kind::Frame);
    prop::collection::vec(prop_oneof![picture, frame], 1..60)
}

/// All packets of a plan, written in parts, each from no more of the file than it asks for.
fn images(plan: &Plan, file: &[u8], step: u64) -> Vec<(Header, Vec<u8>)> {
    let origin = RtpOrigin {
        sequence: 0xfff0,
        timestamp: 0xffff_0000,
        ssrc: 7,
    };
    let mut packets = Vec::new();
    let mut first = 0;
    while first < plan.rtp_packets() {
        let range = first..(first + step).min(plan.rtp_packets());
        // At once, and without what lies between.
        let is_at_once = step.is_multiple_of(2);
        let gap_bytes_max = if is_at_once { u64::MAX } else { 0 };
        let parts = plan.file_parts(range.clone(), gap_bytes_max);
        let piece = |part: &Range<u64>| {
            let [start, end] = [part.start, part.end].map(|at| usize::try_from(at).unwrap());
            FilePiece {
                offset: part.start,
                bytes: &file[start..end],
            }
        };
        let pieces: Vec<_> = parts.iter().map(piece).collect();
        let all = plan.file_range(range.clone());
        let ends = (parts[0].start, parts[parts.len() - 1].end);
        assert_eq!(ends, (all.start, all.end));
        let mut out = vec![0xaa; usize::try_from(plan.images_bytes(range.clone())).unwrap()];
        plan.write_images(range.clone(), &pieces, origin, &mut out)
            .unwrap();
        let mut rest = &out[..];
        for packet in range.clone() {
            let (image, after) = rest.split_at(plan.image_bytes(packet));
            rest = after;
            let header = Header::read(image).unwrap();
            assert_eq!(header.sequence, origin.sequence_of(packet));
            assert_eq!(header.timestamp, plan.position(packet, origin).timestamp);
            assert!(image.len() <= plan.image_bytes_max());
            packets.push((header, payload(image).unwrap().to_vec()));
        }
        let mut bursts = Vec::new();
        plan.bursts(range.clone(), &mut bursts);
        check_bursts(plan, range, &bursts);
        first += step;
    }
    packets
}

fn check_bursts(plan: &Plan, packets: Range<u64>, bursts: &[Burst]) {
    let (mut next, mut offset) = (packets.start, 0);
    for burst in bursts {
        assert_eq!((burst.first, burst.offset), (next, offset));
        for packet in next..next + u64::from(burst.packets) - 1 {
            assert_eq!(plan.image_bytes(packet), usize::from(burst.segment_bytes));
        }
        next += u64::from(burst.packets);
        offset += burst.bytes;
    }
    assert_eq!((next, offset), (packets.end, plan.images_bytes(packets)));
}

/// 200 pictures of some 14 packets so many ms apart, the first behind a packet of its own: their
/// bytes, the plan, and what its packets carry.
fn pictures_apart(ms: u32) -> (u64, Plan, Vec<(Header, Vec<u8>)>) {
    let sizes = (0..200_u32).map(|at| u16::try_from(17_000 + at * 977 % 6000).unwrap());
    let kinds = sizes.clone().map(|bytes| Kind::Picture(vec![bytes], false));
    let mut file = file(&kinds.collect::<Vec<_>>());
    // They are 40 ticks apart.
    file.tracks[0].timescale = 40_000 / ms;
    file.tracks[0].shift_ticks = 0;
    read_parts(&mut file);
    let index = SampledIndex::new("test", file.tracks.clone(), Vec::new()).unwrap();
    let index = container::Index::of(index);
    let plan = index.plan(0, index.cut(0, 1460).unwrap(), 20_000_000, false);
    let packets = images(&plan, &file.bytes, 64);
    (sizes.map(u64::from).sum(), plan, packets)
}

/// Bytes of padding in all images.
fn padding_bytes(plan: &Plan, packets: &[(Header, Vec<u8>)]) -> u64 {
    let carried = packets.iter().map(|(_, payload)| 12 + payload.len() as u64);
    plan.images_bytes(0..plan.rtp_packets()) - carried.sum::<u64>()
}

#[test]
fn behind_every_other_picture_the_next_fits_in_one_send() {
    let (bytes, plan, packets) = pictures_apart(40);
    // Each packet has a byte in front; the first has three of its own.
    let carried = packets.iter().map(|(_, payload)| payload.len() as u64 - 1);
    assert_eq!(carried.sum::<u64>() - 2, bytes);
    let mut bursts = Vec::new();
    plan.bursts(0..plan.rtp_packets(), &mut bursts);
    assert_eq!(bursts.len(), 201);
    let is_full =
        |burst: &Burst| burst.bytes == u64::from(burst.packets) * u64::from(burst.segment_bytes);
    // What a sender that joins two bursts makes of them.
    let (mut sends, mut at) = (0, 1);
    while at < bursts.len() {
        sends += 1;
        at += if is_full(&bursts[at]) { 2 } else { 1 };
    }
    assert!((100..=110).contains(&sends), "{sends}");
    let padding_bytes = padding_bytes(&plan, &packets);
    let all_bytes = plan.images_bytes(0..plan.rtp_packets());
    assert!(
        padding_bytes > 0 && padding_bytes * 50 <= all_bytes,
        "{padding_bytes}"
    );
}

#[test]
fn pictures_far_apart_are_not_filled() {
    let (_, plan, packets) = pictures_apart(50);
    assert!(padding_bytes(&plan, &packets) > 0);
    let (_, plan, packets) = pictures_apart(51);
    assert_eq!(padding_bytes(&plan, &packets), 0);
}

proptest! {
    #[test]
    fn packets_bring_samples_back_in_order(
        kinds in kinds(), step in 1..200_u64, bytes_max in 128..1500_usize,
    ) {
        let mut file = file(&kinds);
        read_parts(&mut file);
        let tracks = file.tracks.clone();
        let index = SampledIndex::new("test", tracks, Vec::new()).unwrap();
        let index = container::Index::of(index);
        for track in 0..2 {
            let cut = index.cut(track, bytes_max).unwrap();
            let plan = index.plan(track, cut, 20_000_000, false);
            let packets = images(&plan, &file.bytes, step);
            let expected: Vec<u8> = match track {
                0 => kinds.iter().enumerate().flat_map(pictures_of).collect(),
                _ => kinds.iter().enumerate().flat_map(frames_of).collect(),
            };
            let found: Vec<u8> = packets.iter().flat_map(|(_, payload)| match track {
                0 if payload == b"set" => &[][..],
                0 => &payload[1..],
                _ => &payload[..],
            }).copied().collect();
            match track {
                0 => prop_assert!(found == expected),
                // Frames lie behind headers that depend on how many go together.
                _ => prop_assert!(heard(&packets) == expected),
            }
            for (header, payload) in &packets {
                prop_assert!(payload.len() <= cut.payload_bytes_max());
                prop_assert_eq!(header.payload_type, 96 + u8::try_from(track).unwrap());
            }
        }
    }

    #[test]
    fn a_file_known_in_part_has_the_same_packets(kinds in kinds(), share in 0..100_usize) {
        let mut whole = file(&kinds);
        let known = kinds.len() * share / 100;
        let mut part = file(&kinds[..known]);
        read_parts(&mut whole);
        read_parts(&mut part);
        let of = |file: &File| SampledIndex::new("test", file.tracks.clone(), Vec::new()).unwrap();
        let (whole_index, part_index) = (of(&whole), of(&part));
        let (old, new) = (container::Index::of(part_index), container::Index::of(whole_index));
        for track in 0..2 {
            let cut = old.cut(track, 1460).unwrap();
            let part_plan = old.plan(track, cut, 20_000_000, true);
            let plan = new.plan(track, cut, 20_000_000, false);
            let part = images(&part_plan, &part.bytes, 50);
            prop_assert!(images(&plan, &whole.bytes, 50).starts_with(&part));
        }
        let continued = new.continuing(&old);
        prop_assert!(matches!(continued, Continued::More(_)), "{:?}", continued);
    }

    /// Whatever is known at a time of a film that grows, or has rested in between.
    #[test]
    fn a_plan_that_goes_on_is_as_one_made_anew(
        kinds in kinds(), bytes_max in 128..1500_usize,
        steps in prop::collection::vec((0..30_usize, any::<bool>()), 1..6),
    ) {
        let mut whole = file(&kinds);
        read_parts(&mut whole);
        let (mut known, mut before) = (0, [None, None]);
        for (more, grows) in steps.into_iter().chain([(usize::MAX / 2, false)]) {
            known += more;
            let index = known_in_part(&whole.tracks, known);
            for (track, before) in before.iter_mut().enumerate() {
                let cut = index.cut(track, bytes_max).unwrap();
                let anew = index.plan(track, cut, 20_000_000, grows);
                let plan = before.take().map(|before: Plan| {
                    index.plan_continuing(track, cut, (20_000_000, grows), &before)
                });
                if let Some(plan) = &plan {
                    check_alike(plan, &anew, &whole.bytes);
                }
                check_counted(&anew, grows);
                *before = Some(plan.unwrap_or(anew));
            }
        }
    }
}

/// An index of the first samples of these tracks.
fn known_in_part(tracks: &[SampledTrack], samples: usize) -> container::Index {
    let first = |track: &SampledTrack| SampledTrack {
        samples: track.samples.first(samples.min(track.samples.len())),
        ..track.clone()
    };
    let index = SampledIndex::new("test", tracks.iter().map(first), Vec::new());
    container::Index::of(index.unwrap())
}

fn check_alike(plan: &Plan, other: &Plan, file: &[u8]) {
    let packets = 0..plan.rtp_packets();
    assert_eq!(packets, 0..other.rtp_packets());
    let facts = |plan: &Plan| {
        let sends = [1, 3, 64].map(|packets_max| plan.sends(packets_max));
        let bytes = plan.images_bytes(0..plan.rtp_packets());
        (plan.image_bytes_max(), bytes, sends)
    };
    assert_eq!(facts(plan), facts(other));
    for packet in packets.start..=packets.end {
        assert_eq!(plan.due_ns(packet), other.due_ns(packet), "{packet}");
    }
    let bursts = [plan, other].map(|plan| {
        let mut bursts = Vec::new();
        plan.bursts(packets.clone(), &mut bursts);
        bursts
    });
    assert_eq!(bursts[0], bursts[1]);
    assert!(images(plan, file, 50) == images(other, file, 50));
}

/// What is known of all packets, which were made in order, is what looking each up tells.
fn check_counted(plan: &Plan, grows: bool) {
    let packets = 0..plan.rtp_packets();
    let sizes: Vec<_> = packets.clone().map(|it| plan.image_bytes(it)).collect();
    let bytes = sizes.iter().map(|&it| it as u64).sum::<u64>();
    assert_eq!(plan.images_bytes(packets.clone()), bytes);
    if let Some(&largest) = sizes.iter().max().filter(|_| !grows) {
        assert_eq!(plan.image_bytes_max(), largest);
    }
    let mut bursts = Vec::new();
    plan.bursts(packets, &mut bursts);
    for packets_max in [1, 64] {
        let sends = bursts.iter().map(|it| it.packets.div_ceil(packets_max));
        let sends: u64 = sends.map(u64::from).sum();
        assert_eq!(plan.sends(packets_max), Some(sends));
    }
}

/// Of a film of twelve hours that would take seconds.
#[test]
fn samples_are_not_looked_up_to_plan_all_of_them() {
    const PICTURES: usize = 3000;
    let kinds = (0..PICTURES).map(|at| {
        let bytes = u16::from(noise(at, at / 7));
        Kind::Picture(vec![bytes, 9], noise(at, 3).is_multiple_of(8))
    });
    let mut file = file(&kinds.collect::<Vec<_>>());
    read_parts(&mut file);
    let index = SampledIndex::new("test", file.tracks, Vec::new()).unwrap();
    let index = container::Index::of(index);
    let cut = index.cut(0, 1460).unwrap();
    let before = look_ups();
    let plan = index.plan(0, cut, 20_000_000, false);
    let looked_up = look_ups() - before;
    assert!(plan.rtp_packets() > PICTURES as u64);
    assert!(looked_up < PICTURES as u64, "{looked_up}");
}

#[test]
fn what_is_planned_is_not_planned_again() {
    let mut file = file(&vec![Kind::Frame(90); 300]);
    let count = Arc::new(AtomicUsize::new(0));
    file.tracks[1].codec.packetizer = Arc::new(Counted(Arc::clone(&count)));
    let sound = file.tracks.split_off(1);
    let index = known_in_part(&sound, 100);
    let cut = index.cut(0, 1460).unwrap();
    let mut plan = index.plan(0, cut, 20_000_000, true);
    for samples in [200, 300] {
        let index = known_in_part(&sound, samples);
        plan = index.plan_continuing(0, cut, (20_000_000, true), &plan);
    }
    assert_eq!(plan.rtp_packets(), 300);
    assert_eq!(count.load(Ordering::Relaxed), 300);
}

#[test]
fn two_packets_of_sound_leave_in_one_send() {
    let of = |frames, length: &dyn Fn(u16) -> u16| {
        let kinds: Vec<_> = (0..frames).map(|at| Kind::Frame(length(at))).collect();
        let file = file(&kinds);
        let index = SampledIndex::new("test", file.tracks, Vec::new()).unwrap();
        let index = container::Index::of(index);
        let plan = index.plan(1, index.cut(1, 1460).unwrap(), 20_000_000, false);
        let mut bursts = Vec::new();
        plan.bursts(0..plan.rtp_packets(), &mut bursts);
        check_bursts(&plan, 0..plan.rtp_packets(), &bursts);
        for burst in &bursts {
            let last = burst.first + u64::from(burst.packets) - 1;
            assert!(plan.due_ns(last) - burst.due_ns < 160_000_000, "{burst:?}");
        }
        assert_eq!(plan.sends(64), Some(bursts.len() as u64));
        assert_eq!(plan.sends(1), Some(plan.rtp_packets()));
        (plan.rtp_packets(), bursts.len())
    };
    // Four frames and four; at the beginning six times four, all of which are due at once.
    assert_eq!(of(840, &|_| 300), (210, 103));
    // Four frames, and of those that follow as many as are no longer: three or four.
    let (packets, sends) = of(840, &|at| {
        200 + u16::from(noise(at.into(), (at / 7).into()))
    });
    assert!((210..240).contains(&packets), "{packets}");
    assert_eq!(sends as u64, packets.div_ceil(2));
    // A packet each, and longer than the one before, so that none can follow another.
    assert_eq!(of(600, &|at| 800 + at), (600, 600));
    // Larger than a packet.
    assert_eq!(of(100, &|_| 2000), (200, 100));
}

fn pictures_of((at, kind): (usize, &Kind)) -> Vec<u8> {
    let Kind::Picture(parts, _) = kind else {
        return Vec::new();
    };
    let parts = parts.iter().enumerate();
    parts
        .flat_map(|(part, &length)| (0..length).map(move |it| noise(at + part, it.into())))
        .collect()
}

fn frames_of((at, kind): (usize, &Kind)) -> Vec<u8> {
    match kind {
        Kind::Frame(length) => {
            let frame = (0..*length).map(|it| noise(at, it.into()));
            [0x0b, 0x77].into_iter().chain(frame).collect()
        }
        Kind::Picture(..) => Vec::new(),
    }
}

/// The frames in packets of sound. What looks like the start of one in the middle of another does
/// not matter: it is compared as a whole.
fn heard(packets: &[(Header, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (_, payload) in packets {
        match payload.strip_prefix(b"one") {
            Some(part) => out.extend(part),
            None => {
                let mut rest = &payload[2..];
                while let [b'.', frame @ ..] = rest {
                    let end = frame.windows(3).position(|it| it == b".\x0b\x77");
                    let end = end.unwrap_or(frame.len());
                    out.extend(&frame[..end]);
                    rest = &frame[end..];
                }
            }
        }
    }
    out
}

fn film(pictures: usize) -> container::Index {
    let pictures = (0..pictures).map(|at| Kind::Picture(vec![500], at % 10 == 0));
    let kinds = pictures.flat_map(|it| [it, Kind::Frame(90), Kind::Frame(90)]);
    let mut file = file(&kinds.collect::<Vec<_>>());
    read_parts(&mut file);
    container::Index::of(SampledIndex::new("test", file.tracks, Vec::new()).unwrap())
}

#[test]
fn pictures_decide_where_to_start_and_sound_follows() {
    let index = film(100);
    let cut = index.cut(0, 1460).unwrap();
    let (video, audio) = (
        index.plan(0, cut, 20_000_000, false),
        index.plan(1, cut, 20_000_000, false),
    );
    // Picture 20 is shown at 20 * 40 + 40 - 300 ms, and is the last to start from before 900 ms.
    let point = index.seek(900_000_000);
    assert_eq!(point.time_ns, 540_000_000);
    let first = video.rtp_packet_from(point);
    assert_eq!(video.due_ns(first), 500_000_000);
    assert_eq!(
        video.payload_bytes(first),
        3,
        "what comes before a sync sample"
    );
    // The fourth frame begins 63 ms behind the first, and no packet has more than four.
    let heard = audio.rtp_packet_from(point);
    let (from_ns, to_ns) = (audio.due_ns(heard), audio.due_ns(heard + 1));
    assert!(
        (from_ns..to_ns).contains(&point.time_ns),
        "{from_ns}..{to_ns}"
    );
    assert_eq!(to_ns - from_ns, 84_000_000);
}

/// It is asked for every viewer, and once more when one jumps.
#[test]
fn bytes_of_the_whole_are_told_without_packetizing() {
    let mut file = file(&[Kind::Frame(90), Kind::Frame(900), Kind::Frame(9)]);
    let count = Arc::new(AtomicUsize::new(0));
    file.tracks[1].codec.packetizer = Arc::new(Counted(Arc::clone(&count)));
    let sound = file.tracks.split_off(1);
    let index = SampledIndex::new("test", sound, Vec::new()).unwrap();
    let index = container::Index::of(index);
    let plan = index.plan(0, index.cut(0, 1460).unwrap(), 20_000_000, false);
    let before = count.load(Ordering::Relaxed);
    let whole = plan.images_bytes(0..plan.rtp_packets());
    assert_eq!(count.load(Ordering::Relaxed), before);
    let parts = (0..plan.rtp_packets()).map(|at| plan.images_bytes(at..at + 1));
    assert_eq!(whole, parts.sum::<u64>());
}

/// Pictures that are reordered begin a little later than sound.
#[test]
fn the_start_is_that_of_the_track_that_begins_first() {
    let kinds = [
        Kind::Frame(50),
        Kind::Frame(60),
        Kind::Picture(vec![500], true),
    ];
    let mut file = file(&kinds);
    read_parts(&mut file);
    for track in &mut file.tracks {
        track.shift_ticks = 0;
    }
    let index = SampledIndex::new("test", file.tracks, Vec::new()).unwrap();
    let index = container::Index::of(index);
    let point = index.seek(10_000_000);
    assert_eq!(point.time_ns, 0);
    for track in 0..2 {
        let plan = index.plan(track, index.cut(track, 1460).unwrap(), 20_000_000, false);
        assert_eq!(plan.rtp_packet_from(point), 0);
    }
}

#[test]
fn timestamps_are_times_of_showing_from_the_start_of_the_file() {
    let index = film(20);
    let cut = index.cut(0, 1460).unwrap();
    let plan = index.plan(0, cut, 20_000_000, false);
    let origin = RtpOrigin {
        sequence: 0,
        timestamp: 0,
        ssrc: 0,
    };
    // The first is decoded 300 ms before the start and shown 40 ms later.
    let stamp = plan.position(0, origin).timestamp;
    assert_eq!(stamp, (-260 * 90_i32).cast_unsigned());
    assert_eq!(plan.due_ns(0), 0);
    let packet = plan.rtp_packet_at(100_000_000);
    assert_eq!(plan.position(packet, origin).timestamp, 140 * 90);
}

#[test]
fn other_bytes_than_were_indexed_make_no_packets() {
    let mut file = file(&[Kind::Picture(vec![300, 20], true)]);
    read_parts(&mut file);
    let index = SampledIndex::new("test", file.tracks.drain(..1), Vec::new()).unwrap();
    let index = container::Index::of(index);
    let plan = index.plan(0, index.cut(0, 1460).unwrap(), 20_000_000, false);
    file.bytes[11] += 1;
    let piece = FilePiece {
        offset: 0,
        bytes: &file.bytes,
    };
    let origin = RtpOrigin {
        sequence: 0,
        timestamp: 0,
        ssrc: 0,
    };
    let mut out = vec![0; 4096];
    let written = plan.write_images(0..plan.rtp_packets(), &[piece], origin, &mut out);
    let error = written.unwrap_err().to_string();
    assert!(error.contains("changed since it was indexed"), "{error}");
}

#[test]
fn a_part_beyond_its_sample_ends_its_track_alone() {
    let kinds = [
        Kind::Picture(vec![10], true),
        Kind::Picture(vec![10], false),
        Kind::Frame(20),
    ];
    let mut file = file(&kinds);
    let second = usize::try_from(file.tracks[0].samples.get(1).unwrap().offset).unwrap();
    file.bytes[second] = 0xff;
    let mut reader = PartReader::default();
    let mut errors = Vec::new();
    while let Some(wanted) = reader.wants(&file.tracks, file.bytes.len() as u64) {
        let [start, end] = [wanted.start, wanted.end].map(|at| usize::try_from(at).unwrap());
        errors.extend(reader.push(&mut file.tracks, &file.bytes[start..end]).err());
    }
    let [(0, CodecError::PartBeyondSample { .. })] = errors[..] else {
        panic!("{errors:?}");
    };
    assert_eq!(
        (file.tracks[0].playable(), file.tracks[1].playable()),
        (1, 1)
    );
}

proptest! {
    /// A place is named in whole ns, and ticks begin between them.
    #[test]
    fn a_tick_is_found_by_the_time_it_has(
        timescale in 1..1_000_000_u32, ticks in 0..1_i64 << 32, shift_ticks in 0..1_i64 << 32,
    ) {
        let track = SampledTrack {
            config: None,
            codec: crate::media::codec::jpeg::codec(),
            timescale,
            shift_ticks,
            samples: Samples::default(),
            prefix: Arc::from([]),
            carriage: None,
            facts: TrackFacts::default(),
        };
        let time_ns = u64::try_from(track.time_ns(ticks)).unwrap();
        prop_assert_eq!(track.ticks_at(time_ns), ticks);
    }
}

/// The headers of the first packet of a JPEG picture take 144 bytes, and cuts are of 128, 536, ...
#[test]
fn a_path_too_narrow_for_a_codec_has_no_cut() {
    let track = SampledTrack {
        codec: crate::media::codec::jpeg::codec(),
        config: None,
        timescale: 1,
        shift_ticks: 0,
        samples: Samples::default(),
        prefix: Arc::from([]),
        carriage: None,
        facts: TrackFacts::default(),
    };
    let index = SampledIndex::new("test", [track], Vec::new()).unwrap();
    assert!(index.cut(0, 536).is_some());
    assert!(index.cut(0, 535).is_none());
}

/// Pictures of a track whose prefix has the start of each: some bytes of the first part, or that
/// part and more.
#[test]
fn a_prefix_may_have_parts_of_its_samples() {
    for prefix in [
        &[0][..],
        &[0, 2],
        &[0, 2, 8],
        &[0, 2, 8, 8, 0],
        &[0, 2, 8, 8, 0, 3, 7],
    ] {
        let whole = [0, 2, 8, 8, 0, 3, 7, 7, 7];
        let stored = &whole[prefix.len()..];
        let mut track = SampledTrack {
            codec: codec(Medium::Video, Pictures),
            config: None,
            timescale: 1000,
            shift_ticks: 0,
            samples: Samples::default(),
            prefix: Arc::from(prefix),
            carriage: None,
            facts: TrackFacts::default(),
        };
        let sample = Sample {
            offset: 0,
            bytes: u32::try_from(stored.len()).unwrap(),
            decode_ticks: 0,
            composition_ticks: 0,
            is_sync: false,
            entry: 0,
        };
        track.samples.push(sample, 40).unwrap();
        let mut file = File {
            bytes: stored.to_vec(),
            tracks: vec![track],
        };
        read_parts(&mut file);
        let index = SampledIndex::new("test", file.tracks, Vec::new()).unwrap();
        let index = container::Index::of(index);
        let plan = index.plan(0, index.cut(0, 1460).unwrap(), 20_000_000, false);
        let packets = images(&plan, stored, 10);
        let payloads: Vec<_> = packets.iter().map(|(_, payload)| &payload[1..]).collect();
        assert_eq!(payloads, [&[8, 8][..], &[7, 7, 7]], "{prefix:?}");
    }
}

proptest! {
    /// Every picture a sync sample, shown in any order: what is played at a scale is due in order,
    /// and no closer than 25 pictures a second.
    #[test]
    fn at_a_scale_pictures_are_bounded_and_in_order(
        shown in prop::collection::vec(0..2000_i32, 1..200),
        scale in prop::sample::select(crate::media::Scale::ALL[1..].to_vec()),
    ) {
        let mut bytes = Vec::new();
        let mut track = SampledTrack {
            codec: codec(Medium::Video, Pictures),
            config: None,
            timescale: 1000,
            shift_ticks: 0,
            samples: Samples::default(),
            prefix: Arc::from(&b""[..]),
            carriage: None,
            facts: TrackFacts::default(),
        };
        for (at, &shown) in (0..).zip(&shown) {
            let sample = Sample {
                offset: bytes.len() as u64,
                bytes: 5,
                decode_ticks: at * 10,
                composition_ticks: shown.into(),
                is_sync: true,
                entry: 0,
            };
            bytes.extend([0, 3, 1, 2, 3]);
            track.samples.push(sample, 10).unwrap();
        }
        let mut file = File { bytes, tracks: vec![track] };
        read_parts(&mut file);
        let index = SampledIndex::new("test", file.tracks, Vec::new()).unwrap();
        let index = container::Index::of(index);
        let plan = index.trick(0, index.cut(0, 1460).unwrap(), 20_000_000, scale).unwrap();
        let mut times: Vec<_> = (0..plan.rtp_packets()).map(|it| plan.due_ns(it)).collect();
        let end_ns = plan.due_ns(plan.rtp_packets());
        prop_assert!(times.is_sorted() && times[times.len() - 1] <= end_ns);
        times.dedup();
        prop_assert!(times.windows(2).all(|two| two[1] - two[0] >= 40_000_000), "{:?}", times);
    }
}

#[test]
fn names_of_programs_are_no_labels() {
    let has_label = |name: &str| {
        let facts = TrackFacts {
            name: Some(name.to_owned()),
            ..TrackFacts::default()
        };
        facts.label().is_some()
    };
    for name in [
        "",
        "SoundHandler",
        "SoundHandle",
        "Core Media Video",
        "ISO Media file produced by Google Inc.",
    ] {
        assert!(!has_label(name), "{name}");
    }
    assert!(has_label("Director's cut"));
}
