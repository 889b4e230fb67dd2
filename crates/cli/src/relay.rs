//! `onrush relay`: live in, many out.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_server::channels::SourceConfig;
use onrush_server::channels::input::Input;
use onrush_server::config::Limits;
use onrush_server::relay::{Relay, RelayConfig};
use onrush_sys::probe;

use crate::addresses::{metrics_lines, reached_at};
use crate::channels::{self, ChannelOptions, source};
use crate::log_queue::LOG_QUEUE;
use crate::remedy::with_remedy;
use crate::signals::{SignalName, Signals, log_to_stderr};
use crate::status_at_exit::StatusAtExit;
use crate::successor::{Launcher, Predecessor};
use crate::units::{Time, within};
use crate::user_options::UserOptions;
use crate::values::{
    DAY, Listen, LogFormat, Named, Ports, count, metrics_address, or_off, ports, rtsp_address,
};

/// Give a live stream to many receivers
///
/// Takes RTP or a bare transport stream over UDP and gives every packet to every member, as it came
/// and at once: `onrush serve --channel` without files. Members come from --to, from --members and
/// from the control API; players come by themselves, to rtsp://HOST:8554/live/NAME, and get RTP
/// headers where the stream has none. What is odd about a stream (silence, missing packets, another
/// SSRC) is logged, counted and passed on. The first who sends is the source; others are dropped
/// until it falls silent (--from-anybody).
///
/// A member may be the input of another source, but not so that datagrams would come back: such a
/// cycle is refused.
///
/// A SOURCE is [NAME=]INPUT, and INPUT is PORT, ADDRESS:PORT, GROUP:PORT%INTERFACE or, for
/// source-specific multicast, SENDER@GROUP:PORT%INTERFACE. NAME is "live" where there is one
/// source. What tells how to feed and to play each is printed on stdout, the log on stderr.
///
/// SIGINT (Ctrl-C) or SIGTERM says goodbye to every player and ends with 0; a second one ends at
/// once. SIGUSR2 starts the program as it lies on the disk now in this one's place, with the same
/// arguments: members get each datagram once and in order, players come again. RUST_LOG sets what
/// is logged: error, warn, info (default), debug, trace.
#[derive(Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    mut_arg("api", |api| api.default_value(channels::API_ADDRESS)),
    mut_arg("channel_core", |core| core.visible_alias("core"))
)]
pub(crate) struct RelayCommand {
    /// What to relay: [NAME=]PORT or [NAME=]ADDRESS:PORT
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<Named<Input>>,

    #[command(flatten)]
    channels: ChannelOptions,

    /// Listen for players here; repeatable [default: 8554]
    ///
    /// ADDRESS:PORT, ADDRESS or PORT, as in `onrush serve`; off for no players.
    #[arg(long, value_name = "ADDR", value_parser = rtsp_or_off)]
    rtsp: Vec<Listen>,

    /// Metrics and status; nowhere by default
    ///
    /// ADDRESS:PORT, ADDRESS, or PORT on loopback; off for none. As of `onrush serve`: /metrics is
    /// for Prometheus, /status the same as JSON; `onrush top` shows it. Whoever can connect can
    /// read it.
    #[arg(long, value_name = "ADDR", value_parser = metrics_address, hide_short_help = true)]
    metrics: Option<Listen>,

    /// UDP ports for players' RTP and RTCP
    #[arg(long, value_name = "A-B", default_value_t = Ports::default(), value_parser = ports,
          hide_short_help = true)]
    rtp_ports: Ports,

    /// Players at once; one more is answered 453
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions_max,
          value_parser = count, hide_short_help = true)]
    sessions_max: usize,

    /// Players at once from one address [default: a quarter]
    ///
    /// Of --sessions-max, or 64 if that is more; one more is answered 453. Of IPv6 an address is
    /// its /64. Raise it for players behind one NAT, and for load tests.
    #[arg(long, value_name = "N", value_parser = count, hide_short_help = true)]
    sessions_per_address_max: Option<usize>,

    /// RTSP connections at once from one address
    ///
    /// Of IPv6 an address is its /64. Raise it for players behind one NAT, and for load tests.
    #[arg(long, value_name = "N", default_value_t = Limits::default().connections_per_address_max,
          value_parser = count, hide_short_help = true)]
    connections_per_address_max: usize,

    /// Life of a silent player
    #[arg(long, value_name = "TIME", default_value_t = Time(Limits::default().session_timeout),
          value_parser = within(Time(Duration::from_secs(1)), Time(DAY)), hide_short_help = true)]
    session_timeout: Time,

    /// Write the status to FILE at the end; - for stdout
    ///
    /// JSON: every source with its counters, as the control API's /sources. The file is there as a
    /// whole or not at all. One that cannot be written is refused at the start. A second signal,
    /// which ends at once, writes nothing.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    status_at_exit: Option<PathBuf>,

    /// Log lines: text or json
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true,
        hide_short_help = true
    )]
    log_format: LogFormat,

    #[command(flatten, next_help_heading = "Users")]
    users: UserOptions,
}

