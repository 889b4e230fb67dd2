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
    /// Whether files are taken here, and may be removed.
    pub takes_uploads: bool,
    /// Whether pages of other origins may read it, whatever it comes to: the check is made of each
    /// redirect and of errors, too (the Fetch standard, section 4.10). `*` goes with no credentials
    /// that a browser adds by itself.
    pub is_for_all_origins: bool,
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

    /// Its head, to the end of its last line, and what follows it in the first piece.
    #[must_use]
    pub fn head_and_rest(&self) -> (&str, &[u8]) {
        const END: &[u8] = b"\r\n\r\n";
        let Some(Piece::Text(first)) = self.pieces.first() else {
            return ("", &[]);
        };
        let end = first.windows(END.len()).position(|it| it == END);
        let (head, rest) = first.split_at(end.map_or(first.len(), |at| at + END.len()));
        (std::str::from_utf8(head).unwrap_or_default(), rest)
    }

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
        head.field("Allow", allowed(context));
        head.field("Accept-Ranges", "bytes");
        // What pages of other origins ask before they ask for a part (the Fetch standard, section
        // 4.8); whether they may read what they get, that says itself.
        head.open_to_all_origins();
        head.field("Access-Control-Allow-Methods", ALLOW);
        head.field("Access-Control-Allow-Headers", ASKED_WITH);
        head.field("Access-Control-Max-Age", PREFLIGHT_SECONDS);
        head.alone(Vec::new(), context)
    }

    /// 200 where the server takes clients, 503 where it does not any more: for whoever shares
    /// clients out among servers.
    #[must_use]
    pub fn health(takes_clients: bool, context: &Context<'_>) -> Self {
        let (status, note) = match takes_clients {
            true => (Status::Ok, "the server takes clients"),
            false => (Status::ServiceUnavailable, "the server takes nobody more"),
        };
        Self::with_note(status, note, context, |head| {
            head.field("Cache-Control", "no-store");
        })
    }

    /// A page of HTML.
    #[must_use]
    pub fn page(html: String, context: &Context<'_>) -> Self {
        let mut head = Head::new(Status::Ok, context);
        head.field("Content-Type", "text/html; charset=utf-8");
        head.field("Content-Length", html.len());
        head.field("Cache-Control", "no-cache");
        head.field("Content-Security-Policy", PAGE_POLICY);
        head.field("X-Content-Type-Options", "nosniff");
        head.alone(html.into_bytes(), context)
    }

    /// The folder's own URL, with its slash, and with the query that the request came with. `path`
    /// is encoded and begins with a slash. What is said of it is relative to what was asked for
    /// (RFC 9110, section 10.2.2): a proxy may have it elsewhere, and over TLS.
    #[must_use]
    pub fn moved(path: &str, query: Option<&str>, context: &Context<'_>) -> Self {
        let note = "a folder's URL ends in a slash";
        let mut location = format!("{}/", beside(path.trim_end_matches('/')));
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

    /// 307: what is asked for is had at another server for now. `location` is a URL; what is not
    /// ASCII in it is encoded.
    #[must_use]
    pub fn elsewhere(location: &str, context: &Context<'_>) -> Self {
        let note = "another server has it; ask there";
        let location = utf8_percent_encode(location, CONTROLS).to_string();
        Self::with_note(Status::TemporaryRedirect, note, context, |head| {
            head.field("Location", location);
            head.field("Cache-Control", "no-store");
        })
    }

    /// 204: there is such a resource, and nothing in it for now.
    #[must_use]
    pub fn nothing(context: &Context<'_>) -> Self {
        let mut head = Head::new(Status::NoContent, context);
        head.field("Cache-Control", "no-cache");
        head.open_to_all_origins();
        head.alone(Vec::new(), context)
    }

    /// What a PUT came to: 201 with where the file is, relative as that of [`Self::moved`], or 204
    /// if it replaces one. `path` is encoded and begins with a slash.
    #[must_use]
    pub fn stored(is_new: bool, path: &str, etag: &str, context: &Context<'_>) -> Self {
        let status = match is_new {
            true => Status::Created,
            false => Status::NoContent,
        };
        let mut head = Head::new(status, context);
        if is_new {
            head.field("Location", beside(path));
            head.field("Content-Length", 0);
        }
        head.field("ETag", etag);
        head.alone(Vec::new(), context)
    }

    /// 204: a file was removed.
    #[must_use]
    pub fn removed(context: &Context<'_>) -> Self {
        Head::new(Status::NoContent, context).alone(Vec::new(), context)
    }

    /// How much there is of an upload that was broken off: to HEAD by whom it is of, 200 with its
    /// length; to a PUT that goes on elsewhere, 409.
    #[must_use]
    pub fn unfinished(offset: u64, status: Status, note: &str, context: &Context<'_>) -> Self {
        let fields = |head: &mut Head| {
            head.field("Upload-Offset", offset);
            head.field("Upload-Complete", "?0");
            head.field("Cache-Control", "no-store");
        };
        if status != Status::Ok {
            return Self::with_note(status, note, context, fields);
        }
        let mut head = Head::new(status, context);
        fields(&mut head);
        head.field("Content-Length", offset);
        head.alone(Vec::new(), context)
    }

    /// An error, with what to do about it. What is not there, or not now, may be there a moment
    /// later, under the same URL: a 404 that says nothing of caches they may keep (RFC 9110,
    /// section 15.1).
    #[must_use]
    pub fn refusal(status: Status, note: &str, context: &Context<'_>) -> Self {
        Self::with_note(status, note, context, |head| match status {
            Status::MethodNotAllowed | Status::NotImplemented => {
                head.field("Allow", allowed(context));
            }
            Status::NotFound => head.field("Cache-Control", "no-store"),
            Status::ServiceUnavailable => {
                head.field("Retry-After", RETRY_SECONDS);
                head.field("Cache-Control", "no-store");
            }
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
    /// Whether it says already that pages of all origins may read what follows.
    is_open: bool,
}

impl Head {
    fn new(status: Status, context: &Context<'_>) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        // The server's own version, whatever the client's (RFC 9110, section 2.5).
        let written = write!(bytes, "HTTP/1.1 {} {}\r\n", status.code(), status.reason());
        written.expect("memory takes all");
        let mut head = Self {
            status,
            bytes,
            is_open: false,
        };
        head.field("Date", context.date);
        if !context.keeps_alive {
            head.field("Connection", "close");
        } else if !context.is_http_11 {
            head.field("Connection", "keep-alive");
        }
        if context.is_for_all_origins {
            head.open_to_all_origins();
        }
        head
    }

    /// Lets pages of all origins read what follows. Said twice it would allow nobody (the Fetch
    /// standard, section 4.10).
    fn open_to_all_origins(&mut self) {
        if !std::mem::replace(&mut self.is_open, true) {
            self.field("Access-Control-Allow-Origin", "*");
            self.field("Access-Control-Expose-Headers", EXPOSED);
        }
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
            self.open_to_all_origins();
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

const fn allowed(context: &Context<'_>) -> &'static str {
    match context.takes_uploads {
        true => ALLOW_WITH_UPLOADS,
        false => ALLOW,
    }
}

fn content_range(part: &Range<u64>, file: &Resource<'_>) -> String {
    format!("bytes {}-{}/{}", part.start, part.end - 1, file.file_bytes)
}

/// A path, as it is written in URLs relative to itself. A colon in it makes no scheme of what is
/// before it.
fn beside(path: &str) -> String {
    format!("./{}", path.rsplit('/').next().unwrap_or_default())
}

/// What a page of ours may load and run (Content Security Policy): its own scripts and styles, and
/// the films. Names of files are others' words, and nothing that stands in a page itself runs.
pub const PAGE_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self'; media-src 'self' blob:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'self'";
/// The same for a page that may have films from other servers, too, whose origins these are.
#[must_use]
pub fn page_policy_with(origins: &[String]) -> String {
    let mut policy = String::new();
    for (at, directive) in PAGE_POLICY.split("; ").enumerate() {
        policy.push_str(if at == 0 { "" } else { "; " });
        policy.push_str(directive);
        if directive.starts_with("media-src") || directive.starts_with("connect-src") {
            for origin in origins {
                policy.push(' ');
                policy.push_str(origin);
            }
        }
    }
    policy
}

/// What a page of another origin may see of an answer beside its body. By `Age`, which caches add,
/// players of low latency reckon how old a playlist is.
const EXPOSED: &str = "Age, Content-Length, Content-Range, Date, ETag, Retry-After";
/// What it may ask with. Authorization must be named: `*` stands for all but that (the Fetch
/// standard, section 4.8).
const ASKED_WITH: &str = "Authorization, Range, If-None-Match, If-Modified-Since";
const ALLOW: &str = "GET, HEAD, OPTIONS";
const ALLOW_WITH_UPLOADS: &str = "GET, HEAD, OPTIONS, PUT, DELETE";
const RETRY_SECONDS: u32 = 5;
const PREFLIGHT_SECONDS: u32 = 86_400;
/// Most heads are shorter.
const HEAD_BYTES: usize = 448;

#[cfg(test)]
mod tests;
