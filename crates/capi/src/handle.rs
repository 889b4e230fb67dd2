//! Numbers for what programs open.
//!
//! A number has the object's kind, its place in a table, and how often the place was given out
//! before. So a number that was closed is never taken for what has the place now, nor one kind for
//! another. The table is the process's: a child of `fork` begins with an empty one, because what it
//! copied holds nothing there, and a lock that was held while it was forked is held for ever.

use std::any::Any;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onrush_lock::Manager;

use crate::error::{Failure, ONRUSH_ERROR_HANDLE, ONRUSH_ERROR_LIMIT};

/// Objects that are open at once. There can be so many locks, and as much again of all else.
pub(crate) const HANDLES_MAX: usize = 1 << 19;

/// A kind of object, by what it is made of.
pub(crate) trait Kind: Any + Send {
    /// Its name, for errors.
    const NAME: &'static str;
    /// Its number in handles, 1 to 15, which no other kind has.
    const NUMBER: u64;
}

/// An object, until it is closed.
type Shared<T> = Mutex<Option<T>>;

/// The same, of any kind, and its kind's number.
#[derive(Clone)]
struct Object {
    kind: u64,
    shared: Arc<dyn Any + Send + Sync>,
}

impl Object {
    fn new<T: Kind>(value: Option<T>) -> Self {
        Self {
            kind: T::NUMBER,
            shared: Arc::new(Mutex::new(value)),
        }
    }
}

/// Gives `value` a number.
pub(crate) fn open<T: Kind>(value: T) -> Result<u64, Failure> {
    let object = Object::new(Some(value));
    // What is refused is dropped here, not under the table's lock.
    let number = table().insert(object.clone());
    drop(object);
    number
}

/// What has the number.
fn find<T: Kind>(handle: u64) -> Result<Arc<Shared<T>>, Failure> {
    let object = table().find(handle);
    let shared = object.and_then(|it| it.shared.downcast().ok());
    shared.ok_or_else(|| unknown::<T>(handle))
}

/// Does something with what has the number.
pub(crate) fn with<T: Kind, R>(
    handle: u64,
    act: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let shared = find::<T>(handle)?;
    let mut value = shared.lock().map_err(|_| Failure::panicked())?;
    // It was closed while this waited.
    act(value.as_mut().ok_or_else(|| unknown::<T>(handle))?)
}

/// Takes back what has the number, when calls for it that run have ended; unless `check` objects.
pub(crate) fn close<T: Kind>(
    handle: u64,
    check: impl FnOnce(&T) -> Result<(), Failure>,
) -> Result<T, Failure> {
    let shared = find::<T>(handle)?;
    // What a panic has left is closed all the same.
    let mut value = shared.lock().unwrap_or_else(PoisonError::into_inner);
    check(value.as_ref().ok_or_else(|| unknown::<T>(handle))?)?;
    let taken = value.take().ok_or_else(|| unknown::<T>(handle));
    drop(value);
    drop(table().remove(handle));
    taken
}

fn unknown<T: Kind>(handle: u64) -> Failure {
    let name = T::NAME;
    Failure::new(
        ONRUSH_ERROR_HANDLE,
        format_args!(
            "{handle:#x} is no {name} of this process: it was closed, was never opened, or was \
             opened before a fork; open one first"
        ),
    )
}

#[derive(Default)]
struct Slots {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    /// How often the place was given out.
    generation: u64,
    object: Option<Object>,
}

impl Slots {
    fn insert(&mut self, object: Object) -> Result<u64, Failure> {
        let place = match self.vacant.pop() {
            Some(place) => place,
            None if self.slots.len() >= HANDLES_MAX => {
                return Err(Failure::new(
                    ONRUSH_ERROR_LIMIT,
                    format_args!(
                        "{HANDLES_MAX} objects are open, the most there may be; close some"
                    ),
                ));
            }
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).expect("there are fewer")
            }
        };
        let slot = &mut self.slots[place as usize];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        let kind = object.kind;
        slot.object = Some(object);
        Ok(kind << KIND_SHIFT | slot.generation << PLACE_BITS | u64::from(place))
    }

    fn find(&self, handle: u64) -> Option<Object> {
        let slot = self.slots.get(place_of(handle))?;
        let is_it = slot.generation == handle >> PLACE_BITS & GENERATION_MASK;
        slot.object
            .as_ref()
            .filter(|object| is_it && object.kind == handle >> KIND_SHIFT)
            .cloned()
    }

    fn remove(&mut self, handle: u64) -> Option<Object> {
        self.find(handle)?;
        let place = place_of(handle);
        self.vacant
            .push(u32::try_from(place).expect("there are fewer"));
        self.slots[place].object.take()
    }
}

