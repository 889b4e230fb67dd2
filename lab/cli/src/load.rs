//! `onrush-lab load`, on a terminal.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum, ValueHint};
use onrush_measure::histogram::{STEP_NS, TOLD_NS_MAX};
use onrush_measure::load::hls::{self, HlsSettings};
use onrush_measure::load::hls_report::hls_report;
use onrush_measure::load::http::{self, HttpSettings};
use onrush_measure::load::http_report::http_report;
use onrush_measure::load::report::report;
use onrush_measure::load::{self, Arrival, Behaviour, Progress, Receive, Settings, Transport};

use crate::frame::{Output, VERSION, bar_of_time};
use onrush_cli::units::{Rate, Time, within};

/// Watch a server with many eyes, and tell how it did
///
/// Downloads http:// URLs as so many clients, and plays hls:// URLs as so many players, see below;
/// with rtsp:// URLs:
///
/// Plays the URLs as so many RTSP viewers, of any server, this one or another, and tells
/// what they notice: packets lost, out of order, late against their RTP timestamps, and how soon
/// the first came; and what their players would have had to buffer. Ends with 1 if a packet was
/// lost, came twice or was due and did not come, if too many viewers would have had to buffer more
/// than --lateness and two bursts of 20 ms, or waited too long for the first, or if one was turned
/// away. What was missed while the load generator was late itself, or had no more of its processor
/// to take, is void, which is 2.
///
/// Sockets receive a few hundred streams of 4 Mbit/s on one processor. With --sink packets are
/// counted where they reach the device, and dropped: ten thousand streams on less than one. That
/// needs root. Of viewers whose packets come on their connections --inspected look at them, and the
/// others throw away what comes without having it copied.
///
/// Redirects are followed, three at most. Ctrl-C ends a load early, and it tells what was seen by
/// then; a second one waits for nobody.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Load {
    /// What to watch, the most popular first, by rtsp, rtsps, hls or http
    #[arg(required_unless_present = "from", conflicts_with = "from", value_hint = ValueHint::Url)]
    urls: Vec<String>,

    /// How packets come: udp, tcp, tls, srtp, multicast
    ///
    /// udp by itself, and of rtsps:// tls, which is tcp over TLS. srtp is asked for by SETUP, over
    /// rtsps:// or, of a server that tells keys without TLS, rtsp://. Over multicast all viewers
    /// join one group for each track.
    #[arg(long, value_name = "HOW", hide_possible_values = true)]
    transport: Option<Transport>,

    /// So many viewers look at the packets that come on their connections, or decrypt SRTP
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = load::INSPECTED)]
    inspected: u32,

    /// Who viewers are, by Digest or Basic (rtsp)
    ///
    /// Without it they are who an URL says: rtsp://NAME:PASSWORD@HOST/PATH.
    #[arg(long, hide_short_help = true, value_name = "NAME:PASSWORD", value_parser = user)]
    user: Option<(String, String)>,

    /// Viewers at once
    ///
    /// They come from one address, of which `onrush serve` takes 4096 connections and sessions: for
    /// more start it with a higher --connections-per-address-max and --sessions-per-address-max;
    /// for HLS, whose players have two connections, --download-connections-per-address-max.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    clients: u32,

    /// How they come: ramp, at-once or poisson
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Come::Ramp,
          hide_possible_values = true)]
    arrival: Come,

    /// Within which time [default: 5ms for each]
    #[arg(long, value_name = "TIME")]
    ramp: Option<Time>,

    /// How long all of them watch
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_secs(10)))]
    time: Time,

    /// How popularity falls from URL to URL, by Zipf; 0: all alike
    #[arg(
        long,
        value_name = "EXPONENT",
        default_value_t = 1.0,
        hide_short_help = true
    )]
    zipf: f64,

    /// Jump to another place this often, on average
    ///
    /// Sequence numbers are to go on over a jump (RFC 2326, appendix B), as players expect: of a
    /// server that begins anew with them packets are told as lost, or as having come twice.
    #[arg(long, value_name = "TIME")]
    seek_every: Option<Time>,

    /// Pause for a second this often, on average
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    pause_every: Option<Time>,

    /// Leave after so long, on average; another comes
    #[arg(long, value_name = "TIME")]
    stay: Option<Time>,

    /// So many of the viewers jump, pause and leave, in percent; the others only watch
    #[arg(long, hide_short_help = true, value_name = "PERCENT", default_value_t = 100.0,
          value_parser = within(0.0, 100.0))]
    active: f64,

    /// Count packets at this device and drop them (root)
    ///
    /// That is what the servers of the URLs send to ports of viewers; all else that comes to the
    /// device passes. With a server on this machine that others publish to meanwhile, begin with
    /// --ports outside of its --rtp-ports: publishers send from the same address.
    #[arg(long, value_name = "DEVICE")]
    sink: Option<String>,

    /// Receive at ports from here
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PORT",
        default_value_t = 20_000
    )]
    ports: u16,

    /// A packet later than this is late
    ///
    /// A player buffers this and two bursts of 20 ms. Zero is the least of when packets of the
    /// viewer's first second came less their media time: what is later than that by more than the
    /// player buffers is late. Told besides is lateness against the first packet that a viewer got,
    /// in steps of 0.1 ms. What a live channel sends at once to those who join, from its last sync
    /// sample on, is older than what follows, and is not late.
    ///
    /// Films of tracks need more: sound leaves in trains whose second packet is up to 93 ms early,
    /// and pictures that are shown in another order than they are sent (B frames) take as long as
    /// they wait for each other. With 140 ms a player buffers the 180 ms that bench capacity and
    /// bench soak give it for such films.
    #[arg(long, value_name = "TIME", default_value_t = Time(Duration::from_millis(20)),
          value_parser = within(LATENESS_MIN, LATENESS_MAX))]
    lateness: Time,

    /// So many of the viewers may have players that buffer too little, in percent, or wait too long
    /// for their first packet
    #[arg(
        long,
        hide_short_help = true,
        value_name = "PERCENT",
        default_value_t = 0.1
    )]
    late_max: f64,

    /// So many viewers are to watch at the end, in time: others may be refused (453) [default: all]
    #[arg(long, hide_short_help = true, value_name = "N")]
    aim: Option<u32>,

    /// The server's process, to tell what it uses
    ///
    /// If it ends meanwhile that is a failure, and what it had used by then is told.
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Draw other places, choices and times
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Each client downloads no faster (http)
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// The first byte of 99 in 100 answers may take so long (http) [default: any time]
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    first_byte_max: Option<Time>,

    /// Shares must be so even, by Jain's index from 0 to 1 (http)
    #[arg(
        long,
        hide_short_help = true,
        value_name = "INDEX",
        default_value_t = 0.0
    )]
    evenness_min: f64,

    /// Players fetch films so far ahead (hls)
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(Duration::from_secs(30)))]
    buffer: Time,

    /// 99 in 100 players may take so long to begin (hls), and 999 in 1000 viewers (rtsp) to see
    /// their first packet, from when they were to come, refusals included unless there is an --aim
    /// [default: any time; 5s]
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    start_up_max: Option<Time>,

    /// 99 in 100 may be so far behind a live channel (hls) [default: any time]
    ///
    /// That is told by when playlists say that it was recorded, and this machine's clock: set both
    /// clocks alike. Where the server's is seen to be ahead that is void.
    #[arg(long, hide_short_help = true, value_name = "TIME")]
    latency_max: Option<Time>,

    /// Never sleep, so that the server need not wake this processor (hls); a processor of its own
    /// is needed
    #[arg(long, hide_short_help = true)]
    busy_poll: bool,

    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Come {
    /// Evenly
    Ramp,
    /// All at the first moment
    AtOnce,
    /// Independently of each other
    Poisson,
}

