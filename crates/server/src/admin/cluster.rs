//! A server's part in a cluster, as it is counted and shown.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tracing::info;

use super::Site;
use super::reload::{Named, fault};
use super::table::{Field, Kind, Row, Samples, read, table};
use crate::cluster::{ClusterMember, NodeRow};

table! {
    /// A server's part in a cluster.
    #[serde(default)]
    pub struct Cluster from (member: &ClusterMember) {
        /// 1, with the name of the cluster that this server is a node of.
        name: String = member.config().name.clone(), Info "onrush_cluster_info" by "cluster";
        /// 1, with the name of this node.
        node: String = member.config().node.clone(), Info "onrush_node_info" by "node";
        /// Whether the registry is reached: 0 while serving goes on without it.
        is_registered: bool = member.stats.is_registered.load(Ordering::Relaxed),
            Gauge "onrush_cluster_registered";
        /// Nodes that are known, this one among them.
        nodes: u64 = read(&member.stats.nodes), Gauge "onrush_cluster_nodes";
        /// Entries of the registry that are ignored: damaged ones, and those of a newer form.
        ignored: u64 = read(&member.stats.ignored) + read(&member.stats.channels_ignored),
            Gauge "onrush_cluster_entries_ignored";
        /// Times the registry was reached no more.
        disconnects: u64 = read(&member.stats.disconnects),
            Counter "onrush_cluster_disconnects_total";
        /// Requests of RTSP that were answered 302, because another node is the film's home.
        rtsp_sent_on: u64 = read(&member.stats.rtsp_sent_on), Counter;
        /// Those of HTTP, 307.
        http_sent_on: u64 = read(&member.stats.http_sent_on), Counter;
        /// Requests that were served here, although another node is the film's home, because who
        /// asks was sent there and came back.
        not_following: u64 = read(&member.stats.not_following),
            Counter "onrush_cluster_not_following_total";
        /// Channels that some node receives, as far as is known.
        channels: u64 = read(&member.stats.channels), Gauge "onrush_cluster_channels";
        /// Channels whose lease this node has: they are received here.
        channels_held: u64 = read(&member.stats.channels_held),
            Gauge "onrush_cluster_channels_held";
        /// Channels that are taken from other nodes now.
        channels_pulled: u64 = read(&member.stats.channels_pulled),
            Gauge "onrush_cluster_channels_pulled";
        /// Nodes that take channels from here now, each counted once for each channel.
        pulls_fed: u64 = read(&member.stats.pulls_fed), Gauge "onrush_cluster_pulls_fed";
        /// Nodes that asked for a channel and were sent on to one that takes it from here, because
        /// as many take it as may.
        pulls_sent_on: u64 = read(&member.stats.pulls_sent_on),
            Counter "onrush_cluster_pulls_sent_on_total";
        /// Channels that were received here until another node had their lease.
        stepped_down: u64 = read(&member.stats.stepped_down),
            Counter "onrush_cluster_stepped_down_total";
    }
    metrics {
        /// Requests that were answered by sending the viewer to another node, the film's home.
        Counter "onrush_cluster_redirects_total" by "protocol" = |cluster| vec![
            ("rtsp", cluster.rtsp_sent_on),
            ("http", cluster.http_sent_on),
        ];
    }
}

impl Cluster {
    /// As it is now.
    pub(super) fn now(member: &ClusterMember) -> Self {
        Self::of(member)
    }
}

/// All nodes.
#[derive(Default, Serialize)]
pub(super) struct Nodes {
    cluster: String,
    node: String,
    is_registered: bool,
    /// Why it is not.
    error: Option<String>,
    nodes: Vec<Node>,
    channels: Vec<ClusterChannel>,
    ignored: Vec<Ignored>,
}

#[derive(Default, Serialize)]
pub(super) struct ClusterChannel {
    channel: String,
    node: String,
    is_this: bool,
    lease: Option<u64>,
    /// The node that has a standby.
    standby: Option<String>,
    /// The node that this one takes it from.
    pulled_from: Option<String>,
    /// Nodes that take it from this one.
    pulled_by: usize,
}

#[derive(Default, Serialize)]
pub(super) struct Node {
    node: String,
    is_this: bool,
    accepts: bool,
    version: String,
    sessions: u64,
    load_bps: u64,
    capacity_bps: u64,
    rtsp: Option<String>,
    rtsps: Option<String>,
    http: Option<String>,
    https: Option<String>,
    films: usize,
}

#[derive(Default, Serialize)]
pub(super) struct Ignored {
    key: String,
    reason: String,
}

pub(super) async fn nodes(State(site): State<Arc<Site>>) -> Response {
    let Some(member) = site.watched.statistics.cluster.get() else {
        return alone();
    };
    let (rows, ignored, error) = member.rows();
    let config = member.config();
    let nodes = Nodes {
        cluster: config.name.clone(),
        node: config.node.clone(),
        is_registered: error.is_none(),
        error,
        nodes: rows.into_iter().map(node).collect(),
        channels: member
            .channel_rows()
            .0
            .into_iter()
            .map(|row| ClusterChannel {
                channel: row.channel,
                node: row.node,
                is_this: row.is_this,
                lease: row.lease,
                standby: row.standby,
                pulled_from: row.through_here.source,
                pulled_by: row.through_here.fed,
            })
            .collect(),
        ignored: ignored
            .into_iter()
            .map(|it| Ignored {
                key: it.key,
                reason: it.reason,
            })
            .collect(),
    };
    Json(nodes).into_response()
}

pub(super) async fn forget(State(site): State<Arc<Site>>, Named(key): Named) -> Response {
    let Some(member) = site.watched.statistics.cluster.get() else {
        return alone();
    };
    match member.forget(key.clone()).await {
        Ok(true) => {
            info!("cluster: the registry's entry {key:?} is removed by the API");
            StatusCode::NO_CONTENT.into_response()
        }
        Ok(false) => fault(StatusCode::NOT_FOUND, "the registry has no such node"),
        Err(reason) => fault(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

fn node(row: NodeRow) -> Node {
    let NodeRow { entry, is_this } = row;
    let addresses = &entry.addresses;
    Node {
        node: entry.node.clone(),
        is_this,
        accepts: entry.accepts,
        version: entry.software.clone(),
        sessions: entry.sessions,
        load_bps: entry.load_bps,
        capacity_bps: entry.capacity_bps,
        rtsp: addresses.rtsp.clone(),
        rtsps: addresses.rtsps.clone(),
        http: addresses.http.clone(),
        https: addresses.https.clone(),
        films: entry.films.len(),
    }
}

fn alone() -> Response {
    let text = "this server is of no cluster: start it as a node of one";
    fault(StatusCode::NOT_FOUND, text)
}
