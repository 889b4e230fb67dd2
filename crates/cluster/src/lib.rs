//! Onrush's nodes in a registry: each tells there what it is and has, and hears it of the others.
//!
//! The registry is a bucket of NATS JetStream's key-value store, `onrush-CLUSTER`, with a key for
//! each node. Entries live for as long as the bucket says; a node writes its own three times in
//! that time, and watches all others: nothing is asked for again and again. A thread of its own
//! does it, and tells the [`Member`] what has changed: whoever decides about a viewer reads what it
//! was told last, and never waits for the network.
//!
//! Channels have a bucket of their own, `onrush_channels-CLUSTER`, with a key for each that is
//! received somewhere: a lease, which one node takes and keeps. What is asked for there is the
//! member's ([`LeaseRequest`]); it is done as soon as the member [says](Member::lease_requests)
//! that there is something.
//!
//! Nobody is lost with the registry: a node that cannot reach it says so, forgets the others when
//! their time is over, serves whoever comes, and registers again when the registry is back. What
//! the entries say is [`onrush_wire::route::Entry`]; which node serves what is not decided here.

#![warn(clippy::missing_errors_doc)]

mod leases;
mod session;
mod table;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onrush_wire::route::{ChannelEntry, Entry, LeaseAnswer, LeaseNews, LeaseRequest};
use tokio::runtime::Builder;
use tokio::sync::{Notify, mpsc, oneshot};
use zeroize::Zeroizing;

/// Keys that wait to be removed; one more is refused.
const FORGETS_MAX: usize = 4;

/// Where the registry is, and how long its entries live.
#[derive(Clone)]
pub struct RegistryConfig {
    /// The cluster's name: letters, digits, `-` and `_`.
    pub cluster: String,
    /// This node's name, as in its entry.
    pub node: String,
    /// The servers of NATS: `nats://HOST:PORT`, or `tls://HOST:PORT`. One that answers is enough.
    pub servers: Vec<String>,
    /// What is in a file of credentials (a JWT and a seed), for servers that want any. The seed
    /// stays here: it signs what a server sends.
    pub credentials: Option<Zeroizing<String>>,
    /// How long an entry lives that is not written again, where the bucket is not there yet: a
    /// bucket keeps what it was made with.
    pub time_to_live: Duration,
    /// How many servers of NATS keep what is registered, where the buckets are not there yet.
    pub replicas: usize,
}

impl fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryConfig")
            .field("cluster", &self.cluster)
            .field("node", &self.node)
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}

/// What stands in the registry and is not taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ignored {
    /// Its key.
    pub key: String,
    /// Why.
    pub reason: String,
}

/// The node whose entry is kept. All of it is called on the registry's thread, several times a
/// second, and returns at once.
pub trait Member: Send + Sync {
    /// What is told of it now.
    fn entry(&self) -> Entry;

    /// What all other nodes told last, in the order of their names, and what is not taken.
    fn told(&self, others: Vec<Arc<Entry>>, ignored: Vec<Ignored>);

    /// Whether the registry is reached; if not, why.
    fn reached(&self, reached: Result<(), String>);

    /// What is notified when there is something to ask about leases.
    fn lease_requests(&self) -> Arc<Notify>;

    /// The registry that is reached now, as a number, and how long a lease stands there.
    fn lease_registry(&self, registry: u64, lasts: Duration);

    /// What to ask for next.
    fn next_lease_request(&self) -> Option<LeaseRequest>;

    /// What came of it. What is not answered is not known, and is asked for again.
    fn lease_answer(&self, request: &LeaseRequest, answer: LeaseAnswer);

    /// What the registry tells of a lease by itself.
    fn lease_news(&self, news: LeaseNews);

    /// All leases that there are, this node's among them, in the order of their channels' names,
    /// and what is not taken for one.
    fn leases(&self, leases: Vec<Arc<ChannelEntry>>, ignored: Vec<Ignored>);

    /// The node leaves: what it asks for next is to give its leases back.
    fn leaves(&self);
}

/// A node's part in the registry. Dropping it takes the entry out, if the registry can be reached
/// within a second.
#[derive(Debug)]
pub struct Registry {
    stop: Option<oneshot::Sender<()>>,
    forgets: Forgets,
    thread: Option<JoinHandle<()>>,
}

/// What removes entries. Clones do the same.
#[derive(Clone, Debug)]
pub struct Forgets(mpsc::Sender<Forget>);

/// A key to be removed, and where is said what came of it: whether there was one.
pub(crate) type Forget = (String, oneshot::Sender<Result<bool, String>>);

impl Forgets {
    /// Has the registry forget `key`, whatever stands there: whether anything did. A node that is
    /// alive writes its entry again.
    ///
    /// # Errors
    ///
    /// Why it could not be done.
    pub async fn forget(&self, key: &str) -> Result<bool, String> {
        let (answer, answered) = oneshot::channel();
        let asked = self.0.try_send((key.to_owned(), answer));
        asked.map_err(|_| "the registry cannot be reached now; try again".to_owned())?;
        answered
            .await
            .unwrap_or_else(|_| Err("the registry went away meanwhile; try again".to_owned()))
    }
}

