//! AAC (ISO/IEC 14496-3) as RFC 3640 carries it in its mode AAC-hbr: access units of at most 8191
//! bytes, several in a packet or one in several.
//!
//! Not here: LATM as a payload format (RFC 6416), interleaving, and what has no place in that mode:
//! scalable streams, error protection, USAC.

use std::sync::Arc;

use super::super::packetizer::{Aggregation, Codec, CodecError, PacketSink, Packetizer, Unit};
use super::super::track::Medium;
use super::bit_reader::BitReader;

const NAME: &str = "AAC";

/// Bytes of an access unit at the most: 13 bits say how many (RFC 3640, section 3.3.6).
const UNIT_BYTES_MAX: u32 = 8191;

/// Access units of a packet at the most, so that 16 bits say how many bits their headers have.
const UNITS_MAX: usize = 4095;

/// Bytes of an `AudioSpecificConfig` at the most. With the longest list of channels and the longest
/// comment it has fewer.
pub(super) const CONFIG_BYTES_MAX: usize = 512;

/// What a stream is that `audio_specific_config` (ISO/IEC 14496-3, section 1.6.2.1) describes: the
/// decoder specific information of MP4 and the `CodecPrivate` of Matroska.
///
/// The clock and the channels are those of the coded signal, also where spectral band replication
/// doubles the one and parametric stereo the other: an access unit then lasts for its 1024 (960)
/// ticks whatever a receiver decodes, and that is what receivers count on which make times for the
/// second access unit of a packet.
///
/// # Errors
///
/// If it is broken, or not of a kind that AAC-hbr carries.
pub(in crate::media) fn codec(audio_specific_config: &[u8]) -> Result<Codec, CodecError> {
    let config = AudioSpecificConfig::parse(audio_specific_config)?;
    let hex = audio_specific_config.iter();
    let hex: String = hex.map(|byte| format!("{byte:02X}")).collect();
    let format_parameters = format!(
        "streamtype=5; profile-level-id={}; mode=AAC-hbr; sizelength=13; indexlength=3; \
         indexdeltalength=3; constantduration={}; config={hex}",
        config.profile_level(),
        config.unit_ticks,
    );
    Ok(Codec {
        medium: Medium::Audio,
        payload_type: None,
        encoding: "mpeg4-generic",
        clock_hz: config.rate_hz,
        channels: Some(config.channels),
        format_parameters: Some(format_parameters),
        codec_string: format!("mp4a.40.{}", config.signalled_type()),
        dimensions: None,
        video_range: None,
        packetizer: Arc::new(AacHbr),
    })
}

/// How long an access unit of such a stream lasts, in ticks of a clock of so many a second; `None`
/// if the configuration is broken. Some senders count, with spectral band replication, at the rate
/// of what is heard: twice that of the coded signal.
pub(in crate::media) fn unit_ticks(audio_specific_config: &[u8], clock_hz: u32) -> Option<u32> {
    let config = AudioSpecificConfig::parse(audio_specific_config).ok()?;
    let ticks = u64::from(config.unit_ticks) * u64::from(clock_hz) / u64::from(config.rate_hz);
    u32::try_from(ticks).ok().filter(|&ticks| ticks > 0)
}

/// What a stream is whose frames begin with such a header (ISO/IEC 14496-3, section 1.A.2.2).
///
/// # Errors
///
/// If [`AdtsHeader::parse`] refuses it, or it leaves the channels to be found in the frames.
#[cfg(any(test, feature = "testing"))]
pub(in crate::media) fn from_adts(header: &[u8]) -> Result<Codec, CodecError> {
    codec(&AdtsHeader::parse(header)?.audio_specific_config()?)
}

/// The header of a frame of ADTS, in which transport streams have AAC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct AdtsHeader {
    /// Bytes in front of the access unit.
    pub(in crate::media) header_bytes: usize,
    /// Bytes from this header to the next.
    pub(in crate::media) frame_bytes: usize,
    object_type: u32,
    rate_index: u32,
    channel_configuration: u32,
}

