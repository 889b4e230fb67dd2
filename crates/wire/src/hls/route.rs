//! Which resource of a film a path names.

use std::fmt;

use crate::media::segments::Format;

/// What names the bytes of a file, and the way in which it is cut into segments.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Version(pub u64);

/// A resource of a film.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resource<'a> {
    /// The playlist that names all others.
    Main,
    /// The playlist of a rendition.
    Media {
        /// Its name.
        rendition: &'a str,
    },
    /// The playlist of a rendition's pictures that are shown alone.
    Pictures {
        /// Its name.
        rendition: &'a str,
    },
    /// What a rendition's segments have in common.
    Init {
        /// Its name.
        rendition: &'a str,
        /// Of which bytes.
        version: Version,
    },
    /// A segment.
    Segment {
        /// The name of its rendition.
        rendition: &'a str,
        /// Of which bytes.
        version: Version,
        /// Its number; `u64::MAX` for what is larger.
        number: u64,
        /// How it is made.
        format: Format,
    },
    /// A segment of a live channel, in CMAF, by when it begins: that is what manifests of DASH call
    /// it by.
    SegmentAt {
        /// The name of its rendition.
        rendition: &'a str,
        /// Of what it is.
        version: Version,
        /// When it begins, in ticks of its media; `u64::MAX` for what is later.
        ticks: u64,
    },
    /// A part of a live segment.
    Part {
        /// The name of its rendition.
        rendition: &'a str,
        /// Of what its segment is.
        version: Version,
        /// The number of its segment; `u64::MAX` for what is larger.
        number: u64,
        /// Its own number, likewise.
        part: u64,
        /// How it is made.
        format: Format,
    },
    /// A picture that is shown alone.
    Picture {
        /// The name of its rendition.
        rendition: &'a str,
        /// Of which bytes.
        version: Version,
        /// Its number; `u64::MAX` for what is larger.
        number: u64,
    },
    /// Subtitles.
    Text {
        /// What they are called.
        name: &'a str,
        /// Of which bytes.
        version: Version,
        /// The number of a segment, `u64::MAX` for what is larger; `None` for all of them.
        number: Option<u64>,
    },
    /// The manifest of DASH.
    Manifest,
    /// The time of day, for players of live channels (ISO/IEC 23009-1, section 5.8.4.11).
    Time,
    /// The page that plays the film.
    Page,
    /// Its first picture that can be shown alone, as a film of its own.
    Poster,
}

impl Resource<'_> {
    /// The bytes that it is of, if its name says that: then only a playlist or a manifest names it.
    #[must_use]
    pub const fn version(&self) -> Option<Version> {
        match self {
            Self::Init { version, .. }
            | Self::Segment { version, .. }
            | Self::SegmentAt { version, .. }
            | Self::Part { version, .. }
            | Self::Picture { version, .. }
            | Self::Text { version, .. } => Some(*version),
            Self::Main
            | Self::Media { .. }
            | Self::Pictures { .. }
            | Self::Manifest
            | Self::Time
            | Self::Page
            | Self::Poster => None,
        }
    }
}

/// The name of a film, and the resource of it that `path` names, if it is one: decoded, `/` between
/// its parts, none at its ends. Whether there is such a film is not known here.
#[must_use]
pub fn parse(path: &str) -> Option<(&str, Resource<'_>)> {
    let (rest, last) = path.rsplit_once('/')?;
    let (rest, before) = rest.rsplit_once('/')?;
    let named = |film: &'_ str| !film.is_empty();
    if let Some(resource) = of_film(before, last) {
        return named(rest).then_some((rest, resource));
    }
    let (film, third) = rest.rsplit_once('/')?;
    let playlist = match last {
        "index.m3u8" => Some(Resource::Media { rendition: before }),
        "iframes.m3u8" => Some(Resource::Pictures { rendition: before }),
        _ => None,
    };
    if let Some(playlist) = playlist {
        return (third == "hls" && named(film)).then_some((film, playlist));
    }
    let (version, rendition) = (Version::parse(before)?, third);
    let film = film.strip_suffix("/hls").filter(|film| named(film))?;
    let (name, ending) = last.rsplit_once('.')?;
    let format = match ending {
        "ts" => Some(Format::Ts),
        "m4s" => Some(Format::Cmaf),
        _ => None,
    };
    if let (Some((of, part)), Some(format)) = (name.split_once('.'), format) {
        let resource = Resource::Part {
            rendition,
            version,
            number: number(of)?,
            part: number(part)?,
            format,
        };
        return Some((film, resource));
    }
    let resource = match (name, ending) {
        ("init", "mp4") => Resource::Init { rendition, version },
        (number, "vtt") => Resource::Text {
            name: rendition,
            version,
            number: match number {
                "all" => None,
                number => Some(self::number(number)?),
            },
        },
        (number, "ts") => Resource::Segment {
            rendition,
            version,
            number: self::number(number)?,
            format: Format::Ts,
        },
        (name, "m4s") => in_cmaf(rendition, version, name)?,
        _ => return None,
    };
    Some((film, resource))
}

/// A segment or a picture in CMAF.
fn in_cmaf<'a>(rendition: &'a str, version: Version, name: &str) -> Option<Resource<'a>> {
    let resource = match (name.strip_prefix('i'), name.strip_prefix('t')) {
        (Some(digits), _) => Resource::Picture {
            rendition,
            version,
            number: number(digits)?,
        },
        (_, Some(digits)) => Resource::SegmentAt {
            rendition,
            version,
            ticks: number(digits)?,
        },
        (None, None) => Resource::Segment {
            rendition,
            version,
            number: number(name)?,
            format: Format::Cmaf,
        },
    };
    Some(resource)
}

