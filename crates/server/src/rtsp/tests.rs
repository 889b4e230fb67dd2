//! Control, its sessions and what they take.

use std::io::ErrorKind;

use onrush_sys::clock::monotonic_ns;
use onrush_testkit::rtsp_client::{Ports, rtcp_types};
use onrush_wire::media::Scale;
use onrush_wire::media::ts::synth::constant_rate;
use onrush_wire::pace::Speed;
use onrush_wire::rtp::{Header, StaticPayload};
use onrush_wire::rtsp::{AskedRange, Reply, State, Transport};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{LocalSet, spawn_local};

use super::client::Client;
use super::connection_slot::ConnectionSlot;
use super::presentation::{OnGroup, Presentation};
use super::report_clock::ReportClock;
use super::session::Start;
use super::track_session::TrackSession;
use super::*;
use crate::byte_stream::ByteStream;
use crate::channels::published;
use crate::data::Data;
use crate::engine;
use crate::library::tell_of_plans;
use crate::testing::block_on;
use crate::users::{Authorizer, UsersConfig};

/// Bytes that a task takes beside its future: its header, its links and its trailer.
const TASK_BYTES: usize = 88;

/// Of the future that a function returns.
fn bytes_of<A, F: Future>(_: impl Fn(A) -> F) -> usize {
    size_of::<F>()
}

/// A session of `film.ts` that is set up for a client who listens nowhere.
pub(super) async fn set_up(control: &Rc<Control>, rtp_port: u16) -> Rc<Session> {
    let presentation = Presentation::open(control, "film.ts").await.unwrap();
    set_up_of(control, presentation, rtp_port)
}

fn set_up_of(control: &Rc<Control>, presentation: Presentation, rtp_port: u16) -> Rc<Session> {
    let (server, peer) = (([127, 0, 0, 1], 554).into(), ([127, 0, 0, 1], 2).into());
    let offer = format!("RTP/AVP;unicast;client_port={rtp_port}-{}", rtp_port + 1);
    let offers = std::iter::once(offer.as_str());
    let transports = Transport::negotiate(offers, [127, 0, 0, 1].into()).unwrap();
    let client = Client::new((server, peer), None, None);
    let of = (&presentation, 0);
    let track = TrackSession::open(control, of, &transports[0], "track1", &client);
    let session = Session::new(control.name(), control, presentation, track.unwrap());
    control.add(&session);
    session
}

/// A server of `film.ts`, of a second.
fn control() -> (Rc<Control>, TempDir) {
    control_of(&constant_rate(665, 0, 40_608), 900)
}

fn control_of(film_ts: &[u8], load_max_permille: u64) -> (Rc<Control>, TempDir) {
    control_with(film_ts, |config| {
        config.load_max_permille = load_max_permille;
    })
}

fn control_with(film_ts: &[u8], change: impl FnOnce(&mut Config)) -> (Rc<Control>, TempDir) {
    let root = tempfile::tempdir().unwrap();
    let film = root.path().join("film.ts");
    std::fs::write(&film, film_ts).unwrap();
    // Else it might still grow, and has no end yet.
    onrush_testkit::media::age(&film).unwrap();
    let mut config = Config {
        media_root: root.path().to_owned(),
        cache_bytes: 1 << 20,
        ..Config::default()
    };
    change(&mut config);
    let library = Arc::new(Library::new(&config).unwrap());
    let data = Data::start(&config).unwrap();
    let users = Authorizer::open(&UsersConfig::default(), Arc::default());
    let live = published::PublishedChannels::new(&config.channels, &config.limits);
    let content = Content {
        library: Some(library),
        sending: Sending::by(data),
        channels: Vec::new(),
        pulls: published::Pulls::start(&[], &live, None),
        published: live,
        authorizer: Arc::new(users.unwrap()),
    };
    (Control::new(config, content, Arc::default()), root)
}

/// A server that sends `film.ts` always, to a group of that range.
fn control_of_groups(range: &str) -> (Rc<Control>, TempDir) {
    control_with(&constant_rate(665, 0, 40_608), |config| {
        config.multicast.ranges = vec![range.parse().unwrap()];
        config.multicast.from = vec![[127, 0, 0, 1].into()];
        config.multicast.always = vec!["film.ts".to_owned()];
    })
}

