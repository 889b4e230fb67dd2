//! Nonces of Digest: made without being remembered, and remembered once they were used.
//!
//! A nonce is the time when it was made and a MAC of that and of the client's address (of IPv6 its
//! /64), so that whoever asks and never answers costs no memory, and nobody answers with another's.
//! What is remembered of a used one are the counts that came with it, so that a request cannot be
//! sent again by somebody who heard it. When that table is full the oldest nonce is forgotten, and
//! with it all that are as old count as too old: nothing forgotten can come again.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::network::network;
use crate::random::random;

/// How long a nonce can be used. A client is given another one then, and asks no human for it.
pub const NONCE_TIME_MAX: Duration = Duration::from_secs(300);
/// Nonces whose counts are remembered.
pub const NONCES_MAX: usize = 65_536;

/// All nonces of a server.
#[derive(Debug)]
pub(super) struct Nonces {
    key: Zeroizing<[u8; 32]>,
    /// When the last one was made.
    last_us: AtomicU64,
    used: Mutex<Used>,
    nonces_max: usize,
}

#[derive(Debug, Default)]
struct Used {
    /// By the time when they were made.
    counts: BTreeMap<u64, Counts>,
    /// What is not younger than this is too old.
    floor_us: u64,
}

/// The counts that have come with one nonce: the highest, and which of the 64 up to it.
#[derive(Clone, Copy, Debug)]
struct Counts {
    highest: u32,
    seen: u64,
}

/// A nonce of ours that is not too old.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Nonce {
    made_us: u64,
}

impl Nonces {
    pub(super) fn new() -> Self {
        Self {
            key: Zeroizing::new(random()),
            last_us: AtomicU64::new(0),
            used: Mutex::default(),
            nonces_max: NONCES_MAX,
        }
    }

    /// A new one, at a time since the start, for a client.
    pub(super) fn make(&self, now: Duration, peer: IpAddr) -> String {
        let now_us = micros(now);
        // No two are the same, however many are made at once.
        let next = |last_us: u64| Some(now_us.max(last_us + 1));
        let last_us = self
            .last_us
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let made_us = now_us.max(last_us.unwrap_or(now_us) + 1);
        let mut bytes = made_us.to_be_bytes().to_vec();
        bytes.extend(&self.mac(made_us, peer).finalize().into_bytes()[..MAC_BYTES]);
        let mut text = String::with_capacity(TEXT_BYTES);
        for byte in bytes {
            write!(text, "{byte:02x}").expect("writing to memory does not fail");
        }
        text
    }

    /// The nonce that this text is; `None` if it is nobody's, another client's or too old.
    pub(super) fn read(&self, text: &str, now: Duration, peer: IpAddr) -> Option<Nonce> {
        let bytes = decode(text)?;
        let (made, mac) = bytes.split_first_chunk::<8>()?;
        let made_us = u64::from_be_bytes(*made);
        let is_ours = self.mac(made_us, peer).verify_truncated_left(mac).is_ok();
        let is_young = micros(now).saturating_sub(made_us) < micros(NONCE_TIME_MAX);
        (is_ours && is_young).then_some(Nonce { made_us })
    }

    /// Whether this count comes for the first time with a nonce. To be asked for what is proven
    /// alone, so that nobody else fills the table.
    pub(super) fn is_first(&self, nonce: Nonce, count: u32, now: Duration) -> bool {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if nonce.made_us <= used.floor_us || count == 0 {
            return false;
        }
        if let Some(counts) = used.counts.get_mut(&nonce.made_us) {
            return counts.take(count);
        }
        // Those that are too old anyway.
        let young_us = micros(now).saturating_sub(micros(NONCE_TIME_MAX));
        while let Some(first) = used.counts.first_entry() {
            if *first.key() > young_us {
                break;
            }
            first.remove();
        }
        if used.counts.len() >= self.nonces_max {
            if let Some((made_us, _)) = used.counts.pop_first() {
                used.floor_us = made_us;
            }
            if nonce.made_us <= used.floor_us {
                return false;
            }
        }
        let counts = Counts {
            highest: count,
            seen: 1,
        };
        used.counts.insert(nonce.made_us, counts);
        true
    }

    fn mac(&self, made_us: u64, peer: IpAddr) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&*self.key).expect("a key of any length");
        mac.update(&made_us.to_be_bytes());
        match network(peer) {
            IpAddr::V4(ip) => mac.update(&ip.octets()),
            IpAddr::V6(ip) => mac.update(&ip.octets()),
        }
        mac
    }
}

