//! RTP and RTCP in the RTSP connection (RFC 2326, section 10.12).

use onrush_testkit::interleaved::{Frame, InterleavedClient, Received};
use onrush_wire::media::ts::synth::constant_rate;

use super::*;

const TRANSPORT: &str = "RTP/AVP/TCP;unicast;interleaved=0-1";

/// RTCP: an empty receiver report.
const RECEIVER_REPORT: [u8; 8] = [0x80, 201, 0, 1, 0, 0, 0, 7];

/// A client that takes a file in its connection, on channels 0 and 1.
pub(super) struct Watcher {
    pub(super) client: InterleavedClient,
    pub(super) url: String,
    /// Packets of RTCP that it got.
    reports: usize,
}

impl Watcher {
    fn set_up(fixture: &Fixture, name: &str) -> Self {
        Self::set_up_at(fixture.address(), fixture, name)
    }

    /// The same at another address of the server's.
    pub(super) fn set_up_at(address: SocketAddr, fixture: &Fixture, name: &str) -> Self {
        let mut client = InterleavedClient::connect(address).unwrap();
        let url = fixture.url(name);
        let answer = client.set_up(&format!("{url}/track1"), TRANSPORT).unwrap();
        assert!(answer.contains(";interleaved=0-1;ssrc="), "{answer}");
        Self {
            client,
            url,
            reports: 0,
        }
    }

    pub(super) fn request(&mut self, method: &str, headers: &[(&str, &str)]) -> Response {
        self.client.request(method, &self.url, headers).unwrap()
    }

    /// Plays, and says which packet is to be the first.
    pub(super) fn play(&mut self, range: &str) -> (u16, u32) {
        let response = self.request("PLAY", &[("Range", range)]);
        assert_eq!(response.status, 200, "{response:?}");
        let info = response.rtp_info().unwrap();
        (info.sequence, info.timestamp)
    }

    /// The next so many RTP packets.
    pub(super) fn packets(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while packets.len() < count {
            let Frame { channel, packet } = self.client.frame().unwrap();
            match channel {
                0 => packets.push(packet),
                _ => self.reports += 1,
            }
        }
        packets
    }

    /// RTP packets up to the BYE, with reports between them.
    pub(super) fn receive_all(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        loop {
            let Frame { channel, packet } = self.client.frame().unwrap();
            match channel {
                0 => packets.push(packet),
                _ if rtcp_types(&packet).contains(&BYE) => {
                    assert!(self.reports > 0, "one comes with the first packet");
                    return packets;
                }
                _ => {
                    assert_eq!((channel, &rtcp_types(&packet)[..]), (1, &[SR, SDES][..]));
                    self.reports += 1;
                }
            }
        }
    }
}

/// Where in a file these packets' payloads are.
#[track_caller]
fn place_of(packets: &[Vec<u8>], file: &[u8]) -> usize {
    let carried = payload(packets);
    let at = file
        .windows(188 * 7)
        .position(|bytes| carried.starts_with(bytes));
    let at = at.expect("it is of the file");
    assert!(carried == file[at..at + carried.len()], "from byte {at}");
    at
}

#[test]
fn a_file_plays_to_its_end_in_the_connection() {
    let fixture = Fixture::new();
    let mut watcher = Watcher::set_up(&fixture, "short.ts");
    for _ in 0..2 {
        let (sequence, timestamp) = watcher.play("npt=0-");
        let packets = watcher.receive_all();
        let header = header(&packets[0]);
        assert_eq!((header.sequence, header.timestamp), (sequence, timestamp));
        assert_contiguous(&packets);
        assert_carries(&packets, &demo(1));
    }
    assert_eq!(watcher.request("TEARDOWN", &[]).status, 200);
    assert_eq!(watcher.client.take_early(), []);
    wait_until("the connection is an ordinary one", || {
        fixture.server.sessions() == 0
    });
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert!(
        engine.trains > 0 && engine.trains == engine.trains_framed,
        "{engine:?}"
    );
    assert_eq!((engine.stalls, engine.packets_refused), (0, 0));
}

