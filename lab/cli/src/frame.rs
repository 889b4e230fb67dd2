//! What all commands that measure have in common on a terminal: samples kept in files, a progress
//! bar, where it was measured, pictures, and the verdict as an exit code.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use onrush_measure::counters;
use onrush_measure::error::ExperimentError;
use onrush_measure::experiment::{AnyRecord, Environment, Keep, Record, without_secrets};
use onrush_measure::plot::Drawing;
use onrush_measure::report::of_record;
use onrush_measure::table::{Outcome, Report};
use onrush_testkit::testbed::Mode;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// How often what was measured so far is written, at the most.
const KEPT_EVERY: Duration = Duration::from_secs(10);

/// What goes into each record as the program's version.
pub(crate) const VERSION: &str = env!("ONRUSH_VERSION");

/// Where samples go and may come from, and where pictures go.
#[derive(Args, Debug)]
pub(crate) struct Output {
    /// Write every sample to this file (packed if *.gz)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Print such a file's table, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    from: Option<PathBuf>,

    /// Draw the pictures into this folder
    #[arg(long, aliases = ["figures", "svg"], value_name = "FOLDER",
          value_hint = ValueHint::DirPath)]
    plots: Option<PathBuf>,

    /// Write a page with tables and pictures to this file
    #[arg(long, hide_short_help = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,
}

/// Whether processors' counters are read.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Counters {
    /// Also count instructions, cycles and misses
    ///
    /// What the processor counts of those who send (perf_event_open), in user and in kernel mode,
    /// for each packet and each send. Such counts hold on a busy host, where times do not; many
    /// virtual machines show none. Times are a little longer meanwhile: compare them without.
    #[arg(long, hide_short_help = true, conflicts_with = "from")]
    counters: bool,
}

impl Counters {
    /// Whether they are asked for.
    ///
    /// # Errors
    ///
    /// If they are, and are not to be had here.
    pub(crate) fn are_asked(self) -> anyhow::Result<bool> {
        if self.counters {
            counters::available().context(
                "this machine shows no counters of instructions, cycles and misses \
                 (perf_event_open): run as root, on a machine that has them, or leave --counters \
                 out",
            )?;
        }
        Ok(self.counters)
    }
}

/// Who cuts trains.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Modes {
    Uso,
    SoftwareGso,
    Both,
}

