//! Who asks, and for what: credentials and challenges as HTTP and RTSP carry them, rights, and the
//! paths that they are about.
//!
//! A request's Authorization is read by [`Credentials::parse`]; [`Digest::proves`] says whether it
//! was made with a password, [`Challenge`] writes what asks for one. [`Grant`] is what a signed URL
//! says, [`NodeProof`] what that of a node does, [`Jwt`] a token that somebody else has signed. All
//! of it is pure: nonces, users and the clock are the caller's.
//!
//! Refused, and never asked for: `auth-int` (bodies are not protected), session keys (`-sess`) and
//! hashed user names (`userhash`).

mod answer;
mod carried;
mod challenge;
mod credentials;
mod digest;
mod grant;
mod jwk;
mod jwt;
mod node_proof;
mod params;
mod pattern;
mod rights;

pub use self::answer::Answering;
pub use self::carried::{CARRIED_BYTES_MAX, Carried, LongCredentials};
pub use self::challenge::Challenge;
pub use self::credentials::{Credentials, CredentialsError};
pub use self::digest::{Algorithm, Digest, Qop, ha1};
pub use self::grant::{Grant, GrantError, SIGNATURE_KEY_BYTES_MIN};
pub use self::jwk::{JWK_KEYS_MAX, JWK_SYMMETRIC_BYTES_MIN, Jwk, JwkNumbers};
pub use self::jwt::{
    Claims, JWT_BYTES_MAX, JWT_LEEWAY_S, JWT_RIGHTS_MAX, Jwt, JwtAlgorithm, JwtError, JwtExpected,
    token_of_query,
};
pub use self::node_proof::NodeProof;
pub use self::params::AUTH_PARAMS_MAX;
pub use self::pattern::{PATTERN_BYTES_MAX, Pattern, PatternError};
pub use self::rights::{Action, Rights, RightsError};
