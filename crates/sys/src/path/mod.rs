//! Data paths: the ways to hand packet images to the kernel.
//!
//! Each path has one name everywhere. All keep one contract, [`Path`]: trains are queued; one call
//! hands over all that is queued and sleeps until it is time for the next; and each train comes
//! back in one [`Completion`] or two: when the kernel has taken it, and when it no longer needs the
//! memory. A path never falls back to another by itself: [`open_best`] chooses, and tells why.

mod batch;
pub mod cue;
mod options;
pub mod ring;
mod segment_control;
mod single_train;
mod stream;
mod stream_queue;
mod unsent;
mod uring_registered_zc;
mod vectored;

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use thiserror::Error;

use crate::pool::Pool;
use crate::wake::Waker;
use batch::Batch;
use onrush_lock::LockError;
use options::loopback_socket;
pub use options::{
    SEND_BUFFER_BYTES, abort_stream, check_udp_segment, prepare_copied_stream, prepare_socket,
    prepare_stream, probe_udp_segment, send_buffer_bytes, set_option, widen_send_buffer,
};
pub use single_train::send_train_to;
pub use stream::{FramedPackets, STREAM_PACKETS_MAX, StreamData, StreamSend};
use uring_registered_zc::{UringRegisteredZc, zero_copy_ring};

/// Bytes of the largest train: the largest UDP payload over IPv4 (udp(7)).
pub const TRAIN_BYTES_MAX: usize = 65_507;

/// Packets of the longest train: UDP_MAX_SEGMENTS before Linux 6.9 raised it to 128.
pub const TRAIN_PACKETS_MAX: usize = 64;

/// Trains that may be queued between two submissions.
pub const BATCH_TRAINS_MAX: usize = 256;

/// Packets of the longest train with headers of its own: a header and a payload are two of the 17
/// pieces of memory that a send without a copy may have (linux/skbuff_ref.h, MAX_SKB_FRAGS).
pub const OWN_HEADERS_PACKETS_MAX: usize = 8;

/// Packets that a train with headers of its own has room for in any case: a payload of a packet
/// that fits an Ethernet frame lies on two pages at most, and is then three pieces with its header.
pub const OWN_HEADERS_PACKETS_MIN: usize = 5;

/// Trains handed over whose memory the kernel may still need.
pub const IN_FLIGHT_TRAINS_MAX: usize = 8192;

/// The paths the server uses, best first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum PathName {
    /// io_uring SEND_ZC from a registered buffer, with UDP_SEGMENT: no copy, one crossing a batch.
    UringRegisteredZc,
    /// `sendmmsg` with UDP_SEGMENT: one copy, one crossing a train.
    SendmmsgGso,
    /// `sendmmsg`: one copy, one crossing a train, one pass through the stack a packet.
    Sendmmsg,
    /// `sendto`: one copy and one crossing a packet.
    Sendto,
}

/// Images that lie one behind the other and leave together on a connected UDP socket.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// The socket, on which [`prepare_socket`] has been called.
    pub to: To,
    /// Where the first image starts in the pool's area.
    pub offset: usize,
    /// Bytes of all images; at most [`TRAIN_BYTES_MAX`].
    pub bytes: u32,
    /// Bytes of an image; the last may be shorter.
    pub stride: u16,
    /// How the kernel knows the stride. Of a train of one packet it need not.
    pub segments: Segments,
    /// What stands in place of the first bytes of each image.
    pub headers: Option<OwnHeaders>,
    /// Comes back with the completion.
    pub token: u32,
}

impl Train {
    /// Whether it is one packet.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.bytes <= u32::from(self.stride)
    }

    /// The length of its packets, if the send has to say it.
    fn segments_of_send(&self) -> Option<u16> {
        let is_said = self.segments == Segments::OfSend && !self.is_single();
        is_said.then_some(self.stride)
    }
}

/// How the kernel knows how long the packets of a train are. On a path that hands over packet by
/// packet, it is told each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Segments {
    /// By its socket: the train's stride is what [`prepare_socket`] was given.
    OfSocket,
    /// By the send, with a control message (udp(7), UDP_SEGMENT), whatever its socket was readied
    /// for. Such a send costs a little more, and must save another.
    OfSend,
}

/// Headers that lie apart from the images, one behind the other, for a client with numbers of its
/// own: what leaves is each header, and of each image what is behind its first bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OwnHeaders {
    /// Where the first starts in the pool's area; in the registered buffer in which the images are
    /// (see [`crate::pool::HeaderSlab`]).
    pub offset: usize,
    /// Bytes of a header, and bytes of each image that are left out.
    pub bytes: u8,
}

/// A train's socket, as its path knows it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum To {
    /// By its descriptor, which stays open until the train was sent.
    Descriptor(RawFd),
    /// By the place in the path's own table, where [`Path::install_file`] has put it.
    RegisteredFile(u32),
}