/// A step, because a first packet is late by nothing.
const LATENESS_MIN: Time = Time(Duration::from_nanos(STEP_NS.unsigned_abs()));

/// What is later is not told apart.
const LATENESS_MAX: Time = Time(Duration::from_nanos(TOLD_NS_MAX.unsigned_abs()));

const EXAMPLES: &str = "\
Examples:
  A hundred viewers of one film:
      onrush-lab load -n 100 rtsp://127.0.0.1:8554/demo.ts

  Five thousand who come and go, with the server's processor time:
      onrush-lab load -n 5000 --sink lo --stay 2m --pid $(pidof -s onrush) \\
          rtsp://127.0.0.1:8554/a.ts rtsp://127.0.0.1:8554/b.ts

  Two hundred downloads at 8 Mbit/s each, which jump about:
      onrush-lab load -n 200 --rate 8Mbit/s --seek-every 5s \\
          http://127.0.0.1:8080/film.ts

  Two hundred over TLS, of whom twenty look at every packet:
      onrush-lab load -n 200 --inspected 20 rtsps://127.0.0.1:8322/demo.mp4

  A thousand players of a live channel with low latency:
      onrush-lab load -n 1000 hls://127.0.0.1:8080/live/cam/hls/index.m3u8

Of hls:// URLs it tells how soon players began, how often and how long they
stood still, and how far behind the live edge they were at the end. Each plays
the first variant in real time, without TLS; a film begins again at its end.

Of http:// URLs it tells throughput, time to the first byte, how even the
shares of clients are, and what failed. --seek-every asks for the rest of
the file from another place, --stay hangs up in the middle.

Exit codes:
  0  every viewer was served in time, or as many as --aim says
  1  something was lost, late or refused, or fewer watched than --aim says
  2  the load could not be made, or is void: packets came, but of none is known
     when it was due, or what was missed may be the load generator's fault";

