//! The one who is asked, by the settings of the moment: they may be replaced while requests are
//! judged, each of which ends by those that it began with.

use std::mem;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onrush_wire::auth::{Action, Carried, Grant, LongCredentials, NodeProof};

use super::authorizer::{Asked, Refusal, Rules, Stats};
use super::config::UsersConfig;
use super::error::OpenError;
use super::file::Secret;
use super::login::Login;
use crate::refusals::REFUSALS;

/// Says who may do what.
#[derive(Debug)]
pub(crate) struct Authorizer {
    now: RwLock<Arc<Rules>>,
}

/// Settings that can be taken, and are not yet in force.
#[derive(Debug)]
pub(crate) struct Prepared(Arc<Rules>);

impl Authorizer {
    /// One by these settings.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or understood, or the hook cannot be asked.
    pub(crate) fn open(config: &UsersConfig, stats: Arc<Stats>) -> Result<Self, OpenError> {
        let rules = Arc::new(Rules::open(config, stats)?);
        Ok(Self {
            now: RwLock::new(rules),
        })
    }

    /// Opens other settings. What is known of passwords, nonces and services goes on with them.
    ///
    /// # Errors
    ///
    /// As of [`Self::open`]; those in force stay.
    pub(crate) fn prepare(&self, config: &UsersConfig) -> Result<Prepared, OpenError> {
        let rules = Rules::after(&self.now(), config)?;
        Ok(Prepared(Arc::new(rules)))
    }

    /// Puts others into force, for the requests that come from now on.
    pub(crate) fn install(&self, prepared: Prepared) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        let before = mem::replace(&mut *now, prepared.0);
        // What those before had takes its time to end, and every request needs these.
        drop(now);
        drop(before);
    }

    /// Whether a request may be carried out.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) async fn authorize(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let rules = self.now();
        match rules.is_open() {
            true => noted(asked, rules.open_to(asked)),
            // Apart, because every connection has room for what is in here.
            false => Box::pin(async move { noted(asked, rules.authorize(asked).await) }).await,
        }
    }

    /// As [`Self::authorize`], for one of several things that a request may have: who asks is
    /// looked up once, and kept in `login`. The answer to a challenge (Digest) counts once.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) async fn authorize_known(
        &self,
        asked: &Asked<'_>,
        login: &mut Option<Login>,
    ) -> Result<(), Refusal> {
        let rules = self.now();
        match rules.is_open() {
            true => noted(asked, rules.open_to(asked)),
            false => {
                let authorized = async { rules.authorize_known(asked, login).await };
                noted(asked, Box::pin(authorized).await)
            }
        }
    }

    /// Whether a request may be carried out, and who has asked.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) async fn authorize_as(&self, asked: &Asked<'_>) -> Result<Login, Refusal> {
        let rules = self.now();
        Box::pin(async move { noted(asked, rules.authorize_as(asked).await) }).await
    }

    /// Who asks; [`Self::permit`] says what they may. The answer to a challenge (Digest) counts
    /// once.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub(crate) async fn identify(&self, asked: &Asked<'_>) -> Result<Login, Refusal> {
        let rules = self.now();
        Box::pin(async move { noted(asked, rules.identify(asked).await) }).await
    }

    /// Whether somebody who has logged in may do that.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) async fn permit(&self, login: &Login, asked: &Asked<'_>) -> Result<(), Refusal> {
        noted(asked, self.now().permit(login, asked).await)
    }

    /// Whether somebody who has logged in may do what it has not asked for: of that nothing is
    /// counted or written down. `None` if nobody knows just now.
    pub(crate) async fn could(&self, login: &Login, asked: &Asked<'_>) -> Option<bool> {
        self.now().could(login, asked).await
    }

    /// Logs somebody in by a password, or by a token in its place, for as long as that
    /// [stands](Self::stands).
    ///
    /// # Errors
    ///
    /// Why it cannot.
    pub(crate) async fn log_in(
        &self,
        asked: &Asked<'_>,
        user: &str,
        password: &str,
    ) -> Result<Login, Refusal> {
        noted(asked, self.now().log_in(asked, user, password).await)
    }

    /// By what a user's password is known now, if it is one of the file.
    pub(crate) fn secret(&self, user: &str) -> Option<Secret> {
        self.now().secret(user)
    }

    /// Whether somebody who has logged in would be let in now, by the same token, or by the
    /// password that was known by `secret`.
    pub(crate) async fn stands(&self, login: &Login, secret: Option<&Secret>) -> bool {
        self.now().stands(login, secret).await
    }

    /// Whether anybody may log in as nobody: where there are no users, or some rights are
    /// everybody's, or only the hook can tell.
    pub(crate) fn knows_nobody(&self, action: Action) -> bool {
        self.now().knows_nobody(action)
    }

    /// Whether what is signed may be asked for by nobody.
    pub(crate) fn has_url_keys(&self) -> bool {
        self.now().has_url_keys()
    }

    /// What URLs in a playlist end in that takes rights to these paths: of `query`, which its own
    /// URL has, what may give one of them.
    ///
    /// # Errors
    ///
    /// If that is too long to stand behind each.
    pub(crate) fn carried<'a>(
        &self,
        paths: impl IntoIterator<Item = &'a str>,
        query: Option<&str>,
    ) -> Result<String, LongCredentials> {
        let rules = self.now();
        let each = paths.into_iter().map(|path| rules.carries(path));
        each.fold(Carried::default(), Carried::or).of(query)
    }

    /// What this server may be asked with to play that path, for so long; none without keys.
    pub(crate) fn sign_to_play(&self, path: &str, lasts: Duration) -> Option<Grant> {
        self.now().sign_to_play(path, lasts)
    }

    /// What other nodes know that node by, which asks for that channel, for so long; none without
    /// keys.
    pub(crate) fn sign_as_node(&self, asked: (&str, &str), lasts: Duration) -> Option<NodeProof> {
        self.now().sign_as_node(asked, lasts)
    }

    /// Whether that URL is one by which the node of that name asks for that channel. Without keys
    /// nobody can tell, and it is.
    pub(crate) fn is_of_node(&self, uri: &str, asked: (&str, &str)) -> bool {
        self.now().is_of_node(uri, asked)
    }

    /// Whether there is no configuration, and so all stays open.
    pub(crate) fn is_open(&self) -> bool {
        self.now().is_open()
    }

    fn now(&self) -> Arc<Rules> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }
}

/// The same, written down for whoever watches if it is a refusal.
fn noted<T>(asked: &Asked<'_>, result: Result<T, Refusal>) -> Result<T, Refusal> {
    result.inspect_err(|refusal| {
        if !refusal.is_invitation() {
            let what = format!("{}: {}", asked.protocol.as_str(), asked.path);
            REFUSALS.note(asked.peer, &what, &refusal.note());
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn other_settings_count_from_when_they_are_installed() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| UsersConfig {
            file: Some(folder.path().join(name)),
            ..UsersConfig::default()
        };
        fs::write(folder.path().join("users"), "realm films\n").unwrap();
        let authorizer = Authorizer::open(&UsersConfig::default(), Arc::default()).unwrap();
        assert!(authorizer.prepare(&file("nobody")).is_err());
        let prepared = authorizer.prepare(&file("users")).unwrap();
        assert!(authorizer.is_open(), "they are not installed");
        authorizer.install(prepared);
        assert!(!authorizer.is_open());
    }
}
