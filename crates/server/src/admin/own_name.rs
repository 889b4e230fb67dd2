//! By which names this machine may be asked from itself.
//!
//! A page of anybody's has a name, which may mean this machine a moment after the page was loaded:
//! then it is of the same origin as what answers here, and its browser asks nobody whether it may
//! read that. The browser is on this machine, or at the near end of a tunnel to it, so that nothing
//! but the name tells it from whoever runs the server. A name counts that no stranger can have: an
//! address, one without a dot, this host's, and those of its own table. What others ask from
//! elsewhere they could ask without a browser; their names are not looked at.

use std::fs;
use std::net::IpAddr;

use axum::extract::{Extension, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::listen::Peer;

/// What a request by another name is told.
pub(super) const MISNAMED: &str = "this name is not known to be this machine's: ask by an \
    address, as localhost, or by a name of its /etc/hosts; a proxy here must not pass on its \
    clients' Host";

/// Lets pass what asks by a name of this machine, or from elsewhere.
pub(super) async fn by_own_name(
    Extension(Peer(peer)): Extension<Peer>,
    request: Request,
    next: Next,
) -> Response {
    match is_misnamed(peer, request.headers()) {
        true => (StatusCode::FORBIDDEN, format!("{MISNAMED}\n")).into_response(),
        false => next.run(request).await,
    }
}

/// Whether a request comes from this machine, and by a name that may be anybody's.
pub(super) fn is_misnamed(peer: IpAddr, headers: &HeaderMap) -> bool {
    if !peer.is_loopback() || !headers.contains_key(header::HOST) {
        return false;
    }
    let Some(name) = host_of(headers) else {
        return true;
    };
    // A dot at the end says that nothing follows.
    let name = name.strip_suffix('.').unwrap_or(name);
    if !name.contains('.') || is_address(name) || is_reserved(name) {
        return false;
    }
    // A comment there may be in any letters.
    let [host_name, table] = [HOST_NAME, HOST_TABLE].map(|file| fs::read(file).unwrap_or_default());
    let text = String::from_utf8_lossy;
    !is_known(name, &text(&host_name), &text(&table))
}

/// Whether a name is below one that is given to nobody: `localhost` (RFC 6761, section 6.3), and
/// `internal`, which is kept for networks of one's own, as containers ask their host by it.
fn is_reserved(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    ["localhost", "internal"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(last))
}

/// What a request calls this host, without a port; if it does, and in letters.
pub(super) fn host_of(headers: &HeaderMap) -> Option<&str> {
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    })
}

/// Whether a host is named by an address, or as what means this machine everywhere.
pub(super) fn is_address(name: &str) -> bool {
    let name = name.trim_matches(['[', ']']);
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

/// Whether a name is this host's, or stands in its table of hosts (hosts(5)).
fn is_known(name: &str, host_name: &str, table: &str) -> bool {
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let lines = table.lines().filter_map(|line| line.split('#').next());
    let mut names = lines.flat_map(|line| line.split_whitespace().skip(1));
    is(host_name.trim()) || names.any(is)
}

const HOST_NAME: &str = "/proc/sys/kernel/hostname";
const HOST_TABLE: &str = "/etc/hosts";

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const LOCAL: [u8; 4] = [127, 0, 0, 1];

    fn headers(host: &'static str) -> HeaderMap {
        let host = HeaderValue::from_static(host);
        HeaderMap::from_iter([(header::HOST, host)])
    }

    #[test]
    fn a_name_of_anybodys_is_not_this_machines() {
        for host in [
            "pages.example:9554",
            "127.0.0.1.pages.example",
            "h.localhost.example",
            "pages.example.",
        ] {
            assert!(is_misnamed(LOCAL.into(), &headers(host)), "{host}");
            let far = [192, 0, 2, 1].into();
            assert!(!is_misnamed(far, &headers(host)), "{host}");
        }
        for host in [
            "127.0.0.1:9554",
            "192.0.2.1",
            "[::1]:9554",
            "[::1]",
            "localhost:1",
            "films:9554",
            "films.",
            "localhost.",
            "onrush.localhost:9554",
            "host.docker.internal:9554",
            "",
        ] {
            assert!(!is_misnamed(LOCAL.into(), &headers(host)), "{host}");
        }
        assert!(!is_misnamed(LOCAL.into(), &HeaderMap::new()));
    }

    #[test]
    fn names_of_the_machine_are_those_it_knows_itself_by() {
        let table = "127.0.1.1\tfilms.example.org films # not.example\n#127.0.0.1 no.example\n\n";
        for (name, is_its) in [
            ("films.example.org", true),
            ("Films.Example.Org", true),
            ("node-1.example", true),
            ("not.example", false),
            ("no.example", false),
            ("127.0.1.1", false),
            ("x.films.example.org", false),
            ("example.org", false),
        ] {
            assert_eq!(is_known(name, "node-1.example\n", table), is_its, "{name}");
        }
    }
}
