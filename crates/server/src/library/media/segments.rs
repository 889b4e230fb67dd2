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

/// A film that is written still, of hours, takes long to cut: what took longer than this is given
/// for so many times as long when more of the film is known. It is true still, and only ends
/// earlier. As films are read on twice a second, cutting takes a tenth of a processor at the most.
const CUT_QUICKLY: Duration = Duration::from_millis(50);
const CUT_HOLDS_TIMES: u32 = 10;

/// What a film is once it is cut, or why it has no segments.
type Cut = Result<Arc<Segmented>, SegmentsError>;

/// What it was cut into last.
#[derive(Debug)]
pub(super) struct LastCut {
    cut: Cut,
    took: Duration,
    /// More of it is known since: until when this is given.
    outdated: Option<Instant>,
}

impl LastCut {
    fn new(cut: Cut, took: Duration) -> Self {
        Self {
            cut,
            took,
            outdated: None,
        }
    }

    /// Something else is known of the film. Whether this is given on, for a while.
    fn outdate(&mut self, grows: bool, now: Instant) -> bool {
        let is_true_still = self.cut.as_ref().is_ok_and(|film| !film.is_complete);
        let stays = grows && is_true_still && self.took > CUT_QUICKLY;
        let until = now + CUT_HOLDS_TIMES * self.took;
        self.outdated.get_or_insert(until);
        stays
    }

    /// Takes it away if it is not given on, now that something else is known of the film.
    pub(super) fn retire(last: &mut Option<Self>, grows: bool) -> Option<Self> {
        last.take_if(|it| !it.outdate(grows, Instant::now()))
    }

    /// What it is, if that is given.
    fn at(&self, now: Instant) -> Option<&Cut> {
        let is_given = self.outdated.is_none_or(|until| now < until);
        is_given.then_some(&self.cut)
    }
}

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
        if let Some(cut) = self.cut_at_hand() {
            return cut;
        }
        let _cutting = self.cutting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cut) = self.cut_at_hand() {
            return cut;
        }
        let (index, is_whole) = {
            let state = self.state();
            (Arc::clone(&state.known.index), !state.known.goes_on())
        };
        let began = Instant::now();
        let read = |part: Range<u64>| {
            let mut bytes = vec![0; usize::try_from(part.end - part.start).ok()?];
            let read = self.opened.file.read_exact_at(&mut bytes, part.start);
            read.ok().map(|()| bytes)
        };
        let cut = Segmented::new(&index, is_whole, read).map(Arc::new);
        if let Ok(film) = &cut {
            self.tell(film);
        }
        let mut last = Some(LastCut::new(cut.clone(), began.elapsed()));
        let mut state = self.state();
        // What was published meanwhile is cut when somebody asks again, or a while later.
        if !Arc::ptr_eq(&state.known.index, &index) || state.known.goes_on() == is_whole {
            LastCut::retire(&mut last, state.known.grows);
        }
        if last.is_some() {
            state.segments = last;
        }
        cut
    }

    fn cut_at_hand(&self) -> Option<Cut> {
        let state = self.state();
        state.segments.as_ref()?.at(Instant::now()).cloned()
    }

    /// Whether [`Self::segmented`] has the answer at hand.
    #[must_use]
    pub fn is_segmented(&self) -> bool {
        self.cut_at_hand().is_some()
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

/// The same for every copy of the file that has its time, and for a film in a store at whatever
/// time it was stored: what one node's playlist names another node may be asked for.
fn of_content(identity: Identity, digest: u64) -> Version {
    let modified_ns = identity.of_bytes().modified_ns;
    let modified = u64::try_from(modified_ns & i128::from(u64::MAX)).unwrap_or(0);
    hash([2, digest, identity.file_bytes, modified])
}

fn hash(numbers: [u64; 4]) -> Version {
    let mix = |hash, number: u64| fnv(hash, &number.to_le_bytes());
    Version([LAYOUT].into_iter().chain(numbers).fold(FNV_BASIS, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As of an object that is stored again to give it another type.
    #[test]
    fn a_film_in_a_store_has_its_version_at_any_time() {
        let of = |device, version, modified_ns| {
            let identity = Identity {
                device,
                inode: version,
                file_bytes: 9,
                modified_ns,
            };
            of_content(identity, version)
        };
        let remote = u64::MAX;
        assert_eq!(of(remote, 7, 1), of(remote, 7, 2));
        assert_ne!(of(remote, 7, 1), of(remote, 8, 1));
        assert_ne!(of(1, 7, 1), of(1, 7, 2), "of files the time tells");
    }

    /// Else a recording of hours would be cut for whoever asks next, each time that it has grown.
    #[test]
    fn what_took_long_to_cut_is_given_on_while_a_film_grows() {
        let cut = |is_complete| {
            let (renditions, left_out) = (Vec::new(), Vec::new());
            Ok(Arc::new(Segmented {
                renditions,
                left_out,
                is_complete,
            }))
        };
        let (long, now) = (CUT_QUICKLY * 2, Instant::now());
        let stays = |cut, took, grows| LastCut::new(cut, took).outdate(grows, now);
        assert!(stays(cut(false), long, true));
        assert!(!stays(cut(false), CUT_QUICKLY, true), "it is cut anew");
        assert!(!stays(cut(false), long, false), "it has ended");
        assert!(!stays(cut(true), long, true), "it goes on behind its end");
        assert!(!stays(Err(SegmentsError::NoProgram), long, true));
        // It is given for no longer, however often the film grows.
        let mut last = LastCut::new(cut(false), long);
        let end = now + long * CUT_HOLDS_TIMES;
        assert!(last.at(end).is_some(), "nothing is known beyond it");
        last.outdate(true, now);
        last.outdate(true, now + long);
        assert!(last.at(end - long).is_some() && last.at(end).is_none());
    }

    #[test]
    fn one_more_segment_is_listed_every_three_seconds() {
        let after = |ms| listed_after(Duration::from_millis(ms));
        assert_eq!([0, 2999, 3000, 60_000].map(after), [3, 3, 4, 23]);
    }
}
