//! `onrush-lab bench http`: what a download costs, beside another server and beside a bare
//! `sendfile` loop; or a segment of a film, beside another server that has it cut in its folder.
//!
//! All serve the same files from the page cache, on loopback, each pinned to the same processor,
//! one measured at a time, in turns. The client runs on the other processors, counts every byte
//! that arrives and throws it away in the kernel (`MSG_TRUNC`), so that it is not what is measured.
//! Before anything is measured each server must deliver each file byte for byte.
//!
//! `client` stands on `asking`, and that on `tls`.

mod asking;
mod client;
mod contestant;
mod report;
mod segments;
mod tls;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onrush_primitives::named;
use onrush_sys::thread::keep_off;
use serde::{Deserialize, Serialize};

use self::asking::Part;
use self::client::{Loaded, Target};
use self::contestant::Running;
use self::tls::Identity;
use crate::counters::Counted;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::machine::{Awake, core_times, yardstick_ns};
use crate::own_folder::OwnFolder;
use crate::random::Random;
use crate::setup::{in_turn, on_core, system, two_cores};
pub use report::report;
pub use tls::IdentityFiles;

/// Its name on the command line and in files.
pub const NAME: &str = "http";

/// What is measured.
pub type HttpRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// The other server's version; without it only the bare loop is compared.
    pub peer: Option<String>,
    /// The congestion control of all connections; `None` in records that do not say.
    #[serde(default)]
    pub congestion: Option<String>,
    /// How often everything has its turn.
    pub repeats: u32,
    /// Length of the large file.
    pub large_bytes: u64,
    /// How often one connection downloads it in a run.
    pub large_downloads: u32,
    /// Connections that download it at once.
    pub parallel: u32,
    /// Length of the small files.
    pub small_bytes: u64,
    /// How many there are.
    pub small_files: u32,
    /// Connections that ask for them, one request after the other.
    pub small_connections: u32,
    /// How long they do.
    pub small_ns: u64,
    /// Segments of films are asked for instead of files.
    #[serde(default)]
    pub hls: Option<Hls>,
    /// Our server keeps no segments in memory: each is sent from its film.
    #[serde(default)]
    pub computed: bool,
    /// The same is asked for over TLS as well.
    #[serde(default)]
    pub tls: bool,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
}

/// Which segments are asked for, and how.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Hls {
    /// Bits a second of the films.
    pub rate_bps: u64,
    /// How long they play: segments are of six seconds.
    pub seconds: u64,
    /// Connections that ask for them, one request after the other.
    pub connections: u32,
    /// How long they do.
    pub time_ns: u64,
}

/// What a server is started with.
#[derive(Debug)]
pub struct Serving<'a> {
    /// The folder that it serves.
    pub files: &'a Path,
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens for TLS, and what it shows there; `None`: nowhere.
    pub tls: Option<(SocketAddr, IdentityFiles)>,
}

named! {
    /// Who serves.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Contestant {
        /// `onrush serve`.
        Onrush = "onrush",
        /// nginx, with `sendfile on` and one process.
        Nginx = "nginx",
        /// A thread that accepts, reads a head, and calls `sendfile` on a blocking socket until all
        /// is sent: the least that a server can do.
        SendfileLoop = "sendfile loop",
    }
}

named! {
    /// What is asked for.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Load {
        /// The large file, one connection after the other.
        One = "one large",
        /// The large file, many connections at once.
        Parallel = "many large",
        /// Small files, on connections that stay.
        Small = "small",
        /// Segments that are ranges of a transport stream.
        Ts = "TS segments",
        /// Segments that are made of an MP4 file's samples.
        Cmaf = "CMAF segments",
        /// The large file over TLS, on connections that stay.
        OneTls = "large over TLS",
        /// As `Ts`, over TLS.
        TsTls = "TS segments over TLS",
        /// As `Cmaf`, over TLS.
        CmafTls = "CMAF segments over TLS",
    }
}

