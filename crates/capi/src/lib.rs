//! Onrush for C, and for whatever calls C: locks on memory, a ring's registrations, groups of
//! receivers, and a server in the program itself.
//!
//! The crates do the work; here are their functions under C's rules, which hold for all of them:
//!
//! - Each answers 0, or a negative `ONRUSH_ERROR_...`; [`onrush_error_text`] says more. What a
//!   function makes is written through its pointer only when it answers 0.
//! - What is opened is named by a number, not by a pointer (`handle`): a number that was closed,
//!   or is of another kind, or of the parent of a `fork`, is an error, and not memory of somebody
//!   else's.
//! - Pointers are NULL, or unaligned, or valid for what the function says it reads or writes. The
//!   first two are errors where a function needs memory. The third nobody can check.
//! - All functions can be called by any thread at any time. Two calls for the same object take
//!   turns. A panic, which is a mistake of ours, ends the call and not the program.
//! - The header is made of this crate by cbindgen; a test compares. What it declares stays as it is
//!   for as long as [`ONRUSH_ABI_VERSION`] does.

#![allow(
    clippy::missing_safety_doc,
    reason = "the rules for pointers are the same for all functions and stand above, once"
)]
#![allow(
    non_camel_case_types,
    reason = "types have the names that they have in C"
)]

mod arguments;
mod cache;
mod error;
mod group;
mod handle;
mod lock;
mod segment;
mod server;
mod signals;

use std::ffi::c_char;

pub use cache::*;
pub use error::*;
pub use group::*;
pub use lock::*;
pub use segment::*;
pub use server::*;

/// The version of this interface. It grows when something is added; the name of the shared library
/// (libonrush.so.1) changes when something is changed or taken away.
pub const ONRUSH_ABI_VERSION: u32 = 2;

/// The version of the library that runs: `ONRUSH_ABI_VERSION` of the header that it was built with.
/// A program that needs what this header has asks for at least its version.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_abi_version() -> u32 {
    ONRUSH_ABI_VERSION
}

/// The version of Onrush, as text that stays.
#[unsafe(no_mangle)]
pub extern "C" fn onrush_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
