//! Talking to the registry: from one time that it can be reached to the next.
//!
//! What goes wrong ends a session, and the next one begins from the start: it opens the bucket,
//! makes it if it is gone, and is told all that stands there. So there is one way to come back,
//! whatever has happened meanwhile.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::kv::{self, Operation, Store};
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions};
use futures_util::StreamExt;
use futures_util::future::join_all;
use onrush_wire::route::Entry;
use onrush_wire::route::channel::CHANNEL_ENTRY_BYTES_MAX;
use onrush_wire::route::entry::ENTRY_BYTES_MAX;
use thiserror::Error;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::leases::{Leases, carry_out};
use crate::table::Table;
use crate::{Forget, Member, RegistryConfig};

/// How long a server of NATS may take to be connected to, and to answer a request.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// How long what this node writes may take to be heard of.
const ECHO_TIME_MAX: Duration = Duration::from_secs(2);

/// How long a node waits before it tries again, and before it connects again.
const RETRY_TIME: Duration = Duration::from_millis(500);

/// How often a session looks whether an entry's time is over, its own or another's, and how much
/// later than it came a change is told.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long taking the entry out may take at the end, and before that the answer to what is under
/// way.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// Requests about leases in a row, between which nothing else is looked at; not for longer than
/// [`LOOK_EVERY`].
const LEASE_REQUESTS_MAX: usize = 256;

/// An entry is written so often in its time, so that two writes may be lost.
const WRITES: u32 = 3;

/// Why a session ended.
#[derive(Debug, Error)]
enum SessionError {
    #[error("cannot read the credentials: {0}")]
    Credentials(String),
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("cannot open the bucket {bucket}: {reason}; {}", remedy(.reason))]
    Bucket { bucket: String, reason: String },
    #[error("cannot watch the bucket: {0}")]
    Watch(String),
    #[error("cannot write this node's entry: {0}")]
    Write(String),
    #[error("cannot ask for the lease of a channel: {0}")]
    Lease(String),
    #[error("entries come no more")]
    Silent,
    #[error("the node stops")]
    Stopped,
}

/// What a node keeps while the registry goes and comes.
struct Node {
    config: RegistryConfig,
    member: Arc<dyn Member>,
    table: Table,
    leases: Leases,
    lease_requests: Arc<Notify>,
    time_to_live: Duration,
    /// How long a channel's lease stands.
    lease_life: Duration,
    /// What the entry that stands there said, and its revision.
    written: Option<(Entry, u64)>,
    /// Another node calls itself the same; it was said.
    is_double: bool,
}

/// What this node has written, until it is heard of.
#[derive(Debug, Default)]
struct Echo {
    is_awaited: bool,
    /// How often was looked for it in vain, each [`LOOK_EVERY`] or later: a process that stands
    /// still does not look, and what came meanwhile is heard before the next look.
    looks: u32,
}

impl Echo {
    /// The entry is written, perhaps again before the one of before was heard of.
    fn wrote(&mut self) {
        self.is_awaited = true;
    }

    fn heard(&mut self) {
        *self = Self::default();
    }

    /// Looks once more: whether it takes too long, where entries live for so long.
    fn is_late(&mut self, time_to_live: Duration) -> bool {
        self.looks += u32::from(self.is_awaited);
        LOOK_EVERY * self.looks > ECHO_TIME_MAX.min(time_to_live)
    }
}

/// Keeps the node's entry, and hears of the others, until `stopped`.
pub(crate) async fn run(
    config: RegistryConfig,
    member: Arc<dyn Member>,
    mut forgets: mpsc::Receiver<Forget>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut node = Node {
        time_to_live: config.time_to_live,
        lease_life: config.time_to_live,
        config,
        lease_requests: member.lease_requests(),
        member,
        table: Table::default(),
        leases: Leases::default(),
        written: None,
        is_double: false,
    };
    let mut told = None;
    let stopping = Notify::new();
    loop {
        let ended = {
            let mut session = pin!(node.session(&mut forgets, &stopping));
            tokio::select! {
                ended = &mut session => ended,
                // A sender that was dropped asks for the same as one that sent.
                _ = &mut stopped => {
                    // What is written just now is answered first: it is taken out by its revision,
                    // which only the answer tells.
                    stopping.notify_one();
                    drop(timeout(LEAVE_TIME_MAX, session).await);
                    break;
                }
            }
        };
        let reason = ended.to_string();
        if told.as_ref() != Some(&reason) {
            let cluster = &node.config.cluster;
            warn!("cluster {cluster}: the registry is not reached, serving goes on: {reason}");
        }
        node.member.reached(Err(reason.clone()));
        told = Some(reason);
        // Whoever asks to have something forgotten meanwhile is told at once.
        while let Ok((_, answer)) = forgets.try_recv() {
            drop(answer.send(Err("the registry cannot be reached".to_owned())));
        }
        node.look();
        tokio::select! {
            () = sleep(RETRY_TIME) => {}
            _ = &mut stopped => break,
        }
    }
    drop(timeout(LEAVE_TIME_MAX, node.leave()).await);
}