/// Makes a load, or tells of one that was made.
pub(crate) fn run(arguments: &Load, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let has = |scheme| arguments.urls.iter().any(|url| url.starts_with(scheme));
    let experiment = arguments.output.experiment()?;
    let of = |name, scheme| {
        let experiment = experiment.as_deref();
        experiment.map_or_else(|| has(scheme), |it| it == name)
    };
    let (of_http, of_hls) = (of(http::NAME, "http://"), of(hls::NAME, hls::SCHEME));
    if !of_http && !of_hls {
        let settings = arguments.settings();
        let measure = |command: &str| load::run(&settings, VERSION, command, bar("watching"));
        let output = &arguments.output;
        return output.of_searched(load::NAME, measure, report, out);
    }
    if arguments.sink.is_some() {
        bail!("--sink counts RTP; leave it out for http:// and hls://");
    }
    if arguments.user.is_some() {
        bail!(
            "--user is for rtsp:// and rtsps://; for http:// and hls:// give a signed URL, or one \
             with a token (?token=)"
        );
    }
    if arguments.aim.is_some() {
        bail!("--aim counts viewers by RTSP; leave it out for http:// and hls://");
    }
    if of_hls {
        let settings = arguments.hls_settings()?;
        let measure = |command: &str| hls::run(&settings, VERSION, command, bar("playing"));
        let output = &arguments.output;
        return output.of_searched(hls::NAME, measure, hls_report, out);
    }
    let settings = arguments.http_settings();
    let measure = |command: &str| http::run(&settings, VERSION, command, bar("downloading"));
    let output = &arguments.output;
    output.of_searched(http::NAME, measure, http_report, out)
}

impl Load {
    fn hls_settings(&self) -> anyhow::Result<HlsSettings> {
        if self.seek_every.is_some() || self.pause_every.is_some() || self.stay.is_some() {
            bail!("players of hls:// play on: leave --seek-every, --pause-every and --stay out");
        }
        let common = self.settings();
        Ok(HlsSettings {
            zipf: common.zipf,
            arrival: common.arrival,
            ramp_ns: common.ramp_ns,
            time_ns: common.time_ns,
            buffer_ns: self.buffer.nanos(),
            start_up_ns_max: self.start_up_max.as_ref().map(Time::nanos),
            latency_ns_max: self.latency_max.as_ref().map(Time::nanos),
            busy_poll: self.busy_poll,
            pid: common.pid,
            seed: common.seed,
            ..HlsSettings::new(common.urls, common.clients)
        })
    }

    fn http_settings(&self) -> HttpSettings {
        let common = self.settings();
        HttpSettings {
            zipf: common.zipf,
            arrival: common.arrival,
            ramp_ns: common.ramp_ns,
            time_ns: common.time_ns,
            behaviour: common.behaviour,
            rate: self.rate.map(|rate| rate.0 / 8),
            first_byte_ns_max: self.first_byte_max.as_ref().map(Time::nanos),
            evenness_min: self.evenness_min,
            pid: common.pid,
            seed: common.seed,
            ..HttpSettings::new(common.urls, common.clients)
        }
    }

    fn settings(&self) -> Settings {
        let settings = Settings::new(self.urls.clone(), self.clients);
        let or_never = |time: Option<Time>| time.map_or(0, |time| time.nanos());
        Settings {
            zipf: self.zipf,
            arrival: match self.arrival {
                Come::Ramp => Arrival::Ramp,
                Come::AtOnce => Arrival::AtOnce,
                Come::Poisson => Arrival::Poisson,
            },
            ramp_ns: self.ramp.map_or(settings.ramp_ns, |time| time.nanos()),
            time_ns: self.time.nanos(),
            behaviour: Behaviour {
                active_part: self.active / 100.0,
                seek_every_ns: or_never(self.seek_every),
                pause_every_ns: or_never(self.pause_every),
                stay_ns: or_never(self.stay),
            },
            transport: self.transport.unwrap_or_else(|| {
                let first = self.urls.first().map(String::as_str);
                Transport::of_url(first.unwrap_or_default())
            }),
            inspected: self.inspected,
            user: self.user.clone(),
            receive: match &self.sink {
                None => Receive::Sockets,
                Some(device) => Receive::Sink {
                    device: device.clone(),
                    look_every: 1,
                    bursts: true,
                },
            },
            port_first: self.ports,
            lateness_ns_max: i64::try_from(self.lateness.nanos()).unwrap_or(i64::MAX),
            late_part_max: self.late_max / 100.0,
            aim: self.aim,
            // What an URL plays, and how many tracks, is not known before DESCRIBE, and other
            // servers need not send sound ahead: so no room for that, but what `--lateness` asks.
            buffer_ns: Some(self.lateness.nanos() + load::BURSTS_BUFFERED * load::BURST_NS),
            start_up_ns_max: match &self.start_up_max {
                None => settings.start_up_ns_max,
                Some(time) => time.nanos(),
            },
            pid: self.pid,
            seed: self.seed,
            ..settings
        }
    }
}

/// A user and a password.
fn user(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':');
    let (name, password) = parts.ok_or("ask for NAME:PASSWORD")?;
    Ok((name.to_owned(), password.to_owned()))
}

/// A bar that is told of clients who do this.
fn bar(what: &'static str) -> impl Fn(Progress) {
    let bar = bar_of_time();
    move |progress| {
        let (watching, failed) = (progress.watching, progress.failed);
        let now = format!("{watching} {what}, {failed} failed");
        bar(progress.elapsed_ns, progress.total_ns, &now);
    }
}
