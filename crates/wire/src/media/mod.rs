//! From files to packet plans.
//!
//! A [`Scanner`] reads a file's bytes once, in order, and yields an [`Index`]: the file's
//! [tracks](Track) and where one can start. A track, cut to fit a path, is a [`Plan`]: numbered
//! packets in bursts, each with a due time, whose bytes follow from the file's. The one idea: the
//! index is small, and everything about any packet is computed from it. Only what is in here knows
//! formats: whoever plays a plan knows neither what is in a packet nor whether packets are of one
//! size.
//!
//! The files stand on each other in this order: `track` and `scale` on nothing here, [`plan`] on
//! `scale`, `container` on all three, each format beside it ([`ts`]) on all four.
//!
//! Nothing here changes a byte of the media, reorders it, or repairs what is broken in it.

mod container;
pub mod plan;
mod scale;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod track;
pub mod ts;

pub use container::{Continued, Index, Probe, ScanError, ScanOptions, Scanner};
pub use plan::{Burst, FilePiece, ImageError, Plan, RtpOrigin, SeekPoint};
pub use scale::{Scale, Timeline};
pub use track::{CUTS_MAX, Cut, Medium, TRACKS_MAX, Track};
pub use ts::{SYNC_BYTE, TS_PACKET_BYTES};
