//! Patterns of paths.
//!
//! A pattern is a path in which `*` stands for any characters of one part, `?` for one of them, and
//! a part `**` for any number of parts, none included. Matching takes at most pattern times path
//! steps, whatever they are: of each kind of star only the last one that was passed is tried again.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Bytes of a pattern.
pub const PATTERN_BYTES_MAX: usize = 1024;

/// Which paths are meant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pattern {
    /// Without slashes; none is empty.
    parts: Vec<String>,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum PatternError {
    /// It is too long.
    #[error("a pattern has at most {PATTERN_BYTES_MAX} bytes")]
    TooLong,
    /// A part of it can match nothing.
    #[error("no path has a part \"..\" or \".\", or \"**\" with something beside it")]
    Part,
}

impl Pattern {
    /// Whether it means this path: parts with `/` between them, as [`from_bytes`] has names, and
    /// empty for the root.
    ///
    /// [`from_bytes`]: crate::name::from_bytes
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let any = |part: &String| part == ANY_PARTS;
        wild(&self.parts, &path, any, |pattern, part| {
            // Some names are long.
            let pattern: Vec<char> = pattern.chars().collect();
            let part: Vec<char> = part.chars().collect();
            wild(&pattern, &part, |&c| c == '*', |&p, &c| p == '?' || p == c)
        })
    }
}

/// Matches `items` against a pattern, where `any` says which of its elements stand for any number
/// of items, and `is` whether another element stands for an item.
fn wild<P, T>(
    pattern: &[P],
    items: &[T],
    any: impl Fn(&P) -> bool,
    is: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut at, mut item) = (0, 0);
    // Behind the last star, and the first item that it may give to what follows.
    let mut last_star = None;
    while item < items.len() {
        if pattern.get(at).is_some_and(&any) {
            at += 1;
            last_star = Some((at, item));
        } else if pattern.get(at).is_some_and(|p| is(p, &items[item])) {
            at += 1;
            item += 1;
        } else if let Some((behind, given)) = last_star {
            last_star = Some((behind, given + 1));
            (at, item) = (behind, given + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(any)
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.parts.join("/"))
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong);
        }
        let parts = text.split('/').filter(|part| !part.is_empty());
        let parts: Vec<_> = parts.map(str::to_owned).collect();
        let is_lost = |part: &String| {
            [".", ".."].contains(&&**part) || part.contains(ANY_PARTS) && part != ANY_PARTS
        };
        match parts.iter().any(is_lost) {
            true => Err(PatternError::Part),
            false => Ok(Self { parts }),
        }
    }
}

const ANY_PARTS: &str = "**";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> Pattern {
        text.parse().unwrap()
    }

    #[test]
    fn stars_stand_for_parts_and_for_characters() {
        for (text, yes, no) in [
            ("/**", &["", "a", "a/b/c"][..], &[][..]),
            ("/", &[""], &["a"]),
            ("*", &["a", "film.mp4"], &["", "a/b"]),
            (
                "kids/**",
                &["kids", "kids/a", "kids/a/b"],
                &["kid", "kids2/a", "a/kids"],
            ),
            (
                "/kids/*.mp4",
                &["kids/a.mp4", "kids/.mp4"],
                &["kids/a.ts", "kids/a/b.mp4"],
            ),
            (
                "**/a/**/z",
                &["a/z", "x/a/y/z", "a/a/z/z"],
                &["a", "z/a", "a/z/y"],
            ),
            (
                "live/?amera",
                &["live/camera"],
                &["live/amera", "live/xcamera"],
            ),
            ("a*b*c", &["abc", "aXbXbXc"], &["ab", "acb", "abcX"]),
            ("ü?", &["üé"], &["ü", "\u{fc}\u{e9}x"]),
        ] {
            for path in yes {
                assert!(pattern(text).matches(path), "{text} {path}");
            }
            for path in no {
                assert!(!pattern(text).matches(path), "{text} {path}");
            }
        }
    }

    #[test]
    fn patterns_have_their_bound_and_form() {
        let long = |bytes| "x".repeat(bytes).parse::<Pattern>();
        assert!(long(PATTERN_BYTES_MAX).is_ok());
        assert_eq!(long(PATTERN_BYTES_MAX + 1), Err(PatternError::TooLong));
        for text in ["..", "a/../b", "./a", "a**", "**a", "***"] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError::Part), "{text}");
        }
        assert_eq!(pattern("a//b/").to_string(), "/a/b");
    }

    /// By trying all there is.
    fn slowly(pattern: &[&str], path: &[&str]) -> bool {
        fn part(pattern: &[char], text: &[char]) -> bool {
            match pattern {
                [] => text.is_empty(),
                ['*', rest @ ..] => (0..=text.len()).any(|n| part(rest, &text[n..])),
                [p, rest @ ..] => {
                    !text.is_empty() && (*p == '?' || *p == text[0]) && part(rest, &text[1..])
                }
            }
        }
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        match pattern {
            [] => path.is_empty(),
            ["**", rest @ ..] => (0..=path.len()).any(|n| slowly(rest, &path[n..])),
            [p, rest @ ..] => {
                !path.is_empty() && part(&chars(p), &chars(path[0])) && slowly(rest, &path[1..])
            }
        }
    }

    proptest! {
        #[test]
        fn stars_match_as_trying_all_does(
            parts in prop::collection::vec("\\*\\*|[ab*?]{1,4}", 0..5),
            path in prop::collection::vec("[ab]{1,4}", 0..5),
        ) {
            prop_assume!(parts.iter().all(|part| part == "**" || !part.contains("**")));
            let parts: Vec<&str> = parts.iter().map(|part| &**part).collect();
            let path: Vec<&str> = path.iter().map(|part| &**part).collect();
            let fast = pattern(&parts.join("/")).matches(&path.join("/"));
            prop_assert_eq!(fast, slowly(&parts, &path));
        }

        #[test]
        fn noise_never_panics(text in "\\PC{0,40}", path in "\\PC{0,40}") {
            let _any = text.parse::<Pattern>().map(|pattern| pattern.matches(&path));
        }
    }
}
