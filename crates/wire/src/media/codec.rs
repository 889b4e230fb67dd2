//! Codecs: of each, what its configuration tells and how its samples become packets.
//!
//! A container gives the configuration that it found to one of these functions and gets a
//! [`Codec`](super::packetizer::Codec), or an error in words for whoever looks why a track does not
//! play.

#[cfg(test)]
mod testing;

pub(in crate::media) mod av1;
pub(in crate::media) mod vp8;
pub(in crate::media) mod vp9;

mod descriptor;
