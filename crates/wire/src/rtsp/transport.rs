//! The Transport header (RFC 2326, section 12.39): which of the roads a client offers is taken.
//!
//! Three roads exist: RTP over unicast UDP, to the address that asks, RTP interleaved with the
//! requests in the connection that asks, and RTP over UDP to a multicast group, which the server
//! chooses. A client lists what it would take, best first; the first that can be served is.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use super::interleaved::Channels;
use super::request::number;

/// A road that a client offers and that can be taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transport {
    /// What carries the packets, and where to.
    pub lower: LowerTransport,
    /// How the client spelt `RTP/AVP`; it gets the same back, because some compare.
    spelling: &'static str,
    /// Its packets are to be encrypted: `RTP/SAVP`.
    is_secure: bool,
    /// The client's address, if it named it.
    destination: Option<IpAddr>,
}

/// What carries RTP and RTCP, and where a client wants them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LowerTransport {
    /// Datagrams to these ports of the client's.
    Udp {
        /// For RTP.
        rtp_port: u16,
        /// For RTCP.
        rtcp_port: u16,
    },
    /// Frames in the connection that asks.
    Tcp {
        /// On these channels, if it has named any.
        channels: Option<Channels>,
    },
    /// Datagrams to a multicast group. Which group, ports and TTL is the server's to say; what a
    /// client names of these (`destination`, `port`, `ttl`, `layers`) is passed over.
    Multicast,
}

/// A multicast group that a track is sent to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Group {
    /// The group.
    pub ip: IpAddr,
    /// The port for RTP; that for RTCP is the one above.
    pub rtp_port: u16,
    /// How many routers its packets may pass, and one more: IPv4's time to live, IPv6's hop limit.
    pub ttl: u8,
    /// The only address that sends to it (RFC 4607).
    pub source: IpAddr,
}

/// Why none of a client's roads is taken.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TransportError {
    /// None can be understood.
    #[error("bad Transport header")]
    Syntax,
    /// The last one that was understood: not RTP/AVP over UDP or TCP, nor RTP/SAVP over UDP for who
    /// plays, nor RTP/AVPF over either for who publishes.
    #[error("only RTP/AVP over UDP, or interleaved over TCP, is served")]
    Protocol,
    /// It asked for another mode than that of its session.
    #[error("mode is PLAY, or RECORD for what this connection has announced")]
    Mode,
    /// It did not say where to send, or two ports that cannot be RTP's and RTCP's.
    #[error("send client_port with a port for RTP and a higher one for RTCP")]
    Ports,
    /// It asked for interleaved channels that cannot be RTP's and RTCP's.
    #[error("send interleaved with a channel for RTP and another one for RTCP, or without any")]
    Channels,
    /// It asked to send to somebody else.
    #[error("destination may only be your own address")]
    Destination,
}

/// What the server adds to the road in its answer.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Where the packets come from, or on which channels.
    pub at: ServedAt,
    /// The synchronisation source of the packets.
    pub ssrc: u32,
}

/// Where the server's packets come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ServedAt {
    /// The server's port for RTP; that for RTCP is the one above.
    Port(u16),
    /// The channels in the connection.
    Channels(Channels),
    /// They go to this group.
    Group(Group),
}

