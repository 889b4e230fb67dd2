//! Sums up the sources of `media`: an index that was saved by a build of others is not read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What saved indexes depend on.
const SOURCES: &str = "src/media";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={SOURCES}");
    let mut files = Vec::new();
    files_below(Path::new(SOURCES), &mut files)?;
    files.sort();
    let mut sum = 0xcbf2_9ce4_8422_2325;
    for file in files {
        sum = added(sum, file.as_os_str().as_encoded_bytes());
        sum = added(sum, &fs::read(file)?);
    }
    println!("cargo::rustc-env=ONRUSH_MEDIA_SOURCES={sum}");
    Ok(())
}

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files_below(&entry.path(), files)?,
            false => files.push(entry.path()),
        }
    }
    Ok(())
}

/// FNV-1a.
fn added(sum: u64, bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(sum, add)
}
