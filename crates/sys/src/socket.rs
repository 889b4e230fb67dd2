//! What a socket knows and the standard library does not ask.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Once;

use tracing::info;

use crate::receive::address;

/// Bytes of a packet on Ethernet, which most paths carry.
const ETHERNET_MTU_BYTES: u32 = 1500;

/// Bytes that every path of IPv6 carries (RFC 8200, section 5).
const IPV6_MTU_BYTES_MIN: u32 = 1280;

/// The path MTU towards the address `socket` is connected to, in bytes, IP header included: the
/// route's, or less once a router has said so. Of a system that tells it of no socket (gVisor) it
/// is taken to be Ethernet's, or for IPv6 what every path has.
///
/// # Errors
///
/// ENOTCONN if it is not connected.
pub fn path_mtu(socket: &impl AsFd) -> io::Result<u32> {
    // The family is not asked for first: most sockets are of IPv4, and each viewer has this done.
    let mtu_bytes = match whole_number(socket, libc::IPPROTO_IP, libc::IP_MTU) {
        Err(error) if is_no_option(&error) => {
            whole_number(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)
        }
        answer => answer,
    };
    match mtu_bytes {
        Err(error) if is_no_option(&error) => Ok(assumed_mtu(socket)),
        answer => u32::try_from(answer?).map_err(io::Error::other),
    }
}

/// Whether the socket has no such option, or the system does not know it.
fn is_no_option(error: &io::Error) -> bool {
    // Of the kernel's include/linux/errno.h; not in the libc crate.
    const ENOTSUPP: i32 = 524;
    let errno = error.raw_os_error();
    matches!(errno, Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP | ENOTSUPP))
}

/// The path MTU where it cannot be asked for.
fn assumed_mtu(socket: &impl AsFd) -> u32 {
    static TOLD: Once = Once::new();
    let mtu_bytes = match whole_number(socket, libc::SOL_SOCKET, libc::SO_DOMAIN) {
        Ok(libc::AF_INET) => ETHERNET_MTU_BYTES,
        _ => IPV6_MTU_BYTES_MIN,
    };
    TOLD.call_once(|| {
        info!(
            "the system does not tell the MTU of paths (IP_MTU): {ETHERNET_MTU_BYTES} bytes are \
             assumed over IPv4, {IPV6_MTU_BYTES_MIN} over IPv6"
        );
    });
    mtu_bytes
}

