//! A server is replaced by another without a client who notices: the program as it lies on the disk
//! now is started with the same arguments and with the sockets that listen, and at which streams
//! arrive, and when it serves, the one before takes nobody more and serves those it has to their
//! end. nginx does it so.
//!
//! The successor inherits the sockets and a pipe, and finds in its environment which they are; it
//! writes a byte into the pipe when it is ready. Should it end before, or take too long, nothing
//! has happened. It ends by itself where nobody hears that any more: two servers with the same
//! sockets would share the clients, and neither would ever go.
//!
//! A server that has given up its privileges cannot start one that has them. So before it gives
//! them up it starts this program as a *launcher*, which keeps them and does one thing: when asked
//! it starts that program with those arguments and the sockets that it is given. The two have a
//! pair of sockets between them, over which no program and no argument goes. With each request and
//! its answer goes when it was asked: an answer that comes too late is none to the next request,
//! and the launcher ends a successor that nobody waits for any more. The launcher ends with the
//! server.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};
use std::process::{self, Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use onrush_server::server::ListeningSockets;
use onrush_sys::clock::monotonic_ns;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

use crate::service_manager;
use crate::signals::Signals;

/// So long after it was asked for a successor may be ready: it reads folders, and reserves memory.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

/// So long the launcher waits for the end of one that was not.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// So long the launcher may take to say what became of a successor.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(70);

/// Sockets that can be handed over at once: as many as the kernel takes (SCM_MAX_FD of unix(7)).
const SOCKETS_MAX: usize = 253;

/// Bytes of a message between the server and its launcher.
const MESSAGE_BYTES_MAX: usize = 16 << 10;

/// The number of the first process of a container. The kernel ends all others with it
/// (pid_namespaces(7)).
const FIRST_PROCESS: u32 = 1;

/// What is logged where no successor can outlive this process.
const NO_SUCCESSOR: &str = "this process is the first of its container, which ends with it, so it \
    goes on serving: start another container, and send clients there with `onrush ctl drain --to \
    rtsp://HOST:PORT/`";

/// The hidden command that a launcher is.
const LAUNCH: &str = "launch-successors";

/// What a launcher says before the number of a successor that is ready.
const READY_WORD: &str = "ready ";

/// Names a successor's sockets and their descriptors, as in `rtsp=7:http=8`.
const SOCKETS: &str = "ONRUSH_SOCKETS";

/// The descriptor of the pipe in which a successor says that it is ready.
const READY: &str = "ONRUSH_READY";

/// The process that starts this server's successors. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Launcher {
    socket: OwnedFd,
}

impl Launcher {
    /// Started while the program is where this one was started from: when it is replaced there, the
    /// kernel knows the old one's name only as deleted. And while this process has all that a
    /// server may need at its start.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let program = own_program()?;
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        set_socket_timeout(&ours, Timeout::Recv, Some(ANSWER_TIME_MAX))?;
        let mut command = Command::new(&program);
        command.arg(LAUNCH).args(env::args_os().skip(1));
        command.stdin(theirs).stdout(Stdio::inherit());
        command
            .spawn()
            .with_context(|| format!("cannot start {} {LAUNCH}", program.display()))?;
        Ok(Self { socket: ours })
    }

    /// Has a successor take the place of this process, with the sockets that it `offered`; whether
    /// one has it. It is in the log, and the service manager hears of it.
    pub(crate) fn replace(&self, offered: io::Result<&ListeningSockets>) -> bool {
        if process::id() == FIRST_PROCESS {
            tracing::warn!("SIGUSR2: {NO_SUCCESSOR}");
            return false;
        }
        tracing::info!("SIGUSR2: starting a successor");
        let offered = offered.map_err(anyhow::Error::from);
        match offered.and_then(|sockets| self.start_successor(sockets)) {
            Ok(pid) => {
                service_manager::tell_successor(pid);
                tracing::info!("process {pid} serves from now on, in place of this one");
                true
            }
            Err(error) => {
                tracing::warn!("this process goes on serving: {error:#}");
                false
            }
        }
    }

    /// Has the successor started with those sockets, and waits until it is ready; its process then.
    ///
    /// # Errors
    ///
    /// When it cannot be started, ends before it is ready, or takes too long. Then there is none.
    fn start_successor(&self, sockets: &ListeningSockets) -> anyhow::Result<u32> {
        let (names, sockets): (Vec<_>, Vec<_>) = sockets.open().unzip();
        let asked = monotonic_ns().to_string();
        let request = format!("{asked} {}", names.join(":"));
        send(self.socket.as_fd(), &request, &sockets)
            .context("the process that starts successors is gone; restart this server")?;
        let answer = self.answer_to(&asked)?;
        match answer.strip_prefix(READY_WORD).map(str::parse) {
            Some(Ok(pid)) => Ok(pid),
            _ => bail!("{answer}"),
        }
    }

    /// Waits for the answer to what was asked then.
    fn answer_to(&self, asked: &str) -> anyhow::Result<String> {
        loop {
            let (answer, _) = receive(self.socket.as_fd())
                .context("the process that starts successors does not answer")?;
            match answer.split_once(' ') {
                None => bail!("the process that starts successors has ended"),
                Some((to, said)) if to == asked => return Ok(said.to_owned()),
                Some((_, said)) => tracing::warn!("of a successor that was given up: {said}"),
            }
        }
    }
}

