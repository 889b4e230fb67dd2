//! `onrush-lab bench capacity`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use onrush_measure::capacity::{self, CapacityRecord, FileSet, Peer, Settings};
use onrush_measure::film_kind::FilmKind;
use onrush_measure::load::{self, Transport};
use onrush_server::engine::phase::Phase;
use onrush_sys::path::PathName;

use crate::frame::{Counters, Modes, Output, VERSION, bar};
use crate::server_program::server_program;
use onrush_cli::units::{Rate, Size, Time, within};

/// How many streams a server holds on time
///
/// Starts the server anew in the testbed for each number of viewers, doubles the number until one
/// viewer in 1000 would have had to buffer more than two bursts and 20 ms for 999 of 1000 packets,
/// or a packet that was due did not come, and bisects. The server's data has a processor
/// of its own; the viewers, the counting sink and the server's control share the rest. Takes some
/// minutes for each mode, burst and server. Needs root and two processors.
#[derive(Args, Debug)]
#[command(after_long_help = EXIT_CODES)]
pub(crate) struct Capacity {
    /// One mode, one search, shorter
    #[arg(long)]
    quick: bool,

    #[command(flatten)]
    output: Output,

    #[command(flatten)]
    counters: Counters,

    /// Rate of each stream
    #[arg(long, value_name = "RATE", default_value_t = Rate(Settings::default().rate_bps))]
    rate: Rate,

    /// Length of a burst; repeatable
    #[arg(long, value_name = "TIME", default_values_t = [Time(Duration::from_millis(20))])]
    burst: Vec<Time>,

