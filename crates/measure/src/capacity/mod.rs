//! The capacity experiment: how many streams a server holds on time, on one processor that sends.
//!
//! A server, ours or another, is started anew in the testbed for each number of viewers, and watched by the
//! [load generator](crate::load) with the counting sink. The number doubles until a budget is missed and is
//! then bisected. Whoever is faster than the box that the experiment shares with it is told by the accounts
//! of all processors beside the result.

mod files;
pub mod host;
pub mod report;
pub mod soak;
mod trial;
mod words;

use std::cell::RefCell;
use std::fs;
use std::ops::RangeInclusive;
use std::process::Command;
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use onrush_server::engine::phase::Phase;
use onrush_sys::clock::monotonic_ns;
use onrush_testkit::netns::NetnsError;
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::testbed::{Mode, Options, RCV_DEVICE, SND_IPV4, Testbed, TestbedError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experiment::{Environment, Record};
pub use crate::load::account::{self, Account};
use crate::load::report::Report as LoadReport;
use crate::load::{self, LoadError, Receive};
use crate::setup::{CoresError, SystemError, on_core, system, two_cores};
use crate::stats::ratio;
use account::Moment;
pub use files::FileSet;
use files::Films;
use words::LastWords;

/// Its name on the command line and in files.
pub const NAME: &str = "capacity";

/// Where our server listens, in a namespace where nobody else does.
const RTSP_PORT: u16 = 8554;

/// How long a server may take until it listens.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a server may take to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// The sink looks at the RTP header of every so many socket buffers: no divisor of usual bursts.
const LOOK_EVERY: u16 = 13;

/// Viewers that come in a second, unless said otherwise, and at the most.
const ARRIVALS_PER_SECOND: u32 = 1000;
const ARRIVALS_PER_SECOND_MAX: u32 = 20_000;

/// Rounds at the most.
const ROUNDS_MAX: u32 = 100;

/// How often a number is tried again at the most.
const AGAIN_MAX: u32 = 10;

/// What is measured.
pub type CapacityRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Rate of each stream, in bit/s.
    pub rate_bps: u64,
    /// Lengths of a burst, for our server; each is tried.
    pub bursts_ns: Vec<u64>,
    /// When within a burst's time our server's streams begin; each is tried.
    #[serde(default = "as_they_come")]
    pub phases: Vec<Phase>,
    /// How often all that is tried is tried, in turns.
    #[serde(default = "once")]
    pub rounds: u32,
    /// How often, at the most, a number is tried again that was missed while the host took the server's processor away; the
    /// last try counts.
    #[serde(default)]
    pub again: u32,
    /// What is watched.
    pub files: FileSet,
    /// Our server's cache in bytes; `None`: a quarter of the films, or 1 GiB for a single one.
    pub cache_bytes: Option<u64>,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// The number of viewers to begin with.
    pub clients_first: u32,
    /// The most that are tried.
    pub clients_max: u32,
    /// The search ends when bounds are this close, as a part of the upper.
    pub precision: f64,
    /// How long each number is watched once all have come.
    pub time_ns: u64,
    /// A packet later than this is late; of 1000 one may be.
    pub lateness_ns_max: i64,
    /// How busy our server's processor may be with those whom it lets in, in percent; more get 453, which counts as held
    /// then. Nothing is searched. `None`: it lets all in.
    #[serde(default)]
    pub load_max_percent: Option<u32>,
    /// Viewers that come in a second, each with a connection of his own.
    #[serde(default = "arrivals_per_second")]
    pub arrivals_per_second: u32,
    /// For so long the server is stopped (SIGSTOP) in the middle of the run, and nothing is searched; 0: not.
    #[serde(default)]
    pub stall_ns: u64,
    /// Other servers.
    pub peers: Vec<Peer>,
    /// What choices are drawn from.
    pub seed: u64,
}

/// Another server: how it is started, and where the film is then.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Peer {
    /// A shell command that runs in the foreground; `{dir}` is the folder of films, `{address}` where to listen.
    pub command: String,
    /// An URL of the film; `{address}` and `{file}` stand for those.
    pub url: String,
}

