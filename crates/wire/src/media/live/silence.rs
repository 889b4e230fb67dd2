//! For how long nothing has come of pictures though sound came.
//!
//! It passes while sound comes: where nothing comes at all, both may go on where they have ended.

/// Sound that comes so many ns behind the last says nothing of the time between.
const GAP_NS_MAX: u64 = 1_000_000_000;

/// A silence of pictures.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When sound came last.
    heard_ns: Option<u64>,
    lasts_ns: u64,
}

impl Silence {
    /// Pictures have come.
    pub(super) fn end(&mut self) {
        self.lasts_ns = 0;
    }

    /// Sound has come at `now_ns`: for how many ns without pictures.
    pub(super) fn go_on(&mut self, now_ns: u64) -> u64 {
        let before_ns = self.heard_ns.replace(now_ns).unwrap_or(now_ns);
        let gap_ns = now_ns.saturating_sub(before_ns);
        if gap_ns <= GAP_NS_MAX {
            self.lasts_ns = self.lasts_ns.saturating_add(gap_ns);
        }
        self.lasts_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_passes_while_sound_comes() {
        let mut silence = Silence::default();
        let heard = [0, 400, 1400, 2000].map(|ms| silence.go_on(ms * 1_000_000) / 1_000_000);
        assert_eq!(heard, [0, 400, 1400, 2000]);
        // Nothing came for five seconds, and then all at once.
        assert_eq!(silence.go_on(7_000_000_000), 2_000_000_000);
        silence.end();
        assert_eq!(silence.go_on(7_500_000_000), 500_000_000);
        assert_eq!(silence.go_on(7_000_000_000), 500_000_000);
    }
}
