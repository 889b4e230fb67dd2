//! What a scan of a transport stream has seen beside packets and times: for reports.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::PcrQuality;
use super::psi::Program;
use super::seek::SeekKind;

/// References that run more than [`CLOCK_RATIO_MAX`](super::clock::CLOCK_RATIO_MAX) times slower or
/// faster than the times of all streams that they are for.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ClockDoubt {
    /// A stream whose times they contradict.
    pub pid: u16,
    /// How long it lasts by its own times, in ns.
    pub stream_ns: u64,
    /// How long it lasts by the references, in ns.
    pub clock_ns: u64,
}

/// What a scan has seen.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Facts {
    pub(crate) file_bytes: u64,
    pub(crate) leading_bytes: u64,
    pub(crate) garbage_bytes: u64,
    pub(crate) trailing_bytes: u64,
    pub(crate) sync_losses: u64,
    pub(crate) fallback_bitrate: Option<u64>,
    pub(crate) streams: StreamFacts,
}

/// What the packets told, without times.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct StreamFacts {
    pub(crate) programs: Vec<Program>,
    /// The first program association table, as the section is in the stream; empty if there is
    /// none.
    pub(crate) association: Box<[u8]>,
    pub(crate) pcr: Option<(u16, PcrQuality)>,
    /// Whether there is a clock to take the time from.
    pub(crate) clocked: bool,
    /// Why it is not that of `pcr`.
    pub(crate) doubt: Option<ClockDoubt>,
    /// What the streams' stamps would be at media time 0, in ns.
    pub(crate) stamps_start_ns: u64,
    pub(crate) seek_kind: SeekKind,
    /// The pid of the pictures that it was learned from.
    pub(crate) sync_pid: Option<u16>,
    pub(crate) nulls: u64,
    pub(crate) transport_errors: u64,
    pub(crate) scrambled: u64,
    pub(crate) continuity_errors: u64,
    pub(crate) pids: usize,
}

impl fmt::Display for ClockDoubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [clock, stream] = [self.clock_ns, self.stream_ns].map(Duration::from_nanos);
        write!(
            f,
            "by its clock references stream 0x{:04x} lasts {clock:.3?}, by its own times \
             {stream:.3?}",
            self.pid
        )
    }
}
