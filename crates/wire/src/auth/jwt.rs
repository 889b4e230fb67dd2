//! Tokens that are signed: JSON Web Tokens (RFC 7519) in the compact form of RFC 7515.
//!
//! [`Jwt::parse`] reads what is needed to find a key; what a token claims is there only behind
//! [`Jwt::claims`], which asks for the signature first. Whose keys count, and how a signature is
//! checked, is the caller's business; see [`Jwk`](super::Jwk).
//!
//! Refused: encrypted tokens, tokens without a signature (`none`), extensions that must be
//! understood (`crit`), and tokens that never expire.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::pattern::Pattern;
use super::rights::{Action, Rights};

/// Bytes of a token.
pub const JWT_BYTES_MAX: usize = 8192;
/// Entries of the list of rights in a token.
pub const JWT_RIGHTS_MAX: usize = 64;
/// Seconds by which the clocks of whoever made a token and of this machine may differ.
pub const JWT_LEEWAY_S: u64 = 30;

/// By what a token is signed (RFC 7518, section 3.1; RFC 8037).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JwtAlgorithm {
    /// RSA (PKCS #1 1.5) and SHA-256.
    Rs256,
    /// ECDSA on P-256, and SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
    /// HMAC with SHA-256, by a key that both sides have.
    Hs256,
}

/// A token whose signature was not looked at yet.
#[derive(Clone, Debug)]
pub struct Jwt<'a> {
    /// By what it says to be signed.
    pub algorithm: JwtAlgorithm,
    /// The name of the key, if it says one.
    pub key_id: Option<String>,
    /// What is signed: header and claims, as they came.
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

/// What is asked of the claims of a token.
#[derive(Clone, Copy, Debug, Default)]
pub struct JwtExpected<'a> {
    /// The time, in seconds since 1970.
    pub now_s: u64,
    /// Whom it must be for. Without one, tokens that are for somebody (`aud`) are refused (RFC
    /// 7519, section 4.1.3).
    pub audience: Option<&'a str>,
    /// Who must have made it; without one, anybody who has a key.
    pub issuer: Option<&'a str>,
}

/// What a token claims, and who signed it is believed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Claims {
    /// Who made it (`iss`).
    pub issuer: Option<String>,
    /// Whose it is (`sub`): of one name among those of its issuer (RFC 7519, section 4.1.2).
    pub subject: Option<String>,
    rules: Vec<(Rights, Paths)>,
}

/// Why a token gives no right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum JwtError {
    /// It is none, or longer than [`JWT_BYTES_MAX`].
    Syntax,
    /// It is signed by something else, or has extensions.
    Algorithm,
    /// No key signed this.
    Signature,
    /// `exp` is over, or missing.
    Expired,
    /// `nbf` is to come.
    Early,
    /// `aud` is another.
    Audience,
    /// `iss` is another.
    Issuer,
}

impl JwtError {
    /// What is wrong, for whoever sent it.
    #[must_use]
    pub const fn note(self) -> &'static str {
        match self {
            Self::Syntax => "the token is malformed",
            Self::Algorithm => "the token is not signed by RS256, ES256, EdDSA or HS256",
            Self::Signature => "the token is not signed by a key that is known here",
            Self::Expired => "the token has expired, or does not say when it does",
            Self::Early => "the token is not valid yet",
            Self::Audience => "the token is for another audience",
            Self::Issuer => "the token is of another issuer",
        }
    }
}

impl fmt::Display for JwtError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.note())
    }
}

impl std::error::Error for JwtError {}

/// The token in a query, as its one parameter `token`; `None` also if that has bytes that no token
/// has, so that it can be written into URLs as it is.
#[must_use]
pub fn token_of_query(query: &str) -> Option<&str> {
    let mut values = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("token="));
    let is_byte = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    match (values.next(), values.next()) {
        (Some(token), None) if !token.is_empty() && token.bytes().all(is_byte) => Some(token),
        _ => None,
    }
}

