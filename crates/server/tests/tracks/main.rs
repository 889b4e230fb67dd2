//! Sessions of several tracks whose packets are of any size, over a veth pair, by clients that
//! compare every byte.
//!
//! The film is of the test container ([`testing`]): what plays it knows nothing of it. Nothing here
//! asserts how long something takes.

mod mp4;
mod scales;
mod speeds;
mod time_codes;
mod transport;

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use onrush_server::config::Config;
use onrush_server::engine::numbering::RtpHeaders;
use onrush_server::server::Server;
use onrush_sys::path::PathName;
use onrush_testkit::media::age;
use onrush_testkit::receiver::{Capture, Receiver};
use onrush_testkit::require_root;
use onrush_testkit::rtsp_client::{Client, Response, rtcp_types};
use onrush_testkit::testbed::{Mode, Options, RCV_IPV4, SND_IPV4, Testbed};
use onrush_wire::media::testing::{self, Packet};
use onrush_wire::rtp::Header;
use onrush_wire::rtsp::Range;
use tempfile::TempDir;

/// Payload type and clock of each track.
const TRACKS: [(u8, u32); 3] = [(96, 90_000), (97, 48_000), (99, 8000)];

/// How long one waits in vain.
const LONG: Duration = Duration::from_secs(60);

/// How far apart the clocks that the tracks' reports tell may be: a tick of the slowest, and what
/// passes while two clocks are read on a machine with other things to do.
const CLOCKS_APART_S_MAX: f64 = 0.005;

/// Five seconds: pictures of many packets, sound of one each, and now and then something else. One
/// can start at each second's first picture. Pictures are shown in another order than they come,
/// and no sound begins where a picture does.
fn film() -> Vec<Packet> {
    let mut packets = Vec::new();
    for tick in 0..500_usize {
        let mut push = |track: usize, sizes: &[usize], is_sync: bool| {
            for (i, &size) in sizes.iter().enumerate() {
                let bytes = (0..=248).cycle().skip(tick * 61 % 249 + i).take(size);
                let (later_ns, shown_later_ms) = match track {
                    0 => (0, [80, 160, 40][tick / 4 % 3]),
                    1 => (7_000_000, 0),
                    _ => (0, 0),
                };
                packets.push(Packet {
                    track,
                    due_ns: tick as u64 * 10_000_000 + later_ns,
                    shown_later_ms,
                    marker: i + 1 == sizes.len(),
                    is_sync: is_sync && i == 0,
                    is_split: (tick + i).is_multiple_of(3),
                    bytes: bytes.collect(),
                });
            }
        };
        if tick.is_multiple_of(4) {
            let mut sizes = vec![1400; tick * 7 % 23];
            sizes.push(1 + tick * 131 % 1399);
            push(0, &sizes, tick.is_multiple_of(100));
        }
        if tick.is_multiple_of(2) {
            push(1, &[1 + tick * 97 % 900], false);
        }
        if tick % 10 == 3 {
            let sizes = (0..tick % 5).map(|i| 1 + (tick + i) * 211 % 1400);
            push(2, &sizes.collect::<Vec<_>>(), false);
        }
    }
    packets
}

/// A server of the film, and a client of all of its tracks.
struct Site {
    client: Client,
    receivers: Vec<Receiver>,
    ssrcs: Vec<u32>,
    id: String,
    url: String,
    tracks: Vec<Vec<Packet>>,
    plays: Vec<Play>,
    server: Server,
    _root: TempDir,
    testbed: Testbed,
}

/// What the answer to a PLAY has told of each track, and which packet it begins with.
struct Play {
    sequences: Vec<u16>,
    timestamps: Vec<u32>,
    /// Where the range begins that it tells.
    start_ns: u64,
    from: Vec<usize>,
}

impl Site {
    fn new(mode: Mode, change: impl FnOnce(&mut Config)) -> Self {
        Self::of(film(), mode, change)
    }

