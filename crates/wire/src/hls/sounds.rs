//! What is heard with a film, in one codec or in several, and the groups that are made of it.
//!
//! Each codec is a group. All groups of a film were to have the same members (RFC 8216bis, section
//! 4.4.6.1.1), under the same names: they have, as far as the film has them in each codec. One that
//! had in other codecs what is not there in its own would have players fail that do not decode
//! those: they take one codec for all of a group.

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

/// What is coded in one way, in the order of what is heard.
pub(crate) struct Group<'a> {
    pub(crate) id: String,
    pub(crate) codec: &'a str,
    /// Each with the number of its sound.
    pub(crate) tracks: Vec<(usize, &'a Listed<'a>)>,
    /// Which of them is heard where nobody chooses.
    pub(crate) default: usize,
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

/// The groups of these, one for each codec.
pub(super) fn groups<'a>(sounds: &[Sound<'a>]) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'a>> = Vec::new();
    for track in sounds.iter().flat_map(|it| &it.tracks) {
        let codec = codec(track);
        if groups.iter().any(|it| it.codec == codec) {
            continue;
        }
        let of = |(number, sound): (usize, &Sound<'a>)| {
            let mut tracks = sound.tracks.iter().copied();
            Some((number, tracks.find(|it| self::codec(it) == codec)?))
        };
        let tracks: Vec<_> = sounds.iter().enumerate().filter_map(of).collect();
        let default = tracks.iter().position(|it| sounds[it.0].is_default);
        groups.push(Group {
            id: format!("audio{}", groups.len() + 1),
            codec,
            tracks,
            default: default.unwrap_or(0),
        });
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
