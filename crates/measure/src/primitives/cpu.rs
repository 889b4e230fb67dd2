//! Processor, scheduling, services: from reading the clock to switching processes.

use std::hint::black_box;
use std::io;
use std::thread;

use onrush_sys::primitive::counter::monotonic_raw_ns;
use onrush_sys::primitive::switch::{Medium, PingPong, Who, futex_alone};
use onrush_sys::primitive::{call, code, process};

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
    let mut keep = |id: &str, act: fn(u64) -> i32| {
        let samples = method.per_act(time, |times| {
            black_box(act(times));
        });
        found.samples(id, samples);
    };
    keep("getpid_cached", call::cached_getpid);
    keep("getpid", call::getpid);
    keep("getppid", call::getppid);
    windows(method, found);
    found.samples("time_vdso", method.per_act(time, call::vdso_time));
    found.samples("time_crossing", method.per_act(time, call::crossing_time));
}

/// The null system call in short windows, each between two of additions: what the processor's clock does
/// falls on both. Every other window is of a second series, so that what else the machine does falls on both
/// series.
fn windows(method: &Method, found: &mut Found) {
    let additions = |turns| {
        let (ns, sum) = method.once(|| code::add(turns));
        black_box(sum);
        ns
    };
    let mut series = [Vec::new(), Vec::new()];
    let mut blocks = Vec::new();
    for _ in 0..WINDOW_BLOCKS {
        let mut block = Vec::new();
        for window in 0..WINDOWS {
            let before_ns = additions(WINDOW_TURNS);
            let (ns, parent) = method.once(|| call::getppid(WINDOW_CALLS));
            black_box(parent);
            let added_ns = before_ns + additions(WINDOW_TURNS);
            let additions = to_f64(2 * WINDOW_ADDITIONS);
            let cycles = ns / to_f64(WINDOW_ACTS) / (added_ns / additions);
            if cycles.is_finite() {
                block.push(cycles);
                series[window % 2].push(cycles);
            }
        }
        blocks.extend(median(&block).map(six_digits));
    }
    found.samples("getppid_cycles", blocks);
    if let (Some(one), Some(other)) = (median(&series[0]), median(&series[1])) {
        found.samples("getppid_repeats", vec![six_digits(one / other)]);
    }
}

/// Windows of a block, and blocks of a round.
const WINDOWS: usize = 300;
const WINDOW_BLOCKS: usize = 11;
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
