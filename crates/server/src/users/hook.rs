//! A service of the operator's that is asked who may do what: for accounts that are elsewhere.
//!
//! It gets a POST with JSON for each question that it was not asked lately. Its status answers: 2xx
//! yes, 401 "log in first", any other below 500 no. No answer in time, and any other, is an error,
//! and nobody is let in. Questions go out on threads that may wait, a bounded number at a time.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use onrush_wire::route::is_hop_parameter;
use serde::Serialize;
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};
use zeroize::Zeroizing;

use super::client::agent;
use super::config::HookConfig;
use crate::network::network;
use crate::random::random;

/// Questions on their way at once.
pub const HOOK_CALLS_MAX: usize = 32;
/// Questions that wait for their turn; one more is refused.
pub const HOOK_WAITING_MAX: usize = 1024;
/// Of both, those about one address (of IPv6 its /64); one more is refused.
pub const HOOK_ADDRESS_MAX: usize = 256;
/// Answers that are kept. Those to further questions are not, until the oldest of these ends: what
/// makes room for them would be asked again at once.
pub const HOOK_ANSWERS_MAX: usize = 16_384;

/// The service, and what it said lately.
#[derive(Debug)]
pub(super) struct Hook {
    config: HookConfig,
    agent: ureq::Agent,
    known: Arc<Known>,
}

/// What is known of a service, also after a reload.
#[derive(Debug)]
struct Known {
    key: Zeroizing<[u8; 32]>,
    answers: Mutex<Answers>,
    calls: Arc<Semaphore>,
    /// Those that wait are fewer than this.
    waiting: Arc<Semaphore>,
    /// How many there are about each network.
    by_network: Mutex<HashMap<IpAddr, usize>>,
    is_failing: AtomicBool,
}

/// What was answered lately, by a MAC of the question.
#[derive(Debug, Default)]
struct Answers {
    /// Each with when it ends.
    by_question: HashMap<[u8; 32], (Verdict, Duration)>,
    /// When each ends that was kept, the oldest first: all are kept equally long.
    ends: VecDeque<([u8; 32], Duration)>,
}

/// A question about a network, until it is answered or nobody waits for that.
#[derive(Debug)]
struct Asking<'a> {
    known: &'a Known,
    network: IpAddr,
}

/// What the service is asked.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Question<'a> {
    /// The client's address.
    pub(super) address: String,
    /// rtsp, http or ftp.
    pub(super) protocol: &'a str,
    /// play, publish, download.
    pub(super) action: &'a str,
    /// Decoded, without a slash in front.
    pub(super) path: &'a str,
    /// What stands behind the `?` of the URL, as it came; but for what says where in a live
    /// playlist a player waits, and how often it was sent on.
    pub(super) query: Option<&'a str>,
    /// The name that the client gave.
    pub(super) user: Option<&'a str>,
    /// Whether this server has checked that the client is that user.
    pub(super) verified: bool,
    /// The password that came with it, where this server could not check it.
    pub(super) password: Option<&'a str>,
    /// A bearer token.
    pub(super) token: Option<&'a str>,
}

/// What it says.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    Yes,
    No,
    /// Not without a password, or not with this one.
    LogIn,
}

impl Hook {
    /// One by these settings. `ca` is as for [`agent`].
    ///
    /// # Errors
    ///
    /// If its URL cannot be asked.
    pub(super) fn new(config: HookConfig, ca: Option<&Path>) -> Result<Self, String> {
        let agent = agent(&config.url, config.time_max, ca)?;
        let known = Known {
            key: Zeroizing::new(random()),
            answers: Mutex::default(),
            calls: Arc::new(Semaphore::new(HOOK_CALLS_MAX)),
            waiting: Arc::new(Semaphore::new(HOOK_WAITING_MAX)),
            by_network: Mutex::default(),
            is_failing: AtomicBool::new(false),
        };
        Ok(Self {
            config,
            agent,
            known: Arc::new(known),
        })
    }

    /// Takes over what `before` knows, if it is the same.
    pub(super) fn go_on(&mut self, before: &Self) {
        if self.config == before.config {
            self.known = Arc::clone(&before.known);
        }
    }

