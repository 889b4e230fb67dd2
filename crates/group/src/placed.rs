//! Who is where in a half of the tables that the program at tc ingress reads.
//!
//! A lane has room for more members than it has, up to where the next begins. So one that joins is
//! given a place without moving another, and one that leaves only gives up its own. That place
//! rests as long as a packet may be at it that was on its way when it was given up.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use super::arrival::Since;
use super::lane_key::LaneKey;
use super::table::narrow;

/// An outlet's number, and who gets packets from it.
pub(super) type Member = (usize, SocketAddr);

type Table<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// A half.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) lanes: Vec<PlacedLane>,
    /// The lane and the slot of each.
    pub(super) slots: Table<Member, (u32, u32)>,
    /// Those who have no slot, and what the half had given when they came.
    pub(super) unplaced: Table<Member, Since>,
}

/// A lane's slots, within its half.
#[derive(Debug)]
pub(super) struct PlacedLane {
    pub(super) outlet: usize,
    pub(super) key: LaneKey,
    pub(super) first: u32,
    /// How many there may be.
    room: u32,
    /// How many the program looks at.
    pub(super) count: u32,
    /// Of these, those that nobody has, with the number of the packet from which on it is not at
    /// them any more; in that order.
    resting: VecDeque<(u32, u32)>,
}

impl Placed {
    /// Nobody has any slot that this half says.
    pub(super) fn clear(&mut self) {
        self.lanes.clear();
        self.slots.clear();
        self.unplaced.clear();
    }

    /// The number of a lane.
    pub(super) fn lane(&self, outlet: usize, key: LaneKey) -> Option<usize> {
        let is_it = |lane: &PlacedLane| (lane.outlet, lane.key) == (outlet, key);
        self.lanes.iter().position(is_it)
    }
}

impl PlacedLane {
    pub(super) fn has_members(&self) -> bool {
        self.count as usize > self.resting.len()
    }

    /// A lane whose first so many slots are taken.
    pub(super) fn new(
        outlet: usize,
        key: LaneKey,
        first: usize,
        count: usize,
        room: usize,
    ) -> Self {
        Self {
            outlet,
            key,
            first: narrow(first),
            room: narrow(room),
            count: narrow(count),
            resting: VecDeque::new(),
        }
    }

    /// A slot for one more, if there is one; `head` is the number of the packet whose turn it is.
    pub(super) fn take(&mut self, head: u32) -> Option<u32> {
        let is_free = |&(_, from): &(u32, u32)| head.wrapping_sub(from) < u32::MAX / 2;
        if self.resting.front().is_some_and(is_free) {
            return self.resting.pop_front().map(|(slot, _)| slot);
        }
        (self.count < self.room).then(|| {
            self.count += 1;
            self.first + self.count - 1
        })
    }

    /// Takes a slot back; `tail` is the number of the next packet that comes.
    pub(super) fn give_back(&mut self, slot: u32, tail: u32) {
        self.resting.push_back((slot, tail));
    }

    /// How many members it has.
    pub(super) fn members(&self) -> u32 {
        self.count - narrow(self.resting.len())
    }

    /// Whether the program looks at more slots of nobody than is worth it.
    pub(super) fn is_worn(&self) -> bool {
        let resting = narrow(self.resting.len());
        resting > RESTING_MIN && resting > self.count / 2
    }
}

/// Slots of nobody that a lane may have whatever it costs: a look at each, for each packet.
const RESTING_MIN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(count: usize, room: usize) -> PlacedLane {
        let key = LaneKey {
            ifindex: 1,
            source: [127, 0, 0, 1].into(),
            mtu_bytes: None,
        };
        PlacedLane::new(0, key, 100, count, room)
    }

    #[test]
    fn a_place_rests_until_no_packet_can_be_at_it() {
        let mut lane = lane(2, 3);
        lane.give_back(101, 8);
        assert_eq!(lane.members(), 1);
        // Packet 7 is on its way: it may be at 101.
        assert_eq!(lane.take(7), Some(102));
        assert_eq!(lane.take(7), None, "there is no more room");
        assert_eq!(lane.take(8), Some(101));
        assert_eq!(lane.take(8), None);
        assert_eq!((lane.members(), lane.count), (3, 3));
        // Numbers begin anew.
        lane.give_back(100, 2);
        assert_eq!(lane.take(u32::MAX), None);
        assert_eq!(lane.take(2), Some(100));
    }

    #[test]
    fn a_lane_is_worn_when_most_of_it_is_nobodys() {
        let mut lane = lane(140, 140);
        for slot in 0..70 {
            lane.give_back(100 + slot, 0);
        }
        assert!(!lane.is_worn());
        lane.give_back(170, 0);
        assert!(lane.is_worn());
    }
}
