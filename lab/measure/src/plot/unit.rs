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
        let scales: &[(f64, &str)] = match self {
            Self::Count | Self::Named(_) => return thousands(value),
            Self::Percent => return format!("{} %", digits(value)),
            Self::Bytes => &[
                (1.0, "B"),
                (1024.0, "KiB"),
                (1_048_576.0, "MiB"),
                (1_073_741_824.0, "GiB"),
                (1_099_511_627_776.0, "TiB"),
            ],
            Self::Nanoseconds => &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")],
            Self::BytesPerSecond => &[
                (1.0, "B/s"),
                (1e3, "kB/s"),
                (1e6, "MB/s"),
                (1e9, "GB/s"),
                (1e12, "TB/s"),
            ],
            Self::BitsPerSecond => &[
                (1.0, "bit/s"),
                (1e3, "kbit/s"),
                (1e6, "Mbit/s"),
                (1e9, "Gbit/s"),
                (1e12, "Tbit/s"),
            ],
        };
        if value == 0.0 {
            return "0".to_owned();
        }
        let fits = |&&(factor, _): &&(f64, &str)| value.abs() >= factor * 0.9995;
        let &(factor, name) = scales.iter().rev().find(fits).unwrap_or(&scales[0]);
        format!("{} {name}", digits(value / factor))
    }

    /// What the name of an axis has in brackets; empty where each number tells its unit.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Named(name) => name,
            _ => "",
        }
    }

    /// Whether people count it in powers of two.
    pub(super) fn is_binary(self) -> bool {
        self == Self::Bytes
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
    let mut told = String::new();
    for (i, digit) in plain.chars().enumerate() {
        if i > 0 && (plain.len() - i).is_multiple_of(3) {
            told.push('\u{202f}');
        }
        told.push(digit);
    }
    match value < 0.0 {
        true => format!("-{told}"),
        false => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_told_to_three_digits_in_the_unit_that_fits() {
        for (unit, value, told) in [
            (Unit::Bytes, 0.0, "0"),
            (Unit::Bytes, 100.0, "100 B"),
            (Unit::Bytes, 1472.0, "1.44 KiB"),
            (Unit::Bytes, 1_048_576.0, "1 MiB"),
            (Unit::Nanoseconds, 0.3, "0.3 ns"),
            (Unit::Nanoseconds, 999.6, "1 us"),
            (Unit::Nanoseconds, 12_340.0, "12.3 us"),
            (Unit::Nanoseconds, -2e9, "-2 s"),
            (Unit::BytesPerSecond, 12_500_000_000.0, "12.5 GB/s"),
            (Unit::BitsPerSecond, 4e6, "4 Mbit/s"),
            (Unit::Percent, 33.333, "33.3 %"),
            (Unit::Count, 1500.0, "1500"),
            (Unit::Count, 1_234_567.0, "1\u{202f}234\u{202f}567"),
            (Unit::Count, -10_000.0, "-10\u{202f}000"),
            (Unit::Named("ns/packet"), 0.001, "1.00e-3"),
            (Unit::Named("ns/packet"), 42.0, "42"),
        ] {
            assert_eq!(unit.tell(value), told, "{unit:?} {value}");
        }
    }
}
