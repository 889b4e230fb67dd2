//! The server's settings, each with its default and its limit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onrush_sys::path::PathName;

use crate::downloads::Downloads;
use crate::faults::Faults;

/// Everything `onrush serve` can be told.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory whose files are served; nothing outside it ever is.
    pub media_root: PathBuf,
    /// Where RTSP listens. Port 0 takes any free port; see `Server::addresses`.
    pub rtsp_addresses: Vec<SocketAddr>,
    /// UDP ports for RTP (even) and RTCP (the odd one above), both ends included.
    pub rtp_ports: (u16, u16),
    /// How much of a stream is handed to the kernel together.
    pub burst: Duration,
    /// Memory for packet images.
    pub cache_bytes: usize,
    /// The processors that send, one engine each; empty means the highest-numbered allowed one.
    pub cores: Vec<usize>,
    /// What peers may ask for at the most.
    pub limits: Limits,
    /// The same files by HTTP and FTP.
    pub downloads: Downloads,
    /// The rate of a transport stream that carries no clock (no PCR), in bit/s.
    pub fallback_bitrate: u64,
    /// The best data path to try; worse ones follow where it is not available.
    pub path: PathName,
    /// Things to do wrong on purpose: none, unless a test plants them.
    pub faults: Faults,
}

/// The bounds on what peers and files can make the server hold. All are listed by `onrush doctor --limits`.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions that exist at once; one more gets 453 Not Enough Bandwidth.
    pub sessions_max: usize,
    /// RTSP connections open at once; one more is answered 503 and closed.
    pub connections_max: usize,
    /// RTSP connections open at once from one address.
    pub connections_per_address_max: usize,
    /// Bytes of one request's head.
    pub request_head_bytes_max: usize,
    /// Header lines of one request.
    pub request_headers_max: usize,
    /// Bytes of one request's body.
    pub request_body_bytes_max: usize,
    /// How long a begun request may take to arrive whole.
    pub request_time_max: Duration,
    /// How long a connection without a session may say nothing.
    pub idle_time_max: Duration,
    /// How long a session lives without a sign of its client (RFC 2326, section 12.37).
    pub session_timeout: Duration,
    /// Files that are open (indexed) at once.
    pub files_max: usize,
}

/// Open files of a session beside its RTSP connection: a socket each for RTP and RTCP.
const FILES_PER_SESSION: u64 = 2;

/// Open files that have nothing to do with clients.
const FILES_APART: u64 = 256;

impl Limits {
    /// These limits, lowered to what a process with so many open files can keep: to be refused in words is
    /// better than to find no descriptor half way.
    #[must_use]
    pub fn within_files(self, files: u64) -> Self {
        let most = |files: u64| usize::try_from(files).unwrap_or(usize::MAX).max(1);
        let files = files.saturating_sub(FILES_APART);
        let sessions_max = self.sessions_max.min(most(files / (FILES_PER_SESSION + 1)));
        let of_sessions = FILES_PER_SESSION.saturating_mul(sessions_max as u64);
        Self {
            sessions_max,
            connections_max: self
                .connections_max
                .min(most(files.saturating_sub(of_sessions))),
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions_max: 16_384,
            connections_max: 16_384,
            connections_per_address_max: 16_384,
            request_head_bytes_max: 16 * 1024,
            request_headers_max: 64,
            request_body_bytes_max: 16 * 1024,
            request_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(60),
            session_timeout: Duration::from_secs(60),
            files_max: 4096,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            media_root: PathBuf::from("media"),
            rtsp_addresses: vec![SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], 8554))],
            rtp_ports: (20_000, 59_999),
            burst: Duration::from_millis(20),
            cache_bytes: 1 << 30,
            cores: Vec::new(),
            limits: Limits::default(),
            downloads: Downloads::default(),
            fallback_bitrate: 4_000_000,
            path: PathName::UringRegisteredZc,
            faults: Faults::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_find_a_descriptor_or_are_refused() {
        let asked = Limits {
            sessions_max: 1000,
            connections_max: 5000,
            ..Limits::default()
        };
        let within = |files| {
            let limits = asked.within_files(files);
            (limits.sessions_max, limits.connections_max)
        };
        assert_eq!(within(1 << 20), (1000, 5000));
        assert_eq!(within(256 + 2000 + 5000), (1000, 5000));
        assert_eq!(within(256 + 2000 + 4999), (1000, 4999));
        assert_eq!(within(256 + 3000), (1000, 1000));
        assert_eq!(within(256 + 2999), (999, 1001));
        assert_eq!(within(256 + 768), (256, 256));
        assert_eq!(within(10), (1, 1));
        assert_eq!(within(u64::MAX), (1000, 5000));
    }
}
