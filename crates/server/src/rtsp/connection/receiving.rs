//! Waiting for what comes next on a connection, which is what it does most of its life.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use onrush_wire::rtsp::{self, Decoder, Event, Frame, Reply, StatusCode};
use tokio::time::{Instant, sleep};

use super::super::interleaving::PACKET_BYTES_MAX;
use super::{Connection, Received};
use crate::cluster::Feed;

/// Why a connection that waits for a request goes on.
enum Woken {
    Readable,
    /// Clients are to be sent on, or a publisher or a node is to be let go.
    Draining,
    /// Nothing has come for so long.
    Late,
}

impl Connection {
    /// What another node takes of a channel by this connection.
    pub(super) fn feeds(&self) -> impl Iterator<Item = &Feed> {
        self.of_node.iter().filter_map(|it| it.feed.as_ref())
    }

    /// Whether what it publishes is to end; if not, the task is woken once it is.
    fn is_dismissed(&self, context: Option<&Context<'_>>) -> bool {
        let publisher = self.publisher.as_ref();
        publisher.is_some_and(|it| it.is_dismissed(context))
    }

    /// The next request; `None` once the client has closed or has been silent for too long.
    pub(super) async fn receive(&mut self) -> io::Result<Option<Received>> {
        let mut is_begun = false;
        let mut given_up = pin!(sleep(self.patience(is_begun)));
        loop {
            if self.is_dismissed(None) {
                return Ok(None);
            }
            if self.feeds().any(|it| it.is_over(None)) {
                return Ok(None);
            }
            let has_come = match self.next() {
                (Some(received), _) => return Ok(Some(received)),
                (None, has_come) => has_come,
            };
            if let Some(due) = self.redirection_due() {
                return Ok(due);
            }
            if self.publisher.as_ref().is_some_and(|it| it.is_report_due()) {
                // What has just come may not have been counted yet, where all stood still for long.
                return Ok(match has_come {
                    true => Some(Received::ReportDue),
                    false => self.report_or_end(),
                });
            }
            let was_begun = std::mem::replace(&mut is_begun, self.decoder.is_some());
            // What has begun behind something whole has a time of its own: where there is always
            // more to read, every read may end in the middle of a frame.
            if was_begun != is_begun || is_begun && has_come {
                let time_max = self.patience(is_begun);
                given_up.as_mut().reset(Instant::now() + time_max);
            }
            // By hand, because this is what a connection is most of its life, and `readable` and
            // `timeout` are larger.
            let woken = poll_fn(|context| {
                let readiness = match &mut self.tunnel {
                    None => self.socket.poll_read_ready(context),
                    Some(tunnel) => tunnel.poll_read_ready(&self.socket, context),
                };
                if let Poll::Ready(ready) = readiness {
                    return Poll::Ready(ready.map(|()| Woken::Readable));
                }
                let mut feeds = self.feeds();
                let is_over = self.is_dismissed(Some(context));
                let is_over = is_over || feeds.any(|it| it.is_over(Some(context)));
                if is_over || self.redirection_due().is_some() {
                    return Poll::Ready(Ok(Woken::Draining));
                }
                if let Some(interleaving) = &self.interleaving {
                    interleaving.wake_by(context.waker());
                }
                given_up.as_mut().poll(context).map(|()| Ok(Woken::Late))
            });
            match woken.await? {
                Woken::Draining => {}
                Woken::Readable => {
                    if self.read()? == Some(0) {
                        return Ok(None);
                    }
                }
                Woken::Late => match self.overdue(is_begun) {
                    Ok(received) => return Ok(received),
                    Err(time_max) => given_up.as_mut().reset(Instant::now() + time_max),
                },
            }
        }
    }

    /// What becomes of a connection on which nothing has come in time, or how much longer it is
    /// waited for.
    fn overdue(&self, is_begun: bool) -> Result<Option<Received>, Duration> {
        if is_begun {
            let note = "the rest of the request did not come";
            let reply = Reply::refusal(StatusCode::RequestTimeout, note);
            return Ok(Some(Received::Refused(Box::new((reply, None)))));
        }
        let publisher = self.publisher.as_ref();
        if publisher.is_some_and(|it| it.patience().is_some()) {
            return Ok(self.report_or_end());
        }
        match self.has_sessions() {
            // Whoever watches a film says nothing on this connection; its session has a clock.
            true => Err(self.patience(is_begun)),
            false => Ok(None),
        }
    }

