//! Signatures by the examples of the RFCs, and by keys of this machine's.

use std::fs;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use onrush_wire::auth::{Action, JwtAlgorithm};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

use super::*;
use crate::testing::block_on;

const NOW: Duration = Duration::from_secs(1000);

fn set(keys: &str) -> Vec<Jwk> {
    Jwk::parse_set(&format!(r#"{{"keys":[{keys}]}}"#), true).unwrap()
}

fn encode(text: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(text)
}

/// RFC 7515, appendix A.1 and A.3; RFC 8037, appendix A.4; and of RSA one by `openssl dgst -sign`.
#[test]
fn the_examples_of_the_rfcs_are_signed() {
    let joe = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19y\
               b290Ijp0cnVlfQ";
    let hs256 = "{\"kty\":\"oct\",\"k\":\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKt\
        MN3Yj0iPS4hcgUuTwjAzZr1Z9CAow\"}";
    let rs256 = "{\"kty\":\"RSA\",\"e\":\"AQAB\",\"n\":\"uU_ZkBRref0JcZ5Iw1JZdsRy56P7yfmYKgd24dWnQy\
        wac91d05SsfAed07y0f6H21KgCaZvl50hRVjA-DYzhZF-s7Q8S78D0cWM5ws9VE7aHe89WOmmalYVyRWUU\
        y8MtIYKRo8aS7ma0D6yGyVmGJ0OxAhE8uD3ut9o5e3Y8LImIyq352-VBRlhsd9vrQPTqi6rtRe97Q3GRFs\
        RMcaLkY-Inq46grM-_iF7K19VHUPWtabviJ2i9wc0nf5OcluvKeYXcymdS36RTUnkAWszydEctkanBSA5B\
        BGGEhseUXnpYNPcMRgp2kG38krMabzkk6T4PZXd03iB_ZHYwHYRRCQ\"}";
    let es256 = "{\"kty\":\"EC\",\"crv\":\"P-256\",\"x\":\"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvR\
        VEU\",\"y\":\"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0\"}";
    let ed25519 =
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    for (key, signed, signature) in [
        (
            hs256,
            format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{joe}"),
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk",
        ),
        (
            rs256,
            format!("eyJhbGciOiJSUzI1NiJ9.{joe}"),
            "Utjb00VOMjhlnPiYeKoNGKfbGP6GKukZeyyfdBkRzrcYVIu23aALNlMfDsDFpsG674thRnLW1f\
                U3hPoNX7-pHq3XKEZTSejbrpU7ZcQUhgL3FHJJe05cjjwL9TuZxu75dycqxQHFTxNdq0IxPddF\
                wTmn4gwldlaze-1jQlnFw8yrEnEGH2cqVqiuOGrSR6n8wXAG8NJV2au9l18atuZv3k6wkZLd_q\
                z53hy9WFruzxcS8JbQVWoxDpxbWxJMWDxA9ED_HtPvmiCedAl0a1KyojeoYq3uioZl3oLQB84H\
                wwo0QZusV6xT6LC_gmyLNbM0uhYuIXQ0IgWiWcQtLppWLQ",
        ),
        (
            es256,
            format!("eyJhbGciOiJFUzI1NiJ9.{joe}"),
            "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJ\
                qPP3-Kg6NU1Q",
        ),
        (
            ed25519,
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sV\
                vpAr_MuM0KAg",
        ),
    ] {
        let key = &set(key)[0].numbers;
        let mut signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        assert!(is_signed_by(key, signed.as_bytes(), &signature), "{signed}");
        assert!(!is_signed_by(
            key,
            signed.to_uppercase().as_bytes(),
            &signature
        ));
        assert!(!is_signed_by(key, signed.as_bytes(), &[]));
        signature[10] ^= 1;
        assert!(!is_signed_by(key, signed.as_bytes(), &signature));
    }
}

/// A token by the key `kid`, which signs with Ed25519.
fn token(pair: &Ed25519KeyPair, kid: &str, claims: &str) -> String {
    let header = format!(r#"{{"alg":"EdDSA","kid":"{kid}"}}"#);
    let signed = format!("{}.{}", encode(header), encode(claims));
    let signature = pair.sign(signed.as_bytes());
    format!("{signed}.{}", encode(signature))
}

fn key_pair() -> (Ed25519KeyPair, String) {
    let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
    let x = encode(pair.public_key());
    let jwk = format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"one","x":"{x}"}}"#);
    (pair, jwk)
}

#[test]
fn a_token_is_taken_by_the_keys_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (pair, jwk) = key_pair();
    fs::write(&path, format!(r#"{{"keys":[{jwk}]}}"#)).unwrap();
    let config = JwtConfig {
        keys: JwtKeys::File(path),
        audience: Some("films".to_owned()),
        issuer: None,
    };
    let tokens = Tokens::open(&config, None).unwrap();
    let check = |token: &str| block_on(tokens.check(token, NOW));
    let good = r#"{"exp":4e9,"aud":"films","onrush_rights":["play /kids/**"]}"#;
    let claims = check(&token(&pair, "one", good)).unwrap();
    assert!(claims.allow(Action::Play, "kids/a.mp4") && !claims.allow(Action::Play, "a.mp4"));
    let refused = |token: &str| match check(token) {
        Err(TokenError::Token(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&token(&pair, "two", good)), JwtError::Signature);
    let old = good.replace("4e9", "1e9");
    assert_eq!(refused(&token(&pair, "one", &old)), JwtError::Expired);
    let others = good.replace("films", "books");
    assert_eq!(refused(&token(&pair, "one", &others)), JwtError::Audience);
    let (other_pair, _) = key_pair();
    let forged = check(&token(&other_pair, "one", good));
    assert_eq!(forged, Err(TokenError::Forged));
}

#[test]
fn a_token_is_remembered_while_it_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.json");
    let (pair, jwk) = key_pair();
    fs::write(&path, format!(r#"{{"keys":[{jwk}]}}"#)).unwrap();
    let config = JwtConfig {
        keys: JwtKeys::File(path),
        audience: None,
        issuer: None,
    };
    let tokens = Tokens::open(&config, None).unwrap();
    let good = token(&pair, "one", r#"{"exp":4e9}"#);
    let wrong = token(&pair, "two", r#"{"exp":4e9}"#);
    for (token, is_right) in [(&good, true), (&wrong, false)] {
        assert!(!tokens.remembers(token));
        assert_eq!(block_on(tokens.check(token, NOW)).is_ok(), is_right);
        assert_eq!(tokens.remembers(token), is_right);
    }
    let mut other = config.clone();
    other.audience = Some("films".to_owned());
    let mut after = Tokens::open(&other, None).unwrap();
    after.go_on(&tokens);
    assert!(after.remembers(&good));
    assert!(block_on(after.check(&good, NOW)).is_err());
    assert!(!after.remembers(&good), "it is right no more");
}

/// A public key must never be taken for one of HMAC (the confusion of RFC 8725, section 2.1).
#[test]
fn a_key_checks_by_its_own_algorithm_alone() {
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    let pair = EcdsaKeyPair::from_pkcs8(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        pkcs8.unwrap().as_ref(),
        &SystemRandom::new(),
    )
    .unwrap();
    let point = pair.public_key().as_ref();
    let (x, y) = (encode(&point[1..33]), encode(&point[33..]));
    let keys = set(&format!(
        r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}"}}"#
    ));
    for (alg, expected) in [("ES256", true), ("HS256", false), ("RS256", false)] {
        let token = format!("{}.e30.AAAA", encode(format!(r#"{{"alg":"{alg}"}}"#)));
        let jwt = Jwt::parse(&token).unwrap();
        assert_eq!(may_be_of(&jwt, &keys[0]), expected, "{alg}");
    }
    assert_eq!(keys[0].algorithm(), JwtAlgorithm::Es256);
    let signature = pair.sign(&SystemRandom::new(), b"x").unwrap();
    assert!(is_signed_by(&keys[0].numbers, b"x", signature.as_ref()));
}

#[test]
fn keys_of_a_url_must_come_unchanged() {
    let open = |url: &str| {
        let config = JwtConfig {
            keys: url.into(),
            audience: None,
            issuer: None,
        };
        Tokens::open(&config, None).map(drop)
    };
    assert!(
        open("http://127.0.0.1:9/keys").is_ok(),
        "it is not asked yet"
    );
    let error = open("http://id.example.org/keys").unwrap_err().to_string();
    assert!(error.contains("https://"), "{error}");
    assert!(open("/nonexistent").is_err());
}
