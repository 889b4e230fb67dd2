//! Loops that send on connections: what the engine is held against there.
//!
//! The film lies in memory as frames (RFC 2326, section 10.12), made before anything is sent, so
//! that a loop does nothing but write: no reading, no copy of its own. `write_loop` writes each
//! packet by itself. `rustls_loop` gives rustls the frames that are due together, and writes what
//! that seals; whoever encrypts in user space cannot do less.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;

use onrush_sys::path::prepare_copied_stream;
use onrush_wire::media::{FilePiece, Plan, RtpOrigin};
use onrush_wire::rtsp::{FRAME_PREFIX_BYTES, frame_prefix};
use rustls::ServerConnection;

use super::film::Film;
use super::pacing::{Way, start_way};
use super::record::Counts;
use super::sender::{Sender, Task};
use crate::error::ExperimentError;

/// The names of their threads.
pub(super) const WRITE_THREAD: &str = "write-loop";
pub(super) const RUSTLS_THREAD: &str = "rustls-loop";

/// As the engine has it by default: bytes that a client may leave unacknowledged.
const UNACKNOWLEDGED_BYTES_MAX: usize = 512 << 10;

/// A film as the bytes of a connection.
struct Framed {
    bytes: Vec<u8>,
    /// Where each frame ends.
    ends: Vec<usize>,
}

/// A write for each frame.
struct Writes {
    framed: Framed,
    sockets: Vec<TcpStream>,
}

/// A write into TLS for what is due together.
struct RustlsWrites {
    framed: Framed,
    sockets: Vec<(TcpStream, ServerConnection)>,
}

/// Starts a session on each connection.
pub(super) fn start_writes(
    task: &Task,
    sockets: Vec<TcpStream>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    start_way(task, WRITE_THREAD, |plan, origin| {
        sockets.iter().try_for_each(prepare)?;
        let framed = Framed::new(&task.film, plan, origin)?;
        Ok(Writes { framed, sockets })
    })
}

/// Starts a session on each connection, whose handshake is over.
pub(super) fn start_rustls(
    task: &Task,
    sockets: Vec<(TcpStream, ServerConnection)>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    start_way(task, RUSTLS_THREAD, |plan, origin| {
        sockets.iter().try_for_each(|(socket, _)| prepare(socket))?;
        let framed = Framed::new(&task.film, plan, origin)?;
        Ok(RustlsWrites { framed, sockets })
    })
}

/// The same room in the socket as the engine gives its own.
fn prepare(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    prepare_copied_stream(socket.as_fd(), UNACKNOWLEDGED_BYTES_MAX);
    Ok(())
}

impl Framed {
    fn new(film: &Film, plan: &Plan, origin: RtpOrigin) -> io::Result<Self> {
        let mut file = Vec::new();
        film.open_file()?.read_to_end(&mut file)?;
        let whole = FilePiece {
            offset: 0,
            bytes: &file,
        };
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for number in 0..plan.rtp_packets() {
            let image_bytes = plan.images_bytes(number..number + 1);
            let image_bytes = u16::try_from(image_bytes).map_err(io::Error::other)?;
            bytes.extend_from_slice(&frame_prefix(0, image_bytes));
            let begin = bytes.len();
            bytes.resize(begin + usize::from(image_bytes), 0);
            plan.write_images(number..number + 1, &[whole], origin, &mut bytes[begin..])
                .map_err(io::Error::other)?;
            ends.push(bytes.len());
        }
        Ok(Self { bytes, ends })
    }

    /// Where these frames lie.
    fn range(&self, packets: Range<u64>) -> Range<usize> {
        let end = |count: u64| {
            let count = usize::try_from(count).expect("an index of a list");
            count.checked_sub(1).map_or(0, |last| self.ends[last])
        };
        end(packets.start)..end(packets.end)
    }
}

impl Counts {
    /// So many packets were written, which were so long with what stands before them; or not.
    fn count_written(&mut self, packets: u64, bytes: usize, written: io::Result<()>) {
        match written {
            Ok(()) => {
                self.packets += packets;
                self.bytes += bytes as u64 - packets * FRAME_PREFIX_BYTES as u64;
            }
            Err(_) => self.packets_refused += packets,
        }
    }
}

impl Way for Writes {
    fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts) {
        let mut socket = &self.sockets[session];
        for number in packets {
            let frame = &self.framed.bytes[self.framed.range(number..number + 1)];
            let written = socket.write_all(frame);
            counts.crossings += 1;
            counts.count_written(1, frame.len(), written);
        }
    }
}

impl Way for RustlsWrites {
    fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts) {
        let frames = &self.framed.bytes[self.framed.range(packets.clone())];
        let (socket, tls) = &mut self.sockets[session];
        let mut write = || {
            tls.writer().write_all(frames)?;
            while tls.wants_write() {
                tls.write_tls(socket)?;
                counts.crossings += 1;
            }
            Ok(())
        };
        let written = write();
        counts.count_written(packets.end - packets.start, frames.len(), written);
    }
}
