//! Films of several files: renditions of the same, in a folder or named by a small JSON.
//!
//! A folder whose name ends in `.film` is one, with all media files in it; a file whose name ends
//! in `.film.json` is one, with the files that it names: `{"renditions": ["film-1080.mp4",
//! "film-480.mp4"]}`. These lie in its folder or below. Whoever may play the film may play them by
//! it; but where files are taken, of those that a list names each has what it may play by their own
//! names. Who may store a list could else play whatever lies below it.

use std::io::{self, Read};

use onrush_sys::fs::Root;
use onrush_wire::hls::is_of_several;
use onrush_wire::http::Status;
use onrush_wire::media::has_media_ending;
use onrush_wire::name::shown;
use onrush_wire::rtsp::ELEMENTARY;
use serde::Deserialize;

use crate::downloads::Site;
use crate::downloads::folder;
use crate::library::{Named, Places, safe};
use crate::users::{Asked, Login, Refusal};

/// Files of one film at the most: a playlist of it opens them all.
pub const RENDITION_FILES_MAX: usize = 16;

/// Bytes of such a JSON at the most.
pub const RENDITIONS_BYTES_MAX: u64 = 64 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Renditions {
    renditions: Vec<String>,
}

/// Who asks for a film whose list somebody may have stored.
#[derive(Debug)]
pub(super) struct Player<'a> {
    asked: Asked<'a>,
    login: Login,
    /// Why that is nobody, though it says that it is somebody.
    refusal: Option<Refusal>,
}

impl<'a> Player<'a> {
    /// Who asks to play a film, if that is such a one. Who that is is looked up unless `login` has
    /// it.
    pub(super) async fn of(
        site: &Site,
        asked: Asked<'a>,
        login: &mut Option<Login>,
    ) -> Option<Box<Self>> {
        if !is_stored(site, asked.path) {
            return None;
        }
        let mut refusal = None;
        if login.is_none() {
            match site.authorizer.identify(&asked).await {
                Ok(known) => *login = Some(known),
                Err(error) => refusal = Some(error),
            }
        }
        let login = login.clone().unwrap_or(Login::Nobody);
        Some(Box::new(Self {
            asked,
            login,
            refusal,
        }))
    }

    /// Those of the files that it may play by their own names. Where that is none, it is asked to
    /// log in if it has not.
    async fn may_play(&self, site: &Site, files: &[String]) -> Result<Vec<String>, Refusal> {
        let mut played = Vec::with_capacity(files.len());
        for file in files {
            let asked = Asked {
                path: file,
                ..self.asked
            };
            let could = site.authorizer.could(&self.login, &asked).await;
            if could.ok_or(Refusal::Unanswered)? {
                played.push(file.clone());
            }
        }
        if let Some(first) = files.first()
            && played.is_empty()
            && self.login == Login::Nobody
        {
            if let Some(refusal) = &self.refusal {
                return Err(refusal.clone());
            }
            let asked = Asked {
                path: first,
                ..self.asked
            };
            site.authorizer.permit(&self.login, &asked).await?;
        }
        Ok(played)
    }
}

/// The files of a film, as names of their own, or why it has none; `None` if it is one file.
pub(super) type Files = Option<Result<Vec<String>, (Status, String)>>;

/// The files of the film `name` that `player` gets.
///
/// # Errors
///
/// If it may not play them, or not before it has logged in.
pub(super) async fn played(
    site: &Site,
    name: &str,
    player: Option<&Player<'_>>,
) -> Result<Files, Refusal> {
    let found = match files(&site.places, name).await {
        None => return Ok(None),
        Some(Err(note)) => return Ok(Some(Err((Status::NotFound, note)))),
        Some(Ok(found)) => found,
    };
    let Some(player) = player else {
        return Ok(Some(Ok(found)));
    };
    // Apart, because every connection has room for what is in here.
    let played = Box::pin(player.may_play(site, &found)).await?;
    match played.is_empty() {
        true => Err(Refusal::Forbidden(
            "what the film's list names may not be played by this user",
        )),
        false => Ok(Some(Ok(played))),
    }
}

/// Whether this is, by its name, a list that somebody may have stored: what it names is played by
/// whoever may play that.
pub(super) fn is_stored(site: &Site, name: &str) -> bool {
    site.uploads.is_some() && is_list(name)
}

/// Whether this is, by its name, a film whose files a list names.
fn is_list(name: &str) -> bool {
    is_of_several(name) && name.ends_with(".json")
}

