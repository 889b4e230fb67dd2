//! What the terms cost: what is left of a probe when other terms are taken off, or what lies
//! between two.

use onrush_testkit::testbed::Mode;

use super::probe::{
    ENTRIES, LENT, LONG, MEMBERS_LONG, MEMBERS_SHORT, ModelRecord, Of, PAGES, Probe, SHORT, TINY,
    WIDE, WIDE_STRIDE,
};
use super::term::Term;
use crate::stats::{Summary, to_f64};

/// What the terms cost on one machine, in one mode.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// Who cuts trains.
    pub mode: Mode,
    ns: Vec<f64>,
}

impl Costs {
    /// What the probes of `mode` say; `None` if there are none. A term is not a number if a probe
    /// of it has no samples.
    #[must_use]
    pub fn of(record: &ModelRecord, mode: Mode) -> Option<Self> {
        let of = |probe: Probe| {
            let runs = record
                .runs
                .iter()
                .filter(|run| run.mode == mode && run.of == Of::Probe(probe));
            let samples: Vec<_> = runs
                .filter(|run| run.void.is_none())
                .map(|run| run.cost_ns)
                .collect();
            Summary::of(&samples).map(|summary| summary.median)
        };
        // Files of before a probe was thought of lack it, and the terms that come of it.
        let found = Probe::ALL.map(|probe| of(probe).unwrap_or(f64::NAN));
        if found.iter().all(|cost| cost.is_nan()) {
            return None;
        }
        let at = |probe: Probe| found[probe as usize];
        let costs = Term::ALL.map(|term| match cost(term, &at) {
            cost if cost.is_nan() => cost,
            cost => cost.max(0.0),
        });
        Some(Self {
            mode,
            ns: costs.to_vec(),
        })
    }

    /// One of `term`, in ns.
    #[must_use]
    pub fn ns(&self, term: Term) -> f64 {
        self.ns[term as usize]
    }
}

/// What one of `term` costs, from what the probes took. May be a little below zero, by noise.
fn cost(term: Term, at: &impl Fn(Probe) -> f64) -> f64 {
    let of = |term| cost(term, at);
    let number = to_f64;
    let slope = |much: Probe, little: Probe, by: usize| (at(much) - at(little)) / number(by);
    // Both are of so many packets.
    let pinned = |probe: Probe| {
        (at(probe) - at(Probe::TrainLong) - of(Term::Notification)) / number(PAGES - 1)
    };
    match term {
        Term::Crossing => at(Probe::Getppid),
        Term::ReadCall => at(Probe::ReadTiny) - of(Term::Crossing),
        Term::ColdByte => slope(Probe::ReadWide, Probe::ReadTiny, WIDE - TINY),
        Term::HotByte => slope(Probe::SendWide, Probe::SendTiny, WIDE - TINY),
        Term::Packet => at(Probe::SendTiny) - of(Term::Crossing),
        Term::Message => (at(Probe::Messages) - of(Term::Crossing)) / number(LONG),
        Term::Train => {
            at(Probe::TrainShort) - of(Term::Crossing) - number(SHORT) * of(Term::Segment)
        }
        Term::Segment => {
            let bytes = number(TINY) * of(Term::HotByte);
            slope(Probe::TrainLong, Probe::TrainShort, LONG - SHORT) - bytes
        }
        Term::ReferredSegment => slope(Probe::RingLong, Probe::RingShort, (LONG - SHORT) * ENTRIES),
        Term::TrainByte => {
            let bytes = LONG * (usize::from(WIDE_STRIDE) - TINY);
            slope(Probe::TrainWide, Probe::TrainLong, bytes)
        }
        Term::ColdTrainByte => {
            let bytes = LONG * (usize::from(WIDE_STRIDE) - TINY);
            slope(Probe::TrainCold, Probe::TrainLong, bytes)
        }
        Term::Miss => at(Probe::Miss),
        Term::Planned => at(Probe::Plan),
        Term::Piece => slope(Probe::Gather17, Probe::Gather1, 16),
        Term::Fault => at(Probe::Faults),
        Term::PinFault => at(Probe::Populate),
        Term::Set => at(Probe::Cork) / 2.0 - of(Term::Crossing),
        Term::Append => slope(Probe::Append9, Probe::Append1, 8) - of(Term::Crossing),
        Term::HeldPacket => {
            let calls = at(Probe::Cork) + of(Term::Crossing) + of(Term::Append);
            at(Probe::Append1) - calls
        }
        Term::StreamWrite => {
            let bytes = number(WIDE) * of(Term::HotByte);
            at(Probe::StreamWrite) - of(Term::Crossing) - bytes
        }
        Term::StreamByte => slope(Probe::StreamPages, Probe::LendCold, LENT),
        Term::LoopByte => slope(Probe::LoopPages, Probe::LendCold, LENT),
        Term::Clone => slope(
            Probe::GroupLong,
            Probe::GroupShort,
            usize::from(MEMBERS_LONG - MEMBERS_SHORT),
        ),
        Term::Notification => at(Probe::ZeroCopyTiny) - at(Probe::SendTiny),
        Term::PinnedPage => pinned(Probe::ZeroCopyPages),
        Term::PinnedHugePage => pinned(Probe::ZeroCopyHuge),
        Term::PinnedPiece => slope(Probe::ZeroCopyPieces, Probe::ZeroCopyTiny, 8),
        _ => splice_cost(term, at),
    }
}