    fn of(packets: Vec<Packet>, mode: Mode, change: impl FnOnce(&mut Config)) -> Self {
        let options = Options {
            mode,
            ..Options::default()
        };
        let testbed = Testbed::new(options).unwrap();
        let root = TempDir::new().unwrap();
        let path = root.path().join("film.ts");
        fs::write(&path, testing::write(&TRACKS, &packets)).unwrap();
        age(&path).unwrap();
        let mut config = Config {
            media_root: root.path().to_owned(),
            rtsp_addresses: vec![(SND_IPV4, 0).into()],
            cache_bytes: 16 << 20,
            ..Config::default()
        };
        change(&mut config);
        let server = testbed.snd.run(|| Server::start(config)).unwrap();
        let address = server.addresses()[0];
        let mut client = testbed.rcv.run(|| Client::connect(address)).unwrap();
        let url = format!("rtsp://{address}/film.ts");
        let (mut receivers, mut ssrcs, mut id) = (Vec::new(), Vec::new(), None);
        for track in 1..=TRACKS.len() {
            let receiver = Receiver::bind(&testbed.rcv, RCV_IPV4.into()).unwrap();
            let set_up = set_up(&mut client, &format!("{url}/track{track}"), &receiver, &id);
            let session = set_up.session().unwrap_or_else(|| panic!("{set_up:?}"));
            ssrcs.push(session.ssrc);
            receivers.push(receiver);
            let known = id.get_or_insert_with(|| session.id.clone());
            assert_eq!(*known, session.id, "one session");
        }
        let of = |track| packets.iter().filter(move |it| it.track == track).cloned();
        Self {
            client,
            receivers,
            ssrcs,
            id: id.expect("there are tracks"),
            url,
            tracks: (0..TRACKS.len()).map(|track| of(track).collect()).collect(),
            plays: Vec::new(),
            server,
            _root: root,
            testbed,
        }
    }

    fn ask(&mut self, method: &str, headers: &[(&str, &str)]) -> Response {
        let mut all = vec![("Session", self.id.as_str())];
        all.extend(headers);
        let answer = self.client.request(method, &self.url, &all).unwrap();
        assert_eq!(answer.status, 200, "{method}: {answer:?}");
        answer
    }

    /// Plays from the last place to start before `second`.
    fn play_from(&mut self, second: u32) {
        let range = format!("npt={}.5-", second);
        let answer = self.ask("PLAY", &[("Range", &range)]);
        let sync_ns = u64::from(second) * 1_000_000_000;
        let from = |track: &Vec<Packet>| track.partition_point(|it| it.due_ns < sync_ns);
        let from = self.tracks.iter().map(from).collect();
        let play = Play::new(&answer, &self.url, from);
        assert_eq!(play.start_ns, sync_ns);
        self.plays.push(play);
    }

    /// Plays on, or from the start.
    fn play_on(&mut self) {
        let answer = self.ask("PLAY", &[]);
        let play = Play::new(&answer, &self.url, Vec::new());
        let from = match self.plays.last() {
            None => vec![0; TRACKS.len()],
            Some(last) => {
                let sent = |track: usize| play.sequences[track].wrapping_sub(last.sequences[track]);
                let tracks = 0..TRACKS.len();
                tracks
                    .map(|track| last.from[track] + usize::from(sent(track)))
                    .collect()
            }
        };
        self.plays.push(Play { from, ..play });
    }

    /// Watches until so much more has come of each track, and pauses.
    fn watch_and_pause(&mut self, packets: usize) {
        for receiver in &self.receivers {
            let more = receiver_len(receiver) + packets;
            let came = receiver.wait_until(LONG, |capture| capture.rtp.len() >= more);
            assert!(came, "packets of each track");
        }
        self.ask("PAUSE", &[]);
    }

