//! Jumps within one session, heard by a receiver that is as strict as the strictest players:
//! packets rise by one and time never steps back, wherever in the film they come from (RFC 2326,
//! appendix B).
//!
//! A session is a journey of PLAY after PLAY, in one pair of ports. What came is judged when it is
//! over: the numbers of all packets together, and the bytes of each PLAY for themselves. Waits are
//! for packets, never for time.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::path::PathName;
use onrush_testkit::checker::{Datagram, Expected, Start, TS_BYTES, judge};
use onrush_testkit::netns::Netns;
use onrush_testkit::receiver::{Capture, Receiver};
use onrush_testkit::require_root;
use onrush_testkit::rtsp_client::{Client, Response, RtpInfo, rtcp_types};
use onrush_testkit::sink::{Sink, Verdict};
use onrush_testkit::strict;
use onrush_testkit::testbed::{Mode, RCV_DEVICE, RCV_IPV4, SND_IPV4};
use onrush_wire::media::ts::synth;
use onrush_wire::rtp::Header;

use common::{LONG, RTSP_PORT, Site, Viewer, clip};

mod common;

/// One session, its PLAYs so far, and what is to be said of each.
struct Journey {
    viewer: Viewer,
    ssrc: u32,
    plays: Vec<Play>,
    /// Sends to the receiver itself.
    marker: UdpSocket,
}

/// One PLAY and its answer.
struct Play {
    what: String,
    info: RtpInfo,
    /// The times of the answer's Range header.
    range: (f64, Option<f64>),
    from: From,
    /// Where in the film it has to end, if it was played to its end.
    until_s: Option<f64>,
}

/// Where a PLAY has to begin.
#[derive(Clone, Copy)]
enum From {
    /// At a place to start that is not far before this time.
    Second(f64),
    /// Where the one before left off.
    Left,
}

/// The film that is played.
struct Film {
    ts: Arc<[u8]>,
    packets_per_s: f64,
    /// How far apart its places to start are.
    distance_s: f64,
}

impl Film {
    /// The demo clip: constant rate, and a place to start every second.
    fn demo() -> Self {
        Self {
            ts: Arc::from(clip(24.0)),
            packets_per_s: 1e6 / 8.0 / TS_BYTES as f64,
            distance_s: 1.0,
        }
    }

    /// 12 s at 50 Mbit/s: seven seconds of it are more RTP packets than half of all sequence
    /// numbers.
    fn fast() -> Self {
        // Of 27 MHz.
        let ticks: u16 = 812;
        let packets_per_s = 27e6 / f64::from(ticks);
        Self {
            ts: Arc::from(synth::constant_rate(400_000, 0, u64::from(ticks))),
            packets_per_s,
            distance_s: 100.0 / packets_per_s,
        }
    }

    fn seconds(&self, ts_packets: u64) -> f64 {
        ts_packets as f64 / self.packets_per_s
    }

    fn expected(&self, start: Start, info: &RtpInfo) -> Expected {
        Expected {
            ts: Arc::clone(&self.ts),
            start,
            end: None,
            ts_packets_per_rtp: 7,
            sequence: Some(info.sequence),
            timestamp: Some(info.timestamp),
            lateness_ns_max: None,
        }
    }
}

impl Journey {
    /// A session of `clip.ts` between the two namespaces. All that arrives there waits in one
    /// queue, so that what the server sent before it answered is there before the answer.
    fn across(site: &Site) -> Self {
        site.testbed.receive_on_one_processor().unwrap();
        Self::set_up(&site.testbed.rcv, RCV_IPV4.into(), SND_IPV4.into())
    }

    /// A session of `clip.ts` within the server's namespace.
    fn within(site: &Site) -> Self {
        let loopback = Ipv4Addr::LOCALHOST.into();
        Self::set_up(&site.testbed.snd, loopback, loopback)
    }

    fn set_up(netns: &Netns, own: IpAddr, server: IpAddr) -> Self {
        let receiver = Receiver::bind(netns, own).unwrap();
        let address = SocketAddr::from((server, RTSP_PORT));
        let mut client = netns.run(|| Client::connect(address)).unwrap();
        let url = common::url(server, "clip.ts");
        let port = receiver.rtp_port();
        let transport = format!("RTP/AVP;unicast;client_port={port}-{}", port + 1);
        let headers = [("Transport", &*transport)];
        let answer = client.request("SETUP", &format!("{url}/track1"), &headers);
        let session = answer.unwrap().session().expect("a session");
        let marker = netns.run(|| UdpSocket::bind((own, 0))).unwrap();
        marker.connect((own, port)).unwrap();
        let viewer = Viewer {
            client,
            receiver,
            url,
            session: session.id,
        };
        Self {
            viewer,
            ssrc: session.ssrc,
            plays: Vec::new(),
            marker,
        }
    }

