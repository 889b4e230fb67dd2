//! What a request carries, on its way to where it is stored: by the kernel where it is plain and of
//! known length, else piece by piece, without its framing.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use onrush_wire::http::{Answer, Content, Discard};
use tokio::time::timeout;

use super::store::Incoming;
use crate::byte_stream::ByteStream;
use crate::downloads::receive::{poll_read, some_of};
use crate::downloads::send::To;
use crate::transfer::{Control, Pieces, Policy, StoreError, StoredTo, Transfers};

/// That of HTTP/1.1.
#[derive(Debug)]
pub(super) struct Http1Content<'a> {
    pub(super) socket: &'a mut ByteStream,
    /// What was received behind the head.
    pub(super) buffer: &'a mut Vec<u8>,
    pub(super) content: Content,
    pub(super) expects_continue: bool,
    pub(super) stall_time_max: Duration,
}

/// What came with the head.
#[derive(Debug)]
struct Received(Bytes);

/// What has a framing, or was sealed.
#[derive(Debug)]
struct Framed<'a> {
    socket: &'a mut ByteStream,
    buffer: &'a mut Vec<u8>,
    discard: Discard,
    is_done: bool,
    /// What it carries, without its framing.
    carried: Bytes,
}

impl Incoming for Http1Content<'_> {
    async fn go_on(&mut self) -> io::Result<()> {
        // Who has sent some of it does not wait.
        if self.expects_continue && self.buffer.is_empty() {
            let to = To::Connection(self.socket);
            to.send(Answer::CONTINUE, false, self.stall_time_max)
                .await?;
        }
        Ok(())
    }

    async fn store(
        &mut self,
        transfers: &Transfers,
        to: &StoredTo,
        (policy, control): (&Policy, &Control),
    ) -> Result<(), StoreError> {
        if let (ByteStream::Plain(socket), Content::Length(bytes)) = (&*self.socket, self.content) {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let first: Bytes = self.buffer.drain(..bytes.min(self.buffer.len())).collect();
            let mut to = to.clone();
            let end = to.end.replace(to.offset + first.len() as u64);
            let mut received = Received(first);
            let pieces: &mut dyn Pieces = &mut received;
            transfers.store(pieces, &to, policy, control).await?;
            (to.offset, to.end) = (to.end.unwrap_or(to.offset), end);
            return transfers.store(socket, &to, policy, control).await;
        }
        let discard = Discard::new(self.content, u64::MAX);
        let discard = discard.map_err(|refusal| malformed(refusal.note))?;
        let mut framed = Framed {
            is_done: matches!(self.content, Content::None | Content::Length(0)),
            socket: self.socket,
            buffer: self.buffer,
            discard,
            carried: Bytes::new(),
        };
        let pieces: &mut dyn Pieces = &mut framed;
        transfers.store(pieces, to, policy, control).await?;
        check_end(&mut framed, self.stall_time_max).await
    }
}

/// Whether the content ends where what it is of does.
pub(super) async fn check_end(
    pieces: &mut dyn Pieces,
    time_max: Duration,
) -> Result<(), StoreError> {
    let next = timeout(time_max, poll_fn(|context| pieces.poll_piece(context, 1)));
    let next = next.await.map_err(|_| StoreError::Stalled)?;
    match next.map_err(StoreError::Peer)?.is_empty() {
        true => Ok(()),
        false => Err(malformed("the content is longer than Content-Range says")),
    }
}

fn malformed(note: &'static str) -> StoreError {
    StoreError::Peer(io::Error::new(io::ErrorKind::InvalidData, note))
}

impl Pieces for Received {
    fn poll_piece(&mut self, _: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        Poll::Ready(Ok(some_of(&mut self.0, most)))
    }
}

impl Pieces for Framed<'_> {
    fn poll_piece(&mut self, context: &mut Context<'_>, most: usize) -> Poll<io::Result<Bytes>> {
        while self.carried.is_empty() && !self.is_done {
            if self.buffer.is_empty() {
                let received = ready!(poll_read(self.socket, self.buffer, context))?;
                if received == 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
            }
            let mut carried = Vec::new();
            let pushed = self
                .discard
                .push_to(self.buffer, |data| carried.extend_from_slice(data));
            let pushed =
                pushed.map_err(|it| io::Error::new(io::ErrorKind::InvalidData, it.note))?;
            self.buffer.drain(..pushed.bytes);
            (self.carried, self.is_done) = (carried.into(), pushed.is_done);
        }
        Poll::Ready(Ok(some_of(&mut self.carried, most)))
    }
}
