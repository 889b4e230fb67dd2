//! Films cut into segments, the playlists and the manifest that name them, and their subtitles.
//!
//! What is computed of a segment and what is sent of the film make what our own reader takes for
//! the same samples; what is written is what players can read, whatever the film says of itself.

use std::collections::HashSet;
use std::ops::Range;

use onrush_wire::dash;
use onrush_wire::hls::{self, Presentation, Text, Version};
use onrush_wire::media::segments::{Format, Rendition, Segment, Segmented};
use onrush_wire::media::{Index, SYNC_BYTE, Scanner, TS_PACKET_BYTES};

use crate::memory::bounded;
use crate::playlist::{QUERY, assert_manifest, assert_playlist};
use crate::random::Random;
use crate::subtitles;

/// What cutting a film, naming its segments and making one may hold beside some times the film:
/// times and sizes of as many segments as there may be, and the lines of a playlist of them.
const MEMORY_BYTES: usize = 64 << 20;
const MEMORY_TIMES: usize = 64;

/// Of a film with more samples only one in so many is cut: tables of a few bytes may tell of
/// millions.
const SAMPLES_MAX: usize = 1 << 16;
const CUT_EACH: u64 = 64;

/// A segment of more samples is not made, and of more bytes not put together.
const WEIGHT_MAX: u64 = 1 << 14;
const JOINED_BYTES_MAX: u64 = 1 << 20;

/// Segments of a rendition that are looked at.
const SEGMENTS_LOOKED_AT: u64 = 8;

