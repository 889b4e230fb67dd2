//! Codecs: of each, what its configuration tells and how its samples become packets.
//!
//! A container gives the configuration that it found to one of these functions and gets a
//! [`Codec`](super::packetizer::Codec), or an error in words for whoever looks why a track does not
//! play.

mod bits;
pub(in crate::media) mod h264;
pub(in crate::media) mod h265;
pub(in crate::media) mod mpeg4_visual;
pub(in crate::media) mod mpeg_video;
mod nal;
#[cfg(test)]
mod testing;