    /// Pauses where `second` begins, which is still to come, and watches until all before it is
    /// there.
    fn pause_at(&mut self, second: u32) {
        let before = self.receivers.iter().map(receiver_len).collect::<Vec<_>>();
        let point = format!("npt={second}-");
        self.ask("PAUSE", &[("Range", &point)]);
        let (play, end_ns) = (
            self.plays.last().unwrap(),
            u64::from(second) * 1_000_000_000,
        );
        for (track, packets) in self.tracks.iter().enumerate() {
            let until = packets.partition_point(|it| it.due_ns < end_ns);
            // At the least: some may have come before.
            let count = until - play.from[track];
            let receiver = &self.receivers[track];
            let came = receiver.wait_until(LONG, |capture| capture.rtp.len() >= count);
            assert!(came && count > before[track], "track {track}: {count}");
        }
    }

    /// Watches to the end, and compares all that has come. How often the engine was so late that it
    /// moved its clock.
    fn finish(self) -> u64 {
        for receiver in &self.receivers {
            assert!(receiver.wait_until(LONG, Capture::has_bye), "an end");
        }
        let captures: Vec<_> = self.receivers.into_iter().map(Receiver::finish).collect();
        let mut clocks = Vec::new();
        for (track, capture) in captures.iter().enumerate() {
            let expected = expected(track, &self.tracks[track], &self.plays, self.ssrcs[track]);
            assert_eq!(capture.rtp.len(), expected.len(), "track {track}");
            for (number, (got, wanted)) in capture.rtp.iter().zip(&expected).enumerate() {
                assert!(
                    got.bytes == *wanted,
                    "track {track}: packet {number} differs"
                );
            }
            clocks.push(clock(track, capture, &self.plays));
        }
        assert_together(&clocks);
        let engines = self.server.shutdown().engines;
        drop(self.testbed);
        engines.iter().map(|engine| engine.lags).sum()
    }
}

fn receiver_len(receiver: &Receiver) -> usize {
    let seen = Cell::new(0);
    receiver.wait_until(LONG, |capture| {
        seen.set(capture.rtp.len());
        true
    });
    seen.get()
}

fn set_up(client: &mut Client, url: &str, receiver: &Receiver, id: &Option<String>) -> Response {
    let port = receiver.rtp_port();
    let transport = format!("RTP/AVP;unicast;client_port={port}-{}", port + 1);
    let mut headers = vec![("Transport", transport.as_str())];
    headers.extend(id.iter().map(|id| ("Session", id.as_str())));
    client.request("SETUP", url, &headers).unwrap()
}

impl Play {
    fn new(answer: &Response, url: &str, from: Vec<usize>) -> Self {
        let infos = answer.header("RTP-Info").unwrap_or_default();
        let (mut sequences, mut timestamps) = (Vec::new(), Vec::new());
        for (info, number) in infos.split(',').zip(1..) {
            let mut parts = info.split(';');
            let expected = format!("url={url}/track{number}");
            assert_eq!(parts.next(), Some(expected.as_str()), "{infos}");
            let sequence = parts.next().and_then(|it| it.strip_prefix("seq="));
            let timestamp = parts.next().and_then(|it| it.strip_prefix("rtptime="));
            sequences.push(sequence.unwrap().parse().unwrap());
            timestamps.push(timestamp.unwrap().parse().unwrap());
        }
        assert_eq!(sequences.len(), TRACKS.len(), "{infos}");
        let range = Range::parse(answer.header("Range").unwrap_or_default());
        Self {
            sequences,
            timestamps,
            start_ns: range.unwrap().start_ns.unwrap(),
            from,
        }
    }
}

fn ticks(track: usize, time_ns: u64) -> u32 {
    let ticks = time_ns * u64::from(TRACKS[track].1) / 1_000_000_000;
    u32::try_from(ticks).unwrap()
}

fn shown_ns(packet: &Packet) -> u64 {
    packet.due_ns + u64::from(packet.shown_later_ms) * 1_000_000
}

