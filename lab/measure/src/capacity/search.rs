//! Doubles the number of viewers and bisects: a server is started for each, watched, and stopped.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::thread;
use std::time::Duration;

use onrush_server::engine::phase::Phase;
use onrush_sys::clock::monotonic_ns;
use onrush_testkit::process::{Process, Signal};
use onrush_testkit::testbed::{Mode, Options, SND_IPV4, Testbed};

use super::files::{FileSet, Films};
use super::record::Run;
use super::settings::{PASSWORD, Peer, Settings, USER};
use super::status;
use crate::counters::Counting;
use crate::error::ExperimentError;
use crate::film_kind::FilmKind;
use crate::load::account::{Account, Moment};
use crate::load::report::Figures;
use crate::load::{self, Transport};
use crate::logistic::numbers_about;
use crate::random::Random;
use crate::setup::{TCP_SEGMENTATION, system};
use crate::yardstick::{Measuring, Yardstick};

/// Where our server listens, in a namespace where nobody else does.
const RTSP_PORT: u16 = 8554;

/// Where it listens for TLS, if it is to.
const RTSPS_PORT: u16 = 8322;

/// Trials are within this part of the limit that the search has found, on both sides.
const TRIAL_PART: f64 = 0.25;

/// How long a server may take until it answers.
pub(super) const START_TIME_MAX: Duration = Duration::from_secs(60);

/// How long a server may take to stop.
pub(super) const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// A search, and what it needs.
pub(super) struct Search<'a, P> {
    pub(super) settings: &'a Settings,
    pub(super) onrush: &'a Path,
    /// Of each kind.
    pub(super) films: Vec<Films>,
    pub(super) testbed: Testbed,
    /// The server's processor.
    pub(super) core: usize,
    pub(super) progress: P,
    pub(super) runs: &'a mut Vec<Run>,
}

/// What a load saw, or why there was none; the accounts meanwhile, and what the host gave.
type Watched = (
    Result<load::Run, load::LoadError>,
    Vec<(u64, Moment)>,
    Option<Yardstick>,
);

/// Who is measured, and how it is started.
#[derive(Clone)]
pub(super) struct Candidate {
    pub(super) name: String,
    pub(super) mode: Mode,
    pub(super) burst_ns: u64,
    /// Its data path; `None`: its own choice.
    pub(super) path: Option<String>,
    pub(super) phase: Phase,
    /// Of a hundred of its viewers, so many jump.
    pub(super) jumping_percent: u32,
    /// What the first film is kept in.
    pub(super) media: FilmKind,
    pub(super) peer: Option<Peer>,
}

impl Candidate {
    /// Our server, with viewers of transport streams who do not jump.
    pub(super) fn onrush(mode: Mode, burst_ns: u64) -> Self {
        Self {
            name: "onrush".to_owned(),
            mode,
            burst_ns,
            path: None,
            phase: Phase::default(),
            jumping_percent: 0,
            media: FilmKind::default(),
            peer: None,
        }
    }

    /// What is tried, for people.
    fn told(&self, clients: u32, (held, missed): (u32, Option<u32>), again: u32) -> String {
        let (mut name, mode) = (self.name.clone(), self.mode.name());
        name.extend(self.path.iter().map(|path| format!(" by {path}")));
        let upper = missed.map_or_else(|| "?".to_owned(), |clients| clients.to_string());
        let unless = |is_usual: bool, words: String| if is_usual { String::new() } else { words };
        let media = unless(self.media == FilmKind::Ts, format!(" of {}", self.media));
        let percent = self.jumping_percent;
        let jumping = unless(percent == 0, format!(", {percent} % jump"));
        let again = unless(
            again == 0,
            format!(", again ({again}): the host was in the way"),
        );
        format!(
            "{name}, {mode}: {clients} viewers{media}{jumping} (between {held} and {upper}){again}"
        )
    }
}

