//! The units of the Range header: normal play time, SMPTE time codes and wall-clock time (RFC 2326,
//! sections 3.5 to 3.7).
//!
//! Normal play time every presentation has. A time code names a frame, so it needs a constant frame
//! rate; a time of the wall's clock needs to be known when the presentation began by it. What a
//! header says is read here whatever is played, and turned into normal play time where that is
//! known.

use super::range::{Range, RangeError};
use super::request::number;
use crate::calendar::Utc;
use crate::media::FrameRate;

/// What a presentation knows of other units than normal play time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Units {
    /// Its constant frame rate, if it has one.
    pub frame_rate: Option<FrameRate>,
    /// When its time 0 was, in ns since 1970, if that is known.
    pub wall_clock_start_ns: Option<u64>,
}

/// What a Range header asks for, in the unit that it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AskedRange {
    /// `npt=`
    Npt(Range),
    /// `smpte=`, `smpte-30-drop=` or `smpte-25=`
    Smpte {
        /// The frames a second that its time codes count.
        frame_rate: FrameRate,
        /// From which frame, in hundredths of a frame.
        start: u64,
        /// Until which.
        stop: Option<u64>,
    },
    /// `clock=`
    Clock {
        /// From when, in ns since 1970.
        start_ns: u64,
        /// Until when.
        stop_ns: Option<u64>,
    },
}

impl AskedRange {
    /// Reads the header's value.
    ///
    /// # Errors
    ///
    /// [`RangeError::Syntax`], also for other units.
    pub fn parse(value: &str) -> Result<Self, RangeError> {
        let (unit, range) = value.split_once('=').ok_or(RangeError::Syntax)?;
        let unit = unit.trim().to_ascii_lowercase();
        let times = || {
            let (start, stop) = range.split_once('-')?;
            let stop = Some(stop.trim()).filter(|stop| !stop.is_empty());
            Some((start.trim(), stop))
        };
        let read = |time: fn(&str) -> Option<u64>| {
            let (start, stop) = times()?;
            let stop = stop.map(|stop| time(stop).ok_or(())).transpose().ok()?;
            Some((time(start)?, stop))
        };
        let smpte = |frame_rate, time| {
            let (start, stop) = read(time).ok_or(RangeError::Syntax)?;
            Ok(Self::Smpte {
                frame_rate,
                start,
                stop,
            })
        };
        match unit.as_str() {
            "smpte" | "smpte-30-drop" => smpte(FrameRate::NTSC, drop_frame_hundredths),
            "smpte-25" => smpte(FrameRate::PAL, pal_hundredths),
            "clock" => {
                let (start_ns, stop_ns) = read(utc_ns).ok_or(RangeError::Syntax)?;
                Ok(Self::Clock { start_ns, stop_ns })
            }
            _ => Range::parse(value).map(Self::Npt),
        }
    }

    /// Reads a PAUSE's header: one time, as [`Range::parse_point`] does. `None`: now.
    ///
    /// # Errors
    ///
    /// Those of [`Self::parse`], and [`RangeError::Span`].
    pub fn parse_point(value: &str) -> Result<Option<Self>, RangeError> {
        let unit = value.split('=').next().unwrap_or("");
        if unit.trim().eq_ignore_ascii_case("npt") {
            let point = Range::parse_point(value)?;
            return Ok(point.map(|start_ns| {
                Self::Npt(Range {
                    start_ns: Some(start_ns),
                    ..Range::default()
                })
            }));
        }
        // The unit's name may have dashes.
        let times = value.split_once('=').map_or("", |(_, times)| times);
        let asked = match times.contains('-') {
            true => Self::parse(value),
            false => Self::parse(&format!("{value}-")),
        };
        match asked? {
            Self::Smpte { stop: Some(_), .. } => Err(RangeError::Span),
            Self::Clock {
                stop_ns: Some(_), ..
            } => Err(RangeError::Span),
            asked => Ok(Some(asked)),
        }
    }

