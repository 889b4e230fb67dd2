//! What requests get, whichever version of HTTP they come in: found, authorized, answered, and sent
//! piece by piece. Reading requests is left to whoever has the connection.

mod folder;
mod forwarded;
mod home;

use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use onrush_wire::auth::Action;
use onrush_wire::hls::{self, Resource};
use onrush_wire::http::{
    Answer, Client, Context, Method, Piece, Request, Status, Target, in_url, runs_scripts,
};
use onrush_wire::route::{Trace, with_trace};
use tracing::warn;

use crate::byte_stream::ByteStream;
use crate::downloads::Site;
use crate::downloads::admission::{ConnectionSlot, Guest, Share};
use crate::downloads::files::{Found, OpenFile};
use crate::downloads::http::assets;
use crate::downloads::http::film;
use crate::downloads::http::live::{self, Waits};
use crate::downloads::http::made::{Made, Way};
use crate::downloads::http::several::Player;
use crate::downloads::memory::{CROWDED, Memory, Reserved};
use crate::downloads::send::To;
use crate::peer_log::Escaped;
use crate::transfer::{Control, Limit, Policy, TransferError};
use crate::users::{Asked, Login, Protocol, Refusal as NotAllowed};

/// What a client's requests are decided by, whichever version of HTTP they come in: those of a
/// connection, or one that a proxy has passed on.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) site: Rc<Site>,
    pub(super) client: Client,
    policy: Policy,
    /// What its answers hold.
    memory: Memory,
    /// What it has together with others of its address.
    pub(super) share: Share,
    /// Its place, if it has no connection.
    _guest: Option<Guest>,
}

impl Responder {
    pub(super) fn new(
        site: Rc<Site>,
        socket: &ByteStream,
        (peer, place): (IpAddr, &ConnectionSlot),
    ) -> Self {
        let client = Client {
            address: peer,
            is_encrypted: socket.is_encrypted(),
            is_behind_proxy: false,
        };
        let limits = (place.limit().cloned(), place.share().clone());
        Self::of(site, client, limits, None)
    }

    fn of(
        site: Rc<Site>,
        client: Client,
        (limit, share): (Option<Limit>, Share),
        guest: Option<Guest>,
    ) -> Self {
        Self {
            policy: Policy {
                schedule: site.settings.schedule,
                limit,
            },
            memory: site.made_bytes.of_connection(&share.made_bytes),
            share,
            site,
            client,
            _guest: guest,
        }
    }
}

/// What a request gets: an answer, and what its pieces are of.
pub(super) type Decided = (Answer, Option<Body>);

/// What is sent of pieces, and what holds its memory.
pub(super) enum Body {
    /// A file.
    File(Rc<OpenFile>),
    /// What was made of a film.
    Made { made: Box<Made>, _memory: Reserved },
    /// Nothing but the answer's own text.
    Text { _memory: Reserved },
}

impl Responder {
    /// What a request gets. `waits` tells that it waits for what comes next of a channel: a client
    /// that is gone then needs no answer.
    pub(super) async fn decide(
        &self,
        request: &Request<'_>,
        keeps_alive: bool,
        waits: &Waits,
    ) -> Decided {
        let refusal = |status, note: &str| {
            let answer = |context: &Context<'_>| Answer::refusal(status, note, context);
            (self.with_context(request, keeps_alive, answer), None)
        };
        if self.is_for_health(request).await {
            let takes_clients = !self.site.statistics.drain.is_on();
            let answer = |context: &Context<'_>| Answer::health(takes_clients, context);
            return (self.with_context(request, keeps_alive, answer), None);
        }
        if let Some(answer) = self.elsewhere(request, keeps_alive) {
            return (answer, None);
        }
        match (request.method, &request.target) {
            (Method::Connect | Method::NotAllowed | Method::Put | Method::Delete, _) => {
                refusal(Status::MethodNotAllowed, "nothing can be changed here")
            }
            (Method::Unknown, _) => refusal(Status::NotImplemented, "no such method is known"),
            (Method::Options, _) => (
                self.with_context(request, keeps_alive, Answer::options),
                None,
            ),
            (Method::Get | Method::Head, Target::Path { name, is_folder }) => {
                if let Some(asset) = assets::find(name) {
                    let made = Made::asset(asset, self.site.started_s);
                    return self.film(request, Ok(Box::new(made)), keeps_alive).await;
                }
                let sought = match self.unfinished(request, name).await {
                    Unfinished::Told(answer) => return (answer, None),
                    Unfinished::Refused(refusal) => Err(refusal),
                    Unfinished::Other(login) => {
                        self.find(request, (name, *is_folder), login, waits).await
                    }
                };
                match sought {
                    Err(refusal) => {
                        let answer = |c: &Context<'_>| not_allowed(&refusal, c);
                        (self.with_context(request, keeps_alive, answer), None)
                    }
                    Ok(Sought::Elsewhere(home)) => {
                        let answer = |c: &Context<'_>| Answer::elsewhere(&home, c);
                        (self.with_context(request, keeps_alive, answer), None)
                    }
                    Ok(Sought::Nowhere) => refusal(Status::ServiceUnavailable, DRAINS),
                    Ok(Sought::Made(found)) => self.film(request, found, keeps_alive).await,
                    Ok(Sought::There(Found::File(file))) if !is_folder => {
                        self.file(request, name, file, keeps_alive).await
                    }
                    Ok(Sought::There(Found::Folder { .. })) => {
                        self.folder(request, name, *is_folder, keeps_alive).await
                    }
                    Ok(Sought::There(Found::Denied)) => {
                        refusal(Status::Forbidden, "this cannot be read")
                    }
                    Ok(Sought::There(_)) => refusal(Status::NotFound, NOTHING),
                    Ok(Sought::Failed(error)) => {
                        warn!("{name:?}: {error}");
                        refusal(Status::ServiceUnavailable, SHORT)
                    }
                }
            }
            _ => refusal(Status::NotFound, NOTHING),
        }
    }

