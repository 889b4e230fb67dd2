//! What a node tells the registry of itself, and what another one makes of it.
//!
//! An entry is a JSON object. Fields that a reader does not know are left out by it, so that nodes
//! of two versions stand side by side; an entry whose form is newer than the reader's is refused
//! whole. Whatever stands there may come from anybody who can write to the registry: an address
//! goes into answers to viewers only if it is nothing but a host and a port.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Film, Key, Node};
use crate::rtsp::RedirectTarget;

/// The form of [`Entry`]. A new field leaves it as it is; another meaning makes it another number.
pub const ENTRY_FORMAT: u32 = 1;

/// A longer entry is refused.
pub const ENTRY_BYTES_MAX: usize = 16 << 10;

/// Films that one entry names: each is a hundredth of what the node plays, or more.
pub const ENTRY_FILMS_MAX: usize = 100;

/// Nodes that a cluster has beside the one that counts; what the registry holds beyond that is
/// ignored, and told.
pub const NODES_MAX: usize = 1024;

/// Bytes of the name of a node or a cluster.
pub const NODE_NAME_BYTES_MAX: usize = 64;

/// What a node tells of itself.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Entry {
    /// [`ENTRY_FORMAT`].
    pub format: u32,
    /// The node's name, which is the entry's key too.
    pub node: String,
    /// Drawn when the node was started: two nodes of one name are told apart by it.
    pub instance: u64,
    /// The version of its program.
    pub software: String,
    /// Whether it takes new viewers: not while it drains.
    pub accepts: bool,
    /// What it can play, in bits a second.
    pub capacity_bps: u64,
    /// What it plays, by the account of its own admission, as a part of that.
    pub load_bps: u64,
    /// Its sessions of RTSP.
    pub sessions: u64,
    /// Where viewers reach it.
    pub addresses: Addresses,
    /// Films that are a hundredth of what it plays or more.
    pub films: Vec<WarmFilm>,
}

/// Where viewers reach a node, by the scheme of their URLs: `HOST:PORT`. None where it does not
/// serve that.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct Addresses {
    /// Of `rtsp`.
    pub rtsp: Option<String>,
    /// Of `rtsps`.
    pub rtsps: Option<String>,
    /// Of `http`.
    pub http: Option<String>,
    /// Of `https`.
    pub https: Option<String>,
}

/// A film that a node plays, and so has in its memory.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct WarmFilm {
    /// The [`Key`] of its path.
    pub key: u64,
    /// What the node plays of it, in bits a second.
    pub bps: u64,
}

/// By what protocol a viewer asks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scheme {
    /// `rtsp://`
    Rtsp,
    /// `rtsps://`
    Rtsps,
    /// `http://`
    Http,
    /// `https://`
    Https,
}

impl Scheme {
    /// As it stands in URLs.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rtsp => "rtsp",
            Self::Rtsps => "rtsps",
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

impl Addresses {
    /// The one for URLs of that scheme.
    #[must_use]
    pub fn of(&self, scheme: Scheme) -> Option<&str> {
        let address = match scheme {
            Scheme::Rtsp => &self.rtsp,
            Scheme::Rtsps => &self.rtsps,
            Scheme::Http => &self.http,
            Scheme::Https => &self.https,
        };
        address.as_deref()
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        let Self {
            rtsp,
            rtsps,
            http,
            https,
        } = self;
        [rtsp, rtsps, http, https].into_iter().flatten()
    }
}

/// Why an entry is not taken.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum EntryError {
    /// It is longer than [`ENTRY_BYTES_MAX`].
    #[error("{bytes} bytes; an entry has {ENTRY_BYTES_MAX} at the most")]
    Long {
        /// So long.
        bytes: usize,
    },
    /// It is no JSON object of this form.
    #[error("no entry of a node: {0}")]
    Json(String),
    /// Its form is another one.
    #[error(
        "an entry of form {found}, and this version reads {ENTRY_FORMAT}; update this node or that"
    )]
    Format {
        /// Its form.
        found: u32,
    },
    /// It is another node's than its key says.
    #[error("the entry of {node:?} under another key")]
    Name {
        /// Whose it is.
        node: String,
    },
    /// An address is none.
    #[error("{address:?} is no address; write HOST:PORT")]
    Address {
        /// What stands there.
        address: String,
    },
    /// It names too many films.
    #[error("{films} films; an entry names {ENTRY_FILMS_MAX} at the most")]
    Films {
        /// So many.
        films: usize,
    },
    /// It can play nothing, or more than there is.
    #[error("a capacity of {capacity_bps} bit/s; a node plays from 1 to {CAPACITY_BPS} bit/s")]
    Capacity {
        /// What it says that it can play.
        capacity_bps: u64,
    },
}

