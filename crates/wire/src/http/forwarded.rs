//! Requests that a proxy has passed on: whose they are, by what it says of that.
//!
//! A proxy writes the address that it was asked from behind all that stands in X-Forwarded-For;
//! what stands before, its client may have written itself. So the list is read from its end, for as
//! long as it names proxies that are believed. `Forwarded` (RFC 7239) says the same and is not
//! read: a proxy that writes one of the two passes the other on as its client wrote it.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use super::Request;

/// Addresses that belong together: `ADDRESS/PREFIX`, or one `ADDRESS`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    /// Of IPv6; one of IPv4 is as IPv6 maps it (RFC 4291, section 2.5.5.2).
    bits: u128,
    /// How many of these bits count.
    prefix: u32,
}

/// Why a text is no [`Network`].
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("write ADDRESS or ADDRESS/PREFIX, as in 127.0.0.1, 10.0.0.0/8 or fd00::/8")]
pub struct NetworkError;

/// Whose a request is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// Whether it has asked over TLS.
    pub is_encrypted: bool,
    /// Whether a proxy that is believed has passed the request on: then nobody on this machine is
    /// known to have asked, whatever the address.
    pub is_behind_proxy: bool,
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NetworkError)?;
        let address_bits: u32 = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => address_bits,
            Some(prefix) => {
                let is_number = prefix.bytes().all(|byte| byte.is_ascii_digit());
                let prefix = prefix.parse::<u32>().ok().filter(|_| is_number);
                let prefix = prefix.filter(|&prefix| prefix <= address_bits);
                prefix.ok_or(NetworkError)?
            }
        };
        Ok(Self {
            bits: bits(address),
            prefix: prefix + 128 - address_bits,
        })
    }
}

impl Network {
    /// Whether that address is one of these.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let differing = self.bits ^ bits(address);
        // To shift by all of them is not defined, and leaves nothing.
        differing.checked_shr(128 - self.prefix).unwrap_or(0) == 0
    }
}

impl Client {
    /// Whose that request is, which has come from `self`, as [`Self::told`] says.
    #[must_use]
    pub fn of(self, request: &Request<'_>, proxies: &[Network]) -> Self {
        let list = request.forwarded_for.as_deref();
        self.told(list, request.forwarded_proto.as_deref(), proxies)
    }

    /// Whose a request is that has come from `self` with these X-Forwarded-For and
    /// X-Forwarded-Proto, all lines of each as one: another's, where `self` is one of these proxies
    /// and names it. What such a proxy says and nobody can read counts as not said.
    #[must_use]
    pub fn told(self, list: Option<&str>, schemes: Option<&str>, proxies: &[Network]) -> Self {
        let is_proxy = |address: IpAddr| proxies.iter().any(|it| it.contains(address));
        if !is_proxy(self.address) {
            return self;
        }
        let scheme = schemes.and_then(last_scheme);
        Self {
            address: list.map_or(self.address, |list| named(self.address, list, is_proxy)),
            is_encrypted: scheme.unwrap_or(self.is_encrypted),
            is_behind_proxy: list.is_some(),
        }
    }
}

/// The last address of a list that is no proxy's; of a list of proxies alone, the first.
fn named(from: IpAddr, list: &str, is_proxy: impl Fn(IpAddr) -> bool) -> IpAddr {
    let mut client = from;
    for entry in list.rsplit(',') {
        match address(entry.trim()) {
            Some(address) if is_proxy(address) => client = address,
            // Another machine's loopback is nobody here.
            Some(address) if !address.is_loopback() => return address,
            _ => break,
        }
    }
    client
}

/// An address, with or without brackets and a port.
fn address(entry: &str) -> Option<IpAddr> {
    let bare = entry.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let ip = bare.unwrap_or(entry).parse::<IpAddr>();
    let with_port = || entry.parse::<SocketAddr>().map(|it| it.ip());
    ip.or_else(|_| with_port()).ok().map(|it| it.to_canonical())
}

