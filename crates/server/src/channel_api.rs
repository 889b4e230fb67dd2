//! The control API: HTTP and JSON, for programs of whoever runs the channels.
//!
//! | request | does |
//! |---|---|
//! | `GET /health` | 200 while every stream is heard, 503 otherwise; needs no token |
//! | `GET /sources` | the streams and their counters, each a [`status::Channel`] |
//! | `GET /sources/NAME` | one of them |
//! | `GET /sources/NAME/members` | its members, where they stand, what each was sent |
//! | `POST /sources/NAME/members` | adds `{"members": ["10.0.0.7:5004"]}` |
//! | `DELETE /sources/NAME/members` | removes such a list |
//! | `PUT /sources/NAME/members` | makes such a list the API's whole list, in one step |
//!
//! All but `/health` want `Authorization: Bearer TOKEN`. A list is taken whole or not at all; one
//! with a member from which datagrams would come back to their source is refused with 409 and the
//! way round.

use std::collections::HashMap;
use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::debug;

use crate::admin::listen::{Bounds, answer};
use crate::admin::status;
use crate::channels::members::{Change, MemberError, Origin, parse_member};
use crate::channels::{
    Channel, ChannelError, ChannelState, ChannelsConfig, MemberCounts, listen, start_error,
};
use crate::listening::{Draining, ListeningSockets, Service};

/// Connections at once; more wait to be accepted.
pub const API_CONNECTIONS_MAX: usize = 64;

/// Bytes of a request's body: room for as many members as there may be.
pub const API_BODY_BYTES_MAX: usize = 4 << 20;

/// What all requests see.
#[derive(Debug)]
struct Api {
    channels: HashMap<String, Arc<Channel>>,
    /// Their names, in the order in which they were given.
    names: Vec<String>,
    token: String,
}

type Shared = Arc<Api>;

/// What a request brings.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    members: Vec<String>,
}

/// A member in an answer.
#[derive(Debug, Serialize)]
struct Member {
    address: SocketAddr,
    stands: Vec<Origin>,
    packets: u64,
    refused: u64,
}

/// A request that is refused: the status, and why.
#[derive(Debug)]
struct Refusal(StatusCode, String);

/// The control API of a server's channels, if it is to have one: it listens already, and answers
/// once it is [spawned](Self::spawn).
#[derive(Debug)]
pub(crate) struct ChannelApi {
    listener: Option<std::net::TcpListener>,
    address: Option<SocketAddr>,
    token: String,
}

impl ChannelApi {
    /// Listens where `config` says.
    pub(crate) fn open(
        config: &ChannelsConfig,
        sockets: &mut ListeningSockets,
    ) -> Result<Self, ChannelError> {
        let listener = config.api_address;
        let listener = listener.map(|address| listen(address, Service::Api, sockets));
        let listener = listener.transpose()?;
        let address = listener.as_ref().map(std::net::TcpListener::local_addr);
        Ok(Self {
            address: address.transpose().map_err(start_error("listening"))?,
            listener,
            token: config.token.clone(),
        })
    }

    /// Where it listens.
    pub(crate) const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Answers in a task of `beside`, until that is ended or nobody more is to come; from the time
    /// at which the server before this one has `told` its members, if there is one.
    pub(crate) fn spawn(
        self,
        (channels, told): (Vec<Arc<Channel>>, Option<oneshot::Receiver<()>>),
        draining: Draining,
        beside: &mut JoinSet<()>,
    ) {
        if let Some(listener) = self.listener {
            let listener = TcpListener::from_std(listener).expect("a runtime with I/O");
            beside.spawn_local(async move {
                if let Some(told) = told {
                    // It is dropped when that has come to an end, whichever.
                    told.await.ok();
                }
                tokio::select! {
                    () = serve(listener, channels, self.token) => {}
                    () = draining.begins() => {}
                }
            });
        }
    }
}

/// Answers until it is dropped.
async fn serve(listener: TcpListener, channels: Vec<Arc<Channel>>, token: String) {
    let names = channels.iter().map(|channel| channel.name().to_owned());
    let names: Vec<_> = names.collect();
    let api = Arc::new(Api {
        channels: names.iter().cloned().zip(channels).collect(),
        names,
        token,
    });
    let bounds = Bounds {
        connections_max: API_CONNECTIONS_MAX,
        request_time_max: REQUEST_TIME_MAX,
        connection_time_max: CONNECTION_TIME_MAX,
    };
    answer(listener, router(api), bounds).await;
}

