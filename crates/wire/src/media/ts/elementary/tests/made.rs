//! Films made to order: what is in them is known.

use proptest::prelude::*;

use super::Sent;
use crate::media::ts::synth::{MapEntry, Packet, Writer};

pub(super) const VIDEO: u16 = 0x101;
pub(super) const AUDIO: u16 = 0x102;

/// Of x264: 640 x 360, High, level 3.0.
pub(super) const SPS: &[u8] = &[
    0x67, 0x64, 0x00, 0x1e, 0xac, 0xd9, 0x40, 0xa0, 0x2f, 0xf9, 0x70, 0x11, 0x00, 0x00, 0x03, 0x00,
    0x01, 0x00, 0x00, 0x03, 0x00, 0x32, 0x0f, 0x16, 0x2d, 0x96,
];
pub(super) const PPS: &[u8] = &[0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0];

/// From picture to picture, in 90 kHz.
const PICTURE_TICKS: u64 = 3600;

/// From frame to frame of sound, in 48 kHz.
const FRAME_TICKS: u64 = 1024;

/// A film of pictures, of which some need no other, and sound beside them.
#[derive(Clone, Debug)]
pub(super) struct Film {
    /// Of each picture: bytes of its slices.
    slices: Vec<Vec<usize>>,
    /// Of each frame of sound: its bytes.
    frames: Vec<usize>,
    /// Every so many pictures one needs no other.
    distance: usize,
    /// Bytes of payload of the next packets, again and again.
    cuts: Vec<usize>,
    /// Frames of sound of a PES packet.
    together: usize,
    /// What is added to stamps, from which picture on.
    shifts: Vec<(usize, u64)>,
    /// Of how many pictures one has stamps.
    stamped_every: usize,
}

pub(super) fn film() -> impl Strategy<Value = Film> {
    let slices = prop::collection::vec(prop::collection::vec(3..2000_usize, 1..4), 10..60);
    let cuts = prop::collection::vec(1..=184_usize, 1..20);
    let frames = prop::collection::vec(2..600_usize, 10..80);
    (slices, frames, cuts, 1..20_usize, 1..9_usize).prop_map(
        |(slices, frames, cuts, distance, together)| Film {
            slices,
            frames,
            distance,
            cuts,
            together,
            shifts: vec![(0, 900_000)],
            stamped_every: 1,
        },
    )
}

impl Film {
    /// One of so many pictures, with as much sound.
    pub(super) fn plain(pictures: usize) -> Self {
        let frames = pictures * 1875 / 1000;
        Self {
            slices: (0..pictures).map(|at| vec![300 + at * 37 % 900]).collect(),
            frames: (0..frames).map(|at| 200 + at * 13 % 100).collect(),
            distance: 25,
            cuts: vec![184],
            together: 4,
            shifts: vec![(0, 900_000)],
            stamped_every: 1,
        }
    }

    pub(super) fn shifted(self, shifts: &[(usize, u64)]) -> Self {
        Self {
            shifts: shifts.to_vec(),
            ..self
        }
    }

    pub(super) fn stamped_every(self, pictures: usize) -> Self {
        Self {
            stamped_every: pictures,
            ..self
        }
    }

    /// The pictures as they are to be sent.
    pub(super) fn pictures(&self) -> Vec<Sent> {
        let numbers = 0..self.slices.len();
        let sent = |at: usize| {
            let nals = self.nals(at);
            let with_length = |nal: &Vec<u8>| {
                let length = u32::try_from(nal.len()).unwrap().to_be_bytes();
                [&length[..], nal].concat()
            };
            let ticks = at as u64 * PICTURE_TICKS;
            let decode_ticks = i64::try_from(ticks).unwrap() - 3600;
            Sent {
                decode_ticks,
                shown_ticks: decode_ticks + 3600,
                is_sync: at.is_multiple_of(self.distance),
                bytes: nals.iter().map(with_length).collect::<Vec<_>>().concat(),
            }
        };
        numbers.map(sent).collect()
    }

    /// The frames of sound as they are to be sent: without headers.
    pub(super) fn sound(&self) -> Vec<Sent> {
        let frames = self.frames.iter().enumerate();
        let sent = |(at, &bytes): (usize, &usize)| {
            let ticks = i64::try_from(at as u64 * FRAME_TICKS).unwrap();
            Sent {
                decode_ticks: ticks,
                shown_ticks: ticks,
                is_sync: true,
                bytes: sound(at, bytes),
            }
        };
        frames.map(sent).collect()
    }

    fn nals(&self, at: usize) -> Vec<Vec<u8>> {
        let is_sync = at.is_multiple_of(self.distance);
        let mut nals = vec![vec![9, 0xf0]];
        if is_sync {
            nals.extend([SPS.to_vec(), PPS.to_vec()]);
        }
        for (number, &bytes) in self.slices[at].iter().enumerate() {
            let kind = if is_sync { 0x65 } else { 0x41 };
            // The first has macroblock 0.
            let first = if number == 0 { 0x88 } else { 0x48 };
            let mut nal = vec![kind, first];
            nal.extend((2..bytes).map(|it| fill(it + at)));
            nals.push(nal);
        }
        nals
    }

    /// The stamp of what is decoded at `ticks` of 90 kHz.
    fn shift(&self, ticks: u64) -> u64 {
        let at = usize::try_from(ticks / PICTURE_TICKS).unwrap();
        let shift = self.shifts.iter().rfind(|(from, _)| *from <= at);
        shift.unwrap().1
    }

