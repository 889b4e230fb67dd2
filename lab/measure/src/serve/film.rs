//! The film that all sessions play, each from its own place.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onrush_server::config::Config;
use onrush_server::library::{Library, Media};
use onrush_testkit::media::age;
use onrush_wire::media::ts::TS_PACKETS_PER_RTP_MAX;
use onrush_wire::media::{Plan, TS_PACKET_BYTES};
use tokio::runtime::Runtime;
use tokio::time::{sleep, timeout};

use super::record::Settings;
use crate::error::ExperimentError;
use crate::film_kind::FilmKind;
use crate::own_folder::OwnFolder;
use crate::random::Random;
use crate::setup::system;

/// Bytes of the part that sessions begin in, at the most; the rest is for the last of them to play.
const PLACES_BYTES_MAX: u64 = 32 << 20;

/// How long that part is at the most.
const PLACES_NS_MAX: u64 = 60_000_000_000;

/// What is played beyond warm-up and measurement: setting up, taking down, and to spare.
const SPARE_NS: u64 = 5_000_000_000;

/// How long the film may take to be read, and how often is looked whether it is.
const OPEN_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Bytes behind the RTP header of a packet: of a transport stream, and of others as much as an
/// Ethernet frame takes.
const TS_PAYLOAD_BYTES: usize = TS_PACKETS_PER_RTP_MAX as usize * TS_PACKET_BYTES;
const PAYLOAD_BYTES: usize = 1500 - 20 - 8 - 12;

/// A film on disk.
pub(super) struct Film {
    folder: OwnFolder,
    media: FilmKind,
    /// How much of it sessions begin in.
    places_ns: u64,
    bytes: u64,
    /// RTP packets of all its tracks.
    packets: u64,
    duration_ns: u64,
    /// Ticks a second of the RTP timestamps of each track.
    clocks_hz: Vec<u32>,
}

/// Where a session begins.
#[derive(Clone, Debug)]
pub(super) struct Cue {
    /// Of each track, the first RTP packet and how long after the session's first it is due.
    pub(super) tracks: Vec<(u64, u64)>,
    /// How long after the experiment's first packet the session's first is due.
    pub(super) phase_ns: u64,
}

impl Film {
    /// Writes one that is long enough for all sessions.
    pub(super) fn make(settings: &Settings, media: FilmKind) -> Result<Self, ExperimentError> {
        let played_ns = played_ns(settings);
        let places_ns = match settings.has_own_films {
            true => played_ns * u64::from(settings.sessions),
            false => {
                let ns = PLACES_BYTES_MAX * 8 * 1_000 / (settings.rate_bps / 1_000_000).max(1);
                ns.clamp(1_000_000_000, PLACES_NS_MAX)
            }
        };
        let write = || -> io::Result<(OwnFolder, u64)> {
            let folder = OwnFolder::new()?;
            let path = folder.path().join(name_of(media));
            let ms = (played_ns + places_ns) / 1_000_000;
            media.write(&path, settings.rate_bps, ms)?;
            age(&path)?;
            let bytes = path.metadata()?.len();
            Ok((folder, bytes))
        };
        let (folder, bytes) = write().map_err(system("write the film to be sent"))?;
        let mut film = Self {
            folder,
            media,
            places_ns,
            bytes,
            packets: 0,
            duration_ns: 0,
            clocks_hz: Vec::new(),
        };
        film.look(settings)?;
        Ok(film)
    }

    /// Finds out what it is cut into.
    fn look(&mut self, settings: &Settings) -> Result<(), ExperimentError> {
        let config = Config {
            media_root: self.folder().to_owned(),
            burst: Duration::from_nanos(settings.burst_ns),
            ..Config::default()
        };
        let media = self.open(&config, &super::engine::runtime()?)?;
        let tracks = 0..media.tracks();
        self.clocks_hz = tracks.map(|track| media.track(track).clock_hz).collect();
        let plans = self.plans(&media)?;
        self.packets = plans.iter().map(|plan| plan.rtp_packets()).sum();
        self.duration_ns = plans[0].due_ns(plans[0].rtp_packets());
        Ok(())
    }

