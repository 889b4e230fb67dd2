//! URLs that are signed: whoever has one has the right that it names, without logging in. Those of
//! a cluster's nodes say by the same keys that a node asks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_wire::auth::{Action, Carried, Grant, NodeProof, Rights};
use tracing::debug;

use super::super::watched::Watched;
use super::{Asked, Refusal, Rules, count, query};

impl Rules {
    /// Signs that path, for players.
    pub(in crate::users) fn sign_to_play(&self, path: &str, lasts: Duration) -> Option<Grant> {
        let keys = self.url_keys.as_ref()?.now();
        let expires_s = (unix() + lasts).as_secs();
        let rights = Rights::default().with(Action::Play);
        Some(Grant::sign(keys.first(), path, rights, expires_s))
    }

    /// Signs that the node of that name asks for that channel.
    pub(in crate::users) fn sign_as_node(
        &self,
        (channel, node): (&str, &str),
        lasts: Duration,
    ) -> Option<NodeProof> {
        let keys = self.url_keys.as_ref()?.now();
        let expires_s = (unix() + lasts).as_secs();
        Some(NodeProof::sign(keys.first(), channel, node, expires_s))
    }

    /// Whether that URL is one by which the node of that name asks for that channel. Without keys
    /// nobody can tell, and it is.
    pub(in crate::users) fn is_of_node(&self, uri: &str, asked: (&str, &str)) -> bool {
        let Some(keys) = self.url_keys.as_ref().map(Watched::now) else {
            return true;
        };
        let proof = query(uri).and_then(NodeProof::of_query);
        proof.is_some_and(|proof| proof.is_of(keys.all(), asked, unix().as_secs()))
    }

    /// By which credentials in a URL somebody may play that path: by none where everybody may. A
    /// hook hears of all of them.
    pub(in crate::users) fn carries(&self, path: &str) -> Carried {
        let file = self.file.as_ref().map(Watched::now);
        let is_free =
            self.is_open || file.is_some_and(|file| file.allows(None, Action::Play, path));
        let counts = |is_known: bool| !is_free && (is_known || self.hook.is_some());
        Carried {
            grants: counts(self.url_keys.is_some()),
            tokens: counts(self.tokens.is_some()),
        }
    }

    /// Whether the URL is signed for this.
    pub(super) fn is_signed(&self, asked: &Asked<'_>) -> Result<bool, Refusal> {
        let Some(keys) = self.url_keys.as_ref().map(Watched::now) else {
            return Ok(false);
        };
        let grant = query(asked.uri).and_then(Grant::of_query).transpose();
        let now_s = unix().as_secs();
        let checked = grant.and_then(|grant| match grant {
            Some(grant) => grant
                .check(keys.all(), asked.path, now_s)
                .map(|()| grant.rights.allow(asked.action)),
            None => Ok(false),
        });
        checked.map_err(|error| {
            count(&self.stats.wrong);
            debug!("{}: {:?}: {error}", asked.peer, asked.path);
            Refusal::Forbidden("the URL's signature has expired, or is not for this path")
        })
    }
}

/// Now, since 1970.
fn unix() -> Duration {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    unix.unwrap_or_default()
}
