//! Tests of [`super`].

use std::net::Ipv4Addr;
use std::time::SystemTime;

use proptest::prelude::*;

use super::*;
use crate::rtsp::{Decoder, Event, Limits};

const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const ID: &str = "000102030405060708090a0b0c0d0e0f";

fn request(text: &str) -> Request {
    let limits = Limits {
        head_bytes_max: 4096,
        headers_max: 16,
        body_bytes_max: 64,
        frame_bytes_max: 0,
    };
    let mut decoder = Decoder::new(limits);
    decoder.push(text.replace('\n', "\r\n").as_bytes());
    let event = decoder.next_event().expect("a whole request");
    match event.expect("a proper request") {
        Event::Request(request) => request,
        other => panic!("{other:?}"),
    }
}

/// Judges a request where session [`ID`] of a.ts is in `state` (if not Init).
fn judge(state: State, text: &str) -> Result<Intent<()>, Reply> {
    Intent::of(&request(text), PEER, |id| {
        let known = Known {
            handle: (),
            state,
            path: "a.ts".to_owned(),
        };
        (state != State::Init && id.to_string() == ID).then_some(known)
    })
}

fn status(state: State, text: &str) -> u16 {
    match judge(state, text) {
        Ok(_) => 200,
        Err(reply) => reply.status(),
    }
}

fn header(reply: &Reply, name: &str) -> String {
    let text = String::from_utf8(reply.to_bytes(None, SystemTime::UNIX_EPOCH)).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
        .to_owned()
}

#[test]
fn every_refusal_has_its_code() {
    use State::{Ended, Init, Playing, Ready};
    let session = &format!("CSeq: 1\nSession: {ID}");
    let ports = "Transport: RTP/AVP;unicast;client_port=6000-6001";
    for (state, head, expected) in [
        (Init, "OPTIONS * RTSP/2.0\nCSeq: 1", 505),
        (Init, "OPTIONS * RTSP/1.1\nCSeq: 1", 505),
        (Init, "OPTIONS * RTSP/1.0", 400),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: one", 400),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: -1", 400),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: 4294967296", 400),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: 4294967295", 200),
        (Init, "DANCE * RTSP/1.0\nCSeq: 1", 501),
        (Init, "options * RTSP/1.0\nCSeq: 1", 501),
        (Init, "ANNOUNCE /a.ts RTSP/1.0\nCSeq: 1", 454),
        (Init, "RECORD /a.ts RTSP/1.0\nCSeq: 1", 454),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: 1\nRequire: x", 551),
        (Init, "OPTIONS * RTSP/1.0\nCSeq: 1\nProxy-Require: x", 551),
        (Init, "OPTIONS nowhere RTSP/1.0\nCSeq: 1", 400),
        (Init, "DESCRIBE * RTSP/1.0\nCSeq: 1", 400),
        (Init, "DESCRIBE /%zz RTSP/1.0\nCSeq: 1", 400),
        (Init, "DESCRIBE /%2e%2e/a RTSP/1.0\nCSeq: 1", 404),
        (
            Init,
            "DESCRIBE /a.ts RTSP/1.0\nCSeq: 1\nAccept: text/plain",
            406,
        ),
        (
            Init,
            "DESCRIBE /a.ts RTSP/1.0\nCSeq: 1\nAccept: x/y, application/SDP;q=1",
            200,
        ),
        (Init, "DESCRIBE /a.ts RTSP/1.0\nCSeq: 1\nAccept: */*", 200),
        (Init, &format!("DESCRIBE /a.ts RTSP/1.0\n{session}"), 454),
        (
            Init,
            &format!("SETUP /a.ts RTSP/1.0\nCSeq: 1\n{ports}"),
            200,
        ),
        (
            Init,
            &format!("SETUP /a.ts/track8 RTSP/1.0\nCSeq: 1\n{ports}"),
            200,
        ),
        (
            Init,
            &format!("SETUP /a.ts/track9 RTSP/1.0\nCSeq: 1\n{ports}"),
            404,
        ),
        (
            Init,
            &format!("SETUP /a.ts/track0 RTSP/1.0\nCSeq: 1\n{ports}"),
            404,
        ),
        (Init, "SETUP /a.ts/track1 RTSP/1.0\nCSeq: 1", 400),
        (
            Init,
            "SETUP /a.ts/track1 RTSP/1.0\nCSeq: 1\nTransport: RTP/AVP/TCP;multicast",
            461,
        ),
        (
            Init,
            "SETUP /a.ts/track1 RTSP/1.0\nCSeq: 1\nTransport: RTP/AVP/TCP;unicast",
            200,
        ),
        (
            Init,
            &format!("SETUP /a.ts/track1 RTSP/1.0\nCSeq: 1\n{ports}"),
            200,
        ),
        (
            Ready,
            &format!("SETUP /a.ts/track1 RTSP/1.0\n{session}\n{ports}"),
            200,
        ),
        (
            Ready,
            &format!("SETUP /b.ts/track1 RTSP/1.0\n{session}\n{ports}"),
            459,
        ),
        (
            Playing,
            &format!("SETUP /a.ts/track1 RTSP/1.0\n{session}\n{ports}"),
            455,
        ),
        (Ready, "PLAY /a.ts RTSP/1.0\nCSeq: 1", 454),
        (Ready, "PLAY /a.ts RTSP/1.0\nCSeq: 1\nSession: 1234", 454),
        (Init, &format!("PLAY /a.ts RTSP/1.0\n{session}"), 454),
        (
            Ready,
            &format!("PLAY /a.ts/ RTSP/1.0\n{session};timeout=60"),
            200,
        ),
        (Ready, &format!("PLAY /a.tsx RTSP/1.0\n{session}"), 459),
        (Ready, &format!("PLAY / RTSP/1.0\n{session}"), 459),
        (Ready, &format!("PLAY /b.ts RTSP/1.0\n{session}"), 459),
        (
            Ready,
            &format!("PLAY /a.ts RTSP/1.0\n{session}\nRange: smpte=0-"),
            457,
        ),
        (
            Playing,
            &format!("PLAY /a.ts RTSP/1.0\n{session}\nRange: npt=x"),
            457,
        ),
        (Ready, &format!("PAUSE /a.ts RTSP/1.0\n{session}"), 455),
        (Playing, &format!("PAUSE /a.ts RTSP/1.0\n{session}"), 200),
        (Ended, &format!("PAUSE /a.ts RTSP/1.0\n{session}"), 200),
        (
            Playing,
            &format!("PAUSE /a.ts RTSP/1.0\n{session}\nRange: npt=12-"),
            200,
        ),
        (
            Playing,
            &format!("PAUSE /a.ts RTSP/1.0\n{session}\nRange: npt=12-13"),
            457,
        ),
        (
            Ready,
            &format!("PAUSE /a.ts RTSP/1.0\n{session}\nRange: npt=12-"),
            455,
        ),
        (Ended, &format!("PLAY /a.ts RTSP/1.0\n{session}"), 200),
        (Playing, &format!("TEARDOWN * RTSP/1.0\n{session}"), 400),
        (Init, "GET_PARAMETER * RTSP/1.0\nCSeq: 1", 200),
        (
            Ready,
            &format!("SET_PARAMETER /a.ts RTSP/1.0\n{session}"),
            200,
        ),
    ] {
        assert_eq!(
            status(state, &format!("{head}\n\n")),
            expected,
            "{state:?}: {head}"
        );
    }
}

