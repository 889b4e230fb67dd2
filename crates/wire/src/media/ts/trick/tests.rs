//! Tests of [`super`]: what is sent at a scale, read as a receiver of transport streams does.

use proptest::prelude::*;

use super::*;
use crate::media::Scale;
use crate::media::ts::header::Header;
use crate::media::ts::picture::PICTURE_PACKETS_MAX;
use crate::media::ts::synth::{MapEntry, Packet, Writer, pcr_of, pes, to_m2ts};
use crate::media::{self, ScanOptions, Scanner};

const VIDEO: u16 = 0x101;
const SOUND: u16 = 0x102;
const MAP: u16 = 0x1000;
const ORIGIN: RtpOrigin = RtpOrigin {
    sequence: 0xfff0,
    timestamp: 0xffff_ff00,
    ssrc: 7,
};
const BURST_NS: u64 = 20_000_000;

/// How a film is made.
#[derive(Clone, Debug)]
struct Film {
    /// Bytes of each picture, one in 40 ms.
    pictures: Vec<usize>,
    /// Of so many pictures the first is one to start at.
    group: usize,
    /// Packets of sound behind each of pictures: so many, and of every third nulls.
    between: usize,
    /// The pid of its clock.
    clock_pid: u16,
    /// Whether packets of pictures come twice.
    is_doubled: bool,
    /// Whether both stamps are there.
    has_decoded: bool,
}

impl Film {
    fn new(pictures: usize, group: usize) -> Self {
        Self {
            pictures: (0..pictures).map(|at| 100 + at * 397 % 3000).collect(),
            group,
            between: 2,
            clock_pid: VIDEO,
            is_doubled: false,
            has_decoded: false,
        }
    }

    /// What a picture has behind the header of its PES packet.
    fn data(&self, at: usize) -> Vec<u8> {
        let code = if at.is_multiple_of(self.group) {
            0x65
        } else {
            0x41
        };
        let filler = (at..).map(|it| 0x80 | u8::try_from(it % 119).unwrap_or(0));
        let start = [0, 0, 0, 1, code];
        start
            .into_iter()
            .chain(filler)
            .take(self.pictures[at])
            .collect()
    }

    fn pes(&self, at: usize) -> Vec<u8> {
        let stamp = (at as u64 * 40 + 700) * 90;
        let mut pes = pes(stamp, &[]);
        if self.has_decoded {
            (pes[7], pes[8]) = (0xc0, 10);
            pes[9] |= 0x10;
            let decoded: [u8; 5] = pes[9..14].try_into().unwrap();
            pes.extend(decoded);
            pes[14] = pes[14] & 0x0f | 0x10;
        }
        pes.extend(self.data(at));
        pes
    }

    fn write(&self) -> Vec<u8> {
        let entry = |pid, stream_type| MapEntry {
            pid,
            stream_type,
            descriptors: &[],
        };
        let mut writer = Writer::new();
        for at in 0..self.pictures.len() {
            let is_sync = at.is_multiple_of(self.group);
            if is_sync {
                writer.pat(&[(1, MAP)]);
                let streams = [entry(VIDEO, 0x1b), entry(SOUND, 0x0f)];
                writer.pmt(MAP, 1, self.clock_pid, &streams);
            }
            let pcr = at as u64 * 40 * 27_000;
            if self.clock_pid != VIDEO {
                writer.packet(Packet {
                    pid: self.clock_pid,
                    pcr: Some(pcr),
                    ..Packet::default()
                });
            }
            let pes = self.pes(at);
            let (mut rest, mut is_first) = (&pes[..], true);
            while !rest.is_empty() {
                let packet = Packet {
                    pid: VIDEO,
                    unit_start: is_first,
                    random_access: is_first && is_sync,
                    pcr: Some(pcr).filter(|_| is_first && self.clock_pid == VIDEO),
                    payload: rest,
                    ..Packet::default()
                };
                rest = &rest[rest.len().min(Writer::room(&packet))..];
                is_first = false;
                writer.packet(packet);
                if self.is_doubled {
                    let last = writer.clone().finish();
                    writer.raw(&last[last.len() - 188..]);
                }
                for number in 0..self.between {
                    match number % 3 {
                        2 => writer.null(),
                        _ => writer.packet(Packet {
                            pid: SOUND,
                            payload: &[0x77; 184],
                            ..Packet::default()
                        }),
                    }
                }
            }
        }
        writer.finish()
    }
}

