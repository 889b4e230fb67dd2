//! The part of the table of counters that is about live channels by HLS, of all of them together.

use serde::{Deserialize, Serialize};

use super::table::{Field, Kind, Row, read, table};
use crate::hls_live::HlsStats;

table! {
    /// Live channels by HLS.
    #[derive(Copy)]
    #[serde(default)]
    pub struct Hls from (stats: &HlsStats) {
        /// Live channels that segments are made of for HLS.
        channels: u64 = read(&stats.channels), Gauge "onrush_hls_channels";
        /// Segments that were made of live channels, each of one rendition.
        segments: u64 = read(&stats.segments), Counter "onrush_hls_segments_total";
        /// Parts that were made of them.
        parts: u64 = read(&stats.parts), Counter "onrush_hls_parts_total";
        /// Bytes of those parts.
        made_bytes: u64 = read(&stats.made_bytes), Counter "onrush_hls_made_bytes_total";
        /// Bytes that HTTP sent and no transfer counts: what lay in memory, of channels and films.
        sent_bytes: u64 = read(&stats.sent_bytes), Counter "onrush_hls_sent_bytes_total";
        /// Bytes of segments that are kept in memory.
        kept_bytes: u64 = read(&stats.kept_bytes), Gauge "onrush_hls_kept_bytes";
        /// Bytes of segments that are stored on a disk, because memory is too small for them.
        stored_bytes: u64 = read(&stats.stored_bytes), Gauge "onrush_hls_stored_bytes";
        /// Segments that were written there.
        stores: u64 = read(&stats.stores), Counter "onrush_hls_stores_total";
        /// Segments that could not be written there, which made a window shorter.
        stores_failed: u64 = read(&stats.stores_failed),
            Counter "onrush_hls_stores_failed_total";
        /// HTTP requests for playlists of live channels.
        playlists: u64 = read(&stats.playlists), Counter "onrush_hls_playlist_requests_total";
        /// HTTP requests for segments and parts of live channels.
        media: u64 = read(&stats.media), Counter "onrush_hls_media_requests_total";
        /// HTTP requests that wait for what comes next of a live channel.
        waiting: u64 = read(&stats.waiting), Gauge "onrush_hls_waiting";
        /// HTTP requests that have waited so.
        waits: u64 = read(&stats.waits), Counter "onrush_hls_waits_total";
        /// Those that were answered 503 because too many waited.
        waits_refused: u64 = read(&stats.waits_refused),
            Counter "onrush_hls_waits_refused_total";
        /// Those that were answered 503 because nothing came in time.
        waits_late: u64 = read(&stats.waits_late), Counter "onrush_hls_waits_late_total";
        /// Those whose clients went before they had an answer.
        waits_left: u64 = read(&stats.waits_left), Counter "onrush_hls_waits_left_total";
    }
    metrics {}
}

impl Hls {
    /// What there is now.
    pub(super) fn now(stats: &HlsStats) -> Self {
        Self::of(stats)
    }
}
