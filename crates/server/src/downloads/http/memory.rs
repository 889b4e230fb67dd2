//! Memory that answers hold until their clients have taken them: pages, playlists, segments that
//! are copied and those of live channels. A client that takes nothing holds all that it asked for.
//!
//! It is counted by where it lies, so that what many get counts once: for all connections together,
//! and for each. What live channels keep anyway is no answer's; what of it an answer holds alone
//! counts, once the channel has let it go.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::hls_live::HlsStats;

/// Bytes that answers hold of memory, beside what live channels keep; one more gets 503.
pub const MADE_BYTES_MAX: usize = 256 << 20;

/// Of those, what one connection holds before its next answer gets 503. An answer may be longer.
pub const CONNECTION_MADE_BYTES_MAX: usize = 32 << 20;

/// What a connection may hold whatever others do.
pub const CONNECTION_MADE_BYTES_MIN: usize = 64 << 10;

/// Less of an answer is not counted: the request itself costs as much.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// What all connections hold together.
#[derive(Clone, Debug)]
pub(crate) struct MadeBytes {
    all: Rc<RefCell<Counted>>,
    /// Of live channels, of which it is known what they keep.
    live: Arc<HlsStats>,
}

impl MadeBytes {
    /// Nobody holds any yet.
    pub(crate) fn new(live: &Arc<HlsStats>) -> Self {
        Self {
            all: Rc::default(),
            live: Arc::clone(live),
        }
    }

    /// What one connection holds of it: nothing yet.
    pub(super) fn of_connection(&self) -> Memory {
        Memory {
            of: self.clone(),
            own: Rc::default(),
        }
    }
}

/// What a connection holds.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    of: MadeBytes,
    own: Rc<RefCell<Counted>>,
}

/// Bytes in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where, if others may have the same.
    address: Option<usize>,
    bytes: usize,
}

impl Part {
    /// What others may have as well. It stays where it is while it is counted.
    pub(super) const fn shared(address: usize, bytes: usize) -> Self {
        Self {
            address: Some(address),
            bytes,
        }
    }
}

/// What is held of memory, until this is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    of: Memory,
    parts: Vec<Part>,
}

