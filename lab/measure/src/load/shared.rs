//! What loads of viewers and of downloads share: how they come, where URLs lead, what is reported
//! meanwhile, and which settings make no sense.

use std::cell::Cell;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use onrush_sys::thread::raise_open_files_limit;
use percent_encoding::percent_decode_str;
use tokio::net::lookup_host;
use tokio::runtime::Builder;
use tokio::select;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use url::Url;

use super::plan::{Arrival, Random};
use super::{CLIENTS_MAX, LoadError, Progress};
use crate::error::refuse;

/// How long a client that the server refused or failed waits before it comes again.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// How long a pause is.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// How often progress is reported.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often it is looked how late the load generator's own timers ring.
const TICK: Duration = Duration::from_millis(10);
pub(super) const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;
/// How often a client is sent on to another server until it has had enough.
pub(super) const REDIRECTS_MAX: u32 = 3;

/// When a load is over: at its time, or when somebody interrupts it.
#[derive(Debug)]
pub(super) struct LoadEnd {
    at: Cell<Instant>,
    interrupts: Cell<u32>,
    heard: Notify,
}

impl LoadEnd {
    pub(super) fn new(at: Instant) -> Rc<Self> {
        Rc::new(Self {
            at: Cell::new(at),
            interrupts: Cell::new(0),
            heard: Notify::new(),
        })
    }

    /// That moment, as far as it is known.
    pub(super) fn at(&self) -> Instant {
        self.at.get()
    }

    /// It is over now, if it was not before. The second time nobody is waited for.
    pub(super) fn interrupt(&self) {
        self.at.set(self.at.get().min(Instant::now()));
        self.interrupts.set(self.interrupts.get() + 1);
        self.heard.notify_waiters();
    }

    /// Interrupts the load at each SIGINT (Ctrl-C), for ever.
    pub(super) fn hear_interrupts(self: &Rc<Self>) -> Result<JoinHandle<()>, LoadError> {
        let signals = signal(SignalKind::interrupt());
        let mut signals = signals.map_err(|source| LoadError::System {
            what: "listen for SIGINT",
            source,
        })?;
        let end = Rc::clone(self);
        Ok(spawn_local(async move {
            while signals.recv().await.is_some() {
                end.interrupt();
            }
        }))
    }

    /// Waits until it has been interrupted so often.
    async fn interrupted(&self, times: u32) {
        loop {
            // Made before it is asked for: what happens in between is not missed.
            let heard = self.heard.notified();
            if self.interrupts.get() >= times {
                return;
            }
            heard.await;
        }
    }

    /// Waits for something until that moment, or until the load is interrupted; `None` then.
    pub(super) async fn within<T>(
        &self,
        until: Instant,
        wanted: impl Future<Output = T>,
    ) -> Option<T> {
        select! {
            done = timeout_at(until, wanted) => done.ok(),
            () = self.interrupted(1) => None,
        }
    }

    /// Sleeps until that moment, or until the load is interrupted.
    pub(super) async fn sleep_until(&self, until: Instant) {
        self.within(until, pending::<()>()).await;
    }

    /// Waits until all clients have gone, or until the load is interrupted again.
    pub(super) async fn wait_for(&self, clients: Vec<JoinHandle<()>>) {
        let all = async {
            for client in clients {
                drop(client.await);
            }
        };
        select! {
            () = all => {}
            () = self.interrupted(2) => {}
        }
    }
}

/// Runs the tasks of a load on this thread.
pub(super) fn on_this_thread<T>(
    load: impl Future<Output = Result<T, LoadError>>,
) -> Result<T, LoadError> {
    raise_open_files_limit();
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| LoadError::System {
        what: "start a runtime",
        source,
    })?;
    LocalSet::new().block_on(&runtime, load)
}

/// When each client comes, with what its choices are drawn from, and when all have come.
pub(super) fn arrivals(
    (arrival, clients, ramp_ns): (Arrival, u32, u64),
    seed: u64,
) -> (Vec<(u64, Random)>, u64) {
    let times_ns = arrival.times_ns(clients, ramp_ns, &mut Random::new(seed));
    // Poisson arrivals may take longer than the ramp.
    let ramp_ns = ramp_ns.max(times_ns.last().copied().unwrap_or(0));
    let of = |number: u64| Random::new(seed.wrapping_add(number).wrapping_mul(0x2545_f491));
    let clients = (0..).zip(times_ns);
    (
        clients.map(|(number, at_ns)| (at_ns, of(number))).collect(),
        ramp_ns,
    )
}

/// Reports, for ever, how many are active and how many have failed.
pub(super) async fn report(
    (begin, end): (Instant, Instant),
    look: impl Fn() -> (u32, u64),
    progress: impl Fn(Progress),
) {
    loop {
        let (watching, failed) = look();
        progress(Progress {
            elapsed_ns: nanos(begin.elapsed()),
            total_ns: nanos(end - begin),
            watching,
            failed,
        });
        sleep(LOOK_EVERY).await;
    }
}

/// Looks, for ever, how late the load generator is itself at the most.
pub(super) async fn tick(late_ns_max: Rc<Cell<u64>>) {
    loop {
        let due = Instant::now() + TICK;
        sleep_until(due).await;
        let late_ns = nanos(Instant::now() - due);
        late_ns_max.set(late_ns_max.get().max(late_ns));
    }
}

