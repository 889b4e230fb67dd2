//! Processor, scheduling, services: from reading the clock to switching processes.

use std::hint::black_box;
use std::io;
use std::thread;

use onrush_lock::memory::{HUGE_PAGE_BYTES, page_bytes};
use onrush_primitives::counter::monotonic_raw_ns;
use onrush_primitives::leaving::{Leaver, Parent};
use onrush_primitives::map::{Memory, Pages};
use onrush_primitives::switch::{Medium, PingPong, Who, futex_alone};
use onrush_primitives::{call, code, process};

use super::Found;
use super::method::{Method, six_digits};
use super::null_calls::{NullCalls, THREADS_OF_PROCESS};
use crate::stats::{median, ratio, to_f64};

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found) {
    code(method, found);
    loops(method, found);
    calls(method, found);
    creation(method, found);
    fork_over_memory(method, found);
    leaving(method, found);
    switches(method, found);
}

fn code(method: &Method, found: &mut Found) {
    let time = method.time(30);
    found.samples("clock_read", method.clock_read_ns());
    let system = method.per_act(time, |times| {
        for _ in 0..times {
            black_box(monotonic_raw_ns());
        }
    });
    found.samples("clock_read_system", system);
    let additions = ratio(code::ADDITIONS, 1);
    let turns = method.per_act(time, |turns| {
        black_box(code::add(turns));
    });
    let hertz = turns
        .iter()
        .map(|ns| six_digits(1e9 * additions / ns))
        .collect();
    found.samples("processor_clock", hertz);
    found.samples("loop", method.per_act(time, code::spin));
    found.samples("loop_in_memory", method.per_act(time, code::spin_in_memory));
    for arguments in 0..=code::ARGUMENTS_MAX {
        let each = method.per_act(time, |times| code::call(arguments, times));
        found.samples(&format!("call_{arguments}"), each);
    }
}

/// A load and an addition, each alone in a turn of a loop and several in one; and what a turn of an
/// empty loop costs by how many there are, with the clock's cost, as the paper has it.
fn loops(method: &Method, found: &mut Found) {
    let time = method.time(30);
    let per = |samples: Vec<f64>, acts: u64| {
        let each = samples.iter().map(|ns| six_digits(ns / ratio(acts, 1)));
        each.collect::<Vec<_>>()
    };
    let ring = code::Ring::new();
    let plain = method.per_act(time, |turns| {
        black_box(ring.plain(turns));
    });
    let unrolled = method.per_act(time, |turns| {
        black_box(ring.unrolled(turns));
    });
    found.samples("load_plain", plain);
    found.samples("load_unrolled", per(unrolled, code::LOADS));
    let plain = method.per_act(time, |turns| {
        black_box(code::add_plain(turns));
    });
    let unrolled = method.per_act(time, |turns| {
        black_box(code::add(turns));
    });
    found.samples("add_plain", plain);
    found.samples("add_unrolled", per(unrolled, code::ADDITIONS));
    for (id, name, spin) in [
        ("loop_flat_from", "in registers", code::spin as fn(u64)),
        (
            "loop_in_memory_flat_from",
            "counter in memory",
            code::spin_in_memory,
        ),
    ] {
        let each = (0..=SWEEP_BITS_MAX).map(|bits| 1_u64 << bits).map(|turns| {
            let times = 0..method.much(63, 127);
            let samples = times.map(|_| method.once_with_clock(|| spin(turns)) / ratio(turns, 1));
            (turns, median(samples.collect::<Vec<_>>()).unwrap_or(0.0))
        });
        let each: Vec<_> = each.collect();
        for (turns, ns) in &each {
            found.point(SWEEP, name, *turns, *ns);
        }
        let from = flat_from(&each).map(|turns| vec![ratio(turns, 1)]);
        found.samples(id, from.unwrap_or_default());
    }
}

/// The curve's name.
pub(super) const SWEEP: &str = "loop_over_turns";
/// The paper's: up to 8192 turns.
const SWEEP_BITS_MAX: u32 = 13;
/// What is within this part of the last is as good as it.
const FLAT_WITHIN: f64 = 0.1;

