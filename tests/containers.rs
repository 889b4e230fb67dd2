//! Films in containers of tracks, as other people's receivers get them: the pictures and the sound
//! of the file, in its order and at its times.
//!
//! A film for each pair of codecs that a container holds and a receiver takes. `players/receive.c`
//! decodes the file and what a server sends of it with the same libraries, so that both say the
//! same of what is the same.

use std::fs;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use onrush_testkit::process::Process;
use onrush_testkit::testbed::Mode;
use onrush_testkit::{require_programs, require_root, skip};
use tempfile::TempDir;

use common::{ONRUSH, PYTHON, Site, has_python_gstreamer};
use films::{
    Coding, Container, FRAGMENTS, Film, Form, GSTREAMER_MATROSKA, GSTREAMER_MOV, GSTREAMER_MP4,
    GSTREAMER_TS, GSTREAMER_WEBM, LATM, M2TS, MATROSKA, MOBILE, MOV, MP4, TS, WEBM, WHOLE_TS,
};
use received::{DEADLINE, Frame, Received, Track, each, program, received, receiver};

mod common;
mod films;
mod received;

const DEMO_MP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../media/demo.mp4");

/// What docs/media.md says is played, is: of each codec there is a film in each of the containers
/// that it names, and in no other.
#[test]
fn every_cell_of_the_document_has_films() {
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/media.md");
    let document = fs::read_to_string(document).unwrap();
    let is_of = |coding: &Coding, codec: &str| match codec {
        "H.264" => matches!(coding.name, "h264" | "slices"),
        "H.265" => coding.name == "h265",
        "MPEG-1 video" => coding.name == "mpeg1",
        "MPEG-2 video" => matches!(coding.name, "mpeg2" | "fields"),
        "MPEG-4 part 2" => coding.name == "mpeg4",
        "JPEG" => coding.name == "mjpeg",
        "AAC" => matches!(coding.name, "aac" | "latm"),
        "MP3" => coding.name == "mp3",
        "MPEG audio, layer 2" => coding.name == "mp2",
        "G.711" => matches!(coding.name, "mulaw" | "alaw"),
        "PCM of 8 bits" => coding.name == "pcm8",
        codec if codec.starts_with("PCM") => matches!(coding.name, "pcm16" | "pcm24"),
        codec => coding.name == codec.to_lowercase().replace(['-', '.'], ""),
    };
    let mut lines = document.lines();
    let head = lines.find(|line| line.starts_with("| codec |")).unwrap();
    let columns = COLUMNS.map(|(name, _)| name).join(" | ");
    assert!(head.starts_with(&format!("| codec | {columns} | RTP |")));
    let mut films = 0;
    for row in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        for ((column, containers), cell) in COLUMNS.iter().zip(&cells[2..]) {
            for of_column in *containers {
                let pairs = of_column.iter().flat_map(|it| it.pairs);
                let codings = pairs.flat_map(|(video, sound)| [video, sound]);
                let known = codings.filter(|coding| is_of(coding, cells[1])).count();
                let is_made = !NOT_MADE.contains(&(cells[1], column));
                let is_played = !cell.is_empty();
                assert_eq!(known > 0, is_played && is_made, "{column} of {row}");
                films += known;
            }
        }
    }
    assert!(films > 120, "{films}");
}

/// The containers of the document's columns: of each list one has to have a film.
const COLUMNS: [(&str, &[&[Container]]); 5] = [
    ("MP4", &[&[MP4, MOBILE], &[FRAGMENTS, GSTREAMER_MP4]]),
    ("MOV", &[&[MOV, GSTREAMER_MOV]]),
    ("Matroska", &[&[MATROSKA, GSTREAMER_MATROSKA]]),
    ("WebM", &[&[WEBM, GSTREAMER_WEBM]]),
    ("MPEG-TS", &[&[TS, M2TS, GSTREAMER_TS], &[WHOLE_TS]]),
];

/// What is played, and no program here writes.
const NOT_MADE: [(&str, &str); 4] = [
    // GStreamer 1.22 writes a configuration that is cut.
    ("AV1", "MOV"),
    ("VP8", "MP4"),
    ("VP9", "MOV"),
    ("PCM of 16 and 24 bits, the highest byte first", "MP4"),
];

