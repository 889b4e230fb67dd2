//! How often a viewer has been sent on: a parameter of the query, which players bring along because
//! it is a part of the URL that they were sent to.

/// What the parameter is called.
const REDIRECTS: &str = "redirects";

/// How often who asks for this URL has been sent on: 0 where nothing says it, or says no number.
#[must_use]
pub fn redirects_of(uri: &str) -> u8 {
    let (_, query) = uri.split_once('?').unwrap_or((uri, ""));
    let count_of = |it: &str| {
        let count = it.strip_prefix(REDIRECTS)?.strip_prefix('=')?;
        // A player may have put the name of a track behind it.
        let end = count.find(|c: char| !c.is_ascii_digit());
        count[..end.unwrap_or(count.len())].parse().ok()
    };
    query.split('&').rev().find_map(count_of).unwrap_or(0)
}

/// The URL, or the end of one, with so many.
#[must_use]
pub fn with_redirects(uri: &str, redirects: u8) -> String {
    let (path, query) = match uri.split_once('?') {
        Some((path, query)) => (path, query),
        None => (uri, ""),
    };
    let is_other = |it: &&str| {
        let behind = it.strip_prefix(REDIRECTS);
        !it.is_empty() && !behind.is_some_and(|behind| behind.starts_with('='))
    };
    let mut others: Vec<_> = query.split('&').filter(is_other).collect();
    let ours = format!("{REDIRECTS}={redirects}");
    others.push(&ours);
    format!("{path}?{}", others.join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_tells_how_often_it_was_sent_on() {
        for (uri, redirects) in [
            ("/a.mp4", 0),
            ("/a.mp4?redirects=1", 1),
            ("rtsp://h/a.ts?tracks=elementary&redirects=2", 2),
            ("/a.mp4?redirects=1/track2", 1),
            ("/a.mp4?redirects=1&redirects=2", 2),
            ("/a.mp4?redirects=", 0),
            ("/a.mp4?redirects=256", 0),
            ("/a.mp4?xredirects=7", 0),
            ("/redirects=7", 0),
        ] {
            assert_eq!(redirects_of(uri), redirects, "{uri}");
        }
    }

    #[test]
    fn a_url_has_the_number_once() {
        for (uri, with) in [
            ("/a.mp4", "/a.mp4?redirects=2"),
            ("/a.mp4?", "/a.mp4?redirects=2"),
            ("/a.mp4?redirects=1", "/a.mp4?redirects=2"),
            (
                "rtsp://h/a?x=y&redirects=1&z",
                "rtsp://h/a?x=y&z&redirects=2",
            ),
        ] {
            assert_eq!(with_redirects(uri, 2), with);
            assert_eq!(redirects_of(with), 2);
        }
    }
}
