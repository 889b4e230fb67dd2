//! The other side of a challenge: what a client of ours answers.

use zeroize::Zeroizing;

use super::Algorithm;
use super::digest::response;
use super::params::Params;

/// Who a client is to a server, and what it has been asked. Neither is shown by `Debug`.
#[derive(Clone)]
pub struct Answering {
    user: String,
    password: Zeroizing<String>,
    challenge: Option<Asked>,
    /// How often the nonce was used.
    count: u32,
}

#[derive(Clone)]
enum Asked {
    Basic,
    Digest {
        algorithm: Algorithm,
        realm: String,
        nonce: String,
        opaque: Option<String>,
        has_qop: bool,
        names_algorithm: bool,
    },
}

impl Answering {
    /// Somebody of that name and password, who has not been asked yet.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            user: user.to_owned(),
            password: Zeroizing::new(password.to_owned()),
            challenge: None,
            count: 0,
        }
    }

    /// Takes the WWW-Authenticate headers of a 401. Whether there is a better answer now than
    /// before: not, if the same was answered, because then the password is wrong.
    pub fn challenged<'a>(&mut self, challenges: impl Iterator<Item = &'a str>) -> bool {
        let (mut best, mut is_stale) = (None, false);
        for challenge in challenges {
            let (scheme, rest) = scheme_of(challenge);
            let Ok(params) = Params::parse(rest) else {
                continue;
            };
            if scheme.eq_ignore_ascii_case("digest") {
                let stale = params.get("stale").unwrap_or("");
                is_stale |= stale.eq_ignore_ascii_case("true");
            }
            let next = read(scheme, &params);
            if next.as_ref().map(rank) > best.as_ref().map(rank) {
                best = next;
            }
        }
        let is_new = best.is_some() && (self.challenge.is_none() || is_stale);
        if best.is_some() {
            (self.challenge, self.count) = (best, 0);
        }
        is_new
    }

    /// What the WWW-Authenticate headers of a 401 ask for, where nothing of it can be answered,
    /// whatever the password is: schemes, with their algorithms.
    pub fn not_understood<'a>(challenges: impl Iterator<Item = &'a str>) -> Option<String> {
        let mut asked = Vec::new();
        for challenge in challenges {
            let (scheme, rest) = scheme_of(challenge);
            let params = Params::parse(rest).ok();
            if params.as_ref().is_some_and(|it| read(scheme, it).is_some()) {
                return None;
            }
            let algorithm = params.as_ref().and_then(|it| it.get("algorithm"));
            let one = format!("{scheme} {}", algorithm.unwrap_or(""));
            asked.push(one.trim_end().to_owned());
        }
        let asked = asked.join(", ");
        let plain = asked.chars().filter(|c| !c.is_control());
        Some(plain.take(ASKED_CHARS_MAX).collect())
    }

    /// The Authorization header of a request, if one was asked for. `cnonce` is random text of
    /// letters and digits.
    pub fn authorization(&mut self, method: &str, uri: &str, cnonce: &str) -> Option<String> {
        use base64::Engine;
        self.count = self.count.wrapping_add(1);
        Some(match self.challenge.as_ref()? {
            Asked::Basic => {
                let both = Zeroizing::new(format!("{}:{}", self.user, *self.password));
                let both = base64::engine::general_purpose::STANDARD.encode(&*both);
                format!("Basic {both}")
            }
            Asked::Digest {
                algorithm,
                realm,
                nonce,
                opaque,
                has_qop,
                names_algorithm,
            } => {
                let ha1 = super::ha1(*algorithm, &self.user, realm, &self.password);
                let count = format!("{:08x}", self.count);
                let qop = has_qop.then_some((count.as_str(), cnonce));
                let proof = response(*algorithm, &ha1, nonce, qop, (method, uri));
                let user = escaped(&self.user);
                let realm = escaped(realm);
                let mut text = format!(
                    "Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{}\", uri=\"{}\", \
                     response=\"{proof}\"",
                    escaped(nonce),
                    escaped(uri),
                );
                if *names_algorithm {
                    text += &format!(", algorithm={}", algorithm.as_str());
                }
                if let Some(opaque) = opaque {
                    text += &format!(", opaque=\"{}\"", escaped(opaque));
                }
                if *has_qop {
                    text += &format!(", qop=auth, nc={count}, cnonce=\"{cnonce}\"");
                }
                text
            }
        })
    }
}

impl std::fmt::Debug for Answering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

/// The scheme of a challenge, and what stands behind it.
fn scheme_of(challenge: &str) -> (&str, &str) {
    let challenge = challenge.trim();
    challenge.split_once(' ').unwrap_or((challenge, ""))
}