pub(crate) fn run(arguments: &RelayCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    log_to_stderr(arguments.log_format)?;
    let predecessor = Predecessor::of_this_process()?;
    // Behind it: what it got is not for another process.
    let launcher = Launcher::start()?;
    // Before the relay: a signal that comes while it starts must stop it, not kill it.
    let mut signals = Signals::listen(false).context("cannot listen for signals")?;
    let at_exit = StatusAtExit::open(arguments.status_at_exit.as_deref())?;
    let config = arguments.config()?;
    let token = config.channels.token.clone();
    let (predecessor, sockets) = predecessor.unzip();
    let sockets = sockets.unwrap_or_default();
    LOG_QUEUE.start();
    let mut relay = Relay::start_with(config, sockets).map_err(with_remedy)?;
    // The members matter more than whoever read the first line and closed the pipe.
    if let Err(error) = welcome(&relay, arguments, &token, out) {
        tracing::debug!("cannot print how to play: {error}");
    }
    if let Some(predecessor) = predecessor {
        predecessor.tell_ready()?;
    }
    match until_the_end(&mut relay, &mut signals, &launcher) {
        Some(name) => {
            tracing::info!("{name}: saying goodbye to all players; once more ends at once");
        }
        None => relay.hand_over(),
    }
    thread::spawn(move || signals.exit_at_next());
    at_exit.write(&relay.shutdown(), out)?;
    Ok(ExitCode::SUCCESS)
}

/// Relays until a signal, which it is, or until another process has the relay's place.
fn until_the_end(
    relay: &mut Relay,
    signals: &mut Signals,
    launcher: &Launcher,
) -> Option<SignalName> {
    loop {
        match signals.next() {
            SignalName::HandOver if launcher.replace(relay.offer_sockets()) => return None,
            SignalName::HandOver => {}
            name => return Some(name),
        }
    }
}

impl RelayCommand {
    pub(crate) fn config(&self) -> anyhow::Result<RelayConfig> {
        let default = RelayConfig::default();
        Ok(RelayConfig {
            channels: self.channels.settings(self.sources()?)?,
            rtsp_addresses: match self.rtsp.as_slice() {
                [] => vec![rtsp_address("8554").expect("a port is an address")],
                all => all.iter().filter_map(|listen| listen.address()).collect(),
            },
            metrics_address: self.metrics.and_then(Listen::address),
            users: self.users.settings(),
            rtp_ports: self.rtp_ports.0,
            limits: Limits {
                sessions_max: self.sessions_max,
                sessions_per_address_max: self
                    .sessions_per_address_max
                    .unwrap_or_else(|| Limits::per_address(self.sessions_max)),
                connections_per_address_max: self.connections_per_address_max,
                session_timeout: self.session_timeout.0,
                ..default.limits
            },
        })
    }

    fn sources(&self) -> anyhow::Result<Vec<SourceConfig>> {
        let is_one = self.sources.len() == 1;
        let sources = self.sources.iter().map(|Named { name, value }| {
            let name = match name {
                Some(name) => name.clone(),
                None if is_one => "live".to_owned(),
                None => bail!("{value}: several sources need names; write NAME={value}"),
            };
            Ok(source(name, value.clone()))
        });
        sources.collect()
    }
}

/// For each channel how to feed and to play it, then how to control the relay.
fn welcome(
    relay: &Relay,
    arguments: &RelayCommand,
    token: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let host = probe::addresses().unwrap_or_default();
    let rtsp = relay.rtsp_addresses().iter();
    let rtsp: Vec<_> = rtsp
        .flat_map(|&address| reached_at(address, &host))
        .collect();
    channels::welcome(relay.channels(), &rtsp, &host, out)?;
    channels::control_line(relay.api_address(), token, out)?;
    writeln!(out, "relaying   {}", arguments.channels.how())?;
    metrics_lines(relay.metrics_address(), &host, out)?;
    writeln!(out, "stopping   with Ctrl-C")?;
    Ok(out.flush()?)
}

fn rtsp_or_off(text: &str) -> Result<Listen, String> {
    or_off(text, rtsp_address)
}

const EXAMPLES: &str = "\
Examples:
  onrush relay 5004                      players come by RTSP
  onrush relay 5004 --to 10.0.0.7:5004 --to '[2001:db8::7]:5004'
  onrush relay tv=239.1.2.3:5004%eth0 --members tv=receivers.txt --delay 20ms
  onrush relay 10.0.0.9@232.1.2.3:5004%eth0 --api off --rtsp off --to 10.0.1.7:5004

Feed it:
  ffmpeg -re -i film.mp4 -c copy -f rtp_mpegts 'rtp://127.0.0.1:5004?pkt_size=1328'
  ffmpeg -re -i film.ts -c copy -f mpegts 'udp://127.0.0.1:5004?pkt_size=1316'

Control it:
  curl -H 'Authorization: Bearer TOKEN' -H 'Content-Type: application/json' \\
    -d '{\"members\": [\"10.0.0.8:5004\"]}' http://127.0.0.1:8555/sources/live/members