    /// The same in normal play time, of a presentation that knows these units.
    ///
    /// # Errors
    ///
    /// [`RangeError::Frames`] and [`RangeError::Clock`] if it does not, [`RangeError::Before`] of a
    /// time before it began.
    pub fn in_npt(self, units: Units) -> Result<Range, RangeError> {
        let (start_ns, stop_ns) = match self {
            Self::Npt(range) => return Ok(range),
            Self::Smpte {
                frame_rate,
                start,
                stop,
            } => {
                let known = units.frame_rate.filter(|known| *known == frame_rate);
                let rate = known.ok_or(RangeError::Frames)?;
                let time_ns = |hundredths| rate.time_ns(hundredths);
                (time_ns(start), stop.map(time_ns))
            }
            Self::Clock { start_ns, stop_ns } => {
                let began_ns = units.wall_clock_start_ns.ok_or(RangeError::Clock)?;
                let since_ns = |time_ns: u64| time_ns.checked_sub(began_ns);
                let start_ns = since_ns(start_ns).ok_or(RangeError::Before)?;
                let stop_ns = stop_ns.map(|stop_ns| since_ns(stop_ns).ok_or(RangeError::Stop));
                (start_ns, stop_ns.transpose()?)
            }
        };
        Ok(Range {
            start_ns: Some(start_ns),
            stop_ns,
            is_now: false,
        })
    }
}

/// `hours:minutes:seconds[:frames[.hundredths]]`, in its parts.
fn time_code(text: &str, frames_a_second: u64) -> Option<(u64, u64, u64)> {
    let mut parts = text.split(':');
    let mut below = |bound: u64| {
        let digits = parts.next()?;
        let value = number::<u64>(digits).filter(|_| digits.len() <= 2)?;
        (value < bound).then_some(value)
    };
    let minutes = below(24)? * 60 + below(60)?;
    let seconds = below(60)?;
    let (frames, hundredths) = match parts.next() {
        None => (0, 0),
        Some(frames) => {
            let (frames, hundredths) = frames.split_once('.').unwrap_or((frames, "0"));
            let part = |digits: &str| number::<u64>(digits).filter(|_| digits.len() <= 2);
            // One digit is a tenth.
            let scale = if hundredths.len() == 1 { 10 } else { 1 };
            (part(frames)?, part(hundredths)? * scale)
        }
    };
    let is_over = parts.next().is_none();
    (is_over && frames < frames_a_second).then_some((minutes, seconds, frames * 100 + hundredths))
}

/// Of 25 frames a second.
fn pal_hundredths(text: &str) -> Option<u64> {
    let (minutes, seconds, hundredths) = time_code(text, 25)?;
    Some((minutes * 60 + seconds) * 25 * 100 + hundredths)
}

/// Of 30 numbers a second, of which the first two of each minute are left out, but for every tenth
/// minute: so that numbers keep step with 29.97 frames a second.
fn drop_frame_hundredths(text: &str) -> Option<u64> {
    let (minutes, seconds, hundredths) = time_code(text, 30)?;
    if minutes % 10 != 0 && seconds == 0 && hundredths < 200 {
        return None;
    }
    let left_out = 2 * (minutes - minutes / 10);
    Some(((minutes * 60 + seconds) * 30 - left_out) * 100 + hundredths)
}

