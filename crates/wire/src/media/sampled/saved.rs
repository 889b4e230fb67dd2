//! What is saved of the index of a file of samples.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Carriage, LeftOut, SampledIndex, SampledTrack, TrackFacts};
use crate::media::codec::config::CodecConfig;
use crate::media::container::Probe;
use crate::media::frame_rate::FrameRate;
use crate::media::samples::{SAMPLES_MAX, Samples};
use crate::media::track::{TEXTS_MAX, TRACKS_MAX};

/// The index, as it is saved.
#[derive(Debug, Deserialize, Serialize)]
pub(in crate::media) struct SavedIndex {
    format: String,
    tracks: Vec<SavedTrack>,
    left_out: Vec<LeftOut>,
    told_duration_ns: Option<u64>,
    lead_ns: u64,
    probes: Vec<(Range<u64>, u32)>,
    time_code_rate: Option<FrameRate>,
    wall_clock_start_ns: Option<u64>,
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
const FORMATS: [&str; 5] = ["MP4", "fragmented MP4", "Matroska", "WebM", "MPEG-TS"];

/// Bytes of a part of the file that are compared to see whether it is the same, at the most.
const PROBE_BYTES_MAX: u64 = 64;

impl SavedIndex {
    /// What is saved of `index`; `None` if not all of the file is known, if a codec of it cannot be
    /// made again, or if the file has other bytes in between samples.
    pub(in crate::media) fn of(index: &SampledIndex) -> Option<Self> {
        let is_carried = index.sampled.iter().any(|it| it.carriage.is_some());
        let mut saved = Self::of_tables(index).filter(|_| !is_carried)?;
        let probes = index.probes.iter();
        saved.probes = probes.map(|it| (it.part.clone(), it.sampled)).collect();
        Some(saved)
    }

    /// The same without how the file carries samples and what is remembered of it, for
    /// [`Self::carried_by`].
    pub(in crate::media) fn of_tables(index: &SampledIndex) -> Option<Self> {
        // Taken apart, so that nothing new is forgotten.
        let SampledIndex {
            format,
            sampled,
            texts,
            tracks: _,
            left_out,
            told_duration_ns,
            is_partial,
            lead_ns,
            probes: _,
            time_code_rate,
            constant_rate: _,
            wall_clock_start_ns,
        } = index;
        let is_whole = !is_partial && !sampled.iter().any(|it| it.is_incomplete());
        if !FORMATS.contains(format) || !is_whole {
            return None;
        }
        let tracks = sampled.iter().chain(texts).map(|it| SavedTrack::of(it));
        Some(Self {
            format: (*format).to_owned(),
            tracks: tracks.collect::<Option<_>>()?,
            left_out: left_out.clone(),
            told_duration_ns: *told_duration_ns,
            lead_ns: *lead_ns,
            probes: Vec::new(),
            time_code_rate: *time_code_rate,
            wall_clock_start_ns: *wall_clock_start_ns,
        })
    }

    /// The index.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is not what [`Self::of`] has made.
    pub(in crate::media) fn index(self) -> Result<SampledIndex, String> {
        let carriages = self.tracks.iter().map(|_| None).collect();
        self.with(carriages)
    }

    /// The index of a file that carries the samples of its tracks so.
    ///
    /// # Errors
    ///
    /// What is wrong with it: it is not what [`Self::of_tables`] has made.
    pub(in crate::media) fn carried_by(
        self,
        carriages: Vec<Arc<dyn Carriage>>,
    ) -> Result<SampledIndex, String> {
        match carriages.len() == self.tracks.len() {
            true => self.with(carriages.into_iter().map(Some).collect()),
            false => Err("streams of other tracks".to_owned()),
        }
    }

    fn with(self, carriages: Vec<Option<Arc<dyn Carriage>>>) -> Result<SampledIndex, String> {
        let format = FORMATS.into_iter().find(|it| *it == self.format);
        let format = format.ok_or("an unknown format")?;
        let is_text = |it: &SavedTrack| matches!(it.config, CodecConfig::Text { .. });
        let texts = self.tracks.iter().filter(|it| is_text(it)).count();
        if texts > TEXTS_MAX || self.tracks.len() - texts > TRACKS_MAX {
            return Err("too many tracks".to_owned());
        }
        let samples = self.tracks.iter().map(|track| track.samples.len());
        if samples.sum::<usize>() > SAMPLES_MAX {
            return Err("too many samples".to_owned());
        }
        let tracks = self.tracks.into_iter().zip(carriages);
        let tracks = tracks.map(|(track, carriage)| track.track(carriage));
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
        index.lead_ns = self.lead_ns;
        index.time_code_rate = self.time_code_rate;
        index.wall_clock_start_ns = self.wall_clock_start_ns;
        index.probes = probes.ok_or("parts to compare that are none")?;
        Ok(index)
    }
}

impl SavedTrack {
    fn of(track: &SampledTrack) -> Option<Self> {
        let SampledTrack {
            codec: _,
            config,
            timescale,
            shift_ticks,
            samples,
            prefix,
            carriage: _,
            facts,
        } = track;
        let config = config.as_ref()?;
        Some(Self {
            config: CodecConfig::clone(config),
            timescale: *timescale,
            shift_ticks: *shift_ticks,
            samples: samples.clone(),
            prefix: prefix.to_vec(),
            facts: facts.clone(),
        })
    }

