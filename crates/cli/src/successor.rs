//! A server is replaced by another without a client who notices: the program as it lies on the disk
//! now is started with the same arguments and with the sockets that listen, and when it serves, the
//! one before takes nobody more and serves those it has to their end. nginx does it so.
//!
//! The successor inherits the sockets and a pipe, and finds in its environment which they are; it
//! writes a byte into the pipe when it is ready. Should it end before, or take too long, nothing
//! has happened.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use onrush_server::server::ListeningSockets;
use rustix::io::{FdFlags, fcntl_setfd};

/// So long a successor may take until it is ready: it reads folders, and reserves memory.
const READY_TIME_MAX: Duration = Duration::from_secs(60);

/// Names a successor's sockets and their descriptors, as in `rtsp=7:http=8`.
const SOCKETS: &str = "ONRUSH_SOCKETS";

/// The descriptor of the pipe in which a successor says that it is ready.
const READY: &str = "ONRUSH_READY";

/// How this program was started: what starts its successor.
#[derive(Debug)]
pub(crate) struct Started {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Started {
    /// To be asked for while the program is where it was started from: when it is replaced there,
    /// the kernel knows the old one's name only as deleted.
    pub(crate) fn now() -> anyhow::Result<Self> {
        Ok(Self {
            program: env::current_exe().context("cannot find this program's file")?,
            arguments: env::args_os().skip(1).collect(),
        })
    }

    /// Starts the successor with those sockets, and waits until it is ready; its process then.
    ///
    /// # Errors
    ///
    /// When it cannot be started, ends before it is ready, or takes too long. Then there is none.
    pub(crate) fn start_successor(&self, sockets: &ListeningSockets) -> anyhow::Result<u32> {
        let (heard, ready) = std::io::pipe().context("cannot make a pipe")?;
        let ready = inheritable(ready.into())?;
        let mut sockets_open = Vec::new();
        for (service, socket) in sockets.open() {
            let socket = inheritable(socket.try_clone_to_owned()?)?;
            sockets_open.push((service.socket_name(), socket));
        }
        let described = sockets_open.iter();
        let described = described.map(|(name, socket)| format!("{name}={}", socket.as_raw_fd()));
        let described: Vec<_> = described.collect();
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.env(SOCKETS, described.join(":"));
        command.env(READY, ready.as_raw_fd().to_string());
        // What this process was told is not for another one.
        for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let child = command.spawn();
        // The end of the pipe is seen only when nobody else could write to it.
        drop((ready, sockets_open));
        let child = child.with_context(|| format!("cannot start {}", self.program.display()))?;
        await_ready(child, File::from(OwnedFd::from(heard)), &self.program)
    }
}

/// Open in processes that are started from now on. Nothing but a successor is ever started.
fn inheritable(descriptor: OwnedFd) -> anyhow::Result<OwnedFd> {
    fcntl_setfd(&descriptor, FdFlags::empty())?;
    Ok(descriptor)
}

fn await_ready(mut child: Child, mut pipe: File, program: &Path) -> anyhow::Result<u32> {
    let (tell, told) = channel();
    thread::spawn(move || tell.send(pipe.read_exact(&mut [0])));
    let program = program.display();
    match told.recv_timeout(READY_TIME_MAX) {
        Ok(Ok(())) => return Ok(child.id()),
        Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => {
            let status = child.wait()?;
            bail!("{program} ended before it was ready ({status}); see what it says above");
        }
        Err(RecvTimeoutError::Timeout) => {}
    }
    child.kill()?;
    child.wait()?;
    bail!("{program} was not ready after {READY_TIME_MAX:?}, and was ended");
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
        let mut sockets = ListeningSockets::default();
        for described in described.split(':').filter(|it| !it.is_empty()) {
            let cannot = || format!("{described} of {SOCKETS}, from the server before this one");
            let (name, number) = described.split_once('=').with_context(cannot)?;
            let socket = open_descriptor(number).with_context(cannot)?;
            sockets.inherit(name, socket).with_context(cannot)?;
        }
        let pipe = open_descriptor(&ready).context(READY)?.into();
        Ok(Some((Self { pipe }, sockets)))
    }

    /// Says that clients are served here from now on.
    pub(crate) fn tell_ready(mut self) {
        if let Err(error) = self.pipe.write_all(&[1]) {
            tracing::warn!("the server before this one cannot be told that it may go: {error}");
        }
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
