//! Whose an address is, and what it is called. Wherever nobody is to have more than a share, a host
//! of IPv6 has all addresses of a network of 64 bits, and may come from each of them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// An IPv4 address that a dual-stack listener shows as an IPv6 one, as what it is; an IPv6 one with
/// the scope that a link-local address needs.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
    }
}

/// What a client at this address is counted by: of IPv6 its /64.
pub(crate) fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_addresses_become_what_they_are_and_scopes_stay() {
        let of = |text: &str| canonical(text.parse().unwrap()).to_string();
        assert_eq!(of("[::ffff:192.0.2.1]:5"), "192.0.2.1:5");
        assert_eq!(of("[fe80::1%3]:5"), "[fe80::1%3]:5");
        assert_eq!(of("[::1]:5"), "[::1]:5");
    }

    #[test]
    fn a_host_of_ipv6_is_its_network() {
        for (peer, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:0:1::1", "2001:db8:0:1::"),
            ("2001:db8:0:1:ffff::2", "2001:db8:0:1::"),
            ("2001:db8:0:2::1", "2001:db8:0:2::"),
        ] {
            let [peer, expected] = [peer, expected].map(|it| it.parse().unwrap());
            assert_eq!(network(peer), expected, "{peer}");
        }
    }
}
