//! What `onrush serve` can be told about TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use onrush_server::tls::{
    CertificateFiles, KernelTlsUse, SrtpKeys, SrtpOffer, TlsConfig, TlsLimits,
};
use onrush_sys::probe;

use crate::units::{Time, within};
use crate::values::{DAY, count, listening_address};

/// The options of TLS.
#[derive(Args, Debug)]
pub(crate) struct TlsOptions {
    /// RTSP over TLS listens here; repeatable [default: 8322]
    ///
    /// ADDRESS:PORT, ADDRESS or PORT, as for --rtsp. Where TLS is asked for and neither --rtsps nor
    /// --https is given both listen; where one is given, the other does not.
    #[arg(long, value_name = "ADDR", value_parser = rtsps_address, hide_short_help = true,
          requires = "shown")]
    pub(crate) rtsps: Vec<SocketAddr>,

    /// HTTP over TLS listens here; repeatable [default: 8443]
    #[arg(long, value_name = "ADDR", value_parser = https_address, hide_short_help = true,
          requires = "shown")]
    pub(crate) https: Vec<SocketAddr>,

    /// TLS with a certificate of its own: self-signed
    ///
    /// It names this host and its addresses, is kept in --state and its fingerprint printed, so
    /// that clients can be told whom to trust.
    #[arg(
        long,
        value_name = "HOW",
        group = "shown",
        hide_short_help = true,
        hide_possible_values = true
    )]
    pub(crate) tls: Option<Tls>,

    /// TLS with this certificate (PEM); repeatable
    ///
    /// With those that lead to one that clients know behind it. The first is for clients that name
    /// no host, or one that none of the certificates names. Files are read again when they change.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, group = "shown",
          hide_short_help = true, requires = "tls_key")]
    pub(crate) tls_certificate: Vec<PathBuf>,

    /// Its key (PEM); as many as certificates, in their order
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          hide_short_help = true, requires = "tls_certificate")]
    pub(crate) tls_key: Vec<PathBuf>,

    /// Who signs the certificates that clients must show (PEM)
    ///
    /// Without it clients show none.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true,
          requires = "shown")]
    pub(crate) tls_client_ca: Option<PathBuf>,

    /// Let packets of sessions over TLS go over UDP, which is not encrypted
    ///
    /// Otherwise a SETUP that asks for UDP over TLS is answered 461, and players go on with TCP.
    #[arg(long, hide_short_help = true, requires = "shown")]
    pub(crate) tls_udp: bool,

    /// Whether the kernel encrypts long bodies of HTTP/1.1 (kTLS)
    ///
    /// With `auto` it does where it can: it has its module tls (modprobe tls) and the connection's
    /// cipher. Films then leave by sendfile, as they do without TLS.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHERE",
        default_value = "auto"
    )]
    pub(crate) ktls: Ktls,

    /// When packets over UDP are encrypted (SRTP)
    ///
    /// Clients ask for it by URL (rtsps://HOST:8322/film.mp4?srtp, or ?srtp=gcm) or with RTP/SAVP
    /// in SETUP. The key comes over the connection of RTSP, so it is given over TLS alone, unless
    /// this is `plain`.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHEN",
        default_value = "asked"
    )]
    pub(crate) srtp: Srtp,

    /// Whose keys encrypted packets have (SRTP)
    ///
    /// With `shared` all viewers of a film or channel that ask over TLS are told one key, its
    /// packets are encrypted once, and each viewer can read what the others are sent. From its
    /// first jump or pause on a viewer's packets are encrypted for it, under another SSRC.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "WHOSE",
        default_value = "own"
    )]
    pub(crate) srtp_keys: SrtpKeysOption,

    /// TLS handshakes at once; one more is closed
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().tls_handshakes_max, value_parser = count)]
    pub(crate) tls_handshakes_max: usize,

    /// TLS handshakes at once from one address (of IPv6 a /64)
    #[arg(long, hide_short_help = true, value_name = "N",
          default_value_t = limits().tls_handshakes_per_address_max, value_parser = count)]
    pub(crate) tls_handshakes_per_address_max: usize,

    /// How long a TLS handshake may take
    #[arg(long, hide_short_help = true, value_name = "TIME",
          default_value_t = Time(limits().tls_handshake_time_max),
          value_parser = within(Time(Duration::from_millis(100)), Time(DAY)))]
    pub(crate) tls_handshake_time_max: Time,
}