impl<P: FnMut(&str)> Search<'_, P> {
    pub(super) fn all(&mut self) -> Result<(), ExperimentError> {
        (0..self.settings.rounds).try_for_each(|_| self.round())?;
        self.trials()
    }

    /// Tries numbers around the limit of each candidate, as many of each. Numbers and order are
    /// drawn, and candidates take turns: what drifts hits all alike, and no number in particular.
    fn trials(&mut self) -> Result<(), ExperimentError> {
        let trials = self.settings.trials;
        let mut random = Random::new(self.settings.seed);
        let mut to_try = Vec::new();
        for candidate in self.candidates() {
            let Some(about) = limit(self.runs, &candidate) else {
                continue;
            };
            let most = f64::from(self.settings.clients_max);
            let numbers = numbers_about(about, TRIAL_PART, trials, || random.unit());
            let numbers = numbers
                .into_iter()
                .map(|number| whole(number.clamp(1.0, most)));
            let mut numbers: Vec<_> = numbers.collect();
            shuffle(&mut numbers, &mut random);
            to_try.push((candidate, numbers));
        }
        for number in 0..trials as usize {
            let mut order: Vec<_> = to_try.iter().collect();
            shuffle(&mut order, &mut random);
            for (candidate, numbers) in order {
                let (clients, of) = (numbers[number], number + 1);
                let told = candidate.told(clients, (0, None), 0);
                (self.progress)(&format!("{told}, trial {of} of {trials}"));
                let mut run = self.run(candidate, clients)?;
                run.is_around_limit = true;
                self.runs.push(run);
            }
        }
        Ok(())
    }

    /// Everything once.
    fn round(&mut self) -> Result<(), ExperimentError> {
        let candidates = self.candidates();
        candidates.iter().try_for_each(|it| self.search(it))
    }

    /// Whoever is measured, in the order of the searches.
    fn candidates(&self) -> Vec<Candidate> {
        let (settings, mut candidates) = (self.settings, Vec::new());
        for &mode in &settings.modes {
            let phases = settings.phases.iter();
            let ours =
                phases.flat_map(|&phase| settings.bursts_ns.iter().map(move |&ns| (phase, ns)));
            for (phase, burst_ns) in ours {
                for path in settings.each_path() {
                    let onrush = Candidate::onrush(mode, burst_ns);
                    let onrush = Candidate {
                        phase,
                        path,
                        ..onrush
                    };
                    self.add_each(onrush, &mut candidates);
                }
            }
            for peer in &settings.peers {
                let peer = Candidate {
                    name: peer.command.clone(),
                    peer: Some(peer.clone()),
                    ..Candidate::onrush(mode, 0)
                };
                self.add_each(peer, &mut candidates);
            }
        }
        candidates
    }

    /// One for each kind of film and each part of the viewers that jumps.
    fn add_each(&self, candidate: Candidate, to: &mut Vec<Candidate>) {
        for &media in &self.settings.media {
            for &jumping_percent in &self.settings.jumping_percents {
                to.push(Candidate {
                    media,
                    jumping_percent,
                    ..candidate.clone()
                });
            }
        }
    }

    fn films(&self, candidate: &Candidate) -> &Films {
        let mut films = self.films.iter();
        let films = films.find(|films| films.begin_with(candidate.media));
        films.expect("there are films of each kind that is searched")
    }

    /// Doubles, then bisects; or tries the first number alone.
    fn search(&mut self, candidate: &Candidate) -> Result<(), ExperimentError> {
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

    /// Whether so many are held: by the last try, if a host that was in the way makes it worth
    /// another.
    fn holds(
        &mut self,
        candidate: &Candidate,
        clients: u32,
        between: (u32, Option<u32>),
    ) -> Result<bool, ExperimentError> {
        let mut again = 0;
        loop {
            (self.progress)(&candidate.told(clients, between, again));
            let mut run = self.run(candidate, clients)?;
            let holds = run.missed.is_empty();
            let is_repeated = self.settings.is_worth_another(holds, &run.void, again);
            run.is_repeated = is_repeated;
            self.runs.push(run);
            if !is_repeated {
                return Ok(holds);
            }
            again += 1;
        }
    }

    fn run(&mut self, candidate: &Candidate, clients: u32) -> Result<Run, ExperimentError> {
        self.testbed.set_mode(candidate.mode)?;
        let is_cut = candidate.mode == Mode::Uso;
        self.testbed.switch(&TCP_SEGMENTATION, is_cut)?;
        if self.settings.files != FileSet::One {
            let forgotten = self.films(candidate).forget();
            forgotten.map_err(system("drop the films from the page cache"))?;
        }
        let (mut server, urls) = self.start(candidate)?;
        let percent = candidate.jumping_percent;
        let watched = (urls, candidate.media);
        let load = self.settings.load(watched, clients, percent, server.id());
        let (seen, moments, yardstick) = self.watch(&server, &load)?;
        let has_ended = !server.is_running().unwrap_or(false);
        let last_words = has_ended.then(|| server.log_tail());
        // A peer that does not stop when it is asked to is killed when dropped.
        drop(server.interrupt(STOP_TIME_MAX));
        let mut seen = seen?;
        let is_ours = candidate.peer.is_none();
        let counted = is_ours.then(|| status::read(&self.films(candidate).status()));
        let counted = counted.map(Option::unwrap_or_default);
        let Figures { missed, void, .. } = self.settings.figures(&load, &mut seen);
        let of_ours = counted.as_ref();
        let mut missed = self
            .settings
            .judge(missed, candidate.burst_ns, &seen, of_ours);
        missed
            .extend(last_words.map(|said| format!("the server ended by itself; it said: {said}")));
        let asked = candidate.path.as_deref();
        missed.extend(of_ours.and_then(|counted| status::other_path(counted, asked)));
        seen.streams.clear();
        seen.start_up_ns.sort_unstable();
        let total_ns = load.ramp_ns + load.time_ns;
        let (coming, watching) = (0..=load.ramp_ns, load.ramp_ns..=total_ns);
        let account = account_of(&moments, watching, self.core);
        let account_coming = account_of(&moments, coming, self.core);
        Ok(Run {
            void: void.into_iter().chain(account.theft_in_words()).collect(),
            is_around_limit: false,
            yardstick,
            server: candidate.name.clone(),
            mode: candidate.mode,
            burst_ns: candidate.burst_ns,
            path: candidate.path.clone(),
            phase: candidate.phase,
            clients,
            jumping_percent: candidate.jumping_percent,
            media: candidate.media,
            load: seen,
            account,
            set_up_ns: account_coming.set_up_ns(self.settings.arrivals_per_second),
            account_coming,
            joined: of_ours.map(status::joined),
            trouble: of_ours.map_or_else(Vec::new, |counted| {
                status::trouble(counted, self.settings.lateness_ns_max)
            }),
            missed,
            is_repeated: false,
        })
    }

    /// Makes the load. What was seen, the accounts meanwhile, and what the host gave.
    fn watch(&self, server: &Process, load: &load::Settings) -> Result<Watched, ExperimentError> {
        let moments = Rc::<RefCell<Vec<(u64, Moment)>>>::default();
        let (kept, process) = (Rc::clone(&moments), server.id());
        let counting = Counting::of_process(self.settings.counters, process);
        let look = move |progress: load::Progress| {
            let moment = Moment::now(process).counted(&counting);
            let moment = (progress.elapsed_ns, moment);
            kept.borrow_mut().push(moment);
        };
        let yardstick = Measuring::start(self.core).map_err(system("start a thread"))?;
        let seen = thread::scope(|scope| {
            let stall_ns = self.settings.stall_ns;
            let stalling = scope.spawn(move || stall(server, load, stall_ns));
            let seen = self.testbed.rcv.run(|| load::run_unrecorded(load, look));
            stalling
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            seen
        });
        let yardstick = yardstick.finish();
        Ok((seen, moments.take(), yardstick))
    }

    pub(super) fn start(
        &self,
        candidate: &Candidate,
    ) -> Result<(Process, Vec<String>), ExperimentError> {
        let address = format!("{SND_IPV4}:{RTSP_PORT}");
        let films = self.films(candidate);
        let folder = films.folder().display().to_string();
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
                self.ours(candidate, &address, &folder)?,
                match self.settings.transport {
                    Transport::Tls => format!("rtsps://{SND_IPV4}:{RTSPS_PORT}/{{file}}"),
                    _ => "rtsp://{address}/{file}".to_owned(),
                },
            ),
        };
        let server = Process::start(&mut command).map_err(system("start the server"))?;
        let give_up_ns = monotonic_ns() + u64::try_from(START_TIME_MAX.as_nanos()).unwrap_or(0);
        while !self.testbed.rcv.run(answers).unwrap_or(false) {
            if monotonic_ns() > give_up_ns {
                let (name, said) = (&candidate.name, server.log_tail());
                return Err(ExperimentError::subject(format!(
                    "{name} did not answer within {START_TIME_MAX:?}; it said: {said}"
                )));
            }
            thread::sleep(Duration::from_millis(50));
        }
        let urls = films.names().map(|file| filled(&url, &file));
        Ok((server, urls.collect()))
    }

    fn ours(
        &self,
        candidate: &Candidate,
        address: &str,
        folder: &str,
    ) -> Result<Command, ExperimentError> {
        let cache_bytes = self
            .settings
            .cache_bytes
            .unwrap_or_else(|| self.films(candidate).cache_bytes());
        let mut command = self.testbed.snd.command(self.onrush);
        // What is measured does not depend on what ran before.
        command.args(["serve", folder, "--rtsp", address, "--state", "off"]);
        command.args(["--cores", &self.core.to_string()]);
        command.args(["--burst", &format!("{}us", candidate.burst_ns / 1000)]);
        if let Some(path) = &candidate.path {
            command.args(["--path", path]);
        }
        // A server as it is sold has no such option.
        if candidate.phase != Phase::default() {
            command.args(["--phase", candidate.phase.as_str()]);
        }
        command.args(["--cache", &format!("{cache_bytes}B")]);
        // What it holds is to be seen, not what it would take, unless that is asked for. And no
        // more sessions at once than there are ports.
        command.args([
            "--load-max",
            &self.settings.load_max_percent.unwrap_or(0).to_string(),
            "--sessions-max",
            "20000",
            "--connections-max",
            "20000",
        ]);
        command.args(["--connections-per-address-max", "20000"]);
        command.args(["--sessions-per-address-max", "20000"]);
        let status = self.films(candidate).status();
        // That of a server before is not its own.
        fs::remove_file(&status).ok();
        command.arg("--status-at-exit").arg(status);
        match self.settings.transport {
            Transport::Tls => {
                let address = format!("{SND_IPV4}:{RTSPS_PORT}");
                command.args(["--tls", "self-signed", "--rtsps", &address]);
                // All viewers come from one address.
                command.args(["--tls-handshakes-per-address-max", "20000"]);
                command.args(["--tls-handshakes-max", "20000"]);
            }
            // What is asked is what packets cost, and not handshakes.
            Transport::Srtp => drop(command.args(["--srtp", "plain"])),
            _ => {}
        }
        if self.settings.has_users {
            let users = films_users(self.onrush, self.films(candidate).folder());
            let users = users.map_err(system("make a file of users"))?;
            command.arg("--users").arg(users);
        }
        // No line for each session.
        command.env("RUST_LOG", "warn");
        Ok(command)
    }
}

