//! Proofs of a password, which do not carry it (RFC 7616).

use onrush_wire::auth::Digest;
use onrush_wire::rtsp::Target;

use super::super::file::Secret;
use super::super::login::Login;
use super::super::watched::Watched;
use super::{Asked, Refusal, Rules};

impl Rules {
    /// Whose proof it is.
    ///
    /// # Errors
    ///
    /// Why it is not taken.
    pub(super) fn digest(&self, asked: &Asked<'_>, digest: &Digest) -> Result<Login, Refusal> {
        let now = self.started.elapsed();
        let Some(nonce) = self.nonces.read(&digest.nonce, now, asked.peer) else {
            return Err(self.stale(asked));
        };
        let file = self.file.as_ref().map(Watched::now);
        let user = file.as_ref().and_then(|file| file.user(&digest.user));
        let ha1 = user.and_then(|user| match &user.secret {
            Secret::Digest(hashes) => {
                let mut hashes = hashes.iter();
                let hash = hashes.find(|(algorithm, _)| *algorithm == digest.algorithm);
                hash.map(|(_, hash)| &**hash)
            }
            Secret::Argon2(_) => None,
        });
        // Somebody unknown costs the same time.
        let is_proven = digest.proves(ha1.unwrap_or(""), asked.method) && ha1.is_some();
        if !is_proven || !is_about(&digest.uri, asked) {
            return Err(self.wrong(asked, now));
        }
        // Without a count a request can be repeated until its nonce is too old, from its address.
        let count = digest.qop.as_ref().map(|qop| qop.count);
        if count.is_some_and(|count| !self.nonces.is_first(nonce, count, now)) {
            return Err(self.stale(asked));
        }
        Ok(Login::User(digest.user.clone()))
    }
}

/// Whether the target that was hashed names what is asked for, so that credentials for one path are
/// none for another. Clients differ in how they write it, and RTSP's name a track or the whole.
fn is_about(uri: &str, asked: &Asked<'_>) -> bool {
    let Ok(Target::Path(named)) = Target::parse(uri) else {
        return uri == asked.uri;
    };
    let below = named.strip_prefix(asked.path);
    uri == asked.uri || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
