//! The paper's system calls, as functions.
//!
//! Each opens the path of its name, sends, and closes it: for programs that send a file once. Those
//! who send one often keep a [`Mover`], and with it the ring and the packet images.
//!
//! ```
//! use std::fs::File;
//! use std::io::Write;
//! use std::net::UdpSocket;
//!
//! use onrush_paths::calls::{krtpsendfile, msend, rtpsendfile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut file = tempfile::tempfile()?;
//! file.write_all(&[7; 3000])?;
//! let receiver = UdpSocket::bind("127.0.0.1:0")?;
//! let socket = UdpSocket::bind("127.0.0.1:0")?;
//! socket.connect(receiver.local_addr()?)?;
//!
//! // Three packets with headers, by one entry into the kernel for each batch.
//! let headers = [[0x80; 12]; 3].concat();
//! krtpsendfile(&file, &socket, 0..3000, 1000, 12, headers)?;
//! // One packet: a header of ours, a payload of the file.
//! rtpsendfile(&file, &socket, 1000, 500, &[0x80; 12])?;
//! // The file as it is, from its mapped pages.
//! msend(&file, &socket, 0..3000, 1000)?;
//!
//! let mut packet = [0; 2000];
//! let sizes: Vec<_> = (0..7).map(|_| receiver.recv(&mut packet)).collect::<Result<_, _>>()?;
//! assert_eq!(sizes, [1012, 1012, 1012, 512, 1000, 1000, 1000]);
//! # Ok(())
//! # }
//! ```

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

use thiserror::Error;

use super::{Mover, Name, OpenError, Piece, Plan, PlanError, SendError, Source};

/// Packet images that one call makes room for, in bytes; longer files are sent a window at a time.
const IMAGE_BYTES_MAX: usize = 64 << 20;

/// Why a call did not do what it was asked to.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CallError {
    /// What was asked for cannot be cut like that.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The path is not available here.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Not all was sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// The file cannot be opened once more.
    #[error("open the file once more: {0}")]
    File(#[source] io::Error),
}

/// Sends a range of the file over UDP in packets of `payload_bytes`, by one call: `ksendfile`.
///
/// # Errors
///
/// See [`CallError`].
pub fn ksendfile(
    file: &File,
    socket: &impl AsFd,
    range: Range<u64>,
    payload_bytes: u32,
) -> Result<(), CallError> {
    send(Name::Ksendfile, file, socket, cut(range, payload_bytes)?)
}

/// The same from the mapped file: `kmsend`.
///
/// # Errors
///
/// See [`CallError`].
pub fn kmsend(
    file: &File,
    socket: &impl AsFd,
    range: Range<u64>,
    payload_bytes: u32,
) -> Result<(), CallError> {
    send(Name::Kmsend, file, socket, cut(range, payload_bytes)?)
}

/// The same, a call a packet: `msend`.
///
/// # Errors
///
/// See [`CallError`].
pub fn msend(
    file: &File,
    socket: &impl AsFd,
    range: Range<u64>,
    payload_bytes: u32,
) -> Result<(), CallError> {
    send(Name::MmapMsend, file, socket, cut(range, payload_bytes)?)
}

/// Sends a range of the file over UDP in packets of `payload_bytes`, with a header in front of
/// each, by one call: `krtpsendfile`. `headers` has one behind the other, of `header_bytes` each.
///
/// # Errors
///
/// See [`CallError`].
pub fn krtpsendfile(
    file: &File,
    socket: &impl AsFd,
    range: Range<u64>,
    payload_bytes: u32,
    header_bytes: usize,
    headers: Vec<u8>,
) -> Result<(), CallError> {
    let plan = cut(range, payload_bytes)?.with_headers(header_bytes, headers)?;
    send(Name::Krtpsendfile, file, socket, plan)
}

/// The same from the mapped file: `krtpmsend`.
///
/// # Errors
///
/// See [`CallError`].
pub fn krtpmsend(
    file: &File,
    socket: &impl AsFd,
    range: Range<u64>,
    payload_bytes: u32,
    header_bytes: usize,
    headers: Vec<u8>,
) -> Result<(), CallError> {
    let plan = cut(range, payload_bytes)?.with_headers(header_bytes, headers)?;
    send(Name::Krtpmsend, file, socket, plan)
}

/// Sends one packet: a header, and `bytes` of the file: `rtpsendfile`.
///
/// # Errors
///
/// See [`CallError`].
pub fn rtpsendfile(
    file: &File,
    socket: &impl AsFd,
    offset: u64,
    bytes: u32,
    header: &[u8],
) -> Result<(), CallError> {
    let plan = Plan::new(vec![Piece { offset, bytes }], Vec::new())?;
    let plan = plan.with_headers(header.len(), header.to_vec())?;
    send(Name::Rtpsendfile, file, socket, plan)
}

/// The same from the mapped file: `rtpmsend`.
///
/// # Errors
///
/// See [`CallError`].
pub fn rtpmsend(
    file: &File,
    socket: &impl AsFd,
    offset: u64,
    bytes: u32,
    header: &[u8],
) -> Result<(), CallError> {
    let plan = Plan::new(vec![Piece { offset, bytes }], Vec::new())?;
    let plan = plan.with_headers(header.len(), header.to_vec())?;
    send(Name::MmapRtpmsend, file, socket, plan)
}

fn cut(range: Range<u64>, payload_bytes: u32) -> Result<Plan, PlanError> {
    let step = usize::try_from(payload_bytes.max(1)).expect("32 bits");
    let pieces = range.clone().step_by(step).map(|offset| Piece {
        offset,
        bytes: u32::try_from(range.end - offset)
            .map_or(payload_bytes, |left| left.min(payload_bytes)),
    });
    Plan::new(pieces.collect(), Vec::new())
}

fn send(name: Name, file: &File, socket: &impl AsFd, plan: Plan) -> Result<(), CallError> {
    let packets = 0..plan.packets();
    let file = file.try_clone().map_err(CallError::File)?;
    let source = Arc::new(Source { file, plan });
    Mover::open(name, &source, IMAGE_BYTES_MAX)?.send(socket, packets)?;
    Ok(())
}