/// Where a certificate comes from that no file has.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Tls {
    /// The server signs it itself.
    SelfSigned,
}

/// Whether the kernel encrypts.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Ktls {
    /// Where it can.
    Auto,
    /// Nowhere: the server does.
    Off,
}

/// When packets over UDP are encrypted.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Srtp {
    /// When a client asks for it over TLS.
    Asked,
    /// All descriptions of files over TLS say so.
    Always,
    /// When a client asks for it, without TLS, too: who reads the connection reads the key.
    Plain,
}

/// Whose keys encrypted packets have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SrtpKeysOption {
    /// Each viewer's own: nobody else can read its packets.
    Own,
    /// The film's, for all viewers that ask over TLS: packets are encrypted once.
    Shared,
}

/// The settings, and where RTSP and HTTP listen for TLS.
pub(crate) type Settings = (TlsConfig, Vec<SocketAddr>, Vec<SocketAddr>);

impl TlsOptions {
    /// The settings.
    ///
    /// # Errors
    ///
    /// If there are not as many keys as certificates.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let (certificates, keys) = (self.tls_certificate.len(), self.tls_key.len());
        anyhow::ensure!(
            certificates == keys,
            "{certificates} --tls-certificate and {keys} --tls-key: give each certificate its key"
        );
        let pairs = self.tls_certificate.iter().zip(&self.tls_key);
        let certificates = pairs.map(|(certificate, key)| CertificateFiles {
            certificate: certificate.clone(),
            key: key.clone(),
        });
        let config = TlsConfig {
            certificates: certificates.collect(),
            self_signed: self.tls.map(|Tls::SelfSigned| own_names()),
            client_ca: self.tls_client_ca.clone(),
            allows_udp: self.tls_udp,
            srtp: match self.srtp {
                Srtp::Asked => SrtpOffer::Asked,
                Srtp::Always => SrtpOffer::Always,
                Srtp::Plain => SrtpOffer::Plain,
            },
            srtp_keys: match self.srtp_keys {
                SrtpKeysOption::Own => SrtpKeys::Own,
                SrtpKeysOption::Shared => SrtpKeys::Shared,
            },
            kernel: match self.ktls {
                Ktls::Auto => KernelTlsUse::Auto,
                Ktls::Off => KernelTlsUse::Off,
            },
            limits: TlsLimits {
                tls_handshakes_max: self.tls_handshakes_max,
                tls_handshakes_per_address_max: self.tls_handshakes_per_address_max,
                tls_handshake_time_max: self.tls_handshake_time_max.0,
            },
        };
        let is_asked_for = self.tls.is_some() || !config.certificates.is_empty();
        if is_asked_for && self.rtsps.is_empty() && self.https.is_empty() {
            let everywhere = |port: u16| SocketAddr::from(([0_u16; 8], port));
            return Ok((
                config,
                vec![everywhere(RTSPS_PORT)],
                vec![everywhere(HTTPS_PORT)],
            ));
        }
        Ok((config, self.rtsps.clone(), self.https.clone()))
    }
}

/// What this host is called.
fn own_names() -> Vec<String> {
    let mut names = vec!["localhost".to_owned()];
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().to_owned();
    // A name that no certificate can have is left out.
    let is_name = |name: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-.".contains(&byte);
        !name.is_empty() && name.bytes().all(is_plain)
    };
    names.extend(Some(host).filter(|host| is_name(host) && host != "localhost"));
    let addresses = probe::addresses().unwrap_or_default();
    names.extend(addresses.iter().map(ToString::to_string));
    names
}

fn limits() -> TlsLimits {
    TlsLimits::default()
}

fn rtsps_address(text: &str) -> Result<SocketAddr, String> {
    listening_address(text, RTSPS_PORT)
}

fn https_address(text: &str) -> Result<SocketAddr, String> {
    listening_address(text, HTTPS_PORT)
}

/// As registered for RTSP over TLS (RFC 7826, section 22.15).
const RTSPS_PORT: u16 = 8322;
const HTTPS_PORT: u16 = 8443;
