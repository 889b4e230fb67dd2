//! The server's settings, each with its default and its limit.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use onrush_sys::path::PathName;

use crate::channels::config::ChannelsConfig;
pub use crate::cluster::ClusterConfig;
use crate::downloads::config::Downloads;
pub use crate::drain::DrainConfig;
use crate::engine::numbering::RtpHeaders;
use crate::experiments::Experiments;
pub use crate::listening::PortRange;
use crate::multicast::MulticastConfig;
use crate::remote::RemoteFiles;
use crate::tls::config::TlsConfig;
use crate::users::UsersConfig;
use crate::watching::SessionHook;

/// Everything a server can be told. [`Config::default`] serves files beneath `media` to everybody
/// who can reach port 8554, and nothing else.
#[derive(Clone, Debug)]
pub struct Config {
    /// The directory whose files are served: `media` by default. Nothing outside it ever is, also
    /// by symbolic links; everything inside it is, to everybody unless there are
    /// [`Config::users`].
    pub media_root: PathBuf,
    /// Where the films lie instead, if they lie in an object store: by default nowhere. Then
    /// [`Config::media_root`] is not looked at, and no files are taken.
    pub remote: Option<Arc<dyn RemoteFiles>>,
    /// Several libraries in place of both, at most
    /// [`LIBRARIES_MAX`](crate::library::LIBRARIES_MAX), each below its name: by default none. No
    /// files are taken then, since nothing says into which.
    pub libraries: Vec<LibraryConfig>,
    /// Where RTSP listens: by default at port 8554 of every address, IPv4 and IPv6. Port 0 takes
    /// any free port; see [`Server::addresses`](crate::server::Server::addresses). Name single
    /// addresses where not every network of the machine is to be served. Without any, a server
    /// does not start.
    pub rtsp_addresses: Vec<SocketAddr>,
    /// Where RTSP over TLS listens: by default nowhere. Without [`Config::tls`] a server with any
    /// does not start.
    pub rtsps_addresses: Vec<SocketAddr>,
    /// What RTSP and HTTP over TLS show themselves with: by default nothing.
    pub tls: TlsConfig,
    /// UDP ports for RTP (even) and RTCP (the odd one above), both ends included: 20,000 to 59,999
    /// by default. Make it what a firewall lets in; each pair takes 128 sessions, and a range that
    /// is used up refuses the next one.
    pub rtp_ports: PortRange,
    /// How much of a stream is handed to the kernel together: 20 ms by default. Longer costs less
    /// processor time for each packet, and shallow buffers on the way drop the end of a long
    /// burst; shorten it where receivers report loss, lengthen it where the processor is full and
    /// the network is known.
    pub burst: Duration,
    /// Whose RTP headers packets have: [`RtpHeaders::Auto`] unless there is a reason. With `Own`
    /// each session has an SSRC and random numbers of its own from the start, at up to 1.3 times
    /// the price of a train; with `Shared` players that seek receive nothing afterwards.
    pub rtp_headers: RtpHeaders,
    /// How busy a processor that sends may be with the sessions that are taken, of 1000: 900 by
    /// default. Above that, what else the machine does makes packets late. Lower it where others
    /// need the processor;
    /// [`LOAD_UNLIMITED`](crate::engine::admission::LOAD_UNLIMITED) refuses nobody and leaves
    /// nobody out, and then all are late together.
    pub load_max_permille: u64,
    /// Memory for packet images: 1 GiB by default, at least 1 MiB. It is taken at the start and
    /// locked as far as the account may, so the machine has it no more for anything else. Size it
    /// to the files that are watched at one time; what does not fit is read from the disk again,
    /// and where all of it is in use new sessions are refused.
    pub cache_bytes: usize,
    /// The processors that send, one engine each; empty, which is the default, means the
    /// highest-numbered allowed one. An engine is pinned and wakes 200 times a second: name
    /// processors that nothing else is pinned to, and leave one for control and the disk.
    pub cores: Vec<usize>,
    /// Who may do what: by default everybody may play and download.
    pub users: UsersConfig,
    /// Where what is known of files outlives the server: by default nowhere. With a directory,
    /// which is made if there is none, a film that was indexed once is not read again after a
    /// restart. Servers may share it.
    pub state: Option<PathBuf>,
    /// Of which cluster it is a node: by default of none. The server alone hears of nobody; see
    /// [`Server::cluster_member`](crate::server::Server::cluster_member).
    pub cluster: Option<ClusterConfig>,
    /// What becomes of clients when the server drains: by default they play to their end.
    pub drain: DrainConfig,
    /// What peers may ask for at the most.
    pub limits: Limits,
    /// The same files by HTTP and FTP: by default not.
    pub downloads: Downloads,
    /// Live channels beside the files: by default none. Each has a thread, and takes what comes to
    /// its input from the first who sends; [`ChannelsConfig::from_anybody`] lets others replace it.
    pub channels: ChannelsConfig,
    /// What may be sent to multicast groups: by default nothing.
    pub multicast: MulticastConfig,
    /// Where metrics and status are served: by default nowhere. Whoever can connect can read them,
    /// without a password, so this is best an address on loopback.
    pub metrics_address: Option<SocketAddr>,
    /// The rate of a transport stream that carries no clock (no PCR), in bit/s: 4 Mbit/s by
    /// default. Such a file is sent too fast or too slow unless this is its rate.
    pub fallback_bitrate: u64,
    /// The best data path to try: by default the best there is. Worse ones follow where it is not
    /// available, and the log says so. Name a worse one to compare, or where a driver misbehaves.
    pub path: PathName,
    /// What is called when a session begins and when it has ended: by default nothing. It delays
    /// all sessions for as long as it takes.
    pub session_hook: Option<SessionHook>,
    /// What only experiments ask for: nothing, and there is nothing to ask for without the feature
    /// `experiments`.
    pub experiments: Experiments,
}

