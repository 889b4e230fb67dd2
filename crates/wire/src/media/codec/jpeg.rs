//! JPEG as RTP payload (RFC 2435): types 0 and 1, which are 4:2:2 and 4:2:0, with or without
//! restart markers.
//!
//! Packets carry the scan of a picture alone. What a receiver has to know of the segments in front
//! of it is said in each packet's header: dimensions in blocks of eight pixels, so that up to seven
//! columns and lines of the padding are shown; and, in the first packet of each picture, the
//! quantisation tables. For the rest the RFC has fixed values. A file whose pictures have others,
//! such as Huffman tables of their own, cannot be sent, and says so when its segments are read.

mod huffman;

use std::sync::Arc;

use crate::media::packetizer::{Codec, CodecError, PacketSink, Packetizer, Part, Parts, Unit};
use crate::media::track::Medium;

/// Markers (ITU-T T.81, table B.1), behind their 0xff.
const SOF0: u8 = 0xc0;
const SOF15: u8 = 0xcf;
const DHT: u8 = 0xc4;
const RST0: u8 = 0xd0;
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const DQT: u8 = 0xdb;
const DRI: u8 = 0xdd;
const FILL: u8 = 0xff;

/// Bytes of a segment that are looked at: more than tables take.
const HEAD_BYTES: usize = 1024;

/// Pixels in a row or a column at the most: 255 blocks (RFC 2435, sections 3.1.5 and 3.1.6).
const PIXELS_MAX: u16 = 2040;

/// The quantisation tables are in band, and may change with each picture (section 3.1.4).
const Q_IN_BAND: u8 = 255;

/// Types of pictures with restart markers are so much higher (section 3.1.3).
const WITH_RESTARTS: u8 = 64;

/// Bytes of a quantisation table.
const TABLE_BYTES: usize = 64;

/// In front of quantisation tables: of eight bits, 128 bytes in all (section 3.1.8).
const TABLES_HEADER: [u8; 4] = [0, 0, 0, 128];

/// Bytes of the main header; of the restart marker header; and of the quantisation table header.
const MAIN_BYTES: usize = 8;
const RESTART_BYTES: usize = 4;
const TABLES_BYTES: usize = TABLES_HEADER.len() + 2 * TABLE_BYTES;

/// What JPEG amounts to: all about a picture is in its sample.
pub(in crate::media) fn codec() -> Codec {
    Codec {
        medium: Medium::Video,
        payload_type: Some(26),
        encoding: "JPEG",
        clock_hz: 90_000,
        channels: None,
        format_parameters: None,
        codec_string: "jpeg".to_owned(),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(Jpeg),
    }
}

#[derive(Debug)]
struct Jpeg;

impl Packetizer for Jpeg {
    fn parts(&self) -> Parts {
        Parts::Chained {
            head_bytes: HEAD_BYTES,
        }
    }

    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let (segment, bytes) = Segment::read(head, left)?;
        Ok(Part {
            number: segment.number(),
            bytes,
        })
    }

    fn part_bytes(&self, number: u32) -> Option<u32> {
        match Segment::of_number(number) {
            Segment::Other(bytes) | Segment::Restarts(bytes) => Some(bytes).filter(|&it| it > 0),
            Segment::Scan(bytes) => Some(bytes),
        }
    }

    fn payload_bytes_min(&self) -> usize {
        MAIN_BYTES + RESTART_BYTES + TABLES_BYTES + 1
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let picture = Picture::of(unit);
        // Without the tables nobody sees a picture; but packets are within their limit.
        let with_tables = payload_bytes_max >= self.payload_bytes_min();
        let header_bytes = MAIN_BYTES + picture.restarts.map_or(0, |_| RESTART_BYTES);
        let mut sent = 0;
        loop {
            let is_first = sent == 0;
            sink.literal(&picture.main_header(sent));
            if let Some(interval) = picture.restarts {
                let [high, low] = interval.to_be_bytes();
                // The picture is to be decoded as a whole: F, L and a count of all ones.
                sink.literal(&[high, low, 0xff, 0xff]);
            }
            let mut room = payload_bytes_max - header_bytes;
            if is_first && with_tables {
                sink.literal(&TABLES_HEADER);
                sink.literal(&picture.tables[0]);
                sink.literal(&picture.tables[1]);
                room -= TABLES_BYTES;
            }
            let end = picture.scan_bytes.min(sent + room);
            sink.sample(0, picture.scan_start + sent..picture.scan_start + end);
            sent = end;
            sink.end(sent == picture.scan_bytes);
            if sent == picture.scan_bytes {
                break;
            }
        }
    }
}

