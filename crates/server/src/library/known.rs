//! Which films are known, for whoever watches the server.

use std::sync::{Arc, PoisonError};

use super::{Library, Media};

impl Library {
    /// The films that are known, whether anybody plays them or not.
    pub(crate) fn known(&self) -> Vec<Arc<Media>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let all = entries.by_name.values();
        all.filter_map(|entry| entry.slot.get()?.clone().ok())
            .collect()
    }
}
