//! What a request asks for, and everything the protocol itself refuses.

use std::net::IpAddr;

use rtsp_types::{Method, StatusCode, headers};

use super::reply::METHODS;
use super::{
    Range, RangeError, Reply, Request, SessionId, State, Target, Transport, TransportError,
    UrlError,
};
use crate::media::TRACKS_MAX;

/// A request that may be carried out. `S` is the caller's handle on a session.
#[derive(Debug)]
pub enum Intent<S> {
    /// Say what can be asked.
    Options {
        /// The session that was named.
        session: Option<S>,
    },
    /// Describe a presentation.
    Describe {
        /// Its name.
        path: String,
    },
    /// Make a session, or give one that is not playing another transport.
    Setup {
        /// The presentation's name.
        path: String,
        /// Where to send.
        transport: Transport,
        /// The session to change.
        session: Option<S>,
        /// Which of its tracks, from 0 on, below [`TRACKS_MAX`]; `None` if the presentation was
        /// named, and none of them.
        track: Option<usize>,
    },
    /// Play. On a session that plays already, a range is a seek, at once: the RFC would queue it behind
    /// what plays now, but the players that send this mean a seek, and RFC 7826 came round to them.
    Play {
        /// Which.
        session: S,
        /// What part.
        range: Option<Range>,
    },
    /// Stop sending, and remember where.
    Pause {
        /// Which.
        session: S,
        /// When media time comes to this; `None`: at once.
        at_ns: Option<u64>,
    },
    /// End a session.
    Teardown {
        /// Which.
        session: S,
    },
    /// Do nothing; the request is there to show that the client is.
    KeepAlive {
        /// Which, if one was named.
        session: Option<S>,
    },
}

/// A session that exists.
#[derive(Debug)]
pub struct Known<S> {
    /// The caller's handle on it.
    pub handle: S,
    /// Its state.
    pub state: State,
    /// The name of its presentation.
    pub path: String,
}

impl<S> Intent<S> {
    /// Judges a request of `peer`. `lookup` finds the sessions this peer may use.
    ///
    /// # Errors
    ///
    /// The reply that refuses it. The connection may go on.
    pub fn of(
        request: &Request,
        peer: IpAddr,
        lookup: impl FnOnce(SessionId) -> Option<Known<S>>,
    ) -> Result<Self, Reply> {
        check_protocol(request)?;
        let session = match request.header("Session") {
            None => None,
            Some(value) => {
                let known = SessionId::parse(value).and_then(lookup);
                Some(known.ok_or_else(no_session)?)
            }
        };
        let target = match Target::parse(&request.uri) {
            // The session says it all: the URL chooses nothing.
            Err(_) if session.is_some() && is_sign_of_life(&request.method) => Target::Server,
            target => target.map_err(|error| no_target(&error))?,
        };
        match (&request.method, target) {
            (Method::Options, _) => Ok(Self::Options {
                session: session.map(|s| s.handle),
            }),
            (Method::GetParameter | Method::SetParameter, _) => keep_alive(request, session),
            (_, Target::Server) => Err(Reply::refusal(
                StatusCode::BadRequest,
                "name a file, not the server",
            )),
            (Method::Describe, Target::Path(path)) => describe(request, path),
            (Method::Setup, Target::Path(path)) => setup(request, peer, &path, session),
            (method, Target::Path(path)) => {
                let session = session.ok_or_else(no_session)?;
                check_presentation(&path, &session.path)?;
                check_state(session.state, method)?;
                let session = session.handle;
                match method {
                    Method::Play => play(request, session),
                    Method::Pause => pause(request, session),
                    _ => Ok(Self::Teardown { session }),
                }
            }
        }
    }
}

/// What holds for every request, whatever it asks for.
fn check_protocol(request: &Request) -> Result<(), Reply> {
    if request.version != (1, 0) {
        return Err(Reply::refusal(
            StatusCode::RTSPVersionNotSupported,
            "send RTSP/1.0",
        ));
    }
    if request.cseq().is_none() {
        return Err(Reply::refusal(
            StatusCode::BadRequest,
            "send CSeq with a number",
        ));
    }
    match &request.method {
        method if METHODS.contains(method) => {}
        Method::Announce | Method::Record | Method::Redirect => {
            let reply = Reply::refusal(StatusCode::MethodNotAllowed, "this server only plays");
            return Err(reply.with_allow(&METHODS));
        }
        _ => {
            let reply = Reply::refusal(StatusCode::NotImplemented, "unknown method");
            return Err(reply.with_allow(&METHODS));
        }
    }
    // No option tag is known, so whatever is required is not there.
    let required: Vec<_> = request
        .headers_named("Require")
        .chain(request.headers_named("Proxy-Require"))
        .collect();
    if !required.is_empty() {
        let reply = Reply::refusal(StatusCode::OptionNotSupported, "no option is known here");
        return Err(reply.with(headers::UNSUPPORTED, required.join(", ")));
    }
    Ok(())
}

fn keep_alive<S>(request: &Request, session: Option<Known<S>>) -> Result<Intent<S>, Reply> {
    if !request.body.trim_ascii().is_empty() {
        let note = "no parameter is known here";
        return Err(Reply::refusal(StatusCode::ParameterNotUnderstood, note));
    }
    Ok(Intent::KeepAlive {
        session: session.map(|s| s.handle),
    })
}

fn describe<S>(request: &Request, path: String) -> Result<Intent<S>, Reply> {
    let accepts = |value: &str| {
        value.split(',').any(|kind| {
            let kind = kind.split(';').next().unwrap_or("").trim();
            ["application/sdp", "application/*", "*/*"]
                .iter()
                .any(|k| kind.eq_ignore_ascii_case(k))
        })
    };
    let mut accepted = request.headers_named("Accept").peekable();
    if accepted.peek().is_some() && !accepted.any(accepts) {
        return Err(Reply::refusal(
            StatusCode::NotAcceptable,
            "descriptions are application/sdp",
        ));
    }
    Ok(Intent::Describe { path })
}

