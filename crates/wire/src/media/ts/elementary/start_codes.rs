//! Pictures in streams of start codes: where one ends, and what it is.
//!
//! H.264 and H.265 (ISO/IEC 14496-10 and 23008-2, annex B), MPEG-1 and MPEG-2 video, and MPEG-4
//! part 2. An access unit begins where its first start code does. NAL units become samples as other
//! containers have them, with their lengths in front in place of start codes: [`nals`] says which
//! they are, when a stream is indexed and when its packets are made.

use std::ops::Range;

use memchr::memmem;

use crate::media::codec::{h264, h265, mpeg_video, mpeg4_visual};

/// Bytes of the length in front of a NAL unit in a sample.
pub(super) const LENGTH_BYTES: usize = 4;

/// Bytes of a start code without the one that says what it begins.
const PREFIX: [u8; 3] = [0, 0, 1];

/// What a stream's pictures are coded as.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Coding {
    H264,
    H265,
    /// MPEG-1 and MPEG-2.
    Mpeg,
    /// MPEG-4 part 2.
    Mpeg4,
}

impl Coding {
    /// Whether its samples are NAL units.
    pub(super) fn has_nals(self) -> bool {
        matches!(self, Self::H264 | Self::H265)
    }

    /// Bytes from a start code on that say whether an access unit begins there.
    fn head_bytes(self, code: u8) -> usize {
        match (self, code) {
            (Self::Mpeg, mpeg_video::EXTENSION) => 7,
            (Self::Mpeg | Self::Mpeg4, _) => 4,
            _ => 6,
        }
    }
}

/// Finds the ends of access units.
#[derive(Clone, Debug)]
pub(super) struct Pictures {
    coding: Coding,
    /// Where the open unit begins, once it has.
    start: Option<usize>,
    /// How far start codes are found.
    searched: usize,
    /// Whether a picture has come in the open unit, or slices of it.
    has_picture: bool,
    /// Of MPEG-2: whether the picture is a field, and the other one may follow.
    field: Field,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    None,
    First,
    Second,
}

impl Pictures {
    pub(super) fn new(coding: Coding) -> Self {
        Self {
            coding,
            start: None,
            searched: 0,
            has_picture: false,
            field: Field::None,
        }
    }

    /// The next access unit of `data`, if its end has come; `at_end` the rest is one. After it
    /// `data` shall begin with what follows it.
    pub(super) fn next(&mut self, data: &[u8], at_end: bool) -> Option<Range<usize>> {
        loop {
            let Some(at) = next_code(data, self.searched) else {
                self.searched = self.searched.max(data.len().saturating_sub(2));
                break;
            };
            self.searched = at;
            let code = data.get(at + 3).copied().unwrap_or(0);
            let Some(head) = data.get(at + 3..at + self.coding.head_bytes(code)) else {
                break;
            };
            if self.begins_unit(head)
                && let Some(start) = self.start
            {
                *self = Self::new(self.coding);
                return Some(start..at);
            }
            self.take(head, at);
            self.searched = at + PREFIX.len();
        }
        let start = self.start.filter(|_| at_end && self.has_picture)?;
        *self = Self::new(self.coding);
        Some(start..data.len())
    }

    /// How many of the bytes that it has seen belong to no access unit, and need not be shown to it
    /// again.
    pub(super) fn pass(&mut self) -> usize {
        match self.start {
            Some(_) => 0,
            None => std::mem::take(&mut self.searched),
        }
    }

    /// Whether what begins so is of the next access unit.
    fn begins_unit(&self, head: &[u8]) -> bool {
        let is_behind = self.has_picture;
        match self.coding {
            Coding::H264 => is_behind && h264::begins_unit([head[0], head[1]]),
            Coding::H265 => is_behind && h265::begins_unit([head[0], head[1], head[2]]),
            Coding::Mpeg => {
                let is_second = head[0] == mpeg_video::PICTURE && self.field == Field::First;
                is_behind && is_header(head[0]) && !is_second
            }
            Coding::Mpeg4 => is_behind && mpeg4_visual::begins_unit(head[0]),
        }
    }

    /// Takes a start code of the open unit.
    fn take(&mut self, head: &[u8], at: usize) {
        let is_picture = match self.coding {
            Coding::H264 => h264::is_picture(head[0]),
            Coding::H265 => h265::is_picture(head[0]),
            Coding::Mpeg => mpeg_video::is_slice(head[0]),
            Coding::Mpeg4 => head[0] == mpeg4_visual::PICTURE,
        };
        let may_start = match self.coding {
            Coding::H264 | Coding::H265 => true,
            Coding::Mpeg => is_header(head[0]),
            Coding::Mpeg4 => mpeg4_visual::begins_unit(head[0]),
        };
        if self.start.is_none() && may_start {
            self.start = Some(at);
        }
        self.has_picture |= is_picture && self.start.is_some();
        if self.coding == Coding::Mpeg {
            self.take_field(head);
        }
    }

    fn take_field(&mut self, head: &[u8]) {
        match head[0] {
            mpeg_video::PICTURE if self.field == Field::First => self.field = Field::Second,
            mpeg_video::EXTENSION if self.field != Field::Second => {
                if let Some(is_field) = mpeg_video::is_field(&head[1..]) {
                    self.field = if is_field { Field::First } else { Field::None };
                }
            }
            _ => {}
        }
    }
}

/// Whether that start code of MPEG video begins an access unit behind slices.
fn is_header(code: u8) -> bool {
    use mpeg_video::{GROUP, PICTURE, SEQUENCE};
    matches!(code, SEQUENCE | GROUP | PICTURE)
}

/// Where the first start code begins that is not before `from`.
fn next_code(data: &[u8], from: usize) -> Option<usize> {
    let found = memmem::find(data.get(from..)?, &PREFIX)?;
    Some(from + found)
}

/// The NAL units of an access unit: behind their start codes, and without the zeros between.
pub(in crate::media) fn nals(unit: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut next = next_code(unit, 0);
    let all = std::iter::from_fn(move || {
        let start = next? + PREFIX.len();
        next = next_code(unit, start);
        let with_zeros = &unit[start..next.unwrap_or(unit.len())];
        let bytes = with_zeros.iter().rposition(|&byte| byte != 0);
        Some(start..start + bytes.map_or(0, |last| last + 1))
    });
    all.filter(|nal| !nal.is_empty())
}

/// The same with their lengths in front in place of start codes, if that is not more than
/// `bytes_max`.
pub(super) fn with_lengths(unit: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes_max.min(unit.len() + unit.len() / 3));
    for nal in nals(unit) {
        if out.len() + LENGTH_BYTES + nal.len() > bytes_max {
            return None;
        }
        out.extend(u32::try_from(nal.len()).ok()?.to_be_bytes());
        out.extend_from_slice(&unit[nal]);
    }
    Some(out)
}
