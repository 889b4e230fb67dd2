//! Where pages are: frame numbers from the page map.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::error::{LockError, check, diagnose};
use super::{Kind, pointer};
use crate::memory::page_bytes;

/// Consecutive frames of physical memory: one entry of a scatter/gather map.
///
/// ```
/// use onrush_lock::Block;
///
/// let block = Block { frame: 0x1234, frames: 16 };
/// let (address, bytes) = (block.frame << 12, block.frames << 12); // With pages of 4 KiB.
/// assert_eq!((address, bytes), (0x123_4000, 65_536));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Block {
    /// The number of the first frame.
    pub frame: u64,
    /// How many there are.
    pub frames: usize,
}

/// How many pages of `bytes`, whole pages, are in memory before anybody locks them. For a shared
/// segment none means that this is its first use: a lock makes the pages. After others have used it
/// a lock finds them, and only maps them. Pages that are swapped out count as absent.
///
/// ```
/// use onrush_lock::{Kind, Manager, Segment, pages_in_memory};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let segment = Segment::sysv(64 << 10)?;
/// assert_eq!(pages_in_memory(&segment.bytes())?, 0); // Nobody has used it: the paper's table 2.
/// let area = Manager::of_process().lock(segment.bytes(), Kind::Resident)?;
/// drop(area);
/// assert_eq!(pages_in_memory(&segment.bytes())?, 16); // Table 1, from here on.
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Those of a range that cannot be locked. The kernel tells only who may write the file behind a
/// mapping, and calls everything present to others.
pub fn pages_in_memory(bytes: &Range<usize>) -> Result<usize, LockError> {
    check(bytes)?;
    // A length that is a mistake must not be asked of the allocator: not having it is no error
    // there, but the end of the program.
    let mut pages = vec![0u8; PAGES_ASKED_MAX.min(bytes.len() / page_bytes())];
    let part_bytes = pages.len() * page_bytes();
    let mut count = 0;
    for start in bytes.clone().step_by(part_bytes) {
        let part = start..bytes.end.min(start.saturating_add(part_bytes));
        let pages = &mut pages[..part.len() / page_bytes()];
        let to = pages.as_mut_ptr();
        // SAFETY: mincore writes a byte for every page of the part, and `pages` has as many.
        if unsafe { libc::mincore(pointer(&part).cast(), part.len(), to) } != 0 {
            let source = io::Error::last_os_error();
            return Err(diagnose(bytes, Kind::Resident, source));
        }
        count += pages.iter().filter(|&&page| page & 1 == 1).count();
    }
    Ok(count)
}

/// The frame of every page of `bytes`, whole pages, in order.
///
/// Every page is touched first. A page of a shared mapping can be in memory and pinned and yet not
/// be in the page table of this process, because reclaim took it out of there.
pub(super) fn read(bytes: &Range<usize>, kind: Kind) -> Result<Vec<u64>, LockError> {
    let map = File::open("/proc/self/pagemap").map_err(|source| LockError::PageMap { source })?;
    let page_bytes = page_bytes();
    let mut entries = vec![0u8; bytes.len() / page_bytes * 8];
    let offset = (bytes.start / page_bytes * 8) as u64;
    let mut absent = None;
    // A page that the kernel is just moving is in no page table for a moment. Touching waits for
    // it.
    for _ in 0..TRIES_MAX {
        touch(bytes, kind)?;
        map.read_exact_at(&mut entries, offset)
            .map_err(|source| LockError::PageMap { source })?;
        absent = entries.chunks_exact(8).position(|e| !is_present(entry(e)));
        if absent.is_none() {
            break;
        }
    }
    if let Some(page) = absent {
        let address = bytes.start + page * page_bytes;
        return Err(LockError::Absent { address });
    }
    let frames: Vec<u64> = entries
        .chunks_exact(8)
        .map(|e| entry(e) & FRAME_MASK)
        .collect();
    // Frame 0 is the firmware's on every machine we know: a zero is a number withheld.
    if frames.contains(&0) {
        return Err(LockError::FramesHidden);
    }
    Ok(frames)
}

/// Joins consecutive frames.
pub(super) fn blocks(frames: &[u64]) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for &frame in frames {
        match blocks.last_mut() {
            Some(last) if last.frame + last.frames as u64 == frame => last.frames += 1,
            _ => blocks.push(Block { frame, frames: 1 }),
        }
    }
    blocks
}

/// Pages that the kernel is asked about at once.
const PAGES_ASKED_MAX: usize = 1 << 16;

/// How often a page may be on its way somewhere when it is looked for.
const TRIES_MAX: usize = 100;

/// Documentation/admin-guide/mm/pagemap.rst: bits 0 to 54 are the frame number if bit 63 says
/// present.
const FRAME_MASK: u64 = (1 << 55) - 1;

fn is_present(entry: u64) -> bool {
    entry >> 63 == 1
}

fn entry(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("an entry has eight bytes"))
}

fn touch(bytes: &Range<usize>, kind: Kind) -> Result<(), LockError> {
    // A private page that was never written shows the frame of zeros, which is not its own.
    if kind == Kind::OnFault && advise(bytes, libc::MADV_POPULATE_WRITE).is_ok() {
        return Ok(());
    }
    let Err(source) = advise(bytes, libc::MADV_POPULATE_READ) else {
        return Ok(());
    };
    if matches!(source.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) {
        return Ok(());
    }
    Err(diagnose(bytes, kind, source))
}

fn advise(bytes: &Range<usize>, advice: libc::c_int) -> io::Result<()> {
    debug_assert!(matches!(
        advice,
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE
    ));
    // SAFETY: the advice given here brings pages in and changes no contents; what is not mapped is
    // an error.
    let result = unsafe { libc::madvise(pointer(bytes).cast(), bytes.len(), advice) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_frames_that_follow_each_other_are_one_block() {
        let block = |frame, frames| Block { frame, frames };
        assert_eq!(blocks(&[]), []);
        assert_eq!(blocks(&[7]), [block(7, 1)]);
        assert_eq!(
            blocks(&[7, 8, 9, 11, 10, 9, 10]),
            [block(7, 3), block(11, 1), block(10, 1), block(9, 2)]
        );
    }
}
