//! The WWW-Authenticate header (RFC 9110, section 11.6.1).

use std::fmt;

use super::digest::Algorithm;

/// What asks a client for credentials. Realms and nonces hold neither quotes nor backslashes.
///
/// Each stands on a line of its own: many players read no list. They differ in which of several
/// lines they take (FFmpeg the last, curl the first), so the one that all understand is written
/// last.
#[derive(Clone, Copy, Debug)]
pub enum Challenge<'a> {
    /// RFC 7616, with `qop=auth`; clients that know only RFC 2069 pass over that.
    Digest {
        /// With which function.
        algorithm: Algorithm,
        /// What the password is for.
        realm: &'a str,
        /// The number that the answer must contain.
        nonce: &'a str,
        /// Whether the client's last answer was too old and nothing worse: it need not ask a human
        /// again.
        is_stale: bool,
    },
    /// RFC 7617.
    Basic {
        /// What the password is for.
        realm: &'a str,
    },
    /// RFC 6750.
    Bearer {
        /// What the token is for.
        realm: &'a str,
        /// Whether there was one that is not taken (RFC 6750, section 3.1).
        is_invalid: bool,
    },
}

impl fmt::Display for Challenge<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // In this order: live555 reads it by a fixed form.
            Self::Digest {
                algorithm,
                realm,
                nonce,
                is_stale,
            } => write!(
                f,
                "Digest realm=\"{realm}\", nonce=\"{nonce}\"{}, algorithm={}, qop=\"auth\"",
                if *is_stale { ", stale=true" } else { "" },
                algorithm.as_str(),
            ),
            Self::Basic { realm } => write!(f, "Basic realm=\"{realm}\""),
            Self::Bearer { realm, is_invalid } => {
                let error = if *is_invalid {
                    ", error=\"invalid_token\""
                } else {
                    ""
                };
                write!(f, "Bearer realm=\"{realm}\"{error}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_on_the_wire() {
        let digest = |algorithm, is_stale| {
            let challenge = Challenge::Digest {
                algorithm,
                realm: "films",
                nonce: "abc",
                is_stale,
            };
            challenge.to_string()
        };
        assert_eq!(
            digest(Algorithm::Sha256, false),
            "Digest realm=\"films\", nonce=\"abc\", algorithm=SHA-256, qop=\"auth\""
        );
        assert_eq!(
            digest(Algorithm::Md5, true),
            "Digest realm=\"films\", nonce=\"abc\", stale=true, algorithm=MD5, qop=\"auth\""
        );
        let basic = Challenge::Basic { realm: "films" };
        assert_eq!(basic.to_string(), "Basic realm=\"films\"");
        let bearer = |is_invalid| {
            let realm = "films";
            Challenge::Bearer { realm, is_invalid }.to_string()
        };
        assert_eq!(bearer(false), "Bearer realm=\"films\"");
        assert_eq!(
            bearer(true),
            "Bearer realm=\"films\", error=\"invalid_token\""
        );
    }
}
