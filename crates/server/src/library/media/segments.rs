//! A film cut into segments, for HLS and DASH.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use onrush_wire::hls::Version;
use onrush_wire::media::segments::{Segmented, SegmentsError};
use tracing::info;

use super::Media;
use crate::library::identity::{FNV_BASIS, Identity, digest, fnv};
use crate::remote::FilmFile;

/// Changes where films are cut, or subtitles are read, in another way: nobody then takes segments
/// of the one for those of the other.
const LAYOUT: u64 = 4;

/// A film longer than this in one segment is told of.
const LONG_NS: u64 = 60_000_000_000;

/// What a film is once it is cut, or why it has no segments; or that nobody has asked.
pub(super) type Cut = Result<Arc<Segmented>, SegmentsError>;

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
            (Arc::clone(&state.index), !state.goes_on())
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
        if Arc::ptr_eq(&state.index, &index) && state.goes_on() != is_whole {
            state.segments = Some(cut.clone());
        }
        cut
    }

    /// Whether [`Self::segmented`] has the answer at hand.
    #[must_use]
    pub fn is_segmented(&self) -> bool {
        self.state().segments.is_some()
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
            (state.identity, state.digest, state.grows)
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
