//! MPEG-4 part 2 (ISO/IEC 14496-2) by RFC 6416.
//!
//! Packets are pieces of the elementary stream with nothing in front. A sample's headers stand at
//! its start, and so at the start of its first packet; the rest is cut to one size. The
//! configuration stands in the session description. It goes in front of sync samples, too, where
//! sample entries have different ones.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use super::super::packetizer::{Codec, CodecError, PacketSink, Packetizer, Unit};
use super::super::track::Medium;
use super::bits::Bits;

/// Bytes of one configuration at the most. Those of usual files have less than 100.
const CONFIGURATION_BYTES_MAX: usize = 1024;

/// The last byte of the start code of a visual object sequence (ISO/IEC 14496-2, table 6-3).
const SEQUENCE: u8 = 0xb0;

/// Last bytes of other start codes: a group of pictures, and a picture.
const GROUP: u8 = 0xb3;
const OBJECT: u8 = 0xb5;
pub(in crate::media) const PICTURE: u8 = 0xb6;

/// Whether an access unit begins with that start code where a picture stands in front of it: with
/// its headers or its picture.
pub(in crate::media) fn begins_unit(code: u8) -> bool {
    matches!(code, 0x00..=0x2f | SEQUENCE | GROUP | OBJECT | PICTURE)
}

/// The headers that an access unit begins with, if that of a video object layer is among them: what
/// [`codec`] wants as a configuration.
pub(in crate::media) fn configuration_of(unit: &[u8]) -> Option<&[u8]> {
    let is_end = |code: u8| matches!(code, GROUP | PICTURE);
    let behind = after_code(unit, is_end)?;
    let start = after_code(unit, |code| begins_unit(code) && !is_end(code))?;
    let headers = unit.len() - start.len() - 4..unit.len() - behind.len() - 4;
    let headers = unit.get(headers)?;
    // What users add may be longer than all of it.
    let layer = object_layer(headers)?;
    let end = after_code(layer, |_| true).map_or(0, |rest| rest.len() + 4);
    Some(&headers[..headers.len() - end])
}

/// Whether the picture of an access unit needs no other.
pub(in crate::media) fn is_intra(unit: &[u8]) -> bool {
    let picture = after_code(unit, |code| code == PICTURE);
    picture
        .and_then(<[u8]>::first)
        .is_some_and(|byte| byte >> 6 == 0)
}

/// Whether a configuration says that pictures are shown in the order in which they are decoded
/// (`low_delay`, ISO/IEC 14496-2, section 6.3.3).
pub(in crate::media) fn is_in_order(configuration: &[u8]) -> bool {
    let low_delay = |layer: &[u8]| {
        let mut bits = Bits::new(layer);
        pass_aspect(&mut bits)?;
        // Of the control parameters, which may not be there, it is the second.
        let is_told = bits.flag()?;
        bits.skip(2)?;
        Some(is_told && bits.flag()?)
    };
    object_layer(configuration)
        .and_then(low_delay)
        .unwrap_or(false)
}

/// What samples are that `configurations` describe: of each sample entry the decoder specific
/// information, which is the headers of the elementary stream down to that of the video object
/// layer. It is empty where these are in the samples.
///
/// # Errors
///
/// If a configuration has anything else, or more than [`CONFIGURATION_BYTES_MAX`] bytes.
pub(in crate::media) fn codec(configurations: &[&[u8]]) -> Result<Codec, CodecError> {
    let first = *configurations.first().unwrap_or(&&[][..]);
    for configuration in configurations {
        if configuration.len() > CONFIGURATION_BYTES_MAX {
            let max = CONFIGURATION_BYTES_MAX;
            return Err(broken(format!("a configuration of more than {max} bytes")));
        }
        if !configuration.is_empty() && object_layer(configuration).is_none() {
            return Err(broken("a configuration without a video object layer"));
        }
    }
    let sequence = after_code(first, |code| code == SEQUENCE);
    // What is not told is 1, Simple profile at level 1 (RFC 6416, section 7.1).
    let profile = sequence.and_then(|it| it.first().copied()).unwrap_or(1);
    let mut parameters = format!("profile-level-id={profile}");
    if !first.is_empty() {
        parameters += "; config=";
    }
    for byte in first {
        write!(parameters, "{byte:02X}").expect("a string takes all");
    }
    let differ = configurations.iter().any(|it| *it != first);
    let repeated = configurations.iter().filter(|_| differ);
    Ok(Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "MP4V-ES",
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some(parameters),
        codec_string: format!("mp4v.20.{profile}"),
        dimensions: object_layer(first).and_then(dimensions),
        video_range: None,
        packetizer: Arc::new(Mpeg4Visual {
            repeated: repeated.map(|it| it.to_vec()).collect(),
        }),
    })
}

