//! Whether anybody else waits for the processor that transfers run on, as the kernel counts it.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use onrush_sys::thread::RunDelay;
use onrush_wire::pace::yielding::{RunTimes, Yielding};
use tracing::warn;

use super::Stats;
use crate::engine::shared::bump;

/// The kernel is asked no more often: a thousandth of the time, if asking takes 2 us.
const LOOKED_NS: u64 = 2_000_000;

/// The one thread's, on which all transfers run.
#[derive(Debug)]
pub(super) struct Neighbour {
    /// Opened when a schedule first asks; `None` if the kernel does not count.
    delay: OnceCell<Option<RunDelay>>,
    yielding: RefCell<Yielding>,
    looked_ns: Cell<u64>,
    delayed_ns: Cell<u64>,
    stats: Arc<Stats>,
}

impl Neighbour {
    pub(super) fn new(stats: Arc<Stats>) -> Self {
        Self {
            delay: OnceCell::new(),
            yielding: RefCell::default(),
            looked_ns: Cell::default(),
            delayed_ns: Cell::default(),
            stats,
        }
    }

    /// One whose times are read there.
    #[cfg(test)]
    pub(super) fn seen_by(delay: Option<RunDelay>, stats: Arc<Stats>) -> Self {
        Self {
            delay: OnceCell::from(delay),
            ..Self::new(stats)
        }
    }

    /// Whether somebody waits. Where that cannot be known, it is taken for so: others are promised
    /// the pauses.
    pub(super) fn is_waiting(&self, now_ns: u64) -> bool {
        let Some(delay) = self.delay.get_or_init(open) else {
            return true;
        };
        let mut yielding = self.yielding.borrow_mut();
        if now_ns.saturating_sub(self.looked_ns.get()) >= LOOKED_NS
            && yielding.wants_to_look(now_ns)
        {
            self.looked_ns.set(now_ns);
            // It can be read for as long as the thread lives, which is the one that reads.
            if let Ok((ran_ns, delayed_ns)) = delay.read() {
                let before_ns = self.delayed_ns.replace(delayed_ns);
                bump(&self.stats.delayed_ns, delayed_ns.saturating_sub(before_ns));
                yielding.observe(now_ns, RunTimes { ran_ns, delayed_ns });
            }
        }
        yielding.is_waited_for()
    }
}

fn open() -> Option<RunDelay> {
    let delay = RunDelay::of_this_thread();
    let failed = |error| {
        warn!(
            "downloads: /proc/thread-self/schedstat: {error}: whether others wait for the \
             processor cannot be known, so every pause of the schedule is made; the schedule \
             fair makes none"
        );
    };
    delay.map_err(failed).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::Ordering;

    use super::*;

    const MS: u64 = 1_000_000;

    fn told(file: &File, ran_ms: u64, delayed_ms: u64) {
        let text = format!("{} {} 1\n", ran_ms * MS, delayed_ms * MS);
        file.set_len(0).unwrap();
        file.write_all_at(text.as_bytes(), 0).unwrap();
    }

    #[test]
    fn it_is_asked_now_and_then_and_what_it_says_is_counted() {
        let (file, stats) = (tempfile::tempfile().unwrap(), Arc::<Stats>::default());
        told(&file, 5, 3);
        let delay = RunDelay::of(file.try_clone().unwrap()).unwrap();
        let neighbour = Neighbour::seen_by(Some(delay), Arc::clone(&stats));
        let delayed_ms = || stats.delayed_ns.load(Ordering::Relaxed) / MS;
        assert!(!neighbour.is_waiting(100 * MS));
        assert_eq!(delayed_ms(), 3);
        told(&file, 7, 9);
        assert!(!neighbour.is_waiting(102 * MS - 1), "too soon to ask");
        assert!(neighbour.is_waiting(102 * MS));
        assert_eq!(delayed_ms(), 9);
        // Nothing is asked while it yields; then it is seen anew.
        told(&file, 90, 30);
        assert!(neighbour.is_waiting(165 * MS));
        assert_eq!(delayed_ms(), 9);
        assert!(!neighbour.is_waiting(166 * MS));
        assert_eq!(delayed_ms(), 30);
    }

    #[test]
    fn where_nobody_counts_every_pause_is_made() {
        let neighbour = Neighbour::seen_by(None, Arc::default());
        assert!(neighbour.is_waiting(0));
        assert!(neighbour.is_waiting(u64::MAX));
    }
}