#[test]
fn seeks_and_pauses_keep_order_and_numbers() {
    let fixture = Fixture::new();
    let film = demo(10);
    let mut watcher = Watcher::set_up(&fixture, "long.ts");
    watcher.play("npt=2-");
    let mut all = watcher.packets(20);
    for range in ["npt=8-", "npt=1-", "npt=6-"] {
        // What is on its way comes before the answer, and nothing of it behind.
        let (sequence, _) = watcher.play(range);
        let early = watcher.client.take_early();
        all.extend(
            early
                .into_iter()
                .filter(|it| it.channel == 0)
                .map(|it| it.packet),
        );
        let packets = watcher.packets(20);
        assert_eq!(header(&packets[0]).sequence, sequence);
        let second = place_of(&packets, &film) * 10 / film.len();
        let asked: usize = range[4..5].parse().unwrap();
        // A place to start may be a second before, and what leads to it a little more.
        let places = asked.saturating_sub(2)..=asked;
        assert!(places.contains(&second), "{range}: {second}");
        all.extend(packets);
    }
    assert_eq!(watcher.request("PAUSE", &[]).status, 200);
    let early = watcher.client.take_early();
    all.extend(
        early
            .into_iter()
            .filter(|it| it.channel == 0)
            .map(|it| it.packet),
    );
    let paused_at = all.len();
    assert_eq!(watcher.request("OPTIONS", &[]).status, 200);
    let late = watcher.client.take_early();
    assert!(late.iter().all(|frame| frame.channel == 1), "{late:?}");
    assert_eq!(watcher.request("PLAY", &[]).status, 200);
    all.extend(watcher.packets(20));
    assert_contiguous(&all);
    place_of(&all[paused_at - 10..], &film);
}

#[test]
fn channels_are_the_clients_unless_they_are_taken() {
    let fixture = Fixture::new();
    let mut client = InterleavedClient::connect(fixture.address()).unwrap();
    let track = format!("{}/track1", fixture.url("long.ts"));
    for (asked, given) in [
        (";interleaved=6-9", "6-9"),
        // The track's old channels go when it has new ones.
        (";interleaved=9-10", "0-1"),
        ("", "2-3"),
        (";interleaved=255-0", "255-0"),
    ] {
        let answer = client.set_up(&track, &format!("RTP/AVP/TCP;unicast{asked}"));
        let (answer, given) = (answer.unwrap(), format!(";interleaved={given};"));
        assert!(answer.contains(&given), "{asked}: {answer}");
    }
    // What can be had first is taken.
    let both = format!("RTP/AVP/TCP;interleaved=1-1,{TRANSPORT},RTP/AVP;client_port=5000-5001");
    let answer = client.set_up(&track, &both).unwrap();
    assert!(
        answer.contains("RTP/AVP/TCP;unicast;interleaved=2-3;"),
        "{answer}"
    );
    let none = client.request(
        "SETUP",
        &track,
        &[("Transport", "RTP/AVP/TCP;interleaved=0-256")],
    );
    assert_eq!(none.unwrap().status, 461);
}

#[test]
fn frames_that_nobody_expects_cost_nothing_but_themselves() {
    let fixture = Fixture::limited(|limits| limits.session_timeout = Duration::from_secs(4));
    // Longer than the client is heard of and waited for.
    fixture.write("whole.ts", &demo(24));
    let mut client = InterleavedClient::connect(fixture.address()).unwrap();
    let url = fixture.url("whole.ts");
    let largest = vec![b'$'; 65_535];
    // Before SETUP, with requests close behind.
    client.send_frame(0, &largest).unwrap();
    client.send_frame(7, &[]).unwrap();
    assert_eq!(client.request("OPTIONS", "*", &[]).unwrap().status, 200);
    client.set_up(&format!("{url}/track1"), TRANSPORT).unwrap();
    assert_eq!(client.request("PLAY", &url, &[]).unwrap().status, 200);
    let mut packets = Vec::new();
    let started = Instant::now();
    // Its reports are the only sign of life, whatever else it sends.
    while started.elapsed() < Duration::from_secs(7) {
        let Frame { channel, packet } = client.frame().unwrap();
        if channel == 0 {
            packets.push(packet);
        }
        if packets.len() % 50 == 0 {
            client.send_frame(1, &RECEIVER_REPORT).unwrap();
            client.send_frame(0, b"\x80").unwrap();
            client.send_frame(200, &largest).unwrap();
            client.send_frame(1, &largest).unwrap();
            client.send_frame(1, b"nonsense").unwrap();
        }
    }
    assert_contiguous(&packets);
    assert_eq!(fixture.server.sessions(), 1);
    // Silent, it ends, and is told so.
    let bye = loop {
        match client.frame() {
            Ok(frame) if frame.channel == 1 && rtcp_types(&frame.packet).contains(&BYE) => {
                break true;
            }
            Ok(_) => {}
            Err(_) => break false,
        }
    };
    assert!(bye);
    fixture.wait_for_sessions(0);
}

