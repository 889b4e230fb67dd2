//! What is kept of the experiment: settings, and each number of sessions that was tried.

use onrush_primitives::named;
use onrush_sys::path::PathName;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use crate::error::{ExperimentError, bounds, refuse};
use crate::experiment::Record;
use crate::serve::{self, Contestant, SESSIONS_MAX, own_films_bytes};

/// Its name on the command line and in files.
pub const NAME: &str = "mechanisms";

/// What is measured.
pub type MechanismsRecord = Record<Settings, Run>;

/// Bytes of films at the most where each session has its own; its packet images take as much again.
const OWN_FILMS_BYTES_MAX: u64 = 6 << 30;

/// Late packets may be later than two bursts by so much.
const LATE_NS: u64 = 20_000_000;

named! {
    /// What sessions play.
    #[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Films {
        /// One film, each from another place.
        One = "one",
        /// Each a part that no other plays: a film of its own.
        Each = "each",
    }
}

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Who sends.
    pub mechanisms: Vec<Contestant>,
    /// Of which rates, in bit/s.
    pub rates_bps: Vec<u64>,
    /// What they play.
    pub films: Vec<Films>,
    /// Who cuts trains.
    pub modes: Vec<Mode>,
    /// Length of a burst.
    pub burst_ns: u64,
    /// How long a run sends before it is measured: a player's warm-up, at least.
    pub warm_up_ns: u64,
    /// How long it is measured.
    pub measured_ns: u64,
    /// Sessions of 4 Mbit/s to begin with; of other rates in proportion.
    pub sessions_first: u32,
    /// Sessions at the most, 1 to [`SESSIONS_MAX`].
    pub sessions_max: u32,
    /// The search ends when what is held and what is missed are that close, as a part.
    pub precision: f64,
    /// What places and phases are drawn from.
    pub seed: u64,
}

/// One number of sessions, tried once.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Who cut trains.
    pub mode: Mode,
    /// The rate of each session.
    pub rate_bps: u64,
    /// What they played.
    pub films: Films,
    /// Who sent.
    pub mechanism: Contestant,
    /// How many sessions.
    pub sessions: u32,
    /// Why they were not held; empty if they were.
    pub missed: Vec<String>,
    /// What 999 of 1000 players would have had to buffer.
    pub needed_ns: Option<u64>,
    /// Processor time of the sending thread for a packet.
    pub cpu_ns_a_packet: f64,
    /// How busy its processor was, for whomever, from 0 to 1.
    pub core_busy: f64,
    /// Entries into the kernel for a packet.
    pub crossings_a_packet: f64,
    /// Packets of a send.
    pub packets_a_send: f64,
    /// How long the host of this virtual machine kept its processors away, together.
    pub stolen_ns: u64,
    /// A fixed piece of work on the sender's processor took this long, just before.
    pub yardstick_ns: u64,
}

