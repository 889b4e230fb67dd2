//! What Onrush's tests and experiments stand on: namespaces, the counting sink, receivers, planted
//! faults.

pub mod checker;
pub mod connection;
pub mod disk;
pub mod film;
pub mod http_client;
pub mod interleaved;
pub mod media;
pub mod message;
pub mod netns;
pub mod playout;
pub mod ports;
pub mod process;
pub mod program;
pub mod receiver;
pub mod rtsp_client;
pub mod sink;
pub mod skip;
pub mod slice;
pub mod strict;
pub mod tcp_sink;
pub mod testbed;
