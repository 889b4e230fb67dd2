//! What an io_uring can do here.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, Probe, cqueue, opcode};

use super::Refused;
use super::memory::{most, refused};
use super::udp::Pair;
use onrush_lock::memory::Area;

/// What an io_uring can do here.
#[derive(Debug)]
pub struct Ring {
    /// Whether the kernel knows `IORING_OP_SEND_ZC` (Linux 6.0).
    pub send_zc: bool,
    /// Whether the kernel knows `IORING_OP_READ_FIXED`, for cold reads (5.1).
    pub read_fixed: bool,
    /// Whether a socket in the ring's table can be had back, `IORING_OP_FIXED_FD_INSTALL` (6.8), so
    /// that sockets need no descriptors while they are there.
    pub keeps_sockets: bool,
    /// Whether a wait can carry a time-out, `IORING_FEAT_EXT_ARG` (5.11).
    pub wait_timeout: bool,
    /// Whether that time-out can be an absolute time, `IORING_ENTER_ABS_TIMER` (6.12).
    pub wait_until: Result<(), Refused>,
    /// `IORING_SETUP_SINGLE_ISSUER` (6.0).
    pub single_issuer: Result<(), Refused>,
    /// `IORING_SETUP_DEFER_TASKRUN` (6.1).
    pub defer_taskrun: Result<(), Refused>,
    /// The most bytes that one buffer could be registered with, up to `TRIAL_BYTES_MAX`.
    pub registered_bytes: Result<usize, Refused>,
    /// One SEND_ZC of a train from a registered buffer, over loopback.
    pub train: Result<RingTrain, Refused>,
}

/// How the trial train went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RingTrain {
    /// Whether the kernel copied it after all; over loopback it always does.
    pub copied: bool,
}

impl Ring {
    pub(super) fn probe() -> Result<Self, Refused> {
        const SETUP: &str = "io_uring_setup";
        let ring = IoUring::new(8).map_err(|error| Refused::new(SETUP, error))?;
        let mut known = Probe::new();
        let asked = ring.submitter().register_probe(&mut known);
        asked.map_err(|error| Refused::new("io_uring_register(REGISTER_PROBE)", error))?;
        let flagged = |set: fn(&mut io_uring::Builder) -> &mut io_uring::Builder| {
            set(&mut IoUring::builder())
                .build(8)
                .map(drop)
                .map_err(|e| Refused::new(SETUP, e))
        };
        Ok(Self {
            send_zc: known.is_supported(opcode::SendZc::CODE),
            read_fixed: known.is_supported(opcode::ReadFixed::CODE),
            keeps_sockets: known.is_supported(opcode::FixedFdInstall::CODE),
            wait_timeout: ring.params().is_feature_ext_arg(),
            wait_until: wait_until(&ring),
            single_issuer: flagged(|builder| builder.setup_single_issuer()),
            // Deferring needs a single issuer.
            defer_taskrun: flagged(|b| b.setup_single_issuer().setup_defer_taskrun()),
            registered_bytes: most(|area| register(&ring, area)),
            train: train(),
        })
    }
}

/// Waits until a moment long past, which only a kernel that knows absolute times ends at once.
fn wait_until(ring: &IoUring) -> Result<(), Refused> {
    let past = Timespec::new().nsec(1);
    let args = SubmitArgs::new().timespec(&past);
    let flags = EnterFlags::GETEVENTS | EnterFlags::EXT_ARG | EnterFlags::ABS_TIMER;
    // SAFETY: EXT_ARG makes the kernel read the argument as `io_uring_getevents_arg`, which
    // SubmitArgs is; it and the time it points to live until the call returns. Nothing is
    // submitted.
    match unsafe { ring.submitter().enter(0, 1, flags.bits(), Some(&args)) } {
        Err(error) if error.raw_os_error() == Some(libc::ETIME) => Ok(()),
        Err(error) => Err(Refused::new("io_uring_enter(ABS_TIMER)", error)),
        Ok(_) => Err(Refused::other(
            "io_uring_enter(ABS_TIMER)",
            "returned without an event",
        )),
    }
}

/// Registers the area as the ring's only buffer and takes it back.
fn register(ring: &IoUring, area: &Area) -> Result<(), Refused> {
    let failed = |error| Refused::new("io_uring_register(REGISTER_BUFFERS)", error);
    // SAFETY: the buffer is a mapping that outlives its registration, which ends below.
    unsafe { ring.submitter().register_buffers(&[whole(area)]) }.map_err(failed)?;
    ring.submitter().unregister_buffers().map_err(failed)
}

