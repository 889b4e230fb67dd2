//! The requests by which a source is pulled.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use onrush_wire::auth::Answering;
use onrush_wire::media;
use onrush_wire::route::relay::PULL_STEPS_MAX;
use onrush_wire::rtsp::{
    Channels, Incoming, Looked, NoResponse, Response, ServerRequest, frame_prefix, take_incoming,
};
use onrush_wire::sdp::{AnnouncedError, described};
use thiserror::Error;

use super::PUBLISHER_SILENCE_MAX;
use super::lease::PublishError;
use super::receiving::TrackSockets;
use super::refused::Refused;
use crate::channels::pull_url::{PullUrl, shown};
use crate::random::random;

/// A connection to a source.
#[derive(Debug)]
pub(super) struct PullClient {
    socket: TcpStream,
    input: Vec<u8>,
    looked: Looked,
    /// Where the source sends its clients on to, if it has said so and nobody was told yet.
    sent_on: Option<String>,
    /// Frames that came before an answer.
    early: VecDeque<(u8, Vec<u8>)>,
    url: String,
    /// What the tracks' URLs are relative to.
    base: String,
    answering: Option<Answering>,
    cseq: u32,
    session: Option<String>,
    /// How long the session lives without a sign of ours.
    timeout: Duration,
    asked: Instant,
    is_interleaved: bool,
    /// Of tracks that are, in their order.
    channels: Vec<Channels>,
    /// GET_PARAMETER keeps it alive; else OPTIONS does.
    knows_parameters: bool,
    /// Nothing has answered the last request that kept it alive.
    is_unanswered: bool,
}

/// A track of the source.
#[derive(Debug)]
pub(super) struct Track {
    pub(super) track: media::Track,
    url: String,
    /// It is described as `RTP/AVPF`.
    has_feedback: bool,
}