fn scan(file: &[u8]) -> media::Index {
    let mut scanner = Scanner::new(ScanOptions::default());
    scanner.push(file).unwrap();
    scanner.finish().unwrap()
}

fn scale(value: i8) -> Scale {
    Scale::nearest(value.into())
}

fn plan(index: &media::Index, value: i8, payload_bytes_max: usize) -> Option<media::Plan> {
    let cut = index.cut(0, payload_bytes_max).unwrap();
    index.trick(0, cut, BURST_NS, scale(value))
}

fn images(plan: &media::Plan, file: &[u8], packets: Range<u64>) -> Vec<u8> {
    let range = plan.file_range(packets.clone());
    let at = |offset: u64| usize::try_from(offset).unwrap();
    let piece = FilePiece {
        offset: range.start,
        bytes: &file[at(range.start)..at(range.end)],
    };
    let bytes = plan.images_bytes(packets.clone());
    let mut out = vec![0; at(bytes)];
    plan.write_images(packets, &[piece], ORIGIN, &mut out)
        .unwrap();
    out
}

/// What a receiver makes of a stream.
#[derive(Debug, Default)]
struct Received {
    /// Of each picture when it was due, its stamps and its bytes.
    pictures: Vec<(u64, Vec<u64>, Vec<u8>)>,
    /// When each clock reference was due, and what it said.
    clock: Vec<(u64, u64)>,
    counters: std::collections::BTreeMap<u16, u8>,
}

impl Received {
    fn packet(&mut self, due_ns: u64, packet: &[u8; 188]) {
        let header = Header::read(packet);
        let has_payload = packet[3] & 0x10 != 0;
        if let Some(before) = self.counters.insert(header.pid, packet[3] & 0x0f) {
            let expected = (before + u8::from(has_payload)) & 0x0f;
            assert_eq!(packet[3] & 0x0f, expected, "counter of {:#x}", header.pid);
        }
        assert!(!header.discontinuity);
        if let Some(pcr) = pcr_of(packet) {
            assert!(!has_payload, "clock references are packets of their own");
            self.clock.push((due_ns, pcr));
        }
        let payload = &packet[header.payload..];
        match header.pid {
            VIDEO if header.unit_start => {
                let header_bytes = usize::from(payload[8]);
                let stamps = payload[9..9 + header_bytes].chunks(5).map(|stamp| {
                    let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|at| u64::from(stamp[at]));
                    (a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1
                });
                let data = payload[9 + header_bytes..].to_vec();
                self.pictures.push((due_ns, stamps.collect(), data));
                // Who begins here has all that it takes.
                assert_eq!(self.counters.len(), 3 + usize::from(self.clock_is_apart()));
            }
            VIDEO if has_payload => self.pictures.last_mut().unwrap().2.extend(payload),
            0 | MAP => assert!(header.unit_start),
            _ => assert!(!has_payload),
        }
    }

    fn clock_is_apart(&self) -> bool {
        self.counters
            .keys()
            .any(|pid| ![0, MAP, VIDEO].contains(pid))
    }
}

/// Receives a whole plan, in chunks of so many packets.
fn receive(plan: &media::Plan, file: &[u8], chunk: u64) -> Received {
    let mut received = Received::default();
    let mut start = 0;
    while start < plan.rtp_packets() {
        let end = (start + chunk).min(plan.rtp_packets());
        let images = images(plan, file, start..end);
        let mut rest = &images[..];
        for packet in start..end {
            let image;
            (image, rest) = rest.split_at(plan.image_bytes(packet));
            let header = rtp::Header::read(image).unwrap();
            let due_ns = plan.due_ns(packet);
            assert_eq!(header.timestamp, ORIGIN.timestamp_of(due_ns));
            assert_eq!(header.sequence, ORIGIN.sequence_of(packet));
            for ts in image[HEADER_BYTES..].as_chunks().0 {
                received.packet(due_ns, ts);
            }
        }
        assert!(rest.is_empty());
        start = end;
    }
    received
}

