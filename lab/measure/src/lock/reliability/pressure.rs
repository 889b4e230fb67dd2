//! What makes the kernel move pages: holes and compaction, and reclaim into a swap file.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use onrush_lock::bare::{self, Private};
use onrush_lock::memory::available_bytes;

use super::subject::Subject;
use super::{DOES, frames};
use crate::error::ExperimentError;
use crate::setup::system;

/// The swap file that the run makes and removes; one that an interrupted run has left is removed
/// too.
pub const SWAP_FILE: &str = "/var/tmp/onrush-bench-lock.swap";

/// Fills memory, frees every other page of it, and has the kernel make large blocks of the rest.
pub(super) fn compact(hog_bytes: usize) -> Result<(), ExperimentError> {
    let half = usize::try_from(available_bytes() / 2).unwrap_or(usize::MAX);
    let mut hog = Private::map(hog_bytes.min(half)).map_err(system("map memory"))?;
    hog.write(1);
    hog.perforate();
    for _ in 0..3 {
        fs::write("/proc/sys/vm/compact_memory", "1").map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => ExperimentError::Root(DOES),
            _ => system("compact memory")(source).into(),
        })?;
    }
    Ok(())
}

/// Has the kernel reclaim everything, again and again.
pub(super) fn push_out(subjects: &[Subject], time: Duration) -> Result<(), ExperimentError> {
    let begin = Instant::now();
    while begin.elapsed() < time {
        for subject in subjects {
            // Locked memory is refused, and that is well.
            bare::page_out(&subject.mapped.bytes()).ok();
        }
        frames(subjects)?;
    }
    // The last time nobody touches it, so that what is gone comes back elsewhere.
    for subject in subjects {
        bare::page_out(&subject.mapped.bytes()).ok();
    }
    Ok(())
}

/// A swap file that is in use as long as this lives.
pub(super) struct Swap;

impl Swap {
    pub(super) fn on(bytes: usize) -> Result<Self, ExperimentError> {
        let mut options = File::options();
        let file = options.write(true).create_new(true).mode(0o600);
        let mut file = file.open(SWAP_FILE).map_err(system("make a swap file"))?;
        let swap = Self;
        let zeros = vec![0; 1 << 20];
        for _ in 0..bytes / zeros.len() {
            file.write_all(&zeros).map_err(system("fill a swap file"))?;
        }
        drop(file);
        for program in ["mkswap", "swapon"] {
            let output = Command::new(program).arg(SWAP_FILE).output();
            let output = output.map_err(system("run mkswap and swapon (util-linux)"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(system("swap to a file")(io::Error::other(said)).into());
            }
        }
        Ok(swap)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        remove_swap();
    }
}

pub(super) fn remove_swap() {
    if Path::new(SWAP_FILE).exists() {
        // It fails when the file was not yet swapped to; then it only has to go.
        Command::new("swapoff").arg(SWAP_FILE).output().ok();
        fs::remove_file(SWAP_FILE).ok();
    }
}
