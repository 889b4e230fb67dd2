//! One run: somebody sends, somebody receives, somebody else has what is left of the processor.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_sys::fs::advise_done;
use onrush_sys::thread::{keep_off, raise_open_files_limit};

use super::senders::{self, Progress, Task, Work};
use super::watch::{Metering, Receivers, Taking, switches};
use super::{Cell, HELD_BYTES_MAX, Run, Set, Settings, TRANSFERS_MAX};
use crate::counters::{Counted, Counting};
use crate::error::ExperimentError;
use crate::machine::{SenderClock, cpu_ns_of_all, threads_named};
use crate::setup::{system, two_cores};

/// From the first byte to the measured stretch: sockets have found their sizes, schedules have
/// settled.
const WARM_UP: Duration = Duration::from_millis(300);

/// What a run that sends a file once may take.
const ONCE_NS_MAX: u64 = 4_000_000_000;

/// What all runs share.
pub(super) struct Stage {
    settings: Settings,
    small: Arc<File>,
    large: Arc<File>,
    /// Where senders and the metering thread run, and where receivers do.
    cores: (usize, usize),
}

/// What is read before and after.
struct Reading {
    at_ns: u64,
    cpu_ns: u64,
    switches: (u64, u64),
    calls: u64,
    received: Vec<u64>,
}

impl Stage {
    pub(super) fn set_up(settings: &Settings) -> Result<Self, ExperimentError> {
        raise_open_files_limit();
        let (first, last) = two_cores("the senders")?;
        keep_off(&[last]);
        let film = |bytes| film(bytes).map_err(system("write a file of 1 GiB to /var/tmp"));
        Ok(Self {
            settings: settings.clone(),
            small: film(settings.small_bytes)?,
            large: film(settings.large_bytes)?,
            cores: (last, first),
        })
    }

