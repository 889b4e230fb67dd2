//! Codecs: of each, what its configuration tells and how its samples become packets.
//!
//! A container gives the configuration that it found to one of these functions and gets a
//! [`Codec`](super::packetizer::Codec), or an error in words for whoever looks why a track does not
//! play.

pub(in crate::media) mod aac;
pub(in crate::media) mod ac3;
pub(in crate::media) mod av1;
mod bit_reader;
mod bits;
pub(in crate::media) mod config;
mod descriptor;
pub(in crate::media) mod dolby_vision;
pub(in crate::media) mod eac3;
pub(in crate::media) mod first_frame;
mod frames;
pub(crate) mod h264;
pub(in crate::media) mod h265;
pub(in crate::media) mod jpeg;
pub(in crate::media) mod latm;
pub(in crate::media) mod mpeg4_visual;
pub(in crate::media) mod mpeg_audio;
pub(in crate::media) mod mpeg_video;
pub(in crate::media) mod nal;
pub(in crate::media) mod opus;
pub(in crate::media) mod pcm;
#[cfg(any(test, feature = "testing"))]
pub(in crate::media) mod testing;
pub(in crate::media) mod text;
pub(in crate::media) mod vp8;
pub(crate) mod vp9;
mod vui;
