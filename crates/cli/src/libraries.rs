//! What `onrush serve` serves: a folder, an object store, or several of both, each below its name.

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use clap::{Args, ValueHint};
use onrush_server::config::{LibraryConfig, LibraryPlace};
use onrush_server::library::{check_library_name, check_library_names};

/// What is said of what is served.
#[derive(Args, Clone, Debug)]
pub(crate) struct LibraryOptions {
    /// Where the files are [default: the demo clips' directory]
    ///
    /// A folder, or s3://BUCKET/FOLDER (docs/objects.md). The demo clips are looked for in ./media,
    /// and in the media directory of every folder above the program.
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) media_dir: Option<PathBuf>,

    /// One of several libraries, below its name; repeatable
    ///
    /// In place of MEDIA_DIR: NAME is the first part of the path of all that is in FOLDER, as in
    /// rtsp://HOST:8554/NAME/film.mp4. FOLDER is as MEDIA_DIR. The page and FTP list the libraries
    /// as folders. At most 32, and no files are taken (--uploads).
    #[arg(
        long = "library",
        value_name = "NAME=FOLDER",
        value_parser = library,
        conflicts_with = "media_dir",
        hide_short_help = true
    )]
    pub(crate) libraries: Vec<LibraryArg>,
}

/// One of several libraries, as `NAME=FOLDER`.
#[derive(Clone, Debug)]
pub(crate) struct LibraryArg {
    pub(crate) name: String,
    /// A folder, or where an object store is.
    pub(crate) path: PathBuf,
}

/// Everything that is served.
#[derive(Clone, Debug)]
pub(crate) enum Served {
    /// A folder or an object store, of which all names are.
    One(PathBuf),
    /// Several, each below its name.
    Several(Vec<LibraryArg>),
}

/// Reads NAME=FOLDER.
pub(crate) fn library(text: &str) -> Result<LibraryArg, String> {
    let parts = text.split_once('=').filter(|(_, path)| !path.is_empty());
    let (name, path) = parts.ok_or_else(|| {
        "a library has a name and a folder: write NAME=FOLDER, as in films=/srv/films".to_owned()
    })?;
    check_library_name(name)?;
    Ok(LibraryArg {
        name: name.to_owned(),
        path: path.into(),
    })
}

/// Whether this names no folder of this machine but an object store.
pub(crate) fn is_remote(folder: &Path) -> bool {
    folder
        .to_str()
        .is_some_and(|text| text.starts_with("s3://"))
}

impl LibraryOptions {
    /// What is to be served; `None` if that is not said.
    pub(crate) fn served(&self) -> Option<Served> {
        match (&self.media_dir, self.libraries.is_empty()) {
            (Some(folder), _) => Some(Served::One(folder.clone())),
            (None, false) => Some(Served::Several(self.libraries.clone())),
            (None, true) => None,
        }
    }

    /// Of several libraries those that are folders, for the server.
    pub(crate) fn folders(&self) -> Vec<LibraryConfig> {
        let folders = self.libraries.iter().filter(|it| !is_remote(&it.path));
        let config = |it: &LibraryArg| LibraryConfig {
            name: it.name.clone(),
            place: LibraryPlace::Folder(it.path.clone()),
        };
        folders.map(config).collect()
    }

    /// Whether several libraries can stand beside each other, and beside uploads if a server
    /// `takes_files`.
    ///
    /// # Errors
    ///
    /// Why not, and what to do instead.
    pub(crate) fn check(&self, takes_files: bool) -> anyhow::Result<()> {
        let names = self.libraries.iter().map(|it| it.name.as_str());
        check_library_names(names).map_err(|reason| anyhow!("--library: {reason}"))?;
        if takes_files && !self.libraries.is_empty() {
            bail!(
                "--uploads: nothing says which of several libraries (--library) takes files; leave \
                 it out, or serve one folder"
            );
        }
        Ok(())
    }
}

impl Served {
    /// Those that are object stores, with their names if they have any.
    pub(crate) fn stores(&self) -> Vec<(Option<&str>, &Path)> {
        let all = match self {
            Self::One(path) => vec![(None, &**path)],
            Self::Several(all) => {
                let all = all.iter();
                all.map(|it| (Some(&*it.name), &*it.path)).collect()
            }
        };
        all.into_iter()
            .filter(|(_, path)| is_remote(path))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_a_name_and_a_folder() {
        let films = library("films=/srv/a=b").unwrap();
        assert_eq!(
            (&*films.name, &*films.path),
            ("films", Path::new("/srv/a=b"))
        );
        for (wrong, said) in [
            ("/srv/films", "write NAME=FOLDER"),
            ("films=", "write NAME=FOLDER"),
            ("=/srv", "no name of a library"),
            ("a/b=/srv", "no name of a library"),
            ("live=/srv", "live channels"),
        ] {
            let error = library(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn stores_are_told_from_folders() {
        let all = ["films=/srv", "archive=s3://bucket/old"].map(|it| library(it).unwrap());
        let options = LibraryOptions {
            media_dir: None,
            libraries: all.to_vec(),
        };
        assert_eq!(options.folders().len(), 1);
        assert!(options.check(false).is_ok());
        assert!(
            options
                .check(true)
                .unwrap_err()
                .to_string()
                .contains("--uploads")
        );
        let several = options.served().unwrap();
        let archive = (Some("archive"), Path::new("s3://bucket/old"));
        assert_eq!(several.stores(), [archive]);
        assert_eq!(Served::One("/srv".into()).stores(), []);
        let one = Served::One("s3://bucket".into());
        assert_eq!(one.stores(), [(None, Path::new("s3://bucket"))]);
    }
}
