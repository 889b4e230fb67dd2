//! Channels' leases, as they stand in a bucket of their own: what is asked for there, and what is
//! heard of all of them.
//!
//! An entry is made only where there is none and written only upon the revision that is known, so
//! that the registry decides who has a lease. As with nodes' entries, nothing says when the time of
//! one is over: it lives for its time from when it came, by this node's steady clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::kv::{self, Operation, Store, UpdateError, UpdateErrorKind};
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageError, LastRawMessageErrorKind};
use onrush_wire::route::channel::{CLUSTER_CHANNELS_MAX, channel_key, channel_of};
use onrush_wire::route::{ChannelEntry, Fence, LeaseAnswer, LeaseNews, LeaseRequest, Token};
use tracing::{info, warn};

use crate::Ignored;

/// What stands in the bucket.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    all: BTreeMap<String, Known>,
    /// Which registry this was heard of.
    registry: u64,
    is_new: bool,
    /// That there are too many was said.
    is_full: bool,
}

#[derive(Debug)]
struct Known {
    heard: Instant,
    revision: Token,
    fence: Fence,
    entry: Result<Arc<ChannelEntry>, String>,
}

impl Leases {
    /// The registry is this one from now on: revisions of one before say nothing about its own.
    pub(crate) fn begin(&mut self, registry: u64) {
        if std::mem::replace(&mut self.registry, registry) != registry {
            for known in self.all.values_mut() {
                (known.fence, known.revision) = (Fence::default(), 0);
            }
        }
        self.is_new = true;
    }

    /// Takes what the bucket tells.
    pub(crate) fn take(&mut self, came: &kv::Entry, now: Instant) -> Option<LeaseNews> {
        match came.operation {
            Operation::Put => self.put((&came.key, came.revision), &came.value, now),
            _ => Some(self.remove(&came.key, came.revision)),
        }
    }

    fn put(
        &mut self,
        (key, revision): (&str, Token),
        value: &[u8],
        now: Instant,
    ) -> Option<LeaseNews> {
        let before = self.all.get(key);
        if before.is_none() && self.all.len() >= CLUSTER_CHANNELS_MAX {
            if !std::mem::replace(&mut self.is_full, true) {
                warn!(
                    "cluster: channel {key:?} and whichever follows: {CLUSTER_CHANNELS_MAX} \
                     channels are the most"
                );
            }
            return None;
        }
        let mut fence = before.map_or_else(Fence::default, |it| it.fence);
        let entry = ChannelEntry::parse(key, revision, value).map_err(|error| error.to_string());
        let entry = entry.and_then(|entry| match fence.admit(entry.token) {
            Ok(()) => Ok(Arc::new(entry)),
            Err(stale) => Err(stale.to_string()),
        });
        match &entry {
            Ok(entry) => {
                let is_other = |it: &Known| it.entry.as_ref().map(|it| it.token) != Ok(entry.token);
                if before.is_none_or(is_other) {
                    let ChannelEntry {
                        channel,
                        node,
                        token,
                        ..
                    } = &**entry;
                    info!("cluster: channel {channel} is at node {node}, lease {token}");
                    self.is_new = true;
                }
            }
            Err(reason) => {
                let is_told = before.is_some_and(|it| it.entry.as_ref() == Err(reason));
                if !is_told {
                    warn!("cluster: the registry's channel {key:?} is ignored: {reason}");
                    self.is_new = true;
                }
            }
        }
        let news = entry.as_ref().ok();
        let news = news.map(|entry| LeaseNews::Put((**entry).clone(), revision));
        let known = Known {
            heard: now,
            revision,
            fence,
            entry,
        };
        self.all.insert(key.to_owned(), known);
        news
    }

    fn remove(&mut self, key: &str, revision: Token) -> LeaseNews {
        if self.all.remove(key).is_some() {
            info!("cluster: channel {} is given up", channel_of(key));
            (self.is_new, self.is_full) = (true, false);
        }
        LeaseNews::Gone(channel_of(key), revision)
    }

    /// Forgets those that were not heard of for so long.
    pub(crate) fn expire(&mut self, now: Instant, time_to_live: Duration) -> Vec<LeaseNews> {
        let is_over = |known: &Known| now.saturating_duration_since(known.heard) >= time_to_live;
        let over = self.all.iter().filter(|(_, known)| is_over(known));
        let over: Vec<_> = over
            .map(|(key, known)| (key.clone(), known.revision))
            .collect();
        let gone = over.into_iter().map(|(key, revision)| {
            let channel = channel_of(&key);
            warn!("cluster: nothing was heard of channel {channel} for {time_to_live:?}");
            self.all.remove(&key);
            (self.is_new, self.is_full) = (true, false);
            LeaseNews::Gone(channel, revision)
        });
        gone.collect()
    }

