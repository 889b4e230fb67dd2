//! Making inputs of others, by what is known of their format, so that what is changed is more than
//! the outermost check.

use std::ops::Range;

use crate::random::Random;

/// Changes an input somehow.
pub type Mutate = fn(&mut Vec<u8>, &mut Random);

/// Inputs do not become longer than this.
pub const INPUT_BYTES_MAX: usize = 64 << 10;

/// Numbers at which something overflows, wraps or is compared.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x00ff_ffff,
    0x0100_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// Whatever the format.
pub fn bytes(data: &mut Vec<u8>, random: &mut Random) {
    let at = random.index(data.len());
    match random.below(8) {
        0 if !data.is_empty() => data[at] ^= 1 << random.below(8),
        1 if !data.is_empty() => data[at] = random.byte(),
        2 | 3 => {
            let rest = at..data.len();
            number(data, rest, random);
        }
        4 => {
            let end = (at + 1 + random.index(32)).min(data.len());
            data.drain(at.min(end)..end);
        }
        5 => {
            let bytes: Vec<_> = (0..=random.index(16)).map(|_| random.byte()).collect();
            data.splice(at..at, bytes);
        }
        6 => {
            let end = (at + random.index(256)).min(data.len());
            let copy = data[at.min(end)..end].to_vec();
            let to = random.index(data.len());
            data.splice(to..to, copy);
        }
        _ => data.truncate(data.len() - random.index(data.len().min(64) + 1)),
    }
    data.truncate(INPUT_BYTES_MAX);
}

/// Puts a number in the place of another, within these bytes.
fn number(data: &mut [u8], within: Range<usize>, random: &mut Random) {
    let width = *random.pick(&[1, 2, 4, 4, 4, 8]);
    let Some(room) = within.len().checked_sub(width) else {
        return;
    };
    let at = within.start + random.index(room + 1);
    let old = data[at..at + width].iter();
    let old = old.fold(0, |old, &byte| old << 8 | u64::from(byte));
    let new = match random.below(4) {
        0 => old.wrapping_add(1 + random.below(8)),
        1 => old.wrapping_sub(1 + random.below(8)),
        2 => old.rotate_left(1),
        _ => *random.pick(&NUMBERS),
    };
    data[at..at + width].copy_from_slice(&new.to_be_bytes()[8 - width..]);
}

/// A part of a file that says its length itself, and may hold others.
#[derive(Clone, Debug)]
struct Element {
    /// All of it.
    all: Range<usize>,
    /// Where its length is told.
    size: Range<usize>,
    /// Where what is in it begins.
    body: usize,
    /// The one that it lies in.
    parent: Option<usize>,
}

/// How a format's elements are told.
#[derive(Clone, Copy)]
struct Format {
    elements: fn(&[u8]) -> Vec<Element>,
    /// Writes the length of what is in an element, if it can be told.
    tell: fn(&mut [u8], &Element, usize),
}

/// MP4: boxes.
pub fn mp4(data: &mut Vec<u8>, random: &mut Random) {
    let format = Format {
        elements: boxes,
        tell: |data, element, body_bytes| {
            let bytes = element.body - element.all.start + body_bytes;
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            data[element.size.clone()].copy_from_slice(&bytes.to_be_bytes());
        },
    };
    structured(data, format, random);
}

/// Matroska: EBML elements.
pub fn matroska(data: &mut Vec<u8>, random: &mut Random) {
    let format = Format {
        elements,
        tell: |data, element, body_bytes| {
            let width = element.size.len();
            let marked = (body_bytes as u64) | 1 << (7 * width);
            data[element.size.clone()].copy_from_slice(&marked.to_be_bytes()[8 - width..]);
        },
    };
    structured(data, format, random);
}