    /// Search with each of these data paths of our server: uring_registered_zc, sendmmsg_gso,
    /// sendmmsg, sendto [default: the server's own choice]
    ///
    /// Of a path that cannot be had here no viewers are held, and the table says so.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "NAMES",
        value_delimiter = ','
    )]
    paths: Vec<PathName>,

    /// When bursts leave: as-they-come, aligned or spread; repeatable
    #[arg(long, hide_short_help = true, value_name = "PHASE",
          default_values_t = [Phase::default()])]
    phase: Vec<Phase>,

    /// Search twice, in turn: while nobody jumps about in the film, and while so many of a hundred
    /// viewers do. Of those no fewer than 0.8 times as many shall be on time
    #[arg(long, value_name = "PERCENT", value_parser = within(1_u32, 100),
          conflicts_with_all = ["load_max", "stall"])]
    jumping: Option<u32>,

    /// How often each of those jumps, on average
    #[arg(long, hide_short_help = true, value_name = "TIME", requires = "jumping",
          default_value_t = Time(Duration::from_nanos(Settings::default().jump_every_ns)))]
    jump_every: Time,

    /// Let viewers in as serve does with this --load-max, in percent; others get 453. No search:
    /// --first viewers come, and those who are let in shall be on time
    #[arg(long, hide_short_help = true, value_name = "PERCENT")]
    load_max: Option<u32>,

    /// Stop the server (SIGSTOP) for so long while they watch. No search: --first viewers come, and
    /// nothing shall be lost, no stream send more than two bursts together, and its status tell it
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    stall: Option<Time>,

    /// Viewers that come in a second
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Settings::default().arrivals_per_second)]
    arrivals: u32,

    /// Try all of it so often, in turns
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1)]
    rounds: u32,

    /// Try a number again that was missed while the host of this virtual machine took more than 2 %
    /// of the server's processor, so often at the most: 0 to 10. The last try counts, all are kept
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Settings::default().again)]
    again: u32,

    /// Try so many numbers around the limit that the search finds, of each server in each mode, and
    /// tell what 95 of 100 trials hold
    ///
    /// A single try near the limit says little. Numbers within a quarter of the limit and their
    /// order are drawn by --seed, and servers and modes take turns. A logistic curve tells what
    /// half of the trials hold and what 95 of 100 do, with intervals. Trials while the host took
    /// the processor away, or the load generator was late itself, are void, held or missed.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with_all = ["load_max", "stall"])]
    trials: u32,

    /// End with 1 unless our server holds so many in each mode: in 95 of 100 trials, or without
    /// --trials in the search
    ///
    /// With --peers-only each peer is to. With --load-max those who were refused are not held.
    #[arg(long, value_name = "N")]
    aim: Option<u32>,

    /// Draw other numbers, places and times
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = Settings::default().seed)]
    seed: u64,

    /// How packets come to viewers: udp, tcp, tls or srtp; peers too
    ///
    /// Over tcp and tls nothing is counted by the sink: --inspected viewers look at what comes, and
    /// tell how late it is; the others throw it away.
    #[arg(long, value_name = "HOW", default_value_t = Transport::Udp)]
    transport: Transport,

    /// So many viewers look at the packets that come on their connections
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = load::INSPECTED)]
    inspected: u32,

    /// Our server asks each viewer who it is (Digest)
    #[arg(long, hide_short_help = true)]
    users: bool,

    /// One film, so many by Zipf's law (zipf:N), or so many dealt out in turn (even:N)
    #[arg(long, value_name = "FILES", default_value = "one", value_parser = file_set)]
    files: FileSet,

    /// What films are kept in, one or several to be tried in turn: ts, mp4, mkv. Of the others no
    /// fewer viewers than of ts shall be on time
    #[arg(long, value_name = "KINDS", value_delimiter = ',', default_values_t = [FilmKind::Ts])]
    media: Vec<FilmKind>,

    /// The packet cache [default: a quarter of the films; 1GiB for one]
    #[arg(long, value_name = "SIZE")]
    cache: Option<Size>,

    /// The number to begin with
    #[arg(long, value_name = "N", default_value_t = Settings::default().clients_first)]
    first: u32,

    /// The most that are tried
    #[arg(long, value_name = "N", default_value_t = Settings::default().clients_max)]
    max: u32,

    /// How long each number is watched
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)))]
    time: Time,

    /// Who cuts trains: uso, software-gso or both
    #[arg(
        long,
        value_name = "MODE",
        default_value = "both",
        hide_possible_values = true
    )]
    mode: Modes,

    /// Measure this server too: {dir} is the films' directory, {address} where to listen;
    /// repeatable
    #[arg(long, value_name = "COMMAND", requires = "peer_url")]
    peer: Vec<String>,

    /// Where its films are: an URL with {address} and {file}; one for each --peer
    #[arg(long, value_name = "URL", requires = "peer")]
    peer_url: Vec<String>,

    /// Measure the --peer only
    #[arg(long, requires = "peer")]
    peers_only: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  all that is judged was kept, and the aim reached
  1  a bound or the aim was missed, or nobody was held on time
  2  it could not be carried out, or what is judged is void: nothing was held on
     one of two sides, or the aim was missed while the host of this virtual
     machine took the server's processor";

/// Carries it out, or prints one that was.
pub(crate) fn run(arguments: &Capacity, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let measure = |command: &str| -> anyhow::Result<CapacityRecord> {
        let bar = bar("{spinner} {msg}");
        let progress = |next: &str| bar.set_message(next.to_owned());
        let (mut settings, onrush) = (arguments.settings()?, server_program()?);
        settings.counters = arguments.counters.are_asked()?;
        Ok(capacity::run(
            &settings, &onrush, VERSION, command, progress,
        )?)
    };
    let output = &arguments.output;
    output.of_searched(capacity::NAME, measure, capacity::report, out)
}

