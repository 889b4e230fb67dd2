//! Digest access authentication (RFC 7616; RFC 2617 and RFC 2069 as older clients speak it).

use std::fmt::Write;

use md5::Md5;
use sha2::Sha256;

/// A hash function of Digest.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Algorithm {
    /// What every player knows.
    Md5,
    /// What should be used where it is known.
    Sha256,
}

/// What a client sent to prove that it knows a password.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Digest {
    /// Whose.
    pub user: String,
    /// For what, as the challenge said.
    pub realm: String,
    /// The challenge's number.
    pub nonce: String,
    /// What is asked for, as the client wrote it.
    pub uri: String,
    /// With which function.
    pub algorithm: Algorithm,
    /// `qop=auth`; `None` is the form of RFC 2069, in which a request can be repeated unnoticed.
    pub qop: Option<Qop>,
    /// The proof, in hexadecimal digits.
    pub response: String,
}

/// What `qop=auth` adds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Qop {
    /// How often the client has used the nonce, from 1 on.
    pub count: u32,
    /// The same as it was sent: eight hexadecimal digits, which are hashed as they are.
    pub count_text: String,
    /// The client's own random text.
    pub cnonce: String,
}

impl Algorithm {
    /// All of them, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Md5];

    /// Its name in headers.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    /// That of this name, in any case.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        let mut known = Self::ALL.into_iter();
        known.find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(name))
    }

    /// Hexadecimal digits of its hashes.
    #[must_use]
    pub const fn hex_digits(self) -> usize {
        match self {
            Self::Md5 => 32,
            Self::Sha256 => 64,
        }
    }

    /// The hash of `parts` with colons between them, in small hexadecimal digits.
    fn hash(self, parts: &[&str]) -> String {
        match self {
            Self::Md5 => hash::<Md5>(parts),
            Self::Sha256 => hash::<Sha256>(parts),
        }
    }
}

/// The hash by which a server knows a user's password for a realm (HA1): whoever has it can log in
/// there as that user.
#[must_use]
pub fn ha1(algorithm: Algorithm, user: &str, realm: &str, password: &str) -> String {
    algorithm.hash(&[user, realm, password])
}

impl Digest {
    /// Whether this was made for a request of `method` by somebody who knows the password of which
    /// [`ha1`] was made. Its time does not depend on where the proof differs.
    #[must_use]
    pub fn proves(&self, ha1: &str, method: &str) -> bool {
        let qop = self.qop.as_ref();
        let qop = qop.map(|qop| (&*qop.count_text, &*qop.cnonce));
        let expected = response(self.algorithm, ha1, &self.nonce, qop, (method, &self.uri));
        // Some clients write capitals.
        let given = self.response.bytes().map(|byte| byte.to_ascii_lowercase());
        let differing = expected
            .bytes()
            .zip(given)
            .fold(0, |all, (a, b)| all | (a ^ b));
        expected.len() == self.response.len() && differing == 0
    }
}

/// The proof for a request of that method and URI (RFC 7616, section 3.4.1); `qop` is the count and
/// the client's own text.
pub(super) fn response(
    algorithm: Algorithm,
    ha1: &str,
    nonce: &str,
    qop: Option<(&str, &str)>,
    (method, uri): (&str, &str),
) -> String {
    let ha2 = algorithm.hash(&[method, uri]);
    match qop {
        None => algorithm.hash(&[ha1, nonce, &ha2]),
        Some((count, cnonce)) => algorithm.hash(&[ha1, nonce, count, cnonce, "auth", &ha2]),
    }
}

fn hash<H: sha2::Digest>(parts: &[&str]) -> String {
    let mut hash = H::new();
    for (n, part) in parts.iter().enumerate() {
        hash.update(if n > 0 { &b":"[..] } else { b"" });
        hash.update(part);
    }
    let bytes = hash.finalize();
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes.as_slice() {
        write!(text, "{byte:02x}").expect("writing to memory does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qop(cnonce: &str) -> Option<Qop> {
        Some(Qop {
            count: 1,
            count_text: "00000001".to_owned(),
            cnonce: cnonce.to_owned(),
        })
    }

    /// Of RFC 7616, section 3.9.1, with this algorithm's response.
    fn of_rfc_7616(algorithm: Algorithm, response: &str) -> Digest {
        Digest {
            user: "Mufasa".to_owned(),
            realm: "http-auth@example.org".to_owned(),
            nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v".to_owned(),
            uri: "/dir/index.html".to_owned(),
            algorithm,
            qop: qop("f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"),
            response: response.to_owned(),
        }
    }

    #[test]
    fn the_examples_of_rfc_7616_are_proofs() {
        for (algorithm, response) in [
            (Algorithm::Md5, "8ca523f5e9506fed4657c9700eebdbec"),
            (
                Algorithm::Sha256,
                "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
            ),
        ] {
            let digest = of_rfc_7616(algorithm, response);
            let ha1 = ha1(algorithm, &digest.user, &digest.realm, "Circle of Life");
            assert_eq!(ha1.len(), algorithm.hex_digits());
            assert!(digest.proves(&ha1, "GET"));
            assert!(!digest.proves(&ha1, "HEAD"));
            let upper = of_rfc_7616(algorithm, &response.to_ascii_uppercase());
            assert!(upper.proves(&ha1, "GET"));
            for wrong in ["", &response[1..], &response.replace('c', "d")] {
                assert!(
                    !of_rfc_7616(algorithm, wrong).proves(&ha1, "GET"),
                    "{wrong}"
                );
            }
        }
    }

    /// RFC 2617, section 3.5; and without qop, which makes it RFC 2069.
    #[test]
    fn the_example_of_rfc_2617_is_a_proof() {
        let mut digest = Digest {
            user: "Mufasa".to_owned(),
            realm: "testrealm@host.com".to_owned(),
            nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093".to_owned(),
            uri: "/dir/index.html".to_owned(),
            algorithm: Algorithm::Md5,
            qop: qop("0a4f113b"),
            response: "6629fae49393a05397450978507c4ef1".to_owned(),
        };
        let ha1 = ha1(Algorithm::Md5, "Mufasa", &digest.realm, "Circle Of Life");
        assert_eq!(ha1, "939e7578ed9e3c518a452acee763bce9");
        assert!(digest.proves(&ha1, "GET"));
        digest.qop = None;
        assert!(!digest.proves(&ha1, "GET"));
        digest.response = "670fd8c2df070c60b045671b8b24ff02".to_owned();
        assert!(digest.proves(&ha1, "GET"));
    }

    #[test]
    fn algorithms_are_found_by_name_in_any_case() {
        for algorithm in Algorithm::ALL {
            assert_eq!(
                Algorithm::of(&algorithm.as_str().to_lowercase()),
                Some(algorithm)
            );
        }
        assert_eq!(Algorithm::of("MD5-sess"), None);
    }
}
