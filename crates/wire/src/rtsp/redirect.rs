//! Sending clients on to another server: where that is, and the request that says so (RFC 2326,
//! section 10.10).
//!
//! A client keeps its scheme, so that nobody who came over TLS is sent to where there is none.
//! Where its scheme is that of the [`RedirectTarget`], it is sent to exactly that host and port;
//! where it is another, to that host at the port that it asks at: another server of the same
//! kind, with the same ports.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::request::number;
use super::url::{is_authority, take_srtp, track};
use super::{SessionId, npt};

/// Another server: `rtsp://HOST[:PORT]/`, or the same with `rtsps`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RedirectTarget {
    scheme: &'static str,
    /// With its brackets, if it is an IPv6 address.
    host: String,
    port: Option<u16>,
}

/// Why a text names no server to send clients to.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "write rtsp://HOST[:PORT]/ or rtsps://HOST[:PORT]/, without a path or a user, as in \
     rtsp://192.0.2.8:8554/"
)]
pub struct RedirectTargetError;

impl FromStr for RedirectTarget {
    type Err = RedirectTargetError;

    fn from_str(text: &str) -> Result<Self, RedirectTargetError> {
        let (scheme, rest) = text.split_once("://").ok_or(RedirectTargetError)?;
        let named = ["rtsp", "rtsps"]
            .into_iter()
            .find(|it| scheme.eq_ignore_ascii_case(it));
        let scheme = named.ok_or(RedirectTargetError)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        // Whatever else could end a header line, or be a path, a query or a user.
        let is_plain = authority.bytes().all(|b| b.is_ascii_graphic());
        if !is_plain
            || authority.contains(['/', '?', '#', '@', '\\', '"', '<', '>', '%', ','])
            || !is_authority(authority)
        {
            return Err(RedirectTargetError);
        }
        let (host, port) = split_port(authority);
        let port = match port {
            "" => None,
            port => Some(port.parse().map_err(|_| RedirectTargetError)?),
        };
        if port == Some(0) {
            return Err(RedirectTargetError);
        }
        Ok(Self {
            scheme,
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for RedirectTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/", self.scheme, self.authority())
    }
}

impl RedirectTarget {
    fn authority(&self) -> String {
        match self.port {
            None => self.host.clone(),
            Some(port) => format!("{}:{port}", self.host),
        }
    }

    /// What is had there that a client of RTSP asks for by `uri`, over TLS or not. `None` if that
    /// is where it asks already. Its TLS may end in front of this server: so what it says counts.
    #[must_use]
    pub fn of_rtsp(&self, uri: &str, is_encrypted: bool) -> Option<String> {
        let scheme = match is_encrypted || is_rtsps(uri) {
            true => "rtsps",
            false => "rtsp",
        };
        let (asked, path) = match uri.split_once("://") {
            Some((_, rest)) => rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len())),
            None => ("", uri),
        };
        let path = path.trim_start_matches('*');
        let slash = if path.starts_with('/') { "" } else { "/" };
        let asked = asked.rsplit_once('@').map_or(asked, |(_, asked)| asked);
        self.location(scheme, asked, &format!("{slash}{path}"))
    }

    /// What is had there that a client of HTTP asks for by `path`, with its query, of the server
    /// that it calls `host`, over TLS or not. `None` if that is where it asks already.
    #[must_use]
    pub fn of_http(&self, path: &str, host: &str, is_encrypted: bool) -> Option<String> {
        let scheme = if is_encrypted { "https" } else { "http" };
        self.location(scheme, host, path)
    }

    fn location(&self, scheme: &str, asked: &str, path: &str) -> Option<String> {
        let authority = match (self.scheme == scheme, split_port(asked).1) {
            (true, _) => self.authority(),
            (false, port) if number::<u16>(port).is_some() => format!("{}:{port}", self.host),
            (false, _) => self.host.clone(),
        };
        let place = |authority: &str| {
            let (host, port) = split_port(authority);
            let default = match scheme {
                "rtsp" => "554",
                "rtsps" => "322",
                "http" => "80",
                _ => "443",
            };
            let port = if port.is_empty() { default } else { port };
            (host.to_ascii_lowercase(), port.to_owned())
        };
        (place(&authority) != place(asked)).then(|| format!("{scheme}://{authority}{path}"))
    }
}

