//! `a=crypto` (RFC 4568): a key in a session description, for clients that know no MIKEY.
//!
//! It says nothing of how often numbers have wrapped, so it does for streams that begin with the
//! session alone.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{MasterKey, Suite};

/// The value of `a=crypto` with that key.
#[must_use]
pub fn crypto_attribute(key: &MasterKey) -> String {
    let (suite, key) = (key.suite().name(), STANDARD.encode(key.to_bytes()));
    format!("1 {suite} inline:{key}")
}

/// The key in the value of `a=crypto`; `None` if it is of another suite, or wants what is not
/// served: an MKI, a key for a part of the stream, or packets that are not encrypted. A lifetime is
/// not asked about, because ours is never used up.
#[must_use]
pub fn parse_crypto_attribute(value: &str) -> Option<MasterKey> {
    let mut words = value.split_ascii_whitespace();
    let (_tag, suite) = (words.next()?, words.next()?);
    let suites = [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm];
    let suite = suites.into_iter().find(|it| it.name() == suite)?;
    let mut parts = words.next()?.strip_prefix("inline:")?.split('|');
    let key = STANDARD.decode(parts.next()?).ok()?;
    let has_mki = parts.any(|part| part.contains(':'));
    let is_served = !has_mki && words.next().is_none();
    MasterKey::new(suite, &key).filter(|_| is_served)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for suite in [Suite::AesCm128HmacSha1, Suite::AeadAes128Gcm] {
            let bytes: Vec<u8> = (0..).take(suite.master_bytes()).collect();
            let key = MasterKey::new(suite, &bytes).unwrap();
            assert_eq!(parse_crypto_attribute(&crypto_attribute(&key)), Some(key));
        }
    }

    #[test]
    fn only_what_can_be_served_is_read() {
        // RFC 4568, section 4.1, but for the name of the suite.
        let key = "inline:PS1uQCVeeCFCanVmcjkpPywjNWhcYD0mXXtxaVBR";
        let read = |value: &str| parse_crypto_attribute(value).is_some();
        let named = |rest: &str| read(&format!("1 AES_CM_128_HMAC_SHA1_80 {key}{rest}"));
        assert!(named("") && named("|2^20"));
        assert!(!named("|2^20|1:4") && !named("|1:32") && !named(" UNENCRYPTED_SRTP"));
        assert!(!read(&format!("1 AES_CM_128_HMAC_SHA1_32 {key}")));
        assert!(
            !read(&format!("1 AEAD_AES_128_GCM {key}")),
            "two bytes too many"
        );
        assert!(!read("1 AES_CM_128_HMAC_SHA1_80 inline:%") && !read("1") && !read(""));
    }
}