    /// Whether somebody asks how the server is, which needs no password. A file or a folder by that
    /// name goes first, but not an object: those who probe are answered when the store is not.
    async fn is_for_health(&self, request: &Request<'_>) -> bool {
        let (Method::Get | Method::Head, Target::Path { name, .. }) =
            (request.method, &request.target)
        else {
            return false;
        };
        name == HEALTH && !self.site.files.is_here(name).await
    }

    /// Where to ask instead, while the server drains and sends its clients on.
    fn elsewhere(&self, request: &Request<'_>, keeps_alive: bool) -> Option<Answer> {
        let (Method::Get | Method::Head, Target::Path { name, is_folder }) =
            (request.method, &request.target)
        else {
            return None;
        };
        let redirection = self.site.statistics.drain.redirection()?;
        // The other server may have cut another copy: who has a playlist from here plays by it.
        let asked = hls::parse(name).filter(|_| !is_folder);
        if asked.is_some_and(|(_, it)| it.version().is_some()) && !redirection.is_over() {
            return None;
        }
        let slash = if *is_folder && !name.is_empty() {
            "/"
        } else {
            ""
        };
        let query = request.query.map(|query| format!("?{query}"));
        let mut path = format!("/{}{slash}{}", in_url(name), query.unwrap_or_default());
        // What a playlist names is asked for where that was found, and a page is no viewer.
        if !is_folder
            && assets::find(name).is_none()
            && let None | Some((_, Resource::Main | Resource::Manifest)) = asked
        {
            let trace = redirection.trace(Trace::of(&path), self.client.address, Escaped(name));
            path = with_trace(&path, trace);
        }
        let to = &redirection.to;
        let location = to.of_http(&path, request.host, self.client.is_encrypted);
        let answer = |c: &Context<'_>| match &location {
            Some(location) => Answer::elsewhere(location, c),
            None => Answer::refusal(Status::ServiceUnavailable, DRAINS, c),
        };
        Some(self.with_context(request, keeps_alive, answer))
    }

    /// What there is at a name, and may be had: what is made of a film or a channel, which is
    /// played, or else what lies there, which is downloaded; or where to ask for that. Whether that
    /// may be is asked before it is known whether there is such a thing; by `login`, if it is known
    /// who asks.
    async fn find(
        &self,
        request: &Request<'_>,
        (name, is_folder): (&str, bool),
        mut login: Option<Login>,
        waits: &Waits,
    ) -> Result<Sought, NotAllowed> {
        let authorizer = &self.site.authorizer;
        let downloads = self.asked(request, Action::Download, name);
        let Some(film) = film::of(name).filter(|_| !is_folder) else {
            authorizer.authorize_known(&downloads, &mut login).await?;
            if let Some(home) = self.home(request, (name, is_folder), login.as_ref()) {
                return Ok(home);
            }
            return Ok(self.there(name).await);
        };
        let plays = self.asked(request, Action::Play, film);
        if let Err(refusal) = authorizer.authorize_known(&plays, &mut login).await {
            // A password that was wrong is not looked at twice, nor a hook asked that is silent.
            let is_final = match refusal {
                NotAllowed::Forbidden(_) => false,
                // Whom only the hook knows, it has looked at.
                NotAllowed::LogIn { .. } => !matches!(login, Some(Login::Nobody | Login::User(_))),
                _ => true,
            };
            if is_final
                || authorizer
                    .authorize_known(&downloads, &mut login)
                    .await
                    .is_err()
            {
                return Err(refusal);
            }
            return match self.there(name).await {
                there @ Sought::There(Found::File(_)) => Ok(there),
                _ => Err(refusal),
            };
        }
        if let Some(home) = self.home(request, (name, is_folder), login.as_ref()) {
            return Ok(home);
        }
        let (site, memory) = (&*self.site, &self.memory);
        let asked = (name, request.query, request.codings);
        if let Some(found) = live::find(site, asked, waits, memory).await {
            return Ok(Sought::Made(found.map(Box::new)));
        }
        let player = Player::of(site, plays, &mut login).await;
        let asked = (name, request.query);
        if let Some(found) = film::find(site, asked, player.as_deref(), memory).await? {
            return Ok(Sought::Made(found.map(Box::new)));
        }
        let there = self.there(name).await;
        if let Sought::There(Found::File(_) | Found::Folder { .. } | Found::Denied) = there {
            authorizer.authorize_known(&downloads, &mut login).await?;
        }
        Ok(there)
    }

    async fn there(&self, name: &str) -> Sought {
        let found = self.site.files.find(name).await;
        found.map_or_else(Sought::Failed, Sought::There)
    }

    pub(super) fn asked<'a>(
        &self,
        request: &Request<'a>,
        action: Action,
        path: &'a str,
    ) -> Asked<'a> {
        Asked {
            protocol: Protocol::Http,
            peer: self.client.address,
            is_encrypted: self.client.is_encrypted,
            is_behind_proxy: self.client.is_behind_proxy,
            is_of_page: request.origin.is_some(),
            action,
            path,
            method: request.line.split(' ').next().unwrap_or_default(),
            uri: request.uri,
            authorization: request.authorization,
        }
    }

    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn film(
        &self,
        request: &Request<'_>,
        found: Result<Box<Made>, film::Refusal>,
        keeps_alive: bool,
    ) -> Decided {
        match found {
            Ok(made) => {
                let mut made = Box::new(made.in_coding(request.codings).await);
                made.give_room_back();
                let resource = made.resource();
                let answer = |context: &Context<'_>| Answer::file(request, &resource, context);
                let answer = self.with_context(request, keeps_alive, answer);
                if answer.body_bytes == 0 {
                    return (answer, None);
                }
                match self.memory.hold(made.memory()) {
                    Some(memory) => {
                        let body = Body::Made {
                            made,
                            _memory: memory,
                        };
                        (answer, Some(body))
                    }
                    None => self.crowded(request, keeps_alive),
                }
            }
            Err((Status::NoContent, _)) => (
                self.with_context(request, keeps_alive, Answer::nothing),
                None,
            ),
            Err((status, note)) => {
                let answer = |context: &Context<'_>| Answer::refusal(status, &note, context);
                (self.with_context(request, keeps_alive, answer), None)
            }
        }
    }

    /// 503: answers hold all the memory that they may.
    fn crowded(&self, request: &Request<'_>, keeps_alive: bool) -> Decided {
        let answer =
            |context: &Context<'_>| Answer::refusal(Status::ServiceUnavailable, CROWDED, context);
        (self.with_context(request, keeps_alive, answer), None)
    }

    async fn file(
        &self,
        request: &Request<'_>,
        name: &str,
        file: Rc<OpenFile>,
        keeps_alive: bool,
    ) -> Decided {
        // The name that is asked for tells the type; what is sent may be its neighbour.
        let neighbour = self
            .site
            .files
            .neighbour(name, &file, request.codings)
            .await;
        let (coding, file) = match neighbour {
            Some((coding, neighbour)) => (Some(coding), neighbour),
            None => (None, file),
        };
        // A cache may give the plain file to everybody, so only the others vary.
        let mut resource = file.resource(name, coding, coding.is_some());
        // What somebody has put here acts with nobody's credentials.
        let is_strange = self.site.uploads.is_some() && runs_scripts(resource.media_type);
        resource.content_security_policy = is_strange.then_some(SANDBOX);
        let answer = |context: &Context<'_>| Answer::file(request, &resource, context);
        let answer = self.with_context(request, keeps_alive, answer);
        (answer, Some(Body::File(file)))
    }

    pub(super) fn with_context(
        &self,
        request: &Request<'_>,
        keeps_alive: bool,
        answer: impl FnOnce(&Context<'_>) -> Answer,
    ) -> Answer {
        let is_head = request.method == Method::Head;
        let is_for_all_origins = is_for_players(&request.target);
        let answer = |context: &Context<'_>| {
            answer(&Context {
                is_for_all_origins,
                ..*context
            })
        };
        self.site
            .with_context((keeps_alive, request.is_http_11, is_head), answer)
    }

    /// Sends pieces of an answer.
    ///
    /// # Errors
    ///
    /// Why not all was sent: whoever reads must not take it for a whole answer.
    pub(super) async fn send(
        &self,
        pieces: &[Piece],
        body: Option<&Body>,
        to: To<'_>,
        control: &Control,
    ) -> Result<(), TransferError> {
        let stall_time_max = self.site.settings.limits.download_stall_time_max;
        let way = Way {
            to,
            site: &self.site,
            policy: &self.policy,
            control,
            stall_time_max,
        };
        if let ([Piece::Text(head), Piece::File(part)], Some(Body::Made { made, .. })) =
            (pieces, body)
            && let Some(sent) = made.send_live(head, part, &way).await
        {
            return sent.map_err(TransferError::Peer);
        }
        let last = pieces.len().saturating_sub(1);
        for (i, piece) in pieces.iter().enumerate() {
            match (piece, body) {
                (Piece::Text(text), _) => {
                    let sent = to.send(text, i < last, stall_time_max).await;
                    sent.map_err(TransferError::Peer)?;
                }
                (Piece::File(part), Some(Body::Made { made, .. })) => {
                    made.send(part.clone(), i < last, &way).await?;
                }
                (Piece::File(part), Some(Body::File(file))) => {
                    let (transfers, file) = (&self.site.transfers, &file.file);
                    transfers
                        .cue(file, part.clone(), to.outlet(), &self.policy, control)
                        .await?;
                }
                (Piece::File(_), None | Some(Body::Text { .. })) => {
                    unreachable!("pieces of a file come with it")
                }
            }
        }
        Ok(())
    }

    /// Tells the log of a body that was cut off, if that is not its client's doing.
    pub(super) fn tell(&self, error: &TransferError) {
        if matches!(
            error,
            TransferError::Truncated { .. } | TransferError::Changed | TransferError::File { .. }
        ) {
            warn!("download of {}: {error}", self.client.address);
        }
    }
}

