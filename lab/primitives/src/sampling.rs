//! What a processor is at, looked at again and again: perf_event_open(2), sampled instruction
//! pointers.
//!
//! By the kernel's own clock, which every machine has, each sample stands for as much processor
//! time; where the processor has counters, by instructions or by accesses that no cache could
//! serve. A clock's sample that falls where interrupts are off is taken when they are on again,
//! and stands there.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use onrush_lock::memory::page_bytes;

use crate::hardware::{Attributes, CACHE_MISSES, INSTRUCTIONS, TYPE_HARDWARE, open_with};

/// Pages for samples: a power of two. 4 MiB hold 170,000, half a minute of 5000 a second.
const RING_PAGES: usize = 1024;

/// By what samples are taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// Time, in ns.
    Clock,
    /// Instructions.
    Instructions,
    /// Misses of the last cache.
    Misses,
}

/// One look.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// The instruction.
    pub address: u64,
    /// The thread; 0 where there was none.
    pub thread: u32,
    /// Whether the processor was in the kernel.
    pub is_kernel: bool,
}

/// What was seen.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Samples {
    /// In order.
    pub samples: Vec<Sample>,
    /// Samples that there was no room for.
    pub lost: u64,
}

/// Looks at a processor until it is finished.
#[derive(Debug)]
pub struct Sampler {
    _event: OwnedFd,
    ring: Ring,
}

impl Sampler {
    /// Looks at all that is done on processor `core`, once for so many of what `event` counts. A
    /// processor without work is not looked at.
    ///
    /// # Errors
    ///
    /// EACCES without the right to it (CAP_PERFMON); ENOENT or EOPNOTSUPP of a counter that the
    /// processor does not show.
    pub fn start(event: Event, core: usize, period: u64) -> io::Result<Self> {
        let (kind, config) = match event {
            Event::Clock => (TYPE_SOFTWARE, CPU_CLOCK),
            Event::Instructions => (TYPE_HARDWARE, INSTRUCTIONS),
            Event::Misses => (TYPE_HARDWARE, CACHE_MISSES),
        };
        let attributes = Attributes {
            kind,
            config,
            sample_period: period,
            sample_type: SAMPLE_ADDRESS | SAMPLE_THREAD,
            flags: EXCLUDE_IDLE,
            ..Attributes::default()
        };
        let core = i32::try_from(core).map_err(io::Error::other)?;
        let (all, ring_bytes) = (-1, (1 + RING_PAGES) * page_bytes());
        let event = open_with(attributes, all, core)?;
        Ok(Self {
            ring: Ring::map(&event, ring_bytes)?,
            _event: event,
        })
    }

    /// Ends, and tells what was seen.
    #[must_use]
    pub fn finish(self) -> Samples {
        let mut samples = Samples::default();
        samples.read(&self.ring.written());
        samples
    }
}

impl Samples {
    /// Takes records as they lie in the ring, one behind the other.
    fn read(&mut self, mut bytes: &[u8]) {
        while let Some((head, _)) = bytes.split_at_checked(HEAD_BYTES) {
            let kind = u32::from_ne_bytes(head[..4].try_into().expect("four bytes"));
            let mode = u16::from_ne_bytes([head[4], head[5]]) & MODE_MASK;
            let record_bytes = usize::from(u16::from_ne_bytes([head[6], head[7]]));
            // A record that is cut off, or none: there is nothing behind it.
            if record_bytes < HEAD_BYTES || record_bytes > bytes.len() {
                return;
            }
            let body = &bytes[HEAD_BYTES..record_bytes];
            let word = |at: usize| {
                let word = body.get(at..at + 8)?;
                Some(u64::from_ne_bytes(word.try_into().expect("eight bytes")))
            };
            match (kind, word(0), word(8)) {
                (RECORD_SAMPLE, Some(address), Some(_)) => self.samples.push(Sample {
                    address,
                    // Behind the number of its process.
                    thread: u32::from_ne_bytes(body[12..16].try_into().expect("four bytes")),
                    is_kernel: mode == MODE_KERNEL,
                }),
                (RECORD_LOST, _, Some(lost)) => self.lost += lost,
                _ => {}
            }
            bytes = &bytes[record_bytes..];
        }
    }
}

/// Memory that the kernel writes samples to: a page about it, and the samples.
#[derive(Debug)]
struct Ring {
    base: NonNull<u8>,
    bytes: usize,
}

