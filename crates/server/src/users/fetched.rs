//! Keys that are fetched from a URL: when somebody comes with a token of a key that is not known,
//! and now and then, so that keys that were withdrawn are forgotten.
//!
//! However many tokens come, the URL is asked by one at a time, and not again before
//! [`JWKS_PAUSE_MIN`] has passed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onrush_wire::auth::Jwk;
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{info, warn};

use super::client::{agent, is_safe};

/// Bytes of a set of keys.
pub const JWKS_BYTES_MAX: usize = 256 << 10;
/// Between two questions to the URL.
pub const JWKS_PAUSE_MIN: Duration = Duration::from_secs(10);
/// How old keys may be before they are asked for again. They stay in force meanwhile.
pub const JWKS_AGE_MAX: Duration = Duration::from_secs(300);
/// How long an answer is waited for.
pub const JWKS_TIME_MAX: Duration = Duration::from_secs(3);

/// A URL, and the keys that it gave.
#[derive(Debug)]
pub(super) struct Fetched {
    url: String,
    agent: ureq::Agent,
    known: Arc<Known>,
}

/// What is known of a URL, also after a reload.
#[derive(Debug, Default)]
struct Known {
    now: RwLock<Arc<Vec<Jwk>>>,
    /// Whose turn it is to ask, and when it was asked last.
    turn: Arc<Mutex<Option<Duration>>>,
    is_failing: AtomicBool,
}

impl Fetched {
    /// The keys at a URL, which is not asked yet.
    ///
    /// # Errors
    ///
    /// If it could not be asked, or others could give their own keys in its place.
    pub(super) fn new(url: &str, ca: Option<&Path>) -> Result<Self, String> {
        let agent = agent(url, JWKS_TIME_MAX, ca)?;
        if !is_safe(url) {
            return Err(format!(
                "{url}: keys are fetched by https://, or from this machine: whoever can change \
                 them on their way can let in anybody"
            ));
        }
        Ok(Self {
            url: url.to_owned(),
            agent,
            known: Arc::default(),
        })
    }

    /// Takes over the keys of `before`, if it is of the same URL.
    pub(super) fn go_on(&mut self, before: &Self) {
        if self.url == before.url {
            self.known = Arc::clone(&before.known);
        }
    }

    /// The keys, among which is one that is meant if there is any; `None` if there was none, and
    /// the URL had no answer. `now` is since the start.
    pub(super) async fn keys(
        self: &Arc<Self>,
        is_known: impl Fn(&[Jwk]) -> bool,
        now: Duration,
    ) -> Option<Arc<Vec<Jwk>>> {
        let keys = self.now();
        if is_known(&keys) {
            if let Ok(turn) = Arc::clone(&self.known.turn).try_lock_owned()
                && turn.is_none_or(|asked| now >= asked + JWKS_AGE_MAX)
            {
                // Nobody waits for it.
                drop(self.ask(turn, now));
            }
            return Some(keys);
        }
        let turn = Arc::clone(&self.known.turn).lock_owned().await;
        // Somebody else may have asked meanwhile.
        let is_due = turn.is_none_or(|asked| now >= asked + JWKS_PAUSE_MIN);
        if is_due && !is_known(&self.now()) {
            // It cannot panic, and whether it has brought the key is looked at below.
            self.ask(turn, now).await.unwrap_or_default();
        }
        let keys = self.now();
        let is_answered = is_known(&keys) || !self.known.is_failing.load(Ordering::Relaxed);
        is_answered.then_some(keys)
    }