fn setup<S>(
    request: &Request,
    peer: IpAddr,
    path: &str,
    session: Option<Known<S>>,
) -> Result<Intent<S>, Reply> {
    let (presentation, track) = match super::track(path) {
        Some((presentation, number)) => {
            let track = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
            let track = track.filter(|&track| track < TRACKS_MAX);
            let note = "tracks are track1, track2 and so on, as DESCRIBE says";
            let none = || Reply::refusal(StatusCode::NotFound, note);
            (presentation, Some(track.ok_or_else(none)?))
        }
        // SAT>IP clients (VLC without live555 is one) know of no tracks. Where there is one, it is
        // that.
        None => (path, None),
    };
    let presentation = match &session {
        Some(session) => {
            check_presentation(path, &session.path)?;
            check_state(session.state, &Method::Setup)?;
            &session.path
        }
        None => presentation,
    };
    let transport = Transport::negotiate(request.headers_named("Transport"), peer);
    let transport = transport.map_err(|error| {
        let status = match error {
            TransportError::Syntax => StatusCode::BadRequest,
            _ => StatusCode::UnsupportedTransport,
        };
        Reply::refusal(status, &error.to_string())
    })?;
    Ok(Intent::Setup {
        path: presentation.to_owned(),
        transport,
        session: session.map(|s| s.handle),
        track,
    })
}

fn play<S>(request: &Request, session: S) -> Result<Intent<S>, Reply> {
    let range = request.header("Range").map(Range::parse).transpose();
    let range = range.map_err(no_range)?;
    Ok(Intent::Play { session, range })
}

fn pause<S>(request: &Request, session: S) -> Result<Intent<S>, Reply> {
    let point = request.header("Range").map(Range::parse_point).transpose();
    let at_ns = point.map_err(no_range)?.flatten();
    Ok(Intent::Pause { session, at_ns })
}

fn no_range(error: RangeError) -> Reply {
    Reply::refusal(StatusCode::InvalidRange, &error.to_string())
}

/// Whether a URL names the session's presentation, or anything below it. What stands there differs from
/// client to client (`/`, `/track1`, `/stream=0`), and but for SETUP it is about all tracks, so it
/// chooses nothing.
fn check_presentation(path: &str, session_path: &str) -> Result<(), Reply> {
    match path.strip_prefix(session_path) {
        Some(tail) if tail.is_empty() || tail.starts_with('/') => Ok(()),
        _ => {
            let note = "the session is another file's";
            let status = StatusCode::AggregateOperationNotAllowed;
            Err(Reply::refusal(status, note))
        }
    }
}

/// Whether the request may be there only to show that the client is.
fn is_sign_of_life(method: &Method) -> bool {
    matches!(
        method,
        Method::Options | Method::GetParameter | Method::SetParameter
    )
}

fn check_state(state: State, method: &Method) -> Result<(), Reply> {
    match state.after(method) {
        Some(_) => Ok(()),
        None => {
            let status = StatusCode::MethodNotValidInThisState;
            Err(Reply::refusal(status, "").with_allow(&state.allowed()))
        }
    }
}

fn no_target(error: &UrlError) -> Reply {
    let status = match error {
        UrlError::Impossible => StatusCode::NotFound,
        UrlError::Syntax | UrlError::Escape => StatusCode::BadRequest,
    };
    Reply::refusal(status, &error.to_string())
}

fn no_session() -> Reply {
    Reply::refusal(StatusCode::SessionNotFound, "set it up first")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::rtsp::{Decoder, Limits};

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const ID: &str = "000102030405060708090a0b0c0d0e0f";

    fn request(text: &str) -> Request {
        let limits = Limits {
            head_bytes_max: 4096,
            headers_max: 16,
            body_bytes_max: 64,
        };
        let mut decoder = Decoder::new(limits);
        decoder.push(text.replace('\n', "\r\n").as_bytes());
        decoder
            .next_request()
            .expect("a whole request")
            .expect("a proper request")
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
            (Init, "ANNOUNCE /a.ts RTSP/1.0\nCSeq: 1", 405),
            (Init, "RECORD /a.ts RTSP/1.0\nCSeq: 1", 405),
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
                "SETUP /a.ts/track1 RTSP/1.0\nCSeq: 1\nTransport: RTP/AVP/TCP;unicast",
                461,
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
        let reply = judge(State::Init, "RECORD /a RTSP/1.0\nCSeq: 1\n\n").unwrap_err();
        assert!(header(&reply, "Allow").contains("PAUSE"));
        let required = "OPTIONS * RTSP/1.0\nCSeq: 1\nRequire: a, b\nProxy-Require: c\n\n";
        let reply = judge(State::Init, required).unwrap_err();
        assert_eq!(header(&reply, "Unsupported"), "a, b, c");
    }

    proptest! {
        /// Plays sequences of requests against a server that carries out every intent, and checks each
        /// answer against the RFC's table, written down a second time: as the set of forbidden pairs.
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
                let session = if names_session { format!("Session: {ID}\n") } else { String::new() };
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
                    Ok(Intent::Setup { session: None, .. }) if state == State::Init => state = State::Ready,
                    Ok(Intent::Play { .. }) => state = State::Playing,
                    Ok(Intent::Pause { .. }) if state == State::Playing => state = State::Ready,
                    Ok(Intent::Teardown { .. }) => state = State::Init,
                    _ => {}
                }
            }
        }
    }
}
