//! From files to packet plans.
//!
//! A [`Scanner`] reads a file's bytes once, in order, and yields an [`Index`]: the file's
//! [tracks](Track) and where one can start. A track, cut to fit a path, is a [`Plan`]: numbered
//! packets in bursts, each with a due time, whose bytes follow from the file's. The one idea: the
//! index is small, and everything about any packet is computed from it. Only what is in here knows
//! formats: whoever plays a plan knows neither what is in a packet nor whether packets are of one
//! size.
//!
//! Containers differ in how they tell of a file, and meet in one of two ways of making packets: a
//! transport stream is one track as it is ([`ts`]); all others, and its elementary streams where
//! these are asked for, are tables of samples (`samples`, `sampled`), which a codec's packetizer
//! (`packetizer`, `codec`) makes into packets.
//!
//! The files stand on each other in this order: `track`, `scale`, `frame_rate`, `colour` and
//! `fragment_flags` on nothing here, [`plan`] on `scale`, `grouping` on it, `packetizer` on
//! `track`, each codec and `samples` on it, `container` on `track`, `scale` and [`plan`],
//! `sampled` on all of these, each format ([`ts`], [`mp4`], [`matroska`]) on `sampled`, and
//! `scanner` and `saved` on all formats. Beside the packets of RTP stand the [`segments`] of HLS
//! and DASH, which `cmaf` writes for films of samples and for [`live`] tracks, and the [`text`] of
//! subtitles.
//!
//! Nothing here changes a byte of the media, reorders it, or repairs what is broken in it.

mod cmaf;
mod codec;
mod colour;
mod container;
mod fragment_flags;
mod frame_rate;
mod grouping;
pub mod live;
pub mod matroska;
pub mod mp4;
mod packetizer;
pub mod plan;
mod sampled;
mod samples;
mod saved;
mod scale;
mod scanner;
pub mod segments;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod text;
mod track;
pub mod ts;

pub(crate) use codec::{h264, vp9};
pub use colour::VideoRange;
pub use container::{Continued, Index, Probe};
pub use frame_rate::FrameRate;
pub use plan::{Burst, FilePiece, ImageError, JOINED_NS_MAX, Plan, RtpOrigin, SeekPoint};
pub use sampled::{LeftOut, TrackFacts, report};
pub use saved::{RestoreError, SAVED_INDEX_MEANING};
pub use scale::{Scale, Timeline};
pub use scanner::{MEDIA_ENDINGS, ScanError, ScanOptions, Scanner, has_media_ending};
pub use track::{CUTS_MAX, Cut, Medium, TEXTS_MAX, TRACKS_MAX, Track};
pub use ts::{SYNC_BYTE, TS_PACKET_BYTES};