/// From where on all costs are about the last one.
fn flat_from(each: &[(u64, f64)]) -> Option<u64> {
    let (_, last) = each.last()?;
    let is_flat = |(_, ns): &&(u64, f64)| (ns - last).abs() <= FLAT_WITHIN * last;
    let flat = each.iter().rev().take_while(is_flat);
    flat.last().map(|(turns, _)| *turns)
}

fn calls(method: &Method, found: &mut Found) {
    let time = method.time(40);
    found.samples(
        "getpid_cached",
        method.per_act(time, |times| {
            black_box(call::cached_getpid(times));
        }),
    );
    system_calls(method, found);
    found.samples("time_vdso", method.per_act(time, call::vdso_time));
    found.samples("time_crossing", method.per_act(time, call::crossing_time));
}

/// System calls that do nothing, on threads of several processes, or of this one if it cannot be
/// started again.
fn system_calls(method: &Method, found: &mut Found) {
    let processes = NullCalls::in_processes(method, PROCESSES);
    let each = match processes.is_empty() {
        true => vec![NullCalls::on_threads(method, THREADS)],
        false => processes,
    };
    let of_each = |figure: fn(&NullCalls) -> &[f64]| {
        let samples = each.iter().map(|calls| together(figure(calls)));
        samples.collect::<Vec<_>>().concat()
    };
    found.samples("getpid", of_each(|calls| &calls.getpid_ns));
    found.samples("getppid", of_each(|calls| &calls.getppid_ns));
    found.samples("getppid_cycles", of_each(|calls| &calls.getppid_cycles));
    let series = |figure: fn(&NullCalls) -> &[f64]| {
        let all: Vec<_> = each.iter().flat_map(figure).copied().collect();
        median(&all)
    };
    let (one, other) = (
        series(|calls| &calls.series[0]),
        series(|calls| &calls.series[1]),
    );
    if let (Some(one), Some(other)) = (one, other) {
        found.samples("getppid_repeats", vec![six_digits(one / other)]);
    }
}

/// The means of some threads each; of all, where there are few.
fn together(each: &[f64]) -> Vec<f64> {
    let mean = |some: &[f64]| six_digits(some.iter().sum::<f64>() / to_f64(some.len()));
    let whole = each.chunks_exact(TOGETHER).map(mean).collect::<Vec<_>>();
    match whole.is_empty() && !each.is_empty() {
        true => vec![mean(each)],
        false => whole,
    }
}

/// Processes one after the other, and threads that take a turn each if there is but this one.
const PROCESSES: u16 = 33;
const THREADS: u16 = 99;
/// Threads of whose figures the mean is one sample: threads are of two kinds, and a median of two
/// kinds jumps.
const TOGETHER: usize = THREADS_OF_PROCESS as usize;

fn creation(method: &Method, found: &mut Found) {
    let time = method.time(120);
    let times_of = |act: &dyn Fn() -> io::Result<()>| {
        method.try_per_act(time, |times| (0..times).try_for_each(|_| act()))
    };
    found.try_samples("fork", times_of(&process::fork_and_wait));
    found.try_samples("vfork", times_of(&process::vfork_and_wait));
    let program = [c"/bin/true", c"/usr/bin/true"].into_iter().find(|path| {
        path.to_str()
            .is_ok_and(|path| std::path::Path::new(path).exists())
    });
    match program {
        Some(path) => {
            found.try_samples("fork_exec", times_of(&|| process::fork_exec_and_wait(path)));
            found.try_samples("spawn_exec", times_of(&|| process::spawn_and_wait(path)));
        }
        None => {
            for id in ["fork_exec", "spawn_exec"] {
                found.missing(id, "there is no /bin/true to become; install coreutils");
            }
        }
    }
    let thread_each = times_of(&|| {
        let thread = thread::Builder::new().spawn(|| ())?;
        thread
            .join()
            .map_err(|_| io::Error::other("a thread that does nothing has failed"))
    });
    found.try_samples("thread", thread_each);
}

