//! What is kept of the experiment: settings, who sends, and raw samples.

use std::fmt;

use onrush_primitives::named;
use onrush_sys::path::PathName;
use onrush_testkit::playout::Playouts;
use onrush_testkit::testbed::Mode;
use onrush_wire::srtp::Suite;
use serde::{Deserialize, Serialize};

use crate::counters::Counted;
use crate::error::{ExperimentError, bounds, refuse};
use crate::experiment::Record;
use crate::film_kind::{FilmKind, transport_stream_alone};
use crate::histogram::Histogram;
use crate::profile::Profile;
use crate::setup::in_turn;

/// Its name on the command line and in files.
pub const NAME: &str = "serve";

/// Sessions at the most: as many ports as the sink counts, and as many sockets as most systems let
/// open.
pub const SESSIONS_MAX: u32 = 8192;

/// What is measured.
pub type ServeRecord = Record<Settings, Run>;

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Sessions at once, 1 to [`SESSIONS_MAX`].
    pub sessions: u32,
    /// Rate of each session's film, in bit/s.
    pub rate_bps: u64,
    /// Length of a burst.
    pub burst_ns: u64,
    /// How long a run sends before it is measured.
    pub warm_up_ns: u64,
    /// How long it is measured.
    pub measured_ns: u64,
    /// How often each contestant has its turn in each mode.
    pub repeats: u32,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// Who sends.
    pub contestants: Vec<Contestant>,
    /// What the film is kept in; each is sent by all that can.
    #[serde(default = "transport_stream_alone")]
    pub media: Vec<FilmKind>,
    /// Whether each session plays a part of the film that no other does, as if it were a film of
    /// its own.
    #[serde(default)]
    pub has_own_films: bool,
    /// Whether the sender's processor is kept from resting between two bursts; see
    /// [`Awake`](crate::machine::Awake).
    pub keep_awake: bool,
    /// Whether it is looked at where the sender's time goes; see [`Profile`].
    #[serde(default)]
    pub account: bool,
    /// Whether instructions, cycles and misses are counted; see [`Counted`].
    #[serde(default)]
    pub counters: bool,
    /// What the sessions' places and phases are drawn from.
    pub seed: u64,
}

/// Who sends.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(try_from = "String", into = "String")]
pub enum Contestant {
    /// Our engine, on this data path; named after the path.
    Engine(PathName),
    /// The same on its best path, with RTP headers of each session's own from the start; named
    /// after the path that such trains take.
    OwnHeaders,
    /// A loop of `pread` and `send`, a packet at a time.
    ReadSendLoop,
    /// A loop that corks, sends the header, sends the payload from the file, and uncorks: a packet
    /// at a time.
    RtpSendfile,
    /// A loop that sends the header with MSG_MORE, and the payload from the file.
    RtpSendfileMore,
    /// A loop that sends header and payload of the mapped file by one call for each packet.
    MmapWritev,
    /// The engine on its best path, packets encrypted for one client each (SRTP), by AES-128 in
    /// counter mode and HMAC-SHA1 of 80 bits.
    Srtp,
    /// Likewise, by AES-128 in Galois/counter mode.
    SrtpGcm,
    /// The engine on its best path, from images that are encrypted once with a key that all clients
    /// share, in counter mode.
    SrtpShared,
    /// The engine on its best path, packets as frames of connections.
    Interleaved,
    /// A loop of `write`, a frame at a time, from a film that lies framed in memory.
    WriteLoop,
    /// The engine on its best path, packets as frames of connections with TLS.
    Sealed,
    /// A loop of writes into rustls, of the frames that are due together, and of what that makes to
    /// the connection.
    RustlsLoop,
}

named! {
    /// How packets reach a session.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Transport {
        /// As datagrams.
        Udp = "udp",
        /// As frames of a connection.
        Tcp = "tcp",
        /// Likewise, over TLS.
        Tls = "tls",
        /// As datagrams that are encrypted.
        Srtp = "srtp",
    }
}