impl Memory {
    /// Room for so many bytes that nobody else has; `None` if there is none.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.hold(vec![Part {
            address: None,
            bytes,
        }])
    }

    /// Counts what an answer holds; `None` if that would be too much.
    pub(super) fn hold(&self, mut parts: Vec<Part>) -> Option<Reserved> {
        parts.retain(|part| part.bytes >= COUNTED_BYTES_MIN);
        let (all, own) = (&mut *self.of.all.borrow_mut(), &mut *self.own.borrow_mut());
        let own_bytes = own.bytes.saturating_add(own.missing(&parts));
        let all_bytes = all.bytes.saturating_add(all.missing(&parts));
        let kept = self.of.live.kept_bytes.load(Ordering::Relaxed);
        let most =
            usize::try_from(kept).map_or(usize::MAX, |kept| kept.saturating_add(MADE_BYTES_MAX));
        let is_small = own_bytes <= CONNECTION_MADE_BYTES_MIN;
        let has_room = own.bytes < CONNECTION_MADE_BYTES_MAX && all_bytes <= most;
        if !parts.is_empty() && !is_small && !has_room {
            return None;
        }
        for &part in &parts {
            all.add(part);
            own.add(part);
        }
        Some(Reserved {
            of: self.clone(),
            parts,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        for &part in &self.parts {
            self.of.of.all.borrow_mut().remove(part);
            self.of.own.borrow_mut().remove(part);
        }
    }
}

/// Bytes, each place once.
#[derive(Debug, Default)]
struct Counted {
    bytes: usize,
    /// How many hold what lies there.
    holders: HashMap<usize, usize>,
}

impl Counted {
    /// What would come to it with these.
    fn missing(&self, parts: &[Part]) -> usize {
        let is_missing = |part: &&Part| {
            let address = part.address;
            address.is_none_or(|at| !self.holders.contains_key(&at))
        };
        let missing = parts.iter().filter(is_missing).map(|part| part.bytes);
        missing.fold(0, usize::saturating_add)
    }

    fn add(&mut self, part: Part) {
        let holders = part.address.map(|at| self.holders.entry(at).or_insert(0));
        if let Some(holders) = holders {
            *holders += 1;
            if *holders > 1 {
                return;
            }
        }
        self.bytes = self.bytes.saturating_add(part.bytes);
    }

    fn remove(&mut self, part: Part) {
        if let Some(at) = part.address
            && let Entry::Occupied(mut holders) = self.holders.entry(at)
        {
            *holders.get_mut() -= 1;
            if *holders.get() > 0 {
                return;
            }
            holders.remove();
        }
        self.bytes = self.bytes.saturating_sub(part.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn all() -> MadeBytes {
        MadeBytes::new(&Arc::default())
    }

    fn bytes(counted: &Rc<RefCell<Counted>>) -> usize {
        let counted = counted.borrow();
        assert!(counted.holders.len() <= counted.bytes);
        counted.bytes
    }

    #[test]
    fn a_connection_holds_its_share_and_one_answer_more() {
        let all = all();
        let connection = all.of_connection();
        // Whatever its length, the first one goes through.
        let long = connection.reserve(2 * CONNECTION_MADE_BYTES_MAX).unwrap();
        assert!(connection.reserve(MIB).is_none());
        assert!(all.of_connection().reserve(MIB).is_some(), "another's");
        drop(long);
        let mut held = vec![connection.reserve(CONNECTION_MADE_BYTES_MAX - 1).unwrap()];
        held.extend(connection.reserve(MIB));
        assert_eq!(bytes(&connection.own), CONNECTION_MADE_BYTES_MAX - 1 + MIB);
        assert!(connection.reserve(COUNTED_BYTES_MIN).is_none());
        assert!(connection.reserve(COUNTED_BYTES_MIN - 1).is_some());
        drop(held);
        assert_eq!((bytes(&connection.own), bytes(&all.all)), (0, 0));
    }

    #[test]
    fn all_connections_hold_no_more_than_may_be() {
        let all = all();
        let hold = |bytes| all.of_connection().reserve(bytes);
        let mut held: Vec<_> = (0..MADE_BYTES_MAX / MIB)
            .map(|_| hold(MIB).unwrap())
            .collect();
        assert_eq!(bytes(&all.all), MADE_BYTES_MAX);
        assert!(hold(CONNECTION_MADE_BYTES_MIN + 1).is_none());
        // Playlists reach everybody still.
        let connection = all.of_connection();
        let small = connection.reserve(CONNECTION_MADE_BYTES_MIN);
        assert!(small.is_some() && connection.reserve(COUNTED_BYTES_MIN).is_none());
        drop((small, held.pop()));
        assert!(hold(MIB + 1).is_none() && hold(MIB).is_some());
        drop(held);
        assert_eq!(bytes(&all.all), 0);
    }

    #[test]
    fn what_many_get_counts_once() {
        let all = all();
        let connections: Vec<_> = (0..1000).map(|_| all.of_connection()).collect();
        let parts = || vec![Part::shared(1, MIB), Part::shared(2, 2 * MIB)];
        let mut held = Vec::new();
        for connection in &connections {
            held.extend([connection.hold(parts()), connection.hold(parts())]);
            assert_eq!(bytes(&connection.own), 3 * MIB);
        }
        assert!(held.iter().all(Option::is_some));
        assert_eq!(bytes(&all.all), 3 * MIB);
        held.truncate(1);
        assert_eq!(bytes(&all.all), 3 * MIB);
        held.clear();
        assert_eq!(bytes(&all.all), 0);
    }

    #[test]
    fn what_channels_keep_anyway_leaves_others_their_room() {
        let live: Arc<HlsStats> = Arc::default();
        let all = MadeBytes::new(&live);
        let hold = |address| {
            let part = Part::shared(address, MADE_BYTES_MAX);
            all.of_connection().hold(vec![part])
        };
        let first = hold(1);
        assert!(first.is_some() && hold(2).is_none());
        live.kept_bytes
            .store(MADE_BYTES_MAX as u64, Ordering::Relaxed);
        assert!(hold(2).is_some() && hold(1).is_some());
    }
}
