//! A text track of a film, and its cues.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::sample;
use super::{CUE_BYTES_MAX, CUES_MAX, Cue, TEXT_BYTES_MAX, ordered};
use crate::media::codec::config::CodecConfig;
use crate::media::codec::text::TextKind;
use crate::media::container::Index;
use crate::media::matroska::GroupRest;
use crate::media::sampled::SampledTrack;

/// How long a cue of Matroska is shown at the most: which ones reach into a stretch of the film is
/// not known before they are read.
const SHOWN_MS_MAX: u64 = 60_000;

/// How long a cue is shown whose end is not told.
const SHOWN_MS: u64 = 5000;

/// Bytes that are read behind a block of Matroska, where `BlockDuration` is, and additions may be:
/// as many of these as the file has.
const BEHIND_BYTES: [u64; 4] = [512, 64, 10, 0];

/// A text track.
#[derive(Clone, Debug)]
pub struct TextTrack {
    of: Arc<SampledTrack>,
    kind: TextKind,
    /// Of the file, in Matroska.
    unit_ns: u64,
}

impl Index {
    /// The text tracks of a film, which are not played by RTP.
    #[must_use]
    pub fn texts(&self) -> Vec<TextTrack> {
        let of = self.as_sampled();
        let texts = of.into_iter().flat_map(|index| &index.texts);
        let texts = texts.filter_map(|of| match of.config.as_deref() {
            Some(&CodecConfig::Text { kind, unit_ns }) => Some(TextTrack {
                of: Arc::clone(of),
                kind,
                unit_ns,
            }),
            _ => None,
        });
        texts.collect()
    }
}

impl TextTrack {
    /// Its language, as the container spells it.
    #[must_use]
    pub fn language(&self) -> Option<&str> {
        self.of.facts.language.as_deref()
    }

    /// Its name for people, if it has one.
    #[must_use]
    pub fn label(&self) -> Option<&str> {
        self.of.facts.label()
    }

    /// Whether it is shown though nobody asks for subtitles.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.of.facts.is_forced
    }

    /// The cues that are shown in a stretch of the film: no more than [`CUES_MAX`], nor than have
    /// [`TEXT_BYTES_MAX`] of text, though the samples of a small file may be many and the same.
    /// `read` gives bytes of the file.
    pub fn cues(
        &self,
        stretch_ms: &Range<u64>,
        mut read: impl FnMut(Range<u64>) -> Option<Vec<u8>>,
    ) -> Vec<Cue> {
        let samples = &self.of.samples;
        let all = samples.walk(0..samples.len().min(CUES_MAX));
        let (mut cues, mut text_bytes) = (Vec::new(), 0);
        for (at, lasts) in all {
            let ticks = at.decode_ticks.saturating_add(at.composition_ticks);
            let start_ms = self.ms(ticks);
            let next_ms = self.ms(ticks.saturating_add(lasts));
            if start_ms >= stretch_ms.end {
                break;
            }
            let is_of_matroska = self.kind.is_of_matroska();
            let last_ms = match is_of_matroska {
                true => start_ms.saturating_add(SHOWN_MS_MAX),
                false => next_ms,
            };
            if last_ms <= stretch_ms.start || at.bytes > CUE_BYTES_MAX {
                continue;
            }
            let end = at.offset + u64::from(at.bytes);
            let behind: &[u64] = if is_of_matroska { &BEHIND_BYTES } else { &[0] };
            let bytes = behind.iter().find_map(|it| read(at.offset..end + it));
            let Some(bytes) = bytes else { continue };
            let (inside, behind) = bytes.split_at(bytes.len().min(at.bytes as usize));
            let told = GroupRest::read(behind);
            let end_ms = match is_of_matroska {
                false => next_ms,
                true => match told.lasts {
                    Some(units) => {
                        let ms = units.saturating_mul(self.unit_ns) / 1_000_000;
                        start_ms.saturating_add(ms.min(SHOWN_MS_MAX))
                    }
                    None if next_ms > start_ms => next_ms.min(start_ms + SHOWN_MS),
                    None => start_ms + SHOWN_MS,
                },
            };
            let whole = [&self.of.prefix, inside].concat();
            let settings = first_line(told.added.unwrap_or_default());
            let more = sample::cues(self.kind, &whole, &settings, &(start_ms..end_ms));
            text_bytes += more.iter().map(|it| it.text.len() as u64).sum::<u64>();
            cues.extend(more);
            if cues.len() >= CUES_MAX || text_bytes > TEXT_BYTES_MAX {
                break;
            }
        }
        ordered(cues)
    }

    fn ms(&self, ticks: i64) -> u64 {
        u64::try_from(self.of.time_ns(ticks)).unwrap_or(0) / 1_000_000
    }
}

