//! Who asks: the two ends of its connection, and what that carries beside requests.

use std::net::SocketAddr;
use std::rc::Rc;

use super::interleaving::Interleaving;
use super::srtp::AgreedKeys;

/// Who asks for a track.
pub(super) struct Client {
    /// The address that it spoke to.
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    /// Its connection, if it wants packets there.
    pub(super) interleaving: Option<Rc<Interleaving>>,
    /// What its packets are encrypted with, if they are.
    pub(super) srtp: Option<Box<AgreedKeys>>,
}

impl Client {
    pub(super) fn new(
        (local, peer): (SocketAddr, SocketAddr),
        interleaving: Option<Rc<Interleaving>>,
        srtp: Option<Box<AgreedKeys>>,
    ) -> Self {
        Self {
            local: canonical(local),
            peer: canonical(peer),
            interleaving,
            srtp,
        }
    }
}

/// An IPv4 address that the dual-stack listener shows as an IPv6 one, as what it is; an IPv6 one
/// with the scope that a link-local address needs.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip.is_ipv4() => SocketAddr::new(ip, address.port()),
        _ => address,
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
}
