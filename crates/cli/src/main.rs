//! The program `onrush`.

use std::process::ExitCode;

fn main() -> ExitCode {
    onrush_cli::main()
}
