//! Sending clients on to another server: while this one drains who comes is answered 302, and each
//! session is told once, by a request of the server's (RFC 2326, section 10.10). In a cluster who
//! comes is answered 302 where another node is the film's home.
//!
//! Nothing waits for the client's answer, and most do not understand REDIRECT: a session ends when
//! its client tears it down, or when the drain has lasted for too long.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use onrush_wire::route::channel::lease_of;
use onrush_wire::route::{Scheme, Trace, redirects_of, with_redirects, with_trace};
use onrush_wire::rtsp::{
    ClientAnswer, ELEMENTARY, Method, Redirect, RedirectTarget, Reply, Request, State, Target,
    is_rtsps, take_srtp, track, track_behind_query, track_name,
};
use tracing::debug;

use super::super::session::Session;
use super::{Connection, Received};
use crate::channels::pull_url::shown;
use crate::cluster;
use crate::drain::Redirection;
use crate::peer_log::Escaped;

impl Connection {
    /// Where clients are sent on to, if they are.
    fn redirection(&self) -> Option<Arc<Redirection>> {
        self.control().statistics.drain.redirection()
    }

    /// What is to be done for who is to go to another server: to tell somebody, or to let somebody
    /// go who publishes here and has stayed for too long.
    pub(super) fn redirection_due(&self) -> Option<Option<Received>> {
        let to = self.redirection()?;
        if self.publisher.is_some() && to.is_over() {
            return Some(None);
        }
        self.is_to_be_told(to.round)
            .then_some(Some(Received::Redirected(to)))
    }

    /// Whether anybody who uses this connection has not been told in this round.
    fn is_to_be_told(&self, round: u8) -> bool {
        let publisher = self.publisher.as_ref();
        publisher.is_some_and(|it| it.redirected != round)
            || self
                .own_sessions()
                .iter()
                .any(|it| it.uses.round() != u32::from(round))
    }

    fn own_sessions(&self) -> Vec<Rc<Session>> {
        let sessions = self.control().sessions.borrow();
        let own = self.sessions.iter().filter_map(|it| sessions.get(it));
        let alive = own.filter(|session| session.state() != State::Init);
        // So that the table is not borrowed while they are told.
        alive.map(Rc::clone).collect()
    }

    /// What a request is answered that another server is to carry out: one that begins something.
    pub(super) fn moved(&self, request: &Request) -> Option<Reply> {
        let begins = match request.method {
            Method::Describe | Method::Announce => true,
            // One more track of a session that there is plays here, too.
            Method::Setup => request.header("Session").is_none(),
            _ => false,
        };
        let is_first_of_publisher = self.publisher.is_none();
        if !begins || !is_first_of_publisher || request.version != (1, 0) {
            return None;
        }
        // A track that stands behind the query still does there.
        let (uri, behind) = match request.method {
            Method::Setup => track_behind_query(&request.uri),
            _ => (&*request.uri, None),
        };
        let location = match self.redirection() {
            Some(_) if self.is_of_node(request) => None,
            Some(to) => self.elsewhere(request, uri, &to),
            None => self.home(request, uri),
        }?;
        Some(match behind {
            Some(number) => Reply::moved(&format!("{location}/{}", track_name(number))),
            None => Reply::moved(&location),
        })
    }

    /// Whether another node asks for a channel, or sets it up: what comes here it has from nowhere
    /// else, and what does not it is refused for that.
    fn is_of_node(&self, request: &Request) -> bool {
        let is_in_cluster = self.control().statistics.cluster.get().is_some();
        is_in_cluster
            && match request.method {
                Method::Describe => lease_of(&request.uri).is_some(),
                Method::Setup => self.feeds().next().is_some(),
                _ => false,
            }
    }

    /// The URL at the server that takes this one's clients. Viewers have a number from here on.
    fn elsewhere(&self, request: &Request, uri: &str, redirection: &Redirection) -> Option<String> {
        let uri = match Target::parse(uri) {
            Ok(Target::Path(path)) if request.method != Method::Announce => {
                let known = Trace::of(uri);
                let trace = redirection.trace(known, self.peer_ip(), Escaped(&path));
                with_trace(uri, trace)
            }
            _ => uri.to_owned(),
        };
        redirection.to.of_rtsp(&uri, self.is_encrypted())
    }