/// The same of terms of pages that are passed on.
fn splice_cost(term: Term, at: &impl Fn(Probe) -> f64) -> f64 {
    let of = |term| cost(term, at);
    let number = to_f64;
    match term {
        Term::SpliceCall => at(Probe::DiscardTiny) - of(Term::Crossing) - of(Term::SplicePage),
        Term::SplicePage => (at(Probe::DiscardPages) - at(Probe::DiscardTiny)) / number(PAGES - 1),
        Term::MemoryPage => {
            let pages = at(Probe::DiscardMemory) - of(Term::Crossing) - of(Term::SpliceCall);
            pages / number(PAGES)
        }
        Term::Lend => at(Probe::Lend) - 2.0 * of(Term::Crossing),
        // A packet has a crossing, a splice too.
        Term::SpliceOut => at(Probe::LendOut) - at(Probe::Lend) - of(Term::Packet),
        Term::SpliceOutPage => {
            let train = of(Term::Train) + number(LONG) * of(Term::ReferredSegment);
            let pages = at(Probe::LendOutPages) - at(Probe::LendPages) - train;
            (pages - of(Term::SpliceOut)) / number(PAGES - 1)
        }
        _ => ring_cost(term, at),
    }
}

/// The same of terms of rings.
fn ring_cost(term: Term, at: &impl Fn(Probe) -> f64) -> f64 {
    let of = |term| cost(term, at);
    let number = to_f64;
    let slope = |much: Probe, little: Probe| (at(much) - at(little)) / number(ENTRIES - 1);
    // An entry of a batch, beyond one that does nothing.
    let each = |probe| {
        let batch = of(Term::Crossing) + of(Term::RingCrossing);
        (at(probe) - batch) / number(ENTRIES) - of(Term::Entry)
    };
    let train = || of(Term::Train) + number(SHORT) * of(Term::ReferredSegment);
    match term {
        Term::Link => slope(Probe::NopsLinked, Probe::NopsMany),
        Term::Entry => slope(Probe::NopsMany, Probe::Nops1),
        Term::LinkSend => slope(Probe::RingLinked, Probe::RingShort) - of(Term::Link),
        // Two that do nothing are handed over for each that would send.
        Term::Account => each(Probe::Account) - of(Term::Entry),
        Term::Sleep => at(Probe::PolledRead) - of(Term::Crossing) - of(Term::PolledEntry),
        // Who waits sleeps once, for a batch as for one.
        Term::PolledEntry => slope(Probe::AccountPolled, Probe::PolledRead),
        Term::ColdTrain => (at(Probe::RingApart) - at(Probe::RingShort)) / number(ENTRIES),
        Term::Session => (at(Probe::RingSockets) - at(Probe::RingApart)) / number(ENTRIES),
        Term::RingCrossing => at(Probe::Nops1) - of(Term::Crossing) - of(Term::Entry),
        Term::EntrySend => each(Probe::RingCopied) - of(Term::Packet),
        Term::Release => each(Probe::RingShort) - train(),
        Term::PinnedRelease => each(Probe::RingPinned) - train(),
        _ => unreachable!("`cost` knows all other terms"),
    }
}