#[test]
fn who_closes_the_connection_ends_what_plays_on_it() {
    let fixture = Fixture::new();
    let mut watcher = Watcher::set_up(&fixture, "long.ts");
    watcher.play("npt=0-");
    watcher.packets(10);
    drop(watcher);
    fixture.wait_for_sessions(0);
    // Half a frame behind.
    let mut watcher = Watcher::set_up(&fixture, "long.ts");
    watcher.play("npt=0-");
    watcher.client.send_raw(b"$\x01\xff").unwrap();
    drop(watcher);
    fixture.wait_for_sessions(0);
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert_eq!((engine.connections, engine.in_flight), (0, 0), "{engine:?}");
}

/// A film of 16 Mbit/s: faster than a socket's buffers hide it for long.
pub(super) fn fast_film() -> Vec<u8> {
    constant_rate(4 * 10_640, 0, 2_538)
}

// SPECIFICATION.md: 20
#[test]
fn a_client_that_reads_nothing_holds_up_itself_alone() {
    let fixture = Fixture::limited(|limits| {
        // The one that reads may be held up as well, by a busy machine.
        limits.stall_time_max = Duration::from_secs(5);
        limits.unacknowledged_bytes_max = 64 << 10;
    });
    fixture.write("fast.ts", &fast_film());
    let mut deaf: Vec<_> = (0..8)
        .map(|_| Watcher::set_up(&fixture, "fast.ts"))
        .collect();
    for watcher in &mut deaf {
        watcher
            .client
            .send("PLAY", &watcher.url.clone(), &[])
            .unwrap();
    }
    let mut watcher = Watcher::set_up(&fixture, "fast.ts");
    watcher.play("npt=0-");
    let packets = watcher.receive_all();
    assert_contiguous(&packets);
    assert_carries(&packets, &fast_film());
    fixture.wait_for_sessions(1);
    for watcher in &mut deaf {
        // What it finds in its socket is whole packets, and then the connection is reset.
        while watcher.client.receive().is_ok() {}
    }
    drop(watcher);
    fixture.wait_for_sessions(0);
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert_eq!(engine.stalled_out, 8, "{engine:?}");
    assert_eq!((engine.lags, engine.in_flight), (0, 0), "{engine:?}");
}

/// Of what a client that reads nothing was sent, no more is held for it than it may leave
/// unacknowledged; and a thousand others get all of theirs meanwhile.
#[test]
fn a_stalled_client_holds_little_while_others_get_all() {
    const OTHERS: usize = 1000;
    const UNACKNOWLEDGED_BYTES_MAX: usize = 64 << 10;
    // It is still there when the others have all.
    let fixture = Fixture::limited(|limits| {
        limits.stall_time_max = WAIT_MAX * 10;
        limits.unacknowledged_bytes_max = UNACKNOWLEDGED_BYTES_MAX;
    });
    fixture.write("fast.ts", &fast_film());
    // Two seconds of 0.2 Mbit/s, which lie in a socket until they are read.
    let slow_film = constant_rate(4 * 66, 0, 203_040);
    fixture.write("slow.ts", &slow_film);
    let mut deaf = Watcher::set_up(&fixture, "fast.ts");
    deaf.client.send("PLAY", &deaf.url.clone(), &[]).unwrap();
    let mut others: Vec<_> = (0..OTHERS)
        .map(|_| Watcher::set_up(&fixture, "slow.ts"))
        .collect();
    for watcher in &mut others {
        watcher.play("npt=0-");
    }
    let mut packets_of_others = 0;
    for watcher in &mut others {
        let packets = watcher.receive_all();
        assert_contiguous(&packets);
        assert_carries(&packets, &slow_film);
        packets_of_others += packets.len();
    }
    assert_eq!(fixture.server.sessions(), 1 + OTHERS);
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    let mut found = 0;
    while let Ok(received) = deaf.client.receive() {
        found += usize::from(matches!(received, Received::Frame(frame) if frame.channel == 0));
    }
    let sent = usize::try_from(engine.packets).unwrap() - packets_of_others;
    let film_packets = fast_film().len() / (7 * 188);
    assert!(0 < sent && sent < film_packets / 2, "{sent}: {engine:?}");
    assert_eq!(engine.stalled_out, 0);
    // What waited for room in its socket never left: refused in the end.
    let waited = usize::try_from(engine.packets_refused).unwrap();
    let held_bytes = (sent - found + waited) * (HEADER_BYTES + 7 * 188);
    assert!(
        held_bytes <= UNACKNOWLEDGED_BYTES_MAX,
        "{held_bytes}: {sent} sent, {found} found, {engine:?}"
    );
}

