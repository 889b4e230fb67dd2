//! Days and times of day, in UTC: what logs, folder listings and FTP write instead of seconds since
//! 1970.

/// The last second of the year 9999, the last that HTTP and FTP can write.
const LAST_SECOND: i64 = 253_402_300_799;

/// A second in UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Utc {
    /// The year, four digits.
    pub year: u16,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59; Unix time knows no leap seconds.
    pub second: u8,
}

impl Utc {
    /// The second that begins `seconds` after 1970 did. What lies before 1970 or behind the year
    /// 9999 is moved to that end: a file may carry any time, and those who write four digits write
    /// four.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "each is within the bounds that its field names"
    )]
    pub const fn at(seconds: i64) -> Self {
        let seconds = clamped(seconds);
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // The years begin in March, so that the odd day comes last: 400 of them are 146,097 days.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 {
            month_from_march + 3
        } else {
            month_from_march - 9
        };
        let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
        Self {
            year: year as u16,
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }

    /// Seconds from the beginning of 1970 to that of this one; `None` if there was no such day or
    /// time, or it was before.
    #[must_use]
    pub fn seconds(self) -> Option<i64> {
        let (year, month, day) = (
            i64::from(self.year),
            i64::from(self.month),
            i64::from(self.day),
        );
        let year = if month <= 2 { year - 1 } else { year };
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
        let days = 365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468;
        let time = i64::from(self.hour) * 3600 + i64::from(self.minute) * 60;
        let seconds = days * 86_400 + time + i64::from(self.second);
        // What is no date is another one's second.
        (Self::at(seconds) == self).then_some(seconds)
    }

    /// The month's English name, three letters.
    #[must_use]
    pub fn month_name(self) -> &'static str {
        MONTHS
            .get(usize::from(self.month).wrapping_sub(1))
            .unwrap_or(&"???")
    }
}

/// `seconds` since 1970, moved into 1970 to 9999.
#[must_use]
pub const fn clamped(seconds: i64) -> i64 {
    if seconds < 0 {
        0
    } else if seconds > LAST_SECOND {
        LAST_SECOND
    } else {
        seconds
    }
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    fn http(seconds: u64) -> String {
        httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn both_ends_hold() {
        let written = |at: Utc| {
            let Utc {
                year,
                month,
                day,
                hour,
                minute,
                second,
            } = at;
            format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
        };
        for (seconds, expected) in [
            (i64::MIN, "19700101000000"),
            (-1, "19700101000000"),
            (951_782_400, "20000229000000"),
            (1_709_251_199, "20240229235959"),
            (LAST_SECOND, "99991231235959"),
            (i64::MAX, "99991231235959"),
        ] {
            assert_eq!(written(Utc::at(seconds)), expected);
        }
    }

    proptest! {
        /// Another's arithmetic finds the same day.
        #[test]
        fn days_are_those_of_http(seconds in 0..LAST_SECOND) {
            let at = Utc::at(seconds);
            let expected = format!(
                "{:02} {} {:04} {:02}:{:02}:{:02} GMT",
                at.day, at.month_name(), at.year, at.hour, at.minute, at.second
            );
            prop_assert_eq!(&http(seconds.cast_unsigned())[5..], expected);
            prop_assert_eq!(at.seconds(), Some(seconds));
        }

        #[test]
        fn what_is_no_date_has_no_second(
            date in (any::<u16>(), any::<u8>(), any::<u8>()),
            time in (any::<u8>(), any::<u8>(), any::<u8>()),
        ) {
            let at = Utc {
                year: date.0,
                month: date.1,
                day: date.2,
                hour: time.0,
                minute: time.1,
                second: time.2,
            };
            prop_assert_eq!(at.seconds().map(Utc::at).unwrap_or(at), at);
        }
    }
}
