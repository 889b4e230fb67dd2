//! The options of `onrush serve`, and the settings that they make.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Args, ValueHint};
use onrush_server::config::{Config, Limits};
use onrush_server::downloads::Downloads;
use onrush_server::engine::admission::LOAD_UNLIMITED;
use onrush_server::engine::numbering::RtpHeaders;
#[cfg(feature = "experiments")]
use onrush_server::engine::phase::Phase;
use onrush_server::experiments::Experiments;
use onrush_sys::path::PathName;

use crate::channels::{ChannelArg, ChannelOptions, channel_or_pull};
use crate::cluster_options::ClusterOptions;
use crate::cores::{Cores, cores};
use crate::downloads::DownloadOptions;
use crate::drain_options::DrainOptions;
use crate::libraries::LibraryOptions;
use crate::limit_options::{LimitOptions, bytes, size};
use crate::multicast_options::MulticastOptions;
use crate::objects::ObjectOptions;
use crate::published_options::PublishedOptions;
use crate::sandbox_options::SandboxOptions;
use crate::state::StateOption;
use crate::tls_options::TlsOptions;
use crate::units::{Percent, Rate, Size, Time, within};
use crate::user_options::UserOptions;
use crate::values::{
    BURST_MAX, BURST_MIN, DAY, FALLBACK_BITRATE_MAX, FALLBACK_BITRATE_MIN, Listen, LogFormat,
    METRICS_ADDRESS, Ports, metrics_address, ports, rtsp_address,
};

