//! Frames of sound in streams that have no more than that: ADTS, LATM, MPEG audio, AC-3, E-AC-3 and
//! Opus.
//!
//! Each frame's header says how long it is. The first one is believed when another follows where it
//! ends, and all that follow have to be of the same stream; where one is not, the search begins
//! anew.

use std::ops::Range;
use std::sync::Arc;

use memchr::memchr;

use crate::media::codec::config::CodecConfig;
use crate::media::codec::{aac, ac3, eac3, latm, mpeg_audio, opus};
use crate::media::packetizer::CodecError;

/// How sound is coded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    /// AAC in ADTS (ISO/IEC 14496-3, section 1.A.2.2).
    Adts,
    /// AAC in LATM.
    Latm,
    /// MPEG audio.
    Mpeg,
    /// AC-3 or E-AC-3: the frames tell which.
    Dolby,
    Opus,
}

/// What the header of a frame says.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Header {
    Adts(aac::AdtsHeader),
    /// With the configuration that it has.
    Latm(latm::Frame, Arc<latm::Config>),
    Mpeg(mpeg_audio::FrameHeader),
    Ac3(ac3::FrameHeader),
    Eac3(eac3::FrameHeader),
    Opus(opus::TsPacket),
}

/// A sample, in bytes of the stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Frame {
    /// Where its header begins.
    pub(super) start: usize,
    /// What of it is sent, or has that in it.
    pub(super) bytes: Range<usize>,
    /// Where it ends, with those that add to it.
    pub(super) end: usize,
    /// How many bytes are sent.
    pub(super) sample_bytes: u32,
    /// How long it lasts, in ticks of its rate.
    pub(super) ticks: u32,
    header: Header,
}

impl Frame {
    /// What the stream is whose frame this is.
    ///
    /// # Errors
    ///
    /// If it cannot be sent.
    pub(super) fn config(&self) -> Result<CodecConfig, CodecError> {
        Ok(match &self.header {
            Header::Adts(header) => CodecConfig::Aac(header.audio_specific_config()?.into()),
            Header::Latm(_, config) => CodecConfig::Aac(config.audio_specific_config.clone()),
            Header::Mpeg(header) => CodecConfig::MpegAudio {
                rate_hz: header.rate_hz,
            },
            Header::Ac3(header) => CodecConfig::Ac3 {
                rate_hz: header.rate_hz,
                channels: header.channels,
            },
            Header::Eac3(header) => CodecConfig::Eac3 {
                rate_hz: header.rate_hz,
                channels: header.channels,
            },
            Header::Opus(packet) => CodecConfig::OpusDops(packet.dops().into()),
        })
    }
}

/// Finds frames.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    coding: Coding,
    /// That of the stream's first frame.
    first: Option<Header>,
    /// Whether a frame has ended where the next bytes begin.
    is_synced: bool,
    /// Whether there were frames that add to another: those of the next one are waited for.
    has_added: bool,
    /// How often something else stood where a frame should begin.
    pub(super) losses: u64,
    /// What stands there instead: a header of the same coding that is unlike the first, and how
    /// often it has stood there.
    other: Option<(Header, u32)>,
    /// Whether that has become so often that the stream has changed.
    pub(super) has_changed: bool,
}

impl Coding {
    /// Bytes of a frame that say what it is, or with what it goes on.
    fn head_bytes(self) -> usize {
        match self {
            Self::Adts => 7,
            Self::Latm => latm::SYNC_BYTES,
            Self::Mpeg => 4,
            Self::Dolby => 8,
            Self::Opus => 2,
        }
    }

    /// The byte that frames begin with.
    fn first_byte(self) -> u8 {
        match self {
            Self::Adts | Self::Mpeg => 0xff,
            Self::Latm => 0x56,
            Self::Dolby => 0x0b,
            Self::Opus => 0x7f,
        }
    }

    /// The header that bytes begin with, of a stream in which that one stands `before` it.
    fn header(self, bytes: &[u8], before: Option<&Header>) -> Result<Header, Missing> {
        if bytes.len() < self.head_bytes() {
            return Err(Missing::Bytes);
        }
        // AC-3 is up to 10 (ETSI TS 102 366, section E.1.3.1.6).
        let is_eac3 = bytes.get(5).is_some_and(|byte| byte >> 3 > 10);
        let header = match self {
            Self::Adts => aac::AdtsHeader::parse(bytes).map(Header::Adts),
            Self::Latm => return latm_header(bytes, before),
            Self::Mpeg => mpeg_audio::FrameHeader::parse(bytes).map(Header::Mpeg),
            Self::Dolby if is_eac3 => eac3::FrameHeader::parse(bytes).map(Header::Eac3),
            Self::Dolby => ac3::FrameHeader::parse(bytes).map(Header::Ac3),
            Self::Opus => match opus::TsPacket::parse(bytes) {
                Ok(None) => return Err(Missing::Bytes),
                Ok(Some(packet)) => Ok(Header::Opus(packet)),
                Err(error) => Err(error),
            },
        };
        header.map_err(|_| Missing::Frame)
    }
}

