//! What a publisher asks for: ANNOUNCE, SETUP with mode RECORD, RECORD (RFC 2326, sections 10.3 and
//! 10.11).
//!
//! A publication belongs to the connection on which it was announced, so whatever is about it is
//! judged here, with what that connection has announced; all else is judged by
//! [`Intent`](super::Intent). Who may publish, and whether the name is taken, is the caller's.

use std::net::IpAddr;

use rtsp_types::{Method, StatusCode, headers};

use super::intent::{check_protocol, no_session, no_target, no_transport};
use super::{Reply, Request, SessionId, Target, Transport};
use crate::sdp::{AnnouncedError, AnnouncedTrack, announced};

/// A request of a publisher that may be carried out.
#[derive(Debug)]
pub enum Publish {
    /// Take a channel's name, and make it of these tracks.
    Announce {
        /// The channel's name, as a path.
        path: String,
        /// Its tracks, one at least.
        tracks: Vec<AnnouncedTrack>,
    },
    /// Make a way for a track, or another than it has.
    Setup {
        /// Its number, from 0 on.
        track: usize,
        /// How it can be sent, best first.
        transports: Vec<Transport>,
    },
    /// Take what comes.
    Record,
    /// Take nothing until the next RECORD.
    Pause,
    /// End it.
    Teardown,
    /// The publisher is there.
    KeepAlive,
}

/// What a connection has announced.
#[derive(Clone, Copy, Debug)]
pub struct Publication<'a> {
    /// The channel's name, as a path.
    pub path: &'a str,
    /// Its tracks, as they were announced.
    pub tracks: &'a [AnnouncedTrack],
    /// The name of its session.
    pub session: SessionId,
    /// Tracks that are set up.
    pub tracks_set_up: usize,
    /// Whether what comes is taken.
    pub is_recording: bool,
}

impl Publish {
    /// Judges a request of `peer`, on whose connection that was announced; `None` if it is none
    /// of a publisher's.
    ///
    /// # Errors
    ///
    /// The reply that refuses it. The connection may go on.
    pub fn of(
        request: &Request,
        peer: IpAddr,
        publication: Option<Publication<'_>>,
    ) -> Option<Result<Self, Reply>> {
        let named = request.header("Session");
        let is_own = publication.is_some_and(|publication| {
            named.and_then(SessionId::parse) == Some(publication.session)
        });
        match (&request.method, publication) {
            (Method::Announce, _) => Some(announce(request, publication)),
            (Method::Record, None) => Some(check_protocol(request).and_then(|()| {
                let note = "send ANNOUNCE and SETUP first, on this connection";
                let reply = Reply::refusal(StatusCode::MethodNotValidInThisState, note);
                Err(reply.with(headers::ALLOW, "ANNOUNCE"))
            })),
            // The first SETUP need not name a session: ANNOUNCE may have been answered without.
            (Method::Setup, Some(publication)) if is_own || named.is_none() => {
                Some(set_up(request, peer, publication))
            }
            (Method::Record, Some(_)) if !is_own => {
                Some(check_protocol(request).and_then(|()| Err(no_session())))
            }
            (method, Some(publication)) if is_own => Some(of_session(request, method, publication)),
            _ => None,
        }
    }
}

fn announce(request: &Request, publication: Option<Publication<'_>>) -> Result<Publish, Reply> {
    check_protocol(request)?;
    if publication.is_some() {
        return Err(not_now(
            "this connection publishes already; TEARDOWN that first",
        ));
    }
    let kind = request.header("Content-Type").unwrap_or("application/sdp");
    let kind = kind.split(';').next().unwrap_or("").trim();
    if !kind.eq_ignore_ascii_case("application/sdp") {
        let note = "descriptions are application/sdp";
        return Err(Reply::refusal(StatusCode::UnsupportedMediaType, note));
    }
    let path = match Target::parse(&request.uri).map_err(|error| no_target(&error))? {
        Target::Path(path) if !path.is_empty() => path,
        _ => return Err(Reply::refusal(StatusCode::BadRequest, "name a channel")),
    };
    let tracks = announced(&request.body).map_err(|error| {
        let status = match error {
            AnnouncedError::Encrypted(_) => StatusCode::UnsupportedTransport,
            _ => StatusCode::BadRequest,
        };
        Reply::refusal(status, &error.to_string())
    })?;
    Ok(Publish::Announce { path, tracks })
}

fn set_up(request: &Request, peer: IpAddr, publication: Publication<'_>) -> Result<Publish, Reply> {
    check_protocol(request)?;
    if publication.is_recording {
        return Err(not_now("PAUSE first"));
    }
    let track = find(&request.uri, publication)?;
    let transports = Transport::negotiate_record(request.headers_named("Transport"), peer);
    let transports = transports.map_err(no_transport)?;
    Ok(Publish::Setup { track, transports })
}