/// All packets of a track as they are to come: of each play those up to the next, numbered without
/// a gap, and due without one by their stamps.
fn expected(track: usize, packets: &[Packet], plays: &[Play], ssrc: u32) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for (number, play) in plays.iter().enumerate() {
        let (from, first) = (play.from[track], play.sequences[track]);
        let until = match plays.get(number + 1) {
            Some(next) => from + usize::from(next.sequences[track].wrapping_sub(first)),
            None => packets.len(),
        };
        // The stamp of what is due at that time, in a play.
        let stamp = |play: &Play, time_ns| {
            let since = ticks(track, time_ns).wrapping_sub(ticks(track, play.start_ns));
            play.timestamps[track].wrapping_add(since)
        };
        if let (Some(next), Some(end)) = (plays.get(number + 1), packets.get(until)) {
            let begins = stamp(next, packets[next.from[track]].due_ns);
            let apart = begins.wrapping_sub(stamp(play, end.due_ns)).cast_signed();
            assert!(
                apart.abs() <= 1,
                "track {track}: {apart} ticks between plays"
            );
        }
        for (at, packet) in packets.iter().enumerate().take(until).skip(from) {
            let header = Header {
                marker: packet.marker,
                payload_type: TRACKS[track].0,
                sequence: first.wrapping_add(u16::try_from(at - from).unwrap()),
                timestamp: stamp(play, shown_ns(packet)),
                ssrc,
            };
            let payload = packet.payload(u32::try_from(at).unwrap());
            all.push([&header.to_bytes()[..], &payload].concat());
        }
    }
    all
}

#[track_caller]
fn assert_together(clocks: &[f64]) {
    for clock in clocks {
        assert!((clock - clocks[0]).abs() < CLOCKS_APART_S_MAX, "{clocks:?}");
    }
}

/// When media time 0 was, in seconds, by the last report of a track and what the answer to the last
/// play has told.
fn clock(track: usize, capture: &Capture, plays: &[Play]) -> f64 {
    let is_report = |bytes: &[u8]| rtcp_types(bytes).first() == Some(&200);
    let mut reports = capture.rtcp.iter().rev();
    let report = reports.find(|datagram| is_report(&datagram.bytes)).unwrap();
    let word = |at: usize| u32::from_be_bytes(*report.bytes[at..].first_chunk().unwrap());
    let play = plays.last().unwrap();
    let since = word(16).wrapping_sub(play.timestamps[track]);
    // What is before the play is told so, too.
    let since = f64::from(since.cast_signed()) / f64::from(TRACKS[track].1);
    let began = play.start_ns as f64 / 1e9;
    f64::from(word(8)) + f64::from(word(12)) / 4_294_967_296.0 - since - began
}

fn plays_to_the_end(mode: Mode, change: impl FnOnce(&mut Config)) {
    let mut site = Site::new(mode, change);
    site.play_on();
    site.finish();
}

/// Seeks forth and back, pauses, goes on, and plays to the end.
fn jumps_about(mode: Mode, change: impl FnOnce(&mut Config)) {
    let mut site = Site::new(mode, change);
    site.play_from(2);
    site.watch_and_pause(3);
    site.play_on();
    site.watch_and_pause(2);
    site.play_from(0);
    site.watch_and_pause(2);
    // Without a pause between them.
    site.play_from(1);
    site.play_from(3);
    site.finish();
}

#[test]
fn tracks_of_any_sizes_play_to_their_end_in_uso() {
    require_root!();
    plays_to_the_end(Mode::Uso, |_| ());
}

#[test]
fn tracks_of_any_sizes_play_to_their_end_in_software_gso() {
    require_root!();
    plays_to_the_end(Mode::SoftwareGso, |_| ());
}

#[test]
fn tracks_seek_and_pause_as_one_in_uso() {
    require_root!();
    jumps_about(Mode::Uso, |_| ());
}

#[test]
fn tracks_seek_and_pause_as_one_in_software_gso() {
    require_root!();
    jumps_about(Mode::SoftwareGso, |_| ());
}

