//! The live relay: what comes in from one sender goes out to many receivers, as it is and at once.
//!
//! Each stream is a [`Channel`]: a thread takes its packets in, in batches, and gives them to a
//! group of members, as trains where packets are of one size and leave together. Members come from
//! the command line, a file that is watched, the control API and, as players, from RTSP. Control is
//! ordinary asynchronous code on one thread; it queues commands for the sending threads and never
//! waits for them.
//!
//! Nothing is repaired on the way: no re-ordering, no buffering against jitter. Anomalies of a
//! stream are logged, counted and passed on.

pub mod config;
pub mod input;
pub mod members;

mod api;
mod channel;
mod cycles;
mod file;
mod kernel;
mod outlet;
mod players;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_group::KernelError;
use onrush_sys::probe;
use onrush_sys::receive::Receiver;
use onrush_sys::thread::{pin_to, raise_open_files_limit};
use onrush_wire::live::Stamper;
use serde::Serialize;
use thiserror::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinSet, LocalSet};
use tracing::{info, warn};

pub use self::api::{API_BODY_BYTES_MAX, API_CONNECTIONS_MAX};
pub use self::channel::{
    CHANGES_MAX, CHANGES_WAITING_MAX, Channel, ChannelState, MemberCounts, Playable, Stats,
};
pub use self::config::{ChannelsConfig, RelayConfig, SourceConfig};
pub use self::file::{MEMBERS_FILE_BYTES_MAX, MembersFileError};

use self::channel::Command;
use self::config::{DELAY_MAX, SOURCES_MAX, is_source_name};
use self::cycles::Deliveries;
use self::file::MembersFile;
use self::kernel::KernelWorker;
use self::members::{MemberError, Origin};
use self::worker::Worker;
use crate::admin::status;
use crate::config::Config;
use crate::listening::bind;
use crate::random::random;
use crate::rtsp::{Content, Control};
use crate::server::Service;

/// A relay that runs: channels, and RTSP for their players. Dropping it stops it.
#[derive(Debug)]
pub struct Relay {
    channels: Channels,
    rtsp_addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    control: Option<JoinHandle<()>>,
}

/// Channels that run, each in a thread. Dropping them stops them.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    all: Vec<Arc<Channel>>,
    api_address: Option<SocketAddr>,
    workers: Vec<JoinHandle<()>>,
}

/// What control does for channels: it follows files of members, and serves the API.
#[derive(Debug)]
pub(crate) struct Upkeep {
    channels: Vec<Arc<Channel>>,
    files: Vec<MembersFile>,
    api: Option<TcpListener>,
    token: String,
}