    /// What becomes of a publisher that is to be told how its packets arrive: none arrive if
    /// nothing whole has come for too long, whatever else comes.
    fn report_or_end(&self) -> Option<Received> {
        let is_silent = self.publisher.as_ref().is_some_and(|it| it.is_silent());
        (!is_silent).then_some(Received::ReportDue)
    }

    /// How long the rest of a request is waited for, or one at all.
    pub(super) fn patience(&self, is_begun: bool) -> Duration {
        let limits = &self.control().config.limits;
        if is_begun {
            limits.request_time_max
        } else {
            let of_publisher = self.publisher.as_ref().and_then(|it| it.patience());
            of_publisher.unwrap_or(limits.idle_time_max)
        }
    }

    /// What is to be done by what is whole of what has come, and whether anything is.
    fn next(&mut self) -> (Option<Received>, bool) {
        let mut has_come = false;
        let Some(decoder) = self.decoder.as_mut() else {
            return (None, has_come);
        };
        let received = loop {
            let Some(event) = decoder.next_event() else {
                break None;
            };
            has_come = true;
            match event {
                Ok(Event::Request(request)) => {
                    break Some(Received::Request(Box::new(request)));
                }
                Ok(Event::Frame(Frame { channel, packet })) if self.publisher.is_some() => {
                    if let Some(publisher) = &self.publisher {
                        publisher.frame(channel, packet);
                    }
                }
                Ok(Event::Frame(Frame { channel, packet })) => {
                    let interleaving = self.interleaving.as_ref();
                    if let Some(owner) = interleaving.and_then(|it| it.owner_of(channel)) {
                        let control = &self.place.control;
                        control.tell(owner, |session| session.heard(Ok(&packet)));
                    }
                }
                Ok(Event::Answer(answer)) => {
                    Self::note_answer(self.place.peer, answer);
                }
                Ok(Event::Tunnel(side)) => {
                    let rest = self.decoder.take().map(|decoder| decoder.into_rest());
                    let rest = rest.unwrap_or_default();
                    return (Some(Received::Tunnel(Box::new((side, rest)))), has_come);
                }
                Err(refused) => {
                    let farewell = (refused.reply(), refused.cseq);
                    break Some(Received::Refused(Box::new(farewell)));
                }
            }
        };
        if received.is_none() {
            self.decoder.take_if(|decoder| !decoder.is_mid_request());
        }
        (received, has_come)
    }

    /// Takes what has come, and says how much, or `None` if nothing has.
    fn read(&mut self) -> io::Result<Option<usize>> {
        let mut bytes = [0; 4096];
        let read = match &mut self.tunnel {
            None => self.socket.try_read(&mut bytes),
            Some(tunnel) => tunnel.try_read(&mut self.socket, &mut bytes),
        };
        let read = match read {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            read => Some(read?),
        };
        if let Some(read) = read {
            self.push(&bytes[..read]);
        }
        // Also if nothing has come for us: a client asks for a key in a record without data.
        self.keep_key()?;
        Ok(read)
    }

    /// Takes what has come.
    pub(in super::super) fn push(&mut self, bytes: &[u8]) {
        let limits = &self.place.control.config.limits;
        let decoder = self.decoder.get_or_insert_with(|| {
            Box::new(Decoder::new(rtsp::Limits {
                head_bytes_max: limits.request_head_bytes_max,
                headers_max: limits.request_headers_max,
                body_bytes_max: limits.request_body_bytes_max,
                frame_bytes_max: match (&self.publisher, &self.interleaving) {
                    (Some(_), _) => usize::from(u16::MAX),
                    (None, Some(_)) => PACKET_BYTES_MAX,
                    (None, None) => 0,
                },
            }))
        });
        decoder.push(bytes);
    }
}
