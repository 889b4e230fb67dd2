//! What Onrush decides: formats, protocol states and schedules.
//!
//! Everything here is a pure function of the bytes and the times it is given. There are no sockets,
//! no files, no threads and no clock in this crate, so every state can be reached in a test.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod auth;
pub mod calendar;

pub mod dash;
pub mod ftp;
pub mod hls;
pub mod http;
mod language;
pub mod live;
pub mod media;
pub mod name;
pub mod pace;
pub mod route;
pub mod rtcp;
pub mod rtp;
pub mod rtsp;
pub mod sdp;
pub mod srtp;
pub mod tls;
