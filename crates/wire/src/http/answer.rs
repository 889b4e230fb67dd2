//! What a request gets: a status, a head, and what follows it, piece by piece.
//!
//! An answer is decided whole before its first byte is sent; its length is always known. So a body
//! that ends early is seen by the client as that, and never as a shorter file.

use std::io::Write;
use std::ops::Range;

use percent_encoding::{CONTROLS, utf8_percent_encode};

use super::{Coding, Method, Ranges, Refusal, Request, Status, Validators, Verdict};

/// What an answer depends on beside the request and the file.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Now, as HTTP writes it.
    pub date: &'a str,
    /// Now, in seconds since 1970.
    pub now_s: u64,
    /// What separates parts: unknown to those who write the files.
    pub boundary: &'a str,
    /// Whether the connection stays open after this answer.
    pub keeps_alive: bool,
    /// Whether the client speaks HTTP/1.1.
    pub is_http_11: bool,
    /// Whether only the head is asked for.
    pub is_head: bool,
}

/// A file, or the compressed neighbour that is sent for it.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// Its length.
    pub file_bytes: u64,
    /// Its tag and time.
    pub validators: Validators<'a>,
    /// That time, as HTTP writes it.
    pub last_modified: &'a str,
    /// The Content-Type of what is meant, not of its compression.
    pub media_type: &'a str,
    /// How it is compressed.
    pub coding: Option<Coding>,
    /// Whether there is a choice of codings.
    pub varies: bool,
    /// What of it caches are told (RFC 9111, section 5.2), if anything is.
    pub cache_control: Option<&'a str>,
    /// What it may load and run, if it is a page (Content Security Policy).
    pub content_security_policy: Option<&'a str>,
    /// Whether pages of other origins may read it (the Fetch standard, section 3.3).
    pub is_for_all_origins: bool,
}

/// A piece of an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Piece {
    /// These bytes.
    Text(Vec<u8>),
    /// These of the file.
    File(Range<u64>),
}

/// All that is sent for a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// What is sent, in this order; the first is a text that begins with the head.
    pub pieces: Vec<Piece>,
    /// Bytes of it behind the head, for the log.
    pub body_bytes: u64,
}

impl Answer {
    /// The 100 that a client waits for before it sends its content.
    pub const CONTINUE: &'static [u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

    /// GET or HEAD of a file.
    #[must_use]
    pub fn file(request: &Request<'_>, file: &Resource<'_>, context: &Context<'_>) -> Self {
        match file.validators.judge(request) {
            Verdict::Proceed => {}
            Verdict::NotModified => return Self::not_modified(file, context),
            Verdict::Failed => {
                let note = "the file is not the one that is meant; ask again without the condition";
                return Self::refusal(Status::PreconditionFailed, note, context);
            }
        }
        // Range is defined for GET alone (RFC 9110, section 14.2).
        let range = request.range.filter(|_| request.method == Method::Get);
        let allows = || {
            file.validators
                .allows_range(request.if_range, context.now_s)
        };
        let ranges = match range.filter(|_| allows()) {
            Some(range) => Ranges::parse(range, file.file_bytes),
            None => Ranges::Whole,
        };
        match ranges {
            Ranges::Whole => Self::part(Status::Ok, 0..file.file_bytes, file, context),
            Ranges::Parts(parts) => match <[Range<u64>; 1]>::try_from(parts) {
                Ok([part]) => Self::part(Status::PartialContent, part, file, context),
                Err(parts) => Self::parts(parts, file, context),
            },
            Ranges::Unsatisfiable => Self::unsatisfiable(file, context),
        }
    }

    /// OPTIONS, of anything.
    #[must_use]
    pub fn options(context: &Context<'_>) -> Self {
        let mut head = Head::new(Status::NoContent, context);
        head.field("Allow", ALLOW);
        head.field("Accept-Ranges", "bytes");
        // What pages of other origins ask before they ask for a part (the Fetch standard, section
        // 4.8); whether they may read what they get, that says itself.
        head.field("Access-Control-Allow-Origin", "*");
        head.field("Access-Control-Allow-Methods", ALLOW);
        head.field(
            "Access-Control-Allow-Headers",
            "Range, If-None-Match, If-Modified-Since",
        );
        head.field("Access-Control-Max-Age", PREFLIGHT_SECONDS);
        head.alone(Vec::new(), context)
    }

    /// A page of HTML.
    #[must_use]
    pub fn page(html: String, context: &Context<'_>) -> Self {
        let mut head = Head::new(Status::Ok, context);
        head.field("Content-Type", "text/html; charset=utf-8");
        head.field("Content-Length", html.len());
        head.field("Cache-Control", "no-cache");
        // Nothing in a page that names others' files may run or load anything.
        head.field(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'",
        );
        head.alone(html.into_bytes(), context)
    }

