//! What this kernel, this machine and this user allow.
//!
//! Ask, then try: a version string promises nothing, so every feature is used once, on loopback, on
//! a few kilobytes. Nothing here decides or advises; [`Facts`] are for those who do.

mod disk;
mod host;
mod memory;
pub mod network;
mod ring;
mod udp;

use std::io;
use std::path::Path;

use thiserror::Error;

pub use disk::direct_read;
pub use host::{Capability, Host};
pub use memory::{Holder, Memory, TRIAL_BYTES_MAX};
pub use network::{Interface, addresses, all_addresses, interfaces};
pub use ring::{Ring, RingTrain};
pub use udp::Udp;

use crate::kernel_tls::{Cipher, ciphers};

/// Everything that was asked and tried.
#[derive(Debug)]
pub struct Facts {
    /// The kernel, the processors, the user's rights.
    pub host: Host,
    /// What an io_uring can do here, or why there is none.
    pub ring: Result<Ring, Refused>,
    /// What a UDP socket can do here.
    pub udp: Udp,
    /// The ciphers by which the kernel can encrypt what leaves on a TCP connection (kTLS).
    pub kernel_tls: Result<Vec<Cipher>, Refused>,
    /// How much memory can be locked, and in pages of what size.
    pub memory: Memory,
    /// The network interfaces and what they do in hardware.
    pub interfaces: Result<Vec<Interface>, Refused>,
    /// Whether files under the directory that was named can be read with `O_DIRECT`.
    pub direct_read: Option<Result<(), Refused>>,
}

impl Facts {
    /// Asks and tries everything, in well under a second; `media` is where `O_DIRECT` is tried.
    #[must_use]
    pub fn gather(media: Option<&Path>) -> Self {
        Self {
            host: Host::probe(),
            ring: Ring::probe(),
            udp: Udp::probe(),
            kernel_tls: ciphers().map_err(|refused| Refused::new(refused.call, refused.source)),
            memory: Memory::probe(),
            interfaces: interfaces(),
            direct_read: media.and_then(direct_read),
        }
    }
}

/// A call that did not do what was tried.
#[derive(Debug, Error)]
#[error("{call}: {source}")]
pub struct Refused {
    /// The call, as its man page names it.
    pub call: &'static str,
    /// What the kernel answered, or what happened instead.
    pub source: io::Error,
}

impl Refused {
    fn new(call: &'static str, source: io::Error) -> Self {
        Self { call, source }
    }

    /// The refusal that `errno` holds at this moment.
    fn last(call: &'static str) -> Self {
        Self::new(call, io::Error::last_os_error())
    }

    fn other(call: &'static str, what: impl Into<String>) -> Self {
        Self::new(call, io::Error::other(what.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathering_answers_every_question() {
        let facts = Facts::gather(Some(Path::new(env!("CARGO_MANIFEST_DIR"))));
        assert!(!facts.host.cores_allowed.is_empty());
        assert!(
            facts
                .host
                .kernel_release
                .starts_with(|c: char| c.is_ascii_digit())
        );
        assert!(
            facts.direct_read.is_some(),
            "the crate's directory holds files"
        );
    }

    #[test]
    fn a_refusal_names_the_call_and_what_the_system_said() {
        let refused = Refused::new("mlock", io::Error::from_raw_os_error(libc::ENOMEM));
        let text = refused.to_string();
        assert!(text.starts_with("mlock: Cannot allocate memory"), "{text}");
    }
}
