//! What all loops have in common: one thread that paces all sessions with the engine's own timer
//! wheel, bursts and ticks. How a loop sends what is due is its [`Way`].

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_server::config::Config;
use onrush_sys::clock::{monotonic_ns, sleep_until_ns};
use onrush_sys::thread::pin_to;
use onrush_wire::media::{Burst, Plan, RtpOrigin};
use onrush_wire::pace::Wheel;

use super::film::Cue;
use super::record::Counts;
use super::sender::{Finished, LEAD_NS, Sender, Task};
use crate::error::ExperimentError;
use crate::setup::system;

/// As in the engine.
pub(super) const TICKS_PER_BURST: u64 = 4;

/// As in the engine.
const WHEEL_SLOTS: u32 = 512;

/// How long a tick may send. Who has more to send than goes comes later to each tick, and would
/// send for longer in each, until nobody could end it.
const TICK_NS_MAX: u64 = 50_000_000;

/// How a loop sends what is due.
pub(super) trait Way: Send + 'static {
    /// Sends these packets of a session, which are due together, and counts them.
    fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts);
}

/// A loop that runs.
struct Running {
    thread: JoinHandle<()>,
    stopping: Arc<AtomicBool>,
    counts: Arc<Mutex<Counts>>,
}

/// What the thread works with.
pub(super) struct Loop<W> {
    way: W,
    bursts: Vec<Burst>,
    sessions: Vec<Session>,
    wheel: Wheel,
    tick_ns: u64,
    /// [`TICK_NS_MAX`].
    pub(super) tick_ns_max: u64,
}

struct Session {
    /// The next in the list of bursts.
    burst: usize,
    /// What of the burst's due time is not its own.
    epoch_ns: i64,
}

/// Starts all sessions of a task on a thread of that name. `way` is made of the film's packets and
/// of what they are numbered from.
pub(super) fn start_way<W: Way>(
    task: &Task,
    name: &'static str,
    way: impl FnOnce(&Plan, RtpOrigin) -> io::Result<W>,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let config = Config {
        media_root: task.film.folder().to_owned(),
        burst: Duration::from_nanos(task.settings.burst_ns),
        ..Config::default()
    };
    let media = task.film.open(&config, &super::engine::runtime()?)?;
    let plans = task.film.plans(&media)?;
    let (plan, cues) = (&plans[0], task.film.cues(&plans, &task.settings));
    let way = way(plan, media.origin(0)).map_err(system("set up the sockets"))?;
    let sending = Loop::new(way, plan, &cues, monotonic_ns() + LEAD_NS);
    start_loop(sending, name, task.core)
}

fn start_loop<W: Way>(
    mut sending: Loop<W>,
    name: &str,
    core: usize,
) -> Result<Box<dyn Sender>, ExperimentError> {
    let stopping = Arc::new(AtomicBool::new(false));
    let counts = Arc::new(Mutex::new(Counts::default()));
    let (its_stopping, its_counts) = (Arc::clone(&stopping), Arc::clone(&counts));
    let thread = thread::Builder::new().name(name.to_owned());
    let thread = thread.spawn(move || {
        if pin_to(core).is_err() {
            return;
        }
        let mut due = Vec::with_capacity(sending.sessions.len());
        while !its_stopping.load(Ordering::Relaxed) {
            let until_ns = {
                // Taken once a tick; the other side looks twice in a run.
                let mut counts = its_counts.lock().unwrap_or_else(PoisonError::into_inner);
                sending.tick(monotonic_ns(), &mut due, &mut counts)
            };
            sleep_until_ns(until_ns);
        }
    });
    Ok(Box::new(Running {
        thread: thread.map_err(system("start the loop"))?,
        stopping,
        counts,
    }))
}