/// A group that a film is sent to.
async fn join(control: &Rc<Control>, name: &str) -> Result<Rc<OnGroup>, Reply> {
    let presentation = Presentation::open(control, name).await?;
    groups::join(control, &presentation, ([127, 0, 0, 1], 554).into())
}

/// The address of the group that a description of a film tells of.
async fn described(control: &Rc<Control>, name: &str) -> Option<IpAddr> {
    let presentation = Presentation::open(control, name).await.unwrap();
    let (uri, local) = (format!("rtsp://h/{name}"), ([127, 0, 0, 1], 554).into());
    let told = groups::described(control, &presentation, &uri, local);
    told.unwrap().map(|group| group.ip)
}

async fn stop_all(control: &Rc<Control>) {
    control.tell_all(|session| drop(session.end(End::Stopped)));
    while !control.sessions.borrow().is_empty() {
        control.left.notified().await;
    }
}

/// A session and what it belongs to know each other until it has ended.
async fn stop(session: &Rc<Session>) {
    let ended = session.end(End::Stopped).expect("the first reason");
    ended.await.unwrap();
}

/// A moment's timestamp is the same whenever it is asked for: as the film begins, while it
/// plays, and after its end.
#[test]
fn reports_tell_one_line_of_time_also_after_the_end() {
    let (control, _root) = control();
    block_on(LocalSet::new().run_until(async {
        let ports = Ports::bind([127, 0, 0, 1].into()).unwrap();
        let session = set_up(&control, ports.rtp.local_addr().unwrap().port()).await;
        let track = session.tracks()[0].clone();
        let lags = || control.sum(|engine| &engine.lags);
        let of = |at_ns| track.sending(ReportClock::default(), at_ns, "");
        let timestamp = |at_ns| of(at_ns).unwrap().timestamp;
        let is_told = async || {
            let start = session
                .prepare(None, (Scale::NORMAL, Speed::NORMAL))
                .await
                .unwrap()
                .expect("it starts");
            let Start::Stored { tracks, .. } = &start else {
                panic!("it is a file");
            };
            let first = tracks[0].position.timestamp;
            let (lagged, before) = (lags(), monotonic_ns());
            session.start(start);
            let after = before + 7_000_000_000;
            let last = [before, after].map(timestamp);
            let is_before = last[0].wrapping_sub(first) > u32::MAX / 2;
            assert!(is_before || last[0] == first, "{last:?} {first}");
            assert_eq!(last[1].wrapping_sub(last[0]), 7 * 90_000);
            while session.state() == State::Playing {
                tokio::time::sleep(Duration::from_millis(10)).await;
                session.stream_stopped();
            }
            assert_eq!(session.state(), State::Ended);
            // On a machine that stands still for half a second the line is another one.
            lags() > lagged || [before, after].map(timestamp) == last
        };
        for _ in 0..3 {
            assert!(is_told().await);
        }
        stop(&session).await;
    }));
}

