//! What no receiver here takes the RTP packets of: E-AC-3, AV1 and PCM of eight bits. They are
//! taken apart as their payload formats say, and compared with what ffmpeg finds in the file, frame
//! by frame.

use std::process::Command;
use std::time::Instant;

use onrush_testkit::media::film;
use onrush_testkit::receiver::{Capture, Receiver};
use onrush_testkit::rtsp_client::transport;
use onrush_testkit::testbed::{Mode, RCV_IPV4};
use onrush_testkit::{require_programs, require_root};
use onrush_wire::rtp::{Header, payload};

use common::{KEEP_ALIVE, LONG, Site};

mod common;

/// A frame, and when it is shown by its own clock.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Frame {
    at_us: i64,
    is_key: bool,
    bytes: Vec<u8>,
}

/// Frames as they were received, each with its ticks.
type Received = Vec<(u32, Vec<u8>)>;

/// How a kind of frame is received.
struct Format {
    /// For ffmpeg.
    stream: &'static str,
    /// Its track.
    number: usize,
    clock_hz: i64,
    /// The frames of packets.
    unpack: fn(&[Packet]) -> Received,
    /// What of a frame of the file is sent for certain, and of one that was received.
    sent: fn(&[u8]) -> Vec<u8>,
}

/// An RTP packet.
struct Packet {
    timestamp: u32,
    marker: bool,
    payload: Vec<u8>,
}

const EAC3: Format = Format {
    stream: "a",
    number: 2,
    clock_hz: 48_000,
    unpack: eac3_frames,
    sent: <[u8]>::to_vec,
};
const AV1: Format = Format {
    stream: "v",
    number: 1,
    clock_hz: 90_000,
    unpack: av1_units,
    sent: obus,
};

const MPEG2: &str = "-c:v mpeg2video -bf 2 -g 25 -flags +cgop -sc_threshold 1000000000 \
                     -pix_fmt yuv420p -b:v 1M -c:a eac3";
const AV1_OPUS: &str = "-c:v libsvtav1 -preset 12 -g 25 -pix_fmt yuv420p -c:a libopus";
const PCM_8: &str = "-c:v libx264 -preset veryfast -g 25 -pix_fmt yuv420p -c:a pcm_u8";
/// Two channels at 48 kHz.
const BYTES_A_SECOND: f64 = 96_000.0;
const FRAGMENTED: &str = "-movflags frag_keyframe+empty_moov+default_base_moof+delay_moov";

#[test]
fn eac3_arrives_frame_by_frame() {
    let fragmented = format!("{MPEG2} {FRAGMENTED}");
    arrives(
        &EAC3,
        &[
            ("eac3.mp4", MPEG2),
            ("eac3.mov", MPEG2),
            ("eac3-fragments.mp4", &fragmented),
            ("eac3.mkv", MPEG2),
            ("eac3.ts", MPEG2),
        ],
    );
}

#[test]
fn av1_arrives_frame_by_frame() {
    let fragmented = format!("{AV1_OPUS} {FRAGMENTED}");
    arrives(
        &AV1,
        &[
            ("av1.mp4", AV1_OPUS),
            ("av1-fragments.mp4", &fragmented),
            ("av1.mkv", AV1_OPUS),
            ("av1.webm", AV1_OPUS),
        ],
    );
}

/// Where it is cut is no part of it: it is compared as bytes.
#[test]
fn pcm_of_eight_bits_arrives_byte_by_byte() {
    require_root!();
    require_programs!("ffmpeg");
    let films = [("pcm8.mov", PCM_8), ("pcm8.mkv", PCM_8)];
    let format = Format {
        stream: "a",
        number: 2,
        clock_hz: 48_000,
        unpack: |_| Vec::new(),
        sent: <[u8]>::to_vec,
    };
    let site = cinema(&films);
    for (name, _) in films {
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-nostdin", "-i"]);
        let path = site.path(name);
        let file = output(ffmpeg.arg(&path).args(["-vn", "-f", "u8", "-"]));
        for at in [None, Some(1.7), Some(3.0)] {
            let packets = play(&site, name, &format, at);
            let first = &packets[0];
            let from = file
                .windows(256)
                .position(|it| first.payload.starts_with(it));
            let from = from.unwrap_or_else(|| panic!("{name} from {at:?}: other bytes"));
            let begins_s = from as f64 / BYTES_A_SECOND;
            let wanted_s = at.unwrap_or(0.0);
            let is_near = (wanted_s - 1.1..=wanted_s).contains(&begins_s);
            assert!(is_near, "{name} from {at:?}: begins at {begins_s} s");
            let mut at_byte = from;
            for packet in &packets {
                let ticks = packet.timestamp.wrapping_sub(first.timestamp) as usize;
                // Matroska counts milliseconds, of 96 bytes.
                let off_bytes = (2 * ticks).abs_diff(at_byte - from);
                assert!(off_bytes <= 96, "{name} from {at:?}: {off_bytes} bytes off");
                assert!(file[at_byte..].starts_with(&packet.payload), "{at_byte}");
                at_byte += packet.payload.len();
            }
            assert_eq!(at_byte, file.len(), "{name} from {at:?}: the end");
        }
    }
    site.stop();
}

