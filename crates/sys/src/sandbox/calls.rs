//! The system calls that a server makes, and a filter (seccomp(2)) that refuses all others.
//!
//! The lists are what `packaging/used-calls.py` finds in traces of the end-to-end tests, and for
//! each of these what other versions of the C library or of Rust's standard library call in its
//! place. A call that is refused fails with EPERM, as if a right were missing, and on x86-64 is
//! named in the log once: a server that serves a thousand viewers is not killed for a call that one
//! of its rarer ways makes and the list has not. What the filter is to keep out (executing
//! programs, tracing, mounting, loading modules) gains nothing from being tried twice.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use super::{SandboxError, refused};

/// Memory, threads, signals and time.
const PROCESS: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_mempolicy,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_mseal,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_sigaltstack,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_uname,
];

/// cachestat(2), of Linux 6.5: the same number on all architectures.
const SYS_CACHESTAT: c_long = 451;

/// Files; which ones, is for Landlock to say.
const FILES: &[c_long] = &[
    SYS_CACHESTAT,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_inotify_add_watch,
    libc::SYS_inotify_init1,
    libc::SYS_inotify_rm_watch,
    libc::SYS_ioctl,
    libc::SYS_linkat,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat2,
    libc::SYS_sendfile,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_truncate,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_utimensat,
    libc::SYS_vmsplice,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Sockets, rings and waiting. `socket` itself is allowed for some families alone.
const NETWORK: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_listen,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
];

/// What newer architectures have no numbers for.
#[cfg(target_arch = "x86_64")]
const OLD: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_getrlimit,
    libc::SYS_link,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_renameat,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
/// On ARM64 the C library's `rename` is this call.
#[cfg(target_arch = "aarch64")]
const OLD: &[c_long] = &[libc::SYS_renameat];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const OLD: &[c_long] = &[];

/// For who loads eBPF programs, and enters the namespace in which they run.
const BPF: &[c_long] = &[libc::SYS_bpf, libc::SYS_setns];

/// The families of sockets: IP, the service manager's sockets, and what interfaces there are.
const FAMILIES: [i32; 4] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
];

/// Whether the call of that number is allowed to who loads no eBPF programs; `socket` is, for some
/// families.
#[must_use]
pub fn is_allowed(number: c_long) -> bool {
    allowed().any(|it| it == number) || number == libc::SYS_socket
}

fn allowed() -> impl Iterator<Item = c_long> {
    let all = [PROCESS, FILES, NETWORK, OLD];
    all.into_iter().flatten().copied()
}

/// From now on other calls fail with EPERM, and on x86-64 each is named in the log once.
pub(super) fn restrict(loads_bpf: bool) -> Result<String, SandboxError> {
    let architecture: TargetArch = std::env::consts::ARCH
        .try_into()
        .map_err(|_| SandboxError::Architecture)?;
    let cannot = |error: seccompiler::Error| SandboxError::System(std::io::Error::other(error));
    let backend = |error: seccompiler::BackendError| cannot(error.into());
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        allowed().map(|number| (number, Vec::new())).collect();
    if loads_bpf {
        rules.extend(BPF.iter().map(|&number| (number, Vec::new())));
    }
    let mut families = Vec::new();
    for family in FAMILIES {
        let family = u64::from(family.unsigned_abs());
        let (length, is) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
        let first = SeccompCondition::new(0, length, is, family).map_err(backend)?;
        families.push(SeccompRule::new(vec![first]).map_err(backend)?);
    }
    rules.insert(libc::SYS_socket, families);
    let calls = rules.len();
    let refuse = refused::action()?;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, architecture);
    let program: seccompiler::BpfProgram = filter.and_then(TryInto::try_into).map_err(backend)?;
    seccompiler::apply_filter(&program).map_err(cannot)?;
    Ok(format!("{calls} (seccomp)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_never_does_is_not_allowed() {
        for number in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_setuid,
            libc::SYS_setgid,
            libc::SYS_setresuid,
            libc::SYS_capset,
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_kexec_load,
            libc::SYS_keyctl,
            libc::SYS_kill,
            libc::SYS_pidfd_getfd,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_clock_settime,
            libc::SYS_settimeofday,
            libc::SYS_userfaultfd,
        ] {
            assert!(!is_allowed(number), "{number}");
        }
        assert!(is_allowed(libc::SYS_read) && is_allowed(libc::SYS_socket));
    }

    /// On ARM64 the C library's `rename` is the older one.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    #[test]
    fn files_may_be_renamed_by_each_call_for_it() {
        assert!(is_allowed(libc::SYS_renameat) && is_allowed(libc::SYS_renameat2));
    }

    #[test]
    fn no_call_is_listed_twice() {
        let mut all: Vec<_> = allowed().chain(BPF.iter().copied()).collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
