//! Why there is no group, why the kernel does not replicate for it, or why there is no agent.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

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
        "attach the eBPF program to {device} (needs CAP_NET_ADMIN and Linux 6.6, tcx): {}",
        chain(source)
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

/// Why there is no agent, or why it has to end.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The control group is none.
    #[error(
        "{path} is no control group of version 2: {source}; mount one (mount -t cgroup2 none \
         /sys/fs/cgroup) and name a folder in it",
        path = path.display()
    )]
    Cgroup {
        /// What was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another agent serves it.
    #[error(
        "{path} is served by another agent: {holder} has the lock of it; end that process first",
        path = path.display()
    )]
    Served {
        /// What was named.
        path: PathBuf,
        /// Which process has the lock, in words.
        holder: String,
    },
    /// It cannot be locked.
    #[error(
        "lock {path}, so that one agent alone serves it: {source}",
        path = path.display()
    )]
    Lock {
        /// What was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The control group was removed.
    #[error("{path} was removed", path = .0.display())]
    Gone(PathBuf),
    /// The kernel lets a socket keep too little.
    #[error(
        "net.core.optmem_max is {found}, and lists of members take {OPTMEM_BYTES}; set it: sysctl \
         -w net.core.optmem_max={OPTMEM_BYTES}"
    )]
    Optmem {
        /// What it is.
        found: u64,
    },
    /// The kernel did not take a program.
    #[error(
        "load the eBPF programs of SO_SETSENDGRP (needs CAP_BPF, CAP_NET_ADMIN and Linux 6.6): {0}"
    )]
    Load(#[from] EbpfError),
    /// A program was not verified, or not attached.
    #[error(
        "attach {program} (needs CAP_BPF and CAP_NET_ADMIN): {}",
        chain(source)
    )]
    Attach {
        /// Which.
        program: &'static str,
        /// What the system said.
        source: ProgramError,
    },
    /// No device took it.
    #[error(
        "attach the eBPF program of SO_SETSENDGRP to {device}, as to every other device (needs \
         CAP_NET_ADMIN and Linux 6.6, tcx): {}",
        chain(source)
    )]
    Device {
        /// One of them.
        device: String,
        /// What the system said.
        source: ProgramError,
    },
    /// A map cannot be used.
    #[error("the maps of SO_SETSENDGRP: {0}")]
    Map(#[from] MapError),
    /// The routing tables cannot be read.
    #[error("rtnetlink: {0}")]
    Network(#[source] io::Error),
    /// The devices cannot be listed.
    #[error("list the network devices: {0}")]
    Devices(#[source] io::Error),
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

/// What the lists of a socket take of what it may keep: two of the most members that a socket may
/// have, at 48 bytes each, and what is about them.
pub(super) const OPTMEM_BYTES: u64 = 100 << 10;

/// An error and what is behind it: the library that loads programs says which call failed, and the
/// system's answer only when asked.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let behind = source.to_string();
        // Some say it themselves.
        if !text.contains(&behind) {
            text.push_str(": ");
            text.push_str(&behind);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use aya::sys::SyscallError;

    use super::*;

    #[test]
    fn a_refused_program_is_told_with_what_the_system_said() {
        let io_error = io::Error::from_raw_os_error(libc::EINVAL);
        let call = "bpf_mprog_attach";
        let error = KernelError::Attach {
            device: "eth0".to_owned(),
            source: SyscallError { call, io_error }.into(),
        };
        let text = error.to_string();
        assert!(text.contains("Linux 6.6"), "{text}");
        assert_eq!(text.matches("Invalid argument").count(), 1, "{text}");
    }
}