/// What the searches say that this candidate holds: the middle between the most that it held and
/// the least that it did not; `None` if they say no such thing.
fn limit(runs: &[Run], candidate: &Candidate) -> Option<f64> {
    let is_it = |run: &&Run| {
        let of = (&run.server, run.mode, run.burst_ns, &run.path, run.phase);
        let it = (
            &candidate.name,
            candidate.mode,
            candidate.burst_ns,
            &candidate.path,
            candidate.phase,
        );
        let is_such = run.jumping_percent == candidate.jumping_percent;
        of == it && is_such && run.media == candidate.media && !run.is_repeated
    };
    let (held, missed): (Vec<&Run>, Vec<_>) = runs
        .iter()
        .filter(is_it)
        .partition(|run| run.missed.is_empty());
    let held = held.into_iter().map(|run| run.clients).max();
    // Nothing is held by nobody.
    let (held, missed) = (
        held.unwrap_or(0),
        missed.into_iter().map(|run| run.clients).min()?,
    );
    Some(f64::midpoint(f64::from(held), f64::from(missed)))
}

fn shuffle<T>(all: &mut [T], random: &mut Random) {
    for last in (1..all.len()).rev() {
        all.swap(last, random.index(last + 1));
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "viewers, 1 to CLIENTS_MAX"
)]
fn whole(number: f64) -> u32 {
    number.round() as u32
}

