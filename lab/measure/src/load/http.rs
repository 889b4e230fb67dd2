//! The same load for servers of files: clients by the hundred that download over HTTP.
//!
//! Each is a task: it asks, counts what comes and leaves it in the kernel (tcp(7), `MSG_TRUNC`), so
//! that a thread keeps up with many gigabits a second. A download counts only if as much came as
//! was announced. A seek asks for the rest of the file from another place, a pause reads nothing
//! for a second, whoever leaves hangs up in the middle. An answer in chunks is refused: nobody
//! could say whether it was whole.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use onrush_sys::clock::{monotonic_ns, thread_cpu_ns};
use onrush_testkit::message::{lines, request};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::spawn_local;
use tokio::time::{Instant, timeout};

use super::http_client::{FetchError, Head, SILENCE_MAX, SKIP_BYTES, Target, skip};
use super::plan::{Act, Popularity, Random};
use super::server::{ServerProcess, Usage};
use super::shared::{
    self, AGAIN, LoadEnd, PAUSE, REDIRECTS_MAX, arrivals, on_this_thread, report, tick,
};
use super::{Arrival, Behaviour, LoadError, Progress};
use crate::error::refuse;
use crate::experiment::{Environment, Record};

/// Its name in files.
pub const NAME: &str = "load-http";

/// What is measured.
pub type HttpRecord = Record<HttpSettings, HttpRun>;

/// How the load is made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HttpSettings {
    /// What is downloaded, the most popular first.
    #[serde(serialize_with = "crate::experiment::urls_without_secrets")]
    pub urls: Vec<String>,
    /// How popularity falls from one to the next (Zipf's exponent); 0: all alike.
    pub zipf: f64,
    /// Clients at once.
    pub clients: u32,
    /// How they come.
    pub arrival: Arrival,
    /// Within which time.
    pub ramp_ns: u64,
    /// How long the load lasts once all have come.
    pub time_ns: u64,
    /// What they do.
    pub behaviour: Behaviour,
    /// Bytes a second that each client takes at the most; `None`: all that comes.
    pub rate: Option<u64>,
    /// The first byte of 99 answers in 100 may take so long; `None`: any time.
    pub first_byte_ns_max: Option<u64>,
    /// The least evenness of shares (Jain's index).
    pub evenness_min: f64,
    /// The server's process, if it runs here.
    pub pid: Option<u32>,
    /// What choices are drawn from.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HttpRun {
    /// From when all had come to the end.
    pub wall_ns: u64,
    /// Requests that were made.
    pub requests: u64,
    /// Downloads that came whole, whole ranges among them.
    pub whole: u64,
    /// Those that a client broke off: it sought, left, or the load was over.
    pub broken_off: u64,
    /// Those that something else ended; each reason, and how often.
    pub failures: Vec<(String, u64)>,
    /// Bytes of bodies from the first request to the end.
    pub bytes: u64,
    /// Bytes of bodies from when all had come to the end, of each client.
    pub client_bytes: Vec<u64>,
    /// From the connection's beginning to the first byte of the answer, of each request that asked
    /// for bytes; in older records of those as well that ask before a seek how long the file is.
    pub first_byte_ns: Vec<u64>,
    /// What the server's process used in that time.
    pub server: Option<Usage>,
    /// Processor time of the load generator in that time.
    pub own_cpu_ns: u64,
    /// How late the load generator's own timers rang at the most; in older records nobody looked.
    #[serde(default)]
    pub generator_late_ns_max: Option<u64>,
}

/// How a download ended well.
enum End {
    Whole,
    Seek,
    Left,
    Over,
}

struct Shared {
    settings: HttpSettings,
    targets: Vec<Target>,
    popularity: Popularity,
    begin: Instant,
    end: Rc<LoadEnd>,
    active: Cell<u32>,
    client_bytes: Vec<Cell<u64>>,
    seen: RefCell<Seen>,
}

#[derive(Default)]
struct Seen {
    requests: u64,
    whole: u64,
    broken_off: u64,
    failures: BTreeMap<String, u64>,
    first_byte_ns: Vec<u64>,
}

