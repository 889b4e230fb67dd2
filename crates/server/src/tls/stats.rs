//! What is counted of TLS.

use std::sync::atomic::AtomicU64;

/// What became of handshakes, and of the connections that they led to.
#[derive(Debug, Default)]
pub(crate) struct TlsStats {
    pub(crate) handshakes: AtomicU64,
    /// Those that failed, for whatever reason.
    pub(crate) failed: AtomicU64,
    /// Connections that were closed because too many were at it.
    pub(crate) refused: AtomicU64,
    /// Handshakes that are under way.
    pub(crate) in_progress: AtomicU64,
    /// Connections whose key to send with was given to the kernel.
    pub(crate) kernel: AtomicU64,
    /// Those whose key it did not take.
    pub(crate) kernel_refused: AtomicU64,
    /// Bytes of files that the kernel has encrypted while it sent them.
    pub(crate) kernel_bytes: AtomicU64,
}
