//! The smallest things a machine does, each alone and repeatable: what `onrush-lab measure` times.
//!
//! Each function does one thing a given number of times and nothing else; how often, how long and
//! what it means is decided by the caller. What a compiler could leave out is written in assembly,
//! or gives back a value that depends on every step.

pub mod bandwidth;
pub mod call;
pub mod code;
pub mod counter;
pub mod latency;
pub mod map;
pub mod packet;
pub mod process;
pub mod reader;
pub mod switch;