#[test]
fn no_request_of_a_session_is_refused_for_the_tail_of_its_url() {
    let urls = ["/", "/track1", "/track2", "/stream=0", "?x=y", "/?x=y#z"];
    let urls = urls.map(|tail| format!("rtsp://h/a.ts{tail}"));
    for url in &urls {
        for method in ["PLAY", "PAUSE", "TEARDOWN", "OPTIONS", "GET_PARAMETER"] {
            let text = format!("{method} {url} RTSP/1.0\nCSeq: 1\nSession: {ID}\n\n");
            assert_eq!(status(State::Playing, &text), 200, "{text}");
        }
    }
    // Where nothing is asked of the file, the URL is not even read.
    for url in ["*", "nowhere", "/%zz", "/../x", "rtsp://h/b.ts", "rtsp:///"] {
        for method in ["OPTIONS", "GET_PARAMETER", "SET_PARAMETER"] {
            let text = format!("{method} {url} RTSP/1.0\nCSeq: 1\nSession: {ID}\n\n");
            assert_eq!(status(State::Ready, &text), 200, "{text}");
        }
    }
}

#[test]
fn who_sets_up_names_a_track_or_the_presentation() {
    let ports = "Transport: RTP/AVP;unicast;client_port=6000-6001";
    for (state, url, session, expected) in [
        (State::Init, "/a.ts", "", None),
        (State::Init, "/d/a.ts/?x", "", None),
        (State::Init, "/a.ts/track1", "", Some(0)),
        (State::Ready, "/a.ts", ID, None),
        (State::Ready, "/a.ts/stream=0", ID, None),
        (State::Ready, "/a.ts/track1", ID, Some(0)),
        (State::Ready, "/a.ts/track3", ID, Some(2)),
        (State::Init, "/a.ts?k=v/track2", "", Some(1)),
        (State::Ready, "rtsp://h/a.ts?k=v/track2/", ID, Some(1)),
        (State::Init, "/d/a.ts/track3?k=v/track2", "", Some(2)),
        (State::Init, "/a.ts?k=v/track", "", None),
    ] {
        let session = match session {
            "" => String::new(),
            id => format!("Session: {id}\n"),
        };
        let text = format!("SETUP {url} RTSP/1.0\nCSeq: 1\n{session}{ports}\n\n");
        let Ok(Intent::Setup { path, track, .. }) = judge(state, &text) else {
            panic!("refused: {text}");
        };
        assert!(path.ends_with("a.ts"), "{path}");
        assert_eq!(track, expected, "{text}");
    }
}