/// A server of films.
fn cinema(films: &[(&str, &str)]) -> Site {
    let (testbed, media) = Site::prepare(Mode::Uso);
    for (name, arguments) in films {
        let made = film(name, arguments).unwrap();
        std::fs::copy(made, media.path().join(name)).unwrap();
    }
    Site::serve(testbed, media, &[])
}

/// From the start and from two places, one of which is a sync sample's.
fn arrives(format: &Format, films: &[(&str, &str)]) {
    require_root!();
    require_programs!("ffmpeg", "ffprobe");
    let site = cinema(films);
    for (name, _) in films {
        let file = frames_of_file(&site, name, format);
        for at in [None, Some(1.7), Some(3.0)] {
            let what = format!("{name} from {at:?}");
            let packets = play(&site, name, format, at);
            let served = (format.unpack)(&packets);
            compare(&what, format, &file, &served, at);
        }
    }
    site.stop();
}

/// The same frames to the last one, as far apart; from a sync sample, or near it.
fn compare(
    what: &str,
    format: &Format,
    file: &[Frame],
    served: &[(u32, Vec<u8>)],
    at: Option<f64>,
) {
    let (first_ticks, first) = served.first().expect("frames");
    let first = (format.sent)(first);
    let from = file.iter().position(|it| (format.sent)(&it.bytes) == first);
    let from = from.unwrap_or_else(|| panic!("{what}: the first frame is none of the file"));
    let file = &file[from..];
    assert_eq!(file.len(), served.len(), "{what}: frames");
    for (number, (file_frame, (ticks, bytes))) in file.iter().zip(served).enumerate() {
        let is_same = (format.sent)(&file_frame.bytes) == (format.sent)(bytes);
        assert!(is_same, "{what}: other bytes in frame {number}");
        let passed = i64::from(ticks.wrapping_sub(*first_ticks).cast_signed());
        let passed_us = passed * 1_000_000 / format.clock_hz;
        let off_us = passed_us - (file_frame.at_us - file[0].at_us);
        assert!(
            off_us.abs() <= 1000,
            "{what}: frame {number} is {off_us} us off"
        );
    }
    let Some(at) = at else {
        return assert_eq!(from, 0, "{what}: frames in front");
    };
    #[allow(clippy::cast_possible_truncation, reason = "some seconds")]
    let at_us = (at * 1e6) as i64;
    let begins = file[0].at_us;
    assert!(
        (at_us - 1_100_000..=at_us).contains(&begins),
        "{what}: begins at {begins} us"
    );
    assert!(
        file[0].is_key,
        "{what}: begins with a frame that needs others"
    );
}

