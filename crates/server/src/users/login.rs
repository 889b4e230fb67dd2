//! Whom somebody has logged in as.

use onrush_wire::auth::Claims;
use sha2::{Digest, Sha256};
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

/// Whose an upload is: bytes that are nobody else's. They are the same when the same user, or
/// whoever a token names, comes again with another password or token.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Uploader(Vec<u8>);

impl Uploader {
    /// One of a kind; a byte that no text has keeps kinds and parts from each other, and from the
    /// names of users.
    fn of(parts: &[&[u8]]) -> Self {
        let marked = parts.iter().flat_map(|part| [&[0xff_u8][..], part]);
        Self(marked.flatten().copied().collect())
    }

    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Login {
    /// Whose files are that are sent with this. Whoever has a signed URL has logged in as nobody:
    /// they all are one.
    pub(crate) fn uploader(&self) -> Uploader {
        match self {
            Self::Nobody => Uploader::of(&[b"url"]),
            Self::User(user) | Self::Claimed { user, .. } => Uploader(user.clone().into_bytes()),
            Self::Token { token, claims } => {
                let claims = claims.as_deref();
                let issuer = claims
                    .and_then(|it| it.issuer.as_deref())
                    .unwrap_or_default();
                match claims.and_then(|it| it.subject.as_deref()) {
                    Some(subject) => {
                        Uploader::of(&[b"subject", issuer.as_bytes(), subject.as_bytes()])
                    }
                    None => Uploader::of(&[b"token", &Sha256::digest(token)]),
                }
            }
        }
    }

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

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use onrush_wire::auth::{Jwt, JwtExpected};

    use super::*;

    /// With a token of these claims.
    fn token(claims: &str) -> Login {
        let [header, claims, signature] =
            [r#"{"alg":"HS256"}"#, claims, "x"].map(|part| URL_SAFE_NO_PAD.encode(part));
        let token = format!("{header}.{claims}.{signature}");
        let jwt = Jwt::parse(&token).unwrap();
        let claims = jwt.claims(|_, _| true, &JwtExpected::default());
        let claims = Some(Box::new(claims.unwrap()));
        Login::Token { token, claims }
    }

    /// With a token that the hook knows.
    fn opaque(token: &str) -> Login {
        Login::Token {
            token: token.to_owned(),
            claims: None,
        }
    }

    #[test]
    fn uploaders_are_told_apart_by_kind_and_name() {
        let logins = [
            Login::Nobody,
            Login::User("url".to_owned()),
            Login::User("anna".to_owned()),
            token(r#"{"exp":4e9,"sub":"anna"}"#),
            token(r#"{"exp":4e9,"sub":"bert"}"#),
            token(r#"{"exp":4e9,"sub":"anna","iss":"a"}"#),
            token(r#"{"exp":4e9,"sub":"nna","iss":"aa"}"#),
            token(r#"{"exp":4e9}"#),
            token(r#"{"exp":5e9}"#),
            opaque("anna"),
            opaque("bert"),
        ];
        for (i, one) in logins.iter().enumerate() {
            for (j, other) in logins.iter().enumerate() {
                assert_eq!(one.uploader() == other.uploader(), i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn whoever_comes_with_a_new_token_is_the_same_uploader() {
        let (old, new) = (r#"{"exp":4e9,"sub":"anna"}"#, r#"{"exp":5e9,"sub":"anna"}"#);
        assert_eq!(token(old).uploader(), token(new).uploader());
        let claimed = Login::Claimed {
            user: "anna".to_owned(),
            password: "secret".to_owned().into(),
        };
        let user = Login::User("anna".to_owned());
        assert_eq!(claimed.uploader(), user.uploader());
    }
}
