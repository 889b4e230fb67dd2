//! Packetizers: how the samples of one codec become RTP payloads.
//!
//! A packetizer is given a [`Unit`], which is one access unit or a few frames of sound, and tells a
//! [`PacketSink`] its packets piece by piece. It does so twice from the same code: once without the
//! samples' bytes, when only the lengths of packets are asked for, and once with them, when images
//! are written. So lengths and bytes cannot disagree, and an index needs to keep no more of a
//! sample than its size and its [parts](Parts).

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use thiserror::Error;

use super::colour::VideoRange;
use super::track::Medium;

/// Bytes of a sample at the most. Pictures of 8K at the highest levels of H.265 stay below.
pub(in crate::media) const SAMPLE_BYTES_MAX: u32 = 16 << 20;

/// Parts of a sample at the most: NAL units, OBUs, slices.
pub(in crate::media) const PARTS_MAX: usize = 1024;

/// Parts of all samples of a track, at the most. Numbers of any size are then below the 512 MiB
/// that a column has room for.
pub(in crate::media) const TRACK_PARTS_MAX: usize = 1 << 27;

/// Where packets may be cut inside of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) enum Parts {
    /// Anywhere: a sample's size says all about its packets.
    None,
    /// Each part begins with so many bytes, or fewer at the sample's end, that tell where the next
    /// begins: NAL units with their lengths in front, OBUs.
    Chained {
        /// Bytes at the start of a part that [`Packetizer::part`] wants to see.
        head_bytes: usize,
    },
    /// All of the rest of the sample has to be looked at: start codes.
    Searched,
}

/// A part of a sample.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct Part {
    /// What the packetizer wants to be told about it when it makes packets: its length as a rule,
    /// flags in the lowest bits if it needs some.
    pub(in crate::media) number: u32,
    /// Bytes from its start to the start of the next part; at least one, and not more than are left
    /// of the sample.
    pub(in crate::media) bytes: u32,
}

/// Why a sample cannot be made into packets, or a track cannot be played.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub(in crate::media) enum CodecError {
    /// What the file says about the codec, such as a decoder configuration, is broken.
    #[error("{codec}: {what}")]
    Configuration {
        /// The codec.
        codec: &'static str,
        /// What is wrong, in words.
        what: Cow<'static, str>,
    },
    /// A part is longer than what is left of its sample.
    #[error("a part of {bytes} bytes in a sample that has {left} left")]
    PartBeyondSample {
        /// Bytes of the part.
        bytes: u64,
        /// Bytes left.
        left: u64,
    },
    /// A sample has more parts than can be kept.
    #[error("a sample of more than {PARTS_MAX} parts")]
    Parts,
    /// All samples have more parts than can be kept, or than the file has bytes.
    #[error("with its parts there are more than {parts_max} in all")]
    AllParts {
        /// What is allowed.
        parts_max: u64,
    },
    /// Samples lie over each other, and would have the file read over and over.
    #[error("samples lie over each other, more of them than are looked at")]
    Overlap,
    /// A sample is larger than its codec, or its payload format, allows.
    #[error("{codec}: a sample of {bytes} bytes, more than {bytes_max}")]
    SampleOfCodec {
        /// The codec.
        codec: &'static str,
        /// The sample's bytes.
        bytes: u32,
        /// What is allowed.
        bytes_max: u32,
    },
    /// A sample is larger than can be served.
    #[error("a sample of {bytes} bytes, more than {SAMPLE_BYTES_MAX}")]
    Sample {
        /// Its bytes.
        bytes: u64,
    },
}

/// One sample of a unit.
#[derive(Clone, Copy, Debug)]
pub(in crate::media) struct UnitSample<'a> {
    /// Its length in bytes.
    pub(in crate::media) bytes: u32,
    /// The [numbers](Part::number) of its parts. Of a codec without [`Parts`], none.
    pub(in crate::media) parts: &'a [u32],
    /// Its bytes, if they are at hand: all `bytes` of them.
    pub(in crate::media) data: Option<&'a [u8]>,
}

/// What is packetized at a time: one sample, or of sound several that go together.
#[derive(Clone, Copy, Debug)]
pub(in crate::media) struct Unit<'a> {
    /// At least one; more than one only where there is an [`Aggregation`].
    pub(in crate::media) samples: &'a [UnitSample<'a>],
    /// Whether a decoder can start here.
    pub(in crate::media) is_sync: bool,
    /// The number of its sample entry (ISO/IEC 14496-12, section 8.5.2), from 0 on: which of the
    /// configurations that the packetizer was made with it has.
    pub(in crate::media) entry: u16,
}

impl Unit<'_> {
    /// One byte of a sample; 0 if the bytes are not at hand, or it has not so many.
    pub(in crate::media) fn byte(&self, sample: usize, at: usize) -> u8 {
        let data = self.samples.get(sample).and_then(|sample| sample.data);
        data.and_then(|data| data.get(at).copied()).unwrap_or(0)
    }

    /// Bytes of all its samples.
    pub(in crate::media) fn bytes(&self) -> usize {
        self.samples
            .iter()
            .map(|sample| sample.bytes as usize)
            .sum()
    }
}

