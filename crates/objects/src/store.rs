//! Names to versions of objects.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use onrush_server::remote::RemoteFile;
use tokio::task::spawn_blocking;
use tracing::warn;

use crate::bucket::Bucket;
use crate::failure::Failure;
use crate::index::Identity;
use crate::object::Object;
use crate::{NAMES_MAX, ObjectsError};

/// How long a name means what it meant when the store was asked last.
const FRESH_TIME: Duration = Duration::from_secs(1);

/// The same while the store does not answer.
const STALE_TIME: Duration = Duration::from_secs(10);

/// A name that no film has, because it is hidden.
const NOBODYS: &str = ".onrush";

/// The films of a bucket by their names.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) bucket: Arc<Bucket>,
    names: Mutex<HashMap<String, Arc<Name>>>,
}

/// What a name stands for; locked while the store is asked, so that it is asked once.
type Name = tokio::sync::Mutex<Meaning>;

#[derive(Debug, Default)]
struct Meaning {
    known: Option<Known>,
    /// When it was last asked for in vain, and why: for those who had come before.
    failed: Option<(Instant, Failure)>,
}

#[derive(Debug)]
struct Known {
    object: Arc<Object>,
    /// Until then it is not asked for again.
    until: Instant,
}

impl Store {
    pub(crate) fn new(bucket: Bucket) -> Self {
        Self {
            bucket: Arc::new(bucket),
            names: Mutex::default(),
        }
    }

    /// Whether the store lets us in: it says so of an object that is not there.
    pub(crate) async fn check(&self) -> Result<(), ObjectsError> {
        let location = &self.bucket.location;
        let error = match self.bucket.ask(NOBODYS).await {
            Err(failure) if !failure.is_not_found() => io::Error::from(failure),
            _ => return Ok(()),
        };
        if error.kind() == io::ErrorKind::PermissionDenied {
            return Err(ObjectsError::Refused {
                location: location.clone(),
                reason: error.to_string(),
            });
        }
        warn!("{location}: its films cannot be played before it answers: {error}");
        Ok(())
    }

    /// The film at `name`.
    pub(crate) async fn open(&self, name: &str) -> io::Result<RemoteFile> {
        let came = Instant::now();
        let slot = self.slot(name)?;
        let opened = self.open_in(&slot, name, came).await;
        if opened.is_err() {
            self.forget(name, &slot);
        }
        opened
    }

    /// The film at `name` for somebody who came then.
    async fn open_in(&self, slot: &Name, name: &str, came: Instant) -> io::Result<RemoteFile> {
        let mut meaning = slot.lock().await;
        let Meaning { known, failed } = &mut *meaning;
        if let Some(known) = known.as_ref()
            && Instant::now() < known.until
            && !known.object.is_replaced.load(Ordering::Relaxed)
        {
            return Ok(known.object.remote_file());
        }
        // While a store does not answer, a hundred clients do not wait one after the other.
        if let Some((when, failure)) = failed
            && came <= *when
        {
            return Err(failure.clone().into());
        }
        let asked = self.bucket.ask(name).await;
        let (path, meta) = match asked {
            Ok(found) => found,
            Err(failure) => {
                if failure.is_not_found() {
                    replace(known.take());
                    let key = self.bucket.location.key(name);
                    self.bucket.cache.remove(&self.bucket.store, &key);
                } else if let Some(known) = known.as_mut() {
                    // What was played a moment ago is as good as it was.
                    warn!("object {name:?}: it is played as it was: {:?}", failure);
                    known.until = Instant::now() + STALE_TIME;
                    return Ok(known.object.remote_file());
                }
                *failed = Some((Instant::now(), failure.clone()));
                return Err(failure.into());
            }
        };
        let Some(etag) = meta.e_tag else {
            let text = "the object store gives no entity tag, by which versions are told apart";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        let until = Instant::now() + FRESH_TIME;
        let is_same = |known: &&mut Known| {
            let of = &known.object;
            of.etag == etag && of.file_bytes == meta.size && !of.is_replaced.load(Ordering::Relaxed)
        };
        if let Some(known) = known.as_mut().filter(is_same) {
            known.until = until;
            return Ok(known.object.remote_file());
        }
        replace(known.take());
        let identity = Identity {
            store: self.bucket.store.clone(),
            path: path.to_string(),
            etag: etag.clone(),
            file_bytes: meta.size,
        };
        let cache = Arc::clone(&self.bucket.cache);
        let opened = spawn_blocking(move || cache.open(identity)).await;
        let opened = opened.map_err(io::Error::other)?;
        let opened = opened.map_err(|error| self.bucket.cache.no_file(error))?;
        let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or(0).into();
        let object = Object::new(&self.bucket, path, (etag, meta.size, modified_ns), opened);
        let opened = object.remote_file();
        *known = Some(Known { object, until });
        Ok(opened)
    }

    fn slot(&self, name: &str) -> io::Result<Arc<Name>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = names.get(name) {
            return Ok(Arc::clone(slot));
        }
        if names.len() >= NAMES_MAX {
            let idle = names
                .iter()
                .filter_map(|(name, slot)| Some((idle_since(slot)?, name)));
            let oldest = idle.min().map(|(_, name)| name.clone());
            oldest.and_then(|name| names.remove(&name));
        }
        if names.len() >= NAMES_MAX {
            let text = format!("{NAMES_MAX} films are in use already");
            return Err(io::Error::new(io::ErrorKind::HostUnreachable, text));
        }
        let slot = Arc::default();
        names.insert(name.to_owned(), Arc::clone(&slot));
        Ok(slot)
    }