impl Settings {
    /// Shorter, of what is asked first.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            rates_bps: vec![4_000_000],
            films: vec![Films::One],
            modes: vec![Mode::Uso],
            warm_up_ns: 1_100_000_000,
            measured_ns: 900_000_000,
            precision: 0.3,
            ..Self::default()
        }
    }

    /// Refuses what cannot be measured, in words with the bound.
    ///
    /// # Errors
    ///
    /// [`ExperimentError::Settings`].
    pub fn check(&self) -> Result<(), ExperimentError> {
        let is_nothing = self.mechanisms.is_empty()
            || self.rates_bps.is_empty()
            || self.films.is_empty()
            || self.modes.is_empty();
        let is_udp = |one: &Contestant| one.transport() == serve::Transport::Udp;
        bounds! {
            self.sessions_max, 1..=SESSIONS_MAX, Count, "sessions";
            self.sessions_first, 1..=self.sessions_max, Count, "sessions to begin with";
            self.warm_up_ns, 1_000_000_000..=60_000_000_000, Nanoseconds, "of warm-up";
        }
        refuse! { ExperimentError::Settings;
            is_nothing => "nothing to do: ask for a mechanism, a rate, films and a mode";
            !self.mechanisms.iter().all(is_udp)
                => "datagrams alone are compared: leave out what sends on connections or encrypts";
            !(0.01..=1.0).contains(&self.precision) => "a precision of 0.01 to 1 can be had";
        }
        for &rate_bps in &self.rates_bps {
            self.of_rate(rate_bps, Films::One).check()?;
        }
        Ok(())
    }

    /// Where a search begins.
    pub(super) fn first(&self, rate_bps: u64) -> u32 {
        let first = u64::from(self.sessions_first) * 4_000_000 / rate_bps.max(1);
        u32::try_from(first)
            .unwrap_or(u32::MAX)
            .clamp(1, self.sessions_max)
    }

    /// What a run of that rate is: with as many sessions as can be tried.
    pub(super) fn of_rate(&self, rate_bps: u64, films: Films) -> serve::Settings {
        let mut settings = serve::Settings {
            sessions: self.sessions_max,
            rate_bps,
            burst_ns: self.burst_ns,
            warm_up_ns: self.warm_up_ns,
            measured_ns: self.measured_ns,
            repeats: 1,
            modes: self.modes.clone(),
            contestants: self.mechanisms.clone(),
            has_own_films: films == Films::Each,
            keep_awake: true,
            seed: self.seed,
            ..serve::Settings::default()
        };
        while settings.has_own_films && own_films_bytes(&settings) > OWN_FILMS_BYTES_MAX {
            settings.sessions = settings.sessions * 9 / 10;
        }
        settings
    }

    /// What a player buffers: two bursts, and what packets may be late.
    pub(super) fn buffer_ns(&self) -> u64 {
        2 * self.burst_ns + LATE_NS
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mechanisms: vec![
                Contestant::RtpSendfile,
                Contestant::RtpSendfileMore,
                Contestant::ReadSendLoop,
                Contestant::MmapWritev,
                Contestant::Engine(PathName::Sendto),
                Contestant::Engine(PathName::Sendmmsg),
                Contestant::Engine(PathName::SendmmsgGso),
                Contestant::OwnHeaders,
                Contestant::ENGINE,
            ],
            rates_bps: vec![500_000, 4_000_000, 20_000_000],
            films: vec![Films::One, Films::Each],
            modes: vec![Mode::Uso, Mode::SoftwareGso],
            burst_ns: 20_000_000,
            warm_up_ns: 1_500_000_000,
            measured_ns: 3_000_000_000,
            sessions_first: 500,
            sessions_max: SESSIONS_MAX,
            precision: 0.1,
            seed: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_refused() {
        Settings::default().check().unwrap();
        Settings::quick().check().unwrap();
        type Change = fn(&mut Settings);
        let bad: [Change; 9] = [
            |s| s.mechanisms.clear(),
            |s| s.rates_bps.clear(),
            |s| s.films.clear(),
            |s| s.modes.clear(),
            |s| s.mechanisms.push(Contestant::Interleaved),
            |s| s.rates_bps.push(499_999),
            |s| s.sessions_max = SESSIONS_MAX + 1,
            |s| s.warm_up_ns = 999_999_999,
            |s| s.precision = 0.0,
        ];
        for (number, change) in bad.into_iter().enumerate() {
            let mut settings = Settings::default();
            change(&mut settings);
            assert!(settings.check().is_err(), "change {number}");
        }
    }

    #[test]
    fn searches_begin_by_rate_and_own_films_fit() {
        let settings = Settings::default();
        let first = [500_000, 4_000_000, 20_000_000].map(|rate| settings.first(rate));
        assert_eq!(first, [4000, 500, 100]);
        assert_eq!(settings.first(100_000_000_000), 1);
        for rate_bps in settings.rates_bps.iter().copied() {
            assert_eq!(
                settings.of_rate(rate_bps, Films::One).sessions,
                SESSIONS_MAX
            );
            let own = settings.of_rate(rate_bps, Films::Each);
            assert!(own.has_own_films && own_films_bytes(&own) <= OWN_FILMS_BYTES_MAX);
            assert!(own.sessions > 100, "{}", own.sessions);
        }
        assert_eq!(settings.buffer_ns(), 60_000_000);
    }
}