/// Serve a directory of media files by RTSP and HTTP
///
/// Serves every MP4, MOV, Matroska, WebM and MPEG-TS file under MEDIA_DIR to RTSP 1.0 players over
/// UDP, each under its path: rtsp://HOST:8554/folder/film.mp4, and all files to download at
/// http://HOST:8080/folder/film.mp4. Nothing outside the directory is ever served. The addresses
/// and the commands that play and download each of the first files are printed on stdout, a line
/// for each session and every warning on stderr.
///
/// SIGINT (Ctrl-C) or SIGTERM says goodbye to every player and to idle sessions of FTP, cuts
/// downloads, and ends with 0; a second one ends at once. With --drain-to SIGTERM sends clients on
/// to another server before that. RUST_LOG sets what is logged: error, warn, info (default), debug,
/// trace.
#[derive(Args, Debug)]
#[command(
    after_help = "Users, TLS, live channels and limits have options too: see --help.",
    after_long_help = SERVE_EXAMPLES,
    mut_args(hidden_if_of_channels),
    mut_group("ChannelOptions", |options| options.requires("channels"))
)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) library: LibraryOptions,

    /// What is said here and by ONRUSH_... variables, in a TOML file
    ///
    /// Every option is a key of the file, which `onrush config --default` prints and `onrush check`
    /// checks, and a variable: ONRUSH_RTSP for --rtsp, several values with commas between. An
    /// option wins over its variable, and that over the file.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) config: Option<PathBuf>,

    /// Listen here; repeatable [default: 8554]
    ///
    /// ADDRESS:PORT, ADDRESS or PORT. IPv6 addresses stand in brackets before a port. A port alone
    /// means every address of this machine, IPv4 and IPv6. Port 0 takes a free one, which is
    /// printed.
    #[arg(long, value_name = "ADDR", value_parser = rtsp_address)]
    pub(crate) rtsp: Vec<SocketAddr>,

    /// Length of a burst
    ///
    /// How much of a stream is handed to the kernel together, 1ms to 1s. Longer bursts cost less
    /// CPU and need deeper buffers on the way to the player.
    #[arg(
        long,
        value_name = "TIME",
        default_value_t = Time(Config::default().burst),
        value_parser = within(Time(BURST_MIN), Time(BURST_MAX))
    )]
    pub(crate) burst: Time,

    /// Whose RTP headers packets have: auto, shared or own
    ///
    /// auto: those that all sessions of a file share, until a session's first jump, and from then
    /// on its own, so that its numbers go on as players want it. shared: those always; most players
    /// receive nothing after a seek. own: the session's own from the start, with an SSRC that no
    /// other session has.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHOSE",
        default_value_t = Config::default().rtp_headers
    )]
    pub(crate) rtp_headers: RtpHeaders,

    /// When bursts leave: as-they-come, aligned or spread
    ///
    /// For measuring: streams in the phase in which their viewers came, all in one tick of each
    /// burst's time, or as many in each tick.
    #[cfg(feature = "experiments")]
    #[arg(long, hide = true, value_name = "PHASE", default_value_t = Phase::default())]
    pub(crate) phase: Phase,

    /// How busy a processor that sends may be
    ///
    /// In percent. A session that would make it busier than that is answered 453, and those that
    /// play stay on time. What a session costs is reckoned from what the sessions before it cost; 0
    /// takes all.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PERCENT",
        default_value_t = Percent(Config::default().load_max_permille),
    )]
    pub(crate) load_max: Percent,

    /// Memory for packets, locked
    ///
    /// Holds packets that are ready to be sent, shared by all clients of a file. Larger files
    /// stream through it. A user who may lock less (ulimit -l) gets less, and is told.
    #[arg(
        long,
        value_name = "SIZE",
        default_value_t = size(Config::default().cache_bytes),
        value_parser = within(Size(CACHE_BYTES_MIN), Size(CACHE_BYTES_MAX))
    )]
    pub(crate) cache: Size,

    #[command(flatten)]
    pub(crate) objects: ObjectOptions,

    #[command(flatten)]
    pub(crate) drain: DrainOptions,

    /// Processors that send [default: the last]
    ///
    /// One thread is pinned to each, as in 0,2-3. Without this option it is one thread on the
    /// highest-numbered processor that this process may use; `onrush doctor` lists them.
    #[arg(long, value_name = "LIST", value_parser = cores)]
    pub(crate) cores: Option<Cores>,

    /// Data path
    ///
    /// The best one to try: uring_registered_zc, sendmmsg_gso, sendmmsg or sendto. Where it is not
    /// available the next one is taken, and said so; `onrush doctor` tells why.
    #[arg(long, value_name = "NAME", default_value_t = Config::default().path)]
    pub(crate) path: PathName,

    /// RTP's UDP ports
    ///
    /// FIRST-LAST, with FIRST even and LAST odd: 128 sessions share an even one for RTP and the odd
    /// one above it for RTCP. A firewall must let the players' reports in here.
    #[arg(long, value_name = "A-B", default_value_t = Ports::default(), value_parser = ports)]
    pub(crate) rtp_ports: Ports,

    /// Rate without clock
    ///
    /// The rate of a transport stream that carries no clock (PCR) and so does not tell its own.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "RATE",
        default_value_t = Rate(Config::default().fallback_bitrate),
        value_parser = within(Rate(FALLBACK_BITRATE_MIN), Rate(FALLBACK_BITRATE_MAX))
    )]
    pub(crate) fallback_bitrate: Rate,

    /// Life of a silent session
    ///
    /// How long a session lives without a sign of its client: a request, or an RTCP report.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value_t = Time(Limits::default().session_timeout),
        value_parser = within(Time(Duration::from_secs(1)), Time(DAY))
    )]
    pub(crate) session_timeout: Time,

    /// Where indexes outlive the server [default: see --help]
    ///
    /// A film that was played once is not read again after a restart. off for nowhere; servers may
    /// share a directory, which is made if there is none. By default it is $STATE_DIRECTORY, as
    /// systemd sets it, or onrush in $XDG_STATE_HOME or ~/.local/state. What is there may be
    /// removed at any time.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, hide_short_help = true)]
    pub(crate) state: Option<StateOption>,

    /// Write the status to FILE at the end; - for stdout
    ///
    /// JSON, as /status tells it, of when all sessions have ended. The file is there as a whole or
    /// not at all. One that cannot be written is refused at the start. A second signal, which ends
    /// at once, writes nothing.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) status_at_exit: Option<PathBuf>,

    /// Log lines: text or json
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true
    )]
    pub(crate) log_format: LogFormat,

    /// Metrics and status [default: 127.0.0.1:9554]
    ///
    /// ADDRESS:PORT, ADDRESS, or PORT on loopback; off for none. /metrics is for Prometheus,
    /// /status the same as JSON; `onrush top` shows it. Whoever can connect can read it. By default
    /// where --rtsp is not given.
    #[arg(long, value_name = "ADDR", value_parser = metrics_address)]
    pub(crate) metrics: Option<Listen>,

    #[command(flatten)]
    pub(crate) sandbox: SandboxOptions,

    #[command(flatten, next_help_heading = "Downloads")]
    pub(crate) downloads: DownloadOptions,

    #[command(flatten, next_help_heading = "TLS")]
    pub(crate) tls: TlsOptions,

    #[command(flatten, next_help_heading = "Users")]
    pub(crate) users: UserOptions,

    /// A live channel beside the files: NAME=INPUT; repeatable
    ///
    /// Players find it at rtsp://HOST:8554/live/NAME; a file of the same path is not played then.
    /// INPUT is PORT, ADDRESS:PORT, GROUP:PORT%INTERFACE or SENDER@GROUP:PORT%INTERFACE, and takes
    /// RTP or a bare transport stream over UDP, from the first who sends. Or it is
    /// rtsp://USER:PASSWORD@HOST/PATH, a camera or another server that is asked, by TCP or UDP, for
    /// all of its tracks. The options below are about all channels.
    #[arg(long = "channel", value_name = "CHANNEL", value_parser = channel_or_pull,
          help_heading = CHANNELS_HEADING)]
    pub(crate) channels: Vec<ChannelArg>,

    /// Ask cameras and other servers only while somebody watches
    #[arg(long, requires = "channels", help_heading = CHANNELS_HEADING)]
    pub(crate) on_demand: bool,

    #[command(flatten, next_help_heading = CHANNELS_HEADING)]
    pub(crate) published: PublishedOptions,

    #[command(flatten, next_help_heading = CHANNELS_HEADING)]
    pub(crate) of_channels: ChannelOptions,

    #[command(flatten, next_help_heading = "Multicast")]
    pub(crate) multicast: MulticastOptions,

    #[command(flatten, next_help_heading = "Cluster")]
    pub(crate) cluster: ClusterOptions,

    #[command(
        flatten,
        next_help_heading = "Limits (what peers and files can make the server hold)"
    )]
    pub(crate) limits: LimitOptions,
}

