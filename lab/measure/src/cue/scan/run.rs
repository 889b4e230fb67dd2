//! A set over loopback: somebody sends its files, somebody receives, metering processes have what
//! is left of the processor.

use std::fs::{self, File};
use std::io;
use std::iter;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use onrush_primitives::metering::Meter;
use onrush_sys::clock::monotonic_ns;
use onrush_sys::fs::advise_done;
use onrush_sys::path::cue::is_resident;
use onrush_sys::thread::{keep_off, raise_open_files_limit};

use super::super::senders::{self, Progress, Task, Work};
use super::super::watch::{Receivers, Taking, switches};
use super::super::{BLOCK_BYTES, Contestant};
use super::{Cell, Run, Set, Settings, State};
use crate::error::ExperimentError;
use crate::machine::{cpu_ns_of_all, threads_named};
use crate::own_folder::OwnFolder;
use crate::random::Random;
use crate::setup::{system, two_cores};

/// What a set may take, whoever moves it. One that takes longer is void.
const SET_NS_MAX: u64 = 180_000_000_000;

/// How long a metering process may take until it counts.
const STARTED_NS_MAX: u64 = 30_000_000_000;

/// How long metering processes count alone.
const ALONE: Duration = Duration::from_millis(500);

/// What all runs share.
#[derive(Debug)]
pub(super) struct Stage {
    pub(super) settings: Settings,
    folder: OwnFolder,
    files: Vec<Arc<File>>,
    /// Where senders and metering processes run, and where receivers do.
    pub(super) cores: (usize, usize),
}

/// Processor time and switches of the senders' threads.
#[derive(Clone, Copy, Debug)]
struct Used {
    cpu_ns: (u64, u64),
    switches: (u64, u64),
}

impl Stage {
    pub(super) fn set_up(settings: &Settings) -> Result<Self, ExperimentError> {
        raise_open_files_limit();
        let (first, last) = two_cores("the senders")?;
        keep_off(&[last]);
        let folder = OwnFolder::new_in(Path::new("/var/tmp")).map_err(system("make a folder"))?;
        let mut random = Random::new(3);
        let files = (0..settings.files).map(|number| {
            let path = folder.path().join(name_of(number));
            let mut file = File::create(&path)?;
            random.write(&mut file, settings.file_bytes)?;
            file.sync_all()?;
            Ok(Arc::new(File::open(path)?))
        });
        let files = files.collect::<io::Result<_>>();
        Ok(Self {
            settings: settings.clone(),
            files: files.map_err(system("write 60 files of 12 MB to /var/tmp"))?,
            folder,
            cores: (last, first),
        })
    }