    /// Has it indexed the way the server does, and to its end: what is left to be read behind its
    /// players is read by this runtime, which nobody runs later.
    pub(super) fn open(
        &self,
        config: &Config,
        runtime: &Runtime,
    ) -> Result<Arc<Media>, ExperimentError> {
        let library = Arc::new(Library::new(config)?);
        let opening = async {
            let media = library.open(&name_of(self.media)).await?;
            while media.is_partial() {
                sleep(LOOK_EVERY).await;
            }
            Ok(media)
        };
        let opened = runtime.block_on(async { timeout(OPEN_TIME_MAX, opening).await });
        opened.unwrap_or_else(|_| Err(ExperimentError::subject("the film was not read in time")))
    }

    /// The packets of its tracks.
    pub(super) fn plans(&self, media: &Media) -> Result<Vec<Arc<Plan>>, ExperimentError> {
        let tracks = 0..media.tracks();
        let plans = tracks.map(|track| media.plan(track, self.payload_bytes()));
        let plans: Option<Vec<_>> = plans.collect();
        let expected = self.media.tracks() as usize;
        let plans = plans.filter(|plans| plans.len() == expected);
        plans.ok_or_else(|| ExperimentError::subject("the film is not cut into its tracks"))
    }

    /// Bytes behind the RTP header of a packet at the most.
    pub(super) fn payload_bytes(&self) -> usize {
        match self.media {
            FilmKind::Ts => TS_PAYLOAD_BYTES,
            FilmKind::Mp4 | FilmKind::Mkv => PAYLOAD_BYTES,
        }
    }

    /// Ticks a second of the RTP timestamps of each track.
    pub(super) fn clocks_hz(&self) -> &[u32] {
        &self.clocks_hz
    }

    /// The file, to be read in the plain way. It is in the page cache: it was written just now, and
    /// read to be indexed.
    pub(super) fn file(&self) -> Result<File, ExperimentError> {
        Ok(self.open_file().map_err(system("open the film"))?)
    }

    /// Likewise.
    pub(super) fn open_file(&self) -> io::Result<File> {
        File::open(self.folder().join(name_of(self.media)))
    }

    /// The directory it is alone in.
    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// RTP packets that are due in `wall_ns` of all sessions together, as many as anywhere in the
    /// film.
    pub(super) fn packets_due(&self, sessions: u32, wall_ns: u64) -> u64 {
        let packets = u128::from(self.packets) * u128::from(sessions) * u128::from(wall_ns);
        u64::try_from(packets / u128::from(self.duration_ns.max(1))).unwrap_or(u64::MAX)
    }

    /// Where each session begins: drawn from the seed, the same for all contestants.
    pub(super) fn cues(&self, plans: &[Arc<Plan>], settings: &Settings) -> Vec<Cue> {
        let mut bursts = Vec::new();
        let first = &plans[0];
        first.bursts(0..first.rtp_packet_at(self.places_ns), &mut bursts);
        // What is due together may be several bursts.
        bursts.dedup_by_key(|burst| burst.due_ns);
        let mut random = Random::new(settings.seed);
        (0..settings.sessions)
            .map(|number| {
                let place = random.below(bursts.len() as u64);
                let place = usize::try_from(place).expect("an index of a list");
                let from_ns = match settings.has_own_films {
                    // Nobody else plays on from there for as long as this one does.
                    true => played_ns(settings) * u64::from(number),
                    false => bursts[place].due_ns,
                };
                let place = bursts.partition_point(|burst| burst.due_ns < from_ns);
                let from_ns = bursts.get(place).map_or(from_ns, |burst| burst.due_ns);
                let tracks = plans.iter().map(|plan| {
                    let from = plan.rtp_packet_at(from_ns);
                    (from, plan.due_ns(from).saturating_sub(from_ns))
                });
                Cue {
                    tracks: tracks.collect(),
                    phase_ns: random.below(settings.burst_ns),
                }
            })
            .collect()
    }
}

/// How much of the film a session plays, and to spare.
fn played_ns(settings: &Settings) -> u64 {
    settings.warm_up_ns + settings.measured_ns + SPARE_NS
}

/// Bytes of a film of which each of so many sessions has a part of its own.
pub(crate) fn own_films_bytes(settings: &Settings) -> u64 {
    let ms = u128::from(played_ns(settings) / 1_000_000) * u128::from(settings.sessions + 1);
    u64::try_from(ms * u128::from(settings.rate_bps) / 8000).unwrap_or(u64::MAX)
}

