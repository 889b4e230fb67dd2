//! What a request's URL names: a file below the media directory, or one of its tracks.

use std::net::Ipv6Addr;

use percent_encoding::percent_decode_str;
use thiserror::Error;

use super::LiveStart;
use super::reply::without_separators;
use crate::name::from_bytes;
use crate::srtp::Suite;

/// What a request is about.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// `*`: the server itself.
    Server,
    /// A name below the media directory: decoded, `/` between its parts, none at its ends, no
    /// empty, `.` or `..` part; as [`from_bytes`] has names. Empty for the directory itself.
    Path(String),
}

/// Why a URL names nothing.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum UrlError {
    /// It is not `rtsp://host[:port]/path`, the same with `rtsps`, `/path` or `*`.
    #[error("not an RTSP URL; send rtsp://host/path")]
    Syntax,
    /// A `%` without two hexadecimal digits.
    #[error("bad percent-encoding; send % as %25")]
    Escape,
    /// No file can have this name: it climbs with `..`, or holds an encoded slash or a zero byte.
    #[error("no file can have this name")]
    Impossible,
}

/// What such URLs begin with: the second over TLS.
const SCHEMES: [&str; 2] = ["rtsp", "rtsps"];

impl Target {
    /// Takes a request's URL apart. Of its query `tracks=elementary` and `srtp` alone choose
    /// something: the path then ends in [`ELEMENTARY`], in front of the name of a track, and has a
    /// part that [`take_srtp`] knows. What [`LiveStart`] reads is not in the path.
    ///
    /// # Errors
    ///
    /// See [`UrlError`].
    pub fn parse(uri: &str) -> Result<Self, UrlError> {
        let target = Self::parse_but_srtp(uri)?;
        Ok(match (target, srtp_of_query(uri)) {
            (Self::Path(path), Some(srtp)) if !path.is_empty() => {
                Self::Path(format!("{path}/{srtp}"))
            }
            (target, _) => target,
        })
    }

    fn parse_but_srtp(uri: &str) -> Result<Self, UrlError> {
        if uri == "*" {
            return Ok(Self::Server);
        }
        let (path, parameter) = split(uri);
        let path = match path.split_once("://") {
            Some((scheme, rest)) if SCHEMES.iter().any(|it| scheme.eq_ignore_ascii_case(it)) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !is_authority(authority) {
                    return Err(UrlError::Syntax);
                }
                path
            }
            _ if path.starts_with('/') => path,
            _ => return Err(UrlError::Syntax),
        };
        let whole = LiveStart::without(name(path)?);
        let Some(behind) = parameter.filter(|_| !whole.is_empty()) else {
            return Ok(Self::Path(whole));
        };
        // Players append the name of a track to the whole, or put it where the path ends.
        let (file, track) = match track(&whole) {
            Some((file, number)) => (file, track_name(number)),
            None => (&*whole, name(behind)?),
        };
        let file = file.strip_suffix(ELEMENTARY).unwrap_or(file);
        let whole = format!("{file}{ELEMENTARY}/{track}");
        Ok(Self::Path(whole.trim_end_matches('/').to_owned()))
    }
}

/// What the name of a transport stream ends in whose elementary streams are asked for, as tracks of
/// their own. In a path it stays where players resolve URLs against it, in which a query gets lost
/// (RFC 3986, section 5.2.2). It is not set apart by a semicolon, because libavformat ends a URL in
/// RTP-Info there.
pub const ELEMENTARY: &str = "/tracks=elementary";

/// The URL that those of a presentation's parts are relative to, without a slash at its end: that
/// of a request without query and fragment, with [`ELEMENTARY`] if the query asks for that, and
/// with where a viewer begins ([`LiveStart`]). Its path has no comma and no semicolon.
#[must_use]
pub fn base(uri: &str) -> String {
    let (url, parameter) = split(uri);
    let url = url.trim_end_matches('/');
    let start = LiveStart::of_query(uri).filter(|_| LiveStart::of_parts(url).is_none());
    // Of the path alone: a user may have them, too.
    let host = url.find("://").map_or(0, |at| at + "://".len());
    let path = url[host..].find('/').map_or(url.len(), |at| host + at);
    let url = format!("{}{}", &url[..path], without_separators(&url[path..]));
    let mut base = match parameter {
        Some(_) if !url.ends_with(ELEMENTARY) => format!("{url}{ELEMENTARY}"),
        _ => url,
    };
    if let Some(start) = start {
        base.push('/');
        base.push_str(&start.to_string());
    }
    base
}

