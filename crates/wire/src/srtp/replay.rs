//! Which packets have come already (RFC 3711, section 3.3.2).

/// The highest number that has come, and which of the 64 up to it have.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplayWindow {
    /// One more than the highest.
    next: u64,
    /// Bit `n` is that of `n` below the highest.
    come: u64,
}

/// Numbers that are remembered.
const WINDOW: u64 = u64::BITS as u64;

impl ReplayWindow {
    /// The highest that has come.
    #[must_use]
    pub fn highest(&self) -> Option<u64> {
        self.next.checked_sub(1)
    }

    /// Whether this number has not come, as far as is known: one that is 64 or more below the
    /// highest counts as having come.
    #[must_use]
    pub fn is_new(&self, number: u64) -> bool {
        match self.next.checked_sub(number + 1) {
            None => true,
            Some(below) => below < WINDOW && self.come & 1 << below == 0,
        }
    }

    /// It has come. Say so only of what was authentic.
    pub fn insert(&mut self, number: u64) {
        match (number + 1).checked_sub(self.next) {
            Some(0) | None => {
                let below = u32::try_from(self.next - (number + 1)).unwrap_or(u32::MAX);
                self.come |= 1u64.checked_shl(below).unwrap_or(0);
            }
            Some(above) => {
                let above = u32::try_from(above).unwrap_or(u32::MAX);
                self.come = self.come.checked_shl(above).unwrap_or(0) | 1;
                self.next = number + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_came_is_not_new_nor_what_is_too_old() {
        let mut window = ReplayWindow::default();
        assert!(window.is_new(0));
        for number in [100, 98, 99, 163] {
            assert!(window.is_new(number));
            window.insert(number);
            assert!(!window.is_new(number));
        }
        assert_eq!(window.highest(), Some(163));
        assert!(!window.is_new(100), "the oldest that is remembered");
        assert!(window.is_new(101));
        assert!(!window.is_new(97), "too old");
        window.insert(1 << 40);
        assert!(!window.is_new(163) && window.is_new((1 << 40) - 1));
    }

    proptest! {
        #[test]
        fn as_a_set_of_numbers(numbers in proptest::collection::vec(0u64..200, 0..60)) {
            let (mut window, mut come) = (ReplayWindow::default(), BTreeSet::new());
            for number in numbers {
                let highest = come.last().copied();
                let is_old = highest.is_some_and(|highest: u64| number + 64 <= highest);
                let is_new = !is_old && !come.contains(&number);
                prop_assert_eq!(window.is_new(number), is_new);
                if is_new {
                    window.insert(number);
                    come.insert(number);
                }
            }
        }
    }
}
