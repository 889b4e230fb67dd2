//! What clients and servers say of who they are: each line of an input as a header, a challenge, a
//! query and a token, and the whole as a set of keys.

use onrush_wire::auth::{
    Action, Algorithm, Answering, Credentials, Grant, JWK_KEYS_MAX, Jwk, Jwt, JwtError,
    JwtExpected, PATTERN_BYTES_MAX, Pattern, ha1, token_of_query,
};

use crate::memory::bounded;

/// What reading a line may hold beside some times the line.
const MEMORY_BYTES: usize = 64 << 10;

const EXPECTED: JwtExpected<'_> = JwtExpected {
    now_s: 1000,
    audience: None,
    issuer: None,
};

/// Reads each line in every way.
///
/// # Panics
///
/// If a promise is broken.
pub(crate) fn check(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for line in text.lines() {
        bounded(MEMORY_BYTES + 64 * line.len(), || {
            credentials(line);
            challenge(line);
            query(line);
            token(line);
            pattern(line);
        });
    }
    let keys = bounded(MEMORY_BYTES + 64 * text.len(), || {
        Jwk::parse_set(&text, false)
    });
    if let Ok(keys) = keys {
        assert!((1..=JWK_KEYS_MAX).contains(&keys.len()));
    }
}

fn credentials(line: &str) {
    let Ok(Credentials::Digest(digest)) = Credentials::parse(line) else {
        return;
    };
    // Nobody has this password, so that whoever proves it has found a hole.
    let known = ha1(
        digest.algorithm,
        &digest.user,
        &digest.realm,
        "\u{1}a password",
    );
    assert!(!digest.proves(&known, "DESCRIBE"), "{line}");
    assert!(!digest.proves("", "DESCRIBE"), "{line}");
}

fn challenge(line: &str) {
    let mut answering = Answering::new("anna", "secret");
    let has_answer = answering.challenged([line].into_iter());
    let header = answering.authorization("DESCRIBE", "rtsp://host/film", "cnonce");
    assert_eq!(has_answer, header.is_some());
    let Some(header) = header else {
        return;
    };
    assert!(!header.chars().any(char::is_control), "{header:?}");
    match Credentials::parse(&header) {
        Ok(Credentials::Basic { user, password }) => {
            assert_eq!((&*user, password.as_str()), ("anna", "secret"));
        }
        Ok(Credentials::Digest(digest)) => {
            let known = ha1(digest.algorithm, "anna", &digest.realm, "secret");
            assert!(digest.proves(&known, "DESCRIBE"), "{header}");
            assert!(Algorithm::ALL.contains(&digest.algorithm));
        }
        other => panic!("{header}: {other:?}"),
    }
}

fn query(line: &str) {
    if let Some(Ok(grant)) = Grant::of_query(line) {
        let checked = grant.check([&b"a key that nobody knows"[..]], "film", 0);
        assert!(checked.is_err(), "{line}");
        assert_eq!(Grant::of_query(&grant.to_string()), Some(Ok(grant)));
    }
    let is_of_urls = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    assert!(token_of_query(line).is_none_or(|token| token.bytes().all(is_of_urls)));
}

fn token(line: &str) {
    let Ok(jwt) = Jwt::parse(line) else {
        return;
    };
    let refused = jwt.claims(|_, _| false, &EXPECTED).map(drop);
    assert_eq!(refused, Err(JwtError::Signature));
    if let Ok(claims) = jwt.claims(|_, _| true, &EXPECTED) {
        let _any = claims.allow(Action::Play, "kids/a.mp4");
    }
}

fn pattern(line: &str) {
    let Ok(pattern) = line.parse::<Pattern>() else {
        return;
    };
    // It is written with a slash in front, and that may be one byte too many.
    if line.len() < PATTERN_BYTES_MAX {
        let written = pattern.to_string().parse::<Pattern>();
        assert_eq!(written.as_ref(), Ok(&pattern), "{line}");
    }
    let path: String = line.chars().take(100).collect();
    let _any = pattern.matches(&path) || pattern.matches("kids/a.mp4");
}
