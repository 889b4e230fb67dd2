//! What is set on a socket before a path sends through it.

use std::io;
use std::mem;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::{PathError, PathName};
use crate::socket::whole_number;

/// Readies a connected UDP socket for trains of `stride` bytes an image on the path of that name.
///
/// # Errors
///
/// Those of setsockopt(2): EOPNOTSUPP or ENOPROTOOPT where the kernel cuts no trains.
pub fn prepare_socket(name: PathName, fd: RawFd, stride: u16) -> io::Result<()> {
    // Also for single packets: a send with fragments and without UDP_SEGMENT is marked
    // CHECKSUM_NONE, and the processor sums every page of it (net/ipv4/ip_output.c,
    // __ip_append_data). 0 turns it off.
    let segment = if name.segments() {
        i32::from(stride)
    } else {
        0
    };
    if let Err(error) = set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, segment)
        && name.segments()
    {
        return Err(error);
    }
    widen_send_buffer(fd)
}

/// Bytes that a socket of this process may have under way, as the kernel counts them: it charges a
/// zero-copy train from the start of its page (io_uring/net.c, `io_sg_from_iter`:
/// `PAGE_ALIGN(bv_len + bv_offset)`), which of a huge page is up to 2 MiB for a train of any
/// length.
///
/// # Errors
///
/// Those of a new socket: EMFILE, ENFILE, ENOBUFS.
pub fn send_buffer_bytes() -> io::Result<usize> {
    let socket = loopback_socket()?;
    widen_send_buffer(socket.as_raw_fd())?;
    let bytes = whole_number(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

/// As much as may be: what is under way is bounded by
/// [`IN_FLIGHT_TRAINS_MAX`](super::IN_FLIGHT_TRAINS_MAX) and by the pool, and the kernel's charge
/// says little about it. FORCE passes net.core.wmem_max and needs CAP_NET_ADMIN; without it that
/// limit is what we get.
///
/// # Errors
///
/// Those of setsockopt(2).
pub fn widen_send_buffer(fd: RawFd) -> io::Result<()> {
    set_option(
        fd,
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        SEND_BUFFER_BYTES,
    )
    .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER_BYTES))
}

/// What [`widen_send_buffer`] asks for.
pub const SEND_BUFFER_BYTES: i32 = 256 << 20;

/// Whether this kernel cuts trains.
///
/// # Errors
///
/// If it does not, or there is no socket to ask.
pub fn probe_udp_segment() -> Result<(), PathError> {
    let socket = loopback_socket().map_err(PathError::UdpSegment)?;
    check_udp_segment(&socket).map_err(PathError::UdpSegment)
}

/// The same of that socket, which then cuts what is sent on it until it is told another length.
///
/// # Errors
///
/// As [`probe_udp_segment`].
pub fn check_udp_segment(socket: &impl AsFd) -> io::Result<()> {
    let segment = 1000;
    let fd = socket.as_fd().as_raw_fd();
    set_option(fd, libc::SOL_UDP, libc::UDP_SEGMENT, segment)?;
    // gVisor answers 0 to options of UDP, which it does not know, and would send a train as one
    // datagram.
    match whole_number(socket, libc::SOL_UDP, libc::UDP_SEGMENT)? == segment {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
    }
}

/// A socket to try options on. A host without IPv4 has one of IPv6.
pub(super) fn loopback_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))
}

/// Sets an option of a socket that is a whole number: setsockopt(2).
///
/// # Errors
///
/// Those of setsockopt(2).
pub fn set_option(fd: RawFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of::<i32>()).expect("four bytes");
    // SAFETY: `value` is readable for the length given.
    let r = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), length) };
    if r == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What [`prepare_stream`] asks for; the kernel doubles it.
const STREAM_BUFFER_BYTES: i32 = 512 << 20;

/// Readies a connection for packets that the kernel refers to: it reckons each by the page that it
/// lies in, of huge ones up to 2 MiB, so that a buffer of the usual size is full of a few sends.
/// Who queues the sends bounds them. Whether that may be: without CAP_NET_ADMIN the buffer stays as
/// it is, which [`prepare_copied_stream`] has made small.
pub fn prepare_stream(socket: BorrowedFd<'_>) -> bool {
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    set_option(fd, level, libc::SO_SNDBUFFORCE, STREAM_BUFFER_BYTES).is_ok()
}

/// Readies a connection for bytes that the kernel copies: it keeps no more than about so many that
/// its peer has not acknowledged, where it would keep up to some megabytes by itself
/// (net.ipv4.tcp_wmem).
pub fn prepare_copied_stream(socket: BorrowedFd<'_>, unacknowledged_bytes_max: usize) {
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    // Of what is asked for the kernel takes twice (socket(7)), to reckon with what buffers cost;
    // that of TCP's is little, where they are long.
    let bytes = i32::try_from(unacknowledged_bytes_max / 2).unwrap_or(i32::MAX);
    // Without the right to it, as many as everybody may have (net.core.wmem_max).
    let forced = set_option(fd, level, libc::SO_SNDBUFFORCE, bytes);
    drop(forced.or_else(|_| set_option(fd, level, libc::SO_SNDBUF, bytes)));
}

/// Ends a connection at once: what its peer has not acknowledged is thrown away, and every send
/// that waits for room fails (net/ipv4/tcp.c, `tcp_disconnect`). Closing would leave it to a peer
/// that reads nothing how long the memory is referred to.
pub fn abort_stream(socket: BorrowedFd<'_>) {
    // SAFETY: a sockaddr is integers, for which zero is a value; AF_UNSPEC is zero.
    let address: libc::sockaddr = unsafe { mem::zeroed() };
    let length = libc::socklen_t::try_from(size_of_val(&address)).expect("16 bytes");
    // SAFETY: the descriptor is open for as long as it is borrowed; the address is readable for the
    // length given.
    let result = unsafe { libc::connect(socket.as_raw_fd(), &raw const address, length) };
    // A socket that is no connection any more has nothing to end.
    debug_assert!(result == 0, "{}", io::Error::last_os_error());
}