/// A URL taken apart, and the addresses behind it, at least one: a server need not listen at all of
/// them, so each is tried in turn. Each scheme that the URL may have comes with its port.
pub(super) async fn resolve(
    url: &str,
    schemes: &[(&str, u16)],
) -> Result<(Url, Vec<SocketAddr>), LoadError> {
    let wrong = |reason: String| LoadError::Url {
        url: url.to_owned(),
        reason,
    };
    let parsed = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
    let mut schemes = schemes.iter();
    let Some((_, port)) = schemes.find(|(scheme, _)| *scheme == parsed.scheme()) else {
        return Err(wrong(
            "all URLs of a load are rtsp://, all are rtsps:// or all are http://".to_owned(),
        ));
    };
    let host = parsed
        .host_str()
        .ok_or_else(|| wrong("no host".to_owned()))?;
    let host = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let found = lookup_host((host.as_str(), parsed.port().unwrap_or(*port))).await;
    let found = found.map_err(|error| wrong(error.to_string()))?;
    let addresses: Vec<_> = found.collect();
    match addresses.is_empty() {
        true => Err(wrong("no address".to_owned())),
        false => Ok((parsed, addresses)),
    }
}

/// The URL without the user in it, who is told in a header of a request.
pub(super) fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[host..])
}

/// The user in an URL, and the password (RFC 3986, section 3.2.1).
pub(super) fn user_of(url: &Url) -> Option<(String, String)> {
    let (name, password) = (url.username(), url.password());
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let is_told = !name.is_empty() || password.is_some();
    is_told.then(|| (decoded(name), decoded(password.unwrap_or_default())))
}

/// Refuses what cannot be done, in words with the bound.
pub(super) fn check(
    urls: &[String],
    clients: u32,
    zipf: f64,
    time_ns: u64,
) -> Result<(), LoadError> {
    refuse! { LoadError::Settings;
        urls.is_empty() => "nothing to ask for: give an URL";
        !(1..=CLIENTS_MAX).contains(&clients) => "{clients} clients: ask for 1 to {CLIENTS_MAX}";
        !(0.0..=10.0).contains(&zipf) => "Zipf's exponent {zipf}: ask for 0 to 10";
        !(1..=DAY_NS).contains(&time_ns) => "a load of {time_ns} ns: ask for 1 ns to 24 h";
    }
    Ok(())
}

/// Refuses users in URLs of a scheme by which nobody is told of them.
pub(super) fn check_no_user(urls: &[String]) -> Result<(), LoadError> {
    let has_user = urls.iter().any(|url| without_user(url) != *url);
    refuse! { LoadError::Settings;
        has_user
            => "a user in an URL of http:// or hls://, by which none is told: leave it out, and \
                give a signed URL, or one with a token (?token=)";
    }
    Ok(())
}

pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn run(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn who_is_interrupted_waits_no_longer() {
        run(async {
            let begin = Instant::now();
            let end = LoadEnd::new(begin + LONG);
            assert_eq!(end.within(end.at(), ready(7)).await, Some(7));
            assert_eq!(end.within(begin, pending::<()>()).await, None);
            let interrupting = Rc::clone(&end);
            let interrupting = spawn_local(async move { interrupting.interrupt() });
            end.sleep_until(end.at()).await;
            interrupting.await.unwrap();
            assert!(end.at() < begin + LONG && Instant::now() >= end.at());
            let at = end.at();
            // Who comes later does not wait either, and what is over stays over.
            end.sleep_until(begin + LONG).await;
            end.interrupt();
            assert_eq!(end.at(), at);
            end.wait_for(vec![spawn_local(pending())]).await;
            assert!(begin.elapsed() < LONG);
        });
    }

    #[test]
    fn a_user_in_an_url_is_told_apart_from_it() {
        for (url, without, name, password) in [
            (
                "rtsp://anna:x@h:1/a@b?c@d",
                "rtsp://h:1/a@b?c@d",
                "anna",
                "x",
            ),
            ("rtsp://an%40na:p%3ass@h", "rtsp://h", "an@na", "p:ss"),
            ("rtsp://anna:p@ss@h/x", "rtsp://h/x", "anna", "p@ss"),
            ("rtsps://anna@[::1]/x", "rtsps://[::1]/x", "anna", ""),
        ] {
            assert_eq!(without_user(url), without);
            let told = user_of(&Url::parse(url).unwrap());
            assert_eq!(told, Some((name.to_owned(), password.to_owned())), "{url}");
        }
        for url in ["rtsp://h/a@b", "http://h?a@b", "x"] {
            assert_eq!(without_user(url), url);
        }
        assert_eq!(user_of(&Url::parse("rtsp://h/a@b").unwrap()), None);
    }

    #[test]
    fn a_load_generator_that_stands_still_is_late() {
        run(async {
            let late_ns_max: Rc<Cell<u64>> = Rc::default();
            let ticking = spawn_local(tick(Rc::clone(&late_ns_max)));
            sleep(Duration::from_millis(1)).await;
            std::thread::sleep(Duration::from_millis(100));
            let begin = Instant::now();
            while late_ns_max.get() < 80_000_000 {
                assert!(begin.elapsed() < LONG);
                sleep(Duration::from_millis(1)).await;
            }
            ticking.abort();
        });
    }

    #[test]
    fn clients_are_waited_for_until_a_second_interrupt() {
        run(async {
            let end = LoadEnd::new(Instant::now() + LONG);
            end.interrupt();
            let client = spawn_local(sleep(Duration::from_millis(20)));
            let gone = Rc::new(Cell::new(false));
            let goes = Rc::clone(&gone);
            let goes = spawn_local(async move {
                drop(client.await);
                goes.set(true);
            });
            end.wait_for(vec![goes]).await;
            assert!(gone.get());
        });
    }
}
