//! Processor, scheduling, services: from reading the clock to switching processes.

use std::hint::black_box;
use std::io;
use std::sync::Mutex;
use std::thread;

use onrush_primitives::counter::monotonic_raw_ns;
use onrush_primitives::switch::{Medium, PingPong, Who, futex_alone};
use onrush_primitives::{call, code, process};
use serde::{Deserialize, Serialize};

use super::Found;
use super::method::{Method, six_digits};
use crate::stats::{median, to_f64};

/// One round of all.
pub(super) fn measure(method: &Method, found: &mut Found) {
    code(method, found);
    calls(method, found);
    creation(method, found);
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
    let additions = to_f64(usize::try_from(code::ADDITIONS).unwrap_or(1));
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
    let processes = method.in_processes(PROCESSES);
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

/// What system calls that do nothing took in one process: a figure of each of its threads, and the
/// windows of both series of all of them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct NullCalls {
    getpid_ns: Vec<f64>,
    getppid_ns: Vec<f64>,
    getppid_cycles: Vec<f64>,
    series: [Vec<f64>; 2],
}

impl NullCalls {
    /// Carries them out on so many threads, one after the other.
    pub(super) fn on_threads(method: &Method, threads: u16) -> Self {
        let time = method.time(40) / u32::from(THREADS);
        let each = on_threads(threads, || {
            let calls = [call::getpid as fn(u64) -> i32, call::getppid].map(|act| {
                let samples = method.per_act(time, |times| {
                    black_box(act(times));
                });
                median(&samples).map(six_digits)
            });
            (calls, windows(method))
        });
        let mut all = Self::default();
        for ([getpid, getppid], series) in each {
            all.getpid_ns.extend(getpid);
            all.getppid_ns.extend(getppid);
            all.getppid_cycles
                .extend(median(&series.concat()).map(six_digits));
            for (all, of_thread) in all.series.iter_mut().zip(series) {
                all.extend(of_thread);
            }
        }
        all
    }
}

/// Carries something out on many threads, one after the other. All are there before the first
/// begins, so that each has its own memory in the kernel (its stack, its task): where that lies
/// makes a system call several per cent faster or slower, for as long as the thread lives. Their
/// median is the machine's, one thread's is luck.
fn on_threads<T: Send>(count: u16, act: impl Fn() -> T + Sync) -> Vec<T> {
    let turn = Mutex::new(());
    let taken = thread::scope(|scope| {
        let all_wait = turn.lock();
        let threads: Vec<_> = (0..count)
            .map_while(|_| {
                let in_turn = || {
                    let _turn = turn.lock();
                    act()
                };
                thread::Builder::new().spawn_scoped(scope, in_turn).ok()
            })
            .collect();
        drop(all_wait);
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.filter_map(Result::ok).collect::<Vec<_>>()
    });
    // Where no threads are to be had, there is this one.
    if taken.is_empty() { vec![act()] } else { taken }
}

/// The null system call in short windows, each between two of additions: what the processor's clock
/// does falls on both. Every other window is of a second series, so that what else the machine does
/// falls on both series. Cycles of each.
fn windows(method: &Method) -> [Vec<f64>; 2] {
    let additions = |turns| {
        let (ns, sum) = method.once(|| code::add(turns));
        black_box(sum);
        ns
    };
    let window = |_| {
        let before_ns = additions(WINDOW_TURNS);
        let (ns, parent) = method.once(|| call::getppid(WINDOW_CALLS));
        black_box(parent);
        let added_ns = before_ns + additions(WINDOW_TURNS);
        ns / to_f64(WINDOW_ACTS) / (added_ns / to_f64(2 * WINDOW_ADDITIONS))
    };
    let cycles: Vec<f64> = (0..WINDOWS).map(window).collect();
    let every_other = |first: usize| {
        let series = cycles[first..].iter().step_by(2).copied();
        let finite = series.filter(|cycles| cycles.is_finite());
        finite.map(six_digits).collect()
    };
    [every_other(0), every_other(1)]
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

/// Processes one after the other, threads of each that take a turn each, threads if there is but
/// this process, and windows of a thread.
const PROCESSES: u16 = 33;
pub(super) const THREADS_OF_PROCESS: u16 = 7;
const THREADS: u16 = 99;
const WINDOWS: usize = 34;
/// Threads of whose figures the mean is one sample: threads are of two kinds, and a median of two
/// kinds jumps.
const TOGETHER: usize = THREADS_OF_PROCESS as usize;
/// Additions and calls of a window: half a microsecond and some five.
const WINDOW_TURNS: u64 = 100;
const WINDOW_ADDITIONS: usize = 100 * 16;
const WINDOW_CALLS: u64 = 100;
const WINDOW_ACTS: usize = 100;
const _: () = assert!(WINDOW_ADDITIONS as u64 == WINDOW_TURNS * code::ADDITIONS);

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
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn some_threads_are_a_sample() {
        let each: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(together(&each), [3.0, 10.0, 17.0]);
        assert_eq!(together(&[1.0, 2.0]), [1.5]);
        assert!(together(&[]).is_empty());
    }

    #[test]
    fn threads_take_turns_and_each_is_another() {
        let inside = AtomicUsize::new(0);
        let seen = on_threads(THREADS, || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            thread::current().id()
        });
        let different: HashSet<_> = seen.iter().collect();
        assert_eq!(
            (seen.len(), different.len()),
            (usize::from(THREADS), usize::from(THREADS))
        );
    }
}
