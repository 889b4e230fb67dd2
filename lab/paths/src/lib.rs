//! The catalogue: all ways to move a file, cut into packets, over a socket.
//!
//! Halvorsen, Dalseng and Griwodz (*Assessment of Data Path Implementations for Download and
//! Streaming*) compared seventeen, ten with calls that Linux had and seven with calls they added to
//! it. Here are all of them by their names, the new calls carried out with what a stock kernel has
//! now, and what has come since. A [`Plan`] says which bytes make which packet; a [`Mover`] sends
//! any part of one over a connected socket, in order and whole, and counts each entry into the
//! kernel. The mechanisms differ, their contract is one. None falls back: one that is
//! not available here says why when it is opened. A mover can pass over the data on its way (see
//! [`Touch`]), where its path lets a program have it.
//!
//! The server's engine does not use movers: it mixes many sockets in one batch (see
//! [`onrush_sys::path::Path`]). Where both do the same thing, the mover uses the engine's path.

pub mod calls;
mod choice;
mod engine;
mod gather;
mod image_trains;
mod images;
pub mod kernel;
mod map;
mod mapped;
mod name;
mod notifications;
pub mod plan;
mod read;
mod ring;
mod ring_images;
mod ring_mapped;
mod sendfile;
mod touch;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use thiserror::Error;

use engine::Engine;
use image_trains::ImageTrains;
use images::Images;
use kernel::Calls;
use onrush_lock::memory::MemoryError;
use ring_images::RingImages;
use ring_mapped::RingMapped;
use touch::Touched;

pub use choice::{Choice, Needs, best};
pub use name::{Facts, Family, Name, Payload};
pub use plan::{Packet, Piece, Plan, PlanError};
pub use touch::{Touch, Toucher};

use onrush_sys::path::PathError;

/// A file and how it is cut: what a mover sends.
#[derive(Debug)]
pub struct Source {
    /// The file.
    pub file: File,
    /// Its packets.
    pub plan: Plan,
}

/// What a mover has done so far.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Entries into the kernel, those for making ready included. Each send begins with some that
    /// ask the socket what it is: one over TCP, three over UDP, four if the path sends no trains.
    pub crossings: u64,
    /// Of those, for making packet images.
    pub crossings_prepare: u64,
    /// Times it waited: for room in a socket, or for the kernel to let go of memory.
    pub waits: u64,
    /// Packets that the kernel took.
    pub packets: u64,
    /// Sends that carried them, one or several each.
    pub sends: u64,
    /// Of those, sends that the kernel reported to have made without copying.
    pub sends_zero_copy: u64,
    /// Sends that should not have been copied and were, as the kernel reported.
    pub sends_copied: u64,
    /// Sends of a path without copies that are copied on purpose: packets alone, or larger than the
    /// path MTU.
    pub sends_single: u64,
}

/// Bytes of a packet that goes through the kernel's pipe of 16 pages, at the most: it may begin
/// within a page, and what does not fit at once would be another packet.
pub const PACKET_BYTES_SPLICED_MAX: usize = 15 * 4096;

