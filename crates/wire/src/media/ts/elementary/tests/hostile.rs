//! Streams that are damaged, lie, change or hide: what is told of can be sent, and the rest is
//! told.

use proptest::prelude::*;

use super::made::{AUDIO, Film, VIDEO, adts, film, pes, tables};
use super::*;
use crate::media::ts::synth::{MapEntry, Packet, Writer};

fn problems(index: &Index, pid: u16) -> Vec<String> {
    let mut tracks = tracks(index).sampled.iter();
    let track = tracks.find(|track| track.facts.id == u64::from(pid));
    track.unwrap().facts.problems.clone()
}

fn pid_of(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[1] & 0x1f, packet[2]])
}

/// A change of a file.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Cut(usize),
    Drop(usize),
    Repeat(usize),
    Swap(usize, usize),
    Insert(usize, Vec<u8>),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<prop::sample::Index>().prop_map(|at| at.index(1 << 20));
    let garbage = prop::collection::vec(any::<u8>(), 1..400);
    prop_oneof![
        8 => (at.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        1 => at.clone().prop_map(Damage::Cut),
        2 => at.clone().prop_map(Damage::Drop),
        2 => at.clone().prop_map(Damage::Repeat),
        1 => (at.clone(), at.clone()).prop_map(|(one, other)| Damage::Swap(one, other)),
        1 => (at, garbage).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
    ]
}

fn damaged(mut file: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        let packets = file.len() / 188;
        if packets < 20 {
            break;
        }
        let packet = |at: usize| at % packets * 188..(at % packets + 1) * 188;
        match damage {
            Damage::Byte(at, byte) => {
                let at = at % file.len();
                file[at] = *byte;
            }
            Damage::Cut(at) => file.truncate(file.len() - at % 1000),
            Damage::Drop(at) => drop(file.drain(packet(*at))),
            Damage::Repeat(at) => {
                let bytes = file[packet(*at)].to_vec();
                let at = packet(*at).end;
                file.splice(at..at, bytes);
            }
            Damage::Swap(one, other) => {
                let (one, other) = (packet(*one), packet(*other));
                let bytes = file[one.clone()].to_vec();
                file.copy_within(other.clone(), one.start);
                file[other].copy_from_slice(&bytes);
            }
            Damage::Insert(at, bytes) => {
                let at = at % file.len();
                file.splice(at..at, bytes.iter().copied());
            }
        }
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// The bytes of every sample of every track are found again, and make the packets that were
    /// counted.
    #[test]
    fn whatever_is_indexed_can_be_sent(
        film in film(), damages in prop::collection::vec(damage(), 0..30),
    ) {
        let file = damaged(film.file(), &damages);
        let Ok(index) = scanned(&file) else { return Ok(()) };
        for number in 0..index.tracks().len() {
            let pid = tracks(&index).sampled[number].facts.id;
            let sent = samples(&index, &file, u16::try_from(pid).unwrap());
            prop_assert!(sent.windows(2).all(|it| it[0].decode_ticks <= it[1].decode_ticks));
            let cut = index.cut(number, 1460).unwrap();
            let plan = index.plan(number, cut, 20_000_000, false);
            let all = 0..plan.rtp_packets();
            let bytes = usize::try_from(plan.images_bytes(all.clone())).unwrap();
            let origin = crate::media::RtpOrigin { sequence: 0, timestamp: 0, ssrc: 0 };
            let range = plan.file_range(all.clone());
            let at = |at: u64| usize::try_from(at).unwrap();
            let piece = FilePiece {
                offset: range.start,
                bytes: &file[at(range.start)..at(range.end)],
            };
            let written = plan.write_images(all, &[piece], origin, &mut vec![0; bytes]);
            prop_assert_eq!(written, Ok(()));
        }
    }
}

#[test]
fn a_packet_that_comes_twice_counts_once() {
    let film = Film::plain(30);
    let file = film.file();
    let twice: Vec<_> = file.chunks(188).flat_map(|it| [it, it]).collect();
    let twice = twice.concat();
    let index = scanned(&twice).unwrap();
    assert_eq!(samples(&index, &twice, VIDEO), film.pictures());
    assert_eq!(samples(&index, &twice, AUDIO), film.sound());
    assert_eq!(problems(&index, VIDEO), [""; 0]);
}

