//! What the experiment is asked for, and what it refuses.

use onrush_server::engine::phase::Phase;
use onrush_sys::path::PathName;
use onrush_testkit::testbed::{Mode, RCV_DEVICE};
use serde::{Deserialize, Serialize};

use super::files::FileSet;
use crate::error::{ExperimentError, bounds, refuse};
use crate::film_kind::{FilmKind, transport_stream_alone};
use crate::load::{self, Behaviour, Receive, Transport};

/// The sink looks at the RTP header of every so many socket buffers: no divisor of usual bursts.
pub(super) const LOOK_EVERY: u16 = 13;

/// Viewers that come in a second, unless said otherwise, and at the most.
const ARRIVALS_PER_SECOND: u32 = 1000;
const ARRIVALS_PER_SECOND_MAX: u32 = 20_000;

/// Who viewers are to a server that asks.
pub(super) const USER: &str = "viewer";
pub(super) const PASSWORD: &str = "a password of an experiment";

/// Where viewers of several tracks have their ports from: nobody else is in their namespace.
const PORT_FIRST_OF_TRACKS: u16 = 1024;

/// Tracks of all viewers at the most, each with two ports.
const TRACKS_MAX: u32 = ((u16::MAX - PORT_FIRST_OF_TRACKS) / 2) as u32;

/// Rounds at the most.
const ROUNDS_MAX: u32 = 100;

/// Trials around the limit of each server, at the most.
pub(super) const TRIALS_MAX: u32 = 500;

/// How often a number is tried again at the most.
const AGAIN_MAX: u32 = 10;

/// How often a viewer may jump: it pauses for 50 ms each time.
const JUMP_EVERY_NS_MIN: u64 = 100_000_000;
const JUMP_EVERY_NS_MAX: u64 = 3_600_000_000_000;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Rate of each stream, in bit/s.
    pub rate_bps: u64,
    /// Lengths of a burst, for our server; each is tried.
    pub bursts_ns: Vec<u64>,
    /// Data paths of our server, by name; each is tried, and one that cannot be had is held by
    /// nobody. Empty: the server's own choice.
    #[serde(default)]
    pub paths: Vec<String>,
    /// When within a burst's time our server's streams begin; each is tried.
    #[serde(default = "as_they_come")]
    pub phases: Vec<Phase>,
    /// Of a hundred viewers so many jump about in the film, one number for each search: 0 is for a
    /// search without, and where both are tried the one is held against the other.
    #[serde(default = "nobody_jumps")]
    pub jumping_percents: Vec<u32>,
    /// How often each of those jumps, on average.
    #[serde(default = "jump_every_ns")]
    pub jump_every_ns: u64,
    /// How often all that is tried is tried, in turns.
    #[serde(default = "once")]
    pub rounds: u32,
    /// How often, at the most, a number is tried again that was missed while the host took the
    /// server's processor away; the last try counts.
    #[serde(default)]
    pub again: u32,
    /// Trials around the limit that the search has found, of each server in each mode: their
    /// numbers are drawn, and their order too. 0: none.
    #[serde(default)]
    pub trials: u32,
    /// So many viewers our server is to hold, or each peer if nobody else is measured: in 95 of 100
    /// trials, if there are trials.
    #[serde(default)]
    pub aim: Option<u32>,
    /// How packets come to viewers.
    #[serde(default)]
    pub transport: Transport,
    /// Viewers that look at what comes on their connections, where packets come there.
    #[serde(default = "inspected")]
    pub inspected: u32,
    /// Whether our server asks each viewer who it is (Digest).
    #[serde(default)]
    pub has_users: bool,
    /// Whether instructions, cycles and misses are counted; see
    /// [`Counted`](crate::counters::Counted).
    #[serde(default)]
    pub counters: bool,
    /// What is watched.
    pub files: FileSet,
    /// What films are kept in; each is tried.
    #[serde(default = "transport_stream_alone")]
    pub media: Vec<FilmKind>,
    /// Our server's cache in bytes; `None`: a quarter of the films, or 1 GiB for a single one.
    pub cache_bytes: Option<u64>,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// The number of viewers to begin with.
    pub clients_first: u32,
    /// The most that are tried.
    pub clients_max: u32,
    /// The search ends when bounds are this close, as a part of the upper.
    pub precision: f64,
    /// How long each number is watched once all have come.
    pub time_ns: u64,
    /// A packet later than this is late; of 1000 one may be.
    pub lateness_ns_max: i64,
    /// How busy our server's processor may be with those whom it lets in, in percent; more get 453,
    /// which counts as held then. Nothing is searched. `None`: it lets all in.
    #[serde(default)]
    pub load_max_percent: Option<u32>,
    /// Viewers that come in a second, each with a connection of his own.
    #[serde(default = "arrivals_per_second")]
    pub arrivals_per_second: u32,
    /// For so long the server is stopped (SIGSTOP) in the middle of the run, and nothing is
    /// searched; 0: not.
    #[serde(default)]
    pub stall_ns: u64,
    /// Other servers.
    pub peers: Vec<Peer>,
    /// What choices are drawn from.
    pub seed: u64,
}

