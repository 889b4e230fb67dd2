//! `onrush serve s3://BUCKET/FOLDER`: films of an object store instead of a folder's.
//!
//! Only a program built with the feature `objects` has a client for that. Others say so.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use clap::ValueHint;
use onrush_cli::units::{Size, within};
use onrush_server::config::Config;
use url::Url;

/// What is said of an object store beside where it is.
#[derive(Args, Clone, Debug)]
pub(crate) struct ObjectOptions {
    /// Where blocks of films of an object store are kept [default: /var/tmp]
    ///
    /// A folder of a local disk, for `serve s3://BUCKET/FOLDER`. Each film that is played has a
    /// file without a name there, which is gone when the server ends.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, hide_short_help = true)]
    object_cache: Option<PathBuf>,

    /// How much is kept of films of an object store
    ///
    /// Blocks that were not read for longest go. Where all are in use, a film that needs one more
    /// waits, and ends with the reason if that takes long.
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

/// The variable that names a file with credentials, which are read again when they end.
const TOKEN_FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";

/// The files that a server of this folder reads and writes for its object store.
#[derive(Clone, Debug, Default)]
pub(crate) struct ObjectFiles {
    pub(crate) read: Option<PathBuf>,
    pub(crate) write: Option<PathBuf>,
}

/// Whether this names no folder of this machine but an object store.
pub(crate) fn is_remote(folder: &Path) -> bool {
    folder
        .to_str()
        .is_some_and(|text| text.starts_with("s3://"))
}

impl ObjectOptions {
    /// Where blocks are kept: a folder that is empty for everybody.
    fn folder(&self) -> PathBuf {
        let above = self.object_cache.as_deref();
        above
            .unwrap_or_else(|| Path::new("/var/tmp"))
            .join("onrush-objects")
    }

    /// What there is to open for films that are in `folder`.
    pub(crate) fn files(&self, folder: Option<&Path>) -> ObjectFiles {
        match folder.is_some_and(is_remote) {
            false => ObjectFiles::default(),
            true => ObjectFiles {
                read: env::var_os(TOKEN_FILE).map(Into::into),
                write: Some(self.folder()),
            },
        }
    }

    /// The folder that is served where films are in `folder`: that, or an empty one. To be called
    /// before anything is given up.
    ///
    /// # Errors
    ///
    /// If it names an object store that cannot be, or the empty folder cannot be made.
    pub(crate) fn media_root(&self, folder: PathBuf) -> anyhow::Result<PathBuf> {
        if !is_remote(&folder) {
            return Ok(folder);
        }
        check(&folder)?;
        let empty = self.folder();
        fs::create_dir_all(&empty).with_context(|| {
            let empty = empty.display();
            format!("{empty} cannot be made; name a folder of a local disk with --object-cache")
        })?;
        Ok(empty)
    }

    /// Has `config` serve the films of the object store that `folder` names, if it names one.
    /// Threads begin here.
    ///
    /// # Errors
    ///
    /// If the store lets nobody in.
    #[cfg(feature = "objects")]
    pub(crate) fn connect(&self, folder: &Path, config: &mut Config) -> anyhow::Result<()> {
        if is_remote(folder) {
            if config.downloads.uploads.is_some() {
                anyhow::bail!(
                    "--uploads stores files in a folder of this machine: films of an object store \
                     are put there by the store's own tools"
                );
            }
            let objects = onrush_objects::Objects::connect(onrush_objects::Settings {
                location: onrush_objects::Location::parse(&folder.to_string_lossy())?,
                folder: config.media_root.clone(),
                cache_bytes: self.object_cache_size.0,
                endpoint: self.object_endpoint.clone(),
            })?;
            config.remote = Some(std::sync::Arc::new(objects));
        }
        Ok(())
    }

    #[cfg(not(feature = "objects"))]
    pub(crate) fn connect(&self, folder: &Path, _: &mut Config) -> anyhow::Result<()> {
        match is_remote(folder) {
            true => check(folder),
            false => Ok(()),
        }
    }
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
    anyhow::bail!(
        "{}: this onrush is built without object stores; build it with `--features objects`",
        folder.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
