//! The proof that pinned memory stays where it is, and that the rest does not.
//!
//! Every row is some memory and a way to hold it. All rows together live through the same: memory is
//! fragmented and compacted, reclaimed into a swap file, and written to beside a forked child. Meanwhile other
//! processes attach the shared rows that are pinned, lock and unlock overlapping parts at random, and some are
//! killed. After each of these, every page is touched and its frame compared with the one before. Unlocked rows
//! have to move, or the run proves nothing.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::lock::bare::{self, Private};
use onrush_sys::lock::{Kind, LockError, LockedArea, Manager, Segment, memfd, posix, unlink_posix};
use onrush_sys::memory::available_bytes;
use serde::{Deserialize, Serialize};

use super::LockBenchError;
use super::cost::below;
use crate::experiment::{Environment, Record};
use crate::setup::system;

/// Its name in files.
pub const NAME: &str = "lock-reliability";

/// The swap file that the run makes and removes; one that an interrupted run has left is removed too.
pub const SWAP_FILE: &str = "/var/tmp/onrush-bench-lock.swap";

/// What is found.
pub type ReliabilityRecord = Record<Settings, Row>;

/// How the run is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Bytes of every row.
    pub row_bytes: usize,
    /// How many other processes there are, pass by pass.
    pub processes: Vec<u32>,
    /// Memory that is fragmented, at most half of what is free.
    pub hog_bytes: usize,
    /// The size of the swap file.
    pub swap_bytes: usize,
    /// How long the memory is pushed into it, in ms.
    pub swap_ms: u64,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Private and anonymous.
    Private,
    /// A SysV segment.
    Sysv,
    /// POSIX shared memory.
    Posix,
    /// A memfd.
    Memfd,
}

/// How it is held.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Not at all.
    Unlocked,
    /// By a bare `mlock`.
    Mlock,
    /// By SHM_LOCK, the whole segment.
    ShmLock,
    /// By the manager, resident.
    Resident,
    /// By the manager, pinned.
    Pinned,
    /// By the manager of another process, pinned.
    PinnedElsewhere,
}

/// How many pages of some memory were at another frame afterwards.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Row {
    /// Which memory.
    pub memory: Memory,
    /// How it was held.
    pub hold: Hold,
    /// Other processes, for those rows that have them.
    pub processes: u32,
    /// Its pages.
    pub pages: usize,
    /// After fragmenting and compacting, until some page of some row had moved.
    pub moved_by_compaction: usize,
    /// After reclaim into the swap file.
    pub moved_by_swapping: usize,
    /// After a write beside a forked child; private memory only.
    pub moved_by_fork: Option<usize>,
}

/// What another process is to do with shared memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Task {
    /// Pin all of it and hold it.
    Hold,
    /// Lock and unlock parts of it at random.
    Wander,
}

impl Settings {
    /// The whole proof: about a minute.
    #[must_use]
    pub fn full() -> Self {
        Self {
            row_bytes: 16 << 20,
            processes: vec![1, 2, 4, 8],
            hog_bytes: 4 << 30,
            swap_bytes: 512 << 20,
            swap_ms: 5000,
        }
    }

    /// One pass of it, with less memory.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            row_bytes: 4 << 20,
            processes: vec![2],
            hog_bytes: 2 << 30,
            swap_bytes: 128 << 20,
            swap_ms: 1000,
        }
    }
}