    /// What is to be told, if it is another than before.
    pub(crate) fn news(&mut self) -> Option<(Vec<Arc<ChannelEntry>>, Vec<Ignored>)> {
        std::mem::take(&mut self.is_new).then(|| {
            let (mut leases, mut ignored) = (Vec::new(), Vec::new());
            for (key, known) in &self.all {
                match &known.entry {
                    Ok(entry) => leases.push(Arc::clone(entry)),
                    Err(reason) => ignored.push(Ignored {
                        key: format!("channel {}", channel_of(key)),
                        reason: reason.clone(),
                    }),
                }
            }
            (leases, ignored)
        })
    }
}

/// Does in the bucket what is asked for, or finds out what stands there instead.
///
/// # Errors
///
/// If it is not known whether it was done.
pub(crate) async fn carry_out(
    store: &Store,
    request: &LeaseRequest,
) -> Result<LeaseAnswer, Box<dyn std::error::Error + Send + Sync>> {
    let entry = request.entry();
    let key = channel_key(&entry.channel).ok_or("no channel can be called that")?;
    let (upon, makes) = match request {
        LeaseRequest::Create(_) => (0, true),
        LeaseRequest::Renew(_, revision) => (*revision, false),
        // Whatever stands there instead is not this lease.
        LeaseRequest::Release(_, revision) => {
            let released = store.delete_expect_revision(&key, Some(*revision)).await;
            return match released {
                Ok(()) => Ok(Ok(*revision)),
                Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(Err(None)),
                Err(error) => Err(error.into()),
            };
        }
    };
    if let Some(revision) = write(store, &key, entry, upon).await? {
        return Ok(Ok(revision));
    }
    let Some(found) = standing(store, &key).await? else {
        return Ok(Err(None));
    };
    if is_removed(&found) {
        // Who was faster than this is found by whoever asks again.
        let made = match makes {
            true => write(store, &key, entry, found.sequence).await?,
            false => None,
        };
        return Ok(made.ok_or(None));
    }
    // What this version cannot read may be the lease of a newer one, and is in the way until its
    // time is over.
    let parsed = ChannelEntry::parse(&key, found.sequence, &found.payload);
    let entry = parsed.unwrap_or_else(|_| ChannelEntry {
        channel: entry.channel.clone(),
        ..ChannelEntry::default()
    });
    Ok(Err(Some((entry, found.sequence))))
}

/// Writes the entry, if that is the revision that stands there; 0 is none. Its revision by now.
async fn write(
    store: &Store,
    key: &str,
    entry: &ChannelEntry,
    upon: Token,
) -> Result<Option<Token>, UpdateError> {
    match store.update(key, entry.to_bytes().into(), upon).await {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == UpdateErrorKind::WrongLastRevision => Ok(None),
        Err(error) => Err(error),
    }
}

