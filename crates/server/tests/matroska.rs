//! Matroska and WebM files that ffmpeg makes: what is sent of them is the packets that ffprobe
//! shows, in their order, from where they lie, and at their times.

use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_testkit::{require_programs, skip};
use onrush_wire::media::{Index, Medium, RtpOrigin, Scanner};

const PICTURES: &str = "testsrc2=s=160x90:d=5:r=";
const SOUND: &str = "sine=d=5:r=";

/// What ffmpeg is told: the rate of pictures or none, of sound or none, and how to code them.
const FILES: [(&str, &str, &str, &str); 14] = [
    ("h264-aac.mkv", "25", "48000", "-c:v libx264 -g 40 -c:a aac"),
    (
        "pyramid.mkv",
        "30000/1001",
        "",
        "-c:v libx264 -bf 8 -b_strategy 0",
    ),
    (
        "h265-ac3.mkv",
        "24000/1001",
        "48000",
        "-c:v libx265 -x265-params log-level=none -c:a ac3",
    ),
    ("vp8-opus.webm", "25", "48000", "-c:v libvpx -c:a libopus"),
    (
        "vp9-opus.webm",
        "30",
        "48000",
        "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -c:a libopus",
    ),
    (
        "av1-mp3.mkv",
        "10",
        "44100",
        "-c:v libaom-av1 -cpu-used 8 -c:a libmp3lame",
    ),
    (
        "mpeg2-mp2.mkv",
        "50",
        "44100",
        "-c:v mpeg2video -bf 2 -c:a mp2",
    ),
    ("mpeg1.mkv", "25", "", "-c:v mpeg1video -bf 2"),
    (
        "mpeg4-eac3.mkv",
        "25",
        "44100",
        "-c:v mpeg4 -bf 2 -c:a eac3",
    ),
    (
        "mjpeg-mp3.mkv",
        "25",
        "22050",
        "-c:v mjpeg -huffman default -pix_fmt yuvj420p -c:a libmp3lame",
    ),
    ("mulaw.mka", "", "8000", "-c:a pcm_mulaw"),
    ("alaw.mka", "", "8000", "-c:a pcm_alaw"),
    ("pcm.mka", "", "44100", "-c:a pcm_s16be"),
    (
        "live.mkv",
        "25",
        "48000",
        "-c:v libx264 -c:a aac -live 1 -cluster_time_limit 500",
    ),
];

/// A packet as ffprobe shows it.
#[derive(Debug)]
struct Packet {
    pts_ms: Option<f64>,
    dts_ms: Option<f64>,
    bytes: u64,
    /// Where its block is.
    place: u64,
    is_key: bool,
    /// Adler-32 of its bytes, where that stands on its line.
    sum: Option<u32>,
}

fn packets(file: &Path, kind: &str) -> Vec<Packet> {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", kind, "-of", "csv=p=0"])
        .args([
            "-show_entries",
            "packet=pts_time,dts_time,size,pos,flags,data_hash",
        ])
        .args(["-show_data_hash", "adler32"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let packet = |line: &str| {
        let fields: Vec<_> = line.split(',').collect();
        let [pts, dts, bytes, place, flags, ..] = fields[..] else {
            panic!("{line}")
        };
        let mut sums = fields.iter().filter_map(|it| it.strip_prefix("adler32:"));
        let sum = sums.next();
        let ms = |seconds: &str| Some(seconds.parse::<f64>().ok()? * 1000.0);
        Packet {
            pts_ms: ms(pts),
            dts_ms: ms(dts),
            bytes: bytes.parse().unwrap(),
            place: place.parse().unwrap(),
            is_key: flags.starts_with('K'),
            sum: sum.map(|it| u32::from_str_radix(it, 16).unwrap()),
        }
    };
    // What some packets have beside these, such as samples to discard, is on lines of its own.
    let of_packets = lines.lines().filter(|line| line.matches(',').count() >= 4);
    of_packets.map(packet).collect()
}

/// Makes one of the files; not if this ffmpeg cannot.
fn make(file: &Path, pictures: &str, sound: &str, coded: &str) -> bool {
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "error", "-y"]);
    for (source, rate) in [(PICTURES, pictures), (SOUND, sound)] {
        if !rate.is_empty() {
            command.args(["-f", "lavfi", "-i", &format!("{source}{rate}")]);
        }
    }
    command.args(coded.split(' ')).arg(file);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("Unknown encoder") {
        skip::record(&format!("needs ffmpeg that can {coded}"));
        return false;
    }
    assert!(output.status.success(), "{said}");
    true
}