/// `YYYYMMDDThhmmss[.fraction]Z`, in ns since 1970.
fn utc_ns(text: &str) -> Option<u64> {
    let (date, time) = text.strip_suffix(['Z', 'z'])?.split_once(['T', 't'])?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let is_number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if date.len() != 8 || time.len() != 6 || ![date, time, fraction].into_iter().all(is_number) {
        return None;
    }
    let part = |digits: &str| digits.parse::<u8>().ok();
    let at = Utc {
        year: date[..4].parse().ok()?,
        month: part(&date[4..6])?,
        day: part(&date[6..])?,
        hour: part(&time[..2])?,
        minute: part(&time[2..4])?,
        second: part(&time[4..])?,
    };
    let digits = &fraction[..9.min(fraction.len())];
    let fraction_ns: u64 = format!("{digits:0<9}").parse().ok()?;
    let seconds = u64::try_from(at.seconds()?).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn npt(value: &str, units: Units) -> Result<(u64, Option<u64>), RangeError> {
        let range = AskedRange::parse(value)?.in_npt(units)?;
        Ok((range.start_ns.unwrap_or(u64::MAX), range.stop_ns))
    }

    #[test]
    fn time_codes_name_frames() {
        let of = |frame_rate| Units {
            frame_rate: Some(frame_rate),
            ..Units::default()
        };
        let (pal, ntsc) = (of(FrameRate::PAL), of(FrameRate::NTSC));
        let frames = |count: u64| count * 1001 * SECOND / 30_000;
        for (value, units, expected) in [
            ("smpte-25=0:00:01-", pal, (SECOND, None)),
            (
                "smpte-25=10:07:00-10:07:33:05.01",
                pal,
                (36_420 * SECOND, Some(36_453 * SECOND + 200_400_000)),
            ),
            ("SMPTE-25 = 0:0:0:1.5 -", pal, (60_000_000, None)),
            ("smpte=0:00:00:29-", ntsc, (frames(29), None)),
            ("smpte-30-drop=0:00:59:29-", ntsc, (frames(1799), None)),
            ("smpte-30-drop=0:01:00:02-", ntsc, (frames(1800), None)),
            ("smpte=0:10:00:00-", ntsc, (frames(17_982), None)),
            ("smpte=1:00:00:00-", ntsc, (frames(107_892), None)),
        ] {
            assert_eq!(npt(value, units), Ok(expected), "{value}");
        }
        // Another rate, or none that is known.
        for units in [ntsc, Units::default()] {
            assert_eq!(npt("smpte-25=0:0:1-", units), Err(RangeError::Frames));
        }
        assert_eq!(npt("smpte=0:0:1-", pal), Err(RangeError::Frames));
    }

    #[test]
    fn the_clock_on_the_wall_is_counted_from_the_start() {
        let units = Units {
            // 1996-11-08 14:23:00.
            wall_clock_start_ns: Some(847_462_980 * SECOND),
            ..Units::default()
        };
        for (value, expected) in [
            ("clock=19961108T142300Z-", Ok((0, None))),
            (
                "clock=19961108T142301.25Z-19961108T143520Z",
                Ok((SECOND * 5 / 4, Some(740 * SECOND))),
            ),
            ("clock=19961108T142259Z-", Err(RangeError::Before)),
            (
                "clock=19961108T142301Z-19961108T142259Z",
                Err(RangeError::Stop),
            ),
        ] {
            assert_eq!(npt(value, units), expected, "{value}");
        }
        let unknown = npt("clock=19961108T142300Z-", Units::default());
        assert_eq!(unknown, Err(RangeError::Clock));
    }

    #[test]
    fn what_is_no_time_of_its_unit_is_no_range() {
        for value in [
            "smpte=0-",
            "smpte=0:0-",
            "smpte=0:0:0:30-",
            "smpte-25=0:0:0:25-",
            "smpte-25=24:00:00-",
            "smpte-25=0:60:00-",
            "smpte-25=0:0:0:1.100-",
            "smpte-25=0:0:0:1:1-",
            "smpte-25=-0:0:1",
            "smpte-25=",
            // Left out of the count.
            "smpte=0:01:00:01-",
            "smpte-24=0:0:1-",
            "clock=now-",
            "clock=1996110T142300Z-",
            "clock=19961108T142300-",
            "clock=19961308T142300Z-",
            "clock=19960230T142300Z-",
            "clock=19961108T242300Z-",
            "clock=19691231T235959Z-",
            "clock=1996110éT142300Z-",
            "bytes=0-",
            "",
        ] {
            assert_eq!(AskedRange::parse(value), Err(RangeError::Syntax), "{value}");
        }
    }

    #[test]
    fn a_point_is_one_time_in_any_unit() {
        let at = |value| AskedRange::parse_point(value);
        let one = AskedRange::parse("smpte-30-drop=0:00:01-").map(Some);
        assert_eq!(at("smpte-30-drop=0:00:01"), one);
        assert_eq!(at("smpte-30-drop=0:00:01-"), one);
        let clock = AskedRange::parse("clock=19961108T142300Z-").map(Some);
        assert_eq!(at("clock=19961108T142300Z"), clock);
        assert_eq!(at("npt=now-"), Ok(None));
        let npt = AskedRange::parse("npt=2-").map(Some);
        assert_eq!(at("npt=2"), npt);
        let spans = [
            "npt=1-2",
            "smpte-25=0:0:1-0:0:2",
            "clock=19961108T142300Z-19961108T142301Z",
        ];
        for span in spans {
            assert_eq!(at(span), Err(RangeError::Span), "{span}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(value in "(npt|smpte|smpte-25|clock)=([0-9T:Z.-]|\\PC){0,24}") {
            let units = Units {
                frame_rate: Some(FrameRate::PAL),
                wall_clock_start_ns: Some(0),
            };
            if let Ok(asked) = AskedRange::parse(&value) {
                let _any: Result<Range, RangeError> = asked.in_npt(units);
            }
            let _any: Result<Option<AskedRange>, RangeError> = AskedRange::parse_point(&value);
        }
    }
}
