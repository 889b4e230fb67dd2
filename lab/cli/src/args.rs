//! What can be typed after `onrush-lab`. The help texts are the manual; those of a command stand in
//! its own module.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::bench::Bench;
use crate::choose::Choose;
use crate::compare::Compare;
use crate::load::Load;
use crate::measure::Measure;
use crate::predict::Predict;
use crate::report::Report;
use crate::simulate::Simulate;

/// Measures what Onrush and the operating system do.
#[derive(Debug, Parser)]
#[command(
    name = "onrush-lab",
    version = env!("ONRUSH_VERSION"),
    long_about = "Measures what Onrush and the operating system do, predicts it, and compares.\n\n\
                  Everything runs on loopback or in network namespaces of its own. Experiments \
                  that need the server start the program `onrush` that lies beside this one. Linux \
                  only.",
    after_help = "Begin with `onrush-lab measure --quick`, or `onrush-lab bench serve --quick`.",
    after_long_help = EXAMPLES,
    max_term_width = 79,
    disable_help_subcommand = true,
    infer_long_args = false
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Bench(Bench),
    Measure(Measure),
    Predict(Predict),
    Report(Report),
    Compare(Compare),
    Load(Load),
    Simulate(Simulate),
    Choose(Choose),
    /// Print a shell's completion script
    ///
    /// Load it in the running shell, or put it where the shell looks for completions:
    ///
    ///     source <(onrush-lab completions bash)
    ///
    ///     onrush-lab completions zsh > "${fpath[1]}/_onrush-lab"
    ///
    ///     onrush-lab completions fish > ~/.config/fish/completions/onrush-lab.fish
    #[command(verbatim_doc_comment)]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Examples:
  onrush-lab measure --quick             what does the system charge here?
  onrush-lab bench serve --quick         what does a stream cost, beside a loop?
  onrush-lab load rtsp://[::1]:8554/x.ts what do viewers see?
  onrush-lab compare before.json after.json
  onrush-lab COMMAND --help              the manual of a command

Sizes, rates and times are written with their unit: 512MiB, 4Mbit/s, 20ms.
Results are printed on stdout, everything else on stderr.

Exit codes:
  0  done
  1  checked, and found wanting
  2  could not run";