impl Transport {
    /// Those of a client's roads that can be taken, best first, and one at least: of the values of
    /// all of a request's Transport headers, in their order.
    ///
    /// # Errors
    ///
    /// [`TransportError::Syntax`] (400) if none can be understood, otherwise (461) why the last of
    /// those that were understood cannot be served.
    pub fn negotiate<'a>(
        values: impl Iterator<Item = &'a str>,
        peer: IpAddr,
    ) -> Result<Vec<Self>, TransportError> {
        Self::negotiate_mode(values, peer, "PLAY")
    }

    /// The same for a publisher: of mode RECORD, or without one.
    ///
    /// # Errors
    ///
    /// Likewise.
    pub fn negotiate_record<'a>(
        values: impl Iterator<Item = &'a str>,
        peer: IpAddr,
    ) -> Result<Vec<Self>, TransportError> {
        Self::negotiate_mode(values, peer, "RECORD")
    }

    fn negotiate_mode<'a>(
        values: impl Iterator<Item = &'a str>,
        peer: IpAddr,
        mode: &str,
    ) -> Result<Vec<Self>, TransportError> {
        let (mut served, mut refused) = (Vec::new(), TransportError::Syntax);
        for offer in values.flat_map(|value| split_outside_quotes(value, ',')) {
            match Self::parse(offer, peer, mode) {
                Ok(transport) => served.push(transport),
                Err(TransportError::Syntax) => {}
                Err(error) => refused = error,
            }
        }
        if served.is_empty() {
            return Err(refused);
        }
        Ok(served)
    }

    /// Whether its packets are to be encrypted (RFC 3711): `RTP/SAVP`.
    #[must_use]
    pub const fn is_secure(&self) -> bool {
        self.is_secure
    }

    /// Datagrams to these ports of whoever is meant, for RTP and RTCP.
    #[must_use]
    pub const fn to_ports([rtp_port, rtcp_port]: [u16; 2]) -> Self {
        let lower = LowerTransport::Udp {
            rtp_port,
            rtcp_port,
        };
        Self::of(lower, UDP)
    }

    const fn of(lower: LowerTransport, spelling: &'static str) -> Self {
        Self {
            lower,
            spelling,
            is_secure: false,
            destination: None,
        }
    }

    /// The answer's Transport header.
    #[must_use]
    pub fn answer(&self, served: Served) -> impl fmt::Display {
        let (at, ssrc) = (self.both_ends(served.at), served.ssrc);
        match served.at {
            // "This parameter is only valid for unicast transmission."
            ServedAt::Group(_) => format!("{at};mode=\"PLAY\""),
            _ => format!("{at};ssrc={ssrc:08X};mode=\"PLAY\""),
        }
    }

    /// The same for a publisher, whose packets come in there.
    #[must_use]
    pub fn answer_record(&self, at: ServedAt) -> impl fmt::Display {
        format!("{};mode=\"RECORD\"", self.both_ends(at))
    }

    fn both_ends(&self, at: ServedAt) -> String {
        if let ServedAt::Group(group) = at {
            let (spelling, port) = (self.spelling, group.rtp_port);
            let Group {
                ip, ttl, source, ..
            } = group;
            let ports = format!("port={port}-{}", port + 1);
            return format!(
                "{spelling};multicast;destination={ip};source={source};{ports};ttl={ttl}"
            );
        }
        let destination = self.destination.map(|ip| format!(";destination={ip}"));
        let client = match self.lower {
            LowerTransport::Udp {
                rtp_port,
                rtcp_port,
            } => format!(";client_port={rtp_port}-{rtcp_port}"),
            LowerTransport::Tcp { .. } | LowerTransport::Multicast => String::new(),
        };
        let server = match at {
            ServedAt::Port(port) => format!(";server_port={port}-{}", port + 1),
            ServedAt::Channels(Channels { rtp, rtcp }) => format!(";interleaved={rtp}-{rtcp}"),
            ServedAt::Group(_) => String::new(),
        };
        let destination = destination.unwrap_or_default();
        format!("{};unicast{destination}{client}{server}", self.spelling)
    }

    fn parse(offer: &str, peer: IpAddr, mode: &str) -> Result<Self, TransportError> {
        let mut parts = split_outside_quotes(offer, ';').map(str::trim);
        let protocol = parts.next().unwrap_or("");
        let spelling = spelling_of(protocol, mode);
        let is_tcp = spelling.is_ok_and(|it| it.ends_with("/TCP"));
        let (mut ports, mut channels) = (None, None);
        let (mut destination, mut refused) = (None, None);
        let (mut is_multicast, mut is_elsewhere) = (false, false);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "multicast" if !is_tcp && mode == "PLAY" => is_multicast = true,
                "multicast" => refused = Some(TransportError::Protocol),
                "interleaved" if is_tcp => match Channels::parse(value) {
                    None => refused = Some(TransportError::Channels),
                    named => channels = named,
                },
                "interleaved" => refused = Some(TransportError::Protocol),
                "mode" if !is_mode(value, mode) => {
                    refused = Some(TransportError::Mode);
                }
                "client_port" if !is_tcp => ports = Some(port_pair(value)?),
                // Sending to anybody else at a client's word would make the server a weapon: one
                // small request, minutes of video at the victim. Names are not looked up for the
                // same reason.
                "destination" => match value.parse::<IpAddr>() {
                    Ok(ip) if ip.to_canonical() == peer.to_canonical() => destination = Some(ip),
                    _ => is_elsewhere = true,
                },
                _ => {}
            }
        }
        let spelling = spelling?;
        let is_secure = SECURE.contains(&spelling);
        if is_secure && is_multicast {
            return Err(TransportError::Protocol);
        }
        if let Some(refused) = refused {
            return Err(refused);
        }
        if is_multicast {
            return Ok(Self {
                is_secure,
                ..Self::of(LowerTransport::Multicast, spelling)
            });
        }
        if is_elsewhere {
            return Err(TransportError::Destination);
        }
        // The RFC's default is multicast; but an offer with client_port means unicast, said or not,
        // and so does one of TCP.
        let lower = match ports {
            _ if is_tcp => LowerTransport::Tcp { channels },
            Some((rtp_port, rtcp_port)) if rtp_port > 0 && rtcp_port > rtp_port => {
                LowerTransport::Udp {
                    rtp_port,
                    rtcp_port,
                }
            }
            _ => return Err(TransportError::Ports),
        };
        Ok(Self {
            lower,
            spelling,
            is_secure,
            destination,
        })
    }
}

