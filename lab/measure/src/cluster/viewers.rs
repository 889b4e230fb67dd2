//! Those who watch: each asks for its film, follows redirects, is played to, and leaves.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use onrush_simulate::{Arrival, film_path};
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_testkit::rtsp_client::Client;

use super::nodes::rtsp;
use super::record::{Settings, Visit};

/// The first viewer's port for RTP; each has two.
pub(super) const PORT_FIRST: u16 = 10_000;
/// Redirects that a viewer follows, as players do.
const REDIRECTS_MAX: u32 = 5;
/// What went wrong is kept of so many.
const FAILURES_MAX: usize = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// What became of all.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// By the arrival's place.
    pub(super) visits: Vec<(usize, Visit)>,
    pub(super) failed: u64,
    pub(super) failures: Vec<String>,
}

/// What those who ask have in common.
pub(super) struct Audience<'a> {
    pub(super) settings: &'a Settings,
    pub(super) arrivals: &'a [Arrival],
    /// When the first second begins, of the monotonic clock.
    pub(super) begin_ns: u64,
    /// It is over: everybody leaves.
    pub(super) is_over: &'a AtomicBool,
    /// What each node has served.
    pub(super) warm: &'a Mutex<HashSet<(u32, u32)>>,
}

/// A viewer who is played to.
struct Watching {
    client: Client,
    url: String,
    session: String,
    leaves_ns: u64,
}

impl Audience<'_> {
    /// Has every `askers`th of those who come watch, from the `first` on. In the namespace of the
    /// calling thread.
    pub(super) fn watch(&self, first: usize) -> Outcome {
        let askers = self.settings.askers as usize;
        let mut mine = self.arrivals.iter().enumerate();
        let mut mine = mine.by_ref().skip(first).step_by(askers).peekable();
        let mut outcome = Outcome::default();
        let mut watching: Vec<Option<Watching>> = Vec::new();
        // What is next to do for somebody who watches.
        let mut due = BinaryHeap::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let comes_ns = mine.peek().map(|&(place, _)| self.comes_ns(place));
            let does_ns = due.peek().map(|&Reverse((at_ns, _))| at_ns);
            let next_ns = [comes_ns, does_ns].into_iter().flatten().min();
            let now_ns = monotonic_ns();
            let Some(next_ns) = next_ns.filter(|&next_ns| next_ns <= now_ns) else {
                // Not for long: it may be over before.
                let soon_ns = now_ns + SECOND_NS / 10;
                sleep_until_ns(next_ns.map_or(soon_ns, |next_ns| next_ns.min(soon_ns)));
                continue;
            };
            if comes_ns == Some(next_ns) {
                let (place, arrival) = mine.next().expect("it was peeked at");
                match self.join(place, arrival) {
                    Ok((viewer, visit)) => {
                        due.push(Reverse((self.next_ns(&viewer), watching.len())));
                        watching.push(Some(viewer));
                        outcome.visits.push((place, visit));
                    }
                    Err(error) => {
                        outcome.fail(format!("viewer {place}: {error}"));
                        outcome.visits.push((place, failed(arrival)));
                    }
                }
                continue;
            }
            let Some(Reverse((_, number))) = due.pop() else {
                continue;
            };
            let Some(mut viewer) = watching[number].take() else {
                continue;
            };
            match viewer.go_on(now_ns) {
                Ok(true) => {
                    due.push(Reverse((self.next_ns(&viewer), number)));
                    watching[number] = Some(viewer);
                }
                Ok(false) => {}
                Err(error) => outcome.fail(format!("{}: {error}", viewer.url)),
            }
        }
        for mut viewer in watching.into_iter().flatten() {
            viewer.leaves_ns = 0;
            if let Err(error) = viewer.go_on(monotonic_ns()) {
                outcome.fail(format!("{}: {error}", viewer.url));
            }
        }
        outcome
    }

    /// Those of one second come one after the other in the course of it.
    fn comes_ns(&self, place: usize) -> u64 {
        let at_s = self.arrivals[place].at_s;
        let of_second = |it: &Arrival| it.at_s < at_s;
        let before = self.arrivals.partition_point(of_second);
        let until = self.arrivals.partition_point(|it| it.at_s <= at_s);
        let (number, count) = ((place - before) as u64, (until - before) as u64);
        self.begin_ns + u64::from(at_s - 1) * SECOND_NS + SECOND_NS * number / count.max(1)
    }

    /// When there is something to do for a viewer: before the film is over it begins again.
    fn next_ns(&self, viewer: &Watching) -> u64 {
        let again_ns = u64::from(self.settings.film_s) * SECOND_NS * 3 / 4;
        // Sessions end by themselves after a minute.
        viewer
            .leaves_ns
            .min(monotonic_ns() + again_ns.min(45 * SECOND_NS))
    }

    fn join(&self, place: usize, arrival: &Arrival) -> io::Result<(Watching, Visit)> {
        let asked_ns = monotonic_ns();
        let agent = format!("onrush-lab viewer {place}");
        let film = film_path(arrival.film);
        let mut url = format!("rtsp://{}/{film}", rtsp(arrival.asked));
        let mut redirects = 0;
        let (mut client, node) = loop {
            let node = self.node_of(&url)?;
            let mut client = Client::connect(rtsp(node))?;
            let answer = client.request("DESCRIBE", &url, &[("User-Agent", &agent)])?;
            match (answer.status, answer.header("Location")) {
                (200, _) => break (client, node),
                (302, Some(location)) if redirects < REDIRECTS_MAX => {
                    url = location.to_owned();
                    redirects += 1;
                }
                (status, _) => return Err(unexpected(format!("DESCRIBE: {status}"))),
            }
        };
        let port = usize::from(PORT_FIRST) + place * 2;
        let transport = format!("RTP/AVP;unicast;client_port={port}-{}", port + 1);
        let control = format!("rtsp://{}/{film}/track1", rtsp(node));
        let headers = [("Transport", &*transport), ("User-Agent", &agent)];
        let answer = client.request("SETUP", &control, &headers)?;
        let session = answer.session_id().map(|(id, _)| id.to_owned());
        let session = session.filter(|_| answer.status == 200);
        let session = session.ok_or_else(|| unexpected(format!("SETUP: {}", answer.status)))?;
        let mut viewer = Watching {
            client,
            url: format!("rtsp://{}/{film}", rtsp(node)),
            session,
            leaves_ns: asked_ns + u64::from(arrival.stay_s) * SECOND_NS,
        };
        viewer.play()?;
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        let visit = Visit {
            late_ns: asked_ns.saturating_sub(self.comes_ns(place)),
            joined_ns: monotonic_ns() - asked_ns,
            served: Some(node),
            redirects,
            is_warm: !warm.insert((node, arrival.film)),
            ..failed(arrival)
        };
        Ok((viewer, visit))
    }

    fn node_of(&self, url: &str) -> io::Result<u32> {
        let mut nodes = 0..self.settings.simulated.nodes;
        let is_at = |address: SocketAddr| url.starts_with(&format!("rtsp://{address}/"));
        let node = nodes.find(|&node| is_at(rtsp(node)));
        node.ok_or_else(|| unexpected(format!("{url} is at no node")))
    }
}

