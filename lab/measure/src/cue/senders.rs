//! Those who send, all on one processor.

use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_server::transfer::{Control, Policy, Settings, Transfers};
use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::cue::{self, chain};
use onrush_sys::thread::pin_to;
use onrush_wire::pace::schedule::{Fixed, Schedule, Yield};
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
    pub(super) work: Arc<Work>,
    pub(super) core: usize,
    pub(super) left_to_others: f64,
    pub(super) progress: Arc<Progress>,
}

/// What each transfer sends: files one after the other, of each the same pieces.
#[derive(Debug)]
pub(super) struct Work {
    /// Those that are sent in turn.
    pub(super) files: Vec<Arc<File>>,
    /// For each transfer, the pieces of a file in their order.
    pub(super) pieces: Vec<Vec<Range<u64>>>,
    /// For each transfer, how many files it sends; without end, if that is not said.
    pub(super) files_each: Option<Vec<u32>>,
}

impl Work {
    /// One file, of which each transfer sends its share: once, or again and again.
    pub(super) fn shares(file: &Arc<File>, shares: Vec<Range<u64>>, once: bool) -> Self {
        Self {
            files: vec![Arc::clone(file)],
            files_each: once.then(|| vec![1; shares.len()]),
            pieces: shares.into_iter().map(|share| vec![share]).collect(),
        }
    }

    /// Transfers at once.
    pub(super) fn transfers(&self) -> usize {
        self.pieces.len()
    }

    /// The file that a transfer sends in its turn `round`, if it has one.
    fn file(&self, transfer: usize, round: u32) -> Option<&Arc<File>> {
        let has_more = |files_each: &Vec<u32>| round < files_each[transfer];
        if !self.files_each.as_ref().is_none_or(has_more) {
            return None;
        }
        let at = transfer + usize::try_from(round).ok()? * self.transfers();
        self.files.get(at % self.files.len())
    }
}

/// What is known of the senders from outside.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) stopping: AtomicBool,
    pub(super) sent_bytes: AtomicU64,
    /// Transfers that have sent all they had.
    pub(super) done: AtomicU32,
    /// When each of those had, in ns.
    pub(super) done_ns: Mutex<Vec<u64>>,
    /// Pauses that were made because somebody waited.
    pub(super) yields: AtomicU64,
}

