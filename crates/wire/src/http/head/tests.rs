//! Tests of [`super`].

use proptest::prelude::*;

use super::*;

fn parse(head: &str) -> Result<Request<'_>, Status> {
    let end = HeadScanner::default().end(head.as_bytes());
    let end = end.map_err(|refusal| refusal.status)?;
    assert_eq!(end, Some(head.len()), "{head:?}");
    Request::parse(head.as_bytes()).map_err(|refusal| refusal.status)
}

fn with(lines: &str) -> String {
    format!("GET /a HTTP/1.1\r\nHost: h\r\n{lines}\r\n")
}

fn status(head: &str) -> Status {
    parse(head).expect_err(head)
}

/// A request line is the first of what is left, so that the log has it.
#[test]
fn empty_lines_in_front_of_a_head_are_taken_away() {
    for (bytes, left, may_begin) in [
        ("", "", true),
        ("\r", "\r", false),
        ("\r\n", "", true),
        ("\r\n\r", "\r", false),
        ("\r\n\r\nGET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\n", true),
        ("\n\r\n", "\n\r\n", true),
    ] {
        let mut taken = bytes.as_bytes().to_vec();
        assert_eq!(skip_empty_lines(&mut taken), may_begin, "{bytes:?}");
        assert_eq!(taken, left.as_bytes());
    }
}

#[test]
fn a_request_is_understood() {
    let head = with(
        "Range: bytes=0-1\r\nif-range: \"x\"\r\nIF-NONE-MATCH: \"a\"\r\nIf-None-Match: \
         \"b\"\r\n\
         Accept-Encoding: gzip\r\nUser-Agent: \u{fc}\r\nConnection: keep-alive, Close\r\n",
    );
    let request = parse(&head).unwrap();
    assert_eq!((request.method, request.host), (Method::Get, "h"));
    assert_eq!(request.line, "GET /a HTTP/1.1");
    assert_eq!(
        (request.range, request.if_range),
        (Some("bytes=0-1"), Some("\"x\""))
    );
    assert_eq!(request.if_none_match.as_deref(), Some("\"a\",\"b\""));
    assert!(!request.keeps_alive);
    assert_eq!((request.content, request.origin), (Content::None, None));
    let head = with("origin: http://pages.example\r\n");
    assert_eq!(
        parse(&head).unwrap().origin,
        Some(&b"http://pages.example"[..])
    );
}

