//! Names to open files, and nothing outside the libraries.
//!
//! What was opened stays open for a moment, so that a file that many ask for is not looked up for
//! each. Each use asks the open file itself whether it is still what it was (`fstat`), so that a
//! tag never stands beside other bytes than its own; what is behind a name is looked up again after
//! [`OPEN_TIME_MAX`]. A name that the kernel has in its cache is opened at once, any other on a
//! thread that may wait for a disk. Where a library lies elsewhere, its store is asked instead.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onrush_sys::fs::Root;
use onrush_wire::calendar::clamped;
use onrush_wire::http::{Coding, Codings, Resource, Validators, media_type};

use super::clock::http_date;
use crate::library::{Identity, Named, Places, names_nothing};
use crate::remote::{FilmFile, RemoteFile, RemoteFiles, asked};

/// How long a name means what it meant when it was looked up last.
pub const OPEN_TIME_MAX: Duration = Duration::from_secs(1);

/// The files that are open.
#[derive(Debug)]
pub(crate) struct Files {
    places: Arc<Places>,
    files_max: usize,
    known: RefCell<HashMap<String, Known>>,
    /// Look-ups so far, for a test to see that there are few.
    lookups: Cell<u64>,
}

/// What a name stands for.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// A regular file.
    File(Rc<OpenFile>),
    /// A folder.
    Folder {
        /// When it last changed, in seconds since 1970.
        modified_s: i64,
    },
    /// Nothing that may be told of.
    Nothing,
    /// Something that cannot be read.
    Denied,
}

/// A file, open, with what is told of it.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: FilmFile,
    pub(crate) identity: Identity,
    pub(crate) modified_s: i64,
    etag: String,
    last_modified: String,
}

#[derive(Debug)]
struct Known {
    found: Found,
    since: Instant,
}

impl Files {
    pub(crate) fn new(places: Arc<Places>, files_max: usize) -> Self {
        Self {
            places,
            files_max,
            known: RefCell::default(),
            lookups: Cell::new(0),
        }
    }

    /// What is at `name`: decoded, `/` between folders.
    ///
    /// # Errors
    ///
    /// What the system says when it is short of something; that a name means nothing is no error.
    pub(crate) async fn find(&self, name: &str) -> io::Result<Found> {
        if let Some(found) = self.known(name) {
            return Ok(found);
        }
        self.lookups.set(self.lookups.get() + 1);
        let Some(named) = self.places.named(name) else {
            return Ok(Found::Nothing);
        };
        let found = match named {
            Named::Libraries(_) => Ok(Found::Folder { modified_s: 0 }),
            Named::Object(remote, name) => elsewhere(&**remote, name).await,
            Named::Path(folder, relative) => match folder.open_cached(&relative) {
                Some(file) => look_at(file),
                None => {
                    let open = move |root: &Root| root.open_beneath(&relative);
                    folder.look_up(open).await.and_then(look_at)
                }
            },
        };
        let found = match found {
            Ok(found) => found,
            Err(error) => without_reason(error)?,
        };
        self.remember(name, found.clone());
        Ok(found)
    }

    /// Whether something of this machine is at `name`: a store is not asked.
    pub(crate) async fn is_here(&self, name: &str) -> bool {
        match self.places.named(name) {
            None | Some(Named::Object(..)) => false,
            Some(_) => !matches!(self.find(name).await, Ok(Found::Nothing)),
        }
    }

    /// The compressed neighbour of `file` that its client likes best, if there is one that is not
    /// older.
    pub(crate) async fn neighbour(
        &self,
        name: &str,
        file: &OpenFile,
        codings: Codings,
    ) -> Option<(Coding, Rc<OpenFile>)> {
        // In a store each name that is looked for is a request.
        if file.file.remote.is_some() {
            return None;
        }
        for coding in codings.wanted() {
            let name = format!("{name}{}", coding.ending());
            if let Ok(Found::File(neighbour)) = self.find(&name).await {
                let is_current = neighbour.identity.modified_ns >= file.identity.modified_ns;
                if is_current {
                    return Some((coding, neighbour));
                }
            }
        }
        None
    }

    /// Closes what was not looked up for a while, so that a removed file's space is freed.
    pub(crate) fn sweep(&self) {
        self.known.borrow_mut().retain(|_, known| known.is_fresh());
    }