/// What a picture consists of, as far as packets depend on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Segment {
    /// So many bytes in front of the scan.
    Other(u32),
    /// The same, which say that there are restart markers.
    Restarts(u32),
    /// The scan itself, of so many bytes behind its header.
    Scan(u32),
}

impl Segment {
    fn number(self) -> u32 {
        match self {
            Self::Other(bytes) => bytes << 2,
            Self::Restarts(bytes) => bytes << 2 | 1,
            Self::Scan(bytes) => bytes << 2 | 2,
        }
    }

    fn of_number(number: u32) -> Self {
        match number & 3 {
            0 => Self::Other(number >> 2),
            1 => Self::Restarts(number >> 2),
            _ => Self::Scan(number >> 2),
        }
    }

    /// The segment that begins with `head`, of which `left` bytes are left, and its bytes.
    fn read(head: &[u8], left: u32) -> Result<(Self, u32), CodecError> {
        let &[0xff, marker, ref rest @ ..] = head else {
            return Err(broken("no marker where a segment has to begin"));
        };
        match marker {
            FILL => return Ok((Self::Other(1), 1)),
            SOI => return Ok((Self::Other(2), 2)),
            EOI | RST0..SOI => return Err(broken("a marker of a scan in front of it")),
            _ => {}
        }
        let &[high, low, ..] = rest else {
            return Err(beyond(4, left));
        };
        let bytes = 2 + u32::from(u16::from_be_bytes([high, low]));
        if bytes < 4 {
            return Err(broken("a segment shorter than its length"));
        }
        if bytes > left {
            return Err(beyond(bytes, left));
        }
        let body = head.get(4..bytes as usize);
        let all = || body.ok_or_else(|| broken("a segment that is too long"));
        match marker {
            SOF0 => check_frame(all()?)?,
            DHT => check_huffman(all()?)?,
            DQT => check_quantisation(all()?)?,
            DRI if matches!(all()?, [0, 0]) => {}
            DRI if all()?.len() == 2 => return Ok((Self::Restarts(bytes), bytes)),
            SOS => {
                check_scan(all()?)?;
                return Ok((Self::Scan(left - bytes), left));
            }
            _ if (SOF0..=SOF15).contains(&marker) => {
                return Err(broken("not of the baseline process"));
            }
            DRI => return Err(broken("a broken restart interval")),
            _ => {}
        }
        Ok((Self::Other(bytes), bytes))
    }
}

fn check_frame(body: &[u8]) -> Result<(), CodecError> {
    let &[precision, y1, y0, x1, x0, components, ref rest @ ..] = body else {
        return Err(broken("a broken frame header"));
    };
    let (lines, columns) = (u16::from_be_bytes([y1, y0]), u16::from_be_bytes([x1, x0]));
    let within = 1..=PIXELS_MAX;
    if !within.contains(&lines) || !within.contains(&columns) {
        return Err(CodecError::Configuration {
            codec: "JPEG",
            what: format!("{columns} by {lines} pixels, not within {PIXELS_MAX}").into(),
        });
    }
    let &[_, sampling, _, _, 0x11, blue_table, _, 0x11, red_table] = rest else {
        return Err(broken("neither 4:2:2 nor 4:2:0"));
    };
    if precision != 8 || components != 3 || !matches!(sampling, 0x21 | 0x22) {
        return Err(broken("neither 4:2:2 nor 4:2:0 of 8 bits"));
    }
    match blue_table == red_table {
        true => Ok(()),
        false => Err(broken("a quantisation table for each colour")),
    }
}

fn check_huffman(mut body: &[u8]) -> Result<(), CodecError> {
    while let Some((&class_and_number, rest)) = body.split_first() {
        let standard = huffman::table(class_and_number);
        let behind = standard.and_then(|standard| rest.strip_prefix(standard));
        body = behind.ok_or_else(|| broken("Huffman tables of its own"))?;
    }
    Ok(())
}