/// Whether the last scheme of a list is that of TLS.
fn last_scheme(list: &str) -> Option<bool> {
    let last = list.rsplit(',').next()?.trim();
    let is = |scheme: &str| last.eq_ignore_ascii_case(scheme);
    match (is("https"), is("http")) {
        (false, false) => None,
        (is_https, _) => Some(is_https),
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(text: &str) -> Vec<Network> {
        let networks = text.split(' ').filter(|it| !it.is_empty());
        networks.map(|it| it.parse().unwrap()).collect()
    }

    fn client(from: &str, proxies: &str, lines: &[u8]) -> Client {
        let head = [&b"GET / HTTP/1.1\r\nHost: h\r\n"[..], lines, b"\r\n"].concat();
        let from = Client {
            address: from.parse().unwrap(),
            is_encrypted: false,
            is_behind_proxy: false,
        };
        from.of(&Request::parse(&head).unwrap(), &networks(proxies))
    }

    #[test]
    fn networks_are_an_address_or_a_prefix() {
        for (text, inside, outside) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
            ("::ffff:10.0.0.0/104", "10.1.2.3", "11.1.2.3"),
            ("10.9.9.9/8", "10.255.255.255", "11.0.0.0"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("0.0.0.0/0", "203.0.113.7", "2001:db8::1"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("2001:db8::1/128", "2001:db8::1", "2001:db8::2"),
            ("::/0", "ffff::", ""),
        ] {
            let network: Network = text.parse().unwrap();
            assert!(network.contains(inside.parse().unwrap()), "{text}");
            let outside = outside.parse::<IpAddr>().ok();
            assert!(!outside.is_some_and(|it| network.contains(it)), "{text}");
        }
        for text in [
            "",
            "?",
            "localhost",
            "10.0.0.0/",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/+8",
            "10/8",
            "10.0.0.1:80",
            "[::1]",
            "fe80::1%3",
            " ::1",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NetworkError), "{text:?}");
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxys_has_asked() {
        const PROXIES: &str = "127.0.0.1 10.0.0.0/8 fd00::1";
        for (list, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            // What stands before, the client has written.
            ("127.0.0.1, 198.51.100.1,192.0.2.1", "192.0.2.1"),
            ("x, 192.0.2.1, 10.1.1.1, fd00::1", "192.0.2.1"),
            ("192.0.2.1\r\nX-Forwarded-For: 10.1.1.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            // A client in the network of proxies, and one of a proxy's own machine.
            ("10.1.1.2, 10.1.1.1", "10.1.1.2"),
            ("127.0.0.1", "127.0.0.1"),
            // What cannot be read ends what is known.
            ("192.0.2.1, unknown", "127.0.0.1"),
            ("192.0.2.1, unknown, 10.1.1.1", "10.1.1.1"),
            ("192.0.2.1,", "127.0.0.1"),
            ("", "127.0.0.1"),
            ("127.0.0.2", "127.0.0.1"),
            ("::1, 10.1.1.1", "10.1.1.1"),
        ] {
            let lines = format!("X-Forwarded-For: {list}\r\n");
            let found = client("127.0.0.1", PROXIES, lines.as_bytes());
            assert_eq!(found.address.to_string(), expected, "{list:?}");
            assert!(found.is_behind_proxy, "{list:?}");
        }
        let garbled = b"x-forwarded-for: \xff\r\nX-FORWARDED-FOR: \xfe, 192.0.2.1\r\n";
        let found = client("10.0.0.1", PROXIES, garbled);
        assert_eq!(found.address.to_string(), "192.0.2.1");
    }

    #[test]
    fn who_is_no_proxy_is_not_believed() {
        let lines = b"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n";
        for (from, proxies) in [
            ("127.0.0.1", ""),
            ("127.0.0.1", "127.0.0.2 ::1"),
            ("198.51.100.1", "192.0.2.1"),
        ] {
            let found = client(from, proxies, lines);
            assert_eq!(found, client(from, "", b""), "{from}");
            assert!(!found.is_behind_proxy);
        }
        // Without the header a proxy asks for itself.
        let found = client("127.0.0.1", "127.0.0.1", b"Forwarded: for=192.0.2.1\r\n");
        assert_eq!(found, client("127.0.0.1", "", b""));
    }

    #[test]
    fn the_scheme_is_the_last_that_is_told() {
        for (told, is_encrypted) in [
            ("https", true),
            ("HTTPS", true),
            ("http, https", true),
            ("http\r\nX-Forwarded-Proto: https", true),
            ("https, http", false),
            ("https,", false),
            ("wss", false),
            ("", false),
        ] {
            let lines = format!("X-Forwarded-Proto: {told}\r\n");
            let found = client("127.0.0.1", "127.0.0.1", lines.as_bytes());
            assert_eq!(found.is_encrypted, is_encrypted, "{told:?}");
            assert!(!found.is_behind_proxy, "{told:?}");
        }
    }

    proptest! {
        /// Whatever a proxy passes on, it is the client that the proxy has written behind it.
        #[test]
        fn what_a_client_writes_is_not_believed(written in "[ -~]{0,40}") {
            let lines = format!("X-Forwarded-For: {written}, 192.0.2.1\r\n");
            let found = client("127.0.0.1", "127.0.0.1", lines.as_bytes());
            prop_assert_eq!(found.address.to_string(), "192.0.2.1");
        }
    }
}
