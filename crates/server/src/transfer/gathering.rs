//! Short pieces of a file that lie near each other, as pictures with sound between them: read
//! together, and sent by one call.
//!
//! A `sendfile` looks at the page cache, fills a pipe and empties it into the socket, whatever it
//! moves. For pictures of 20 KiB that made a gigabyte cost 600 ms of system time, where one piece
//! costs 190 and copying all of it, as is done for TLS, 290 (docs/results/http,
//! hls-tls-before.json).

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice};
use std::iter::Peekable;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use onrush_sys::path::cue::{Step, StepEnd};
use socket2::SockRef;
use tokio::net::TcpStream;

use super::steps::NOTHING;

/// Pieces that are shorter are copied if there are several.
const PIECE_BYTES_MAX: u64 = 64 << 10;

/// Bytes of the file that are read at once, with what lies between the pieces: as many as stay in a
/// near cache until they are sent.
const SPAN_BYTES_MAX: usize = 128 << 10;

/// Pieces that are sent at once; the kernel takes 1024 (`UIO_MAXIOV`).
const PIECES_MAX: usize = 256;

/// Takes from `pieces` those that go together with `first`, which it may do alone.
pub(super) fn group(
    first: Range<u64>,
    pieces: &mut Peekable<impl Iterator<Item = Range<u64>>>,
    group: &mut Vec<Range<u64>>,
) {
    let is_short = |piece: &Range<u64>| piece.end - piece.start < PIECE_BYTES_MAX;
    let (start, mut end, mut goes_on) = (first.start, first.end, is_short(&first));
    group.clear();
    group.push(first);
    while goes_on && group.len() < PIECES_MAX {
        let follows = |next: &Range<u64>| {
            is_short(next) && next.start >= end && next.end - start <= SPAN_BYTES_MAX as u64
        };
        match pieces.next_if(follows) {
            Some(next) => {
                end = next.end;
                group.push(next);
            }
            None => goes_on = false,
        }
    }
}

/// Sends what the socket takes of pieces that go together. `None` if the file has no longer the
/// first of them.
pub(super) fn step(
    file: &File,
    pieces: &[Range<u64>],
    socket: &TcpStream,
) -> io::Result<Option<Step>> {
    thread_local! {
        static READ: RefCell<Box<[u8]>> = RefCell::new(vec![0; SPAN_BYTES_MAX].into());
    }
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return Ok(Some(NOTHING));
    };
    READ.with_borrow_mut(|buffer| {
        let span = in_memory(last.end - first.start).min(buffer.len());
        let read = read_at(file, &mut buffer[..span], first.start)?;
        let there = &buffer[..read];
        let parts = pieces.iter().map_while(|piece| {
            let [start, end] = [piece.start, piece.end].map(|at| in_memory(at - first.start));
            there.get(start..end)
        });
        let (mut slices, mut count) = ([IoSlice::new(&[]); PIECES_MAX], 0);
        for (slice, part) in slices.iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
            count += 1;
        }
        match count {
            0 => Ok(None),
            _ => send(&mut slices[..count], socket).map(Some),
        }
    })
}

/// Reads until the buffer is full or the file ends; how much was read.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// Sends until all is sent or the socket says that it is full: only then does it tell of the room
/// to come.
fn send(mut slices: &mut [IoSlice<'_>], socket: &TcpStream) -> io::Result<Step> {
    let socket = SockRef::from(socket);
    let mut sent_bytes = 0;
    while !slices.is_empty() {
        match socket.send_vectored(slices) {
            Ok(sent) => {
                sent_bytes += sent as u64;
                IoSlice::advance_slices(&mut slices, sent);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let end = StepEnd::Full;
                return Ok(Step { sent_bytes, end });
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // It is met again by the next step.
            Err(_) if sent_bytes > 0 => break,
            Err(error) => return Err(error),
        }
    }
    let end = StepEnd::Done;
    Ok(Step { sent_bytes, end })
}

/// A length within a span, which is short.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_pieces_that_follow_each_other_go_together() {
        let groups = |pieces: &[Range<u64>]| {
            let mut pieces = pieces.iter().cloned().peekable();
            let (mut of, mut all) = (Vec::new(), Vec::new());
            while let Some(first) = pieces.next() {
                group(first, &mut pieces, &mut of);
                all.push(of.len());
            }
            all
        };
        assert_eq!(groups(&[0..100, 150..300, 300..400]), [3]);
        let long = PIECE_BYTES_MAX;
        assert_eq!(
            groups(&[0..100, 200..200 + long, 90_000..90_001]),
            [1, 1, 1]
        );
        assert_eq!(
            groups(&[200..300, 0..100, 100..200]),
            [1, 2],
            "not backwards"
        );
        let span = SPAN_BYTES_MAX as u64;
        assert_eq!(groups(&[0..10, span - 1..span, span..span + 1]), [2, 1]);
        let many: Vec<_> = (0..600).map(|at| at * 2..at * 2 + 1).collect();
        assert_eq!(groups(&many), [PIECES_MAX, PIECES_MAX, 88]);
    }
}
