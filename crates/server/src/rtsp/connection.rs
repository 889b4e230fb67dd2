//! One connection: requests in, what they ask for carried out, replies out, one after the other.

mod carriage;
mod describing;
mod playing;
mod publishing;
mod receiving;
mod redirecting;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use onrush_wire::route::Trace;
use onrush_wire::rtsp::{
    self, Decoder, Intent, Known, LowerTransport, Reply, Request, SessionId, SrtpParameter, State,
    StatusCode, Transport, TunnelSide, headers,
};
use tokio::time::timeout;
use tracing::debug;

use super::authorize::{GrantedPath, authorize};
use super::choosing::choose;
use super::client::Client;
use super::connection_slot::ConnectionSlot;
use super::groups;
use super::interleaving::Interleaving;
use super::planning::plan_for;
use super::presentation::{Presentation, find_track};
use super::publisher::Publisher;
use super::refusals::log_refused;
use super::session::{End, Session};
use super::srtp::AgreedKeys;
use super::track_session::TrackSession;
use super::tunnel::Tunnel;
use super::{Control, log_panic};
use crate::byte_stream::ByteStream;
use crate::channels::pull_url::shown;
use crate::cluster::Feed;
use crate::drain::Redirection;
use crate::peer_log::Escaped;
use crate::refusals::REFUSALS;

/// One connection, and what has come on it.
pub(super) struct Connection {
    place: ConnectionSlot,
    socket: ByteStream,
    /// While there is a request that has not come whole. Who watches says nothing for long, and
    /// keeps no memory for it.
    decoder: Option<Box<Decoder>>,
    /// Where it is read in its place, if it is the GET of a tunnel.
    tunnel: Option<Box<Tunnel>>,
    /// What it carries besides, once it has been asked to.
    interleaving: Option<Rc<Interleaving>>,
    /// The numbers of those it has used.
    sessions: Box<[u64]>,
    /// What its URL was signed for.
    granted: GrantedPath,
    /// What it publishes.
    publisher: Option<Box<Publisher>>,
    /// Its client was described a film that is played here: that it is set up elsewhere is not
    /// what it has been told.
    is_described: bool,
    /// What another node has to do with the client, if what it was described last says that.
    of_node: Option<Box<OfNode>>,
}

/// What another node has to do with a client.
struct OfNode {
    /// What it called the client: its next URLs are made of the description's, which has no query.
    trace: Option<Trace>,
    /// It is the client, and takes this of a channel.
    feed: Option<Feed>,
}

/// A request, or the last reply on a connection, and the number of the request it answers.
enum Received {
    Request(Box<Request>),
    Refused(Box<(Reply, Option<u32>)>),
    /// One side of a tunnel, and what came behind its head.
    Tunnel(Box<(TunnelSide, Vec<u8>)>),
    /// Nothing, but a publisher is to be told how its packets arrive.
    ReportDue,
    /// Nothing, but its client is to be sent on to another server.
    Redirected(Arc<Redirection>),
}

/// What follows on what was received.
enum Next {
    Receive,
    End,
    /// It is the POST of a tunnel: with what came behind its head it goes to the GET.
    HandOver(Box<(TunnelSide, Vec<u8>)>),
}

impl Connection {
    /// Takes over a connection that was accepted.
    ///
    /// # Errors
    ///
    /// If it is broken already.
    pub(super) fn new(place: ConnectionSlot, socket: ByteStream) -> io::Result<Self> {
        // A response is written whole, so there is nothing to wait for and join with it.
        socket.socket().set_nodelay(true)?;
        Ok(Self {
            place,
            socket,
            decoder: None,
            tunnel: None,
            interleaving: None,
            sessions: Box::default(),
            granted: None,
            publisher: None,
            is_described: false,
            of_node: None,
        })
    }

