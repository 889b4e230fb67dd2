//! Pictures that need no others, in the transport packets that carry them.
//!
//! A [`Walk`] is shown the packets of a file from the first of such a picture on, and says which
//! of them carry it, and where it ends: what a scan has counted by it is what it takes out when the
//! picture is sent alone. Then its packets get other counters and times
//! ([`renumber`], [`clock_reference`]), because those of the file tell of what is left out.
//!
//! A picture is what one PES packet brings (ISO/IEC 13818-1, section 2.4.3.6), and those behind it
//! that go on in the midst of it. One that has no time stamp, of which packets are missing or
//! scrambled, or that does not end within its limits is not taken.

use serde::{Deserialize, Serialize};

use super::header::{Header, is_repeated};
use super::{SYNC_BYTE, TS_PACKET_BYTES};

/// Transport packets that carry one picture, at the most: 16 MiB.
pub(super) const PICTURE_PACKETS_MAX: u32 = (16 << 20) / 184;

/// Packets of the file that it may reach over: 32 MiB.
pub(super) const SPAN_PACKETS_MAX: u32 = 2 * PICTURE_PACKETS_MAX;

/// Stamps count modulo so many ticks of 90 kHz.
const STAMP_WRAP: u64 = 1 << 33;

/// Where the stamps of a PES packet's header are, counted from its beginning.
const STAMPS_AT: usize = 9;

/// Where the packets of a picture lie.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::media) struct Picture {
    /// Packets from the place to start at, which may be its tables, to its first.
    pub(in crate::media) ahead: u32,
    /// Packets of the file from its first to its last, with all that lie between.
    pub(in crate::media) span: u32,
    /// How many of them carry it. 0: there is none that can be taken out.
    pub(in crate::media) packets: u32,
}

impl Picture {
    /// Whether it can be taken out.
    pub(in crate::media) fn is_there(&self) -> bool {
        self.packets > 0
    }

    /// The packet after its last, where it lies behind that place to start at.
    pub(in crate::media) fn end(&self, point: u64) -> u64 {
        (point.saturating_add(self.ahead.into())).saturating_add(self.span.into())
    }

    /// Whether a walk can have found it.
    pub(super) fn is_sound(&self) -> bool {
        self.packets <= self.span.min(PICTURE_PACKETS_MAX) && self.span <= SPAN_PACKETS_MAX
    }
}

/// Follows one picture from packet to packet.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    pid: u16,
    /// The last packet that carries it.
    last: [u8; TS_PACKET_BYTES],
}

/// What the next packet of the file is to a picture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Step {
    /// Nothing.
    Other,
    /// The last that carries it, once more.
    Repeated,
    /// It carries some of it.
    Taken,
    /// The next begins there.
    Ended,
    /// Some of it is missing, or cannot be read.
    Broken,
}

impl Walk {
    /// At the packet that a picture begins with, if it has a time stamp and can be read.
    pub(super) fn begin(packet: &[u8; TS_PACKET_BYTES]) -> Option<Self> {
        let header = Header::read(packet);
        let is_damaged = packet[0] != SYNC_BYTE || packet[1] & 0x80 != 0;
        let is_scrambled = packet[3] & 0xc0 != 0;
        stamps_of(packet, &header).filter(|_| !is_damaged && !is_scrambled)?;
        Some(Self {
            pid: header.pid,
            last: *packet,
        })
    }

