//! Page faults: of fresh memory, of a file in the cache, of a file on the disk; and how much the
//! kernel reads when it reads one page.
//!
//! The kernel's own count of faults is what times are divided by: a touch that did not fault is not
//! one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use onrush_lock::memory::{HUGE_PAGE_BYTES, page_bytes};
use onrush_primitives::map::{Faults, Mapped, Memory, Pages};

use super::Found;
use super::method::{Method, six_digits};
use super::scratch::{Scratch, make_cold};
use crate::stats::{ratio, to_f64};

/// What is kept from round to round.
#[derive(Debug, Default)]
pub(super) struct Kept {
    scratch: Option<(Scratch, File, usize)>,
    is_over: bool,
}

/// The curve's name.
pub(super) const CURVE: &str = "fault_over_stride";

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found, kept: &mut Kept) {
    found.try_samples("fault_minor", fresh(method, Pages::Base));
    found.try_samples("fault_huge", fresh(method, Pages::Huge));
    if kept.scratch.is_none() && !kept.is_over {
        let ids = ["fault_file", "fault_major", "fault_major_ahead", CURVE];
        kept.scratch = found.there(&ids, prepare(method));
        kept.is_over = kept.scratch.is_none();
    }
    if let Some((_, file, bytes)) = &kept.scratch {
        found.try_samples("fault_file", cached(method, file, *bytes));
        found.try_samples("fault_major", from_disk(method, file, *bytes, true));
        found.try_samples("fault_major_ahead", from_disk(method, file, *bytes, false));
        if found.round() < 3 {
            let taken = strides(method, found, file, *bytes);
            found.there(&[CURVE], taken);
        }
        let window = window(file, *bytes).map(|window| vec![to_f64(window)]);
        found.try_samples("read_ahead_window", window);
        if let Some(stated) = stated_window(file) {
            found.fact("read_ahead_stated", stated);
        }
    }
}

fn prepare(method: &Method) -> io::Result<(Scratch, File, usize)> {
    let bytes = method.much(64 << 20, 256 << 20);
    let scratch = Scratch::new(method.folder())?;
    let path = scratch.file("faults", bytes as u64)?;
    Ok((scratch, File::open(path)?, bytes))
}

/// Touches every page of fresh memory.
fn fresh(method: &Method, pages: Pages) -> io::Result<Vec<f64>> {
    let bytes = method.much(16 << 20, 32 << 20);
    let mut memory = Memory::map(bytes, pages)?;
    let mut samples = Vec::new();
    for _ in 0..TOUCHES {
        memory.release()?;
        let before = Faults::of_thread();
        let (taken_ns, touched) = method.once(|| memory.touch(bytes));
        let faults = Faults::of_thread().minor - before.minor;
        let expected = match pages {
            Pages::Base => touched,
            Pages::Huge => bytes / HUGE_PAGE_BYTES,
        };
        if faults > 2 * expected as u64 {
            return Err(io::Error::other(
                "the kernel gives no huge pages here (transparent_hugepage, fragmentation)",
            ));
        }
        if faults < expected as u64 / 2 {
            return Err(io::Error::other(format!(
                "{faults} faults were counted for {expected} pages"
            )));
        }
        samples.push(six_digits(taken_ns / ratio(faults, 1)));
    }
    Ok(samples)
}

const TOUCHES: usize = 5;

/// Touches a file that is in the cache, a page of every sixteen: the kernel maps those around a
/// fault, too.
fn cached(method: &Method, file: &File, bytes: usize) -> io::Result<Vec<f64>> {
    let bytes = bytes.min(64 << 20);
    let mut samples = Vec::new();
    for turn in 0..=TOUCHES {
        let mapped = Mapped::map(file, bytes)?;
        let before = Faults::of_thread();
        let (taken_ns, _) = method.once(|| touch(&mapped, bytes, AROUND_BYTES, usize::MAX));
        let after = Faults::of_thread();
        let faults = after.minor - before.minor;
        // The first turn brings it into the cache.
        if turn > 0 && after.major == before.major && faults > 0 {
            samples.push(six_digits(taken_ns / ratio(faults, 1)));
        }
    }
    if samples.is_empty() {
        return Err(io::Error::other(
            "the file did not stay in the file cache; memory is scarce",
        ));
    }
    Ok(samples)
}

