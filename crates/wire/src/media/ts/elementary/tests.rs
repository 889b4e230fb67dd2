//! Streams in transport packets, cut in any way, become the samples that they were made of.

mod ffmpeg;
mod hostile;
mod made;

use proptest::prelude::*;

use super::*;
use crate::media::container::Index;
use crate::media::plan::FilePiece;
use crate::media::ts::synth::{MapEntry, Packet, Writer};
use crate::media::{ScanError, ScanOptions, Scanner};
use made::{AUDIO, Film, VIDEO, annex_b, film, pes};

/// The index of a file's elementary streams.
fn scanned(file: &[u8]) -> Result<Index, ScanError> {
    let mut scanner = scanner();
    scanner.read(file)?;
    scanner.finish()
}

fn scanner() -> Scanner {
    Scanner::new(ScanOptions {
        is_elementary: true,
        ..ScanOptions::default()
    })
}

fn tracks(index: &Index) -> &SampledIndex {
    index.as_sampled().expect("tables of samples")
}

/// A sample as it is sent: when it is decoded and shown, whether a decoder can start there, and its
/// bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Sent {
    decode_ticks: i64,
    shown_ticks: i64,
    is_sync: bool,
    bytes: Vec<u8>,
}

/// The samples of the track of that pid, by the time of the file.
fn samples(index: &Index, file: &[u8], pid: u16) -> Vec<Sent> {
    let tracks = tracks(index).sampled.iter();
    let track = tracks
        .clone()
        .find(|track| track.facts.id == u64::from(pid));
    let track = track.expect("there is such a track");
    assert_eq!(track.playable(), track.samples.len());
    let pieces = [FilePiece {
        offset: 0,
        bytes: file,
    }];
    let sent = |at: usize| {
        let sample = track.samples.get(at).unwrap();
        Sent {
            decode_ticks: sample.decode_ticks + track.shift_ticks,
            shown_ticks: sample.decode_ticks + sample.composition_ticks + track.shift_ticks,
            is_sync: sample.is_sync,
            bytes: track.data(at, &pieces).unwrap().into_owned(),
        }
    };
    (0..track.samples.len()).map(sent).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However PES packets are cut into transport packets, and these are interleaved.
    #[test]
    fn samples_are_those_that_were_carried(film in film()) {
        let file = film.file();
        let index = scanned(&file).unwrap();
        prop_assert_eq!(samples(&index, &file, VIDEO), film.pictures());
        prop_assert_eq!(samples(&index, &file, AUDIO), film.sound());
        prop_assert_eq!(tracks(&index).sampled[0].facts.problems.clone(), Vec::<String>::new());
    }

    /// As does its index, piece by piece: what is settled stays.
    #[test]
    fn a_file_that_grows_keeps_its_samples(film in film(), steps in 2..6_usize) {
        let file = film.file();
        let whole = scanned(&file).unwrap();
        let mut scanner = scanner();
        let mut last = None;
        for part in file.chunks(file.len() / steps + 1) {
            scanner.push(part).unwrap();
            if let Ok(index) = scanner.settled() {
                let all = tracks(&whole).sampled.iter().zip(&tracks(&index).sampled);
                for (whole, part) in all {
                    prop_assert!(whole.samples.continues(&part.samples, usize::MAX));
                    prop_assert_eq!(whole.shift_ticks, part.shift_ticks);
                }
                last = Some(index);
            }
        }
        let finished = scanner.finish().unwrap();
        prop_assert_eq!(samples(&finished, &file, VIDEO), film.pictures());
        if let Some(last) = last {
            let continued = finished.continuing(&last);
            prop_assert!(matches!(continued, crate::media::Continued::More(_)));
        }
    }
}

/// 192 and 204 bytes from packet to packet, and garbage in front.
#[test]
fn packets_lie_in_the_file_as_they_like() {
    let film = Film::plain(40);
    let file = film.file();
    for file in [
        super::super::synth::to_m2ts(&file, 1000),
        super::super::synth::with_parity(&file),
        [&[0x11; 777], &file[..]].concat(),
    ] {
        let index = scanned(&file).unwrap();
        assert_eq!(samples(&index, &file, VIDEO), film.pictures());
        assert_eq!(samples(&index, &file, AUDIO), film.sound());
    }
}

#[test]
fn tracks_are_told_as_players_want_them() {
    let file = Film::plain(40).file();
    let index = scanned(&file).unwrap();
    let told: Vec<_> = index
        .tracks()
        .iter()
        .map(|track| &*track.encoding)
        .collect();
    assert_eq!(told, ["H264", "mpeg4-generic"]);
    let sampled = &tracks(&index).sampled;
    assert_eq!(sampled[0].codec.codec_string, "avc1.64001e");
    assert_eq!(sampled[0].codec.dimensions, Some((640, 360)));
    assert_eq!(sampled[1].codec.clock_hz, 48_000);
    assert_eq!(sampled[1].facts.language.as_deref(), Some("deu"));
    let left_out: Vec<_> = tracks(&index)
        .left_out
        .iter()
        .map(|it| &*it.reason)
        .collect();
    assert_eq!(left_out, ["neither pictures nor sound"]);
}