impl<'a> Jwt<'a> {
    /// Reads its header.
    ///
    /// # Errors
    ///
    /// [`JwtError::Syntax`] and [`JwtError::Algorithm`].
    pub fn parse(token: &'a str) -> Result<Self, JwtError> {
        if token.len() > JWT_BYTES_MAX {
            return Err(JwtError::Syntax);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Syntax)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Syntax)?;
        let header: Header = json(header)?;
        if header.crit.is_some() {
            return Err(JwtError::Algorithm);
        }
        let algorithm = JwtAlgorithm::of(&header.alg).ok_or(JwtError::Algorithm)?;
        let signature = URL_SAFE_NO_PAD.decode(signature);
        Ok(Self {
            algorithm,
            key_id: header.kid,
            signed,
            claims,
            signature: signature.map_err(|_| JwtError::Syntax)?,
        })
    }

    /// What it claims, once `verify`, which gets what is signed and the signature, has found that
    /// one of the keys signed it.
    ///
    /// # Errors
    ///
    /// Why it gives no right.
    pub fn claims(
        &self,
        verify: impl FnOnce(&[u8], &[u8]) -> bool,
        expected: &JwtExpected<'_>,
    ) -> Result<Claims, JwtError> {
        if !verify(self.signed.as_bytes(), &self.signature) {
            return Err(JwtError::Signature);
        }
        let claims: Payload = json(self.claims)?;
        let now_s = expected.now_s;
        let is_over = |exp: f64| seconds(exp).saturating_add(JWT_LEEWAY_S) <= now_s;
        if claims.exp.is_none_or(is_over) {
            return Err(JwtError::Expired);
        }
        let is_early = |nbf: f64| seconds(nbf) > now_s.saturating_add(JWT_LEEWAY_S);
        if claims.nbf.is_some_and(is_early) {
            return Err(JwtError::Early);
        }
        let is_for_us = match (&claims.aud, expected.audience) {
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
            (Some(Audience::One(it)), Some(us)) => it == us,
            (Some(Audience::Several(them)), Some(us)) => them.iter().any(|it| it == us),
        };
        if !is_for_us {
            return Err(JwtError::Audience);
        }
        if expected.issuer.is_some() && claims.iss.as_deref() != expected.issuer {
            return Err(JwtError::Issuer);
        }
        let own = claims.onrush_rights.unwrap_or_default();
        let others = claims.mediamtx_permissions.unwrap_or_default();
        if own.len() + others.len() > JWT_RIGHTS_MAX {
            return Err(JwtError::Syntax);
        }
        let own = own.into_iter().map(|rule| (rule.rights, rule.paths));
        let others = others.into_iter().filter_map(Permission::rule);
        Ok(Claims {
            issuer: claims.iss,
            subject: claims.sub,
            rules: own.chain(others).collect(),
        })
    }
}

impl Claims {
    /// Whether that may be done with that path, which is written as names are.
    #[must_use]
    pub fn allow(&self, action: Action, path: &str) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|(rights, paths)| rights.allow(action) && paths.contain(path))
    }
}

impl JwtAlgorithm {
    /// The one of that name in `alg`.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "RS256" => Self::Rs256,
            "ES256" => Self::Es256,
            // RFC 9864 has a name for the curve, too.
            "EdDSA" | "Ed25519" => Self::EdDsa,
            "HS256" => Self::Hs256,
            _ => return None,
        })
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    #[serde(default, deserialize_with = "any")]
    crit: Option<()>,
}

/// Names that stand twice, and values of another type, are errors.
#[derive(Deserialize)]
struct Payload {
    exp: Option<f64>,
    nbf: Option<f64>,
    aud: Option<Audience>,
    iss: Option<String>,
    sub: Option<String>,
    onrush_rights: Option<Vec<Rule>>,
    mediamtx_permissions: Option<Vec<Permission>>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// `RIGHTS PATTERN`, as behind the name of a group in a file of users.
struct Rule {
    rights: Rights,
    paths: Paths,
}

/// What MediaMTX's tokens say.
#[derive(Deserialize)]
struct Permission {
    action: String,
    #[serde(default)]
    path: String,
}

#[derive(Clone, Eq, PartialEq)]
enum Paths {
    All,
    One(String),
    Of(Pattern),
}

impl<'de> Deserialize<'de> for Rule {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (rights, pattern) = text.split_once(' ').unwrap_or((&text, "/**"));
        let pattern = pattern.trim().parse().map_err(D::Error::custom)?;
        Ok(Self {
            rights: rights.parse().map_err(D::Error::custom)?,
            paths: Paths::Of(pattern),
        })
    }
}

impl Permission {
    /// `None` for what is nothing here: other actions, and regular expressions.
    fn rule(self) -> Option<(Rights, Paths)> {
        let rights = match &*self.action {
            "read" => Rights::READ,
            "playback" => Rights::default().with(Action::Download),
            "publish" => Rights::default().with(Action::Publish),
            "api" => Rights::default().with(Action::Admin),
            _ => return None,
        };
        let path = self.path.trim_matches('/');
        match path {
            "" => Some((rights, Paths::All)),
            _ if path.starts_with('~') => None,
            _ => Some((rights, Paths::One(path.to_owned()))),
        }
    }
}

impl Paths {
    fn contain(&self, path: &str) -> bool {
        match self {
            Self::All => true,
            Self::One(one) => one == path,
            Self::Of(pattern) => pattern.matches(path),
        }
    }
}

