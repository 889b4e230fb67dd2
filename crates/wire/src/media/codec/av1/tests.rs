//! AV1: what comes back of packets, and what configurations tell.

use std::slice;

use proptest::prelude::*;

use super::super::testing;
use super::super::testing::receivers::av1 as depacketized;
use super::*;
use crate::media::colour::VideoRange;
use crate::media::packetizer::{PARTS_MAX, SAMPLE_BYTES_MAX};

const SEQUENCE_HEADER: u8 = 1;
const DELIMITER: u8 = 2;
const METADATA: u8 = 5;
const FRAME: u8 = 6;
const TILE_LIST: u8 = 8;
const PADDING: u8 = 15;

/// How an OBU of a test tells its size.
#[derive(Clone, Copy, Debug)]
enum Size {
    /// Not at all: it ends with the sample.
    Untold,
    /// In as many bytes as need be, and so many more.
    Told(usize),
}

#[derive(Clone, Debug)]
struct TestObu {
    obu_type: u8,
    extension: Option<u8>,
    size: Size,
    payload: Vec<u8>,
}

impl TestObu {
    fn new(obu_type: u8, payload_bytes: usize) -> Self {
        Self {
            obu_type,
            extension: None,
            size: Size::Told(0),
            payload: (0..=255).cycle().take(payload_bytes).collect(),
        }
    }

    /// Of this spatial layer.
    fn layered(self, layer: u8) -> Self {
        Self {
            extension: Some(layer << 3),
            ..self
        }
    }

    fn header(&self, has_size: bool) -> Vec<u8> {
        let extension = u8::from(self.extension.is_some());
        let mut header = vec![self.obu_type << 3 | extension << 2 | u8::from(has_size) << 1];
        header.extend(self.extension);
        header
    }

    fn in_sample(&self) -> Vec<u8> {
        let Size::Told(more) = self.size else {
            return [self.header(false), self.payload.clone()].concat();
        };
        let mut size = Vec::new();
        let mut left = self.payload.len();
        while left >= 0x80 {
            size.push(left.to_le_bytes()[0] | 0x80);
            left >>= 7;
        }
        size.push(left.to_le_bytes()[0]);
        for _ in 0..more {
            *size.last_mut().unwrap() |= 0x80;
            size.push(0);
        }
        [self.header(true), size, self.payload.clone()].concat()
    }

    /// As a receiver is to have it; `None` if it is not for RTP.
    fn in_packets(&self) -> Option<Vec<u8>> {
        let is_sent = ![DELIMITER, TILE_LIST, PADDING].contains(&self.obu_type);
        is_sent.then(|| [self.header(false), self.payload.clone()].concat())
    }
}

fn sample_of(obus: &[TestObu]) -> Vec<u8> {
    obus.iter().flat_map(TestObu::in_sample).collect()
}

fn sent(obus: &[TestObu]) -> Vec<Vec<u8>> {
    obus.iter().filter_map(TestObu::in_packets).collect()
}

/// An av1C of profile 0, level 4.0, main tier, 8 bits, with these OBUs.
fn av1c(obus: &[TestObu]) -> Vec<u8> {
    [vec![0x81, 0x08, 0x0c, 0x00], sample_of(obus)].concat()
}

fn packetizer(configurations: &[&[u8]]) -> Arc<dyn Packetizer> {
    codec(configurations).unwrap().packetizer
}

#[test]
fn a_frame_is_cut_to_one_size_without_its_size_field() {
    let frame = TestObu::new(FRAME, 130);
    let packetizer = packetizer(&[&av1c(&[])]);
    let sample = frame.in_sample();
    assert_eq!(sample[..4], [0x32, 0x82, 0x01, 0]);
    let packets = testing::packets(&*packetizer, &[&sample], false, 0, 64);
    let starts: Vec<_> = packets.iter().map(|it| it.payload[..3].to_vec()).collect();
    assert_eq!(starts, [[0x50, 0x30, 0], [0xd0, 62, 63], [0x90, 125, 126]]);
    let lengths: Vec<_> = packets.iter().map(|it| it.payload.len()).collect();
    assert_eq!(lengths, [64, 64, 6]);
}

#[test]
fn three_obus_at_most_share_a_packet() {
    let obus = [3, 4, 5, 6].map(|bytes| TestObu::new(METADATA, bytes));
    let packetizer = packetizer(&[&av1c(&[])]);
    let packets = testing::packets(&*packetizer, &[&sample_of(&obus)], false, 0, 64);
    let first = [
        0x30, 4, 0x28, 0, 1, 2, 5, 0x28, 0, 1, 2, 3, 0x28, 0, 1, 2, 3, 4,
    ];
    assert_eq!(packets[0].payload, first);
    assert_eq!(packets[1].payload, [0x10, 0x28, 0, 1, 2, 3, 4, 5]);
    assert_eq!(packets.len(), 2);
}