    /// Asks, or remembers; `None` if there is no answer. `now` is since the start.
    pub(super) async fn ask(&self, question: &Question<'_>, now: Duration) -> Option<Verdict> {
        let json = serde_json::to_string(question).ok()?;
        let key = self.mac(&json);
        if let Some(verdict) = self.remembered(&key, now) {
            return Some(verdict);
        }
        // Whoever asks for much keeps nobody else waiting.
        let _asking = match question.address.parse() {
            Ok(address) => Some(Asking::begin(&self.known, address)?),
            Err(_) => None,
        };
        let answer = timeout(self.config.time_max, self.call(json)).await;
        let answer = answer.unwrap_or_else(|_| Err("no answer in time".to_owned()));
        let is_failing = &self.known.is_failing;
        let was_failing = is_failing.swap(answer.is_err(), Ordering::Relaxed);
        match (&answer, was_failing) {
            (Err(error), false) => {
                let url = &self.config.url;
                warn!("hook {url}: {error}; whoever depends on it is refused while this lasts");
            }
            (Ok(_), true) => info!("hook {}: it answers again", self.config.url),
            _ => {}
        }
        let verdict = answer.ok()?;
        self.remember(key, verdict, now);
        Some(verdict)
    }

    async fn call(&self, json: String) -> Result<Verdict, String> {
        let waiting = Arc::clone(&self.known.waiting).try_acquire_owned();
        let waiting = waiting.map_err(|_| "too many questions wait".to_owned())?;
        let call = Arc::clone(&self.known.calls).acquire_owned().await;
        let call = call.map_err(|error| error.to_string())?;
        drop(waiting);
        let (agent, url) = (self.agent.clone(), self.config.url.clone());
        let post = move || {
            let answer = agent
                .post(&url)
                .header("Content-Type", "application/json")
                .send(json);
            drop(call);
            let status = answer.map_err(|error| error.to_string())?.status().as_u16();
            match status {
                200..=299 => Ok(Verdict::Yes),
                401 => Ok(Verdict::LogIn),
                400..=499 => Ok(Verdict::No),
                other => Err(format!("it answered {other}")),
            }
        };
        spawn_blocking(post)
            .await
            .map_err(|error| error.to_string())?
    }

    fn remembered(&self, key: &[u8; 32], now: Duration) -> Option<Verdict> {
        let answers = self.known.answers();
        let (verdict, until) = answers.by_question.get(key)?;
        (now < *until).then_some(*verdict)
    }

    fn remember(&self, key: [u8; 32], verdict: Verdict, now: Duration) {
        let until = now + self.config.cache_time;
        let mut answers = self.known.answers();
        answers.forget_ended(now);
        answers.keep(key, (verdict, until));
    }

    /// Passwords are in the question, so it is not kept itself.
    fn mac(&self, question: &str) -> [u8; 32] {
        let key = &*self.known.key;
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length");
        mac.update(question.as_bytes());
        mac.finalize().into_bytes().into()
    }
}

impl Answers {
    fn forget_ended(&mut self, now: Duration) {
        let ended = self.ends.iter().take_while(|(_, until)| *until <= now);
        let ended = ended.count();
        for (key, until) in self.ends.drain(..ended) {
            // A question that was asked twice at once has a later end as well.
            if self.by_question.get(&key).is_some_and(|it| it.1 == until) {
                self.by_question.remove(&key);
            }
        }
    }

    /// If there is room for it.
    fn keep(&mut self, key: [u8; 32], answer: (Verdict, Duration)) {
        if self.ends.len() < HOOK_ANSWERS_MAX {
            self.ends.push_back((key, answer.1));
            self.by_question.insert(key, answer);
        }
    }
}

impl<'a> Asking<'a> {
    /// One more, if there may be.
    fn begin(known: &'a Known, address: IpAddr) -> Option<Self> {
        let network = network(address);
        let mut by_network = known.by_network();
        let count = by_network.entry(network).or_insert(0);
        (*count < HOOK_ADDRESS_MAX).then(|| {
            *count += 1;
            Self { known, network }
        })
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let mut by_network = self.known.by_network();
        if let Some(count) = by_network.get_mut(&self.network) {
            *count -= 1;
            if *count == 0 {
                by_network.remove(&self.network);
            }
        }
    }
}