/// Why a path is not available here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The plan's packets have headers, and the path has no place for them; or the other way round.
    #[error(
        "{name} sends packets {} headers only; take another path for this plan",
        if *.has_headers { "without" } else { "with" }
    )]
    Headers {
        /// The path.
        name: Name,
        /// Whether the plan has headers.
        has_headers: bool,
    },
    /// The plan has a packet of more pages than the path moves at once.
    #[error(
        "{name} moves at most {PACKET_BYTES_SPLICED_MAX} bytes in one packet, the plan has one of \
         {bytes}; cut it smaller"
    )]
    Packet {
        /// The path.
        name: Name,
        /// Bytes of the largest packet.
        bytes: usize,
    },
    /// The path cannot touch data in this way.
    #[error("{name} cannot {touch}: {why}")]
    Touch {
        /// The path.
        name: Name,
        /// What was to be done to the data.
        touch: Touch,
        /// Why not.
        why: &'static str,
    },
    /// The ring or the memory for it cannot be had.
    #[error(transparent)]
    Path(#[from] PathError),
    /// There is no memory for packet images.
    #[error("no memory for packet images: {0}")]
    Memory(#[from] MemoryError),
    /// The system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Why not all was sent.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SendError {
    /// The socket is not of the kind that the path sends over.
    #[error("{name} does not send over {}; see its facts", if *.is_tcp { "TCP" } else { "UDP" })]
    Transport {
        /// The path.
        name: Name,
        /// What the socket is.
        is_tcp: bool,
    },
    /// The kernel refused, or the receiver is gone.
    #[error("after {packets_sent} packets: {source}")]
    Refused {
        /// Packets that were taken before.
        packets_sent: u64,
        /// What the system said; `UnexpectedEof` if the file is shorter than the plan.
        source: io::Error,
    },
}

impl SendError {
    /// Whether the receiver is gone, rather than something broken here.
    #[must_use]
    pub fn is_receiver_gone(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
        matches!(self, Self::Refused { source, .. }
            if matches!(source.kind(), BrokenPipe | ConnectionRefused | ConnectionReset))
    }
}

/// What is under way in a [`Mechanism`].
struct Job<'a> {
    source: &'a Source,
    socket: RawFd,
    is_tcp: bool,
    /// What is left to send.
    packets: Range<usize>,
    /// Packets larger than this do not fit the path MTU and are sent one by one; 0 over TCP.
    whole_bytes_max: usize,
    calls: &'a mut Calls,
    touched: &'a mut Touched,
}

/// How packets are moved: one contract. A path that keeps nothing is a function.
///
/// `send` sends all that the job has left, in order. Each time the kernel has taken packets it says
/// so by `Job::sent`; what it returns as an error comes after those. When it returns, the kernel
/// needs none of the memory that it used, or has references to it of its own. A signal, or a socket
/// that is full for a while, is no error.
trait Mechanism {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()>;

    /// What all sends of the same packets share, made before them or by the first.
    fn images(&mut self) -> Option<&mut Images> {
        None
    }
}

impl<F: FnMut(&mut Job<'_>) -> io::Result<()>> Mechanism for F {
    fn send(&mut self, job: &mut Job<'_>) -> io::Result<()> {
        self(job)
    }
}

/// A path of the catalogue with a file to send. Used by the thread that opened it.
pub struct Mover {
    name: Name,
    source: Arc<Source>,
    calls: Calls,
    touched: Touched,
    mechanism: Box<dyn Mechanism>,
}

impl Mover {
    /// Opens the path of that name for a file. Paths that send packet images get memory for up to
    /// `image_bytes_max` of them, a window of the file if that is not all; it is the cache of such
    /// a path.
    ///
    /// # Errors
    ///
    /// If the path is not available here, with the reason.
    pub fn open(
        name: Name,
        source: &Arc<Source>,
        image_bytes_max: usize,
    ) -> Result<Self, OpenError> {
        Self::open_touching(name, source, image_bytes_max, Touch::None)
    }

    /// The same, and each packet's payload is touched once on its way. Packet images that are
    /// changed are made anew by each send. Who touches a file that is mapped reads it, so it must
    /// neither become shorter (which raises SIGBUS) nor be written meanwhile.
    ///
    /// # Errors
    ///
    /// If the path is not available here, or cannot touch data so ([`Name::cannot_touch`]).
    pub fn open_touching(
        name: Name,
        source: &Arc<Source>,
        image_bytes_max: usize,
        touch: Touch,
    ) -> Result<Self, OpenError> {
        let shared = "its plan has packets that share bytes of the file";
        let shares = touch.changes() && !source.plan.is_apart();
        let why = name
            .cannot_touch(touch)
            .or_else(|| shares.then_some(shared));
        if let Some(why) = why {
            return Err(OpenError::Touch { name, touch, why });
        }
        let image_bytes_max = match touch.changes() {
            true => image_bytes_max.min(touch::WINDOW_BYTES),
            false => image_bytes_max,
        };
        let has_headers = source.plan.header_bytes() > 0;
        if !name.takes_headers(has_headers) {
            return Err(OpenError::Headers { name, has_headers });
        }
        let facts = name.facts();
        let is_spliced =
            facts.payload == Payload::Referenced && !facts.is_image && name.takes_udp();
        let bytes = source.plan.packet_bytes_max();
        if is_spliced && bytes > PACKET_BYTES_SPLICED_MAX {
            return Err(OpenError::Packet { name, bytes });
        }
        Ok(Self {
            name,
            source: Arc::clone(source),
            calls: Calls::default(),
            touched: Touched::new(touch),
            mechanism: open(name, &source.plan, image_bytes_max)?,
        })
    }

