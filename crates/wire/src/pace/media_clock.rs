//! When what has a media time is due: a line between the clock that packets leave by and the time
//! of the media, which may pass faster or slower than that.

use std::fmt;

/// How fast media is delivered (RFC 2326, section 12.35): seconds of media for each second. What
/// is delivered is the same at every speed, timestamps included.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Speed {
    /// Between those of [`Self::SLOWEST`] and [`Self::FASTEST`].
    thousandths: u16,
}

impl Speed {
    /// As the media was recorded.
    pub const NORMAL: Self = Self { thousandths: 1000 };

    /// The least that is supported.
    pub const SLOWEST: Self = Self { thousandths: 500 };

    /// The most that is supported: half of what an engine can catch up with of one stream.
    pub const FASTEST: Self = Self { thousandths: 4000 };

    /// The supported one that is nearest to `value`, which are those of three decimals from
    /// [`Self::SLOWEST`] to [`Self::FASTEST`]. Of what is no number, [`Self::NORMAL`].
    #[must_use]
    pub fn nearest(value: f64) -> Self {
        if value.is_nan() {
            return Self::NORMAL;
        }
        let thousandths = value.clamp(0.0, 64.0) * 1000.0;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is between 0 and 64,000"
        )]
        Self::of_thousandths(thousandths.round() as u16)
    }

    /// The supported one that is nearest to so many thousandths.
    #[must_use]
    pub fn of_thousandths(thousandths: u16) -> Self {
        let (least, most) = (Self::SLOWEST.thousandths, Self::FASTEST.thousandths);
        Self {
            thousandths: thousandths.clamp(least, most),
        }
    }

    /// Thousandths of a second of media for each second.
    #[must_use]
    pub const fn thousandths(self) -> u16 {
        self.thousandths
    }

    /// Whether it is [`Self::NORMAL`].
    #[must_use]
    pub const fn is_normal(self) -> bool {
        self.thousandths == Self::NORMAL.thousandths
    }

    /// How much media passes in `time_ns`, rounded down.
    #[must_use]
    pub fn media_in(self, time_ns: i64) -> i64 {
        scaled(time_ns, self.thousandths, Self::NORMAL.thousandths)
    }

    /// How long it takes until so much media has passed, rounded down.
    #[must_use]
    pub fn time_of(self, media_ns: i64) -> i64 {
        scaled(media_ns, Self::NORMAL.thousandths, self.thousandths)
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::NORMAL
    }
}

impl fmt::Display for Speed {
    /// As the Speed header has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.thousandths / 1000, self.thousandths % 1000);
        match format!("{rest:03}").trim_end_matches('0') {
            "" => write!(f, "{whole}"),
            decimals => write!(f, "{whole}.{decimals}"),
        }
    }
}

/// `value * by / of`, rounded down. What is beyond all times is as far away as can be said.
fn scaled(value: i64, by: u16, of: u16) -> i64 {
    if by == of {
        return value;
    }
    let (by, of) = (i64::from(by), i64::from(of));
    let whole = value.div_euclid(of).saturating_mul(by);
    whole.saturating_add(value.rem_euclid(of) * by / of)
}

/// By when media is due. Times are in ns, before the media's beginning negative; the clock is any
/// that does not jump.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MediaClock {
    /// When media time 0 is due.
    epoch_ns: i64,
    speed: Speed,
}

impl MediaClock {
    /// One by which media time 0 is due at `epoch_ns`.
    #[must_use]
    pub const fn new(epoch_ns: i64, speed: Speed) -> Self {
        Self { epoch_ns, speed }
    }

    /// One by which `media_ns` is due at `at_ns`.
    #[must_use]
    pub fn through(at_ns: i64, media_ns: i64, speed: Speed) -> Self {
        let epoch_ns = at_ns.saturating_sub(speed.time_of(media_ns));
        Self { epoch_ns, speed }
    }

    /// When media time 0 is due.
    #[must_use]
    pub const fn epoch_ns(self) -> i64 {
        self.epoch_ns
    }

    /// How fast it goes.
    #[must_use]
    pub const fn speed(self) -> Speed {
        self.speed
    }

    /// When `media_ns` is due. It never falls where the media time rises.
    #[must_use]
    pub fn due_ns(self, media_ns: u64) -> i64 {
        let media_ns = i64::try_from(media_ns).unwrap_or(i64::MAX);
        self.epoch_ns.saturating_add(self.speed.time_of(media_ns))
    }

    /// What media time is due at a moment.
    #[must_use]
    pub fn media_ns(self, at_ns: i64) -> i64 {
        self.speed.media_in(at_ns.saturating_sub(self.epoch_ns))
    }

    /// The same, all being due so much later.
    #[must_use]
    pub fn later(self, by_ns: i64) -> Self {
        Self {
            epoch_ns: self.epoch_ns.saturating_add(by_ns),
            ..self
        }
    }

