//! The settings of TLS, each with its default and its limit.

use std::path::PathBuf;
use std::time::Duration;

/// What a server shows itself with, and what its clients must show.
#[derive(Clone, Debug, Default)]
pub struct TlsConfig {
    /// The pairs that it has: the first for clients that ask for no name, or for one that none of
    /// them has. Without any there is no TLS. All files are read again when one has changed.
    pub certificates: Vec<CertificateFiles>,
    /// Names and addresses for a certificate that the server signs itself, beside those from files;
    /// by default there is none. It lies in [`Config::state`](crate::config::Config::state) if
    /// there is such a folder, and else is another after each start.
    pub self_signed: Option<Vec<String>>,
    /// Certificates (PEM) of those who sign the certificates of clients. With them a client that
    /// has none is refused.
    pub client_ca: Option<PathBuf>,
    /// Whether packets of a session that was set up over TLS may go over UDP, in the clear: not by
    /// default, and then such a SETUP is answered 461.
    pub allows_udp: bool,
    /// When packets over UDP are encrypted (SRTP): when a client asks for it over TLS, by default.
    pub srtp: SrtpOffer,
    /// Whose keys encrypted packets have: each viewer's own, by default.
    pub srtp_keys: SrtpKeys,
    /// Whether the kernel encrypts long bodies of HTTP/1.1.
    pub kernel: KernelTlsUse,
    /// What peers may take at the most.
    pub limits: TlsLimits,
}

/// Whether the kernel encrypts (kTLS).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KernelTlsUse {
    /// Where it can.
    #[default]
    Auto,
    /// Nowhere.
    Off,
}

/// When packets over UDP are encrypted (SRTP). A URL asks for it with `?srtp`, or a SETUP with
/// `RTP/SAVP`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SrtpOffer {
    /// When a client asks for it over TLS. Without TLS it is answered 461, because whoever reads
    /// the connection would read the key.
    #[default]
    Asked,
    /// Likewise, and all descriptions over TLS say so: then players that want TCP are refused,
    /// because their packets are encrypted anyway.
    Always,
    /// When a client asks for it, without TLS, too: against those who read packets and not
    /// connections, and for tests.
    Plain,
}

/// Whose keys encrypted packets have (SRTP).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum SrtpKeys {
    /// Each viewer's own: nobody else can read its packets, or forge any. They are copied and
    /// encrypted for it.
    #[default]
    Own,
    /// A film's or channel's, told to all of its viewers over TLS: its packets are encrypted once,
    /// and sent to all without another copy until they jump or pause. Each viewer can read what the
    /// others are sent, and whoever of them is on the path to another can forge it. Without TLS
    /// keys are viewers' own.
    Shared,
}

/// A certificate and its key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CertificateFiles {
    /// The certificate and those that lead to one that clients know, in this order, as PEM.
    pub certificate: PathBuf,
    /// The private key, as PEM.
    pub key: PathBuf,
}

/// The bounds on handshakes. All are listed by `onrush doctor --limits`.
#[derive(Clone, Copy, Debug)]
pub struct TlsLimits {
    /// Handshakes at once, 512 by default; one more is closed without a word.
    pub tls_handshakes_max: usize,
    /// Handshakes at once from one address (of IPv6 from its /64), 64 by default, so that nobody
    /// keeps all others out.
    pub tls_handshakes_per_address_max: usize,
    /// How long a handshake may take, 10 s by default.
    pub tls_handshake_time_max: Duration,
}

impl Default for TlsLimits {
    fn default() -> Self {
        Self {
            tls_handshakes_max: 512,
            tls_handshakes_per_address_max: 64,
            tls_handshake_time_max: Duration::from_secs(10),
        }
    }
}