/// Whether a client asks for that mode. Publishers of live555, libstreaming and older RootEncoders
/// say what the server is to do, and not what they want.
fn is_mode(value: &str, mode: &str) -> bool {
    let is_receive = mode == "RECORD" && value.eq_ignore_ascii_case("receive");
    is_receive || value.eq_ignore_ascii_case(mode)
}

/// What packets that are encrypted are called, over UDP (RFC 3711, section 12): for who plays.
const SECURE: [&str; 2] = ["RTP/SAVP", "RTP/SAVP/UDP"];

/// What publishers call theirs who have announced feedback (RFC 4585).
const FEEDBACK: [&str; 3] = ["RTP/AVPF", "RTP/AVPF/UDP", "RTP/AVPF/TCP"];

/// What datagrams are called (RFC 2326, section 12.39).
const UDP: &str = "RTP/AVP";

/// How we spell a protocol that is taken in that mode.
fn spelling_of(protocol: &str, mode: &str) -> Result<&'static str, TransportError> {
    let others: &[&str] = if mode == "PLAY" { &SECURE } else { &FEEDBACK };
    let known = [UDP, "RTP/AVP/UDP", "RTP/AVP/TCP"].into_iter();
    known
        .chain(others.iter().copied())
        .find(|known| known.eq_ignore_ascii_case(protocol))
        .ok_or_else(|| match protocol.contains('/') {
            true => TransportError::Protocol,
            false => TransportError::Syntax,
        })
}

/// `a-b`, or `a` for `a` and the one above. What is no port number at all is bad syntax; a pair
/// that cannot be used is left to the caller.
fn port_pair(value: &str) -> Result<(u16, u16), TransportError> {
    let port = |digits: &str| number::<u16>(digits.trim()).ok_or(TransportError::Syntax);
    match value.split_once('-') {
        Some((first, last)) => Ok((port(first)?, port(last)?)),
        None => {
            let first = port(value)?;
            Ok((first, first.checked_add(1).ok_or(TransportError::Ports)?))
        }
    }
}