/// Another server: how it is started, and where the film is then.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Peer {
    /// A shell command that runs in the foreground; `{dir}` is the folder of films, `{address}`
    /// where to listen.
    pub command: String,
    /// An URL of the film; `{address}` and `{file}` stand for those.
    pub url: String,
}

impl Settings {
    /// Each data path that is tried; a single `None` where the server chooses.
    pub(super) fn each_path(&self) -> Vec<Option<String>> {
        match self.paths.is_empty() {
            true => vec![None],
            false => self.paths.iter().cloned().map(Some).collect(),
        }
    }

    /// How long `clients` viewers take to come.
    pub(super) fn ramp_ns(&self, clients: u32) -> u64 {
        u64::from(clients) * 1_000_000_000 / u64::from(self.arrivals_per_second.max(1))
    }

    /// Whether a number is tried once more that was tried `again` times after the first: it was
    /// missed, and the host took so much of the server's processor, or the load generator was so
    /// late, that this may be why.
    pub(super) fn is_worth_another(&self, holds: bool, void: &[String], again: u32) -> bool {
        !holds && !void.is_empty() && again < self.again
    }

    /// What a player buffers, whoever serves it: two bursts, and what may be late. Of a film that
    /// has a track for its sound, as much as its sound leaves early.
    pub(super) fn buffer_ns(&self, media: FilmKind) -> u64 {
        let bursts = self.bursts_ns.iter().copied();
        let lateness_ns = u64::try_from(self.lateness_ns_max).unwrap_or(0);
        let early_ns = match media.tracks() {
            1 => 0,
            _ => load::SOUND_BUFFERED_NS,
        };
        let bursts_ns = load::BURSTS_BUFFERED * bursts.fold(load::BURST_NS, u64::max);
        lateness_ns + bursts_ns.max(early_ns)
    }