fn structured(data: &mut Vec<u8>, format: Format, random: &mut Random) {
    let elements = (format.elements)(data);
    if elements.is_empty() || random.is_one_in(8) {
        return bytes(data, random);
    }
    let at = random.index(elements.len());
    let element = &elements[at];
    let all = element.all.clone();
    let (inside, body) = (element.all.end - element.body, element.body);
    match random.below(12) {
        0 => splice(data, format, &elements, element.parent, all, &[]),
        1 => {
            let twice = data[all.clone()].repeat(2);
            splice(data, format, &elements, element.parent, all, &twice);
        }
        2 => {
            // Another in its place.
            let other = data[random.pick(&elements).all.clone()].to_vec();
            splice(data, format, &elements, element.parent, all, &other);
        }
        3 => {
            // Another kind.
            let other = random.pick(&elements).all.start;
            let kind: Vec<_> = data[other..].iter().take(8).copied().collect();
            let place = data[all.start..].iter_mut().take(8);
            if element.size.start == all.start {
                place
                    .skip(4)
                    .zip(&kind[4..])
                    .for_each(|(place, &byte)| *place = byte);
            } else {
                let bytes = element.size.start - all.start;
                place
                    .take(bytes)
                    .zip(&kind)
                    .for_each(|(place, &byte)| *place = byte);
            }
        }
        4 => number(data, element.size.clone(), random),
        5 => {
            let cut = body + random.index(inside + 1);
            splice(data, format, &elements, Some(at), cut..all.end, &[]);
        }
        6 => {
            let to = body + random.index(inside + 1);
            let more: Vec<_> = (0..=random.index(24)).map(|_| random.byte()).collect();
            splice(data, format, &elements, Some(at), to..to, &more);
        }
        7 => {
            // A row of a table again, or many times.
            let width = *random.pick(&[4, 8, 12, 16]);
            let from = body + random.index(inside + 1);
            let row = data[from..all.end.min(from + width)].to_vec();
            let rows = row.repeat(1 + random.index(40));
            splice(data, format, &elements, Some(at), from..from, &rows);
        }
        _ => number(data, body..all.end.min(body + 128), random),
    }
    data.truncate(INPUT_BYTES_MAX);
}

/// Puts `new` in the place of a part of what is in an element; it and those around it say then how
/// long they are.
fn splice(
    data: &mut Vec<u8>,
    format: Format,
    elements: &[Element],
    within: Option<usize>,
    part: Range<usize>,
    new: &[u8],
) {
    let mut around = within;
    while let Some(element) = around.map(|at| &elements[at]) {
        let bytes = element.all.end - element.body;
        (format.tell)(data, element, bytes - part.len() + new.len());
        around = element.parent;
    }
    data.splice(part, new.iter().copied());
}

/// Boxes that hold others, and how many bytes stand in front of these.
const CONTAINERS: [(&[u8; 4], usize); 18] = [
    (b"moov", 0),
    (b"trak", 0),
    (b"mdia", 0),
    (b"minf", 0),
    (b"stbl", 0),
    (b"edts", 0),
    (b"mvex", 0),
    (b"moof", 0),
    (b"traf", 0),
    (b"dinf", 0),
    (b"wave", 0),
    (b"stsd", 8),
    (b"avc1", 78),
    (b"hvc1", 78),
    (b"hev1", 78),
    (b"av01", 78),
    (b"vp09", 78),
    (b"mp4a", 28),
];

fn boxes(data: &[u8]) -> Vec<Element> {
    let mut found = Vec::new();
    boxes_in(data, 0..data.len(), None, &mut found);
    found
}

fn boxes_in(data: &[u8], mut part: Range<usize>, parent: Option<usize>, found: &mut Vec<Element>) {
    while let Some(&[a, b, c, d, ref kind @ ..]) = data[part.clone()].first_chunk::<8>() {
        let told = u32::from_be_bytes([a, b, c, d]) as usize;
        let end = part.start.saturating_add(told);
        if told < 8 || end > part.end || found.len() > 4096 {
            return;
        }
        let body = part.start + 8;
        found.push(Element {
            all: part.start..end,
            size: part.start..part.start + 4,
            body,
            parent,
        });
        let at = found.len() - 1;
        if let Some((_, skip)) = CONTAINERS.iter().find(|(name, _)| *name == kind)
            && body + skip <= end
        {
            boxes_in(data, body + skip..end, Some(at), found);
        }
        part.start = end;
    }
}

/// Elements that hold others: Segment, SeekHead, Seek, Info, Tracks, TrackEntry, Video, Audio,
/// Cluster, BlockGroup, ContentEncodings, ContentEncoding, ContentCompression, Cues, CuePoint,
/// CueTrackPositions, EBML.
const MASTERS: [u32; 17] = [
    0x1853_8067,
    0x114d_9b74,
    0x4dbb,
    0x1549_a966,
    0x1654_ae6b,
    0xae,
    0xe0,
    0xe1,
    0x1f43_b675,
    0xa0,
    0x6d80,
    0x6240,
    0x5034,
    0x1c53_bb6b,
    0xbb,
    0xb7,
    0x1a45_dfa3,
];

