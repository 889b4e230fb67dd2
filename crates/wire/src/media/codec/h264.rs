//! H.264 (ISO/IEC 14496-10) by RFC 6184, packetization mode 1.
//!
//! What a packet has, `nal` decides; here is what is H.264's own: the configuration
//! (`AVCDecoderConfigurationRecord`, ISO/IEC 14496-15, section 5.3.3), the headers of packets, and
//! what a sequence parameter set tells of pictures.

use std::borrow::Cow;
use std::sync::Arc;

use super::super::packetizer::{Codec, CodecError};
use super::super::track::Medium;
use super::bits::{Bits, without_emulation_prevention};
use super::nal::{
    Configuration, Format, Kind, NalHeader, NalPacketizer, NalRole, in_base64, sized,
};
use super::vui::{self, Pictures};

/// Types of NAL units (ISO/IEC 14496-10, table 7-1), and of packets (RFC 6184, section 5.2).
const TYPE_IDR: u8 = 5;
const TYPE_SEI: u8 = 6;
const TYPE_SPS: u8 = 7;
const TYPE_PPS: u8 = 8;
const TYPE_DELIMITER: u8 = 9;
const TYPE_STAP_A: u8 = 24;
const TYPE_FU_A: u8 = 28;
const TYPE_MASK: u8 = 0x1f;
const F_BIT: u8 = 0x80;
const NRI_MASK: u8 = 0x60;

/// What samples are that `configurations` describe: of each sample entry the
/// `AVCDecoderConfigurationRecord`, as in `avcC`. Parameter sets may be in the samples instead
/// (`avc3`).
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
    [TYPE_SPS, TYPE_PPS]
        .into_iter()
        .all(|set_type| of_type(sets, set_type).next().is_some())
}

fn of_type(sets: &[Box<[u8]>], set_type: u8) -> impl Iterator<Item = &[u8]> {
    let all = sets.iter().map(|set| &**set);
    all.filter(move |set| set.first().is_some_and(|it| it & TYPE_MASK == set_type))
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
    for set_type in [TYPE_SPS, TYPE_PPS] {
        of_type(sets, set_type)
            .try_for_each(|set| configuration.push(set))
            .map_err(broken)?;
    }
    let record = Record {
        told_profile: [0; 3],
        configuration,
    };
    of_records(vec![record])
}

