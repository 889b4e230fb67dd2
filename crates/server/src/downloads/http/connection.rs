//! One connection: heads in, answers out, one after the other.
//!
//! Requests that come together are answered in turn. What has been read and not yet used is less
//! than two heads long, and a connection that waits holds no buffer at all.

use std::future::poll_fn;
use std::io;
use std::task::{Poll, ready};
use std::time::Duration;

use onrush_wire::http::{
    Access, Answer, Content, Context, Discard, HEAD_BYTES_MAX, HeadScanner, Refusal, Request,
    Status, skip_empty_lines,
};
use onrush_wire::rtsp::{TUNNEL_REFUSED, TunnelSide};
use tokio::time::{Instant, timeout, timeout_at};

use crate::byte_stream::ByteStream;
use crate::downloads::UnderWay;
use crate::downloads::clock::Clock;
use crate::downloads::http::content::Http1Content;
use crate::downloads::http::live::Waits;
use crate::downloads::http::responder::{Body, Decided, Responder};
use crate::downloads::http::store::Logged;
use crate::downloads::receive::poll_read;
use crate::downloads::send::{To, abort};
use crate::transfer::Control;
use crate::tunnelling::Tunnelled;

/// Serves a connection to its end; or until its client speaks HTTP/2, and with what it has said
/// then.
///
/// # Errors
///
/// Why it has ended early.
pub(super) async fn serve(
    responder: Responder,
    socket: ByteStream,
) -> io::Result<Option<(Responder, ByteStream, Vec<u8>)>> {
    let mut connection = Connection {
        responder,
        socket,
        buffer: Vec::new(),
        requests: 0,
    };
    let ended = connection.run().await?;
    let Connection {
        responder,
        socket,
        buffer,
        ..
    } = connection;
    match ended {
        Ended::Closed => Ok(None),
        Ended::IsHttp2 => Ok(Some((responder, socket, buffer))),
        Ended::IsTunnel => {
            hand_over(&responder, socket, buffer).await?;
            Ok(None)
        }
    }
}

struct Connection {
    responder: Responder,
    socket: ByteStream,
    /// What was received and not used yet.
    buffer: Vec<u8>,
    /// Those that were begun.
    requests: usize,
}

/// Whether there may be another request.
enum Next {
    Stays,
    Closes,
    /// It closes, and not all of the request's content was read.
    Lingers,
}

/// What a connection came to.
enum Ended {
    Closed,
    /// It goes on as HTTP/2, which its client has begun with.
    IsHttp2,
    /// It speaks RTSP: what was received is in its buffer.
    IsTunnel,
}

impl Connection {
    async fn run(&mut self) -> io::Result<Ended> {
        loop {
            let head_bytes = match self.receive().await? {
                None if self.socket.is_key_due() => break,
                None => return Ok(Ended::Closed),
                Some(Ok(_)) if self.is_http2() => return Ok(Ended::IsHttp2),
                Some(Ok(head_bytes)) => head_bytes,
                Some(Err(refusal)) => {
                    self.refuse(refusal).await?;
                    break;
                }
            };
            if self.requests == 0 && TunnelSide::is_opened_by(&self.buffer[..head_bytes]) {
                return Ok(Ended::IsTunnel);
            }
            self.requests += 1;
            let mut head = std::mem::take(&mut self.buffer);
            if head.len() > head_bytes {
                self.buffer = head.split_off(head_bytes);
            }
            match self.answer(&head).await? {
                Next::Stays => {}
                Next::Closes => break,
                Next::Lingers => {
                    self.socket.linger().await?;
                    return Ok(Ended::Closed);
                }
            }
        }
        self.socket.close().await?;
        Ok(Ended::Closed)
    }

    /// Whether the connection's first head is what HTTP/2 begins with (RFC 9113, section 3.4).
    fn is_http2(&self) -> bool {
        self.requests == 0 && self.buffer.starts_with(HTTP2_PREFACE_HEAD)
    }