    /// What was at this name is there no more, or something else is.
    pub(crate) fn forget(&self, name: &str) {
        let below = format!("{name}/");
        let is_other = |known: &String| known != name && !known.starts_with(&below);
        self.known.borrow_mut().retain(|known, _| is_other(known));
    }

    fn known(&self, name: &str) -> Option<Found> {
        let known = self.known.borrow();
        let found = known
            .get(name)
            .filter(|known| known.is_fresh())?
            .found
            .clone();
        drop(known);
        match &found {
            Found::File(file) if !file.is_unchanged() => None,
            _ => Some(found),
        }
    }

    fn remember(&self, name: &str, found: Found) {
        let mut known = self.known.borrow_mut();
        if known.len() >= self.files_max {
            known.retain(|_, known| known.is_fresh());
        }
        if known.len() < self.files_max || known.contains_key(name) {
            let since = Instant::now();
            known.insert(name.to_owned(), Known { found, since });
        }
    }
}

impl Known {
    fn is_fresh(&self) -> bool {
        self.since.elapsed() < OPEN_TIME_MAX
    }
}

impl OpenFile {
    fn new(file: File, metadata: &Metadata) -> Self {
        let identity = Identity::of(metadata);
        let modified_s = metadata.mtime();
        Self {
            file: file.into(),
            identity,
            modified_s,
            etag: etag(identity),
            last_modified: http_date(modified_s),
        }
    }

    fn remote(of: RemoteFile) -> Self {
        let identity = Identity::remote(&of);
        let modified_s = i64::try_from(of.modified_ns.div_euclid(1_000_000_000)).unwrap_or(0);
        Self {
            file: of.into(),
            identity,
            modified_s,
            etag: etag(identity),
            last_modified: http_date(modified_s),
        }
    }

    /// As HTTP speaks of it; the type is that of `name`.
    pub(crate) fn resource<'a>(
        &'a self,
        name: &str,
        coding: Option<Coding>,
        varies: bool,
    ) -> Resource<'a> {
        Resource {
            file_bytes: self.identity.file_bytes,
            validators: Validators {
                etag: &self.etag,
                modified_s: clamped(self.modified_s).cast_unsigned(),
            },
            last_modified: &self.last_modified,
            media_type: media_type(name),
            coding,
            varies,
            cache_control: None,
            content_security_policy: None,
            is_for_all_origins: false,
        }
    }

    /// Its entity tag.
    pub(crate) fn etag(&self) -> &str {
        &self.etag
    }

    fn is_unchanged(&self) -> bool {
        if let Some(remote) = &self.file.remote {
            return !remote.is_replaced();
        }
        let metadata = self.file.file.metadata();
        metadata.is_ok_and(|metadata| Identity::of(&metadata) == self.identity)
    }
}

/// Strong: other bytes are another length, another time to the nanosecond, or another file. Of what
/// lies in a store each node says the same.
fn etag(identity: Identity) -> String {
    let Identity {
        device,
        inode,
        file_bytes,
        modified_ns,
    } = identity.of_bytes();
    format!("\"{file_bytes:x}-{modified_ns:x}-{inode:x}-{device:x}\"")
}

fn look_at(file: File) -> io::Result<Found> {
    let metadata = file.metadata()?;
    Ok(if metadata.is_file() {
        Found::File(Rc::new(OpenFile::new(file, &metadata)))
    } else if metadata.is_dir() {
        Found::Folder {
            modified_s: metadata.mtime(),
        }
    } else {
        Found::Nothing
    })
}

