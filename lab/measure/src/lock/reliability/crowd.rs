//! Many other processes and a thread, which lock parts of what is watched at random.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Memory;
use super::subject::Subject;
use super::worker::{Task, Worker, wander};
use crate::error::ExperimentError;

/// Those who lock and unlock at random: processes for the shared rows that are pinned, and a thread
/// for the private one.
pub(super) struct Crowd<'a> {
    workers: Vec<(String, Worker)>,
    worker: &'a dyn Fn(&str, Task, u64) -> Command,
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<(), ExperimentError>>,
}

impl<'a> Crowd<'a> {
    pub(super) fn gather(
        subjects: &[Subject],
        processes: u32,
        worker: &'a dyn Fn(&str, Task, u64) -> Command,
    ) -> Result<Self, ExperimentError> {
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
    pub(super) fn replace_some(&mut self) -> Result<(), ExperimentError> {
        for (seed, (address, worker)) in (100u64..).zip(&mut self.workers).step_by(2) {
            worker.kill()?;
            *worker = Worker::start((self.worker)(address, Task::Wander, seed))?;
        }
        Ok(())
    }

    pub(super) fn end(self) -> Result<(), ExperimentError> {
        self.is_over.store(true, Ordering::Relaxed);
        for (_, worker) in self.workers {
            worker.end()?;
        }
        self.thread.join().expect("it locks and unlocks")
    }
}
