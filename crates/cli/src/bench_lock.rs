//! `onrush bench lock`, on a terminal.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use onrush_measure::experiment::{Environment, Record};
use onrush_measure::lock::reliability::{self, ReliabilityRecord, Task};
use onrush_measure::lock::report::Report;
use onrush_measure::lock::{self, LockRecord, Settings, plots};

/// What locking memory costs, and whether it stays in place
///
/// Locks and unlocks private and SysV memory of 4 KiB to 16 MiB by the bare system calls and by the
/// manager, for the first time and again, and asks the cache of registrations. The manager is to add
/// at most 1 us to the registration of less than 64 KiB and 10 % to others, a cache hit is to take at
/// most 60 ns, and 100,000 areas are to make no call more than three times slower than 100 do. An
/// account that may lock little gets what fits, and is told what was left out.
///
/// With --reliability: fragments and compacts memory, pushes it into a swap file that it makes and
/// removes (/var/tmp/onrush-bench-lock.swap), forks and writes, while other processes lock and unlock
/// parts of it and some are killed. No pinned page may be at another place afterwards; unlocked ones
/// have to be. Needs root, 6 GiB of free memory and util-linux.
#[derive(Args, Debug)]
pub(crate) struct Lock {
    /// Prove that pinned memory stays where it is
    #[arg(long)]
    reliability: bool,

    /// Shorter, with less memory
    #[arg(long)]
    quick: bool,

    /// Write every sample to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print such a file's table, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    from: Option<PathBuf>,

    /// Draw the paper's figures 7 and 8 into this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath, conflicts_with = "reliability")]
    plots: Option<PathBuf>,

    /// What the processes of a reliability run are started with
    #[arg(long, hide = true, num_args = 3, value_names = ["ADDRESS", "TASK", "SEED"])]
    worker: Option<Vec<String>>,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Lock, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    if let Some(worker) = &arguments.worker {
        return work(worker, out);
    }
    let passed = if arguments.reliability {
        let record: ReliabilityRecord = match &arguments.from {
            Some(file) => Record::read(file, reliability::NAME)?,
            None => prove(arguments)?,
        };
        if let Some(file) = &arguments.json {
            record.write(file)?;
        }
        head(&record.environment, out)?;
        let report = reliability::Report::of(&record);
        write!(out, "{report}")?;
        report.passed()
    } else {
        let record: LockRecord = match &arguments.from {
            Some(file) => Record::read(file, lock::NAME)?,
            None => measure(arguments)?,
        };
        if let Some(file) = &arguments.json {
            record.write(file)?;
        }
        if let Some(folder) = &arguments.plots {
            draw(&record, folder)?;
        }
        head(&record.environment, out)?;
        let report = Report::of(&record);
        write!(out, "{report}")?;
        report.passed()
    };
    Ok(if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn draw(record: &LockRecord, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("can not make {}", folder.display()))?;
    for (name, svg) in plots::all(record)? {
        let file = folder.join(name);
        fs::write(&file, svg).with_context(|| format!("can not write {}", file.display()))?;
    }
    Ok(())
}

fn measure(arguments: &Lock) -> anyhow::Result<LockRecord> {
    let settings = if arguments.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    let (bar, progress) = bar();
    let record = lock::carry_out(&settings, env!("ONRUSH_VERSION"), &command(), progress);
    bar.finish_and_clear();
    Ok(record?)
}

fn prove(arguments: &Lock) -> anyhow::Result<ReliabilityRecord> {
    let settings = if arguments.quick {
        reliability::Settings::quick()
    } else {
        reliability::Settings::full()
    };
    let program = std::env::current_exe()?;
    let worker = |address: &str, task: Task, seed: u64| {
        let task = if task == Task::Hold { "hold" } else { "wander" };
        let mut command = Command::new(&program);
        command.args(["bench", "lock", "--worker", address, task]);
        command.arg(seed.to_string());
        command
    };
    let (bar, progress) = bar();
    let version = env!("ONRUSH_VERSION");
    let record = reliability::carry_out(&settings, version, &command(), &worker, progress);
    bar.finish_and_clear();
    Ok(record?)
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

pub(crate) fn bar() -> (ProgressBar, impl FnMut(f64)) {
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent} %  {elapsed}")
            .expect("a constant that has been seen to work"),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    let moved = bar.clone();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of one, in thousandths"
    )]
    (bar, move |part| moved.set_position((part * 1000.0) as u64))
}

pub(crate) fn command() -> String {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    format!("onrush {}", arguments.join(" "))
}

pub(crate) fn head(environment: &Environment, out: &mut dyn Write) -> anyhow::Result<()> {
    let on = match &environment.virtual_machine {
        Some(host) => format!("a virtual machine ({host})"),
        None => "metal".to_owned(),
    };
    writeln!(
        out,
        "{}, {} processors, on {on}, load {:.1}; Linux {}; onrush {}; {}",
        environment.cpu,
        environment.cores.len(),
        environment.load_before,
        environment.kernel,
        environment.version,
        environment.date
    )?;
    Ok(writeln!(out, "{}", environment.command)?)
}
