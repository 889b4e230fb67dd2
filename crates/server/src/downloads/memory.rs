//! Memory that answers hold until their clients have taken them: pages, playlists, segments that
//! are copied and those of live channels. A client that takes nothing holds all that it asked for.
//!
//! It is counted by where it lies, so that what many get counts once: for all connections together,
//! for those of one network, and for each. What live channels keep anyway is no answer's; what of
//! it an answer holds alone counts, once the channel has let it go.

use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::clock::monotonic_ns;

use super::spare::Spare;
use crate::hls_live::HlsStats;

/// Bytes that answers hold of memory, beside what live channels keep; one more gets 503. Of what
/// channels keep still, which costs nothing more, there may be as much again: who holds the rest
/// does not keep viewers of channels out.
pub const MADE_BYTES_MAX: usize = 256 << 20;

/// Of those, what one connection holds before its next answer gets 503. An answer may be longer.
pub const CONNECTION_MADE_BYTES_MAX: usize = 32 << 20;

/// What a connection may hold whatever other networks do.
pub const CONNECTION_MADE_BYTES_MIN: usize = 64 << 10;

/// What a client is told whose answer would hold too much.
pub(super) const CROWDED: &str = "too much waits in memory to be taken; take it, or try later";

/// Less of an answer is not counted: the request itself costs as much.
const COUNTED_BYTES_MIN: usize = 4 << 10;

/// What all connections hold together.
#[derive(Clone, Debug)]
pub(crate) struct MadeBytes {
    all: Rc<RefCell<Counted>>,
    /// Of what memory there is, whatever may be held.
    spare: Rc<Spare>,
    /// What those of one network may hold beside what channels keep.
    client_max: usize,
    /// Of live channels, of which it is known what they keep.
    live: Arc<HlsStats>,
}

/// What all connections of one network hold together.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientBytes(Rc<RefCell<Counted>>);

impl MadeBytes {
    /// Nobody holds any yet; those of one network are to hold `client_max` at the most.
    pub(crate) fn new(client_max: usize, live: &Arc<HlsStats>) -> Self {
        Self::within(client_max, live, Spare::new())
    }

    fn within(client_max: usize, live: &Arc<HlsStats>, spare: Spare) -> Self {
        Self {
            all: Rc::default(),
            spare: Rc::new(spare),
            client_max,
            live: Arc::clone(live),
        }
    }

    /// What those of one network may hold while channels keep so much: of that the same part as of
    /// the rest. One that may have all is bounded as all are.
    fn client_most(&self, kept: usize) -> usize {
        if self.client_max >= MADE_BYTES_MAX {
            return usize::MAX;
        }
        let of_kept = kept.saturating_mul(self.client_max) / MADE_BYTES_MAX;
        self.client_max.saturating_add(of_kept)
    }

    /// What all may hold beside what channels keep, while they hold so much.
    fn made_max(&self, held_bytes: usize) -> usize {
        let most = self.spare.bytes_max(held_bytes as u64, monotonic_ns());
        usize::try_from(most).map_or(MADE_BYTES_MAX, |most| most.min(MADE_BYTES_MAX))
    }

    /// What one connection holds of it, beside others of its network: nothing yet.
    pub(super) fn of_connection(&self, client: &ClientBytes) -> Memory {
        Memory {
            of: self.clone(),
            client: client.clone(),
            own: Rc::default(),
        }
    }
}

/// What a connection holds.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    of: MadeBytes,
    client: ClientBytes,
    own: Rc<RefCell<Counted>>,
}

/// Bytes in one place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// Where, if others may have the same.
    address: Option<usize>,
    bytes: usize,
    /// Whether a live channel keeps it now.
    is_kept: bool,
}

impl Part {
    /// What others may have as well. It stays where it is while it is counted.
    pub(super) const fn shared(address: usize, bytes: usize) -> Self {
        Self {
            address: Some(address),
            bytes,
            is_kept: false,
        }
    }

