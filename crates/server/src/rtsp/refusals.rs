//! What clients are told whom the engine cannot serve.

use onrush_wire::rtsp::{Reply, StatusCode};
use tracing::info;

use crate::engine::EngineError;

/// What a client is told that the engine cannot serve.
pub(super) fn refusal(error: &EngineError) -> Reply {
    let status = match error {
        EngineError::Full { .. }
        | EngineError::Overload { .. }
        | EngineError::Late
        | EngineError::CacheFull { .. } => StatusCode::NotEnoughBandwidth,
        EngineError::Media { .. } => StatusCode::Gone,
        EngineError::Interleaving => StatusCode::UnsupportedTransport,
        EngineError::Slow | EngineError::Busy | EngineError::Stopped | EngineError::Socket(_) => {
            StatusCode::ServiceUnavailable
        }
    };
    if status == StatusCode::NotEnoughBandwidth {
        info!("a session is refused: {error}");
    }
    Reply::refusal(status, &error.to_string())
}
