//! The viewers of a simulation: each does what control does for a client, at random, and knows what
//! it may get.

use std::future::Future;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use onrush_wire::pace::Speed;

use super::Simulation;
use super::device_tests::{Ledger, inode, locked};
use crate::engine::shared::StreamShared;
use crate::engine::{EndReason, EngineError, Stream, StreamSpec};
use crate::store::Acquired;
use crate::testing::seeds_tests::Random;

const MS: u64 = 1_000_000;

/// What a viewer waits for.
type Task = Pin<Box<dyn Future<Output = Done>>>;

enum Done {
    Paused(Result<u64, EngineError>),
    Moved(Result<(), EngineError>),
}

/// What an engine will have been told at its next turn.
enum Told {
    Play { from: u64, stop: u64 },
    Stop { packet: u64 },
}

/// One who watches, or is about to.
pub(super) struct Viewer {
    random: Random,
    pub(super) acts_ns: u64,
    film: usize,
    pub(super) owner: u64,
    pub(super) stream: Option<Arc<Stream>>,
    socket: u64,
    task: Option<Task>,
    told: Vec<(usize, Told)>,
    /// It was seen to have ended, and was not played since.
    has_ended: bool,
    /// What it may end with, beside the end of what it asked for.
    is_refused: bool,
    refused_until_ns: u64,
}

impl Viewer {
    pub(super) fn new(mut random: Random, owner: u64, now_ns: u64) -> Self {
        Self {
            acts_ns: now_ns + random.below(2000) * MS,
            random,
            film: 0,
            owner,
            stream: None,
            socket: 0,
            task: None,
            told: Vec::new(),
            has_ended: false,
            is_refused: false,
            refused_until_ns: 0,
        }
    }

    /// Its socket, if that is its stream.
    pub(super) fn socket_of(&self, shared: &Arc<StreamShared>) -> Option<u64> {
        let stream = self.stream.as_ref()?;
        Arc::ptr_eq(&stream.shared(), shared).then_some(self.socket)
    }
}

impl Simulation {
    /// Lets one viewer do something.
    pub(super) fn act(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let viewer = &mut self.viewers[at];
        let rest_ms = if self.is_crowd { 20_000 } else { 1500 };
        viewer.acts_ns = now_ns + (1 + viewer.random.below(rest_ms)) * MS;
        if viewer.refused_until_ns <= now_ns {
            self.answer(at, 0, false);
        }
        let Some(stream) = self.viewers[at].stream.clone() else {
            return self.open(at);
        };
        self.look_at_end(at);
        let viewer = &mut self.viewers[at];
        if viewer.task.is_some() {
            return;
        }
        match viewer.random.below(100) {
            0..35 => self.play(at, &stream),
            35..50 => self.pause(at, stream),
            50..58 => self.stop_before(at, &stream),
            58..66 => self.move_on(at, stream),
            66..74 => self.refuse(at),
            74..80 => {
                let until_ns = now_ns + viewer.random.below(3000) * MS;
                let socket = viewer.socket;
                self.ledger(socket, |it| it.holds_until_ns = until_ns);
            }
            80..88 => self.leave(at),
            _ => {}
        }
    }

    fn open(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        viewer.film = match self.is_crowd {
            true => self.films.len() - 1,
            false => viewer.random.index(self.films.len()),
        };
        let film = &self.films[viewer.film];
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        viewer.socket = inode(socket.as_fd());
        let opened = self.engines.open(StreamSpec {
            source: Arc::clone(&film.test.source),
            to: socket.into(),
        });
        let stream = match opened {
            Ok(stream) => stream,
            Err(
                EngineError::Overload { .. }
                | EngineError::Late
                | EngineError::CacheFull { .. }
                | EngineError::Full { .. },
            ) => {
                self.refused += 1;
                return;
            }
            Err(error) => panic!("nothing speaks against a stream: {error}"),
        };
        self.opened += 1;
        viewer.owner += 1 << 20;
        stream.belongs_to(viewer.owner);
        (viewer.has_ended, viewer.is_refused) = (false, false);
        viewer.refused_until_ns = 0;
        let ledger = Ledger::new(Arc::clone(&film.images));
        let stream = Arc::new(stream);
        viewer.stream = Some(Arc::clone(&stream));
        locked(&self.world).ledgers.insert(viewer.socket, ledger);
        self.play(at, &stream);
    }

