//! `onrush-lab bench group`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::group::{self, Change, GroupRecord, Load, Settings};
use onrush_measure::model::beside;
use onrush_testkit::testbed::Mode;

use crate::beside::Predicted;
use crate::frame::{Output, VERSION, bar_of_part, settings};

/// What a group send costs as the group grows, by each way
///
/// Sends datagrams and trains to groups of 1 to 4000 members by each way of group unicast, turn
/// about, with the group replaced before every send, one member of it, and none; a sink counts what
/// arrives. With 480 members the program at the device is to cost at most a third of a loop of
/// sendto and half of sendmmsg for single packets, and a fortieth of the loop for trains of 40;
/// replacing the group is to add at most 5 %. Then drops datagrams at points of their way, to tell
/// where their time goes. Takes the better part of an hour, --quick about a minute. Needs root.
#[derive(Args, Debug)]
pub(crate) struct Group {
    /// Only what is judged, with fewer runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// Members of the groups, one size after the other
    #[arg(long, value_name = "N", value_delimiter = ',')]
    members: Option<Vec<u16>>,

    /// Bytes of a packet, or packets and bytes (40x1328)
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = load)]
    loads: Option<Vec<Load>>,

    /// Ways: kernel, uring, sendmmsg, loop
    #[arg(long, value_name = "WAY", value_delimiter = ',')]
    ways: Option<Vec<String>>,

    /// What happens to the group before a send: none, all, one
    #[arg(long, value_name = "CHANGE", value_delimiter = ',')]
    changes: Option<Vec<Change>>,

    /// Give each member an address of its own, behind one gateway
    #[arg(long)]
    spread: bool,

    /// Runs of everything [default: 10; quick: 5]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// Sends of a run, at most [default: 1000; quick: 200]
    #[arg(long, value_name = "N")]
    sends: Option<u32>,

    /// Only with trains cut by the device
    #[arg(long)]
    uso: bool,

    /// Only with trains cut by the kernel, before the device
    #[arg(long, conflicts_with = "uso")]
    software_gso: bool,

    /// Slice nothing: leave figure 5 out
    #[arg(long)]
    unsliced: bool,

    #[command(flatten)]
    predicted: Predicted,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Group, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let predicted = arguments.predicted.model()?;
    let report = |record: &GroupRecord| {
        let mut report = group::report(record);
        report.add(predicted.told(|model| beside::groups(record, model)));
        report
    };
    let settings = arguments.settings();
    let measure = |command: &str| group::run(&settings, VERSION, command, bar_of_part());
    arguments.output.of(group::NAME, measure, report, out)
}

impl Group {
    fn settings(&self) -> Settings {
        let base = settings(self.quick, Settings::quick, Settings::default);
        Settings {
            members: self.members.clone().unwrap_or(base.members),
            loads: self.loads.clone().unwrap_or(base.loads),
            ways: self.ways.clone().unwrap_or(base.ways),
            changes: self.changes.clone().unwrap_or(base.changes),
            spread: self.spread,
            repeats: self.repeats.unwrap_or(base.repeats),
            sends: self.sends.unwrap_or(base.sends),
            modes: match (self.uso, self.software_gso) {
                (true, _) => vec![Mode::Uso],
                (_, true) => vec![Mode::SoftwareGso],
                _ => base.modes,
            },
            sliced_bytes: if self.unsliced {
                Vec::new()
            } else {
                base.sliced_bytes
            },
            packets_max: base.packets_max,
        }
    }
}

fn load(text: &str) -> Result<Load, String> {
    let (packets, bytes) = text.split_once('x').unwrap_or(("1", text));
    match (packets.parse(), bytes.parse()) {
        (Ok(packets), Ok(bytes)) if packets > 0 && bytes > 0 => Ok(Load::new(packets, bytes)),
        _ => Err(format!("{text:?} is no load; say 100, or 40x1328")),
    }
}
