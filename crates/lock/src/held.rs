//! What the handles hold: places for them, and the registrations behind those that pin.
//!
//! A pin of more than one registration can hold is several, made or given back together.

use std::ops::Range;

use super::error::{self, LockError};
use super::intervals::{Intervals, Residency};
use super::resident::munlock;
use super::table::{BUFFER_BYTES_MAX, Table};
use super::{AREAS_MAX, Kind, addresses, page_numbers};

/// All that changes under the manager's lock.
#[derive(Default)]
pub(super) struct Inner {
    pub(super) intervals: Intervals,
    pub(super) areas: Areas,
    /// Each on a ring of its own; the next is opened when all slots are taken.
    pub(super) tables: Vec<Table>,
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
    /// The registration, if it is pinned, and by a table of ours.
    pub(super) buffer: Option<Buffer>,
    /// Those of the parts behind the first [`BUFFER_BYTES_MAX`].
    pub(super) more: Box<[Buffer]>,
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
        let mut held = Held {
            bytes: bytes.clone(),
            kind: Kind::Pinned,
            buffer: Some(self.pin_part(&first)?),
            more: Box::default(),
        };
        if first.end < bytes.end {
            let rest: Result<_, _> = self.pin_all(&(first.end..bytes.end));
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

    fn pin_all(&mut self, bytes: &Range<usize>) -> Result<Box<[Buffer]>, LockError> {
        let mut pinned = Vec::new();
        for part in parts(bytes) {
            match self.pin_part(&part) {
                Ok(buffer) => pinned.push(buffer),
                Err(error) => {
                    pinned.iter().for_each(|buffer| self.unpin_part(*buffer));
                    return Err(error);
                }
            }
        }
        Ok(pinned.into())
    }

    fn pin_part(&mut self, part: &Range<usize>) -> Result<Buffer, LockError> {
        for (table, number) in self.tables.iter_mut().zip(0..) {
            if let Some(slot) = table.pin(part) {
                let slot = slot.map_err(|e| error::diagnose(part, Kind::Pinned, e))?;
                return Ok(Buffer {
                    table: number,
                    slot,
                });
            }
        }
        let table = Table::on_own_ring().map_err(|source| LockError::Ring { source })?;
        self.tables.push(table);
        self.pin_part(part)
    }

    fn unpin(&mut self, held: &Held) {
        for &buffer in held.buffer.iter().chain(&held.more) {
            self.unpin_part(buffer);
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
