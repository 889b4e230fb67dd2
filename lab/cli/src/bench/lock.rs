//! `onrush-lab bench lock`, on a terminal.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

use clap::Args;
use onrush_measure::lock::caches::{self, CachesRecord};
use onrush_measure::lock::reliability::{self, ReliabilityRecord, Task};
use onrush_measure::lock::reuse::{self, ReuseRecord};
use onrush_measure::lock::{self, Settings};

use crate::frame::{Output, VERSION, bar_of_part, settings};

/// What locking memory costs, and whether it stays in place
///
/// Locks and unlocks private and SysV memory of 4 KiB to 16 MiB by the bare system calls and by the
/// manager, for the first time, again, and after another process has pinned it; beside 100,000
/// areas that do not touch; and asks the cache of registrations. The manager is to
/// add at most 1 us to the registration of less than 64 KiB and 10 % to others, a cache hit is to
/// take at most 60 ns, and 100,000 areas are to make no call more than three times slower than 100
/// do. An account that may lock little gets what fits, and is told what was left out.
///
/// With --reliability: fragments and compacts memory, pushes it into a swap file that it makes and
/// removes (/var/tmp/onrush-bench-lock.swap), forks and writes, while other processes lock and
/// unlock parts of it and some are killed. No pinned page may be at another place afterwards;
/// unlocked ones have to be. Needs root, 6 GiB of free memory and util-linux.
///
/// With --reuse: sends messages of 64 B to 16 MiB whose memory is used 1 to 1000 times, copied,
/// registered each time, and by a watched and a sealed cache of registrations, and says from which
/// message on each costs less than a copy. Needs root and two processors.
///
/// With --caches: asks caches of registrations without sending anything, ours beside UCX's where
/// libucx-dev and gcc are installed: what a use and a hit take, what munmap takes of memory that is
/// kept, and whether a cache notices that memory was replaced. None of ours may give out an old
/// registration. Needs two processors, and 256 MiB of memory that may be locked.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    /// Prove that pinned memory stays where it is
    #[arg(long, conflicts_with = "plots")]
    reliability: bool,

    /// Send from memory that is copied, registered, or found in a cache
    #[arg(long, conflicts_with = "reliability")]
    reuse: bool,

    /// Ask caches of registrations, ours and UCX's
    #[arg(long, conflicts_with_all = ["reliability", "reuse"])]
    caches: bool,

    /// Shorter, with less memory
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    /// What the processes of a reliability run are started with
    #[arg(long, hide = true, num_args = 3, value_names = ["ADDRESS", "TASK", "SEED"])]
    worker: Option<Vec<String>>,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Lock, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if let Some(worker) = &arguments.worker {
        return work(worker, out);
    }
    let output = &arguments.output;
    if arguments.reliability {
        let prove = |command: &str| prove(arguments, command);
        return output.of(reliability::NAME, prove, reliability::report, out);
    }
    if arguments.reuse {
        let send = |command: &str| send_again(arguments, command);
        return output.of(reuse::NAME, send, reuse::report, out);
    }
    if arguments.caches {
        let ask = |command: &str| ask_caches(arguments, command);
        return output.of(caches::NAME, ask, caches::report, out);
    }
    let settings = settings(arguments.quick, Settings::quick, Settings::full);
    let program = std::env::current_exe()?;
    let worker = worker_of(&program);
    let measure =
        |command: &str| lock::run(&settings, VERSION, command, Some(&worker), bar_of_part());
    output.of(lock::NAME, measure, lock::report, out)
}

fn prove(arguments: &Lock, command_line: &str) -> anyhow::Result<ReliabilityRecord> {
    use reliability::Settings;
    let settings = settings(arguments.quick, Settings::quick, Settings::full);
    let program = std::env::current_exe()?;
    let worker = worker_of(&program);
    let bar = bar_of_part();
    Ok(reliability::run(
        &settings,
        VERSION,
        command_line,
        &worker,
        bar,
    )?)
}

fn send_again(arguments: &Lock, command_line: &str) -> anyhow::Result<ReuseRecord> {
    use reuse::Settings;
    let settings = settings(arguments.quick, Settings::quick, Settings::full);
    Ok(reuse::run(&settings, VERSION, command_line, bar_of_part())?)
}

fn ask_caches(arguments: &Lock, command_line: &str) -> anyhow::Result<CachesRecord> {
    use caches::Settings;
    let settings = settings(arguments.quick, Settings::quick, Settings::full);
    let bar = bar_of_part();
    Ok(caches::run(&settings, VERSION, command_line, bar)?)
}

/// How another process is started that does a task.
fn worker_of(program: &Path) -> impl Fn(&str, Task, u64) -> Command + '_ {
    move |address, task, seed| {
        let task = if task == Task::Hold { "hold" } else { "wander" };
        let mut command = Command::new(program);
        command.args(["bench", "lock", "--worker", address, task]);
        command.arg(seed.to_string());
        command
    }
}

fn work(worker: &[String], out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let [address, task, seed] = worker else {
        anyhow::bail!("--worker takes an address, a task and a seed");
    };
    let task = if task == "hold" {
        Task::Hold
    } else {
        Task::Wander
    };
    let mut said = Ok(());
    reliability::work(address, task, seed.parse()?, || {
        said = writeln!(out, "ready").and_then(|()| out.flush());
    })?;
    said?;
    Ok(ExitCode::SUCCESS)
}
