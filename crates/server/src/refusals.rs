//! Who was refused lately, and why, for whoever watches the server.
//!
//! Whoever refuses somebody writes it down here, in a ring of bounded size. The same refusal of the
//! same client over and over is one, with how often: one client does not crowd out the others.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Refusals that are kept.
pub const REFUSALS_MAX: usize = 100;

/// Bytes of what was asked, and of why it was refused, that are kept of each.
pub const REFUSAL_BYTES_MAX: usize = 256;

/// The ring.
#[derive(Debug)]
pub(crate) struct Refusals(Mutex<VecDeque<Refused>>);

/// A client that was refused something.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub(crate) struct Refused {
    client: String,
    /// What it asked for.
    what: String,
    why: String,
    /// How often, and when last, in seconds since 1970.
    times: u64,
    at_s: u64,
}

/// Those of this process.
pub(crate) static REFUSALS: Refusals = Refusals::new();

impl Refusals {
    const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Writes one down.
    pub(crate) fn note(&self, client: IpAddr, what: &str, why: &str) {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let at_s = since_1970.map_or(0, |it| it.as_secs());
        let client = client.to_canonical().to_string();
        let (what, why) = (kept(what), kept(why));
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = |it: &Refused| it.client == client && it.what == what && it.why == why;
        let before = all.iter().position(is_same).and_then(|at| all.remove(at));
        if all.len() >= REFUSALS_MAX {
            all.pop_front();
        }
        all.push_back(Refused {
            client,
            what,
            why,
            times: before.map_or(0, |it| it.times) + 1,
            at_s,
        });
    }

    /// All of them, the last one first.
    pub(crate) fn all(&self) -> Vec<Refused> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().rev().cloned().collect()
    }
}

/// What is kept of a text.
fn kept(text: &str) -> String {
    let mut end = text.len().min(REFUSAL_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let shown = text[..end].chars().filter(|it| !it.is_control());
    shown.collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client(number: usize) -> IpAddr {
        Ipv4Addr::from(u32::try_from(number).unwrap()).into()
    }

    #[test]
    fn the_last_ones_are_kept() {
        let refusals = Refusals::new();
        for number in 0..=REFUSALS_MAX {
            refusals.note(client(number), "a", "b");
        }
        let all = refusals.all();
        assert_eq!(all.len(), REFUSALS_MAX);
        assert_eq!(all[0].client, client(REFUSALS_MAX).to_string());
        assert_eq!(all[REFUSALS_MAX - 1].client, client(1).to_string());
    }

    #[test]
    fn the_same_again_is_one() {
        let refusals = Refusals::new();
        for number in [1, 2, 1, 1] {
            refusals.note(client(number), "a", "b");
        }
        refusals.note(client(1), "a", "c");
        let all = refusals.all();
        let told: Vec<_> = all.iter().map(|it| (&*it.why, it.times)).collect();
        assert_eq!(told, [("c", 1), ("b", 3), ("b", 1)]);
    }

    #[test]
    fn texts_are_cut_and_steer_nothing() {
        let refusals = Refusals::new();
        refusals.note(client(1), &"é".repeat(REFUSAL_BYTES_MAX), "a\u{1b}[1mb\n");
        let all = refusals.all();
        assert_eq!(all[0].what.len(), REFUSAL_BYTES_MAX);
        assert_eq!(all[0].why, "a[1mb");
    }
}
