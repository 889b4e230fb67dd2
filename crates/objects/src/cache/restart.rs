//! What a cache has of the process before it, and leaves to the one after it.
//!
//! Of a successor, whose predecessor has the folder as long as it serves anybody, the files have no
//! names yet, and each block that the predecessor has is copied when somebody wants it. When the
//! folder is free they get their names, with the rest of what the predecessor had of those films.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use tracing::{info, warn};

use super::{Block, Blocks, Cache, Found, Key, State, Version};
use crate::failure::Failure;
use crate::folder::{Folder, Kept, punch};
use crate::index::{Identity, Slot};

impl Cache {
    /// Has the folder from now on, with what is there; what is too much for this cache goes, the
    /// oldest first.
    pub(crate) fn adopt(&self, folder: Folder) -> io::Result<()> {
        let mut all = folder.load()?;
        for kept in &all {
            self.copy(kept);
        }
        let mut blocks = self.lock();
        // Whoever looks for it waits for the lock then.
        let folder = self.folder.get_or_init(|| folder);
        let named: BTreeSet<_> = name_open(&mut blocks, folder).into_iter().collect();
        all.retain(|kept| !named.contains(&kept.identity));
        let mut order: Vec<_> = all
            .iter()
            .enumerate()
            .flat_map(|(of, kept)| kept.slots.iter().map(move |&slot| (slot.1.used, of, slot)))
            .collect();
        order.sort_unstable_by_key(|&(used, of, (block, _))| (used, of, block));
        let room = self.blocks_max.saturating_sub(blocks.known.len());
        let oldest = order.len().saturating_sub(room);
        let mut goes: Vec<Vec<u64>> = vec![Vec::new(); all.len()];
        for &(_, of, (block, _)) in &order[..oldest] {
            goes[of].push(block);
        }
        let numbers: Vec<_> = all
            .into_iter()
            .zip(goes)
            .map(|(kept, goes)| keep(&mut blocks, folder, kept, goes))
            .collect();
        // In that order, and all of it before what this process uses.
        let stays = &order[oldest..];
        let first = blocks.began - stays.len() as u64;
        for (used, &(_, of, (block, slot))) in (first..).zip(stays) {
            let Some(number) = numbers[of] else { continue };
            let known = Block {
                state: State::Unchecked,
                checksum: slot.checksum,
                holders: 0,
                used,
            };
            blocks.insert((number, block), known);
            blocks.idle.insert(used, (number, block));
        }
        self.count(&blocks);
        let (path, films) = (self.path.display(), blocks.named.len());
        let (blocks, gone) = (stays.len(), oldest);
        if !order.is_empty() {
            info!("object cache: {path}: {blocks} blocks of {films} films; {gone} are too many");
        }
        Ok(())
    }

    /// What another process has of a version that is open here, and this one has not.
    fn copy(&self, kept: &Kept) {
        let version = {
            let blocks = self.lock();
            let mut all = blocks.versions.iter();
            let found = all.find(|(_, it)| it.is_current && *it.identity == kept.identity);
            found.and_then(|(&number, it)| Some((number, it.file.clone()?, it.donor.clone()?)))
        };
        let Some((number, file, donor)) = version else {
            return;
        };
        for &(block, _) in &kept.slots {
            let key = (number, block);
            if self.lock().known.len() >= self.blocks_max {
                return;
            }
            if self.knows(key) {
                continue;
            }
            let Some(bytes) = donor.read(block) else {
                continue;
            };
            if let Found::Missing(tell) = self.find(key, false) {
                let written = self.write(key, &file, &bytes);
                self.settle(key, written.as_ref().ok().copied());
                let outcome = written.map(drop).map_err(|error| {
                    Failure::unknown(format!("the object cache cannot be written: {error}"))
                });
                tell.send_replace(Some(outcome));
            }
        }
    }

    /// Writes down when blocks were used, for the process after this one.
    pub(crate) fn note_uses(&self) {
        let Some(folder) = self.folder.get() else {
            return;
        };
        let mut used: BTreeMap<Arc<Identity>, Vec<(u64, Option<Slot>)>> = BTreeMap::new();
        let mut keys: Vec<(Arc<Identity>, Key)> = Vec::new();
        {
            let mut blocks = self.lock();
            for (&when, &key) in blocks.idle.range(blocks.noted..) {
                let Some(version) = blocks.versions.get(&key.0).filter(|it| it.is_named) else {
                    continue;
                };
                let checksum = blocks.known[&key].checksum;
                let identity = Arc::clone(&version.identity);
                let slot = Slot {
                    checksum,
                    used: when,
                };
                keys.push((Arc::clone(&identity), key));
                let slots = used.entry(identity).or_default();
                slots.push((key.1, Some(slot)));
            }
            blocks.noted = blocks.uses + 1;
        }
        for (identity, slots) in used {
            if let Err(error) = folder.note(&identity, slots) {
                self.tell(|| warn!("object cache: when blocks were used is not noted: {error}"));
            }
        }
        // Those that went meanwhile.
        let blocks = self.lock();
        let gone = keys.iter().filter(|it| !blocks.known.contains_key(&it.1));
        for (identity, key) in gone {
            drop(folder.note(identity, [(key.1, None)]));
        }
    }
}

/// Gives the files that are open their names; whose they are.
fn name_open(blocks: &mut Blocks, folder: &Folder) -> Vec<Identity> {
    let mut named = Vec::new();
    let Blocks {
        known,
        versions,
        named: names,
        ..
    } = blocks;
    let current = versions.iter_mut().filter(|(_, it)| it.is_current);
    for (&number, version) in current {
        let Some(file) = &version.file else { continue };
        let slots = (0..version.identity.blocks()).filter_map(|block| {
            let known = known.get(&(number, block))?;
            let (checksum, used) = (known.checksum, known.used);
            matches!(known.state, State::There).then_some((block, Slot { checksum, used }))
        });
        let slots: Vec<_> = slots.collect();
        match folder.name(file, &version.identity, &slots) {
            Ok(()) => {
                version.is_named = true;
                names.insert(Arc::clone(&version.identity), number);
            }
            Err(error) => {
                let path = &version.identity.path;
                warn!("object {path:?}: what is here of it ends with this process: {error}");
            }
        }
        version.donor = None;
        named.push(Identity::clone(&version.identity));
    }
    named
}

/// Takes a version up, without the blocks that are too many; its number, if there are others.
fn keep(blocks: &mut Blocks, folder: &Folder, kept: Kept, mut goes: Vec<u64>) -> Option<u64> {
    let Kept { identity, slots } = kept;
    if goes.len() == slots.len() {
        folder.remove(&identity);
        return None;
    }
    goes.sort_unstable();
    let file = folder.open(&identity);
    let punched = file.and_then(|file| punch(&file, goes.iter().copied()));
    let gone = goes.iter().map(|&block| (block, None));
    if let Err(error) = punched.and_then(|()| folder.note(&identity, gone)) {
        warn!("object cache: the room of blocks is not given back: {error}");
    }
    Some(blocks.add(Version {
        identity: Arc::new(identity),
        file: None,
        is_open: false,
        is_named: true,
        is_current: true,
        donor: None,
        blocks: 0,
    }))
}
