//! Reading of a file what its index needs, to learn what it holds.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onrush_sys::fs::{advise_done, advise_sequential};
use onrush_wire::media::ts::clock_span_ns;
use onrush_wire::media::{Index, ScanError, Scanner};

use super::identity::{Identity, digest};
use super::settings::{Reading, Settings};
use crate::remote::FilmFile;

/// What reading a file has told.
#[derive(Debug)]
pub(super) struct Scanned {
    pub(super) index: Arc<Index>,
    pub(super) identity: Identity,
    /// What its two ends amount to.
    pub(super) digest: u64,
    /// If it grows, or not all of it was read.
    pub(super) growth: Option<Scanner>,
    /// How long it seems to be, if it was not read to its end.
    pub(super) estimate_ns: Option<u64>,
}

/// What is known of a file from before, if it is: nothing of one that may still be written.
pub(super) fn restored(
    name: &str,
    file: &FilmFile,
    identity: Identity,
    settings: &Settings,
) -> Option<Scanned> {
    let saved = settings.saved.as_ref();
    let saved = saved.filter(|_| identity.age() >= settings.growth_time_max)?;
    let is_elementary = settings.options.is_elementary;
    Some(Scanned {
        index: Arc::new(saved.find(name, &file.file, identity, is_elementary)?),
        identity,
        digest: digest(file, identity),
        growth: None,
        estimate_ns: None,
    })
}

/// What is read of a file before it is played, at the least; the rest is read behind it.
const FIRST_READ_BYTES: u64 = 8 << 20;

/// So much of it must be known then, unless it is shorter.
const FIRST_READ_NS: u64 = 4_000_000_000;

/// Read of each end of a transport stream, to see how long it is.
const END_BYTES: usize = 1 << 20;

/// How much is read at once while indexing, of what is read in order, and of what lies apart.
const READ_BYTES: usize = 1 << 20;
const READ_APART_BYTES: usize = 16 << 10;

/// What is looked at of bytes that are in memory already counts as so many read ones, and as an
/// eighth of its own: of films whose samples lie over each other it is most of the work.
const LOOK_BYTES: u64 = 16;

/// Of a file, so much at its end may stay in the page cache once indexed, and all if it is not
/// longer; of the rest the pages are let go, since their packets are read past it.
const KEPT_BYTES_MAX: u64 = 64 << 20;

/// How a reading ended that nothing went wrong with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Read {
    /// All is read that the index needs.
    All,
    /// As much as was allowed.
    Enough,
    /// The file ends before what was wanted.
    Ended,
}

/// Reads so much of `file` that it can be played from its start, or all if it is short, and indexes
/// that. One that was changed a moment ago, or is while it is read, counts as growing.
pub(super) fn scan(
    file: &FilmFile,
    identity: Identity,
    settings: &Settings,
) -> io::Result<Result<Scanned, String>> {
    // First: pages that are let go of below are not read again for it.
    let digest = digest(file, identity);
    advise_sequential(&file.file);
    let mut scanner = Scanner::new(settings.options);
    let end = identity.file_bytes;
    let read = loop {
        let reading = &settings.reading;
        let read = match read(file, &mut scanner, FIRST_READ_BYTES, end, reading)? {
            Ok(read) => read,
            Err(error) => return Ok(Err(error.to_string())),
        };
        if read != Read::Enough {
            break read;
        }
        let Ok(index) = scanner.settled() else {
            continue;
        };
        if index.known_ns() >= FIRST_READ_NS {
            return Ok(Ok(Scanned {
                estimate_ns: Some(estimated_ns(file, &mut scanner, &index, end)),
                index: Arc::new(index),
                identity,
                digest,
                growth: Some(scanner),
            }));
        }
    };
    let after = Identity::now(file, identity)?;
    if after.file_bytes < end || read == Read::Ended {
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
            digest,
            growth: grows.then_some(scanner),
            estimate_ns: None,
        })
        .map_err(|error| error.to_string()))
}

