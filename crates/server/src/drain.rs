//! A drain: no session more is taken, and who is there can be sent on to another server.
//!
//! It is begun and ended on any thread, by the API or a signal, and looked at by all services. The
//! lock is taken only while a drain is on.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use onrush_wire::route::Trace;
use onrush_wire::rtsp::RedirectTarget;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tracing::info;

use crate::peer_log::log_trace;
use crate::random::random;

/// Longer than films: what an upgrade promises viewers holds for so long, and then the server ends.
const TIME_MAX_DEFAULT: Duration = Duration::from_secs(6 * 3600);

/// Where clients are sent on to when a server drains, and how long those may stay that do not go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DrainConfig {
    /// Another server: by default nobody is sent on. Who comes is answered 302 or 307, each session
    /// of RTSP gets a REDIRECT.
    pub to: Option<RedirectTarget>,
    /// How long sessions that were sent on, or whose server was replaced, may play on here: six
    /// hours by default. Most players do not understand REDIRECT; then their sessions end.
    pub time_max: Duration,
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self {
            to: None,
            time_max: TIME_MAX_DEFAULT,
        }
    }
}

/// Whether the server drains, and whom it sends where.
#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Set once, at the start.
    config: OnceLock<DrainConfig>,
    is_on: AtomicBool,
    /// How often clients were sent on.
    rounds: AtomicU8,
    redirection: RwLock<Option<Arc<Redirection>>>,
    /// Somebody is to be sent on.
    begun: Notify,
}

/// A drain that sends clients on.
#[derive(Debug)]
pub(crate) struct Redirection {
    pub(crate) to: RedirectTarget,
    /// Which it is, so that each session is told once; never 0.
    pub(crate) round: u8,
    /// When what is left is to end.
    until: Instant,
}

impl Redirection {
    /// Whether those who have not gone have stayed for too long.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// What `peer` is called here and there, who is sent on for `path`: what it is called already,
    /// or a new number. Says so in the log.
    pub(crate) fn trace(&self, known: Option<Trace>, peer: IpAddr, path: impl Display) -> Trace {
        let trace = known.unwrap_or_else(|| Trace::new(u64::from_ne_bytes(random())));
        let to = &self.to;
        log_trace(trace, format_args!("{peer} is sent on for {path} to {to}"));
        trace
    }
}

impl Drain {
    /// Takes what is said of drains, once.
    pub(crate) fn configure(&self, config: DrainConfig) {
        self.config.get_or_init(|| config);
    }

    /// Takes no session more, and sends clients on to another server: `to` that, or else to the one
    /// of the configuration, if it names one. Whether anything has changed by that.
    pub(crate) fn begin(&self, to: Option<RedirectTarget>) -> bool {
        let DrainConfig {
            to: usual,
            time_max,
        } = self.config.get().cloned().unwrap_or_default();
        let to = to.or(usual);
        let mut redirection = self.write();
        let was_on = self.is_on.load(Ordering::Relaxed);
        if was_on && redirection.as_ref().map(|it| &it.to) == to.as_ref() {
            return false;
        }
        match &to {
            Some(to) => info!("drain: no session more is taken; clients are sent on to {to}"),
            None => info!("drain: no session more is taken; those that there are play on"),
        }
        *redirection = to.map(|to| {
            let last = self.rounds.load(Ordering::Relaxed);
            let round = last.checked_add(1).unwrap_or(1);
            self.rounds.store(round, Ordering::Relaxed);
            let until = Instant::now() + time_max;
            Arc::new(Redirection { to, round, until })
        });
        drop(redirection);
        // What it is about is seen by whoever sees this.
        self.is_on.store(true, Ordering::Release);
        self.begun.notify_waiters();
        true
    }

    /// Takes sessions again; whether it did not.
    pub(crate) fn end(&self) -> bool {
        *self.write() = None;
        let was_on = self.is_on.swap(false, Ordering::Release);
        if was_on {
            info!("drain: sessions are taken again");
        }
        was_on
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Where clients are sent on to, if they are.
    pub(crate) fn redirection(&self) -> Option<Arc<Redirection>> {
        if !self.is_on() {
            return None;
        }
        let redirection = self.redirection.read();
        redirection.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends when clients are to be sent on, from now on.
    pub(crate) fn begun(&self) -> Notified<'_> {
        self.begun.notified()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Option<Arc<Redirection>>> {
        let redirection = self.redirection.write();
        redirection.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Option<RedirectTarget> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn a_drain_has_a_round_for_each_place_and_none_without() {
        let drain = Drain::default();
        assert!(!drain.is_on() && drain.redirection().is_none());
        assert!(drain.begin(None));
        assert!(drain.is_on() && drain.redirection().is_none());
        assert!(!drain.begin(None));
        let mut round = 0;
        for (place, is_new) in [
            ("rtsp://b/", true),
            ("rtsp://b/", false),
            ("rtsp://c/", true),
        ] {
            assert_eq!(drain.begin(target(place)), is_new, "{place}");
            let redirection = drain.redirection().unwrap();
            assert_eq!(redirection.to.to_string(), place);
            assert_eq!(redirection.round != round, is_new);
            assert!(!redirection.is_over());
            round = redirection.round;
        }
        assert!(drain.end() && !drain.end());
        assert!(drain.redirection().is_none());
    }

    #[test]
    fn a_film_ends_before_the_server_that_was_replaced() {
        let longest = Duration::from_secs(4 * 3600);
        assert!(DrainConfig::default().time_max > longest);
    }

    #[test]
    fn what_is_configured_holds_where_nothing_is_said() {
        let drain = Drain::default();
        drain.configure(DrainConfig {
            to: target("rtsp://b/"),
            time_max: Duration::ZERO,
        });
        // However often: a session that was never told has round 0.
        for _ in 0..300 {
            assert!(drain.begin(None));
            let redirection = drain.redirection().unwrap();
            assert!(redirection.round != 0 && redirection.is_over());
            assert_eq!(Some(redirection.to.clone()), target("rtsp://b/"));
            drain.end();
        }
        assert!(drain.begin(target("rtsp://c/")));
        assert_eq!(
            Some(drain.redirection().unwrap().to.clone()),
            target("rtsp://c/")
        );
    }

    #[tokio::test]
    async fn who_waits_is_woken_and_who_comes_later_sees_it() {
        let drain = Drain::default();
        let begun = drain.begun();
        drain.begin(target("rtsp://b/"));
        begun.await;
        assert!(drain.redirection().is_some());
    }
}
