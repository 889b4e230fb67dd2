//! HTTP: what comes on a connection, cut anyhow, as heads and content; what is answered.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use onrush_wire::hls;
use onrush_wire::hls::live::Reload;
use onrush_wire::http::{
    Access, Answer, Context, Discard, Entry, HEAD_BYTES_MAX, HeadScanner, Listing, LogFormat,
    Method, Piece, RANGES_MAX, Request, Resource, Status, StoredPart, Target, Validators,
    skip_empty_lines,
};

use crate::memory::bounded;
use crate::random::Random;
use crate::rtsp::assert_path;

/// Content that is read past, at the most; small, so that it is reached.
const CONTENT_BYTES_MAX: u64 = 4096;

/// The length of the file that is asked for.
const FILE_BYTES: u64 = 100_000;

/// What understanding and answering a head may hold.
const MEMORY_BYTES: usize = 512 << 10;

/// How a connection ended, and what was asked on it.
#[derive(Debug, Eq, PartialEq)]
enum Event {
    /// What its head said.
    Request(String),
    /// It was refused with this status and note.
    Refused(u16, &'static str),
}

/// Serves what comes on a connection.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    let pieces = served(input, |left| random.piece(left));
    let bytes = served(input, |_| 1);
    assert_eq!(pieces, bytes, "how bytes come together makes a difference");
}

/// Serves it as the server does.
fn served(input: &[u8], mut piece: impl FnMut(usize) -> usize) -> Vec<Event> {
    let (mut events, mut buffer, mut left) = (Vec::new(), Vec::new(), input);
    let mut scanner = HeadScanner::default();
    let mut discard: Option<Discard> = None;
    loop {
        if let Some(content) = &mut discard {
            match content.push(&buffer) {
                Ok(discarded) => {
                    buffer.drain(..discarded.bytes);
                    if discarded.is_done {
                        discard = None;
                        continue;
                    }
                    assert!(buffer.is_empty(), "content goes on, and is not taken");
                }
                Err(refusal) => {
                    events.push(Event::Refused(refusal.status.code(), refusal.note));
                    return events;
                }
            }
        } else {
            match head(&mut scanner, &mut buffer) {
                Ok(Some(head)) => match understood(&head, &mut events) {
                    Some(content) => {
                        discard = Some(content);
                        continue;
                    }
                    None => return events,
                },
                Ok(None) => {}
                Err((status, note)) => {
                    events.push(Event::Refused(status, note));
                    return events;
                }
            }
        }
        if left.is_empty() {
            return events;
        }
        let some;
        (some, left) = left.split_at(piece(left.len()));
        buffer.extend_from_slice(some);
    }
}

/// The head that the buffer begins with, if it is whole.
fn head(
    scanner: &mut HeadScanner,
    buffer: &mut Vec<u8>,
) -> Result<Option<Vec<u8>>, (u16, &'static str)> {
    if !skip_empty_lines(buffer) {
        return Ok(None);
    }
    match scanner.end(buffer) {
        Ok(Some(end)) => {
            assert!(end <= HEAD_BYTES_MAX);
            let rest = buffer.split_off(end);
            Ok(Some(std::mem::replace(buffer, rest)))
        }
        Ok(None) => Ok(None),
        Err(refusal) => Err((refusal.status.code(), refusal.note)),
    }
}

/// What follows a head, if the connection goes on.
fn understood(head: &[u8], events: &mut Vec<Event>) -> Option<Discard> {
    let request = match bounded(MEMORY_BYTES, || Request::parse(head)) {
        Ok(request) => request,
        Err(refusal) => {
            let answer = Answer::refused(refusal, &context(None));
            assert_answer(&answer, false);
            events.push(Event::Refused(refusal.status.code(), refusal.note));
            return None;
        }
    };
    events.push(Event::Request(format!("{request:?}")));
    bounded(MEMORY_BYTES, || answer(&request));
    let keeps_alive = request.keeps_alive;
    let discard = Discard::new(request.content, CONTENT_BYTES_MAX);
    match discard {
        Ok(discard) => Some(discard).filter(|_| keeps_alive),
        Err(refusal) => {
            events.push(Event::Refused(refusal.status.code(), refusal.note));
            None
        }
    }
}

fn context<'a>(request: Option<&Request<'a>>) -> Context<'a> {
    Context {
        date: "Thu, 01 Jan 1970 00:00:10 GMT",
        now_s: 10,
        boundary: "b0undary",
        keeps_alive: request.is_some_and(|it| it.keeps_alive),
        is_http_11: request.is_some_and(|it| it.is_http_11),
        is_head: request.is_some_and(|it| it.method == Method::Head),
        takes_uploads: request.is_some_and(|it| it.method == Method::Put),
        is_for_all_origins: request.is_some_and(|it| it.host == "a"),
    }
}

