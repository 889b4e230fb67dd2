//! The time of day, written as HTTP does once a second.

use std::cell::RefCell;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_wire::calendar::clamped;

/// Keeps the last date that was written.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    date: RefCell<(u64, String)>,
}

impl Clock {
    /// Now, in ms since 1970.
    pub(crate) fn now_ms() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
    }

    /// Calls `with` with the seconds since 1970 and the date of now.
    pub(crate) fn with_now<T>(&self, with: impl FnOnce(u64, &str) -> T) -> T {
        let now_s = Self::now_ms() / 1000;
        let mut date = self.date.borrow_mut();
        if date.0 != now_s || date.1.is_empty() {
            *date = (now_s, http_date(now_s.cast_signed()));
        }
        with(now_s, &date.1)
    }
}

/// As HTTP writes a time; one that it cannot write becomes the nearest that it can.
pub(crate) fn http_date(seconds: i64) -> String {
    let since = Duration::from_secs(clamped(seconds).cast_unsigned());
    httpdate::fmt_http_date(UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_that_of_now() {
        let clock = Clock::default();
        for _ in 0..2 {
            clock.with_now(|now_s, date| assert_eq!(date, http_date(now_s.cast_signed())));
        }
        assert_eq!(http_date(-5), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(i64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