impl Output {
    /// Carries an experiment out, which is told the command line, or reads one that was; prints its
    /// report and draws its pictures.
    /// Ends with 0 if all bounds were kept, and else with 1.
    pub(crate) fn of<S, R, E>(
        &self,
        experiment: &str,
        measure: impl FnOnce(&str) -> Result<Record<S, R>, E>,
        report: impl FnOnce(&Record<S, R>) -> Report,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode>
    where
        S: DeserializeOwned + Serialize,
        R: DeserializeOwned + Serialize,
        E: Into<anyhow::Error>,
    {
        let report = self.report_of(experiment, measure, report, out)?;
        Ok(outcome(report.passed()))
    }

    /// As [`Self::of`], and ends with 2 where no bound was missed, but something could not be
    /// judged.
    pub(crate) fn of_searched<S, R, E>(
        &self,
        experiment: &str,
        measure: impl FnOnce(&str) -> Result<Record<S, R>, E>,
        report: impl FnOnce(&Record<S, R>) -> Report,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode>
    where
        S: DeserializeOwned + Serialize,
        R: DeserializeOwned + Serialize,
        E: Into<anyhow::Error>,
    {
        let report = self.report_of(experiment, measure, report, out)?;
        Ok(ExitCode::from(judged(&report)))
    }

    /// As [`Self::of`], of an experiment that may take hours: what it has so far is in the file
    /// meanwhile.
    pub(crate) fn of_long<S, R, E>(
        &self,
        experiment: &str,
        measure: impl FnOnce(&str, Keep<'_, S, R>) -> Result<Record<S, R>, E>,
        report: impl FnOnce(&Record<S, R>) -> Report,
        out: &mut dyn Write,
    ) -> anyhow::Result<ExitCode>
    where
        S: DeserializeOwned + Serialize,
        R: DeserializeOwned + Serialize,
        E: Into<anyhow::Error>,
    {
        let mut kept: Option<Instant> = None;
        let mut keep = |record: &Record<S, R>| {
            let is_due = kept.is_none_or(|kept| kept.elapsed() >= KEPT_EVERY);
            if let Some(file) = self.json.as_ref().filter(|_| is_due) {
                // Where it cannot be written, the end tells why.
                if record.write(file).is_ok() {
                    kept = Some(Instant::now());
                }
            }
        };
        self.of(
            experiment,
            |command| measure(command, &mut keep),
            report,
            out,
        )
    }

    /// The report of an experiment that is carried out, or was; printed and drawn.
    fn report_of<S, R, E>(
        &self,
        experiment: &str,
        measure: impl FnOnce(&str) -> Result<Record<S, R>, E>,
        report: impl FnOnce(&Record<S, R>) -> Report,
        out: &mut dyn Write,
    ) -> anyhow::Result<Report>
    where
        S: DeserializeOwned + Serialize,
        R: DeserializeOwned + Serialize,
        E: Into<anyhow::Error>,
    {
        let record = match &self.from {
            Some(file) => Record::read(file, experiment)?,
            None => {
                let file = self.json.as_deref();
                let is_new = check_writable(file)?;
                measure(&command()).map_err(|error| {
                    forget(file, is_new);
                    with_advice(error.into())
                })?
            }
        };
        if let Some(file) = &self.json {
            record.write(file)?;
        }
        let (report, environment) = (report(&record), &record.environment);
        if let Some(folder) = &self.plots {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            for Drawing { file, chart } in report.drawings() {
                let source = [environment.command.clone(), environment.told()];
                let svg = chart.clone().source(source).render()?;
                write(&folder.join(file), &svg)?;
            }
        }
        if let Some(file) = &self.html {
            let title = format!("Onrush on {}", environment.cpu);
            write(file, &of_record(&title, &record.any()?).render())?;
        }
        head(environment, out)?;
        write!(out, "{report}")?;
        Ok(report)
    }

    /// The file that samples go to, with a number in its name; `None` if they go to none.
    pub(crate) fn json_numbered(&self, number: u32) -> Option<PathBuf> {
        let file = self.json.as_ref()?;
        let name = file.file_name()?.to_string_lossy();
        let (name, packed) = match name.strip_suffix(".gz") {
            Some(name) => (name, ".gz"),
            None => (&*name, ""),
        };
        let stem = Path::new(name).file_stem()?.to_string_lossy();
        Some(file.with_file_name(format!("{stem}-{number}.json{packed}")))
    }

    /// Which experiment is read, if one is.
    pub(crate) fn experiment(&self) -> anyhow::Result<Option<String>> {
        let record = self.from.as_deref().map(AnyRecord::read_any).transpose()?;
        Ok(record.map(|record| record.experiment))
    }
}

/// Finds out that samples can be written to a file before, rather than after an hour; whether it is
/// new.
pub(crate) fn check_writable(file: Option<&Path>) -> anyhow::Result<bool> {
    let Some(file) = file else {
        return Ok(false);
    };
    let is_new = !file.exists();
    let opened = File::options().create(true).append(true).open(file);
    opened.with_context(|| {
        let file = file.display();
        format!("cannot write {file}; name another file with --json")
    })?;
    Ok(is_new)
}

/// Takes a file away again that is new, and that nothing has come into.
pub(crate) fn forget(file: Option<&Path>, is_new: bool) {
    if let Some(file) = file.filter(|_| is_new) {
        let is_empty = |found: fs::Metadata| found.is_file() && found.len() == 0;
        if fs::metadata(file).is_ok_and(is_empty) {
            // Who cannot is told of the failure that is the reason.
            drop(fs::remove_file(file));
        }
    }
}

impl Modes {
    pub(crate) fn modes(self) -> Vec<Mode> {
        match self {
            Self::Uso => vec![Mode::Uso],
            Self::SoftwareGso => vec![Mode::SoftwareGso],
            Self::Both => vec![Mode::Uso, Mode::SoftwareGso],
        }
    }
}

/// The settings of an experiment: the short ones, or all of it.
pub(crate) fn settings<S>(is_quick: bool, quick: fn() -> S, full: fn() -> S) -> S {
    if is_quick { quick() } else { full() }
}

/// The command line, for records and for advice.
pub(crate) fn command() -> String {
    shown(std::env::args().skip(1))
}

/// A command line as others may see it, who are shown records: without passwords.
fn shown(arguments: impl Iterator<Item = String>) -> String {
    const USER: &str = "--user";
    let mut words = vec!["onrush-lab".to_owned()];
    let mut is_user = false;
    for argument in arguments {
        let assigned = argument.split_once('=').filter(|(name, _)| *name == USER);
        words.push(match assigned {
            _ if is_user => without_password(&argument),
            Some((_, user)) => format!("{USER}={}", without_password(user)),
            None => without_secrets(&argument),
        });
        is_user = argument == USER;
    }
    words.join(" ")
}

/// `NAME:***` of `NAME:PASSWORD`.
fn without_password(user: &str) -> String {
    let name = user.split(':').next().unwrap_or_default();
    format!("{name}:***")
}

/// A bar on stderr, hidden by itself where that is no terminal, until it is dropped.
pub(crate) fn bar(template: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template(template).expect("a constant that has been seen to work");
    let bar = ProgressBar::new(1000).with_style(style);
    let bar = bar.with_finish(ProgressFinish::AndClear);
    bar.enable_steady_tick(Duration::from_millis(500));
    bar
}

/// A bar that is told what part is done, and what comes next.
pub(crate) fn bar_of_parts() -> impl Fn(f64, &str) + Send {
    let bar = bar("{bar:30} {percent} %  {elapsed}  {msg}");
    move |part, next| {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of one, in thousandths"
        )]
        bar.set_position((part * 1000.0) as u64);
        bar.set_message(next.to_owned());
    }
}

/// The same for experiments whose parts need no names.
pub(crate) fn bar_of_part() -> impl Fn(f64) + Send {
    let bar = bar_of_parts();
    move |part| bar(part, "")
}

/// A bar that is told how much of the time is over, of how much, and what goes on.
pub(crate) fn bar_of_time() -> impl Fn(u64, u64, &str) + Send {
    let bar = bar("{elapsed_precise} {bar:30} {msg}");
    move |elapsed_ns, total_ns, now| {
        bar.set_length(total_ns / 1_000_000);
        bar.set_position(elapsed_ns / 1_000_000);
        bar.set_message(now.to_owned());
    }
}

/// How to get the rights, where those are what is missing.
pub(crate) fn with_advice(error: anyhow::Error) -> anyhow::Error {
    let is_experiment = error.downcast_ref::<ExperimentError>();
    match is_experiment.is_some_and(ExperimentError::needs_root) {
        true => anyhow!(
            "{error}: the experiment makes network namespaces, attaches eBPF programs or asks for \
             frames of memory; try: sudo {}",
            command()
        ),
        false => error,
    }
}

/// Prints where and when it was measured, and how to have it again.
pub(crate) fn head(environment: &Environment, out: &mut dyn Write) -> anyhow::Result<()> {
    Ok(writeln!(
        out,
        "{}\n{}",
        environment.told(),
        environment.command
    )?)
}

/// Writes a file, in place of what is there.
pub(crate) fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| {
        format!(
            "cannot write {}; check the name, your rights, and the room on that disk",
            file.display()
        )
    })
}