/// How long a file is of which only a part is known: as the container says, or as the clock at its
/// end does, or as its rate so far lets expect.
fn estimated_ns(file: &FilmFile, scanner: &mut Scanner, index: &Index, end: u64) -> u64 {
    let (known_ns, told_ns) = (index.known_ns(), index.duration_ns());
    let is_stream = index.is_transport_stream();
    let Some(wanted) = scanner.wants(end).filter(|_| is_stream) else {
        return told_ns;
    };
    let by_rate = u128::from(known_ns) * u128::from(end) / u128::from(wanted.start.max(1));
    let by_rate = u64::try_from(by_rate).unwrap_or(u64::MAX);
    let bytes_at = |offset: u64| {
        let mut bytes = vec![0; END_BYTES];
        file.read_exact_at(&mut bytes, offset)
            .is_ok()
            .then_some(bytes)
    };
    let (head, tail) = (bytes_at(0), bytes_at(end.saturating_sub(END_BYTES as u64)));
    let by_clock = head.zip(tail);
    let by_clock = by_clock.and_then(|(head, tail)| clock_span_ns(&head, &tail));
    // A clock that has jumped, or begun again, says anything.
    let is_likely = |span_ns: &u64| (by_rate / 2..by_rate.saturating_mul(2)).contains(span_ns);
    by_clock.filter(is_likely).unwrap_or(by_rate).max(told_ns)
}

/// Gives `scanner` all that it wants of a file as it is now.
///
/// # Errors
///
/// If the file cannot be read; inside, if it cannot be served.
pub fn read_whole(file: &File, scanner: &mut Scanner) -> io::Result<Result<(), ScanError>> {
    let end = file.metadata()?.len();
    let read = read(
        &file.try_clone()?.into(),
        scanner,
        u64::MAX,
        end,
        &Reading::default(),
    )?;
    Ok(read.map(|_| ()))
}

/// Gives `scanner` what it wants of a file that ends at `end`, but not more than `bytes_max` of it.
pub(super) fn read(
    file: &FilmFile,
    scanner: &mut Scanner,
    bytes_max: u64,
    end: u64,
    reading: &Reading,
) -> io::Result<Result<Read, ScanError>> {
    let (mut buffer, mut held) = (Vec::new(), 0..0);
    let mut left = bytes_max;
    let mut last_end = 0;
    while let Some(wanted) = scanner.wants(end) {
        if reading.stopping.load(Ordering::Relaxed) {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the server is stopping",
            ));
        }
        if left == 0 {
            return Ok(Ok(Read::Enough));
        }
        if held.contains(&wanted.start) && held.contains(&(wanted.end - 1)) {
            let bytes = wanted.end - wanted.start;
            left = left.saturating_sub(LOOK_BYTES + bytes / 8);
        } else {
            // What lies apart is a few bytes here and there; what is read around them is found in
            // memory then, and no more is read than a disk reads anyway.
            let is_apart = wanted.start != last_end && wanted.end < end;
            let at_once = match is_apart {
                true => READ_APART_BYTES,
                false => READ_BYTES,
            };
            let wanted_bytes = usize::try_from(wanted.end - wanted.start).unwrap_or(usize::MAX);
            let of_file = usize::try_from(end - wanted.start).unwrap_or(usize::MAX);
            let allowed = usize::try_from(left).unwrap_or(usize::MAX);
            let bytes = wanted_bytes
                .max(at_once)
                .min(READ_BYTES)
                .min(of_file)
                .min(allowed);
            buffer.resize(bytes, 0);
            let read = match file.read_at(&mut buffer, wanted.start) {
                Ok(0) => return Ok(Ok(Read::Ended)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            held = wanted.start..wanted.start + read as u64;
            last_end = held.end;
            let bytes_read = &reading.counters.bytes_read;
            bytes_read.fetch_add(read as u64, Ordering::Relaxed);
            left = left.saturating_sub(read as u64);
            if held.start + KEPT_BYTES_MAX < end {
                advise_done(&file.file, held.start, read as u64);
            }
        }
        let from = usize::try_from(wanted.start - held.start).unwrap_or(usize::MAX);
        let until = wanted.end.min(held.end) - held.start;
        let until = usize::try_from(until).unwrap_or(usize::MAX);
        if let Err(error) = scanner.push(&buffer[from..until]) {
            return Ok(Err(error));
        }
    }
    Ok(Ok(Read::All))
}