    fn now(&self) -> Arc<Vec<Jwk>> {
        let now = &self.known.now;
        let now = now.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&now)
    }

    /// Asks on a thread that may wait, also if nobody waits for it any more.
    fn ask(
        self: &Arc<Self>,
        mut turn: OwnedMutexGuard<Option<Duration>>,
        now: Duration,
    ) -> JoinHandle<()> {
        *turn = Some(now);
        let this = Arc::clone(self);
        spawn_blocking(move || {
            let answer = this.fetch();
            let known = &this.known;
            let was_failing = known.is_failing.swap(answer.is_err(), Ordering::Relaxed);
            match answer {
                Ok(keys) => {
                    if was_failing {
                        info!("{}: it answers again", this.url);
                    }
                    *known.now.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
                }
                Err(error) if !was_failing => {
                    warn!("{}: {error}; the keys of before stay in force", this.url);
                }
                Err(_) => {}
            }
            drop(turn);
        })
    }

    fn fetch(&self) -> Result<Vec<Jwk>, String> {
        let answer = self.agent.get(&self.url).call();
        let mut answer = answer.map_err(|error| error.to_string())?;
        if answer.status() != 200 {
            return Err(format!("it answered {}", answer.status().as_u16()));
        }
        let body = answer.body_mut().with_config();
        let text = body.limit(JWKS_BYTES_MAX as u64).read_to_string();
        Jwk::parse_set(&text.map_err(|error| error.to_string())?, false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{answer, certificate, serve};
    use super::*;
    use crate::testing::block_on;

    const NOW: Duration = Duration::from_secs(1000);

    /// A set with a key of that name.
    fn set(kid: &str) -> String {
        let x = "A".repeat(43);
        format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","kid":"{kid}","x":"{x}"}}]}}"#)
    }

    fn knows(kid: &'static str) -> impl Fn(&[Jwk]) -> bool {
        move |keys| keys.iter().any(|key| key.key_id.as_deref() == Some(kid))
    }

    /// Whether the key of that name was there.
    fn find(fetched: &Arc<Fetched>, kid: &'static str, now: Duration) -> Option<bool> {
        let keys = block_on(fetched.keys(knows(kid), now));
        keys.map(|keys| knows(kid)(&keys))
    }

    #[test]
    fn an_unknown_key_asks_again_after_a_pause() {
        let answers = |number| match number {
            0 => answer("200 OK", &set("first")),
            1 => answer("500 Oops", ""),
            2 => answer("200 OK", r#"{"keys":[]}"#),
            _ => answer("200 OK", &set("second")),
        };
        let (address, came) = serve(None, answers);
        let fetched = Arc::new(Fetched::new(&format!("http://{address}/keys"), None).unwrap());
        assert_eq!(find(&fetched, "first", NOW), Some(true));
        for _ in 0..100 {
            assert_eq!(find(&fetched, "first", NOW), Some(true));
            assert_eq!(find(&fetched, "second", NOW), Some(false));
        }
        let just_before = NOW + JWKS_PAUSE_MIN - Duration::from_nanos(1);
        assert_eq!(find(&fetched, "second", just_before), Some(false));
        assert_eq!(
            came.try_iter().count(),
            1,
            "it is asked by nobody else meanwhile"
        );
        for pauses in 1..=2 {
            let now = NOW + pauses * JWKS_PAUSE_MIN;
            assert_eq!(find(&fetched, "second", now), None, "it had no answer");
            assert_eq!(
                find(&fetched, "first", now),
                Some(true),
                "what was known stays"
            );
        }
        let later = NOW + 3 * JWKS_PAUSE_MIN;
        assert_eq!(find(&fetched, "second", later), Some(true));
        assert_eq!(
            find(&fetched, "first", later),
            Some(false),
            "it was withdrawn"
        );
        assert_eq!(came.try_iter().count(), 3);
    }

    #[test]
    fn keys_outlive_a_reload_of_the_same_url() {
        let (address, came) = serve(None, |number| match number {
            0 => answer("200 OK", &set("first")),
            _ => answer("500 Oops", ""),
        });
        let at = |path: &str| Fetched::new(&format!("http://{address}/{path}"), None).unwrap();
        let before = Arc::new(at("keys"));
        assert_eq!(find(&before, "first", NOW), Some(true));
        for (path, expected) in [("keys", Some(true)), ("other", None)] {
            let mut after = at(path);
            after.go_on(&before);
            assert_eq!(find(&Arc::new(after), "first", NOW), expected, "{path}");
        }
        assert_eq!(came.try_iter().count(), 2);
    }

    #[test]
    fn many_at_once_ask_once() {
        let (address, came) = serve(None, |_| answer("200 OK", &set("first")));
        let fetched = Arc::new(Fetched::new(&format!("http://{address}/keys"), None).unwrap());
        block_on(async {
            let all = (0..100).map(|_| fetched.keys(knows("first"), NOW));
            for keys in futures_util::future::join_all(all).await {
                assert!(knows("first")(&keys.unwrap()));
            }
        });
        assert_eq!(came.try_iter().count(), 1);
    }

    #[test]
    fn old_keys_are_asked_for_again_and_hold_meanwhile() {
        let (address, came) = serve(None, |number| {
            answer("200 OK", &set(if number == 0 { "first" } else { "second" }))
        });
        let fetched = Arc::new(Fetched::new(&format!("http://{address}/keys"), None).unwrap());
        assert_eq!(find(&fetched, "first", NOW), Some(true));
        assert_eq!(find(&fetched, "first", NOW + JWKS_AGE_MAX / 2), Some(true));
        assert_eq!(
            find(&fetched, "first", NOW + JWKS_AGE_MAX),
            Some(true),
            "nobody waits"
        );
        // Whoever does not know its key waits for the answer that is under way.
        assert_eq!(find(&fetched, "second", NOW + JWKS_AGE_MAX), Some(true));
        assert_eq!(came.try_iter().count(), 2);
    }

    #[test]
    fn a_set_has_its_bound_and_no_shared_secrets() {
        let secret = format!(r#"{{"keys":[{{"kty":"oct","k":"{}"}}]}}"#, "A".repeat(43));
        let long = |bytes: usize| {
            let set = set("first");
            let filling = " ".repeat(bytes - set.len());
            set + &filling
        };
        for (body, expected) in [
            (long(JWKS_BYTES_MAX - 1), Some(true)),
            (long(JWKS_BYTES_MAX + 1), None),
            (secret, None),
        ] {
            let (address, _came) = serve(None, move |_| answer("200 OK", &body));
            let fetched = Arc::new(Fetched::new(&format!("http://{address}/"), None).unwrap());
            assert_eq!(find(&fetched, "first", NOW), expected);
        }
    }

    #[test]
    fn https_is_taken_from_whom_the_file_names() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own.pem", "other.pem"].map(|name| folder.path().join(name));
        let tls = certificate(&own);
        certificate(&other);
        let (address, _came) = serve(Some(tls), |_| answer("200 OK", &set("first")));
        let url = format!("https://{address}/keys");
        let find_by = |ca: &Path| {
            let fetched = Arc::new(Fetched::new(&url, Some(ca)).unwrap());
            find(&fetched, "first", NOW)
        };
        assert_eq!(find_by(&own), Some(true));
        assert_eq!(find_by(&other), None);
    }
}
