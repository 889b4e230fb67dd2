//! OBUs as they come in packets, and the same as samples have them: with their sizes.

use super::obu::{FORBIDDEN, HAS_EXTENSION, HAS_SIZE, Kind, leb128, to_leb128};

/// Types of OBUs that begin a frame (AV1 Bitstream & Decoding Process Specification, section
/// 6.2.2).
const FRAME_HEADER: u8 = 3;
const FRAME: u8 = 6;

/// An OBU of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct PackedObu<'a> {
    /// What it is for who puts samples together.
    pub(in crate::media) role: ObuRole,
    header: &'a [u8],
    payload: &'a [u8],
}

/// What an OBU is for who puts samples together.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) enum ObuRole {
    /// Samples have none of it.
    LeftOut,
    SequenceHeader,
    /// It begins a frame, which may be a key frame that is shown.
    Frame {
        is_key: bool,
    },
    Other,
}

impl<'a> PackedObu<'a> {
    /// Reads one that takes all of `obu`, whether it has its size or not; `None` if it is broken.
    pub(in crate::media) fn read(obu: &'a [u8]) -> Option<Self> {
        let first = *obu.first()?;
        if first & FORBIDDEN != 0 {
            return None;
        }
        let header_bytes = if first & HAS_EXTENSION == 0 { 1 } else { 2 };
        let (header, mut payload) = obu.split_at_checked(header_bytes)?;
        if first & HAS_SIZE != 0 {
            let (bytes, used) = leb128(payload).ok()?;
            let end = used as usize + bytes as usize;
            payload = payload.get(used as usize..end)?;
        }
        let role = match (Kind::of(first, header[header_bytes - 1]), first >> 3 & 15) {
            (Kind::LeftOut, _) => ObuRole::LeftOut,
            (Kind::SequenceHeader, _) => ObuRole::SequenceHeader,
            // `show_existing_frame`, `frame_type`, `show_frame` (section 5.9.2).
            (_, FRAME_HEADER | FRAME) => ObuRole::Frame {
                is_key: payload.first()? & 0xf0 == 0x10,
            },
            _ => ObuRole::Other,
        };
        Some(Self {
            role,
            header,
            payload,
        })
    }

    /// Puts it behind a sample.
    pub(in crate::media) fn write(&self, sample: &mut Vec<u8>) {
        let (size, size_bytes) = to_leb128(self.payload.len());
        sample.push(self.header[0] | HAS_SIZE);
        sample.extend_from_slice(&self.header[1..]);
        sample.extend_from_slice(&size[..size_bytes]);
        sample.extend_from_slice(self.payload);
    }

    /// What it has beside its header.
    pub(in crate::media) fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// An element of a packet whose length stands in front of it (section 4.3 of the payload format),
/// and what is behind; `None` if there is not so much.
pub(in crate::media) fn element(packet: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bytes, used) = leb128(packet).ok()?;
    packet
        .get(used as usize..)?
        .split_at_checked(bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obus_get_their_sizes_back() {
        let written = |obu: &[u8]| {
            let read = PackedObu::read(obu)?;
            let mut sample = Vec::new();
            read.write(&mut sample);
            Some((read.role, sample))
        };
        let key = ObuRole::Frame { is_key: true };
        assert_eq!(
            written(&[0x30, 0x10, 7]),
            Some((key, vec![0x32, 2, 0x10, 7]))
        );
        // One that has a size already, and more behind it; with an extension.
        let other = ObuRole::Frame { is_key: false };
        let sized = [0x1e, 0x08, 1, 0x20, 9];
        assert_eq!(written(&sized), Some((other, vec![0x1e, 0x08, 1, 0x20])));
        assert_eq!(written(&[0x08, 5]).unwrap().0, ObuRole::SequenceHeader);
        assert_eq!(written(&[0x10]).unwrap().0, ObuRole::LeftOut);
        assert_eq!(written(&[0x28, 5]).unwrap().0, ObuRole::Other);
        for broken in [&[][..], &[0xb0, 1], &[0x34], &[0x32, 3, 1], &[0x30]] {
            assert_eq!(written(broken), None, "{broken:?}");
        }
    }

    #[test]
    fn elements_have_their_lengths_in_front() {
        assert_eq!(element(&[2, 7, 8, 9]), Some((&[7, 8][..], &[9][..])));
        assert_eq!(element(&[0x80, 0x00]), Some((&[][..], &[][..])));
        assert_eq!(element(&[3, 7, 8]), None);
        assert_eq!(element(&[0x80]), None);
    }
}