fn answer(request: &Request<'_>) {
    let context = context(Some(request));
    let is_head = context.is_head;
    let resource = Resource {
        file_bytes: FILE_BYTES,
        validators: Validators {
            etag: "\"e7ag\"",
            modified_s: 5,
        },
        last_modified: "Thu, 01 Jan 1970 00:00:05 GMT",
        media_type: "video/mp4",
        coding: request.codings.wanted().next(),
        varies: true,
        cache_control: Some("no-cache"),
        content_security_policy: None,
        is_for_all_origins: true,
    };
    let file = Answer::file(request, &resource, &context);
    assert_answer(&file, is_head);
    let texts = |it: &&Piece| matches!(it, Piece::Text(_));
    assert!(file.pieces.iter().filter(texts).count() <= RANGES_MAX + 2);
    if let Ok(part) = StoredPart::of(request) {
        assert!(part.end.is_none_or(|end| part.start <= end));
        assert!(
            part.total
                .is_none_or(|total| part.end.is_some_and(|end| end <= total))
        );
    }
    if let Ok(reload) = Reload::parse(request.query) {
        assert!(request.query.is_some() || reload == Reload::default());
    }
    if let Target::Path { name, .. } = &request.target {
        assert_path(name);
        if let Some((film, _)) = hls::parse(name) {
            assert!(!film.is_empty() && name.starts_with(film));
        }
        let path = format!("/{}/", onrush_wire::http::in_url(name));
        assert_answer(&Answer::moved(&path, request.query, &context), is_head);
        let entry = Entry {
            name: name.rsplit('/').next().unwrap_or_default().to_owned(),
            is_folder: false,
            file_bytes: 1,
            modified_s: 0,
        };
        let listing = Listing {
            folder: name,
            entries: &[entry],
            is_cut: true,
            http_host: request.host,
            is_encrypted: is_head,
            rtsp_host: request.host,
            channels: &[],
        };
        assert_answer(&Answer::page(listing.to_html(), &context), is_head);
    }
    assert_answer(&Answer::options(&context), is_head);
    assert_answer(&Answer::refusal(Status::NotFound, "no", &context), is_head);
    log(request);
}

/// An answer is one head, and as long as it says.
fn assert_answer(answer: &Answer, is_head: bool) {
    let mut sent = 0;
    let Some((Piece::Text(first), rest)) = answer.pieces.split_first() else {
        panic!("an answer begins with a text");
    };
    let end = first.windows(4).position(|it| it == b"\r\n\r\n");
    let end = end.expect("a head ends") + 4;
    let head = std::str::from_utf8(&first[..end]).expect("a head is text");
    assert!(head.is_ascii(), "{head:?}");
    let lines: Vec<_> = head.trim_end_matches("\r\n").split("\r\n").collect();
    assert!(
        lines.iter().all(|line| !line.contains(['\r', '\n'])),
        "{head:?}"
    );
    assert!(
        lines[1..].iter().all(|line| line.contains(": ")),
        "{head:?}"
    );
    for piece in rest {
        sent += match piece {
            Piece::Text(text) => text.len() as u64,
            Piece::File(part) => {
                assert!(part.start < part.end && part.end <= FILE_BYTES, "{part:?}");
                part.end - part.start
            }
        };
    }
    sent += (first.len() - end) as u64;
    let length = |line: &&str| line.strip_prefix("Content-Length: ").map(str::to_owned);
    let told: Vec<_> = lines.iter().filter_map(length).collect();
    assert!(told.len() <= 1, "{head:?}");
    let has_body = !is_head && told.first().is_some_and(|told| *told != "0");
    assert_eq!(sent > 0, has_body, "{head:?}");
    if has_body {
        assert_eq!(told[0], sent.to_string());
    }
    assert_eq!(sent, answer.body_bytes);
}

/// A request is one line of the log, whatever it says.
fn log(request: &Request<'_>) {
    let access = Access {
        peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
        time_ms: 0,
        line: request.line,
        status: 200,
        body_bytes: 0,
        is_whole: true,
        took: Duration::ZERO,
        referer: request.referer,
        user_agent: request.user_agent,
    };
    for format in [LogFormat::Combined, LogFormat::Json] {
        let line = access.to_line(format);
        let inside = line.strip_suffix('\n').expect("a line has its end");
        assert!(!inside.contains(|c: char| c.is_ascii_control()), "{line:?}");
    }
}
