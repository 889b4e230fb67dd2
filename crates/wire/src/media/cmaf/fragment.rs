//! Media segments (ISO/IEC 14496-12, section 8.16.2) of one movie fragment each, and where in the
//! file its media data lie.

use std::ops::Range;

use super::boxes::Writer;
use super::init::TRACK_ID;
use super::lead_ticks;
use crate::media::fragment_flags::tfhd::{
    BASE_IS_MOOF, DEFAULT_DURATION, DEFAULT_FLAGS, DESCRIPTION,
};
use crate::media::fragment_flags::trun::{
    COMPOSITIONS, DATA_OFFSET, DURATIONS, FIRST_FLAGS, FLAGS, SIZES,
};
use crate::media::fragment_flags::{SAMPLE_DEPENDS, SAMPLE_IS_INDEPENDENT, SAMPLE_IS_NOT_SYNC};
use crate::media::sampled::SampledTrack;
use crate::media::samples::Sample;

/// What the flags of a sample say.
const IS_SYNC: u32 = SAMPLE_IS_INDEPENDENT;
const IS_NOT_SYNC: u32 = SAMPLE_DEPENDS | SAMPLE_IS_NOT_SYNC;

/// Bytes of `styp`, of `moof` without a row and without what may be missing in it, and of the head
/// of `mdat`; and of that if it is long.
const STYP_BYTES: u32 = 24;
const MOOF_BYTES: u32 = 8 + 16 + 8 + 16 + 20 + 20;
const MDAT_BYTES: u32 = 8;
const MDAT_BYTES_LONG: u32 = 16;

/// What of a fragment's samples decides how it is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::media) struct Shape {
    samples: u32,
    data_bytes: u64,
    /// How long each lasts, if all last equally long.
    duration: Option<u32>,
    has_compositions: bool,
    first_is_sync: bool,
    /// How many of those behind the first are sync samples.
    later_syncs: u32,
    entry: u16,
}

impl Shape {
    /// Takes the next sample of a fragment.
    pub(in crate::media) fn push(&mut self, sample: &Sample, lasts: i64) {
        let duration = duration(lasts);
        match self.samples {
            0 => {
                self.duration = Some(duration);
                self.first_is_sync = sample.is_sync;
                self.entry = sample.entry;
            }
            _ => {
                self.duration = self.duration.filter(|&all| all == duration);
                self.later_syncs += u32::from(sample.is_sync);
            }
        }
        self.samples += 1;
        self.data_bytes += u64::from(sample.bytes);
        self.has_compositions |= sample.composition_ticks != 0;
    }

    /// Bytes of the segment.
    pub(in crate::media) fn bytes(&self) -> u64 {
        u64::from(self.head_bytes()) + self.data_bytes
    }

    /// Bytes in front of its media data.
    fn head_bytes(&self) -> u32 {
        let optional = [
            self.entry > 0,
            self.duration.is_some(),
            // The flags of most samples, in one way or another.
            self.flags_of_most().is_some(),
            self.first_flags().is_some(),
        ];
        let optional: u32 = optional.map(|it| if it { 4 } else { 0 }).iter().sum();
        let rows = self.samples * 4 * self.run_flags().columns();
        STYP_BYTES + MOOF_BYTES + optional + rows + self.mdat_bytes()
    }

    fn mdat_bytes(&self) -> u32 {
        match u32::try_from(self.data_bytes + u64::from(MDAT_BYTES)) {
            Ok(_) => MDAT_BYTES,
            Err(_) => MDAT_BYTES_LONG,
        }
    }

    /// The flags that all samples have, perhaps but for the first.
    fn flags_of_most(&self) -> Option<u32> {
        let behind = self.samples.saturating_sub(1);
        match self.later_syncs {
            0 if behind > 0 => Some(IS_NOT_SYNC),
            all if all == behind => Some(sync_flags(behind > 0 || self.first_is_sync)),
            _ => None,
        }
    }

    /// The flags of the first, if they are others.
    fn first_flags(&self) -> Option<u32> {
        let own = sync_flags(self.first_is_sync);
        self.flags_of_most().filter(|&it| it != own).map(|_| own)
    }

    fn run_flags(&self) -> RunFlags {
        let with = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        RunFlags(
            DATA_OFFSET
                | SIZES
                | with(self.first_flags().is_some(), FIRST_FLAGS)
                | with(self.duration.is_none(), DURATIONS)
                | with(self.flags_of_most().is_none(), FLAGS)
                | with(self.has_compositions, COMPOSITIONS),
        )
    }
}

/// Those of a `trun`.
#[derive(Clone, Copy)]
struct RunFlags(u32);

impl RunFlags {
    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    fn columns(self) -> u32 {
        (self.0 & (DURATIONS | SIZES | FLAGS | COMPOSITIONS)).count_ones()
    }
}

fn sync_flags(is_sync: bool) -> u32 {
    if is_sync { IS_SYNC } else { IS_NOT_SYNC }
}

/// How long a sample lasts, as far as there is room to say; what follows says itself when it
/// begins.
fn duration(lasts: i64) -> u32 {
    u32::try_from(lasts.max(0)).unwrap_or(u32::MAX)
}

