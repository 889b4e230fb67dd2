//! Those who send, all on one processor.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_server::transfer::{Control, Policy, Settings, Transfers};
use onrush_sys::path::cue::{self, chain};
use onrush_sys::thread::pin_to;
use onrush_wire::pace::schedule::{Fixed, Schedule};
use tokio::io::AsyncWriteExt;
use tokio::task::{LocalSet, spawn_local};

use super::{BLOCK_BYTES, Contestant};

/// What the names of all their threads begin with.
pub(super) const THREAD_NAME: &str = "cue-send";

/// Bytes that the user loop reads and writes at once.
const USER_LOOP_BYTES: usize = 64 << 10;

/// Sets that one chain has: half a second of them or so, so that it can be stopped.
const CHAIN_SETS: u64 = 32;

/// What all senders of a run work with.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) file: Arc<File>,
    /// What each transfer sends.
    pub(super) shares: Vec<Range<u64>>,
    /// Whether it sends it once, or again and again until it is stopped.
    pub(super) once: bool,
    pub(super) core: usize,
    pub(super) left_to_others: f64,
    pub(super) progress: Arc<Progress>,
}

/// What is known of the senders from outside.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) stopping: AtomicBool,
    pub(super) sent_bytes: AtomicU64,
    /// Transfers that have sent all they had.
    pub(super) done: AtomicU32,
}