/// One run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who served.
    pub contestant: Contestant,
    /// What.
    pub load: Load,
    /// Which repeat, from 0. What has the same was measured turn about.
    pub repeat: u32,
    /// A fixed piece of work before it took so long.
    pub yardstick_ns: u64,
    /// From the first request to the last byte.
    pub wall_ns: u64,
    /// Processor time of the server, all its threads, in user and kernel mode.
    pub cpu_ns: u64,
    /// Of that, in user and in kernel mode, in steps of a clock tick; `None` where that is not told
    /// apart.
    #[serde(default)]
    pub user_and_system_ns: Option<[u64; 2]>,
    /// What the processor counted of the server meanwhile, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// Time that the server's processor was not idle, but for the thread that keeps it awake.
    pub core_busy_ns: u64,
    /// Bytes of bodies that arrived.
    pub bytes: u64,
    /// Requests that were answered in full.
    pub requests: u64,
    /// How even the connections' shares were when half of all bytes had arrived (Jain); 1 for one.
    pub evenness: f64,
}

impl Settings {
    /// The whole experiment: about three minutes.
    #[must_use]
    pub fn full() -> Self {
        Self {
            peer: None,
            congestion: congestion(),
            repeats: 9,
            large_bytes: 256 << 20,
            large_downloads: 8,
            parallel: 64,
            small_bytes: 100_000,
            small_files: 64,
            small_connections: 32,
            small_ns: 3_000_000_000,
            hls: None,
            computed: false,
            tls: false,
            counters: false,
        }
    }

    /// The same of segments instead of files.
    #[must_use]
    pub fn of_films(self) -> Self {
        let hls = Hls {
            rate_bps: 4_000_000,
            seconds: 120,
            connections: 8,
            time_ns: self.small_ns,
        };
        Self {
            hls: Some(hls),
            ..self
        }
    }

    /// Shorter: about half a minute.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            repeats: 5,
            large_bytes: 64 << 20,
            small_ns: 1_000_000_000,
            ..Self::full()
        }
    }

    fn contestants(&self) -> Vec<Contestant> {
        let peer = self.peer.as_ref().map(|_| Contestant::Nginx);
        let sendfile_loop = Contestant::SendfileLoop;
        let all = [
            Some(Contestant::Onrush),
            peer,
            self.hls.is_none().then_some(sendfile_loop),
        ];
        all.into_iter().flatten().collect()
    }

    fn loads(&self) -> Vec<Load> {
        use Load::{Cmaf, CmafTls, One, OneTls, Parallel, Small, Ts, TsTls};
        match (self.hls.is_some(), self.tls) {
            (false, false) => vec![One, Parallel, Small],
            (false, true) => vec![One, Parallel, Small, OneTls],
            (true, false) => vec![Ts, Cmaf],
            (true, true) => vec![Ts, Cmaf, TsTls, CmafTls],
        }
    }

    /// Of loads whose bytes are compared: connections, and how long they ask.
    fn of_segments(&self) -> (u32, u64) {
        let of_files = (LARGE_CONNECTIONS, self.small_ns);
        self.hls.map_or(of_files, |it| (it.connections, it.time_ns))
    }
}

impl Load {
    /// Whether this contestant takes part.
    const fn has(self, contestant: Contestant) -> bool {
        // The bare loop serves one connection at a time.
        matches!(self, Self::One) || !matches!(contestant, Contestant::SendfileLoop)
    }

    const fn is_tls(self) -> bool {
        matches!(self, Self::OneTls | Self::TsTls | Self::CmafTls)
    }

    /// What the paths begin with that it asks for.
    const fn paths(self) -> &'static str {
        match self {
            Self::One | Self::Parallel | Self::OneTls => "/large.bin",
            Self::Small => "/small",
            Self::Ts | Self::TsTls => "/film.ts/",
            Self::Cmaf | Self::CmafTls => "/film.mp4/",
        }
    }
}

/// What new connections have here (tcp(7)).
fn congestion() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok()?;
    Some(name.trim().to_owned())
}

/// The peer's version, if it can be run here.
#[must_use]
pub fn peer_version() -> Option<String> {
    let output = Command::new(contestant::nginx_program())
        .arg("-v")
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines()
        .find_map(|line| Some(line.split_once(": ")?.1.to_owned()))
}

