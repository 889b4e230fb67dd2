//! Who gets a stream: from the command line, from a file, from the API.
//!
//! A member may stand in several of these lists; it is one all the same, until it stands in none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use serde::Serialize;
use thiserror::Error;

/// Members of one stream at the most, players aside.
pub const MEMBERS_MAX: usize = 65_536;

/// Where a member stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// On the command line.
    CommandLine,
    /// In the file that is watched.
    File,
    /// In the list that the API keeps.
    Api,
}

/// Why somebody is no member.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MemberError {
    /// It is no address and port.
    #[error("{text:?} is no member; write ADDRESS:PORT, as in 10.0.0.7:5004 or [2001:db8::7]:5004")]
    Syntax {
        /// What it is.
        text: String,
    },
    /// Nobody can be there.
    #[error("{address} cannot be a member: {reason}")]
    Address {
        /// Where.
        address: SocketAddr,
        /// Why not.
        reason: &'static str,
    },
    /// What is sent there would come back to the source.
    #[error(
        "{address} cannot be a member: datagrams would go round for ever, {path}; \
         leave this member out, or first remove another that is named here"
    )]
    Cycle {
        /// Where.
        address: SocketAddr,
        /// The sources on the way round, and who sends where.
        path: String,
    },
    /// There are too many.
    #[error("a stream has {MEMBERS_MAX} members at the most")]
    TooMany,
    /// It is not the API's to remove.
    #[error("{address} stands {where_it_stands}; remove it there")]
    NotYours {
        /// Who.
        address: SocketAddr,
        /// Where it stands.
        where_it_stands: &'static str,
    },
    /// The API's list is the next server's.
    #[error("another server takes this one's place; ask again, and it answers")]
    HandedOver,
    /// It is no member.
    #[error("{address} is no member")]
    Unknown {
        /// Who.
        address: SocketAddr,
    },
}

/// Line `line` of a file is wrong.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line}: {error}")]
pub struct LineError {
    /// Which, from 1.
    pub line: usize,
    /// Why.
    pub error: MemberError,
}

/// The members of one stream, each with the lists it stands in.
#[derive(Clone, Debug, Default)]
pub struct Members {
    origins: BTreeMap<SocketAddr, u8>,
}

/// How a list has changed.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Change {
    /// Members now that were none before.
    pub added: Vec<SocketAddr>,
    /// None now that were members before.
    pub removed: Vec<SocketAddr>,
}

/// Reads one member.
///
/// # Errors
///
/// [`MemberError::Syntax`] and [`MemberError::Address`].
pub fn parse_member(text: &str) -> Result<SocketAddr, MemberError> {
    let address: SocketAddr = text.parse().map_err(|_| MemberError::Syntax {
        // Somebody's film in place of a list must not become one line of a log.
        text: text.chars().take(80).collect(),
    })?;
    let address = SocketAddr::new(address.ip().to_canonical(), address.port());
    let reason = match address.ip() {
        _ if address.port() == 0 => "port 0 is none",
        ip if ip.is_unspecified() => "it is no one's address",
        ip if ip.is_multicast() => "a member is one receiver, not a multicast group",
        IpAddr::V4(ip) if ip.is_broadcast() => "a member is one receiver, not a whole network",
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            "a link-local address means nothing without an interface; use another of its addresses"
        }
        _ => return Ok(address),
    };
    Err(MemberError::Address { address, reason })
}

/// Reads a file of members: one a line, `#` begins a comment.
///
/// # Errors
///
/// Every line that is wrong, up to [`LINE_ERRORS_MAX`] of them.
pub fn parse_file(text: &str) -> Result<Vec<SocketAddr>, Vec<LineError>> {
    let (mut members, mut errors) = (Vec::new(), Vec::new());
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            continue;
        }
        match parse_member(text) {
            Ok(_) if members.len() == MEMBERS_MAX => {
                errors.push(LineError {
                    line,
                    error: MemberError::TooMany,
                });
                break;
            }
            Ok(member) => members.push(member),
            Err(error) => errors.push(LineError { line, error }),
        }
        if errors.len() == LINE_ERRORS_MAX {
            break;
        }
    }
    if errors.is_empty() {
        Ok(members)
    } else {
        Err(errors)
    }
}