/// Bytes of the second OBU in the first packet, whose first OBU has so many bytes.
fn second_begins_with(first_bytes: usize) -> usize {
    let obus = [
        TestObu::new(METADATA, first_bytes - 1),
        TestObu::new(FRAME, 90),
    ];
    let packetizer = packetizer(&[&av1c(&[])]);
    let packets = testing::packets(&*packetizer, &[&sample_of(&obus)], false, 0, 64);
    assert_eq!(depacketized(&packets).0, sent(&obus));
    match packets[0].payload[0] >> 4 & 3 {
        2 => packets[0].payload.len() - 2 - first_bytes,
        _ => 0,
    }
}

#[test]
fn an_obu_begins_with_two_bytes_or_in_the_next_packet() {
    assert_eq!(
        [59, 60, 61, 62, 63, 64].map(second_begins_with),
        [3, 2, 0, 0, 0, 0]
    );
}

#[test]
fn what_means_nothing_in_rtp_is_left_out() {
    let obus = [DELIMITER, SEQUENCE_HEADER, PADDING, TILE_LIST, FRAME, 9];
    let obus = obus.map(|obu_type| TestObu::new(obu_type, 7));
    let packetizer = packetizer(&[&av1c(&[])]);
    let packets = testing::packets(&*packetizer, &[&sample_of(&obus)], true, 0, 64);
    let (received, _) = depacketized(&packets);
    let types: Vec<_> = received.iter().map(|obu| obu[0] >> 3).collect();
    assert_eq!(types, [SEQUENCE_HEADER, FRAME, 9]);
}

#[test]
fn of_nothing_but_a_delimiter_it_is_sent() {
    let packetizer = packetizer(&[&av1c(&[])]);
    for sample in [&[0x12, 0][..], &[0x7a, 3, 1, 2, 3], &[]] {
        let packets = testing::packets(&*packetizer, &[sample], false, 0, 64);
        assert_eq!(packets[0].payload, [0x10, 0x10]);
        assert_eq!(packets.len(), 1);
    }
}

#[test]
fn the_configuration_goes_in_front_of_sync_samples() {
    let header = TestObu::new(SEQUENCE_HEADER, 11);
    let other = TestObu::new(SEQUENCE_HEADER, 12);
    let metadata = TestObu::new(METADATA, 70);
    let frame = TestObu::new(FRAME, 20);
    let first = av1c(&[header.clone(), metadata.clone()]);
    let packetizer = packetizer(&[&first, &av1c(slice::from_ref(&other))]);
    let received = |obus: &[TestObu], is_sync, entry| {
        let packets = testing::packets(&*packetizer, &[&sample_of(obus)], is_sync, entry, 64);
        depacketized(&packets)
    };
    let alone = [frame.clone()];
    let expected = sent(&[header.clone(), metadata, frame.clone()]);
    assert_eq!(received(&alone, true, 0), (expected, true));
    assert_eq!(
        received(&alone, true, 1),
        (sent(&[other, frame.clone()]), true)
    );
    assert_eq!(
        received(&alone, true, 2),
        (sent(&alone), true),
        "no such entry"
    );
    assert_eq!(received(&alone, false, 0), (sent(&alone), false));
    let brought = [header, frame];
    assert_eq!(
        received(&brought, true, 1),
        (sent(&brought), true),
        "its own"
    );
}

#[test]
fn layers_are_in_packets_of_their_own() {
    let obus = [
        TestObu::new(METADATA, 5),
        TestObu::new(FRAME, 10).layered(0),
        TestObu::new(FRAME, 10).layered(1),
        TestObu::new(METADATA, 5),
        TestObu::new(FRAME, 10).layered(1),
    ];
    let packetizer = packetizer(&[&av1c(&[])]);
    let packets = testing::packets(&*packetizer, &[&sample_of(&obus)], false, 0, 1400);
    let elements: Vec<_> = packets.iter().map(|it| it.payload[0] >> 4 & 3).collect();
    assert_eq!(elements, [2, 3]);
    assert_eq!(depacketized(&packets).0, sent(&obus));
}

#[test]
fn layers_of_the_configuration_are_kept_apart_too() {
    let of_configuration = TestObu::new(METADATA, 5).layered(1);
    let frame = TestObu::new(FRAME, 10).layered(0);
    let packetizer = packetizer(&[&av1c(slice::from_ref(&of_configuration))]);
    let sample = sample_of(slice::from_ref(&frame));
    let packets = testing::packets(&*packetizer, &[&sample], true, 0, 1400);
    assert_eq!(packets.len(), 2);
    assert_eq!(depacketized(&packets).0, sent(&[of_configuration, frame]));
}

