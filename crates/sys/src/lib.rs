//! What Onrush asks of Linux: locked memory, rings, data paths.
//!
//! Nearly all of the project's unsafe code is here. Nothing in this crate knows a protocol.

pub mod clock;
pub mod fs;
pub mod group;
pub mod lock;
pub mod memory;
pub mod path;
pub mod pool;
pub mod primitive;
pub mod probe;
pub mod receive;
pub mod socket;
pub mod thread;
pub mod wake;
