//! What adaptive transfers share: the schedule that is arranged for them, and what it is arranged
//! from.

use std::cell::Cell;
use std::cell::RefCell;

use onrush_sys::clock::{monotonic_ns, thread_cpu_ns};
use onrush_wire::pace::adaptive::{AHEAD_BYTES, Adaptive, Arranged, Seen};
use onrush_wire::pace::schedule::Rate;

use super::{Limit, STEP_BYTES_MAX};

/// How often it is arranged anew.
const OBSERVED_NS: u64 = 20_000_000;

/// Observations longer than this were of a thread that had nothing to send, and tell nothing.
const OBSERVED_NS_MAX: u64 = 500_000_000;

/// Before anything was seen: as if there were no schedule.
const UNARRANGED: Arranged = Arranged {
    rate: Rate {
        bytes_a_second: 1 << 40,
        burst_bytes: 1 << 30,
    },
    set_bytes: STEP_BYTES_MAX,
    ahead_bytes: AHEAD_BYTES.0,
};

#[derive(Debug)]
pub(super) struct Arranger {
    adaptive: RefCell<Adaptive>,
    arranged: Cell<Arranged>,
    limit: Limit,
    /// When it was arranged last, the thread's processor time then, and the bytes sent until then.
    last: Cell<(u64, u64, u64)>,
    disk_ns: Cell<u64>,
}

impl Arranger {
    pub(super) fn new(left_to_others: f64) -> Self {
        Self {
            adaptive: RefCell::new(Adaptive::new(left_to_others)),
            arranged: Cell::new(UNARRANGED),
            limit: Limit::new(UNARRANGED.rate),
            last: Cell::default(),
            disk_ns: Cell::default(),
        }
    }

    /// The rate that all adaptive transfers keep together.
    pub(super) fn limit(&self) -> &Limit {
        &self.limit
    }

    pub(super) fn arranged(&self) -> Arranged {
        self.arranged.get()
    }

    /// A disk was waited for.
    pub(super) fn waited(&self, disk_ns: u64) {
        self.disk_ns.set(self.disk_ns.get().max(disk_ns));
    }

    /// A step was made; so many bytes were sent by the thread in all, and so many transfers run.
    pub(super) fn stepped(&self, sent_bytes: u64, transfers: usize) {
        let now_ns = monotonic_ns();
        let (last_ns, last_cpu_ns, last_bytes) = self.last.get();
        if now_ns - last_ns < OBSERVED_NS {
            return;
        }
        let cpu_ns = thread_cpu_ns();
        self.last.set((now_ns, cpu_ns, sent_bytes));
        let disk_ns = self.disk_ns.take();
        if now_ns - last_ns > OBSERVED_NS_MAX {
            return;
        }
        let arranged = self.adaptive.borrow_mut().observe(Seen {
            cpu_ns: cpu_ns - last_cpu_ns,
            sent_bytes: sent_bytes - last_bytes,
            transfers: transfers as u64,
            disk_ns,
        });
        if let Some(arranged) = arranged {
            self.arranged.set(arranged);
            self.limit
                .with(|bucket| bucket.change(now_ns, arranged.rate));
        }
    }
}
