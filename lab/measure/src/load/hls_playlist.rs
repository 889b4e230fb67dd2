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

/// The first and the last byte of a range.
pub(super) type ByteRange = (u64, u64);

/// What is fetched: all of what is at an URI, or a range of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Resource {
    pub(super) uri: String,
    pub(super) range: Option<ByteRange>,
}

/// A segment, whole or as far as there is of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Segment {
    pub(super) number: u64,
    /// Once it is whole.
    pub(super) resource: Option<Resource>,
    pub(super) lasts_us: u64,
    /// When its beginning was recorded, in us since 1970, if that is told of it.
    pub(super) recorded_us: Option<i64>,
    /// What must be fetched before.
    pub(super) map: Option<Resource>,
    pub(super) parts: Vec<Part>,
    /// It is not there, and not to be asked for.
    pub(super) is_gap: bool,
}

/// A part of a segment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Part {
    pub(super) resource: Resource,
    pub(super) lasts_us: u64,
    pub(super) is_independent: bool,
    /// As that of a segment.
    pub(super) is_gap: bool,
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
        let (mut number, mut map, mut range, mut entries) = (0, None, None, 0);
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
                "#EXT-X-MAP" => {
                    let of = of()?;
                    let resource = |uri| Resource::of(uri, value(&of, "BYTERANGE"), None);
                    map = value(&of, "URI").map(resource).transpose()?;
                }
                "#EXT-X-PROGRAM-DATE-TIME" => next.recorded_us = recorded_us(rest),
                "#EXT-X-BYTERANGE" => range = Some(rest),
                "#EXT-X-GAP" => next.is_gap = true,
                "#EXT-X-PART" => {
                    let before = media.segments.last().and_then(|it| it.parts.last());
                    let before = next.parts.last().or(before);
                    let part = Part::of(&of()?, before)?;
                    next.parts.push(part);
                    entries += 1;
                }
                "#EXTINF" => next.lasts_us = us(rest.split(',').next().unwrap_or_default())?,
                _ if line.is_empty() || line.starts_with('#') => {}
                _ => {
                    let before = media.segments.last().and_then(|it| it.resource.as_ref());
                    next.resource = Some(Resource::of(line, range.take(), before)?);
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

    fn push(&mut self, mut segment: Segment, number: &mut u64, map: Option<&Resource>) {
        (segment.number, segment.map) = (*number, map.cloned());
        if segment.resource.is_none() {
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

    /// When its beginning was recorded, in us since 1970, if that is told of any segment: those
    /// before it last as long as they do.
    pub(super) fn recorded_us(&self) -> Option<i64> {
        let mut before_us = 0;
        self.segments.iter().find_map(|segment| {
            let recorded_us = segment.recorded_us;
            let begin_us = recorded_us.map(|us| us.saturating_sub_unsigned(before_us));
            before_us += segment.lasts_us;
            begin_us
        })
    }
}

impl Resource {
    /// What is at an URI, or so many bytes of it, `N[@FROM]` (section 4.4.4.2): without a place
    /// those behind the range before, if that is of the same URI.
    fn of(uri: &str, range: Option<&str>, before: Option<&Self>) -> Result<Self, BadPlaylist> {
        let number = |text: &str| text.trim().parse().map_err(|_| BadPlaylist::Garbled);
        let before = before.filter(|it| it.uri == uri).and_then(|it| it.range);
        let range = range.map(|range| {
            let (bytes, first): (u64, u64) = match range.split_once('@') {
                Some((bytes, first)) => (number(bytes)?, number(first)?),
                None => (number(range)?, before.map_or(0, |(_, last)| last + 1)),
            };
            let last = bytes
                .checked_sub(1)
                .and_then(|more| first.checked_add(more));
            // One more is still a number: the next range may begin there.
            let last = last.filter(|&last| last < u64::MAX);
            Ok::<ByteRange, BadPlaylist>((first, last.ok_or(BadPlaylist::Garbled)?))
        });
        Ok(Self {
            uri: uri.to_owned(),
            range: range.transpose()?,
        })
    }
}

impl Part {
    fn of(of: &Attributes<'_>, before: Option<&Self>) -> Result<Self, BadPlaylist> {
        let uri = value(of, "URI").ok_or(BadPlaylist::Garbled)?;
        let lasts = value(of, "DURATION").ok_or(BadPlaylist::Garbled)?;
        let before = before.map(|it| &it.resource);
        Ok(Self {
            resource: Resource::of(uri, value(of, "BYTERANGE"), before)?,
            lasts_us: us(lasts)?,
            is_independent: value(of, "INDEPENDENT") == Some("YES"),
            is_gap: value(of, "GAP") == Some("YES"),
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

/// A time of ISO 8601 with its offset from UTC, `Z`, `+01:00` or `+0100`; others are passed over.
fn recorded_us(time: &str) -> Option<i64> {
    let time = time.trim();
    let (clock, offset_minutes) = match time.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        // The date has a sign, too.
        None => {
            let at = time
                .rfind(['+', '-'])
                .filter(|&at| at > "2026-01-01T".len())?;
            (&time[..at], offset_minutes(&time[at..])?)
        }
    };
    let at = humantime::parse_rfc3339_weak(clock).ok()?;
    let since_1970 = at.duration_since(std::time::UNIX_EPOCH).ok()?;
    let us = i64::try_from(since_1970.as_micros()).ok()?;
    us.checked_sub(offset_minutes * 60_000_000)
}

/// `+0100`, `-01:00` or `+01` in minutes.
fn offset_minutes(offset: &str) -> Option<i64> {
    let (sign, digits) = offset.split_at(1);
    let digits = digits.replace(':', "");
    let number = |text: &str| text.parse::<u8>().ok().map(i64::from);
    let minutes = match digits.len() {
        2 => number(&digits)? * 60,
        4 => number(digits.get(..2)?)? * 60 + number(digits.get(2..)?)?,
        _ => return None,
    };
    Some(if sign == "-" { -minutes } else { minutes })
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
        assert_eq!((begun.number, begun.resource.as_ref()), (8, None));
        assert_eq!(begun.parts[0].resource.uri, "v/8.0.m4s");
        assert_eq!(begun.map.as_ref().unwrap().uri, "v/init.mp4");
    }

    #[test]
    fn ranges_follow_each_other_or_say_where_they_are() {
        let text = "#EXTM3U\n#EXT-X-MAP:URI=\"film\",BYTERANGE=\"700@0\"\n\
                    #EXT-X-BYTERANGE:1000@700\n#EXTINF:4,\nfilm\n\
                    #EXTINF:4,\n#EXT-X-BYTERANGE:50\nfilm\n\
                    #EXT-X-BYTERANGE:20\n#EXTINF:4,\nother\n\
                    #EXTINF:4,\nwhole\n\
                    #EXT-X-PART:DURATION=1,URI=\"p\",BYTERANGE=\"9@1\"\n\
                    #EXT-X-PART:DURATION=1,URI=\"p\",BYTERANGE=\"5\"\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("{:?}", Playlist::parse(text));
        };
        let ranges = media.segments.iter().map(|it| it.resource.as_ref()?.range);
        let expected = [
            Some((700, 1699)),
            Some((1700, 1749)),
            Some((0, 19)),
            None,
            None,
        ];
        assert_eq!(ranges.collect::<Vec<_>>(), expected);
        let ranges = media.segments[4].parts.iter().map(|it| it.resource.range);
        assert_eq!(ranges.collect::<Vec<_>>(), [Some((1, 9)), Some((10, 14))]);
        let map = media.segments[4].map.as_ref().unwrap();
        assert_eq!(map.range, Some((0, 699)));
    }

    #[test]
    fn gaps_are_told_of_segments_and_parts() {
        let text = "#EXTM3U\n#EXTINF:4,\n#EXT-X-GAP\na\n#EXTINF:4,\nb\n\
                    #EXT-X-PART:DURATION=1,URI=\"c\",GAP=YES\n";
        let Ok(Playlist::Media(media)) = Playlist::parse(text) else {
            panic!("{:?}", Playlist::parse(text));
        };
        let [gap, whole, begun] = &media.segments[..] else {
            panic!("{media:?}");
        };
        assert!(gap.is_gap && !whole.is_gap && begun.parts[0].is_gap);
    }

    #[test]
    fn any_segment_says_when_all_was_recorded() {
        let of = |time: &str| {
            let date = format!("#EXT-X-PROGRAM-DATE-TIME:{time}");
            let text = format!("#EXTM3U\n#EXTINF:1.5,\na\n{date}\n#EXTINF:4,\nb\n");
            match Playlist::parse(&text) {
                Ok(Playlist::Media(media)) => media.recorded_us(),
                other => panic!("{other:?}"),
            }
        };
        let at_one = "1970-01-01T00:00:02.500Z";
        assert_eq!(of(at_one), Some(1_000_000));
        for same in [
            "1970-01-01T00:00:02.5+00:00",
            "1970-01-01T00:00:02.500+0000",
            "1970-01-01T01:00:02.500+01:00",
            "1970-01-01T05:30:02.500+0530",
            "1970-01-01T02:00:02.5+02",
        ] {
            assert_eq!(of(same), of(at_one), "{same}");
        }
        assert_eq!(of("1970-01-01T00:00:02.500-0100"), Some(3_601_000_000));
        for unknown in [
            "1970-01-01T00:00:02",
            "now",
            "1970-01-01T00:00:02+1:00",
            "+",
        ] {
            assert_eq!(of(unknown), None, "{unknown}");
        }
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
            "#EXT-X-BYTERANGE:0\na",
            "#EXT-X-BYTERANGE:x@1\na",
            "#EXT-X-BYTERANGE:1@18446744073709551615\na",
            "#EXT-X-MAP:URI=\"x\",BYTERANGE=\"1@\"",
        ] {
            assert_eq!(parse(lines), Err(BadPlaylist::Garbled), "{lines}");
        }
        assert_eq!(parse("#EXT-X-ENDLIST"), Err(BadPlaylist::Empty));
        let most = "#EXTINF:1,\na\n".repeat(ENTRIES_MAX);
        assert!(parse(&most).is_ok());
        assert_eq!(parse(&(most + "a")), Err(BadPlaylist::TooLong));
    }
}
