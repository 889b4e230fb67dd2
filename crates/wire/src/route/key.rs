//! Names as numbers, and how much a node wants what.

/// The name of a node, a film or a channel, hashed.
///
/// It is the same on every machine and in every version: nodes of two versions that disagreed
/// would send viewers to and fro.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Key(u64);

impl Key {
    /// Of a name: FNV-1a (RFC 9923), and the finalizer of SplitMix64, since FNV alone leaves names
    /// that differ in their last letter close together.
    #[must_use]
    pub fn of(name: &str) -> Self {
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(mixed(hash))
    }

    /// The number that other nodes are told.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// The key that another node has told so.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// How much `self`, a node of that weight, wants `what`: of all nodes the one with the highest
    /// score is the one.
    ///
    /// Weighted rendezvous hashing (Thaler and Ravishankar 1998; the logarithm: Schindelhauer and
    /// Schomaker 2005): of many films each node scores highest for a part as large as its part of
    /// all weights; a node that goes takes nothing from the others' films, and one that comes
    /// takes from each its part alone. A weight of 0 scores 0, which is less than any other.
    #[must_use]
    pub fn score(self, weight: f64, what: Self) -> f64 {
        weight / -self.uniform(what).ln()
    }

    /// A number between 0 and 1, neither of them included, that only the two decide.
    #[allow(clippy::cast_precision_loss, reason = "53 bits are what a float holds")]
    fn uniform(self, what: Self) -> f64 {
        // Not `self ^ what` alone: a node and a film of one name would give 0 for every such pair.
        let both = mixed(self.0 ^ what.0.rotate_left(32).wrapping_add(0x9e37_79b9_7f4a_7c15));
        ((both >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of all versions have to agree. From a second implementation, in Python, whose FNV-1a
    /// gives the published 0xaf63dc4c8601ec8c for "a".
    #[test]
    fn keys_are_what_they_have_always_been() {
        assert_eq!(Key::of(""), Key(0xf52a_15e9_a9b5_e89b));
        assert_eq!(Key::of("a"), Key(0x02c0_bdbf_4814_20f8));
        assert_eq!(Key::of("films/demo.mp4"), Key(0xe18a_f04e_bfff_ed19));
        let score = Key::of("node-1").score(1.0, Key::of("films/demo.mp4"));
        assert!((score - 0.521428524591072).abs() < 1e-12, "{score}");
    }

    #[test]
    fn each_node_wants_its_part_of_the_films() {
        let weights = [1.0, 1.0, 2.0, 4.0];
        let nodes: Vec<Key> = (0..4).map(|i| Key::of(&format!("node-{i}"))).collect();
        let mut won = [0_u32; 4];
        for film in 0..80_000 {
            let film = Key::of(&format!("film-{film}.mp4"));
            let scores: Vec<f64> = (0..4).map(|i| nodes[i].score(weights[i], film)).collect();
            let best = (0..4).max_by(|&a, &b| scores[a].total_cmp(&scores[b]));
            won[best.unwrap()] += 1;
        }
        for (won, due) in won.into_iter().zip([10_000_u32, 10_000, 20_000, 40_000]) {
            // Five standard deviations of the smallest part are 470.
            assert!(won.abs_diff(due) < 700, "{won} of {due}");
        }
    }

    #[test]
    fn a_node_without_weight_wants_nothing() {
        let film = Key::of("film");
        assert!(Key::of("a").score(0.0, film) < Key::of("b").score(1e-9, film));
    }

    #[test]
    fn a_node_and_a_film_of_one_name_are_nothing_special() {
        let drawn: Vec<f64> = ["a", "b", "c"]
            .map(|n| Key::of(n).uniform(Key::of(n)))
            .into();
        assert!(
            drawn
                .windows(2)
                .all(|pair| (pair[0] - pair[1]).abs() > 1e-9),
            "{drawn:?}"
        );
    }
}
