//! What only experiments and tests of tests ask of a server: streams in step, and planted faults,
//! which the checkers must catch.
//!
//! Without the feature `experiments` there is nothing to ask for: [`Experiments`] has one value,
//! and costs nothing.

use crate::engine::phase::Phase;

/// What is asked of a server for an experiment: nothing by default.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Experiments {
    /// When within a burst's time streams begin: by default at once.
    #[cfg(feature = "experiments")]
    pub phase: Phase,
    /// Things to do wrong on purpose: by default none.
    #[cfg(feature = "experiments")]
    pub faults: Faults,
}

#[cfg(feature = "experiments")]
impl Experiments {
    pub(crate) fn phase(self) -> Phase {
        self.phase
    }

    pub(crate) fn faults(self) -> Faults {
        self.faults
    }
}

#[cfg(not(feature = "experiments"))]
impl Experiments {
    #[allow(clippy::unused_self, reason = "with the feature it has a field")]
    pub(crate) fn phase(self) -> Phase {
        Phase::default()
    }

    #[allow(clippy::unused_self, reason = "with the feature it has a field")]
    pub(crate) fn faults(self) -> Faults {
        Faults::default()
    }
}

/// One thing done wrong on purpose.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The last packet of a burst is not sent, now and then.
    DropPacket = 1,
    /// A packet is sent twice, now and then.
    RepeatPacket = 2,
    /// One byte in each chunk is wrong.
    WrongByte = 4,
    /// A burst is held back for a fifth of a second, now and then.
    LateBurst = 8,
    /// A chunk is given up when the kernel has taken a train, not when it has let go of it.
    ReleaseEarly = 16,
}

/// The faults that are planted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults(u8);

impl Faults {
    /// These faults.
    #[cfg(feature = "experiments")]
    #[must_use]
    pub fn planted(faults: &[Fault]) -> Self {
        Self(faults.iter().fold(0, |set, &fault| set | fault as u8))
    }

    pub(crate) fn has(self, fault: Fault) -> bool {
        cfg!(feature = "experiments") && self.0 & fault as u8 != 0
    }
}
