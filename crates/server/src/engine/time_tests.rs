//! Engines in a time of the tests' own: what is on time, late, caught up with and left out, to the
//! tick. Sockets and sending are real; but time passes only when a test says so, and sending takes
//! as long as the test says.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::atomic::AtomicU64;

use onrush_sys::path::{Completion, Counters, Train};
use onrush_wire::media::ts::synth::{constant_rate, pictures};
use onrush_wire::pace::Speed;
use rustix::io::read;

use super::clock::Clock;
use super::shared::{LATENESS_BUCKET_NS, LATENESS_FIRST_NS};
use super::tests::{Rig, config, make_room, receive, rig_of, sockets};
use super::*;
use crate::testing::{CHUNK_BYTES, TestSource, block_on, wait_until};

pub(super) const TICK: Duration = Duration::from_millis(5);
const TICKS_PER_SECOND: u64 = 200;

/// The time of one engine.
#[derive(Debug)]
pub(super) struct Time {
    now_ns: Arc<AtomicU64>,
    /// Of it, what the engine worked.
    cpu_ns: Arc<AtomicU64>,
    /// Until then it may pass.
    until_ns: AtomicU64,
    /// The engine has done what it has to until then.
    idle_ns: AtomicU64,
    /// How long sending a train takes.
    train_ns: AtomicU64,
    /// How long the next crossing is held up.
    stall_ns: AtomicU64,
    /// The most packets of a crossing.
    packets_max: AtomicU64,
}

impl Time {
    pub(super) fn new() -> Arc<Self> {
        let start_ns = 1_000_000_000_000;
        Arc::new(Self {
            now_ns: Arc::new(start_ns.into()),
            cpu_ns: Arc::default(),
            until_ns: start_ns.into(),
            idle_ns: 0.into(),
            train_ns: 0.into(),
            stall_ns: 0.into(),
            packets_max: 0.into(),
        })
    }

    /// An engine that lives in it, with all chunks of `test` built: building takes real time.
    pub(super) fn rig(self: &Arc<Self>, test: &TestSource, config: EngineConfig) -> Rig {
        let time = Arc::clone(self);
        let open_path = move |name, pool: &Arc<Pool>, waker: &Arc<Waker>| {
            Ok(Box::new(Timed {
                inner: path::open(name, pool, waker)?,
                packets: 0,
                time: Arc::clone(&time),
                waker: Arc::clone(waker),
            }) as Box<dyn Path>)
        };
        let config = EngineConfig {
            // It has sent when it comes back, and sleeps nowhere.
            path: PathName::SendmmsgGso,
            open_path: Arc::new(open_path),
            clock: Clock::by_hand(Arc::clone(&self.now_ns), Arc::clone(&self.cpu_ns)),
            ..config
        };
        let chunks = test.source.chunks();
        let rig = rig_of(config, chunks as usize + 1);
        for chunk in 0..chunks {
            let patience = Duration::from_secs(60);
            let pin = block_on(rig.store.shared().fetch(&test.source, chunk, patience));
            rig.store.shared().pool().unpin(pin.expect("built"));
        }
        rig
    }

    /// What time it is.
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::Acquire)
    }

    /// Lets so much time pass, and the engine do what it has to in it.
    pub(super) fn advance(&self, time: Duration) {
        let time_ns = worker::nanos(time);
        let until_ns = self.until_ns.fetch_add(time_ns, Ordering::AcqRel) + time_ns;
        wait_until("the engine is done", || {
            self.idle_ns.load(Ordering::Acquire) == until_ns
        });
    }
}

/// A path that sleeps in a [`Time`].
#[derive(Debug)]
struct Timed {
    inner: Box<dyn Path>,
    /// Queued since the last crossing.
    packets: u64,
    time: Arc<Time>,
    waker: Arc<Waker>,
}

impl Timed {
    fn send(&mut self) -> io::Result<()> {
        let trains = self.inner.in_flight() as u64;
        let packets = std::mem::take(&mut self.packets);
        self.time.packets_max.fetch_max(packets, Ordering::Relaxed);
        let train_ns = self.time.train_ns.load(Ordering::Relaxed);
        let stall_ns = self.time.stall_ns.swap(0, Ordering::Relaxed);
        let worked_ns = trains * train_ns;
        self.time.cpu_ns.fetch_add(worked_ns, Ordering::AcqRel);
        self.time
            .now_ns
            .fetch_add(worked_ns + stall_ns, Ordering::AcqRel);
        self.inner.submit()
    }
}

