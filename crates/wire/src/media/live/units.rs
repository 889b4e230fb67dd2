//! Access units from RTP payloads: H.264 (RFC 6184, packetization modes 0 and 1), H.265 (RFC 7798,
//! without decoding order numbers), AV1 (AOM, v1.0), VP9 (RFC 9628), AAC (RFC 3640, AAC-hbr; RFC
//! 6416 with the configuration outside) and Opus (RFC 7587).
//!
//! Of pictures, NAL units get a length of four bytes in front, as CMAF wants them; parameter sets
//! are taken out and kept, for the sample entry and each sync sample, delimiters and fillers left
//! out. OBUs get their sizes, and sequence headers stay where they are; of VP9 with several spatial
//! layers the lowest is taken, which needs no other. A unit that lacks a packet is left out.

use base64::prelude::{BASE64_STANDARD, Engine};

use super::obus::Obus;
use crate::media::codec::av1::{ObuRole, PackedObu};
use crate::media::codec::first_frame::VP9_KEY_FRAME_BYTES;
use crate::media::codec::nal::NalRole;
use crate::media::codec::{aac, h264, h265, latm, vp9};
use crate::media::packetizer::SAMPLE_BYTES_MAX;
use crate::media::track::Track;
use crate::media::ts::elementary::start_codes::nals;
use crate::rtp::{Header, Stragglers, payload};

/// Bytes of all parameter sets that are kept at the most.
const SETS_BYTES_MAX: usize = 8192;

/// An access unit, or a frame of sound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct AccessUnit {
    /// Of RTP.
    pub(super) timestamp: u32,
    pub(super) data: Vec<u8>,
    /// Whether a decoder can start here.
    pub(super) is_sync: bool,
}

/// How a payload format has its units.
#[derive(Debug)]
enum Form {
    H264,
    H265,
    Av1,
    Vp9,
    /// With these widths of AU-headers, and ticks of a frame.
    Aac {
        size_bits: usize,
        index_bits: usize,
        frame_ticks: u32,
    },
    /// With one access unit in an element.
    Latm,
    Opus,
}

/// Puts the packets of a track together.
#[derive(Debug)]
pub(super) struct Units {
    form: Form,
    sequence: Option<u16>,
    stragglers: Stragglers,
    open: Open,
    /// Of pictures: what decoders are told beforehand, and how often that has changed. Parameter
    /// sets; the sequence header of AV1; the beginning of the last key frame of VP9.
    sets: Vec<Box<[u8]>>,
    changes: u64,
}

/// The unit that is put together.
#[derive(Debug, Default)]
struct Open {
    timestamp: Option<u32>,
    data: Vec<u8>,
    /// Where the NAL unit, or the frame of VP9, begins whose fragments come; of AAC how many bytes
    /// the frame has.
    fragment: Option<usize>,
    obus: Obus,
    sets: Vec<Box<[u8]>>,
    is_sync: bool,
    /// A picture is in it, or sound.
    has_picture: bool,
    is_broken: bool,
}

impl Units {
    /// Of a track; `None` if its payload format is none of these.
    pub(super) fn new(track: &Track) -> Option<Self> {
        let parameters = track.format_parameters.as_deref().unwrap_or_default();
        let encoding = track.encoding.to_ascii_lowercase();
        let bits = |name: &str| {
            let told = parameter(parameters, name).and_then(|it| it.parse().ok());
            told.filter(|it: &usize| (0..=16).contains(it))
        };
        let form = match &*encoding {
            "h264" => Form::H264,
            "h265" => Form::H265,
            "av1" => Form::Av1,
            "vp9" => Form::Vp9,
            "mpeg4-generic" => {
                let size_bits = bits("sizelength");
                // What is absent is 0 (RFC 3640, section 4.1); without both it is AAC-hbr.
                let index_bits_otherwise = if size_bits.is_some() { 0 } else { 3 };
                Form::Aac {
                    size_bits: size_bits.unwrap_or(13),
                    index_bits: bits("indexlength").unwrap_or(index_bits_otherwise),
                    frame_ticks: frame_ticks(parameters, track.clock_hz),
                }
            }
            "mp4a-latm" => Form::Latm,
            "opus" => Form::Opus,
            _ => return None,
        };
        let names: &[_] = match form {
            Form::H264 => &["sprop-parameter-sets"],
            Form::H265 => &["sprop-vps", "sprop-sps", "sprop-pps"],
            _ => &[],
        };
        let sets = names.iter().filter_map(|name| parameter(parameters, name));
        let sets = sets.flat_map(|list| list.split(','));
        let sets = sets.filter_map(|set| BASE64_STANDARD.decode(set.trim()).ok());
        let mut units = Self {
            form,
            sequence: None,
            stragglers: Stragglers::default(),
            open: Open::default(),
            sets: Vec::new(),
            changes: 0,
        };
        units.open.sets = sets.filter(|it| !it.is_empty()).map(Into::into).collect();
        units.keep_sets();
        Some(units)
    }