/// 0: all bounds were kept; 1: one was not.
pub(crate) fn outcome(passed: bool) -> ExitCode {
    ExitCode::from(u8::from(!passed))
}

/// 0: all bounds were kept; 1: one was missed; 2: none was, and not all could be judged.
fn judged(report: &Report) -> u8 {
    let outcomes = report.verdicts().map(|verdict| verdict.outcome);
    let worst = outcomes.map(|outcome| match outcome {
        Outcome::Kept => (0, 0),
        Outcome::Void => (1, 2),
        Outcome::Missed => (2, 1),
    });
    worst.max().map_or(0, |(_, code)| code)
}

#[cfg(test)]
mod tests {
    use onrush_measure::table::Verdict;

    use super::*;

    #[test]
    fn numbers_go_before_what_a_name_ends_with() {
        let numbered = |file: &str| {
            let file = to(Path::new(file)).json_numbered(7).unwrap();
            file.display().to_string()
        };
        assert_eq!(numbered("folder/full.json"), "folder/full-7.json");
        assert_eq!(numbered("full.json.gz"), "full-7.json.gz");
        assert_eq!(numbered("full"), "full-7.json");
    }

    fn to(file: &Path) -> Output {
        Output {
            json: Some(file.to_owned()),
            from: None,
            plots: None,
            html: None,
        }
    }