impl Ring {
    fn map(event: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let (read_write, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let fd = event.as_raw_fd();
        // SAFETY: the kernel chooses a place where nothing is.
        let base = unsafe { libc::mmap(ptr::null_mut(), bytes, read_write, shared, fd, 0) };
        match NonNull::new(base.cast::<u8>()) {
            Some(found) if base != libc::MAP_FAILED => Ok(Self { base: found, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// What was written since it was mapped. The kernel overwrites nothing that was not taken, and
    /// nothing is taken: what has no room is lost, and counted.
    fn written(&self) -> Vec<u8> {
        let page = page_bytes();
        // SAFETY: within the first page, which is mapped.
        let head = unsafe { self.base.add(HEAD_OFFSET) }.cast::<AtomicU64>();
        // SAFETY: aligned to eight bytes, mapped as long as `self` is, and written by the kernel
        // whole.
        let head = unsafe { head.as_ref() };
        let written = usize::try_from(head.load(Ordering::Relaxed)).unwrap_or(0);
        // As perf_event_open(2) wants between the head and what lies before it.
        fence(Ordering::Acquire);
        let written = written.min(self.bytes - page);
        // SAFETY: within the mapping, which has more than a page.
        let data = unsafe { self.base.add(page) };
        let mut copy = Vec::with_capacity(written);
        // SAFETY: both are as long, `written` bytes of the ring are there, and the kernel, which
        // writes behind the head only, does not touch them again; `copy` is memory of its own.
        unsafe {
            data.as_ptr()
                .copy_to_nonoverlapping(copy.as_mut_ptr(), written)
        };
        // SAFETY: so many bytes were just written.
        unsafe { copy.set_len(written) };
        copy
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping, of which nobody has a reference any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

const TYPE_SOFTWARE: u32 = 1;
/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
/// `PERF_SAMPLE_IP` and `PERF_SAMPLE_TID`.
const SAMPLE_ADDRESS: u64 = 1;
const SAMPLE_THREAD: u64 = 2;
/// `exclude_idle`, bit 7 of the flags.
const EXCLUDE_IDLE: u64 = 1 << 7;
/// `PERF_RECORD_LOST` and `PERF_RECORD_SAMPLE`; `struct perf_event_header`.
const RECORD_LOST: u32 = 2;
const RECORD_SAMPLE: u32 = 9;
const HEAD_BYTES: usize = 8;
/// `PERF_RECORD_MISC_CPUMODE_MASK` and `PERF_RECORD_MISC_KERNEL`.
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;
/// Of `data_head` in `struct perf_event_mmap_page`.
const HEAD_OFFSET: usize = 1024;

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::time::{Duration, Instant};

    use onrush_sys::thread::{allowed_cores, pin_to};

    use super::*;

    fn record(kind: u32, mode: u16, body: &[u8]) -> Vec<u8> {
        let bytes = u16::try_from(HEAD_BYTES + body.len()).unwrap();
        let head = [kind.to_ne_bytes().to_vec(), mode.to_ne_bytes().to_vec()];
        [head.concat(), bytes.to_ne_bytes().to_vec(), body.to_vec()].concat()
    }

    #[test]
    fn records_are_read_and_what_is_cut_off_is_not() {
        let body = |address: u64, process: u32, thread: u32| {
            let numbers = [process.to_ne_bytes(), thread.to_ne_bytes()].concat();
            [address.to_ne_bytes().to_vec(), numbers].concat()
        };
        let lost = [7_u64.to_ne_bytes(), 5_u64.to_ne_bytes()].concat();
        let all = [
            record(RECORD_SAMPLE, MODE_KERNEL, &body(0xffff_8000, 4, 5)),
            record(3, 0, &[1; 24]),
            record(RECORD_LOST, 0, &lost),
            record(RECORD_SAMPLE, 2, &body(0x1000, 4, 6)),
        ]
        .concat();
        let mut samples = Samples::default();
        samples.read(&all);
        let sample = |address, thread, is_kernel| Sample {
            address,
            thread,
            is_kernel,
        };
        let expected = vec![sample(0xffff_8000, 5, true), sample(0x1000, 6, false)];
        assert_eq!((samples.samples, samples.lost), (expected, 5));
        for cut in 0..all.len() {
            let mut samples = Samples::default();
            samples.read(&all[..cut]);
            assert!(samples.samples.len() < 2);
        }
        let mut none = Samples::default();
        none.read(&[0; 64]);
        assert_eq!(none, Samples::default());
    }

    #[test]
    fn a_busy_thread_is_seen_on_its_processor() {
        let core = *allowed_cores().last().unwrap();
        let sampler = match Sampler::start(Event::Clock, core, 1_000_000) {
            Ok(sampler) => sampler,
            // Accounts without rights may be refused.
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        };
        let busy = std::thread::spawn(move || {
            pin_to(core).unwrap();
            let begin = Instant::now();
            let mut sum = 0_u64;
            while begin.elapsed() < Duration::from_millis(300) {
                sum = black_box(sum.wrapping_add(1));
            }
            rustix::thread::gettid().as_raw_pid().cast_unsigned()
        });
        let busy = busy.join().unwrap();
        let seen = sampler.finish();
        let its = seen.samples.iter().filter(|it| it.thread == busy);
        // Of 300 looks some; who else is busy has others.
        assert!(its.clone().count() > 3, "{seen:?}");
        assert!(its.clone().any(|it| !it.is_kernel && it.address > 0));
    }

    #[test]
    fn processors_are_sampled_by_counters_or_say_why_not() {
        for event in [Event::Instructions, Event::Misses] {
            if let Err(error) = Sampler::start(event, 0, 100_000) {
                assert!(error.raw_os_error().is_some(), "{error}");
            }
        }
        assert!(Sampler::start(Event::Clock, 100_000, 1_000_000).is_err());
    }
}