/// One server, watched by one number of viewers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// `onrush`, or the peer's command.
    pub server: String,
    /// Who cut trains.
    pub mode: Mode,
    /// Length of a burst; 0 for a peer.
    pub burst_ns: u64,
    /// When within a burst's time streams began.
    #[serde(default)]
    pub phase: Phase,
    /// Viewers.
    pub clients: u32,
    /// What they saw, without the streams one by one.
    pub load: load::Run,
    /// Whose time it took while all watched.
    #[serde(default)]
    pub account: Account,
    /// The same while they came.
    #[serde(default)]
    pub account_coming: Account,
    /// What each who came took of the thread that sets viewers up, in ns of processor time; none of a peer, whose
    /// threads are its own affair.
    #[serde(default)]
    pub set_up_ns: Option<u64>,
    /// Of our server's bursts, the part that left with the one before, because its engine was behind.
    #[serde(default)]
    pub joined: Option<f64>,
    /// Warnings in the server's log.
    #[serde(default)]
    pub trouble: Vec<String>,
    /// Why it does not count as held; empty if it does.
    pub missed: Vec<String>,
    /// Whether the next one is the same again, and counts in its place.
    #[serde(default)]
    pub is_repeated: bool,
}

/// A run that is about to begin.
#[derive(Clone, Debug)]
pub struct Progress {
    /// The server.
    pub server: String,
    /// Who cuts trains.
    pub mode: Mode,
    /// Viewers.
    pub clients: u32,
    /// The most that were held so far, and the least that were not.
    pub between: (u32, Option<u32>),
    /// How often as many have been tried already, in vain.
    pub again: u32,
}

/// Why the experiment could not be carried out.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// A setting is out of bounds.
    #[error("{0}")]
    Settings(String),
    /// There is nothing to leave the rest of the work to.
    #[error(transparent)]
    Cores(#[from] CoresError),
    /// No network to send on.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The namespace can not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
    /// The server did not begin to listen.
    #[error("{server} did not listen within {START_TIME_MAX:?}; it said: {said}")]
    Server {
        /// Which.
        server: String,
        /// The end of its log.
        said: String,
    },
    /// No load could be made.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system refused something else.
    #[error(transparent)]
    System(#[from] SystemError),
}

/// Carries the experiment out. `onrush` is the program to measure.
///
/// # Errors
///
/// If it could not be carried out; see [`CapacityError::needs_root`].
pub fn carry_out(
    settings: &Settings,
    onrush: &std::path::Path,
    version: &str,
    command: &str,
    progress: impl FnMut(Progress) + Send,
) -> Result<CapacityRecord, CapacityError> {
    settings.check()?;
    let (rest, core) = two_cores("the server")?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    // It moves between namespaces.
    on_core(rest, || {
        let films = Films::make(settings).map_err(system("write the films"))?;
        let testbed = testbed()?;
        record.environment.network = "veth pair, sink at tc ingress of its far end".to_owned();
        let mut search = Search {
            settings,
            onrush,
            films,
            testbed,
            core,
            progress,
            runs: &mut record.runs,
        };
        search.all()
    })?;
    Ok(record)
}

/// A testbed where viewers by the ten thousand come again and again: a connection that was closed keeps its port for
/// a minute, unless another may have it.
fn testbed() -> Result<Testbed, CapacityError> {
    let testbed = Testbed::new(Options::default())?;
    let settings = [("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")];
    for (name, value) in settings {
        let set = || fs::write(format!("/proc/sys/net/ipv4/{name}"), value);
        testbed
            .rcv
            .run(set)
            .map_err(system("give viewers more ports"))?;
    }
    Ok(testbed)
}

struct Search<'a, P> {
    settings: &'a Settings,
    onrush: &'a std::path::Path,
    films: Films,
    testbed: Testbed,
    /// The server's processor.
    core: usize,
    progress: P,
    runs: &'a mut Vec<Run>,
}

/// Who is measured, and how it is started.
struct Candidate {
    name: String,
    mode: Mode,
    burst_ns: u64,
    phase: Phase,
    peer: Option<Peer>,
}

