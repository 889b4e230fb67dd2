//! The game: players who walk about in a world of 4 x 4 parts, and what each is told of the others.
//!
//! The world stays as large as it is however many players it has, so a player has the more others
//! around it: its interest set is everybody in its part and in the eight around that, and its state
//! is twelve bytes for each of them. The world's ends meet, so every part has eight neighbours.

use crate::random::Random;

/// Parts of the world in a row.
const ROW: usize = 4;
/// Parts of the world.
pub(super) const PARTS: usize = ROW * ROW;
/// Bytes that tell of a player: who it is and where.
const PLAYER_BYTES: usize = 12;
/// What a player walks in a tick, at most, when the world is one long.
const STEP: f32 = 0.002;

/// The world.
pub(super) struct World {
    players: Vec<Player>,
    /// By part: what tells of the players there.
    told: Vec<Vec<u8>>,
}

struct Player {
    at: [f32; 2],
    step: [f32; 2],
    part: usize,
}

/// A player who walked from one part into another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Move {
    /// Its number.
    pub(super) player: usize,
    /// The part where it was.
    pub(super) from: usize,
    /// The part where it is.
    pub(super) to: usize,
}

impl World {
    /// So many players, who are anywhere; the same ones each time.
    pub(super) fn new(count: usize) -> Self {
        let mut random = Random::new(20);
        #[allow(clippy::cast_possible_truncation, reason = "a place need not be exact")]
        let mut unit = move || random.unit() as f32;
        let players = (0..count).map(|_| {
            let at = [unit().min(END), unit().min(END)];
            let step = [0, 1].map(|_| (unit() * 2.0 - 1.0) * STEP);
            let part = part_of(at);
            Player { at, step, part }
        });
        let mut world = Self {
            players: players.collect(),
            told: vec![Vec::new(); PARTS],
        };
        world.tell();
        world
    }

    /// Who is in that part.
    pub(super) fn players_in(&self, part: usize) -> impl Iterator<Item = usize> + '_ {
        let here =
            move |(number, player): (usize, &Player)| (player.part == part).then_some(number);
        self.players.iter().enumerate().filter_map(here)
    }

    /// A tick: everybody walks. Who comes into another part is told in `moves`.
    pub(super) fn tick(&mut self, moves: &mut Vec<Move>) {
        moves.clear();
        for (number, player) in self.players.iter_mut().enumerate() {
            for (at, step) in player.at.iter_mut().zip(player.step) {
                *at = (*at + step).rem_euclid(1.0).min(END);
            }
            let (from, to) = (player.part, part_of(player.at));
            if from != to {
                player.part = to;
                moves.push(Move {
                    player: number,
                    from,
                    to,
                });
            }
        }
        self.tell();
    }

    /// What the players in that part are told: who is there and around it, and where.
    pub(super) fn state(&self, part: usize, state: &mut Vec<u8>) {
        state.clear();
        let (row, column) = (part / ROW, part % ROW);
        for row in [row + ROW - 1, row, row + 1] {
            for column in [column + ROW - 1, column, column + 1] {
                state.extend_from_slice(&self.told[row % ROW * ROW + column % ROW]);
            }
        }
    }

    fn tell(&mut self) {
        self.told.iter_mut().for_each(Vec::clear);
        for (number, player) in (0_u32..).zip(&self.players) {
            let [x, y] = player.at.map(f32::to_be_bytes);
            let mut bytes = [0; PLAYER_BYTES];
            for (place, word) in bytes.chunks_mut(4).zip([number.to_be_bytes(), x, y]) {
                place.copy_from_slice(&word);
            }
            self.told[player.part].extend_from_slice(&bytes);
        }
    }
}

/// The largest place: a float that is rounded up to one would be in no part.
const END: f32 = 1.0 - f32::EPSILON;

fn part_of([x, y]: [f32; 2]) -> usize {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to less than ROW"
    )]
    let index = |at: f32| (at * 4.0) as usize;
    index(y).min(ROW - 1) * ROW + index(x).min(ROW - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_is_somewhere_and_told_of_all_around() {
        let mut world = World::new(1600);
        let (mut moves, mut state) = (Vec::new(), Vec::new());
        let mut parts: Vec<Vec<usize>> =
            (0..PARTS).map(|p| world.players_in(p).collect()).collect();
        for _ in 0..200 {
            world.tick(&mut moves);
            for Move { player, from, to } in &moves {
                let place = parts[*from].iter().position(|it| it == player).unwrap();
                parts[*from].remove(place);
                parts[*to].push(*player);
            }
        }
        for (part, members) in parts.iter_mut().enumerate() {
            members.sort_unstable();
            assert_eq!(*members, world.players_in(part).collect::<Vec<_>>());
        }
        assert_eq!(parts.iter().map(Vec::len).sum::<usize>(), 1600);
        assert!(parts.iter().all(|members| members.len() > 10));
        // Part 0 is at a corner: its neighbours are at the other ends.
        let around = [0, 1, 3, 4, 5, 7, 12, 13, 15];
        let all: usize = around.iter().map(|&part: &usize| parts[part].len()).sum();
        world.state(0, &mut state);
        assert_eq!(state.len(), all * PLAYER_BYTES);
    }

    #[test]
    fn interest_sets_grow_with_the_players() {
        let state_bytes = |players| {
            let mut state = Vec::new();
            World::new(players).state(5, &mut state);
            state.len()
        };
        let (few, many) = (state_bytes(1000), state_bytes(10_000));
        assert!(many > 8 * few && many < 12 * few, "{few} {many}");
    }
}
