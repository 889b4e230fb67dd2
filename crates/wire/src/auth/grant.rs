//! Signed URLs: a right to a path, for a time, that whoever has the URL has.
//!
//! The query says which rights and until when, and an HMAC-SHA256 over both and the path. The path
//! is signed as the name that it decodes to, so that it may be written in any way, and for RTSP and
//! HTTP alike.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use thiserror::Error;

use super::rights::Rights;

/// Bytes of a key: fewer can be guessed.
pub const SIGNATURE_KEY_BYTES_MIN: usize = 16;

/// What the query of a signed URL says. It is worth nothing before [`Grant::check`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// What may be done with the path.
    pub rights: Rights,
    /// Until when, in seconds since 1970.
    pub expires_s: u64,
    signature: Vec<u8>,
}

/// Why a signed URL gives no right.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum GrantError {
    /// It does not say all that it must, or says it twice.
    #[error("the URL's signature is incomplete")]
    Syntax,
    /// Nobody who has a key signed this.
    #[error("the URL's signature is not for this path")]
    Signature,
    /// It was signed, for a time that is over.
    #[error("the URL has expired")]
    Expired,
}

impl Grant {
    /// Signs.
    #[must_use]
    pub fn sign(key: &[u8], path: &str, rights: Rights, expires_s: u64) -> Self {
        let signature = mac(key, path, rights, expires_s).finalize().into_bytes();
        Self {
            rights,
            expires_s,
            signature: signature.to_vec(),
        }
    }

    /// What a query says; `None` if it has no signature. Other parameters may stand beside.
    ///
    /// # Errors
    ///
    /// [`GrantError::Syntax`].
    pub fn of_query(query: &str) -> Option<Result<Self, GrantError>> {
        let value = |name: &str| {
            let mut values = query.split('&').filter_map(|pair| {
                let (n, value) = pair.split_once('=')?;
                (n == name).then_some(value)
            });
            (values.next(), values.next())
        };
        let one = |name| match value(name) {
            (Some(value), None) => Ok(value),
            _ => Err(GrantError::Syntax),
        };
        value("signature").0?;
        let read = || {
            // Some clients write a comma as it is allowed to be.
            let rights = one("rights")?.replace("%2C", ",").replace("%2c", ",");
            let expires = one("expires")?;
            let is_number = expires.bytes().all(|b| b.is_ascii_digit());
            let expires_s = expires.parse().ok().filter(|_| is_number);
            let signature = URL_SAFE_NO_PAD.decode(one("signature")?);
            Ok(Self {
                rights: rights.parse().map_err(|_| GrantError::Syntax)?,
                expires_s: expires_s.ok_or(GrantError::Syntax)?,
                signature: signature.map_err(|_| GrantError::Syntax)?,
            })
        };
        Some(read())
    }

    /// Whether one of `keys` signed this for `path`, and the time is not over.
    ///
    /// # Errors
    ///
    /// Why not.
    pub fn check<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a [u8]>,
        path: &str,
        now_s: u64,
    ) -> Result<(), GrantError> {
        let is_of = |key: &[u8]| {
            let mac = mac(key, path, self.rights, self.expires_s);
            mac.verify_slice(&self.signature).is_ok()
        };
        if !keys.into_iter().any(is_of) {
            return Err(GrantError::Signature);
        }
        match now_s < self.expires_s {
            true => Ok(()),
            false => Err(GrantError::Expired),
        }
    }
}

/// As it stands behind the `?` of the URL.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rights, expires_s) = (self.rights, self.expires_s);
        let signature = URL_SAFE_NO_PAD.encode(&self.signature);
        write!(
            f,
            "rights={rights}&expires={expires_s}&signature={signature}"
        )
    }
}

fn mac(key: &[u8], path: &str, rights: Rights, expires_s: u64) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    // The path is last: all before it has a form of its own, so no two grants are one text.
    mac.update(format!("onrush signed URL 1\n{rights}\n{expires_s}\n{path}").as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Action;
    use super::*;

    const KEY: &[u8] = b"0123456789abcdef";

    fn of_query(query: &str) -> Result<Grant, GrantError> {
        Grant::of_query(query).expect("it has a signature")
    }

    #[test]
    fn a_grant_is_for_its_path_rights_and_time_alone() {
        let grant = Grant::sign(KEY, "a b/é.mp4", Rights::READ, 1000);
        let query = grant.to_string();
        let read = of_query(&format!("x=y&{query}&z")).unwrap();
        assert_eq!(read, grant);
        assert_eq!(of_query(&query.replace(',', "%2C")).unwrap(), grant);
        let check = |grant: &Grant, path, now_s| grant.check([&b"other"[..], KEY], path, now_s);
        assert_eq!(check(&read, "a b/é.mp4", 999), Ok(()));
        assert_eq!(check(&read, "a b/é.mp4", 1000), Err(GrantError::Expired));
        assert_eq!(check(&read, "a b/é.mp4/", 999), Err(GrantError::Signature));
        assert_eq!(read.check([], "a b/é.mp4", 999), Err(GrantError::Signature));
        let later = Grant {
            expires_s: 2000,
            ..grant.clone()
        };
        let more = Grant {
            rights: grant.rights.with(Action::Publish),
            ..grant.clone()
        };
        for forged in [later, more] {
            assert_eq!(check(&forged, "a b/é.mp4", 999), Err(GrantError::Signature));
        }
    }

    /// By another implementation: `openssl dgst -sha256 -hmac`.
    #[test]
    fn a_signature_is_the_hmac_of_what_the_document_says() {
        let query = Grant::sign(KEY, "demo.ts", Rights::READ, 1_900_000_000).to_string();
        assert_eq!(
            query,
            "rights=play,download&expires=1900000000&\
             signature=ZJpO4HNXWU4kidGnaqE4lA6G2SnC5068PB1bwdGJ19A"
        );
    }

    #[test]
    fn what_is_not_whole_is_no_grant() {
        assert_eq!(Grant::of_query(""), None);
        assert_eq!(Grant::of_query("expires=1&rights=play"), None);
        for query in [
            "signature=AA",
            "signature=AA&expires=1",
            "signature=AA&expires=1&rights=play&expires=2",
            "signature=AA&signature=AA&expires=1&rights=play",
            "signature=A&expires=1&rights=play",
            "signature=AA&expires=+1&rights=play",
            "signature=AA&expires=99999999999999999999&rights=play",
            "signature=AA&expires=1&rights=",
        ] {
            assert_eq!(of_query(query), Err(GrantError::Syntax), "{query}");
        }
    }

    proptest! {
        #[test]
        fn noise_is_never_granted(
            query in "(rights=play|expires=9|signature=|&|=|[A-Za-z_-]){0,30}",
        ) {
            if let Some(Ok(grant)) = Grant::of_query(&query) {
                prop_assert_eq!(grant.check([KEY], "a", 0), Err(GrantError::Signature));
            }
        }
    }
}
