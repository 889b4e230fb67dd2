//! Where a stream's clock goes on with another time base: files that were put behind one another,
//! receivers that began anew.

/// Changes of time base that are remembered of a clock, at the most: the first ones. Those beyond
/// are not told to players, as if there were none.
pub const BREAKS_MAX: usize = 4096;

/// A change of time base.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Break {
    /// The last packet with a reference of what was before: the change is behind it.
    pub(crate) after: u64,
    /// The first with one of the new time base.
    pub(crate) packet: u64,
}

/// What `new` tells of changes from packet `end` on, put behind those that were told before that.
pub(super) fn continuing(old: &[Break], new: &[Break], end: u64) -> Vec<Break> {
    let later = new.iter().filter(|it| it.packet >= end);
    let later = later.map(|it| Break {
        after: it.after.max(end).min(it.packet.saturating_sub(1)),
        ..*it
    });
    old.iter().copied().chain(later).take(BREAKS_MAX).collect()
}

/// Whether each is behind the one before, and there are not too many.
pub(super) fn are_sound(breaks: &[Break]) -> bool {
    let mut end = 0;
    breaks.len() <= BREAKS_MAX
        && breaks.iter().all(|it| {
            let is_behind = end <= it.after && it.after < it.packet;
            end = it.packet;
            is_behind
        })
}
