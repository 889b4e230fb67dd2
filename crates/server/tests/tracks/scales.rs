//! Sessions at other scales than 1: what comes are whole sync samples at their times, numbered and
//! stamped on without a break, and the other tracks are silent meanwhile.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;

/// A minute: pictures of a packet, but for those where one can start, of several, and sound.
fn long_film() -> Vec<Packet> {
    let mut packets = Vec::new();
    for tick in 0..3000_usize {
        let mut push = |track: usize, later_ns: u64, count: usize, is_sync: bool| {
            for i in 0..count {
                let bytes = (0..=248).cycle().skip(tick * 61 % 249 + i);
                packets.push(Packet {
                    track,
                    due_ns: tick as u64 * 20_000_000 + later_ns,
                    shown_later_ms: if track == 0 { 80 } else { 0 },
                    marker: i + 1 == count,
                    is_sync: is_sync && i == 0,
                    is_split: tick.is_multiple_of(3),
                    bytes: bytes.take(1 + (tick * 131 + i * 7) % 1300).collect(),
                });
            }
        };
        if tick.is_multiple_of(2) {
            let is_sync = tick.is_multiple_of(50);
            push(0, 0, if is_sync { 4 + tick / 50 % 5 } else { 1 }, is_sync);
        }
        push(1, 7_000_000, 1, false);
        if tick.is_multiple_of(10) {
            push(2, 3_000_000, 1, false);
        }
    }
    packets
}

/// What the answer to a PLAY has told.
#[derive(Debug)]
struct Told {
    scale: i64,
    start_ns: u64,
    /// The next sequence number and the timestamp of each track that plays.
    infos: Vec<Option<(u16, u32)>>,
    /// How many packets of each track had come before it was asked for, at the least.
    before: Vec<usize>,
}

impl Site {
    /// Plays at a scale, from where it is or from somewhere.
    fn play_at(&mut self, scale: Option<&str>, range: Option<&str>) -> Told {
        let before = self.receivers.iter().map(receiver_len).collect();
        let headers = [("Scale", scale), ("Range", range)];
        let headers: Vec<_> = headers
            .iter()
            .filter_map(|&(name, value)| Some((name, value?)))
            .collect();
        let answer = self.ask("PLAY", &headers);
        let mut infos = vec![None; TRACKS.len()];
        for info in answer.header("RTP-Info").unwrap().split(',') {
            let mut parts = info.split(';');
            let track = parts.next().unwrap().rsplit("/track").next().unwrap();
            let mut number = |name: &str| -> u32 {
                parts
                    .next()
                    .unwrap()
                    .strip_prefix(name)
                    .unwrap()
                    .parse()
                    .unwrap()
            };
            let sequence = u16::try_from(number("seq=")).unwrap();
            let track: usize = track.parse().unwrap();
            infos[track - 1] = Some((sequence, number("rtptime=")));
        }
        let range = Range::parse(answer.header("Range").unwrap()).unwrap();
        let (start_ns, stop_ns) = (range.start_ns.unwrap(), range.stop_ns.unwrap());
        let said = answer
            .header("Scale")
            .map_or(1, |scale| scale.parse().unwrap());
        assert_eq!(said < 0, stop_ns < start_ns, "{range:?} at {said}");
        Told {
            scale: said,
            start_ns,
            infos,
            before,
        }
    }

    /// Waits for so many more packets of a track.
    fn watch(&self, track: usize, packets: usize) {
        let receiver = &self.receivers[track];
        let more = receiver_len(receiver) + packets;
        let came = receiver.wait_until(LONG, |capture| capture.rtp.len() >= more);
        assert!(came, "{packets} more of track {track}");
    }

    fn byes(&self) -> usize {
        let is_bye = |bytes: &[u8]| rtcp_types(bytes).contains(&203);
        let seen = Cell::new(0);
        self.receivers[0].wait_until(LONG, |capture| {
            let byes = capture.rtcp.iter().filter(|it| is_bye(&it.bytes));
            seen.set(byes.count());
            true
        });
        seen.get()
    }