/// All that is promised of a film at a scale.
fn check(film: &Film, file: &[u8], value: i8, payload_bytes_max: usize, chunk: u64) {
    let index = scan(file);
    let plan = plan(&index, value, payload_bytes_max).expect("it has pictures");
    let received = receive(&plan, file, chunk);
    let step = film.group as u64 * 40_000_000 / u64::from(value.unsigned_abs());
    let mut syncs: Vec<_> = (0..film.pictures.len()).step_by(film.group).collect();
    if value < 0 {
        syncs.reverse();
    }
    // A place to start at is its tables', two packets: with the two pictures before it where these
    // are a packet each.
    let is_all = step > TRICK_STEP_NS + 82_000_000;
    assert!(!is_all || received.pictures.len() == syncs.len());
    let mut next = syncs.iter();
    for (due_ns, stamps, data) in &received.pictures {
        let sync = next.find(|&&at| film.data(at) == *data);
        assert!(sync.is_some(), "whole pictures, in order");
        let shown = (due_ns + SHOWN_LATER_NS) * 9 / 100_000;
        assert!(stamps.iter().all(|&stamp| stamp == shown), "{stamps:?}");
        assert_eq!(stamps.len(), 1 + usize::from(film.has_decoded));
    }
    for (due_ns, pcr) in &received.clock {
        assert_eq!(*pcr, due_ns * 27 / 1000);
    }
    let is_live = |two: &[(u64, u64)]| two[1].0 - two[0].0 <= CLOCK_NS;
    assert!(received.clock.windows(2).all(is_live));
    for two in received.pictures.windows(2) {
        let apart = two[1].0 - two[0].0;
        assert!(apart >= TRICK_STEP_NS);
        assert!(
            !is_all || apart.abs_diff(step) < 81_000_000,
            "{apart} not {step}"
        );
    }
}

#[test]
fn whole_pictures_come_with_counters_and_clocks_that_go_on() {
    let film = Film::new(100, 25);
    let file = film.write();
    for value in [2, 4, 8, 16, -1, -2, -4, -8, -16] {
        check(&film, &file, value, 1460, 10);
    }
    let both = Film {
        has_decoded: true,
        is_doubled: true,
        clock_pid: 0x1f0,
        ..film
    };
    check(&both, &both.write(), -2, 1460, 7);
}

#[test]
fn places_lead_to_the_picture_that_is_there() {
    let film = Film::new(100, 25);
    let file = film.write();
    let index = scan(&file);
    for value in [2, -2] {
        let plan = plan(&index, value, 1460).unwrap();
        let timeline = plan.timeline();
        for seconds in 0..4 {
            let point = index.seek(seconds * 1_000_000_000 + 500_000_000);
            let packet = plan.rtp_packet_at(timeline.due_ns(point.time_ns));
            assert_eq!(packet, plan.rtp_packet_from(point));
            let mut received = Received::default();
            let images = images(&plan, &file, packet..packet + 1);
            let tables = images[HEADER_BYTES..].as_chunks().0;
            tables.iter().for_each(|it| received.packet(0, it));
            let picture = &received.pictures[0].2;
            let at = usize::try_from(seconds).unwrap() * 25;
            assert!(film.data(at).starts_with(picture), "{seconds} s at {value}");
        }
    }
}

#[test]
fn what_cannot_be_taken_out_is_left_out() {
    let film = Film::new(75, 25);
    let file = film.write();
    let count = |file: &[u8]| {
        let plan = plan(&scan(file), -1, 1460);
        plan.map_or(0, |plan| receive(&plan, file, 50).pictures.len())
    };
    assert_eq!(count(&file), 3);
    let changed = |change: &dyn Fn(usize, &mut [u8; 188])| {
        let mut file = file.clone();
        for (number, packet) in file.as_chunks_mut().0.iter_mut().enumerate() {
            if Header::read(packet).pid == VIDEO {
                change(number, packet);
            }
        }
        file
    };
    let is_start = |packet: &[u8; 188]| packet[3] & 0x20 != 0 && packet[5] & 0x40 != 0;
    assert_eq!(
        count(&changed(&|_, packet| packet[3] |= 0x80)),
        0,
        "scrambled"
    );
    let half = file.len() / 188 / 2;
    let scrambled = changed(&|number, packet| packet[3] |= u8::from(number > half) << 7);
    assert_eq!(count(&scrambled), 2);
    let unflagged = |packet: &mut [u8; 188]| {
        if is_start(packet) {
            packet[5] &= !0x40;
        }
        let at = Header::read(packet).payload;
        // Neither a start code, nor a stamp.
        packet[at..].fill(0x99);
    };
    assert_eq!(
        count(&changed(&|_, it| unflagged(it))),
        0,
        "no places to start"
    );
    let endless = changed(&|number, packet| {
        if number > 100 {
            packet[1] &= !0x40;
        }
    });
    assert_eq!(count(&endless), 1, "one that ends with the file");
    let unmapped: Vec<u8> = file
        .chunks(188)
        .filter(|it| Header::read(it.first_chunk().unwrap()).pid != MAP)
        .flatten()
        .copied()
        .collect();
    assert_eq!(count(&unmapped), 0, "no tables");
}

