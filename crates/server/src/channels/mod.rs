//! Live channels: what comes in from one sender goes out to many receivers, as it is and at once.
//!
//! Each stream is a [`Channel`]: a thread takes its packets in, in batches, and gives them to a
//! group of members, as trains where packets are of one size and leave together. Members come from
//! the command line, a file that is watched, the control API and, as players, from RTSP. Control is
//! ordinary asynchronous code on one thread; it leaves commands for the sending threads and never
//! waits for them.
//!
//! Nothing is mended on the way: no re-ordering, no buffering against jitter, no repair. What is
//! unusual about a stream is logged, counted and passed on.
//!
//! The threads (`worker`, and `kernel` for what is replicated in tc ingress) stand on `channel`,
//! which stands on `members` and `input`.

pub mod config;
pub mod input;
pub mod members;

mod audience;
mod channel;
mod cycles;
mod file;
mod handover;
mod kernel;
mod lane;
mod outlet;
mod players;
pub mod published;
pub mod pull_url;
mod renewal;
mod shared_lane;
mod srtp;
pub(crate) mod tap;
mod viewer;
mod viewing;
mod worker;

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use onrush_group::KernelError;
use onrush_sys::clock::monotonic_ns;
use onrush_sys::probe;
use onrush_sys::receive::Receiver;
use onrush_sys::thread::pin_to;
use onrush_wire::live::Stamper;
use thiserror::Error;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

pub use self::channel::{
    CHANGES_MAX, CHANGES_WAITING_MAX, Channel, ChannelState, MemberCounts, Playable, Stats,
};
pub use self::config::{ChannelsConfig, SourceConfig};
pub use self::file::{MEMBERS_FILE_BYTES_MAX, MembersFileError};
pub use self::handover::{HANDOVER_ANSWER_TIME_MAX, HANDOVER_BYTES_MAX, HANDOVER_TIME_MAX};
pub use self::srtp::CHANNEL_KEYS_MAX;
pub(crate) use self::srtp::{ChannelKey, ChannelKeys, ViewerSrtp};
pub use self::tap::TAP_BYTES_MAX;
pub use self::viewing::Played;
pub(crate) use self::viewing::{
    LiveChannel, ViewerCommand, ViewerPorts, ViewerTrack, Viewing, Way,
};

use self::audience::AudienceSettings;
use self::channel::Command;
use self::config::{DELAY_MAX, SOURCES_MAX, is_source_name};
use self::cycles::Deliveries;
use self::file::MembersFile;
use self::handover::TakingOver;
use self::input::Input;
use self::kernel::KernelWorker;
use self::members::{MemberError, Origin};
use self::renewal::Renewal;
use self::worker::Worker;
use crate::config::Limits;
use crate::listening::{ListeningSockets, Service};
use crate::random::random;

/// Channels that run, each in a thread. Dropping them stops them.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    all: Vec<Arc<Channel>>,
    workers: Vec<JoinHandle<()>>,
    /// From the server before this one.
    taking_over: Option<TakingOver>,
}

/// What control does for channels: it follows files of members.
#[derive(Debug)]
pub(crate) struct Upkeep {
    channels: Vec<Arc<Channel>>,
    files: Vec<MembersFile>,
    told: Option<oneshot::Receiver<()>>,
}

/// Why channels could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChannelError {
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

