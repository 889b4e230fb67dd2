//! The manifest of DASH (ISO/IEC 23009-1) of a live channel, of the same segments as its playlists.
//!
//! `availabilityStartTime` is when the channel's first part begins, and the first period starts
//! there: GStreamer 1.22 counts a period's start twice, which does nothing of 0. A discontinuity
//! begins another period. Whole segments are listed, no parts: what low latency needs is in the
//! playlists of HLS.
//!
//! URLs of segments have their times. With numbers FFmpeg would play the first segments again and
//! again: when it has read a manifest anew, it takes a segment's place in the list for its number.
//!
//! Transport streams have no manifest, as players of DASH do not take them.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::playlist::{date_time, frame_rate_milli, rates};
use super::segment::Segment;
use super::window::{Kept, Window};
use crate::dash::{Representation, Row, Template, duration, escaped, transfer};
use crate::hls::Version;
use crate::media::Medium;
use crate::media::segments::Format;

/// How often players ask for it again: segments are of two seconds as a rule.
const UPDATE_NS: u64 = 2_000_000_000;

/// Players stay so many of the longest segments behind the newest.
const DELAY_SEGMENTS: u64 = 3;

const NS: i128 = 1_000_000_000;

/// What lies between two discontinuities of the leading rendition.
struct Period<'a> {
    /// Its number, and when it begins in ms since 1970.
    number: u64,
    starts_ms: i64,
    leading: Vec<&'a Segment>,
}

