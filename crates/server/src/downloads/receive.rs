//! Bytes of a client, as they come.

use std::cell::RefCell;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use onrush_wire::http::HEAD_BYTES_MAX;
use tokio::io::ReadBuf;

use crate::byte_stream::ByteStream;

/// Receives some bytes onto the end of `buffer`; 0 at the end. Into memory that all connections
/// share, and from there only as much as came.
pub(crate) fn poll_read(
    socket: &mut ByteStream,
    buffer: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    thread_local! {
        static RECEIVED: RefCell<Box<[u8]>> = RefCell::new(vec![0; HEAD_BYTES_MAX].into());
    }
    RECEIVED.with_borrow_mut(|received| {
        let mut received = ReadBuf::new(received);
        socket.poll_read(context, &mut received).map_ok(|()| {
            buffer.extend_from_slice(received.filled());
            received.filled().len()
        })
    })
}

/// At most so many of these bytes, which are taken away there.
pub(crate) fn some_of(bytes: &mut Bytes, most: usize) -> Bytes {
    bytes.split_to(most.min(bytes.len()))
}
