//! Why the kernel does not replicate here.

use std::io;

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use thiserror::Error;

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
    /// Its maps cannot be mapped.
    #[error("map the memory of the eBPF program: {0}")]
    Mmap(#[source] io::Error),
}
