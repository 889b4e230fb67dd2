//! Answers of all kinds, and what their heads say.

use proptest::prelude::*;

use super::*;

const CONTEXT: Context<'_> = Context {
    date: "NOW",
    now_s: 100,
    boundary: "BOUNDARY",
    keeps_alive: true,
    is_http_11: true,
    is_head: false,
    takes_uploads: false,
    is_for_all_origins: false,
};
const FILE: Resource<'_> = Resource {
    file_bytes: 1000,
    validators: Validators {
        etag: "\"tag\"",
        modified_s: 50,
    },
    last_modified: "THEN",
    media_type: "video/mp2t",
    coding: None,
    varies: false,
    cache_control: None,
    content_security_policy: None,
    is_for_all_origins: false,
};

fn answer(lines: &str) -> Answer {
    let head = format!("GET /a HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    Answer::file(&Request::parse(head.as_bytes()).unwrap(), &FILE, &CONTEXT)
}

/// All that is sent, with a file whose every byte is `#`.
fn sent(answer: &Answer) -> String {
    let piece = |piece: &Piece| match piece {
        Piece::Text(text) => String::from_utf8(text.clone()).unwrap(),
        Piece::File(part) => "#".repeat(usize::try_from(part.end - part.start).unwrap()),
    };
    answer.pieces.iter().map(piece).collect()
}

fn body_of(text: &str) -> (&str, &str) {
    text.split_once("\r\n\r\n").unwrap()
}

#[test]
fn a_whole_file() {
    let all = answer("");
    let text = sent(&all);
    let expected = "HTTP/1.1 200 OK\r\nDate: NOW\r\nContent-Type: \
                    video/mp2t\r\nContent-Length: 1000\r\n\
                    Accept-Ranges: bytes\r\nX-Content-Type-Options: nosniff\r\nETag: \
                    \"tag\"\r\nLast-Modified: THEN";
    assert_eq!(body_of(&text).0, expected);
    assert_eq!(all.pieces[1], Piece::File(0..1000));
    assert_eq!(all.body_bytes, 1000);
}

#[test]
fn one_part() {
    let part = answer("Range: bytes=10-19\r\n");
    let text = sent(&part);
    assert!(
        text.starts_with("HTTP/1.1 206 Partial Content\r\n"),
        "{text}"
    );
    assert!(
        text.contains("\r\nContent-Range: bytes 10-19/1000\r\nAccept-Ranges"),
        "{text}"
    );
    assert_eq!(part.pieces[1..], [Piece::File(10..20)]);
}

#[test]
fn several_parts() {
    let parts = answer("Range: bytes=500-501, 0-2\r\n");
    let text = sent(&parts);
    let (head, body) = body_of(&text);
    assert!(
        head.contains("Content-Type: multipart/byteranges; boundary=BOUNDARY\r\n"),
        "{head}"
    );
    assert!(!head.contains("Content-Range"), "{head}");
    assert!(
        head.contains(&format!("Content-Length: {}\r\n", body.len())),
        "{head} {}",
        body.len()
    );
    let expected = "--BOUNDARY\r\nContent-Type: video/mp2t\r\nContent-Range: bytes \
     500-501/1000\r\n\r\n##\r\n\
        --BOUNDARY\r\nContent-Type: video/mp2t\r\nContent-Range: bytes 0-2/1000\r\n\r\n###\r\n\
        --BOUNDARY--\r\n";
    assert_eq!(body, expected);
    assert_eq!(parts.body_bytes, body.len() as u64);
}

#[test]
fn a_range_that_the_file_does_not_have() {
    let text = sent(&answer("Range: bytes=1000-\r\n"));
    assert!(text.starts_with("HTTP/1.1 416 "), "{text}");
    assert!(
        text.contains("\r\nContent-Range: bytes */1000\r\n"),
        "{text}"
    );
}

#[test]
fn conditions_come_before_ranges() {
    let known = answer("Range: bytes=0-1\r\nIf-None-Match: \"tag\"\r\n");
    let text = sent(&known);
    let expected = "HTTP/1.1 304 Not Modified\r\nDate: NOW\r\nETag: \"tag\"\r\nLast-Modified: \
     THEN\r\n\r\n";
    assert_eq!(text, expected);
    assert_eq!(
        answer("If-Match: \"x\"\r\n").status,
        Status::PreconditionFailed
    );
    let changed = answer("Range: bytes=0-1\r\nIf-Range: \"old\"\r\n");
    assert_eq!((changed.status, changed.body_bytes), (Status::Ok, 1000));
    let same = answer("Range: bytes=0-1\r\nIf-Range: \"tag\"\r\n");
    assert_eq!((same.status, same.body_bytes), (Status::PartialContent, 2));
}

#[test]
fn a_head_is_that_of_the_whole_file_and_has_no_body() {
    let head = "HEAD /a HTTP/1.1\r\nHost: h\r\nRange: bytes=0-1\r\n\r\n";
    let request = Request::parse(head.as_bytes()).unwrap();
    let context = Context {
        is_head: true,
        ..CONTEXT
    };
    let only = Answer::file(&request, &FILE, &context);
    assert_eq!(
        (only.status, only.pieces.len(), only.body_bytes),
        (Status::Ok, 1, 0)
    );
    assert_eq!(body_of(&sent(&only)).0, body_of(&sent(&answer(""))).0);
    let refusal = Answer::refusal(Status::NotFound, "x", &context);
    assert!(sent(&refusal).contains("Content-Length: ") && sent(&refusal).ends_with("\r\n\r\n"));
}

#[test]
fn empty_files_have_no_body() {
    let file = Resource {
        file_bytes: 0,
        ..FILE
    };
    let request = Request::parse(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let empty = Answer::file(&request, &file, &CONTEXT);
    assert_eq!((empty.pieces.len(), empty.body_bytes), (1, 0));
    assert!(sent(&empty).contains("Content-Length: 0\r\n"));
}

#[test]
fn codings_are_named_with_what_they_vary_by() {
    let file = Resource {
        coding: Some(Coding::Gzip),
        varies: true,
        ..FILE
    };
    let request = Request::parse(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let text = sent(&Answer::file(&request, &file, &CONTEXT));
    assert!(text.contains("Content-Type: video/mp2t\r\n"), "{text}");
    assert!(text.contains("\r\nContent-Encoding: gzip\r\n"), "{text}");
    assert!(text.contains("\r\nVary: Accept-Encoding\r\n"), "{text}");
}

#[test]
fn connections_are_told_whether_they_stay() {
    let first = |context: &Context<'_>| sent(&Answer::options(context));
    assert!(!first(&CONTEXT).contains("Connection"));
    assert!(first(&CONTEXT).contains("\r\nAllow: GET, HEAD, OPTIONS\r\n"));
    let old = Context {
        is_http_11: false,
        ..CONTEXT
    };
    assert!(first(&old).contains("\r\nConnection: keep-alive\r\n"));
    let last = Context {
        keeps_alive: false,
        ..CONTEXT
    };
    assert!(first(&last).contains("\r\nConnection: close\r\n"));
    let refusal = Refusal {
        status: Status::BadRequest,
        note: "x",
    };
    assert!(sent(&Answer::refused(refusal, &CONTEXT)).contains("\r\nConnection: close\r\n"));
}

#[test]
fn errors_say_what_may_be_done() {
    let refusal = |status| sent(&Answer::refusal(status, "why", &CONTEXT));
    let text = refusal(Status::MethodNotAllowed);
    assert!(
        text.contains("\r\nAllow: GET, HEAD, OPTIONS\r\n") && text.ends_with("Allowed: why\n"),
        "{text}"
    );
    assert!(refusal(Status::ServiceUnavailable).contains("\r\nRetry-After: 5\r\n"));
    // No cache says for what comes a moment later that there is nothing.
    for status in [Status::NotFound, Status::ServiceUnavailable] {
        let text = refusal(status);
        assert_eq!(times(&text, "Cache-Control: no-store"), 1, "{text}");
    }
    for (query, location) in [
        (None, "./a/"),
        (Some(""), "./a/?"),
        (Some("x=%2f&y=?\u{fc}"), "./a/?x=%2f&y=?%C3%BC"),
    ] {
        let moved = sent(&Answer::moved("/b/a/", query, &CONTEXT));
        assert!(
            moved.contains(&format!("\r\nLocation: {location}\r\n")),
            "{moved}"
        );
    }
}

/// How often a head says that.
fn times(head: &str, line: &str) -> usize {
    head.lines().filter(|it| *it == line).count()
}

#[test]
fn redirects_and_errors_are_read_by_all_origins() {
    const ALL: &str = "Access-Control-Allow-Origin: *";
    let open = Context {
        is_for_all_origins: true,
        ..CONTEXT
    };
    let all = |context: &Context<'_>| {
        let head = b"GET /a HTTP/1.1\r\nHost: h\r\nRange: bytes=1000-\r\n\r\n";
        let request = Request::parse(head).unwrap();
        [
            Answer::elsewhere("http://b/a", context),
            Answer::moved("/a/", None, context),
            Answer::log_in(&["Bearer".to_owned()], "x", context),
            Answer::slowed(7, "x", context),
            Answer::refusal(Status::NotFound, "x", context),
            Answer::refusal(Status::ServiceUnavailable, "x", context),
            Answer::file(&request, &FILE, context),
        ]
    };
    for (with, without) in all(&open).iter().zip(all(&CONTEXT)) {
        let (with, without) = (sent(with), sent(&without));
        assert_eq!((times(&with, ALL), times(&without, ALL)), (1, 0), "{with}");
        assert!(!with.contains("Allow-Credentials"), "{with}");
    }
    let retry = sent(&Answer::slowed(7, "x", &open));
    let exposed = "\r\nAccess-Control-Expose-Headers: Age, Content-Length, Content-Range, Date, \
                   ETag, Retry-After\r\n";
    assert!(retry.contains(exposed), "{retry}");
}

/// A browser takes two of these lines for none.
#[test]
fn an_answer_says_once_who_may_read_it() {
    let open = Context {
        is_for_all_origins: true,
        ..CONTEXT
    };
    let file = Resource {
        is_for_all_origins: true,
        ..FILE
    };
    let request = Request::parse(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    for context in [&open, &CONTEXT] {
        for answer in [
            Answer::file(&request, &file, context),
            Answer::nothing(context),
            Answer::options(context),
        ] {
            let text = sent(&answer);
            assert_eq!(times(&text, "Access-Control-Allow-Origin: *"), 1, "{text}");
        }
    }
}

#[test]
fn pages_of_other_origins_may_send_tokens() {
    let options = sent(&Answer::options(&CONTEXT));
    let asked_with = "\r\nAccess-Control-Allow-Headers: Authorization, Range, If-None-Match, \
                      If-Modified-Since\r\n";
    assert!(options.contains(asked_with), "{options}");
}

#[test]
fn a_file_from_the_future_is_from_now() {
    let validators = Validators {
        modified_s: 101,
        ..FILE.validators
    };
    let request = Request::parse(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let file = Resource { validators, ..FILE };
    assert!(sent(&Answer::file(&request, &file, &CONTEXT)).contains("\r\nLast-Modified: NOW\r\n"));
}

#[test]
fn a_page_of_a_cluster_may_have_films_from_there() {
    let policy = page_policy_with(&["http://a:8080".to_owned(), "https://b".to_owned()]);
    for (own, of_cluster) in PAGE_POLICY.split("; ").zip(policy.split("; ")) {
        let may = own.starts_with("media-src ") || own.starts_with("connect-src ");
        let more = if may { " http://a:8080 https://b" } else { "" };
        assert_eq!(of_cluster, format!("{own}{more}"));
    }
    assert_eq!(policy.matches("http://a:8080").count(), 2);
    assert_eq!(page_policy_with(&[]), PAGE_POLICY);
}

proptest! {
    /// The length that is announced is the length that is sent, whatever is asked for.
    #[test]
    fn the_length_announced_is_the_length_sent(range in "bytes=([0-9]{0,3}-[0-9]{0,3},? \
     ?){0,6}", file_bytes in 0_u64..2000) {
        let head = format!("GET /a HTTP/1.1\r\nHost: h\r\nRange: {range}\r\n\r\n");
        let request = Request::parse(head.as_bytes()).unwrap();
        let answer = Answer::file(&request, &Resource { file_bytes, ..FILE }, &CONTEXT);
        let text = sent(&answer);
        let (head, body) = body_of(&text);
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        prop_assert_eq!(length.unwrap().parse(), Ok(body.len()));
        prop_assert_eq!(answer.body_bytes, body.len() as u64);
    }
}