/// Forks with more and more memory that was touched, on base pages and on huge ones: what each page
/// adds to a child that leaves at once.
fn fork_over_memory(method: &Method, found: &mut Found) {
    for (id, name, pages, page) in [
        ("fork_page", "on 4 KB pages", Pages::Base, page_bytes()),
        (
            "fork_huge_page",
            "on huge pages",
            Pages::Huge,
            HUGE_PAGE_BYTES,
        ),
    ] {
        let each = FORK_MIB.into_iter().map(|mib| {
            let bytes = mib << 20;
            // At least something is mapped; of nothing none is touched.
            let mut memory = Memory::map(bytes.max(1), pages)?;
            memory.touch(bytes);
            let huge = memory.huge_bytes().unwrap_or(0);
            if pages == Pages::Huge && huge < bytes as u64 / 2 {
                return Err(io::Error::other(
                    "the kernel gives no huge pages here (transparent_hugepage, fragmentation)",
                ));
            }
            let times = method.try_per_act(method.time(30), |times| {
                (0..times).try_for_each(|_| process::fork_and_wait())
            })?;
            Ok((bytes, median(&times).unwrap_or(0.0)))
        });
        let Some(each) = found.there(&[id], each.collect::<io::Result<Vec<_>>>()) else {
            continue;
        };
        for (bytes, ns) in &each {
            found.point(FORKS, name, *bytes as u64, *ns);
        }
        if let (Some((_, none)), Some((bytes, most))) = (each.first(), each.last()) {
            let added = (most - none) / to_f64(bytes / page);
            found.samples(id, vec![six_digits(added)]);
        }
    }
}

/// The curve's name.
pub(super) const FORKS: &str = "fork_over_memory";
/// How much memory was touched before, in MiB.
const FORK_MIB: [usize; 4] = [0, 8, 32, 64];

/// The end of a child that was made before: while its parent sleeps until then, and while nobody
/// waits for it.
fn leaving(method: &Method, found: &mut Found) {
    for (id, parent) in [
        ("exit_waited", Parent::Waits),
        ("exit_unwaited", Parent::Yields),
    ] {
        let samples = (0..method.much(15, 40)).map(|_| {
            let leaver = Leaver::start()?;
            let (taken_ns, left) = method.once(|| leaver.leave(parent));
            left.map(|()| six_digits(taken_ns))
        });
        found.try_samples(id, samples.collect());
    }
}

fn switches(method: &Method, found: &mut Found) {
    let time = method.time(60);
    let alone = io::pipe()
        .and_then(|mut ends| method.try_per_act(time, |times| call::pipe_alone(&mut ends, times)));
    found.try_samples("pipe_alone", alone);
    found.try_samples("futex_alone", method.try_per_act(time, futex_alone));
    for (id, who, medium) in [
        ("switch_process_pipe", Who::Process, Medium::Pipe),
        ("switch_process_futex", Who::Process, Medium::Futex),
        ("switch_thread_pipe", Who::Thread, Medium::Pipe),
        ("switch_thread_futex", Who::Thread, Medium::Futex),
    ] {
        let alone = match medium {
            Medium::Pipe => "pipe_alone",
            Medium::Futex => "futex_alone",
        };
        let alone_ns = found.latest(alone).unwrap_or(0.0);
        let rounds = PingPong::start(who, medium)
            .and_then(|mut pair| method.try_per_act(time, |times| pair.rounds(times)));
        // A round is two switches and twice what it takes to ask and to listen.
        let each = |round_ns: &f64| six_digits(round_ns / 2.0 - alone_ns);
        found.try_samples(id, rounds.map(|rounds| rounds.iter().map(each).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_flat_from_where_all_that_follow_are_as_the_last() {
        let of = |costs: &[f64]| {
            let turns = (0..costs.len()).map(|bits| 1_u64 << bits);
            let each: Vec<_> = turns.zip(costs.iter().copied()).collect();
            flat_from(&each)
        };
        assert_eq!(
            of(&[41.0, 21.0, 11.0, 6.0, 1.09, 1.2, 1.05, 0.95, 1.0]),
            Some(64)
        );
        assert_eq!(of(&[9.0, 1.0, 1.0]), Some(2));
        assert_eq!(of(&[1.0]), Some(1));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn some_threads_are_a_sample() {
        let each: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(together(&each), [3.0, 10.0, 17.0]);
        assert_eq!(together(&[1.0, 2.0]), [1.5]);
        assert!(together(&[]).is_empty());
    }
}