/// More than any machine plays: a petabit a second. Beyond that numbers lose their last digits.
const CAPACITY_BPS: u64 = 1_000_000_000_000_000;

impl Entry {
    /// Reads what stands in the registry under `key`.
    ///
    /// # Errors
    ///
    /// Why it is not taken.
    pub fn parse(key: &str, bytes: &[u8]) -> Result<Self, EntryError> {
        if bytes.len() > ENTRY_BYTES_MAX {
            let bytes = bytes.len();
            return Err(EntryError::Long { bytes });
        }
        // First of all: of a newer form nothing else need be as it is here.
        let head: Head = serde_json::from_slice(bytes).map_err(json)?;
        if head.format != ENTRY_FORMAT {
            let found = head.format;
            return Err(EntryError::Format { found });
        }
        let entry: Self = serde_json::from_slice(bytes).map_err(json)?;
        if entry.node != key || !is_node_name(key) {
            let node = entry.node.chars().take(NODE_NAME_BYTES_MAX).collect();
            return Err(EntryError::Name { node });
        }
        if let Some(address) = entry.addresses.all().find(|it| !is_address(it)) {
            let address = address.chars().take(NODE_NAME_BYTES_MAX).collect();
            return Err(EntryError::Address { address });
        }
        if entry.films.len() > ENTRY_FILMS_MAX {
            let films = entry.films.len();
            return Err(EntryError::Films { films });
        }
        if !(1..=CAPACITY_BPS).contains(&entry.capacity_bps) {
            let capacity_bps = entry.capacity_bps;
            return Err(EntryError::Capacity { capacity_bps });
        }
        Ok(entry)
    }

    /// As it stands in the registry.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("of strings and numbers alone")
    }

    /// What rules of which node serves what know of it.
    #[must_use]
    pub fn node(&self) -> Node {
        Node {
            key: Key::of(&self.node),
            capacity_bps: self.capacity_bps,
            load_bps: self.load_bps,
            accepts: self.accepts,
        }
    }
}

impl WarmFilm {
    /// So much of the film.
    #[must_use]
    pub fn new(film: Film) -> Self {
        Self {
            key: film.key.to_bits(),
            bps: film.demand_bps,
        }
    }
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn json(error: serde_json::Error) -> EntryError {
    EntryError::Json(error.to_string())
}

/// Whether a node or a cluster may be called so: letters, digits, `-`, `_`, and dots within. It is
/// a key of the registry as it stands.
#[must_use]
pub fn is_node_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=NODE_NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_plain)
        && !name.starts_with('.')
        && !name.ends_with('.')
        && !name.contains("..")
}