    /// Waits until the pictures have come to their end once more.
    fn watch_to_the_end(&self, byes: usize) {
        let give_up = std::time::Instant::now() + LONG;
        while self.byes() <= byes {
            assert!(std::time::Instant::now() < give_up, "an end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the session, and compares all that has come with what was told.
    fn tear_down(mut self, told: &[Told]) -> Vec<Vec<Vec<u64>>> {
        self.ask("TEARDOWN", &[]);
        let captures: Vec<_> = self.receivers.into_iter().map(Receiver::finish).collect();
        let mut all = Vec::new();
        for (track, capture) in captures.iter().enumerate() {
            all.push(judge(
                track,
                capture,
                &self.tracks[track],
                self.ssrcs[track],
                told,
            ));
        }
        drop(self.server);
        drop(self.testbed);
        all
    }
}

/// Sees that what came of a track is one run of numbers, that of each play what was told is true,
/// and that the packets are whole and at their times. The media times of the packets of each play.
fn judge(
    track: usize,
    capture: &Capture,
    packets: &[Packet],
    ssrc: u32,
    told: &[Told],
) -> Vec<Vec<u64>> {
    let headers: Vec<_> = capture
        .rtp
        .iter()
        .map(|it| Header::read(&it.bytes).unwrap())
        .collect();
    for two in headers.windows(2) {
        assert_eq!(
            two[1].sequence,
            two[0].sequence.wrapping_add(1),
            "track {track}"
        );
    }
    let plays: Vec<_> = told
        .iter()
        .filter_map(|it| Some((it, it.infos[track]?)))
        .collect();
    let first = plays.first().map_or(0, |(_, (sequence, _))| *sequence);
    assert_eq!(headers.first().map_or(first, |it| it.sequence), first);
    let begins =
        |&(_, (sequence, _)): &(&Told, (u16, u32))| usize::from(sequence.wrapping_sub(first));
    let mut times = Vec::new();
    for (number, play) in plays.iter().enumerate() {
        let until = plays.get(number + 1).map_or(headers.len(), begins);
        let &(told, (_, rtptime)) = play;
        assert!(
            begins(play) >= told.before[track],
            "what came before is of the play before"
        );
        let mut of_play = Vec::new();
        let packets_of_play = headers.iter().zip(&capture.rtp).enumerate();
        for (at, (header, datagram)) in packets_of_play.take(until).skip(begins(play)) {
            let payload = &datagram.bytes[12..];
            let of_film = u32::from_be_bytes(*payload.first_chunk().unwrap());
            let packet = &packets[of_film as usize];
            assert!(
                payload == packet.payload(of_film),
                "track {track}: packet {at}"
            );
            assert_eq!((header.ssrc, header.marker), (ssrc, packet.marker));
            let is_normal = told.scale == 1;
            let media_ns = if is_normal {
                shown_ns(packet)
            } else {
                sample_ns(packets, of_film)
            };
            // By the clock of the wall, however fast the film runs.
            let since_ns = media_ns.abs_diff(told.start_ns) / told.scale.unsigned_abs();
            let since = ticks(track, since_ns);
            let apart = header.timestamp.wrapping_sub(rtptime).wrapping_sub(since);
            assert!(
                apart.cast_signed().abs() <= 2,
                "track {track}: {apart} ticks off at {at}"
            );
            of_play.push((of_film, if is_normal { packet.due_ns } else { media_ns }));
        }
        assert_order(track, packets, told, &of_play);
        times.push(of_play.iter().map(|it| it.1).collect());
    }
    times
}

/// When the sample is due that a packet belongs to, by where one can start.
fn sample_ns(packets: &[Packet], number: u32) -> u64 {
    let start = packets[..=number as usize].iter().rfind(|it| it.is_sync);
    start.expect("it is of a sync sample").due_ns
}

/// At scale 1 each packet comes after the one before it in the film; at others all packets of each
/// sync sample, and sample after sample in the direction of the scale.
fn assert_order(track: usize, packets: &[Packet], told: &Told, of_play: &[(u32, u64)]) {
    if told.scale == 1 {
        assert!(
            of_play.windows(2).all(|two| two[1].0 == two[0].0 + 1),
            "track {track}"
        );
        return;
    }
    for two in of_play.windows(2) {
        let [(before, before_ns), (next, next_ns)] = [two[0], two[1]];
        if packets[before as usize].marker {
            assert!(
                packets[next as usize].is_sync,
                "a sample from its beginning"
            );
            let step = next_ns.cast_signed() - before_ns.cast_signed();
            let expected = told.scale.signum() * SECOND_NS.cast_signed();
            assert_eq!(step, expected, "no sync sample is left out");
        } else {
            assert_eq!(next, before + 1, "a sample is whole");
        }
    }
    if let Some(&(first, first_ns)) = of_play.first() {
        assert!(packets[first as usize].is_sync);
        // Times at a scale are rounded on their way, by nanoseconds.
        let [began_us, told_us] = [first_ns, told.start_ns].map(|ns| ns / 1000);
        assert_eq!(began_us, told_us, "it begins where it was said to");
    }
}

/// The time of the last place to start at or before that.
fn sync_at(media_ns: u64) -> u64 {
    media_ns / SECOND_NS * SECOND_NS
}

fn changes_scales(change: impl FnOnce(&mut Config)) {
    let mut site = Site::of(long_film(), Mode::Uso, change);
    let mut told = vec![site.play_at(None, Some("npt=20.3-"))];
    site.watch(1, 20);
    told.push(site.play_at(Some("4"), None));
    site.watch(0, 12);
    told.push(site.play_at(Some("-2.0"), None));
    site.watch(0, 12);
    site.ask("PAUSE", &[]);
    told.push(site.play_at(None, None));
    site.watch(1, 20);
    // With seeks.
    told.push(site.play_at(Some("16"), Some("npt=40-")));
    site.watch(0, 20);
    told.push(site.play_at(Some("-8"), Some("npt=33.9-3")));
    site.watch(0, 20);
    told.push(site.play_at(Some("-8"), Some("npt=50-")));
    site.watch(0, 3);
    told.push(site.play_at(None, Some("npt=10-")));
    site.watch(1, 5);
    let scales: Vec<_> = told.iter().map(|it| it.scale).collect();
    assert_eq!(scales, [1, 4, -2, 1, 16, -8, -8, 1]);
    for told in &told {
        let playing: Vec<_> = told.infos.iter().map(Option::is_some).collect();
        assert_eq!(playing, [true, told.scale == 1, told.scale == 1]);
    }
    let starts: Vec<_> = told.iter().map(|it| it.start_ns / SECOND_NS).collect();
    assert_eq!(starts[4..], [40, 33, 50, 10]);
    // Times at a scale are rounded on their way, by nanoseconds.
    let starts: Vec<_> = told.iter().map(|it| it.start_ns / 1000 * 1000).collect();
    let times = site.tear_down(&told);
    // Where it goes on without a seek: at the last place to start before where it was.
    assert_eq!(starts[0], 20 * SECOND_NS);
    for (number, is_reverse) in [(1, false), (2, false), (3, true)] {
        let last_ns = *times[0][number - 1].last().unwrap();
        assert_eq!(starts[number] % SECOND_NS, 0);
        match is_reverse {
            false => assert!(starts[number] >= sync_at(last_ns), "{number}: {starts:?}"),
            true => assert!(starts[number] <= sync_at(last_ns), "{number}: {starts:?}"),
        }
    }
    // Nothing of a scale comes later than its time by more than the film has.
    assert!(times[0].iter().all(|of_play| !of_play.is_empty()));
}

#[test]
fn scales_change_to_and_fro_without_a_break_in_numbers() {
    require_root!();
    changes_scales(|_| ());
}

#[test]
fn scales_change_by_every_path_and_with_own_headers() {
    require_root!();
    for path in PathName::ALL {
        changes_scales(|config| config.path = path);
    }
    changes_scales(|config| config.rtp_headers = RtpHeaders::Own);
}

/// The end forwards, the beginning backwards: both end the stream, and PLAY then starts over.
#[test]
fn both_ends_of_the_film_end_what_plays() {
    require_root!();
    let mut site = Site::of(long_film(), Mode::Uso, |_| ());
    let mut told = vec![site.play_at(Some("16"), Some("npt=45-"))];
    site.watch_to_the_end(0);
    told.push(site.play_at(Some("-16"), None));
    site.watch_to_the_end(1);
    told.push(site.play_at(None, None));
    site.watch(0, 10);
    let seconds: Vec<_> = told.iter().map(|it| it.start_ns / SECOND_NS).collect();
    assert_eq!(seconds, [45, 59, 0]);
    let times = site.tear_down(&told);
    let ends = |play: usize| (times[0][play].first(), times[0][play].last());
    assert_eq!(ends(0), (Some(&(45 * SECOND_NS)), Some(&(59 * SECOND_NS))));
    assert_eq!(ends(1), (Some(&(59 * SECOND_NS)), Some(&0)));
    assert_eq!(ends(2).0, Some(&0));
}

#[test]
fn a_range_backwards_ends_where_less_is_before() {
    require_root!();
    let mut site = Site::of(long_film(), Mode::Uso, |_| ());
    let told = vec![site.play_at(Some("-8"), Some("npt=30-25"))];
    site.watch_to_the_end(0);
    let range = [("Scale", "-8"), ("Range", "npt=25-30")];
    let mut headers = vec![("Session", site.id.as_str())];
    headers.extend(range);
    let refused = site.client.request("PLAY", &site.url, &headers).unwrap();
    assert_eq!(refused.status, 457, "{refused:?}");
    let times = site.tear_down(&told);
    let mut seconds: Vec<_> = times[0][0].iter().map(|ns| ns / SECOND_NS).collect();
    seconds.dedup();
    assert_eq!(seconds, [30, 29, 28, 27, 26]);
}

#[test]
fn a_pause_point_holds_at_any_scale() {
    require_root!();
    let mut site = Site::of(long_film(), Mode::Uso, |_| ());
    let mut told = vec![site.play_at(Some("8"), Some("npt=10-"))];
    let pause = |site: &mut Site, at: &str| {
        site.ask("PAUSE", &[("Range", at)]);
        let give_up = std::time::Instant::now() + LONG;
        // It is ready again: a PAUSE is not valid then.
        while std::time::Instant::now() < give_up {
            let headers = [("Session", site.id.as_str()), ("Range", at)];
            let answer = site.client.request("PAUSE", &site.url, &headers).unwrap();
            if answer.status == 455 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not pause");
    };
    pause(&mut site, "npt=20.5-");
    told.push(site.play_at(Some("-8"), None));
    pause(&mut site, "npt=12.5-");
    told.push(site.play_at(None, None));
    site.watch(0, 3);
    let seconds: Vec<_> = told.iter().map(|it| it.start_ns / SECOND_NS).collect();
    // Where what was shown last is.
    assert_eq!(seconds, [10, 20, 13]);
    let times = site.tear_down(&told);
    assert_eq!(times[0][0].last(), Some(&(20 * SECOND_NS)));
    assert_eq!(times[0][1].last(), Some(&(13 * SECOND_NS)));
}

#[test]
fn the_nearest_scale_is_played_and_told() {
    require_root!();
    let mut site = Site::of(long_film(), Mode::Uso, |_| ());
    let mut told = Vec::new();
    for (asked, chosen) in [
        ("3.5", 4),
        ("100", 16),
        ("-1.2", -1),
        ("-99", -16),
        ("0.4", 1),
    ] {
        told.push(site.play_at(Some(asked), Some("npt=30-")));
        assert_eq!(told.last().unwrap().scale, chosen, "{asked}");
        site.watch(0, 1);
    }
    site.tear_down(&told);
}

/// Sound alone has nothing to show at another scale, and plays on as it is.
#[test]
fn tracks_without_sync_samples_play_at_scale_1() {
    require_root!();
    let mut site = Site::of(long_film(), Mode::Uso, |_| ());
    let receiver = Receiver::bind(&site.testbed.rcv, RCV_IPV4.into()).unwrap();
    let url = format!("{}/track2", site.url);
    let session = set_up(&mut site.client, &url, &receiver, &None);
    let id = session.session().unwrap().id;
    let headers = [("Session", id.as_str()), ("Scale", "4")];
    let answer = site.client.request("PLAY", &site.url, &headers).unwrap();
    assert_eq!((answer.status, answer.header("Scale")), (200, Some("1")));
    assert!(receiver.wait_until(LONG, |capture| capture.rtp.len() >= 10));
    site.tear_down(&[]);
}
