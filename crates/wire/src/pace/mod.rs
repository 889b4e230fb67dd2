//! When a session owes its next burst: pure functions of time and events.

pub mod wheel;

pub use wheel::Wheel;
