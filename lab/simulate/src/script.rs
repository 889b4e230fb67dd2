//! Who comes, as it is told to others: so that real nodes can have the viewers that were simulated.

use onrush_wire::route::Key;

/// A viewer who came and was served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Arrival {
    /// In which second, from 1.
    pub at_s: u32,
    /// The film's rank, from 0.
    pub film: u32,
    /// The node that was asked first.
    pub asked: u32,
    /// The node that served it.
    pub served: u32,
    /// For how many seconds it stays.
    pub stay_s: u32,
}

/// The name of a node: what its place among the others follows from.
#[must_use]
pub fn node_name(place: u32) -> String {
    format!("node-{place}")
}

/// The path of a film: what its home follows from.
#[must_use]
pub fn film_path(rank: u32) -> String {
    format!("films/{rank}.mp4")
}

pub(crate) fn node_key(place: u32) -> Key {
    Key::of(&node_name(place))
}

pub(crate) fn film_key(rank: u32) -> Key {
    Key::of(&film_path(rank))
}