/// A media segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::media) struct Fragment {
    /// All that is in front of its media data.
    pub(in crate::media) head: Vec<u8>,
    /// Where its media data lie, in order; none is empty, none begins where the one before ends.
    pub(in crate::media) pieces: Vec<Range<u64>>,
}

impl Fragment {
    /// That of samples `samples` of a track, all of which there are, and which are of one sample
    /// entry. `number` is that of the segment. If `lasts` is told, there is one sample, and it
    /// lasts so long.
    ///
    /// # Panics
    ///
    /// If there is no sample, or not all of them are.
    pub(in crate::media) fn new(
        track: &SampledTrack,
        samples: Range<usize>,
        number: u32,
        lasts: Option<i64>,
    ) -> Self {
        let walk = || {
            let steps = track.samples.walk(samples.clone());
            steps.map(|(sample, own)| (sample, lasts.unwrap_or(own)))
        };
        let first = track.samples.decode_ticks(samples.start);
        let begins = first
            .saturating_add(track.shift_ticks)
            .saturating_add(lead_ticks(track));
        let (head, shape) = head(walk, begins, number);
        assert!(shape.samples as usize == samples.len());
        Self {
            head,
            pieces: pieces(walk().map(|(sample, _)| sample)),
        }
    }
}

/// All that is in front of the media data of these samples with how long each lasts, the first of
/// which is decoded at `begins`.
///
/// # Panics
///
/// If there is no sample.
pub(in crate::media) fn head<I: Iterator<Item = (Sample, i64)>>(
    walk: impl Fn() -> I,
    begins: i64,
    number: u32,
) -> (Vec<u8>, Shape) {
    let mut shape = Shape::default();
    walk().for_each(|(sample, lasts)| shape.push(&sample, lasts));
    assert!(shape.samples > 0, "a fragment has samples");
    let head_bytes = shape.head_bytes();
    let mut out = Writer(Vec::with_capacity(head_bytes as usize));
    out.nest(b"styp", |out| {
        out.bytes(b"msdh");
        out.u32(0);
        out.bytes(b"msdhcmfs");
    });
    out.nest(b"moof", |out| {
        out.full(b"mfhd", 0, 0, |out| out.u32(number));
        out.nest(b"traf", |out| {
            write_track(&shape, begins, out);
            let flags = shape.run_flags();
            out.full(b"trun", 1, flags.0, |out| {
                out.u32(shape.samples);
                // From the beginning of `moof` to the first sample.
                out.u32(head_bytes - STYP_BYTES);
                if let Some(own) = shape.first_flags() {
                    out.u32(own);
                }
                walk().for_each(|(sample, lasts)| write_row(flags, &sample, lasts, out));
            });
        });
    });
    match shape.mdat_bytes() {
        MDAT_BYTES => {
            let bytes = shape.data_bytes + u64::from(MDAT_BYTES);
            out.u32(u32::try_from(bytes).expect("it is said to be short"));
            out.bytes(b"mdat");
        }
        long => {
            out.u32(1);
            out.bytes(b"mdat");
            out.u64(shape.data_bytes + u64::from(long));
        }
    }
    assert_eq!(out.0.len(), head_bytes as usize, "its length was counted");
    (out.0, shape)
}

/// What of a track's fragment holds for all of its samples.
fn write_track(shape: &Shape, begins: i64, out: &mut Writer) {
    let optional = [
        (
            DESCRIPTION,
            (shape.entry > 0).then(|| u32::from(shape.entry) + 1),
        ),
        (DEFAULT_DURATION, shape.duration),
        (DEFAULT_FLAGS, shape.flags_of_most()),
    ];
    let told = optional.iter().filter(|(_, value)| value.is_some());
    let flags = told.fold(BASE_IS_MOOF, |flags, (flag, _)| flags | flag);
    out.full(b"tfhd", 0, flags, |out| {
        out.u32(TRACK_ID);
        optional
            .iter()
            .filter_map(|it| it.1)
            .for_each(|it| out.u32(it));
    });
    out.full(b"tfdt", 1, 0, |out| {
        out.u64(u64::try_from(begins).unwrap_or(0))
    });
}

fn write_row(flags: RunFlags, sample: &Sample, lasts: i64, out: &mut Writer) {
    if flags.has(DURATIONS) {
        out.u32(duration(lasts));
    }
    out.u32(sample.bytes);
    if flags.has(FLAGS) {
        out.u32(sync_flags(sample.is_sync));
    }
    if flags.has(COMPOSITIONS) {
        let later = i32::try_from(sample.composition_ticks);
        out.i32(later.unwrap_or(if sample.composition_ticks < 0 {
            i32::MIN
        } else {
            i32::MAX
        }));
    }
}

/// Where samples lie, those together that lie one behind the other.
fn pieces(samples: impl Iterator<Item = Sample>) -> Vec<Range<u64>> {
    let mut pieces: Vec<Range<u64>> = Vec::new();
    for sample in samples {
        let end = sample.offset + u64::from(sample.bytes);
        match pieces.last_mut() {
            Some(last) if last.end == sample.offset => last.end = end,
            _ => pieces.push(sample.offset..end),
        }
    }
    pieces
}
