//! The Range header (RFC 2326, section 12.29), in normal play time (section 3.6).

use std::fmt;

use thiserror::Error;

use super::request::number;
use crate::media::Scale;

/// What part of the media a client wants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Range {
    /// From when; `None`: from where it is.
    pub start_ns: Option<u64>,
    /// Until when; `None`: to the end.
    pub stop_ns: Option<u64>,
    /// It starts now: where it is, or, of what is still being recorded, where that is.
    pub is_now: bool,
}

/// A part of the media that exists, and how it is played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// From when.
    pub start_ns: u64,
    /// Until when, which backwards is less; `None`: to the end, or backwards to the beginning.
    pub stop_ns: Option<u64>,
    /// How fast, and in which direction.
    pub scale: Scale,
}

/// Why there is no such part.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum RangeError {
    /// It is not a range in a unit that is understood.
    #[error("only npt, smpte and clock ranges are understood; send npt=START-[STOP]")]
    Syntax,
    /// It is in time codes, and the media has no constant frame rate that goes with them.
    #[error("the media has not the constant frame rate of such time codes; send npt=START-[STOP]")]
    Frames,
    /// It is in times of the clock on the wall, and when the media began by it is not known.
    #[error("when the media was recorded is not known; send npt=START-[STOP]")]
    Clock,
    /// It starts before the media.
    #[error("range starts before the media does")]
    Before,
    /// It starts at the end of the media or behind it.
    #[error("range starts behind the end of the media")]
    Start,
    /// It does not end after its start.
    #[error("range ends before it starts")]
    Stop,
    /// A pause point has a span.
    #[error("PAUSE takes one time; send npt=TIME-")]
    Span,
    /// A pause point does not lie in what is still to be played.
    #[error("nothing that is still to be played is at that time")]
    Point,
}

impl Range {
    /// Reads the header's value.
    ///
    /// `now` is where a stored presentation is, which has no other now unless it is still being
    /// recorded. A `;time=` (when to start) is refused, because ignoring it would start at a time
    /// nobody asked for.
    ///
    /// # Errors
    ///
    /// [`RangeError::Syntax`]: also for other units, which [`AskedRange`](super::AskedRange) reads.
    pub fn parse(value: &str) -> Result<Self, RangeError> {
        let (unit, range) = value.split_once('=').ok_or(RangeError::Syntax)?;
        let (start, stop) = match range.trim() {
            // Some recorders forget the dash.
            "now" => ("now", ""),
            range => range.split_once('-').ok_or(RangeError::Syntax)?,
        };
        let (start, stop) = (start.trim(), stop.trim());
        if !unit.trim().eq_ignore_ascii_case("npt") || (start.is_empty() && stop.is_empty()) {
            return Err(RangeError::Syntax);
        }
        let time = |text| npt_ns(text).ok_or(RangeError::Syntax);
        Ok(Self {
            is_now: start == "now",
            start_ns: if matches!(start, "" | "now") {
                None
            } else {
                Some(time(start)?)
            },
            stop_ns: if stop.is_empty() {
                None
            } else {
                Some(time(stop)?)
            },
        })
    }

    /// Reads a PAUSE's header: one time (RFC 2326, section 10.6), whether or not a `-` stands
    /// behind it. `None`: now.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`], and [`RangeError::Span`].
    pub fn parse_point(value: &str) -> Result<Option<u64>, RangeError> {
        let range = match value.contains('-') {
            true => Self::parse(value),
            false => Self::parse(&format!("{value}-")),
        };
        match range? {
            Self {
                start_ns,
                stop_ns: None,
                ..
            } => Ok(start_ns),
            _ => Err(RangeError::Span),
        }
    }

    /// The same part, its times turned into others.
    #[must_use]
    pub fn map(self, time_ns: impl Fn(u64) -> u64) -> Self {
        Self {
            start_ns: self.start_ns.map(&time_ns),
            stop_ns: self.stop_ns.map(&time_ns),
            ..self
        }
    }