impl Members {
    /// Makes the list of `origin` consist of `members`.
    ///
    /// # Errors
    ///
    /// [`MemberError::TooMany`]; then nothing has changed.
    pub fn replace(
        &mut self,
        origin: Origin,
        members: &[SocketAddr],
    ) -> Result<Change, MemberError> {
        let mut next = self.origins.clone();
        for origins in next.values_mut() {
            *origins &= !origin.bit();
        }
        for &member in members {
            *next.entry(member).or_default() |= origin.bit();
        }
        next.retain(|_, origins| *origins != 0);
        if next.len() > MEMBERS_MAX {
            return Err(MemberError::TooMany);
        }
        let missing_in = |other: &BTreeMap<SocketAddr, u8>, member: &SocketAddr| {
            (!other.contains_key(member)).then_some(*member)
        };
        let added = next.keys().filter_map(|m| missing_in(&self.origins, m));
        let removed = self.origins.keys().filter_map(|m| missing_in(&next, m));
        let change = Change {
            added: added.collect(),
            removed: removed.collect(),
        };
        self.origins = next;
        Ok(change)
    }

    /// Adds members to the API's list.
    ///
    /// # Errors
    ///
    /// [`MemberError::TooMany`]; then nothing has changed.
    pub fn add(&mut self, members: &[SocketAddr]) -> Result<Change, MemberError> {
        let is_new = |member: &&SocketAddr| !self.origins.contains_key(member);
        let added: BTreeSet<_> = members.iter().filter(is_new).copied().collect();
        if self.origins.len() + added.len() > MEMBERS_MAX {
            return Err(MemberError::TooMany);
        }
        for &member in members {
            *self.origins.entry(member).or_default() |= Origin::Api.bit();
        }
        Ok(Change {
            added: added.into_iter().collect(),
            removed: Vec::new(),
        })
    }

    /// Removes members from the API's list.
    ///
    /// # Errors
    ///
    /// If one of them stands elsewhere, or nowhere; then nothing has changed.
    pub fn remove(&mut self, members: &[SocketAddr]) -> Result<Change, MemberError> {
        for &address in members {
            let origins = self.origins.get(&address).copied().unwrap_or(0);
            let elsewhere = |origin: Origin| origins & origin.bit() != 0;
            let where_it_stands = match origins {
                0 => return Err(MemberError::Unknown { address }),
                _ if elsewhere(Origin::File) => "in the file",
                _ if elsewhere(Origin::CommandLine) => "on the command line",
                _ => continue,
            };
            return Err(MemberError::NotYours {
                address,
                where_it_stands,
            });
        }
        let mut change = Change::default();
        for member in members {
            if self.origins.remove(member).is_some() {
                change.removed.push(*member);
            }
        }
        Ok(change)
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> {
        self.origins.keys().copied()
    }

    /// In which lists `member` stands.
    #[must_use]
    pub fn origins(&self, member: &SocketAddr) -> Vec<Origin> {
        let origins = self.origins.get(member).copied().unwrap_or(0);
        let all = [Origin::CommandLine, Origin::File, Origin::Api];
        all.into_iter().filter(|o| origins & o.bit() != 0).collect()
    }

    /// How many they are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.origins.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.origins.is_empty()
    }
}

