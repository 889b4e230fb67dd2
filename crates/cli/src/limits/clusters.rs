//! The limits of a node of a cluster.

use onrush_server::channels::published;
use onrush_server::cluster;
use onrush_wire::route::{channel as lease, entry, relay};

use super::{Limit, bytes, count, time};

/// Of a node of a cluster.
pub(super) fn of_clusters() -> Vec<Limit> {
    fixed! {
        entry::NODES_MAX as count, "other nodes of a cluster";
        entry::ENTRY_BYTES_MAX as bytes, "what a node tells of itself";
        entry::ENTRY_FILMS_MAX as count, "films that it names";
        entry::NODE_NAME_BYTES_MAX as bytes, "the name of a node or a cluster";
        lease::CLUSTER_CHANNELS_MAX as count, "channels of a cluster";
        lease::CHANNEL_ENTRY_BYTES_MAX as bytes, "what a node tells of a channel";
        lease::CHANNEL_PATH_BYTES_MAX as bytes, "a channel's path in a cluster";
        cluster::CLAIMS_MAX as count, "channels of it that come to one node";
        cluster::CLAIM_TIME_MAX as time, "a publisher waits for the registry";
        published::NODE_PULLS_MAX as count, "channels taken from other nodes";
        relay::PULLS_MAX as count, "nodes that may take a channel from one";
        relay::PULL_STEPS_MAX as count, "nodes asked for a channel in a row";
        relay::AVOIDED_MAX as count, "nodes not asked for it again";
        cluster::SENT_ON_MAX as count, "viewers remembered who were sent on";
        cluster::TRACES_MAX as count, "traces of viewers remembered";
        cluster::ORIGIN_NODES_MAX as count, "nodes that a film's page may have it from";
        cluster::FORGETS_MAX as count, "nodes waiting to be forgotten";
    }
}