impl AdtsHeader {
    /// Reads it from the first seven bytes of a frame, or more of them.
    ///
    /// # Errors
    ///
    /// If it is none, or its frame has several access units.
    pub(in crate::media) fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut bits = BitReader::new(NAME, bytes);
        if bits.take(12)? != 0xfff {
            return Err(bits.error("a frame of ADTS does not begin with its sync word"));
        }
        bits.skip(1)?;
        if bits.take(2)? != 0 {
            return Err(bits.error("a frame of ADTS is said to be of another layer"));
        }
        let header_bytes = match bits.flag()? {
            true => 7,
            false => 9,
        };
        let object_type = bits.take(2)? + 1;
        let rate_index = bits.take(4)?;
        if RATES_HZ.get(rate_index as usize).is_none() {
            return Err(bits.error(format!("sampling frequency index {rate_index} is reserved")));
        }
        bits.skip(1)?;
        let channel_configuration = bits.take(3)?;
        bits.skip(4)?;
        let frame_bytes = bits.take(13)? as usize;
        if frame_bytes <= header_bytes {
            return Err(bits.error("a frame of ADTS is said to end in its header"));
        }
        bits.skip(11)?;
        if bits.take(2)? != 0 {
            return Err(bits.error("a frame of ADTS has several access units"));
        }
        Ok(Self {
            header_bytes,
            frame_bytes,
            object_type,
            rate_index,
            channel_configuration,
        })
    }

    /// PCM samples a second of the coded signal.
    pub(in crate::media) fn rate_hz(&self) -> u32 {
        RATES_HZ[self.rate_index as usize]
    }

    /// Whether a stream that has one of these may have the other: all but lengths is the same.
    pub(in crate::media) fn is_like(&self, other: &Self) -> bool {
        let of = |it: &Self| (it.object_type, it.rate_index, it.channel_configuration);
        of(self) == of(other)
    }

    /// What [`codec`] wants.
    ///
    /// # Errors
    ///
    /// If it leaves the channels to be found in the frames.
    pub(in crate::media) fn audio_specific_config(&self) -> Result<[u8; 2], CodecError> {
        if self.channel_configuration == 0 {
            return Err(BitReader::new(NAME, &[]).error("ADTS does not tell the channels"));
        }
        let bits = self.object_type << 11 | self.rate_index << 7 | self.channel_configuration << 3;
        let [.., high, low] = bits.to_be_bytes();
        Ok([high, low])
    }
}

/// ISO/IEC 14496-3, table 1.18.
const RATES_HZ: [u32; 13] = [
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
];

/// Audio object types (ISO/IEC 14496-3, table 1.17).
mod object_type {
    pub(super) const MAIN: u32 = 1;
    pub(super) const LC: u32 = 2;
    pub(super) const SSR: u32 = 3;
    pub(super) const LTP: u32 = 4;
    pub(super) const SBR: u32 = 5;
    pub(super) const ER_LC: u32 = 17;
    pub(super) const ER_LTP: u32 = 19;
    pub(super) const ER_LD: u32 = 23;
    pub(super) const PS: u32 = 29;
    pub(super) const ER_ELD: u32 = 39;
    pub(super) const USAC: u32 = 42;
}

/// How access units are timed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Timing {
    /// PCM samples a second of the coded signal.
    pub(super) rate_hz: u32,
    /// PCM samples of a channel in an access unit.
    pub(super) unit_ticks: u32,
}

/// Reads an `AudioSpecificConfig` that other bits follow.
///
/// # Errors
///
/// As [`codec`].
pub(super) fn take_config(bits: &mut BitReader<'_>) -> Result<Timing, CodecError> {
    let config = AudioSpecificConfig::take(bits)?;
    Ok(Timing {
        rate_hz: config.rate_hz,
        unit_ticks: config.unit_ticks,
    })
}

