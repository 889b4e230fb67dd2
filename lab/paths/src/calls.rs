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

/// A function for each call: its arguments, its path, and the plan that it sends.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $name:ident($($argument:ident: $kind:ty),*) = $path:ident, $plan:expr;
    )*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// See [`CallError`].
        pub fn $name(
            file: &File,
            socket: &impl AsFd,
            $($argument: $kind),*
        ) -> Result<(), CallError> {
            send(Name::$path, file, socket, $plan)
        }
    )*};
}

calls! {
    /// Sends a range of the file over UDP in packets of `payload_bytes`, by one call: `ksendfile`.
    ksendfile(range: Range<u64>, payload_bytes: u32)
        = Ksendfile, Plan::of_range(range, payload_bytes);
    /// The same from the mapped file: `kmsend`.
    kmsend(range: Range<u64>, payload_bytes: u32)
        = Kmsend, Plan::of_range(range, payload_bytes);
    /// The same, a call a packet: `msend`.
    msend(range: Range<u64>, payload_bytes: u32)
        = MmapMsend, Plan::of_range(range, payload_bytes);
    /// Sends a range of the file over UDP in packets of `payload_bytes`, with a header in front of
    /// each, by one call: `krtpsendfile`. `headers` has one behind the other, of `header_bytes`
    /// each.
    krtpsendfile(range: Range<u64>, payload_bytes: u32, header_bytes: usize, headers: Vec<u8>)
        = Krtpsendfile, Plan::of_range(range, payload_bytes)?.with_headers(header_bytes, headers);
    /// The same from the mapped file: `krtpmsend`.
    krtpmsend(range: Range<u64>, payload_bytes: u32, header_bytes: usize, headers: Vec<u8>)
        = Krtpmsend, Plan::of_range(range, payload_bytes)?.with_headers(header_bytes, headers);
    /// Sends one packet: a header, and `bytes` of the file: `rtpsendfile`.
    rtpsendfile(offset: u64, bytes: u32, header: &[u8])
        = Rtpsendfile, one(Piece { offset, bytes }, header);
    /// The same from the mapped file: `rtpmsend`.
    rtpmsend(offset: u64, bytes: u32, header: &[u8])
        = MmapRtpmsend, one(Piece { offset, bytes }, header);
}

fn one(piece: Piece, header: &[u8]) -> Result<Plan, PlanError> {
    Plan::new(vec![piece], Vec::new())?.with_headers(header.len(), header.to_vec())
}

fn send(
    name: Name,
    file: &File,
    socket: &impl AsFd,
    plan: Result<Plan, PlanError>,
) -> Result<(), CallError> {
    let plan = plan?;
    let packets = 0..plan.packets();
    let file = file.try_clone().map_err(CallError::File)?;
    let source = Arc::new(Source { file, plan });
    Mover::open(name, &source, IMAGE_BYTES_MAX)?.send(socket, packets)?;
    Ok(())
}
