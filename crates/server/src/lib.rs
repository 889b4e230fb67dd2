//! The Onrush server: packet images in a [`store`], sent by an [`engine`], controlled over [`rtsp`].
//!
//! Control (connections, sessions, RTCP) is ordinary asynchronous code on a thread of its own. Data is
//! the engine's: one pinned thread a core, which shares no lock with control and allocates nothing once
//! it runs. The two meet in [`engine::Stream`].

pub mod config;
pub mod data;
pub mod engine;
pub mod faults;
pub mod library;
pub mod rtsp;
pub mod server;
pub mod store;
pub mod transfer;

#[cfg(test)]
mod testing;
