//! What is answered.

use std::fmt;
use std::time::{Duration, SystemTime};

use rtsp_types::{HeaderName, Method, Response, StatusCode, Version, headers};

use super::{RangeError, Request, SessionId, Span, npt};
use crate::media::Scale;
use crate::pace::Speed;
use crate::srtp::{MikeyMessage, key_mgmt_header};

/// A response, but for its number and date.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    status: StatusCode,
    note: String,
    headers: Vec<(HeaderName, String)>,
    /// Values of WWW-Authenticate, each on a line of its own.
    challenges: Vec<String>,
    body: Vec<u8>,
}

/// The first packet after PLAY (RFC 2326, section 12.33).
#[derive(Clone, Copy, Debug)]
pub struct RtpInfo<'a> {
    /// The stream's control URL, as the client spelt it; what separates entries is escaped.
    pub url: &'a str,
    /// The packet's sequence number.
    pub sequence: u16,
    /// The timestamp of where the Range of the answer begins, which may lie before the packet's.
    pub timestamp: u32,
}

impl Reply {
    /// 200, with nothing said.
    #[must_use]
    pub const fn ok() -> Self {
        Self {
            status: StatusCode::Ok,
            note: String::new(),
            headers: Vec::new(),
            challenges: Vec::new(),
            body: Vec::new(),
        }
    }

    /// 401: asks for credentials in each of these ways; none of them holds a line end.
    #[must_use]
    pub fn log_in(challenges: Vec<String>, note: &str) -> Self {
        Self {
            challenges,
            ..Self::refusal(StatusCode::Unauthorized, note)
        }
    }

    /// A refusal; players show the `note`, which says why, beside the status.
    #[must_use]
    pub fn refusal(status: StatusCode, note: &str) -> Self {
        // A file's name may be in it: whatever could end the status line must not be.
        let note = note
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        Self {
            status,
            note,
            ..Self::ok()
        }
    }

    /// 302: what is asked for is had there for now. `location` holds no line end.
    #[must_use]
    pub fn moved(location: &str) -> Self {
        let note = "another server has it; ask there";
        Self::refusal(StatusCode::Found, note).with(headers::LOCATION, location)
    }

    /// The answer to OPTIONS.
    #[must_use]
    pub fn options() -> Self {
        Self::ok().with(headers::PUBLIC, method_names(&METHODS))
    }

    /// The answer to DESCRIBE: the session description, and what its relative URLs are relative to.
    #[must_use]
    pub fn description(content_base: &str, sdp: Vec<u8>) -> Self {
        let mut reply = Self::ok()
            .with(headers::CONTENT_TYPE, "application/sdp")
            .with(headers::CONTENT_BASE, content_base);
        reply.body = sdp;
        reply
    }

