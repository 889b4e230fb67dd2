//! The session description that a publisher announces, or that a source answers DESCRIBE with (RFC
//! 8866; RFC 2326, appendix C): which tracks it has.
//!
//! It is checked and bounded, and only what players need is taken of it: payload type, encoding,
//! clock, format parameters. Addresses, ports, names and all else that it says are passed over,
//! however cameras write them.

use thiserror::Error;

use crate::media::{Medium, TRACKS_MAX, Track};
use crate::rtp::StaticPayload;

/// Bytes of a track's format parameters (`a=fmtp`), at most. Those of Vorbis and Theora have whole
/// codebooks (RFC 5215), some 4 to 8 KiB; parameter sets of other codecs fit many times over.
pub const FORMAT_PARAMETERS_BYTES_MAX: usize = 12 << 10;

/// Bytes of an encoding's name, and of a control URL.
const NAME_BYTES_MAX: usize = 64;
const CONTROL_BYTES_MAX: usize = 1024;

/// One track of a description.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnnouncedTrack {
    /// What players are told of it.
    pub track: Track,
    /// Its control URL, absolute or relative to that of the whole; where there is none it is that
    /// of the whole.
    pub control: Option<String>,
    /// It is described as `RTP/AVPF`, which has feedback (RFC 4585).
    pub has_feedback: bool,
}

/// Why a description is not taken.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AnnouncedError {
    /// It is no SDP.
    #[error("not a session description (RFC 8866): it does not begin with v=0")]
    Syntax,
    /// It has no medium.
    #[error("the description has no track")]
    Empty,
    /// It has too many.
    #[error("the description has {0} tracks; {TRACKS_MAX} are the most")]
    TooMany(usize),
    /// A medium is not carried by plain RTP.
    #[error("track {0} is not RTP/AVP")]
    Protocol(usize),
    /// A medium is carried by SRTP (RFC 3711).
    #[error("track {0} is SRTP, which is not taken: send RTP/AVP over TCP by rtsps, inside of TLS")]
    Encrypted(usize),
    /// The payload type is no number below 128.
    #[error("track {0}: one payload type below 128 is to be given")]
    PayloadType(usize),
    /// A dynamic payload type without `a=rtpmap`, or one that cannot be.
    #[error("track {0}: a=rtpmap is missing or malformed")]
    Map(usize),
    /// The format parameters are too long, or hold a control character.
    #[error("track {0}: a=fmtp is longer than {FORMAT_PARAMETERS_BYTES_MAX} bytes or malformed")]
    Parameters(usize),
    /// The control URL is too long, malformed, or another track's.
    #[error("track {0}: a=control is malformed, or another track's")]
    Control(usize),
}

/// The tracks of a description, one at least.
///
/// # Errors
///
/// See [`AnnouncedError`]; tracks are counted from 1.
pub fn announced(description: &[u8]) -> Result<Vec<AnnouncedTrack>, AnnouncedError> {
    match read(description, |_, _| false)? {
        (_, Some(error)) => Err(error),
        (tracks, None) => Ok(tracks),
    }
}

/// The tracks that can be carried of what a source has described, one at least: cameras have some
/// beside them that only programs of their makers understand, or that sound is sent to.
///
/// # Errors
///
/// See [`AnnouncedError`]; tracks are counted from 1. If none can be carried it is about the first.
pub fn described(description: &[u8]) -> Result<Vec<AnnouncedTrack>, AnnouncedError> {
    match read(description, is_back_channel)? {
        (tracks, Some(error)) if tracks.is_empty() => Err(error),
        (tracks, _) => Ok(tracks),
    }
}

/// Whether a medium, which is its line and those of its attributes, is for sound to a camera (ONVIF
/// Streaming Specification, section 5.3). Where all pictures and sound are to be sent the camera
/// speaks of itself.
fn is_back_channel(medium: &[&str], all: &[&[&str]]) -> bool {
    let is_sent = |it: &[&str]| it.iter().any(|line| line.trim_end() == "a=sendonly");
    let is_sound = |it: &[&str]| it[0].starts_with("m=audio");
    let is_played = |it: &[&str]| is_sound(it) || it[0].starts_with("m=video");
    let is_of_client = all.iter().any(|it| is_played(it) && !is_sent(it));
    is_of_client && is_sound(medium) && is_sent(medium)
}