/// Whether this is a host and a port, and nothing that could end a header line or a URL's
/// authority.
pub(super) fn is_address(address: &str) -> bool {
    let host = address.rsplit_once(':').map(|(host, _)| host);
    host.is_some_and(|host| !host.is_empty())
        && format!("rtsp://{address}/")
            .parse::<RedirectTarget>()
            .is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> Entry {
        Entry {
            format: ENTRY_FORMAT,
            node: "node-1".to_owned(),
            instance: u64::MAX,
            software: "0.1.0".to_owned(),
            accepts: true,
            capacity_bps: 10_000_000_000,
            load_bps: 4_000_000,
            sessions: 1,
            addresses: Addresses {
                rtsp: Some("[2001:db8::7]:8554".to_owned()),
                http: Some("node-1.example:8080".to_owned()),
                ..Addresses::default()
            },
            films: vec![WarmFilm::new(Film {
                key: Key::of("a.mp4"),
                demand_bps: 4_000_000,
            })],
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = entry();
        assert_eq!(Entry::parse("node-1", &entry.to_bytes()), Ok(entry.clone()));
        assert_eq!(entry.addresses.of(Scheme::Rtsps), None);
        let http = entry.addresses.of(Scheme::Http);
        assert_eq!(http, Some("node-1.example:8080"));
        assert_eq!(entry.films[0].key, Key::of("a.mp4").to_bits());
    }

    #[test]
    fn other_versions_are_understood_or_refused() {
        let text = r#"{"format":1,"node":"b","capacity_bps":5,"of tomorrow":{}}"#;
        let read = Entry::parse("b", text.as_bytes()).unwrap();
        assert!(!read.accepts && read.films.is_empty() && read.capacity_bps == 5);
        let error = Entry::parse("b", br#"{"format":2,"node":7}"#).unwrap_err();
        assert_eq!(error, EntryError::Format { found: 2 });
        assert!(error.to_string().contains("update this node or that"));
    }

    #[test]
    fn what_is_no_entry_is_refused_with_a_reason() {
        let refused = |change: fn(&mut Entry)| {
            let mut entry = entry();
            change(&mut entry);
            Entry::parse("node-1", &entry.to_bytes())
                .unwrap_err()
                .to_string()
        };
        assert!(refused(|it| it.node = "node-2".to_owned()).contains("another key"));
        assert!(refused(|it| it.capacity_bps = 0).contains("capacity of 0"));
        assert!(refused(|it| it.capacity_bps = u64::MAX).contains("capacity of"));
        assert!(refused(|it| it.films = vec![WarmFilm::default(); 101]).contains("101 films"));
        assert!(refused(|it| it.software = "x".repeat(ENTRY_BYTES_MAX)).contains("bytes"));
        for address in [
            "b",
            ":1",
            "b:0",
            "b:x",
            "b:1/a",
            "b:1\r\nX: y",
            "u@b:1",
            "b:1?x",
            "é:1",
        ] {
            let mut entry = entry();
            entry.addresses.rtsp = Some(address.to_owned());
            let error = Entry::parse("node-1", &entry.to_bytes()).unwrap_err();
            assert!(
                matches!(error, EntryError::Address { .. }),
                "{address}: {error}"
            );
        }
        for text in [
            "",
            "[]",
            "{}",
            "{\"format\":\"1\"}",
            "\0",
            "{\"format\":1,\"films\":7}",
        ] {
            let error = Entry::parse("node-1", text.as_bytes()).unwrap_err();
            assert!(matches!(error, EntryError::Json(_)), "{text}: {error}");
        }
    }

    #[test]
    fn films_and_bytes_at_their_bounds_are_taken() {
        let mut entry = entry();
        entry.films = vec![
            WarmFilm {
                key: u64::MAX,
                bps: u64::MAX
            };
            ENTRY_FILMS_MAX
        ];
        entry.software = String::new();
        let room = ENTRY_BYTES_MAX - entry.to_bytes().len();
        entry.software = "x".repeat(room);
        assert_eq!(entry.to_bytes().len(), ENTRY_BYTES_MAX);
        assert!(Entry::parse("node-1", &entry.to_bytes()).is_ok());
    }

    #[test]
    fn names_are_keys_of_the_registry() {
        let long = "x".repeat(NODE_NAME_BYTES_MAX);
        for name in ["a", "node-1", "a_b.example", "A.b.9", &long] {
            assert!(is_node_name(name), "{name}");
        }
        let longer = format!("{long}x");
        for name in [
            "", ".a", "a.", "a..b", "a b", "a*", "a>", "a/b", "é", "a\n", &longer,
        ] {
            assert!(!is_node_name(name), "{name}");
        }
    }

    proptest! {
        /// Whatever stands in the registry, nothing but a host and a port gets into an answer.
        #[test]
        fn any_bytes_are_an_entry_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Entry::parse("node-1", &bytes).is_err());
        }

        #[test]
        fn any_address_is_plain_or_refused(address in "\\PC{0,20}(:[0-9]{1,5})?") {
            let mut entry = entry();
            entry.addresses.http = Some(address.clone());
            if Entry::parse("node-1", &entry.to_bytes()).is_ok() {
                prop_assert!(address.bytes().all(|b| b.is_ascii_graphic()));
                prop_assert!(!address.contains(['/', '?', '#', '@']));
            }
        }
    }
}