impl Node {
    /// From connecting to what goes wrong first, or to what is under way at `stopping`.
    async fn session(
        &mut self,
        forgets: &mut mpsc::Receiver<Forget>,
        stopping: &Notify,
    ) -> SessionError {
        match self.talk(forgets, stopping).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn talk(
        &mut self,
        forgets: &mut mpsc::Receiver<Forget>,
        stopping: &Notify,
    ) -> Result<std::convert::Infallible, SessionError> {
        let opened = tokio::select! {
            opened = self.open_both() => opened?,
            () = stopping.notified() => return Err(SessionError::Stopped),
        };
        let [(store, mut watch), (channels, mut channel_watch)] = opened;
        self.write(&store).await?;
        let (cluster, life) = (&self.config.cluster, self.time_to_live);
        info!("cluster {cluster}: registered; an entry lives for {life:?}");
        self.member.reached(Ok(()));
        let lease_requests = Arc::clone(&self.lease_requests);
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut wrote, mut echo) = (Instant::now(), Echo::default());
        echo.wrote();
        loop {
            tokio::select! {
                // In this order: where answers take long there is always a lease to be asked for,
                // and nothing else is to wait for that.
                biased;
                () = stopping.notified() => return Err(SessionError::Stopped),
                came = watch.next() => {
                    let came = came.ok_or(SessionError::Silent)?;
                    let came = came.map_err(|error| SessionError::Watch(chain(&error)))?;
                    if came.key == self.config.node {
                        echo.heard();
                    }
                    if self.take(&came) {
                        self.write(&store).await?;
                        wrote = Instant::now();
                        echo.wrote();
                    }
                }
                came = channel_watch.next() => {
                    let came = came.ok_or(SessionError::Silent)?;
                    let came = came.map_err(|error| SessionError::Watch(chain(&error)))?;
                    if let Some(news) = self.leases.take(&came, Instant::now()) {
                        self.member.lease_news(news);
                    }
                    self.tell_leases();
                    lease_requests.notify_one();
                }
                Some((key, answer)) = forgets.recv() => {
                    let had = self.table.has(&key) || key == self.config.node;
                    let removed = store.purge(&key).await.map(|()| had);
                    drop(answer.send(removed.map_err(|error| chain(&error))));
                }
                _ = ticks.tick() => {
                    if wrote.elapsed() >= self.time_to_live / WRITES || self.has_turned() {
                        self.write(&store).await?;
                        wrote = Instant::now();
                        echo.wrote();
                    }
                    // What is written comes back, or the watch is dead: its server may be gone,
                    // while another answers. The others are to be heard before they are forgotten.
                    if echo.is_late(self.time_to_live) {
                        return Err(SessionError::Silent);
                    }
                    self.look();
                    self.ask(&channels).await?;
                }
                () = lease_requests.notified() => self.ask(&channels).await?,
            }
        }
    }

    /// Connects, and opens the bucket of nodes and that of channels, each with what comes of it.
    async fn open_both(&mut self) -> Result<[(Store, kv::Watch); 2], SessionError> {
        let context = context(self.connect().await?);
        let nodes = self.open(&context).await?;
        let of_nodes = watch(&nodes).await?;
        let channels = self.open_channels(&context).await?;
        let of_channels = watch(&channels).await?;
        Ok([(nodes, of_nodes), (channels, of_channels)])
    }

    async fn connect(&self) -> Result<Client, SessionError> {
        let options = match &self.config.credentials {
            None => ConnectOptions::new(),
            Some(text) => ConnectOptions::with_credentials(text)
                .map_err(|error| SessionError::Credentials(error.to_string()))?,
        };
        let options = options
            .name(format!("onrush {}", self.config.node))
            .connection_timeout(ANSWER_TIME_MAX)
            .request_timeout(Some(ANSWER_TIME_MAX))
            .ping_interval(Duration::from_secs(5))
            // What becomes of the session is said, and so is all that matters of these.
            .event_callback(async |_| {})
            .reconnect_delay_callback(|_| RETRY_TIME)
            // Whoever cannot be reached again is connected to anew, by the next session.
            .max_reconnects(Some(2));
        let connected = options.connect(self.config.servers.as_slice());
        match timeout(2 * ANSWER_TIME_MAX, connected).await {
            Ok(client) => client.map_err(|error| SessionError::Connect(chain(&error))),
            Err(_) => Err(SessionError::Connect("no server answers".to_owned())),
        }
    }

