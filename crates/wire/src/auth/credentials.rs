//! The Authorization header (RFC 9110, section 11.6.2).

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode_str;
use thiserror::Error;
use zeroize::Zeroizing;

use super::digest::{Algorithm, Digest, Qop};
use super::params::Params;

/// Who asks, and by what it is to be believed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Credentials {
    /// The password itself (RFC 7617).
    Basic {
        /// Whose.
        user: String,
        /// The password, which is wiped from memory when it is dropped.
        password: Zeroizing<String>,
    },
    /// A proof that the password is known.
    Digest(Digest),
    /// A token (RFC 6750).
    Bearer(String),
}

/// Why an Authorization header says nothing that could be judged.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum CredentialsError {
    /// It follows no grammar, or what it says twice differs.
    #[error("Authorization is malformed")]
    Syntax,
    /// A parameter of Digest is missing.
    #[error("Digest lacks its {parameter}")]
    Missing {
        /// Which.
        parameter: &'static str,
    },
    /// A scheme, an algorithm or a quality of protection that was not asked for.
    #[error("authorize by one of the challenges")]
    Unknown,
}

impl CredentialsError {
    /// Whether another challenge may help: the client's software is sound, and only chose what
    /// nobody offered.
    #[must_use]
    pub fn is_choice(&self) -> bool {
        *self == Self::Unknown
    }
}

impl Credentials {
    /// Reads the value of an Authorization header.
    ///
    /// # Errors
    ///
    /// See [`CredentialsError`].
    pub fn parse(value: &str) -> Result<Self, CredentialsError> {
        let value = value.trim();
        let (scheme, rest) = value.split_once([' ', '\t']).unwrap_or((value, ""));
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("Digest") {
            digest(&Params::parse(rest)?).map(Self::Digest)
        } else if scheme.eq_ignore_ascii_case("Basic") {
            basic(rest)
        } else if scheme.eq_ignore_ascii_case("Bearer") {
            let is_token_byte = |b: u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(&b);
            match !rest.is_empty() && rest.bytes().all(is_token_byte) {
                true => Ok(Self::Bearer(rest.to_owned())),
                false => Err(CredentialsError::Syntax),
            }
        } else {
            Err(CredentialsError::Unknown)
        }
    }
}

fn basic(encoded: &str) -> Result<Credentials, CredentialsError> {
    let bytes = BASE64
        .decode(encoded)
        .map_err(|_| CredentialsError::Syntax)?;
    // What is no UTF-8 comes from a client that writes ISO 8859-1, as they did before RFC 7617.
    let text = Zeroizing::new(
        String::from_utf8(bytes)
            .unwrap_or_else(|bytes| bytes.as_bytes().iter().copied().map(char::from).collect()),
    );
    let (user, password) = text.split_once(':').ok_or(CredentialsError::Syntax)?;
    if text.chars().any(char::is_control) {
        return Err(CredentialsError::Syntax);
    }
    Ok(Credentials::Basic {
        user: user.to_owned(),
        password: password.to_owned().into(),
    })
}

fn digest(params: &Params) -> Result<Digest, CredentialsError> {
    let required = |parameter| {
        let value = params.get(parameter).map(str::to_owned);
        value.ok_or(CredentialsError::Missing { parameter })
    };
    let response = required("response")?;
    let is_hashed = params.get("userhash").unwrap_or("false");
    if !is_hashed.eq_ignore_ascii_case("false") {
        return Err(CredentialsError::Unknown);
    }
    let qop = match params.get("qop") {
        // Who does not say which sends the form of RFC 2069, whatever else it sends.
        None => None,
        Some(qop) if qop.eq_ignore_ascii_case("auth") => {
            let count_text = required("nc")?;
            let is_count = count_text.len() == 8;
            let count = u32::from_str_radix(&count_text, 16).ok();
            let count = count.filter(|_| is_count && !count_text.starts_with('+'));
            Some(Qop {
                count: count.ok_or(CredentialsError::Syntax)?,
                count_text,
                cnonce: required("cnonce")?,
            })
        }
        Some(_) => return Err(CredentialsError::Unknown),
    };
    Ok(Digest {
        user: user(params)?,
        realm: required("realm")?,
        nonce: required("nonce")?,
        uri: required("uri")?,
        algorithm: algorithm(params, &response)?,
        qop,
        response,
    })
}

