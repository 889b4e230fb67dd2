//! Films of several files: renditions of the same, in a folder or named by a small JSON.
//!
//! A folder whose name ends in `.film` is one, with all media files in it; a file whose name ends
//! in `.film.json` is one, with the files that it names: `{"renditions": ["film-1080.mp4",
//! "film-480.mp4"]}`. These lie in its folder or below. Whoever may play the film may play them by
//! it.

use std::io::{self, Read};
use std::sync::Arc;

use onrush_wire::hls::is_of_several;
use onrush_wire::media::has_media_ending;
use onrush_wire::name::shown;
use serde::Deserialize;

use crate::downloads::folder;
use crate::library::{Named, Places, blocking, safe};

/// Files of one film at the most: a playlist of it opens them all.
pub const RENDITION_FILES_MAX: usize = 16;

/// Bytes of such a JSON at the most.
pub const RENDITIONS_BYTES_MAX: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renditions {
    renditions: Vec<String>,
}

/// The files of the film `name`, as names of their own, or why it has none; `None` if it is a film
/// of one file.
pub(super) async fn files(places: &Places, name: &str) -> Option<Result<Vec<String>, String>> {
    if !is_of_several(name) {
        return None;
    }
    let found = match name.ends_with(".json") {
        true => named(places, name).await,
        false => inside(places, name).await,
    };
    match found {
        Ok(found) => Some(bounded(name, found)),
        // A film may be called so, too.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Some(Err(error.to_string())),
        Err(_) => None,
    }
}

fn bounded(name: &str, files: Vec<String>) -> Result<Vec<String>, String> {
    match files.len() {
        0 => Err(format!("{} names no media file", shown(name))),
        count if count > RENDITION_FILES_MAX => Err(format!(
            "{} has {count} media files; there may be {RENDITION_FILES_MAX}",
            shown(name)
        )),
        _ => Ok(files),
    }
}

async fn inside(places: &Places, name: &str) -> io::Result<Vec<String>> {
    let (entries, _) = folder::list_here(places, name).await?;
    let films = entries.into_iter();
    let films = films.filter(|it| !it.is_folder && has_media_ending(&it.name));
    Ok(films.map(|it| format!("{name}/{}", it.name)).collect())
}

async fn named(places: &Places, name: &str) -> io::Result<Vec<String>> {
    let Some(Named::Path(root, relative)) = places.named(name) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let root = Arc::clone(root);
    let read = move || {
        let file = root.open_beneath(&relative)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut text = String::new();
        file.take(RENDITIONS_BYTES_MAX + 1)
            .read_to_string(&mut text)?;
        Ok(text)
    };
    let text = blocking(read).await?;
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if text.len() as u64 > RENDITIONS_BYTES_MAX {
        return Err(wrong(format!(
            "it is longer than {RENDITIONS_BYTES_MAX} bytes"
        )));
    }
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    parse(&text, folder).map_err(wrong)
}

/// The names that a JSON in `folder` has.
fn parse(text: &str, folder: &str) -> Result<Vec<String>, String> {
    let read = serde_json::from_str::<Renditions>(text);
    let Renditions { renditions } = read.map_err(|error| format!("its JSON is wrong: {error}"))?;
    let whole = |file: &String| match folder {
        "" => file.clone(),
        folder => format!("{folder}/{file}"),
    };
    let climbs = |file: &&String| file.is_empty() || file.starts_with('/') || safe(file).is_none();
    if let Some(wrong) = renditions.iter().find(climbs) {
        return Err(format!(
            "{wrong:?} is no name of a file in its folder or below"
        ));
    }
    Ok(renditions.iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_names_files_in_its_folder() {
        let text = r#"{"renditions": ["a.mp4", "low/b c.mp4"]}"#;
        assert_eq!(parse(text, "").unwrap(), ["a.mp4", "low/b c.mp4"]);
        assert_eq!(parse(text, "in").unwrap(), ["in/a.mp4", "in/low/b c.mp4"]);
        for wrong in [
            "",
            "[]",
            r#"{"renditions": "a.mp4"}"#,
            r#"{"renditions": [], "more": 1}"#,
            r#"{"renditions": ["../a.mp4"]}"#,
            r#"{"renditions": ["/a.mp4"]}"#,
            r#"{"renditions": ["x/.hidden"]}"#,
            r#"{"renditions": [""]}"#,
        ] {
            assert!(parse(wrong, "").is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_film_has_no_more_files_than_it_may() {
        let files = |count| bounded("x.film", vec!["a.mp4".to_owned(); count]);
        assert!(files(0).is_err() && files(1).is_ok());
        assert!(files(RENDITION_FILES_MAX).is_ok());
        assert!(files(RENDITION_FILES_MAX + 1).is_err());
    }

    #[tokio::test]
    async fn folders_and_lists_are_films_by_their_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("a.film/sub")).unwrap();
        for name in ["a.film/x.mp4", "a.film/y.mkv", "a.film/notes.txt", "b.film"] {
            std::fs::write(root.join(name), "").unwrap();
        }
        std::fs::write(
            root.join("c.film.json"),
            r#"{"renditions": ["a.film/x.mp4"]}"#,
        )
        .unwrap();
        std::fs::write(root.join("d.film.json"), "{").unwrap();
        let long = " ".repeat(usize::try_from(RENDITIONS_BYTES_MAX).unwrap() + 1);
        std::fs::write(root.join("e.film.json"), long).unwrap();
        let places = Places::of_folder(root);
        let of = async |name: &str| files(&places, name).await;
        let expected = ["a.film/x.mp4", "a.film/y.mkv"].map(str::to_owned).to_vec();
        assert_eq!(of("a.film").await, Some(Ok(expected)));
        assert_eq!(
            of("c.film.json").await,
            Some(Ok(vec!["a.film/x.mp4".to_owned()]))
        );
        for wrong in ["d.film.json", "e.film.json"] {
            assert!(matches!(of(wrong).await, Some(Err(_))), "{wrong}");
        }
        for other in [
            "a.mp4",
            "b.film",
            "none.film",
            "none.film.json",
            "../x.film",
        ] {
            assert_eq!(of(other).await, None, "{other}");
        }
    }
}
