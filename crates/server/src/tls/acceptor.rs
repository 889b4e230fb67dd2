//! Who may begin a handshake, and with what.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::sign::CertifiedKey;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use super::certificates::{
    CertificateError, fingerprint, own_pair, read_pair, self_signed, server_config, stamps,
};
use super::config::{CertificateFiles, TlsConfig, TlsLimits};
use super::handshake::{ALPN_HTTP2, shake};
use super::kernel::{KernelTls, KernelTlsState};
use super::stats::TlsStats;
use super::stream::TlsStream;
use crate::changes::Seen;
use crate::network::network;
use crate::peer_log::{PEER_LOG_LINES_MAX, Throttle};
use crate::refusals::REFUSALS;

/// Handshakes whose arithmetic is done at one time; the others wait their turn.
pub const TLS_RECKONED_MAX: usize = 2;

/// How often files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The server's side of TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    now: Arc<RwLock<Configs>>,
    /// What is read again when it changes.
    files: Arc<Mutex<Files>>,
    limits: TlsLimits,
    /// Of the certificate that it has signed itself.
    pub(crate) fingerprint: Option<String>,
    in_progress: Mutex<InProgress>,
    turn: Semaphore,
    /// What the log says of those that failed.
    lines: Throttle,
    /// The kernel, if it encrypts.
    kernel: Option<Arc<KernelTls>>,
    /// What it said to that.
    pub(crate) kernel_state: KernelTlsState,
    pub(crate) stats: Arc<TlsStats>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What connections of a moment are made with.
#[derive(Clone, Debug)]
struct Configs {
    rtsp: Arc<ServerConfig>,
    /// It says which version of HTTP is spoken (ALPN, RFC 7301): clients may offer others, too.
    http: Arc<ServerConfig>,
    /// No ticket is sent for another session (RFC 8446, section 4.6.1). Who only writes never reads
    /// it, and what is unread when a socket is closed makes a reset of its end, which takes what
    /// was written last with it (net/ipv4/tcp.c, `__tcp_close`).
    data: Arc<ServerConfig>,
}

/// Certificates in files, and one of the server's own beside them.
#[derive(Clone, Debug)]
struct Files {
    config: TlsConfig,
    own: Option<Arc<CertifiedKey>>,
    /// The pair of its own that is kept in files, if one is.
    kept: Option<CertificateFiles>,
}

/// Other certificates, read and not yet shown.
#[derive(Debug)]
pub(crate) struct Prepared {
    files: Files,
    configs: Configs,
}

/// Handshakes that are under way.
#[derive(Debug, Default)]
struct InProgress {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A handshake's place among those that may be.
struct Place<'a> {
    tls: &'a Tls,
    network: IpAddr,
}

