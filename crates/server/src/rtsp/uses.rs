//! What uses a session, and what they were told, in one number: there are many sessions.

use std::cell::Cell;

/// How many connections use a session, below 2^24, and the round of a drain in which its client was
/// sent on to another server; 0 before.
#[derive(Debug, Default)]
pub(super) struct Uses(Cell<u32>);

const ROUND_SHIFT: u32 = 24;
const CONNECTIONS: u32 = (1 << ROUND_SHIFT) - 1;

impl Uses {
    pub(super) fn connections(&self) -> u32 {
        self.0.get() & CONNECTIONS
    }

    /// A connection more.
    pub(super) fn join(&self) {
        assert!(self.connections() < CONNECTIONS, "a million is the limit");
        self.0.set(self.0.get() + 1);
    }

    /// One less.
    pub(super) fn leave(&self) {
        assert!(self.connections() > 0, "it has joined");
        self.0.set(self.0.get() - 1);
    }

    /// The last round in which its client was told.
    pub(super) fn round(&self) -> u32 {
        self.0.get() >> ROUND_SHIFT
    }

    /// Its client is told in this round; which was the last before.
    pub(super) fn set_round(&self, round: u8) -> u32 {
        let last = self.round();
        self.0
            .set(self.connections() | u32::from(round) << ROUND_SHIFT);
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_and_rounds_do_not_mix() {
        let uses = Uses::default();
        uses.join();
        assert_eq!(uses.set_round(255), 0);
        uses.join();
        assert_eq!((uses.connections(), uses.set_round(1)), (2, 255));
        uses.leave();
        uses.leave();
        assert_eq!((uses.connections(), uses.round()), (0, 1));
    }
}
