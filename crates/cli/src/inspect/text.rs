//! Numbers and words as people read them.

use std::time::Duration;

/// A number with its noun, in the plural where it wants it.
pub(super) fn count(number: u64, noun: &str) -> String {
    let (first, rest) = noun.split_once(' ').unwrap_or((noun, ""));
    let is_byte = first == "byte" && !rest.is_empty();
    let plural = match number {
        1 => noun.to_owned(),
        _ if is_byte => format!("bytes {rest}"),
        _ if noun.ends_with("ss") => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{number} {plural}")
}

pub(super) fn percent(part: u64, whole: u64) -> String {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", thousandths / 10, thousandths % 10)
}

/// A time with three digits or so.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", digits(ns, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", digits(ns, 1_000_000)),
        1_000_000_000..60_000_000_000 => format!("{}s", digits(ns, 1_000_000_000)),
        _ => humantime::format_duration(Duration::from_secs(ns / 1_000_000_000))
            .to_string()
            .replace(' ', ""),
    }
}

/// `ns` in units of `unit`: with as many decimals as make three digits, none of them an idle zero.
fn digits(ns: u64, unit: u64) -> String {
    let hundredths = ns * 100 / unit;
    let text = match hundredths {
        0..1_000 => format!("{}.{:02}", hundredths / 100, hundredths % 100),
        1_000..10_000 => format!("{}.{}", hundredths / 100, hundredths / 10 % 10),
        _ => return format!("{}", hundredths / 100),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Text of a file on one line, without what could command a terminal, and cut where it is longer
/// than `chars_max`.
pub(super) fn shown(text: &str, chars_max: usize) -> String {
    let mut chars = text.chars().filter(|it| !it.is_control());
    let shown: String = chars.by_ref().take(chars_max).collect();
    match chars.next() {
        Some(_) => shown + "...",
        None => shown,
    }
}

/// Words in lines of at most 79 columns: the first begins with `head`, the others below its end.
pub(super) fn wrapped(head: &str, text: &str) -> String {
    let (mut lines, mut line) = (String::new(), head.to_owned());
    let mut is_empty = true;
    for word in text.split_whitespace() {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(head.chars().count());
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += word;
        is_empty = false;
    }
    lines + &line
}

/// Columns of a terminal, less one.
const COLUMNS_MAX: usize = 79;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_counts_read_well() {
        for (ns, text) in [
            (0, "0ns"),
            (37, "37ns"),
            (1_500, "1.5us"),
            (19_605_074, "19.6ms"),
            (20_000_000, "20ms"),
            (100_000_000, "100ms"),
            (924_000_000, "924ms"),
            (1_012_492_795, "1.01s"),
            (59_999_999_999, "59.9s"),
            (5_025_000_000_000, "1h23m45s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(count(1, "sync loss"), "1 sync loss");
        assert_eq!(count(2, "sync loss"), "2 sync losses");
        assert_eq!(count(2, "byte between packets"), "2 bytes between packets");
        assert_eq!(percent(1, 3), "33.3 %");
    }

    #[test]
    fn text_of_files_is_cut_and_commands_nothing() {
        assert_eq!(shown("a\x1b[2Jb\n", 9), "a[2Jb");
        assert_eq!(shown("äöüß", 4), "äöüß");
        assert_eq!(shown("äöüß", 3), "äöü...");
        let text = wrapped("problem  ", &"word ".repeat(20));
        let expected = format!(
            "problem  {}\n         {}",
            "word ".repeat(14).trim_end(),
            "word ".repeat(6).trim_end()
        );
        assert_eq!(text, expected);
        assert_eq!(
            wrapped("- ", &"x".repeat(99)),
            format!("- {}", "x".repeat(99))
        );
    }
}
