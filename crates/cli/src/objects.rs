//! `onrush serve s3://BUCKET/FOLDER`: films of object stores, alone or beside a folder's.
//!
//! Only a program built with the feature `objects` has a client for that. Others say so.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
#[cfg(feature = "objects")]
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::Args;
use clap::ValueHint;
use onrush_server::config::Config;
#[cfg(feature = "objects")]
use onrush_server::config::{LibraryConfig, LibraryPlace};
#[cfg(feature = "objects")]
use onrush_server::remote::RemoteFiles;
use url::Url;

use crate::libraries::Served;
use crate::units::{Size, within};

/// What is said of an object store beside where it is.
#[derive(Args, Clone, Debug)]
pub(crate) struct ObjectOptions {
    /// Where blocks of an object store's films are kept [default: nameless files in /var/tmp]
    ///
    /// A folder of a local disk, for `serve s3://BUCKET/FOLDER`. What is there is found again by
    /// the next server, which compares each block with its checksum before it is played; a server
    /// has its folder for itself, and each of several stores a part of it. Without this option
    /// blocks end with the server.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, hide_short_help = true)]
    object_cache: Option<PathBuf>,

    /// How much is kept of films of an object store
    ///
    /// Blocks that were not read for longest go. Where all are in use, a film that needs one more
    /// waits, and ends with the reason if that takes long. Several stores have equal shares, of
    /// 64MiB at least.
    #[arg(
        long,
        value_name = "SIZE",
        hide_short_help = true,
        default_value_t = Size(4 << 30),
        value_parser = within(Size(CACHE_BYTES_MIN), Size(1 << 50))
    )]
    object_cache_size: Size,

    /// Where the object store answers, if it is not Amazon's
    ///
    /// Without it AWS_ENDPOINT_URL says so.
    #[arg(
        long,
        value_name = "URL",
        value_hint = ValueHint::Url,
        hide_short_help = true,
        value_parser = endpoint
    )]
    object_endpoint: Option<String>,
}

/// An address of a store: no more than a scheme, a host and a port.
fn endpoint(text: &str) -> Result<String, String> {
    let wrong = || "write http://HOST:PORT or https://HOST:PORT".to_owned();
    let url = Url::parse(text).map_err(|_| wrong())?;
    let is_bare = url.username().is_empty()
        && url.password().is_none()
        && matches!(url.path(), "" | "/")
        && url.query().is_none()
        && url.fragment().is_none();
    let is_one = matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare;
    match is_one {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(wrong()),
    }
}

/// As much as a few films need that are played at once.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The variables that name files with credentials, which are read again when they end.
const TOKEN_FILES: [&str; 2] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
];

/// The files that a server reads and writes for its object stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectFiles {
    pub(crate) read: Vec<PathBuf>,
    pub(crate) write: Vec<PathBuf>,
}

impl ObjectOptions {
    /// Where files of the blocks of a store are, which has that name beside others: they have names
    /// where the folder has one.
    fn blocks(&self, name: Option<&str>) -> PathBuf {
        match (&self.object_cache, name) {
            (Some(folder), Some(name)) => folder.join(format!("onrush-blocks-{name}")),
            (Some(folder), None) => folder.join("onrush-blocks"),
            (None, _) => PathBuf::from("/var/tmp/onrush-objects"),
        }
    }

    /// What there is to open for these films.
    pub(crate) fn files(&self, served: Option<&Served>) -> ObjectFiles {
        let stores = served.map(Served::stores).unwrap_or_default();
        if stores.is_empty() {
            return ObjectFiles::default();
        }
        ObjectFiles {
            read: token_files(|name| env::var_os(name)),
            write: stores.iter().map(|&(name, _)| self.blocks(name)).collect(),
        }
    }

    /// Whether all stores among those that are served have blocks enough.
    ///
    /// # Errors
    ///
    /// If one has too few to play from.
    pub(crate) fn check(&self, served: Option<&Served>) -> anyhow::Result<()> {
        let stores = served.map_or(0, |served| served.stores().len());
        self.share(stores).map(|_| ())
    }

    /// How much each of so many stores keeps.
    fn share(&self, stores: usize) -> anyhow::Result<u64> {
        let stores = stores.max(1) as u64;
        let share = self.object_cache_size.0 / stores;
        if share < CACHE_BYTES_MIN {
            bail!(
                "--object-cache-size: {stores} stores share {}; each has to have {}, so write {}",
                self.object_cache_size,
                Size(CACHE_BYTES_MIN),
                Size(CACHE_BYTES_MIN * stores)
            );
        }
        Ok(share)
    }

