//! Multicast: which groups films and channels may be sent to, each setting with its default and its
//! limit.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

/// What is sent to multicast groups, and how. By default nothing is.
#[derive(Clone, Debug)]
pub struct MulticastConfig {
    /// The groups that may be sent to, of either family: none by default. A client that asks for
    /// multicast gets one of its own family.
    pub ranges: Vec<GroupRange>,
    /// How many routers packets may pass, and one more: 1 by default, so that they stay in the
    /// network. Routers that forward groups need more.
    pub ttl: u8,
    /// The addresses of ours that are sent from, and so the interfaces; where there is none of a
    /// family it is the one that the client has spoken to.
    pub from: Vec<IpAddr>,
    /// Films and channels, by the paths of their URLs, that are sent to a group whether or not
    /// anybody has asked; films in a loop. Each is sent from the first address of
    /// [`MulticastConfig::from`], which must be there, and to one group for as long as the server
    /// runs.
    pub always: Vec<String>,
    /// How many groups are sent to at once, 16 by default; one more is answered 453. Each takes
    /// what a viewer takes, and fills the networks that it reaches.
    pub groups_max: usize,
}

impl Default for MulticastConfig {
    fn default() -> Self {
        Self {
            ranges: Vec::new(),
            ttl: 1,
            from: Vec::new(),
            always: Vec::new(),
            groups_max: 16,
        }
    }
}

/// Groups that follow each other, and the port of the first track in each.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GroupRange {
    first: IpAddr,
    groups: u32,
    /// The port for RTP of a film's first track, even; each other track has the even port two
    /// above, and RTCP the odd ports between.
    pub port: u16,
}

/// Groups of one range at the most: more than are sent to at once.
pub const GROUPS_MAX: u32 = 1 << 16;

/// Where a first track goes if nothing else is said (RFC 3551, section 8).
const PORT: u16 = 5004;

/// The highest first port: a film has eight tracks.
const PORT_MAX: u16 = 65_520;

/// Why a text is no range of groups.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum GroupRangeError {
    /// It is not written as one.
    #[error(
        "write GROUP/PREFIX or GROUP/PREFIX:PORT, as in 239.1.2.0/24:5004 or [ff15::/120]:5004"
    )]
    Syntax,
    /// It holds addresses that are no groups for streams.
    #[error("groups are in 224.0.1.0 to 239.255.255.255 (239.0.0.0/8 for one's own), and ff00::/8")]
    NoGroup,
    /// It begins between two ranges.
    #[error("the address has bits behind its prefix")]
    Unaligned,
    /// It is odd, or there is no room above it.
    #[error("the port is even, and from 1024 to {PORT_MAX}")]
    Port,
}

impl GroupRange {
    /// Whether its groups are of the family of `ip`.
    #[must_use]
    pub const fn is_of_family(&self, ip: IpAddr) -> bool {
        self.first.is_ipv4() == ip.is_ipv4()
    }

    /// How many groups it has.
    #[must_use]
    pub const fn groups(&self) -> usize {
        self.groups as usize
    }

    /// The group of that number, from 0 on, if there is one.
    #[must_use]
    pub fn group(&self, number: usize) -> Option<IpAddr> {
        let number = u32::try_from(number).ok().filter(|&it| it < self.groups)?;
        Some(match self.first {
            IpAddr::V4(first) => Ipv4Addr::from(u32::from(first) + number).into(),
            IpAddr::V6(first) => Ipv6Addr::from(u128::from(first) + u128::from(number)).into(),
        })
    }
}

impl FromStr for GroupRange {
    type Err = GroupRangeError;

