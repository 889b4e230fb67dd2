//! `onrush-lab bench http`, on a terminal.

use std::io::Write;
use std::process::{Command, ExitCode};

use anyhow::Context;
use clap::{Args, ValueEnum};
use onrush_measure::http::{self, HttpRecord, Serving, Settings};

use crate::frame::{Counters, Output, VERSION, bar_of_part, settings};
use crate::server_program::server_program;

/// CPU per gigabyte of downloads, and requests a second
///
/// Serves the same files on loopback by `onrush serve`, by a bare loop of blocking sendfile and,
/// with --peer, by nginx, each pinned to the same processor, turn about. One large download is to
/// cost at most 1.05 times the processor time of the loop; 64 at once at most what they cost nginx;
/// and requests for 100 KB files are to come at 0.9 times nginx's rate or more. Every byte is
/// counted at the client. Takes about three minutes, --quick one; needs two processors and no root.
///
/// With --hls segments of six seconds are asked for instead of files: of a transport stream, and
/// of MP4, which Onrush makes when it is asked; the peer has the same lying in its folder. They are
/// to cost at most 1.1 and 1.3 times the peer's processor time, and to come at 0.9 times its rate.
/// Those of MP4 are asked for many times, and come from memory; with --computed none are there.
/// With --tls all servers show one certificate, which the run makes, and the same bytes are asked
/// for by TLS 1.3 with AES-128-GCM, too: at most 1.1 times the peer's processor time.
#[derive(Args, Debug)]
pub(crate) struct Http {
    /// The server to compare with, which must be installed
    #[arg(long, value_name = "NAME", conflicts_with = "from")]
    peer: Option<Peer>,

    /// Ask for segments of films (HLS) instead of files
    #[arg(long, conflicts_with = "from")]
    hls: bool,

    /// Keep no segments in memory: each is sent from its film
    #[arg(long, requires = "hls")]
    computed: bool,

    /// Ask over TLS as well
    #[arg(long, conflicts_with = "from")]
    tls: bool,

    /// Smaller files, fewer runs
    #[arg(long, conflicts_with = "from")]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Peer {
    /// With `sendfile on` and one process.
    Nginx,
}

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Http, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let measure = |command: &str| measure(arguments, command);
    arguments.output.of(http::NAME, measure, http::report, out)
}

fn measure(arguments: &Http, command: &str) -> anyhow::Result<HttpRecord> {
    let mut settings = settings(arguments.quick, Settings::quick, Settings::full);
    if arguments.hls {
        settings = settings.of_films();
    }
    settings.computed = arguments.computed;
    settings.tls = arguments.tls;
    settings.counters = arguments.counters.are_asked()?;
    if arguments.peer.is_some() {
        let version = http::peer_version();
        settings.peer = Some(version.context(
            "nginx does not run here; install it (apt-get install nginx-light), or leave --peer \
             out",
        )?);
    }
    let program = server_program()?;
    let serve = |serving: &Serving<'_>| {
        let mut command = Command::new(&program);
        command.arg("serve").arg(serving.files);
        command.args([
            "--rtsp=127.0.0.1:0",
            "--cache=1MiB",
            "--state=off",
            "--download-requests-max=1000000",
        ]);
        command.arg(format!("--http={}", serving.address));
        if arguments.computed {
            command.arg("--download-segments-max=0B");
        }
        if let Some((address, identity)) = &serving.tls {
            command.arg(format!("--https={address}"));
            command.arg("--tls-certificate").arg(&identity.certificate);
            command.arg("--tls-key").arg(&identity.key);
        }
        command
    };
    Ok(http::run(
        &settings,
        VERSION,
        command,
        &serve,
        bar_of_part(),
    )?)
}
