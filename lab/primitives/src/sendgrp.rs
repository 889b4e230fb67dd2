//! `SO_SETSENDGRP`, as a program uses it that knows nothing of this project: plain setsockopt(2).

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

/// The members of a socket are these: `onrush_sendgrp.h`.
const SO_SETSENDGRP: libc::c_int = 0x4f01;
/// These are with the next [`SO_SETSENDGRP`].
const SO_STAGESENDGRP: libc::c_int = 0x4f04;
/// What is told of a socket's members.
const SO_SENDGRPINFO: libc::c_int = 0x4f05;
/// IPv4 addresses of a call: a page of them.
pub const ADDRESSES_MAX: usize = 256;
/// Bytes of a `struct sockaddr_in`.
const ADDRESS_BYTES: usize = 16;

/// `struct sendgrp_info`.
#[derive(Default)]
#[repr(C)]
struct SendgrpInfo {
    members: u32,
    members_max: u32,
    sends: u64,
    packets: u64,
    refused: u64,
    over_quota: u64,
}

/// Makes these the members of the socket, in as many calls as they take.
///
/// # Errors
///
/// What the system says: ENOPROTOOPT where no agent serves the socket's control group. EINVAL for
/// an address that is not of IPv4.
pub fn set_members(socket: &UdpSocket, members: &[SocketAddr]) -> io::Result<()> {
    let mut pages: Vec<_> = members.chunks(ADDRESSES_MAX).collect();
    let last = pages.pop().unwrap_or_default();
    for page in pages {
        set(socket, SO_STAGESENDGRP, &encoded(page)?)?;
    }
    set(socket, SO_SETSENDGRP, &encoded(last)?)
}

/// Packets that were handed on to members of the socket so far.
///
/// # Errors
///
/// What the system says.
pub fn packets(socket: &UdpSocket) -> io::Result<u64> {
    let mut info = SendgrpInfo::default();
    let mut length = libc::socklen_t::try_from(size_of::<SendgrpInfo>()).expect("40 bytes");
    let (fd, level, value) = (socket.as_raw_fd(), libc::SOL_SOCKET, (&raw mut info).cast());
    // SAFETY: `info` is writable for the length given, which is writable itself.
    match unsafe { libc::getsockopt(fd, level, SO_SENDGRPINFO, value, &raw mut length) } {
        0 => Ok(info.packets),
        _ => Err(io::Error::last_os_error()),
    }
}

/// As `struct sockaddr_in`, one behind the other.
fn encoded(members: &[SocketAddr]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(members.len() * ADDRESS_BYTES);
    for member in members {
        let SocketAddr::V4(member) = member else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let family = libc::sa_family_t::try_from(libc::AF_INET).expect("it is 2");
        bytes.extend_from_slice(&family.to_ne_bytes());
        bytes.extend_from_slice(&member.port().to_be_bytes());
        bytes.extend_from_slice(&member.ip().octets());
        bytes.extend_from_slice(&[0; 8]);
    }
    Ok(bytes)
}

fn set(socket: &UdpSocket, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).expect("a page at most");
    let (fd, level) = (socket.as_raw_fd(), libc::SOL_SOCKET);
    // SAFETY: the value is readable for the length given, and is only read.
    match unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), length) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lie_as_c_has_them() {
        let bytes = encoded(&["10.1.2.3:258".parse().unwrap()]).unwrap();
        assert_eq!(bytes.len(), size_of::<libc::sockaddr_in>());
        assert_eq!(bytes[..2], 2_u16.to_ne_bytes());
        assert_eq!(bytes[2..], [1, 2, 10, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(encoded(&["[::1]:5".parse().unwrap()]).is_err());
    }

    #[test]
    fn without_an_agent_there_is_no_such_option() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let refused = set_members(&socket, &[socket.local_addr().unwrap()]).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::ENOPROTOOPT));
    }
}