Exit codes:
  0  stopped by a signal, all players told
  2  could not start";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn config(options: &[&str]) -> Result<RelayConfig, String> {
        let command = ["onrush", "relay"].iter().chain(options);
        let parsed = Arguments::try_parse_from(command).map_err(|error| error.to_string())?;
        match parsed.command {
            Command::Relay(relay) => relay.config().map_err(|error| error.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_options_there_is_one_source_and_all_is_default() {
        let config = config(&["5004"]).unwrap();
        assert_eq!(config.channels.sources.len(), 1);
        assert_eq!(config.channels.sources[0].name, "live");
        assert_eq!(
            config.channels.api_address,
            Some(([127, 0, 0, 1], 8555).into())
        );
        assert_eq!(config.rtsp_addresses, ["[::]:8554".parse().unwrap()]);
        assert_eq!(config.channels.token.len(), 32);
        let default = RelayConfig::default();
        assert_eq!(
            (config.channels.delay, config.channels.silence),
            (default.channels.delay, default.channels.silence)
        );
        assert!(!config.channels.from_anybody);
    }

    #[test]
    fn a_source_may_be_taken_from_anybody_and_an_address_have_more() {
        let options = [
            "5004",
            "--from-anybody",
            "--connections-per-address-max=16384",
            "--sessions-per-address-max=16384",
        ];
        let config = config(&options).unwrap();
        assert!(config.channels.from_anybody);
        assert_eq!(config.limits.connections_per_address_max, 16_384);
        assert_eq!(config.limits.sessions_per_address_max, 16_384);
    }

    #[test]
    fn an_address_has_a_quarter_of_the_players() {
        let of_address = |options: &[&str]| {
            let limits = config(options).map(|config| config.limits);
            limits.map(|it| it.sessions_per_address_max)
        };
        assert_eq!(of_address(&["5004"]), Ok(4096));
        assert_eq!(of_address(&["5004", "--sessions-max=400"]), Ok(100));
        assert_eq!(of_address(&["5004", "--sessions-max=10"]), Ok(10));
        let more = ["5004", "--sessions-max=400", "--sessions-per-address-max=9"];
        assert_eq!(of_address(&more), Ok(9));
        let error = config(&["5004", "--sessions-max=0"]).unwrap_err();
        assert!(error.contains("from 1 to"), "{error}");
    }

    #[test]
    fn members_belong_to_sources() {
        let options =
            "a=5004 b=5006 --to a=10.0.0.1:1 --to b=10.0.0.2:2 --to a=[::1]:3 --members b=x=y.txt";
        let config = config(&options.split(' ').collect::<Vec<_>>()).unwrap();
        let members = |i: usize| {
            config.channels.sources[i]
                .members
                .iter()
                .map(ToString::to_string)
        };
        assert_eq!(members(0).collect::<Vec<_>>(), ["10.0.0.1:1", "[::1]:3"]);
        assert_eq!(members(1).collect::<Vec<_>>(), ["10.0.0.2:2"]);
        assert_eq!(
            config.channels.sources[1].members_file,
            Some("x=y.txt".into())
        );
    }

    #[test]
    fn what_cannot_be_is_told_why() {
        for (options, said) in [
            ("", "SOURCE"),
            ("0", "0 is none"),
            ("5004 5006", "NAME=[::]:5004"),
            ("a/b=5004", "ADDRESS:PORT"),
            ("a b=5004", "a"),
            (
                "a=5004 b=5006 --to 10.0.0.1:1",
                "say of which channel, as in NAME=10.0.0.1:1; there are: a, b",
            ),
            (
                "a=5004 --to b=10.0.0.1:1",
                "no channel has this name; there are: a",
            ),
            ("5004 --to 239.0.0.1:1", "multicast"),
            ("5004 --to here", "ADDRESS:PORT"),
            ("5004 --members a.txt --members b.txt", "one file"),
            ("5004 --delay 1001ms", "0s to 1s"),
            ("5004 --token-file /no/such/file", "/no/such/file"),
            ("5004 --token-file /dev/null", "16"),
            ("5004 --rtsp x", "as in"),
            ("5004 --way fast", "sendmmsg"),
        ] {
            let options: Vec<_> = options.split(' ').filter(|o| !o.is_empty()).collect();
            let error = config(&options).unwrap_err();
            assert!(error.contains(said), "{options:?}: {error}");
        }
    }

    #[test]
    fn metrics_are_nowhere_unless_asked_for() {
        let at = |options: &[&str]| config(options).map(|config| config.metrics_address);
        assert_eq!(at(&["5004"]), Ok(None));
        assert_eq!(at(&["5004", "--metrics=off"]), Ok(None));
        let local = "127.0.0.1:99".parse().unwrap();
        assert_eq!(at(&["5004", "--metrics=99"]), Ok(Some(local)));
    }

    #[test]
    fn listeners_can_be_switched_off() {
        let config = config(&["5004", "--rtsp", "off", "--api", "off", "--delay", "20ms"]).unwrap();
        assert!(config.rtsp_addresses.is_empty() && config.channels.api_address.is_none());
        assert_eq!(config.channels.delay, Duration::from_millis(20));
    }
}
