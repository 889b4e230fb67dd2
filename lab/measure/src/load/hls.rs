//! The same load for servers of HLS: players by the hundred on one thread, each of which fetches,
//! buffers and plays in real time (`hls_player`).
//!
//! Told is what viewers notice: how soon they saw something, how often they stood still and for how
//! long, and how far behind a live channel they are; and what it cost the server.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use onrush_sys::clock::thread_cpu_ns;
use serde::{Deserialize, Serialize};
use tokio::task::{spawn_local, yield_now};
use tokio::time::Instant;
use url::Url;

use super::hls_player::{self, Seen, SharedPlayer, play, unix_us};
use super::hls_playlist::Parsed;
use super::http_client::Target;
use super::plan::{Popularity, Random};
use super::server::{ServerProcess, Usage};
use super::shared::{self, AGAIN, LoadEnd, arrivals, nanos, on_this_thread, report, tick};
use super::{Arrival, LoadError, Progress};
use crate::error::refuse;
use crate::experiment::{Environment, Record};

/// Its name in files.
pub const NAME: &str = "load-hls";

/// What URLs begin with.
pub const SCHEME: &str = "hls://";

/// How far a player may fetch ahead of what it plays: 1 s to an hour.
const BUFFER_NS: (u64, u64) = (1_000_000_000, 3_600_000_000_000);

/// What is measured.
pub type HlsRecord = Record<HlsSettings, HlsRun>;

/// How the load is made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HlsSettings {
    /// What is played, the most popular first.
    #[serde(serialize_with = "crate::experiment::urls_without_secrets")]
    pub urls: Vec<String>,
    /// How popularity falls from one to the next (Zipf's exponent); 0: all alike.
    pub zipf: f64,
    /// Players at once.
    pub clients: u32,
    /// How they come.
    pub arrival: Arrival,
    /// Within which time.
    pub ramp_ns: u64,
    /// How long the load lasts once all have come.
    pub time_ns: u64,
    /// How far a film is fetched ahead.
    pub buffer_ns: u64,
    /// 99 players in 100 may take so long to begin; `None`: any time.
    pub start_up_ns_max: Option<u64>,
    /// 99 in 100 may be so far behind a live channel; `None`: any time.
    pub latency_ns_max: Option<u64>,
    /// The server's process, if it runs here.
    pub pid: Option<u32>,
    /// Whether the load generator never sleeps, so that nothing that is sent has to wake it.
    #[serde(default)]
    pub busy_poll: bool,
    /// What choices are drawn from.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct HlsRun {
    /// From when all had come to the end.
    pub wall_ns: u64,
    /// Players that came, and came again after something had ended them.
    pub visits: u64,
    /// What ended them; each reason, and how often.
    pub failures: Vec<(String, u64)>,
    /// Players that played at the end.
    pub playing: u32,
    /// Times that a player stood still because nothing was left to play, and how long all of them
    /// did together.
    pub stalls: u64,
    /// See `stalls`.
    pub stalled_ns: u64,
    /// Visits in which that happened at least once.
    pub stalled_visits: u64,
    /// Requests that were made.
    pub requests: u64,
    /// Segments and parts that came whole.
    pub segments: u64,
    /// See `segments`.
    pub parts: u64,
    /// Bytes of bodies, playlists included.
    pub bytes: u64,
    /// Of those, from when all had come to the end.
    pub bytes_steady: u64,
    /// From the first request until something could be shown, of each visit that came so far.
    pub start_up_ns: Vec<u64>,
    /// How old what each player showed at the end was, by the times that live playlists tell; 0 if
    /// they are ahead of this machine's clock.
    pub latency_ns: Vec<u64>,
    /// How far ahead they were, at the most; 0: not.
    #[serde(default)]
    pub clock_ahead_ns_max: u64,
    /// What the server's process used from when all had come to the end.
    pub server: Option<Usage>,
    /// Processor time of the load generator in that time.
    pub own_cpu_ns: u64,
    /// How late the load generator's own timers rang at the most; in older records nobody looked.
    #[serde(default)]
    pub generator_late_ns_max: Option<u64>,
}

struct Shared {
    settings: HlsSettings,
    targets: Vec<(Rc<Target>, Url)>,
    parsed: Rc<Parsed>,
    popularity: Popularity,
    begin: Instant,
    end: Rc<LoadEnd>,
    active: Cell<u32>,
    /// Those that play now, by the number of their client.
    players: RefCell<Vec<Option<SharedPlayer>>>,
    run: RefCell<HlsRun>,
    failures: RefCell<BTreeMap<String, u64>>,
}

/// Makes the load, on this thread. SIGINT ends it early.
///
/// # Errors
///
/// If the load could not be made. What went wrong for single players is in the record.
pub fn run(
    settings: &HlsSettings,
    version: &str,
    command: &str,
    progress: impl Fn(Progress) + 'static,
) -> Result<HlsRecord, LoadError> {
    settings.check()?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    record.runs.push(on_this_thread(all(settings, progress))?);
    Ok(record)
}