impl Progress {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Keeps the thread, with the times that the kernel has for it, until somebody has looked.
    fn linger(&self) {
        while !self.is_stopping() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

type Thread = JoinHandle<io::Result<()>>;

/// Starts sending on all sockets. The threads end once they are told to stop; then the sockets are
/// closed.
pub(super) fn start(
    contestant: Contestant,
    task: &Task,
    sockets: Vec<TcpStream>,
) -> io::Result<Vec<Thread>> {
    match contestant {
        Contestant::Nobody => Ok(Vec::new()),
        Contestant::UserDriven => threads(task, sockets, user_driven),
        Contestant::SendfileLoop => threads(task, sockets, bare_sendfile),
        Contestant::Chain {
            block_bytes,
            blocks,
            pause_ms,
        } => threads(task, sockets, move |task, share, socket| {
            let pause = Duration::from_millis(pause_ms.into());
            chained(task, share, socket, block_bytes * blocks, pause)
        }),
        Contestant::UserLoop => one(task, move |task| user_loop(task, sockets)),
        Contestant::Fixed {
            block_bytes,
            blocks,
            pause_ms,
        } => {
            let fixed = Fixed {
                block_bytes,
                blocks,
                pause_ns: u64::from(pause_ms) * 1_000_000,
            };
            one(task, move |task| {
                engine(task, sockets, Schedule::Fixed(fixed))
            })
        }
        Contestant::Fair => one(task, move |task| engine(task, sockets, Schedule::Fair)),
        Contestant::Adaptive => one(task, move |task| engine(task, sockets, Schedule::Adaptive)),
    }
}

/// One thread for all.
fn one(
    task: &Task,
    send: impl FnOnce(&Task) -> io::Result<()> + Send + 'static,
) -> io::Result<Vec<Thread>> {
    let task = task.clone();
    let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
    let thread = thread.spawn(move || {
        pin_to(task.core)?;
        send(&task)
    })?;
    Ok(vec![thread])
}

/// A thread for each transfer, which sends its share with `send`, once or over and over.
fn threads(
    task: &Task,
    sockets: Vec<TcpStream>,
    send: impl Fn(&Task, Range<u64>, &TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<Vec<Thread>> {
    let pairs = sockets.into_iter().zip(task.shares.clone());
    pairs
        .map(|(socket, share)| {
            let (task, send) = (task.clone(), send.clone());
            let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
            thread.spawn(move || {
                pin_to(task.core)?;
                while !task.progress.is_stopping() {
                    send(&task, share.clone(), &socket)?;
                    if task.once {
                        task.progress.done.fetch_add(1, Ordering::Relaxed);
                        task.progress.linger();
                    }
                }
                Ok(())
            })
        })
        .collect()
}

fn user_driven(task: &Task, share: Range<u64>, mut socket: &TcpStream) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES as usize];
    let mut at = share.start;
    while at < share.end && !task.progress.is_stopping() {
        let bytes =
            usize::try_from(share.end - at).map_or(block.len(), |left| left.min(block.len()));
        task.file.read_exact_at(&mut block[..bytes], at)?;
        socket.write_all(&block[..bytes])?;
        at += bytes as u64;
        task.progress.sent(bytes as u64);
    }
    Ok(())
}

fn bare_sendfile(task: &Task, share: Range<u64>, socket: &TcpStream) -> io::Result<()> {
    let mut at = share.start;
    while at < share.end {
        // A blocking socket: it comes back when all of it was taken.
        let step = cue::step(task.file.as_fd(), at, share.end - at, socket.as_fd())?;
        at += step.sent_bytes;
        task.progress.sent(step.sent_bytes);
    }
    Ok(())
}

fn chained(
    task: &Task,
    share: Range<u64>,
    socket: &TcpStream,
    set_bytes: u32,
    pause: Duration,
) -> io::Result<()> {
    let mut at = share.start;
    while at < share.end && !task.progress.is_stopping() {
        let end = (at + CHAIN_SETS * u64::from(set_bytes)).min(share.end);
        chain::send(&task.file, at..end, socket.as_fd(), set_bytes, pause)
            .map_err(io::Error::other)?;
        task.progress.sent(end - at);
        at = end;
        thread::sleep(pause);
    }
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(THREAD_NAME)
        .build()
}

async fn stopped(progress: &Progress) {
    while !progress.is_stopping() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn to_tokio(socket: TcpStream) -> io::Result<tokio::net::TcpStream> {
    socket.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(socket)
}

fn user_loop(task: &Task, sockets: Vec<TcpStream>) -> io::Result<()> {
    LocalSet::new().block_on(&runtime()?, async {
        let mut tasks = Vec::new();
        for (socket, share) in sockets.into_iter().zip(task.shares.clone()) {
            let (mut socket, task) = (to_tokio(socket)?, task.clone());
            tasks.push(spawn_local(async move {
                let mut piece = vec![0; USER_LOOP_BYTES];
                let mut at = share.start;
                while !task.progress.is_stopping() {
                    let left = usize::try_from(share.end - at).unwrap_or(usize::MAX);
                    let bytes = left.min(piece.len());
                    task.file.read_exact_at(&mut piece[..bytes], at)?;
                    socket.write_all(&piece[..bytes]).await?;
                    task.progress.sent(bytes as u64);
                    at += bytes as u64;
                    if at == share.end {
                        at = share.start;
                    }
                }
                Ok::<(), io::Error>(())
            }));
        }
        stopped(&task.progress).await;
        for task in tasks {
            task.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

fn engine(task: &Task, sockets: Vec<TcpStream>, schedule: Schedule) -> io::Result<()> {
    LocalSet::new().block_on(&runtime()?, async {
        let transfers = Transfers::new(Settings {
            left_to_others: task.left_to_others,
            ..Settings::default()
        });
        let policy = Policy {
            schedule,
            limit: None,
        };
        let control = Arc::new(Control::default());
        let mut tasks = Vec::new();
        for (socket, share) in sockets.into_iter().zip(task.shares.clone()) {
            let (socket, task, policy) = (to_tokio(socket)?, task.clone(), policy.clone());
            let (transfers, control) = (transfers.clone(), Arc::clone(&control));
            tasks.push(spawn_local(async move {
                loop {
                    let cue = transfers.cue(&task.file, share.clone(), &socket, &policy, &control);
                    match cue.await {
                        Err(_) if task.progress.is_stopping() => return Ok(()),
                        Err(error) => return Err(io::Error::other(error)),
                        Ok(_) if task.once => break,
                        Ok(_) => {}
                    }
                }
                task.progress.done.fetch_add(1, Ordering::Relaxed);
                stopped(&task.progress).await;
                Ok(())
            }));
        }
        stopped(&task.progress).await;
        control.cancel();
        for task in tasks {
            task.await.map_err(io::Error::other)??;
        }
        task.progress.sent(control.sent_bytes());
        Ok(())
    })
}
