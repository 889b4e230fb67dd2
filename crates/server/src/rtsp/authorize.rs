//! Whether a request of RTSP may be carried out.
//!
//! What opens a presentation is asked about: DESCRIBE, and the SETUP that makes a session. What
//! acts on a session needs no more than the session, whose name cannot be guessed and which only
//! the address that made it can use.

use std::net::IpAddr;
use std::rc::Rc;

use onrush_wire::auth::Action;
use onrush_wire::rtsp::{
    ELEMENTARY, Intent, Method, Reply, Request, StatusCode, headers, track_behind_query,
};

use super::Control;
use super::session::Session;
use crate::users::{Asked, Protocol, Refusal};

/// What a connection was allowed by its URL. URLs of tracks are made of a base that has no query,
/// so what was signed for DESCRIBE counts for SETUP on the same connection: for as long as it would
/// be allowed by itself.
pub(super) type GrantedPath = Option<Box<Granted>>;

/// A film, and the URL that it was allowed by.
pub(super) struct Granted {
    film: String,
    uri: String,
}

/// Says whether `intent`, which `request` means, may be carried out for `peer`, who asks over TLS
/// or not.
///
/// # Errors
///
/// The reply that refuses it.
pub(super) async fn authorize(
    control: &Control,
    (peer, is_encrypted): (IpAddr, bool),
    granted: &mut GrantedPath,
    (request, intent): (&Request, &Intent<Rc<Session>>),
) -> Result<(), Reply> {
    let (film, before) = match intent {
        Intent::Describe { path, .. } => (film_of(path), None),
        Intent::Setup {
            path,
            session: None,
            ..
        } => {
            let film = film_of(path);
            (film, granted.as_ref().filter(|it| it.film == film))
        }
        _ => return Ok(()),
    };
    let peer = (peer, is_encrypted);
    if let Some(before) = before {
        return ask(control, peer, Action::Play, (request, film, &before.uri)).await;
    }
    may(control, peer, Action::Play, (request, film)).await?;
    if request.uri.contains('?') && !control.content.authorizer.is_open() {
        let (film, uri) = (film.to_owned(), uri_of(request).to_owned());
        *granted = Some(Box::new(Granted { film, uri }));
    }
    Ok(())
}

/// What rights are about: a film, in whichever way it is played.
fn film_of(path: &str) -> &str {
    path.strip_suffix(ELEMENTARY).unwrap_or(path)
}

/// Says whether `peer`, who asks over TLS or not, may do that with a path, by what `request` says.
///
/// # Errors
///
/// The reply that refuses it.
pub(super) async fn may(
    control: &Control,
    peer: (IpAddr, bool),
    action: Action,
    (request, path): (&Request, &str),
) -> Result<(), Reply> {
    ask(control, peer, action, (request, path, uri_of(request))).await
}

/// The URL of a request as far as it may say who asks: a track behind the query is no part of what
/// that says, as a token.
fn uri_of(request: &Request) -> &str {
    match request.method {
        Method::Setup => track_behind_query(&request.uri).0,
        _ => &request.uri,
    }
}

async fn ask(
    control: &Control,
    (peer, is_encrypted): (IpAddr, bool),
    action: Action,
    (request, path, uri): (&Request, &str, &str),
) -> Result<(), Reply> {
    let asked = Asked {
        protocol: Protocol::Rtsp,
        peer,
        is_encrypted,
        is_behind_proxy: false,
        // No browser speaks RTSP, and none opens a tunnel for a page.
        is_of_page: false,
        action,
        path,
        method: (&request.method).into(),
        uri,
        authorization: request.header("Authorization"),
    };
    let authorized = control.content.authorizer.authorize(&asked).await;
    authorized.map_err(refused)
}

fn refused(refusal: Refusal) -> Reply {
    let note = refusal.note();
    match refusal {
        Refusal::LogIn { challenges, .. } => Reply::log_in(challenges, &note),
        Refusal::Malformed(_) => Reply::refusal(StatusCode::BadRequest, &note),
        Refusal::Forbidden(_) => Reply::refusal(StatusCode::Forbidden, &note),
        // RFC 2326 has no status for too many requests.
        Refusal::Slowed { retry_s } => Reply::refusal(StatusCode::ServiceUnavailable, &note)
            .with(headers::RETRY_AFTER, retry_s),
        Refusal::Unanswered => Reply::refusal(StatusCode::ServiceUnavailable, &note),
    }
}