/// Cuts a film, makes its segments, and names them.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(index: &Index, film: &[u8], random: &mut Random) {
    let report = index.report(film.len() as u64, crate::plan::BURST_NS);
    let samples = report.map_or(0, |report| report.tracks.iter().map(|it| it.samples).sum());
    if samples > SAMPLES_MAX && !random.is_one_in(CUT_EACH) {
        return;
    }
    let memory_max = MEMORY_BYTES + MEMORY_TIMES * film.len();
    let read = |part: Range<u64>| piece(film, &part).map(<[u8]>::to_vec);
    for is_whole in [true, false] {
        let cut = bounded(memory_max, || Segmented::new(index, is_whole, read));
        match cut {
            Ok(cut) => {
                check_cut(&cut, film, random);
                bounded(memory_max, || check_texts(&cut, index, film, random));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// These bytes of a film; `None` if they are not all there.
fn piece<'a>(film: &'a [u8], part: &Range<u64>) -> Option<&'a [u8]> {
    let at = |place: u64| usize::try_from(place).ok();
    film.get(at(part.start)?..at(part.end)?)
}

fn check_cut(cut: &Segmented, film: &[u8], random: &mut Random) {
    let mut names = HashSet::new();
    assert!(!cut.renditions.is_empty());
    for rendition in &cut.renditions {
        assert!(names.insert(&rendition.name), "{} twice", rendition.name);
        assert!(rendition.timescale > 0);
        check_times(rendition);
        check_pictures(rendition, random);
        let is_cmaf = rendition.format() == Format::Cmaf;
        assert_eq!(rendition.init_segment().is_some(), is_cmaf);
        assert!(rendition.segment(0).is_none());
        let segments = rendition.segments() as u64;
        assert!(rendition.segment(segments + 1).is_none());
        for _ in 0..SEGMENTS_LOOKED_AT.min(segments) {
            let number = 1 + random.below(segments);
            if rendition.weight(number) <= WEIGHT_MAX {
                let segment = rendition.segment(number).expect("it is listed");
                check_segment(rendition, &segment, film, random);
            }
        }
        if is_cmaf {
            check_joined(rendition, film);
        }
    }
}

/// Segments follow on each other, and none of them lasts no time.
fn check_times(rendition: &Rendition) {
    let mut next = None;
    for (start, lasts) in rendition.times() {
        assert!(start >= 0 && lasts > 0, "{lasts} from {start} on");
        assert!(next.is_none_or(|next| next == start));
        next = Some(start + lasts);
    }
    assert_eq!(rendition.times().count(), rendition.segments());
    assert!(rendition.longest_ns() <= rendition.duration_ns());
}

fn check_pictures(rendition: &Rendition, random: &mut Random) {
    let pictures = rendition.pictures();
    let mut last = 0;
    for picture in &pictures {
        assert!(picture.number > last && picture.lasts_ticks > 0);
        last = picture.number;
    }
    if pictures.is_empty() {
        return;
    }
    assert!(rendition.picture_rates().is_some());
    let picture = random.pick(&pictures);
    match picture.part {
        Some(part) => {
            let segment = rendition.segment(part.segment).expect("it is listed");
            assert!(part.offset + part.bytes <= segment.bytes());
            let head = rendition.init_bytes().expect("tables");
            assert!(part.offset >= head && part.bytes % TS_PACKET_BYTES as u64 == 0);
        }
        None => assert!(rendition.picture(picture.number).is_some()),
    }
}

/// What is sent of a segment; `None` if that is much, or not all of it is in the file.
fn sent(segment: &Segment, film: &[u8]) -> Option<Vec<u8>> {
    let mut out = segment.head.clone();
    if segment.bytes() > JOINED_BYTES_MAX {
        return None;
    }
    for part in &segment.pieces {
        out.extend(piece(film, part)?);
    }
    Some(out)
}

fn check_segment(rendition: &Rendition, segment: &Segment, film: &[u8], random: &mut Random) {
    assert!(segment.pieces.iter().all(|piece| piece.start < piece.end));
    let Some(whole) = sent(segment, film) else {
        return;
    };
    assert_eq!(whole.len() as u64, segment.bytes());
    let from = random.below(segment.bytes() + 2);
    let to = from + random.below(segment.bytes() + 2);
    let (head, pieces) = segment.part(from..to);
    let part = Segment {
        head: head.to_vec(),
        pieces,
    };
    let at = |place: u64| {
        usize::try_from(place)
            .unwrap_or(usize::MAX)
            .min(whole.len())
    };
    let part = sent(&part, film).expect("all of it is there");
    assert_eq!(part, whole[at(from)..at(to)]);
    if rendition.format() == Format::Ts {
        let packets = whole.chunks(TS_PACKET_BYTES);
        let is_one = |it: &[u8]| it.len() == TS_PACKET_BYTES && it[0] == SYNC_BYTE;
        assert!(packets.into_iter().all(is_one), "packets in a segment");
    }
}

/// All segments of a rendition as one file have all of its samples that they are made of.
fn check_joined(rendition: &Rendition, film: &[u8]) {
    let segments = 1..=rendition.segments() as u64;
    let samples: u64 = segments.clone().map(|it| rendition.weight(it)).sum();
    if samples == 0 || samples > WEIGHT_MAX {
        return;
    }
    let mut file = rendition.init_segment().expect("it has one");
    for number in segments {
        let segment = rendition.segment(number).expect("it is listed");
        let Some(bytes) = sent(&segment, film) else {
            return;
        };
        file.extend(bytes);
        if file.len() as u64 > JOINED_BYTES_MAX {
            return;
        }
    }
    let mut scanner = Scanner::default();
    let read = scanner.read(&file).and_then(|()| scanner.finish());
    // Edits and delays may bring a film that can be read to where no reader goes.
    let is_beyond = |text: &str| text.contains("beyond all bounds");
    let read = match read {
        Ok(read) => read,
        Err(error) => return assert!(is_beyond(&error.to_string()), "of what is sent: {error}"),
    };
    let report = read.report(file.len() as u64, crate::plan::BURST_NS);
    let tracks = report.expect("it has samples").tracks;
    assert_eq!(tracks.len(), 1);
    let is_whole = tracks[0].samples as u64 == samples;
    let is_cut = tracks[0].problems.iter().any(|it| is_beyond(it));
    assert!(
        is_whole || is_cut,
        "{} samples of {samples}",
        tracks[0].samples
    );
}

/// Playlists and the manifest, of the film alone and beside itself.
fn check_texts(cut: &Segmented, index: &Index, film: &[u8], random: &mut Random) {
    let versions = [(cut, Version(1)), (cut, Version(2))];
    let mut of = Presentation::new(&versions[..1 + random.index(2)], QUERY);
    if of.is_complete {
        of.texts = texts(index, film, random);
    }
    assert_playlist(&hls::main_playlist(&of));
    for listed in &of.renditions {
        let playlist = hls::media_playlist(&of, listed);
        let listed_us = assert_playlist(&playlist);
        // Each of the times is rounded, and none is 0.
        let off_us = listed_us.abs_diff(listed.of.duration_ns() / 1000);
        assert!(off_us <= 1 + listed.of.segments() as u64, "{off_us} us off");
        if let Some(playlist) = hls::picture_playlist(&of, listed) {
            assert_playlist(&playlist);
        }
    }
    for text in &of.texts {
        assert_playlist(&hls::text_playlist(&of, text));
    }
    if let Some(manifest) = dash::manifest(&of) {
        let told = assert_manifest(&manifest);
        assert_eq!(told, of.renditions.len() + of.texts.len());
    }
}

/// The subtitles in a film, each of which is read.
fn texts(index: &Index, film: &[u8], random: &mut Random) -> Vec<Text> {
    let tracks = index.texts();
    let texts = tracks.iter().enumerate().map(|(at, track)| {
        let from = if random.is_one_in(2) {
            0
        } else {
            random.number()
        };
        let stretch_ms = from..from.saturating_add(random.number());
        let read = |part: Range<u64>| piece(film, &part).map(<[u8]>::to_vec);
        subtitles::check_cues(&track.cues(&stretch_ms, read), &stretch_ms);
        Text {
            name: format!("text-{at}"),
            version: Version(1),
            language: track.language().map(str::to_owned),
            label: track.label().map(str::to_owned),
            is_forced: track.is_forced(),
        }
    });
    texts.collect()
}