fn elements(data: &[u8]) -> Vec<Element> {
    let mut found = Vec::new();
    elements_in(data, 0..data.len(), None, &mut found);
    found
}

fn elements_in(
    data: &[u8],
    mut part: Range<usize>,
    parent: Option<usize>,
    found: &mut Vec<Element>,
) {
    while let Some(&first) = data[part.clone()].first() {
        let id_bytes = first.leading_zeros() as usize + 1;
        let size_at = part.start + id_bytes;
        let Some(&size_first) = data[..part.end].get(size_at) else {
            return;
        };
        let width = size_first.leading_zeros() as usize + 1;
        let body = size_at + width;
        if id_bytes > 4 || width > 8 || body > part.end || found.len() > 4096 {
            return;
        }
        let number = |bytes: &[u8]| bytes.iter().fold(0, |n, &byte| n << 8 | u64::from(byte));
        let mask = (1_u64 << (7 * width)) - 1;
        let told = number(&data[size_at..body]) & mask;
        let is_unknown = told == mask;
        let told = usize::try_from(told).unwrap_or(usize::MAX);
        let end = match is_unknown {
            true => part.end,
            false => body.saturating_add(told).min(part.end),
        };
        let id = u32::try_from(number(&data[part.start..size_at])).unwrap_or(0);
        found.push(Element {
            all: part.start..end,
            size: size_at..body,
            body,
            parent,
        });
        let at = found.len() - 1;
        if MASTERS.contains(&id) {
            elements_in(data, body..end, Some(at), found);
        }
        part.start = end;
    }
}

/// Bytes of a transport packet.
const TS_BYTES: usize = 188;

/// Transport streams: packets, and what is in their first bytes.
pub fn ts(data: &mut Vec<u8>, random: &mut Random) {
    let packets = data.len() / TS_BYTES;
    if packets == 0 || random.is_one_in(16) {
        return bytes(data, random);
    }
    let (one, other) = (random.index(packets), random.index(packets));
    let place = |packet: usize| packet * TS_BYTES..(packet + 1) * TS_BYTES;
    match random.below(10) {
        0 => drop(data.drain(place(one))),
        1 => {
            let copy = data[place(one)].to_vec();
            let to = place(other).start;
            data.splice(to..to, copy);
        }
        2 => {
            let copy = data[place(one)].to_vec();
            data.copy_within(place(other), place(one).start);
            data[place(other)].copy_from_slice(&copy);
        }
        3 => data[place(one).start + 1 + random.index(4)] = random.byte(),
        4 => {
            // A clock reference that says something else.
            let at = place(one).start;
            data[at + 3] |= 0x20;
            data[at + 4] = 7 + data[at + 4] % 100;
            data[at + 5] |= 0x10;
            number(data, at + 6..at + 12, random);
        }
        5 => data[place(one).start + 5] ^= 1 << random.below(8),
        6 => {
            // Packets of another stride.
            let more = [0; 16];
            let more = &more[..*random.pick(&[1, 4, 16])];
            let to = place(one).start;
            data.splice(to..to, more.iter().copied());
        }
        _ => number(data, place(one).start + 4..place(one).end, random),
    }
    data.truncate(INPUT_BYTES_MAX);
}