    /// Plays from anywhere, to anywhere, also from behind the end and to before the beginning.
    fn play(&mut self, at: usize, stream: &Arc<Stream>) {
        let Some(engine) = self.engine_of(stream) else {
            return;
        };
        let viewer = &mut self.viewers[at];
        let (random, source) = (&mut viewer.random, stream.source());
        let packets = source.rtp_packets();
        let from = match self.is_crowd {
            true => random.below(packets / 6),
            false => random.below(packets + 3),
        };
        let ends_early = random.one_in(if self.is_crowd { 40 } else { 4 });
        let stop = ends_early.then(|| random.below(packets + 3));
        let speed = match random.below(8) {
            0 => Speed::SLOWEST,
            1 => Speed::nearest(2.0),
            _ => Speed::NORMAL,
        };
        if random.one_in(2)
            && from < packets
            && let Acquired::Ready(pin) = self.store.shared().acquire_for(&source, from)
        {
            stream.hold(from, Some(pin));
        }
        let delay = Duration::from_millis(random.below(300));
        let speed = match stream.make_room_for(from, speed) {
            Ok(()) => speed,
            Err(_) => Speed::NORMAL,
        };
        let moment = stream.moment(source.plan().due_ns(from), delay, speed);
        let moment = moment.expect("it has an engine");
        stream
            .play_at(from, stop, moment)
            .expect("few commands wait");
        let stop = stop.unwrap_or(u64::MAX);
        viewer.told.push((engine, Told::Play { from, stop }));
        viewer.has_ended = false;
    }

    fn pause(&mut self, at: usize, stream: Arc<Stream>) {
        let task = async move { Done::Paused(stream.pause().await) };
        self.viewers[at].task = Some(Box::pin(task));
    }

    fn stop_before(&mut self, at: usize, stream: &Arc<Stream>) {
        let Some(engine) = self.engine_of(stream) else {
            return;
        };
        let viewer = &mut self.viewers[at];
        let packets = stream.source().rtp_packets();
        let packet = viewer.random.below(packets + 3);
        stream.stop_before(packet).expect("few commands wait");
        let packet = packet.min(packets);
        viewer.told.push((engine, Told::Stop { packet }));
    }

    fn move_on(&mut self, at: usize, stream: Arc<Stream>) {
        let Some(engine) = self.engine_of(&stream) else {
            return;
        };
        let to = (engine + 1) % self.workers.len();
        let engines = Arc::clone(&self.engines);
        let task = async move { Done::Moved(stream.move_to(&engines, to).await) };
        self.viewers[at].task = Some(Box::pin(task));
    }

    /// Its network refuses all, or all but a packet of each train, for a while or for ever.
    fn refuse(&mut self, at: usize) {
        let now_ns = self.now_ns();
        let viewer = &mut self.viewers[at];
        let random = &mut viewer.random;
        let errnos = [
            libc::ECONNREFUSED,
            libc::ENETUNREACH,
            libc::EPERM,
            libc::ENOBUFS,
        ];
        let errno = match random.below(20) {
            0 => libc::EMSGSIZE,
            1 if self.may_demote => libc::EIO,
            2..8 => 0,
            at => errnos[usize::try_from(at % 4).expect("small")],
        };
        let lasts_ms_max = if random.one_in(5) { 60_000 } else { 2000 };
        let lasts_ms = random.below(lasts_ms_max);
        viewer.refused_until_ns = now_ns + lasts_ms * MS;
        viewer.is_refused |= errno != 0;
        self.answer(at, errno, errno == 0);
    }

    fn answer(&mut self, at: usize, errno: i32, in_part: bool) {
        let socket = self.viewers[at].socket;
        self.ledger(socket, |it| (it.errno, it.in_part) = (errno, in_part));
    }

    /// It goes without a word.
    fn leave(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        if viewer.task.is_none() {
            let socket = viewer.socket;
            viewer.told.clear();
            viewer.stream = None;
            self.ledger(socket, |it| it.is_silent = true);
        }
    }