/// What there is at a name.
enum Sought {
    /// What another node is to be asked for, at this URL.
    Elsewhere(String),
    /// What another node is to be asked for, to which the client cannot be sent.
    Nowhere,
    /// What was made of a film or a channel, or why it was not.
    Made(Result<Box<Made>, film::Refusal>),
    /// What lies there.
    There(Found),
    /// It could not be looked up.
    Failed(io::Error),
}

/// What becomes of a HEAD for what may have been broken off.
pub(super) enum Unfinished {
    /// That it was, and how much there is.
    Told(Answer),
    /// Nothing, because it is not known who asks.
    Refused(NotAllowed),
    /// It is a request as any; who asks, if that is known already.
    Other(Option<Login>),
}

pub(super) fn not_allowed(refusal: &NotAllowed, context: &Context<'_>) -> Answer {
    let note = refusal.note();
    match refusal {
        NotAllowed::LogIn { challenges, .. } => Answer::log_in(challenges, &note, context),
        NotAllowed::Malformed(_) => Answer::refusal(Status::BadRequest, &note, context),
        NotAllowed::Forbidden(_) => Answer::refusal(Status::Forbidden, &note, context),
        NotAllowed::Slowed { retry_s } => Answer::slowed(*retry_s, &note, context),
        NotAllowed::Unanswered => Answer::refusal(Status::ServiceUnavailable, &note, context),
    }
}