/// What was written last, as the server says that leads the bucket. `Store::entry` asks whichever
/// keeps it: one that is behind says that nothing stands there, or what stood there before.
async fn standing(store: &Store, key: &str) -> Result<Option<StreamMessage>, LastRawMessageError> {
    let subject = format!("{}{key}", store.prefix);
    match store.stream.get_last_raw_message_by_subject(&subject).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it says that an entry was taken away, by somebody or by its age.
fn is_removed(message: &StreamMessage) -> bool {
    let marks = ["KV-Operation", "Nats-Marker-Reason"];
    marks
        .iter()
        .any(|mark| message.headers.get(*mark).is_some())
}

#[cfg(test)]
mod tests {
    use async_nats::jetstream::stream::{Config, Source, StorageType};
    use async_nats::jetstream::{self, Context};
    use onrush_testkit::require_programs;
    use onrush_wire::route::channel::CHANNEL_FORMAT;
    use tokio::time::sleep;

    use super::*;
    use crate::testing::start_nats;

    const LIFE: Duration = Duration::from_secs(10);

    fn entry(channel: &str, node: &str, token: Token) -> Vec<u8> {
        let entry = ChannelEntry {
            format: CHANNEL_FORMAT,
            channel: channel.to_owned(),
            node: node.to_owned(),
            instance: 1,
            rtsp: format!("{node}.example:8554"),
            token,
        };
        entry.to_bytes()
    }

    fn told(leases: &mut Leases) -> Option<Vec<(String, Token)>> {
        let (leases, _) = leases.news()?;
        let of = |it: &Arc<ChannelEntry>| (it.node.clone(), it.token);
        Some(leases.iter().map(of).collect())
    }

    #[test]
    fn leases_come_are_renewed_and_go() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        let news = leases.put(("live/a=2Eb", 3), &entry("live/a.b", "n1", 0), now);
        assert!(matches!(news, Some(LeaseNews::Put(it, 3)) if it.token == 3));
        assert_eq!(told(&mut leases), Some(vec![("n1".to_owned(), 3)]));
        // A renewal is nothing new, and lets it live.
        let later = now + LIFE / 2;
        leases.put(("live/a=2Eb", 5), &entry("live/a.b", "n1", 3), later);
        assert_eq!(told(&mut leases), None);
        assert_eq!(leases.expire(now + LIFE, LIFE), []);
        let gone = LeaseNews::Gone("live/a.b".to_owned(), 5);
        assert_eq!(leases.expire(later + LIFE, LIFE), [gone]);
        assert_eq!(told(&mut leases), Some(vec![]));
        leases.put(("c", 7), &entry("c", "n1", 0), now);
        let gone = LeaseNews::Gone("c".to_owned(), 9);
        assert_eq!(leases.remove("c", 9), gone);
        assert_eq!(told(&mut leases), Some(vec![]));
    }

    #[test]
    fn an_older_token_is_ignored_but_in_another_registry() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        leases.begin(1);
        leases.put(("c", 7), &entry("c", "n1", 0), now);
        assert_eq!(leases.put(("c", 9), &entry("c", "n2", 5), now), None);
        let (known, ignored) = leases.news().unwrap();
        assert!(known.is_empty());
        assert_eq!(ignored[0].key, "channel c");
        assert!(ignored[0].reason.contains("lease 5 has been given"));
        leases.begin(1);
        assert_eq!(leases.put(("c", 10), &entry("c", "n2", 5), now), None);
        leases.begin(2);
        assert!(leases.put(("c", 5), &entry("c", "n2", 5), now).is_some());
        assert_eq!(told(&mut leases), Some(vec![("n2".to_owned(), 5)]));
    }

    #[test]
    fn channels_beyond_the_most_are_ignored() {
        let (mut leases, now) = (Leases::default(), Instant::now());
        let put = |leases: &mut Leases, i: usize| {
            let name = format!("c{i}");
            leases.put((&name, 1), &entry(&name, "n", 0), now).is_some()
        };
        for i in 0..CLUSTER_CHANNELS_MAX {
            assert!(put(&mut leases, i));
        }
        assert!(!put(&mut leases, CLUSTER_CHANNELS_MAX));
        leases.remove("c0", 2);
        assert!(put(&mut leases, CLUSTER_CHANNELS_MAX));
        assert_eq!(told(&mut leases).unwrap().len(), CLUSTER_CHANNELS_MAX);
    }

    fn lease(node: &str) -> ChannelEntry {
        ChannelEntry::parse("c", 0, &entry("c", node, 0)).unwrap()
    }

    /// A bucket that another server answers direct reads of, too, which has lost what it had: as
    /// one of three does that is behind the others.
    async fn bucket_with_an_empty_copy(context: &Context) -> Store {
        let config = Config {
            name: "KV_b".to_owned(),
            subjects: vec!["$KV.b.>".to_owned()],
            max_messages_per_subject: 1,
            allow_direct: true,
            storage: StorageType::Memory,
            ..Config::default()
        };
        context.create_stream(config).await.unwrap();
        let copy = Config {
            name: "copy".to_owned(),
            mirror: Some(Source {
                name: "KV_b".to_owned(),
                ..Source::default()
            }),
            mirror_direct: true,
            storage: StorageType::Memory,
            ..Config::default()
        };
        let mut copy = context.create_stream(copy).await.unwrap();
        let store = context.get_key_value("b").await.unwrap();
        let request = LeaseRequest::Create(lease("n1"));
        assert_eq!(carry_out(&store, &request).await.unwrap(), Ok(1));
        for _ in 0..100 {
            if copy.info().await.unwrap().state.messages == 1 {
                break;
            }
            sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(copy.purge().await.unwrap().purged, 1);
        store
    }

    /// Of 64 direct reads one half would find nothing.
    #[test]
    fn what_stands_there_is_what_the_leader_says() {
        require_programs!("nats-server");
        let (_folder, _server, address) = start_nats();
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(async {
            let client = async_nats::connect(address);
            let context = jetstream::new(client.await.unwrap());
            let store = bucket_with_an_empty_copy(&context).await;
            let holder = ChannelEntry {
                token: 1,
                ..lease("n1")
            };
            let stands = Err(Some((holder, 1)));
            let mut direct_misses = 0;
            for _ in 0..64 {
                let other = LeaseRequest::Create(lease("n2"));
                assert_eq!(carry_out(&store, &other).await.unwrap(), stands);
                let stale = LeaseRequest::Renew(lease("n1"), 7);
                assert_eq!(carry_out(&store, &stale).await.unwrap(), stands);
                direct_misses += u32::from(store.entry("c").await.unwrap().is_none());
            }
            assert!(direct_misses > 0, "the copy answers nobody");
            // Given back it is there for whoever comes next, by a token that is newer.
            let back = LeaseRequest::Release(lease("n1"), 1);
            assert_eq!(carry_out(&store, &back).await.unwrap(), Ok(1));
            let late = LeaseRequest::Renew(lease("n1"), 1);
            assert_eq!(carry_out(&store, &late).await.unwrap(), Err(None));
            let next = LeaseRequest::Create(lease("n2"));
            assert_eq!(carry_out(&store, &next).await.unwrap(), Ok(3));
            let late = LeaseRequest::Release(lease("n1"), 1);
            assert_eq!(carry_out(&store, &late).await.unwrap(), Err(None));
        });
    }
}
