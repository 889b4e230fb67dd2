//! Sockets that send to multicast groups, and those that hear what is said there.

use std::io;
use std::net::{IpAddr, SocketAddr};

use onrush_sys::socket::interface_of;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::UdpSocket;

/// What `socket` sends to multicast groups leaves by the interface of the address that it is bound
/// to, with that TTL or hop limit. IPv4 finds that interface for each packet, if none is set
/// (net/ipv4/route.c, ip_route_output_key_hash_rcu), also once it was made anew.
///
/// # Errors
///
/// What the system says; `AddrNotAvailable` if no interface has the address.
pub(super) fn send_to_groups(socket: SockRef<'_>, local: SocketAddr, ttl: u8) -> io::Result<()> {
    match local {
        SocketAddr::V4(_) => socket.set_multicast_ttl_v4(ttl.into()),
        SocketAddr::V6(local) => {
            socket.set_multicast_hops_v6(ttl.into())?;
            socket.set_multicast_if_v6(interface_of(local)?)
        }
    }
}

/// A socket that hears what is sent to that port of a group, on the interface of `local`. Others of
/// this machine may have the port as well.
///
/// # Errors
///
/// What the system says; `AddrNotAvailable` if no interface has the address.
pub(super) fn hear_group((group, port): (IpAddr, u16), local: SocketAddr) -> io::Result<UdpSocket> {
    let mut at = SocketAddr::new(group, port);
    let interface = match (&mut at, local) {
        (SocketAddr::V6(at), SocketAddr::V6(local)) => {
            let interface = interface_of(local)?;
            // What is of one network alone needs it said.
            at.set_scope_id(interface);
            interface
        }
        _ => 0,
    };
    let kind = Type::DGRAM.nonblocking();
    let socket = Socket::new(Domain::for_address(at), kind, Some(Protocol::UDP))?;
    socket.set_reuse_address(true)?;
    // To the group, so that it hears nothing else.
    socket.bind(&at.into())?;
    match (group, local.ip()) {
        (IpAddr::V4(group), IpAddr::V4(local)) => socket.join_multicast_v4(&group, &local)?,
        (IpAddr::V6(group), _) => socket.join_multicast_v6(&group, interface)?,
        (IpAddr::V4(_), IpAddr::V6(_)) => return Err(io::ErrorKind::InvalidInput.into()),
    }
    UdpSocket::from_std(socket.into())
}

/// Whether receivers cannot send there: whoever sends to it is known (RFC 4607).
pub(super) fn is_source_specific(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(ip) => ip.octets()[0] == 232,
        IpAddr::V6(ip) => ip.segments()[0] & 0xfff0 == 0xff30,
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn groups_are_sent_to_by_the_interface_that_has_the_address() {
        let group = Ipv4Addr::new(239, 83, 0, 2);
        let receiver = std::net::UdpSocket::bind((group, 0)).unwrap();
        receiver
            .join_multicast_v4(&group, &Ipv4Addr::LOCALHOST)
            .unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = SockRef::from(&sender);
        send_to_groups(socket, sender.local_addr().unwrap(), 1).unwrap();
        let set = SockRef::from(&sender).multicast_if_v4().unwrap();
        assert!(set.is_unspecified(), "it would be that one for ever");
        let to = receiver.local_addr().unwrap();
        sender.send_to(b"packet", to).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 6);
    }
}
