//! What Onrush asks of Linux beside locked memory (`onrush-lock`): rings, packet pools, data paths,
//! transfers, probes; and of the processor, what takes its own instructions.
//!
//! Nearly all of the project's unsafe code is here. Nothing in this crate knows a protocol.

#![warn(clippy::missing_errors_doc)]

pub mod arrival;
pub mod clock;
pub mod fs;
pub mod kernel_tls;
pub mod path;
pub mod pool;
pub mod prefetch;
pub mod probe;
pub mod receive;
pub mod sandbox;
pub mod sha1;
pub mod socket;
pub mod thread;
pub mod wake;