/// Who sends what.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Entrant {
    /// Who.
    pub contestant: Contestant,
    /// What the film is kept in.
    pub media: FilmKind,
}

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Who cuts trains.
    pub mode: Mode,
    /// Whose turn it is.
    pub entrant: Entrant,
    /// Which repeat, from 0.
    pub repeat: u32,
}

/// What one contestant did in one mode, once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who cut trains.
    pub mode: Mode,
    /// Who sent.
    pub contestant: Contestant,
    /// What the film was kept in.
    #[serde(default)]
    pub media: FilmKind,
    /// Which repeat, from 0. Runs of one mode and repeat followed each other, and are compared.
    pub repeat: u32,
    /// How often it had been tried before.
    pub attempt: u32,
    /// Why it proves nothing; empty if it does.
    pub void: Vec<String>,
    /// A fixed piece of work on the sender's processor took this long, just before.
    pub yardstick_ns: u64,
    /// What it did while it was measured.
    pub interval: Interval,
    /// Packets sent from the first to the last, warm-up included.
    pub packets_sent: u64,
    /// What arrived of them.
    pub arrived: Arrived,
    /// What players of the sessions would have had to buffer; `None` of those that come on
    /// connections, and in records from before.
    #[serde(default)]
    pub playouts: Option<Playouts>,
    /// What of the cost of packets that are encrypted is what, measured alone just before.
    #[serde(default)]
    pub parts: Option<SrtpParts>,
    /// Where the time of the sender's processor went, if that was looked at.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Processor time of the threads that write packet images, from the first to the last.
    pub builder_cpu_ns: u64,
    /// Packet images that they wrote, in whole chunks.
    pub images_built: u64,
}

/// What encryption is made of, in ns for a packet of a transport stream.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct SrtpParts {
    /// To copy it from a cache of images into a slot.
    pub copy_ns: f64,
    /// To encrypt and authenticate it where it lies.
    pub cipher_ns: f64,
}

/// What a sender did, and the machine around it, between two moments.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Interval {
    /// How long it was.
    pub wall_ns: u64,
    /// Processor time of the sending thread.
    pub cpu_ns: u64,
    /// What the processor counted of the sending thread meanwhile, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counted: Option<Counted>,
    /// How long the sending thread waited for its processor, because others had it.
    pub waited_ns: u64,
    /// How long the sender's processor was busy, for whomever.
    pub core_busy_ns: u64,
    /// How long all others were, together.
    pub other_cores_busy_ns: u64,
    /// How long the host of this virtual machine kept its processors away, together.
    pub stolen_ns: u64,
    /// Packets that were due.
    pub packets_due: u64,
    /// What the sender did.
    pub counts: Counts,
    /// Packets that arrived, by how late: against their RTP timestamps, and relative to the first
    /// packet of their session.
    pub arrival_lateness: Histogram,
}

/// What a sender has done.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Counts {
    /// Packets that the kernel took.
    pub packets: u64,
    /// Their bytes, RTP headers included; 0 of a record from before that was kept.
    #[serde(default)]
    pub bytes: u64,
    /// Packets that it refused.
    pub packets_refused: u64,
    /// Entries into the kernel.
    pub crossings: u64,
    /// Times it woke to see what is due.
    pub ticks: u64,
    /// Sends of several packets at once.
    pub trains: u64,
    /// Of those, sent without a copy, as the kernel reported.
    pub trains_zero_copy: u64,
    /// Of those, copied by the kernel.
    pub trains_copied: u64,
    /// Of those, of one packet, and so copied on purpose by a path that does not copy trains.
    #[serde(default)]
    pub trains_single: u64,
    /// Bursts that waited for packet images.
    pub underruns: u64,
    /// Times that a session was so late that its clock was moved.
    pub lags: u64,
    /// Bursts by lateness: when they were handed over, less when they were due.
    pub lateness: Histogram,
}

