//! Memory that is watched: made, held in the way of its row, and found by other processes.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::process::Command;

use onrush_lock::bare::{self, Private};
use onrush_lock::{Kind, LockedArea, Manager, Segment, memfd, posix, unlink_posix};

use super::worker::{Task, Worker};
use super::{Hold, Memory};
use crate::error::ExperimentError;
use crate::setup::system;

/// Memory that is watched, and what holds it.
pub(super) struct Subject {
    pub(super) memory: Memory,
    pub(super) hold: Hold,
    pub(super) address: String,
    // Before the memory: what holds it goes first.
    _area: Option<LockedArea>,
    holder: Option<Worker>,
    pub(super) mapped: Mapped,
    /// Whose descriptor the address names.
    _file: Option<File>,
}

/// Mapped memory, of either kind.
pub(in crate::lock) enum Mapped {
    Private(Private),
    Segment(Segment),
}

impl Subject {
    pub(super) fn new(
        memory: Memory,
        hold: Hold,
        bytes: usize,
        worker: &dyn Fn(&str, Task, u64) -> Command,
    ) -> Result<Self, ExperimentError> {
        let (mapped, file, address) = memory.make(bytes)?;
        let range = mapped.bytes();
        let manager = Manager::of_process();
        // Everything is in memory before it is held.
        drop(manager.lock(range.clone(), Kind::Resident)?);
        let mut subject = Self {
            memory,
            hold,
            address,
            _area: None,
            holder: None,
            mapped,
            _file: file,
        };
        match hold {
            Hold::Unlocked => {}
            Hold::Mlock => bare::mlock(&range).map_err(system("mlock"))?,
            Hold::ShmLock => {
                if let Mapped::Segment(segment) = &subject.mapped
                    && let Some(id) = segment.sysv_id()
                {
                    bare::shm_lock(id).map_err(system("lock a SysV segment"))?;
                }
            }
            Hold::Resident => subject._area = Some(manager.lock(range, Kind::Resident)?),
            Hold::Pinned => subject._area = Some(manager.lock(range, Kind::Pinned)?),
            Hold::PinnedElsewhere => {
                let holder = Worker::start(worker(&subject.address, Task::Hold, 1))?;
                subject.holder = Some(holder);
            }
        }
        Ok(subject)
    }
}

impl Mapped {
    pub(in crate::lock) fn bytes(&self) -> Range<usize> {
        match self {
            Self::Private(private) => private.bytes(),
            Self::Segment(segment) => segment.bytes(),
        }
    }

    /// Its number, if it is a SysV segment.
    pub(in crate::lock) fn sysv_id(&self) -> Option<i32> {
        match self {
            Self::Private(_) => None,
            Self::Segment(segment) => segment.sysv_id(),
        }
    }
}

impl Memory {
    pub(super) fn holds(self) -> &'static [Hold] {
        use Hold::{Mlock, Pinned, PinnedElsewhere, Resident, ShmLock, Unlocked};
        match self {
            Self::Private => &[Unlocked, Mlock, Resident, Pinned],
            Self::Sysv => &[Unlocked, Mlock, ShmLock, Resident, Pinned, PinnedElsewhere],
            Self::Posix | Self::Memfd => &[Unlocked, Mlock, Resident, Pinned, PinnedElsewhere],
        }
    }

    /// Makes some, with the address by which `attach` finds it.
    fn make(self, bytes: usize) -> Result<(Mapped, Option<File>, String), ExperimentError> {
        let file = match self {
            Self::Private => {
                let mut private = Private::map(bytes).map_err(system("map memory"))?;
                private.write(1);
                return Ok((Mapped::Private(private), None, String::new()));
            }
            Self::Sysv => {
                let segment = Segment::sysv(bytes)?;
                let address = format!("sysv:{}", segment.sysv_id().unwrap_or(-1));
                return Ok((Mapped::Segment(segment), None, address));
            }
            Self::Posix => {
                let name = format!("/onrush-bench-{}", std::process::id());
                let file = posix(&name, bytes)?;
                unlink_posix(&name)?;
                file
            }
            Self::Memfd => memfd(bytes)?,
        };
        let segment = Segment::map(&file, bytes)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let address = format!("file:{bytes}:{path}");
        Ok((Mapped::Segment(segment), Some(file), address))
    }
}

#[cfg(test)]
mod tests {
    use super::super::PAGE_BYTES;
    use super::super::worker::attach;
    use super::*;

    #[test]
    fn addresses_of_shared_memory_are_understood() {
        for memory in [Memory::Sysv, Memory::Posix, Memory::Memfd] {
            let (mapped, _file, address) = memory.make(3 * PAGE_BYTES).unwrap();
            let other = attach(&address).unwrap();
            assert_eq!(other.bytes().len(), mapped.bytes().len());
        }
        for wrong in ["", "sysv:x", "file:9", "file:x:/dev/null"] {
            assert!(attach(wrong).is_err(), "{wrong}");
        }
    }
}
