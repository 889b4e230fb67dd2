//! Lines of the log that peers can cause: some at once, then few, and how many were left out.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Lines of handshakes that failed, a minute; the others are for `RUST_LOG=debug`.
pub const TLS_LOG_LINES_MAX: u32 = 20;
/// The time in which there may be so many.
const TLS_LOG_TIME: Duration = Duration::from_secs(60);

/// Says whether there may be a line.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    /// When the time began in which `written` were.
    since: Duration,
    written: u32,
    omitted: u64,
}

impl Throttle {
    /// How many were left out before this one; `None` if this is left out, too. `now` is since the
    /// start.
    pub(super) fn admit(&self, now: Duration) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= lines.since + TLS_LOG_TIME {
            (lines.since, lines.written) = (now, 0);
        }
        if lines.written == TLS_LOG_LINES_MAX {
            lines.omitted += 1;
            return None;
        }
        lines.written += 1;
        Some(std::mem::take(&mut lines.omitted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_what_is_left_out_is_counted() {
        let throttle = Throttle::default();
        let many = |count: u32, now| -> Vec<_> {
            (0..count).filter_map(|_| throttle.admit(now)).collect()
        };
        let first = many(10_000, Duration::from_secs(5));
        assert_eq!(first, vec![0; TLS_LOG_LINES_MAX as usize]);
        assert_eq!(many(1, TLS_LOG_TIME - Duration::from_nanos(1)), [0_u64; 0]);
        let omitted = u64::from(10_001 - TLS_LOG_LINES_MAX);
        assert_eq!(many(2, TLS_LOG_TIME), [omitted, 0]);
    }
}