/// What a launcher does until the server that has started it ends: it starts this program with
/// `arguments`, and with the sockets that it is given, whenever it is asked to.
///
/// # Errors
///
/// When it was not started by a server.
pub(crate) fn launch(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let program = own_program()?;
    // Caught, so that what is meant for the server does not end this; a program that is executed
    // has the defaults again.
    let _caught = Signals::listen(true)?;
    let server = io::stdin().as_fd().try_clone_to_owned()?;
    fcntl_setfd(&server, FdFlags::CLOEXEC)?;
    loop {
        let (request, sockets) = receive(server.as_fd())
            .with_context(|| format!("{LAUNCH} is for a server, which starts it itself"))?;
        let Some((asked, names)) = request.split_once(' ') else {
            return Ok(ExitCode::SUCCESS);
        };
        let sockets: Vec<_> = names.split(':').zip(sockets).collect();
        let answer = match start(&program, arguments, sockets, time_left(asked)) {
            Ok(pid) => format!("{READY_WORD}{pid}"),
            Err(error) => format!("{error:#}"),
        };
        send(server.as_fd(), &format!("{asked} {answer}"), &[])?;
    }
}

/// This program's file, by the name that it was started by. That may be a link, which leads to
/// another version by the time that a successor is started; the kernel knows where it led.
fn own_program() -> anyhow::Result<PathBuf> {
    let file = env::current_exe().context("cannot find this program's file")?;
    let word = env::args_os().next().unwrap_or_default();
    let folders = env::var_os("PATH").unwrap_or_default();
    let named = named_program(&file, Path::new(&word), env::split_paths(&folders));
    Ok(named.unwrap_or(file))
}

/// What `word` names, there or in one of the `folders`, if that is this `file`.
fn named_program(
    file: &Path,
    word: &Path,
    folders: impl Iterator<Item = PathBuf>,
) -> Option<PathBuf> {
    let file = file.metadata().ok()?;
    let is_file = |path: &PathBuf| {
        let found = path.metadata();
        found.is_ok_and(|it| (it.dev(), it.ino()) == (file.dev(), file.ino()))
    };
    let has_folder = word.parent().is_some_and(|folder| folder != Path::new(""));
    match has_folder {
        true => path::absolute(word).ok().filter(is_file),
        false => folders
            .filter_map(|folder| path::absolute(folder.join(word)).ok())
            .find(is_file),
    }
}

/// How long a successor that was asked for then is waited for from now on: the request may have
/// lain there while another was started.
fn time_left(asked: &str) -> Duration {
    let since_ns = monotonic_ns().saturating_sub(asked.parse().unwrap_or(0));
    READY_TIME_MAX.saturating_sub(Duration::from_nanos(since_ns))
}

