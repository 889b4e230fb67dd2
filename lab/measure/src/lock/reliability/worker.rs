//! Another process, which attaches what is watched and locks it, or parts of it at random.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use onrush_lock::{Kind, LockedArea, Manager, Segment};

use super::PAGE_BYTES;
use crate::error::ExperimentError;
use crate::random::Random;
use crate::setup::system;

/// What another process is to do with shared memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Task {
    /// Pin all of it and hold it.
    Hold,
    /// Lock and unlock parts of it at random.
    Wander,
}

/// Another process.
pub(in crate::lock) struct Worker(Child);

impl Worker {
    pub(in crate::lock) fn start(mut command: Command) -> Result<Self, ExperimentError> {
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
    pub(in crate::lock) fn end(mut self) -> Result<(), ExperimentError> {
        drop(self.0.stdin.take());
        let status = self.0.wait().map_err(system("wait for another process"))?;
        if status.success() {
            return Ok(());
        }
        let said = io::Error::other(status.to_string());
        Err(system("lock memory in another process")(said).into())
    }
}

impl Worker {
    /// Ends it in the middle of whatever it does.
    pub(super) fn kill(&mut self) -> Result<(), ExperimentError> {
        Ok(self.0.kill().map_err(system("kill another process"))?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // One that has ended already is not there to be killed.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What a worker does, until its standard input ends: attaches `address` and does its task, after
/// the first lock calling `ready`.
///
/// # Errors
///
/// If it cannot attach, or a lock fails.
pub fn work(
    address: &str,
    task: Task,
    seed: u64,
    ready: impl FnOnce(),
) -> Result<(), ExperimentError> {
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
pub(super) fn wander(
    bytes: &Range<usize>,
    seed: u64,
    is_over: &AtomicBool,
) -> Result<(), ExperimentError> {
    let manager = Manager::of_process();
    let pages = bytes.len() / PAGE_BYTES;
    let mut random = Random::new(seed);
    let mut out: Vec<LockedArea> = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        if out.is_empty() || (out.len() < 16 && random.index(2) == 0) {
            let first = random.index(pages);
            let count = 1 + random.index((pages - first).min(256));
            let start = bytes.start + first * PAGE_BYTES;
            let kind = [Kind::Pinned, Kind::Resident, Kind::OnFault][random.index(3)];
            out.push(manager.lock(start..start + count * PAGE_BYTES, kind)?);
        } else {
            let at = random.index(out.len());
            drop(out.swap_remove(at));
        }
        // The machine has other things to do, too.
        thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

pub(super) fn attach(address: &str) -> Result<Segment, ExperimentError> {
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
