//! Samples as CMAF (ISO/IEC 23000-19): of each track an initialization segment, and movie fragments
//! whose media data are pieces of the file as it lies.
//!
//! What a fragment has in front of its media data follows from the table of samples alone; the
//! samples themselves are neither read nor moved. Times begin with what the track has first, which
//! may be in front of the time 0 of the file: an edit list says then from when on it is shown
//! (ISO/IEC 14496-12, section 8.6.6), so that no time is negative.
//!
//! The boxes are written by hand. `mp4-atom`, which is kept up, wants decoder configurations taken
//! apart that are here given on as they are, and builds a table of samples as a structure for each;
//! what is written are the twenty boxes below.

mod boxes;
mod entry;
mod fragment;
mod init;

pub(in crate::media) use entry::Description;
pub(in crate::media) use fragment::{Fragment, Shape, head as fragment_head};
pub(in crate::media) use init::init_segment;

use super::sampled::SampledTrack;

/// By how many ticks of the track its times are later in its segments than in the file: 0, or as
/// much as it begins before the file's time 0.
pub(in crate::media) fn lead_ticks(track: &SampledTrack) -> i64 {
    let first = track.samples.decode_ticks(0);
    first
        .saturating_add(track.shift_ticks)
        .min(0)
        .saturating_neg()
}
