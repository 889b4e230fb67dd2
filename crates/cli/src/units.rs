//! Sizes, rates and times with their units, as people write and read them.
//!
//! A number without a unit is refused: nobody has to know whether a size was meant in bytes or in
//! mebibytes. What is printed can be typed again.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An amount of memory or data, in bytes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Size(pub u64);

/// A data rate, in bits a second.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Rate(pub u64);

/// A length of time.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time(pub Duration);

impl Time {
    /// In nanoseconds; as many as there are, if it is longer than five centuries.
    pub fn nanos(&self) -> u64 {
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The largest unit comes last. Those after the gap are read but not printed.
struct Scale {
    printed: &'static [(&'static str, u64)],
    also_read: &'static [(&'static str, u64)],
    example: &'static str,
}

const SIZES: Scale = Scale {
    printed: &[
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ],
    also_read: &[("kB", 1000), ("MB", 1_000_000), ("GB", 1_000_000_000)],
    example: "512MiB",
};

const RATES: Scale = Scale {
    printed: &[
        ("bit/s", 1),
        ("kbit/s", 1000),
        ("Mbit/s", 1_000_000),
        ("Gbit/s", 1_000_000_000),
    ],
    also_read: &[],
    example: "4Mbit/s",
};

impl Scale {
    /// Reads `12`, `1.5` and so on, followed by one of the units in any case.
    fn read(&self, text: &str) -> Result<u64, String> {
        let text = text.trim();
        let end = text
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len());
        let (number, unit) = (&text[..end], text[end..].trim_start());
        let mut units = self.printed.iter().chain(self.also_read);
        let factor = units
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|&(_, f)| f);
        let Some(factor) = factor.filter(|_| !number.is_empty()) else {
            return Err(format!(
                "write a number and a unit ({}), as in {}",
                self, self.example
            ));
        };
        scaled(number, factor).ok_or_else(|| format!("{number} is not a number in range"))
    }

    fn print(&self, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, factor): &&(&str, u64)| value >= factor;
        let &(unit, factor) = self
            .printed
            .iter()
            .rev()
            .find(fits)
            .unwrap_or(&self.printed[0]);
        let tenths = u128::from(value) * 10 / u128::from(factor);
        match (value % factor, tenths % 10) {
            (0, _) => f.pad(&format!("{}{unit}", value / factor)),
            (_, tenth) => f.pad(&format!("{}.{tenth}{unit}", tenths / 10)),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self
            .printed
            .iter()
            .chain(self.also_read)
            .map(|(name, _)| *name);
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

/// `number`, which may have a decimal point, times `factor`, cut to an integer.
fn scaled(number: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = u32::try_from(fraction.len())
        .ok()
        .filter(|digits| (1..=18).contains(digits))?;
    let factor = u128::from(factor);
    let whole = whole.parse::<u64>().ok()?;
    let fraction = fraction.parse::<u64>().ok()?;
    let part = u128::from(fraction) * factor / 10_u128.pow(digits);
    u64::try_from(u128::from(whole) * factor + part).ok()
}

impl FromStr for Size {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        SIZES.read(text).map(Self)
    }
}

impl FromStr for Rate {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        RATES.read(text).map(Self)
    }
}

impl FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |error| format!("{error}; write a number and a unit (ms, s, min, h), as in 20ms");
        humantime::parse_duration(text).map(Self).map_err(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SIZES.print(self.0, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        RATES.print(self.0, f)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(
            &humantime::format_duration(self.0)
                .to_string()
                .replace(' ', ""),
        )
    }
}

