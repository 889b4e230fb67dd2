//! What decoders are told of a track beforehand: its initialization segment.

use std::sync::Arc;

use super::output::InitSegment;
use super::units::{Units, from_hex, parameter};
use crate::media::cmaf::{Description, init_segment};
use crate::media::codec::av1::{PackedObu, Sequence};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::first_frame::Vp9KeyFrame;
use crate::media::codec::{h264, h265, latm};
use crate::media::colour::Colour;
use crate::media::sampled::{SampledTrack, TrackFacts};
use crate::media::samples::Samples;
use crate::media::track::{Medium, Track};

/// Pictures a second that the level of VP9 is told for: how many there are, no stream tells.
const VP9_RATE: u64 = 60;

/// That of a track with these parameter sets, which only pictures have; `None` while not all of
/// them have come. Those of AV1 are its sequence header, of VP9 the beginning of a key frame.
///
/// # Errors
///
/// In words, if there can be none.
pub(super) fn describe(track: &Track, sets: &[Box<[u8]>]) -> Result<Option<InitSegment>, String> {
    let parameters = track.format_parameters.as_deref().unwrap_or_default();
    let (mut dimensions, mut channels, mut pixel) = (None, None, None);
    let config = match &*track.encoding.to_ascii_lowercase() {
        "av1" | "vp9" if sets.is_empty() => return Ok(None),
        "av1" => {
            let header = PackedObu::read(&sets[0]).ok_or(BROKEN_SETS)?;
            let told = Sequence::read(header.payload()).map_err(|error| error.to_string())?;
            dimensions = Some(told.dimensions);
            CodecConfig::Av1(vec![told.av1c(&sets[0]).into()])
        }
        "vp9" => {
            let told = Vp9KeyFrame::read(&sets[0]).map_err(|error| error.to_string())?;
            dimensions = Some(told.dimensions);
            // What the stream does not tell, nothing does.
            let vpcc = told.vpcc(VP9_RATE, Colour::default());
            CodecConfig::Vp9(Some(vpcc.into()))
        }
        "h264" if !h264::has_parameter_sets(sets) => return Ok(None),
        "h265" if !h265::has_parameter_sets(sets) => return Ok(None),
        "h264" => {
            let record = h264::record(sets).ok_or(BROKEN_SETS)?;
            pixel = h264::pixel(sets);
            CodecConfig::H264(vec![record.into()])
        }
        "h265" => {
            let record = h265::record(sets).ok_or(BROKEN_SETS)?;
            pixel = h265::pixel(sets);
            CodecConfig::H265(vec![record.into()])
        }
        "mpeg4-generic" => {
            let config = parameter(parameters, "config").and_then(from_hex);
            CodecConfig::Aac(config.ok_or("AAC without its configuration")?.into())
        }
        "mp4a-latm" => CodecConfig::Aac(latm_config(parameters)?.into()),
        "opus" => {
            let is_mono = parameter(parameters, "sprop-stereo").is_some_and(|it| it == "0");
            // RTP always says two (RFC 7587, section 7); a sample entry says what `dOps` does.
            let count = if is_mono { 1 } else { 2 };
            channels = Some(count);
            CodecConfig::OpusDops(dops(count).into())
        }
        _ => return Err(format!("{} is not made into segments", track.encoding)),
    };
    let mut codec = config.codec().map_err(|error| error.to_string())?;
    codec.dimensions = codec.dimensions.or(dimensions);
    codec.channels = channels.or(codec.channels);
    let facts = facts_of(codec.dimensions, pixel);
    let sampled = SampledTrack {
        codec,
        config: Some(Arc::new(config)),
        timescale: track.clock_hz.max(1),
        shift_ticks: 0,
        samples: Samples::default(),
        prefix: Arc::default(),
        carriage: None,
        facts,
    };
    let description = Description::of(&sampled, &mut |_| None)?;
    Ok(Some(InitSegment {
        bytes: init_segment(&sampled, &description).into(),
        codec: Some(description.codec_string.clone()),
        dimensions: sampled.shown_dimensions(),
        video_range: description.video_range,
        channels: sampled.codec.channels,
        timescale: sampled.timescale,
    }))
}

/// What is told of pictures of that size, if their pixels are so wide to their height: the size in
/// square pixels, unless that is none or too wide. Chromium takes what is told beforehand for the
/// shape of the pictures, whatever their parameter sets say.
fn facts_of(coded: Option<(u32, u32)>, pixel: Option<(u32, u32)>) -> TrackFacts {
    let shown = coded.zip(pixel).and_then(|(coded, pixel)| {
        let (across, down) = (u64::from(pixel.0), u64::from(pixel.1));
        let width = (u64::from(coded.0) * across + down / 2) / down.max(1);
        let width = u16::try_from(width).ok().filter(|&it| it > 0)?;
        Some((u32::from(width), coded.1))
    });
    TrackFacts {
        dimensions: shown,
        ..TrackFacts::default()
    }
}

/// The tracks that are not cut, by their numbers, and why not.
pub(super) fn left_out(tracks: &[Track]) -> Vec<(usize, String)> {
    let media = tracks.iter().enumerate();
    let media = media.filter(|(_, track)| track.medium != Medium::Application);
    let left_out = media.filter_map(|(number, track)| Some((number, units_of(track).err()?)));
    left_out.collect()
}

/// What puts the packets of a track together.
///
/// # Errors
///
/// In words, if nothing is made of it.
pub(super) fn units_of(track: &Track) -> Result<Units, String> {
    let nothing = || format!("{} is not made into segments", track.encoding);
    let units = Units::new(track).ok_or_else(nothing)?;
    // Sound has its description from the start, or never.
    if track.medium == Medium::Audio {
        describe(track, units.sets())?.ok_or_else(nothing)?;
    }
    Ok(units)
}

const BROKEN_SETS: &str = "its parameter sets are broken";

/// The configuration of AAC that goes in elements of LATM (RFC 6416).
fn latm_config(parameters: &str) -> Result<Vec<u8>, String> {
    let is_outside = parameter(parameters, "cpresent").is_some_and(|it| it == "0");
    let config = parameter(parameters, "config").filter(|_| is_outside);
    let config = config.and_then(from_hex);
    let config = config.ok_or("LATM whose configuration is not in its description")?;
    latm::outside_config(&config).map_err(|error| error.to_string())
}

/// An `OpusSpecificBox` of so many channels: nothing is left out at the beginning, because what is
/// joined has none.
fn dops(channels: u8) -> [u8; 11] {
    let mut dops = [0; 11];
    dops[1] = channels;
    dops[4..8].copy_from_slice(&48_000_u32.to_be_bytes());
    dops
}