    /// The parameter sets that hold for the unit that was told last.
    pub(super) fn sets(&self) -> &[Box<[u8]>] {
        &self.sets
    }

    /// How often they have changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// The unit that was told last as it goes into a segment: of H.264 and H.265 with the parameter
    /// sets in front, if a decoder can start with it. FFmpeg and VLC keep the first initialization
    /// segment that they get, and know of other sets by these alone.
    pub(super) fn with_sets(&self, unit: AccessUnit) -> AccessUnit {
        let nal_type: fn(u8) -> u8 = match self.form {
            Form::H264 if unit.is_sync => |first: u8| first & 0x1f,
            Form::H265 if unit.is_sync => |first: u8| first >> 1 & 0x3f,
            _ => return unit,
        };
        let mut sets: Vec<&[u8]> = self.sets.iter().map(|set| &**set).collect();
        // A decoder forgets picture parameter sets when a sequence parameter set comes behind them.
        sets.sort_by_key(|set| set.first().copied().map(nal_type));
        let sets_bytes: usize = sets.iter().map(|set| 4 + set.len()).sum();
        let bytes = sets_bytes + unit.data.len();
        if bytes > SAMPLE_BYTES_MAX as usize {
            return unit;
        }
        let mut data = Vec::with_capacity(bytes);
        for set in sets {
            let length = u32::try_from(set.len()).unwrap_or(u32::MAX);
            data.extend_from_slice(&length.to_be_bytes());
            data.extend_from_slice(set);
        }
        data.extend_from_slice(&unit.data);
        AccessUnit { data, ..unit }
    }

    /// What comes does not follow on what came.
    pub(super) fn begin(&mut self) {
        (self.sequence, self.open) = (None, Open::default());
        self.stragglers = Stragglers::default();
    }

    /// Takes a packet, and tells the units that are complete with it.
    pub(super) fn push(&mut self, packet: &[u8], mut each: impl FnMut(&mut Self, AccessUnit)) {
        let Some((header, payload)) = Header::read(packet).zip(payload(packet)) else {
            return;
        };
        let expected = self.sequence.unwrap_or(header.sequence);
        if self.stragglers.is_late(header.sequence, expected) {
            // What it belongs to is left out already.
            return;
        }
        let ahead = header.sequence.wrapping_sub(expected);
        self.sequence = Some(header.sequence.wrapping_add(1));
        let timestamp = header.timestamp;
        match self.form {
            Form::Opus => {
                if !payload.is_empty() && payload.len() < SAMPLE_BYTES_MAX as usize {
                    each(self, frame(timestamp, payload));
                }
            }
            Form::Aac {
                size_bits,
                index_bits,
                frame_ticks,
            } => {
                if ahead > 0 {
                    self.open = Open::default();
                }
                let frames = aac_frames(payload, size_bits, index_bits);
                for (number, (bytes, size)) in (0_u32..).zip(frames) {
                    let timestamp = timestamp.wrapping_add(number.wrapping_mul(frame_ticks));
                    if let Some(whole) = self.open.aac(timestamp, bytes, size) {
                        each(self, frame(timestamp, without_adts(&whole)));
                    }
                }
            }
            Form::H264 | Form::H265 | Form::Av1 | Form::Vp9 | Form::Latm => {
                self.open.is_broken |= ahead > 0;
                if self.open.timestamp.is_some_and(|it| it != timestamp) {
                    if let Some(unit) = self.finish() {
                        each(self, unit);
                    }
                    self.open.is_broken = ahead > 0;
                }
                self.open.timestamp = Some(timestamp);
                let taken = match self.form {
                    Form::H264 => self.open.h264(payload),
                    Form::Av1 => self.open.av1(payload),
                    Form::Vp9 => self.open.vp9(payload),
                    Form::Latm => self.open.latm(payload),
                    _ => self.open.h265(payload),
                };
                self.open.is_broken |= taken.is_none();
                if self.open.bytes() > SAMPLE_BYTES_MAX as usize {
                    self.open.is_broken = true;
                    self.open.data = Vec::new();
                    (self.open.fragment, self.open.obus) = (None, Obus::default());
                }
                if header.marker
                    && let Some(unit) = self.finish()
                {
                    each(self, unit);
                }
            }
        }
    }

