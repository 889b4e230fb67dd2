//! Gives inputs to a target again: `onrush-fuzz-targets TARGET FILE...`. Ends with 0 if none of
//! them breaks a promise.

#![allow(clippy::print_stderr, reason = "it is run by hand")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let name = arguments.next().unwrap_or_default();
    let Some(target) = name.to_str().and_then(onrush_fuzz_targets::target) else {
        let names = onrush_fuzz_targets::TARGETS.map(|target| target.name);
        eprintln!("give a target ({}) and files", names.join(", "));
        return ExitCode::from(2);
    };
    for path in arguments {
        match std::fs::read(&path) {
            Ok(input) => (target.run)(&input),
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}
