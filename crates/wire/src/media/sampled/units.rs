//! Which samples are packetized together.

use std::iter::repeat_n;
use std::ops::Range;

use super::SampledTrack;
use crate::media::packetizer::Aggregation;
use crate::media::samples::column::Column;
use crate::media::scale::{TRICK_STEP_NS, Timeline};
use crate::media::track::Medium;

/// How long before it is due a frame of sound may leave, in a packet with the frames before it:
/// four frames of AAC at 48 kHz go together. More would save packets, and lose more with each.
pub(in crate::media) const AGGREGATE_NS_MAX: u64 = 80_000_000;

/// How long before it is due a packet of sound may leave, in one send with packets before it. Two
/// packets of AAC go together, which lie up to 93 ms apart; who listens waits for nothing, has a
/// buffer of longer than that, and loses no more with a send than with two packets.
pub(in crate::media) const TRAIN_NS_MAX: u64 = 160_000_000;

/// Which samples are a unit.
#[derive(Debug)]
pub(super) enum Units {
    /// Each is one: so many.
    Each(usize),
    /// Several go together: how many in each.
    Groups {
        counts: Column,
        /// How many bytes the packet behind the last may have; fewer than there is room for if it
        /// is to follow that one.
        limit: usize,
    },
    /// Each sync sample is one, by their numbers in the track, and the others are left out. In
    /// reverse the last comes first.
    Syncs(Vec<u32>),
}

impl Units {
    pub(super) fn of(track: &SampledTrack, payload_bytes_max: usize, grows: bool) -> Self {
        let none = Self::Groups {
            counts: Column::default(),
            limit: payload_bytes_max,
        };
        none.continued(track, payload_bytes_max, grows)
    }

    /// These, which are not the sync samples alone, and those of the samples behind them.
    pub(super) fn continued(
        &self,
        track: &SampledTrack,
        payload_bytes_max: usize,
        grows: bool,
    ) -> Self {
        let Some(how) = track.codec.packetizer.aggregation() else {
            return Self::Each(track.playable());
        };
        let (mut counts, mut limit) = match self {
            Self::Groups { counts, limit } => (counts.clone(), *limit),
            Self::Each(_) | Self::Syncs(_) => (Column::default(), payload_bytes_max),
        };
        group(
            track,
            how,
            (payload_bytes_max, grows),
            &mut counts,
            &mut limit,
        );
        Self::Groups { counts, limit }
    }

    /// The sync samples alone, by this timeline, and no more of them than [`TRICK_STEP_NS`] allows.
    /// `None` of sound of which every sample is one, or if there are none.
    pub(super) fn of_syncs(track: &SampledTrack, timeline: Timeline) -> Option<Self> {
        let samples = &track.samples;
        if samples.syncs() == samples.len() && track.codec.medium != Medium::Video {
            return None;
        }
        let syncs = (0..samples.syncs()).map(|number| samples.sync(number));
        let playable = syncs.take_while(|&sync| sync < track.playable());
        let mut syncs: Vec<_> = playable
            .filter_map(|sync| u32::try_from(sync).ok())
            .collect();
        if timeline.scale().is_reverse() {
            syncs.reverse();
        }
        let mut next_ns = 0;
        syncs.retain(|&sync| {
            let shown_ns = track.time_ns(samples.shown_ticks(sync as usize));
            let due_ns = timeline.due_ns(u64::try_from(shown_ns).unwrap_or(0));
            let is_due = due_ns >= next_ns;
            if is_due {
                next_ns = due_ns.saturating_add(TRICK_STEP_NS);
            }
            is_due
        });
        (!syncs.is_empty()).then_some(Self::Syncs(syncs))
    }

    /// Whether those of more samples begin with these, of a track that `grows` or has ended.
    pub(super) fn stay(&self, grows: bool) -> bool {
        match self {
            Self::Each(_) => true,
            // The last may be longer with samples that have come since.
            Self::Groups { .. } => grows,
            Self::Syncs(_) => false,
        }
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::Each(units) => *units,
            Self::Groups { counts, .. } => counts.len(),
            Self::Syncs(syncs) => syncs.len(),
        }
    }

    /// How many samples each has, from unit `first` on.
    pub(super) fn lengths_from(&self, first: usize) -> Box<dyn Iterator<Item = usize> + '_> {
        match self {
            Self::Groups { counts, .. } => {
                let lengths = counts.iter_from(first);
                Box::new(lengths.map(|it| usize::try_from(it).unwrap_or(0)))
            }
            Self::Each(_) | Self::Syncs(_) => {
                Box::new(repeat_n(1, self.count().saturating_sub(first)))
            }
        }
    }

    pub(super) fn samples(&self, unit: usize) -> Range<usize> {
        match self {
            Self::Each(_) => unit..unit + 1,
            Self::Groups { counts, .. } => {
                let first = usize::try_from(counts.before(unit)).unwrap_or(0);
                first..first + usize::try_from(counts.get(unit)).unwrap_or(0)
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
            Self::Groups { counts, .. } => counts.find(i64::try_from(sample).unwrap_or(i64::MAX)),
            Self::Syncs(syncs) => match syncs.first() > syncs.last() {
                true => syncs.partition_point(|&sync| sync as usize > sample),
                false => syncs.partition_point(|&sync| (sync as usize) < sample),
            },
        }
    }
}

/// How many samples go into each packet: as many as fit it and the time. Every other packet is to
/// leave in one send with the one before it, of which no packet but the last may be shorter: so it
/// takes no more bytes than that one has. While the file grows, what may become one with samples to
/// come is left out. Those that are in `counts` already stay, and `limit` is that behind the last.
fn group(
    track: &SampledTrack,
    how: Aggregation,
    (bytes_max, grows): (usize, bool),
    counts: &mut Column,
    limit: &mut usize,
) {
    let (samples, playable) = (&track.samples, track.playable());
    let span = i128::from(AGGREGATE_NS_MAX) * i128::from(track.timescale) / 1_000_000_000;
    let each_bytes = how.sample_bytes + track.prefix.len();
    let (mut count, mut bytes, mut first_ticks) = (0_i64, how.packet_bytes, 0);
    let mut entry_before = 0;
    let first = usize::try_from(counts.sum()).unwrap_or(0);
    for (sample, _) in samples.walk(first..playable) {
        let sample_bytes = sample.bytes as usize + each_bytes;
        let ticks = sample.decode_ticks;
        let is_full = count >= i64::try_from(how.samples_max).unwrap_or(i64::MAX)
            || bytes + sample_bytes > *limit
            || i128::from(ticks - first_ticks) >= span
            || count > 0 && sample.entry != entry_before;
        if count > 0 && is_full {
            counts.push(count);
            // What is larger than a packet leaves in several, the last of which may be short.
            let is_followed = *limit == bytes_max && bytes <= bytes_max;
            *limit = if is_followed { bytes } else { bytes_max };
            (count, bytes) = (0, how.packet_bytes);
        }
        if count == 0 {
            first_ticks = ticks;
            if bytes + sample_bytes > *limit {
                // It cannot follow the one before.
                *limit = bytes_max;
            }
        }
        count += 1;
        bytes += sample_bytes;
        entry_before = sample.entry;
    }
    if count > 0 && !grows {
        counts.push(count);
    }
}
