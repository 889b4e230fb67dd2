//! When a session owes its next burst, and how much a transfer may move: pure functions of time and events.

pub mod adaptive;
pub mod relief;
pub mod schedule;
pub mod wheel;

pub use relief::{LoadShedder, Second, Verdict};
pub use wheel::Wheel;
