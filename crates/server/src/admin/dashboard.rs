//! The dashboard: a page that shows live what the server does.
//!
//! | request | answer |
//! |---|---|
//! | `GET /admin` | the page; its style and scripts are below it |
//! | `GET /admin/events` | Server-Sent Events: the [`Status`], log lines, samples, refusals |
//! | `GET /admin/sessions?find=TEXT&first=N` | up to 200 sessions as JSON |
//! | `GET /admin/cache` | what the cache holds by film, as JSON |
//! | `POST /admin/sessions/ID/end` | ends a session |
//! | `POST /admin/publishers/CHANNEL` | lets the publisher of a channel go; it may come again |
//! | `POST /admin/reload` | has the configuration file read again, as the [API](super::api) does |
//!
//! Where there are users, all of it is for those with the right `admin`. Without users whoever can
//! connect can read, as of metrics, but for pages whose name is made to mean this machine; and
//! sessions and publishers are ended, and the file is read again, from this machine alone.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{Stream, unfold};
use onrush_wire::auth::Action;
use onrush_wire::http::{Client, Network, PAGE_POLICY};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::time::sleep;
use tracing::info;

use super::Site;
use super::cache::cache_map;
use super::cluster::nodes;
use super::hour::Sample;
use super::listen::Peer;
use super::log_tail::{LOG_TAIL, Line};
use super::own_name::{MISNAMED, host_of, is_address, is_misnamed};
use super::reload::{fault, reload};
use super::status::Status;
use crate::hls_live::LiveRow;
use crate::refusals::{REFUSALS, Refused};
use crate::users::{Asked, Authorizer, Protocol, Refusal};
use crate::watching::{
    ReloadWishQueue, ReloadWishes, Roster, Wish, WishQueue, Wishes, reload_wishes, wishes,
};

/// How often a page is told what there is.
const EVENTS_EVERY: Duration = Duration::from_secs(1);

/// How soon a page connects again whose connection has ended.
const RECONNECT_AFTER: Duration = Duration::from_millis(200);

/// How long control may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// A header that pages of other sites cannot send without being asked first (the Fetch standard,
/// section 4.8), and nobody answers that.
const OWN_HEADER: &str = "x-onrush";

/// What a dashboard stands on, beside the counters.
#[derive(Debug)]
pub(crate) struct Office {
    pub(crate) wishes: Wishes,
    /// To whoever can read the configuration again.
    pub(crate) reloads: ReloadWishes,
    pub(crate) authorizer: Arc<Authorizer>,
    /// Who is believed that says whose a request is.
    trusted_proxies: Vec<Network>,
}

/// What a page is told each second.
#[derive(Serialize)]
struct News {
    status: Status,
    log: Vec<Line>,
    /// Samples of the last hour that it was not told yet.
    hour: Vec<Sample>,
    /// Who was refused lately, the last one first.
    refused: Vec<Refused>,
    /// Live channels that are cut for HLS and DASH.
    hls: Vec<LiveRow>,
}

/// Which sessions are meant.
#[derive(Deserialize)]
pub(super) struct Which {
    #[serde(default)]
    find: String,
    #[serde(default)]
    first: usize,
}

impl Office {
    /// One, and where is heard what pages wish of control, and of whoever knows the configuration.
    pub(crate) fn new(
        authorizer: &Arc<Authorizer>,
        trusted_proxies: &[Network],
    ) -> (Self, WishQueue, ReloadWishQueue) {
        let (wishes, wished) = wishes();
        let (reloads, reload_wished) = reload_wishes();
        let office = Self {
            wishes,
            reloads,
            authorizer: Arc::clone(authorizer),
            trusted_proxies: trusted_proxies.to_vec(),
        };
        (office, wished, reload_wished)
    }

    /// Whose a request is that has come from there. Nothing here is encrypted but by a proxy.
    fn client(&self, peer: IpAddr, headers: &HeaderMap) -> Client {
        let joined = |name: &str| {
            let lines = headers.get_all(name).iter();
            let lines: Vec<_> = lines
                .map(|line| String::from_utf8_lossy(line.as_bytes()))
                .collect();
            (!lines.is_empty()).then(|| lines.join(","))
        };
        let (list, schemes) = (joined("x-forwarded-for"), joined("x-forwarded-proto"));
        let from = Client {
            address: peer,
            is_encrypted: false,
            is_behind_proxy: false,
        };
        from.told(list.as_deref(), schemes.as_deref(), &self.trusted_proxies)
    }
}