fn split_outside_quotes(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |c| {
        quoted ^= c == '"';
        c == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn negotiate(value: &str) -> Result<Vec<LowerTransport>, TransportError> {
        let transports = Transport::negotiate([value].into_iter(), PEER)?;
        Ok(transports.iter().map(|transport| transport.lower).collect())
    }

    fn udp(rtp_port: u16, rtcp_port: u16) -> LowerTransport {
        LowerTransport::Udp {
            rtp_port,
            rtcp_port,
        }
    }

    fn tcp(channels: Option<(u8, u8)>) -> LowerTransport {
        let channels = channels.map(|(rtp, rtcp)| Channels { rtp, rtcp });
        LowerTransport::Tcp { channels }
    }

    #[test]
    fn roads_that_are_taken() {
        for (offer, ports) in [
            ("RTP/AVP;unicast;client_port=5000-5001", (5000, 5001)),
            (
                "RTP/AVP/UDP;unicast;client_port=5000-5001;mode=\"PLAY\"",
                (5000, 5001),
            ),
            (
                "rtp/avp; unicast; CLIENT_PORT=5000 ; mode=play",
                (5000, 5001),
            ),
            ("RTP/AVP;client_port=65534-65535", (65534, 65535)),
            ("RTP/AVP;unicast;client_port=65534", (65534, 65535)),
            ("RTP/AVP;unicast;client_port=1-9", (1, 9)),
            (
                "RTP/AVP;unicast;destination=192.0.2.7;client_port=1-2",
                (1, 2),
            ),
            (
                "RTP/AVP;unicast;destination=\"::ffff:192.0.2.7\";client_port=1-2",
                (1, 2),
            ),
            (
                "RTP/AVP/TCP;multicast,RTP/AVP;unicast;client_port=6-7",
                (6, 7),
            ),
            (
                "RTP/AVP;client_port=x,RTP/AVP;unicast;client_port=6-7",
                (6, 7),
            ),
        ] {
            let (rtp_port, rtcp_port) = ports;
            assert_eq!(
                negotiate(offer),
                Ok(vec![udp(rtp_port, rtcp_port)]),
                "{offer}"
            );
        }
        for (offer, channels) in [
            ("RTP/AVP/TCP;unicast;interleaved=0-1", Some((0, 1))),
            ("RTP/AVP/TCP;interleaved=4", Some((4, 5))),
            (
                "rtp/avp/tcp;unicast;mode=PLAY;interleaved=7-2",
                Some((7, 2)),
            ),
            ("RTP/AVP/TCP;unicast", None),
            // Of no meaning here, whatever it is.
            ("RTP/AVP/TCP;client_port=x", None),
        ] {
            assert_eq!(negotiate(offer), Ok(vec![tcp(channels)]), "{offer}");
        }
    }

    /// Nobody makes the server send to a group of its choice: what it names is not kept.
    #[test]
    fn a_group_is_the_servers_to_choose() {
        for offer in [
            "RTP/AVP;multicast",
            "RTP/AVP/UDP;Multicast;mode=\"PLAY\"",
            "RTP/AVP;multicast;client_port=5-6",
            "RTP/AVP;destination=239.9.9.9;multicast;port=7000-7001;ttl=255;layers=2",
        ] {
            let group = Ok(vec![LowerTransport::Multicast]);
            assert_eq!(negotiate(offer), group, "{offer}");
        }
        let offers = || ["RTP/AVP;multicast;mode=RECORD"].into_iter();
        let record = Transport::negotiate_record(offers(), PEER);
        assert_eq!(record, Err(TransportError::Protocol));
        let offer = "RTP/AVP/UDP;destination=239.9.9.9;multicast;ttl=255";
        let transports = Transport::negotiate([offer].into_iter(), PEER).unwrap();
        let group = Group {
            ip: "239.1.2.3".parse().unwrap(),
            rtp_port: 5004,
            ttl: 1,
            source: "192.0.2.1".parse().unwrap(),
        };
        let at = ServedAt::Group(group);
        assert_eq!(
            transports[0].answer(Served { at, ssrc: 1 }).to_string(),
            "RTP/AVP/UDP;multicast;destination=239.1.2.3;source=192.0.2.1;port=5004-5005;ttl=1;\
             mode=\"PLAY\"",
        );
    }

    #[test]
    fn all_roads_that_can_be_taken_are_told_in_their_order() {
        let offer = "nonsense, RTP/AVP/TCP;interleaved=2-3,RTP/AVP;x=\"a,b;c\";client_port=6-7";
        let expected = [tcp(Some((2, 3))), udp(6, 7)];
        assert_eq!(negotiate(offer).unwrap(), expected);
        let both = ["RTP/AVP/TCP;interleaved=2-3", "RTP/AVP;client_port=6-7"];
        let both = Transport::negotiate(both.into_iter(), PEER).unwrap();
        assert!(both.iter().map(|transport| transport.lower).eq(expected));
    }

    #[test]
    fn encrypted_packets_go_over_udp_to_who_plays() {
        let offers = "RTP/SAVP/TCP;interleaved=0-1,RTP/SAVP;unicast;client_port=6-7,\
                      rtp/savp/udp;client_port=8-9,RTP/AVP;client_port=10-11";
        let transports = Transport::negotiate([offers].into_iter(), PEER).unwrap();
        let found = transports.iter().map(|it| (it.lower, it.is_secure()));
        let expected = [(udp(6, 7), true), (udp(8, 9), true), (udp(10, 11), false)];
        assert!(found.eq(expected));
        let answer = transports[0].answer(Served {
            at: ServedAt::Port(20_000),
            ssrc: 1,
        });
        assert!(answer.to_string().starts_with("RTP/SAVP;unicast;"));
        let record = ["RTP/SAVP;unicast;client_port=6-7;mode=record"];
        let refused = Transport::negotiate_record(record.into_iter(), PEER);
        assert_eq!(refused, Err(TransportError::Protocol));
    }

    #[test]
    fn roads_that_are_not() {
        use TransportError::{Channels, Destination, Mode, Ports, Protocol, Syntax};
        for (offer, error) in [
            ("", Syntax),
            (";;;,,,", Syntax),
            ("nonsense", Syntax),
            ("RTP/AVP;unicast;client_port=x-y", Syntax),
            ("RTP/AVP;unicast;client_port=65536-65537", Syntax),
            ("RTP/AVP;unicast;client_port=-5", Syntax),
            ("RTP/AVP;unicast;client_port=5-", Syntax),
            ("RTP/AVP;unicast;client_port=+5-6", Syntax),
            ("RTP/AVP;unicast;client_port", Syntax),
            ("RTP/AVP;unicast", Ports),
            ("RTP/AVP;unicast;client_port=0-1", Ports),
            ("RTP/AVP;unicast;client_port=65535", Ports),
            ("RTP/AVP;unicast;client_port=65535-65535", Ports),
            ("RTP/AVP;unicast;client_port=6001-6000", Ports),
            ("RTP/AVP/TCP;unicast;interleaved=0-256", Channels),
            ("RTP/AVP/TCP;unicast;interleaved=3-3", Channels),
            ("RTP/AVP/TCP;multicast;interleaved=0-1", Protocol),
            ("RTP/AVP/TCP;unicast;interleaved=0-1;mode=RECORD", Mode),
            ("RTP/AVP/TCP;destination=192.0.2.8", Destination),
            ("RTP/AVP;unicast;client_port=5-6;interleaved=0-1", Protocol),
            ("RTP/SAVPF;unicast;client_port=5-6", Protocol),
            ("RTP/SAVP;unicast", Ports),
            ("RTP/SAVP;multicast", Protocol),
            ("RTP/AVPF;unicast;client_port=5-6", Protocol),
            ("MP2T/H2221/UDP;unicast;client_port=5-6", Protocol),
            ("RTP/AVP;unicast;client_port=5-6;mode=RECORD", Mode),
            ("RTP/AVP;unicast;client_port=5-6;mode=receive", Mode),
            ("RTP/AVP;unicast;client_port=5-6;mode=\"PLAY,RECORD\"", Mode),
            (
                "RTP/AVP;unicast;client_port=5-6;destination=192.0.2.8",
                Destination,
            ),
            (
                "RTP/AVP;unicast;client_port=5-6;destination=victim.example",
                Destination,
            ),
            ("RTP/SAVP/TCP;interleaved=0-1,nonsense", Protocol),
        ] {
            assert_eq!(negotiate(offer), Err(error), "{offer}");
        }
    }

    #[test]
    fn a_publisher_records_or_has_us_receive() {
        for (mode, expected) in [
            ("RECORD", Ok(udp(5, 6))),
            ("receive", Ok(udp(5, 6))),
            ("\"Receive\"", Ok(udp(5, 6))),
            ("PLAY", Err(TransportError::Mode)),
        ] {
            let offer = format!("RTP/AVP;unicast;client_port=5-6;mode={mode}");
            let transports = Transport::negotiate_record([&*offer].into_iter(), PEER);
            assert_eq!(transports.map(|all| all[0].lower), expected, "{mode}");
        }
    }

    #[test]
    fn a_publisher_with_feedback_is_taken_as_such() {
        let ways = [("", udp(5, 6)), ("/UDP", udp(5, 6)), ("/TCP", tcp(None))];
        for (way, expected) in ways {
            let offer = format!("rtp/avpf{way};unicast;client_port=5-6;mode=record");
            let transports = Transport::negotiate_record([&*offer].into_iter(), PEER).unwrap();
            assert_eq!(transports[0].lower, expected, "{way}");
            let answer = transports[0].answer_record(ServedAt::Port(8)).to_string();
            let spelling = format!("RTP/AVPF{way};unicast");
            assert!(answer.starts_with(&spelling), "{answer}");
        }
    }

    #[test]
    fn the_answer_says_both_ends() {
        let offer = "RTP/AVP/UDP;unicast;destination=192.0.2.7;client_port=5000-5001";
        let answer = |offer: &str, at| {
            let transports = Transport::negotiate([offer].into_iter(), PEER).unwrap();
            transports[0]
                .answer(Served { at, ssrc: 0xbeef })
                .to_string()
        };
        assert_eq!(
            answer(offer, ServedAt::Port(20_000)),
            "RTP/AVP/UDP;unicast;destination=192.0.2.7;client_port=5000-5001;\
             server_port=20000-20001;ssrc=0000BEEF;mode=\"PLAY\"",
        );
        // On other channels than were asked for, if need be.
        let (rtp, rtcp) = (2, 3);
        assert_eq!(
            answer(
                "RTP/AVP/TCP;interleaved=0-1",
                ServedAt::Channels(Channels { rtp, rtcp })
            ),
            "RTP/AVP/TCP;unicast;interleaved=2-3;ssrc=0000BEEF;mode=\"PLAY\"",
        );
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            value in
                "(RTP/AVP|/TCP|;|,|=|\"|-|client_port|multicast|interleaved|[0-9]{1,6}|\\PC){0,30}"
        ) {
            for lower in negotiate(&value).unwrap_or_default() {
                let is_fit = match lower {
                    LowerTransport::Udp { rtp_port, rtcp_port } => {
                        0 < rtp_port && rtp_port < rtcp_port
                    }
                    LowerTransport::Tcp { channels } => {
                        channels.is_none_or(|channels| channels.rtp != channels.rtcp)
                    }
                    LowerTransport::Multicast => true,
                };
                prop_assert!(is_fit, "{:?}", lower);
            }
        }
    }
}
