//! Delivery faster or slower than the media was recorded (RFC 2326, section 12.35): the same
//! packets with the same timestamps, each once, over every change.

use super::*;

/// Three minutes: pictures of one or several packets, sound, and now and then something else.
fn long_film() -> Vec<Packet> {
    let mut packets = Vec::new();
    for tick in 0..9000_usize {
        for (track, every, later_ns) in [(0, 2, 0), (1, 1, 7_000_000), (2, 10, 3_000_000)] {
            if !tick.is_multiple_of(every) {
                continue;
            }
            let count = if track == 0 { 1 + tick / 2 % 3 } else { 1 };
            for i in 0..count {
                let bytes = (0..=248).cycle().skip(tick * 61 % 249 + i);
                packets.push(Packet {
                    track,
                    due_ns: tick as u64 * 20_000_000 + later_ns,
                    shown_later_ms: if track == 0 { 80 } else { 0 },
                    marker: i + 1 == count,
                    is_sync: track == 0 && tick.is_multiple_of(50) && i == 0,
                    is_split: tick.is_multiple_of(3),
                    bytes: bytes.take(1 + (tick * 131 + i * 7) % 1300).collect(),
                });
            }
        }
    }
    packets
}

impl Site {
    /// Plays on at a speed, or from the place to start at `second`, and sees which speed it is.
    fn play_at_speed(&mut self, speed: Option<&str>, second: Option<u32>, expected: Option<&str>) {
        let range = second.map(|second| format!("npt={second}-"));
        let headers = [("Speed", speed), ("Range", range.as_deref())];
        let headers: Vec<_> = headers
            .iter()
            .filter_map(|&(name, value)| Some((name, value?)))
            .collect();
        let answer = self.ask("PLAY", &headers);
        assert_eq!(answer.header("Speed"), expected, "{answer:?}");
        let play = Play::new(&answer, &self.url, Vec::new());
        let from = match (second, self.plays.last()) {
            (Some(second), _) => {
                let sync_ns = u64::from(second) * 1_000_000_000;
                let from = |track: &Vec<Packet>| track.partition_point(|it| it.due_ns < sync_ns);
                self.tracks.iter().map(from).collect()
            }
            (None, None) => vec![0; TRACKS.len()],
            (None, Some(last)) => {
                let sent = |track: usize| play.sequences[track].wrapping_sub(last.sequences[track]);
                let tracks = 0..TRACKS.len();
                tracks
                    .map(|track| last.from[track] + usize::from(sent(track)))
                    .collect()
            }
        };
        self.plays.push(Play { from, ..play });
    }

    /// Watches until so much more has come of each track.
    fn watch_all(&self, packets: usize) {
        for (track, receiver) in self.receivers.iter().enumerate() {
            let more = receiver_len(receiver) + packets;
            let came = receiver.wait_until(LONG, |capture| capture.rtp.len() >= more);
            assert!(came, "{packets} more of track {track}");
        }
    }
}

/// Every packet is that of the film, once, with its own timestamp, over all changes: see
/// `expected`.
fn changes_speeds(change: impl FnOnce(&mut Config)) {
    let mut site = Site::of(long_film(), Mode::Uso, change);
    site.play_at_speed(Some("2"), None, Some("2"));
    site.watch_all(8);
    site.play_at_speed(Some("3.5"), None, Some("3.5"));
    site.watch_all(8);
    // Without the header at the usual one, and then slower.
    site.play_at_speed(None, None, None);
    site.watch_all(3);
    site.play_at_speed(Some("0.5"), None, Some("0.5"));
    site.watch_all(3);
    site.ask("PAUSE", &[]);
    site.play_at_speed(Some("4"), None, Some("4"));
    site.watch_all(8);
    // With jumps, and what is not supported.
    site.play_at_speed(Some("1000"), Some(60), Some("4"));
    site.watch_all(8);
    site.play_at_speed(Some("0.01"), Some(20), Some("0.5"));
    site.watch_all(2);
    site.play_at_speed(Some("4"), Some(172), Some("4"));
    site.finish();
}

#[test]
fn speeds_change_and_each_packet_comes_once() {
    require_root!();
    changes_speeds(|_| ());
}

#[test]
fn speeds_change_with_headers_of_a_sessions_own() {
    require_root!();
    changes_speeds(|config| config.rtp_headers = RtpHeaders::Own);
}

#[test]
fn what_is_no_speed_is_refused() {
    require_root!();
    let mut site = Site::new(Mode::Uso, |_| ());
    for speed in ["0", "-1", "fast"] {
        let headers = [("Session", site.id.as_str()), ("Speed", speed)];
        let answer = site.client.request("PLAY", &site.url, &headers).unwrap();
        assert_eq!(answer.status, 400, "{speed}: {answer:?}");
    }
    site.play_at_speed(Some("1"), None, Some("1"));
    // What it gets already is not begun anew.
    let again = site.ask("PLAY", &[("Speed", "1.0")]);
    assert_eq!(
        (again.header("Speed"), again.header("RTP-Info")),
        (Some("1"), None)
    );
    site.finish();
}

/// A report's time on the wall, in seconds, and its timestamp.
fn told(report: &[u8]) -> (f64, u32) {
    let word = |at: usize| u32::from_be_bytes(*report[at..].first_chunk().unwrap());
    let seconds = f64::from(word(8)) + f64::from(word(12)) / 4_294_967_296.0;
    (seconds, word(16))
}

/// What the reports of tracks tell that play at a speed: how much time passed on the wall and by
/// timestamps. And how often the engine was so late that it moved its clock.
fn reported(speed: &str) -> (Vec<(f64, f64)>, u64) {
    let mut site = Site::new(Mode::Uso, |_| ());
    site.play_at_speed(Some(speed), None, Some(speed));
    let mut passed = Vec::new();
    for (receiver, (_, clock_hz)) in site.receivers.iter().zip(TRACKS) {
        assert!(receiver.wait_until(LONG, Capture::has_bye), "an end");
        let all = Cell::new((0.0, 0.0));
        receiver.wait_until(LONG, |capture| {
            let is_report = |bytes: &[u8]| rtcp_types(bytes).first() == Some(&200);
            let reports = capture.rtcp.iter().filter(|it| is_report(&it.bytes));
            let reports: Vec<_> = reports.map(|it| told(&it.bytes)).collect();
            let [first, last] = [reports[0], *reports.last().unwrap()];
            let ticks = last.1.wrapping_sub(first.1);
            all.set((last.0 - first.0, f64::from(ticks) / f64::from(clock_hz)));
            true
        });
        passed.push(all.get());
    }
    (passed, site.finish())
}

/// What reports tell is a line on which timestamps pass as fast as they are delivered.
#[test]
fn reports_tell_how_fast_timestamps_pass() {
    require_root!();
    for speed in ["2", "0.5"] {
        // On a machine that stands still for half a second it is two lines.
        let mut plays = (0..5).map(|_| reported(speed));
        let (passed, _) = plays.find(|(_, lags)| *lags == 0).expect("no lag");
        let speed: f64 = speed.parse().unwrap();
        for (wall_s, media_s) in passed {
            assert!(media_s > 4.0, "{media_s}");
            assert!(
                (media_s / wall_s - speed).abs() < speed / 100.0,
                "{media_s} {wall_s}"
            );
        }
    }
}
