//! Wrong passwords, by address: a few are forgiven, more come at a slow rate.
//!
//! While an address has used up its attempts what it sends is not even looked at, so that a flood
//! of guesses costs nothing and tells nothing. Of an address one moment is kept: when all its wrong
//! passwords will be forgiven. An address of IPv6 is a network of 64 bits, of which one host has
//! all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::network::network;

/// Wrong passwords that an address may send at once. GStreamer repeats one that was typed wrong
/// eight times.
pub const WRONG_PASSWORDS_MAX: u32 = 30;
/// After so long one of them is forgiven.
pub const WRONG_PASSWORD_TIME_MAX: Duration = Duration::from_secs(3);
/// Addresses whose wrong passwords are remembered; one more, and one of them is forgiven all.
pub const WRONG_ADDRESSES_MAX: usize = 16_384;

/// Who sent wrong passwords lately.
#[derive(Debug)]
pub(super) struct Attempts {
    /// When all will be forgiven.
    forgiven: Mutex<HashMap<IpAddr, Duration>>,
    addresses_max: usize,
}

/// A password that counts as wrong; forgiven when this is dropped, unless it is to stay so.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    attempts: &'a Attempts,
    peer: IpAddr,
    pub(super) stays: bool,
}

impl Attempts {
    pub(super) fn new() -> Self {
        Self {
            forgiven: Mutex::default(),
            addresses_max: WRONG_ADDRESSES_MAX,
        }
    }

    /// How long `peer` has to wait before a password of it is looked at; times are since the start.
    pub(super) fn wait(&self, peer: IpAddr, now: Duration) -> Option<Duration> {
        let table = self.forgiven.lock().unwrap_or_else(PoisonError::into_inner);
        let forgiven = table.get(&network(peer))?;
        let allowed = WRONG_PASSWORD_TIME_MAX * (WRONG_PASSWORDS_MAX - 1);
        let wait = forgiven.saturating_sub(now).saturating_sub(allowed);
        (!wait.is_zero()).then_some(wait)
    }

    /// A password of `peer` was wrong.
    pub(super) fn failed(&self, peer: IpAddr, now: Duration) {
        let mut table = self.forgiven.lock().unwrap_or_else(PoisonError::into_inner);
        let peer = network(peer);
        if !table.contains_key(&peer) && table.len() >= self.addresses_max {
            table.retain(|_, forgiven| *forgiven > now);
            if table.len() >= self.addresses_max {
                // Whose it is depends on a hash that nobody knows.
                let any = table.keys().next().copied();
                any.map(|any| table.remove(&any));
            }
        }
        let forgiven = table.entry(peer).or_insert(now);
        *forgiven = (*forgiven).max(now) + WRONG_PASSWORD_TIME_MAX;
    }

    /// A password of `peer` counts as wrong until it was looked at.
    pub(super) fn charge(&self, peer: IpAddr, now: Duration) -> Charge<'_> {
        self.failed(peer, now);
        Charge {
            attempts: self,
            peer,
            stays: false,
        }
    }

    fn forgive(&self, peer: IpAddr) {
        let mut table = self.forgiven.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(forgiven) = table.get_mut(&network(peer)) {
            *forgiven = forgiven.saturating_sub(WRONG_PASSWORD_TIME_MAX);
        }
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.attempts.forgive(self.peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const NOW: Duration = Duration::from_secs(1000);

    fn fail(attempts: &Attempts, peer: IpAddr, times: u32) {
        for _ in 0..times {
            attempts.failed(peer, NOW);
        }
    }

    #[test]
    fn a_few_are_forgiven_and_then_one_at_a_time() {
        let attempts = Attempts::new();
        fail(&attempts, PEER, WRONG_PASSWORDS_MAX - 1);
        assert_eq!(attempts.wait(PEER, NOW), None);
        fail(&attempts, PEER, 1);
        assert_eq!(attempts.wait(PEER, NOW), Some(WRONG_PASSWORD_TIME_MAX));
        attempts.forgive(PEER);
        assert_eq!(attempts.wait(PEER, NOW), None);
        let charge = attempts.charge(PEER, NOW);
        assert_eq!(attempts.wait(PEER, NOW), Some(WRONG_PASSWORD_TIME_MAX));
        drop(charge);
        assert_eq!(attempts.wait(PEER, NOW), None);
        let mut charge = attempts.charge(PEER, NOW);
        charge.stays = true;
        drop(charge);
        assert_eq!(attempts.wait([192, 0, 2, 2].into(), NOW), None);
        let later = NOW + WRONG_PASSWORD_TIME_MAX;
        assert_eq!(attempts.wait(PEER, later), None);
        attempts.failed(PEER, later);
        assert_eq!(attempts.wait(PEER, later), Some(WRONG_PASSWORD_TIME_MAX));
        let much_later = later + WRONG_PASSWORD_TIME_MAX * WRONG_PASSWORDS_MAX;
        fail(&attempts, PEER, 0);
        assert_eq!(attempts.wait(PEER, much_later), None);
    }

    #[test]
    fn a_host_is_its_network() {
        let attempts = Attempts::new();
        fail(
            &attempts,
            "2001:db8::1".parse().unwrap(),
            WRONG_PASSWORDS_MAX,
        );
        assert!(
            attempts
                .wait("2001:db8::ffff:2".parse().unwrap(), NOW)
                .is_some()
        );
        assert!(
            attempts
                .wait("2001:db8:0:1::1".parse().unwrap(), NOW)
                .is_none()
        );
        fail(
            &attempts,
            "::ffff:192.0.2.1".parse().unwrap(),
            WRONG_PASSWORDS_MAX,
        );
        assert!(attempts.wait(PEER, NOW).is_some());
    }

    #[test]
    fn addresses_are_remembered_to_their_limit() {
        let attempts = Attempts {
            addresses_max: 4,
            ..Attempts::new()
        };
        let peer = |n: u8| IpAddr::from([192, 0, 2, n]);
        let slowed = || {
            (0..100)
                .filter(|&n| attempts.wait(peer(n), NOW).is_some())
                .count()
        };
        for n in 0..4 {
            fail(&attempts, peer(n), WRONG_PASSWORDS_MAX);
        }
        assert_eq!(slowed(), 4);
        for n in 4..100 {
            fail(&attempts, peer(n), WRONG_PASSWORDS_MAX);
            assert_eq!(slowed(), 4, "{n}");
            assert!(
                attempts.wait(peer(n), NOW).is_some(),
                "the last one is among them"
            );
        }
        // Those that are forgiven make room first.
        attempts.failed(peer(100), NOW + Duration::from_secs(3600));
        assert_eq!(attempts.forgiven.lock().unwrap().len(), 1);
    }
}