impl Watching {
    /// Plays on, or leaves; whether it watches on.
    fn go_on(&mut self, now_ns: u64) -> io::Result<bool> {
        if now_ns < self.leaves_ns {
            self.play()?;
            return Ok(true);
        }
        self.request("TEARDOWN", &[])?;
        Ok(false)
    }

    /// From the beginning.
    fn play(&mut self) -> io::Result<()> {
        self.request("PLAY", &[("Range", "npt=0-")])
    }

    fn request(&mut self, method: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        let session = [("Session", &*self.session)];
        let headers = [&session, headers].concat();
        let answer = self.client.request(method, &self.url, &headers)?;
        match answer.status {
            200 => Ok(()),
            status => Err(unexpected(format!("{method}: {status}"))),
        }
    }
}

impl Outcome {
    fn fail(&mut self, what: String) {
        self.failed += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(what);
        }
    }

    /// What became of others, too.
    pub(super) fn add(&mut self, other: Self) {
        self.visits.extend(other.visits);
        self.failed += other.failed;
        self.failures.extend(other.failures);
        self.failures.truncate(FAILURES_MAX);
    }
}

fn unexpected(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn failed(arrival: &Arrival) -> Visit {
    Visit {
        at_s: arrival.at_s,
        late_ns: 0,
        joined_ns: 0,
        film: arrival.film,
        asked: arrival.asked,
        served: None,
        simulated: arrival.served,
        redirects: 0,
        is_warm: false,
    }
}