impl Sender for Running {
    fn counts(&self) -> Counts {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn stop(self: Box<Self>) -> Result<Finished, ExperimentError> {
        self.stopping.store(true, Ordering::Relaxed);
        let failed = self
            .thread
            .join()
            .is_err()
            .then(|| "the loop panicked".to_owned());
        let counts = self
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(Finished {
            counts,
            failed,
            ..Finished::default()
        })
    }
}

impl<W: Way> Loop<W> {
    /// Of the packets of `plan`, each session from its own place on.
    pub(super) fn new(way: W, plan: &Plan, cues: &[Cue], begin_ns: u64) -> Self {
        let mut bursts = Vec::new();
        plan.bursts(0..plan.rtp_packets(), &mut bursts);
        let tick_ns = (plan.burst_ns() / TICKS_PER_BURST).max(1);
        let count = u32::try_from(cues.len()).expect("checked against SESSIONS_MAX");
        let mut wheel = Wheel::new(count, WHEEL_SLOTS, tick_ns, monotonic_ns());
        let mut sessions = Vec::with_capacity(cues.len());
        for (number, cue) in (0..).zip(cues) {
            let start_ns = begin_ns + cue.phase_ns;
            wheel.insert(number, start_ns);
            let (from, _) = cue.tracks[0];
            let burst = bursts.partition_point(|burst| burst.first < from);
            let epoch_ns = start_ns.cast_signed() - plan.due_ns(from).cast_signed();
            sessions.push(Session { burst, epoch_ns });
        }
        Self {
            way,
            bursts,
            sessions,
            wheel,
            tick_ns,
            tick_ns_max: TICK_NS_MAX,
        }
    }

    /// Sends what is due in the tick that begins now; when to come again. Who was left in `due` by
    /// the tick before has his turn first.
    pub(super) fn tick(&mut self, now_ns: u64, due: &mut Vec<u32>, counts: &mut Counts) -> u64 {
        self.wheel.take_due(now_ns, due);
        let tick_end_ns = (now_ns / self.tick_ns + 1) * self.tick_ns;
        let give_up_ns = monotonic_ns().saturating_add(self.tick_ns_max);
        let mut served = 0;
        for &number in &*due {
            if served > 0 && monotonic_ns() > give_up_ns {
                break;
            }
            served += 1;
            let place = number as usize;
            while let Some(&burst) = self.bursts.get(self.sessions[place].burst) {
                let session = &mut self.sessions[place];
                let due_ns = session.epoch_ns + burst.due_ns.cast_signed();
                if due_ns >= tick_end_ns.cast_signed() {
                    self.wheel.insert(number, due_ns.cast_unsigned());
                    break;
                }
                session.burst += 1;
                let late_ns = monotonic_ns().cast_signed() - due_ns;
                counts.lateness.count(late_ns, 1);
                let packets = burst.first..burst.first + u64::from(burst.packets);
                self.way.send(place, packets, counts);
            }
        }
        due.drain(..served);
        counts.ticks += 1;
        counts.crossings += 1;
        match due.is_empty() {
            true => self.wheel.next_ns().unwrap_or(tick_end_ns),
            false => now_ns + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::film_kind::FilmKind;
    use crate::serve::Settings;
    use crate::serve::film::Film;

    /// Keeps whose packets they were.
    struct Noting(Vec<usize>);

    impl Way for Noting {
        fn send(&mut self, session: usize, packets: Range<u64>, counts: &mut Counts) {
            self.0.push(session);
            counts.packets += packets.end - packets.start;
        }
    }

    #[test]
    fn a_tick_has_an_end_and_who_was_left_out_has_the_next_turn() {
        let settings = Settings {
            sessions: 5,
            measured_ns: 100_000_000,
            rate_bps: 4_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Ts).unwrap();
        let config = Config {
            media_root: film.folder().to_owned(),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let media = film.open(&config, &runtime).unwrap();
        let plans = film.plans(&media).unwrap();
        let cues = film.cues(&plans, &settings);
        let begin_ns = monotonic_ns();
        let mut sending = Loop::new(Noting(Vec::new()), &plans[0], &cues, begin_ns);
        sending.tick_ns_max = 0;
        let (mut counts, mut due) = (Counts::default(), Vec::new());
        // All are due by then, and time stands still.
        let now_ns = begin_ns + 2 * settings.burst_ns;
        for left in (0..5).rev() {
            let next_ns = sending.tick(now_ns, &mut due, &mut counts);
            assert_eq!(due.len(), left);
            assert_eq!(next_ns == now_ns + 1, left > 0);
        }
        let mut turns = sending.way.0;
        turns.dedup();
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2, 3, 4]);
    }
}