    fn from_str(text: &str) -> Result<Self, GroupRangeError> {
        use GroupRangeError::{NoGroup, Port, Syntax, Unaligned};
        let (network, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (network, port) = rest.split_once(']').ok_or(Syntax)?;
                let port = match port {
                    "" => None,
                    port => Some(port.strip_prefix(':').ok_or(Syntax)?),
                };
                (network, port)
            }
            None => match text.split_once(':') {
                Some((network, port)) if !port.contains(':') => (network, Some(port)),
                _ => (text, None),
            },
        };
        let port = port.map_or(Ok(PORT), |port| port.parse::<u16>().map_err(|_| Syntax))?;
        if port % 2 != 0 || !(1024..=PORT_MAX).contains(&port) {
            return Err(Port);
        }
        let (first, prefix) = network.split_once('/').unwrap_or((network, ""));
        let first: IpAddr = first.parse().map_err(|_| Syntax)?;
        let bits = if first.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            "" if !network.contains('/') => bits,
            prefix => prefix.parse::<u32>().map_err(|_| Syntax)?,
        };
        let behind = bits.checked_sub(prefix).ok_or(Syntax)?;
        let is_group = match first {
            // Those of one network alone are the network's own (224.0.0.0/24).
            IpAddr::V4(ip) => ip.is_multicast() && ip >= Ipv4Addr::new(224, 0, 1, 0) && prefix > 3,
            IpAddr::V6(ip) => ip.is_multicast() && prefix > 7,
        };
        if !is_group {
            return Err(NoGroup);
        }
        let zeros = match first {
            IpAddr::V4(ip) => u32::from(ip).trailing_zeros(),
            IpAddr::V6(ip) => u128::from(ip).trailing_zeros(),
        };
        if zeros < behind {
            return Err(Unaligned);
        }
        let groups = 1_u32.checked_shl(behind).unwrap_or(GROUPS_MAX);
        Ok(Self {
            first,
            groups: groups.clamp(1, GROUPS_MAX),
            port,
        })
    }
}

impl std::fmt::Display for GroupRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} groups from {}", self.groups, self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_in_both_families() {
        for (text, first, groups, port) in [
            ("239.1.2.0/24:6000", "239.1.2.0", 256, 6000),
            ("239.1.2.0/24", "239.1.2.0", 256, 5004),
            ("239.1.2.3", "239.1.2.3", 1, 5004),
            ("239.1.2.3:5006", "239.1.2.3", 1, 5006),
            ("224.0.1.0/24", "224.0.1.0", 256, 5004),
            ("239.0.0.0/8", "239.0.0.0", GROUPS_MAX, 5004),
            ("ff15::4000/120", "ff15::4000", 256, 5004),
            ("[ff15::4000/120]:6000", "ff15::4000", 256, 6000),
            ("[ff35::1]", "ff35::1", 1, 5004),
            ("ff35::/8", "", 0, 0),
            ("ff15::/64", "ff15::", GROUPS_MAX, 5004),
        ] {
            let range = text.parse::<GroupRange>();
            let expected = first.parse().ok().map(|first| GroupRange {
                first,
                groups,
                port,
            });
            assert_eq!(range.ok(), expected, "{text}");
        }
        let range: GroupRange = "239.1.2.4/31".parse().unwrap();
        let group = |number| range.group(number).map(|ip| ip.to_string());
        let groups = [0, 1, 2].map(|number| group(number).unwrap_or_default());
        assert_eq!(
            (range.groups(), groups),
            (2, ["239.1.2.4", "239.1.2.5", ""].map(str::to_owned))
        );
    }

    #[test]
    fn what_is_no_range_is_refused() {
        use GroupRangeError::{NoGroup, Port, Syntax, Unaligned};
        for (text, error) in [
            ("", Syntax),
            ("239.1.2.0/", Syntax),
            ("239.1.2.0/33", Syntax),
            ("239.1.2.0/24:", Syntax),
            ("239.1.2.0/24:65536", Syntax),
            ("[239.1.2.0/24]x", Syntax),
            ("[ff15::1", Syntax),
            ("group.example/24", Syntax),
            ("239.1.2.0/24:5005", Port),
            ("239.1.2.0/24:80", Port),
            ("239.1.2.0/24:65522", Port),
            ("192.0.2.0/24", NoGroup),
            ("224.0.0.0/24", NoGroup),
            ("2001:db8::/64", NoGroup),
            ("0.0.0.0/0", NoGroup),
            ("239.1.2.1/24", Unaligned),
            ("ff15::1/120", Unaligned),
        ] {
            assert_eq!(text.parse::<GroupRange>(), Err(error), "{text}");
        }
    }
}
