//! Reading a file to make its index, whichever format it has.
//!
//! A [`Scanner`] asks for parts of a file and is given them; it does no input itself. Which format
//! a file has its first bytes say.

use std::ops::Range;

use thiserror::Error;

use super::container::Index;
#[cfg(any(test, feature = "testing"))]
use super::testing;
pub use super::ts::ScanOptions;
use super::{matroska, mp4, ts};

/// Why a file cannot be indexed.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ScanError {
    /// As an ISO base media file: MP4, MOV.
    #[error(transparent)]
    Mp4(#[from] mp4::Mp4Error),
    /// As a Matroska or WebM file.
    #[error(transparent)]
    Matroska(#[from] matroska::MatroskaError),
    /// As a transport stream, which it is or may be.
    #[error(transparent)]
    Ts(#[from] ts::MediaError),
    /// As a file of tests.
    #[cfg(any(test, feature = "testing"))]
    #[error("no packets of a first track")]
    Testing,
}

/// Reads a file and makes its [`Index`]: asks for parts of the file, and is given them. Of a file
/// that grows it makes an index as often as wanted.
#[derive(Clone, Debug)]
pub struct Scanner(Format);

#[derive(Clone, Debug)]
enum Format {
    /// Too little has come to know.
    Unknown(ScanOptions, Vec<u8>),
    Ts(Box<ts::Scanner>),
    /// The same as tracks of its elementary streams.
    TsTracks(Box<ts::Scanner>),
    Mp4(Box<mp4::Scanner>),
    Matroska(Box<matroska::Scanner>),
    #[cfg(any(test, feature = "testing"))]
    Testing(testing::Scanner),
}

/// Endings of the names of files that are played; capitals are as good.
pub const MEDIA_ENDINGS: [&str; 17] = [
    "ts", "m2ts", "mts", "m2t", "mpegts", "tp", "trp", "mp4", "m4v", "m4a", "mov", "3gp", "mkv",
    "mka", "mk3d", "webm", "qt",
];

/// Whether a file of this name may be one that is played, by its ending. What it is its first bytes
/// say.
#[must_use]
pub fn has_media_ending(name: &str) -> bool {
    let ending = name.rsplit('/').next().unwrap_or(name).rsplit_once('.');
    let is_it = |known: &&str| ending.is_some_and(|(_, it)| it.eq_ignore_ascii_case(known));
    MEDIA_ENDINGS.iter().any(is_it)
}

/// How many of a file's first bytes say what it is.
const FIRST_BYTES: usize = 8;

impl Default for Scanner {
    fn default() -> Self {
        Self::new(ScanOptions::default())
    }
}

impl Format {
    /// That of a file with these first bytes, given all of them; as long as a file has,
    /// [`FIRST_BYTES`].
    fn of(options: ScanOptions, first: &[u8]) -> Result<Self, ScanError> {
        #[cfg(any(test, feature = "testing"))]
        if first.starts_with(testing::MAGIC) {
            let mut scanner = testing::Scanner::default();
            scanner.push(first);
            return Ok(Self::Testing(scanner));
        }
        if mp4::is_one(first) {
            let mut scanner = mp4::Scanner::default();
            scanner.push(first)?;
            return Ok(Self::Mp4(Box::new(scanner)));
        }
        if matroska::is_one(first) {
            let mut scanner = Box::<matroska::Scanner>::default();
            scanner.push(first)?;
            return Ok(Self::Matroska(scanner));
        }
        let mut scanner = ts::Scanner::new(options);
        scanner.push(first)?;
        let scanner = Box::new(scanner);
        Ok(match options.is_elementary {
            true => Self::TsTracks(scanner),
            false => Self::Ts(scanner),
        })
    }
}

impl Scanner {
    /// A scanner at the start of a file.
    #[must_use]
    pub fn new(options: ScanOptions) -> Self {
        Self(Format::Unknown(options, Vec::new()))
    }

    /// Which bytes of a file that has `file_bytes` of them by now it wants next; `None` if it knows
    /// all that can be known of so much. Never empty.
    #[must_use]
    pub fn wants(&mut self, file_bytes: u64) -> Option<Range<u64>> {
        let all_from = |start: u64| (start < file_bytes).then_some(start..file_bytes);
        match &mut self.0 {
            Format::Unknown(_, first) => all_from(first.len() as u64),
            Format::Ts(scanner) | Format::TsTracks(scanner) => all_from(scanner.pushed_bytes()),
            Format::Mp4(scanner) => scanner.wants(file_bytes),
            Format::Matroska(scanner) => scanner.wants(file_bytes),
            #[cfg(any(test, feature = "testing"))]
            Format::Testing(scanner) => all_from(scanner.pushed_bytes()),
        }
    }

    /// Takes bytes of the file from where [`Self::wants`] begins, as many as the caller has: fewer,
    /// and it wants the rest next; more are welcome. How a file is split into pushes makes no
    /// difference.
    ///
    /// # Errors
    ///
    /// As soon as it is clear that the file cannot be served; there is no use in reading on.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), ScanError> {
        if let Format::Unknown(options, first) = &mut self.0 {
            let more = bytes.len().min(FIRST_BYTES - first.len());
            let taken;
            (taken, bytes) = bytes.split_at(more);
            first.extend_from_slice(taken);
            if first.len() < FIRST_BYTES {
                return Ok(());
            }
            self.0 = Format::of(*options, first)?;
            if matches!(self.0, Format::Mp4(_) | Format::Matroska(_)) {
                // What follows may be passed over: it says next what it wants.
                return Ok(());
            }
        }
        match &mut self.0 {
            Format::Unknown(..) => unreachable!("enough has come"),
            Format::Ts(scanner) | Format::TsTracks(scanner) => scanner.push(bytes)?,
            Format::Mp4(scanner) => scanner.push(bytes)?,
            Format::Matroska(scanner) => scanner.push(bytes)?,
            #[cfg(any(test, feature = "testing"))]
            Format::Testing(scanner) => scanner.push(bytes),
        }
        Ok(())
    }

    /// Takes all that it wants of a file that is in memory.
    ///
    /// # Errors
    ///
    /// As [`Self::push`].
    pub fn read(&mut self, file: &[u8]) -> Result<(), ScanError> {
        while let Some(wanted) = self.wants(file.len() as u64) {
            let start = usize::try_from(wanted.start).unwrap_or(usize::MAX);
            let end = usize::try_from(wanted.end).unwrap_or(usize::MAX);
            self.push(file.get(start..end).unwrap_or_default())?;
        }
        Ok(())
    }

    /// The index of what is certain so far, of a file that grows or is not read to its end: packets
    /// whose number and time stay what they are however it goes on.
    ///
    /// # Errors
    ///
    /// If there is nothing to play in it yet.
    pub fn settled(&self) -> Result<Index, ScanError> {
        match &self.0 {
            Format::Unknown(options, first) => Self(Format::of(*options, first)?).settled(),
            Format::Ts(scanner) => Ok(Index::of(scanner.settled()?)),
            Format::TsTracks(scanner) => Ok(Index::of(scanner.settled_tracks()?)),
            Format::Mp4(scanner) => Ok(Index::of(scanner.settled()?)),
            Format::Matroska(scanner) => Ok(Index::of(scanner.settled()?)),
            #[cfg(any(test, feature = "testing"))]
            Format::Testing(scanner) => scanner.clone().index().ok_or(ScanError::Testing),
        }
    }

    /// Ends the file and makes its index.
    ///
    /// # Errors
    ///
    /// If there is nothing to play in it.
    pub fn finish(self) -> Result<Index, ScanError> {
        match self.0 {
            Format::Unknown(options, first) => Self(Format::of(options, &first)?).finish(),
            Format::Ts(scanner) => Ok(Index::of(scanner.finish()?)),
            Format::TsTracks(scanner) => Ok(Index::of(scanner.finish_tracks()?)),
            Format::Mp4(scanner) => Ok(Index::of(scanner.finish()?)),
            Format::Matroska(scanner) => Ok(Index::of(scanner.finish()?)),
            #[cfg(any(test, feature = "testing"))]
            Format::Testing(scanner) => scanner.index().ok_or(ScanError::Testing),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever comes with the first bytes, also if it is more than they tell of.
    #[test]
    fn a_file_that_is_skipped_through_may_be_pushed_whole() {
        // A file type of 32 bytes, and media data that is all there is.
        let mut file = b"\0\0\0\x20ftypisom".to_vec();
        file.resize(32, 0);
        file.extend(b"\0\0\x10\0mdat");
        file.resize(32 + 4096, 0);
        let mut scanner = Scanner::default();
        scanner.push(&file).unwrap();
        assert_eq!(scanner.wants(file.len() as u64), Some(32..40));
        scanner.read(&file).unwrap();
        let error = scanner.finish().unwrap_err().to_string();
        assert!(error.starts_with("it has no movie box"), "{error}");
    }
}