/// A sample's bytes lie in packets that others are between.
#[test]
fn an_index_keeps_few_bytes_a_sample() {
    let film = Film::plain(3000);
    let file = film.file();
    let index = scanned(&file).unwrap();
    for track in &tracks(&index).sampled {
        let bytes = track.samples.memory_bytes() / track.samples.len();
        assert!(bytes <= 16, "{bytes} of {}", track.codec.encoding);
    }
}

/// Seeks go by the pictures, and fast forward shows those that need no other.
#[test]
fn seeks_and_scales_go_by_sync_samples() {
    let film = Film::plain(250);
    let index = scanned(&film.file()).unwrap();
    let syncs: Vec<_> = film
        .pictures()
        .into_iter()
        .filter(|it| it.is_sync)
        .collect();
    assert!(syncs.len() > 3);
    let ns = |ticks: i64| ticks.unsigned_abs() * 100_000 / 9;
    let point = index.seek(ns(syncs[2].shown_ticks) + 1000);
    assert_eq!(point.time_ns, ns(syncs[2].shown_ticks));
    let cut = index.cut(0, 1460).unwrap();
    let plan = index.plan(0, cut, 20_000_000, false);
    let first = plan.rtp_packet_from(point);
    assert_eq!(plan.due_ns(first), ns(syncs[2].decode_ticks));
    let scale = crate::media::Scale::nearest(4.0);
    let trick = index.trick(0, cut, 20_000_000, scale).expect("pictures");
    assert!(trick.rtp_packets() < plan.rtp_packets());
}

/// Stamps start again, and jump where a recording was cut: the streams go on, and stay in step.
#[test]
fn stamps_that_jump_are_sent_on_in_step() {
    let wrap = 1 << 33;
    for shift in [
        // Of the 100th picture on.
        vec![(0, wrap - 90_000)],
        vec![(0, 1_000_000), (100, 500_000_000)],
        vec![(0, 1_000_000), (60, 0), (120, 7_000_000_000)],
        // Back by five seconds, as clips do that begin at the same stamp.
        vec![(0, 1_000_000), (100, 550_000)],
    ] {
        let plain = Film::plain(200);
        let film = plain.clone().shifted(&shift);
        let file = film.file();
        let index = scanned(&file).unwrap();
        assert_eq!(samples(&index, &file, VIDEO), plain.pictures(), "{shift:?}");
        let sound = samples(&index, &file, AUDIO);
        for (sent, expected) in sound.iter().zip(plain.sound()) {
            assert_eq!(sent.bytes, expected.bytes);
            let off_ms = (sent.decode_ticks - expected.decode_ticks).abs() / 48;
            assert!(off_ms <= 45, "{off_ms} ms: {shift:?}");
        }
    }
}

/// It counts as missing: no sample is moved by it, and none behind it waits.
#[test]
fn one_stamp_that_is_far_ahead_moves_nothing() {
    let plain = Film::plain(200);
    for seconds in [2, 5, 9] {
        // Of pictures and of sound, and of pictures alone.
        for at in [100, 105] {
            let wrong = 900_000 + seconds * 90_000;
            let film = plain
                .clone()
                .shifted(&[(0, 900_000), (at, wrong), (at + 1, 900_000)]);
            for film in [film.clone(), film.stamped_every(5)] {
                let file = film.file();
                let index = scanned(&file).unwrap();
                assert_eq!(samples(&index, &file, VIDEO), plain.pictures());
                assert_eq!(samples(&index, &file, AUDIO), plain.sound());
            }
        }
    }
}

/// Also in front of the last picture, behind which no other stamp comes.
#[test]
fn a_pause_stays() {
    for from in [100, 199] {
        let plain = Film::plain(200);
        let film = plain.clone().shifted(&[(0, 900_000), (from, 1_170_000)]);
        let file = film.file();
        let index = scanned(&file).unwrap();
        let mut expected = plain.pictures();
        for sent in &mut expected[from..] {
            sent.decode_ticks += 270_000;
            sent.shown_ticks += 270_000;
        }
        assert_eq!(samples(&index, &file, VIDEO), expected);
    }
}

/// Pictures without stamps lie at one distance between those that have some.
#[test]
fn missing_stamps_are_interpolated() {
    let film = Film::plain(200);
    let sparse = film.clone().stamped_every(5);
    let file = sparse.file();
    let index = scanned(&file).unwrap();
    let decoded = |sent: Vec<Sent>| sent.into_iter().map(|it| (it.decode_ticks, it.bytes));
    let found: Vec<_> = decoded(samples(&index, &file, VIDEO)).collect();
    let expected: Vec<_> = decoded(film.pictures()).collect();
    assert_eq!(found, expected);
}

