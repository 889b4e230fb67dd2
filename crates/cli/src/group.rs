//! `onrush group`: gives the sockets of other programs `SO_SETSENDGRP`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueHint};
use onrush_group::{Agent, AgentOptions};

use crate::signals::{Signals, log_to_stderr};
use crate::values::LogFormat;

/// Let one send of any program reach many receivers
///
/// docs/group.md tells how to use it from C, Python and Go.
#[derive(Args, Debug)]
pub(crate) struct GroupCommand {
    #[command(subcommand)]
    command: Serving,
}

#[derive(Debug, Subcommand)]
enum Serving {
    /// Give the sockets of a control group SO_SETSENDGRP
    ///
    /// Programs in it, and in control groups below it, give a UDP socket its members by
    /// setsockopt(2), and what the socket sends then goes to each of them. They need no capability
    /// for that; this needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. It serves the network
    /// namespace that it is started in, until it is ended.
    #[command(after_long_help = EXAMPLES)]
    Serve(ServeGroups),
}

#[derive(Args, Debug)]
struct ServeGroups {
    /// The control group (version 2), by its folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    cgroup: PathBuf,

    /// Sockets with members, of each control group
    ///
    /// Twice as many may keep lists of members in the kernel, 128 KiB each.
    #[arg(long, value_name = "N", default_value = "1000")]
    groups_max: u64,

    /// Members of all of these
    #[arg(long, value_name = "N", default_value = "10000")]
    members_max: u64,

    /// Packets a second to all members of a control group, 0 for no limit
    ///
    /// A send that would be more is dropped whole, and counted.
    #[arg(long, value_name = "N", default_value = "1000000")]
    packets_max: u64,

    /// Take members only that have sent to the socket before
    #[arg(long)]
    consent: bool,
}

const EXAMPLES: &str = "\
Examples:
  mkdir /sys/fs/cgroup/games
  onrush group serve --cgroup /sys/fs/cgroup/games --consent &
  echo $$ >/sys/fs/cgroup/games/cgroup.procs
  ./game-server";

pub(crate) fn run(arguments: &GroupCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let Serving::Serve(arguments) = &arguments.command;
    log_to_stderr(LogFormat::Text)?;
    let mut signals = Signals::listen(false).context("cannot listen for signals")?;
    let options = AgentOptions {
        groups_max: arguments.groups_max,
        members_max: arguments.members_max,
        packets_per_second_max: arguments.packets_max,
        needs_consent: arguments.consent,
    };
    let mut agent = Agent::start(&arguments.cgroup, &options)?;
    let devices: Vec<_> = agent.devices().collect();
    writeln!(
        out,
        "SO_SETSENDGRP for programs in {}, at {}",
        arguments.cgroup.display(),
        devices.join(", ")
    )?;
    out.flush()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    thread::spawn(move || {
        signals.next_end();
        over.store(true, Ordering::Relaxed);
    });
    while !is_over.load(Ordering::Relaxed) {
        agent.poll(WAIT)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// As long a signal may wait.
const WAIT: Duration = Duration::from_millis(50);
