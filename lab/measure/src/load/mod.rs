//! A load generator: as many viewers as asked for, of any server that speaks RTSP, ours or another.
//!
//! Viewers come, watch, seek, pause and leave as the [`Settings`] say. What they are sent is
//! received by real sockets, or counted and dropped by the [sink](onrush_testkit::sink) at the
//! receiving device, for viewers by the thousand. What comes on connections is thrown away by most
//! of them without a copy, and looked at by some. Told is what a viewer notices: whether a stream
//! came whole, in order and on time, and how soon it began; and what it cost the server. All
//! viewers share one thread.

pub mod account;
mod client;
mod connection;
mod follow;
pub mod hls;
mod hls_connection;
mod hls_player;
mod hls_playlist;
pub mod hls_report;
pub mod http;
mod http_client;
pub mod http_report;
mod plan;
mod receiving;
pub mod report;
mod rtsp;
mod server;
mod shared;
mod transport;

use std::io;

use onrush_testkit::playout::{Played, Playouts};
use onrush_testkit::sink::SinkError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::refuse;
use crate::experiment::{Environment, Record};
use crate::histogram::{Histogram, Quantiles};
pub use account::Account;
pub use follow::Arrived;
pub(crate) use follow::Follow;
pub use plan::{Arrival, Behaviour};
pub use server::{Memory, Usage};
pub use transport::Transport;

/// Its name on the command line and in files.
pub const NAME: &str = "load";

/// Viewers at the most: each takes two ports, and half of all is left to others.
pub const CLIENTS_MAX: u32 = 20_000;

/// Viewers that look at what comes on their connections, unless said otherwise.
pub const INSPECTED: u32 = 16;

/// Streams that a record keeps one by one, those that ended first; all count in the totals.
pub const STREAMS_KEPT_MAX: usize = 20_000;

/// A burst of the usual length.
pub const BURST_NS: u64 = 20_000_000;

/// So many bursts a player buffers besides what may be late: one that is due and the next, which
/// may come with it.
pub const BURSTS_BUFFERED: u64 = 2;

/// What a player buffers of sound that is a track of its own, besides what may be late: packets of
/// it that are due less than this apart leave in one train (docs/media.md).
pub const SOUND_BUFFERED_NS: u64 = 160_000_000;

/// So long a viewer may wait for its first packet, unless said otherwise.
pub const START_UP_NS_MAX: u64 = 5_000_000_000;

/// What is measured.
pub type LoadRecord = Record<Settings, Run>;

/// How the load is made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// What is watched, the most popular first.
    #[serde(serialize_with = "crate::experiment::urls_without_secrets")]
    pub urls: Vec<String>,
    /// How popularity falls from one to the next (Zipf's exponent); 0: all alike.
    pub zipf: f64,
    /// Viewers at once, 1 to [`CLIENTS_MAX`].
    pub clients: u32,
    /// How they come.
    pub arrival: Arrival,
    /// Within which time.
    pub ramp_ns: u64,
    /// How long the load lasts once all have come.
    pub time_ns: u64,
    /// Every client has an URL of its own, as far as they go: they are dealt out in turn, not drawn
    /// by `zipf`.
    #[serde(default)]
    pub in_turn: bool,
    /// What they do.
    pub behaviour: Behaviour,
    /// How packets come to viewers.
    #[serde(default)]
    pub transport: Transport,
    /// Of the viewers whose packets come on their connections, so many look at them, spread over
    /// all; the others throw away what comes. Of those whose packets are encrypted datagrams, so
    /// many decrypt them.
    #[serde(default)]
    pub inspected: u32,
    /// Who viewers are, and their password; it is in no record.
    #[serde(skip)]
    pub user: Option<(String, String)>,
    /// How packets are received that come to ports.
    pub receive: Receive,
    /// The first port for RTP; even.
    pub port_first: u16,
    /// A packet later than this is late.
    pub lateness_ns_max: i64,
    /// Of all packets, so many may be late.
    pub late_part_max: f64,
    /// So many viewers are to watch at the end; others may be refused for want of room. `None`: all
    /// are to.
    #[serde(default)]
    pub aim: Option<u32>,
    /// What a viewer's player buffers: a packet is late whose transit is that much longer than the
    /// least of the viewer's warm-up ([`onrush_testkit::playout`]). `None`, and in records from
    /// before: judged is lateness against the first packet.
    #[serde(default)]
    pub buffer_ns: Option<u64>,
    /// So long 999 of 1000 viewers may wait for their first packet, from when they were to come.
    /// Judged where `buffer_ns` is.
    #[serde(default = "start_up_ns_max")]
    pub start_up_ns_max: u64,
    /// The server's process, if it runs here.
    pub pid: Option<u32>,
    /// The processor that it sends on, if it has one of its own.
    #[serde(default)]
    pub core: Option<usize>,
    /// What places, choices and times are drawn from.
    pub seed: u64,
    /// The time that all watch is told of in slices of this length too; 0: not.
    #[serde(default)]
    pub slice_ns: u64,
}

