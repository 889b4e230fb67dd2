//! Byte ranges (RFC 9110, section 14): which parts of a file a request asks for.

use std::ops::Range;

/// Ranges in one request. A request with more gets the whole file, as the RFC allows: many small
/// parts cost more than they save.
pub const RANGES_MAX: usize = 64;

/// Parts that are closer than this are sent as one: the head of a part is longer.
const GAP_BYTES: u64 = 80;

/// What a Range field asks for of a file of known length.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ranges {
    /// All of it: there is no range that is understood.
    Whole,
    /// These parts, at least one, none touching another, in the order asked for.
    Parts(Vec<Range<u64>>),
    /// Nothing that the file has.
    Unsatisfiable,
}

impl Ranges {
    /// Understands the value of a Range field for a file of `file_bytes`.
    #[must_use]
    pub fn parse(value: &str, file_bytes: u64) -> Self {
        let Some((unit, specs)) = value.split_once('=') else {
            return Self::Whole;
        };
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return Self::Whole;
        }
        let specs = specs.split(',').map(|spec| spec.trim_matches([' ', '\t']));
        // A list may have empty elements (RFC 9110, section 5.6.1).
        let specs: Vec<_> = specs.filter(|spec| !spec.is_empty()).collect();
        if specs.is_empty() || specs.len() > RANGES_MAX {
            return Self::Whole;
        }
        let mut parts = Vec::new();
        for spec in specs {
            match part(spec, file_bytes) {
                Some(part) if part.is_empty() => {}
                Some(part) => join(&mut parts, part),
                None => return Self::Whole,
            }
        }
        match parts.is_empty() {
            true => Self::Unsatisfiable,
            false => Self::Parts(parts),
        }
    }
}

/// One range, empty if the file has nothing of it; `None` if it is none.
fn part(spec: &str, file_bytes: u64) -> Option<Range<u64>> {
    let (first, last) = spec.split_once('-')?;
    if first.is_empty() {
        let bytes = number(last)?.min(file_bytes);
        return Some(file_bytes - bytes..file_bytes);
    }
    let first = number(first)?;
    let last = match last {
        "" => u64::MAX,
        last => number(last)?,
    };
    if last < first {
        return None;
    }
    let end = last.saturating_add(1).min(file_bytes);
    Some(first.min(end)..end)
}

/// Adds a part, as one with all those that it touches, in the place of the first of them.
fn join(parts: &mut Vec<Range<u64>>, part: Range<u64>) {
    let (mut joined, mut place) = (part, parts.len());
    let near = |a: &Range<u64>, b: &Range<u64>| {
        a.start <= b.end.saturating_add(GAP_BYTES) && b.start <= a.end.saturating_add(GAP_BYTES)
    };
    while let Some(at) = parts.iter().position(|other| near(other, &joined)) {
        let other = parts.remove(at);
        joined = joined.start.min(other.start)..joined.end.max(other.end);
        place = place.min(at);
    }
    parts.insert(place.min(parts.len()), joined);
}

/// Digits only. A number beyond all files is the largest there is.
fn number(digits: &str) -> Option<u64> {
    let sound = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    sound.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
#[allow(
    clippy::single_range_in_vec_init,
    reason = "lists of one part are meant"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(value: &str) -> Vec<Range<u64>> {
        match Ranges::parse(value, 10_000) {
            Ranges::Parts(parts) => parts,
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn one_range_is_the_bytes_it_names() {
        assert_eq!(parts("bytes=0-499"), [0..500]);
        assert_eq!(parts("bytes=9500-"), [9500..10_000]);
        assert_eq!(parts("bytes=-500"), [9500..10_000]);
        assert_eq!(parts("Bytes=-99999"), [0..10_000]);
        assert_eq!(parts("bytes=0-99999999999999999999999"), [0..10_000]);
        assert_eq!(parts("bytes=9999-9999"), [9999..10_000]);
        assert_eq!(parts("bytes=0-0, , "), [0..1]);
    }

    #[test]
    fn several_ranges_keep_their_order_and_those_that_touch_are_one() {
        assert_eq!(
            parts("bytes=5000-5009,0-9,-10"),
            [5000..5010, 0..10, 9990..10_000]
        );
        assert_eq!(parts("bytes=0-9,10-19,15-30"), [0..31]);
        // As far apart as a part's head is long, and one byte more.
        assert_eq!(parts("bytes=0-9,90-99"), [0..100]);
        assert_eq!(parts("bytes=0-9,91-99"), [0..10, 91..100]);
        // The last joins the first two.
        assert_eq!(
            parts("bytes=0-9,5000-5009,200-209,5-205"),
            [0..210, 5000..5010]
        );
        assert_eq!(parts("bytes=0-9,20000-"), [0..10]);
    }

    #[test]
    fn what_the_file_does_not_have_is_unsatisfiable() {
        for value in [
            "bytes=10000-",
            "bytes=10000-10001",
            "bytes=-0",
            "bytes=20000-,10000-",
        ] {
            assert_eq!(
                Ranges::parse(value, 10_000),
                Ranges::Unsatisfiable,
                "{value}"
            );
        }
        for value in ["bytes=0-", "bytes=-1"] {
            assert_eq!(Ranges::parse(value, 0), Ranges::Unsatisfiable, "{value}");
        }
    }

    #[test]
    fn what_is_no_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=5-4",
            "bytes=0-1,x",
            "items=0-1",
            "bytes=0",
            "bytes=+1-2",
            "bytes=1 - 2",
            "bytes=--1",
        ] {
            assert_eq!(Ranges::parse(value, 10_000), Ranges::Whole, "{value}");
        }
    }

    #[test]
    fn so_many_ranges_and_no_more() {
        let many = |count: usize| {
            let list: Vec<_> = (0..count).map(|i| format!("{0}-{0}", i * 100)).collect();
            Ranges::parse(&format!("bytes={}", list.join(",")), 10_000)
        };
        assert!(matches!(many(RANGES_MAX), Ranges::Parts(parts) if parts.len() == RANGES_MAX));
        assert_eq!(many(RANGES_MAX + 1), Ranges::Whole);
    }

    proptest! {
        #[test]
        fn parts_hold_exactly_what_was_asked_for_or_gaps(
            asked in prop::collection::vec((0_u64..3000, 0_u64..300), 1..RANGES_MAX),
                file_bytes in 0_u64..3000,
        ) {
            let list: Vec<_> = asked.iter().map(|(a, n)| format!("{a}-{}", a + n)).collect();
            let ranges = Ranges::parse(&format!("bytes={}", list.join(",")), file_bytes);
            let parts = match ranges {
                Ranges::Parts(parts) => parts,
                other => {
                    prop_assert_eq!(other, Ranges::Unsatisfiable);
                    Vec::new()
                }
            };
            let has = |at: u64| parts.iter().filter(|part| part.contains(&at)).count();
            for at in 0..file_bytes {
                let is_asked = asked.iter().any(|(a, n)| (*a..=a + n).contains(&at));
                prop_assert!(has(at) <= 1);
                prop_assert!(!is_asked || has(at) == 1, "{at} is missing");
            }
            prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= file_bytes));
        }

        #[test]
        fn noise_never_panics(value in "\\PC{0,60}", file_bytes in any::<u64>()) {
            let _any = Ranges::parse(&value, file_bytes);
        }
    }
}
