//! What `onrush serve` can be told about downloads, and what it says of them.

use std::fmt;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use onrush_server::config::{Limits, PortRange};
use onrush_server::downloads::{AccessLog, DownloadLimits, Downloads, LogTarget};
use onrush_server::transfer::{LEFT_TO_OTHERS, YIELDED_TO_OTHERS};
use onrush_wire::http::{LogFormat, Network};
use onrush_wire::pace::adaptive::LEFT_TO_OTHERS_MAX;
use onrush_wire::pace::schedule::{Fixed, Schedule, Yield};

use crate::hls_options::HlsOptions;
use crate::units::{Rate, Size, Time, within};
use crate::upload_options::UploadOptions;
use crate::user_options::UserOptions;
use crate::values::{DAY, Listen, count, listening_address, or_off};

/// The options of downloads.
#[derive(Args, Debug)]
pub(crate) struct DownloadOptions {
    /// HTTP listens here; repeatable [default: 8080]
    ///
    /// ADDRESS:PORT, ADDRESS or PORT, as for --rtsp, or "off". Where neither --rtsp nor --http is
    /// given HTTP listens at 8080; where only --rtsp is given it does not. All files of the
    /// directory can be downloaded, and folders are listed; hidden ones, whose name begins with a
    /// dot, are not there.
    #[arg(long, value_name = "ADDR", value_parser = http_address)]
    pub(crate) http: Vec<Listen>,

    /// FTP listens here; repeatable
    ///
    /// ADDRESS:PORT, ADDRESS or PORT, as for --rtsp. Anybody may read all there is, as anonymous,
    /// unless there are --users; nobody can change anything, unless there are --uploads. With a
    /// certificate (--tls) clients may have it encrypted (AUTH TLS, PROT P).
    #[arg(long, value_name = "ADDR", value_parser = ftp_address)]
    pub(crate) ftp: Vec<SocketAddr>,