impl Capacity {
    fn settings(&self) -> anyhow::Result<Settings> {
        if self.peer.len() != self.peer_url.len() {
            bail!(
                "{} --peer and {} --peer-url: give one for each",
                self.peer.len(),
                self.peer_url.len()
            );
        }
        let peers = self.peer.iter().zip(&self.peer_url);
        let mut settings = Settings {
            rate_bps: self.rate.0,
            bursts_ns: self.burst.iter().map(Time::nanos).collect(),
            paths: self.paths.iter().map(ToString::to_string).collect(),
            phases: self.phase.clone(),
            jumping_percents: [0].into_iter().chain(self.jumping).collect(),
            jump_every_ns: self.jump_every.nanos(),
            rounds: self.rounds,
            again: self.again,
            trials: self.trials,
            aim: self.aim,
            seed: self.seed,
            arrivals_per_second: self.arrivals,
            load_max_percent: self.load_max,
            stall_ns: self.stall.map_or(0, |time| time.nanos()),
            transport: self.transport,
            inspected: self.inspected,
            has_users: self.users,
            files: self.files,
            media: self.media.clone(),
            cache_bytes: self.cache.map(|size| size.0),
            modes: self.mode.modes(),
            clients_first: self.first,
            clients_max: self.max,
            time_ns: self.time.nanos(),
            peers: peers
                .map(|(command, url)| Peer {
                    command: command.clone(),
                    url: url.clone(),
                })
                .collect(),
            ..Settings::default()
        };
        if settings.is_trial() {
            settings.clients_max = settings.clients_first;
        }
        if self.peers_only {
            settings.bursts_ns.clear();
        }
        if self.quick {
            settings.modes.truncate(1);
            settings.time_ns = settings.time_ns.min(3_000_000_000);
            settings.precision = 0.25;
        }
        Ok(settings)
    }
}

fn file_set(text: &str) -> Result<FileSet, String> {
    let wrong = || "ask for one, zipf:N or even:N".to_owned();
    let files = |n: &str| n.parse().map_err(|_| wrong());
    match text.split_once(':') {
        None if text == "one" => Ok(FileSet::One),
        Some(("zipf", n)) => Ok(FileSet::Zipf { files: files(n)? }),
        Some(("even", n)) => Ok(FileSet::Even { files: files(n)? }),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        capacity: Capacity,
    }

    fn settings(options: &[&str]) -> Result<Settings, String> {
        let command = ["capacity"].iter().chain(options);
        let parsed = Alone::try_parse_from(command).map_err(|error| error.to_string())?;
        let settings = parsed.capacity.settings();
        settings.map_err(|error| error.to_string())
    }

    #[test]
    fn trials_and_an_aim_are_asked_for_within_their_bounds() {
        let some = settings(&["--trials", "40", "--aim", "9000", "--seed", "7"]).unwrap();
        assert_eq!((some.trials, some.aim, some.seed), (40, Some(9000), 7));
        some.check().unwrap();
        for (options, said) in [
            (
                &["--trials", "501"][..],
                "501 trials around each limit: ask for 0 to 500",
            ),
            (&["--aim", "16001"], "an aim of 16001 viewers, where 16000"),
            (&["--aim", "0"], "an aim of 0 viewers"),
        ] {
            let error = settings(options).unwrap().check().unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        assert!(settings(&["--trials", "500"]).unwrap().check().is_ok());
        assert!(settings(&["--trials", "9", "--stall", "1s"]).is_err());
    }

    #[test]
    fn viewers_that_jump_are_searched_for_beside_those_that_do_not() {
        assert_eq!(settings(&[]).unwrap(), Settings::default());
        let some = settings(&["--jumping", "30", "--jump-every", "5s"]).unwrap();
        assert_eq!(some.jumping_percents, [0, 30]);
        assert_eq!(some.jump_every_ns, 5_000_000_000);
        for percent in ["1", "100"] {
            assert!(settings(&["--jumping", percent]).is_ok());
        }
        for wrong in [
            &["--jumping", "0"][..],
            &["--jumping", "101"],
            &["--jump-every", "5s"],
            &["--jumping", "30", "--load-max", "90"],
            &["--jumping", "30", "--stall", "1s"],
        ] {
            assert!(settings(wrong).is_err(), "{wrong:?}");
        }
    }
}