#[test]
fn connections_stay_or_close_as_the_version_has_it() {
    let keeps = |head: &str| parse(head).unwrap().keeps_alive;
    assert!(keeps("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    assert!(!keeps(
        "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
    ));
    assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
    assert!(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

/// Each of these is a way to make two servers see two different requests.
#[test]
fn smuggling_shapes_are_refused() {
    for lines in [
        "Content-Length: 1\r\nContent-Length: 1\r\n",
        "Content-Length: 1\r\nContent-Length: 2\r\n",
        "Content-Length: 1, 1\r\n",
        "Content-Length: +1\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 0x1\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
        "X: y\r\n folded\r\n",
        "X: y\r\n\tfolded\r\n",
        " X: y\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Content-Length\t: 1\r\n",
        "X\r\n",
        ": y\r\n",
        "X: a\rb\r\n",
        "X: a\nContent-Length: 1\r\n",
        "X: a\0b\r\n",
        "X\u{b}: y\r\n",
        "Host: other\r\n",
        "Range: bytes=0-1\r\nRange: bytes=2-3\r\n",
    ] {
        assert_eq!(status(&with(lines)), Status::BadRequest, "{lines:?}");
    }
    for lines in [
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
    ] {
        assert_eq!(status(&with(lines)), Status::NotImplemented, "{lines:?}");
    }
    for head in [
        "GET /a HTTP/1.1\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET /a HTTP/1.1\r\nHost: u@h\r\n\r\n",
        "GET /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET  /a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\tHTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a HTTP/1.1 \r\nHost: h\r\n\r\n",
        "G\u{e9}T /a HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /a\r\n\r\n",
    ] {
        assert_eq!(status(head), Status::BadRequest, "{head:?}");
    }
    let bare = HeadScanner::default().end(b"GET / HTTP/1.1\nHost: h\n\n");
    assert_eq!(bare.unwrap_err().status, Status::BadRequest);
}

#[test]
fn versions_and_methods_that_are_not_spoken() {
    assert_eq!(
        status("GET / HTTP/2.0\r\nHost: h\r\n\r\n"),
        Status::VersionNotSupported
    );
    for version in ["HTTP/0.9", "HTTP/1.a", "HTTP/1.", "HTTP/3.0"] {
        let head = format!("GET / {version}\r\nHost: h\r\n\r\n");
        assert_eq!(status(&head), Status::VersionNotSupported, "{version}");
    }
    let method = |name| {
        parse(&format!("{name} /a HTTP/1.1\r\nHost: h\r\n\r\n"))
            .unwrap()
            .method
    };
    assert_eq!(method("HEAD"), Method::Head);
    assert_eq!(method("POST"), Method::NotAllowed);
    assert_eq!(method("get"), Method::Unknown);
    assert_eq!(method("BREW"), Method::Unknown);
    let connect = parse("CONNECT h:80 HTTP/1.1\r\nHost: h:80\r\n\r\n").unwrap();
    assert_eq!(connect.method, Method::Connect);
}

/// RFC 9110, section 2.5: a later minor version is treated as the highest that is spoken.
#[test]
fn later_minor_versions_are_read_as_1_1() {
    for minor in 2..=9 {
        let lines = "Host: h\r\nRange: bytes=0-1\r\nTransfer-Encoding: chunked\r\n";
        let head = format!("GET /a%20b HTTP/1.{minor}\r\n{lines}\r\n");
        let request = parse(&head).expect(&head);
        assert_eq!(request.method, Method::Get);
        let (name, is_folder) = ("a b".to_owned(), false);
        assert_eq!(request.target, Target::Path { name, is_folder });
        assert_eq!(request.line, format!("GET /a%20b HTTP/1.{minor}"));
        assert!(request.is_http_11 && request.keeps_alive);
        assert_eq!(request.range, Some("bytes=0-1"));
        assert_eq!(request.content, Content::Chunked);
    }
    for (head, expected) in [
        ("GET / HTTP/1.2\r\n\r\n", Status::BadRequest),
        ("GET  / HTTP/1.2\r\nHost: h\r\n\r\n", Status::BadRequest),
        ("GET / x HTTP/1.2\r\nHost: h\r\n\r\n", Status::BadRequest),
        ("GET / HTTP/1.2 \r\nHost: h\r\n\r\n", Status::BadRequest),
        (
            "GET / HTTP/1.2\r\nHost: h\r\nX : y\r\n\r\n",
            Status::BadRequest,
        ),
        ("GET / HTTP/1.2\r\n Host: h\r\n\r\n", Status::BadRequest),
        ("G\"T / HTTP/1.2\r\nHost: h\r\n\r\n", Status::BadRequest),
    ] {
        assert_eq!(status(head), expected, "{head:?}");
    }
    let lines = |count: usize| {
        let lines = "X: y\r\n".repeat(count - 1);
        format!("GET / HTTP/1.2\r\nHost: h\r\n{lines}\r\n")
    };
    assert!(parse(&lines(HEADERS_MAX)).is_ok());
    assert_eq!(status(&lines(HEADERS_MAX + 1)), Status::HeadersTooLarge);
}

#[test]
fn content_and_expectations() {
    let content = |lines: &str| parse(&with(lines)).unwrap().content;
    assert_eq!(content("Content-Length: 12\r\n"), Content::Length(12));
    assert_eq!(content("Transfer-Encoding: Chunked\r\n"), Content::Chunked);
    assert!(
        parse(&with("Expect: 100-Continue\r\n"))
            .unwrap()
            .expects_continue
    );
    assert_eq!(status(&with("Expect: tea\r\n")), Status::ExpectationFailed);
    let old = parse("GET / HTTP/1.0\r\nExpect: tea\r\n\r\n").unwrap();
    assert!(!old.expects_continue);
}

#[test]
fn a_query_is_kept_as_it_came() {
    for (target, query) in [
        ("/a", None),
        ("/a?", Some("")),
        ("/a?x=%2f&y=?/../", Some("x=%2f&y=?/../")),
        ("/a?x#y?z", Some("x")),
        ("/a#y?z", None),
        ("http://h?x", Some("x")),
        ("*?x", None),
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
        let parsed = parse(&head).map_or(None, |request| request.query);
        assert_eq!(parsed, query, "{target}");
    }
}

#[test]
fn an_absolute_target_goes_before_host() {
    let head = "GET http://a:1/x HTTP/1.1\r\nHost: b\r\n\r\n";
    assert_eq!(parse(head).unwrap().host, "a:1");
    assert_eq!(
        status("GET http://a/x HTTP/1.1\r\n\r\n"),
        Status::BadRequest
    );
}

#[test]
fn heads_have_their_bounds() {
    let padded = |bytes: usize| {
        let empty = with("X: \r\n").len();
        with(&format!("X: {}\r\n", "y".repeat(bytes - empty)))
    };
    assert!(parse(&padded(HEAD_BYTES_MAX)).is_ok());
    assert_eq!(status(&padded(HEAD_BYTES_MAX + 1)), Status::HeadersTooLarge);
    // As they are when more has arrived with it.
    let more = [padded(HEAD_BYTES_MAX).as_bytes(), b"GET"].concat();
    assert_eq!(HeadScanner::default().end(&more), Ok(Some(HEAD_BYTES_MAX)));
    let lines = |count: usize| with(&"X: y\r\n".repeat(count - 1));
    assert!(parse(&lines(HEADERS_MAX)).is_ok());
    assert_eq!(status(&lines(HEADERS_MAX + 1)), Status::HeadersTooLarge);
    let target =
        |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "x".repeat(bytes - 1));
    assert!(parse(&target(TARGET_BYTES_MAX)).is_ok());
    assert_eq!(status(&target(TARGET_BYTES_MAX + 1)), Status::UriTooLong);
    assert_eq!(status(&target(HEAD_BYTES_MAX + 1)), Status::UriTooLong);
}

proptest! {
    /// Whether a head is taken does not depend on how it arrives.
    #[test]
    fn pieces_make_no_difference(bytes in "(GET|G)( |\t)/[a-z%]{0,9} HTTP/1.[01]\r?\n([A-Z]: \
     ?[a-z ]{0,5}\r?\n){0,4}\r?\n", cut in 1_usize..9) {
        let whole = HeadScanner::default().end(bytes.as_bytes());
        let mut scanner = HeadScanner::default();
        let mut in_pieces = Ok(None);
        for end in (0..bytes.len()).step_by(cut).chain([bytes.len()]) {
            in_pieces = scanner.end(&bytes.as_bytes()[..end]);
            if in_pieces != Ok(None) {
                break;
            }
        }
        prop_assert_eq!(whole, in_pieces);
    }

    /// A request that is taken says the same when it is written down anew.
    #[test]
    fn what_is_taken_is_what_was_written(
        path in "/[a-zA-Z0-9._~%20/-]{0,30}", length in prop::option::of(0_u64..9),
        names in prop::collection::vec("[A-Za-z-]{1,12}", 0..6),
            values in prop::collection::vec("[!-~ ]{0,20}", 6),
    ) {
        let mut lines: Vec<_> = names.iter().zip(&values).map(|(n,
            v)| format!("{n}: {v}\r\n")).collect();
        lines.extend(length.map(|length| format!("Content-Length: {length}\r\n")));
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n{}\r\n", lines.concat());
        if let Ok(request) = Request::parse(head.as_bytes()) {
            let named = |name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
            prop_assert!(!named("Host"), "a second one");
            if !named("Content-Length") && !named("Transfer-Encoding") {
                prop_assert_eq!(request.content, length.map_or(Content::None, Content::Length));
            }
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(Some(end)) = HeadScanner::default().end(&bytes) {
            prop_assert!(end <= bytes.len());
        }
        drop(Request::parse(&bytes));
    }

    #[test]
    fn near_misses_never_panic(at in 0_usize..60, byte in any::<u8>()) {
        let mut head = with("Content-Length: 3\r\nTransfer-Encoding: x\r\n").into_bytes();
        head[at] = byte;
        drop(Request::parse(&head));
    }
}