/// An option of a socket that is a whole number: getsockopt(2).
///
/// # Errors
///
/// Those of getsockopt(2).
pub(crate) fn whole_number(socket: &impl AsFd, level: i32, option: i32) -> io::Result<libc::c_int> {
    let fd = socket.as_fd();
    let mut value: libc::c_int = 0;
    let mut value_bytes: libc::socklen_t = 4;
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the value is a c_int,
    // whose four bytes are writable as `value_bytes` says, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut value_bytes,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has what the network says about datagrams of `socket`, which need not be connected, kept for
/// [`take_error`] (IP_RECVERR, ip(7)). It also comes as the error of some other call on the socket,
/// once.
///
/// # Errors
///
/// What the system says; there is no reason known.
pub fn keep_errors(socket: &UdpSocket) -> io::Result<()> {
    let (level, option) = match socket.local_addr()?.is_ipv4() {
        true => (libc::IPPROTO_IP, libc::IP_RECVERR),
        false => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
    };
    set(socket, level, option, &1_i32, 4)
}

/// The oldest error that was kept: what it is, and whom the datagram was for, if that is known.
///
/// # Errors
///
/// `WouldBlock` if there is none.
pub fn take_error(socket: &impl AsFd) -> io::Result<(io::Error, Option<SocketAddr>)> {
    // Room for a sock_extended_err with the address of who complains, and as much again.
    #[repr(C, align(8))]
    struct Control([u8; 128]);
    let mut control = Control([0; 128]);
    // SAFETY: a sockaddr_storage is integers, for which zero is a value.
    let mut to: libc::sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: a msghdr is integers and pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_name = (&raw mut to).cast();
    message.msg_namelen = libc::socklen_t::try_from(size_of_val(&to)).unwrap_or(0);
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    let (fd, flags) = (
        socket.as_fd().as_raw_fd(),
        libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
    );
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; name and control are
    // writable for the lengths given and outlive the call; there is no place for data, which is cut
    // off.
    let result = unsafe { libc::recvmsg(fd, &raw mut message, flags) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut errno = libc::EIO;
    // SAFETY: the header is as recvmsg has filled it in, and its control still there.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR yield null or a whole header within the control,
        // which is aligned.
        let cmsghdr = unsafe { ptr::read(header) };
        let kind = (cmsghdr.cmsg_level, cmsghdr.cmsg_type);
        if kind == (libc::IPPROTO_IP, libc::IP_RECVERR)
            || kind == (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        {
            // SAFETY: the header is a whole one, as above.
            let data = unsafe { libc::CMSG_DATA(header) };
            // SAFETY: the data of such a message begins with a sock_extended_err (ip(7)), not
            // always aligned.
            let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(data.cast()) };
            errno = i32::try_from(error.ee_errno).unwrap_or(libc::EIO);
        }
        // SAFETY: as above; `header` is one of this message.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok((io::Error::from_raw_os_error(errno), address(&to)))
}

/// Makes `socket` hear the multicast group `group` on the interface of number `interface` (0: as
/// the routes say), from everybody or from `source` alone (RFC 3678), and no group that somebody
/// else on this host has joined.
///
/// # Errors
///
/// EINVAL if `group` is none, or of another family than the socket; ENODEV if there is no such
/// interface.
pub fn join_group(
    socket: &UdpSocket,
    group: IpAddr,
    source: Option<IpAddr>,
    interface: u32,
) -> io::Result<()> {
    // Of the kernel's include/uapi/linux/in.h and in6.h; not in the libc crate.
    const MCAST_JOIN_GROUP: libc::c_int = 42;
    const MCAST_JOIN_SOURCE_GROUP: libc::c_int = 46;
    const IP_MULTICAST_ALL: libc::c_int = 49;
    const IPV6_MULTICAST_ALL: libc::c_int = 29;
    let (level, all) = match group {
        IpAddr::V4(_) => (libc::IPPROTO_IP, IP_MULTICAST_ALL),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL),
    };
    let request = GroupRequest {
        interface,
        group: storage(group),
        source: storage(source.unwrap_or(group)),
    };
    let (option, value_bytes) = match source {
        None => (MCAST_JOIN_GROUP, mem::offset_of!(GroupRequest, source)),
        Some(_) => (MCAST_JOIN_SOURCE_GROUP, size_of::<GroupRequest>()),
    };
    set(socket, level, option, &request, value_bytes)?;
    set(socket, level, all, &0_i32, 4)
}

/// The contrary of [`join_group`], whoever was heard; also on an interface that is gone.
///
/// # Errors
///
/// EADDRNOTAVAIL if `socket` is not a member there; ENODEV if there is no such interface, and no
/// membership from when there was.
pub fn leave_group(socket: &UdpSocket, group: IpAddr, interface: u32) -> io::Result<()> {
    // As above.
    const MCAST_LEAVE_GROUP: libc::c_int = 45;
    let level = match group {
        IpAddr::V4(_) => libc::IPPROTO_IP,
        IpAddr::V6(_) => libc::IPPROTO_IPV6,
    };
    let request = GroupRequest {
        interface,
        group: storage(group),
        source: storage(group),
    };
    let value_bytes = mem::offset_of!(GroupRequest, source);
    set(socket, level, MCAST_LEAVE_GROUP, &request, value_bytes)
}

/// Has `socket` hear only what comes by the interface of number `interface`, and nothing any more
/// by one that it was told before. Unlike binding to another interface it takes no privilege.
///
/// # Errors
///
/// ENOMEM.
pub fn hear_interface(socket: &UdpSocket, interface: u32) -> io::Result<()> {
    // Of linux/bpf_common.h: BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K.
    const LOAD: u16 = 0x20;
    const SKIP_UNLESS_EQUAL: u16 = 0x15;
    const TAKE_BYTES: u16 = 0x06;
    const CAME_BY: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX).cast_unsigned();
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut steps = [
        step(LOAD, 0, CAME_BY),
        step(SKIP_UNLESS_EQUAL, 1, interface),
        step(TAKE_BYTES, 0, u32::MAX),
        step(TAKE_BYTES, 0, 0),
    ];
    // The kernel copies the steps while it is called.
    let program = libc::sock_fprog {
        len: 4,
        filter: steps.as_mut_ptr(),
    };
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    set(socket, level, option, &program, size_of_val(&program))
}

