//! The film that all sessions play, each from its own place.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;

use onrush_server::config::Config;
use onrush_server::library::{Library, Media};
use onrush_testkit::media::age;
use onrush_wire::media::ts::{TS_PACKETS_PER_RTP_MAX, synth};
use onrush_wire::media::{Plan, TS_PACKET_BYTES};
use onrush_wire::rtp;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::record::Settings;
use crate::error::ExperimentError;
use crate::random::Random;
use crate::setup::system;

/// Ticks of a transport stream's clock in a second.
const CLOCK_HZ: u64 = 27_000_000;

/// Bytes of the part that sessions begin in, at the most; the rest is for the last of them to play.
const PLACES_BYTES_MAX: u64 = 32 << 20;

/// How long that part is at the most.
const PLACES_NS_MAX: u64 = 60_000_000_000;

/// What is played beyond warm-up and measurement: setting up, taking down, and to spare.
const SPARE_NS: u64 = 5_000_000_000;

const FILE_NAME: &str = "film.ts";

/// Bytes behind the RTP header of a packet.
pub(super) const PAYLOAD_BYTES: usize = TS_PACKETS_PER_RTP_MAX as usize * TS_PACKET_BYTES;

/// The film's packets.
pub(super) fn plan_of(media: &Media) -> Arc<Plan> {
    let plan = media.plan(0, PAYLOAD_BYTES);
    plan.expect("a transport stream is cut into any number of its packets")
}

/// A film on disk, constant in rate.
pub(super) struct Film {
    folder: TempDir,
    packet_ticks: u64,
    /// How much of it sessions begin in.
    places_ns: u64,
    bytes: u64,
}

/// Where a session begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cue {
    /// The first RTP packet, which is the first of its burst.
    pub(super) from: u64,
    /// How long after the experiment's first packet it is due.
    pub(super) phase_ns: u64,
}

impl Film {
    /// Writes one that is long enough for all sessions.
    pub(super) fn make(settings: &Settings) -> io::Result<Self> {
        let packet_bits = TS_PACKET_BYTES as u64 * 8;
        let packet_ticks = packet_bits * CLOCK_HZ / settings.rate_bps;
        let played_ns = settings.warm_up_ns + settings.measured_ns + SPARE_NS;
        let places_ns = PLACES_BYTES_MAX * 8 * 1_000 / (settings.rate_bps / 1_000_000).max(1);
        let places_ns = places_ns.clamp(1_000_000_000, PLACES_NS_MAX);
        let ticks = (played_ns + places_ns) / 1_000 * (CLOCK_HZ / 1_000_000);
        let stream = synth::constant_rate(ticks / packet_ticks, 0, packet_ticks);
        let folder = tempfile::tempdir()?;
        let path = folder.path().join(FILE_NAME);
        fs::write(&path, &stream)?;
        age(&path)?;
        Ok(Self {
            folder,
            packet_ticks,
            places_ns,
            bytes: stream.len() as u64,
        })
    }

    /// Has it indexed the way the server does.
    pub(super) fn open(
        &self,
        config: &Config,
        runtime: &Runtime,
    ) -> Result<Arc<Media>, ExperimentError> {
        let library = Arc::new(Library::new(config)?);
        Ok(runtime.block_on(library.open(FILE_NAME))?)
    }

    /// The file, to be read in the plain way. It is in the page cache: it was written just now, and
    /// read to be indexed.
    pub(super) fn file(&self) -> Result<File, ExperimentError> {
        Ok(File::open(self.folder().join(FILE_NAME)).map_err(system("open the film"))?)
    }

    /// The directory it is alone in.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of a packet on the wire, RTP header included.
    pub(super) fn stride(&self) -> usize {
        rtp::HEADER_BYTES + PAYLOAD_BYTES
    }

    /// RTP packets that are due in `wall_ns` of all sessions together.
    pub(super) fn packets_due(&self, sessions: u32, wall_ns: u64) -> u64 {
        let packet_ticks = u128::from(self.packet_ticks * u64::from(TS_PACKETS_PER_RTP_MAX));
        let ticks = u128::from(wall_ns) * u128::from(CLOCK_HZ) / 1_000_000_000;
        u64::try_from(ticks * u128::from(sessions) / packet_ticks).unwrap_or(u64::MAX)
    }

    /// Where each session begins: drawn from the seed, the same for all contestants.
    pub(super) fn cues(&self, plan: &Plan, settings: &Settings) -> Vec<Cue> {
        let mut bursts = Vec::new();
        plan.bursts(0..plan.rtp_packet_at(self.places_ns), &mut bursts);
        let mut random = Random::new(settings.seed);
        (0..settings.sessions)
            .map(|_| {
                let place = random.below(bursts.len() as u64);
                let place = usize::try_from(place).expect("an index of a list");
                Cue {
                    from: bursts[place].first,
                    phase_ns: random.below(settings.burst_ns),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sessions_are_scattered_alike_each_time_and_none_ends() {
        let settings = Settings {
            warm_up_ns: 100_000_000,
            measured_ns: 1_000_000_000,
            rate_bps: 2_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings).unwrap();
        let config = Config {
            media_root: film.folder().to_owned(),
            burst: Duration::from_nanos(settings.burst_ns),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let media = film.open(&config, &runtime).unwrap();
        let plan = &plan_of(&media);
        assert_eq!(
            (plan.image_bytes_max(), media.identity().file_bytes),
            (film.stride(), film.bytes())
        );
        let cues = film.cues(plan, &settings);
        assert_eq!(cues.len(), 256);
        for cue in &cues {
            let left_ns = media.index().duration_ns() - plan.due_ns(cue.from);
            assert!(left_ns > settings.warm_up_ns + settings.measured_ns + SPARE_NS / 2);
            assert!(cue.phase_ns < settings.burst_ns);
        }
        let mut places: Vec<_> = cues.iter().map(|cue| cue.from).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 200, "{}", places.len());
        let again = film.cues(plan, &settings);
        assert!(
            cues.iter()
                .zip(&again)
                .all(|(a, b)| (a.from, a.phase_ns) == (b.from, b.phase_ns))
        );
        let other = film.cues(
            plan,
            &Settings {
                seed: 2,
                ..settings
            },
        );
        assert!(cues.iter().zip(&other).any(|(a, b)| a.from != b.from));
        // 2 Mbit/s of 1316 bytes a packet.
        let due = film.packets_due(10, 1_000_000_000);
        assert!((1899..=1901).contains(&due), "{due}");
    }
}