/// A player that is told a timestamp which no packet has would place the track hours off.
#[test]
fn no_timestamp_is_told_before_the_first_packet() {
    let (control, _root) = control();
    block_on(LocalSet::new().run_until(async {
        let published = &control.content.published;
        let tracks = vec![StaticPayload::MP2T.into()];
        let lease = published.announce("live/cam", tracks).unwrap();
        lease.begin(Vec::new(), String::new(), published::Right::Always);
        let presentation = Presentation::open(&control, "live/cam").await.unwrap();
        let ports = Ports::bind([127, 0, 0, 1].into()).unwrap();
        let rtp_port = ports.rtp.local_addr().unwrap().port();
        let session = set_up_of(&control, presentation, rtp_port);
        let track = session.tracks()[0].clone();
        let clock = ReportClock::default();
        let sending = || track.sending(clock, monotonic_ns(), "");
        assert!(sending().is_none());
        track.report(clock).unwrap();
        track.say_goodbye(clock, "nothing has come");
        let said = [(); 2].map(|()| ports.rtcp(|_| true).unwrap());
        assert_eq!(rtcp_types(&said[0]), [201, 202]);
        assert_eq!(rtcp_types(&said[1]), [201, 202, 203]);
        let header = Header {
            marker: true,
            payload_type: 33,
            sequence: 7,
            timestamp: 3_000_000_000,
            ssrc: 1,
        };
        lease.frame(0, false, header.to_bytes().to_vec());
        let started = Instant::now();
        let timestamp = loop {
            if let Some(sending) = sending() {
                break sending.timestamp;
            }
            assert!(started.elapsed() < Duration::from_secs(20), "it has come");
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        let since = timestamp.wrapping_sub(header.timestamp);
        assert!(since < 60 * 90_000, "{since}");
        track.report(clock).unwrap();
        let said = ports.rtcp(|_| true).unwrap();
        assert_eq!(rtcp_types(&said), [200, 202]);
        stop(&session).await;
        drop(lease);
        published.stop();
    }));
}

/// As recorders do that know no other clock than the one on the wall.
#[test]
fn a_channel_plays_what_comes_now_by_any_clock() {
    let (control, _root) = control();
    block_on(LocalSet::new().run_until(async {
        let published = &control.content.published;
        let tracks = vec![StaticPayload::MP2T.into()];
        let lease = published.announce("live/cam", tracks).unwrap();
        lease.begin(Vec::new(), String::new(), published::Right::Always);
        let channel = Presentation::open(&control, "live/cam").await.unwrap();
        for range in [
            "clock=20260101T120000Z-",
            "smpte=0:00:10-",
            "smpte-25=0:00:10-",
            "npt=now",
            "npt=10-",
        ] {
            let asked = AskedRange::parse(range).unwrap();
            assert!(channel.in_npt(asked).is_ok(), "{range}");
        }
        drop(lease);
        published.stop();
    }));
}

#[test]
fn where_there_is_no_room_for_more_speed_is_1() {
    // 200 Mbit/s take more than a thousandth of a processor, by the first reckoning.
    let film_ts = constant_rate(26_600, 0, 203);
    for (load_max_permille, expected) in [(3, Speed::NORMAL), (900, Speed::FASTEST)] {
        let (control, _root) = control_of(&film_ts, load_max_permille);
        block_on(LocalSet::new().run_until(async {
            let session = set_up(&control, 30_004).await;
            let pace = (Scale::NORMAL, Speed::FASTEST);
            let start = session.prepare(None, pace).await.unwrap();
            let Some(Start::Stored { line, .. }) = start else {
                panic!("{start:?}");
            };
            assert_eq!(line.speed(), expected);
            stop(&session).await;
        }));
    }
}

#[test]
fn an_address_has_no_more_sessions_than_it_may_have() {
    let film_ts = constant_rate(665, 0, 40_608);
    let (control, _root) = control_with(&film_ts, |config| {
        config.limits.sessions_per_address_max = 2;
    });
    block_on(LocalSet::new().run_until(async {
        let [peer, other] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(IpAddr::from);
        let first = set_up(&control, 30_006).await;
        assert_eq!(control.full(peer), None);
        let second = set_up(&control, 30_008).await;
        let why = control.full(peer).expect("two are the most");
        assert!(why.contains("all 2 sessions that one address"), "{why}");
        assert_eq!(control.full(other), None);
        stop(&first).await;
        assert_eq!(control.full(peer), None);
        stop(&second).await;
        assert!(control.sessions_by_address.borrow().is_empty());
        // A client has all addresses of its network.
        let ips = ["2001:db8::", "2001:db8::7", "2001:db8:0:1::7"];
        let [network, within, beside] = ips.map(|ip| ip.parse::<IpAddr>().unwrap());
        control.sessions_by_address.borrow_mut().insert(network, 2);
        assert!(control.full(within).is_some());
        assert_eq!(control.full(beside), None);
    }));
}

/// A channel that comes here other nodes can have from nowhere else.
#[test]
fn a_drain_refuses_viewers_and_not_nodes() {
    let (control, _root) = control_with(&constant_rate(665, 0, 40_608), |config| {
        config.limits.sessions_per_address_max = 1;
    });
    block_on(LocalSet::new().run_until(async {
        let peer = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(control.refuses(peer, false), None);
        control.statistics.drain.begin(None);
        let why = control.refuses(peer, false).expect("it drains");
        assert!(why.contains("no session more"), "{why}");
        assert_eq!(control.refuses(peer, true), None);
        // All other bounds are about nodes, too.
        let only = set_up(&control, 30_014).await;
        assert!(control.refuses(peer, true).is_some());
        stop(&only).await;
        control.statistics.drain.end();
        assert_eq!(control.refuses(peer, false), None);
    }));
}

#[test]
fn connections_are_counted_by_network() {
    let (control, _root) = control_with(&constant_rate(665, 0, 40_608), |config| {
        config.limits.connections_per_address_max = 2;
    });
    let take = |peer: &str| ConnectionSlot::take(&control, peer.parse().unwrap());
    let first = take("[2001:db8::1]:1").expect("it is the first");
    let second = take("[2001:db8::2]:1").expect("two may be");
    assert!(take("[2001:db8::3]:1").is_none());
    let beside = take("[2001:db8:0:1::1]:1").expect("it is another's");
    assert_eq!(second.ip().to_string(), "2001:db8::2");
    drop((first, second, beside));
    assert!(control.connections.borrow().is_empty());
}

/// What sends to a group has no connection, nor may a viewer over UDP, and the network may be away
/// when a report is due. Ports that are closed are a viewer's that has died.
#[test]
fn sessions_outlive_a_network_that_is_away() {
    let (control, _root) = control_of_groups("239.77.11.0/24:20300");
    block_on(LocalSet::new().run_until(async {
        let on = join(&control, "film.ts").await.unwrap();
        let leader = control.leader(&on.group).unwrap();
        let viewer = set_up(&control, 30_010).await;
        for away in [ErrorKind::NetworkUnreachable, ErrorKind::HostUnreachable] {
            leader.heard(Err(away));
            viewer.heard(Err(away));
            assert_eq!(leader.state(), State::Ready, "{away:?}");
            assert_eq!(viewer.state(), State::Ready, "{away:?}");
        }
        leader.heard(Err(ErrorKind::ConnectionRefused));
        assert_eq!(leader.state(), State::Ready);
        viewer.heard(Err(ErrorKind::ConnectionRefused));
        assert_eq!(viewer.state(), State::Init);
        stop_all(&control).await;
    }));
}

/// Whoever was told the group of what is always sent, by an SDP file, finds it there again: when it
/// had to begin anew, and when it is another film.
#[test]
fn what_is_always_sent_keeps_its_group() {
    let (control, root) = control_of_groups("239.77.12.0/31:20310");
    let file = |name: &str| root.path().join(name);
    for name in ["other.ts", "third.ts"] {
        std::fs::copy(file("film.ts"), file(name)).unwrap();
        onrush_testkit::media::age(&file(name)).unwrap();
    }
    let ip = |on: &Rc<OnGroup>| on.group.address().ip;
    block_on(LocalSet::new().run_until(async {
        let first = join(&control, "film.ts").await.unwrap();
        stop(&control.leader(&first.group).unwrap()).await;
        let other = join(&control, "other.ts").await.unwrap();
        // There are two groups, and one of them is not free though nothing is sent there.
        assert_ne!(ip(&other), ip(&first));
        let third = join(&control, "third.ts").await;
        assert_eq!(third.unwrap_err().status(), 453);
        let again = join(&control, "film.ts").await.unwrap();
        assert_eq!(ip(&again), ip(&first));
        std::fs::rename(file("third.ts"), file("film.ts")).unwrap();
        let replaced = join(&control, "film.ts").await.unwrap();
        assert!(!replaced.presentation.is_same(&again.presentation));
        assert_eq!(ip(&replaced), ip(&first));
        // Also if somebody watches it.
        assert!(control.leader(&again.group).is_none());
        control.groups.look(&control);
        assert!(control.leader(&replaced.group).is_some());
        stop_all(&control).await;
    }));
}

/// What is sent where nobody watches would keep a server that drains from its end.
#[test]
fn a_drain_leaves_groups_to_those_who_watch() {
    let (control, _root) = control_of_groups("239.77.13.0/31:20320");
    block_on(LocalSet::new().run_until(async {
        let drain = &control.statistics.drain;
        let on = join(&control, "film.ts").await.unwrap();
        let leader = control.leader(&on.group).unwrap();
        drain.begin(None);
        control.groups.look(&control);
        assert_eq!(leader.state(), State::Ready, "somebody watches it");
        let told = described(&control, "film.ts").await;
        assert_eq!(told, Some(on.group.address().ip));
        drop(on);
        control.groups.look(&control);
        assert_eq!(leader.state(), State::Init);
        while !control.sessions.borrow().is_empty() {
            control.left.notified().await;
        }
        let local = ([127, 0, 0, 1], 0).into();
        groups::begin(&control, "film.ts", local).await.unwrap();
        assert_eq!(described(&control, "film.ts").await, None);
        assert!(control.sessions.borrow().is_empty());
        drain.end();
        drop(join(&control, "film.ts").await.unwrap());
        control.groups.look(&control);
        assert_eq!(control.sessions.borrow().len(), 1, "it is sent again");
        stop_all(&control).await;
    }));
}

/// The successor sends to the same group.
#[test]
fn nothing_is_sent_to_groups_once_another_serves() {
    let (control, _root) = control_of_groups("239.77.14.0/31:20330");
    block_on(LocalSet::new().run_until(async {
        let on = join(&control, "film.ts").await.unwrap();
        let leader = control.leader(&on.group).unwrap();
        let player = set_up(&control, 30_012).await;
        let (begin, draining) = Draining::new();
        begin.send_replace(true);
        Rc::clone(&control).drain(draining).await;
        assert_eq!(leader.state(), State::Init);
        assert_eq!(player.state(), State::Ready, "it is no group's");
        let always = groups::send_always(Rc::clone(&control), "film.ts".to_owned());
        let ended = tokio::time::timeout(Duration::from_secs(20), always).await;
        ended.expect("it begins no more");
        // Whoever has a connection still may ask.
        assert_eq!(described(&control, "film.ts").await, None);
        let refused = join(&control, "film.ts").await.unwrap_err();
        assert_eq!(refused.status(), 503);
        stop_all(&control).await;
    }));
}

/// Whoever counts what is left for clients counts them.
#[test]
fn films_that_are_known_take_descriptors() {
    let (control, _root) = control();
    block_on(async {
        let before = control.descriptors(0);
        let library = control.content.library.as_ref().unwrap();
        let film = library.open("film.ts").await.unwrap();
        assert_eq!(control.descriptors(0), before + 1);
        drop(film);
        assert_eq!(control.descriptors(0), before + 1, "it stays open");
    });
}

/// Of a long film that takes seconds, in which nobody else would be served.
#[test]
fn control_makes_no_plan() {
    let (control, _root) = control_of_groups("239.77.15.0/31:20340");
    block_on(LocalSet::new().run_until(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let (served, peer) = listener.accept().await.unwrap();
        let slot = ConnectionSlot::take(&control, peer).unwrap();
        let connection = connection::Connection::new(slot, ByteStream::Plain(served)).unwrap();
        drop(spawn_local(connection.serve()));
        tell_of_plans(|| panic!("control makes a plan"));
        for wish in [
            "Transport: RTP/AVP;unicast;client_port=30014-30015\r\nBlocksize: 400",
            "Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\nBlocksize: 600",
        ] {
            let uri = "rtsp://127.0.0.1/film.ts/track1";
            let request = format!("SETUP {uri} RTSP/1.0\r\nCSeq: 1\r\n{wish}\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            assert!(head.starts_with("RTSP/1.0 200 "), "{head}");
        }
        let local = ([127, 0, 0, 1], 0).into();
        groups::begin(&control, "film.ts", local).await.unwrap();
        assert_eq!(control.sessions.borrow().len(), 3);
        tell_of_plans(|| ());
        stop_all(&control).await;
    }));
}

#[test]
fn a_bug_that_one_session_meets_ends_no_other() {
    let (control, _root) = control();
    block_on(LocalSet::new().run_until(async {
        let [one, other] = [
            set_up(&control, 30_000).await,
            set_up(&control, 30_002).await,
        ];
        control.tell(one.id().number(), |_| panic!("this is planted"));
        assert_eq!(one.state(), State::Init);
        control.left.notified().await;
        assert!(control.session(one.id(), one.peer_ip()).is_none());
        assert!(control.session(other.id(), other.peer_ip()).is_some());
        assert_eq!(other.state(), State::Ready);
        stop(&other).await;
        assert!(control.sessions.borrow().is_empty());
    }));
}

#[test]
fn of_two_kilobytes_a_viewer_takes_his_parts_take_so_much() {
    let parts = [
        (
            "connection",
            TASK_BYTES + bytes_of(connection::Connection::serve),
        ),
        ("session", size_of::<Session>()),
        ("track", size_of::<TrackSession>()),
        ("engine", engine::BYTES_PER_STREAM),
    ];
    let total: usize = parts.iter().map(|(_, bytes)| bytes).sum();
    assert!(total <= 1280, "{total} of {parts:?}");
}
