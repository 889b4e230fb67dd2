//! How fast, and in which direction, media time passes while a track is played (RFC 2326, section
//! 12.34), and what that makes of times.

/// How far apart sync samples are due at the least at another scale than 1: those that come sooner
/// are left out, so that a film of which every picture is one, and weighs as much, does not take
/// sixteen times its rate. A file whose times run backwards cannot make due times do so, either.
pub(super) const TRICK_STEP_NS: u64 = 40_000_000;

/// A supported value of the Scale header: 1, or by sync samples alone 2, 4, 8 or 16, or backwards.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Scale(i8);

impl Scale {
    /// As it was recorded: every sample, at its time.
    pub const NORMAL: Self = Self(1);

    /// All that are supported, [`Self::NORMAL`] first.
    pub const ALL: [Self; 10] = [
        Self::NORMAL,
        Self(2),
        Self(4),
        Self(8),
        Self(16),
        Self(-1),
        Self(-2),
        Self(-4),
        Self(-8),
        Self(-16),
    ];

    /// The supported one that is nearest to `value`; of two that are equally near, the first in
    /// [`Self::ALL`]. Of what is no number, [`Self::NORMAL`].
    #[must_use]
    pub fn nearest(value: f64) -> Self {
        // Far away all are equally near.
        let value = value.clamp(-16.0, 16.0);
        let apart = |scale: &Self| (f64::from(scale.0) - value).abs();
        let nearer = |best: Self, scale: Self| match apart(&scale) < apart(&best) {
            true => scale,
            false => best,
        };
        Self::ALL.into_iter().fold(Self::NORMAL, nearer)
    }

    /// The value of the Scale header: seconds of media for each second of playing.
    #[must_use]
    pub const fn value(self) -> i8 {
        self.0
    }

    /// Whether it is [`Self::NORMAL`].
    #[must_use]
    pub const fn is_normal(self) -> bool {
        self.0 == 1
    }

    /// Whether media time passes backwards.
    #[must_use]
    pub const fn is_reverse(self) -> bool {
        self.0 < 0
    }

    fn factor(self) -> u64 {
        self.0.unsigned_abs().into()
    }
}

/// When what is due in a plan, by the time of the media: at [`Scale::NORMAL`] the two are the same.
/// At others due times are those of the media divided by the scale, and backwards they are counted
/// from the end of the media, so that one plan serves all who play at that scale, wherever they
/// begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeline {
    scale: Scale,
    /// From the beginning of the media to its end. Of no meaning forwards.
    duration_ns: u64,
}

impl Timeline {
    /// That of a plan as it was recorded.
    pub const NORMAL: Self = Self {
        scale: Scale::NORMAL,
        duration_ns: 0,
    };

    pub(super) const fn new(scale: Scale, duration_ns: u64) -> Self {
        Self { scale, duration_ns }
    }

    /// The scale.
    #[must_use]
    pub const fn scale(self) -> Scale {
        self.scale
    }

    /// When what has that media time is due. It rises with the media time, or falls backwards.
    #[must_use]
    pub fn due_ns(self, media_ns: u64) -> u64 {
        let since_ns = match self.scale.is_reverse() {
            true => self.duration_ns.saturating_sub(media_ns),
            false => media_ns,
        };
        since_ns / self.scale.factor()
    }

    /// The latest media time that is due at `due_ns`: by rounding several are.
    #[must_use]
    pub fn media_ns(self, due_ns: u64) -> u64 {
        let since_ns = due_ns.saturating_mul(self.scale.factor());
        match self.scale.is_reverse() {
            true => self.duration_ns.saturating_sub(since_ns),
            false => since_ns.saturating_add(self.scale.factor() - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_scale_is_chosen() {
        for (value, expected) in [
            (1.0, 1),
            (0.0, 1),
            (0.5, 1),
            (-0.3, -1),
            (1.5, 1),
            (1.6, 2),
            (3.0, 2),
            (3.1, 4),
            (100.0, 16),
            (1e300, 16),
            (-1.0, -1),
            (-3.5, -4),
            (-1e9, -16),
            (f64::NAN, 1),
        ] {
            assert_eq!(Scale::nearest(value).value(), expected, "{value}");
        }
        for scale in Scale::ALL {
            assert_eq!(Scale::nearest(scale.value().into()), scale);
        }
    }

    proptest! {
        #[test]
        fn media_times_come_back_from_due_times(
            scale in prop::sample::select(Scale::ALL.to_vec()),
            times in (0..u64::MAX / 4, 0..u64::MAX / 4),
        ) {
            let (media_ns, duration_ns) = (times.0.min(times.1), times.0.max(times.1));
            let timeline = Timeline::new(scale, duration_ns);
            let due_ns = timeline.due_ns(media_ns);
            let back_ns = timeline.media_ns(due_ns);
            prop_assert!(back_ns >= media_ns && back_ns - media_ns < 16);
            prop_assert_eq!(timeline.due_ns(back_ns), due_ns);
            // Beyond its ends nothing overflows.
            let ends_ns = [timeline.media_ns(u64::MAX), timeline.due_ns(u64::MAX)];
            prop_assert!(ends_ns.iter().all(|&end_ns| end_ns == 0 || end_ns >= u64::MAX / 16));
        }
    }
}
