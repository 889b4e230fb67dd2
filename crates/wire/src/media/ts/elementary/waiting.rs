//! Units that wait for their times.
//!
//! Those without stamps lie at one distance between those that have some. The stamp of a unit that
//! is far ahead may be wrong, which the next one tells: it counts as missing then.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

/// Units that wait for the next stamp, at the most.
const WAITING_MAX: usize = 256;

/// A sample whose time is not settled yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Unit {
    pub(super) part: Range<u64>,
    pub(super) bytes: u32,
    pub(super) parts: Vec<u32>,
    pub(super) is_sync: bool,
    /// When it is decoded, by a stamp that may be wrong.
    pub(super) ticks: Option<i64>,
    /// How much later it is shown, if it has stamps.
    pub(super) composition_ticks: Option<i64>,
    /// How long it lasts, if it says so.
    pub(super) lasts: Option<i64>,
}

/// Units that wait, in their order.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting(VecDeque<Unit>);

impl Waiting {
    pub(super) fn push(&mut self, unit: Unit) {
        self.0.push_back(unit);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there are too many.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() > WAITING_MAX
    }

    /// How many there are behind the last that has a time.
    pub(super) fn untimed(&self) -> usize {
        let behind = self.0.iter().rev();
        behind.take_while(|unit| unit.ticks.is_none()).count()
    }

    /// Takes out those up to the last that has a time, now that the next stamp says `next`: if that
    /// is before them, none has, because the stamp was wrong.
    pub(super) fn judge(&mut self, next: i64) -> Self {
        let first = self.0.iter().find_map(|unit| unit.ticks);
        if first.is_some_and(|ticks| next < ticks) {
            for unit in &mut self.0 {
                unit.ticks = None;
                // Where only the stamp of decoding was wrong, it is shown long before that.
                unit.composition_ticks = unit.composition_ticks.filter(|ticks| *ticks >= 0);
            }
        }
        let settled = self.0.len() - self.untimed();
        let behind = self.0.split_off(settled);
        Self(mem::replace(&mut self.0, behind))
    }

    /// Each with when it is decoded and how long it lasts: behind one that is decoded at `last` and
    /// in front of one at `next`, or `step` from each other where that is not known.
    pub(super) fn timed(
        self,
        mut last: i64,
        next: Option<i64>,
        step: i64,
    ) -> Vec<(Unit, i64, i64)> {
        let mut timed = Vec::with_capacity(self.0.len());
        let mut untimed = Vec::new();
        for unit in self.0 {
            let Some(ticks) = unit.ticks else {
                untimed.push(unit);
                continue;
            };
            timed.extend(spread(mem::take(&mut untimed), last, Some(ticks), step));
            let lasts = unit.lasts.unwrap_or(step);
            timed.push((unit, ticks, lasts));
            last = ticks;
        }
        timed.extend(spread(untimed, last, next, step));
        timed
    }
}

/// Units at one distance between two others.
fn spread(
    units: Vec<Unit>,
    last: i64,
    next: Option<i64>,
    step: i64,
) -> impl Iterator<Item = (Unit, i64, i64)> {
    let gaps = i64::try_from(units.len()).unwrap_or(0) + 1;
    let all = next.map_or(step * gaps, |next| (next - last).max(0));
    let numbered = (1_i64..).zip(units);
    numbered.map(move |(number, unit)| (unit, last + all * number / gaps, all / gaps))
}