/// Why a source is not pulled any more.
#[derive(Debug, Error)]
pub(super) enum PullError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    NoResponse(#[from] NoResponse),
    #[error("its description: {0}")]
    Description(#[from] AnnouncedError),
    #[error("{0}")]
    Name(#[from] PublishError),
    #[error("{method} is answered {status} {reason}")]
    Refused {
        method: &'static str,
        status: u16,
        reason: String,
    },
    #[error("it is at {:?} by now", shown(.0))]
    Moved(String),
    #[error("node {0} has the channel by now")]
    Elsewhere(String),
    #[error("node {0} has given the channel up")]
    GivenUp(String),
    #[error("no node has the channel")]
    NoNode,
    #[error("node {0}: {1}")]
    AtNode(String, Box<Self>),
    #[error("it is sent on more often than {PULL_STEPS_MAX} times, or in a circle")]
    TooFar,
    #[error("nodes that take the channel from here are not let go")]
    Fed,
    #[error("it is let go, as was asked")]
    LetGo,
    #[error("user and password are refused")]
    LogIn,
    #[error("it wants a user and a password, and its URL has none")]
    NoUser,
    #[error("it takes no URL that is signed here; all nodes need the same keys for URLs")]
    NoKey,
    #[error("it wants a user in a way that is not known: {0:?}")]
    Challenge(String),
    #[error("its answer to {0} makes no sense")]
    Answer(&'static str),
    #[error("nothing has come for {PUBLISHER_SILENCE_MAX:?}{0}")]
    Silent(Refused),
    #[error("a bug of the server")]
    Bug,
}

impl PullClient {
    pub(super) fn connect(url: &PullUrl) -> Result<Self, PullError> {
        let addresses = (url.host.as_str(), url.port).to_socket_addrs()?;
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        let mut connected = None;
        for address in addresses.take(ADDRESSES_MAX) {
            match TcpStream::connect_timeout(&address, ANSWER_TIME_MAX) {
                Ok(socket) => {
                    connected = Some(socket);
                    break;
                }
                Err(error) => last = error,
            }
        }
        let socket = connected.ok_or(last)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(ANSWER_TIME_MAX))?;
        let answering = url.user.as_ref();
        Ok(Self {
            socket,
            input: Vec::new(),
            looked: Looked::default(),
            sent_on: None,
            early: VecDeque::new(),
            url: url.asked(),
            base: url.unsigned().to_owned(),
            answering: answering.map(|(user, password)| Answering::new(user, password)),
            cseq: 0,
            session: None,
            timeout: Duration::from_secs(60),
            asked: Instant::now(),
            is_interleaved: false,
            channels: Vec::new(),
            knows_parameters: true,
            is_unanswered: false,
        })
    }

    /// The tracks of what it has, as far as they can be carried.
    pub(super) fn describe(&mut self) -> Result<Vec<Track>, PullError> {
        let url = self.url.clone();
        let answer = self.ask(
            "DESCRIBE",
            &url,
            &[("Accept", "application/sdp".to_owned())],
        )?;
        let base = answer
            .header("Content-Base")
            .or_else(|| answer.header("Content-Location"));
        if let Some(base) = base.filter(|base| base.starts_with("rtsp://")) {
            self.base = base.to_owned();
        }
        let tracks = described(&answer.body)?;
        let base = self.base.trim_end_matches('/');
        let tracks = tracks.into_iter().map(|track| Track {
            url: match track.control {
                None => self.base.clone(),
                Some(control) if control.starts_with("rtsp://") => control,
                Some(control) => format!("{base}/{}", control.trim_start_matches('/')),
            },
            has_feedback: track.has_feedback,
            track: track.track,
        });
        Ok(tracks.collect())
    }

    /// Sets all tracks up: over TCP, or where that is refused over UDP, by these sockets.
    pub(super) fn set_up(&mut self, tracks: &[Track]) -> Result<Vec<TrackSockets>, PullError> {
        let mut sockets = Vec::new();
        self.is_interleaved = true;
        for (number, track) in tracks.iter().enumerate() {
            if self.is_interleaved {
                let channel = 2 * number;
                let way = format!("/TCP;unicast;interleaved={channel}-{}", channel + 1);
                match self.ask_transport(track, &way) {
                    Ok(answer) => {
                        self.add_channels(&answer, channel)?;
                        continue;
                    }
                    Err(PullError::Refused { status: 461, .. }) if number == 0 => {
                        self.is_interleaved = false;
                    }
                    Err(error) => return Err(error),
                }
            }
            sockets.push(self.set_up_ports(number, track)?);
        }
        Ok(sockets)
    }

    /// SETUP of a track that way by RTP/AVP, as nearly all clients ask, whatever is described; and
    /// where that is refused and the track has feedback (RFC 4585), by RTP/AVPF: GStreamer's server
    /// takes nothing else then.
    fn ask_transport(&mut self, track: &Track, way: &str) -> Result<Response, PullError> {
        let mut ask = |profile: &str| {
            let transport = format!("{profile}{way}");
            self.ask("SETUP", &track.url, &[("Transport", transport)])
        };
        match ask("RTP/AVP") {
            Err(PullError::Refused { status: 461, .. }) if track.has_feedback => ask("RTP/AVPF"),
            answer => answer,
        }
    }

    /// A source may choose other channels than those that it was asked for, and not another
    /// track's.
    fn add_channels(&mut self, answer: &Response, asked: usize) -> Result<(), PullError> {
        let transport = answer.header("Transport").unwrap_or("");
        let mut parts = transport.split(';').map(str::trim);
        let named = parts.find_map(|part| part.strip_prefix("interleaved="));
        let channels = Channels::parse(named.unwrap_or(&asked.to_string()));
        let is_free = |pair: &Channels| !self.channels.iter().any(|it| it.overlaps(*pair));
        let channels = channels.filter(is_free);
        self.channels
            .push(channels.ok_or(PullError::Answer("SETUP"))?);
        Ok(())
    }

    fn set_up_ports(&mut self, number: usize, track: &Track) -> Result<TrackSockets, PullError> {
        let (local, peer) = (self.socket.local_addr()?, self.socket.peer_addr()?);
        let [rtp, rtcp] = pair(local)?;
        let port = rtp.local_addr()?.port();
        let way = format!(";unicast;client_port={port}-{}", port + 1);
        let answer = self.ask_transport(track, &way)?;
        let ports = answer.header("Transport").and_then(|value| {
            let mut parts = value.split(';');
            let ports = parts.find_map(|part| part.trim().strip_prefix("server_port="))?;
            let (rtp, rtcp) = ports.split_once('-').unwrap_or((ports, ""));
            let rtp = rtp.parse::<u16>().ok()?;
            Some([rtp, rtcp.parse().ok().or_else(|| rtp.checked_add(1))?])
        });
        if let Some([rtp_port, rtcp_port]) = ports {
            for (socket, port) in [(&rtp, rtp_port), (&rtcp, rtcp_port)] {
                socket.connect(SocketAddr::new(peer.ip(), port))?;
                // Opens firewalls on the way; receivers pass over what is no packet.
                drop(socket.send(&[]));
            }
        }
        Ok(TrackSockets {
            track: number,
            rtp,
            rtcp,
            // A source need not say from which ports it sends (RFC 2326, section 12.39).
            sender: ports.is_none().then(|| peer.ip().to_canonical()),
        })
    }

    pub(super) fn play(&mut self) -> Result<(), PullError> {
        let base = self.base.clone();
        let range = ("Range", "npt=0.000-".to_owned());
        self.ask("PLAY", &base, &[range]).map(drop)
    }

    /// Says goodbye, and does not wait for the answer.
    pub(super) fn tear_down(&mut self) {
        let base = self.base.clone();
        drop(self.send("TEARDOWN", &base, &[]));
    }

    pub(super) const fn is_interleaved(&self) -> bool {
        self.is_interleaved
    }

    /// Gives the frames that come within `time` to `take`, with their track and whether they are
    /// reports, if they are of a track; bytes between that are none are an empty one of no track.
    /// Returns once some have come, and where the source sends its clients on to, when it says so
    /// (REDIRECT, RFC 2326, section 10.10).
    pub(super) fn receive(
        &mut self,
        time: Duration,
        mut take: impl FnMut(Option<(u8, bool)>, Vec<u8>),
    ) -> Result<Option<String>, PullError> {
        for (channel, packet) in self.early.drain(..) {
            take(place_of(&self.channels, channel), packet);
        }
        self.read(time)?;
        while let Some(incoming) = self.take_incoming()? {
            self.is_unanswered &= !matches!(incoming, Incoming::Response(_));
            match incoming {
                Incoming::Frame(frame) => {
                    take(place_of(&self.channels, frame.channel), frame.packet);
                }
                Incoming::Stray(_) => take(None, Vec::new()),
                // To a request that kept it alive.
                Incoming::Response(answer) if answer.status == 401 => self.renew(&answer),
                Incoming::Response(answer) if answer.status >= 400 => {
                    self.parameters_refused();
                    if answer.status == 454 {
                        return Err(refused("keeping alive", &answer));
                    }
                }
                Incoming::Request(request) => self.answer_to(&request)?,
                Incoming::Response(_) => {}
            }
        }
        Ok(self.sent_on.take())
    }

    fn take_incoming(&mut self) -> Result<Option<Incoming>, NoResponse> {
        take_incoming(&mut self.input, &self.channels, &mut self.looked)
    }

    /// Answers a request of the source's: some cameras ask whether somebody is still there.
    fn answer_to(&mut self, request: &ServerRequest) -> io::Result<()> {
        // Without a place it means that the session will end, which we shall see.
        let location = request.header("Location");
        if let Some(location) = location.filter(|_| request.method == "REDIRECT") {
            self.sent_on = Some(location.to_owned());
        }
        match request.answer() {
            Some(answer) => self.socket.write_all(answer.as_bytes()),
            None => Ok(()),
        }
    }

    /// Shows that somebody is here, if it is time; the answer comes among the frames.
    pub(super) fn keep_alive(&mut self) -> Result<(), PullError> {
        // Some cameras do not answer at all what they do not know. What they do know is to come
        // before the session ends.
        let wait = match self.knows_parameters && self.is_unanswered {
            true => ANSWER_TIME_MAX.min(self.timeout / 4),
            false => self.timeout / 2,
        };
        if self.asked.elapsed() < wait {
            return Ok(());
        }
        let base = self.base.clone();
        self.knows_parameters &= !self.is_unanswered;
        self.is_unanswered = true;
        let method = match self.knows_parameters {
            true => "GET_PARAMETER",
            false => "OPTIONS",
        };
        Ok(self.send(method, &base, &[])?)
    }

    /// OPTIONS goes at once instead: half of the time that the session lives has passed, and a
    /// request that was refused may count for nothing.
    fn parameters_refused(&mut self) {
        if std::mem::replace(&mut self.knows_parameters, false) {
            let sooner = self.asked.checked_sub(self.timeout / 2);
            self.asked = sooner.unwrap_or(self.asked);
        }
    }

    /// The nonce of a request that kept the session alive was too old: the next one comes sooner,
    /// with the new one.
    fn renew(&mut self, answer: &Response) {
        let challenges = answer.headers_named("WWW-Authenticate");
        match &mut self.answering {
            Some(answering) => {
                let _is_better = answering.challenged(challenges);
            }
            None => self.knows_parameters = false,
        }
        let sooner = self.asked.checked_sub(self.timeout / 4);
        self.asked = sooner.unwrap_or(self.asked);
    }

    /// Sends a receiver report of a track as a frame.
    pub(super) fn send_report(&mut self, track: usize, report: &[u8]) -> Result<(), PullError> {
        let Some(channel) = self.channels.get(track).map(|channels| channels.rtcp) else {
            return Ok(());
        };
        let bytes = u16::try_from(report.len()).unwrap_or(u16::MAX);
        let frame = [&frame_prefix(channel, bytes)[..], report].concat();
        Ok(self.socket.write_all(&frame)?)
    }

    /// Asks, and waits for success.
    fn ask(
        &mut self,
        method: &'static str,
        url: &str,
        headers: &[(&str, String)],
    ) -> Result<Response, PullError> {
        let mut challenges_left = CHALLENGES_MAX;
        loop {
            self.send(method, url, headers)?;
            let answer = self.answer()?;
            if answer.status == 401 {
                let challenges = || answer.headers_named("WWW-Authenticate");
                let answering = self.answering.as_mut().ok_or(PullError::NoUser)?;
                if challenges_left == 0 || !answering.challenged(challenges()) {
                    let unknown = Answering::not_understood(challenges());
                    return Err(unknown.map_or(PullError::LogIn, PullError::Challenge));
                }
                challenges_left -= 1;
                continue;
            }
            let is_moved = matches!(answer.status, 301 | 302 | 303 | 305);
            if let Some(location) = answer.header("Location").filter(|_| is_moved) {
                return Err(PullError::Moved(location.to_owned()));
            }
            if !(200..300).contains(&answer.status) {
                return Err(refused(method, &answer));
            }
            if let Some(session) = answer.header("Session") {
                let mut parts = session.split(';').map(str::trim);
                self.session = parts.next().map(str::to_owned);
                let timeout = parts.find_map(|part| part.strip_prefix("timeout="));
                let timeout = timeout.and_then(|seconds| seconds.parse().ok());
                // Whatever it says, we are not to ask many times a second.
                let timeout = timeout.map(|seconds: u64| seconds.clamp(4, 3600));
                self.timeout = timeout.map_or(self.timeout, Duration::from_secs);
            }
            return Ok(answer);
        }
    }

    fn send(&mut self, method: &str, url: &str, headers: &[(&str, String)]) -> io::Result<()> {
        self.cseq += 1;
        self.asked = Instant::now();
        let mut request = format!("{method} {url} RTSP/1.0\r\nCSeq: {}\r\n", self.cseq);
        request += concat!("User-Agent: onrush/", env!("CARGO_PKG_VERSION"), "\r\n");
        if let Some(session) = &self.session {
            request += &format!("Session: {session}\r\n");
        }
        let cnonce = format!("{:016x}", u64::from_ne_bytes(random()));
        let answering = self.answering.as_mut();
        if let Some(text) = answering.and_then(|it| it.authorization(method, url, &cnonce)) {
            request += &format!("Authorization: {text}\r\n");
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += "\r\n";
        self.socket.write_all(request.as_bytes())
    }

    /// The answer to the last request. Frames that come before it are kept, within a bound.
    fn answer(&mut self) -> Result<Response, PullError> {
        let give_up = Instant::now() + ANSWER_TIME_MAX;
        loop {
            while let Some(incoming) = self.take_incoming()? {
                match incoming {
                    Incoming::Response(answer) => {
                        let is_ours = answer.header("CSeq") == Some(&self.cseq.to_string());
                        // Cameras that do not say it answer in order.
                        if is_ours || answer.header("CSeq").is_none() {
                            return Ok(answer);
                        }
                    }
                    Incoming::Frame(frame) if self.early.len() < EARLY_FRAMES_MAX => {
                        self.early.push_back((frame.channel, frame.packet));
                    }
                    Incoming::Request(request) => self.answer_to(&request)?,
                    Incoming::Frame(_) | Incoming::Stray(_) => {}
                }
            }
            if Instant::now() >= give_up {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            self.read(Duration::from_millis(200))?;
        }
    }

    /// Reads what comes within `time`.
    fn read(&mut self, time: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(time))?;
        let mut bytes = [0; 16 << 10];
        match self.socket.read(&mut bytes) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.input.extend_from_slice(&bytes[..read]);
                Ok(())
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            },
        }
    }
}

fn refused(method: &'static str, answer: &Response) -> PullError {
    PullError::Refused {
        method,
        status: answer.status,
        reason: answer.reason.clone(),
    }
}

/// The track whose channel that is, and whether its reports are on it.
fn place_of(channels: &[Channels], channel: u8) -> Option<(u8, bool)> {
    let is_of = |it: &Channels| [it.rtp, it.rtcp].contains(&channel);
    let track = channels.iter().position(is_of)?;
    Some((u8::try_from(track).ok()?, channels[track].rtcp == channel))
}

/// Two neighbouring ports.
fn pair(mut local: SocketAddr) -> io::Result<[UdpSocket; 2]> {
    let mut last = io::Error::from(ErrorKind::AddrInUse);
    for _ in 0..PAIR_ATTEMPTS {
        local.set_port(0);
        let rtp = UdpSocket::bind(local)?;
        let port = rtp.local_addr()?.port();
        if port % 2 == 1 || port == u16::MAX {
            continue;
        }
        local.set_port(port + 1);
        match UdpSocket::bind(local) {
            Ok(rtcp) => return Ok([rtp, rtcp]),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// How long an answer, or a connection, is waited for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Addresses of a name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Challenges that a request answers: the first, and two that say that the nonce was too old. A
/// source that says so for ever would keep the thread from ending.
const CHALLENGES_MAX: u32 = 3;

/// Frames that are kept while an answer is waited for.
const EARLY_FRAMES_MAX: usize = 256;

/// Attempts to find two neighbouring ports: half of all are odd.
const PAIR_ATTEMPTS: usize = 32;

#[cfg(test)]
mod tests;