    /// Makes the folders of blocks. To be called before anything is given up. The folder that is
    /// served where it is one, else one that there is.
    ///
    /// # Errors
    ///
    /// If there is an object store that cannot be, or a folder of blocks cannot be made.
    pub(crate) fn prepare(&self, served: &Served) -> anyhow::Result<PathBuf> {
        for (name, store) in served.stores() {
            check(store)?;
            let blocks = self.blocks(name);
            let made = fs::create_dir_all(blocks.parent().unwrap_or_else(|| Path::new("/")))
                .and_then(|()| DirBuilder::new().mode(0o700).create(&blocks));
            match made {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    let folder = blocks.display();
                    return Err(error).context(format!(
                        "{folder} cannot be made; name a folder of a local disk with --object-cache"
                    ));
                }
                _ => {}
            }
        }
        Ok(match (served, served.stores().first()) {
            (Served::One(folder), None) => folder.clone(),
            (_, Some((name, _))) => self.blocks(*name),
            (Served::Several(_), None) => PathBuf::new(),
        })
    }

    /// Has `config` serve the films of the object stores among those that are `served`. Threads
    /// begin here. A successor waits for the blocks of the server before it.
    ///
    /// # Errors
    ///
    /// If a store lets nobody in.
    #[cfg(feature = "objects")]
    pub(crate) fn connect(
        &self,
        served: &Served,
        is_successor: bool,
        config: &mut Config,
    ) -> anyhow::Result<()> {
        let stores = served.stores();
        if !stores.is_empty() && config.downloads.uploads.is_some() {
            bail!(
                "--uploads stores files in a folder of this machine: films of an object store are \
                 put there by the store's own tools"
            );
        }
        let share = self.share(stores.len())?;
        for (name, store) in stores {
            let objects = onrush_objects::Objects::connect(onrush_objects::Settings {
                location: onrush_objects::Location::parse(&store.to_string_lossy())?,
                folder: self.blocks(name),
                is_kept: self.object_cache.is_some(),
                is_successor,
                cache_bytes: share,
                endpoint: self.object_endpoint.clone(),
            })?;
            let objects: Arc<dyn RemoteFiles> = Arc::new(objects);
            match name {
                None => config.remote = Some(objects),
                Some(name) => config.libraries.push(LibraryConfig {
                    name: name.to_owned(),
                    place: LibraryPlace::Remote(objects),
                }),
            }
        }
        Ok(())
    }

    #[cfg(not(feature = "objects"))]
    pub(crate) fn connect(&self, served: &Served, _: bool, _: &mut Config) -> anyhow::Result<()> {
        served
            .stores()
            .iter()
            .try_for_each(|(_, store)| check(store))
    }
}

/// The files that these variables name.
fn token_files(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let files = TOKEN_FILES.into_iter().filter_map(variable);
    files.map(PathBuf::from).collect()
}

/// Whether a folder that is an object store's can be one.
///
/// # Errors
///
/// Why not.
#[cfg(feature = "objects")]
pub(crate) fn check(folder: &Path) -> anyhow::Result<()> {
    onrush_objects::Location::parse(&folder.to_string_lossy())?;
    Ok(())
}

/// As with the feature.
#[cfg(not(feature = "objects"))]
pub(crate) fn check(folder: &Path) -> anyhow::Result<()> {
    bail!(
        "{}: this onrush is built without object stores; build it with `--features objects`",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_have_equal_shares_and_each_enough() {
        let options = |size: u64| ObjectOptions {
            object_cache: None,
            object_cache_size: Size(size),
            object_endpoint: None,
        };
        assert_eq!(options(4 << 30).share(2).unwrap(), 2 << 30);
        assert_eq!(options(CACHE_BYTES_MIN).share(0).unwrap(), CACHE_BYTES_MIN);
        assert_eq!(
            options(2 * CACHE_BYTES_MIN).share(2).unwrap(),
            CACHE_BYTES_MIN
        );
        let error = options(2 * CACHE_BYTES_MIN - 1).share(2).unwrap_err();
        assert!(error.to_string().contains("write 128MiB"), "{error}");
    }

    #[test]
    fn tokens_of_pods_and_of_containers_are_read() {
        let variable = |name: &str| match name {
            "AWS_WEB_IDENTITY_TOKEN_FILE" => Some("/web/token".into()),
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE" => Some("/container/token".into()),
            _ => None,
        };
        let files = ["/web/token", "/container/token"].map(PathBuf::from);
        assert_eq!(token_files(variable), files);
    }

    #[test]
    fn an_endpoint_is_a_scheme_a_host_and_a_port() {
        for (text, read) in [
            ("https://minio.example:9000", "https://minio.example:9000"),
            ("http://127.0.0.1/", "http://127.0.0.1"),
        ] {
            assert_eq!(endpoint(text).as_deref(), Ok(read));
        }
        for wrong in [
            "minio.example:9000",
            "s3://minio.example",
            "https://key:secret@minio.example",
            "https://minio.example/films",
            "https://minio.example?a",
        ] {
            assert!(
                endpoint(wrong).unwrap_err().contains("HOST:PORT"),
                "{wrong}"
            );
        }
    }
}
