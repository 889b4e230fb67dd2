//! How one transfer is cut in time: its schedule, and the rates that it shares with others.

use onrush_sys::clock::monotonic_ns;
use onrush_wire::pace::schedule::{Grant, Schedule, Sets, Yield};

use super::arranger::Arranger;
use super::{Limit, Policy, Transfers};
use crate::engine::shared::bump;

/// A transfer's schedule, under way.
#[derive(Debug)]
pub(super) struct Pacing<'a> {
    transfers: &'a Transfers,
    sets: Option<Sets>,
    /// Who arranges its schedule, if that is adaptive.
    arranger: Option<&'a Arranger>,
    /// The rates it keeps: its own, that of its kind, that of all.
    limits: [Option<Limit>; 3],
    /// Whether its schedule holds only while somebody waits for the processor.
    is_yielding: bool,
    /// Whether it holds for the step that is due.
    holds: bool,
}

impl<'a> Pacing<'a> {
    pub(super) fn new(transfers: &'a Transfers, policy: &Policy) -> Self {
        let arranged = || Some(transfers.arranger.limit().clone());
        let (sets, own) = match policy.schedule {
            Schedule::Fair => (None, None),
            Schedule::Fixed(fixed) | Schedule::Yielding(Yield::Fixed(fixed)) => {
                (Some(Sets::new(fixed)), None)
            }
            Schedule::Rate(rate) => (None, Some(Limit::new(rate))),
            Schedule::Adaptive | Schedule::Yielding(Yield::Share) => (None, arranged()),
        };
        let is_arranged = matches!(
            policy.schedule,
            Schedule::Adaptive | Schedule::Yielding(Yield::Share)
        );
        Self {
            transfers,
            sets,
            arranger: is_arranged.then_some(&transfers.arranger),
            limits: [own, policy.limit.clone(), transfers.total.clone()],
            is_yielding: matches!(policy.schedule, Schedule::Yielding(_)),
            holds: true,
        }
    }

    /// What of `most` bytes is due now. It is what [`Self::reserve`] takes, unless what comes
    /// between makes it less.
    pub(super) fn grant(&mut self, most: u64) -> Grant {
        let now_ns = monotonic_ns();
        if self.is_yielding {
            self.holds = self.transfers.neighbour.is_waiting(now_ns);
        }
        let granted = match self.sets.as_mut().filter(|_| self.holds) {
            None => Grant::Bytes(most),
            Some(sets) => sets.grant(now_ns),
        };
        let mut bytes = match granted {
            Grant::Bytes(granted) => granted.min(most),
            Grant::Until(until_ns) => {
                self.count_pause();
                return Grant::Until(until_ns);
            }
        };
        if let Some(arranger) = self.arranger.filter(|_| self.holds) {
            bytes = bytes.min(arranger.arranged().set_bytes);
        }
        Grant::Bytes(bytes)
    }

    /// The same within a slot of each rate.
    pub(super) fn slot_bytes(&self, bytes: u64) -> u64 {
        self.limits().fold(bytes, |bytes, (_, limit)| {
            bytes.min(limit.with(|bucket| bucket.slot_bytes()))
        })
    }

    /// Reserves what `bytes` take of all rates.
    pub(super) fn reserve(&self, bytes: u64) -> Slot {
        let now_ns = monotonic_ns();
        let mut slot = Slot::default();
        let take = |limit: &Limit| {
            limit.with(|bucket| {
                // One that was arranged anew since may have no room for so much at once.
                let reserved = bytes.min(bucket.slot_bytes_max());
                (reserved, bucket.reserve(now_ns, reserved))
            })
        };
        let mut is_own_pause = false;
        for (place, (is_own, limit)) in slot.reserved.iter_mut().zip(self.limits()) {
            let (reserved, at_ns) = take(limit);
            *place = Some((limit.clone(), reserved));
            if slot.begin_ns < Some(at_ns) {
                slot.begin_ns = Some(at_ns);
                is_own_pause = is_own && at_ns > now_ns;
            }
        }
        if is_own_pause {
            self.count_pause();
        }
        slot
    }

    /// So many bytes of what was granted were moved.
    pub(super) fn spent(&mut self, bytes: u64) {
        if let Some(sets) = self.sets.as_mut().filter(|_| self.holds) {
            sets.spent(monotonic_ns(), bytes);
        }
    }

    /// A step was made; so many bytes were moved by the thread in all.
    pub(super) fn stepped(&self, moved_bytes: u64) {
        if let Some(arranger) = self.arranger {
            arranger.stepped(moved_bytes, self.transfers.active());
        }
    }

    /// Who arranges it, if somebody does.
    pub(super) fn arranger(&self) -> Option<&'a Arranger> {
        self.arranger
    }

    /// The rates that hold now, and whether each is its own.
    fn limits(&self) -> impl Iterator<Item = (bool, &Limit)> {
        let [own, others @ ..] = &self.limits;
        let own = own.as_ref().filter(|_| self.holds);
        let own = own.into_iter().map(|own| (true, own));
        own.chain(others.iter().flatten().map(|other| (false, other)))
    }

    /// A pause begins.
    fn count_pause(&self) {
        if self.is_yielding && self.holds {
            bump(&self.transfers.stats.yields, 1);
        }
    }
}

/// What was reserved of all rates for one step; what is not used goes back.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Of each rate as much as it had room for.
    reserved: [Option<(Limit, u64)>; 3],
    spent_bytes: u64,
    /// When it begins, if there is a rate to be kept.
    pub(super) begin_ns: Option<u64>,
}

impl Slot {
    pub(super) fn spent(mut self, bytes: u64) {
        self.spent_bytes = bytes;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        for (limit, reserved) in self.reserved.iter().flatten() {
            let unused = reserved.saturating_sub(self.spent_bytes);
            limit.with(|bucket| bucket.refund(unused));
        }
    }
}