impl Counts {
    /// Whether it is new. Requests on several connections may overtake each other a little; what is
    /// further behind than 64 cannot be told from a repetition.
    fn take(&mut self, count: u32) -> bool {
        if count > self.highest {
            self.seen = self.seen.checked_shl(count - self.highest).unwrap_or(0) | 1;
            self.highest = count;
            return true;
        }
        let bit = 1_u64.checked_shl(self.highest - count).unwrap_or(0);
        let is_new = bit != 0 && self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}

/// The bytes of a nonce as it was made, with small digits.
fn decode(text: &str) -> Option<Vec<u8>> {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    // Longer ones are not even looked at.
    if text.len() != TEXT_BYTES || !text.bytes().all(is_digit) {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).ok();
    (0..TEXT_BYTES).step_by(2).map(byte).collect()
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

const MAC_BYTES: usize = 16;
/// 24 bytes in hexadecimal digits: libraries on Android find no nonce with a hyphen in it.
const TEXT_BYTES: usize = 48;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NOW: Duration = Duration::from_secs(1000);

    fn nonces(nonces_max: usize) -> Nonces {
        Nonces {
            nonces_max,
            ..Nonces::new()
        }
    }

    #[test]
    fn a_nonce_is_for_its_client_its_server_and_its_time() {
        let (ours, other) = (nonces(8), nonces(8));
        let text = ours.make(NOW, PEER);
        assert_eq!(text.len(), TEXT_BYTES);
        assert!(ours.read(&text, NOW, PEER).is_some());
        let last = NOW + NONCE_TIME_MAX - Duration::from_micros(1);
        assert!(ours.read(&text, last, PEER).is_some());
        assert_eq!(ours.read(&text, NOW + 2 * NONCE_TIME_MAX, PEER), None);
        assert_eq!(ours.read(&text, NOW, [192, 0, 2, 2].into()), None);
        let [made, same, next] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|ip| ip.parse().unwrap());
        let of_ipv6 = ours.make(NOW, made);
        assert!(
            ours.read(&of_ipv6, NOW, same).is_some(),
            "a /64 is a client"
        );
        assert_eq!(ours.read(&of_ipv6, NOW, next), None);
        assert_eq!(other.read(&text, NOW, PEER), None);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_eq!(ours.read(&changed, NOW, PEER), None, "{at}");
        }
        let no_digits = ["g".repeat(TEXT_BYTES), "é".repeat(TEXT_BYTES / 2)];
        let no_length = ["", "0", &text[1..], &format!("{text}0")].map(str::to_owned);
        for text in no_digits.iter().chain(&no_length) {
            assert_eq!(ours.read(text, NOW, PEER), None, "{text}");
        }
    }

    /// RootEncoder, libstreaming and older ExoPlayers look for `nonce="(\w+)"`.
    #[test]
    fn no_two_nonces_are_the_same_and_all_are_words() {
        let nonces = nonces(8);
        let made: HashSet<_> = (0..1000).map(|_| nonces.make(NOW, PEER)).collect();
        assert_eq!(made.len(), 1000);
        let is_word = |text: &String| text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        assert!(made.iter().all(is_word), "{made:?}");
    }

    #[test]
    fn a_count_comes_once() {
        let nonces = nonces(8);
        let text = nonces.make(NOW, PEER);
        let nonce = nonces.read(&text, NOW, PEER).unwrap();
        let first = |count| nonces.is_first(nonce, count, NOW);
        assert!(!first(0));
        assert!(first(1) && !first(1));
        assert!(first(5) && first(3) && !first(3) && !first(5));
        assert!(first(100) && first(37) && !first(36), "64 are told apart");
        assert!(first(u32::MAX) && !first(100) && !first(u32::MAX));
    }

    #[test]
    fn a_full_table_forgets_nothing_that_could_come_again() {
        let nonces = nonces(3);
        let made: Vec<_> = (0..4)
            .map(|_| nonces.read(&nonces.make(NOW, PEER), NOW, PEER).unwrap())
            .collect();
        // The second is used last, when three others are.
        for nonce in [made[0], made[2], made[3]] {
            assert!(nonces.is_first(nonce, 1, NOW));
        }
        assert!(
            nonces.is_first(made[1], 1, NOW),
            "it is younger than the first"
        );
        assert_eq!(nonces.used.lock().unwrap().counts.len(), 3);
        for nonce in made {
            assert!(!nonces.is_first(nonce, 1, NOW));
        }
        let next = nonces.read(&nonces.make(NOW, PEER), NOW, PEER).unwrap();
        assert!(nonces.is_first(next, 1, NOW));
        assert_eq!(nonces.used.lock().unwrap().counts.len(), 3);
        // What is too old by itself makes room.
        let later = NOW + 2 * NONCE_TIME_MAX;
        let late = nonces.read(&nonces.make(later, PEER), later, PEER).unwrap();
        assert!(nonces.is_first(late, 1, later));
        assert_eq!(nonces.used.lock().unwrap().counts.len(), 1);
    }

    proptest! {
        // SPECIFICATION.md: 45
        #[test]
        fn no_count_is_taken_twice(counts in prop::collection::vec(1_u32..200, 1..200)) {
            let mut taken = HashSet::new();
            let mut of_nonce = Counts { highest: 0, seen: 0 };
            for count in counts {
                if of_nonce.take(count) {
                    prop_assert!(taken.insert(count), "{}", count);
                } else {
                    prop_assert!(taken.contains(&count) || of_nonce.highest - count >= 64);
                }
            }
        }
    }
}