    /// Opens the bucket of nodes, or makes it.
    async fn open(&mut self, context: &Context) -> Result<Store, SessionError> {
        let bucket = format!("onrush-{}", self.config.cluster);
        let made = self.stream(&bucket, "Nodes of Onrush", ENTRY_BYTES_MAX);
        let (store, info) = open(context, made).await?;
        // One that somebody made by hand may keep its entries for ever.
        if !info.config.max_age.is_zero() {
            self.time_to_live = info.config.max_age;
        }
        Ok(store)
    }

    /// Opens the bucket of channels, or makes it. Clusters' names do not begin so, so that it is
    /// never the bucket of another cluster's nodes.
    async fn open_channels(&mut self, context: &Context) -> Result<Store, SessionError> {
        let bucket = format!("onrush_channels-{}", self.config.cluster);
        let made = self.stream(&bucket, "Channels of Onrush", CHANNEL_ENTRY_BYTES_MAX);
        let (store, info) = open(context, made).await?;
        self.lease_life = info.config.max_age;
        if self.lease_life.is_zero() {
            let reason = "it keeps leases for ever; remove it, and a node makes it anew".to_owned();
            return Err(SessionError::Bucket { bucket, reason });
        }
        let made_ms = info.created.unix_timestamp_nanos() / 1_000_000;
        let registry = u64::try_from(made_ms).unwrap_or(0);
        self.leases.begin(registry);
        self.member.lease_registry(registry, self.lease_life);
        Ok(store)
    }

    /// The stream that a bucket is. Not made by `create_key_value`, which asks for what servers of
    /// NATS before 2.10 do not tell of an account.
    fn stream(&self, bucket: &str, description: &str, value_bytes_max: usize) -> stream::Config {
        stream::Config {
            name: format!("KV_{bucket}"),
            description: Some(description.to_owned()),
            subjects: vec![format!("$KV.{bucket}.>")],
            max_messages_per_subject: 1,
            max_age: self.config.time_to_live,
            max_message_size: i32::try_from(value_bytes_max).unwrap_or(i32::MAX),
            // What it holds is written anew before it is old.
            storage: StorageType::Memory,
            num_replicas: self.config.replicas,
            discard: DiscardPolicy::New,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            ..stream::Config::default()
        }
    }

    /// Asks for what the member wants of leases, or for a part of it: the next look goes on.
    async fn ask(&mut self, channels: &Store) -> Result<(), SessionError> {
        let begun = Instant::now();
        for _ in 0..LEASE_REQUESTS_MAX {
            if begun.elapsed() >= LOOK_EVERY {
                break;
            }
            let Some(request) = self.member.next_lease_request() else {
                break;
            };
            let answer = timeout(2 * ANSWER_TIME_MAX, carry_out(channels, &request)).await;
            let answer = answer.map_err(|_| SessionError::Lease("no answer".to_owned()))?;
            let answer = answer.map_err(|error| SessionError::Lease(chain(&*error)))?;
            self.member.lease_answer(&request, answer);
        }
        Ok(())
    }

    fn tell_leases(&mut self) {
        if let Some((leases, ignored)) = self.leases.news() {
            self.member.leases(leases, ignored);
        }
    }

    /// Writes this node's entry.
    async fn write(&mut self, store: &Store) -> Result<(), SessionError> {
        let entry = self.member.entry();
        let written = timeout(
            2 * ANSWER_TIME_MAX,
            store.put(&self.config.node, entry.to_bytes().into()),
        );
        let revision = match written.await {
            Ok(Ok(revision)) => revision,
            Ok(Err(error)) => return Err(SessionError::Write(chain(&error))),
            Err(_) => return Err(SessionError::Write("no answer".to_owned())),
        };
        self.written = Some((entry, revision));
        // The node itself is among those that it decides by.
        self.table.renew();
        Ok(())
    }

    /// Whether this node takes viewers again, or no more: that is told at once.
    fn has_turned(&self) -> bool {
        let told = self.written.as_ref().map(|(entry, _)| entry.accepts);
        told.is_some_and(|accepts| accepts != self.member.entry().accepts)
    }

    /// Takes what came; whether this node's entry is to be written again.
    fn take(&mut self, came: &kv::Entry) -> bool {
        let is_own = came.key == self.config.node;
        let is_put = matches!(came.operation, Operation::Put);
        match (is_own, is_put) {
            (false, true) => self.table.put(&came.key, &came.value, Instant::now()),
            (false, false) => self.table.remove(&came.key),
            (true, false) => return true,
            (true, true) => self.compare(came),
        }
        false
    }