    /// The unit that is open, if all of it is there.
    fn finish(&mut self) -> Option<AccessUnit> {
        let has_ended = self.open.fragment.is_none() && self.open.obus.is_whole();
        let is_whole = !self.open.is_broken && has_ended;
        if is_whole {
            self.keep_sets();
        }
        let open = std::mem::take(&mut self.open);
        if !is_whole || !open.has_picture {
            return None;
        }
        let data = match self.form {
            Form::Latm => latm::unit_of(&open.data)?.to_vec(),
            _ => open.data,
        };
        Some(AccessUnit {
            timestamp: open.timestamp?,
            data,
            is_sync: open.is_sync,
        })
    }

    /// Takes over what the open unit has of parameter sets: all, if decoding begins with it.
    fn keep_sets(&mut self) {
        let new = std::mem::take(&mut self.open.sets);
        if new.is_empty() {
            return;
        }
        let is_whole = match self.form {
            Form::H264 => h264::has_parameter_sets(&new),
            Form::H265 => h265::has_parameter_sets(&new),
            _ => true,
        };
        let mut next = if is_whole {
            Vec::new()
        } else {
            self.sets.clone()
        };
        for set in new {
            if !next.contains(&set) {
                next.push(set);
            }
        }
        let bytes: usize = next.iter().map(|set| set.len()).sum();
        if bytes <= SETS_BYTES_MAX && next != self.sets {
            self.sets = next;
            self.changes += 1;
        }
    }
}

impl Open {
    fn bytes(&self) -> usize {
        self.data.len() + self.obus.bytes()
    }

    /// `None` if the payload is broken.
    fn av1(&mut self, payload: &[u8]) -> Option<()> {
        let mut obus = std::mem::take(&mut self.obus);
        let taken = obus.push(payload, &mut |obu| self.obu(obu));
        self.obus = obus;
        taken
    }

    /// A coded video sequence begins with a sequence header and a key frame that is shown.
    fn obu(&mut self, obu: PackedObu<'_>) {
        let start = self.data.len();
        if obu.role != ObuRole::LeftOut {
            obu.write(&mut self.data);
        }
        match obu.role {
            ObuRole::SequenceHeader if self.data.len() - start <= SETS_BYTES_MAX => {
                self.sets = vec![self.data[start..].into()];
            }
            ObuRole::Frame { is_key } if !self.has_picture => {
                self.has_picture = true;
                self.is_sync = is_key && !self.sets.is_empty();
            }
            _ => {}
        }
    }

    /// A frame of that size, or the next fragment of one, which is told with the last.
    fn aac(&mut self, timestamp: u32, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
        let of = (Some(timestamp), Some(size));
        if bytes.len() == size || (self.timestamp, self.fragment) != of {
            *self = Self::default();
        }
        (self.timestamp, self.fragment) = of;
        self.data.extend_from_slice(bytes);
        let open = (self.data.len() >= size).then(|| std::mem::take(self))?;
        (open.data.len() == size).then_some(open.data)
    }

    /// A piece of an element, or all of it.
    fn latm(&mut self, payload: &[u8]) -> Option<()> {
        self.data.extend_from_slice(payload);
        (self.has_picture, self.is_sync) = (true, true);
        Some(())
    }

