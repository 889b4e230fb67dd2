//! A film cut into segments, for HLS and DASH.

use std::ops::Range;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use onrush_wire::hls::Version;
use onrush_wire::media::segments::{Segmented, SegmentsError};
use tracing::info;

use super::Media;
use crate::library::identity::{FNV_BASIS, Identity, digest, fnv};
use crate::library::settings::Settings;
use crate::remote::FilmFile;

/// Changes where films are cut, or subtitles are read, in another way: nobody then takes segments
/// of the one for those of the other.
const LAYOUT: u64 = 6;

/// A film longer than this in one segment is told of.
const LONG_NS: u64 = 60_000_000_000;

/// Segments that are listed at first of a film that is not read to its end, and how often there is
/// one more: a player takes six seconds for it.
const LISTED_FIRST: usize = 3;
const LISTED_EVERY_S: u64 = 3;

/// What a film is once it is cut, or why it has no segments; or that nobody has asked.
pub(super) type Cut = Result<Arc<Segmented>, SegmentsError>;

/// How playlists of a film begin that is not read to its end.
#[derive(Debug)]
pub(super) struct Beginning {
    /// When the first was asked for.
    asked: OnceLock<Instant>,
    /// The film was written a moment before it was opened.
    may_be_recording: bool,
}

impl Beginning {
    /// Of a film that was this when it was opened.
    pub(super) fn new(identity: Identity, settings: &Settings) -> Self {
        Self {
            asked: OnceLock::new(),
            may_be_recording: identity.age() < settings.growth_time_max,
        }
    }
}

impl Media {
    /// The film cut into segments, as far as it is known by now. Goes through all of its samples
    /// the first time, and may read a few bytes of it, so it may take a while.
    ///
    /// # Errors
    ///
    /// Why it has none.
    pub fn segmented(&self) -> Result<Arc<Segmented>, SegmentsError> {
        let at_hand = || self.state().segments.clone();
        if let Some(cut) = at_hand() {
            return cut;
        }
        let _cutting = self.cutting.lock().unwrap_or_else(PoisonError::into_inner);
        let (index, is_whole) = {
            let state = self.state();
            if let Some(cut) = &state.segments {
                return cut.clone();
            }
            (Arc::clone(&state.known.index), !state.known.goes_on())
        };
        let read = |part: Range<u64>| {
            let mut bytes = vec![0; usize::try_from(part.end - part.start).ok()?];
            let read = self.opened.file.read_exact_at(&mut bytes, part.start);
            read.ok().map(|()| bytes)
        };
        let cut = Segmented::new(&index, is_whole, read).map(Arc::new);
        if let Ok(film) = &cut {
            self.tell(film);
        }
        let mut state = self.state();
        // What was published meanwhile is cut when somebody asks again.
        if Arc::ptr_eq(&state.known.index, &index) && state.known.goes_on() != is_whole {
            state.segments = Some(cut.clone());
        }
        cut
    }

    /// Whether [`Self::segmented`] has the answer at hand.
    #[must_use]
    pub fn is_segmented(&self) -> bool {
        self.state().segments.is_some()
    }

    /// How long ago a playlist of it was first asked for: it is now, if nobody had.
    pub(crate) fn asked_for(&self) -> Duration {
        self.beginning.asked.get_or_init(Instant::now).elapsed()
    }

    /// How many segments playlists list of a film that was cut before all of it was read, where
    /// whoever asked first has waited for so long; `None` for all, as of recordings.
    ///
    /// Players that know nothing of `EXT-X-START` begin at the third segment from the end: of three
    /// that is the first. The list grows as if the film were written.
    #[must_use]
    pub(crate) fn listed_max(&self, waited: Duration) -> Option<usize> {
        let is_recording = self.beginning.may_be_recording || self.grows();
        let since = self.asked_for().saturating_sub(waited);
        (!is_recording).then(|| listed_after(since))
    }

    /// The file, open.
    #[must_use]
    pub(crate) fn file(&self) -> FilmFile {
        self.opened.file.clone()
    }

    /// What names the bytes of the file in the URLs of its segments. Of a file that grows it stays
    /// as it is, because what is there does.
    #[must_use]
    pub fn version(&self) -> Version {
        let (identity, digest, grows) = {
            let state = self.state();
            let known = &state.known;
            (known.identity, known.digest, known.grows)
        };
        match grows {
            true => self.growing_version(),
            false => of_content(identity, digest),
        }
    }

    /// Whether URLs with this name mean the file as it is now.
    #[must_use]
    pub fn has_version(&self, version: Version) -> bool {
        version == self.version() || version == self.growing_version()
    }

    fn growing_version(&self) -> Version {
        let Identity { device, inode, .. } = self.identity();
        // Random, and the same for as long as what was read of it stays as it was.
        let ssrc = self.origins.first().map_or(0, |origin| origin.ssrc);
        hash([1, device, inode, ssrc.into()])
    }

    fn tell(&self, film: &Segmented) {
        for rendition in &film.renditions {
            let longest_ns = rendition.longest_ns();
            if longest_ns > LONG_NS {
                info!(
                    "{:?}: segments of {} of up to {} s, because decoders can start nowhere \
                     between",
                    self.name,
                    rendition.name,
                    longest_ns / 1_000_000_000
                );
            }
        }
    }
}

fn listed_after(elapsed: Duration) -> usize {
    let more = elapsed.as_secs() / LISTED_EVERY_S;
    LISTED_FIRST.saturating_add(usize::try_from(more).unwrap_or(usize::MAX))
}

/// What names the bytes of a file that does not grow, as [`Media::version`] does. Blocks.
pub(crate) fn version_of(file: &FilmFile, identity: Identity) -> Version {
    of_content(identity, digest(file, identity))
}

/// The same for every copy of the file that has its time: what one node's playlist names another
/// node may be asked for.
fn of_content(identity: Identity, digest: u64) -> Version {
    let modified = u64::try_from(identity.modified_ns & i128::from(u64::MAX)).unwrap_or(0);
    hash([2, digest, identity.file_bytes, modified])
}

fn hash(numbers: [u64; 4]) -> Version {
    let mix = |hash, number: u64| fnv(hash, &number.to_le_bytes());
    Version([LAYOUT].into_iter().chain(numbers).fold(FNV_BASIS, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_segment_is_listed_every_three_seconds() {
        let after = |ms| listed_after(Duration::from_millis(ms));
        assert_eq!([0, 2999, 3000, 60_000].map(after), [3, 3, 4, 23]);
    }
}