// SPECIFICATION.md: 2
#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_mp4() {
    ffmpeg_gets(&[MP4]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_mov() {
    ffmpeg_gets(&[MOV, MOBILE]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_fragments() {
    ffmpeg_gets(&[FRAGMENTS]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_matroska() {
    ffmpeg_gets(&[MATROSKA]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_transport_streams() {
    ffmpeg_gets(&[TS, M2TS]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_webm() {
    ffmpeg_gets(&[WEBM]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_whole_streams() {
    ffmpeg_gets(&[WHOLE_TS]);
}

#[test]
fn ffmpeg_gets_the_pictures_and_sound_of_gstreamers_files() {
    require_programs!("gst-launch-1.0");
    ffmpeg_gets(&GSTREAMERS);
}

/// Written by another program than the rest.
const GSTREAMERS: [Container; 5] = [
    GSTREAMER_MP4,
    GSTREAMER_MOV,
    GSTREAMER_MATROSKA,
    GSTREAMER_WEBM,
    GSTREAMER_TS,
];

/// From the start and from two places, one of which is a sync sample's.
fn ffmpeg_gets(containers: &[Container]) {
    require_root!();
    require_programs!("cc", "ffmpeg");
    let folder = tempfile::tempdir().unwrap();
    let Some(receive) = receiver(&folder) else {
        return skip::record("needs libavformat-dev installed");
    };
    let films: Vec<_> = containers.iter().flat_map(Container::films).collect();
    let site = cinema(&films);
    let files: Vec<_> = films
        .iter()
        .map(|film| of_file(&receive, &comparable(&site, &folder, film), film))
        .collect();
    let starts = [None, Some(1.7), Some(3.0)];
    let plays: Vec<_> = films
        .iter()
        .zip(&files)
        .flat_map(|(film, file)| starts.map(|at| (film, file, at)))
        .collect();
    each(&plays, |(film, file, at)| {
        for _ in 0..TRIES_MAX {
            let moved = site.server.log().matches(CLOCK_MOVED).count();
            let play = || same_film(&site, &receive, film, file, *at);
            if panic::catch_unwind(AssertUnwindSafe(play)).is_ok() {
                return;
            }
            // A machine that holds the server up so long has it move its viewers' clocks, and times
            // with them. It says so once in a while.
            let told = site.server.wait_for_lines(CLOCK_MOVED, moved + 1, TOLD_MAX);
            assert!(told.len() > moved, "see above");
        }
        panic!("the server is held up again and again, see above");
    });
    site.stop();
}

/// Plays a film from a place, and compares what comes with the file.
fn same_film(site: &Site, receive: &Path, film: &Film, file: &Received, at: Option<f64>) {
    let mut command = site.player(receive);
    command.arg(url(site, film));
    // libavformat asks by the stamps of a transport stream, and is answered so.
    let stamp = film.is_whole().then(|| file.track("video").coded[0].at_us);
    let begins_s = stamp.flatten().map_or(0.0, |at_us| at_us as f64 / 1e6);
    command.args(at.map(|at: f64| (begins_s + at).to_string()));
    let served = received(&mut command);
    let what = format!("{} from {at:?}", film.name);
    let overflows = site.overflows();
    assert_eq!(overflows, 0, "{what}: sockets were full");
    let at_us = at.map(us);
    if film.is_whole() {
        return same_stream(&what, film, (file, &served), at_us);
    }
    if film.video.is_received {
        same_pictures(&what, file.track("video"), served.track("video"), at_us);
    }
    if film.sound.is_received {
        same_sound(&what, file.track("audio"), served.track("audio"), at_us);
    }
}

/// What comes of a transport stream that is played as one has its packets, and their stamps.
fn same_stream(
    what: &str,
    film: &Film,
    (file, served): (&Received, &Received),
    at_us: Option<i64>,
) {
    // ffmpeg does not take access units out of LATM before it has looked for long.
    let is_taken = film.sound.name != LATM.name;
    for medium in ["video", "audio"].iter().take(1 + usize::from(is_taken)) {
        let what = format!("{what}: {medium}");
        let (file, served) = (file.track(medium), served.track(medium));
        // A short picture may lie between the tables, with which it begins, and the first that
        // needs no other.
        let in_front = served.coded.iter().position(|frame| frame.is_key);
        let in_front = in_front.filter(|&frames| frames <= 3 && (frames == 0 || at_us.is_some()));
        let in_front = in_front.unwrap_or_else(|| panic!("{what}: needs what was before"));
        let coded = &served.coded[in_front..];
        let from = file.coded.iter().position(|it| it.hash == coded[0].hash);
        let from = from.unwrap_or_else(|| panic!("{what}: the first is none of the file"));
        let first_us = file.coded[from].at_us.unwrap();
        let after_us = first_us - file.coded[0].at_us.unwrap();
        match at_us {
            None => assert_eq!(from, 0, "{what}: frames before the first that came"),
            // Its time begins with its clock, which is before the first picture.
            Some(at_us) => {
                let is_near = (at_us - 1_200_000..=at_us + 200_000).contains(&after_us);
                assert!(is_near, "{what}: begins at {after_us} us");
            }
        }
        // Nothing says of the last that it is whole.
        let whole = &coded[..coded.len() - 1];
        assert_same(&format!("{what}, coded"), &file.coded[from..], whole);
        if *medium == "audio" && at_us.is_some() {
            // A decoder may lack what came before.
            continue;
        }
        let later = |frame: &Frame| frame.at_us.is_none_or(|at_us| at_us >= first_us);
        let [file, served] = [&file.decoded, &served.decoded]
            .map(|frames| &frames[frames.iter().position(later).unwrap()..]);
        // The last picture is decoded of what there is of it, and two more may be shown after it.
        let whole = served.len() - if *medium == "video" { 3 } else { 0 };
        assert_same(&format!("{what}, decoded"), file, &served[..whole]);
    }
}

/// What a file has of a film.
fn of_file(receive: &Path, path: &Path, film: &Film) -> Received {
    let mut file = received(Command::new(receive).arg(path));
    if film.sound.name == LATM.name && !film.is_whole() {
        // ffmpeg does not take access units out of it: they are those of the same sound elsewhere.
        let same = film.coded(&format!("{}.mkv", film.name), "");
        let same = received(Command::new(receive).arg(same));
        let is_sound = |track: &Track| track.medium == "audio";
        file.tracks.retain(|track| !is_sound(track));
        file.tracks.extend(same.tracks.into_iter().filter(is_sound));
    }
    file
}

/// Where a film is played, each track for itself.
fn url(site: &Site, film: &Film) -> String {
    let parameter = match film.container.form {
        Form::ElementaryStreams => "?tracks=elementary",
        Form::Tracks | Form::Whole => "",
    };
    site.url(&film.name) + parameter
}

/// The film in a file that says of frames and times what its tracks do: in a transport stream times
/// begin anywhere, and frames of AAC have headers of their own.
fn comparable(site: &Site, folder: &TempDir, film: &Film) -> PathBuf {
    let path = site.path(&film.name);
    if film.container.form != Form::ElementaryStreams {
        return path;
    }
    let copy = folder.path().join(&film.name).with_extension("mkv");
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg.args(["-v", "error", "-i"]).arg(path);
    // Matroska has no times of decoding, which may be negative.
    ffmpeg.args(["-c", "copy", "-avoid_negative_ts", "disabled"]);
    let (status, said) = Process::run(ffmpeg.arg(&copy), DEADLINE).unwrap();
    assert!(status.success(), "{said}");
    copy
}

/// The pictures are the file's, from the last sync sample that is shown by then, to the end.
fn same_pictures(what: &str, file: &Track, served: &Track, at_us: Option<i64>) {
    let is_by_then = |frame: &&Frame| {
        let shown_us = frame.at_us.filter(|_| frame.is_key);
        shown_us.is_some_and(|shown_us| at_us.is_some_and(|at| shown_us <= at))
    };
    let key = file.coded.iter().rfind(is_by_then);
    let key = key.unwrap_or(&file.coded[0]);
    let key_us = key.at_us.unwrap();
    let from = file.decoded.iter().position(|frame| {
        let at_us = frame.at_us.expect("a file tells the time of each picture");
        (key_us - 1000..=key_us + 1000).contains(&at_us)
    });
    let expected = &file.decoded[from.unwrap()..];
    assert_same(&format!("{what}: pictures"), expected, &served.decoded);
    let from = file.coded.iter().position(|frame| std::ptr::eq(frame, key));
    let expected = &file.coded[from.unwrap()..];
    assert_same(&format!("{what}: coded"), expected, &served.coded);
}

/// The sound is the file's: each frame as it was coded and, from the start, as it is decoded. From
/// elsewhere a decoder may lack what came before.
///
/// PCM is compared as bytes: where it is cut is no part of it.
fn same_sound(what: &str, file: &Track, served: &Track, at_us: Option<i64>) {
    let what = format!("{what}: sound");
    if !file.bytes.is_empty() {
        return same_bytes(&what, file, served, at_us);
    }
    let first = &served.coded.first().expect("sound").hash;
    let from = file.coded.iter().position(|frame| frame.hash == *first);
    let from = from.unwrap_or_else(|| panic!("{what}: the first frame is none of the file"));
    if at_us.is_none() {
        assert_eq!(from, 0, "{what}: frames before the first that came");
        assert_same(&format!("{what}, decoded"), &file.decoded, &served.decoded);
    }
    assert_same(&what, &file.coded[from..], &served.coded);
    begins_near(&what, file.coded[from].at_us.unwrap(), at_us);
}

fn same_bytes(what: &str, file: &Track, served: &Track, at_us: Option<i64>) {
    let all = file.bytes.len();
    let first = served.bytes.get(..MATCH_BYTES).expect("sound");
    let from = file.bytes.windows(MATCH_BYTES).position(|it| it == first);
    let from = from.unwrap_or_else(|| panic!("{what}: the first bytes are none of the file"));
    let missing = all - from - served.bytes.len();
    assert!(
        missing <= MISSING_BYTES_MAX,
        "{what}: {missing} of {all} bytes are missing"
    );
    assert!(
        file.bytes[from..].starts_with(&served.bytes),
        "{what}: other bytes"
    );
    // All of one rate.
    let last = file.coded.last().unwrap();
    let before_last = all - last.bytes;
    let file_us = file.coded[0].at_us.unwrap();
    let span_us = last.at_us.unwrap() - file_us;
    let signed = |bytes: usize| i64::try_from(bytes).unwrap();
    let time_us = |offset: usize| file_us + span_us * signed(offset) / signed(before_last);
    let mut offset = from;
    for frame in &served.coded {
        assert_time(what, time_us(offset), frame.at_us.unwrap());
        offset += frame.bytes;
    }
    begins_near(what, time_us(from), at_us);
}

/// Sound begins where the pictures do, which is at most a second before.
fn begins_near(what: &str, first_us: i64, at_us: Option<i64>) {
    let Some(at_us) = at_us else { return };
    let is_near = (at_us - 1_100_000..=at_us).contains(&first_us);
    assert!(is_near, "{what}: begins at {first_us} us");
}

/// The same frames in the same order at the same times. The last ones may be missing: libavformat
/// ends with the BYE of the last track, and asks for RTCP before RTP.
fn assert_same(what: &str, file: &[Frame], served: &[Frame]) {
    let (all, got) = (file.len(), served.len());
    let pairs = || file.iter().zip(served);
    let same = pairs().take_while(|(file, served)| file.hash == served.hash);
    let same = same.count();
    assert!(
        same == got && got + MISSING_MAX >= all,
        "{what}: {same} of {got} of {all} frames are the same"
    );
    let mut timed = 0;
    // libavformat's parsers make up the times of what came in the first packet.
    for (file, served) in pairs().skip(FIRST_MAX) {
        if let (Some(file_us), Some(served_us)) = (file.at_us, served.at_us) {
            assert_time(what, file_us, served_us);
            timed += 1;
        }
    }
    // Of frames that share a packet, or a PES packet, the first alone has a time.
    assert!(
        timed * 16 > got,
        "{what}: {timed} of {got} frames have a time"
    );
}

/// As all tracks keep to the file's time, they are in step.
fn assert_time(what: &str, file_us: i64, served_us: i64) {
    let off_us = served_us - file_us;
    assert!(
        off_us.abs() <= STEP_US,
        "{what}: {file_us} us of the file is {off_us} us off"
    );
}

#[test]
fn gstreamer_decodes_every_container_without_a_warning() {
    require_root!();
    require_programs!("ffmpeg");
    if !has_python_gstreamer() {
        return;
    }
    gstreamer_decodes(&[MP4, MOBILE, MOV, FRAGMENTS, MATROSKA, TS, M2TS, WEBM]);
}

#[test]
fn gstreamer_decodes_whole_streams_and_its_own_files() {
    require_root!();
    require_programs!("ffmpeg");
    if !has_python_gstreamer() {
        return;
    }
    gstreamer_decodes(&[WHOLE_TS]);
    gstreamer_decodes(&GSTREAMERS);
}

fn gstreamer_decodes(containers: &[Container]) {
    let films: Vec<_> = containers.iter().flat_map(Container::films).collect();
    let site = cinema(&films);
    each(&films, |film| gstreamer_decodes_film(&site, film));
    site.stop();
}

fn gstreamer_decodes_film(site: &Site, film: &Film) {
    let mut command = site.player(PYTHON);
    command.arg(program("decode.py")).arg(url(site, film));
    command.arg(if film.is_whole() { "whole" } else { "tracks" });
    let tracks = [("video", film.video), ("audio", film.sound)];
    for (medium, coding) in tracks {
        let element = film.gstreamer(coding).unwrap_or_default();
        command.arg(format!("{medium}={element}"));
    }
    let (_, said) = Process::run(&mut command, DEADLINE).unwrap();
    let trouble: Vec<_> = said
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR"))
        .collect();
    let name = &film.name;
    assert!(trouble.is_empty(), "{name}: {trouble:?}");
    for (medium, coding) in tracks {
        let count = |line: &str| line.strip_prefix(medium)?.trim().parse().ok();
        let came: usize = said.lines().find_map(count).expect(&said);
        // A hundred pictures, or four seconds of sound in pieces of less than a tenth.
        let is_all = film.gstreamer(coding).is_none() || came >= 40;
        assert!(is_all, "{name}: {came} buffers of {medium}: {said}");
    }
}

fn us(seconds: f64) -> i64 {
    #[allow(clippy::cast_possible_truncation, reason = "some seconds")]
    let us = (seconds * 1e6) as i64;
    us
}

/// Films encrypted by ISO/IEC 23001-7: what is said of them, and that what is in the clear plays.
#[test]
fn encrypted_tracks_are_told_and_the_others_play() {
    require_root!();
    require_programs!("cc", "ffmpeg");
    let folder = tempfile::tempdir().unwrap();
    let Some(receive) = receiver(&folder) else {
        return skip::record("needs libavformat-dev installed");
    };
    let (testbed, media) = Site::prepare(Mode::Uso);
    let (all, half) = (media.path().join("all.mp4"), media.path().join("half.mp4"));
    let mut encrypt = Command::new("ffmpeg");
    encrypt.args(["-nostdin", "-v", "error", "-i", DEMO_MP4, "-c", "copy"]);
    encrypt.args(["-encryption_scheme", "cenc-aes-ctr"]);
    encrypt.args(["-encryption_key", "76a6c65c5ea762046bd749a2e632ccbb"]);
    encrypt.args(["-encryption_kid", "a7e61c373e219033c21091fa607bf3b8"]);
    assert!(encrypt.arg(&all).status().unwrap().success());
    // Nothing here encrypts one track of two: one is called so.
    let mut bytes = fs::read(DEMO_MP4).unwrap();
    let entry = bytes.windows(4).position(|name| name == b"mp4a").unwrap();
    bytes[entry..entry + 4].copy_from_slice(b"enca");
    fs::write(&half, bytes).unwrap();
    let inspect = |path: &Path| {
        let output = Command::new(ONRUSH).arg("inspect").arg(path).output();
        let output = output.unwrap();
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), said.concat())
    };
    let (is_media, said) = inspect(&all);
    assert!(
        !is_media && said.matches("it is encrypted (cenc)").count() == 2,
        "{said}"
    );
    let (is_media, said) = inspect(&half);
    assert!(is_media && said.contains("it is encrypted"), "{said}");
    let site = Site::serve(testbed, media, &[]);
    let mut client = site.connect();
    let refused = client
        .request("DESCRIBE", &site.url("all.mp4"), &[])
        .unwrap();
    assert_eq!(refused.status, 415, "{refused:?}");
    let served = received(site.player(&receive).arg(site.url("half.mp4")));
    let file = received(Command::new(&receive).arg(DEMO_MP4));
    same_pictures("half.mp4", file.track("video"), served.track("video"), None);
    assert_eq!(served.tracks.len(), 1, "its sound is left out");
    site.stop();
}

/// A server of films.
fn cinema(films: &[Film]) -> Site {
    let (testbed, media) = Site::prepare(Mode::Uso);
    for film in films {
        fs::copy(film.make(), media.path().join(&film.name)).unwrap();
    }
    Site::serve(testbed, media, &[])
}

/// What the server says where it was held up for long, and how long until it does.
const CLOCK_MOVED: &str = "so far behind that its clock was moved";
const TOLD_MAX: Duration = Duration::from_secs(20);
/// How often a film is played whose server is held up.
const TRIES_MAX: usize = 3;
/// Frames that a receiver may lose at the end.
const MISSING_MAX: usize = 8;
/// Frames in a first packet: of MP3, as many as last 80 ms.
const FIRST_MAX: usize = 3;
/// Bytes of sound that it may lose so: packets of an Ethernet frame.
const MISSING_BYTES_MAX: usize = MISSING_MAX * 1500;
/// Enough bytes to be found once.
const MATCH_BYTES: usize = 256;
/// How far a time may be off.
const STEP_US: i64 = 5000;
