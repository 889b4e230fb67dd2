//! The API of whoever runs the server: HTTP and JSON beneath `/api/v1`, at the address of metrics.
//!
//! What there is to ask stands in one table: [`OPERATIONS`] has the routes, and the description
//! (OpenAPI 3.1) that `GET /api/v1` answers is made of it. Rights are those of the dashboard.
//! Errors are `{"error": TEXT}`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete as remove, get, post, put};
use axum::{Json, Router};
use onrush_wire::rtsp::RedirectTarget;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::info;

use super::Site;
use super::channel_list::channels;
use super::cluster;
use super::dashboard::{Which, end_session, guard, list_sessions};
use super::reload::{Named, Queried, busy, fault, reload, unread, wrong_method};

/// One thing that can be asked.
struct Operation {
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    /// What may stand behind `?`, with its meaning.
    parameters: &'static [(&'static str, &'static str)],
    /// The schema of the answer; none where it is empty.
    answer: Option<&'static str>,
    route: fn() -> MethodRouter<Arc<Site>>,
}

const OPERATIONS: &[Operation] = &[
    Operation {
        method: "get",
        path: "/api/v1",
        summary: "This description",
        parameters: &[],
        answer: Some("Description"),
        route: || get(async || Json(description())),
    },
    Operation {
        method: "get",
        path: "/api/v1/sessions",
        summary: "Sessions, in the order of their numbers",
        parameters: &[
            ("find", "What the client's address or the film has in it"),
            ("first", "How many of those are left out, from the first on"),
        ],
        answer: Some("Sessions"),
        route: || get(sessions),
    },
    Operation {
        method: "delete",
        path: "/api/v1/sessions/{id}",
        summary: "End a session",
        parameters: &[],
        answer: None,
        route: || remove(end),
    },
    Operation {
        method: "get",
        path: "/api/v1/channels",
        summary: "Live channels",
        parameters: &[],
        answer: Some("Channels"),
        route: || get(channels),
    },
    Operation {
        method: "delete",
        path: "/api/v1/publishers/{channel}",
        summary: "Let the publisher of a channel go; it may come again",
        parameters: &[],
        answer: None,
        route: || remove(dismiss),
    },
    Operation {
        method: "get",
        path: "/api/v1/limits",
        summary: "Limits that a reload may change",
        parameters: &[],
        answer: Some("Limits"),
        route: || get(limits),
    },
    Operation {
        method: "get",
        path: "/api/v1/drain",
        summary: "Whether sessions are taken, and whether the last has ended",
        parameters: &[],
        answer: Some("Drain"),
        route: || get(drain),
    },
    Operation {
        method: "put",
        path: "/api/v1/drain",
        summary: "Take no session more (453) and no connection for downloads (503), or send all to \
                  another server (302, 307, REDIRECT)",
        parameters: &[(
            "to",
            "That server, as in rtsp://192.0.2.8:8554/; without it the one that drain_to names",
        )],
        answer: Some("Drain"),
        route: || put(begin_drain),
    },
    Operation {
        method: "delete",
        path: "/api/v1/drain",
        summary: "Take sessions again",
        parameters: &[],
        answer: Some("Drain"),
        route: || remove(end_drain),
    },
    Operation {
        method: "get",
        path: "/api/v1/cluster",
        summary: "All nodes of the cluster",
        parameters: &[],
        answer: Some("Cluster"),
        route: || get(cluster::nodes),
    },
    Operation {
        method: "delete",
        path: "/api/v1/cluster/{node}",
        summary: "Have the registry forget a node; one that is alive registers again",
        parameters: &[],
        answer: None,
        route: || remove(cluster::forget),
    },
    Operation {
        method: "post",
        path: "/api/v1/reload",
        summary: "Take what the configuration file says now: all of it, or nothing",
        parameters: &[],
        answer: Some("Reload"),
        route: || post(reload),
    },
];

/// A schema: its name, and its fields with their types and meanings.
type Schema = (
    &'static str,
    &'static [(&'static str, &'static str, &'static str)],
);

