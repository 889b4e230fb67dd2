//! Files that ffmpeg makes have the samples that ffprobe finds in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::media::sampled::SampledTrack;

/// What ffprobe tells of a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Packet {
    pts: i64,
    dts: i64,
    bytes: u32,
    at: u64,
    is_sync: bool,
}

/// A file that ffmpeg makes with these arguments, removed in the end.
struct File(PathBuf);

impl File {
    fn made(name: &str, arguments: &str) -> Self {
        let path = std::env::temp_dir().join(format!("onrush-{}-{name}", std::process::id()));
        let mut ffmpeg = Command::new("ffmpeg");
        ffmpeg.args(["-v", "error", "-y", "-nostdin"]);
        ffmpeg.args(arguments.split_whitespace()).arg(&path);
        assert!(
            ffmpeg.status().expect("ffmpeg is installed").success(),
            "{arguments}"
        );
        Self(path)
    }

    fn index(&self) -> SampledIndex {
        let bytes = fs::read(&self.0).unwrap();
        let mut scanner = Scanner::default();
        while let Some(wanted) = scanner.wants(bytes.len() as u64) {
            scanner
                .push(&bytes[wanted.start as usize..wanted.end as usize])
                .unwrap();
        }
        scanner.finish().unwrap()
    }

    /// The packets of each stream, by its number.
    fn packets(&self, more: &[&str]) -> Vec<Vec<Packet>> {
        packets(&self.0, more)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

fn packets(path: &Path, more: &[&str]) -> Vec<Vec<Packet>> {
    let mut ffprobe = Command::new("ffprobe");
    let entries = "packet=stream_index,pts,dts,size,pos,flags";
    ffprobe.args([
        "-v",
        "error",
        "-of",
        "compact=nk=0",
        "-show_entries",
        entries,
    ]);
    let output = ffprobe
        .args(more)
        .arg(path)
        .output()
        .expect("ffprobe is installed");
    let mut streams: Vec<Vec<Packet>> = Vec::new();
    for line in str::from_utf8(&output.stdout).unwrap().lines() {
        let field = |name: &str| {
            let fields = line.split('|').filter_map(|it| it.split_once('='));
            fields
                .clone()
                .find(|it| it.0 == name)
                .map(|it| it.1)
                .unwrap_or_default()
        };
        let Ok(stream) = field("stream_index").parse::<usize>() else {
            continue;
        };
        streams.resize(streams.len().max(stream + 1), Vec::new());
        streams[stream].push(Packet {
            pts: field("pts").parse().unwrap(),
            dts: field("dts").parse().unwrap(),
            bytes: field("size").parse().unwrap(),
            at: field("pos").parse().unwrap(),
            is_sync: field("flags").contains('K'),
        });
    }
    streams
}

fn samples(track: &SampledTrack) -> Vec<Packet> {
    let all = (0..track.samples.len()).filter_map(|at| track.samples.get(at));
    let told = all.map(|sample| Packet {
        pts: sample.decode_ticks + sample.composition_ticks + track.shift_ticks,
        dts: sample.decode_ticks + track.shift_ticks,
        bytes: sample.bytes,
        at: sample.offset,
        is_sync: sample.is_sync,
    });
    told.collect()
}

const PICTURES: &str = "-f lavfi -i testsrc2=s=160x120:r=25:d=4";
const SOUND: &str = "-f lavfi -i sine=r=48000:d=4";

/// Asserts that the tracks are those of ffprobe, track by track.
fn compare(name: &str, arguments: &str) -> SampledIndex {
    let file = File::made(name, arguments);
    let index = file.index();
    let expected = file.packets(&[]);
    assert_eq!(index.sampled.len(), expected.len(), "{:?}", index.left_out);
    for (number, track) in index.sampled.iter().enumerate() {
        let is = samples(track);
        assert_eq!(is.len(), expected[number].len(), "{number}");
        for (at, (is, expected)) in is.iter().zip(&expected[number]).enumerate() {
            assert_eq!(is, expected, "track {number}, sample {at}");
        }
        assert_eq!(track.playable(), is.len());
        assert_eq!(track.facts.problems, [""; 0]);
    }
    index
}

#[test]
fn samples_of_a_plain_file_are_those_of_ffprobe() {
    let codecs = "-c:v libx264 -preset ultrafast -bf 2 -b_strategy 0 -g 20 -c:a aac";
    for (name, more) in [
        ("last.mp4", ""),
        ("first.mp4", "-movflags +faststart"),
        ("a.mov", ""),
    ] {
        compare(name, &format!("{PICTURES} {SOUND} {codecs} {more}"));
    }
}