impl Seen {
    fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    fn count(&mut self, fetched: &Result<End, FetchError>) {
        match fetched {
            Ok(End::Whole) => self.whole += 1,
            Ok(_) => self.broken_off += 1,
            Err(error) => *self.failures.entry(error.to_string()).or_default() += 1,
        }
    }
}

/// Makes the load, on this thread. SIGINT ends it early.
///
/// # Errors
///
/// If the load could not be made. What went wrong for single clients is in the record.
pub fn run(
    settings: &HttpSettings,
    version: &str,
    command: &str,
    progress: impl Fn(Progress) + 'static,
) -> Result<HttpRecord, LoadError> {
    settings.check()?;
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    record
        .runs
        .push(on_this_thread(all(settings, progress, true))?);
    Ok(record)
}

/// Lets all come, download and go; SIGINT may end it early.
async fn all(
    settings: &HttpSettings,
    progress: impl Fn(Progress) + 'static,
    may_interrupt: bool,
) -> Result<HttpRun, LoadError> {
    let coming = (settings.arrival, settings.clients, settings.ramp_ns);
    let (arrivals, ramp_ns) = arrivals(coming, settings.seed);
    let ramp = Duration::from_nanos(ramp_ns);
    let shared = Shared::new(settings, ramp).await?;
    let server = ServerProcess::find(settings.pid)?;
    let usage_now = || server.as_ref().map(ServerProcess::usage);
    let hearing = may_interrupt.then(|| shared.end.hear_interrupts());
    let hearing = hearing.transpose()?;
    let mut clients = Vec::with_capacity(arrivals.len());
    for (number, (at_ns, random)) in arrivals.into_iter().enumerate() {
        let client = client(Rc::clone(&shared), number, at_ns, random);
        clients.push(spawn_local(client));
    }
    let looked_at = Rc::clone(&shared);
    let look = move || (looked_at.active.get(), looked_at.seen.borrow().failed());
    let times = (shared.begin, shared.end.at());
    let reporter = spawn_local(report(times, look, progress));
    let late_ns_max: Rc<Cell<u64>> = Rc::default();
    let ticking = spawn_local(tick(Rc::clone(&late_ns_max)));
    shared.end.sleep_until(shared.begin + ramp).await;
    let (from, from_ns) = (shared.bytes(), monotonic_ns());
    let (cpu_ns, before) = (thread_cpu_ns(), usage_now());
    shared.end.sleep_until(shared.end.at()).await;
    let (to, to_ns) = (shared.bytes(), monotonic_ns());
    let (own_cpu_ns, after) = (thread_cpu_ns() - cpu_ns, usage_now());
    shared.end.wait_for(clients).await;
    let helpers = [Some(reporter), Some(ticking), hearing];
    for helper in helpers.into_iter().flatten() {
        helper.abort();
        drop(helper.await);
    }
    let mut seen = shared.seen.take();
    let ended = server.as_ref().and_then(ServerProcess::failure);
    seen.failures.extend(ended);
    Ok(HttpRun {
        wall_ns: to_ns - from_ns,
        requests: seen.requests,
        whole: seen.whole,
        broken_off: seen.broken_off,
        failures: seen.failures.into_iter().collect(),
        bytes: shared.bytes().iter().sum(),
        client_bytes: to.iter().zip(from).map(|(to, from)| to - from).collect(),
        first_byte_ns: seen.first_byte_ns,
        server: after.zip(before).map(|(after, before)| after.since(before)),
        own_cpu_ns,
        generator_late_ns_max: Some(late_ns_max.get()),
    })
}

/// One place among the clients: someone downloads there from its time to the end.
async fn client(shared: Rc<Shared>, number: usize, at_ns: u64, mut random: Random) {
    let comes = shared.begin + Duration::from_nanos(at_ns);
    shared.end.sleep_until(comes).await;
    let behaviour = shared.settings.behaviour.of_one(&mut random);
    let mut from_part = None;
    let mut url = shared.popularity.draw(&mut random);
    while Instant::now() < shared.end.at() {
        shared.active.set(shared.active.get() + 1);
        let fetched = shared
            .fetch(url, number, from_part, behaviour, &mut random)
            .await;
        shared.active.set(shared.active.get() - 1);
        from_part = None;
        shared.seen.borrow_mut().count(&fetched);
        match fetched {
            Ok(End::Seek) => from_part = Some(random.unit()),
            Ok(End::Whole | End::Left) => url = shared.popularity.draw(&mut random),
            Ok(End::Over) => return,
            Err(_) => {
                let again = Instant::now() + AGAIN;
                shared.end.sleep_until(again.min(shared.end.at())).await;
            }
        }
    }
}

