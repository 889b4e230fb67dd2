//! What makes a file the same file.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_sys::fs::cached_metadata;
use onrush_wire::media::Index;

use crate::remote::{FilmFile, RemoteFile};

/// What makes a file the same file as before.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Identity {
    /// The file system's device number.
    pub device: u64,
    /// The file's number on it.
    pub inode: u64,
    /// Its length.
    pub file_bytes: u64,
    /// When its bytes last changed, in ns since 1970.
    pub modified_ns: i128,
}

impl Identity {
    /// The identity of the file with this metadata.
    #[must_use]
    pub fn of(metadata: &Metadata) -> Self {
        let seconds = i128::from(metadata.mtime()) * 1_000_000_000;
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            file_bytes: metadata.size(),
            modified_ns: seconds + i128::from(metadata.mtime_nsec()),
        }
    }

    /// That of a film that lies elsewhere.
    pub(crate) fn remote(file: &RemoteFile) -> Self {
        Self {
            device: REMOTE_DEVICE,
            inode: file.version,
            file_bytes: file.file_bytes,
            modified_ns: file.modified_ns,
        }
    }

    /// The same without the time of what lies elsewhere: stored again it has another, and its
    /// number says that it is the same bytes. Nodes that opened it before and after agree by that.
    pub(crate) fn of_bytes(self) -> Self {
        match self.device {
            REMOTE_DEVICE => Self {
                modified_ns: 0,
                ..self
            },
            _ => self,
        }
    }

    /// That of an open file now, where `known` is what it was.
    pub(super) fn now(file: &FilmFile, known: Self) -> io::Result<Self> {
        match file.remote {
            Some(_) => Ok(known),
            None => file.file.metadata().map(|it| Self::of(&it)),
        }
    }

    /// Whether an open file still is what it was, by what the kernel has in memory of it: the one
    /// thread of downloads asks, and must not wait for a file server. One that does not tell is
    /// not.
    pub(crate) fn is_still(&self, file: &File) -> bool {
        cached_metadata(file).is_ok_and(|it| {
            let there = Self {
                device: it.device,
                inode: it.inode,
                file_bytes: it.file_bytes,
                modified_ns: it.modified_ns,
            };
            there == *self
        })
    }

    /// How far from now its bytes last changed. A time that is still to come, as of a camera whose
    /// clock is wrong, says as little of a file that is being written as one long ago.
    pub(super) fn age(&self) -> Duration {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let now_ns = i128::try_from(now.as_nanos()).unwrap_or(i128::MAX);
        let age_ns = now_ns.abs_diff(self.modified_ns);
        Duration::from_nanos(u64::try_from(age_ns).unwrap_or(u64::MAX))
    }
}

/// What was opened, if that is a regular file.
pub(super) fn identify(file: File) -> io::Result<(FilmFile, Identity)> {
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok((file.into(), Identity::of(&metadata)))
}

/// The same of what lies elsewhere.
pub(super) fn identified(of: RemoteFile) -> (FilmFile, Identity) {
    let identity = Identity::remote(&of);
    (of.into(), identity)
}

/// Of what lies elsewhere. No file system has it: what is so numbered is not for a user's
/// processes.
const REMOTE_DEVICE: u64 = u64::MAX;

/// Bytes at each end of a file by which it is told from others.
const DIGESTED_BYTES: u64 = 64 << 10;

/// What both ends of a file amount to: it tells films apart that are as long and as old, and is the
/// same for each copy of one. Of what lies elsewhere it is the number of its version. What cannot
/// be read counts for nothing. Blocks.
pub(super) fn digest(file: &FilmFile, identity: Identity) -> u64 {
    if file.remote.is_some() {
        return identity.inode;
    }
    let end = identity.file_bytes;
    let parts = [
        0..end.min(DIGESTED_BYTES),
        end.saturating_sub(DIGESTED_BYTES)..end,
    ];
    let mut bytes = Vec::new();
    parts.into_iter().fold(FNV_BASIS, |hash, part| {
        let length = part.end - part.start;
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        match file.read_exact_at(&mut bytes, part.start) {
            Ok(()) => fnv(hash, &bytes),
            Err(_) => hash,
        }
    })
}

/// What [`fnv`] begins with.
pub(super) const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, which is the same after a restart.
pub(super) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    let mix = |hash: u64, &byte: &u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, mix)
}

/// From where to where a file is another by now than when it was indexed, as far as is seen at so
/// many places. What cannot be read counts as the same.
pub(super) fn differing(file: &File, index: &Index, probes_max: usize) -> Option<Range<u64>> {
    let mut differing = index.probes(probes_max);
    let mut bytes = Vec::new();
    differing.retain(|probe| {
        let length = probe.part.end - probe.part.start;
        bytes.resize(usize::try_from(length).unwrap_or(0), 0);
        let read = file.read_exact_at(&mut bytes, probe.part.start);
        read.is_ok() && !probe.matches(&bytes)
    });
    Some(differing.first()?.part.start..differing.last()?.part.end)
}