    /// What part of a media of `duration_ns` that is at `scale`, seen from `position_ns`.
    ///
    /// # Errors
    ///
    /// [`RangeError::Start`] and [`RangeError::Stop`]. An end behind that of the media is its end.
    /// Backwards the range ends where less of the media is before, and it may start at the end.
    pub fn resolve(
        self,
        position_ns: u64,
        duration_ns: u64,
        scale: Scale,
    ) -> Result<Span, RangeError> {
        let start_ns = self.start_ns.unwrap_or(position_ns);
        if scale.is_reverse() {
            return self.resolve_reverse(start_ns, duration_ns, scale);
        }
        // A film whose only picture lasts no time has a beginning, too.
        if start_ns > 0 && start_ns >= duration_ns {
            return Err(RangeError::Start);
        }
        let stop_ns = self.stop_ns.filter(|&stop_ns| stop_ns < duration_ns);
        if stop_ns.is_some_and(|stop_ns| stop_ns <= start_ns) {
            return Err(RangeError::Stop);
        }
        Ok(Span {
            start_ns,
            stop_ns,
            scale,
        })
    }

    fn resolve_reverse(
        self,
        start_ns: u64,
        duration_ns: u64,
        scale: Scale,
    ) -> Result<Span, RangeError> {
        if start_ns > duration_ns {
            return Err(RangeError::Start);
        }
        let stop_ns = self.stop_ns.filter(|&stop_ns| stop_ns > 0);
        if stop_ns.is_some_and(|stop_ns| stop_ns >= start_ns) {
            return Err(RangeError::Stop);
        }
        Ok(Span {
            start_ns,
            stop_ns,
            scale,
        })
    }
}

/// Seconds with six decimals, as both SDP and Range spell them, and with nine where these do not
/// say it exactly: a client that asks for a sync sample by the time it was told shall not get the
/// one before.
#[must_use]
pub fn npt(time_ns: u64) -> impl fmt::Display {
    let (seconds, ns) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
    match ns % 1000 {
        0 => format!("{seconds}.{:06}", ns / 1000),
        _ => format!("{seconds}.{ns:09}"),
    }
}

