//! The bytes of a stream that are not samples yet, with where in the file each lies.

use std::collections::VecDeque;
use std::ops::Range;

use super::pes::Stamps;

/// Bytes of a stream, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct StreamBytes {
    data: Vec<u8>,
    /// How many bytes of the stream are behind: those are in front of `data`.
    behind: u64,
    /// By the stream's count: from where on bytes lie one behind the other in the file, and where.
    places: VecDeque<(u64, u64)>,
    /// The stamps of PES packets, by where their payload begins.
    stamps: VecDeque<(u64, Stamps)>,
}

impl StreamBytes {
    /// Appends bytes that begin at `offset` of the file, in a PES packet that has these stamps.
    pub(super) fn push(&mut self, bytes: &[u8], offset: u64, stamps: Option<Stamps>) {
        let at = self.behind + self.data.len() as u64;
        if stamps.is_some() && self.stamps.back().is_some_and(|(last, _)| *last == at) {
            self.stamps.pop_back();
        }
        self.stamps.extend(stamps.map(|stamps| (at, stamps)));
        if !bytes.is_empty() {
            self.places.push_back((at, offset));
            self.data.extend_from_slice(bytes);
        }
    }

    /// Those that have come and are not behind.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The part of the file that bytes reach over: from the first to the last.
    pub(super) fn file_part(&self, bytes: Range<usize>) -> Range<u64> {
        let last = bytes.end.saturating_sub(1);
        self.offset(bytes.start)..self.offset(last) + 1
    }

    fn offset(&self, at: usize) -> u64 {
        let at = self.behind + at as u64;
        let after = self.places.partition_point(|&(first, _)| first <= at);
        let place = after.checked_sub(1).and_then(|it| self.places.get(it));
        place.map_or(0, |(first, offset)| offset + (at - first))
    }

    /// The stamps of what begins at `at`, if it is the first that begins in its PES packet. To be
    /// asked of each that begins, in order.
    pub(super) fn take_stamps(&mut self, at: usize) -> Option<Stamps> {
        let at = self.behind + at as u64;
        let mut found = None;
        while let Some(&(from, stamps)) = self.stamps.front()
            && from <= at
        {
            found = Some(stamps);
            self.stamps.pop_front();
        }
        found
    }

    /// Lets go of the first `count`.
    pub(super) fn drop_front(&mut self, count: usize) {
        self.data.drain(..count.min(self.data.len()));
        self.behind += count as u64;
        while self.places.get(1).is_some_and(|(at, _)| *at <= self.behind) {
            self.places.pop_front();
        }
        while self.stamps.get(1).is_some_and(|(at, _)| *at <= self.behind) {
            self.stamps.pop_front();
        }
    }

    /// Lets go of all, with their stamps.
    pub(super) fn clear(&mut self) {
        self.drop_front(self.data.len());
        self.stamps.clear();
    }
}
