//! The bytes of one elementary stream in the packets that carry it.
//!
//! A [`Reader`] is shown transport packets one after the other and says what of each belongs to the
//! stream: no adaptation field, no header of a PES packet (ISO/IEC 13818-1, section 2.4.3.6),
//! nothing that is scrambled, and no packet that was sent twice. It looks no further back than to
//! the packet before, so that one that begins in mid-stream finds the same.
//!
//! `PES_packet_length` is not looked at: what follows the header up to the next is the stream's,
//! whatever a muxer believed beforehand.

use crate::media::ts::header::{Header, is_repeated};
use crate::media::ts::index::{SYNC_BYTE, TS_PACKET_BYTES};

/// Bytes of a PES packet's header that say how long it is.
const START_BYTES: usize = 9;

/// The time stamps of a PES packet, in 90 kHz, modulo 2^33.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stamps {
    /// When the access unit that begins first in it is shown.
    pub(super) shown: u64,
    /// When it is decoded.
    pub(super) decoded: u64,
}

/// What a transport packet has of the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Brought {
    /// Where in the packet the stream's bytes begin; they go on to its end.
    pub(super) start: usize,
    /// The stamps, if a PES packet's payload begins there that has some.
    pub(super) stamps: Option<Stamps>,
    /// Whether bytes are missing in front.
    pub(super) lost: bool,
}

/// Takes a stream out of its packets.
#[derive(Clone, Debug)]
pub(super) struct Reader {
    pid: u16,
    /// The last packet that had a payload.
    last: Option<[u8; TS_PACKET_BYTES]>,
    state: State,
    /// Of the header that is being read.
    header: Vec<u8>,
    lost: bool,
    /// Packets whose payload is scrambled, and such PES packets.
    scrambled: u64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// No PES packet is known that what comes belongs to.
    Outside,
    Header,
    Inside,
}

impl Reader {
    /// At the start of a file.
    pub(super) fn new(pid: u16) -> Self {
        Self {
            pid,
            last: None,
            state: State::Outside,
            header: Vec::new(),
            lost: false,
            scrambled: 0,
        }
    }

    /// Behind the head of a packet of the stream in mid-file, in the payload of a PES packet.
    pub(super) fn inside(pid: u16, packet: [u8; TS_PACKET_BYTES]) -> Self {
        Self {
            last: Some(packet),
            state: State::Inside,
            ..Self::new(pid)
        }
    }

    /// How much could not be read because it is scrambled: transport packets, PES packets.
    pub(super) fn scrambled(&self) -> u64 {
        self.scrambled
    }

    /// What the next packet of the file has of the stream; `None` if nothing.
    pub(super) fn packet(&mut self, packet: &[u8; TS_PACKET_BYTES]) -> Option<Brought> {
        // Of a packet with an error not even the pid can be trusted.
        if packet[0] != SYNC_BYTE || packet[1] & 0x80 != 0 {
            return None;
        }
        let header = Header::read(packet);
        if header.pid != self.pid || packet[3] & 0x10 == 0 {
            return None;
        }
        if packet[3] & 0xc0 != 0 {
            self.scrambled += 1;
            return None;
        }
        if let Some(last) = &self.last {
            let step = (packet[3].wrapping_sub(last[3])) & 0x0f;
            if step == 0 && is_repeated(last, packet, header.payload) {
                return None;
            }
            self.lost |= step != 1 && !header.discontinuity;
        }
        self.last = Some(*packet);
        if self.lost && self.state == State::Header {
            self.state = State::Outside;
        }
        if header.unit_start {
            self.header.clear();
            self.state = State::Header;
        }
        let (start, stamps) = match self.state {
            State::Outside => return None,
            State::Inside => (header.payload, None),
            State::Header => {
                let used = self.take_header(&packet[header.payload..])?;
                (header.payload + used, stamps(&self.header))
            }
        };
        let brought = Brought {
            start,
            stamps,
            lost: std::mem::take(&mut self.lost),
        };
        Some(brought)
    }

    /// Takes the header's bytes that a payload begins with, and says how many they are once it is
    /// whole. What has none that can be understood is passed over up to the next PES packet.
    fn take_header(&mut self, payload: &[u8]) -> Option<usize> {
        let mut used = 0;
        while self.header.len() < self.header_bytes() {
            let missing = self.header_bytes() - self.header.len();
            let taken = payload.get(used..).unwrap_or_default();
            let taken = &taken[..taken.len().min(missing)];
            if taken.is_empty() {
                return None;
            }
            used += taken.len();
            self.header.extend_from_slice(taken);
        }
        let [0, 0, 1, id, _, _, marks, ..] = self.header[..] else {
            self.state = State::Outside;
            return None;
        };
        // These have no such header: maps, padding, private stream 2, ECM, EMM, DSM-CC, H.222.1
        // type E, directory.
        let is_plain = matches!(id, 0xbc | 0xbe | 0xbf | 0xf0 | 0xf1 | 0xf2 | 0xf8 | 0xff);
        let is_scrambled = marks & 0x30 != 0;
        self.state = State::Inside;
        if is_plain || marks & 0xc0 != 0x80 || is_scrambled {
            self.scrambled += u64::from(is_scrambled && !is_plain);
            self.state = State::Outside;
            return None;
        }
        Some(used)
    }

    /// How long the header is, as far as is known.
    fn header_bytes(&self) -> usize {
        let stuffed = self.header.get(START_BYTES - 1);
        START_BYTES + stuffed.map_or(0, |&bytes| usize::from(bytes))
    }
}

/// The stamps in a whole header.
fn stamps(header: &[u8]) -> Option<Stamps> {
    let at = |at: usize| {
        let bytes = header.get(START_BYTES + at..)?.first_chunk::<5>()?;
        let [a, b, c, d, e] = bytes.map(u64::from);
        Some((a >> 1 & 7) << 30 | b << 22 | c >> 1 << 15 | d << 7 | e >> 1)
    };
    let shown = at(0)?;
    let decoded = match header.get(7)? >> 6 {
        2 => shown,
        3 => at(5)?,
        _ => return None,
    };
    Some(Stamps { shown, decoded })
}
