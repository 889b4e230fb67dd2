//! Where a stream arrives: an address and a port, or a multicast group.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use onrush_sys::socket::{hear_interface, join_group, leave_group};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use thiserror::Error;

use crate::listening::lacks_ipv6;

/// `[SOURCE@]ADDRESS:PORT[%INTERFACE]`, or a port alone for every address of this machine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Input {
    /// Where it is received: one's own address, the wildcard or a multicast group.
    pub address: SocketAddr,
    /// The only sender to hear, of a source-specific group.
    pub source: Option<IpAddr>,
    /// The interface on which a group is joined; without one, the routes say which.
    pub interface: Option<String>,
}

/// Why a text names no input.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum InputError {
    /// It is not of the form.
    #[error("write PORT, ADDRESS:PORT, GROUP:PORT%INTERFACE or SOURCE@GROUP:PORT%INTERFACE")]
    Syntax,
    /// Nothing can arrive at port 0.
    #[error("a source needs a port that its sender knows; 0 is none")]
    Port,
    /// A sender is chosen for something that is no group.
    #[error("SOURCE@ goes with a multicast group only")]
    SourceOfUnicast,
    /// The sender and the group are of two families.
    #[error("SOURCE and GROUP are of two IP versions")]
    Families,
}

impl FromStr for Input {
    type Err = InputError;

    fn from_str(text: &str) -> Result<Self, InputError> {
        let (text, interface) = match text.rsplit_once('%') {
            // A scope within brackets is part of the address, and no name of ours.
            Some((before, name)) if !name.contains(']') => (before, Some(name)),
            _ => (text, None),
        };
        if interface.is_some_and(|name| name.is_empty() || name.len() > INTERFACE_BYTES_MAX) {
            return Err(InputError::Syntax);
        }
        let (source, place) = match text.split_once('@') {
            None => (None, text),
            Some((source, place)) => {
                let source = source.trim_start_matches('[').trim_end_matches(']');
                let source = source.parse::<IpAddr>().map_err(|_| InputError::Syntax)?;
                (Some(source), place)
            }
        };
        let address = match place.parse::<u16>() {
            Ok(port) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
            Err(_) => place.parse().map_err(|_| InputError::Syntax)?,
        };
        // An IPv4 address in IPv6's form is an IPv4 address; the kernel binds no other socket to
        // it.
        let address = match address.ip().to_canonical() {
            ip if ip == address.ip() => address,
            ip => SocketAddr::new(ip, address.port()),
        };
        if address.port() == 0 {
            return Err(InputError::Port);
        }
        match source {
            Some(_) if !address.ip().is_multicast() => return Err(InputError::SourceOfUnicast),
            Some(source) if source.is_ipv4() != address.is_ipv4() => {
                return Err(InputError::Families);
            }
            _ => {}
        }
        Ok(Self {
            address,
            source,
            interface: interface.map(str::to_owned),
        })
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source {
            Some(IpAddr::V6(source)) => write!(f, "[{source}]@")?,
            Some(source) => write!(f, "{source}@")?,
            None => {}
        }
        write!(f, "{}", self.address)?;
        match &self.interface {
            Some(name) => write!(f, "%{name}"),
            None => Ok(()),
        }
    }
}

impl Input {
    /// Opens the socket on which it arrives.
    ///
    /// # Errors
    ///
    /// What the system says: the port is taken, the address is not this machine's, there is no such
    /// interface.
    pub fn open(&self) -> io::Result<UdpSocket> {
        let address = self.address;
        let interface = match &self.interface {
            None => 0,
            Some(_) if !address.ip().is_multicast() && !needs_scope(address.ip()) => 0,
            Some(name) => self.interface_index(name)?,
        };
        let address = scoped(address, interface);
        let socket = match self.bind(address) {
            // A host without IPv6.
            Err(error) if is_wildcard(address) && lacks_ipv6(&error) => {
                self.bind(SocketAddr::from(([0, 0, 0, 0], address.port())))?
            }
            bound => bound?,
        };
        // An address with a scope has bound it to the interface, and only root binds it once more.
        let is_bound = address.ip().is_multicast() || has_scope(address);
        if let (Some(name), false) = (&self.interface, is_bound) {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        let socket = UdpSocket::from(socket);
        // A privilege; who lacks it has as much room as the system gives to all.
        if set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
            SockRef::from(&socket).set_recv_buffer_size(RECEIVE_BUFFER_BYTES)?;
        }
        if self.is_heard_elsewhere() {
            hear_interface(&socket, interface)?;
        }
        if address.ip().is_multicast() {
            join_group(&socket, address.ip(), self.source, interface)?;
        }
        Ok(socket)
    }

