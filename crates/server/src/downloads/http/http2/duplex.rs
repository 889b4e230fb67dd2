//! A connection as the library for HTTP/2 wants it, and what is counted on it.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use onrush_wire::http::HEAD_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::byte_stream::ByteStream;

/// Bytes of frames that a connection may send beyond those of its requests, content that is
/// stored, and an eighth of what it gets: settings, pings, priorities, windows.
pub const HTTP2_CONTROL_BYTES_MAX: u64 = 256 << 10;

/// What a connection has sent and received so far.
#[derive(Debug, Default)]
pub(super) struct Meter {
    received_bytes: Cell<u64>,
    sent_bytes: Cell<u64>,
    requests: Cell<u64>,
    /// Content that may have come: what is stored, and a window ahead of it.
    content_bytes: Cell<u64>,
    /// Since when the client takes nothing.
    blocked: Cell<Option<Instant>>,
}

impl Meter {
    pub(super) fn count_request(&self) {
        self.requests.set(self.requests.get() + 1);
    }

    /// So much content of requests is stored, or may come ahead of that.
    pub(super) fn count_content(&self, bytes: u64) {
        // Each frame has its head.
        let all = self.content_bytes.get() + bytes + bytes / 8;
        self.content_bytes.set(all);
    }

    /// Whether the client has taken nothing for so long.
    pub(super) fn is_blocked(&self, time_max: Duration) -> bool {
        let blocked = self.blocked.get();
        blocked.is_some_and(|since| since.elapsed() >= time_max)
    }

    fn receive(&self, bytes: usize) -> io::Result<()> {
        let received_bytes = self.received_bytes.get() + bytes as u64;
        self.received_bytes.set(received_bytes);
        let of_requests = (self.requests.get() + 1) * 2 * HEAD_BYTES_MAX as u64;
        let content = self.content_bytes.get();
        let most = HTTP2_CONTROL_BYTES_MAX + of_requests + content + self.sent_bytes.get() / 8;
        match received_bytes <= most {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "too many frames that ask for nothing",
            )),
        }
    }

    fn send<T>(&self, sent: &Poll<io::Result<T>>, bytes: impl Fn(&T) -> usize) {
        match sent {
            Poll::Pending if self.blocked.get().is_none() => {
                self.blocked.set(Some(Instant::now()));
            }
            Poll::Pending => {}
            Poll::Ready(sent) => {
                let bytes = sent.as_ref().map_or(0, bytes) as u64;
                self.sent_bytes.set(self.sent_bytes.get() + bytes);
                self.blocked.set(None);
            }
        }
    }
}

/// Bytes in and out of a connection.
#[derive(Debug)]
pub(super) struct Duplex {
    socket: Rc<RefCell<ByteStream>>,
    meter: Rc<Meter>,
    /// What was read before.
    received: Vec<u8>,
}

impl Duplex {
    pub(super) fn new(
        socket: Rc<RefCell<ByteStream>>,
        meter: Rc<Meter>,
        received: Vec<u8>,
    ) -> Self {
        Self {
            socket,
            meter,
            received,
        }
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        if self.received.is_empty() {
            ready!(self.socket.borrow_mut().poll_read(context, into))?;
        } else {
            let bytes = self.received.len().min(into.remaining());
            into.put_slice(&self.received[..bytes]);
            drop(self.received.drain(..bytes));
        }
        Poll::Ready(self.meter.receive(into.filled().len() - before))
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = self.socket.borrow_mut().poll_write(context, bytes);
        self.meter.send(&sent, |&bytes| bytes);
        sent
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.socket.borrow_mut().poll_flush(context);
        self.meter.send(&flushed, |()| 0);
        flushed
    }

    /// The end is said by whoever closes the connection.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_ask_for_nothing_are_bounded() {
        let meter = Meter::default();
        let most = HTTP2_CONTROL_BYTES_MAX + 2 * HEAD_BYTES_MAX as u64;
        let most = usize::try_from(most).unwrap();
        assert!(meter.receive(most).is_ok() && meter.receive(1).is_err());
        meter.count_request();
        assert!(meter.receive(2 * HEAD_BYTES_MAX - 1).is_ok() && meter.receive(1).is_err());
        meter.send(&Poll::Ready(Ok(80)), |&bytes| bytes);
        assert!(meter.receive(9).is_ok() && meter.receive(1).is_err());
        meter.count_content(80);
        assert!(meter.receive(89).is_ok() && meter.receive(1).is_err());
    }
}
