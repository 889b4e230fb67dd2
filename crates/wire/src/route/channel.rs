//! What a node tells the registry of a channel that it receives, and what others make of it.
//!
//! An entry is a lease: the registry lets it stand for as long as its holder renews it. Others find
//! there where to take the channel from. As with [nodes' entries](super::entry), whoever can write
//! to the registry may have written it: an address is asked only if it is nothing but a host and a
//! port, and a channel is called only what a publisher could call it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::entry::{NODE_NAME_BYTES_MAX, is_address, is_node_name};
use super::hops::{TRACE, Trace};
use super::lease::Token;
use super::relay::Puller;

/// The form of [`ChannelEntry`]. A new field leaves it as it is.
pub const CHANNEL_FORMAT: u32 = 1;

/// A longer entry is refused.
pub const CHANNEL_ENTRY_BYTES_MAX: usize = 4 << 10;

/// Bytes of a channel's path.
pub const CHANNEL_PATH_BYTES_MAX: usize = 520;

/// Channels of one cluster that a node knows; what the registry holds beyond that is ignored, and
/// told.
pub const CLUSTER_CHANNELS_MAX: usize = 4096;

/// Who receives a channel.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub struct ChannelEntry {
    /// [`CHANNEL_FORMAT`].
    pub format: u32,
    /// The channel's path in URLs.
    pub channel: String,
    /// The node that receives it.
    pub node: String,
    /// Drawn when that was started: its successor is another holder.
    pub instance: u64,
    /// Where that serves RTSP: `HOST:PORT`.
    pub rtsp: String,
    /// The lease's token: 0 in what the lease was taken with, whose revision it is then.
    pub token: Token,
}

/// Why an entry is not taken.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum ChannelEntryError {
    /// It is longer than [`CHANNEL_ENTRY_BYTES_MAX`].
    #[error("{bytes} bytes; a channel's entry has {CHANNEL_ENTRY_BYTES_MAX} at the most")]
    Long {
        /// So long.
        bytes: usize,
    },
    /// It is no JSON object of this form.
    #[error("no entry of a channel: {0}")]
    Json(String),
    /// Its form is another one.
    #[error(
        "an entry of form {found}, and this version reads {CHANNEL_FORMAT}; update this node or \
         that"
    )]
    Format {
        /// Its form.
        found: u32,
    },
    /// It is another channel's than its key says, or no channel can be called that.
    #[error("the entry of channel {channel:?} under another key")]
    Name {
        /// Whose it is.
        channel: String,
    },
    /// No node can be called that.
    #[error("{node:?} is no name of a node")]
    Node {
        /// What stands there.
        node: String,
    },
    /// The address is none.
    #[error("{address:?} is no address; write HOST:PORT")]
    Address {
        /// What stands there.
        address: String,
    },
    /// The token is newer than the entry.
    #[error("token {token} in revision {revision}: a lease is not older than its token")]
    Token {
        /// What stands there.
        token: Token,
        /// The entry's own.
        revision: Token,
    },
}

impl ChannelEntry {
    /// Reads what stands in the registry under `key` in this revision. Its token is told in any
    /// case.
    ///
    /// # Errors
    ///
    /// Why it is not taken.
    pub fn parse(key: &str, revision: Token, bytes: &[u8]) -> Result<Self, ChannelEntryError> {
        if bytes.len() > CHANNEL_ENTRY_BYTES_MAX {
            let bytes = bytes.len();
            return Err(ChannelEntryError::Long { bytes });
        }
        // First of all: of a newer form nothing else need be as it is here.
        let head: Head = serde_json::from_slice(bytes).map_err(json)?;
        if head.format != CHANNEL_FORMAT {
            let found = head.format;
            return Err(ChannelEntryError::Format { found });
        }
        let mut entry: Self = serde_json::from_slice(bytes).map_err(json)?;
        let short = |text: &str| text.chars().take(NODE_NAME_BYTES_MAX).collect();
        if channel_key(&entry.channel).as_deref() != Some(key) {
            let channel = short(&entry.channel);
            return Err(ChannelEntryError::Name { channel });
        }
        if !is_node_name(&entry.node) {
            let node = short(&entry.node);
            return Err(ChannelEntryError::Node { node });
        }
        if !is_address(&entry.rtsp) {
            let address = short(&entry.rtsp);
            return Err(ChannelEntryError::Address { address });
        }
        let token = entry.token;
        if token > revision {
            return Err(ChannelEntryError::Token { token, revision });
        }
        if token == 0 {
            entry.token = revision;
        }
        Ok(entry)
    }

