//! UCX's cache, behind a program in C that answers line by line.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use onrush_primitives::remap::Change;
use tempfile::TempDir;

use super::only_hits;
use crate::error::ExperimentError;
use crate::setup::system;

/// The program, which ends with this.
pub(super) struct Ucx {
    child: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    #[expect(dead_code, reason = "the program lies in it")]
    folder: TempDir,
}

impl Ucx {
    /// Compiles the program and starts it; or why UCX is left out.
    pub(super) fn start() -> Result<Result<Self, String>, ExperimentError> {
        let folder = tempfile::tempdir().map_err(system("make a folder"))?;
        let [source, program] = ["ucx.c", "ucx"].map(|name| folder.path().join(name));
        fs::write(&source, PROGRAM).map_err(system("write ucx.c"))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-o"]).arg(&program).arg(&source);
        let compiled = compiler.args(["-lucs", "-lucm"]).output();
        match compiled {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| line.contains("error"));
                return Ok(Err(left_out(first.unwrap_or("cc failed"))));
            }
            Err(error) => return Ok(Err(left_out(&format!("cc: {error}")))),
        }
        let mut command = Command::new(&program);
        command.env("UCX_LOG_LEVEL", "error");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(system("start the program that asks UCX's cache"))?;
        let input = child.stdin.take().expect("it is piped");
        let answers = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Ok(Ok(Self {
            child,
            input,
            answers,
            folder,
        }))
    }

    /// It runs where the others do, while they wait for it.
    pub(super) fn pin_to(&self, core: usize) -> Result<(), ExperimentError> {
        let pid = rustix::process::Pid::from_child(&self.child);
        let mut cores = rustix::thread::CpuSet::new();
        cores.set(core);
        let pinned = rustix::thread::sched_setaffinity(Some(pid), &cores);
        let pinned = pinned.map_err(io::Error::from);
        Ok(pinned.map_err(system("pin UCX's cache to a processor"))?)
    }

    /// Times of a use and of unmapping, in ns, and registrations.
    pub(super) fn uses(
        &mut self,
        bytes: usize,
        uses: u32,
        messages: u32,
    ) -> Result<(f64, f64, u64), ExperimentError> {
        let [use_ns, unmap_ns, registrations] =
            self.ask(&format!("use {bytes} {uses} {messages}"))?;
        Ok((
            number(&use_ns)?,
            number(&unmap_ns)?,
            number(&registrations)?,
        ))
    }

    /// The time of a hit and its return, in ns.
    pub(super) fn hits(&mut self, kept: u32, hits: u32) -> Result<f64, ExperimentError> {
        let [hit_ns, registrations] = self.ask(&format!("hit {kept} {hits}"))?;
        only_hits(number(&registrations)?)?;
        number(&hit_ns)
    }

    /// Whether it gives out the old registration after that.
    pub(super) fn is_stale_after(&mut self, change: Change) -> Result<bool, ExperimentError> {
        let [registrations] = self.ask(&format!("change {}", change.name()))?;
        Ok(number::<u64>(&registrations)? == 0)
    }

    fn ask<const N: usize>(&mut self, line: &str) -> Result<[String; N], ExperimentError> {
        let asked = writeln!(self.input, "{line}");
        asked.map_err(system("ask UCX's cache"))?;
        let answer = self.answers.next();
        let answer = answer.unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()));
        let answer = answer.map_err(system("hear what UCX's cache answers"))?;
        let words: Vec<_> = answer.split(' ').map(str::to_owned).collect();
        <[String; N]>::try_from(words).map_err(|_| odd(&answer))
    }
}

impl Drop for Ucx {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, ExperimentError> {
    text.parse().map_err(|_| odd(text))
}

fn odd(answer: &str) -> ExperimentError {
    ExperimentError::subject(format!("UCX's cache answered {answer:?}"))
}

fn left_out(why: &str) -> String {
    format!("UCX's cache: {why}; apt-get install libucx-dev gcc")
}

static PROGRAM: &str = include_str!("ucx.c");