    /// The URL at the node whose film it is, if that is another than this one.
    fn home(&self, request: &Request, uri: &str) -> Option<String> {
        let cluster = self.control().statistics.cluster_of_many()?;
        // Whoever has it described here sets it up here; and no client is known to take another
        // server's URL through a tunnel.
        if self.is_described && request.method == Method::Setup || self.tunnel.is_some() {
            return None;
        }
        let Ok(Target::Path(path)) = Target::parse(uri) else {
            return None;
        };
        let (path, _) = take_srtp(&path);
        let film = track(&path).map_or(&*path, |(film, _)| film);
        let film = film.strip_suffix(ELEMENTARY).unwrap_or(film);
        // A channel is played at each node.
        if film.is_empty() || film.starts_with("live/") || self.control().is_published(film) {
            return None;
        }
        if cluster.holder_of(film).is_some() {
            return None;
        }
        let redirects = redirects_of(uri);
        let scheme = match self.is_encrypted() || is_rtsps(uri) {
            true => Scheme::Rtsps,
            false => Scheme::Rtsp,
        };
        let there = cluster.elsewhere(cluster::Request {
            film,
            scheme,
            peer: self.peer_ip(),
            user_agent: request.header("User-Agent").unwrap_or_default().as_bytes(),
            redirects,
            trace: Trace::of(uri),
        })?;
        let to = format!("{}://{}/", scheme.as_str(), there.address);
        let to: RedirectTarget = to.parse().ok()?;
        let uri = with_redirects(uri, redirects.saturating_add(1), there.trace);
        to.of_rtsp(&uri, self.is_encrypted())
    }

    /// Tells all who use this connection where they find what they play, once in each round.
    pub(super) async fn redirect(&mut self, redirection: &Redirection) -> io::Result<()> {
        let round = redirection.round;
        for session in self.own_sessions() {
            if session.uses.set_round(round) == u32::from(round) {
                continue;
            }
            let url = Redirect::presentation(&session.tracks()[0].track_url);
            let is_stored = session.media().is_some();
            let position_ns = is_stored.then(|| session.position_ns());
            let told = (session.id(), position_ns);
            let there = with_trace(&url, trace_of(&session, redirection));
            self.send_redirect([&url, &there], told, redirection)
                .await?;
        }
        let Some(publisher) = &mut self.publisher else {
            return Ok(());
        };
        if std::mem::replace(&mut publisher.redirected, round) == round {
            return Ok(());
        }
        let (session, url) = (publisher.session, publisher.url.to_string());
        let url = self.absolute(url);
        self.send_redirect([&url, &url], (session, None), redirection)
            .await
    }

    /// Sends a client on, from a URL here to that `there`, but for its server.
    async fn send_redirect(
        &mut self,
        [url, there]: [&str; 2],
        (session, position_ns): (onrush_wire::rtsp::SessionId, Option<u64>),
        redirection: &Redirection,
    ) -> io::Result<()> {
        let Some(location) = redirection.to.of_rtsp(there, self.is_encrypted()) else {
            return Ok(());
        };
        let cseq = self.control().next_cseq();
        let request = Redirect {
            cseq,
            session,
            url,
            location: &location,
            position_ns,
        };
        let short = session.short();
        debug!("session {short}: REDIRECT {cseq} to {}", shown(&location));
        let request = request.to_bytes();
        let Some(interleaving) = &self.interleaving else {
            return self.write_all(request).await;
        };
        // Between frames. Not waited for: who leaves everything unread is to keep what it has.
        if let Err(error) = interleaving.connection.try_send(request) {
            debug!("session {short}: REDIRECT {cseq} is not sent: {error}");
        }
        Ok(())
    }

    /// Notes what a client says to a request of the server's: its session goes on, or is torn down
    /// by a request of its own.
    pub(super) fn note_answer(peer: SocketAddr, answer: ClientAnswer) {
        let ClientAnswer { status, cseq } = answer;
        debug!("{peer}: answers {status} to {cseq:?}");
    }
}

/// What the client of a session that is sent on is called, here and there.
fn trace_of(session: &Session, redirection: &Redirection) -> Trace {
    let tracks = session.tracks();
    let first = &tracks[0];
    let name = match session.media() {
        Some(media) => Escaped(media.name()).to_string(),
        None => first.name(),
    };
    let trace = redirection.trace(first.trace(), first.peer_ip(), name);
    tracks.iter().for_each(|it| it.set_trace(Some(trace)));
    trace
}
