//! The viewers, each a task.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use onrush_sys::clock::{monotonic_ns, thread_cpu_ns};
use onrush_testkit::playout::{Ended, Played, Playouts, WARM_UP_NS};
use onrush_testkit::sink::{Look as SinkLook, PortCounts, Sink};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};

use super::account::{self, Account};
use super::connection::TlsTo;
use super::follow::{Arrived, BURST_GAP_NS};
use super::plan::{Act, Behaviour, Popularity, Random};
use super::receiving::{Received, Receiver, Tally, Unread, bind_pair};
use super::rtsp::{Description, Server, TRACKS_MAX, Track, Viewer, ViewerError};
use super::server::{Memory, ServerProcess, Usage, memory};
use super::shared::{
    AGAIN, LoadEnd, PAUSE, REDIRECTS_MAX, arrivals, report, resolve, tick, user_of, without_user,
};
use super::transport::Transport;
use super::{
    Acts, Connections, Generator, LoadError, Needed, Progress, Receive, Run, STREAMS_KEPT_MAX,
    Settings, Slice, Stream,
};
use crate::histogram::{Histogram, Quantiles};
use crate::tls_peer;

/// How long after a pause was answered packets may still be on their way.
const STRAGGLERS: Duration = Duration::from_millis(50);

/// How often it is looked whether a film is over whose length its server has not told.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A map of ours that can be written once can be read and written always.
const PORT_IS_THE_SINKS: &str = "the port is the sink's";

/// What all viewers share.
struct Shared {
    settings: Settings,
    destinations: Vec<Destination>,
    tls: Arc<ClientConfig>,
    process: Option<ServerProcess>,
    popularity: Popularity,
    begin: Instant,
    begin_ns: u64,
    /// When all go.
    end: Rc<LoadEnd>,
    /// RTP ports that are free, those longest unused first.
    ports: RefCell<VecDeque<u16>>,
    sink: Option<RefCell<Sink>>,
    watching: Cell<u32>,
    /// What sockets and connections saw; the sink keeps its own account.
    tally: Rc<Tally>,
    /// RTP packets that were taken from the sink's account.
    sunk: Cell<u64>,
    /// How late the generator's own timers rang at the most.
    late_ns_max: Rc<Cell<u64>>,
    seen: RefCell<Seen>,
}

/// Where an URL leads.
#[derive(Clone)]
struct Destination {
    server: Server,
    /// The URL as it is sent: without a user.
    url: String,
    /// The user in it, and the password.
    user: Option<(String, String)>,
}

/// What the viewers have seen.
#[derive(Default)]
struct Seen {
    visits: u64,
    played: u64,
    /// Viewers who watched until the load was over. They say so themselves: who looks at all of
    /// them at that moment finds some gone already whose timer rang first.
    stayed: u32,
    acts: Acts,
    failures: BTreeMap<String, u64>,
    totals: Arrived,
    start_up_ns: Vec<u64>,
    unserved: u64,
    playouts: Playouts,
    /// Of visits that ended in this slice.
    playouts_of_slice: Playouts,
    streams: Vec<Stream>,
}

/// Who acts at one place among the viewers.
struct Actor {
    behaviour: Behaviour,
    random: Random,
    /// In this visit.
    has_jumped: bool,
    /// In this visit it was interrupted, or the film had an end.
    is_interrupted: bool,
    /// In this visit it watches a channel.
    is_channel: bool,
    /// When it stopped watching.
    ended_ns: Option<u64>,
}

/// One stream while it is watched.
struct Watched {
    /// The first of its pair of ports, if it came to ports of its own.
    port: Option<u16>,
    from: From,
}

/// Where a stream is received.
enum From {
    /// The sink counts it.
    Sink,
    Socket(Receiver),
    /// Frames of the connection.
    Frames(Rc<RefCell<Received>>),
    /// All of the connection, unread.
    Unread(Rc<Unread>),
}

/// The channels for packets and for RTCP among the frames of a connection, and what comes on them.
type Channels = (u8, Option<u8>, Rc<RefCell<Received>>);

/// Lets all come, watch and go; SIGINT may end it early.
pub(super) async fn all(
    settings: &Settings,
    progress: impl Fn(Progress) + 'static,
    may_interrupt: bool,
) -> Result<Run, LoadError> {
    let coming = (settings.arrival, settings.clients, settings.ramp_ns);
    let (arrivals, ramp_ns) = arrivals(coming, settings.seed);
    let shared = Shared::new(settings, ramp_ns).await?;
    shared.moment(Look::Full)?;
    let hearing = may_interrupt.then(|| shared.end.hear_interrupts());
    let hearing = hearing.transpose()?;
    let mut viewers = Vec::with_capacity(arrivals.len());
    for (i, (at_ns, random)) in (0..).zip(arrivals) {
        viewers.push(spawn_local(viewer(Rc::clone(&shared), i, at_ns, random)));
    }
    let looked_at = Rc::clone(&shared);
    let look = move || {
        let failed = looked_at.seen.borrow().failures.values().sum();
        (looked_at.watching.get(), failed)
    };
    let times = (shared.begin, shared.end.at());
    let reporter = spawn_local(report(times, look, progress));
    let ticking = spawn_local(tick(Rc::clone(&shared.late_ns_max)));
    let all_have_come = shared.begin + Duration::from_nanos(ramp_ns);
    shared.end.sleep_until(all_have_come).await;
    let from = shared.moment(Look::Full)?;
    let mut slices = Vec::new();
    let mut before = from.clone();
    // Who left while others came belongs to no slice.
    shared.needed_of_slice();
    while let Some(slice_end) = shared.slice_end() {
        shared.end.sleep_until(slice_end).await;
        let now = shared.moment(Look::Full)?;
        slices.push(Slice {
            needed: shared.needed_of_slice(),
            ..now.slice_since(&before, from.at_ns, settings.core)
        });
        before = now;
    }
    shared.end.sleep_until(shared.end.at()).await;
    let to = shared.moment(Look::Full)?;
    shared.end.wait_for(viewers).await;
    let helpers = [Some(reporter), Some(ticking), hearing];
    for task in helpers.into_iter().flatten() {
        task.abort();
        drop(task.await);
    }
    let last = shared.moment(Look::Packets)?;
    Ok(Run {
        packets_sunk: shared.sink.is_some().then_some(last.packets),
        slices,
        ..shared.run(&from, &to)
    })
}

