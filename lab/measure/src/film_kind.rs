//! What films of experiments are kept in.

use std::fs;
use std::io;
use std::path::Path;

use onrush_primitives::named;
use onrush_testkit::film::{self, Container};
use onrush_testkit::media::MakeError;
use onrush_wire::media::TS_PACKET_BYTES;
use onrush_wire::media::ts::synth;
use serde::{Deserialize, Serialize};

/// Ticks of a transport stream's clock in a second.
const CLOCK_HZ: u64 = 27_000_000;

named! {
    /// What a film is kept in.
    ///
    /// The rate of a film is that of what is sent of it: of a transport stream all its bytes, of
    /// the others the samples of both tracks. So the others carry more picture and sound at the
    /// same rate.
    #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum FilmKind {
        /// An MPEG transport stream of constant rate: one track.
        #[default]
        Ts = "ts",
        /// H.264 of 25 pictures a second and AAC: two tracks.
        Mp4 = "mp4",
        /// The same samples.
        Mkv = "mkv",
    }
}

impl FilmKind {
    /// Tracks that a session plays.
    #[must_use]
    pub const fn tracks(self) -> u32 {
        match self {
            Self::Ts => 1,
            Self::Mp4 | Self::Mkv => 2,
        }
    }

    /// Writes a film of that length and rate. Those that an encoder has to make are made once, and
    /// copied.
    pub(crate) fn write(self, path: &Path, rate_bps: u64, ms: u64) -> io::Result<()> {
        let container = match self {
            Self::Ts => {
                let packet_ticks = TS_PACKET_BYTES as u64 * 8 * CLOCK_HZ / rate_bps;
                let packets = ms * (CLOCK_HZ / 1000) / packet_ticks;
                return fs::write(path, synth::constant_rate(packets, 0, packet_ticks));
            }
            Self::Mp4 => Container::Mp4,
            Self::Mkv => Container::Matroska,
        };
        let made = film::film(container, rate_bps, ms.div_ceil(1000));
        let made = made.map_err(|error| match error {
            MakeError::Missing { source } | MakeError::Write { source, .. } => source,
            error => io::Error::other(error),
        });
        fs::copy(made?, path).map(drop)
    }
}

/// What was measured before there was a choice.
pub(crate) fn transport_stream_alone() -> Vec<FilmKind> {
    vec![FilmKind::Ts]
}
