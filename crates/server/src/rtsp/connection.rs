//! One connection: requests in, what they ask for carried out, replies out, one after the other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use onrush_wire::rtsp::{
    self, Decoder, Intent, Known, Range, Reply, Request, RtpInfo, SessionId, State, StatusCode,
    Transport, headers,
};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, info};

use super::flow::Flow;
use super::presentation::Presentation;
use super::session::{End, Session, Start};
use super::{Control, Escaped, random};

/// Says that nothing more will come, and waits for the client to say so too, for a second at the most: what
/// it has sent unread would make the kernel reset the connection, and the last reply be lost.
pub(crate) async fn close(socket: &mut TcpStream) -> io::Result<()> {
    socket.shutdown().await?;
    let drained = async {
        loop {
            socket.readable().await?;
            match socket.try_read(&mut [0; 512]) {
                Ok(0) => return Ok(()),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
    };
    timeout(CLOSE_TIME_MAX, drained).await.unwrap_or(Ok(()))
}

const CLOSE_TIME_MAX: Duration = Duration::from_secs(1);

/// One connection, and what has come on it.
pub(super) struct Connection {
    control: Rc<Control>,
    socket: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    decoder: Decoder,
    /// Those it has used.
    sessions: Vec<SessionId>,
}

/// The last reply on a connection, and the number of the request it answers.
type Farewell = (Reply, Option<u32>);

impl Connection {
    /// Takes over a connection that was accepted.
    ///
    /// # Errors
    ///
    /// If it is broken already.
    pub(super) fn new(
        control: &Rc<Control>,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> io::Result<Self> {
        // A response is written whole, so there is nothing to wait for and join with it.
        socket.set_nodelay(true)?;
        let local = socket.local_addr()?;
        let limits = &control.config.limits;
        let decoder = Decoder::new(rtsp::Limits {
            head_bytes_max: limits.request_head_bytes_max,
            headers_max: limits.request_headers_max,
            body_bytes_max: limits.request_body_bytes_max,
        });
        Ok(Self {
            control: Rc::clone(control),
            socket,
            peer,
            local,
            decoder,
            sessions: Vec::new(),
        })
    }

    /// Serves it to its end.
    ///
    /// # Errors
    ///
    /// What broke it. Its sessions live on.
    pub(super) async fn serve(&mut self) -> io::Result<()> {
        // What there is to do lies apart from the connection, which mostly waits and then is small.
        while let Some(received) = self.receive().await? {
            if Box::pin(self.respond(received)).await? {
                break;
            }
        }
        Box::pin(close(&mut self.socket)).await
    }

    /// The next request; `None` once the client has closed or has been silent for too long.
    async fn receive(&mut self) -> io::Result<Option<Result<Box<Request>, Box<Farewell>>>> {
        let limits = self.control.config.limits;
        let mut waiting_since = Instant::now();
        let mut is_begun = false;
        loop {
            match self.decoder.next_request() {
                Some(Ok(request)) => return Ok(Some(Ok(Box::new(request)))),
                Some(Err(refused)) => {
                    return Ok(Some(Err(Box::new((refused.reply(), refused.cseq)))));
                }
                None => {}
            }
            if self.decoder.is_mid_request() != is_begun {
                is_begun = !is_begun;
                waiting_since = Instant::now();
            }
            let time_max = if is_begun {
                limits.request_time_max
            } else {
                limits.idle_time_max
            };
            match timeout_at(waiting_since + time_max, self.socket.readable()).await {
                Ok(ready) => ready?,
                Err(_) if is_begun => {
                    let note = "the rest of the request did not come";
                    let reply = Reply::refusal(StatusCode::RequestTimeout, note);
                    return Ok(Some(Err(Box::new((reply, None)))));
                }
                // Whoever watches a film says nothing on this connection; its session has a clock.
                Err(_) if self.has_sessions() => waiting_since = Instant::now(),
                Err(_) => return Ok(None),
            }
            let mut bytes = [0; 4096];
            match self.socket.try_read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(read) => self.decoder.push(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers what has come. Whether that was the last.
    async fn respond(&mut self, received: Result<Box<Request>, Box<Farewell>>) -> io::Result<bool> {
        match received {
            Ok(request) => {
                self.answer(&request).await?;
                let closes = |value: &str| value.trim().eq_ignore_ascii_case("close");
                Ok(request.headers_named("Connection").any(closes))
            }
            Err(farewell) => {
                let (reply, cseq) = *farewell;
                let (peer, status) = (self.peer, reply.status());
                debug!("{peer}: {status} and the end of the connection");
                self.write(&reply, cseq).await?;
                Ok(true)
            }
        }
    }

    /// Carries a request out and answers it.
    async fn answer(&mut self, request: &Request) -> io::Result<()> {
        self.control.ready().await;
        let session = self.session_of(request);
        // Held until the answer is written.
        let _turn = match &session {
            Some(session) => Some(session.turn.lock().await),
            None => None,
        };
        let intent = Intent::of(request, self.peer_ip(), |_| {
            let session = session
                .as_ref()
                .filter(|session| session.state() != State::Init)?;
            let (state, path) = (session.state(), session.path().to_owned());
            Some(Known {
                handle: Rc::clone(session),
                state,
                path,
            })
        });
        let mut start = None;
        let reply = match intent {
            Ok(Intent::Play { session, range }) => match play(request, &session, range).await {
                Ok((reply, prepared)) => {
                    start = prepared.map(|start| (Rc::clone(&session), start));
                    Ok(self.of_session(reply, &session))
                }
                Err(refusal) => Err(refusal),
            },
            Ok(intent) => self.carry_out(request, intent).await,
            Err(refusal) => Err(refusal),
        };
        let reply = reply.unwrap_or_else(|refusal| refusal);
        self.control.statistics.count_answer(reply.status());
        let (method, uri) = (<&str>::from(&request.method), Escaped(&request.uri));
        debug!(
            "{}: {} {uri}: {}",
            self.peer,
            Escaped(method),
            reply.status()
        );
        self.write(&reply, request.cseq()).await?;
        if let Some((session, start)) = start {
            session.start(start, self.control.path_name());
        }
        Ok(())
    }

    async fn carry_out(
        &mut self,
        request: &Request,
        intent: Intent<Rc<Session>>,
    ) -> Result<Reply, Reply> {
        match intent {
            Intent::Options { session } => Ok(self.of_any(Reply::options(), session)),
            Intent::KeepAlive { session } => Ok(self.of_any(Reply::ok(), session)),
            Intent::Describe { path } => self.describe(request, &path).await,
            Intent::Setup {
                path,
                transport,
                session,
            } => self.set_up(request, path, &transport, session).await,
            Intent::Pause { session } => {
                session.pause().await?;
                Ok(self.of_session(Reply::ok(), &session))
            }
            Intent::Teardown { session } => {
                session.end(End::Teardown);
                session.over().await;
                Ok(Reply::ok())
            }
            Intent::Play { .. } => unreachable!("PLAY is carried out before and after its answer"),
        }
    }

    async fn describe(&self, request: &Request, path: &str) -> Result<Reply, Reply> {
        let presentation = Presentation::open(&self.control, path).await?;
        let description = presentation.describe(self.local.ip())?;
        let url = request
            .uri
            .split(['?', '#'])
            .next()
            .unwrap_or("")
            .trim_end_matches('/');
        // A client that asked with a bare path gets a base that is none.
        let base = if url.starts_with('/') {
            format!("rtsp://{}{url}/", self.local)
        } else {
            format!("{url}/")
        };
        Ok(Reply::description(&base, description))
    }

    async fn set_up(
        &mut self,
        request: &Request,
        path: String,
        transport: &Transport,
        session: Option<Rc<Session>>,
    ) -> Result<Reply, Reply> {
        let control = &Rc::clone(&self.control);
        let presentation = match &session {
            Some(session) => session.presentation().clone(),
            None => Presentation::open(control, &path).await?,
        };
        if control.stopping.get() {
            let note = "the server stops";
            return Err(Reply::refusal(StatusCode::ServiceUnavailable, note));
        }
        if let Some(note) = control.full().filter(|_| session.is_none()) {
            info!("a session is refused: {note}");
            return Err(Reply::refusal(StatusCode::NotEnoughBandwidth, &note));
        }
        let flow = Flow::open(control, &presentation, transport, self.local, self.peer)?;
        let answer = transport.answer(flow.served);
        let session = if let Some(session) = session {
            session.replace(flow, &request.uri, control.path_name());
            session
        } else {
            let id = SessionId::from_random(random());
            let session = Session::new(id, self.peer_ip(), path, presentation, flow, &request.uri);
            control.add(&session);
            self.join(&session);
            session
        };
        Ok(self.of_session(Reply::ok().with(headers::TRANSPORT, answer), &session))
    }

    /// The session that a request names, if it exists and may be used from here. Naming it is a sign of
    /// life.
    fn session_of(&mut self, request: &Request) -> Option<Rc<Session>> {
        let id = request.header("Session").and_then(SessionId::parse)?;
        let session = self.control.session(id, self.peer_ip())?;
        session.touch();
        self.join(&session);
        Some(session)
    }

    fn join(&mut self, session: &Session) {
        if self.sessions.contains(&session.id()) {
            return;
        }
        // So that it does not remember every session that ever was.
        let existing = self.control.sessions.borrow();
        self.sessions.retain(|id| existing.contains_key(id));
        // Nearly always the only one.
        self.sessions.reserve_exact(1);
        self.sessions.push(session.id());
        session.join();
    }

    fn has_sessions(&self) -> bool {
        let sessions = self.control.sessions.borrow();
        self.sessions.iter().any(|id| sessions.contains_key(id))
    }

    fn of_any(&self, reply: Reply, session: Option<Rc<Session>>) -> Reply {
        match session {
            Some(session) => self.of_session(reply, &session),
            None => reply,
        }
    }

    fn of_session(&self, reply: Reply, session: &Session) -> Reply {
        reply.with_session(session.id(), self.control.config.limits.session_timeout)
    }

    /// Writes a reply whole, or fails: a client that does not read what it asked for is not waited for
    /// longer than one that does not write what it began.
    async fn write(&mut self, reply: &Reply, cseq: Option<u32>) -> io::Result<()> {
        let bytes = reply.to_bytes(cseq, SystemTime::now());
        timeout(
            self.control.config.limits.request_time_max,
            self.socket.write_all(&bytes),
        )
        .await?
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn peer_ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let sessions = self.control.sessions.borrow();
        for session in self.sessions.iter().filter_map(|id| sessions.get(id)) {
            session.leave();
        }
    }
}

async fn play(
    request: &Request,
    session: &Session,
    range: Option<Range>,
) -> Result<(Reply, Option<Start>), Reply> {
    let start = session.prepare(range).await?;
    let Some(media) = session.media() else {
        return Ok((Reply::playing_live(request), start));
    };
    let (span, info) = match start {
        Some(Start::Stored {
            span,
            sequence,
            timestamp,
            ..
        }) => (span, Some((sequence, timestamp))),
        _ => (session.rest(), None),
    };
    let url = session.track_url();
    let info = info.map(|(sequence, timestamp)| RtpInfo {
        url: &url,
        sequence,
        timestamp,
    });
    let end_ns = media.index().duration_ns();
    Ok((Reply::playing(request, span, end_ns, info), start))
}