    /// The folder's own URL, with its slash, and with the query that the request came with. `path`
    /// is encoded and begins with a slash.
    #[must_use]
    pub fn moved(path: &str, query: Option<&str>, context: &Context<'_>) -> Self {
        let note = "a folder's URL ends in a slash";
        let mut location = path.to_owned();
        if let Some(query) = query {
            location.push('?');
            // A header line is ASCII (RFC 9110, section 5.5), whatever a client writes in its
            // target.
            location.extend(utf8_percent_encode(query, CONTROLS));
        }
        Self::with_note(Status::MovedPermanently, note, context, |head| {
            head.field("Location", location);
        })
    }

    /// An error, with what to do about it.
    #[must_use]
    pub fn refusal(status: Status, note: &str, context: &Context<'_>) -> Self {
        Self::with_note(status, note, context, |head| match status {
            Status::MethodNotAllowed | Status::NotImplemented => head.field("Allow", ALLOW),
            Status::ServiceUnavailable => head.field("Retry-After", RETRY_SECONDS),
            _ => {}
        })
    }

    /// 401: asks for credentials in each of these ways; none of them holds a line end.
    #[must_use]
    pub fn log_in(challenges: &[String], note: &str, context: &Context<'_>) -> Self {
        Self::with_note(Status::Unauthorized, note, context, |head| {
            for challenge in challenges {
                head.field("WWW-Authenticate", challenge);
            }
        })
    }

    /// 429: too many requests; after so many seconds there may be another.
    #[must_use]
    pub fn slowed(retry_s: u64, note: &str, context: &Context<'_>) -> Self {
        Self::with_note(Status::TooManyRequests, note, context, |head| {
            head.field("Retry-After", retry_s);
        })
    }

    /// A refusal of a head that was not understood; its connection closes.
    #[must_use]
    pub fn refused(refusal: Refusal, context: &Context<'_>) -> Self {
        Self::refusal(
            refusal.status,
            refusal.note,
            &Context {
                keeps_alive: false,
                ..*context
            },
        )
    }

    fn with_note(
        status: Status,
        note: &str,
        context: &Context<'_>,
        fields: impl FnOnce(&mut Head),
    ) -> Self {
        let body = format!("{} {}: {note}\n", status.code(), status.reason()).into_bytes();
        let mut head = Head::new(status, context);
        fields(&mut head);
        head.field("Content-Type", "text/plain; charset=utf-8");
        head.field("Content-Length", body.len());
        head.alone(body, context)
    }

    fn part(status: Status, part: Range<u64>, file: &Resource<'_>, context: &Context<'_>) -> Self {
        let mut head = Head::new(status, context);
        head.field("Content-Type", file.media_type);
        head.field("Content-Length", part.end - part.start);
        if status == Status::PartialContent {
            head.field("Content-Range", content_range(&part, file));
        }
        head.of_file(file, context);
        let mut answer = head.alone(Vec::new(), context);
        if !context.is_head && !part.is_empty() {
            answer.body_bytes = part.end - part.start;
            answer.pieces.push(Piece::File(part));
        }
        answer
    }

    fn parts(parts: Vec<Range<u64>>, file: &Resource<'_>, context: &Context<'_>) -> Self {
        let boundary = context.boundary;
        let mut pieces = Vec::with_capacity(2 * parts.len() + 2);
        let mut body_bytes = 0;
        for (i, part) in parts.into_iter().enumerate() {
            let line = if i == 0 { "" } else { "\r\n" };
            let before = format!(
                "{line}--{boundary}\r\nContent-Type: {}\r\nContent-Range: {}\r\n\r\n",
                file.media_type,
                content_range(&part, file)
            );
            body_bytes += before.len() as u64 + (part.end - part.start);
            pieces.push(Piece::Text(before.into_bytes()));
            pieces.push(Piece::File(part));
        }
        let end = format!("\r\n--{boundary}--\r\n").into_bytes();
        body_bytes += end.len() as u64;
        pieces.push(Piece::Text(end));
        let mut head = Head::new(Status::PartialContent, context);
        let media_type = format!("multipart/byteranges; boundary={boundary}");
        head.field("Content-Type", media_type);
        head.field("Content-Length", body_bytes);
        head.of_file(file, context);
        let head = head.alone(Vec::new(), context);
        pieces.splice(0..0, head.pieces);
        Self {
            status: Status::PartialContent,
            pieces,
            body_bytes,
        }
    }

    fn not_modified(file: &Resource<'_>, context: &Context<'_>) -> Self {
        let mut head = Head::new(Status::NotModified, context);
        head.validators(file, context);
        head.alone(Vec::new(), context)
    }