/// One of several libraries.
#[derive(Clone, Debug)]
pub struct LibraryConfig {
    /// The first part of the names in it; see
    /// [`check_library_name`](crate::library::check_library_name). No two have the same.
    pub name: String,
    /// Where its files are.
    pub place: LibraryPlace,
}

/// Where the files of a library are.
#[derive(Clone, Debug)]
pub enum LibraryPlace {
    /// In a directory, as [`Config::media_root`] has it.
    Folder(PathBuf),
    /// In an object store, as [`Config::remote`] has it.
    Remote(Arc<dyn RemoteFiles>),
}

/// Where RTP and RTCP go out if nothing else is said.
pub(crate) const RTP_PORTS: PortRange = PortRange {
    first: 20_000,
    last: 59_999,
};

/// The bounds on what peers and files can make the server hold. All are listed by
/// `onrush doctor --limits`. Each may be raised as far as there is memory and there are
/// descriptors for it, and lowered where few clients are expected.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Sessions that exist at once, 16,384 by default; one more gets 453 Not Enough Bandwidth. It
    /// takes memory for as many streams on each engine at the start.
    pub sessions_max: usize,
    /// Sessions that exist at once of one address (of IPv6 of its /64): by default a quarter of
    /// all, so that nobody keeps all others out, by however few connections. Raise it for viewers
    /// behind one NAT, and for load tests.
    pub sessions_per_address_max: usize,
    /// RTSP connections open at once, 16,384 by default; one more is answered 503 and closed. Each
    /// takes a descriptor (RLIMIT_NOFILE).
    pub connections_max: usize,
    /// RTSP connections open at once from one address (of IPv6 from its /64): by default a quarter
    /// of all, so that nobody keeps all others out. Raise it for viewers behind one NAT, and for
    /// load tests.
    pub connections_per_address_max: usize,
    /// Bytes of one request's head, 16 KiB by default; a longer one is refused. Every connection
    /// may hold as much.
    pub request_head_bytes_max: usize,
    /// Header lines of one request, 64 by default; one with more is refused.
    pub request_headers_max: usize,
    /// Bytes of one request's body, 16 KiB by default; a longer one is refused. Every connection
    /// may hold as much.
    pub request_body_bytes_max: usize,
    /// How long a begun request may take to arrive whole, 10 s by default. A longer time lets slow
    /// senders hold connections.
    pub request_time_max: Duration,
    /// How long a connection without a session may say nothing, 60 s by default. Likewise.
    pub idle_time_max: Duration,
    /// How long a session lives without a sign of its client (RFC 2326, section 12.37), 60 s by
    /// default. Shorter frees sooner what clients leave behind that go without a word, and ends the
    /// sessions of those that keep theirs alive too seldom.
    pub session_timeout: Duration,
    /// Files that are open (indexed) at once, 4096 by default, and an eighth of the descriptors
    /// that the process may have at the most; while all are in use one more is refused. Each takes
    /// a descriptor, another one while it is read, and the memory of its index.
    pub files_max: usize,
    /// How long a file that does not grow still counts as being written, 10 s by default: its
    /// sessions wait at its end. Raise it for recordings that are written in large pieces; sessions
    /// of a file that was finished a moment ago end by so much later.
    pub growth_time_max: Duration,
    /// Bytes of saved indexes in [`Config::state`], 1 GiB by default: those of some hundred films
    /// of two hours. Those that were not used for longest go.
    pub state_bytes_max: u64,
    /// Bytes of packets on one TCP connection that its client has not acknowledged, 512 KiB by
    /// default; the others wait. It bounds what a client that reads nothing keeps in the cache, and
    /// its rate to this much in a round trip.
    pub unacknowledged_bytes_max: usize,
    /// How long a client may take nothing of what waits for it on its TCP connection, 10 s by
    /// default; then its sessions there end.
    pub stall_time_max: Duration,
}

