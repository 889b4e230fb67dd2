//! Why there is no stream, or no engine.

use std::io;

use thiserror::Error;

use super::remote::COMMANDS_MAX;

/// Why no stream could be opened or played.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The engine has as many streams as it may have.
    #[error("all {streams_max} streams of the engine are taken; allow more sessions")]
    Full {
        /// How many it may have.
        streams_max: u32,
    },
    /// With one stream more, those that play would be late.
    #[error(
        "the engine would be busy for {} % of the time, of {} % that it may (now it is for {} %, \
         and a train costs {train_ns} ns); add processors that send, lengthen bursts, or let them \
         be busier",
        load_permille / 10, load_max_permille / 10, measured_permille / 10
    )]
    Overload {
        /// How busy it would be.
        load_permille: u64,
        /// How busy it may be.
        load_max_permille: u64,
        /// How busy it was in the last second.
        measured_permille: u64,
        /// What a train was reckoned to cost, in ns.
        train_ns: u64,
    },
    /// Streams have been late for seconds, whatever the reason.
    #[error("the streams that play are late; try again")]
    Late,
    /// The cache cannot hold the chunks that one more reader needs.
    #[error(
        "the packet cache ({ready_bytes} bytes) is full of chunks in use; {}",
        cache_remedy(*ready_bytes, *cache_bytes)
    )]
    CacheFull {
        /// What of the cache is ready.
        ready_bytes: usize,
        /// The cache's size, when all of it is.
        cache_bytes: usize,
    },
    /// The file was truncated, replaced or cannot be read.
    #[error("{reason}")]
    Media {
        /// What happened to it.
        reason: String,
    },
    /// The file could not be read in time.
    #[error("the disk has not given the file's packets in time; try again")]
    Slow,
    /// More commands wait for the engine than it has taken yet.
    #[error("the engine is busy: {COMMANDS_MAX} commands wait for it; try again")]
    Busy,
    /// No engine is left: each has panicked, and said so in the log.
    #[error("the engine has stopped because of a bug of the server; see its log, and restart it")]
    Stopped,
    /// Packets cannot be framed in a connection here.
    #[error("this server's data path sends datagrams only; ask for RTP/AVP/UDP")]
    Interleaving,
    /// The socket does not take the path's options.
    #[error("the RTP socket cannot be set up: {0}")]
    Socket(#[source] io::Error),
}

/// Why the engines did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EngineStartError {
    /// The processor is not there, or not for this process.
    #[error("cannot run on processor {core}: {source}; see the allowed ones with `taskset -p $$`")]
    Core {
        /// The processor asked for.
        core: usize,
        /// What the system said.
        source: io::Error,
    },
    /// No thread or no event descriptor is to be had.
    #[error("cannot start an engine: {0}")]
    Thread(#[source] io::Error),
}

fn cache_remedy(ready_bytes: usize, cache_bytes: usize) -> String {
    match cache_bytes.saturating_sub(ready_bytes) {
        0 => "make it larger".to_owned(),
        more => format!("{more} bytes more are being made ready: try again"),
    }
}
