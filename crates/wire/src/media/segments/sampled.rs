//! The segments of films of samples: CMAF.

use std::ops::Range;
use std::sync::Arc;

use super::cut::Cutter;
use super::{
    Picture, Rates, Rendition, SEGMENT_SAMPLES_MAX, SEGMENTS_MAX, Segment, Segmented,
    SegmentsError, Source, Start, ns, target_ns,
};
use crate::media::cmaf::{Description, Fragment, Shape, init_segment};
use crate::media::container::Container;
use crate::media::sampled::{LeftOut, SampledIndex, SampledTrack};
use crate::media::samples::Sample;
use crate::media::track::Medium;

/// Reasons that are told in an error.
const TOLD_MAX: usize = 8;

/// The samples that a rendition is made of.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    track: Arc<SampledTrack>,
    description: Arc<Description>,
}

/// Cuts a film of samples.
pub(super) fn segmented(
    index: &SampledIndex,
    is_whole: bool,
    read: &mut dyn FnMut(Range<u64>) -> Option<Vec<u8>>,
) -> Result<Segmented, SegmentsError> {
    let mut left_out = index.left_out.clone();
    let mut tracks: Vec<Samples> = Vec::new();
    for track in &index.sampled {
        let is_video = |it: &SampledTrack| it.codec.medium == Medium::Video;
        let is_second = is_video(track) && tracks.iter().any(|it| is_video(&it.track));
        let described = match Description::of(track, read) {
            Ok(_) if track.samples.len() == 0 => Err("it has no samples".to_owned()),
            Ok(_) if is_second => Err("another track of pictures goes first".to_owned()),
            described => described,
        };
        match described {
            Ok(description) => tracks.push(Samples {
                track: Arc::clone(track),
                description: Arc::new(description),
            }),
            Err(reason) => left_out.push(LeftOut {
                id: track.facts.id,
                what: track.codec.codec_string.clone(),
                reason,
            }),
        }
    }
    if tracks.is_empty() {
        let reasons = left_out.iter().take(TOLD_MAX);
        let reasons = reasons.map(|it| format!(": {}: {}", it.what, it.reason));
        return Err(SegmentsError::Nothing(reasons.collect()));
    }
    // All samples of a file in one piece are known with its tables, once they are here.
    let is_complete = is_whole || index.format == "MP4" && !index.is_partial;
    let target_ns = target_ns(index.duration_ns());
    let mut all = tracks.iter().map(|it| &it.track);
    let (mut of_pictures, mut cuts_ns) = (Vec::new(), Vec::new());
    if let Some(pictures) = all.find(|it| it.codec.medium == Medium::Video) {
        of_pictures = cut_pictures(pictures, target_ns)?;
        cuts_ns.extend(of_pictures.iter().map(|&first| shown_ns(pictures, first)));
    }
    let mut renditions = Vec::new();
    for samples in tracks {
        let medium = samples.track.codec.medium;
        let firsts = match medium {
            // There is one track of them.
            Medium::Video => std::mem::take(&mut of_pictures),
            _ => cut_sound(&samples.track, &cuts_ns, target_ns, is_complete),
        };
        let name = name(medium, &renditions);
        renditions.push(rendition(samples, name, &firsts, is_complete));
    }
    if renditions.iter().all(|it| it.segments() == 0) {
        return Err(SegmentsError::Nothing(
            ": too little of it is known".to_owned(),
        ));
    }
    Ok(Segmented {
        renditions,
        left_out,
        is_complete,
    })
}

/// A name that none of the others has.
fn name(medium: Medium, others: &[Rendition]) -> String {
    let alike = others.iter().filter(|it| it.medium == medium).count();
    let kind = match medium {
        Medium::Video => "video",
        Medium::Audio => "audio",
        Medium::Application => "other",
    };
    match alike {
        0 => kind.to_owned(),
        others => format!("{kind}-{}", others + 1),
    }
}