/// Open files that have nothing to do with single clients, among them the RTCP sockets that many
/// share, and the RTP sockets of streams that no engine has taken up yet.
const FILES_APART: u64 = 768;

/// Whether a process that may open so many files can keep so many connections, and whatever else
/// has a descriptor (RTP sockets, films, files and connections of downloads): to be refused in
/// words is better than to find none half way.
pub(crate) const fn files_suffice(files: u64, connections: usize, others: usize) -> bool {
    let clients = (others as u64).saturating_add(connections as u64);
    clients.saturating_add(FILES_APART) <= files
}

/// As few leave room for a household or an office: an address has these even if they are more than
/// a quarter.
const PER_ADDRESS: usize = 64;

impl Limits {
    /// How many connections, or sessions, one address has by default where there are so many in
    /// all: a quarter, or 64 if that is more.
    #[must_use]
    pub const fn per_address(most: usize) -> usize {
        match (most, most / 4) {
            (_, quarter) if quarter > PER_ADDRESS => quarter,
            (all, _) if all < PER_ADDRESS => all,
            _ => PER_ADDRESS,
        }
    }
}

impl Config {
    /// The directories whose files are served.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        let is_only = self.libraries.is_empty() && self.remote.is_none();
        let only = is_only.then_some(&*self.media_root);
        let others = self.libraries.iter().filter_map(|it| match &it.place {
            LibraryPlace::Folder(path) => Some(&**path),
            LibraryPlace::Remote(_) => None,
        });
        only.into_iter().chain(others)
    }

    /// The stores whose files are served.
    pub fn remotes(&self) -> impl Iterator<Item = &Arc<dyn RemoteFiles>> {
        let only = self.remote.iter().filter(|_| self.libraries.is_empty());
        only.chain(self.libraries.iter().filter_map(|it| match &it.place {
            LibraryPlace::Folder(_) => None,
            LibraryPlace::Remote(remote) => Some(remote),
        }))
    }
}

impl Default for Limits {
    fn default() -> Self {
        const SESSIONS_MAX: usize = 16_384;
        const CONNECTIONS_MAX: usize = 16_384;
        Self {
            sessions_max: SESSIONS_MAX,
            sessions_per_address_max: Self::per_address(SESSIONS_MAX),
            connections_max: CONNECTIONS_MAX,
            connections_per_address_max: Self::per_address(CONNECTIONS_MAX),
            request_head_bytes_max: 16 * 1024,
            request_headers_max: 64,
            request_body_bytes_max: 16 * 1024,
            request_time_max: Duration::from_secs(10),
            idle_time_max: Duration::from_secs(60),
            session_timeout: Duration::from_secs(60),
            files_max: 4096,
            growth_time_max: Duration::from_secs(10),
            state_bytes_max: 1 << 30,
            unacknowledged_bytes_max: 512 << 10,
            stall_time_max: Duration::from_secs(10),
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            media_root: PathBuf::from("media"),
            remote: None,
            libraries: Vec::new(),
            rtsp_addresses: vec![SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 0], 8554))],
            rtsps_addresses: Vec::new(),
            tls: TlsConfig::default(),
            rtp_ports: RTP_PORTS,
            burst: Duration::from_millis(20),
            rtp_headers: RtpHeaders::default(),
            load_max_permille: 900,
            cache_bytes: 1 << 30,
            cores: Vec::new(),
            users: UsersConfig::default(),
            state: None,
            cluster: None,
            drain: DrainConfig::default(),
            limits: Limits::default(),
            downloads: Downloads::default(),
            channels: ChannelsConfig::default(),
            multicast: MulticastConfig::default(),
            metrics_address: None,
            fallback_bitrate: 4_000_000,
            path: PathName::UringRegisteredZc,
            session_hook: None,
            experiments: Experiments::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_quarter_or_a_few() {
        for (all, of_address) in [
            (1, 1),
            (63, 63),
            (64, 64),
            (65, 64),
            (259, 64),
            (260, 65),
            (16_384, 4096),
            (usize::MAX, usize::MAX / 4),
        ] {
            assert_eq!(Limits::per_address(all), of_address, "{all}");
        }
        assert_eq!(Limits::default().connections_per_address_max, 4096);
        assert_eq!(Limits::default().sessions_per_address_max, 4096);
    }

    #[test]
    fn clients_find_a_descriptor_or_are_refused() {
        assert!(files_suffice(768, 0, 0));
        assert!(!files_suffice(768, 1, 0));
        assert!(files_suffice(768 + 3, 2, 1));
        assert!(!files_suffice(768 + 3, 3, 1));
        assert!(!files_suffice(768 + 3, 2, 2));
        // As many connections that say nothing as there are descriptors.
        assert!(files_suffice(20_000, 19_231, 1));
        assert!(!files_suffice(20_000, 19_232, 1));
        assert!(!files_suffice(u64::MAX - 1, usize::MAX, usize::MAX));
    }
}