/// What is looked at.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    /// Packets, and the server's process, if that is known.
    Full,
    /// Packets: the server may be gone.
    Packets,
}

/// The accounts at a moment.
#[derive(Clone)]
struct Moment {
    at_ns: u64,
    own_cpu_ns: u64,
    usage: Option<Usage>,
    memory: Option<Memory>,
    account: Option<account::Moment>,
    visits: u64,
    packets: u64,
    lateness: Histogram,
    connections: Connections,
}

impl Moment {
    /// What has happened since `before`, in a time that began at `begin_ns`, where the server has
    /// processor `core`.
    fn slice_since(&self, before: &Self, begin_ns: u64, core: Option<usize>) -> Slice {
        let usage = self.usage.zip(before.usage);
        let accounts = self.account.as_ref().zip(before.account.as_ref());
        Slice {
            end_ns: self.at_ns - begin_ns,
            packets: self.packets.saturating_sub(before.packets),
            lateness: Quantiles::from(&self.lateness.since(&before.lateness)),
            needed: None,
            server: usage.map(|(now, before)| Usage {
                memory_bytes: now.memory_bytes,
                ..now.since(before)
            }),
            memory: self.memory,
            account: accounts
                .zip(core)
                .map(|((now, before), core)| Account::between(before, now, core)),
            visits: self.visits,
        }
    }
}

impl Shared {
    async fn new(settings: &Settings, ramp_ns: u64) -> Result<Rc<Self>, LoadError> {
        let tls = tls_peer::client_config().map_err(|source| LoadError::System {
            what: "set up TLS",
            source,
        })?;
        let mut destinations = Vec::new();
        for url in &settings.urls {
            destinations.push(destination(url, &tls).await?);
        }
        let process = ServerProcess::find(settings.pid)?;
        if let Some(pid) = settings.pid.filter(|_| settings.slice_ns > 0) {
            memory(pid).map_err(|source| LoadError::Pid { pid, source })?;
        }
        let sink = sink(settings, &destinations)?;
        let begin = Instant::now();
        let total_ns = ramp_ns.saturating_add(settings.time_ns);
        let shared = Self {
            popularity: Popularity::zipf(settings.urls.len(), settings.zipf),
            settings: settings.clone(),
            destinations,
            tls,
            process,
            begin,
            begin_ns: monotonic_ns(),
            end: LoadEnd::new(begin + Duration::from_nanos(total_ns)),
            ports: RefCell::default(),
            sink: sink.map(RefCell::new),
            watching: Cell::new(0),
            tally: Rc::default(),
            sunk: Cell::new(0),
            late_ns_max: Rc::default(),
            seen: RefCell::default(),
        };
        shared.ports.borrow_mut().extend(shared.rtp_ports());
        Ok(Rc::new(shared))
    }

    /// When the next slice ends, if there is one more before all go.
    fn slice_end(&self) -> Option<Instant> {
        let end = Instant::now() + Duration::from_nanos(self.settings.slice_ns);
        (self.settings.slice_ns > 0 && end < self.end.at()).then_some(end)
    }

    fn rtp_ports(&self) -> impl Iterator<Item = u16> {
        let first = self.settings.port_first;
        (0..pairs(&self.settings)).map(move |i| first + 2 * i)
    }

    fn moment(&self, look: Look) -> Result<Moment, LoadError> {
        let process = self.process.as_ref().filter(|_| look == Look::Full);
        let usage = process.map(ServerProcess::usage);
        // All mappings are looked through for the second: only where it is asked for.
        let sliced = process.filter(|_| self.settings.slice_ns > 0);
        let sliced = sliced.and_then(ServerProcess::pid);
        let memory = sliced.and_then(|pid| memory(pid).ok());
        let account = sliced.map(account::Moment::now);
        let tally = &self.tally;
        let (packets, lateness) = match &self.sink {
            None => (tally.packets.get(), tally.lateness.borrow().clone()),
            Some(sink) => {
                let sink = sink.borrow();
                let mut packets = self.sunk.get();
                // RTCP, at the odd ports, is no stream.
                for port in self.rtp_ports() {
                    packets += sink.port(port)?.counts.packets;
                }
                (packets, Histogram::from(&sink.lateness()?))
            }
        };
        Ok(Moment {
            at_ns: monotonic_ns(),
            own_cpu_ns: thread_cpu_ns(),
            usage,
            memory,
            account,
            visits: self.seen.borrow().visits,
            packets,
            lateness,
            connections: Connections {
                inspected_bytes: tally.inspected_bytes.get(),
                unread_bytes: tally.unread_bytes.get(),
            },
        })
    }

    fn run(&self, from: &Moment, to: &Moment) -> Run {
        let mut seen = self.seen.take();
        let undecrypted = self.tally.undecrypted.get();
        if undecrypted > 0 {
            let what = "a packet could not be decrypted".to_owned();
            seen.failures.insert(what, undecrypted);
        }
        let ended = self.process.as_ref().and_then(ServerProcess::failure);
        seen.failures.extend(ended);
        let is_interleaved = self.settings.transport.is_interleaved();
        Run {
            wall_ns: to.at_ns - from.at_ns,
            visits: seen.visits,
            failures: seen.failures.into_iter().collect(),
            played: seen.played,
            acts: seen.acts,
            watching: seen.stayed,
            totals: seen.totals,
            lateness: to.lateness.since(&from.lateness),
            packets_steady: to.packets.saturating_sub(from.packets),
            start_up_ns: seen.start_up_ns,
            unserved: seen.unserved,
            playouts: self.settings.buffer_ns.is_some().then_some(seen.playouts),
            generator: Some(Generator {
                late_ns_max: self.late_ns_max.get(),
                unread_ns_max: self.tally.unread_ns_max.get(),
                dropped: self.tally.dropped.get(),
            }),
            server: to.usage.zip(from.usage).map(|(to, from)| to.since(from)),
            own_cpu_ns: to.own_cpu_ns - from.own_cpu_ns,
            streams: seen.streams,
            packets_sunk: None,
            slices: Vec::new(),
            connections: is_interleaved.then(|| to.connections.since(from.connections)),
        }
    }
}

