//! What a cache has registered, found by address and in the order of last use.
//!
//! Kept registrations never overlap, so the one that covers a range is the last that begins at or
//! before it: one look into an ordered map, or none where the range was found before. Those that
//! nobody uses hang in a list, the least recently used first. No call enters the kernel but to end
//! the watch of what is given up.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::sealed::Lent;
use super::watch::Watch;

/// Registrations by a number that holds until they are removed.
pub(super) struct Entries {
    list: Vec<Entry>,
    vacant: Vec<u32>,
    /// Kept registrations by first address. No two overlap.
    index: BTreeMap<usize, u32>,
    /// Where ranges were found last, by a hash of their first page. Only a hint: the entry decides.
    hints: Box<[u32]>,
    /// Kept registrations that nobody uses, in the order of their last use.
    oldest: u32,
    newest: u32,
    kept_bytes: usize,
}

struct Entry {
    bytes: Range<usize>,
    slot: u16,
    /// Whether it can be found. One that cannot goes with its last loan.
    kept: bool,
    /// `None` for what is sealed.
    watch: Option<&'static Watch>,
    loans: u32,
    /// The sealed pieces that it meets, which wait for its loans.
    lent: Vec<Lent>,
    older: u32,
    newer: u32,
}

impl Entry {
    fn count_lent(&self) {
        for piece in &self.lent {
            piece.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// No entry.
const NONE: u32 = u32::MAX;

impl Entries {
    pub(super) fn new(entries_max: usize) -> Self {
        Self {
            list: Vec::new(),
            vacant: Vec::new(),
            index: BTreeMap::new(),
            hints: vec![NONE; (entries_max * 2).next_power_of_two()].into(),
            oldest: NONE,
            newest: NONE,
            kept_bytes: 0,
        }
    }

    /// The kept registration that covers `bytes`.
    pub(super) fn find(&mut self, bytes: &Range<usize>) -> Option<u32> {
        let hint = self.hint(bytes.start);
        let covers = |e: &Entry| e.kept && e.bytes.start <= bytes.start && bytes.end <= e.bytes.end;
        if bytes.start >= bytes.end {
            return None;
        }
        if self.list.get(self.hints[hint] as usize).is_some_and(covers) {
            return Some(self.hints[hint]);
        }
        let (_, &entry) = self.index.range(..=bytes.start).next_back()?;
        if !covers(&self.list[entry as usize]) {
            return None;
        }
        self.hints[hint] = entry;
        Some(entry)
    }

    /// Lends a kept one out once more. Returns its slot.
    pub(super) fn lend(&mut self, entry: u32) -> u16 {
        if self.list[entry as usize].loans == 0 {
            self.unlink(entry);
        }
        let found = &mut self.list[entry as usize];
        if found.loans == 0 {
            found.count_lent();
        }
        found.loans += 1;
        found.slot
    }

    /// Takes a loan back. Returns the slot if it is of no more use.
    pub(super) fn take_back(&mut self, entry: u32, slot: u16) -> Option<u16> {
        let found = &mut self.list[entry as usize];
        assert!(
            found.loans > 0 && found.slot == slot,
            "the loan is this cache's"
        );
        found.loans -= 1;
        if found.loans > 0 {
            return None;
        }
        for piece in &found.lent {
            // Release: whoever sees it hands the memory out anew.
            piece.fetch_sub(1, Ordering::Release);
        }
        if found.kept {
            self.link(entry);
            return None;
        }
        Some(self.remove(entry))
    }

    /// Adds a registration that is lent out once and never found.
    pub(super) fn add(&mut self, bytes: Range<usize>, slot: u16, lent: Vec<Lent>) -> u32 {
        let fresh = Entry {
            bytes,
            slot,
            kept: false,
            watch: None,
            loans: 1,
            lent,
            older: NONE,
            newer: NONE,
        };
        fresh.count_lent();
        if let Some(entry) = self.vacant.pop() {
            self.list[entry as usize] = fresh;
            entry
        } else {
            self.list.push(fresh);
            u32::try_from(self.list.len() - 1).expect("a table has fewer slots")
        }
    }

    /// Adds one that is lent out once and will be found again. Its bytes meet none that is kept.
    pub(super) fn keep(
        &mut self,
        bytes: Range<usize>,
        slot: u16,
        lent: Vec<Lent>,
        watch: Option<&'static Watch>,
    ) -> u32 {
        self.kept_bytes += bytes.len();
        let start = bytes.start;
        let added = self.add(bytes, slot, lent);
        let entry = &mut self.list[added as usize];
        (entry.kept, entry.watch) = (true, watch);
        self.index.insert(start, added);
        let hint = self.hint(start);
        self.hints[hint] = added;
        added
    }

    /// Lets nobody find it any more, and ends its watch. Returns the slot if nobody uses it either;
    /// else it goes with its last loan.
    pub(super) fn forget(&mut self, entry: u32) -> Option<u16> {
        let found = &mut self.list[entry as usize];
        found.kept = false;
        self.kept_bytes -= found.bytes.len();
        self.index.remove(&found.bytes.start);
        if let Some(watch) = found.watch {
            watch.unwatch(&found.bytes);
        }
        if found.loans > 0 {
            return None;
        }
        self.unlink(entry);
        Some(self.remove(entry))
    }

    /// Ends all watches. Returns the slots that are taken, in use or not. Sealed memory that is on
    /// loan stays so for ever: nobody will tell when the kernel has sent it.
    pub(super) fn end(&mut self) -> impl Iterator<Item = u16> + '_ {
        for entry in std::mem::take(&mut self.index).into_values() {
            let Entry { watch, bytes, .. } = &self.list[entry as usize];
            if let Some(watch) = watch {
                watch.unwatch(bytes);
            }
        }
        let taken = |entry: &&Entry| entry.kept || entry.loans > 0;
        self.list.iter().filter(taken).map(|entry| entry.slot)
    }

    /// The least recently used of those that nobody uses.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// The kept registrations that meet `bytes`.
    pub(super) fn meeting(&self, bytes: &Range<usize>) -> Vec<u32> {
        let first = self.index.range(..=bytes.start).next_back();
        let first = first.filter(|&(_, &e)| self.list[e as usize].bytes.end > bytes.start);
        let start = first.map_or(bytes.start, |(&start, _)| start);
        self.index
            .range(start..bytes.end.max(start))
            .map(|(_, &e)| e)
            .collect()
    }

    pub(super) fn bytes(&self, entry: u32) -> &Range<usize> {
        &self.list[entry as usize].bytes
    }

    pub(super) fn is_watched(&self, entry: u32) -> bool {
        self.list[entry as usize].watch.is_some()
    }

    /// Registrations that can be found.
    pub(super) fn kept(&self) -> usize {
        self.index.len()
    }

    /// Bytes of those.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn hint(&self, address: usize) -> usize {
        // Fibonacci hashing; the table's length is a power of two.
        let hash = (address >> 12).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) & (self.hints.len() - 1)
    }

    fn remove(&mut self, entry: u32) -> u16 {
        self.vacant.push(entry);
        self.list[entry as usize].slot
    }

    /// Makes `entry` the most recently used of those that nobody uses.
    fn link(&mut self, entry: u32) {
        let before = std::mem::replace(&mut self.newest, entry);
        let linked = &mut self.list[entry as usize];
        (linked.older, linked.newer) = (before, NONE);
        match before {
            NONE => self.oldest = entry,
            _ => self.list[before as usize].newer = entry,
        }
    }

    fn unlink(&mut self, entry: u32) {
        let Entry { older, newer, .. } = self.list[entry as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.list[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.list[newer as usize].older = older,
        }
    }
}