/// Lets all come, play and go.
async fn all(
    settings: &HlsSettings,
    progress: impl Fn(Progress) + 'static,
) -> Result<HlsRun, LoadError> {
    let coming = (settings.arrival, settings.clients, settings.ramp_ns);
    let (arrivals, ramp_ns) = arrivals(coming, settings.seed);
    let ramp = Duration::from_nanos(ramp_ns);
    let shared = Shared::new(settings, ramp).await?;
    let server = ServerProcess::find(settings.pid)?;
    let usage_now = || server.as_ref().map(ServerProcess::usage);
    let hearing = shared.end.hear_interrupts()?;
    let mut clients = Vec::with_capacity(arrivals.len());
    for (number, (at_ns, random)) in arrivals.into_iter().enumerate() {
        let client = client(Rc::clone(&shared), number, at_ns, random);
        clients.push(spawn_local(client));
    }
    let looked_at = Rc::clone(&shared);
    let look = move || {
        let failed = looked_at.failures.borrow().values().sum();
        (looked_at.active.get(), failed)
    };
    let times = (shared.begin, shared.end.at());
    let reporter = spawn_local(report(times, look, progress));
    let poller = settings.busy_poll.then(|| spawn_local(poll_for_ever()));
    let late_ns_max: Rc<Cell<u64>> = Rc::default();
    let ticking = spawn_local(tick(Rc::clone(&late_ns_max)));
    shared.end.sleep_until(shared.begin + ramp).await;
    let (from, from_bytes) = (Instant::now(), shared.bytes());
    let (cpu_ns, before) = (thread_cpu_ns(), usage_now());
    shared.end.sleep_until(shared.end.at()).await;
    let (to_bytes, own_cpu_ns) = (shared.bytes(), thread_cpu_ns() - cpu_ns);
    let (wall_ns, after) = (nanos(from.elapsed()), usage_now());
    shared.end.wait_for(clients).await;
    let helpers = [Some(reporter), Some(hearing), Some(ticking), poller];
    for helper in helpers.into_iter().flatten() {
        helper.abort();
        drop(helper.await);
    }
    let mut run = shared.run.take();
    let ended = server.as_ref().and_then(ServerProcess::failure);
    run.failures = shared.failures.take().into_iter().chain(ended).collect();
    run.bytes_steady = to_bytes.saturating_sub(from_bytes);
    run.server = after.zip(before).map(|(after, before)| after.since(before));
    (run.wall_ns, run.own_cpu_ns) = (wall_ns, own_cpu_ns);
    run.generator_late_ns_max = Some(late_ns_max.get());
    Ok(run)
}

/// Keeps this thread from sleeping: it asks what has come instead, over and over. What wakes a
/// sleeping thread on another processor of a virtual machine is an interrupt of several us, at the
/// sender's cost; players on other machines cost a server nothing of the kind.
async fn poll_for_ever() {
    loop {
        yield_now().await;
    }
}

/// One place among the players: someone plays there from its time to the end.
async fn client(shared: Rc<Shared>, number: usize, at_ns: u64, mut random: Random) {
    let comes = shared.begin + Duration::from_nanos(at_ns);
    shared.end.sleep_until(comes).await;
    let buffer = Duration::from_nanos(shared.settings.buffer_ns);
    while Instant::now() < shared.end.at() {
        let played = shared.targets[shared.popularity.draw(&mut random)].clone();
        let player = hls_player::player();
        shared.players.borrow_mut()[number] = Some(Rc::clone(&player));
        shared.run.borrow_mut().visits += 1;
        shared.active.set(shared.active.get() + 1);
        let playing = play(
            played,
            Rc::clone(&shared.parsed),
            buffer,
            Rc::clone(&player),
        );
        let ended = shared.end.within(shared.end.at(), playing).await;
        shared.active.set(shared.active.get() - 1);
        shared.players.borrow_mut()[number] = None;
        shared.leave(&player, ended.is_none());
        if let Some(Err(error)) = ended {
            shared.fail(error.to_string());
            let again = Instant::now() + AGAIN;
            shared.end.sleep_until(again.min(shared.end.at())).await;
        }
    }
}

impl Shared {
    async fn new(settings: &HlsSettings, ramp: Duration) -> Result<Rc<Self>, LoadError> {
        let mut targets = Vec::new();
        for url in &settings.urls {
            let http = url
                .strip_prefix(SCHEME)
                .map(|rest| format!("http://{rest}"));
            let wrong = |reason: String| LoadError::Url {
                url: url.clone(),
                reason,
            };
            let not_hls = || wrong("all URLs of such a load are hls://".to_owned());
            let http = http.ok_or_else(not_hls)?;
            let parsed = Url::parse(&http).map_err(|error| wrong(error.to_string()))?;
            targets.push((Rc::new(Target::of(&http).await?), parsed));
        }
        let begin = Instant::now();
        let clients = settings.clients as usize;
        Ok(Rc::new(Self {
            popularity: Popularity::zipf(settings.urls.len(), settings.zipf),
            settings: settings.clone(),
            targets,
            parsed: Rc::default(),
            begin,
            end: LoadEnd::new(begin + ramp + Duration::from_nanos(settings.time_ns)),
            active: Cell::new(0),
            players: RefCell::new(vec![None; clients]),
            run: RefCell::default(),
            failures: RefCell::default(),
        }))
    }

