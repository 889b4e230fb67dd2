//! Where a channel is pulled from.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use thiserror::Error;
use zeroize::Zeroizing;

/// `rtsp://[USER[:PASSWORD]@]HOST[:PORT]/PATH`. Printed without its user, without what stands in
/// its query, where some cameras have a password, and without what it is signed with.
#[derive(Clone, Eq, PartialEq)]
pub struct PullUrl {
    /// Without its user, as it is asked for.
    url: String,
    /// A name or an address, IPv6 without brackets and with its zone, if it has one.
    pub(in crate::channels) host: String,
    pub(in crate::channels) port: u16,
    pub(in crate::channels) user: Option<(String, Zeroizing<String>)>,
    /// Stands behind the rest of the query, where it is asked for.
    signature: Option<Zeroizing<String>>,
    /// What stands in its query is no secret.
    shows_query: bool,
}

/// Why a text names no source.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("write rtsp://[USER:PASSWORD@]HOST[:PORT]/PATH; in USER and PASSWORD, %40 for @ and so on")]
pub struct PullUrlError;

impl FromStr for PullUrl {
    type Err = PullUrlError;

    fn from_str(text: &str) -> Result<Self, PullUrlError> {
        let is_plain = text.bytes().all(|b| b.is_ascii_graphic());
        let rest = text.strip_prefix("rtsp://").filter(|_| is_plain);
        let rest = rest.ok_or(PullUrlError)?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, place) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((user, place)) => (Some(user), place),
        };
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8();
            text.map(String::from).map_err(|_| PullUrlError)
        };
        let user = user.map(|user| {
            let (name, password) = user.split_once(':').unwrap_or((user, ""));
            Ok((decode(name)?, Zeroizing::new(decode(password)?)))
        });
        let (host, port) = match place.strip_prefix('[') {
            Some(literal) => {
                let (host, behind) = literal.split_once(']').ok_or(PullUrlError)?;
                (
                    host,
                    behind
                        .strip_prefix(':')
                        .or_else(|| behind.is_empty().then_some("")),
                )
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, Some("")),
            },
        };
        let port = match port.ok_or(PullUrlError)? {
            "" => 554,
            port => port.parse().map_err(|_| PullUrlError)?,
        };
        if host.is_empty() || host.ends_with('%') || port == 0 {
            return Err(PullUrlError);
        }
        let (host, place) = match host.split_once('%').filter(|_| place.starts_with('[')) {
            None => (host.to_owned(), place.to_owned()),
            // By which link it is reached is nothing to ask it with (RFC 6874, section 4).
            Some((ip, zone)) => {
                let zone = match zone.strip_prefix("25") {
                    Some(decoded) if !decoded.is_empty() => decoded,
                    _ => zone,
                };
                let behind = place.trim_start_matches(|it: char| it != ']');
                (format!("{ip}%{zone}"), format!("[{ip}{behind}"))
            }
        };
        Ok(Self {
            url: format!("rtsp://{place}{path}"),
            host,
            port,
            user: user.transpose()?,
            signature: None,
            shows_query: false,
        })
    }
}

impl PullUrl {
    /// The URL by which a node is asked for a channel. Its query names nodes, a lease and a number
    /// for logs, and is shown.
    ///
    /// # Errors
    ///
    /// If it is none.
    pub(in crate::channels) fn of_node(text: &str) -> Result<Self, PullUrlError> {
        let url: Self = text.parse()?;
        Ok(Self {
            shows_query: true,
            ..url
        })
    }

    /// The same URL, signed: with what `onrush sign` puts behind one.
    pub(in crate::channels) fn signed_with(self, signature: String) -> Self {
        Self {
            signature: Some(Zeroizing::new(signature)),
            ..self
        }
    }

    /// As it is asked for.
    pub(in crate::channels) fn asked(&self) -> String {
        let url = &self.url;
        match &self.signature {
            None => url.clone(),
            Some(signature) if url.contains('?') => format!("{url}&{}", **signature),
            Some(signature) => format!("{url}?{}", **signature),
        }
    }

    /// As it is asked for, but for what it is signed with.
    pub(in crate::channels) fn unsigned(&self) -> &str {
        &self.url
    }

    /// Where the source says that it is. User, password and signature go along to the same host
    /// alone.
    ///
    /// # Errors
    ///
    /// If that is no URL of RTSP, or has a user of its own.
    pub(in crate::channels) fn moved_to(&self, location: &str) -> Result<Self, PullUrlError> {
        let there: Self = location.parse()?;
        if there.user.is_some() {
            return Err(PullUrlError);
        }
        // It does not know by which link it is reached.
        let own = self.host.split_once('%').map_or(&*self.host, |(ip, _)| ip);
        let mut names = [&*self.host, own].into_iter();
        let is_same = names.any(|it| there.host.eq_ignore_ascii_case(it));
        let host = match is_same {
            true => self.host.clone(),
            false => there.host,
        };
        let user = self.user.clone().filter(|_| is_same);
        let signature = self.signature.clone().filter(|_| is_same);
        Ok(Self {
            host,
            user,
            signature,
            ..there
        })
    }
}

impl fmt::Display for PullUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shows_query {
            true => f.write_str(&self.url),
            false => f.write_str(&without_query(&self.url)),
        }
    }
}

