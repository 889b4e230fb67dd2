//! How many sessions each player has.
//!
//! A player that died and came back at the same port has two sessions until the first times out.
//! It gets the stream from its first session's PLAY to its last session's end.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::SocketAddr;

/// Sessions by our address and the player's.
#[derive(Debug, Default)]
pub(super) struct Players(BTreeMap<(SocketAddr, SocketAddr), u32>);

impl Players {
    /// Counts one more session of the player.
    pub(super) fn add(&mut self, local: SocketAddr, player: SocketAddr) {
        *self.0.entry((local, player)).or_default() += 1;
    }

    /// Counts one session less; whether that was the player's last.
    pub(super) fn remove(&mut self, local: SocketAddr, player: SocketAddr) -> bool {
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
        let (local, player) = (([127, 0, 0, 1], 0).into(), ([127, 0, 0, 2], 5004).into());
        let mut players = Players::default();
        assert!(!players.remove(local, player), "nobody was there");
        players.add(local, player);
        players.add(local, player);
        assert!(!players.remove(local, player));
        assert!(players.remove(local, player));
        assert!(!players.remove(local, player));
    }
}