/// What became of a train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Completion {
    /// The train's token.
    pub token: u32,
    /// The kernel's answer, in the completion that brings it.
    pub sent: Option<Sent>,
    /// The kernel has let go of the memory. Comes exactly once for a train, with or after its
    /// answer.
    pub released: bool,
    /// With `released`, of what the kernel was to refer to: whether it did. If not it has copied
    /// it, because the receiver is on this machine (net/core/skbuff.c, `skb_copy_ubufs`) or a
    /// device wants it so.
    pub referred: Option<bool>,
}

/// What the kernel took of a train.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sent {
    /// Bytes that it took, from the first on.
    pub bytes: u32,
    /// Why it took no more; 0 if it did not say, or took all.
    pub errno: i32,
}

impl Sent {
    /// How many packets it took of a train of `train_bytes` in packets of `stride`: whole ones
    /// only.
    #[must_use]
    pub fn packets(self, train_bytes: u32, stride: u16) -> u32 {
        let stride = u32::from(stride);
        match self.bytes >= train_bytes {
            true => train_bytes.div_ceil(stride),
            false => self.bytes / stride,
        }
    }
}

/// What a path has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Entries into the kernel.
    pub crossings: u64,
    /// Trains handed over.
    pub trains: u64,
    /// Trains that the kernel sent without copying, as it reported (IORING_SEND_ZC_REPORT_USAGE).
    pub trains_zero_copy: u64,
    /// Trains that the kernel copied; on a path that copies, all.
    pub trains_copied: u64,
    /// On a zero-copy path: trains of one packet, which it sends with a copy on purpose.
    pub trains_single: u64,
    /// On a zero-copy path: trains that came back otherwise, because the kernel refused them, or
    /// does not report what it did.
    pub trains_other: u64,
    /// Trains with headers of their own ([`OwnHeaders`]).
    pub trains_own_headers: u64,
    /// Trains that said the length of their packets themselves ([`Segments::OfSend`]).
    pub trains_own_segments: u64,
    /// Of the trains, sends of packets over connections ([`StreamSend`]).
    pub trains_framed: u64,
}

impl Counters {
    /// What both have done.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            crossings: self.crossings + other.crossings,
            trains: self.trains + other.trains,
            trains_zero_copy: self.trains_zero_copy + other.trains_zero_copy,
            trains_copied: self.trains_copied + other.trains_copied,
            trains_single: self.trains_single + other.trains_single,
            trains_other: self.trains_other + other.trains_other,
            trains_own_headers: self.trains_own_headers + other.trains_own_headers,
            trains_own_segments: self.trains_own_segments + other.trains_own_segments,
            trains_framed: self.trains_framed + other.trains_framed,
        }
    }
}

/// How a path sends trains with headers of their own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Vectored {
    /// Headers and payloads by reference (SENDMSG_ZC with vectored registered buffers, Linux 6.15):
    /// `uring_vectored_zc`.
    ZeroCopy,
    /// They are gathered with one copy.
    Copied,
}

/// A way to hand trains to the kernel. Used by the thread that opened it.
pub trait Path: fmt::Debug {
    /// Its name.
    fn name(&self) -> PathName;

    /// Makes a table for so many sockets, which then need no descriptor while the path keeps them.
    /// How many it has places for: perhaps fewer (RLIMIT_NOFILE bounds a ring's table too), and
    /// none where there are no tables.
    fn register_files(&mut self, _places: u32) -> u32 {
        0
    }

