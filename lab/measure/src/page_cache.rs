//! Files that the page cache has nothing of: made so, and counted.

use std::fs::File;
use std::io;
use std::thread;
use std::time::Duration;

use onrush_primitives::map::{Mapped, forget};

/// Makes the page cache forget a file, and makes sure that it did.
///
/// # Errors
///
/// If pages stay: on a file system that lives in memory there is no cold file.
pub(crate) fn make_cold(file: &File, bytes: usize) -> io::Result<()> {
    for _ in 0..TRIES_MAX {
        forget(file)?;
        if is_cold(file, bytes).is_ok() {
            return Ok(());
        }
        // What the disk is bringing just now stays until it is there: the end of a read-ahead.
        thread::sleep(TRY);
    }
    forget(file)?;
    is_cold(file, bytes)
}

const TRY: Duration = Duration::from_millis(20);
const TRIES_MAX: usize = 25;

/// Makes sure that none of the first `bytes` of a file are in the page cache, by `mincore`.
///
/// # Errors
///
/// If some are, with how many pages.
pub(crate) fn is_cold(file: &File, bytes: usize) -> io::Result<()> {
    let resident = Mapped::map(file, bytes)?.resident()?;
    match resident.iter().filter(|page| **page).count() {
        0 => Ok(()),
        stay => Err(io::Error::other(format!(
            "{stay} of {} pages stay in the page cache",
            resident.len()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_in_the_page_cache_is_not_cold() {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        let refused = is_cold(&file, 1 << 20).unwrap_err().to_string();
        assert!(refused.contains(" of 256 pages stay"), "{refused}");
    }

    #[test]
    fn a_file_that_lives_in_memory_cannot_be_made_cold() {
        let file = onrush_lock::memfd(1 << 20).unwrap();
        (&file).write_all(&vec![7; 1 << 20]).unwrap();
        assert!(make_cold(&file, 1 << 20).is_err());
    }
}