    /// FTP's data ports
    ///
    /// FIRST-LAST: where clients connect to for data in passive mode. A firewall must let them in.
    #[arg(long, value_name = "A-B", hide_short_help = true,
          default_value_t = FtpPorts::default(), value_parser = ftp_ports)]
    pub(crate) ftp_ports: FtpPorts,

    /// Proxies that say whose a request of HTTP is
    ///
    /// ADDRESS or ADDRESS/PREFIX, several with commas between, as in 127.0.0.1,::1,10.0.0.0/8. Of a
    /// request that comes from there the client is the last address in X-Forwarded-For that is no
    /// such proxy, and the scheme that of X-Forwarded-Proto: for the access log, wrong passwords,
    /// rates, redirects and all else. A proxy must set both, and let nobody else connect.
    #[arg(
        long,
        value_name = "ADDR",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) trusted_proxies: Vec<Network>,

    /// A line for each download; -: on stdout
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,

    /// Those lines: combined or json
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "combined",
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub(crate) access_log_format: AccessLogFormat,

    /// Rate of all downloads together
    #[arg(long, value_name = "RATE", hide_short_help = true,
          value_parser = within(Rate(RATE_MIN), Rate(RATE_MAX)))]
    pub(crate) download_rate: Option<Rate>,

    /// Rate of all downloads to one address (of IPv6 a /64)
    #[arg(long, value_name = "RATE", hide_short_help = true,
          value_parser = within(Rate(RATE_MIN), Rate(RATE_MAX)))]
    pub(crate) download_rate_per_client: Option<Rate>,

    /// How downloads are cut in time: fair, yielding, adaptive or BLOCKS,PAUSE
    ///
    /// fair: as fast as each goes, in equal shares. adaptive: so that a third of the processor is
    /// left to others; adaptive=0.5 leaves half of it. BLOCKS,PAUSE: so many blocks of 8 KiB, then
    /// a pause, as in 4,16ms. yielding: fair while nobody else waits for the processor, and leaving
    /// three quarters of it while somebody does; yielding=0.5 and yielding=4,16ms leave then what
    /// adaptive=0.5 and 4,16ms do always.
    #[arg(
        long,
        value_name = "SCHEDULE",
        hide_short_help = true,
        default_value = "fair"
    )]
    pub(crate) download_schedule: DownloadSchedule,

    /// Connections of HTTP and FTP at once; one more is told 503 or 421
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().download_connections_max, value_parser = count)]
    pub(crate) download_connections_max: usize,

    /// Connections of HTTP and FTP at once from one address [default: a quarter]
    ///
    /// Of --download-connections-max, or 64 if that is more; one more is told 503 or 421. Of IPv6
    /// an address is its /64. Of --hls-waiting-max, --ftp-ports and the memory of answers it has as
    /// large a part, or a quarter if that is more. Raise it for viewers behind one NAT, and for
    /// load tests from one machine; proxies of --trusted-proxies have no such bound.
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = count)]
    pub(crate) download_connections_per_address_max: Option<usize>,

    /// Names whose files are kept open for a moment
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().download_files_max, value_parser = count)]
    pub(crate) download_files_max: usize,

    /// Size of computed HLS and DASH segments that are kept in memory; 0B: none
    ///
    /// Segments of MP4 and Matroska that are asked for again are gathered once and sent to all from
    /// there, in one call and without a copy. It is memory of the server itself, beside --cache.
    /// What nobody uses for a minute goes. Parts of channels that many ask for at once have an
    /// eighth of it besides.
    #[arg(long, hide_short_help = true, value_name = "SIZE",
          default_value_t = Size(limits().download_segments_bytes_max),
          value_parser = within(Size(0), Size(1 << 40)))]
    pub(crate) download_segments_max: Size,

    /// Requests on one HTTP connection
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().download_requests_max, value_parser = count)]
    pub(crate) download_requests_max: usize,

    /// Requests at once on one connection of HTTP/2
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().download_streams_max,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) download_streams_max: u32,

    /// How long a request's head or a command may take to arrive
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(limits().download_head_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) download_head_time_max: Time,

    /// How long a connection may be silent between two requests; five times that in FTP
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(limits().download_idle_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) download_idle_time_max: Time,

    /// How long a client may take nothing of what it asked for, or send nothing of an upload
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(limits().download_stall_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) download_stall_time_max: Time,

    #[command(flatten, next_help_heading = "Uploads")]
    pub(crate) uploads: UploadOptions,

    #[command(flatten, next_help_heading = "Live channels by HLS")]
    pub(crate) hls: HlsOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum AccessLogFormat {
    /// As log analysers read it.
    Combined,
    /// One JSON object a line.
    Json,
}

/// The ports of `--ftp-ports`, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FtpPorts(u16, u16);

/// The value of `--download-schedule`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DownloadSchedule {
    schedule: Schedule,
    left_to_others: f64,
}

impl DownloadOptions {
    /// Whether files are taken.
    pub(crate) const fn takes_files(&self) -> bool {
        self.uploads.uploads
    }

