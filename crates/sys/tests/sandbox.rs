//! What a process cannot do any more that has given up what it does not need: each thing that is
//! planted here is tried in such a process, and refused.
//!
//! Each is a fork: it has one thread, and what it gives up stays with it.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, types};
use onrush_sys::sandbox::{CapabilitySet, Needs, Part, apply};
use onrush_testkit::require_root;
use rustix::process::{DumpableBehavior, dumpable_behavior};
use rustix::thread::{capabilities, no_new_privs};
use tempfile::TempDir;

/// Runs `tries` in a process that has given up all but `needs`, and gives back what it says of what
/// was wrong; nothing if all was right.
fn in_sandbox(needs: &Needs, tries: impl FnOnce() -> Vec<String>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let said = fs::File::create(folder.path().join("said")).unwrap();
    // SAFETY: the child goes on in this function alone, and ends in it. glibc lets it allocate.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", io::Error::last_os_error());
    if child == 0 {
        let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut wrong: Vec<_> = apply(needs)
                .unwrap()
                .into_iter()
                .filter_map(|it| Some(format!("{}: {}", it.part, it.result.err()?)))
                .collect();
            wrong.extend(tries());
            format!("{ALL_TRIED}{}", wrong.join("\n"))
        }));
        let wrong = wrong.unwrap_or_else(|_| "it panicked".to_owned());
        drop(io::Write::write_all(&mut &said, wrong.as_bytes()));
        // SAFETY: this ends the child at once, without what the parent registered for its end.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid to write to, and the child is this process's own.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    assert_eq!(status, 0, "the child was ended by what it tried");
    let said = fs::read_to_string(folder.path().join("said")).unwrap();
    // A program that was executed in its place would say nothing of what it was to try.
    let wrong = said.strip_prefix(ALL_TRIED);
    wrong
        .unwrap_or_else(|| panic!("it was not to the end: {said:?}"))
        .to_owned()
}

/// What the child says before what was wrong.
const ALL_TRIED: &str = "tried\n";

/// What is wrong if this did not fail with EPERM.
fn refused(what: &str, result: libc::c_long) -> Option<String> {
    let error = io::Error::last_os_error();
    (result != -1 || error.raw_os_error() != Some(libc::EPERM))
        .then(|| format!("{what}: {result}, {error}"))
}

/// What is wrong if this did not fail with EACCES, as Landlock has it.
fn kept_out<T>(what: &str, result: io::Result<T>) -> Option<String> {
    let code = result.err().and_then(|error| error.raw_os_error());
    (code != Some(libc::EACCES)).then(|| format!("{what}: {code:?}"))
}

fn path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// A folder with a file to read, one to write in, and one that is neither.
struct Folders {
    all: TempDir,
}

impl Folders {
    fn new() -> Self {
        let all = tempfile::tempdir().unwrap();
        for name in ["read", "write", "other"] {
            fs::create_dir(all.path().join(name)).unwrap();
            fs::write(all.path().join(name).join("file"), name).unwrap();
        }
        Self { all }
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.all.path().join(name)
    }

    fn needs(&self) -> Needs {
        Needs {
            read: vec![self.file("read"), "/proc".into()],
            read_files: Vec::new(),
            write: vec![self.file("write")],
            capabilities: CapabilitySet::IPC_LOCK,
        }
    }
}

/// A system call with these arguments.
fn call(number: libc::c_long, arguments: [usize; 5]) -> libc::c_long {
    let [a, b, c, d, e] = arguments;
    // SAFETY: none of those that are tried is executed, which is what is tested; would one be, each
    // is given what it asks for: strings that end, arrays that end with null, nothing to write to.
    unsafe { libc::syscall(number, a, b, c, d, e) }
}