/// When a sample is shown, in ticks of the track from the beginning of the file; not before.
fn shown(track: &SampledTrack, sample: &Sample) -> i64 {
    let ticks = sample.decode_ticks.saturating_add(sample.composition_ticks);
    ticks.saturating_add(track.shift_ticks).max(0)
}

/// The same of sample `at`, which there is.
fn shown_ticks(track: &SampledTrack, at: usize) -> i64 {
    track
        .samples
        .get(at)
        .map_or(0, |sample| shown(track, &sample))
}

fn shown_ns(track: &SampledTrack, at: usize) -> u64 {
    ns(shown_ticks(track, at), track.timescale)
}

/// The first samples of the segments of pictures: sync samples, the first sample, and those from
/// which on they are coded otherwise.
fn cut_pictures(track: &SampledTrack, target_ns: u64) -> Result<Vec<usize>, SegmentsError> {
    let mut cutter = Cutter::new(target_ns);
    let (mut firsts, mut last, mut entry) = (vec![0], 0, track.samples.entry(0));
    for (at, (sample, _)) in track
        .samples
        .walk(0..track.samples.len())
        .enumerate()
        .skip(1)
    {
        let is_needed = sample.entry != entry || at - last == SEGMENT_SAMPLES_MAX;
        if !is_needed && !sample.is_sync {
            continue;
        }
        let time_ns = ns(shown(track, &sample), track.timescale);
        if is_needed {
            cutter.is_cut(time_ns);
        }
        if is_needed || cutter.cuts(time_ns) {
            (last, entry) = (at, sample.entry);
            firsts.push(at);
        }
        if firsts.len() > 2 * SEGMENTS_MAX {
            return Err(SegmentsError::TooMany);
        }
    }
    Ok(firsts)
}

/// The first samples of the segments of sound: those from which on it is heard with the segments of
/// pictures, whose times are given; and in time where there are no pictures. While pictures may
/// follow, nothing is cut behind the last of these: the next one decides where.
fn cut_sound(
    track: &SampledTrack,
    cuts_ns: &[u64],
    target_ns: u64,
    is_complete: bool,
) -> Vec<usize> {
    let samples = &track.samples;
    let end_ns = ns(
        samples.end_ticks().saturating_add(track.shift_ticks),
        track.timescale,
    );
    let last_ns = cuts_ns.last().copied().unwrap_or(0);
    let behind = (1..).map(|number: u64| last_ns.saturating_add(number.saturating_mul(target_ns)));
    let behind = behind.take_while(|&time_ns| time_ns < end_ns);
    let behind = behind.take(2 * SEGMENTS_MAX).chain([u64::MAX]);
    let behind = (is_complete || cuts_ns.is_empty()).then_some(behind);
    let mut firsts = vec![0];
    let cuts_ns = cuts_ns.iter().skip(1).copied();
    for time_ns in cuts_ns.chain(behind.into_iter().flatten()) {
        let at = samples.at_decode_ticks(track.ticks_at(time_ns));
        let last = firsts.last().copied().unwrap_or(0);
        let forced = (1..).map(|it| last + it * SEGMENT_SAMPLES_MAX);
        firsts.extend(forced.take_while(|&it| it < at.min(samples.len())));
        // Where there is no sound, the segment before is longer.
        if at > last && at < samples.len() {
            firsts.push(at);
        }
    }
    firsts
}