    /// The answer to PLAY of a media that ends at `end_ns`, if that is known, with `infos` of its
    /// tracks. Without any, nothing starts: the client asked for what it already gets.
    #[must_use]
    pub fn playing(
        request: &Request,
        (span, speed): (Span, Speed),
        end_ns: Option<u64>,
        infos: &[RtpInfo<'_>],
    ) -> Self {
        let end_ns = match span.scale.is_reverse() {
            true => Some(0),
            false => end_ns,
        };
        let stop = span
            .stop_ns
            .or(end_ns)
            .map(|stop_ns| npt(stop_ns).to_string());
        let range = format!("npt={}-{}", npt(span.start_ns), stop.unwrap_or_default());
        Self::playing_range(request, &range, (span.scale, speed)).with_infos(infos)
    }

    /// The answer to PLAY of a live stream, which has neither a beginning nor an end, with what is
    /// known of the first packets of its tracks.
    #[must_use]
    pub fn playing_live(request: &Request, infos: &[RtpInfo<'_>]) -> Self {
        Self::playing_range(request, "npt=now-", (Scale::NORMAL, Speed::NORMAL)).with_infos(infos)
    }

    fn with_infos(self, infos: &[RtpInfo<'_>]) -> Self {
        if infos.is_empty() {
            return self;
        }
        let infos = infos.iter().map(|info| {
            let RtpInfo {
                url,
                sequence,
                timestamp,
            } = info;
            let url = without_separators(url);
            format!("url={url};seq={sequence};rtptime={timestamp}")
        });
        self.with(headers::RTP_INFO, infos.collect::<Vec<_>>().join(","))
    }

    /// The scale and the speed that were chosen are said to whoever asked for any: so the RFC
    /// (sections 12.34 and 12.35) lets a server decline others.
    fn playing_range(request: &Request, range: &str, (scale, speed): (Scale, Speed)) -> Self {
        let mut reply = Self::ok().with(headers::RANGE, range);
        if request.header(headers::SCALE.as_str()).is_some() || !scale.is_normal() {
            reply = reply.with(headers::SCALE, scale.value());
        }
        if request.header(headers::SPEED.as_str()).is_some() || !speed.is_normal() {
            reply = reply.with(headers::SPEED, speed);
        }
        reply
    }

    /// Adds a header. `value` holds no line end.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: impl fmt::Display) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    /// Tells the key of what was asked for at that URL (RFC 4567, section 3.2).
    #[must_use]
    pub fn with_key(self, message: &MikeyMessage, url: &str) -> Self {
        let name = HeaderName::from_static_str("KeyMgmt").expect("it is ASCII");
        self.with(name, key_mgmt_header(message, url))
    }

    /// Names the session, and how long it lives without a sign of its client.
    #[must_use]
    pub fn with_session(self, id: SessionId, timeout: Duration) -> Self {
        // Rounded down, but not to 0: a client that believes in less comes back in time.
        let timeout_s = timeout.as_secs().max(1);
        self.with(headers::SESSION, format!("{id};timeout={timeout_s}"))
    }

    /// Names the methods that would be answered otherwise.
    #[must_use]
    pub(super) fn with_allow(self, methods: &[Method]) -> Self {
        self.with(headers::ALLOW, method_names(methods))
    }

    /// The status code.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status.into()
    }

    /// The status code with what is said beside it, for the log.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{} {}", self.status(), self.note)
    }

    /// Whether it is a success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_success()
    }

    /// The response as it is on the wire.
    #[must_use]
    pub fn to_bytes(&self, cseq: Option<u32>, date: SystemTime) -> Vec<u8> {
        let mut response = Response::builder(Version::V1_0, self.status)
            .header(
                headers::SERVER,
                concat!("onrush/", env!("CARGO_PKG_VERSION")),
            )
            .header(headers::DATE, httpdate::fmt_http_date(date));
        if let Some(cseq) = cseq {
            response = response.header(headers::CSEQ, cseq.to_string());
        }
        for (name, value) in &self.headers {
            response = response.header(name.clone(), value.as_str());
        }
        response = response.reason_phrase(match (self.status, self.note.as_str()) {
            // rtsp-types spells it `Ok`; a client that compares it compares it with the RFC's.
            (StatusCode::Ok, _) => "OK".to_owned(),
            (status, "") => status.to_string(),
            (status, note) => format!("{status} ({note})"),
        });
        let mut bytes = Vec::new();
        response
            .build(&self.body)
            .write(&mut bytes)
            .expect("writing to memory does not fail");
        // Behind the status line. The crate would join them to one line, which few players read.
        let line = bytes.windows(2).position(|two| two == b"\r\n");
        let at = line.map_or(bytes.len(), |at| at + 2);
        let lines = self.challenges.iter();
        let lines = lines.flat_map(|value| ["WWW-Authenticate: ", value, "\r\n"]);
        bytes.splice(at..at, lines.flat_map(str::bytes));
        bytes
    }
}

/// What is asked for is not in the media, or is asked for in a way that is not understood.
impl From<RangeError> for Reply {
    fn from(error: RangeError) -> Self {
        Self::refusal(StatusCode::InvalidRange, &error.to_string())
    }
}

