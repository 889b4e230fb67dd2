//! Who asks, and for what: credentials and challenges as HTTP and RTSP carry them, rights, and the
//! paths that they are about.
//!
//! A request's Authorization is read by [`Credentials::parse`]; [`Digest::proves`] says whether it
//! was made with a password, [`Challenge`] writes what asks for one. [`Grant`] is what a signed URL
//! says. All of it is pure: nonces, users and the clock are the caller's.
//!
//! Refused, and never asked for: `auth-int` (bodies are not protected), session keys (`-sess`) and
//! hashed user names (`userhash`).

mod answer;
mod challenge;
mod credentials;
mod digest;
mod grant;
mod params;
mod pattern;
mod rights;

pub use self::answer::Answering;
pub use self::challenge::Challenge;
pub use self::credentials::{Credentials, CredentialsError};
pub use self::digest::{Algorithm, Digest, Qop, ha1};
pub use self::grant::{Grant, GrantError, SIGNATURE_KEY_BYTES_MIN};
pub use self::params::AUTH_PARAMS_MAX;
pub use self::pattern::{PATTERN_BYTES_MAX, Pattern, PatternError};
pub use self::rights::{Action, Rights, RightsError};