/// What the sink counted.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Arrived {
    /// Packets.
    pub packets: u64,
    /// Bytes of UDP payload.
    pub bytes: u64,
    /// Socket buffers: trains and single packets.
    pub skbs: u64,
    /// Socket buffers of more than one packet.
    pub trains: u64,
    /// Packets of the longest train.
    pub train_packets_max: u64,
    /// RTP sequence numbers that were jumped over.
    pub sequence_missing: u64,
    /// RTP packets that came again, or too late.
    pub sequence_repeated: u64,
}

impl Settings {
    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        let is_nothing = self.repeats == 0 || self.modes.is_empty();
        bounds! {
            self.sessions, 1..=SESSIONS_MAX, Count, "sessions";
            self.rate_bps, 500_000..=100_000_000, BitsPerSecond, "each";
            self.burst_ns, 1_000_000..=1_000_000_000, Nanoseconds, "in a burst";
            self.measured_ns, 100_000_000..=60_000_000_000, Nanoseconds, "in a run";
            self.sessions * self.tracks_max(), 1..=SESSIONS_MAX, Count, "tracks of all sessions";
        }
        refuse! { ExperimentError::Settings;
            is_nothing || self.entrants().next().is_none()
                => "nothing to do: ask for a repeat, a mode and a contestant";
        }
        Ok(())
    }

    /// Tracks of a session at the most.
    pub(super) fn tracks_max(&self) -> u32 {
        let tracks = self.media.iter().map(|media| media.tracks());
        tracks.max().unwrap_or(1)
    }

    /// Who sends what. What a contestant sends of several kinds follows on each other, because it
    /// is compared.
    pub(super) fn entrants(&self) -> impl Iterator<Item = Entrant> {
        let all = self.contestants.iter().flat_map(|&contestant| {
            let media = self.media.iter();
            media.map(move |&media| Entrant { contestant, media })
        });
        all.filter(Entrant::is_able)
    }

    /// All that will be run, if nothing is void. Entrants take turns at being first, so that what
    /// drifts hits all alike.
    pub(super) fn schedule(&self) -> Vec<Turn> {
        let entrants: Vec<_> = self.entrants().collect();
        let turns = (0..self.repeats).flat_map(|repeat| {
            let entrants = &entrants;
            self.modes.iter().flat_map(move |&mode| {
                let order = in_turn(entrants, repeat);
                order.map(move |entrant| Turn {
                    mode,
                    entrant,
                    repeat,
                })
            })
        });
        turns.collect()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sessions: 256,
            rate_bps: 4_000_000,
            burst_ns: 20_000_000,
            warm_up_ns: 1_500_000_000,
            measured_ns: 6_000_000_000,
            repeats: 5,
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            contestants: vec![
                Contestant::ENGINE,
                Contestant::OwnHeaders,
                Contestant::Engine(PathName::SendmmsgGso),
                Contestant::Engine(PathName::Sendmmsg),
                Contestant::ReadSendLoop,
            ],
            media: transport_stream_alone(),
            has_own_films: false,
            keep_awake: true,
            account: false,
            counters: false,
            seed: 1,
        }
    }
}

impl Contestant {
    /// The engine on its best path, which is judged.
    pub const ENGINE: Self = Self::Engine(PathName::UringRegisteredZc);

