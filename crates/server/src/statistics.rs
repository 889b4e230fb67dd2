//! What there is at the moment, as all services count it and the admin pages show it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use onrush_wire::rtsp::StatusCode;

use crate::cluster::ClusterMember;
use crate::config::Limits;
use crate::drain::Drain;
use crate::hls_live::HlsStats;
use crate::remote::RemoteFiles;
use crate::tls::TlsStats;
use crate::users;

/// What there is at the moment.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) sessions: AtomicUsize,
    /// Those that have been as well.
    pub(crate) sessions_total: AtomicU64,
    pub(crate) connections: AtomicUsize,
    /// Turns of the control thread: it is alive as long as they grow.
    pub(crate) control_turns: AtomicU64,
    /// Answers by the first digit of their status, from 1 to 5.
    pub(crate) answers: [AtomicU64; 5],
    /// Of them, 453 Not Enough Bandwidth.
    pub(crate) refused: AtomicU64,
    /// Files that downloads may have open.
    pub(crate) download_files: AtomicUsize,
    /// RTP sockets that take a descriptor, when they were counted last.
    pub(crate) rtp_files: AtomicUsize,
    /// What became of requests where not everybody may do everything.
    pub(crate) users: Arc<users::Stats>,
    /// What became of handshakes of TLS.
    pub(crate) tls: Arc<TlsStats>,
    /// What became of live channels by HLS.
    pub(crate) hls: Arc<HlsStats>,
    /// What may change of the limits while the server runs.
    pub(crate) bounds: Bounds,
    /// Whether sessions are taken, and where clients are sent on to.
    pub(crate) drain: Drain,
    /// Its part in a cluster, if it is in one. Set once, at the start.
    pub(crate) cluster: OnceLock<Arc<ClusterMember>>,
    /// Where its films are, as far as not in folders.
    pub(crate) remotes: Vec<Arc<dyn RemoteFiles>>,
}

/// Limits that may change while the server runs, by the names that they have in [`Limits`].
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) sessions_max: AtomicUsize,
    pub(crate) sessions_per_address_max: AtomicUsize,
    pub(crate) connections_max: AtomicUsize,
    pub(crate) connections_per_address_max: AtomicUsize,
}

impl Bounds {
    /// Takes them as `limits` has them. Who is there already stays.
    pub(crate) fn set(&self, limits: &Limits) {
        for (bound, limit) in [
            (&self.sessions_max, limits.sessions_max),
            (
                &self.sessions_per_address_max,
                limits.sessions_per_address_max,
            ),
            (&self.connections_max, limits.connections_max),
            (
                &self.connections_per_address_max,
                limits.connections_per_address_max,
            ),
        ] {
            bound.store(limit, Ordering::Relaxed);
        }
    }
}

impl Statistics {
    /// Of a server with films in these stores.
    pub(crate) fn new<'a>(remotes: impl Iterator<Item = &'a Arc<dyn RemoteFiles>>) -> Self {
        Self {
            remotes: remotes.cloned().collect(),
            ..Self::default()
        }
    }

    /// The server's part in a cluster, if it is in one with others.
    pub(crate) fn cluster_of_many(&self) -> Option<&ClusterMember> {
        let member = self.cluster.get()?;
        member.has_others().then_some(member)
    }

    /// A request was answered with this status.
    pub(crate) fn count_answer(&self, status: u16) {
        let class = usize::from(status / 100).clamp(1, 5);
        self.answers[class - 1].fetch_add(1, Ordering::Relaxed);
        if status == u16::from(StatusCode::NotEnoughBandwidth) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }
}
