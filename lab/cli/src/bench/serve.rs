//! `onrush-lab bench serve`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use onrush_measure::film_kind::FilmKind;
use onrush_measure::serve::{self, Contestant, Settings, Transport};

use super::mechanisms::contestant;
use crate::frame::{Counters, Modes, Output, VERSION, bar_of_parts};
use onrush_cli::units::{Rate, Time};

/// CPU per packet of stored streams sent on time
///
/// Sends the same sessions in real time by the engine, on each of its data paths, and by a plain
/// loop of read and send, turn about on the same processor. A sink counts what arrives, and how
/// late. The engine is to cost 8 times less than the loop in mode uso and 3 times less in
/// software-gso, by the median of the runs; and with --media ts,mp4 a second of the MP4 at most 0.8
/// of a second of the transport stream. Takes about six minutes; --quick about one. Needs root
/// and two processors, and is worth as much as the machine is quiet: what else went on is told
/// below the table.
#[derive(Args, Debug)]
#[command(mut_arg("from", |from| from.conflicts_with_all(MEASURED)))]
pub(crate) struct Serve {
    /// Only what is judged, shorter and fewer runs
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// Sessions at once
    #[arg(long, value_name = "N", default_value_t = Settings::default().sessions)]
    sessions: u32,

    /// Rate of each
    #[arg(long, value_name = "RATE", default_value_t = Rate(Settings::default().rate_bps))]
    rate: Rate,

    /// What the film is kept in, one or several to be compared: ts, mp4, mkv
    ///
    /// An MP4 and an MKV have H.264 of 25 pictures a second, with a sync sample every two seconds,
    /// and AAC, which ffmpeg makes once; the rate is that of both together.
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_values_t = [FilmKind::Ts])]
    media: Vec<FilmKind>,

    /// How packets reach sessions, one or several: udp, tcp, tls, srtp
    ///
    /// tcp: as frames of connections, by the engine and by a loop that writes each packet by itself
    /// from memory, which is to cost 3 times as much. tls: likewise, beside a loop of rustls writes
    /// of the same frames, of whose cost the engine's is to be at most 1.2. srtp: packets encrypted
    /// for each session alone, by each of two ways, with the cost of copy and cipher alone; by its
    /// time a processor is to hold 2000 sessions of 4 Mbit/s. And packets whose images were
    /// encrypted once for all, which are to cost at most 1.05 of plain ones. Only transport streams
    /// are sent so.
    #[arg(long, value_name = "HOW", value_delimiter = ',', default_values_t = [Transport::Udp])]
    transport: Vec<Transport>,

    /// Only these ways of sending, as the table calls them
    ///
    /// One or several: uring_registered_zc,sendmmsg, say. What is judged by one that is left out is
    /// not judged. The plain loop keeps up with a thousand sessions or two, no more.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        value_parser = contestant,
        conflicts_with = "transport"
    )]
    ways: Vec<Contestant>,

    /// Length of a burst
    #[arg(long, value_name = "TIME",
          default_value_t = Time(Duration::from_nanos(Settings::default().burst_ns)))]
    burst: Time,

    /// Runs of each in each mode [default: 5; quick: 3]
    #[arg(long, value_name = "N")]
    repeats: Option<u32>,

    /// How long each is measured [default: 6s; quick: 3s]
    #[arg(long, value_name = "TIME")]
    time: Option<Time>,

    /// Let the sender's processor rest
    ///
    /// A thread of idle priority keeps it awake otherwise: a processor that rests between two
    /// bursts wakes with a low clock and empty caches, and a virtual one may have to be waited for.
    /// What that costs changes from second to second, and it is not the senders' doing.
    #[arg(long)]
    let_idle: bool,

    /// Tell where a train's time goes
    ///
    /// The sender's processor is looked at 5000 times a second (perf_event_open), and each look is
    /// charged to a part: ring, socket, UDP and IP, route, queue, driver, receiving, sink,
    /// notifications, our own code; instructions and misses beside it where the processor shows
    /// them. Looking takes some time itself: compare what packets cost without it.
    #[arg(long)]
    account: bool,

    /// Who cuts trains: uso, software-gso or both
    ///
    /// uso: the device does, as network cards with UDP segmentation offload do; software-gso: the
    /// kernel does.
    #[arg(
        long,
        value_name = "MODE",
        default_value = "both",
        hide_possible_values = true
    )]
    mode: Modes,
}

/// What says how to measure, and nothing of a record.
const MEASURED: &[&str] = &[
    "quick",
    "sessions",
    "rate",
    "media",
    "transport",
    "ways",
    "burst",
    "repeats",
    "time",
    "let_idle",
    "account",
    "mode",
];

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Serve, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let mut settings = arguments.settings();
    settings.counters = arguments.counters.are_asked()?;
    let measure = |command: &str| serve::run(&settings, VERSION, command, bar_of_parts());
    let output = &arguments.output;
    output.of(serve::NAME, measure, serve::report, out)
}

impl Serve {
    /// Those that are asked for; or those of each transport, and over UDP all, unless it is to be
    /// quick.
    fn contestants(&self) -> Vec<Contestant> {
        if !self.ways.is_empty() {
            return self.ways.clone();
        }
        let mut all = Vec::new();
        for &transport in &self.transport {
            let those = match transport {
                Transport::Udp if !self.quick => Settings::default().contestants,
                other => Contestant::of_transport(other).to_vec(),
            };
            let are_new = those.into_iter().filter(|one| !all.contains(one));
            all.extend(are_new.collect::<Vec<_>>());
        }
        all
    }

    fn settings(&self) -> Settings {
        let mut settings = Settings {
            sessions: self.sessions,
            rate_bps: self.rate.0,
            media: self.media.clone(),
            burst_ns: self.burst.nanos(),
            keep_awake: !self.let_idle,
            account: self.account,
            modes: self.mode.modes(),
            ..Settings::default()
        };
        if self.quick {
            settings.repeats = 3;
            settings.measured_ns = 3_000_000_000;
            settings.warm_up_ns = 1_000_000_000;
        }
        settings.contestants = self.contestants();
        settings.repeats = self.repeats.unwrap_or(settings.repeats);
        settings.measured_ns = self.time.map_or(settings.measured_ns, |time| time.nanos());
        settings
    }
}