impl Known {
    fn by_network(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        let by_network = self.by_network.lock();
        by_network.unwrap_or_else(PoisonError::into_inner)
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a hook is told of a query: nothing of where in a live playlist a player waits (RFC 8216bis,
/// section 6.2.5, which reserves the names that begin so), nor of how often nodes have sent it on.
/// Each reload says something else there, and would be a question of its own.
pub(super) fn told_query(query: &str) -> Option<String> {
    let is_told = |it: &&str| !it.starts_with("_HLS_") && !is_hop_parameter(it);
    let told: Vec<_> = query.split('&').filter(is_told).collect();
    Some(told.join("&")).filter(|told| !told.is_empty())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::super::testing::{answer, certificate, serve};
    use super::*;
    use crate::testing::block_on;

    const QUESTION: Question<'_> = Question {
        address: String::new(),
        protocol: "rtsp",
        action: "play",
        path: "a b/\"é\".mp4",
        query: None,
        user: Some("anna"),
        verified: false,
        password: Some("secret"),
        token: None,
    };
    const NOW: Duration = Duration::from_secs(1000);

    /// Answers each connection with the next of `answers`, and says what came.
    fn service(answers: &'static [&'static str]) -> (SocketAddr, Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (came, receiver) = channel();
        thread::spawn(move || {
            for answer in answers {
                let (mut socket, _) = listener.accept().unwrap();
                let mut text = Vec::new();
                let is_whole = |text: &[u8]| text.ends_with(b"}");
                while !is_whole(&text) {
                    let mut bytes = [0; 4096];
                    let read = socket.read(&mut bytes).unwrap();
                    text.extend(&bytes[..read]);
                }
                came.send(String::from_utf8(text).unwrap()).unwrap();
                socket.write_all(answer.as_bytes()).unwrap();
            }
        });
        (address, receiver)
    }

    fn hook(address: SocketAddr) -> Hook {
        let mut config = HookConfig::new(format!("http://{address}/may"));
        config.cache_time = Duration::from_secs(10);
        Hook::new(config, None).unwrap()
    }

    #[test]
    fn answers_are_statuses_and_kept_for_a_time() {
        let (address, came) = service(&[
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        ]);
        let hook = hook(address);
        let later = NOW + Duration::from_secs(10);
        block_on(async {
            for _ in 0..2 {
                assert_eq!(hook.ask(&QUESTION, NOW).await, Some(Verdict::Yes));
            }
            assert_eq!(hook.ask(&QUESTION, later).await, Some(Verdict::No));
            let other = Question {
                password: Some("other"),
                ..QUESTION
            };
            assert_eq!(hook.ask(&other, later).await, Some(Verdict::LogIn));
        });
        let asked = came.recv().unwrap();
        assert!(asked.starts_with("POST /may HTTP/1.1\r\n"), "{asked}");
        let json: serde_json::Value =
            serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        assert_eq!(json["path"], "a b/\"é\".mp4");
        assert_eq!(
            (&json["user"], &json["verified"]),
            (&"anna".into(), &false.into())
        );
        assert_eq!(came.try_iter().count(), 2);
    }

    #[test]
    fn what_is_no_answer_opens_nothing() {
        let (address, _came) = service(&[
            "HTTP/1.1 500 Oops\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: /\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            "noise\r\n\r\n",
            "",
        ]);
        let hook = hook(address);
        block_on(async {
            for _ in 0..4 {
                assert_eq!(hook.ask(&QUESTION, NOW).await, None);
            }
        });
        // Nobody listens any more; and somebody who never answers.
        block_on(async { assert_eq!(hook.ask(&QUESTION, NOW).await, None) });
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = HookConfig::new(format!("http://{}/", silent.local_addr().unwrap()));
        config.time_max = Duration::from_millis(200);
        let hook = Hook::new(config, None).unwrap();
        block_on(async { assert_eq!(hook.ask(&QUESTION, NOW).await, None) });
        assert!(Hook::new(HookConfig::new("ftp://example.org/"), None).is_err());
    }

    #[test]
    fn https_is_spoken_with_whom_the_file_names() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own.pem", "other.pem"].map(|name| folder.path().join(name));
        let tls = certificate(&own);
        certificate(&other);
        let (address, came) = serve(Some(tls), |_| answer("204 No Content", ""));
        let ask_by = |ca: &Path| {
            let config = HookConfig::new(format!("https://{address}/may"));
            let hook = Hook::new(config, Some(ca)).unwrap();
            block_on(hook.ask(&QUESTION, NOW))
        };
        assert_eq!(ask_by(&own), Some(Verdict::Yes));
        let asked = came.recv().unwrap();
        assert!(asked.starts_with("POST /may HTTP/1.1\r\n") && asked.contains("secret"));
        // Whoever else answers at that address learns no password.
        assert_eq!(ask_by(&other), None);
        assert!(came.try_recv().is_err());
    }