    /// Its name in files and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine(path) => path.as_str(),
            Self::OwnHeaders => "uring_vectored_zc",
            Self::ReadSendLoop => "read_send_loop",
            Self::RtpSendfile => "rtp_sendfile",
            Self::RtpSendfileMore => "rtp_sendfile_more",
            Self::MmapWritev => "mmap_writev",
            Self::Srtp => "srtp_own_keys",
            Self::SrtpGcm => "srtp_own_keys_gcm",
            Self::SrtpShared => "srtp_shared_key",
            Self::Interleaved => "interleaved",
            Self::WriteLoop => "write_loop",
            Self::Sealed => "interleaved_tls",
            Self::RustlsLoop => "rustls_loop",
        }
    }

    /// Those that are no path's.
    const NAMED: [Self; 12] = [
        Self::OwnHeaders,
        Self::ReadSendLoop,
        Self::RtpSendfile,
        Self::RtpSendfileMore,
        Self::MmapWritev,
        Self::Srtp,
        Self::SrtpGcm,
        Self::SrtpShared,
        Self::Interleaved,
        Self::WriteLoop,
        Self::Sealed,
        Self::RustlsLoop,
    ];

    /// How its packets reach their sessions.
    #[must_use]
    pub const fn transport(self) -> Transport {
        match self {
            Self::Engine(_) | Self::OwnHeaders | Self::ReadSendLoop => Transport::Udp,
            Self::RtpSendfile | Self::RtpSendfileMore | Self::MmapWritev => Transport::Udp,
            Self::Srtp | Self::SrtpGcm | Self::SrtpShared => Transport::Srtp,
            Self::Interleaved | Self::WriteLoop => Transport::Tcp,
            Self::Sealed | Self::RustlsLoop => Transport::Tls,
        }
    }

    /// Those that are compared over that transport: who is judged, and last what they are judged
    /// by.
    #[must_use]
    pub const fn of_transport(transport: Transport) -> &'static [Self] {
        match transport {
            Transport::Udp => &[Self::ENGINE, Self::ReadSendLoop],
            Transport::Tcp => &[Self::Interleaved, Self::WriteLoop],
            Transport::Tls => &[Self::Sealed, Self::RustlsLoop],
            Transport::Srtp => &[Self::Srtp, Self::SrtpGcm, Self::SrtpShared, Self::ENGINE],
        }
    }

    /// What its packets are encrypted by, if they are.
    #[must_use]
    pub const fn suite(self) -> Option<Suite> {
        match self {
            Self::Srtp | Self::SrtpShared => Some(Suite::AesCm128HmacSha1),
            Self::SrtpGcm => Some(Suite::AeadAes128Gcm),
            _ => None,
        }
    }

    /// What its packets are encrypted by for each session alone, if they are.
    pub(super) fn own_key_suite(self) -> Option<Suite> {
        self.suite().filter(|_| self != Self::SrtpShared)
    }

    /// Whether it is a loop beside the engine.
    pub(super) const fn is_loop(self) -> bool {
        let is_of_files = self.is_from_file();
        is_of_files || matches!(self, Self::WriteLoop | Self::RustlsLoop)
    }

    /// Whether it is a loop that takes each packet from the file.
    pub(super) const fn is_from_file(self) -> bool {
        matches!(
            self,
            Self::ReadSendLoop | Self::RtpSendfile | Self::RtpSendfileMore | Self::MmapWritev
        )
    }

    /// Whether its packets come on connections.
    pub(super) const fn is_interleaved(self) -> bool {
        matches!(self.transport(), Transport::Tcp | Transport::Tls)
    }

    /// Bytes that each packet is longer by when it arrives (RFC 3711, section 5.2; RFC 7714,
    /// section 12): the engine counts packets without their tags.
    #[must_use]
    pub fn tag_bytes(self) -> u64 {
        self.suite().map_or(0, |suite| suite.tag_bytes() as u64)
    }

    /// Whether the kernel says of each train that it did not copy it.
    pub(super) fn is_zero_copy(self) -> bool {
        matches!(self, Self::ENGINE | Self::OwnHeaders) || self.suite().is_some()
    }

    /// Whether several packets leave in one send.
    pub(crate) fn segments(self) -> bool {
        match self {
            Self::Engine(path) => path.segments(),
            Self::OwnHeaders | Self::Interleaved | Self::Sealed => true,
            Self::Srtp | Self::SrtpGcm | Self::SrtpShared => true,
            Self::ReadSendLoop | Self::WriteLoop | Self::RustlsLoop => false,
            Self::RtpSendfile | Self::RtpSendfileMore | Self::MmapWritev => false,
        }
    }
}

impl Entrant {
    /// The contestant with a transport stream.
    pub(super) const fn of_ts(contestant: Contestant) -> Self {
        Self {
            contestant,
            media: FilmKind::Ts,
        }
    }

