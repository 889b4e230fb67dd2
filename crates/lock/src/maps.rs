//! This process's mappings, as `/proc/self/maps` tells them.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

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

/// What lies behind addresses.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Backing {
    /// Memory that nobody else has.
    PrivateAnonymous,
    /// A private mapping of a file.
    PrivateFile,
    /// Memory that others may have mapped, or hold a descriptor of.
    Shared,
}

/// What lies behind all of `bytes`; the most shared if it is not all the same. An error if there is
/// a hole.
pub(super) fn backing(bytes: &Range<usize>) -> io::Result<Backing> {
    if let Some(backing) = query_backing(bytes) {
        return backing;
    }
    let mappings = mappings(bytes)?;
    if first_gap(bytes, &mappings).is_some() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(if mappings.iter().any(|m| m.permissions.ends_with('s')) {
        Backing::Shared
    } else if mappings.iter().any(|m| m.inode != 0) {
        Backing::PrivateFile
    } else {
        Backing::PrivateAnonymous
    })
}

/// Asks for the few mappings that matter (PROCMAP_QUERY, Linux 6.11) instead of reading all; `None`
/// if the kernel cannot.
fn query_backing(bytes: &Range<usize>) -> Option<io::Result<Backing>> {
    let mut backing = Backing::PrivateAnonymous;
    let mut at = bytes.start;
    while at < bytes.end {
        let mut query = ProcmapQuery {
            size: size_of::<ProcmapQuery>() as u64,
            query_addr: at as u64,
            ..ProcmapQuery::default()
        };
        if let Err(error) = query.ask() {
            let hole = error.raw_os_error() == Some(libc::ENOENT);
            return hole.then_some(Err(error));
        }
        if query.vma_flags & VMA_SHARED != 0 {
            return Some(Ok(Backing::Shared));
        }
        if query.inode != 0 {
            backing = Backing::PrivateFile;
        }
        at = usize::try_from(query.vma_end).ok()?;
    }
    Some(Ok(backing))
}

/// `struct procmap_query`.
#[derive(Default)]
#[repr(C)]
struct ProcmapQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<ProcmapQuery>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`
const PROCMAP_QUERY: libc::Ioctl = 3 << 30 | 104 << 16 | 0x66 << 8 | 17;
const VMA_SHARED: u64 = 8;

impl ProcmapQuery {
    /// The mapping at `query_addr`, or ENOENT.
    fn ask(&mut self) -> io::Result<()> {
        // A descriptor of `/proc/self` is that of the process that opened it: a child must open its
        // own.
        static MAPS: OnceLock<(u32, File)> = OnceLock::new();
        let (pid, maps) = match MAPS.get() {
            Some(opened) => opened,
            None => {
                let opened = (std::process::id(), File::open("/proc/self/maps")?);
                MAPS.get_or_init(|| opened)
            }
        };
        if *pid != std::process::id() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: PROCMAP_QUERY reads and writes a `struct procmap_query` of the size that it says,
        // which this is, and writes no name and no build id where their sizes are zero.
        let result = unsafe { libc::ioctl(maps.as_raw_fd(), PROCMAP_QUERY, &raw mut *self) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
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
