//! What is looked at now and then, and let go: by the device that it lies on, and folder by folder,
//! so that one that does not answer delays nobody who looks at another.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::{Entry, Folder, Library, Media, Place};

/// How often films make room for clients: who finds none asks again and again, and each film that
/// is let go of is looked at anew by who asks for it next.
const ROOM_MADE_EVERY: Duration = Duration::from_secs(1);

impl Library {
    /// The films that are known, whether anybody plays them or not.
    pub(crate) fn known(&self) -> Vec<Arc<Media>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let all = entries.by_name.values();
        all.filter_map(|entry| entry.slot.get()?.clone().ok())
            .collect()
    }

    /// The devices that files lie on which are known.
    pub(crate) fn devices(&self) -> BTreeSet<u64> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let all = entries.by_name.values();
        all.map(|entry| entry.identity.device).collect()
    }

    /// Lets go of files of this device that nobody plays and that nobody will ask for any more, so
    /// that a removed file's space is freed, and of what is only needed to read those that stay.
    /// Cheap enough for every few seconds; asks the file system, so it may block.
    pub(crate) fn sweep(&self, device: u64) {
        let lock = || self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let idle: Vec<_> = lock()
            .by_name
            .iter()
            .filter(|(_, entry)| entry.identity.device == device && entry.is_unused())
            .filter_map(|(name, entry)| {
                let media = entry.slot.get()?.as_ref().ok()?;
                Some((name.clone(), Arc::downgrade(media)))
            })
            .collect();
        for (name, looked_at) in idle {
            let Some(is_stale) = looked_at.upgrade().map(|media| media.is_gone()) else {
                continue;
            };
            let mut entries = lock();
            let same = |entry: &Entry| {
                let is_it = |own: &Arc<Media>| std::ptr::eq(Arc::as_ptr(own), looked_at.as_ptr());
                matches!(entry.slot.get(), Some(Ok(own)) if is_it(own)) && entry.is_unused()
            };
            if is_stale && entries.by_name.get(&name).is_some_and(same) {
                entries.by_name.remove(&name);
            }
        }
    }

    /// The folders that files lie in.
    pub(crate) fn folders(&self) -> Vec<Arc<Folder>> {
        let all = self.places.all().into_iter();
        all.filter_map(|(_, place)| match place {
            Place::Folder(folder) => Some(Arc::clone(folder)),
            Place::Store(_) => None,
        })
        .collect()
    }

    /// Descriptors that its films take now.
    pub(crate) fn descriptors(&self) -> usize {
        let counters = &self.settings.reading.counters;
        let of_store = |place: &Place| match place {
            Place::Folder(_) => 0,
            Place::Store(remote) => remote.stats().open_files.load(Ordering::Relaxed),
        };
        let of_stores: u64 = self.places.all().iter().map(|it| of_store(it.1)).sum();
        let of_stores = usize::try_from(of_stores).unwrap_or(usize::MAX);
        of_stores.saturating_add(counters.descriptors.load(Ordering::Relaxed))
    }

    /// Whether there are descriptors for a client, as `suffice` says: asked again, if there are
    /// not, once files are let go of that nobody uses.
    pub(crate) fn has_descriptors(&self, suffice: impl Fn() -> bool) -> bool {
        suffice() || self.make_room() && suffice()
    }

    /// Lets go of all files that nobody uses, if that is due. Whether there were any.
    fn make_room(&self) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let made = &mut entries.room_made;
        let is_due = made.is_none_or(|at| at.elapsed() >= ROOM_MADE_EVERY);
        if is_due {
            *made = Some(Instant::now());
        }
        drop(entries);
        is_due && self.let_go_of_unused()
    }

    /// Lets go of all files that nobody uses. Whether there were any.
    pub(super) fn let_go_of_unused(&self) -> bool {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let before = entries.by_name.len();
        entries.by_name.retain(|_, entry| !entry.is_unused());
        let mut were_any = entries.by_name.len() < before;
        drop(entries);
        // A store has its films open for longer than anybody here.
        for (_, place) in self.places.all() {
            if let Place::Store(remote) = place {
                were_any |= remote.let_go_of_unused();
            }
        }
        were_any
    }
}
