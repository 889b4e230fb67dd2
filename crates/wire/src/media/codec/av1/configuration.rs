//! `av1C`: what an ISO file or Matroska's `CodecPrivate` tells of a track of AV1 ("AV1 Codec ISO
//! Media File Format Binding", section 2.3.3).

use super::obu::{HAS_SIZE, Kind, Obu, broken};
use super::packed::{ObuRole, PackedObu};
use super::sequence::Sequence;
use crate::media::packetizer::CodecError;

/// Bytes of a configuration at the most: all of its OBUs go in front of sync samples.
const CONFIGURATION_BYTES_MAX: usize = 16 << 10;

/// OBUs of a configuration at the most: a sequence header and metadata.
const OBUS_MAX: usize = 16;

/// The first byte: marker and version.
const MARKER_AND_VERSION: u8 = 0x81;

/// Bytes in front of the OBUs.
const FIXED_BYTES: usize = 4;

/// What is wanted of an `av1C`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Configuration {
    pub(super) profile: u8,
    /// `seq_level_idx` of the first operating point.
    pub(super) level: u8,
    /// 0 is the main tier, 1 the high one.
    pub(super) tier: u8,
    pub(super) bit_depth: u8,
    /// Its OBUs as they are in packets: without size fields.
    pub(super) obus: Vec<Box<[u8]>>,
}

impl Configuration {
    pub(super) fn read(av1c: &[u8]) -> Result<Self, CodecError> {
        let &[marker_and_version, profile_and_level, flags, _, ..] = av1c else {
            return Err(broken(format!("an av1C of {} bytes", av1c.len())));
        };
        if av1c.len() > CONFIGURATION_BYTES_MAX {
            let bytes = av1c.len();
            return Err(broken(format!(
                "an av1C of {bytes} bytes, more than {CONFIGURATION_BYTES_MAX}"
            )));
        }
        if marker_and_version != MARKER_AND_VERSION {
            return Err(broken(format!(
                "an av1C that begins with {marker_and_version:#04x} instead of 0x81"
            )));
        }
        let profile = profile_and_level >> 5;
        if profile > 2 {
            return Err(broken(format!("profile {profile}")));
        }
        let (high_bit_depth, twelve_bit) = (flags & 0x40 != 0, flags & 0x20 != 0);
        Ok(Self {
            profile,
            level: profile_and_level & 0x1f,
            tier: flags >> 7,
            bit_depth: match (high_bit_depth, twelve_bit) {
                (false, _) => 8,
                (true, false) => 10,
                (true, true) => 12,
            },
            obus: read_obus(&av1c[FIXED_BYTES..])?,
        })
    }

    /// Its sequence header, if it has one that can be read.
    pub(super) fn sequence(&self) -> Option<Sequence> {
        let obus = self.obus.iter().filter_map(|obu| PackedObu::read(obu));
        let mut headers = obus.filter(|it| it.role == ObuRole::SequenceHeader);
        Sequence::read(headers.next()?.payload()).ok()
    }

    /// As in RFC 6381: `av01.0.04M.08`.
    pub(super) fn codec_string(&self) -> String {
        let tier = if self.tier == 0 { 'M' } else { 'H' };
        let Self {
            profile,
            level,
            bit_depth,
            ..
        } = self;
        format!("av01.{profile}.{level:02}{tier}.{bit_depth:02}")
    }
}

fn read_obus(mut rest: &[u8]) -> Result<Vec<Box<[u8]>>, CodecError> {
    let mut obus = Vec::new();
    while !rest.is_empty() {
        let left = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let obu = Obu::read(rest, left)?;
        let (whole, behind) = rest.split_at(obu.bytes as usize);
        rest = behind;
        if obu.kind == Kind::LeftOut {
            continue;
        }
        if obus.len() == OBUS_MAX {
            return Err(broken(format!("an av1C of more than {OBUS_MAX} OBUs")));
        }
        let (header, payload) = whole.split_at(obu.kind.header_bytes());
        let mut packed = [header, &payload[obu.size_bytes as usize..]].concat();
        packed[0] &= !HAS_SIZE;
        obus.push(packed.into_boxed_slice());
    }
    Ok(obus)
}
