//! How often a viewer has been sent on, and by which number the nodes that it came to call it:
//! parameters of the query, which players bring along because they are a part of the URL that they
//! were sent to.

use std::fmt;
use std::num::NonZeroU64;

/// What the parameter is called that counts.
const REDIRECTS: &str = "redirects";

/// The one of the number.
pub(super) const TRACE: &str = "trace";

/// How many digits it has.
const TRACE_DIGITS: usize = 16;

/// What the nodes that a viewer came to call it in their logs: made by the first that sends it on.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Trace(NonZeroU64);

impl Trace {
    /// By a random number; 0, which none has, so that to have none takes no room, stands for 1.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        match NonZeroU64::new(number) {
            Some(number) => Self(number),
            None => Self(NonZeroU64::MIN),
        }
    }

    /// That of the URL. What is no such number is a parameter of somebody else's.
    #[must_use]
    pub fn of(uri: &str) -> Option<Self> {
        let (_, query) = uri.split_once('?')?;
        query.split('&').rev().find_map(Self::of_parameter)
    }

    fn of_parameter(parameter: &str) -> Option<Self> {
        let value = parameter.strip_prefix(TRACE)?.strip_prefix('=')?;
        let (digits, behind) = value.split_at_checked(TRACE_DIGITS)?;
        let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
        // A player may have put the name of a track behind it.
        let is_number =
            digits.chars().all(is_digit) && (behind.is_empty() || behind.starts_with('/'));
        let number = is_number.then(|| u64::from_str_radix(digits, 16).ok());
        NonZeroU64::new(number.flatten()?).map(Self)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0TRACE_DIGITS$x}", self.0)
    }
}

/// How often who asks for this URL has been sent on: 0 where nothing says it, or says no number.
#[must_use]
pub fn redirects_of(uri: &str) -> u8 {
    let (_, query) = uri.split_once('?').unwrap_or((uri, ""));
    let count_of = |it: &str| {
        let count = it.strip_prefix(REDIRECTS)?.strip_prefix('=')?;
        // A player may have put the name of a track behind it.
        let end = count.find(|c: char| !c.is_ascii_digit());
        count[..end.unwrap_or(count.len())].parse().ok()
    };
    query.split('&').rev().find_map(count_of).unwrap_or(0)
}

/// The URL, or the end of one, with so many, and with that number. What a player has put behind one
/// of them stays at the end: the name of a track.
#[must_use]
pub fn with_redirects(uri: &str, redirects: u8, trace: Trace) -> String {
    with(uri, trace, Some(redirects))
}

/// The same with the number alone, and as often sent on as it says now: by a server that is no node
/// of where it sends its viewers.
#[must_use]
pub fn with_trace(uri: &str, trace: Trace) -> String {
    let redirects = redirects_of(uri);
    with(uri, trace, (redirects > 0).then_some(redirects))
}

/// Whether a parameter of a query is one of these: what nodes say to each other, and no wish of the
/// viewer's.
#[must_use]
pub fn is_hop_parameter(parameter: &str) -> bool {
    behind_ours(parameter).is_some()
}

fn with(uri: &str, trace: Trace, redirects: Option<u8>) -> String {
    let (path, query) = match uri.split_once('?') {
        Some((path, query)) => (path, query),
        None => (uri, ""),
    };
    let (mut others, mut behind) = (String::new(), "");
    for parameter in query.split('&').filter(|it| !it.is_empty()) {
        match behind_ours(parameter) {
            None => others = others + parameter + "&",
            Some("") => {}
            Some(track) => behind = track,
        }
    }
    let redirects = redirects.map(|count| format!("&{REDIRECTS}={count}"));
    let redirects = redirects.unwrap_or_default();
    format!("{path}?{others}{TRACE}={trace}{redirects}{behind}")
}

