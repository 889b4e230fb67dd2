//! Who receives a channel: a lease with a token (Gray and Cheriton 1989, and fencing tokens as
//! Chubby's sequencers, Burrows 2006).
//!
//! The registry gives a lease to one node at a time, with a token that grows with each grant. A
//! holder that cannot reach the registry stops *before* its lease is given to another: it counts
//! from when it asked, by its own steady clock, and leaves a margin for clocks that run at another
//! rate. What is on its way when a holder stops arrives late: [`Fence`] refuses it by its token.

use thiserror::Error;

/// Grows with each grant of a lease: the revision of its entry in the registry.
pub type Token = u64;

/// How long a lease lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseTimes {
    /// The registry gives it to nobody else for so long after it was asked last, in ns.
    pub lasts_ns: u64,
    /// The holder stops so much earlier, in ns: for clocks of different rates, and for what it has
    /// begun. A tenth or more of the above.
    pub margin_ns: u64,
}

impl LeaseTimes {
    /// Of leases that the registry lets stand for so long: a fifth is margin.
    #[must_use]
    pub const fn lasting(lasts_ns: u64) -> Self {
        Self {
            lasts_ns,
            margin_ns: lasts_ns / 5,
        }
    }
}

impl Default for LeaseTimes {
    /// Ten seconds, of which the last two are margin.
    fn default() -> Self {
        Self {
            lasts_ns: 10_000_000_000,
            margin_ns: 2_000_000_000,
        }
    }
}

/// A lease as its holder sees it. Times are of the holder's steady clock, in ns.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lease {
    token: Token,
    /// Nothing as long as it is not known.
    asked_ns: Option<u64>,
    times: LeaseTimes,
    is_due: bool,
}

impl Lease {
    /// The registry granted it, with this token, to a request that was sent at `asked_ns`.
    ///
    /// What counts is when it was asked, not when the answer came: the registry counts from some
    /// moment between the two.
    #[must_use]
    pub const fn granted(token: Token, asked_ns: u64, times: LeaseTimes) -> Self {
        Self {
            token,
            asked_ns: Some(asked_ns),
            times,
            is_due: false,
        }
    }

    /// It stands in the registry, and when it was asked for is not known: it holds once it is
    /// renewed, which is due.
    #[must_use]
    pub const fn found(token: Token, times: LeaseTimes) -> Self {
        Self {
            token,
            asked_ns: None,
            times,
            is_due: true,
        }
    }

    /// What its holder sends along with everything.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// The registry extended it, upon a request that was sent at `asked_ns`. Answers may come in
    /// another order than their requests: an older one changes nothing.
    pub fn renewed(&mut self, asked_ns: u64) {
        self.asked_ns = self.asked_ns.max(Some(asked_ns));
        self.is_due = false;
    }

    /// The same, to be renewed now: what was asked for last may have been done.
    #[must_use]
    pub const fn due_at_once(mut self) -> Self {
        self.is_due = true;
        self
    }

    /// Whether the holder may go on. Once it may not, it may again only when the registry has
    /// extended the lease upon a later request.
    #[must_use]
    pub const fn holds(&self, now_ns: u64) -> bool {
        now_ns < self.stops_ns()
    }

    /// When the holder stops unless it is renewed.
    #[must_use]
    pub const fn stops_ns(&self) -> u64 {
        let lasts_ns = self.times.lasts_ns.saturating_sub(self.times.margin_ns);
        match self.asked_ns {
            Some(asked_ns) => asked_ns.saturating_add(lasts_ns),
            None => 0,
        }
    }

    /// When to ask for more: with two thirds left, so that two requests may be lost.
    #[must_use]
    pub const fn renews_ns(&self) -> u64 {
        if self.is_due {
            return 0;
        }
        let lasts_ns = self.times.lasts_ns.saturating_sub(self.times.margin_ns);
        match self.asked_ns {
            Some(asked_ns) => asked_ns.saturating_add(lasts_ns / 3),
            None => 0,
        }
    }
}

/// What nodes that take a channel from its holder remember: the newest token they have seen.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Fence {
    newest: Token,
}

