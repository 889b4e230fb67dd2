//! The settings of live channels, each with its default and its limit.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use onrush_group::Way;
use onrush_wire::auth::Pattern;
use onrush_wire::media::Track;

use super::input::Input;
use super::pull_url::PullUrl;

/// Live channels: what comes in, and how it goes out. A server has them beside its files, a relay
/// has nothing else.
#[derive(Clone, Debug)]
pub struct ChannelsConfig {
    /// The streams, at most [`SOURCES_MAX`], each under a name of its own: players find it at
    /// `rtsp://HOST/live/NAME`. None by default.
    pub sources: Vec<SourceConfig>,
    /// Channels that are pulled from cameras and other servers: none by default. Their names are
    /// those of no other.
    pub pulls: Vec<PullConfig>,
    /// How long a packet may wait for others to leave with it.
    pub delay: Duration,
    /// After how long without a packet a source is called silent.
    pub silence: Duration,
    /// Whether a unicast source is taken from everybody who sends, and not from the first until it
    /// has been silent for [`SENDER_KEPT`]. A group is taken from everybody, or from the sender
    /// that its input names.
    pub from_anybody: bool,
    /// Where the control API listens, if it does.
    pub api_address: Option<SocketAddr>,
    /// What its clients have to know.
    pub token: String,
    /// The processor that the sending threads are bound to, if any.
    pub core: Option<usize>,
    /// How packets are replicated: this way or not at all; `None` takes the best there is.
    pub way: Option<Way>,
    /// Whether packets are replicated where they arrive, in tc ingress, without entering a process.
    pub in_kernel: bool,
    /// Whether who joins a published channel waits for the next sync sample: by default it gets
    /// what has come since the last, at once, and shows a picture sooner.
    pub is_next_sync_awaited: bool,
    /// The published channels that take a second publisher, as a standby: none by default, so that
    /// it is refused.
    pub standby: Vec<Pattern>,
    /// After how long without a packet of its publisher such a channel goes on with its standby;
    /// less than [`PUBLISHER_SILENCE_MAX`](super::published::PUBLISHER_SILENCE_MAX), at which that
    /// is let go.
    pub standby_after: Duration,
}

/// One stream.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Its name, in URLs and everywhere.
    pub name: String,
    /// Where it arrives.
    pub input: Input,
    /// Who gets it from the start.
    pub members: Vec<SocketAddr>,
    /// A file of more who get it, which is watched.
    pub members_file: Option<PathBuf>,
    /// What packets of this payload type hold, of a stream whose payload type means what its sender
    /// says. Without it such a stream is for members only; what has a static payload type needs
    /// none.
    pub described: Option<Track>,
}

/// A channel that is pulled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PullConfig {
    /// Its name: players find it at `rtsp://HOST/live/NAME`.
    pub name: String,
    /// Where it comes from.
    pub url: PullUrl,
    /// Whether it is asked for only while somebody watches.
    pub is_on_demand: bool,
}

impl PullConfig {
    /// Its name as a path.
    pub(crate) fn path(&self) -> String {
        format!("live/{}", self.name)
    }
}

/// Streams of one process at the most; each has a thread.
pub const SOURCES_MAX: usize = 64;

/// Bytes of a stream's name at the most.
pub const SOURCE_NAME_BYTES_MAX: usize = 64;

/// The longest [`ChannelsConfig::delay`].
pub const DELAY_MAX: Duration = Duration::from_secs(1);

/// How long the sender of a unicast source may be silent before another may take its place: longer
/// than a hitch of the network, shorter than people wait for an encoder that was started again.
pub const SENDER_KEPT: Duration = Duration::from_secs(3);

impl Default for ChannelsConfig {
    fn default() -> Self {
        Self {
            sources: Vec::new(),
            pulls: Vec::new(),
            delay: Duration::ZERO,
            silence: Duration::from_secs(2),
            from_anybody: false,
            api_address: None,
            token: String::new(),
            core: None,
            way: None,
            in_kernel: false,
            is_next_sync_awaited: false,
            standby: Vec::new(),
            standby_after: Duration::from_secs(2),
        }
    }
}

impl ChannelsConfig {
    /// How long one sender of what comes to this input is kept; 0 to take from everybody.
    pub(super) fn sender_kept_ns(&self, input: &Input) -> u64 {
        if self.from_anybody || input.address.ip().is_multicast() {
            return 0;
        }
        u64::try_from(SENDER_KEPT.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whether a stream may have this name: one that needs no escape in a URL, a log or a shell.
#[must_use]
pub fn is_source_name(name: &str) -> bool {
    (1..=SOURCE_NAME_BYTES_MAX).contains(&name.len())
        && !name.starts_with(['.', '-'])
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_of_bounded_length() {
        for (name, is_name) in [
            ("tv", true),
            ("ch-1.hd_x", true),
            ("", false),
            (".hidden", false),
            ("-x", false),
            ("a/b", false),
            ("\u{e9}", false),
            ("a b", false),
        ] {
            assert_eq!(is_source_name(name), is_name, "{name:?}");
        }
        assert!(is_source_name(&"x".repeat(SOURCE_NAME_BYTES_MAX)));
        assert!(!is_source_name(&"x".repeat(SOURCE_NAME_BYTES_MAX + 1)));
    }
}
