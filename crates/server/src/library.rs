//! The files that are served: names to media, and nothing outside the root.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use onrush_wire::media::{Index, Plan};
use thiserror::Error;

/// The directory that is served.
#[derive(Debug)]
pub struct Library;

/// One file, indexed, with what all of its clients share.
#[derive(Debug)]
pub struct Media;

/// Why a name could not be served.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such file, or it is not a regular file, or it lies outside the root.
    #[error("{name}: no such file under the media directory")]
    NotFound {
        /// The name asked for, decoded.
        name: String,
    },
    /// It is a directory.
    #[error("{name}: is a directory; ask for a file in it")]
    Directory {
        /// The name asked for, decoded.
        name: String,
    },
    /// The file can not be read.
    #[error("{name}: {source}")]
    Read {
        /// The name asked for, decoded.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file is no transport stream.
    #[error("{name}: {reason}")]
    NotMedia {
        /// The name asked for, decoded.
        name: String,
        /// What was wrong with it.
        reason: String,
    },
    /// `Limits::files_max` files are open and in use.
    #[error("{files_max} files are in use already")]
    TooMany {
        /// The limit.
        files_max: usize,
    },
}

impl Library {
    /// The media at `name`: decoded, relative to the root, `/` between folders. Indexes the file the first
    /// time (which reads all of it, on a blocking thread).
    pub async fn open(self: &Arc<Self>, name: &str) -> Result<Arc<Media>, OpenError> {
        todo!("{name}")
    }

    /// The names of the regular files with a transport stream's ending, sorted, at most `names_max`.
    pub fn names(&self, names_max: usize) -> io::Result<Vec<PathBuf>> {
        todo!("{names_max}")
    }
}

impl Media {
    /// The name it was opened by.
    #[must_use]
    pub fn name(&self) -> &str {
        todo!()
    }

    /// What the file holds.
    #[must_use]
    pub fn index(&self) -> &Arc<Index> {
        todo!()
    }

    /// The synchronisation source of all of the file's packets.
    #[must_use]
    pub fn ssrc(&self) -> u32 {
        todo!()
    }

    /// The packets of this file with `ts_packets_per_rtp` transport packets each (1 to 7).
    #[must_use]
    pub fn plan(&self, ts_packets_per_rtp: u8) -> &Arc<Plan> {
        todo!("{ts_packets_per_rtp}")
    }

    /// The sequence number of RTP packet `rtp_packet` of a plan.
    #[must_use]
    pub fn sequence(&self, rtp_packet: u64) -> u16 {
        todo!("{rtp_packet}")
    }

    /// The RTP timestamp of media time `time_ns`.
    #[must_use]
    pub fn timestamp(&self, time_ns: u64) -> u32 {
        todo!("{time_ns}")
    }
}
