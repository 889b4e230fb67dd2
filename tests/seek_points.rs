//! Every place where a decoder can start, over TCP: what FFmpeg and GStreamer receive from there to
//! the film's end is what the file has, byte for byte.
//!
//! The film has a sync sample every ten pictures. Each is asked for by a session that begins there,
//! and by one that plays from the start and jumps.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;

use onrush_testkit::checker::TS_BYTES;
use onrush_testkit::media::film;
use onrush_testkit::testbed::Mode;
use onrush_testkit::{require_programs, require_root, skip};

use common::{PYTHON, Site, has_python_gstreamer};
use received::{Frame, Received, Track, each, program, received, receiver};

mod common;
mod received;

/// A hundred pictures, of which every tenth is a sync sample.
const SEEK_POINTS: usize = 10;
const CODED: &str = "-c:v libx264 -preset veryfast -bf 2 -g 10 -keyint_min 10 -sc_threshold 0 \
                     -pix_fmt yuv420p -c:a aac -aac_pns 0";
/// How far from a sync sample sound may begin: as far as a multiplexer puts it.
const SOUND_BESIDE_US: u64 = 500_000;
/// Pictures of a transport stream between its tables, with which it begins, and the sync sample.
const IN_FRONT_MAX: usize = 3;

/// A server of the film in a container of tracks and in a transport stream.
fn cinema() -> Site {
    let (testbed, media) = Site::prepare(Mode::Uso);
    // Pictures that say how long they are: of the last one FFmpeg would not know it else.
    let stream = format!("{CODED} -omit_video_pes_length 0");
    for (name, arguments) in [(MP4, CODED), (TS, &stream)] {
        fs::copy(film(name, arguments).unwrap(), media.path().join(name)).unwrap();
    }
    Site::serve(testbed, media, &[])
}

const MP4: &str = "points.mp4";
const TS: &str = "points.ts";

#[test]
fn ffmpeg_gets_every_seek_point_over_tcp() {
    require_root!();
    require_programs!("cc", "ffmpeg");
    let folder = tempfile::tempdir().unwrap();
    let Some(receive) = receiver(&folder) else {
        return skip::record("needs libavformat-dev installed");
    };
    let site = cinema();
    for (name, ways) in [
        (MP4, &[None, Some("jump")][..]),
        // What FFmpeg has of a picture when it jumps it tells as the first of the new place.
        (TS, &[None]),
    ] {
        let file = received(Command::new(&receive).arg(site.path(name)));
        let keys = keys(&file);
        let plays: Vec<_> = ways
            .iter()
            .flat_map(|way| keys.iter().map(move |&key| (key, *way)))
            .collect();
        let begun = Mutex::new(BTreeSet::new());
        each(&plays, |&(key, way)| {
            let video = file.track("video");
            let at_us = video.coded[key].at_us.unwrap();
            let mut command = site.player(&receive);
            command.arg(site.url(name));
            command.args([&format!("{:.6}", at_us as f64 / 1e6), "tcp"]);
            let served = received(command.args(way));
            let what = format!("{name} from {at_us} us, {way:?}");
            let began = assert_same(&what, &file, &served);
            if name == MP4 {
                assert_eq!(began, key, "{what}: begins at another frame");
            }
            begun.lock().unwrap().insert(began);
        });
        assert_all_begun(name, &keys, &begun.into_inner().unwrap());
    }
    site.stop();
}

#[test]
fn gstreamer_gets_every_seek_point_over_tcp() {
    require_root!();
    require_programs!("cc", "ffmpeg");
    if !has_python_gstreamer() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let Some(receive) = receiver(&folder) else {
        return skip::record("needs libavformat-dev installed");
    };
    let site = cinema();
    let play = |name: &str, at_s: Option<f64>| {
        let mut command = site.player(PYTHON);
        command.arg(program("receive.py")).arg(site.url(name));
        received(command.args(at_s.map(|at_s| format!("{at_s:.6}"))))
    };
    let file = received(Command::new(&receive).arg(site.path(MP4)));
    let keys = keys(&file);
    let starts: Vec<_> = [None]
        .into_iter()
        .chain(keys.iter().map(|key| Some(*key)))
        .collect();
    each(&starts, |&start| {
        let at_us = start.map(|key| file.track("video").coded[key].at_us.unwrap());
        let served = play(MP4, at_us.map(|at_us| at_us as f64 / 1e6));
        let what = format!("{MP4} from {at_us:?} us");
        let began = assert_same(&what, &file, &served);
        assert_eq!(began, start.unwrap_or(0), "{what}: begins at another frame");
    });
    let stream = fs::read(site.path(TS)).unwrap();
    let points = random_access_points(&stream);
    assert_eq!(points.len(), SEEK_POINTS, "{points:?}");
    let starts: Vec<_> = [None]
        .into_iter()
        .chain((0..SEEK_POINTS).map(Some))
        .collect();
    each(&starts, |&start| {
        // A little behind it, because a place is told in less than ticks.
        let at_s = start.map(|point| points[point].1 + 0.005);
        let served = play(TS, at_s);
        let bytes = &served.track("video").bytes;
        let what = format!("{TS} from {at_s:?} s");
        let from = stream.len().checked_sub(bytes.len());
        let from = from.unwrap_or_else(|| panic!("{what}: more than the film"));
        assert!(
            stream[from..] == bytes[..],
            "{what}: other bytes than those from {from}"
        );
        // Tables may stand in front of it.
        let packet = from / TS_BYTES;
        let point = start.unwrap_or(0);
        let before = point
            .checked_sub(1)
            .map_or(0, |before| points[before].0 + 1);
        let range = before..=points[point].0;
        assert!(
            range.contains(&packet),
            "{what}: begins at {packet}, not in {range:?}"
        );
    });
    site.stop();
}

