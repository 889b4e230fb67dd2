//! What clients are told whom the engine or the network cannot serve.

use std::fmt::Display;
use std::io;

use onrush_wire::rtsp::{Reply, StatusCode};
use tracing::{debug, info};

use crate::engine::EngineError;
use crate::peer_log::{PEER_LOG_LINES_MAX, Throttle};

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
        log_refused(error);
    }
    Reply::refusal(status, &error.to_string())
}

/// Says in the log that a session is refused.
pub(super) fn log_refused(why: impl Display) {
    static LINES: Throttle = Throttle::new(PEER_LOG_LINES_MAX);
    match LINES.admit() {
        Some(omitted) => info!("a session is refused: {why}{omitted}"),
        None => debug!("a session is refused: {why}"),
    }
}

/// What a client is told that no pair of ports reaches.
pub(super) fn no_ports(error: &io::Error) -> Reply {
    let note = match error.raw_os_error() {
        None if error.kind() == io::ErrorKind::AddrInUse => {
            "no pair of UDP ports is free".to_owned()
        }
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
            return unavailable(error);
        }
        _ => {
            let note = format!("your UDP ports cannot be reached: {error}");
            return Reply::refusal(StatusCode::UnsupportedTransport, &note);
        }
    };
    Reply::refusal(StatusCode::ServiceUnavailable, &note)
}

/// What a client is told that there is no socket for.
pub(super) fn unavailable(error: &io::Error) -> Reply {
    let note = format!("no UDP socket: {error}");
    Reply::refusal(StatusCode::ServiceUnavailable, &note)
}
