//! How control learns that a stream has stopped by itself, without a task that waits for each.
//!
//! A stream has an owner: a number of control's own, 0 for none. When it stops, its worker leaves
//! that number here and wakes control's thread. The number only hints; what has become of the
//! stream its own state says. So nothing is lost if there is no room for one: then control looks at
//! all it has.

use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;

/// Numbers of streams' owners that may wait for control.
pub const ENDS_WAITING_MAX: usize = 1024;

/// One for all engines of a server.
#[derive(Debug)]
pub(crate) struct StreamEndQueue {
    owners: ArrayQueue<u64>,
    /// There were more.
    has_overflowed: AtomicBool,
    pushed: Notify,
}

/// Whose streams have stopped.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    /// This one's.
    Of(u64),
    /// Too many to say whose.
    Many,
}

impl StreamEndQueue {
    /// A stream of `owner`'s has stopped. Takes the locks that waking a task takes, each held for a
    /// moment: of the list of waiters, and of the runtime.
    pub(super) fn push(&self, owner: u64) {
        if owner == 0 {
            return;
        }
        if self.owners.push(owner).is_err() {
            self.has_overflowed.store(true, Ordering::Release);
        }
        self.pushed.notify_one();
    }

    /// Waits for a stream that has stopped. For one caller at a time.
    pub(crate) async fn ended(&self) -> Ended {
        loop {
            if let Some(owner) = self.owners.pop() {
                return Ended::Of(owner);
            }
            if self.has_overflowed.swap(false, Ordering::Acquire) {
                return Ended::Many;
            }
            self.pushed.notified().await;
        }
    }
}

impl Default for StreamEndQueue {
    fn default() -> Self {
        Self {
            owners: ArrayQueue::new(ENDS_WAITING_MAX),
            has_overflowed: AtomicBool::new(false),
            pushed: Notify::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    #[test]
    fn every_owner_is_told_or_that_there_were_many() {
        let queue = StreamEndQueue::default();
        queue.push(0);
        let most = u64::try_from(ENDS_WAITING_MAX).unwrap();
        for owners in [most, most + 1] {
            (1..=owners).for_each(|owner| queue.push(owner));
            for owner in 1..=most {
                assert_eq!(block_on(queue.ended()), Ended::Of(owner));
            }
            assert_eq!(queue.has_overflowed.load(Ordering::Relaxed), owners > most);
            if owners > most {
                assert_eq!(block_on(queue.ended()), Ended::Many);
            }
        }
        assert!(queue.owners.is_empty());
    }
}