/// Where its sync samples are.
fn keys(file: &Received) -> Vec<usize> {
    let coded = file.track("video").coded.iter().enumerate();
    let keys = coded.filter(|(_, frame)| frame.is_key);
    let keys: Vec<_> = keys.map(|(at, _)| at).collect();
    assert_eq!(keys.len(), SEEK_POINTS, "{keys:?}");
    keys
}

/// What was served is the file's from a frame on, to its last one, and that is a sync sample; the
/// sound begins beside it. The frame's place in the file comes back.
fn assert_same(what: &str, file: &Received, served: &Received) -> usize {
    let (pictures, sound) = (file.track("video"), file.track("audio"));
    let came = &served.track("video").coded;
    let in_front = came.iter().take_while(|frame| !frame.is_key).count();
    let in_front_max = if what.starts_with(TS) {
        IN_FRONT_MAX
    } else {
        0
    };
    assert!(
        in_front <= in_front_max,
        "{what}: {in_front} pictures in front of a sync sample"
    );
    let from = assert_same_frames(&format!("{what}: pictures"), pictures, &came[in_front..]);
    assert!(
        pictures.coded[from].is_key,
        "{what}: begins with frame {from}"
    );
    let heard = assert_same_frames(
        &format!("{what}: sound"),
        sound,
        &served.track("audio").coded,
    );
    let [shown_us, heard_us] = [&pictures.coded[from], &sound.coded[heard]]
        .map(|frame| frame.at_us.expect("a file tells the time of each frame"));
    assert!(
        shown_us.abs_diff(heard_us) < SOUND_BESIDE_US,
        "{what}: sound of {heard_us} us beside a picture of {shown_us} us"
    );
    from
}

fn assert_same_frames(what: &str, file: &Track, served: &[Frame]) -> usize {
    let (all, got) = (file.coded.len(), served.len());
    let from = all.checked_sub(got);
    let from = from.unwrap_or_else(|| panic!("{what}: more than the film"));
    let pairs = file.coded[from..].iter().zip(served);
    let same = pairs.take_while(|(file, served)| file.hash == served.hash);
    let same = same.count();
    assert!(
        same > 0 && same == got,
        "{what}: {same} of {got} frames are those from {from} to {all}"
    );
    from
}

/// The packets of pictures that say that a decoder can start there, and when each is due in seconds
/// from the first clock reference (ISO/IEC 13818-1, section 2.4.3.4).
fn random_access_points(stream: &[u8]) -> Vec<(usize, f64)> {
    let (mut first, mut points) = (None, Vec::new());
    for (number, packet) in stream.chunks(TS_BYTES).enumerate() {
        let has_clock = packet[3] & 0x20 != 0 && packet[4] > 6 && packet[5] & 0x10 != 0;
        if !has_clock {
            continue;
        }
        let base = packet[6..10]
            .iter()
            .fold(0, |base: u64, &byte| base << 8 | u64::from(byte));
        let ticks = base << 1 | u64::from(packet[10] >> 7);
        let first = *first.get_or_insert(ticks);
        if packet[5] & 0x40 != 0 {
            points.push((number, (ticks - first) as f64 / 90_000.0));
        }
    }
    points
}

fn assert_all_begun(name: &str, keys: &[usize], begun: &BTreeSet<usize>) {
    let missing: Vec<_> = keys.iter().filter(|key| !begun.contains(key)).collect();
    assert!(missing.is_empty(), "{name}: nothing began at {missing:?}");
}