/// The settings of a cue of WebVTT, of what is added to its block: lines with these, with its
/// identifier, and with comments in front of it (Matroska's mapping of `S_TEXT/WEBVTT`).
fn first_line(added: &[u8]) -> Cow<'_, str> {
    let mut lines = added.split(|it| matches!(it, b'\n' | b'\r'));
    String::from_utf8_lossy(lines.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media::segments::testing::pictures;

    /// What is read of a track whose samples, of so many bytes, lie at one place; how often.
    fn cues(
        kind: TextKind,
        samples: usize,
        mut sample: impl FnMut(usize) -> Vec<u8>,
    ) -> (Vec<Cue>, usize) {
        let bytes = u32::try_from(sample(0).len()).unwrap();
        let track = TextTrack {
            of: Arc::new(pictures(&vec![(40, 0, bytes, true); samples], |_| 0)),
            kind,
            unit_ns: 1_000_000,
        };
        let mut reads = 0;
        let cues = track.cues(&(0..u64::MAX), |_| {
            reads += 1;
            Some(sample(reads))
        });
        (cues, reads)
    }

    #[test]
    fn a_track_says_no_more_than_a_file_may() {
        // Each `&` becomes five bytes.
        let sample = |number: usize| {
            [
                b"\x0f\xfe",
                format!("{number:04}").as_bytes(),
                &[b'&'; 4090],
            ]
            .concat()
        };
        let (cues, reads) = cues(TextKind::Timed, CUES_MAX, sample);
        let bytes: usize = cues.iter().map(|it| it.text.len()).sum();
        let most = usize::try_from(TEXT_BYTES_MAX).unwrap();
        assert!((most..most + 5 * 4096).contains(&bytes), "{bytes}");
        assert_eq!(reads, cues.len());
    }

    #[test]
    fn a_track_has_no_more_cues_than_there_may_be() {
        let cue = |number: usize| {
            let text = format!("{number:08}");
            [&b"\0\0\0\x18vttc\0\0\0\x10payl"[..], text.as_bytes()].concat()
        };
        let sample = |number: usize| (0..100).flat_map(|at| cue(100 * number + at)).collect();
        let (cues, reads) = cues(TextKind::BoxedWebVtt, CUES_MAX, sample);
        assert_eq!((cues.len(), reads), (CUES_MAX, CUES_MAX / 100));
    }

    /// As mkvmerge writes it: with additions in front of the duration.
    #[test]
    fn the_end_of_a_cue_and_its_settings_are_behind_its_block() {
        let additions = b"\x75\xa1\x96\xa6\x94\xa5\x8fline:0\nfirst\nNO\xee\x81\x01";
        let mut file = [&b"Hi"[..], additions, b"\x9b\x82\x05\xdc"].concat();
        let track = TextTrack {
            of: Arc::new(pictures(&[(40, 0, 2, true)], |_| 0)),
            kind: TextKind::WebVtt,
            unit_ns: 1_000_000,
        };
        // Where the file ends soon, too.
        for file_bytes in [2 + 64, 1000] {
            file.resize(file_bytes, 0);
            let cues = track.cues(&(0..u64::MAX), |part| {
                let at = |place: u64| usize::try_from(place).unwrap();
                file.get(at(part.start)..at(part.end)).map(<[u8]>::to_vec)
            });
            let [cue] = &cues[..] else {
                panic!("{cues:?}");
            };
            assert_eq!((&*cue.text, &*cue.settings), ("Hi", "line:0"));
            assert_eq!(cue.times_ms, 0..1500);
        }
    }
}