/// The track that a URL names: one that ends in its control, or is its control. Publishers on
/// libavformat append the control to the whole of what they have announced, behind its query.
fn find(uri: &str, publication: Publication<'_>) -> Result<usize, Reply> {
    let path = |uri: &str| match Target::parse(uri) {
        Ok(Target::Path(path)) => Some(path),
        _ => None,
    };
    let asked = Target::parse(uri).map_err(|error| no_target(&error))?;
    let is_named = |track: &AnnouncedTrack| {
        let named = match track.control.as_deref() {
            None => Some(publication.path.to_owned()),
            Some(control) if control.contains("://") => path(control),
            Some(control) => path(&format!("/{}/{control}", publication.path)),
        };
        // The announced path was decoded; that of the control is not yet.
        let whole = || path(track.control.as_deref().map_or(uri, |control| control));
        named.or_else(whole).map(Target::Path).as_ref() == Some(&asked)
    };
    let found = publication.tracks.iter().position(is_named);
    let found = found.or_else(|| {
        let is_whole = asked == Target::Path(publication.path.to_owned());
        behind_query(uri, publication.tracks).filter(|_| is_whole)
    });
    let note = "no track was announced with this control URL";
    found.ok_or_else(|| Reply::refusal(StatusCode::NotFound, note))
}

/// The track whose control stands at the end of a URL's query; of several the longest, since a
/// query may have slashes, too.
fn behind_query(uri: &str, tracks: &[AnnouncedTrack]) -> Option<usize> {
    let (_, query) = uri.split('#').next()?.split_once('?')?;
    let control_of = |track: &AnnouncedTrack| {
        let control = track.control.as_deref()?;
        let control = control.trim_start_matches('/');
        let is_last = query.strip_suffix(control)?.ends_with('/') && !control.is_empty();
        is_last.then_some(control.len())
    };
    let found = (0..).zip(tracks).filter_map(|(number, track)| {
        let bytes = control_of(track)?;
        Some((bytes, number))
    });
    found
        .max_by_key(|(bytes, _)| *bytes)
        .map(|(_, number)| number)
}

/// What a session that publishes may be asked for.
const ALLOWED: &str = "SETUP, RECORD, PAUSE, TEARDOWN, GET_PARAMETER";

/// Refuses what a session that publishes does not do now; such an answer says what it does (RFC
/// 2326, section 11.3.6).
fn not_now(note: &str) -> Reply {
    let reply = Reply::refusal(StatusCode::MethodNotValidInThisState, note);
    reply.with(headers::ALLOW, ALLOWED)
}