/// By which function the response was made.
fn algorithm(params: &Params, response: &str) -> Result<Algorithm, CredentialsError> {
    // RFC 7616, section 3.4: MD5 where it is not said.
    let named = match params.get("algorithm") {
        None => Algorithm::Md5,
        Some(name) => Algorithm::of(name).ok_or(CredentialsError::Unknown)?,
    };
    // lftp 4.9 knows nothing but MD5, and names whatever the challenge did.
    let is_md5 = response.len() == Algorithm::Md5.hex_digits();
    Ok(if is_md5 { Algorithm::Md5 } else { named })
}

/// The name, which has a second form for what a quoted text cannot say (RFC 7616, section 3.4; RFC
/// 5987).
fn user(params: &Params) -> Result<String, CredentialsError> {
    match (params.get("username"), params.get("username*")) {
        (Some(user), None) => Ok(user.to_owned()),
        (None, Some(extended)) => {
            let (charset, rest) = extended.split_once('\'').ok_or(CredentialsError::Syntax)?;
            let (_language, value) = rest.split_once('\'').ok_or(CredentialsError::Syntax)?;
            if !charset.eq_ignore_ascii_case("UTF-8") {
                return Err(CredentialsError::Syntax);
            }
            let decoded = percent_decode_str(value).decode_utf8();
            decoded
                .map(std::borrow::Cow::into_owned)
                .map_err(|_| CredentialsError::Syntax)
        }
        (None, None) => Err(CredentialsError::Missing {
            parameter: "username",
        }),
        (Some(_), Some(_)) => Err(CredentialsError::Syntax),
    }
}

