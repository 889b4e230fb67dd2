//! Values that several commands take: how they are read, and their bounds.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use onrush_server::channels::config::is_source_name;
use onrush_server::config::{Config, PortRange};

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where to listen, if at all.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Listen {
    At(SocketAddr),
    Off,
}

/// `[NAME=]VALUE`.
#[derive(Clone, Debug)]
pub(crate) struct Named<T> {
    pub(crate) name: Option<String>,
    pub(crate) value: T,
}

impl<T: FromStr<Err: fmt::Display>> FromStr for Named<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) if is_source_name(name) => (Some(name.to_owned()), value),
            Some((name, _)) if !name.contains('/') => {
                return Err(format!(
                    "{name:?} is no name; use up to 64 letters, digits, '.', '-' and '_'"
                ));
            }
            _ => (None, text),
        };
        match value.parse() {
            Ok(value) => Ok(Self { name, value }),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Listen {
    pub(crate) const fn address(self) -> Option<SocketAddr> {
        match self {
            Self::At(address) => Some(address),
            Self::Off => None,
        }
    }
}

/// The ports of `--rtp-ports`, both ends included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports(pub(crate) PortRange);

impl Default for Ports {
    fn default() -> Self {
        Self(Config::default().rtp_ports)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0.first, self.0.last)
    }
}

pub(crate) fn count(text: &str) -> Result<usize, String> {
    let allowed = 1..=COUNT_MAX;
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.ok_or_else(|| format!("allowed is a whole number from 1 to {COUNT_MAX}"))
}

pub(crate) fn rtsp_address(text: &str) -> Result<SocketAddr, String> {
    const PORT: u16 = 8554;
    listening_address(text, PORT)
}

/// Reads ADDRESS:PORT, ADDRESS, which is at `port`, or PORT, which is at every address.
pub(crate) fn listening_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    let address = text.parse::<SocketAddr>().ok();
    let everywhere = || {
        text.parse()
            .ok()
            .map(|port: u16| (Ipv6Addr::UNSPECIFIED, port).into())
    };
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let ip = || bare.parse().ok().map(|ip: IpAddr| (ip, port).into());
    address.or_else(everywhere).or_else(ip).ok_or_else(|| {
        format!(
            "write ADDRESS:PORT, ADDRESS or PORT, as in 127.0.0.1:{port}, [::1]:{port} or {port}"
        )
    })
}

/// Reads as [`listening_address`] does, but a port alone is on loopback.
pub(crate) fn loopback_address(text: &str, port: u16) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        Err(_) => listening_address(text, port),
    }
}

/// Reads `off`, or an address.
pub(crate) fn or_off(
    text: &str,
    address: fn(&str) -> Result<SocketAddr, String>,
) -> Result<Listen, String> {
    match text {
        "off" => Ok(Listen::Off),
        _ => address(text).map(Listen::At),
    }
}

/// Reads where metrics are served.
pub(crate) fn metrics_address(text: &str) -> Result<Listen, String> {
    or_off(text, |text| loopback_address(text, METRICS_ADDRESS.port()))
}

pub(crate) fn ports(text: &str) -> Result<Ports, String> {
    let ends = text.split_once('-').and_then(|(first, last)| {
        let ports: (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (ports.0 > 0 && ports.0.is_multiple_of(2) && ports.1 % 2 == 1 && ports.0 < ports.1)
            .then_some(ports)
    });
    ends.map(|(first, last)| Ports(PortRange { first, last }))
        .ok_or_else(|| {
            "write FIRST-LAST, FIRST even and LAST odd, up to 65535, as in 20000-59999".to_owned()
        })
}

/// Where metrics are served if nothing is said.
pub(crate) const METRICS_ADDRESS: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9554);

pub(crate) const BURST_MIN: Duration = Duration::from_millis(1);
pub(crate) const BURST_MAX: Duration = Duration::from_secs(1);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// As it is written: `1year` has a quarter of a day more than 365.
pub(crate) const YEAR: Duration = Duration::from_secs(31_557_600);
pub(crate) const FALLBACK_BITRATE_MIN: u64 = 10_000;
pub(crate) const FALLBACK_BITRATE_MAX: u64 = 1_000_000_000;
const COUNT_MAX: usize = 1_000_000;
