//! A film as players are told of it: renditions of one file, or of several.

use std::collections::HashSet;

use super::{Resource, Version};
use crate::media::segments::{Rendition, Segmented};
use crate::media::{Medium, VideoRange};

/// How much later the segments of one rendition may begin than those of another with which they
/// are aligned: timescales round.
const ALIGNED_NS: u64 = 2_000_000;

/// Bytes of what a playlist says of each URL, and of the URL but for what it ends in; about.
const LINE_BYTES: usize = 64;

/// What a player may choose of.
#[derive(Clone, Debug)]
pub struct Presentation<'a> {
    /// Its renditions: pictures first. At least one.
    pub renditions: Vec<Listed<'a>>,
    /// Its subtitles, of films that are complete.
    pub texts: Vec<Text>,
    /// Whether nothing can follow on the last segments.
    pub is_complete: bool,
    /// Segments that the playlist of each rendition lists at the most.
    pub listed_max: usize,
    /// What URLs end in: nothing, or a question mark and what gives the right to them. Letters,
    /// digits and `?=&,_-` alone.
    pub query: &'a str,
}

/// Subtitles in one language, as WebVTT.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Text {
    /// What it is called in URLs: `text`, `text-2`.
    pub name: String,
    /// Of which bytes it is.
    pub version: Version,
    /// Its language, as the container or the file's name spells it.
    pub language: Option<String>,
    /// Its name for people, if it has one.
    pub label: Option<String>,
    /// Whether it is shown though nobody asks for subtitles.
    pub is_forced: bool,
}

/// A rendition under the name that it has in URLs.
#[derive(Clone, Debug)]
pub struct Listed<'a> {
    /// `video`, `video-2`, `audio`, `audio-2`, `stream`.
    pub name: String,
    /// Of which bytes its segments are.
    pub version: Version,
    /// The number of its file, from 0 on.
    pub part: usize,
    /// What it is.
    pub of: &'a Rendition,
}

impl<'a> Presentation<'a> {
    /// Of files that show the same, best first: of each that has pictures these; sound of the first
    /// that has both, and of those that have sound alone.
    #[must_use]
    pub fn new(parts: &[(&'a Segmented, Version)], query: &'a str) -> Self {
        let has = |film: &Segmented, medium| film.renditions.iter().any(|it| it.medium == medium);
        let is_both = |film: &Segmented| has(film, Medium::Video) && has(film, Medium::Audio);
        let with_sound = parts.iter().position(|(film, _)| is_both(film));
        let mut renditions: Vec<Listed<'a>> = Vec::new();
        for medium in [Medium::Video, Medium::Audio, Medium::Application] {
            for (part, &(film, version)) in parts.iter().enumerate() {
                let is_heard = with_sound == Some(part) || !has(film, Medium::Video);
                if medium == Medium::Audio && !is_heard {
                    continue;
                }
                for of in film.renditions.iter().filter(|it| it.medium == medium) {
                    let alike = renditions
                        .iter()
                        .filter(|it| it.of.medium == medium)
                        .count();
                    let name = match (parts.len(), alike) {
                        (1, _) => of.name.clone(),
                        (_, 0) => kind(medium).to_owned(),
                        (_, others) => format!("{}-{}", kind(medium), others + 1),
                    };
                    renditions.push(Listed {
                        name,
                        version,
                        part,
                        of,
                    });
                }
            }
        }
        Self {
            renditions,
            texts: Vec::new(),
            is_complete: parts.iter().all(|(film, _)| film.is_complete),
            listed_max: usize::MAX,
            query,
        }
    }

    /// The rendition of that name.
    #[must_use]
    pub fn rendition(&self, name: &str) -> Option<&Listed<'a>> {
        self.renditions.iter().find(|it| it.name == name)
    }

    /// The subtitles of that name.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&Text> {
        self.texts.iter().find(|it| it.name == name)
    }