#[test]
fn tracks_play_by_every_path_and_with_headers_of_their_own() {
    require_root!();
    for path in PathName::ALL {
        jumps_about(Mode::Uso, |config| config.path = path);
    }
    jumps_about(Mode::Uso, |config| config.rtp_headers = RtpHeaders::Own);
}

/// The timestamps that RTP-Info tells are those of where the range begins, by each track's clock:
/// with the first report after any jump they say one time.
// SPECIFICATION.md: 6
#[test]
fn rtp_info_and_reports_tell_one_clock_after_any_jump() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    for second in [2, 0, 3, 3, 1, 4, 0] {
        let before: Vec<_> = site.receivers.iter().map(reports).collect();
        site.play_from(second);
        let mut clocks = Vec::new();
        for (track, receiver) in site.receivers.iter().enumerate() {
            let last = Cell::new(0.0);
            let is_there = |capture: &Capture| {
                last.set(match capture.rtcp.len() > before[track] {
                    true => clock(track, capture, &site.plays),
                    false => return false,
                });
                true
            };
            assert!(receiver.wait_until(LONG, is_there), "a report");
            clocks.push(last.get());
        }
        assert_together(&clocks);
    }
    site.finish();
}

fn reports(receiver: &Receiver) -> usize {
    let seen = Cell::new(0);
    receiver.wait_until(LONG, |capture| {
        seen.set(capture.rtcp.len());
        true
    });
    seen.get()
}

/// RFC 2326, section 4.2: 457 for what cannot be understood, or is not in the media.
#[test]
fn ranges_in_time_codes_are_played_where_frames_go_with_them() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    for range in [
        "smpte=0:00:02-",
        "clock=20200101T000000Z-",
        "beats=1-",
        "smpte-25=0:10:00-",
    ] {
        let headers = [("Session", site.id.as_str()), ("Range", range)];
        let answer = site.client.request("PLAY", &site.url, &headers).unwrap();
        assert_eq!(answer.status, 457, "{range}: {answer:?}");
        assert!(answer.reason.len() > 20, "{answer:?}");
    }
    // Half a second after a place to start.
    let answer = site.ask("PLAY", &[("Range", "smpte-25=0:00:02:12.50-")]);
    let from = |track: &Vec<Packet>| track.partition_point(|it| it.due_ns < 2_000_000_000);
    let from = site.tracks.iter().map(from).collect();
    site.plays.push(Play::new(&answer, &site.url, from));
    assert_eq!(site.plays[0].start_ns, 2_000_000_000);
    // A pause at a frame, too.
    for (at, status) in [("smpte=0:00:04-", 457), ("smpte-25=0:00:04:00", 200)] {
        let headers = [("Session", site.id.as_str()), ("Range", at)];
        let answer = site.client.request("PAUSE", &site.url, &headers).unwrap();
        assert_eq!(answer.status, status, "{at}: {answer:?}");
    }
    // A PLAY without a range takes it back.
    site.play_on();
    site.finish();
}

