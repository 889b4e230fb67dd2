//! What can be typed after `onrush`. The help texts are the manual; those of a command stand in its
//! own module.

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::cluster_command::ClusterCommand;
use crate::configuration::{Check, Config};
use crate::ctl::{Ctl, Reload};
use crate::doctor::Doctor;
use crate::group::GroupCommand;
use crate::inspect::Inspect;
use crate::relay::RelayCommand;
use crate::serve_options::Serve;
use crate::sign::Sign;
use crate::top::Top;
use crate::user::UserCommand;

/// Serves media files to RTSP players.
#[derive(Debug, Parser)]
#[command(
    name = "onrush",
    version = env!("ONRUSH_VERSION"),
    long_about = "Serves media files (MP4, MOV, Matroska, WebM, MPEG-TS) to RTSP players.\n\n\
        Every packet of a file is written once into locked memory that the kernel already knows; \
        after that a client costs a timer tick and a few descriptors. Linux only.",
    after_help = "Begin with `onrush serve`; if anything is odd, ask `onrush doctor`.",
    after_long_help = EXAMPLES,
    // As it is by default, but for an empty line: a screen has no room for it.
    help_template = "{about-with-newline}{usage-heading} {usage}\n\n{all-args}{after-help}",
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
    Serve(Box<Serve>),
    Relay(Box<RelayCommand>),
    Group(GroupCommand),
    Top(Top),
    Inspect(Inspect),
    Doctor(Doctor),
    User(UserCommand),
    Sign(Sign),
    Check(Check),
    Config(Config),
    Ctl(Ctl),
    Reload(Reload),
    Cluster(ClusterCommand),
    /// Write the manual pages into a folder
    ///
    /// One for the program and one for each command, to be read with man(1). They say what --help
    /// says.
    #[command(hide = true)]
    Manual {
        /// Where; made if there is none
        #[arg(value_hint = clap::ValueHint::DirPath)]
        folder: std::path::PathBuf,
    },
    /// Start this server's successors: for `onrush serve`, which starts this itself
    #[command(hide = true)]
    LaunchSuccessors {
        /// Those of the successor
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Print a shell's completion script
    // No documentation comment: rustdoc takes what is indented for Rust.
    #[command(long_about = "\
Print a shell's completion script

Load it in the running shell, or put it where the shell looks for completions:

    source <(onrush completions bash)

    onrush completions zsh > \"${fpath[1]}/_onrush\"

    onrush completions fish > ~/.config/fish/completions/onrush.fish")]
    Completions {
        /// The shell
        shell: Shell,
    },
}

const EXAMPLES: &str = "\
Examples:
  onrush serve                      serve the demo clips
  onrush serve /srv/films           serve a directory
  onrush inspect film.mp4           what is in this file?
  onrush doctor                     what can this machine do?
  onrush COMMAND --help             the manual of a command

Sizes, rates and times are written with their unit: 512MiB, 4Mbit/s, 20ms.
Results are printed on stdout, everything else on stderr.

Exit codes:
  0  done
  1  checked, and found wanting
  2  could not run";
