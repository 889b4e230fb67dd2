//! The head of a transport packet (ISO/IEC 13818-1, section 2.4.3.2), with its adaptation field.
//!
//! Read once for each packet of a file, so no more of it than is used. A length that reaches beyond
//! the packet leaves no payload; nothing here can fail.

use super::TS_PACKET_BYTES;

/// The parts of a packet's head that matter here.
pub(in crate::media) struct Header {
    pub(in crate::media) pid: u16,
    pub(in crate::media) unit_start: bool,
    pub(in crate::media) discontinuity: bool,
    pub(in crate::media) random_access: bool,
    pub(in crate::media) pcr: Option<u64>,
    /// Where the payload starts; the packet's end if it has none.
    pub(in crate::media) payload: usize,
}

impl Header {
    pub(in crate::media) fn read(packet: &[u8; TS_PACKET_BYTES]) -> Self {
        let mut header = Self {
            pid: u16::from_be_bytes([packet[1] & 0x1f, packet[2]]),
            unit_start: packet[1] & 0x40 != 0,
            discontinuity: false,
            random_access: false,
            pcr: None,
            payload: if packet[3] & 0x10 != 0 {
                4
            } else {
                TS_PACKET_BYTES
            },
        };
        let adaptation_bytes = usize::from(packet[4]);
        if packet[3] & 0x20 == 0 || adaptation_bytes == 0 {
            header.payload += usize::from(packet[3] & 0x30 == 0x30);
            return header;
        }
        if packet[3] & 0x10 != 0 {
            // A length beyond the packet leaves no payload.
            header.payload = (5 + adaptation_bytes).min(TS_PACKET_BYTES);
        }
        header.discontinuity = packet[5] & 0x80 != 0;
        header.random_access = packet[5] & 0x40 != 0;
        if packet[5] & 0x10 != 0 && (7..=183).contains(&adaptation_bytes) {
            let [b0, b1, b2, b3, b4, b5] = [6, 7, 8, 9, 10, 11].map(|at| u64::from(packet[at]));
            let base = b0 << 25 | b1 << 17 | b2 << 9 | b3 << 1 | b4 >> 7;
            header.pcr = Some(base * 300 + ((b4 & 1) << 8 | b5));
        }
        header
    }
}

/// Whether a packet comes once more (ISO/IEC 13818-1, section 2.4.3.3): only its clock reference
/// may differ.
pub(super) fn is_repeated(
    last: &[u8; TS_PACKET_BYTES],
    packet: &[u8; TS_PACKET_BYTES],
    payload: usize,
) -> bool {
    last[1..3] == packet[1..3] && last[payload..] == packet[payload..]
}
