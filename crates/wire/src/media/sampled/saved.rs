//! What is saved of the index of a file of samples.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{LeftOut, SampledIndex, SampledTrack, TrackFacts};
use crate::media::codec::config::CodecConfig;
use crate::media::container::Probe;
use crate::media::samples::{SAMPLES_MAX, Samples};
use crate::media::track::TRACKS_MAX;

/// The index, as it is saved.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::media) struct SavedIndex {
    format: String,
    tracks: Vec<SavedTrack>,
    left_out: Vec<LeftOut>,
    told_duration_ns: Option<u64>,
    probes: Vec<(Range<u64>, u32)>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedTrack {
    config: CodecConfig,
    timescale: u32,
    shift_ticks: i64,
    samples: Samples,
    prefix: Vec<u8>,
    facts: TrackFacts,
}

/// What such files are: an index of another is not saved.
const FORMATS: [&str; 4] = ["MP4", "fragmented MP4", "Matroska", "WebM"];

/// Bytes of a part of the file that are compared to see whether it is the same, at the most.
const PROBE_BYTES_MAX: u64 = 64;

impl SavedIndex {
    /// What is saved of `index`; `None` if not all of the file is known, or if a codec of it cannot
    /// be made again.
    pub(in crate::media) fn of(index: &SampledIndex) -> Option<Self> {
        let is_known = FORMATS.contains(&index.format);
        let is_whole = !index.is_partial && !index.sampled.iter().any(|it| it.is_incomplete());
        if !is_known || !is_whole {
            return None;
        }
        let track = |track: &Arc<SampledTrack>| {
            Some(SavedTrack {
                config: CodecConfig::clone(track.config.as_ref()?),
                timescale: track.timescale,
                shift_ticks: track.shift_ticks,
                samples: track.samples.clone(),
                prefix: track.prefix.to_vec(),
                facts: track.facts.clone(),
            })
        };
        let tracks: Option<Vec<_>> = index.sampled.iter().map(track).collect();
        let probes = index.probes.iter();
        Some(Self {
            format: index.format.to_owned(),
            tracks: tracks?,
            left_out: index.left_out.clone(),
            told_duration_ns: index.told_duration_ns,
            probes: probes.map(|it| (it.part.clone(), it.sampled)).collect(),
        })
    }

    /// The index.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is not what [`Self::of`] has made.
    pub(in crate::media) fn index(self) -> Result<SampledIndex, String> {
        let format = FORMATS.into_iter().find(|it| *it == self.format);
        let format = format.ok_or("an unknown format")?;
        if self.tracks.len() > TRACKS_MAX {
            return Err("too many tracks".to_owned());
        }
        let samples = self.tracks.iter().map(|track| track.samples.len());
        if samples.sum::<usize>() > SAMPLES_MAX {
            return Err("too many samples".to_owned());
        }
        let tracks = self.tracks.into_iter().map(SavedTrack::track);
        let tracks = tracks.collect::<Result<Vec<_>, _>>()?;
        let probes = self.probes.into_iter().map(|(part, hash)| {
            let bytes = part.end.checked_sub(part.start);
            let fits = bytes.is_some_and(|it| (1..=PROBE_BYTES_MAX).contains(&it));
            fits.then(|| Probe::of_hash(part, hash))
        });
        let probes = probes.collect::<Option<Vec<_>>>();
        let index = SampledIndex::new(format, tracks, self.left_out);
        let mut index = index.ok_or("no tracks")?;
        index.told_duration_ns = self.told_duration_ns;
        index.probes = probes.ok_or("parts to compare that are none")?;
        Ok(index)
    }
}

impl SavedTrack {
    fn track(self) -> Result<SampledTrack, String> {
        if let Some(what) = self.samples.fault() {
            return Err(format!("{what} that no file has"));
        }
        if self.timescale == 0 {
            return Err("times of 0 ticks a second".to_owned());
        }
        let track = SampledTrack {
            codec: self.config.codec().map_err(|error| error.to_string())?,
            config: Some(Arc::new(self.config)),
            timescale: self.timescale,
            shift_ticks: self.shift_ticks,
            samples: self.samples,
            prefix: self.prefix.into(),
            carriage: None,
            facts: self.facts,
        };
        match track.is_incomplete() || !has_sound_parts(&track) {
            true => Err("samples without their parts".to_owned()),
            false => Ok(track),
        }
    }
}

/// Whether the parts of samples that are not of the usual one are such as their codec has, and fit
/// the samples.
fn has_sound_parts(track: &SampledTrack) -> bool {
    let (samples, packetizer) = (&track.samples, &track.codec.packetizer);
    let mut parts = Vec::new();
    (0..samples.with_parts()).all(|at| {
        parts.clear();
        samples.parts(at, &mut parts);
        let mut left = u64::from(samples.size(at)) + track.prefix.len() as u64;
        parts.iter().all(|&number| {
            let bytes = packetizer.part_bytes(number).map(u64::from);
            let behind = bytes.and_then(|bytes| left.checked_sub(bytes));
            left = behind.unwrap_or(0);
            behind.is_some()
        })
    })
}
