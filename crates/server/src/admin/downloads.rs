//! The part of the table of counters that is about HTTP and FTP.

use serde::{Deserialize, Serialize};

use super::table::{Field, Kind, Row, Samples, read, table};
use crate::{downloads, transfer};

table! {
    /// HTTP and FTP.
    #[serde(default)]
    pub struct Downloads from (stats: &downloads::Stats, transfers: transfer::Counters) {
        /// Connections of HTTP that are open.
        http_connections: u64 = read(&stats.http_connections), Gauge;
        /// Those of FTP.
        ftp_connections: u64 = read(&stats.ftp_connections), Gauge;
        /// Connections of HTTP and FTP that found no place.
        refused: u64 = read(&stats.refused), Counter "onrush_download_connections_refused_total";
        /// HTTP requests that were answered, by the class of the status.
        http_answers: [u64; 5] = stats.http_answers.each_ref().map(read),
            Counter "onrush_http_requests_total" by "code";
        /// Transfers of files that run.
        active: u64 = stats.transfers.active(), Gauge "onrush_transfers_running";
        /// Transfers of files that were begun.
        transfers: u64 = transfers.transfers, Counter "onrush_transfers_total";
        /// Bytes of files that the kernel took for HTTP and FTP.
        bytes: u64 = transfers.sent_bytes, Counter "onrush_transfer_bytes_total";
        /// sendfile calls that moved them.
        steps: u64 = transfers.steps, Counter "onrush_transfer_steps_total";
        /// Waits for a client.
        full: u64 = transfers.full, Counter;
        /// Waits for the disk.
        cold: u64 = transfers.cold, Counter;
        /// Pauses of transfers that were made because somebody else waited for the processor.
        yields: u64 = transfers.yields, Counter "onrush_transfer_yields_total";
        /// How long the thread of transfers waited for the processor while others ran; looked at
        /// only by a schedule that yields.
        delayed_ns: u64 = transfers.delayed_ns, Counter "onrush_transfer_delayed_seconds_total";
        /// Uploads by HTTP and FTP that go on.
        uploads_active: u64 = read(&stats.uploads), Gauge "onrush_uploads_running";
        /// Files that were stored whole.
        uploads: u64 = read(&stats.uploaded), Counter "onrush_uploads_total";
        /// Uploads that were broken off, or end in another way with no file.
        uploads_broken: u64 = read(&stats.uploads_broken), Counter "onrush_uploads_broken_total";
        /// Uploads that were refused for want of a place or of room.
        uploads_refused: u64 = read(&stats.uploads_refused),
            Counter "onrush_uploads_refused_total";
        /// Bytes that were stored.
        upload_bytes: u64 = transfers.stored_bytes, Counter "onrush_upload_bytes_total";
        /// Those of them that were in user space: sealed by TLS, in chunks, or sent with a head.
        upload_copied_bytes: u64 = transfers.stored_copied_bytes,
            Counter "onrush_upload_copied_bytes_total";
        /// HTTP requests for computed segments that were answered from memory.
        segment_hits: u64 = read(&stats.segments.hits), Counter "onrush_segment_hits_total";
        /// Those that were answered from the film's file.
        segment_misses: u64 = read(&stats.segments.misses),
            Counter "onrush_segment_misses_total";
        /// Computed segments that were put into memory.
        segments_gathered: u64 = read(&stats.segments.gathered),
            Counter "onrush_segments_gathered_total";
        /// Those that could not be put there: the film had changed, or memory or a disk failed.
        segments_failed: u64 = read(&stats.segments.failed),
            Counter "onrush_segments_failed_total";
        /// Those that found no room there among what is used.
        segments_no_room: u64 = read(&stats.segments.no_room),
            Counter "onrush_segments_no_room_total";
        /// Those that have gone for others, or because nobody used them.
        segments_evicted: u64 = read(&stats.segments.evicted),
            Counter "onrush_segments_evicted_total";
        /// Computed segments that are in memory.
        segments_kept: u64 = read(&stats.segments.kept), Gauge "onrush_segments_kept";
        /// Bytes of those.
        segments_kept_bytes: u64 = read(&stats.segments.kept_bytes),
            Gauge "onrush_segments_kept_bytes";
    }
    metrics {
        /// Connections of HTTP and FTP that are open.
        Gauge "onrush_download_connections" by "protocol" = |downloads| vec![
            ("http", downloads.http_connections),
            ("ftp", downloads.ftp_connections),
        ];
        /// How often a transfer waited: for its client (socket) or for the disk.
        Counter "onrush_transfer_waits_total" by "for" = |downloads| vec![
            ("socket", downloads.full),
            ("disk", downloads.cold),
        ];
    }
}

impl Downloads {
    /// What it is now.
    pub(super) fn now(stats: &downloads::Stats) -> Self {
        Self::of(stats, stats.transfers.counters())
    }
}
