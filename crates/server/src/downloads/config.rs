//! The settings of downloads, each with its default and its limit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onrush_wire::http::{LogFormat, Network};
use onrush_wire::pace::schedule::Schedule;

use crate::hls_live::config::LiveHlsConfig;
use crate::listening::PortRange;
use crate::transfer::LEFT_TO_OTHERS;

/// What `onrush serve` can be told about downloads.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// Where HTTP listens; nowhere, if there is none.
    pub http_addresses: Vec<SocketAddr>,
    /// Where HTTP over TLS listens; nowhere, if there is none.
    pub https_addresses: Vec<SocketAddr>,
    /// Where FTP listens; nowhere, if there is none.
    pub ftp_addresses: Vec<SocketAddr>,
    /// Proxies that are believed when they say whose a request of HTTP is, and by which scheme it
    /// came; by default none are.
    pub trusted_proxies: Vec<Network>,
    /// Ports of FTP's passive data connections, both ends included.
    pub ftp_ports: PortRange,
    /// Where a line goes for each request.
    pub access_log: Option<AccessLog>,
    /// Bytes a second that all downloads together may take.
    pub rate_max: Option<u64>,
    /// Bytes a second that those from one address (of IPv6 from its /64) may take.
    pub client_rate_max: Option<u64>,
    /// How each download is cut in time.
    pub schedule: Schedule,
    /// What adaptive downloads leave of their thread's processor to others.
    pub left_to_others: f64,
    /// Whether files are taken, and which; by default none are.
    pub uploads: Option<UploadsConfig>,
    /// Live channels by HLS.
    pub hls: LiveHlsConfig,
    /// What peers may take at the most.
    pub limits: DownloadLimits,
}

/// An access log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessLog {
    /// Where to.
    pub target: LogTarget,
    /// How.
    pub format: LogFormat,
}

/// Where an access log goes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogTarget {
    /// Onto the end of this file.
    File(PathBuf),
    /// Standard output.
    Stdout,
}

/// The bounds on downloads. All are listed by `onrush doctor --limits`.
#[derive(Clone, Copy, Debug)]
pub struct DownloadLimits {
    /// Connections of HTTP and FTP at once; one more is told 503 or 421 and closed.
    pub download_connections_max: usize,
    /// Those from one address (of IPv6 from its /64): by default a quarter of all, so that nobody
    /// keeps all others out. An address has the same part of the memory of answers, of requests
    /// that wait for what comes next of a channel, and of FTP's data ports, if that is more than a
    /// quarter. Raise it for clients behind one NAT, and for load tests; trusted proxies have no
    /// such bound.
    pub download_connections_per_address_max: usize,
    /// Files that are kept open though nobody reads them just now.
    pub download_files_max: usize,
    /// Bytes of computed segments that are kept in memory for whoever asks next, 256 MiB by
    /// default; 0 keeps none. It is memory of the process like any other, which the kernel cannot
    /// take back; what nobody uses for a minute goes. What many ask for of live channels has an
    /// eighth of it besides.
    pub download_segments_bytes_max: u64,
    /// Requests on one HTTP connection; the last one closes it.
    pub download_requests_max: usize,
    /// Requests at once on one connection of HTTP/2; others wait for one to be answered.
    pub download_streams_max: u32,
    /// How long a request's head, or a command, may take to arrive once it has begun.
    pub download_head_time_max: Duration,
    /// How long a connection may say nothing between two requests; in FTP, five times that.
    pub download_idle_time_max: Duration,
    /// How long a client may take nothing of what it asked for.
    pub download_stall_time_max: Duration,
}

/// How files are taken by HTTP and FTP, of users who have the right to that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UploadsConfig {
    /// Bytes of one file, 64 GiB by default; a longer one is refused (413, 552).
    pub upload_bytes_max: u64,
    /// Files that are taken at once, 16 by default; one more is told to come later (503, 450).
    pub upload_files_max: usize,
    /// Bytes of the disk that are left free, 1 GiB by default (507, 452).
    pub free_bytes_min: u64,
    /// How long what was broken off can be gone on with, a day by default; then it is removed.
    pub kept_time_max: Duration,
    /// What must be on the disk before a client hears that its file is there.
    pub sync: UploadSync,
}

/// What must be on the disk before a client hears that its file is there.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum UploadSync {
    /// Nothing: if the machine loses power soon after, the file may be gone, or empty.
    Off,
    /// The file's bytes, and then its name: it is there whatever happens. Costs the wait for the
    /// disk at the end of each file.
    #[default]
    All,
}

impl Default for UploadsConfig {
    fn default() -> Self {
        Self {
            upload_bytes_max: 64 << 30,
            upload_files_max: 16,
            free_bytes_min: 1 << 30,
            kept_time_max: Duration::from_secs(86_400),
            sync: UploadSync::All,
        }
    }
}

impl Default for Downloads {
    fn default() -> Self {
        Self {
            http_addresses: Vec::new(),
            https_addresses: Vec::new(),
            ftp_addresses: Vec::new(),
            trusted_proxies: Vec::new(),
            ftp_ports: PortRange {
                first: 60_000,
                last: 60_999,
            },
            access_log: None,
            rate_max: None,
            client_rate_max: None,
            schedule: Schedule::default(),
            left_to_others: LEFT_TO_OTHERS,
            uploads: None,
            hls: LiveHlsConfig::default(),
            limits: DownloadLimits::default(),
        }
    }
}

impl Default for DownloadLimits {
    fn default() -> Self {
        const CONNECTIONS_MAX: usize = 16_384;
        Self {
            download_connections_max: CONNECTIONS_MAX,
            download_connections_per_address_max: CONNECTIONS_MAX / 4,
            download_files_max: 1024,
            download_segments_bytes_max: 256 << 20,
            download_requests_max: 10_000,
            download_streams_max: 100,
            download_head_time_max: Duration::from_secs(10),
            download_idle_time_max: Duration::from_secs(60),
            download_stall_time_max: Duration::from_secs(60),
        }
    }
}
