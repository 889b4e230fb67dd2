//! Matroska files made to order, for tests.

use super::ebml::id;

/// An element, its size told in as few bytes as can be.
pub(super) fn element(id: u32, body: &[u8]) -> Vec<u8> {
    let bytes = (1..=8).find(|bytes| (body.len() as u64) < (1 << (7 * bytes)) - 1);
    sized(id, body.len() as u64, bytes.unwrap(), body)
}

/// An element that says that it has `size` bytes, in so many bytes.
pub(super) fn sized(id: u32, size: u64, size_bytes: usize, body: &[u8]) -> Vec<u8> {
    let mut out = id.to_be_bytes();
    let id_bytes = 4 - id.leading_zeros() as usize / 8;
    out.rotate_left(4 - id_bytes);
    let marked = size | 1 << (7 * size_bytes);
    let size = &marked.to_be_bytes()[8 - size_bytes..];
    [&out[..id_bytes], size, body].concat()
}

/// An element of unknown size.
pub(super) fn unsized_element(id: u32, body: &[u8]) -> Vec<u8> {
    sized(id, (1 << 56) - 1, 8, body)
}

pub(super) fn integer(id: u32, number: u64) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let zeros = (number.leading_zeros() as usize / 8).min(7);
    element(id, &bytes[zeros..])
}

/// What each such file begins with.
pub(super) fn header() -> Vec<u8> {
    let of = [
        integer(id::READ_VERSION, 1),
        element(id::DOC_TYPE, b"matroska"),
        integer(id::DOC_TYPE_READ_VERSION, 2),
    ];
    element(id::EBML, &of.concat())
}

pub(super) const VP8: &str = "V_VP8";
pub(super) const AVC: &str = "V_MPEG4/ISO/AVC";
pub(super) const AAC: &str = "A_AAC";

/// A track of this codec, as H.264 with lengths of two bytes, with other elements in its entry.
pub(super) fn track(number: u64, codec: &str, more: &[u8]) -> Vec<u8> {
    let kind = match codec.as_bytes()[0] {
        b'V' => 1,
        b'A' => 2,
        _ => 0x11,
    };
    let private = match codec {
        AVC => &[1, 1, 2, 3, 0xfd, 0xe1, 0, 4, 0x67, 1, 2, 3, 1, 0, 1, 0x68][..],
        AAC => &[0x11, 0x90],
        _ => &[],
    };
    let of = [
        integer(0xd7, number),
        integer(0x83, kind),
        element(0x86, codec.as_bytes()),
        element(0x63a2, private),
        more.to_vec(),
    ];
    element(0xae, &of.concat())
}

pub(super) fn tracks(entries: &[Vec<u8>]) -> Vec<u8> {
    element(id::TRACKS, &entries.concat())
}

pub(super) const KEYFRAME: u8 = 0x80;

/// What is in a block.
pub(super) fn block(track: u8, time: i16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = time.to_be_bytes();
    [&[0x80 | track, high, low, flags][..], payload].concat()
}

pub(super) fn simple(track: u8, time: i16, flags: u8, payload: &[u8]) -> Vec<u8> {
    element(id::SIMPLE_BLOCK, &block(track, time, flags, payload))
}

/// A block in a group, with other elements behind it.
pub(super) fn group(track: u8, time: i16, payload: &[u8], more: &[u8]) -> Vec<u8> {
    let block = element(id::BLOCK, &block(track, time, 0, payload));
    element(id::BLOCK_GROUP, &[&block[..], more].concat())
}

pub(super) fn cluster(time: u64, blocks: &[Vec<u8>]) -> Vec<u8> {
    let body = [integer(id::TIMESTAMP, time), blocks.concat()].concat();
    element(id::CLUSTER, &body)
}

/// A file of these elements.
pub(super) fn file(segment: &[Vec<u8>]) -> Vec<u8> {
    [header(), element(id::SEGMENT, &segment.concat())].concat()
}

/// NAL units, each with its length in two bytes in front.
pub(super) fn nals(lengths: &[u16]) -> Vec<u8> {
    let nal = |&length: &u16| {
        let mut nal = vec![0x41; usize::from(length) + 2];
        nal[..2].copy_from_slice(&length.to_be_bytes());
        nal
    };
    lengths.iter().flat_map(nal).collect()
}
