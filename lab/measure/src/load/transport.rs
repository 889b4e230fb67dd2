//! How packets come to the viewers of a load: what each asks for in SETUP, and what it is told.

use std::net::IpAddr;

use onrush_primitives::named;
use onrush_testkit::rtsp_client::{self, Response};
use onrush_wire::srtp::{MasterKey, parse_key_mgmt};
use serde::{Deserialize, Serialize};

use super::LoadError;

named! {
    /// How packets come to a viewer.
    #[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Transport {
        /// As datagrams to ports of its own.
        #[default]
        Udp = "udp",
        /// As frames of its connection (RFC 2326, section 10.12).
        Tcp = "tcp",
        /// Likewise, over TLS: `rtsps://`.
        Tls = "tls",
        /// As datagrams that are encrypted (RFC 3711).
        Srtp = "srtp",
        /// As datagrams to a group that all viewers join.
        Multicast = "multicast",
    }
}

/// What a server has answered to SETUP.
#[derive(Debug, Default)]
pub(super) struct Agreed {
    /// The channel of the packets among the connection's frames.
    pub(super) channel: Option<u8>,
    /// That of RTCP.
    pub(super) rtcp_channel: Option<u8>,
    /// The group, and its port for packets.
    pub(super) group: Option<(IpAddr, u16)>,
    /// What packets are encrypted with, if the description has not said so.
    pub(super) key: Option<MasterKey>,
    /// From where packets come, if not from the server that was asked.
    pub(super) source: Option<IpAddr>,
}

impl Transport {
    /// The usual one for URLs of that scheme.
    #[must_use]
    pub fn of_url(url: &str) -> Self {
        match url.starts_with("rtsps://") {
            true => Self::Tls,
            false => Self::Udp,
        }
    }

    /// Whether packets come on the viewer's connection.
    #[must_use]
    pub const fn is_interleaved(self) -> bool {
        matches!(self, Self::Tcp | Self::Tls)
    }

    /// Whether each track comes to ports of the viewer's own.
    pub(super) const fn takes_ports(self) -> bool {
        matches!(self, Self::Udp | Self::Srtp)
    }

    /// Refuses URLs that lead to another transport.
    pub(super) fn check(self, url: &str) -> Result<(), LoadError> {
        let is_tls = url.starts_with("rtsps://");
        let wanted = match self {
            Self::Tls if !is_tls => "over TLS: ask for rtsps://",
            Self::Tcp if is_tls => "over TLS: ask for --transport tls",
            _ => return Ok(()),
        };
        Err(LoadError::Settings(format!("{url} is played {wanted}")))
    }

    /// The Transport header for the track of this number, which is to come to the port `rtp` if it
    /// comes to one.
    pub(super) fn header(self, track: usize, rtp: u16) -> String {
        let channel = 2 * track;
        match self {
            Self::Udp => rtsp_client::transport(rtp),
            Self::Srtp => rtsp_client::transport(rtp).replace("RTP/AVP", "RTP/SAVP"),
            Self::Tcp | Self::Tls => {
                format!("RTP/AVP/TCP;unicast;interleaved={channel}-{}", channel + 1)
            }
            Self::Multicast => "RTP/AVP;multicast".to_owned(),
        }
    }
}

impl Agreed {
    /// Reads what a server has answered.
    pub(super) fn of(answer: &Response) -> Self {
        let transport = answer.header("Transport").unwrap_or("");
        let value = |name: &str| {
            let mut parts = transport.split(';').filter_map(|part| part.split_once('='));
            let found = parts.find(|(its, _)| its.trim().eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.trim())
        };
        let nth = |name: &str, place| value(name)?.split('-').nth(place);
        let first = |name: &str| nth(name, 0);
        let channel = |place| nth("interleaved", place)?.parse().ok();
        let group = value("destination").and_then(|ip| ip.parse().ok());
        let port = first("port").and_then(|port| port.parse().ok());
        let told = answer.header("KeyMgmt").map(parse_key_mgmt);
        Self {
            channel: channel(0),
            rtcp_channel: channel(1),
            group: group.zip(port),
            source: value("source").and_then(|ip| ip.parse().ok()),
            key: told.and_then(Result::ok).map(|message| message.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agreed(transport: &str) -> Agreed {
        let text = format!("RTSP/1.0 200 OK\r\nCSeq: 1\r\nTransport: {transport}\r\n\r\n");
        let parsed = rtsp_client::Incoming::parse(text.as_bytes(), 1000);
        let Ok(rtsp_client::Incoming::Response(response, _)) = parsed else {
            panic!("{parsed:?}");
        };
        Agreed::of(&response)
    }

    #[test]
    fn each_transport_is_asked_for_by_its_header() {
        let header = |transport: Transport| transport.header(1, 6000);
        assert_eq!(
            header(Transport::Udp),
            "RTP/AVP;unicast;client_port=6000-6001"
        );
        assert_eq!(
            header(Transport::Srtp),
            "RTP/SAVP;unicast;client_port=6000-6001"
        );
        let framed = "RTP/AVP/TCP;unicast;interleaved=2-3";
        assert_eq!(header(Transport::Tcp), framed);
        assert_eq!(header(Transport::Tls), framed);
        assert_eq!(header(Transport::Multicast), "RTP/AVP;multicast");
    }

    #[test]
    fn what_a_server_grants_is_read() {
        let framed = agreed("RTP/AVP/TCP;unicast;interleaved=4-5;ssrc=1");
        assert_eq!((framed.channel, framed.group), (Some(4), None));
        assert_eq!((framed.rtcp_channel, framed.source), (Some(5), None));
        let group = agreed("RTP/AVP;multicast;destination=239.1.2.3;source=192.0.2.1;port=50-51");
        let ip = "239.1.2.3".parse().unwrap();
        assert_eq!((group.channel, group.group), (None, Some((ip, 50))));
        assert_eq!(group.source, Some("192.0.2.1".parse().unwrap()));
        for nothing in ["", "RTP/AVP;multicast;port=50", "a;interleaved=256-257"] {
            let agreed = agreed(nothing);
            assert!(
                agreed.channel.is_none() && agreed.group.is_none(),
                "{nothing}"
            );
        }
    }

    #[test]
    fn urls_and_transports_are_to_fit() {
        let (plain, tls) = ("rtsp://h/x", "rtsps://h/x");
        for (transport, url, fits) in [
            (Transport::Tls, plain, false),
            (Transport::Tls, tls, true),
            (Transport::Tcp, plain, true),
            (Transport::Tcp, tls, false),
            (Transport::Srtp, tls, true),
            (Transport::Srtp, plain, true),
        ] {
            assert_eq!(transport.check(url).is_ok(), fits, "{transport} {url}");
        }
        assert_eq!(Transport::of_url(plain), Transport::Udp);
        assert_eq!(Transport::of_url(tls), Transport::Tls);
    }
}
