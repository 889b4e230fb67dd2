//! Who watches a channel, kept so that nobody costs what all others cost.
//!
//! Of many viewers nearly all are members of groups, which need nothing when a packet comes or is
//! due. They are kept apart from those that are sent something alone.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use crate::channels::viewer::{Viewer, Watched};
use crate::channels::viewing::Way;

/// All viewers, each once, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Viewers {
    /// Those that are sent something alone, or will be.
    busy: BTreeMap<u64, Viewer>,
    /// Those whose tracks all come from groups. It stays so for as long as they are here.
    joined: BTreeMap<u64, Viewer>,
}

impl Viewers {
    /// One that has just come.
    pub(super) fn insert(&mut self, viewer: Viewer) {
        self.busy.insert(viewer.id, viewer);
    }

    /// Tells one that it plays.
    pub(super) fn start(&mut self, id: u64) {
        if let Some(viewer) = self.busy.get_mut(&id) {
            viewer.is_held = false;
        }
    }

    /// Sets those apart that have become members of groups with all of their tracks.
    pub(super) fn set_apart(&mut self) {
        let playing = self.busy().filter(|viewer| !viewer.is_held);
        let joined = playing.filter(|viewer| viewer.tracks.iter().all(|it| it.is_member));
        let joined: Vec<_> = joined.map(|viewer| viewer.id).collect();
        for id in joined {
            self.joined.extend(self.busy.remove_entry(&id));
        }
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Viewer> {
        let joined = self.joined.remove(&id);
        joined.or_else(|| self.busy.remove(&id))
    }

    /// Those that are sent something alone, or will be.
    pub(super) fn busy(&self) -> impl Iterator<Item = &Viewer> {
        self.busy.values()
    }

    /// The same.
    pub(super) fn busy_mut(&mut self) -> impl Iterator<Item = &mut Viewer> {
        self.busy.values_mut()
    }

    /// How many have been told that they play.
    pub(super) fn playing(&self) -> usize {
        let busy = self.busy().filter(|viewer| !viewer.is_held);
        busy.count() + self.joined.len()
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Viewer> {
        self.busy.values().chain(self.joined.values())
    }
}

/// Whose turn it is, of those that are sent datagrams alone: so many in a round, so that a crowd
/// that comes at once does not make members late.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Who had the last turn of the round before, if others had none.
    after: Option<u64>,
    last: Option<u64>,
    taken: usize,
    has_more: bool,
}

/// Viewers that have their turn in a round. Each is sent so little that all of them together take a
/// few milliseconds.
pub(super) const VIEWERS_AT_ONCE: usize = 256;

impl Turns {
    /// Whether a viewer has its turn in this round; each is asked about, in order. Who gets frames,
    /// or nothing, always has.
    pub(super) fn takes(&mut self, viewer: &Viewer) -> bool {
        let is_datagrams = |it: &Watched| matches!(it.way, Way::Datagrams(..));
        let is_due = |it: &Watched| is_datagrams(it) && it.due_in_ns(0, 0).is_some();
        if !viewer.tracks.iter().any(is_due) {
            return true;
        }
        if self.after.is_some_and(|after| viewer.id <= after) {
            return false;
        }
        if self.taken == VIEWERS_AT_ONCE {
            self.has_more = true;
            return false;
        }
        self.taken += 1;
        self.last = Some(viewer.id);
        true
    }

    /// All have been asked about.
    pub(super) fn end(&mut self) {
        *self = Self {
            after: self.last.filter(|_| self.has_more),
            ..Self::default()
        };
    }
}

/// How many sessions are members of groups: a player that died and came back at the same port has
/// two for a while, of which the group knows one.
#[derive(Debug, Default)]
pub(super) struct Members(HashMap<Member, usize>);

/// A track, the key whose ports it is sent from, the address of ours and its own.
type Member = (usize, Option<usize>, SocketAddr, SocketAddr);

impl Members {
    pub(super) fn add(&mut self, watched: &Watched) {
        if let Some(member) = member(watched) {
            *self.0.entry(member).or_insert(0) += 1;
        }
    }

    /// Whether no other session is left there.
    pub(super) fn remove(&mut self, watched: &Watched) -> bool {
        let Some(member) = member(watched) else {
            return false;
        };
        match self.0.get_mut(&member) {
            Some(count) if *count > 1 => {
                *count -= 1;
                false
            }
            _ => {
                self.0.remove(&member);
                true
            }
        }
    }

    /// Whether these are all that there are.
    #[cfg(test)]
    pub(super) fn are<'a>(&self, members: impl Iterator<Item = &'a Watched>) -> bool {
        let mut counted = Self::default();
        members.for_each(|watched| counted.add(watched));
        counted.0 == self.0
    }
}

fn member(watched: &Watched) -> Option<Member> {
    let Way::Datagrams(local, to) = watched.way else {
        return None;
    };
    // The key lives for as long as who has it, so no other has its address.
    let key = watched.ports().map(|key| Arc::as_ptr(key).addr());
    Some((watched.track, key, local, to))
}
