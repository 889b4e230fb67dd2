//! `onrush-lab bench group`, on a terminal.

use std::io::Write;
use std::process::ExitCode;

use clap::Args;
use onrush_measure::group::many::Many;
use onrush_measure::group::{self, Change, GroupRecord, Load, Settings};
use onrush_measure::model::beside;
use onrush_testkit::testbed::Mode;

use crate::beside::Predicted;
use crate::frame::{Counters, Output, VERSION, bar_of_part, settings};

/// What a group send costs as the group grows, by each way
///
/// Sends datagrams and trains to groups of 1 to 4000 members by each way of group unicast, turn
/// about, with the group replaced before every send, one member of it, and none; a sink counts what
/// arrives. So does a socket of an unmodified program with SO_SETSENDGRP (--ways sendgrp), which
/// takes 1024 members at the most. With 480 members the program at the device is to cost at most a
/// third of a loop of sendto and half of sendmmsg for single packets, and a fortieth of the loop
/// for trains of 40; replacing the group is to add at most 5 %. Then sends to 1000 groups of 10,
/// 100 of 100 and 1 of 10,000, and past them: a packet of others is to cost at most 30 ns more.
/// Then drops datagrams at points of their way, to tell where their time goes. Takes more than an
/// hour, --quick some minutes. Needs root.
#[derive(Args, Debug)]
pub(crate) struct Group {
    /// Only what is judged, with fewer runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// Members of the groups, one size after the other
    #[arg(long, value_name = "N", value_delimiter = ',')]
    members: Option<Vec<u16>>,

    /// Bytes of a packet, or packets and bytes (40x1328)
    #[arg(long, value_name = "LOAD", value_delimiter = ',', value_parser = load)]
    loads: Option<Vec<Load>>,

    /// Ways: kernel, uring, sendmmsg, loop, and sendgrp, a socket with SO_SETSENDGRP
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

    /// Only so many groups of so many members (1000x10)
    #[arg(long, value_name = "GROUPS", value_delimiter = ',', value_parser = many)]
    #[arg(conflicts_with_all = ["members", "ways", "changes", "spread", "unsliced"])]
    many: Option<Vec<Many>>,

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
    let mut settings = arguments.settings();
    settings.counters = arguments.counters.are_asked()?;
    let measure = |command: &str| group::run(&settings, VERSION, command, bar_of_part());
    arguments.output.of(group::NAME, measure, report, out)
}

impl Group {
    fn settings(&self) -> Settings {
        let base = settings(self.quick, Settings::quick, Settings::default);
        Settings {
            members: match &self.many {
                Some(_) => Vec::new(),
                None => self.members.clone().unwrap_or(base.members),
            },
            // Who asks for certain members has no use for ten thousand.
            many: match (&self.many, &self.members) {
                (Some(many), _) => many.clone(),
                (None, Some(_)) => Vec::new(),
                (None, None) => base.many,
            },
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
            sliced_bytes: if self.unsliced || self.many.is_some() {
                Vec::new()
            } else {
                base.sliced_bytes
            },
            packets_max: base.packets_max,
            counters: false,
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

fn many(text: &str) -> Result<Many, String> {
    let Some((groups, members)) = text.split_once('x') else {
        return Err(format!("{text:?} is no groups; say 1000x10"));
    };
    match (groups.parse(), members.parse()) {
        (Ok(groups), Ok(members)) if groups > 0 && members > 0 => Ok(Many::new(groups, members)),
        _ => Err(format!("{text:?} is no groups; say 1000x10")),
    }
}
