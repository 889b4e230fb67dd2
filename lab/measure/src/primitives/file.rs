//! Files: how long 4 KB take from the disk, in order and not, alone and among others; and how much
//! of a file the cache holds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;

use onrush_primitives::map::{Memory, Pages, forget};
use onrush_primitives::reader::{Pattern, Plan, Reader, open_direct, read_block};
use onrush_sys::thread::bind_to;

use super::Found;
use super::WAIT_MAX;
use super::cache::{self, Knee};
use super::method::{Method, six_digits};
use super::scratch::Scratch;
use crate::stats::{median, ratio, to_f64};
use crate::trend::slopes;

/// What is kept from round to round.
#[derive(Debug, Default)]
pub(super) struct Kept {
    is_ready: bool,
    here: Option<FileSet>,
    mounted: Option<FileSet>,
    contenders: Vec<PathBuf>,
    knee: Option<Knee>,
}

/// Files of every size in one directory.
#[derive(Debug)]
struct FileSet {
    name: &'static str,
    files: Vec<(u64, PathBuf)>,
    /// Last: the files go with it.
    scratch: Scratch,
}

/// The curves' names.
pub(super) const READ_CURVE: &str = "read_time_over_file";
pub(super) const MOUNTED_CURVE: &str = "read_time_over_file_mounted";
pub(super) const CONTENTION_CURVE: &str = "contention";

/// The paper's four patterns: ours, and those of the others, turn about.
pub(super) const PATTERNS: [(&str, Pattern, [Pattern; 2]); 4] = [
    ("sequential", Pattern::Sequential, [Pattern::Sequential; 2]),
    ("random", Pattern::Random, [Pattern::Random; 2]),
    (
        "sequential_mixed",
        Pattern::Sequential,
        [Pattern::Sequential, Pattern::Random],
    ),
    (
        "random_mixed",
        Pattern::Random,
        [Pattern::Sequential, Pattern::Random],
    ),
];

const BLOCK_BYTES: usize = 4096;
const CONTENDERS: usize = 16;

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found, kept: &mut Kept) {
    if !kept.is_ready {
        kept.is_ready = true;
        prepare(method, found, kept);
    }
    if let Some(place) = &kept.here {
        reads(method, found, place, READ_CURVE);
        let contended = contention(method, found, &kept.contenders);
        found.there(&[CONTENTION_CURVE], contended);
        if let Some(knee) = &mut kept.knee {
            cache::measure(found, knee);
        }
    }
    if let Some(place) = &kept.mounted {
        reads(method, found, place, MOUNTED_CURVE);
    }
}

fn prepare(method: &Method, found: &mut Found, kept: &mut Kept) {
    let here = FileSet::new("here", method.folder(), method);
    kept.here = found.there(&[READ_CURVE, CONTENTION_CURVE, "file_cache"], here);
    if let Some(place) = &kept.here {
        let made = (0..CONTENDERS).map(|i| place.scratch.file(&format!("contender-{i}"), 1 << 20));
        let made = found.there(&[CONTENTION_CURVE], made.collect());
        kept.contenders = made.unwrap_or_default();
        let knee = Knee::prepare(&place.scratch, method.settings().quick);
        kept.knee = found.there(&["file_cache"], knee);
    }
    if let Some(folder) = &method.settings().mounted {
        kept.mounted = found.there(&[MOUNTED_CURVE], FileSet::new("mounted", folder, method));
    }
}

impl FileSet {
    fn new(name: &'static str, folder: &Path, method: &Method) -> io::Result<Self> {
        let scratch = Scratch::new(folder)?;
        let sizes = (12..=method.much(24, 26))
            .step_by(2)
            .map(|bits| 1_u64 << bits);
        let files = sizes.map(|bytes| Ok((bytes, scratch.file(&format!("read-{bytes}"), bytes)?)));
        let files = files.collect::<io::Result<Vec<_>>>()?;
        Ok(Self {
            name,
            files,
            scratch,
        })
    }
}

/// Every size, in both orders, past the cache, from a cold one, and from a warm one.
fn reads(method: &Method, found: &mut Found, place: &FileSet, curve: &str) {
    let suffix = if place.name == "here" {
        String::new()
    } else {
        format!("_{}", place.name)
    };
    for (index, (bytes, path)) in place.files.iter().enumerate() {
        let is_largest = index + 1 == place.files.len();
        if found.round() > 2 && !is_largest {
            continue;
        }
        for (name, order) in [
            ("sequential", Pattern::Sequential),
            ("random", Pattern::Random),
        ] {
            for (way, id) in [
                (Way::Direct, "file_read"),
                (Way::Cold, "file_read_cold"),
                (Way::Warm, "file_read_warm"),
            ] {
                let id = format!("{id}_{name}{suffix}");
                let read = read_file(method, path, *bytes, order, way);
                let Some(each_ns) = found.there(&[&id], read) else {
                    continue;
                };
                let line = format!("{}, {name}", way.description());
                found.point(curve, &line, *bytes, median(&each_ns).unwrap_or(0.0));
                if is_largest {
                    found.samples(&id, each_ns);
                }
            }
        }
        found.fact(&format!("file_bytes{suffix}"), ratio(*bytes, 1));
    }
}

/// How a file is read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// Past the cache.
    Direct,
    /// Through it, after it has forgotten the file.
    Cold,
    /// From it.
    Warm,
}

