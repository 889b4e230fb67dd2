//! The keys of a file whose encrypted images all viewers share (SRTP), and the sources of these.
//!
//! They live as long as the file is open: who opens it anew gets others. A description names them
//! by a random number; whoever sets up what it describes is found to mean them by that.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use onrush_wire::media::{CUTS_MAX, RtpOrigin};
use onrush_wire::srtp::Suite;

use crate::random::random;
use crate::store::{FilmKey, ImageCipher, Source};

/// The keys of all tracks of a file, for one suite.
#[derive(Debug)]
pub struct FilmKeys {
    suite: Suite,
    nonce: [u8; 16],
    tracks: Box<[TrackKey]>,
    /// The file has gone on since: new viewers are told others.
    is_retired: AtomicBool,
}

#[derive(Debug)]
struct TrackKey {
    key: Arc<FilmKey>,
    /// By the numbers of its cuts.
    sources: [OnceLock<Option<Arc<Source>>>; CUTS_MAX],
}

/// Those of a file that are in use: one for each suite, and those that are worn but have viewers.
#[derive(Debug, Default)]
pub(super) struct FilmKeysInUse(Mutex<Vec<Arc<FilmKeys>>>);

/// What the number of shared keys has in its first bit; those of others have it not.
const SHARED: u8 = 0x80;

impl FilmKeys {
    fn new(suite: Suite, tracks: usize) -> Self {
        let track = |_| TrackKey {
            key: Arc::new(FilmKey::new(suite)),
            sources: Default::default(),
        };
        Self {
            suite,
            nonce: marked(random(), true),
            tracks: (0..tracks).map(track).collect(),
            is_retired: AtomicBool::new(false),
        }
    }

    /// What a description names them by.
    #[must_use]
    pub fn nonce(&self) -> [u8; 16] {
        self.nonce
    }

    /// That of a track.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn track(&self, track: usize) -> &Arc<FilmKey> {
        &self.tracks[track].key
    }

    /// Encrypted images of a track that is cut so, made by `make` when they are first asked for,
    /// with an SSRC of their own; `None` if there cannot be any.
    pub(super) fn source(
        &self,
        (track, cut): (usize, usize),
        plain: RtpOrigin,
        make: impl FnOnce(RtpOrigin, ImageCipher) -> Option<Source>,
    ) -> Option<&Arc<Source>> {
        let TrackKey { key, sources } = &self.tracks[track];
        let source = sources[cut].get_or_init(|| {
            let [high, low] = random();
            let origin = RtpOrigin {
                // Far from where numbers wrap, so that many begin with those that have not.
                sequence: u16::from_be_bytes([high & 0x3f, low]),
                ssrc: key.take_ssrc()?,
                ..plain
            };
            make(origin, ImageCipher::new(key)).map(Arc::new)
        });
        source.as_ref()
    }

    fn is_worn(&self) -> bool {
        let is_retired = self.is_retired.load(Ordering::Relaxed);
        is_retired || self.tracks.iter().any(|track| track.key.is_worn())
    }

    fn sources(&self) -> impl Iterator<Item = &Arc<Source>> {
        let sources = self.tracks.iter().flat_map(|track| &track.sources);
        sources.filter_map(OnceLock::get).flatten()
    }
}

impl FilmKeysInUse {
    /// Those that new viewers are told.
    pub(super) fn current(&self, suite: Suite, tracks: usize) -> Arc<FilmKeys> {
        let mut all = self.all();
        let is_it = |keys: &&Arc<FilmKeys>| keys.suite == suite && !keys.is_worn();
        if let Some(keys) = all.iter().find(is_it) {
            return Arc::clone(keys);
        }
        all.retain(|keys| !keys.is_worn() || Arc::strong_count(keys) > 1);
        let keys = Arc::new(FilmKeys::new(suite, tracks));
        all.push(Arc::clone(&keys));
        keys
    }

    /// Those of that number.
    pub(super) fn named(&self, suite: Suite, nonce: [u8; 16]) -> Option<Arc<FilmKeys>> {
        let mut all = self.all().clone().into_iter();
        all.find(|keys| keys.suite == suite && keys.nonce == nonce)
    }

    /// New viewers are told others from now on.
    pub(super) fn retire(&self) {
        for keys in &*self.all() {
            keys.is_retired.store(true, Ordering::Relaxed);
        }
    }

    /// Their sources.
    pub(super) fn sources(&self) -> Vec<Arc<Source>> {
        let all = self.all();
        all.iter()
            .flat_map(|keys| keys.sources())
            .cloned()
            .collect()
    }

    fn all(&self) -> MutexGuard<'_, Vec<Arc<FilmKeys>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A random number for shared keys, or for others.
pub(crate) fn marked(nonce: [u8; 16], is_shared: bool) -> [u8; 16] {
    let [first, rest @ ..] = nonce;
    let mark = if is_shared { SHARED } else { 0 };
    let mut marked = [0; 16];
    marked[0] = first & !SHARED | mark;
    marked[1..].copy_from_slice(&rest);
    marked
}

/// Whether a number is of shared keys, of whichever file.
pub(crate) fn is_marked(nonce: [u8; 16]) -> bool {
    nonce[0] & SHARED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_has_keys_until_they_are_worn() {
        let keys = FilmKeysInUse::default();
        let first = keys.current(Suite::AesCm128HmacSha1, 2);
        assert!(is_marked(first.nonce()) && !is_marked(marked([0xff; 16], false)));
        let again = keys.current(Suite::AesCm128HmacSha1, 2);
        assert!(Arc::ptr_eq(&first, &again));
        let masters = |keys: &FilmKeys| [0, 1].map(|track| keys.track(track).master().to_bytes());
        let [one, two] = masters(&first);
        assert_ne!(one, two, "each track has its own");
        let gcm = keys.current(Suite::AeadAes128Gcm, 2);
        assert_ne!(gcm.nonce(), first.nonce());
        assert!(keys.named(Suite::AeadAes128Gcm, first.nonce()).is_none());
        assert!(keys.named(Suite::AesCm128HmacSha1, first.nonce()).is_some());
        first.track(1).wear(crate::store::FILM_KEY_USES_MAX);
        let next = keys.current(Suite::AesCm128HmacSha1, 2);
        assert_ne!(next.nonce(), first.nonce(), "others are told another");
        let named = keys.named(Suite::AesCm128HmacSha1, first.nonce());
        assert!(named.is_some(), "those who have the first can set up");
    }
}
