//! A viewer's side of RTSP 1.0 (RFC 2326): as much as it takes to be served by any server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a server may take for an answer.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of an answer at the most, with its body.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Media of a description that are set up at the most.
const TRACKS_MAX: usize = 8;

/// A session's time-out where the server names none (RFC 2326, section 12.37).
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// What went wrong for a viewer.
#[derive(Debug, Error)]
pub(super) enum ViewerError {
    #[error("cannot connect: {0}")]
    Connect(#[source] std::io::Error),
    #[error("the connection broke: {0}")]
    Connection(#[source] std::io::Error),
    #[error("no answer to {0} within {ANSWER_TIME_MAX:?}")]
    Silent(&'static str),
    #[error("the server closed the connection instead of answering {0}")]
    Closed(&'static str),
    #[error("the server closed the connection of a viewer who watched")]
    Ended,
    #[error("{method} was answered {status}")]
    Refused { method: &'static str, status: u16 },
    #[error("the answer to {0} cannot be understood")]
    Garbled(&'static str),
    #[error("no media of the description has an RTP clock of 90 kHz")]
    NoTrack,
    #[error("no port is left; begin lower with --ports")]
    NoPort,
}

/// What a server says of a film.
#[derive(Debug)]
pub(super) struct Description {
    /// The URLs of its media with an RTP clock of 90 kHz, as lateness is counted in.
    pub(super) tracks: Vec<String>,
    /// How long it is; `None` if it has no end, or nobody said.
    pub(super) seconds: Option<f64>,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A connection, and the session on it.
#[derive(Debug)]
pub(super) struct Viewer {
    stream: TcpStream,
    url: String,
    cseq: u32,
    received: Vec<u8>,
    session: Option<String>,
    session_timeout: Duration,
}

impl Viewer {
    pub(super) async fn connect(server: SocketAddr, url: &str) -> Result<Self, ViewerError> {
        let connecting = timeout(ANSWER_TIME_MAX, TcpStream::connect(server)).await;
        let stream = connecting
            .map_err(|_| ViewerError::Silent("connect"))?
            .map_err(ViewerError::Connect)?;
        stream.set_nodelay(true).map_err(ViewerError::Connect)?;
        Ok(Self {
            stream,
            url: url.to_owned(),
            cseq: 0,
            received: Vec::new(),
            session: None,
            session_timeout: SESSION_TIMEOUT,
        })
    }

    /// Where this end of the connection is.
    pub(super) fn local_ip(&self) -> Result<IpAddr, ViewerError> {
        let address = self.stream.local_addr();
        Ok(address.map_err(ViewerError::Connection)?.ip())
    }

    /// How often the session must be kept alive: twice within its time-out.
    pub(super) fn alive_every(&self) -> Duration {
        self.session_timeout / 2
    }

    /// What there is to be watched.
    pub(super) async fn describe(&mut self) -> Result<Description, ViewerError> {
        let url = self.url.clone();
        let accept = ("Accept", "application/sdp");
        let answer = self.ask("DESCRIBE", &url, &[accept]).await?;
        let base = answer.header("Content-Base").unwrap_or(&url).to_owned();
        let sdp = String::from_utf8_lossy(&answer.body);
        let tracks = tracks_of(&sdp, &base);
        if tracks.is_empty() {
            return Err(ViewerError::NoTrack);
        }
        let seconds = seconds_of(&sdp);
        Ok(Description { tracks, seconds })
    }

    /// Sleeps, unless the server ends the connection.
    pub(super) async fn wait_until(&mut self, until: Instant) -> Result<(), ViewerError> {
        loop {
            let read = self.stream.read_buf(&mut self.received);
            let Ok(read) = timeout_at(until, read).await else {
                return Ok(());
            };
            if read.map_err(ViewerError::Connection)? == 0 {
                return Err(ViewerError::Ended);
            }
            // Nobody has asked for anything: a request of the server's, or interleaved data.
            while let Parsed::Skip(bytes) | Parsed::Answer(_, bytes) = parse(&self.received) {
                drop(self.received.drain(..bytes));
            }
            if self.received.len() > ANSWER_BYTES_MAX {
                return Err(ViewerError::Garbled("PLAY"));
            }
        }
    }

    /// Has one medium sent to the port `rtp`, and its RTCP to the one above.
    pub(super) async fn set_up(&mut self, track: &str, rtp: u16) -> Result<(), ViewerError> {
        let transport = format!("RTP/AVP;unicast;client_port={rtp}-{}", rtp + 1);
        let answer = self
            .ask("SETUP", track, &[("Transport", &transport)])
            .await?;
        let session = answer.header("Session");
        let session = session.ok_or(ViewerError::Garbled("SETUP"))?;
        let (id, timeout_s) = session_of(session);
        self.session = Some(id.to_owned());
        if let Some(seconds) = timeout_s {
            self.session_timeout = Duration::from_secs(seconds.clamp(2, 3600));
        }
        Ok(())
    }

    /// Plays, from `npt_s` seconds on if it is given.
    pub(super) async fn play(&mut self, npt_s: Option<f64>) -> Result<(), ViewerError> {
        let range = npt_s.map(|s| format!("npt={s:.3}-"));
        let range = range.as_deref().map(|range| ("Range", range));
        self.tell("PLAY", range.as_slice()).await.map(drop)
    }

    pub(super) async fn pause(&mut self) -> Result<(), ViewerError> {
        self.tell("PAUSE", &[]).await.map(drop)
    }

    /// Says that the viewer is still there.
    pub(super) async fn keep_alive(&mut self) -> Result<(), ViewerError> {
        self.tell("OPTIONS", &[]).await.map(drop)
    }

    pub(super) async fn tear_down(&mut self) -> Result<(), ViewerError> {
        self.tell("TEARDOWN", &[]).await.map(drop)
    }

    async fn tell(
        &mut self,
        method: &'static str,
        headers: &[(&str, &str)],
    ) -> Result<Answer, ViewerError> {
        let url = self.url.clone();
        self.ask(method, &url, headers).await
    }

    async fn ask(
        &mut self,
        method: &'static str,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Answer, ViewerError> {
        self.cseq += 1;
        let mut request = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n", self.cseq);
        let session = self.session.as_deref().map(|id| ("Session", id));
        for (name, value) in headers.iter().copied().chain(session) {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("User-Agent: onrush-load\r\n\r\n");
        let written = self.stream.write_all(request.as_bytes()).await;
        written.map_err(ViewerError::Connection)?;
        let answer = timeout(ANSWER_TIME_MAX, self.answer(method)).await;
        let answer = answer.map_err(|_| ViewerError::Silent(method))??;
        if answer.status / 100 != 2 {
            let status = answer.status;
            return Err(ViewerError::Refused { method, status });
        }
        Ok(answer)
    }

    async fn answer(&mut self, method: &'static str) -> Result<Answer, ViewerError> {
        loop {
            match parse(&self.received) {
                Parsed::Answer(answer, bytes) => {
                    self.received.drain(..bytes);
                    return Ok(answer);
                }
                Parsed::Skip(bytes) => drop(self.received.drain(..bytes)),
                Parsed::Garbled => return Err(ViewerError::Garbled(method)),
                Parsed::More if self.received.len() > ANSWER_BYTES_MAX => {
                    return Err(ViewerError::Garbled(method));
                }
                Parsed::More => {
                    let read = self.stream.read_buf(&mut self.received).await;
                    if read.map_err(ViewerError::Connection)? == 0 {
                        return Err(ViewerError::Closed(method));
                    }
                }
            }
        }
    }
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut named = self.headers.iter();
        let found = named.find(|(n, _)| n.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
}

enum Parsed {
    /// An answer, and how many bytes it took.
    Answer(Answer, usize),
    /// Something else: a request of the server's, or interleaved data.
    Skip(usize),
    More,
    Garbled,
}

/// Reads the message at the start of `bytes`.
fn parse(bytes: &[u8]) -> Parsed {
    if let [b'$', _, high, low, ..] = *bytes {
        let frame = 4 + usize::from(u16::from_be_bytes([high, low]));
        return if bytes.len() < frame {
            Parsed::More
        } else {
            Parsed::Skip(frame)
        };
    }
    let Some(head_bytes) = bytes.windows(4).position(|w| w == b"\r\n\r\n") else {
        return Parsed::More;
    };
    let Ok(head) = std::str::from_utf8(&bytes[..head_bytes]) else {
        return Parsed::Garbled;
    };
    let mut lines = head.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
        .collect();
    let mut answer = Answer {
        status: 0,
        headers,
        body: Vec::new(),
    };
    let length = answer.header("Content-Length").map_or(Ok(0), str::parse);
    let Ok(body_bytes) = length else {
        return Parsed::Garbled;
    };
    let body = head_bytes + 4;
    let Some(end) = body
        .checked_add(body_bytes)
        .filter(|&end| end <= ANSWER_BYTES_MAX)
    else {
        return Parsed::Garbled;
    };
    if bytes.len() < end {
        return Parsed::More;
    }
    let Some(status) = first.strip_prefix("RTSP/1.0 ") else {
        return Parsed::Skip(end);
    };
    let Some(status) = status.get(..3).and_then(|digits| digits.parse().ok()) else {
        return Parsed::Garbled;
    };
    answer.status = status;
    answer.body = bytes[body..end].to_vec();
    Parsed::Answer(answer, end)
}

/// The session's name, and its time-out in seconds.
fn session_of(header: &str) -> (&str, Option<u64>) {
    let (id, rest) = header.split_once(';').unwrap_or((header, ""));
    let timeout = rest.trim().strip_prefix("timeout=");
    (id.trim(), timeout.and_then(|s| s.trim().parse().ok()))
}

/// The URLs of those media whose clock runs at 90 kHz, as a description tells them (RFC 4566; RFC
/// 2326, appendix C.1.1).
fn tracks_of(sdp: &str, base: &str) -> Vec<String> {
    let mut tracks: Vec<(Option<u32>, Option<&str>)> = Vec::new();
    for line in sdp.lines().map(str::trim) {
        if let Some(media) = line.strip_prefix("m=") {
            let format = media.split_whitespace().nth(3);
            // RFC 3551, table 5: the static video types all run at 90 kHz, and MP2T is 33.
            let is_static = format
                .and_then(|f| f.parse().ok())
                .is_some_and(|f: u8| (24..=34).contains(&f));
            tracks.push((is_static.then_some(90_000), None));
        }
        let Some(track) = tracks.last_mut() else {
            continue;
        };
        if let Some(map) = line.strip_prefix("a=rtpmap:") {
            let clock = map.split('/').nth(1);
            track.0 = clock.and_then(|clock| clock.trim().parse().ok());
        } else if let Some(control) = line.strip_prefix("a=control:") {
            track.1 = Some(control);
        }
    }
    tracks
        .into_iter()
        .filter(|(clock, _)| *clock == Some(90_000))
        .take(TRACKS_MAX)
        .map(|(_, control)| match control {
            None | Some("*") => base.to_owned(),
            Some(url) if url.contains("://") => url.to_owned(),
            Some(relative) => format!("{}/{relative}", base.trim_end_matches('/')),
        })
        .collect()
}

/// How long the film is, if the description tells (RFC 2326, appendix C.1.5).
fn seconds_of(sdp: &str) -> Option<f64> {
    let mut lines = sdp.lines().map(str::trim);
    let range = lines.find_map(|line| line.strip_prefix("a=range:npt="))?;
    let seconds = range.split_once('-')?.1.trim().parse().ok();
    seconds.filter(|&s: &f64| s.is_finite() && s > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_let_in_says_so() {
        let refused = ViewerError::Refused {
            method: "SETUP",
            status: 453,
        };
        assert_eq!(refused.to_string(), crate::load::NOT_LET_IN);
    }

    #[test]
    fn answers_are_read_whole_and_the_rest_is_left() {
        let bytes = b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 3\r\n\r\nabcRTSP";
        let Parsed::Answer(answer, end) = parse(bytes) else {
            panic!("an answer");
        };
        assert_eq!((answer.status, &answer.body[..]), (200, &b"abc"[..]));
        assert_eq!(&bytes[end..], b"RTSP");
        for cut in 0..end {
            assert!(matches!(parse(&bytes[..cut]), Parsed::More), "{cut}");
        }
    }

    #[test]
    fn what_is_no_answer_is_skipped_or_garbled() {
        assert!(matches!(parse(b"$\x00\x00\x02abRTSP"), Parsed::Skip(6)));
        assert!(matches!(parse(b"$\x00\x00\x02a"), Parsed::More));
        let request = b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n";
        assert!(matches!(parse(request), Parsed::Skip(n) if n == request.len()));
        for garbled in [
            &b"RTSP/1.0 2x0 OK\r\n\r\n"[..],
            b"RTSP/1.0 200 OK\r\nContent-Length: -1\r\n\r\n",
            b"RTSP/1.0 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            b"RTSP/1.0 \xff\xff\xff\r\n\r\n",
        ] {
            assert!(matches!(parse(garbled), Parsed::Garbled), "{garbled:?}");
        }
    }

    #[test]
    fn sessions_name_their_time_out_or_not() {
        assert_eq!(session_of("abc;timeout=30"), ("abc", Some(30)));
        assert_eq!(session_of("abc"), ("abc", None));
        assert_eq!(session_of("abc; timeout=x"), ("abc", None));
    }

    #[test]
    fn a_film_has_a_length_or_not() {
        assert_eq!(seconds_of("v=0\r\na=range:npt=0-12.5\r\n"), Some(12.5));
        assert_eq!(seconds_of("a=range:npt=0-\r\n"), None);
        assert_eq!(seconds_of("a=range:npt=now-\r\n"), None);
        assert_eq!(seconds_of("v=0\r\n"), None);
    }

    #[test]
    fn media_with_another_clock_are_left_out() {
        let sdp = "v=0\r\na=control:*\r\nm=video 0 RTP/AVP 33\r\na=control:track1\r\n\
                   m=audio 0 RTP/AVP 97\r\na=rtpmap:97 \
                   MPEG4-GENERIC/48000/2\r\na=control:track2\r\n\
                   m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:rtsp://h/x/3\r\n";
        assert_eq!(
            tracks_of(sdp, "rtsp://h/x/"),
            ["rtsp://h/x/track1", "rtsp://h/x/3"]
        );
        assert_eq!(
            tracks_of("m=video 0 RTP/AVP 33", "rtsp://h/x"),
            ["rtsp://h/x"]
        );
        assert!(tracks_of("m=audio 0 RTP/AVP 0", "rtsp://h/x").is_empty());
        assert!(tracks_of("", "rtsp://h/x").is_empty());
    }
}