    #[test]
    fn answers_outlive_a_reload_of_the_same_service() {
        let (address, came) = service(&[
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        ]);
        let before = hook(address);
        let ask = |hook: &Hook| block_on(hook.ask(&QUESTION, NOW));
        assert_eq!(ask(&before), Some(Verdict::Yes));
        let mut same = hook(address);
        same.go_on(&before);
        assert_eq!(ask(&same), Some(Verdict::Yes));
        assert_eq!(came.try_iter().count(), 1);
        let mut config = before.config.clone();
        config.url += "/other";
        let mut other = Hook::new(config, None).unwrap();
        other.go_on(&before);
        assert_eq!(ask(&other), Some(Verdict::No));
    }

    #[test]
    fn questions_about_one_address_leave_others_their_turn() {
        let (address, came) = service(&[
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        ]);
        let hook = hook(address);
        let ask = |address: &str| {
            let question = Question {
                address: address.to_owned(),
                ..QUESTION
            };
            block_on(hook.ask(&question, NOW))
        };
        let peer = "2001:db8::1".parse().unwrap();
        let asking = (0..HOOK_ADDRESS_MAX).map(|_| Asking::begin(&hook.known, peer).unwrap());
        let asking: Vec<_> = asking.collect();
        assert_eq!(ask("2001:db8::2"), None);
        assert_eq!(ask("2001:db8:0:1::1"), Some(Verdict::Yes), "another's");
        drop(asking);
        assert_eq!(ask("2001:db8::2"), Some(Verdict::Yes));
        assert_eq!(came.try_iter().count(), 2);
        assert!(hook.known.by_network().is_empty());
    }

    /// All of them at once would be asked again by everybody at once.
    #[test]
    fn answers_are_kept_to_their_limit() {
        let hook = hook(([127, 0, 0, 1], 9).into());
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_be_bytes());
            key
        };
        let kept = |hook: &Hook, now| {
            let is_kept = |number: &usize| hook.remembered(&key(*number), now).is_some();
            (0..2 * HOOK_ANSWERS_MAX).filter(is_kept).count()
        };
        // One more than there is room for, the first a second before the others.
        let later = NOW + Duration::from_secs(1);
        for number in 0..=HOOK_ANSWERS_MAX {
            let asked = if number == 0 { NOW } else { later };
            hook.remember(key(number), Verdict::Yes, asked);
        }
        assert_eq!(kept(&hook, later), HOOK_ANSWERS_MAX);
        assert!(hook.remembered(&key(HOOK_ANSWERS_MAX), later).is_none());
        // Once the first has ended there is room for one.
        let end = NOW + hook.config.cache_time;
        for number in HOOK_ANSWERS_MAX..HOOK_ANSWERS_MAX + 2 {
            hook.remember(key(number), Verdict::No, end);
        }
        assert_eq!(kept(&hook, end), HOOK_ANSWERS_MAX);
        let last = hook.remembered(&key(HOOK_ANSWERS_MAX), end);
        assert_eq!(last, Some(Verdict::No));
        // And once all others have, these go.
        let end = later + hook.config.cache_time;
        hook.remember(key(0), Verdict::Yes, end);
        let answers = hook.known.answers();
        assert_eq!((answers.by_question.len(), answers.ends.len()), (2, 2));
    }

    #[test]
    fn a_question_asked_twice_at_once_has_the_later_answer() {
        let hook = hook(([127, 0, 0, 1], 9).into());
        let (key, second) = ([7; 32], Duration::from_secs(1));
        hook.remember(key, Verdict::Yes, NOW);
        hook.remember(key, Verdict::No, NOW + second);
        let end = NOW + hook.config.cache_time;
        hook.remember([8; 32], Verdict::Yes, end);
        assert_eq!(hook.remembered(&key, end), Some(Verdict::No));
        hook.remember([9; 32], Verdict::Yes, end + second);
        let answers = hook.known.answers();
        assert_eq!((answers.by_question.len(), answers.ends.len()), (2, 2));
    }

    #[test]
    fn a_hook_is_told_no_more_of_a_query_than_who_asks() {
        for (query, told) in [
            ("_HLS_msn=7&_HLS_part=2", None),
            ("_HLS_skip=YES&key=a%20b&x", Some("key=a%20b&x")),
            ("key=a&_HLS_msn=7&_HLS_later=1", Some("key=a")),
            ("trace=0123456789abcdef&redirects=1", None),
            ("trace=on&redirects=1&x=y", Some("trace=on&x=y")),
            ("hls_msn=7&&_hls_msn=7", Some("hls_msn=7&&_hls_msn=7")),
            ("", None),
        ] {
            assert_eq!(told_query(query).as_deref(), told, "{query}");
        }
    }
}
