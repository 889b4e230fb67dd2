//! Codecs: of each, what its configuration tells and how its samples become packets.
//!
//! A container gives the configuration that it found to one of these functions and gets a
//! [`Codec`](super::packetizer::Codec), or an error in words for whoever looks why a track does not
//! play.

pub(in crate::media) mod aac;
pub(in crate::media) mod av1;
mod bit_reader;
mod bits;
mod descriptor;
pub(in crate::media) mod h264;
pub(in crate::media) mod h265;
mod nal;
#[cfg(test)]
mod testing;
pub(in crate::media) mod vp8;
pub(in crate::media) mod vp9;
