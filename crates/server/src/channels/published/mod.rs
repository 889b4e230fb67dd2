//! Channels of several tracks, whose packets are RTP of any payload: what a publisher gives.
//!
//! A `PublishedChannel` has a thread, which takes the packets of all tracks in, from sockets of
//! its own or as frames of the publisher's connection, numbers them anew so that they go on when a
//! publisher comes back, and gives them to its viewers: of each track a group, by the same ways as
//! all live channels. Who joins gets what has come since the last sync sample first, from that
//! thread, at a pace that a player's socket bears, and is a member of the group from then on.
//! Frames of a viewer's connection are made for that viewer, and dropped by whole access units
//! where it is slow.
//!
//! `PublishedChannels` are the names that are taken, and by whom: a client of RTSP, or a `Pull`,
//! which asks a camera or another server. Not here: what RTSP's clients ask us.

mod channel;
mod ingest;
mod intake;
mod lease;
mod pull;
mod pull_client;
mod pull_state;
mod receiving;
mod refused;
mod right;
mod worker;

pub use onrush_wire::live::LEAD_MAX;

pub(crate) use self::channel::{IngestSource, Ingests, PublishedChannel};
pub use self::ingest::CATCHING_UP_BYTES_MAX;
pub(crate) use self::lease::{Lease, PublishError, PublishedChannels};
pub use self::pull::{NODE_PULLS_MAX, PULL_PAUSE_MAX, UNWATCHED_TIME_MAX};
pub(crate) use self::pull::{Pulls, PullsFull};
pub(crate) use self::pull_state::PullState;
pub(crate) use self::receiving::TrackSockets;
pub(crate) use self::right::Right;
pub use super::viewer::{RECENT_BYTES_MAX, RECENT_PACKETS_MAX, SYNC_AWAITED_MAX};

/// Names that publishers may have taken at once; each has a thread. One more is answered 453.
pub const PUBLISHED_MAX: usize = 64;

/// Bytes of frames that have come for one channel and wait for its thread, and of what each takes
/// beside them; more are dropped.
pub const FRAMES_WAITING_BYTES_MAX: usize = 4 << 20;

/// How long a publisher may send nothing before its session ends.
pub const PUBLISHER_SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(10);

/// How long viewers wait for a publisher that has gone.
pub const PUBLISHER_AWAITED_MAX: std::time::Duration = std::time::Duration::from_secs(60);
