//! Tracks: what a client is told about each, and how each may be cut into packets.

use std::borrow::Cow;

use serde::Serialize;

use crate::rtp::StaticPayload;

/// Tracks of one file or stream, at most; what a file has beyond is left out.
pub const TRACKS_MAX: usize = 8;

/// Subtitles of one film, at most: text tracks of its file, which RTP does not carry, and files
/// beside it.
pub const TEXTS_MAX: usize = 16;

/// Ways in which one track may be cut into packets, at most: sessions whose paths carry more or
/// less share them.
pub const CUTS_MAX: usize = 8;

/// One medium of a file or stream, as RTP carries it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Track {
    /// What kind of media it is.
    pub medium: Medium,
    /// Its RTP payload type.
    pub payload_type: u8,
    /// The name of its payload format, as in `a=rtpmap`.
    pub encoding: Cow<'static, str>,
    /// Ticks a second of its RTP timestamps.
    pub clock_hz: u32,
    /// Channels of sound, where the payload format wants them said.
    pub channels: Option<u8>,
    /// What a decoder needs to know of it beforehand, as in `a=fmtp`.
    pub format_parameters: Option<String>,
}

/// What a track is for (RFC 8866, section 5.14).
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// To be looked at; also what holds pictures and sound.
    Video,
    /// To be listened to.
    Audio,
    /// Anything else.
    Application,
}

/// One of the ways in which a track may be cut into packets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cut {
    /// Its number, below [`CUTS_MAX`].
    pub(super) number: u8,
    /// Bytes behind the RTP header of a packet, at most.
    pub(super) payload_bytes_max: u16,
}

impl Cut {
    /// Its number among those of its track, below [`CUTS_MAX`].
    #[must_use]
    pub fn number(self) -> usize {
        self.number.into()
    }

    /// Bytes behind the RTP header of a packet, at most.
    #[must_use]
    pub fn payload_bytes_max(self) -> usize {
        self.payload_bytes_max.into()
    }
}

impl From<StaticPayload> for Track {
    fn from(payload: StaticPayload) -> Self {
        let (encoding, channels) = payload.encoding;
        Self {
            medium: match payload.is_audio {
                true => Medium::Audio,
                false => Medium::Video,
            },
            payload_type: payload.payload_type,
            encoding: encoding.into(),
            clock_hz: payload.clock_hz,
            channels,
            format_parameters: None,
        }
    }
}