impl<P: FnMut(Progress)> Search<'_, P> {
    fn all(&mut self) -> Result<(), CapacityError> {
        for _ in 0..self.settings.rounds {
            self.round()?;
        }
        Ok(())
    }

    /// Everything once.
    fn round(&mut self) -> Result<(), CapacityError> {
        let settings = self.settings;
        for &mode in &settings.modes {
            self.testbed.set_mode(mode)?;
            let phases = settings.phases.iter();
            let ours =
                phases.flat_map(|&phase| settings.bursts_ns.iter().map(move |&ns| (phase, ns)));
            for (phase, burst_ns) in ours {
                self.search(&Candidate {
                    name: "onrush".to_owned(),
                    mode,
                    burst_ns,
                    phase,
                    peer: None,
                })?;
            }
            for peer in &settings.peers {
                self.search(&Candidate {
                    name: peer.command.clone(),
                    mode,
                    burst_ns: 0,
                    phase: Phase::default(),
                    peer: Some(peer.clone()),
                })?;
            }
        }
        Ok(())
    }

    /// Doubles, then bisects; or tries the first number alone.
    fn search(&mut self, candidate: &Candidate) -> Result<(), CapacityError> {
        let (mut held, mut missed) = (0, None);
        while let Some(clients) = next_number(self.settings, held, missed) {
            if self.holds(candidate, clients, (held, missed))? {
                held = clients;
            } else {
                missed = Some(clients);
            }
            if self.settings.is_trial() {
                break;
            }
        }
        Ok(())
    }

    /// Whether so many are held: by the last try, if a host that was in the way makes it worth another.
    fn holds(
        &mut self,
        candidate: &Candidate,
        clients: u32,
        between: (u32, Option<u32>),
    ) -> Result<bool, CapacityError> {
        let mut again = 0;
        loop {
            (self.progress)(Progress {
                server: candidate.name.clone(),
                mode: candidate.mode,
                clients,
                between,
                again,
            });
            let mut run = self.run(candidate, clients)?;
            let holds = run.missed.is_empty();
            let is_repeated = self.settings.is_worth_another(holds, &run.account, again);
            run.is_repeated = is_repeated;
            self.runs.push(run);
            if !is_repeated {
                return Ok(holds);
            }
            again += 1;
        }
    }

    fn run(&self, candidate: &Candidate, clients: u32) -> Result<Run, CapacityError> {
        if self.settings.files != FileSet::One {
            let forgotten = self.films.forget();
            forgotten.map_err(system("drop the films from the page cache"))?;
        }
        let (mut server, urls) = self.start(candidate)?;
        let load = self.settings.load(urls, clients, server.id());
        let moments = Rc::<RefCell<Vec<(u64, Moment)>>>::default();
        let (kept, process) = (Rc::clone(&moments), server.id());
        let look = move |progress: load::Progress| {
            let moment = (progress.elapsed_ns, Moment::now(process));
            kept.borrow_mut().push(moment);
        };
        let seen = thread::scope(|scope| {
            let (server, load, stall_ns) = (&server, &load, self.settings.stall_ns);
            let stalling = scope.spawn(move || stall(server, load, stall_ns));
            let seen = self.testbed.rcv.run(|| load::run(load, look));
            stalling
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            seen
        });
        // A peer that does not stop when it is asked to is killed when dropped.
        drop(server.interrupt(STOP_TIME_MAX));
        let mut seen = seen?;
        let said = server.log();
        let words = LastWords::of(&said);
        let trouble = said.lines().filter(|line| line.contains("WARN"));
        let trouble: Vec<_> = trouble.map(str::to_owned).collect();
        let missed = LoadReport::of(&load, &seen).missed;
        let log = candidate.peer.is_none().then_some(&trouble[..]);
        let missed = self.settings.judge(missed, candidate.burst_ns, &seen, log);
        seen.streams.clear();
        seen.start_up_ns.sort_unstable();
        let total_ns = load.ramp_ns + load.time_ns;
        let moments = moments.borrow();
        let (coming, watching) = (0..=load.ramp_ns, load.ramp_ns..=total_ns);
        let account = account_of(&moments, watching, self.core);
        let account_coming = account_of(&moments, coming, self.core);
        Ok(Run {
            server: candidate.name.clone(),
            mode: candidate.mode,
            burst_ns: candidate.burst_ns,
            phase: candidate.phase,
            clients,
            load: seen,
            account,
            set_up_ns: account_coming.set_up_ns(self.settings.arrivals_per_second),
            account_coming,
            joined: words.map(|words| ratio(words.joined, words.bursts)),
            trouble,
            missed,
            is_repeated: false,
        })
    }

    fn start(&self, candidate: &Candidate) -> Result<(Process, Vec<String>), CapacityError> {
        let address = format!("{SND_IPV4}:{RTSP_PORT}");
        let folder = self.films.folder().display().to_string();
        let filled = |text: &str, file: &str| {
            text.replace("{address}", &address)
                .replace("{dir}", &folder)
                .replace("{file}", file)
        };
        let (mut command, url) = match &candidate.peer {
            Some(peer) => {
                let mut command = self.testbed.snd.command("taskset");
                let core = self.core.to_string();
                let shell = format!("exec {}", filled(&peer.command, ""));
                command.args(["-c", &core, "sh", "-c", &shell]);
                (command, peer.url.clone())
            }
            None => (
                self.ours(candidate, &address, &folder),
                "rtsp://{address}/{file}".to_owned(),
            ),
        };
        let server = Process::start(&mut command).map_err(system("start the server"))?;
        let give_up_ns = monotonic_ns() + u64::try_from(START_TIME_MAX.as_nanos()).unwrap_or(0);
        let listens = || {
            let connect = || std::net::TcpStream::connect((SND_IPV4, RTSP_PORT));
            self.testbed.rcv.run(connect).is_ok()
        };
        while !listens() {
            if monotonic_ns() > give_up_ns {
                return Err(CapacityError::Server {
                    server: candidate.name.clone(),
                    said: server.log_tail(),
                });
            }
            thread::sleep(Duration::from_millis(50));
        }
        let urls = self.films.names().map(|file| filled(&url, &file));
        Ok((server, urls.collect()))
    }

    fn ours(&self, candidate: &Candidate, address: &str, folder: &str) -> Command {
        let cache_bytes = self
            .settings
            .cache_bytes
            .unwrap_or_else(|| self.films.cache_bytes());
        let mut command = self.testbed.snd.command(self.onrush);
        command.args(["serve", folder, "--rtsp", address]);
        command.args(["--cores", &self.core.to_string()]);
        command.args(["--burst", &format!("{}us", candidate.burst_ns / 1000)]);
        command.args(["--phase", candidate.phase.as_str()]);
        command.args(["--cache", &format!("{cache_bytes}B")]);
        // What it holds is to be seen, not what it would take, unless that is asked for. And no more sessions at once than there are ports.
        command.args([
            "--load-max",
            &self.settings.load_max_percent.unwrap_or(0).to_string(),
            "--sessions-max",
            "20000",
            "--connections-max",
            "20000",
        ]);
        command.args(["--connections-per-address-max", "20000"]);
        // Its last words, and no line for each session.
        command.env(
            "RUST_LOG",
            "warn,onrush_server::rtsp=info,onrush_server::rtsp::flow=warn",
        );
        command
    }
}