impl fmt::Debug for PullUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// A URL that a peer has sent, as it may be shown: without a user, and without what stands in its
/// query.
pub(crate) fn shown(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else {
        return without_query(location);
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    without_query(&format!("{scheme}://{host}{path}"))
}

fn without_query(url: &str) -> String {
    match url.split_once('?') {
        Some((before, _)) => format!("{before}?..."),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_asked_with_and_not_printed() {
        let signed = |text: &str| -> PullUrl {
            let url = PullUrl::of_node(text).unwrap();
            url.signed_with("signature=s".to_owned())
        };
        let url = signed("rtsp://a/x?lease=3");
        assert_eq!(url.to_string(), "rtsp://a/x?lease=3");
        assert!(!format!("{url:?}").contains("signature"));
        assert_eq!(url.asked(), "rtsp://a/x?lease=3&signature=s");
        assert_eq!(signed("rtsp://a/x").asked(), "rtsp://a/x?signature=s");
        let moved = |to: &str| url.moved_to(to).unwrap().asked();
        assert_eq!(moved("rtsp://a/y"), "rtsp://a/y?signature=s");
        assert_eq!(moved("rtsp://b/y"), "rtsp://b/y");
    }

    #[test]
    fn urls_of_peers_are_shown_without_what_says_who_asks() {
        for (url, expected) in [
            ("rtsp://a:b@h:1/x/track1", "rtsp://h:1/x/track1"),
            ("rtsp://a@h?token=t/track1", "rtsp://h?..."),
            ("rtsp://h/x@y?a://b@c", "rtsp://h/x@y?..."),
            ("/x?u=rtsp://a:b@h/", "/x?..."),
            ("*", "*"),
        ] {
            assert_eq!(shown(url), expected, "{url}");
        }
    }

    #[test]
    fn urls_are_taken_apart_and_printed_without_users() {
        for (text, host, port, user, printed) in [
            ("rtsp://cam/1", "cam", 554, None, "rtsp://cam/1"),
            (
                "rtsp://10.0.0.1:8554",
                "10.0.0.1",
                8554,
                None,
                "rtsp://10.0.0.1:8554",
            ),
            (
                "rtsp://a%40b:p%3Aq@[::1]:7/x?y=1@2",
                "::1",
                7,
                Some(("a@b", "p:q")),
                "rtsp://[::1]:7/x?...",
            ),
            (
                "rtsp://[fe80::1%25eth0]:7/x",
                "fe80::1%eth0",
                7,
                None,
                "rtsp://[fe80::1]:7/x",
            ),
            (
                "rtsp://u@[fe80::1%2]/x",
                "fe80::1%2",
                554,
                Some(("u", "")),
                "rtsp://[fe80::1]/x",
            ),
            (
                "rtsp://u@cam:/",
                "cam",
                554,
                Some(("u", "")),
                "rtsp://cam:/",
            ),
        ] {
            let url: PullUrl = text.parse().unwrap();
            let user = user.map(|(a, b)| (a.to_owned(), b.to_owned().into()));
            assert_eq!((url.host.as_str(), url.port), (host, port), "{text}");
            assert_eq!((&url.user, url.to_string().as_str()), (&user, printed));
            assert!(!url.asked().contains("%2"), "no zone: {}", url.asked());
            let debug = format!("{url:?}");
            assert!(!debug.contains("p:q") && !debug.contains("y=1"), "{debug}");
        }
        for text in [
            "",
            "http://a/",
            "rtsp:///x",
            "rtsp://a:0/",
            "rtsp://a:x/",
            "rtsp://[::1/",
            "rtsp://a b/",
            "rtsp://[::1]x/",
            "rtsp://[fe80::1%]/",
        ] {
            assert_eq!(text.parse::<PullUrl>(), Err(PullUrlError), "{text}");
        }
    }

    #[test]
    fn queries_are_asked_with_and_not_shown() {
        let url: PullUrl = "rtsp://cam/1?user=a&password=b".parse().unwrap();
        assert_eq!(url.asked(), "rtsp://cam/1?user=a&password=b");
        assert_eq!(url.unsigned(), url.asked());
        assert_eq!(url.to_string(), "rtsp://cam/1?...");
        let other: PullUrl = "rtsp://cam/1?user=a&password=c".parse().unwrap();
        assert_ne!(url, other, "it is pulled anew");
        for (location, expected) in [
            ("rtsp://u:p@cam/2?password=b", "rtsp://cam/2?..."),
            ("http://u:p@cam?password=b", "http://cam?..."),
            ("/2?password=b", "/2?..."),
            ("", ""),
        ] {
            assert_eq!(shown(location), expected);
        }
    }

    #[test]
    fn passwords_do_not_go_to_other_hosts() {
        let url: PullUrl = "rtsp://u:p@cam/1".parse().unwrap();
        let there = url.moved_to("rtsp://CAM:8554/2").unwrap();
        assert_eq!((there.port, there.user), (8554, url.user.clone()));
        assert_eq!(url.moved_to("rtsp://other/1").unwrap().user, None);
        let url: PullUrl = "rtsp://u:p@[fe80::1%25eth0]/1".parse().unwrap();
        let there = url.moved_to("rtsp://[FE80::1]:8554/2").unwrap();
        assert_eq!((&there.host, there.port), (&url.host, 8554));
        assert_eq!(there.user, url.user);
        assert_eq!(url.moved_to("rtsp://[fe80::2]/1").unwrap().user, None);
        for location in ["http://cam/1", "rtsp://u:p@cam/1", "/1", ""] {
            assert_eq!(url.moved_to(location), Err(PullUrlError), "{location}");
        }
    }
}
