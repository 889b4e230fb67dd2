//! `onrush relay`: live in, many out.

use std::fmt;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use onrush_group::Way;
use onrush_server::config::Limits;
use onrush_server::relay::config::DELAY_MAX;
use onrush_server::relay::input::Input;
use onrush_server::relay::members::parse_member;
use onrush_server::relay::{ChannelsConfig, Relay, RelayConfig, SourceConfig, new_token};
use onrush_sys::probe;

use crate::args::{DAY, LogFormat, Named, Ports, count, ports, rtsp_address};
use crate::remedy::with_remedy;
use crate::serve::{PLAYER, Signals, log_to_stderr, reached_at};
use crate::status_at_exit::StatusAtExit;
use onrush_cli::units::{Time, within};

/// Give a live stream to many receivers
///
/// Takes RTP or a bare transport stream over UDP and gives every packet to every member, as it came
/// and at once. Members come from --to, from --members and from the control API; players come by
/// themselves, to rtsp://HOST:8554/live/NAME, and get RTP headers where the stream has none. What
/// is odd about a stream (silence, missing packets, another SSRC) is logged, counted and passed on.
/// The first who sends is the source; others are dropped until it falls silent (--from-anybody).
///
/// A member may be the input of another source, but not so that datagrams would come back: such a
/// cycle is refused.
///
/// A SOURCE is [NAME=]INPUT, and INPUT is PORT, ADDRESS:PORT, GROUP:PORT%INTERFACE or, for
/// source-specific multicast, SENDER@GROUP:PORT%INTERFACE. NAME is "live" where there is one
/// source. What tells how to feed and to play each is printed on stdout, the log on stderr.
///
/// SIGINT (Ctrl-C) or SIGTERM says goodbye to every player and ends with 0; a second one ends at
/// once. RUST_LOG sets what is logged: error, warn, info (default), debug, trace.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct RelayCommand {
    /// What to relay: [NAME=]PORT or [NAME=]ADDRESS:PORT
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<Named<Input>>,

    /// Give it to this receiver; repeatable
    ///
    /// [NAME=]ADDRESS:PORT; NAME says of which source, where there are several.
    #[arg(long, value_name = "ADDR")]
    to: Vec<Named<Member>>,

    /// Give it to all in this file, which is watched
    ///
    /// [NAME=]FILE. A line holds ADDRESS:PORT; # begins a comment. A change is taken at once and in
    /// one step; a file with a wrong line is reported and changes nothing.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    members: Vec<Named<PathBuf>>,

    /// How long packets may wait for others to leave with
    ///
    /// 0ms to 1s. Without a delay every packet leaves at once, alone or with what came meanwhile.
    /// 20ms lets trains form, which costs much less for each packet.
    #[arg(long, value_name = "TIME", default_value = "0ms",
          value_parser = within(Time(Duration::ZERO), Time(DELAY_MAX)))]
    delay: Time,

    /// Take a unicast source from everybody who sends
    ///
    /// Without it the first who sends is the source, by address and port, until it has been silent
    /// for 3s; what others send meanwhile is dropped and counted (from_others in the API). A
    /// multicast source is taken from everybody, or from the SENDER that is named.
    #[arg(long)]
    from_anybody: bool,

    /// Replicate in the kernel, where packets arrive
    ///
    /// A tc-ingress program gives each packet to the members; this process is not entered for it.
    /// Takes RTP that comes from another machine (or namespace). Needs root.
    #[arg(long)]
    in_kernel: bool,

    /// Listen for players here; repeatable [default: 8554]
    ///
    /// ADDRESS:PORT, ADDRESS or PORT, as in `onrush serve`; off for no players.
    #[arg(long, value_name = "ADDR")]
    rtsp: Vec<Listen>,

    /// Control API [default: 127.0.0.1:8555]
    ///
    /// ADDRESS:PORT; off for none. HTTP and JSON: add, remove and list members, read the counters.
    /// Its clients need the token.
    #[arg(long, value_name = "ADDR")]
    api: Option<Listen>,

    /// The API's token is this file's first line
    ///
    /// Without it a token is made up and printed.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,

    /// How to replicate
    ///
    /// kernel, uring, sendmmsg or loop: this way or not at all. Without it the best that is
    /// available is taken, and said why.
    #[arg(long, value_name = "WAY", hide_short_help = true)]
    way: Option<Way>,

    /// Processor for the sending threads [default: any]
    #[arg(long, value_name = "N", hide_short_help = true)]
    core: Option<usize>,

    /// When a source counts as silent
    #[arg(long, value_name = "TIME", default_value_t = Time(ChannelsConfig::default().silence),
          value_parser = within(Time(Duration::from_millis(10)), Time(DAY)),
              hide_short_help = true)]
    silence: Time,

    /// UDP ports for players' RTP and RTCP
    #[arg(long, value_name = "A-B", default_value_t = Ports::default(), value_parser = ports,
          hide_short_help = true)]
    rtp_ports: Ports,

    /// Players at once; one more is answered 453
    #[arg(long, value_name = "N", default_value_t = Limits::default().sessions_max,
          hide_short_help = true)]
    sessions_max: usize,

    /// RTSP connections at once from one address
    ///
    /// Raise it for players behind one NAT, and for load tests.
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
}

