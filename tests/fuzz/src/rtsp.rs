//! RTSP: what comes on a connection, cut anyhow, as requests and packets; what the requests ask
//! for; what is answered.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use onrush_wire::media::{FrameRate, Scale};
use onrush_wire::pace::Speed;
use onrush_wire::rtsp::{
    AskedRange, Channels, Decoder, Event, Group, Intent, Known, Limits, LowerTransport, Refused,
    Reply, Request, RtpInfo, Served, ServedAt, SessionId, State, TUNNEL_COOKIE_BYTES_MAX,
    Transport, TunnelDecoder, Units,
};

use crate::memory::bounded;
use crate::random::Random;

/// Small, so that they are reached.
const LIMITS: Limits = Limits {
    head_bytes_max: 1024,
    headers_max: 16,
    body_bytes_max: 256,
    frame_bytes_max: 512,
};

/// What a decoder may hold beside some times a request.
const MEMORY_BYTES: usize = 64 << 10;

/// How long the film of the session is.
const DURATION_NS: u64 = 3_600_000_000_000;

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The session that exists, in the state that its last digit says.
const SESSION: &str = "0123456789abcdef0123456789abcde";

/// Decodes what comes on a connection, and answers it.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    let pieces = decoded(input, |left| random.piece(left));
    let bytes = decoded(input, |_| 1);
    assert_eq!(pieces, bytes, "how bytes come together makes a difference");
    let tunnels = [
        tunnelled(input, |left| random.piece(left)),
        tunnelled(input, |_| 1),
    ];
    assert_eq!(tunnels[0], tunnels[1], "the same in a tunnel");
    assert!(tunnels[0].0.len() <= input.len() / 4 * 3);
    for received in &bytes {
        match received {
            Ok(Event::Request(request)) => answer(request),
            Ok(Event::Tunnel(side)) => {
                assert!(side.cookie.len() <= TUNNEL_COOKIE_BYTES_MAX);
            }
            Ok(Event::Answer(answer)) => assert!((100..600).contains(&answer.status)),
            Ok(Event::Frame(frame)) => assert!(frame.packet.len() <= LIMITS.frame_bytes_max),
            Err(refused) => check_reply(&refused.reply(), refused.cseq),
        }
    }
}

/// What a tunnel carries, as text, is the same however it is cut.
fn tunnelled(input: &[u8], mut piece: impl FnMut(usize) -> usize) -> (Vec<u8>, bool) {
    let (mut decoder, mut out, mut left) = (TunnelDecoder::default(), Vec::new(), input);
    while !left.is_empty() {
        let some;
        (some, left) = left.split_at(piece(left.len()));
        if decoder.push(some, &mut out).is_err() {
            return (out, false);
        }
    }
    (out, true)
}

type Received = Vec<Result<Event, Refused>>;

fn decoded(input: &[u8], mut piece: impl FnMut(usize) -> usize) -> Received {
    let mut decoder = Decoder::new(LIMITS);
    let (mut found, mut left) = (Vec::new(), input);
    while !left.is_empty() {
        let some;
        (some, left) = left.split_at(piece(left.len()));
        decoder.push(some);
        let memory_max = MEMORY_BYTES + 8 * some.len();
        while let Some(received) = bounded(memory_max, || decoder.next_event()) {
            let is_last = received.is_err();
            found.push(received);
            if is_last {
                decoder.push(left);
                assert_eq!(decoder.next_event(), None, "nothing follows a refusal");
                return found;
            }
        }
    }
    found
}

fn answer(request: &Request) {
    assert!(request.headers.len() <= LIMITS.headers_max);
    assert!(request.body.len() <= LIMITS.body_bytes_max);
    let is_odd = |c: char| c == ' ' || c.is_ascii_control();
    assert!(!request.uri.contains(is_odd), "{:?}", request.uri);
    let lookup = |id: SessionId| {
        let text = id.to_string();
        assert_eq!(SessionId::parse(&text), Some(id));
        let state = match text.strip_prefix(SESSION)? {
            "0" => State::Ready,
            "1" => State::Playing,
            "2" => State::Ended,
            _ => return None,
        };
        Some(Known {
            handle: id,
            state,
            path: "film.mp4".to_owned(),
        })
    };
    let reply = match Intent::of(request, PEER, lookup) {
        Ok(intent) => apply(request, intent),
        Err(refusal) => {
            assert!(!refusal.is_success());
            refusal
        }
    };
    check_reply(&reply, request.cseq());
}