impl Progress {
    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn sent(&self, bytes: u64) {
        self.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A transfer has sent all it had.
    fn done(&self) {
        let mut done_ns = self.done_ns.lock().expect("nobody panics while holding it");
        done_ns.push(monotonic_ns());
        self.done.fetch_add(1, Ordering::Release);
    }

    /// Keeps the thread, with the times that the kernel has for it, until somebody has looked.
    fn linger(&self) {
        while !self.is_stopping() {
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Threads of senders are found by their name, so that only one test at a time may have some.
#[cfg(test)]
pub(super) static TESTED: Mutex<()> = Mutex::new(());

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
        } => threads(task, sockets, move |task, file, share, socket| {
            let pause = Duration::from_millis(pause_ms.into());
            chained(task, file, share, socket, block_bytes * blocks, pause)
        }),
        Contestant::UserLoop => one(task, move |task| user_loop(task, sockets)),
        Contestant::Fixed {
            block_bytes,
            blocks,
            pause_ms,
        } => {
            let schedule = Schedule::Fixed(fixed(block_bytes, blocks, pause_ms));
            one(task, move |task| engine(task, sockets, schedule))
        }
        Contestant::Yielding {
            block_bytes,
            blocks,
            pause_ms,
        } => {
            let fixed = Yield::Fixed(fixed(block_bytes, blocks, pause_ms));
            let schedule = Schedule::Yielding(fixed);
            one(task, move |task| engine(task, sockets, schedule))
        }
        Contestant::Vsftpd { .. } => Err(io::Error::other("vsftpd sends by FTP alone")),
        Contestant::Fair => one(task, move |task| engine(task, sockets, Schedule::Fair)),
        Contestant::Adaptive => one(task, move |task| engine(task, sockets, Schedule::Adaptive)),
    }
}

fn fixed(block_bytes: u32, blocks: u32, pause_ms: u32) -> Fixed {
    Fixed {
        block_bytes,
        blocks,
        pause_ns: u64::from(pause_ms) * 1_000_000,
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

/// A thread for each transfer, which sends its files with `send`, piece by piece.
fn threads(
    task: &Task,
    sockets: Vec<TcpStream>,
    send: impl Fn(&Task, &File, Range<u64>, &TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<Vec<Thread>> {
    let sockets = sockets.into_iter().enumerate();
    sockets
        .map(|(transfer, socket)| {
            let (task, send) = (task.clone(), send.clone());
            let thread = thread::Builder::new().name(THREAD_NAME.to_owned());
            thread.spawn(move || {
                pin_to(task.core)?;
                let mut round = 0;
                while let Some(file) = task.work.file(transfer, round) {
                    for piece in &task.work.pieces[transfer] {
                        if task.progress.is_stopping() {
                            return Ok(());
                        }
                        send(&task, file, piece.clone(), &socket)?;
                    }
                    round = round.wrapping_add(1);
                }
                task.progress.done();
                task.progress.linger();
                Ok(())
            })
        })
        .collect()
}

fn user_driven(
    task: &Task,
    file: &File,
    share: Range<u64>,
    mut socket: &TcpStream,
) -> io::Result<()> {
    let mut block = [0; BLOCK_BYTES as usize];
    let mut at = share.start;
    while at < share.end && !task.progress.is_stopping() {
        let bytes =
            usize::try_from(share.end - at).map_or(block.len(), |left| left.min(block.len()));
        file.read_exact_at(&mut block[..bytes], at)?;
        socket.write_all(&block[..bytes])?;
        at += bytes as u64;
        task.progress.sent(bytes as u64);
    }
    Ok(())
}

fn bare_sendfile(
    task: &Task,
    file: &File,
    share: Range<u64>,
    socket: &TcpStream,
) -> io::Result<()> {
    let mut at = share.start;
    while at < share.end {
        // A blocking socket: it comes back when all of it was taken.
        let step = cue::step(file.as_fd(), at, share.end - at, socket.as_fd())?;
        at += step.sent_bytes;
        task.progress.sent(step.sent_bytes);
    }
    Ok(())
}

fn chained(
    task: &Task,
    file: &File,
    share: Range<u64>,
    socket: &TcpStream,
    set_bytes: u32,
    pause: Duration,
) -> io::Result<()> {
    let mut at = share.start;
    while at < share.end && !task.progress.is_stopping() {
        let end = (at + CHAIN_SETS * u64::from(set_bytes)).min(share.end);
        chain::send(file, at..end, socket.as_fd(), set_bytes, pause).map_err(io::Error::other)?;
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
        for (transfer, socket) in sockets.into_iter().enumerate() {
            let (mut socket, task) = (to_tokio(socket)?, task.clone());
            tasks.push(spawn_local(async move {
                let mut buffer = vec![0; USER_LOOP_BYTES];
                let mut round = 0;
                while let Some(file) = task.work.file(transfer, round) {
                    for piece in &task.work.pieces[transfer] {
                        user_looped(&task, file, piece.clone(), (&mut socket, &mut buffer)).await?;
                    }
                    if task.progress.is_stopping() {
                        return Ok(());
                    }
                    round = round.wrapping_add(1);
                }
                task.progress.done();
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

async fn user_looped(
    task: &Task,
    file: &File,
    piece: Range<u64>,
    (socket, buffer): (&mut tokio::net::TcpStream, &mut [u8]),
) -> io::Result<()> {
    let mut at = piece.start;
    while at < piece.end && !task.progress.is_stopping() {
        let left = usize::try_from(piece.end - at).unwrap_or(usize::MAX);
        let bytes = left.min(buffer.len());
        file.read_exact_at(&mut buffer[..bytes], at)?;
        socket.write_all(&buffer[..bytes]).await?;
        task.progress.sent(bytes as u64);
        at += bytes as u64;
    }
    Ok(())
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
        for (transfer, socket) in sockets.into_iter().enumerate() {
            let (socket, task, policy) = (to_tokio(socket)?, task.clone(), policy.clone());
            let (transfers, control) = (transfers.clone(), Arc::clone(&control));
            tasks.push(spawn_local(async move {
                let mut round = 0;
                while let Some(file) = task.work.file(transfer, round) {
                    let pieces = &task.work.pieces[transfer];
                    let cue = transfers.gather(file, pieces, &socket, &policy, &control);
                    match cue.await {
                        Err(_) if task.progress.is_stopping() => return Ok(()),
                        Err(error) => return Err(io::Error::other(error)),
                        Ok(_) => round = round.wrapping_add(1),
                    }
                }
                task.progress.done();
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
        let yields = transfers.counters().yields;
        task.progress.yields.store(yields, Ordering::Relaxed);
        Ok(())
    })
}