    /// Where the files are.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Which files a set of so many sends.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let names = (0..self.settings.files).map(name_of);
        names.map(|name| self.folder.path().join(name)).collect()
    }

    /// Brings the first of them into memory.
    pub(super) fn warm(&self) -> io::Result<()> {
        fs::read(&self.paths()[0]).map(drop)
    }

    pub(super) fn run(&self, cell: Cell, repeat: u32) -> Result<Run, ExperimentError> {
        let (files_each, file_bytes) = self.settings.extent(cell.contestant, cell.transfers);
        let empty = Run::of(cell, repeat, (files_each, file_bytes));
        let meters = (0..cell.meterings).map(|_| metering(self.cores.0));
        let meters: io::Result<Vec<_>> = meters.collect();
        let meters = meters.map_err(system("start a metering process"))?;
        if cell.contestant == Contestant::Nobody {
            let calls = Calls::begin(&meters);
            thread::sleep(ALONE);
            let calls = calls.end(&meters);
            return Ok(Run { calls, ..empty });
        }
        let task = self.task(cell, files_each, file_bytes);
        let mut void = self.prepare(cell).map_err(system("read a file"))?;
        let (receivers, sockets) = Receivers::start(cell.transfers, self.cores.1, Taking::AtOnce)
            .map_err(system("connect over loopback"))?;
        let (begin_ns, calls) = (monotonic_ns(), Calls::begin(&meters));
        let threads = senders::start(cell.contestant, &task, sockets);
        let threads = threads.map_err(system("start a thread"))?;
        while task.progress.done.load(Ordering::Acquire) < cell.transfers {
            thread::sleep(Duration::from_millis(1));
            let is_late = monotonic_ns() - begin_ns > SET_NS_MAX;
            if is_late {
                void.get_or_insert_with(|| "it took longer than three minutes".to_owned());
            }
            if is_late || threads.iter().any(thread::JoinHandle::is_finished) {
                break;
            }
        }
        let (calls, used) = (calls.end(&meters), Used::now());
        task.progress.stopping.store(true, Ordering::Relaxed);
        for thread in threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => void = Some(error.to_string()),
                Err(_) => void = Some("a sender panicked".to_owned()),
            }
        }
        let counts = receivers.finished().map_err(system("receive"))?;
        let sent = task.progress.sent_bytes.load(Ordering::Relaxed);
        let received = counts.iter().sum();
        let promised = u64::from(empty.files) * file_bytes;
        let done_ns = task.progress.done_ns.lock().expect("who held it has ended");
        let done_ns: Vec<_> = done_ns.iter().map(|at| at - begin_ns).collect();
        Ok(Run {
            wall_ns: done_ns.iter().max().copied().unwrap_or(0),
            done_ns,
            cpu_ns: used.cpu_ns,
            switches: used.switches,
            calls,
            yields: task.progress.yields.load(Ordering::Relaxed),
            received_bytes: counts,
            total_bytes: (sent, received),
            void: void.or_else(|| miscounted(promised, sent, received)),
            ..empty
        })
    }

    fn task(&self, cell: Cell, files_each: u32, file_bytes: u64) -> Task {
        let files = match cell.state {
            State::Warm => vec![Arc::clone(&self.files[0])],
            State::Cold => self.files.clone(),
        };
        let transfers = u64::from(cell.transfers);
        let pieces = (0..transfers).map(|transfer| match cell.set {
            Set::Random => shuffled(file_bytes, transfer),
            _ => iter::once(0..file_bytes).collect(),
        });
        let work = Work {
            files,
            pieces: pieces.collect(),
            files_each: Some(vec![files_each; cell.transfers as usize]),
        };
        Task {
            work: Arc::new(work),
            core: self.cores.0,
            left_to_others: self.settings.left_to_others,
            progress: Arc::new(Progress::default()),
        }
    }

    /// Brings files into memory, or out of it: why that failed, if it did.
    fn prepare(&self, cell: Cell) -> io::Result<Option<String>> {
        if cell.state == State::Warm {
            self.warm()?;
            return Ok(None);
        }
        let looked_at = |file: &Arc<File>| {
            let mut places = (0..self.settings.file_bytes).step_by(1 << 20);
            places.any(|at| is_resident(file, at, 1))
        };
        for file in &self.files {
            advise_done(file, 0, 0);
        }
        let kept = self.files.iter().filter(|file| looked_at(file)).count();
        Ok((kept > 0).then(|| format!("{kept} files stayed in memory, which were to be cold")))
    }
}