pub(super) fn router(site: &Arc<Site>) -> Router<Arc<Site>> {
    Router::new()
        .route("/admin", get(page))
        .route("/admin/{name}", get(asset))
        .route("/admin/events", get(events))
        .route("/admin/cache", get(cache))
        .route("/admin/cluster", get(nodes))
        .route("/admin/sessions", get(sessions))
        .route("/admin/sessions/{number}/end", post(end))
        .route("/admin/publishers/{*channel}", post(dismiss))
        .route("/admin/reload", post(reload))
        .layer(from_fn_with_state(Arc::clone(site), guard))
}

/// Lets pass who may.
pub(super) async fn guard(
    State(site): State<Arc<Site>>,
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    let authorizer = &site.office.authorizer;
    let is_open = authorizer.is_open();
    let is_api = request.uri().path().starts_with("/api/");
    let changes = !matches!(*request.method(), http::Method::GET | http::Method::HEAD);
    if changes && !is_of_own_page(request.headers(), is_open) {
        let note = match is_api {
            true => "send a header X-Onrush, and ask by an address or localhost",
            false => "not from this page",
        };
        return told_why(StatusCode::FORBIDDEN, note, is_api);
    }
    // Who is to log in does so at each name anew: browsers keep passwords by it.
    if is_open && is_misnamed(peer, request.headers()) {
        return told_why(StatusCode::FORBIDDEN, MISNAMED, is_api);
    }
    if changes || !is_open {
        let client = site.office.client(peer, request.headers());
        let authorization = request.headers().get(header::AUTHORIZATION);
        let uri = request.uri().to_string();
        let asked = Asked {
            protocol: Protocol::Http,
            peer: client.address,
            is_encrypted: client.is_encrypted,
            // Where there are users, they log in by way of any other proxy as ever.
            is_behind_proxy: client.is_behind_proxy || is_open && is_passed_on(request.headers()),
            // No browser sends credentials for one: what it asks before is refused here.
            is_of_page: false,
            action: Action::Admin,
            path: "admin",
            method: request.method().as_str(),
            uri: &uri,
            authorization: authorization.and_then(|it| it.to_str().ok()),
        };
        if let Err(refusal) = authorizer.authorize(&asked).await {
            return refused(&refusal, is_api);
        }
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::CONTENT_SECURITY_POLICY, PAGE_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Whether a request that changes something comes from the dashboard. Without users nothing but the
/// name by which a page knows this host tells it from a page whose name was made to mean it.
fn is_of_own_page(headers: &HeaderMap, is_open: bool) -> bool {
    headers.contains_key(OWN_HEADER) && (!is_open || host_of(headers).is_some_and(is_address))
}

/// Whether a proxy says that it has passed a request on: its client may be on any machine.
fn is_passed_on(headers: &HeaderMap) -> bool {
    let mut told = ["forwarded", "via", "x-forwarded-for"].into_iter();
    told.any(|name| headers.contains_key(name))
}

fn refused(refusal: &Refusal, is_api: bool) -> Response {
    let status = match refusal {
        Refusal::LogIn { .. } => StatusCode::UNAUTHORIZED,
        Refusal::Malformed(_) => StatusCode::BAD_REQUEST,
        Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
        Refusal::Slowed { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::Unanswered => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut response = told_why(status, &refusal.note(), is_api);
    let headers = response.headers_mut();
    match refusal {
        Refusal::LogIn { challenges, .. } => {
            for challenge in challenges {
                if let Ok(value) = HeaderValue::from_str(challenge) {
                    headers.append(header::WWW_AUTHENTICATE, value);
                }
            }
        }
        Refusal::Slowed { retry_s } => {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(*retry_s));
        }
        _ => {}
    }
    response
}

/// A refusal as programs read it, or people.
fn told_why(status: StatusCode, note: &str, is_api: bool) -> Response {
    match is_api {
        true => fault(status, note),
        false => (status, format!("{note}\n")).into_response(),
    }
}

async fn page() -> impl IntoResponse {
    let html = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
    (html, include_str!("dashboard/dashboard.html"))
}

async fn asset(Path(name): Path<String>) -> Response {
    let (media_type, text) = match &*name {
        "page.css" => ("text/css", include_str!("../downloads/http/page/page.css")),
        "icon.svg" => (
            "image/svg+xml",
            include_str!("../downloads/http/page/icon.svg"),
        ),
        "dashboard.css" => ("text/css", include_str!("dashboard/dashboard.css")),
        "dashboard.js" => ("text/javascript", include_str!("dashboard/dashboard.js")),
        "figures.js" => ("text/javascript", include_str!("dashboard/figures.js")),
        "chart.js" => ("text/javascript", include_str!("dashboard/chart.js")),
        "films.js" => ("text/javascript", include_str!("dashboard/films.js")),
        "nodes.js" => ("text/javascript", include_str!("dashboard/nodes.js")),
        _ => return (StatusCode::NOT_FOUND, "nothing by this name\n").into_response(),
    };
    ([(header::CONTENT_TYPE, media_type)], text).into_response()
}

/// The connection ends after a minute, as all do here; the page then connects again.
async fn events(
    State(site): State<Arc<Site>>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    Sse::new(unfold((site, None), |(site, last)| async move {
        if last.is_some() {
            sleep(EVENTS_EVERY).await;
        }
        let (line, sample) = last.unwrap_or((0, 0));
        let (log, hour) = (LOG_TAIL.since(line), site.hour().since(sample));
        let line = log.last().map_or(line, |line| line.number);
        let sample = hour.last().map_or(sample, |sample| sample.number);
        let status = site.status();
        let event = Event::default().retry(RECONNECT_AFTER);
        let live = site.watched.live.as_ref();
        let hls = live.map_or_else(Vec::new, |live| live.rows());
        let news = News {
            status,
            log,
            hour,
            refused: REFUSALS.all(),
            hls,
        };
        let event = event.json_data(news);
        // All of it can be written as JSON.
        let event = event.unwrap_or_default();
        Some((Ok(event), (site, Some((line, sample)))))
    }))
}

async fn sessions(State(site): State<Arc<Site>>, Query(which): Query<Which>) -> Response {
    match list_sessions(&site, which).await {
        Some(roster) => Json(roster).into_response(),
        None => busy(),
    }
}

async fn cache(State(site): State<Arc<Site>>) -> Response {
    let Some(store) = &site.watched.store else {
        return (StatusCode::NOT_FOUND, "no files are served\n").into_response();
    };
    let (answer, answered) = oneshot::channel();
    match told(&site, Wish::Films { answer }, answered).await {
        Some(films) => {
            let pool = store.pool();
            let size = (pool.chunk_bytes() as u64, pool.chunks() as u64);
            Json(cache_map(size, store.held_of_sources(), films)).into_response()
        }
        None => busy(),
    }
}

async fn end(State(site): State<Arc<Site>>, Path(id): Path<String>) -> Response {
    match end_session(&site, &id).await {
        Some(true) => StatusCode::NO_CONTENT.into_response(),
        Some(false) => (StatusCode::NOT_FOUND, "no such session\n").into_response(),
        None => busy(),
    }
}

/// The sessions that are meant, if control answers in time.
pub(super) async fn list_sessions(site: &Site, which: Which) -> Option<Roster> {
    let (answer, answered) = oneshot::channel();
    let Which { find, first } = which;
    let wish = Wish::List {
        find,
        first,
        answer,
    };
    told(site, wish, answered).await
}

/// Ends a session; whether there is one, if control answers in time.
pub(super) async fn end_session(site: &Site, id: &str) -> Option<bool> {
    let Ok(number) = u64::from_str_radix(id, 16) else {
        return Some(false);
    };
    let (answer, answered) = oneshot::channel();
    told(site, Wish::End { number, answer }, answered).await
}

async fn dismiss(State(site): State<Arc<Site>>, Path(channel): Path<String>) -> Response {
    match site.watched.published.dismiss(&channel) {
        true => {
            info!("channel {channel}: its publisher is let go from the dashboard");
            StatusCode::NO_CONTENT.into_response()
        }
        false => (StatusCode::NOT_FOUND, "nobody publishes this\n").into_response(),
    }
}

/// What control answers, if it does in time.
async fn told<T>(site: &Site, wish: Wish, answered: oneshot::Receiver<T>) -> Option<T> {
    site.office.wishes.try_send(wish).ok()?;
    let told = tokio::time::timeout(ANSWER_TIME_MAX, answered).await;
    told.ok()?.ok()
}

fn busy() -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, "busy; ask again\n").into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_changes_something_from_another_page() {
        let headers = |own: bool, host: &str| {
            let mut headers = HeaderMap::new();
            if own {
                headers.insert(OWN_HEADER, HeaderValue::from_static("1"));
            }
            headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
            headers
        };
        for host in [
            "127.0.0.1:9554",
            "127.0.0.1",
            "[::1]:9554",
            "[::1]",
            "localhost:1",
        ] {
            assert!(is_of_own_page(&headers(true, host), true), "{host}");
            assert!(!is_of_own_page(&headers(false, host), true), "{host}");
        }
        for host in ["films.example.org:9554", "127.0.0.1.example.org", ""] {
            assert!(!is_of_own_page(&headers(true, host), true), "{host}");
            assert!(is_of_own_page(&headers(true, host), false), "{host}");
        }
    }

    #[test]
    fn proxies_say_that_they_pass_on() {
        let with = |name: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static("1.1 proxy"));
            is_passed_on(&headers)
        };
        assert!(with("via") && with("forwarded") && with("x-forwarded-for"));
        assert!(!with("host"));
    }
}
