//! What downloads share of a server, for tests of what stands on it.

use std::rc::Rc;
use std::sync::Arc;

use tempfile::TempDir;

use super::log::Log;
use super::{Downloads, Site};
use crate::config::Config;
use crate::hls_live::{LiveHls, LiveHlsConfig};
use crate::library::Library;
use crate::listening::Draining;
use crate::tunnelling::tunnels;
use crate::users::{Authorizer, UsersConfig};

/// A server of an empty folder.
pub(super) fn site(downloads: Downloads) -> (Rc<Site>, TempDir) {
    let root = tempfile::tempdir().unwrap();
    let config = Config {
        media_root: root.path().to_owned(),
        downloads,
        ..Config::default()
    };
    let library = Arc::new(Library::new(&config).unwrap());
    let hls = LiveHls::new(LiveHlsConfig::default(), false, &Arc::default());
    let users = Authorizer::open(&UsersConfig::default(), Arc::default());
    let site = Site::new(
        config.downloads,
        library,
        (None, hls, tunnels().0),
        (Arc::default(), Arc::new(users.unwrap())),
        (Log::open(None).unwrap(), Draining::new().1),
        Arc::default(),
    );
    (site, root)
}