    /// PLAY from `second` to the end.
    fn jump(&mut self, second: f64) -> &mut Self {
        self.play(&format!("npt={second}-"), From::Second(second), None)
    }

    /// PLAY of a part, which is then waited for.
    fn play_part(&mut self, from_s: f64, until_s: f64) -> &mut Self {
        let range = format!("npt={from_s}-{until_s}");
        self.play(&range, From::Second(from_s), Some(until_s));
        self.wait_for_end()
    }

    /// PLAY without a Range.
    fn resume(&mut self) -> &mut Self {
        self.play("", From::Left, None)
    }

    fn play(&mut self, range: &str, from: From, until_s: Option<f64>) -> &mut Self {
        let headers = [("Range", range)];
        let answer = self
            .viewer
            .ask("PLAY", &headers[..usize::from(!range.is_empty())]);
        let number = self.plays.len();
        // What the server sent before its answer is before this, and never behind it.
        self.marker
            .send(&[MARKER, u8::try_from(number).unwrap()])
            .unwrap();
        let info = answer
            .rtp_info()
            .unwrap_or_else(|| panic!("PLAY {range}: {answer:?}"));
        self.plays.push(Play {
            what: format!("PLAY {number} {range}"),
            info,
            range: range_of(&answer),
            from,
            until_s,
        });
        self
    }

