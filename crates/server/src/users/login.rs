//! Whom somebody has logged in as.

use onrush_wire::auth::Claims;
use zeroize::Zeroizing;

/// Whom somebody has logged in as.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum Login {
    /// As nobody.
    Nobody,
    /// As a user of the file, whose password it knows.
    User(String),
    /// As somebody whom only the hook can know.
    Claimed {
        /// The name that was given.
        user: String,
        /// The password that came with it, wiped from memory when it is dropped.
        password: Zeroizing<String>,
    },
    /// As whoever this token is of.
    Token {
        /// The token, which the hook may know.
        token: String,
        /// What it claims, if it is signed by a key that counts here.
        claims: Option<Box<Claims>>,
    },
}

impl Login {
    /// The name that was given.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Self::Nobody | Self::Token { .. } => None,
            Self::User(user) | Self::Claimed { user, .. } => Some(user),
        }
    }
}

/// Without passwords: it may be logged.
impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self {
            Self::Nobody => "Nobody",
            Self::User(_) => "User",
            Self::Claimed { .. } => "Claimed",
            Self::Token { .. } => "Token",
        };
        f.debug_tuple(kind).field(&self.user()).finish()
    }
}