fn apply(request: &Request, intent: Intent<SessionId>) -> Reply {
    let id = SessionId::from_random([7; 16]);
    let timeout = Duration::from_secs(60);
    match intent {
        Intent::Options { .. } => Reply::options(),
        Intent::Describe { path, .. } => {
            assert_path(&path);
            Reply::description(&format!("{}/", request.uri), b"v=0\r\n".to_vec())
        }
        Intent::Setup {
            path, transports, ..
        } => {
            assert_path(&path);
            assert!(
                !transports.is_empty(),
                "none that can be served is a refusal"
            );
            let answers: Vec<_> = transports.iter().map(served).collect();
            Reply::ok()
                .with(rtsp_types::headers::TRANSPORT, answers.join(","))
                .with_session(id, timeout)
        }
        Intent::Play {
            range,
            scale,
            speed,
            ..
        } => play(request, range, (scale, speed)),
        Intent::Pause { at, .. } => {
            let _any = at.map(|at| at.in_npt(units()));
            Reply::ok().with_session(id, timeout)
        }
        Intent::Teardown { .. } | Intent::KeepAlive { .. } => Reply::ok(),
    }
}

/// What is answered to an offer.
fn served(transport: &Transport) -> String {
    let at = match transport.lower {
        LowerTransport::Udp {
            rtp_port,
            rtcp_port,
        } => {
            assert!(rtp_port > 0 && rtcp_port > rtp_port);
            ServedAt::Port(20_000)
        }
        LowerTransport::Tcp { channels } => {
            ServedAt::Channels(channels.unwrap_or(Channels { rtp: 0, rtcp: 1 }))
        }
        LowerTransport::Multicast => ServedAt::Group(Group {
            ip: [239, 1, 2, 3].into(),
            rtp_port: 5004,
            ttl: 1,
            source: [127, 0, 0, 1].into(),
        }),
    };
    transport.answer(Served { at, ssrc: 1 }).to_string()
}

fn units() -> Units {
    Units {
        frame_rate: Some(FrameRate::PAL),
        wall_clock_start_ns: Some(847_462_980_000_000_000),
    }
}

fn play(request: &Request, range: Option<AskedRange>, (scale, speed): (Scale, Speed)) -> Reply {
    let range = range.map(|asked| asked.in_npt(units())).transpose();
    let Ok(range) = range else {
        return Reply::playing_live(request, &[]);
    };
    match range.unwrap_or_default().resolve(0, DURATION_NS, scale) {
        Ok(span) => {
            assert!(span.start_ns <= DURATION_NS);
            let is_ahead = |stop_ns| match span.scale.is_reverse() {
                true => stop_ns < span.start_ns,
                false => stop_ns > span.start_ns && stop_ns <= DURATION_NS,
            };
            assert!(span.stop_ns.is_none_or(is_ahead), "{span:?}");
            let info = RtpInfo {
                url: &request.uri,
                sequence: 1,
                timestamp: 2,
            };
            Reply::playing(request, (span, speed), Some(DURATION_NS), &[info])
        }
        Err(_) => Reply::playing_live(request, &[]),
    }
}

/// A name stays below the folder of films.
pub(crate) fn assert_path(path: &str) {
    let is_climbing = |part: &str| part == ".." || part == "." || part.contains('\0');
    let is_whole = path.is_empty() || path.split('/').all(|part| !part.is_empty());
    assert!(is_whole && !path.split('/').any(is_climbing), "{path:?}");
}

/// A reply is one, whatever it repeats of a request.
fn check_reply(reply: &Reply, cseq: Option<u32>) {
    let bytes = reply.to_bytes(cseq, SystemTime::UNIX_EPOCH);
    let (message, consumed) =
        rtsp_types::Message::<Vec<u8>>::parse(&bytes).expect("a reply is an RTSP message");
    assert_eq!(consumed, bytes.len(), "a reply is one message");
    let rtsp_types::Message::Response(response) = message else {
        panic!("a reply is a response");
    };
    assert_eq!(u16::from(response.status()), reply.status());
    let head = bytes.windows(4).position(|it| it == b"\r\n\r\n");
    let head = &bytes[..head.expect("a head ends")];
    let is_control = |&byte: &u8| byte < b' ' && !b"\t\r\n".contains(&byte);
    assert!(
        !head.iter().any(is_control),
        "a control character in a head"
    );
}
