//! A partner, a thread or a process, that answers each time it is asked: two switches a round, when
//! both are bound to one processor.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use rustix::thread::futex;
use rustix::time::Timespec;

use super::process;

/// What the partner is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Who {
    /// A thread of this process.
    Thread,
    /// A process of its own.
    Process,
}

/// How the two wake each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Medium {
    /// A byte through a pipe each way.
    Pipe,
    /// A word in shared memory, waited for by futex.
    Futex,
}

/// The two, ready. The partner is gone when this is dropped.
#[derive(Debug)]
pub struct PingPong {
    // Dropped first: the partner ends when its pipe does.
    link: Link,
    /// Ends a process that answers no more by pipe; a futex is waited for with a time.
    watch: Option<Watch>,
    partner: Partner,
}

#[derive(Debug)]
enum Link {
    Pipe(PipeWriter, PipeReader),
    Futex(Arc<Word>),
}

#[derive(Debug)]
enum Partner {
    Thread(Option<JoinHandle<()>>),
    Process(libc::pid_t),
}

impl PingPong {
    /// Starts a partner; it runs where the calling thread may run.
    pub fn start(who: Who, medium: Medium) -> io::Result<Self> {
        match medium {
            Medium::Pipe => Self::by_pipe(who),
            Medium::Futex => Self::by_futex(who),
        }
    }

