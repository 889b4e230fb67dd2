//! `onrush bench http`, on a terminal.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use onrush_measure::experiment::Record;
use onrush_measure::http::report::Report;
use onrush_measure::http::{self, HttpRecord, Settings, plots};

/// CPU per gigabyte of downloads, and requests a second
///
/// Serves the same files on loopback by `onrush serve`, by a bare loop of blocking sendfile and, with
/// --peer, by nginx, each pinned to the same processor, turn about. One large download is to cost at
/// most 1.05 times the processor time of the loop; 64 at once at most what they cost nginx; and
/// requests for 100 KB files are to come at 0.9 times nginx's rate or more. Every byte is counted at
/// the client. Takes about three minutes, --quick one; needs two processors and no root.
#[derive(Args, Debug)]
pub(crate) struct Http {
    /// The server to compare with, which must be installed
    #[arg(long, value_name = "NAME")]
    peer: Option<Peer>,

    /// Smaller files, fewer runs
    #[arg(long)]
    quick: bool,

    /// Write every sample to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print such a file's table, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with_all = ["json", "quick", "peer"])]
    from: Option<PathBuf>,

    /// Draw charts into this folder
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peer {
    /// With `sendfile on` and one process.
    Nginx,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Http, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: HttpRecord = match &arguments.from {
        Some(file) => Record::read(file, http::NAME)?,
        None => measure(arguments)?,
    };
    if let Some(file) = &arguments.json {
        record.write(file)?;
    }
    if let Some(folder) = &arguments.plots {
        fs::create_dir_all(folder).with_context(|| format!("can not make {}", folder.display()))?;
        for (name, svg) in plots::all(&record)? {
            let file = folder.join(name);
            fs::write(&file, svg).with_context(|| format!("can not write {}", file.display()))?;
        }
    }
    let environment = &record.environment;
    writeln!(
        out,
        "{}, {} processors; Linux {}; onrush {}; {}; {}\n{}",
        environment.cpu,
        environment.cores.len(),
        environment.kernel,
        environment.version,
        record.settings.peer.as_deref().unwrap_or("no peer"),
        environment.date,
        environment.command
    )?;
    let report = Report::of(&record);
    write!(out, "{report}")?;
    Ok(if report.passed() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

fn measure(arguments: &Http) -> anyhow::Result<HttpRecord> {
    let mut settings = if arguments.quick {
        Settings::quick()
    } else {
        Settings::full()
    };
    if arguments.peer.is_some() {
        let version = http::peer_version();
        settings.peer = Some(version.context(
            "nginx does not run here; install it (apt-get install nginx-light), or leave --peer out",
        )?);
    }
    let program = std::env::current_exe()?;
    let serve = |files: &Path, address: SocketAddr| {
        let mut command = Command::new(&program);
        command.arg("serve").arg(files);
        command.args([
            "--rtsp=127.0.0.1:0",
            "--cache=1MiB",
            "--download-requests-max=1000000",
        ]);
        command.arg(format!("--http={address}"));
        command
    };
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let command = format!("onrush {}", arguments.join(" "));
    // Hidden by itself where stderr is no terminal.
    let bar = ProgressBar::new(1000).with_style(
        ProgressStyle::with_template("{bar:30} {percent} %  {elapsed}")
            .expect("a constant that has been seen to work"),
    );
    bar.enable_steady_tick(Duration::from_millis(500));
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of one, in thousandths"
    )]
    let progress = |part: f64| bar.set_position((part * 1000.0) as u64);
    let record = http::carry_out(
        &settings,
        env!("ONRUSH_VERSION"),
        &command,
        &serve,
        progress,
    );
    bar.finish_and_clear();
    Ok(record?)
}
