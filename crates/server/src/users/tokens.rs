//! Whether a token is signed by a key that counts here.
//!
//! The keys are those of a file, which is read again when it changes, or of a URL (`fetched`), as
//! identity providers publish them. A key checks by the one algorithm that it is for, whatever a
//! token says of itself.

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use onrush_wire::auth::{Claims, Jwk, JwkNumbers, Jwt, JwtError, JwtExpected};
use ring::hmac;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use sha2::{Digest, Sha256};

use super::config::{JwtConfig, JwtKeys};
use super::error::OpenError;
use super::fetched::{Fetched, JWKS_BYTES_MAX};
use super::watched::Watched;

/// Whose tokens are taken.
#[derive(Debug)]
pub(super) struct Tokens {
    keys: Keys,
    audience: Option<String>,
    issuer: Option<String>,
    /// Hashes of those that were right lately.
    right: Arc<Mutex<HashSet<[u8; 32]>>>,
}

#[derive(Debug)]
enum Keys {
    File(Watched<Vec<Jwk>>),
    Url(Arc<Fetched>),
}

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum TokenError {
    Token(JwtError),
    /// A key that it may be signed by was tried, and has not signed it.
    Forged,
    /// Its key may be one that could not be asked for.
    Unanswered,
}

impl Tokens {
    /// Those by these settings. `ca` is as for [`agent`](super::client::agent).
    ///
    /// # Errors
    ///
    /// If there is no file of keys, or the URL cannot be asked safely. A URL is not asked yet.
    pub(super) fn open(config: &JwtConfig, ca: Option<&Path>) -> Result<Self, OpenError> {
        let keys = match &config.keys {
            JwtKeys::File(path) => {
                let parse = |text: &str| Jwk::parse_set(text, true);
                Keys::File(Watched::open(path, JWKS_BYTES_MAX, parse)?)
            }
            JwtKeys::Url(url) => {
                Keys::Url(Arc::new(Fetched::new(url, ca).map_err(OpenError::Keys)?))
            }
        };
        Ok(Self {
            keys,
            audience: config.audience.clone(),
            issuer: config.issuer.clone(),
            right: Arc::default(),
        })
    }

    /// Takes over the keys that `before` has of the same URL, and which tokens were right.
    pub(super) fn go_on(&mut self, before: &Self) {
        self.right = Arc::clone(&before.right);
        if let (Keys::Url(url), Keys::Url(before)) = (&mut self.keys, &before.keys)
            // Nobody else has it yet.
            && let Some(url) = Arc::get_mut(url)
        {
            url.go_on(before);
        }
    }

    /// Whether a token was right when it was looked at last.
    pub(super) fn remembers(&self, token: &str) -> bool {
        self.right().contains(&hash(token))
    }

    /// What a token claims, if it may. `now` is since the start.
    pub(super) async fn check(&self, token: &str, now: Duration) -> Result<Claims, TokenError> {
        let checked = self.look_at(token, now).await;
        let (mut right, hash) = (self.right(), hash(token));
        if checked.is_err() {
            right.remove(&hash);
        } else if !right.contains(&hash) {
            if right.len() >= TOKENS_MAX {
                right.clear();
            }
            right.insert(hash);
        }
        checked
    }

    fn right(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_at(&self, token: &str, now: Duration) -> Result<Claims, TokenError> {
        let jwt = Jwt::parse(token).map_err(TokenError::Token)?;
        let keys = match &self.keys {
            Keys::File(file) => file.now(),
            Keys::Url(url) => {
                let is_known = |keys: &[Jwk]| keys.iter().any(|key| may_be_of(&jwt, key));
                let keys = url.keys(is_known, now).await;
                keys.ok_or(TokenError::Unanswered)?
            }
        };
        let unix = SystemTime::now().duration_since(UNIX_EPOCH);
        let expected = JwtExpected {
            now_s: unix.unwrap_or_default().as_secs(),
            audience: self.audience.as_deref(),
            issuer: self.issuer.as_deref(),
        };
        let is_tried = keys.iter().any(|key| may_be_of(&jwt, key));
        let verify = |signed: &[u8], signature: &[u8]| {
            let mut candidates = keys.iter().filter(|key| may_be_of(&jwt, key));
            candidates.any(|key| is_signed_by(&key.numbers, signed, signature))
        };
        jwt.claims(verify, &expected).map_err(|error| match error {
            JwtError::Signature if is_tried => TokenError::Forged,
            error => TokenError::Token(error),
        })
    }
}

/// Whether a token says that it is signed by that key, or does not say by which.
fn may_be_of(jwt: &Jwt<'_>, key: &Jwk) -> bool {
    let names_differ = jwt.key_id.is_some() && key.key_id.is_some() && jwt.key_id != key.key_id;
    key.algorithm() == jwt.algorithm && !names_differ
}

fn is_signed_by(key: &JwkNumbers, signed: &[u8], signature: &[u8]) -> bool {
    match key {
        JwkNumbers::Rsa { n, e } => {
            let [n, e] = [n, e].map(|number| without_zeros(number));
            let key = RsaPublicKeyComponents { n, e };
            key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok()
        }
        JwkNumbers::P256 { x, y } => {
            // An uncompressed point (SEC 1, section 2.3.3).
            let point = [&[4], &x[..], &y[..]].concat();
            let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
            key.verify(signed, signature).is_ok()
        }
        JwkNumbers::Ed25519 { x } => {
            let key = UnparsedPublicKey::new(&ED25519, x);
            key.verify(signed, signature).is_ok()
        }
        JwkNumbers::Symmetric { k } => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, k);
            hmac::verify(&key, signed, signature).is_ok()
        }
    }
}

/// Some write a zero in front of a modulus, as DER has it, which RFC 7518 forbids.
fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Tokens that are remembered to have been right.
const TOKENS_MAX: usize = 4096;

#[cfg(test)]
mod tests;
