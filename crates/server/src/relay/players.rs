//! How many sessions each player has.
//!
//! A player that died and came back at the same port has two for a while, until the first times
//! out. What it is sent begins with the first and ends with the last.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};

/// Sessions by our address and the player's.
#[derive(Debug, Default)]
pub(super) struct Seats(BTreeMap<(IpAddr, SocketAddr), u32>);

impl Seats {
    pub(super) fn take(&mut self, local: IpAddr, player: SocketAddr) {
        *self.0.entry((local, player)).or_default() += 1;
    }

    /// Whether that was the player's last.
    pub(super) fn leave(&mut self, local: IpAddr, player: SocketAddr) -> bool {
        let Entry::Occupied(mut sessions) = self.0.entry((local, player)) else {
            return false;
        };
        *sessions.get_mut() -= 1;
        let is_last = *sessions.get() == 0;
        if is_last {
            sessions.remove();
        }
        is_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_session_of_a_player_ends_it() {
        let (local, player) = ([127, 0, 0, 1].into(), ([127, 0, 0, 2], 5004).into());
        let mut seats = Seats::default();
        assert!(!seats.leave(local, player), "nobody was there");
        seats.take(local, player);
        seats.take(local, player);
        assert!(!seats.leave(local, player));
        assert!(seats.leave(local, player));
        assert!(!seats.leave(local, player));
    }
}