    /// What `clients` viewers of those URLs do, where films of that kind are, of whom so many of a
    /// hundred jump, and whom the process `server` serves.
    pub(super) fn load(
        &self,
        (urls, media): (Vec<String>, FilmKind),
        clients: u32,
        jumping_percent: u32,
        server: u32,
    ) -> load::Settings {
        let settings = load::Settings::new(urls, clients);
        load::Settings {
            behaviour: match jumping_percent {
                0 => Behaviour::default(),
                percent => Behaviour {
                    active_part: f64::from(percent) / 100.0,
                    seek_every_ns: self.jump_every_ns,
                    ..Behaviour::default()
                },
            },
            port_first: match media.tracks() {
                1 => settings.port_first,
                _ => PORT_FIRST_OF_TRACKS,
            },
            in_turn: matches!(self.files, FileSet::Even { .. }),
            ramp_ns: self.ramp_ns(clients),
            time_ns: self.time_ns,
            transport: self.transport,
            inspected: self.inspected,
            user: self
                .has_users
                .then(|| (USER.to_owned(), PASSWORD.to_owned())),
            receive: match self.transport.is_interleaved() {
                true => Receive::Sockets,
                false => Receive::Sink {
                    device: RCV_DEVICE.to_owned(),
                    look_every: LOOK_EVERY,
                    bursts: self.is_trial(),
                },
            },
            lateness_ns_max: self.lateness_ns_max,
            buffer_ns: Some(self.buffer_ns(media)),
            // Who was stopped is late.
            late_part_max: if self.stall_ns > 0 {
                1.0
            } else {
                settings.late_part_max
            },
            pid: Some(server),
            seed: self.seed,
            ..settings
        }
    }

    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        let (first, most) = (self.clients_first, self.clients_max);
        let is_nobody = self.bursts_ns.is_empty() && self.peers.is_empty();
        bounds! {
            self.rate_bps, 500_000..=100_000_000, BitsPerSecond, "each";
            self.time_ns, 1_000_000_000..=3_600_000_000_000, Nanoseconds, "for each number";
            self.arrivals_per_second, 1..=ARRIVALS_PER_SECOND_MAX, Count, "viewers a second";
            self.rounds, 1..=ROUNDS_MAX, Count, "rounds";
            self.again, 0..=AGAIN_MAX, Count, "times again";
            self.trials, 0..=TRIALS_MAX, Count, "trials around each limit";
        }
        refuse! { ExperimentError::Settings;
            first == 0 || first > most || most > load::CLIENTS_MAX
                => "{first} to {most} viewers: ask for 1 to {}", load::CLIENTS_MAX;
            !(0.001..=0.5).contains(&self.precision)
                => "a precision of {}: ask for 0.001 to 0.5", self.precision;
            self.trials > 0 && self.is_trial()
                => "trials go around a limit that was searched for, and --load-max and --stall \
                    search nothing: ask for one of both";
            self.aim.is_some_and(|aim| aim == 0 || aim > most)
                => "an aim of {} viewers, where {most} are tried at the most: ask for 1 to {most}, \
                    or try more", self.aim.unwrap_or(0);
            self.modes.is_empty() || is_nobody => "nothing to do: ask for a mode and a server";
            self.stall_ns > self.time_ns / 4
                => "a stall of {} ns: ask for a quarter of --time at the most", self.stall_ns;
        }
        self.check_transport()?;
        self.check_media()?;
        self.check_jumping()?;
        self.files.check()
    }

    fn check_transport(&self) -> Result<(), ExperimentError> {
        let is_interleaved = self.transport.is_interleaved();
        let unknown = |path: &String| path.parse::<PathName>().err();
        let unknown = self.paths.iter().find_map(unknown);
        refuse! { ExperimentError::Settings;
            unknown.is_some() => "{}", unknown.unwrap_or_default();
            is_interleaved && !self.paths.is_empty()
                => "what comes on connections takes no data path: ask for udp, or for no path";
            self.transport == Transport::Multicast
                => "a group is sent to once, however many hear it: ask for another transport";
            is_interleaved && self.inspected == 0
                => "nobody looks at packets: ask for one viewer or more that does";
            is_interleaved && self.stall_ns > 0
                => "bursts are told apart over udp alone: ask for a stall there";
        }
        Ok(())
    }

    fn check_media(&self) -> Result<(), ExperimentError> {
        let tracks = self
            .media
            .iter()
            .map(|media| media.tracks())
            .max()
            .unwrap_or(0);
        let is_ts_alone = self.media.iter().all(|&media| media == FilmKind::Ts);
        refuse! { ExperimentError::Settings;
            self.media.is_empty() => "nothing to do: ask for films of some kind";
            self.stall_ns > 0 && !is_ts_alone
                => "what is due while a server is stopped is known of ts alone";
        }
        bounds! { self.clients_max * tracks, 1..=TRACKS_MAX, Count, "tracks of all viewers"; }
        Ok(())
    }

    fn check_jumping(&self) -> Result<(), ExperimentError> {
        let percents = &self.jumping_percents;
        for &percent in percents {
            bounds! { percent, 0..=100, Count, "% of the viewers jump"; }
        }
        refuse! { ExperimentError::Settings;
            percents.is_empty() => "nothing to do: ask for viewers that jump, or 0 %";
        }
        if percents.iter().all(|&percent| percent == 0) {
            return Ok(());
        }
        let between_ns = JUMP_EVERY_NS_MIN..=JUMP_EVERY_NS_MAX;
        bounds! { self.jump_every_ns, between_ns, Nanoseconds, "between two jumps"; }
        // Whoever has seen all of a film begins it again, which is a jump too.
        let film_s = self.files.seconds();
        let watched_ns = self.ramp_ns(self.clients_max).saturating_add(self.time_ns);
        refuse! { ExperimentError::Settings;
            self.is_trial()
                => "viewers that jump are searched for, and a trial searches nothing: ask for one \
                    of both";
            watched_ns > film_s * 1_000_000_000
                => "{} viewers come and watch for {} s in all, and a film has {film_s} s: those \
                    who do not jump would begin it again, which is a jump; ask for one film, for \
                    less time or for fewer viewers",
                    self.clients_max, watched_ns / 1_000_000_000;
        }
        Ok(())
    }
}