impl Serve {
    /// The server's settings, with the files at `media_root`, and without a state directory that
    /// was not named.
    ///
    /// # Errors
    ///
    /// Where options that are fine by themselves do not fit together.
    pub(crate) fn config(&self, media_root: PathBuf) -> anyhow::Result<Config> {
        let default = Config::default();
        self.library.check(self.downloads.takes_files())?;
        self.objects.check(self.library.served().as_ref())?;
        let (tls, rtsps_addresses, https_addresses) = self.tls.settings()?;
        let cores = self.cores.as_ref().map(|cores| cores.0.clone());
        let state = self.state.as_ref().and_then(StateOption::directory);
        Ok(Config {
            media_root,
            remote: None,
            libraries: self.library.folders(),
            rtsps_addresses,
            tls,
            rtsp_addresses: match self.rtsp.is_empty() {
                true => default.rtsp_addresses,
                false => self.rtsp.clone(),
            },
            rtp_ports: self.rtp_ports.0,
            load_max_permille: match self.load_max.0 {
                0 => LOAD_UNLIMITED,
                permille => permille,
            },
            burst: self.burst.0,
            rtp_headers: self.rtp_headers,
            cache_bytes: bytes(self.cache),
            cores: cores.unwrap_or_default(),
            state: state.map(Into::into),
            users: self.users.settings(),
            drain: self.drain.settings(),
            cluster: self.cluster.settings()?,
            limits: self.limits.settings(self.session_timeout.0),
            downloads: Downloads {
                https_addresses,
                ..self.downloads.settings(self.rtsp.is_empty(), &self.users)?
            },
            channels: self.published.settings(
                self.of_channels
                    .with_pulls(&self.channels, self.on_demand)?,
            ),
            multicast: self.multicast.settings()?,
            metrics_address: match self.metrics {
                None => self.rtsp.is_empty().then_some(METRICS_ADDRESS),
                Some(listen) => listen.address(),
            },
            fallback_bitrate: self.fallback_bitrate.0,
            path: self.path,
            session_hook: None,
            experiments: self.experiments(),
        })
    }

    #[cfg(feature = "experiments")]
    fn experiments(&self) -> Experiments {
        let mut experiments = Experiments::default();
        experiments.phase = self.phase;
        experiments
    }

    #[cfg(not(feature = "experiments"))]
    #[allow(clippy::unused_self, reason = "with the feature it has the options")]
    fn experiments(&self) -> Experiments {
        Experiments::default()
    }
}

/// The short help has no room for options that only channels have.
fn hidden_if_of_channels(option: Arg) -> Arg {
    match option.get_help_heading() {
        Some(CHANNELS_HEADING) => option.hide_short_help(true),
        _ => option,
    }
}

const CHANNELS_HEADING: &str = "Live channels";
const CACHE_BYTES_MIN: u64 = 1 << 20;
const CACHE_BYTES_MAX: u64 = 1 << 40;

const SERVE_EXAMPLES: &str = "\
Examples:
  onrush serve /srv/films --cache 8GiB --cores 2,3
  onrush serve /srv/films --rtsp 192.0.2.7:554 --rtsp '[2001:db8::7]:554'
  onrush serve --rtsp 127.0.0.1:0   only this machine, any free port
  onrush serve /srv/films --ftp 2121 --access-log - --http 80
  onrush serve /srv/films --channel tv=5004 --to 10.0.0.7:5004 --api 8555
  onrush user add /etc/onrush/users anna
  onrush serve /srv/films --users /etc/onrush/users