    /// Asks the partner `times` times, each time waiting for its answer.
    ///
    /// # Errors
    ///
    /// If the partner is gone, or has not answered for [`ANSWER_SECONDS_MAX`] to twice as long.
    pub fn rounds(&mut self, times: u64) -> io::Result<()> {
        match &mut self.link {
            Link::Pipe(to, from) => {
                let mut byte = [0_u8; 1];
                let asking = self.watch.as_ref().map(Watch::asking);
                for _ in 0..times {
                    to.write_all(&byte)?;
                    from.read_exact(&mut byte)?;
                    if let Some(asking) = &asking {
                        asking.answered();
                    }
                }
            }
            Link::Futex(word) => {
                for _ in 0..times {
                    word.set(THEIRS);
                    while word.value() == THEIRS {
                        word.wait_while(THEIRS)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn by_pipe(who: Who) -> io::Result<Self> {
        let (ask_in, ask_out) = io::pipe()?;
        let (answer_in, answer_out) = io::pipe()?;
        let partner = match who {
            Who::Thread => {
                let (mut from, mut to) = (ask_in, answer_out);
                Partner::thread(move || {
                    let mut byte = [0_u8; 1];
                    while from.read_exact(&mut byte).is_ok() && to.write_all(&byte).is_ok() {}
                })?
            }
            Who::Process => Partner::process(|| {
                // Its copies of our ends, or it would never see them closed.
                close(ask_out.as_raw_fd());
                close(answer_in.as_raw_fd());
                echo(ask_in.as_raw_fd(), answer_out.as_raw_fd());
            })?,
        };
        let link = Link::Pipe(ask_out, answer_in);
        let watch = match &partner {
            Partner::Process(child) => Some(Watch::over(*child)?),
            Partner::Thread(_) => None,
        };
        Ok(Self {
            link,
            watch,
            partner,
        })
    }

    fn by_futex(who: Who) -> io::Result<Self> {
        let word = Arc::new(Word::new(who == Who::Thread)?);
        let theirs = Arc::clone(&word);
        let partner = match who {
            Who::Thread => Partner::thread(move || answer(&theirs))?,
            Who::Process => Partner::process(|| answer(&theirs))?,
        };
        let link = Link::Futex(word);
        Ok(Self {
            link,
            watch: None,
            partner,
        })
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        match &mut self.link {
            Link::Futex(word) => word.set(OVER),
            Link::Pipe(to, _) => {
                // A closed pipe is its end; this one is closed by putting another in its place.
                if let Ok((_, other)) = io::pipe() {
                    *to = other;
                }
            }
        }
        // Before the partner is taken away: its number is its own until then.
        self.watch = None;
        match &mut self.partner {
            Partner::Thread(thread) => drop(thread.take().map(JoinHandle::join)),
            Partner::Process(child) => end(*child),
        }
    }
}

/// A thread that looks every second whether a partner that was asked has answered since, and kills
/// it if not, so that its pipe ends.
#[derive(Debug)]
struct Watch {
    looked_at: Arc<LookedAt>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct LookedAt {
    /// Answers so far.
    answers: AtomicU64,
    is_asking: AtomicBool,
    is_over: Mutex<bool>,
    over: Condvar,
}

struct Asking<'w>(&'w LookedAt);

impl Watch {
    fn over(child: libc::pid_t) -> io::Result<Self> {
        let looked_at = Arc::new(LookedAt::default());
        let theirs = Arc::clone(&looked_at);
        let thread = thread::Builder::new().name("watch".to_owned());
        let thread = Some(thread.spawn(move || theirs.watch(child))?);
        Ok(Self { looked_at, thread })
    }

    fn asking(&self) -> Asking<'_> {
        self.looked_at.is_asking.store(true, Ordering::Relaxed);
        Asking(&self.looked_at)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(mut is_over) = self.looked_at.is_over.lock() {
            *is_over = true;
        }
        self.looked_at.over.notify_all();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl LookedAt {
    fn watch(&self, child: libc::pid_t) {
        let time = Duration::from_secs(ANSWER_SECONDS_MAX.unsigned_abs());
        let mut last = None;
        let Ok(mut is_over) = self.is_over.lock() else {
            return;
        };
        while !*is_over {
            let Ok((guard, waited)) = self.over.wait_timeout(is_over, time) else {
                return;
            };
            is_over = guard;
            let is_asking = self.is_asking.load(Ordering::Relaxed);
            let now = is_asking.then(|| self.answers.load(Ordering::Relaxed));
            if waited.timed_out() && now.is_some() && now == last {
                // The partner is not taken away before this thread has ended.
                kill_process(process::pid(child), Signal::KILL).ok();
                return;
            }
            last = now;
        }
    }
}

impl Asking<'_> {
    fn answered(&self) {
        let answers = &self.0.answers;
        // Nobody else writes it.
        answers.store(answers.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.is_asking.store(false, Ordering::Relaxed);
    }
}

impl Partner {
    fn thread(act: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = thread::Builder::new()
            .name("partner".to_owned())
            .spawn(act)?;
        Ok(Self::Thread(Some(thread)))
    }

    /// Forks. `act` may only do what a signal handler may.
    fn process(act: impl FnOnce()) -> io::Result<Self> {
        fork(act).map(Self::Process)
    }
}

/// Forks a child that does `act`, which may only do what a signal handler may, and leaves. It is
/// killed when the calling thread ends.
pub(super) fn fork(act: impl FnOnce()) -> io::Result<libc::pid_t> {
    // SAFETY: every `act` in this folder makes bare system calls only, and never returns to our
    // code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: takes integers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
            act();
            // SAFETY: runs nothing of ours; does not return.
            unsafe { libc::_exit(0) }
        }
        child => Ok(child),
    }
}

/// Ends a child of ours and takes it away.
pub(super) fn end(child: libc::pid_t) {
    // Nobody has waited for it, so that its number is still its own.
    kill_process(process::pid(child), Signal::KILL).ok();
    process::wait(child).ok();
}

fn close(file: i32) {
    // SAFETY: only called in a child, on its copies, which it does not use.
    unsafe { libc::close(file) };
}

/// Sends back every byte until there are no more.
fn echo(from: i32, to: i32) {
    let mut byte = 0_u8;
    loop {
        // SAFETY: `byte` is valid for one byte.
        if unsafe { libc::read(from, (&raw mut byte).cast(), 1) } != 1 {
            return;
        }
        // SAFETY: as above.
        if unsafe { libc::write(to, (&raw const byte).cast(), 1) } != 1 {
            return;
        }
    }
}

/// Gives the word back each time it is given, until it is over.
fn answer(word: &Word) {
    loop {
        match word.value() {
            OURS => {
                // A time-out only means that nobody asks just now.
                word.wait_while(OURS).ok();
            }
            THEIRS => {
                word.answer();
            }
            _ => return,
        }
    }
}

/// Whoever asks has the word.
const OURS: u32 = 0;
const THEIRS: u32 = 1;
const OVER: u32 = 2;

/// How long an answer may take, in seconds, before the partner is held to be gone.
pub const ANSWER_SECONDS_MAX: i64 = 2;

/// A word of shared memory.
#[derive(Debug)]
struct Word {
    at: NonNull<AtomicU32>,
    flags: futex::Flags,
}

impl Word {
    fn new(is_private: bool) -> io::Result<Self> {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: no address is demanded.
        let at = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            at: NonNull::new(at.cast()).expect("mmap gives no page at 0 unless asked"),
            flags: match is_private {
                true => futex::Flags::PRIVATE,
                false => futex::Flags::empty(),
            },
        })
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped, aligned and zeroed as long as `self` lives, and only used as an atomic.
        unsafe { self.at.as_ref() }
    }

    fn value(&self) -> u32 {
        self.word().load(Ordering::Acquire)
    }

    fn set(&self, value: u32) {
        self.word().store(value, Ordering::Release);
        self.wake();
    }

    /// From theirs to ours, unless it has been declared over meanwhile.
    fn answer(&self) {
        let word = self.word();
        if word
            .compare_exchange(THEIRS, OURS, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            self.wake();
        }
    }

    fn wake(&self) {
        // Fails for no word that is mapped.
        let _woken = futex::wake(self.word(), self.flags, 1);
    }

    /// Sleeps while it is `value`; returns also for no reason.
    fn wait_while(&self, value: u32) -> io::Result<()> {
        let timeout = Timespec {
            tv_sec: ANSWER_SECONDS_MAX,
            tv_nsec: 0,
        };
        // Needs no allocation, so that a child may ask too.
        match futex::wait(self.word(), self.flags, value, Some(&timeout)) {
            Err(Errno::TIMEDOUT) => Err(Errno::TIMEDOUT.into()),
            _ => Ok(()),
        }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; a partner process has its own mapping of it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), BYTES) };
    }
}

