//! A timer wheel: which entries are due by now, in constant time each.
//!
//! Time is cut into ticks. All deadlines in one tick are taken together, when the tick *begins*: an
//! entry is early by less than a tick, and late only if the caller is. Entries are numbers from 0;
//! all memory is taken when the wheel is made or grows. Deadlines further away than the wheel is
//! long wait in their slot for as many turns as it takes.

/// No entry.
const NONE: u32 = u32::MAX;

/// Deadlines of entries, as many as there is memory for.
#[derive(Debug)]
pub struct Wheel {
    tick_ns: u64,
    /// The first tick that has not been taken yet.
    tick_next: u64,
    /// The first entry of each slot's list.
    slots: Box<[u32]>,
    links: Vec<Link>,
    entries: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    tick: u64,
    previous: u32,
    next: u32,
    /// The slot whose list it is in, or [`NONE`].
    slot: u32,
}

const _: () = assert!(size_of::<Link>() == 24);

/// Of an entry without a deadline.
const UNLINKED: Link = Link {
    tick: 0,
    previous: NONE,
    next: NONE,
    slot: NONE,
};

impl Wheel {
    /// A wheel for entries `0..entries_max`, until it [grows](Self::grow), whose first tick is the
    /// one that holds `now_ns`.
    ///
    /// # Panics
    /// If `tick_ns` is 0, `slots` is 0 or 2^32 - 1 or more, or `entries_max` is 2^32 - 1 or more.
    #[must_use]
    pub fn new(entries_max: u32, slots: u32, tick_ns: u64, now_ns: u64) -> Self {
        assert!(
            tick_ns > 0 && slots > 0 && slots < NONE && entries_max < NONE,
            "a wheel has a size"
        );
        Self {
            tick_ns,
            tick_next: now_ns / tick_ns,
            slots: vec![NONE; slots as usize].into_boxed_slice(),
            links: vec![UNLINKED; entries_max as usize],
            entries: 0,
        }
    }

    /// Takes memory for entries `0..entries_max`, if it has less; then for twice as many as it had,
    /// so that this is seldom.
    ///
    /// # Panics
    /// If `entries_max` is 2^32 - 1 or more.
    pub fn grow(&mut self, entries_max: u32) {
        assert!(entries_max < NONE, "a wheel has a size");
        if self.links.len() < entries_max as usize {
            self.links.resize(entries_max as usize, UNLINKED);
        }
    }