/// How a URL asks for packets that are encrypted (SRTP).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SrtpParameter {
    /// How.
    pub suite: Suite,
    /// What the server has put there, when it described the presentation, to know the key by.
    pub nonce: Option<[u8; 16]>,
}

/// What a query and a part of a path begin with that ask for it.
const SRTP: &str = "srtp";

impl SrtpParameter {
    /// Of a part of a path.
    fn parse(part: &str) -> Option<Self> {
        let value = part.strip_prefix(SRTP)?.strip_prefix('=')?;
        let (suite, nonce) = match value.split_once('.') {
            Some((suite, digits)) => (suite, Some(nonce(digits)?)),
            None => (value, None),
        };
        let suite = suite_named(suite)?;
        Some(Self { suite, nonce })
    }
}

/// `srtp=SUITE`, and behind it the nonce: no URL that players make of it loses this.
impl std::fmt::Display for SrtpParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.suite {
            Suite::AesCm128HmacSha1 => "cm",
            Suite::AeadAes128Gcm => "gcm",
        };
        write!(f, "{SRTP}={name}")?;
        if let Some(nonce) = self.nonce {
            write!(f, ".{:032x}", u128::from_be_bytes(nonce))?;
        }
        Ok(())
    }
}

fn suite_named(name: &str) -> Option<Suite> {
    match name {
        "cm" => Some(Suite::AesCm128HmacSha1),
        "gcm" => Some(Suite::AeadAes128Gcm),
        _ => None,
    }
}

fn nonce(digits: &str) -> Option<[u8; 16]> {
    let is_hex = digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    Some(number.to_be_bytes())
}

/// `srtp`, `srtp=cm` or `srtp=gcm` of a query.
fn srtp_of_query(uri: &str) -> Option<SrtpParameter> {
    let (_, query) = uri.split('#').next()?.split_once('?')?;
    let suite = query.split('&').find_map(|parameter| {
        let value = parameter.strip_prefix(SRTP)?;
        match value.strip_prefix('=') {
            Some(name) => suite_named(name),
            None => value.is_empty().then(Suite::default),
        }
    });
    suite.map(|suite| SrtpParameter { suite, nonce: None })
}

/// A path or a URL without the part that asks for encrypted packets, and what that is: of several
/// the last.
#[must_use]
pub fn take_srtp(path: &str) -> (String, Option<SrtpParameter>) {
    let mut asked = None;
    let parts = path.split('/').filter(|part| {
        let parameter = SrtpParameter::parse(part);
        asked = parameter.or(asked);
        parameter.is_none()
    });
    let parts: Vec<_> = parts.collect();
    (parts.join("/"), asked)
}

/// A URL in front of its query, and if that asks for elementary streams what stands behind that.
fn split(uri: &str) -> (&str, Option<&str>) {
    let uri = uri.split('#').next().unwrap_or("");
    let Some((url, query)) = uri.split_once('?') else {
        return (uri, None);
    };
    let mut parameters = query.split('&');
    let behind = parameters.find_map(|it| {
        let behind = it.strip_prefix(&ELEMENTARY[1..])?;
        (behind.is_empty() || behind.starts_with('/')).then_some(behind)
    });
    (url, behind)
}