    /// The settings; `is_default` says that nobody told where RTSP listens either.
    ///
    /// # Errors
    ///
    /// Where files are to be taken of users that there are not.
    pub(crate) fn settings(
        &self,
        is_default: bool,
        users: &UserOptions,
    ) -> anyhow::Result<Downloads> {
        let everywhere = || listening_address(&HTTP_PORT.to_string(), HTTP_PORT);
        let http_addresses = match self.http[..] {
            [] if is_default => everywhere().into_iter().collect(),
            _ => self.http.iter().filter_map(|it| it.address()).collect(),
        };
        let bytes = |rate: Option<Rate>| rate.map(|rate| rate.0 / 8);
        Ok(Downloads {
            http_addresses,
            // Those are told of beside the other options of TLS.
            https_addresses: Vec::new(),
            ftp_addresses: self.ftp.clone(),
            trusted_proxies: self.trusted_proxies.clone(),
            ftp_ports: PortRange {
                first: self.ftp_ports.0,
                last: self.ftp_ports.1,
            },
            access_log: self.access_log.as_ref().map(|path| AccessLog {
                target: match path.as_os_str() == "-" {
                    true => LogTarget::Stdout,
                    false => LogTarget::File(path.clone()),
                },
                format: match self.access_log_format {
                    AccessLogFormat::Combined => LogFormat::Combined,
                    AccessLogFormat::Json => LogFormat::Json,
                },
            }),
            rate_max: bytes(self.download_rate),
            client_rate_max: bytes(self.download_rate_per_client),
            schedule: self.download_schedule.schedule,
            left_to_others: self.download_schedule.left_to_others,
            uploads: self.uploads.settings(&users.settings())?,
            hls: self.hls.settings(),
            limits: DownloadLimits {
                download_connections_max: self.download_connections_max,
                download_connections_per_address_max: self
                    .download_connections_per_address_max
                    .unwrap_or_else(|| Limits::per_address(self.download_connections_max)),
                download_files_max: self.download_files_max,
                download_segments_bytes_max: self.download_segments_max.0,
                download_requests_max: self.download_requests_max,
                download_streams_max: self.download_streams_max,
                download_head_time_max: self.download_head_time_max.0,
                download_idle_time_max: self.download_idle_time_max.0,
                download_stall_time_max: self.download_stall_time_max.0,
            },
        })
    }
}

/// The line that downloads a file, beside the one that plays it. `url_name` is its name as in a
/// URL.
pub(crate) fn curl_line(
    out: &mut dyn Write,
    address: Option<&SocketAddr>,
    url_name: impl fmt::Display,
) -> std::io::Result<()> {
    let Some(address) = address else {
        return Ok(());
    };
    // Some shells take brackets for a pattern, and so does curl.
    match address.is_ipv6() {
        true => writeln!(out, "download   curl -gO 'http://{address}/{url_name}'"),
        false => writeln!(out, "download   curl -O http://{address}/{url_name}"),
    }
}

impl FromStr for DownloadSchedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let as_usual = |schedule| Self {
            schedule,
            left_to_others: LEFT_TO_OTHERS,
        };
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let share = || {
            let left = value?.parse::<f64>().ok();
            left.filter(|left| (0.0..=LEFT_TO_OTHERS_MAX).contains(left))
        };
        let schedule = match (name, value) {
            ("fair", None) => Some(as_usual(Schedule::Fair)),
            ("adaptive", None) => Some(as_usual(Schedule::Adaptive)),
            ("adaptive", _) => share().map(|left_to_others| Self {
                schedule: Schedule::Adaptive,
                left_to_others,
            }),
            ("yielding", None) => Some(Self {
                schedule: Schedule::Yielding(Yield::Share),
                left_to_others: YIELDED_TO_OTHERS,
            }),
            ("yielding", Some(value)) => match fixed(value) {
                Some(fixed) => Some(as_usual(Schedule::Yielding(Yield::Fixed(fixed)))),
                None => share().map(|left_to_others| Self {
                    schedule: Schedule::Yielding(Yield::Share),
                    left_to_others,
                }),
            },
            _ => fixed(text).map(|fixed| as_usual(Schedule::Fixed(fixed))),
        };
        schedule.ok_or_else(|| {
            format!(
                "write fair, adaptive, adaptive=PART (0 to {LEFT_TO_OTHERS_MAX}), BLOCKS,PAUSE as \
                 in 4,16ms, yielding, yielding=PART or yielding=BLOCKS,PAUSE"
            )
        })
    }
}

/// BLOCKS,PAUSE.
fn fixed(text: &str) -> Option<Fixed> {
    let (blocks, pause) = text.split_once(',')?;
    let pause: Time = pause.parse().ok()?;
    Some(Fixed {
        block_bytes: SCHEDULE_BLOCK_BYTES,
        blocks: blocks.trim().parse().ok().filter(|&blocks| blocks > 0)?,
        pause_ns: u64::try_from(pause.0.as_nanos()).ok()?,
    })
}

