//! What the file says of its tracks (RFC 9559, section 5.1.4).

use super::ebml::{children, float, text, unsigned};
use crate::media::codec::dolby_vision::DolbyVision;
use crate::media::colour::{Colour, UNSPECIFIED};

/// Tracks that are looked at; what a file has beyond is ignored.
pub(super) const ENTRIES_MAX: usize = 64;

/// Bytes of a name, or of another text.
const TEXT_BYTES_MAX: usize = 256;

/// Bytes in front of each frame that are not in the file.
const PREFIX_BYTES_MAX: usize = 256;

/// Kinds of tracks (section 5.1.4.1.3).
pub(super) const KIND_VIDEO: u64 = 1;
pub(super) const KIND_AUDIO: u64 = 2;

const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_TYPE: u32 = 0x83;
const FLAG_DEFAULT: u32 = 0x88;
const FLAG_FORCED: u32 = 0x55aa;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CODEC_DELAY: u32 = 0x56aa;
const DEFAULT_DURATION: u32 = 0x23_e383;
const NAME: u32 = 0x536e;
const LANGUAGE: u32 = 0x22_b59c;
const LANGUAGE_BCP47: u32 = 0x22_b59d;
const VIDEO: u32 = 0xe0;
const PIXEL_WIDTH: u32 = 0xb0;
const PIXEL_HEIGHT: u32 = 0xba;
const DISPLAY_WIDTH: u32 = 0x54b0;
const DISPLAY_HEIGHT: u32 = 0x54ba;
const DISPLAY_UNIT: u32 = 0x54b2;
const COLOUR: u32 = 0x55b0;
const MATRIX_COEFFICIENTS: u32 = 0x55b1;
const RANGE: u32 = 0x55b9;
const TRANSFER_CHARACTERISTICS: u32 = 0x55ba;
const PRIMARIES: u32 = 0x55bb;
const PROJECTION: u32 = 0x7670;
const PROJECTION_POSE_ROLL: u32 = 0x7675;
const AUDIO: u32 = 0xe1;
const SAMPLING_FREQUENCY: u32 = 0xb5;
const CHANNELS: u32 = 0x9f;
const BIT_DEPTH: u32 = 0x6264;
const BLOCK_ADDITION_MAPPING: u32 = 0x41e4;
const BLOCK_ADD_ID_TYPE: u32 = 0x41e7;
const BLOCK_ADD_ID_EXTRA_DATA: u32 = 0x41ed;
const CONTENT_ENCODINGS: u32 = 0x6d80;
const CONTENT_ENCODING: u32 = 0x6240;
const CONTENT_ENCODING_ORDER: u32 = 0x5031;
const CONTENT_ENCODING_SCOPE: u32 = 0x5032;
const CONTENT_ENCODING_TYPE: u32 = 0x5033;
const CONTENT_COMPRESSION: u32 = 0x5034;
const CONTENT_COMP_ALGO: u32 = 0x4254;
const CONTENT_COMP_SETTINGS: u32 = 0x4255;
/// The types of what tells of Dolby Vision: the names of its boxes in MP4.
const DVCC: u64 = 0x6476_6343;
const DVVC: u64 = 0x6476_7643;
/// What an encoding is of: all frames, and `CodecPrivate`.
const SCOPE_FRAMES: u64 = 1;
const SCOPE_PRIVATE: u64 = 2;
const ALGO_HEADER_STRIPPING: u64 = 3;

/// A `TrackEntry`.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    pub(super) number: u64,
    /// Video, audio or others.
    pub(super) kind: u64,
    pub(super) codec_id: String,
    pub(super) private: Vec<u8>,
    /// How long a frame lasts, if it says.
    pub(super) default_ns: Option<u64>,
    /// How much earlier than they are stamped frames are heard.
    pub(super) delay_ns: u64,
    pub(super) name: Option<String>,
    pub(super) language: Option<String>,
    /// Whether it may be played where nobody chooses.
    pub(super) is_default: bool,
    /// Whether its subtitles are shown though nobody asks for any.
    pub(super) is_forced: bool,
    /// Pixels as they are shown, and as they are coded.
    pub(super) dimensions: Option<(u32, u32)>,
    pub(super) coded: Option<(u32, u32)>,
    pub(super) colour: Option<Colour>,
    pub(super) dolby_vision: Option<DolbyVision>,
    /// Clockwise.
    pub(super) rotation_degrees: u16,
    pub(super) sampling_hz: f64,
    pub(super) channels: u64,
    pub(super) bit_depth: Option<u64>,
    /// What each frame begins with that is not in the file.
    pub(super) prefix: Vec<u8>,
    /// Why its frames cannot be had as they are, if so.
    pub(super) encoded: Option<&'static str>,
}

