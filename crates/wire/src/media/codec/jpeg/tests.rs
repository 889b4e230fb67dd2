//! JPEG: what comes back of packets, and what is refused.

use proptest::prelude::*;

use super::super::testing;
use super::super::testing::receivers::{Received, jpeg as depacketized};
use super::*;

/// A picture of a test, and what becomes of it.
#[derive(Clone, Debug)]
struct TestPicture {
    sampling: u8,
    columns: u16,
    lines: u16,
    restarts: Option<u16>,
    /// Whether luminance and colours have a quantisation table each.
    has_two_tables: bool,
    has_huffman: bool,
    scan: Vec<u8>,
}

fn picture(scan_bytes: usize) -> TestPicture {
    TestPicture {
        sampling: 0x22,
        columns: 320,
        lines: 241,
        restarts: None,
        has_two_tables: true,
        has_huffman: true,
        scan: (0..=255).cycle().take(scan_bytes).collect(),
    }
}

fn segment(marker: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len() + 2).unwrap().to_be_bytes();
    [&[0xff, marker], &length[..], body].concat()
}

impl TestPicture {
    fn table(number: u8) -> Vec<u8> {
        (0..64).map(|at| at * 2 + number).collect()
    }

    fn sample(&self) -> Vec<u8> {
        let mut sample = vec![0xff, SOI];
        sample.extend(segment(0xe0, b"JFIF\0and more"));
        let first = [&[0], &Self::table(0)[..]].concat();
        let second = [&[1], &Self::table(1)[..]].concat();
        match self.has_two_tables {
            true => sample.extend(segment(DQT, &[second, first].concat())),
            false => sample.extend(segment(DQT, &first)),
        }
        // A fill byte.
        sample.push(0xff);
        if let Some(interval) = self.restarts {
            sample.extend(segment(DRI, &interval.to_be_bytes()));
        }
        let of_colour = u8::from(self.has_two_tables);
        let (lines, columns) = (self.lines.to_be_bytes(), self.columns.to_be_bytes());
        let of_colours = [2, 0x11, of_colour, 3, 0x11, of_colour];
        let frame = [
            &[8],
            &lines[..],
            &columns,
            &[3, 1, self.sampling, 0],
            &of_colours,
        ];
        sample.extend(segment(SOF0, &frame.concat()));
        if self.has_huffman {
            let tables = [0x00, 0x10, 0x01, 0x11].map(|number| {
                let table = huffman::table(number).unwrap();
                [&[number], table].concat()
            });
            sample.extend(segment(DHT, &tables.concat()));
        }
        sample.extend(segment(SOS, &[3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0]));
        sample.extend(&self.scan);
        sample
    }

    /// What a receiver has to know of it: type, columns and lines in blocks, restart interval,
    /// tables, scan.
    fn expected(&self) -> Received {
        let of_colour = u8::from(self.has_two_tables);
        let restarts = self.restarts.filter(|&interval| interval > 0);
        let picture_type =
            u8::from(self.sampling == 0x22) + if restarts.is_some() { 64 } else { 0 };
        let blocks = |pixels: u16| u8::try_from(pixels.div_ceil(8)).unwrap();
        Received {
            header: [picture_type, 255, blocks(self.columns), blocks(self.lines)],
            restarts,
            tables: [Self::table(0), Self::table(of_colour)].concat(),
            scan: self.scan.clone(),
        }
    }
}

#[test]
fn a_scan_is_cut_to_one_size() {
    let picture = picture(700);
    let packets = testing::packets(&Jpeg, &[&picture.sample()], true, 0, 200);
    let lengths: Vec<_> = packets.iter().map(|it| it.payload.len()).collect();
    assert_eq!(lengths, [200, 200, 200, 200, 72]);
    assert_eq!(
        packets[0].payload[..12],
        [0, 0, 0, 0, 1, 255, 40, 31, 0, 0, 0, 128]
    );
    assert_eq!(packets[1].payload[..8], [0, 0, 0, 60, 1, 255, 40, 31]);
    assert_eq!(packets[4].payload[..8], [0, 0, 2, 124, 1, 255, 40, 31]);
    assert_eq!(depacketized(&packets), picture.expected());
}

#[test]
fn a_packet_is_at_least_one_byte_of_the_scan() {
    let restarts = Some(20);
    let picture = TestPicture {
        restarts,
        ..picture(3)
    };
    let least = Jpeg.payload_bytes_min();
    assert_eq!(least, 145);
    let packets = testing::packets(&Jpeg, &[&picture.sample()], true, 0, least);
    assert_eq!(depacketized(&packets), picture.expected());
    // Too narrow for the tables: nobody sees it, but packets are within their limit.
    testing::packets(&Jpeg, &[&picture.sample()], true, 0, least - 1);
    testing::packets(&Jpeg, &[&picture.sample()], true, 0, 64);
}

