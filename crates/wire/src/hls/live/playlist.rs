//! The text of live playlists (RFC 8216bis, sections 4 and 6.2).

use std::fmt::Write;

use super::pauses::keeps_up;
use super::segment::Segment;
use super::window::{Kept, PARTS_TARGETS, Window};
use crate::calendar::Utc;
use crate::hls::Version;
use crate::media::Medium;
use crate::media::segments::Format;

/// What is older than so many target durations may be skipped (section 4.4.3.8: six at the least).
const SKIP_TARGETS: u64 = 6;

/// How far from the end players stay at the least: three parts (section 4.4.3.8), and a second.
const HOLD_BACK_PARTS: u64 = 3;
const HOLD_BACK_US_MIN: u64 = 1_000_000;

impl Window {
    /// The playlist that names all others; of a transport stream the only one. `query` is what URLs
    /// end in. `None` while there is none yet.
    #[must_use]
    pub fn main_playlist(&self, query: &str, skips: bool) -> Option<String> {
        if !self.is_ready() {
            return None;
        }
        match &self.renditions[..] {
            [only] if only.of.format == Format::Ts => {
                let folder = format!("{}/", only.of.name);
                Some(self.media_text(only, &folder, query, skips))
            }
            _ => Some(self.multivariant(query)),
        }
    }

    /// The playlist of a rendition; `None` if there is no such one, or none yet.
    #[must_use]
    pub fn media_playlist(&self, rendition: &str, query: &str, skips: bool) -> Option<String> {
        let kept = self.kept(rendition).filter(|_| self.is_ready())?;
        kept.has_whole()
            .then(|| self.media_text(kept, "", query, skips))
    }

    fn multivariant(&self, query: &str) -> String {
        let mut out = "#EXTM3U\n#EXT-X-VERSION:7\n".to_owned();
        let has = |medium| {
            let mut of = self.renditions.iter();
            of.find(|it| it.of.medium == medium && it.has_whole())
        };
        let sound = has(Medium::Audio);
        let starts_ns = |of: &Kept| of.segments.back().map_or(0, |it| it.starts_unix_ns);
        let is_beside =
            |it: &Kept, other: &Kept| keeps_up(self.target_s, starts_ns(it), starts_ns(other));
        let keep_up = |it: &&Kept| sound.is_none_or(|sound| is_beside(it, sound));
        let pictures = has(Medium::Video).filter(keep_up);
        let Some(leading) = pictures.or(sound) else {
            return out;
        };
        let beside = sound.filter(|sound| pictures.is_some_and(|it| is_beside(sound, it)));
        if let Some(sound) = beside {
            out += "#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio1\",NAME=\"audio\",DEFAULT=YES,\
                    AUTOSELECT=YES";
            if let Some(channels) = sound.init().channels {
                write!(out, ",CHANNELS=\"{channels}\"").expect("text");
            }
            line(
                &mut out,
                format_args!(",URI=\"{}/index.m3u8{query}\"", sound.of.name),
            );
        }
        let rates = [Some(leading), beside].into_iter().flatten().map(rates);
        let (peak, mean) = rates.fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
        write!(
            out,
            "#EXT-X-STREAM-INF:BANDWIDTH={peak},AVERAGE-BANDWIDTH={mean}"
        )
        .expect("text");
        let codecs = [Some(leading), beside].into_iter().flatten();
        let codecs: Vec<_> = codecs.filter_map(|it| it.init().codec.as_deref()).collect();
        if !codecs.is_empty() {
            write!(out, ",CODECS=\"{}\"", codecs.join(",")).expect("text");
        }
        if let Some((width, height)) = leading.init().dimensions {
            write!(out, ",RESOLUTION={width}x{height}").expect("text");
        }
        // A standard range is what players take untold for.
        let range = leading.init().video_range;
        if let Some(range) = range.filter(|it| it.is_high()) {
            write!(out, ",VIDEO-RANGE={}", range.name()).expect("text");
        }
        if let Some(milli) = frame_rate_milli(leading) {
            let (whole, thousandths) = (milli / 1000, milli % 1000);
            write!(out, ",FRAME-RATE={whole}.{thousandths:03}").expect("text");
        }
        if beside.is_some() {
            out += ",AUDIO=\"audio1\"";
        }
        line(
            &mut out,
            format_args!("\n{}/index.m3u8{query}", leading.of.name),
        );
        out
    }