    /// Bytes that have come so far, for all.
    fn bytes(&self) -> u64 {
        let players = self.players.borrow();
        let now = players.iter().flatten();
        let now: u64 = now.map(|it| it.borrow().seen.bytes).sum();
        self.run.borrow().bytes + now
    }

    /// This ended a player.
    fn fail(&self, reason: String) {
        *self.failures.borrow_mut().entry(reason).or_default() += 1;
    }

    /// A player is done, at the load's end or before.
    fn leave(&self, player: &SharedPlayer, is_end: bool) {
        let (now, unix_us) = (Instant::now(), unix_us());
        let mut player = player.borrow_mut();
        let run = &mut *self.run.borrow_mut();
        if is_end {
            run.playing += u32::from(player.is_playing(now));
            run.count_latency(player.latency_us(now, unix_us));
        }
        let Seen {
            segments,
            parts,
            bytes,
            requests,
            stalls,
            stalled_us,
            start_up_us,
        } = player.seen(now);
        run.segments += segments;
        run.parts += parts;
        run.bytes += bytes;
        run.requests += requests;
        run.stalls += stalls;
        run.stalled_visits += u64::from(stalls > 0);
        run.stalled_ns += in_ns(stalled_us);
        run.start_up_ns.extend(start_up_us.map(in_ns));
    }
}

impl HlsRun {
    /// So old was what a player showed at the end, if that was told.
    fn count_latency(&mut self, latency_us: Option<i64>) {
        let Some(latency_us) = latency_us else {
            return;
        };
        let unsigned_ns = |us: i64| in_ns(u64::try_from(us).unwrap_or(0));
        self.latency_ns.push(unsigned_ns(latency_us));
        let ahead_ns = unsigned_ns(latency_us.saturating_neg());
        self.clock_ahead_ns_max = self.clock_ahead_ns_max.max(ahead_ns);
    }
}

fn in_ns(us: u64) -> u64 {
    us.saturating_mul(1000)
}

impl HlsSettings {
    /// Those that URLs and a number of players are enough for.
    #[must_use]
    pub fn new(urls: Vec<String>, clients: u32) -> Self {
        Self {
            urls,
            zipf: 1.0,
            clients,
            arrival: Arrival::Ramp,
            ramp_ns: u64::from(clients) * 5_000_000,
            time_ns: 10_000_000_000,
            buffer_ns: 30_000_000_000,
            start_up_ns_max: None,
            latency_ns_max: None,
            pid: None,
            busy_poll: false,
            seed: 1,
        }
    }

    /// Refuses what cannot be done, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`LoadError::Settings`].
    pub fn check(&self) -> Result<(), LoadError> {
        shared::check(&self.urls, self.clients, self.zipf, self.time_ns)?;
        shared::check_no_user(&self.urls)?;
        refuse! { LoadError::Settings;
            !(BUFFER_NS.0..=BUFFER_NS.1).contains(&self.buffer_ns)
                => "a buffer of {} ns: ask for 1 s to 1 h", self.buffer_ns;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_is_refused_with_its_bound() {
        let of = |buffer_ns, clients| HlsSettings {
            buffer_ns,
            ..HlsSettings::new(vec!["hls://h/x".to_owned()], clients)
        };
        assert!(of(BUFFER_NS.0, 1).check().is_ok() && of(BUFFER_NS.1, 1).check().is_ok());
        assert!(of(BUFFER_NS.0 - 1, 1).check().is_err());
        assert!(of(BUFFER_NS.1 + 1, 1).check().is_err() && of(BUFFER_NS.0, 0).check().is_err());
        let with_user = HlsSettings::new(vec!["hls://anna:x@h/x".to_owned()], 1);
        let refused = with_user.check().unwrap_err().to_string();
        assert!(refused.contains("a user in an URL"), "{refused}");
        assert!(!refused.contains("anna"), "{refused}");
    }

    #[test]
    fn what_is_not_recorded_yet_is_of_a_clock_that_is_ahead() {
        let mut run = HlsRun::default();
        for latency_us in [None, Some(7), Some(-3_000_000), Some(-2)] {
            run.count_latency(latency_us);
        }
        assert_eq!(run.latency_ns, [7000, 0, 0]);
        assert_eq!(run.clock_ahead_ns_max, 3_000_000_000);
    }
}