/// Carries it out. `worker` makes the command that calls [`work`] with an address, a task and a seed, and
/// prints a line when it says that it is ready. `progress` hears how much of the whole is done.
///
/// # Errors
///
/// [`LockBenchError::Root`] without root; else what could not be had.
pub fn carry_out(
    settings: &Settings,
    version: &str,
    command: &str,
    worker: &dyn Fn(&str, Task, u64) -> Command,
    mut progress: impl FnMut(f64),
) -> Result<ReliabilityRecord, LockBenchError> {
    // Before anything is locked, so that who lacks the right hears of that and not of a limit.
    let page = Private::map(PAGE_BYTES).map_err(system("map memory"))?;
    if matches!(bare::frames(&page.bytes()), Err(LockError::FramesHidden)) {
        return Err(LockBenchError::Root);
    }
    remove_swap();
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    let passes = u32::try_from(settings.processes.len()).unwrap_or(u32::MAX);
    for (pass, &processes) in (0u32..).zip(&settings.processes) {
        record.runs.extend(one_pass(settings, processes, worker)?);
        progress(f64::from(pass + 1) / f64::from(passes));
    }
    Ok(record)
}

/// What a worker does, until its standard input ends: attaches `address` and does its task, after the first
/// lock calling `ready`.
///
/// # Errors
///
/// If it can not attach, or a lock fails.
pub fn work(
    address: &str,
    task: Task,
    seed: u64,
    ready: impl FnOnce(),
) -> Result<(), LockBenchError> {
    let segment = attach(address)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    thread::spawn(move || {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        over.store(true, Ordering::Relaxed);
    });
    let manager = Manager::of_process();
    let first = manager.lock(segment.bytes(), Kind::Pinned)?;
    ready();
    if task == Task::Hold {
        while !is_over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        drop(first);
        return Ok(());
    }
    drop(first);
    wander(&segment.bytes(), seed, &is_over)
}