    /// Lets go of all films that nobody has, and so of their files. Whether there were any.
    pub(crate) fn let_go_of_unused(&self) -> bool {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = names.extract_if(|_, slot| idle_since(slot).is_some());
        let unused: Vec<_> = unused.map(|(_, slot)| slot).collect();
        // Closing a file that has no name gives its room back, which takes a while.
        drop(names);
        let is_film = |slot: &Arc<Name>| slot.try_lock().is_ok_and(|it| it.known.is_some());
        unused.iter().any(is_film)
    }

    /// Gives up what stands for nothing: whoever tries names leaves none behind.
    fn forget(&self, name: &str, slot: &Arc<Name>) {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = names.get(name).is_some_and(|it| Arc::ptr_eq(it, slot));
        // The table has one, and the caller.
        let is_asked_for = Arc::strong_count(slot) > 2;
        if is_same && !is_asked_for && slot.try_lock().is_ok_and(|it| it.known.is_none()) {
            names.remove(name);
        }
    }
}

/// There is another object by the name of this one, or none.
fn replace(known: Option<Known>) {
    if let Some(known) = known {
        known.object.replace();
    }
}

/// Until when it was fresh, if nobody asks for the name and nobody has what it stands for.
fn idle_since(slot: &Arc<Name>) -> Option<Option<Instant>> {
    if Arc::strong_count(slot) > 1 {
        return None;
    }
    let meaning = slot.try_lock().ok()?;
    let Some(known) = &meaning.known else {
        return Some(None);
    };
    (Arc::strong_count(&known.object) == 1).then_some(Some(known.until))
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;
    use tokio::runtime::Builder;

    use super::*;
    use crate::{Location, Settings};

    /// The film of that name as it is when it was opened.
    fn opened(store: &Store, name: &str) -> RemoteFile {
        let identity = Identity {
            store: store.bucket.store.clone(),
            path: name.to_owned(),
            etag: "1".to_owned(),
            file_bytes: 1,
        };
        let file = store.bucket.cache.open(identity).unwrap();
        let version = ("1".to_owned(), 1, 0);
        let object = Object::new(&store.bucket, Path::from(name), version, file);
        let opened = object.remote_file();
        let until = Instant::now();
        let slot = store.slot(name).unwrap();
        slot.try_lock().unwrap().known = Some(Known { object, until });
        opened
    }

    #[test]
    fn films_that_nobody_has_are_let_go() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings {
            location: Location::parse("s3://films").unwrap(),
            folder: folder.path().to_owned(),
            is_kept: false,
            is_successor: false,
            cache_bytes: 0,
            endpoint: Some("http://127.0.0.1:9".to_owned()),
        };
        let store = Store::new(Bucket::new(settings).unwrap());
        let open_files = || store.bucket.cache.stats.open_files.load(Ordering::Relaxed);
        let played = opened(&store, "played.ts");
        drop(opened(&store, "idle.ts"));
        assert_eq!(open_files(), 2);
        assert!(store.let_go_of_unused());
        assert_eq!(open_files(), 1);
        assert!(!store.let_go_of_unused(), "it is played");
        drop(played);
        assert!(store.let_go_of_unused());
        assert_eq!(open_files(), 0);
    }
}
