//! The server as a whole: what starts together and stops together.
//!
//! One thread does all control; the engines have theirs. Starting either succeeds, with every
//! address listening, or leaves nothing behind.

mod clustered;
mod observe;
mod reload;

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use onrush_lock::memory::Pages;
use onrush_lock::{Manager, Totals};
use onrush_sys::thread::raise_open_files_limit;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};

pub use self::observe::Pulse;
use self::reload::Reloading;
pub use self::reload::{ReloadError, ReloadQueue, ReloadRequest};
use crate::admin::status::{Status, Watched};
use crate::admin::{Admin, Office};
use crate::channel_api::ChannelApi;
use crate::channels::published::PublishedChannels;
use crate::channels::{Channel, ChannelError, Channels, Upkeep};
use crate::config::Config;
use crate::data::{Data, DataError};
use crate::downloads::{Listening, Running};
use crate::hls_live::store::prepare;
use crate::hls_live::{LiveChannels, LiveHls};
use crate::library::{self, Library, LibraryError};
use crate::listening::{Draining, reached_port};
pub use crate::listening::{ListeningSockets, Service};
use crate::rtsp::{Content, Control, Sending, Signals, accept_tunnelled};
use crate::statistics::Statistics;
use crate::tls::{CertificateError, KernelTlsState, Tls};
use crate::tunnelling::{TunnelQueue, Tunnels, tunnels};
use crate::users::{Authorizer, OpenError};
use crate::watching::Wishes;

/// A server that runs. Dropping it stops it, as [`Self::shutdown`] does.
#[derive(Debug)]
pub struct Server {
    addresses: Vec<SocketAddr>,
    tls_addresses: Vec<SocketAddr>,
    tls: Option<Arc<Tls>>,
    path_name: &'static str,
    cores: Vec<usize>,
    statistics: Arc<Statistics>,
    stop: Option<oneshot::Sender<()>>,
    control: Option<JoinHandle<()>>,
    downloads: Option<Running>,
    channels: Channels,
    api_address: Option<SocketAddr>,
    admin: Option<Admin>,
    watched: Arc<Watched>,
    reloading: Reloading,
    drain: watch::Sender<bool>,
    sockets: ListeningSockets,
    wishes: Wishes,
}

/// Whom a server serves that drains.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Left {
    /// Sessions of RTSP.
    pub sessions: usize,
    /// Connections of RTSP, HTTP and FTP, also those that nothing is asked on.
    pub connections: u64,
    /// Requests of HTTP and commands of FTP that are carried out: downloads, uploads, segments; and
    /// one more while clients are sent on, if a film is watched by HLS or DASH.
    pub downloads: u64,
}