#[test]
fn what_is_stored_waits_for_a_client_that_rests() {
    let fixture = Fixture::limited(|limits| limits.unacknowledged_bytes_max = 16 << 10);
    fixture.write("fast.ts", &fast_film());
    let mut watcher = Watcher::set_up(&fixture, "fast.ts");
    watcher.play("npt=0-");
    let mut packets = watcher.packets(10);
    // Longer than what lies in the socket lasts, and than what is caught up with.
    std::thread::sleep(Duration::from_secs(3));
    packets.extend(watcher.receive_all());
    assert_contiguous(&packets);
    assert_carries(&packets, &fast_film());
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert!(engine.stalls > 0 && engine.stalled_out == 0, "{engine:?}");
}

/// When `timestamp` was, by the time and the timestamp that a sender report tells, in seconds.
fn began_s(report: &[u8], timestamp: u32) -> f64 {
    let word = |at: usize| u32::from_be_bytes(report[at..at + 4].try_into().unwrap());
    let since = f64::from(word(16).wrapping_sub(timestamp).cast_signed()) / 90e3;
    f64::from(word(8)) + f64::from(word(12)) / 4_294_967_296.0 - since
}

/// What it got before goes on where it was, without a hole as long as it rested.
#[test]
fn a_client_that_rests_is_told_one_line_of_time() {
    let fixture = Fixture::limited(|limits| limits.unacknowledged_bytes_max = 16 << 10);
    fixture.write("fast.ts", &fast_film());
    let mut watcher = Watcher::set_up(&fixture, "fast.ts");
    let (_, timestamp) = watcher.play("npt=0-");
    let (mut reports, mut packets) = (Vec::new(), 0);
    loop {
        let Frame { channel, packet } = watcher.client.frame().unwrap();
        if channel == 0 {
            packets += 1;
            if packets == 10 {
                std::thread::sleep(Duration::from_secs(3));
            }
            continue;
        }
        reports.push(began_s(&packet, timestamp));
        if rtcp_types(&packet).contains(&BYE) {
            break;
        }
    }
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert!(engine.stalls > 0, "{engine:?}");
    assert!(reports.len() > 1, "one comes with the first packet");
    let is_on_line = |began: &f64| (began - reports[0]).abs() < 0.01;
    assert!(reports.iter().all(is_on_line), "{reports:?}");
}

/// What comes to a receiver on this machine fills its socket by what it is, and not by the huge
/// page that the kernel would refer to: it may rest, and nothing is dropped and sent again.
#[test]
fn a_receiver_on_this_machine_can_rest() {
    let fixture = Fixture::new();
    fixture.write("fast.ts", &fast_film());
    let mut watcher = Watcher::set_up(&fixture, "fast.ts");
    let socket = watcher.client.stream().try_clone().unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 128 << 10).unwrap();
    watcher.play("npt=0-");
    // More than is copied before the kernel is asked to refer to packets.
    let mut packets = watcher.packets(400);
    wait_until("32 KiB wait in its socket", || {
        rustix::io::ioctl_fionread(&socket).unwrap() >= 32 << 10
    });
    packets.extend(watcher.receive_all());
    assert_contiguous(&packets);
    assert_carries(&packets, &fast_film());
}

/// The mechanism: all that is due leaves in few crossings, several connections in each, without a
/// copy of ours and without a call a packet.
// SPECIFICATION.md: 15
#[test]
fn many_connections_leave_in_one_crossing() {
    const WATCHERS: usize = 40;
    let fixture = Fixture::new();
    fixture.write("fast.ts", &fast_film());
    let mut watchers: Vec<_> = (0..WATCHERS)
        .map(|_| Watcher::set_up(&fixture, "fast.ts"))
        .collect();
    for watcher in &mut watchers {
        watcher.play("npt=0-");
    }
    let reading: Vec<_> = watchers
        .into_iter()
        .map(|mut watcher| std::thread::spawn(move || watcher.receive_all()))
        .collect();
    for packets in reading {
        let packets = packets.join().unwrap();
        assert_contiguous(&packets);
        assert_carries(&packets, &fast_film());
    }
    let engine = fixture.server.shutdown().engines.swap_remove(0);
    assert_eq!(engine.trains, engine.trains_framed, "{engine:?}");
    assert!(engine.packets > 4 * engine.trains, "{engine:?}");
    assert!(engine.trains > 4 * engine.crossings, "{engine:?}");
    if engine.path == "uring_registered_zc" {
        // By reference to registered memory, which the kernel copies on its way to this machine's
        // own sockets, and then says so; or gathered by the kernel. We copy nothing.
        let told = engine.trains_zero_copy + engine.trains_copied + engine.trains_single;
        assert_eq!(told, engine.trains, "{engine:?}");
        assert_eq!(engine.own_headers_path, "uring_vectored_zc", "{engine:?}");
    }
}