/// A type is one of JSON's, one with `?` behind it that may be null, or `[NAME]`: a list of these.
const SCHEMAS: &[Schema] = &[
    ("Description", &[]),
    (
        "Error",
        &[("error", "string", "What went wrong, and what to do")],
    ),
    (
        "Sessions",
        &[
            ("all", "integer", "How many there are"),
            ("found", "integer", "How many of them were meant"),
            (
                "sessions",
                "[Session]",
                "Those from `first` on, at most 200",
            ),
        ],
    ),
    (
        "Session",
        &[
            (
                "id",
                "string",
                "What names it here; it gives no right to it",
            ),
            ("client", "string", "The address of its client"),
            ("film", "string", "What it plays"),
            ("transport", "string", "udp, tcp, srtp, live or multicast"),
            ("state", "string", "ready, playing, ended or leaving"),
            (
                "position_s",
                "number?",
                "Where in the film it is, in seconds",
            ),
            (
                "lost",
                "integer?",
                "Packets that its client lost, of its worst track",
            ),
            (
                "lost_ratio",
                "number?",
                "Of the packets before its last report, the part lost",
            ),
            (
                "jitter_ms",
                "number?",
                "Variation of the packets' travel time",
            ),
        ],
    ),
    ("Channels", &[("channels", "[Channel]", "All of them")]),
    (
        "Channel",
        &[
            ("path", "string", "Its path in URLs"),
            ("kind", "string", "input, pulled or published"),
            ("source", "string?", "Where it comes from"),
            ("error", "string?", "Why a pulled one could not be had last"),
            ("active", "string?", "Whose packets players get"),
            ("standby", "string?", "Who stands by"),
            ("switches", "integer", "Times that the standby took over"),
        ],
    ),
    (
        "Limits",
        &[
            ("sessions_max", "integer", "Sessions at once"),
            (
                "sessions_per_address_max",
                "integer",
                "Of them from one address, or /64 of IPv6",
            ),
            ("connections_max", "integer", "RTSP connections at once"),
            (
                "connections_per_address_max",
                "integer",
                "Of them from one address, or /64 of IPv6",
            ),
        ],
    ),
    (
        "Drain",
        &[
            ("is_draining", "boolean", "Whether no session more is taken"),
            ("to", "string?", "The server that clients are sent on to"),
            ("sessions", "integer", "Sessions that there are"),
            (
                "transfers",
                "integer",
                "HTTP and FTP requests under way; 1 for films in segments",
            ),
            ("is_empty", "boolean", "Whether there is neither"),
        ],
    ),
    (
        "Cluster",
        &[
            ("cluster", "string", "The cluster's name"),
            ("node", "string", "The name of this node"),
            (
                "is_registered",
                "boolean",
                "Whether the registry is reached",
            ),
            ("error", "string?", "Why it is not"),
            ("nodes", "[Node]", "All that are known, this one among them"),
            (
                "channels",
                "[ClusterChannel]",
                "Channels that come to a node, as far as is known",
            ),
            (
                "ignored",
                "[IgnoredEntry]",
                "What the registry holds and is no entry",
            ),
        ],
    ),
    (
        "ClusterChannel",
        &[
            ("channel", "string", "Its path in URLs"),
            ("node", "string", "The node that it comes to"),
            ("is_this", "boolean", "Whether that is this one"),
            (
                "lease",
                "integer?",
                "By which lease; none while there is none",
            ),
            ("standby", "string?", "The node that has a standby of it"),
            (
                "pulled_from",
                "string?",
                "The node that this one takes it from",
            ),
            ("pulled_by", "integer", "Nodes that take it from this one"),
        ],
    ),
    (
        "Node",
        &[
            ("node", "string", "Its name"),
            ("is_this", "boolean", "Whether it is this one"),
            ("accepts", "boolean", "Whether it takes viewers"),
            ("version", "string", "Of its program"),
            ("sessions", "integer", "Sessions of RTSP"),
            (
                "load_bps",
                "integer",
                "What it plays, by its own account, in bits a second",
            ),
            ("capacity_bps", "integer", "What it can play"),
            ("rtsp", "string?", "HOST:PORT, if it serves that"),
            ("rtsps", "string?", "HOST:PORT, if it serves that"),
            ("http", "string?", "HOST:PORT, if it serves that"),
            ("https", "string?", "HOST:PORT, if it serves that"),
            ("films", "integer", "Films that it plays much of"),
        ],
    ),
    (
        "IgnoredEntry",
        &[
            ("key", "string", "Its key"),
            ("reason", "string", "Why it is ignored"),
        ],
    ),
    (
        "Reload",
        &[(
            "changed",
            "[string]",
            "The keys that say something else now",
        )],
    ),
];