impl Shared {
    async fn new(settings: &HttpSettings, ramp: Duration) -> Result<Rc<Self>, LoadError> {
        let mut targets = Vec::new();
        for url in &settings.urls {
            targets.push(Target::of(url).await?);
        }
        let begin = Instant::now();
        Ok(Rc::new(Self {
            popularity: Popularity::zipf(settings.urls.len(), settings.zipf),
            settings: settings.clone(),
            targets,
            begin,
            end: LoadEnd::new(begin + ramp + Duration::from_nanos(settings.time_ns)),
            active: Cell::new(0),
            client_bytes: (0..settings.clients).map(|_| Cell::new(0)).collect(),
            seen: RefCell::default(),
        }))
    }

    fn bytes(&self) -> Vec<u64> {
        self.client_bytes.iter().map(Cell::get).collect()
    }

    /// Downloads from that part of the file on, or all of it.
    async fn fetch(
        &self,
        url: usize,
        number: usize,
        from_part: Option<f64>,
        behaviour: Behaviour,
        random: &mut Random,
    ) -> Result<End, FetchError> {
        let target = &self.targets[url];
        let mut from = 0;
        if let Some(part) = from_part {
            // How long the file is tells a request of its own: it may be another by now.
            let whole = self.ask(target, "HEAD", None).await?.1.length;
            from = of_length(whole, part);
        }
        let range = from_part.map(|_| from);
        let (stream, head) = self.ask(target, GET, range).await?;
        if range.is_some_and(|from| head.range_from != Some(from)) {
            return Err(FetchError::Range);
        }
        let bytes = &self.client_bytes[number];
        bytes.set(bytes.get() + head.begun);
        let left = head.length.checked_sub(head.begun);
        let left = left.ok_or(FetchError::Garbled)?;
        self.take(&stream, left, bytes, behaviour, random).await
    }

    /// Asks, and reads the head of the answer, if need be of the server that the client is sent on
    /// to.
    async fn ask(
        &self,
        target: &Target,
        method: &'static str,
        range: Option<u64>,
    ) -> Result<(TcpStream, Head), FetchError> {
        let begin_ns = monotonic_ns();
        let mut moved = None;
        let mut redirects_left = REDIRECTS_MAX;
        let (stream, head) = loop {
            let target = moved.as_ref().unwrap_or(target);
            match self.ask_at(target, method, range).await {
                Err(FetchError::Moved { location, .. }) if redirects_left > 0 => {
                    let next = target.moved(&location).await?;
                    (moved, redirects_left) = (Some(next), redirects_left - 1);
                }
                asked => break asked?,
            }
        };
        if method == GET {
            let first_byte_ns = head.first_ns.saturating_sub(begin_ns);
            self.seen.borrow_mut().first_byte_ns.push(first_byte_ns);
        }
        Ok((stream, head))
    }

    /// Asks on a connection of its own.
    async fn ask_at(
        &self,
        target: &Target,
        method: &'static str,
        range: Option<u64>,
    ) -> Result<(TcpStream, Head), FetchError> {
        self.seen.borrow_mut().requests += 1;
        let mut stream = target.connect().await?;
        let Target { path, host, .. } = target;
        let range = range.map(|from| format!("bytes={from}-"));
        let range = range.as_deref().map(|range| ("Range", range));
        let headers = [("Host", host.as_str()), ("Connection", "close")];
        let headers = lines(headers.into_iter().chain(range));
        let request = request(method, path, "HTTP/1.1", &headers);
        stream.write_all(request.as_bytes()).await?;
        let head = timeout(SILENCE_MAX, Head::read(&stream, method)).await;
        Ok((stream, head.map_err(|_| FetchError::Silent)??))
    }