fn name_of(media: FilmKind) -> String {
    format!("film.{media}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use onrush_testkit::require_programs;

    #[test]
    fn sessions_are_scattered_alike_each_time_and_none_ends() {
        let settings = Settings {
            warm_up_ns: 100_000_000,
            measured_ns: 1_000_000_000,
            rate_bps: 2_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Ts).unwrap();
        let config = Config {
            media_root: film.folder().to_owned(),
            burst: Duration::from_nanos(settings.burst_ns),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let media = film.open(&config, &runtime).unwrap();
        let plans = film.plans(&media).unwrap();
        let plan = &plans[0];
        assert_eq!(
            (plan.image_bytes_max(), media.identity().file_bytes),
            (1328, film.bytes())
        );
        assert!(!media.is_partial() && media.index().duration_ns() >= 65_000_000_000);
        let cues = film.cues(&plans, &settings);
        assert_eq!(cues.len(), 256);
        for cue in &cues {
            let left_ns = media.index().duration_ns() - plan.due_ns(cue.tracks[0].0);
            assert!(left_ns > settings.warm_up_ns + settings.measured_ns + SPARE_NS / 2);
            assert!(cue.phase_ns < settings.burst_ns);
        }
        let mut places: Vec<_> = cues.iter().map(|cue| cue.tracks[0].0).collect();
        places.sort_unstable();
        places.dedup();
        assert!(places.len() > 200, "{}", places.len());
        let again = film.cues(&plans, &settings);
        assert!(
            cues.iter()
                .zip(&again)
                .all(|(a, b)| (&a.tracks, a.phase_ns) == (&b.tracks, b.phase_ns))
        );
        let other = film.cues(
            &plans,
            &Settings {
                seed: 2,
                ..settings
            },
        );
        assert!(cues.iter().zip(&other).any(|(a, b)| a.tracks != b.tracks));
        // 2 Mbit/s of 1316 bytes a packet.
        let due = film.packets_due(10, 1_000_000_000);
        assert!((1899..=1901).contains(&due), "{due}");
    }

    #[test]
    fn films_of_sessions_of_their_own_do_not_meet() {
        let settings = Settings {
            sessions: 12,
            warm_up_ns: 100_000_000,
            measured_ns: 1_000_000_000,
            rate_bps: 2_000_000,
            has_own_films: true,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Ts).unwrap();
        let bound = own_films_bytes(&settings);
        assert!((bound * 9 / 10..=bound).contains(&film.bytes()), "{bound}");
        let config = Config {
            media_root: film.folder().to_owned(),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let plans = film.plans(&film.open(&config, &runtime).unwrap()).unwrap();
        let cues = film.cues(&plans, &settings);
        let mut end_ns = 0;
        for cue in &cues {
            let from_ns = plans[0].due_ns(cue.tracks[0].0);
            assert!(from_ns >= end_ns, "{cue:?}");
            // At a burst's end it may be a little later than where its part begins.
            end_ns = from_ns + played_ns(&settings) - settings.burst_ns;
        }
        assert!(end_ns < plans[0].due_ns(plans[0].rtp_packets()));
        // Of fewer sessions each is where it was.
        let fewer = film.cues(
            &plans,
            &Settings {
                sessions: 5,
                ..settings
            },
        );
        assert!(fewer.iter().zip(&cues).all(|(a, b)| a.tracks == b.tracks));
    }

    #[test]
    fn tracks_of_a_session_begin_together() {
        require_programs!("ffmpeg");
        let settings = Settings {
            warm_up_ns: 100_000_000,
            measured_ns: 1_000_000_000,
            rate_bps: 1_000_000,
            ..Settings::default()
        };
        let film = Film::make(&settings, FilmKind::Mp4).unwrap();
        assert_eq!(film.clocks_hz(), [90_000, 48_000]);
        let config = Config {
            media_root: film.folder().to_owned(),
            ..Config::default()
        };
        let runtime = super::super::engine::runtime().unwrap();
        let plans = film.plans(&film.open(&config, &runtime).unwrap()).unwrap();
        for cue in film.cues(&plans, &settings) {
            let [(picture, 0), (sound, sound_later_ns)] = cue.tracks[..] else {
                panic!("{cue:?}");
            };
            let from_ns = plans[0].due_ns(picture);
            assert_eq!(plans[1].due_ns(sound), from_ns + sound_later_ns);
            assert!(sound_later_ns < 100_000_000, "{cue:?}");
        }
    }
}
