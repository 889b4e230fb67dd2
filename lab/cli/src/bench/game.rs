//! `onrush-lab bench game`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::game::{self, Settings};
use onrush_testkit::testbed::Mode;

use crate::frame::{Output, VERSION, bar_of_part, settings};

/// How many players a running game server holds, by a loop and by groups
///
/// A server ticks 30, 60 and 128 times a second: it moves its players, writes the state of each of
/// the 16 parts of its world, and tells every player of all others around it, who are the more the
/// more players there are. Players join and leave groups as they walk. A sink counts what arrives.
/// Tells table 1 of the paper (40 to 480 players) and, found by trying, the most players with whom
/// at most one tick in a hundred is late, by a loop of sendto, by sendmmsg and by groups. Takes
/// about half an hour, --quick some minutes. Needs root.
#[derive(Args, Debug)]
pub(crate) struct Game {
    /// Shorter, and twice
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Ticks a second, one rate after the other [default: 30,60,128]
    #[arg(long, value_name = "HZ", value_delimiter = ',')]
    rates: Option<Vec<u32>>,

    /// Players of the table's rows [default: 40,120,240,360,480]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    players: Option<Vec<u16>>,

    /// Try no more players than that [default: 40000]
    #[arg(long, value_name = "N")]
    players_max: Option<u16>,

    /// Ticks of a run [default: 100; quick: 30]
    #[arg(long, value_name = "N")]
    ticks: Option<u32>,

    /// How often everything has its turn [default: 5; quick: 2]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// With trains cut by the kernel, before the device
    #[arg(long)]
    software_gso: bool,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Game, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let settings = arguments.settings();
    let measure = |command: &str| game::run(&settings, VERSION, command, bar_of_part());
    arguments.output.of(game::NAME, measure, game::report, out)
}

impl Game {
    fn settings(&self) -> Settings {
        let base = settings(self.quick, Settings::quick, Settings::full);
        Settings {
            rates_hz: self.rates.clone().unwrap_or(base.rates_hz),
            players: self.players.clone().unwrap_or(base.players),
            players_max: self.players_max.unwrap_or(base.players_max),
            mode: if self.software_gso {
                Mode::SoftwareGso
            } else {
                base.mode
            },
            ticks: self.ticks.unwrap_or(base.ticks),
            repeats: self.repeats.unwrap_or(base.repeats),
        }
    }
}