/// What a URL's path names below the media directory, as in [`Target::Path`].
pub(crate) fn name(path: &str) -> Result<String, UrlError> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        let part = decode(part)?;
        match part.as_str() {
            // Players join a base that ends in `/` and a control that starts with one.
            "" | "." => {}
            // Not resolved: whoever means a file in the root can say so, and a name that is never
            // resolved can never climb out of it.
            ".." => return Err(UrlError::Impossible),
            part if part.contains(['/', '\0']) => return Err(UrlError::Impossible),
            _ => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// Splits `.../trackN` into the presentation's name and N.
#[must_use]
pub fn track(path: &str) -> Option<(&str, u32)> {
    let (presentation, last) = path.rsplit_once('/')?;
    Some((
        presentation,
        super::request::number(last.strip_prefix("track")?)?,
    ))
}

/// The URL of a SETUP without the name of a track that its client has put behind a query, and that
/// track's number. Whoever does not take a description's base appends a track to the whole of what
/// it has described: live555 does, and a query may be all that says who asks.
#[must_use]
pub fn track_behind_query(uri: &str) -> (&str, Option<u32>) {
    let whole = uri.split('#').next().unwrap_or("").trim_end_matches('/');
    let found = whole.find('?').and_then(|at| {
        let (before, number) = track(&whole[at..])?;
        Some((&whole[..at + before.len()], Some(number)))
    });
    found.unwrap_or((uri, None))
}

/// The control URL of a presentation's track of that number, from 1 on, below that of the
/// presentation.
#[must_use]
pub fn track_name(number: u32) -> String {
    format!("track{number}")
}

/// Whether this is `[user@]host[:port]` (RFC 3986, section 3.2). Brackets stand around an IP
/// literal, and nowhere else.
pub(crate) fn is_authority(authority: &str) -> bool {
    let host_port = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host_port)| host_port);
    let (is_host, port) = match host_port.strip_prefix('[') {
        Some(rest) => {
            let Some((literal, rest)) = rest.split_once(']') else {
                return false;
            };
            let port = match rest {
                "" => None,
                rest => match rest.strip_prefix(':') {
                    Some(port) => Some(port),
                    None => return false,
                },
            };
            (is_ip_literal(literal), port)
        }
        None => {
            let (host, port) = match host_port.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (host_port, None),
            };
            (!host.is_empty() && !host.contains(['[', ']']), port)
        }
    };
    // RFC 3986, section 3.2.3, allows the port to be empty.
    let is_port = |port: &str| port.is_empty() || super::request::number::<u16>(port).is_some();
    is_host && port.is_none_or(is_port)
}

/// What stands between brackets (RFC 3986, section 3.2.2): an IPv6 address, with a zone for
/// link-local ones (RFC 6874; players send its `%` bare too), or an address of a version to come.
fn is_ip_literal(literal: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    if let Some(future) = literal.strip_prefix(['v', 'V']) {
        let Some((version, address)) = future.split_once('.') else {
            return false;
        };
        let is_part = |b: u8| plain(b) || b"!$&'()*+,;=:".contains(&b);
        return !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_hexdigit())
            && !address.is_empty()
            && address.bytes().all(is_part);
    }
    let (address, zone) = match literal.split_once('%') {
        Some((address, zone)) => (address, Some(zone.strip_prefix("25").unwrap_or(zone))),
        None => (literal, None),
    };
    let is_zone = |zone: &str| !zone.is_empty() && zone.bytes().all(plain);
    address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone)
}

