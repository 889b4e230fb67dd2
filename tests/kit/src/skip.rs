//! Skips that are counted and named.
//!
//! A test that returns early because the machine lacks something looks like a pass. Here it writes
//! `SKIPPED <test>: <reason>` to stderr, past the test harness's capture, and appends the same line
//! to the file named by the environment variable `ONRUSH_SKIPS`, so that whoever runs the tests can
//! list the skips and refuse too many.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::thread;

/// Returns from the test, as a counted skip, unless it may make network namespaces.
#[macro_export]
macro_rules! require_root {
    () => {
        if !$crate::netns::Netns::is_permitted() {
            $crate::skip::record("needs root (network namespaces)");
            return;
        }
    };
}

/// Returns from the test, as a counted skip, unless all of these programs can be run.
#[macro_export]
macro_rules! require_programs {
    ($($program:expr),+ $(,)?) => {
        for program in [$($program),+] {
            if !$crate::skip::is_installed(program) {
                $crate::skip::record(&format!("needs {program} installed"));
                return;
            }
        }
    };
}

/// Records that the running test is skipped, and why.
///
/// # Panics
///
/// If the file named by `ONRUSH_SKIPS` cannot be written: an uncounted skip is a false pass.
pub fn record(reason: &str) {
    let thread = thread::current();
    let line = line(thread.name().unwrap_or("unnamed test"), reason);
    // Not eprintln: the harness would swallow it. Nobody is served by a panic over a closed stderr.
    drop(io::stderr().write_all(line.as_bytes()));
    if let Some(path) = std::env::var_os("ONRUSH_SKIPS") {
        append(Path::new(&path), &line).expect("the file named by ONRUSH_SKIPS can be written");
    }
}

/// Whether `program` is found on the path.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn line(test: &str, reason: &str) -> String {
    format!("SKIPPED {test}: {reason}\n")
}

fn append(path: &Path, line: &str) -> io::Result<()> {
    // One write in append mode, so that lines of parallel tests do not mix.
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_add_up_in_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("skips");
        append(&path, &line("a::b", "needs root")).unwrap();
        append(&path, &line("a::c", "needs ffmpeg")).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(
            text,
            "SKIPPED a::b: needs root\nSKIPPED a::c: needs ffmpeg\n"
        );
    }

    #[test]
    fn installed_programs_are_told_from_missing_ones() {
        assert!(is_installed("sh"));
        assert!(!is_installed("no-such-program"));
    }
}
