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

use super::method::{Method, six_digits};
use super::scratch::{Scratch, make_cold};
use super::{Found, Unit};
use crate::random::Random;
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
    found.try_samples("fault_unzeroed", unzeroed(method));
    found.try_samples("fault_populated", populated(method));
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
            for is_random in [false, true] {
                let taken = strides(method, found, (file, *bytes), is_random);
                found.there(&[CURVE], taken);
            }
        }
        let taken = each_touch(method, found, file, *bytes);
        found.there(&["fault_stride", EACH[0].0, EACH[1].0], taken);
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

/// Touches every page of memory that is not mapped any more: how long that took, the pages, and the
/// faults that the kernel counted.
fn touch_anew(method: &Method, memory: &mut Memory, bytes: usize) -> io::Result<(f64, usize, u64)> {
    memory.release()?;
    let before = Faults::of_thread();
    let (taken_ns, touched) = method.once(|| memory.touch(bytes));
    let faults = Faults::of_thread().minor - before.minor;
    Ok((taken_ns, touched, faults))
}

/// Touches every page of fresh memory.
fn fresh(method: &Method, pages: Pages) -> io::Result<Vec<f64>> {
    let bytes = method.much(16 << 20, 32 << 20);
    let mut memory = Memory::map(bytes, pages)?;
    let mut samples = Vec::new();
    for _ in 0..TOUCHES {
        let (taken_ns, touched, faults) = touch_anew(method, &mut memory, bytes)?;
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

/// Touches every page of memory that is there and not mapped: nothing is emptied.
fn unzeroed(method: &Method) -> io::Result<Vec<f64>> {
    let bytes = method.much(16 << 20, 32 << 20);
    let mut memory = Memory::map_shared(bytes)?;
    memory.touch(bytes);
    let mut samples = Vec::new();
    for _ in 0..TOUCHES {
        let (taken_ns, touched, faults) = touch_anew(method, &mut memory, bytes)?;
        // Shared memory may be on large pages, of which several are mapped at once.
        if faults < touched as u64 / 2 || faults > 2 * touched as u64 {
            return Err(io::Error::other(format!(
                "{faults} faults were counted for {touched} pages; look at \
                 /sys/kernel/mm/transparent_hugepage/shmem_enabled"
            )));
        }
        samples.push(six_digits(taken_ns / ratio(faults, 1)));
    }
    Ok(samples)
}

/// Has the kernel make all pages ready at once, and sees that no touch faults.
fn populated(method: &Method) -> io::Result<Vec<f64>> {
    let bytes = method.much(16 << 20, 32 << 20);
    let mut memory = Memory::map(bytes, Pages::Base)?;
    let mut samples = Vec::new();
    for _ in 0..TOUCHES {
        memory.release()?;
        let (taken_ns, done) = method.once(|| memory.populate());
        done.map_err(|error| {
            io::Error::new(error.kind(), format!("{error}; it needs Linux 5.14"))
        })?;
        let before = Faults::of_thread();
        let touched = memory.touch(bytes) as u64;
        let faults = Faults::of_thread().minor - before.minor;
        if faults > touched / 2 {
            return Err(io::Error::other(format!(
                "{faults} of {touched} pages were not ready"
            )));
        }
        samples.push(six_digits(taken_ns / ratio(touched, 1)));
    }
    Ok(samples)
}

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

/// The paper's experiment: up to a hundred touches at a distance, cold each time; in order, or at a
/// place by chance within each.
fn strides(
    method: &Method,
    found: &mut Found,
    (file, bytes): (&File, usize),
    is_random: bool,
) -> io::Result<()> {
    for stride in (12..=26).step_by(2).map(|bits| 1_usize << bits) {
        make_cold(file, bytes)?;
        let mapped = Mapped::map(file, bytes)?;
        let before = Faults::of_thread();
        let places = places(bytes, stride, is_random);
        let (taken_ns, touches) = method.once(|| {
            places.iter().for_each(|at| {
                std::hint::black_box(mapped.read(*at));
            });
            places.len()
        });
        let majors = Faults::of_thread().major - before.major;
        let (stride, each_ns) = (stride as u64, taken_ns / to_f64(touches));
        let part = ratio(majors, touches as u64);
        let (time, waits) = match is_random {
            false => ("time of a touch", "touches that waited for the disk"),
            true => ("at random within the stride", "at random within the stride"),
        };
        found.point(CURVE, time, stride, each_ns);
        found.point("majors_over_stride", waits, stride, part);
    }
    Ok(())
}

/// Where a cold file is touched: each stride once, at its beginning or by chance in it.
fn places(bytes: usize, stride: usize, is_random: bool) -> Vec<usize> {
    let mut chance = Random::new(stride as u64);
    let mut within = || if is_random { chance.index(stride) } else { 0 };
    let strides = (0..bytes).step_by(stride).take(PLACES_MAX);
    strides.map(|at| (at + within()).min(bytes - 1)).collect()
}

/// Places that are touched at a stride: the paper's hundred.
const PLACES_MAX: usize = 100;

/// The paper's figures: what each touch took, one after the other; and of some strides the mean.
fn each_touch(method: &Method, found: &mut Found, file: &File, bytes: usize) -> io::Result<()> {
    let is_drawn = found.round() < 2;
    let strides: &[usize] = if is_drawn {
        &STRIDES_OF_EACH
    } else {
        &STRIDES_OF_ROWS
    };
    for (is_random, (curve, _)) in [false, true].into_iter().zip(EACH) {
        for &stride in strides {
            make_cold(file, bytes)?;
            let mapped = Mapped::map(file, bytes)?;
            let mut total_ns = 0.0;
            let places = places(bytes, stride, is_random);
            for (number, at) in (1..).zip(&places) {
                let (taken_ns, _) = method.once(|| std::hint::black_box(mapped.read(*at)));
                total_ns += taken_ns;
                // A curve's logarithm has no zero.
                if is_drawn {
                    let name = format!("each {}", Unit::Bytes.told(to_f64(stride)));
                    found.point(curve, &name, number, taken_ns.max(1.0));
                }
            }
            if STRIDES_OF_ROWS.contains(&stride) {
                let mean = six_digits(total_ns / to_f64(places.len()));
                found.samples(&row_of(stride, is_random), vec![mean]);
            }
        }
    }
    Ok(())
}

/// The curves of single touches: in order, and at random within the stride.
pub(super) const EACH: [(&str, &str); 2] = [
    ("fault_each_touch", "Each touch of a cold file, in order"),
    (
        "fault_each_touch_random",
        "Each touch of a cold file, at random within the stride",
    ),
];
/// The strides of which the paper has a figure, and a larger one.
const STRIDES_OF_EACH: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Those that have rows: the paper's window, and beyond the kernel's.
pub(super) const STRIDES_OF_ROWS: [usize; 2] = [64 << 10, 1 << 20];

/// The name of a row of touches at a stride.
pub(super) fn row_of(stride: usize, is_random: bool) -> String {
    let order = if is_random { "random" } else { "order" };
    format!("fault_stride_{}k_{order}", stride >> 10)
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
