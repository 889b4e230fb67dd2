//! What went wrong, as a number and as text; and the wall that no panic passes.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use onrush_group::{GroupError, KernelError};
use onrush_lock::{CacheError, LockError, SegmentError};

/// An argument is NULL where it must not be, or no value that there is.
pub const ONRUSH_ERROR_ARGUMENT: i32 = -1;
/// A pointer is not aligned to its type, or a range of memory is not whole pages.
pub const ONRUSH_ERROR_ALIGNMENT: i32 = -2;
/// A range is empty, or longer than can be, or its end lies beyond the address space.
pub const ONRUSH_ERROR_RANGE: i32 = -3;
/// There is nothing of that number and kind: it was closed, or opened by the parent of a fork.
pub const ONRUSH_ERROR_HANDLE: i32 = -4;
/// The memory is not mapped, or not as is needed.
pub const ONRUSH_ERROR_MEMORY: i32 = -5;
/// A limit of this library, of the account or of the kernel is reached.
pub const ONRUSH_ERROR_LIMIT: i32 = -6;
/// This account may not do that.
pub const ONRUSH_ERROR_PERMISSION: i32 = -7;
/// This kernel, or the way that was asked for, cannot do that.
pub const ONRUSH_ERROR_UNSUPPORTED: i32 = -8;
/// It is in use, or does not answer in time: give back what is out, or ask again.
pub const ONRUSH_ERROR_BUSY: i32 = -9;
/// The text does not fit; its length has been written.
pub const ONRUSH_ERROR_ROOM: i32 = -10;
/// The configuration has mistakes; the text tells all, a line each.
pub const ONRUSH_ERROR_CONFIG: i32 = -11;
/// The system refused; the text says what and why.
pub const ONRUSH_ERROR_SYSTEM: i32 = -12;
/// A mistake of this library's. The object is unusable from now on: close it.
pub const ONRUSH_ERROR_PANIC: i32 = -13;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// What the last function of this library that failed in this thread had to say, with what to do
/// next; empty if none has. It stays until the next one fails in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_error_text() -> *const c_char {
    // A thread that ends has no text any more.
    LAST.try_with(|last| last.borrow().as_ptr())
        .unwrap_or(c"".as_ptr())
}

/// A code and its text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: i32,
    text: String,
}

impl Failure {
    pub(crate) fn new(code: i32, text: impl Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    pub(crate) fn argument(text: impl Display) -> Self {
        Self::new(ONRUSH_ERROR_ARGUMENT, text)
    }

    pub(crate) fn panicked() -> Self {
        Self::new(
            ONRUSH_ERROR_PANIC,
            "an earlier call for it met a mistake of this library's; close it",
        )
    }
}

/// Does what a function is for, and answers with 0 or a code, whose text is kept.
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    // What a panic leaves half done is behind a lock, which is poisoned then and refuses.
    let result = catch_unwind(AssertUnwindSafe(body));
    let failure = match result {
        Ok(Ok(())) => return 0,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(ONRUSH_ERROR_PANIC, panic_text(&*panic)),
    };
    let text = failure.text.replace('\0', " ");
    let text = CString::new(text).expect("it has no NUL any more");
    // A thread that ends keeps no text.
    let kept = LAST.try_with(|last| drop(last.replace(text)));
    kept.unwrap_or_default();
    failure.code
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!(
        "a mistake of this library's, please report it: {}",
        text.unwrap_or("no more is known")
    )
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let code = match &error {
            LockError::Empty { .. } | LockError::Overflow { .. } => ONRUSH_ERROR_RANGE,
            LockError::Alignment { .. } => ONRUSH_ERROR_ALIGNMENT,
            LockError::Unmapped { .. }
            | LockError::PartlyMapped { .. }
            | LockError::NoAccess { .. }
            | LockError::ReadOnly { .. }
            | LockError::File { .. }
            | LockError::Absent { .. } => ONRUSH_ERROR_MEMORY,
            LockError::Limit { .. }
            | LockError::Mappings { .. }
            | LockError::Areas
            | LockError::Tables => ONRUSH_ERROR_LIMIT,
            LockError::NotPermitted | LockError::FramesHidden => ONRUSH_ERROR_PERMISSION,
            LockError::Ring { .. } => ONRUSH_ERROR_UNSUPPORTED,
            LockError::Released => ONRUSH_ERROR_HANDLE,
            _ => ONRUSH_ERROR_SYSTEM,
        };
        // C has another name for what the text advises.
        let text = error
            .to_string()
            .replace("lock::pages_around", "onrush_pages_around");
        Self::new(code, text)
    }
}

