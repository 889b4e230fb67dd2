//! Network namespaces that leave nothing behind.
//!
//! A namespace lives exactly as long as somebody holds a descriptor of it or runs in it. Ours have
//! no name under `/run/netns`: the [`Netns`] holds the only descriptor, so when the process goes,
//! even by SIGKILL, the kernel takes the namespace and every device in it away.
//!
//! Not here: user namespaces. Without root there is [`NetnsError::NotPermitted`], which tests turn
//! into a counted skip.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use thiserror::Error;

/// A network namespace of our own, with `lo` up. Clones share it.
#[derive(Clone, Debug)]
pub struct Netns {
    file: Arc<File>,
}

/// Why a namespace could not be made, entered or furnished.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetnsError {
    /// This process may not make namespaces.
    #[error("network namespaces need CAP_SYS_ADMIN; run as root")]
    NotPermitted,
    /// A thread that left the namespace it is in could not return: root of a user namespace may
    /// make network namespaces, but not enter one that is not its own.
    #[error(
        "the network namespace this runs in belongs to another user namespace, and who leaves it \
         cannot come back; run as root, or with a network namespace of its own (unshare -Urn)"
    )]
    NoWayBack,
    /// The kernel refused for another reason.
    #[error("{operation} a network namespace: {source}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A tool that furnishes namespaces could not be run.
    #[error("{command}: {source}; is it installed?")]
    Run {
        /// The command line.
        command: String,
        /// What the system said.
        source: io::Error,
    },
    /// A tool that furnishes namespaces failed.
    #[error("{command}: {said}")]
    Tool {
        /// The command line.
        command: String,
        /// What it wrote to stderr.
        said: String,
    },
}

impl NetnsError {
    /// Whether rights are all that is missing.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::NotPermitted | Self::NoWayBack)
    }
}

/// The calling thread is in the namespace as long as this lives.
///
/// Not `Send`: a namespace is a property of the thread that entered it.
#[derive(Debug)]
pub struct Entered {
    home: File,
    not_send: PhantomData<*const ()>,
}

impl Netns {
    /// Makes a namespace and brings its `lo` up.
    pub fn new() -> Result<Self, NetnsError> {
        // On a thread of its own, which ends: the caller's namespace is never touched.
        let file = thread::spawn(|| {
            let home = File::open(THREAD_NETNS).map_err(system("open"))?;
            // SAFETY: the one hazard of unshare is a descriptor table of its own (CLONE_FILES), and
            // that flag is not given: only this thread's network namespace changes.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(system("unshare"))?;
            let made = File::open(THREAD_NETNS).map_err(system("open"))?;
            // Who enters it later has to come back.
            move_into(&home).map_err(|_| NetnsError::NoWayBack)?;
            Ok(made)
        })
        .join()
        .expect("the thread above does not panic")?;
        let netns = Self {
            file: Arc::new(file),
        };
        netns.tool("ip", ["link", "set", "lo", "up"])?;
        Ok(netns)
    }

    /// Whether this process may make namespaces, found by making one.
    #[must_use]
    pub fn is_permitted() -> bool {
        !Self::new().is_err_and(|error| error.is_not_permitted())
    }

    /// Moves the calling thread into the namespace until the guard is dropped. Threads and
    /// processes started meanwhile are in it, and stay.
    pub fn enter(&self) -> Result<Entered, NetnsError> {
        let home = File::open(THREAD_NETNS).map_err(system("open"))?;
        move_into(&self.file).map_err(system("enter"))?;
        Ok(Entered {
            home,
            not_send: PhantomData,
        })
    }

    /// Runs `act` on the calling thread inside the namespace.
    ///
    /// # Panics
    ///
    /// If the namespace cannot be entered.
    pub fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        let _inside = self.enter().expect("a held namespace can be entered");
        act()
    }

    /// A counter of UDP over IPv4 (`Udp:` in /proc/net/snmp).
    ///
    /// # Panics
    ///
    /// If the kernel has none of that name.
    #[must_use]
    pub fn udp_counter(&self, name: &str) -> u64 {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp");
        let snmp = self.run(read).expect("procfs");
        let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (udp.next().unwrap_or(""), udp.next().unwrap_or(""));
        let mut named = names.split(' ').zip(values.split(' '));
        let counter = named.find_map(|(n, value)| (n == name).then(|| value.parse().ok())?);
        counter.expect("the kernel counts it")
    }

    /// A command that will run inside the namespace, and is killed when the thread that spawned it
    /// ends.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let file = Arc::clone(&self.file);
        let enter = move || {
            move_into(&file)?;
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        };
        // SAFETY: between fork and exec only async-signal-safe calls are allowed. This makes two
        // system calls on values that exist already; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(enter) };
        command
    }

    /// Runs a tool inside the namespace to its end; its output, or an error with what it complained
    /// of.
    pub fn tool<I, S>(&self, program: &str, arguments: I) -> Result<Output, NetnsError>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = self.command(program);
        command.args(arguments);
        let line = format!("{command:?}").replace('"', "");
        let output = command.output().map_err(|source| NetnsError::Run {
            command: line.clone(),
            source,
        })?;
        if output.status.success() {
            return Ok(output);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(NetnsError::Tool {
            command: line,
            said,
        })
    }

    /// A path by which other processes can name this namespace while it is held here.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.file.as_raw_fd()
        ))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let restored = move_into(&self.home);
        // A thread left in the wrong namespace would make every later test lie; but no panic in a
        // panic.
        if !thread::panicking() {
            restored.expect("a thread can go back to the namespace it came from");
        }
    }
}

fn move_into(namespace: impl AsFd) -> io::Result<()> {
    Ok(move_into_link_name_space(
        namespace.as_fd(),
        Some(LinkNameSpaceType::Network),
    )?)
}

fn system<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> NetnsError {
    move |error| {
        let source = error.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => NetnsError::NotPermitted,
            _ => NetnsError::System { operation, source },
        }
    }
}

const THREAD_NETNS: &str = "/proc/thread-self/ns/net";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn current() -> PathBuf {
        fs::read_link(THREAD_NETNS).unwrap()
    }

    #[test]
    fn a_namespace_is_separate_and_its_loopback_works() {
        crate::require_root!();
        let (home, a, b) = (current(), Netns::new().unwrap(), Netns::new().unwrap());
        let listener = a.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        a.run(|| TcpStream::connect(address)).unwrap();
        b.run(|| TcpStream::connect(address)).unwrap_err();
        a.run(|| UdpSocket::bind("[::1]:0")).unwrap();
        assert_eq!(current(), home);
    }

    #[test]
    fn the_thread_comes_home_from_a_panic() {
        crate::require_root!();
        let (home, netns) = (current(), Netns::new().unwrap());
        let inside = netns.run(current);
        assert_ne!(inside, home);
        catch_unwind(AssertUnwindSafe(|| netns.run(|| panic!("planted")))).unwrap_err();
        assert_eq!(current(), home);
    }

    #[test]
    fn a_command_runs_inside_and_a_failing_tool_says_what_it_said() {
        crate::require_root!();
        let netns = Netns::new().unwrap();
        let output = netns.tool("readlink", ["/proc/self/ns/net"]).unwrap();
        let inside = netns.run(current);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            inside.to_str().unwrap()
        );
        let error = netns
            .tool("ip", ["link", "set", "nothing", "up"])
            .unwrap_err();
        assert!(error.to_string().contains("nothing"), "{error}");
    }
}
