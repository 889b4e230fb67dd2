//! Where files lie, and the one way from a name to them: which library it is of, and what the name
//! is there.
//!
//! A server has one library, of which all names are; or several, each with a name that is the first
//! part of the names in it. A library is a folder of this machine or a store that lies elsewhere.
//! Nothing leads from one library to another: each folder is a root of its own, which neither `..`
//! nor a link leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onrush_sys::fs::Root;
use tracing::{info, warn};

use super::names::safe;
use super::{LibraryError, blocking};
use crate::channels::config::is_source_name;
use crate::config::{Config, LibraryPlace};
use crate::devices::DevicePermits;
use crate::remote::RemoteFiles;

/// Libraries of a server at the most. Each has a descriptor, and a store has a thread.
pub const LIBRARIES_MAX: usize = 32;

/// Names that are looked up on a disk at once, in all folders on it; others wait, without a thread.
/// A part of the threads that may wait (tokio: 512), so that a disk that does not answer leaves
/// some.
pub const LOOKUPS_MAX: usize = 128;

/// Where channels are in the names that RTSP and HTTP have.
const OF_CHANNELS: &str = "live";

/// Whether this may be the name of a library beside others: as those of channels, and not `live`,
/// where channels are.
///
/// # Errors
///
/// Why not, and what to write instead.
pub fn check_library_name(name: &str) -> Result<(), String> {
    if name == OF_CHANNELS {
        return Err(format!(
            "{name:?} is where live channels are; give the library another name"
        ));
    }
    match is_source_name(name) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name of a library; write up to 64 letters, digits, '.', '-' and '_', \
             as in \"films\""
        )),
    }
}

/// Whether these may be the names of all libraries of a server.
///
/// # Errors
///
/// Why not, and what to do instead.
pub fn check_library_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), String> {
    let mut known = BTreeSet::new();
    for name in names {
        check_library_name(name)?;
        if !known.insert(name) {
            return Err(format!(
                "two libraries are named {name:?}; give one another name"
            ));
        }
        if known.len() > LIBRARIES_MAX {
            return Err(format!(
                "{LIBRARIES_MAX} libraries are the most; put folders together, or leave some out"
            ));
        }
    }
    Ok(())
}

/// All libraries of a server.
#[derive(Debug)]
pub(crate) enum Places {
    /// One, of which all names are.
    One(Place),
    /// Several, by the first part of a name.
    Several(BTreeMap<String, Place>),
}

/// A folder of this machine, in which names are looked up.
#[derive(Debug)]
pub(crate) struct Folder {
    root: Arc<Root>,
    /// Those of all folders.
    lookups: Arc<DevicePermits>,
    /// It was told that another in its place cannot be opened.
    is_told: AtomicBool,
}

/// Where the files of one library lie.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In a folder of this machine.
    Folder(Arc<Folder>),
    /// Elsewhere.
    Store(Arc<dyn RemoteFiles>),
}