/// The tracks that can be carried, and why the first of the others cannot, if there are others.
/// Media that are `left_out` of all are none of them.
fn read(
    description: &[u8],
    left_out: fn(&[&str], &[&[&str]]) -> bool,
) -> Result<(Vec<AnnouncedTrack>, Option<AnnouncedError>), AnnouncedError> {
    let text = String::from_utf8_lossy(description);
    // Some end with a zero byte, as texts do in C.
    let mut lines = text
        .split(['\r', '\n', '\0'])
        .filter(|line| !line.is_empty());
    if lines.next().map(str::trim_end) != Some("v=0") {
        return Err(AnnouncedError::Syntax);
    }
    let is_read = |line: &&str| line.starts_with("m=") || line.starts_with("a=");
    let lines: Vec<&str> = lines.filter(is_read).collect();
    let parts = lines.chunk_by(|_, next| !next.starts_with("m="));
    // What stands before the first medium is about the whole.
    let media: Vec<_> = parts.filter(|part| part[0].starts_with("m=")).collect();
    if media.len() > TRACKS_MAX {
        return Err(AnnouncedError::TooMany(media.len()));
    }
    let (mut tracks, mut refused) = (Vec::<AnnouncedTrack>::new(), None);
    let taken = media.iter().zip(1..);
    for (medium, number) in taken.filter(|(medium, _)| !left_out(medium, &media)) {
        let next = track(medium, number).and_then(|next| {
            // Without a name of its own a track can only be told apart if it is alone.
            match tracks.iter().any(|track| track.control == next.control) {
                true => Err(AnnouncedError::Control(number)),
                false => Ok(next),
            }
        });
        match next {
            Ok(next) => tracks.push(next),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match tracks.is_empty() && refused.is_none() {
        true => Err(AnnouncedError::Empty),
        false => Ok((tracks, refused)),
    }
}

/// The track of a medium: its line, and those of its attributes.
fn track(media: &[&str], number: usize) -> Result<AnnouncedTrack, AnnouncedError> {
    let mut words = media[0]["m=".len()..].split_whitespace();
    let medium = words.next().unwrap_or("");
    // Behind the port. Some say AVPF, whose feedback they do not depend on (RFC 4585, section 4.1).
    let protocol = words.nth(1).unwrap_or("");
    match protocol {
        "RTP/AVP" | "RTP/AVPF" | "RTP/AVP/TCP" => {}
        "RTP/SAVP" | "RTP/SAVPF" => return Err(AnnouncedError::Encrypted(number)),
        _ => return Err(AnnouncedError::Protocol(number)),
    }
    // The first is the one that is meant to be used (RFC 8866, section 5.14).
    let format = words.next().unwrap_or("");
    let payload_type = digits::<u8>(format).filter(|&it| it < 128);
    let payload_type = payload_type.ok_or(AnnouncedError::PayloadType(number))?;
    let mut track = match value_for(media, "rtpmap", format) {
        Some(map) => rtpmap(map, payload_type, medium).ok_or(AnnouncedError::Map(number))?,
        None => {
            let known = StaticPayload::of(payload_type);
            known.ok_or(AnnouncedError::Map(number))?.into()
        }
    };
    track.medium = match medium {
        "video" => Medium::Video,
        "audio" => Medium::Audio,
        _ => Medium::Application,
    };
    let parameters = value_for(media, "fmtp", format).map(str::trim);
    if let Some(parameters) = parameters.filter(|parameters| !parameters.is_empty()) {
        if parameters.len() > FORMAT_PARAMETERS_BYTES_MAX || !is_text(parameters) {
            return Err(AnnouncedError::Parameters(number));
        }
        track.format_parameters = Some(parameters.to_owned());
    }
    let control = values(media, "control").next().map(str::trim);
    let control = control.filter(|&control| control != "*" && !control.is_empty());
    if control.is_some_and(|control| {
        control.len() > CONTROL_BYTES_MAX || !is_text(control) || control.contains(' ')
    }) {
        return Err(AnnouncedError::Control(number));
    }
    Ok(AnnouncedTrack {
        track,
        control: control.map(str::to_owned),
        has_feedback: protocol == "RTP/AVPF",
    })
}

/// What an attribute says of one payload type.
fn value_for<'a>(media: &[&'a str], attribute: &str, format: &str) -> Option<&'a str> {
    values(media, attribute).find_map(|value| {
        let (of, rest) = value.trim().split_once(' ')?;
        (of == format).then_some(rest)
    })
}