    fn vp9(&mut self, payload: &[u8]) -> Option<()> {
        let payload = vp9::Payload::read(payload)?;
        if payload.layer > 0 {
            return Some(());
        }
        if payload.is_start {
            if self.fragment.is_some() || self.has_picture {
                return None;
            }
            self.fragment = Some(self.data.len());
        }
        let start = self.fragment?;
        self.data.extend_from_slice(payload.bytes);
        if payload.is_end {
            self.fragment = None;
            self.has_picture = self.data.len() > start;
            if vp9::is_key_frame(&self.data) {
                self.is_sync = true;
                let head = self.data.len().min(VP9_KEY_FRAME_BYTES);
                self.sets = vec![self.data[..head].into()];
            }
        }
        Some(())
    }

    fn h264(&mut self, payload: &[u8]) -> Option<()> {
        const STAP_A: u8 = 24;
        const FU_A: u8 = 28;
        let (&first, rest) = payload.split_first()?;
        match first & 0x1f {
            STAP_A => self.aggregate(rest, Self::h264_unit),
            FU_A => {
                let (&of_fragment, rest) = rest.split_first()?;
                let head = [first & 0xe0 | of_fragment & 0x1f];
                self.fragment(of_fragment, &head, rest, Self::h264_unit)
            }
            1..STAP_A => self.whole(payload, Self::h264_unit),
            // Receivers ignore what is reserved (section 5.4).
            0 | 30 | 31 => Some(()),
            _ => None,
        }
    }

    fn h265(&mut self, payload: &[u8]) -> Option<()> {
        const AGGREGATE: u8 = 48;
        const FRAGMENT: u8 = 49;
        let (&[first, second], rest) = payload.split_first_chunk()?;
        match first >> 1 & 0x3f {
            AGGREGATE => self.aggregate(rest, Self::h265_unit),
            FRAGMENT => {
                let (&of_fragment, rest) = rest.split_first()?;
                let head = [first & 0x81 | (of_fragment & 0x3f) << 1, second];
                self.fragment(of_fragment, &head, rest, Self::h265_unit)
            }
            // Those behind the packets' own types are units that some use for their own ends
            // (Dolby Vision).
            0..AGGREGATE | 51.. => self.whole(payload, Self::h265_unit),
            _ => None,
        }
    }

