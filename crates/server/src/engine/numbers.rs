//! Numbers that control gives out and a worker gives back, without a lock that the worker takes.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Stands for no number.
const NONE: u32 = u32::MAX;

/// The numbers below a limit.
///
/// Those that are free are a list, and those that came back are another, on which the worker pushes
/// while control takes all of it at once: so a head that has changed and changed back does no harm.
/// There is one of these for each of a number of viewers that may come, and it has four bytes.
#[derive(Debug)]
pub(crate) struct Numbers {
    /// Of a number that is in a list, the next there.
    next: Box<[AtomicU32]>,
    /// The first that is free. The worker never takes this lock: it gives numbers back through
    /// `returned`, and control moves them over.
    free: Mutex<u32>,
    returned: AtomicU32,
    taken: AtomicUsize,
}

impl Numbers {
    pub(super) fn below(limit: u32) -> Self {
        let next = (1..=limit).map(|next| if next < limit { next } else { NONE });
        Self {
            next: next.map(AtomicU32::new).collect(),
            free: Mutex::new(if limit > 0 { 0 } else { NONE }),
            returned: AtomicU32::new(NONE),
            taken: AtomicUsize::new(0),
        }
    }

    fn next(&self, number: u32) -> &AtomicU32 {
        &self.next[number as usize]
    }

    /// How many are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// One that is free, if any is; those that were taken before first.
    pub(super) fn take(&self) -> Option<u32> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut returned = self.returned.swap(NONE, Ordering::Acquire);
        while returned != NONE {
            let next = self.next(returned);
            let after = next.swap(*free, Ordering::Relaxed);
            *free = std::mem::replace(&mut returned, after);
        }
        let number = *free;
        if number == NONE {
            return None;
        }
        *free = self.next(number).load(Ordering::Relaxed);
        self.taken.fetch_add(1, Ordering::Relaxed);
        Some(number)
    }

    /// For control: the worker never saw it.
    pub(super) fn put_back(&self, number: u32) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        self.next(number).store(*free, Ordering::Relaxed);
        *free = number;
    }

    /// For the worker: what had it is gone.
    pub(crate) fn give_back(&self, number: u32) {
        let mut first = self.returned.load(Ordering::Relaxed);
        loop {
            self.next(number).store(first, Ordering::Relaxed);
            // Release: whoever takes the list sees what comes after this number in it.
            let pushed = self.returned.compare_exchange_weak(
                first,
                number,
                Ordering::Release,
                Ordering::Relaxed,
            );
            match pushed {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
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
