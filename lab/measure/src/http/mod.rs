//! `onrush-lab bench http`: what a download costs, beside another server and beside a bare
//! `sendfile` loop.
//!
//! All serve the same files from the page cache, on loopback, each pinned to the same processor,
//! one measured at a time, in turns. The client runs on the other processors, counts every byte
//! that arrives and throws it away in the kernel (`MSG_TRUNC`), so that it is not what is measured.
//! Before anything is measured each server must deliver each file byte for byte.

mod client;
mod contestant;
mod report;

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use onrush_primitives::named;
use onrush_sys::thread::keep_off;
use serde::{Deserialize, Serialize};

use self::client::Loaded;
use self::contestant::Running;
use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
use crate::machine::{Awake, core_times, yardstick_ns};
use crate::random::Random;
use crate::setup::{in_turn, on_core, system, two_cores};
pub use report::report;

/// Its name on the command line and in files.
pub const NAME: &str = "http";

/// What is measured.
pub type HttpRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// The other server's version; without it only the bare loop is compared.
    pub peer: Option<String>,
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
            repeats: 9,
            large_bytes: 256 << 20,
            large_downloads: 8,
            parallel: 64,
            small_bytes: 100_000,
            small_files: 64,
            small_connections: 32,
            small_ns: 3_000_000_000,
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
        let all = [
            Some(Contestant::Onrush),
            peer,
            Some(Contestant::SendfileLoop),
        ];
        all.into_iter().flatten().collect()
    }
}

impl Load {
    /// Whether this contestant takes part.
    const fn has(self, contestant: Contestant) -> bool {
        // The bare loop serves one connection at a time.
        matches!(self, Self::One) || !matches!(contestant, Contestant::SendfileLoop)
    }
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

/// Carries it out. `serve` starts `onrush serve` of a folder at an address; `progress` hears how
/// much of the whole is done.
///
/// # Errors
///
/// If there are too few processors, or a server does not start or serves something else.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    serve: &(dyn Fn(&Path, SocketAddr) -> Command + Sync),
    mut progress: impl FnMut(f64),
) -> Result<HttpRecord, ExperimentError> {
    let (_, core) = two_cores("the servers")?;
    let mut environment = Environment::here(version, command);
    "loopback".clone_into(&mut environment.network);
    let files = Files::make(settings).map_err(system("make the files to serve"))?;
    // What is started here stays on the processor that it is started on.
    let running: Vec<_> = on_core(core, || {
        let contestants = settings.contestants().into_iter();
        contestants
            .map(|contestant| Running::start(contestant, files.folder.path(), serve))
            .collect::<Result<_, ExperimentError>>()
    })?;
    let awake = Awake::keep(core).map_err(system("keep a processor awake"))?;
    keep_off(&[core]);
    for contestant in &running {
        files.check(contestant)?;
    }
    let mut record = Record::new(NAME, environment, settings.clone());
    let rounds = f64::from(settings.repeats);
    let all: Vec<_> = running.iter().collect();
    for repeat in 0..settings.repeats {
        for load in Load::ALL {
            let order = in_turn(&all, repeat);
            for contestant in order.filter(|running| load.has(running.contestant)) {
                let awake = Some((core, &awake));
                record
                    .runs
                    .push(measure(settings, load, contestant, awake, repeat)?);
            }
        }
        progress(f64::from(repeat + 1) / rounds);
    }
    Ok(record)
}

fn measure(
    settings: &Settings,
    load: Load,
    running: &Running,
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
    let (cpu_before_ns, begin) = (running.cpu_ns(), Instant::now());
    let loaded = client::load(settings, load, running.address)
        .map_err(system("download from a server that is measured"))?;
    let wall_ns = nanos(begin.elapsed());
    let cpu_ns = running.cpu_ns() - cpu_before_ns;
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
        cpu_ns,
        core_busy_ns: wall_ns.saturating_sub(rested_ns),
        bytes,
        requests,
        evenness,
    })
}

/// The files that all serve, gone when it is.
struct Files {
    folder: tempfile::TempDir,
    names: Vec<String>,
}

impl Files {
    fn make(settings: &Settings) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        // nginx looks it up as another user where it is started by root.
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), readable)?;
        let mut random = Random::new(1);
        let mut write = |name: &str, bytes: u64| {
            random.write(fs::File::create(folder.path().join(name))?, bytes)
        };
        write(LARGE, settings.large_bytes)?;
        let mut names = vec![LARGE.to_owned()];
        for i in 0..settings.small_files {
            names.push(small(i));
            write(&small(i), settings.small_bytes)?;
        }
        Ok(Self { folder, names })
    }

    /// Each file, from this server, byte by byte. Warms the cache as well.
    fn check(&self, running: &Running) -> Result<(), ExperimentError> {
        for name in &self.names {
            let wanted = fs::read(self.path(name)).map_err(system("read a file back"))?;
            let got = client::fetch(running.address, name)
                .map_err(system("download from a server that is to be measured"))?;
            if got != wanted {
                let (contestant, file) = (running.contestant, name.clone());
                return Err(ExperimentError::subject(format!(
                    "{contestant:?} did not send {file} as it is; nothing was measured"
                )));
            }
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

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
        let serve = |_: &Path, _: SocketAddr| unreachable!("only the loop is started");
        let running =
            Running::start(Contestant::SendfileLoop, files.folder.path(), &serve).unwrap();
        files.check(&running).unwrap();
        let run = measure(&settings, Load::One, &running, None, 0).unwrap();
        assert_eq!(run.requests, 2);
        assert_eq!(run.bytes, 2 * settings.large_bytes);
        assert!(run.cpu_ns > 0 && run.wall_ns > 0, "{run:?}");
    }
}