#[test]
fn nal_units_are_told_apart_by_start_codes() {
    let nals: [&[u8]; 4] = [&[9, 0xf0], &[0x67, 1, 0, 3], &[0x65, 0x88], &[0x41]];
    let stream = annex_b(&nals);
    let found: Vec<_> = start_codes::nals(&stream).map(|nal| &stream[nal]).collect();
    assert_eq!(found, nals);
    assert_eq!(start_codes::nals(b"\0\0\x01\0\0\x01\0\0\0").count(), 0);
    let sample = start_codes::with_lengths(&stream, 100).unwrap();
    assert_eq!(sample.len(), 4 * 4 + 2 + 4 + 2 + 1);
    assert_eq!(start_codes::with_lengths(&stream, sample.len() - 1), None);
}

/// Five frames of AC-3, behind each of which one of E-AC-3 adds channels, as Blu-ray has them; in
/// packets of so many bytes of payload. And the samples that are expected.
fn blu_ray(cut: usize) -> (Vec<u8>, Vec<Sent>) {
    // 48 kHz: 5.1 at 448 kbit/s, and a dependent substream of two channels.
    const CORE: [u8; 8] = [0x0b, 0x77, 0, 0, 30, 8 << 3, 0xe1, 0];
    const ADDED: [u8; 6] = [0x0b, 0x77, 0x40, 0xff, 0x34, 16 << 3];
    let frame = |head: &[u8], bytes: usize, at: u8| {
        let rest = vec![at + 1; bytes - head.len()];
        [head, &rest].concat()
    };
    let mut writer = Writer::new();
    writer.pat(&[(1, 0x100)]);
    let stream = MapEntry {
        pid: AUDIO,
        stream_type: 0x87,
        descriptors: &[],
    };
    writer.pmt(0x100, 1, AUDIO, &[stream]);
    let mut expected = Vec::new();
    for at in 0..5_u8 {
        let core = frame(&CORE, 1792, at);
        let stamp = 90_000 + u64::from(at) * 2880;
        // The core ends with a packet: it is there before what adds to it has begun.
        let both = [
            pes(0xbd, Some((stamp, stamp)), &core),
            frame(&ADDED, 512, at),
        ];
        for (number, part) in both.iter().enumerate() {
            for (packet, payload) in part.chunks(cut).enumerate() {
                writer.packet(Packet {
                    pid: AUDIO,
                    unit_start: number + packet == 0,
                    payload,
                    ..Packet::default()
                });
            }
        }
        let ticks = i64::from(at) * 1536;
        expected.push(Sent {
            decode_ticks: ticks,
            shown_ticks: ticks,
            is_sync: true,
            bytes: core,
        });
    }
    (writer.finish(), expected)
}

#[test]
fn ac3_is_sent_without_what_adds_to_it() {
    for cut in [184, 61, 7] {
        let (file, expected) = blu_ray(cut);
        let index = scanned(&file).unwrap();
        assert_eq!(samples(&index, &file, AUDIO), expected);
        let track = &tracks(&index).sampled[0];
        assert_eq!(track.codec.encoding, "ac3");
        assert_eq!(track.facts.problems, [""; 0]);
    }
}

/// The two fields of an interlaced picture are one access unit, as they are one picture.
#[test]
fn two_fields_are_one_picture() {
    // Start codes with the fields of MPEG-2 that are looked at: type of picture, and structure.
    let picture = |kind: u8, structure: u8| {
        let header = [0, 0, 1, 0, 0, kind << 3, 0xff, 0xf8];
        let extension = [0, 0, 1, 0xb5, 0x8f, 0xff, 0xf0 | structure, 0x41, 0x80];
        [&header[..], &extension, &[0, 0, 1, 1, 7, 7, 7]].concat()
    };
    let group = [0, 0, 1, 0xb8, 0, 8, 0, 0];
    let units = [
        [&group[..], &picture(1, 1), &picture(2, 2)].concat(),
        [picture(2, 2), picture(2, 1)].concat(),
        picture(3, 3),
        picture(3, 3),
    ];
    let stream = [&units.concat()[..], &group].concat();
    let mut pictures = start_codes::Pictures::new(start_codes::Coding::Mpeg);
    let mut rest = &stream[..];
    for unit in &units {
        let found = pictures.next(rest, false).expect("its end has come");
        assert_eq!(rest[found.clone()], unit[..]);
        rest = &rest[found.end..];
    }
    assert_eq!(rest, group);
    assert_eq!(pictures.next(rest, true), None);
}
