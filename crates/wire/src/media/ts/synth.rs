//! Transport streams made by hand, and changed by hand: the files that no encoder will make for a
//! test.
//!
//! A [`Writer`] appends packets with right continuity counters and checksums; the functions beside
//! it rewrite whole streams. What comes out is a valid transport stream wherever the caller does
//! not ask for a broken one. It is not a multiplexer: nothing here decides when a packet should
//! come.

use std::collections::BTreeMap;

use mpeg2ts_reader::mpegts_crc;

use super::clock::PCR_WRAP;
use super::{SYNC_BYTE, TS_PACKET_BYTES};

/// What one packet is to carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// Its pid.
    pub pid: u16,
    /// Set `payload_unit_start_indicator`.
    pub unit_start: bool,
    /// Set `random_access_indicator`.
    pub random_access: bool,
    /// Set `discontinuity_indicator`.
    pub discontinuity: bool,
    /// A clock reference in 27 MHz ticks.
    pub pcr: Option<u64>,
    /// The payload; the rest of the packet is stuffed. None at all makes a packet without payload.
    pub payload: &'a [u8],
}

/// One stream of a program map.
#[derive(Clone, Copy, Debug)]
pub struct MapEntry<'a> {
    /// The pid of its packets.
    pub pid: u16,
    /// Its `stream_type`.
    pub stream_type: u8,
    /// Its descriptors, as bytes.
    pub descriptors: &'a [u8],
}

/// Appends packets to a stream.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    counters: BTreeMap<u16, u8>,
}

impl Writer {
    /// An empty stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one packet. What of the payload does not fit is left out; see [`Self::room`].
    pub fn packet(&mut self, packet: Packet<'_>) {
        let Packet { pid, pcr, .. } = packet;
        let flags = u8::from(packet.discontinuity) << 7
            | u8::from(packet.random_access) << 6
            | u8::from(pcr.is_some()) << 4;
        let payload = &packet.payload[..packet.payload.len().min(Self::room(&packet))];
        let adaptation_bytes = TS_PACKET_BYTES - 4 - payload.len();
        let counter = self.counters.entry(pid).or_insert(0x0f);
        *counter = (*counter + u8::from(!payload.is_empty())) & 0x0f;
        let control = u8::from(adaptation_bytes > 0) << 5 | u8::from(!payload.is_empty()) << 4;
        let [high, low] = pid.to_be_bytes();
        let start = u8::from(packet.unit_start) << 6;
        self.bytes
            .extend([SYNC_BYTE, start | (high & 0x1f), low, control | *counter]);
        let mut adaptation = vec![0xff; adaptation_bytes];
        if let [length, fields @ ..] = adaptation.as_mut_slice() {
            *length = u8::try_from(fields.len()).expect("a packet is shorter than 256 bytes");
            if let [first, reference @ ..] = fields {
                *first = flags;
                if let Some(pcr) = pcr {
                    reference[..6].copy_from_slice(&pcr_bytes(pcr));
                }
            }
        }
        self.bytes.extend(adaptation);
        self.bytes.extend(payload);
    }

    /// Bytes of payload that fit beside what else `packet` carries.
    #[must_use]
    pub fn room(packet: &Packet<'_>) -> usize {
        let flagged = packet.discontinuity || packet.random_access;
        let adaptation_bytes = match packet.pcr {
            Some(_) => 8,
            None if flagged => 2,
            None => 0,
        };
        TS_PACKET_BYTES - 4 - adaptation_bytes
    }

    /// Appends a null packet.
    pub fn null(&mut self) {
        self.packet(Packet {
            pid: 0x1fff,
            payload: &[0xff; 184],
            ..Packet::default()
        });
        // Null packets count nothing.
        self.counters.remove(&0x1fff);
    }

    /// Appends a program association table: program numbers and the pids of their maps.
    pub fn pat(&mut self, programs: &[(u16, u16)]) {
        let mut body = Vec::new();
        for (number, pid) in programs {
            body.extend(number.to_be_bytes());
            body.extend((0xe000 | pid).to_be_bytes());
        }
        self.section(0, 0x00, 1, &body);
    }

