//! Subtitles as WebVTT (W3C), whatever they lie in: text tracks of MP4 and Matroska, and files of
//! SubRip or WebVTT.
//!
//! Each format becomes cues, which have a time and a text that is safe in WebVTT; what is written
//! are those of a stretch of the film. Styles, places and fonts of other formats are left away.
//! Texts are others' words: what could end a cue or begin markup is escaped or taken out.

mod file;
mod sample;
mod track;

use std::fmt::Write;
use std::ops::Range;

pub use file::of_file;
pub use track::TextTrack;

/// Bytes of a file of subtitles at the most, and of what a track's cues say.
pub const TEXT_BYTES_MAX: u64 = 2 << 20;

/// Cues of one language at the most; what follows is left out.
pub const CUES_MAX: usize = 20_000;

/// Bytes of a cue at the most, as it lies in its file.
pub const CUE_BYTES_MAX: u32 = 4096;

/// Bytes of a cue's settings at the most; longer ones are left away.
const SETTINGS_BYTES_MAX: usize = 128;

/// Something to be read for a while.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cue {
    /// From when to when, in ms from the beginning of the film.
    times_ms: Range<u64>,
    /// Where it stands, as WebVTT writes it.
    settings: String,
    /// Its lines, none of them empty.
    text: String,
}

impl Cue {
    /// A cue; `None` if it shows nothing.
    fn new(times_ms: Range<u64>, settings: &str, text: &str) -> Option<Self> {
        let text = lines(text);
        let is_setting = |it: char| it.is_ascii_alphanumeric() || " :%,.-".contains(it);
        let is_sound = settings.len() <= SETTINGS_BYTES_MAX
            && settings.chars().all(is_setting)
            && !settings.contains("--");
        let settings = if is_sound { settings.trim() } else { "" };
        (!text.is_empty() && !times_ms.is_empty()).then(|| Self {
            times_ms,
            settings: settings.to_owned(),
            text,
        })
    }

    /// The same, so many ms later.
    #[must_use]
    pub fn later(mut self, ms: u64) -> Self {
        let Range { start, end } = self.times_ms;
        self.times_ms = start.saturating_add(ms)..end.saturating_add(ms);
        self
    }
}

/// Without empty lines, which would end the cue, and without what no text needs.
fn lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split(['\n', '\r']) {
        let line = line.replace(char::is_control, "");
        let line = line.trim();
        if !line.is_empty() {
            if !out.is_empty() {
                out.push('\n');
            }
            out += line;
        }
    }
    // An arrow would be taken for the times of another cue.
    out.replace("-->", "--&gt;")
}

/// As WebVTT wants what is no markup.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// In the order of their times, no more than there may be; what goes on without a break is one.
fn ordered(mut cues: Vec<Cue>) -> Vec<Cue> {
    cues.sort_by_key(|it| (it.times_ms.start, it.times_ms.end));
    cues.dedup_by(|next, cue| {
        let goes_on = cue.times_ms.end == next.times_ms.start
            && (&cue.settings, &cue.text) == (&next.settings, &next.text);
        if goes_on {
            cue.times_ms.end = next.times_ms.end;
        }
        goes_on
    });
    cues.truncate(CUES_MAX);
    cues
}

/// The cues that are shown in a stretch of the film, as WebVTT. With `is_segment` as HLS wants a
/// segment (RFC 8216bis, section 3.1.4): its times are those of the film, which begins at 0.
#[must_use]
pub fn webvtt(cues: &[Cue], stretch_ms: &Range<u64>, is_segment: bool) -> String {
    let mut out = "WEBVTT\n".to_owned();
    if is_segment {
        out += "X-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n";
    }
    let is_shown =
        |it: &&Cue| it.times_ms.start < stretch_ms.end && it.times_ms.end > stretch_ms.start;
    for cue in cues.iter().filter(is_shown) {
        let [start, end] = [cue.times_ms.start, cue.times_ms.end].map(time);
        let space = if cue.settings.is_empty() { "" } else { " " };
        let (settings, text) = (&cue.settings, &cue.text);
        writeln!(out, "\n{start} --> {end}{space}{settings}\n{text}").expect("text");
    }
    out
}

/// What stands behind all cues, so that they last as long as the film, which ends at that time: a
/// cue that shows nothing. FFmpeg ends a film of DASH where the first of its tracks has no more.
#[must_use]
pub fn last_cue(cues: &[Cue], ends_ms: u64) -> String {
    if cues.iter().any(|it| it.times_ms.start >= ends_ms) {
        return String::new();
    }
    let [start, end] = [ends_ms, ends_ms.saturating_add(1)].map(time);
    format!("\n{start} --> {end}\n\n")
}

fn time(ms: u64) -> String {
    let (s, ms) = (ms / 1000, ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600, s / 60 % 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_cue_or_begins_another() {
        let evil = "a\n\n00:00:01.000 --> 00:00:02.000\nb \0\r\n\r\n\0 \0\nc";
        let cue = Cue::new(0..1, "line:0 --> x", evil).unwrap();
        let expected = "a\n00:00:01.000 --&gt; 00:00:02.000\nb\nc";
        assert_eq!((&*cue.settings, &*cue.text), ("", expected));
        assert_eq!(Cue::new(0..1, "", "\r\n \n"), None);
        assert_eq!(Cue::new(1..1, "", "a"), None);
    }

    #[test]
    fn a_segment_has_all_that_is_shown_in_it() {
        let cue = |times_ms, text| Cue::new(times_ms, "", text).unwrap();
        let cues = [
            cue(0..1000, "a"),
            cue(500..2500, "b"),
            cue(3_600_000..3_600_001, "c"),
        ];
        let text = webvtt(&cues, &(1000..2000), true);
        let expected = "WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n\n\
                        00:00:00.500 --> 00:00:02.500\nb\n";
        assert_eq!(text, expected);
        let text = webvtt(&cues, &(3_000_000..u64::MAX), false);
        assert_eq!(text, "WEBVTT\n\n01:00:00.000 --> 01:00:00.001\nc\n");
        let later = cues.map(|it| it.later(60_500));
        let text = webvtt(&later, &(61_000..61_500), false);
        let expected = "WEBVTT\n\n00:01:00.500 --> 00:01:01.500\na\n\n\
                        00:01:01.000 --> 00:01:03.000\nb\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn cues_last_as_long_as_the_film() {
        let cue = |times_ms| Cue::new(times_ms, "", "a").unwrap();
        let last = "\n00:01:05.000 --> 00:01:05.001\n\n";
        assert_eq!(last_cue(&[], 65_000), last);
        // Where it begins counts, not how long it is shown.
        assert_eq!(last_cue(&[cue(0..1000), cue(2000..70_000)], 65_000), last);
        assert_eq!(last_cue(&[cue(0..1000), cue(65_000..65_001)], 65_000), "");
    }

    #[test]
    fn what_goes_on_is_one_cue_and_the_rest_is_bounded() {
        let cue = |times_ms, text| Cue::new(times_ms, "", text).unwrap();
        let cues = vec![cue(5..9, "a"), cue(0..5, "a"), cue(9..10, "b")];
        assert_eq!(ordered(cues), [cue(0..9, "a"), cue(9..10, "b")]);
        let many = |count| (0..count).map(|at| cue(2 * at..2 * at + 1, "a")).collect();
        let max = CUES_MAX as u64;
        assert_eq!(ordered(many(max)).len(), CUES_MAX);
        assert_eq!(ordered(many(max + 1)).len(), CUES_MAX);
    }
}
