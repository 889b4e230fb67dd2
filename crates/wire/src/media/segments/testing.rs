//! Films for tests: tracks of samples that are made to order.

use std::sync::Arc;

use super::{Segment, Segmented};
use crate::media::codec::config::CodecConfig;
use crate::media::container::Index;
use crate::media::sampled::{SampledIndex, SampledTrack, TrackFacts};
use crate::media::samples::{Sample, Samples};

/// Profile 0, level 1.0, 8 bits.
const VPCC: [u8; 12] = [1, 0, 0, 0, 0, 10, 0x82, 1, 1, 1, 0, 0];

/// AAC-LC of 48 kHz and two channels.
const AUDIO_CONFIG: [u8; 2] = [0x11, 0x90];

/// A sample: how long it lasts, how much later than decoded it is shown, its bytes, and whether a
/// decoder can start at it.
pub(crate) type Told = (u32, i64, u32, bool);

pub(in crate::media) fn pictures(told: &[Told], place: impl FnMut(usize) -> u64) -> SampledTrack {
    let config = CodecConfig::Vp9(Some(VPCC.into()));
    let mut track = track(config, 1000, told, place);
    track.facts.dimensions = Some((320, 180));
    track
}

pub(in crate::media) fn sound(told: &[Told], place: impl FnMut(usize) -> u64) -> SampledTrack {
    let config = CodecConfig::Aac(AUDIO_CONFIG.into());
    let mut track = track(config, 48_000, told, place);
    track.facts.sound = Some((48_000, 2));
    track
}

fn track(
    config: CodecConfig,
    timescale: u32,
    told: &[Told],
    mut place: impl FnMut(usize) -> u64,
) -> SampledTrack {
    let (mut samples, mut ticks) = (Samples::default(), 0);
    for (at, &(lasts, later, bytes, is_sync)) in told.iter().enumerate() {
        let sample = Sample {
            offset: place(at),
            bytes,
            decode_ticks: ticks,
            composition_ticks: later,
            is_sync,
            entry: 0,
        };
        samples.push(sample, lasts).unwrap();
        ticks += i64::from(lasts);
    }
    SampledTrack {
        codec: config.codec().unwrap(),
        config: Some(Arc::new(config)),
        timescale,
        shift_ticks: 0,
        samples,
        prefix: Arc::from(&b""[..]),
        carriage: None,
        facts: TrackFacts::default(),
    }
}

/// An index of these tracks, of a file in one piece.
pub(in crate::media) fn index(tracks: Vec<SampledTrack>) -> Index {
    Index::of(SampledIndex::new("MP4", tracks, Vec::new()).unwrap())
}

/// A film of so many seconds: 25 pictures a second, of which every `distance`th is a sync sample,
/// and sound in two languages. Pictures and frames of sound take turns.
pub(crate) fn film(seconds: usize, distance: usize) -> Segmented {
    let pictures_told: Vec<Told> = (0..25 * seconds)
        .map(|at| {
            (
                40,
                0,
                if at % distance == 0 { 9000 } else { 1000 },
                at % distance == 0,
            )
        })
        .collect();
    let frames = (48_000 * seconds).div_ceil(1024);
    let sound_told: Vec<Told> = vec![(1024, 0, 300, true); frames];
    let pictures = pictures(&pictures_told, |at| at as u64 * 20_000);
    let mut sounds = ["eng", "fra"].map(|language| {
        let mut track = sound(&sound_told, |at| 10_000 + at as u64 * 1000);
        track.facts.language = Some(language.to_owned());
        track
    });
    sounds[1].facts.name = Some("Le \"commentaire\"\n<b>&".to_owned());
    let [first, second] = sounds;
    Segmented::new(&index(vec![pictures, first, second]), true, |_| None).unwrap()
}

/// Tracks of sound, each with its codec, its language and its name; `*` in front of a codec has
/// it be the default.
pub(crate) type Sounds<'a> = &'a [(&'a str, &'a str, &'a str)];

/// A film of pictures and these tracks of sound; of pictures alone if there are none.
pub(crate) fn sounds(of: Sounds<'_>) -> Segmented {
    let frames: Vec<Told> = vec![(1024, 0, 300, true); 10 * 48_000 / 1024];
    let tracks = of.iter().map(|&(codec, language, name)| {
        let mut track = sound(&frames, |at| at as u64 * 1000);
        let known = |it: &str| Some(it.to_owned()).filter(|it| !it.is_empty());
        track.facts.language = known(language);
        track.facts.name = known(name);
        track.facts.is_default = codec.starts_with('*');
        track
    });
    let mut tracks: Vec<_> = tracks.collect();
    tracks.push(pictures(&[(2000, 0, 9000, true); 5], |_| 0));
    let mut film = Segmented::new(&index(tracks), true, |_| None).unwrap();
    let renditions = film.renditions.iter_mut().skip(1);
    for (rendition, (codec, ..)) in renditions.zip(of) {
        rendition.codec = Some(codec.trim_start_matches('*').to_owned());
    }
    film
}

/// A film of twelve seconds, the first frame of whose sound lasts for seven.
pub(crate) fn late_sound() -> Segmented {
    let mut told = vec![(48_000 * 7, 0, 300, true)];
    told.resize(200, (1024, 0, 300, true));
    let pictures = pictures(&[(2000, 0, 9000, true); 6], |_| 0);
    let tracks = vec![pictures, sound(&told, |_| 0)];
    Segmented::new(&index(tracks), true, |_| None).unwrap()
}

/// A film of pictures that last so many ticks.
pub(crate) fn stills(timescale: u32, lasts: &[u32]) -> Segmented {
    let told: Vec<Told> = lasts.iter().map(|&lasts| (lasts, 0, 9000, true)).collect();
    let mut track = pictures(&told, |_| 0);
    track.timescale = timescale;
    Segmented::new(&index(vec![track]), true, |_| None).unwrap()
}

/// What is sent of a segment of this file.
pub(in crate::media) fn sent(segment: &Segment, file: &[u8]) -> Vec<u8> {
    let mut out = segment.head.clone();
    for piece in &segment.pieces {
        let at = |place: u64| usize::try_from(place).unwrap();
        out.extend(&file[at(piece.start)..at(piece.end)]);
    }
    out
}
