//! The last lines of the log, for whoever watches the server.
//!
//! Whoever writes the log gives its lines here as well. They are kept in a ring of bounded size,
//! and each has a number, so that a watcher is told each once.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

/// Lines that are kept.
pub const LOG_LINES_MAX: usize = 200;

/// Bytes of a line that are kept.
pub const LOG_LINE_BYTES_MAX: usize = 1024;

/// The ring.
#[derive(Debug, Default)]
pub struct LogTail(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// How many lines there were.
    count: u64,
    lines: VecDeque<String>,
}

/// A line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(super) struct Line {
    /// From 1 on.
    pub(super) number: u64,
    pub(super) text: String,
}

/// That of this process.
pub static LOG_TAIL: LogTail = LogTail::new();

impl LogTail {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(Ring {
            count: 0,
            lines: VecDeque::new(),
        }))
    }

    /// Takes a line as it is written, with its end; what steers a terminal is left out.
    pub fn push(&self, bytes: &[u8]) {
        let kept = &bytes[..bytes.len().min(LOG_LINE_BYTES_MAX)];
        let text = String::from_utf8_lossy(kept);
        let mut line = String::with_capacity(text.len());
        let mut rest = text.trim_end();
        // Colours begin with ESC [ and end in a letter.
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            line.push_str(before);
            let end = after.find(|it: char| it.is_ascii_alphabetic());
            rest = end.map_or("", |end| &after[end + 1..]);
        }
        line.extend(rest.chars().filter(|it| !it.is_control()));
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.lines.len() >= LOG_LINES_MAX {
            ring.lines.pop_front();
        }
        ring.count += 1;
        ring.lines.push_back(line);
    }

    /// The lines after number `last`, of those that are kept.
    pub(super) fn since(&self, last: u64) -> Vec<Line> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = ring.count - ring.lines.len() as u64 + 1;
        let numbered = (first..).zip(&ring.lines);
        let new = numbered.filter(|(number, _)| *number > last);
        new.map(|(number, text)| Line {
            number,
            text: text.clone(),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_and_told_once() {
        let tail = LogTail::new();
        assert_eq!(tail.since(0), []);
        for number in 1..=LOG_LINES_MAX + 1 {
            tail.push(format!("\u{1b}[32m INFO\u{1b}[0m line {number}\u{7}\n").as_bytes());
        }
        let all = tail.since(0);
        assert_eq!((all.len(), all[0].number), (LOG_LINES_MAX, 2));
        assert_eq!(all[0].text, " INFO line 2");
        assert_eq!(tail.since(LOG_LINES_MAX as u64).len(), 1);
        assert_eq!(tail.since(LOG_LINES_MAX as u64 + 1), []);
    }

    #[test]
    fn a_line_has_no_more_bytes_than_it_may() {
        let tail = LogTail::new();
        tail.push(&[b'x'; LOG_LINE_BYTES_MAX]);
        tail.push(&[b'x'; LOG_LINE_BYTES_MAX + 1]);
        tail.push("\u{1b}[".as_bytes());
        tail.push(&[0xff; LOG_LINE_BYTES_MAX]);
        let lengths: Vec<_> = tail
            .since(0)
            .iter()
            .map(|it| it.text.chars().count())
            .collect();
        assert_eq!(
            lengths,
            [
                LOG_LINE_BYTES_MAX,
                LOG_LINE_BYTES_MAX,
                0,
                LOG_LINE_BYTES_MAX
            ]
        );
    }
}
