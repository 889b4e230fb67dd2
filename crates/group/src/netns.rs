//! The network namespace of a socket, for a thread that may be in another.

use std::fs::File;
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::error::KernelError;
use super::network::netns_cookie;

/// Does something in the socket's network namespace: here, or if this thread is in another, on a
/// thread that goes there.
pub(super) fn in_netns_of<T: Send>(
    socket: &UdpSocket,
    act: impl FnOnce() -> Result<T, KernelError> + Send,
) -> Result<T, KernelError> {
    let probe = UdpSocket::bind("0.0.0.0:0").or_else(|_| UdpSocket::bind("[::]:0"));
    let here = probe.as_ref().ok().and_then(netns_cookie);
    if here == netns_cookie(socket) {
        return act();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter_netns_of(socket).map_err(KernelError::Network)?;
            act()
        });
        thread.join().expect("loading and asking do not panic")
    })
}

fn enter_netns_of(socket: &UdpSocket) -> io::Result<()> {
    // SAFETY: SIOCGSKNS takes no argument and answers with a new descriptor.
    let fd = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given us this descriptor and nobody else knows it.
    let netns = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: a descriptor and a flag. Only the calling thread moves, and it was made for that.
    if unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

const SIOCGSKNS: libc::c_ulong = 0x894C;