/// A URL without what separates URLs and parameters in RTP-Info, which has no quotes. Names of
/// films may have both.
pub(super) fn without_separators(url: &str) -> String {
    url.replace(',', "%2C").replace(';', "%3B")
}

/// What can be asked of this server.
pub(super) const METHODS: [Method; 10] = [
    Method::Options,
    Method::Describe,
    Method::Setup,
    Method::Play,
    Method::Pause,
    Method::Teardown,
    Method::GetParameter,
    Method::SetParameter,
    Method::Announce,
    Method::Record,
];

fn method_names(methods: &[Method]) -> String {
    methods
        .iter()
        .map(<&str>::from)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reply: &Reply) -> String {
        let date = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        String::from_utf8(reply.to_bytes(Some(7), date)).unwrap()
    }

    #[test]
    fn challenges_stand_on_lines_of_their_own() {
        let challenges = vec!["Digest a=\"b\"".to_owned(), "Basic c".to_owned()];
        let text = text(&Reply::log_in(challenges, "log in"));
        let expected = "RTSP/1.0 401 Unauthorized (log in)\r\n\
            WWW-Authenticate: Digest a=\"b\"\r\nWWW-Authenticate: Basic c\r\nCSeq: 7\r\n";
        assert!(
            text.starts_with(expected) && text.ends_with("\r\n\r\n"),
            "{text}"
        );
    }

    #[test]
    fn a_reply_on_the_wire() {
        let description = Reply::description("rtsp://h/a.ts/", b"v=0\r\n".to_vec());
        assert_eq!(
            text(&description),
            format!(
                "RTSP/1.0 200 OK\r\nContent-Base: rtsp://h/a.ts/\r\nContent-Length: 5\r\n\
                 Content-Type: application/sdp\r\nCSeq: 7\r\nDate: Sun, 06 Nov 1994 08:49:37 \
                 GMT\r\n\
                 Server: onrush/{}\r\n\r\nv=0\r\n",
                env!("CARGO_PKG_VERSION"),
            )
        );
        let public = "Public: OPTIONS, DESCRIBE, SETUP, PLAY, PAUSE, TEARDOWN, GET_PARAMETER, \
         SET_PARAMETER, ANNOUNCE, RECORD\r\n";
        assert!(text(&Reply::options()).contains(public));
    }

    #[test]
    fn a_note_cannot_end_its_line() {
        let reply = Reply::refusal(StatusCode::NotFound, "a\r\nSession: 1: no such file");
        assert!(
            text(&reply).starts_with("RTSP/1.0 404 Not Found (a  Session: 1: no such file)\r\n")
        );
    }

    #[test]
    fn urls_of_rtp_info_have_none_of_its_separators() {
        let request = Request {
            method: Method::Play,
            uri: "*".to_owned(),
            version: (1, 0),
            headers: Vec::new(),
            body: Vec::new(),
        };
        let info = |url| RtpInfo {
            url,
            sequence: 1,
            timestamp: 2,
        };
        let infos = ["rtsp://h/A,%20b;%20c/track1", "rtsp://h/A,%20b;%20c/track2"].map(info);
        let found = text(&Reply::playing_live(&request, &infos));
        let expected = "RTP-Info: url=rtsp://h/A%2C%20b%3B%20c/track1;seq=1;rtptime=2,\
            url=rtsp://h/A%2C%20b%3B%20c/track2;seq=1;rtptime=2\r\n";
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_session_time_is_never_promised_longer_than_it_is() {
        let id = SessionId::from_random([0xab; 16]);
        let reply = |ms| text(&Reply::ok().with_session(id, Duration::from_millis(ms)));
        assert!(reply(60_999).contains(&format!("Session: {id};timeout=60\r\n")));
        assert!(reply(10).contains(";timeout=1\r\n"));
    }
}
