//! Why something cannot be had of a store, for all who wait for it.

use std::io;
use std::sync::Arc;

use object_store::Error;

/// Why something cannot be had.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: io::ErrorKind,
    text: Arc<str>,
}

impl Failure {
    pub(crate) fn new(kind: io::ErrorKind, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        Self { kind, text }
    }

    /// Nothing is known of it now.
    pub(crate) fn unknown(text: impl Into<Arc<str>>) -> Self {
        Self::new(io::ErrorKind::HostUnreachable, text)
    }

    /// What it is, if asking again does not help.
    pub(crate) fn lasting(error: &Error) -> Option<Self> {
        let kind = match error {
            Error::NotFound { .. } => io::ErrorKind::NotFound,
            // Of a list, whose other films are there.
            Error::InvalidPath { .. } => io::ErrorKind::InvalidData,
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                io::ErrorKind::PermissionDenied
            }
            Error::NotSupported { .. } | Error::NotImplemented { .. } => io::ErrorKind::Unsupported,
            _ => return None,
        };
        Some(Self::new(kind, error.to_string()))
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == io::ErrorKind::NotFound
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        Self::new(failure.kind, &*failure.text)
    }
}