impl Registry {
    /// Starts the thread, off `data_cores` where there are others. That the registry cannot be
    /// reached is no error: it is tried again until it can.
    ///
    /// # Errors
    ///
    /// If there is no thread to be had.
    pub fn start(
        config: RegistryConfig,
        member: Arc<dyn Member>,
        on_thread: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (forgets, to_forget) = mpsc::channel(FORGETS_MAX);
        let run = move || {
            on_thread();
            runtime.block_on(session::run(config, member, to_forget, stopped));
            // Only a name that is being looked up can be left.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("onrush-cluster".to_owned());
        Ok(Self {
            stop: Some(stop),
            forgets: Forgets(forgets),
            thread: Some(thread.spawn(run)?),
        })
    }

    /// What removes entries.
    #[must_use]
    pub fn forgets(&self) -> Forgets {
        self.forgets.clone()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            // What the thread died of is not lost, and not thrown over another panic.
            if !thread::panicking() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_nats::jetstream::{self, Context};
    use onrush_testkit::require_programs;
    use onrush_wire::route::Token;
    use onrush_wire::route::channel::{CHANNEL_FORMAT, channel_key};
    use onrush_wire::route::entry::ENTRY_FORMAT;
    use tokio::time::timeout;

    use super::*;
    use crate::testing::start_nats;

    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    enum Step {
        Entry,
        Lease,
    }

    /// A node that receives a channel, and is told to stop while it writes that.
    struct Stopping {
        name: String,
        stops_in: Step,
        state: Mutex<State>,
    }

    struct State {
        stop: Option<oneshot::Sender<()>>,
        entries: u32,
        has_asked: bool,
        lease: Option<Token>,
        leaves: bool,
    }

    impl State {
        /// Stops once this thread waits for the registry: what it has for that has left by then.
        fn stop(&mut self) {
            let stop = self.stop.take();
            drop(tokio::spawn(async move { drop(stop) }));
        }
    }

    impl Member for Stopping {
        fn entry(&self) -> Entry {
            let mut state = self.state.lock().unwrap();
            state.entries += 1;
            // The second is another than the first, and so the third is written.
            if self.stops_in == Step::Entry && state.entries == 3 {
                state.stop();
            }
            Entry {
                format: ENTRY_FORMAT,
                node: self.name.clone(),
                instance: 1,
                accepts: state.entries == 1,
                capacity_bps: 1,
                ..Entry::default()
            }
        }

        fn told(&self, _: Vec<Arc<Entry>>, _: Vec<Ignored>) {}

        fn reached(&self, _: Result<(), String>) {}

        fn lease_requests(&self) -> Arc<Notify> {
            Arc::default()
        }

        fn lease_registry(&self, _: u64, _: Duration) {}

        fn next_lease_request(&self) -> Option<LeaseRequest> {
            let mut state = self.state.lock().unwrap();
            let entry = ChannelEntry {
                format: CHANNEL_FORMAT,
                channel: self.name.clone(),
                node: self.name.clone(),
                instance: 1,
                rtsp: "127.0.0.1:8554".to_owned(),
                token: 0,
            };
            if state.leaves {
                let lease = state.lease.take();
                return lease.map(|revision| LeaseRequest::Release(entry, revision));
            }
            if std::mem::replace(&mut state.has_asked, true) {
                return None;
            }
            if self.stops_in == Step::Lease {
                state.stop();
            }
            Some(LeaseRequest::Create(entry))
        }

        fn lease_answer(&self, request: &LeaseRequest, answer: LeaseAnswer) {
            if matches!(request, LeaseRequest::Create(_)) {
                self.state.lock().unwrap().lease = answer.ok();
            }
        }

        fn lease_news(&self, _: LeaseNews) {}

        fn leases(&self, _: Vec<Arc<ChannelEntry>>, _: Vec<Ignored>) {}

        fn leaves(&self) {
            self.state.lock().unwrap().leaves = true;
        }
    }

    /// Whether nothing is left of a node that stops then.
    async fn leaves_nothing(context: &Context, address: &str, stops_in: Step, name: &str) -> bool {
        let (stop, stopped) = oneshot::channel();
        let member = Stopping {
            name: name.to_owned(),
            stops_in,
            state: Mutex::new(State {
                stop: Some(stop),
                entries: 0,
                has_asked: false,
                lease: None,
                leaves: false,
            }),
        };
        let config = RegistryConfig {
            cluster: "test".to_owned(),
            node: name.to_owned(),
            servers: vec![format!("nats://{address}")],
            credentials: None,
            time_to_live: Duration::from_secs(60),
            replicas: 1,
        };
        let (_forgets, to_forget) = mpsc::channel(FORGETS_MAX);
        let run = session::run(config, Arc::new(member), to_forget, stopped);
        let ended = timeout(Duration::from_secs(60), run).await;
        ended.expect("it takes too long");
        let nodes = context.get_key_value("onrush-test").await.unwrap();
        let channels = context.get_key_value("onrush_channels-test").await;
        let key = channel_key(name).unwrap();
        let lease = channels.unwrap().get(key).await.unwrap();
        nodes.get(name).await.unwrap().is_none() && lease.is_none()
    }

    /// Only the answer tells by which revision.
    #[test]
    fn what_is_written_at_a_stop_is_taken_out() {
        require_programs!("nats-server");
        let (_folder, _server, address) = start_nats();
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.unwrap().block_on(async {
            let client = async_nats::connect(address.clone()).await.unwrap();
            let context = jetstream::new(client);
            for stops_in in [Step::Entry, Step::Lease] {
                let mut is_clean = false;
                // On a machine that stands still nobody leaves within a second.
                for attempt in 0..5 {
                    let name = format!("{stops_in:?}-{attempt}");
                    is_clean = leaves_nothing(&context, &address, stops_in, &name).await;
                    if is_clean {
                        break;
                    }
                }
                assert!(is_clean, "{stops_in:?}");
            }
        });
    }
}
