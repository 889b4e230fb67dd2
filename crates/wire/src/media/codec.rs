//! Codecs: of each, what its configuration tells and how its samples become packets.
//!
//! A container gives the configuration that it found to one of these functions and gets a
//! [`Codec`](super::packetizer::Codec), or an error in words for whoever looks why a track does not
//! play.

/// The first of the RTP payload types that a session defines for itself (RFC 3551, section 6).
pub(in crate::media) const PAYLOAD_TYPE_DYNAMIC: u8 = 96;