/// What a name stands for.
#[derive(Debug)]
pub(crate) enum Named<'a> {
    /// The libraries themselves.
    Libraries(&'a BTreeMap<String, Place>),
    /// This in a folder of this machine.
    Path(&'a Arc<Folder>, PathBuf),
    /// That name in a store, without a `/` at its ends.
    Object(&'a Arc<dyn RemoteFiles>, &'a str),
}

impl Places {
    /// Those of a server with these settings.
    ///
    /// # Errors
    ///
    /// If a folder cannot be opened, or the names are not what they may be.
    pub(super) fn open(config: &Config) -> Result<Self, LibraryError> {
        let lookups = Arc::new(DevicePermits::new(LOOKUPS_MAX));
        if config.libraries.is_empty() {
            return Ok(Self::One(match &config.remote {
                Some(remote) => Place::Store(Arc::clone(remote)),
                None => Place::folder(&config.media_root, &lookups)?,
            }));
        }
        let names = config.libraries.iter().map(|it| it.name.as_str());
        check_library_names(names).map_err(|reason| LibraryError::Names { reason })?;
        let mut all = BTreeMap::new();
        for library in &config.libraries {
            let place = match &library.place {
                LibraryPlace::Folder(path) => Place::folder(path, &lookups)?,
                LibraryPlace::Remote(remote) => Place::Store(Arc::clone(remote)),
            };
            all.insert(library.name.clone(), place);
        }
        Ok(Self::Several(all))
    }

    /// A folder alone.
    #[cfg(test)]
    pub(crate) fn of_folder(path: &Path) -> Self {
        let lookups = Arc::new(DevicePermits::new(LOOKUPS_MAX));
        Self::One(Place::folder(path, &lookups).expect("the folder of a test"))
    }

    /// What is meant by `name`: decoded, `/` between folders. `None` if that can be nothing that is
    /// served: a name with `..`, of something hidden, or of a library that there is not.
    pub(crate) fn named<'a>(&'a self, name: &'a str) -> Option<Named<'a>> {
        match self {
            Self::One(place) => place.named(name),
            Self::Several(all) if name.is_empty() => Some(Named::Libraries(all)),
            Self::Several(all) => {
                let (library, rest) = name.split_once('/').unwrap_or((name, ""));
                all.get(library)?.named(rest.trim_start_matches('/'))
            }
        }
    }

    /// The folder that is all there is, if it is.
    pub(crate) fn only_folder(&self) -> Option<&Arc<Root>> {
        match self {
            Self::One(Place::Folder(folder)) => Some(&folder.root),
            _ => None,
        }
    }

    /// Each with what the names in it begin with.
    pub(super) fn all(&self) -> Vec<(&Path, &Place)> {
        match self {
            Self::One(place) => vec![(Path::new(""), place)],
            Self::Several(all) => {
                let all = all.iter();
                all.map(|(name, place)| (Path::new(name), place)).collect()
            }
        }
    }
}

impl Folder {
    /// Does `work` in it, on a thread that may wait for a disk: no more at once on that than
    /// [`LOOKUPS_MAX`].
    ///
    /// # Errors
    ///
    /// What `work` says.
    pub(crate) async fn look_up<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Root) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let permit = self.lookups.of(self.root.device()).acquire_owned().await;
        let permit = permit.map_err(io::Error::other)?;
        let root = Arc::clone(&self.root);
        blocking(move || {
            let _permit = permit;
            work(&root)
        })
        .await
    }

    /// Looks whether another folder is in its place by now, as after a mount, and serves from that
    /// one then. Asks the file system, so it may block.
    pub(crate) fn renew(&self) {
        let path = self.root.path().display();
        match self.root.renew() {
            Ok(is_renewed) => {
                self.is_told.store(false, Ordering::Relaxed);
                if is_renewed {
                    info!("media directory {path}: another is there by now, and is served");
                }
            }
            Err(_) if self.is_told.swap(true, Ordering::Relaxed) => {}
            Err(error) => warn!(
                "media directory {path}: another is there by now, and cannot be opened: {error}; \
                 the one before is served on. Where this server gave up what it did not need at \
                 its start, SIGUSR2 starts a successor that may open it"
            ),
        }
    }
}

impl Deref for Folder {
    type Target = Root;

    fn deref(&self) -> &Root {
        &self.root
    }
}

impl Place {
    fn folder(path: &Path, lookups: &Arc<DevicePermits>) -> Result<Self, LibraryError> {
        let root = Root::open(path).map_err(|source| LibraryError::Root {
            path: path.to_owned(),
            source,
        })?;
        Ok(Self::Folder(Arc::new(Folder {
            root: Arc::new(root),
            lookups: Arc::clone(lookups),
            is_told: AtomicBool::new(false),
        })))
    }