/// What the attributes of that name say, in their order.
fn values<'a>(media: &[&'a str], attribute: &str) -> impl Iterator<Item = &'a str> {
    media[1..].iter().filter_map(move |line| {
        let (name, value) = line.strip_prefix("a=")?.split_once(':')?;
        (name == attribute).then_some(value)
    })
}

/// `ENCODING/CLOCK[/CHANNELS]` (RFC 8866, section 6.6). The third part means something of sound
/// alone; cameras have numbers of any size there for metadata (`vnd.onvif.metadata/90000/500`).
fn rtpmap(map: &str, payload_type: u8, medium: &str) -> Option<Track> {
    let mut parts = map.trim().split('/');
    let (encoding, clock) = (parts.next()?, parts.next()?);
    let channels = match parts.next().filter(|_| medium == "audio") {
        None => None,
        Some(channels) => Some(digits::<u8>(channels).filter(|&channels| channels > 0)?),
    };
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`{|}~".contains(&b);
    let is_name = !encoding.is_empty() && encoding.bytes().all(is_token);
    let is_fit = is_name && encoding.len() <= NAME_BYTES_MAX && parts.next().is_none();
    let clock_hz = digits::<u32>(clock.trim()).filter(|&clock_hz| clock_hz > 0)?;
    is_fit.then(|| Track {
        medium: Medium::Application,
        payload_type,
        encoding: encoding.to_owned().into(),
        clock_hz,
        channels,
        format_parameters: None,
    })
}

/// A decimal number with nothing around it.
fn digits<N: std::str::FromStr>(text: &str) -> Option<N> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// Whether it is one line that steers no terminal.
fn is_text(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// As ffmpeg announces a film.
    const FILM: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=No Name\r\nc=IN IP4 10.77.0.1\r\n\
        t=0 0\r\na=tool:libavformat 59.27.100\r\nm=video 0 RTP/AVP 96\r\nb=AS:400\r\n\
        a=rtpmap:96 H264/90000\r\n\
        a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0LA,aM4; profile-level-id=42C01E\r\n\
        a=control:streamid=0\r\nm=audio 0 RTP/AVP 97\r\na=rtpmap:97 MPEG4-GENERIC/48000/2\r\n\
        a=fmtp:97 profile-level-id=1;mode=AAC-hbr\r\na=control:streamid=1\r\n";

    fn with(media: &str) -> Result<Vec<AnnouncedTrack>, AnnouncedError> {
        let head = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n";
        announced(format!("{head}{media}").as_bytes())
    }

    #[test]
    fn tracks_are_what_their_publisher_announces() {
        let tracks = announced(FILM.as_bytes()).unwrap();
        let [video, audio] = &tracks[..] else {
            panic!("{tracks:?}");
        };
        let Track {
            medium,
            payload_type,
            encoding,
            clock_hz,
            ..
        } = &video.track;
        assert_eq!(
            (*medium, *payload_type, *clock_hz),
            (Medium::Video, 96, 90_000)
        );
        assert_eq!(
            (&**encoding, video.control.as_deref()),
            ("H264", Some("streamid=0"))
        );
        let parameters = video.track.format_parameters.as_deref().unwrap();
        assert!(
            parameters.starts_with("packetization-mode=1; sprop"),
            "{parameters}"
        );
        assert_eq!(
            (audio.track.medium, audio.track.channels),
            (Medium::Audio, Some(2))
        );
    }

    #[test]
    fn a_static_payload_type_needs_no_map() {
        let tracks = with("m=video 0 RTP/AVP 33\r\n").unwrap();
        assert_eq!(tracks[0].track, StaticPayload::MP2T.into());
        assert_eq!(tracks[0].control, None);
        assert_eq!(
            with("m=audio 0 RTP/AVP 96\r\n"),
            Err(AnnouncedError::Map(1))
        );
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_track() {
        use AnnouncedError::{Control, Encrypted, Map, Parameters, PayloadType, Protocol};
        let long = "x".repeat(FORMAT_PARAMETERS_BYTES_MAX + 1);
        for (media, error) in [
            ("m=video 0 RTP/SAVP 33\r\n", Encrypted(1)),
            ("m=video 0 RTP/SAVPF 33\r\n", Encrypted(1)),
            ("m=video 0 UDP/TLS/RTP/SAVP 33\r\n", Protocol(1)),
            ("m=video 0 UDP 33\r\n", Protocol(1)),
            ("m=video 0 RTP/AVP 128\r\n", PayloadType(1)),
            ("m=video 0 RTP/AVP x\r\n", PayloadType(1)),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/0\r\n", Map(1)),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264\r\n", Map(1)),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:97 H264/90000\r\n", Map(1)),
            (
                "m=video 0 RTP/AVP 96\r\na=rtpmap:96 H264/4294967296\r\n",
                Map(1),
            ),
            ("m=video 0 RTP/AVP 96\r\na=rtpmap:96 H 264/9\r\n", Map(1)),
            ("m=audio 0 RTP/AVP 96\r\na=rtpmap:96 L16/8000/0\r\n", Map(1)),
            (
                &format!("m=video 0 RTP/AVP 33\r\na=fmtp:33 {long}\r\n"),
                Parameters(1),
            ),
            (
                "m=video 0 RTP/AVP 33\r\nm=audio 0 RTP/AVP 0\r\n",
                Control(2),
            ),
            (
                "m=video 0 RTP/AVP 33\r\na=control:a\r\nm=audio 0 RTP/AVP 0\r\na=control:a\r\n",
                Control(2),
            ),
        ] {
            assert_eq!(with(media), Err(error), "{media}");
        }
        let most = &long[1..];
        assert!(with(&format!("m=video 0 RTP/AVP 33\r\na=fmtp:33 {most}\r\n")).is_ok());
        assert_eq!(with(""), Err(AnnouncedError::Empty));
        for other in ["", "GET / HTTP/1.1", "v=1\r\nm=video 0 RTP/AVP 33\r\n"] {
            let refused = announced(other.as_bytes());
            assert_eq!(refused, Err(AnnouncedError::Syntax), "{other}");
        }
    }

    /// Vorbis has its codebooks in them.
    #[test]
    fn long_format_parameters_are_taken() {
        let codebooks = "AbC/".repeat(1500);
        let parameters = format!("delivery-method=in_band; configuration={codebooks}");
        let map = "a=rtpmap:96 vorbis/44100/2\r\na=fmtp:96";
        let tracks = with(&format!("m=audio 0 RTP/AVP 96\r\n{map} {parameters}\r\n")).unwrap();
        assert_eq!(tracks[0].track.format_parameters, Some(parameters));
    }

    #[test]
    fn what_means_nothing_leaves_no_track_out() {
        let media = "m=video 0 RTP/AVPF 33\r\na=control:a \r\n\
            m=application 0 RTP/AVP 96\r\na=rtpmap:96 vnd.onvif.metadata/90000/500\r\n";
        let tracks = with(media).unwrap();
        let found = |it: &AnnouncedTrack| (it.control.clone(), it.has_feedback);
        let found: Vec<_> = tracks.iter().map(found).collect();
        assert_eq!(found, [(Some("a".to_owned()), true), (None, false)]);
        assert_eq!(tracks[1].track.channels, None);
    }

    /// As a Tapo describes itself: its origin has a field too many.
    const TP_LINK: &str = "v=0\r\no=- 14665860 31787219 1 IN IP4 192.168.1.60\r\n\
        s=Session streamed by \"TP-LINK RTSP Server\"\r\nt=0 0\r\n\
        a=smart_encoder:virtualIFrame=1\r\nm=video 0 RTP/AVP 96\r\nc=IN IP4 0.0.0.0\r\n\
        b=AS:4096\r\na=range:npt=0-\r\na=control:track1\r\na=rtpmap:96 H264/90000\r\n\
        a=fmtp:96 packetization-mode=1\r\nm=audio 0 RTP/AVP 8\r\na=rtpmap:8 PCMA/8000\r\n\
        a=control:track2\r\nm=application/TP-LINK 0 RTP/AVP smart/1/90000\r\n\
        a=rtpmap:95 TP-LINK/90000\r\na=control:track3\r\n";

    /// As a camera of Uniview does: its addresses are empty.
    const UNIVIEW: &str = "v=0\r\no=- 1001 1 IN \r\ns=VCP IPC Realtime stream\r\n\
        m=video 0 RTP/AVP 105\r\nc=IN \r\na=control:rtsp://192.168.1.61/media/video1/video\r\n\
        a=rtpmap:105 H264/90000\r\na=recvonly\r\nm=application 0 RTP/AVP 107\r\nc=IN \r\n\
        a=control:rtsp://192.168.1.61/media/video1/metadata\r\na=recvonly\r\n";

    #[test]
    fn of_a_camera_is_left_out_what_cannot_be_carried() {
        for (camera, encodings, refused) in [
            (
                TP_LINK,
                &["H264", "PCMA"][..],
                AnnouncedError::PayloadType(3),
            ),
            (UNIVIEW, &["H264"], AnnouncedError::Map(2)),
        ] {
            let tracks = described(camera.as_bytes()).unwrap();
            let found = tracks.iter().map(|it| &*it.track.encoding);
            assert!(found.eq(encodings.iter().copied()), "{tracks:?}");
            assert!(tracks[0].control.is_some(), "{tracks:?}");
            assert_eq!(announced(camera.as_bytes()), Err(refused));
        }
        let encrypted = b"v=0\r\nm=video 0 RTP/SAVP 96\r\nm=audio 0 UDP 0\r\n";
        assert_eq!(described(encrypted), Err(AnnouncedError::Encrypted(1)));
        assert_eq!(described(b"v=0\r\n"), Err(AnnouncedError::Empty));
    }

    #[test]
    fn a_back_channel_is_no_track_of_a_camera() {
        let medium = |kind: &str, control: &str, way: &str| {
            format!("m={kind} 0 RTP/AVP 0\r\na=control:{control}\r\n{way}")
        };
        let found = |media: [String; 3]| -> String {
            let tracks = described(format!("v=0\r\n{}", media.concat()).as_bytes()).unwrap();
            let controls = tracks.iter().filter_map(|it| it.control.as_deref());
            controls.collect()
        };
        let (to, from) = ("a=sendonly\r\n", "a=recvonly\r\n");
        for (ways, expected) in [
            ([to, "", ""], "bc"),
            (["", from, "a=sendonly \r\n"], "ab"),
            // The camera speaks of itself.
            ([to, to, to], "abc"),
        ] {
            let [first, second, third] = ways;
            let media = [
                medium("audio", "a", first),
                medium("video", "b", second),
                medium("audio", "c", third),
            ];
            assert_eq!(found(media), expected, "{ways:?}");
        }
        // So it does here, and says nothing of metadata.
        let media = [
            medium("audio", "a", to),
            medium("video", "b", to),
            medium("application", "c", ""),
        ];
        assert_eq!(found(media.clone()), "abc");
        let announced = announced(format!("v=0\r\n{}", media.concat()).as_bytes());
        assert_eq!(announced.unwrap().len(), 3);
    }

    #[test]
    fn lines_that_nobody_needs_may_say_anything() {
        let description = b"v=0\nc=\ns=caf\xe9\nb=?\nm=video  0/x RTP/AVP 33\ni=\ni=\nt=now\n\0";
        let tracks = announced(description).unwrap();
        assert_eq!(tracks[0].track, StaticPayload::MP2T.into());
        assert_eq!(tracks.len(), 1);
    }

    #[test]
    fn tracks_are_as_many_as_may_be_and_no_more() {
        let media = |count: usize| -> String {
            let each = |n| format!("m=audio 0 RTP/AVP 0\r\na=control:t{n}\r\n");
            (0..count).map(each).collect()
        };
        assert_eq!(with(&media(TRACKS_MAX)).unwrap().len(), TRACKS_MAX);
        let more = AnnouncedError::TooMany(TRACKS_MAX + 1);
        assert_eq!(with(&media(TRACKS_MAX + 1)), Err(more));
    }

    proptest! {
        #[test]
        fn no_description_is_too_odd(
            text in "(m=|a=|rtpmap:|fmtp:|video|audio|RTP/AVP|96|33|/| |\r\n|control:|\\PC){0,60}",
        ) {
            for track in with(&text).unwrap_or_default() {
                prop_assert!(track.track.clock_hz > 0 && track.track.payload_type < 128);
            }
            let _any = announced(text.as_bytes());
        }
    }
}
