//! The tracks of a file while its blocks are read.

use std::ops::Range;
use std::sync::Arc;

use super::codecs::{self, Coded};
use super::times::{Frame, Timed, Times};
use super::tracks::{self, Entry};
use crate::media::packetizer::{CodecError, Parts, SAMPLE_BYTES_MAX};
use crate::media::sampled::{LeftOut, SampleParts, SampledIndex, SampledTrack, TrackFacts};
use crate::media::samples::{SAMPLES_MAX, Sample, SampleError, Samples};
use crate::media::track::{Medium, TEXTS_MAX, TRACKS_MAX};

/// The tracks of a file.
#[derive(Clone, Debug)]
pub(super) struct Playing {
    tracks: Vec<PlayingTrack>,
    left_out: Vec<LeftOut>,
    /// Samples of all tracks so far.
    pub(super) samples: usize,
    /// Memory that is used again.
    frames: Vec<Frame>,
}

/// A track that is played.
#[derive(Clone, Debug)]
struct PlayingTrack {
    number: u64,
    track: SampledTrack,
    times: Times,
    is_video: bool,
    /// Why it is played no further, if something is wrong with it.
    ended: Option<String>,
    /// Whether it is none of the tracks that are played.
    is_refused: bool,
}

/// A block whose frames are being looked at, or are known and wait until the block is there.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// Which of the tracks has it.
    track: usize,
    /// When it is shown, in units of the file.
    units: i64,
    /// How long it lasts, if it says.
    pub(super) lasts: Option<u64>,
    pub(super) is_sync: bool,
    /// Where its frames lie, and of those that are looked at the parts.
    frames: Vec<(u64, u32, Box<[u32]>)>,
    /// What is known of the parts of the first frame that has none yet, and which that is.
    open: Option<(usize, SampleParts)>,
}

