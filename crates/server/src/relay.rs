//! The live relay: a server that has channels and no files.

use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use onrush_sys::thread::raise_open_files_limit;
use serde::Serialize;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinSet, LocalSet};

use crate::admin::status::{self, Watched};
use crate::admin::{Admin, Office};
use crate::channel_api::ChannelApi;
use crate::channels::config::SOURCES_MAX;
use crate::channels::published::{PublishedChannels, Pulls};
use crate::channels::{
    Channel, ChannelError, Channels, ChannelsConfig, Upkeep, check, listen, start_error,
};
use crate::config::{Config, Limits, PortRange, RTP_PORTS};
use crate::listening::{Draining, ListeningSockets, Service};
use crate::rtsp::{Content, Control, Sending, Signals};
use crate::statistics::Statistics;
use crate::users::{Authorizer, UsersConfig};

/// A relay that runs: channels, and RTSP for their players. Dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    channels: Channels,
    rtsp_addresses: Vec<SocketAddr>,
    api_address: Option<SocketAddr>,
    admin: Option<Admin>,
    stop: Option<oneshot::Sender<()>>,
    control: Option<JoinHandle<()>>,
    drain: watch::Sender<bool>,
    /// Those of this relay, for another process to have.
    sockets: ListeningSockets,
}

/// The settings of `onrush relay`.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// What is relayed: one source at least.
    pub channels: ChannelsConfig,
    /// Where players may ask for `rtsp://HOST/live/NAME`; nowhere if empty.
    pub rtsp_addresses: Vec<SocketAddr>,
    /// Where metrics and status are served: by default nowhere. Whoever can connect can read them.
    pub metrics_address: Option<SocketAddr>,
    /// Who may do what: by default everybody may play.
    pub users: UsersConfig,
    /// UDP ports for players' RTP (even) and RTCP (the odd one above), both ends included.
    pub rtp_ports: PortRange,
    /// What players may ask for at the most.
    pub limits: Limits,
}

/// What a relay has done in all.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayStatus {
    /// The form of this; see [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The relay's version.
    pub version: &'static str,
    /// The streams, as in the control API.
    pub sources: Vec<status::Channel>,
}

/// The form of [`RelayStatus`]. A new field leaves it as it is; another meaning makes it another
/// number.
pub const SCHEMA_VERSION: u32 = 1;

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            channels: ChannelsConfig::default(),
            rtsp_addresses: Vec::new(),
            metrics_address: None,
            users: UsersConfig::default(),
            rtp_ports: RTP_PORTS,
            limits: Limits::default(),
        }
    }
}

impl Relay {
    /// Starts relaying.
    ///
    /// # Errors
    ///
    /// See [`ChannelError`]; then nothing is left of it.
    pub fn start(config: RelayConfig) -> Result<Self, ChannelError> {
        Self::start_with(config, ListeningSockets::default())
    }

    /// Starts relaying, with the sockets of the relay before this one.
    ///
    /// # Errors
    ///
    /// As [`Self::start`].
    pub fn start_with(
        config: RelayConfig,
        mut sockets: ListeningSockets,
    ) -> Result<Self, ChannelError> {
        raise_open_files_limit();
        if config.channels.sources.is_empty() {
            let text = format!("no source; a relay takes 1 to {SOURCES_MAX}");
            return Err(ChannelError::Setting(text));
        }
        check(&config.channels)?;
        let rtsp = config.rtsp_addresses.iter();
        let rtsp = rtsp.map(|&address| listen(address, Service::Rtsp, &mut sockets));
        let rtsp = rtsp.collect::<Result<Vec<_>, _>>()?;
        let rtsp_addresses = rtsp.iter().map(TcpListener::local_addr);
        let rtsp_addresses = rtsp_addresses.collect::<Result<_, _>>();
        let rtsp_addresses = rtsp_addresses.map_err(start_error("listening"))?;
        let metrics = config.metrics_address;
        let metrics = metrics.map(|address| listen(address, Service::Metrics, &mut sockets));
        let metrics = metrics.transpose()?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(start_error("the control thread"))?;
        let api = ChannelApi::open(&config.channels, &mut sockets)?;
        let api_address = api.address();
        let settings = (&config.channels, &config.limits);
        let (channels, upkeep) = Channels::start(settings, &mut sockets, &runtime)?;
        let statistics = Arc::new(Statistics::default());
        let authorizer = Authorizer::open(&config.users, Arc::clone(&statistics.users));
        let authorizer = authorizer.map_err(|error| ChannelError::Setting(error.to_string()))?;
        let authorizer = Arc::new(authorizer);
        let published = PublishedChannels::new(&config.channels, &config.limits);
        let watched = Arc::new(Watched {
            statistics: Arc::clone(&statistics),
            engines: Vec::new(),
            store: None,
            library: None,
            channels: channels.all().to_vec(),
            published: Arc::clone(&published),
            downloads: None,
            live: None,
            started: (SystemTime::now(), Instant::now()),
        });
        // It has no configuration that could be read again.
        let (office, wished, _) = Office::new(&authorizer, &[]);
        let admin = metrics.map(|listener| Admin::start(listener, watched, office, &[]));
        let admin = admin.transpose().map_err(start_error("metrics"))?;
        let (drain, draining) = Draining::new();
        let (stop, signals) = Signals::new(wished, draining);
        let shared = (statistics, authorizer, published);
        let control = move || serve(runtime, config, (upkeep, api), shared, rtsp, signals);
        let control = thread::Builder::new()
            .name("onrush-control".to_owned())
            .spawn(control)
            .map_err(start_error("the control thread"))?;
        Ok(Self {
            channels,
            rtsp_addresses,
            api_address,
            admin,
            stop: Some(stop),
            control: Some(control),
            drain,
            sockets,
        })
    }

