//! Credentials in the query of a URL, which a playlist's own URLs carry on.

use thiserror::Error;

use super::grant::Grant;
use super::jwt::token_of_query;

/// Bytes of what URLs in a playlist end in: it stands behind each of them, of which there may be
/// thousands.
pub const CARRIED_BYTES_MAX: usize = 2048;

/// Which credentials in a URL count where it leads; no others are worth carrying on.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Carried {
    /// Signatures.
    pub grants: bool,
    /// Tokens.
    pub tokens: bool,
}

/// Those of a URL are longer than [`CARRIED_BYTES_MAX`].
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("the token in the URL is longer than {CARRIED_BYTES_MAX} bytes; send it in a header")]
pub struct LongCredentials;

impl Carried {
    /// Those that count here or there.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self {
            grants: self.grants || other.grants,
            tokens: self.tokens || other.tokens,
        }
    }

    /// What URLs in a playlist end in, so that what opened the playlist opens what it names: a `?`
    /// and the signature or the token of `query`, which is what the playlist's own URL has behind
    /// its `?`. Empty if that has neither, or none that counts. Nothing else of the query is
    /// carried on.
    ///
    /// # Errors
    ///
    /// [`LongCredentials`].
    pub fn of(self, query: Option<&str>) -> Result<String, LongCredentials> {
        let grant = query.filter(|_| self.grants).and_then(Grant::of_query);
        let token = query.filter(|_| self.tokens).and_then(token_of_query);
        let carried = match (grant.and_then(Result::ok), token) {
            (Some(grant), _) => format!("?{grant}"),
            (None, Some(token)) => format!("?token={token}"),
            (None, None) => String::new(),
        };
        match carried.len() <= CARRIED_BYTES_MAX {
            true => Ok(carried),
            false => Err(LongCredentials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Carried = Carried {
        grants: true,
        tokens: true,
    };

    #[test]
    fn only_credentials_are_carried_on() {
        let carried = |query: &str| ALL.of(Some(query)).unwrap();
        assert_eq!(ALL.of(None).unwrap(), "");
        assert_eq!(carried("_HLS_msn=7&_HLS_skip=YES"), "");
        assert_eq!(carried("_HLS_msn=7&token=a.b-c_d"), "?token=a.b-c_d");
        assert_eq!(carried("token=a\"b"), "", "not the letters of a token");
        let signed = "rights=play&expires=9&signature=AAAA";
        assert_eq!(carried(&format!("x=y&{signed}")), format!("?{signed}"));
        assert_eq!(carried("rights=play&signature=AAAA"), "", "half of one");
    }

    #[test]
    fn what_counts_nowhere_is_not_carried_on() {
        let signed = "rights=play&expires=9&signature=AAAA";
        let query = format!("token=a.b.c&{signed}");
        for (grants, tokens, expected) in [
            (true, true, format!("?{signed}")),
            (true, false, format!("?{signed}")),
            (false, true, "?token=a.b.c".to_owned()),
            (false, false, String::new()),
        ] {
            let carried = Carried { grants, tokens }.of(Some(&query));
            assert_eq!(carried.unwrap(), expected);
        }
    }

    #[test]
    fn long_credentials_are_refused_where_they_count() {
        let query = |bytes: usize| format!("token={}", "a".repeat(bytes - "?token=".len()));
        let carried = |bytes| ALL.of(Some(&query(bytes)));
        assert_eq!(carried(CARRIED_BYTES_MAX).unwrap().len(), CARRIED_BYTES_MAX);
        assert_eq!(carried(CARRIED_BYTES_MAX + 1), Err(LongCredentials));
        let none = Carried {
            grants: true,
            tokens: false,
        };
        assert_eq!(none.of(Some(&query(CARRIED_BYTES_MAX + 1))).unwrap(), "");
    }
}