/// Where an URL leads, with TLS if it says so.
async fn destination(url: &str, tls: &Arc<ClientConfig>) -> Result<Destination, LoadError> {
    let (parsed, addresses) = resolve(url, &[("rtsp", 554), ("rtsps", 322)]).await?;
    let host = parsed.host_str().unwrap_or_default();
    let name = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(name).map_err(|error| LoadError::Url {
        url: url.to_owned(),
        reason: error.to_string(),
    })?;
    let tls = (parsed.scheme() == "rtsps").then(|| TlsTo {
        config: Arc::clone(tls),
        name,
    });
    Ok(Destination {
        server: Server { addresses, tls },
        url: without_user(url),
        user: user_of(&parsed),
    })
}

/// The sink, if viewers are to have one, for what is sent from there.
fn sink(settings: &Settings, destinations: &[Destination]) -> Result<Option<Sink>, LoadError> {
    let Receive::Sink {
        device,
        look_every,
        bursts,
    } = &settings.receive
    else {
        return Ok(None);
    };
    let last = settings.port_first + 2 * pairs(settings) - 1;
    let look = SinkLook {
        every: *look_every,
        burst_gap_ns: if *bursts { BURST_GAP_NS } else { 0 },
        playout: settings.buffer_ns.is_some(),
        ..SinkLook::default()
    };
    let mut sink = Sink::attach_here(device, settings.port_first..=last, look)?;
    for address in destinations.iter().flat_map(|it| &it.server.addresses) {
        sink.count_sender(address.ip())?;
    }
    Ok(Some(sink))
}

/// One place among the viewers: someone watches there from its time to the end.
async fn viewer(shared: Rc<Shared>, place: u64, at_ns: u64, mut random: Random) {
    let comes = shared.begin + Duration::from_nanos(at_ns);
    shared.end.sleep_until(comes).await;
    let mut actor = Actor {
        behaviour: shared.settings.behaviour.of_one(&mut random),
        random,
        has_jumped: false,
        is_interrupted: false,
        is_channel: false,
        ended_ns: None,
    };
    // Who is refused and comes again has wanted to see something all the while, unless an aim lets
    // it be refused.
    let mut wanted_ns = shared.begin_ns + at_ns;
    let mut is_waiting = false;
    while Instant::now() < shared.end.at() {
        shared.seen.borrow_mut().visits += 1;
        let url = shared.url(place, &mut actor.random);
        let mut streams = Vec::new();
        let begin_ns = monotonic_ns();
        actor.is_interrupted = false;
        let visit = visit(&shared, (url, place), &mut streams, &mut actor).await;
        let ended_ns = actor.ended_ns.take().unwrap_or_else(monotonic_ns);
        // Who was sent away is a failure, and has nothing more to come.
        let ended = shared.ended(ended_ns).filter(|_| visit.is_ok());
        let of_visit = (url, begin_ns, actor.is_channel);
        let put_down = |stream| shared.put_down(stream, of_visit, ended);
        let all = streams.into_iter().map(put_down);
        let seen = all.fold(SeenOfStream::default(), SeenOfStream::and);
        shared.count_viewer(&seen, &actor, ended);
        // The viewer waits for the first packet of any of its streams.
        is_waiting = seen.first_ns.is_none();
        if let Some(first_ns) = seen.first_ns {
            let start_up_ns = first_ns.saturating_sub(wanted_ns);
            shared.seen.borrow_mut().start_up_ns.push(start_up_ns);
        } else if visit.is_ok() {
            // Nothing came, though nobody said why. Who had no time to wait for it is not counted.
            let waited_ns = ended_ns.saturating_sub(wanted_ns);
            is_waiting = waited_ns > shared.settings.start_up_ns_max;
        }
        if let Err(error) = visit {
            shared.count_failure(&error);
            if shared.settings.aim.is_some() && error.is_for_want_of_room() {
                is_waiting = false;
            }
            let again = Instant::now() + AGAIN;
            shared.end.sleep_until(again.min(shared.end.at())).await;
        }
        if !is_waiting {
            wanted_ns = monotonic_ns();
        }
    }
    // Who has not waited for so long might still be served in time.
    let waited_ns = monotonic_ns().saturating_sub(wanted_ns);
    let is_unserved = is_waiting && waited_ns > shared.settings.start_up_ns_max;
    shared.seen.borrow_mut().unserved += u64::from(is_unserved);
}

/// Someone comes, watches, and goes.
async fn visit(
    shared: &Rc<Shared>,
    (url, place): (usize, u64),
    streams: &mut Vec<Watched>,
    actor: &mut Actor,
) -> Result<(), ViewerError> {
    let (mut viewer, description) = shared.reach(url).await?;
    let Description {
        tracks,
        seconds,
        is_channel,
    } = description;
    actor.is_channel = is_channel;
    let inspects = shared.settings.inspects(place);
    shared
        .set_up(&mut viewer, (&tracks, inspects), streams)
        .await?;
    viewer.play(None).await?;
    if let Some(From::Unread(unread)) = streams.first().map(|stream| &stream.from) {
        viewer.stop_reading(&shared.tally, unread);
    }
    shared.seen.borrow_mut().played += 1;
    shared.watching.set(shared.watching.get() + 1);
    let watched = watch(shared, &mut viewer, seconds, streams, actor).await;
    actor.ended_ns = Some(monotonic_ns());
    shared.watching.set(shared.watching.get() - 1);
    watched?;
    let torn_down = viewer.tear_down().await;
    // Of a stream that is over the session may be, too.
    if !streams.iter().all(Watched::is_over) {
        torn_down?;
    }
    // Before the ports are another's.
    sleep(STRAGGLERS).await;
    Ok(())
}

