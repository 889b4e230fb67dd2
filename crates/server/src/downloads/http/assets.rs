//! What the pages load: styles, scripts and the icon, which are in the program.
//!
//! They lie at a path that no file can have ([`ASSETS`]), and anybody may have them: a page that is
//! reached by a signed URL asks for them without its signature.

use onrush_wire::http::ASSETS;

/// A file of the pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asset {
    pub(super) text: &'static [u8],
    pub(super) media_type: &'static str,
}

/// The one that a path names: decoded, `/` between its parts, none at its ends.
pub(super) fn find(path: &str) -> Option<Asset> {
    let name = path.strip_prefix(ASSETS)?;
    let found = ALL.iter().find(|(known, ..)| *known == name)?;
    let (_, media_type, text) = *found;
    Some(Asset { text, media_type })
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! all {
    ($($name:literal: $media_type:expr,)+) => {
        [$(($name, $media_type, include_bytes!(concat!("page/", $name)) as &[u8]),)+]
    };
}

/// Name, type and content.
const ALL: [(&str, &str, &[u8]); 11] = all! {
    "page.css": STYLE,
    "icon.svg": "image/svg+xml",
    "folder.js": SCRIPT,
    "player.js": SCRIPT,
    "controls.js": SCRIPT,
    "live.js": SCRIPT,
    "media_source.js": SCRIPT,
    "track.js": SCRIPT,
    "adapt.js": SCRIPT,
    "playlist.js": SCRIPT,
    "addresses.js": SCRIPT,
};