/// `struct group_source_req`; `struct group_req` is its beginning.
#[repr(C)]
struct GroupRequest {
    interface: u32,
    group: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
}

fn set<T>(
    socket: &UdpSocket,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
    value_bytes: usize,
) -> io::Result<()> {
    assert!(value_bytes <= size_of::<T>());
    // SAFETY: the descriptor is open for as long as `socket` is borrowed; the first `value_bytes`
    // of `value` are readable, as asserted, and outlive the call, as does what they point to.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            ptr::from_ref(value).cast(),
            libc::socklen_t::try_from(value_bytes).unwrap_or(0),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// An address without a port, as the kernel takes it.
fn storage(ip: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: a sockaddr_storage is integers, for which zero is a value.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let family = |family| libc::sa_family_t::try_from(family).expect("both are below 16");
    let place = &raw mut storage;
    match ip {
        IpAddr::V4(ip) => {
            // SAFETY: a sockaddr_in is integers, for which zero is a value.
            let mut v4: libc::sockaddr_in = unsafe { mem::zeroed() };
            v4.sin_family = family(libc::AF_INET);
            v4.sin_addr.s_addr = u32::from(ip).to_be();
            // SAFETY: a sockaddr_storage is large and aligned enough for a sockaddr_in.
            unsafe { ptr::write(place.cast(), v4) };
        }
        IpAddr::V6(ip) => {
            // SAFETY: a sockaddr_in6 is integers, for which zero is a value.
            let mut v6: libc::sockaddr_in6 = unsafe { mem::zeroed() };
            v6.sin6_family = family(libc::AF_INET6);
            v6.sin6_addr.s6_addr = ip.octets();
            // SAFETY: a sockaddr_storage is large and aligned enough for a sockaddr_in6.
            unsafe { ptr::write(place.cast(), v6) };
        }
    }
    storage
}

/// The number of the interface that has this address: its scope's, or as the kernel lists it.
///
/// # Errors
///
/// `AddrNotAvailable` if no interface has it; what the system says about /proc/net/if_inet6.
pub fn interface_of(address: SocketAddrV6) -> io::Result<u32> {
    if address.scope_id() != 0 {
        return Ok(address.scope_id());
    }
    // Address, number, prefix, scope, flags and name, all but the last in hexadecimal.
    let listed = std::fs::read_to_string("/proc/net/if_inet6")?;
    let interface = listed.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let ip = u128::from_str_radix(fields.next()?, 16).ok()?;
        let interface = u32::from_str_radix(fields.next()?, 16).ok()?;
        (Ipv6Addr::from(ip) == *address.ip()).then_some(interface)
    });
    interface.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Bytes that a TCP socket was given and its peer has not acknowledged (SIOCOUTQ, tcp(7)).