/// From the first moment in that time to the last.
fn account_of(moments: &[(u64, Moment)], time_ns: RangeInclusive<u64>, core: usize) -> Account {
    let mut those = moments
        .iter()
        .filter(|(elapsed_ns, _)| time_ns.contains(elapsed_ns));
    let ends = those.next().zip(those.next_back());
    ends.map_or_else(Account::default, |(first, last)| {
        Account::between(&first.1, &last.1, core)
    })
}

/// Stops the server for a while in the middle of a run, if that is asked for.
fn stall(server: &Process, load: &load::Settings, stall_ns: u64) {
    if stall_ns == 0 {
        return;
    }
    thread::sleep(Duration::from_nanos(load.ramp_ns + load.time_ns / 2));
    // A server that is gone by now is told of by its viewers.
    if server.signal(Signal::STOP).is_ok() {
        thread::sleep(Duration::from_nanos(stall_ns));
        server.signal(Signal::CONT).unwrap_or_default();
    }
}

/// The number of viewers to try next; `None` when the bounds are close enough.
fn next_number(settings: &Settings, held: u32, missed: Option<u32>) -> Option<u32> {
    let next = match missed {
        None if held == 0 => settings.clients_first,
        None => held.saturating_mul(2).min(settings.clients_max),
        Some(missed) => {
            let gap = missed - held;
            let close = f64::from(gap) <= f64::from(missed) * settings.precision;
            if close || gap <= 1 {
                return None;
            }
            held + gap / 2
        }
    };
    (next > held).then_some(next)
}

