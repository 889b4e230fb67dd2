//! The session description of one stored transport stream (RFC 8866; RFC 2326, appendix C).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sdp_types::{Attribute, Connection, Media, MediaType, Origin, Session, Time, TransportProto};

use crate::rtp::{CLOCK_HZ, PAYLOAD_TYPE_MP2T};
use crate::rtsp::{TRACK, npt};

/// What a client is told about a file before it asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// A number that stays the same while the file does.
    pub id: u64,
    /// The server's address, as the client sees it.
    pub server: IpAddr,
    /// From the first packet to the end of the last.
    pub duration_ns: u64,
}

impl Description<'_> {
    /// The description as it is on the wire.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let server = self.server.to_canonical();
        // Whose address it will be is the client's to say, in SETUP.
        let anywhere = match server {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let payload_type = PAYLOAD_TYPE_MP2T.to_string();
        let rtpmap = format!("{payload_type} MP2T/{CLOCK_HZ}");
        let mut media = Media::new(MediaType::Video, 0, TransportProto::RtpAvp, &payload_type);
        media.add_attribute(Attribute::with_value("rtpmap", rtpmap));
        media.add_attribute(Attribute::with_value("control", TRACK));
        // A line end in a file's name would begin a line of its own choosing.
        let name: String = self.name.chars().filter(|c| !c.is_control()).collect();
        let name = if name.is_empty() { "-" } else { &name };
        let mut session = Session::new(Origin::with_ip_addr(self.id, 1, server), name);
        session.set_connection(Connection::from_ip_addr(anywhere));
        session.add_time(Time::new(0, 0));
        let tool = concat!("onrush ", env!("CARGO_PKG_VERSION"));
        session.add_attribute(Attribute::with_value("tool", tool));
        let range = format!("npt=0-{}", npt(self.duration_ns));
        session.add_attribute(Attribute::with_value("range", range));
        session.add_attribute(Attribute::with_value("control", "*"));
        session.add_media(media);
        let mut bytes = Vec::new();
        session
            .write(&mut bytes)
            .expect("writing to memory does not fail");
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str, server: &str) -> String {
        let server = server.parse().unwrap();
        let description = Description {
            name,
            id: 77,
            server,
            duration_ns: 12_345_678_901,
        };
        String::from_utf8(description.to_bytes()).unwrap()
    }

    #[test]
    fn a_description() {
        assert_eq!(
            text("été/a b.ts", "192.0.2.1"),
            format!(
                "v=0\r\no=- 77 1 IN IP4 192.0.2.1\r\ns=été/a b.ts\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
                 a=tool:onrush {}\r\na=range:npt=0-12.345678\r\na=control:*\r\n\
                 m=video 0 RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\na=control:track1\r\n",
                env!("CARGO_PKG_VERSION"),
            )
        );
    }

    #[test]
    fn both_families() {
        let v6 = text("a", "2001:db8::1");
        assert!(v6.contains("o=- 77 1 IN IP6 2001:db8::1\r\n") && v6.contains("c=IN IP6 ::\r\n"));
        assert!(text("a", "::ffff:192.0.2.1").contains("IN IP4 192.0.2.1\r\n"));
    }

    #[test]
    fn a_name_is_one_line() {
        assert!(text("a\r\nm=audio\u{85}", "::1").contains("\r\ns=am=audio\r\n"));
        assert!(text("\n", "::1").contains("\r\ns=-\r\n"));
    }
}