/// Takes packets, piece by piece, as a packetizer makes them.
pub(in crate::media) trait PacketSink {
    /// Bytes of a payload that are not in the file.
    fn literal(&mut self, bytes: &[u8]);
    /// Bytes of one of the unit's samples.
    fn sample(&mut self, sample: usize, part: Range<usize>);
    /// The packet is complete. `marker` is that of its RTP header.
    fn end(&mut self, marker: bool);
    /// What follows in the unit, from the next packet on, is stamped so many ticks of the RTP clock
    /// later than what was before: sound without frames that is cut into several packets (RFC 3551,
    /// section 4.1). Whoever does not stamp packets need not know.
    fn advance(&mut self, ticks: u32) {
        let _ = ticks;
    }
    /// The packet ends with so many bytes of padding (RFC 3550, section 5.1), at least one. No
    /// packetizer tells of any: who asked it for packets may fill them.
    fn pad(&mut self, bytes: u8) {
        let _ = bytes;
    }
}

/// How samples go together into one packet. A unit is cut so that it makes one packet, unless it
/// is of a single sample, which may be larger than a packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::media) struct Aggregation {
    /// Bytes of payload that a packet has however many samples it carries.
    pub(in crate::media) packet_bytes: usize,
    /// Bytes of payload that a sample adds to its own.
    pub(in crate::media) sample_bytes: usize,
    /// Samples in one packet at the most. At least one.
    pub(in crate::media) samples_max: usize,
}

/// Makes packets of one codec's samples, as its payload format (an RFC) says.
///
/// How many packets a unit makes and how long each is may depend only on what a [`Unit`] without
/// data tells, and on the payload's limit; what they hold may depend on the bytes.
pub(in crate::media) trait Packetizer: fmt::Debug + Send + Sync {
    /// What of a sample has to be known beforehand.
    fn parts(&self) -> Parts {
        Parts::None
    }

    /// The part of a sample that begins with `head`, of which `left` bytes are left: `head` is the
    /// first of these, as many as [`Parts`] says and no more than are left. `left` is not 0.
    ///
    /// # Errors
    ///
    /// If the bytes are not as the codec wants them: the track is then played up to there.
    fn part(&self, head: &[u8], left: u32) -> Result<Part, CodecError> {
        let _ = head;
        Ok(Part {
            number: left,
            bytes: left,
        })
    }

    /// Bytes of the parts that have this number, or fewer; `None` if none has it. For tables of
    /// parts that were not made here.
    fn part_bytes(&self, number: u32) -> Option<u32> {
        Some(number)
    }

    /// The number of the only part of a sample of so many bytes, if most samples have one part:
    /// such samples then cost nothing in the index.
    fn only_part(&self, bytes: u32) -> Option<u32> {
        let _ = bytes;
        None
    }

    /// Whether a sample of so many bytes can be made into packets that a receiver understands. Who
    /// does not ask gets packets within their limits nevertheless.
    ///
    /// # Errors
    ///
    /// If it is larger than the payload format can say: the track is then played up to there.
    fn check_sample(&self, bytes: u32) -> Result<(), CodecError> {
        let _ = bytes;
        Ok(())
    }

    /// The least that a packet has to carry behind its RTP header for a receiver to understand it:
    /// payload formats have headers that cannot be cut. Paths that carry less get no such track;
    /// who does not ask gets packets within their limits nevertheless.
    fn payload_bytes_min(&self) -> usize {
        PAYLOAD_BYTES_MIN
    }

    /// How samples that are small go together into one packet; `None` if each is a unit of its own.
    fn aggregation(&self) -> Option<Aggregation> {
        None
    }

    /// Tells `sink` the packets of `unit`, each with at least one and at most `payload_bytes_max`
    /// bytes behind its RTP header (never fewer than [`PAYLOAD_BYTES_MIN`]). Where a part takes
    /// several packets, all but its last are of exactly `payload_bytes_max` bytes, or of the one
    /// size below it that the format allows, so that they leave as one train. At least one packet;
    /// the sample's bytes in their order.
    fn packetize(&self, unit: &Unit<'_>, payload_bytes_max: usize, sink: &mut dyn PacketSink);
}

/// The least that a packet may carry behind its RTP header.
pub(in crate::media) const PAYLOAD_BYTES_MIN: usize = 64;

/// What a track's codec and its configuration amount to. Containers make it by the functions of
/// `media::codec`, and know no more of codecs.
#[derive(Clone, Debug)]
pub(in crate::media) struct Codec {
    /// What kind of media it is.
    pub(in crate::media) medium: Medium,
    /// Its static RTP payload type, if it has one (RFC 3551).
    pub(in crate::media) payload_type: Option<u8>,
    /// The name of its payload format, as in `a=rtpmap`.
    pub(in crate::media) encoding: &'static str,
    /// Ticks a second of its RTP timestamps.
    pub(in crate::media) clock_hz: u32,
    /// Channels of sound, where the payload format wants them said.
    pub(in crate::media) channels: Option<u8>,
    /// `a=fmtp`, without the payload type.
    pub(in crate::media) format_parameters: Option<String>,
    /// Its name for people and players, as in RFC 6381: `avc1.64001f`.
    pub(in crate::media) codec_string: String,
    /// Pixels, as far as the codec's configuration tells.
    pub(in crate::media) dimensions: Option<(u32, u32)>,
    /// How bright pictures may be, as far as the codec's configuration tells.
    pub(in crate::media) video_range: Option<VideoRange>,
    /// Makes its packets.
    pub(in crate::media) packetizer: Arc<dyn Packetizer>,
}
