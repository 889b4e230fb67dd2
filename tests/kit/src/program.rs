//! What every program of ours keeps as it is typed: its pages, its errors, its exit codes.

use std::process::{Command, Output};

/// Columns of a terminal, and lines of its screen.
pub const COLUMNS: usize = 79;
const SCREEN_LINES: usize = 24;

/// A program that was built.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Where it is.
    pub path: &'static str,
    /// What its version begins with.
    pub version: &'static str,
    /// Its commands.
    pub commands: &'static [&'static str],
}

impl Program {
    /// Runs it to its end. What should have refused to run and does not is stopped, and fails by
    /// its code.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        let output = command.args(["60", self.path]).args(arguments).output();
        output.expect("coreutils are installed")
    }

    /// What it prints; it must end well.
    #[must_use]
    pub fn page(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        text(&output.stdout)
    }

    /// The help of a command, or of the program if it is empty.
    #[must_use]
    pub fn help(&self, command: &str, flag: &str) -> String {
        let arguments: Vec<_> = command.split_whitespace().chain([flag]).collect();
        self.page(&arguments)
    }

    /// That the short help of all its commands, and of these, fits a screen, and the long one is a
    /// manual with examples.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn check_help(&self, more: &[&str]) {
        for command in self.commands.iter().chain(&[""]).chain(more) {
            let [short, long] = ["-h", "--help"].map(|flag| self.help(command, flag));
            let (short_lines, long_lines) = (short.lines().count(), long.lines().count());
            assert!(
                short_lines <= SCREEN_LINES && long_lines > short_lines,
                "{command}: {short}"
            );
            for line in short.lines().chain(long.lines()) {
                assert!(line.chars().count() <= COLUMNS, "{line}");
            }
            for line in short
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with('-'))
            {
                assert!(line.contains("  "), "option and meaning on a line: {line}");
            }
        }
        for said in ["Examples:", "Exit codes:", "  0  ", "  1  ", "  2  "] {
            assert!(self.help("", "--help").contains(said), "{said}");
        }
        let version = self.page(&["--version"]);
        assert!(version.starts_with(self.version), "{version}");
        assert_eq!(version.lines().count(), 1);
    }

    /// That none of these runs, and that the error says so much of why.
    ///
    /// # Panics
    ///
    /// If one runs, or is silent about why not.
    pub fn check_refusals(&self, refusals: &[(&[&str], &str)]) {
        for (arguments, said) in refusals {
            let output = self.run(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            let error = text(&output.stderr);
            assert!(error.contains(said), "{arguments:?}: {error}");
            assert!(
                output.stdout.is_empty(),
                "errors go to stderr: {arguments:?}"
            );
        }
    }

    /// That there are completions for every shell, with all commands and these words.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn check_completions(&self, words: &[&str]) {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let script = self.page(&["completions", shell]);
            for word in self.commands.iter().chain(words) {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}

/// What a program printed.
#[must_use]
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("our programs print UTF-8")
}