    fn named<'a>(&'a self, name: &'a str) -> Option<Named<'a>> {
        let path = safe(name)?;
        Some(match self {
            Self::Folder(folder) => Named::Path(folder, path),
            Self::Store(remote) => Named::Object(remote, name.trim_matches('/')),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{self, Read};
    use std::os::unix::fs::symlink;
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::timeout;

    use super::*;
    use crate::config::LibraryConfig;

    fn config(libraries: &[(&str, &Path)]) -> Config {
        let library = |&(name, path): &(&str, &Path)| LibraryConfig {
            name: name.to_owned(),
            place: LibraryPlace::Folder(path.to_owned()),
        };
        Config {
            libraries: libraries.iter().map(library).collect(),
            ..Config::default()
        }
    }

    /// Two libraries side by side in a folder that has a secret, with links out of one.
    fn two() -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        let [films, archive] = ["films", "archive"].map(|name| folder.path().join(name));
        fs::create_dir_all(films.join("in")).unwrap();
        fs::create_dir(&archive).unwrap();
        fs::write(folder.path().join("secret.ts"), "secret").unwrap();
        fs::write(films.join("in/a.ts"), "film").unwrap();
        fs::write(films.join(".hidden.ts"), "hidden").unwrap();
        fs::write(archive.join("b.ts"), "old film").unwrap();
        symlink("in/a.ts", films.join("link.ts")).unwrap();
        symlink("../archive/b.ts", films.join("other.ts")).unwrap();
        symlink(&archive, films.join("archive")).unwrap();
        symlink("../secret.ts", films.join("out.ts")).unwrap();
        let all = config(&[("films", &films), ("archive", &archive)]);
        let places = Places::open(&all).unwrap();
        (folder, places)
    }

    fn read(places: &Places, name: &str) -> Option<io::Result<String>> {
        let Named::Path(root, path) = places.named(name)? else {
            return None;
        };
        let opened = root.open_beneath(&path);
        Some(opened.and_then(|mut file| {
            let mut text = String::new();
            file.read_to_string(&mut text).map(|_| text)
        }))
    }

    #[test]
    fn the_first_part_of_a_name_is_its_library() {
        let (_folder, places) = two();
        for (name, text) in [
            ("films/in/a.ts", "film"),
            ("films//in//a.ts", "film"),
            ("films/link.ts", "film"),
            ("archive/b.ts", "old film"),
        ] {
            assert_eq!(read(&places, name).unwrap().unwrap(), text, "{name}");
        }
        assert!(matches!(places.named(""), Some(Named::Libraries(all)) if all.len() == 2));
        for root in ["films", "films/"] {
            let named = places.named(root);
            assert!(matches!(named, Some(Named::Path(_, path)) if path == Path::new(".")));
        }
        for none in [
            "Films/in/a.ts",
            "in/a.ts",
            "film",
            "/films/in/a.ts",
            "/",
            "./films",
        ] {
            assert!(places.named(none).is_none(), "{none}");
        }
        assert!(places.only_folder().is_none());
    }

    #[test]
    fn nothing_leads_out_of_a_library() {
        let (_folder, places) = two();
        for never in [
            "films/../archive/b.ts",
            "films/../secret.ts",
            "../secret.ts",
            "films/.hidden.ts",
            "films/in/../../archive/b.ts",
            "films//../archive/b.ts",
        ] {
            assert!(places.named(never).is_none(), "{never}");
        }
        // Not even into another one.
        for out in ["films/other.ts", "films/archive/b.ts", "films/out.ts"] {
            let error = read(&places, out).unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EXDEV), "{out}");
        }
    }

    /// With all of them at a disk that does not answer the next one waits, and takes no thread. So
    /// does one of another folder there, or a few libraries would take all threads.
    #[tokio::test]
    async fn names_beyond_the_limit_wait_to_be_looked_up() {
        let (_directory, places) = two();
        let [folder, beside] = ["films", "archive"].map(|name| match places.named(name) {
            Some(Named::Path(folder, _)) => Arc::clone(folder),
            other => panic!("{other:?}"),
        });
        let (answer, answers) = mpsc::channel::<()>();
        let answers = Arc::new(Mutex::new(answers));
        let mut hanging = JoinSet::new();
        for _ in 0..LOOKUPS_MAX {
            let (folder, answers) = (Arc::clone(&folder), Arc::clone(&answers));
            let work = move |_: &Root| Ok(answers.lock().unwrap().recv().ok());
            hanging.spawn(async move { folder.look_up(work).await });
        }
        let lookups = folder.lookups.of(folder.device());
        while lookups.available_permits() > 0 {
            yield_now().await;
        }
        for folder in [&folder, &beside] {
            let next = folder.look_up(|_| Ok(()));
            let waits = timeout(Duration::from_millis(50), next).await;
            assert!(waits.is_err(), "there is none left for it");
        }
        drop(answer);
        beside.look_up(|_| Ok(())).await.unwrap();
        while hanging.join_next().await.is_some() {}
    }

    #[test]
    fn libraries_have_names_of_their_own() {
        for name in ["films", "a", "4k-films_2.old"] {
            assert_eq!(check_library_name(name), Ok(()));
        }
        for wrong in ["", "a/b", ".hidden", "..", "a b", "\u{e9}", "live"] {
            assert!(check_library_name(wrong).is_err(), "{wrong:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let open = |names: &[String]| {
            let all: Vec<_> = names
                .iter()
                .map(|it| (it.as_str(), folder.path()))
                .collect();
            Places::open(&config(&all)).map_err(|error| error.to_string())
        };
        let twice = ["a", "b", "a"].map(str::to_owned);
        assert!(
            open(&twice)
                .unwrap_err()
                .contains("two libraries are named")
        );
        assert!(
            open(&["live".to_owned()])
                .unwrap_err()
                .contains("live channels")
        );
        let many = |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<_>>();
        assert!(open(&many(LIBRARIES_MAX)).is_ok());
        let error = open(&many(LIBRARIES_MAX + 1)).unwrap_err();
        assert!(error.contains("32 libraries are the most"), "{error}");
    }
}