    /// Shows it the next packet.
    pub(super) fn packet(&mut self, packet: &[u8; TS_PACKET_BYTES]) -> Step {
        // Of a packet with an error not even the pid can be trusted.
        if packet[0] != SYNC_BYTE || packet[1] & 0x80 != 0 {
            return Step::Other;
        }
        let header = Header::read(packet);
        if header.pid != self.pid || packet[3] & 0x10 == 0 {
            return Step::Other;
        }
        let step = packet[3].wrapping_sub(self.last[3]) & 0x0f;
        if step == 0 && is_repeated(&self.last, packet, header.payload) {
            return Step::Repeated;
        }
        let begins = header.unit_start && !goes_on(&packet[header.payload..]);
        // A counter that begins anew where a picture does, as was announced, lost nothing.
        if step != 1 && !(begins && header.discontinuity) {
            return Step::Broken;
        }
        if begins {
            return Step::Ended;
        }
        if packet[3] & 0xc0 != 0 {
            return Step::Broken;
        }
        self.last = *packet;
        Step::Taken
    }
}

/// Whether the PES packet that begins there goes on with a picture: one that is long may be in
/// several. It has no stamp then, and does not begin as anything that has a start code.
fn goes_on(payload: &[u8]) -> bool {
    let [0, 0, 1, _, _, _, _, flags, header_bytes, rest @ ..] = payload else {
        return false;
    };
    let data = rest.get(usize::from(*header_bytes)..).unwrap_or_default();
    let is_coded = data.starts_with(&[0, 0, 1]) || data.starts_with(&[0, 0, 0, 1]);
    flags & 0x80 == 0 && data.len() >= 4 && !is_coded
}

/// Where in a packet the stamps are of the PES packet that begins in it, and whether it has that of
/// decoding, too; `None` if it has none, or not all of them in this packet.
fn stamps_of(packet: &[u8; TS_PACKET_BYTES], header: &Header) -> Option<(usize, bool)> {
    let payload = packet
        .get(header.payload..)
        .filter(|_| header.unit_start && packet[3] & 0x10 != 0)?;
    let [0, 0, 1, _, _, _, marks, flags, header_bytes, ..] = payload else {
        return None;
    };
    let (is_pes, is_scrambled) = (marks & 0xc0 == 0x80, marks & 0x30 != 0);
    let (has_shown, has_decoded) = (flags & 0x80 != 0, flags & 0x40 != 0);
    let stamps_bytes = if has_decoded { 10 } else { 5 };
    let is_whole =
        usize::from(*header_bytes) >= stamps_bytes && payload.len() >= STAMPS_AT + stamps_bytes;
    let is_one = is_pes && !is_scrambled && has_shown && is_whole;
    is_one.then_some((header.payload + STAMPS_AT, has_decoded))
}

/// Gives a packet of a picture another counter, and if it begins the picture the time `stamp` in
/// 90 kHz, at which it is decoded and shown. What else its adaptation field told (clock references,
/// splices, what broadcasters put there) was told of the file, and becomes stuffing.
pub(super) fn renumber(packet: &mut [u8; TS_PACKET_BYTES], counter: u8, stamp: u64) {
    const KEPT: u8 = 0x60;
    let header = Header::read(packet);
    packet[3] = packet[3] & 0xf0 | counter & 0x0f;
    let adaptation_bytes = usize::from(packet[4]);
    if packet[3] & 0x20 != 0 && adaptation_bytes > 0 {
        // Random access and priority.
        packet[5] &= KEPT;
        packet[6..(5 + adaptation_bytes).min(TS_PACKET_BYTES)].fill(0xff);
    }
    if let Some((at, has_decoded)) = stamps_of(packet, &header) {
        let mark = if has_decoded { 0x30 } else { 0x20 };
        packet[at..at + 5].copy_from_slice(&stamp_bytes(mark, stamp));
        if has_decoded {
            packet[at + 5..at + 10].copy_from_slice(&stamp_bytes(0x10, stamp));
        }
    }
}

/// A time stamp as a PES header has it (ISO/IEC 13818-1, table 2-21), behind the mark in its first
/// four bits.
fn stamp_bytes(mark: u8, stamp: u64) -> [u8; 5] {
    let stamp = stamp % STAMP_WRAP;
    let byte = |shift: u32, mask: u64| (stamp >> shift & mask).to_le_bytes()[0];
    [
        mark | byte(30, 7) << 1 | 1,
        byte(22, 0xff),
        byte(15, 0x7f) << 1 | 1,
        byte(7, 0xff),
        byte(0, 0x7f) << 1 | 1,
    ]
}