impl Default for FtpPorts {
    fn default() -> Self {
        let PortRange { first, last } = Downloads::default().ftp_ports;
        Self(first, last)
    }
}

impl fmt::Display for FtpPorts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

fn limits() -> DownloadLimits {
    DownloadLimits::default()
}

fn http_address(text: &str) -> Result<Listen, String> {
    or_off(text, |text| listening_address(text, HTTP_PORT))
}

fn ftp_address(text: &str) -> Result<SocketAddr, String> {
    listening_address(text, FTP_PORT)
}

fn ftp_ports(text: &str) -> Result<FtpPorts, String> {
    let ends = text.split_once('-').and_then(|(first, last)| {
        let ports: (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (ports.0 >= 1024 && ports.0 <= ports.1).then_some(ports)
    });
    ends.map(|(first, last)| FtpPorts(first, last))
        .ok_or_else(|| "write FIRST-LAST, from 1024 to 65535, as in 60000-60999".to_owned())
}

/// As in the paper that schedules are from.
const SCHEDULE_BLOCK_BYTES: u32 = 8192;
const HTTP_PORT: u16 = 8080;
const FTP_PORT: u16 = 2121;
const RATE_MIN: u64 = 8_000;
const RATE_MAX: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Arguments, Command};

    fn serve(options: &[&str]) -> Result<Downloads, String> {
        let command = ["onrush", "serve"].iter().chain(options);
        match Arguments::try_parse_from(command)
            .map_err(|error| error.to_string())?
            .command
        {
            Command::Serve(serve) => {
                let config = serve.config("media".into());
                Ok(config.map_err(|error| error.to_string())?.downloads)
            }
            other => panic!("{other:?}"),
        }
    }

    fn http(options: &[&str]) -> Vec<String> {
        let addresses = serve(options).unwrap().http_addresses;
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn http_listens_by_itself_only_where_rtsp_does() {
        assert_eq!(http(&[]), ["[::]:8080"]);
        assert_eq!(http(&["--rtsp", "554"]), [""; 0]);
        assert_eq!(
            http(&["--rtsp", "554", "--http", "127.0.0.1"]),
            ["127.0.0.1:8080"]
        );
        assert_eq!(http(&["--http", "off"]), [""; 0]);
        assert_eq!(
            http(&["--http", "80", "--http", "[::1]:81"]),
            ["[::]:80", "[::1]:81"]
        );
        assert!(serve(&[]).unwrap().ftp_addresses.is_empty());
        let ftp = serve(&["--ftp", "127.0.0.1"]).unwrap().ftp_addresses;
        assert_eq!(ftp, ["127.0.0.1:2121".parse().unwrap()]);
    }

    #[test]
    fn every_limit_can_be_set() {
        let options = "--download-connections-max=1 --download-connections-per-address-max=2 \
            --download-files-max=3 --download-requests-max=4 --download-head-time-max=5s \
            --download-streams-max=9 --download-segments-max=8MiB \
            --download-idle-time-max=6s --download-stall-time-max=7s --download-rate=8Mbit/s \
            --download-rate-per-client=80kbit/s --ftp-ports=1024-65535";
        let options: Vec<_> = options.split_whitespace().collect();
        let ours = serve(&options).unwrap();
        let expected = DownloadLimits {
            download_connections_max: 1,
            download_connections_per_address_max: 2,
            download_files_max: 3,
            download_segments_bytes_max: 8 << 20,
            download_requests_max: 4,
            download_streams_max: 9,
            download_head_time_max: Duration::from_secs(5),
            download_idle_time_max: Duration::from_secs(6),
            download_stall_time_max: Duration::from_secs(7),
        };
        assert_eq!(format!("{:?}", ours.limits), format!("{expected:?}"));
        assert_eq!(
            (ours.rate_max, ours.client_rate_max),
            (Some(1_000_000), Some(10_000))
        );
        assert_eq!(
            ours.ftp_ports,
            PortRange {
                first: 1024,
                last: 65_535
            }
        );
        let of_address = |options: &[&str]| {
            let limits = serve(options).unwrap().limits;
            limits.download_connections_per_address_max
        };
        assert_eq!(of_address(&[]), 4096);
        assert_eq!(of_address(&["--download-connections-max=400"]), 100);
        for ports in ["1023-2000", "2000-1999", "1", "a-b"] {
            assert!(serve(&["--ftp-ports", ports]).is_err(), "{ports}");
        }
    }

    #[test]
    fn trusted_proxies_are_addresses_and_networks() {
        let of = |options: &[&str]| serve(options).map(|ours| ours.trusted_proxies);
        assert_eq!(of(&[]), Ok(Vec::new()));
        let expected = ["127.0.0.1", "::1", "10.0.0.0/8"];
        let expected = expected.map(|it| it.parse::<Network>().unwrap());
        for options in [
            &["--trusted-proxies=127.0.0.1,::1,10.0.0.0/8"][..],
            &[
                "--trusted-proxies=127.0.0.1",
                "--trusted-proxies=::1,10.0.0.0/8",
            ],
        ] {
            assert_eq!(of(options), Ok(expected.to_vec()));
        }
        for wrong in ["localhost", "10.0.0.0/33", "127.0.0.1:80"] {
            let error = of(&["--trusted-proxies", wrong]).unwrap_err();
            assert!(error.contains("write ADDRESS or ADDRESS/PREFIX"), "{error}");
        }
    }

    #[test]
    fn schedules_are_named_or_spelled_out() {
        let of = |text: &str| {
            serve(&["--download-schedule", text]).map(|ours| (ours.schedule, ours.left_to_others))
        };
        assert_eq!(serve(&[]).unwrap().schedule, Schedule::Fair);
        assert_eq!(of("adaptive"), Ok((Schedule::Adaptive, LEFT_TO_OTHERS)));
        assert_eq!(of("adaptive=0.99"), Ok((Schedule::Adaptive, 0.99)));
        let fixed = Fixed {
            block_bytes: 8192,
            blocks: 4,
            pause_ns: 16_000_000,
        };
        assert_eq!(of("4,16ms"), Ok((Schedule::Fixed(fixed), LEFT_TO_OTHERS)));
        let share = Schedule::Yielding(Yield::Share);
        assert_eq!(of("yielding"), Ok((share, YIELDED_TO_OTHERS)));
        assert_eq!(of("yielding=0.5"), Ok((share, 0.5)));
        let yielding = Schedule::Yielding(Yield::Fixed(fixed));
        assert_eq!(of("yielding=4,16ms"), Ok((yielding, LEFT_TO_OTHERS)));
        for wrong in [
            "",
            "yielding=",
            "yielding=1",
            "yielding=4,16",
            "yielding=fair",
            "fair=1",
            "adaptive=4,16ms",
            "0,16ms",
            "4,16",
            "4",
            "adaptive=1",
            "adaptive=-1",
            "adaptive=NaN",
        ] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_access_log_goes_to_a_file_or_to_stdout() {
        let log = |options: &[&str]| serve(options).unwrap().access_log;
        assert_eq!(log(&[]), None);
        let file = AccessLog {
            target: LogTarget::File("a.log".into()),
            format: LogFormat::Combined,
        };
        assert_eq!(log(&["--access-log", "a.log"]), Some(file));
        let stdout = AccessLog {
            target: LogTarget::Stdout,
            format: LogFormat::Json,
        };
        assert_eq!(
            log(&["--access-log", "-", "--access-log-format", "json"]),
            Some(stdout)
        );
    }
}