/// Whether a client asks by that URL over TLS, as far as it knows.
#[must_use]
pub fn is_rtsps(uri: &str) -> bool {
    uri.split_once("://")
        .is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("rtsps"))
}

/// `host[:port]` in its parts: the host with its brackets, the port empty if there is none.
fn split_port(authority: &str) -> (&str, &str) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (authority, ""),
    }
}

/// A request of the server's: its client finds the session's presentation elsewhere.
#[derive(Clone, Copy, Debug)]
pub struct Redirect<'a> {
    /// The request's number: the server's own numbers have nothing to do with the client's.
    pub cseq: u32,
    /// The session.
    pub session: SessionId,
    /// The presentation's URL here, as [`Redirect::presentation`] makes it.
    pub url: &'a str,
    /// And there.
    pub location: &'a str,
    /// Where in the media the client is, in ns, if that is known: from there on it is had there.
    pub position_ns: Option<u64>,
}

impl Redirect<'_> {
    /// The URL of a presentation from that of one of its tracks, as a client spelt it: what a
    /// server puts into URLs to know keys by is another's to put there.
    #[must_use]
    pub fn presentation(track_url: &str) -> String {
        let (url, query) = match track_url.split_once('?') {
            Some((url, query)) => (url, Some(query)),
            None => (track_url, None),
        };
        // Players append the name of a track to the whole, or put it where the path ends.
        let of_track = |text: &str| track(text).map(|(before, _)| before.len());
        let url = url.trim_end_matches('/');
        let url = &url[..of_track(url).unwrap_or(url.len())];
        let query = query.map(|query| &query[..of_track(query).unwrap_or(query.len())]);
        let (url, srtp) = take_srtp(url);
        let srtp = srtp.map(|mut parameter| {
            parameter.nonce = None;
            parameter.to_string()
        });
        let parts: Vec<_> = query.into_iter().chain(srtp.as_deref()).collect();
        match parts.is_empty() {
            true => url,
            false => format!("{url}?{}", parts.join("&")),
        }
    }

    /// The request as it is on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self {
            cseq,
            session,
            url,
            location,
            position_ns,
        } = self;
        let range = position_ns.map(|ns| format!("Range: npt={}-\r\n", npt(ns)));
        let range = range.unwrap_or_default();
        format!(
            "REDIRECT {url} RTSP/1.0\r\nCSeq: {cseq}\r\nSession: {session}\r\n\
             Location: {location}\r\n{range}\r\n"
        )
        .into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> RedirectTarget {
        text.parse().unwrap()
    }

    #[test]
    fn a_target_is_a_server_and_nothing_more() {
        for (text, printed) in [
            ("rtsp://b", "rtsp://b/"),
            ("RTSP://b:8554/", "rtsp://b:8554/"),
            ("rtsps://[2001:db8::7]:322", "rtsps://[2001:db8::7]:322/"),
            ("rtsp://[::1]/", "rtsp://[::1]/"),
            ("rtsp://b:/", "rtsp://b/"),
        ] {
            assert_eq!(target(text).to_string(), printed);
        }
        for text in [
            "",
            "b:8554",
            "http://b/",
            "rtsp://",
            "rtsp:///",
            "rtsp://b/film.mp4",
            "rtsp://b//",
            "rtsp://b/?x",
            "rtsp://b?x",
            "rtsp://u:p@b/",
            "rtsp://b:0/",
            "rtsp://b:65536/",
            "rtsp://b:x/",
            "rtsp://::1/",
            "rtsp://[::1/",
            "rtsp://b c/",
            "rtsp://b\r\nX: y/",
            "rtsp://b, rtsp://c",
        ] {
            let error = text.parse::<RedirectTarget>().unwrap_err().to_string();
            assert!(error.contains("as in rtsp://192.0.2.8:8554/"), "{text:?}");
        }
    }

    #[test]
    fn clients_of_rtsp_find_the_same_path_there() {
        let b = target("rtsp://b:8600/");
        for (uri, is_encrypted, location) in [
            ("rtsp://a/x.mp4?k=v", false, Some("rtsp://b:8600/x.mp4?k=v")),
            (
                "rtsp://u:p@a:8554/d/f.ts",
                false,
                Some("rtsp://b:8600/d/f.ts"),
            ),
            ("rtsps://a:77/f.ts", true, Some("rtsps://b:77/f.ts")),
            ("rtsps://a/f.ts", true, Some("rtsps://b/f.ts")),
            // TLS has ended before.
            ("rtsps://a:77/f.ts", false, Some("rtsps://b:77/f.ts")),
            ("RTSPS://a/f.ts", false, Some("rtsps://b/f.ts")),
            ("rtsps://b:77/f.ts", false, None),
            ("/f.ts", false, Some("rtsp://b:8600/f.ts")),
            ("*", false, Some("rtsp://b:8600/")),
            ("rtsp://a", false, Some("rtsp://b:8600/")),
            // In a circle.
            ("rtsp://B:8600/f.ts", false, None),
            ("rtsps://b:77/f.ts", true, None),
        ] {
            assert_eq!(b.of_rtsp(uri, is_encrypted).as_deref(), location, "{uri}");
        }
        let default = target("rtsp://b/");
        assert_eq!(default.of_rtsp("rtsp://b:554/f.ts", false), None);
        let moved = default.of_rtsp("rtsp://b:8554/f.ts", false);
        assert_eq!(moved.as_deref(), Some("rtsp://b/f.ts"));
    }

    #[test]
    fn clients_of_http_keep_their_port() {
        let b = target("rtsp://[::1]:8600/");
        let of = |host, is_encrypted| b.of_http("/f.ts?x", host, is_encrypted);
        let moved = of("a:8080", false);
        assert_eq!(moved.as_deref(), Some("http://[::1]:8080/f.ts?x"));
        assert_eq!(of("", true).as_deref(), Some("https://[::1]/f.ts?x"));
        assert_eq!(of("[::1]:8080", false), None);
        assert_eq!(of("[::1]", false), None);
        // What a client writes there is its own.
        assert_eq!(of("a:8 0", false).as_deref(), Some("http://[::1]/f.ts?x"));
    }

    #[test]
    fn a_presentation_is_what_its_tracks_urls_are_below() {
        for (track_url, url) in [
            ("rtsp://a/f.mp4/track2", "rtsp://a/f.mp4"),
            ("rtsp://a/f.mp4/", "rtsp://a/f.mp4"),
            ("rtsp://a/f.mp4/track1?k=v", "rtsp://a/f.mp4?k=v"),
            ("rtsp://a/f.mp4?k=v/track1", "rtsp://a/f.mp4?k=v"),
            ("/f.mp4/track1", "/f.mp4"),
            (
                "rtsp://a/f.ts/tracks=elementary/track1",
                "rtsp://a/f.ts/tracks=elementary",
            ),
            (
                "rtsp://a/f.mp4/srtp=gcm.000102030405060708090a0b0c0d0e0f/track1",
                "rtsp://a/f.mp4?srtp=gcm",
            ),
        ] {
            assert_eq!(Redirect::presentation(track_url), url);
        }
    }

    #[test]
    fn a_redirect_on_the_wire() {
        let session = SessionId::from_random([0xab; 16]);
        let mut redirect = Redirect {
            cseq: 3,
            session,
            url: "rtsp://a/f.ts",
            location: "rtsp://b/f.ts",
            position_ns: Some(12_500_000_000),
        };
        let text = |redirect: &Redirect<'_>| String::from_utf8(redirect.to_bytes()).unwrap();
        assert_eq!(
            text(&redirect),
            format!(
                "REDIRECT rtsp://a/f.ts RTSP/1.0\r\nCSeq: 3\r\nSession: {session}\r\n\
                 Location: rtsp://b/f.ts\r\nRange: npt=12.500000-\r\n\r\n"
            )
        );
        redirect.position_ns = None;
        assert!(text(&redirect).ends_with("Location: rtsp://b/f.ts\r\n\r\n"));
    }
}