/// Some clients leave the padding out.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Challenge, ha1};
    use super::*;

    fn digest_of(value: &str) -> Digest {
        match Credentials::parse(value) {
            Ok(Credentials::Digest(digest)) => digest,
            other => panic!("{other:?}"),
        }
    }

    /// RFC 7616, section 3.9.1, as it is written there.
    #[test]
    fn the_example_of_rfc_7616_is_read() {
        let digest = digest_of(
            "Digest username=\"Mufasa\",\
             realm=\"http-auth@example.org\",\
             uri=\"/dir/index.html\",\
             algorithm=SHA-256,\
             nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\",\
             nc=00000001,\
             cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\",\
             qop=auth,\
             response=\"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1\",\
             opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\"",
        );
        assert_eq!(digest.algorithm, Algorithm::Sha256);
        assert_eq!(digest.qop.as_ref().map(|qop| qop.count), Some(1));
        let ha1 = ha1(digest.algorithm, "Mufasa", &digest.realm, "Circle of Life");
        assert!(digest.proves(&ha1, "GET"));
    }

    /// As live555 writes it.
    #[test]
    fn rfc_2069_has_no_qop_and_is_md5() {
        let digest = digest_of(
            "Digest username=\"u\", realm=\"r\", nonce=\"n\", uri=\"rtsp://h/a\", response=\"x\"",
        );
        assert_eq!((digest.algorithm, digest.qop), (Algorithm::Md5, None));
    }

    /// As lftp writes it.
    #[test]
    fn a_response_as_long_as_md5s_is_md5s() {
        let begin = "Digest username=u,realm=r,nonce=n,uri=/,algorithm=\"SHA-256\",response=";
        let of = |digits| digest_of(&format!("{begin}{}", "0".repeat(digits))).algorithm;
        assert_eq!((of(32), of(64)), (Algorithm::Md5, Algorithm::Sha256));
    }

    #[test]
    fn basic_is_decoded_whatever_its_charset() {
        let basic = |user: &str, password: &str| {
            Ok(Credentials::Basic {
                user: user.to_owned(),
                password: password.to_owned().into(),
            })
        };
        let parse = Credentials::parse;
        // RFC 7617, sections 2 and 2.1.
        let aladdin = parse("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(aladdin, basic("Aladdin", "open sesame"));
        assert_eq!(parse("basic  dGVzdDoxMjPCow"), basic("test", "123£"));
        assert_eq!(parse("Basic dGVzdDoxMjOj"), basic("test", "123£"));
        assert_eq!(parse("Basic Og=="), basic("", ""));
        assert_eq!(parse("Basic YTpiOmM="), basic("a", "b:c"));
        for bad in ["Basic", "Basic YQ==", "Basic !", "Basic YTpiCg=="] {
            assert_eq!(parse(bad), Err(CredentialsError::Syntax), "{bad}");
        }
    }

    #[test]
    fn what_was_not_asked_for_is_told_from_what_is_broken() {
        let with = |more: &str| {
            let all = format!(
                "Digest username=u,realm=r,nonce=n,uri=/,response=x{}{more}",
                if more.is_empty() { "" } else { "," }
            );
            Credentials::parse(&all).map(drop)
        };
        assert_eq!(with(""), Ok(()));
        for unknown in ["algorithm=MD5-sess", "qop=auth-int", "userhash=true"] {
            assert_eq!(with(unknown), Err(CredentialsError::Unknown), "{unknown}");
        }
        for broken in [
            "nonce=m",
            "username*=UTF-8''u",
            "qop=auth,nc=1,cnonce=c",
            "qop=auth,nc=+0000001,cnonce=c",
            "qop=auth,nc=0000000g,cnonce=c",
        ] {
            assert_eq!(with(broken), Err(CredentialsError::Syntax), "{broken}");
        }
        let lacks = |parameter| Err(CredentialsError::Missing { parameter });
        assert_eq!(with("qop=auth,nc=00000001"), lacks("cnonce"));
        assert_eq!(with("qop=auth"), lacks("nc"));
        let nobody = Credentials::parse("Digest realm=r,nonce=n,uri=/,response=x");
        assert_eq!(nobody.map(drop), lacks("username"));
        for scheme in ["", "Negotiate abc", "NTLM"] {
            assert!(
                Credentials::parse(scheme).unwrap_err().is_choice(),
                "{scheme}"
            );
        }
        let extended = "Digest username*=UTF-8''J%C3%A4s%C3%B8n,realm=r,nonce=n,uri=/,response=x";
        assert_eq!(digest_of(extended).user, "Jäsøn");
    }

    proptest! {
        #[test]
        fn what_a_client_quotes_is_read_back(
            user in "\\PC{0,12}", realm in "[ -~]{0,12}", uri in "[!-~]{1,20}", count in 1_u32..,
        ) {
            let quote = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"");
            let digest = digest_of(&format!(
                "Digest username=\"{}\", realm=\"{}\", nonce=\"n\", uri=\"{}\", response=\"00\", \
                 algorithm=md5, qop=\"auth\", nc={count:08x}, cnonce=\"\"",
                quote(&user), quote(&realm), quote(&uri),
            ));
            prop_assert_eq!((digest.user, digest.realm, digest.uri), (user, realm, uri));
            prop_assert_eq!(digest.qop.unwrap().count, count);
        }

        #[test]
        fn a_challenge_is_read_by_the_same_grammar(nonce in "[!#-\\[\\]-~]{1,40}") {
            let challenge = Challenge::Digest {
                algorithm: Algorithm::Sha256,
                realm: "onrush",
                nonce: &nonce,
                is_stale: true,
            };
            let text = challenge.to_string();
            let params = Params::parse(text.strip_prefix("Digest ").unwrap()).unwrap();
            prop_assert_eq!(params.get("nonce"), Some(&*nonce));
            prop_assert_eq!(params.get("stale"), Some("true"));
        }

        #[test]
        fn noise_never_panics(scheme in "Digest|Basic|Bearer|\\PC{0,8}", rest in "\\PC{0,80}") {
            let _any = Credentials::parse(&format!("{scheme} {rest}"));
        }

        /// Bytes that come near to credentials more often than noise would.
        #[test]
        fn near_credentials_never_panic(parts in prop::collection::vec(
            "username|username\\*|nonce|qop|nc|=|,|\"|\\\\|auth|00000001|UTF-8''%c3|[a-z ]{1,3}",
            0..40,
        )) {
            let _any = Credentials::parse(&format!("Digest {}", parts.concat()));
        }
    }
}