Play it:
  ffplay -rtsp_transport udp rtsp://127.0.0.1:8554/demo.mp4
  vlc rtsp://127.0.0.1:8554/demo.ts
  mpv --rtsp-transport=udp rtsp://127.0.0.1:8554/demo.ts

Download it:
  curl -O http://127.0.0.1:8080/demo.ts

Exit codes:
  0  stopped by a signal, all clients told
  2  could not start";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Arguments, Command};
    use clap::Parser;

    fn serve(options: &[&str]) -> Result<Config, String> {
        let command = ["onrush", "serve"].iter().chain(options);
        match Arguments::try_parse_from(command)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Serve(serve) => {
                let config = serve.config("media".into());
                config.map_err(|error| error.to_string())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn rtp_headers_are_as_they_are_named() {
        for whose in RtpHeaders::ALL {
            let options = serve(&["--rtp-headers", whose.as_str()]).unwrap();
            assert_eq!(options.rtp_headers, whose);
        }
        assert!(serve(&["--rtp-headers", "theirs"]).is_err());
    }

    #[cfg(feature = "experiments")]
    #[test]
    fn a_phase_is_what_streams_begin_in() {
        for phase in Phase::ALL {
            assert_eq!(
                serve(&["--phase", phase.as_str()])
                    .unwrap()
                    .experiments
                    .phase,
                phase
            );
        }
        assert!(
            serve(&["--phase", "in-a-row"])
                .unwrap_err()
                .contains("spread")
        );
    }

    #[test]
    fn without_options_the_settings_are_the_defaults() {
        let mut ours = serve(&[]).unwrap();
        let mut default = Config::default();
        // Made up, for an API that nobody asked for.
        ours.channels.token.clear();
        // The library listens nowhere that it was not told to.
        default.downloads.http_addresses = vec!["[::]:8080".parse().unwrap()];
        default.metrics_address = Some("127.0.0.1:9554".parse().unwrap());
        assert_eq!(format!("{ours:?}"), format!("{default:?}"));
    }

    #[test]
    fn metrics_are_on_loopback_unless_told_otherwise() {
        let at = |options: &[&str]| serve(options).map(|ours| ours.metrics_address);
        let address = |text: &str| Ok(Some(text.parse().unwrap()));
        assert_eq!(at(&["--rtsp", "8554"]), Ok(None));
        assert_eq!(at(&["--metrics", "off"]), Ok(None));
        assert_eq!(at(&["--metrics", "99"]), address("127.0.0.1:99"));
        assert_eq!(at(&["--metrics", "[::]:99"]), address("[::]:99"));
        assert_eq!(at(&["--metrics", "192.0.2.7"]), address("192.0.2.7:9554"));
        assert!(at(&["--metrics", "here"]).is_err());
    }

    #[test]
    fn every_limit_can_be_set() {
        let options = "--sessions-max=1 --sessions-per-address-max=16 --connections-max=2 \
            --connections-per-address-max=3 \
            --request-head-max=4KiB --request-headers-max=5 --request-body-max=6B \
            --request-time-max=7s --idle-time-max=8s --session-timeout=9s --files-max=10 \
            --growth-time-max=11s --state-max=12MiB --unacknowledged-max=130KiB \
            --stall-time-max=14s";
        let options: Vec<_> = options.split_whitespace().collect();
        let expected = Limits {
            sessions_max: 1,
            sessions_per_address_max: 16,
            connections_max: 2,
            connections_per_address_max: 3,
            request_head_bytes_max: 4096,
            request_headers_max: 5,
            request_body_bytes_max: 6,
            request_time_max: Duration::from_secs(7),
            idle_time_max: Duration::from_secs(8),
            session_timeout: Duration::from_secs(9),
            files_max: 10,
            growth_time_max: Duration::from_secs(11),
            state_bytes_max: 12 << 20,
            unacknowledged_bytes_max: 130 << 10,
            stall_time_max: Duration::from_secs(14),
        };
        assert_eq!(
            format!("{:?}", serve(&options).unwrap().limits),
            format!("{expected:?}")
        );
    }

    #[test]
    fn an_address_has_a_quarter_of_sessions_and_connections() {
        let of_address = |options: &[&str]| {
            let limits = serve(options).map(|config| config.limits);
            limits.map(|it| (it.sessions_per_address_max, it.connections_per_address_max))
        };
        assert_eq!(of_address(&[]), Ok((4096, 4096)));
        for (most, quarter) in [(1000, 250), (8, 8)] {
            let [sessions, connections] =
                ["sessions", "connections"].map(|it| format!("--{it}-max={most}"));
            assert_eq!(of_address(&[&sessions]), Ok((quarter, 4096)));
            assert_eq!(of_address(&[&connections]), Ok((4096, quarter)));
        }
        let all = [
            "--sessions-per-address-max=9",
            "--connections-per-address-max=7",
        ];
        assert_eq!(of_address(&all), Ok((9, 7)));
    }

    #[test]
    fn addresses_may_lack_a_port_or_be_only_one() {
        let listens = |text: &str| serve(&["--rtsp", text]).map(|config| config.rtsp_addresses);
        for (text, address) in [
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("554", "[::]:554"),
            ("127.0.0.1", "127.0.0.1:8554"),
            ("::1", "[::1]:8554"),
            ("[::1]", "[::1]:8554"),
            ("[::1]:99", "[::1]:99"),
        ] {
            assert_eq!(listens(text), Ok(vec![address.parse().unwrap()]), "{text}");
        }
        for text in ["", "localhost", "65536", "127.0.0.1:65536", ":554"] {
            assert!(
                listens(text).unwrap_err().contains("as in 127.0.0.1:8554"),
                "{text}"
            );
        }
        let two = serve(&["--rtsp", "1", "--rtsp", "2"]).unwrap();
        assert_eq!(two.rtsp_addresses.len(), 2);
    }

    #[test]
    fn a_load_has_a_decimal_or_is_unbounded() {
        let load = |text: &str| serve(&["--load-max", text]).map(|config| config.load_max_permille);
        assert_eq!(load("12.5"), Ok(125));
        assert_eq!(load("100"), Ok(1000));
        assert_eq!(load("0"), Ok(LOAD_UNLIMITED));
        for text in ["", "a", "1.", ".1", "1.25", "1.+1", "70000"] {
            assert!(load(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cores_are_lists_and_ranges() {
        let listed = |text: &str| serve(&["--cores", text]).map(|config| config.cores);
        assert_eq!(listed("0,2-4"), Ok(vec![0, 2, 3, 4]));
        assert_eq!(listed("1023"), Ok(vec![1023]));
        for text in ["", "a", "1,", "3-2", "1024", "0-99999999999", "-1"] {
            assert!(listed(text).is_err(), "{text}");
        }
        assert!(
            listed("1,0-2")
                .unwrap_err()
                .contains("processor 1 is named twice")
        );
    }

    #[test]
    fn ports_come_in_pairs() {
        let pair = |text: &str| {
            serve(&["--rtp-ports", text]).map(|config| {
                let ports = config.rtp_ports;
                (ports.first, ports.last)
            })
        };
        assert_eq!(pair("20000-20001"), Ok((20_000, 20_001)));
        assert_eq!(pair("2-65535"), Ok((2, 65535)));
        for text in [
            "20000",
            "20001-20002",
            "20000-20000",
            "0-9",
            "20002-20001",
            "2-65537",
        ] {
            assert!(pair(text).unwrap_err().contains("FIRST even"), "{text}");
        }
    }

    #[test]
    fn values_outside_their_bounds_are_told_the_bounds() {
        for (option, inside, outside, said) in [
            ("--burst", "1s", "1001ms", "1ms to 1s"),
            ("--burst", "1ms", "999us", "1ms to 1s"),
            ("--cache", "1MiB", "1023KiB", "1MiB to 1TiB"),
            ("--cache", "1TiB", "1.1TiB", "1MiB to 1TiB"),
            (
                "--fallback-bitrate",
                "1Gbit/s",
                "1.1Gbit/s",
                "10kbit/s to 1Gbit/s",
            ),
            (
                "--fallback-bitrate",
                "10kbit/s",
                "9999bit/s",
                "10kbit/s to 1Gbit/s",
            ),
            ("--load-max", "100", "100.1", "0 to 100"),
            ("--load-max", "0.1", "0.01", "0 to 100"),
            ("--load-max", "0", "1e2", "0 to 100"),
            ("--session-timeout", "1s", "999ms", "1s to 1day"),
            ("--session-timeout", "1day", "86401s", "1s to 1day"),
            ("--sessions-max", "1", "0", "from 1 to 1000000"),
            ("--files-max", "1000000", "1000001", "from 1 to 1000000"),
            ("--request-head-max", "1MiB", "1025KiB", "1KiB to 1MiB"),
        ] {
            assert!(serve(&[option, inside]).is_ok(), "{option} {inside}");
            let error = serve(&[option, outside]).unwrap_err();
            assert!(error.contains(said), "{option} {outside}: {error}");
        }
    }
}
