//! Why sessions end, and what their clients and the log are told of it.

/// Why a session ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum End {
    /// The client asked for it.
    Teardown,
    /// The client has not been heard for too long.
    Timeout,
    /// The client has closed its connection, and its ports or the stream.
    Gone,
    /// The file was truncated, replaced or could not be read.
    Media(String),
    /// The channel that it watches has ended, or is not taken fast enough.
    Channel(String),
    /// The kernel does not send to this client.
    Send(String),
    /// The server stops.
    Stopped,
    /// Another server takes this one's place.
    Drained,
    /// Whoever runs the server has ended it.
    Dismissed,
    /// Nobody watches what it sends to a group.
    Unwatched,
    /// It has met a bug of the server.
    Bug,
}

impl End {
    /// What the client is told in BYE.
    pub(super) const fn farewell(&self) -> &str {
        match self {
            Self::Teardown => "teardown",
            Self::Timeout | Self::Gone => "session timeout",
            Self::Media(_) => "the file changed",
            Self::Channel(_) => "the stream has ended",
            Self::Send(_) => "sending failed",
            Self::Stopped | Self::Drained => "the server stops",
            Self::Dismissed => "ended by the server",
            Self::Unwatched => "nobody watches",
            Self::Bug => "server error",
        }
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Teardown => f.write_str("teardown"),
            Self::Timeout => f.write_str("its client was not heard of in the session's time-out"),
            Self::Gone => f.write_str("its client is gone"),
            Self::Media(reason) | Self::Channel(reason) | Self::Send(reason) => f.write_str(reason),
            Self::Stopped => f.write_str("the server stops"),
            Self::Drained => f.write_str("another server takes this one's place"),
            Self::Dismissed => f.write_str("an operator ended it"),
            Self::Unwatched => f.write_str("nobody watches its group"),
            Self::Bug => f.write_str("a bug of the server"),
        }
    }
}
