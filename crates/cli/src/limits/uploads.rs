//! The limits of files that come.

use onrush_server::downloads::UploadsConfig;

use super::{Limit, bytes, count, limit, time};

/// Those that are settings.
pub(super) fn of_uploads() -> [Limit; 4] {
    let UploadsConfig {
        upload_bytes_max,
        upload_files_max,
        free_bytes_min,
        kept_time_max,
        // No limit.
        sync: _,
    } = UploadsConfig::default();
    [
        limit(
            "upload_bytes_max",
            bytes(upload_bytes_max),
            "one file that is taken",
        ),
        limit(
            "upload_files_max",
            count(upload_files_max),
            "files taken at once; more: 503, 450",
        ),
        limit(
            "upload_free_bytes_min",
            bytes(free_bytes_min),
            "of the disk that is left free",
        ),
        limit(
            "upload_kept_time_max",
            time(kept_time_max),
            "an upload broken off is kept",
        ),
    ]
}
