//! Signals that end a server, and its log.

use std::env::{self, VarError};
use std::fmt;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use onrush_server::admin::log_tail::LOG_TAIL;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt as log};

use crate::log_queue::LOG_QUEUE;
use crate::values::LogFormat;

/// Logs to standard error from now on, what RUST_LOG asks for.
///
/// # Errors
///
/// When RUST_LOG is not a list of levels: that nothing was logged is found out too late.
pub(crate) fn log_to_stderr(format: LogFormat) -> anyhow::Result<()> {
    let levels = levels()?;
    let lines = log::layer()
        .with_writer(|| Tee)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(levels))
        .init();
    Ok(())
}

/// By target alone: filters by spans' fields take an engine of regular expressions to build, and
/// there are no spans here.
fn levels() -> anyhow::Result<Targets> {
    let asked = match env::var("RUST_LOG") {
        Ok(asked) if !asked.is_empty() => asked,
        Ok(_) | Err(VarError::NotPresent) => {
            return Ok(Targets::new().with_default(LevelFilter::INFO));
        }
        Err(VarError::NotUnicode(_)) => bail!("RUST_LOG is not UTF-8"),
    };
    asked.parse().with_context(|| {
        format!(
            "RUST_LOG is {asked:?}: write error, warn, info, debug or trace, \
             or levels of parts as in info,onrush_server::rtsp=debug"
        )
    })
}

/// Gives a line to whoever writes stderr, and to where the dashboard finds the last ones.
pub(crate) struct Tee;

impl io::Write for Tee {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LOG_TAIL.push(line);
        if !LOG_QUEUE.push(line) {
            io::stderr().write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// SIGINT, SIGTERM and SIGUSR2, caught from the moment this exists, and SIGHUP if there is
/// something to read again.
pub(crate) struct Signals {
    runtime: Runtime,
    hangup: Option<Signal>,
    interrupt: Signal,
    terminate: Signal,
    hand_over: Signal,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum SignalName {
    Hangup,
    Interrupt,
    Terminate,
    /// A program that was started meanwhile is to take this one's place.
    HandOver,
}

impl Signals {
    /// Without `hears_hangup` a SIGHUP ends the program, as ever.
    pub(crate) fn listen(hears_hangup: bool) -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let guard = runtime.enter();
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hand_over = signal(SignalKind::user_defined2())?;
        let hangup = hears_hangup.then(|| signal(SignalKind::hangup()));
        let hangup = hangup.transpose()?;
        drop(guard);
        Ok(Self {
            runtime,
            hangup,
            interrupt,
            terminate,
            hand_over,
        })
    }

    /// Waits for the next one.
    pub(crate) fn next(&mut self) -> SignalName {
        match self.next_or(std::future::pending::<std::convert::Infallible>()) {
            Ok(name) => name,
            Err(never) => match never {},
        }
    }

    /// Waits for the next one, or for something else, which is then the error.
    pub(crate) fn next_or<T>(&mut self, other: impl Future<Output = T>) -> Result<SignalName, T> {
        let Self {
            runtime,
            hangup,
            interrupt,
            terminate,
            hand_over,
        } = self;
        let hung_up = async {
            match hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => Ok(SignalName::Interrupt),
                _ = terminate.recv() => Ok(SignalName::Terminate),
                _ = hand_over.recv() => Ok(SignalName::HandOver),
                _ = hung_up => Ok(SignalName::Hangup),
                other = other => Err(other),
            }
        })
    }

    /// Waits for the next one that ends the program.
    pub(crate) fn next_end(&mut self) -> SignalName {
        loop {
            match self.next() {
                SignalName::HandOver => {
                    tracing::warn!("SIGUSR2: this command has no successor that could take over");
                }
                end => return end,
            }
        }
    }

    /// Waits for the next one, for so long at the most.
    pub(crate) fn next_within(&mut self, time: Duration) -> Option<SignalName> {
        // Made when it is first waited for, which is on the runtime that keeps its time.
        self.next_or(async { tokio::time::sleep(time).await }).ok()
    }

    /// Ends the program at the next one; but not at an echo of the one before: timeout(1), for one,
    /// sends each to the program and then to its group.
    pub(crate) fn exit_at_next(mut self) -> ! {
        const ECHO: Duration = Duration::from_millis(250);
        let first = Instant::now();
        loop {
            let name = self.next_end();
            let ends = !matches!(name, SignalName::Hangup);
            if ends && first.elapsed() > ECHO {
                LOG_QUEUE.flush();
                #[allow(clippy::exit, reason = "who asks twice wants to wait for nothing")]
                std::process::exit(128 + name.number());
            }
        }
    }
}

impl SignalName {
    fn number(self) -> i32 {
        match self {
            Self::Hangup => libc::SIGHUP,
            Self::Interrupt => libc::SIGINT,
            Self::Terminate => libc::SIGTERM,
            Self::HandOver => libc::SIGUSR2,
        }
    }
}

impl fmt::Display for SignalName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Hangup => "SIGHUP",
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
            Self::HandOver => "SIGUSR2",
        })
    }
}