/// What can be known of a stream beforehand.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct AudioSpecificConfig {
    /// How the signal is coded that decoders without extensions hear.
    object_type: u32,
    /// [`object_type::SBR`] or [`object_type::PS`], if that is said.
    extension: Option<u32>,
    rate_hz: u32,
    extension_rate_hz: u32,
    channels: u8,
    /// PCM samples of a channel in an access unit.
    unit_ticks: u32,
}

impl AudioSpecificConfig {
    fn parse(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut bits = BitReader::new(NAME, bytes);
        if bytes.len() > CONFIG_BYTES_MAX {
            let what = format!("a configuration of {} bytes", bytes.len());
            return Err(bits.error(format!("{what}, more than {CONFIG_BYTES_MAX}")));
        }
        let mut config = Self::take(&mut bits)?;
        if config.extension.is_none() {
            let found = find_extension(&mut bits, config.rate_hz);
            (config.extension, config.extension_rate_hz) = found;
        }
        Ok(config)
    }

    /// Reads it without what may stand behind it.
    fn take(bits: &mut BitReader<'_>) -> Result<Self, CodecError> {
        let mut object_type = take_object_type(bits)?;
        let rate_hz = take_rate(bits)?;
        let channel_configuration = bits.take(4)?;
        let (mut extension, mut extension_rate_hz) = (None, rate_hz);
        if matches!(object_type, object_type::SBR | object_type::PS) {
            extension = Some(object_type);
            extension_rate_hz = take_rate(bits)?;
            object_type = take_object_type(bits)?;
        }
        check_object_type(bits, object_type)?;
        let (unit_ticks, elements) = take_specific(bits, object_type, channel_configuration)?;
        let channels = match (channel_configuration, elements) {
            (1..=6, _) => channel_configuration,
            (7 | 12 | 14, _) => 8,
            (11, _) => 7,
            (13, _) => 24,
            (0, Some(channels @ 1..)) => channels,
            (0, _) => return Err(bits.error("its list of channels is empty")),
            _ => {
                let what = format!("channel configuration {channel_configuration} is reserved");
                return Err(bits.error(what));
            }
        };
        Ok(Self {
            object_type,
            extension,
            rate_hz,
            extension_rate_hz,
            channels: u8::try_from(channels).expect("at most 93 can be listed"),
            unit_ticks,
        })
    }

    /// The audio object type for whoever has to choose a decoder (RFC 6381, section 3.3).
    fn signalled_type(&self) -> u32 {
        self.extension.unwrap_or(self.object_type)
    }

    /// `audioProfileLevelIndication` (ISO/IEC 14496-3, table 1.14): the least level that has
    /// so many channels and so high a rate; 254 where no profile is known.
    fn profile_level(&self) -> u32 {
        // Effects do not count; they are in the layouts of six and eight channels.
        let channels = match self.channels {
            6 | 8 => self.channels - 1,
            channels => channels,
        };
        let [aac, high_efficiency, parametric] = match (channels, self.extension_rate_hz) {
            (0..=2, 0..=24_000) => [0x28, 0x2c, 0x30],
            (0..=2, 0..=48_000) if self.rate_hz <= 24_000 => [0x29, 0x2c, 0x30],
            (0..=2, 0..=48_000) => [0x29, 0x2d, 0x31],
            (0..=5, 0..=48_000) => [0x2a, 0x2e, 0x32],
            (0..=5, 0..=96_000) => [0x2b, 0x2f, 0x33],
            (0..=7, 0..=48_000) => [0x50, 0x52, 0x54],
            (0..=7, 0..=96_000) => [0x51, 0x53, 0x55],
            _ => return 254,
        };
        match (self.object_type, self.extension) {
            (object_type::LC, None) => aac,
            (object_type::LC, Some(object_type::SBR)) => high_efficiency,
            (object_type::LC, Some(_)) => parametric,
            _ => 254,
        }
    }
}