    /// The same, which a live channel keeps now.
    pub(super) const fn kept(address: usize, bytes: usize) -> Self {
        Self {
            is_kept: true,
            ..Self::shared(address, bytes)
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
            is_kept: false,
        }])
    }

    /// Counts what an answer holds; `None` if that would be too much.
    pub(super) fn hold(&self, mut parts: Vec<Part>) -> Option<Reserved> {
        parts.retain(|part| part.bytes >= COUNTED_BYTES_MIN);
        let mut counted = [&self.of.all, &self.client.0, &self.own].map(|it| it.borrow_mut());
        let [all_bytes, client_bytes, own_bytes] = counted
            .each_ref()
            .map(|it| it.bytes.saturating_add(it.missing(&parts)));
        let kept = self.of.live.kept_bytes.load(Ordering::Relaxed);
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        let made_max = self.of.made_max(counted[0].bytes.saturating_sub(kept));
        let most = match parts.iter().all(|part| part.is_kept) {
            true => 2 * made_max,
            false => made_max,
        };
        let is_small = own_bytes <= CONNECTION_MADE_BYTES_MIN;
        let has_room =
            counted[2].bytes < CONNECTION_MADE_BYTES_MAX && all_bytes <= kept.saturating_add(most);
        let is_fair = client_bytes <= self.of.client_most(kept);
        if !parts.is_empty() && !(is_fair && (is_small || has_room)) {
            return None;
        }
        for &part in &parts {
            counted.iter_mut().for_each(|it| it.add(part));
        }
        drop(counted);
        Some(Reserved {
            of: self.clone(),
            parts,
        })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let Memory { of, client, own } = &self.of;
        for counted in [&of.all, &client.0, own] {
            let mut counted = counted.borrow_mut();
            self.parts.iter().for_each(|&part| counted.remove(part));
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

    const CLIENT_MAX: usize = MADE_BYTES_MAX / 4;

    fn all() -> MadeBytes {
        of_much(CLIENT_MAX, &Arc::default())
    }

    /// Those of a machine that has memory for all of it.
    fn of_much(client_max: usize, live: &Arc<HlsStats>) -> MadeBytes {
        MadeBytes::within(client_max, live, Spare::of(|| u64::MAX))
    }

    /// A connection from a network of its own.
    fn connection(all: &MadeBytes) -> Memory {
        all.of_connection(&ClientBytes::default())
    }

    fn bytes(counted: &Rc<RefCell<Counted>>) -> usize {
        let counted = counted.borrow();
        assert!(counted.holders.len() <= counted.bytes);
        counted.bytes
    }

    #[test]
    fn a_connection_holds_its_share_and_one_answer_more() {
        let all = all();
        let own = connection(&all);
        // Whatever its length, the first one goes through.
        let long = own.reserve(2 * CONNECTION_MADE_BYTES_MAX).unwrap();
        assert!(own.reserve(MIB).is_none());
        assert!(connection(&all).reserve(MIB).is_some(), "another's");
        drop(long);
        let mut held = vec![own.reserve(CONNECTION_MADE_BYTES_MAX - 1).unwrap()];
        held.extend(own.reserve(MIB));
        assert_eq!(bytes(&own.own), CONNECTION_MADE_BYTES_MAX - 1 + MIB);
        assert!(own.reserve(COUNTED_BYTES_MIN).is_none());
        assert!(own.reserve(COUNTED_BYTES_MIN - 1).is_some());
        drop(held);
        assert_eq!((bytes(&own.own), bytes(&all.all)), (0, 0));
    }

    #[test]
    fn all_connections_hold_no_more_than_may_be() {
        let all = all();
        let hold = |bytes| connection(&all).reserve(bytes);
        let mut held: Vec<_> = (0..MADE_BYTES_MAX / MIB)
            .map(|_| hold(MIB).unwrap())
            .collect();
        assert_eq!(bytes(&all.all), MADE_BYTES_MAX);
        assert!(hold(CONNECTION_MADE_BYTES_MIN + 1).is_none());
        // Playlists reach everybody still.
        let own = connection(&all);
        let small = own.reserve(CONNECTION_MADE_BYTES_MIN);
        assert!(small.is_some() && own.reserve(COUNTED_BYTES_MIN).is_none());
        drop((small, held.pop()));
        assert!(hold(MIB + 1).is_none() && hold(MIB).is_some());
        drop(held);
        assert_eq!(bytes(&all.all), 0);
    }

    /// A small container is not ended for what its clients are slow to take.
    #[test]
    fn half_of_what_memory_is_left_is_held_at_the_most() {
        let little = Spare::of(|| 8 << 20);
        let all = MadeBytes::within(CLIENT_MAX, &Arc::default(), little);
        let held = connection(&all).reserve(4 * MIB);
        assert!(held.is_some() && connection(&all).reserve(4 * MIB).is_none());
        // Playlists reach everybody still.
        let small = connection(&all).reserve(CONNECTION_MADE_BYTES_MIN);
        assert!(small.is_some());
        drop(held);
        assert!(connection(&all).reserve(3 * MIB).is_some());
    }

    // SPECIFICATION.md: 20
    #[test]
    fn those_of_one_network_leave_others_their_room() {
        let all = all();
        let client = ClientBytes::default();
        let parts = |at| vec![Part::kept(at, MIB)];
        let mut held = Vec::new();
        // Of each of many connections a few parts of channels, which nobody reads.
        for at in 1..=2 * MADE_BYTES_MAX / MIB {
            held.extend(all.of_connection(&client).hold(parts(at)));
        }
        assert_eq!(held.len(), CLIENT_MAX / MIB);
        assert_eq!(bytes(&client.0), CLIENT_MAX);
        let own = all.of_connection(&client);
        assert!(own.reserve(COUNTED_BYTES_MIN).is_none(), "however small");
        assert!(own.hold(parts(1)).is_some(), "its network has it");
        assert!(connection(&all).reserve(CLIENT_MAX).is_some(), "another's");
        held.clear();
        assert_eq!((bytes(&client.0), bytes(&all.all)), (0, 0));
    }

    #[test]
    fn what_channels_keep_has_room_when_others_have_taken_theirs() {
        let all = all();
        let of_film = |bytes| connection(&all).reserve(bytes);
        let mut held: Vec<_> = (0..4).map(|_| of_film(CLIENT_MAX)).collect();
        assert!(held.iter().all(Option::is_some) && of_film(MIB).is_none());
        let part = |at| connection(&all).hold(vec![Part::kept(at, CLIENT_MAX)]);
        held.extend((1..=4).map(part));
        assert!(held.iter().all(Option::is_some) && part(5).is_none());
        let both = vec![Part::kept(1, MIB), Part::shared(9, MIB)];
        assert!(connection(&all).hold(both).is_none());
    }

    #[test]
    fn a_network_has_its_part_of_what_channels_keep() {
        let live: Arc<HlsStats> = Arc::default();
        live.kept_bytes.store(1 << 30, Ordering::Relaxed);
        // Of its viewers each holds a part that it does not read.
        let held_of = |client_max| {
            let all = of_much(client_max, &live);
            let client = ClientBytes::default();
            let viewer = |at| all.of_connection(&client).hold(vec![Part::kept(at, MIB)]);
            let held: Vec<_> = (1..=2000).filter_map(viewer).collect();
            held.len()
        };
        assert_eq!(held_of(CLIENT_MAX), 64 + 256);
        let of_all = 1024 + 2 * MADE_BYTES_MAX / MIB;
        assert_eq!(held_of(MADE_BYTES_MAX), of_all, "it may have all");
    }

    #[test]
    fn what_many_get_counts_once() {
        let all = all();
        let connections: Vec<_> = (0..1000).map(|_| connection(&all)).collect();
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
        let all = of_much(MADE_BYTES_MAX, &live);
        let hold = |address| {
            let part = Part::shared(address, MADE_BYTES_MAX);
            connection(&all).hold(vec![part])
        };
        let first = hold(1);
        assert!(first.is_some() && hold(2).is_none());
        live.kept_bytes
            .store(MADE_BYTES_MAX as u64, Ordering::Relaxed);
        assert!(hold(2).is_some() && hold(1).is_some());
    }
}
