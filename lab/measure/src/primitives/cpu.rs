//! Processor, scheduling, services: from reading the clock to switching processes.

use std::hint::black_box;
use std::io;
use std::thread;

use onrush_primitives::counter::monotonic_raw_ns;
use onrush_primitives::switch::{Medium, PingPong, Who, futex_alone};
use onrush_primitives::{call, code, process};

use super::Found;
use super::method::{Method, six_digits};
use super::null_calls::{NullCalls, THREADS_OF_PROCESS};
use crate::stats::{median, ratio, to_f64};

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
    fn some_threads_are_a_sample() {
        let each: Vec<f64> = (0..25).map(f64::from).collect();
        assert_eq!(together(&each), [3.0, 10.0, 17.0]);
        assert_eq!(together(&[1.0, 2.0]), [1.5]);
        assert!(together(&[]).is_empty());
    }
}
