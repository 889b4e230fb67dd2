//! `onrush-lab bench mechanisms`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::experiment::Keep;
use onrush_measure::mechanisms::{self, Films, Settings};
use onrush_measure::serve::Contestant;

use crate::frame::{Modes, Output, VERSION, bar_of_parts, settings};
use onrush_cli::units::{Rate, Time};

/// How many timely viewers each way of sending holds
///
/// Paces real sessions on one processor by the paper's paths, a packet at a time, and by the
/// server's data paths. The number of sessions doubles until one viewer in 1000 would have had to
/// buffer more than two bursts and 20 ms for 999 of 1000 packets, or not all was sent that was due,
/// and is bisected; all ways take turns at each step. Of three rates, of one film and of a film
/// each, which takes about two hours; --quick, of 4 Mbit/s and one film, about two minutes. What
/// was measured so far is in the file of --json meanwhile. Needs root and two processors.
#[derive(Args, Debug)]
pub(crate) struct Mechanisms {
    /// One rate, one film, one mode, shorter
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Who sends, one or several: rtp_sendfile, rtp_sendfile_more, read_send_loop, mmap_writev,
    /// sendto, sendmmsg, sendmmsg_gso, uring_vectored_zc, uring_registered_zc [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = contestant)]
    ways: Vec<Contestant>,

    /// Rates of sessions [default: 500kbit/s,4Mbit/s,20Mbit/s; quick: 4Mbit/s]
    #[arg(long, value_name = "RATES", value_delimiter = ',')]
    rates: Vec<Rate>,

    /// What sessions play, one or both: one, each [default: both; quick: one]
    #[arg(long, value_name = "FILMS", value_delimiter = ',')]
    films: Vec<Films>,

    /// How long each number is measured [default: 3s; quick: 900ms]
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// The most sessions that are tried
    #[arg(long, value_name = "N", default_value_t = Settings::default().sessions_max)]
    max: u32,

    /// Who cuts trains: uso, software-gso or both [default: both; quick: uso]
    #[arg(long, value_name = "MODE", hide_possible_values = true)]
    mode: Option<Modes>,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Mechanisms, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let settings = arguments.settings();
    let measure = |command: &str, keep: Keep<'_, _, _>| {
        mechanisms::run(&settings, VERSION, command, bar_of_parts(), keep)
    };
    let output = &arguments.output;
    output.of_long(mechanisms::NAME, measure, mechanisms::report, out)
}

impl Mechanisms {
    fn settings(&self) -> Settings {
        let mut all = settings(self.quick, Settings::quick, Settings::default);
        if !self.ways.is_empty() {
            all.mechanisms.clone_from(&self.ways);
        }
        if !self.rates.is_empty() {
            all.rates_bps = self.rates.iter().map(|rate| rate.0).collect();
        }
        if !self.films.is_empty() {
            all.films.clone_from(&self.films);
        }
        if let Some(mode) = self.mode {
            all.modes = mode.modes();
        }
        all.measured_ns = self.time.map_or(all.measured_ns, |time| time.nanos());
        all.sessions_max = self.max;
        all.sessions_first = all.sessions_first.min(self.max);
        all
    }
}

/// One that sends, by its name in tables.
pub(super) fn contestant(name: &str) -> Result<Contestant, String> {
    Contestant::try_from(name.to_owned())
}