    fn target_us(&self) -> u64 {
        self.target_s.unwrap_or(1) * 1_000_000
    }

    fn media_text(&self, kept: &Kept, folder: &str, query: &str, skips: bool) -> String {
        let (listed, target_us) = (listed(kept), self.target_us());
        let mut out = self.head(target_us / 1_000_000);
        let first = listed.first().map_or(0, |(it, _)| it.number);
        line(&mut out, format_args!("#EXT-X-MEDIA-SEQUENCE:{first}"));
        if let Some((first, _)) = listed.first() {
            // Those in front of the first are not among those that have gone, if they are told.
            let breaks = first.breaks - first.told_breaks();
            line(
                &mut out,
                format_args!("#EXT-X-DISCONTINUITY-SEQUENCE:{breaks}"),
            );
        }
        let skipped = skipped(&listed, skips, target_us);
        if skipped > 0 {
            line(
                &mut out,
                format_args!("#EXT-X-SKIP:SKIPPED-SEGMENTS={skipped}"),
            );
        }
        let mut described = None;
        let place = Place { folder, query };
        for &(segment, behind_us) in listed.iter().skip(skipped) {
            let has_parts = has_parts(behind_us, target_us);
            let is_new = described.replace(segment.version) != Some(segment.version);
            place.segment(&mut out, kept, segment, (has_parts, is_new));
        }
        let (number, part) = kept.hint();
        let name = place.name(kept, kept.version(), number, Some(part));
        line(
            &mut out,
            format_args!("#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{name}\""),
        );
        self.reports(&mut out, kept, query);
        out
    }

    fn head(&self, target_s: u64) -> String {
        let part_us = self.part_target_us(target_s * 1_000_000);
        let hold_back_us = (HOLD_BACK_PARTS * part_us).max(HOLD_BACK_US_MIN);
        let skip_s = SKIP_TARGETS * target_s;
        let (part, hold_back) = (seconds(part_us), seconds(hold_back_us));
        format!(
            "#EXTM3U\n#EXT-X-VERSION:9\n#EXT-X-TARGETDURATION:{target_s}\n\
             #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK={hold_back},\
             CAN-SKIP-UNTIL={skip_s}.0\n\
             #EXT-X-PART-INF:PART-TARGET={part}\n"
        )
    }

    /// How long parts are at the most: as was told, or as one is that is listed, because a picture
    /// lasted longer than those before. What is told is not to change (section 6.2.1), but players
    /// refuse parts that are longer (section 4.4.4.9).
    fn part_target_us(&self, target_us: u64) -> u64 {
        let segments = self.renditions.iter().flat_map(|kept| {
            let mut behind_us = 0;
            let newest = kept.listed().rev();
            newest.take_while(move |segment| {
                let has_parts = behind_us < PARTS_TARGETS * target_us;
                behind_us += segment.lasts_us;
                has_parts
            })
        });
        let parts = segments.flat_map(|segment| &segment.parts);
        let longest_us = parts.map(|part| part.lasts_us).max();
        longest_us.unwrap_or(0).max(self.part_us)
    }

    /// EXT-X-RENDITION-REPORT (section 4.4.5.4).
    fn reports(&self, out: &mut String, of: &Kept, query: &str) {
        let others = self.renditions.iter().filter(|it| it.has_whole());
        for other in others.filter(|it| it.of.name != of.of.name) {
            let Some(last) = other.segments.back() else {
                continue;
            };
            let part = last.parts.len().saturating_sub(1);
            line(
                out,
                format_args!(
                    "#EXT-X-RENDITION-REPORT:URI=\"../{}/index.m3u8{query}\",LAST-MSN={},\
                     LAST-PART={part}",
                    other.of.name, last.number
                ),
            );
        }
    }
}

/// What URLs in a playlist have around their names.
struct Place<'a> {
    folder: &'a str,
    query: &'a str,
}

