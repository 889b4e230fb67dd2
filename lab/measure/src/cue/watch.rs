//! Those who look on: receivers that count, and the metering thread.

use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_sys::thread::pin_to;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::machine::Background;
use crate::window;

/// What a line makes up for, because its timers are late.
const LINE_SLACK: Duration = Duration::from_millis(20);

/// Bytes that a receiver takes at once, without looking at them.
const RECEIVE_BYTES: usize = 1 << 20;

/// Calls between two looks at the clock of others.
const CALLS_A_ROUND: u64 = 64;

/// How receivers take what comes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Taking {
    /// As fast as it comes.
    AtOnce,
    /// Each no more than so many bytes a second.
    Line(u64),
    /// Nothing before they are told to; their windows hold [`super::HELD_BYTES_MAX`].
    Later,
}

/// Takes what arrives, counts it, and throws it away.
pub(super) struct Receivers {
    counts: Arc<[AtomicU64]>,
    /// Whether they may.
    may_take: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
}

impl Receivers {
    /// Connects so many pairs over loopback, and receives at the far ends on processor `core`.
    pub(super) fn start(
        count: u32,
        core: usize,
        taking: Taking,
    ) -> io::Result<(Self, Vec<TcpStream>)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let is_later = matches!(taking, Taking::Later);
        if is_later {
            window::widen(&listener)?;
        }
        let address = listener.local_addr()?;
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..count {
            near.push(TcpStream::connect(address)?);
            let (accepted, _) = listener.accept()?;
            if !is_later {
                window::keep(&accepted)?;
            }
            far.push(accepted);
        }
        let counts: Arc<[AtomicU64]> = (0..count).map(|_| AtomicU64::new(0)).collect();
        let its_counts = Arc::clone(&counts);
        let (may_take, hears) = watch::channel(!is_later);
        let thread = thread::Builder::new().name("cue-receive".to_owned());
        let thread = thread.spawn(move || {
            pin_to(core)?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let mut all = JoinSet::new();
                for (number, far) in far.into_iter().enumerate() {
                    let line = match taking {
                        Taking::Line(bytes_a_second) => Some(Line::new(bytes_a_second)),
                        Taking::AtOnce | Taking::Later => None,
                    };
                    let (counts, mut hears) = (Arc::clone(&its_counts), hears.clone());
                    all.spawn(async move {
                        // An error is that nobody is left who could say so.
                        hears.wait_for(|may| *may).await.ok();
                        receive(far, counts, number, line).await
                    });
                }
                while all.join_next().await.is_some() {}
            });
            Ok(())
        })?;
        let receivers = Self {
            counts,
            may_take,
            thread,
        };
        Ok((receivers, near))
    }

    /// They take what comes from now on.
    pub(super) fn take(&self) {
        self.may_take.send_replace(true);
    }

    /// What each has counted so far.
    pub(super) fn counts(&self) -> Vec<u64> {
        let counts = self.counts.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Waits until the near ends are closed and all has arrived; how much that was.
    pub(super) fn finish(self) -> io::Result<u64> {
        Ok(self.finished()?.iter().sum())
    }

    /// The same, what each has counted.
    pub(super) fn finished(self) -> io::Result<Vec<u64>> {
        let counts = Arc::clone(&self.counts);
        let ended = self.thread.join();
        ended.map_err(|_| io::Error::other("the receiver panicked"))??;
        Ok(counts.iter().map(|c| c.load(Ordering::Relaxed)).collect())
    }
}

async fn receive(
    far: TcpStream,
    counts: Arc<[AtomicU64]>,
    number: usize,
    mut line: Option<Line>,
) -> io::Result<()> {
    far.set_nonblocking(true)?;
    let far = tokio::net::TcpStream::from_std(far)?;
    // Never written to: with MSG_TRUNC TCP drops what it hands over (tcp(7)).
    let mut unused = vec![0; line.as_ref().map_or(RECEIVE_BYTES, |line| line.piece_bytes)];
    loop {
        let taken = far
            .async_io(Interest::READABLE, || {
                recv(&far, &mut unused, RecvFlags::TRUNC).map_err(io::Error::from)
            })
            .await?;
        if taken.1 == 0 {
            return Ok(());
        }
        counts[number].fetch_add(taken.1 as u64, Ordering::Relaxed);
        match &mut line {
            Some(line) => line.took(taken.1).await,
            // Others want to be received as well.
            None => tokio::task::yield_now().await,
        }
    }
}

/// A rate that is kept by taking no more.
struct Line {
    bytes_a_second: f64,
    /// Some milliseconds' worth.
    piece_bytes: usize,
    until: Instant,
}

impl Line {
    fn new(bytes_a_second: u64) -> Self {
        Self {
            #[allow(clippy::cast_precision_loss, reason = "a rate below 2^52")]
            bytes_a_second: bytes_a_second as f64,
            piece_bytes: usize::try_from(bytes_a_second / 200).map_or(RECEIVE_BYTES, |b| b.max(1)),
            until: Instant::now(),
        }
    }

    async fn took(&mut self, bytes: usize) {
        #[allow(clippy::cast_precision_loss, reason = "a piece")]
        let lasts = Duration::from_secs_f64(bytes as f64 / self.bytes_a_second);
        // A sender that was late does not get back what it has missed.
        self.until = self.until.max(Instant::now() - LINE_SLACK) + lasts;
        tokio::time::sleep_until(self.until).await;
    }
}

/// A thread that makes cheap system calls for as long as it lives, as the paper's metering process
/// did.
pub(super) struct Metering {
    calls: Arc<AtomicU64>,
    _thread: Background,
}

impl Metering {
    /// On processor `core`.
    pub(super) fn start(core: usize) -> io::Result<Self> {
        let calls = Arc::new(AtomicU64::new(0));
        let its_calls = Arc::clone(&calls);
        let thread = Background::start("metering", move |is_over| {
            if pin_to(core).is_err() {
                return;
            }
            while !is_over.load(Ordering::Relaxed) {
                for _ in 0..CALLS_A_ROUND {
                    // The paper's gettimeofday is no system call any more.
                    std::hint::black_box(rustix::process::getppid());
                }
                its_calls.fetch_add(CALLS_A_ROUND, Ordering::Relaxed);
            }
        })?;
        Ok(Self {
            calls,
            _thread: thread,
        })
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

/// How often these threads gave the processor up, and how often it was taken from them.
pub(super) fn switches(threads: &[u32]) -> (u64, u64) {
    let of = |thread: &u32| {
        let status = fs::read_to_string(format!("/proc/self/task/{thread}/status"));
        let status = status.unwrap_or_default();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
        };
        (
            field("voluntary_ctxt_switches:"),
            field("nonvoluntary_ctxt_switches:"),
        )
    };
    let sums = threads.iter().map(of);
    sums.fold((0, 0), |(v, i), (voluntary, involuntary)| {
        (v + voluntary, i + involuntary)
    })
}