    /// Appends a program map.
    pub fn pmt(&mut self, pid: u16, program: u16, pcr_pid: u16, streams: &[MapEntry<'_>]) {
        let mut body = (0xe000 | pcr_pid).to_be_bytes().to_vec();
        body.extend([0xf0, 0]);
        for stream in streams {
            body.push(stream.stream_type);
            body.extend((0xe000 | stream.pid).to_be_bytes());
            body.extend((0xf000 | length(stream.descriptors)).to_be_bytes());
            body.extend(stream.descriptors);
        }
        self.section(pid, 0x02, program, &body);
    }

    /// Appends a service description table of one service.
    pub fn sdt(&mut self, program: u16, provider: &[u8], name: &[u8]) {
        let mut descriptor = vec![1];
        for text in [provider, name] {
            descriptor.push(u8::try_from(text.len()).expect("a name of up to 255 bytes"));
            descriptor.extend(text);
        }
        let mut body = vec![0, 1, 0xff];
        body.extend(program.to_be_bytes());
        body.push(0xfc);
        body.extend((0x8000 | (length(&descriptor) + 2)).to_be_bytes());
        body.extend([
            0x48,
            u8::try_from(descriptor.len()).expect("two short names"),
        ]);
        body.extend(descriptor);
        self.section(0x11, 0x42, 1, &body);
    }

    /// Appends a section of the long form, with its header and checksum, over as many packets as it
    /// needs.
    pub fn section(&mut self, pid: u16, table: u8, id: u16, body: &[u8]) {
        let mut section = vec![table];
        section.extend((0xb000 | (length(body) + 9)).to_be_bytes());
        section.extend(id.to_be_bytes());
        section.extend([0xc1, 0, 0]);
        section.extend(body);
        section.extend(mpegts_crc::sum32(&section).to_be_bytes());
        // The pointer field: the section starts right after it.
        section.insert(0, 0);
        for (i, part) in section.chunks(TS_PACKET_BYTES - 4).enumerate() {
            let mut payload = [0xff; TS_PACKET_BYTES - 4];
            payload[..part.len()].copy_from_slice(part);
            self.packet(Packet {
                pid,
                unit_start: i == 0,
                payload: &payload,
                ..Packet::default()
            });
        }
    }

    /// Appends bytes as they are; whole packets keep the stream in sync.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Packets so far, if only packets were appended.
    #[must_use]
    pub fn packets(&self) -> u64 {
        (self.bytes.len() / TS_PACKET_BYTES) as u64
    }

    /// The stream.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A program of one H.264 stream at a constant rate: PAT, PMT, and video with a clock reference in
/// every tenth packet and a flagged picture in every hundredth, nulls between. `packet_ticks` is
/// how long one packet lasts, `pcr_start` the first reference.
#[must_use]
pub fn constant_rate(packets: u64, pcr_start: u64, packet_ticks: u64) -> Vec<u8> {
    let video = MapEntry {
        pid: 0x100,
        stream_type: 0x1b,
        descriptors: &[],
    };
    let mut writer = Writer::new();
    let mut number = 0;
    while number < packets {
        match number % 100 {
            0 => writer.pat(&[(1, 0x1000)]),
            1 => writer.pmt(0x1000, 1, video.pid, &[video]),
            beat @ 2..=89 => {
                let pcr = (beat % 10 == 2).then_some(pcr_start + number * packet_ticks);
                let payload = [u8::try_from(number % 251).unwrap_or(0); 184];
                let start = beat == 2;
                writer.packet(Packet {
                    pid: video.pid,
                    unit_start: start,
                    random_access: start,
                    pcr,
                    payload: &payload,
                    ..Packet::default()
                });
            }
            _ => writer.null(),
        }
        number += 1;
    }
    writer.finish()
}

/// A program of one H.264 stream, as encoders write it that send no more than there is: each
/// picture has so many packets and lasts so many milliseconds. It begins with a clock reference, of
/// which `pcr_per_ms` ticks are a millisecond (27,000 if it is right), and is shown 0.7 s after
/// that.
#[must_use]
pub fn pictures(pictures: &[(u64, u64)], pcr_per_ms: u64) -> Vec<u8> {
    let video = MapEntry {
        pid: 0x100,
        stream_type: 0x1b,
        descriptors: &[],
    };
    let mut writer = Writer::new();
    writer.pat(&[(1, 0x1000)]);
    writer.pmt(0x1000, 1, video.pid, &[video]);
    let mut begins_ms = 0;
    for (packets, lasts_ms) in pictures {
        let start = pes((begins_ms + 700) * 90, &[0, 0, 1, 0x65]);
        for number in 0..*packets {
            let is_first = number == 0;
            writer.packet(Packet {
                pid: video.pid,
                unit_start: is_first,
                random_access: is_first,
                pcr: is_first.then_some(begins_ms * pcr_per_ms),
                payload: if is_first { &start } else { &[0x55; 184] },
                ..Packet::default()
            });
        }
        begins_ms += lasts_ms;
    }
    writer.finish()
}

/// The start of a PES packet of video with a presentation time stamp in 90 kHz, and what follows
/// it.
#[must_use]
pub fn pes(time: u64, data: &[u8]) -> Vec<u8> {
    let byte = |shift: u32, mask: u64| (time >> shift & mask).to_le_bytes()[0];
    let stamp = [
        0x20 | byte(30, 7) << 1 | 1,
        byte(22, 0xff),
        byte(15, 0x7f) << 1 | 1,
        byte(7, 0xff),
        byte(0, 0x7f) << 1 | 1,
    ];
    [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0x80, 5], &stamp[..], data].concat()
}

/// The stream as M2TS: a time stamp of 4 bytes before each packet, counting 27 MHz from 0.
#[must_use]
pub fn to_m2ts(stream: &[u8], packet_ticks: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() / 188 * 192);
    let mut stamp: u32 = 0;
    for packet in stream.chunks_exact(TS_PACKET_BYTES) {
        out.extend((stamp & 0x3fff_ffff).to_be_bytes());
        out.extend(packet);
        stamp = stamp.wrapping_add(packet_ticks);
    }
    out
}