/// Locks and unlocks overlapping parts at random.
fn wander(bytes: &Range<usize>, seed: u64, is_over: &AtomicBool) -> Result<(), LockBenchError> {
    let manager = Manager::of_process();
    let pages = bytes.len() / PAGE_BYTES;
    let mut random = seed | 1;
    let mut out: Vec<LockedArea> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if out.is_empty() || (out.len() < 16 && below(&mut random, 2) == 0) {
            let first = below(&mut random, pages);
            let count = 1 + below(&mut random, (pages - first).min(256));
            let start = bytes.start + first * PAGE_BYTES;
            let kind = [Kind::Pinned, Kind::Resident, Kind::OnFault][below(&mut random, 3)];
            out.push(manager.lock(start..start + count * PAGE_BYTES, kind)?);
        } else {
            let at = below(&mut random, out.len());
            drop(out.swap_remove(at));
        }
        // The machine has other things to do, too.
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

fn one_pass(
    settings: &Settings,
    processes: u32,
    worker: &dyn Fn(&str, Task, u64) -> Command,
) -> Result<Vec<Row>, LockBenchError> {
    let mut subjects = Vec::new();
    for memory in Memory::ALL {
        for &hold in memory.holds() {
            subjects.push(Subject::new(memory, hold, settings.row_bytes, worker)?);
        }
    }
    let mut crowd = Crowd::gather(&subjects, processes, worker)?;
    let mut compaction = Changes(vec![0; subjects.len()]);
    for _ in 0..COMPACTIONS_MAX {
        let more = Changes::of(&subjects, || compact(settings.hog_bytes))?;
        compaction
            .0
            .iter_mut()
            .zip(more.0)
            .for_each(|(all, n)| *all += n);
        // Where free memory lies decides whether any of ours is in its way.
        if compaction.0.iter().any(|&moved| moved > 0) {
            break;
        }
    }
    crowd.replace_some()?;
    let swapping = {
        let _swap = Swap::on(settings.swap_bytes)?;
        Changes::of(&subjects, || {
            push_out(&subjects, Duration::from_millis(settings.swap_ms))
        })?
    };
    let before = frames(&subjects)?;
    for subject in &mut subjects {
        if let Mapped::Private(private) = &mut subject.mapped {
            private.write_beside_a_child(3).map_err(system("fork"))?;
        }
    }
    let forking = Changes::between(&before, &frames(&subjects)?);
    crowd.end()?;
    let rows = subjects.iter().enumerate().map(|(i, subject)| Row {
        memory: subject.memory,
        hold: subject.hold,
        processes,
        pages: settings.row_bytes / PAGE_BYTES,
        moved_by_compaction: compaction.0[i],
        moved_by_swapping: swapping.0[i],
        moved_by_fork: (subject.memory == Memory::Private).then_some(forking.0[i]),
    });
    Ok(rows.collect())
}

/// Memory that is watched, and what holds it.
struct Subject {
    memory: Memory,
    hold: Hold,
    address: String,
    // Before the memory: what holds it goes first.
    _area: Option<LockedArea>,
    holder: Option<Worker>,
    mapped: Mapped,
    /// Whose descriptor the address names.
    _file: Option<File>,
}

enum Mapped {
    Private(Private),
    Segment(Segment),
}

impl Subject {
    fn new(
        memory: Memory,
        hold: Hold,
        bytes: usize,
        worker: &dyn Fn(&str, Task, u64) -> Command,
    ) -> Result<Self, LockBenchError> {
        let (mapped, file, address) = memory.make(bytes)?;
        let range = mapped.bytes();
        let manager = Manager::of_process();
        // Everything is in memory before it is held.
        drop(manager.lock(range.clone(), Kind::Resident)?);
        let mut subject = Self {
            memory,
            hold,
            address,
            _area: None,
            holder: None,
            mapped,
            _file: file,
        };
        match hold {
            Hold::Unlocked => {}
            Hold::Mlock => bare::mlock(&range).map_err(system("mlock"))?,
            Hold::ShmLock => {
                if let Mapped::Segment(segment) = &subject.mapped
                    && let Some(id) = segment.sysv_id()
                {
                    bare::shm_lock(id).map_err(system("lock a SysV segment"))?;
                }
            }
            Hold::Resident => subject._area = Some(manager.lock(range, Kind::Resident)?),
            Hold::Pinned => subject._area = Some(manager.lock(range, Kind::Pinned)?),
            Hold::PinnedElsewhere => {
                let holder = Worker::start(worker(&subject.address, Task::Hold, 1))?;
                subject.holder = Some(holder);
            }
        }
        Ok(subject)
    }
}

impl Mapped {
    fn bytes(&self) -> Range<usize> {
        match self {
            Self::Private(private) => private.bytes(),
            Self::Segment(segment) => segment.bytes(),
        }
    }
}

impl Memory {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Private, Self::Sysv, Self::Posix, Self::Memfd];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Sysv => "SysV",
            Self::Posix => "POSIX",
            Self::Memfd => "memfd",
        }
    }

    fn holds(self) -> &'static [Hold] {
        use Hold::{Mlock, Pinned, PinnedElsewhere, Resident, ShmLock, Unlocked};
        match self {
            Self::Private => &[Unlocked, Mlock, Resident, Pinned],
            Self::Sysv => &[Unlocked, Mlock, ShmLock, Resident, Pinned, PinnedElsewhere],
            Self::Posix | Self::Memfd => &[Unlocked, Mlock, Resident, Pinned, PinnedElsewhere],
        }
    }

    /// Makes some, with the address by which [`attach`] finds it.
    fn make(self, bytes: usize) -> Result<(Mapped, Option<File>, String), LockBenchError> {
        let file = match self {
            Self::Private => {
                let mut private = Private::map(bytes).map_err(system("map memory"))?;
                private.write(1);
                return Ok((Mapped::Private(private), None, String::new()));
            }
            Self::Sysv => {
                let segment = Segment::sysv(bytes)?;
                let address = format!("sysv:{}", segment.sysv_id().unwrap_or(-1));
                return Ok((Mapped::Segment(segment), None, address));
            }
            Self::Posix => {
                let name = format!("/onrush-bench-{}", std::process::id());
                let file = posix(&name, bytes)?;
                unlink_posix(&name)?;
                file
            }
            Self::Memfd => memfd(bytes)?,
        };
        let segment = Segment::map(&file, bytes)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let address = format!("file:{bytes}:{path}");
        Ok((Mapped::Segment(segment), Some(file), address))
    }
}