/// What requests are made of, configurations, and what nodes of a cluster say.
const WORDS: [&str; 108] = [
    "OPTIONS ",
    "DESCRIBE ",
    "SETUP ",
    "PLAY ",
    "PAUSE ",
    "TEARDOWN ",
    "GET_PARAMETER ",
    "GET ",
    "HEAD ",
    "POST ",
    "rtsp://host/film.mp4",
    "/film.mp4/track1",
    "*",
    "/a/../b",
    "/%2e%2E/",
    " RTSP/1.0\r\n",
    " HTTP/1.1\r\n",
    " HTTP/1.0\r\n",
    "\r\n",
    "\r\n\r\n",
    "\n",
    "\r",
    "CSeq: 1\r\n",
    "Session: 0123473789abcdef0123473789abcde0\r\n",
    "Session: 0123473789abcdef0123473789abcde1\r\n",
    "Transport: RTP/AVP;unicast;client_port=5000-5001\r\n",
    "Transport: RTP/AVP/TCP;interleaved=0-1\r\n",
    "Range: npt=1-2\r\n",
    "Range: smpte=0:10:20-\r\n",
    "Range: clock=19961108T142300Z-\r\n",
    "Range: bytes=0-1,5-9,-3\r\n",
    "Scale: -2\r\n",
    "Speed: 1.5\r\n",
    "Content-Length: 9\r\n",
    "Transfer-Encoding: chunked\r\n",
    "5\r\nabcde\r\n0\r\n\r\n",
    "Host: host:80\r\n",
    "If-None-Match: \"e7ag\"\r\n",
    "If-Range: \"e7ag\"\r\n",
    "Connection: close\r\n",
    "Accept-Encoding: zstd, br;q=0.5\r\n",
    "Expect: 100-continue\r\n",
    "$\0\0\x04abcd",
    "USER anonymous\r\n",
    "PASS x\r\n",
    "EPRT |1|127.0.0.1|2000|\r\n",
    "PORT 127,0,0,1,8,0\r\n",
    "RETR a/b\r\n",
    "CWD ..\r\n",
    "REST 5\r\n",
    "MLST a\r\n",
    "LIST -la a\r\n",
    "OPTS MLST size;\r\n",
    "EPSV ALL\r\n",
    "If-Modified-Since: Thu, 01 Jan 1970 00:00:05 GMT\r\n",
    "Require: implicit-play\r\n",
    "Digest ",
    "Basic ",
    "Bearer ",
    "username=\"anna\", ",
    "nonce=\"",
    "qop=auth, ",
    "nc=00000001, ",
    "algorithm=SHA-256, ",
    "stale=true",
    "token=",
    "signature=",
    "%2C",
    "a=rtpmap:96 H264/90000\r\n",
    "a=fmtp:96 ",
    "m=video 0 RTP/AVP 96\r\n",
    "a=control:",
    "\u{e9}",
    "[library]\n",
    "[[library]]\n",
    "[listen]\n",
    "[[channel]]\n",
    "[channels]\n",
    "[tls]\n",
    "[users]\n",
    "[limits]\n",
    "folder = \".\"\n",
    "name = \"tv\"\n",
    "input = 5004\n",
    "rtsp = [\"127.0.0.1:0\"]\n",
    "cache = \"64MiB\"\n",
    "[\"a\", \"b\"]",
    "true",
    "\"1h\"",
    "\"4,16ms\"",
    "\"node\":\"node-1\"",
    "\"format\":1",
    "\"token\":0",
    "?redirects=1",
    "&trace=0123456789abcdef",
    "&puller=node-1",
    "&avoid=node-2",
    "&lease=7",
    "&node=node-3",
    "00:00:01,000 --> 00:00:02,000\n",
    "01:00.000 --> 02:00.000 line:0\n",
    " --> ",
    "\n\n",
    "{\\i1}",
    "</i>",
    "[Events]\nFormat: Start, End, Text\n",
    "Dialogue: 0:00:01.00,0:00:02.00,",
    "\\N",
];

/// Requests: lines, words and numbers.
pub fn text(data: &mut Vec<u8>, random: &mut Random) {
    let ends: Vec<_> = (0..data.len()).filter(|&at| data[at] == b'\n').collect();
    let line = |number: usize| {
        let start = number.checked_sub(1).map_or(0, |before| ends[before] + 1);
        start..ends.get(number).map_or(data.len(), |end| end + 1)
    };
    let (one, other) = (
        line(random.index(ends.len() + 1)),
        line(random.index(ends.len() + 1)),
    );
    match random.below(8) {
        0 => drop(data.drain(one)),
        1 => {
            let copy = data[one].to_vec();
            data.splice(other.start..other.start, copy);
        }
        2 | 3 => {
            let word = random.pick(&WORDS).bytes();
            let at = *random.pick(&[one.start, one.end]);
            data.splice(at..at, word);
        }
        4 => {
            let word = random.pick(&WORDS).bytes();
            let at = one.start + random.index(one.len());
            data.splice(at..at, word);
        }
        5 => {
            let is_digit = |&at: &usize| data[at].is_ascii_digit();
            if let Some(at) = one.clone().find(is_digit) {
                let rest = data[at..].iter().take_while(|byte| byte.is_ascii_digit());
                let end = at + rest.count();
                let number = random.pick(&NUMBERS).to_string();
                data.splice(at..end, number.bytes());
            }
        }
        _ => bytes(data, random),
    }
    data.truncate(INPUT_BYTES_MAX);
}