/// Attacks that are system calls of their own.
fn forbidden_calls() -> Vec<String> {
    let at = |text: &'static CStr| text.as_ptr() as usize;
    let arguments = [at(c"/bin/true"), 0];
    let parent = std::os::unix::process::parent_id() as usize;
    let attach = libc::PTRACE_ATTACH as usize;
    let (tmp, tmpfs) = (at(c"/tmp"), at(c"tmpfs"));
    let (packet, raw) = (libc::AF_PACKET as usize, libc::SOCK_RAW as usize);
    let namespace = libc::CLONE_NEWNET as usize;
    let execute = [arguments[0], arguments.as_ptr() as usize, 0, 0, 0];
    let tried = [
        ("execve", libc::SYS_execve, execute),
        ("ptrace", libc::SYS_ptrace, [attach, parent, 0, 0, 0]),
        ("mount", libc::SYS_mount, [tmpfs, tmp, tmpfs, 0, 0]),
        ("unshare", libc::SYS_unshare, [namespace, 0, 0, 0, 0]),
        ("chroot", libc::SYS_chroot, [tmp, 0, 0, 0, 0]),
        ("setuid", libc::SYS_setuid, [0; 5]),
        ("bpf", libc::SYS_bpf, [0; 5]),
        ("kill", libc::SYS_kill, [parent, 0, 0, 0, 0]),
        ("keyctl", libc::SYS_keyctl, [0; 5]),
        (
            "socket(AF_PACKET)",
            libc::SYS_socket,
            [packet, raw, 0, 0, 0],
        ),
    ];
    let tried = tried.into_iter();
    let wrong =
        tried.filter_map(|(what, number, arguments)| refused(what, call(number, arguments)));
    wrong.collect()
}

#[test]
fn other_system_calls_are_refused_and_end_nobody() {
    let folders = Folders::new();
    let wrong = in_sandbox(&folders.needs(), || {
        let mut wrong = forbidden_calls();
        // It goes on, and so do the threads that it makes, which may no more.
        wrong.extend(thread::spawn(forbidden_calls).join().unwrap());
        wrong.extend(
            std::net::UdpSocket::bind("127.0.0.1:0")
                .err()
                .map(|it| it.to_string()),
        );
        wrong
    });
    assert_eq!(wrong, "");
}

#[test]
fn other_files_are_out_of_reach() {
    let folders = Folders::new();
    let wrong = in_sandbox(&folders.needs(), || {
        let [read, write, other] =
            ["read/file", "write/file", "other/file"].map(|name| folders.file(name));
        let mut wrong: Vec<String> = [
            kept_out("another file", fs::read(&other)),
            kept_out("/etc/shadow", fs::read("/etc/shadow")),
            kept_out("by a link of /proc", fs::read("/proc/self/root/etc/shadow")),
            kept_out("writing what is read", fs::write(&read, "")),
            kept_out("making beside it", fs::write(folders.file("read/new"), "")),
            kept_out("removing it", fs::remove_file(&read)),
            kept_out("listing", fs::read_dir(folders.file("other"))),
        ]
        .into_iter()
        .flatten()
        .collect();
        let fine = [
            fs::read(&read).map(drop),
            fs::write(&write, "more"),
            fs::rename(&write, folders.file("write/renamed")),
            fs::remove_file(folders.file("write/renamed")),
        ];
        wrong.extend(
            fine.into_iter()
                .filter_map(|it| Some(it.err()?.to_string())),
        );
        wrong
    });
    assert_eq!(wrong, "");
}

/// Waits for what somebody else makes.
fn await_file(file: &Path) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !file.exists() {
        assert!(Instant::now() < give_up, "{} is missing", file.display());
        thread::sleep(Duration::from_millis(5));
    }
}

