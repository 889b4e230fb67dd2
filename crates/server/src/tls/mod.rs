//! TLS 1.2 and 1.3 for RTSP and HTTP, by rustls.
//!
//! rustls carries out the handshake; from then on each direction has a key of its own
//! (`record`), so that an engine can send on a connection that control reads. Whoever accepts
//! connections asks `Tls::accept` for one, and gets a stream of bytes (`stream`). Of HTTP the key
//! to send with may go to the kernel (`kernel`).
//!
//! It is one for all threads. What is shared is the configuration, which a thread reads anew when
//! its files have changed, and the count of handshakes.

use std::path::Path;

mod acceptor;
pub mod certificates;
pub mod config;
mod handshake;
mod kernel;
pub(crate) mod record;
mod stats;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

pub use self::acceptor::TLS_RECKONED_MAX;
pub(crate) use self::acceptor::Tls;
pub use self::certificates::{CertificateError, PEM_BYTES_MAX, TLS_CERTIFICATES_MAX};
pub use self::config::{CertificateFiles, KernelTlsUse, SrtpKeys, SrtpOffer, TlsConfig, TlsLimits};
pub use self::kernel::{KERNEL_TLS_BODY_BYTES_MIN, KernelTlsState};
pub(crate) use self::stats::TlsStats;

/// Whether the files of these settings can be shown: they are read, and none is made.
///
/// # Errors
///
/// If one cannot be read, is not what it should be, or does not fit to another.
pub fn check(config: &TlsConfig) -> Result<(), CertificateError> {
    certificates::server_config(config, None).map(drop)
}

/// Makes the pair that a server with these settings signs itself in its state directory, if it is
/// to have one and there is none: the server finds it there, and needs not write it.
///
/// # Errors
///
/// If it cannot be made or kept there.
pub fn prepare(config: &TlsConfig, state: &Path) -> Result<(), CertificateError> {
    match &config.self_signed {
        Some(names) => certificates::self_signed(state, names).map(drop),
        None => Ok(()),
    }
}
