//! The URL of a SETUP: how long it may be, and what is kept of it while its session lives.
//!
//! RTP-Info names a track as its client did, so that a session keeps the URL. A query, in which a
//! token may be, makes it long and is let go then; what makes it long without one is refused.

use std::borrow::Cow;

use super::url::{base, track_behind_query, track_name};

/// Bytes of the URL of a SETUP, but for its query; and of what is kept of all of it.
pub const SETUP_URL_BYTES_MAX: usize = 2048;

/// Whether the URL of a SETUP is too long to be kept, also without its query.
#[must_use]
pub(super) fn is_too_long(uri: &str) -> bool {
    kept_setup_url(uri).len() > SETUP_URL_BYTES_MAX
}

/// What is kept of the URL of a SETUP: all of it, or if that is too long the presentation's
/// [`base`], with the track that players have put behind the query.
#[must_use]
pub fn kept_setup_url(uri: &str) -> Cow<'_, str> {
    if uri.len() <= SETUP_URL_BYTES_MAX {
        return uri.into();
    }
    let (whole, behind) = track_behind_query(uri);
    let url = base(whole);
    match behind {
        Some(number) => format!("{url}/{}", track_name(number)).into(),
        None => url.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_query_is_let_go_and_its_track_stays() {
        let token = "a".repeat(SETUP_URL_BYTES_MAX);
        let (one, other) = ("rtsp://h/a.mp4/track1", "rtsp://h/a.mp4/track2");
        for (uri, kept) in [
            ("rtsp://h/a.mp4/track1?token=x", None),
            ("rtsp://h/a.mp4?token=x/track1", None),
            ("rtsp://h/a.mp4/track1?token=TOKEN", Some(one)),
            ("rtsp://h/a.mp4?token=TOKEN/track2", Some(other)),
            ("rtsp://h/a.mp4/?token=TOKEN/track2/", Some(other)),
            ("rtsp://h/a.mp4?token=TOKEN", Some("rtsp://h/a.mp4")),
            ("rtsp://h/a.mp4#TOKEN", Some("rtsp://h/a.mp4")),
            (
                "rtsp://h/live/a?sync=next&token=TOKEN/track1",
                Some("rtsp://h/live/a/sync=next/track1"),
            ),
        ] {
            let uri = uri.replace("TOKEN", &token);
            assert_eq!(kept_setup_url(&uri), kept.unwrap_or(&uri));
            assert!(!is_too_long(&uri), "{uri}");
        }
    }

    #[test]
    fn a_url_that_is_long_without_a_query_is_too_long() {
        let url = |bytes: usize| format!("rtsp://h/{}", "a".repeat(bytes - "rtsp://h/".len()));
        assert!(!is_too_long(&url(SETUP_URL_BYTES_MAX)));
        assert!(is_too_long(&url(SETUP_URL_BYTES_MAX + 1)));
        assert!(is_too_long(&(url(SETUP_URL_BYTES_MAX + 1) + "?x")));
    }
}