impl Tls {
    /// Reads the files, and again whenever one has changed; `None` if there are none. `state` is
    /// where a pair of its own is kept.
    ///
    /// # Errors
    ///
    /// If one cannot be read or understood now.
    pub(crate) fn open(
        config: &TlsConfig,
        state: Option<&Path>,
        stats: Arc<TlsStats>,
    ) -> Result<Option<Arc<Self>>, CertificateError> {
        let (mut own, mut of_own, mut kept) = (None, None, None);
        match (&config.self_signed, state) {
            (None, _) if config.certificates.is_empty() => return Ok(None),
            (None, _) => {}
            (Some(names), None) => of_own = own.insert(own_pair(names)?).cert.first().cloned(),
            (Some(names), Some(folder)) => {
                let files = kept.insert(self_signed(folder, names)?);
                of_own = read_pair(files)?.cert.first().cloned();
            }
        }
        let files = Files::new(config, own, kept);
        let now = Arc::new(RwLock::new(files.read()?));
        let files = Arc::new(Mutex::new(files));
        let (stop, stopped) = channel();
        let (to, watched) = (Arc::clone(&now), Arc::clone(&files));
        let look = move || {
            let mut seen = Seen::new(stamps(&lock(&watched).config));
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                // Held meanwhile, so that what is read is not installed over something newer.
                let files = lock(&watched);
                let there = stamps(&files.config);
                let read = || files.read().map(|read| (read, there.clone()));
                match seen.look(there.clone(), read, CertificateError::may_pass) {
                    None => {}
                    Some(Ok(read)) => {
                        *to.write().unwrap_or_else(PoisonError::into_inner) = read;
                        info!("TLS: certificates were read again");
                    }
                    Some(Err(error)) => {
                        warn!("TLS: {error}; the certificates of before stay in force");
                    }
                }
            }
        };
        let thread = thread::Builder::new().name("onrush-tls".to_owned());
        let thread = thread
            .spawn(look)
            .map_err(|error| CertificateError::Made(error.to_string()))?;
        let (kernel, kernel_state) = KernelTls::open(config.kernel, &stats);
        Ok(Some(Arc::new(Self {
            now,
            files,
            limits: config.limits,
            fingerprint: of_own.as_ref().map(fingerprint),
            in_progress: Mutex::default(),
            turn: Semaphore::new(TLS_RECKONED_MAX),
            lines: Throttle::new(PEER_LOG_LINES_MAX),
            kernel,
            kernel_state,
            stats,
            stop: Some(stop),
            thread: Some(thread),
        })))
    }

    /// Reads other certificates, and who signs those of clients.
    ///
    /// # Errors
    ///
    /// If one cannot be read or understood; those that are shown stay.
    pub(crate) fn prepare(&self, config: &TlsConfig) -> Result<Prepared, CertificateError> {
        let before = lock(&self.files).clone();
        let files = Files::new(config, before.own, before.kept);
        let configs = files.read()?;
        Ok(Prepared { files, configs })
    }

    /// Shows others, to connections that come from now on.
    pub(crate) fn install(&self, prepared: Prepared) {
        let mut files = lock(&self.files);
        *files = prepared.files;
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = prepared.configs;
    }

    /// Carries out the handshake of a connection of RTSP that was accepted. `None` if it came to
    /// nothing, which the log says.
    pub(crate) async fn accept(&self, socket: TcpStream, peer: SocketAddr) -> Option<TlsStream> {
        let config = (self.now().rtsp, None);
        self.accept_with(config, socket, peer).await
    }

    /// The same of one of HTTP.
    pub(crate) async fn accept_http(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Option<TlsStream> {
        let config = (self.now().http, self.kernel.clone());
        self.accept_with(config, socket, peer).await
    }

    /// The same of a data connection of FTP: the kernel may seal what is sent on it, as it does
    /// long bodies of HTTP.
    pub(crate) async fn accept_data(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Option<TlsStream> {
        let config = (self.now().data, self.kernel.clone());
        self.accept_with(config, socket, peer).await
    }

    fn now(&self) -> Configs {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.clone()
    }

    async fn accept_with(
        &self,
        config: (Arc<ServerConfig>, Option<Arc<KernelTls>>),
        socket: TcpStream,
        peer: SocketAddr,
    ) -> Option<TlsStream> {
        let Some(_place) = Place::take(self, peer.ip()) else {
            self.stats.refused.fetch_add(1, Ordering::Relaxed);
            REFUSALS.note(peer.ip(), "TLS", "too many handshakes at once");
            debug!("{peer}: TLS: closed, there are too many handshakes at once");
            return None;
        };
        self.stats.handshakes.fetch_add(1, Ordering::Relaxed);
        // Whether it could be asked for or not, the handshake goes on.
        drop(socket.set_nodelay(true));
        let shaken = timeout(
            self.limits.tls_handshake_time_max,
            shake(config, socket, &self.turn),
        );
        let failed = match shaken.await {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => error,
            Err(_) => io::Error::new(io::ErrorKind::TimedOut, "it did not end in time"),
        };
        self.stats.failed.fetch_add(1, Ordering::Relaxed);
        if failed.kind() == io::ErrorKind::UnexpectedEof {
            debug!("{peer}: TLS handshake: the client left");
            return None;
        }
        REFUSALS.note(peer.ip(), "TLS", &format!("handshake: {failed}"));
        match self.lines.admit() {
            None => debug!("{peer}: TLS handshake: {failed}"),
            Some(omitted) => info!("{peer}: TLS handshake: {failed}{omitted}"),
        }
        None
    }
}

impl Files {
    fn new(
        config: &TlsConfig,
        own: Option<Arc<CertifiedKey>>,
        kept: Option<CertificateFiles>,
    ) -> Self {
        let mut config = config.clone();
        config.certificates.extend(kept.clone());
        Self { config, own, kept }
    }

    fn read(&self) -> Result<Configs, CertificateError> {
        server_config(&self.config, self.own.as_ref()).map(Configs::of)
    }
}

fn lock(files: &Mutex<Files>) -> MutexGuard<'_, Files> {
    files.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Configs {
    fn of(rtsp: ServerConfig) -> Self {
        let mut http = rtsp.clone();
        http.alpn_protocols = vec![ALPN_HTTP2.to_vec(), b"http/1.1".to_vec()];
        let mut data = rtsp.clone();
        data.send_tls13_tickets = 0;
        Self {
            rtsp: Arc::new(rtsp),
            http: Arc::new(http),
            data: Arc::new(data),
        }
    }
}

impl Drop for Tls {
    fn drop(&mut self) {
        drop(self.stop.take());
        // It has nothing to tell, and cannot panic.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl<'a> Place<'a> {
    fn take(tls: &'a Tls, peer: IpAddr) -> Option<Self> {
        let network = network(peer);
        let mut under_way = tls
            .in_progress
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let of_address = under_way.by_address.get(&network).copied().unwrap_or(0);
        if under_way.all >= tls.limits.tls_handshakes_max
            || of_address >= tls.limits.tls_handshakes_per_address_max
        {
            return None;
        }
        under_way.all += 1;
        under_way.by_address.insert(network, of_address + 1);
        tls.stats.in_progress.fetch_add(1, Ordering::Relaxed);
        Some(Self { tls, network })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let lock = self.tls.in_progress.lock();
        let mut under_way = lock.unwrap_or_else(PoisonError::into_inner);
        under_way.all -= 1;
        let of_address = under_way.by_address.get_mut(&self.network);
        if let Some(of_address) = of_address {
            *of_address -= 1;
            if *of_address == 0 {
                under_way.by_address.remove(&self.network);
            }
        }
        self.tls.stats.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}