fn take_object_type(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    Ok(match bits.take(5)? {
        31 => 32 + bits.take(6)?,
        object_type => object_type,
    })
}

fn take_rate(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    let index = bits.take(4)?;
    let rate_hz = match (index, RATES_HZ.get(index as usize)) {
        (_, Some(&rate_hz)) => rate_hz,
        (15, _) => bits.take(24)?,
        _ => return Err(bits.error(format!("sampling frequency index {index} is reserved"))),
    };
    match rate_hz {
        0 => Err(bits.error("a sampling frequency of 0")),
        _ => Ok(rate_hz),
    }
}

fn check_object_type(bits: &BitReader<'_>, object_type: u32) -> Result<(), CodecError> {
    use object_type::{ER_ELD, ER_LC, ER_LD, ER_LTP, LC, LTP, MAIN, SSR, USAC};
    match object_type {
        MAIN | LC | SSR | LTP | ER_LC | ER_LTP | ER_LD | ER_ELD => Ok(()),
        USAC => Err(bits.error("xHE-AAC (USAC) has no place in RFC 3640's mode AAC-hbr")),
        _ => Err(bits.error(format!(
            "audio object type {object_type} has no place in RFC 3640's mode AAC-hbr"
        ))),
    }
}

/// `GASpecificConfig` (ISO/IEC 14496-3, section 4.4.1) or the start of `ELDSpecificConfig` (section
/// 4.6.20): how long access units last, and how many channels are listed if any are.
fn take_specific(
    bits: &mut BitReader<'_>,
    object_type: u32,
    channel_configuration: u32,
) -> Result<(u32, Option<u32>), CodecError> {
    let is_short = bits.flag()?;
    let unit_ticks = match (object_type, is_short) {
        (object_type::ER_LD | object_type::ER_ELD, false) => 512,
        (object_type::ER_LD | object_type::ER_ELD, true) => 480,
        (_, false) => 1024,
        (_, true) => 960,
    };
    if object_type == object_type::ER_ELD {
        return match channel_configuration {
            0 => Err(bits.error("its channels are not told")),
            _ => Ok((unit_ticks, None)),
        };
    }
    // dependsOnCoreCoder, with coreCoderDelay.
    if bits.flag()? {
        bits.skip(14)?;
    }
    let is_extended = bits.flag()?;
    let channels = match channel_configuration {
        0 => Some(take_program_config(bits)?),
        _ => None,
    };
    let is_resilient = matches!(
        object_type,
        object_type::ER_LC | object_type::ER_LTP | object_type::ER_LD
    );
    if is_extended {
        bits.skip(if is_resilient { 4 } else { 1 })?;
    }
    // epConfig: from 2 on, access units are of several parts.
    if is_resilient && bits.take(2)? > 1 {
        return Err(bits.error("error protection has no place in RFC 3640's mode AAC-hbr"));
    }
    Ok((unit_ticks, channels))
}

/// `program_config_element` (ISO/IEC 14496-3, section 4.4.1.1): how many channels it lists.
fn take_program_config(bits: &mut BitReader<'_>) -> Result<u32, CodecError> {
    // element_instance_tag, object_type, sampling_frequency_index.
    bits.skip(4 + 2 + 4)?;
    let around = [bits.take(4)?, bits.take(4)?, bits.take(4)?];
    let effects = bits.take(2)?;
    let associated = bits.take(3)?;
    let coupled = bits.take(4)?;
    for mixdown_bits in [4, 4, 3] {
        if bits.flag()? {
            bits.skip(mixdown_bits)?;
        }
    }
    let mut channels = effects;
    for _ in 0..around.iter().sum() {
        channels += if bits.flag()? { 2 } else { 1 };
        bits.skip(4)?;
    }
    bits.skip(4 * effects as usize + 4 * associated as usize + 5 * coupled as usize)?;
    bits.align();
    let comment_bytes = bits.take(8)?;
    bits.skip(8 * comment_bytes as usize)?;
    Ok(channels)
}