    /// Says if another node calls itself the same. The successor of this one does, for a moment.
    fn compare(&mut self, came: &kv::Entry) {
        let own = self.written.as_ref().map(|(entry, _)| entry.instance);
        let is_newer = self.written.as_ref().is_some_and(|it| came.revision > it.1);
        let other = Entry::parse(&came.key, &came.value);
        let is_other = other.is_ok_and(|it| Some(it.instance) != own);
        if is_newer && is_other && !std::mem::replace(&mut self.is_double, true) {
            let node = &came.key;
            warn!(
                "cluster: another node calls itself {node}, too, and viewers are sent now to this \
                 one and now to that: give each a name of its own"
            );
        }
    }

    /// Forgets whose time is over, and tells what is new.
    fn look(&mut self) {
        self.table.expire(Instant::now(), self.time_to_live);
        if let Some((others, ignored)) = self.table.news() {
            self.member.told(others, ignored);
        }
        for gone in self.leases.expire(Instant::now(), self.lease_life) {
            self.member.lease_news(gone);
        }
        self.tell_leases();
    }

    /// Gives leases back and takes the entry out, unless a successor has written it since.
    async fn leave(&mut self) -> Result<(), SessionError> {
        let Some((_, revision)) = self.written else {
            return Ok(());
        };
        let context = context(self.connect().await?);
        let channels = self.open_channels(&context).await?;
        self.member.leaves();
        let releases = std::iter::from_fn(|| self.member.next_lease_request());
        let releases: Vec<_> = releases.take(LEASE_REQUESTS_MAX).collect();
        // All at once: there is little time, and what is answered changes nothing any more.
        join_all(releases.iter().map(|it| carry_out(&channels, it))).await;
        let store = self.open(&context).await?;
        let left = store.delete_expect_revision(&self.config.node, Some(revision));
        left.await
            .map_err(|error| SessionError::Write(chain(&error)))
    }
}

/// Opens the bucket that this stream is, or makes it.
async fn open(
    context: &Context,
    made: stream::Config,
) -> Result<(Store, stream::Info), SessionError> {
    let bucket = made.name.trim_start_matches("KV_").to_owned();
    let store = match context.get_key_value(&bucket).await {
        Ok(store) => Ok(store),
        Err(_) => {
            let made = context.create_stream(made).await;
            // Another node may have made it meanwhile, too.
            let found = context.get_key_value(&bucket).await;
            found.map_err(|error| match made {
                Ok(_) => chain(&error),
                Err(refused) => chain(&refused),
            })
        }
    };
    let reason = |reason| SessionError::Bucket {
        bucket: bucket.clone(),
        reason,
    };
    let store = store.map_err(reason)?;
    let status = store.status().await;
    let info = status.map_err(|error| reason(chain(&error)))?.info;
    Ok((store, info))
}

/// What stands in a bucket, and what comes.
async fn watch(store: &Store) -> Result<kv::Watch, SessionError> {
    let watch = store.watch_with_history(">").await;
    watch.map_err(|error| SessionError::Watch(chain(&error)))
}

/// What to do about a bucket that cannot be opened, by what the server says.
fn remedy(reason: &str) -> &'static str {
    let reason = reason.to_lowercase();
    match reason.contains("replicas") || reason.contains("peers") {
        true => "with fewer than three servers in one cluster of NATS: --cluster-replicas 1",
        false => "is JetStream on (nats-server -js)?",
    }
}

fn context(client: Client) -> Context {
    let mut context = jetstream::new(client);
    context.set_timeout(ANSWER_TIME_MAX);
    context
}

/// An error with what it comes from, in a line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = error.source();
    }
    text.replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many looks a dead watch is noticed, with a write before each so many.
    fn noticed_after(time_to_live: Duration, looks_a_write: u32) -> u32 {
        let mut echo = Echo::default();
        echo.wrote();
        for look in 1..1000 {
            if look % looks_a_write == 0 {
                echo.wrote();
            }
            if echo.is_late(time_to_live) {
                return look;
            }
        }
        panic!("it is not noticed");
    }

    #[test]
    fn a_dead_watch_is_noticed_however_often_is_written() {
        for (life_s, looks_a_write) in [(1, 3), (3, 10), (6, 20), (15, 50)] {
            let life = Duration::from_secs(life_s);
            let looks = noticed_after(life, looks_a_write);
            let expected = ECHO_TIME_MAX.min(life);
            assert_eq!(LOOK_EVERY * (looks - 1), expected, "{life:?}");
        }
    }

    #[test]
    fn what_is_heard_of_is_waited_for_no_more() {
        let (mut echo, life) = (Echo::default(), Duration::from_secs(15));
        for _ in 0..100 {
            assert!(!echo.is_late(life), "nothing is written");
        }
        for _ in 0..100 {
            echo.wrote();
            assert!(!echo.is_late(life));
            echo.heard();
        }
    }
}
