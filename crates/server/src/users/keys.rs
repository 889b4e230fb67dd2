//! The file of keys by which URLs are signed: one a line, the first signs and all are taken, so
//! that a key can be replaced while URLs that it signed are still out.

use std::path::Path;

use onrush_wire::auth::SIGNATURE_KEY_BYTES_MIN;
use zeroize::Zeroizing;

use super::watched::{ReadError, read};

/// Bytes of a file of keys.
pub const URL_KEYS_BYTES_MAX: usize = 4096;
/// Keys in it: each may cost a look.
pub const URL_KEYS_MAX: usize = 8;

/// Keys, as text. Not shown, and wiped from memory when they are dropped.
pub struct UrlKeys(Vec<Zeroizing<String>>);

impl std::fmt::Debug for UrlKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UrlKeys").finish_non_exhaustive()
    }
}

impl UrlKeys {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or has no key that is long enough.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        read(path, URL_KEYS_BYTES_MAX, Self::parse).map(|(keys, _)| keys)
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let keys = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let keys: Vec<_> = keys.map(|key| Zeroizing::new(key.to_owned())).collect();
        let is_short = |key: &Zeroizing<String>| key.len() < SIGNATURE_KEY_BYTES_MIN;
        if keys.is_empty() || keys.len() > URL_KEYS_MAX || keys.iter().any(is_short) {
            return Err(format!(
                "write 1 to {URL_KEYS_MAX} keys, one a line, of {SIGNATURE_KEY_BYTES_MIN} bytes at \
                 least; `openssl rand -hex 32` makes one"
            ));
        }
        Ok(Self(keys))
    }

    /// The key that signs.
    #[must_use]
    pub fn first(&self) -> &[u8] {
        self.0[0].as_bytes()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|key| key.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_and_long_enough() {
        let line = |bytes| format!("# {bytes}\n\n {} \n", "k".repeat(bytes));
        let least = UrlKeys::parse(&line(SIGNATURE_KEY_BYTES_MIN)).unwrap();
        assert_eq!(least.first().len(), SIGNATURE_KEY_BYTES_MIN);
        for text in ["", "# none", &line(SIGNATURE_KEY_BYTES_MIN - 1)] {
            assert!(UrlKeys::parse(text).is_err(), "{text}");
        }
        let many = UrlKeys::parse(&line(20).repeat(URL_KEYS_MAX)).unwrap();
        assert_eq!(many.all().count(), URL_KEYS_MAX);
        assert!(UrlKeys::parse(&line(20).repeat(URL_KEYS_MAX + 1)).is_err());
    }
}