impl CapacityError {
    /// Whether it would go with more rights.
    #[must_use]
    pub fn needs_root(&self) -> bool {
        matches!(self, Self::Testbed(error) if error.is_not_permitted())
    }
}

impl Settings {
    /// How long `clients` viewers take to come.
    fn ramp_ns(&self, clients: u32) -> u64 {
        u64::from(clients) * 1_000_000_000 / u64::from(self.arrivals_per_second.max(1))
    }

    /// Whether a number is tried once more that was tried `again` times after the first: it was missed, and the host took
    /// so much of the server's processor that this may be why.
    fn is_worth_another(&self, holds: bool, account: &Account, again: u32) -> bool {
        !holds && account.is_robbed() && again < self.again
    }

    /// What `clients` viewers of those URLs do, whom the process `server` serves.
    fn load(&self, urls: Vec<String>, clients: u32, server: u32) -> load::Settings {
        let settings = load::Settings::new(urls, clients);
        load::Settings {
            in_turn: matches!(self.files, FileSet::Even { .. }),
            ramp_ns: self.ramp_ns(clients),
            time_ns: self.time_ns,
            receive: Receive::Sink {
                device: RCV_DEVICE.to_owned(),
                look_every: LOOK_EVERY,
                bursts: self.is_trial(),
            },
            lateness_ns_max: self.lateness_ns_max,
            // Who was stopped is late.
            late_part_max: if self.stall_ns > 0 {
                1.0
            } else {
                settings.late_part_max
            },
            pid: Some(server),
            seed: self.seed,
            ..settings
        }
    }

    /// Refuses what can not be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`CapacityError::Settings`].
    pub fn check(&self) -> Result<(), CapacityError> {
        let wrong = |text: String| Err(CapacityError::Settings(text));
        if !(500_000..=100_000_000).contains(&self.rate_bps) {
            return wrong(format!(
                "{} bit/s: ask for 500 kbit/s to 100 Mbit/s",
                self.rate_bps
            ));
        }
        if self.clients_first == 0
            || self.clients_first > self.clients_max
            || self.clients_max > load::CLIENTS_MAX
        {
            return wrong(format!(
                "{} to {} viewers: ask for 1 to {}",
                self.clients_first,
                self.clients_max,
                load::CLIENTS_MAX
            ));
        }
        if !(0.001..=0.5).contains(&self.precision) {
            return wrong(format!(
                "a precision of {}: ask for 0.001 to 0.5",
                self.precision
            ));
        }
        if !(1_000_000_000..=3_600_000_000_000).contains(&self.time_ns) {
            return wrong(format!("{} ns: ask for 1 s to 1 h", self.time_ns));
        }
        if self.modes.is_empty() || (self.bursts_ns.is_empty() && self.peers.is_empty()) {
            return wrong("nothing to do: ask for a mode and a server".to_owned());
        }
        if !(1..=ARRIVALS_PER_SECOND_MAX).contains(&self.arrivals_per_second) {
            return wrong(format!(
                "{} viewers a second: ask for 1 to {ARRIVALS_PER_SECOND_MAX}",
                self.arrivals_per_second
            ));
        }
        if self.stall_ns > self.time_ns / 4 {
            return wrong(format!(
                "a stall of {} ns: ask for a quarter of --time at the most",
                self.stall_ns
            ));
        }
        if !(1..=ROUNDS_MAX).contains(&self.rounds) {
            return wrong(format!("{} rounds: ask for 1 to {ROUNDS_MAX}", self.rounds));
        }
        if self.again > AGAIN_MAX {
            return wrong(format!(
                "{} times again: ask for 0 to {AGAIN_MAX}",
                self.again
            ));
        }
        self.files.check().map_err(CapacityError::Settings)
    }
}