impl Playing {
    /// The tracks that `Tracks` tells of; those that cannot be played are left out, and of the
    /// others what is beyond [`TRACKS_MAX`], pictures first, and of subtitles beyond [`TEXTS_MAX`].
    pub(super) fn new(tracks: &[u8], unit_ns: u64) -> Self {
        let refused = |entry: &Entry, reason: String| LeftOut {
            id: entry.number,
            what: codecs::description(entry),
            reason,
        };
        let (mut played, mut texts, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for entry in tracks::entries(tracks) {
            match codecs::coded(&entry, unit_ns) {
                Ok(coded) if coded.codec.medium == Medium::Application => {
                    texts.push((entry, coded));
                }
                Ok(coded) => played.push((entry, coded)),
                Err(reason) => left_out.push(refused(&entry, reason)),
            }
        }
        played.sort_by_key(|(_, coded)| coded.codec.medium != Medium::Video);
        // Subtitles alone are nothing to play.
        if played.is_empty() {
            let reason = "only pictures and sound are played";
            let texts = texts.drain(..);
            left_out.extend(texts.map(|(entry, _)| refused(&entry, reason.to_owned())));
        }
        for (entry, _) in played.drain(TRACKS_MAX.min(played.len())..) {
            let reason = format!("only {TRACKS_MAX} tracks of a file are played");
            left_out.push(refused(&entry, reason));
        }
        for (entry, _) in texts.drain(TEXTS_MAX.min(texts.len())..) {
            let reason = format!("only {TEXTS_MAX} subtitles of a film are shown");
            left_out.push(refused(&entry, reason));
        }
        let tracks = played.into_iter().chain(texts);
        Self {
            tracks: tracks
                .map(|(entry, coded)| PlayingTrack::new(entry, coded, unit_ns))
                .collect(),
            left_out,
            samples: 0,
            frames: Vec::new(),
        }
    }

    /// Which track has that number, if it is played, and still is.
    pub(super) fn track(&self, number: u64) -> Option<usize> {
        let mut tracks = self.tracks.iter();
        tracks.position(|track| track.number == number && track.ended.is_none())
    }

    /// A block of track number `track`, by where its frames lie.
    pub(super) fn open(
        &mut self,
        track: usize,
        units: i64,
        is_sync: bool,
        frames: impl Iterator<Item = Range<u64>>,
    ) -> Option<Block> {
        let of = &mut self.tracks[track];
        let is_parted = of.track.codec.packetizer.parts() != Parts::None;
        let mut known = Vec::new();
        for frame in frames {
            let bytes = frame.end - frame.start;
            let Some(bytes) = u32::try_from(bytes)
                .ok()
                .filter(|&it| it <= SAMPLE_BYTES_MAX)
            else {
                self.end(track, &CodecError::Sample { bytes });
                return None;
            };
            let whole = bytes.saturating_add(u32::try_from(of.track.prefix.len()).unwrap_or(0));
            if let Err(error) = of.track.codec.packetizer.check_sample(whole) {
                self.end(track, &error);
                return None;
            }
            known.push((frame.start, bytes, Box::default()));
        }
        let (offset, bytes, _) = *known.first()?;
        let parts = SampleParts::new(offset, bytes, &of.track.prefix);
        Some(Block {
            track,
            units,
            lasts: None,
            is_sync: is_sync || !of.is_video,
            frames: known,
            open: is_parted.then_some((0, parts)),
        })
    }

    /// Which bytes of the file say more of the parts of a block's frames; `None` if all are known.
    pub(super) fn wants(&self, block: &Block) -> Option<Range<u64>> {
        let track = &self.tracks[block.track].track;
        let (_, parts) = block.open.as_ref()?;
        parts.wants(&*track.codec.packetizer, &track.prefix)
    }

    /// Takes these bytes; `false` if the track is played only up to there.
    pub(super) fn push_parts(&mut self, block: &mut Block, bytes: &[u8]) -> bool {
        let of = &mut self.tracks[block.track];
        let (packetizer, prefix) = (&*of.track.codec.packetizer, &of.track.prefix);
        let Some((number, parts)) = &mut block.open else {
            return true;
        };
        if let Err(error) = parts.push(packetizer, prefix, bytes) {
            self.end(block.track, &error);
            return false;
        }
        if parts.wants(packetizer, prefix).is_none() {
            block.frames[*number].2 = parts.numbers(packetizer).into();
            *number += 1;
            match block.frames.get(*number) {
                Some(&(offset, bytes, _)) => *parts = SampleParts::new(offset, bytes, prefix),
                None => block.open = None,
            }
        }
        true
    }

    /// Takes a block that is in the file as a whole.
    pub(super) fn add(&mut self, block: Block) {
        let of = &mut self.tracks[block.track];
        let frame = |(offset, bytes, parts)| Frame {
            offset,
            bytes,
            is_sync: block.is_sync,
            parts,
            shown: 0,
        };
        self.frames.extend(block.frames.into_iter().map(frame));
        let mut certain = Vec::new();
        of.times
            .block(block.units, block.lasts, &mut self.frames, &mut certain);
        self.append(block.track, certain);
    }

    fn append(&mut self, track: usize, certain: Vec<Timed>) {
        self.samples += self.tracks[track].add(certain, SAMPLES_MAX - self.samples);
        self.refuse(track);
    }

    /// A track that has ended at its first frame is none; but once the file has begun to play,
    /// clients know of it, and it stays one without samples.
    fn refuse(&mut self, track: usize) {
        let has_begun = self.has_begun();
        let of = &mut self.tracks[track];
        of.is_refused |= of.ended.is_some() && of.track.samples.len() == 0 && !has_begun;
    }

    /// No block follows.
    pub(super) fn finish(&mut self) {
        (0..self.tracks.len()).for_each(|track| self.flush(track));
    }

    /// No block of that track follows: what waits for more is certain.
    fn flush(&mut self, track: usize) {
        let of = &mut self.tracks[track];
        let mut certain = Vec::new();
        of.times.finish(&mut certain);
        self.append(track, certain);
    }

    /// A track is played up to here.
    fn end(&mut self, track: usize, reason: &CodecError) {
        self.flush(track);
        let of = &mut self.tracks[track];
        let (number, reason) = (of.track.samples.len() as u64, reason.clone());
        of.end(&SampleError::Codec { number, reason });
        self.refuse(track);
    }

    /// Whether there is enough to start with: samples of the track that seeks go by.
    pub(super) fn has_begun(&self) -> bool {
        let first = self.tracks.iter().find(|of| !of.is_refused);
        first.is_some_and(|first| first.track.samples.len() > 0)
    }

    /// Whether there are any samples.
    pub(super) fn has_samples(&self) -> bool {
        self.samples > 0
    }

    /// Why nothing is played, if no track is.
    pub(super) fn refusal(&self) -> Option<String> {
        let reason = |out: &LeftOut| format!("{}: {}", out.what, out.reason);
        let refused = self.tracks.iter().map(PlayingTrack::refusal);
        let mut reasons: Vec<_> = self.left_out.iter().map(reason).take(TRACKS_MAX).collect();
        for refused in refused {
            reasons.push(reason(&refused?));
        }
        match reasons.is_empty() {
            true => Some("it has no tracks".to_owned()),
            false => Some(reasons.join("; ")),
        }
    }

    /// The index of what is certain; `problems` of the whole file are told of its first track.
    pub(super) fn index(mut self, mut problems: Vec<String>) -> Option<SampledIndex> {
        let refused = self.tracks.iter().filter_map(PlayingTrack::refusal);
        self.left_out.extend(refused);
        let tracks = self.tracks.into_iter().filter(|of| !of.is_refused);
        let tracks = tracks.map(|of| {
            let mut track = of.track;
            track.facts.problems.append(&mut problems);
            if of.times.left_out > 0 {
                let late = of.times.left_out;
                track.facts.problems.push(format!(
                    "{late} frames are left out whose times run backwards by more than five seconds"
                ));
            }
            let ended = of
                .ended
                .map(|reason| format!("it is played up to there: {reason}"));
            track.facts.problems.extend(ended);
            track
        });
        SampledIndex::new("Matroska", tracks.collect::<Vec<_>>(), self.left_out)
    }
}

impl PlayingTrack {
    fn new(entry: Entry, coded: Coded, unit_ns: u64) -> Self {
        let Coded {
            codec,
            config,
            is_reordered,
            frame,
        } = coded;
        let times = Times::new(
            unit_ns,
            entry.default_ns,
            frame,
            codec.clock_hz,
            is_reordered,
        );
        // What the entry calls its kind may be another than its codec's.
        let is_video = codec.medium == Medium::Video;
        let is_sound = codec.medium == Medium::Audio;
        let sound = is_sound.then(|| entry.sound());
        let facts = TrackFacts {
            id: entry.number,
            language: entry.language,
            name: entry.name,
            is_default: entry.is_default,
            is_forced: entry.is_forced,
            dimensions: entry.dimensions.filter(|_| is_video),
            coded: entry.coded.filter(|_| is_video),
            colour: entry.colour.filter(|_| is_video),
            dolby_vision: entry.dolby_vision.filter(|_| is_video),
            rotation_degrees: entry.rotation_degrees,
            sound,
            ..TrackFacts::default()
        };
        Self {
            number: entry.number,
            track: SampledTrack {
                codec,
                config: Some(Arc::new(config)),
                timescale: times.hz(),
                shift_ticks: -times.ticks_of_ns(entry.delay_ns),
                samples: Samples::default(),
                prefix: Arc::from(entry.prefix),
                carriage: None,
                facts,
            },
            times,
            is_video,
            ended: None,
            is_refused: false,
        }
    }