    #[test]
    fn a_command_line_is_shown_without_passwords() {
        for (typed, wanted) in [
            ("load --user anna:pa:ss -n 2", "load --user anna:*** -n 2"),
            (
                "load --user=anna:p=ss rtsp://h",
                "load --user=anna:*** rtsp://h",
            ),
            ("load rtsp://anna:pass@h/x", "load rtsp://h/x"),
            (
                "bench capacity --users --rate=4Mbit/s",
                "bench capacity --users --rate=4Mbit/s",
            ),
        ] {
            let command = shown(typed.split(' ').map(str::to_owned));
            assert_eq!(command, format!("onrush-lab {wanted}"));
        }
    }

    #[test]
    fn what_fails_at_its_start_leaves_no_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let (new, old) = (folder.path().join("new"), folder.path().join("old"));
        fs::write(&old, "").unwrap();
        for file in [&new, &old] {
            let fails = |_: &str, _: Keep<'_, u8, u8>| -> Result<Record<u8, u8>, _> {
                assert!(file.exists());
                Err(anyhow!("no sockets"))
            };
            let report = |_: &Record<u8, u8>| Report::new("");
            let ended = to(file).of_long("nothing", fails, report, &mut Vec::new());
            assert_eq!(ended.unwrap_err().to_string(), "no sockets");
        }
        assert!(!new.exists() && old.exists());
    }

    #[test]
    fn what_was_measured_until_it_failed_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("part.json");
        let fails = |command: &str, keep: Keep<'_, u8, u8>| {
            let mut record = Record::new("nothing", Environment::here("1", command), 0);
            record.runs.push(7);
            keep(&record);
            Err(anyhow!("no sockets"))
        };
        let report = |_: &Record<u8, u8>| Report::new("");
        let ended = to(&file).of_long("nothing", fails, report, &mut Vec::new());
        assert!(ended.is_err());
        let kept: Record<u8, u8> = Record::read(&file, "nothing").unwrap();
        assert_eq!(kept.runs, [7]);
    }

    #[test]
    fn a_miss_is_1_and_what_cannot_be_judged_is_2() {
        let kept = || Verdict::new("a", "", true);
        let missed = || Verdict::new("b", "", false);
        let void = || Verdict::void("c", "");
        for (verdicts, code) in [
            (vec![], 0),
            (vec![kept()], 0),
            (vec![kept(), missed()], 1),
            (vec![void(), kept()], 2),
            (vec![void(), missed(), void()], 1),
        ] {
            let mut report = Report::new("");
            report.add(verdicts);
            assert_eq!(judged(&report), code, "{report:?}");
        }
    }
}
