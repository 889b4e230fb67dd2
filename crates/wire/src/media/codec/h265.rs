//! H.265 (ISO/IEC 23008-2) by RFC 7798, without decoding order numbers.
//!
//! What a packet has, `nal` decides; here is what is H.265's own: the configuration
//! (`HEVCDecoderConfigurationRecord`, ISO/IEC 14496-15, section 8.3.3), the headers of packets, and
//! what a sequence parameter set tells of pictures.

mod sps;

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use super::super::packetizer::{Codec, CodecError};
use super::super::track::Medium;
use super::bits::{Bits, without_emulation_prevention};
use super::nal::{
    Configuration, Format, Kind, NalHeader, NalPacketizer, NalRole, in_base64, sized,
};
use super::vui;
use sps::{pass_profile, pictures};

/// Types of NAL units (ISO/IEC 23008-2, table 7-1), and of packets (RFC 7798, section 4.4).
const TYPE_VPS: u8 = 32;
const TYPE_SPS: u8 = 33;
const TYPE_PPS: u8 = 34;
const TYPE_DELIMITER: u8 = 35;
const TYPE_AGGREGATION: u8 = 48;
const TYPE_FRAGMENT: u8 = 49;
const TYPE_PACI: u8 = 50;

const F_BIT: u8 = 0x80;

/// What samples are that `configurations` describe: of each sample entry the
/// `HEVCDecoderConfigurationRecord`, as in `hvcC`. Parameter sets may be in the samples instead
/// (`hev1`). What else the record has, supplemental information, is not repeated in the stream.
///
/// # Errors
///
/// If there is no configuration, if one is broken or of level 0, if its parameter sets have more
/// than [`PARAMETER_SETS_BYTES_MAX`](super::nal::PARAMETER_SETS_BYTES_MAX) bytes, or if two have
/// NAL units with lengths of different sizes.
pub(in crate::media) fn codec(configurations: &[&[u8]]) -> Result<Codec, CodecError> {
    let read = configurations.iter().map(|bytes| Record::read(bytes));
    let read: Vec<_> = read.collect::<Result<_, _>>().map_err(broken)?;
    of_records(read)
}

/// Whether these parameter sets of a stream have one of each kind that a decoder needs.
pub(in crate::media) fn has_parameter_sets(sets: &[Box<[u8]>]) -> bool {
    [TYPE_VPS, TYPE_SPS, TYPE_PPS]
        .into_iter()
        .all(|set_type| of_type(sets, set_type).next().is_some())
}

fn of_type(sets: &[Box<[u8]>], set_type: u8) -> impl Iterator<Item = &[u8]> {
    let all = sets.iter().map(|set| &**set);
    all.filter(move |set| set.first().is_some_and(|&it| nal_type(it) == set_type))
}

/// What a stream is that has these parameter sets in it, of NAL units whose lengths have four
/// bytes.
///
/// # Errors
///
/// As [`codec`], and if there is not one of each kind ([`has_parameter_sets`]).
pub(in crate::media) fn from_parameter_sets(sets: &[Box<[u8]>]) -> Result<Codec, CodecError> {
    if !has_parameter_sets(sets) {
        return Err(broken("not all parameter sets"));
    }
    let mut configuration = Configuration::new(4).map_err(broken)?;
    let mut profile = [0; 12];
    for set_type in [TYPE_VPS, TYPE_SPS, TYPE_PPS] {
        let mut found = of_type(sets, set_type).peekable();
        if let Some(first) = found.peek().filter(|_| set_type == TYPE_SPS) {
            // Behind the NAL unit's header and one byte: `profile_tier_level()`, as in records.
            let bytes = without_emulation_prevention(first);
            let told = bytes.get(3..).and_then(|bytes| bytes.first_chunk());
            profile = *told.ok_or_else(|| broken("a sequence parameter set is cut short"))?;
        }
        found
            .try_for_each(|set| configuration.push(set))
            .map_err(broken)?;
    }
    let record = Record {
        profile,
        configuration,
    };
    of_records(vec![record])
}