impl From<SegmentError> for Failure {
    fn from(error: SegmentError) -> Self {
        let code = match &error {
            SegmentError::Size { .. } => ONRUSH_ERROR_RANGE,
            SegmentError::Seal { .. } => ONRUSH_ERROR_UNSUPPORTED,
            SegmentError::Sealed => ONRUSH_ERROR_LIMIT,
            _ => ONRUSH_ERROR_SYSTEM,
        };
        Self::new(code, error)
    }
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        let code = match error {
            CacheError::Lock(error) => return error.into(),
            CacheError::Forked => ONRUSH_ERROR_HANDLE,
            CacheError::Budget { .. } => ONRUSH_ERROR_ARGUMENT,
            CacheError::Full => ONRUSH_ERROR_LIMIT,
            CacheError::TooLong { .. } => ONRUSH_ERROR_RANGE,
            CacheError::Table { .. } => ONRUSH_ERROR_UNSUPPORTED,
            _ => ONRUSH_ERROR_SYSTEM,
        };
        Self::new(code, error)
    }
}

impl From<GroupError> for Failure {
    fn from(error: GroupError) -> Self {
        if let GroupError::Cache(error) = error {
            return error.into();
        }
        let code = match &error {
            GroupError::Kernel(KernelError::Load(_) | KernelError::Attach { .. })
            | GroupError::UdpSegment(_)
            | GroupError::Uring(_) => ONRUSH_ERROR_UNSUPPORTED,
            GroupError::MembersMax { .. } | GroupError::OptionMembersMax { .. } => {
                ONRUSH_ERROR_LIMIT
            }
            GroupError::Family { .. } => ONRUSH_ERROR_ARGUMENT,
            GroupError::Train { .. } | GroupError::Outside { .. } => ONRUSH_ERROR_RANGE,
            _ => ONRUSH_ERROR_SYSTEM,
        };
        Self::new(code, error)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last() -> String {
        // SAFETY: the text is the library's, and nothing fails in this thread meanwhile.
        let text = unsafe { CStr::from_ptr(onrush_error_text()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_an_error_like_others() {
        assert_eq!(last(), "");
        assert_eq!(guarded(|| panic!("by {}", "purpose")), ONRUSH_ERROR_PANIC);
        assert!(last().ends_with("by purpose"), "{}", last());
        assert_eq!(guarded(|| Ok(())), 0);
        assert!(last().ends_with("by purpose"), "what failed last stays");
        let failed = guarded(|| Err(Failure::argument("a\0b")));
        assert_eq!((failed, &*last()), (ONRUSH_ERROR_ARGUMENT, "a b"));
    }

    #[test]
    fn a_limit_of_the_library_is_no_lack_of_the_kernel() {
        let error = GroupError::Cache(CacheError::Lock(LockError::Tables));
        assert_eq!(Failure::from(error).code, ONRUSH_ERROR_LIMIT);
    }

    #[test]
    fn a_thread_has_texts_of_its_own() {
        assert_eq!(guarded(|| Err(Failure::argument("here"))), -1);
        let there = std::thread::spawn(last).join().unwrap();
        assert_eq!((&*there, &*last()), ("", "here"));
    }
}
