//! Subtitles: files of each format become cues, and cues become WebVTT that nothing breaks out of.

use std::ops::Range;

use onrush_wire::media::text::{CUE_BYTES_MAX, CUES_MAX, Cue, of_file, webvtt};

use crate::memory::bounded;
use crate::random::Random;

/// What reading a file and writing it may hold, beside some times the file: a character may become
/// five, and each line a cue.
const MEMORY_BYTES: usize = 64 << 10;
const MEMORY_TIMES: usize = 64;

/// Hours of a time that is read again have so many digits at the most.
const HOUR_DIGITS_MAX: usize = 4;

/// Reads a file as one of each format.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let mut random = Random::of(input);
    assert_eq!(of_file("film.txt", input), None);
    for name in ["film.srt", "film.en.VTT", "film.ass", "film.ssa"] {
        let memory_max = MEMORY_BYTES + MEMORY_TIMES * input.len();
        let cues = bounded(memory_max, || of_file(name, input));
        let cues = cues.expect("it is one of subtitles");
        let from = random.below(100_000);
        for stretch_ms in [0..u64::MAX, from..from + random.below(100_000)] {
            bounded(memory_max, || check_cues(&cues, &stretch_ms));
        }
    }
}

/// Cues that are written are as many, and are read as the same again.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check_cues(cues: &[Cue], stretch_ms: &Range<u64>) {
    assert!(cues.len() <= CUES_MAX);
    let all = webvtt(cues, &(0..u64::MAX), false);
    assert_eq!(all.matches(" --> ").count(), cues.len(), "{all}");
    let is_short = |line: &str| line.find(':').is_none_or(|at| at <= HOUR_DIGITS_MAX);
    let mut times = all.lines().filter(|line| line.contains(" --> "));
    // What is escaped is longer than it was.
    let mut blocks = all.split("\n\n");
    let is_read = times.all(|line| line.split(" --> ").all(is_short))
        && blocks.all(|it| it.len() <= CUE_BYTES_MAX as usize);
    if is_read {
        let again = of_file("film.vtt", all.as_bytes());
        assert_eq!(again.as_deref(), Some(cues), "{all}");
    }
    let some = webvtt(cues, stretch_ms, true);
    assert!(some.starts_with("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n"));
    assert!(some.matches(" --> ").count() <= cues.len());
}
