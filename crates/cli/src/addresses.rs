//! Where a server is reached, and with what.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A command that plays a URL which stands behind it.
pub(crate) const PLAYER: &str = "ffplay -rtsp_transport udp";

/// Where a server that listens on `address` is reached from: wildcards are all the addresses there
/// are.
pub(crate) fn reached_at(address: SocketAddr, host: &[IpAddr]) -> Vec<SocketAddr> {
    if !address.ip().is_unspecified() {
        return vec![address];
    }
    let loopback: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) if host.iter().any(IpAddr::is_ipv4) => Ipv4Addr::LOCALHOST.into(),
        SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    // Linux's IPv6 wildcard takes IPv4 too.
    let spoken = |ip: &&IpAddr| address.is_ipv6() || ip.is_ipv4();
    let others = host.iter().filter(|ip| !ip.is_loopback()).filter(spoken);
    let all = [loopback].into_iter().chain(others.copied());
    all.map(|ip| SocketAddr::new(ip, address.port())).collect()
}

/// Prints where metrics are told, if they are.
pub(crate) fn metrics_lines(
    address: Option<SocketAddr>,
    host: &[IpAddr],
    out: &mut dyn Write,
) -> io::Result<()> {
    let all = address.map(|address| reached_at(address, host));
    for address in all.unwrap_or_default() {
        writeln!(out, "metrics    http://{address}/metrics")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_reached_at_every_address_it_takes() {
        let host = ["127.0.0.1", "192.0.2.7", "::1", "2001:db8::7"].map(|ip| ip.parse().unwrap());
        let at = |address: &str, host: &[IpAddr]| {
            let all = reached_at(address.parse().unwrap(), host);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            at("[::]:8554", &host),
            ["127.0.0.1:8554", "192.0.2.7:8554", "[2001:db8::7]:8554"]
        );
        assert_eq!(at("0.0.0.0:99", &host), ["127.0.0.1:99", "192.0.2.7:99"]);
        assert_eq!(at("[::]:99", &["::1".parse().unwrap()]), ["[::1]:99"]);
        assert_eq!(at("192.0.2.9:99", &host), ["192.0.2.9:99"]);
        assert_eq!(at("[::1]:99", &host), ["[::1]:99"]);
    }
}