    /// Puts a socket into the table, at a free place that [`Self::register_files`] has made. The
    /// path holds it from then on, and the descriptor may be closed.
    ///
    /// # Errors
    ///
    /// The system's: EMFILE, ENOMEM; `Unsupported` of a path without a table.
    fn install_file(&mut self, _place: u32, _socket: BorrowedFd<'_>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Lets go of the socket at `place`. What is handed over already is sent all the same.
    fn release_file(&mut self, _place: u32) {}

    /// A descriptor for the socket at `place`, for a path that needs one.
    ///
    /// # Errors
    ///
    /// EMFILE if no more may be open; `Unsupported` of a path without a table.
    fn descriptor(&mut self, _place: u32) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether memory of the pool has become ready that the path has to register before it can be
    /// used; see [`crate::pool::PoolUser`]. Never enters the kernel.
    fn has_memory_to_take(&self) -> bool {
        false
    }

    /// Registers the next piece of such memory, unless it would have to wait for it. What is
    /// registered takes some microseconds where rings share pins, and a tenth to about one
    /// millisecond where they do not.
    fn take_memory(&mut self) {}

    /// How it sends trains with headers of their own.
    fn vectored(&self) -> Vectored {
        Vectored::Copied
    }

    /// Packets, at most, of a train with headers of its own whose first image starts at `offset`:
    /// from [`OWN_HEADERS_PACKETS_MIN`] to [`OWN_HEADERS_PACKETS_MAX`].
    fn own_headers_packets(&self, _offset: usize, _stride: u16) -> usize {
        OWN_HEADERS_PACKETS_MAX
    }

    /// How many more trains can be queued before the next submission.
    fn room(&self) -> usize;

    /// Queues a train. Never enters the kernel.
    ///
    /// # Panics
    /// If there is no room, or the train lies outside the area or is longer than allowed.
    fn queue(&mut self, train: Train);

    /// Whether it sends over connections, too.
    fn sends_streams(&self) -> bool {
        false
    }

    /// Queues a send over a connection; see [`StreamSend`] for what may follow what. It takes as
    /// much room as a train. Never enters the kernel.
    ///
    /// # Panics
    /// If there is no room, the packets lie outside the area or are longer than allowed, or it does
    /// not [send over connections](Self::sends_streams).
    fn queue_stream(&mut self, _send: StreamSend) {
        unreachable!("who queues it has asked whether it may");
    }

    /// Hands over all that is queued, and returns at once.
    ///
    /// # Errors
    ///
    /// What entering the kernel says: a lack of memory. Trains are answered for themselves, by
    /// [`Self::completion`].
    fn submit(&mut self) -> io::Result<()>;

    /// Hands over all that is queued, and waits until so many completions are there to be taken; it
    /// may come back with fewer. Every train in flight has at least one to come.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`].
    fn submit_and_wait(&mut self, _completions: usize) -> io::Result<()> {
        self.submit_and_sleep(None)
    }

    /// Hands over all that is queued, then sleeps: until `deadline_ns` of [`crate::clock`], which
    /// nothing cuts short but a signal; without a deadline, until the waker wakes it or a
    /// completion arrives.
    ///
    /// # Errors
    ///
    /// As [`Self::submit`].
    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()>;

    /// Trains queued or handed over whose release has not been taken yet.
    fn in_flight(&self) -> usize;

    /// The next completion that has arrived. Never enters the kernel.
    fn completion(&mut self) -> Option<Completion>;

    /// What it has done so far.
    fn counters(&self) -> Counters;
}

/// Why a path is not available here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PathError {
    /// io_uring cannot be used.
    #[error(
        "io_uring is not available: {0} (it needs Linux 5.11, kernel.io_uring_disabled=0, no \
         seccomp filter against it, and some memory that may be locked: RLIMIT_MEMLOCK)"
    )]
    Ring(#[source] io::Error),
    /// The kernel has no zero-copy send.
    #[error("this kernel has no IORING_OP_SEND_ZC (Linux 6.0)")]
    SendZc,
    /// The memory cannot be registered.
    #[error("cannot register {bytes_total} bytes with io_uring: {source}")]
    Register {
        /// Bytes of the area.
        bytes_total: usize,
        /// What is in the way.
        source: LockError,
    },
    /// The kernel cannot send pieces of registered memory.
    #[error("this kernel has no SENDMSG_ZC with vectored registered buffers (Linux 6.15)")]
    Vectored,
    /// The headers are too long for a slot.
    #[error("headers of {bytes} bytes are too long for a slab; use at most 16")]
    Headers {
        /// Bytes of a header.
        bytes: usize,
    },
    /// The kernel does not cut trains.
    #[error("this kernel has no UDP_SEGMENT (Linux 4.18): {0}")]
    UdpSegment(#[source] io::Error),
}

impl PathName {
    /// All, best first.
    pub const ALL: [Self; 4] = [
        Self::UringRegisteredZc,
        Self::SendmmsgGso,
        Self::Sendmmsg,
        Self::Sendto,
    ];

    /// The name, as in docs/paths.md.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::UringRegisteredZc => "uring_registered_zc",
            Self::SendmmsgGso => "sendmmsg_gso",
            Self::Sendmmsg => "sendmmsg",
            Self::Sendto => "sendto",
        }
    }

    /// Whether its sends carry several packets, which the kernel or the device cuts.
    #[must_use]
    pub const fn segments(self) -> bool {
        matches!(self, Self::UringRegisteredZc | Self::SendmmsgGso)
    }

    /// The next best.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        Self::ALL.into_iter().find(|&name| name > self)
    }
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for PathName {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|p| p.as_str() == name)
            .ok_or_else(|| {
                let names: Vec<_> = Self::ALL.iter().map(|p| p.as_str()).collect();
                format!("no path is named {name:?}; there are {}", names.join(", "))
            })
    }
}