#[test]
fn packets_are_those_that_ffprobe_shows() {
    require_programs!("ffmpeg", "ffprobe");
    let folder = tempfile::tempdir().unwrap();
    for (name, pictures, sound, coded) in FILES {
        let file = folder.path().join(name);
        if !make(&file, pictures, sound, coded) {
            continue;
        }
        let bytes = fs::read(&file).unwrap();
        let mut scanner = Scanner::default();
        scanner.read(&bytes).unwrap();
        let index = scanner.finish().unwrap();
        let kinds = [(pictures, "v", Medium::Video), (sound, "a", Medium::Audio)];
        let kinds = kinds.into_iter().filter(|(rate, ..)| !rate.is_empty());
        let kinds: Vec<_> = kinds.collect();
        assert_eq!(index.tracks().len(), kinds.len(), "{name}");
        for (track, (_, kind, medium)) in kinds.into_iter().enumerate() {
            assert_eq!(index.tracks()[track].medium, medium, "{name}");
            let packets = packets(&file, kind);
            compare(
                &format!("{name}, {kind}"),
                (&index, track),
                &bytes,
                &packets,
            );
            if medium == Medium::Video {
                compare_seeks(name, &index, &packets);
            }
        }
    }
}

/// RFC 1950, section 9.
fn adler32(bytes: &[u8]) -> u32 {
    let add = |(a, b): (u32, u32), &byte: &u8| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), add);
    b << 16 | a
}

/// Samples one after the other, with their sizes, bytes and times.
fn compare(what: &str, (index, track): (&Index, usize), file: &[u8], packets: &[Packet]) {
    let plan = index.plan(track, index.cut(track, 1460).unwrap(), 20_000_000, false);
    let origin = RtpOrigin {
        sequence: 0,
        timestamp: 0,
        ssrc: 0,
    };
    let ticks_per_ms = f64::from(index.tracks()[track].clock_hz) / 1000.0;
    let mut expected = (0..).zip(packets);
    let mut last = None;
    for packet in 0..plan.rtp_packets() {
        let pieces = plan.file_pieces(packet);
        if last.as_ref() == Some(&pieces) {
            continue;
        }
        for (number, piece) in pieces.iter().enumerate() {
            let next = expected.next();
            let (at, shown) = next.unwrap_or_else(|| panic!("{what}: too many"));
            let said = format!("{what}: {piece:?}, {shown:?}");
            assert_eq!(piece.end - piece.start, shown.bytes, "{said}");
            assert!((4..64).contains(&(piece.start - shown.place)), "{said}");
            let part = [piece.start, piece.end].map(|at| usize::try_from(at).unwrap());
            let bytes = &file[part[0]..part[1]];
            let sum = adler32(bytes);
            assert_eq!(shown.sum.unwrap_or(sum), sum, "{said}: other bytes");
            if number > 0 {
                continue;
            }
            let stamp = plan.position(packet, origin).timestamp.cast_signed();
            let off_ms = f64::from(stamp) / ticks_per_ms - shown.pts_ms.unwrap();
            assert!(off_ms.abs() < 1.01, "{said}: {off_ms} ms");
            // The file does not tell it, and what ffprobe makes of the first few varies.
            if let Some(dts_ms) = shown.dts_ms.filter(|_| at >= 4) {
                #[allow(clippy::cast_precision_loss, reason = "the file lasts for seconds")]
                let due_ms = plan.due_ns(packet) as f64 / 1e6;
                assert!(
                    (due_ms - dts_ms.max(0.0)).abs() < 1.01,
                    "{said}: {due_ms} ms"
                );
            }
        }
        last = Some(pieces);
    }
    assert!(expected.next().is_none(), "{what}: too few");
}

/// A seek goes to the key frame at the place or before it, or to the start.
fn compare_seeks(name: &str, index: &Index, packets: &[Packet]) {
    let times = |packet: &Packet| packet.pts_ms.unwrap();
    let keys: Vec<_> = packets.iter().filter(|it| it.is_key).map(times).collect();
    for at_ms in packets.iter().map(times) {
        let key_ms = keys.iter().copied().filter(|&key| key <= at_ms);
        let key_ms = key_ms.reduce(f64::max).filter(|&key| key > keys[0]);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the file lasts for seconds"
        )]
        let at_ns = (at_ms.max(0.0) * 1e6) as u64 + 1_010_000;
        #[allow(clippy::cast_precision_loss, reason = "the file lasts for seconds")]
        let found_ms = index.seek(at_ns).time_ns as f64 / 1e6;
        let off_ms = found_ms - key_ms.unwrap_or(0.0);
        assert!(off_ms.abs() < 1.01, "{name} at {at_ms} ms: {found_ms} ms");
    }
}