/// The entries in `Tracks`.
pub(super) fn entries(tracks: &[u8]) -> Vec<Entry> {
    let entries = children(tracks).filter(|&(id, _)| id == TRACK_ENTRY);
    entries
        .take(ENTRIES_MAX)
        .map(|(_, body)| Entry::read(body))
        .collect()
}

impl Entry {
    /// Moments of sound a second, and channels.
    pub(super) fn sound(&self) -> (u32, u32) {
        let whole = self.sampling_hz.clamp(0.0, f64::from(u32::MAX)).round();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a whole number of 32 bits, or not a number, which becomes 0"
        )]
        let rate_hz = whole as u32;
        let channels = u32::try_from(self.channels).unwrap_or(0);
        (rate_hz, channels)
    }

    fn read(body: &[u8]) -> Self {
        let mut entry = Self {
            is_default: true,
            sampling_hz: 8000.0,
            channels: 1,
            ..Self::default()
        };
        let (mut language, mut bcp47) = ("eng".to_owned(), None);
        for (id, body) in children(body) {
            match id {
                TRACK_NUMBER => entry.number = unsigned(body).unwrap_or(0),
                TRACK_TYPE => entry.kind = unsigned(body).unwrap_or(0),
                // What is empty says what it would if it was not there.
                FLAG_DEFAULT if !body.is_empty() => entry.is_default = unsigned(body) != Some(0),
                FLAG_FORCED => entry.is_forced = unsigned(body) == Some(1),
                CODEC_ID => entry.codec_id = text(body, TEXT_BYTES_MAX),
                CODEC_PRIVATE => entry.private = body.to_vec(),
                CODEC_DELAY => entry.delay_ns = unsigned(body).unwrap_or(0),
                DEFAULT_DURATION => entry.default_ns = unsigned(body).filter(|&ns| ns > 0),
                NAME => entry.name = Some(text(body, TEXT_BYTES_MAX)),
                LANGUAGE => language = text(body, TEXT_BYTES_MAX),
                LANGUAGE_BCP47 => bcp47 = Some(text(body, TEXT_BYTES_MAX)),
                VIDEO => entry.read_video(body),
                AUDIO => entry.read_audio(body),
                CONTENT_ENCODINGS => entry.read_encodings(body),
                BLOCK_ADDITION_MAPPING => entry.read_mapping(body),
                _ => {}
            }
        }
        entry.language = Some(bcp47.unwrap_or(language));
        entry
    }

    fn read_video(&mut self, body: &[u8]) {
        let (mut pixels, mut shown, mut unit) = ((0, 0), (None, None), 0);
        for (id, body) in children(body) {
            let number = unsigned(body).and_then(|number| u32::try_from(number).ok());
            match id {
                PIXEL_WIDTH => pixels.0 = number.unwrap_or(0),
                PIXEL_HEIGHT => pixels.1 = number.unwrap_or(0),
                DISPLAY_WIDTH => shown.0 = number,
                DISPLAY_HEIGHT => shown.1 = number,
                DISPLAY_UNIT => unit = number.unwrap_or(0),
                COLOUR => self.colour = Some(colour(body)),
                PROJECTION => self.read_projection(body),
                _ => {}
            }
        }
        let are_some = |&(width, height): &(u32, u32)| width > 0 && height > 0;
        self.coded = Some(pixels).filter(are_some);
        // Units other than pixels are centimetres, inches, an aspect ratio, and an unknown one.
        self.dimensions = match (unit, shown) {
            (0, _) => Some((shown.0.unwrap_or(pixels.0), shown.1.unwrap_or(pixels.1))),
            (1..=3, (Some(width), Some(height))) => widened(pixels, (width, height)),
            _ => None,
        };
        self.dimensions = self.dimensions.filter(are_some).or(self.coded);
    }

    fn read_projection(&mut self, body: &[u8]) {
        let roll = children(body).find(|&(id, _)| id == PROJECTION_POSE_ROLL);
        // It tells of turns against the clock.
        self.rotation_degrees = match roll.and_then(|(_, body)| float(body)) {
            Some(roll) if roll == 90.0 || roll == -270.0 => 270,
            Some(roll) if roll.abs() == 180.0 => 180,
            Some(roll) if roll == -90.0 || roll == 270.0 => 90,
            _ => 0,
        };
    }

    /// What is told of additions to blocks; some of it is of the codec (section 5.1.4.1.17).
    fn read_mapping(&mut self, body: &[u8]) {
        let child = |wanted| children(body).find(|&(id, _)| id == wanted);
        let kind = child(BLOCK_ADD_ID_TYPE).and_then(|(_, body)| unsigned(body));
        let is_dolby = matches!(kind, Some(DVCC | DVVC));
        if let Some((_, record)) = child(BLOCK_ADD_ID_EXTRA_DATA).filter(|_| is_dolby) {
            self.dolby_vision = DolbyVision::read(record);
        }
    }

    fn read_audio(&mut self, body: &[u8]) {
        for (id, body) in children(body) {
            match id {
                SAMPLING_FREQUENCY => self.sampling_hz = float(body).unwrap_or(0.0),
                CHANNELS => self.channels = unsigned(body).unwrap_or(0),
                BIT_DEPTH => self.bit_depth = unsigned(body),
                _ => {}
            }
        }
    }

    /// Encodings apply in their order, so that what the first has taken away is in front.
    fn read_encodings(&mut self, body: &[u8]) {
        let encodings = children(body).filter(|&(id, _)| id == CONTENT_ENCODING);
        let encodings = encodings.take(ENTRIES_MAX);
        let mut encodings: Vec<_> = encodings.map(|(_, body)| Encoding::read(body)).collect();
        encodings.sort_by_key(|encoding| encoding.order);
        for encoding in encodings {
            if encoding.is_encryption {
                self.encoded = Some("it is encrypted");
            } else if encoding.algorithm != ALGO_HEADER_STRIPPING {
                self.encoded = Some(match encoding.algorithm {
                    0 => "its frames are compressed by zlib",
                    1 => "its frames are compressed by bzip2",
                    2 => "its frames are compressed by LZO",
                    _ => "its frames are compressed in an unknown way",
                });
            } else {
                if encoding.scope & SCOPE_FRAMES != 0 {
                    self.prefix.extend(encoding.settings);
                }
                if encoding.scope & SCOPE_PRIVATE != 0 {
                    self.private.splice(0..0, encoding.settings.iter().copied());
                }
            }
        }
        if self.prefix.len() > PREFIX_BYTES_MAX {
            self.encoded = Some("too much of the start of each frame is not in it");
        }
    }
}

