//! A transport stream that is played as one (RFC 2250), at scales to and fro: other people's
//! demultiplexers and decoders find the film's sync pictures, at the scale's pace, and whoever
//! plays it at scale 1 meanwhile gets the bytes of the file.

use std::fs;
use std::path::Path;
use std::process::Command;

use onrush_testkit::require_programs;

use super::mp4::make_film;
use super::*;

const NAME: &str = "film.ts";

/// What ffmpeg decodes: of each picture a hash, in the order of showing. With `only_syncs` of those
/// that need no others.
fn decoded(path: &Path, only_syncs: bool) -> Vec<String> {
    let mut command = Command::new("ffmpeg");
    command.args(["-nostdin", "-v", "warning"]);
    if only_syncs {
        command.args(["-skip_frame", "nokey"]);
    }
    command.arg("-i").arg(path);
    let output = command
        .args(["-map", "0:v", "-fps_mode", "passthrough"])
        .args(["-f", "framehash", "-hash", "md5", "-"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let is_heard = |line: &&str| !line.contains("Could not find codec parameters");
    let complaints: Vec<_> = said.lines().filter(is_heard).collect();
    let is_clean = !complaints
        .iter()
        .any(|it| it.contains("ontinuity") || it.contains("orrupt"));
    assert!(output.status.success() && is_clean, "{complaints:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| Some(line.rsplit(',').next()?.trim().to_owned()))
        .collect()
}

/// When pictures are shown, in ticks of 90 kHz, and how many of them need no others.
fn shown(path: &Path) -> (Vec<i64>, usize) {
    let output = Command::new("ffprobe")
        .args(["-v", "error", "-select_streams", "v"])
        .args(["-show_entries", "packet=pts,flags", "-of", "csv=p=0"])
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty());
    let pairs: Vec<_> = lines.map(|line| line.split_once(',').unwrap()).collect();
    let syncs = pairs.iter().filter(|(_, flags)| flags.starts_with('K'));
    let stamps = pairs.iter().map(|(stamp, _)| stamp.parse().unwrap());
    (stamps.collect(), syncs.count())
}

/// When GStreamer shows the pictures that it decodes, in ms.
fn shown_by_gstreamer(path: &Path) -> Vec<i64> {
    let location = format!("location={}", path.display());
    let output = Command::new("gst-launch-1.0")
        .args(["-v", "filesrc", &location, "!", "tsdemux", "!"])
        .args(["h264parse", "!", "openh264dec", "!"])
        .args(["fakesink", "silent=false", "sync=false"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && !text.contains("WARNING"),
        "{text}"
    );
    let stamps = text.split("pts: ").skip(1).filter_map(|rest| {
        let stamp = rest.split([',', ' ']).next()?;
        let mut parts = stamp.split([':', '.']);
        let mut number = || parts.next()?.parse::<i64>().ok();
        let (hours, minutes, seconds, ns) = (number()?, number()?, number()?, number()?);
        Some(((hours * 60 + minutes) * 60 + seconds) * 1000 + ns / 1_000_000)
    });
    stamps.collect()
}

/// One of the film's viewers.
struct Viewer {
    client: Client,
    receiver: Receiver,
    url: String,
    id: String,
}

impl Viewer {
    fn new(testbed: &Testbed, server: &Server) -> Self {
        let address = server.addresses()[0];
        let mut client = testbed.rcv.run(|| Client::connect(address)).unwrap();
        let url = format!("rtsp://{address}/{NAME}");
        let receiver = Receiver::bind(&testbed.rcv, RCV_IPV4.into()).unwrap();
        let set_up = set_up(&mut client, &format!("{url}/track1"), &receiver, &None);
        let id = set_up.session().unwrap_or_else(|| panic!("{set_up:?}")).id;
        Self {
            client,
            receiver,
            url,
            id,
        }
    }

    /// Plays, and says with which number, and at which scale.
    fn play(&mut self, headers: &[(&str, &str)]) -> (u16, i32) {
        let session = [("Session", self.id.as_str())];
        let headers = [&session[..], headers].concat();
        let answer = self.client.request("PLAY", &self.url, &headers).unwrap();
        assert_eq!(answer.status, 200, "{answer:?}");
        let told = answer.header("RTP-Info").unwrap();
        let sequence = told.split("seq=").nth(1).unwrap().split(';').next();
        let scale = answer.header("Scale").map_or(1, |it| it.parse().unwrap());
        (sequence.unwrap().parse().unwrap(), scale)
    }

    fn wait(&self, what: &str, is_enough: impl Fn(&[&[u8]]) -> bool) {
        let from = receiver_len(&self.receiver);
        let came = self.receiver.wait_until(LONG, |capture| {
            let payloads = capture.rtp.iter().skip(from).map(|it| &it.bytes[12..]);
            is_enough(&payloads.collect::<Vec<_>>())
        });
        assert!(came, "{what}");
    }

    fn finish(mut self) -> Capture {
        let session = [("Session", self.id.as_str())];
        self.client
            .request("TEARDOWN", &self.url, &session)
            .unwrap();
        self.receiver.finish()
    }
}

/// Whether a payload begins with a program association table, as that of a sync picture does.
fn begins_picture(payload: &&&[u8]) -> bool {
    payload[1] & 0x5f == 0x40 && payload[2] == 0
}

fn served(testbed: &Testbed, root: &TempDir) -> Server {
    let config = Config {
        media_root: root.path().to_owned(),
        rtsp_addresses: vec![(SND_IPV4, 0).into()],
        cache_bytes: 16 << 20,
        ..Config::default()
    };
    testbed.snd.run(|| Server::start(config)).unwrap()
}

#[test]
fn a_transport_stream_plays_at_scales_to_and_fro() {
    require_root!();
    require_programs!("ffmpeg", "ffprobe", "gst-launch-1.0");
    let (testbed, root) = (
        Testbed::new(Options::default()).unwrap(),
        TempDir::new().unwrap(),
    );
    let film = root.path().join(NAME);
    make_film(&film);
    age(&film).unwrap();
    let server = served(&testbed, &root);
    let mut other = Viewer::new(&testbed, &server);
    other.play(&[]);
    let mut viewer = Viewer::new(&testbed, &server);
    let mut plays = Vec::new();
    for (headers, scale) in [
        (&[("Range", "npt=5-")][..], 1),
        (&[("Scale", "4")], 4),
        (&[("Scale", "-2")], -2),
        (&[("Scale", "-8"), ("Range", "npt=18.5-")], -8),
        (&[], 1),
        (&[("Scale", "16"), ("Range", "npt=0-")], 16),
    ] {
        plays.push(viewer.play(headers));
        assert_eq!(plays.last().unwrap().1, scale);
        viewer.wait(&format!("pictures at {scale}"), |payloads| match scale {
            1 => payloads.len() > 100,
            _ => payloads.iter().filter(begins_picture).count() > 6,
        });
    }
    let capture = viewer.finish();
    let headers = capture
        .rtp
        .iter()
        .map(|it| Header::read(&it.bytes).unwrap());
    let sequences: Vec<_> = headers.map(|it| it.sequence).collect();
    let is_run = |two: &[u16]| two[1] == two[0].wrapping_add(1);
    assert!(sequences.windows(2).all(is_run), "{sequences:?}");

    let syncs = decoded(&film, true);
    assert_eq!(syncs.len(), 20);
    let first = plays[0].0;
    let begins = |at: usize| usize::from(plays[at].0.wrapping_sub(first));
    for (at, &(_, scale)) in plays.iter().enumerate().filter(|(_, play)| play.1 != 1) {
        let end = plays
            .get(at + 1)
            .map_or(capture.rtp.len(), |_| begins(at + 1));
        let mut packets = &capture.rtp[begins(at)..end];
        // The last picture may have been cut short.
        let last = packets
            .iter()
            .rposition(|it| begins_picture(&&&it.bytes[12..]));
        packets = &packets[..last.unwrap()];
        let path = root.path().join(format!("at{scale}.ts"));
        let payloads = packets.iter().flat_map(|it| &it.bytes[12..]);
        fs::write(&path, payloads.copied().collect::<Vec<u8>>()).unwrap();
        judge(&path, scale, &syncs);
    }

    // What the other one got is the file, from its beginning.
    let capture = other.finish();
    let payloads = capture.rtp.iter().flat_map(|it| &it.bytes[12..]);
    let got: Vec<u8> = payloads.copied().collect();
    assert!(got.len() > 10 * 1316 && fs::read(&film).unwrap().starts_with(&got));
}

/// Sees that a stream has the film's sync pictures, one after the other, at the pace of the scale.
fn judge(path: &Path, scale: i32, syncs: &[String]) {
    let (stamps, whole) = shown(path);
    assert_eq!(whole, stamps.len(), "only whole pictures at {scale}");
    let pictures = decoded(path, false);
    assert_eq!(pictures.len(), stamps.len());
    assert!(pictures.len() >= 5, "{pictures:?}");
    let numbers: Vec<_> = pictures
        .iter()
        .map(|it| {
            syncs
                .iter()
                .position(|sync| sync == it)
                .expect("one of the film")
        })
        .collect();
    let follows = |two: &[usize]| match scale > 0 {
        true => two[1] == two[0] + 1,
        false => two[0] == two[1] + 1,
    };
    assert!(numbers.windows(2).all(follows), "{numbers:?} at {scale}");
    // One a second, and sent up to a few pictures before they are shown.
    let expected = 90_000 / i64::from(scale.abs());
    let steps: Vec<_> = stamps.windows(2).map(|two| two[1] - two[0]).collect();
    let near = |step: &i64| (step - expected).abs() * 5 <= expected;
    assert!(steps.iter().all(near), "{steps:?} at {scale}");
    let ticks: Vec<_> = shown_by_gstreamer(path).iter().map(|ms| ms * 90).collect();
    assert_eq!(ticks.len(), stamps.len(), "GStreamer at {scale}");
    let steps: Vec<_> = ticks.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(steps.iter().all(near), "{steps:?} by GStreamer at {scale}");
}

/// One whose pictures cannot be read is played at scale 1, which the answer says.
#[test]
fn a_scrambled_stream_plays_at_scale_1() {
    require_root!();
    require_programs!("ffmpeg");
    let (testbed, root) = (
        Testbed::new(Options::default()).unwrap(),
        TempDir::new().unwrap(),
    );
    let path = root.path().join(NAME);
    make_film(&path);
    let mut film = fs::read(&path).unwrap();
    for packet in film.chunks_mut(188) {
        // ffmpeg's pid of pictures.
        if (packet[1] & 0x1f, packet[2]) == (1, 0) {
            packet[3] |= 0xc0;
        }
    }
    fs::write(&path, &film).unwrap();
    age(&path).unwrap();
    let server = served(&testbed, &root);
    let mut viewer = Viewer::new(&testbed, &server);
    assert_eq!(viewer.play(&[("Scale", "8"), ("Range", "npt=0-")]).1, 1);
    viewer.wait("packets", |payloads| payloads.len() > 20);
    let capture = viewer.finish();
    let payloads = capture.rtp.iter().flat_map(|it| &it.bytes[12..]);
    assert!(film.starts_with(&payloads.copied().collect::<Vec<u8>>()));
}