fn rendition(source: Samples, name: String, firsts: &[usize], is_complete: bool) -> Rendition {
    let track = &Arc::clone(&source.track);
    let samples = &track.samples;
    let is_video = track.codec.medium == Medium::Video;
    let mut starts: Vec<Start> = Vec::with_capacity(firsts.len());
    for &first in firsts {
        let after = starts.last().map_or(0, |it| it.ticks + 1);
        starts.push(Start {
            first: first as u64,
            ticks: shown_ticks(track, first).max(if first == 0 { 0 } else { after }),
        });
    }
    let (last, last_ticks) = starts.last().map_or((0, 0), |it| (it.first, it.ticks));
    let last = usize::try_from(last).unwrap_or(0);
    let end_ticks = end_ticks(track, last).max(last_ticks + 1);
    let listed = starts.len() - usize::from(!is_complete);
    let facts = &track.facts;
    let is_turned = matches!(facts.rotation_degrees, 90 | 270);
    let dimensions = track.shown_dimensions().filter(|_| is_video);
    let (rate_hz, channels) = facts.sound.unwrap_or((0, 0));
    // MP4 files tend to say 2 of AAC whatever it has.
    let of_codec = track.codec.channels.map(u32::from);
    let channels = match of_codec {
        Some(it) if channels == 0 || track.codec.encoding == "mpeg4-generic" => it,
        _ => channels,
    };
    let mut rendition = Rendition {
        name,
        medium: track.codec.medium,
        codec: Some(source.description.codec_string.clone()),
        dimensions: dimensions.map(|(a, b)| if is_turned { (b, a) } else { (a, b) }),
        video_range: source.description.video_range,
        frame_rate: frame_rate(track).filter(|_| is_video),
        channels: Some(channels).filter(|&it| !is_video && it > 0),
        sample_rate_hz: Some(if rate_hz == 0 {
            track.codec.clock_hz
        } else {
            rate_hz
        })
        .filter(|_| !is_video),
        language: facts.language.clone(),
        label: facts.label().map(str::to_owned),
        is_default: facts.is_default,
        timescale: track.timescale.max(1),
        is_independent: !is_video || firsts.iter().all(|&first| samples.is_sync(first)),
        rates: Rates::default(),
        picture_rates: None,
        starts,
        end_ticks,
        listed,
        source: Source::Samples(source),
    };
    rendition.rates = Rates::of(&sizes(track, &rendition));
    rendition.picture_rates = rendition.rates_of_pictures();
    rendition
}

/// When the last of the samples from `first` on is over, in ticks from the beginning of the file.
fn end_ticks(track: &SampledTrack, first: usize) -> i64 {
    let walk = track.samples.walk(first..track.samples.len());
    let ends = walk.map(|(sample, lasts)| {
        let shown = sample.decode_ticks.saturating_add(sample.composition_ticks);
        shown.saturating_add(lasts)
    });
    let end = ends.max().unwrap_or(0);
    end.saturating_add(track.shift_ticks)
}

/// Pictures a second, as a mean over all.
fn frame_rate(track: &SampledTrack) -> Option<f64> {
    let samples = &track.samples;
    let ticks = samples.end_ticks() - samples.decode_ticks(0);
    #[allow(clippy::cast_precision_loss, reason = "three digits of it are told")]
    let rate = samples.len() as f64 * f64::from(track.timescale) / ticks as f64;
    Some(rate).filter(|it| it.is_finite() && *it > 0.0)
}

/// Of each segment the bytes, and how long it lasts in ns.
fn sizes(track: &SampledTrack, rendition: &Rendition) -> Vec<(u64, u64)> {
    let mut walk = track.samples.walk(0..track.samples.len());
    let ends = rendition.starts.iter().skip(1).map(|it| it.first);
    let ends = ends.chain([track.samples.len() as u64]);
    let mut first = 0;
    rendition
        .times()
        .zip(ends)
        .map(|((_, lasts), end)| {
            let mut shape = Shape::default();
            let count = usize::try_from(end - first).unwrap_or(0);
            first = end;
            walk.by_ref()
                .take(count)
                .for_each(|(sample, lasts)| shape.push(&sample, lasts));
            (shape.bytes(), ns(lasts, rendition.timescale))
        })
        .collect()
}

impl Samples {
    pub(super) fn len(&self) -> u64 {
        self.track.samples.len() as u64
    }