    /// One that shows the same at that moment, but for what is lost by rounding, and goes on at
    /// another speed.
    #[must_use]
    pub fn turned(self, at_ns: i64, speed: Speed) -> Self {
        Self::through(at_ns, self.media_ns(at_ns), speed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Times of this size are not clamped at any speed.
    const FAR_NS: i64 = i64::MAX / 16;

    fn speeds() -> impl Strategy<Value = Speed> {
        prop_oneof![
            Just(Speed::NORMAL),
            (500_u16..=4000).prop_map(Speed::of_thousandths),
        ]
    }

    #[test]
    fn the_nearest_speed_is_chosen_and_said() {
        for (value, expected) in [
            (1.0, "1"),
            (0.0, "0.5"),
            (-7.0, "0.5"),
            (0.4999, "0.5"),
            (0.5, "0.5"),
            (0.75, "0.75"),
            (1.0004, "1"),
            (1.0006, "1.001"),
            (1.5, "1.5"),
            (2.125, "2.125"),
            (4.0, "4"),
            (4.001, "4"),
            (65.536, "4"),
            (1e300, "4"),
            (f64::INFINITY, "4"),
            (f64::NAN, "1"),
        ] {
            assert_eq!(Speed::nearest(value).to_string(), expected, "{value}");
        }
        for thousandths in 500..=4000 {
            let speed = Speed::of_thousandths(thousandths);
            let said = speed.to_string().parse().unwrap();
            assert_eq!(Speed::nearest(said), speed);
        }
    }

    #[test]
    fn at_twice_the_speed_media_is_due_in_half_the_time() {
        let clock = MediaClock::through(10_000, 2_000, Speed::nearest(2.0));
        assert_eq!((clock.due_ns(2_000), clock.due_ns(4_000)), (10_000, 11_000));
        assert_eq!((clock.due_ns(0), clock.epoch_ns()), (9_000, 9_000));
        assert_eq!(
            (clock.media_ns(10_500), clock.media_ns(8_000)),
            (3_000, -2_000)
        );
        assert_eq!(clock.later(100).due_ns(4_000), 11_100);
        let slow = clock.turned(11_000, Speed::SLOWEST);
        assert_eq!((slow.media_ns(11_000), slow.due_ns(5_000)), (4_000, 13_000));
    }

    proptest! {
        #[test]
        fn what_is_due_comes_back(
            epoch_ns in -FAR_NS..FAR_NS, media_ns in 0..FAR_NS, speed in speeds(),
        ) {
            let clock = MediaClock::new(epoch_ns, speed);
            let due_ns = clock.due_ns(media_ns.unsigned_abs());
            let back_ns = clock.media_ns(due_ns);
            prop_assert!(back_ns <= media_ns && media_ns - back_ns <= 4, "{back_ns}");
            prop_assert!(clock.media_ns(due_ns + 1) >= media_ns - 4);
            prop_assert!(clock.due_ns(media_ns.unsigned_abs() + 1) >= due_ns);
        }

        #[test]
        fn a_change_of_speed_makes_no_step(
            epoch_ns in -FAR_NS..FAR_NS, after_ns in 0..FAR_NS / 4,
            before in speeds(), speed in speeds(), step_ns in 0..1_000_000_000_i64,
        ) {
            let (before, at_ns) = (MediaClock::new(epoch_ns, before), epoch_ns + after_ns);
            let after = before.turned(at_ns, speed);
            let (was_ns, is_ns) = (before.media_ns(at_ns), after.media_ns(at_ns));
            prop_assert!(is_ns <= was_ns && was_ns - is_ns <= 4, "{was_ns} {is_ns}");
            // From there on as much passes as the speed says.
            let passed_ns = after.media_ns(at_ns + step_ns) - is_ns;
            prop_assert!(passed_ns.abs_diff(speed.media_in(step_ns)) <= 1);
            // What was due is due, and what was not is not.
            let was_ns = was_ns.unsigned_abs();
            prop_assert!(after.due_ns(was_ns) <= at_ns + 2);
            prop_assert!(after.due_ns(was_ns + 8) > at_ns);
        }

        #[test]
        fn at_normal_speed_nothing_is_rounded(
            epoch_ns in -FAR_NS..FAR_NS, media_ns in 0..FAR_NS,
        ) {
            let clock = MediaClock::new(epoch_ns, Speed::NORMAL);
            prop_assert_eq!(clock.due_ns(media_ns.unsigned_abs()), epoch_ns + media_ns);
            prop_assert_eq!(clock.media_ns(epoch_ns + media_ns), media_ns);
        }

        #[test]
        fn nothing_overflows(
            epoch_ns in any::<i64>(), media_ns in any::<u64>(), at_ns in any::<i64>(),
            speed in speeds(), other in speeds(),
        ) {
            let clock = MediaClock::new(epoch_ns, speed);
            let turned = clock.turned(at_ns, other).later(at_ns);
            let _any = (turned.due_ns(media_ns), turned.media_ns(epoch_ns));
            let _any = MediaClock::through(at_ns, epoch_ns, speed);
        }
    }
}