/// The `HEVCDecoderConfigurationRecord` of these parameter sets (ISO/IEC 14496-15, 8.3.2.1), for
/// NAL units whose lengths have four bytes; `None` if a kind is missing, or one is cut short.
pub(in crate::media) fn record(sets: &[Box<[u8]>]) -> Option<Vec<u8>> {
    let sps = without_emulation_prevention(of_type(sets, TYPE_SPS).next()?);
    let (sub_layers, [chroma, luma_depth, chroma_depth]) = picture_format(&sps)?;
    let mut out = vec![1];
    out.extend_from_slice(sps.get(3..15)?);
    // Segmentation and parallelism are not known.
    out.extend([
        0xf0,
        0,
        0xfc,
        0xfc | chroma,
        0xf8 | luma_depth,
        0xf8 | chroma_depth,
    ]);
    // Nor are frame rates. Then layers, whether they are nested, and lengths of four bytes.
    let nested = sps.get(2)? & 1;
    out.extend([0, 0, (sub_layers + 1) << 3 | nested << 2 | 3, 3]);
    for set_type in [TYPE_VPS, TYPE_SPS, TYPE_PPS] {
        let found: Vec<_> = of_type(sets, set_type).collect();
        if found.is_empty() {
            return None;
        }
        // All of them are here.
        out.push(0x80 | set_type);
        out.extend_from_slice(&u16::try_from(found.len()).ok()?.to_be_bytes());
        for set in found {
            out.extend_from_slice(&u16::try_from(set.len()).ok()?.to_be_bytes());
            out.extend_from_slice(set);
        }
    }
    Some(out)
}

/// The width of a pixel to its height, if the first sequence parameter set of these tells it.
pub(in crate::media) fn pixel(sets: &[Box<[u8]>]) -> Option<(u32, u32)> {
    pictures(of_type(sets, TYPE_SPS).next()?)?.pixel
}

/// Of a sequence parameter set: sub-layers less one; the chroma format, and by how much the depths
/// of both exceed 8 bits.
fn picture_format(sps: &[u8]) -> Option<(u8, [u8; 3])> {
    let mut bits = Bits::new(sps.get(2..)?);
    bits.skip(4)?;
    let sub_layers = bits.number(3)?;
    bits.skip(1)?;
    pass_profile(&mut bits, sub_layers)?;
    bits.unsigned()?;
    let chroma = bits.unsigned()?;
    if chroma == 3 {
        bits.skip(1)?;
    }
    let _width_and_height = (bits.unsigned()?, bits.unsigned()?);
    if bits.flag()? {
        (0..4).try_for_each(|_| bits.unsigned().map(drop))?;
    }
    let depths = [bits.unsigned()?, bits.unsigned()?];
    let small = |number: u32, max: u32| u8::try_from(number).ok().filter(|_| number <= max);
    let format = [
        small(chroma, 3)?,
        small(depths[0], 7)?,
        small(depths[1], 7)?,
    ];
    Some((small(sub_layers, 6)?, format))
}

fn of_records(read: Vec<Record>) -> Result<Codec, CodecError> {
    let first = read.first().ok_or_else(|| broken("no configuration"))?;
    if first.level() == 0 {
        return Err(broken("level 0"));
    }
    let sets = &first.configuration.parameter_sets;
    let of_type = |set_type| sets.iter().filter(move |set| nal_type(set[0]) == set_type);
    let mut parameters = first.profile_parameters();
    for (name, set_type) in [("vps", TYPE_VPS), ("sps", TYPE_SPS), ("pps", TYPE_PPS)] {
        let sets = in_base64(of_type(set_type));
        if !sets.is_empty() {
            write!(parameters, "; sprop-{name}={sets}").expect("a string takes all");
        }
    }
    let codec_string = first.codec_string();
    let told = of_type(TYPE_SPS).next().and_then(|sps| pictures(sps));
    let all = read.iter().flat_map(|it| &it.configuration.parameter_sets);
    let all = all.filter(|set| set.first().is_some_and(|&it| nal_type(it) == TYPE_SPS));
    let video_range = vui::highest(all.map(|sps| pictures(sps)));
    let configurations = read.into_iter().map(|it| it.configuration).collect();
    let packetizer = NalPacketizer::<H265>::new(configurations).map_err(broken)?;
    Ok(Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "H265",
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some(parameters),
        codec_string,
        dimensions: told.map(|it| it.dimensions),
        video_range,
        packetizer: Arc::new(packetizer),
    })
}

