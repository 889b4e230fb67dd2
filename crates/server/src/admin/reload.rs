//! A reload that is asked for over HTTP, by a program or on the dashboard, and how requests of the
//! API are refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequestParts, Path, Query, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::oneshot;

use super::Site;

/// How long a reload may take.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(60);

#[derive(Default, Serialize)]
pub(super) struct Reload {
    changed: Vec<String>,
}

pub(super) async fn reload(State(site): State<Arc<Site>>) -> Response {
    let (answer, answered) = oneshot::channel();
    match site.office.reloads.try_send(answer) {
        Ok(()) => {}
        Err(TrySendError::Full(_)) => {
            let text = "this server is reading its configuration file already";
            return fault(StatusCode::CONFLICT, text);
        }
        Err(TrySendError::Closed(_)) => return fault(StatusCode::CONFLICT, NOBODY_RELOADS),
    }
    match tokio::time::timeout(RELOAD_TIME_MAX, answered).await {
        Ok(Ok(Ok(changed))) => Json(Reload { changed }).into_response(),
        Ok(Ok(Err(error))) => fault(StatusCode::CONFLICT, &error),
        Ok(Err(_)) => fault(StatusCode::CONFLICT, NOBODY_RELOADS),
        Err(_) => busy(),
    }
}

const NOBODY_RELOADS: &str = "this server has no configuration file, so start it with one; or it \
    drains, and ends when nobody is left";

/// What stands behind the `?` of a request, or why that cannot be read.
pub(super) type Queried<T> = Result<Query<T>, QueryRejection>;

pub(super) fn unread(rejection: &QueryRejection) -> Response {
    fault(StatusCode::BAD_REQUEST, &rejection.body_text())
}

/// What the path of a request names. What cannot be read is refused as all else is.
#[derive(Debug)]
pub(super) struct Named(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Response> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(name)) => Ok(Self(name)),
            Err(rejection) => Err(fault(StatusCode::BAD_REQUEST, &rejection.body_text())),
        }
    }
}

/// The answer to a method that a path does not know; those that it does are in Allow.
pub(super) async fn wrong_method() -> Response {
    let text = "not with this method; see GET /api/v1";
    fault(StatusCode::METHOD_NOT_ALLOWED, text)
}

pub(super) fn busy() -> Response {
    fault(StatusCode::SERVICE_UNAVAILABLE, "busy; ask again")
}

pub(super) fn fault(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}