/// Pixels as high as these, and as wide as they are to be shown by that ratio.
fn widened(pixels: (u32, u32), ratio: (u32, u32)) -> Option<(u32, u32)> {
    let (across, down) = (u64::from(ratio.0), u64::from(ratio.1));
    let width = (u64::from(pixels.1) * across + down / 2).checked_div(down)?;
    Some((u32::try_from(width).ok()?, pixels.1))
}

/// What `Colour` tells (section 5.1.4.1.28.16).
fn colour(body: &[u8]) -> Colour {
    /// Of `Range`: all values are used.
    const FULL: u64 = 2;
    let mut colour = Colour::default();
    for (id, body) in children(body) {
        let number = unsigned(body);
        let code = number.and_then(|it| u8::try_from(it).ok());
        let code = code.unwrap_or(UNSPECIFIED);
        match id {
            MATRIX_COEFFICIENTS => colour.matrix = code,
            RANGE => colour.is_full_range = number == Some(FULL),
            TRANSFER_CHARACTERISTICS => colour.transfer = code,
            PRIMARIES => colour.primaries = code,
            _ => {}
        }
    }
    colour
}

/// A `ContentEncoding`.
struct Encoding<'a> {
    order: u64,
    scope: u64,
    is_encryption: bool,
    algorithm: u64,
    settings: &'a [u8],
}

impl<'a> Encoding<'a> {
    fn read(body: &'a [u8]) -> Self {
        let mut encoding = Self {
            order: 0,
            scope: SCOPE_FRAMES,
            is_encryption: false,
            algorithm: 0,
            settings: &[],
        };
        for (id, body) in children(body) {
            match id {
                CONTENT_ENCODING_ORDER => encoding.order = unsigned(body).unwrap_or(0),
                CONTENT_ENCODING_SCOPE => encoding.scope = unsigned(body).unwrap_or(0),
                CONTENT_ENCODING_TYPE => encoding.is_encryption = unsigned(body) != Some(0),
                CONTENT_COMPRESSION => {
                    for (id, body) in children(body) {
                        match id {
                            CONTENT_COMP_ALGO => {
                                encoding.algorithm = unsigned(body).unwrap_or(u64::MAX);
                            }
                            CONTENT_COMP_SETTINGS => encoding.settings = body,
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
        }
        encoding
    }
}
