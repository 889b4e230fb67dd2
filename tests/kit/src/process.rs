//! Programs under test: started in a namespace, watched from outside, gone when the test is.
//!
//! What a server says is collected line by line and waited for with a bound. What it holds is read
//! from `/proc`, so that a leak shows in the kernel's books and not only in the server's own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};

/// A running program, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Whether it leads a process group of its own, which ends with it.
    is_group: bool,
    log: Arc<Log>,
    readers: Vec<JoinHandle<()>>,
}

/// What a process holds at one moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Holdings {
    /// Open descriptors.
    pub descriptors: usize,
    /// Those of them that are sockets.
    pub sockets: usize,
    /// Threads, without the kernel's own io_uring workers, which come and go.
    pub threads: usize,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Memory under `mlock` in bytes; io_uring's registered buffers are not in it.
    pub locked_bytes: u64,
    /// Memory that is pinned, registered buffers among it, in bytes.
    pub pinned_bytes: u64,
}

#[derive(Debug, Default)]
struct Log {
    state: Mutex<LogState>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct LogState {
    lines: Vec<String>,
    /// Of stdout and stderr, how many have ended.
    ended: usize,
}

impl Process {
    /// Runs a command to its end, for so long at the most: how it ended, and all that it wrote to
    /// stdout and stderr.
    pub fn run(command: &mut Command, limit: Duration) -> io::Result<(ExitStatus, String)> {
        let mut process = Self::start(command)?;
        let status = process.wait(limit)?;
        // Waits for the end of the output: no line holds a zero.
        drop(process.wait_for_line("\0", limit));
        Ok((status, process.log()))
    }

    /// As [`Self::start`], in a process group of its own, all of which is killed when this is
    /// dropped: for a program that is a script, or that starts others, as browsers do.
    pub fn start_group(command: &mut Command) -> io::Result<Self> {
        let mut process = Self::start(command.process_group(0))?;
        process.is_group = true;
        Ok(process)
    }

    /// Starts `command` and collects its stdout and stderr.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let log = Arc::new(Log::default());
        let stdout = child.stdout.take().expect("stdout is piped");
        let stderr = child.stderr.take().expect("stderr is piped");
        let readers = vec![log.reader(stdout), log.reader(stderr)];
        Ok(Self {
            child,
            is_group: false,
            log,
            readers,
        })
    }

