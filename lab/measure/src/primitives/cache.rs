//! How much of a file the cache holds: files of rising size are read twice, and where the second
//! time is as slow as the first the cache has ended.
//!
//! Filling the memory of a whole machine would throw out what everybody else has cached. So the
//! reader is a process in a memory group (cgroup) of our own with a small limit, in which the
//! kernel's cache behaves as it does in a machine of that size. The knee is looked for by halving
//! the distance, not on a grid.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use onrush_primitives::reader::{Pattern, Plan, Reader};

use super::Found;
use super::WAIT_MAX;
use super::scratch::{Scratch, make_cold};
use crate::stats::{median, ratio, to_f64};

/// The curve's name.
pub(super) const CURVE: &str = "file_cache";

/// A limit, and a file that is larger.
#[derive(Debug)]
pub(super) struct Knee {
    limit_bytes: u64,
    path: PathBuf,
}

impl Knee {
    /// Makes the file, and makes sure that a group can be made.
    pub(super) fn prepare(scratch: &Scratch, quick: bool) -> io::Result<Self> {
        let limit_bytes = if quick { 64 << 20 } else { 192 << 20 };
        MemoryGroup::new(limit_bytes)?;
        let path = scratch.file("cache", 2 * limit_bytes)?;
        Ok(Self { limit_bytes, path })
    }
}

/// Looks for the knee once.
pub(super) fn measure(found: &mut Found, knee: &mut Knee) {
    found.fact("file_cache_limit", ratio(knee.limit_bytes, 1));
    let mut rates = Vec::new();
    let eighths = (2..=16).step_by(2).map(|part| knee.limit_bytes / 8 * part);
    for bytes in eighths {
        match second_read(knee, bytes) {
            Ok(rate) => {
                found.point(CURVE, "second read", bytes, rate);
                rates.push((bytes, rate));
            }
            Err(error) => return found.missing("file_cache", error),
        }
    }
    let Some(bound) = bound(&rates) else {
        return found.missing(
            "file_cache",
            "no knee: the second read is as fast for every size",
        );
    };
    let is_fast = |rate: f64| rate >= bound;
    let below = rates
        .iter()
        .take_while(|(_, rate)| is_fast(*rate))
        .last()
        .map(|point| point.0);
    let (mut low, mut high) = (below.unwrap_or(0), 0);
    for (bytes, _) in &rates {
        if *bytes > low && high == 0 {
            high = *bytes;
        }
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2 / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
        match second_read(knee, middle) {
            Ok(rate) => {
                found.point(CURVE, "second read", middle, rate);
                *if is_fast(rate) { &mut low } else { &mut high } = middle;
            }
            Err(_) => break,
        }
    }
    found.samples("file_cache", vec![ratio(low, 1)]);
}

const HALVINGS: u32 = 4;
const BLOCK_BYTES: usize = 64 << 10;

/// What tells fast from slow: half-way, in octaves, between the smallest and the largest sizes.
/// `None` if those do not differ.
fn bound(rates: &[(u64, f64)]) -> Option<f64> {
    let of = |points: &[(u64, f64)]| median(points.iter().map(|point| point.1).collect::<Vec<_>>());
    let few = 2.min(rates.len());
    let (fast, slow) = (of(&rates[..few])?, of(&rates[rates.len() - few..])?);
    (fast > slow * KNEE_MIN).then(|| (fast * slow).sqrt())
}

/// Cache and disk must differ by this factor, or there is no knee to be seen.
const KNEE_MIN: f64 = 1.5;

/// Bytes per second of reading a file for the second time, in a group of its own.
fn second_read(knee: &Knee, bytes: u64) -> io::Result<f64> {
    let file = File::open(&knee.path)?;
    make_cold(
        &file,
        usize::try_from(knee.limit_bytes * 2).unwrap_or(usize::MAX),
    )?;
    let group = MemoryGroup::new(knee.limit_bytes)?;
    let plan = Plan {
        block_bytes: BLOCK_BYTES,
        file_bytes: bytes,
        pattern: Pattern::Sequential,
    };
    let mut reader = Reader::start(&file, plan)?;
    group.add(reader.process())?;
    let blocks = bytes / BLOCK_BYTES as u64;
    reader.read(blocks, WAIT_MAX)?;
    let taken_ns = reader.read(blocks, WAIT_MAX)?;
    // Before the group: a group that somebody is in cannot be removed.
    drop(reader);
    drop(group);
    Ok(ratio(bytes, taken_ns.max(1)) * 1e9)
}

/// A memory group with a limit, removed when this is dropped.
#[derive(Debug)]
struct MemoryGroup {
    folder: PathBuf,
}

impl MemoryGroup {
    fn new(limit_bytes: u64) -> io::Result<Self> {
        let (parent, limit_file) = place()?;
        let folder = parent.join(format!("onrush-measure-{}", std::process::id()));
        let refused = |error: io::Error| {
            let text = format!(
                "a memory group in {}: {error}; it needs root, and a cgroup that is not read-only",
                parent.display()
            );
            io::Error::new(error.kind(), text)
        };
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(refused)?,
        }
        let group = Self { folder };
        fs::write(group.folder.join(limit_file), limit_bytes.to_string()).map_err(refused)?;
        Ok(group)
    }

    fn add(&self, process: i32) -> io::Result<()> {
        fs::write(self.folder.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What cached pages it is charged with go to its parent.
        fs::remove_dir(&self.folder).ok();
    }
}

/// Where groups can be made, and what their limit is called: beneath our own group in version 1, at
/// the top in version 2, where a group with processes may have no children.
fn place() -> io::Result<(PathBuf, &'static str)> {
    let mounts = fs::read_to_string("/proc/self/mounts")?;
    for line in mounts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, mount, kind, options, ..] = words[..] else {
            continue;
        };
        if kind == "cgroup" && options.split(',').any(|option| option == "memory") {
            return Ok((own_group(Path::new(mount))?, "memory.limit_in_bytes"));
        }
        let controllers = Path::new(mount).join("cgroup.subtree_control");
        let has_memory =
            || fs::read_to_string(&controllers).is_ok_and(|text| text.contains("memory"));
        if kind == "cgroup2" && has_memory() {
            return Ok((mount.into(), "memory.max"));
        }
    }
    Err(io::Error::other(
        "there is no memory controller (cgroup) here to limit a cache with",
    ))
}

fn own_group(mount: &Path) -> io::Result<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup")?;
    let path = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers
            .split(',')
            .any(|name| name == "memory")
            .then_some(path)
    });
    Ok(mount.join(path.unwrap_or("/").trim_start_matches('/')))
}

/// Where the knee is, by the points that were taken.
pub(super) fn knee(line: &[(u64, f64)]) -> Option<f64> {
    let bound = bound(line)?;
    let fast = line.iter().take_while(|(_, rate)| *rate >= bound);
    fast.last()
        .map(|(bytes, _)| to_f64(usize::try_from(*bytes).unwrap_or(usize::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knee_is_the_last_size_that_is_fast() {
        let line: Vec<(u64, f64)> = (1..=16)
            .map(|part| (part, if part <= 9 { 8e9 } else { 1.5e9 }))
            .collect();
        assert_eq!(knee(&line), Some(9.0));
        let flat: Vec<(u64, f64)> = (1..=16).map(|part| (part, 3e9)).collect();
        assert_eq!(knee(&flat), None);
        assert_eq!(knee(&[]), None);
    }
}