impl Window {
    /// The manifest, `query` behind each URL. `None` while there is none, and of transport streams.
    #[must_use]
    pub fn manifest(&self, query: &str) -> Option<String> {
        let has = |it: &&Kept| it.of.format == Format::Cmaf && listed(it).next().is_some();
        let of = |medium| {
            self.renditions
                .iter()
                .filter(has)
                .find(|it| it.of.medium == medium)
        };
        let sound = of(Medium::Audio);
        // Those that are back are named with their first whole segment: what is listed of them
        // until then is long ago.
        let starts_ns = |of: &Kept| {
            let newest = listed(of).next_back();
            newest.map_or(0, |it| it.starts_unix_ns)
        };
        let keep_up =
            |it: &&Kept| sound.is_none_or(|sound| self.keeps_up(starts_ns(it), starts_ns(sound)));
        let pictures = of(Medium::Video).filter(keep_up);
        let leading = pictures.or(sound).filter(|_| self.is_ready())?;
        let others: Vec<_> = sound.filter(|_| pictures.is_some()).into_iter().collect();
        let epoch_ms = self.starts_unix_ms?;
        let mut periods = self.periods(leading, epoch_ms);
        // A player that meets a period without sound plays all of it so: it waits for the first
        // segment of sound, which is not far behind.
        let is_early = |last: &Period<'_>| {
            let lacks = |other: &&Kept| within(other, last, (false, None)).is_empty();
            last.leading.len() < 2 && others.iter().any(lacks)
        };
        if periods.len() > 1 && periods.last().is_some_and(is_early) {
            periods.pop();
        }
        let mut out = self.mpd(leading, epoch_ms)?;
        for (at, period) in periods.iter().enumerate() {
            let starts = seconds(period.starts_ms - epoch_ms);
            let number = period.number;
            text(
                &mut out,
                format_args!("<Period id=\"{number}\" start=\"{starts}\">\n"),
            );
            adaptation_set(&mut out, leading, period, &period.leading, query);
            let next = periods.get(at + 1);
            for other in &others {
                let within = within(other, period, (at == 0, next));
                adaptation_set(&mut out, other, period, &within, query);
            }
            out += "</Period>\n";
        }
        let timing = "urn:mpeg:dash:utc:http-iso:2014";
        let query = escaped(query);
        text(
            &mut out,
            format_args!(
                "<UTCTiming schemeIdUri=\"{timing}\" value=\"time.txt{query}\"/>\n</MPD>\n"
            ),
        );
        Some(out)
    }

    /// The number of the whole segment that begins at that time, in ticks: of several the newest.
    #[must_use]
    pub fn number_at(&self, rendition: &str, version: Version, ticks: u64) -> Option<u64> {
        let starts_ticks = i64::try_from(ticks).ok()?;
        let mut newest = whole(self.kept(rendition)?, version);
        let found = newest.find(|it| it.starts_ticks == starts_ticks);
        found.map(|it| it.number)
    }

    /// Whether a segment may come that begins then, or is written: no whole one ends behind that.
    #[must_use]
    pub fn may_begin_at(&self, rendition: &str, version: Version, ticks: u64) -> bool {
        let is_next = |kept: &&Kept| kept.version() == version;
        let Some(kept) = self.kept(rendition).filter(is_next) else {
            return false;
        };
        let starts_ticks = i64::try_from(ticks).unwrap_or(i64::MAX);
        let ends = |it: &Segment| it.starts_ticks.saturating_add(it.ticks);
        let newest = whole(kept, version).next();
        newest.is_some_and(|it| ends(it) <= starts_ticks)
    }

    /// Its first element, which ends with it.
    fn mpd(&self, leading: &Kept, epoch_ms: i64) -> Option<String> {
        let all = || listed(leading);
        let (first, last) = (all().next()?, all().next_back()?);
        let longest_us = all().map(|it| it.lasts_us).max()?;
        // A target duration is one of rounded durations, and more than most segments have.
        let segments = self.renditions.iter().flat_map(listed);
        let segment_us_max = segments.map(|it| it.lasts_us).max()?;
        let segment_us_max = segment_us_max.max(self.target_s?.saturating_mul(1_000_000));
        // What has happened by the newest segment's end is what it tells.
        let ends_ns = ends_unix_ns(last);
        let span_us = u64::try_from((ends_ns - first.starts_unix_ns) / 1000).unwrap_or(0);
        let buffer_us = match kept_all(leading) {
            true => self.settings.window_us,
            false => self.settings.window_us.min(span_us),
        };
        Some(format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <MPD xmlns=\"urn:mpeg:dash:schema:mpd:2011\" type=\"dynamic\" \
             profiles=\"urn:mpeg:dash:profile:isoff-live:2011,urn:mpeg:dash:profile:cmaf:2019\" \
             availabilityStartTime=\"{}\" publishTime=\"{}\" \
             minimumUpdatePeriod=\"{}\" timeShiftBufferDepth=\"{}\" maxSegmentDuration=\"{}\" \
             suggestedPresentationDelay=\"{}\" minBufferTime=\"PT2.000S\">\n",
            date_time(epoch_ms.saturating_mul(1_000_000)),
            date_time(ends_ns),
            duration(UPDATE_NS),
            duration(buffer_us.saturating_mul(1000)),
            duration(segment_us_max.saturating_mul(1000)),
            duration(longest_us.saturating_mul(1000 * DELAY_SEGMENTS)),
        ))
    }

    fn periods<'a>(&self, leading: &'a Kept, epoch_ms: i64) -> Vec<Period<'a>> {
        let mut periods: Vec<Period<'_>> = Vec::new();
        for segment in listed(leading) {
            let number = segment.breaks;
            match periods.last_mut() {
                Some(last) if last.number == number => last.leading.push(segment),
                _ => periods.push(Period {
                    number,
                    starts_ms: match number == leading.first_break() {
                        true => epoch_ms,
                        false => segment.break_unix_ns.div_euclid(1_000_000).max(epoch_ms),
                    },
                    leading: vec![segment],
                }),
            }
        }
        periods
    }
}

/// The whole segments that are listed.
fn listed(kept: &Kept) -> impl DoubleEndedIterator<Item = &Segment> + Clone {
    kept.listed().filter(|it| it.is_complete)
}

/// The whole segments of that version that are kept, the newest first.
fn whole(kept: &Kept, version: Version) -> impl Iterator<Item = &Segment> {
    let newest_first = kept.segments.iter().rev();
    newest_first.filter(move |it| it.is_complete && it.version == version)
}

/// Whether its first segment is listed still.
fn kept_all(kept: &Kept) -> bool {
    let first = listed(kept).next();
    first.is_some_and(|it| it.number == kept.first_number())
}

