//! Encrypted images of a file that all of its viewers share (SRTP).

use std::sync::Arc;

use onrush_wire::srtp::Suite;

use super::{Media, Opened, change};
use crate::library::film_keys::FilmKeys;
use crate::store::{Backing, Source};

impl Media {
    /// The keys that new viewers of its encrypted images are told, if there can be such images: not
    /// while the file grows or is not read to its end yet, because its last packet, of which there
    /// is more later, would be encrypted twice.
    #[must_use]
    pub fn film_keys(&self, suite: Suite) -> Option<Arc<FilmKeys>> {
        let keys = || self.film_keys.current(suite, self.tracks());
        (!self.goes_on()).then(keys)
    }

    /// Those that a description has named so.
    #[must_use]
    pub fn film_keys_named(&self, suite: Suite, nonce: [u8; 16]) -> Option<Arc<FilmKeys>> {
        self.film_keys.named(suite, nonce)
    }

    /// As [`Self::source`], of images that are encrypted with such a key, once for all who get
    /// them. `None` also if the file goes on after all, or there are no more SSRCs for its images.
    ///
    /// # Panics
    ///
    /// If there is no such track.
    #[must_use]
    pub fn encrypted_source(
        &self,
        keys: &FilmKeys,
        track: usize,
        payload_bytes_max: usize,
        chunk_bytes: usize,
    ) -> Option<Arc<Source>> {
        self.plan(track, payload_bytes_max)?;
        let state = self.state();
        if state.known.goes_on() {
            return None;
        }
        let (cut, plan) = state.planned(track, payload_bytes_max)?;
        let plan = plan?;
        let (of, now) = ((track, cut.number()), Arc::clone(&plan));
        let source = keys.source(of, self.origins[track], |origin, cipher| {
            let backing: Arc<dyn Backing> = Arc::<Opened>::clone(&self.opened);
            let source = Source::encrypted((plan, origin), backing, chunk_bytes, cipher)?;
            for (part, reason) in &state.changes {
                change(&source, part, reason);
            }
            Some(source)
        });
        // Of what the file was before it went on there is one, too.
        source
            .filter(|source| Arc::ptr_eq(&source.plan(), &now))
            .cloned()
    }
}