const fn start_up_ns_max() -> u64 {
    START_UP_NS_MAX
}

/// What a viewer says whom the server does not let in, because it has enough to do.
pub(crate) const NOT_LET_IN: &str = "SETUP was answered 453";

/// How packets are received.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receive {
    /// By a socket for each stream.
    Sockets,
    /// By the counting sink at this device, which then drops them: needs root.
    Sink {
        /// The device where packets arrive.
        device: String,
        /// RTP headers are looked at in every so many socket buffers of a stream; 1: in all.
        look_every: u16,
        /// Whether bursts are followed; otherwise trains are told of in their place.
        #[serde(default)]
        bursts: bool,
    },
}

/// What was seen.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// From when all had come to the end.
    pub wall_ns: u64,
    /// Visits: viewers that came, and came again.
    pub visits: u64,
    /// Of those, ended by something else than the viewer; each reason, and how often.
    pub failures: Vec<(String, u64)>,
    /// Visits that got to play.
    pub played: u64,
    /// How often viewers jumped, paused, and left of their own accord.
    #[serde(default)]
    pub acts: Acts,
    /// Viewers that watched at the end.
    pub watching: u32,
    /// All streams together; the extremes are of the worst.
    pub totals: Arrived,
    /// Packets by lateness, from when all had come to the end. By the sink, of those looked at.
    pub lateness: Histogram,
    /// RTP packets that arrived in that time.
    pub packets_steady: u64,
    /// From when the viewer was to come to the first packet, of each visit that saw one: who was
    /// refused before has waited all the while, or with an aim since it came again. In older
    /// records from the first request.
    pub start_up_ns: Vec<u64>,
    /// Viewers that still waited for a first packet at the end, and had for longer than they may;
    /// with an aim none of those who were refused for want of room.
    #[serde(default)]
    pub unserved: u64,
    /// What viewers would have had to buffer, of those who look at what comes.
    #[serde(default)]
    pub playouts: Option<Playouts>,
    /// How well the load generator kept up.
    #[serde(default)]
    pub generator: Option<Generator>,
    /// What the server's process used in that time.
    pub server: Option<Usage>,
    /// Processor time of the load generator in that time.
    pub own_cpu_ns: u64,
    /// Streams one by one, at most [`STREAMS_KEPT_MAX`].
    pub streams: Vec<Stream>,
    /// Packets that the sink counted in all, from before the first viewer came to after the last
    /// had gone.
    #[serde(default)]
    pub packets_sunk: Option<u64>,
    /// Slices of the time that all watched.
    #[serde(default)]
    pub slices: Vec<Slice>,
    /// What came to viewers on their connections.
    #[serde(default)]
    pub connections: Option<Connections>,
}

/// How late the load generator itself was, which is not the server's fault.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Generator {
    /// How late its own timers rang, at the most.
    pub late_ns_max: u64,
    /// How long a datagram lay in a socket until it was read, at the most; it counts from when it
    /// came.
    pub unread_ns_max: u64,
    /// Datagrams that its sockets had no room for (SO_RXQ_OVFL).
    pub dropped: u64,
}

/// What came on the connections of viewers while all watched, as bytes that TCP carried.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Connections {
    /// Bytes to those whose packets were looked at.
    pub inspected_bytes: u64,
    /// Bytes to the others.
    pub unread_bytes: u64,
}

/// What viewers did besides watching.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Acts {
    /// They jumped to another place.
    pub seeks: u64,
    /// Visits of those that jumped at least once.
    #[serde(default)]
    pub jumped: u64,
    /// They paused for a second.
    pub pauses: u64,
    /// They left before the end.
    pub leaves: u64,
}

/// A slice of the time that all watched.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Slice {
    /// When it ended, since all had come.
    pub end_ns: u64,
    /// RTP packets that arrived in it.
    pub packets: u64,
    /// How late they were; all by lateness are in [`Run::lateness`], once.
    #[serde(deserialize_with = "crate::histogram::quantiles")]
    pub lateness: Quantiles,
    /// What viewers would have had to buffer whose visits ended in it; `None` without any.
    #[serde(default)]
    pub needed: Option<Needed>,
    /// What the server used in it, and its memory at its end.
    pub server: Option<Usage>,
    /// What that memory is.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Whose processor time it was, where the server has a processor of its own.
    #[serde(default)]
    pub account: Option<Account>,
    /// Visits that had begun by its end, from the very first.
    #[serde(default)]
    pub visits: u64,
}