/// `syncExtensionType` (ISO/IEC 14496-3, section 1.6.2.1): 11 bits in front of what
/// [`find_extension`] finds.
pub(super) const SYNC_EXTENSION: u32 = 0x2b7;

/// What stands behind the configuration for those who know to look for it: SBR and PS, as decoders
/// of AAC alone never see them. Whatever else is there counts as nothing.
fn find_extension(bits: &mut BitReader<'_>, rate_hz: u32) -> (Option<u32>, u32) {
    let mut find = || -> Result<Option<(u32, u32)>, CodecError> {
        let is_there = bits.take(11)? == SYNC_EXTENSION;
        let object_type = take_object_type(bits)?;
        if !is_there || object_type != object_type::SBR || !bits.flag()? {
            return Ok(None);
        }
        let rate_hz = take_rate(bits)?;
        let is_parametric = bits.left() >= 12 && bits.take(11)? == 0x548 && bits.flag()?;
        let object_type = match is_parametric {
            true => object_type::PS,
            false => object_type::SBR,
        };
        Ok(Some((object_type, rate_hz)))
    };
    match find() {
        Ok(Some((object_type, rate_hz))) => (Some(object_type), rate_hz),
        _ => (None, rate_hz),
    }
}

/// RFC 3640, section 3.3.6: a length of all headers in bits, a header of 16 bits for each access
/// unit, and the access units. Fragments say the size of the whole.
#[derive(Debug)]
struct AacHbr;

impl AacHbr {
    const HEADERS_LENGTH_BYTES: usize = 2;
    const HEADER_BYTES: usize = 2;

    /// Its size and, in the lowest three bits, its index: 0, as it is where nothing is interleaved.
    fn header(bytes: u32) -> [u8; 2] {
        let size = u16::try_from(bytes.min(UNIT_BYTES_MAX)).expect("it has 13 bits");
        (size << 3).to_be_bytes()
    }

    fn headers_length(units: usize) -> [u8; 2] {
        let bits = units.min(UNITS_MAX) * Self::HEADER_BYTES * 8;
        u16::try_from(bits).expect("not so many").to_be_bytes()
    }
}

impl Packetizer for AacHbr {
    fn check_sample(&self, bytes: u32) -> Result<(), CodecError> {
        match bytes <= UNIT_BYTES_MAX {
            true => Ok(()),
            false => Err(CodecError::SampleOfCodec {
                codec: NAME,
                bytes,
                bytes_max: UNIT_BYTES_MAX,
            }),
        }
    }

    fn aggregation(&self) -> Option<Aggregation> {
        Some(Aggregation {
            packet_bytes: Self::HEADERS_LENGTH_BYTES,
            sample_bytes: Self::HEADER_BYTES,
            samples_max: UNITS_MAX,
        })
    }

    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink) {
        let count = unit.samples.len();
        let headers_bytes = Self::HEADERS_LENGTH_BYTES + count * Self::HEADER_BYTES;
        let room = payload_bytes_max - headers_bytes.min(payload_bytes_max);
        if let [sample] = unit.samples
            && unit.bytes() > room
        {
            let bytes = sample.bytes as usize;
            for start in (0..bytes).step_by(room) {
                let end = bytes.min(start + room);
                sink.literal(&Self::headers_length(1));
                sink.literal(&Self::header(sample.bytes));
                sink.sample(0, start..end);
                sink.end(end == bytes);
            }
            return;
        }
        sink.literal(&Self::headers_length(count));
        for sample in unit.samples {
            sink.literal(&Self::header(sample.bytes));
        }
        for (at, sample) in unit.samples.iter().enumerate() {
            sink.sample(at, 0..sample.bytes as usize);
        }
        sink.end(true);
    }
}

#[cfg(test)]
mod tests;
