//! The session description of a file or a live stream (RFC 8866; RFC 2326, appendix C), and what
//! those say that others send.

mod announced;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sdp_types::{Attribute, Connection, Media, MediaType, Origin, Session, Time, TransportProto};

pub use self::announced::{
    AnnouncedError, AnnouncedTrack, FORMAT_PARAMETERS_BYTES_MAX, announced, described,
};

use crate::media::{Medium, Track};
use crate::rtsp::{Group, npt, track_name};
use crate::srtp::{MikeyMessage, crypto_attribute};

/// What a client is told about a stream before it asks for it.
#[derive(Clone, Copy, Debug)]
pub struct Description<'a> {
    /// Its name, for people.
    pub name: &'a str,
    /// A number that stays the same while the stream does.
    pub id: u64,
    /// The server's address, as the client sees it.
    pub server: IpAddr,
    /// What there is of it to be set up.
    pub tracks: &'a [Track],
    /// How much of it there is.
    pub extent: Extent,
    /// The multicast group that it is sent to, with the port of its first track; the others have
    /// the even ports above. `None` where a client says in SETUP where it wants it.
    pub group: Option<Group>,
    /// What each track is encrypted with; nothing if they are not.
    pub keys: &'a [MikeyMessage],
}

/// How much of a stream can be played.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Extent {
    /// So much, in ns.
    Whole(u64),
    /// All from its beginning, and what is still to come.
    Growing,
    /// What comes from now on.
    Live,
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
        // A line end in a file's name would begin a line of its own choosing.
        let name: String = self.name.chars().filter(|c| !c.is_control()).collect();
        let name = if name.is_empty() { "-" } else { &name };
        let mut session = Session::new(Origin::with_ip_addr(self.id, 1, server), name);
        session.set_connection(match self.group {
            None => Connection::from_ip_addr(anywhere),
            // The TTL stands there for IPv4 alone (RFC 8866, section 5.7).
            Some(Group { ip, ttl, .. }) => Connection::from_ip_addr_ttl(ip, Some(ttl)),
        });
        session.add_time(Time::new(0, 0));
        let tool = concat!("onrush ", env!("CARGO_PKG_VERSION"));
        session.add_attribute(Attribute::with_value("tool", tool));
        let range = match self.extent {
            Extent::Whole(duration_ns) => format!("npt=0-{}", npt(duration_ns)),
            Extent::Growing => "npt=0-".to_owned(),
            Extent::Live => "npt=now-".to_owned(),
        };
        session.add_attribute(Attribute::with_value("range", range));
        session.add_attribute(Attribute::with_value("control", "*"));
        if let Some(Group { ip, source, .. }) = self.group {
            // "incl" names all that send to it (RFC 4570, section 3).
            let filter = format!(" incl IN {} {ip} {source}", family(ip));
            session.add_attribute(Attribute::with_value("source-filter", filter));
        }
        for (track, number) in self.tracks.iter().zip(1..) {
            let below = u16::try_from(2 * (number - 1)).unwrap_or(u16::MAX);
            let port = |group: Group| group.rtp_port.saturating_add(below);
            let key = self.keys.get(session.medias.len());
            let port = self.group.map_or(0, port);
            session.add_media(media(track, number, port, key));
        }
        let mut bytes = Vec::new();
        session
            .write(&mut bytes)
            .expect("writing to memory does not fail");
        bytes
    }
}

const fn family(ip: IpAddr) -> &'static str {
    match ip {
        IpAddr::V4(_) => "IP4",
        IpAddr::V6(_) => "IP6",
    }
}

