//! When a session owes its next burst, and how much a transfer may move: pure functions of time and
//! events.

pub mod adaptive;
pub mod load_shedder;
pub mod media_clock;
pub mod schedule;
pub mod wheel;
pub mod yielding;

pub use load_shedder::{LoadShedder, Second, Verdict};
pub use media_clock::{MediaClock, Speed};
pub use wheel::Wheel;