    /// Whether `socket` was deaf and is no more: an interface that is removed takes memberships and
    /// what is bound to it along, and one that is made anew under its name does not bring them
    /// back. `joined` is the number of the interface on which the group is joined, 0 if that is not
    /// known yet.
    ///
    /// # Errors
    ///
    /// What the system says: there is no such interface now; it takes `CAP_NET_RAW` to bind the
    /// socket once more.
    pub(super) fn renew(&self, socket: &UdpSocket, joined: &mut u32) -> io::Result<bool> {
        let interface = match &self.interface {
            None => 0,
            Some(name) => self.interface_index(name)?,
        };
        let mut is_renewed = false;
        let bound = SockRef::from(socket);
        // What it is bound to has no name once it is gone.
        let is_gone = |error: io::Error| error.raw_os_error() == Some(libc::ENODEV);
        if let (Some(name), true) = (&self.interface, bound.device().is_err_and(is_gone)) {
            bound.bind_device(Some(name.as_bytes()))?;
            is_renewed = true;
        }
        let group = self.address.ip();
        if !group.is_multicast() {
            return Ok(is_renewed);
        }
        if self.is_heard_elsewhere() && *joined != interface {
            hear_interface(socket, interface)?;
        }
        // Where no interface is named IPv6 does not say on which one it is joined: it is left, and
        // joined where the route leads now.
        let is_anywhere = interface == 0 && group.is_ipv6();
        if is_anywhere {
            drop(leave_group(socket, group, 0));
        }
        let mut answer = join_group(socket, group, self.source, interface);
        let is_full = |error: &io::Error| error.raw_os_error() == Some(libc::ENOBUFS);
        if interface == 0 && answer.as_ref().is_err_and(is_full) {
            // Each interface that is gone has left one of the memberships that a socket may have.
            leave_group(socket, group, 0)?;
            answer = join_group(socket, group, self.source, interface);
        }
        match answer {
            Ok(()) if is_anywhere => {}
            Ok(()) => is_renewed = true,
            // It is joined there already.
            Err(error) if is_joined(&error) => {}
            Err(error) => return Err(error),
        }
        // What is left of an interface that is gone counts (net.ipv4.igmp_max_memberships).
        if *joined != interface && *joined != 0 {
            drop(leave_group(socket, group, *joined));
        }
        *joined = interface;
        Ok(is_renewed)
    }

    /// Whether what is sent to `address` arrives here, where `is_local` says what an address of
    /// this machine is. That an interface is named makes no difference.
    pub(super) fn takes(&self, address: SocketAddr, is_local: impl FnOnce(IpAddr) -> bool) -> bool {
        let ip = address.ip().to_canonical();
        address.port() == self.address.port()
            && match self.address.ip() {
                own if !own.is_unspecified() => own == ip,
                // The IPv6 wildcard stands for both versions.
                own => (own.is_ipv6() || ip.is_ipv4()) && is_local(ip),
            }
    }

    /// Whether its socket would hear the group from other interfaces than the one that is named, if
    /// somebody on this host has joined it there: for IPv6 the kernel asks for the group alone
    /// (net/ipv6/mcast.c, `inet6_mc_check`), unless a scope has bound the socket to its interface.
    fn is_heard_elsewhere(&self) -> bool {
        let ip = self.address.ip();
        self.interface.is_some() && ip.is_ipv6() && ip.is_multicast() && !needs_scope(ip)
    }