    /// Sends these packets over a connected socket, in order, and returns when the kernel has them
    /// all and needs no memory of ours. A socket that does not block is waited for. Options that
    /// the path sets on the socket (UDP_SEGMENT, SO_ZEROCOPY) stay.
    ///
    /// # Errors
    ///
    /// If the socket is of the wrong kind, the file too short, or the receiver gone; see
    /// [`SendError`]. A TCP receiver that is gone raises SIGPIPE on some paths, which programs in
    /// Rust ignore.
    ///
    /// # Panics
    ///
    /// If the plan has fewer packets.
    pub fn send(&mut self, socket: &impl AsFd, packets: Range<usize>) -> Result<(), SendError> {
        let socket = socket.as_fd().as_raw_fd();
        let is_tcp = self.calls.is_stream(socket);
        let name = self.name;
        let takes = if is_tcp {
            Name::takes_tcp
        } else {
            Name::takes_udp
        };
        if !takes(name) {
            return Err(SendError::Transport { name, is_tcp });
        }
        assert!(
            packets.end <= self.source.plan.packets(),
            "packets of the plan"
        );
        if packets.is_empty() {
            return Ok(());
        }
        let before = self.calls.counters.packets;
        self.touched.begin(&packets);
        if self.touched.touch().changes() {
            self.forget();
        }
        if !is_tcp && !name.facts().is_train && self.calls.is_segmented(socket) {
            // A path of trains had the socket before: what it set would cut this one's packets.
            let uncut = self.calls.segment(socket, 0);
            uncut.map_err(|source| SendError::Refused {
                packets_sent: 0,
                source,
            })?;
        }
        let mut job = Job {
            source: &self.source,
            socket,
            is_tcp,
            packets,
            whole_bytes_max: match is_tcp {
                true => 0,
                false => self.calls.whole_bytes_max(socket),
            },
            calls: &mut self.calls,
            touched: &mut self.touched,
        };
        let sent = self.mechanism.send(&mut job);
        let packets_sent = self.calls.counters.packets - before;
        sent.map_err(|source| SendError::Refused {
            packets_sent,
            source,
        })
    }

    /// Makes ready what all sends of these packets share: packet images, unless each send changes
    /// them. Other paths have nothing to do.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn prepare(&mut self, packets: Range<usize>) -> io::Result<()> {
        if self.touched.touch().changes() {
            return Ok(());
        }
        let Some(images) = self.mechanism.images() else {
            return Ok(());
        };
        let mut job = Job {
            source: &self.source,
            socket: -1,
            is_tcp: false,
            packets,
            whole_bytes_max: 0,
            calls: &mut self.calls,
            touched: &mut self.touched,
        };
        images.hold(&mut job)
    }

    /// Forgets what was made ready.
    pub fn forget(&mut self) {
        if let Some(images) = self.mechanism.images() {
            images.forget();
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// CRC-32 of each payload of the last send, in order; none unless the touch is
    /// [`Touch::Checksum`].
    #[must_use]
    pub fn checksums(&self) -> &[u32] {
        self.touched.checksums()
    }

    /// What it has done so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.calls.counters
    }
}

impl fmt::Debug for Mover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut mover = f.debug_struct("Mover");
        mover.field("name", &self.name).field("calls", &self.calls);
        mover.finish_non_exhaustive()
    }
}

impl Counters {
    /// What was done since `earlier`, a copy of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            crossings: self.crossings - earlier.crossings,
            crossings_prepare: self.crossings_prepare - earlier.crossings_prepare,
            waits: self.waits - earlier.waits,
            packets: self.packets - earlier.packets,
            sends: self.sends - earlier.sends,
            sends_zero_copy: self.sends_zero_copy - earlier.sends_zero_copy,
            sends_copied: self.sends_copied - earlier.sends_copied,
            sends_single: self.sends_single - earlier.sends_single,
        }
    }
}

