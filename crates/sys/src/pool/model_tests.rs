//! Claims and pins in every order that threads and memory may have (loom): bytes that are read are
//! those of the key, and nobody writes what somebody reads.

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;

use chunk::Chunk;
use sync::{AtomicUsize, Ordering};

#[allow(
    clippy::duplicate_mod,
    dead_code,
    unreachable_pub,
    reason = "the same with atomics of the model, which tries some of it"
)]
#[path = "chunk.rs"]
mod chunk;

mod sync {
    pub(super) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
}

/// Tries all orders in which a thread is held up so often, which is what faults take: with no bound
/// three threads have too many.
fn model(run: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// A chunk whose bytes are its key.
struct Modelled {
    chunk: Chunk,
    bytes: UnsafeCell<u64>,
    in_use: AtomicUsize,
}

impl Modelled {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            chunk: Chunk::new(),
            bytes: UnsafeCell::new(0),
            in_use: AtomicUsize::new(0),
        })
    }

    /// One that holds `key`, and was not pinned lately.
    fn holding(key: u64) -> Arc<Self> {
        let modelled = Self::new();
        assert!(modelled.write(key));
        // Its second chance.
        assert!(!modelled.chunk.claim(&modelled.in_use));
        modelled
    }

    /// Writes it anew, if it can be claimed.
    fn write(&self, key: u64) -> bool {
        let is_claimed = self.chunk.claim(&self.in_use);
        if is_claimed {
            // SAFETY: it is claimed, and nobody else touches the bytes: the model looks for who
            // does.
            self.bytes.with_mut(|bytes| unsafe { *bytes = key });
            self.chunk.publish(key);
            self.chunk.unpin(&self.in_use);
        }
        is_claimed
    }

    /// Reads it, if it holds `key`.
    fn read(&self, key: u64) -> bool {
        let is_pinned = self.chunk.pin(key, &self.in_use);
        if is_pinned {
            self.is(key);
            self.chunk.unpin(&self.in_use);
        }
        is_pinned
    }

    /// For who has a pin.
    fn is(&self, key: u64) {
        // SAFETY: it is pinned, and nobody writes the bytes: the model looks for who does.
        let read = self.bytes.with(|bytes| unsafe { *bytes });
        assert_eq!(read, key, "the bytes of another key");
    }

    fn is_at_rest(&self) {
        assert_eq!(self.in_use.load(Ordering::Relaxed), 0, "chunks in use");
    }
}

#[test]
fn who_reads_by_a_key_reads_the_bytes_of_that() {
    model(|| {
        let chunk = Modelled::holding(7);
        let (writer, reader) = (Arc::clone(&chunk), Arc::clone(&chunk));
        let writer = thread::spawn(move || writer.write(8));
        let reader = thread::spawn(move || reader.read(7));
        let reads_new = chunk.read(8);
        let (is_written, reads_old) = (writer.join().unwrap(), reader.join().unwrap());
        assert!(is_written || !reads_new, "nobody has written that");
        assert!(reads_old || reads_new || is_written, "somebody gets on");
        chunk.is_at_rest();
        assert!(chunk.read(if is_written { 8 } else { 7 }));
    });
}

#[test]
fn one_of_two_who_claim_it_writes() {
    model(|| {
        let chunk = Modelled::new();
        let other = Arc::clone(&chunk);
        let other = thread::spawn(move || other.write(1));
        let is_ours = chunk.write(2);
        let is_others = other.join().unwrap();
        assert!(is_ours || is_others);
        chunk.is_at_rest();
    });
}

#[test]
fn what_was_given_up_is_found_by_no_key() {
    model(|| {
        let chunk = Modelled::holding(7);
        let other = Arc::clone(&chunk);
        let other = thread::spawn(move || {
            let is_claimed = other.chunk.claim(&other.in_use);
            if is_claimed {
                // SAFETY: it is claimed, as above.
                other.bytes.with_mut(|bytes| unsafe { *bytes = 99 });
                other.chunk.give_up(&other.in_use);
            }
            is_claimed
        });
        chunk.read(7);
        if other.join().unwrap() {
            assert!(!chunk.read(7), "half of it is something else");
        }
        chunk.is_at_rest();
    });
}

#[test]
fn a_second_pin_keeps_it_when_the_first_is_gone() {
    model(|| {
        let chunk = Modelled::holding(7);
        assert!(chunk.chunk.pin(7, &chunk.in_use));
        chunk.chunk.pin_again();
        let (sender, writer) = (Arc::clone(&chunk), Arc::clone(&chunk));
        // As a send in flight, which the kernel ends.
        let sender = thread::spawn(move || {
            sender.is(7);
            sender.chunk.unpin(&sender.in_use);
        });
        let writer = thread::spawn(move || writer.write(8) || writer.write(8));
        chunk.is(7);
        chunk.chunk.unpin(&chunk.in_use);
        sender.join().unwrap();
        writer.join().unwrap();
        chunk.is_at_rest();
    });
}