    fn pause(&mut self) -> &mut Self {
        let answer = self.viewer.ask("PAUSE", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        self
    }

    /// Waits for so many packets since the last PLAY was answered.
    fn watch(&mut self, packets: usize) -> &mut Self {
        let last = self.plays.last().unwrap();
        let newest = u8::try_from(self.plays.len() - 1).unwrap();
        let came = self.viewer.receiver.wait_until(LONG, |capture| {
            let mut since = capture.rtp.iter().rev();
            let of_it = since.position(|datagram| datagram.bytes == [MARKER, newest]);
            of_it.is_some_and(|count| count >= packets)
        });
        assert!(came, "{}: fewer than {packets} packets came", last.what);
        self
    }

    /// Waits for the goodbye that follows the last packet of a PLAY, one for each that was played
    /// to its end.
    fn wait_for_end(&mut self) -> &mut Self {
        let last = self.plays.last_mut().unwrap();
        last.until_s = Some(last.until_s.unwrap_or(f64::INFINITY));
        let ends = self.plays.iter().filter(|play| play.until_s.is_some());
        let ends = ends.count();
        let give_up = Instant::now() + LONG;
        let has_ended = |capture: &Capture| goodbyes(capture) >= ends;
        while !self.viewer.receiver.wait_until(SHORT, has_ended) {
            let what = &self.plays.last().unwrap().what;
            assert!(Instant::now() < give_up, "{what}: no goodbye");
            assert_eq!(self.viewer.ask("GET_PARAMETER", &[]).status, 200);
        }
        self
    }

    /// TEARDOWN, and the judgement of all that came.
    fn judge(mut self, film: &Film) {
        let answer = self.viewer.ask("TEARDOWN", &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
        let Self {
            viewer,
            ssrc,
            plays,
            ..
        } = self;
        // The goodbye to the session itself, which counts its packets.
        let ends = plays.iter().filter(|play| play.until_s.is_some()).count();
        let has_goodbye = |capture: &Capture| goodbyes(capture) > ends;
        assert!(viewer.receiver.wait_until(LONG, has_goodbye), "no goodbye");
        Judgement::of(&viewer.receiver.finish(), ssrc, &plays, film).assert_clean();
    }
}

/// Collects everything that is wrong, so that one run shows all of it.
struct Judgement {
    /// RTP packets, without markers.
    packets: Vec<Datagram>,
    headers: Vec<Header>,
    /// For each PLAY, how many of them were there when it was answered, and how many before its
    /// first.
    answered: Vec<usize>,
    begins: Vec<usize>,
    faults: Vec<String>,
}

impl Judgement {
    fn of(capture: &Capture, ssrc: u32, plays: &[Play], film: &Film) -> Self {
        let (mut packets, mut headers, mut answered) = (Vec::new(), Vec::new(), Vec::new());
        for datagram in &capture.rtp {
            match Header::read(&datagram.bytes) {
                Some(header) => {
                    packets.push(datagram.clone());
                    headers.push(header);
                }
                None if datagram.bytes[0] == MARKER => answered.push(packets.len()),
                None => panic!("a datagram that is no RTP packet"),
            }
        }
        assert_eq!(answered.len(), plays.len());
        let mut judgement = Self {
            packets,
            headers,
            answered,
            begins: Vec::new(),
            faults: Vec::new(),
        };
        judgement.strictness();
        judgement.beginnings(plays);
        if judgement.begins.len() == plays.len() {
            judgement.contents(plays, film);
            judgement.jumps_in_time(plays);
        }
        judgement.reports(capture, ssrc);
        judgement.numbers(ssrc);
        judgement
    }

    /// One source, numbers that rise by one, time that never steps back.
    fn numbers(&mut self, ssrc: u32) {
        for (at, pair) in self.headers.windows(2).enumerate() {
            let [before, this] = pair else { continue };
            if this.sequence != before.sequence.wrapping_add(1) {
                let (this, before) = (this.sequence, before.sequence);
                self.faults
                    .push(format!("packet {}: number {this} after {before}", at + 1));
            }
            if this.timestamp.wrapping_sub(before.timestamp) >= 1 << 31 {
                let (this, before) = (this.timestamp, before.timestamp);
                self.faults.push(format!(
                    "packet {}: timestamp {this} after {before}",
                    at + 1
                ));
            }
        }
        if let Some(other) = self.headers.iter().find(|header| header.ssrc != ssrc) {
            let other = other.ssrc;
            self.faults
                .push(format!("SSRC {other:08x}, but SETUP announced {ssrc:08x}"));
        }
    }

    /// What a strict player makes of it.
    fn strictness(&mut self) {
        let heard = strict::hear(&self.packets);
        if heard.faults() > 0 {
            self.faults.push(format!("a strict player: {heard}"));
        }
    }

    /// Finds the first packet of each PLAY by the number that its answer announced.
    fn beginnings(&mut self, plays: &[Play]) {
        let mut from = 0;
        for (play, &answered) in plays.iter().zip(&self.answered) {
            let announced = |header: &Header| header.sequence == play.info.sequence;
            let Some(begin) = self.headers[from..].iter().position(announced) else {
                let number = play.info.sequence;
                self.faults.push(format!(
                    "{}: the announced packet {number} did not come",
                    play.what
                ));
                return;
            };
            let begin = from + begin;
            if begin > answered {
                self.faults.push(format!(
                    "{}: {} packets of the old place came after the answer",
                    play.what,
                    begin - answered
                ));
            }
            self.begins.push(begin);
            // Of one that was left at once there may be nothing.
            from = begin.max(answered);
        }
    }

    /// The bytes of each PLAY are the film's, from where it was to begin.
    fn contents(&mut self, plays: &[Play], film: &Film) {
        let mut left_at = 0;
        for (number, play) in plays.iter().enumerate() {
            let what = &play.what;
            let end = self.begins.get(number + 1).copied();
            let part = &self.packets[self.begins[number]..end.unwrap_or(self.packets.len())];
            if part.is_empty() && end.is_some() {
                continue;
            }
            let start = match play.from {
                From::Second(_) => Start::Found,
                From::Left => Start::At(left_at),
            };
            let report = judge(film.expected(start, &play.info), part);
            for fault in &report.faults {
                self.faults.push(format!("{what}: {fault}"));
            }
            let Some(start) = report.start else { continue };
            let start_s = film.seconds(start);
            if let From::Second(asked_s) = play.from {
                let earliest_s = asked_s - film.distance_s - 0.3;
                if start_s > asked_s + 0.001 || start_s < earliest_s {
                    self.faults
                        .push(format!("{what}: begins at {start_s:.3} s"));
                }
            }
            let (said_s, _) = play.range;
            if (said_s - start_s).abs() > 0.05 {
                self.faults.push(format!(
                    "{what}: begins at {start_s:.3} s, but was announced from {said_s:.3} s"
                ));
            }
            left_at = start + report.ts_packets;
            let end_s = film.seconds(left_at);
            let whole_s = film.seconds((film.ts.len() / TS_BYTES) as u64);
            if let Some(until_s) = play.until_s.map(|until_s| until_s.min(whole_s))
                && (end_s - until_s).abs() > 0.05
            {
                self.faults
                    .push(format!("{what}: ends at {end_s:.3} s, not {until_s:.3} s"));
            }
            if left_at == (film.ts.len() / TS_BYTES) as u64 {
                left_at = 0;
            }
        }
    }

    /// Timestamps go on about as time did, wherever in the film it went on.
    fn jumps_in_time(&mut self, plays: &[Play]) {
        for (play, &begin) in plays.iter().zip(&self.begins).skip(1) {
            let [before, first] = [begin - 1, begin].map(|at| self.headers[at].timestamp);
            let [left_ns, began_ns] = [begin - 1, begin].map(|at| self.packets[at].arrival_ns);
            let step_s = f64::from(first.wrapping_sub(before).cast_signed()) / 90_000.0;
            let pause_s = Duration::from_nanos(began_ns - left_ns).as_secs_f64();
            if step_s > pause_s + STEP_S_MAX {
                self.faults.push(format!(
                    "{}: timestamps step on by {step_s:.3} s in {pause_s:.3} s",
                    play.what
                ));
            }
        }
    }

    /// The sender's reports are of the same numbers.
    fn reports(&mut self, capture: &Capture, ssrc: u32) {
        let reports = reports(capture, ssrc);
        let (Some(first), Some(last)) = (self.headers.first(), self.headers.last()) else {
            return self.faults.push("no packet came".into());
        };
        let since = |timestamp: u32| {
            f64::from(timestamp.wrapping_sub(first.timestamp).cast_signed()) / 90_000.0
        };
        let span_s = since(last.timestamp);
        for report in &reports {
            let at_s = since(report.timestamp);
            if at_s < -STEP_S_MAX || at_s > span_s + STEP_S_MAX {
                self.faults.push(format!(
                    "a report is of {at_s:.3} s, the packets are of 0 s to {span_s:.3} s"
                ));
            }
        }
        let (said, came) = (reports.last().map(|last| last.packets), self.packets.len());
        if said.map(|said| said as usize) != Some(came) {
            self.faults.push(format!(
                "the last report says {said:?} packets, {came} came"
            ));
        }
        if !reports.is_sorted_by_key(|report| report.packets) {
            self.faults
                .push("the reports' count of packets steps back".into());
        }
    }

    fn assert_clean(self) {
        let shown: Vec<_> = self.faults.iter().take(FAULTS_SHOWN).collect();
        assert!(
            self.faults.is_empty(),
            "{} faults in {} packets of {} PLAYs: {shown:#?}",
            self.faults.len(),
            self.packets.len(),
            self.answered.len()
        );
    }
}

/// What one sender report says.
struct SenderReport {
    timestamp: u32,
    packets: u32,
}

/// The sender's reports, in order of arrival (RFC 3550, section 6.4.1).
fn reports(capture: &Capture, ssrc: u32) -> Vec<SenderReport> {
    let word = |bytes: &[u8], at: usize| {
        let word = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_be_bytes(word))
    };
    let report = |datagram: &Datagram| {
        let bytes = &datagram.bytes;
        let is_ours = bytes.get(1) == Some(&200) && word(bytes, 4) == Some(ssrc);
        is_ours.then_some(())?;
        Some(SenderReport {
            timestamp: word(bytes, 16)?,
            packets: word(bytes, 20)?,
        })
    };
    capture.rtcp.iter().filter_map(report).collect()
}

fn goodbyes(capture: &Capture) -> usize {
    let is_bye = |datagram: &&Datagram| rtcp_types(&datagram.bytes).contains(&203);
    capture.rtcp.iter().filter(is_bye).count()
}

/// The times of an answer's Range header.
fn range_of(answer: &Response) -> (f64, Option<f64>) {
    let parsed = || {
        let range = answer.header("Range")?.strip_prefix("npt=")?;
        let (from, until) = range.split_once('-')?;
        Some((from.parse().ok()?, until.parse().ok()))
    };
    parsed().unwrap_or_else(|| panic!("no range of seconds: {answer:?}"))
}

/// Jumps both ways, with PAUSE and without, pauses, and a jump while it is paused.
fn travel(journey: &mut Journey) {
    journey.jump(0.0).watch(4 * SECOND);
    for second in [15.0, 2.0, 10.0] {
        journey.jump(second).watch(SECOND);
    }
    for second in [18.5, 1.2, 9.0] {
        journey.pause().jump(second).watch(SECOND);
    }
    journey.pause();
    thread::sleep(Duration::from_secs(2));
    journey.resume().watch(SECOND);
    // Twice the same, and twice at once.
    journey.jump(3.0).watch(SECOND).jump(3.0).watch(SECOND);
    journey.jump(20.0).jump(4.0).watch(SECOND);
}

// SPECIFICATION.md: 4
#[test]
fn jumps_are_one_stream_to_a_strict_player() {
    require_root!();
    let film = Film::demo();
    for mode in [Mode::Uso, Mode::SoftwareGso] {
        let site = Site::with_clip(&film.ts, mode, &[]);
        let ports = 1024..=u16::MAX;
        let sink = Sink::attach_with(&site.testbed.rcv, RCV_DEVICE, ports, Verdict::Pass).unwrap();
        let mut journey = Journey::across(&site);
        travel(&mut journey);
        journey.judge(&film);
        // What the kernel saw on the way, before any socket.
        let seen = sink.totals().unwrap();
        assert_eq!((seen.sequence_missing, seen.sequence_repeated), (0, 0));
        site.stop();
    }
}

#[test]
fn jumps_are_one_stream_over_loopback() {
    require_root!();
    let film = Film::demo();
    let listen = format!("--rtsp=127.0.0.1:{RTSP_PORT}");
    let site = Site::with_clip(&film.ts, Mode::Uso, &[&listen]);
    let mut journey = Journey::within(&site);
    travel(&mut journey);
    journey.judge(&film);
    site.stop();
}

#[test]
fn jumps_are_one_stream_with_headers_of_its_own_from_the_start() {
    require_root!();
    let film = Film::demo();
    let site = Site::with_clip(&film.ts, Mode::Uso, &["--rtp-headers=own"]);
    let mut journey = Journey::across(&site);
    travel(&mut journey);
    journey.judge(&film);
    site.stop();
}

#[test]
fn jumps_are_one_stream_by_every_path() {
    require_root!();
    let film = Film::demo();
    for path in PathName::ALL {
        let site = Site::with_clip(&film.ts, Mode::Uso, &[&format!("--path={path}")]);
        let mut journey = Journey::across(&site);
        for second in [0.0, 15.0, 2.0] {
            journey.jump(second).watch(SECOND);
        }
        journey.judge(&film);
        site.stop();
    }
}

#[test]
fn a_film_played_to_its_end_is_played_again_as_the_same_stream() {
    require_root!();
    let film = Film::demo();
    let site = Site::with_clip(&film.ts, Mode::Uso, &[]);
    let mut journey = Journey::across(&site);
    journey.jump(22.0).wait_for_end();
    journey.jump(0.0).watch(SECOND);
    journey.jump(23.0).wait_for_end();
    // From the beginning, since there is nothing left.
    journey.resume().watch(SECOND);
    journey.judge(&film);
    site.stop();
}

#[test]
fn parts_end_where_they_were_to_and_others_follow() {
    require_root!();
    let film = Film::demo();
    let site = Site::with_clip(&film.ts, Mode::Uso, &[]);
    let mut journey = Journey::across(&site);
    journey.play_part(5.0, 6.0).play_part(1.0, 2.0);
    journey.play_part(20.0, 20.5).jump(3.0).watch(SECOND);
    journey.judge(&film);
    site.stop();
}

#[test]
fn a_jump_over_more_than_half_of_all_numbers_keeps_its_trains() {
    require_root!();
    let film = Film::fast();
    let site = Site::with_clip(&film.ts, Mode::Uso, &[]);
    let ports = 1024..=u16::MAX;
    let sink = Sink::attach_with(&site.testbed.rcv, RCV_DEVICE, ports, Verdict::Pass).unwrap();
    let mut journey = Journey::across(&site);
    let half_a_second = 2300;
    journey.jump(0.0).watch(half_a_second);
    for second in [9.0, 1.0, 10.0] {
        let before = sink.totals().unwrap();
        journey.jump(second).watch(half_a_second);
        let after = sink.totals().unwrap();
        let packets = after.packets - before.packets;
        let pieces = after.skbs - before.skbs;
        // With headers of its own a session's trains are of eight packets.
        assert!(
            pieces * 6 < packets,
            "at {second} s {packets} packets came in {pieces} pieces"
        );
    }
    journey.judge(&film);
    site.stop();
}

/// Packets of a second of the demo clip.
const SECOND: usize = 95;
/// The first of two bytes that a test sends to its own receiver; no RTP packet begins so.
const MARKER: u8 = b'm';
/// How far timestamps may step on where nothing was sent for a while, beyond that while: what a
/// machine is late.
const STEP_S_MAX: f64 = 2.0;
/// Within a session's time-out.
const SHORT: Duration = Duration::from_millis(500);
const FAULTS_SHOWN: usize = 24;
