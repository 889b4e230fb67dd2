//! Where segments of pictures ended that sound has not come to yet.

use std::collections::VecDeque;

/// So many wait for sound: pictures may go on for years beside a track that is muted. Of the oldest
/// only the breaks are kept, as sound ends one segment at all that it comes to.
const ENDS_MAX: usize = 1024;

/// Ends of segments, in order.
#[derive(Debug, Default)]
pub(super) struct Ends {
    of_pictures: VecDeque<End>,
}

#[derive(Debug)]
struct End {
    at_ns: i64,
    /// How many times the pictures began anew until then, and after the end before.
    breaks: u64,
}

impl Ends {
    pub(super) fn push(&mut self, at_ns: i64, is_break: bool) {
        let breaks = u64::from(is_break);
        self.of_pictures.push_back(End { at_ns, breaks });
        if self.of_pictures.len() > ENDS_MAX
            && let Some(oldest) = self.of_pictures.pop_front()
            && let Some(next) = self.of_pictures.front_mut()
        {
            next.breaks = next.breaks.saturating_add(oldest.breaks);
        }
    }

    /// Takes those that sound has come to at `at_ns`: how many breaks were there; `None` if it has
    /// come to no end.
    pub(super) fn take_until(&mut self, at_ns: i64) -> Option<u64> {
        let mut taken = None;
        let has_come = |end: &End| end.at_ns <= at_ns;
        while self.of_pictures.front().is_some_and(has_come)
            && let Some(end) = self.of_pictures.pop_front()
        {
            taken = Some(taken.unwrap_or(0_u64).saturating_add(end.breaks));
        }
        taken
    }

    /// Takes all: how many breaks were there.
    pub(super) fn take_all(&mut self) -> u64 {
        self.take_until(i64::MAX).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_that_comes_late_counts_every_break() {
        let mut ends = Ends::default();
        assert_eq!(ends.take_until(i64::MAX), None);
        for second in 0..5000 {
            ends.push(second, second % 2 == 0);
            assert!(ends.of_pictures.len() <= ENDS_MAX);
        }
        let oldest = 5000 - i64::try_from(ENDS_MAX).unwrap();
        assert_eq!(oldest % 2, 0);
        assert_eq!(ends.take_until(oldest - 1), None);
        let until = oldest.cast_unsigned() / 2 + 1;
        assert_eq!(ends.take_until(oldest), Some(until));
        assert_eq!(ends.take_until(oldest + 1), Some(0));
        assert_eq!(ends.take_all(), 2500 - until);
        assert_eq!(ends.take_all(), 0);
    }
}
