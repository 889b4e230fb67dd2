//! Reading a file from end to end, to learn what it holds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onrush_sys::fs::{advise_done, advise_sequential};
use onrush_wire::media::{Index, ScanError, Scanner};

use super::identity::{Identity, Settings};

/// What reading a file has told.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) index: Arc<Index>,
    pub(super) identity: Identity,
    /// If it grows.
    pub(super) growth: Option<Scanner>,
}

/// How much is read at once while indexing.
const READ_BYTES: usize = 1 << 20;

/// Of a file, so much at its end may stay in the page cache once indexed, and all if it is not
/// longer; of the rest the pages are let go, since their packets are read past it.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// Reads all of `file` and indexes it. One that was changed a moment ago, or is while it is read,
/// counts as growing.
pub(super) fn scan(
    file: &File,
    identity: Identity,
    settings: &Settings,
) -> io::Result<Result<Scanned, String>> {
    advise_sequential(file);
    let mut scanner = Scanner::new(settings.options);
    let end = identity.file_bytes;
    if let Err(error) = read(file, &mut scanner, end, end, &settings.stopping)? {
        return Ok(Err(error.to_string()));
    }
    let after = Identity::of(&file.metadata()?);
    if after.file_bytes < end || scanner.pushed_bytes() < end {
        return Err(io::Error::other(
            "the file was truncated while it was read; try again when it is complete",
        ));
    }
    let grows = after != identity || identity.age() < settings.growth_time_max;
    let index = match grows {
        true => scanner.settled(),
        false => scanner.clone().finish(),
    };
    Ok(index
        .map(|index| Scanned {
            index: Arc::new(index),
            identity,
            growth: grows.then_some(scanner),
        })
        .map_err(|error| error.to_string()))
}

/// Gives `scanner` what follows what it has had, up to byte `until` of a file that ends at `end`,
/// or up to where it ends indeed.
pub(super) fn read(
    file: &File,
    scanner: &mut Scanner,
    until: u64,
    end: u64,
    stopping: &AtomicBool,
) -> io::Result<Result<(), ScanError>> {
    let mut buffer = Vec::new();
    loop {
        let at = scanner.pushed_bytes();
        if at >= until {
            return Ok(Ok(()));
        }
        if stopping.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the server is stopping",
            ));
        }
        let left = usize::try_from(until - at).unwrap_or(READ_BYTES);
        buffer.resize(left.min(READ_BYTES), 0);
        let read = match file.read_at(&mut buffer, at) {
            Ok(0) => return Ok(Ok(())),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if let Err(error) = scanner.push(&buffer[..read]) {
            return Ok(Err(error));
        }
        if at + KEPT_BYTES_MAX < end {
            advise_done(file, at, read as u64);
        }
    }
}
