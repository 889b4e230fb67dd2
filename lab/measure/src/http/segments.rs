//! Segments of films: made by our server when they are asked for, and lying cut in the folder of
//! its peer, at the same URLs.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use onrush_testkit::film::{Container, film};
use onrush_testkit::http_client::Client;
use onrush_testkit::media::age;

use super::Hls;
use super::asking::Part;

/// The films, and the media playlist of each, whose segments are asked for.
pub(super) const TS: &str = "/film.ts/hls/stream/index.m3u8";
pub(super) const CMAF: &str = "/film.mp4/hls/video/index.m3u8";

/// Segments that a playlist may name.
const SEGMENTS_MAX: usize = 10_000;

/// Puts the films into the folder that our server serves.
pub(super) fn write_films(settings: &Hls, folder: &Path) -> io::Result<()> {
    for (container, name) in [
        (Container::TransportStream, "film.ts"),
        (Container::Mp4, "film.mp4"),
    ] {
        let made = film(container, settings.rate_bps, settings.seconds);
        let path = folder.join(name);
        fs::copy(made.map_err(io::Error::other)?, &path)?;
        // So that it is not taken for one that is written still.
        age(&path)?;
    }
    Ok(())
}

/// Has our server make all segments that the playlist at this path names, and puts them where its
/// peer finds them. Their bytes are what every answer is compared with.
pub(super) fn cut(playlist: &str, address: SocketAddr, folder: &Path) -> io::Result<Vec<Part>> {
    let get = |path: &str| Client::connect(address)?.get(path);
    let text = String::from_utf8_lossy(&get(playlist)?).into_owned();
    let (base, _) = playlist.rsplit_once('/').unwrap_or_default();
    let mut parts = Vec::new();
    for name in names(&text).take(SEGMENTS_MAX) {
        let path = format!("{base}/{name}");
        let bytes = get(&path)?;
        let file = folder.join(path.trim_start_matches('/'));
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(file, &bytes)?;
        parts.push(Part { path, bytes });
    }
    // The last is shorter, and would count as a request all the same.
    parts.pop();
    match parts.is_empty() {
        true => Err(io::Error::other(format!(
            "{playlist}: names too few segments"
        ))),
        false => Ok(parts),
    }
}

/// What a media playlist names.
fn names(playlist: &str) -> impl Iterator<Item = &str> {
    let lines = playlist.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_playlist_names_what_is_no_tag() {
        let text = "#EXTM3U\n#EXT-X-MAP:URI=\"v/init.mp4\"\n#EXTINF:6,\nv/1.m4s\n\n#EXTINF:2,\nv/2";
        assert_eq!(names(text).collect::<Vec<_>>(), ["v/1.m4s", "v/2"]);
    }
}
