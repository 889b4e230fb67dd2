//! The contestant: our engine, on the data plane that the server runs on.

use std::net::{TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use onrush_server::config::{Config, Limits};
use onrush_server::data::Data;
use onrush_server::engine::admission::LOAD_UNLIMITED;
use onrush_server::engine::numbering::RtpHeaders;
use onrush_server::engine::shared::{LATENESS_BUCKET_NS, LATENESS_FIRST_NS, WorkerShared};
use onrush_server::engine::{Destination, EngineError, Stream, StreamSrtp};
use onrush_server::library::{FilmKeys, Media};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::PathName;
use onrush_wire::srtp::{MasterKey, Suite};
use rustls::ServerConnection;
use tokio::runtime::{Builder, Runtime};

use super::record::{Contestant, Counts};
use super::sender::{Finished, LEAD_NS, Sender, Task};
use crate::error::ExperimentError;
use crate::machine;
use crate::setup::system;

/// How long the kernel may hold on to the last trains.
const WIND_UP_TIME_MAX: Duration = Duration::from_secs(5);

/// As [`Contestant::SrtpShared`] says.
const SHARED_KEY_SUITE: Suite = Suite::AesCm128HmacSha1;

/// What sessions are sent on, one for each of their tracks.
pub(super) enum Outlets {
    Datagrams(Vec<UdpSocket>),
    /// Encrypted by that, with a key for each.
    Srtp(Suite, Vec<UdpSocket>),
    /// Encrypted, with one key for all.
    SharedKey(Vec<UdpSocket>),
    Connections(Vec<TcpStream>),
    Sealed(Vec<(TcpStream, ServerConnection)>),
}

struct Engine {
    data: Data,
    streams: Vec<Stream>,
    /// What is under way on connections would be thrown away with them.
    is_interleaved: bool,
    has_one_track: bool,
    /// It does not run as what it was asked to.
    failed: Option<String>,
}

/// Starts a session on the outlets of each, one for each track, by the path `path` or not at all.
pub(super) fn start(
    task: &Task,
    path: PathName,
    headers: RtpHeaders,
    outlets: Outlets,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let config = config(task, path, headers);
    let data = Data::start(&config)?;
    let own_headers_path = data
        .engines()
        .counters()
        .next()
        .map(WorkerShared::own_headers_path);
    let is_available = data.path() == path
        && (headers != RtpHeaders::Own || own_headers_path == Some(Contestant::OwnHeaders.name()));
    let mut engine = Engine {
        failed: (!is_available)
            .then(|| format!("{path} is not available here; `onrush doctor` says why")),
        streams: Vec::new(),
        is_interleaved: matches!(outlets, Outlets::Connections(_) | Outlets::Sealed(_)),
        has_one_track: task.film.clocks_hz().len() == 1,
        data,
    };
    if engine.failed.is_none() {
        engine.play_all(task, &config, outlets)?;
    }
    Ok(Box::new(engine))
}

/// The server's own settings, but for what the experiment is about.
fn config(task: &Task, path: PathName, rtp_headers: RtpHeaders) -> Config {
    // The images are a little larger than the file, and a chunk's end stays empty. Never so small a
    // cache that the server would cut it into small chunks.
    let cache_bytes = usize::try_from(task.film.bytes()).unwrap_or(usize::MAX) / 4 * 5;
    Config {
        media_root: task.film.folder().to_owned(),
        burst: Duration::from_nanos(task.settings.burst_ns),
        cache_bytes: cache_bytes + (64 << 20),
        cores: vec![task.core],
        load_max_permille: LOAD_UNLIMITED,
        limits: Limits {
            sessions_max: (task.settings.sessions * task.settings.tracks_max()) as usize,
            ..Limits::default()
        },
        path,
        rtp_headers,
        ..Config::default()
    }
}

impl Engine {
    fn play_all(
        &mut self,
        task: &Task,
        config: &Config,
        outlets: Outlets,
    ) -> Result<(), ExperimentError> {
        self.data.wait_until_ready();
        let runtime = runtime()?;
        let media = task.film.open(config, &runtime)?;
        let cues = task.film.cues(&task.film.plans(&media)?, &task.settings);
        let tracks = cues.iter().flat_map(|cue| {
            let tracks = cue.tracks.iter().enumerate();
            tracks.map(|(track, &(from, later_ns))| (track, from, cue.phase_ns + later_ns))
        });
        let payload_bytes_max = task.film.payload_bytes();
        let keys = match outlets {
            Outlets::SharedKey(_) => Some(film_keys(&media)?),
            _ => None,
        };
        let open = |track, to| -> Result<Stream, ExperimentError> {
            let Some(keys) = &keys else {
                return Ok(self.data.open(&media, track, payload_bytes_max, to)?);
            };
            let chunk_bytes = self.data.chunk_bytes();
            let source = media.encrypted_source(keys, track, payload_bytes_max, chunk_bytes);
            let source = source.ok_or_else(no_shared_key)?;
            Ok(self.data.open_source(source, to)?)
        };
        let mut streams = Vec::new();
        for (outlet, (track, from, _)) in outlets.each().zip(tracks.clone()) {
            runtime.block_on(self.data.engines().ready());
            let stream = open(track, outlet(&self.data)?)?;
            runtime.block_on(stream.prepare(from))?;
            streams.push(stream);
        }
        self.streams = streams;
        let begin_ns = monotonic_ns() + LEAD_NS;
        for (stream, (_, from, phase_ns)) in self.streams.iter().zip(tracks) {
            let delay_ns = (begin_ns + phase_ns).saturating_sub(monotonic_ns());
            stream.play(from, None, Duration::from_nanos(delay_ns))?;
        }
        Ok(())
    }

    /// Has all streams stop, so that what was sent arrives.
    fn pause(&self) -> Result<(), ExperimentError> {
        let runtime = runtime()?;
        for stream in &self.streams {
            runtime.block_on(self.data.engines().ready());
            runtime.block_on(stream.pause())?;
        }
        self.wait_for_kernel();
        Ok(())
    }

    /// Waits, not for ever, until the kernel needs no memory of a train.
    fn wait_for_kernel(&self) {
        let give_up_ns = monotonic_ns() + u64::try_from(WIND_UP_TIME_MAX.as_nanos()).unwrap_or(0);
        let in_flight = || self.worker().in_flight.load(Ordering::Relaxed);
        while in_flight() > 0 && monotonic_ns() < give_up_ns {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn worker(&self) -> &WorkerShared {
        self.data
            .engines()
            .counters()
            .next()
            .expect("one engine was started")
    }
}

impl Sender for Engine {
    fn counts(&self) -> Counts {
        let worker = self.worker();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counts = Counts {
            packets: of(&worker.packets),
            bytes: of(&worker.bytes),
            packets_refused: of(&worker.packets_refused),
            crossings: of(&worker.crossings),
            ticks: of(&worker.ticks),
            trains: of(&worker.trains),
            trains_zero_copy: of(&worker.trains_zero_copy),
            trains_copied: of(&worker.trains_copied),
            trains_single: of(&worker.trains_single),
            underruns: of(&worker.underruns),
            lags: of(&worker.lags),
            ..Counts::default()
        };
        for (i, bucket) in (0..).zip(&worker.lateness) {
            counts
                .lateness
                .count(LATENESS_FIRST_NS + i * LATENESS_BUCKET_NS, of(bucket));
        }
        counts
    }

    fn stop(mut self: Box<Self>) -> Result<Finished, ExperimentError> {
        // Of several tracks nobody knows whose chunk it was.
        let source = self.streams.first().map(Stream::source);
        let source = source.filter(|_| self.has_one_track);
        let images_a_chunk = source.map_or(0, |source| source.packets_of(0).end);
        if self.is_interleaved {
            self.pause()?;
        }
        self.streams.clear();
        let give_up_ns = monotonic_ns() + u64::try_from(WIND_UP_TIME_MAX.as_nanos()).unwrap_or(0);
        let under_way = || {
            self.data.engines().streams() > 0 || self.worker().in_flight.load(Ordering::Relaxed) > 0
        };
        while under_way() && monotonic_ns() < give_up_ns {
            thread::sleep(Duration::from_millis(1));
        }
        let stuck = under_way().then(|| "the kernel did not give all memory back".to_owned());
        let chunks_built = &self.data.store().counters().chunks_built;
        Ok(Finished {
            counts: self.counts(),
            builder_cpu_ns: machine::cpu_ns_of_all(&machine::threads_named("onrush-build-")),
            images_built: chunks_built.load(Ordering::Relaxed) * images_a_chunk,
            failed: self.failed.take().or(stuck),
        })
    }
}

/// Makes a destination of an outlet.
type Open = Box<dyn FnOnce(&Data) -> Result<Destination, EngineError>>;

impl Outlets {
    fn each(self) -> Box<dyn Iterator<Item = Open>> {
        match self {
            Self::Datagrams(sockets) | Self::SharedKey(sockets) => {
                let open = |socket: UdpSocket| -> Open { Box::new(move |_| Ok(socket.into())) };
                Box::new(sockets.into_iter().map(open))
            }
            Self::Srtp(suite, sockets) => {
                let open = move |(number, socket): (u32, UdpSocket)| -> Open {
                    let key = key_of(suite, number.into());
                    let srtp = Arc::new(StreamSrtp::new(&key, number));
                    let socket = socket.into();
                    Box::new(move |_| Ok(Destination::Encrypted { socket, srtp }))
                };
                Box::new((0..).zip(sockets).map(open))
            }
            Self::Connections(sockets) => {
                let open = |socket| -> Open { Box::new(|data| on_connection(data, socket, None)) };
                Box::new(sockets.into_iter().map(open))
            }
            Self::Sealed(sockets) => {
                let open = |(socket, tls)| -> Open {
                    Box::new(|data| on_connection(data, socket, Some(tls)))
                };
                Box::new(sockets.into_iter().map(open))
            }
        }
    }
}

fn on_connection(
    data: &Data,
    socket: TcpStream,
    tls: Option<ServerConnection>,
) -> Result<Destination, EngineError> {
    Ok(Destination::Interleaved {
        connection: data.engines().connect(socket.into(), tls)?,
        channel: 0,
    })
}

/// The keys of images that all sessions share, as new viewers are told them.
fn film_keys(media: &Media) -> Result<Arc<FilmKeys>, ExperimentError> {
    media.film_keys(SHARED_KEY_SUITE).ok_or_else(no_shared_key)
}

fn no_shared_key() -> ExperimentError {
    ExperimentError::subject("the film cannot be encrypted once for all sessions")
}

/// A key of each session's own; nobody is kept from knowing it.
fn key_of(suite: Suite, session: u64) -> MasterKey {
    let bytes = session.to_be_bytes().into_iter().cycle();
    let bytes: Vec<_> = bytes.take(suite.master_bytes()).collect();
    MasterKey::new(suite, &bytes).expect("as long as a key is")
}

/// Runs what the server runs beside its engines.
pub(super) fn runtime() -> Result<Runtime, ExperimentError> {
    let built = Builder::new_current_thread().enable_all().build();
    Ok(built.map_err(system("start a runtime"))?)
}
