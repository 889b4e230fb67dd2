//! Who has been sent on, and comes again: players that know no redirects.
//!
//! A player that follows does not ask here for the same a moment later. One that does was sent on
//! in vain, and is served. It is known by its address, its program's name and what it asks for, so
//! that of several viewers behind one address who watch the same with the same program some are
//! served here, too; that costs a redirect less and some memory more.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use onrush_wire::route::{Key, Trace};

use super::Request;

/// Viewers that are remembered.
pub const SENT_ON_MAX: usize = 16_384;

/// Numbers of viewers that came from other nodes which are remembered, so that each is told once.
pub const TRACES_MAX: usize = 4096;

/// So long a viewer who was sent on and comes again counts as one that does not follow: longer than
/// players wait before they try again, shorter than a viewer takes to want the same again.
const AGAIN_TIME: Duration = Duration::from_secs(10);

/// Somebody who asks for something.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct Viewer {
    peer: IpAddr,
    /// What it asks for, how, and what it calls itself.
    wish: u64,
}

/// Who came from another node, by the number that it was given there.
#[derive(Debug, Default)]
pub(super) struct Traces(HashSet<Trace>);

impl Traces {
    /// Whether it is the first time, as far as that is remembered.
    pub(super) fn is_new(&mut self, trace: Trace) -> bool {
        if self.0.len() >= TRACES_MAX && !self.0.contains(&trace) {
            self.0.clear();
        }
        self.0.insert(trace)
    }
}

/// When whom was sent on last.
#[derive(Debug, Default)]
pub(super) struct Followers(HashMap<Viewer, Instant>);

impl Viewer {
    pub(super) fn new(request: &Request<'_>, film: Key) -> Self {
        let mut wish = DefaultHasher::new();
        (film, request.scheme.as_str(), request.user_agent).hash(&mut wish);
        Self {
            peer: request.peer,
            wish: wish.finish(),
        }
    }
}

impl Followers {
    /// Whether a viewer is to be sent on, which is remembered; not if it was a moment ago.
    pub(super) fn sends_on(&mut self, viewer: Viewer, now: Instant) -> bool {
        let is_recent = |sent: &Instant| now.saturating_duration_since(*sent) < AGAIN_TIME;
        let is_again = self.0.get(&viewer).is_some_and(is_recent);
        if !is_again && self.0.len() >= SENT_ON_MAX {
            self.0.retain(|_, sent| is_recent(sent));
            // A crowd: who of it does not follow is served at the third request, or the fourth.
            if self.0.len() >= SENT_ON_MAX {
                self.0.clear();
            }
        }
        // Who does not follow and goes on asking is served for as long.
        self.0.insert(viewer, now);
        !is_again
    }
}

#[cfg(test)]
mod tests {
    use onrush_wire::route::Scheme;

    use super::*;

    fn viewer(number: u32) -> Viewer {
        Viewer {
            peer: IpAddr::from(number.to_be_bytes()),
            wish: 7,
        }
    }

    #[test]
    fn who_comes_again_at_once_is_not_sent_on() {
        let (mut followers, now) = (Followers::default(), Instant::now());
        assert!(followers.sends_on(viewer(1), now));
        assert!(followers.sends_on(viewer(2), now));
        let nearly = now + AGAIN_TIME - Duration::from_nanos(1);
        assert!(!followers.sends_on(viewer(1), nearly));
        // It goes on asking.
        assert!(!followers.sends_on(viewer(1), nearly + AGAIN_TIME / 2));
        assert!(followers.sends_on(viewer(2), now + AGAIN_TIME));
    }

    #[test]
    fn another_wish_or_program_is_another_viewer() {
        let request = Request {
            film: "a.mp4",
            scheme: Scheme::Rtsp,
            peer: IpAddr::from([127, 0, 0, 1]),
            user_agent: b"Lavf",
            redirects: 0,
            trace: None,
        };
        let film = Key::of(request.film);
        let same = Viewer::new(&request, film);
        for (other, film) in [
            (
                Request {
                    scheme: Scheme::Http,
                    ..request
                },
                film,
            ),
            (
                Request {
                    user_agent: b"GStreamer",
                    ..request
                },
                film,
            ),
            (
                Request {
                    peer: IpAddr::from([127, 0, 0, 2]),
                    ..request
                },
                film,
            ),
            (request, Key::of("b.mp4")),
        ] {
            assert_ne!(Viewer::new(&other, film), same, "{other:?}");
        }
        let again = Request {
            redirects: 1,
            ..request
        };
        assert_eq!(Viewer::new(&again, film), same);
    }

    #[test]
    fn no_more_traces_are_remembered_than_there_may_be() {
        let mut traces = Traces::default();
        for number in 1..=TRACES_MAX as u64 {
            assert!(traces.is_new(Trace::new(number)));
        }
        assert!(!traces.is_new(Trace::new(1)));
        assert_eq!(traces.0.len(), TRACES_MAX);
        assert!(traces.is_new(Trace::new(u64::MAX)));
        assert_eq!(traces.0.len(), 1);
    }

    #[test]
    fn no_more_are_remembered_than_there_may_be() {
        let (mut followers, now) = (Followers::default(), Instant::now());
        for number in 0..u32::try_from(SENT_ON_MAX).unwrap() {
            assert!(followers.sends_on(viewer(number), now));
        }
        assert_eq!(followers.0.len(), SENT_ON_MAX);
        assert!(!followers.sends_on(viewer(0), now));
        assert!(followers.sends_on(viewer(u32::MAX), now));
        assert_eq!(followers.0.len(), 1);
    }
}
