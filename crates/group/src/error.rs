//! Why there is no group, or why the kernel does not replicate for it.

use std::io;
use std::net::SocketAddr;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use onrush_lock::CacheError;
use onrush_lock::memory::MemoryError;
use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use thiserror::Error;

use super::uring::UringError;
use super::{MEMBERS_MAX, STREAMS_MAX};

/// Why no program replicates here.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum KernelError {
    /// The routing tables cannot be read.
    #[error("rtnetlink: {0}")]
    Network(#[source] io::Error),
    /// The kernel did not take the program.
    #[error("load the eBPF program (needs CAP_BPF, CAP_NET_ADMIN and Linux 5.17): {0}")]
    Load(#[from] EbpfError),
    /// The program was not verified, or not attached.
    #[error(
        "attach the eBPF program to {device} (needs CAP_NET_ADMIN and Linux 6.6, tcx): {source}"
    )]
    Attach {
        /// The device.
        device: String,
        /// What the system said.
        source: ProgramError,
    },
    /// Its maps cannot be used.
    #[error("the maps of the eBPF program: {0}")]
    Map(#[from] MapError),
    /// The name that tells others that a group lives was not given.
    #[error("bind an abstract address of unix(7) for the group: {0}")]
    LifeSign(#[source] io::Error),
    /// Its maps cannot be mapped.
    #[error("map the memory of the eBPF program: {0}")]
    Mmap(#[source] io::Error),
}

/// Why there is no such group, or why it cannot send that.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The socket cannot be used.
    #[error("cannot set up the group's socket: {0}")]
    Socket(#[source] io::Error),
    /// The kernel does not cut trains.
    #[error("this kernel has no UDP_SEGMENT (Linux 4.18): {0}; ask for the way loop")]
    UdpSegment(#[source] io::Error),
    /// No ring sends here.
    #[error("{0}")]
    Uring(#[source] UringError),
    /// No program replicates here.
    #[error("{0}")]
    Kernel(#[source] KernelError),
    /// There is no memory for the area.
    #[error("the group's area: {0}")]
    Area(#[from] MemoryError),
    /// The memory to send from cannot be registered.
    #[error("the group's cache of registrations: {0}")]
    Cache(#[from] CacheError),
    /// More members than the group was opened for.
    #[error("the group has room for {members_max} members; open it with a larger members_max")]
    MembersMax {
        /// How many it may have.
        members_max: usize,
    },
    /// More members asked for than any group may have.
    #[error("a group has at most {MEMBERS_MAX} members; {members_max} were asked for")]
    OptionMembersMax {
        /// How many were asked for.
        members_max: usize,
    },
    /// The socket cannot reach addresses of that kind.
    #[error(
        "{address} cannot be reached from a socket bound to {local}; bind it to the other family"
    )]
    Family {
        /// The member.
        address: SocketAddr,
        /// The socket.
        local: SocketAddr,
    },
    /// No datagram or train is that long.
    #[error(
        "{bytes} bytes in packets of {stride} are no train: at most {TRAIN_BYTES_MAX} bytes in at \
         most {TRAIN_PACKETS_MAX} packets"
    )]
    Train {
        /// Bytes in all.
        bytes: usize,
        /// Bytes of a packet.
        stride: usize,
    },
    /// The area does not reach that far.
    #[error(
        "bytes {start} to {end} lie outside the area of {area_bytes}; open the group with a larger \
         one"
    )]
    Outside {
        /// The first byte asked for.
        start: usize,
        /// Behind the last.
        end: usize,
        /// The area's size.
        area_bytes: usize,
    },
}

/// Why there is no group of streams, or why it cannot do that.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StreamError {
    /// No ring sends here.
    #[error("{0}")]
    Uring(#[from] UringError),
    /// There is no memory for the area.
    #[error("the memory of a group of streams: {0}")]
    Area(#[from] MemoryError),
    /// More connections than the group was opened for.
    #[error(
        "the group has room for {streams_max} streams (any has for {STREAMS_MAX}); open it with a \
         larger streams_max"
    )]
    StreamsMax {
        /// How many it may have.
        streams_max: usize,
    },
    /// The area does not reach that far, or there is nothing to send.
    #[error("bytes {start} to {end} are no part of the area of {area_bytes}")]
    Outside {
        /// The first byte asked for.
        start: usize,
        /// Behind the last.
        end: usize,
        /// The area's size.
        area_bytes: usize,
    },
    /// Somebody has not acknowledged what lies there.
    #[error(
        "bytes {start} to {end} are still being sent; write elsewhere, or poll until they are not"
    )]
    InUse {
        /// The first byte asked for.
        start: usize,
        /// Behind the last.
        end: usize,
    },
}

impl From<KernelError> for GroupError {
    fn from(error: KernelError) -> Self {
        Self::Kernel(error)
    }
}