/// What stands behind a parameter of ours: from a slash on. Nothing if it is somebody else's.
fn behind_ours(parameter: &str) -> Option<&str> {
    let count = parameter.strip_prefix(REDIRECTS);
    let is_count = count.is_some_and(|behind| behind.starts_with('='));
    let is_ours = is_count || Trace::of_parameter(parameter).is_some();
    let slash = parameter.find('/').unwrap_or(parameter.len());
    is_ours.then(|| &parameter[slash..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_tells_how_often_it_was_sent_on() {
        for (uri, redirects) in [
            ("/a.mp4", 0),
            ("/a.mp4?redirects=1", 1),
            ("rtsp://h/a.ts?tracks=elementary&redirects=2", 2),
            ("/a.mp4?redirects=1/track2", 1),
            ("/a.mp4?redirects=1&redirects=2", 2),
            ("/a.mp4?redirects=", 0),
            ("/a.mp4?redirects=256", 0),
            ("/a.mp4?xredirects=7", 0),
            ("/redirects=7", 0),
        ] {
            assert_eq!(redirects_of(uri), redirects, "{uri}");
        }
    }

    #[test]
    fn a_url_has_both_numbers_once() {
        let trace = Trace::new(0xbeef);
        let ours = "trace=000000000000beef&redirects=2";
        for (uri, others) in [
            ("/a.mp4", ""),
            ("/a.mp4?", ""),
            ("/a.mp4?redirects=1", ""),
            ("/a.mp4?trace=0123456789abcdef&redirects=1", ""),
            ("/a.mp4?x=y&redirects=1&z", "x=y&z&"),
            ("/a.mp4?trace=on&redirects=1", "trace=on&"),
        ] {
            let with = with_redirects(uri, 2, trace);
            assert_eq!(with, format!("/a.mp4?{others}{ours}"));
            assert_eq!(redirects_of(&with), 2);
            assert_eq!(Trace::of(&with), Some(trace));
        }
    }

    #[test]
    fn what_a_player_puts_behind_a_number_stays() {
        let trace = Trace::new(0xbeef);
        for uri in [
            "/a.mp4?redirects=1/track2",
            "/a.mp4?trace=0123456789abcdef&redirects=1/track2",
            "/a.mp4?redirects=1&trace=0123456789abcdef/track2",
        ] {
            let with = with_redirects(uri, 2, trace);
            assert_eq!(with, "/a.mp4?trace=000000000000beef&redirects=2/track2");
            assert_eq!((redirects_of(&with), Trace::of(&with)), (2, Some(trace)));
        }
    }

    #[test]
    fn only_what_nodes_say_is_a_hop_parameter() {
        for ours in [
            "redirects=1",
            "redirects=1/track2",
            "trace=0123456789abcdef",
        ] {
            assert!(is_hop_parameter(ours), "{ours}");
        }
        for other in ["", "x=y", "redirects", "trace=on", "xredirects=1"] {
            assert!(!is_hop_parameter(other), "{other}");
        }
    }

    #[test]
    fn a_url_may_have_the_number_alone() {
        let trace = Trace::new(0xbeef);
        for (uri, with) in [
            ("/a.mp4", "/a.mp4?trace=000000000000beef"),
            ("/a.mp4?x=y", "/a.mp4?x=y&trace=000000000000beef"),
            (
                "/a.mp4?redirects=1/track2",
                "/a.mp4?trace=000000000000beef&redirects=1/track2",
            ),
            (
                "/a.mp4?trace=0123456789abcdef",
                "/a.mp4?trace=000000000000beef",
            ),
        ] {
            assert_eq!(with_trace(uri, trace), with);
        }
    }

    /// What stands in a log is a number of ours, whatever the client writes.
    #[test]
    fn a_trace_is_sixteen_digits_and_nothing_else() {
        let trace = Some(Trace::new(0x0123_4567_89ab_cdef));
        for (uri, found) in [
            ("/a.mp4?trace=0123456789abcdef", trace),
            ("rtsp://h/a.ts?trace=0123456789abcdef&redirects=1", trace),
            ("/a.ts?redirects=1&trace=0123456789abcdef/track2", trace),
            ("/a.ts?trace=0123456789abcdef&trace=x", trace),
            ("/a.mp4", None),
            ("/trace=0123456789abcdef", None),
            ("/a.mp4?trace=", None),
            ("/a.mp4?trace=0000000000000000", None),
            ("/a.mp4?trace=0123456789abcde", None),
            ("/a.mp4?trace=0123456789abcdef0", None),
            ("/a.mp4?trace=0123456789ABCDEF", None),
            ("/a.mp4?trace=+123456789abcdef", None),
            ("/a.mp4?trace=0123456789abcde\u{e4}", None),
            ("/a.mp4?xtrace=0123456789abcdef", None),
        ] {
            assert_eq!(Trace::of(uri), found, "{uri}");
        }
    }
}
