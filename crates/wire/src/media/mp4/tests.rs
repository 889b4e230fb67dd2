//! MP4 and QuickTime files, whole and broken, pushed in pieces of any size.

use super::*;
use crate::media::samples::Sample;

pub(super) mod builder;
mod clocks;
mod copied;
mod ending;
mod ffprobe;
mod fragments;
mod hostile;
mod plain;

/// The index of a file, of which each push brings no more than `at_once` bytes.
fn pushed(file: &[u8], at_once: usize) -> Result<SampledIndex, Mp4Error> {
    let mut scanner = Scanner::default();
    read(&mut scanner, file, at_once)?;
    scanner.finish()
}

fn read(scanner: &mut Scanner, file: &[u8], at_once: usize) -> Result<(), Mp4Error> {
    while let Some(wanted) = scanner.wants(file.len() as u64) {
        let start = usize::try_from(wanted.start).unwrap();
        let end = usize::try_from(wanted.end).unwrap().min(start + at_once);
        assert!(start < end && end <= file.len(), "{wanted:?}");
        scanner.push(&file[start..end])?;
    }
    Ok(())
}

fn index(file: &[u8]) -> SampledIndex {
    pushed(file, usize::MAX / 2).unwrap()
}

/// A file with room for samples behind what tells of them.
fn padded(file: &[u8]) -> Vec<u8> {
    [file, &[0; 8000]].concat()
}

fn samples(track: &SampledTrack) -> Vec<Sample> {
    let samples = (0..track.samples.len()).map(|at| track.samples.get(at).unwrap());
    samples.collect()
}

/// The only track of a file.
fn only(index: &SampledIndex) -> &SampledTrack {
    assert_eq!(index.sampled.len(), 1, "{:?}", index.left_out);
    &index.sampled[0]
}

/// Why the only track of a file is left out, or the problems that it has.
fn told(file: &[u8]) -> String {
    match pushed(file, usize::MAX / 2) {
        Ok(index) => only(&index).facts.problems.join("; "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn files_are_known_by_their_first_box() {
    for name in [
        "ftyp", "moov", "mdat", "free", "skip", "wide", "pnot", "styp", "sidx", "moof",
    ] {
        let first = [&[0, 0, 0, 24], name.as_bytes()].concat();
        assert!(is_one(&first), "{name}");
    }
    assert!(is_one(b"\0\0\0\x01mdat"));
    assert!(is_one(b"\0\0\0\0mdat"));
    assert!(!is_one(b"\0\0\0\x07ftyp"));
    assert!(!is_one(b"\x1a\x45\xdf\xa3\0\0\0\0"));
    assert!(!is_one(b"G\0\0\0\0\0\0\0"));
    assert!(!is_one(b"\0\0\0"));
}