impl Origin {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Change {
    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// Wrong lines of a file that are reported.
pub const LINE_ERRORS_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number + 1))
    }

    #[test]
    fn members_are_receivers_with_an_address() {
        let fine = |text: &str| parse_member(text).unwrap().to_string();
        assert_eq!(fine("10.0.0.7:5004"), "10.0.0.7:5004");
        assert_eq!(fine("[::ffff:10.0.0.7]:5004"), "10.0.0.7:5004");
        assert_eq!(fine("[2001:db8::7]:1"), "[2001:db8::7]:1");
        for text in ["", "10.0.0.7", "host:1", "10.0.0.7:65536", "10.0.0.7:1 x"] {
            let error = parse_member(text).unwrap_err();
            assert!(matches!(error, MemberError::Syntax { .. }), "{text}");
        }
        for text in [
            "10.0.0.7:0",
            "0.0.0.0:1",
            "[::]:1",
            "239.0.0.1:1",
            "[ff02::1]:1",
            "255.255.255.255:1",
            "[fe80::1]:1",
        ] {
            let error = parse_member(text).unwrap_err();
            assert!(matches!(error, MemberError::Address { .. }), "{text}");
        }
    }

    #[test]
    fn wrong_lines_are_reported_by_number_and_spoil_the_list() {
        let text = "# players\n10.0.0.1:5 # kitchen\n\n  [::1]:6\r\n10.0.0.1:5\n";
        let members = parse_file(text).unwrap();
        assert_eq!(members.len(), 3, "what stands twice is read twice");
        let errors = parse_file("10.0.0.1:5\nnobody\n#\n10.0.0.1:0\n").unwrap_err();
        let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [2, 4]);
        assert!(
            errors[0].to_string().starts_with("line 2: \"nobody\""),
            "{errors:?}"
        );
        let errors = parse_file(&"x\n".repeat(LINE_ERRORS_MAX + 1)).unwrap_err();
        assert_eq!(errors.len(), LINE_ERRORS_MAX);
    }

    #[test]
    fn a_list_is_as_long_as_it_may_be_and_no_longer() {
        let line = |i: usize| format!("10.{}.{}.1:{}\n", i >> 16, i >> 8 & 255, 1 + (i & 255));
        let text: String = (0..MEMBERS_MAX).map(line).collect();
        let full = parse_file(&text).unwrap();
        let mut members = Members::default();
        assert_eq!(
            members.replace(Origin::File, &full).unwrap().added.len(),
            MEMBERS_MAX
        );
        let other = "192.168.0.1:1".parse().unwrap();
        assert_eq!(members.add(&[other]), Err(MemberError::TooMany));
        let one_more = [other];
        assert_eq!(
            members.replace(Origin::Api, &one_more),
            Err(MemberError::TooMany)
        );
        assert_eq!(members.len(), MEMBERS_MAX);
        assert!(
            members.add(&full[..1]).unwrap().is_empty(),
            "it is one already"
        );
        let errors = parse_file(&(text + "192.168.0.1:1\n")).unwrap_err();
        let too_many = LineError {
            line: MEMBERS_MAX + 1,
            error: MemberError::TooMany,
        };
        assert_eq!(errors, [too_many]);
    }

    #[test]
    fn a_member_is_one_until_it_stands_in_no_list() {
        let mut members = Members::default();
        members.replace(Origin::CommandLine, &[at(1)]).unwrap();
        let change = members
            .replace(Origin::File, &[at(1), at(2), at(2)])
            .unwrap();
        assert_eq!((change.added, change.removed), (vec![at(2)], vec![]));
        assert_eq!(members.origins(&at(1)), [Origin::CommandLine, Origin::File]);
        assert_eq!(members.add(&[at(2), at(3), at(3)]).unwrap().added, [at(3)]);
        let refused = members.remove(&[at(3), at(2)]).unwrap_err();
        assert!(refused.to_string().contains("in the file"), "{refused}");
        assert_eq!(
            members.remove(&[at(9)]),
            Err(MemberError::Unknown { address: at(9) })
        );
        assert_eq!(members.remove(&[at(3)]).unwrap().removed, [at(3)]);
        let change = members.replace(Origin::File, &[]).unwrap();
        assert_eq!(
            change.removed,
            [],
            "one is on the command line, two is the API's"
        );
        assert_eq!(members.remove(&[at(2)]).unwrap().removed, [at(2)]);
        assert_eq!(members.iter().collect::<Vec<_>>(), [at(1)]);
    }

    proptest! {
        /// Whoever follows the changes has the list.
        #[test]
        fn changes_add_up_to_the_list(
            steps in proptest::collection::vec((0..4_u8, proptest::collection::vec(0..20_u16,
                0..10)), 0..40),
        ) {
            let (mut members, mut followed) = (Members::default(), BTreeSet::new());
            for (step, numbers) in steps {
                let list: Vec<_> = numbers.into_iter().map(at).collect();
                let change = match step {
                    0 => members.replace(Origin::File, &list),
                    1 => members.replace(Origin::Api, &list),
                    2 => members.add(&list),
                    _ => members.remove(&list),
                };
                let change = change.unwrap_or_default();
                for added in change.added {
                    prop_assert!(followed.insert(added));
                }
                for removed in change.removed {
                    prop_assert!(followed.remove(&removed));
                }
                prop_assert!(followed.iter().copied().eq(members.iter()));
            }
        }

        #[test]
        fn no_file_panics(text in "\\PC*") {
            drop(parse_file(&text));
        }
    }
}