impl Way {
    fn description(self) -> &'static str {
        match self {
            Self::Direct => "past the cache (O_DIRECT)",
            Self::Cold => "cache dropped before",
            Self::Warm => "from the cache",
        }
    }
}

/// Reads blocks of a file; each sample is the mean of a few, so that what is read ahead is in it.
fn read_file(
    method: &Method,
    path: &Path,
    bytes: u64,
    order: Pattern,
    way: Way,
) -> io::Result<Vec<f64>> {
    let file = match way {
        Way::Direct => open_direct(path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("{}: O_DIRECT: {error}", path.display()),
            )
        })?,
        Way::Cold | Way::Warm => File::open(path)?,
    };
    if way == Way::Cold {
        forget(&file)?;
    }
    let mut buffer = Memory::map(BLOCK_BYTES, Pages::Base)?;
    buffer.touch(BLOCK_BYTES);
    let blocks = bytes / BLOCK_BYTES as u64;
    if way == Way::Warm {
        for block in 0..blocks.min(READS_MAX) {
            read_block(&file, &mut buffer, BLOCK_BYTES, block * BLOCK_BYTES as u64)?;
        }
    }
    let mut mixed = 1_u64;
    let mut samples = Vec::new();
    let reads = blocks.clamp(1, READS_MAX);
    let batch = (reads / 8).max(1);
    for first in (0..reads).step_by(usize::try_from(batch).unwrap_or(1)) {
        let (taken_ns, result) = method.once(|| {
            for index in first..first + batch {
                mixed = mixed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let block = match order {
                    Pattern::Sequential => index % blocks,
                    Pattern::Random if way == Way::Warm => (mixed >> 33) % reads,
                    Pattern::Random => (mixed >> 33) % blocks,
                };
                read_block(&file, &mut buffer, BLOCK_BYTES, block * BLOCK_BYTES as u64)?;
            }
            io::Result::Ok(())
        });
        result?;
        samples.push(six_digits(taken_ns / ratio(batch, 1)));
    }
    Ok(samples)
}

/// Blocks that are read of one file, at most.
const READS_MAX: u64 = 512;

/// Times of one process that reads while others do, each its own file, past the cache, on any
/// processor.
fn contention(method: &Method, found: &mut Found, files: &[PathBuf]) -> io::Result<()> {
    let (few, many): (&[usize], &[usize]) = (&[1, 2, 4, 8, 16], &[1, 2, 3, 4, 6, 8, 11, 13, 16]);
    let counts = method.much(few, many);
    let cores = method.cores();
    let measured = thread::scope(|scope| {
        let measured = scope.spawn(|| {
            // The readers run where this thread may.
            bind_to(cores)?;
            let mut points = Vec::new();
            for (name, ours, others) in PATTERNS {
                for &count in counts {
                    points.push((name, count, among(files, count, ours, others)?));
                }
            }
            Ok(points)
        });
        measured
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread failed")))
    })?;
    for (name, count, ns) in &measured {
        found.point(CONTENTION_CURVE, name, *count as u64, *ns);
    }
    for (name, _, _) in PATTERNS {
        let of = measured.iter().filter(|(pattern, _, _)| *pattern == name);
        let line: Vec<(f64, f64)> = of.map(|(_, count, ns)| (to_f64(*count), *ns)).collect();
        if let Some(slope) = slope(&line) {
            found.samples(&format!("contention_{name}"), vec![six_digits(slope)]);
        }
    }
    Ok(())
}

/// Nanoseconds of a block for one of `count` processes.
fn among(files: &[PathBuf], count: usize, ours: Pattern, others: [Pattern; 2]) -> io::Result<f64> {
    let start = |path: &Path, pattern: Pattern| {
        let file = open_direct(path)?;
        let file_bytes = file.metadata()?.len();
        let plan = Plan {
            block_bytes: BLOCK_BYTES,
            file_bytes,
            pattern,
        };
        Reader::start(&file, plan)
    };
    let (first, rest) = files
        .split_first()
        .ok_or_else(|| io::Error::other("there are no files"))?;
    let mut rivals = Vec::new();
    for (index, path) in rest.iter().take(count - 1).enumerate() {
        let mut rival = start(path, others[index % 2])?;
        rival.read_on()?;
        rivals.push(rival);
    }
    let mut reader = start(first, ours)?;
    reader.read(CONTENDED_READS / 8, WAIT_MAX)?;
    let taken_ns = reader.read(CONTENDED_READS, WAIT_MAX)?;
    drop(rivals);
    Ok(ratio(taken_ns, CONTENDED_READS))
}

const CONTENDED_READS: u64 = 192;

/// How much each process more adds, as a part of what one alone takes: the median of the slopes
/// between all pairs of points (Theil and Sen), which no single point can bend.
fn slope(line: &[(f64, f64)]) -> Option<f64> {
    let alone = line.iter().find(|(count, _)| *count <= 1.0)?.1;
    let slopes = median(slopes(line)).filter(|_| alone > 0.0);
    slopes.map(|slope| slope / alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_that_of_most_points() {
        let mut line: Vec<(f64, f64)> = (1..=16)
            .map(|n| (f64::from(n), 100.0 + 50.0 * f64::from(n - 1)))
            .collect();
        assert_eq!(slope(&line), Some(0.5));
        line[7].1 = 1e6;
        assert!((slope(&line).unwrap() - 0.5).abs() < 0.1);
        assert_eq!(slope(&[]), None);
        assert_eq!(slope(&[(2.0, 5.0), (3.0, 6.0)]), None, "nobody was alone");
    }
}
