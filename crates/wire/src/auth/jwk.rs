//! Sets of public keys (JWK sets, RFC 7517), by which tokens are signed.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use super::jwt::JwtAlgorithm;

/// Keys of a set that are taken; each may cost a look at a token's signature.
pub const JWK_KEYS_MAX: usize = 32;
/// Bytes of a symmetric key, at least: as many as its hash has (RFC 7518, section 3.2).
pub const JWK_SYMMETRIC_BYTES_MIN: usize = 32;

/// A key that signatures of tokens are checked with. Its numbers are not shown by `Debug`,
/// as it may be one that signs, too.
#[derive(Clone, Eq, PartialEq)]
pub struct Jwk {
    /// Its name, by which tokens choose it.
    pub key_id: Option<String>,
    /// The numbers that it is made of.
    pub numbers: JwkNumbers,
}

/// The numbers that a key is made of, big-endian (RFC 7518, section 6; RFC 8037).
#[derive(Clone, Eq, PartialEq)]
#[allow(missing_docs, reason = "the names are those of the RFC")]
pub enum JwkNumbers {
    /// A modulus and an exponent.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// A point of P-256.
    P256 { x: [u8; 32], y: [u8; 32] },
    /// A point of Ed25519.
    Ed25519 { x: [u8; 32] },
    /// Bytes that both sides have.
    Symmetric { k: Vec<u8> },
}

impl Jwk {
    /// The keys of a set; those that cannot be used are left out (RFC 7517, section 5), and so are
    /// symmetric ones unless they are allowed: a set that others can read must have none.
    ///
    /// # Errors
    ///
    /// If it is no set, or has no key that could be used, or too many.
    pub fn parse_set(text: &str, allows_symmetric: bool) -> Result<Vec<Self>, String> {
        let set: Set =
            serde_json::from_str(text).map_err(|error| format!("no JWK set: {error}"))?;
        let keys = set.keys.into_iter().filter_map(Self::of);
        let is_taken =
            |key: &Self| allows_symmetric || !matches!(key.numbers, JwkNumbers::Symmetric { .. });
        let keys: Vec<_> = keys.filter(is_taken).collect();
        match keys.len() {
            1..=JWK_KEYS_MAX => Ok(keys),
            0 => Err("it has no key for RS256, ES256 or EdDSA".to_owned()),
            _ => Err(format!("it has more than {JWK_KEYS_MAX} keys")),
        }
    }

    /// The only algorithm by which signatures are checked with it.
    #[must_use]
    pub const fn algorithm(&self) -> JwtAlgorithm {
        match self.numbers {
            JwkNumbers::Rsa { .. } => JwtAlgorithm::Rs256,
            JwkNumbers::P256 { .. } => JwtAlgorithm::Es256,
            JwkNumbers::Ed25519 { .. } => JwtAlgorithm::EdDsa,
            JwkNumbers::Symmetric { .. } => JwtAlgorithm::Hs256,
        }
    }

    fn of(value: Value) -> Option<Self> {
        let fields: Fields = serde_json::from_value(value).ok()?;
        let number = |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_ref()?).ok();
        let point = |field: &Option<String>| <[u8; 32]>::try_from(number(field)?).ok();
        let numbers = match (&*fields.kty, fields.crv.as_deref()) {
            ("RSA", _) => JwkNumbers::Rsa {
                n: number(&fields.n)?,
                e: number(&fields.e)?,
            },
            ("EC", Some("P-256")) => JwkNumbers::P256 {
                x: point(&fields.x)?,
                y: point(&fields.y)?,
            },
            ("OKP", Some("Ed25519")) => JwkNumbers::Ed25519 {
                x: point(&fields.x)?,
            },
            ("oct", _) => JwkNumbers::Symmetric {
                k: number(&fields.k).filter(|k| k.len() >= JWK_SYMMETRIC_BYTES_MIN)?,
            },
            _ => return None,
        };
        let key = Self {
            key_id: fields.kid,
            numbers,
        };
        let is_for = |alg: &String| JwtAlgorithm::of(alg) == Some(key.algorithm());
        let is_ours = fields.r#use.as_deref().is_none_or(|it| it == "sig")
            && fields.alg.as_ref().is_none_or(is_for)
            && fields
                .key_ops
                .is_none_or(|ops| ops.iter().any(|op| op == "verify"));
        is_ours.then_some(key)
    }
}

impl std::fmt::Debug for JwkNumbers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwkNumbers").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Jwk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Jwk")
            .field("key_id", &self.key_id)
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Fields {
    kty: String,
    crv: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(keys: &str) -> Result<Vec<Jwk>, String> {
        Jwk::parse_set(&format!(r#"{{"keys":[{keys}]}}"#), true)
    }

    #[test]
    fn keys_are_taken_by_their_type_and_use() {
        let (point, long) = ("A".repeat(43), "A".repeat(342));
        let rsa = format!(r#"{{"kty":"RSA","kid":"r","n":"{long}","e":"AQAB"}}"#);
        let p256 = format!(r#"{{"kty":"EC","crv":"P-256","x":"{point}","y":"{point}"}}"#);
        let ed25519 = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{point}","use":"sig"}}"#);
        let oct = format!(r#"{{"kty":"oct","alg":"HS256","k":"{point}"}}"#);
        for (key, expected) in [
            (&rsa, JwtAlgorithm::Rs256),
            (&p256, JwtAlgorithm::Es256),
            (&ed25519, JwtAlgorithm::EdDsa),
            (&oct, JwtAlgorithm::Hs256),
        ] {
            let keys = of(&format!(r#"{{"kty":"XX"}},{key},7"#)).unwrap();
            assert_eq!(keys.len(), 1);
            assert_eq!(keys[0].algorithm(), expected);
        }
        assert_eq!(of(&rsa).unwrap()[0].key_id.as_deref(), Some("r"));
        for unusable in [
            "",
            &rsa.replace("\"e\"", "\"f\""),
            &rsa.replace("AQAB", "A!"),
            &rsa.replace("\"kid\":\"r\"", r#""use":"enc""#),
            &rsa.replace("\"kid\":\"r\"", r#""alg":"HS256""#),
            &rsa.replace("\"kid\":\"r\"", r#""key_ops":["sign"]"#),
            &p256.replace("P-256", "P-384"),
            &p256.replacen(&point, "AAAA", 1),
            &ed25519.replace("Ed25519", "X25519"),
            &oct.replace(&point, "AAAA"),
        ] {
            assert!(of(unusable).is_err(), "{unusable}");
        }
        for text in ["", "[]", "{}", r#"{"keys":7}"#] {
            assert!(Jwk::parse_set(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn symmetric_keys_are_taken_only_where_allowed() {
        let text = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, "A".repeat(43));
        assert!(Jwk::parse_set(&text, true).is_ok());
        assert!(Jwk::parse_set(&text, false).is_err());
        let shown = format!("{:?}", Jwk::parse_set(&text, true).unwrap());
        assert!(!shown.contains("[0"), "{shown}");
    }

    #[test]
    fn keys_are_counted_to_their_limit() {
        let key = format!(r#"{{"kty":"oct","k":"{}"}}"#, "A".repeat(43));
        let many = |count| of(&vec![&*key; count].join(",")).map(|keys| keys.len());
        assert_eq!(many(JWK_KEYS_MAX), Ok(JWK_KEYS_MAX));
        assert!(many(JWK_KEYS_MAX + 1).is_err());
    }
}