#[test]
fn a_sample_without_a_scan_is_headers_alone() {
    let sample = picture(0).sample();
    for end in [0, 2, sample.len() - 14, sample.len()] {
        let packets = testing::packets(&Jpeg, &[&sample[..end]], true, 0, 200);
        assert_eq!(packets.len(), 1);
    }
}

/// What is told of a picture that is not as `picture` makes it.
fn told(sample: &[u8]) -> String {
    let refused = testing::parts(&Jpeg, sample).unwrap_err();
    refused.to_string()
}

#[test]
fn what_the_rfc_cannot_say_is_told_in_words() {
    let with = |change: fn(&mut TestPicture)| {
        let mut picture = picture(10);
        change(&mut picture);
        picture.sample()
    };
    let too_wide = "JPEG: 2041 by 241 pixels, not within 2040";
    assert_eq!(told(&with(|it| it.columns = 2041)), too_wide);
    assert!(testing::parts(&Jpeg, &with(|it| it.columns = 2040)).is_ok());
    assert_eq!(
        told(&with(|it| it.lines = 0)),
        "JPEG: 320 by 0 pixels, not within 2040"
    );
    let sampling = "JPEG: neither 4:2:2 nor 4:2:0 of 8 bits";
    assert_eq!(told(&with(|it| it.sampling = 0x11)), sampling);
    let replaced = |from: &[u8], to: &[u8]| {
        let mut sample = picture(10).sample();
        let at = sample
            .windows(from.len())
            .position(|it| it == from)
            .unwrap();
        sample[at..at + to.len()].copy_from_slice(to);
        told(&sample)
    };
    let process = "JPEG: not of the baseline process";
    assert_eq!(replaced(&[0xff, SOF0], &[0xff, 0xc2]), process);
    let colours = "JPEG: a quantisation table for each colour";
    assert_eq!(
        replaced(&[0x11, 1, 3, 0x11, 1], &[0x11, 1, 3, 0x11, 2]),
        colours
    );
    assert_eq!(
        replaced(&[0x11, 1, 3, 0x11, 1], &[0x21]),
        "JPEG: neither 4:2:2 nor 4:2:0"
    );
    let huffman = "JPEG: Huffman tables of its own";
    assert_eq!(
        replaced(&[0x00, 0x00, 0x01, 0x05], &[0x00, 0x01, 0x00, 0x05]),
        huffman
    );
    let deep = "JPEG: quantisation tables that are not of 8 bits";
    assert_eq!(
        replaced(&[0xff, DQT, 0, 132, 1], &[0xff, DQT, 0, 132, 0x11]),
        deep
    );
    let scan = "JPEG: not all components in one scan";
    assert_eq!(replaced(&[3, 1, 0, 2, 0x11], &[1]), scan);
}

#[test]
fn broken_samples_are_told_in_words() {
    assert_eq!(
        told(&[0x12, SOI]),
        "JPEG: no marker where a segment has to begin"
    );
    assert_eq!(
        told(&[0xff]),
        "JPEG: no marker where a segment has to begin"
    );
    assert_eq!(
        told(&[0xff, EOI]),
        "JPEG: a marker of a scan in front of it"
    );
    assert_eq!(
        told(&[0xff, DQT, 0]),
        "a part of 4 bytes in a sample that has 3 left"
    );
    assert_eq!(
        told(&[0xff, DQT, 0, 1]),
        "JPEG: a segment shorter than its length"
    );
    assert_eq!(
        told(&[0xff, 0xe1, 0, 9]),
        "a part of 11 bytes in a sample that has 4 left"
    );
    assert_eq!(told(&segment(DRI, &[1])), "JPEG: a broken restart interval");
    assert_eq!(told(&segment(SOF0, &[8, 0])), "JPEG: a broken frame header");
    let long = segment(DQT, &[0; 65 * 20]);
    assert_eq!(told(&long), "JPEG: a segment that is too long");
    testing::break_configuration(&picture(5).sample(), |broken| {
        if testing::parts(&Jpeg, broken).is_ok() {
            testing::packets(&Jpeg, &[broken], true, 0, 200);
        }
    });
}

#[test]
fn the_media_description_is_that_of_rfc_3551() {
    let codec = codec();
    assert_eq!((codec.payload_type, codec.encoding), (Some(26), "JPEG"));
    assert_eq!(codec.clock_hz, 90_000);
}

proptest! {
    #[test]
    fn depacketizing_gives_the_picture_back(
        scan in prop::collection::vec(any::<u8>(), 1..5000),
        sampling in prop_oneof![Just(0x21_u8), Just(0x22_u8)],
        (columns, lines) in (1_u16..=2040, 1_u16..=2040),
        restarts in prop::option::of(0_u16..40),
        has_two_tables: bool,
        has_huffman: bool,
        payload_bytes_max in 145_usize..1500,
    ) {
        let picture =
            TestPicture { sampling, columns, lines, restarts, has_two_tables, has_huffman, scan };
        let packets = testing::packets(&Jpeg, &[&picture.sample()], true, 0, payload_bytes_max);
        prop_assert_eq!(depacketized(&packets), picture.expected());
    }
}