fn read(scheme: &str, params: &Params) -> Option<Asked> {
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Asked::Basic);
    }
    if !scheme.eq_ignore_ascii_case("digest") {
        return None;
    }
    let algorithm = match params.get("algorithm") {
        None => Algorithm::Md5,
        Some(name) => Algorithm::of(name)?,
    };
    let mut qops = params.get("qop").unwrap_or("").split(',');
    let plain = |value: &str| !value.chars().any(char::is_control);
    let (realm, nonce) = (params.get("realm")?, params.get("nonce")?);
    if !plain(realm) || !plain(nonce) || !params.get("opaque").is_none_or(plain) {
        return None;
    }
    Some(Asked::Digest {
        algorithm,
        realm: realm.to_owned(),
        nonce: nonce.to_owned(),
        opaque: params.get("opaque").map(str::to_owned),
        has_qop: qops.any(|qop| qop.trim().eq_ignore_ascii_case("auth")),
        names_algorithm: params.get("algorithm").is_some(),
    })
}

/// Which of several is answered: the highest.
fn rank(asked: &Asked) -> u8 {
    match asked {
        Asked::Basic => 0,
        Asked::Digest { algorithm, .. } => match algorithm {
            Algorithm::Md5 => 1,
            Algorithm::Sha256 => 2,
        },
    }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Characters of what is not understood, for a log.
const ASKED_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::super::{Challenge, Credentials, ha1};
    use super::*;

    fn challenge(algorithm: Algorithm, nonce: &str, is_stale: bool) -> String {
        let realm = "on\u{fc}rush";
        let challenge = Challenge::Digest {
            algorithm,
            realm,
            nonce,
            is_stale,
        };
        challenge.to_string()
    }

    #[test]
    fn what_is_answered_proves_the_password_here() {
        for algorithm in Algorithm::ALL {
            let mut answering = Answering::new("an\"na", "secret");
            assert_eq!(answering.authorization("PLAY", "rtsp://h/a", "x"), None);
            let asked = challenge(algorithm, "nonce", false);
            assert!(answering.challenged([asked.as_str()].into_iter()));
            for count in 1..3 {
                let text = answering
                    .authorization("PLAY", "rtsp://h/a", "abc")
                    .unwrap();
                let Ok(Credentials::Digest(digest)) = Credentials::parse(&text) else {
                    panic!("{text}");
                };
                assert_eq!(digest.qop.as_ref().unwrap().count, count);
                let known = ha1(algorithm, "an\"na", "on\u{fc}rush", "secret");
                assert!(digest.proves(&known, "PLAY"), "{text}");
                assert!(!digest.proves(&known, "PAUSE"));
            }
        }
    }

    #[test]
    fn the_best_is_answered_and_the_same_is_answered_once() {
        let (md5, sha) = (
            challenge(Algorithm::Md5, "n", false),
            challenge(Algorithm::Sha256, "n", false),
        );
        let mut answering = Answering::new("anna", "secret");
        let all = ["Basic realm=\"x\"", &sha, "Bearer realm=\"x\"", &md5];
        assert!(answering.challenged(all.into_iter()));
        let text = answering.authorization("PLAY", "u", "c").unwrap();
        assert!(text.contains("SHA-256"), "{text}");
        assert!(
            !answering.challenged([sha.as_str()].into_iter()),
            "it was wrong"
        );
        let stale = challenge(Algorithm::Sha256, "m", true);
        assert!(answering.challenged([stale.as_str()].into_iter()));
        let mut answering = Answering::new("anna", "secret");
        assert!(!answering.challenged(["Digest x", "Negotiate", ""].into_iter()));
        assert!(answering.challenged(["Basic realm=\"x\""].into_iter()));
        let text = answering.authorization("PLAY", "u", "c").unwrap();
        assert_eq!(text, "Basic YW5uYTpzZWNyZXQ=");
        assert!(!format!("{answering:?}").contains("secret"));
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let what = |challenges: &[&'static str]| {
            let challenges = challenges.iter().copied();
            Answering::not_understood(challenges)
        };
        let other = "Digest realm=\"x\", nonce=\"1\", algorithm=SHA-512-256";
        let both = what(&[other, "Bearer realm=\"x\""]);
        assert_eq!(both.as_deref(), Some("Digest SHA-512-256, Bearer"));
        assert_eq!(what(&[other, "Basic realm=\"x\""]), None);
        assert_eq!(what(&[" Negotiate"]).as_deref(), Some("Negotiate"));
        assert_eq!(what(&[]).as_deref(), Some(""));
    }
}
