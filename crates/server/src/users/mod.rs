//! Users: who asks, and whether it may, for RTSP, HTTP and FTP alike.
//!
//! An `Authorizer` is asked before anything is opened. It says yes to whatever one of its sources
//! allows: the file of users ([`file`](mod@file)), the signature of a URL, a token that was
//! signed elsewhere (`tokens`), or a service of the operator's (`hook`). Where there are none of
//! them everybody may play and download, as ever, and publish from this machine alone.
//!
//! It is one for all threads; what they share are small tables behind locks that are held for
//! moments, and no thread that sends ever asks.

mod attempts;
mod authorizer;
mod client;
pub mod config;
mod current;
mod error;
mod fetched;
pub mod file;
mod hook;
mod keys;
mod login;
mod nonces;
mod password;
#[cfg(test)]
mod testing;
mod tokens;
mod watched;

pub use self::attempts::{WRONG_ADDRESSES_MAX, WRONG_PASSWORD_TIME_MAX, WRONG_PASSWORDS_MAX};
pub(crate) use self::authorizer::{Asked, Protocol, Refusal, Stats};
pub use self::config::{HookConfig, JwtConfig, JwtKeys, UsersConfig};
pub(crate) use self::current::Authorizer;
pub use self::error::OpenError;
pub use self::fetched::{JWKS_AGE_MAX, JWKS_BYTES_MAX, JWKS_PAUSE_MIN, JWKS_TIME_MAX};
pub use self::hook::{HOOK_ADDRESS_MAX, HOOK_ANSWERS_MAX, HOOK_CALLS_MAX, HOOK_WAITING_MAX};
pub use self::keys::{URL_KEYS_BYTES_MAX, URL_KEYS_MAX, UrlKeys};
pub(crate) use self::login::{Login, Uploader};
pub use self::nonces::{NONCE_TIME_MAX, NONCES_MAX};
pub use self::password::{
    ARGON2_MEMORY_BYTES_MAX, ARGON2_PASSES_MAX, PASSWORD_TIME_MAX, PASSWORDS_MAX, argon2,
};
pub use self::watched::ReadError;

/// Whether somebody could be asked by these settings: files are read, nobody is called.
///
/// # Errors
///
/// If a file cannot be read or understood, or a service is none that can be asked.
pub fn check(config: &UsersConfig) -> Result<(), OpenError> {
    Authorizer::open(config, std::sync::Arc::default()).map(drop)
}