    /// All go, for good: those that wait for something when that has come.
    pub(super) fn all_leave(&mut self) -> bool {
        for at in 0..self.viewers.len() {
            self.viewers[at].acts_ns = u64::MAX;
            if self.viewers[at].stream.is_some() {
                self.leave(at);
            }
        }
        self.viewers.iter().all(|viewer| viewer.stream.is_none())
    }

    /// Asks what viewers wait for.
    pub(super) fn poll_tasks(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        for at in 0..self.viewers.len() {
            let viewer = &mut self.viewers[at];
            let Some(task) = &mut viewer.task else {
                continue;
            };
            let Poll::Ready(done) = task.as_mut().poll(&mut context) else {
                continue;
            };
            viewer.task = None;
            let socket = viewer.socket;
            match done {
                Done::Paused(next) => {
                    let next = next.expect("few commands wait");
                    self.ledger(socket, |it| {
                        let expected = it.next.unwrap_or(0);
                        let is_so = next == expected || it.may_skip && next > expected;
                        assert!(is_so, "paused before {next}, and {expected} is next");
                        it.is_silent = true;
                    });
                }
                Done::Moved(Ok(())) => self.moved += 1,
                Done::Moved(Err(EngineError::Overload { .. } | EngineError::Late)) => {}
                Done::Moved(Err(EngineError::Full { .. })) => {}
                Done::Moved(Err(error)) => panic!("nothing speaks against a move: {error}"),
            }
        }
    }

    /// What an engine will take up in the turn that it is about to begin.
    pub(super) fn tell_ledgers(&mut self, engine: usize) {
        let mut world = locked(&self.world);
        for viewer in &mut self.viewers {
            let Some(ledger) = world.ledgers.get_mut(&viewer.socket) else {
                continue;
            };
            let shared = viewer.stream.as_ref().map(|it| it.shared());
            let mut worker_next = shared.map(|it| it.next_packet.load(Ordering::Relaxed));
            for (_, told) in viewer.told.extract_if(.., |it| it.0 == engine) {
                match told {
                    Told::Play { from, stop } => {
                        // It may have been left out since its last packet.
                        let next = worker_next.take().zip(ledger.next);
                        let ahead = next.map(|(worker, seen)| worker - seen);
                        let ahead = (ahead.unwrap_or(0) & 0xffff) as u16;
                        ledger.sequence = ledger.sequence.map(|it| it.wrapping_add(ahead));
                        (ledger.next, ledger.stop) = (Some(from), stop);
                        ledger.is_silent = false;
                    }
                    Told::Stop { packet } => {
                        ledger.stop = packet.max(ledger.next.unwrap_or(0));
                    }
                }
            }
        }
    }

    /// Whether a viewer's stream has ended, and for a reason.
    pub(super) fn look_at_end(&mut self, at: usize) {
        let viewer = &mut self.viewers[at];
        let Some(reason) = viewer.stream.as_ref().and_then(|it| it.end_reason()) else {
            return;
        };
        if std::mem::replace(&mut viewer.has_ended, true) {
            return;
        }
        let (owner, is_refused) = (viewer.owner, viewer.is_refused);
        let film_fails = self.films[viewer.film].fails;
        let is_told = self.ends.contains(&owner);
        assert!(
            is_told,
            "nobody was told that {owner} has ended: {reason:?}"
        );
        self.ends.remove(&owner);
        let socket = viewer.socket;
        match reason {
            EndReason::EndOfMedia => self.ledger(socket, |it| {
                let packets = it.film.images.len() as u64;
                let (next, end) = (it.next.unwrap_or(0), it.stop.min(packets));
                assert!(next >= end || it.may_skip, "it ends at {next} of {end}");
            }),
            EndReason::Media(_) => assert!(film_fails, "its film can be read"),
            EndReason::Send(_) => assert!(is_refused, "nothing was refused"),
            EndReason::Stopped => panic!("the engine runs"),
        }
        self.ended += 1;
    }

    fn engine_of(&self, stream: &Stream) -> Option<usize> {
        let slot = stream.slot()?;
        let remotes = self.engines.remotes();
        remotes.iter().position(|it| Arc::ptr_eq(it, &slot.remote))
    }

    fn ledger(&self, socket: u64, change: impl FnOnce(&mut Ledger)) {
        if let Some(ledger) = locked(&self.world).ledgers.get_mut(&socket) {
            change(ledger);
        }
    }
}
