//! What is counted of live channels by HLS, of all of them together.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was made, what is kept, and what was asked for.
#[derive(Debug, Default)]
pub(crate) struct HlsStats {
    /// Channels that are cut.
    pub(crate) channels: AtomicU64,
    /// Segments that were made whole, parts, and their bytes.
    pub(crate) segments: AtomicU64,
    pub(crate) parts: AtomicU64,
    pub(crate) made_bytes: AtomicU64,
    /// Bytes that are kept of them.
    pub(crate) kept_bytes: AtomicU64,
    /// Bytes of segments that are stored on a disk, those that were written there, and errors.
    pub(crate) stored_bytes: AtomicU64,
    pub(crate) stores: AtomicU64,
    pub(crate) stores_failed: AtomicU64,
    /// Bytes that were sent out of memory, also of films: no transfer counts these.
    pub(crate) sent_bytes: AtomicU64,
    /// Requests for playlists, and for segments and parts.
    pub(crate) playlists: AtomicU64,
    pub(crate) media: AtomicU64,
    /// Requests that wait for what comes next, and all that have.
    pub(crate) waiting: AtomicU64,
    pub(crate) waits: AtomicU64,
    /// Those that were not let wait, those for which nothing came in time, and those whose clients
    /// went before.
    pub(crate) waits_refused: AtomicU64,
    pub(crate) waits_late: AtomicU64,
    pub(crate) waits_left: AtomicU64,
}

/// One more.
pub(crate) fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// One less.
pub(crate) fn subtract(gauge: &AtomicU64) {
    gauge.fetch_sub(1, Ordering::Relaxed);
}
