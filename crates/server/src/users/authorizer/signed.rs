//! URLs that are signed: whoever has one has the right that it names, without logging in.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_wire::auth::{Action, Grant, Rights};
use tracing::debug;

use super::super::watched::Watched;
use super::{Asked, Refusal, Rules, count, query};

impl Rules {
    /// Signs that path, for players.
    pub(in crate::users) fn sign_to_play(&self, path: &str, lasts: Duration) -> Option<Grant> {
        let keys = self.url_keys.as_ref()?.now();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let expires_s = (unix.unwrap_or_default() + lasts).as_secs();
        let rights = Rights::default().with(Action::Play);
        Some(Grant::sign(keys.first(), path, rights, expires_s))
    }

    /// Whether the URL is signed for this.
    pub(super) fn is_signed(&self, asked: &Asked<'_>) -> Result<bool, Refusal> {
        let Some(keys) = self.url_keys.as_ref().map(Watched::now) else {
            return Ok(false);
        };
        let grant = query(asked.uri).and_then(Grant::of_query).transpose();
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = unix.unwrap_or_default().as_secs();
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