    /// Whether datagrams to one group may be for both.
    pub(super) fn shares_group_with(&self, other: &Self) -> bool {
        let may_be_one_interface = match (&self.interface, &other.interface) {
            (Some(own), Some(others)) => own == others,
            _ => true,
        };
        let may_be_one_sender = match (self.source, other.source) {
            (Some(own), Some(others)) => own == others,
            _ => true,
        };
        let is_one_group = self.address.ip().is_multicast() && self.address == other.address;
        is_one_group && may_be_one_interface && may_be_one_sender
    }

    fn bind(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::DGRAM,
            Some(Protocol::UDP),
        )?;
        if address.is_ipv6() {
            socket.set_only_v6(!is_wildcard(address))?;
        }
        if address.ip().is_multicast() {
            // Others on this host may hear the same group.
            socket.set_reuse_address(true)?;
        }
        socket.bind(&address.into())?;
        Ok(socket)
    }

    fn interface_index(&self, name: &str) -> io::Result<u32> {
        let any = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::DGRAM,
            None,
        )?;
        name_to_index(any, name).map_err(|error| {
            let error = io::Error::from(error);
            io::Error::new(error.kind(), format!("interface {name}: {error}"))
        })
    }
}

/// Whether an address means something on one link alone, so that binding to it takes an interface
/// (RFC 4007, section 6): of a group those of the scopes 1 and 2 (RFC 7346).
fn needs_scope(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) if ip.is_multicast() => matches!(ip.octets()[1] & 0xf, 1 | 2),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether a group could not be joined because it is; of one sender the second is said.
fn is_joined(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EADDRINUSE | libc::EADDRNOTAVAIL)
    )
}

fn has_scope(address: SocketAddr) -> bool {
    matches!(address, SocketAddr::V6(address) if address.scope_id() != 0)
}

/// The address on that interface, if it means something on one link alone and names none.
fn scoped(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) if needs_scope(address.ip()) && v6.scope_id() == 0 => {
            v6.set_scope_id(interface);
            v6.into()
        }
        _ => address,
    }
}

