//! That who asks for a channel as a node of a cluster is one, because it has the cluster's key.
//!
//! Whoever has a signed URL may play what it names, and is no node by that. So a node signs its own
//! name as well, by the same keys and in a form that no signed URL has.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What the query says of a URL that a node asks another for. It is worth nothing before
/// [`NodeProof::is_of`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeProof {
    /// Until when, in seconds since 1970.
    expires_s: u64,
    signature: Vec<u8>,
}

impl NodeProof {
    /// Signs that the node of that name asks for that channel.
    #[must_use]
    pub fn sign(key: &[u8], channel: &str, node: &str, expires_s: u64) -> Self {
        let signature = mac(key, channel, node, expires_s).finalize().into_bytes();
        Self {
            expires_s,
            signature: signature.to_vec(),
        }
    }

    /// What a query says; `None` if that is nothing that can be read. Other parameters may stand
    /// beside.
    #[must_use]
    pub fn of_query(query: &str) -> Option<Self> {
        let mut pairs = query.split('&');
        let value = pairs.find_map(|it| it.strip_prefix(PARAMETER)?.strip_prefix('='))?;
        let (expires, signature) = value.split_once('.')?;
        let is_number = expires.bytes().all(|b| b.is_ascii_digit());
        Some(Self {
            expires_s: expires.parse().ok().filter(|_| is_number)?,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// Whether one of `keys` signed this for that channel and that node, and the time is not over.
    #[must_use]
    pub fn is_of<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        (channel, node): (&str, &str),
        now_s: u64,
    ) -> bool {
        let is_by = |key: &[u8]| {
            let mac = mac(key, channel, node, self.expires_s);
            mac.verify_slice(&self.signature).is_ok()
        };
        now_s < self.expires_s && keys.into_iter().any(is_by)
    }
}

/// As it stands in the query of the URL.
impl fmt::Display for NodeProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signature = URL_SAFE_NO_PAD.encode(&self.signature);
        write!(f, "{PARAMETER}={}.{signature}", self.expires_s)
    }
}

fn mac(key: &[u8], channel: &str, node: &str, expires_s: u64) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    // Begins as no signed URL does. The names of nodes have no line breaks.
    mac.update(format!("onrush node 1\n{expires_s}\n{node}\n{channel}").as_bytes());
    mac
}

/// The parameter that it stands in.
const PARAMETER: &str = "proof";

#[cfg(test)]
mod tests {
    use super::super::{Grant, Rights};
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef";
    const ASKED: (&str, &str) = ("live/cam", "media-2");

    #[test]
    fn a_proof_is_for_its_channel_node_and_time_alone() {
        let (channel, node) = ASKED;
        let proof = NodeProof::sign(KEY, channel, node, 1000);
        let read = NodeProof::of_query(&format!("lease=7&{proof}&x")).unwrap();
        assert_eq!(read, proof);
        let is_of = |asked, now_s| read.is_of([&b"other"[..], KEY], asked, now_s);
        assert!(is_of(ASKED, 999) && !is_of(ASKED, 1000));
        assert!(!is_of(("live/other", node), 999));
        assert!(!is_of((channel, "media-1"), 999));
        assert!(!read.is_of([&b"other"[..]], ASKED, 999));
        let later = NodeProof {
            expires_s: 2000,
            ..proof
        };
        assert!(!later.is_of([KEY], ASKED, 999));
    }

    #[test]
    fn what_signs_a_url_proves_no_node() {
        let query = Grant::sign(KEY, "live/cam", Rights::READ, 1000).to_string();
        assert_eq!(NodeProof::of_query(&query), None);
        let signature = query.split("signature=").nth(1).unwrap();
        let forged = NodeProof::of_query(&format!("proof=1000.{signature}")).unwrap();
        assert!(!forged.is_of([KEY], ASKED, 999));
        for query in [
            "",
            "proof=",
            "proof=1",
            "proof=+1.AAAA",
            "proof=1.A",
            "roof=1.AAAA",
        ] {
            assert_eq!(NodeProof::of_query(query), None, "{query}");
        }
    }
}
