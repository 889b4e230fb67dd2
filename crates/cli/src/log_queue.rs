//! Lines of the log on their way to standard error: a thread of its own writes them, so that
//! whoever stops reading them stops no server. What finds no room meanwhile is counted and left
//! out.

use std::io::{self, Write};
use std::mem;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Bytes that wait at the most, and as many that are being written.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// How long the writer rests behind what it has written, so that many lines wake it once.
const REST: Duration = Duration::from_millis(50);

/// How long a process that ends waits for whoever reads.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// That of this process.
pub(crate) static LOG_QUEUE: LogQueue = LogQueue::new();

/// Lines that wait.
#[derive(Debug)]
pub(crate) struct LogQueue {
    /// The process whose thread writes: a child of fork has neither the thread nor, if it was held
    /// just then, a lock that is ever free.
    process: AtomicU32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Who writes, once somebody does.
    writer: Option<ThreadId>,
    lines: Vec<u8>,
    /// Lines that there was no room for, since the last that are being written.
    omitted: u64,
    is_writing: bool,
    /// The writer waits to be woken.
    is_idle: bool,
    /// Who waits until all is written.
    flushing: u32,
}

impl LogQueue {
    const fn new() -> Self {
        Self {
            process: AtomicU32::new(0),
            state: Mutex::new(State {
                writer: None,
                lines: Vec::new(),
                omitted: 0,
                is_writing: false,
                is_idle: false,
                flushing: 0,
            }),
            changed: Condvar::new(),
        }
    }

    /// Starts the thread: to be called when what threads may do is settled. Until then, and where
    /// it cannot be started, lines are for those to write who have them.
    pub(crate) fn start(&'static self) {
        self.start_to(StandardError, |omitted| {
            tracing::warn!(
                "{omitted} lines of the log are left out here: they were not read in time"
            );
        });
    }

    fn start_to(
        &'static self,
        to: impl Write + Send + 'static,
        say_omitted: impl Fn(u64) + Send + 'static,
    ) {
        let thread = thread::Builder::new().name("onrush-log".to_owned());
        match thread.spawn(move || self.write(to, say_omitted)) {
            Ok(thread) => {
                self.lock().writer = Some(thread.thread().id());
                self.process.store(process::id(), Ordering::Release);
            }
            Err(error) => tracing::warn!("the log is written by all who have lines: {error}"),
        }
    }

    /// Takes a line. `false` if it is the caller's to write.
    pub(crate) fn push(&self, line: &[u8]) -> bool {
        if !self.is_written_here() {
            return false;
        }
        let mut state = self.lock();
        // The writer itself says how many are left out: that is not left out.
        let is_writers = state.writer == Some(thread::current().id());
        match is_writers || state.lines.len() + line.len() <= WAITING_BYTES_MAX {
            true => state.lines.extend_from_slice(line),
            false => state.omitted += 1,
        }
        let wakes = mem::take(&mut state.is_idle);
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
        true
    }

    /// Waits until all lines are written, for a while: for a process that ends.
    pub(crate) fn flush(&self) {
        if self.is_written_here() {
            self.is_written_within(FLUSH_TIME_MAX);
        }
    }

    fn is_written_here(&self) -> bool {
        self.process.load(Ordering::Acquire) == process::id()
    }

    fn is_written_within(&self, time: Duration) -> bool {
        let is_behind = |state: &mut State| state.is_writing || !state.lines.is_empty();
        let mut state = self.lock();
        state.flushing += 1;
        let waited = self.changed.wait_timeout_while(state, time, is_behind);
        let (mut state, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        state.flushing -= 1;
        !waited.timed_out()
    }

    fn write(&self, mut to: impl Write, say_omitted: impl Fn(u64)) {
        loop {
            let is_empty = |state: &mut State| {
                state.is_idle = state.lines.is_empty() && state.omitted == 0;
                state.is_idle
            };
            let state = self.changed.wait_while(self.lock(), is_empty);
            let mut state = state.unwrap_or_else(PoisonError::into_inner);
            let lines = mem::take(&mut state.lines);
            let omitted = mem::take(&mut state.omitted);
            state.is_writing = true;
            drop(state);
            for line in lines.split_inclusive(|&byte| byte == b'\n') {
                // When nobody is left who reads there is nobody to tell.
                drop(to.write_all(line));
            }
            if omitted > 0 {
                say_omitted(omitted);
            }
            let mut state = self.lock();
            state.is_writing = false;
            let is_awaited = state.flushing > 0;
            drop(state);
            if is_awaited {
                self.changed.notify_all();
            } else {
                thread::sleep(REST);
            }
        }
    }

    /// Nothing that is locked here is ever left half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Descriptor 2, whatever it is by now. Not by the library's lock, which would be held while nobody
/// reads, and which whoever panics needs.
struct StandardError;

impl Write for StandardError {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stderr(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::sync::mpsc::channel;

    use super::*;

    const LINES: u64 = 8192;

    static QUEUE: LogQueue = LogQueue::new();

    /// Lines that are there or said to be left out, until that makes all.
    fn count(reader: impl io::Read) -> u64 {
        let mut all = 0;
        for line in BufReader::new(reader).lines().map(Result::unwrap) {
            let omitted = line.strip_suffix(" are left out");
            all += omitted.map_or(1, |it| it.parse().unwrap());
            if all == LINES {
                break;
            }
        }
        all
    }

    #[test]
    fn who_does_not_read_the_log_holds_nobody_up() {
        let line = [[b'x'; 1023].as_slice(), b"\n"].concat();
        assert!(!QUEUE.push(&line), "nobody would write it");
        let (reader, writer) = io::pipe().unwrap();
        QUEUE.start_to(writer, |omitted| {
            assert!(QUEUE.push(format!("{omitted} are left out\n").as_bytes()));
        });
        // Many times what a pipe takes, and what waits at the most.
        for _ in 0..LINES {
            assert!(QUEUE.push(&line));
        }
        assert!(!QUEUE.is_written_within(Duration::ZERO));
        let (tell, told) = channel();
        thread::spawn(move || tell.send(count(reader)));
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(LINES));
        assert!(QUEUE.is_written_within(Duration::from_secs(60)));
    }

    #[test]
    fn a_child_of_fork_writes_its_lines_itself() {
        static QUEUE: LogQueue = LogQueue::new();
        QUEUE.start_to(io::sink(), |_| {});
        assert!(QUEUE.push(b"a line\n"));
        // As in a child, whose parent held the lock when it forked.
        QUEUE.process.store(process::id() + 1, Ordering::Release);
        let _held = QUEUE.lock();
        assert!(!QUEUE.push(b"a line\n"));
        QUEUE.flush();
    }
}