/// A receiver.
#[derive(Clone, Copy, Debug)]
struct Member(SocketAddr);

/// Where to listen, if at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Listen {
    Off,
    At(SocketAddr),
}

pub(crate) fn run(arguments: &RelayCommand, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    log_to_stderr(arguments.log_format);
    // Before the relay: a signal that comes while it starts must stop it, not kill it.
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let at_exit = StatusAtExit::open(arguments.status_at_exit.as_deref())?;
    let config = arguments.config()?;
    let token = config.channels.token.clone();
    let relay = Relay::start(config).map_err(with_remedy)?;
    // The members matter more than whoever read the first line and closed the pipe.
    if let Err(error) = welcome(&relay, arguments, &token, out) {
        tracing::debug!("cannot print how to play: {error}");
    }
    let name = signals.next();
    tracing::info!("{name}: saying goodbye to all players; once more ends at once");
    thread::spawn(move || signals.exit_at_next());
    at_exit.write(&relay.shutdown(), out)?;
    Ok(ExitCode::SUCCESS)
}

impl RelayCommand {
    fn config(&self) -> anyhow::Result<RelayConfig> {
        let default = RelayConfig::default();
        Ok(RelayConfig {
            channels: ChannelsConfig {
                sources: self.sources()?,
                delay: self.delay.0,
                silence: self.silence.0,
                from_anybody: self.from_anybody,
                api_address: self
                    .api
                    .unwrap_or_else(|| Listen::At((Ipv4Addr::LOCALHOST, API_PORT).into()))
                    .address(),
                token: self.token()?,
                core: self.core,
                way: self.way,
                in_kernel: self.in_kernel,
            },
            rtsp_addresses: match self.rtsp.as_slice() {
                [] => vec![rtsp_address("8554").expect("a port is an address")],
                all => all.iter().filter_map(|listen| listen.address()).collect(),
            },
            rtp_ports: (self.rtp_ports.0, self.rtp_ports.1),
            limits: Limits {
                sessions_max: self.sessions_max,
                connections_per_address_max: self.connections_per_address_max,
                session_timeout: self.session_timeout.0,
                ..default.limits
            },
        })
    }

    fn sources(&self) -> anyhow::Result<Vec<SourceConfig>> {
        let is_one = self.sources.len() == 1;
        let mut sources = Vec::new();
        for Named { name, value } in &self.sources {
            let name = match name {
                Some(name) => name.clone(),
                None if is_one => "live".to_owned(),
                None => bail!("{value}: several sources need names; write NAME={value}"),
            };
            sources.push(SourceConfig {
                name,
                input: value.clone(),
                members: Vec::new(),
                members_file: None,
            });
        }
        for Named { name, value } in &self.to {
            let source = of(&mut sources, name.as_deref(), value)?;
            source.members.push(value.0);
        }
        for Named { name, value } in &self.members {
            let source = of(&mut sources, name.as_deref(), &value.display())?;
            if source.members_file.replace(value.clone()).is_some() {
                bail!("{}: a source has one file of members", value.display());
            }
        }
        Ok(sources)
    }

