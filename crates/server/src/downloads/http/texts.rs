//! Subtitles of films: text tracks in them, and files beside them, as WebVTT.
//!
//! Beside `film.mp4` these are `film.vtt` and `film.en.srt`, with what stands between as their
//! language, and `film.en.forced.srt`, which is shown though nobody asks for any. They are read
//! when somebody asks for them, on a thread that may wait for a disk, and nothing of them is kept
//! but their names. Whoever may play the film may have them by it.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use onrush_wire::hls::{Text, Version, text_stretch_ms};
use onrush_wire::media::text::{Cue, TEXT_BYTES_MAX, TextTrack, last_cue, of_file, webvtt};
use onrush_wire::media::{MEDIA_ENDINGS, TEXTS_MAX, has_media_ending};
use onrush_wire::name::shown;
use tracing::warn;

use crate::downloads::Site;
use crate::downloads::files::Found;
use crate::library::{Media, blocking, version_of};

/// Bytes of a language in the name of a file.
const LANGUAGE_BYTES_MAX: usize = 35;

/// Where subtitles come from.
#[derive(Clone, Debug)]
enum Source {
    Track(Arc<Media>, TextTrack),
    /// A file, whose times are by so much earlier than the film's.
    File {
        path: String,
        lead_ms: u64,
    },
}

/// All that a film has, as playlists name them.
#[derive(Debug, Default)]
pub(super) struct Texts(Vec<(Text, Source)>);

impl Texts {
    /// Those of the film `name`, which consists of these files.
    pub(super) async fn find(site: &Site, name: &str, parts: &[Arc<Media>]) -> Self {
        let mut found = Vec::new();
        for media in parts {
            let texts = media.index().texts().into_iter().map(|track| {
                let known = |it: &str| Some(it.to_owned()).filter(|it| !it.is_empty());
                let text = Text {
                    name: String::new(),
                    version: media.version(),
                    language: track.language().and_then(known),
                    label: track.label().and_then(known),
                    is_forced: track.is_forced(),
                };
                (text, Source::Track(Arc::clone(media), track))
            });
            found.extend(texts);
            // Of several files that show the same, one is enough.
            if !found.is_empty() {
                break;
            }
        }
        // Who wrote them had the film begin where it was cut.
        let lead_ms = match parts {
            [alone] => alone.index().lead_ns() / 1_000_000,
            _ => 0,
        };
        let versions = parts.iter().map(|it| it.version().0);
        let film = versions.fold(0, |all: u64, it| all.rotate_left(1) ^ it);
        found.extend(beside(site, name, (film, lead_ms)).await);
        found.truncate(TEXTS_MAX);
        for (at, (text, _)) in found.iter_mut().enumerate() {
            text.name = match at {
                0 => "text".to_owned(),
                at => format!("text-{}", at + 1),
            };
        }
        Self(found)
    }

    /// As playlists name them.
    pub(super) fn listed(&self) -> Vec<Text> {
        self.0.iter().map(|(text, _)| text.clone()).collect()
    }

    /// The WebVTT of a segment, or of all; `None` if there is no such thing. With `ends_ms` it goes
    /// on until then, where the film ends.
    ///
    /// # Errors
    ///
    /// If it cannot be read.
    pub(super) async fn webvtt(
        &self,
        site: &Site,
        (name, version): (&str, Version),
        number: Option<u64>,
        ends_ms: Option<u64>,
    ) -> io::Result<Option<String>> {
        let is_one = |it: &&(Text, Source)| it.0.name == name && it.0.version == version;
        let Some((_, source)) = self.0.iter().find(is_one) else {
            return Ok(None);
        };
        let stretch_ms = number.map_or(0..u64::MAX, text_stretch_ms);
        if number == Some(0) || stretch_ms.is_empty() {
            return Ok(None);
        }
        let cues = cues(site, source.clone(), stretch_ms.clone()).await?;
        let text = webvtt(&cues, &stretch_ms, number.is_some());
        let last = ends_ms.map(|it| last_cue(&cues, it));
        Ok(Some(text + &last.unwrap_or_default()))
    }
}

async fn cues(site: &Site, source: Source, stretch_ms: Range<u64>) -> io::Result<Vec<Cue>> {
    match source {
        Source::Track(media, track) => {
            let file = media.file();
            let read = move |part: Range<u64>| {
                let mut bytes = vec![0; usize::try_from(part.end - part.start).ok()?];
                let read = file.read_exact_at(&mut bytes, part.start);
                read.ok().map(|()| bytes)
            };
            blocking(move || Ok(track.cues(&stretch_ms, read))).await
        }
        Source::File { path, lead_ms } => {
            let Found::File(file) = site.files.find(&path).await? else {
                return Err(io::ErrorKind::NotFound.into());
            };
            let bytes = file.identity.file_bytes.min(TEXT_BYTES_MAX);
            let file = file.file.clone();
            let read = move || {
                let mut text = vec![0; usize::try_from(bytes).unwrap_or(0)];
                file.read_exact_at(&mut text, 0)?;
                let cues = of_file(&path, &text).unwrap_or_default();
                let cues = cues.into_iter().map(|it| it.later(lead_ms));
                Ok(cues.collect::<Vec<_>>())
            };
            blocking(read).await
        }
    }
}