    /// Whether the contestant can send that: loops, and whoever sends on connections of one stream
    /// each, know transport streams alone.
    fn is_able(&self) -> bool {
        let knows_one = self.contestant.is_loop() || self.contestant.is_interleaved();
        self.media == FilmKind::Ts || !knows_one
    }
}

impl fmt::Display for Entrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.media {
            FilmKind::Ts => f.pad(self.contestant.name()),
            media => f.pad(&format!("{} {media}", self.contestant)),
        }
    }
}

impl Counts {
    /// What was done since `earlier`, a copy of this one.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            packets: self.packets - earlier.packets,
            bytes: self.bytes - earlier.bytes,
            packets_refused: self.packets_refused - earlier.packets_refused,
            crossings: self.crossings - earlier.crossings,
            ticks: self.ticks - earlier.ticks,
            trains: self.trains - earlier.trains,
            trains_zero_copy: self.trains_zero_copy - earlier.trains_zero_copy,
            trains_copied: self.trains_copied - earlier.trains_copied,
            trains_single: self.trains_single - earlier.trains_single,
            underruns: self.underruns - earlier.underruns,
            lags: self.lags - earlier.lags,
            lateness: self.lateness.since(&earlier.lateness),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl TryFrom<String> for Contestant {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let mut named = Self::NAMED.into_iter();
        match named.find(|contestant| contestant.name() == name) {
            Some(contestant) => Ok(contestant),
            None => name.parse().map(Self::Engine),
        }
    }
}