/// Starts a successor, and waits for so long until it is ready; its process then.
fn start(
    program: &Path,
    arguments: &[OsString],
    sockets: Vec<(&str, OwnedFd)>,
    time_max: Duration,
) -> anyhow::Result<u32> {
    let began = Instant::now();
    if time_max.is_zero() {
        bail!("it was asked for too long ago");
    }
    let (heard, ready) = io::pipe().context("cannot make a pipe")?;
    let ready = inheritable(ready.into())?;
    let mut described = Vec::new();
    let mut open = Vec::new();
    for (name, socket) in sockets {
        let socket = inheritable(socket)?;
        described.push(format!("{name}={}", socket.as_raw_fd()));
        open.push(socket);
    }
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command.env(SOCKETS, described.join(":"));
    command.env(READY, ready.as_raw_fd().to_string());
    // What this process was told is not for another one.
    for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
        command.env_remove(name);
    }
    let child = command.spawn();
    // The end of the pipe is seen only when nobody else could write to it.
    drop((ready, open));
    let child = child.with_context(|| format!("cannot start {}", program.display()))?;
    // To execute it may have taken long: its disk, or the server of its files.
    let time_max = time_max.saturating_sub(began.elapsed());
    await_ready(child, File::from(OwnedFd::from(heard)), program, time_max)
}

/// Sends a message, and descriptors with it.
fn send(socket: BorrowedFd<'_>, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    if text.len() > MESSAGE_BYTES_MAX || (!descriptors.is_empty() && !control.push(rights)) {
        return Err(io::Error::other(format!(
            "{} sockets are more than the {SOCKETS_MAX} that can be handed over",
            descriptors.len()
        )));
    }
    let text = [IoSlice::new(text.as_bytes())];
    sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message, and the descriptors that came with it; an empty one is the other's end.