impl Hold {
    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlocked => "unlocked",
            Self::Mlock => "mlock",
            Self::ShmLock => "SHM_LOCK",
            Self::Resident => "resident",
            Self::Pinned => "pinned",
            Self::PinnedElsewhere => "pinned by another",
        }
    }

    fn is_pinned(self) -> bool {
        matches!(self, Self::Pinned | Self::PinnedElsewhere)
    }
}

fn attach(address: &str) -> Result<Segment, LockBenchError> {
    let malformed =
        || system("read the address of shared memory")(io::ErrorKind::InvalidInput.into());
    if let Some(id) = address.strip_prefix("sysv:") {
        return Ok(Segment::attach_sysv(id.parse().map_err(|_| malformed())?)?);
    }
    let rest = address.strip_prefix("file:").ok_or_else(malformed)?;
    let (bytes, path) = rest.split_once(':').ok_or_else(malformed)?;
    let bytes = bytes.parse().map_err(|_| malformed())?;
    let file = File::options().read(true).write(true).open(path);
    Ok(Segment::map(
        &file.map_err(system("open shared memory"))?,
        bytes,
    )?)
}

/// Another process.
struct Worker(Child);

impl Worker {
    fn start(mut command: Command) -> Result<Self, LockBenchError> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut worker = Self(child.map_err(system("start another process"))?);
        let mut line = String::new();
        let output = worker.0.stdout.as_mut().expect("it was piped");
        BufReader::new(output)
            .read_line(&mut line)
            .map_err(system("hear of another process"))?;
        if line.is_empty() {
            let ended = io::ErrorKind::UnexpectedEof.into();
            return Err(system("have another process lock memory")(ended).into());
        }
        Ok(worker)
    }

    /// Lets it come to its end; an error if that is not a good one.
    fn end(mut self) -> Result<(), LockBenchError> {
        drop(self.0.stdin.take());
        let status = self.0.wait().map_err(system("wait for another process"))?;
        if status.success() {
            return Ok(());
        }
        let said = io::Error::other(status.to_string());
        Err(system("lock memory in another process")(said).into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended already is not there to be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Those who lock and unlock at random: processes for the shared rows that are pinned, and a thread for the
/// private one.
struct Crowd<'a> {
    workers: Vec<(String, Worker)>,
    worker: &'a dyn Fn(&str, Task, u64) -> Command,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<(), LockBenchError>>,
}

impl<'a> Crowd<'a> {
    fn gather(
        subjects: &[Subject],
        processes: u32,
        worker: &'a dyn Fn(&str, Task, u64) -> Command,
    ) -> Result<Self, LockBenchError> {
        let pinned = || subjects.iter().filter(|s| s.hold.is_pinned());
        let mut workers = Vec::new();
        for subject in pinned().filter(|s| s.memory != Memory::Private) {
            for seed in 1..=processes {
                let command = worker(&subject.address, Task::Wander, seed.into());
                workers.push((subject.address.clone(), Worker::start(command)?));
            }
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let private = pinned().find(|s| s.memory == Memory::Private);
        let bytes = private.map_or(0..0, |s| s.mapped.bytes());
        let thread = thread::spawn(move || wander(&bytes, 7, &over));
        Ok(Self {
            workers,
            worker,
            is_over,
            thread,
        })
    }

    /// Kills every other one, in the middle of whatever it does, and starts a new one.
    fn replace_some(&mut self) -> Result<(), LockBenchError> {
        for (seed, (address, worker)) in (100u64..).zip(&mut self.workers).step_by(2) {
            worker.0.kill().map_err(system("kill another process"))?;
            *worker = Worker::start((self.worker)(address, Task::Wander, seed))?;
        }
        Ok(())
    }

    fn end(self) -> Result<(), LockBenchError> {
        self.is_over.store(true, Ordering::Relaxed);
        for (_, worker) in self.workers {
            worker.end()?;
        }
        self.thread.join().expect("it locks and unlocks")
    }
}

/// How many pages of each subject have moved.
struct Changes(Vec<usize>);

impl Changes {
    fn of(
        subjects: &[Subject],
        mut happen: impl FnMut() -> Result<(), LockBenchError>,
    ) -> Result<Self, LockBenchError> {
        let before = frames(subjects)?;
        happen()?;
        Ok(Self::between(&before, &frames(subjects)?))
    }

    fn between(before: &[Vec<u64>], after: &[Vec<u64>]) -> Self {
        let moved =
            |(b, a): (&Vec<u64>, &Vec<u64>)| b.iter().zip(a).filter(|(b, a)| b != a).count();
        Self(before.iter().zip(after).map(moved).collect())
    }
}

fn frames(subjects: &[Subject]) -> Result<Vec<Vec<u64>>, LockBenchError> {
    let frames = |subject: &Subject| bare::frames(&subject.mapped.bytes());
    subjects
        .iter()
        .map(|subject| match frames(subject) {
            Err(LockError::FramesHidden) => Err(LockBenchError::Root),
            frames => Ok(frames?),
        })
        .collect()
}

/// Fills memory, frees every other page of it, and has the kernel make large blocks of the rest.
fn compact(hog_bytes: usize) -> Result<(), LockBenchError> {
    let half = usize::try_from(available_bytes() / 2).unwrap_or(usize::MAX);
    let mut hog = Private::map(hog_bytes.min(half)).map_err(system("map memory"))?;
    hog.write(1);
    hog.perforate();
    for _ in 0..3 {
        fs::write("/proc/sys/vm/compact_memory", "1").map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => LockBenchError::Root,
            _ => system("compact memory")(source).into(),
        })?;
    }
    Ok(())
}

