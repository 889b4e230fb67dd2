//! Units, and how numbers are told in them.

/// What a number on an axis means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unit {
    /// A number of things; also whatever has no unit.
    Count,
    /// Bytes, told in KiB, MiB and GiB.
    Bytes,
    /// Nanoseconds, told in ns, us, ms and s.
    Nanoseconds,
    /// Bytes a second, told in kB/s, MB/s and GB/s.
    BytesPerSecond,
    /// Bits a second, told in kbit/s, Mbit/s and Gbit/s.
    BitsPerSecond,
    /// Parts of a hundred.
    Percent,
    /// Anything else; numbers are told without it, the axis' name with it.
    Named(&'static str),
}

impl Unit {
    /// The value with its unit, to three digits.
    #[must_use]
    pub fn tell(self, value: f64) -> String {
        let (times, names): (f64, &[&str]) = match self {
            Self::Count | Self::Named(_) => return thousands(value),
            Self::Percent => return format!("{} %", digits(value)),
            Self::Bytes => (1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
            Self::Nanoseconds => (1000.0, &["ns", "us", "ms", "s"]),
            Self::BytesPerSecond => (1000.0, &["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]),
            Self::BitsPerSecond => (1000.0, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]),
        };
        if value == 0.0 {
            return "0".to_owned();
        }
        let (mut value, mut names) = (value, names.iter());
        let mut name = names.next();
        while value.abs() >= times * 0.9995 && names.len() > 0 {
            (value, name) = (value / times, names.next());
        }
        format!("{} {}", digits(value), name.unwrap_or(&""))
    }
}

/// Three digits, or all of an integer.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 || v == 0.0 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 => 2,
        v if v >= 0.0095 => 3,
        _ => return format!("{value:.2e}"),
    };
    let told = format!("{value:.decimals$}");
    match told.contains('.') {
        true => told.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => told,
    }
}

/// As [`digits`], with a gap after the thousands where there are many.
fn thousands(value: f64) -> String {
    if !(9999.5..1e15).contains(&value.abs()) {
        return digits(value);
    }
    let plain = format!("{:.0}", value.abs());
    let mut told = String::from(if value < 0.0 { "-" } else { "" });
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            told.push('\u{202f}');
        }
        told.push(digit);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_in_the_unit_that_fits() {
        for (unit, value, told) in [
            (Unit::Bytes, 0.0, "0"),
            (Unit::Bytes, 100.0, "100 B"),
            (Unit::Bytes, 1472.0, "1.44 KiB"),
            (Unit::Bytes, 1_048_576.0, "1 MiB"),
            (Unit::Nanoseconds, 0.3, "0.3 ns"),
            (Unit::Nanoseconds, 999.6, "1 us"),
            (Unit::Nanoseconds, 12_340.0, "12.3 us"),
            (Unit::Nanoseconds, -2e9, "-2 s"),
            (Unit::Nanoseconds, 4e12, "4000 s"),
            (Unit::BytesPerSecond, 12_500_000_000.0, "12.5 GB/s"),
            (Unit::BitsPerSecond, 4e6, "4 Mbit/s"),
            (Unit::Percent, 33.333, "33.3 %"),
            (Unit::Count, 1500.0, "1500"),
            (Unit::Count, 1_234_567.0, "1\u{202f}234\u{202f}567"),
            (Unit::Count, -10_000.0, "-10\u{202f}000"),
            (Unit::Count, -100_000.0, "-100\u{202f}000"),
            (Unit::Named("ns/packet"), 0.001, "1.00e-3"),
            (Unit::Named("ns/packet"), 42.0, "42"),
        ] {
            assert_eq!(unit.tell(value), told, "{unit:?} {value}");
        }
    }
}
