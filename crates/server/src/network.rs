//! Whose an address is, wherever nobody is to have more than a share: a host of IPv6 has all
//! addresses of a network of 64 bits, and may come from each of them.

use std::net::{IpAddr, Ipv6Addr};

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