/// Carries it out. `serve` starts `onrush serve`; `progress` hears how much of the whole is done.
///
/// # Errors
///
/// If there are too few processors, or a server does not start or serves something else.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    serve: &(dyn Fn(&Serving<'_>) -> Command + Sync),
    mut progress: impl FnMut(f64),
) -> Result<HttpRecord, ExperimentError> {
    let (_, core) = two_cores("the servers")?;
    let mut environment = Environment::here(version, command);
    "loopback".clone_into(&mut environment.network);
    let mut files = Files::make(settings).map_err(system("make the files to serve"))?;
    // What is started here stays on the processor that it is started on.
    let running: Vec<_> = on_core(core, || {
        let contestants = settings.contestants().into_iter();
        contestants
            .map(|it| Running::start(it, files.folder_of(it), files.identity.as_ref(), serve))
            .collect::<Result<_, ExperimentError>>()
    })?;
    let awake = Awake::keep(core).map_err(system("keep a processor awake"))?;
    keep_off(&[core]);
    files.cut(settings, &running)?;
    for contestant in &running {
        files.check(settings, contestant)?;
    }
    let mut record = Record::new(NAME, environment, settings.clone());
    let rounds = f64::from(settings.repeats);
    let all: Vec<_> = running.iter().collect();
    for repeat in 0..settings.repeats {
        for load in settings.loads() {
            let order = in_turn(&all, repeat);
            for contestant in order.filter(|running| load.has(running.contestant)) {
                let served = (contestant, &files);
                let awake = Some((core, &awake));
                let run = measure(settings, load, served, awake, repeat)?;
                record.runs.push(run);
            }
        }
        progress(f64::from(repeat + 1) / rounds);
    }
    Ok(record)
}

fn measure(
    settings: &Settings,
    load: Load,
    (running, files): (&Running, &Files),
    awake: Option<(usize, &Awake)>,
    repeat: u32,
) -> Result<Run, ExperimentError> {
    let yardstick_ns = yardstick_ns();
    let rested_ns = || {
        let Some((core, awake)) = awake else { return 0 };
        let times = core_times().get(core).copied().unwrap_or_default();
        times.idle_ns + times.stolen_ns + awake.cpu_ns()
    };
    let rested_before_ns = rested_ns();
    let parts = files.parts_of(load);
    let target = files.target(running, &parts);
    let counting = running.counting(settings.counters);
    let begun = counting.now();
    let (before, begin) = (running.processor_time(), Instant::now());
    let loaded = client::load(settings, load, target)
        .map_err(system("download from a server that is measured"))?;
    let wall_ns = nanos(begin.elapsed());
    let after = running.processor_time();
    let counted = Counted::between(begun, counting.now());
    let rested_ns = rested_ns() - rested_before_ns;
    let Loaded {
        bytes,
        requests,
        evenness,
    } = loaded;
    Ok(Run {
        contestant: running.contestant,
        load,
        repeat,
        yardstick_ns,
        wall_ns,
        cpu_ns: after.cpu_ns - before.cpu_ns,
        user_and_system_ns: after
            .user_and_system_ns
            .zip(before.user_and_system_ns)
            .map(|([user, system], before)| [user - before[0], system - before[1]]),
        counted,
        core_busy_ns: wall_ns.saturating_sub(rested_ns),
        bytes,
        requests,
        evenness,
    })
}

/// The files that all serve, gone when it is.
struct Files {
    folder: OwnFolder,
    /// Where segments lie for the peer, which cannot make them.
    segments: OwnFolder,
    names: Vec<String>,
    parts: Vec<Part>,
    identity: Option<Identity>,
}