/// Watches to the end of the load, or until the viewer has had enough.
async fn watch(
    shared: &Shared,
    viewer: &mut Viewer,
    seconds: Option<f64>,
    streams: &mut [Watched],
    actor: &mut Actor,
) -> Result<(), ViewerError> {
    if Instant::now() >= shared.end.at() {
        return Ok(());
    }
    let mut media_end = Instant::now() + whole(seconds, 0.0);
    actor.has_jumped = false;
    let mut next = actor.next_act();
    let mut alive = Instant::now() + viewer.alive_every();
    loop {
        let act_at = next.map_or_else(|| shared.end.at(), |(at, _)| at);
        let until = shared.end.at().min(alive).min(media_end).min(act_at);
        let is_over = watch_until(shared, viewer, (&*streams, seconds), until).await?;
        let now = Instant::now();
        let seek = next.filter(|_| now >= act_at).map(|(_, act)| act);
        match seek {
            _ if now >= shared.end.at() => {
                shared.seen.borrow_mut().stayed += 1;
                return Ok(());
            }
            // Not every server plays again what was over: who sees it once more asks anew.
            _ if is_over => {
                actor.is_interrupted = true;
                return Ok(());
            }
            Some(Act::Leave) => {
                shared.seen.borrow_mut().acts.leaves += 1;
                return Ok(());
            }
            Some(Act::Pause) => {
                actor.is_interrupted = true;
                let now = shared.ended(monotonic_ns());
                shared.interrupt(viewer, streams, PAUSE, now).await?;
                viewer.play(None).await?;
                shared.seen.borrow_mut().acts.pauses += 1;
                media_end += PAUSE;
                next = actor.next_act();
            }
            Some(Act::Seek) => {
                let to = seconds.unwrap_or(0.0) * 0.9 * actor.random.unit();
                actor.is_interrupted = true;
                let now = shared.ended(monotonic_ns());
                shared.interrupt(viewer, streams, STRAGGLERS, now).await?;
                viewer.play(Some(to)).await?;
                let acts = &mut shared.seen.borrow_mut().acts;
                acts.seeks += 1;
                acts.jumped += u64::from(!mem::replace(&mut actor.has_jumped, true));
                media_end = Instant::now() + whole(seconds, to);
                next = actor.next_act();
            }
            // The film is over: once more.
            None if now >= media_end => {
                actor.is_interrupted = true;
                shared.interrupt(viewer, streams, STRAGGLERS, None).await?;
                viewer.play(Some(0.0)).await?;
                media_end = Instant::now() + whole(seconds, 0.0);
            }
            None => {}
        }
        if now >= alive {
            viewer.keep_alive().await?;
            alive = Instant::now() + viewer.alive_every();
        }
    }
}

/// Watches until that moment, or until the load is over; or a film whose length nobody has told,
/// which is the answer.
async fn watch_until(
    shared: &Shared,
    viewer: &mut Viewer,
    (streams, seconds): (&[Watched], Option<f64>),
    until: Instant,
) -> Result<bool, ViewerError> {
    let may_end = seconds.is_none() && streams.iter().any(|it| it.received().is_some());
    loop {
        let look = match may_end {
            true => until.min(Instant::now() + LOOK_EVERY),
            false => until,
        };
        let waited = shared.end.within(look, viewer.wait_until(look)).await;
        if may_end && streams.iter().all(Watched::is_over) {
            return Ok(true);
        }
        waited.transpose()?;
        if Instant::now() >= until.min(shared.end.at()) {
            return Ok(false);
        }
    }
}

/// How long a film of that length lasts from a place on; for ever, if nobody knows.
fn whole(seconds: Option<f64>, from: f64) -> Duration {
    let left = seconds.map(|seconds| Duration::try_from_secs_f64(seconds - from));
    left.and_then(Result::ok)
        .unwrap_or(Duration::from_secs(10 * 24 * 3600))
}

impl Shared {
    /// Which URL is watched at a place.
    fn url(&self, place: u64, random: &mut Random) -> usize {
        if self.settings.in_turn {
            let urls = self.settings.urls.len() as u64;
            usize::try_from(place % urls).expect("below a usize")
        } else {
            self.popularity.draw(random)
        }
    }

    /// Connects to where the server is, or sends its viewers on to, and asks what there is to be
    /// watched.
    async fn reach(&self, url: usize) -> Result<(Viewer, Description), ViewerError> {
        let mut there = self.destinations[url].clone();
        let mut redirects_left = REDIRECTS_MAX;
        loop {
            let user = self.settings.user.as_ref().or(there.user.as_ref());
            let mut viewer = Viewer::connect(&there.server, &there.url, user).await?;
            match viewer.describe().await {
                Err(ViewerError::Moved { location, .. }) if redirects_left > 0 => {
                    let next = destination(&location, &self.tls).await;
                    let mut next = next.map_err(|_| ViewerError::Elsewhere)?;
                    for address in &next.server.addresses {
                        self.count_sender(address.ip())?;
                    }
                    next.user = next.user.or(there.user);
                    (there, redirects_left) = (next, redirects_left - 1);
                }
                described => return Ok((viewer, described?)),
            }
        }
    }

    /// The sink, if there is one, counts what comes from there.
    fn count_sender(&self, ip: IpAddr) -> Result<(), ViewerError> {
        match &self.sink {
            None => Ok(()),
            Some(sink) => {
                let counted = sink.borrow_mut().count_sender(ip);
                counted.map_err(ViewerError::Sink)
            }
        }
    }

    fn count_failure(&self, error: &ViewerError) {
        let mut seen = self.seen.borrow_mut();
        *seen.failures.entry(error.to_string()).or_default() += 1;
    }

    /// Somebody stops watching, or interrupts it, at that moment.
    fn ended(&self, at_ns: u64) -> Option<Ended> {
        let buffer_ns = self.settings.buffer_ns.unwrap_or(0);
        Some(Ended { at_ns, buffer_ns })
    }

    /// Counts what a viewer would have had to buffer, if somebody looked at what came to it.
    fn count_viewer(&self, seen: &SeenOfStream, actor: &Actor, ended: Option<Ended>) {
        let Some((played, first_ns)) = seen.played.zip(seen.first_ns) else {
            return;
        };
        let watched_ns = ended.map_or(0, |ended| ended.at_ns.saturating_sub(first_ns));
        // Nothing has come since its warm-up.
        let is_starved = played.packets == 0 && !actor.is_interrupted;
        let played = match is_starved && watched_ns > 2 * WARM_UP_NS {
            true => Played::starved(watched_ns),
            false => played,
        };
        let mut seen = self.seen.borrow_mut();
        seen.playouts.add(played);
        if self.settings.slice_ns > 0 {
            seen.playouts_of_slice.add(played);
        }
    }

    /// What those needed whose visits ended since this was last asked.
    fn needed_of_slice(&self) -> Option<Needed> {
        let ended = mem::take(&mut self.seen.borrow_mut().playouts_of_slice);
        self.settings.buffer_ns.and_then(|_| Needed::of(&ended))
    }