fn of_session(
    request: &Request,
    method: &Method,
    publication: Publication<'_>,
) -> Result<Publish, Reply> {
    check_protocol(request)?;
    match method {
        Method::Record if publication.tracks_set_up == 0 => Err(not_now("SETUP a track first")),
        Method::Record => Ok(Publish::Record),
        Method::Pause => Ok(Publish::Pause),
        Method::Teardown => Ok(Publish::Teardown),
        Method::Options | Method::GetParameter | Method::SetParameter => Ok(Publish::KeepAlive),
        _ => {
            let reply = Reply::refusal(StatusCode::MethodNotAllowed, "the session publishes");
            Err(reply.with(headers::ALLOW, ALLOWED))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::{Decoder, Event, Limits, LowerTransport};
    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const SDP: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n\
        m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:streamid=0\r\n\
        m=audio 0 RTP/AVP 0\r\na=control:rtsp://elsewhere:554/live/a%20b/sound\r\n";

    fn request(head: &str, body: &str) -> Request {
        let mut decoder = Decoder::new(Limits {
            head_bytes_max: 4096,
            headers_max: 16,
            body_bytes_max: 4096,
            frame_bytes_max: 0,
        });
        let head = head.replace('\n', "\r\n");
        let bytes = body.len();
        decoder.push(format!("{head}\r\nContent-Length: {bytes}\r\n\r\n{body}").as_bytes());
        match decoder.next_event().unwrap().unwrap() {
            Event::Request(request) => request,
            other => panic!("{other:?}"),
        }
    }

    fn session() -> SessionId {
        SessionId::from_random([7; 16])
    }

    fn judge(head: &str, body: &str, state: Option<(usize, bool)>) -> Option<Result<Publish, u16>> {
        let tracks = announced(SDP.as_bytes()).unwrap();
        let publication = state.map(|(tracks_set_up, is_recording)| Publication {
            path: "live/a b",
            tracks: &tracks,
            session: session(),
            tracks_set_up,
            is_recording,
        });
        let judged = Publish::of(&request(head, body), PEER, publication)?;
        Some(judged.map_err(|reply| reply.status()))
    }

    #[test]
    fn an_announcement_names_a_path_and_its_tracks() {
        let url = "ANNOUNCE rtsp://h/live/a%20b RTSP/1.0\nCSeq: 1";
        let Some(Ok(Publish::Announce { path, tracks })) = judge(url, SDP, None) else {
            panic!("it is fine");
        };
        assert_eq!((path.as_str(), tracks.len()), ("live/a b", 2));
        for (head, body, state, status) in [
            (url, "", None, 400),
            (url, "m=video", None, 400),
            (url, &SDP.replace("/AVP", "/SAVP"), None, 461),
            (url, SDP, Some((0, false)), 455),
            ("ANNOUNCE rtsp://h/ RTSP/1.0\nCSeq: 1", SDP, None, 400),
            ("ANNOUNCE * RTSP/1.0\nCSeq: 1", SDP, None, 400),
            ("ANNOUNCE rtsp://h/../x RTSP/1.0\nCSeq: 1", SDP, None, 404),
            ("ANNOUNCE rtsp://h/x RTSP/1.0", SDP, None, 400),
            ("ANNOUNCE rtsp://h/x RTSP/2.0\nCSeq: 1", SDP, None, 505),
            (
                "ANNOUNCE rtsp://h/x RTSP/1.0\nCSeq: 1\nRequire: x",
                SDP,
                None,
                551,
            ),
            (
                "ANNOUNCE rtsp://h/x RTSP/1.0\nCSeq: 1\nContent-Type: text/html",
                SDP,
                None,
                415,
            ),
        ] {
            let judged = judge(head, body, state).expect("it is a publisher's");
            assert_eq!(judged.err(), Some(status), "{head} {body}");
        }
    }

    #[test]
    fn tracks_are_set_up_by_their_controls() {
        let transport = "CSeq: 1\nTransport: RTP/AVP/TCP;interleaved=0-1;mode=record";
        for (url, track) in [
            ("rtsp://h/live/a%20b/streamid=0", Some(0)),
            ("rtsp://h:8554/live/a%20b/sound", Some(1)),
            ("rtsp://h/live/a%20b/streamid=1", None),
            ("rtsp://h/live/a%20b", None),
            ("rtsp://h/live/other/streamid=0", None),
            ("rtsp://h/live/a%20b?token=a.b/streamid=0", Some(0)),
            ("rtsp://h/live/a%20b?x=/y&token=a.b/streamid=0#z", Some(0)),
            ("rtsp://h/live/a%20b/streamid=0?token=a.b", Some(0)),
            ("rtsp://h/live/a%20b?token=a.b/streamid=1", None),
            ("rtsp://h/live/a%20b?token=a.bstreamid=0", None),
            ("rtsp://h/live/other?token=a.b/streamid=0", None),
        ] {
            let head = format!("SETUP {url} RTSP/1.0\n{transport}");
            let found = match judge(&head, "", Some((0, false))).expect("a publisher's") {
                Ok(Publish::Setup { track, transports }) => {
                    assert!(matches!(transports[0].lower, LowerTransport::Tcp { .. }));
                    Some(track)
                }
                Ok(other) => panic!("{other:?}"),
                Err(status) => {
                    assert_eq!(status, 404, "{url}");
                    None
                }
            };
            assert_eq!(found, track, "{url}");
        }
        let head = "SETUP rtsp://h/live/a%20b/streamid=0 RTSP/1.0\nCSeq: 1\nTransport: ";
        for (transport, status) in [("RTP/AVP;client_port=5-6;mode=play", 461), ("x", 400)] {
            let head = format!("{head}{transport}");
            assert_eq!(
                judge(&head, "", Some((0, false))).unwrap().err(),
                Some(status)
            );
        }
        let head = format!("{head}RTP/AVP;client_port=6-7;mode=\"RECORD\"");
        assert!(judge(&head, "", Some((1, false))).unwrap().is_ok());
        assert_eq!(judge(&head, "", Some((1, true))).unwrap().err(), Some(455));
        assert!(judge(&head, "", None).is_none(), "a player's, or nobody's");
    }

    #[test]
    fn record_comes_after_announce_and_setup() {
        let with = |method: &str, session: &str| {
            format!("{method} rtsp://h/live/a%20b RTSP/1.0\nCSeq: 1{session}")
        };
        let own = format!("\nSession: {};timeout=60", session());
        let other = "\nSession: 00000000000000000000000000000001";
        for (head, state, status) in [
            (with("RECORD", ""), None, 455),
            (with("RECORD", &own), Some((0, false)), 455),
            (with("RECORD", &own), Some((1, false)), 200),
            (with("RECORD", ""), Some((1, false)), 454),
            (with("RECORD", other), Some((1, false)), 454),
            (with("PAUSE", &own), Some((1, true)), 200),
            (with("TEARDOWN", &own), Some((0, false)), 200),
            (with("GET_PARAMETER", &own), Some((1, true)), 200),
            (with("PLAY", &own), Some((1, false)), 405),
        ] {
            let judged = judge(&head, "", state).expect("it is a publisher's");
            assert_eq!(
                judged.map_or_else(|status| status, |_| 200),
                status,
                "{head} {state:?}"
            );
        }
        for head in [
            with("TEARDOWN", other),
            with("OPTIONS", ""),
            with("DESCRIBE", ""),
        ] {
            assert!(judge(&head, "", Some((1, true))).is_none(), "{head}");
        }
    }
}
