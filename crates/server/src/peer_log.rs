//! Lines of the log that peers can cause: of each kind some at once, then few, and how many were
//! left out; and what peers have chosen, on one line, and not longer than a line may be.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::route::Trace;
use tracing::{debug, info};

/// Lines of one kind that peers can cause, a minute; the others are for `RUST_LOG=debug`.
pub const PEER_LOG_LINES_MAX: u32 = 20;
/// The same of viewers who are sent on to another server, each of whom has a number to be found by.
pub const TRACE_LOG_LINES_MAX: u32 = 600;
/// Characters of a name that a peer chose.
pub const PEER_NAME_CHARS_MAX: usize = 256;
/// The time in which there may be so many lines.
const LOG_TIME: Duration = Duration::from_secs(60);

/// Says whether there may be a line.
#[derive(Debug)]
pub(crate) struct Throttle {
    lines_max: u32,
    lines: Mutex<Lines>,
}

#[derive(Debug)]
struct Lines {
    /// When the time began in which `written` were.
    since: Duration,
    written: u32,
    omitted: u64,
}

/// How many lines were left out before one, which tells that at its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Omitted(u64);

impl Throttle {
    /// One for so many lines a minute.
    pub(crate) const fn new(lines_max: u32) -> Self {
        Self {
            lines_max,
            lines: Mutex::new(Lines {
                since: Duration::ZERO,
                written: 0,
                omitted: 0,
            }),
        }
    }

    /// The end of a line that there may be now; `None` if this one is left out.
    pub(crate) fn admit(&self) -> Option<Omitted> {
        self.admit_at(Duration::from_nanos(monotonic_ns()))
    }

    fn admit_at(&self, now: Duration) -> Option<Omitted> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= lines.since + LOG_TIME {
            (lines.since, lines.written) = (now, 0);
        }
        if lines.written == self.lines_max {
            lines.omitted += 1;
            return None;
        }
        lines.written += 1;
        Some(Omitted(std::mem::take(&mut lines.omitted)))
    }
}

impl fmt::Display for Omitted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            omitted => write!(f, "; {omitted} lines like this were left out before"),
        }
    }
}

/// Says in the log what becomes of a viewer who is sent on, or was.
pub(crate) fn log_trace(trace: Trace, what: fmt::Arguments<'_>) {
    static LINES: Throttle = Throttle::new(TRACE_LOG_LINES_MAX);
    match LINES.admit() {
        Some(omitted) => info!("trace {trace}: {what}{omitted}"),
        None => debug!("trace {trace}: {what}"),
    }
}

/// A name that a peer chose, as a log shows it: on one line, with nothing that steers a terminal.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(PEER_NAME_CHARS_MAX) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_what_is_left_out_is_counted() {
        let throttle = Throttle::new(PEER_LOG_LINES_MAX);
        let many = |count: u32, now| -> Vec<_> {
            (0..count).filter_map(|_| throttle.admit_at(now)).collect()
        };
        let first = many(10_000, Duration::from_secs(5));
        assert_eq!(first, vec![Omitted(0); PEER_LOG_LINES_MAX as usize]);
        assert!(many(1, LOG_TIME - Duration::from_nanos(1)).is_empty());
        let omitted = Omitted(u64::from(10_001 - PEER_LOG_LINES_MAX));
        assert_eq!(many(2, LOG_TIME), [omitted, Omitted(0)]);
        assert_eq!(Omitted(0).to_string(), "");
        assert!(omitted.to_string().starts_with("; 9981 lines "));
    }

    #[test]
    fn names_are_cut_and_steer_nothing() {
        let shown = |name: &str| Escaped(name).to_string();
        assert_eq!(shown("a\u{1b}[1m\n\"b"), r#""a\u{1b}[1m\n\"b""#);
        let name = "é".repeat(PEER_NAME_CHARS_MAX);
        assert_eq!(shown(&name), format!("\"{name}\""));
        assert_eq!(shown(&format!("{name}x")), format!("\"{name}\"..."));
    }
}
