//! What a player reads of a playlist (RFC 8216bis): what there is to fetch, how long it plays, and
//! when to ask again. Lines that it does not need are passed over.
//!
//! Thousands of players of one channel get the same bytes: these are read once for all of them
//! ([`Parsed`]), because reading them again took more of the processor than all else that a player
//! does.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use thiserror::Error;

/// Segments and parts that a playlist may name.
pub(super) const ENTRIES_MAX: usize = 200_000;

/// Why a playlist cannot be played.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(super) enum BadPlaylist {
    #[error("the playlist does not begin with #EXTM3U")]
    NoPlaylist,
    #[error("the playlist has an attribute or a number that cannot be read")]
    Garbled,
    #[error("the playlist names more than {ENTRIES_MAX} segments and parts")]
    TooLong,
    #[error("the playlist names nothing to play")]
    Empty,
}

/// A playlist.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Playlist {
    /// It names others: those of the first variant, pictures first.
    Main(Rc<[String]>),
    Media(Rc<Media>),
}

/// Playlists that were parsed lately: so many, because players of several renditions, each a part
/// or two behind others, ask at once.
const PARSED_MAX: usize = 32;

/// Playlists that were parsed lately, for all players of a thread; the last that was used first.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    lately: RefCell<VecDeque<(Vec<u8>, Playlist)>>,
}

impl Parsed {
    /// As [`Playlist::parse`]. What was parsed lately is not parsed again.
    pub(super) fn parse(&self, bytes: Vec<u8>) -> Result<Playlist, BadPlaylist> {
        let lately = &mut *self.lately.borrow_mut();
        let is_it = |(of, _): &(Vec<u8>, Playlist)| *of == bytes;
        let entry = match lately.iter().position(is_it) {
            Some(at) => lately.remove(at).expect("it was found there"),
            None => {
                let playlist = Playlist::parse(&String::from_utf8_lossy(&bytes))?;
                (bytes, playlist)
            }
        };
        let playlist = entry.1.clone();
        lately.truncate(PARSED_MAX - 1);
        lately.push_front(entry);
        Ok(playlist)
    }
}

/// The playlist of one rendition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Media {
    pub(super) target_us: u64,
    /// Nothing follows on it.
    pub(super) has_ended: bool,
    pub(super) can_block: bool,
    /// How long parts are, if there are any.
    pub(super) part_us: Option<u64>,
    /// How far from the end a player stays.
    hold_back_us: Option<u64>,
    part_hold_back_us: Option<u64>,
    pub(super) segments: Vec<Segment>,
}

/// A segment, whole or as far as there is of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Once it is whole.
    pub(super) uri: Option<String>,
    pub(super) lasts_us: u64,
    /// When its beginning was recorded, in us since 1970, if that is told.
    pub(super) recorded_us: Option<i64>,
    /// What must be fetched before.
    pub(super) map: Option<String>,
    pub(super) parts: Vec<Part>,
}

/// A part of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) uri: String,
    pub(super) lasts_us: u64,
    pub(super) is_independent: bool,
}

impl Playlist {
    pub(super) fn parse(text: &str) -> Result<Self, BadPlaylist> {
        let mut lines = text.lines();
        if lines.next().map(str::trim_end) != Some("#EXTM3U") {
            return Err(BadPlaylist::NoPlaylist);
        }
        if text.contains("\n#EXT-X-STREAM-INF:") {
            return main(text).map(|uris| Self::Main(uris.into()));
        }
        Media::parse(lines).map(|media| Self::Media(media.into()))
    }
}

/// The first variant, and the sound that goes with it if that is apart.
fn main(text: &str) -> Result<Vec<String>, BadPlaylist> {
    let mut lines = text.lines();
    let variant = lines
        .find_map(|line| line.strip_prefix("#EXT-X-STREAM-INF:"))
        .and_then(attributes)
        .ok_or(BadPlaylist::Garbled)?;
    let uri = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    let mut all = vec![uri.ok_or(BadPlaylist::Empty)?.to_owned()];
    let Some(group) = value(&variant, "AUDIO") else {
        return Ok(all);
    };
    let media = text
        .lines()
        .filter_map(|line| line.strip_prefix("#EXT-X-MEDIA:"));
    let media = media
        .filter_map(attributes)
        .filter(|of| value(of, "TYPE") == Some("AUDIO") && value(of, "GROUP-ID") == Some(group));
    let mut media: Vec<_> = media.collect();
    media.sort_by_key(|of| value(of, "DEFAULT") != Some("YES"));
    // Without an URI it is in the variant.
    let sound = media.first().and_then(|of| value(of, "URI"));
    all.extend(sound.filter(|uri| **uri != all[0]).map(str::to_owned));
    Ok(all)
}