/// What some viewers would have had to buffer, each for 999 of 1000 of its packets.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Needed {
    /// How many viewers; not 0.
    pub viewers: u64,
    /// Packets that were due to them and had not come.
    pub missing: u64,
    /// Half of them had enough with this, in ns.
    pub p50_ns: u64,
    /// 99 of 100.
    pub p99_ns: u64,
    /// All.
    pub max_ns: u64,
}

impl Needed {
    /// What these needed; `None` if there are none.
    #[must_use]
    pub fn of(playouts: &Playouts) -> Option<Self> {
        Some(Self {
            viewers: playouts.viewers,
            missing: playouts.missing,
            p50_ns: playouts.needed_ns(0.5)?,
            p99_ns: playouts.needed_ns(0.99)?,
            max_ns: playouts.needed_ns(1.0)?,
        })
    }
}

/// What one viewer saw of one stream.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Stream {
    /// Which URL.
    pub url: u32,
    /// When it was asked for, since the load began.
    pub begin_ns: u64,
    /// How long it was watched.
    pub watched_ns: u64,
    /// What arrived.
    pub arrived: Arrived,
    /// What its player would have had to buffer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub played: Option<Played>,
}

/// How it goes, once or twice a second.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the load began.
    pub elapsed_ns: u64,
    /// How long it will take in all.
    pub total_ns: u64,
    /// Viewers that watch now.
    pub watching: u32,
    /// Visits that failed so far.
    pub failed: u64,
}

/// Why no load could be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Settings(String),
    /// The address of a server is not known.
    #[error("{url}: {reason}; an URL is rtsp[s]://HOST[:PORT]/PATH or http://HOST[:PORT]/PATH")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The sink cannot be had.
    #[error("{0}; without --sink packets are received by sockets, which needs no rights")]
    Sink(#[from] SinkError),
    /// There is no such process, or it has ended.
    #[error(
        "process {pid}: {source}; --pid takes the number of the server's process on this machine"
    )]
    Pid {
        /// Its number.
        pid: u32,
        /// What the system said.
        source: io::Error,
    },
    /// The system refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Makes the load, on this thread and in the network namespace that it is in. SIGINT (Ctrl-C) ends
/// it early.
///
/// # Errors
///
/// If the load could not be made. What went wrong for single viewers is in the record.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl Fn(Progress) + 'static,
) -> Result<LoadRecord, LoadError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    record.runs.push(make(settings, progress, true)?);
    Ok(record)
}

/// The same without a record, for experiments that are made of loads: SIGINT ends all of one.
pub(crate) fn run_unrecorded(
    settings: &Settings,
    progress: impl Fn(Progress) + 'static,
) -> Result<Run, LoadError> {
    make(settings, progress, false)
}

fn make(
    settings: &Settings,
    progress: impl Fn(Progress) + 'static,
    may_interrupt: bool,
) -> Result<Run, LoadError> {
    settings.check()?;
    shared::on_this_thread(client::all(settings, progress, may_interrupt))
}

impl Settings {
    /// Those that a URL and a number of viewers are enough for.
    #[must_use]
    pub fn new(urls: Vec<String>, clients: u32) -> Self {
        Self {
            urls,
            zipf: 1.0,
            in_turn: false,
            clients,
            arrival: Arrival::Ramp,
            // Two hundred a second.
            ramp_ns: u64::from(clients) * 5_000_000,
            time_ns: 10_000_000_000,
            behaviour: Behaviour::default(),
            transport: Transport::default(),
            inspected: INSPECTED,
            user: None,
            receive: Receive::Sockets,
            port_first: 20_000,
            lateness_ns_max: 20_000_000,
            late_part_max: 0.001,
            aim: None,
            buffer_ns: Some(20_000_000 + BURSTS_BUFFERED * BURST_NS),
            start_up_ns_max: START_UP_NS_MAX,
            pid: None,
            core: None,
            seed: 1,
            slice_ns: 0,
        }
    }

    /// Refuses what cannot be done, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`LoadError::Settings`].
    pub fn check(&self) -> Result<(), LoadError> {
        shared::check(&self.urls, self.clients, self.zipf, self.time_ns)?;
        let first = self.port_first;
        let ports_left = (u32::from(u16::MAX) - u32::from(first)) / 2;
        refuse! { LoadError::Settings;
            first < 1024 || !first.is_multiple_of(2) || ports_left < self.clients
                => "ports from {first}: ask for an even one from 1024, with two above it for each \
                    client";
            !(0.0..=1.0).contains(&self.late_part_max)
                => "{} of the packets may be late: ask for 0 to 1", self.late_part_max;
            self.aim.is_some_and(|aim| !(1..=self.clients).contains(&aim))
                => "an aim of {} viewers: ask for 1 to {}, which is how many come",
                    self.aim.unwrap_or(0), self.clients;
        }
        self.check_transport()?;
        self.behaviour.check()
    }