    /// Waits for the program to end, at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when it runs on.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        let give_up = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.wait_for_last_words();
                return Ok(status);
            }
            if Instant::now() >= give_up {
                let id = self.id();
                let text = format!(
                    "process {id} still runs after {timeout:?}:\n{}",
                    self.log_tail()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What a program that has ended said is in its pipes a moment longer. A grandchild that holds
    /// them is not waited for.
    fn wait_for_last_words(&self) {
        let is_open = |state: &mut LogState| state.ended < 2;
        let waited = self
            .log
            .grown
            .wait_timeout_while(self.log.lock(), LAST_WORDS_WAIT, is_open);
        drop(waited);
    }

    /// Asks the program to end as Ctrl-C does, and waits for that.
    pub fn interrupt(&mut self, timeout: Duration) -> io::Result<ExitStatus> {
        self.signal(Signal::INT)?;
        self.wait(timeout)
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Sends a signal. The program was not waited for yet, so its number is still its own.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Waits for a line that contains `text`, from the first line on; `None` if the program ends or
    /// `timeout` is over before.
    #[must_use]
    pub fn wait_for_line(&self, text: &str, timeout: Duration) -> Option<String> {
        self.wait_for_lines(text, 1, timeout).pop()
    }

    /// Waits until `count` lines contain `text`; all of those there are when they do, the program
    /// ends or `timeout` is over.
    #[must_use]
    pub fn wait_for_lines(&self, text: &str, count: usize, timeout: Duration) -> Vec<String> {
        let found = |state: &LogState| -> Vec<String> {
            state
                .lines
                .iter()
                .filter(|line| line.contains(text))
                .cloned()
                .collect()
        };
        let waited = self
            .log
            .grown
            .wait_timeout_while(self.log.lock(), timeout, |state| {
                state.ended < 2 && found(state).len() < count
            });
        found(&waited.unwrap_or_else(PoisonError::into_inner).0)
    }

    /// All it has said so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.log.lock().lines.join("\n")
    }

    /// The last of it, for the message of a failed test.
    #[must_use]
    pub fn log_tail(&self) -> String {
        let state = self.log.lock();
        state.lines[state.lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it holds now.
    pub fn holdings(&self) -> io::Result<Holdings> {
        Holdings::of(self.id())
    }

    /// Counts its system calls, all threads' together, for `interval`, with strace.
    pub fn count_system_calls(&self, interval: Duration) -> io::Result<BTreeMap<String, u64>> {
        self.count_system_calls_while(|| thread::sleep(interval))
    }

    /// The same, while `work` is done.
    pub fn count_system_calls_while(
        &self,
        work: impl FnOnce(),
    ) -> io::Result<BTreeMap<String, u64>> {
        let folder = tempfile::tempdir()?;
        let table = folder.path().join("table");
        let mut strace = Self::start(
            Command::new("strace")
                .args(["-c", "-f", "-p", &self.id().to_string(), "-o"])
                .arg(&table),
        )?;
        if strace.wait_for_line("attached", STRACE_WAIT).is_none() {
            return Err(io::Error::other(format!(
                "strace did not attach: {}",
                strace.log()
            )));
        }
        work();
        strace.interrupt(STRACE_WAIT)?;
        Ok(parse_strace(&fs::read_to_string(table)?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only for a process that is gone already, which is what is wanted. Of a group the
        // number is its leader's, which is nobody else's as long as it was not waited for.
        match self.is_group && matches!(self.child.try_wait(), Ok(None)) {
            true => drop(kill_process_group(
                Pid::from_child(&self.child),
                Signal::KILL,
            )),
            false => drop(self.child.kill()),
        }
        drop(self.child.wait());
        for reader in self.readers.drain(..) {
            // A grandchild may hold the pipe; then its reader ends with it.
            if reader.is_finished() {
                drop(reader.join());
            }
        }
    }
}

impl Holdings {
    /// What process `id` holds.
    pub fn of(id: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let (mut descriptors, mut sockets) = (0, 0);
        for entry in fs::read_dir(format!("/proc/{id}/fd"))? {
            let link = fs::read_link(entry?.path());
            descriptors += 1;
            sockets +=
                usize::from(link.is_ok_and(|to| to.to_string_lossy().starts_with("socket:")));
        }
        let mut threads = 0;
        for entry in fs::read_dir(format!("/proc/{id}/task"))? {
            let name = fs::read_to_string(entry?.path().join("comm"));
            threads += usize::from(name.is_ok_and(|name| !name.starts_with("iou-")));
        }
        Ok(Self {
            descriptors,
            sockets,
            threads,
            resident_bytes: kilobytes("VmRSS:") * 1024,
            locked_bytes: kilobytes("VmLck:") * 1024,
            pinned_bytes: kilobytes("VmPin:") * 1024,
        })
    }
}

impl Log {
    fn reader(self: &Arc<Self>, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let log = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let mut state = log.lock();
                if state.lines.len() < LINES_MAX {
                    state
                        .lines
                        .push(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
                drop(state);
                log.grown.notify_all();
            }
            log.lock().ended += 1;
            log.grown.notify_all();
        })
    }

    fn lock(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls of each kind in the table that `strace -c` writes.
fn parse_strace(table: &str) -> BTreeMap<String, u64> {
    table
        .lines()
        .filter_map(|line| {
            // % time, seconds, usecs/call, calls, errors if any, name.
            let fields: Vec<_> = line.split_whitespace().collect();
            let name = *fields.get(4..)?.last()?;
            (name != "total").then_some((name.to_owned(), fields[3].parse().ok()?))
        })
        .collect()
}

const LINES_SHOWN: usize = 40;
/// Lines that are kept of one program's output.
const LINES_MAX: usize = 100_000;
const LAST_WORDS_WAIT: Duration = Duration::from_secs(2);
const STRACE_WAIT: Duration = Duration::from_secs(20);

/// The built `onrush`: by its own path, or beside the laboratory's program, whose tests know only
/// that one.
///
/// # Panics
///
/// If there is neither.
#[must_use]
pub const fn onrush_program(
    onrush: Option<&'static str>,
    laboratory: Option<&'static str>,
) -> &'static str {
    match (onrush, laboratory) {
        (Some(onrush), _) => onrush,
        (None, Some(laboratory)) => laboratory.split_at(laboratory.len() - "-lab".len()).0,
        (None, None) => panic!("cargo names the programs of the package under test"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script])).unwrap()
    }

    #[test]
    fn lines_of_both_streams_are_waited_for() {
        let process = shell("echo one; echo two >&2; echo one more; sleep 60");
        assert_eq!(process.wait_for_line("tw", LONG).as_deref(), Some("two"));
        assert_eq!(process.wait_for_lines("one", 2, LONG), ["one", "one more"]);
        assert_eq!(
            process.wait_for_line("three", Duration::from_millis(1)),
            None
        );
    }

    /// Red without the wait: most of the lines were still in the pipe.
    #[test]
    fn last_words_are_heard_before_the_end_is_told() {
        for _ in 0..20 {
            let mut process = shell("seq 3000; exit 0");
            process.wait(LONG).unwrap();
            assert!(process.log().ends_with("3000"), "{}", process.log_tail());
        }
    }

    #[test]
    fn waiting_ends_when_the_program_does() {
        let mut process = shell("echo last words; exit 3");
        assert_eq!(process.wait_for_line("never", LONG), None);
        assert_eq!(process.wait(LONG).unwrap().code(), Some(3));
        assert_eq!(process.log(), "last words");
    }

    #[test]
    fn an_interrupt_is_ctrl_c_and_a_deaf_program_is_reported() {
        let mut process = shell("exec sleep 60");
        assert_eq!(process.interrupt(LONG).unwrap().signal(), Some(2));
        let mut deaf = shell("trap '' INT; echo ready; while :; do sleep 1; done");
        deaf.wait_for_line("ready", LONG).unwrap();
        let error = deaf.interrupt(Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(deaf.is_running().unwrap());
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = shell("exec sleep 60");
        let id = process.id();
        assert_eq!(process.holdings().unwrap().threads, 1);
        drop(process);
        Holdings::of(id).unwrap_err();
    }

    #[test]
    fn a_dropped_group_is_gone_with_all_it_started() {
        let mut script = Command::new("sh");
        script.args(["-c", "sleep 600 & echo started $!; wait"]);
        let process = Process::start_group(&mut script).unwrap();
        let line = process.wait_for_line("started", LONG).unwrap();
        let id = line.split(' ').next_back().unwrap().to_owned();
        // Whoever inherits it may take a while to take note of its end.
        let runs = || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat"));
            stat.is_ok_and(|it| !it.contains(") Z "))
        };
        assert!(runs());
        drop(process);
        let give_up = Instant::now() + LONG;
        while runs() {
            assert!(Instant::now() < give_up, "{id} runs on");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn holdings_count_descriptors_and_sockets() {
        let before = Holdings::of(std::process::id()).unwrap();
        let many: Vec<_> = (0..200)
            .map(|_| {
                (
                    std::net::UdpSocket::bind("127.0.0.1:0"),
                    fs::File::open("/dev/null"),
                )
            })
            .collect();
        let after = Holdings::of(std::process::id()).unwrap();
        drop(many);
        // Other tests of this process open and close a few of their own meanwhile.
        assert!(
            after.sockets >= before.sockets + 150,
            "{before:?} {after:?}"
        );
        assert!(
            after.descriptors >= before.descriptors + 350,
            "{before:?} {after:?}"
        );
    }

    #[test]
    fn system_calls_are_counted() {
        crate::require_root!();
        crate::require_programs!("strace", "python3");
        // One that starts no others: strace may wait for ever for a child that begins as it goes.
        let sleeping = "import time\nwhile True: time.sleep(0.01)";
        let process = Process::start(Command::new("python3").args(["-c", sleeping])).unwrap();
        // Traced, and on a busy machine, a turn may take long.
        let seen = (1..=20).find_map(|tenths| {
            let interval = Duration::from_millis(300 * tenths);
            let calls = process.count_system_calls(interval).unwrap();
            calls
                .get("clock_nanosleep")
                .copied()
                .filter(|&calls| calls > 2)
        });
        assert!(seen.is_some());
    }

    #[test]
    fn the_table_of_strace_is_read() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
             90.00    0.000900           9       100           io_uring_enter\n\
             10.00    0.000100           5        20         3 read\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.001000           8       120         3 total\n";
        let calls = parse_strace(table);
        assert_eq!(
            calls.into_iter().collect::<Vec<_>>(),
            [("io_uring_enter".to_owned(), 100), ("read".to_owned(), 20)]
        );
    }
}
