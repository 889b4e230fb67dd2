//! Numbers that control gives out and a worker gives back, without a lock that the worker takes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_queue::ArrayQueue;

/// The numbers below a limit.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Those that are free. The worker never takes this lock: it gives numbers back through
    /// `returned`, and control moves them over.
    free: Mutex<Vec<u32>>,
    returned: ArrayQueue<u32>,
    taken: AtomicUsize,
}

impl Numbers {
    pub(super) fn below(limit: u32) -> Self {
        Self {
            free: Mutex::new((0..limit).rev().collect()),
            returned: ArrayQueue::new((limit as usize).max(1)),
            taken: AtomicUsize::new(0),
        }
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// One that is free, if any is.
    pub(super) fn take(&self) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(std::iter::from_fn(|| self.returned.pop()));
        let number = free.pop()?;
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// For control: the worker never saw it.
    pub(super) fn put_back(&self, number: u32) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(number);
    }

    /// For the worker: what had it is gone.
    pub(crate) fn give_back(&self, number: u32) {
        self.returned
            .push(number)
            .expect("there are as many places as numbers");
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_the_limit_says_and_each_comes_back() {
        let numbers = Numbers::below(2);
        let taken = [numbers.take(), numbers.take()];
        assert_eq!(taken, [Some(0), Some(1)]);
        assert_eq!((numbers.take(), numbers.taken()), (None, 2));
        numbers.give_back(1);
        assert_eq!(numbers.taken(), 1);
        assert_eq!(numbers.take(), Some(1));
        numbers.put_back(0);
        assert_eq!((numbers.take(), numbers.take()), (Some(0), None));
    }
}