    fn check_transport(&self) -> Result<(), LoadError> {
        let transport = self.transport;
        self.urls.iter().try_for_each(|url| transport.check(url))?;
        let has_sink = matches!(self.receive, Receive::Sink { .. });
        refuse! { LoadError::Settings;
            transport.is_interleaved() && self.inspected == 0
                => "nobody looks at packets: ask for one viewer or more that does";
            transport == Transport::Multicast && has_sink
                => "the sink counts packets by port, and a group has one: leave it out";
        }
        Ok(())
    }

    /// How many viewers look at what comes on their connections, of those who have it there.
    #[must_use]
    pub fn inspected(&self) -> u32 {
        self.inspected.min(self.clients)
    }

    /// Whether the viewer at that place among all is one that looks, spread over all of them.
    pub(crate) fn inspects(&self, place: u64) -> bool {
        let (looking, all) = (u64::from(self.inspected()), u64::from(self.clients.max(1)));
        (place + 1) * looking / all > place * looking / all
    }
}

impl Connections {
    /// What came since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            inspected_bytes: self.inspected_bytes - earlier.inspected_bytes,
            unread_bytes: self.unread_bytes - earlier.unread_bytes,
        }
    }
}

impl Run {
    /// RTP packets that came while all watched. Of connections that nobody looked into, as many as
    /// their bytes make at the mean length of the others' packets, in frames and in TLS.
    #[must_use]
    pub fn packets_of_all(&self) -> u64 {
        let Some(connections) = self.connections.filter(|it| it.inspected_bytes > 0) else {
            return self.packets_steady;
        };
        let all = u128::from(connections.inspected_bytes) + u128::from(connections.unread_bytes);
        let packets = u128::from(self.packets_steady) * all;
        let packets = packets / u128::from(connections.inspected_bytes);
        u64::try_from(packets).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_nobody_read_count_as_packets() {
        let mut run = Run {
            packets_steady: 100,
            ..Run::default()
        };
        assert_eq!(run.packets_of_all(), 100);
        run.connections = Some(Connections {
            inspected_bytes: 133_200,
            unread_bytes: 399_600,
        });
        assert_eq!(run.packets_of_all(), 400);
        run.connections = Some(Connections::default());
        assert_eq!(run.packets_of_all(), 100);
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_bound() {
        let good = Settings::new(vec!["rtsp://h/x".to_owned()], CLIENTS_MAX);
        good.check().expect("the most clients");
        let wrong: [fn(&mut Settings); 14] = [
            |s| s.behaviour.active_part = 1.1,
            |s| s.urls.clear(),
            |s| s.clients = 0,
            |s| s.clients = CLIENTS_MAX + 1,
            |s| s.zipf = f64::NAN,
            |s| s.zipf = 11.0,
            |s| s.time_ns = 0,
            |s| s.port_first = 20_001,
            |s| s.port_first = 40_000,
            |s| s.late_part_max = 1.5,
            |s| s.aim = Some(0),
            |s| s.aim = Some(s.clients + 1),
            |s| (s.transport, s.inspected) = (Transport::Tcp, 0),
            |s| s.transport = Transport::Tls,
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            let mut settings = good.clone();
            change(&mut settings);
            assert!(settings.check().is_err(), "case {i}");
        }
    }

    #[test]
    fn no_record_has_a_password() {
        let settings = Settings {
            user: Some(("anna".to_owned(), "secret".to_owned())),
            ..Settings::new(vec!["rtsp://anna:secret@h/x?token=secret".to_owned()], 1)
        };
        let recorded = serde_json::to_value(&settings).unwrap();
        assert_eq!(
            recorded["urls"],
            serde_json::json!(["rtsp://h/x?token=***"])
        );
        assert!(!recorded.to_string().contains("secret"), "{recorded}");
        let of_http = http::HttpSettings::new(settings.urls.clone(), 1);
        let of_hls = hls::HlsSettings::new(settings.urls.clone(), 1);
        for recorded in [
            serde_json::to_string(&of_http),
            serde_json::to_string(&of_hls),
        ] {
            assert!(!recorded.unwrap().contains("secret"));
        }
    }

    #[test]
    fn so_many_viewers_look_as_are_asked_for() {
        for (clients, inspected, looking) in [(10, 3, 3), (10, 10, 10), (3, 16, 3), (7, 1, 1)] {
            let settings = Settings {
                inspected,
                ..Settings::new(vec!["rtsp://h/x".to_owned()], clients)
            };
            let places = (0..u64::from(clients)).filter(|&place| settings.inspects(place));
            assert_eq!(places.count(), looking, "{clients} {inspected}");
        }
    }
}
