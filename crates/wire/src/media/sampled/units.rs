//! Which samples are packetized together.

use std::ops::Range;

use super::SampledTrack;
use crate::media::packetizer::Aggregation;
use crate::media::samples::column::Column;

/// How long before it is due a frame of sound may leave, in a packet with the frames before it:
/// four frames of AAC at 48 kHz go together. More would save packets, and lose more with each.
pub(in crate::media) const AGGREGATE_NS_MAX: u64 = 80_000_000;

/// Which samples are a unit.
#[derive(Debug)]
pub(super) enum Units {
    /// Each is one: so many.
    Each(usize),
    /// Several go together.
    Groups(Column),
    /// Each sync sample is one, by their numbers in the track, and the others are left out. In
    /// reverse the last comes first.
    Syncs(Vec<u32>),
}

impl Units {
    pub(super) fn of(track: &SampledTrack, payload_bytes_max: usize, grows: bool) -> Self {
        let playable = track.playable();
        match track.codec.packetizer.aggregation() {
            None => Self::Each(playable),
            Some(how) => Self::Groups(groups(track, how, payload_bytes_max, grows)),
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::Each(units) => *units,
            Self::Groups(groups) => groups.len(),
            Self::Syncs(syncs) => syncs.len(),
        }
    }

    pub(super) fn samples(&self, unit: usize) -> Range<usize> {
        match self {
            Self::Each(_) => unit..unit + 1,
            Self::Groups(groups) => {
                let first = usize::try_from(groups.before(unit)).unwrap_or(0);
                first..first + usize::try_from(groups.get(unit)).unwrap_or(0)
            }
            Self::Syncs(syncs) => {
                let sample = syncs[unit] as usize;
                sample..sample + 1
            }
        }
    }

    /// The unit that has that sample; their number if none has. Of sync samples alone, the first
    /// that is not before it in the order of playing.
    pub(super) fn of_sample(&self, sample: usize) -> usize {
        match self {
            Self::Each(units) => sample.min(*units),
            Self::Groups(groups) => groups.find(i64::try_from(sample).unwrap_or(i64::MAX)),
            Self::Syncs(syncs) => match syncs.first() > syncs.last() {
                true => syncs.partition_point(|&sync| sync as usize > sample),
                false => syncs.partition_point(|&sync| (sync as usize) < sample),
            },
        }
    }
}

/// How many samples go into each packet: as many as fit it and the time. While the file grows, what
/// may become one with samples to come is left out.
fn groups(track: &SampledTrack, how: Aggregation, bytes_max: usize, grows: bool) -> Column {
    let (samples, playable) = (&track.samples, track.playable());
    let span = i128::from(AGGREGATE_NS_MAX) * i128::from(track.timescale) / 1_000_000_000;
    let each_bytes = how.sample_bytes + track.prefix.len();
    let mut groups = Column::default();
    let (mut count, mut bytes, mut first_ticks) = (0_i64, how.packet_bytes, 0);
    for at in 0..playable {
        let sample_bytes = samples.size(at) as usize + each_bytes;
        let ticks = samples.decode_ticks(at);
        let is_full = count >= i64::try_from(how.samples_max).unwrap_or(i64::MAX)
            || bytes + sample_bytes > bytes_max
            || i128::from(ticks - first_ticks) >= span
            || count > 0 && samples.entry(at) != samples.entry(at - 1);
        if count > 0 && is_full {
            groups.push(count);
            (count, bytes) = (0, how.packet_bytes);
        }
        if count == 0 {
            first_ticks = ticks;
        }
        count += 1;
        bytes += sample_bytes;
    }
    if count > 0 && !grows {
        groups.push(count);
    }
    groups
}