    fn unsatisfiable(file: &Resource<'_>, context: &Context<'_>) -> Self {
        let note = "the file has nothing there";
        Self::with_note(Status::RangeNotSatisfiable, note, context, |head| {
            head.field("Content-Range", format_args!("bytes */{}", file.file_bytes));
            head.validators(file, context);
        })
    }
}

/// A head that is being written.
struct Head {
    status: Status,
    bytes: Vec<u8>,
}

impl Head {
    fn new(status: Status, context: &Context<'_>) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        // The server's own version, whatever the client's (RFC 9110, section 2.5).
        let written = write!(bytes, "HTTP/1.1 {} {}\r\n", status.code(), status.reason());
        written.expect("memory takes all");
        let mut head = Self { status, bytes };
        head.field("Date", context.date);
        if !context.keeps_alive {
            head.field("Connection", "close");
        } else if !context.is_http_11 {
            head.field("Connection", "keep-alive");
        }
        head
    }

    fn field(&mut self, name: &str, value: impl std::fmt::Display) {
        write!(self.bytes, "{name}: {value}\r\n").expect("memory takes all");
    }

    /// What a whole file and a part of it have in common.
    fn of_file(&mut self, file: &Resource<'_>, context: &Context<'_>) {
        if let Some(coding) = file.coding {
            self.field("Content-Encoding", coding.name());
        }
        self.field("Accept-Ranges", "bytes");
        // A name does not make a film of a script.
        self.field("X-Content-Type-Options", "nosniff");
        self.validators(file, context);
    }

    fn validators(&mut self, file: &Resource<'_>, context: &Context<'_>) {
        if file.varies {
            self.field("Vary", "Accept-Encoding");
        }
        if let Some(cache_control) = file.cache_control {
            self.field("Cache-Control", cache_control);
        }
        if let Some(policy) = file.content_security_policy {
            self.field("Content-Security-Policy", policy);
        }
        if file.is_for_all_origins {
            self.field("Access-Control-Allow-Origin", "*");
            self.field("Access-Control-Expose-Headers", EXPOSED);
        }
        self.field("ETag", file.validators.etag);
        // A file from the future is from now (RFC 9110, section 8.8.2.1).
        let is_past = file.validators.modified_s <= context.now_s;
        self.field(
            "Last-Modified",
            if is_past {
                file.last_modified
            } else {
                context.date
            },
        );
    }

    /// The answer that consists of this head and, if it is asked for, `body`.
    fn alone(mut self, body: Vec<u8>, context: &Context<'_>) -> Answer {
        self.bytes.extend(b"\r\n");
        let mut body_bytes = 0;
        if !context.is_head {
            body_bytes = body.len() as u64;
            self.bytes.extend(body);
        }
        let pieces = vec![Piece::Text(self.bytes)];
        Answer {
            status: self.status,
            pieces,
            body_bytes,
        }
    }
}

fn content_range(part: &Range<u64>, file: &Resource<'_>) -> String {
    format!("bytes {}-{}/{}", part.start, part.end - 1, file.file_bytes)
}

/// What a page of another origin may see of an answer beside its body.
const EXPOSED: &str = "Content-Length, Content-Range, Date, ETag";
const ALLOW: &str = "GET, HEAD, OPTIONS";
const RETRY_SECONDS: u32 = 5;
const PREFLIGHT_SECONDS: u32 = 86_400;
/// Most heads are shorter.
const HEAD_BYTES: usize = 448;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CONTEXT: Context<'_> = Context {
        date: "NOW",
        now_s: 100,
        boundary: "BOUNDARY",
        keeps_alive: true,
        is_http_11: true,
        is_head: false,
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
        assert!(
            sent(&refusal).contains("Content-Length: ") && sent(&refusal).ends_with("\r\n\r\n")
        );
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
        for (query, location) in [
            (None, "/a/"),
            (Some(""), "/a/?"),
            (Some("x=%2f&y=?\u{fc}"), "/a/?x=%2f&y=?%C3%BC"),
        ] {
            let moved = sent(&Answer::moved("/a/", query, &CONTEXT));
            assert!(
                moved.contains(&format!("\r\nLocation: {location}\r\n")),
                "{moved}"
            );
        }
    }

    #[test]
    fn a_file_from_the_future_is_from_now() {
        let validators = Validators {
            modified_s: 101,
            ..FILE.validators
        };
        let request = Request::parse(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
        let file = Resource { validators, ..FILE };
        assert!(
            sent(&Answer::file(&request, &file, &CONTEXT)).contains("\r\nLast-Modified: NOW\r\n")
        );
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
}