fn receive(socket: BorrowedFd<'_>) -> io::Result<(String, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(SOCKETS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = vec![0; MESSAGE_BYTES_MAX];
    let mut slice = [IoSliceMut::new(&mut text)];
    let received = rustix::io::retry_on_intr(|| {
        recvmsg(socket, &mut slice, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    text.truncate(received.bytes);
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    Ok((text, descriptors))
}

/// Open in processes that are started from now on. Nothing but a successor is ever started.
fn inheritable(descriptor: OwnedFd) -> anyhow::Result<OwnedFd> {
    fcntl_setfd(&descriptor, FdFlags::empty())?;
    Ok(descriptor)
}

fn await_ready(
    mut child: Child,
    mut pipe: File,
    program: &Path,
    time_max: Duration,
) -> anyhow::Result<u32> {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(pipe.read_exact(&mut [0])));
    let program = program.display();
    match told.recv_timeout(time_max) {
        Ok(Ok(())) => return Ok(child.id()),
        Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
            if let Some(status) = ended(&mut child)? {
                bail!("{program} ended before it was ready ({status}); see what it says above");
            }
        }
        Err(RecvTimeoutError::Timeout) => {}
    }
    child.kill()?;
    if ended(&mut child)?.is_none() {
        // It serves nobody any more; the kernel may have much to take back of it.
        thread::spawn(move || child.wait());
    }
    bail!("{program} was not ready within {READY_TIME_MAX:?}, and was ended");
}

/// Waits a while for its end.
fn ended(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || began.elapsed() >= END_TIME_MAX {
            return Ok(status);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// What this process is told and given, if it is a successor.
#[derive(Debug)]
pub(crate) struct Predecessor {
    pipe: File,
}

impl Predecessor {
    /// Who started this process to take its place, if that is how it was started, and the sockets
    /// to do so with.
    ///
    /// # Errors
    ///
    /// When what it got cannot be used.
    pub(crate) fn of_this_process() -> anyhow::Result<Option<(Self, ListeningSockets)>> {
        let (Ok(described), Ok(ready)) = (env::var(SOCKETS), env::var(READY)) else {
            return Ok(None);
        };
        let mut sockets = ListeningSockets::of_successor();
        for described in described.split(':').filter(|it| !it.is_empty()) {
            let cannot = || format!("{described} of {SOCKETS}, from the server before this one");
            let (name, number) = described.rsplit_once('=').with_context(cannot)?;
            let socket = open_descriptor(number).with_context(cannot)?;
            sockets.inherit(name, socket).with_context(cannot)?;
        }
        let pipe = open_descriptor(&ready).context(READY)?.into();
        Ok(Some((Self { pipe }, sockets)))
    }

    /// Says that clients are served here from now on.
    ///
    /// # Errors
    ///
    /// When nobody waits for it any more. Then the server before this one goes on serving, and this
    /// one is to end.
    pub(crate) fn tell_ready(mut self) -> anyhow::Result<()> {
        self.pipe.write_all(&[1]).context(
            "nobody waits for this successor any more; the server before it goes on serving",
        )
    }
}

/// The descriptor of that number, this process's own from now on: children do not get it.
fn open_descriptor(number: &str) -> anyhow::Result<OwnedFd> {
    let number: RawFd = number.parse().context("no number")?;
    // SAFETY: this touches no memory.
    if number < 3 || unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
        bail!("descriptor {number} is not open; only a server sets this variable, for another");
    }
    // SAFETY: it is open, and whoever started this process has opened it for it, as the variable
    // says; that is asked for once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A server's end of the pair, with how long it waits for an answer, and a launcher's.
    fn pair(wait: Duration) -> (Launcher, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (socket, theirs) = pair.unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(wait)).unwrap();
        (Launcher { socket }, theirs)
    }

    #[test]
    fn a_late_answer_is_none_to_the_next_request() {
        let (launcher, theirs) = pair(Duration::from_millis(20));
        let sockets = ListeningSockets::default();
        let error = launcher.start_successor(&sockets).unwrap_err();
        assert!(error.to_string().contains("does not answer"), "{error:#}");
        let wait = Some(Duration::from_secs(60));
        set_socket_timeout(&launcher.socket, Timeout::Recv, wait).unwrap();
        let late = thread::spawn(move || {
            let requests = [(); 2].map(|()| receive(theirs.as_fd()).unwrap().0);
            for (request, pid) in requests.iter().zip([4711, 4712]) {
                let (asked, _) = request.split_once(' ').unwrap();
                let answer = format!("{asked} {READY_WORD}{pid}");
                send(theirs.as_fd(), &answer, &[]).unwrap();
            }
        });
        assert_eq!(launcher.start_successor(&sockets).unwrap(), 4712);
        late.join().unwrap();
        let error = launcher.start_successor(&sockets).unwrap_err();
        assert!(error.to_string().contains("is gone"), "{error:#}");
    }

    #[test]
    fn a_successor_that_nobody_waits_for_is_ended() {
        let program = Path::new("/bin/sleep");
        let arguments = [OsString::from("600")];
        let start = |time_max| start(program, &arguments, Vec::new(), time_max);
        let error = start(Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("and was ended"), "{error:#}");
        let long_ago = monotonic_ns().saturating_sub(3600 * 1_000_000_000);
        let left = time_left(&long_ago.to_string());
        let error = start(left).unwrap_err();
        assert!(error.to_string().contains("too long ago"), "{error:#}");
        assert!(time_left(&monotonic_ns().to_string()) > Duration::ZERO);
    }

    #[test]
    fn a_successor_that_nobody_hears_is_told() {
        let (heard, ready) = io::pipe().unwrap();
        drop(heard);
        let pipe = File::from(OwnedFd::from(ready));
        assert!(Predecessor { pipe }.tell_ready().is_err());
    }

    #[test]
    fn a_program_has_the_name_that_it_was_started_by() {
        let folder = tempfile::tempdir().unwrap();
        let [file, bin] = ["onrush-1.0", "bin"].map(|name| folder.path().join(name));
        fs::write(&file, "").unwrap();
        fs::create_dir(&bin).unwrap();
        let link = bin.join("onrush");
        symlink(&file, &link).unwrap();
        let folders = [folder.path().join("none"), bin];
        let named = |word: &Path| named_program(&file, word, folders.clone().into_iter());
        assert_eq!(named(&link), Some(link.clone()));
        assert_eq!(named(Path::new("onrush")), Some(link.clone()));
        // Whoever starts a program may call it anything.
        for other in ["/bin/sh", "sh", ""] {
            assert_eq!(named(Path::new(other)), None, "{other}");
        }
    }
}
