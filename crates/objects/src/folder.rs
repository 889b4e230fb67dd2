//! The folder of a cache that outlives its process: a file of blocks and an index of each version.
//!
//! One process has the folder, by a lock that the kernel lets go of when that process ends, however
//! it does. What lies there of another process is read by [`Donor`] alone, and believed if it has
//! its checksum. Files whose names are not of the cache stay as they are.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, linkat, openat,
};
use rustix::io::Errno;
use tracing::{info, warn};

use crate::BLOCK_BYTES;
use crate::index::{self, INDEX_BYTES_MAX, Identity, SLOT_BYTES, Slot, block_range};

const LOCK: &str = "lock";
const BLOCKS: &str = "blocks";
const INDEX: &str = "index";

/// Letters of what the names of a version's files begin with.
const STEM_LETTERS: usize = 32;

/// Who may write into the folder beside its owner and its group: nobody.
const WRITTEN_BY_OTHERS: u32 = 0o002;

/// A folder that this process has.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// Locked until it is closed.
    _lock: File,
}

/// Why a folder cannot be had.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// Another process has it, of that number if it says so.
    InUse(String),
    System(io::Error),
}

/// A version whose blocks, as far as their slots say, are there.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) identity: Identity,
    pub(crate) slots: Vec<(u64, Slot)>,
}

/// The files of one version that another process may have.
#[derive(Debug)]
pub(crate) struct Donor {
    identity: Identity,
    blocks: File,
    index: File,
}

impl Folder {
    /// Has the folder for this process.
    pub(crate) fn take(path: &Path) -> Result<Self, NotTaken> {
        let mode = fs::metadata(path).map_err(NotTaken::System)?.mode();
        if mode & WRITTEN_BY_OTHERS != 0 {
            let text = "everybody may write here, and so put other bytes into films; chmod o-w it";
            let error = io::Error::new(io::ErrorKind::PermissionDenied, text);
            return Err(NotTaken::System(error));
        }
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nofollow())
            .open(path.join(LOCK));
        let mut lock = lock.map_err(NotTaken::System)?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut number = String::new();
                // Who has it is for people to know.
                drop((&lock).take(20).read_to_string(&mut number));
                return Err(NotTaken::InUse(number.trim().to_owned()));
            }
            Err(error) => return Err(NotTaken::System(error.into())),
        }
        let number = format!("{}\n", std::process::id());
        if let Err(error) = lock
            .set_len(0)
            .and_then(|()| lock.write_all(number.as_bytes()))
        {
            info!("object cache: who has it does not stand in its lock: {error}");
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// What is there, as its indices say. What belongs to no whole index goes.
    pub(crate) fn load(&self) -> io::Result<Vec<Kept>> {
        let (mut indices, mut files, mut foreign) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_file = entry.file_type().is_ok_and(|it| it.is_file());
            match name.to_str().and_then(stem_of).filter(|_| is_file) {
                Some((stem, INDEX)) => drop(indices.insert(stem.to_owned())),
                Some((stem, _)) => drop(files.insert(stem.to_owned())),
                None if name == OsStr::new(LOCK) => {}
                None => foreign.push(name),
            }
        }
        if let Some(first) = foreign.first() {
            let (path, all) = (self.path.display(), foreign.len());
            warn!("object cache: {all} files of {path} are not of it, {first:?} first; they stay");
        }
        let mut kept = Vec::new();
        for stem in indices.union(&files) {
            match self.load_one(stem) {
                Ok(Some(one)) => kept.push(one),
                Ok(None) => self.remove_stem(stem),
                Err(error) => warn!("object cache: {stem} is not used: {error}"),
            }
        }
        Ok(kept)
    }

    fn load_one(&self, stem: &str) -> io::Result<Option<Kept>> {
        let (index, file) = (self.opened(stem, INDEX), self.opened(stem, BLOCKS));
        let (index, file) = match (index, file) {
            (Err(error), _) | (_, Err(error)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            (index, file) => (index?, file?),
        };
        let mut bytes = Vec::new();
        index.take(INDEX_BYTES_MAX).read_to_end(&mut bytes)?;
        let metadata = file.metadata()?;
        let read = index::read(&bytes);
        let read = read.filter(|(it, _)| it.stem() == stem && it.file_bytes == metadata.len());
        let Some((identity, slots)) = read else {
            warn!("object cache: the index {stem} is torn; its blocks are asked for again");
            return Ok(None);
        };
        if slots.is_empty() {
            return Ok(None);
        }
        // What was written, and whose slot was not, is room that nobody counts.
        if metadata.blocks() * 512 > slots.len() as u64 * BLOCK_BYTES {
            let there: BTreeSet<_> = slots.iter().map(|slot| slot.0).collect();
            let gaps = (0..identity.blocks()).filter(|it| !there.contains(it));
            punch(&file, gaps)?;
        }
        Ok(Some(Kept { identity, slots }))
    }

    /// Gives a file that has no name its version's, and an index with these slots.
    pub(crate) fn name(
        &self,
        file: &File,
        identity: &Identity,
        slots: &[(u64, Slot)],
    ) -> io::Result<()> {
        self.remove(identity);
        let stem = identity.stem();
        let named = || {
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(0o600);
            let index = options.open(self.path(&stem, INDEX))?;
            index.write_all_at(&identity.header(), 0)?;
            let slots = slots.iter().map(|&(block, slot)| (block, Some(slot)));
            self.note(identity, slots)?;
            let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
            let path = self.path(&stem, BLOCKS);
            linkat(CWD, unnamed, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
            Ok(())
        };
        named().inspect_err(|_| self.remove(identity))
    }

    /// The blocks of a version that is there.
    pub(crate) fn open(&self, identity: &Identity) -> io::Result<File> {
        let file = self.opened(&identity.stem(), BLOCKS)?;
        match file.metadata()?.len() == identity.file_bytes {
            true => Ok(file),
            false => Err(io::Error::other("it has another length than its object")),
        }
    }

    /// Writes slots; `None` for a block that is there no more.
    pub(crate) fn note(
        &self,
        identity: &Identity,
        slots: impl IntoIterator<Item = (u64, Option<Slot>)>,
    ) -> io::Result<()> {
        let index = match self.opened(&identity.stem(), INDEX) {
            // Of what has no index nobody believes anything.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            index => index?,
        };
        for (block, slot) in slots {
            let bytes = identity.slot_bytes(block, slot);
            index.write_all_at(&bytes, identity.slot_offset(block))?;
        }
        Ok(())
    }

    /// Takes a version's names away. Who has its blocks open has them still.
    pub(crate) fn remove(&self, identity: &Identity) {
        self.remove_stem(&identity.stem());
    }

    fn remove_stem(&self, stem: &str) {
        // Without an index the blocks count as none.
        for ending in [INDEX, BLOCKS] {
            let path = self.path(stem, ending);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    warn!("object cache: {} stays: {error}", path.display());
                }
                _ => {}
            }
        }
    }

    fn opened(&self, stem: &str, ending: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(nofollow());
        options.open(self.path(stem, ending))
    }

    fn path(&self, stem: &str, ending: &str) -> PathBuf {
        self.path.join(format!("{stem}.{ending}"))
    }
}