    /// PES packets of both, in the order of their times: when, which stream's, and their bytes.
    fn pes_packets(&self) -> Vec<(u64, u16, Vec<u8>)> {
        let mut all = Vec::new();
        for at in 0..self.slices.len() {
            let ticks = at as u64 * PICTURE_TICKS;
            let nals = self.nals(at);
            let nals: Vec<_> = nals.iter().map(Vec::as_slice).collect();
            let decoded = self.shift(ticks) + ticks;
            let stamps = Some((decoded + 3600, decoded));
            let stamps = stamps.filter(|_| at.is_multiple_of(self.stamped_every));
            all.push((ticks, VIDEO, pes(0xe0, stamps, &annex_b(&nals))));
        }
        let numbers: Vec<_> = (0..self.frames.len()).collect();
        for frames in numbers.chunks(self.together) {
            let ticks = frames[0] as u64 * FRAME_TICKS * 90 / 48;
            let stamp = self.shift(ticks) + ticks + 3600;
            let bytes = frames.iter().map(|&at| adts(&sound(at, self.frames[at])));
            let bytes = bytes.collect::<Vec<_>>().concat();
            all.push((ticks, AUDIO, pes(0xc0, Some((stamp, stamp)), &bytes)));
        }
        all.sort_by_key(|&(ticks, ..)| ticks);
        all
    }

    /// The file: packets of the two streams take turns.
    pub(super) fn file(&self) -> Vec<u8> {
        let mut cuts = self.cuts.iter().copied().cycle();
        let mut queues = [(VIDEO, Vec::new()), (AUDIO, Vec::new())];
        for (_, pid, pes) in self.pes_packets() {
            let queue = queues.iter_mut().find(|(of, _)| *of == pid).unwrap();
            let mut rest = &pes[..];
            while !rest.is_empty() {
                let cut = cuts.next().unwrap().min(rest.len());
                queue
                    .1
                    .push((rest.len() == pes.len(), rest[..cut].to_vec()));
                rest = &rest[cut..];
            }
        }
        let mut writer = tables();
        let [(_, video), (_, audio)] = &queues;
        let (mut video, mut audio) = (video.iter(), audio.iter());
        let share = video.len().div_ceil(audio.len().max(1)).max(1);
        while video.len() + audio.len() > 0 {
            for (pid, packets) in [
                (VIDEO, video.by_ref().take(share).collect::<Vec<_>>()),
                (AUDIO, audio.by_ref().take(1).collect()),
            ] {
                for (unit_start, payload) in packets {
                    writer.packet(Packet {
                        pid,
                        unit_start: *unit_start,
                        payload,
                        ..Packet::default()
                    });
                }
            }
            writer.null();
        }
        writer.finish()
    }
}

/// The tables of such a film.
pub(super) fn tables() -> Writer {
    let mut writer = Writer::new();
    writer.pat(&[(1, 0x100)]);
    let entry = |pid, stream_type, descriptors| MapEntry {
        pid,
        stream_type,
        descriptors,
    };
    let streams = [
        entry(VIDEO, 0x1b, &[][..]),
        entry(AUDIO, 0x0f, b"\x0a\x04deu\0"),
        entry(0x103, 0x15, &[]),
    ];
    writer.pmt(0x100, 1, VIDEO, &streams);
    writer
}

/// NAL units with start codes in front, of three bytes and of four.
pub(super) fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
    let with_code = |(at, nal): (usize, &&[u8])| {
        let code: &[u8] = if at % 2 == 0 {
            &[0, 0, 0, 1]
        } else {
            &[0, 0, 1]
        };
        [code, nal].concat()
    };
    nals.iter()
        .enumerate()
        .map(with_code)
        .collect::<Vec<_>>()
        .concat()
}

/// A PES packet; stamps are when it is shown and when it is decoded.
pub(super) fn pes(id: u8, stamps: Option<(u64, u64)>, data: &[u8]) -> Vec<u8> {
    let stamp = |mark: u8, ticks: u64| {
        let byte = |shift: u32, mask: u64| (ticks >> shift & mask).to_le_bytes()[0];
        [
            mark << 4 | byte(30, 7) << 1 | 1,
            byte(22, 0xff),
            byte(15, 0x7f) << 1 | 1,
            byte(7, 0xff),
            byte(0, 0x7f) << 1 | 1,
        ]
    };
    let (flags, fields) = match stamps {
        None => (0, Vec::new()),
        Some((shown, decoded)) if shown == decoded => (0x80, stamp(2, shown).to_vec()),
        Some((shown, decoded)) => (0xc0, [stamp(3, shown), stamp(1, decoded)].concat()),
    };
    let length = u8::try_from(fields.len()).unwrap();
    [&[0, 0, 1, id, 0, 0, 0x80, flags, length], &fields[..], data].concat()
}

/// A frame of AAC: 48 kHz, two channels.
pub(super) fn adts(data: &[u8]) -> Vec<u8> {
    let bytes = u8::try_from((data.len() + 7) >> 11).unwrap();
    let [_, middle] = u16::try_from((data.len() + 7) >> 3 & 0xff)
        .unwrap()
        .to_be_bytes();
    let [_, low] = u16::try_from((data.len() + 7) & 7).unwrap().to_be_bytes();
    let header = [
        0xff,
        0xf1,
        0x4c,
        0x80 | bytes,
        middle,
        low << 5 | 0x1f,
        0xfc,
    ];
    [&header, data].concat()
}

fn sound(at: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|it| fill(it * 3 + at)).collect()
}

/// Bytes without zeros, which start codes are made of, and without those that frames begin with.
fn fill(at: usize) -> u8 {
    u8::try_from(1 + at * 7 % 250).unwrap()
}