/// The segments of another rendition that are of a period: those whose middle is in it, of one
/// description, one behind the other. Times tell, not numbers of discontinuities: a segment of
/// sound that did not wait for late pictures goes on beyond one.
fn within<'a>(
    other: &'a Kept,
    period: &Period<'_>,
    (is_first, next): (bool, Option<&Period<'_>>),
) -> Vec<&'a Segment> {
    let starts_ns = match is_first {
        true => i64::MIN,
        false => period.starts_ms.saturating_mul(1_000_000),
    };
    let ends_ns = match next {
        Some(next) => next.starts_ms.saturating_mul(1_000_000),
        None => period.leading.last().map_or(0, |it| ends_unix_ns(it)),
    };
    let middle = |it: &Segment| it.starts_unix_ns / 2 + ends_unix_ns(it) / 2;
    let found = listed(other).filter(|it| (starts_ns..ends_ns).contains(&middle(it)));
    let mut of: Vec<&Segment> = Vec::new();
    for segment in found {
        // Of two descriptions the later is that of what follows.
        if of
            .last()
            .is_some_and(|last| last.version != segment.version)
        {
            of.clear();
        }
        of.push(segment);
    }
    of
}

fn adaptation_set(
    out: &mut String,
    kept: &Kept,
    period: &Period<'_>,
    segments: &[&Segment],
    query: &str,
) {
    let Some(first) = segments.first() else {
        return;
    };
    let (id, kind) = match kept.of.medium {
        Medium::Video => (1, "video"),
        _ => (2, "audio"),
    };
    let is_independent = segments.iter().all(|it| it.is_independent);
    let (init, starts_with) = (&first.init, u8::from(is_independent));
    text(
        out,
        format_args!(
            "<AdaptationSet id=\"{id}\" contentType=\"{kind}\" mimeType=\"{kind}/mp4\" \
             segmentAlignment=\"true\" startWithSAP=\"{starts_with}\">\n"
        ),
    );
    *out += &transfer(init.video_range);
    let representation = Representation {
        name: kept.of.name,
        peak_bps: rates(kept).0,
        codec: init.codec.as_deref().unwrap_or_default(),
        dimensions: init.dimensions,
        frame_rate_milli: frame_rate_milli(kept),
        sample_rate_hz: None,
        channels: init.channels.map(u32::from),
        segments: Template {
            timescale: init.timescale,
            offset_ticks: Some(offset(first, period.starts_ms)),
            first: None,
            version: first.version,
            query,
        },
    };
    representation.write(out, &rows(segments));
    *out += "</AdaptationSet>\n";
}

/// What the times of a segment say where the period begins, in ticks (section 5.3.9.2).
///
/// It is the same of all segments of a period, because what makes times of the media those since
/// 1970 is the same.
fn offset(of: &Segment, starts_ms: i64) -> i64 {
    let timescale = i128::from(of.init.timescale.max(1));
    let own_ns = i128::from(of.starts_ticks) * NS / timescale;
    let media_ns = i128::from(starts_ms) * 1_000_000 - i128::from(of.starts_unix_ns) + own_ns;
    i64::try_from((media_ns * timescale).div_euclid(NS).max(0)).unwrap_or(0)
}

/// The time line. Of the first row, and of those behind a gap, it is told when they begin. A
/// segment lasts until the next begins.
fn rows(segments: &[&Segment]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut next = None;
    for (at, segment) in segments.iter().enumerate() {
        let start = segment.starts_ticks;
        let follows = segments.get(at + 1).map(|it| it.starts_ticks - start);
        let lasts_ticks = follows
            .filter(|it| *it > 0)
            .unwrap_or_else(|| segment.ticks.max(1));
        match rows.last_mut() {
            Some(row) if next == Some(start) && row.lasts_ticks == lasts_ticks => row.more += 1,
            _ => rows.push(Row {
                starts_ticks: Some(start).filter(|_| next != Some(start)),
                lasts_ticks,
                more: 0,
            }),
        }
        next = Some(start.saturating_add(lasts_ticks));
    }
    rows
}

fn ends_unix_ns(of: &Segment) -> i64 {
    let lasts_ns = i64::try_from(of.lasts_us.saturating_mul(1000)).unwrap_or(i64::MAX);
    of.starts_unix_ns.saturating_add(lasts_ns)
}

/// As XML Schema writes durations.
fn seconds(ms: i64) -> String {
    duration(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000))
}

fn text(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes all");
}