fn broken(what: impl Into<Cow<'static, str>>) -> CodecError {
    CodecError::Configuration {
        codec: "H.265",
        what: what.into(),
    }
}

/// What a NAL unit is to the access unit that has it.
pub(in crate::media) fn role(nal: &[u8]) -> NalRole {
    match nal.first().map(|&first| nal_type(first)) {
        Some(TYPE_SPS) => NalRole::ParameterSet { is_sync: true },
        Some(TYPE_VPS | TYPE_PPS) => NalRole::ParameterSet { is_sync: false },
        // Intra random access points (ISO/IEC 23008-2, table 7-1).
        Some(16..=23) => NalRole::Picture { is_sync: true },
        Some(0..TYPE_VPS) => NalRole::Picture { is_sync: false },
        _ => NalRole::Other { is_sync: false },
    }
}

/// Whether a NAL unit that begins with this byte is of a picture.
pub(in crate::media) fn is_picture(first: u8) -> bool {
    nal_type(first) < TYPE_VPS
}

/// Whether a NAL unit that begins so is of the next access unit where slices of a picture are in
/// front of it (ISO/IEC 23008-2, section 7.4.2.4.4).
pub(in crate::media) fn begins_unit([first, second, third]: [u8; 3]) -> bool {
    let layer = u16::from_be_bytes([first, second]) & LAYER_MASK;
    let begins = match nal_type(first) {
        // `first_slice_segment_in_pic_flag`.
        0..TYPE_VPS => third & 0x80 != 0,
        TYPE_VPS..=TYPE_DELIMITER | 39 | 41..=44 | 48..=55 => true,
        _ => false,
    };
    begins && layer == 0
}

fn nal_type(first: u8) -> u8 {
    first >> 1 & 0x3f
}

/// What of an `HEVCDecoderConfigurationRecord` is wanted.
#[derive(Debug)]
struct Record {
    /// Profile space, tier and profile; compatible profiles (4 bytes); constraints (6); level.
    profile: [u8; 12],
    /// Video, sequence and picture parameter sets.
    configuration: Configuration,
}