    pub(super) fn init_segment(&self) -> Vec<u8> {
        init_segment(&self.track, &self.description)
    }

    /// The segment that begins at sample `first`, which there is, and ends at `end`, or with the
    /// track.
    pub(super) fn segment(&self, first: u64, end: Option<u64>, number: u32) -> Segment {
        let at = |sample: u64| usize::try_from(sample).unwrap_or(usize::MAX);
        let samples = at(first)..at(end.unwrap_or(self.len()));
        Fragment::new(&self.track, samples, number, None).into()
    }

    /// The sync samples, as far apart as they are listed.
    pub(super) fn pictures(&self, rendition: &Rendition) -> Vec<Picture> {
        let samples = &self.track.samples;
        let apart_ns = super::PICTURE_NS.max(rendition.duration_ns() / SEGMENTS_MAX as u64);
        let listed_end = rendition.starts.get(rendition.listed);
        let end_sample = listed_end.map_or(self.len(), |it| it.first);
        let end_ticks = listed_end.map_or(rendition.end_ticks, |it| it.ticks);
        let end_sample = usize::try_from(end_sample).unwrap_or(usize::MAX);
        let mut cutter = Cutter::new(apart_ns);
        let mut found: Vec<(u64, i64)> = Vec::new();
        let syncs = samples
            .walk(0..end_sample)
            .filter(|(sample, _)| sample.is_sync);
        for (number, (sample, _)) in (1..).zip(syncs) {
            let ticks = shown(&self.track, &sample);
            if number == 1 || cutter.cuts(ns(ticks, self.track.timescale)) {
                found.push((number, ticks));
            }
        }
        let nexts = found.iter().skip(1).map(|it| it.1).chain([end_ticks]);
        let pictures = found.iter().zip(nexts);
        pictures
            .map(|(&(number, shown), next)| Picture {
                number,
                lasts_ticks: (next - shown).max(1),
                part: None,
            })
            .collect()
    }

    /// Bytes of the segment of each of these pictures, as [`Self::picture`] makes it: from a walk,
    /// and without making any.
    pub(super) fn picture_bytes(&self, pictures: &[Picture]) -> Vec<u64> {
        let samples = &self.track.samples;
        let walk = samples.walk(0..samples.len());
        let syncs = walk.map(|(sample, _)| sample).filter(|it| it.is_sync);
        let (mut syncs, mut numbers) = (syncs.peekable(), 1_u64..);
        let mut pictures = pictures.iter().map(|it| it.number).peekable();
        let mut all = Vec::with_capacity(pictures.len());
        while let (Some(sync), Some(number)) = (syncs.next(), numbers.next()) {
            let next = syncs.peek().map(|next| next.decode_ticks);
            if pictures.next_if_eq(&number).is_some() {
                let end = next.unwrap_or_else(|| samples.end_ticks());
                let mut shape = Shape::default();
                shape.push(&sync, end - sync.decode_ticks);
                all.push(shape.bytes());
            }
        }
        all
    }

    /// Sync sample number `number`, from 1 on, which lasts until the next one is shown.
    pub(super) fn picture(&self, number: u64) -> Option<Segment> {
        let samples = &self.track.samples;
        let sync = usize::try_from(number).ok()?.checked_sub(1)?;
        let at = (sync < samples.syncs()).then(|| samples.sync(sync))?;
        let next = (sync + 1 < samples.syncs()).then(|| samples.sync(sync + 1));
        let end = next.map_or_else(|| samples.end_ticks(), |next| samples.decode_ticks(next));
        let lasts = end - samples.decode_ticks(at);
        let number = u32::try_from(number).ok()?;
        Some(Fragment::new(&self.track, at..at + 1, number, Some(lasts)).into())
    }
}

impl From<Fragment> for Segment {
    fn from(fragment: Fragment) -> Self {
        let Fragment { head, pieces } = fragment;
        Self { head, pieces }
    }
}