impl Media {
    fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, BadPlaylist> {
        let mut media = Self::default();
        let (mut number, mut map, mut entries) = (0, None, 0);
        let mut next = Segment::default();
        for line in lines.map(str::trim_end) {
            let (tag, rest) = line.split_once(':').unwrap_or((line, ""));
            let of = || attributes(rest).ok_or(BadPlaylist::Garbled);
            match tag {
                "#EXT-X-TARGETDURATION" => media.target_us = us(rest)?,
                "#EXT-X-ENDLIST" => media.has_ended = true,
                "#EXT-X-MEDIA-SEQUENCE" => {
                    number = rest.parse().map_err(|_| BadPlaylist::Garbled)?;
                }
                "#EXT-X-SERVER-CONTROL" => {
                    let of = of()?;
                    media.can_block = value(&of, "CAN-BLOCK-RELOAD") == Some("YES");
                    media.hold_back_us = value(&of, "HOLD-BACK").map(us).transpose()?;
                    media.part_hold_back_us = value(&of, "PART-HOLD-BACK").map(us).transpose()?;
                }
                "#EXT-X-PART-INF" => {
                    media.part_us = value(&of()?, "PART-TARGET").map(us).transpose()?;
                }
                "#EXT-X-MAP" => map = value(&of()?, "URI").map(str::to_owned),
                "#EXT-X-PROGRAM-DATE-TIME" => next.recorded_us = recorded_us(rest),
                "#EXT-X-PART" => {
                    next.parts.push(Part::of(&of()?)?);
                    entries += 1;
                }
                "#EXTINF" => next.lasts_us = us(rest.split(',').next().unwrap_or_default())?,
                _ if line.is_empty() || line.starts_with('#') => {}
                _ => {
                    next.uri = Some(line.to_owned());
                    media.push(std::mem::take(&mut next), &mut number, map.as_ref());
                    entries += 1;
                }
            }
            if entries > ENTRIES_MAX {
                return Err(BadPlaylist::TooLong);
            }
        }
        if !next.parts.is_empty() {
            media.push(next, &mut number, map.as_ref());
        }
        match media.segments.is_empty() {
            true => Err(BadPlaylist::Empty),
            false => Ok(media),
        }
    }

    fn push(&mut self, mut segment: Segment, number: &mut u64, map: Option<&String>) {
        (segment.number, segment.map) = (*number, map.cloned());
        if segment.uri.is_none() {
            segment.lasts_us = segment.parts.iter().map(|it| it.lasts_us).sum();
        }
        *number = number.saturating_add(1);
        self.segments.push(segment);
    }

    /// How far from the end a player stays (section 4.4.3.8).
    pub(super) fn hold_back_us(&self) -> u64 {
        let of_parts = self.part_us.and(self.part_hold_back_us);
        let whole = self.hold_back_us.unwrap_or(3 * self.target_us);
        of_parts.unwrap_or(whole)
    }

    /// How long all of it plays.
    pub(super) fn lasts_us(&self) -> u64 {
        self.segments.iter().map(|it| it.lasts_us).sum()
    }
}

impl Part {
    fn of(of: &Attributes<'_>) -> Result<Self, BadPlaylist> {
        let uri = value(of, "URI").ok_or(BadPlaylist::Garbled)?;
        let lasts = value(of, "DURATION").ok_or(BadPlaylist::Garbled)?;
        Ok(Self {
            uri: uri.to_owned(),
            lasts_us: us(lasts)?,
            is_independent: value(of, "INDEPENDENT") == Some("YES"),
        })
    }
}

type Attributes<'a> = Vec<(&'a str, &'a str)>;

/// An attribute list (section 4.2), values without their quotes; `None` if it is none.
fn attributes(mut list: &str) -> Option<Attributes<'_>> {
    let mut all = Vec::new();
    while !list.is_empty() {
        let (name, rest) = list.split_once('=')?;
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (value, rest) = quoted.split_once('"')?;
                (value, rest.strip_prefix(',').unwrap_or(rest))
            }
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        all.push((name.trim(), value));
        list = rest;
    }
    Some(all)
}

fn value<'a>(of: &Attributes<'a>, name: &str) -> Option<&'a str> {
    let found = of.iter().find(|(it, _)| *it == name);
    found.map(|(_, value)| *value)
}