    /// How long it is, in ns: its longest rendition.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        let ends = self.renditions.iter().map(|it| it.of.duration_ns());
        ends.max().unwrap_or(0)
    }

    /// How long the playlist or the manifest `of` it becomes, about, before it is written: what
    /// URLs end in stands behind each, so that it may be a thousand times as long as the request.
    #[must_use]
    pub fn text_bytes(&self, of: &Resource<'_>) -> usize {
        let segments = |it: &Listed<'_>| it.of.segments();
        let of_one = |name: &str| match self.rendition(name) {
            Some(it) => segments(it),
            // Those of subtitles are longer.
            None => self.renditions.iter().map(segments).max().unwrap_or(0),
        };
        let (all, pictures) = (self.renditions.len(), self.pictures().count());
        let urls = match (of, &self.renditions[..]) {
            (Resource::Media { rendition }, _) => of_one(rendition),
            // A second apart at the least, in segments that last six as a rule.
            (Resource::Pictures { rendition }, _) => 6 * of_one(rendition),
            (Resource::Main, [only]) => segments(only),
            // Pictures with each sound, and each alone.
            _ => 2 * all + pictures * (all - pictures),
        };
        // Of a time line each row may be another.
        let rows = match of {
            Resource::Manifest => self.renditions.iter().map(segments).sum(),
            _ => 0_usize,
        };
        let of_urls = (urls + 2).saturating_mul(LINE_BYTES + self.query.len());
        of_urls.saturating_add(rows.saturating_mul(LINE_BYTES))
    }

    /// Those with pictures.
    pub fn pictures(&self) -> impl Iterator<Item = &Listed<'a>> + Clone {
        self.renditions
            .iter()
            .filter(|it| it.of.medium == Medium::Video)
    }

    /// The dynamic ranges of its pictures, as far as they are known.
    pub fn video_ranges(&self) -> impl Iterator<Item = VideoRange> {
        self.pictures().filter_map(|it| it.of.video_range)
    }

    /// Renditions of pictures whose segments do not begin where those of the first do: a player may
    /// change to them, and fetches some seconds twice.
    #[must_use]
    pub fn not_aligned(&self) -> Vec<&Listed<'a>> {
        let mut pictures = self.pictures();
        let Some(first) = pictures.next() else {
            return Vec::new();
        };
        let starts: Vec<_> = starts_ns(first.of).collect();
        let is_aligned = |it: &Rendition| {
            starts_ns(it).count() == starts.len()
                && starts_ns(it)
                    .zip(&starts)
                    .all(|(a, b)| a.abs_diff(*b) <= ALIGNED_NS)
        };
        pictures.filter(|it| !is_aligned(it.of)).collect()
    }
}

/// That name, or one like it that none of the others has.
pub(super) fn unique(name: &str, others: &mut HashSet<String>) -> String {
    let name: String = quotable(name);
    let mut number = 1;
    let mut unique = name.clone();
    while !others.insert(unique.clone()) {
        number += 1;
        unique = format!("{name} ({number})");
    }
    unique
}

/// Whether this is, by its name, a film of several files that show the same: a folder of them, or a
/// list.
#[must_use]
pub fn is_of_several(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    let stem = file.strip_suffix(".json").unwrap_or(file);
    stem.strip_suffix(".film").is_some_and(|it| !it.is_empty())
}

fn starts_ns(of: &Rendition) -> impl Iterator<Item = u64> + '_ {
    let timescale = u128::from(of.timescale.max(1));
    of.times().map(move |(start, _)| {
        let ticks = u128::try_from(start.max(0)).unwrap_or(0);
        u64::try_from(ticks * 1_000_000_000 / timescale).unwrap_or(u64::MAX)
    })
}

const fn kind(medium: Medium) -> &'static str {
    match medium {
        Medium::Video => "video",
        Medium::Audio => "audio",
        Medium::Application => "other",
    }
}

/// A name that shows something: those of files may be of spaces, or of what steers a terminal.
pub(super) fn shown(name: Option<&str>) -> Option<&str> {
    name.filter(|it| !quotable(it).trim().is_empty())
}

/// Without what a quoted string may not have (section 4.2).
pub(super) fn quotable(text: &str) -> String {
    let kept = text.chars().filter(|it| !it.is_control());
    kept.map(|it| if it == '"' { '\'' } else { it }).collect()
}
