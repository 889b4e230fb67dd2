//! Gives up what a server has no use for, before it reads a byte of a peer: capabilities, new
//! privileges by `execve`, core dumps, other files than its own, and other system calls.
//!
//! All of this is of threads and is inherited by those that they make. So [`apply`] is called while
//! there is one thread; nothing here is ever taken back. What io_uring does for a thread passes no
//! filter of system calls, and does pass the rules for files and the capabilities.
//!
//! Where connections go is not restricted: a server pulls from any camera and sends to any viewer.

mod calls;
mod capabilities;
mod refused;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus,
};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::set_no_new_privs;
use thiserror::Error;

pub use calls::is_allowed;
pub use capabilities::names as capability_names;
pub use rustix::thread::CapabilitySet;

/// The rights for files that are known here. With a kernel that knows fewer, those are restricted.
const FILE_RIGHTS: ABI = ABI::V5;

/// What a process needs from now on.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Folders and files to read; what is not there is left out.
    pub read: Vec<PathBuf>,
    /// Folders of which files are read, and no list; what is not there is left out.
    pub read_files: Vec<PathBuf>,
    /// Folders and files to read and to change, also by making and removing files.
    pub write: Vec<PathBuf>,
    /// What it may do of what it may do now (capabilities(7)).
    pub capabilities: CapabilitySet,
}

/// What is given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Part {
    /// All capabilities but those needed.
    Capabilities,
    /// Getting privileges by executing a program (`PR_SET_NO_NEW_PRIVS`).
    NewPrivileges,
    /// Core dumps, and being traced by the same account (`PR_SET_DUMPABLE`).
    CoreDumps,
    /// Files that are not needed (Landlock).
    Files,
    /// System calls that are not needed (seccomp).
    SystemCalls,
}

/// What came of giving up one part.
#[derive(Debug)]
pub struct Outcome {
    /// Which part.
    pub part: Part,
    /// What is left, in a few words; or why nothing was given up.
    pub result: Result<String, SandboxError>,
}

/// Why something could not be given up.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The kernel refused.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The kernel has no Landlock.
    #[error("this kernel has no Landlock, or it is not among its security modules (lsm=)")]
    NoLandlock,
    /// Landlock refused.
    #[error("Landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// A path that is needed cannot be opened.
    #[error("{}: {source}", path.display())]
    Path {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No list of system calls is known for this processor.
    #[error("no list of system calls for this processor's architecture")]
    Architecture,
    /// There is more than one thread, and the others would keep everything.
    #[error("{threads} threads run already, of which all but one would keep what they have")]
    Threads {
        /// So many.
        threads: usize,
    },
}

/// Gives up all but `needs`, part by part: one that cannot be given up stops no other.
///
/// # Errors
///
/// Where there is more than one thread: then nothing has been given up.
pub fn apply(needs: &Needs) -> Result<Vec<Outcome>, SandboxError> {
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads != 1 {
        return Err(SandboxError::Threads { threads });
    }
    // Capabilities before the filter, which allows no change of them; files before it, too.
    let capabilities = capabilities::keep(needs.capabilities);
    let new_privileges = set_no_new_privs(true).map_err(io::Error::from);
    let core_dumps = set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(io::Error::from);
    let files = restrict_files(needs);
    // Who may not load eBPF programs has no use for the call.
    let loads_bpf = rustix::thread::capabilities(None)
        .is_ok_and(|it| it.effective.contains(CapabilitySet::BPF));
    let calls = calls::restrict(loads_bpf);
    let outcome = |part, result| Outcome { part, result };
    Ok(vec![
        outcome(Part::Capabilities, capabilities.map_err(Into::into)),
        outcome(
            Part::NewPrivileges,
            new_privileges
                .map(|()| "none by a program that is executed".to_owned())
                .map_err(Into::into),
        ),
        outcome(
            Part::CoreDumps,
            core_dumps.map(|()| "none".to_owned()).map_err(Into::into),
        ),
        outcome(Part::Files, files),
        outcome(Part::SystemCalls, calls),
    ])
}

/// The version of Landlock's interface that this kernel has; `None` where it has none.
#[must_use]
pub fn landlock_version() -> Option<u32> {
    const VERSION: u32 = 1;
    let (nothing, bytes) = (std::ptr::null::<u8>(), 0_usize);
    // SAFETY: with this flag the kernel reads nothing and makes nothing: it answers with a number.
    let r = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, nothing, bytes, VERSION) };
    u32::try_from(r).ok().filter(|&version| version > 0)
}

fn restrict_files(needs: &Needs) -> Result<String, SandboxError> {
    let Some(version) = landlock_version() else {
        return Err(SandboxError::NoLandlock);
    };
    let (read, all) = (
        AccessFs::from_read(FILE_RIGHTS),
        AccessFs::from_all(FILE_RIGHTS),
    );
    // Nothing is ever executed, and no device is made or asked for anything.
    let read = read & !AccessFs::Execute;
    let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
    let write = all & !(devices | AccessFs::Execute);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .create()?;
    let reading = needs.read.iter().map(|path| (path, read));
    let files = read & AccessFs::ReadFile;
    let files = needs.read_files.iter().map(|path| (path, files));
    let writing = needs.write.iter().map(|path| (path, write));
    for (path, rights) in reading.chain(files).chain(writing) {
        // First, because it mounts what is mounted when somebody asks for it (autofs). Opening with
        // O_PATH does not (open(2)), and the rule would be for the folder beneath.
        let is_folder = path.is_dir();
        let Some(opened) = open(path)? else { continue };
        let rights = match is_folder {
            true => rights,
            false => rights & AccessFs::from_file(FILE_RIGHTS),
        };
        rules = rules.add_rule(PathBeneath::new(opened, rights))?;
    }
    let status = rules.restrict_self()?;
    match status.ruleset {
        RulesetStatus::NotEnforced => Err(SandboxError::NoLandlock),
        _ => Ok(format!("its own (Landlock {version})")),
    }
}

/// What lies there; `None` if nothing does.
fn open(path: &Path) -> Result<Option<PathFd>, SandboxError> {
    match PathFd::new(path) {
        Ok(opened) => Ok(Some(opened)),
        Err(_) if matches!(path.try_exists(), Ok(false)) => Ok(None),
        Err(_) => Err(SandboxError::Path {
            path: path.to_owned(),
            source: io::Error::last_os_error(),
        }),
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Capabilities => "capabilities",
            Self::NewPrivileges => "new privileges",
            Self::CoreDumps => "core dumps",
            Self::Files => "files",
            Self::SystemCalls => "system calls",
        })
    }
}