    /// Takes what is left of the body, as fast as it may, unless the client does something else
    /// first.
    async fn take(
        &self,
        stream: &TcpStream,
        mut left: u64,
        bytes: &Cell<u64>,
        behaviour: Behaviour,
        random: &mut Random,
    ) -> Result<End, FetchError> {
        let mut act = next_act(behaviour, random);
        let (begin, mut paced) = (Instant::now(), 0_u64);
        let mut pauses = Duration::ZERO;
        while left > 0 {
            let end = self.end.at();
            let until = act.map_or(end, |(at, _)| at.min(end));
            if Instant::now() >= until {
                match act.filter(|&(at, _)| at <= Instant::now()) {
                    _ if Instant::now() >= end => return Ok(End::Over),
                    Some((_, Act::Seek)) => return Ok(End::Seek),
                    Some((_, Act::Leave)) => return Ok(End::Left),
                    Some((_, Act::Pause)) => {
                        let on = Instant::now() + PAUSE;
                        self.end.sleep_until(on.min(end)).await;
                        pauses += PAUSE;
                        act = next_act(behaviour, random);
                    }
                    None => {}
                }
                continue;
            }
            let most = match self.settings.rate {
                None => left.min(SKIP_BYTES),
                Some(rate) => {
                    let due = begin + pauses + time_of(paced, rate);
                    if due > Instant::now() {
                        self.end.sleep_until(due.min(until)).await;
                        continue;
                    }
                    // What leaves in a twentieth of a second, so that a step is worth its while.
                    left.min((rate / 20).clamp(1, SKIP_BYTES))
                }
            };
            let silent = Instant::now() + SILENCE_MAX;
            let skipping = skip(stream, most);
            match self.end.within(until.min(silent), skipping).await {
                Some(Ok(0)) => return Err(FetchError::Short),
                Some(taken) => {
                    let taken = taken?;
                    (left, paced) = (left - taken, paced + taken);
                    bytes.set(bytes.get() + taken);
                }
                None if Instant::now() >= silent => return Err(FetchError::Silent),
                None => {}
            }
        }
        Ok(End::Whole)
    }
}

fn next_act(behaviour: Behaviour, random: &mut Random) -> Option<(Instant, Act)> {
    let (in_ns, act) = behaviour.next(random)?;
    Some((Instant::now() + Duration::from_nanos(in_ns), act))
}

impl HttpSettings {
    /// Those that URLs and a number of clients are enough for.
    #[must_use]
    pub fn new(urls: Vec<String>, clients: u32) -> Self {
        Self {
            urls,
            zipf: 1.0,
            clients,
            arrival: Arrival::Ramp,
            ramp_ns: u64::from(clients) * 5_000_000,
            time_ns: 10_000_000_000,
            behaviour: Behaviour::default(),
            rate: None,
            first_byte_ns_max: None,
            evenness_min: 0.0,
            pid: None,
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
            self.rate.is_some_and(|rate| rate < RATE_MIN)
                => "a rate below {RATE_MIN} bytes a second: ask for more";
            !(0.0..=1.0).contains(&self.evenness_min)
                => "an evenness of {}: ask for 0 to 1", self.evenness_min;
        }
        self.behaviour.check()
    }
}

/// That part of a length, and at least one byte left.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a place to seek to"
)]
fn of_length(length: u64, part: f64) -> u64 {
    ((length as f64 * part) as u64).min(length.saturating_sub(1))
}

