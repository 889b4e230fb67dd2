//! A viewer's side of RTSP 1.0 (RFC 2326): as much as it takes to be served by any server.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use onrush_testkit::rtsp_client::{Dialogue, Incoming, Response};
use onrush_testkit::sink::SinkError;
use onrush_wire::auth::Answering;
use onrush_wire::srtp::{MasterKey, parse_crypto_attribute};
use thiserror::Error;
use tokio::time::{Instant, timeout, timeout_at};

use super::NOT_LET_IN;
use super::connection::{Connection, TlsTo};
use super::receiving::{Tally, Unread};
use super::transport::Agreed;

/// How long a server may take for an answer.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Bytes of an answer at the most, with its body.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Media of a description that are set up at the most.
pub(super) const TRACKS_MAX: usize = 8;

/// Challenges that a request answers: the first, and two that say that the nonce was too old.
const CHALLENGES_MAX: u32 = 3;

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
    /// As above, and where to go instead.
    #[error("{method} was answered {status}")]
    Moved {
        method: &'static str,
        status: u16,
        location: String,
    },
    #[error("the server sends viewers on to what is no URL of RTSP, or cannot be found")]
    Elsewhere,
    #[error("the answer to {0} cannot be understood")]
    Garbled(&'static str),
    #[error("the description has no media whose RTP clock it tells")]
    NoTrack,
    #[error("no port is left; begin lower with --ports")]
    NoPort,
    #[error(
        "no socket at a port of its own: {0}; where files are what is short, raise ulimit -n: each \
         viewer takes one, and two for each track"
    )]
    Socket(#[source] std::io::Error),
    #[error("{0}; fewer of them, or no --sink")]
    Sink(#[source] SinkError),
    #[error("the answer to SETUP names no {0}")]
    NoPlace(&'static str),
    #[error("cannot join the group: {0}")]
    Join(#[source] std::io::Error),
}

impl ViewerError {
    /// Whether the viewer was not let in because the server has enough to do.
    pub(super) fn is_for_want_of_room(&self) -> bool {
        self.to_string() == NOT_LET_IN
    }
}

/// What a server says of a film.
#[derive(Debug)]
pub(super) struct Description {
    /// Its media.
    pub(super) tracks: Vec<Track>,
    /// How long it is; `None` if it has no end, or nobody said.
    pub(super) seconds: Option<f64>,
    /// It is a channel: who comes sees what is live.
    pub(super) is_channel: bool,
}

/// What is set up alone.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Track {
    pub(super) url: String,
    /// Ticks a second of its RTP timestamps, by which lateness is counted.
    pub(super) clock_hz: u32,
    /// What its packets are encrypted with, if the description says so.
    pub(super) key: Option<MasterKey>,
}

/// A server, and how it is spoken to.
#[derive(Clone, Debug)]
pub(super) struct Server {
    /// The first of them that it is reached at is taken.
    pub(super) addresses: Vec<SocketAddr>,
    pub(super) tls: Option<TlsTo>,
}

/// Takes a packet of a channel.
pub(super) type OnFrame = Box<dyn FnMut(u8, &mut [u8])>;

/// What becomes of that which comes on the connection and is no answer.
enum Frames {
    /// It is passed over.
    Ignored,
    /// Each packet is looked at.
    Followed(Rc<Tally>, OnFrame),
    /// Nothing is looked at any more, answers neither: what comes is thrown away, and counted.
    Unread(Rc<Tally>, Rc<Unread>),
}

/// A connection, and the session on it.
#[derive(Debug)]
pub(super) struct Viewer {
    connection: Connection,
    url: String,
    dialogue: Dialogue,
    received: Vec<u8>,
    session_timeout: Duration,
    answering: Option<Box<Answering>>,
    frames: Frames,
}

impl Viewer {
    pub(super) async fn connect(
        server: &Server,
        url: &str,
        user: Option<&(String, String)>,
    ) -> Result<Self, ViewerError> {
        let tls = server.tls.as_ref();
        let opening = Connection::open(&server.addresses, tls, ANSWER_TIME_MAX);
        let connection = match timeout(ANSWER_TIME_MAX, opening).await {
            Ok(Err(error)) if error.kind() != std::io::ErrorKind::TimedOut => {
                return Err(ViewerError::Connect(error));
            }
            Ok(Ok(connection)) => connection,
            _ => return Err(ViewerError::Silent("connect")),
        };
        let answering = user.map(|(name, password)| Box::new(Answering::new(name, password)));
        Ok(Self {
            connection,
            url: url.to_owned(),
            dialogue: Dialogue::default(),
            received: Vec::new(),
            session_timeout: SESSION_TIMEOUT,
            answering,
            frames: Frames::Ignored,
        })
    }

    /// Where this end of the connection is.
    pub(super) fn local(&self) -> Result<SocketAddr, ViewerError> {
        self.connection.local().map_err(ViewerError::Connection)
    }

    /// From here on packets that come on the connection are given to `on_frame`.
    pub(super) fn follow_frames(&mut self, tally: &Rc<Tally>, on_frame: OnFrame) {
        self.frames = Frames::Followed(Rc::clone(tally), on_frame);
    }

    /// From here on nothing that comes on the connection is looked at, answers neither.
    pub(super) fn stop_reading(&mut self, tally: &Rc<Tally>, unread: &Rc<Unread>) {
        unread.count(tally, self.received.len() as u64);
        self.received = Vec::new();
        self.frames = Frames::Unread(Rc::clone(tally), Rc::clone(unread));
    }

    /// Whether answers are waited for and understood.
    fn reads(&self) -> bool {
        !matches!(self.frames, Frames::Unread(..))
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
        Ok(Description {
            tracks,
            seconds,
            is_channel: is_channel(&sdp),
        })
    }

    /// Sleeps, unless the server ends the connection; takes what comes on it meanwhile.
    pub(super) async fn wait_until(&mut self, until: Instant) -> Result<(), ViewerError> {
        loop {
            // Nobody has asked for anything: a request of the server's, or interleaved data.
            while self.reads() && self.incoming("PLAY")?.is_some() {}
            let Ok(bytes) = timeout_at(until, self.receive()).await else {
                return Ok(());
            };
            if bytes? == 0 {
                return Err(ViewerError::Ended);
            }
        }
    }

    /// Waits for what comes next on the connection: how many bytes, 0 at its end.
    async fn receive(&mut self) -> Result<u64, ViewerError> {
        let bytes = match &self.frames {
            Frames::Unread(tally, unread) => {
                let taken = self.connection.discard().await;
                if let Ok(bytes) = &taken {
                    unread.count(tally, *bytes);
                }
                taken
            }
            _ => {
                let read = self.connection.receive(&mut self.received).await;
                read.map(|bytes| bytes as u64)
            }
        };
        let bytes = bytes.map_err(ViewerError::Connection)?;
        if let Frames::Followed(tally, _) = &self.frames {
            tally.inspected(bytes);
        }
        Ok(bytes)
    }

    /// Has one medium sent by a transport of that header.
    pub(super) async fn set_up(
        &mut self,
        track: &str,
        transport: &str,
    ) -> Result<Agreed, ViewerError> {
        let headers = [("Transport", transport)];
        let answer = self.ask("SETUP", track, &headers).await?;
        let session = answer.session_id();
        let (id, timeout_s) = session.ok_or(ViewerError::Garbled("SETUP"))?;
        self.dialogue.session = Some(id.to_owned());
        if let Some(seconds) = timeout_s {
            self.session_timeout = Duration::from_secs(seconds.clamp(2, 3600));
        }
        Ok(Agreed::of(&answer))
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

    /// Asks something about the whole of what is watched. Who reads nothing only says it.
    async fn control(
        &mut self,
        method: &'static str,
        headers: &[(&str, &str)],
    ) -> Result<(), ViewerError> {
        let url = self.url.clone();
        if self.reads() {
            return self.ask(method, &url, headers).await.map(drop);
        }
        self.say(method, &url, headers).await
    }

    async fn say(
        &mut self,
        method: &'static str,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<(), ViewerError> {
        let answering = self.answering.as_mut();
        // What is random of it protects the server, from nobody here.
        let authorization = answering.and_then(|it| it.authorization(method, url, "onrush"));
        let authorization = authorization.as_deref().map(|it| ("Authorization", it));
        let mut headers = headers.to_vec();
        headers.push(("User-Agent", "onrush-load"));
        headers.extend(authorization);
        let request = self.dialogue.request(method, url, &headers);
        let written = self.connection.write_all(request.as_bytes());
        let written = timeout(ANSWER_TIME_MAX, written).await;
        written
            .map_err(|_| ViewerError::Silent(method))?
            .map_err(ViewerError::Connection)
    }

    async fn ask(
        &mut self,
        method: &'static str,
        url: &str,
        headers: &[(&str, &str)],
    ) -> Result<Response, ViewerError> {
        let mut challenges_left = CHALLENGES_MAX;
        loop {
            self.say(method, url, headers).await?;
            let answer = timeout(ANSWER_TIME_MAX, self.answer(method)).await;
            let answer = answer.map_err(|_| ViewerError::Silent(method))??;
            match answer.status {
                200..300 => return Ok(answer),
                401 if challenges_left > 0 && self.is_challenged(&answer) => challenges_left -= 1,
                _ => return Err(refused(method, &answer)),
            }
        }
    }

    /// Whether there is another answer to that challenge than before.
    fn is_challenged(&mut self, answer: &Response) -> bool {
        let is_one = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("WWW-Authenticate");
        let headers = answer.headers.iter().filter(is_one);
        let challenges = headers.map(|(_, value)| value.as_str());
        let answering = self.answering.as_mut();
        answering.is_some_and(|answering| answering.challenged(challenges))
    }

    async fn answer(&mut self, method: &'static str) -> Result<Response, ViewerError> {
        loop {
            match self.incoming(method)? {
                Some(Some(response)) => return Ok(response),
                Some(None) => {}
                None => {
                    if self.receive().await? == 0 {
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
        if let Frames::Followed(_, on_frame) = &mut self.frames
            && let [b'$', channel, _, _, packet @ ..] = &mut self.received[..bytes]
        {
            on_frame(*channel, packet);
        }
        self.received.drain(..bytes);
        Ok(Some(response))
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignored => "Ignored",
            Self::Followed(..) => "Followed",
            Self::Unread(..) => "Unread",
        })
    }
}

/// What an answer says that grants nothing.
fn refused(method: &'static str, answer: &Response) -> ViewerError {
    let status = answer.status;
    let is_moved = matches!(status, 301 | 302 | 307);
    match answer.header("Location").filter(|_| is_moved) {
        None => ViewerError::Refused { method, status },
        Some(location) => ViewerError::Moved {
            method,
            status,
            location: location.to_owned(),
        },
    }
}

/// The media whose clock a description tells (RFC 4566; RFC 2326, appendix C.1.1).
fn tracks_of(sdp: &str, base: &str) -> Vec<Track> {
    let mut tracks: Vec<(Option<u32>, Option<&str>, Option<MasterKey>)> = Vec::new();
    for line in sdp.lines().map(str::trim) {
        if let Some(media) = line.strip_prefix("m=") {
            let format = media.split_whitespace().nth(3);
            // RFC 3551, table 5: the static video types all run at 90 kHz, and MP2T is 33.
            let is_static = format
                .and_then(|f| f.parse().ok())
                .is_some_and(|f: u8| (24..=34).contains(&f));
            tracks.push((is_static.then_some(90_000), None, None));
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
        } else if let Some(crypto) = line.strip_prefix("a=crypto:") {
            track.2 = track.2.take().or_else(|| parse_crypto_attribute(crypto));
        }
    }
    let url = |control: Option<&str>| match control {
        None | Some("*") => base.to_owned(),
        Some(url) if url.contains("://") => url.to_owned(),
        Some(relative) => format!("{}/{relative}", base.trim_end_matches('/')),
    };
    let known = tracks.into_iter().filter_map(|(clock_hz, control, key)| {
        let url = url(control);
        clock_hz.map(|clock_hz| Track { url, clock_hz, key })
    });
    known.take(TRACKS_MAX).collect()
}

/// What there is to be played, if the description tells (RFC 2326, appendix C.1.5).
fn range_of(sdp: &str) -> Option<&str> {
    let mut lines = sdp.lines().map(str::trim);
    lines.find_map(|line| line.strip_prefix("a=range:"))
}

/// Whether a channel is described. A film has a beginning, whether its end is known or not.
fn is_channel(sdp: &str) -> bool {
    range_of(sdp).is_none_or(|range| range.starts_with("npt=now"))
}

/// How long the film is, if the description tells.
fn seconds_of(sdp: &str) -> Option<f64> {
    let range = range_of(sdp)?.strip_prefix("npt=")?;
    let seconds = range.split_once('-')?.1.trim().parse().ok();
    seconds.filter(|&s: &f64| s.is_finite() && s > 0.0)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn who_is_not_let_in_says_so() {
        let answered = |method, status| ViewerError::Refused { method, status };
        assert!(answered("SETUP", 453).is_for_want_of_room());
        assert!(!answered("SETUP", 461).is_for_want_of_room());
        assert!(!answered("PLAY", 453).is_for_want_of_room());
    }

    /// Answers a viewer's requests with the heads that are given, one after the other, the last for
    /// ever; how many it was asked when the viewer has left.
    fn server(heads: Vec<String>) -> (Server, thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Nobody listens at the first.
        let addresses = vec![([127, 0, 0, 1], 1).into(), listener.local_addr().unwrap()];
        let serve = move || {
            let (stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let mut asked = 0;
            for _ in lines.filter(|line| line.is_empty()) {
                let head = &heads[asked.min(heads.len() - 1)];
                let answer = format!("RTSP/1.0 {head}\r\n\r\n");
                (&stream).write_all(answer.as_bytes()).unwrap();
                asked += 1;
            }
            asked
        };
        let tls = None;
        (Server { addresses, tls }, thread::spawn(serve))
    }

    /// Why a viewer cannot describe what a server has that answers so, and how often it asks.
    fn described(heads: Vec<String>) -> (ViewerError, usize) {
        let (server, asked) = server(heads);
        let user = ("anna".to_owned(), "secret".to_owned());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            let viewer = Viewer::connect(&server, "rtsp://h/x", Some(&user)).await;
            viewer.unwrap().describe().await.unwrap_err()
        });
        (error, asked.join().unwrap())
    }

    #[test]
    fn a_nonce_may_be_too_old_twice() {
        for stale in [2, 3] {
            let challenge = |number| {
                let is_stale = if number > 0 { ", stale=true" } else { "" };
                let digest = format!("Digest realm=\"x\", nonce=\"{number}\"{is_stale}");
                format!("401 Unauthorized\r\nWWW-Authenticate: {digest}")
            };
            let mut heads: Vec<_> = (0..=stale).map(challenge).collect();
            heads.push("404 Not Found".to_owned());
            let (error, asked) = described(heads);
            let status = if stale == 2 { 404 } else { 401 };
            assert_eq!(error.to_string(), format!("DESCRIBE was answered {status}"));
            assert_eq!(asked, 4);
        }
    }

    #[test]
    fn who_is_sent_on_is_told_where_to() {
        let location = "Location: rtsp://h/y";
        for (head, is_moved) in [
            (format!("302 Found\r\n{location}"), true),
            (format!("307 Temporary\r\n{location}"), true),
            (format!("404 Not Found\r\n{location}"), false),
            ("302 Found".to_owned(), false),
        ] {
            let (error, _) = described(vec![head.clone()]);
            match error {
                ViewerError::Moved { location, .. } => {
                    assert!(is_moved && location == "rtsp://h/y", "{head}");
                }
                ViewerError::Refused { .. } => assert!(!is_moved, "{head}"),
                other => panic!("{head}: {other}"),
            }
        }
    }

    #[test]
    fn a_film_has_a_length_or_not() {
        assert_eq!(seconds_of("v=0\r\na=range:npt=0-12.5\r\n"), Some(12.5));
        assert_eq!(seconds_of("a=range:npt=0-\r\n"), None);
        assert_eq!(seconds_of("a=range:npt=now-\r\n"), None);
        assert_eq!(seconds_of("v=0\r\n"), None);
    }

    #[test]
    fn a_channel_has_no_beginning() {
        for (range, is_live) in [
            ("a=range:npt=now-\r\n", true),
            ("a=tool:x\r\n", true),
            ("a=range:npt=0-12.5\r\n", false),
            ("a=range:npt=0-\r\n", false),
            ("a=range:clock=20260101T000000Z-\r\n", false),
        ] {
            assert_eq!(is_channel(&format!("v=0\r\n{range}")), is_live, "{range}");
        }
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
            key: None,
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

    #[test]
    fn the_key_of_each_medium_is_read() {
        let key = "1 AES_CM_128_HMAC_SHA1_80 inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR";
        let sdp = format!("m=video 0 RTP/SAVP 33\r\na=crypto:{key}\r\nm=video 0 RTP/AVP 33");
        let tracks = tracks_of(&sdp, "rtsp://h/x");
        assert_eq!(tracks[0].key, parse_crypto_attribute(key));
        assert!(tracks[0].key.is_some() && tracks[1].key.is_none());
    }
}