/// Why a relay could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting cannot be.
    #[error("{0}")]
    Setting(String),
    /// A stream cannot be received there.
    #[error("cannot receive {name} at {input}: {source}")]
    Input {
        /// The stream.
        name: String,
        /// Where.
        input: String,
        /// What the system said.
        source: io::Error,
    },
    /// It cannot listen there.
    #[error("cannot listen at {address} for {service}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// For what.
        service: Service,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody cannot be a member.
    #[error("{name}: {error}")]
    Member {
        /// Of which stream.
        name: String,
        /// Why.
        error: MemberError,
    },
    /// A file of members cannot be used.
    #[error("{name}: {error}")]
    MembersFile {
        /// Of which stream.
        name: String,
        /// Why.
        error: MembersFileError,
    },
    /// The kernel does not replicate.
    #[error("{name}: {source}")]
    Kernel {
        /// Of which stream.
        name: String,
        /// Why not.
        source: Box<KernelError>,
    },
    /// A thread cannot be started.
    #[error("cannot start {what}: {source}")]
    Start {
        /// Which.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
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

impl Relay {
    /// Starts relaying.
    ///
    /// # Errors
    ///
    /// See [`RelayError`]; then nothing is left of it.
    pub fn start(config: RelayConfig) -> Result<Self, RelayError> {
        raise_open_files_limit();
        if config.channels.sources.is_empty() {
            let text = format!("no source; a relay takes 1 to {SOURCES_MAX}");
            return Err(RelayError::Setting(text));
        }
        check(&config.channels)?;
        let rtsp = config.rtsp_addresses.iter();
        let rtsp = rtsp.map(|&address| listen(address, Service::Rtsp));
        let rtsp = rtsp.collect::<Result<Vec<_>, _>>()?;
        let rtsp_addresses = rtsp.iter().map(TcpListener::local_addr);
        let rtsp_addresses = rtsp_addresses.collect::<Result<_, _>>();
        let rtsp_addresses = rtsp_addresses.map_err(start_error("listening"))?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(start_error("the control thread"))?;
        let (channels, upkeep) = Channels::start(&config.channels, &runtime)?;
        let (stop, stopped) = oneshot::channel();
        let control = move || serve(runtime, config, upkeep, rtsp, stopped);
        let control = thread::Builder::new()
            .name("onrush-control".to_owned())
            .spawn(control)
            .map_err(start_error("the control thread"))?;
        Ok(Self {
            channels,
            rtsp_addresses,
            stop: Some(stop),
            control: Some(control),
        })
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

    /// Where the control API listens.
    #[must_use]
    pub const fn api_address(&self) -> Option<SocketAddr> {
        self.channels.api_address
    }
}

impl Channels {
    /// Starts all of them, or none. What control has to do for them is to run on `runtime`.
    pub(crate) fn start(
        config: &ChannelsConfig,
        runtime: &Runtime,
    ) -> Result<(Self, Upkeep), RelayError> {
        check(config)?;
        let api = config.api_address;
        let api = api
            .map(|address| listen(address, Service::Api))
            .transpose()?;
        let api_address = api.as_ref().map(TcpListener::local_addr).transpose();
        let mut channels = Self::default();
        channels.api_address = api_address.map_err(start_error("listening"))?;
        let inputs = config.sources.iter();
        let inputs = inputs.map(|source| (source.name.clone(), source.input.clone()));
        let deliveries = Arc::new(Deliveries::new(inputs.collect(), probe::addresses));
        for (number, source) in config.sources.iter().enumerate() {
            channels.open(source, (&deliveries, number), config)?;
        }
        let upkeep = Upkeep {
            channels: channels.all.clone(),
            files: channels.members_files(config, runtime)?,
            api,
            token: config.token.clone(),
        };
        Ok((channels, upkeep))
    }

    /// In the order of the configuration.
    pub(crate) fn all(&self) -> &[Arc<Channel>] {
        &self.all
    }

    /// Ends and waits for all of them, and logs what each did; a second time there is nothing to
    /// do.
    pub(crate) fn stop(&mut self) {
        for channel in &self.all {
            channel.send(Command::Stop);
        }
        let ended: Vec<_> = self.workers.drain(..).map(JoinHandle::join).collect();
        if !ended.is_empty() {
            self.all.iter().for_each(|channel| log_total(channel));
        }
        for result in ended {
            if let (Err(panic), false) = (result, thread::panicking()) {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Opens a stream and starts its thread.
    fn open(
        &mut self,
        source: &SourceConfig,
        (deliveries, number): (&Arc<Deliveries>, usize),
        config: &ChannelsConfig,
    ) -> Result<(), RelayError> {
        let SourceConfig { name, input, .. } = source;
        let input_error = |source| RelayError::Input {
            name: name.clone(),
            input: input.to_string(),
            source,
        };
        let socket = input.open().map_err(input_error)?;
        let place = (Arc::clone(deliveries), number);
        let channel = Channel::new(name.clone(), input.clone(), place).map_err(input_error)?;
        let channel = Arc::new(channel);
        channel
            .replace(Origin::CommandLine, &source.members)
            .map_err(|error| RelayError::Member {
                name: name.clone(),
                error,
            })?;
        let (of_thread, core) = (Arc::clone(&channel), config.core);
        let run: Box<dyn FnOnce() + Send> = if config.in_kernel {
            let worker = KernelWorker::open(of_thread, socket, config);
            let worker = worker.map_err(|source| RelayError::Kernel {
                name: name.clone(),
                source: Box::new(source),
            })?;
            Box::new(|| worker.run())
        } else {
            let receiver = Receiver::new(socket).map_err(input_error)?;
            let (ssrc, sequence) = (random(), random());
            let stamper = Stamper::new(u32::from_ne_bytes(ssrc), u16::from_ne_bytes(sequence));
            let worker = Worker::new(of_thread, receiver, stamper, config);
            Box::new(|| worker.run())
        };
        let run = move || {
            if let Some(Err(error)) = core.map(pin_to) {
                warn!(
                    "processor {}: {error}; the thread stays free",
                    core.unwrap_or(0)
                );
            }
            run();
        };
        let thread = thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(run);
        self.workers.push(thread.map_err(start_error("a thread"))?);
        self.all.push(channel);
        Ok(())
    }

    fn members_files(
        &self,
        config: &ChannelsConfig,
        runtime: &Runtime,
    ) -> Result<Vec<MembersFile>, RelayError> {
        let _inside = runtime.enter();
        let with_files = config.sources.iter().zip(&self.all);
        let files = with_files.filter_map(|(source, channel)| {
            let path = source.members_file.as_ref()?;
            Some(
                MembersFile::open(path, Arc::clone(channel)).map_err(|error| {
                    RelayError::MembersFile {
                        name: source.name.clone(),
                        error,
                    }
                }),
            )
        });
        files.collect()
    }
}

impl Upkeep {
    /// Does it in tasks of `beside`, until that is ended.
    pub(crate) fn spawn(self, beside: &mut JoinSet<()>) {
        for file in self.files {
            beside.spawn_local(file.follow());
        }
        if let Some(listener) = self.api {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a runtime with I/O");
            beside.spawn_local(api::serve(listener, self.channels, self.token));
        }
    }

    /// What players may ask for.
    pub(crate) fn channels(&self) -> Vec<Arc<Channel>> {
        self.channels.clone()
    }
}

impl Drop for Channels {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A token that nobody can guess.
#[must_use]
pub fn new_token() -> String {
    format!("{:032x}", u128::from_ne_bytes(random()))
}

/// Refuses what cannot be, in words that say what to do.
fn check(config: &ChannelsConfig) -> Result<(), RelayError> {
    let wrong = |text: String| Err(RelayError::Setting(text));
    let sources = &config.sources;
    if sources.len() > SOURCES_MAX {
        let count = sources.len();
        return wrong(format!("{count} sources; {SOURCES_MAX} are the most"));
    }
    for (number, source) in sources.iter().enumerate() {
        let name = &source.name;
        if !is_source_name(name) {
            return wrong(format!(
                "{name:?} is no name for a source; use up to 64 letters, digits, '.', '-' and '_'"
            ));
        }
        if sources[..number].iter().any(|other| other.name == *name) {
            return wrong(format!("two sources are named {name}; give each its own"));
        }
    }
    if config.delay > DELAY_MAX {
        return wrong(format!(
            "a delay of {:?}; {DELAY_MAX:?} is the most",
            config.delay
        ));
    }
    Ok(())
}

fn listen(address: SocketAddr, service: Service) -> Result<TcpListener, RelayError> {
    bind(address).map_err(|source| RelayError::Listen {
        address,
        service,
        source,
    })
}

/// The control thread: upkeep and RTSP until `stopped`.
fn serve(
    runtime: Runtime,
    config: RelayConfig,
    upkeep: Upkeep,
    rtsp: Vec<TcpListener>,
    stopped: oneshot::Receiver<()>,
) {
    let tasks = LocalSet::new();
    tasks.block_on(&runtime, async {
        let mut beside = JoinSet::new();
        let content = Content {
            files: None,
            channels: upkeep.channels(),
        };
        upkeep.spawn(&mut beside);
        let listeners = rtsp.into_iter().map(tokio::net::TcpListener::from_std);
        let listeners = listeners
            .collect::<Result<Vec<_>, _>>()
            .expect("a runtime with I/O");
        let config = Config {
            rtp_ports: config.rtp_ports,
            limits: config.limits,
            ..Config::default()
        };
        let control = Control::new(config, content, Arc::default());
        Rc::clone(&control).run(listeners, stopped).await;
        control.log_total();
        beside.shutdown().await;
    });
    drop(tasks);
    runtime.shutdown_timeout(Duration::from_secs(1));
}

fn log_total(channel: &Channel) {
    let stats = channel.stats();
    let passing_ns = stats.passing_ns.checked_div(stats.trains).unwrap_or(0);
    info!(
        "source {}: {} datagrams came ({} missing, {} found no room) and {} of others, {} packets \
         left in {} trains ({} refused), {} crossings, {} members, passed on in {:.3} ms (mean), \
         {:.3} ms (worst)",
        channel.name(),
        stats.heard.datagrams,
        stats.heard.missing,
        stats.overflows,
        stats.heard.from_others,
        stats.packets,
        stats.trains,
        stats.refused,
        stats.crossings,
        stats.members,
        ms(passing_ns),
        ms(stats.passing_ns_max),
    );
}

fn start_error(what: &'static str) -> impl Fn(io::Error) -> RelayError {
    move |source| RelayError::Start { what, source }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

/// The sending threads' name, for those who look at them from outside.
pub const THREAD_NAME: &str = "onrush-relay";