impl Donor {
    /// What the process that has the folder keeps of a version, if it does.
    pub(crate) fn open(folder: &Path, identity: &Identity) -> io::Result<Self> {
        let open = |ending| {
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(nofollow());
            options.open(folder.join(format!("{}.{ending}", identity.stem())))
        };
        Ok(Self {
            blocks: open(BLOCKS)?,
            index: open(INDEX)?,
            identity: identity.clone(),
        })
    }

    /// A block, if it is there and whole.
    pub(crate) fn read(&self, block: u64) -> Option<Vec<u8>> {
        let mut slot = [0; SLOT_BYTES];
        let offset = self.identity.slot_offset(block);
        self.index.read_exact_at(&mut slot, offset).ok()?;
        let slot = Slot::read(block, &slot)?;
        let range = block_range(block, self.identity.file_bytes);
        whole(&self.blocks, range, slot.checksum).ok()?
    }
}

/// The folder at `path`, locked until it is closed. One of /var/tmp with nothing but files without
/// names looks empty, and systemd-tmpfiles removes it after a month, unless it is locked
/// (tmpfiles.d(5)).
pub(crate) fn open_locked(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, path, flags, Mode::empty())?;
    // Shared, because other servers may have it, too.
    if let Err(error) = flock(&folder, FlockOperation::NonBlockingLockShared) {
        let path = path.display();
        info!("object cache: {path} is not locked, and may be removed while it is empty: {error}");
    }
    Ok(folder)
}

/// A file without a name in this folder, all of it a hole.
pub(crate) fn unnamed(folder: impl AsFd, file_bytes: u64) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = File::from(openat(folder, ".", flags, Mode::RUSR | Mode::WUSR)?);
    file.set_len(file_bytes)?;
    Ok(file)
}

/// These bytes of a file, if they have that checksum.
pub(crate) fn whole(file: &File, range: Range<u64>, checksum: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).expect("a block")];
    file.read_exact_at(&mut bytes, range.start)?;
    Ok((index::checksum(&bytes) == checksum).then_some(bytes))
}

/// Gives the room of these blocks back, which are in order: neighbours at once.
pub(crate) fn punch(file: &File, blocks: impl Iterator<Item = u64>) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let punch = |run: Range<u64>| {
        let length = (run.end - run.start) * BLOCK_BYTES;
        fallocate(file, flags, run.start * BLOCK_BYTES, length)
    };
    let mut run = 0..0;
    for block in blocks {
        if block != run.end {
            if !run.is_empty() {
                punch(run)?;
            }
            run = block..block;
        }
        run.end = block + 1;
    }
    if !run.is_empty() {
        punch(run)?;
    }
    Ok(())
}

/// Whether the disk has no more room, or none for this account.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// The parts of a name that the cache gives.
fn stem_of(name: &str) -> Option<(&str, &str)> {
    let (stem, ending) = name.split_once('.')?;
    let is_digit = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    let is_stem = stem.len() == STEM_LETTERS && stem.bytes().all(is_digit);
    (is_stem && matches!(ending, INDEX | BLOCKS)).then_some((stem, ending))
}

/// Nobody has a link of that name lead elsewhere.
fn nofollow() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).expect("a flag of open(2)")
}
