//! Requests and answers between HTTP/2's fields (RFC 9113, section 8.3) and HTTP/1.1's heads.

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response};

/// The head that HTTP/1.1 would have. What is said of the connection stays away: the library has
/// refused it (section 8.2.2); so does the length of content, which it has counted, unless that is
/// to be stored.
pub(super) fn head(parts: &Parts) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\n", parts.method, target(parts)).into_bytes();
    let authority = parts.uri.authority();
    let mut field = |name: &str, value: &[u8]| {
        for part in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(part);
        }
    };
    if let Some(authority) = authority {
        field("host", authority.as_str().as_bytes());
    }
    for (name, value) in &parts.headers {
        let is_left_out = match name.as_str() {
            "host" => authority.is_some(),
            "content-length" => parts.method != Method::PUT,
            // Nobody here looks at one, and each may come in a field of its own (RFC 9113, section
            // 8.2.3): those of a browser are more than a head has lines.
            "cookie" => true,
            _ => false,
        };
        if !is_left_out {
            field(name.as_str(), value.as_bytes());
        }
    }
    // Where it ends, its frames say.
    if parts.method == Method::PUT && !parts.headers.contains_key("content-length") {
        field("transfer-encoding", b"chunked");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// How long a request says that what it carries is.
pub(super) fn content_bytes(parts: &Parts) -> Option<u64> {
    let length = parts.headers.get("content-length")?;
    length.to_str().ok()?.parse().ok()
}

/// What the log says of a request.
pub(super) fn line(parts: &Parts) -> String {
    format!("{} {} HTTP/2.0", parts.method, target(parts))
}

fn target(parts: &Parts) -> &str {
    let authority = parts.uri.authority();
    match parts.uri.path_and_query() {
        Some(path) if parts.method != Method::CONNECT => path.as_str(),
        _ => authority.map_or("/", |it| it.as_str()),
    }
}

/// The head of an answer, from the one that HTTP/1.1 would have; `None` if that is none.
pub(super) fn response(code: u16, head: &str) -> Option<Response<()>> {
    let mut response = Response::builder().status(code).body(()).ok()?;
    for line in head.lines().skip(1).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(": ")?;
        if name.eq_ignore_ascii_case("connection") {
            continue;
        }
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        response.headers_mut().append(name, value);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use onrush_wire::http::HEADERS_MAX;

    use super::*;

    fn parts(request: http::request::Builder) -> Parts {
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn a_request_becomes_a_head() {
        let request = Request::get("https://a.example:8443/x%20y?a=b")
            .header("range", "bytes=0-1")
            .header("host", "other.example")
            .header("content-length", "3")
            .header("expect", "100-continue");
        // A browser sends those of a whole domain, each by itself.
        let cookies = (0..2 * HEADERS_MAX).map(|number| format!("{number}=a"));
        let request = cookies.fold(request, |request, cookie| request.header("cookie", cookie));
        let parts = parts(request);
        let expected = "GET /x%20y?a=b HTTP/1.1\r\nhost: a.example:8443\r\n\
                        range: bytes=0-1\r\nexpect: 100-continue\r\n\r\n";
        assert_eq!(String::from_utf8(head(&parts)).unwrap(), expected);
        assert_eq!(line(&parts), "GET /x%20y?a=b HTTP/2.0");
        assert_eq!(content_bytes(&parts), Some(3));
    }

    #[test]
    fn without_an_authority_host_is_what_it_says() {
        let parts = parts(Request::options("*").header("host", "b"));
        let expected = "OPTIONS * HTTP/1.1\r\nhost: b\r\n\r\n";
        assert_eq!(String::from_utf8(head(&parts)).unwrap(), expected);
    }

    #[test]
    fn an_answer_keeps_its_lines_but_those_of_connections() {
        let head = "HTTP/1.1 200 OK\r\nDate: x\r\nConnection: close\r\nVary: a\r\nVary: b\r\n\r\n";
        let response = response(206, head).unwrap();
        assert_eq!(response.status(), 206);
        let of = |name| response.headers().get_all(name).iter().count();
        assert_eq!((of("date"), of("connection"), of("vary")), (1, 0, 2));
    }
}
