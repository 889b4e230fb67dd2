//! Files that ffmpeg makes have the samples that ffprobe finds in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::media::container::Container;
use crate::media::track::Medium;

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
        let status = ffmpeg.status();
        assert!(
            status.expect("ffmpeg is installed").success(),
            "{arguments}"
        );
        Self(path)
    }

    fn index(&self) -> SampledIndex {
        index(&fs::read(&self.0).unwrap())
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

fn told(track: &SampledTrack) -> Vec<Packet> {
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
const H264: &str = "-c:v libx264 -preset ultrafast -bf 2 -b_strategy 0 -g 20 -c:a aac";

/// Asserts that the tracks of a file are those of ffprobe, sample by sample.
fn compare_file(file: &File) -> SampledIndex {
    let index = file.index();
    let expected = packets(&file.0, &[]);
    assert_eq!(index.sampled.len(), expected.len(), "{:?}", index.left_out);
    for track in &index.sampled {
        let id = usize::try_from(track.facts.id).unwrap();
        let (is, expected) = (told(track), &expected[id - 1]);
        assert_eq!(is.len(), expected.len(), "track {id}");
        for (at, (is, expected)) in is.iter().zip(expected).enumerate() {
            assert_eq!(
                is,
                expected,
                "{}: track {id}, sample {at}",
                file.0.display()
            );
        }
        assert_eq!(track.playable(), is.len());
        assert_eq!(track.facts.problems, [""; 0], "{}", file.0.display());
    }
    index
}

fn compare(name: &str, arguments: &str) -> SampledIndex {
    compare_file(&File::made(name, arguments))
}

#[test]
fn samples_of_a_plain_file_are_those_of_ffprobe() {
    let forms = [
        ("last.mp4", ""),
        ("first.mp4", "-movflags +faststart"),
        ("a.mov", ""),
        ("negative.mp4", "-movflags +negative_cts_offsets"),
        ("no_edits.mp4", "-use_editlist 0"),
        (
            "far.mp4",
            "-max_interleave_delta 4M -chunk_duration 2000000",
        ),
        ("vfr.mp4", "-vf select='mod(n,7)*mod(n,5)' -fps_mode vfr"),
    ];
    for (name, more) in forms {
        compare(name, &format!("{PICTURES} {SOUND} {H264} {more}"));
    }
}

#[test]
fn samples_of_fragments_are_those_of_ffprobe() {
    let forms = [
        "frag_keyframe+empty_moov",
        "frag_keyframe+empty_moov+default_base_moof",
        "frag_keyframe+empty_moov+separate_moof",
        "frag_keyframe+empty_moov+omit_tfhd_offset",
        "frag_keyframe+delay_moov",
        "frag_every_frame+empty_moov",
        "dash+frag_keyframe+empty_moov",
        "frag_keyframe+empty_moov+default_base_moof+global_sidx",
    ];
    for (number, flags) in forms.iter().enumerate() {
        let name = format!("fragments{number}.mp4");
        compare(
            &name,
            &format!("{PICTURES} {SOUND} {H264} -movflags {flags}"),
        );
    }
}

/// ffprobe shows such pictures later than the file says by as much as their offsets are negative.
#[test]
fn how_long_fragments_last_is_known_at_once() {
    for (number, flags) in [
        "frag_keyframe+empty_moov",
        "frag_keyframe+empty_moov+separate_moof",
        "frag_keyframe+empty_moov+default_base_moof+global_sidx",
        "frag_keyframe+empty_moov+default_base_moof+skip_trailer+global_sidx",
        "cmaf+frag_keyframe+delay_moov+skip_trailer+global_sidx",
    ]
    .into_iter()
    .enumerate()
    {
        let of = format!("{PICTURES} {SOUND} {H264} -movflags {flags}");
        let file = File::made(&format!("ending-{number}.mp4"), &of);
        let bytes = fs::read(&file.0).unwrap();
        let (told_ns, read) = ending::at_once(&bytes, 9999);
        let whole_ns = index(&bytes).duration_ns();
        assert!(
            told_ns.abs_diff(whole_ns) < 1_000_000,
            "{flags}: {told_ns} {whole_ns}"
        );
        assert!(read < bytes.len() / 2, "{flags}: {read} of {}", bytes.len());
    }
}

#[test]
fn fragments_with_negative_offsets_are_shown_as_told() {
    let flags = "cmaf+frag_keyframe+delay_moov";
    let of = format!("{PICTURES} {SOUND} {H264} -movflags {flags}");
    let file = File::made("cmaf.mp4", &of);
    let (index, expected) = (file.index(), packets(&file.0, &[]));
    let later = [512, 0];
    for ((track, expected), later) in index.sampled.iter().zip(&expected).zip(later) {
        let earlier = |it: &Packet| Packet {
            pts: it.pts - later,
            dts: it.dts - later,
            ..*it
        };
        let expected: Vec<_> = expected.iter().map(earlier).collect();
        assert_eq!(told(track), expected);
    }
}

#[test]
fn every_codec_of_ffmpeg_is_found_in_its_files() {
    let forms = [
        (
            "a.mp4",
            "libx265 -preset ultrafast -x265-params log-level=error",
            "ac3",
            "H265 ac3",
        ),
        (
            "b.mp4",
            "libaom-av1 -cpu-used 8 -usage realtime",
            "libopus",
            "AV1 opus",
        ),
        ("c.mp4", "libvpx-vp9 -deadline realtime", "eac3", "VP9 eac3"),
        ("d.mp4", "mpeg4 -bf 2", "libmp3lame", "MP4V-ES MPA"),
        ("e.mp4", "mpeg2video", "mp2", "MPV MPA"),
        ("f.mov", "mpeg2video", "aac", "MPV mpeg4-generic"),
        (
            "g.mov",
            "mjpeg -huffman default -pix_fmt yuvj420p",
            "libmp3lame",
            "JPEG MPA",
        ),
        (
            "h.mp4",
            "mjpeg -huffman default -pix_fmt yuvj420p",
            "aac",
            "JPEG mpeg4-generic",
        ),
    ];
    for (name, video, audio, expected) in forms {
        let name = format!("codec-{name}");
        let of = format!("{PICTURES} {SOUND} -t 1 -c:v {video} -c:a {audio} -ac 2");
        let index = compare(&name, &of);
        let names = index.sampled.iter().map(|it| it.codec.encoding);
        assert_eq!(names.collect::<Vec<_>>().join(" "), expected);
    }
    // One channel of one rate.
    let of = format!("{PICTURES} {SOUND} -t 1 -c:v mpeg1video -c:a g722 -ac 1 -ar 16000");
    let index = compare("codec-i.mov", &of);
    let names = index.sampled.iter().map(|it| it.codec.encoding);
    assert_eq!(names.collect::<Vec<_>>(), ["MPV", "G722"]);
}

#[test]
fn pcm_in_groups_is_all_that_ffprobe_finds() {
    let forms = [
        ("a.mov", "pcm_s16be", "L16", 4),
        ("b.mov", "pcm_mulaw", "PCMU", 2),
        ("c.mov", "pcm_alaw", "PCMA", 2),
        ("d.mov", "pcm_s24be", "L24", 6),
    ];
    for (name, codec, expected, frame_bytes) in forms {
        let of = format!("{PICTURES} {SOUND} {H264} -c:a {codec} -ac 2");
        let file = File::made(&format!("pcm-{name}"), &of);
        let index = file.index();
        let track = index
            .sampled
            .iter()
            .find(|it| it.facts.id == 2)
            .expect(name);
        assert_eq!(track.codec.encoding, expected);
        let packets = &packets(&file.0, &[])[1];
        let all = |packets: &[Packet]| {
            let mut bytes = Vec::new();
            for packet in packets {
                let frames = u64::from(packet.bytes / frame_bytes);
                let of_frame = |it: u64| {
                    let at = packet.at + it * u64::from(frame_bytes);
                    (at, packet.pts + it.cast_signed())
                };
                bytes.extend((0..frames).map(of_frame));
            }
            bytes
        };
        let is = told(track);
        assert!(is.iter().all(|it| it.bytes <= 960 * frame_bytes), "{name}");
        assert!(is.len() < 300, "{name}: {} samples", is.len());
        assert_eq!(all(&is), all(packets), "{name}");
    }
    // In fragments it writes samples of 1024 moments.
    let more = "-c:a pcm_s16be -movflags +frag_keyframe+empty_moov";
    compare(
        "pcm-fragments.mov",
        &format!("{PICTURES} {SOUND} {H264} {more}"),
    );
}

#[test]
fn what_was_cut_out_of_a_file_begins_where_ffprobe_says() {
    let source = File::made("source.mp4", &format!("{PICTURES} {SOUND} {H264}"));
    let path = source.0.display();
    for (number, start) in ["0.5", "1.9", "2.63"].into_iter().enumerate() {
        let name = format!("cut{number}.mp4");
        let file = File::made(&name, &format!("-ss {start} -i {path} -c copy -t 1"));
        let index = file.index();
        // All that is in the file, and what of it is shown.
        let (all, shown) = (
            packets(&file.0, &["-ignore_editlist", "1"]),
            packets(&file.0, &[]),
        );
        let mut later_us = Vec::new();
        for track in &index.sampled {
            let id = usize::try_from(track.facts.id).unwrap();
            let is = told(track);
            if track.codec.medium == Medium::Video {
                assert_eq!(
                    is[0].pts, 0,
                    "{name}: the file begins with its first picture"
                );
            }
            let places = |of: &[Packet]| of.iter().map(|it| (it.at, it.bytes)).collect::<Vec<_>>();
            let (is_at, all_at) = (places(&is), places(&all[id - 1]));
            let first = all_at
                .iter()
                .position(|it| *it == is_at[0])
                .expect("it is one of them");
            assert_eq!(is_at, all_at[first..first + is.len()], "{name}, track {id}");
            // Each that ffprobe tells of is there, and is shown as much later than it says as the
            // sync sample in front is earlier; but it lets pictures begin with a whole one, where
            // the list begins in the middle of one (40 ms).
            let mut differences = Vec::new();
            for expected in &shown[id - 1] {
                let is = is.iter().find(|it| it.at == expected.at);
                differences.extend(is.map(|is| is.pts - expected.pts));
            }
            differences.dedup();
            assert_eq!(differences.len(), 1, "{name}, track {id}: {differences:?}");
            later_us.push(differences[0] * 1_000_000 / i64::from(track.timescale));
            let visible = shown[id - 1].iter().filter(|it| it.pts >= 0).count();
            assert!(is.iter().filter(|it| it.pts >= 0).count() >= visible);
        }
        let [pictures, sound] = later_us[..] else {
            panic!("{name}: {later_us:?}");
        };
        assert!((pictures - sound).abs() < 41_000, "{name}: {later_us:?}");
    }
}

#[test]
fn turned_pictures_and_languages_are_told() {
    let source = File::made("upright.mp4", &format!("{PICTURES} {SOUND} {H264} -t 1"));
    let path = source.0.display();
    let more = "-c copy -metadata:s:a:0 language=deu -metadata:s:v:0 rotate=90";
    let file = File::made("turned.mp4", &format!("-i {path} {more}"));
    let index = compare_file(&file);
    assert_eq!(index.sampled[0].facts.rotation_degrees, 270);
    assert_eq!(index.sampled[0].facts.dimensions, Some((160, 120)));
    assert_eq!(index.sampled[1].facts.language.as_deref(), Some("deu"));
}

#[test]
fn chapters_that_ffmpeg_writes_are_no_subtitles() {
    let told = ";FFMETADATA1\n[CHAPTER]\nTIMEBASE=1/1000\nSTART=0\nEND=500\ntitle=One\n";
    let chapters = std::env::temp_dir().join(format!("onrush-{}-chapters", std::process::id()));
    fs::write(&chapters, told).unwrap();
    let chapters = File(chapters);
    let source = File::made("plain.mp4", &format!("{PICTURES} {SOUND} {H264} -t 1"));
    let (path, told) = (source.0.display(), chapters.0.display());
    let more = "-map_metadata 1 -c copy";
    let file = File::made("chapters.mp4", &format!("-i {path} -i {told} {more}"));
    let index = file.index();
    assert!(index.texts.is_empty(), "{:?}", index.left_out);
    let left_out: Vec<_> = index.left_out.iter().map(|it| &*it.what).collect();
    assert_eq!(left_out, ["chapters (text)"]);
    let media: Vec<_> = index.sampled.iter().map(|it| it.codec.medium).collect();
    assert_eq!(media, [Medium::Video, Medium::Audio]);
}
