//! Passwords that are kept as slow hashes (Argon2, RFC 9106).
//!
//! Making such a hash takes tens of milliseconds and much memory, on purpose. So it is done on a
//! thread that may wait, for one request at a time, and what was right once is remembered.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use argon2::{Argon2, PasswordHash, PasswordHasher, PasswordVerifier};
use hmac::{Hmac, KeyInit, Mac};
use lru::LruCache;
use sha2::Sha256;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::random::random;

/// How long a request waits for the passwords of others.
pub const PASSWORD_TIME_MAX: Duration = Duration::from_secs(5);
/// Passwords that are remembered to be right: those of all users that a file may have.
pub const PASSWORDS_MAX: usize = 16_384;
/// Memory of a hash that a file of users may ask for.
pub const ARGON2_MEMORY_BYTES_MAX: usize = 256 << 20;
/// Its passes.
pub const ARGON2_PASSES_MAX: u32 = 16;

/// What is known of passwords.
#[derive(Debug)]
pub(super) struct Passwords {
    key: Zeroizing<[u8; 32]>,
    /// MACs of the hash and the password, the one that was used last in front.
    right: Mutex<LruCache<[u8; 32], ()>>,
    turn: Arc<Semaphore>,
}

impl Passwords {
    pub(super) fn new() -> Self {
        Self {
            key: Zeroizing::new(random()),
            right: Mutex::new(LruCache::unbounded()),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Whether it was seen before that `hash` is of that password.
    pub(super) fn remembers(&self, hash: &str, password: &str) -> bool {
        self.right().get(&self.mac(hash, password)).is_some()
    }

    /// The turn of one request to have a password looked at; `None` if it does not come in time.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.turn).acquire_owned();
        timeout(PASSWORD_TIME_MAX, turn).await.ok()?.ok()
    }

    /// Whether `hash` is of that password; `None` if that cannot be said.
    pub(super) async fn is_of(
        &self,
        turn: OwnedSemaphorePermit,
        hash: &str,
        password: &str,
    ) -> Option<bool> {
        let known = self.mac(hash, password);
        if self.right().get(&known).is_some() {
            return Some(true);
        }
        let (hash, password) = (hash.to_owned(), Zeroizing::new(password.to_owned()));
        let verify = move || {
            let is_of = verify(&hash, &password);
            drop(turn);
            is_of
        };
        let is_of = spawn_blocking(verify).await.ok()?;
        if is_of {
            self.remember(known);
        }
        Some(is_of)
    }

    fn remember(&self, known: [u8; 32]) {
        let mut right = self.right();
        right.put(known, ());
        // One that nobody has used for longest: were it all, all would be looked at again, and most
        // would wait in vain.
        if right.len() > PASSWORDS_MAX {
            right.pop_lru();
        }
    }

    fn right(&self) -> MutexGuard<'_, LruCache<[u8; 32], ()>> {
        self.right.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mac(&self, hash: &str, password: &str) -> [u8; 32] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.key).expect("a key of any length");
        // A hash holds no zero byte.
        mac.update(hash.as_bytes());
        mac.update(b"\0");
        mac.update(password.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

/// The hash of a password, with a salt of its own, as a PHC string.
#[must_use]
pub fn argon2(password: &str) -> String {
    let salt: [u8; 16] = random();
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt);
    hash.expect("these parameters are allowed").to_string()
}

/// Whether a hash can be used here.
pub(super) fn check(hash: &str) -> Result<(), String> {
    let parsed = PasswordHash::new(hash).map_err(|error| format!("argon2= {error}"))?;
    let number = |name: &str| parsed.params.get_decimal(name).unwrap_or(0);
    let memory_bytes = u64::from(number("m")) * 1024;
    let is_bounded = memory_bytes <= ARGON2_MEMORY_BYTES_MAX as u64
        && number("t") <= ARGON2_PASSES_MAX
        && number("p") <= ARGON2_PASSES_MAX;
    match parsed.algorithm.as_str() {
        "argon2id" | "argon2i" | "argon2d" if is_bounded && parsed.hash.is_some() => Ok(()),
        _ => Err(format!(
            "argon2= takes a hash of Argon2 of at most {} MiB and {ARGON2_PASSES_MAX} passes",
            ARGON2_MEMORY_BYTES_MAX >> 20
        )),
    }
}

fn verify(hash: &str, password: &str) -> bool {
    let parsed = PasswordHash::new(hash);
    parsed.is_ok_and(|parsed| {
        Argon2::default()
            .verify_password(password.as_bytes(), &parsed)
            .is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block_on;

    #[test]
    fn a_hash_is_of_its_password_alone() {
        let hash = argon2("open sesame");
        assert_eq!(check(&hash), Ok(()));
        assert_ne!(hash, argon2("open sesame"), "each has a salt of its own");
        let passwords = Passwords::new();
        let is_of = async |password: &str| {
            let turn = passwords.turn().await.unwrap();
            passwords.is_of(turn, &hash, password).await
        };
        block_on(async {
            assert_eq!(is_of("open barley").await, Some(false));
            assert_eq!(passwords.right().len(), 0);
            for _ in 0..2 {
                assert_eq!(is_of("open sesame").await, Some(true));
                assert_eq!(passwords.right().len(), 1);
            }
        });
    }

    #[test]
    fn one_password_too_many_leaves_the_others_known() {
        let passwords = Passwords::new();
        let user = |number: usize| (format!("hash of {number}"), "open sesame");
        let remember = |number| {
            let (hash, password) = user(number);
            passwords.remember(passwords.mac(&hash, password));
        };
        let knows = |number| {
            let (hash, password) = user(number);
            passwords.remembers(&hash, password)
        };
        (0..PASSWORDS_MAX).for_each(remember);
        // It is used again, so another goes.
        assert!(knows(0));
        remember(PASSWORDS_MAX);
        let known: Vec<_> = (0..=PASSWORDS_MAX).filter(|&it| knows(it)).collect();
        assert_eq!(known.len(), PASSWORDS_MAX);
        assert!(!known.contains(&1));
    }

    #[test]
    fn hashes_that_ask_for_too_much_are_refused() {
        let with = |params: &str| {
            check(&format!(
                "$argon2id$v=19${params}$c29tZXNhbHRzb21l$MTIzNDU2Nzg5MDEyMzQ1Ng"
            ))
        };
        assert_eq!(with("m=262144,t=16,p=1"), Ok(()));
        for params in ["m=262145,t=1,p=1", "m=1024,t=17,p=1", "m=1024,t=1,p=17"] {
            assert!(with(params).is_err(), "{params}");
        }
        for hash in [
            "",
            "x",
            "$scrypt$ln=16,r=8,p=1$aM15713r3Xsvxbi31lqr1Q$nFNh2CVHVjNldFVKDHDlm4",
        ] {
            assert!(check(hash).is_err(), "{hash}");
        }
    }
}