///
/// # Errors
///
/// Those of ioctl(2): `socket` is no stream socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open for as long as it is borrowed; TIOCOUTQ, which is SIOCOUTQ,
    // writes an int where it is told to, and that lives on.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_joined_in_both_families_and_only_groups() {
        let lo = 1;
        let groups = [
            ("127.0.0.1", "239.1.2.3", None),
            ("127.0.0.1", "232.1.2.3", Some("127.0.0.1")),
            ("::1", "ff05::1:3", None),
            ("::1", "ff35::1:3", Some("::1")),
        ];
        for (own, group, source) in groups {
            let socket = UdpSocket::bind((own, 0)).unwrap();
            let source = source.map(|source: &str| source.parse().unwrap());
            let group = group.parse().unwrap();
            join_group(&socket, group, source, lo).unwrap();
            let error = join_group(&socket, own.parse().unwrap(), source, lo).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{own}");
            let twice = join_group(&socket, group, source, lo).unwrap_err();
            // Of one sender the second says it.
            let errno = source.map_or(libc::EADDRINUSE, |_| libc::EADDRNOTAVAIL);
            assert_eq!(twice.raw_os_error(), Some(errno), "{group}");
            leave_group(&socket, group, lo).unwrap();
            let error = leave_group(&socket, group, lo).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{group}");
            join_group(&socket, group, source, lo).unwrap();
        }
    }

    #[test]
    fn only_what_comes_by_the_interface_is_heard() {
        let lo = 1;
        let [socket, sender] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let to = socket.local_addr().unwrap();
        for (interface, patience_ms, is_heard) in
            [(lo, 10_000, true), (lo + 1, 100, false), (lo, 10_000, true)]
        {
            hear_interface(&socket, interface).unwrap();
            let patience = std::time::Duration::from_millis(patience_ms);
            socket.set_read_timeout(Some(patience)).unwrap();
            sender.send_to(b"heard?", to).unwrap();
            let heard = socket.recv(&mut [0; 8]);
            assert_eq!(heard.is_ok(), is_heard, "{interface}: {heard:?}");
        }
    }

    #[test]
    fn an_ipv6_address_has_an_interface_and_others_none() {
        let of = |address: &str| interface_of(address.parse().unwrap());
        assert_eq!(of("[::1]:5").unwrap(), 1);
        assert_eq!(of("[fe80::1%7]:5").unwrap(), 7);
        let error = of("[2001:db8::77]:5").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn an_error_tells_whom_the_datagram_was_for() {
        for ip in ["127.0.0.1", "::1"] {
            let socket = UdpSocket::bind((ip, 0)).unwrap();
            keep_errors(&socket).unwrap();
            let none = take_error(&socket).unwrap_err();
            assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
            let listening = UdpSocket::bind((ip, 0)).unwrap();
            // No port that was left just now: a process that another test forks may still have it.
            let nobody = SocketAddr::new(ip.parse().unwrap(), 1);
            socket.send_to(b"anybody?", nobody).unwrap();
            // On loopback the answer is there before the send returns.
            let (error, to) = take_error(&socket).unwrap();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{ip}");
            assert_eq!(to, Some(nobody));
            // And then the socket is as good as new.
            let there = listening.local_addr().unwrap();
            socket.send_to(b"anybody?", there).unwrap();
            assert!(take_error(&socket).is_err());
        }
    }

    #[test]
    fn where_no_mtu_is_told_a_safe_one_is_assumed() {
        for errno in [libc::ENOPROTOOPT, libc::EOPNOTSUPP, 524] {
            assert!(is_no_option(&io::Error::from_raw_os_error(errno)));
        }
        assert!(!is_no_option(&io::Error::from_raw_os_error(libc::ENOTCONN)));
        // A socket without any MTU is asked for both options in vain.
        let (nearby, _other) = std::os::unix::net::UnixDatagram::pair().unwrap();
        assert_eq!(path_mtu(&nearby).unwrap(), 1280);
        let v4 = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        assert_eq!(assumed_mtu(&v4), 1500);
        if let Ok(v6) = UdpSocket::bind(("::1", 0)) {
            assert_eq!(assumed_mtu(&v6), 1280);
        }
    }

    #[test]
    fn loopback_has_its_mtu_in_both_families() {
        let device = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let device: u32 = device.trim().parse().unwrap();
        // No IPv4 packet is longer than 65,535 bytes, whatever the device would take.
        for (ip, mtu_bytes) in [("127.0.0.1", device.min(65_535)), ("::1", device)] {
            let Ok(socket) = UdpSocket::bind((ip, 0)) else {
                // A kernel without IPv6.
                assert_eq!(ip, "::1");
                continue;
            };
            let unconnected = path_mtu(&socket).unwrap_err();
            assert_eq!(unconnected.raw_os_error(), Some(libc::ENOTCONN));
            socket.connect((ip, 9)).unwrap();
            assert_eq!(path_mtu(&socket).unwrap(), mtu_bytes);
        }
    }
}