    fn aggregate(&mut self, mut rest: &[u8], take: fn(&mut Self, usize)) -> Option<()> {
        // Some cameras fill it up with zeros.
        while rest.iter().any(|&byte| byte != 0) {
            let (length, behind) = rest.split_first_chunk::<2>()?;
            let (unit, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
            rest = behind;
            self.whole(unit, take)?;
        }
        Some(())
    }

    fn whole(&mut self, unit: &[u8], take: fn(&mut Self, usize)) -> Option<()> {
        if self.fragment.is_some() || unit.is_empty() {
            return None;
        }
        let start = self.data.len();
        self.data.extend_from_slice(&[0; 4]);
        self.data.extend_from_slice(unit);
        take(self, start);
        Some(())
    }

    fn fragment(
        &mut self,
        of_fragment: u8,
        head: &[u8],
        rest: &[u8],
        take: fn(&mut Self, usize),
    ) -> Option<()> {
        let (is_first, is_last) = (of_fragment & 0x80 != 0, of_fragment & 0x40 != 0);
        if is_first {
            if self.fragment.is_some() {
                return None;
            }
            self.fragment = Some(self.data.len());
            self.data.extend_from_slice(&[0; 4]);
            self.data.extend_from_slice(head);
        }
        let start = self.fragment?;
        self.data.extend_from_slice(rest);
        if is_last {
            self.fragment = None;
            take(self, start);
        }
        Some(())
    }

    /// What begins there, behind room for its length, is a whole NAL unit of H.264.
    fn h264_unit(&mut self, start: usize) {
        self.unit(start, |nal| {
            (h264::role(nal), matches!(nal[0] & 0x1f, 9..=12))
        });
    }

    fn h265_unit(&mut self, start: usize) {
        self.unit(start, |nal| {
            let is_left_out = nal.len() < 2 || matches!(nal[0] >> 1 & 0x3f, 35..=38);
            (h265::role(nal), is_left_out)
        });
    }

    /// Takes a unit for what it is, and whether it is left out. Some cameras put all of a sync
    /// sample into its first parameter set, as a byte stream: no unit has start codes in it.
    fn unit(&mut self, start: usize, judge: fn(&[u8]) -> (NalRole, bool)) {
        let (role, is_left_out) = judge(&self.data[start + 4..]);
        if !matches!(role, NalRole::ParameterSet { .. }) {
            self.take(start, role, is_left_out);
            return;
        }
        let mut stream = self.data.split_off(start);
        stream[..4].copy_from_slice(&[0, 0, 0, 1]);
        for nal in nals(&stream) {
            let start = self.data.len();
            self.data.extend_from_slice(&[0; 4]);
            self.data.extend_from_slice(&stream[nal]);
            let (role, is_left_out) = judge(&self.data[start + 4..]);
            self.take(start, role, is_left_out);
        }
    }

    fn take(&mut self, start: usize, role: NalRole, is_left_out: bool) {
        match role {
            NalRole::ParameterSet { .. } => {
                let kept: usize = self.sets.iter().map(|set| set.len()).sum();
                let set: Box<[u8]> = self.data[start + 4..].into();
                self.data.truncate(start);
                if kept + set.len() <= SETS_BYTES_MAX {
                    self.sets.push(set);
                }
            }
            _ if is_left_out => self.data.truncate(start),
            NalRole::Picture { is_sync } => {
                self.has_picture = true;
                self.is_sync |= is_sync;
                self.set_length(start);
            }
            NalRole::Other { is_sync } => {
                self.is_sync |= is_sync;
                self.set_length(start);
            }
        }
    }

    fn set_length(&mut self, start: usize) {
        let bytes = u32::try_from(self.data.len() - start - 4).unwrap_or(u32::MAX);
        self.data[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
    }
}

fn frame(timestamp: u32, bytes: &[u8]) -> AccessUnit {
    AccessUnit {
        timestamp,
        data: bytes.to_vec(),
        is_sync: true,
    }
}

/// How many ticks a frame of AAC lasts: as many as the description says, or else as its
/// configuration does.
fn frame_ticks(parameters: &str, clock_hz: u32) -> u32 {
    let told = parameter(parameters, "constantduration").and_then(|it| it.parse().ok());
    let told = told.filter(|it: &u32| (1..=8192).contains(it));
    let config = || parameter(parameters, "config").and_then(from_hex);
    told.or_else(|| aac::unit_ticks(&config()?, clock_hz))
        .unwrap_or(1024)
}

/// An access unit of AAC without a header of ADTS, which some cameras leave in front of it. None
/// begins like that by itself: it would end with its first element.
fn without_adts(unit: &[u8]) -> &[u8] {
    if unit.first() != Some(&0xff) {
        return unit;
    }
    match aac::AdtsHeader::parse(unit) {
        Ok(header) if header.frame_bytes == unit.len() => &unit[header.header_bytes..],
        _ => unit,
    }
}

/// The frames of an AAC-hbr payload that are whole, or the fragment of one that is in it, and the
/// size of each frame (RFC 3640, section 3.2).
fn aac_frames(payload: &[u8], size_bits: usize, index_bits: usize) -> Vec<(&[u8], usize)> {
    let Some((length, rest)) = payload.split_first_chunk::<2>() else {
        return Vec::new();
    };
    let head_bits = usize::from(u16::from_be_bytes(*length));
    let each = size_bits + index_bits;
    if size_bits == 0 || head_bits < each {
        return Vec::new();
    }
    let Some((heads, mut data)) = rest.split_at_checked(head_bits.div_ceil(8)) else {
        return Vec::new();
    };
    let bit = |at: usize| usize::from(heads[at / 8] >> (7 - at % 8) & 1);
    let mut frames = Vec::new();
    for number in 0..head_bits / each {
        let start = number * each;
        let bytes = (start..start + size_bits).fold(0, |value, at| value << 1 | bit(at));
        let Some((frame, behind)) = data.split_at_checked(bytes) else {
            // A fragment is alone in its packet.
            if head_bits / each == 1 {
                frames.push((data, bytes));
            }
            break;
        };
        data = behind;
        if !frame.is_empty() {
            frames.push((frame, bytes));
        }
    }
    frames
}

/// A parameter of `a=fmtp`, whose names have letters of either case.
pub(super) fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|each| {
        let (key, value) = each.trim().split_once('=')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// The bytes of a parameter that has them as digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_matches('"').as_bytes();
    if !digits.len().is_multiple_of(2) || digits.is_empty() {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    let pairs = pairs.map(|pair| {
        let text = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16).ok()
    });
    pairs.collect()
}
