//! Announcements in every order that threads and memory may have (loom): whoever comes back from a
//! call that changed a mapping finds that something has happened, and then what.

use loom::model;
use loom::sync::atomic::AtomicUsize;
use loom::sync::{Arc, Mutex};
use loom::thread;

use announcements::Announcements;
use sync::Ordering;

#[allow(clippy::duplicate_mod, reason = "the same with atomics of the model")]
#[path = "announcements.rs"]
mod announcements;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(super) use loom::thread::yield_now;
}

/// A watcher, and what the kernel does.
struct Modelled {
    announcements: Announcements,
    /// Events that were logged.
    log: Mutex<usize>,
    /// Events that the watcher has read: so many callers go on.
    read: AtomicUsize,
}

/// Where a cache is.
#[derive(Clone, Copy, Default)]
struct Position {
    settled: u64,
    events: usize,
}

impl Modelled {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            announcements: Announcements::new(),
            log: Mutex::new(0),
            read: AtomicUsize::new(0),
        })
    }

    /// The watcher hears of so many events, one after the other.
    fn listen(&self, events: usize) {
        for _ in 0..events {
            let made = self.announcements.announce(1);
            // The kernel lets the caller go on.
            self.read.fetch_add(1, Ordering::Release);
            let mut log = self.log.lock().unwrap();
            *log += 1;
            self.announcements.settle(made);
        }
    }

    fn position(&self) -> Position {
        let log = self.log.lock().unwrap();
        Position {
            settled: self.announcements.settled(),
            events: *log,
        }
    }

    /// A cache that is asked for memory after so many events have been read has heard of them.
    fn asks(&self, position: &mut Position) {
        let known = self.read.load(Ordering::Acquire);
        if !self.announcements.are_none_since(position.settled) {
            self.announcements.wait_until_settled();
            *position = self.position();
        }
        assert!(position.events >= known, "an event is not known");
    }
}

#[test]
fn who_goes_on_finds_that_something_has_happened_and_what() {
    model(|| {
        let watch = Modelled::new();
        let watcher = Arc::clone(&watch);
        let watcher = thread::spawn(move || watcher.listen(2));
        let mut position = Position::default();
        watch.asks(&mut position);
        watch.asks(&mut position);
        watcher.join().unwrap();
        watch.asks(&mut position);
        assert_eq!((position.events, position.settled), (2, 2));
    });
}

#[test]
fn a_cache_that_begins_meanwhile_misses_nothing() {
    model(|| {
        let watch = Modelled::new();
        let watcher = Arc::clone(&watch);
        let watcher = thread::spawn(move || watcher.listen(2));
        let mut position = watch.position();
        watch.asks(&mut position);
        watcher.join().unwrap();
        watch.asks(&mut position);
        assert_eq!((position.events, position.settled), (2, 2));
    });
}