/// A packet that has a clock reference and nothing else: `ticks` of 27 MHz. Its counter is that of
/// the packet with a payload before it on that pid (section 2.4.3.3).
pub(super) fn clock_reference(pid: u16, counter: u8, ticks: u64) -> [u8; TS_PACKET_BYTES] {
    const ONLY_ADAPTATION: u8 = 0x20;
    const HAS_REFERENCE: u8 = 0x10;
    let mut packet = [0xff; TS_PACKET_BYTES];
    let [high, low] = pid.to_be_bytes();
    let head = [
        SYNC_BYTE,
        high & 0x1f,
        low,
        ONLY_ADAPTATION | counter & 0x0f,
    ];
    packet[..4].copy_from_slice(&head);
    packet[4] = 183;
    packet[5] = HAS_REFERENCE;
    let base = ticks / 300 % STAMP_WRAP;
    // Six bits between the two parts are reserved, and set.
    let bits = base << 15 | 0x7e00 | (ticks % 300);
    packet[6..12].copy_from_slice(&bits.to_be_bytes()[2..]);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::ts::synth::{self, Packet, Writer};

    const PID: u16 = 0x100;

    /// The packets of a PES packet of so many bytes.
    fn unit(writer: &mut Writer, head: &[u8], bytes: usize) {
        let data = [head, &vec![0x55; bytes]].concat();
        for (number, payload) in data.chunks(184).enumerate() {
            writer.packet(Packet {
                pid: PID,
                unit_start: number == 0,
                payload,
                ..Packet::default()
            });
        }
    }

    fn packets(writer: Writer) -> Vec<[u8; 188]> {
        let bytes = writer.finish();
        bytes.as_chunks().0.to_vec()
    }

    fn steps(packets: &[[u8; 188]]) -> Vec<Step> {
        let mut walk = Walk::begin(&packets[0]).expect("a picture begins");
        packets[1..].iter().map(|it| walk.packet(it)).collect()
    }

    fn picture() -> Vec<u8> {
        synth::pes(1000, &[0, 0, 1, 0x65])
    }

    #[test]
    fn a_picture_ends_where_the_next_begins() {
        let mut writer = Writer::new();
        unit(&mut writer, &picture(), 500);
        writer.null();
        // The rest of a long one, without a stamp and a start code.
        let rest = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 7, 7, 7, 7];
        unit(&mut writer, &rest, 100);
        let aligned = [0, 0, 1, 0xe0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0x41];
        unit(&mut writer, &aligned, 100);
        let steps = steps(&packets(writer));
        use Step::{Ended, Other, Taken};
        assert_eq!(steps, [Taken, Taken, Other, Taken, Ended]);
    }

    #[test]
    fn what_comes_twice_counts_once_and_gaps_break() {
        let mut writer = Writer::new();
        unit(&mut writer, &picture(), 900);
        let whole = packets(writer);
        let twice = [whole[0], whole[0], whole[1], whole[1], whole[2]];
        use Step::{Broken, Other, Repeated, Taken};
        assert_eq!(steps(&twice), [Repeated, Taken, Repeated, Taken]);
        assert_eq!(steps(&[whole[0], whole[2]]), [Broken]);
        let mut scrambled = whole[1];
        scrambled[3] |= 0x80;
        assert_eq!(steps(&[whole[0], scrambled]), [Broken]);
        let mut damaged = whole[1];
        damaged[1] |= 0x80;
        assert_eq!(steps(&[whole[0], damaged, whole[2]]), [Other, Broken]);
        // The next begins: but something in front of it is missing, unless that was announced.
        let begins = |discontinuity: bool| {
            let mut writer = Writer::new();
            writer.packet(Packet {
                pid: PID,
                unit_start: true,
                discontinuity,
                payload: &picture(),
                ..Packet::default()
            });
            let mut begins = packets(writer)[0];
            begins[3] = begins[3] & 0xf0 | 9;
            begins
        };
        assert_eq!(steps(&[whole[0], begins(false)]), [Broken]);
        assert_eq!(steps(&[whole[0], begins(true)]), [Step::Ended]);
    }

    #[test]
    fn a_picture_without_a_stamp_is_none() {
        let begin = |change: fn(&mut [u8; 188])| {
            let mut writer = Writer::new();
            unit(&mut writer, &picture(), 100);
            let mut first = packets(writer)[0];
            change(&mut first);
            Walk::begin(&first).is_some()
        };
        let payload = 188 - picture().len() - 100;
        assert_eq!(payload, 70);
        assert!(begin(|_| ()));
        assert!(!begin(|it| it[70 + 7] = 0), "no stamp");
        assert!(!begin(|it| it[70 + 8] = 4), "a header that is too short");
        assert!(!begin(|it| it[70 + 7] = 0xc0), "half of its stamps");
        assert!(
            !begin(|it| it[70 + 6] |= 0x10),
            "scrambled in its PES packet"
        );
        assert!(!begin(|it| it[3] |= 0xc0), "scrambled");
        assert!(!begin(|it| it[1] |= 0x80), "damaged");
        assert!(!begin(|it| it[1] &= !0x40), "none begins");
        assert!(!begin(|it| it[4] = 200), "beyond the packet");
    }

    #[test]
    fn new_times_and_counters_leave_the_picture_as_it_is() {
        // With both stamps, behind a clock reference and a flag.
        let stamps = [0x31, 0, 1, 0, 3, 0x11, 0, 1, 0, 1];
        let head = [0, 0, 1, 0xe0, 0, 0, 0x80, 0xc0, 10];
        let pes = [&head[..], &stamps, &[7; 40]].concat();
        let mut writer = Writer::new();
        writer.packet(Packet {
            pid: PID,
            unit_start: true,
            random_access: true,
            discontinuity: true,
            pcr: Some(99),
            payload: &pes,
        });
        let before = packets(writer)[0];
        let mut after = before;
        renumber(&mut after, 0xf7, STAMP_WRAP + 0x1_2345_6789);
        assert_eq!((after[3] & 0x0f, before[3] & 0x0f), (7, 0));
        assert_eq!(after[..3], before[..3]);
        assert_eq!((after[4], after[5]), (before[4], 0x40));
        assert_eq!(synth::pcr_of(&after), None);
        let at = 188 - pes.len();
        assert!(after[6..at].iter().all(|&byte| byte == 0xff));
        assert_eq!(after[at..at + 9], head);
        let stamp = |at: usize| {
            let [a, b, c, d, e] = [0, 1, 2, 3, 4].map(|i| u64::from(after[at + i]));
            assert_eq!((a & 1, c & 1, e & 1), (1, 1, 1));
            (
                a >> 4,
                (a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1,
            )
        };
        assert_eq!(stamp(at + 9), (3, 0x1_2345_6789));
        assert_eq!(stamp(at + 14), (1, 0x1_2345_6789));
        assert_eq!(after[at + 19..], before[at + 19..]);
    }

    #[test]
    fn clock_references_are_read_as_they_were_written() {
        for ticks in [0, 299, 300, 27_000_000, STAMP_WRAP * 300 - 1] {
            let packet = clock_reference(0x1abc, 0x35, ticks);
            assert_eq!(synth::pcr_of(&packet), Some(ticks));
            let header = Header::read(&packet);
            assert_eq!((header.pid, header.payload), (0x1abc, 188));
            assert_eq!(packet[3], 0x25);
        }
        let wrapped = clock_reference(1, 0, STAMP_WRAP * 300 + 5);
        assert_eq!(synth::pcr_of(&wrapped), Some(5));
    }
}
