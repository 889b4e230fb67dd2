//! Conditional requests (RFC 9110, section 13): whether a client already has what it asks for.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Request;

/// What tells one version of a file from another.
#[derive(Clone, Copy, Debug)]
pub struct Validators<'a> {
    /// The strong entity tag, with its quotes.
    pub etag: &'a str,
    /// When the file last changed, in seconds since 1970.
    pub modified_s: u64,
}

/// What follows from a request's conditions.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Carry it out.
    Proceed,
    /// 304: the client has it.
    NotModified,
    /// 412: it is not what the client takes it for.
    Failed,
}

impl Validators<'_> {
    /// Judges the conditions in the order of RFC 9110, section 13.2.2.
    #[must_use]
    pub fn judge(&self, request: &Request<'_>) -> Verdict {
        let unmodified = |date: &str| seconds(date).is_none_or(|date_s| self.modified_s <= date_s);
        let is_as_expected = match (&request.if_match, request.if_unmodified_since) {
            (Some(list), _) => self.is_listed(list, Comparison::Strong),
            (None, Some(date)) => unmodified(date),
            (None, None) => true,
        };
        if !is_as_expected {
            return Verdict::Failed;
        }
        let is_known = match (&request.if_none_match, request.if_modified_since) {
            (Some(list), _) => self.is_listed(list, Comparison::Weak),
            (None, Some(date)) => seconds(date).is_some() && unmodified(date),
            (None, None) => false,
        };
        if is_known {
            Verdict::NotModified
        } else {
            Verdict::Proceed
        }
    }

    /// Whether a Range field counts under this If-Range (section 13.1.5): the file must surely be
    /// the one that the client has a part of. A date is sure only a second after it: until then the
    /// file could have changed once more under the same date.
    #[must_use]
    pub fn allows_range(&self, if_range: Option<&str>, now_s: u64) -> bool {
        match if_range {
            None => true,
            Some(value) if value.starts_with('"') => value == self.etag,
            Some(value) => seconds(value) == Some(self.modified_s) && self.modified_s < now_s,
        }
    }

    fn is_listed(&self, list: &str, comparison: Comparison) -> bool {
        if list.trim() == "*" {
            return true;
        }
        let mut rest = list;
        loop {
            rest = rest.trim_start_matches([' ', '\t', ',']);
            let (is_weak, tag) = match rest.strip_prefix("W/") {
                Some(tag) => (true, tag),
                None => (false, rest),
            };
            // A tag may hold commas: it ends at its second quote. What is no tag ends the list.
            let Some(end) = tag.strip_prefix('"').and_then(|inner| inner.find('"')) else {
                return false;
            };
            let (tag, after) = tag.split_at(end + 2);
            if tag == self.etag && !(is_weak && comparison == Comparison::Strong) {
                return true;
            }
            rest = after;
        }
    }
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum Comparison {
    Strong,
    Weak,
}

/// The second that an HTTP date names; `None` if it is none, and then the field is ignored.
fn seconds(date: &str) -> Option<u64> {
    let time: SystemTime = httpdate::parse_http_date(date.trim()).ok()?;
    let since: Duration = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: Validators<'_> = Validators {
        etag: "\"a,b\"",
        modified_s: 784_111_777,
    };
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sunday, 06-Nov-94 08:49:38 GMT";

    fn judge(lines: &[(&str, &str)]) -> Verdict {
        let lines: Vec<_> = lines
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", lines.concat());
        FILE.judge(&Request::parse(head.as_bytes()).unwrap())
    }

    #[test]
    fn one_condition() {
        use Verdict::{Failed, NotModified, Proceed};
        for (name, value, verdict) in [
            ("If-None-Match", "\"a,b\"", NotModified),
            ("If-None-Match", "W/\"a,b\"", NotModified),
            ("If-None-Match", "\"x\", \"a,b\"", NotModified),
            ("If-None-Match", "*", NotModified),
            ("If-None-Match", "\"x\"", Proceed),
            ("If-None-Match", "a,b", Proceed),
            ("If-Match", "\"a,b\"", Proceed),
            ("If-Match", "*", Proceed),
            ("If-Match", "W/\"a,b\"", Failed),
            ("If-Match", "\"x\"", Failed),
            ("If-Match", "", Failed),
            ("If-Modified-Since", DATE, NotModified),
            ("If-Modified-Since", AFTER, NotModified),
            ("If-Modified-Since", BEFORE, Proceed),
            ("If-Modified-Since", "yesterday", Proceed),
            ("If-Unmodified-Since", DATE, Proceed),
            ("If-Unmodified-Since", AFTER, Proceed),
            ("If-Unmodified-Since", BEFORE, Failed),
            ("If-Unmodified-Since", "yesterday", Proceed),
        ] {
            assert_eq!(judge(&[(name, value)]), verdict, "{name}: {value}");
        }
    }

    #[test]
    fn tags_go_before_dates_and_failing_before_knowing() {
        let none = ("If-None-Match", "\"x\"");
        assert_eq!(
            judge(&[none, ("If-Modified-Since", DATE)]),
            Verdict::Proceed
        );
        let matching = ("If-Match", "\"a,b\"");
        assert_eq!(
            judge(&[matching, ("If-Unmodified-Since", BEFORE)]),
            Verdict::Proceed
        );
        let known = ("If-None-Match", "*");
        assert_eq!(judge(&[known, ("If-Match", "\"x\"")]), Verdict::Failed);
        assert_eq!(judge(&[known, matching]), Verdict::NotModified);
    }

    #[test]
    fn a_range_counts_for_the_same_file_only() {
        let now_s = FILE.modified_s + 1;
        let allows = |value| FILE.allows_range(Some(value), now_s);
        assert!(FILE.allows_range(None, now_s));
        assert!(allows("\"a,b\"") && allows(DATE));
        for value in ["\"x\"", "W/\"a,b\"", BEFORE, AFTER, "", "x"] {
            assert!(!allows(value), "{value}");
        }
        // In the second of the change the date does not tell before from after.
        assert!(!FILE.allows_range(Some(DATE), FILE.modified_s));
    }

    proptest! {
        #[test]
        fn noise_never_panics(value in "\\PC{0,60}") {
            let _any = FILE.is_listed(&value, Comparison::Weak);
            let _any = FILE.allows_range(Some(&value), 0);
        }
    }
}
