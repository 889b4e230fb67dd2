//! What a request of HTTP/2 carries: in frames, which are counted elsewhere.

use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Response, StatusCode};

use super::UPLOAD_WINDOW_BYTES;
use super::duplex::Meter;
use crate::downloads::http::content::check_end;
use crate::downloads::http::store::Incoming;
use crate::downloads::receive::some_of;
use crate::transfer::{Control, Pieces, Policy, StoreError, StoredTo, Transfers};

/// The content of one request.
#[derive(Debug)]
pub(super) struct Http2Content<'a> {
    stream: RecvStream,
    meter: Rc<Meter>,
    /// Where the client is told to send it, if it waits for that.
    waiting: Option<&'a mut SendResponse<Bytes>>,
    /// What was received and is not stored.
    received: Bytes,
}

impl<'a> Http2Content<'a> {
    pub(super) fn new(
        stream: RecvStream,
        meter: Rc<Meter>,
        waiting: Option<&'a mut SendResponse<Bytes>>,
    ) -> Self {
        Self {
            stream,
            meter,
            waiting,
            received: Bytes::new(),
        }
    }
}

impl Drop for Http2Content<'_> {
    /// What is not read, the library reads past: as much as a window may be on its way before the
    /// client hears that its request is answered.
    fn drop(&mut self) {
        if !self.stream.is_end_stream() {
            self.meter.count_content(UPLOAD_WINDOW_BYTES.into());
        }
    }
}

impl Incoming for Http2Content<'_> {
    async fn go_on(&mut self) -> io::Result<()> {
        let told = self.waiting.take().map_or(Ok(()), tell_to_go_on);
        told.map_err(io::Error::other)
    }

    async fn store(
        &mut self,
        transfers: &Transfers,
        to: &StoredTo,
        (policy, control): (&Policy, &Control),
    ) -> Result<(), StoreError> {
        let pieces: &mut dyn Pieces = self;
        transfers.store(pieces, to, policy, control).await?;
        check_end(self, Duration::from_secs(10)).await
    }
}

impl Pieces for Http2Content<'_> {
    fn poll_piece(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        while self.received.is_empty() {
            match ready!(self.stream.poll_data(context)) {
                None => return Poll::Ready(Ok(Bytes::new())),
                Some(Err(error)) => {
                    let error = io::Error::new(io::ErrorKind::ConnectionAborted, error);
                    return Poll::Ready(Err(error));
                }
                Some(Ok(received)) => {
                    self.meter.count_content(received.len() as u64);
                    // A stream that has ended needs no more room.
                    drop(self.stream.flow_control().release_capacity(received.len()));
                    self.received = received;
                }
            }
        }
        Poll::Ready(Ok(some_of(&mut self.received, most)))
    }
}

/// Tells a client that waits for it to send what its request carries (RFC 9110, section 10.1.1).
pub(super) fn tell_to_go_on(respond: &mut SendResponse<Bytes>) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::CONTINUE;
    respond.send_informational(response)
}
