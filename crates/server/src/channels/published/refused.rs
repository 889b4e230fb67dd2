//! What a publisher sent that is not of its tracks: why a channel is silent though something comes.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts it, for who asks why nothing has come.
#[derive(Debug, Default)]
pub(super) struct RefusedCounts {
    unannounced: AtomicU64,
    foreign: AtomicU64,
}

/// Packets that came and were not taken.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Refused {
    /// No RTP, or of another payload type than was announced.
    pub(crate) unannounced: u64,
    /// Of another source than the one that is taken, or of before that began anew.
    pub(crate) foreign: u64,
}

impl Refused {
    /// A packet that is none of its track.
    pub(super) const UNANNOUNCED: Self = Self {
        unannounced: 1,
        foreign: 0,
    };

    /// Those of them that came since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            unannounced: self.unannounced.saturating_sub(before.unannounced),
            foreign: self.foreign.saturating_sub(before.foreign),
        }
    }
}

impl RefusedCounts {
    /// So many more.
    pub(super) fn add(&self, refused: Refused) {
        let Refused {
            unannounced,
            foreign,
        } = refused;
        self.unannounced.fetch_add(unannounced, Ordering::Relaxed);
        self.foreign.fetch_add(foreign, Ordering::Relaxed);
    }

    /// Another publisher begins, or the same anew.
    pub(super) fn clear(&self) {
        self.unannounced.store(0, Ordering::Relaxed);
        self.foreign.store(0, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Refused {
        Refused {
            unannounced: self.unannounced.load(Ordering::Relaxed),
            foreign: self.foreign.load(Ordering::Relaxed),
        }
    }
}

/// As it stands behind "nothing has come for 10s": nothing where nothing was refused.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unannounced > 0 {
            let packets = self.unannounced;
            write!(
                f,
                " of its tracks: {packets} packets came with another payload type than was \
                 announced, or were no RTP"
            )?;
        }
        if self.foreign > 0 {
            let behind = match self.unannounced {
                0 => " of its tracks:",
                _ => ";",
            };
            write!(
                f,
                "{behind} {} packets came with another SSRC",
                self.foreign
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_said() {
        let counts = RefusedCounts::default();
        assert_eq!(counts.read().to_string(), "");
        let refused = |unannounced, foreign| Refused {
            unannounced,
            foreign,
        };
        counts.add(refused(2, 0));
        counts.add(refused(1, 0));
        let said = counts.read().to_string();
        assert!(said.starts_with(" of its tracks: 3 packets came with another payload type"));
        counts.add(refused(0, 4));
        let said = counts.read().to_string();
        assert!(
            said.ends_with("no RTP; 4 packets came with another SSRC"),
            "{said}"
        );
        counts.clear();
        assert_eq!(counts.read(), Refused::default());
    }
}
