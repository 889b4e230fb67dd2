//! The session description that a publisher announces, or that a source answers DESCRIBE with (RFC
//! 8866; RFC 2326, appendix C): which tracks it has.
//!
//! It is checked and bounded, and only what players need is taken of it: payload type, encoding,
//! clock, format parameters. Addresses, ports, names and all else that it says are passed over.

use sdp_types::{Media, Session};
use thiserror::Error;

use crate::media::{Medium, TRACKS_MAX, Track};
use crate::rtp::StaticPayload;

/// Bytes of a track's format parameters (`a=fmtp`), at most: parameter sets of all codecs that are
/// known fit many times over.
pub const FORMAT_PARAMETERS_BYTES_MAX: usize = 4096;

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
}

/// Why a description is not taken.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AnnouncedError {
    /// It is no SDP.
    #[error("not a session description (RFC 8866): {0}")]
    Syntax(String),
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
    let session = Session::parse(description).map_err(|error| {
        let text: String = error.to_string().chars().take(NAME_BYTES_MAX).collect();
        AnnouncedError::Syntax(text)
    })?;
    if session.medias.len() > TRACKS_MAX {
        return Err(AnnouncedError::TooMany(session.medias.len()));
    }
    let mut tracks: Vec<AnnouncedTrack> = Vec::with_capacity(session.medias.len());
    for (media, number) in session.medias.iter().zip(1..) {
        let next = track(media, number)?;
        // Without a name of its own a track can only be told apart if it is alone.
        if tracks.iter().any(|track| track.control == next.control) {
            return Err(AnnouncedError::Control(number));
        }
        tracks.push(next);
    }
    match tracks.is_empty() {
        true => Err(AnnouncedError::Empty),
        false => Ok(tracks),
    }
}

fn track(media: &Media, number: usize) -> Result<AnnouncedTrack, AnnouncedError> {
    // Some say AVPF, whose feedback they do not depend on (RFC 4585, section 4.1).
    match media.proto.as_str() {
        "RTP/AVP" | "RTP/AVPF" | "RTP/AVP/TCP" => {}
        "RTP/SAVP" | "RTP/SAVPF" => return Err(AnnouncedError::Encrypted(number)),
        _ => return Err(AnnouncedError::Protocol(number)),
    }
    // The first is the one that is meant to be used (RFC 8866, section 5.14).
    let format = media.fmt.split_whitespace().next().unwrap_or("");
    let payload_type = digits::<u8>(format).filter(|&it| it < 128);
    let payload_type = payload_type.ok_or(AnnouncedError::PayloadType(number))?;
    let mut track = match map(media, format) {
        Some(map) => rtpmap(map, payload_type).ok_or(AnnouncedError::Map(number))?,
        None => {
            let known = StaticPayload::of(payload_type);
            known.ok_or(AnnouncedError::Map(number))?.into()
        }
    };
    track.medium = match media.media.as_str() {
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
    let control = media.get_first_attribute_value("control").flatten();
    let control = control.filter(|&control| control != "*" && !control.is_empty());
    if control.is_some_and(|control| {
        control.len() > CONTROL_BYTES_MAX || !is_text(control) || control.contains(' ')
    }) {
        return Err(AnnouncedError::Control(number));
    }
    Ok(AnnouncedTrack {
        track,
        control: control.map(str::to_owned),
    })
}

fn map<'a>(media: &'a Media, format: &str) -> Option<&'a str> {
    value_for(media, "rtpmap", format)
}

/// What an attribute says of one payload type.
fn value_for<'a>(media: &'a Media, attribute: &str, format: &str) -> Option<&'a str> {
    let named = media
        .attributes
        .iter()
        .filter(|it| it.attribute == attribute);
    let mut values = named.filter_map(|it| it.value.as_deref());
    values.find_map(|value| {
        let (of, rest) = value.trim().split_once(' ')?;
        (of == format).then_some(rest)
    })
}

/// `ENCODING/CLOCK[/CHANNELS]` (RFC 8866, section 6.6).
fn rtpmap(map: &str, payload_type: u8) -> Option<Track> {
    let mut parts = map.trim().split('/');
    let (encoding, clock) = (parts.next()?, parts.next()?);
    let channels = match parts.next() {
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
        assert!(matches!(
            announced(b"GET / HTTP/1.1"),
            Err(AnnouncedError::Syntax(_))
        ));
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
