//! This process's mappings, as `/proc/self/maps` tells them. Read only to explain a failure.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;

/// One mapping.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) bytes: Range<usize>,
    /// `rwxp` or `rwxs`, with `-` for what is not allowed.
    pub(super) permissions: String,
    /// 0 for anonymous memory.
    pub(super) inode: u64,
    pub(super) path: String,
}

/// The mappings that meet `bytes`, in order.
pub(super) fn mappings(bytes: &Range<usize>) -> io::Result<Vec<Mapping>> {
    let mut found = Vec::new();
    for line in BufReader::new(File::open("/proc/self/maps")?).lines() {
        let line = line?;
        let mapping = parse(&line).ok_or(io::ErrorKind::InvalidData)?;
        if mapping.bytes.start < bytes.end && bytes.start < mapping.bytes.end {
            found.push(mapping);
        }
    }
    Ok(found)
}

/// How many mappings this process has.
pub(super) fn count() -> io::Result<usize> {
    Ok(BufReader::new(File::open("/proc/self/maps")?)
        .lines()
        .count())
}

/// The first part of `bytes` that none of `mappings` covers.
pub(super) fn first_gap(bytes: &Range<usize>, mappings: &[Mapping]) -> Option<Range<usize>> {
    let mut at = bytes.start;
    for mapping in mappings {
        if mapping.bytes.start > at {
            return Some(at..mapping.bytes.start.min(bytes.end));
        }
        at = mapping.bytes.end;
    }
    (at < bytes.end).then_some(at..bytes.end)
}

/// `start-end perms offset dev inode   path`
fn parse(line: &str) -> Option<Mapping> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let permissions = fields.next()?.to_owned();
    let inode = fields.nth(2)?.parse().ok()?;
    let path = fields.collect::<Vec<_>>().join(" ");
    Some(Mapping {
        bytes: start..end,
        permissions,
        inode,
        path,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_a_path() {
        let line = "7f00-8000 rw-s 00001000 00:01 1027    /memfd:my file (deleted)";
        let mapping = parse(line).expect("it is a line of maps");
        assert_eq!(mapping.bytes, 0x7f00..0x8000);
        assert_eq!(mapping.permissions, "rw-s");
        assert_eq!(mapping.inode, 1027);
        assert_eq!(mapping.path, "/memfd:my file (deleted)");
        let anonymous = parse("1000-2000 ---p 00000000 00:00 0 ").expect("so is this");
        assert_eq!((anonymous.inode, anonymous.path.as_str()), (0, ""));
        assert!(parse("rubbish").is_none());
    }

    #[test]
    fn gaps_are_found_at_every_place() {
        let at = |bytes: Range<usize>| Mapping {
            bytes,
            permissions: String::new(),
            inode: 0,
            path: String::new(),
        };
        let maps = [at(10..20), at(20..30), at(40..50)];
        assert_eq!(first_gap(&(10..30), &maps[..2]), None);
        assert_eq!(first_gap(&(5..30), &maps[..2]), Some(5..10));
        assert_eq!(first_gap(&(15..50), &maps), Some(30..40));
        assert_eq!(first_gap(&(45..60), &maps[2..]), Some(50..60));
        assert_eq!(first_gap(&(60..70), &[]), Some(60..70));
    }
}
