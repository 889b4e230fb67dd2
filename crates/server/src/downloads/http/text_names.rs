//! Names of files with subtitles of films, as they were found beside them: players ask for the same
//! again and again, and a folder may have very many names.
//!
//! They are kept while the folder is what it was. One that has just changed may do so again in the
//! same moment of its clock, so nothing of it is kept. Where a file system does not tell that a
//! folder changes, they are looked for again after a minute.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use lru::LruCache;
use onrush_wire::media::TEXTS_MAX;
use tracing::{debug, warn};

use crate::downloads::folder::{self, FOLDER_NAMES_MAX, Stamp};
use crate::library::Places;
use crate::peer_log::{Escaped, PEER_LOG_LINES_MAX, Throttle};

/// Films whose names are kept: as many as are watched at once, or the folder of very many is read
/// again and again. A film has few.
const FILMS_MAX: usize = 16_384;

/// Names of a film: what turns out to be none of its subtitles leaves room for others.
const NAMES_MAX: usize = 2 * TEXTS_MAX;

/// How long they are kept.
const KEPT_TIME_MAX: Duration = Duration::from_secs(60);

/// Those of films that were asked for lately.
#[derive(Debug)]
pub(crate) struct TextNames(RefCell<LruCache<String, Known>>);

/// What was found beside a film.
#[derive(Clone, Debug)]
struct Known {
    names: Rc<[String]>,
    stamp: Stamp,
    since: Instant,
}

impl Default for TextNames {
    fn default() -> Self {
        Self(RefCell::new(LruCache::unbounded()))
    }
}

impl TextNames {
    /// Names of files that `fit` in the folder of the film `name`, in the order of a listing. Which
    /// fit follows from the film's name alone. None where the folder cannot be read.
    pub(super) async fn beside(
        &self,
        places: &Places,
        name: &str,
        fit: impl Fn(&str) -> bool + Send + 'static,
    ) -> Rc<[String]> {
        let known = self.known(name);
        let stamp = known.as_ref().map(|known| known.stamp);
        let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
        let sought = match folder::seek(places, folder, stamp, fit).await {
            Ok(Some(sought)) => sought,
            Ok(None) => return known.map(|known| known.names).unwrap_or_default(),
            Err(_) => return Rc::default(),
        };
        if sought.is_cut {
            tell(name);
        }
        let files = sought.entries.into_iter().filter(|it| !it.is_folder);
        let names: Rc<[String]> = files.map(|it| it.name).take(NAMES_MAX).collect();
        self.keep(name, &names, sought.stamp);
        names
    }

    fn known(&self, name: &str) -> Option<Known> {
        let mut all = self.0.borrow_mut();
        let known = all.get(name).cloned();
        known.filter(|known| known.since.elapsed() < KEPT_TIME_MAX)
    }

    fn keep(&self, name: &str, names: &Rc<[String]>, stamp: Option<Stamp>) {
        let mut all = self.0.borrow_mut();
        let Some(stamp) = stamp else {
            all.pop(name);
            return;
        };
        let known = Known {
            names: Rc::clone(names),
            stamp,
            since: Instant::now(),
        };
        all.put(name.to_owned(), known);
        while all.len() > FILMS_MAX {
            all.pop_lru();
        }
    }
}

/// Says in the log that subtitles of a film may not have been found.
fn tell(name: &str) {
    static LINES: Throttle = Throttle::new(PEER_LOG_LINES_MAX);
    let name = Escaped(name);
    match LINES.admit() {
        Some(omitted) => warn!(
            "{name}: its folder has more than {FOLDER_NAMES_MAX} names, of which not all were \
             looked at for subtitles{omitted}"
        ),
        None => debug!("{name}: not all names of its folder were looked at for subtitles"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::testing::block_on;

    /// Wherever the disk has them: the end of a listing is far before its last names.
    #[test]
    fn subtitles_are_found_among_many_files() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: String| drop(fs::File::create(folder.path().join(name)).unwrap());
        for number in 0..20_000 {
            create(format!("{number}.mp4"));
            if number % 1250 == 0 {
                create(format!("film.{number}.srt"));
            }
        }
        fs::create_dir(folder.path().join("film.folder.srt")).unwrap();
        let places = Places::of_folder(folder.path());
        let names = TextNames::default();
        let fit = |name: &str| name.starts_with("film.");
        let found = block_on(names.beside(&places, "film.mp4", fit));
        assert_eq!(found.len(), 16, "{found:?}");
        assert!(found.is_sorted() && found.iter().all(|it| it.ends_with("0.srt")));
    }

    #[test]
    fn a_folder_that_stays_is_read_once() {
        // One that nobody changes meanwhile.
        let places = Places::of_folder(Path::new("/usr"));
        let (names, asked) = (TextNames::default(), Arc::new(AtomicUsize::new(0)));
        let ask = |film: &str| {
            let count = Arc::clone(&asked);
            let fit = move |_: &str| count.fetch_add(1, Ordering::Relaxed) == usize::MAX;
            block_on(names.beside(&places, film, fit));
            asked.swap(0, Ordering::Relaxed)
        };
        assert!(ask("a.mp4") > 0);
        assert_eq!(ask("a.mp4"), 0);
        assert!(ask("b.mp4") > 0, "another film has others");
        let stamp = names.known("b.mp4").unwrap().stamp;
        for number in 0..FILMS_MAX {
            names.keep(&number.to_string(), &Rc::default(), Some(stamp));
        }
        assert_eq!(names.0.borrow().len(), FILMS_MAX);
    }
}
