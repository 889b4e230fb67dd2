//! What is heard with a film, in one codec or in several, and the groups that are made of it.
//!
//! Each group has all that is heard, under the same names (RFC 8216bis, section 4.4.6.1.1), so that
//! whichever a player takes, it offers the same choice: a group of one codec has in others what is
//! not there in its own.

use std::borrow::Cow;
use std::collections::HashSet;

use super::presentation::{shown, unique};
use super::{Listed, Presentation};
use crate::language::tag;
use crate::media::Medium;

/// Words of a name that tell of how sound is coded, and nothing of what is heard.
const WORDS_OF_CODING: [&str; 31] = [
    "mono", "stereo", "surround", "channel", "channels", "ch", "1.0", "2.0", "2.1", "5.0", "5.1",
    "6.1", "7.1", "dolby", "digital", "plus", "atmos", "aac", "aac-lc", "he-aac", "ac3", "ac-3",
    "eac3", "e-ac-3", "dd", "dd+", "ddp", "opus", "mp3", "flac", "audio",
];

/// Something that is heard.
pub(crate) struct Sound<'a> {
    /// Its name for people, which no other has.
    pub(crate) name: String,
    /// A tag of BCP 47.
    pub(crate) language: Option<Cow<'a, str>>,
    /// Whether it is heard where nobody chooses: one of all.
    pub(crate) is_default: bool,
    /// It in different codecs: one at the least.
    pub(crate) tracks: Vec<&'a Listed<'a>>,
    /// What of its name tells what is heard.
    told: String,
}

/// A track of each sound, in their order: as many as possible are coded alike.
pub(crate) struct Group<'a> {
    pub(crate) id: String,
    /// Each with the number of its sound.
    pub(crate) tracks: Vec<(usize, &'a Listed<'a>)>,
    /// Which of them is heard where nobody chooses.
    pub(crate) default: usize,
    /// How they are coded, each way once.
    pub(crate) codecs: Vec<&'a str>,
}

/// What all players decode begins so (MPEG-4 audio).
const EVERYWHERE: &str = "mp4a.40";

/// All that is heard with a film, in the order of its tracks.
pub(crate) fn sounds<'a>(film: &'a Presentation<'a>) -> Vec<Sound<'a>> {
    let mut sounds: Vec<Sound<'a>> = Vec::new();
    let tracks = film.renditions.iter();
    for track in tracks.filter(|it| it.of.medium == Medium::Audio) {
        let language = track.of.language.as_deref().and_then(tag);
        let told = told(track.of.label.as_deref().unwrap_or_default());
        let is_same = |it: &Sound<'_>| {
            let has_codec = it.tracks.iter().any(|it| codec(it) == codec(track));
            !has_codec && it.language == language && it.told == told
        };
        match sounds.iter_mut().find(|it| is_same(it)) {
            Some(sound) => sound.tracks.push(track),
            None => sounds.push(Sound {
                name: String::new(),
                language,
                is_default: false,
                tracks: vec![track],
                told,
            }),
        }
    }
    let mut names = HashSet::new();
    for sound in &mut sounds {
        sound.name = unique(sound.called(), &mut names);
    }
    let is_told = |it: &Sound<'_>| it.tracks.iter().any(|it| it.of.is_default);
    let default = sounds.iter().position(is_told).unwrap_or(0);
    if let Some(sound) = sounds.get_mut(default) {
        sound.is_default = true;
    }
    sounds
}

/// The groups of these, one for each codec, but for those that have the same tracks. Where the
/// default is in none of them as every player decodes it, there is one more of what else every
/// player does, though it has not all that is heard: browsers take no group of which they do not
/// decode the default.
pub(super) fn groups<'a>(sounds: &[Sound<'a>]) -> Vec<Group<'a>> {
    let mut wanted: Vec<&str> = Vec::new();
    for track in sounds.iter().flat_map(|it| &it.tracks) {
        add(&mut wanted, codec(track));
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for wanted in wanted {
        let of = |(number, sound): (usize, &Sound<'a>)| {
            let mut tracks = sound.tracks.iter().copied();
            let track = tracks.find(|it| codec(it) == wanted);
            Some((number, track.or_else(|| sound.tracks.first().copied())?))
        };
        let group = Group::new(
            groups.len() + 1,
            sounds,
            sounds.iter().enumerate().filter_map(of),
        );
        let is_same = |it: &Group<'_>| {
            let mut pairs = it.tracks.iter().zip(&group.tracks);
            pairs.all(|(one, other)| std::ptr::eq(one.1, other.1))
        };
        if !groups.iter().any(is_same) {
            groups.push(group);
        }
    }
    let is_everywhere = |it: &&Listed<'_>| codec(it).starts_with(EVERYWHERE);
    let has_default = |it: &Group<'_>| it.default_track().as_ref().is_some_and(is_everywhere);
    if !groups.iter().any(has_default) {
        let of = |(number, sound): (usize, &Sound<'a>)| {
            let mut tracks = sound.tracks.iter().copied();
            Some((number, tracks.find(is_everywhere)?))
        };
        let group = Group::new(
            groups.len() + 1,
            sounds,
            sounds.iter().enumerate().filter_map(of),
        );
        if !group.tracks.is_empty() {
            groups.push(group);
        }
    }
    groups
}

impl<'a> Group<'a> {
    fn new(
        number: usize,
        sounds: &[Sound<'a>],
        tracks: impl Iterator<Item = (usize, &'a Listed<'a>)>,
    ) -> Self {
        let tracks: Vec<_> = tracks.collect();
        let mut codecs = Vec::new();
        for (_, track) in tracks.iter().copied() {
            add(&mut codecs, codec(track));
        }
        let is_default = |it: &(usize, &Listed<'_>)| sounds[it.0].is_default;
        Self {
            id: format!("audio{number}"),
            default: tracks.iter().position(is_default).unwrap_or(0),
            tracks,
            codecs,
        }
    }

    /// What is heard of it where nobody chooses.
    pub(super) fn default_track(&self) -> Option<&'a Listed<'a>> {
        self.tracks.get(self.default).map(|it| it.1)
    }
}

impl Sound<'_> {
    /// What it is called, which others may be, too. Tracks that are called by how they are coded
    /// are not the same by that name.
    fn called(&self) -> &str {
        let Some(first) = self.tracks.first() else {
            return "audio";
        };
        let is_alike = |it: &&Listed<'_>| it.of.label == first.of.label;
        let is_of_all = self.language.is_none() || self.tracks.iter().all(is_alike);
        let label = shown(first.of.label.as_deref()).filter(|_| is_of_all);
        label.or(self.language.as_deref()).unwrap_or(&first.name)
    }
}

/// How a track is coded; nothing if that is not known.
pub(super) fn codec<'a>(track: &'a Listed<'_>) -> &'a str {
    track.of.codec.as_deref().unwrap_or_default()
}

fn add<'a>(all: &mut Vec<&'a str>, one: &'a str) {
    if !all.contains(&one) {
        all.push(one);
    }
}

/// The words of a name that tell what is heard: of `English 5.1` it is `english`.
fn told(label: &str) -> String {
    let words = label.split(|it: char| it.is_whitespace() || "()[],/".contains(it));
    let words = words
        .map(str::to_lowercase)
        .filter(|word| word.contains(char::is_alphanumeric) && !WORDS_OF_CODING.contains(&&**word));
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
