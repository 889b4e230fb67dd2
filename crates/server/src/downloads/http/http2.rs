//! HTTP/2 (RFC 9113): many requests at once on one connection, answered as those of HTTP/1.1 are.
//!
//! Frames, header compression and flow control are the `h2` crate's. A request becomes the head
//! that HTTP/1.1 would have, which the same code understands and answers; the answer's head becomes
//! header fields again, and its body goes by the same transfers, which read a file in pieces no
//! larger than a stream takes. No priorities, no push.
//!
//! What a client can make the server do is bounded: requests at once, in all, resets, the length
//! of heads, the bytes of frames that ask for nothing, and the time for which it takes nothing.

mod content;
mod duplex;
mod message;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request as Incoming;
use http::request::Parts;
use onrush_wire::http::{Access, Answer, Context, HEAD_BYTES_MAX, Refusal, Request, Status};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use self::content::{Http2Content, tell_to_go_on};
pub use self::duplex::HTTP2_CONTROL_BYTES_MAX;
use self::duplex::{Duplex, Meter};
use super::connection::{CONTENT_BYTES_MAX, TOO_SLOW};
use super::live::Waits;
use super::responder::{Body, Decided, Responder};
use super::store::Logged;
use crate::byte_stream::ByteStream;
use crate::downloads::UnderWay;
use crate::downloads::admission::FileSlot;
use crate::downloads::clock::Clock;
use crate::downloads::send::To;
use crate::transfer::{Control, StreamBody, StreamBudget, TransferError};

/// Requests that a client takes back before they are looked at, and streams that are remembered
/// after they were reset: with more of them the connection ends (`ENHANCE_YOUR_CALM`).
pub const HTTP2_RESETS_MAX: usize = 32;

/// Streams that are reset for an error of the client's, on one connection.
pub const HTTP2_ERRORS_MAX: usize = 64;

/// What a client may send ahead of what is stored, where files are taken.
const UPLOAD_WINDOW_BYTES: u32 = 1 << 20;

/// How often it is looked at whether a client is gone.
const LOOK_EVERY: Duration = Duration::from_millis(500);

type Http2 = Connection<Duplex, Bytes>;

/// What the requests of a connection share.
struct Shared {
    responder: Responder,
    /// When one was begun or answered last.
    active: RefCell<Instant>,
    budget: StreamBudget,
}

/// Serves a connection to its end. `received` is what has been read of it.
pub(super) async fn serve(
    responder: Responder,
    socket: ByteStream,
    received: Vec<u8>,
) -> io::Result<()> {
    let limits = responder.site.settings.limits;
    let (meter, socket) = (Rc::new(Meter::default()), Rc::new(RefCell::new(socket)));
    let duplex = Duplex::new(Rc::clone(&socket), Rc::clone(&meter), received);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.download_streams_max)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_send_buffer_size(crate::transfer::STREAM_BYTES_MAX)
        .max_concurrent_reset_streams(HTTP2_RESETS_MAX)
        .max_pending_accept_reset_streams(HTTP2_RESETS_MAX)
        .max_local_error_reset_streams(Some(HTTP2_ERRORS_MAX));
    if responder.site.uploads.is_some() {
        meter.count_content(UPLOAD_WINDOW_BYTES.into());
        builder
            .initial_window_size(UPLOAD_WINDOW_BYTES)
            .initial_connection_window_size(UPLOAD_WINDOW_BYTES);
    }
    let begun = timeout(limits.download_head_time_max, builder.handshake(duplex));
    let connection = begun.await?.map_err(io::Error::other)?;
    let shared = Rc::new(Shared {
        responder,
        active: RefCell::new(Instant::now()),
        budget: StreamBudget::default(),
    });
    let served = run(&shared, connection, &meter).await;
    if let Ok(socket) = Rc::try_unwrap(socket) {
        socket.into_inner().close().await?;
    }
    served
}

