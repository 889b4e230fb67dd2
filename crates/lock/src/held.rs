//! What the handles hold: places for them, and the registrations behind those that pin.
//!
//! A pin of more than one registration can hold is several, made or given back together.

use std::ops::Range;

use super::error::{self, LockError};
use super::intervals::{Intervals, Residency};
use super::resident::{make_resident, munlock};
use super::table::{BUFFER_BYTES_MAX, Table};
use super::{AREAS_MAX, Kind, addresses, page_numbers};

/// All that changes under the manager's lock.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) intervals: Intervals,
    pub(super) areas: Areas,
    /// Each on a ring of its own; the next is opened when all slots are taken.
    pub(super) tables: Vec<Table>,
    /// Of the part that was pinned last.
    last_part: u64,
}

/// What the handles hold. A handle's number never comes again, its place may.
#[derive(Default)]
pub(super) struct Areas {
    places: Vec<Option<(u64, Held)>>,
    vacant: Vec<usize>,
    last_id: u64,
}

pub(super) struct Held {
    pub(super) bytes: Range<usize>,
    pub(super) kind: Kind,
    /// The registration of the first part, if it is pinned, and by a table of ours.
    pub(super) first: Option<Part>,
    /// Those of the parts behind it, by address.
    pub(super) more: Vec<Part>,
}

/// What is pinned as one buffer.
pub(super) struct Part {
    pub(super) bytes: Range<usize>,
    pub(super) buffer: Buffer,
    /// Greater than those of all parts before: memory may have been mapped anew since these were
    /// pinned, and what is pinned then is not what lies at their addresses.
    pub(super) number: u64,
}

/// A slot of a table.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) table: u16,
    pub(super) slot: u16,
}

impl Inner {
    pub(super) fn pin(&mut self, bytes: &Range<usize>) -> Result<Held, LockError> {
        let first = bytes.start..bytes.end.min(bytes.start.saturating_add(BUFFER_BYTES_MAX));
        let first_end = first.end;
        let mut held = Held {
            first: Some(self.pin_part(first)?),
            ..Held::new(bytes.clone(), Kind::Pinned)
        };
        if first_end < bytes.end {
            let rest: Result<_, _> = self.pin_all(&(first_end..bytes.end));
            match rest {
                Ok(more) => held.more = more,
                Err(error) => {
                    self.unpin(&held);
                    return Err(error);
                }
            }
        }
        Ok(held)
    }

    /// Locks `bytes`, which begin where those of the handle end, in the handle's way.
    pub(super) fn extend(
        &mut self,
        name: (u64, usize),
        bytes: &Range<usize>,
    ) -> Result<(), LockError> {
        let kind = self.areas.get_mut(name).ok_or(LockError::Released)?.kind;
        let more = match kind {
            Kind::Resident | Kind::OnFault => {
                make_resident(&mut self.intervals, bytes, kind)?;
                Vec::new()
            }
            Kind::Pinned => self.pin_all(bytes)?,
        };
        self.count_more(name, bytes, more)
    }

    /// Counts `bytes`, which begin where those of the handle end, as held by it.
    pub(super) fn count_more(
        &mut self,
        name: (u64, usize),
        bytes: &Range<usize>,
        parts: Vec<Part>,
    ) -> Result<(), LockError> {
        let held = self.areas.get_mut(name).ok_or(LockError::Released)?;
        assert_eq!(held.bytes.end, bytes.start, "a handle grows at its end");
        held.bytes.end = bytes.end;
        held.more.extend(parts);
        self.intervals.add(page_numbers(bytes), held.kind);
        Ok(())
    }

    fn pin_all(&mut self, bytes: &Range<usize>) -> Result<Vec<Part>, LockError> {
        let mut pinned: Vec<Part> = Vec::new();
        for part in parts(bytes) {
            match self.pin_part(part) {
                Ok(part) => pinned.push(part),
                Err(error) => {
                    pinned.iter().for_each(|part| self.unpin_part(part.buffer));
                    return Err(error);
                }
            }
        }
        Ok(pinned)
    }