/// The stream in units of 204 bytes, as broadcast receivers write it: 16 bytes of parity behind
/// each packet. The code is not computed, and a sync byte stands in it that is none.
#[must_use]
pub fn with_parity(stream: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(stream.len() / 188 * 204);
    for (number, packet) in (0_u8..=250)
        .cycle()
        .zip(stream.chunks_exact(TS_PACKET_BYTES))
    {
        out.extend(packet);
        out.extend([number; 15]);
        out.push(SYNC_BYTE);
    }
    out
}

/// Moves the clock of a stream of whole packets: PCR, PTS and DTS, so that it stays playable.
/// `shift` is given a packet's number and answers by how many 27 MHz ticks; multiples of 300 move
/// all three alike.
pub fn shift_clock(stream: &mut [u8], shift: impl Fn(u64) -> u64) {
    for (number, packet) in (0..).zip(stream.chunks_exact_mut(TS_PACKET_BYTES)) {
        let ticks = shift(number) % PCR_WRAP;
        if let Some(pcr) = pcr_of(packet) {
            packet[6..12].copy_from_slice(&pcr_bytes(pcr + ticks));
        }
        shift_pes_times(packet, ticks / 300);
    }
}

/// Takes all clock references out of a stream of whole packets; their bytes become stuffing.
pub fn strip_clock(stream: &mut [u8]) {
    for packet in stream.chunks_exact_mut(TS_PACKET_BYTES) {
        if pcr_of(packet).is_some() {
            packet[5] &= !0x10;
            packet[6..12].fill(0xff);
        }
    }
}

/// Announces a discontinuity in the first packet with a clock reference from packet `from` on.
pub fn flag_discontinuity(stream: &mut [u8], from: u64) {
    let mut packets = (0..).zip(stream.chunks_exact_mut(TS_PACKET_BYTES));
    let found = packets.find(|(number, packet)| *number >= from && pcr_of(packet).is_some());
    if let Some((_, packet)) = found {
        packet[5] |= 0x80;
    }
}

/// The clock reference in a packet, if it has one.
#[must_use]
pub fn pcr_of(packet: &[u8]) -> Option<u64> {
    let has_pcr =
        packet.len() >= 12 && packet[3] & 0x20 != 0 && packet[4] >= 7 && packet[5] & 0x10 != 0;
    let base = packet[6..].first_chunk::<4>().filter(|_| has_pcr)?;
    let base = u64::from(u32::from_be_bytes(*base)) << 1 | u64::from(packet[10] >> 7);
    Some(base * 300 + (u64::from(packet[10] & 1) << 8 | u64::from(packet[11])))
}