#[test]
fn a_picture_that_does_not_end_in_time_is_none() {
    let film = |bytes: usize| Film {
        pictures: vec![100, bytes, 100],
        between: 0,
        ..Film::new(3, 1)
    };
    // The header of the PES packet, and the flags, take some of the first packet.
    let most = 184 * (PICTURE_PACKETS_MAX as usize - 1) + 184 - 8 - 14;
    for (bytes, pictures) in [(most, 3), (most + 1, 2)] {
        let file = film(bytes).write();
        let index = scan(&file);
        let there = index.as_ts().unwrap().pictures.iter();
        assert_eq!(there.filter(|it| it.is_there()).count(), pictures);
    }
}

#[test]
fn clocks_stop_ten_seconds_behind_a_picture() {
    let film = Film {
        between: 0,
        ..Film::new(601, 300)
    };
    let file = film.write();
    let received = receive(&plan(&scan(&file), -1, 1460).unwrap(), &file, 100);
    assert_eq!(received.pictures.len(), 3);
    let behind = CLOCKS_MAX as usize;
    assert_eq!(received.clock.len(), 3 + 2 * behind);
    let at = |number: usize| received.clock[number].0;
    assert_eq!(at(behind), at(0) + u64::from(CLOCKS_MAX) * CLOCK_NS);
    assert_eq!(at(behind + 1), received.pictures[1].0);
    assert!(at(behind + 1) > at(behind) + 10 * CLOCK_NS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_film_keeps_the_promises(
        pictures in prop::collection::vec(5..4000_usize, 4..80),
        group in 1..30_usize,
        between in 0..5_usize,
        is_doubled: bool,
        has_decoded: bool,
        clock_pid in prop::sample::select(vec![VIDEO, 0x1f0]),
        value in prop::sample::select(vec![2_i8, 4, 16, -1, -4, -16]),
        (payload, chunk) in (188..1460_usize, 1..40_u64),
        is_m2ts: bool,
    ) {
        let film = Film { pictures, group, between, clock_pid, is_doubled, has_decoded };
        let mut file = film.write();
        if is_m2ts {
            file = to_m2ts(&file, 1);
        }
        check(&film, &file, value, payload, chunk);
    }

    /// A file that was written over makes an error, and nothing that is not there.
    #[test]
    fn bytes_that_changed_are_no_picture(at in 0.0..1.0_f64, byte: u8, from in 0..60_u64) {
        let film = Film::new(50, 10);
        let file = film.write();
        let plan = plan(&scan(&file), 2, 1460).unwrap();
        let mut changed = file.clone();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
        let place = (at * file.len() as f64) as usize;
        changed[place] ^= byte;
        let packets = from.min(plan.rtp_packets() - 1)..plan.rtp_packets();
        let whole = FilePiece { offset: 0, bytes: &changed };
        let bytes = usize::try_from(plan.images_bytes(packets.clone())).unwrap();
        let mut out = vec![0; bytes];
        let written = plan.write_images(packets.clone(), &[whole], ORIGIN, &mut out);
        if byte == 0 {
            prop_assert!(written.is_ok());
        }
        let needed = plan.file_range(packets.clone());
        let short = FilePiece { offset: 0, bytes: &changed[..place] };
        let written = plan.write_images(packets, &[short], ORIGIN, &mut out);
        prop_assert!(written.is_err() || needed.end <= place as u64);
    }
}
