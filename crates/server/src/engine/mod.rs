//! One pinned thread a core that turns all that is due into one batch of sends.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::library::Media;

/// All engines of a server.
#[derive(Debug)]
pub struct Engines;

/// What a stream sends, and through what.
#[derive(Debug)]
pub struct StreamSpec {
    /// The file.
    pub media: Arc<Media>,
    /// Transport packets in an RTP packet, 1 to 7, so that it fits the path MTU.
    pub ts_packets_per_rtp: u8,
    /// The RTP socket, bound and connected to the client. The engine sets its options and closes it.
    pub socket: UdpSocket,
}

/// Why no stream could be opened or played.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// `Limits::sessions_max` streams exist on every engine.
    #[error("all {streams_max} streams are taken")]
    Full {
        /// The limit.
        streams_max: usize,
    },
    /// The cache can not hold the chunks that one more reader needs.
    #[error("the packet cache ({cache_bytes} bytes) is full of chunks in use; raise --cache")]
    CacheFull {
        /// The cache's size.
        cache_bytes: usize,
    },
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// Why a stream stopped by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EndReason {
    /// The file was played to its end.
    EndOfMedia,
    /// The file was truncated, replaced or could not be read; the text says which.
    Media(String),
    /// The kernel refused this client's packets for too long; the text says what it said.
    Send(String),
    /// The server is stopping.
    Stopped,
}

/// A stream's counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct StreamSnapshot {
    /// RTP packets handed to the kernel.
    pub packets: u64,
    /// Their bytes, RTP headers included.
    pub bytes: u64,
    /// Packets the kernel refused.
    pub packets_refused: u64,
    /// The plan's number of the next RTP packet to send.
    pub next_packet: u64,
    /// Media time that is due now, in ns, while playing; of the pause otherwise.
    pub position_ns: u64,
    /// Mean lateness of the bursts: when they left minus when they were due; negative is early.
    pub lateness_mean: i64,
    /// The latest burst's lateness in ns; negative is early.
    pub lateness_max: i64,
}

/// One client's stream, as control sees it. Dropping it stops the sending and frees all it held.
#[derive(Debug)]
pub struct Stream;

impl Engines {
    /// Opens a stream on the least loaded engine; it is paused at packet 0.
    pub fn open(&self, spec: StreamSpec) -> Result<Stream, EngineError> {
        todo!("{spec:?}")
    }

    /// The name of the data path in use, as in the catalogue.
    #[must_use]
    pub fn path_name(&self) -> &'static str {
        todo!()
    }
}

impl Stream {
    /// Plays from RTP packet `from` of the plan; its first burst is due `delay` from now. `stop_before`
    /// ends the stream before that packet.
    pub fn play(&self, from: u64, stop_before: Option<u64>, delay: Duration) {
        todo!("{from} {stop_before:?} {delay:?}")
    }

    /// Stops sending, and says the plan's number of the packet that would have been next.
    pub async fn pause(&self) -> u64 {
        todo!()
    }

    /// Waits until the stream stops by itself. Cancel-safe; answers at once when it already has.
    pub async fn ended(&self) -> EndReason {
        todo!()
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> StreamSnapshot {
        todo!()
    }
}