#[derive(Default, Serialize)]
struct Limits {
    sessions_max: usize,
    sessions_per_address_max: usize,
    connections_max: usize,
    connections_per_address_max: usize,
}

#[derive(Default, Serialize)]
struct Drain {
    is_draining: bool,
    to: Option<String>,
    sessions: usize,
    transfers: u64,
    is_empty: bool,
}

pub(super) fn router(site: &Arc<Site>) -> Router<Arc<Site>> {
    let route = |router: Router<Arc<Site>>, operation: &Operation| {
        // A channel's path has slashes.
        let path = operation.path.replace("{channel}", "{*channel}");
        router.route(&path, (operation.route)())
    };
    let router = OPERATIONS.iter().fold(Router::new(), route);
    let router = router.method_not_allowed_fallback(wrong_method);
    router.layer(from_fn_with_state(Arc::clone(site), guard))
}

async fn sessions(State(site): State<Arc<Site>>, which: Queried<Which>) -> Response {
    let which = match which {
        Ok(Query(which)) => which,
        Err(rejection) => return unread(&rejection),
    };
    match list_sessions(&site, which).await {
        Some(roster) => Json(roster).into_response(),
        None => busy(),
    }
}

async fn end(State(site): State<Arc<Site>>, Named(id): Named) -> Response {
    match end_session(&site, &id).await {
        Some(true) => StatusCode::NO_CONTENT.into_response(),
        Some(false) => fault(StatusCode::NOT_FOUND, "there is no such session"),
        None => busy(),
    }
}

async fn dismiss(State(site): State<Arc<Site>>, Named(channel): Named) -> Response {
    match site.watched.published.dismiss(&channel) {
        true => {
            info!("channel {channel}: its publisher is let go by the API");
            StatusCode::NO_CONTENT.into_response()
        }
        false => fault(StatusCode::NOT_FOUND, "nobody publishes this"),
    }
}

async fn limits(State(site): State<Arc<Site>>) -> Json<Limits> {
    let bounds = &site.watched.statistics.bounds;
    Json(Limits {
        sessions_max: bounds.sessions_max.load(Ordering::Relaxed),
        sessions_per_address_max: bounds.sessions_per_address_max.load(Ordering::Relaxed),
        connections_max: bounds.connections_max.load(Ordering::Relaxed),
        connections_per_address_max: bounds.connections_per_address_max.load(Ordering::Relaxed),
    })
}

async fn drain(State(site): State<Arc<Site>>) -> Json<Drain> {
    let statistics = &site.watched.statistics;
    let sessions = statistics.sessions.load(Ordering::Relaxed);
    let downloads = site.watched.downloads.as_ref();
    let transfers = downloads.map_or(0, |stats| stats.left(&statistics.drain));
    Json(Drain {
        is_draining: statistics.drain.is_on(),
        to: statistics.drain.redirection().map(|it| it.to.to_string()),
        sessions,
        transfers,
        is_empty: sessions == 0 && transfers == 0,
    })
}

/// Where a drain sends clients on to.
#[derive(Debug, Deserialize)]
struct Onward {
    to: Option<String>,
}

async fn begin_drain(State(site): State<Arc<Site>>, onward: Queried<Onward>) -> Response {
    let onward = match onward {
        Ok(Query(onward)) => onward,
        Err(rejection) => return unread(&rejection),
    };
    let to = onward.to.map(|to| to.parse::<RedirectTarget>()).transpose();
    match to {
        Ok(to) => {
            site.watched.statistics.drain.begin(to);
            drain(State(site)).await.into_response()
        }
        Err(error) => fault(StatusCode::BAD_REQUEST, &format!("to: {error}")),
    }
}

async fn end_drain(State(site): State<Arc<Site>>) -> Json<Drain> {
    site.watched.statistics.drain.end();
    drain(State(site)).await
}

/// The API in words of OpenAPI.
fn description() -> Value {
    let mut paths = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described(operation);
    }
    let schemas = SCHEMAS.iter().map(|(name, fields)| {
        let of_fields = fields.iter().map(|&(name, kind, meaning)| {
            let mut field = typed(kind);
            field["description"] = json!(meaning);
            (name.to_owned(), field)
        });
        let required: Vec<_> = fields.iter().map(|(name, ..)| name).collect();
        let schema = json!({
            "type": "object",
            "properties": of_fields.collect::<Map<_, _>>(),
            "required": required,
        });
        ((*name).to_owned(), schema)
    });
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Onrush", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": { "schemas": schemas.collect::<Map<_, _>>() },
    })
}