    fn end(&mut self, reason: &SampleError) {
        self.ended = Some(reason.to_string());
    }

    fn refusal(&self) -> Option<LeftOut> {
        let reason = self.ended.clone().filter(|_| self.is_refused)?;
        Some(LeftOut {
            id: self.number,
            what: self.track.codec.codec_string.clone(),
            reason,
        })
    }

    /// Appends samples, `room` of them at the most, and says how many.
    fn add(&mut self, certain: Vec<Timed>, room: usize) -> usize {
        let before = self.track.samples.len();
        if self.ended.is_some() {
            return 0;
        }
        for Timed {
            frame,
            decoded,
            lasts,
        } in certain
        {
            let sample = Sample {
                offset: frame.offset,
                bytes: frame.bytes,
                decode_ticks: decoded,
                composition_ticks: frame.shown.saturating_sub(decoded),
                is_sync: frame.is_sync,
                entry: 0,
            };
            let samples = &mut self.track.samples;
            let lasts = u32::try_from(lasts.max(0)).unwrap_or(u32::MAX);
            let number = samples.len() as u64;
            let checked = samples.check_parts(frame.parts.len());
            let pushed = match samples.len() - before < room {
                true => checked
                    .map_err(|reason| SampleError::Codec { number, reason })
                    .and_then(|()| samples.push(sample, lasts)),
                false => Err(SampleError::Count),
            };
            if let Err(error) = pushed {
                self.end(&error);
                break;
            }
            if self.track.codec.packetizer.parts() != Parts::None {
                samples.push_parts(&frame.parts);
            }
        }
        self.track.samples.len() - before
    }
}
