//! Of which addresses an agent has told its program something, and what.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

/// What was told of each address, of so many at most.
#[derive(Debug)]
pub(super) struct Targets<T> {
    told: HashMap<IpAddr, T>,
    /// The same addresses, in the order in which they came.
    order: VecDeque<IpAddr>,
    targets_max: usize,
}

impl<T> Targets<T> {
    pub(super) fn new(targets_max: usize) -> Self {
        Self {
            told: HashMap::new(),
            order: VecDeque::new(),
            targets_max,
        }
    }

    /// Forgets whoever has been here for longest, if that address would be one too many, and says
    /// whom. One, and not all: a program that names addresses without end would have all others'
    /// asked for again and again.
    pub(super) fn make_room_for(&mut self, ip: IpAddr) -> Option<IpAddr> {
        if self.told.len() < self.targets_max || self.told.contains_key(&ip) {
            return None;
        }
        let oldest = self.order.pop_front()?;
        self.told.remove(&oldest);
        Some(oldest)
    }

    /// Remembers what was told of an address; what was before.
    pub(super) fn insert(&mut self, ip: IpAddr, told: T) -> Option<T> {
        let before = self.told.insert(ip, told);
        if before.is_none() {
            self.order.push_back(ip);
        }
        before
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.order.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_address_makes_room_alone() {
        let [a, b, c] = [1, 2, 3].map(|host| IpAddr::from([192, 0, 2, host]));
        let mut targets = Targets::new(2);
        for ip in [a, b] {
            assert_eq!(targets.make_room_for(ip), None);
            assert_eq!(targets.insert(ip, "told"), None);
        }
        // Who is known needs none, and is not younger for being told again.
        assert_eq!(targets.make_room_for(a), None);
        assert_eq!(targets.insert(a, "again"), Some("told"));
        assert_eq!(targets.make_room_for(c), Some(a));
        assert_eq!(targets.insert(c, "told"), None);
        assert!(targets.addresses().eq([b, c]));
        assert_eq!(targets.make_room_for(a), Some(b));
    }
}