impl<'a> Job<'a> {
    /// The next packet, until none is left.
    fn next(&self) -> Option<Packet<'a>> {
        let number = self.packets.clone().next()?;
        Some(self.source.plan.packet(number))
    }

    /// The kernel took the next `count` packets by one send.
    fn sent(&mut self, count: usize) {
        self.packets.start += count;
        self.calls.counters.packets += count as u64;
        self.calls.counters.sends += 1;
    }

    /// How many of these packets, from the first, can leave as a train. Only packets as large as
    /// what the socket was told to cut begin one of several, and only if they fit the path MTU.
    fn train(&self, packets: Range<usize>, packets_max: usize) -> usize {
        let plan = &self.source.plan;
        let bytes = plan.packet_bytes(packets.start);
        if bytes < plan.packet_bytes_max() || bytes > self.whole_bytes_max {
            return 1;
        }
        plan.train(packets, packets_max)
    }

    /// Tells the socket to cut what it is given into the plan's packets. Packets that do not fit
    /// the path MTU are left whole, for the kernel to fragment: it refuses to cut a train into such
    /// (EMSGSIZE).
    fn segment(&mut self) -> io::Result<()> {
        self.cut(true)
    }

    /// The same for a path of trains; for others that it cuts nothing.
    fn cut(&mut self, is_train: bool) -> io::Result<()> {
        let stride = self.source.plan.packet_bytes_max();
        let is_cut = is_train && stride <= self.whole_bytes_max;
        self.calls
            .segment(self.socket, if is_cut { stride } else { 0 })
    }
}

fn open(name: Name, plan: &Plan, image_bytes_max: usize) -> Result<Box<dyn Mechanism>, OpenError> {
    if name.facts().is_train || name.engine().is_some_and(|path| path.segments()) {
        onrush_sys::path::probe_udp_segment()?;
    }
    let buffer = || vec![0; plan.packet_bytes_max()];
    let images = |is_huge| Images::in_memory(plan, image_bytes_max, is_huge);
    Ok(match name {
        Name::ReadWrite => Box::new(read::read_write(buffer())),
        Name::ReadSendRtp => Box::new(read::read_send_rtp(buffer())),
        Name::ReadWritev => Box::new(read::read_writev(buffer())),
        Name::MmapSend => Box::new(mapped::mmap_send),
        Name::MmapMsend => Box::new(mapped::mmap_msend),
        Name::MmapSendRtp => Box::new(mapped::mmap_send_rtp),
        Name::MmapWritev => Box::new(mapped::mmap_writev),
        Name::MmapRtpmsend => Box::new(mapped::mmap_rtpmsend),
        Name::MmapSendMsend => Box::new(mapped::MmapSendMsend::open()?),
        Name::Gso => Box::new(mapped::gso),
        Name::SendfileTcp => Box::new(sendfile::sendfile_tcp),
        Name::SendfileUdp => Box::new(sendfile::sendfile_udp),
        Name::RtpSendfile => Box::new(sendfile::rtp_sendfile),
        Name::Rtpsendfile => Box::new(sendfile::rtpsendfile),
        Name::Kmsend | Name::Krtpmsend => Box::new(RingMapped::open(true)?),
        Name::Uring => Box::new(RingMapped::open(false)?),
        Name::GsoSendfile => Box::new(ImageTrains(Images::in_file(plan, image_bytes_max)?)),
        Name::GsoZerocopy => Box::new(ImageTrains(images(true)?)),
        Name::UringZc | Name::UringRegistered => Box::new(RingImages::open(
            images(false)?,
            name != Name::UringZc,
            false,
        )?),
        Name::UringSqpoll => Box::new(RingImages::open(images(true)?, true, true)?),
        Name::UringVectoredZc => Box::new(Engine::open_vectored(plan, image_bytes_max)?),
        Name::Ksendfile
        | Name::Krtpsendfile
        | Name::Sendto
        | Name::Sendmmsg
        | Name::SendmmsgGso => {
            let path = name.engine().expect("one of those above");
            Box::new(Engine::open(path, images(true)?)?)
        }
    })
}

fn system(what: &'static str) -> impl Fn(io::Error) -> OpenError {
    move |source| OpenError::System { what, source }
}

#[cfg(test)]
mod tests;
