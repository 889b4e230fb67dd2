//! The Transport header (RFC 2326, section 12.39): which of the roads a client offers is taken.
//!
//! Two roads exist: RTP over unicast UDP, to the address that asks, and RTP interleaved with the
//! requests in the connection that asks. A client lists what it would take, best first; the first
//! that can be served is.

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
}

/// Why none of a client's roads is taken.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TransportError {
    /// None can be understood.
    #[error("bad Transport header")]
    Syntax,
    /// The last one that was understood: not RTP/AVP over UDP or TCP, nor RTP/SAVP over UDP for who
    /// plays.
    #[error("only RTP/AVP over unicast UDP, or interleaved over TCP, is served")]
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

    /// The answer's Transport header.
    #[must_use]
    pub fn answer(&self, served: Served) -> impl fmt::Display {
        let ssrc = served.ssrc;
        format!(
            "{};ssrc={ssrc:08X};mode=\"PLAY\"",
            self.both_ends(served.at)
        )
    }

    /// The same for a publisher, whose packets come in there.
    #[must_use]
    pub fn answer_record(&self, at: ServedAt) -> impl fmt::Display {
        format!("{};mode=\"RECORD\"", self.both_ends(at))
    }

    fn both_ends(&self, at: ServedAt) -> String {
        let destination = self.destination.map(|ip| format!(";destination={ip}"));
        let client = match self.lower {
            LowerTransport::Udp {
                rtp_port,
                rtcp_port,
            } => format!(";client_port={rtp_port}-{rtcp_port}"),
            LowerTransport::Tcp { .. } => String::new(),
        };
        let server = match at {
            ServedAt::Port(port) => format!(";server_port={port}-{}", port + 1),
            ServedAt::Channels(Channels { rtp, rtcp }) => format!(";interleaved={rtp}-{rtcp}"),
        };
        let destination = destination.unwrap_or_default();
        format!("{};unicast{destination}{client}{server}", self.spelling)
    }

    fn parse(offer: &str, peer: IpAddr, mode: &str) -> Result<Self, TransportError> {
        let mut parts = split_outside_quotes(offer, ';').map(str::trim);
        let protocol = parts.next().unwrap_or("");
        let spelling = ["RTP/AVP", "RTP/AVP/UDP", TCP]
            .into_iter()
            .chain(SECURE)
            .find(|known| known.eq_ignore_ascii_case(protocol));
        let is_tcp = spelling == Some(TCP);
        let (mut ports, mut channels) = (None, None);
        let (mut destination, mut refused) = (None, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "multicast" => refused = Some(TransportError::Protocol),
                "interleaved" if is_tcp => match Channels::parse(value) {
                    None => refused = Some(TransportError::Channels),
                    named => channels = named,
                },
                "interleaved" => refused = Some(TransportError::Protocol),
                "mode" if !value.eq_ignore_ascii_case(mode) => {
                    refused = Some(TransportError::Mode);
                }
                "client_port" if !is_tcp => ports = Some(port_pair(value)?),
                // Sending to anybody else at a client's word would make the server a weapon: one
                // small request, minutes of video at the victim. Names are not looked up for the
                // same reason.
                "destination" => match value.parse::<IpAddr>() {
                    Ok(ip) if ip.to_canonical() == peer.to_canonical() => destination = Some(ip),
                    _ => refused = Some(TransportError::Destination),
                },
                _ => {}
            }
        }
        let spelling = match spelling {
            Some(spelling) => spelling,
            None if protocol.contains('/') => return Err(TransportError::Protocol),
            None => return Err(TransportError::Syntax),
        };
        let is_secure = SECURE.contains(&spelling);
        if is_secure && mode != "PLAY" {
            return Err(TransportError::Protocol);
        }
        if let Some(refused) = refused {
            return Err(refused);
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

/// What packets that are encrypted are called, over UDP (RFC 3711, section 12).
const SECURE: [&str; 2] = ["RTP/SAVP", "RTP/SAVP/UDP"];

/// What interleaving is called (RFC 2326, section 12.39).
const TCP: &str = "RTP/AVP/TCP";

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
            ("RTP/AVP;multicast;client_port=5-6", Protocol),
            ("RTP/SAVPF;unicast;client_port=5-6", Protocol),
            ("RTP/SAVP;unicast", Ports),
            ("RTP/AVPF;unicast;client_port=5-6", Protocol),
            ("MP2T/H2221/UDP;unicast;client_port=5-6", Protocol),
            ("RTP/AVP;unicast;client_port=5-6;mode=RECORD", Mode),
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
                "(RTP/AVP|/TCP|;|,|=|\"|-|client_port|interleaved|mode|[0-9]{1,6}|\\PC){0,30}"
        ) {
            for lower in negotiate(&value).unwrap_or_default() {
                let is_fit = match lower {
                    LowerTransport::Udp { rtp_port, rtcp_port } => {
                        0 < rtp_port && rtp_port < rtcp_port
                    }
                    LowerTransport::Tcp { channels } => {
                        channels.is_none_or(|channels| channels.rtp != channels.rtcp)
                    }
                };
                prop_assert!(is_fit, "{:?}", lower);
            }
        }
    }
}