/// Files of subtitles that lie beside the film `name` of that version, in the order of their names,
/// with times that are `lead_ms` earlier than the film's.
async fn beside(
    site: &Site,
    name: &str,
    (film_version, lead_ms): (u64, u64),
) -> Vec<(Text, Source)> {
    let (folder, film) = name.rsplit_once('/').unwrap_or(("", name));
    let of_film = stem(film).to_owned();
    let fit = move |file: &str| told(file, &of_film).is_some();
    let names = site.text_names.beside(&site.places, name, fit).await;
    let mut found = Vec::new();
    for file in &*names {
        let Some((language, is_forced)) = told(file, stem(film)) else {
            continue;
        };
        let path = match folder {
            "" => file.clone(),
            folder => format!("{folder}/{file}"),
        };
        if let Ok(Found::File(file)) = site.files.find(&path).await {
            if file.identity.file_bytes > TEXT_BYTES_MAX {
                warn!(
                    "{:?}: longer than {TEXT_BYTES_MAX} bytes; it is left out",
                    shown(&path)
                );
                continue;
            }
            let (of, identity) = (file.file.clone(), file.identity);
            let version = blocking(move || Ok(version_of(&of, identity))).await;
            let Ok(Version(version)) = version else {
                continue;
            };
            let text = Text {
                name: String::new(),
                // The film's is in it, too: they begin and end with it, and another may come in its
                // place.
                version: Version(version ^ film_version),
                language: language.map(str::to_owned),
                label: None,
                is_forced,
            };
            found.push((text, Source::File { path, lead_ms }));
        }
        if found.len() == TEXTS_MAX {
            break;
        }
    }
    found
}

/// The films that a file of this name has subtitles of, whether they are there or not: by all names
/// that they may have. None if it has none by its name.
pub(in crate::downloads) fn films_of(name: &str) -> Vec<String> {
    let start = name.rfind('/').map_or(0, |slash| slash + 1);
    let file = &name[start..];
    // Behind the film's name there are an ending, a language and a word at the most.
    let stems = file
        .rmatch_indices('.')
        .take(3)
        .map(|(dot, _)| &file[..dot]);
    let stems = stems.filter(|stem| !stem.is_empty() && told(file, stem).is_some());
    let mut films = Vec::new();
    for stem in stems {
        let film = &name[..start + stem.len()];
        films.push(film.to_owned());
        films.extend(["film", "film.json"].map(|ending| format!("{film}.{ending}")));
        for ending in MEDIA_ENDINGS {
            films.push(format!("{film}.{ending}"));
            films.push(format!("{film}.{}", ending.to_ascii_uppercase()));
        }
    }
    films
}

/// A film's name without its ending.
fn stem(film: &str) -> &str {
    let film = film.strip_suffix(".json").unwrap_or(film);
    match film.rsplit_once('.') {
        Some((stem, "film")) => stem,
        Some((stem, _)) if has_media_ending(film) => stem,
        _ => film,
    }
}

/// Whether `file` has subtitles of the film that is called `stem`; and in which language, if its
/// name says that, and whether they are forced.
fn told<'a>(file: &'a str, stem: &str) -> Option<(Option<&'a str>, bool)> {
    let rest = file.strip_prefix(stem)?.strip_prefix('.')?;
    let is_text = |it: &str| {
        ["vtt", "srt", "ass", "ssa"]
            .iter()
            .any(|known| it.eq_ignore_ascii_case(known))
    };
    let is_language = |it: &str| {
        (1..=LANGUAGE_BYTES_MAX).contains(&it.len())
            && it
                .bytes()
                .all(|it| it.is_ascii_alphanumeric() || it == b'-')
    };
    let is_forced = |it: &str| it.eq_ignore_ascii_case("forced");
    let (between, ending) = rest.rsplit_once('.').unwrap_or(("", rest));
    let told = match between.split_once('.') {
        None if rest == ending => (None, false),
        None if is_forced(between) => (None, true),
        None => (Some(between), false),
        Some((one, other)) if is_forced(other) => (Some(one), true),
        Some((one, other)) if is_forced(one) => (Some(other), true),
        Some(_) => return None,
    };
    (is_text(ending) && told.0.is_none_or(is_language)).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtitles_are_of_all_films_that_there_may_be() {
        let films = films_of("in/a.b.en.srt");
        for film in ["a.b", "a.b.mp4", "a.b.MTS", "a.b.en.mkv", "a.b.film.json"] {
            assert!(films.contains(&format!("in/{film}")), "{film}");
            assert!(told("a.b.en.srt", stem(film)).is_some(), "{film}");
        }
        assert!(!films.contains(&"in/a.mp4".to_owned()));
        for other in ["in/a.mp4", "a", ".srt", "a.srt.gz", "x.srt/a"] {
            assert!(films_of(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn a_film_has_the_files_of_its_name() {
        assert_eq!(stem("a.b.mp4"), "a.b");
        assert_eq!((stem("a.film"), stem("a.film.json")), ("a", "a"));
        for (file, expected) in [
            ("film.vtt", Some((None, false))),
            ("film.SRT", Some((None, false))),
            ("film.fr.ass", Some((Some("fr"), false))),
            ("film.en.srt", Some((Some("en"), false))),
            ("film.pt-BR.vtt", Some((Some("pt-BR"), false))),
            ("film.forced.srt", Some((None, true))),
            ("film.en.forced.srt", Some((Some("en"), true))),
            ("film.Forced.pt-BR.vtt", Some((Some("pt-BR"), true))),
            ("film.en.forced.old.srt", None),
            ("film.forced..srt", None),
            ("film..forced.srt", None),
            ("film.a b.srt", None),
            ("film..srt", None),
            ("film.en.old.srt", None),
            ("film2.srt", None),
            ("film.txt", None),
            ("film", None),
        ] {
            assert_eq!(told(file, "film"), expected, "{file}");
        }
    }
}