fn check_quantisation(body: &[u8]) -> Result<(), CodecError> {
    let is_well = |table: &[u8]| table.len() == 1 + TABLE_BYTES && table[0] < 4;
    match body.chunks(1 + TABLE_BYTES).all(is_well) {
        true => Ok(()),
        false => Err(broken("quantisation tables that are not of 8 bits")),
    }
}

fn check_scan(body: &[u8]) -> Result<(), CodecError> {
    match body {
        [3, _, 0x00, _, 0x11, _, 0x11, 0, 63, 0] => Ok(()),
        _ => Err(broken("not all components in one scan")),
    }
}

fn beyond(bytes: u32, left: u32) -> CodecError {
    CodecError::PartBeyondSample {
        bytes: bytes.into(),
        left: left.into(),
    }
}

fn broken(what: &'static str) -> CodecError {
    CodecError::Configuration {
        codec: "JPEG",
        what: what.into(),
    }
}

/// A picture, as packets tell it. Without the sample's bytes only the lengths are right.
#[derive(Debug)]
struct Picture {
    scan_start: usize,
    scan_bytes: usize,
    /// The restart interval, if there is one.
    restarts: Option<u16>,
    /// 0 or 1.
    sampling_type: u8,
    /// In blocks of 8.
    columns: u8,
    lines: u8,
    /// Of luminance and of both colours.
    tables: [[u8; TABLE_BYTES]; 2],
}

impl Picture {
    fn of(unit: &Unit<'_>) -> Self {
        let mut picture = Self {
            scan_start: 0,
            scan_bytes: 0,
            restarts: None,
            sampling_type: 0,
            columns: 0,
            lines: 0,
            tables: [[0; TABLE_BYTES]; 2],
        };
        let byte = |at| unit.byte(0, at);
        let blocks = |at| {
            let pixels = u16::from_be_bytes([byte(at), byte(at + 1)]);
            pixels.div_ceil(8).try_into().unwrap_or(u8::MAX)
        };
        let mut stored = [[0; TABLE_BYTES]; 4];
        let mut table_numbers = [0; 2];
        let (mut at, parts) = (0, unit.samples.first().map_or(&[][..], |it| it.parts));
        for segment in parts.iter().map(|&number| Segment::of_number(number)) {
            let bytes = match segment {
                Segment::Scan(bytes) => {
                    picture.scan_bytes = bytes as usize;
                    picture.scan_start = unit.bytes().saturating_sub(bytes as usize);
                    break;
                }
                Segment::Restarts(bytes) => {
                    picture.restarts = Some(u16::from_be_bytes([byte(at + 4), byte(at + 5)]));
                    bytes
                }
                Segment::Other(bytes) => bytes,
            };
            let next = at + bytes as usize;
            match byte(at + 1) {
                SOF0 => {
                    (picture.lines, picture.columns) = (blocks(at + 5), blocks(at + 7));
                    picture.sampling_type = u8::from(byte(at + 11) == 0x22);
                    table_numbers = [byte(at + 12), byte(at + 15)];
                }
                DQT => {
                    for table in (at + 4..next).step_by(1 + TABLE_BYTES) {
                        let into = &mut stored[usize::from(byte(table) & 3)];
                        let values = into.iter_mut().zip(table + 1..);
                        values.for_each(|(value, at)| *value = byte(at));
                    }
                }
                _ => {}
            }
            at = next;
        }
        picture.tables = table_numbers.map(|number| stored[usize::from(number & 3)]);
        picture
    }

    /// The main header of the packet that begins with byte `offset` of the scan (section 3.1).
    fn main_header(&self, offset: usize) -> [u8; MAIN_BYTES] {
        let [low, middle, high, ..] = offset.to_le_bytes();
        let with_restarts = self.restarts.map_or(0, |_| WITH_RESTARTS);
        let picture_type = self.sampling_type + with_restarts;
        [
            0,
            high,
            middle,
            low,
            picture_type,
            Q_IN_BAND,
            self.columns,
            self.lines,
        ]
    }
}

#[cfg(test)]
mod tests;