/// What ffmpeg finds in a film.
fn frames_of_file(site: &Site, name: &str, format: &Format) -> Vec<Frame> {
    let path = site.path(name);
    let of = format!("{}:0", format.stream);
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args(["-v", "error", "-select_streams", &of, "-of", "csv=p=0"]);
    ffprobe
        .args(["-show_entries", "packet=pts_time,size,flags"])
        .arg(&path);
    let told = output(&mut ffprobe);
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-nostdin", "-i"]).arg(&path);
    ffmpeg.args([
        "-map",
        &format!("0:{of}"),
        "-c",
        "copy",
        "-copyinkf",
        "-f",
        "data",
        "-",
    ]);
    let bytes = output(&mut ffmpeg);
    let mut rest = &bytes[..];
    let told = String::from_utf8(told).unwrap();
    let frame = |line: &str| {
        let mut fields = line.split(',');
        let mut field = || fields.next().expect("a time, a size and marks");
        let at: f64 = field().parse().unwrap();
        let (frame, behind) = rest.split_at(field().parse().unwrap());
        rest = behind;
        #[allow(clippy::cast_possible_truncation, reason = "some seconds")]
        let at_us = (at * 1e6).round() as i64;
        Frame {
            at_us,
            is_key: field().starts_with('K'),
            bytes: frame.to_vec(),
        }
    };
    let frames: Vec<_> = told
        .lines()
        .filter(|line| !line.is_empty())
        .map(frame)
        .collect();
    assert!(
        rest.is_empty() && frames.len() > 90,
        "{name}: {} frames",
        frames.len()
    );
    // By the time of the film: a transport stream's begins anywhere.
    let first_us = frames.iter().map(|frame| frame.at_us).min().unwrap();
    let zero_us = if name.ends_with("ts") { first_us } else { 0 };
    let shifted = frames.into_iter().map(|frame| Frame {
        at_us: frame.at_us - zero_us,
        ..frame
    });
    shifted.collect()
}

fn output(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    output.stdout
}

/// The RTP packets of a film's track, from `at` seconds to its end, four times as fast.
fn play(site: &Site, name: &str, format: &Format, at: Option<f64>) -> Vec<Packet> {
    let receiver = Receiver::bind(&site.testbed.rcv, RCV_IPV4.into()).unwrap();
    let mut client = site.connect();
    let mut url = site.url(name);
    if name.ends_with(".ts") {
        url += "/tracks=elementary";
    }
    let track = format!("{url}/track{}", format.number);
    let ports = transport(receiver.rtp_port());
    let answer = client
        .request("SETUP", &track, &[("Transport", &ports)])
        .unwrap();
    let session = answer
        .session()
        .unwrap_or_else(|| panic!("{name}: {answer:?}"));
    let range = format!("npt={}-", at.unwrap_or(0.0));
    let headers = [
        ("Session", &*session.id),
        ("Range", &range),
        ("Speed", "4.0"),
    ];
    let answer = client.request("PLAY", &url, &headers).unwrap();
    assert_eq!(answer.status, 200, "{name}: {answer:?}");
    let give_up = Instant::now() + LONG;
    while !receiver.wait_until(KEEP_ALIVE, Capture::has_bye) {
        assert!(Instant::now() < give_up, "{name}: no BYE");
    }
    let capture = receiver.finish();
    assert_eq!(site.overflows(), 0, "{name}: sockets were full");
    let mut next = None;
    let packets = capture.rtp.iter().map(|datagram| {
        let header = Header::read(&datagram.bytes).expect("an RTP header");
        let sequence = *next.get_or_insert(header.sequence);
        assert_eq!(header.sequence, sequence, "{name}: packets are missing");
        next = Some(sequence.wrapping_add(1));
        Packet {
            timestamp: header.timestamp,
            marker: header.marker,
            payload: payload(&datagram.bytes).expect("whole padding").to_vec(),
        }
    });
    packets.collect()
}

/// RFC 4598, section 4: whole frames, or a part of one, behind two bytes.
fn eac3_frames(packets: &[Packet]) -> Received {
    let mut frames = Vec::new();
    let mut open: Option<(u32, Vec<u8>, u8)> = None;
    for packet in packets {
        let [first, count, payload @ ..] = &packet.payload[..] else {
            panic!("no header of E-AC-3");
        };
        assert_eq!(first & 0xfe, 0, "bits that must be zero");
        if first & 1 == 1 {
            let part = open.get_or_insert_with(|| (packet.timestamp, Vec::new(), 0));
            part.1.extend_from_slice(payload);
            part.2 += 1;
            assert_eq!(part.2 == *count, packet.marker, "the last part is marked");
            if packet.marker {
                let (ticks, frame, _) = open.take().expect("it is open");
                frames.push((ticks, frame));
            }
            continue;
        }
        assert!(open.is_none(), "a frame whose end is missing");
        let (mut rest, mut ticks) = (payload, packet.timestamp);
        for _ in 0..*count {
            // ETSI TS 102 366, section E.1.3.1.3.
            let words = usize::from(rest[2] & 7) << 8 | usize::from(rest[3]);
            let (frame, behind) = rest.split_at(2 * (words + 1));
            frames.push((ticks, frame.to_vec()));
            (rest, ticks) = (behind, ticks.wrapping_add(1536));
        }
        assert!(rest.is_empty(), "bytes behind the last frame");
    }
    frames
}