#[test]
fn a_sample_of_one_usual_obu_is_known_by_its_size() {
    let packetizer = packetizer(&[&av1c(&[])]);
    for payload_bytes in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152] {
        let sample = TestObu::new(FRAME, payload_bytes).in_sample();
        let parts = testing::parts(&*packetizer, &sample).unwrap();
        let only = packetizer.only_part(u32::try_from(sample.len()).unwrap());
        assert_eq!(only, Some(parts[0].0), "{payload_bytes}");
        assert_eq!(parts.len(), 1);
    }
    // Of so many bytes there is none: a size of one byte is too small, one of two too large.
    for bytes in [0, 1, 130, 16_387] {
        assert_eq!(packetizer.only_part(bytes), None);
    }
}

#[test]
fn the_media_description_tells_profile_level_and_tier() {
    let told = codec(&[&[0x81, 0x04, 0x0c, 0]]).unwrap();
    assert_eq!((told.encoding, told.clock_hz), ("AV1", 90_000));
    let parameters = told.format_parameters.as_deref();
    assert_eq!(parameters, Some("profile=0;level-idx=4;tier=0"));
    assert_eq!(told.codec_string, "av01.0.04M.08");
    let told = codec(&[&[0x81, 0x2d, 0xc0, 0], &[0x81, 0x50, 0x60, 0]]).unwrap();
    let parameters = told.format_parameters.as_deref();
    assert_eq!(parameters, Some("profile=2;level-idx=16;tier=1"));
    assert_eq!(told.codec_string, "av01.1.13H.10");
    let told = codec(&[&[0x81, 0x50, 0x60, 0]]).unwrap();
    assert_eq!(told.codec_string, "av01.2.16M.12");
}

/// As libaom writes it of 320 x 180 in BT.2020 and PQ.
#[test]
fn the_sequence_header_tells_size_and_range() {
    let av1c = testing::hex("81004c000a0e000000043cfeccdaf95091009040");
    let told = codec(&[&av1c]).unwrap();
    assert_eq!(told.dimensions, Some((320, 180)));
    assert_eq!(told.video_range, Some(VideoRange::Pq));
    let none = codec(&[&av1c[..4]]).unwrap();
    assert_eq!((none.dimensions, none.video_range), (None, None));
    let both = codec(&[&av1c[..4], &av1c]).unwrap();
    assert_eq!(both.video_range, Some(VideoRange::Pq));
    testing::break_configuration(&av1c, |broken| drop(codec(&[broken])));
}

#[test]
fn broken_configurations_are_told_in_words() {
    let told = |av1c: &[u8]| codec(&[av1c]).unwrap_err().to_string();
    assert_eq!(codec(&[]).unwrap_err().to_string(), "AV1: no av1C");
    assert_eq!(told(&[0x81, 0, 0]), "AV1: an av1C of 3 bytes");
    let wrong = "AV1: an av1C that begins with 0x01 instead of 0x81";
    assert_eq!(told(&[0x01, 0, 0, 0]), wrong);
    assert_eq!(told(&[0x81, 0x60, 0, 0]), "AV1: profile 3");
    let beyond = "a part of 7 bytes in a sample that has 3 left";
    assert_eq!(told(&[0x81, 0, 0, 0, 0x0a, 5, 0]), beyond);
    let well = av1c(&[
        TestObu::new(SEQUENCE_HEADER, 11),
        TestObu::new(METADATA, 130),
    ]);
    testing::break_configuration(&well, |broken| drop(codec(&[broken])));
}

#[test]
fn configurations_are_bounded() {
    let obus = |count| av1c(&vec![TestObu::new(METADATA, 1); count]);
    assert!(codec(&[&obus(16)]).is_ok());
    let told = codec(&[&obus(17)]).unwrap_err().to_string();
    assert_eq!(told, "AV1: an av1C of more than 16 OBUs");
    let of_bytes = |bytes: usize| {
        let mut av1c = av1c(&[TestObu::new(METADATA, bytes - 8)]);
        av1c.resize(bytes, 0);
        av1c
    };
    assert!(codec(&[&of_bytes(16 << 10)]).is_ok());
    let told = codec(&[&of_bytes((16 << 10) + 1)]).unwrap_err().to_string();
    assert_eq!(told, "AV1: an av1C of 16385 bytes, more than 16384");
}

