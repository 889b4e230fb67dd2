//! A reload that is asked for over HTTP, by a program or on the dashboard, and how such requests
//! are refused.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;
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
    if site.office.reloads.try_send(answer).is_err() {
        let text = "this server has no configuration file, or is reading it already";
        return fault(StatusCode::CONFLICT, text);
    }
    match tokio::time::timeout(RELOAD_TIME_MAX, answered).await {
        Ok(Ok(Ok(changed))) => Json(Reload { changed }).into_response(),
        Ok(Ok(Err(error))) => fault(StatusCode::CONFLICT, &error),
        Ok(Err(_)) => fault(
            StatusCode::CONFLICT,
            "this server has no configuration file: start it with one",
        ),
        Err(_) => busy(),
    }
}

pub(super) fn busy() -> Response {
    fault(StatusCode::SERVICE_UNAVAILABLE, "busy; ask again")
}

pub(super) fn fault(status: StatusCode, text: &str) -> Response {
    (status, Json(json!({ "error": text }))).into_response()
}