/// The files of the film `name`, as names of their own, or why it has none; `None` if it is a film
/// of one file.
async fn files(places: &Places, name: &str) -> Option<Result<Vec<String>, String>> {
    if !is_of_several(name) {
        return None;
    }
    let found = match is_list(name) {
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
    let Some(Named::Path(folder, relative)) = places.named(name) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let read = move |root: &Root| {
        let file = root.open_beneath(&relative)?;
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let mut text = String::new();
        file.take(RENDITIONS_BYTES_MAX + 1)
            .read_to_string(&mut text)?;
        Ok(text)
    };
    let text = folder.look_up(read).await?;
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    if text.len() as u64 > RENDITIONS_BYTES_MAX {
        return Err(wrong(format!(
            "it is longer than {RENDITIONS_BYTES_MAX} bytes"
        )));
    }
    let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
    parse(&text, folder).map_err(wrong)
}

/// The names that a JSON in `folder` has, as URLs have them: rights are about these.
fn parse(text: &str, folder: &str) -> Result<Vec<String>, String> {
    let read = serde_json::from_str::<Renditions>(text);
    let Renditions { renditions } = read.map_err(|error| format!("its JSON is wrong: {error}"))?;
    let whole = |file: &String| {
        let parts = file.split('/').filter(|it| !matches!(*it, "" | "."));
        let folder = Some(folder).filter(|it| !it.is_empty());
        folder
            .into_iter()
            .chain(parts)
            .collect::<Vec<_>>()
            .join("/")
    };
    // The last one would be another film's, by another name.
    let is_wrong = |file: &&String| {
        let is_none = file.is_empty() || file.starts_with('/') || safe(file).is_none();
        is_none || whole(file).ends_with(ELEMENTARY)
    };
    if let Some(wrong) = renditions.iter().find(is_wrong) {
        return Err(format!(
            "{wrong:?} is no name of a file in its folder or below"
        ));
    }
    Ok(renditions.iter().map(whole).collect())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::library::LOOKUPS_MAX;

    #[test]
    fn a_json_names_files_in_its_folder() {
        let text = r#"{"renditions": ["a.mp4", "low/b c.mp4"]}"#;
        assert_eq!(parse(text, "").unwrap(), ["a.mp4", "low/b c.mp4"]);
        assert_eq!(parse(text, "in").unwrap(), ["in/a.mp4", "in/low/b c.mp4"]);
        // As rights have them, whichever part stands for nothing.
        let text = r#"{"renditions": ["a/./b.mp4", "a//./b.mp4", "a/b.mp4/."]}"#;
        assert_eq!(parse(text, "in").unwrap(), ["in/a/b.mp4"; 3]);
        assert_eq!(parse(text, "").unwrap(), ["a/b.mp4"; 3]);
        for wrong in [
            "",
            "[]",
            r#"{"renditions": "a.mp4"}"#,
            r#"{"renditions": [], "more": 1}"#,
            r#"{"renditions": ["../a.mp4"]}"#,
            r#"{"renditions": ["/a.mp4"]}"#,
            r#"{"renditions": ["x/.hidden"]}"#,
            r#"{"renditions": ["a.mp4/tracks=elementary"]}"#,
            r#"{"renditions": ["a.mp4/./tracks=elementary//"]}"#,
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

    /// As names are looked up: of a disk that does not answer there are no more at once.
    #[tokio::test]
    async fn a_list_waits_for_its_turn_at_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let list = r#"{"renditions": ["a.mp4"]}"#;
        std::fs::write(folder.path().join("a.film.json"), list).unwrap();
        let places = Places::of_folder(folder.path());
        let Some(Named::Path(on, _)) = places.named("a.film.json") else {
            panic!("it is in a folder");
        };
        let begun = Arc::new(AtomicUsize::new(0));
        let mut gates = Vec::new();
        for _ in 0..LOOKUPS_MAX {
            let (gate, shut) = channel::<()>();
            gates.push(gate);
            let (on, begun) = (Arc::clone(on), Arc::clone(&begun));
            let look = move |_: &Root| {
                begun.fetch_add(1, Ordering::Relaxed);
                Ok(shut.recv().ok())
            };
            drop(tokio::spawn(async move { on.look_up(look).await }));
        }
        while begun.load(Ordering::Relaxed) < LOOKUPS_MAX {
            sleep(Duration::from_millis(1)).await;
        }
        let mut listed = pin!(files(&places, "a.film.json"));
        let early = timeout(Duration::from_millis(50), &mut listed).await;
        assert!(early.is_err(), "it is read beside them");
        drop(gates);
        let expected = Some(Ok(vec!["a.mp4".to_owned()]));
        assert_eq!(listed.await, expected);
    }
}