impl Record {
    fn read(bytes: &[u8]) -> Result<Self, Cow<'static, str>> {
        const SHORT: &str = "the configuration is cut short";
        let (&[version, ref rest @ ..], mut arrays) =
            bytes.split_first_chunk::<23>().ok_or(SHORT)?;
        // Drafts of the format, and files of their time, have 0.
        if version > 1 {
            return Err(format!("a configuration of version {version}").into());
        }
        let profile = *rest.first_chunk().expect("it has 22 bytes");
        let (length_size, count) = (rest[20], rest[21]);
        let mut configuration = Configuration::new((length_size & 3) + 1)?;
        let mut found = Vec::new();
        for _ in 0..count {
            let array_type = arrays.split_off_first().ok_or(SHORT)? & 0x3f;
            let nals = arrays.split_off(..2).ok_or(SHORT)?;
            for _ in 0..u16::from_be_bytes([nals[0], nals[1]]) {
                let nal = sized(&mut arrays).ok_or(SHORT)?;
                match (array_type, nal) {
                    (TYPE_VPS..=TYPE_PPS, &[first, _, ..]) if nal_type(first) == array_type => {
                        found.push(nal);
                    }
                    (TYPE_VPS..=TYPE_PPS, _) => {
                        let what = format!("a parameter set that is not of type {array_type}");
                        return Err(what.into());
                    }
                    _ => {}
                }
            }
        }
        found.sort_by_key(|nal| nal_type(nal[0]));
        found
            .into_iter()
            .try_for_each(|nal| configuration.push(nal))?;
        Ok(Self {
            profile,
            configuration,
        })
    }

    fn level(&self) -> u8 {
        self.profile[11]
    }

    fn tier(&self) -> u8 {
        self.profile[0] >> 5 & 1
    }

    fn constraints(&self) -> &[u8] {
        &self.profile[5..11]
    }

    /// As in RFC 7798, section 7.1: what is missing there means profile Main and level 3.1.
    fn profile_parameters(&self) -> String {
        let (space, profile) = (self.profile[0] >> 6, self.profile[0] & 0x1f);
        let (tier, level) = (self.tier(), self.level());
        let mut out = format!(
            "profile-space={space}; profile-id={profile}; tier-flag={tier}; level-id={level}; \
             interop-constraints="
        );
        for byte in self.constraints() {
            write!(out, "{byte:02X}").expect("a string takes all");
        }
        out
    }

    /// As in ISO/IEC 14496-15, annex E.3.
    fn codec_string(&self) -> String {
        let is_in_band = self.configuration.parameter_sets.is_empty();
        let name = if is_in_band { "hev1" } else { "hvc1" };
        let space = ["", "A", "B", "C"][usize::from(self.profile[0] >> 6)];
        let profile = self.profile[0] & 0x1f;
        let &[_, a, b, c, d, ..] = &self.profile;
        let compatible = u32::from_be_bytes([a, b, c, d]).reverse_bits();
        let tier = if self.tier() == 1 { 'H' } else { 'L' };
        let level = self.level();
        let mut out = format!("{name}.{space}{profile}.{compatible:X}.{tier}{level}");
        let constraints = self.constraints();
        let said = constraints.iter().rposition(|&byte| byte != 0);
        for byte in &constraints[..said.map_or(0, |last| last + 1)] {
            write!(out, ".{byte:X}").expect("a string takes all");
        }
        out
    }
}

/// H.265's own of NAL units.
#[derive(Debug)]
struct H265;

impl Format for H265 {
    const HEADER_BYTES: usize = 2;
    /// Filler data (ISO/IEC 23008-2, section 7.3.2.8) without any.
    const FILLER: &'static [u8] = &[0x4c, 0x01, 0x80];

    fn kind(first: u8) -> Kind {
        match nal_type(first) {
            TYPE_DELIMITER => Kind::Delimiter,
            TYPE_SPS => Kind::ParameterSet,
            // These have no meaning in H.265, and are packets in RFC 7798. The types beyond them,
            // which some use for their own ends (Dolby Vision), are theirs in RTP, too.
            TYPE_AGGREGATION..=TYPE_PACI => Kind::LeftOut,
            _ => Kind::Ordinary,
        }
    }

    /// The lowest layer and temporal layer of what it carries; and one that is damaged damages it
    /// (RFC 7798, section 4.4.2).
    fn aggregation_header(header: NalHeader, next: NalHeader) -> NalHeader {
        let [a, b] = [header, next].map(u16::from_be_bytes);
        let layer = (a & LAYER_MASK).min(b & LAYER_MASK);
        let temporal = (a & TEMPORAL_MASK).min(b & TEMPORAL_MASK);
        let [first, second] = (layer | temporal).to_be_bytes();
        [
            (header[0] | next[0]) & F_BIT | TYPE_AGGREGATION << 1 | first,
            second,
        ]
    }

    /// RFC 7798, section 4.4.3.
    fn fragment_header(header: NalHeader, is_first: bool, is_last: bool) -> (NalHeader, u8) {
        let first = header[0] & !(0x3f << 1) | TYPE_FRAGMENT << 1;
        let start_and_end = u8::from(is_first) << 7 | u8::from(is_last) << 6;
        ([first, header[1]], start_and_end | nal_type(header[0]))
    }
}

/// Of a NAL unit's header, the bits that are `nuh_layer_id`.
const LAYER_MASK: u16 = 0x01f8;

/// Those that are `nuh_temporal_id_plus1`.
const TEMPORAL_MASK: u16 = 0x0007;

#[cfg(test)]
mod tests;