/// How a track is described that has this number among those of its presentation, from 1 on, goes
/// to that port, or one of the client's choice (0), and is encrypted with that key, if it is.
fn media(track: &Track, number: u32, port: u16, key: Option<&MikeyMessage>) -> Media {
    let payload_type = track.payload_type.to_string();
    let medium = match track.medium {
        Medium::Video => MediaType::Video,
        Medium::Audio => MediaType::Audio,
        Medium::Application => MediaType::Application,
    };
    let protocol = match key {
        Some(_) => TransportProto::RtpSavp,
        None => TransportProto::RtpAvp,
    };
    let mut media = Media::new(medium, port, protocol, &payload_type);
    let (encoding, clock_hz) = (&track.encoding, track.clock_hz);
    let channels = track.channels.map(|channels| format!("/{channels}"));
    let channels = channels.unwrap_or_default();
    let rtpmap = format!("{payload_type} {encoding}/{clock_hz}{channels}");
    media.add_attribute(Attribute::with_value("rtpmap", rtpmap));
    if let Some(parameters) = &track.format_parameters {
        let fmtp = format!("{payload_type} {parameters}");
        media.add_attribute(Attribute::with_value("fmtp", fmtp));
    }
    if let Some(message) = key {
        media.add_attribute(Attribute::with_value("key-mgmt", message.to_string()));
        // Which cannot say how often numbers have wrapped.
        if message.sessions.iter().all(|session| session.rollover == 0) {
            let crypto = crypto_attribute(&message.key);
            media.add_attribute(Attribute::with_value("crypto", crypto));
        }
    }
    media.add_attribute(Attribute::with_value("control", track_name(number)));
    media
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rtp::StaticPayload;
    use crate::srtp::{CryptoSession, MasterKey, Suite};

    fn text(name: &str, server: &str) -> String {
        let server = server.parse().unwrap();
        let description = Description {
            name,
            id: 77,
            server,
            tracks: &[StaticPayload::MP2T.into()],
            extent: Extent::Whole(12_345_678_901),
            group: None,
            keys: &[],
        };
        String::from_utf8(description.to_bytes()).unwrap()
    }

    #[test]
    fn a_description() {
        assert_eq!(
            text("été/a b.ts", "192.0.2.1"),
            format!(
                "v=0\r\no=- 77 1 IN IP4 192.0.2.1\r\ns=été/a b.ts\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\n\
                 a=tool:onrush {}\r\na=range:npt=0-12.345678901\r\na=control:*\r\n\
                 m=video 0 RTP/AVP 33\r\na=rtpmap:33 MP2T/90000\r\na=control:track1\r\n",
                env!("CARGO_PKG_VERSION"),
            )
        );
    }

    #[test]
    fn what_is_live_has_a_payload_and_no_end() {
        let mut description = Description {
            name: "radio",
            id: 1,
            server: "::1".parse().unwrap(),
            tracks: &[StaticPayload::of(10).unwrap().into()],
            extent: Extent::Live,
            group: None,
            keys: &[],
        };
        let text = String::from_utf8(description.to_bytes()).unwrap();
        assert!(text.contains("\r\na=range:npt=now-\r\n"), "{text}");
        let media = "m=audio 0 RTP/AVP 10\r\na=rtpmap:10 L16/44100/2\r\n";
        assert!(text.contains(media), "{text}");
        description.extent = Extent::Growing;
        let text = String::from_utf8(description.to_bytes()).unwrap();
        assert!(text.contains("\r\na=range:npt=0-\r\n"), "{text}");
    }

    #[test]
    fn each_track_has_its_control_and_decoder_setup() {
        let video = Track {
            medium: Medium::Video,
            payload_type: 96,
            encoding: "H264".into(),
            clock_hz: 90_000,
            channels: None,
            format_parameters: Some("packetization-mode=1".to_owned()),
        };
        let audio = Track {
            medium: Medium::Audio,
            payload_type: 97,
            encoding: "L16".into(),
            clock_hz: 48_000,
            channels: Some(2),
            format_parameters: None,
        };
        let description = Description {
            name: "film",
            id: 1,
            server: "::1".parse().unwrap(),
            tracks: &[video, audio],
            extent: Extent::Growing,
            group: None,
            keys: &[],
        };
        let text = String::from_utf8(description.to_bytes()).unwrap();
        let media = "a=control:*\r\nm=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n\
                     a=fmtp:96 packetization-mode=1\r\na=control:track1\r\n\
                     m=audio 0 RTP/AVP 97\r\na=rtpmap:97 L16/48000/2\r\na=control:track2\r\n";
        assert!(text.ends_with(media), "{text}");
    }

    /// RFC 8866, section 5.7, and RFC 4570.
    #[test]
    fn a_group_has_its_ttl_ports_and_source() {
        let tracks = [StaticPayload::MP2T.into(), StaticPayload::MP2T.into()];
        let text = |group: &str, source: &str| {
            let group = Group {
                ip: group.parse().unwrap(),
                rtp_port: 5004,
                ttl: 16,
                source: source.parse().unwrap(),
            };
            let description = Description {
                name: "film",
                id: 1,
                server: group.source,
                tracks: &tracks,
                extent: Extent::Live,
                group: Some(group),
                keys: &[],
            };
            String::from_utf8(description.to_bytes()).unwrap()
        };
        let v4 = text("232.1.2.3", "192.0.2.1");
        for line in [
            "c=IN IP4 232.1.2.3/16\r\n",
            "a=source-filter: incl IN IP4 232.1.2.3 192.0.2.1\r\n",
            "m=video 5004 RTP/AVP 33\r\n",
            "m=video 5006 RTP/AVP 33\r\n",
        ] {
            assert!(v4.contains(line), "{line} is not in {v4}");
        }
        let v6 = text("ff35::1", "2001:db8::1");
        for line in [
            "c=IN IP6 ff35::1\r\n",
            "a=source-filter: incl IN IP6 ff35::1 2001:db8::1\r\n",
        ] {
            assert!(v6.contains(line), "{line} is not in {v6}");
        }
    }

    #[test]
    fn what_is_encrypted_has_its_key_twice() {
        let key = MasterKey::new(Suite::default(), &[7; 30]).unwrap();
        let message = MikeyMessage {
            bundle: 1,
            sessions: Vec::new(),
            ntp: 2,
            random: vec![3; 16],
            key,
        };
        let description = Description {
            name: "film",
            id: 1,
            server: "::1".parse().unwrap(),
            tracks: &[StaticPayload::MP2T.into()],
            extent: Extent::Growing,
            group: None,
            keys: std::slice::from_ref(&message),
        };
        let text = String::from_utf8(description.to_bytes()).unwrap();
        let media = format!(
            "m=video 0 RTP/SAVP 33\r\na=rtpmap:33 MP2T/90000\r\na=key-mgmt:{message}\r\n\
             a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcH\r\n\
             a=control:track1\r\n"
        );
        assert!(text.ends_with(&media), "{text}");
        // `a=crypto` says nothing of numbers that have wrapped.
        let mut late = message.clone();
        late.sessions = vec![CryptoSession {
            ssrc: 0,
            rollover: 1,
        }];
        let late = Description {
            keys: std::slice::from_ref(&late),
            ..description
        };
        let text = String::from_utf8(late.to_bytes()).unwrap();
        assert!(text.contains("a=key-mgmt:") && !text.contains("a=crypto"));
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