    pub(super) fn run(&self, cell: Cell, repeat: u32) -> Result<Run, ExperimentError> {
        assert!(cell.transfers <= TRANSFERS_MAX, "settings were checked");
        let each = self.settings.line_bytes_a_second / u64::from(cell.transfers.max(1));
        let taking = match cell.set {
            Set::Line => Taking::Line(each),
            Set::Held => Taking::Later,
            _ => Taking::AtOnce,
        };
        let (receivers, sockets) = Receivers::start(cell.transfers, self.cores.1, taking)
            .map_err(system("connect over loopback"))?;
        let metering = cell.metered.then(|| Metering::start(self.cores.0));
        let metering = metering.transpose().map_err(system("start a thread"))?;
        let task = self.task(cell);
        let clock = match cell.set {
            Set::Held => SenderClock::bound_to(self.cores.0),
            // Others are on that processor, too.
            _ => SenderClock::of_sleeper(),
        };
        if cell.set == Set::Cold {
            advise_done(&self.large, 0, 0);
        }
        let mut begin = Reading::take(&receivers, metering.as_ref(), &clock);
        let threads = senders::start(cell.contestant, &task, sockets);
        let threads = threads.map_err(system("start a thread"))?;
        if task.work.files_each.is_none() {
            thread::sleep(WARM_UP);
            begin = Reading::take(&receivers, metering.as_ref(), &clock);
        }
        // Of a file that is sent once they have sent some of it.
        let is_asked = self.settings.counters && task.work.files_each.is_none();
        let counting = Counting::of_threads(is_asked, &threads_named(senders::THREAD_NAME));
        let begun = counting.now();
        self.wait(&task, begin.at_ns);
        let end = Reading::take(&receivers, metering.as_ref(), &clock);
        let counted = Counted::between(begun, counting.now());
        task.progress.stopping.store(true, Ordering::Relaxed);
        receivers.take();
        let mut void = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => void = Some(error.to_string()),
                Err(_) => void = Some("a sender panicked".to_owned()),
            }
        }
        let received = receivers.finish().map_err(system("receive"))?;
        let sent = task.progress.sent_bytes.load(Ordering::Relaxed);
        if sent != received && void.is_none() {
            void = Some(format!("{sent} bytes were sent and {received} arrived"));
        }
        let parts = end.received.iter().zip(&begin.received);
        let received_bytes = match cell.set {
            Set::Held => vec![received],
            _ => parts.map(|(end, begin)| end - begin).collect(),
        };
        Ok(Run {
            cell,
            repeat,
            wall_ns: end.at_ns - begin.at_ns,
            cpu_ns: end.cpu_ns - begin.cpu_ns,
            counted,
            voluntary: end.switches.0 - begin.switches.0,
            involuntary: end.switches.1 - begin.switches.1,
            calls: end.calls - begin.calls,
            received_bytes,
            total_bytes: (sent, received),
            void,
        })
    }

    fn task(&self, cell: Cell) -> Task {
        let (file, bytes) = match cell.set {
            Set::Cold | Set::Bare => (&self.large, self.settings.large_bytes),
            Set::Held => (&self.large, self.settings.large_bytes.min(HELD_BYTES_MAX)),
            _ => (&self.small, self.settings.small_bytes),
        };
        let once = matches!(cell.set, Set::Cold | Set::Held);
        let parts = u64::from(cell.transfers);
        let share = |part: u64| match once {
            true => bytes * part / parts..bytes * (part + 1) / parts,
            false => 0..bytes,
        };
        Task {
            work: Arc::new(Work::shares(file, (0..parts).map(share).collect(), once)),
            core: self.cores.0,
            left_to_others: self.settings.left_to_others,
            progress: Arc::new(Progress::default()),
        }
    }

    fn wait(&self, task: &Task, begin_ns: u64) {
        if task.work.files_each.is_none() {
            thread::sleep(Duration::from_nanos(self.settings.measured_ns));
            return;
        }
        let transfers = u32::try_from(task.work.transfers()).unwrap_or(u32::MAX);
        while task.progress.done.load(Ordering::Relaxed) < transfers
            && monotonic_ns() - begin_ns < ONCE_NS_MAX
        {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Reading {
    fn take(receivers: &Receivers, metering: Option<&Metering>, clock: &SenderClock) -> Self {
        let threads = threads_named(senders::THREAD_NAME);
        Self {
            switches: switches(&threads),
            at_ns: monotonic_ns(),
            cpu_ns: cpu_ns_of_all(&threads) + clock.softirq_ns(),
            calls: metering.map_or(0, Metering::calls),
            received: receivers.counts(),
        }
    }
}

/// A file on a disk, in memory as one that was read, not as one that was written.
fn film(bytes: u64) -> io::Result<Arc<File>> {
    let file = crate::random::film(bytes)?;
    let (mut piece, mut at) = (vec![0; 1 << 20], 0);
    while at < bytes {
        at += file.read_at(&mut piece, at)? as u64;
    }
    Ok(Arc::new(file))
}

#[cfg(test)]
mod tests {
    use onrush_sys::thread::allowed_cores;

    use super::super::Contestant;
    use super::*;

    /// Everybody sends a little; it is the mechanism that is tried, not the machine.
    #[test]
    fn all_contestants_send_what_is_received_and_say_so() {
        if allowed_cores().len() < 2 {
            onrush_testkit::skip::record("needs two processors");
            return;
        }
        let settings = Settings {
            measured_ns: 200_000_000,
            small_bytes: 1 << 20,
            large_bytes: 4 << 20,
            ..Settings::quick()
        };
        let _tested = senders::TESTED.lock();
        // On a thread of its own, which keeps off the senders' processor.
        let runs = thread::spawn(move || {
            let stage = Stage::set_up(&settings).unwrap();
            let chain = Contestant::Chain {
                block_bytes: 8192,
                blocks: 4,
                pause_ms: 1,
            };
            let all = [
                (Set::One, Contestant::Nobody, 0),
                (Set::One, Contestant::UserDriven, 2),
                (Set::Line, Contestant::UserLoop, 2),
                (Set::Bare, Contestant::SendfileLoop, 1),
                (Set::Held, Contestant::SendfileLoop, 1),
                (Set::Held, Contestant::Fair, 1),
                (Set::One, Contestant::fixed(4, 1), 2),
                (Set::One, chain, 2),
                (Set::Cold, Contestant::Fair, 2),
                (Set::Scaling, Contestant::Adaptive, 3),
            ];
            let can = |set| set != Set::Held || crate::window::may_widen();
            let all = all.into_iter().filter(|one| can(one.0));
            let all = all.map(|(set, contestant, transfers)| {
                let cell = Cell {
                    set,
                    contestant,
                    transfers,
                    metered: true,
                };
                stage.run(cell, 0).unwrap()
            });
            all.collect::<Vec<_>>()
        });
        for run in runs.join().unwrap() {
            assert_eq!(run.void, None, "{run:?}");
            assert_eq!(run.received_bytes.len(), run.cell.transfers as usize);
            assert!(run.cell.transfers == 0 || run.total_bytes.0 > 0, "{run:?}");
            assert_eq!(run.total_bytes.0, run.total_bytes.1);
            if run.cell.set == Set::Held {
                assert_eq!(run.received_bytes, [4 << 20], "{run:?}");
            }
        }
    }
}
