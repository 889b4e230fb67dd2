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
    pub(crate) tracks: Vec<&'a Listed<'a>>,
    /// How they are coded, each way once.
    pub(crate) codecs: Vec<&'a str>,
}

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

/// The groups of these, one for each codec, but for those that have the same tracks.
pub(super) fn groups<'a>(sounds: &[Sound<'a>]) -> Vec<Group<'a>> {
    let mut wanted: Vec<&str> = Vec::new();
    for track in sounds.iter().flat_map(|it| &it.tracks) {
        add(&mut wanted, codec(track));
    }
    let mut groups: Vec<Group<'a>> = Vec::new();
    for wanted in wanted {
        let of = |sound: &Sound<'a>| {
            let mut tracks = sound.tracks.iter().copied();
            let track = tracks.find(|it| codec(it) == wanted);
            track.or_else(|| sound.tracks.first().copied())
        };
        let tracks: Vec<_> = sounds.iter().filter_map(of).collect();
        let is_same = |it: &Group<'_>| {
            let mut pairs = it.tracks.iter().zip(&tracks);
            pairs.all(|(one, other)| std::ptr::eq(*one, *other))
        };
        if !groups.iter().any(is_same) {
            let mut codecs = Vec::new();
            for track in tracks.iter().copied() {
                add(&mut codecs, codec(track));
            }
            groups.push(Group {
                id: format!("audio{}", groups.len() + 1),
                tracks,
                codecs,
            });
        }
    }
    groups
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