impl Files {
    fn make(settings: &Settings) -> io::Result<Self> {
        let (folder, segments) = (readable_folder()?, readable_folder()?);
        let identity = settings.tls.then(Identity::make);
        let mut files = Self {
            identity: identity.transpose()?,
            folder,
            segments,
            names: Vec::new(),
            parts: Vec::new(),
        };
        if let Some(hls) = &settings.hls {
            segments::write_films(hls, files.folder.path())?;
            return Ok(files);
        }
        let mut random = Random::new(1);
        let mut write = |name: &str, bytes: u64| {
            random.write(fs::File::create(files.folder.path().join(name))?, bytes)
        };
        write(LARGE, settings.large_bytes)?;
        files.names.push(LARGE.to_owned());
        for i in 0..settings.small_files {
            files.names.push(small(i));
            write(&small(i), settings.small_bytes)?;
        }
        if settings.tls {
            files.parts.push(Part {
                path: format!("/{LARGE}"),
                bytes: fs::read(files.path(LARGE))?,
            });
        }
        Ok(files)
    }

    fn folder_of(&self, contestant: Contestant) -> &Path {
        let has_segments = self.names.is_empty() && contestant == Contestant::Nginx;
        match has_segments {
            true => self.segments.path(),
            false => self.folder.path(),
        }
    }

    /// Has our server cut the films, for all others.
    fn cut(&mut self, settings: &Settings, running: &[Running]) -> Result<(), ExperimentError> {
        let mut all = running.iter();
        let ours = all.find(|it| it.contestant == Contestant::Onrush);
        let Some((_, ours)) = settings.hls.zip(ours) else {
            return Ok(());
        };
        for playlist in [segments::TS, segments::CMAF] {
            let cut = segments::cut(playlist, ours.address, self.segments.path());
            self.parts.extend(cut.map_err(system("fetch segments"))?);
        }
        Ok(())
    }

    /// Each file and each segment, from this server, byte by byte. Warms the cache as well.
    fn check(&self, settings: &Settings, running: &Running) -> Result<(), ExperimentError> {
        let failed = "download from a server that is to be measured";
        for name in &self.names {
            let wanted = fs::read(self.path(name)).map_err(system("read a file back"))?;
            let got = client::fetch(running.address, name).map_err(system(failed))?;
            if got != wanted {
                let (contestant, file) = (running.contestant, name.clone());
                return Err(ExperimentError::subject(format!(
                    "{contestant:?} did not send {file} as it is; nothing was measured"
                )));
            }
        }
        let loads = settings.loads().into_iter();
        for load in loads.filter(|load| load.has(running.contestant)) {
            let parts = self.parts_of(load);
            client::check(load, self.target(running, &parts)).map_err(system(failed))?;
        }
        Ok(())
    }

    fn parts_of(&self, load: Load) -> Vec<&Part> {
        let parts = self.parts.iter();
        parts
            .filter(|part| part.path.starts_with(load.paths()))
            .collect()
    }

    fn target<'a>(&'a self, running: &Running, parts: &'a [&'a Part]) -> Target<'a> {
        Target {
            address: running.address,
            tls: running.tls_address.zip(self.identity.as_ref()),
            parts,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A folder that nginx can read, which looks it up as another user where it is started by root.
fn readable_folder() -> io::Result<OwnFolder> {
    let folder = OwnFolder::new()?;
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), readable)?;
    Ok(folder)
}

/// Connections that ask for the large file over TLS.
const LARGE_CONNECTIONS: u32 = 4;

const LARGE: &str = "large.bin";

fn small(i: u32) -> String {
    format!("small{i}.bin")
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small and short: that the loop's bytes are counted and its cost is seen, not how large it
    /// is.
    #[test]
    fn the_bare_loop_is_measured() {
        let settings = Settings {
            repeats: 1,
            large_bytes: 3 << 20,
            large_downloads: 2,
            small_files: 1,
            ..Settings::quick()
        };
        let files = Files::make(&settings).unwrap();
        let serve = |_: &Serving<'_>| unreachable!("only the loop is started");
        let folder = files.folder.path();
        let running = Running::start(Contestant::SendfileLoop, folder, None, &serve).unwrap();
        files.check(&settings, &running).unwrap();
        let run = measure(&settings, Load::One, (&running, &files), None, 0).unwrap();
        assert_eq!(run.requests, 2);
        assert_eq!(run.bytes, 2 * settings.large_bytes);
        assert!(run.cpu_ns > 0 && run.wall_ns > 0, "{run:?}");
    }
}