fn broken(what: impl Into<Cow<'static, str>>) -> CodecError {
    CodecError::Configuration {
        codec: "MPEG-4 part 2",
        what: what.into(),
    }
}

/// What follows the first start code whose last byte `is_it`.
fn after_code(bytes: &[u8], is_it: impl Fn(u8) -> bool) -> Option<&[u8]> {
    let at = bytes
        .windows(4)
        .position(|it| it[..3] == [0, 0, 1] && is_it(it[3]))?;
    Some(&bytes[at + 4..])
}

fn object_layer(configuration: &[u8]) -> Option<&[u8]> {
    after_code(configuration, |code| (0x20..=0x2f).contains(&code))
}

/// Width and height that the header of a video object layer tells, in pixels (ISO/IEC 14496-2,
/// section 6.2.3), if it can be understood.
fn dimensions(layer: &[u8]) -> Option<(u32, u32)> {
    const RECTANGULAR: u32 = 0;
    let mut bits = Bits::new(layer);
    pass_aspect(&mut bits)?;
    // Control parameters, and within them those of the buffer.
    if bits.flag()? {
        bits.skip(3)?;
        if bits.flag()? {
            bits.skip(79)?;
        }
    }
    if bits.number(2)? != RECTANGULAR {
        return None;
    }
    bits.skip(1)?;
    let ticks = bits.number(16)?;
    bits.skip(1)?;
    // A fixed duration of pictures, of as many bits as the last tick of a second.
    if bits.flag()? {
        let ticks_bits = u32::BITS - ticks.saturating_sub(1).leading_zeros();
        bits.skip(ticks_bits.max(1) as usize)?;
    }
    bits.skip(1)?;
    let width = bits.number(13)?;
    bits.skip(1)?;
    let height = bits.number(13)?;
    (width > 0 && height > 0).then_some((width, height))
}

/// Passes over what the header of a video object layer has in front of the control parameters.
fn pass_aspect(bits: &mut Bits<'_>) -> Option<()> {
    const EXTENDED_ASPECT: u32 = 15;
    bits.skip(9)?;
    if bits.flag()? {
        bits.skip(7)?;
    }
    if bits.number(4)? == EXTENDED_ASPECT {
        bits.skip(16)?;
    }
    Some(())
}

/// Makes packets of MPEG-4 part 2.
#[derive(Debug)]
struct Mpeg4Visual {
    /// Of each sample entry what goes in front of its sync samples; none, if nothing does.
    repeated: Vec<Vec<u8>>,
}

impl Packetizer for Mpeg4Visual {
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let repeated = self.repeated.get(usize::from(unit.entry));
        let repeated = repeated.filter(|_| unit.is_sync);
        let repeated = repeated.map_or(&[][..], Vec::as_slice);
        let bytes = repeated.len() + unit.bytes();
        let mut at = 0;
        while at < bytes {
            let end = bytes.min(at + payload_bytes_max);
            let (own, of_sample) = (repeated.len().clamp(at, end), repeated.len());
            sink.literal(repeated.get(at..own).unwrap_or_default());
            if own < end {
                sink.sample(0, own - of_sample..end - of_sample);
            }
            sink.end(end == bytes);
            at = end;
        }
        if bytes == 0 {
            // A sample without bytes says that the picture stays. Stuffing (ISO/IEC 14496-2,
            // section 6.2.1) says nothing either.
            sink.literal(&STUFFING);
            sink.end(true);
        }
    }
}

/// `stuffing_start_code`.
const STUFFING: [u8; 4] = [0, 0, 1, 0xc3];

#[cfg(test)]
mod tests;