#[test]
fn missing_packets_cost_their_samples_and_are_told() {
    let film = Film::plain(200);
    let mut number = 0;
    let file = film.file();
    let kept = file.chunks(188).filter(|packet| {
        number += usize::from(pid_of(packet) == AUDIO);
        pid_of(packet) != AUDIO || number % 20 != 0
    });
    let file = kept.collect::<Vec<_>>().concat();
    let index = scanned(&file).unwrap();
    assert_eq!(samples(&index, &file, VIDEO), film.pictures());
    let (sound, whole) = (samples(&index, &file, AUDIO), film.sound());
    assert!(sound.len() > whole.len() / 4 && sound.len() < whole.len());
    // What is left is whole, and at its time.
    for frame in sound {
        assert!(whole.contains(&frame), "at {}", frame.decode_ticks);
    }
    let told = &problems(&index, AUDIO)[0];
    assert!(told.ends_with(" times packets are missing"), "{told}");
}

#[test]
fn lengths_of_pes_packets_are_not_believed() {
    let film = Film::plain(30);
    for length in [1, 100, 0xffff_u16] {
        let mut file = film.file();
        for packet in file.chunks_mut(188) {
            let adaptation = match packet[3] & 0x20 {
                0 => 0,
                _ => usize::from(packet[4]) + 1,
            };
            let starts = packet[1] & 0x40 != 0;
            if starts && packet[4 + adaptation..].starts_with(&[0, 0, 1]) {
                let at = 4 + adaptation + 4;
                packet[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
        }
        let index = scanned(&file).unwrap();
        assert_eq!(samples(&index, &file, VIDEO), film.pictures());
        assert_eq!(samples(&index, &file, AUDIO), film.sound());
    }
}

#[test]
fn scrambled_packets_are_left_out_and_told() {
    let film = Film::plain(200);
    let scrambled = |from: usize| {
        let mut file = film.file();
        let packets = file.chunks_mut(188).filter(|it| pid_of(it) == AUDIO);
        packets.skip(from).for_each(|it| it[3] |= 0x80);
        file
    };
    let file = scrambled(0);
    let index = scanned(&file).unwrap();
    let left_out = &tracks(&index).left_out;
    assert_eq!(left_out[0].id, u64::from(AUDIO));
    assert_eq!(left_out[0].reason, "it is scrambled");
    let file = scrambled(50);
    let index = scanned(&file).unwrap();
    let told = problems(&index, AUDIO).join("; ");
    assert!(
        told.contains("packets are scrambled and left out"),
        "{told}"
    );
    let sound = samples(&index, &file, AUDIO);
    assert_eq!(sound[..], film.sound()[..sound.len()]);
}

#[test]
fn a_stream_that_becomes_another_ends_there() {
    let film = Film::plain(100);
    let file = film.file();
    let mut map = Writer::new();
    let entry = |pid, stream_type| MapEntry {
        pid,
        stream_type,
        descriptors: &[],
    };
    map.pmt(0x100, 1, VIDEO, &[entry(VIDEO, 0x1b), entry(AUDIO, 0x81)]);
    let middle = file.len() / 376 * 188;
    let changed = [&file[..middle], &map.finish(), &file[middle..]].concat();
    let index = scanned(&changed).unwrap();
    assert_eq!(samples(&index, &changed, VIDEO), film.pictures());
    let sound = samples(&index, &changed, AUDIO);
    assert!(sound.len() > 20 && sound.len() < film.sound().len());
    assert_eq!(problems(&index, AUDIO), ["it becomes AC-3 in mid-file"]);
}

/// Its players get those that begin in time.
#[test]
fn a_stream_that_never_begins_holds_up_the_others_for_seconds() {
    let film = Film::plain(250);
    let file = film.file();
    let packets = file.chunks(188).filter(|it| pid_of(it) != AUDIO);
    let file = packets.collect::<Vec<_>>().concat();
    let mut scanner = scanner();
    scanner.push(&file[..file.len() / 4]).unwrap();
    let early = scanner.settled().unwrap_err().to_string();
    assert_eq!(early, "too little of it is read yet to know its streams");
    scanner
        .push(&file[file.len() / 4..file.len() * 3 / 4])
        .unwrap();
    let index = scanner.settled().unwrap();
    assert_eq!(index.tracks().len(), 1);
    let left_out = &tracks(&index).left_out[0];
    assert_eq!(
        left_out.reason,
        "nothing was found in it that can be played"
    );
}

#[test]
fn a_file_without_a_playable_stream_is_refused_in_words() {
    let mut writer = tables();
    (0..100).for_each(|_| writer.null());
    let error = scanned(&writer.finish()).unwrap_err().to_string();
    let expected = "none of its streams can be played as a track: pid 0x0101, H.264: nothing was \
                    found in it that can be played; ";
    assert!(error.starts_with(expected), "{error}");
    let error = scanned(&[]).unwrap_err().to_string();
    assert!(error.starts_with("the file is empty"), "{error}");
}

/// Samples at the limit and beyond, of which no more is kept than that.
#[test]
fn a_picture_without_an_end_is_left_out() {
    let film = Film::plain(4);
    let head = film.file();
    let mut writer = Writer::new();
    let endless = pes(0xe0, Some((990_000, 990_000)), &[0, 0, 1, 0x41, 0x88, 7, 7]);
    let payloads = std::iter::once((true, &endless[..]));
    let payloads = payloads.chain(std::iter::repeat_n((false, &[0x77; 184][..]), 95_000));
    for (unit_start, payload) in payloads {
        writer.packet(Packet {
            pid: VIDEO,
            unit_start,
            payload,
            ..Packet::default()
        });
    }
    let file = [head, writer.finish()].concat();
    let index = scanned(&file).unwrap();
    let told = problems(&index, VIDEO).join("; ");
    let expected = "a sample of more than 16777216 bytes is left out";
    assert!(told.contains(expected), "{told}");
    assert_eq!(samples(&index, &file, VIDEO).len(), 4);
}

/// Between two packets of one picture lies a program that is larger than is read at once.
#[test]
fn a_picture_that_lies_too_far_apart_is_left_out() {
    let film = Film::plain(60);
    let file = film.file();
    let (at, _) = file
        .chunks(188)
        .enumerate()
        .filter(|(_, it)| pid_of(it) == VIDEO && it[1] & 0x40 == 0)
        .nth(50)
        .unwrap();
    let mut nulls = Writer::new();
    (0..(33 << 20) / 188).for_each(|_| nulls.null());
    let far = [&file[..at * 188], &nulls.finish(), &file[at * 188..]].concat();
    let index = scanned(&far).unwrap();
    assert_eq!(samples(&index, &far, VIDEO).len(), 59);
    let told = problems(&index, VIDEO).join("; ");
    assert!(
        told.contains("lies over more than 33554432 bytes"),
        "{told}"
    );
}

/// Frame `at` of sound of 1024 samples at 48 kHz, in a packet of its own.
fn write_sound(writer: &mut Writer, at: u64, frame: &[u8]) {
    let stamp = 90_000 + at * 1920;
    let packet = pes(0xc0, Some((stamp, stamp)), frame);
    writer.packet(Packet {
        pid: AUDIO,
        unit_start: true,
        payload: &packet,
        ..Packet::default()
    });
}

/// Frames are found again where the stream has others' bytes between.
#[test]
fn sound_is_found_again_behind_garbage() {
    let mut writer = tables();
    let mut frames = Vec::new();
    for at in 0..40_u64 {
        let data = vec![u8::try_from(at).unwrap() + 1; 100];
        let frame = adts(&data);
        let between: &[u8] = if at == 20 {
            &[0xff, 0xf1, 0x4c, 9, 9]
        } else {
            &[]
        };
        write_sound(&mut writer, at, &[between, &frame].concat());
        frames.push(data);
    }
    let file = writer.finish();
    let index = scanned(&file).unwrap();
    let found: Vec<_> = samples(&index, &file, AUDIO)
        .into_iter()
        .map(|it| it.bytes)
        .collect();
    assert_eq!(found, frames);
    let told = problems(&index, AUDIO).join("; ");
    assert!(told.starts_with("1 times something else stands"), "{told}");
}

/// A file of sound alone: of each frame the channels that its header says, and its byte.
fn of_channels(channels: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut writer = tables();
    let mut frames = Vec::new();
    for (at, channels) in (0_u64..).zip(channels) {
        let data = vec![u8::try_from(at % 200 + 1).unwrap(); 100];
        let mut frame = adts(&data);
        frame[3] = frame[3] & 0x3f | channels << 6;
        write_sound(&mut writer, at, &frame);
        frames.push(data);
    }
    (writer.finish(), frames)
}

/// As broadcasts do, whose first frame may be of what was sent before.
#[test]
fn frames_of_another_configuration_are_left_out() {
    let channels: Vec<u8> = [&[0][..], &[2; 99], &[1; 50], &[2; 50]].concat();
    let (file, frames) = of_channels(&channels);
    let index = scanned(&file).unwrap();
    let sent = samples(&index, &file, AUDIO);
    let sent: Vec<_> = sent.into_iter().map(|it| it.bytes).collect();
    assert_eq!(sent, [&frames[1..100], &frames[150..]].concat());
    let told = problems(&index, AUDIO).join("; ");
    let expected = "from 2 s on its channels or its rate change";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn sound_that_never_says_its_channels_is_told_so() {
    for frames in [5, 150] {
        let (file, _) = of_channels(&vec![0; frames]);
        let error = scanned(&file).unwrap_err().to_string();
        assert!(error.contains("ADTS does not tell the channels"), "{error}");
    }
}