fn decode(part: &str) -> Result<String, UrlError> {
    let is_escape = |tail: &str| {
        tail.as_bytes()
            .first_chunk::<2>()
            .is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
    };
    if !part.split('%').skip(1).all(is_escape) {
        return Err(UrlError::Escape);
    }
    let decoded: Vec<u8> = percent_decode_str(part).collect();
    Ok(from_bytes(&decoded))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(uri: &str) -> String {
        match Target::parse(uri) {
            Ok(Target::Path(path)) => path,
            other => panic!("{uri}: {other:?}"),
        }
    }

    #[test]
    fn a_url_asks_for_encrypted_packets() {
        let asked = |uri: &str| {
            let (path, asked) = take_srtp(&path(uri));
            (path, asked.map(|asked| asked.to_string()))
        };
        let nonce = "srtp=gcm.000102030405060708090a0b0c0d0e0f";
        for (uri, name, parameter) in [
            ("rtsps://h/a.mp4?srtp", "a.mp4", Some("srtp=cm")),
            ("rtsps://h/a.mp4?x=y&srtp=gcm#z", "a.mp4", Some("srtp=gcm")),
            (
                "rtsps://h/a.mp4/track1?srtp=cm",
                "a.mp4/track1",
                Some("srtp=cm"),
            ),
            ("rtsps://h/a.mp4?srtp=no&srtpx", "a.mp4", None),
            (
                &format!("rtsps://h/a.mp4/{nonce}/track2"),
                "a.mp4/track2",
                Some(nonce),
            ),
            (
                &format!("rtsps://h/a.mp4/srtp=cm/{nonce}/"),
                "a.mp4",
                Some(nonce),
            ),
            ("rtsps://h/srtp=cm.12/a", "srtp=cm.12/a", None),
            ("rtsps://h/srtp=x/a", "srtp=x/a", None),
        ] {
            let expected = (name.to_owned(), parameter.map(str::to_owned));
            assert_eq!(asked(uri), expected, "{uri}");
        }
    }

    #[test]
    fn urls_name_files() {
        assert_eq!(path("rtsp://host/a/b.ts"), "a/b.ts");
        assert_eq!(path("RTSPS://host:8322/a/b.ts"), "a/b.ts");
        assert_eq!(path("RTSP://user:pw@host:8554/a/b.ts/?x=/../y#z"), "a/b.ts");
        assert_eq!(path("rtsp://[::1]:554//a/./b.ts//track1"), "a/b.ts/track1");
        assert_eq!(path("rtsp://[fe80::1%25eth0]/a"), "a");
        assert_eq!(path("/a%20b/%C3%A9t%c3%a9.ts"), "a b/été.ts");
        assert_eq!(path("/été.ts"), "été.ts");
        assert_eq!(path("/100%25.ts"), "100%.ts");
        assert_eq!(path("/a%3fb%23c"), "a?b#c");
        assert_eq!(path("/%ff%c3%A9%80/a"), "\u{10ffff}\u{e9}\u{10ff80}/a");
        assert_eq!(path("rtsp://host"), "");
        assert_eq!(path("rtsp://host:/"), "");
        assert_eq!(path("/a#b?c"), "a");
        assert_eq!(path("/...ts"), "...ts");
        assert_eq!(Target::parse("*"), Ok(Target::Server));
    }

    /// As they are written, and as players make URLs of tracks of them.
    #[test]
    fn a_parameter_asks_for_elementary_streams() {
        for uri in [
            "rtsp://h/a/b.ts?tracks=elementary",
            "rtsp://h/a/b.ts/?x=1&tracks=elementary/#z",
            "rtsp://h/a/b.ts/tracks=elementary/",
            "rtsp://h/a/b.ts/tracks%3delementary?tracks=elementary",
        ] {
            assert_eq!(path(uri), "a/b.ts/tracks=elementary", "{uri}");
        }
        for uri in [
            "rtsp://h/b.ts?tracks=elementary/track2",
            "rtsp://h/b.ts/track2?tracks=elementary",
            "rtsp://h/b.ts/tracks=elementary/track2",
            "rtsp://h/b.ts/tracks=elementary/track2?tracks=elementary",
        ] {
            assert_eq!(path(uri), "b.ts/tracks=elementary/track2", "{uri}");
        }
        for uri in [
            "/b.ts?tracks=",
            "/b.ts?tracks=elementaryx",
            "/b.ts?xtracks=elementary",
        ] {
            assert_eq!(path(uri), "b.ts", "{uri}");
        }
        assert_eq!(path("/?tracks=elementary"), "");
        assert_eq!(
            Target::parse("/b.ts?tracks=elementary/../a"),
            Err(UrlError::Impossible)
        );
        assert_eq!(
            base("rtsp://h/b.ts/?tracks=elementary"),
            "rtsp://h/b.ts/tracks=elementary"
        );
        assert_eq!(
            base("rtsp://h/b.ts/tracks=elementary/"),
            "rtsp://h/b.ts/tracks=elementary"
        );
        assert_eq!(base("rtsp://h/b.ts/?x#y"), "rtsp://h/b.ts");
    }

    #[test]
    fn a_base_has_no_separators_of_rtp_info() {
        let base = base("rtsp://a,b;c@h/A,%20b;%20c.mp4/?x=,");
        assert_eq!(base, "rtsp://a,b;c@h/A%2C%20b%3B%20c.mp4");
        assert_eq!(path(&format!("{base}/track1")), "A, b; c.mp4/track1");
    }

    #[test]
    fn urls_that_name_nothing() {
        for uri in [
            "",
            "a",
            "a/b",
            "http://h/a",
            "rtsp:/a",
            "rtsp:///a",
            "rtsp://:1/a",
            "rtsp://h:x/a",
            "rtsp://h:65536/a",
            "rtsp://[::1/a",
            "rtsp://[::1]x/a",
            "rtsp://[]/a",
            "**",
        ] {
            assert_eq!(Target::parse(uri), Err(UrlError::Syntax), "{uri}");
        }
        for uri in ["/%", "/a%2", "/%zz", "/%2%20", "/%é0", "/a/%"] {
            assert_eq!(Target::parse(uri), Err(UrlError::Escape), "{uri}");
        }
        for uri in [
            "/../a",
            "/a/..",
            "/a/../b",
            "/%2e%2e/a",
            "/.%2E/a",
            "/a%2fb",
            "/a%2F..%2fb",
            "/a%00",
            "rtsp://h/..",
        ] {
            assert_eq!(Target::parse(uri), Err(UrlError::Impossible), "{uri}");
        }
    }

    /// RFC 3986, section 3.2.2.
    #[test]
    fn ip_literals_are_addresses() {
        for good in [
            "[::1]",
            "[::]",
            "[1:2:3:4:5:6:7:8]",
            "[2001:DB8::ef98:0:7654:321]:80",
            "[::ffff:192.0.2.1]",
            "[fe80::1%25eth0]:8554",
            "[fe80::1%eth0.5]",
            "[v1.a:b]",
            "[VF.~!$&'()*+,;=:]:80",
            "user:pass@[v1.a:b]:",
        ] {
            assert!(is_authority(good), "{good}");
            assert_eq!(path(&format!("rtsp://{good}/a")), "a");
        }
        for bad in [
            "[ab..cd::ef98:0:7654:321]",
            "[1:2:3:4:5:6:7]",
            "[1:2:3:4:5:6:7:8:9]",
            "[::1::]",
            "[12345::]",
            "[::g]",
            "[::256.0.0.1]",
            "[192.0.2.1]",
            "[host]",
            "[fe80::1%25]",
            "[fe80::1%]",
            "[fe80::1%25a%b]",
            "[v1.]",
            "[v.a]",
            "[vg.a]",
            "[v1]",
            "[v1.a/b]",
            "[v1.a%41]",
            "[[::1]]",
            "[::1]]",
            "[]",
            "[]:80",
            "::1]",
            "a[::1]",
            "a]",
            "[::1]80",
            "[::1]:x",
        ] {
            assert!(!is_authority(bad), "{bad}");
        }
    }

    #[test]
    fn tracks_are_split_off() {
        assert_eq!(track("a/b.ts/track1"), Some(("a/b.ts", 1)));
        assert_eq!(track("b.ts/track27"), Some(("b.ts", 27)));
        for path in [
            "track1",
            "a/track",
            "a/track+1",
            "a/track1x",
            "a/Track1",
            "a",
        ] {
            assert_eq!(track(path), None, "{path}");
        }
    }

    #[test]
    fn tracks_are_taken_from_behind_a_query() {
        for (uri, expected) in [
            ("rtsp://h/b.ts?k=v/track2", ("rtsp://h/b.ts?k=v", Some(2))),
            (
                "rtsp://h/b.ts?k=/v/track2/#z",
                ("rtsp://h/b.ts?k=/v", Some(2)),
            ),
            ("rtsp://h/b.ts/?/track1", ("rtsp://h/b.ts/?", Some(1))),
            ("rtsp://h/b.ts?k=v/track", ("rtsp://h/b.ts?k=v/track", None)),
            ("rtsp://h/b.ts?track1", ("rtsp://h/b.ts?track1", None)),
            (
                "rtsp://h/b.ts/track1?k=v",
                ("rtsp://h/b.ts/track1?k=v", None),
            ),
            (
                "rtsp://h/b.ts/track1#?/track2",
                ("rtsp://h/b.ts/track1#?/track2", None),
            ),
        ] {
            assert_eq!(track_behind_query(uri), expected, "{uri}");
        }
    }

    proptest! {
        #[test]
        fn names_never_climb(
            uri in "(rtsp://h)?(/|\\.|%2e|%2F|%5c|a|%00|\\\\|%25|\\?tracks=elementary){0,12}",
        ) {
            if let Ok(Target::Path(path)) = Target::parse(&uri) {
                prop_assert!(!path.starts_with('/'));
                prop_assert!(path.split('/').all(|p| p != ".." && p != "." ));
                prop_assert!(!path.contains('\0'));
            }
        }

        #[test]
        fn noise_never_panics(uri in "\\PC{0,80}") {
            let _any: Result<Target, UrlError> = Target::parse(&uri);
            let _any = track(&uri);
            prop_assert!(uri.starts_with(track_behind_query(&uri).0));
        }
    }
}
