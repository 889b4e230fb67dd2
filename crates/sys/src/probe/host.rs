//! The kernel, the processors, and what this process may do.

use std::fs;
use std::mem::size_of;

use super::Refused;
use crate::thread::allowed_cores;
use onrush_lock::memory::has_capability;

/// The kernel, the processors and the user's rights.
#[derive(Debug)]
pub struct Host {
    /// As `uname -r` prints it.
    pub kernel_release: String,
    /// The processors that this process may run on, ascending.
    pub cores_allowed: Vec<usize>,
    /// What this process may do of [`Capability::ALL`].
    pub capabilities: Vec<Capability>,
    /// Whether a seccomp filter stands between this process and the kernel, as in most containers.
    pub seccomp_filtered: bool,
    /// Whether a tc program can be loaded: needed by the test bed, never by the server.
    pub bpf: Result<(), Refused>,
    /// Whether a program can be attached to a device so that it goes with who attached it: tcx
    /// (Linux 6.6). Needed by groups that the kernel replicates for.
    pub tcx: Result<(), Refused>,
    /// Some of the kernel's settings; `None` where this kernel has no such file.
    pub sysctls: Vec<(&'static str, Option<u64>)>,
}

/// The capabilities that matter here (capabilities(7)).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Capability {
    /// Set up interfaces and queueing disciplines.
    NetAdmin = 12,
    /// Lock any amount of memory.
    IpcLock = 14,
    /// Make namespaces, among much else.
    SysAdmin = 21,
}

impl Capability {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::NetAdmin, Self::IpcLock, Self::SysAdmin];
}

impl Host {
    pub(super) fn probe() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let filter = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            kernel_release: fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(
                |error| format!("unknown ({error})"),
                |text| text.trim().to_owned(),
            ),
            cores_allowed: allowed_cores(),
            capabilities: Capability::ALL
                .into_iter()
                .filter(|&c| has_capability(c as u32))
                .collect(),
            seccomp_filtered: filter.is_some_and(|mode| mode.trim() != "0"),
            bpf: bpf(),
            tcx: tcx(),
            sysctls: SYSCTLS.iter().map(|&name| (name, sysctl(name))).collect(),
        }
    }

    /// The value of one of [`Host::sysctls`].
    #[must_use]
    pub fn sysctl(&self, name: &str) -> Option<u64> {
        self.sysctls.iter().find(|(known, _)| *known == name)?.1
    }
}

fn sysctl(name: &str) -> Option<u64> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Loads a tc program that does nothing, and drops it.
fn bpf() -> Result<(), Refused> {
    /// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`; the kernel takes the rest as zeroes.
    #[repr(C)]
    struct Load {
        program_type: u32,
        instructions_count: u32,
        instructions: u64,
        license: u64,
        log_level: u32,
        log_bytes: u32,
        log: u64,
        kernel_version: u32,
        flags: u32,
    }
    const BPF_PROG_LOAD: libc::c_long = 5;
    const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
    // `r0 = 0; exit`
    const PROGRAM: [u64; 2] = [0xb7_u64.to_le(), 0x95_u64.to_le()];

    let load = Load {
        program_type: BPF_PROG_TYPE_SCHED_CLS,
        instructions_count: 2,
        instructions: PROGRAM.as_ptr() as u64,
        license: c"MIT".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags: 0,
    };
    // SAFETY: the attribute is as long as is said, has no padding, and points to constants.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const load,
            size_of::<Load>(),
        )
    };
    let Ok(fd @ 0..) = i32::try_from(fd) else {
        return Err(Refused::last("bpf(BPF_PROG_LOAD)"));
    };
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    unsafe { libc::close(fd) };
    Ok(())
}

/// Asks which programs are attached to the loopback device, the first of each namespace.
fn tcx() -> Result<(), Refused> {
    /// The beginning of `union bpf_attr` for `BPF_PROG_QUERY`; all else in it is zero.
    #[derive(Default)]
    #[repr(C)]
    struct Query {
        interface: u32,
        attach_type: u32,
        flags: [u32; 2],
        program_ids: u64,
        programs: u32,
        pad: u32,
        more: [u64; 4],
    }
    const BPF_PROG_QUERY: libc::c_long = 16;
    const BPF_TCX_EGRESS: u32 = 47;

    let mut query = Query {
        interface: 1,
        attach_type: BPF_TCX_EGRESS,
        ..Query::default()
    };
    // SAFETY: the attribute is as long as is said, has no padding of the compiler's, points to
    // nothing, and is written by the kernel within its length.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_QUERY,
            &raw mut query,
            size_of::<Query>(),
        )
    };
    match answer {
        0 => Ok(()),
        _ => Err(Refused::last("bpf(BPF_PROG_QUERY)")),
    }
}

/// What bounds the paths: socket buffers, zero-copy accounting, io_uring's switch.
const SYSCTLS: &[&str] = &[
    "kernel.io_uring_disabled",
    "net.core.wmem_max",
    "net.core.optmem_max",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_their_names() {
        let host = Host::probe();
        assert!(
            host.sysctl("net.core.wmem_max")
                .is_some_and(|bytes| bytes > 0)
        );
        assert_eq!(host.sysctl("net.core.no_such_setting"), None);
    }
}
