//! How much memory is in use, to see that an input does not decide it.
//!
//! The allocator of every program that has the targets in it counts the bytes that each thread
//! holds, and the most that it held at a time.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that ends gives memory back after its counters are gone.
    let _gone = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _gone = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

/// A layout's bytes, which are below `isize::MAX` by its own rules.
fn bytes(layout: Layout) -> isize {
    layout.size().cast_signed()
}

// SAFETY: every call goes to the system allocator unchanged; counting does not allocate, because
// the thread's counters need neither memory nor a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout));
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(bytes(layout));
        // SAFETY: the caller's promises are the system allocator's conditions.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-bytes(layout));
        // SAFETY: as above; the block came from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes_new: usize) -> *mut u8 {
        count(bytes_new.cast_signed() - bytes(layout));
        // SAFETY: as above; the block came from the system allocator.
        unsafe { System.realloc(pointer, layout, bytes_new) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Does `work` and asserts that it never holds more than `bytes_max` at a time.
///
/// # Panics
///
/// If it does.
pub fn bounded<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    let before = HELD.get();
    MOST.set(before);
    let done = work();
    let most = MOST.get() - before;
    assert!(
        most <= bytes_max.cast_signed(),
        "{most} bytes are held at a time, and {bytes_max} are the bound"
    );
    done
}
