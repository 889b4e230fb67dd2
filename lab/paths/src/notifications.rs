//! Sends with MSG_ZEROCOPY, and the kernel's word on when it no longer needs their memory.
//!
//! Each such send has a number; the socket's error queue tells ranges of numbers that are done, and
//! of each range whether the kernel copied after all. The ranges that follow one another are joined
//! while they wait, so they are read seldom: when there is no room for more (ENOBUFS:
//! net.core.optmem_max), and at the end.

use std::io;
use std::mem;
use std::os::fd::RawFd;

use super::kernel::Calls;

/// Sends of one job whose memory the kernel may still need.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    outstanding: u64,
}

impl Notifications {
    /// Lets the socket send with MSG_ZEROCOPY.
    pub(super) fn enable(calls: &mut Calls, socket: RawFd) -> io::Result<Self> {
        calls.set(socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1)?;
        Ok(Self::default())
    }

    /// Sends these pieces together, by reference.
    pub(super) fn send(
        &mut self,
        calls: &mut Calls,
        socket: RawFd,
        pieces: &[libc::iovec],
    ) -> io::Result<()> {
        loop {
            match calls.send_pieces(socket, pieces, libc::MSG_ZEROCOPY) {
                Ok(_) => {
                    self.outstanding += 1;
                    return Ok(());
                }
                Err(error)
                    if error.raw_os_error() == Some(libc::ENOBUFS) && self.outstanding > 0 =>
                {
                    self.read(calls, socket)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until the kernel has let go of everything, and returns `sent`, or why that cannot be
    /// known.
    pub(super) fn finish(
        mut self,
        calls: &mut Calls,
        socket: RawFd,
        sent: io::Result<()>,
    ) -> io::Result<()> {
        while self.outstanding > 0 {
            self.read(calls, socket)?;
        }
        sent
    }

    /// Reads the error queue, after waiting for something to be in it.
    fn read(&mut self, calls: &mut Calls, socket: RawFd) -> io::Result<()> {
        let Some((sends, is_copied)) = read_error_queue(calls, socket)? else {
            // POLLERR needs not to be asked for.
            return calls.wait(socket, 0);
        };
        let counters = &mut calls.counters;
        *(if is_copied {
            &mut counters.sends_copied
        } else {
            &mut counters.sends_zero_copy
        }) += sends;
        self.outstanding = self.outstanding.saturating_sub(sends);
        Ok(())
    }
}

/// How many sends one entry of the error queue tells of, and whether they were copied; `None` if it
/// is empty.
fn read_error_queue(calls: &mut Calls, socket: RawFd) -> io::Result<Option<(u64, bool)>> {
    // Aligned for the headers that the kernel writes.
    let mut control = [0u64; 32];
    // SAFETY: a msghdr is addresses, lengths and flags, for which all zeroes is valid (and empty).
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    let received = calls.make(None, || {
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control);
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the message names `control`, which is writable and alive, and no other buffer.
        unsafe { libc::recvmsg(socket, &raw mut message, flags) }
    });
    match received {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    // SAFETY: the kernel has just filled the message's control data, which is alive.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if header.is_null() {
        return Ok(Some((0, false)));
    }
    // SAFETY: not null, so a whole header within the control data, which nobody changes.
    let message_header = unsafe { &*header };
    let v4 = (libc::SOL_IP, libc::IP_RECVERR);
    let v6 = (libc::SOL_IPV6, libc::IPV6_RECVERR);
    if ![v4, v6].contains(&(message_header.cmsg_level, message_header.cmsg_type)) {
        return Ok(Some((0, false)));
    }
    // SAFETY: the header is valid, see above.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: of that kind the data is a sock_extended_err; read without assuming its alignment.
    let error: libc::sock_extended_err =
        unsafe { data.cast::<libc::sock_extended_err>().read_unaligned() };
    if error.ee_origin != SO_EE_ORIGIN_ZEROCOPY {
        return Ok(Some((0, false)));
    }
    // Numbers wrap at 2^32.
    let sends = u64::from(error.ee_data.wrapping_sub(error.ee_info)) + 1;
    Ok(Some((
        sends,
        error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
    )))
}

/// linux/errqueue.h
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;

/// linux/errqueue.h
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