#[test]
fn broken_obus_are_told_in_words() {
    let packetizer = packetizer(&[&av1c(&[])]);
    let told = |sample: &[u8]| {
        testing::parts(&*packetizer, sample)
            .unwrap_err()
            .to_string()
    };
    assert_eq!(told(&[0xb2, 0]), "AV1: an OBU with its forbidden bit set");
    assert_eq!(
        told(&[0x36]),
        "a part of 2 bytes in a sample that has 1 left"
    );
    assert_eq!(
        told(&[0x32]),
        "AV1: a sample that ends within the size of an OBU"
    );
    assert_eq!(
        told(&[0x32, 0x80]),
        "AV1: a sample that ends within the size of an OBU"
    );
    assert_eq!(
        told(&[0x32, 2, 0]),
        "a part of 4 bytes in a sample that has 3 left"
    );
    let largest = [0x32, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(
        told(&largest),
        "a part of 4294967301 bytes in a sample that has 6 left"
    );
    let too_large = [0x32, 0x80, 0x80, 0x80, 0x80, 0x10];
    assert_eq!(told(&too_large), "AV1: an OBU of more than 2^32 bytes");
    let mut nine = [0x80; 12];
    (nine[0], nine[9]) = (0x32, 0);
    assert_eq!(
        told(&nine),
        "AV1: the size of an OBU takes more than 8 bytes"
    );
    (nine[8], nine[9], nine[10]) = (0, 0x30, 0x31);
    assert!(
        testing::parts(&*packetizer, &nine).is_ok(),
        "of eight bytes it is allowed"
    );
}

#[test]
fn the_largest_obu_fits_its_number() {
    let packetizer = packetizer(&[&av1c(&[])]);
    for (bytes, is_well) in [(SAMPLE_BYTES_MAX, true), (SAMPLE_BYTES_MAX + 1, false)] {
        let untold = packetizer.part(&[0x34, 0x18], bytes);
        assert_eq!(untold.is_ok(), is_well);
        if let Ok(part) = untold {
            let kind = Kind::Layer(3);
            let size_bytes = 0;
            let expected = Obu {
                bytes,
                size_bytes,
                kind,
            };
            assert_eq!(Obu::of_number(part.number), expected);
        }
    }
}

#[test]
fn a_sample_has_a_bounded_number_of_obus() {
    let packetizer = packetizer(&[&av1c(&[])]);
    let parts = |count| testing::parts(&*packetizer, &[0x32, 0].repeat(count));
    assert_eq!(parts(PARTS_MAX).unwrap().len(), PARTS_MAX);
    assert_eq!(parts(PARTS_MAX + 1), Err(CodecError::Parts));
}

fn any_obu() -> impl Strategy<Value = TestObu> {
    let payload_bytes = prop_oneof![4 => 0_usize..40, 2 => 40_usize..300, 1 => 300_usize..5000];
    let obu_type = prop_oneof![1 => 0_u8..16, 2 => Just(FRAME)];
    let extension = prop::option::weighted(0.3, (0_u8..4).prop_map(|layer| layer << 3));
    (obu_type, payload_bytes, extension, 0_usize..4).prop_map(
        |(obu_type, payload_bytes, extension, more)| TestObu {
            extension,
            size: Size::Told(more),
            ..TestObu::new(obu_type, payload_bytes)
        },
    )
}

proptest! {
    #[test]
    fn depacketizing_gives_the_obus_back(
        mut obus in prop::collection::vec(any_obu(), 1..10),
        is_sync: bool,
        is_last_untold: bool,
        payload_bytes_max in prop_oneof![64_usize..200, 1000_usize..1500, 60_000_usize..65_000],
    ) {
        if is_last_untold {
            obus.last_mut().unwrap().size = Size::Untold;
        }
        let header = TestObu::new(SEQUENCE_HEADER, 11);
        let packetizer = packetizer(&[&av1c(slice::from_ref(&header))]);
        let sample = sample_of(&obus);
        let packets = testing::packets(&*packetizer, &[&sample], is_sync, 0, payload_bytes_max);
        let is_header = |obu: &TestObu| obu.obu_type == 1 && obu.extension.is_none();
        if is_sync && !obus.iter().any(is_header) {
            obus.insert(0, header);
        }
        let mut expected = sent(&obus);
        if expected.is_empty() {
            expected.push(TestObu::new(DELIMITER, 0).header(false));
        }
        prop_assert_eq!(depacketized(&packets), (expected, is_sync));
    }

    #[test]
    fn whatever_a_sample_holds_is_answered(
        sample in prop::collection::vec(any::<u8>(), 1..200),
        is_sync: bool,
    ) {
        let packetizer = packetizer(&[&av1c(&[])]);
        if testing::parts(&*packetizer, &sample).is_ok() {
            testing::packets(&*packetizer, &[&sample], is_sync, 0, 64);
        }
    }
}
