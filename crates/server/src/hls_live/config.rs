//! What can be said of live channels by HLS.

use std::path::PathBuf;
use std::time::Duration;

/// The settings of live channels by HLS.
#[derive(Clone, Debug)]
pub struct LiveHlsConfig {
    /// How far back playlists reach, 60 s by default: longer lets viewers go further back, and
    /// takes as much more memory.
    pub hls_window: Duration,
    /// Bytes of segments that are kept of a channel, 128 MiB by default. Playlists list what has
    /// half of them, if that is less than the window: the other half is what was listed.
    pub hls_bytes_max: usize,
    /// Where segments are kept that memory is too small for: by default nowhere, and then they go.
    /// With a directory, which is made if there is none, playlists reach back as far as
    /// [`hls_window`](Self::hls_window) says. What is there goes with the server.
    pub hls_store: Option<PathBuf>,
    /// Bytes of segments of a channel on that disk, 8 GiB by default. Playlists list half of what
    /// is kept, there and in memory, if that is less than the window.
    pub hls_stored_max: u64,
    /// How long a channel is still cut that nobody asks for, 30 s by default.
    pub hls_idle_time_max: Duration,
    /// Whether channels are cut before anybody asks, and always: then there is something to go
    /// back to. Not by default.
    pub is_always: bool,
    /// Requests for one channel that wait for what comes next, 16,384 by default; one more is
    /// answered 503. A viewer of pictures and sound has two, by HTTP/2 on one connection. One
    /// address has as large a part of them, of all channels, as of the connections of downloads: a
    /// quarter by default.
    pub hls_waiting_max: usize,
}

impl Default for LiveHlsConfig {
    fn default() -> Self {
        Self {
            hls_window: Duration::from_secs(60),
            hls_bytes_max: 128 << 20,
            hls_store: None,
            hls_stored_max: 8 << 30,
            hls_idle_time_max: Duration::from_secs(30),
            is_always: false,
            hls_waiting_max: 16_384,
        }
    }
}