const BYTES: usize = 4096;

// SAFETY: it is a mapping that is only used as an atomic.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

/// A futex that nobody waits for is woken and one that has changed is waited for: both calls, no
/// switch.
pub fn futex_alone(times: u64) -> io::Result<()> {
    let word = Word::new(true)?;
    for _ in 0..times {
        word.set(OURS);
        word.wait_while(THEIRS)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_that_is_stuck_is_an_error() {
        for medium in [Medium::Pipe, Medium::Futex] {
            let mut pair = PingPong::start(Who::Process, medium).expect("a partner");
            pair.rounds(3).expect("it answers");
            let Partner::Process(child) = pair.partner else {
                panic!("a process was asked for");
            };
            // SAFETY: our own child, which nobody has waited for.
            unsafe { libc::kill(child, libc::SIGSTOP) };
            assert!(pair.rounds(1).is_err(), "{medium:?}");
        }
    }

    fn switches_of_thread() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("procfs");
        let counts = status.lines().filter_map(|line| {
            let (name, count) = line.split_once(':')?;
            name.ends_with("_ctxt_switches")
                .then(|| count.trim().parse::<u64>().ok())?
        });
        // Whoever is woken may have the processor before the other has come to wait: that counts
        // too.
        counts.sum()
    }

    #[test]
    fn each_round_gives_the_processor_away_and_gets_it_back() {
        const ROUNDS: u64 = 200;
        thread::spawn(|| {
            let core = onrush_sys::thread::allowed_cores()[0];
            onrush_sys::thread::pin_to(core).expect("an allowed core");
            for who in [Who::Thread, Who::Process] {
                for medium in [Medium::Pipe, Medium::Futex] {
                    let mut pair = PingPong::start(who, medium).expect("a partner");
                    pair.rounds(1).expect("answered");
                    let before = switches_of_thread();
                    pair.rounds(ROUNDS).expect("answered");
                    let switched = switches_of_thread() - before;
                    // A tick may have switched to the partner before we came to wait for it.
                    assert!(switched >= ROUNDS / 2, "{who:?} {medium:?}: {switched}");
                }
            }
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn without_a_partner_nothing_is_switched() {
        let before = switches_of_thread();
        futex_alone(1000).expect("no wait");
        super::super::call::pipe_alone(&mut io::pipe().expect("a pipe"), 1000).expect("no wait");
        assert!(switches_of_thread() - before < 500);
    }
}
