//! What a publisher announces, or a camera answers: a session description.

use onrush_wire::media::TRACKS_MAX;
use onrush_wire::sdp::{AnnouncedTrack, FORMAT_PARAMETERS_BYTES_MAX, announced, described};

use crate::memory::bounded;

/// What reading a description may hold beside some times the description.
const MEMORY_BYTES: usize = 64 << 10;

/// Reads a description.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let memory_max = MEMORY_BYTES + 64 * input.len();
    let described = bounded(memory_max, || described(input));
    if let Ok(tracks) = bounded(memory_max, || announced(input)) {
        assert_eq!(described.as_ref(), Ok(&tracks), "all can be carried");
    }
    if let Ok(tracks) = described {
        judge(&tracks);
    }
}

fn judge(tracks: &[AnnouncedTrack]) {
    assert!((1..=TRACKS_MAX).contains(&tracks.len()));
    for (number, track) in tracks.iter().enumerate() {
        let has_control = |text: &String| text.chars().any(char::is_control);
        let parameters = track.track.format_parameters.as_ref();
        assert!(parameters.is_none_or(|it| it.len() <= FORMAT_PARAMETERS_BYTES_MAX));
        assert!(
            !parameters.is_some_and(has_control),
            "it is repeated to players"
        );
        assert!(!track.control.as_ref().is_some_and(has_control));
        let others = &tracks[..number];
        assert!(others.iter().all(|other| other.control != track.control));
    }
}
