//! Where a viewer of a live channel begins, as its URL asks.
//!
//! The query says so, `?sync=next`, and players make their next URLs without it. So a description's
//! base has it as a part of the path, `/sync=next/`, which is read like the query.

use std::fmt;

use percent_encoding::percent_decode_str;

/// Where a viewer of a live channel begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LiveStart {
    /// With what has come since the last sync sample, at once.
    Last,
    /// With the next sync sample.
    Next,
}

impl LiveStart {
    /// What a URL asks for, if it does.
    #[must_use]
    pub fn of_url(uri: &str) -> Option<Self> {
        let uri = uri.split('#').next().unwrap_or_default();
        let (url, _) = uri.split_once('?').unwrap_or((uri, ""));
        Self::of_parts(url).or_else(|| Self::of_query(uri))
    }

    /// What the query of a URL asks for. Players append the name of a track to the whole.
    pub(super) fn of_query(uri: &str) -> Option<Self> {
        let (_, query) = uri.split('#').next()?.split_once('?')?;
        let mut parameters = query.split('&');
        parameters.find_map(|it| Self::of_part(it.split('/').next()?))
    }

    /// What a part of a path asks for.
    pub(super) fn of_parts(path: &str) -> Option<Self> {
        path.split('/').find_map(|part| {
            let decoded = percent_decode_str(part).decode_utf8().ok()?;
            Self::of_part(&decoded)
        })
    }

    /// A decoded path without the parts that ask for it.
    pub(super) fn without(path: String) -> String {
        if Self::of_parts(&path).is_none() {
            return path;
        }
        let others = path.split('/').filter(|part| Self::of_part(part).is_none());
        others.collect::<Vec<_>>().join("/")
    }

    fn of_part(part: &str) -> Option<Self> {
        match part {
            "sync=last" => Some(Self::Last),
            "sync=next" => Some(Self::Next),
            _ => None,
        }
    }
}

impl fmt::Display for LiveStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Last => "sync=last",
            Self::Next => "sync=next",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Target, base};
    use super::*;

    #[test]
    fn a_url_says_where_a_viewer_begins() {
        let (next, last) = (Some(LiveStart::Next), Some(LiveStart::Last));
        for (url, start) in [
            ("rtsp://h/live/cam", None),
            ("rtsp://h/live/cam?sync=next", next),
            ("rtsp://h/live/cam?x=y&sync=last#z", last),
            ("rtsp://h/live/cam?token=a.b.c&sync=next", next),
            ("rtsp://h/live/cam?sync=next/track1", next),
            ("rtsp://h/live/cam/sync=next/track1", next),
            ("/live/cam/sync%3Dlast/track1?srtp", last),
            ("rtsp://h/live/cam?sync=soon", None),
            ("rtsp://h/live/cam?async=next", None),
            ("rtsp://h/live/cam#?sync=next", None),
        ] {
            assert_eq!(LiveStart::of_url(url), start, "{url}");
            let Ok(Target::Path(path)) = Target::parse(url) else {
                panic!("{url}");
            };
            let name = path.split("/srtp").next().unwrap();
            assert_eq!(name.trim_end_matches("/track1"), "live/cam", "{url}");
        }
    }

    #[test]
    fn a_base_says_it_once_where_no_query_is_kept() {
        for (url, expected) in [
            ("rtsp://h/live/cam?sync=next", "rtsp://h/live/cam/sync=next"),
            (
                "rtsp://h/live/cam/sync=next/?sync=last",
                "rtsp://h/live/cam/sync=next",
            ),
            (
                "rtsp://h/live/cam?sync=last&tracks=elementary",
                "rtsp://h/live/cam/tracks=elementary/sync=last",
            ),
        ] {
            let base = base(url);
            assert_eq!(base, expected);
            assert_eq!(LiveStart::of_url(&base), LiveStart::of_url(url));
            let track = format!("{base}/track2");
            let Ok(Target::Path(path)) = Target::parse(&track) else {
                panic!("{track}");
            };
            assert!(
                path.ends_with("/track2") && !path.contains("sync="),
                "{path}"
            );
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(uri in "(sync=next|sync%3D|[/?#&%=a]){0,20}") {
            let _any = LiveStart::of_url(&uri);
            let _any = LiveStart::without(uri);
        }
    }
}