/// Each track for itself, the last first, and one of them not at all: PLAY and PAUSE are about
/// those that were set up, whichever of their URLs they name.
#[test]
fn some_of_the_tracks_play_in_any_order_of_set_up() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    let (mut id, mut receivers) = (None, Vec::new());
    for track in [3, 1] {
        let receiver = Receiver::bind(&site.testbed.rcv, RCV_IPV4.into()).unwrap();
        let url = format!("{}/track{track}", site.url);
        let set_up = set_up(&mut site.client, &url, &receiver, &id);
        id = Some(set_up.session().unwrap().id);
        receivers.push((track, receiver));
    }
    let id = id.unwrap();
    let mut ask = |method: &str, tail: &str, range: Option<&str>| {
        let mut headers = vec![("Session", id.as_str())];
        headers.extend(range.map(|range| ("Range", range)));
        let url = format!("{}{tail}", site.url);
        site.client.request(method, &url, &headers).unwrap()
    };
    let told = |answer: &Response| -> Vec<String> {
        let infos = answer.header("RTP-Info").unwrap();
        let track = |info: &str| {
            info.split(';')
                .next()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        };
        infos.split(',').map(track).collect()
    };
    for (tail, range) in [("", "npt=2-"), ("/track3", "npt=1-"), ("/track2", "npt=3-")] {
        let answer = ask("PLAY", tail, Some(range));
        assert_eq!(answer.status, 200, "{tail}: {answer:?}");
        assert_eq!(told(&answer), ["track1", "track3"]);
        for (track, receiver) in &receivers {
            let more = receiver_len(receiver) + 2;
            let came = receiver.wait_until(LONG, |capture| capture.rtp.len() >= more);
            assert!(came, "track {track}");
        }
        assert_eq!(ask("PAUSE", tail, None).status, 200, "{tail}");
        assert_eq!(
            ask("PAUSE", tail, None).status,
            455,
            "all of them have paused"
        );
    }
    assert_eq!(ask("TEARDOWN", "/track1", None).status, 200);
    for (track, receiver) in receivers {
        let sequences: Vec<_> = receiver.finish().rtp;
        let sequences = sequences
            .iter()
            .map(|it| Header::read(&it.bytes).unwrap().sequence);
        let sequences: Vec<_> = sequences.collect();
        let is_run = |two: &[u16]| two[1] == two[0].wrapping_add(1);
        assert!(
            sequences.windows(2).all(is_run),
            "track {track}: {sequences:?}"
        );
    }
}

#[test]
fn a_pause_point_holds_for_all_tracks() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    site.play_from(1);
    site.pause_at(3);
    site.play_on();
    let play = site.plays.last().unwrap();
    for (track, packets) in site.tracks.iter().enumerate() {
        let at = packets.partition_point(|it| it.due_ns < 3_000_000_000);
        assert_eq!(play.from[track], at, "track {track}");
    }
    site.finish();
}

#[test]
fn a_track_is_set_up_by_its_name_alone() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    let described = site.client.request("DESCRIBE", &site.url, &[]).unwrap();
    let text = String::from_utf8(described.body).unwrap();
    for (number, (payload_type, clock_hz)) in (1..).zip(TRACKS) {
        let kind = if payload_type % 2 == 0 {
            "video"
        } else {
            "audio"
        };
        let media = format!(
            "m={kind} 0 RTP/AVP {payload_type}\r\n\
             a=rtpmap:{payload_type} X-ONRUSH-TEST/{clock_hz}\r\n\
             a=fmtp:{payload_type} kind={payload_type}\r\na=control:track{number}\r\n"
        );
        assert!(text.contains(&media), "{text}");
    }
    let (url, id) = (site.url.clone(), Some(site.id.clone()));
    for (tail, id, status) in [
        ("/track4", &None, 404),
        ("/track9", &None, 404),
        ("/track4", &id, 404),
        ("", &None, 459),
        ("", &id, 459),
        ("/stream=0", &id, 459),
        // Another transport for one that it has.
        ("/track2", &id, 200),
    ] {
        let receiver = Receiver::bind(&site.testbed.rcv, RCV_IPV4.into()).unwrap();
        let answer = set_up(&mut site.client, &format!("{url}{tail}"), &receiver, id);
        assert_eq!(answer.status, status, "{tail:?}: {answer:?}");
        if let Some(session) = answer.session() {
            site.ssrcs[1] = session.ssrc;
            site.receivers[1] = receiver;
        }
    }
    site.play_from(1);
    let receiver = Receiver::bind(&site.testbed.rcv, RCV_IPV4.into()).unwrap();
    let playing = set_up(&mut site.client, &format!("{url}/track1"), &receiver, &id);
    assert_eq!(playing.status, 455, "{playing:?}");
    site.finish();
}
