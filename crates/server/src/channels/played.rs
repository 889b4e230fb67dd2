//! What was given to players.

/// What all players of a channel were given, each packet counted once.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Played {
    /// Packets.
    pub packets: u64,
    /// Bytes of their payload.
    pub payload_bytes: u64,
}
