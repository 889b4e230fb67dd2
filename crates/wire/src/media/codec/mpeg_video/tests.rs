//! MPEG video: what comes back of packets, and the rules of RFC 2250.

use std::ops::Range;

use proptest::prelude::*;

use super::super::testing::{Packet, break_configuration, hex, packets, parts};
use super::*;

/// What ffmpeg makes of 720 x 576 by MPEG-2, and of 352 x 288 by MPEG-1.
const MPEG_2: &str = "000001b32d024013ffffe228000001b5148a00010000";
const MPEG_1: &str = "000001b316012013ffffe088";

#[test]
fn configurations_tell_codec_and_size() {
    let told = |bytes: &[u8]| {
        let codec = codec(&[bytes]).unwrap();
        assert_eq!(
            (codec.encoding, codec.clock_hz, codec.payload_type),
            ("MPV", 90_000, Some(32))
        );
        assert_eq!(codec.format_parameters, None);
        (codec.codec_string, codec.dimensions)
    };
    assert_eq!(told(&hex(MPEG_2)), ("mp4v.61".into(), Some((720, 576))));
    assert_eq!(told(&hex(MPEG_1)), ("mp4v.6a".into(), Some((352, 288))));
    assert_eq!(told(&[]), ("mp4v.61".into(), None));
    assert_eq!(codec(&[]).unwrap().codec_string, "mp4v.61");
    let mut large = hex(MPEG_2);
    large[17] |= 1;
    large[18] |= 0b0010_0000;
    assert_eq!(told(&large).1, Some((720 + 8192, 576 + 4096)));
}

#[test]
fn configurations_that_cannot_be_are_refused() {
    let error = |configuration: &[u8]| codec(&[&[], configuration]).unwrap_err().to_string();
    let said = "MPEG video: a configuration without a sequence header";
    assert_eq!(error(&[7]), said);
    let mut long = hex(MPEG_2);
    long.resize(CONFIGURATION_BYTES_MAX, 0);
    codec(&[&long]).unwrap();
    long.push(0);
    assert_eq!(
        error(&long),
        "MPEG video: a configuration of more than 1024 bytes"
    );
    for text in [MPEG_1, MPEG_2] {
        break_configuration(&hex(text), |bytes| drop(codec(&[bytes])));
    }
}

/// A stream to be packetized: what its elements are and where, and its pictures' bits.
#[derive(Clone, Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    elements: Vec<Element>,
}

#[derive(Clone, Debug)]
struct Element {
    is_slice: bool,
    is_sequence: bool,
    range: Range<usize>,
    picture: u32,
}

impl Stream {
    fn push(&mut self, is_slice: bool, bytes: &[u8], picture: u32) {
        let start = self.bytes.len();
        self.bytes.extend(bytes);
        self.elements.push(Element {
            is_slice,
            is_sequence: bytes[3] == SEQUENCE,
            range: start..start + bytes.len(),
            picture,
        });
    }
}

/// A picture of `slices` of so many bytes each; `of_type` is I, P or B, from 1 on.
fn picture_of(stream: &mut Stream, temporal_reference: u32, of_type: u32, slices: &[usize]) {
    // Forward 0 and 7, backward 1 and 5, as far as the type has them.
    let vectors = [0, 0, 0x7 << 7, 0x7 << 7 | 0b1101 << 3][of_type as usize];
    let bits =
        u64::from(temporal_reference) << 30 | u64::from(of_type) << 27 | 0xffff << 11 | vectors;
    let header = [&[0, 0, 1, 0][..], &bits.to_be_bytes()[3..], &[0xff]].concat();
    let told = temporal_reference << 16 | of_type << 8 | [0, 0, 0x07, 0xd7][of_type as usize];
    stream.push(false, &header, told);
    stream.push(false, &hex("000001b58ffff34180"), told);
    for (row, &bytes) in (1..).zip(slices) {
        let fill = (0x11..0x75_u8).cycle().take(bytes);
        let slice: Vec<_> = [0, 0, 1, row].into_iter().chain(fill).collect();
        stream.push(true, &slice, told);
    }
}

/// One access unit, perhaps of two fields, perhaps with a header of its sequence and of a group.
fn streams() -> impl Strategy<Value = Stream> {
    let bytes = prop_oneof![4 => 1..20_usize, 3 => 1..300_usize, 1 => 1..4000_usize];
    let slices = prop::collection::vec(bytes, 1..20);
    let field = (0..1024_u32, 1..4_u32, slices);
    let fields = prop::collection::vec(field, 1..3);
    (any::<bool>(), any::<bool>(), fields, any::<bool>()).prop_map(
        |(sequence, group, fields, end)| {
            let mut stream = Stream::default();
            if sequence {
                stream.push(false, &hex(MPEG_2), 0);
            }
            if group {
                stream.push(false, &hex("000001b800080040"), 0);
            }
            for (temporal_reference, of_type, slices) in fields {
                picture_of(&mut stream, temporal_reference, of_type, &slices);
            }
            if let Some(last) = stream.elements.last_mut().filter(|_| end) {
                stream.bytes.extend([0, 0, 1, SEQUENCE_END]);
                last.range.end += 4;
            }
            let first = stream
                .elements
                .iter()
                .find(|it| it.picture != 0)
                .map_or(0, |it| it.picture);
            let before = stream.elements.iter_mut().take_while(|it| it.picture == 0);
            before.for_each(|it| it.picture = first);
            stream
        },
    )
}