    /// The sockets that it listens with, and at which streams arrive, to be handed to a relay that
    /// takes its place. Once that one relays, this one is to [hand over](Self::hand_over).
    ///
    /// # Errors
    ///
    /// When there are no descriptors left.
    pub fn offer_sockets(&mut self) -> io::Result<&ListeningSockets> {
        self.sockets.offer()?;
        Ok(&self.sockets)
    }

    /// Takes nobody more, and lets its streams go to the relay that was
    /// [offered](Self::offer_sockets) its sockets: they are that one's when this returns, and none
    /// of their packets is lost or passed on twice. Then it is to be shut down: players come again,
    /// to the other one.
    pub fn hand_over(&mut self) {
        drop(self.admin.take());
        self.drain.send_replace(true);
        let sockets = mem::take(&mut self.sockets);
        if let Some(successor) = sockets.into_successor() {
            self.channels.hand_over(successor);
        }
    }

    /// Stops: every player gets its farewell, then everything that was started is ended and
    /// waited for. What each stream did in all is logged, and is the answer.
    pub fn shutdown(mut self) -> RelayStatus {
        self.stop();
        let sources = self
            .channels()
            .iter()
            .map(|channel| status::Channel::now(channel));
        RelayStatus {
            schema_version: SCHEMA_VERSION,
            version: env!("CARGO_PKG_VERSION"),
            sources: sources.collect(),
        }
    }

    /// Ends and waits for everything that runs; a second time there is nothing to do.
    fn stop(&mut self) {
        drop(self.admin.take());
        self.sockets = ListeningSockets::default();
        drop(self.stop.take());
        // Control first: players leave while their stream still runs.
        let control = self.control.take().map(JoinHandle::join);
        self.channels.stop();
        if let (Some(Err(panic)), false) = (control, thread::panicking()) {
            std::panic::resume_unwind(panic);
        }
    }

    /// The streams, in the order of the configuration.
    #[must_use]
    pub fn channels(&self) -> &[Arc<Channel>] {
        self.channels.all()
    }

    /// Where RTSP listens, with the ports that were chosen for it.
    #[must_use]
    pub fn rtsp_addresses(&self) -> &[SocketAddr] {
        &self.rtsp_addresses
    }

    /// Where metrics are told, if they are.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(|admin| admin.address)
    }

    /// Where the control API listens.
    #[must_use]
    pub const fn api_address(&self) -> Option<SocketAddr> {
        self.api_address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The control thread: upkeep and RTSP until it is to stop.
fn serve(
    runtime: Runtime,
    config: RelayConfig,
    (mut upkeep, api): (Upkeep, ChannelApi),
    (statistics, authorizer, published): (Arc<Statistics>, Arc<Authorizer>, Arc<PublishedChannels>),
    rtsp: Vec<TcpListener>,
    signals: Signals,
) {
    let config = Config {
        rtp_ports: config.rtp_ports,
        limits: config.limits,
        channels: config.channels,
        ..Config::default()
    };
    let (tasks, pulls) = (
        LocalSet::new(),
        Pulls::start(&config.channels.pulls, &published, None),
    );
    tasks.block_on(&runtime, async {
        let mut beside = JoinSet::new();
        let content = Content {
            library: None,
            sending: Sending::when_wanted(&config),
            channels: upkeep.channels(),
            published: Arc::clone(&published),
            pulls: Arc::clone(&pulls),
            authorizer,
        };
        let channels = (upkeep.channels(), upkeep.members_told());
        api.spawn(channels, signals.draining.clone(), &mut beside);
        upkeep.spawn(&mut beside);
        let listeners = rtsp.into_iter().map(|listener| {
            let listener = tokio::net::TcpListener::from_std(listener);
            (listener.expect("a runtime with I/O"), None)
        });
        let listeners = listeners.collect();
        let control = Control::new(config, content, statistics);
        Rc::clone(&control).run(listeners, signals).await;
        control.log_total();
        beside.shutdown().await;
    });
    drop(tasks);
    pulls.stop();
    runtime.shutdown_timeout(Duration::from_secs(1));
}