    /// Receives a head; its length in the buffer. `None` once the client has closed, or said
    /// nothing for too long.
    async fn receive(&mut self) -> io::Result<Option<Result<usize, Refusal>>> {
        let limits = self.responder.site.settings.limits;
        let mut scanner = HeadScanner::default();
        let mut deadline = None;
        loop {
            if skip_empty_lines(&mut self.buffer) {
                match scanner.end(&self.buffer) {
                    Ok(Some(head_bytes)) => return Ok(Some(Ok(head_bytes))),
                    Ok(None) => {}
                    Err(refusal) => return Ok(Some(Err(refusal))),
                }
            }
            let now = Instant::now();
            let has_begun = !self.buffer.is_empty();
            let until = match has_begun {
                true => *deadline.get_or_insert(now + limits.download_head_time_max),
                false => now + limits.download_idle_time_max,
            };
            match timeout_at(until, self.read()).await {
                Ok(Ok(0)) => return Ok(None),
                Ok(received) => drop(received?),
                Err(_) if has_begun => return Ok(Some(Err(TOO_SLOW))),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Receives some bytes; 0 at the end.
    async fn read(&mut self) -> io::Result<usize> {
        let Self { socket, buffer, .. } = self;
        poll_fn(|context| poll_read(socket, buffer, context)).await
    }

    /// What a request gets; `None` if its client is gone before, while it waits for a channel.
    async fn decide(
        &mut self,
        request: &Request<'_>,
        keeps_alive: bool,
    ) -> io::Result<Option<Decided>> {
        let Self {
            responder,
            socket,
            buffer,
            ..
        } = self;
        let waits = Waits::new(&responder.site, &responder.share);
        let is_gone = poll_fn(|context| {
            // One that says more is read no further than a head: what it says then is not heard
            // until it has its answer.
            while waits.is_waiting() && buffer.len() < HEAD_BYTES_MAX {
                if ready!(poll_read(socket, buffer, context))? == 0 {
                    return Poll::Ready(io::Result::Ok(()));
                }
            }
            Poll::Pending
        });
        tokio::select! {
            // First, because only it says whether the client is looked after.
            biased;
            decided = responder.decide(request, keeps_alive, &waits) => Ok(Some(decided)),
            gone = is_gone => gone.map(|()| None),
        }
    }

    /// Answers one request, whose head this is.
    async fn answer(&mut self, head: &[u8]) -> io::Result<Next> {
        let _under_way = UnderWay::begin(&self.responder.site);
        let request = match Request::parse(head) {
            Ok(request) => request,
            Err(refusal) => {
                self.refuse(refusal).await?;
                return Ok(Next::Closes);
            }
        };
        let others = self.responder.passed_on(&request);
        let own = others.map(|it| Box::new(std::mem::replace(&mut self.responder, it)));
        let next = self.carry_out(&request).await;
        if let Some(own) = own {
            self.responder = *own;
        }
        next
    }

    /// The same of one that is understood, and whose client the responder's is.
    async fn carry_out(&mut self, request: &Request<'_>) -> io::Result<Next> {
        if self.responder.takes(request) {
            return self.change(request).await;
        }
        let (began, time_ms) = (Instant::now(), Clock::now_ms());
        let content = match self.discard(request).await? {
            Ok(()) => request.keeps_alive,
            Err(refusal) => {
                self.refuse(refusal).await?;
                return Ok(Next::Lingers);
            }
        };
        let site = &self.responder.site;
        let is_last = self.requests >= site.settings.limits.download_requests_max
            || site.draining.has_begun();
        let keeps_alive = content && !is_last;
        let Some((answer, body)) = self.decide(request, keeps_alive).await? else {
            return Ok(Next::Closes);
        };
        if !self.socket.can_seal(answer.body_bytes) {
            return Ok(Next::Closes);
        }
        let control = Control::default();
        let sent = self.send(&answer, body.as_ref(), &control).await;
        let is_whole = sent.is_ok();
        self.responder.site.stats.count_answer(answer.status.code());
        self.responder.site.log.add(&Access {
            peer: self.responder.client.address,
            time_ms,
            line: request.line,
            status: answer.status.code(),
            body_bytes: match is_whole {
                true => answer.body_bytes,
                false => control.sent_bytes(),
            },
            is_whole,
            took: began.elapsed(),
            referer: request.referer,
            user_agent: request.user_agent,
        });
        sent?;
        Ok(if keeps_alive && !self.socket.is_key_due() {
            Next::Stays
        } else {
            Next::Closes
        })
    }

    /// Carries out a request that changes something.
    async fn change(&mut self, request: &Request<'_>) -> io::Result<Next> {
        let control = Control::default();
        let mut logged = Logged::begin(&self.responder, (request, request.line), &control);
        let limits = self.responder.site.settings.limits;
        let is_last = self.requests >= limits.download_requests_max
            || self.responder.site.draining.has_begun();
        let mut content = Http1Content {
            socket: &mut self.socket,
            buffer: &mut self.buffer,
            content: request.content,
            expects_continue: request.expects_continue,
            stall_time_max: limits.download_stall_time_max,
        };
        let keeps_alive = request.keeps_alive && !is_last;
        // Apart, because every connection has room for what is in here.
        let changed = Box::pin(self.responder.change(
            request,
            keeps_alive,
            (&mut content, &control),
        ));
        let outcome = changed.await?;
        let answer = outcome.answer;
        let sent = self.send(&answer, None, &Control::default()).await;
        logged.answered(answer.status, sent.is_ok());
        sent?;
        let is_empty = matches!(request.content, Content::None | Content::Length(0));
        Ok(match outcome.keeps_alive && !self.socket.is_key_due() {
            true => Next::Stays,
            false if is_empty || answer.status.code() < 400 => Next::Closes,
            false => Next::Lingers,
        })
    }

    /// Reads past what the request carries.
    async fn discard(&mut self, request: &Request<'_>) -> io::Result<Result<(), Refusal>> {
        let mut discard = match Discard::new(request.content, CONTENT_BYTES_MAX) {
            Ok(discard) => discard,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let limits = self.responder.site.settings.limits;
        let until = Instant::now() + limits.download_head_time_max;
        let mut is_awaited = request.expects_continue;
        loop {
            match discard.push(&self.buffer) {
                Ok(discarded) => {
                    self.buffer.drain(..discarded.bytes);
                    if discarded.is_done {
                        return Ok(Ok(()));
                    }
                }
                Err(refusal) => return Ok(Err(refusal)),
            }
            if std::mem::take(&mut is_awaited) {
                let stall_time_max = limits.download_stall_time_max;
                let to = To::Connection(&self.socket);
                to.send(Answer::CONTINUE, false, stall_time_max).await?;
            }
            match timeout_at(until, self.read()).await {
                Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(received) => drop(received?),
                Err(_) => return Ok(Err(TOO_SLOW)),
            }
        }
    }
}

impl Connection {
    /// Sends all of an answer, or fails: then the connection must end, so that what was sent cannot
    /// be taken for a whole answer.
    async fn send(
        &self,
        answer: &Answer,
        body: Option<&Body>,
        control: &Control,
    ) -> io::Result<()> {
        let to = To::Connection(&self.socket);
        let sent = self.responder.send(&answer.pieces, body, to, control).await;
        sent.map_err(|error| {
            self.responder.tell(&error);
            abort(self.socket.socket());
            io::Error::other(error)
        })
    }

    /// Answers what was not understood.
    async fn refuse(&self, refusal: Refusal) -> io::Result<()> {
        let time_ms = Clock::now_ms();
        let answer = |context: &Context<'_>| Answer::refused(refusal, context);
        let site = &self.responder.site;
        let answer = site.with_context((false, true, false), answer);
        let sent = self.send(&answer, None, &Control::default()).await;
        self.responder.site.stats.count_answer(answer.status.code());
        self.responder.site.log.add(&Access {
            peer: self.responder.client.address,
            time_ms,
            line: "-",
            status: answer.status.code(),
            body_bytes: answer.body_bytes,
            is_whole: sent.is_ok(),
            took: Duration::ZERO,
            referer: b"",
            user_agent: b"",
        });
        sent
    }
}

/// Gives a side of a tunnel to whoever has the sessions.
async fn hand_over(
    responder: &Responder,
    mut socket: ByteStream,
    received: Vec<u8>,
) -> io::Result<()> {
    let site = &responder.site;
    if let Ok(place) = site.tunnels.try_reserve() {
        let client = Request::parse(&received).map(|it| responder.client_of(&it));
        let address = client.unwrap_or(responder.client).address;
        place.send(Tunnelled::new(socket, address, received)?);
        return Ok(());
    }
    let refused = async {
        socket.write_all(TUNNEL_REFUSED).await?;
        socket.close().await
    };
    timeout(site.settings.limits.download_stall_time_max, refused).await?
}

/// Bytes of a request's content that are read and thrown away.
pub(super) const CONTENT_BYTES_MAX: u64 = 16 << 10;

/// How a connection of HTTP/2 begins, as far as it looks like a head of HTTP/1.1 (RFC 9113, section
/// 3.4).
const HTTP2_PREFACE_HEAD: &[u8] = b"PRI * HTTP/2.0\r\n\r\n";

pub(super) const TOO_SLOW: Refusal = Refusal {
    status: Status::RequestTimeout,
    note: "the request did not arrive whole in time",
};
