//! A viewer's side of RTSP 1.0 (RFC 2326): as much as it takes to be served by any server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use onrush_testkit::rtsp_client::{Dialogue, Incoming, Response, transport};
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
    #[error("the description has no media whose RTP clock it tells")]
    NoTrack,
    #[error("no port is left; begin lower with --ports")]
    NoPort,
}

/// What a server says of a film.
#[derive(Debug)]
pub(super) struct Description {
    /// Its media.
    pub(super) tracks: Vec<Track>,
    /// How long it is; `None` if it has no end, or nobody said.
    pub(super) seconds: Option<f64>,
}

/// What is set up alone.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Track {
    pub(super) url: String,
    /// Ticks a second of its RTP timestamps, by which lateness is counted.
    pub(super) clock_hz: u32,
}

/// A connection, and the session on it.
#[derive(Debug)]
pub(super) struct Viewer {
    stream: TcpStream,
    url: String,
    dialogue: Dialogue,
    received: Vec<u8>,
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
            dialogue: Dialogue::default(),
            received: Vec::new(),
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
            while self.incoming("PLAY")?.is_some() {}
        }
    }

    /// Has one medium sent to the port `rtp`, and its RTCP to the one above.
    pub(super) async fn set_up(&mut self, track: &str, rtp: u16) -> Result<(), ViewerError> {
        let transport = transport(rtp);
        let headers = [("Transport", transport.as_str())];
        let answer = self.ask("SETUP", track, &headers).await?;
        let session = answer.session_id();
        let (id, timeout_s) = session.ok_or(ViewerError::Garbled("SETUP"))?;
        self.dialogue.session = Some(id.to_owned());
        if let Some(seconds) = timeout_s {
            self.session_timeout = Duration::from_secs(seconds.clamp(2, 3600));
        }
        Ok(())
    }

    /// Plays, from `npt_s` seconds on if it is given.
    pub(super) async fn play(&mut self, npt_s: Option<f64>) -> Result<(), ViewerError> {
        let range = npt_s.map(|s| format!("npt={s:.3}-"));
        let range = range.as_deref().map(|range| ("Range", range));
        self.control("PLAY", range.as_slice()).await
    }

    pub(super) async fn pause(&mut self) -> Result<(), ViewerError> {
        self.control("PAUSE", &[]).await
    }

    /// Says that the viewer is still there.
    pub(super) async fn keep_alive(&mut self) -> Result<(), ViewerError> {
        self.control("OPTIONS", &[]).await
    }

    pub(super) async fn tear_down(&mut self) -> Result<(), ViewerError> {
        self.control("TEARDOWN", &[]).await
    }

    /// Asks something about the whole of what is watched.
    async fn control(
        &mut self,
        method: &'static str,
        headers: &[(&str, &str)],
    ) -> Result<(), ViewerError> {
        let url = self.url.clone();
        self.ask(method, &url, headers).await.map(drop)
    }

    async fn ask(
        &mut self,
        method: &'static str,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response, ViewerError> {
        let headers = [headers, &[("User-Agent", "onrush-load")]].concat();
        let request = self.dialogue.request(method, url, &headers);
        let written = self.stream.write_all(request.as_bytes()).await;
        written.map_err(ViewerError::Connection)?;
        let answer = timeout(ANSWER_TIME_MAX, self.answer(method)).await;
        let answer = answer.map_err(|_| ViewerError::Silent(method))??;
        match answer.status {
            200..300 => Ok(answer),
            status => Err(ViewerError::Refused { method, status }),
        }
    }

    async fn answer(&mut self, method: &'static str) -> Result<Response, ViewerError> {
        loop {
            match self.incoming(method)? {
                Some(Some(response)) => return Ok(response),
                Some(None) => {}
                None => {
                    let read = self.stream.read_buf(&mut self.received).await;
                    if read.map_err(ViewerError::Connection)? == 0 {
                        return Err(ViewerError::Closed(method));
                    }
                }
            }
        }
    }

    /// Takes the next whole message; the answer, if it is one.
    fn incoming(&mut self, method: &'static str) -> Result<Option<Option<Response>>, ViewerError> {
        let incoming = Incoming::parse(&self.received, ANSWER_BYTES_MAX);
        let (response, bytes) = match incoming.map_err(|_| ViewerError::Garbled(method))? {
            Incoming::Partial => return Ok(None),
            Incoming::Other(bytes) => (None, bytes),
            Incoming::Response(response, bytes) => (Some(response), bytes),
        };
        self.received.drain(..bytes);
        Ok(Some(response))
    }
}

/// The media whose clock a description tells (RFC 4566; RFC 2326, appendix C.1.1).
fn tracks_of(sdp: &str, base: &str) -> Vec<Track> {
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
            let clock: Option<u32> = clock.and_then(|clock| clock.trim().parse().ok());
            track.0 = clock.filter(|&hz| hz > 0);
        } else if let Some(control) = line.strip_prefix("a=control:") {
            track.1 = Some(control);
        }
    }
    let url = |control: Option<&str>| match control {
        None | Some("*") => base.to_owned(),
        Some(url) if url.contains("://") => url.to_owned(),
        Some(relative) => format!("{}/{relative}", base.trim_end_matches('/')),
    };
    let known = tracks.into_iter().filter_map(|(clock_hz, control)| {
        let url = url(control);
        clock_hz.map(|clock_hz| Track { url, clock_hz })
    });
    known.take(TRACKS_MAX).collect()
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
    fn a_film_has_a_length_or_not() {
        assert_eq!(seconds_of("v=0\r\na=range:npt=0-12.5\r\n"), Some(12.5));
        assert_eq!(seconds_of("a=range:npt=0-\r\n"), None);
        assert_eq!(seconds_of("a=range:npt=now-\r\n"), None);
        assert_eq!(seconds_of("v=0\r\n"), None);
    }

    #[test]
    fn media_whose_clock_nobody_tells_are_left_out() {
        let sdp = "v=0\r\na=control:*\r\nm=video 0 RTP/AVP 33\r\na=control:track1\r\n\
                   m=audio 0 RTP/AVP 97\r\na=rtpmap:97 \
                   MPEG4-GENERIC/48000/2\r\na=control:track2\r\n\
                   m=application 0 RTP/AVP 98\r\na=rtpmap:98 x/0\r\na=control:track3\r\n\
                   m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\na=control:rtsp://h/x/3\r\n";
        let track = |url: &str, clock_hz| Track {
            url: url.to_owned(),
            clock_hz,
        };
        let expected = [
            track("rtsp://h/x/track1", 90_000),
            track("rtsp://h/x/track2", 48_000),
            track("rtsp://h/x/3", 90_000),
        ];
        assert_eq!(tracks_of(sdp, "rtsp://h/x/"), expected);
        let whole = [track("rtsp://h/x", 90_000)];
        assert_eq!(tracks_of("m=video 0 RTP/AVP 33", "rtsp://h/x"), whole);
        assert!(tracks_of("m=audio 0 RTP/AVP 0", "rtsp://h/x").is_empty());
        assert!(tracks_of("", "rtsp://h/x").is_empty());
    }
}