/// Why a server could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// It cannot listen there.
    #[error("cannot listen at {address} for {service}: {source}")]
    Listen {
        /// For what.
        service: Service,
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// It was told to listen nowhere.
    #[error("no address to listen at for RTSP")]
    NoAddress,
    /// The media directory cannot be served.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The data plane cannot run.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A live channel cannot run.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// TLS has nothing to show.
    #[error("TLS: {0}")]
    Tls(#[from] CertificateError),
    /// It was told to listen for TLS, and not with what.
    #[error("no certificate for TLS; name one, and its key, or ask for a self-signed one")]
    NoCertificate,
    /// It cannot be found out who may do what.
    #[error(transparent)]
    Users(#[from] OpenError),
    /// Downloads cannot be served.
    #[error("cannot start downloads: {source}")]
    Downloads {
        /// What the system said.
        source: io::Error,
    },
    /// No segments can be kept there.
    #[error("cannot keep segments in {}: {source}", folder.display())]
    HlsStore {
        /// Where.
        folder: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The control thread cannot run.
    #[error("cannot start the control thread: {source}")]
    Control {
        /// What the system said.
        source: io::Error,
    },
}

impl Server {
    /// Starts serving.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_with(config, ListeningSockets::default())
    }

    /// Starts serving, with sockets that listen already where they are at the addresses asked for.
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    pub fn start_with(config: Config, sockets: ListeningSockets) -> Result<Self, StartError> {
        if config.rtsp_addresses.is_empty() {
            return Err(StartError::NoAddress);
        }
        // First of all: an engine's table of sockets is bounded by it too.
        raise_open_files_limit();
        Self::listen_and_serve(config, sockets)
    }

    fn listen_and_serve(config: Config, mut sockets: ListeningSockets) -> Result<Self, StartError> {
        let statistics = Arc::new(Statistics::new(config.remotes()));
        let tls = open_tls(&config, &statistics)?;
        let (tunnels, tunnelled) = tunnels();
        let (drain, draining) = Draining::new();
        let to = (tunnels, draining.clone());
        let (for_players, listening, metrics) = listen(&config, tls.as_ref(), to, &mut sockets)?;
        let (listeners, [addresses, tls_addresses]) = for_players;
        let library = Arc::new(Library::new(&config)?);
        let authorizer = open_users(&config, &statistics)?;
        let live = live_hls(&config, &statistics)?;
        let shared = (&statistics, &authorizer, &live);
        let downloads = download(&config, &library, &addresses, shared, listening)?;
        let data = Data::start_beside(&config, sockets.is_successor())?;
        let (path_name, cores) = (data.path().as_str(), data.cores().to_vec());
        let runtime = control_runtime()?;
        let api = ChannelApi::open(&config.channels, &mut sockets)?;
        let api_address = api.address();
        let settings = (&config.channels, &config.limits);
        let (channels, upkeep) = Channels::start(settings, &mut sockets, &runtime)?;
        let published = PublishedChannels::new(&config.channels, &config.limits);
        let all = (&channels, &published);
        let running = (downloads.as_ref(), &live);
        let watched = watched(&statistics, (&data, library.counters()), all, running);
        clustered::join(&config, [&addresses, &tls_addresses], &watched, running.0);
        let (office, wished, reloads) = Office::new(&authorizer, &config.downloads.trusted_proxies);
        let wishes = office.wishes.clone();
        let admin = metrics.map(|to| Admin::start(to, Arc::clone(&watched), office, &cores));
        let admin = admin.transpose().map_err(control_error)?;
        let (stop, signals) = Signals::new(wished, draining);
        let counted = Arc::clone(&statistics);
        let (reloading, pulling) = Reloading::new(&authorizer, &config.limits, reloads);
        let run = move || {
            let pulls = pulling.start(&config.channels.pulls, &published, &counted);
            live.set_channels(LiveChannels::new(upkeep.channels(), &published, &pulls));
            // In here, because nothing of it may leave the thread.
            let content = Content {
                library: Some(library),
                sending: Sending::by(data),
                channels: upkeep.channels(),
                published,
                pulls: Arc::clone(&pulls),
                authorizer,
            };
            let control = Control::new(config, content, counted);
            let taken = (listeners, tunnelled);
            serve(runtime, control, (upkeep, api), taken, signals);
            live.stop();
            pulls.stop();
        };
        Ok(Self {
            addresses,
            tls_addresses,
            tls,
            path_name,
            cores,
            statistics,
            stop: Some(stop),
            control: Some(start_control(run)?),
            downloads,
            channels,
            api_address,
            admin,
            watched,
            reloading,
            drain,
            sockets,
            wishes,
        })
    }

    /// Takes nobody more, and closes what it listens with. Who plays a file plays on, downloads go
    /// on; publishers and who watches what is live are sent away, to come again to the server that
    /// has its place. What is [left](Self::left) then gets less, until it is to be shut down.
    ///
    /// Streams that arrive at sockets which the other server was [offered](Self::offer_sockets) are
    /// that one's when this returns, and none of their packets is lost or passed on twice.
    pub fn drain(&mut self) {
        drop(self.admin.take());
        self.drain.send_replace(true);
        let sockets = mem::take(&mut self.sockets);
        if let Some(successor) = sockets.into_successor() {
            self.channels.hand_over(successor);
        }
    }

    /// Takes no session more, and sends clients on to the server that [`Config::drain`] names, if
    /// it names one. It goes on listening, to tell who comes; what is [left](Self::left) gets less,
    /// and ends when the drain has lasted for as long as it may.
    pub fn send_on(&self) {
        self.statistics.drain.begin(None);
    }

    /// The sockets that it listens with, and at which streams arrive, to be handed to a server that
    /// takes its place. Once that one serves, this one is to be [drained](Self::drain).
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub fn offer_sockets(&mut self) -> io::Result<&ListeningSockets> {
        self.sockets.offer()?;
        Ok(&self.sockets)
    }

    /// Whom it still serves.
    #[must_use]
    pub fn left(&self) -> Left {
        let downloads = self.downloads.as_ref().map(|it| &it.stats);
        let others = downloads.map_or(0, |it| it.open_connections());
        Left {
            sessions: self.sessions(),
            connections: self.connections() as u64 + others,
            downloads: downloads.map_or(0, |it| it.left(&self.statistics.drain)),
        }
    }

    /// Stops: every session gets its farewell, then everything that was started is ended and
    /// waited for. What the server has done in all is the answer; its memory is let go after that.
    pub fn shutdown(mut self) -> Status {
        self.stop();
        self.watched.status(None)
    }

    /// Ends and waits for everything that runs; a second time there is nothing to do.
    fn stop(&mut self) {
        drop(self.admin.take());
        self.sockets = ListeningSockets::default();
        drop(self.stop.take());
        drop(self.downloads.take());
        let control = self.control.take().map(JoinHandle::join);
        // After control: players leave while their stream still runs.
        self.channels.stop();
        if let Some(Err(panic)) = control {
            // What the thread died of is not lost, and not thrown over another panic.
            if !thread::panicking() {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Where it listens, with the ports that were chosen for it, in the order of the configuration.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Where RTSP over TLS listens, likewise.
    #[must_use]
    pub fn rtsps_addresses(&self) -> &[SocketAddr] {
        &self.tls_addresses
    }

    /// The SHA-256 fingerprint of the certificate that it has signed itself, if it has.
    #[must_use]
    pub fn tls_fingerprint(&self) -> Option<&str> {
        self.tls.as_ref()?.fingerprint.as_deref()
    }

    /// Who encrypts bodies of HTTP/1.1; `None` without TLS.
    #[must_use]
    pub fn kernel_tls(&self) -> Option<&KernelTlsState> {
        self.tls.as_ref().map(|tls| &tls.kernel_state)
    }

    /// Where HTTP over TLS listens, likewise.
    #[must_use]
    pub fn https_addresses(&self) -> &[SocketAddr] {
        self.downloads.as_ref().map_or(&[], |d| &d.https_addresses)
    }

    /// Where HTTP listens, likewise.
    #[must_use]
    pub fn http_addresses(&self) -> &[SocketAddr] {
        self.downloads.as_ref().map_or(&[], |d| &d.http_addresses)
    }

    /// The live channels, in the order of the configuration.
    #[must_use]
    pub fn channels(&self) -> &[Arc<Channel>] {
        self.channels.all()
    }

    /// Where the channels' control API listens, if it does.
    #[must_use]
    pub const fn api_address(&self) -> Option<SocketAddr> {
        self.api_address
    }

    /// Where FTP listens, likewise.
    #[must_use]
    pub fn ftp_addresses(&self) -> &[SocketAddr] {
        self.downloads.as_ref().map_or(&[], |d| &d.ftp_addresses)
    }

    /// Where metrics are told, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// The name of the data path that it started with, as in the catalogue.
    #[must_use]
    pub const fn path_name(&self) -> &'static str {
        self.path_name
    }

    /// How many bytes of the packet cache are ready, and how many there will be, which may be less
    /// than was asked for.
    #[must_use]
    pub fn cache_bytes(&self) -> (usize, usize) {
        let store = self.watched.store.as_ref();
        store.map_or((0, 0), |store| store.pool().bytes_ready_of())
    }

    /// What the pages of the packet cache are, as far as it is ready.
    #[must_use]
    pub fn cache_pages(&self) -> Pages {
        let store = self.watched.store.as_ref();
        store.map_or(Pages::Base, |store| store.pool().area().pages())
    }

    /// What this process has locked, in bytes by kind.
    #[must_use]
    pub fn locked(&self) -> Totals {
        Manager::of_process().totals()
    }

    /// The processors that send.
    #[must_use]
    pub fn cores(&self) -> &[usize] {
        &self.cores
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn control_error(source: io::Error) -> StartError {
    StartError::Control { source }
}

fn control_runtime() -> Result<Runtime, StartError> {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.map_err(control_error)
}

fn start_control(run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let thread = thread::Builder::new().name("onrush-control".to_owned());
    thread.spawn(run).map_err(control_error)
}

/// Listens for all but the channels' API.
fn listen(
    config: &Config,
    tls: Option<&Arc<Tls>>,
    to: (Tunnels, Draining),
    sockets: &mut ListeningSockets,
) -> Result<(ForPlayers, Listening, Option<TcpListener>), StartError> {
    let for_players = listen_for_players(config, tls, sockets)?;
    let listening = listen_for_downloads(config, tls, to, sockets)?;
    let metrics = config.metrics_address.as_slice();
    let metrics = bind(metrics, Service::Metrics, sockets)?.pop();
    Ok((for_players, listening, metrics))
}

fn bind(
    addresses: &[SocketAddr],
    service: Service,
    sockets: &mut ListeningSockets,
) -> Result<Vec<TcpListener>, StartError> {
    let listeners = addresses.iter().map(|&address| {
        let listen = |source| StartError::Listen {
            service,
            address,
            source,
        };
        sockets.listen(address, service).map_err(listen)
    });
    listeners.collect()
}

/// Listeners, and with what they are served.
type Listeners = Vec<(TcpListener, Option<Arc<Tls>>)>;

/// Those of RTSP, and where they are: plain, and over TLS.
type ForPlayers = (Listeners, [Vec<SocketAddr>; 2]);

/// Listens for RTSP, plain and over TLS, and says where in this order.
fn listen_for_players(
    config: &Config,
    tls: Option<&Arc<Tls>>,
    sockets: &mut ListeningSockets,
) -> Result<ForPlayers, StartError> {
    let plain = bind(&config.rtsp_addresses, Service::Rtsp, sockets)?;
    let with_tls = bind(&config.rtsps_addresses, Service::Rtsps, sockets)?;
    let of = |listeners: &[TcpListener]| addresses_of(listeners).map_err(control_error);
    let addresses = [of(&plain)?, of(&with_tls)?];
    let plain = plain.into_iter().map(|listener| (listener, None));
    let with_tls = with_tls.into_iter().map(|it| (it, tls.cloned()));
    Ok((plain.chain(with_tls).collect(), addresses))
}

fn listen_for_downloads(
    config: &Config,
    tls: Option<&Arc<Tls>>,
    (tunnels, draining): (Tunnels, Draining),
    sockets: &mut ListeningSockets,
) -> Result<Listening, StartError> {
    Ok(Listening {
        tunnels,
        draining,
        http: bind(&config.downloads.http_addresses, Service::Http, sockets)?,
        https: bind(&config.downloads.https_addresses, Service::Https, sockets)?,
        tls: tls.cloned(),
        ftp: bind(&config.downloads.ftp_addresses, Service::Ftp, sockets)?,
    })
}

fn addresses_of(listeners: &[TcpListener]) -> io::Result<Vec<SocketAddr>> {
    listeners.iter().map(TcpListener::local_addr).collect()
}

/// Live channels by HLS, before there are any.
fn live_hls(config: &Config, statistics: &Statistics) -> Result<Arc<LiveHls>, StartError> {
    let (hls, in_kernel) = (config.downloads.hls.clone(), config.channels.in_kernel);
    if let Some(folder) = &hls.hls_store {
        prepare(folder).map_err(|source| StartError::HlsStore {
            folder: folder.clone(),
            source,
        })?;
    }
    Ok(LiveHls::new(hls, in_kernel, &statistics.hls))
}

/// Reads the certificates, if anybody is to be heard over TLS.
fn open_tls(config: &Config, statistics: &Statistics) -> Result<Option<Arc<Tls>>, StartError> {
    let is_needed =
        !config.rtsps_addresses.is_empty() || !config.downloads.https_addresses.is_empty();
    // By FTP it is asked for at the same address as what is not encrypted.
    if !is_needed && config.downloads.ftp_addresses.is_empty() {
        return Ok(None);
    }
    let tls = Tls::open(
        &config.tls,
        config.state.as_deref(),
        Arc::clone(&statistics.tls),
    )?;
    match tls {
        None if is_needed => Err(StartError::NoCertificate),
        tls => Ok(tls),
    }
}

/// Reads who may do what.
fn open_users(config: &Config, statistics: &Statistics) -> Result<Arc<Authorizer>, StartError> {
    let authorizer = Authorizer::open(&config.users, Arc::clone(&statistics.users))?;
    Ok(Arc::new(authorizer))
}

/// Starts downloads, if anybody is to be heard.
fn download(
    config: &Config,
    library: &Arc<Library>,
    rtsp_addresses: &[SocketAddr],
    (statistics, authorizer, live): (&Arc<Statistics>, &Arc<Authorizer>, &Arc<LiveHls>),
    listening: Listening,
) -> Result<Option<Running>, StartError> {
    if listening.http.is_empty() && listening.https.is_empty() && listening.ftp.is_empty() {
        return Ok(None);
    }
    // On loopback alone RTSP is for who is on this machine, as the page is then.
    let first = || rtsp_addresses.first().map(SocketAddr::port);
    let rtsp_port = reached_port(rtsp_addresses, "").or_else(first);
    let settings = config.downloads.clone();
    let shared = (Arc::clone(statistics), Arc::clone(authorizer));
    let live = (rtsp_port, Arc::clone(live));
    Running::start(settings, Arc::clone(library), live, shared, listening)
        .map(Some)
        .map_err(|source| StartError::Downloads { source })
}

/// What the admin pages and the status show.
fn watched(
    statistics: &Arc<Statistics>,
    (data, indexes): (&Data, Arc<library::Counters>),
    (channels, published): (&Channels, &Arc<PublishedChannels>),
    (downloads, live): (Option<&Running>, &Arc<LiveHls>),
) -> Arc<Watched> {
    let cores = data.cores().iter().copied();
    Arc::new(Watched {
        statistics: Arc::clone(statistics),
        engines: cores.zip(data.engines().remotes()).collect(),
        store: Some(Arc::clone(data.store())),
        library: Some(indexes),
        channels: channels.all().to_vec(),
        published: Arc::clone(published),
        downloads: downloads.map(|running| Arc::clone(&running.stats)),
        live: Some(Arc::clone(live)),
        started: (SystemTime::now(), Instant::now()),
    })
}

fn serve(
    runtime: Runtime,
    control: Rc<Control>,
    (mut upkeep, api): (Upkeep, ChannelApi),
    (listeners, tunnelled): (Listeners, TunnelQueue),
    signals: Signals,
) {
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let mut beside = JoinSet::new();
        let channels = (upkeep.channels(), upkeep.members_told());
        api.spawn(channels, signals.draining.clone(), &mut beside);
        upkeep.spawn(&mut beside);
        beside.spawn_local(accept_tunnelled(Rc::clone(&control), tunnelled));
        let listeners = listeners.into_iter().map(|(listener, tls)| {
            let listener = tokio::net::TcpListener::from_std(listener);
            (listener.expect("a runtime with I/O"), tls)
        });
        let listeners = listeners.collect();
        Rc::clone(&control).run(listeners, signals).await;
        beside.shutdown().await;
    });
    control.log_total();
    // Connections hold the control, and it the data plane: they go first.
    drop(tasks);
    drop(control);
    // Only a reading of a file can be left, and it has been told to stop.
    runtime.shutdown_timeout(Duration::from_secs(1));
}
