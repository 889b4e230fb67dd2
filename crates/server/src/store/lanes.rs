//! Whose turn it is to be built: requests by the disk that they read from.
//!
//! Readers put requests into queues, and wait for nobody there. A builder takes them out; what is
//! of a disk that has its builders already waits in a lane of that disk. So a disk that does not
//! answer holds its own builders and its own requests, and no others.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_queue::ArrayQueue;

use super::{BUILDERS, DEVICE_BUILDERS_MAX, REQUESTS_MAX, Request};

/// The lanes of all disks that are read from. No more than there are builders: a disk that has none
/// is given one before anything of it waits.
#[derive(Debug, Default)]
pub(super) struct Lanes(Mutex<Vec<Lane>>);

/// What is read from one disk.
#[derive(Debug)]
struct Lane {
    device: u64,
    /// Builders that read from it.
    builders: usize,
    /// What waits for one of them: of each of the queues.
    waiting: [VecDeque<Request>; 2],
}

impl Lanes {
    /// The next request for a builder, of the first of these queues that has one for it, and
    /// whether another builder could take one that waits. When the request is served, [`Self::end`]
    /// is to be called.
    pub(super) fn next(&self, queues: [&ArrayQueue<Request>; 2]) -> Option<(Request, bool)> {
        let lanes = &mut *self.lock();
        lanes.retain(|lane| lane.builders > 0 || !lane.is_empty());
        for (number, queue) in queues.into_iter().enumerate() {
            let request = waiting(lanes, number).or_else(|| arriving(lanes, number, queue));
            if let Some(request) = request {
                return Some((request, goes_on(lanes)));
            }
        }
        None
    }

    /// A builder has done with a request that was of this disk.
    pub(super) fn end(&self, device: u64) {
        let lanes = &mut *self.lock();
        let lane = lanes.iter_mut().find(|lane| lane.device == device);
        lane.expect("its request was taken from it").builders -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Lane>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn new(device: u64) -> Self {
        Self {
            device,
            builders: 0,
            waiting: Default::default(),
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.iter().all(VecDeque::is_empty)
    }

    /// Whether it may have one of so many builders that are free: all but the last of them, which
    /// is for a disk that has none.
    fn may_begin(&self, free: usize) -> bool {
        self.builders == 0 || (self.builders < DEVICE_BUILDERS_MAX && free > 1)
    }
}

/// Builders that read from no disk, the one that asks with them.
fn free(lanes: &[Lane]) -> usize {
    BUILDERS - lanes.iter().map(|lane| lane.builders).sum::<usize>()
}

/// Whether a builder that is free could begin one that waits.
fn goes_on(lanes: &[Lane]) -> bool {
    let free = free(lanes);
    let mut lanes = lanes.iter();
    lanes.any(|lane| !lane.is_empty() && lane.may_begin(free))
}

/// The first request that waits in a lane that may begin one: of those that have the fewest
/// builders.
fn waiting(lanes: &mut [Lane], number: usize) -> Option<Request> {
    let free = free(lanes);
    loop {
        let may_begin = |lane: &&mut Lane| {
            let is_waiting = !lane.waiting[number].is_empty();
            is_waiting && lane.may_begin(free)
        };
        let lanes = lanes.iter_mut().filter(may_begin);
        let lane = lanes.min_by_key(|lane| lane.builders)?;
        let request = lane.waiting[number].pop_front()?;
        if request.is_open() {
            lane.builders += 1;
            return Some(request);
        }
    }
}

/// The first request in a queue whose disk may have another builder; those before it wait in their
/// lanes, and where a lane is full they are to be made again.
fn arriving(lanes: &mut Vec<Lane>, number: usize, queue: &ArrayQueue<Request>) -> Option<Request> {
    let free = free(lanes);
    while let Some(request) = queue.pop() {
        if !request.is_open() {
            continue;
        }
        let device = request.source.device();
        let at = lanes.iter().position(|lane| lane.device == device);
        let at = at.unwrap_or_else(|| {
            lanes.push(Lane::new(device));
            lanes.len() - 1
        });
        let lane = &mut lanes[at];
        if lane.may_begin(free) {
            lane.builders += 1;
            return Some(request);
        }
        if lane.waiting[number].len() < REQUESTS_MAX {
            lane.waiting[number].push_back(request);
        } else {
            request.take_back();
        }
    }
    None
}
