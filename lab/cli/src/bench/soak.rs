//! `onrush-lab bench soak`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_measure::capacity::soak::{self, Settings, SoakRecord};
use onrush_measure::capacity::soak_report;
use onrush_measure::film_kind::FilmKind;
use onrush_measure::load::{Behaviour, Progress};

use crate::frame::{Output, VERSION, bar_of_time};
use crate::server_program::server_program;
use onrush_cli::units::Time;

/// A long day of viewers in a short time
///
/// Viewers arrive, jump, pause and leave at random, and films are replaced while they are watched.
/// The server's memory is to stay flat and its packets as punctual as they were, and each packet
/// that it says it has sent is to be counted at the other end. Takes twenty minutes, --quick two.
/// Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Soak {
    /// Two minutes
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Viewers at once
    #[arg(short = 'n', long, value_name = "N", default_value_t = Settings::default().clients)]
    clients: u32,

    /// How long [default: 20m]
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// Leave after so long, on average; another comes
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(60)))]
    stay: Time,

    /// Jump to another place this often, on average
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(30)))]
    seek_every: Time,

    /// What films are kept in, in turn: ts, mp4, mkv
    #[arg(long, value_name = "KINDS", value_delimiter = ',',
          default_values_t = Settings::default().media)]
    media: Vec<FilmKind>,

    /// Films
    #[arg(long, value_name = "N", default_value_t = Settings::default().files)]
    files: u32,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Soak, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let measure = |command: &str| -> anyhow::Result<SoakRecord> {
        let bar = bar_of_time();
        let progress = move |progress: Progress| {
            let watching = format!("{} watching", progress.watching);
            bar(progress.elapsed_ns, progress.total_ns, &watching);
        };
        let onrush = server_program()?;
        Ok(soak::run(
            &arguments.settings(),
            &onrush,
            VERSION,
            command,
            progress,
        )?)
    };
    arguments.output.of(soak::NAME, measure, soak_report, out)
}

impl Soak {
    fn settings(&self) -> Settings {
        let default = Settings::default();
        let quick = self.quick.then_some(Time(Duration::from_secs(100)));
        let time_ns = self.time.or(quick);
        let time_ns = time_ns.map_or(default.time_ns, |time| time.nanos());
        Settings {
            clients: self.clients,
            time_ns,
            // At least sixty slices, of a second at least.
            slice_ns: default.slice_ns.min((time_ns / 60).max(1_000_000_000)),
            behaviour: Behaviour {
                stay_ns: self.stay.nanos(),
                seek_every_ns: self.seek_every.nanos(),
                ..default.behaviour
            },
            files: self.files,
            media: self.media.clone(),
            ..default
        }
    }
}