/// A frame says what it is as a whole alone, and may leave its configuration to those before.
fn latm_header(bytes: &[u8], before: Option<&Header>) -> Result<Header, Missing> {
    let frame_bytes = latm::Frame::bytes(bytes).map_err(|_| Missing::Frame)?;
    let bytes = bytes.get(..frame_bytes).ok_or(Missing::Bytes)?;
    let frame = latm::Frame::parse(bytes).map_err(|_| Missing::Frame)?;
    let config = match (&frame.config, before) {
        (Some(config), _) | (None, Some(Header::Latm(_, config))) => Arc::clone(config),
        _ => return Err(Missing::Frame),
    };
    Ok(Header::Latm(frame, config))
}

impl Header {
    fn header_bytes(&self) -> usize {
        match self {
            // The payload format says what this header does (RFC 3640).
            Self::Adts(header) => header.header_bytes,
            Self::Opus(packet) => packet.header_bytes,
            _ => 0,
        }
    }

    fn frame_bytes(&self) -> usize {
        match self {
            Self::Adts(header) => header.frame_bytes,
            Self::Mpeg(header) => header.frame_bytes,
            Self::Ac3(header) => header.frame_bytes,
            Self::Eac3(header) => header.frame_bytes,
            Self::Latm(frame, _) => frame.frame_bytes,
            Self::Opus(packet) => packet.frame_bytes,
        }
    }

    fn rate_hz(&self) -> u32 {
        match self {
            Self::Adts(header) => header.rate_hz(),
            Self::Mpeg(header) => header.rate_hz,
            Self::Ac3(header) => header.rate_hz,
            Self::Eac3(header) => header.rate_hz,
            Self::Latm(_, config) => config.rate_hz,
            Self::Opus(_) => 48_000,
        }
    }

    fn ticks(&self) -> u32 {
        match self {
            Self::Adts(_) => 1024,
            Self::Mpeg(header) => header.frame_samples,
            Self::Ac3(_) => 1536,
            Self::Eac3(header) => header.frame_samples,
            Self::Latm(_, config) => config.unit_ticks,
            Self::Opus(packet) => packet.ticks,
        }
    }

    /// Where what is sent of the frame ends, which has so many bytes with those that add to it:
    /// AC-3 is sent alone, because its payload format has no other (RFC 4184).
    fn sent_end(&self, bytes: usize) -> usize {
        match self {
            Self::Ac3(header) => header.frame_bytes,
            _ => bytes,
        }
    }

    /// How many bytes are sent of the frame, of which what is sent ends there.
    fn sample_bytes(&self, sent_end: usize) -> u32 {
        match self {
            Self::Latm(frame, _) => frame.unit_bytes,
            _ => u32::try_from(sent_end - self.header_bytes()).unwrap_or(u32::MAX),
        }
    }

    /// Whether it adds to the time of the frame in front: a substream of E-AC-3 other than the
    /// first.
    fn is_added(&self) -> bool {
        matches!(self, Self::Eac3(header) if !header.is_independent || header.substream > 0)
    }

    /// Whether one stream may have both.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Adts(one), Self::Adts(other)) => one.is_like(other),
            (Self::Mpeg(one), Self::Mpeg(other)) => {
                (one.layer, one.rate_hz) == (other.layer, other.rate_hz)
            }
            (Self::Ac3(one), Self::Ac3(other)) => one.rate_hz == other.rate_hz,
            // Blu-ray adds channels so to AC-3 for those who know E-AC-3.
            (Self::Ac3(one), Self::Eac3(added)) if other.is_added() => one.rate_hz == added.rate_hz,
            (Self::Eac3(one), Self::Eac3(other)) => one.rate_hz == other.rate_hz,
            (Self::Latm(_, one), Self::Latm(_, other)) => one == other,
            (Self::Opus(_), Self::Opus(_)) => true,
            _ => false,
        }
    }
}

/// Why no frame is to be had of the bytes that there are.
enum Missing {
    /// None begins there.
    Frame,
    /// More bytes.
    Bytes,
}

impl Frames {
    pub(super) fn new(coding: Coding) -> Self {
        Self {
            coding,
            first: None,
            is_synced: false,
            has_added: false,
            losses: 0,
            other: None,
            has_changed: false,
        }
    }

    /// Ticks a second of the times of frames, once there is one.
    pub(super) fn rate_hz(&self) -> Option<u32> {
        self.first.as_ref().map(Header::rate_hz)
    }

