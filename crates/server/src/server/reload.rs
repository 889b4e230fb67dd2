//! Other settings for a server that runs: all that may change of them, or nothing.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::Server;
use crate::channels::config::PullConfig;
use crate::channels::published::{PublishedChannels, Pulls};
use crate::channels::{ChannelError, check};
use crate::config::{Config, Limits};
use crate::statistics::Statistics;
use crate::tls::CertificateError;
use crate::users::{Authorizer, OpenError};
use crate::watching::{ReloadWish, ReloadWishQueue};

/// Why a server goes on by the settings that it has.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// It cannot be found out who may do what.
    #[error(transparent)]
    Users(#[from] OpenError),
    /// A certificate cannot be shown.
    #[error("TLS: {0}")]
    Tls(#[from] CertificateError),
    /// TLS is not what it was started as.
    #[error("where there was no TLS there is none, and where there was, a certificate is needed")]
    NoTls,
    /// A channel cannot be.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// There is no room for so many.
    #[error("{asked} sessions; it was started with room for {most}, and more need a restart")]
    Sessions {
        /// How many are wanted.
        asked: usize,
        /// How many can be.
        most: usize,
    },
}

/// Where clients of the API are heard who ask for a reload. Dropping it refuses them.
#[derive(Debug)]
pub struct ReloadQueue(ReloadWishQueue);

/// Somebody asks for a reload. Dropping it says that there can be none.
#[derive(Debug)]
pub struct ReloadRequest(ReloadWish);

/// What of a server takes other settings, beside what it has anyway.
#[derive(Debug)]
pub(super) struct Reloading {
    authorizer: Arc<Authorizer>,
    pulls: Arc<OnceLock<Arc<Pulls>>>,
    /// As many sessions as engines have room for.
    sessions_most: usize,
    requests: Option<ReloadQueue>,
}

/// What is pulled, to be started on another thread, and what other nodes are asked with.
#[derive(Debug)]
pub(super) struct Pulling(Arc<OnceLock<Arc<Pulls>>>, Arc<Authorizer>);

impl Reloading {
    pub(super) fn new(
        authorizer: &Arc<Authorizer>,
        limits: &Limits,
        wishes: ReloadWishQueue,
    ) -> (Self, Pulling) {
        let pulls = Arc::new(OnceLock::new());
        let reloading = Self {
            authorizer: Arc::clone(authorizer),
            pulls: Arc::clone(&pulls),
            sessions_most: limits.sessions_max,
            requests: Some(ReloadQueue(wishes)),
        };
        (reloading, Pulling(pulls, Arc::clone(authorizer)))
    }
}

impl Pulling {
    /// Starts to pull channels, which can be others from then on.
    pub(super) fn start(
        self,
        configs: &[PullConfig],
        channels: &Arc<PublishedChannels>,
        statistics: &Statistics,
    ) -> Arc<Pulls> {
        let cluster = statistics.cluster.get();
        if let Some(cluster) = cluster {
            cluster.sign_by(&self.1);
        }
        let start = || Pulls::start(configs, channels, cluster);
        Arc::clone(self.0.get_or_init(start))
    }
}

impl ReloadQueue {
    /// The next one; none once the server has stopped. May be dropped while it waits.
    pub async fn next(&mut self) -> Option<ReloadRequest> {
        self.0.recv().await.map(ReloadRequest)
    }
}

impl ReloadRequest {
    /// Tells what has changed, or why nothing has.
    pub fn answer(self, changed: Result<Vec<String>, String>) {
        // Whoever asked may be gone.
        drop(self.0.send(changed));
    }
}

impl Server {
    /// Who asks for a reload by the API, once: whoever takes it answers them with
    /// [`Self::reload`].
    pub const fn reload_requests(&mut self) -> Option<ReloadQueue> {
        self.reloading.requests.take()
    }

    /// Takes from `config` who may do what, the certificates, the channels that are pulled, and how
    /// many sessions and connections there may be; nothing else of it. Sessions, connections and
    /// channels that it is not about go on; a channel that is pulled no more, or from elsewhere,
    /// ends with its viewers. Sessions beyond a lower limit stay.
    ///
    /// # Errors
    ///
    /// What cannot be taken; then all is as before.
    pub fn reload(&self, config: &Config) -> Result<(), ReloadError> {
        let (asked, most) = (config.limits.sessions_max, self.reloading.sessions_most);
        if asked > most {
            return Err(ReloadError::Sessions { asked, most });
        }
        let has_certificate =
            config.tls.self_signed.is_some() || !config.tls.certificates.is_empty();
        if self.tls.is_some() != has_certificate {
            return Err(ReloadError::NoTls);
        }
        check(&config.channels)?;
        let rules = self.reloading.authorizer.prepare(&config.users)?;
        let tls = self.tls.as_ref();
        let certificates = tls.map(|tls| tls.prepare(&config.tls)).transpose()?;
        // From here on nothing can fail.
        self.reloading.authorizer.install(rules);
        if let (Some(tls), Some(certificates)) = (tls, certificates) {
            tls.install(certificates);
        }
        self.statistics.bounds.set(&config.limits);
        if let Some(pulls) = self.reloading.pulls.get() {
            pulls.replace(&config.channels.pulls);
        }
        Ok(())
    }
}
