//! Files that ffmpeg makes have the streams that it takes out of them again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;

/// A file that ffmpeg makes, removed in the end.
struct File(PathBuf);

impl File {
    fn made(name: &str, arguments: &str) -> Self {
        let path = std::env::temp_dir().join(format!("onrush-{}-{name}", std::process::id()));
        run(Command::new("ffmpeg")
            .args(OVERWRITING)
            .args(arguments.split_whitespace())
            .arg(&path));
        Self(path)
    }

    /// What ffmpeg copies of one of its streams, without a container.
    fn stream(&self, which: &str, format: &str) -> Vec<u8> {
        let out = Self(self.0.with_extension(format!("{which}.{format}")));
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg
            .args(OVERWRITING)
            .arg("-copyts")
            .arg("-i")
            .arg(&self.0);
        ffmpeg.args(["-map", &format!("0:{which}:0"), "-c", "copy", "-copyinkf"]);
        if format == "mp3" {
            ffmpeg.args(["-write_xing", "0", "-id3v2_version", "0"]);
        }
        run(ffmpeg.args(["-f", format]).arg(&out.0));
        fs::read(&out.0).unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

const OVERWRITING: [&str; 4] = ["-v", "error", "-y", "-nostdin"];

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// What ffprobe tells of the packets of a stream: when each is decoded and shown, and whether it is
/// a key frame.
fn packets(path: &Path, which: &str) -> Vec<(i64, i64, bool)> {
    let mut ffprobe = Command::new("ffprobe");
    ffprobe.args([
        "-v",
        "error",
        "-of",
        "compact=nk=1:p=0",
        "-select_streams",
        which,
    ]);
    ffprobe
        .args(["-show_entries", "packet=pts,dts,flags"])
        .arg(path);
    let told = run(&mut ffprobe);
    let lines = told.lines().filter(|line| !line.is_empty());
    let packet = |line: &str| {
        let mut fields = line.split('|');
        let mut number = || fields.next().unwrap().parse().unwrap();
        let (shown, decoded) = (number(), number());
        (decoded, shown, fields.next().unwrap().starts_with('K'))
    };
    lines.map(packet).collect()
}

/// The streams of a file: what ffmpeg calls the first two without a container.
fn compare(name: &str, arguments: &str, formats: [&str; 2]) -> Index {
    let path = File::made(name, arguments);
    let file = fs::read(&path.0).unwrap();
    let index = scanned(&file).unwrap();
    for (which, format) in ["v", "a"].into_iter().zip(formats) {
        let number = usize::from(which == "a");
        let track = &tracks(&index).sampled[number];
        assert_eq!(track.facts.problems, [""; 0], "{name}");
        let sent = samples(&index, &file, u16::try_from(track.facts.id).unwrap());
        let found: Vec<_> = sent.iter().map(|it| it.bytes.clone()).collect();
        let stream = match format {
            // ffmpeg takes no access units out of LATM: it makes the same sound anew.
            "latm" => {
                let same = File::made("es-same.ts", &arguments.replace("-mpegts_flags latm", ""));
                same.stream(which, "adts")
            }
            _ => path.stream(which, format),
        };
        let expected = match format {
            "h264" | "hevc" => start_codes::with_lengths(&stream, usize::MAX).unwrap(),
            "adts" | "latm" => without_headers(&stream),
            _ => stream,
        };
        assert!(
            found.concat() == expected,
            "{name}: other bytes of {format}"
        );
        // Times of a file begin with what is shown first.
        let packets = packets(&path.0, which);
        assert_eq!(sent.len(), packets.len(), "{name}: samples of {format}");
        let scale = i64::from(track.timescale);
        let start = packets.iter().map(|it| it.1).min().unwrap() * scale / 90_000;
        let first = sent.iter().map(|it| it.shown_ticks).min().unwrap();
        for (at, (sent, told)) in sent.iter().zip(&packets).enumerate() {
            let off = |ticks: i64, told: i64| (ticks - first - told * scale / 90_000 + start).abs();
            let most = scale / 1000;
            assert!(
                off(sent.shown_ticks, told.1) <= most,
                "{name}: {format} {at}"
            );
            assert!(
                off(sent.decode_ticks, told.0) <= most,
                "{name}: {format} {at}"
            );
            assert_eq!(sent.is_sync, told.2, "{name}: {format} {at}");
        }
    }
    index
}

/// The access units of a stream of ADTS.
fn without_headers(mut stream: &[u8]) -> Vec<u8> {
    let mut units = Vec::new();
    while let [_, _, _, a, b, c, _, rest @ ..] = stream {
        let bytes = usize::from(a & 3) << 11 | usize::from(*b) << 3 | usize::from(c >> 5);
        units.extend_from_slice(&rest[..bytes - 7]);
        stream = &rest[bytes - 7..];
    }
    units
}

const PICTURES: &str = "-f lavfi -i testsrc2=size=320x180:rate=25";
const SOUND: &str = "-f lavfi -i sine=frequency=440:sample_rate=48000";
const H264: &str = "-c:v libx264 -preset veryfast -bf 2 -g 25 -pix_fmt yuv420p";

#[test]
fn streams_are_those_that_ffmpeg_takes_out() {
    let forms = [
        (
            "aac.ts",
            H264,
            "aac",
            ["h264", "adts"],
            "H264 mpeg4-generic",
        ),
        (
            "slices.ts",
            "-c:v libx264 -preset veryfast -bf 2 -g 12 -pix_fmt yuv420p -x264-params \
             slices=4:open-gop=1:aud=1",
            "mp2",
            ["h264", "mp2"],
            "H264 MPA",
        ),
        (
            "hevc.ts",
            "-c:v libx265 -preset ultrafast -x265-params log-level=error:pools=1:open-gop=0 -g 25",
            "ac3",
            ["hevc", "ac3"],
            "H265 ac3",
        ),
        (
            "mpeg2.ts",
            "-c:v mpeg2video -bf 2 -g 12 -b:v 2M",
            "eac3",
            ["mpeg2video", "eac3"],
            "MPV eac3",
        ),
        (
            "fields.ts",
            "-c:v mpeg2video -flags +ildct+ilme -bf 2 -g 12 -b:v 2M -b_strategy 0",
            "libmp3lame",
            ["mpeg2video", "mp3"],
            "MPV MPA",
        ),
        ("wide.m2ts", H264, "ac3", ["h264", "ac3"], "H264 ac3"),
        (
            "latm.ts",
            "-c:v mpeg4 -bf 2 -g 12 -b:v 1M",
            "aac -mpegts_flags latm",
            ["m4v", "latm"],
            "MP4V-ES mpeg4-generic",
        ),
        ("opus.ts", H264, "libopus", ["h264", "data"], "H264 opus"),
    ];
    for (name, video, audio, formats, expected) in forms {
        let of = format!("{PICTURES} {SOUND} -t 3 {video} -c:a {audio} -ac 2");
        let index = compare(&format!("es-{name}"), &of, formats);
        let names = tracks(&index).sampled.iter().map(|it| it.codec.encoding);
        assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
    }
}