impl Path for Timed {
    fn name(&self) -> PathName {
        self.inner.name()
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    fn queue(&mut self, train: Train) {
        self.packets += u64::from(train.bytes.div_ceil(u32::from(train.stride)));
        self.inner.queue(train);
    }

    fn submit(&mut self) -> io::Result<()> {
        self.send()
    }

    fn submit_and_sleep(&mut self, deadline_ns: Option<u64>) -> io::Result<()> {
        self.send()?;
        if deadline_ns.is_none() && self.inner.in_flight() > 0 {
            return Ok(());
        }
        let deadline_ns = deadline_ns.unwrap_or(u64::MAX);
        loop {
            // In this order: what was commanded before time was let pass is taken before it passes.
            let until_ns = self.time.until_ns.load(Ordering::Acquire);
            if read(&*self.waker, &mut [0; 8]).is_ok() {
                return Ok(());
            }
            let now_ns = self.time.now_ns.load(Ordering::Acquire);
            let wakes_ns = deadline_ns.max(now_ns);
            let now_ns = wakes_ns.min(until_ns.max(now_ns));
            self.time.now_ns.store(now_ns, Ordering::Release);
            if wakes_ns <= until_ns {
                return Ok(());
            }
            self.time.idle_ns.store(until_ns, Ordering::Release);
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn completion(&mut self) -> Option<Completion> {
        self.inner.completion()
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}

#[test]
fn packets_keep_their_pace() {
    let test = TestSource::lasting(1000);
    let (time, plan) = (Time::new(), test.source.plan());
    let rig = time.rig(&test, config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, TICK * 4).expect("played");
    time.advance(TICK * 4);
    for _ in 0..TICKS_PER_SECOND {
        // Of all that is due the burst has left, and none that is due after this tick.
        let (now, ahead_ns) = (stream.snapshot(), worker::nanos(TICK) + plan.burst_ns());
        let [least, most] = [0, ahead_ns].map(|ahead| plan.rtp_packet_at(now.position_ns + ahead));
        let sent = now.next_packet;
        assert!((least..=most).contains(&sent), "{least}..={most}: {now:?}");
        let lateness_ns = [now.lateness_mean_ns, now.lateness_max_ns];
        assert!(
            lateness_ns.iter().all(|ns| (-5_000_000..=0).contains(ns)),
            "{now:?}"
        );
        time.advance(TICK);
    }
    time.advance(TICK * 2);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let images = test.images();
    assert_eq!(receive(&receiver, images.len()), images);
}

/// The last picture is shown for seconds after its last packet was sent.
#[test]
fn the_end_comes_when_the_media_is_over() {
    let test = TestSource::of(pictures(&[(7, 4000); 3], 27_000));
    let (time, plan) = (Time::new(), test.source.plan());
    let lasts = Duration::from_nanos(plan.due_ns(u64::MAX));
    assert_eq!(lasts.as_secs(), 13, "the tables come before");
    let rig = time.rig(&test, config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    time.advance(lasts - TICK * 4);
    assert_eq!(stream.snapshot().next_packet, plan.rtp_packets());
    assert_eq!(stream.shared().end_reason(), None);
    time.advance(TICK * 8);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let images = test.images();
    assert_eq!(receive(&receiver, images.len()), images);
    // A play that is to stop before the last picture lasts until that would be due.
    let last = plan.rtp_packet_at(4_900_000_000);
    stream.play(0, Some(last), Duration::ZERO).expect("played");
    time.advance(Duration::from_nanos(plan.due_ns(last)) - TICK * 4);
    assert_eq!(stream.shared().end_reason(), None);
    time.advance(TICK * 8);
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
}

#[test]
fn a_stop_that_is_set_while_it_plays_is_kept_to_the_packet() {
    let test = TestSource::lasting(1000);
    let (time, plan) = (Time::new(), test.source.plan());
    let rig = time.rig(&test, config());
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    time.advance(TICK * 40);
    // In the midst of a burst; and another that is sooner, which holds.
    let stop = plan.rtp_packet_at(500_000_000) + 3;
    for packet in [stop + 100, stop] {
        stream.stop_before(packet).expect("told");
    }
    time.advance(TICK * 40);
    assert!(stream.end_reason().is_none(), "it plays on until then");
    time.advance(TICK * 40);
    assert_eq!(stream.end_reason(), Some(EndReason::EndOfMedia));
    assert_eq!(stream.snapshot().next_packet, stop);
    let images = test.images();
    let sent = usize::try_from(stop).expect("few");
    assert_eq!(receive(&receiver, sent), images[..sent]);
    // What lies behind it ends at once, and goes back nowhere.
    stream.play(stop, None, Duration::ZERO).expect("played");
    time.advance(TICK * 20);
    let sent = stream.snapshot().next_packet;
    stream.stop_before(stop).expect("told");
    time.advance(TICK * 8);
    assert_eq!(stream.end_reason(), Some(EndReason::EndOfMedia));
    let end = stream.snapshot().next_packet;
    assert!((sent..sent + 20).contains(&end), "{sent} {end}");
    // One that comes after the end does nothing, also to the next play.
    stream.stop_before(end + 5).expect("told");
    stream.play(0, None, Duration::ZERO).expect("played");
    time.advance(Duration::from_secs(2));
    assert_eq!(stream.snapshot().next_packet, plan.rtp_packets());
}

/// How many ticks and chunks it takes to play all of `test`, whose chunks are there already.
fn ticks_and_chunks(test: &TestSource) -> (u64, u64) {
    let time = Time::new();
    let rig = time.rig(test, config());
    let (stream, _receiver) = rig.open(test);
    stream.play(0, None, Duration::ZERO).expect("played");
    let mut ticks = 0;
    while stream.shared().end_reason().is_none() {
        time.advance(TICK);
        ticks += 1;
        assert!(ticks < 10_000, "it has no end");
    }
    (ticks, u64::from(test.source.chunks()))
}

/// A burst that chunks cut into pieces is still one burst.
#[test]
fn a_stream_of_many_chunks_a_tick_keeps_up() {
    // 300 Mbit/s for 0.4 s: 80 ticks, and two to see that it is over; with two chunks in each it
    // were 120.
    let (ticks, chunks) = ticks_and_chunks(&TestSource::of(constant_rate(80_000, 0, 135)));
    assert!(
        (79..=82).contains(&ticks),
        "{ticks} ticks for {chunks} chunks"
    );
}

#[test]
fn a_file_whose_clock_runs_wild_is_held_to_the_rate_limit() {
    // 4 Gbit/s for 30 ms.
    let (ticks, chunks) = ticks_and_chunks(&TestSource::of(constant_rate(80_000, 0, 10)));
    let tick_bytes_max = STREAM_RATE_MAX / 8 / TICKS_PER_SECOND;
    let chunks_max = 2 + tick_bytes_max / CHUNK_BYTES as u64;
    assert!(ticks >= chunks / chunks_max, "{ticks} for {chunks} chunks");
}

/// What is caught up with is late, every burst of it, and not only the first.
#[test]
fn a_stall_makes_all_bursts_late_that_were_due_in_it() {
    let test = TestSource::lasting(2000);
    let time = Time::new();
    let rig = time.rig(
        &test,
        EngineConfig {
            lag_max: Duration::from_secs(60),
            ..config()
        },
    );
    let (stream, _receiver) = rig.open(&test);
    stream.play(0, None, Duration::ZERO).expect("played");
    time.advance(TICK * 100);
    time.stall_ns.store(300_000_000, Ordering::Relaxed);
    time.advance(Duration::from_secs(2));
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let first_late = usize::try_from((100_000_000 - LATENESS_FIRST_NS) / LATENESS_BUCKET_NS);
    let late: u64 = rig.worker().lateness[first_late.expect("a bucket")..]
        .iter()
        .map(|bucket| bucket.load(Ordering::Relaxed))
        .sum();
    // Burst k was due 20k ms after the first and left 300 + 5k/2 ms after it, because two leave in
    // a tick.
    assert!((11..=12).contains(&late), "{late} bursts were late");
}

/// The most packets that a stream was sent in a tick after a stall, and how often its clock was
/// moved.
fn packets_at_once_after(stall: Duration, lag_max: Duration) -> (u64, u64) {
    let test = TestSource::lasting(2500);
    let time = Time::new();
    let rig = time.rig(
        &test,
        EngineConfig {
            lag_max,
            ..config()
        },
    );
    let (stream, receiver) = rig.open(&test);
    make_room(&receiver);
    stream.play(0, None, Duration::ZERO).expect("played");
    time.advance(TICK * 100);
    // Of 4 Mbit/s.
    let on_time = time.packets_max.swap(0, Ordering::Relaxed);
    assert!((7..=9).contains(&on_time), "a burst: {on_time}");
    time.stall_ns.store(worker::nanos(stall), Ordering::Relaxed);
    time.advance(Duration::from_secs(4));
    assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    let images = test.images();
    assert_eq!(receive(&receiver, images.len()), images);
    let lags = rig.worker().lags.load(Ordering::Relaxed);
    (time.packets_max.load(Ordering::Relaxed), lags)
}

/// Two tracks of a session, and one of nobody else's, in a stall that is more than any catches up
/// with.
#[test]
fn tracks_keep_one_clock_when_one_of_them_is_moved() {
    let test = TestSource::lasting(2500);
    let time = Time::new();
    let lag_max = Duration::from_millis(500);
    let rig = time.rig(
        &test,
        EngineConfig {
            lag_max,
            ..config()
        },
    );
    let opened = [(); 2].map(|()| rig.open(&test));
    opened.iter().for_each(|(_, receiver)| make_room(receiver));
    let clock = Arc::default();
    opened
        .iter()
        .for_each(|(stream, _)| stream.share_clock(&clock));
    // The second comes to its first packet when the first has been moved.
    let plan = test.source.plan();
    let second = plan.rtp_packet_at(1_500_000_000);
    let moment = opened[0]
        .0
        .moment(0, Duration::ZERO, Speed::NORMAL)
        .expect("running");
    for ((stream, _), from) in opened.iter().zip([0, second]) {
        stream.play_at(from, None, moment).expect("played");
    }
    time.advance(Duration::from_secs(1));
    let line = |stream: &Stream| stream.line().expect("it plays").media_ns(0);
    let before = line(&opened[0].0);
    assert_eq!(line(&opened[1].0), before);
    let stall_ns = 2_000_000_000;
    time.stall_ns.store(stall_ns, Ordering::Relaxed);
    time.advance(Duration::from_secs(6));
    let [first, second] = [0, 1].map(|number: usize| line(&opened[number].0));
    assert!(first < before, "it was moved");
    assert_eq!(first, second, "and the other with it");
    for (stream, _) in &opened {
        assert_eq!(block_on(stream.ended()), EndReason::EndOfMedia);
    }
}

#[test]
fn a_stream_catches_up_or_has_its_clock_moved() {
    let stall = Duration::from_secs(1);
    // Of fifty bursts that are due two.
    let (packets, lags) = packets_at_once_after(stall, Duration::from_secs(60));
    assert!(
        (14..=17).contains(&packets) && lags == 0,
        "{packets} {lags}"
    );
    let (packets, lags) = packets_at_once_after(stall, Duration::from_millis(500));
    assert!(packets <= 17 && lags == 1, "{packets} {lags}");
}

/// A receiver that is read, and the sequence numbers of what came.
struct Watched {
    receiver: UdpSocket,
    seen: Vec<u16>,
}

impl Watched {
    fn read(&mut self) {
        self.receiver.set_nonblocking(true).expect("set");
        let mut packet = [0; 2048];
        while let Ok(bytes) = self.receiver.recv(&mut packet) {
            assert!(bytes > 12);
            self.seen.push(u16::from_be_bytes([packet[2], packet[3]]));
        }
    }

    /// Whether bursts are missing; nothing else may be.
    fn has_gaps(&mut self, stream: &Stream) -> bool {
        let (source, end) = (stream.source(), stream.snapshot());
        wait_until("what was sent has arrived", || {
            self.read();
            self.seen.len() as u64 >= end.packets
        });
        assert_eq!(self.seen.len() as u64, end.packets, "each once");
        let first = source.origin().sequence_of(0);
        let numbers = self
            .seen
            .iter()
            .map(|seen| u64::from(seen.wrapping_sub(first)));
        let numbers: Vec<_> = numbers.collect();
        assert!(
            numbers.is_sorted_by(|a, b| a < b),
            "in order, and each once"
        );
        let mut bursts = Vec::new();
        source.plan().bursts(0..end.next_packet + 1000, &mut bursts);
        let firsts: BTreeSet<_> = bursts.iter().map(|burst| burst.first).collect();
        let mut gaps = numbers
            .windows(2)
            .filter(|pair| pair[1] != pair[0] + 1)
            .peekable();
        let has_gaps = gaps.peek().is_some();
        for gap in gaps {
            let is_whole = firsts.contains(&(gap[0] + 1)) && firsts.contains(&gap[1]);
            assert!(is_whole, "whole bursts: {gap:?}");
        }
        has_gaps
    }
}

/// Streams of 1 Mbit/s: 50 trains a second each.
const CROWD: usize = 300;

/// How long a train takes, so that two in three of them can be sent, though each is of two bursts.
const TRAIN_NS: u64 = 200_000;

/// Plays as viewers do who came one by one: each burst leaves, and each chunk ends, at a time of
/// its own.
fn play_apart<'a>(streams: impl IntoIterator<Item = &'a Stream>) {
    for (number, stream) in (0..).zip(streams) {
        let from = u64::from(number % 47_u32);
        let delay = Duration::from_micros(67) * number;
        stream.play(from, None, delay).expect("played");
    }
}

/// An engine that needs so long for each train leaves streams out until the others are on time, the
/// newest first, and takes them back when it is faster.
#[test]
fn when_all_are_late_the_newest_are_left_out_and_come_back() {
    const WATCHED_EVERY: usize = 10;
    // 120 s of 1 Mbit/s.
    let test = TestSource::of(constant_rate(120 * 665, 0, 40_608));
    let time = Time::new();
    let rig = time.rig(&test, config());
    let counter =
        |counter: fn(&WorkerShared) -> &AtomicU64| counter(rig.worker()).load(Ordering::Relaxed);
    let shed = || counter(|shared| &shared.shed);
    let (_, crowd) = sockets();
    let mut watched = Vec::new();
    let streams = (0..CROWD).map(|i| {
        let (socket, receiver) = sockets();
        if i % WATCHED_EVERY == WATCHED_EVERY - 1 {
            let seen = Vec::new();
            watched.push(Watched { receiver, seen });
        } else {
            let to = crowd.local_addr().expect("bound");
            socket.connect(to).expect("loopback");
        }
        let source = Arc::clone(&test.source);
        rig.engines
            .open(StreamSpec {
                source,
                to: socket.into(),
            })
            .expect("a stream")
    });
    let streams: Vec<_> = streams.collect();
    play_apart(&streams);
    let (oldest, newest) = (&streams[0], &streams[CROWD - 1]);
    // Of the bursts of so many seconds, how many there were and how many were late.
    let mut after = |seconds: u32| {
        let both = || {
            [
                counter(|shared| &shared.bursts),
                counter(|shared| &shared.bursts_late),
            ]
        };
        let before = both();
        for _ in 0..seconds * 10 {
            time.advance(TICK * 20);
            watched.iter_mut().for_each(Watched::read);
        }
        let now = both();
        [0, 1].map(|i| now[i] - before[i])
    };
    time.train_ns.store(TRAIN_NS, Ordering::Relaxed);
    after(2);
    assert_eq!(shed(), 0, "a short stall is made good by catching up");
    after(2);
    let left_out = shed();
    assert!(
        (120..155).contains(&left_out),
        "a third cannot be sent, and piled up: {left_out}"
    );
    assert!(
        rig.worker().admission.is_late(),
        "nobody is let in meanwhile"
    );
    // What piled up is late, too.
    after(2);
    let packets = [oldest, newest].map(|stream| stream.snapshot().packets);
    let [bursts, late] = after(1);
    assert!(late * 50 < bursts, "of {bursts} bursts {late} were late");
    assert!(
        oldest.snapshot().packets > packets[0] + 90,
        "the oldest plays on"
    );
    assert_eq!(newest.snapshot().packets, packets[1], "the newest does not");
    let shed_then: Vec<_> = (0..20).map(|_| (after(1), shed()).1).collect();
    let is_tried = |pair: &[u64]| pair[1] < pair[0];
    let first = shed_then.windows(2).position(is_tried);
    let after_first = &shed_then[first.expect("some are tried")..];
    assert!(
        after_first.windows(2).any(|pair| pair[1] > pair[0]),
        "too soon, and they go again: {shed_then:?}"
    );
    time.train_ns.store(0, Ordering::Relaxed);
    // After trials that were too soon it is waited for longer.
    after(60);
    assert_eq!(shed(), 0, "all have come back");
    for stream in &streams {
        block_on(stream.pause()).expect("paused");
    }
    after(1);
    let in_flight = counter(|shared| &shared.in_flight);
    assert_eq!(in_flight, 0);
    let theirs = streams
        .iter()
        .skip(WATCHED_EVERY - 1)
        .step_by(WATCHED_EVERY);
    let gaps: Vec<_> = watched
        .iter_mut()
        .zip(theirs)
        .map(|(watched, stream)| watched.has_gaps(stream))
        .collect();
    assert!(!gaps[0], "the oldest missed nothing");
    let missed = gaps.iter().filter(|&&has_gaps| has_gaps).count();
    assert!(
        (8..=20).contains(&missed),
        "of {}, {missed} were left out",
        gaps.len()
    );
    assert!(counter(|shared| &shared.packets_skipped) > 0);
}

#[test]
fn whoever_may_take_all_leaves_nobody_out() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let time = Time::new();
    let unlimited = EngineConfig {
        load_max_permille: LOAD_UNLIMITED,
        ..config()
    };
    let rig = time.rig(&test, unlimited);
    let open: Vec<_> = (0..CROWD).map(|_| rig.open(&test)).collect();
    play_apart(open.iter().map(|(stream, _)| stream));
    time.train_ns.store(TRAIN_NS, Ordering::Relaxed);
    time.advance(Duration::from_secs(10));
    let [late, sheds] = [&rig.worker().bursts_late, &rig.worker().sheds];
    assert!(late.load(Ordering::Relaxed) > 60_000, "{late:?}");
    assert_eq!(sheds.load(Ordering::Relaxed), 0);
}

/// An engine whose processor others take now and then is late with half of its bursts, and has
/// little to do itself.
#[test]
fn an_engine_held_up_by_others_leaves_nobody_out() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let time = Time::new();
    let rig = time.rig(&test, config());
    let open: Vec<_> = (1..CROWD).map(|_| rig.open(&test)).collect();
    play_apart(open.iter().map(|(stream, _)| stream));
    let worker = rig.worker();
    let counted =
        || [&worker.bursts, &worker.bursts_late].map(|counter| counter.load(Ordering::Relaxed));
    for _ in 0..10 {
        let before = counted();
        for _ in 0..10 {
            time.stall_ns.store(80_000_000, Ordering::Relaxed);
            time.advance(TICK * 20);
        }
        let now = counted();
        let [bursts, late] = [0, 1].map(|i| now[i] - before[i]);
        assert!(late * 5 > bursts, "of {bursts} bursts {late} were late");
        assert!(!worker.admission.is_late());
    }
    assert_eq!(worker.sheds.load(Ordering::Relaxed), 0);
    rig.open(&test);
}

/// What is too much in trains of one burst leaves in trains of two before it is late, and nobody is
/// left out.
#[test]
fn who_is_behind_sends_two_bursts_in_a_train() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let time = Time::new();
    let rig = time.rig(&test, config());
    let open: Vec<_> = (0..CROWD).map(|_| rig.open(&test)).collect();
    play_apart(open.iter().map(|(stream, _)| stream));
    let worker = rig.worker();
    let counted = || {
        [
            &worker.bursts,
            &worker.bursts_joined,
            &worker.bursts_late,
            &worker.trains,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    };
    let after = |train_ns: u64, seconds: u64| {
        time.train_ns.store(train_ns, Ordering::Relaxed);
        let before = counted();
        time.advance(Duration::from_secs(seconds));
        let now = counted();
        [0, 1, 2, 3].map(|i| now[i] - before[i])
    };
    let [_, joined, late, _] = after(TRAIN_NS / 4, 4);
    assert_eq!([joined, late], [0, 0], "three in four of what can be sent");
    // Now half as much again as what can be sent.
    let [bursts, joined, late, trains] = after(TRAIN_NS / 2, 4);
    assert!(bursts > 59_000, "all that is due: {bursts}");
    assert_eq!(late, 0);
    assert!(joined > 20_000 && trains < 40_000, "{joined} {trains}");
    assert!(worker.admission.is_late(), "nobody is let in meanwhile");
    // It is tried for a second.
    after(TRAIN_NS / 4, 2);
    let [bursts, joined, late, trains] = after(TRAIN_NS / 4, 4);
    assert_eq!([joined, late], [0, 0]);
    assert!(trains > bursts / 20 * 19, "each in a train of its own");
    assert_eq!(worker.sheds.load(Ordering::Relaxed), 0);
}

/// Pictures are 40 ms apart, and one of two is filled up so that the next can follow it. Only where
/// the next is of another chunk, or is not filled in its turn, does one leave alone.
#[test]
fn who_is_behind_sends_two_pictures_in_a_train() {
    const CROWD_A_SECOND: u64 = 25 * CROWD as u64;
    let test = TestSource::film(450);
    let time = Time::new();
    let rig = time.rig(&test, config());
    let open: Vec<_> = (0..CROWD).map(|_| rig.open(&test)).collect();
    play_apart(open.iter().map(|(stream, _)| stream));
    let worker = rig.worker();
    let counted = || {
        [&worker.trains, &worker.bursts_joined, &worker.bursts_late]
            .map(|counter| counter.load(Ordering::Relaxed))
    };
    let after = |train_ns: u64, seconds: u64| {
        time.train_ns.store(train_ns, Ordering::Relaxed);
        let before = counted();
        time.advance(Duration::from_secs(seconds));
        let now = counted();
        [0, 1, 2].map(|i| now[i] - before[i])
    };
    // Less than half of what can be sent, once the first second is over.
    after(TRAIN_NS / 4, 2);
    let [alone, joined, _] = after(TRAIN_NS / 4, 4);
    assert_eq!(joined, 0);
    assert!(
        alone.abs_diff(4 * CROWD_A_SECOND) < CROWD_A_SECOND / 10,
        "{alone}"
    );
    // An eighth more than can be sent.
    let train_ns = 1_000_000_000 / CROWD_A_SECOND * 9 / 8;
    after(train_ns, 1);
    let [trains, joined, late] = after(train_ns, 4);
    assert_eq!(late, 0);
    assert!(
        trains * 100 < alone * 65,
        "{trains} trains of {alone}, {joined} joined"
    );
    assert!(
        trains + joined > alone * 9 / 10,
        "{trains} trains, {joined} joined"
    );
}

/// A clock that was moved is moved for the burst that joins the late one, too: that one is on time.
#[test]
fn a_burst_that_joins_one_whose_clock_was_moved_is_not_late() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let time = Time::new();
    let rig = time.rig(&test, config());
    let open: Vec<_> = (0..CROWD).map(|_| rig.open(&test)).collect();
    play_apart(open.iter().map(|(stream, _)| stream));
    time.advance(TICK * 40);
    let worker = rig.worker();
    let counted = || {
        [&worker.lags, &worker.bursts_late, &worker.bursts_joined]
            .map(|counter| counter.load(Ordering::Relaxed))
    };
    assert_eq!(counted()[..2], [0, 0]);
    let [_, _, joined] = counted();
    time.stall_ns.store(1_000_000_000, Ordering::Relaxed);
    time.advance(Duration::from_secs(2));
    let now = counted();
    assert_eq!(now[..2], [CROWD as u64; 2], "one of each stream");
    assert!(now[2] > joined, "some were joined");
}

/// A short delay makes an engine with few streams join nothing: its work is not what delays it.
#[test]
fn with_few_streams_each_burst_is_a_train() {
    let test = TestSource::of(constant_rate(60 * 665, 0, 40_608));
    let time = Time::new();
    let rig = time.rig(&test, config());
    let joined_by = |streams: usize| {
        let open: Vec<_> = (0..streams).map(|_| rig.open(&test)).collect();
        for (stream, _) in &open {
            stream.play(0, None, Duration::ZERO).expect("played");
        }
        time.advance(TICK * 20);
        let joined = || rig.worker().bursts_joined.load(Ordering::Relaxed);
        let before = joined();
        // More than a tick after the next burst, and less than makes two due.
        time.stall_ns.store(26_000_000, Ordering::Relaxed);
        time.advance(TICK * 20);
        for (stream, _) in &open {
            block_on(stream.pause()).expect("paused");
        }
        joined() - before
    };
    assert_eq!(joined_by(99), 0);
    assert!(joined_by(101) > 0);
}
