//! The part of the table of counters that is about object stores.

use serde::{Deserialize, Serialize};

use super::table::{Field, Kind, Row, read, table};
use crate::remote::RemoteStats;
use crate::statistics::Statistics;

table! {
    /// The object stores that films are in, together.
    #[derive(Copy)]
    #[serde(default)]
    pub struct ObjectStore from (stats: &RemoteStats) {
        /// Requests to the object store, those that were asked again or twice among them.
        requests: u64 = read(&stats.requests), Counter "onrush_objects_requests_total";
        /// Those that are under way.
        in_flight: u64 = read(&stats.in_flight), Gauge "onrush_objects_in_flight";
        /// Bytes of films that came from the object store.
        bytes: u64 = read(&stats.bytes), Counter "onrush_objects_received_bytes_total";
        /// Requests that were asked again because they had failed.
        retries: u64 = read(&stats.retries), Counter "onrush_objects_retries_total";
        /// Requests that were asked a second time, beside the first, because that took long.
        hedges: u64 = read(&stats.hedges), Counter "onrush_objects_hedges_total";
        /// Those of which the second answer came first.
        hedges_won: u64 = read(&stats.hedges_won), Counter "onrush_objects_hedges_won_total";
        /// Blocks of films that could not be had.
        failures: u64 = read(&stats.failures), Counter "onrush_objects_failures_total";
        /// Blocks of films that were here before the start, and whole when they were read.
        kept: u64 = read(&stats.kept), Counter "onrush_objects_kept_blocks_total";
        /// Those that were damaged on the disk, and were asked for again.
        damaged: u64 = read(&stats.damaged), Counter "onrush_objects_damaged_blocks_total";
        /// Bytes of films of the object store that are on this machine.
        cached_bytes: u64 = read(&stats.cached_bytes), Gauge "onrush_objects_cached_bytes";
    }
    metrics {}
}

impl ObjectStore {
    /// What there is now of a server, if it has films in a store.
    pub(super) fn now(statistics: &Statistics) -> Option<Self> {
        let remotes = &statistics.remotes;
        let all = remotes.iter().map(|remote| remote.stats());
        (!remotes.is_empty()).then(|| Self::of(&RemoteStats::sum(all)))
    }
}
