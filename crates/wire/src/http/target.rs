//! What a request's target names: a file or a folder below the served directory, or the server
//! itself.

use super::{Method, Refusal, Status};
use crate::rtsp::url;

/// Bytes of a host, with its port: a name has no more (RFC 1035, section 2.3.4), and the page of a
/// folder names the host with each file.
pub const HOST_BYTES_MAX: usize = 255;

/// What a request is about (RFC 9112, section 3.2).
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Target {
    /// `*`: the server itself, in OPTIONS only.
    Server,
    /// A name below the served directory.
    Path {
        /// Decoded, `/` between its parts, none at its ends; no part is empty, `.` or `..`. As
        /// [`from_bytes`](crate::name::from_bytes) has names.
        name: String,
        /// Whether a `/` ended it: only a folder can be meant.
        is_folder: bool,
    },
    /// A path that no file can have: it climbs with `..`, or holds an encoded slash or a zero byte.
    Impossible,
}

impl Target {
    /// Takes the target apart; the second value is the authority of an absolute one. Query and
    /// fragment are ignored: they choose nothing here.
    pub(super) fn parse(target: &str, method: Method) -> Result<(Self, Option<&str>), Refusal> {
        if target == "*" {
            return match method {
                Method::Options => Ok((Self::Server, None)),
                _ => Err(BAD),
            };
        }
        if method == Method::Connect {
            // Its target is an authority, and names nothing here.
            return Ok((Self::Impossible, None));
        }
        let whole = target.split(['?', '#']).next().unwrap_or_default();
        let (authority, path) = match whole.split_once("://") {
            _ if whole.starts_with('/') => (None, whole),
            Some((scheme, rest)) if is_http(scheme) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                if !is_host(authority) || authority.is_empty() {
                    return Err(BAD);
                }
                // OPTIONS for a URL without a path asks about the server (RFC 9112, section 3.2.4).
                if path.is_empty() && method == Method::Options && whole == target {
                    return Ok((Self::Server, Some(authority)));
                }
                (Some(authority), path)
            }
            _ => return Err(BAD),
        };
        let target = match url::name(path) {
            Ok(name) => Self::Path {
                is_folder: name.is_empty() || path.ends_with('/'),
                name,
            },
            Err(url::UrlError::Impossible) => Self::Impossible,
            Err(_) => return Err(BAD),
        };
        Ok((target, authority))
    }
}

/// Whether this may stand in a Host field: `host[:port]` without a user, or nothing.
pub(super) fn is_host(value: &str) -> bool {
    let plain = |b: u8| b.is_ascii_graphic() && !b"@/?#\\\"<>^`{|}'".contains(&b);
    let is_short = value.len() <= HOST_BYTES_MAX;
    value.is_empty() || is_short && value.bytes().all(plain) && url::is_authority(value)
}

fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

const BAD: Refusal = Refusal {
    status: Status::BadRequest,
    note: "no target that is understood; send /path or http://host/path",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(target: &str) -> Option<Target> {
        Target::parse(target, Method::Get)
            .ok()
            .map(|(target, _)| target)
    }

    fn file(name: &str) -> Option<Target> {
        Some(Target::Path {
            name: name.to_owned(),
            is_folder: false,
        })
    }

    fn folder(name: &str) -> Option<Target> {
        Some(Target::Path {
            name: name.to_owned(),
            is_folder: true,
        })
    }

    #[test]
    fn targets_name_files_and_folders() {
        assert_eq!(parse("/a/b.ts"), file("a/b.ts"));
        assert_eq!(parse("/a%20b/%C3%A9%23%25.ts?x=/../y"), file("a b/é#%.ts"));
        assert_eq!(parse("/%ff%fe.ts"), file("\u{10ffff}\u{10fffe}.ts"));
        assert_eq!(parse("/a//./b"), file("a/b"));
        assert_eq!(parse("/a/"), folder("a"));
        assert_eq!(parse("/"), folder(""));
        assert_eq!(parse("http://host"), folder(""));
        assert_eq!(parse("HTTP://h:80/a?b"), file("a"));
        assert_eq!(parse("https://[::1]:8080/a/"), folder("a"));
        assert_eq!(parse("/http://h/"), folder("http:/h"));
        for climbing in [
            "/../a",
            "/a/..",
            "/%2e%2e/a",
            "/a%2f..%2fb",
            "/%00",
            "http://h/..",
        ] {
            assert_eq!(parse(climbing), Some(Target::Impossible), "{climbing}");
        }
        for bad in [
            "",
            "a",
            "*",
            "ftp://h/a",
            "http://",
            "http:///a",
            "http://u@h/a",
            "http://h:x/",
            "/%zz",
            "/%2",
            "http://h<b>/",
            "h:80",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_star_is_the_server_for_options_only() {
        let options = |target| Target::parse(target, Method::Options).map(|(target, _)| target);
        assert_eq!(options("*"), Ok(Target::Server));
        assert_eq!(options("http://h"), Ok(Target::Server));
        assert_eq!(options("/").ok(), folder(""));
        assert!(Target::parse("*", Method::Head).is_err());
    }

    #[test]
    fn an_absolute_target_brings_its_authority() {
        assert_eq!(
            Target::parse("http://h:1/a", Method::Get).unwrap().1,
            Some("h:1")
        );
        assert_eq!(Target::parse("/a", Method::Get).unwrap().1, None);
    }

    #[test]
    fn hosts_carry_nothing_but_a_host() {
        for good in [
            "",
            "h",
            "h:80",
            "h:",
            "[::1]:8080",
            "[v1.a:b]",
            "192.0.2.1",
            "a-b.example_1",
        ] {
            assert!(is_host(good), "{good}");
        }
        for bad in [
            "u@h",
            "h/",
            "h x",
            "h:x",
            ":80",
            "h\"",
            "h'",
            "<h>",
            "é",
            "[::1",
            "[ab..cd::ef98:0:7654:321]",
        ] {
            assert!(!is_host(bad), "{bad}");
        }
        let name = |bytes| "h".repeat(bytes);
        assert!(is_host(&name(HOST_BYTES_MAX)) && !is_host(&name(HOST_BYTES_MAX + 1)));
    }
}