/// What is at `name` of a store: a file, or a folder, which is there while something is in it.
async fn elsewhere(remote: &dyn RemoteFiles, name: &str) -> io::Result<Found> {
    if !name.is_empty() {
        match asked(|then| remote.open(name, then)).await {
            Ok(file) => return Ok(Found::File(Rc::new(OpenFile::remote(file)))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        asked(|then| remote.list(name, 1, then)).await?;
    }
    Ok(Found::Folder { modified_s: 0 })
}

/// What a client hears of an error: not more than that nothing is there, where more would tell
/// about what lies outside. Errors: the system is short of something.
fn without_reason(error: io::Error) -> io::Result<Found> {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Ok(Found::Denied),
        _ if names_nothing(&error) => Ok(Found::Nothing),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    #[test]
    fn a_film_in_a_store_has_its_tag_at_whatever_time() {
        let of = |device, inode, modified_ns| {
            etag(Identity {
                device,
                inode,
                file_bytes: 9,
                modified_ns,
            })
        };
        let remote = u64::MAX;
        assert_eq!(of(remote, 7, 1), of(remote, 7, 2));
        assert_ne!(of(remote, 7, 1), of(remote, 8, 1));
        assert_ne!(of(1, 7, 1), of(1, 7, 2), "of files the time tells");
    }

    fn fixture(files_max: usize) -> (tempfile::TempDir, Files) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("in")).unwrap();
        fs::write(root.join("in/a b#%ü.ts"), "film").unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("in", root.join("link")).unwrap();
        fs::write(root.join(".hidden"), "x").unwrap();
        let files = Files::new(Arc::new(Places::of_folder(&root)), files_max);
        (folder, files)
    }

    fn root(folder: &tempfile::TempDir) -> std::path::PathBuf {
        folder.path().join("root")
    }

    async fn file(files: &Files, name: &str) -> Rc<OpenFile> {
        match files.find(name).await.unwrap() {
            Found::File(file) => file,
            other => panic!("{name}: {other:?}"),
        }
    }

    fn touch(path: &Path, seconds: u64) {
        let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
        File::options()
            .write(true)
            .open(path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    }

    #[tokio::test]
    async fn names_under_the_root_are_found_and_others_are_not() {
        let (folder, files) = fixture(9);
        for name in ["in/a b#%ü.ts", "link/a b#%ü.ts"] {
            assert_eq!(file(&files, name).await.identity.file_bytes, 4);
        }
        for name in ["", "in", "link"] {
            assert!(
                matches!(files.find(name).await.unwrap(), Found::Folder { .. }),
                "{name}"
            );
        }
        let absolute = folder.path().join("root/in");
        for name in [
            "out",
            "../secret",
            "in/../../secret",
            ".hidden",
            "none",
            "in/a b#%ü.ts/x",
            "a\0",
            "/etc/passwd",
            "/proc/self/root/etc/passwd",
            absolute.to_str().unwrap(),
        ] {
            assert!(
                matches!(files.find(name).await.unwrap(), Found::Nothing),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_while_nothing_changes() {
        let (folder, files) = fixture(9);
        let path = root(&folder).join("in/a b#%ü.ts");
        let first = file(&files, "in/a b#%ü.ts").await;
        let again = file(&files, "in/a b#%ü.ts").await;
        assert!(Rc::ptr_eq(&first, &again) && files.lookups.get() == 1);
        fs::write(&path, "longer").unwrap();
        let changed = file(&files, "in/a b#%ü.ts").await;
        assert_eq!((changed.identity.file_bytes, files.lookups.get()), (6, 2));
        assert_ne!(first.etag, changed.etag);
        touch(&path, 784_111_777);
        let touched = file(&files, "in/a b#%ü.ts").await;
        assert_ne!(touched.etag, changed.etag);
        assert_eq!(touched.last_modified, "Sun, 06 Nov 1994 08:49:37 GMT");
    }

    #[tokio::test]
    async fn no_more_files_are_kept_open_than_may_be() {
        let (folder, files) = fixture(3);
        for i in 0..5 {
            fs::write(root(&folder).join(format!("{i}")), "x").unwrap();
            file(&files, &format!("{i}")).await;
        }
        assert_eq!(files.known.borrow().len(), 3);
        assert!(files.known.borrow().contains_key("2") && !files.known.borrow().contains_key("3"));
    }

    #[tokio::test]
    async fn a_compressed_neighbour_is_sent_if_wanted_and_not_older() {
        let (folder, files) = fixture(9);
        let root = root(&folder);
        for (name, seconds) in [("a.txt", 1000), ("a.txt.gz", 1000), ("a.txt.br", 999)] {
            fs::write(root.join(name), name).unwrap();
            touch(&root.join(name), seconds);
        }
        let plain = file(&files, "a.txt").await;
        let wants = |line: &str| {
            let head = format!("GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding: {line}\r\n\r\n");
            onrush_wire::http::Request::parse(head.as_bytes())
                .unwrap()
                .codings
        };
        let coding = async |line| {
            let neighbour = files.neighbour("a.txt", &plain, wants(line)).await;
            neighbour.map(|(coding, _)| coding)
        };
        assert_eq!(coding("br, gzip").await, Some(Coding::Gzip));
        assert_eq!(coding("br").await, None, "it is older than the file");
        assert_eq!(coding("identity").await, None);
    }
}
