//! The file of members: read at the start, and again whenever it changes.
//!
//! The folder is watched and not the file, because most who change a file put another in its place.
//! A file that cannot be read, or that holds a wrong line, changes nothing: the members stay who
//! they were.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify;
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tracing::{info, warn};

use super::channel::Channel;
use super::members::{LineError, MemberError, Origin, parse_file};

/// Bytes of a file of members at the most: a long line for each of as many as there may be.
pub const MEMBERS_FILE_BYTES_MAX: u64 = 8 << 20;

/// A file of members of one stream.
#[derive(Debug)]
pub(super) struct MembersFile {
    path: PathBuf,
    channel: Arc<Channel>,
    /// What was taken last, or is wrong by itself.
    text: Option<String>,
    folder: AsyncFd<OwnedFd>,
}

/// Why a file's members are not taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MembersFileError {
    /// It cannot be read or watched.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is too long.
    #[error("{}: longer than {MEMBERS_FILE_BYTES_MAX} bytes, which is no list of \
     members", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Some of its lines are wrong.
    #[error("{}: {}", path.display(), listed(errors))]
    Lines {
        /// The file.
        path: PathBuf,
        /// Which, and why.
        errors: Vec<LineError>,
    },
    /// They are too many, or one of them cannot be.
    #[error("{}: {error}", path.display())]
    Members {
        /// The file.
        path: PathBuf,
        /// Why.
        error: MemberError,
    },
}

impl MembersFile {
    /// Takes the file's members, and begins to watch it. Call it within a runtime.
    ///
    /// # Errors
    ///
    /// See [`MembersFileError`].
    pub(super) fn open(path: &Path, channel: Arc<Channel>) -> Result<Self, MembersFileError> {
        let read_error = |source: io::Error| MembersFileError::Read {
            path: path.to_owned(),
            source,
        };
        #[allow(
            deprecated,
            reason = "an OwnedFd is its descriptor for as long as it lives; the safe way is the \
             old one"
        )]
        let folder = watch(path).and_then(AsyncFd::new).map_err(read_error)?;
        let mut file = Self {
            path: path.to_owned(),
            channel,
            text: None,
            folder,
        };
        // After the watch began, so that no change falls between.
        file.take()?;
        Ok(file)
    }

    /// Takes every change, until it is dropped.
    pub(super) async fn follow(mut self) {
        loop {
            match self.folder.readable().await {
                Ok(mut ready) => {
                    let is_about = is_about(ready.get_inner(), self.path.file_name());
                    ready.clear_ready();
                    if !is_about {
                        continue;
                    }
                }
                Err(error) => {
                    return warn!("{}: no longer watched: {error}", self.path.display());
                }
            }
            if let Err(error) = self.take() {
                warn!("{error}; the members stay who they were");
            }
        }
    }

    fn take(&mut self) -> Result<(), MembersFileError> {
        let path = || self.path.clone();
        let text = read(&self.path)?;
        if self.text.as_ref() == Some(&text) {
            return Ok(());
        }
        self.text = Some(text.clone());
        let members = parse_file(&text).map_err(|errors| MembersFileError::Lines {
            path: path(),
            errors,
        })?;
        let change = self
            .channel
            .replace(Origin::File, &members)
            .map_err(|error| {
                // Other lists decide too: the same file may be taken when it is written again.
                self.text = None;
                let path = path();
                MembersFileError::Members { path, error }
            })?;
        info!(
            "source {}: {} holds {} members; {} came, {} went",
            self.channel.name(),
            self.path.display(),
            members.len(),
            change.added.len(),
            change.removed.len()
        );
        Ok(())
    }
}

fn read(path: &Path) -> Result<String, MembersFileError> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| {
        // A pipe would be waited for.
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("no regular file"));
        }
        file.take(MEMBERS_FILE_BYTES_MAX + 1)
            .read_to_string(&mut text)
    });
    match read {
        Ok(bytes) if bytes as u64 > MEMBERS_FILE_BYTES_MAX => Err(MembersFileError::TooLong {
            path: path.to_owned(),
        }),
        Ok(_) => Ok(text),
        Err(source) => Err(MembersFileError::Read {
            path: path.to_owned(),
            source,
        }),
    }
}

fn watch(path: &Path) -> io::Result<OwnedFd> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watch = inotify::init(flags)?;
    let events = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_FROM;
    inotify::add_watch(&watch, folder, events)?;
    Ok(watch)
}

/// Takes the events so far; whether one of them is about the file of that name. Others must not be
/// acted on: at their time the file may be half written.
fn is_about(watch: &OwnedFd, name: Option<&OsStr>) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut is_about = false;
    while let Ok(event) = events.next() {
        let found = event
            .file_name()
            .map(|found| OsStr::from_bytes(found.to_bytes()));
        // The kernel names nothing when it has lost events; a folder that is switched as a whole is
        // switched by a link with two dots before its name.
        is_about |= found
            .is_none_or(|found| Some(found) == name || found.as_encoded_bytes().starts_with(b".."));
    }
    is_about
}

fn listed(errors: &[LineError]) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("; ")
}