    /// Sets the deadline of `entry`, in place of the one it may have had. A deadline in a tick
    /// already taken is due with the next.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn insert(&mut self, entry: u32, deadline_ns: u64) {
        self.remove(entry);
        let tick = (deadline_ns / self.tick_ns).max(self.tick_next);
        let slot = self.slot_of(tick);
        let first = self.slots[slot as usize];
        self.links[entry as usize] = Link {
            tick,
            previous: NONE,
            next: first,
            slot,
        };
        if first != NONE {
            self.links[first as usize].previous = entry;
        }
        self.slots[slot as usize] = entry;
        self.entries += 1;
    }

    /// Takes `entry` out, if it is in.
    ///
    /// # Panics
    /// If there is no such entry.
    pub fn remove(&mut self, entry: u32) {
        let link = self.links[entry as usize];
        if link.slot == NONE {
            return;
        }
        if link.previous == NONE {
            self.slots[link.slot as usize] = link.next;
        } else {
            self.links[link.previous as usize].next = link.next;
        }
        if link.next != NONE {
            self.links[link.next as usize].previous = link.previous;
        }
        self.links[entry as usize].slot = NONE;
        self.entries -= 1;
    }

    /// Takes out all that is due in the ticks up to the one that holds `now_ns`, and appends it to
    /// `due`.
    pub fn take_due(&mut self, now_ns: u64, due: &mut Vec<u32>) {
        let tick_now = now_ns / self.tick_ns;
        if tick_now < self.tick_next {
            return;
        }
        // A pause longer than the wheel passes every slot once, not once for each tick of it.
        let turns = (tick_now - self.tick_next + 1).min(self.slots.len() as u64);
        for tick in tick_now + 1 - turns..=tick_now {
            let mut entry = self.slots[self.slot_of(tick) as usize];
            while entry != NONE {
                let link = self.links[entry as usize];
                if link.tick <= tick_now {
                    self.remove(entry);
                    due.push(entry);
                }
                entry = link.next;
            }
        }
        self.tick_next = tick_now + 1;
    }

    /// When the next tick begins in which something may be due: exact within one turn of the wheel,
    /// early beyond it. `None` if the wheel is empty.
    #[must_use]
    pub fn next_ns(&self) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        let ticks = self.tick_next..self.tick_next + self.slots.len() as u64;
        let tick = ticks.clone().find(|&tick| {
            let mut entry = self.slots[self.slot_of(tick) as usize];
            while entry != NONE && self.links[entry as usize].tick != tick {
                entry = self.links[entry as usize].next;
            }
            entry != NONE
        });
        Some(tick.unwrap_or(ticks.end) * self.tick_ns)
    }

    /// How many entries have a deadline.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    fn slot_of(&self, tick: u64) -> u32 {
        let slot = tick % self.slots.len() as u64;
        u32::try_from(slot).expect("a wheel has fewer than 2^32 slots")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const TICK_NS: u64 = 1000;

    fn due(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let mut due = Vec::new();
        wheel.take_due(now_ns, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn an_entry_is_taken_when_its_tick_begins() {
        let mut wheel = Wheel::new(4, 8, TICK_NS, 500);
        wheel.insert(0, 2999);
        wheel.insert(1, 2000);
        wheel.insert(2, 3000);
        assert_eq!(wheel.next_ns(), Some(2000));
        assert_eq!(due(&mut wheel, 1999), [0_u32; 0]);
        assert_eq!(due(&mut wheel, 2000), [0, 1]);
        assert_eq!(wheel.next_ns(), Some(3000));
        assert_eq!(due(&mut wheel, 2999), [0_u32; 0]);
        assert_eq!(due(&mut wheel, 10_000), [2]);
        assert_eq!(wheel.next_ns(), None);
    }

    #[test]
    fn an_overdue_entry_is_due_with_the_next_tick() {
        let mut wheel = Wheel::new(1, 8, TICK_NS, 0);
        assert_eq!(due(&mut wheel, 5000), [0_u32; 0]);
        wheel.insert(0, 1);
        assert_eq!(wheel.next_ns(), Some(6000));
        assert_eq!(due(&mut wheel, 5999), [0_u32; 0]);
        assert_eq!(due(&mut wheel, 6000), [0]);
    }

    #[test]
    fn a_wheel_that_grows_keeps_its_deadlines() {
        let mut wheel = Wheel::new(1, 8, TICK_NS, 0);
        wheel.insert(0, 2000);
        wheel.grow(3);
        wheel.grow(2);
        wheel.insert(2, 2500);
        wheel.remove(1);
        assert_eq!(wheel.len(), 2);
        assert_eq!(due(&mut wheel, 3000), [0, 2]);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn an_entry_beyond_the_limit_is_our_own_bug() {
        Wheel::new(4, 8, TICK_NS, 0).insert(4, 0);
    }

    proptest! {
        /// Against a map of deadlines: nothing is taken early by a tick or more, late, twice or
        /// never.
        #[test]
        fn agrees_with_a_sorted_map(
            steps in prop::collection::vec((0u8..4, 0u32..32, 0u64..40_000), 1..400)
        ) {
            let mut wheel = Wheel::new(32, 8, TICK_NS, 0);
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let (mut now_ns, mut taken_to) = (0, 0);
            for (step, entry, time_ns) in steps {
                match step {
                    0 | 1 => {
                        wheel.insert(entry, now_ns + time_ns);
                        model.insert(entry, ((now_ns + time_ns) / TICK_NS).max(taken_to));
                    }
                    2 => {
                        wheel.remove(entry);
                        model.remove(&entry);
                    }
                    _ => {
                        now_ns += time_ns;
                        let expected: Vec<u32> = model
                            .iter()
                            .filter(|&(_, &tick)| tick <= now_ns / TICK_NS)
                            .map(|(&entry, _)| entry)
                            .collect();
                        model.retain(|_, tick| *tick > now_ns / TICK_NS);
                        taken_to = now_ns / TICK_NS + 1;
                        prop_assert_eq!(due(&mut wheel, now_ns), expected);
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let first = model.values().min().copied();
                match (wheel.next_ns(), first) {
                    (None, None) => {}
                    (Some(ns), Some(tick)) => {
                        prop_assert!(ns <= tick * TICK_NS);
                        // Exact within a turn; beyond it, the end of the turn.
                        prop_assert_eq!(ns / TICK_NS, tick.min(taken_to + 8));
                    }
                    (wheel, model) => prop_assert!(false, "{wheel:?} {model:?}"),
                }
            }
        }
    }
}
