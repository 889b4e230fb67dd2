//! Trains that the kernel did not send, until it has let go of their memory.
//!
//! It says that of these, too, and of one that it refused that it was copied, because nothing
//! refers to it (io_uring/notif.c). Here is remembered which they are, so that they do not count as
//! copied.

use std::collections::VecDeque;

use super::BATCH_TRAINS_MAX;

/// Trains of which more may be said: those of as many batches as there are turns until it is.
const UNSENT_MAX: usize = 16 * BATCH_TRAINS_MAX;

/// Why a train was not sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    /// The kernel refused it.
    Refused,
    /// It was never begun, behind one that failed. That its memory is let go comes though the
    /// kernel did not say that it would (io_uring/net.c, `io_send_zc_cleanup`).
    NeverBegun,
}

/// Such trains, by their tokens, the oldest first.
#[derive(Debug)]
pub(super) struct Unsent(VecDeque<(u32, Reason)>);

impl Unsent {
    /// With room for all of them, because nothing is allocated while streams play.
    pub(super) fn new() -> Self {
        Self(VecDeque::with_capacity(UNSENT_MAX))
    }

    /// Remembers a train. What is too old for more to come is forgotten: some kernels say nothing
    /// more of a train that was never begun.
    pub(super) fn push(&mut self, token: u32, reason: Reason) {
        if self.0.len() == UNSENT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((token, reason));
    }

    /// Why a train was not sent, if it was not, now that its memory is let go.
    pub(super) fn take(&mut self, token: u32) -> Option<Reason> {
        let place = self.0.iter().position(|&(it, _)| it == token)?;
        self.0.remove(place).map(|(_, reason)| reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_is_remembered_until_it_is_taken() {
        let mut unsent = Unsent::new();
        unsent.push(7, Reason::Refused);
        unsent.push(8, Reason::NeverBegun);
        assert_eq!(unsent.take(8), Some(Reason::NeverBegun));
        assert_eq!(unsent.take(8), None);
        assert_eq!(unsent.take(7), Some(Reason::Refused));
    }

    #[test]
    fn the_oldest_is_forgotten_beyond_the_bound() {
        let most = u32::try_from(UNSENT_MAX).expect("fits");
        let mut unsent = Unsent::new();
        (0..=most).for_each(|token| unsent.push(token, Reason::NeverBegun));
        assert_eq!(unsent.take(0), None);
        assert_eq!(unsent.take(1), Some(Reason::NeverBegun));
        assert_eq!(unsent.take(most), Some(Reason::NeverBegun));
    }
}
