//! The Transport header (RFC 2326, section 12.39): which of the roads a client offers is taken.
//!
//! One road exists: RTP over unicast UDP, to the address that asks. A client lists what it would
//! take, best first; the first that can be served is.

use std::fmt;
use std::net::IpAddr;

use thiserror::Error;

use super::request::number;

/// The road taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Transport {
    /// The client's port for RTP.
    pub rtp_port: u16,
    /// The client's port for RTCP.
    pub rtcp_port: u16,
    /// How the client spelt `RTP/AVP`; it gets the same back, because some compare.
    spelling: &'static str,
    /// The client's address, if it named it.
    destination: Option<IpAddr>,
}

/// Why none of a client's roads is taken.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum TransportError {
    /// None can be understood.
    #[error("bad Transport header")]
    Syntax,
    /// The last one that was understood: not RTP/AVP over UDP.
    #[error("only RTP/AVP over unicast UDP is served")]
    Protocol,
    /// It asked for another mode than PLAY.
    #[error("only mode PLAY is served")]
    Mode,
    /// It did not say where to send, or two ports that cannot be RTP's and RTCP's.
    #[error("send client_port with a port for RTP and a higher one for RTCP")]
    Ports,
    /// It asked to send to somebody else.
    #[error("destination may only be your own address")]
    Destination,
}

/// What the server adds to the road in its answer.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// The server's port for RTP; that for RTCP is the one above.
    pub rtp_port: u16,
    /// The synchronisation source of the packets.
    pub ssrc: u32,
}

impl Transport {
    /// Chooses among the values of all of a request's Transport headers, in their order.
    ///
    /// # Errors
    ///
    /// [`TransportError::Syntax`] (400) if none can be understood, otherwise (461) why the last of
    /// those that were understood cannot be served.
    pub fn negotiate<'a>(
        values: impl Iterator<Item = &'a str>,
        peer: IpAddr,
    ) -> Result<Self, TransportError> {
        let mut refused = TransportError::Syntax;
        for offer in values.flat_map(|value| split_outside_quotes(value, ',')) {
            match Self::parse(offer, peer) {
                Ok(transport) => return Ok(transport),
                Err(TransportError::Syntax) => {}
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The answer's Transport header.
    #[must_use]
    pub fn answer(&self, served: Served) -> impl fmt::Display {
        let Self {
            rtp_port,
            rtcp_port,
            spelling,
            ..
        } = self;
        let destination = self.destination.map(|ip| format!(";destination={ip}"));
        format!(
            "{spelling};unicast{};client_port={rtp_port}-{rtcp_port};server_port={}-{};\
             ssrc={:08X};mode=\"PLAY\"",
            destination.unwrap_or_default(),
            served.rtp_port,
            served.rtp_port + 1,
            served.ssrc,
        )
    }

    fn parse(offer: &str, peer: IpAddr) -> Result<Self, TransportError> {
        let mut parts = split_outside_quotes(offer, ';').map(str::trim);
        let protocol = parts.next().unwrap_or("");
        let spelling = ["RTP/AVP", "RTP/AVP/UDP"]
            .into_iter()
            .find(|known| known.eq_ignore_ascii_case(protocol));
        let (mut ports, mut destination, mut refused) = (None, None, None);
        for part in parts {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "multicast" | "interleaved" => refused = Some(TransportError::Protocol),
                "mode" if !value.eq_ignore_ascii_case("PLAY") => {
                    refused = Some(TransportError::Mode);
                }
                "client_port" => ports = Some(port_pair(value)?),
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
        if let Some(refused) = refused {
            return Err(refused);
        }
        // The RFC's default is multicast; but an offer with client_port means unicast, said or not.
        match ports {
            Some((rtp_port, rtcp_port)) if rtp_port > 0 && rtcp_port > rtp_port => Ok(Self {
                rtp_port,
                rtcp_port,
                spelling,
                destination,
            }),
            _ => Err(TransportError::Ports),
        }
    }
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

    fn negotiate(value: &str) -> Result<(u16, u16), TransportError> {
        let transport = Transport::negotiate([value].into_iter(), PEER)?;
        Ok((transport.rtp_port, transport.rtcp_port))
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
                "RTP/AVP/TCP;interleaved=0-1,RTP/AVP;unicast;client_port=6-7",
                (6, 7),
            ),
            (
                "nonsense, RTP/AVP;x=\"a,b;c\";client_port=6-7,RTP/AVP;client_port=8-9",
                (6, 7),
            ),
            (
                "RTP/AVP;client_port=x,RTP/AVP;unicast;client_port=6-7",
                (6, 7),
            ),
        ] {
            assert_eq!(negotiate(offer), Ok(ports), "{offer}");
        }
        let both = ["RTP/AVP/TCP;interleaved=0-1", "RTP/AVP;client_port=2-3"];
        assert_eq!(
            Transport::negotiate(both.into_iter(), PEER)
                .unwrap()
                .rtp_port,
            2
        );
    }

    #[test]
    fn roads_that_are_not() {
        use TransportError::{Destination, Mode, Ports, Protocol, Syntax};
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
            ("RTP/AVP/TCP;unicast;interleaved=0-1", Protocol),
            ("RTP/AVP;unicast;client_port=5-6;interleaved=0-1", Protocol),
            ("RTP/AVP;multicast;client_port=5-6", Protocol),
            ("RTP/SAVP;unicast;client_port=5-6", Protocol),
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
            ("RTP/AVP/TCP;interleaved=0-1,nonsense", Protocol),
        ] {
            assert_eq!(negotiate(offer), Err(error), "{offer}");
        }
    }

    #[test]
    fn the_answer_says_both_ends() {
        let offer = "RTP/AVP/UDP;unicast;destination=192.0.2.7;client_port=5000-5001";
        let transport = Transport::negotiate([offer].into_iter(), PEER).unwrap();
        assert_eq!(
            transport
                .answer(Served {
                    rtp_port: 20_000,
                    ssrc: 0xbeef
                })
                .to_string(),
            "RTP/AVP/UDP;unicast;destination=192.0.2.7;client_port=5000-5001;\
             server_port=20000-20001;ssrc=0000BEEF;mode=\"PLAY\"",
        );
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            value in "(RTP/AVP|;|,|=|\"|-|client_port|mode|[0-9]{1,6}|\\PC){0,30}"
        ) {
            if let Ok((rtp, rtcp)) = negotiate(&value) {
                prop_assert!(0 < rtp && rtp < rtcp);
            }
        }
    }
}