impl From<Contestant> for String {
    fn from(contestant: Contestant) -> Self {
        contestant.name().to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A valid run of 1000 packets in each of two places: while it was measured, and in all.
    pub(crate) fn run(mode: Mode, contestant: Contestant, repeat: u32, cpu_ns: u64) -> Run {
        let trains = if contestant.segments() { 125 } else { 0 };
        let zero_copy = if contestant.is_zero_copy() { trains } else { 0 };
        let is_cut = mode == Mode::SoftwareGso || trains == 0;
        Run {
            mode,
            contestant,
            media: FilmKind::Ts,
            repeat,
            attempt: 0,
            void: Vec::new(),
            yardstick_ns: 20_000_000,
            interval: Interval {
                counted: None,
                wall_ns: 1_000_000_000,
                cpu_ns,
                waited_ns: 0,
                core_busy_ns: cpu_ns,
                other_cores_busy_ns: 0,
                stolen_ns: 0,
                packets_due: 1000,
                counts: counts(trains, zero_copy),
                arrival_lateness: Histogram::default(),
            },
            packets_sent: 1000,
            arrived: Arrived {
                packets: 1000,
                bytes: 1_328_000,
                skbs: if is_cut { 1000 } else { trains },
                trains: if is_cut { 0 } else { trains },
                train_packets_max: if is_cut { 1 } else { 8 },
                sequence_missing: 0,
                sequence_repeated: 0,
            },
            playouts: None,
            parts: None,
            profile: None,
            builder_cpu_ns: 0,
            images_built: 0,
        }
    }

    pub(crate) fn counts(trains: u64, trains_zero_copy: u64) -> Counts {
        Counts {
            packets: 1000,
            bytes: 1_328_000,
            crossings: 200,
            ticks: 200,
            trains,
            trains_zero_copy,
            trains_copied: trains - trains_zero_copy,
            ..Counts::default()
        }
    }

    #[test]
    fn contestants_take_turns_at_being_first_and_miss_no_mode() {
        let settings = Settings {
            repeats: 2,
            contestants: vec![Contestant::ENGINE, Contestant::ReadSendLoop],
            ..Settings::default()
        };
        let names: Vec<_> = settings
            .schedule()
            .iter()
            .map(|turn| format!("{} {} {}", turn.mode.name(), turn.entrant, turn.repeat))
            .collect();
        let (engine, plain) = ("uring_registered_zc", "read_send_loop");
        let expected = [
            format!("uso {engine} 0"),
            format!("uso {plain} 0"),
            format!("software-gso {engine} 0"),
            format!("software-gso {plain} 0"),
            format!("uso {plain} 1"),
            format!("uso {engine} 1"),
            format!("software-gso {plain} 1"),
            format!("software-gso {engine} 1"),
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn kinds_of_film_follow_on_each_other_and_the_loop_has_one() {
        let settings = Settings {
            repeats: 2,
            modes: vec![Mode::Uso],
            contestants: vec![Contestant::ENGINE, Contestant::ReadSendLoop],
            media: vec![FilmKind::Ts, FilmKind::Mp4],
            ..Settings::default()
        };
        let turns = settings.schedule().into_iter();
        let names: Vec<_> = turns.map(|turn| turn.entrant.to_string()).collect();
        let (ts, mp4) = ("uring_registered_zc", "uring_registered_zc mp4");
        let plain = "read_send_loop";
        assert_eq!(names, [ts, mp4, plain, mp4, plain, ts]);
        let two_tracks = |sessions| Settings {
            sessions,
            ..settings.clone()
        };
        two_tracks(SESSIONS_MAX / 2).check().expect("the bound");
        assert!(two_tracks(SESSIONS_MAX / 2 + 1).check().is_err());
        let loop_alone = Settings {
            contestants: vec![Contestant::ReadSendLoop],
            media: vec![FilmKind::Mkv],
            ..settings
        };
        assert!(loop_alone.check().is_err());
    }

    #[test]
    fn settings_are_refused_just_beyond_their_bounds() {
        type Change = fn(&mut Settings);
        let good: [Change; 8] = [
            |s| s.sessions = 1,
            |s| s.sessions = SESSIONS_MAX,
            |s| s.rate_bps = 500_000,
            |s| s.rate_bps = 100_000_000,
            |s| s.burst_ns = 1_000_000,
            |s| s.burst_ns = 1_000_000_000,
            |s| s.measured_ns = 100_000_000,
            |s| s.measured_ns = 60_000_000_000,
        ];
        let bad: [Change; 12] = [
            |s| s.sessions = 0,
            |s| s.sessions = SESSIONS_MAX + 1,
            |s| s.rate_bps = 499_999,
            |s| s.rate_bps = 100_000_001,
            |s| s.burst_ns = 999_999,
            |s| s.burst_ns = 1_000_000_001,
            |s| s.measured_ns = 99_999_999,
            |s| s.measured_ns = 60_000_000_001,
            |s| s.repeats = 0,
            |s| s.modes = Vec::new(),
            |s| s.contestants = Vec::new(),
            |s| s.media = Vec::new(),
        ];
        for (changes, is_good) in [(&good[..], true), (&bad[..], false)] {
            for (i, change) in changes.iter().enumerate() {
                let mut settings = Settings::default();
                change(&mut settings);
                assert_eq!(
                    settings.check().is_ok(),
                    is_good,
                    "change {i}: {settings:?}"
                );
            }
        }
    }

    #[test]
    fn contestants_have_one_name_everywhere() {
        let named = Contestant::NAMED.into_iter();
        for contestant in Settings::default().contestants.into_iter().chain(named) {
            let text = serde_json::to_string(&contestant).unwrap();
            assert_eq!(text, format!("\"{contestant}\""));
            assert_eq!(
                serde_json::from_str::<Contestant>(&text).unwrap(),
                contestant
            );
        }
        assert!(serde_json::from_str::<Contestant>("\"sendfile\"").is_err());
    }

    #[test]
    fn what_was_done_since_is_the_difference() {
        let earlier = counts(10, 10);
        let mut later = counts(15, 12);
        later.packets += 40;
        later.lateness.count(0, 3);
        let since = later.since(&earlier);
        assert_eq!(
            (since.packets, since.trains, since.trains_zero_copy),
            (40, 5, 2)
        );
        assert_eq!((since.crossings, since.lateness.total()), (0, 3));
    }
}