/// Whether packets of that stream keep the rules of RFC 2250, sections 3.1 and 3.4.
fn check(packets: &[Packet], stream: &Stream, payload_bytes_max: usize) {
    let mut start = 0;
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(
            packet.marker,
            number + 1 == packets.len(),
            "the marker is on the last"
        );
        let (header, payload) = packet.payload.split_first_chunk().unwrap();
        let header = u32::from_be_bytes(*header);
        let end = start + payload.len();
        assert_eq!(
            payload,
            &stream.bytes[start..end],
            "the bytes in their order"
        );
        let elements = stream.elements.iter();
        let within = elements.filter(|it| it.range.start < end && it.range.end > start);
        let within: Vec<_> = within.collect();
        let slices: Vec<_> = within.iter().filter(|it| it.is_slice).collect();
        let starts = |it: &Element| it.range.start >= start;
        for pair in within.windows(2) {
            let order = (pair[0].is_slice, pair[1].is_slice);
            assert_ne!(order, (true, false), "headers are not behind slices");
            assert!(
                order != (true, true) || starts(pair[0]),
                "no slice behind the end of one"
            );
        }
        let is_sequence = within.iter().any(|it| it.is_sequence && starts(it));
        let begins = slices.first().is_some_and(|it| starts(it));
        let ends = within
            .last()
            .is_some_and(|it| it.is_slice && it.range.end == end);
        let bits = [is_sequence, begins, ends].map(u32::from);
        let expected = bits[0] << 13 | bits[1] << 12 | bits[2] << 11;
        let picture = within.last().unwrap().picture;
        assert_eq!(header, expected | picture, "{header:08x} {within:?}");
        let next = stream.elements.iter().find(|it| it.range.start == end);
        if let Some(next) = next.filter(|it| it.is_slice && slices.iter().all(|it| starts(it))) {
            let bytes = packet.payload.len() + next.range.len();
            assert!(
                bytes + SLICES_BYTES_MAX > payload_bytes_max,
                "one slice more fits"
            );
        }
        start = end;
    }
    assert_eq!(start, stream.bytes.len());
}

proptest! {
    #[test]
    fn what_was_packetized_comes_back(
        stream in streams(),
        payload_bytes_max in PAYLOAD_BYTES_MIN..1500,
        is_sync in any::<bool>(),
        entry in 0..3_u16,
    ) {
        let packetizer = codec(&[&[], &hex(MPEG_1)]).unwrap().packetizer;
        let found = packets(&*packetizer, &[&stream.bytes], is_sync, entry, payload_bytes_max);
        let mut expected = stream.clone();
        if is_sync && entry == 1 && !stream.elements[0].is_sequence {
            expected = Stream::default();
            expected.push(false, &hex(MPEG_1), stream.elements[0].picture);
            let moved = expected.bytes.len();
            expected.bytes.extend(&stream.bytes);
            expected.elements.extend(stream.elements.into_iter().map(|mut it| {
                it.range = it.range.start + moved..it.range.end + moved;
                it
            }));
        }
        check(&found, &expected, payload_bytes_max);
    }

    #[test]
    fn random_bytes_never_panic(
        bytes in prop::collection::vec(
            prop_oneof![4 => Just(0), 3 => Just(1), 1 => any::<u8>()], 1..600,
        ),
        payload_bytes_max in PAYLOAD_BYTES_MIN..200,
    ) {
        drop(codec(&[&bytes]));
        let packetizer = codec(&[&hex(MPEG_2)]).unwrap().packetizer;
        let found = packets(&*packetizer, &[&bytes], true, 0, payload_bytes_max);
        let payloads = found.iter().flat_map(|packet| &packet.payload[4..]);
        let payloads: Vec<_> = payloads.copied().collect();
        prop_assert!(payloads.ends_with(&bytes));
    }
}

/// Slices go together up to 60 bytes, which fit any packet.
#[test]
fn small_slices_are_one_part() {
    let packetizer = codec(&[]).unwrap().packetizer;
    let lengths = |slices: &[usize]| {
        let mut stream = Stream::default();
        picture_of(&mut stream, 1, 3, slices);
        let parts = parts(&*packetizer, &stream.bytes).unwrap();
        assert_eq!(parts[0].0, 19 << 2 | 1);
        parts[1..]
            .iter()
            .map(|part| part.0 >> 2)
            .collect::<Vec<_>>()
    };
    assert_eq!(lengths(&[26, 26]), [60]);
    assert_eq!(lengths(&[26, 27]), [30, 31]);
    assert_eq!(lengths(&[16, 16, 16, 16]), [60, 20]);
    assert_eq!(lengths(&[100, 16, 16, 100]), [104, 40, 104]);
}

/// One picture of two slices that are small and one that is larger than a packet.
#[test]
fn a_large_slice_begins_behind_headers_alone() {
    let packetizer = codec(&[]).unwrap().packetizer;
    let lengths = |slices: &[usize]| {
        let mut stream = Stream::default();
        picture_of(&mut stream, 1, 1, slices);
        let found = packets(&*packetizer, &[&stream.bytes], true, 0, 200);
        found.iter().map(|it| it.payload.len()).collect::<Vec<_>>()
    };
    // Of the slice 177, 196 and 31 bytes.
    assert_eq!(lengths(&[400]), [200, 200, 35]);
    // 4 + 19 + 74; 196, 196, 12; 4 + 74.
    assert_eq!(lengths(&[70, 400, 70]), [97, 200, 200, 16, 78]);
}
