//! Where films are cut.

/// What a segment may be shorter than wished for, as a part of that: times are rounded.
const SHORTER: u64 = 32;

/// Takes the places where a segment may begin, in order, and says at which one does: at the first
/// that is far enough behind the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cutter {
    least_ns: u64,
    last_ns: u64,
}

impl Cutter {
    /// Of a film that begins at 0, with segments of about `target_ns`, which is not 0, or longer.
    pub(super) fn new(target_ns: u64) -> Self {
        Self {
            least_ns: target_ns - target_ns / SHORTER,
            last_ns: 0,
        }
    }

    /// Whether a segment begins at this place.
    pub(super) fn cuts(&mut self, time_ns: u64) -> bool {
        let is_far = time_ns >= self.last_ns.saturating_add(self.least_ns);
        if is_far {
            self.last_ns = time_ns;
        }
        is_far
    }

    /// A segment begins here for another reason.
    pub(super) fn is_cut(&mut self, time_ns: u64) {
        self.last_ns = self.last_ns.max(time_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_as_long_as_wished_for_or_longer() {
        let mut cutter = Cutter::new(64);
        let cuts = [10, 61, 62, 70, 123, 124, 400, 461, 470].map(|at| cutter.cuts(at));
        let expected = [false, false, true, false, false, true, true, false, true];
        assert_eq!(cuts, expected);
        cutter.is_cut(500);
        assert_eq!([561, 562].map(|at| cutter.cuts(at)), [false, true]);
    }
}
