//! The file of members: read at the start, and again whenever it changes.
//!
//! The folder is watched and not the file, because most who change a file put another in its place.
//! Nobody tells of another folder in the place of the one that is watched (a link that leads
//! elsewhere, a mount): that is looked at now and then. A file that cannot be read, or that holds a
//! wrong line, changes nothing: the members stay who they were.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::{self, MaybeUninit};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::inotify;
use thiserror::Error;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
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
    /// The device and the number of the folder that is watched, while it is there.
    watched: Option<(u64, u64)>,
    /// It was told that the folder cannot be watched.
    is_told: bool,
    /// It is there, and could not be read: perhaps it can be later.
    is_unread: bool,
}

/// What has happened in the folder.
#[derive(Debug, Default)]
struct Seen {
    /// Something that is about the file.
    is_about: bool,
    /// The folder itself is gone.
    is_gone: bool,
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
        // Before the watch begins: if another is in its place by then, it is found to be another.
        let watched = number_of(&folder_of(path)).map_err(read_error)?;
        let folder = watch(path).map_err(read_error)?;
        let mut file = Self {
            path: path.to_owned(),
            channel,
            text: None,
            folder,
            watched: Some(watched),
            is_told: false,
            is_unread: false,
        };
        // After the watch began, so that no change falls between.
        file.take()?;
        Ok(file)
    }

    /// Takes every change, until it is dropped.
    pub(super) async fn follow(mut self) {
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let seen = tokio::select! {
                ready = self.folder.readable() => Some(ready.map(|mut ready| {
                    let seen = events(ready.get_inner(), self.path.file_name());
                    ready.clear_ready();
                    seen
                })),
                _ = looks.tick() => None,
            };
            let is_due = match seen {
                Some(Ok(seen)) => {
                    if seen.is_gone {
                        // Another may have its number.
                        self.watched = None;
                    }
                    seen.is_about
                }
                Some(Err(error)) => {
                    return warn!("{}: no longer watched: {error}", self.path.display());
                }
                None => self.look().await,
            };
            if is_due {
                self.take_or_say();
            }
        }
    }

    /// Watches another folder that is in the place of the one of before. Whether the file is to be
    /// read though nobody has told of a change.
    async fn look(&mut self) -> bool {
        let folder = folder_of(&self.path);
        // A file server that does not answer delays nobody else.
        let there = spawn_blocking(move || number_of(&folder)).await;
        let there = there.unwrap_or_else(|failure| Err(io::Error::other(failure)));
        let is_watched = |there: &(u64, u64)| self.watched.as_ref() == Some(there);
        if there.as_ref().is_ok_and(is_watched) {
            return self.is_unread;
        }
        match there.and_then(|there| Ok((there, watch(&self.path)?))) {
            Ok((there, folder)) => {
                (self.watched, self.folder, self.is_told) = (Some(there), folder, false);
                true
            }
            Err(error) => {
                if !mem::replace(&mut self.is_told, true) {
                    let path = self.path.display();
                    warn!("{path}: its folder: {error}; the members stay who they were");
                }
                self.is_unread
            }
        }
    }

    /// Takes what is there; what is wrong with it is in the log, once while it cannot be read.
    fn take_or_say(&mut self) {
        let taken = self.take();
        let is_unread = taken.as_ref().is_err_and(MembersFileError::may_pass);
        let was_unread = mem::replace(&mut self.is_unread, is_unread);
        if let Err(error) = taken
            && !(was_unread && is_unread)
        {
            warn!("{error}; the members stay who they were");
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

impl MembersFileError {
    /// Whether nobody may tell when this is over. A file that comes back is told of.
    fn may_pass(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.kind() != io::ErrorKind::NotFound)
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

/// The folder that a file is in.
fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// By which a folder is told from another at the same path.
fn number_of(folder: &Path) -> io::Result<(u64, u64)> {
    let there = fs::metadata(folder)?;
    Ok((there.dev(), there.ino()))
}

/// Watches the folder that a file is in. Call it within a runtime.
#[allow(
    deprecated,
    reason = "an OwnedFd is its descriptor for as long as it lives; the safe way is the old one"
)]
fn watch(path: &Path) -> io::Result<AsyncFd<OwnedFd>> {
    let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
    let watch = inotify::init(flags)?;
    let events = inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::MOVED_TO
        | inotify::WatchFlags::DELETE
        | inotify::WatchFlags::MOVED_FROM;
    inotify::add_watch(&watch, folder_of(path), events)?;
    AsyncFd::new(watch)
}

/// Takes the events so far; whether one of them is about the file of that name. Others must not be
/// acted on: at their time the file may be half written.
fn events(watch: &OwnedFd, name: Option<&OsStr>) -> Seen {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut seen = Seen::default();
    while let Ok(event) = events.next() {
        if event.events().contains(inotify::ReadFlags::IGNORED) {
            seen.is_gone = true;
            continue;
        }
        let found = event
            .file_name()
            .map(|found| OsStr::from_bytes(found.to_bytes()));
        // The kernel names nothing when it has lost events; a folder that is switched as a whole is
        // switched by a link with two dots before its name.
        seen.is_about |= found
            .is_none_or(|found| Some(found) == name || found.as_encoded_bytes().starts_with(b".."));
    }
    seen
}

fn listed(errors: &[LineError]) -> String {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

/// How often it is looked at what nobody tells of.
const LOOK_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The ports of the members, once they are these.
    async fn has_ports(channel: &Channel, expected: &[u16]) {
        let ports = || -> Vec<u16> { channel.members().iter().map(|it| it.port()).collect() };
        for _ in 0..600 {
            if ports() == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(ports(), expected);
    }

    #[tokio::test]
    async fn another_folder_in_its_place_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let write = |folder: &str, port: u16| {
            let folder = root.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("list"), format!("10.0.0.7:{port}\n")).unwrap();
        };
        write("one", 5001);
        write("two", 5002);
        let current = root.path().join("current");
        symlink("one", &current).unwrap();
        let channel = Channel::of_tests();
        let file = MembersFile::open(&current.join("list"), Arc::clone(&channel)).unwrap();
        let following = tokio::spawn(file.follow());
        has_ports(&channel, &[5001]).await;
        let other = root.path().join("other");
        symlink("two", &other).unwrap();
        fs::rename(&other, &current).unwrap();
        has_ports(&channel, &[5002]).await;
        write("two", 5003);
        has_ports(&channel, &[5003]).await;
        // One that is made anew, perhaps with the number of before.
        fs::remove_dir_all(root.path().join("two")).unwrap();
        write("two", 5004);
        has_ports(&channel, &[5004]).await;
        following.abort();
    }
}