    fn pin_part(&mut self, part: Range<usize>) -> Result<Part, LockError> {
        for (table, number) in self.tables.iter_mut().zip(0..) {
            if let Some(slot) = table.pin(&part) {
                let slot = slot.map_err(|e| error::diagnose(&part, Kind::Pinned, e))?;
                let buffer = Buffer {
                    table: number,
                    slot,
                };
                self.last_part += 1;
                return Ok(Part {
                    bytes: part,
                    buffer,
                    number: self.last_part,
                });
            }
        }
        let table = Table::on_own_ring().map_err(|source| LockError::Ring { source })?;
        self.tables.push(table.ok_or(LockError::Tables)?);
        self.pin_part(part)
    }

    fn unpin(&mut self, held: &Held) {
        for part in held.parts() {
            self.unpin_part(part.buffer);
        }
    }

    fn unpin_part(&mut self, Buffer { table, slot }: Buffer) {
        self.tables[usize::from(table)].unpin(slot);
    }

    pub(super) fn release(&mut self, held: &Held) {
        let pages = page_numbers(&held.bytes);
        self.intervals.remove(pages.clone(), held.kind);
        self.unpin(held);
        if held.kind != Kind::Pinned {
            for (run, residency) in self.intervals.residency(pages) {
                // What is held on fault only may stay wholly locked: no page is lost by that.
                if residency == Residency::Unlocked {
                    munlock(&addresses(&run));
                }
            }
        }
    }
}

impl Held {
    /// Without a registration of ours.
    pub(super) fn new(bytes: Range<usize>, kind: Kind) -> Self {
        Self {
            bytes,
            kind,
            first: None,
            more: Vec::new(),
        }
    }

    /// The number of its oldest part.
    pub(super) fn number(&self) -> Option<u64> {
        self.parts().map(|part| part.number).min()
    }

    /// What is registered, by address.
    pub(super) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.first.iter().chain(&self.more)
    }

    /// The registration of exactly `bytes`.
    pub(super) fn part(&self, bytes: &Range<usize>) -> Option<&Part> {
        let found = self
            .more
            .binary_search_by_key(&bytes.start, |part| part.bytes.start);
        let part = found.map_or(self.first.as_ref(), |at| Some(&self.more[at]));
        part.filter(|part| part.bytes == *bytes)
    }
}

impl Areas {
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.vacant.len()
    }

    pub(super) fn check_room(&self) -> Result<(), LockError> {
        if self.len() >= AREAS_MAX {
            return Err(LockError::Areas);
        }
        Ok(())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.places.iter().flatten().map(|(_, held)| held)
    }

    /// Number and place.
    pub(super) fn insert(&mut self, held: Held) -> (u64, usize) {
        self.last_id += 1;
        let held = Some((self.last_id, held));
        let place = if let Some(place) = self.vacant.pop() {
            self.places[place] = held;
            place
        } else {
            self.places.push(held);
            self.places.len() - 1
        };
        (self.last_id, place)
    }

    pub(super) fn contains(&self, (id, place): (u64, usize)) -> bool {
        let held = self.places.get(place).and_then(Option::as_ref);
        held.is_some_and(|(theirs, _)| *theirs == id)
    }

    pub(super) fn get_mut(&mut self, (id, place): (u64, usize)) -> Option<&mut Held> {
        let held = self.places.get_mut(place)?.as_mut();
        held.filter(|(theirs, _)| *theirs == id)
            .map(|(_, held)| held)
    }

    pub(super) fn remove(&mut self, name: (u64, usize)) -> Option<Held> {
        if !self.contains(name) {
            return None;
        }
        self.vacant.push(name.1);
        self.places[name.1].take().map(|(_, held)| held)
    }

    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Held> + use<> {
        self.vacant.clear();
        let places = std::mem::take(&mut self.places);
        places.into_iter().flatten().map(|(_, held)| held)
    }
}

/// What is registered as one buffer each.
pub(super) fn parts(bytes: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let end = bytes.end;
    let starts = bytes.clone().step_by(BUFFER_BYTES_MAX);
    starts.map(move |start| start..end.min(start.saturating_add(BUFFER_BYTES_MAX)))
}
