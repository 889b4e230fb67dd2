//! Why there is nobody who could be asked.

use thiserror::Error;

use super::watched::ReadError;

/// Why nobody can be asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A file.
    #[error(transparent)]
    File(#[from] ReadError),
    /// The hook.
    #[error("hook {0}")]
    Hook(String),
    /// Where keys for tokens are.
    #[error("keys of tokens: {0}")]
    Keys(String),
}