/// `fault_around_bytes` of Linux (mm/memory.c), 64 KB unless somebody changed it.
const AROUND_BYTES: usize = 64 << 10;

/// Touches a file that is on the disk only, far apart. Samples of single faults.
fn from_disk(method: &Method, file: &File, bytes: usize, alone: bool) -> io::Result<Vec<f64>> {
    make_cold(file, bytes)?;
    let mapped = Mapped::map(file, bytes)?;
    let stride = if alone { 1 << 20 } else { bytes / 8 };
    if alone {
        mapped.expect_no_order()?;
    }
    let mut samples = Vec::new();
    for offset in (0..bytes).step_by(stride).take(MAJOR_MAX) {
        let before = Faults::of_thread().major;
        let (taken_ns, _) = method.once(|| mapped.read(offset));
        if Faults::of_thread().major > before {
            samples.push(six_digits(taken_ns));
        }
    }
    match samples.is_empty() {
        true => Err(io::Error::other(
            "no touch had to wait for the disk; the file system serves from memory",
        )),
        false => Ok(samples),
    }
}

const MAJOR_MAX: usize = 32;

/// The paper's experiment: up to a hundred touches at a distance, cold each time.
fn strides(method: &Method, found: &mut Found, file: &File, bytes: usize) -> io::Result<()> {
    for stride in (12..=26).step_by(2).map(|bits| 1_usize << bits) {
        make_cold(file, bytes)?;
        let mapped = Mapped::map(file, bytes)?;
        let before = Faults::of_thread();
        let (taken_ns, touches) = method.once(|| touch(&mapped, bytes, stride, 100));
        let majors = Faults::of_thread().major - before.major;
        let (stride, each_ns) = (stride as u64, taken_ns / to_f64(touches));
        let (waits, part) = (
            "touches that waited for the disk",
            ratio(majors, touches as u64),
        );
        found.point(CURVE, "time of a touch", stride, each_ns);
        found.point("majors_over_stride", waits, stride, part);
    }
    Ok(())
}

fn touch(mapped: &Mapped, bytes: usize, stride: usize, most: usize) -> usize {
    let offsets = (0..bytes).step_by(stride).take(most);
    let touched = offsets.inspect(|offset| {
        std::hint::black_box(mapped.read(*offset));
    });
    touched.count()
}

/// Touches one page of a cold file and asks which have come with it.
fn window(file: &File, bytes: usize) -> io::Result<usize> {
    make_cold(file, bytes)?;
    let mapped = Mapped::map(file, bytes)?;
    let middle = bytes / 2;
    std::hint::black_box(mapped.read(middle));
    let resident = settled(&mapped)?;
    let page = middle / page_bytes();
    let before = resident[..page]
        .iter()
        .rev()
        .take_while(|page| **page)
        .count();
    let after = resident[page..].iter().take_while(|page| **page).count();
    Ok((before + after) * page_bytes())
}

/// What is in the cache when the disk has brought all that was asked of it: the fault waits for its
/// own page only.
fn settled(mapped: &Mapped) -> io::Result<Vec<bool>> {
    let mut resident = mapped.resident()?;
    for _ in 0..LOOKS_MAX {
        thread::sleep(LOOK);
        let later = mapped.resident()?;
        if later == resident {
            return Ok(later);
        }
        resident = later;
    }
    Err(io::Error::other(
        "the disk goes on reading after one fault; no window was found",
    ))
}

const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: usize = 100;

/// What the block device says about itself.
fn stated_window(file: &File) -> Option<f64> {
    let device = file.metadata().ok()?.dev();
    // makedev(3): the numbers are spread over the word.
    let major = (device >> 8) & 0xfff;
    let minor = (device & 0xff) | ((device >> 12) & 0xf_ff00);
    let folder = format!("/sys/dev/block/{major}:{minor}");
    let whole = Path::new(&folder).join("queue/read_ahead_kb");
    let part = Path::new(&folder).join("../queue/read_ahead_kb");
    let text = fs::read_to_string(whole)
        .or_else(|_| fs::read_to_string(part))
        .ok()?;
    text.trim().parse::<f64>().ok().map(|kib| kib * 1024.0)
}
