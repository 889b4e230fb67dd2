//! The manifest of DASH (ISO/IEC 23009-1) of a live channel, of the same segments as its playlists.
//!
//! `availabilityStartTime` is when the channel's first part begins, and the first period starts
//! there: GStreamer 1.22 counts a period's start twice, which does nothing of 0. A discontinuity
//! begins another period, and so does a pause of pictures or sound (`pauses`). Whole segments are
//! listed, no parts: what low latency needs is in the playlists of HLS.
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
const NS_OF_MS: i64 = 1_000_000;

/// Where a period begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Start {
    /// The number of the discontinuity that it is behind.
    breaks: u64,
    /// In ms since 1970.
    at_ms: i64,
    /// Whether it begins with that.
    is_break: bool,
    /// What has paused, and is not in it.
    without: Option<Medium>,
}

/// What is listed of a rendition; there is at least one.
type Set<'a> = (&'a Kept, Vec<&'a Segment>);

/// What lies between two of these.
struct Period<'a> {
    start: Start,
    /// There is at least one; pictures first.
    sets: Vec<Set<'a>>,
}

impl Window {
    /// The manifest, `query` behind each URL. `None` while there is none, and of transport streams.
    #[must_use]
    pub fn manifest(&self, query: &str) -> Option<String> {
        let epoch_ms = self.starts_unix_ms.filter(|_| self.is_ready())?;
        let periods = self.periods(epoch_ms);
        let mut out = self.mpd(&periods, epoch_ms)?;
        for Period { start, sets } in &periods {
            let (id, starts) = (start.id(epoch_ms), seconds(start.at_ms - epoch_ms));
            text(
                &mut out,
                format_args!("<Period id=\"{id}\" start=\"{starts}\">\n"),
            );
            for (kept, segments) in sets {
                adaptation_set(&mut out, kept, start.at_ms, segments, query);
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
    fn mpd(&self, periods: &[Period<'_>], epoch_ms: i64) -> Option<String> {
        let leading = || periods.iter().filter_map(|it| it.sets.first());
        let (of_first, begun) = leading().next()?;
        let (first, last) = (begun.first()?, leading().next_back()?.1.last()?);
        let segments = leading().flat_map(|(_, it)| it);
        let longest_us = segments.map(|it| it.lasts_us).max()?;
        // A target duration is one of rounded durations, and more than most segments have.
        let segments = self.renditions.iter().flat_map(listed);
        let segment_us_max = segments.map(|it| it.lasts_us).max()?;
        let segment_us_max = segment_us_max.max(self.target_s?.saturating_mul(1_000_000));
        // What has happened by the newest segment's end is what it tells.
        let ends_ns = last.ends_unix_ns();
        let span_us = u64::try_from((ends_ns - first.starts_unix_ns) / 1000).unwrap_or(0);
        let buffer_us = match first.number == of_first.first_number() {
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

    fn periods(&self, epoch_ms: i64) -> Vec<Period<'_>> {
        let has = |it: &&Kept| it.of.format == Format::Cmaf && listed(it).next().is_some();
        let of = |medium| {
            self.renditions
                .iter()
                .filter(has)
                .find(|it| it.of.medium == medium)
        };
        let both = [of(Medium::Video), of(Medium::Audio)];
        let starts = starts(both, epoch_ms);
        let periods = starts.iter().enumerate().map(|(at, start)| Period {
            start: *start,
            sets: sets(both, start, starts.get(at + 1)),
        });
        let mut periods: Vec<_> = periods.filter(|it| !it.sets.is_empty()).collect();
        // Of what has paused, segments of long ago are listed on; the other one has gone further.
        if let Some(from_ms) = both.into_iter().flatten().filter_map(gone_ms).max() {
            let next = periods.iter().skip(1);
            let gone = next.take_while(|it| it.start.at_ms <= from_ms).count();
            periods.drain(..gone);
        }
        // A player that meets a period without sound plays all of it so: it waits for the first
        // segment of sound, which is not far behind.
        let has_both = both.iter().all(Option::is_some);
        let is_early = |last: &Period<'_>| {
            let is_short = matches!(&last.sets[..], [(_, only)] if only.len() < 2);
            has_both && is_short && last.start.without.is_none()
        };
        if periods.len() > 1 && periods.last().is_some_and(is_early) {
            periods.pop();
        }
        periods
    }
}

impl Start {
    /// The period's name, which stays the same.
    fn id(&self, epoch_ms: i64) -> String {
        let breaks = self.breaks;
        match self.is_break {
            true => breaks.to_string(),
            false => format!("{breaks}.{}", self.at_ms - epoch_ms),
        }
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

/// Before when nothing of it is listed any more, in ms since 1970; `None` if its first segment is
/// listed still.
fn gone_ms(kept: &Kept) -> Option<i64> {
    let first = listed(kept).next()?;
    (first.number != kept.first_number()).then(|| first.starts_unix_ns.div_euclid(NS_OF_MS))
}

/// Where periods begin, in order: at the discontinuities of pictures, or of sound alone, and where
/// one of both pauses or is back.
fn starts(both: [Option<&Kept>; 2], epoch_ms: i64) -> Vec<Start> {
    let mut starts = Vec::new();
    for kept in both.into_iter().flatten() {
        let is_pictures = kept.of.medium == Medium::Video;
        let leads = is_pictures || both[0].is_none();
        let other = match is_pictures {
            true => Medium::Audio,
            false => Medium::Video,
        };
        for segment in listed(kept) {
            let breaks = segment.breaks;
            let begins_ms = match breaks == kept.first_break() {
                true => epoch_ms,
                false => segment.break_unix_ns.div_euclid(NS_OF_MS).max(epoch_ms),
            };
            let at_break = Start {
                breaks,
                at_ms: begins_ms,
                is_break: true,
                without: None,
            };
            let at_cut = segment.cut.map(|cut| Start {
                breaks,
                at_ms: cut.starts_ns.div_euclid(NS_OF_MS).max(epoch_ms),
                is_break: false,
                without: Some(other).filter(|_| cut.is_alone),
            });
            starts.extend(Some(at_break).filter(|_| leads));
            starts.extend(at_cut);
        }
    }
    starts.sort_by_key(|it| (it.breaks, it.at_ms, !it.is_break));
    starts.dedup();
    starts
}

/// What there is of pictures and sound from `start` on until `next`.
fn sets<'a>(
    [pictures, sound]: [Option<&'a Kept>; 2],
    start: &Start,
    next: Option<&Start>,
) -> Vec<Set<'a>> {
    let has = |it: &&Kept| start.without != Some(it.of.medium);
    let leading = pictures.or(sound).filter(has);
    let leading = leading.map(|it| (it, numbered(it, start, next)));
    let newest = leading.as_ref().and_then(|(_, it)| it.last());
    let ends_ns = match (next, newest) {
        (Some(next), _) => next.at_ms.saturating_mul(NS_OF_MS),
        (None, Some(newest)) => newest.ends_unix_ns(),
        (None, None) => i64::MAX,
    };
    let beside = sound.filter(|_| pictures.is_some()).filter(has);
    let beside = beside.map(|it| (it, within(it, start, ends_ns)));
    let sets = [leading, beside].into_iter().flatten();
    sets.filter(|(_, it)| !it.is_empty()).collect()
}

/// The segments of the rendition whose discontinuities count. Only behind the same one they are
/// told apart by their times.
fn numbered<'a>(leading: &'a Kept, start: &Start, next: Option<&Start>) -> Vec<&'a Segment> {
    let starts_ns = match start.is_break {
        true => i64::MIN,
        false => start.at_ms.saturating_mul(NS_OF_MS),
    };
    let next = next.filter(|it| it.breaks == start.breaks);
    let ends_ns = next.map_or(i64::MAX, |it| it.at_ms.saturating_mul(NS_OF_MS));
    let of = listed(leading).filter(|it| it.breaks == start.breaks);
    of.filter(|it| (starts_ns..ends_ns).contains(&it.middle_unix_ns()))
        .collect()
}

/// The segments of another rendition that are of a period: those whose middle is in it, of one
/// description, one behind the other. Times tell, not numbers of discontinuities: a segment of
/// sound that did not wait for late pictures goes on beyond one. But where it is alone, what is
/// behind the next one waits for the pictures.
fn within<'a>(other: &'a Kept, start: &Start, ends_ns: i64) -> Vec<&'a Segment> {
    let starts_ns = start.at_ms.saturating_mul(NS_OF_MS);
    let is_alone = start.without.is_some();
    let found = listed(other).filter(|it| !is_alone || it.breaks == start.breaks);
    let found = found.filter(|it| (starts_ns..ends_ns).contains(&it.middle_unix_ns()));
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
    starts_ms: i64,
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
            offset_ticks: Some(offset(first, starts_ms)),
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

/// As XML Schema writes durations.
fn seconds(ms: i64) -> String {
    duration(u64::try_from(ms).unwrap_or(0).saturating_mul(1_000_000))
}

fn text(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes all");
}
