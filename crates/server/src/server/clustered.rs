//! A server's part in a cluster: made at the start, and handed to what speaks with the registry.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::Server;
use crate::admin::status::Watched;
use crate::cluster::{ClusterMember, Load};
use crate::config::Config;
use crate::downloads::Running;
use crate::engine::admission::LOAD_UNLIMITED;
use crate::listening::{Service, reached_port};
use crate::statistics::Statistics;

/// Over at least so long the rate is taken at which a server sends.
const RATE_TIME: Duration = Duration::from_secs(1);

impl Server {
    /// Its part in the cluster that [`Config::cluster`] names: what tells it of other nodes tells
    /// this. The server alone hears of nobody.
    #[must_use]
    pub fn cluster_member(&self) -> Option<Arc<ClusterMember>> {
        self.statistics.cluster.get().cloned()
    }
}

/// Becomes a node, if it is to be one, and tells it where the server listens and how to find out
/// what it has to do. What comes before that is served here.
pub(super) fn join(
    config: &Config,
    [rtsp, rtsps]: [&[SocketAddr]; 2],
    watched: &Arc<Watched>,
    downloads: Option<&Running>,
) {
    let Some(cluster) = &config.cluster else {
        return;
    };
    let by_http = |of: fn(&Running) -> &[SocketAddr]| downloads.map(of).unwrap_or_default();
    let services = [
        (Service::Rtsp, rtsp),
        (Service::Rtsps, rtsps),
        (Service::Http, by_http(|it| &it.http_addresses)),
        (Service::Https, by_http(|it| &it.https_addresses)),
    ];
    let ports = services.map(|(service, listened_at)| {
        let port = reached_port(listened_at, &cluster.host);
        if port.is_none() && !listened_at.is_empty() {
            let host = &cluster.host;
            warn!("cluster: {service} listens on loopback only: no node sends viewers to {host}");
        }
        port
    });
    let sent = Mutex::new((Instant::now(), 0, 0));
    // It is reached from there: with a share in it the server's memory would never be let go.
    let there = Arc::downgrade(watched);
    let load = move || {
        let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner);
        let watched = there.upgrade();
        watched.map_or_else(Load::default, |it| load_of(&it, &mut sent))
    };
    let member = ClusterMember::new(cluster.clone());
    member.begin(ports, watched.engines.len(), Box::new(load));
    // What arrives at this node arrives at no other that does not say so, too.
    for source in &config.channels.sources {
        member.keep_claimed(&format!("live/{}", source.name));
    }
    drop(watched.statistics.cluster.set(member));
}

/// What a server has to do. `sent` is when its bytes were counted, how many they were, and the rate
/// since the time before, in bits a second.
fn load_of(watched: &Watched, sent: &mut (Instant, u64, u64)) -> Load {
    let statistics = &watched.statistics;
    let of_processor = watched.engines.iter().map(|(_, engine)| {
        let most = match engine.load_max_permille {
            LOAD_UNLIMITED => 1000,
            most => most.max(1),
        };
        engine.shared.admission.load_promised() * 1000 / most
    });
    let engines = watched.engines.len().max(1) as u64;
    let of_processors = of_processor.sum::<u64>() / engines;
    let elapsed = sent.0.elapsed();
    if elapsed >= RATE_TIME {
        let bytes = sent_bytes(watched);
        let bits = u128::from(bytes.saturating_sub(sent.1)) * 8 * 1000;
        let bps = u64::try_from(bits / elapsed.as_millis().max(1)).unwrap_or(u64::MAX);
        *sent = (Instant::now(), bytes, bps);
    }
    Load {
        permille: of_processors.max(taken_permille(statistics)),
        sent_bps: sent.2,
        sessions: statistics.sessions.load(Ordering::Relaxed) as u64,
        accepts: !statistics.drain.is_on(),
    }
}

/// What it has sent so far: of films and channels, by RTP and by HTTP. A channel that has gone has
/// taken its bytes along.
fn sent_bytes(watched: &Watched) -> u64 {
    let read = |it: &AtomicU64| it.load(Ordering::Relaxed);
    let of_films = watched.engines.iter().map(|(_, it)| read(&it.shared.bytes));
    let of_channels = watched.channels.iter().map(|it| it.stats().bytes);
    let published = watched.published.all();
    let of_published = published.iter().map(|it| it.stats().bytes);
    let by_rtp = of_films.chain(of_channels).chain(of_published);
    let transferred = watched.downloads.as_ref();
    let transferred = transferred.map_or(0, |it| it.transfers.counters().sent_bytes);
    by_rtp.sum::<u64>() + transferred + read(&watched.statistics.hls.sent_bytes)
}

/// What is taken of sessions or connections, whichever is more, in thousandths of what may be now.
fn taken_permille(statistics: &Statistics) -> u64 {
    let read = |it: &AtomicUsize| it.load(Ordering::Relaxed) as u64;
    let of = |taken: &AtomicUsize, most: &AtomicUsize| read(taken) * 1000 / read(most).max(1);
    let bounds = &statistics.bounds;
    let of_sessions = of(&statistics.sessions, &bounds.sessions_max);
    of_sessions.max(of(&statistics.connections, &bounds.connections_max))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::channels::ChannelsConfig;
    use crate::channels::published::PublishedChannels;
    use crate::config::Limits;

    #[test]
    fn what_is_sent_of_channels_by_hls_is_a_load() {
        let live = PublishedChannels::new(&ChannelsConfig::default(), &Limits::default());
        let watched = Watched {
            statistics: Arc::default(),
            engines: Vec::new(),
            store: None,
            library: None,
            channels: Vec::new(),
            published: live,
            downloads: None,
            live: None,
            started: (SystemTime::now(), Instant::now()),
        };
        let before = Instant::now().checked_sub(RATE_TIME).unwrap();
        let mut sent = (before, 0, 0);
        let counter = &watched.statistics.hls.sent_bytes;
        counter.store(1 << 40, Ordering::Relaxed);
        assert!(load_of(&watched, &mut sent).sent_bps > 0);
        assert_eq!(sent.1, 1 << 40);
        // Looked at again too soon it is as it was, however long the test stands still.
        sent.0 += Duration::from_secs(60);
        counter.store(1 << 41, Ordering::Relaxed);
        assert_eq!(load_of(&watched, &mut sent).sent_bps, sent.2);
        assert_eq!(sent.1, 1 << 40);
    }

    #[test]
    fn what_is_taken_is_a_part_of_what_may_be_now() {
        let statistics = Statistics::default();
        statistics.sessions.store(10, Ordering::Relaxed);
        statistics.connections.store(30, Ordering::Relaxed);
        let within = |sessions_max, connections_max| {
            // As a reload does.
            statistics.bounds.set(&Limits {
                sessions_max,
                connections_max,
                ..Limits::default()
            });
            taken_permille(&statistics)
        };
        assert_eq!(within(100, 100), 300);
        assert_eq!(within(100, 1000), 100);
        assert_eq!(within(100, 60), 500);
    }
}