/// One crossing: a train of four datagrams from a registered buffer, with both completions.
fn train() -> Result<RingTrain, Refused> {
    const CALL: &str = "SEND_ZC from a registered buffer";
    const TRAIN_BYTES: u32 = 900;
    /// `IORING_SEND_ZC_REPORT_USAGE`: the notification says whether the bytes were copied.
    const REPORT_USAGE: u16 = 8;
    /// `IORING_NOTIF_USAGE_ZC_COPIED`.
    const COPIED: u32 = 1 << 31;

    let pair = Pair::new()?;
    pair.set_segment_bytes(256)?;
    // Before the ring, so that the ring, and with it what is in flight, is dropped first.
    let area = Area::map(4096).map_err(refused)?;
    let mut ring = IoUring::new(8).map_err(|error| Refused::new("io_uring_setup", error))?;
    let piece = whole(&area);
    // SAFETY: the area outlives the ring, see above.
    unsafe { ring.submitter().register_buffers(&[piece]) }.map_err(|e| Refused::new(CALL, e))?;
    let send = opcode::SendZc::new(
        Fd(pair.sender.as_raw_fd()),
        piece.iov_base.cast_const().cast(),
        TRAIN_BYTES,
    );
    let send = send.buf_index(Some(0)).zc_flags(REPORT_USAGE).build();
    // SAFETY: the range lies in registered buffer 0, which lives until the ring is gone; nobody
    // writes to it.
    unsafe { ring.submission().push(&send) }.map_err(|_| Refused::other(CALL, "queue full"))?;

    let first = completion(&mut ring).map_err(|error| Refused::new(CALL, error))?;
    if first.result() < 0 {
        return Err(Refused::new(
            CALL,
            io::Error::from_raw_os_error(-first.result()),
        ));
    }
    if first.result().cast_unsigned() != TRAIN_BYTES || !cqueue::more(first.flags()) {
        return Err(Refused::other(CALL, format!("completed oddly: {first:?}")));
    }
    pair.expect(CALL, &[256, 256, 256, 132])?;
    let notification = completion(&mut ring).map_err(|error| Refused::new(CALL, error))?;
    Ok(RingTrain {
        copied: notification.result().cast_unsigned() & COPIED != 0,
    })
}

/// The area as the kernel wants it named.
fn whole(area: &Area) -> libc::iovec {
    libc::iovec {
        iov_base: area.base().as_ptr().cast(),
        iov_len: area.bytes_total(),
    }
}

/// The next completion, after submitting what is queued; half a second at the most.
fn completion(ring: &mut IoUring) -> io::Result<cqueue::Entry> {
    let patience = Timespec::new().nsec(500_000_000);
    let args = SubmitArgs::new().timespec(&patience);
    ring.submitter().submit_with_args(1, &args)?;
    ring.completion()
        .next()
        .ok_or_else(|| io::Error::other("completed without an entry"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_exists_answers_consistently() {
        let ring = match Ring::probe() {
            Ok(ring) => ring,
            Err(refused) => {
                assert!(matches!(
                    refused.source.raw_os_error(),
                    Some(libc::ENOSYS | libc::EPERM | libc::ENOMEM)
                ));
                return;
            }
        };
        // What the kernel does not know cannot have worked, and nothing that worked is unknown.
        assert!(ring.send_zc || ring.train.is_err());
        assert!(ring.wait_timeout || ring.wait_until.is_err());
        assert!(ring.single_issuer.is_ok() || ring.defer_taskrun.is_err());
        if ring.registered_bytes.is_ok() && ring.send_zc {
            assert_eq!(
                ring.train.unwrap(),
                RingTrain { copied: true },
                "loopback copies"
            );
        }
    }

    #[test]
    fn an_unregistered_buffer_is_a_refusal() {
        // Buffer 0 of a ring without buffers: the checks above rest on the kernel saying so.
        let pair = Pair::new().unwrap();
        let Ok(mut ring) = IoUring::new(8) else {
            return;
        };
        let area = Area::map(4096).unwrap();
        let piece = whole(&area);
        let fd = Fd(pair.sender.as_raw_fd());
        let send = opcode::SendZc::new(fd, piece.iov_base.cast_const().cast(), 100);
        // SAFETY: the area outlives the ring's use of it: the completion is awaited below.
        unsafe { ring.submission().push(&send.buf_index(Some(0)).build()) }.unwrap();
        assert!(completion(&mut ring).unwrap().result() < 0);
    }
}