/// Something came from a holder whose lease another has by now.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "lease {came} has been given to another since (lease {newest}); take the channel from that one"
)]
pub struct Stale {
    /// The token that came.
    pub came: Token,
    /// The newest that was seen.
    pub newest: Token,
}

impl Fence {
    /// Lets through what carries the newest token or a newer one.
    ///
    /// # Errors
    ///
    /// [`Stale`] for an older one: its holder does not know yet that it is no longer.
    pub fn admit(&mut self, token: Token) -> Result<(), Stale> {
        if token < self.newest {
            return Err(Stale {
                came: token,
                newest: self.newest,
            });
        }
        self.newest = token;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn it_is_renewed_long_before_it_stops() {
        let mut lease = Lease::granted(7, 100 * SECOND, LeaseTimes::default());
        assert_eq!(lease.stops_ns(), 108 * SECOND);
        assert!(lease.renews_ns() < 103 * SECOND);
        assert!(lease.holds(108 * SECOND - 1) && !lease.holds(108 * SECOND));
        lease.renewed(104 * SECOND);
        assert_eq!(lease.stops_ns(), 112 * SECOND);
        // The answer to an earlier request, late.
        lease.renewed(102 * SECOND);
        assert_eq!((lease.stops_ns(), lease.token()), (112 * SECOND, 7));
    }

    #[test]
    fn a_fence_lets_no_older_holder_through() {
        let mut fence = Fence::default();
        assert_eq!(fence.admit(3), Ok(()));
        assert_eq!(fence.admit(3), Ok(()));
        assert_eq!(fence.admit(5), Ok(()));
        let stale = fence.admit(3).unwrap_err();
        assert_eq!((stale.came, stale.newest), (3, 5));
        assert!(stale.to_string().contains("take the channel from that one"));
    }

    #[test]
    fn a_margin_longer_than_the_lease_holds_nothing() {
        let times = LeaseTimes {
            lasts_ns: 1,
            margin_ns: 2,
        };
        assert!(!Lease::granted(1, 10, times).holds(10));
    }

    /// A registry that gives an entry to whoever asks once it has run out, as one with a time to
    /// live does.
    #[derive(Default)]
    struct Registry {
        holder: Option<usize>,
        until_ns: u64,
        revision: Token,
    }

    impl Registry {
        fn asked(&mut self, node: usize, now_ns: u64, times: LeaseTimes) -> Option<Token> {
            let mine = self.holder == Some(node) && now_ns < self.until_ns;
            if !mine && now_ns < self.until_ns {
                return None;
            }
            if !mine {
                self.revision += 1;
                self.holder = Some(node);
            }
            self.until_ns = now_ns + times.lasts_ns;
            Some(self.revision)
        }
    }

    proptest! {
        /// Two nodes whose clocks differ by up to 5 % in rate, and whose requests and answers are
        /// late or lost as they come, never both hold, and tokens tell them apart.
        #[test]
        fn two_nodes_never_hold_at_once(
            rates in prop::array::uniform2(950_u64..=1050),
            steps in prop::collection::vec((0..2_usize, 0..2_000_u64, any::<bool>()), 1..300),
        ) {
            let times = LeaseTimes::default();
            let mut registry = Registry::default();
            let mut leases: [Option<Lease>; 2] = [None, None];
            let mut now_ns = SECOND;
            for (node, late_ms, answered) in steps {
                let local = |true_ns: u64, of: usize| true_ns / 1000 * rates[of];
                let asked_ns = local(now_ns, node);
                now_ns += late_ms * 500_000;
                let token = registry.asked(node, now_ns, times);
                now_ns += late_ms * 500_000;
                if let (Some(token), true) = (token, answered) {
                    let here_ns = local(now_ns, node);
                    match &mut leases[node] {
                        Some(lease) if lease.token() == token && lease.holds(here_ns) => {
                            lease.renewed(asked_ns);
                        }
                        lease => *lease = Some(Lease::granted(token, asked_ns, times)),
                    }
                }
                let holding: Vec<Token> = (0..2)
                    .filter_map(|of| leases[of].filter(|lease| lease.holds(local(now_ns, of))))
                    .map(|lease| lease.token())
                    .collect();
                prop_assert!(holding.len() < 2, "tokens {holding:?} at {now_ns}");
            }
        }
    }
}
