//! How the packets of a stream are numbered, as its worker and control see it.
//!
//! The worker that has a stream decides: when it takes up a play from anywhere but the packet that
//! would have been next, the stream's numbers go on where they were. Control foretells the same
//! from the same, because the answer to PLAY says it before the first packet is sent.

use std::sync::atomic::{AtomicU64, Ordering};

use onrush_wire::media::Plan;
use onrush_wire::rtp::{Numbering, Position};

use super::shared_clock::Side;
use crate::random::random;
use crate::store::Source;

/// Whose headers packets have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum RtpHeaders {
    /// Those of the images, which all sessions of a file share, until a session's first jump, and
    /// from then on its own.
    #[default]
    Auto,
    /// Those of the images always. After a jump numbers jump too, and most players drop what comes:
    /// only for clients that never seek.
    Shared,
    /// The session's own from the start: no two sessions have the same SSRC.
    Own,
}

impl RtpHeaders {
    /// All, the default first.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Shared, Self::Own];

    /// Its name as a setting.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Shared => "shared",
            Self::Own => "own",
        }
    }

    /// How a new stream is numbered.
    pub(super) fn start(self) -> Numbering {
        if self != Self::Own {
            return Numbering::default();
        }
        let [a, b, c, d, e, f, g, h, i, j] = random();
        let offset = Position {
            sequence: u16::from_be_bytes([a, b]),
            timestamp: u32::from_be_bytes([c, d, e, f]),
        };
        Numbering::own(offset, u32::from_be_bytes([g, h, i, j]))
    }
}

impl std::str::FromStr for RtpHeaders {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::as_str).join(", ");
        let found = Self::ALL.into_iter().find(|it| it.as_str() == name);
        found.ok_or_else(|| format!("no RTP headers are named {name:?}; there are {names}"))
    }
}

impl std::fmt::Display for RtpHeaders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Two numberings of one SSRC, of which each side writes one and reads the other.
#[derive(Debug)]
pub(crate) struct SharedNumbering {
    /// What is added to sequence numbers, and above that to timestamps.
    offsets: [AtomicU64; 2],
    /// It never changes.
    ssrc: Option<u32>,
}

impl SharedNumbering {
    /// Both are `numbering`.
    pub(super) fn new(numbering: Numbering) -> Self {
        let shared = Self {
            offsets: Default::default(),
            ssrc: numbering.own_ssrc(),
        };
        shared.set(Side::Worker, numbering);
        shared.set(Side::Control, numbering);
        shared
    }

    /// Its SSRC stays what it was.
    pub(super) fn set(&self, side: Side, numbering: Numbering) {
        let Position {
            sequence,
            timestamp,
        } = numbering.position(Position::default());
        let offsets = u64::from(timestamp) << 16 | u64::from(sequence);
        self.offsets[side as usize].store(offsets, Ordering::Relaxed);
    }

    pub(crate) fn get(&self, side: Side) -> Numbering {
        let offsets = self.offsets[side as usize].load(Ordering::Relaxed);
        let offset = Position {
            sequence: (offsets & 0xffff) as u16,
            timestamp: (offsets >> 16 & 0xffff_ffff) as u32,
        };
        Numbering::new(offset, self.ssrc)
    }
}

/// The number that packet `packet` has in the images, and the timestamp of when it is due; of the
/// one after the last, too. Its own may be another, where pictures are shown in another order than
/// they are sent; those go forth and back, and when they are due only forth.
pub(crate) fn position_of(source: &Source, plan: &Plan, packet: u64) -> Position {
    let origin = source.origin();
    Position {
        sequence: origin.sequence_of(packet),
        timestamp: plan.timestamp_of(plan.due_ns(packet), origin),
    }
}

/// A stream that was numbered so, and would have sent packet `end` next, goes on from packet
/// `from`.
pub(crate) fn jumped(
    numbering: Numbering,
    source: &Source,
    plan: &Plan,
    end: u64,
    from: u64,
) -> Numbering {
    if end == from {
        return numbering;
    }
    let position = |packet| position_of(source, plan, packet);
    numbering.continued(position(end), position(from))
}

/// A stream that was numbered so, and would have sent packet `end` of a source next, goes on from a
/// packet of another; each is given with its source.
pub(crate) fn changed(
    numbering: Numbering,
    (before, end): (&Source, u64),
    (after, from): (&Source, u64),
) -> Numbering {
    let end = position_of(before, &before.plan(), end);
    numbering.continued(end, position_of(after, &after.plan(), from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_numbering_reads_back_as_it_was_written() {
        let numbering = Numbering::default().continued(
            Position {
                sequence: 7,
                timestamp: 1,
            },
            Position {
                sequence: 9,
                timestamp: 0x8000_0000,
            },
        );
        let shared = SharedNumbering::new(Numbering::default());
        shared.set(Side::Control, numbering);
        assert_eq!(shared.get(Side::Control), numbering);
        assert_eq!(shared.get(Side::Worker), Numbering::default());
        let own = RtpHeaders::Own.start();
        let shared = SharedNumbering::new(own);
        assert_eq!(
            [Side::Worker, Side::Control].map(|it| shared.get(it)),
            [own; 2]
        );
        assert!(!own.is_shared());
        assert!(RtpHeaders::Auto.start().is_shared());
    }
}