/// Seconds, with or without a fraction, in us: a day at the most.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and a day"
)]
fn us(seconds: &str) -> Result<u64, BadPlaylist> {
    let seconds: f64 = seconds.trim().parse().map_err(|_| BadPlaylist::Garbled)?;
    match (0.0..=86_400.0).contains(&seconds) {
        true => Ok((seconds * 1e6) as u64),
        false => Err(BadPlaylist::Garbled),
    }
}

/// A time in UTC; others are passed over.
fn recorded_us(time: &str) -> Option<i64> {
    let at = humantime::parse_rfc3339(time.trim()).ok()?;
    let since_1970 = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(since_1970.as_micros()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variant_has_its_default_sound() {
        let text = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"b\",URI=\"other\",DEFAULT=YES\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"x,y\",URI=\"one\"\n\
                    #EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"two\",DEFAULT=YES\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=9,CODECS=\"a,b\",AUDIO=\"a\"\nvideo\n\
                    #EXT-X-STREAM-INF:BANDWIDTH=1\nsmall\n";
        let expected = ["video".to_owned(), "two".to_owned()];
        let expected = Playlist::Main(Rc::new(expected));
        assert_eq!(Playlist::parse(text), Ok(expected));
    }

    #[test]
    fn what_all_players_get_is_parsed_once() {
        let parsed = Parsed::default();
        let parse = |length: usize| {
            let text = format!("#EXTM3U\n#EXTINF:{length},\na\n");
            match parsed.parse(text.into_bytes()) {
                Ok(Playlist::Media(media)) => media,
                other => panic!("{other:?}"),
            }
        };
        let first = parse(1);
        assert_eq!(first.segments[0].lasts_us, 1_000_000);
        assert!(Rc::ptr_eq(&first, &parse(1)));
        // As many others push it out, and one less does not.
        (2..=PARSED_MAX).for_each(|it| drop(parse(it)));
        assert!(Rc::ptr_eq(&first, &parse(1)));
        (2..=PARSED_MAX + 1).for_each(|it| drop(parse(it)));
        let again = parse(1);
        assert!(!Rc::ptr_eq(&first, &again) && first == again);
        assert_eq!(parsed.parse(b"<html>".into()), Err(BadPlaylist::NoPlaylist));
        assert_eq!(parsed.lately.borrow().len(), PARSED_MAX);
    }

    #[test]
    fn parts_and_what_is_not_whole_yet_are_told() {
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,\
                    PART-HOLD-BACK=1.0\n#EXT-X-PART-INF:PART-TARGET=0.33\n\
                    #EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-MAP:URI=\"v/init.mp4\"\n\
                    #EXT-X-PROGRAM-DATE-TIME:1970-01-01T00:00:02.500Z\n#EXTINF:3.2,\nv/7.m4s\n\
                    #EXT-X-PART:DURATION=0.32,URI=\"v/8.0.m4s\",INDEPENDENT=YES\n\
                    #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"v/8.1.m4s\"\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("{:?}", Playlist::parse(text));
        };
        assert!(media.can_block && !media.has_ended);
        assert_eq!(
            (media.hold_back_us(), media.lasts_us()),
            (1_000_000, 3_520_000)
        );
        let [whole, begun] = &media.segments[..] else {
            panic!("{media:?}");
        };
        assert_eq!((whole.number, whole.lasts_us), (7, 3_200_000));
        assert_eq!(whole.recorded_us, Some(2_500_000));
        assert_eq!((begun.number, begun.uri.as_deref()), (8, None));
        assert_eq!(begun.parts[0].uri, "v/8.0.m4s");
        assert_eq!(begun.map.as_deref(), Some("v/init.mp4"));
    }

    #[test]
    fn what_cannot_be_played_is_refused() {
        let parse = |lines: &str| Playlist::parse(&format!("#EXTM3U\n{lines}\n"));
        assert_eq!(Playlist::parse("<html>"), Err(BadPlaylist::NoPlaylist));
        for lines in [
            "#EXTINF:x,\na",
            "#EXTINF:-1,\na",
            "#EXTINF:1e9,\na",
            "#EXTINF:NaN,\na",
            "#EXT-X-MEDIA-SEQUENCE:18446744073709551616",
            "#EXT-X-PART:DURATION=1",
            "#EXT-X-PART:URI=\"x",
        ] {
            assert_eq!(parse(lines), Err(BadPlaylist::Garbled), "{lines}");
        }
        assert_eq!(parse("#EXT-X-ENDLIST"), Err(BadPlaylist::Empty));
        let most = "#EXTINF:1,\na\n".repeat(ENTRIES_MAX);
        assert!(parse(&most).is_ok());
        assert_eq!(parse(&(most + "a")), Err(BadPlaylist::TooLong));
    }
}
