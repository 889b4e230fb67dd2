//! What comes from C, looked at before it is used.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;

use crate::error::{Failure, ONRUSH_ERROR_ALIGNMENT, ONRUSH_ERROR_RANGE, ONRUSH_ERROR_ROOM};

/// Where an answer goes.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    ///
    /// The pointer is null, unaligned, or may be written until the call ends.
    pub(crate) unsafe fn new(pointer: *mut T, name: &str) -> Result<Self, Failure> {
        let found = NonNull::new(pointer).ok_or_else(|| null(name))?;
        match found.is_aligned() {
            true => Ok(Self(found)),
            false => Err(unaligned(pointer.addr(), name)),
        }
    }

    /// The same, where nothing may be wanted.
    ///
    /// # Safety
    ///
    /// As of [`Self::new`].
    pub(crate) unsafe fn if_wanted(pointer: *mut T, name: &str) -> Result<Option<Self>, Failure> {
        match pointer.is_null() {
            true => Ok(None),
            // SAFETY: the caller's promise.
            false => unsafe { Self::new(pointer, name) }.map(Some),
        }
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: `new` demands that it may be written, and has seen that it is aligned.
        unsafe { self.0.write(value) };
    }
}

/// What `pointer` points at.
///
/// # Safety
///
/// The pointer is null, unaligned, or may be read until the call ends.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T, name: &str) -> Result<T, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() {
        return Err(unaligned(pointer.addr(), name));
    }
    // SAFETY: the caller's promise; it is not null, and aligned.
    Ok(unsafe { *pointer })
}

/// Bytes to be read. None may be at NULL.
///
/// # Safety
///
/// The pointer is null, or may be read for so many bytes as long as the slice is used.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const c_void,
    length: usize,
    name: &str,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    range(pointer, length, name)?;
    // SAFETY: the caller's promise; `range` has seen that they are within the address space.
    Ok(unsafe { slice::from_raw_parts(pointer.cast(), length) })
}

/// A text of C's.
///
/// # Safety
///
/// The pointer is null, or a text that ends with NUL and stays as long as it is used.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    let told = |error| Failure::argument(format_args!("{name} is not UTF-8: {error}"));
    text.to_str().map_err(told)
}

/// The addresses of memory, which is not looked at.
pub(crate) fn range(
    pointer: *const c_void,
    length: usize,
    name: &str,
) -> Result<Range<usize>, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    let start = pointer.addr();
    let end = start.checked_add(length);
    let end = end.filter(|_| length > 0 && isize::try_from(length).is_ok());
    let end = end.ok_or_else(|| {
        Failure::new(
            ONRUSH_ERROR_RANGE,
            format_args!(
                "{name}: {length} bytes from {start:#x} on are no range of memory; check the length"
            ),
        )
    })?;
    Ok(start..end)
}

/// Writes as many of `list` as there is room for, and how many there are.
///
/// # Safety
///
/// The pointer is null, unaligned, or may be written for `room` of them until the call ends.
pub(crate) unsafe fn fill<T: Copy>(
    list: &[T],
    (to, room): (*mut T, usize),
    count: Out<usize>,
    name: &str,
) -> Result<(), Failure> {
    let wanted = list.len().min(room);
    if wanted > 0 {
        // SAFETY: the caller's promise.
        let first = unsafe { Out::new(to, name) }?;
        // SAFETY: the caller's promise for `room`, of which this is a part; it is aligned; and what
        // the library has made does not lie in memory of the caller's.
        unsafe {
            first
                .0
                .copy_from_nonoverlapping(NonNull::from(list).cast(), wanted)
        };
    }
    count.set(list.len());
    Ok(())
}

/// Writes a text with its NUL, or nothing if there is no room for all of it; and its length, which
/// does not count the NUL.
///
/// # Safety
///
/// The pointers are null, or may be written, the first for `room` bytes, until the call ends.
pub(crate) unsafe fn write_text(
    text: &str,
    (to, room): (*mut c_char, usize),
    length: *mut usize,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { Out::new(length, "length") }?.set(text.len());
    if text.len() >= room {
        return Err(Failure::new(
            ONRUSH_ERROR_ROOM,
            format_args!(
                "the text takes {} bytes and there is room for {room}; ask again with more",
                text.len() + 1
            ),
        ));
    }
    let to = NonNull::new(to).ok_or_else(|| null("text"))?.cast::<u8>();
    let from = NonNull::from(text.as_bytes()).cast();
    // SAFETY: the caller's promise for `room`, which is more than the text; it is the library's and
    // lies elsewhere.
    unsafe { to.copy_from_nonoverlapping(from, text.len()) };
    // SAFETY: behind the text, and there is room for one more.
    let end = unsafe { to.add(text.len()) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    Ok(())
}

fn null(name: &str) -> Failure {
    Failure::argument(format_args!("{name} is NULL; say where it is"))
}

fn unaligned(address: usize, name: &str) -> Failure {
    Failure::new(
        ONRUSH_ERROR_ALIGNMENT,
        format_args!("{name} at {address:#x} is not aligned to its type; align it"),
    )
}