    /// As it stands in the registry.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("of strings and numbers alone")
    }

    /// Whether both are leases of one process: it may have lost a lease and got another.
    #[must_use]
    pub fn is_same_holder(&self, other: &Self) -> bool {
        self.node == other.node && self.instance == other.instance
    }
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[allow(clippy::needless_pass_by_value, reason = "as `map_err` calls it")]
fn json(error: serde_json::Error) -> ChannelEntryError {
    ChannelEntryError::Json(error.to_string())
}

/// The key of a channel's entry; `None` if no channel can be called that.
///
/// Keys are made of the letters of paths, but a dot in them would begin another part of a subject
/// of NATS, and some dots are not allowed: they are written `=2E`.
#[must_use]
pub fn channel_key(path: &str) -> Option<String> {
    let (path, of_standby) = match path.strip_suffix(STANDBY) {
        Some(path) => (path, STANDBY),
        None => (path, ""),
    };
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    let is_path = (1..=CHANNEL_PATH_BYTES_MAX).contains(&path.len())
        && path.bytes().all(is_plain)
        && path.split('/').all(|part| !part.is_empty());
    is_path.then(|| path.replace('.', "=2E") + of_standby)
}

/// The end of the name under which a node has the lease of a channel's standby. No path ends so.
const STANDBY: &str = "=standby";

/// The name under which a node has the lease of a channel's standby: who comes third finds it.
#[must_use]
pub fn standby_of(channel: &str) -> String {
    format!("{channel}{STANDBY}")
}

/// The channel of whose standby that is the name.
#[must_use]
pub fn of_standby(name: &str) -> Option<&str> {
    name.strip_suffix(STANDBY)
}

/// The channel whose key that is.
#[must_use]
pub fn channel_of(key: &str) -> String {
    key.replace("=2E", ".")
}

/// The parameter of a query by which a node asks another for a channel: under which lease. One that
/// has it by another lease, or not at all, is not to look for it elsewhere.
const LEASE: &str = "lease";

/// The URL by which a node takes the channel, under that lease, from the node at `address`: its
/// holder, or one that takes it from there. That says the number in its log, too.
#[must_use]
pub fn pull_url(entry: &ChannelEntry, address: &str, puller: &Puller, trace: Trace) -> String {
    let (channel, token, asks) = (&entry.channel, entry.token, puller.query());
    format!("rtsp://{address}/{channel}?{LEASE}={token}&{asks}&{TRACE}={trace}")
}

