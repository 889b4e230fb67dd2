//! `onrush-lab bench relay`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_group::Way;
use onrush_measure::relay::{self, BUDGET_NS, Case, IN_KERNEL, Settings};

use crate::frame::{Counters, Output, VERSION, bar_of_part, settings};
use onrush_cli::units::Time;

/// How many receivers of a live stream one processor holds on time
///
/// A source sends one stream of 4 Mbit/s, a packet at a time; the relay gives it to more and more
/// receivers, without a delay and with one of 20ms, on a processor where it also arrives. A sink
/// counts what arrives, and how late: from the source's send to the receiver. On time is a packet
/// that is no later than the delay and 20 ms; receivers are held if none of their packets is lost
/// and 99.9 % are on time. 3000 are to be held without a delay, in the kernel (for less than in a
/// process) and not, also while somebody joins or leaves 200 times a second, and 10,000 with 20ms:
/// in the kernel by having the device keep what arrives, so that it comes in trains. Takes about
/// seven minutes. Needs root and two processors, and is worth as much as the machine is
/// quiet.
#[derive(Args, Debug)]
#[command(mut_arg("from", |from| from.conflicts_with_all(MEASURED)))]
pub(crate) struct RelayBench {
    /// Only what is judged, shorter and once
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// Try so many receivers instead; repeatable
    #[arg(long, value_name = "N")]
    receivers: Vec<u32>,

    /// With this delay [default: 0ms]
    #[arg(long, value_name = "TIME", requires = "receivers")]
    delay: Option<Time>,

    /// Replicated this way, or in-kernel; repeatable [default: the best]
    #[arg(long, value_name = "WAY", value_parser = way)]
    way: Vec<String>,

    /// While somebody joins or leaves so many times a second
    #[arg(long, value_name = "N", default_value_t = 0, requires = "receivers")]
    changes: u32,

    /// Runs of each [default: 3; quick: 1]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,
}

/// What says how to measure, and nothing of a record.
const MEASURED: &[&str] = &["quick", "receivers", "delay", "way", "changes", "repeats"];

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &RelayBench, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut settings = arguments.settings();
    settings.counters = arguments.counters.are_asked()?;
    let measure = |command: &str| relay::run(&settings, VERSION, command, bar_of_part());
    let output = &arguments.output;
    output.of(relay::NAME, measure, relay::report, out)
}

impl RelayBench {
    fn settings(&self) -> Settings {
        let mut settings = settings(self.quick, Settings::quick, Settings::full);
        if !self.receivers.is_empty() {
            let delay = self.delay.map_or(Duration::ZERO, |time| time.0);
            let case = |&receivers| Case {
                receivers,
                delay_ns: u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX),
                way: None,
                is_judged: false,
                changes_per_s: self.changes,
            };
            settings.cases = self.receivers.iter().map(case).collect();
        }
        if !self.way.is_empty() {
            let of_way = |way: &String| {
                let mut cases = settings.cases.clone();
                for case in &mut cases {
                    case.way = Some(way.clone());
                }
                cases
            };
            settings.cases = self.way.iter().flat_map(of_way).collect();
        }
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings
    }
}

fn way(text: &str) -> Result<String, String> {
    match text {
        IN_KERNEL => Ok(text.to_owned()),
        _ => text.parse::<Way>().map(|way| way.to_string()),
    }
}

const _: () = assert!(BUDGET_NS == 20_000_000, "as the help says");