/// A file of the viewers' user, beside the films.
fn films_users(onrush: &Path, folder: &Path) -> io::Result<PathBuf> {
    let file = folder.join("users");
    if file.exists() {
        return Ok(file);
    }
    let mut command = Command::new(onrush);
    command.args(["user", "add"]).arg(&file).arg(USER);
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut adding = command.spawn()?;
    if let Some(mut stdin) = adding.stdin.take() {
        writeln!(stdin, "{PASSWORD}")?;
    }
    match adding.wait()?.success() {
        true => Ok(file),
        false => Err(io::Error::other("onrush user add has failed")),
    }
}

/// Whether the server answers a request. That it takes connections says little: the kernel does
/// that for a server that is still busy with its start, and viewers would wait for it.
fn answers() -> io::Result<bool> {
    let mut stream = TcpStream::connect((SND_IPV4, RTSP_PORT))?;
    stream.set_read_timeout(Some(START_TIME_MAX))?;
    stream.write_all(b"OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n")?;
    let mut answer = [0; 9];
    stream.read_exact(&mut answer)?;
    Ok(answer == *b"RTSP/1.0 ")
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

/// A testbed where viewers by the ten thousand come again and again: a connection that was closed
/// keeps its port for a minute, unless another may have it.
pub(super) fn testbed() -> Result<Testbed, ExperimentError> {
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
}