    fn track(self, carriage: Option<Arc<dyn Carriage>>) -> Result<SampledTrack, String> {
        if let Some(what) = self.samples.fault() {
            return Err(format!("{what} that no file has"));
        }
        if carriage.is_none() && !self.samples.lie_in_one_piece() {
            return Err("samples with other bytes in between".to_owned());
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
            carriage,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::codec::text::TextKind;
    use crate::media::samples::Sample;

    /// Of H.264 whose lengths are of four bytes: a sample of 20 bytes, in two NAL units.
    fn saved() -> SavedIndex {
        let config = [1, 0x42, 0xc0, 0x0d, 0xff, 0xe0, 0];
        let mut samples = Samples::default();
        let sample = Sample {
            offset: 0,
            bytes: 20,
            decode_ticks: 0,
            composition_ticks: 0,
            is_sync: true,
            entry: 0,
        };
        samples.push(sample, 40).unwrap();
        samples.push_parts(&[5 << 2, 7 << 2]);
        SavedIndex {
            format: "MP4".to_owned(),
            tracks: vec![SavedTrack {
                config: CodecConfig::H264(vec![config.into()]),
                timescale: 1000,
                shift_ticks: 0,
                samples,
                prefix: Vec::new(),
                facts: TrackFacts::default(),
            }],
            left_out: Vec::new(),
            told_duration_ns: None,
            lead_ns: 7,
            probes: vec![(0..10, 5)],
            time_code_rate: None,
            wall_clock_start_ns: None,
        }
    }

    /// A text track of that sample.
    fn text() -> SavedTrack {
        let of = saved().tracks.remove(0);
        let mut samples = Samples::default();
        samples.push(of.samples.get(0).unwrap(), 40).unwrap();
        SavedTrack {
            config: CodecConfig::Text {
                kind: TextKind::Timed,
                unit_ns: 0,
            },
            samples,
            ..of
        }
    }

    #[test]
    fn an_index_that_no_file_has_is_refused() {
        assert!(saved().index().is_ok());
        type Change = fn(&mut SavedIndex);
        let changes: [(&str, Change); 10] = [
            ("format", |it| it.format = "AVI".to_owned()),
            ("no tracks", |it| it.tracks.clear()),
            ("0 ticks", |it| it.tracks[0].timescale = 0),
            ("H.264", |it| {
                it.tracks[0].config = CodecConfig::H264(Vec::new())
            }),
            ("parts", |it| {
                // One byte more than the sample has.
                let sample = it.tracks[0].samples.get(0).unwrap();
                it.tracks[0].samples = Samples::default();
                it.tracks[0].samples.push(sample, 40).unwrap();
                it.tracks[0].samples.push_parts(&[5 << 2, 8 << 2]);
            }),
            ("without their parts", |it| {
                let sample = it.tracks[0].samples.get(0).unwrap();
                it.tracks[0].samples = Samples::default();
                it.tracks[0].samples.push(sample, 40).unwrap();
            }),
            ("in between", |it| {
                let sample = it.tracks[0].samples.get(0).unwrap();
                it.tracks[0].samples = Samples::default();
                it.tracks[0].samples.push_spread(sample, 40, 21).unwrap();
            }),
            ("compare", |it| it.probes[0].0 = 10..10),
            ("compare", |it| it.probes[0].0 = 0..65),
            ("compare", |it| it.probes[0].0.start = 11),
        ];
        for (number, (what, change)) in changes.into_iter().enumerate() {
            let mut changed = saved();
            change(&mut changed);
            let error = changed.index().unwrap_err();
            assert!(error.contains(what), "{number}: {error}, not {what}");
        }
        let mut changed = saved();
        while changed.tracks.len() <= TRACKS_MAX {
            changed.tracks.append(&mut saved().tracks);
        }
        assert_eq!(changed.index().unwrap_err(), "too many tracks");
    }

    #[test]
    fn the_lead_of_a_film_that_was_cut_is_kept() {
        let index = saved().index().unwrap();
        let again = SavedIndex::of(&index).unwrap().index().unwrap();
        assert_eq!((index.lead_ns, again.lead_ns), (7, 7));
    }

    #[test]
    fn as_many_texts_as_there_may_be_are_restored() {
        let with = |texts: usize| {
            let mut index = saved();
            index.tracks.extend((0..texts).map(|_| text()));
            index.index().map(|it| it.texts.len())
        };
        assert_eq!(with(TEXTS_MAX), Ok(TEXTS_MAX));
        assert_eq!(with(TEXTS_MAX + 1), Err("too many tracks".to_owned()));
    }
}