/// A query's last value may look like a track; and it stands behind what else the query asks for.
#[test]
fn a_track_behind_a_query_is_one_of_setup_alone() {
    let described = judge(
        State::Init,
        "DESCRIBE /a.ts?x=/track2 RTSP/1.0\nCSeq: 1\n\n",
    );
    assert!(matches!(described, Ok(Intent::Describe { path, .. }) if path == "a.ts"));
    let set_up = |query: &str| {
        let ports = "Transport: RTP/AVP;unicast;client_port=6000-6001";
        let text = format!("SETUP /a.ts?{query}/track2 RTSP/1.0\nCSeq: 1\n{ports}\n\n");
        match judge(State::Init, &text) {
            Ok(Intent::Setup { path, srtp, .. }) => (path, srtp.is_some()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(set_up("srtp"), ("a.ts".to_owned(), true));
    let elementary = ("a.ts/tracks=elementary".to_owned(), false);
    assert_eq!(set_up("k=v&tracks=elementary"), elementary);
    assert_eq!(set_up("tracks=elementary&k=v"), elementary);
}

#[test]
fn a_long_url_is_set_up_if_its_query_makes_it_long() {
    let set_up = |parts: &str, query: &str| {
        let ports = "Transport: RTP/AVP;unicast;client_port=6000-6001";
        let text = format!("SETUP /a.ts{parts}/track1{query} RTSP/1.0\nCSeq: 1\n{ports}\n\n");
        status(State::Init, &text)
    };
    let (token, parts) = (format!("?token={}", "a".repeat(3000)), "/.".repeat(1500));
    assert_eq!(set_up("", &token), 200);
    assert_eq!(set_up(&parts, ""), 414);
}

#[test]
fn unknown_parameters_are_refused() {
    for method in ["GET_PARAMETER", "SET_PARAMETER"] {
        let with = |body: &str| {
            let length = body.len();
            status(
                State::Init,
                &format!("{method} * RTSP/1.0\nCSeq: 1\nContent-Length: {length}\n\n{body}"),
            )
        };
        assert_eq!(with("jitter"), 451);
        assert_eq!(with("  "), 200);
    }
}

#[test]
fn refusals_say_what_would_be_allowed() {
    let paused = format!("PAUSE /a.ts RTSP/1.0\nCSeq: 1\nSession: {ID}\n\n");
    let reply = judge(State::Ready, &paused).unwrap_err();
    assert_eq!(
        header(&reply, "Allow"),
        "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN, GET_PARAMETER, SET_PARAMETER"
    );
    let reply = judge(State::Init, "REDIRECT /a RTSP/1.0\nCSeq: 1\n\n").unwrap_err();
    assert!(header(&reply, "Allow").contains("PAUSE"));
    let required = "OPTIONS * RTSP/1.0\nCSeq: 1\nRequire: a, b\nProxy-Require: c\n\n";
    let reply = judge(State::Init, required).unwrap_err();
    assert_eq!(header(&reply, "Unsupported"), "a, b, c");
}

proptest! {
    /// Plays sequences of requests against a server that carries out every intent, and checks
    /// each answer against the RFC's table, written down a second time: as the set of forbidden
    /// pairs.
    #[test]
    fn no_success_where_the_state_forbids_it(
        acts in prop::collection::vec((0_usize..7, any::<bool>()), 0..40),
    ) {
        let mut state = State::Init;
        for (act, names_session) in acts {
            let (line, extra) = [
                ("OPTIONS *", ""),
                ("SETUP /a.ts/track1", "Transport: RTP/AVP;unicast;client_port=2-3\n"),
                ("PLAY /a.ts", "Range: npt=1-\n"),
                ("PAUSE /a.ts", ""),
                ("TEARDOWN /a.ts", ""),
                ("RECORD /a.ts", ""),
                ("end of media", ""),
            ][act];
            if line == "end of media" {
                state = if state == State::Playing { State::Ended } else { state };
                continue;
            }
            let session =
                if names_session { format!("Session: {ID}\n") } else { String::new() };
            let text = format!("{line} RTSP/1.0\nCSeq: 1\n{session}{extra}\n");
            let verdict = judge(state, &text);
            let needs_session = matches!(act, 2..=4);
            let forbidden = (names_session && state == State::Init)
                || (needs_session && !names_session)
                || (state, act, names_session) == (State::Playing, 1, true)
                || (state, act) == (State::Ready, 3)
                || act == 5;
            prop_assert_eq!(verdict.is_err(), forbidden, "{:?}: {}", state, text);
            match verdict {
                Ok(Intent::Setup { session: Some(()), .. }) => state = State::Ready,
                // A new session beside; this test follows one, so only if there was none.
                Ok(Intent::Setup { session: None, .. }) if state == State::Init =>
                    state = State::Ready,
                Ok(Intent::Play { .. }) => state = State::Playing,
                Ok(Intent::Pause { .. }) if state == State::Playing => state = State::Ready,
                Ok(Intent::Teardown { .. }) => state = State::Init,
                _ => {}
            }
        }
    }
}

#[test]
fn a_scale_is_the_nearest_that_is_supported() {
    let text = |header: &str| format!("PLAY /a.ts RTSP/1.0\nCSeq: 1\nSession: {ID}{header}\n\n");
    let scale = |value: &str| match judge(State::Ready, &text(&format!("\nScale: {value}"))) {
        Ok(Intent::Play { scale, .. }) => Ok(scale.value()),
        Ok(other) => panic!("{other:?}"),
        Err(reply) => Err(reply.status()),
    };
    for (value, expected) in [
        ("1", 1),
        ("1.000000", 1),
        ("2.", 2),
        (" -8.0 ", -8),
        ("0", 1),
        ("-0.7", -1),
        ("99999999999999999999999999999999999999999999", 16),
    ] {
        assert_eq!(scale(value), Ok(expected), "{value}");
    }
    for value in [
        "", "-", ".5", "fast", "1e3", "+2", "--2", "1.2.3", "NaN", "inf",
    ] {
        assert_eq!(scale(value), Err(400), "{value}");
    }
    let none = judge(State::Ready, &text(""));
    assert!(matches!(none, Ok(Intent::Play { scale, .. }) if scale.is_normal()));
}

#[test]
fn a_speed_is_the_nearest_that_is_supported() {
    let text = |header: &str| format!("PLAY /a.ts RTSP/1.0\nCSeq: 1\nSession: {ID}{header}\n\n");
    let speed = |value: &str| match judge(State::Ready, &text(&format!("\nSpeed: {value}"))) {
        Ok(Intent::Play { speed, .. }) => Ok(speed.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(reply) => Err(reply.status()),
    };
    for (value, expected) in [
        ("1", "1"),
        ("1.000000", "1"),
        ("2.", "2"),
        (" 2.5 ", "2.5"),
        ("0.1", "0.5"),
        ("0.001", "0.5"),
        ("99999999999999999999999999999999999999999999", "4"),
    ] {
        assert_eq!(speed(value).as_deref(), Ok(expected), "{value}");
    }
    for value in [
        "", "0", "0.0", "-1", ".5", "fast", "1e3", "+2", "1.2.3", "NaN", "inf",
    ] {
        assert_eq!(speed(value), Err(400), "{value}");
    }
    let none = judge(State::Ready, &text(""));
    assert!(matches!(none, Ok(Intent::Play { speed, .. }) if speed.is_normal()));
}

/// What clients send beside what is needed here: ONVIF's, QuickTime's and live555's headers, and
/// queries with whatever their makers put there.
#[test]
fn headers_and_queries_of_real_clients_change_nothing() {
    let more = "CSeq: 1\nAccept-Language: de, en;q=0.5\nBlocksize: 1400\nBandwidth: 512000\n\
        User-Agent: x\nx-Retransmit: our-retransmit\nAccept: application/sdp";
    let uris = [
        "rtsp://h/a.ts",
        "RTSP://u:p@h:554/a.ts/",
        "/a.ts",
        "rtsp://h/a.ts?user=a;password=b;x=/../y",
        "rtsp://h/a.ts?rights=play,download&expires=1&signature=a-_",
    ];
    for uri in uris {
        let head = format!("DESCRIBE {uri} RTSP/1.0\n{more}\n\n");
        match judge(State::Init, &head) {
            Ok(Intent::Describe { path, .. }) => assert_eq!(path, "a.ts"),
            other => panic!("{uri}: {other:?}"),
        }
        // Any request that names the session keeps it alive; these need nothing else.
        for method in ["OPTIONS", "GET_PARAMETER", "SET_PARAMETER", "PLAY", "PAUSE"] {
            let head = format!("{method} {uri} RTSP/1.0\n{more}\nSession: {ID};timeout=60\n\n");
            assert_eq!(status(State::Playing, &head), 200, "{head}");
        }
    }
}