impl fmt::Debug for Paths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("/**"),
            Self::One(one) => write!(f, "/{one}"),
            Self::Of(pattern) => write!(f, "{pattern}"),
        }
    }
}

/// Something of any type, `null` included, that is there.
fn any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<()>, D::Error> {
    serde::de::IgnoredAny::deserialize(from).map(|_| Some(()))
}

fn json<T: for<'de> Deserialize<'de>>(encoded: &str) -> Result<T, JwtError> {
    let bytes = URL_SAFE_NO_PAD.decode(encoded);
    let bytes = bytes.map_err(|_| JwtError::Syntax)?;
    serde_json::from_slice(&bytes).map_err(|_| JwtError::Syntax)
}

/// A NumericDate (RFC 7519, section 2), which may have a fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, which is what a date beyond all time means"
)]
fn seconds(date: f64) -> u64 {
    date as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: &str = r#"{"alg":"HS256","typ":"JWT","kid":"a"}"#;
    const NOW: JwtExpected<'_> = JwtExpected {
        now_s: 1000,
        audience: None,
        issuer: None,
    };

    fn token(header: &str, claims: &str) -> String {
        let [header, claims] = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it));
        format!("{header}.{claims}.c2ln")
    }

    fn claims_with(claims: &str, expected: &JwtExpected<'_>) -> Result<Claims, JwtError> {
        let token = token(HEADER, claims);
        let jwt = Jwt::parse(&token).unwrap();
        jwt.claims(|_, signature| signature == b"sig", expected)
    }

    fn claims(claims: &str) -> Result<Claims, JwtError> {
        claims_with(claims, &NOW)
    }

    #[test]
    fn nothing_is_claimed_without_the_signature() {
        let token = token(HEADER, r#"{"exp":2000,"onrush_rights":["play"]}"#);
        let jwt = Jwt::parse(&token).unwrap();
        assert_eq!(
            (jwt.algorithm, jwt.key_id.as_deref()),
            (JwtAlgorithm::Hs256, Some("a"))
        );
        let verify = |signed: &[u8], _: &[u8]| {
            assert_eq!(signed, &token.as_bytes()[..token.len() - 5]);
            false
        };
        assert_eq!(jwt.claims(verify, &NOW), Err(JwtError::Signature));
        assert!(jwt.claims(|_, _| true, &NOW).is_ok());
    }

    #[test]
    fn a_token_has_its_time() {
        for (text, expected) in [
            (r#"{"exp":971}"#, Ok(())),
            (r#"{"exp":970}"#, Err(JwtError::Expired)),
            (r#"{"exp":970.9}"#, Err(JwtError::Expired)),
            (r#"{"exp":1e300}"#, Ok(())),
            (r#"{"exp":-5}"#, Err(JwtError::Expired)),
            (r#"{"exp":null}"#, Err(JwtError::Expired)),
            (r#"{"exp":"2000"}"#, Err(JwtError::Syntax)),
            (r#"{"exp":2000,"exp":2000}"#, Err(JwtError::Syntax)),
            ("{}", Err(JwtError::Expired)),
            (r#"{"exp":2000,"nbf":1030}"#, Ok(())),
            (r#"{"exp":2000,"nbf":1031}"#, Err(JwtError::Early)),
            (r#"{"exp":2000,"nbf":"0"}"#, Err(JwtError::Syntax)),
        ] {
            assert_eq!(claims(text).map(drop), expected, "{text}");
        }
    }

    #[test]
    fn a_token_is_for_us_and_of_whom_we_trust() {
        let expected = JwtExpected {
            audience: Some("films"),
            issuer: Some("https://id"),
            ..NOW
        };
        for (text, ours, anybodys) in [
            (
                r#""aud":"films","iss":"https://id""#,
                Ok(()),
                Err(JwtError::Audience),
            ),
            (
                r#""aud":["x","films"],"iss":"https://id""#,
                Ok(()),
                Err(JwtError::Audience),
            ),
            (
                r#""aud":"x","iss":"https://id""#,
                Err(JwtError::Audience),
                Err(JwtError::Audience),
            ),
            (r#""iss":"https://id""#, Err(JwtError::Audience), Ok(())),
            (
                r#""aud":"films","iss":"x""#,
                Err(JwtError::Issuer),
                Err(JwtError::Audience),
            ),
            (
                r#""aud":"films""#,
                Err(JwtError::Issuer),
                Err(JwtError::Audience),
            ),
            (r#""aud":7"#, Err(JwtError::Syntax), Err(JwtError::Syntax)),
        ] {
            let text = format!(r#"{{"exp":2000,{text}}}"#);
            assert_eq!(claims_with(&text, &expected).map(drop), ours, "{text}");
            assert_eq!(claims(&text).map(drop), anybodys, "{text}");
        }
    }

    #[test]
    fn rights_are_by_path_in_both_forms() {
        let text = r#"{"exp":2000,"sub":"anna",
            "onrush_rights":["play,download /kids/**", "publish /live/a"],
            "mediamtx_permissions":[{"action":"read","path":"b*"},{"action":"read","path":"~^c"},
                {"action":"pprof"},{"action":"publish","path":"/live/d"}]}"#;
        let anna = claims(text).unwrap();
        assert_eq!(anna.subject.as_deref(), Some("anna"));
        for (action, path, expected) in [
            (Action::Play, "kids/a.mp4", true),
            (Action::Download, "kids/a.mp4", true),
            (Action::Publish, "kids/a.mp4", false),
            (Action::Publish, "live/a", true),
            (Action::Play, "live/a", false),
            (Action::Play, "b*", true),
            (Action::Play, "bc", false),
            (Action::Play, "~^c", false),
            (Action::Publish, "live/d", true),
            (Action::Admin, "admin", false),
        ] {
            assert_eq!(anna.allow(action, path), expected, "{action:?} {path}");
        }
        let all = claims(r#"{"exp":2000,"mediamtx_permissions":[{"action":"read"}]}"#).unwrap();
        assert!(all.allow(Action::Play, "x/y") && !all.allow(Action::Admin, "admin"));
        let all = claims(r#"{"exp":2000,"onrush_rights":["admin"]}"#).unwrap();
        assert!(all.allow(Action::Admin, "admin") && !all.allow(Action::Play, "x"));
        assert!(!claims(r#"{"exp":2000}"#).unwrap().allow(Action::Play, "x"));
        for bad in [r#"["watch /x"]"#, r#"["play /../x"]"#, r#""play""#, "[7]"] {
            let text = format!(r#"{{"exp":2000,"onrush_rights":{bad}}}"#);
            assert_eq!(claims(&text), Err(JwtError::Syntax), "{bad}");
        }
    }

    #[test]
    fn rights_and_bytes_are_counted_to_their_limits() {
        let rights = |count: usize| {
            let list = vec![r#""play /x""#; count].join(",");
            claims(&format!(r#"{{"exp":2000,"onrush_rights":[{list}]}}"#)).map(drop)
        };
        assert_eq!(rights(JWT_RIGHTS_MAX), Ok(()));
        assert_eq!(rights(JWT_RIGHTS_MAX + 1), Err(JwtError::Syntax));
        let mut long = token(HEADER, "{}");
        let filling = JWT_BYTES_MAX - long.len();
        long += &"A".repeat(filling / 4 * 4);
        assert!(Jwt::parse(&long).is_ok());
        long += "AAAA";
        assert_eq!(Jwt::parse(&long).map(drop), Err(JwtError::Syntax));
    }

    #[test]
    fn what_is_no_signed_token_is_refused() {
        let none = token(r#"{"alg":"none"}"#, "{}");
        let critical = token(r#"{"alg":"RS256","crit":null}"#, "{}");
        let double = token(r#"{"alg":"RS256","alg":"HS256"}"#, "{}");
        for (text, expected) in [
            (&*none, JwtError::Algorithm),
            (&critical, JwtError::Algorithm),
            (&double, JwtError::Syntax),
            ("", JwtError::Syntax),
            ("a.b", JwtError::Syntax),
            ("..", JwtError::Syntax),
            (&none.replace(".c2ln", ".c2l="), JwtError::Algorithm),
            (
                &token(HEADER, "{}").replace(".c2ln", ".c2l="),
                JwtError::Syntax,
            ),
        ] {
            assert_eq!(Jwt::parse(text).map(drop), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_query_has_one_token_of_its_letters() {
        assert_eq!(token_of_query("a=b&token=x.y-z_&c"), Some("x.y-z_"));
        for query in [
            "",
            "token",
            "token=",
            "token=a&token=b",
            "token=a%2e",
            "token=a\"",
            "atoken=b",
        ] {
            assert_eq!(token_of_query(query), None, "{query}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics_and_gives_nothing(
            header in "[{}\":,a-z\\[\\]0-9]{0,40}", claims in "[{}\":,a-z\\[\\]0-9]{0,60}",
        ) {
            let token = token(&header, &claims);
            if let Ok(jwt) = Jwt::parse(&token) {
                prop_assert!(jwt.claims(|_, _| false, &NOW).is_err());
                let _any = jwt.claims(|_, _| true, &NOW);
            }
        }
    }
}
