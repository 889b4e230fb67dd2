//! Numbers that control gives out and a worker gives back, without a lock that the worker takes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crossbeam_queue::SegQueue;

/// The numbers below a limit. Those that nobody has had yet take no memory, however many there are.
#[derive(Debug)]
pub(crate) struct Numbers {
    limit: u32,
    /// Control's own: the worker never takes this lock.
    free: Mutex<Free>,
    /// Those that the worker has given back.
    returned: SegQueue<u32>,
    taken: AtomicUsize,
}

#[derive(Debug, Default)]
struct Free {
    /// Those that control has put back.
    unused: Vec<u32>,
    /// The first that nobody has had yet.
    fresh: u32,
}

impl Numbers {
    pub(super) fn below(limit: u32) -> Self {
        Self {
            limit,
            free: Mutex::default(),
            returned: SegQueue::new(),
            taken: AtomicUsize::new(0),
        }
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// One that is free, if any is; those that were taken before first.
    pub(super) fn take(&self) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let again = free.unused.pop().or_else(|| self.returned.pop());
        let number = match again {
            Some(number) => number,
            None if free.fresh < self.limit => {
                free.fresh += 1;
                free.fresh - 1
            }
            None => return None,
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// For control: the worker never saw it.
    pub(super) fn put_back(&self, number: u32) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.unused.push(number);
    }

    /// For the worker: what had it is gone.
    pub(crate) fn give_back(&self, number: u32) {
        self.returned.push(number);
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

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
        assert_eq!(Numbers::below(0).take(), None);
    }

    #[test]
    fn what_is_given_back_meanwhile_is_neither_lost_nor_given_twice() {
        const LIMIT: u32 = 50;
        let (numbers, has_it) = (Numbers::below(LIMIT), [const { AtomicU32::new(0) }; 50]);
        let (send, receive) = std::sync::mpsc::channel::<u32>();
        std::thread::scope(|scope| {
            // The worker.
            scope.spawn(|| {
                for number in receive {
                    has_it[number as usize].fetch_sub(1, Ordering::Relaxed);
                    numbers.give_back(number);
                }
            });
            let (mut given, mut none) = (0, 0);
            while given < 20_000 {
                let Some(number) = numbers.take() else {
                    none += 1;
                    assert!(none < 10_000_000, "all are lost");
                    std::thread::yield_now();
                    continue;
                };
                let before = has_it[number as usize].fetch_add(1, Ordering::Relaxed);
                assert_eq!(before, 0, "{number} is taken twice");
                send.send(number).expect("it listens");
                given += 1;
            }
            drop(send);
        });
        let mut all: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..LIMIT));
    }
}
