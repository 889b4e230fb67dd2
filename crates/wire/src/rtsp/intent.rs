//! What a request asks for, and everything the protocol itself refuses.

use std::net::IpAddr;

use rtsp_types::{Method, StatusCode, headers};

use super::reply::METHODS;
use super::setup_url::is_too_long;
use super::{
    AskedRange, Reply, Request, SessionId, SrtpParameter, State, Target, Transport, TransportError,
    UrlError, take_srtp, track_behind_query,
};
use crate::media::{Scale, TRACKS_MAX};
use crate::pace::Speed;

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
        /// Its packets are to be encrypted.
        srtp: Option<SrtpParameter>,
    },
    /// Make a session, or give one that is not playing another transport.
    Setup {
        /// The presentation's name.
        path: String,
        /// Its packets are to be encrypted, whatever its transport is called.
        srtp: Option<SrtpParameter>,
        /// Where to send: what can be served at all of what it takes, best first.
        transports: Vec<Transport>,
        /// The session to change.
        session: Option<S>,
        /// Which of its tracks, from 0 on, below [`TRACKS_MAX`]; `None` if the presentation was
        /// named, and none of them.
        track: Option<usize>,
    },
    /// Play. On a session that plays already, a range is a seek, at once: the RFC would queue it
    /// behind what plays now, but the players that send this mean a seek, and RFC 7826 came round
    /// to them.
    Play {
        /// Which.
        session: S,
        /// What part.
        range: Option<AskedRange>,
        /// How fast, and in which direction: the supported scale that is nearest to what was asked
        /// for, [`Scale::NORMAL`] if none was.
        scale: Scale,
        /// How fast it is delivered: likewise, and [`Speed::NORMAL`].
        speed: Speed,
    },
    /// Stop sending, and remember where.
    Pause {
        /// Which.
        session: S,
        /// When media time comes to the start of this; `None`: at once.
        at: Option<AskedRange>,
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
        let (uri, behind) = match request.method {
            Method::Setup => track_behind_query(&request.uri),
            _ => (&*request.uri, None),
        };
        let target = match Target::parse(uri) {
            // The session says it all: the URL chooses nothing.
            Err(_) if session.is_some() && is_sign_of_life(&request.method) => Target::Server,
            target => target.map_err(|error| no_target(&error))?,
        };
        let (target, srtp) = match target {
            Target::Path(path) => {
                let (path, srtp) = take_srtp(&path);
                (Target::Path(with_track(path, behind)), srtp)
            }
            Target::Server => (target, None),
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
            (Method::Describe, Target::Path(path)) => describe(request, path, srtp),
            (Method::Setup, Target::Path(path)) => setup(request, peer, (&path, srtp), session),
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

/// A path with the track that its URL has named behind a query, unless it names one itself.
fn with_track(path: String, behind: Option<u32>) -> String {
    match behind.filter(|_| !path.is_empty() && super::track(&path).is_none()) {
        Some(number) => format!("{path}/{}", super::track_name(number)),
        None => path,
    }
}

/// What holds for every request, whatever it asks for.
pub(super) fn check_protocol(request: &Request) -> Result<(), Reply> {
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
        Method::Redirect => {
            let reply = Reply::refusal(StatusCode::MethodNotAllowed, "only servers redirect");
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

fn describe<S>(
    request: &Request,
    path: String,
    srtp: Option<SrtpParameter>,
) -> Result<Intent<S>, Reply> {
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
    Ok(Intent::Describe { path, srtp })
}

fn setup<S>(
    request: &Request,
    peer: IpAddr,
    (path, srtp): (&str, Option<SrtpParameter>),
    session: Option<Known<S>>,
) -> Result<Intent<S>, Reply> {
    if is_too_long(&request.uri) {
        let note = "the URL is too long; send what is long in its query, or in a header";
        return Err(Reply::refusal(StatusCode::RequestURITooLong, note));
    }
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
    let transports = Transport::negotiate(request.headers_named("Transport"), peer);
    let transports = transports.map_err(no_transport)?;
    Ok(Intent::Setup {
        path: presentation.to_owned(),
        srtp,
        transports,
        session: session.map(|s| s.handle),
        track,
    })
}

fn play<S>(request: &Request, session: S) -> Result<Intent<S>, Reply> {
    let range = request.header("Range").map(AskedRange::parse);
    let range = range.transpose()?;
    let bad = |note| move || Reply::refusal(StatusCode::BadRequest, note);
    let scale = request.header(headers::SCALE.as_str()).map(|value| {
        let scale = scale(value);
        scale.ok_or_else(bad("Scale takes a number, as 2 or -1.5"))
    });
    let speed = request.header(headers::SPEED.as_str()).map(|value| {
        let speed = speed(value);
        speed.ok_or_else(bad("Speed takes a number above 0, as 2 or 0.5"))
    });
    Ok(Intent::Play {
        session,
        range,
        scale: scale.transpose()?.unwrap_or(Scale::NORMAL),
        speed: speed.transpose()?.unwrap_or_default(),
    })
}

/// `["-"] 1*DIGIT ["." *DIGIT]` (RFC 2326, section 12.34), as the nearest that is supported.
fn scale(value: &str) -> Option<Scale> {
    let value = value.trim();
    let (sign, digits) = match value.strip_prefix('-') {
        Some(digits) => (-1.0, digits),
        None => (1.0, value),
    };
    Some(Scale::nearest(sign * decimal(digits)?))
}

/// `1*DIGIT ["." *DIGIT]` (section 12.35), likewise. "A speed value of zero is invalid."
fn speed(value: &str) -> Option<Speed> {
    let value = decimal(value.trim()).filter(|&value| value > 0.0);
    value.map(Speed::nearest)
}

fn decimal(digits: &str) -> Option<f64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let is_decimal = !whole.is_empty() && is_number(whole) && is_number(fraction);
    digits.parse().ok().filter(|_| is_decimal)
}

fn pause<S>(request: &Request, session: S) -> Result<Intent<S>, Reply> {
    let point = request.header("Range").map(AskedRange::parse_point);
    let at = point.transpose()?.flatten();
    Ok(Intent::Pause { session, at })
}

/// Whether a URL names the session's presentation, or anything below it. What stands there differs
/// from client to client (`/`, `/track1`, `/stream=0`), and but for SETUP it is about all tracks,
/// so it chooses nothing.
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

pub(super) fn no_target(error: &UrlError) -> Reply {
    let status = match error {
        UrlError::Impossible => StatusCode::NotFound,
        UrlError::Syntax | UrlError::Escape => StatusCode::BadRequest,
    };
    Reply::refusal(status, &error.to_string())
}

pub(super) fn no_transport(error: TransportError) -> Reply {
    let status = match error {
        TransportError::Syntax => StatusCode::BadRequest,
        _ => StatusCode::UnsupportedTransport,
    };
    Reply::refusal(status, &error.to_string())
}

pub(super) fn no_session() -> Reply {
    Reply::refusal(StatusCode::SessionNotFound, "set it up first")
}

#[cfg(test)]
mod tests;
