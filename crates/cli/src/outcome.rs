//! How a program ends: what it says when it could not run, and its exit code.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

/// The exit code of `program`: that of its result, or 2 and one line on stderr that says why it
/// could not run.
pub fn exit_code(program: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(outcome) => outcome,
        // Whoever read our output has seen enough of it.
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // When stderr is gone too there is nobody left to tell.
            writeln!(io::stderr(), "{program}: {}", in_one_line(&error)).ok();
            ExitCode::from(2)
        }
    }
}

/// The error and its causes, but none that an error before it has told already.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            let colon = if line.is_empty() { "" } else { ": " };
            line.extend([colon, &cause]);
        }
    }
    line.replace('\n', " ")
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == ErrorKind::BrokenPipe;
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(broken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_once_and_on_one_line() {
        let system = io::Error::from_raw_os_error(libc::ENOENT).to_string();
        let error = |context: &str| {
            let cause = io::Error::from_raw_os_error(libc::ENOENT);
            in_one_line(&anyhow::Error::from(cause).context(context.to_owned()))
        };
        assert_eq!(error("media"), format!("media: {system}"));
        assert_eq!(
            error(&format!("media: {system}")),
            format!("media: {system}")
        );
        assert_eq!(error("two\nlines"), format!("two lines: {system}"));
    }
}
