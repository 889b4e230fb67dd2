//! What all paths that use a ring share: building one, and reading its answers.

use std::io;

use io_uring::IoUring;

/// Asks whether the kernel copied: IORING_SEND_ZC_REPORT_USAGE, Linux 6.2.
pub const REPORT_USAGE: u16 = 8;

/// The answer to it, in a notification's result: IORING_NOTIF_USAGE_ZC_COPIED.
pub const USAGE_COPIED: i32 = i32::MIN;

/// The best ring this kernel builds: completions deferred to our own sleep, with one submitter
/// (6.1); not interrupting us (5.19); or plain.
///
/// # Errors
///
/// Those of io_uring_setup(2): ENOSYS, EPERM where it is switched off, ENOMEM.
pub fn build_ring(entries: u32, completions: u32) -> io::Result<IoUring> {
    let builders: [fn(&mut io_uring::Builder); 3] = [
        |b| {
            b.setup_submit_all()
                .setup_single_issuer()
                .setup_defer_taskrun();
        },
        |b| {
            b.setup_submit_all().setup_coop_taskrun();
        },
        |_| {},
    ];
    let mut last = Err(io::ErrorKind::Unsupported.into());
    for set_up in builders {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(completions);
        set_up(&mut builder);
        last = builder.build(entries);
        // Only EINVAL speaks of the flags; anything else is true of every ring.
        if !matches!(&last, Err(e) if e.raw_os_error() == Some(libc::EINVAL)) {
            break;
        }
    }
    last
}

/// Whether this kernel is of that version or later.
#[must_use]
pub fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|p| p.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (major, minor)
}