/// What was measured before there was a choice.
fn as_they_come() -> Vec<Phase> {
    vec![Phase::AsTheyCome]
}

const fn arrivals_per_second() -> u32 {
    ARRIVALS_PER_SECOND
}

fn nobody_jumps() -> Vec<u32> {
    vec![0]
}

const fn jump_every_ns() -> u64 {
    20_000_000_000
}

const fn inspected() -> u32 {
    load::INSPECTED
}

const fn once() -> u32 {
    1
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_bps: 4_000_000,
            bursts_ns: vec![20_000_000],
            paths: Vec::new(),
            phases: as_they_come(),
            jumping_percents: nobody_jumps(),
            jump_every_ns: jump_every_ns(),
            rounds: once(),
            again: 1,
            trials: 0,
            aim: None,
            transport: Transport::default(),
            inspected: inspected(),
            has_users: false,
            counters: false,
            files: FileSet::One,
            media: transport_stream_alone(),
            cache_bytes: None,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            clients_first: 1000,
            clients_max: 16_000,
            precision: 0.05,
            time_ns: 10_000_000_000,
            lateness_ns_max: 20_000_000,
            load_max_percent: None,
            arrivals_per_second: arrivals_per_second(),
            stall_ns: 0,
            peers: Vec::new(),
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miss_is_tried_again_only_if_the_host_was_in_the_way() {
        let robbed = ["the host took 3 % of the server's processor".to_owned()];
        let settings = Settings {
            again: 2,
            ..Settings::default()
        };
        let tries = |holds, void: &[String]| {
            (0..)
                .take_while(|&again| settings.is_worth_another(holds, void, again))
                .count()
        };
        assert_eq!(tries(false, &robbed), 2);
        assert_eq!(tries(true, &robbed), 0);
        assert_eq!(tries(false, &[]), 0);
        let never = Settings {
            again: 0,
            ..settings
        };
        assert!(!never.is_worth_another(false, &robbed, 0));
    }

    #[test]
    fn transports_are_passed_on_or_refused() {
        let of = |transport, stall_ns| Settings {
            transport,
            stall_ns,
            ..Settings::default()
        };
        let urls = || (vec!["rtsp://h/x".to_owned()], FilmKind::Ts);
        for (transport, is_sunk) in [
            (Transport::Udp, true),
            (Transport::Srtp, true),
            (Transport::Tcp, false),
        ] {
            let settings = of(transport, 0);
            settings.check().expect("it can be searched");
            let load = settings.load(urls(), 100, 0, 1);
            assert_eq!(load.transport, transport);
            assert_eq!(matches!(load.receive, Receive::Sink { .. }), is_sunk);
        }
        for refused in [of(Transport::Multicast, 0), of(Transport::Tcp, 1)] {
            assert!(refused.check().is_err(), "{refused:?}");
        }
    }

    #[test]
    fn paths_are_known_and_of_datagrams() {
        let of = |path: &str, transport| {
            let settings = Settings {
                paths: vec![path.to_owned()],
                transport,
                ..Settings::default()
            };
            settings.check().map_err(|error| error.to_string())
        };
        assert_eq!(of("sendmmsg_gso", Transport::Udp), Ok(()));
        let unknown = of("sendfile", Transport::Udp).unwrap_err();
        assert!(
            unknown.starts_with("no path is named \"sendfile\"; there are uring"),
            "{unknown}"
        );
        let interleaved = of("sendmmsg", Transport::Tcp).unwrap_err();
        assert!(interleaved.contains("takes no data path"), "{interleaved}");
    }

    #[test]
    fn a_number_is_tried_again_at_most_so_often() {
        let asked = |again| Settings {
            again,
            ..Settings::default()
        };
        asked(AGAIN_MAX).check().expect("the bound");
        let refused = asked(AGAIN_MAX + 1).check().unwrap_err().to_string();
        assert_eq!(refused, "11 times again: ask for 0 to 10");
    }

    fn jumping() -> Settings {
        Settings {
            jumping_percents: vec![0, 30],
            ..Settings::default()
        }
    }

    #[test]
    fn what_cannot_be_done_while_viewers_jump_is_refused() {
        // 16,000 come within 16 s, and the film has 60.
        let longest = Settings {
            time_ns: 44_000_000_000,
            jumping_percents: vec![0, 100],
            jump_every_ns: JUMP_EVERY_NS_MIN,
            ..jumping()
        };
        longest.check().expect("the bounds");
        type Change = fn(&mut Settings);
        let wrong: [(Change, &str); 7] = [
            (|s| s.time_ns += 1_000_000_000, "61 s in all"),
            (|s| s.jumping_percents.push(101), "ask for 0 to 100"),
            (|s| s.jumping_percents.clear(), "nothing to do"),
            (
                |s| s.jump_every_ns = JUMP_EVERY_NS_MIN - 1,
                "100 ms to 3600 s",
            ),
            (
                |s| s.jump_every_ns = JUMP_EVERY_NS_MAX + 1,
                "100 ms to 3600 s",
            ),
            (|s| s.stall_ns = 1, "one of both"),
            (|s| s.files = FileSet::Zipf { files: 9 }, "a film has 10 s"),
        ];
        for (change, why) in wrong {
            let mut settings = longest.clone();
            change(&mut settings);
            let refused = settings.check().unwrap_err().to_string();
            assert!(refused.contains(why), "{refused}");
        }
        // Who does not jump may watch for as long as ever.
        let still = Settings {
            time_ns: 3_600_000_000_000,
            jump_every_ns: 0,
            ..Settings::default()
        };
        still.check().expect("nobody jumps");
    }

    #[test]
    fn viewers_jump_in_the_search_that_asks_for_it_alone() {
        let behaviour = |percent| {
            let watched = (Vec::new(), FilmKind::Ts);
            jumping().load(watched, 1, percent, 1).behaviour
        };
        assert_eq!(behaviour(0), Behaviour::default());
        let some = behaviour(30);
        assert_eq!(
            (some.active_part, some.seek_every_ns),
            (0.3, 20_000_000_000)
        );
        assert_eq!((some.pause_every_ns, some.stay_ns), (0, 0));
    }

    #[test]
    fn viewers_of_two_tracks_have_ports_for_both_or_are_refused() {
        let of = |clients_max, media| Settings {
            clients_max,
            media: vec![FilmKind::Ts, media],
            ..Settings::default()
        };
        let most = TRACKS_MAX / 2;
        of(most, FilmKind::Mp4).check().expect("the bound");
        assert!(of(most + 1, FilmKind::Mp4).check().is_err());
        of(load::CLIENTS_MAX, FilmKind::Ts).check().expect("of one");
        let stalled = Settings {
            stall_ns: 1,
            ..of(most, FilmKind::Mkv)
        };
        assert!(stalled.check().is_err());
        let ports = |media| {
            let watched = (vec!["rtsp://h/x".to_owned()], media);
            let load = stalled.load(watched, most, 0, 1);
            load.check().expect("there are ports");
            load.port_first
        };
        assert_eq!((ports(FilmKind::Ts), ports(FilmKind::Mkv)), (20_000, 1024));
    }

    #[test]
    fn a_file_from_before_anybody_jumped_is_read() {
        let mut old = serde_json::to_value(jumping()).unwrap();
        for name in ["jumping_percents", "jump_every_ns", "media"] {
            old.as_object_mut().unwrap().remove(name).expect(name);
        }
        let old: Settings = serde_json::from_value(old).unwrap();
        assert_eq!(old, Settings::default());
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_bound() {
        Settings::default().check().expect("the defaults");
        let wrong: [fn(&mut Settings); 15] = [
            |s| s.rate_bps = 499_999,
            |s| s.clients_first = 0,
            |s| s.clients_first = s.clients_max + 1,
            |s| s.clients_max = load::CLIENTS_MAX + 1,
            |s| s.aim = Some(0),
            |s| s.aim = Some(s.clients_max + 1),
            |s| s.precision = 0.0,
            |s| s.time_ns = 999_999_999,
            |s| s.bursts_ns.clear(),
            |s| s.files = FileSet::Zipf { files: 0 },
            |s| s.stall_ns = s.time_ns / 4 + 1,
            |s| s.arrivals_per_second = 0,
            |s| s.arrivals_per_second = ARRIVALS_PER_SECOND_MAX + 1,
            |s| s.rounds = 0,
            |s| s.rounds = ROUNDS_MAX + 1,
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            let mut settings = Settings::default();
            change(&mut settings);
            assert!(settings.check().is_err(), "case {i}");
        }
    }
}