    /// Pauses; what is played then is measured from its own first packet. Numbers go on.
    async fn interrupt(
        &self,
        viewer: &mut Viewer,
        streams: &mut [Watched],
        rest: Duration,
        ended: Option<Ended>,
    ) -> Result<(), ViewerError> {
        viewer.pause().await?;
        sleep(rest).await;
        for Watched { port, from } in streams {
            match (from, port.zip(self.sink.as_ref())) {
                (From::Socket(Receiver { state, .. }) | From::Frames(state), _) => {
                    state.borrow_mut().restart_clock(ended);
                }
                (From::Sink, Some((port, sink))) => {
                    let mut sink = sink.borrow_mut();
                    sink.restart_playout(port, ended).expect(PORT_IS_THE_SINKS);
                    sink.restart_clock(port).expect(PORT_IS_THE_SINKS);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets all tracks up, and has them received.
    async fn set_up(
        &self,
        viewer: &mut Viewer,
        (tracks, inspects): (&[Track], bool),
        streams: &mut Vec<Watched>,
    ) -> Result<(), ViewerError> {
        let transport = self.settings.transport;
        let mut channels = Vec::new();
        for (number, track) in tracks.iter().enumerate() {
            if transport.takes_ports() {
                streams.push(self.take_up(viewer.local()?, track.clock_hz)?);
            }
            let port = streams.last().and_then(|stream| stream.port);
            let header = transport.header(number, port.unwrap_or(0));
            let agreed = viewer.set_up(&track.url, &header).await?;
            agreed.source.map_or(Ok(()), |ip| self.count_sender(ip))?;
            let state = || Received::new(&self.tally, track.clock_hz);
            match (transport, streams.last().map(|stream| &stream.from)) {
                (Transport::Srtp, Some(From::Socket(receiver))) if inspects => {
                    let key = track
                        .key
                        .clone()
                        .or(agreed.key)
                        .ok_or(ViewerError::NoPlace("key"))?;
                    receiver.state.borrow_mut().decrypt(&key);
                }
                (Transport::Tcp | Transport::Tls, _) => {
                    let channel = agreed.channel.ok_or(ViewerError::NoPlace("channel"))?;
                    channels.push((channel, agreed.rtcp_channel, state()));
                }
                (Transport::Multicast, _) => {
                    let group = agreed.group.ok_or(ViewerError::NoPlace("group"))?;
                    let receiver = Receiver::in_group(group, viewer.local()?.ip(), state());
                    let from = From::Socket(receiver.map_err(ViewerError::Join)?);
                    streams.push(Watched { port: None, from });
                }
                _ => {}
            }
        }
        if transport.is_interleaved() {
            self.begin_frames(viewer, (channels, inspects), streams);
        }
        Ok(())
    }

    /// What comes on the connection belongs to these tracks.
    fn begin_frames(
        &self,
        viewer: &mut Viewer,
        (channels, inspects): (Vec<Channels>, bool),
        streams: &mut Vec<Watched>,
    ) {
        if !inspects {
            let from = From::Unread(Rc::default());
            return streams.push(Watched { port: None, from });
        }
        streams.extend(channels.iter().map(|(.., state)| Watched {
            port: None,
            from: From::Frames(Rc::clone(state)),
        }));
        let on_frame = move |channel, packet: &mut [u8]| {
            let is_of = |(rtp, rtcp, _): &&Channels| [Some(*rtp), *rtcp].contains(&Some(channel));
            let Some((rtp, _, state)) = channels.iter().find(is_of) else {
                return;
            };
            let (mut state, now_ns) = (state.borrow_mut(), monotonic_ns());
            match *rtp == channel {
                true => state.packet(packet, now_ns),
                false => state.report(packet, now_ns),
            }
        };
        viewer.follow_frames(&self.tally, Box::new(on_frame));
    }

    /// Ports for one stream at this address, and sockets at them unless the sink counts.
    fn take_up(&self, local: SocketAddr, clock_hz: u32) -> Result<Watched, ViewerError> {
        loop {
            let port = self.ports.borrow_mut().pop_front();
            let port = port.ok_or(ViewerError::NoPort)?;
            // With the scope of a link-local address.
            let mut rtp = local;
            rtp.set_port(port);
            match self.receive_at(rtp, clock_hz) {
                Ok(from) => {
                    let port = Some(port);
                    return Ok(Watched { port, from });
                }
                // A port that another program has is left alone for good.
                Err(error) if is_taken(&error) => {}
                Err(error) => {
                    self.ports.borrow_mut().push_front(port);
                    return Err(ViewerError::Socket(error));
                }
            }
        }
    }

    /// Has what comes to a port received, or counted, unless another program has it.
    fn receive_at(&self, rtp: SocketAddr, clock_hz: u32) -> io::Result<From> {
        let Some(sink) = &self.sink else {
            let is_encrypted = self.settings.transport == Transport::Srtp;
            let state = Received::new(&self.tally, clock_hz);
            return Receiver::at_port(rtp, is_encrypted, state).map(From::Socket);
        };
        let (bound, mut sink) = (bind_pair(rtp), sink.borrow_mut());
        for port in [rtp.port(), rtp.port() + 1] {
            let set = sink.set_open(port, bound.is_ok());
            set.expect(PORT_IS_THE_SINKS);
        }
        // A port that begins anew has a clock of 90 kHz.
        if bound.is_ok() && clock_hz != 90_000 {
            let set = sink.set_clock(rtp.port(), clock_hz);
            set.expect(PORT_IS_THE_SINKS);
        }
        bound.map(|_| From::Sink)
    }

    /// What arrived of a stream, and when the first of it; its port begins anew.
    fn take_from(
        &self,
        (sink, port): (&RefCell<Sink>, u16),
        ended: Option<Ended>,
        is_channel: bool,
    ) -> SeenOfStream {
        let mut sink = sink.borrow_mut();
        let mut playout = sink.take_playout(port).expect(PORT_IS_THE_SINKS);
        if is_channel {
            playout = playout.of_channel();
        }
        let counts = sink.take_port(port).expect(PORT_IS_THE_SINKS);
        self.sunk.set(self.sunk.get() + counts.counts.packets);
        SeenOfStream {
            arrived: arrived(&counts),
            first_ns: Some(counts.arrival_ns.0).filter(|&ns| ns > 0),
            played: playout.finish(ended, counts.counts.packets),
        }
    }

    /// Counts what arrived of a stream that its viewer has left.
    fn put_down(
        &self,
        stream: Watched,
        (url, begin_ns, is_channel): (usize, u64, bool),
        ended: Option<Ended>,
    ) -> SeenOfStream {
        let Watched { port, from } = stream;
        let of_stream = match (from, port.zip(self.sink.as_ref())) {
            (From::Socket(Receiver { ref state, .. }) | From::Frames(ref state), _) => {
                let received = state.borrow();
                SeenOfStream {
                    arrived: received.follow.arrived,
                    first_ns: received.first_ns,
                    played: received.follow.played(received.ended(ended), is_channel),
                }
            }
            (From::Unread(unread), _) => SeenOfStream {
                arrived: Arrived {
                    bytes: unread.bytes.get(),
                    ..Arrived::default()
                },
                first_ns: unread.first_ns.get(),
                played: None,
            },
            (From::Sink, Some((port, sink))) => self.take_from((sink, port), ended, is_channel),
            (From::Sink, None) => <_>::default(),
        };
        self.ports.borrow_mut().extend(port);
        let SeenOfStream {
            arrived,
            first_ns,
            played,
        } = of_stream;
        let mut seen = self.seen.borrow_mut();
        // Bytes that nobody looked into are no packets'.
        if first_ns.is_none() || arrived.packets > 0 {
            seen.totals.add(&arrived);
        }
        if seen.streams.len() < STREAMS_KEPT_MAX {
            seen.streams.push(Stream {
                url: u32::try_from(url).unwrap_or(u32::MAX),
                begin_ns: begin_ns.saturating_sub(self.begin_ns),
                watched_ns: monotonic_ns().saturating_sub(begin_ns),
                arrived,
                played: played.filter(|_| self.settings.buffer_ns.is_some()),
            });
        }
        of_stream
    }
}

impl Watched {
    /// What has come of it, if somebody looks at that here.
    fn received(&self) -> Option<&Rc<RefCell<Received>>> {
        match &self.from {
            From::Socket(Receiver { state, .. }) | From::Frames(state) => Some(state),
            From::Sink | From::Unread(_) => None,
        }
    }

    /// Whether its server has said that it is over.
    fn is_over(&self) -> bool {
        self.received().is_some_and(|it| it.borrow().is_over())
    }
}

/// What came of a stream, or of all that a viewer watches.
#[derive(Clone, Copy, Default)]
struct SeenOfStream {
    arrived: Arrived,
    first_ns: Option<u64>,
    played: Option<Played>,
}

impl SeenOfStream {
    /// Of a viewer who watches both.
    fn and(mut self, other: Self) -> Self {
        self.arrived.add(&other.arrived);
        Self {
            arrived: self.arrived,
            first_ns: earlier(self.first_ns, other.first_ns),
            played: match (self.played, other.played) {
                (Some(one), Some(other)) => Some(one.and(other)),
                (one, other) => one.or(other),
            },
        }
    }
}

/// The earlier of two moments that may not have been.
fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

impl Actor {
    fn next_act(&mut self) -> Option<(Instant, Act)> {
        let (in_ns, act) = self.behaviour.next(&mut self.random)?;
        Some((Instant::now() + Duration::from_nanos(in_ns), act))
    }
}

/// What the sink has counted of a stream.
fn arrived(counts: &PortCounts) -> Arrived {
    let reordered = counts.counts.sequence_reordered;
    let but_those = |count: u64| count.saturating_sub(reordered);
    Arrived {
        packets: counts.counts.packets,
        bytes: counts.counts.bytes,
        lost: but_those(counts.counts.sequence_missing),
        reordered,
        repeated: but_those(counts.counts.sequence_repeated),
        lateness_ns_min: counts.lateness_ns.0,
        lateness_ns_max: counts.lateness_ns.1,
        burst_packets_max: counts
            .burst_packets_max
            .max(counts.counts.train_packets_max),
    }
}

/// Pairs of ports for viewers. A sink keeps other programs from what comes to its ports: it has no
/// more than viewers need, each twice, so that none is another's before all that was sent to it has
/// come.
fn pairs(settings: &Settings) -> u16 {
    let all = (u16::MAX - settings.port_first) / 2;
    match settings.receive {
        Receive::Sockets => all,
        Receive::Sink { .. } => {
            let needed = 2 * u64::from(settings.clients) * TRACKS_MAX as u64;
            u16::try_from(needed).unwrap_or(u16::MAX).min(all)
        }
    }
}

/// Whether a port is another program's, or nobody may have it.
fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AddrInUse | io::ErrorKind::PermissionDenied
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use onrush_testkit::sink::Counts;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;
    use crate::load::CLIENTS_MAX;
    use crate::load::shared::nanos;

    const VIEWERS: u32 = 8;

    /// Bounds what takes moments.
    const LONG: Duration = Duration::from_secs(60);

    const GRANTED: &str = "200 OK";

    /// Answers a viewer until it closes: all that it asks for is granted but for SETUP, which is
    /// answered as given; nothing is sent.
    fn serve(stream: TcpStream, film: Duration, set_up: &str) {
        let description = format!(
            "v=0\r\na=range:npt=0-{}\r\nm=video 0 RTP/AVP 33\r\na=control:track\r\n",
            film.as_secs_f64()
        );
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        while let Some(Ok(request)) = lines.next() {
            let heads = lines.by_ref().map_while(Result::ok);
            let heads: Vec<_> = heads.take_while(|line| !line.is_empty()).collect();
            let number = heads.iter().find(|line| line.starts_with("CSeq: "));
            let body = if request.starts_with("DESCRIBE ") {
                &description
            } else {
                ""
            };
            let status = match request.starts_with("SETUP ") {
                true => set_up,
                false => GRANTED,
            };
            let answer = format!(
                "RTSP/1.0 {status}\r\n{}\r\nSession: 1\r\nContent-Length: {}\r\n\r\n{body}",
                number.unwrap(),
                body.len()
            );
            (&stream).write_all(answer.as_bytes()).unwrap();
        }
    }

    /// How many count as having watched to the end whose film ended in the moment before, so that
    /// their timers ring and they leave before anybody looks at them. `None` if not all were there
    /// in time.
    fn watching_as_the_film_ends(time: Duration) -> Option<u32> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("rtsp://{}/film", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming().take(VIEWERS as usize) {
                thread::spawn(move || serve(stream.unwrap(), time / 2, GRANTED));
            }
        });
        let settings = Settings {
            ramp_ns: 0,
            time_ns: nanos(time),
            ..Settings::new(vec![url], VIEWERS)
        };
        let watched = async {
            let shared = Shared::new(&settings, 0).await.unwrap();
            let from = shared.moment(Look::Packets).unwrap();
            let all = (0..u64::from(VIEWERS))
                .map(|place| spawn_local(viewer(Rc::clone(&shared), place, 0, Random::new(place))));
            let all: Vec<_> = all.collect();
            loop {
                if shared.begin.elapsed() > time / 4 {
                    return None;
                }
                if shared.watching.get() == VIEWERS {
                    break;
                }
                sleep(Duration::from_millis(1)).await;
            }
            // Nobody wakes until the load is over.
            thread::sleep(shared.end.at() - Instant::now());
            for viewer in all {
                viewer.await.unwrap();
            }
            assert_eq!(shared.watching.get(), 0);
            let to = shared.moment(Look::Packets).unwrap();
            Some(shared.run(&from, &to).watching)
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, watched)
    }

    #[test]
    fn who_leaves_just_before_the_end_has_stayed() {
        // Longer where the machine has so much to do that not all come in time.
        let times = [1, 4, 16].map(Duration::from_secs);
        let watching = times.into_iter().find_map(watching_as_the_film_ends);
        assert_eq!(watching, Some(VIEWERS));
    }

    /// Has each viewer served who comes to the URL.
    fn serve_all(serve: impl Fn(TcpStream) + Clone + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("rtsp://{}/film", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let serve = serve.clone();
                thread::spawn(move || serve(stream.unwrap()));
            }
        });
        url
    }

    fn on_this_thread<T>(test: impl Future<Output = T>) -> T {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, test)
    }

    /// What a load of one viewer saw of whom that is enough; it lasts longer where the machine has
    /// something else to do.
    fn seen(settings: &Settings, is_enough: impl Fn(&Run) -> bool) -> Run {
        let times = [1, 4, 16].map(Duration::from_secs);
        let mut runs = times.into_iter().map(|time| {
            let settings = Settings {
                ramp_ns: 0,
                time_ns: nanos(time),
                ..settings.clone()
            };
            on_this_thread(all(&settings, |_| (), false)).unwrap()
        });
        runs.find(is_enough).unwrap()
    }

    /// Sends a viewer on to another server.
    fn send_on(stream: &TcpStream, to: &str) {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut writer = stream;
        for _ in lines.filter(|line| line.is_empty()) {
            let answer = format!("RTSP/1.0 302 Found\r\nLocation: {to}\r\n\r\n");
            writer.write_all(answer.as_bytes()).unwrap();
        }
    }

    #[test]
    fn viewers_are_sent_on_three_times() {
        let mut url = serve_all(|stream| serve(stream, LONG, GRANTED));
        for sent in 0..=4 {
            let settings = Settings::new(vec![url.clone()], 1);
            let run = seen(&settings, |run| run.played > 0 || !run.failures.is_empty());
            let is_refused = run.failures.iter().any(|(why, _)| why.ends_with(" 302"));
            assert_eq!(
                (run.played > 0, is_refused),
                (sent <= 3, sent > 3),
                "{sent}"
            );
            url = serve_all(move |stream| send_on(&stream, &url));
        }
    }

    /// Asks a viewer who it is, and has nothing for it then; tells each request, with its headers.
    fn ask_who(stream: &TcpStream, asked: &mpsc::Sender<String>) {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut writer = stream;
        loop {
            let request = lines.by_ref().take_while(|line| !line.is_empty());
            let request = request.collect::<Vec<_>>().join("\n");
            if request.is_empty() {
                return;
            }
            let answer = match request.contains("\nAuthorization: ") {
                true => "404 Not Found\r\n",
                false => "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\n",
            };
            asked.send(request).unwrap();
            let answer = format!("RTSP/1.0 {answer}\r\n");
            writer.write_all(answer.as_bytes()).unwrap();
        }
    }

    #[test]
    fn a_user_in_an_url_is_told_when_asked_for() {
        let (sender, asked) = mpsc::channel();
        let url = serve_all(move |stream| ask_who(&stream, &sender));
        let url = url.replace("rtsp://", "rtsp://anna:p%40ss@");
        let settings = Settings::new(vec![url], 1);
        let run = seen(&settings, |run| !run.failures.is_empty());
        let (why, _) = &run.failures[0];
        assert_eq!(why, "DESCRIBE was answered 404");
        let asked: Vec<_> = asked.try_iter().collect();
        assert!(asked.iter().all(|it| !it.contains('@')), "{asked:?}");
        assert!(!asked[0].contains("Authorization"), "{asked:?}");
        let told = "Authorization: Basic YW5uYTpwQHNz";
        assert!(asked[1].contains(told), "{asked:?}");
    }

    /// Sends all of a film of 600 ms at once whenever it is played, and a goodbye if that is asked
    /// for; how long the film is it does not say.
    fn play_a_moment(stream: &TcpStream, says_goodbye: bool) {
        let description = "v=0\r\na=range:npt=0-\r\nm=video 0 RTP/AVP 33\r\n";
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let mut writer = stream;
        while let Some(request) = lines.next() {
            let head = lines.by_ref().take_while(|line| !line.is_empty());
            head.for_each(drop);
            let body = match request.starts_with("DESCRIBE ") {
                true => description,
                false => "",
            };
            let mut answer = format!(
                "RTSP/1.0 200 OK\r\nSession: 1\r\n\
                 Transport: RTP/AVP/TCP;unicast;interleaved=0-1\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .into_bytes();
            if request.starts_with("PLAY ") {
                for number in 0..60_u8 {
                    let [.., high, low] = (u32::from(number) * 900).to_be_bytes();
                    answer.extend([b'$', 0, 0, 13, 0x80, 33, 0, number, 0, 0, high, low]);
                    answer.extend([0; 5]);
                }
                let goodbye = [b'$', 1, 0, 8, 0x81, 203, 0, 1, 0, 0, 0, 7];
                answer.extend(goodbye.into_iter().filter(|_| says_goodbye));
            }
            writer.write_all(&answer).unwrap();
        }
    }

    #[test]
    fn a_film_without_a_length_ends_by_its_goodbye() {
        for says_goodbye in [false, true] {
            let url = serve_all(move |stream| play_a_moment(&stream, says_goodbye));
            let settings = Settings {
                transport: Transport::Tcp,
                ..Settings::new(vec![url], 1)
            };
            let missing = |run: &Run| run.playouts.as_ref().unwrap().missing;
            let run = seen(&settings, |run| missing(run) > 0 || run.visits > 1);
            assert_eq!(
                (missing(&run) > 0, run.visits > 1),
                (!says_goodbye, says_goodbye)
            );
            assert!(run.failures.is_empty(), "{:?}", run.failures);
        }
    }

    #[test]
    fn an_interrupted_load_tells_what_there_was() {
        let url = serve_all(|stream| serve(stream, 2 * LONG, GRANTED));
        let settings = Settings {
            time_ns: nanos(2 * LONG),
            ..Settings::new(vec![url], VIEWERS)
        };
        on_this_thread(async {
            let shared = Shared::new(&settings, 0).await.unwrap();
            let from = shared.moment(Look::Packets).unwrap();
            let viewers = (0..u64::from(VIEWERS))
                .map(|place| spawn_local(viewer(Rc::clone(&shared), place, 0, Random::new(place))));
            let viewers: Vec<_> = viewers.collect();
            while shared.watching.get() < VIEWERS {
                assert!(shared.begin.elapsed() < LONG);
                sleep(Duration::from_millis(1)).await;
            }
            shared.end.interrupt();
            shared.end.wait_for(viewers).await;
            assert!(shared.begin.elapsed() < 2 * LONG);
            let to = shared.moment(Look::Packets).unwrap();
            let run = shared.run(&from, &to);
            assert_eq!((run.watching, run.visits), (VIEWERS, VIEWERS.into()));
            assert!(run.failures.is_empty(), "{:?}", run.failures);
        });
    }

    #[test]
    fn a_load_outlives_the_server_and_says_so() {
        let url = serve_all(|stream| serve(stream, LONG, GRANTED));
        let server = Command::new("sleep").arg("1000").spawn().unwrap();
        let settings = Settings {
            time_ns: 100_000_000,
            pid: Some(server.id()),
            slice_ns: 10_000_000,
            ..Settings::new(vec![url], 1)
        };
        let server = RefCell::new(server);
        // Progress is told once the load has found the process.
        let kill = move |_| {
            let mut server = server.borrow_mut();
            server.kill().unwrap_or_default();
            server.wait().unwrap();
        };
        let run = on_this_thread(all(&settings, kill, false)).unwrap();
        let ended = ("the server's process ended".to_owned(), 1);
        assert!(run.failures.contains(&ended), "{:?}", run.failures);
        assert!(run.server.is_some());
    }

    #[test]
    fn only_what_another_has_is_passed_over() {
        on_this_thread(async {
            let settings = Settings::new(vec!["rtsp://127.0.0.1/x".to_owned()], 1);
            let shared = Shared::new(&settings, 0).await.unwrap();
            let first = shared.ports.borrow()[0];
            // This address is no machine's (RFC 5737).
            let nowhere = SocketAddr::from(([192, 0, 2, 1], 0));
            let refused = shared.take_up(nowhere, 90_000);
            assert!(matches!(refused, Err(ViewerError::Socket(_))));
            assert_eq!(shared.ports.borrow()[0], first);
            // Another test may have it, too.
            let taken = UdpSocket::bind(("127.0.0.1", first));
            let local = SocketAddr::from(([127, 0, 0, 1], 0));
            let watched = shared.take_up(local, 90_000).unwrap();
            assert!(watched.port > Some(first));
            drop(taken);
        });
    }

    #[test]
    fn a_sink_has_no_more_ports_than_viewers_need() {
        let pairs = |clients, receive| {
            pairs(&Settings {
                receive,
                ..Settings::new(Vec::new(), clients)
            })
        };
        let sink = || Receive::Sink {
            device: "lo".to_owned(),
            look_every: 1,
            bursts: false,
        };
        let all = (u16::MAX - 20_000) / 2;
        assert_eq!((pairs(10, Receive::Sockets), pairs(10, sink())), (all, 160));
        assert_eq!(pairs(CLIENTS_MAX, sink()), all);
    }

    #[test]
    fn what_was_late_at_the_sink_is_not_lost() {
        let counts = PortCounts {
            counts: Counts {
                sequence_missing: 5,
                sequence_repeated: 4,
                sequence_reordered: 3,
                ..Counts::default()
            },
            ..PortCounts::default()
        };
        let arrived = arrived(&counts);
        let told = (arrived.lost, arrived.reordered, arrived.repeated);
        assert_eq!(told, (2, 3, 1));
    }

    /// Whether one viewer of a server that sends nothing counts as having waited in vain; `None` if
    /// it did not come in time.
    fn unserved(time: Duration, set_up: &'static str, aim: Option<u32>) -> Option<u64> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("rtsp://{}/film", listener.local_addr().unwrap());
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || serve(stream.unwrap(), 2 * time, set_up));
            }
        });
        let settings = Settings {
            ramp_ns: 0,
            time_ns: nanos(time),
            start_up_ns_max: 0,
            aim,
            ..Settings::new(vec![url], 1)
        };
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let run = LocalSet::new().block_on(&runtime, all(&settings, |_| (), false));
        let run = run.unwrap();
        (run.visits > 0).then_some(run.unserved)
    }

    #[test]
    fn with_an_aim_who_is_refused_has_not_waited() {
        let unserved = |set_up, aim| {
            // Longer where the machine has something else to do.
            let mut times = [250, 4000, 16_000].map(Duration::from_millis).into_iter();
            times.find_map(|time| unserved(time, set_up, aim)).unwrap()
        };
        let full = "453 Not Enough Bandwidth";
        assert_eq!(unserved(full, None), 1);
        assert_eq!(unserved(full, Some(1)), 0);
        // Who is let in and gets nothing waits all the same.
        assert_eq!(unserved(GRANTED, Some(1)), 1);
    }
}
