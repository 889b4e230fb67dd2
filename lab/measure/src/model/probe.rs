//! Probes: what the terms of the model cost on this machine.
//!
//! Each does one small thing often, on one pinned processor that is kept awake, and all take turns.
//! Those that send do so in a testbed whose far end counts every packet; a round that lost one is
//! void. A term is a probe less what other terms explain of it, or the slope between two probes.

use onrush_primitives::named;
use onrush_primitives::packet::LENT_BYTES_MAX;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use crate::experiment::Record;

/// The port of the far end.
pub(super) const PORT: u16 = 20_000;
/// A packet without weight, and those of trains.
pub(super) const TINY: usize = 16;
pub(super) const SMALL: usize = 512;
pub(super) const WIDE: usize = 1400;
pub(super) const SMALL_STRIDE: u16 = 512;
pub(super) const WIDE_STRIDE: u16 = 1024;
pub(super) const TINY_STRIDE: u16 = 16;
/// Packets of a short train and of a long one.
pub(super) const SHORT: usize = 2;
pub(super) const LONG: usize = 48;
/// Pages of a long splice, or of a long pinned send.
pub(super) const PAGES: usize = 12;
pub(super) const PAGE: usize = 4096;
/// Entries of a ring's batch.
pub(super) const ENTRIES: usize = 256;
/// Members of a small group and of a larger one.
pub(super) const MEMBERS_SHORT: u16 = 16;
pub(super) const MEMBERS_LONG: u16 = 64;
/// Memory that no cache holds.
pub(super) const CHAIN_BYTES: usize = 256 << 20;
/// What is lent at once.
pub(super) const LENT: usize = LENT_BYTES_MAX;

named! {
    /// What is done often. The numbers are of packets, pieces, pages and bytes.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "snake_case")]
    #[allow(missing_docs, reason = "each is described by `Probes::run_probe`")]
    pub enum Probe {
        Getppid,
        SendTiny,
        SendWide,
        ReadTiny,
        ReadWide,
        Gather1,
        Gather17,
        Messages,
        TrainShort,
        TrainLong,
        TrainWide,
        TrainCold,
        Cork,
        Append1,
        Append9,
        DiscardTiny,
        DiscardPages,
        DiscardMemory,
        Lend,
        LendPages,
        LendOut,
        LendOutPages,
        ZeroCopyTiny,
        ZeroCopyPieces,
        ZeroCopyPages,
        ZeroCopyHuge,
        Faults,
        Miss,
        Plan,
        Nops1,
        NopsMany,
        NopsLinked,
        RingCopied,
        RingShort,
        RingLong,
        RingPinned,
        GroupShort,
        GroupLong,
        LendCold,
        StreamWrite,
        StreamPages,
        LoopPages,
        AccountPolled,
        RingApart,
        RingSockets,
        RingLinked,
        Account,
        PolledRead,
        Populate,
    }
}

/// Its name in files.
pub const NAME: &str = "model";

/// What the probes took.
pub type ModelRecord = Record<Settings, Run>;

/// How the probes are made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// How often each has its turn in each mode.
    pub rounds: u32,
    /// How long a turn is, about.
    pub turn_ns: u64,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// Whether the paths have their turns too, to check the model.
    pub check: bool,
    /// Bytes of the packets that paths send, header included.
    pub packet_bytes: u32,
    /// Packets of these bytes are sent, too.
    #[serde(default)]
    pub more_packet_bytes: Vec<u32>,
}

/// What had its turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    /// A probe.
    Probe(Probe),
    /// A path of the catalogue, by name.
    Path(String),
}

/// One turn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who cut trains.
    pub mode: Mode,
    /// What had its turn.
    #[serde(flatten)]
    pub of: Of,
    /// Which turn.
    pub round: u32,
    /// How often it was done; how many packets a path sent.
    pub times: u64,
    /// Processor time of one, in ns.
    pub cost_ns: f64,
    /// Bytes of the packets of a path, if they are not those of the settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packet_bytes: Option<u32>,
    /// Why it counts for nothing.
    pub void: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rounds: 7,
            turn_ns: 4_000_000,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            check: false,
            packet_bytes: 1328,
            more_packet_bytes: Vec::new(),
        }
    }
}

impl Settings {
    /// Bytes of packets, each size once.
    pub(crate) fn each_packet_bytes(&self) -> Vec<u32> {
        let all = [self.packet_bytes].into_iter();
        let more = self.more_packet_bytes.iter().copied();
        all.chain(more.filter(|&bytes| bytes != self.packet_bytes))
            .collect()
    }
}

impl Probe {
    /// The stride that trains are cut into; 0 for none.
    pub(super) fn stride(self) -> u16 {
        match self {
            Self::TrainShort | Self::TrainLong => TINY_STRIDE,
            Self::RingShort | Self::RingLong | Self::RingPinned => SMALL_STRIDE,
            Self::RingApart | Self::RingLinked => SMALL_STRIDE,
            Self::TrainWide | Self::TrainCold => WIDE_STRIDE,
            Self::ZeroCopyPages | Self::ZeroCopyHuge | Self::LendOutPages => WIDE_STRIDE,
            _ => 0,
        }
    }

    /// Packets that one of it sends.
    pub(super) fn packets(self) -> u64 {
        let packets = match self {
            Self::SendTiny | Self::SendWide | Self::Gather1 | Self::Gather17 => 1,
            Self::Append1 | Self::Append9 => 1,
            Self::ZeroCopyTiny | Self::ZeroCopyPieces | Self::LendOut => 1,
            Self::Messages | Self::TrainLong | Self::TrainWide | Self::TrainCold => LONG,
            Self::ZeroCopyPages | Self::ZeroCopyHuge | Self::LendOutPages => LONG,
            Self::TrainShort => SHORT,
            Self::RingCopied => ENTRIES,
            Self::RingShort | Self::RingPinned | Self::RingLinked => SHORT * ENTRIES,
            Self::RingApart | Self::RingSockets => SHORT * ENTRIES,
            Self::RingLong => LONG * ENTRIES,
            Self::GroupShort => MEMBERS_SHORT.into(),
            Self::GroupLong => MEMBERS_LONG.into(),
            _ => 0,
        };
        packets as u64
    }

    /// Bytes that one of it writes to a connection.
    pub(super) fn stream_bytes(self) -> u64 {
        let bytes = match self {
            Self::StreamWrite => WIDE,
            Self::StreamPages | Self::LoopPages => LENT,
            _ => 0,
        };
        bytes as u64
    }
}