fn described(operation: &Operation) -> Value {
    let in_path = operation.path.split('{').skip(1);
    let in_path = in_path.filter_map(|rest| rest.split('}').next());
    let of_path = in_path.map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let of_query = operation.parameters.iter().map(|(name, meaning)| {
        json!({
            "name": name, "in": "query", "description": meaning, "schema": { "type": "string" },
        })
    });
    let of_header = (operation.method != "get").then(|| {
        json!({
            "name": "X-Onrush", "in": "header", "required": true, "schema": { "type": "string" },
            "description": "Anything: what pages of other sites cannot send",
        })
    });
    let parameters: Vec<_> = of_path.chain(of_query).chain(of_header).collect();
    let content = |name: &str| {
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        json!({ "application/json": { "schema": schema } })
    };
    let (status, done) = match operation.answer {
        Some(name) => (
            "200",
            json!({ "description": "Done", "content": content(name) }),
        ),
        None => ("204", json!({ "description": "Done" })),
    };
    json!({
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            status: done,
            "401": { "description": "Log in", "content": content("Error") },
            "403": {
                "description": "Not for this user, not from this machine, or without X-Onrush",
                "content": content("Error"),
            },
            "default": { "description": "Not done", "content": content("Error") },
        },
    })
}

fn typed(kind: &str) -> Value {
    if let Some(name) = kind.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        let item = match SCHEMAS.iter().any(|(schema, _)| *schema == name) {
            true => json!({ "$ref": format!("#/components/schemas/{name}") }),
            false => json!({ "type": name }),
        };
        return json!({ "type": "array", "items": item });
    }
    match kind.strip_suffix('?') {
        Some(kind) => json!({ "type": [kind, "null"] }),
        None => json!({ "type": kind }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel_list::{ChannelRow, Channels};
    use super::super::reload::Reload;
    use super::*;
    use crate::watching::{Roster, SessionRow};

    /// Whoever adds a field describes it.
    #[test]
    fn every_field_of_an_answer_is_described() {
        let row = SessionRow {
            id: String::new(),
            client: String::new(),
            film: String::new(),
            transport: "udp",
            state: "ready",
            position_s: None,
            lost: None,
            lost_ratio: None,
            jitter_ms: None,
        };
        let answers = [
            ("Sessions", serde_json::to_value(Roster::default())),
            ("Session", serde_json::to_value(row)),
            ("Channels", serde_json::to_value(Channels::default())),
            ("Channel", serde_json::to_value(ChannelRow::default())),
            ("Limits", serde_json::to_value(Limits::default())),
            ("Drain", serde_json::to_value(Drain::default())),
            ("Cluster", serde_json::to_value(cluster::Nodes::default())),
            ("Node", serde_json::to_value(cluster::Node::default())),
            (
                "ClusterChannel",
                serde_json::to_value(cluster::ClusterChannel::default()),
            ),
            (
                "IgnoredEntry",
                serde_json::to_value(cluster::Ignored::default()),
            ),
            ("Reload", serde_json::to_value(Reload::default())),
            ("Error", Ok(json!({ "error": "" }))),
            ("Description", Ok(json!({}))),
        ];
        assert_eq!(answers.len(), SCHEMAS.len());
        for (name, answer) in answers {
            let answer = answer.unwrap();
            let mut fields: Vec<_> = answer.as_object().unwrap().keys().cloned().collect();
            let schema = SCHEMAS.iter().find(|(schema, _)| *schema == name).unwrap();
            let described = schema.1.iter().map(|(field, ..)| (*field).to_owned());
            let mut described: Vec<_> = described.collect();
            fields.sort();
            described.sort();
            assert_eq!(fields, described, "{name}");
        }
    }

    #[test]
    fn the_description_names_only_what_it_has() {
        let description = description();
        let text = description.to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(
                description["components"]["schemas"][name].is_object(),
                "{name}"
            );
        }
        for operation in OPERATIONS {
            let described = &description["paths"][operation.path][operation.method];
            assert_eq!(described["summary"], operation.summary);
            let mut parameters = described["parameters"].as_array().unwrap().iter();
            let has_header = parameters.any(|it| it["name"] == "X-Onrush" && it["in"] == "header");
            assert_eq!(has_header, operation.method != "get", "{}", operation.path);
        }
    }
}