    pub(super) fn coding(&self) -> Coding {
        self.coding
    }

    /// How many channels the frames have, as far as their codec does not say.
    pub(super) fn channels(&self) -> Option<u8> {
        match self.first.as_ref()? {
            Header::Mpeg(header) => Some(header.channels),
            _ => None,
        }
    }

    /// Bytes are missing in front of those that come next.
    pub(super) fn lose(&mut self) {
        self.is_synced = false;
    }

    /// The next frame is the stream's first.
    pub(super) fn begin_anew(&mut self) {
        self.first = None;
        self.is_synced = false;
    }

    /// The next frame of `data`, if it is whole; `at_end` nothing follows. The bytes in front of it
    /// are none of a frame, and those up to its end need not be shown again; without a frame, as
    /// many as are said.
    pub(super) fn next(&mut self, data: &[u8], at_end: bool) -> Result<Frame, usize> {
        let mut start = 0;
        loop {
            match self.frame(&data[start..], at_end) {
                Ok((header, end)) => {
                    self.is_synced = true;
                    self.has_added |= end > header.frame_bytes();
                    self.other = None;
                    self.first.get_or_insert_with(|| header.clone());
                    let sent_end = header.sent_end(end);
                    return Ok(Frame {
                        start,
                        bytes: start + header.header_bytes()..start + sent_end,
                        end: start + end,
                        sample_bytes: header.sample_bytes(sent_end),
                        ticks: header.ticks(),
                        header,
                    });
                }
                Err(Missing::Bytes) => return Err(start),
                Err(Missing::Frame) => {
                    self.losses += u64::from(self.is_synced);
                    self.is_synced = false;
                    self.look_for_change(&data[start..]);
                    let behind = &data[start + 1..];
                    let next = memchr(self.coding.first_byte(), behind);
                    start += 1 + next.unwrap_or(behind.len());
                }
            }
        }
    }

    /// Looks whether bytes that no frame begins with are the head of one of the same coding that is
    /// unlike the first. What looks like a head by chance does not come again and again.
    fn look_for_change(&mut self, data: &[u8]) {
        let Some(first) = &self.first else { return };
        let Ok(header) = self.coding.header(data, Some(first)) else {
            return;
        };
        if first.is_like(&header) {
            return;
        }
        let before = self.other.take().filter(|(it, _)| it.is_like(&header));
        let count = before.map_or(1, |(_, count)| count.saturating_add(1));
        self.has_changed |= count == OTHERS_MIN;
        self.other = Some((header, count));
    }

    /// The frame that bytes begin with, and where it ends.
    fn frame(&self, data: &[u8], at_end: bool) -> Result<(Header, usize), Missing> {
        let header = self.header(data, None)?;
        if header.is_added() {
            // Its first substream is missing.
            return Err(Missing::Frame);
        }
        let mut end = header.frame_bytes();
        if data.len() < end {
            return Err(Missing::Bytes);
        }
        for _ in 0..SUBSTREAMS_MAX {
            let next = match self.header(&data[end..], Some(&header)) {
                Ok(next) => next,
                Err(Missing::Bytes) if at_end => return Ok((header, end)),
                Err(Missing::Bytes) if self.is_synced && !self.may_be_added_to(&header) => {
                    return Ok((header, end));
                }
                Err(Missing::Bytes) => return Err(Missing::Bytes),
                Err(Missing::Frame) if self.is_synced => return Ok((header, end)),
                Err(Missing::Frame) => return Err(Missing::Frame),
            };
            if !next.is_added() {
                return Ok((header, end));
            }
            end += next.frame_bytes();
            if data.len() < end {
                return Err(Missing::Bytes);
            }
        }
        Err(Missing::Frame)
    }

    /// Whether others may follow that add to this frame. Of AC-3 that is seldom so, and a frame
    /// that waits for the next is lost with it where packets are missing.
    fn may_be_added_to(&self, header: &Header) -> bool {
        self.has_added || matches!(header, Header::Eac3(_))
    }

    fn header(&self, data: &[u8], before: Option<&Header>) -> Result<Header, Missing> {
        let header = self.coding.header(data, self.first.as_ref().or(before))?;
        let is_ours = self
            .first
            .as_ref()
            .is_none_or(|first| first.is_like(&header));
        let has_bytes = header.frame_bytes() > header.header_bytes();
        match is_ours && has_bytes {
            true => Ok(header),
            false => Err(Missing::Frame),
        }
    }
}

/// A stream has changed when so many heads of frames are alike and unlike its first.
const OTHERS_MIN: u32 = 4;

/// Frames of one time at the most: eight programs of nine substreams (ETSI TS 102 366, section
/// E.1.3.1.2).
const SUBSTREAMS_MAX: usize = 72;
