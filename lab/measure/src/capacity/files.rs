//! The films of the experiment.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use onrush_sys::fs::advise_done;
use onrush_testkit::media::age;
use serde::{Deserialize, Serialize};

use crate::error::{ExperimentError, bounds};
use crate::film_kind::FilmKind;
use crate::own_folder::OwnFolder;

/// Files at the most.
const FILES_MAX: u32 = 20_000;

/// Seconds of the one film that all watch.
const SECONDS_OF_ONE: u64 = 60;

/// Seconds of each of many. A viewer who has seen it all begins again.
const SECONDS_OF_MANY: u64 = 10;

/// The cache for one film, in bytes.
const CACHE_BYTES_OF_ONE: u64 = 1 << 30;

/// What is watched.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSet {
    /// One film.
    One,
    /// So many, by Zipf's law with exponent 1.
    Zipf {
        /// How many.
        files: u32,
    },
    /// So many, dealt out in turn: with as many as viewers everyone has one of his own.
    Even {
        /// How many.
        files: u32,
    },
}

/// Films on disk.
pub(super) struct Films {
    folder: OwnFolder,
    files: u32,
    /// What they are kept in, one after the other and again from the first.
    kinds: Vec<FilmKind>,
    /// Of the longest.
    bytes: u64,
}

impl FileSet {
    pub(super) fn check(self) -> Result<(), ExperimentError> {
        bounds! { self.files(), 1..=FILES_MAX, Count, "files"; }
        Ok(())
    }

    /// How long a film is.
    pub(super) const fn seconds(self) -> u64 {
        match self {
            Self::One => SECONDS_OF_ONE,
            Self::Zipf { .. } | Self::Even { .. } => SECONDS_OF_MANY,
        }
    }

    fn files(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Zipf { files } | Self::Even { files } => files,
        }
    }
}

impl Films {
    /// Writes them, the kinds in turn; at least one kind. The same bytes in each of a kind: a cache
    /// that tells files apart does not see that.
    pub(super) fn make(files: FileSet, rate_bps: u64, kinds: &[FilmKind]) -> io::Result<Self> {
        let mut films = Self {
            folder: OwnFolder::new()?,
            files: files.files(),
            kinds: kinds.to_vec(),
            bytes: 0,
        };
        let names: Vec<_> = films.names().collect();
        for (number, (name, kind)) in names.iter().zip(kinds.iter().cycle()).enumerate() {
            let path = films.folder().join(name);
            match number.checked_sub(kinds.len()) {
                None => kind.write(&path, rate_bps, files.seconds() * 1000)?,
                Some(same) => drop(fs::copy(films.folder().join(&names[same]), &path)?),
            }
            age(&path)?;
            films.bytes = films.bytes.max(path.metadata()?.len());
        }
        // What is read past the page cache must not first be written from there.
        rustix::fs::sync();
        Ok(films)
    }

    /// Whether the first is of that kind.
    pub(super) fn begin_with(&self, kind: FilmKind) -> bool {
        self.kinds.first() == Some(&kind)
    }

    /// Has the page cache forget them, so that whoever reads them next reads from the disk.
    pub(super) fn forget(&self) -> io::Result<()> {
        for name in self.names() {
            let film = fs::File::open(self.folder().join(name))?;
            advise_done(&film, 0, self.bytes);
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where the server that serves them leaves its status.
    pub(super) fn status(&self) -> PathBuf {
        self.folder().join("status.json")
    }

    /// Their names, the most popular first.
    pub(super) fn names(&self) -> impl Iterator<Item = String> + use<> {
        let kinds = self.kinds.clone().into_iter().cycle();
        (0..self.files)
            .zip(kinds)
            .map(|(i, kind)| format!("film{i}.{kind}"))
    }

    /// A quarter of all of them, but enough for one.
    pub(super) fn cache_bytes(&self) -> u64 {
        if self.files == 1 {
            CACHE_BYTES_OF_ONE
        } else {
            (self.bytes * u64::from(self.files) / 4).max(64 << 20)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn films_are_as_many_and_as_long_as_asked_for() {
        let films = Films::make(FileSet::Zipf { files: 3 }, 1_000_000, &[FilmKind::Ts]).unwrap();
        let names: Vec<_> = films.names().collect();
        assert_eq!(names, ["film0.ts", "film1.ts", "film2.ts"]);
        for name in names {
            let bytes = fs::metadata(films.folder().join(name)).unwrap().len();
            assert!(
                bytes.abs_diff(1_000_000 / 8 * SECONDS_OF_MANY) < 1000,
                "{bytes}"
            );
        }
        assert_eq!(films.cache_bytes(), 64 << 20);
    }

    #[test]
    fn kinds_of_films_take_turns() {
        onrush_testkit::require_programs!("ffmpeg");
        let kinds = [FilmKind::Ts, FilmKind::Mkv];
        let films = Films::make(FileSet::Zipf { files: 4 }, 1_000_000, &kinds).unwrap();
        let names: Vec<_> = films.names().collect();
        assert_eq!(names, ["film0.ts", "film1.mkv", "film2.ts", "film3.mkv"]);
        let read = |i: usize| fs::read(films.folder().join(&names[i])).unwrap();
        assert!(read(0) == read(2) && read(1) == read(3));
        assert_eq!(read(1)[..4], [0x1a, 0x45, 0xdf, 0xa3]);
    }

    #[test]
    fn so_many_files_and_no_more() {
        assert!(FileSet::Zipf { files: FILES_MAX }.check().is_ok());
        let many = FileSet::Even {
            files: FILES_MAX + 1,
        };
        assert!(many.check().is_err());
        assert!(FileSet::Zipf { files: 0 }.check().is_err());
    }
}