    fn token(&self) -> anyhow::Result<String> {
        let Some(path) = &self.token_file else {
            return Ok(new_token());
        };
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let token = text.lines().next().unwrap_or("").trim();
        if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "{}: its first line is to be a token of {TOKEN_BYTES_MIN} letters or more",
                path.display()
            );
        }
        Ok(token.to_owned())
    }
}

/// Reads NAME=INPUT.
pub(crate) fn channel(text: &str) -> Result<SourceConfig, String> {
    let Named::<Input> { name, value: input } = text.parse()?;
    let name = name.ok_or_else(|| format!("a channel has a name; write NAME={text}"))?;
    Ok(SourceConfig {
        name,
        input,
        members: Vec::new(),
        members_file: None,
    })
}

/// The source that an option is about.
fn of<'a>(
    sources: &'a mut [SourceConfig],
    name: Option<&str>,
    value: &impl fmt::Display,
) -> anyhow::Result<&'a mut SourceConfig> {
    match (name, &mut *sources) {
        (None, [_]) => Ok(&mut sources[0]),
        (None, _) => bail!("{value}: say of which source; write NAME={value}"),
        (Some(name), _) => match sources.iter().position(|source| source.name == name) {
            Some(found) => Ok(&mut sources[found]),
            None => bail!("{name}={value}: no source has this name"),
        },
    }
}

/// For each stream how to feed and to play it, then how to control the relay.
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
    for channel in relay.channels() {
        let (name, input) = (channel.name(), channel.input());
        writeln!(
            out,
            "source     {name} from {input}, {} members",
            channel.members().len()
        )?;
        let to = feeding_point(input.address, &host);
        writeln!(out, "feed       {FEEDER} 'rtp://{to}?pkt_size=1328'")?;
        for address in &rtsp {
            writeln!(out, "play       {PLAYER} 'rtsp://{address}/live/{name}'")?;
        }
    }
    if let Some(api) = relay.api_address() {
        let header = format!("Authorization: Bearer {token}");
        writeln!(out, "control    curl -H '{header}' http://{api}/sources")?;
    }
    let delay = arguments.delay;
    let how = if arguments.in_kernel {
        "in the kernel".to_owned()
    } else {
        format!("with a delay of {delay} at the most")
    };
    writeln!(out, "relaying   {how}")?;
    writeln!(out, "stopping   with Ctrl-C")?;
    Ok(out.flush()?)
}

/// Where a sender on this machine sends to.
pub(crate) fn feeding_point(input: SocketAddr, host: &[IpAddr]) -> SocketAddr {
    reached_at(input, host).first().copied().unwrap_or(input)
}

impl Listen {
    fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(address) => Some(address),
        }
    }
}

impl FromStr for Member {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let member = parse_member(text).map_err(|error| error.to_string())?;
        Ok(Self(member))
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "off" {
            return Ok(Self::Off);
        }
        rtsp_address(text).map(Self::At)
    }
}

const API_PORT: u16 = 8555;

/// Shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;

pub(crate) const FEEDER: &str = "ffmpeg -re -i FILE -c copy -f rtp_mpegts";

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
            Some(([127, 0, 0, 1], API_PORT).into())
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
        ];
        let config = config(&options).unwrap();
        assert!(config.channels.from_anybody);
        assert_eq!(config.limits.connections_per_address_max, 16_384);
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
            ("a=5004 b=5006 --to 10.0.0.1:1", "say of which source"),
            ("a=5004 --to b=10.0.0.1:1", "no source has this name"),
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
    fn listeners_can_be_switched_off() {
        let config = config(&["5004", "--rtsp", "off", "--api", "off", "--delay", "20ms"]).unwrap();
        assert!(config.rtsp_addresses.is_empty() && config.channels.api_address.is_none());
        assert_eq!(config.channels.delay, Duration::from_millis(20));
    }
}