/// Takes requests until the client or a limit ends the connection.
async fn run(shared: &Rc<Shared>, mut connection: Http2, meter: &Rc<Meter>) -> io::Result<()> {
    let limits = shared.responder.site.settings.limits;
    let streams_max = limits.download_streams_max as usize;
    let mut answers = JoinSet::new();
    let mut requests = 0;
    let mut asked_to_leave: Option<Instant> = None;
    let mut looks = interval(LOOK_EVERY.min(limits.download_idle_time_max / 2));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let has_room = answers.len() < streams_max;
        let next = poll_fn(|context| match has_room {
            true => connection.poll_accept(context),
            // Others wait until one is answered, while the connection goes on.
            false => match connection.poll_closed(context) {
                Poll::Ready(Err(error)) => Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(())) => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            },
        });
        tokio::select! {
            biased;
            Some(_) = answers.join_next(), if !answers.is_empty() => continue,
            next = next => match next {
                None => return Ok(()),
                Some(Err(error)) => return Err(io::Error::other(error)),
                Some(Ok((request, respond))) => {
                    requests += 1;
                    meter.count_request();
                    let shared = (Rc::clone(shared), Rc::clone(meter));
                    drop(answers.spawn_local(answer(shared, request, respond)));
                }
            },
            _ = looks.tick() => {}
        }
        // A client that does not hear that it is to leave is let go.
        if requests >= limits.download_requests_max.saturating_add(streams_max) {
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
        let idle = shared.active.borrow().elapsed() >= limits.download_idle_time_max;
        let leaves = requests >= limits.download_requests_max
            || (idle && answers.is_empty())
            || shared.responder.site.draining.has_begun();
        if leaves && asked_to_leave.is_none() {
            connection.graceful_shutdown();
            asked_to_leave = Some(Instant::now());
        }
        let stall_time_max = limits.download_stall_time_max;
        let is_over = asked_to_leave.is_some_and(|since| since.elapsed() >= stall_time_max);
        if is_over && answers.is_empty() || meter.is_blocked(stall_time_max) {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

/// Answers one request.
async fn answer(
    (shared, meter): (Rc<Shared>, Rc<Meter>),
    request: Incoming<RecvStream>,
    mut respond: SendResponse<Bytes>,
) {
    *shared.active.borrow_mut() = Instant::now();
    let (began, time_ms) = (Instant::now(), Clock::now_ms());
    let site = &shared.responder.site;
    let _under_way = UnderWay::begin(site);
    let (parts, content) = request.into_parts();
    let head = message::head(&parts);
    let line = message::line(&parts);
    let parsed = Request::parse(&head);
    let others = parsed.as_ref().ok();
    let others = others.and_then(|it| shared.responder.passed_on(it));
    let responder = others.as_ref().unwrap_or(&shared.responder);
    let place = FileSlot::take(site);
    if let Ok(request) = &parsed
        && responder.takes(request)
        && place.is_some()
    {
        change(responder, (request, &line), (content, meter), respond).await;
        *shared.active.borrow_mut() = Instant::now();
        return;
    }
    let unread = why_unread(&parts, place.is_some());
    let is_awaited = parsed.as_ref().is_ok_and(|it| it.expects_continue);
    if is_awaited && unread.is_none() && !content.is_end_stream() {
        // Who has taken the request back hears nothing.
        drop(tell_to_go_on(&mut respond));
    }
    let time_max = site.settings.limits.download_head_time_max;
    let received = read_past((content, meter), unread, time_max).await;
    let decided = decide(responder, (parsed.as_ref(), received), &mut respond);
    let Some((answer, body)) = decided.await else {
        return;
    };
    let control = Control::default();
    let (head, rest) = answer.head_and_rest();
    let (has_body, code) = (answer.body_bytes > 0, answer.status.code());
    let sent = match message::response(code, head) {
        Some(response) => respond.send_response(response, !has_body),
        None => return respond.send_reset(Reason::INTERNAL_ERROR),
    };
    let is_whole = match sent {
        Ok(stream) if has_body => {
            let stream = StreamBody::new(stream, &shared.budget);
            send_body(responder, (&answer, rest), body.as_ref(), stream, &control).await
        }
        sent => sent.is_ok(),
    };
    site.stats.count_answer(code);
    let request = parsed.as_ref().ok();
    site.log.add(&Access {
        peer: responder.client.address,
        time_ms,
        line: &line,
        status: code,
        body_bytes: match is_whole {
            true => answer.body_bytes,
            false => control.sent_bytes(),
        },
        is_whole,
        took: began.elapsed(),
        referer: request.map_or(b"", |request| request.referer),
        user_agent: request.map_or(b"", |request| request.user_agent),
    });
    *shared.active.borrow_mut() = Instant::now();
}

/// Sends what an answer's first piece has behind its head, and the other pieces. Whether all of it.
async fn send_body(
    responder: &Responder,
    (answer, rest): (&Answer, &[u8]),
    body: Option<&Body>,
    stream: StreamBody,
    control: &Control,
) -> bool {
    let to = To::Stream(&stream);
    let stall_time_max = responder.site.settings.limits.download_stall_time_max;
    let pieces = answer.pieces.get(1..).unwrap_or_default();
    let sent = async {
        // As it lies there: a copy would hold the page of a large folder twice.
        let sent = to.send(rest, !pieces.is_empty(), stall_time_max).await;
        sent.map_err(TransferError::Peer)?;
        responder.send(pieces, body, to, control).await
    };
    match sent.await {
        Ok(()) => stream.end().is_ok(),
        Err(error) => {
            responder.tell(&error);
            stream.cut();
            false
        }
    }
}

/// Carries out a request that changes something.
async fn change(
    responder: &Responder,
    (request, line): (&Request<'_>, &str),
    (content, meter): (RecvStream, Rc<Meter>),
    mut respond: SendResponse<Bytes>,
) {
    let control = Control::default();
    let mut logged = Logged::begin(responder, (request, line), &control);
    let waiting = request.expects_continue.then_some(&mut respond);
    let mut content = Http2Content::new(content, meter, waiting);
    let changed = responder.change(request, true, (&mut content, &control));
    let changed = Box::pin(changed).await;
    drop(content);
    let Ok(outcome) = changed else {
        return respond.send_reset(Reason::CANCEL);
    };
    let answer = outcome.answer;
    let (head, rest) = answer.head_and_rest();
    let code = answer.status.code();
    let sent = match message::response(code, head) {
        Some(response) => respond.send_response(response, rest.is_empty()),
        None => return respond.send_reset(Reason::INTERNAL_ERROR),
    };
    let sent = sent.and_then(|mut stream| match rest.is_empty() {
        true => Ok(()),
        false => stream.send_data(Bytes::copy_from_slice(rest), true),
    });
    logged.answered(answer.status, sent.is_ok());
}

/// What a request gets; `None` if its client takes it back before, while it waits for a channel.
async fn decide(
    responder: &Responder,
    (parsed, received): (Result<&Request<'_>, &Refusal>, Result<(), Refusal>),
    respond: &mut SendResponse<Bytes>,
) -> Option<Decided> {
    let refused = |refusal: Refusal| {
        move |context: &Context<'_>| Answer::refusal(refusal.status, refusal.note, context)
    };
    let request = match (parsed, received) {
        (Ok(request), Ok(())) => request,
        (Ok(request), Err(refusal)) => {
            let answer = responder.with_context(request, true, refused(refusal));
            return Some((answer, None));
        }
        (Err(refusal), _) => {
            let site = &responder.site;
            let answer = site.with_context((true, true, false), refused(*refusal));
            return Some((answer, None));
        }
    };
    let waits = Waits::new(&responder.site, &responder.share);
    let is_gone = poll_fn(|context| match waits.is_waiting() {
        true => respond.poll_reset(context).map(drop),
        false => Poll::Pending,
    });
    tokio::select! {
        // First, because only it says whether the client is looked after.
        biased;
        decided = responder.decide(request, true, &waits) => Some(decided),
        () = is_gone => None,
    }
}

/// Why a request is answered before what it carries is read: there is no place for it, or it says
/// itself that it is too long.
fn why_unread(parts: &Parts, has_place: bool) -> Option<Refusal> {
    if !has_place {
        return Some(NO_FILES);
    }
    let bytes = message::content_bytes(parts)?;
    (bytes > CONTENT_BYTES_MAX).then_some(TOO_LARGE)
}

/// Reads past what the request carries, if there is no reason to leave it unread.
async fn read_past(
    (content, meter): (RecvStream, Rc<Meter>),
    unread: Option<Refusal>,
    time_max: Duration,
) -> Result<(), Refusal> {
    if let Some(refusal) = unread {
        drop(Http2Content::new(content, meter, None));
        return Err(refusal);
    }
    discard(content, time_max).await
}

async fn discard(mut content: RecvStream, time_max: Duration) -> Result<(), Refusal> {
    let read = async {
        let mut bytes = 0;
        while let Some(Ok(some)) = content.data().await {
            bytes += some.len() as u64;
            if bytes > CONTENT_BYTES_MAX {
                return Err(TOO_LARGE);
            }
            // A stream that has ended needs no more room.
            drop(content.flow_control().release_capacity(some.len()));
        }
        Ok(())
    };
    timeout(time_max, read).await.unwrap_or(Err(TOO_SLOW))
}

const TOO_LARGE: Refusal = Refusal {
    status: Status::ContentTooLarge,
    note: "nothing can be stored here",
};

const NO_FILES: Refusal = Refusal {
    status: Status::ServiceUnavailable,
    note: "too many files are open; try later",
};
