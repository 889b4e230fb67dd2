//! The open file behind a media, for those who read it, and what descriptors it takes.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use crate::library::settings::Counters;
use crate::remote::{FilmFile, RemoteBytes};
use crate::store::{Backing, open_direct};

/// The open file behind a media.
#[derive(Debug)]
pub(in crate::library) struct Opened {
    pub(super) path: PathBuf,
    pub(super) file: FilmFile,
    direct: Mutex<Direct>,
    counters: Arc<Counters>,
    /// None of a film that lies elsewhere: what brings it counts its file, also when no media has
    /// it any more.
    _descriptor: Option<Descriptor>,
}

/// The same file once more, for direct input.
#[derive(Debug, Default)]
enum Direct {
    /// Nobody has read it so, or not of late.
    #[default]
    Unknown,
    /// It cannot be read so.
    Never,
    Open {
        file: Arc<File>,
        _descriptor: Descriptor,
    },
}

/// A descriptor of a film, which is counted until this is dropped.
#[derive(Debug)]
struct Descriptor(Arc<Counters>);

impl Opened {
    pub(in crate::library) fn new(path: PathBuf, file: FilmFile, counters: &Arc<Counters>) -> Self {
        let is_counted = file.remote.is_none();
        Self {
            path,
            file,
            direct: Mutex::default(),
            counters: Arc::clone(counters),
            _descriptor: is_counted.then(|| Descriptor::new(counters)),
        }
    }

    /// Lets go of what only those need who read it. Who reads it next opens it again.
    pub(super) fn close_direct(&self) {
        *self.direct.lock().unwrap_or_else(PoisonError::into_inner) = Direct::Unknown;
    }
}

impl Backing for Opened {
    fn file(&self) -> &File {
        &self.file.file
    }

    fn direct(&self) -> Option<Arc<File>> {
        let mut direct = self.direct.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*direct, Direct::Unknown) {
            *direct = match open_direct(&self.file.file) {
                None => Direct::Never,
                Some(file) => Direct::Open {
                    file: Arc::new(file),
                    _descriptor: Descriptor::new(&self.counters),
                },
            };
        }
        match &*direct {
            Direct::Open { file, .. } => Some(Arc::clone(file)),
            Direct::Unknown | Direct::Never => None,
        }
    }

    fn remote(&self) -> Option<&Arc<dyn RemoteBytes>> {
        self.file.remote.as_ref()
    }
}

impl Descriptor {
    fn new(counters: &Arc<Counters>) -> Self {
        counters.descriptors.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(counters))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.0.descriptors.fetch_sub(1, Ordering::Relaxed);
    }
}