fn router(api: Shared) -> Router {
    let members = get(members).post(add).put(replace).delete(remove);
    let behind_token = Router::new()
        .route("/sources", get(sources))
        .route("/sources/{name}", get(source))
        .route("/sources/{name}/members", members)
        .layer(from_fn_with_state(Arc::clone(&api), authorised));
    Router::new()
        .route("/health", get(health))
        .merge(behind_token)
        .fallback(async || {
            Refusal(
                StatusCode::NOT_FOUND,
                "nothing here; see /sources".to_owned(),
            )
        })
        .method_not_allowed_fallback(async || {
            let why = "this cannot be done to it".to_owned();
            Refusal(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        .layer(DefaultBodyLimit::max(API_BODY_BYTES_MAX))
        .with_state(api)
}

async fn authorised(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| is_same(given, api.token.as_bytes())) {
        return next.run(request).await;
    }
    let why = "send Authorization: Bearer TOKEN".to_owned();
    let mut refusal = Refusal(StatusCode::UNAUTHORIZED, why).into_response();
    let scheme = header::HeaderValue::from_static("Bearer");
    refusal
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, scheme);
    refusal
}

async fn health(State(api): State<Shared>) -> (StatusCode, Json<Value>) {
    let states = api.channels.values().map(|channel| channel.state());
    let unheard = states.filter(|state| *state != ChannelState::Live).count();
    let (code, word) = match unheard {
        0 => (StatusCode::OK, "ok"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "silent"),
    };
    let sources = api.names.len();
    (
        code,
        Json(json!({ "status": word, "sources": sources, "silent": unheard })),
    )
}

async fn sources(State(api): State<Shared>) -> Json<Value> {
    let all = api.names.iter().filter_map(|name| api.channels.get(name));
    let all: Vec<_> = all.map(|channel| status::Channel::now(channel)).collect();
    Json(json!({ "sources": all }))
}

async fn source(
    State(api): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<status::Channel>, Refusal> {
    Ok(Json(status::Channel::now(api.channel(&name)?)))
}

async fn members(
    State(api): State<Shared>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    let channel = api.channel(&name)?;
    let counts = channel.count_members().await.unwrap_or_default();
    let counts: HashMap<_, _> = counts.into_iter().map(|c| (c.address, c)).collect();
    let list = channel.members();
    let members = list.iter().map(|address| {
        let count = counts.get(&address);
        let MemberCounts {
            packets, refused, ..
        } = count.copied().unwrap_or(MemberCounts {
            address,
            packets: 0,
            refused: 0,
        });
        Member {
            address,
            stands: list.origins(&address),
            packets,
            refused,
        }
    });
    Ok(Json(json!({ "members": members.collect::<Vec<_>>() })))
}

async fn add(
    State(api): State<Shared>,
    Path(name): Path<String>,
    list: Result<Json<List>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let channel = api.channel(&name)?;
    changed(channel, "added", channel.add(&read(list)?))
}

async fn remove(
    State(api): State<Shared>,
    Path(name): Path<String>,
    list: Result<Json<List>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let channel = api.channel(&name)?;
    changed(channel, "removed", channel.remove(&read(list)?))
}

async fn replace(
    State(api): State<Shared>,
    Path(name): Path<String>,
    list: Result<Json<List>, JsonRejection>,
) -> Result<Json<Value>, Refusal> {
    let channel = api.channel(&name)?;
    let list = read(list)?;
    changed(channel, "replaced", channel.replace(Origin::Api, &list))
}

impl Api {
    fn channel(&self, name: &str) -> Result<&Arc<Channel>, Refusal> {
        self.channels
            .get(name)
            .ok_or_else(|| Refusal(StatusCode::NOT_FOUND, "no source has this name".to_owned()))
    }
}

fn read(list: Result<Json<List>, JsonRejection>) -> Result<Vec<SocketAddr>, Refusal> {
    let Json(List { members }) =
        list.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))?;
    let members = members.iter().map(|text| parse_member(text));
    Ok(members.collect::<Result<_, _>>()?)
}

fn changed(
    channel: &Channel,
    how: &str,
    change: Result<Change, MemberError>,
) -> Result<Json<Value>, Refusal> {
    let change = change?;
    let (added, removed) = (change.added.len(), change.removed.len());
    if !change.is_empty() {
        debug!(
            "source {}: {how} by the API: {added} came, {removed} went",
            channel.name()
        );
    }
    let members = channel.members().len();
    Ok(Json(
        json!({ "added": added, "removed": removed, "members": members }),
    ))
}

/// Compares in a time that tells nothing but the length.
fn is_same(given: &[u8], wanted: &[u8]) -> bool {
    let differences = given
        .iter()
        .zip(wanted)
        .fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    given.len() == wanted.len() && differences == 0 && !wanted.is_empty()
}

impl From<MemberError> for Refusal {
    fn from(error: MemberError) -> Self {
        let status = match error {
            MemberError::Syntax { .. } | MemberError::Address { .. } => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            MemberError::TooMany => StatusCode::INSUFFICIENT_STORAGE,
            MemberError::NotYours { .. } | MemberError::Cycle { .. } => StatusCode::CONFLICT,
            MemberError::Unknown { .. } => StatusCode::NOT_FOUND,
            MemberError::HandedOver => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, error) = self;
        (status, Json(json!({ "error": error }))).into_response()
    }
}

const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_the_same_or_not() {
        assert!(is_same(b"secret", b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"Secret", b"secreT"] {
            assert!(!is_same(wrong, b"secret"));
        }
        assert!(!is_same(b"", b""), "no token opens nothing");
    }
}