/// How long so many bytes take at a rate.
fn time_of(bytes: u64, rate: u64) -> Duration {
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Bytes a second that a client takes at the least.
const RATE_MIN: u64 = 1000;

/// What asks for bytes.
const GET: &str = "GET";

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::load::CLIENTS_MAX;
    use crate::load::shared::DAY_NS;

    /// A server that answers every request so, and its URL.
    fn server(answer: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/film", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                // Who goes at the load's end has asked for nothing, or does not wait.
                if lines.any(|line| line.is_empty()) {
                    (&stream).write_all(answer.as_bytes()).ok();
                }
            }
        });
        url
    }

    #[test]
    fn clients_are_sent_on_three_times() {
        let film = server("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfilm".to_owned());
        let sent_on = |url: &str| server(format!("HTTP/1.1 307 There\r\nLocation: {url}\r\n\r\n"));
        let mut urls = vec![film];
        for sent in 0..4 {
            urls.push(sent_on(&urls[sent]));
        }
        for (sent, url) in urls.into_iter().enumerate() {
            // Longer where the machine has something else to do.
            let times = [100_000_000, 4_000_000_000, 16_000_000_000];
            let run = times.into_iter().find_map(|time_ns| {
                let settings = HttpSettings {
                    time_ns,
                    ..HttpSettings::new(vec![url.clone()], 1)
                };
                let run = on_this_thread(all(&settings, |_| (), false)).unwrap();
                (run.whole > 0 || !run.failures.is_empty()).then_some(run)
            });
            let run = run.unwrap();
            let is_refused = run.failures.iter().any(|(why, _)| why.ends_with(" 307"));
            assert_eq!(
                (run.whole > 0, is_refused),
                (sent <= 3, sent > 3),
                "{run:?}"
            );
        }
    }

    /// A server of a film that is broken off behind its first byte, which answers HEAD so, and its
    /// URL.
    fn server_that_says_of_head(head: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/film", listener.local_addr().unwrap());
        let serve = move |stream: std::net::TcpStream| {
            let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let Some(request) = lines.next() else {
                return;
            };
            if lines.all(|line| !line.is_empty()) {
                return;
            }
            let answer = match request.starts_with("HEAD ") {
                true => format!("HTTP/1.1 {head}\r\n\r\n"),
                false => "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nf".to_owned(),
            };
            (&stream).write_all(answer.as_bytes()).ok();
            // What is left does not come: the client waits, and jumps.
            lines.for_each(drop);
        };
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || serve(stream.unwrap()));
            }
        });
        url
    }

    #[test]
    fn who_asks_how_long_a_file_is_asks_by_head() {
        for (head, said) in [
            ("405 No", "HEAD was answered 405"),
            ("302 There\r\nLocation: ftp://h/x", "no URL of HTTP"),
            // What is asked for then is answered by all of the film.
            ("200 OK\r\nContent-Length: 9", "another range came"),
        ] {
            let url = server_that_says_of_head(head);
            // Longer where the machine has something else to do.
            let times = [200_000_000, 4_000_000_000, 16_000_000_000];
            let run = times.into_iter().find_map(|time_ns| {
                let settings = HttpSettings {
                    time_ns,
                    behaviour: Behaviour {
                        seek_every_ns: 1_000_000,
                        ..Behaviour::default()
                    },
                    ..HttpSettings::new(vec![url.clone()], 1)
                };
                let run = on_this_thread(all(&settings, |_| (), false)).unwrap();
                (!run.failures.is_empty()).then_some(run)
            });
            let run = run.unwrap();
            assert!(run.failures[0].0.contains(said), "{run:?}");
            // The first bytes are those of the film, and not of answers to HEAD.
            let failed: u64 = run.failures.iter().map(|(_, count)| count).sum();
            let first_bytes = run.first_byte_ns.len() as u64;
            assert_eq!(first_bytes + failed, run.requests, "{run:?}");
        }
    }

    #[test]
    fn places_and_times_are_within_their_bounds() {
        assert_eq!((of_length(100, 0.0), of_length(100, 0.5)), (0, 50));
        assert_eq!((of_length(100, 1.0), of_length(0, 0.5)), (99, 0));
        assert_eq!(time_of(500, 1000), Duration::from_millis(500));
        assert_eq!(time_of(u64::MAX, 0), Duration::from_nanos(u64::MAX));
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_bound() {
        let good = HttpSettings {
            rate: Some(RATE_MIN),
            time_ns: DAY_NS,
            ..HttpSettings::new(vec!["http://h/x".to_owned()], CLIENTS_MAX)
        };
        good.check().expect("the most");
        let wrong: [fn(&mut HttpSettings); 10] = [
            |s| s.behaviour.active_part = 1.1,
            |s| s.urls.clear(),
            |s| s.clients = 0,
            |s| s.clients = CLIENTS_MAX + 1,
            |s| s.zipf = f64::NAN,
            |s| s.time_ns = 0,
            |s| s.time_ns = DAY_NS + 1,
            |s| s.rate = Some(RATE_MIN - 1),
            |s| s.evenness_min = 1.1,
            |s| s.urls = vec!["http://anna:x@h/x".to_owned()],
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            let mut settings = good.clone();
            change(&mut settings);
            assert!(settings.check().is_err(), "case {i}");
        }
    }
}