/// Adds `shift` (90 kHz) to the PTS and DTS of a packet that starts a PES packet.
fn shift_pes_times(packet: &mut [u8], shift: u64) {
    let adaptation = if packet[3] & 0x20 != 0 {
        usize::from(packet[4]) + 1
    } else {
        0
    };
    let starts = packet[1] & 0x40 != 0;
    let Some(pes) = packet
        .get_mut(4 + adaptation..)
        .filter(|pes| starts && pes.len() >= 19)
    else {
        return;
    };
    if !pes.starts_with(&[0, 0, 1]) || pes[6] & 0xc0 != 0x80 {
        return;
    }
    for (flag, at) in [(0x80, 9), (0x40, 14)] {
        if pes[7] & flag != 0 {
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|i| u64::from(pes[at + i]));
            let time = (a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1;
            let time = (time + shift) & ((1 << 33) - 1);
            let mark = pes[at] & 0xf0;
            let byte = |shift: u32, mask: u64| (time >> shift & mask).to_le_bytes()[0];
            pes[at..at + 5].copy_from_slice(&[
                mark | byte(30, 7) << 1 | 1,
                byte(22, 0xff),
                byte(15, 0x7f) << 1 | 1,
                byte(7, 0xff),
                byte(0, 0x7f) << 1 | 1,
            ]);
        }
    }
}

fn pcr_bytes(ticks: u64) -> [u8; 6] {
    let ticks = ticks % PCR_WRAP;
    let bits = (ticks / 300) << 15 | 0x7e00 | (ticks % 300);
    let [_, _, bytes @ ..] = bits.to_be_bytes();
    bytes
}

fn length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len())
        .ok()
        .filter(|length| *length < 4084)
        .expect("fits a section")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shifted_clock_moves_all_times_and_nothing_else() {
        let mut writer = Writer::new();
        // PTS 2^33 - 1 and DTS 1, marked 3 and 1.
        let times = [0x3f, 0xff, 0xff, 0xff, 0xff, 0x11, 0, 1, 0, 3];
        let pes = [&[0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10][..], &times, &[7; 20]].concat();
        let packet = Packet {
            pid: 1,
            unit_start: true,
            payload: &pes,
            ..Packet::default()
        };
        writer.packet(Packet {
            pcr: Some(PCR_WRAP - 1),
            ..packet
        });
        writer.packet(Packet {
            unit_start: false,
            ..packet
        });
        let before = writer.finish();
        let mut after = before.clone();
        shift_clock(&mut after, |_| 600);
        assert_eq!(pcr_of(&after), Some(599));
        let at = 188 - pes.len() + 9;
        assert_eq!(after[at..at + 10], [0x31, 0, 1, 0, 3, 0x11, 0, 1, 0, 7]);
        after[at..at + 10].copy_from_slice(&times);
        after[6..12].copy_from_slice(&before[6..12]);
        assert_eq!(after, before);
        shift_clock(&mut after, |_| 600);
        shift_clock(&mut after, |_| PCR_WRAP - 600);
        assert_eq!(after, before);
    }

    #[test]
    fn a_stripped_clock_leaves_none_and_a_flag_goes_where_one_is() {
        let mut stream = constant_rate(100, 0, 10_000);
        let clocked = |stream: &[u8]| -> Vec<usize> {
            let packets = stream.chunks(188).enumerate();
            packets
                .filter(|(_, packet)| pcr_of(packet).is_some())
                .map(|(i, _)| i)
                .collect()
        };
        assert_eq!(clocked(&stream), [2, 12, 22, 32, 42, 52, 62, 72, 82]);
        flag_discontinuity(&mut stream, 13);
        let flagged = stream
            .chunks(188)
            .position(|packet| packet[3] & 0x20 != 0 && packet[5] & 0x80 != 0);
        assert_eq!(flagged, Some(22));
        strip_clock(&mut stream);
        assert_eq!(clocked(&stream), [0_usize; 0]);
    }
}