fn place_of(handle: u64) -> usize {
    usize::try_from(handle & PLACE_MASK).expect("20 bits")
}

const PLACE_BITS: u32 = 20;
const KIND_SHIFT: u32 = 60;
const PLACE_MASK: u64 = (1 << PLACE_BITS) - 1;
const GENERATION_MASK: u64 = (1 << (KIND_SHIFT - PLACE_BITS)) - 1;

const _: () = assert!(HANDLES_MAX <= 1 << PLACE_BITS);

/// The table of a process, and whose it is.
struct Table {
    process: *const Manager,
    slots: Mutex<Slots>,
}

fn table() -> MutexGuard<'static, Slots> {
    static TABLE: AtomicPtr<Table> = AtomicPtr::new(ptr::null_mut());
    // One load: a child of fork has another one.
    let process: *const Manager = Manager::of_process();
    let known = TABLE.load(Ordering::Acquire);
    // SAFETY: the word is null or points to a table that was leaked.
    let table = match unsafe { known.as_ref() } {
        Some(table) if ptr::eq(table.process, process) => table,
        _ => {
            let fresh = Box::into_raw(Box::new(Table {
                process,
                slots: Mutex::default(),
            }));
            match TABLE.compare_exchange(known, fresh, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it was just leaked.
                Ok(_) => unsafe { &*fresh },
                Err(theirs) => {
                    // SAFETY: nobody else has seen it; another thread was faster.
                    drop(unsafe { Box::from_raw(fresh) });
                    // SAFETY: what the word holds has been leaked.
                    unsafe { &*theirs }
                }
            }
        }
    };
    // No call of an object runs under this lock, so that nothing is half done.
    table.slots.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use onrush_lock::{Sealed, Segment, memfd};

    use super::*;

    fn segment() -> Segment {
        Segment::map(&memfd(4096).unwrap(), 4096).unwrap()
    }

    #[test]
    fn a_number_that_was_closed_never_names_anything_again() {
        let mut slots = Slots::default();
        let object = || Object::new(Some(segment()));
        let first = slots.insert(object()).unwrap();
        assert!(slots.find(first).is_some() && slots.remove(first).is_some());
        let second = slots.insert(object()).unwrap();
        assert_eq!(place_of(first), place_of(second));
        assert!(slots.find(first).is_none() && slots.remove(first).is_none());
        assert!(slots.find(second).is_some());
        for wrong in [0, u64::MAX, second ^ 1 << KIND_SHIFT, second + 1] {
            assert!(slots.find(wrong).is_none(), "{wrong:#x}");
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        let handle = open(segment()).unwrap();
        let wrong = with::<Sealed, _>(handle, |_| Ok(())).unwrap_err();
        assert_eq!(wrong.code, ONRUSH_ERROR_HANDLE);
        with::<Segment, _>(handle, |_| Ok(())).unwrap();
        drop(close::<Segment>(handle, |_| Ok(())).unwrap());
        let closed = close::<Segment>(handle, |_| Ok(())).map(drop).unwrap_err();
        assert_eq!(closed.code, ONRUSH_ERROR_HANDLE);
    }

    #[test]
    fn so_many_are_open_at_once_and_no_more() {
        let mut slots = Slots::default();
        let object = Object::new::<Segment>(None);
        let mut last = 0;
        for _ in 0..HANDLES_MAX {
            last = slots.insert(object.clone()).unwrap();
        }
        let refused = slots.insert(object.clone()).unwrap_err();
        assert_eq!(refused.code, ONRUSH_ERROR_LIMIT);
        assert!(slots.remove(last).is_some());
        slots.insert(object).unwrap();
    }

    #[test]
    fn what_a_panic_left_can_only_be_closed() {
        let handle = open(segment()).unwrap();
        let panics = || with::<Segment, ()>(handle, |_| panic!("on purpose"));
        let panicked = std::panic::catch_unwind(panics);
        assert!(panicked.is_err());
        let refused = with::<Segment, _>(handle, |_| Ok(())).unwrap_err();
        assert_eq!(refused.code, crate::error::ONRUSH_ERROR_PANIC);
        drop(close::<Segment>(handle, |_| Ok(())).unwrap());
    }
}