impl Channels {
    /// Starts all of them, or none. What control has to do for them is to run on `runtime`. Those
    /// that the server before this one has wait until that one has let them go. It is the last to
    /// take sockets: what nobody has then is closed.
    pub(crate) fn start(
        (config, limits): (&ChannelsConfig, &Limits),
        sockets: &mut ListeningSockets,
        runtime: &Runtime,
    ) -> Result<(Self, Upkeep), ChannelError> {
        check(config)?;
        let mut channels = Self::default();
        let inputs = config.sources.iter();
        let inputs = inputs.map(|source| (source.name.clone(), source.input.clone()));
        let deliveries = Arc::new(Deliveries::new(inputs.collect(), probe::all_addresses));
        let predecessor = sockets.take_predecessor();
        for (number, source) in config.sources.iter().enumerate() {
            let SourceConfig { name, input, .. } = source;
            let opened = sockets.input(&input.to_string(), || input.open());
            let (socket, is_inherited) = opened.map_err(input_error(name, input))?;
            // It may be deaf. What is joined anywhere is let be: it would be left for a moment, and
            // what comes then be lost.
            if is_inherited && input.interface.is_some() {
                Renewal::default().look(name, (input, &socket), monotonic_ns());
            }
            let arrival = (socket, is_inherited && predecessor.is_some());
            channels.open(source, (&deliveries, number), arrival, (config, limits))?;
        }
        for name in sockets.close_unused_inputs() {
            warn!("{name} was handed over, where nothing is set to be received");
        }
        sockets.close_unused();
        let taking_over = predecessor.map(|it| TakingOver::start(it, channels.all.clone()));
        let taking_over = taking_over.transpose().map_err(start_error("a thread"))?;
        let (taking_over, told) = taking_over.unzip();
        channels.taking_over = taking_over;
        let upkeep = Upkeep {
            channels: channels.all.clone(),
            files: channels.members_files(config, runtime)?,
            told,
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
        for result in self.end() {
            if let (Err(panic), false) = (result, thread::panicking()) {
                std::panic::resume_unwind(panic);
            }
        }
    }

    /// Likewise; how each thread ended.
    fn end(&mut self) -> Vec<thread::Result<()>> {
        for channel in &self.all {
            channel.send(Command::Stop);
        }
        // After that: what is still another server's is not to be taken here at the last moment.
        drop(self.taking_over.take());
        let ended: Vec<_> = self.workers.drain(..).map(JoinHandle::join).collect();
        if !ended.is_empty() {
            self.all.iter().for_each(|channel| log_total(channel));
        }
        ended
    }

    /// Hands all of them over to the server that takes this one's place, and ends them. What
    /// arrives from then on is that one's.
    pub(crate) fn hand_over(&mut self, successor: UnixStream) {
        // What this one does not have yet it cannot pass on.
        if let Some(taking_over) = &self.taking_over {
            taking_over.wait();
        }
        if let Err(error) = handover::tell(&successor, &self.all) {
            warn!("the next server may lack members that the API has added here: {error}");
        }
        // A bug that has ended a thread was told then, and who plays a film here plays on.
        drop(self.end());
        // Closed, which says that nobody receives here any more.
        drop(successor);
    }

    /// Starts a stream's thread, which leaves what arrives at its socket alone at first if it
    /// `is_held`.
    fn open(
        &mut self,
        source: &SourceConfig,
        (deliveries, number): (&Arc<Deliveries>, usize),
        (socket, is_held): (UdpSocket, bool),
        (config, limits): (&ChannelsConfig, &Limits),
    ) -> Result<(), ChannelError> {
        let SourceConfig { name, input, .. } = source;
        let place = (Arc::clone(deliveries), number);
        let described = source.described.clone();
        let in_kernel = config.in_kernel;
        let channel = Channel::new(name.clone(), input.clone(), place, in_kernel, described);
        let channel = channel.map_err(input_error(name, input))?;
        let channel = Arc::new(channel);
        channel
            .replace(Origin::CommandLine, &source.members)
            .map_err(|error| ChannelError::Member {
                name: name.clone(),
                error,
            })?;
        let (of_thread, core) = (Arc::clone(&channel), config.core);
        let guard = PanicGuard(Arc::clone(&channel));
        let run: Box<dyn FnOnce() + Send> = if config.in_kernel {
            let worker = KernelWorker::open(of_thread, socket, config);
            let worker = worker.map_err(|source| ChannelError::Kernel {
                name: name.clone(),
                source: Box::new(source),
            })?;
            Box::new(|| worker.run())
        } else {
            let receiver = Receiver::new(socket).map_err(input_error(name, input))?;
            let (ssrc, sequence) = (random(), random());
            let stamper = Stamper::new(u32::from_ne_bytes(ssrc), u16::from_ne_bytes(sequence));
            let audience = AudienceSettings::new(config, limits);
            let worker = Worker::new(of_thread, receiver, stamper, config, audience);
            let worker = worker.holding(is_held);
            Box::new(|| worker.run())
        };
        let run = move || {
            let _guard = guard;
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
    ) -> Result<Vec<MembersFile>, ChannelError> {
        let _inside = runtime.enter();
        let with_files = config.sources.iter().zip(&self.all);
        let files = with_files.filter_map(|(source, channel)| {
            let path = source.members_file.as_ref()?;
            Some(
                MembersFile::open(path, Arc::clone(channel)).map_err(|error| {
                    ChannelError::MembersFile {
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
    }

    /// When the server before this one has told its members, or will not: there is such a server if
    /// there is this, which can be had once.
    pub(crate) const fn members_told(&mut self) -> Option<oneshot::Receiver<()>> {
        self.told.take()
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

/// Of a stream's thread. If that panics, whoever waits for its answers gets none, and so does who
/// asks later. Its socket is gone, so the stream comes back with the next start only.
struct PanicGuard(Arc<Channel>);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            let channel = &self.0;
            error!(
                "source {}: a bug of the server: it is passed on again after a restart",
                channel.name()
            );
            channel.publish_last(&Stats {
                is_heard: false,
                ..channel.stats()
            });
        }
    }
}

/// A token that nobody can guess.
#[must_use]
pub fn new_token() -> String {
    format!("{:032x}", u128::from_ne_bytes(random()))
}

/// Refuses what cannot be, in words that say what to do.
pub(crate) fn check(config: &ChannelsConfig) -> Result<(), ChannelError> {
    let wrong = |text: String| Err(ChannelError::Setting(text));
    let sources = &config.sources;
    if sources.len() + config.pulls.len() > SOURCES_MAX {
        let count = sources.len() + config.pulls.len();
        return wrong(format!("{count} sources; {SOURCES_MAX} are the most"));
    }
    let pulled = config.pulls.iter().map(|pull| &pull.name);
    let names: Vec<_> = sources
        .iter()
        .map(|source| &source.name)
        .chain(pulled)
        .collect();
    for (number, &name) in names.iter().enumerate() {
        if !is_source_name(name) {
            return wrong(format!(
                "{name:?} is no name for a source; use up to 64 letters, digits, '.', '-' and '_'"
            ));
        }
        if names[..number].contains(&name) {
            return wrong(format!("two sources are named {name}; give each its own"));
        }
    }
    for (number, source) in sources.iter().enumerate() {
        let mut others = sources[..number].iter();
        let other = others.find(|other| other.input.shares_group_with(&source.input));
        if let Some(other) = other.filter(|_| config.in_kernel) {
            return wrong(format!(
                "{} and {} are one group: in the kernel the first takes all that comes; name \
                 different interfaces, or leave one out",
                other.name, source.name
            ));
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

/// Listens for a service of channels.
pub(crate) fn listen(
    address: SocketAddr,
    service: Service,
    sockets: &mut ListeningSockets,
) -> Result<TcpListener, ChannelError> {
    sockets
        .listen(address, service)
        .map_err(|source| ChannelError::Listen {
            address,
            service,
            source,
        })
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

fn input_error(name: &str, input: &Input) -> impl Fn(io::Error) -> ChannelError {
    move |source| ChannelError::Input {
        name: name.to_owned(),
        input: input.to_string(),
        source,
    }
}

pub(crate) fn start_error(what: &'static str) -> impl Fn(io::Error) -> ChannelError {
    move |source| ChannelError::Start { what, source }
}

#[allow(clippy::cast_precision_loss, reason = "for people")]
fn ms(time_ns: u64) -> f64 {
    time_ns as f64 / 1e6
}

/// The sending threads' name, for those who look at them from outside.
pub const THREAD_NAME: &str = "onrush-relay";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    #[test]
    fn two_channels_of_one_group_are_not_for_the_kernel() {
        let checked = |in_kernel, inputs: [&str; 2]| {
            let sources = ["a", "b"].into_iter().zip(inputs);
            let sources = sources.map(|(name, input)| SourceConfig {
                name: name.to_owned(),
                input: input.parse().unwrap(),
                members: Vec::new(),
                members_file: None,
                described: None,
            });
            check(&ChannelsConfig {
                sources: sources.collect(),
                in_kernel,
                ..ChannelsConfig::default()
            })
        };
        for (inputs, is_refused) in [
            (["239.1.2.3:5004%eth0", "239.1.2.3:5004%eth0"], true),
            (["239.1.2.3:5004%eth0", "239.1.2.3:5004"], true),
            (["10.0.0.9@232.1.2.3:5004", "232.1.2.3:5004"], true),
            (["239.1.2.3:5004%eth0", "239.1.2.3:5004%eth1"], false),
            (
                ["10.0.0.8@232.1.2.3:5004", "10.0.0.9@232.1.2.3:5004"],
                false,
            ),
            (["239.1.2.3:5004", "239.1.2.3:5006"], false),
            // The second finds its port taken.
            (["10.0.0.1:5004", "10.0.0.1:5004"], false),
        ] {
            let refused = checked(true, inputs).is_err();
            assert_eq!(refused, is_refused, "{inputs:?}");
            assert!(checked(false, inputs).is_ok(), "{inputs:?}");
        }
    }

    #[test]
    fn who_asks_a_stream_that_panicked_is_not_left_waiting() {
        let channel = Channel::of_tests();
        let guard = PanicGuard(Arc::clone(&channel));
        let (answer, before) = oneshot::channel();
        channel.send(Command::Settle(answer));
        let thread: JoinHandle<()> = thread::spawn(move || {
            let _guard = guard;
            std::panic::resume_unwind(Box::new("a bug"));
        });
        assert!(thread.join().is_err());
        block_on(async {
            assert!(before.await.is_err());
            assert!(channel.count_members().await.is_none());
        });
    }
}
