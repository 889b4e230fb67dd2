//! System calls that do nothing, in this process and in others of this program: what one takes is
//! another figure in each process.

use std::ffi::OsString;
use std::hint::black_box;
use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;

use onrush_primitives::{call, code};
use serde::{Deserialize, Serialize};

use super::method::{Method, six_digits};
use super::{Settings, WAIT_MAX, failed};
use crate::error::ExperimentError;
use crate::stats::{median, to_f64};

/// What starts this program so that it calls [`null_calls`] and prints what that returns. Behind it
/// come the nanoseconds of a tick, `--quick` and `--system-clock`.
pub type Again = Vec<OsString>;

/// What system calls that do nothing took on some threads of this process, as JSON for who has
/// started it and knows, perhaps, the nanoseconds of a tick.
///
/// # Errors
///
/// If nothing can be measured.
pub fn null_calls(
    settings: &Settings,
    ns_per_tick: Option<f64>,
) -> Result<String, ExperimentError> {
    let known = ns_per_tick.filter(|ns| ns.is_finite() && *ns > 0.0);
    let method = Method::without_basics(settings, known)?;
    let calls = NullCalls::on_threads(&method, THREADS_OF_PROCESS);
    serde_json::to_string(&calls).map_err(|_| failed())
}

/// What system calls that do nothing took in one process: a figure of each of its threads, and the
/// windows of both series of all of them.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct NullCalls {
    pub(super) getpid_ns: Vec<f64>,
    pub(super) getppid_ns: Vec<f64>,
    pub(super) getppid_cycles: Vec<f64>,
    pub(super) series: [Vec<f64>; 2],
}

impl NullCalls {
    /// Those of so many processes of this program, one after the other: where the pages of a
    /// program lie makes its calls faster or slower, for as long as the process lives. Empty if it
    /// cannot be started again, and fewer if one did not answer.
    pub(super) fn in_processes(method: &Method, count: u16) -> Vec<Self> {
        let Some(program) = &method.settings().null_calls else {
            return Vec::new();
        };
        let one = |_| {
            let json = output(program, method.settings(), method.ns_per_tick());
            serde_json::from_slice(&json.ok()?).ok()
        };
        // What did not answer once will not the next time, and each would be waited for.
        (0..count).map_while(one).collect()
    }

    /// Makes them on so many threads, one after the other.
    pub(super) fn on_threads(method: &Method, threads: u16) -> Self {
        let time = method.time(40) / TIME_PARTS;
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
                .extend(median(series.concat()).map(six_digits));
            for (all, of_thread) in all.series.iter_mut().zip(series) {
                all.extend(of_thread);
            }
        }
        all
    }
}

/// Does something on many threads, one after the other. All are there before the first
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

/// What the program prints. One that does not end in time is killed.
pub(super) fn output(again: &Again, settings: &Settings, ns_per_tick: f64) -> io::Result<Vec<u8>> {
    let (program, arguments) = again.split_first().ok_or(io::ErrorKind::NotFound)?;
    let flags = [
        (settings.quick, "--quick"),
        (settings.system_clock, "--system-clock"),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set);
    let mut child = Command::new(program)
        .args(arguments)
        .arg(ns_per_tick.to_string())
        .args(flags.map(|(_, flag)| flag))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut printed = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (to, from) = channel();
    let reads = thread::Builder::new().spawn(move || {
        let mut all = Vec::new();
        // Nobody listens any more if it took too long.
        to.send(printed.read_to_end(&mut all).map(|_| all)).ok();
    });
    let all = reads.map(|_reader| from.recv_timeout(WAIT_MAX));
    if !matches!(all, Ok(Ok(_))) {
        child.kill().ok();
    }
    let is_good = child.wait()?.success();
    match all? {
        Ok(all) if is_good => all,
        _ => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Threads of a process that take a turn each; the part of the time that each has; windows of a
/// thread.
pub(super) const THREADS_OF_PROCESS: u16 = 7;
const TIME_PARTS: u32 = 99;
const WINDOWS: usize = 34;
/// Additions and calls of a window: half a microsecond and some five.
const WINDOW_TURNS: u64 = 100;
const WINDOW_ADDITIONS: usize = 100 * 16;
const WINDOW_CALLS: u64 = 100;
const WINDOW_ACTS: usize = 100;
const _: () = assert!(WINDOW_ADDITIONS as u64 == WINDOW_TURNS * code::ADDITIONS);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn shell(script: &str) -> Again {
        ["sh", "-c", script].map(OsString::from).to_vec()
    }

    #[test]
    fn what_a_program_prints_is_had_if_it_ends_well() {
        let settings = Settings {
            system_clock: true,
            ..Settings::quick()
        };
        let of = |again: &Again| output(again, &settings, 0.5);
        let printed = of(&shell("echo $0 $1 $2")).unwrap();
        assert_eq!(printed, b"0.5 --quick --system-clock\n");
        assert!(of(&shell("echo x; exit 1")).is_err());
        assert!(of(&vec!["/no/such/program".into()]).is_err());
        assert!(of(&Again::new()).is_err());
    }

    #[test]
    fn a_process_has_figures_of_each_thread() {
        let settings = Settings::quick();
        // On a thread of its own, which it binds to a processor.
        let json = thread::spawn(move || null_calls(&settings, None).unwrap());
        let calls: serde_json::Value = serde_json::from_str(&json.join().unwrap()).unwrap();
        for figures in ["getpid_ns", "getppid_ns", "getppid_cycles"] {
            let figures = calls[figures].as_array().unwrap();
            assert_eq!(figures.len(), usize::from(THREADS_OF_PROCESS));
            assert!(figures.iter().all(|figure| figure.as_f64().unwrap() > 0.0));
        }
    }

    #[test]
    fn threads_take_turns_and_each_is_another() {
        const COUNT: u16 = 99;
        let inside = AtomicUsize::new(0);
        let seen = on_threads(COUNT, || {
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            thread::yield_now();
            inside.fetch_sub(1, Ordering::SeqCst);
            thread::current().id()
        });
        let different: HashSet<_> = seen.iter().collect();
        assert_eq!(
            (seen.len(), different.len()),
            (usize::from(COUNT), usize::from(COUNT))
        );
    }
}