/// What there is once of a film.
fn of_film(folder: &str, name: &str) -> Option<Resource<'static>> {
    match (folder, name) {
        ("hls", "index.m3u8") => Some(Resource::Main),
        ("dash", "manifest.mpd") => Some(Resource::Manifest),
        ("dash", "time.txt") => Some(Resource::Time),
        ("hls", "index.html") => Some(Resource::Page),
        ("hls", "poster.mp4") => Some(Resource::Poster),
        _ => None,
    }
}

/// Digits only, and no 0 in front. A number beyond all segments is the largest there is.
fn number(digits: &str) -> Option<u64> {
    let sound = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let is_one = sound && (digits == "0" || !digits.starts_with('0'));
    is_one.then(|| digits.parse().unwrap_or(u64::MAX))
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let digits = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_one = text.len() == 16 && text.bytes().all(digits);
        let number = u64::from_str_radix(text, 16).ok();
        number.filter(|_| is_one).map(Self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VERSION: Version = Version(0x0123_4567_89ab_cdef);

    #[test]
    fn every_resource_has_one_path() {
        let rendition = "audio-2";
        let segment = |number, format| Resource::Segment {
            rendition,
            version: VERSION,
            number,
            format,
        };
        let picture = |number| Resource::Picture {
            rendition,
            version: VERSION,
            number,
        };
        let at = |ticks| Resource::SegmentAt {
            rendition,
            version: VERSION,
            ticks,
        };
        for (path, expected) in [
            ("index.m3u8", Resource::Main),
            ("index.html", Resource::Page),
            ("poster.mp4", Resource::Poster),
            ("audio-2/index.m3u8", Resource::Media { rendition }),
            ("audio-2/iframes.m3u8", Resource::Pictures { rendition }),
            (
                "audio-2/0123456789abcdef/init.mp4",
                Resource::Init {
                    rendition,
                    version: VERSION,
                },
            ),
            ("audio-2/0123456789abcdef/7.m4s", segment(7, Format::Cmaf)),
            ("audio-2/0123456789abcdef/0.ts", segment(0, Format::Ts)),
            ("audio-2/0123456789abcdef/i12.m4s", picture(12)),
            ("audio-2/0123456789abcdef/t90000.m4s", at(90_000)),
            (
                "audio-2/0123456789abcdef/7.18446744073709551616.m4s",
                Resource::Part {
                    rendition,
                    version: VERSION,
                    number: 7,
                    part: u64::MAX,
                    format: Format::Cmaf,
                },
            ),
            (
                "audio-2/0123456789abcdef/18446744073709551616.ts",
                segment(u64::MAX, Format::Ts),
            ),
            (
                "audio-2/0123456789abcdef/i99999999999999999999999.m4s",
                picture(u64::MAX),
            ),
        ] {
            let has_version = path.contains("/0123456789abcdef/");
            assert_eq!(expected.version(), has_version.then_some(VERSION), "{path}");
            for film in [
                "film.mp4",
                "in/é #%/hls/film",
                "hls",
                "a/hls/video/index.m3u8",
            ] {
                let whole = format!("{film}/hls/{path}");
                assert_eq!(parse(&whole), Some((film, expected)), "{whole}");
            }
        }
        let manifest = "a b/film.mkv/dash/manifest.mpd";
        assert_eq!(parse(manifest), Some(("a b/film.mkv", Resource::Manifest)));
        let time = "live/cam/dash/time.txt";
        assert_eq!(parse(time), Some(("live/cam", Resource::Time)));
    }

    #[test]
    fn other_paths_name_none() {
        for path in [
            "",
            "film.mp4",
            "hls/index.m3u8",
            "/hls/index.m3u8",
            "dash/manifest.mpd",
            "film.mp4/hls/other.m3u8",
            "film.mp4/HLS/index.m3u8",
            "film.mp4/dash/index.m3u8",
            "film.mp4/dash/video/index.m3u8",
            "hls/video/index.m3u8",
            "film.mp4/hls/video/1.m4s",
            "film.mp4/hls/video/0123456789ABCDEF/1.m4s",
            "film.mp4/hls/video/+123456789abcdef/1.m4s",
            "film.mp4/hls/video/123456789abcdef/1.m4s",
            "film.mp4/hls/video/0123456789abcdef/01.m4s",
            "film.mp4/hls/video/0123456789abcdef/-1.m4s",
            "film.mp4/hls/video/0123456789abcdef/+1.ts",
            "film.mp4/hls/video/0123456789abcdef/i1.ts",
            "film.mp4/hls/video/0123456789abcdef/t1.ts",
            "film.mp4/hls/video/0123456789abcdef/t01.m4s",
            "film.mp4/hls/video/0123456789abcdef/t-1.m4s",
            "film.mp4/hls/video/0123456789abcdef/.m4s",
            "film.mp4/hls/video/0123456789abcdef/1..m4s",
            "film.mp4/hls/video/0123456789abcdef/1.01.ts",
            "film.mp4/hls/video/0123456789abcdef/1.2.3.ts",
            "film.mp4/hls/video/0123456789abcdef/1.2.mp4",
            "film.mp4/hls/video/0123456789abcdef/1",
            "film.mp4/dash/video/0123456789abcdef/1.m4s",
            "hls/video/0123456789abcdef/1.m4s",
        ] {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_is_too_odd(path in "(hls|dash|/|i|[0-9a-f]{16}|index.m3u8|\\.m4s|\\PC){0,9}") {
            if let Some((film, _)) = parse(&path) {
                prop_assert!(!film.is_empty() && path.starts_with(film));
            }
        }
    }
}