/// Opens the path of that name, or says why it is not available here. The thread that opens it uses
/// it.
///
/// # Errors
///
/// [`PathError`] says what this machine lacks for it.
pub fn open(
    name: PathName,
    pool: &Arc<Pool>,
    waker: &Arc<Waker>,
) -> Result<Box<dyn Path>, PathError> {
    open_with(name, pool, waker, false)
}

/// Whether the path of that name can be opened here, once its memory can be registered.
///
/// # Errors
///
/// As [`open`].
pub fn probe(name: PathName) -> Result<(), PathError> {
    if name.segments() {
        probe_udp_segment()?;
    }
    match name {
        PathName::UringRegisteredZc => zero_copy_ring().map(drop),
        PathName::SendmmsgGso | PathName::Sendmmsg | PathName::Sendto => Ok(()),
    }
}

/// As [`open`], for trains of one socket: one that fails takes those behind it, of the same
/// submission, with it, which are answered ECANCELED. So nothing leaves out of order.
///
/// # Errors
///
/// As [`open`].
pub fn open_ordered(
    name: PathName,
    pool: &Arc<Pool>,
    waker: &Arc<Waker>,
) -> Result<Box<dyn Path>, PathError> {
    open_with(name, pool, waker, true)
}

fn open_with(
    name: PathName,
    pool: &Arc<Pool>,
    waker: &Arc<Waker>,
    is_ordered: bool,
) -> Result<Box<dyn Path>, PathError> {
    if name.segments() {
        probe_udp_segment()?;
    }
    Ok(match name {
        PathName::UringRegisteredZc => Box::new(UringRegisteredZc::open(
            Arc::clone(pool),
            Arc::clone(waker),
            is_ordered,
        )?),
        PathName::SendmmsgGso | PathName::Sendmmsg | PathName::Sendto => {
            let (pool, waker) = (Arc::clone(pool), Arc::clone(waker));
            Box::new(Batch::open(name, pool, waker, is_ordered))
        }
    })
}

/// Opens the best path available here, from `first` down, in the order of [`PathName::ALL`].
/// `demoted` is told of each that is not, and why.
pub fn open_best(
    first: PathName,
    pool: &Arc<Pool>,
    waker: &Arc<Waker>,
    mut demoted: impl FnMut(PathName, PathError),
) -> Box<dyn Path> {
    for name in PathName::ALL.into_iter().skip_while(|&name| name != first) {
        match open(name, pool, waker) {
            Ok(path) => return path,
            Err(error) => demoted(name, error),
        }
    }
    unreachable!("sendto needs nothing and is always available")
}

/// Asserts what every path demands of a train.
fn check(train: &Train, pool: &Pool) {
    let area_bytes = pool.area().bytes_total();
    let bytes = train.bytes as usize;
    assert!(
        bytes > 0 && bytes <= TRAIN_BYTES_MAX,
        "a train is 1 to 65,507 bytes"
    );
    assert!(train.stride > 0, "an image has a size");
    let packets = bytes.div_ceil(usize::from(train.stride));
    assert!(
        packets <= TRAIN_PACKETS_MAX,
        "a train is at most 64 packets"
    );
    let end = train.offset.checked_add(bytes);
    assert!(
        end.is_some_and(|end| end <= area_bytes),
        "a train lies within the area"
    );
    if let Some(headers) = train.headers {
        check_headers(train, headers, packets, pool);
    }
}

fn check_headers(train: &Train, headers: OwnHeaders, packets: usize, pool: &Pool) {
    let bytes = usize::from(headers.bytes);
    assert!(bytes > 0, "a header has a size");
    assert!(
        packets <= OWN_HEADERS_PACKETS_MAX,
        "a train with headers of its own is at most 8 packets"
    );
    let last_bytes = train.bytes as usize - (packets - 1) * usize::from(train.stride);
    assert!(bytes < last_bytes, "an image is longer than its header");
    let end = headers.offset.checked_add(packets * bytes);
    assert!(
        end.is_some_and(|end| end <= pool.area().bytes_total()),
        "headers lie within the area"
    );
    assert_eq!(
        pool.buffer_at(headers.offset),
        pool.buffer_at(train.offset),
        "headers and images are of one registered buffer"
    );
}

/// The pieces of a train with headers of its own: header and rest of the image by turns. How many
/// there are.
fn gather(
    train: &Train,
    headers: OwnHeaders,
    base: *mut u8,
    pieces: &mut [libc::iovec; 2 * OWN_HEADERS_PACKETS_MAX],
) -> usize {
    let packets = FramedPackets {
        offset: train.offset,
        bytes: train.bytes,
        stride: train.stride,
        heads_offset: headers.offset,
        head_bytes: headers.bytes,
        replaced_bytes: headers.bytes,
    };
    packets.gather(base, pieces)
}

#[cfg(test)]
mod own_headers_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
mod tests;