/// Has the kernel reclaim everything, again and again.
fn push_out(subjects: &[Subject], time: Duration) -> Result<(), LockBenchError> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        for subject in subjects {
            // Locked memory is refused, and that is well.
            bare::page_out(&subject.mapped.bytes()).ok();
        }
        frames(subjects)?;
    }
    // The last time nobody touches it, so that what is gone comes back elsewhere.
    for subject in subjects {
        bare::page_out(&subject.mapped.bytes()).ok();
    }
    Ok(())
}

/// A swap file that is in use as long as this lives.
struct Swap;

impl Swap {
    fn on(bytes: usize) -> Result<Self, LockBenchError> {
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(SWAP_FILE).map_err(system("make a swap file"))?;
        let swap = Self;
        let zeros = vec![0; 1 << 20];
        for _ in 0..bytes / zeros.len() {
            file.write_all(&zeros).map_err(system("fill a swap file"))?;
        }
        drop(file);
        for program in ["mkswap", "swapon"] {
            let output = Command::new(program).arg(SWAP_FILE).output();
            let output = output.map_err(system("run mkswap and swapon (util-linux)"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(system("swap to a file")(io::Error::other(said)).into());
            }
        }
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        remove_swap();
    }
}

fn remove_swap() {
    if Path::new(SWAP_FILE).exists() {
        // It fails when the file was not yet swapped to; then it only has to go.
        Command::new("swapoff").arg(SWAP_FILE).output().ok();
        fs::remove_file(SWAP_FILE).ok();
    }
}

/// What the rows say.
#[derive(Clone, Debug)]
pub struct Report {
    rows: Vec<Row>,
    /// What was to be so and is not; empty if all is.
    pub failures: Vec<String>,
}

impl Report {
    /// Judges the record: pinned rows have not moved, and unlocked rows have.
    #[must_use]
    pub fn of(record: &ReliabilityRecord) -> Self {
        let mut failures = Vec::new();
        for row in &record.runs {
            let moved =
                row.moved_by_compaction + row.moved_by_swapping + row.moved_by_fork.unwrap_or(0);
            let (memory, hold) = (row.memory.name(), row.hold.name());
            let (pages, processes) = (row.pages, row.processes);
            if row.hold.is_pinned() && moved > 0 {
                failures.push(format!(
                    "{memory}, {hold}, {processes} processes: {moved} of {pages} pages moved, none may"
                ));
            }
            if row.hold == Hold::Unlocked && moved == 0 {
                failures.push(format!(
                    "{memory}, {hold}: nothing moved, so the run proves nothing (VOID)"
                ));
            }
        }
        if record.runs.iter().all(|row| row.moved_by_compaction == 0) {
            failures.push(
                "compaction moved nothing, so it proves nothing (VOID); run it again with less memory free"
                    .to_owned(),
            );
        }
        for memory in Memory::ALL {
            let is_there = |hold| {
                let mut rows = record.runs.iter();
                rows.any(|row| row.memory == memory && row.hold == hold)
            };
            if !is_there(Hold::Pinned) || !is_there(Hold::Unlocked) {
                failures.push(format!("{}: not measured (VOID)", memory.name()));
            }
        }
        Self {
            rows: record.runs.clone(),
            failures,
        }
    }