/// The lease that a URL names, if it does.
#[must_use]
pub fn lease_of(uri: &str) -> Option<Token> {
    let (_, query) = uri.split_once('?')?;
    let token = query
        .split('&')
        .find_map(|it| it.strip_prefix(LEASE)?.strip_prefix('='))?;
    let end = token.find(|c: char| !c.is_ascii_digit());
    token[..end.unwrap_or(token.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: &str = "live/cam=2E1";

    fn entry() -> ChannelEntry {
        ChannelEntry {
            format: CHANNEL_FORMAT,
            channel: "live/cam.1".to_owned(),
            node: "node-1".to_owned(),
            instance: u64::MAX,
            rtsp: "[2001:db8::7]:8554".to_owned(),
            token: 7,
        }
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let entry = entry();
        let bytes = entry.to_bytes();
        assert_eq!(ChannelEntry::parse(KEY, 9, &bytes), Ok(entry.clone()));
        assert_eq!(channel_key(&entry.channel).as_deref(), Some(KEY));
        // The first one does not know its own revision.
        let first = ChannelEntry { token: 0, ..entry };
        let read = ChannelEntry::parse(KEY, 9, &first.to_bytes()).unwrap();
        assert_eq!(read.token, 9);
        assert!(read.is_same_holder(&first));
        let another = ChannelEntry {
            instance: 1,
            ..read.clone()
        };
        assert!(!read.is_same_holder(&another));
    }

    #[test]
    fn what_is_no_entry_is_refused_with_a_reason() {
        let refused = |change: fn(&mut ChannelEntry)| {
            let mut entry = entry();
            change(&mut entry);
            let read = ChannelEntry::parse(KEY, 9, &entry.to_bytes());
            read.unwrap_err().to_string()
        };
        assert!(refused(|it| it.format = 2).contains("update this node or that"));
        assert!(refused(|it| it.channel = "live/cam".to_owned()).contains("another key"));
        assert!(refused(|it| it.node = "a b".to_owned()).contains("no name of a node"));
        assert!(refused(|it| it.token = 10).contains("token 10 in revision 9"));
        for address in ["", "b", "b:1/x", "u:p@b:1", "b:1\r\nX: y", "b:0"] {
            let mut entry = entry();
            entry.rtsp = address.to_owned();
            let read = ChannelEntry::parse(KEY, 9, &entry.to_bytes());
            let error = read.unwrap_err();
            assert!(
                matches!(error, ChannelEntryError::Address { .. }),
                "{address}: {error}"
            );
        }
        for text in ["", "[]", "{}", "\0", "{\"format\":1,\"token\":-1}"] {
            let error = ChannelEntry::parse(KEY, 9, text.as_bytes()).unwrap_err();
            assert!(matches!(error, ChannelEntryError::Json(_)), "{text}");
        }
    }

    #[test]
    fn entries_and_paths_at_their_bounds_are_taken() {
        let path = "x".repeat(CHANNEL_PATH_BYTES_MAX);
        assert_eq!(channel_key(&path), Some(path.clone()));
        assert_eq!(channel_key(&format!("{path}x")), None);
        let mut text = String::from_utf8(entry().to_bytes()).unwrap();
        text += &" ".repeat(CHANNEL_ENTRY_BYTES_MAX - text.len());
        assert_eq!(text.len(), CHANNEL_ENTRY_BYTES_MAX);
        assert!(ChannelEntry::parse(KEY, 9, text.as_bytes()).is_ok());
        text.push(' ');
        let error = ChannelEntry::parse(KEY, 9, text.as_bytes()).unwrap_err();
        assert!(matches!(error, ChannelEntryError::Long { bytes: 4097 }));
    }

    #[test]
    fn keys_have_no_parts_of_their_own() {
        for (path, key) in [
            ("cam", Some("cam")),
            ("a..b/c.", Some("a=2E=2Eb/c=2E")),
            ("live/Cam_1-x", Some("live/Cam_1-x")),
            ("", None),
            ("/a", None),
            ("a//b", None),
            ("a=b", None),
            ("a*", None),
            ("a>", None),
            ("é", None),
            ("a b", None),
            ("a.b=standby", Some("a=2Eb=standby")),
            ("=standby", None),
            ("a=standby=standby", None),
        ] {
            assert_eq!(channel_key(path).as_deref(), key, "{path}");
            assert!(key.is_none_or(|key| channel_of(key) == path), "{path}");
        }
    }

    #[test]
    fn a_standby_is_no_channel() {
        let name = standby_of("live/cam");
        assert_eq!(of_standby(&name), Some("live/cam"));
        assert_eq!(of_standby("live/cam"), None);
    }

    #[test]
    fn a_url_names_the_lease_that_it_is_asked_under() {
        let trace = Trace::new(0xbeef);
        let asks = Puller {
            node: "b".to_owned(),
            avoided: Vec::new(),
        };
        let url = pull_url(&entry(), &entry().rtsp, &asks, trace);
        let asked = "rtsp://[2001:db8::7]:8554/live/cam.1?lease=7&puller=b&trace=000000000000beef";
        assert_eq!(Puller::of(&url), Some(asks));
        assert_eq!((&*url, Trace::of(&url)), (asked, Some(trace)));
        for (url, token) in [
            (&*url, Some(7)),
            ("rtsp://h/a?x=y&lease=12/track1", Some(12)),
            ("/a?lease=", None),
            ("/a?release=3", None),
            ("/lease=3", None),
        ] {
            assert_eq!(lease_of(url), token, "{url}");
        }
    }

    proptest! {
        /// Whatever stands in the registry, nodes ask nothing but a host and a port for nothing but
        /// a channel.
        #[test]
        fn any_entry_is_plain_or_refused(
            rtsp in "\\PC{0,20}(:[0-9]{1,5})?",
            channel in "\\PC{0,20}",
            token in 0..20_u64,
        ) {
            let entry = ChannelEntry { rtsp, channel, token, ..entry() };
            let key = channel_key(&entry.channel).unwrap_or_default();
            if let Ok(read) = ChannelEntry::parse(&key, 9, &entry.to_bytes()) {
                prop_assert!((1..=9).contains(&read.token));
                let asks = Puller { node: "b".to_owned(), avoided: vec!["c".to_owned()] };
                let url = pull_url(&read, &read.rtsp, &asks, Trace::new(7));
                prop_assert!(url.bytes().all(|b| b.is_ascii_graphic()));
                prop_assert_eq!(url.matches(['?', '@', '#']).count(), 1);
            }
        }
    }
}
