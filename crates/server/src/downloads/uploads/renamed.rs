//! Other names for what is there. All that is in a folder gets another one with it: until it has
//! that, nothing more comes into it than was looked at.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use onrush_sys::fs::{Folder, Root};
use onrush_wire::name::from_bytes;

use super::leftovers::entries;
use super::{UploadError, Uploads, beneath, folder_of, path_of};
use crate::downloads::folder::FOLDER_ENTRIES_MAX;
use crate::library::{blocking, is_hidden};

/// What is about to have another name: until this is dropped nothing else comes there, nor goes.
#[derive(Debug)]
pub(crate) struct Moving {
    uploads: Rc<Uploads>,
    from: String,
    to: String,
}

impl Uploads {
    /// Begins to give a file or a folder another name.
    ///
    /// # Errors
    ///
    /// If another one is given to something there, or something is sent into it.
    pub(crate) fn moving(self: &Rc<Self>, from: &str, to: &str) -> Result<Moving, UploadError> {
        let [from, to] = [from, to].map(|it| it.trim_matches('/').to_owned());
        for name in [&from, &to] {
            let moving = self.moving.borrow();
            // Whoever moves what is above takes it along.
            if moving.iter().any(|it| is_within(it, name)) {
                return Err(UploadError::Busy(MOVING));
            }
            drop(moving);
            self.check_stays(name)?;
        }
        let written = self.written.borrow();
        if written.iter().any(|(folder, _)| is_within(folder, &from)) {
            return Err(UploadError::Busy("something is sent into it; try later"));
        }
        drop(written);
        self.moving.borrow_mut().push(from.clone());
        Ok(Moving {
            uploads: Rc::clone(self),
            from,
            to,
        })
    }

    /// Fails if something is about to have another name that is there, or that has it in it.
    pub(super) fn check_stays(&self, name: &str) -> Result<(), UploadError> {
        let moving = self.moving.borrow();
        match moving.iter().any(|it| is_within(name, it)) {
            true => Err(UploadError::Busy(MOVING)),
            false => Ok(()),
        }
    }
}

impl Moving {
    /// What the names of all that is there have behind them: nothing, and in a folder `/a.ts`.
    ///
    /// # Errors
    ///
    /// See [`UploadError`]; of a folder also if not all of that is known.
    pub(crate) async fn all(&self) -> Result<Vec<String>, UploadError> {
        let (root, path) = (Arc::clone(&self.uploads.root), path_of(&self.from)?);
        let all = blocking(move || endings(&root, &path, FOLDER_ENTRIES_MAX)).await?;
        let note = "too much is in it, or a link to a folder: rename what is in it";
        all.ok_or(UploadError::NoPlace(note))
    }

    /// Gives it its other name, also in another folder.
    ///
    /// # Errors
    ///
    /// See [`UploadError`].
    pub(crate) async fn done(&self) -> Result<(), UploadError> {
        let (root, path) = (Arc::clone(&self.uploads.root), path_of(&self.to)?);
        let rename = move |folder: &Folder, name: &OsStr| {
            let (there, new) = folder_of(&root, &path)?;
            folder.rename(name, (&there, &new), true)
        };
        self.uploads.change(&self.from, rename).await
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        let mut moving = self.uploads.moving.borrow_mut();
        moving.retain(|it| *it != self.from);
    }
}

/// Whether a name is that of a folder, or of something in it.
fn is_within(name: &str, folder: &str) -> bool {
    let below = name.strip_prefix(folder);
    below.is_some_and(|it| it.is_empty() || it.starts_with('/'))
}

const MOVING: &str = "it is given another name now; try later";

/// What the names of all that is at `path` have behind that: nothing, and in a folder `/a.ts`.
/// Hidden ones are left out, by which nothing is served. `None` if not all of them are known: there
/// are more entries than that, or a link to a folder, which is not followed. Blocks.
pub(super) fn endings(
    root: &Root,
    path: &Path,
    entries_max: usize,
) -> io::Result<Option<Vec<String>>> {
    let leads_to_folder = |at: &Path| root.folder(&beneath(at)).is_ok();
    let (folder, name) = folder_of(root, path)?;
    let (mut all, mut folders) = (vec![String::new()], Vec::new());
    match folder.stat(&name)?.st_mode & libc::S_IFMT {
        libc::S_IFDIR => folders.push(PathBuf::new()),
        libc::S_IFLNK if leads_to_folder(path) => return Ok(None),
        _ => {}
    }
    let mut looked_at = 0;
    while let Some(within) = folders.pop() {
        let folder = root.folder(&beneath(&path.join(&within)))?;
        for entry in entries(&folder)? {
            let entry = entry?;
            looked_at += 1;
            if looked_at > entries_max {
                return Ok(None);
            }
            let (name, kind) = (entry.file_name(), entry.file_type()?);
            if is_hidden(&name) {
                continue;
            }
            let at = within.join(name);
            if kind.is_symlink() && leads_to_folder(&path.join(&at)) {
                return Ok(None);
            }
            all.push(format!("/{}", from_bytes(at.as_os_str().as_bytes())));
            if kind.is_dir() {
                folders.push(at);
            }
        }
    }
    Ok(Some(all))
}
