//! The Onrush server: packet images in a [`store`], sent by an [`engine`], controlled over
//! [`rtsp`]; and files as they are, by HTTP and FTP ([`downloads`]).
//!
//! Control (connections, sessions, RTCP) is ordinary asynchronous code on a thread of its own. Data
//! is the engine's: one pinned thread a core, which waits for no lock and allocates nothing while
//! streams play. The two meet in [`engine::Stream`].

#![warn(clippy::missing_errors_doc)]

pub mod admin;
mod byte_stream;
mod changes;
pub mod channel_api;
pub mod channels;
pub mod cluster;
pub mod config;
pub mod data;
pub mod devices;
pub mod downloads;
mod drain;
pub mod engine;
pub mod experiments;
mod filling;
pub mod hls_live;
pub mod library;
mod listening;
pub mod multicast;
mod network;
pub mod peer_log;
mod random;
pub mod refusals;
pub mod relay;
pub mod remote;
pub mod rtsp;
pub mod server;
mod statistics;
pub mod store;
pub mod tls;
pub mod transfer;
pub mod tunnelling;
pub mod users;
pub mod watching;

#[cfg(test)]
mod testing;