/// The `AVCDecoderConfigurationRecord` of these parameter sets (ISO/IEC 14496-15, section 5.3.3.1),
/// for NAL units whose lengths have four bytes; `None` if a kind is missing, or cannot be told.
pub(in crate::media) fn record(sets: &[Box<[u8]>]) -> Option<Vec<u8>> {
    let sps = of_type(sets, TYPE_SPS).next()?;
    let mut out = vec![1];
    out.extend_from_slice(sps.get(1..4)?);
    out.push(0xff);
    for (set_type, reserved, count_max) in [(TYPE_SPS, 0xe0, 31), (TYPE_PPS, 0, 255)] {
        let count = of_type(sets, set_type).count();
        let count = u8::try_from(count).ok();
        out.push(reserved | count.filter(|it| (1..=count_max).contains(it))?);
        for set in of_type(sets, set_type) {
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

fn of_records(read: Vec<Record>) -> Result<Codec, CodecError> {
    let first = read.first().ok_or_else(|| broken("no configuration"))?;
    let [profile, constraints, level] = first.profile();
    if level == 0 {
        return Err(broken("level 0"));
    }
    let mut parameters =
        format!("packetization-mode=1; profile-level-id={profile:02X}{constraints:02X}{level:02X}");
    let sets = &first.configuration.parameter_sets;
    let name = if sets.is_empty() { "avc3" } else { "avc1" };
    if !sets.is_empty() {
        parameters += "; sprop-parameter-sets=";
        parameters += &in_base64(sets);
    }
    let told = sets.first().and_then(|sps| pictures(sps));
    let all = read.iter().flat_map(|it| &it.configuration.parameter_sets);
    let all = all.filter(|set| set.first().is_some_and(|it| it & TYPE_MASK == TYPE_SPS));
    let video_range = vui::highest(all.map(|sps| pictures(sps)));
    let configurations = read.into_iter().map(|it| it.configuration).collect();
    let packetizer = NalPacketizer::<H264>::new(configurations).map_err(broken)?;
    Ok(Codec {
        medium: Medium::Video,
        payload_type: None,
        encoding: "H264",
        clock_hz: 90_000,
        channels: None,
        format_parameters: Some(parameters),
        codec_string: format!("{name}.{profile:02x}{constraints:02x}{level:02x}"),
        dimensions: told.map(|it| it.dimensions),
        video_range,
        packetizer: Arc::new(packetizer),
    })
}

fn broken(what: impl Into<Cow<'static, str>>) -> CodecError {
    CodecError::Configuration {
        codec: "H.264",
        what: what.into(),
    }
}

/// What a NAL unit is to the access unit that has it.
pub(in crate::media) fn role(nal: &[u8]) -> NalRole {
    match nal.first().map(|first| first & TYPE_MASK) {
        Some(TYPE_SPS) => NalRole::ParameterSet { is_sync: true },
        Some(TYPE_PPS) => NalRole::ParameterSet { is_sync: false },
        Some(TYPE_IDR) => NalRole::Picture { is_sync: true },
        Some(1..TYPE_IDR) => NalRole::Picture { is_sync: false },
        Some(TYPE_SEI) => NalRole::Other {
            is_sync: is_recovery_point(nal),
        },
        _ => NalRole::Other { is_sync: false },
    }
}

/// Whether a NAL unit that begins with this byte is a slice.
pub(in crate::media) fn is_picture(first: u8) -> bool {
    (1..=TYPE_IDR).contains(&(first & TYPE_MASK))
}

/// Whether a NAL unit that begins so is of the next access unit where slices of a picture are in
/// front of it (ISO/IEC 14496-10, section 7.4.1.2.3). Of a slice, if it has the first macroblock:
/// no other is the first of a picture, unless slices come in any order, which only the baseline
/// profile allows. Prefix NAL units, which may be in front of each slice, stay with those before.
pub(in crate::media) fn begins_unit([first, second]: [u8; 2]) -> bool {
    match first & TYPE_MASK {
        // `first_mb_in_slice`, as ue(v), is 0.
        1 | 2 | TYPE_IDR => second & 0x80 != 0,
        TYPE_SEI..=TYPE_DELIMITER | 15..=18 => true,
        _ => false,
    }
}

/// Whether supplemental enhancement information has a recovery point (ISO/IEC 14496-10, annex D):
/// whoever begins to decode there has right pictures soon.
pub(crate) fn is_recovery_point(sei: &[u8]) -> bool {
    const RECOVERY_POINT: usize = 6;
    const LOOKED_AT_BYTES: usize = 256;
    let looked_at = sei.get(1..sei.len().min(LOOKED_AT_BYTES));
    let bytes = without_emulation_prevention(looked_at.unwrap_or_default());
    let mut rest = &bytes[..];
    while let (Some(kind), Some(bytes)) = (take_summed(&mut rest), take_summed(&mut rest)) {
        if kind == RECOVERY_POINT {
            return true;
        }
        rest = rest.get(bytes..).unwrap_or_default();
    }
    false
}

/// A number in bytes that are summed up, to the first that is not 255.
fn take_summed(rest: &mut &[u8]) -> Option<usize> {
    let mut sum = 0;
    loop {
        let &byte = rest.split_off_first()?;
        sum += usize::from(byte);
        if byte < 0xff {
            return Some(sum);
        }
    }
}

/// What of an `AVCDecoderConfigurationRecord` is wanted.
#[derive(Debug)]
struct Record {
    /// Profile, constraints and level.
    told_profile: [u8; 3],
    /// Sequence parameter sets, then picture parameter sets.
    configuration: Configuration,
}

impl Record {
    fn read(bytes: &[u8]) -> Result<Self, Cow<'static, str>> {
        const SHORT: &str = "the configuration is cut short";
        let start = bytes.split_first_chunk();
        let (&[version, profile, constraints, level, length_size], mut rest) =
            start.ok_or(SHORT)?;
        if version != 1 {
            return Err(format!("a configuration of version {version}").into());
        }
        let mut configuration = Configuration::new((length_size & 3) + 1)?;
        for (count_mask, set_type) in [(0x1f, TYPE_SPS), (0xff, TYPE_PPS)] {
            let count = rest.split_off_first().ok_or(SHORT)? & count_mask;
            for _ in 0..count {
                let set = sized(&mut rest).ok_or(SHORT)?;
                match set.first().map(|first| first & TYPE_MASK) {
                    Some(found) if found == set_type => configuration.push(set)?,
                    Some(found) => {
                        let what = format!("a NAL unit of type {found} among those of {set_type}");
                        return Err(what.into());
                    }
                    None => return Err("a parameter set without bytes".into()),
                }
            }
        }
        // What follows repeats what the sequence parameter sets say, and many leave it out.
        Ok(Self {
            told_profile: [profile, constraints, level],
            configuration,
        })
    }

    /// Profile, constraints and level: what the first sequence parameter set says, because that is
    /// what decoders go by.
    fn profile(&self) -> [u8; 3] {
        let sps = self.configuration.parameter_sets.first();
        let says = sps.filter(|sps| sps[0] & TYPE_MASK == TYPE_SPS);
        let says = says.and_then(|sps| sps[1..].first_chunk().copied());
        says.unwrap_or(self.told_profile)
    }
}

/// H.264's own of NAL units.
#[derive(Debug)]
struct H264;

impl Format for H264 {
    const HEADER_BYTES: usize = 1;
    /// Filler data (ISO/IEC 14496-10, section 7.3.2.7) without any.
    const FILLER: &'static [u8] = &[0x0c, 0x80];

    fn kind(first: u8) -> Kind {
        match first & TYPE_MASK {
            TYPE_DELIMITER => Kind::Delimiter,
            TYPE_SPS => Kind::ParameterSet,
            // Types without a meaning in H.264 (some use them for their own ends) are those of
            // packets in RFC 6184, or none there either.
            0 | 24.. => Kind::LeftOut,
            _ => Kind::Ordinary,
        }
    }

    /// STAP-A: the most important of what it carries says how important it is, and one that is
    /// damaged damages it (RFC 6184, section 5.7).
    fn aggregation_header([header, _]: NalHeader, [next, _]: NalHeader) -> NalHeader {
        let nri = (header & NRI_MASK).max(next & NRI_MASK);
        [(header | next) & F_BIT | nri | TYPE_STAP_A, 0]
    }

    /// FU-A (RFC 6184, section 5.8).
    fn fragment_header([header, _]: NalHeader, is_first: bool, is_last: bool) -> (NalHeader, u8) {
        let indicator = header & !TYPE_MASK | TYPE_FU_A;
        let start_and_end = u8::from(is_first) << 7 | u8::from(is_last) << 6;
        ([indicator, 0], start_and_end | header & TYPE_MASK)
    }
}

/// What a sequence parameter set tells of pictures (ISO/IEC 14496-10, section 7.3.2.1.1); `None` if
/// it does not tell their size so that it can be understood.
fn pictures(sps: &[u8]) -> Option<Pictures> {
    let bytes = without_emulation_prevention(sps.get(1..)?);
    let mut bits = Bits::new(&bytes);
    let mut pictures = Pictures::of(dimensions(&mut bits)?);
    let _end = pictures.read(&mut bits);
    Some(pictures)
}

/// Width and height in pixels.
fn dimensions(bits: &mut Bits<'_>) -> Option<(u32, u32)> {
    let profile = bits.number(8)?;
    bits.skip(16)?;
    bits.unsigned()?;
    let mut chroma = 1;
    if matches!(
        profile,
        100 | 110 | 122 | 244 | 44 | 83 | 86 | 118 | 128 | 134 | 135 | 138 | 139
    ) {
        chroma = chroma_format(bits)?;
    }
    bits.unsigned()?;
    pass_picture_order(bits)?;
    bits.unsigned()?;
    bits.skip(1)?;
    let width = (u64::from(bits.unsigned()?) + 1) * 16;
    let map_height = (u64::from(bits.unsigned()?) + 1) * 16;
    let fields = if bits.flag()? { 1 } else { 2 };
    bits.skip(if fields == 2 { 2 } else { 1 })?;
    let (mut crop_width, mut crop_height) = (0, 0);
    if bits.flag()? {
        let mut edge = || bits.unsigned().map(u64::from);
        let (across, down) = (edge()? + edge()?, edge()? + edge()?);
        crop_width = across * if matches!(chroma, 1 | 2) { 2 } else { 1 };
        crop_height = down * if chroma == 1 { 2 } else { 1 } * fields;
    }
    let width = width.checked_sub(crop_width)?;
    let height = (map_height * fields).checked_sub(crop_height)?;
    let size = (u32::try_from(width).ok()?, u32::try_from(height).ok()?);
    (size.0 > 0 && size.1 > 0).then_some(size)
}

/// How many samples of colour there are, and what follows on it: bit depths and scaling matrices.
fn chroma_format(bits: &mut Bits<'_>) -> Option<u32> {
    let mut chroma = bits.unsigned()?;
    let lists = if chroma == 3 { 12 } else { 8 };
    if chroma == 3 && bits.flag()? {
        chroma = 0;
    }
    bits.unsigned()?;
    bits.unsigned()?;
    bits.skip(1)?;
    if bits.flag()? {
        for list in 0..lists {
            if bits.flag()? {
                pass_scaling_list(bits, if list < 6 { 16 } else { 64 })?;
            }
        }
    }
    Some(chroma)
}

fn pass_scaling_list(bits: &mut Bits<'_>, count: usize) -> Option<()> {
    let mut scale = 8;
    for _ in 0..count {
        scale = (scale + bits.signed()?).rem_euclid(256);
        if scale == 0 {
            break;
        }
    }
    Some(())
}

fn pass_picture_order(bits: &mut Bits<'_>) -> Option<()> {
    match bits.unsigned()? {
        0 => drop(bits.unsigned()?),
        1 => {
            bits.skip(1)?;
            bits.signed()?;
            bits.signed()?;
            for _ in 0..bits.unsigned()?.min(255) {
                bits.signed()?;
            }
        }
        _ => {}
    }
    Some(())
}

#[cfg(test)]
mod tests;
