//! Planted faults: what the checkers must catch.
//!
//! Without the feature `faults` the set is always empty and costs nothing. With it, nothing changes
//! either until a test plants one in its own server's `Config`.

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
    #[cfg(feature = "faults")]
    #[must_use]
    pub fn planted(faults: &[Fault]) -> Self {
        Self(faults.iter().fold(0, |set, &fault| set | fault as u8))
    }

    pub(crate) fn has(self, fault: Fault) -> bool {
        cfg!(feature = "faults") && self.0 & fault as u8 != 0
    }
}
