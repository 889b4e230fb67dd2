//! Why something cannot be stored or changed, in words for whoever asked.

use std::io;

/// Why something cannot be stored, or changed.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// A name that no file here has: hidden, or none at all.
    BadName,
    /// A name that is longer than the file system takes.
    LongName,
    /// A folder is there, or none is where one should be.
    NoPlace(&'static str),
    /// Somebody writes to it now, or too many write.
    Busy(&'static str),
    /// It cannot begin there: there are so many bytes.
    Offset(u64),
    /// Longer than a file may be.
    TooLarge(u64),
    /// There is no room.
    NoSpace,
    /// What the system says.
    System(io::Error),
}

impl From<io::Error> for UploadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::NoSpace,
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                Self::NoPlace("there is no such folder")
            }
            io::ErrorKind::IsADirectory => Self::NoPlace("a folder is there"),
            io::ErrorKind::DirectoryNotEmpty => Self::NoPlace("the folder is not empty"),
            io::ErrorKind::AlreadyExists => Self::NoPlace("something is there already"),
            // Of links that lead out of the root.
            _ if matches!(error.raw_os_error(), Some(libc::EXDEV | libc::ELOOP)) => Self::BadName,
            _ if error.raw_os_error() == Some(libc::ENAMETOOLONG) => Self::LongName,
            _ => Self::System(error),
        }
    }
}

impl UploadError {
    /// Why, for whoever asked.
    pub(crate) fn note(&self) -> String {
        match self {
            Self::BadName => "no file can have this name here".to_owned(),
            Self::LongName => "the name is longer than the file system takes".to_owned(),
            Self::NoPlace(note) | Self::Busy(note) => (*note).to_owned(),
            Self::Offset(bytes) => format!("there are {bytes} bytes of it; go on from there"),
            Self::TooLarge(bytes) => format!("a file may have {bytes} bytes here"),
            Self::NoSpace => "there is no room for it here".to_owned(),
            Self::System(error) => format!("it cannot be stored: {error}"),
        }
    }
}