fn is_wildcard(address: SocketAddr) -> bool {
    address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

/// As the kernel bounds an interface's name, without the zero behind it.
const INTERFACE_BYTES_MAX: usize = 15;

/// Room for what arrives while a train is on its way to everybody: seconds of any film.
const RECEIVE_BUFFER_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_printed_back() {
        for (text, printed) in [
            ("5004", "[::]:5004"),
            ("10.0.0.1:5004", "10.0.0.1:5004"),
            ("[::1]:5004", "[::1]:5004"),
            ("239.1.2.3:5004%eth0", "239.1.2.3:5004%eth0"),
            ("10.0.0.9@232.1.2.3:5004", "10.0.0.9@232.1.2.3:5004"),
            (
                "[2001:db8::1]@[ff3e::1]:7%v0",
                "[2001:db8::1]@[ff3e::1]:7%v0",
            ),
            ("2001:db8::1@[ff3e::1]:7", "[2001:db8::1]@[ff3e::1]:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
            ("[::ffff:10.0.0.1]:7", "10.0.0.1:7"),
            ("[::ffff:0.0.0.0]:7", "0.0.0.0:7"),
        ] {
            let input: Input = text.parse().unwrap();
            assert_eq!(input.to_string(), printed);
            assert_eq!(printed.parse::<Input>().unwrap(), input);
        }
    }

    #[test]
    fn what_is_no_input_is_refused_with_a_reason() {
        for (text, error) in [
            ("", InputError::Syntax),
            ("host:5004", InputError::Syntax),
            ("10.0.0.1", InputError::Syntax),
            ("65536", InputError::Syntax),
            ("10.0.0.1:1%", InputError::Syntax),
            ("x@239.1.2.3:5004", InputError::Syntax),
            ("0", InputError::Port),
            ("10.0.0.1:0", InputError::Port),
            ("10.0.0.1@10.0.0.2:5004", InputError::SourceOfUnicast),
            ("::1@239.1.2.3:5004", InputError::Families),
        ] {
            assert_eq!(text.parse::<Input>(), Err(error), "{text}");
        }
        let name = "x".repeat(INTERFACE_BYTES_MAX);
        assert!(format!("239.1.2.3:5%{name}").parse::<Input>().is_ok());
        assert!(format!("239.1.2.3:5%{name}x").parse::<Input>().is_err());
    }

    #[test]
    fn addresses_of_a_link_are_bound_on_their_interface() {
        let scope = |text: &str| {
            let input: Input = text.parse().unwrap();
            match scoped(input.address, 3) {
                SocketAddr::V4(_) => 0,
                SocketAddr::V6(address) => address.scope_id(),
            }
        };
        for text in [
            "[fe80::1]:7%eth0",
            "[febf::1]:7%eth0",
            "[ff01::1]:7%eth0",
            "[ff02::1]:7%eth0",
            "[ff12::1]:7%eth0",
        ] {
            assert_eq!(scope(text), 3, "{text}");
        }
        for text in [
            "[fec0::1]:7",
            "[ff05::1]:7",
            "[ff3e::1]:7",
            "[::]:7",
            "10.0.0.1:7",
        ] {
            assert_eq!(scope(text), 0, "{text}");
        }
        assert_eq!(scope("[fe80::1%5]:7%eth0"), 5, "it names one");
    }

    #[test]
    fn a_group_of_a_link_is_heard() {
        if UdpSocket::bind("[::1]:0").is_err() {
            return onrush_testkit::skip::record("needs IPv6");
        }
        let group: Input = "[ff02::5:6]:5004%lo".parse().unwrap();
        let bound = group.open().unwrap().local_addr().unwrap();
        let index = group.interface_index("lo").unwrap();
        assert_eq!(bound, scoped(group.address, index));
    }

    /// As if the interface had been made anew: a membership that is lost is not told from it.
    #[test]
    fn a_group_that_is_no_longer_joined_is_joined_anew() {
        let nowhere: Input = "239.83.0.1:5004%nowhere".parse().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let error = nowhere.renew(&socket, &mut 0).unwrap_err();
        assert!(error.to_string().contains("nowhere"), "{error}");
        for text in [
            "239.83.0.1:5004%lo",
            "127.0.0.1@232.83.0.1:5004%lo",
            "[ff15::83:1]:5004%lo",
        ] {
            let input: Input = text.parse().unwrap();
            if input.address.is_ipv6() && UdpSocket::bind("[::1]:0").is_err() {
                return onrush_testkit::skip::record("needs IPv6");
            }
            let socket = input.open().unwrap();
            let lo = input.interface_index("lo").unwrap();
            let mut joined = 0;
            assert!(!input.renew(&socket, &mut joined).unwrap(), "{text}");
            assert_eq!(joined, lo);
            leave_group(&socket, input.address.ip(), lo).unwrap();
            assert!(input.renew(&socket, &mut joined).unwrap(), "{text}");
            assert!(!input.renew(&socket, &mut joined).unwrap(), "{text}");
        }
    }

    #[test]
    fn sockets_are_open_where_they_are_said_to_be() {
        let input: Input = "127.0.0.1:1".parse().unwrap();
        // Where no other test takes over the port.
        let somewhere = UdpSocket::bind("127.83.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let input = Input {
            address: somewhere,
            ..input
        };
        let socket = input.open().unwrap();
        assert_eq!(socket.local_addr().unwrap(), somewhere);
        assert_eq!(input.open().unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let group: Input = "127.0.0.1@232.1.2.3:5004%lo".parse().unwrap();
        let both = (group.open().unwrap(), group.open().unwrap());
        assert_eq!(both.0.local_addr().unwrap(), group.address);
        let nowhere: Input = "232.1.2.3:5004%nowhere".parse().unwrap();
        assert!(nowhere.open().unwrap_err().to_string().contains("nowhere"));
    }
}