    /// Serves it to its end. Its sessions live on.
    #[allow(
        clippy::manual_async_fn,
        reason = "an `async fn` keeps what it is given twice"
    )]
    pub(super) fn serve(mut self) -> impl Future<Output = ()> {
        async move {
            loop {
                let received = self.receive().await;
                // What there is to do lies apart from the connection, which mostly waits and then
                // is small.
                let next = Box::pin(self.act(received)).await;
                let last = match next {
                    Next::Receive => continue,
                    Next::End => break,
                    Next::HandOver(posted) => Box::pin(self.hand_over(posted)),
                };
                return last.await;
            }
        }
    }

    /// Answers what has come. Whether that was the last, and the connection is closed.
    async fn act(&mut self, received: io::Result<Option<Received>>) -> Next {
        let done = match received {
            Ok(Some(received)) => match self.respond(received).await {
                Ok(Next::End) => Ok(()),
                Ok(next) => return next,
                Err(error) => Err(error),
            },
            received => received.map(|_| ()),
        };
        let done = match done {
            Ok(()) => self.close().await,
            Err(error) => Err(error),
        };
        if let Err(error) = done {
            debug!("connection of {}: {error}", self.peer());
        }
        Next::End
    }

    /// Answers a request.
    async fn respond(&mut self, received: Received) -> io::Result<Next> {
        match received {
            Received::Tunnel(opened) => self.enter_tunnel(*opened).await,
            Received::ReportDue => {
                self.report_to_publisher().await?;
                Ok(Next::Receive)
            }
            Received::Redirected(to) => {
                self.redirect(&to).await?;
                Ok(Next::Receive)
            }
            Received::Request(request) => {
                self.answer(&request).await?;
                let closes = |value: &str| value.trim().eq_ignore_ascii_case("close");
                Ok(match request.headers_named("Connection").any(closes) {
                    true => Next::End,
                    false => Next::Receive,
                })
            }
            Received::Refused(farewell) => {
                let (reply, cseq) = *farewell;
                let (peer, status) = (self.peer(), reply.status());
                debug!("{peer}: {status} and the end of the connection");
                self.write(&reply, cseq).await?;
                Ok(Next::End)
            }
        }
    }

    /// Carries a request out and answers it.
    async fn answer(&mut self, request: &Request) -> io::Result<()> {
        self.control().ready().await;
        if let Some(reply) = self.moved(request) {
            return self.send(request, &reply).await;
        }
        if let Some(answered) = self.publish(request).await {
            let reply = answered.unwrap_or_else(|refusal| refusal);
            return self.send(request, &reply).await;
        }
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
            let (state, path) = (session.state(), session.presentation().path());
            Some(Known {
                handle: Rc::clone(session),
                state,
                path,
            })
        });
        let intent = match intent {
            Ok(intent) => {
                let peer = (self.place.ip(), self.is_encrypted());
                let control = &self.place.control;
                authorize(control, peer, &mut self.granted, (request, &intent))
                    .await
                    .map(|()| intent)
            }
            refused => refused,
        };
        let mut start = None;
        let reply = match intent {
            Ok(Intent::Play {
                session,
                range,
                scale,
                speed,
            }) => match playing::play(request, &session, range, (scale, speed)).await {
                Ok((reply, prepared)) => {
                    start = prepared.map(|start| (Rc::clone(&session), start));
                    Ok(self.of_session(reply, &session))
                }
                Err(refusal) => Err(refusal),
            },
            Ok(intent) => self.apply(request, intent).await,
            Err(refusal) => Err(refusal),
        };
        let reply = reply.unwrap_or_else(|refusal| refusal);
        self.send(request, &reply).await?;
        if let Some((session, start)) = start {
            session.start(start);
        }
        Ok(())
    }

    /// Answers a request, and says so.
    async fn send(&mut self, request: &Request, reply: &Reply) -> io::Result<()> {
        self.control().statistics.count_answer(reply.status());
        self.note(request, reply);
        self.write(reply, request.cseq()).await
    }

    /// Writes down what a request is answered. Its query may be all that says who asks, as may its
    /// user: neither is shown.
    fn note(&self, request: &Request, reply: &Reply) {
        let (peer, status) = (self.peer(), reply.status());
        if status == u16::from(StatusCode::NotEnoughBandwidth) {
            let film = Escaped(&shown(&request.uri)).to_string();
            REFUSALS.note(peer.ip(), &film, &reply.reason());
        }
        let method = Escaped((&request.method).into());
        debug!(
            "{peer}: {method} {}: {status}",
            Escaped(&shown(&request.uri))
        );
    }

    async fn apply(
        &mut self,
        request: &Request,
        intent: Intent<Rc<Session>>,
    ) -> Result<Reply, Reply> {
        match intent {
            Intent::Options { session } => Ok(self.of_any(Reply::options(), session)),
            Intent::KeepAlive { session } => Ok(self.of_any(Reply::ok(), session)),
            Intent::Describe { path, srtp } => {
                // The one of before first: a node comes by one way.
                self.of_node = None;
                self.of_node = self.of_node(request, &path)?.map(Box::new);
                let described = self.describe(request, &path, srtp).await;
                self.is_described |= described.is_ok();
                self.of_node.take_if(|_| described.is_err());
                described
            }
            Intent::Setup {
                path,
                srtp,
                transports,
                session,
                track,
            } => {
                let (of, transports) = ((path.as_str(), track), (&*transports, srtp));
                let reply = self.set_up(request, of, transports, session).await?;
                // Who names no track makes its next URLs from this: VLC appends `stream=0`.
                Ok(match track {
                    None => reply.with(headers::CONTENT_BASE, self.base(request)),
                    Some(_) => reply,
                })
            }
            Intent::Pause { session, at } => {
                let at = at
                    .map(|at| at.in_npt(session.presentation().units()))
                    .transpose();
                match at?.and_then(|at| at.start_ns) {
                    None => session.pause().await?,
                    Some(at_ns) => session.pause_at(at_ns)?,
                }
                Ok(self.of_session(Reply::ok(), &session))
            }
            Intent::Teardown { session } => {
                if let Some(ending) = session.end(End::Teardown) {
                    log_panic("ending a session", ending.await);
                }
                Ok(Reply::ok())
            }
            Intent::Play { .. } => unreachable!("PLAY is carried out before and after its answer"),
        }
    }

    /// The URL that those of a presentation's parts are relative to.
    fn base(&self, request: &Request) -> String {
        format!("{}/", self.absolute(rtsp::base(&request.uri)))
    }

    /// A URL as a client spelt it, or where it has asked with a bare path, one of this address.
    fn absolute(&self, url: String) -> String {
        if !url.starts_with('/') {
            return url;
        }
        let scheme = if self.is_encrypted() { "rtsps" } else { "rtsp" };
        format!("{scheme}://{}{url}", self.socket.local_in_url())
    }

    async fn set_up(
        &mut self,
        request: &Request,
        (path, track): (&str, Option<usize>),
        (transports, srtp): (&[Transport], Option<SrtpParameter>),
        session: Option<Rc<Session>>,
    ) -> Result<Reply, Reply> {
        let control = &Rc::clone(self.control());
        let presentation = match &session {
            Some(session) => session.presentation().clone(),
            None => Presentation::open(control, path).await?,
        };
        // Behind what is waited for: what is kept over that, each connection has room for.
        let blocksize = request.blocksize()?;
        let track = find_track(presentation.tracks(), track)?;
        let allows_udp = !self.is_encrypted() || control.config.tls.allows_udp;
        let offered = (&presentation, session.is_none());
        let between = (self.socket.local(), self.peer());
        let (way, srtp) = ((between.0, allows_udp), self.wish(srtp));
        let transport = choose(control, offered, transports, (way, srtp))?;
        let client = Client::new(between, self.interleaving.clone(), None);
        let client = client.with_blocksize(blocksize);
        let way = (transport, srtp.is_for(transport));
        let who = (&client, self.socket.socket());
        Box::pin(plan_for(control, (&presentation, track), way, who)).await;
        if session.as_ref().is_some_and(|it| it.state() == State::Init) {
            let note = "it has ended meanwhile";
            return Err(Reply::refusal(StatusCode::SessionNotFound, note));
        }
        if control.stopping.get() {
            let note = "the server stops";
            return Err(Reply::refusal(StatusCode::ServiceUnavailable, note));
        }
        let is_node = self.feeds().any(|feed| feed.is_of(path));
        let refused = control.refuses(self.peer_ip(), is_node);
        if let Some(note) = refused.filter(|_| session.is_none()) {
            log_refused(&note);
            return Err(Reply::refusal(StatusCode::NotEnoughBandwidth, &note));
        }
        let presentation = match transport.lower {
            LowerTransport::Multicast if session.is_none() => {
                Presentation::Multicast(groups::join(control, &presentation, between.0)?)
            }
            _ => presentation,
        };
        let of = (&presentation, track);
        let keys = srtp.agree(&control.secret, of, (transport, request))?;
        let client = self.client((transport, between), keys)?;
        let client = client.with_blocksize(blocksize);
        let track = TrackSession::open(control, of, transport, &request.uri, &client)?;
        track.set_trace(Trace::of(&request.uri).or_else(|| self.of_node.as_ref()?.trace));
        let served = track.served();
        let mut reply = Reply::ok().with(headers::TRANSPORT, transport.answer(served));
        let answer = client.srtp.and_then(|keys| keys.answer(served.ssrc));
        if let Some(message) = answer {
            reply = reply.with_key(&message, &request.uri);
        }
        let session = if let Some(session) = session {
            session.add(track);
            session
        } else {
            let session = Session::new(control.name(), control, presentation, track);
            control.add(&session);
            self.join(&session);
            session
        };
        Ok(self.of_session(reply, &session))
    }

    /// Who asks for packets by that transport, with its connection if they go there.
    fn client(
        &mut self,
        (transport, between): (&Transport, (SocketAddr, SocketAddr)),
        srtp: Option<Box<AgreedKeys>>,
    ) -> Result<Client, Reply> {
        let interleaving = match (transport.lower, &self.interleaving) {
            (LowerTransport::Udp { .. } | LowerTransport::Multicast, _) => None,
            (LowerTransport::Tcp { .. }, Some(interleaving)) => Some(Rc::clone(interleaving)),
            (LowerTransport::Tcp { .. }, None) => {
                let opened = Interleaving::open(self.control(), &self.socket, between)?;
                Some(Rc::clone(self.interleaving.insert(opened)))
            }
        };
        Ok(Client::new(between, interleaving, srtp))
    }

    /// The session that a request names, if it exists and may be used from here. Naming it is a
    /// sign of life.
    fn session_of(&mut self, request: &Request) -> Option<Rc<Session>> {
        let id = request.header("Session").and_then(SessionId::parse)?;
        let session = self.control().session(id, self.peer_ip())?;
        session.touch();
        self.join(&session);
        Some(session)
    }

    fn join(&mut self, session: &Session) {
        let number = session.id().number();
        if self.sessions.contains(&number) {
            return;
        }
        // So that it does not remember every session that ever was.
        let existing = self.place.control.sessions.borrow();
        let own = self.sessions.iter().copied();
        let others = own.filter(|number| existing.contains_key(number));
        self.sessions = others.chain([number]).collect();
        session.join();
    }

    fn has_sessions(&self) -> bool {
        let sessions = self.control().sessions.borrow();
        self.sessions
            .iter()
            .any(|number| sessions.contains_key(number))
    }

    fn of_any(&self, reply: Reply, session: Option<Rc<Session>>) -> Reply {
        match session {
            Some(session) => self.of_session(reply, &session),
            None => reply,
        }
    }

    fn of_session(&self, reply: Reply, session: &Session) -> Reply {
        reply.with_session(session.id(), self.control().config.limits.session_timeout)
    }

    /// Writes a reply whole, or fails: a client that does not read what it asked for is not waited
    /// for longer than one that does not write what it began.
    async fn write(&mut self, reply: &Reply, cseq: Option<u32>) -> io::Result<()> {
        self.write_all(reply.to_bytes(cseq, SystemTime::now()))
            .await
    }

    async fn write_all(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        let time_max = self.control().config.limits.request_time_max;
        match &self.interleaving {
            Some(interleaving) => timeout(time_max, interleaving.write(bytes)).await?,
            None => timeout(time_max, self.socket.write_all(&bytes)).await?,
        }
    }

    /// Who is at the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.place.peer
    }

    fn peer_ip(&self) -> IpAddr {
        self.place.ip()
    }

    fn control(&self) -> &Rc<Control> {
        &self.place.control
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(interleaving) = &self.interleaving {
            interleaving.close();
        }
        let sessions = self.control().sessions.borrow();
        let own = self.sessions.iter();
        for session in own.filter_map(|number| sessions.get(number)) {
            session.leave();
        }
    }
}
