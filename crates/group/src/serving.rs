//! One agent for a control group.
//!
//! The programs of a second one would have nothing to do: those of the first take the options, and
//! keep the lists where only its own find them. So who serves a control group has a lock of it,
//! which goes with the process.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use onrush_sys::fs::lock;

use super::error::AgentError;

/// Locks the control group of that folder, for as long as the file is open.
///
/// Whoever can open a file can lock it (flock(2)), and the folder anybody can open. So it is
/// `cgroup.kill`, which is for those who may manage the control group; the folder where there is
/// none, as in the root, or where this agent may not open it.
///
/// An agent that has just ended may have the lock for a moment yet: a child that another of its
/// threads is making has all its descriptors until it executes its program.
pub(super) fn lock_cgroup(cgroup: &Path) -> Result<File, AgentError> {
    let refused = |source| AgentError::Lock {
        path: cgroup.to_owned(),
        source,
    };
    let kill = OpenOptions::new()
        .write(true)
        .open(cgroup.join("cgroup.kill"));
    let file = kill.or_else(|_| File::open(cgroup)).map_err(refused)?;
    let give_up = Instant::now() + WAIT_MAX;
    while !lock(&file).map_err(refused)? {
        if Instant::now() >= give_up {
            return Err(AgentError::Served {
                path: cgroup.to_owned(),
                holder: holder_of(&file),
            });
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(file)
}

/// Who has locked a file, as far as it is told (proc(5), /proc/locks).
fn holder_of(file: &File) -> String {
    let Some(process) = find_holder(file).ok().flatten() else {
        return "a process that cannot be seen from here".to_owned();
    };
    // Whatever the process calls itself, in quotes.
    match fs::read_to_string(format!("/proc/{process}/comm")) {
        Ok(name) => format!("process {process} ({:?})", name.trim_end()),
        Err(_) => format!("process {process}"),
    }
}

fn find_holder(file: &File) -> io::Result<Option<u32>> {
    let metadata = file.metadata()?;
    let locks = fs::read_to_string("/proc/locks")?;
    Ok(holder_in(&locks, metadata.dev(), metadata.ino()))
}

/// Which process has locked that file by flock(2).
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        // Number, kind, ADVISORY, WRITE, process, place; before the kind `->` if it waits.
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        match words[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == place => process.parse().ok(),
            _ => None,
        }
    })
}

/// How long an agent that has just ended may seem to be there.
const WAIT_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_only_read_keeps_no_agent_away() {
        let cgroup = tempfile::tempdir().unwrap();
        fs::write(cgroup.path().join("cgroup.kill"), "").unwrap();
        let folder = File::open(cgroup.path()).unwrap();
        assert!(lock(&folder).unwrap());
        let first = lock_cgroup(cgroup.path()).unwrap();
        let second = lock_cgroup(cgroup.path()).unwrap_err();
        assert!(matches!(second, AgentError::Served { .. }), "{second}");
        drop(first);
        lock_cgroup(cgroup.path()).unwrap();
        // The root has no such file.
        fs::remove_file(cgroup.path().join("cgroup.kill")).unwrap();
        drop(folder);
        lock_cgroup(cgroup.path()).unwrap();
    }

    #[test]
    fn the_process_with_the_lock_is_found() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 00:1c:4711 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 00:1c:471 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 13 00:1c:4711 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 14 00:1c:4711 0 EOF\n";
        let device = libc::makedev(0, 0x1c);
        assert_eq!(holder_in(locks, device, 4711), Some(14));
        assert_eq!(holder_in(locks, device, 4712), None);
        assert_eq!(holder_in(locks, libc::makedev(8, 0x1c), 4711), None);
    }
}
