//! Where pictures or sound pause while the other of them goes on.
//!
//! A player of DASH keeps to what a period had when it met it, and some fail where a manifest takes
//! pictures or sound out of it later (ISO/IEC 23009-1, section 5.4, does not let it). So the period
//! ends where one of them has paused, and what goes on is in another, as far back as that. Where it
//! begins is kept with its segments: it stays so for as long as they are named, whatever else is
//! gone by then. What is back after a pause is so behind a discontinuity as a rule.

use std::collections::VecDeque;

use super::segment::{Cut, Segment};

/// Sound whose newest segment is so many target durations behind that of the pictures has paused,
/// and so have pictures that are behind sound. Players that begin with them would wait for them.
const PAUSED_TARGETS: u64 = 3;

/// The newest whole segment of the other rendition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Beside {
    breaks: u64,
    starts_ns: i64,
    ends_ns: i64,
}

impl Beside {
    pub(super) fn of(segment: &Segment) -> Self {
        Self {
            breaks: segment.breaks,
            starts_ns: segment.starts_unix_ns,
            ends_ns: segment.ends_unix_ns(),
        }
    }
}

/// Whether a rendition comes beside another, as far as their newest segments tell: when these
/// begin, in ns since 1970.
pub(super) fn keeps_up(target_s: Option<u64>, starts_ns: i64, other_ns: i64) -> bool {
    let behind_ns = other_ns.saturating_sub(starts_ns);
    let target_ns = target_s.unwrap_or(1).saturating_mul(1_000_000_000);
    u64::try_from(behind_ns).unwrap_or(0) <= PAUSED_TARGETS.saturating_mul(target_ns)
}

/// Says of the newest segment of a rendition, which is whole now, in which period it is; and of
/// those before it, if the other rendition turns out to have paused.
pub(super) fn mark(
    own: &mut VecDeque<Segment>,
    is_pictures: bool,
    beside: Beside,
    target_s: Option<u64>,
) {
    let Some(newest) = own.back_mut() else {
        return;
    };
    let (breaks, starts_ns) = (newest.breaks, newest.starts_unix_ns);
    let was_alone = newest.cut.is_some_and(|it| it.is_alone);
    // Pictures whose sound has not come since a discontinuity are alone in their period anyway.
    let is_same = beside.breaks == breaks;
    // Behind a discontinuity, and nothing for long before it, the other one may be a little later.
    let beside_ns = match is_same {
        true => beside.starts_ns,
        false => beside.starts_ns.max(newest.break_unix_ns),
    };
    let is_alone = (is_same || !is_pictures) && !keeps_up(target_s, beside_ns, starts_ns);
    if is_alone == was_alone {
        return;
    }
    if !is_alone {
        newest.cut = Some(Cut {
            starts_ns,
            is_alone,
        });
        return;
    }
    let is_beyond = |it: &&Segment| it.breaks == breaks && it.middle_unix_ns() >= beside.ends_ns;
    let beyond = own.iter().rev().take_while(is_beyond).count();
    // A period that both have begun keeps something.
    let begun = own.iter().rev().take_while(|it| it.breaks == breaks);
    let most = begun.count() - usize::from(is_same);
    let from = own.len() - beyond.min(most).max(1);
    if let Some(first) = own.get(from) {
        let starts_ns = first.starts_unix_ns;
        let cut = Some(Cut {
            starts_ns,
            is_alone,
        });
        own.iter_mut().skip(from).for_each(|it| it.cut = cut);
    }
}