/// A parser for values from `min` to `max`, which says so when a value is outside.
pub fn within<T>(min: T, max: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: Copy + PartialOrd + fmt::Display + FromStr<Err: fmt::Display>,
{
    move |text| {
        let value: T = text.parse().map_err(|error| format!("{error}"))?;
        match min <= value && value <= max {
            true => Ok(value),
            false => Err(format!("allowed is {min} to {max}")),
        }
    }
}

/// `0-3,8` for `[0, 1, 2, 3, 8]`.
pub fn ranges(sorted: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in sorted {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let written = runs.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    written.collect::<Vec<_>>().join(",")
}

/// A part of a whole in thousandths, written in percent with a decimal at the most.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Percent(pub u64);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (whole, tenths) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_number = digits(whole) && digits(tenths) && !whole.is_empty() && tenths.len() == 1;
        let permille = format!("{whole}{tenths}").parse().ok();
        permille
            .filter(|&permille| is_number && permille <= 1000)
            .map(Self)
            .ok_or_else(|| "allowed is 0 to 100, with a decimal at the most".to_owned())
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, tenths) => write!(f, "{whole}.{tenths}"),
        }
    }
}

/// Breaks `text` so that no line of a page is wider than 79 columns; later lines begin at `column`.
#[must_use]
pub fn indented(text: &str, column: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("begins with one line");
        if line.is_empty() {
            line.push_str(word);
        } else if column + line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines.join(&format!("\n{:column$}", ""))
}

const COLUMNS: usize = 79;

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<u64, String> {
        text.parse().map(|Size(bytes)| bytes)
    }

    #[test]
    fn sizes_take_both_kinds_of_unit() {
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("1 gib"), Ok(1 << 30));
        assert_eq!(size("1GB"), Ok(1_000_000_000));
        assert_eq!(size("1.5KiB"), Ok(1536));
        assert_eq!(size("0.001MB"), Ok(1000));
        assert_eq!(size("188B"), Ok(188));
        assert_eq!(size("16777215TiB"), Ok(16_777_215 << 40));
    }

    #[test]
    fn sizes_without_sense_are_refused_with_what_is_allowed() {
        for text in [
            "", "1024", "GiB", "-1GiB", "1GiBit", "1 000B", ".5GiB", "5.GiB", "1..2GiB",
        ] {
            assert!(size(text).is_err(), "{text}");
        }
        assert!(size("1024").unwrap_err().contains("B, KiB, MiB, GiB, TiB"));
        assert!(
            size("16777216TiB").unwrap_err().contains("range"),
            "2^64 does not fit"
        );
        assert!(size("99999999999999999999B").is_err());
    }

    #[test]
    fn what_is_printed_reads_the_same() {
        for bytes in [0, 1, 1023, 1024, 1536, 16 << 10, 1 << 20, 1 << 30, 3 << 40] {
            assert_eq!(size(&Size(bytes).to_string()), Ok(bytes), "{}", Size(bytes));
        }
        for text in ["4Mbit/s", "1.5Mbit/s", "64kbit/s", "10Gbit/s", "300bit/s"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["20ms", "1m30s", "1s", "1h"] {
            assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
        }
        assert_eq!(Size(3_001_420).to_string(), "2.8MiB");
        assert_eq!(Size(u64::MAX).to_string(), "16777215.9TiB");
    }

    #[test]
    fn times_need_a_unit() {
        assert!("20".parse::<Time>().unwrap_err().contains("as in 20ms"));
        assert_eq!("60s".parse(), Ok(Time(Duration::from_secs(60))));
    }

    #[test]
    fn the_bounds_are_within_and_one_more_is_not() {
        let burst = within(Time(Duration::from_millis(1)), Time(Duration::from_secs(1)));
        assert!(burst("1ms").is_ok() && burst("1s").is_ok());
        assert_eq!(burst("999us").unwrap_err(), "allowed is 1ms to 1s");
        assert!(burst("1001ms").is_err());
    }

    #[test]
    fn processors_are_written_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(ranges(&[]), "");
    }

    #[test]
    fn long_rows_are_broken_before_the_last_column() {
        let text = "word ".repeat(40);
        let page = format!("{:10}{}", "", indented(&text, 10));
        assert!(page.lines().all(|line| line.len() <= COLUMNS), "{page}");
        assert_eq!(page.split_whitespace().count(), 40);
    }
}
