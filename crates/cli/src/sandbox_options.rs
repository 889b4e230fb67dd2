//! The option of `onrush serve` about what it gives up at its start.

use clap::{Args, ValueEnum};

/// What `onrush serve` is told about it.
#[derive(Args, Debug)]
pub(crate) struct SandboxOptions {
    /// Give up privileges after the start: off, on or require
    ///
    /// With `on` the server keeps the capabilities that it uses, gets no new ones, leaves no core
    /// dumps, opens no files but its own (Landlock) and makes no system calls but those it uses
    /// (seccomp); what this kernel has not is told in the log. `require` does not start then.
    #[arg(long, hide_short_help = true, value_name = "HOW", default_value = "on")]
    pub(crate) sandbox: SandboxOption,
}

/// What is given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum SandboxOption {
    /// Nothing.
    Off,
    /// What can be given up here.
    On,
    /// All, or the server does not start.
    Require,
}
