//! `onrush-lab bench game`: how many players a running game server holds, by a loop of sends and by
//! a group.
//!
//! The paper (Karsten, Song, Kwok, Brecht: *Efficient Operating System Support for Group Unicast*)
//! computed its table 1 from the time of a send: a server whose other work grows with its N players
//! could have N' by the group. Here a server runs (`world`): so many times a second it moves its
//! players, writes down the state of each part of its world, and tells each player of all others
//! around it, so that state and interest sets grow with N as the world stays as large as it is.
//! Each part of the world is a group, which players join and leave as they walk. The table is
//! computed as in the paper, and beside it N' is found by trying: the most players with whom hardly
//! a tick is late.

mod report;
mod run;
mod world;

use onrush_group::Way;
use onrush_testkit::testbed::Mode;
use serde::{Deserialize, Serialize};

use crate::error::ExperimentError;
use crate::experiment::{Environment, Record};
pub use report::report;
use run::Bench;

/// Its name on the command line and in files.
pub const NAME: &str = "game";

/// What is measured.
pub type GameRecord = Record<Settings, Run>;

/// Players of a run, at most: each has a port at the sink.
pub const PLAYERS_MAX: u16 = 40_000;

/// The part of a run's ticks that may be late where its players are held.
pub const LATE_MAX: f64 = 0.01;

/// Ways that are compared: the paper's user loop, the kernel's, and the group.
pub const WAYS: [Way; 3] = [Way::Loop, Way::Sendmmsg, Way::Kernel];

/// How the experiment is carried out.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Settings {
    /// Ticks a second, each of these in turn.
    pub rates_hz: Vec<u32>,
    /// Players of the rows of table 1.
    pub players: Vec<u16>,
    /// The most players that are tried.
    pub players_max: u16,
    /// Who cuts trains.
    pub mode: Mode,
    /// Ticks of a run.
    pub ticks: u32,
    /// How often everything has its turn.
    pub repeats: u32,
}

/// A server that ran for so many ticks.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Run {
    /// Ticks a second.
    pub rate_hz: u32,
    /// By which way it sent.
    pub way: String,
    /// Its players.
    pub players: u16,
    /// Whether this was a step of the search for the most players; else it is a row's.
    pub is_search: bool,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// Ticks.
    pub ticks: u32,
    /// Ticks that ended after the next one was due.
    pub late: u32,
    /// Time of a tick that was not spent on sending, in ns.
    pub other_ns: f64,
    /// Time of a tick that was spent on sending and on members who changed groups, in ns.
    pub send_ns: f64,
    /// Bytes of state that a player was told in a tick, on average.
    pub state_bytes: f64,
    /// Players who changed groups in a tick, on average.
    pub moved: f64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Why it does not count; empty if it does.
    pub void: String,
}

impl Settings {
    /// All of it.
    #[must_use]
    pub fn full() -> Self {
        Self {
            rates_hz: vec![30, 60, 128],
            players: vec![40, 120, 240, 360, 480],
            players_max: PLAYERS_MAX,
            mode: Mode::Uso,
            ticks: 100,
            repeats: 5,
        }
    }

    /// The same, shorter and less often.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            ticks: 30,
            repeats: 2,
            ..Self::full()
        }
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let is_possible = |players: &u16| (1..=PLAYERS_MAX).contains(players);
        let all = self.players.iter().chain([&self.players_max]);
        let why = match () {
            () if !all.clone().all(is_possible) => {
                format!("a server has 1 to {PLAYERS_MAX} players")
            }
            () if !self.rates_hz.iter().all(|hz| (1..=1000).contains(hz)) => {
                "a server has 1 to 1000 ticks a second".to_owned()
            }
            () if !(1..=10_000).contains(&self.ticks) => "a run has 1 to 10000 ticks".to_owned(),
            () => return Ok(()),
        };
        Err(ExperimentError::Settings(why))
    }
}

impl Run {
    /// Whether the server kept up with its ticks.
    #[must_use]
    pub fn is_held(&self) -> bool {
        f64::from(self.late) <= LATE_MAX * f64::from(self.ticks)
    }
}

/// Carries the experiment out. `version` and `command` go into the record; `progress` is told which
/// part of it is done.
///
/// # Errors
///
/// If it could not run. What went wrong with a run makes that run void.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl FnMut(f64),
) -> Result<GameRecord, ExperimentError> {
    settings.check()?;
    let mut record = Record::new(NAME, Environment::here(version, command), settings.clone());
    let mut bench = Bench::set_up(settings)?;
    record.environment.network = bench.network()?;
    bench.run_all(&mut record.runs, progress)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_tried_is_refused() {
        let with = |change: fn(&mut Settings)| {
            let mut settings = Settings::quick();
            change(&mut settings);
            settings.check().is_ok()
        };
        assert!(with(|_| ()));
        assert!(with(|it| it.players = vec![1, PLAYERS_MAX]));
        assert!(!with(|it| it.players = vec![0]));
        assert!(!with(|it| it.players_max = PLAYERS_MAX + 1));
        assert!(!with(|it| it.rates_hz = vec![0]));
        assert!(!with(|it| it.rates_hz = vec![1001]));
        assert!(!with(|it| it.ticks = 0));
    }
}