    /// Whether all was as it is to be.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<8} {:<18} {:>9} {:>7}   moved by: {:>10} {:>8} {:>14}",
            "memory", "held by", "processes", "pages", "compaction", "swapping", "fork and write"
        )?;
        for row in &self.rows {
            let fork = row
                .moved_by_fork
                .map_or_else(|| "-".to_owned(), |n| n.to_string());
            writeln!(
                f,
                "{:<8} {:<18} {:>9} {:>7}             {:>10} {:>8} {:>14}",
                row.memory.name(),
                row.hold.name(),
                row.processes,
                row.pages,
                row.moved_by_compaction,
                row.moved_by_swapping,
                fork
            )?;
        }
        writeln!(f)?;
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        if self.passed() {
            writeln!(f, "no pinned page has moved, and unlocked ones have: kept")?;
        }
        Ok(())
    }
}

/// How often memory is fragmented and compacted until anything has moved.
const COMPACTIONS_MAX: usize = 6;

const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pinned: usize, unlocked: usize) -> ReliabilityRecord {
        let mut record = Record::new(NAME, Environment::here("1", "c"), Settings::quick());
        for memory in Memory::ALL {
            for (hold, moved) in [(Hold::Pinned, pinned), (Hold::Unlocked, unlocked)] {
                record.runs.push(Row {
                    memory,
                    hold,
                    processes: 1,
                    pages: 9,
                    moved_by_compaction: moved,
                    moved_by_swapping: moved,
                    moved_by_fork: None,
                });
            }
        }
        record
    }

    #[test]
    fn a_pinned_page_that_moves_and_an_unlocked_row_that_does_not_are_failures() {
        assert!(Report::of(&record(0, 1)).passed());
        let moved = Report::of(&record(1, 1));
        assert!(moved.failures.len() == 4 && moved.to_string().contains("none may"));
        assert!(Report::of(&record(0, 0)).to_string().contains("VOID"));
        let mut still = record(0, 1);
        still
            .runs
            .iter_mut()
            .for_each(|row| row.moved_by_compaction = 0);
        assert_eq!(Report::of(&still).failures.len(), 1);
        let mut half = record(0, 1);
        half.runs.retain(|row| row.memory != Memory::Memfd);
        assert_eq!(Report::of(&half).failures, ["memfd: not measured (VOID)"]);
    }

    #[test]
    fn addresses_of_shared_memory_are_understood() {
        for memory in [Memory::Sysv, Memory::Posix, Memory::Memfd] {
            let (mapped, _file, address) = memory.make(3 * PAGE_BYTES).unwrap();
            let other = attach(&address).unwrap();
            assert_eq!(other.bytes().len(), mapped.bytes().len());
        }
        for wrong in ["", "sysv:x", "file:9", "file:x:/dev/null"] {
            assert!(attach(wrong).is_err(), "{wrong}");
        }
    }
}