/// AV1 RTP, section 4.4: temporal units, whose OBUs are given their sizes back.
fn av1_units(packets: &[Packet]) -> Received {
    let mut units = Vec::new();
    let (mut unit, mut open) = (Vec::new(), Vec::new());
    for packet in packets {
        let (&header, mut rest) = packet.payload.split_first().expect("a header");
        let (continues, goes_on) = (header & 0x80 != 0, header & 0x40 != 0);
        assert_eq!(
            continues,
            !open.is_empty(),
            "a part follows one that goes on"
        );
        let told = header >> 4 & 3;
        let mut number = 0;
        while !rest.is_empty() {
            number += 1;
            let mut bytes = rest.len();
            if told == 0 || number < told {
                (bytes, rest) = leb128(rest);
            }
            let (element, behind) = rest.split_at(bytes);
            rest = behind;
            open.extend_from_slice(element);
            if !rest.is_empty() || !goes_on {
                push_obu(&mut unit, &std::mem::take(&mut open));
            }
        }
        if packet.marker {
            assert!(open.is_empty(), "an OBU without an end");
            units.push((packet.timestamp, std::mem::take(&mut unit)));
        }
    }
    assert!(unit.is_empty(), "a temporal unit without an end");
    units
}

/// Appends an OBU that came without its size.
fn push_obu(unit: &mut Vec<u8>, obu: &[u8]) {
    const HAS_SIZE: u8 = 2;
    assert_eq!(obu[0] & HAS_SIZE, 0, "sizes are those of elements");
    let head = if obu[0] & 4 == 0 { 1 } else { 2 };
    unit.push(obu[0] | HAS_SIZE);
    unit.extend_from_slice(&obu[1..head]);
    let mut size = obu.len() - head;
    loop {
        let [low, ..] = size.to_le_bytes();
        size >>= 7;
        unit.push(low & 0x7f | if size > 0 { 0x80 } else { 0 });
        if size == 0 {
            break;
        }
    }
    unit.extend_from_slice(&obu[head..]);
}

/// The OBUs of a temporal unit that are sent for certain, without their sizes: no delimiter, and no
/// sequence header, which may be repeated.
fn obus(mut unit: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    while let Some(&first) = unit.first() {
        let head = if first & 4 == 0 { 1 } else { 2 };
        let (size, behind) = leb128(&unit[head..]);
        if !matches!(first >> 3 & 15, 1 | 2) {
            kept.push(first);
            kept.extend_from_slice(&behind[..size]);
        }
        unit = &behind[size..];
    }
    kept
}

fn leb128(bytes: &[u8]) -> (usize, &[u8]) {
    let last = bytes
        .iter()
        .position(|byte| byte & 0x80 == 0)
        .expect("an end");
    let digits = bytes[..=last].iter().rev();
    let number = digits.fold(0, |number, byte| number << 7 | usize::from(byte & 0x7f));
    (number, &bytes[last + 1..])
}

/// What is compared sees what it is to see.
#[test]
fn a_changed_frame_is_noticed() {
    let frame = |at_us, byte| Frame {
        at_us,
        is_key: true,
        bytes: vec![byte; 4],
    };
    let file = [frame(0, 1), frame(32_000, 2), frame(64_000, 3)];
    let served = [
        (7, vec![1; 4]),
        (7 + 1536, vec![2; 4]),
        (7 + 3072, vec![3; 4]),
    ];
    let fails = |served: &[(u32, Vec<u8>)]| {
        let compared = || compare("film", &EAC3, &file, served, None);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(compared)).is_err()
    };
    assert!(!fails(&served));
    for fault in 0..4 {
        let mut served = served.to_vec();
        match fault {
            0 => served[1].1[3] ^= 1,
            1 => served[2].0 += 480,
            2 => drop(served.pop()),
            _ => drop(served.remove(0)),
        }
        assert!(fails(&served), "fault {fault}");
    }
}