/// A metering process that counts already.
fn metering(core: usize) -> io::Result<Meter> {
    let (meter, begin_ns) = (Meter::start(core)?, monotonic_ns());
    while meter.calls() == 0 {
        if monotonic_ns() - begin_ns > STARTED_NS_MAX {
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(meter)
}

/// Why what was counted says nothing, if so.
pub(super) fn miscounted(promised: u64, sent: u64, received: u64) -> Option<String> {
    let is_right = sent == promised && received == promised;
    let words = || format!("{promised} bytes were to go, {sent} were sent and {received} arrived");
    (!is_right).then(words)
}

fn name_of(number: u32) -> String {
    format!("{number}.ts")
}

/// All blocks of a file, in no order.
fn shuffled(file_bytes: u64, seed: u64) -> Vec<Range<u64>> {
    let block_bytes = u64::from(BLOCK_BYTES);
    let blocks = (0..file_bytes).step_by(BLOCK_BYTES as usize);
    let mut blocks: Vec<_> = blocks
        .map(|at| at..(at + block_bytes).min(file_bytes))
        .collect();
    let mut random = Random::new(seed);
    for at in (1..blocks.len()).rev() {
        blocks.swap(at, random.index(at + 1));
    }
    blocks
}

/// What metering processes have done.
pub(super) struct Calls {
    at_ns: u64,
    calls: u64,
}

impl Calls {
    pub(super) fn begin(meters: &[Meter]) -> Self {
        Self {
            calls: meters.iter().map(Meter::calls).sum(),
            at_ns: monotonic_ns(),
        }
    }

    pub(super) fn end(self, meters: &[Meter]) -> (u64, u64) {
        let now = Self::begin(meters);
        (now.calls - self.calls, now.at_ns - self.at_ns)
    }
}

impl Used {
    /// Of all senders' threads since they began.
    fn now() -> Self {
        let threads = threads_named(senders::THREAD_NAME);
        let ticks = threads.iter().filter_map(|thread| {
            let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
            ticks(&stat.ok()?)
        });
        let (user, system) = ticks.fold((0, 0), |all, of| (all.0 + of[0], all.1 + of[1]));
        Self {
            cpu_ns: apart(cpu_ns_of_all(&threads), user, system),
            switches: switches(&threads),
        }
    }
}

/// A time in the proportion of ticks: clocks are exact, and do not tell the two apart.
pub(super) fn apart(cpu_ns: u64, user: u64, system: u64) -> (u64, u64) {
    let part = u128::from(cpu_ns) * u128::from(user) / u128::from(user + system).max(1);
    let user_ns = u64::try_from(part).unwrap_or(u64::MAX);
    match user + system {
        0 => (0, cpu_ns),
        _ => (user_ns, cpu_ns - user_ns),
    }
}

/// Of proc_pid_stat(5): ticks in user mode and in the kernel.
pub(super) fn ticks(stat: &str) -> Option<[u64; 2]> {
    // The name, in parentheses, may hold spaces; the state, field 3, follows.
    let fields = stat.rsplit(')').next()?.split_ascii_whitespace();
    let ticks: Option<Vec<u64>> = fields.skip(11).take(2).map(|it| it.parse().ok()).collect();
    ticks?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use onrush_sys::thread::allowed_cores;

    use super::super::cells::{in_proportion, today, yielding};
    use super::*;

    fn small() -> Settings {
        Settings {
            files: 6,
            file_bytes: 1 << 20,
            paced_file_bytes: 256 << 10,
            set_ns_max: 100_000_000,
            ..Settings::quick()
        }
    }

    /// Everybody sends a little; it is the mechanism that is tried, not the machine.
    #[test]
    fn all_sets_are_sent_whole_and_counted() {
        if allowed_cores().len() < 2 {
            onrush_testkit::skip::record("needs two processors");
            return;
        }
        let _tested = senders::TESTED.lock();
        // On a thread of its own, which keeps off the senders' processor.
        let runs = thread::spawn(|| {
            let stage = Stage::set_up(&small()).unwrap();
            let all = [
                (Set::Schedules, Contestant::Nobody, 0, 2, State::Warm),
                (Set::One, Contestant::UserDriven, 1, 1, State::Warm),
                (Set::Five, Contestant::fixed(4, 16), 2, 2, State::Warm),
                (Set::Nine, in_proportion((4, 1)), 4, 0, State::Warm),
                (Set::Schedules, Contestant::Adaptive, 2, 1, State::Cold),
                (Set::Schedules, today((2, 1)), 1, 2, State::Warm),
                (Set::Schedules, yielding((2, 1)), 1, 1, State::Warm),
                (Set::Random, Contestant::UserDriven, 1, 1, State::Warm),
                (Set::Random, Contestant::Fair, 2, 1, State::Cold),
            ];
            let all = all.map(|(set, contestant, transfers, meterings, state)| {
                let cell = Cell {
                    set,
                    contestant,
                    transfers,
                    meterings,
                    state,
                };
                stage.run(cell, 0).unwrap()
            });
            all.to_vec()
        });
        let runs = runs.join().unwrap();
        // Those of a set that is over in moments may have had no turn.
        assert!(runs.iter().map(|run| run.calls.0).sum::<u64>() > 0);
        for run in runs {
            assert_eq!(run.void, None, "{run:?}");
            assert_eq!(run.received_bytes.len(), run.cell.transfers as usize);
            assert_eq!(run.done_ns.len(), run.cell.transfers as usize);
            assert!(run.calls.1 > 0, "{run:?}");
            if run.cell.transfers > 0 {
                let bytes = u64::from(run.files) * run.file_bytes;
                assert_eq!(run.total_bytes, (bytes, bytes));
                // Few ticks tell little of which mode it was in.
                let cpu_ns = run.cpu_ns.0 + run.cpu_ns.1;
                assert!(run.wall_ns > 0 && cpu_ns > 0, "{run:?}");
            }
        }
    }

    #[test]
    fn what_was_not_counted_right_is_void() {
        assert_eq!(miscounted(5, 5, 5), None);
        assert!(miscounted(5, 5, 4).is_some());
        assert!(miscounted(5, 6, 6).is_some());
    }

    #[test]
    fn all_blocks_are_sent_once_in_no_order() {
        let mut blocks = shuffled(100_000, 1);
        assert!(blocks.windows(2).any(|two| two[0].start > two[1].start));
        blocks.sort_by_key(|block| block.start);
        assert_eq!(blocks.first().map(|it| it.start), Some(0));
        assert!(blocks.windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!(blocks.last().map(|it| it.end), Some(100_000));
    }

    #[test]
    fn times_are_taken_apart_as_ticks_say() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 4 1 2 3 4 30 10 5 6 20 0";
        assert_eq!(ticks(stat), Some([30, 10]));
        assert_eq!(apart(1000, 30, 10), (750, 250));
        assert_eq!(apart(1000, 0, 0), (0, 1000));
    }
}