impl Place<'_> {
    fn segment(
        &self,
        out: &mut String,
        kept: &Kept,
        segment: &Segment,
        (has_parts, is_new): (bool, bool),
    ) {
        for _ in 0..segment.told_breaks() {
            *out += "#EXT-X-DISCONTINUITY\n";
        }
        if is_new && !segment.init.bytes.is_empty() {
            let (folder, query, version) = (self.folder, self.query, segment.version);
            line(
                out,
                format_args!("#EXT-X-MAP:URI=\"{folder}{version}/init.mp4{query}\""),
            );
        }
        let time = date_time(segment.starts_unix_ns);
        line(out, format_args!("#EXT-X-PROGRAM-DATE-TIME:{time}"));
        let name = |part| self.name(kept, segment.version, segment.number, part);
        for (part, it) in (0_u64..).zip(&segment.parts).filter(|_| has_parts) {
            let lasts = seconds(it.lasts_us);
            write!(
                out,
                "#EXT-X-PART:DURATION={lasts},URI=\"{}\"",
                name(Some(part))
            )
            .expect("text");
            let independent = if it.is_independent {
                ",INDEPENDENT=YES"
            } else {
                ""
            };
            line(out, format_args!("{independent}"));
        }
        if segment.is_complete {
            let lasts = seconds(segment.lasts_us);
            line(out, format_args!("#EXTINF:{lasts},\n{}", name(None)));
        }
    }

    fn name(&self, kept: &Kept, version: Version, number: u64, part: Option<u64>) -> String {
        let Self { folder, query } = self;
        let ending = match kept.of.format {
            Format::Ts => "ts",
            Format::Cmaf => "m4s",
        };
        let part = part.map_or_else(String::new, |part| format!(".{part}"));
        format!("{folder}{version}/{number}{part}.{ending}{query}")
    }
}

/// The segments that are listed, each with how long those behind it last, in us. That is added up
/// once: a playlist of hours has thousands.
fn listed(kept: &Kept) -> Vec<(&Segment, u64)> {
    let mut behind_us = 0;
    let newest_first = kept.listed().rev();
    let mut listed: Vec<_> = newest_first
        .map(|segment| {
            let behind = behind_us;
            behind_us += segment.lasts_us;
            (segment, behind)
        })
        .collect();
    listed.reverse();
    listed
}

/// How many of those that are listed are left out for who has them.
fn skipped(listed: &[(&Segment, u64)], skips: bool, target_us: u64) -> usize {
    let is_old = |(it, behind_us): &&(&Segment, u64)| {
        it.is_complete && *behind_us >= SKIP_TARGETS * target_us
    };
    match skips {
        true => listed.iter().take_while(is_old).count(),
        false => 0,
    }
}

/// Whether parts are listed of a segment that is so far from the end.
const fn has_parts(behind_us: u64, target_us: u64) -> bool {
    behind_us < PARTS_TARGETS * target_us
}

/// The peak and the mean of what is kept, in bits a second.
pub(super) fn rates(kept: &Kept) -> (u64, u64) {
    let complete = kept.segments.iter().filter(|it| it.is_complete);
    let rate = |bytes: usize, us: u64| (bytes as u64 * 8).saturating_mul(1_000_000) / us.max(1);
    let peak = complete.clone().map(|it| rate(it.bytes, it.lasts_us)).max();
    let bytes = complete.clone().map(|it| it.bytes).sum();
    let us = complete.map(|it| it.lasts_us).sum();
    (peak.unwrap_or(1).max(1), rate(bytes, us).max(1))
}

/// Thousandths of a picture a second, as a mean of what is kept.
pub(super) fn frame_rate_milli(kept: &Kept) -> Option<u64> {
    if kept.of.medium != Medium::Video || kept.of.format == Format::Ts {
        return None;
    }
    let sums = kept.segments.iter().fold((0, 0), |sum: (u64, u64), it| {
        (sum.0 + it.samples, sum.1 + it.lasts_us)
    });
    Some(sums.0.saturating_mul(1_000_000_000) / sums.1.max(1))
}

/// As ISO 8601 writes a time in ns since 1970, in UTC (section 4.4.4.6).
#[must_use]
pub fn date_time(unix_ns: i64) -> String {
    let (seconds, ns) = (
        unix_ns.div_euclid(1_000_000_000),
        unix_ns.rem_euclid(1_000_000_000),
    );
    let Utc {
        year,
        month,
        day,
        hour,
        minute,
        second,
    } = Utc::at(seconds);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z",
        ns / 1_000_000
    )
}

fn seconds(us: u64) -> String {
    format!("{}.{:06}", us / 1_000_000, us % 1_000_000)
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("a string takes all");
}