/// As programs write /etc/resolv.conf: what is put there is another file, of which a rule for the
/// one before says nothing.
#[test]
fn a_file_that_is_replaced_is_read_where_its_folder_is() {
    let folders = Folders::new();
    let needs = Needs {
        read: vec![folders.file("other/file"), "/proc".into()],
        read_files: vec![folders.file("read")],
        ..folders.needs()
    };
    let folder = folders.all.path().to_owned();
    let replacing = thread::spawn(move || {
        await_file(&folder.join("write/begun"));
        for name in ["read", "other"] {
            let new = folder.join(name).join("new");
            fs::write(&new, "another").unwrap();
            fs::rename(new, folder.join(name).join("file")).unwrap();
        }
        fs::write(folder.join("write/done"), "").unwrap();
    });
    let wrong = in_sandbox(&needs, || {
        let [of_folder, alone] = ["read/file", "other/file"].map(|name| folders.file(name));
        let before = [&of_folder, &alone].map(|file| fs::read(file).is_ok());
        fs::write(folders.file("write/begun"), "").unwrap();
        await_file(&folders.file("write/done"));
        let after = fs::read(&of_folder).unwrap_or_default();
        let mut wrong = Vec::new();
        if before != [true; 2] || after != b"another" {
            wrong.push(format!("{before:?}, {after:?}"));
        }
        wrong.extend(kept_out("one with a rule alone", fs::read(&alone)));
        wrong.extend(kept_out("listing", fs::read_dir(folders.file("read"))));
        wrong
    });
    assert_eq!(wrong, "");
    replacing.join().unwrap();
}

/// A ring's operations pass no filter of system calls.
#[test]
fn a_ring_opens_no_other_file_either() {
    let folders = Folders::new();
    let wrong = in_sandbox(&folders.needs(), || {
        let mut ring = IoUring::new(2).unwrap();
        let mut open = |file: &Path| {
            let file = path(file);
            let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), file.as_ptr()).build();
            // SAFETY: the name outlives the operation, which is waited for.
            unsafe { ring.submission().push(&entry).unwrap() };
            ring.submit_and_wait(1).unwrap();
            ring.completion().next().unwrap().result()
        };
        let (other, own) = (
            open(&folders.file("other/file")),
            open(&folders.file("read/file")),
        );
        let mut wrong = Vec::new();
        if other != -libc::EACCES {
            wrong.push(format!("another file: {other}"));
        }
        if own < 0 {
            wrong.push(format!("its own file: {own}"));
        }
        wrong
    });
    assert_eq!(wrong, "");
}

#[test]
fn capabilities_and_core_dumps_are_given_up() {
    require_root!();
    let wrong = in_sandbox(&Folders::new().needs(), || {
        let look = || {
            let mut wrong = Vec::new();
            let has = capabilities(None).unwrap();
            let all = has.effective | has.permitted | has.inheritable;
            if all != CapabilitySet::IPC_LOCK {
                wrong.push(format!("{all:?}"));
            }
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let bounding = format!("CapBnd:\t{:016x}\n", CapabilitySet::IPC_LOCK.bits());
            if !status.contains(&bounding) || !status.contains("CapAmb:\t0000000000000000\n") {
                wrong.push(status);
            }
            if !no_new_privs().unwrap() {
                wrong.push("new privileges".to_owned());
            }
            if dumpable_behavior().unwrap() != DumpableBehavior::NotDumpable {
                wrong.push("core dumps".to_owned());
            }
            wrong
        };
        let mut wrong = look();
        wrong.extend(thread::spawn(look).join().unwrap());
        wrong
    });
    assert_eq!(wrong, "");
}

#[test]
fn with_several_threads_nothing_is_given_up() {
    // This test's own, and the one that runs it.
    let error = apply(&Folders::new().needs()).unwrap_err();
    assert!(error.to_string().contains("threads run already"), "{error}");
    assert!(!no_new_privs().unwrap());
}

#[test]
fn what_is_not_there_is_left_out() {
    let mut needs = Folders::new().needs();
    needs.read.push("/no/such/folder".into());
    let wrong = in_sandbox(&needs, Vec::new);
    assert_eq!(wrong, "");
    assert_eq!(Part::Files.to_string(), "files");
}