/// Whether it is something that players load, which pages of all origins may hold: those that read
/// what it comes to, from another node perhaps, must be allowed to each time. A page is opened, not
/// read.
fn is_for_players(target: &Target) -> bool {
    let Target::Path { name, is_folder } = target else {
        return false;
    };
    let asked = hls::parse(name).filter(|_| !is_folder);
    asked.is_some_and(|(_, asked)| asked != Resource::Page)
}

/// Where whoever shares clients out among servers asks how this one is.
const HEALTH: &str = "health";

const DRAINS: &str = "the server takes nobody more; try another";
/// An origin of its own, and no scripts (Content Security Policy, section 6.4.2).
const SANDBOX: &str = "sandbox";

const SHORT: &str = "the server is short of something";
const NOTHING: &str = "there is nothing by this name";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_players_load_is_for_all_origins() {
        let is_open = |target: &str| {
            let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            is_for_players(&Request::parse(head.as_bytes()).unwrap().target)
        };
        for target in [
            "/a.mp4/hls/index.m3u8?token=x",
            "/a.mp4/hls/video/index.m3u8",
            "/a.mp4/hls/video/0123456789abcdef/1.m4s",
            "/live/a/hls/video/0123456789abcdef/1.2.m4s",
            "/a.mp4/hls/poster.mp4",
            "/a.mp4/dash/manifest.mpd",
            "/live/a/dash/time.txt",
        ] {
            assert!(is_open(target), "{target}");
        }
        for target in [
            "/",
            "/a.mp4",
            "/a.mp4/hls/index.html",
            "/a.mp4/hls/index.m3u8/",
            "/hls/index.m3u8",
            "/health",
        ] {
            assert!(!is_open(target), "{target}");
        }
    }
}