/// What was measured before there was a choice.
fn as_they_come() -> Vec<Phase> {
    vec![Phase::AsTheyCome]
}

const fn arrivals_per_second() -> u32 {
    ARRIVALS_PER_SECOND
}

const fn once() -> u32 {
    1
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_bps: 4_000_000,
            bursts_ns: vec![20_000_000],
            phases: as_they_come(),
            rounds: once(),
            again: 1,
            files: FileSet::One,
            cache_bytes: None,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            clients_first: 1000,
            clients_max: 16_000,
            precision: 0.05,
            time_ns: 10_000_000_000,
            lateness_ns_max: 20_000_000,
            load_max_percent: None,
            arrivals_per_second: arrivals_per_second(),
            stall_ns: 0,
            peers: Vec::new(),
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers tried on a server that holds so many.
    fn tried(settings: &Settings, holds: u32) -> Vec<u32> {
        let (mut held, mut missed, mut tried) = (0, None, Vec::new());
        while let Some(clients) = next_number(settings, held, missed) {
            tried.push(clients);
            if clients <= holds {
                held = clients;
            } else {
                missed = Some(clients);
            }
            assert!(tried.len() < 100, "it ends");
        }
        tried
    }

    #[test]
    fn the_search_doubles_and_bisects_to_the_precision() {
        let settings = Settings {
            clients_first: 100,
            clients_max: 1000,
            precision: 0.1,
            ..Settings::default()
        };
        assert_eq!(tried(&settings, 330), [100, 200, 400, 300, 350, 325]);
        assert_eq!(tried(&settings, 5000), [100, 200, 400, 800, 1000]);
        assert_eq!(tried(&settings, 0), [100, 50, 25, 12, 6, 3, 1]);
        assert_eq!(tried(&settings, 1), [100, 50, 25, 12, 6, 3, 1, 2]);
    }

    #[test]
    fn a_miss_is_tried_again_so_often_and_only_if_the_host_was_in_the_way() {
        let account = |stolen_ns| Account {
            wall_ns: 1000,
            stolen_ns,
            ..Account::default()
        };
        let (robbed, left_alone) = (account(Some(21)), account(Some(20)));
        let settings = Settings {
            again: 2,
            ..Settings::default()
        };
        let tries = |holds, account: &Account| {
            (0..)
                .take_while(|&again| settings.is_worth_another(holds, account, again))
                .count()
        };
        assert_eq!(tries(false, &robbed), 2);
        assert_eq!(tries(true, &robbed), 0);
        assert_eq!(tries(false, &left_alone), 0);
        assert_eq!(tries(false, &account(None)), 0);
        let never = Settings {
            again: 0,
            ..settings
        };
        assert!(!never.is_worth_another(false, &robbed, 0));
    }

    #[test]
    fn a_number_is_tried_again_at_most_so_often() {
        let asked = |again| Settings {
            again,
            ..Settings::default()
        };
        asked(AGAIN_MAX).check().expect("the bound");
        let refused = asked(AGAIN_MAX + 1).check().unwrap_err().to_string();
        assert_eq!(refused, "11 times again: ask for 0 to 10");
    }

    #[test]
    fn what_can_not_be_done_is_refused_with_its_bound() {
        Settings::default().check().expect("the defaults");
        let wrong: [fn(&mut Settings); 13] = [
            |s| s.rate_bps = 499_999,
            |s| s.clients_first = 0,
            |s| s.clients_first = s.clients_max + 1,
            |s| s.clients_max = load::CLIENTS_MAX + 1,
            |s| s.precision = 0.0,
            |s| s.time_ns = 999_999_999,
            |s| s.bursts_ns.clear(),
            |s| s.files = FileSet::Zipf { files: 0 },
            |s| s.stall_ns = s.time_ns / 4 + 1,
            |s| s.arrivals_per_second = 0,
            |s| s.arrivals_per_second = ARRIVALS_PER_SECOND_MAX + 1,
            |s| s.rounds = 0,
            |s| s.rounds = ROUNDS_MAX + 1,
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            let mut settings = Settings::default();
            change(&mut settings);
            assert!(settings.check().is_err(), "case {i}");
        }
    }
}