/// `seconds[.fraction]` or `hours:minutes:seconds[.fraction]`, in ns.
fn npt_ns(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction_ns = if fraction.is_empty() {
        0
    } else {
        // Further digits than nanoseconds are legal, and nothing here.
        let digits = fraction.get(..9.min(fraction.len()))?;
        let is_number = fraction.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| format!("{digits:0<9}").parse::<u64>().ok())??
    };
    let mut parts = whole.split(':');
    let seconds = match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        (seconds, None, None, None) => number::<u64>(seconds)?,
        (hours, Some(minutes), Some(seconds), None) => {
            let below_60 = |digits| number::<u64>(digits).filter(|&n| n < 60);
            number::<u64>(hours)?
                .checked_mul(3600)?
                .checked_add(below_60(minutes)? * 60 + below_60(seconds)?)?
        }
        _ => return None,
    };
    seconds.checked_mul(1_000_000_000)?.checked_add(fraction_ns)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn ranges_that_are_understood() {
        for (value, start_ns, stop_ns) in [
            ("npt=0-", Some(0), None),
            ("npt=0.000-", Some(0), None),
            ("npt=1.5-2.25", Some(SECOND * 3 / 2), Some(SECOND * 9 / 4)),
            ("NPT = 1 - 2 ", Some(SECOND), Some(2 * SECOND)),
            ("npt=01:02:03.5-", Some(3723 * SECOND + SECOND / 2), None),
            ("npt=100:00:00-", Some(360_000 * SECOND), None),
            ("npt=now-", None, None),
            ("npt=now", None, None),
            ("npt=now-7", None, Some(7 * SECOND)),
            ("npt=-7", None, Some(7 * SECOND)),
            ("npt=1.-", Some(SECOND), None),
            ("npt=0.1234567891-", Some(123_456_789), None),
        ] {
            assert_eq!(
                Range::parse(value),
                Ok(Range {
                    start_ns,
                    stop_ns,
                    is_now: value.contains("now")
                }),
                "{value}"
            );
        }
    }

    #[test]
    fn ranges_that_are_not() {
        for value in [
            "",
            "npt",
            "npt=",
            "npt=-",
            "npt=5",
            "npt=x-",
            "npt=-1-2",
            "npt=1-2-3",
            "npt=+1-",
            "npt=.5-",
            "npt=1:2-",
            "npt=1:60:00-",
            "npt=0:0:60-",
            "npt=0:0:0:0-",
            "npt=0-now",
            "npt=0.1x-",
            "npt=0.é-",
            "npt=18446744074-",
            "npt=99999999999999999999-",
            "npt=0-;time=19970123T143720Z",
            "clock=19961108T142300Z-",
            "smpte=10:07:33-",
            "smpte-25=10:07:33:05.01-",
            "bytes=0-",
        ] {
            assert_eq!(Range::parse(value), Err(RangeError::Syntax), "{value}");
        }
    }

    #[test]
    fn a_pause_point_is_one_time() {
        for (value, expected) in [
            ("npt=12-", Ok(Some(12 * SECOND))),
            ("npt=12.5", Ok(Some(12 * SECOND + SECOND / 2))),
            ("npt=0:00:12", Ok(Some(12 * SECOND))),
            ("npt=now-", Ok(None)),
            ("npt=now", Ok(None)),
            ("npt=12-13", Err(RangeError::Span)),
            ("npt=-12", Err(RangeError::Span)),
            ("npt=", Err(RangeError::Syntax)),
            ("npt", Err(RangeError::Syntax)),
            ("clock=19961108T142300Z", Err(RangeError::Syntax)),
        ] {
            assert_eq!(Range::parse_point(value), expected, "{value}");
        }
    }

    #[test]
    fn ranges_are_cut_to_the_media() {
        let resolve = |start_ns, stop_ns| {
            Range {
                start_ns,
                stop_ns,
                is_now: false,
            }
            .resolve(5, 10, Scale::NORMAL)
        };
        let span = |start_ns, stop_ns| {
            Ok(Span {
                start_ns,
                stop_ns,
                scale: Scale::NORMAL,
            })
        };
        assert_eq!(resolve(None, None), span(5, None));
        assert_eq!(resolve(Some(9), None), span(9, None));
        assert_eq!(resolve(Some(10), None), Err(RangeError::Start));
        assert_eq!(resolve(Some(0), Some(9)), span(0, Some(9)));
        assert_eq!(resolve(Some(0), Some(10)), span(0, None));
        assert_eq!(resolve(Some(0), Some(u64::MAX)), span(0, None));
        assert_eq!(resolve(None, Some(5)), Err(RangeError::Stop));
        assert_eq!(resolve(None, Some(6)), span(5, Some(6)));
        assert_eq!(resolve(Some(7), Some(6)), Err(RangeError::Stop));
        // Of a film that lasts no time.
        let resolve = |start_ns| {
            let range = Range {
                start_ns,
                ..Range::default()
            };
            range.resolve(0, 0, Scale::NORMAL)
        };
        assert_eq!(resolve(None), span(0, None));
        assert_eq!(resolve(Some(0)), span(0, None));
        assert_eq!(resolve(Some(1)), Err(RangeError::Start));
    }

    #[test]
    fn backwards_a_range_ends_before_it_starts() {
        let scale = Scale::nearest(-2.0);
        let resolve = |start_ns, stop_ns| {
            let range = Range {
                start_ns,
                stop_ns,
                is_now: false,
            };
            let span = range.resolve(5, 10, scale)?;
            assert_eq!(span.scale, scale);
            Ok((span.start_ns, span.stop_ns))
        };
        assert_eq!(resolve(None, None), Ok((5, None)));
        assert_eq!(resolve(Some(10), None), Ok((10, None)));
        assert_eq!(resolve(Some(11), None), Err(RangeError::Start));
        assert_eq!(resolve(Some(9), Some(3)), Ok((9, Some(3))));
        assert_eq!(resolve(Some(9), Some(0)), Ok((9, None)));
        assert_eq!(resolve(Some(9), Some(9)), Err(RangeError::Stop));
        assert_eq!(resolve(None, Some(6)), Err(RangeError::Stop));
    }

    proptest! {
        #[test]
        fn times_read_back(time_ns in any::<u64>()) {
            for time_ns in [time_ns, time_ns - time_ns % 1000] {
                let value = format!("npt={}-", npt(time_ns));
                prop_assert_eq!(Range::parse(&value).unwrap().start_ns, Some(time_ns));
            }
        }

        #[test]
        fn noise_never_panics(value in "(npt=)?(now|[0-9]{1,20}|:|\\.|-|\\PC){0,20}") {
            let _any: Result<Range, RangeError> = Range::parse(&value);
        }
    }
}
