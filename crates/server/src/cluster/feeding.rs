//! Channels that pass through this node: from whom it pulls each, and which nodes pull it here.
//!
//! Whom to feed is decided by [`onrush_wire::route::relay`]. Here are the two rules that keep its
//! tree without loops: nobody is fed while this node has no source and is not the one that receives
//! the channel, and a [`NodePull`] begins once all who were fed have been let go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use onrush_wire::route::relay::sent_on_url;
use onrush_wire::route::{FedNode, Key, PullAnswer, Puller, Token, answer_pull};
use tracing::info;

use super::{ClusterMember, lock};

/// By channel.
#[derive(Debug, Default)]
pub(super) struct Feeding(Mutex<BTreeMap<String, Passing>>);

/// A channel that is pulled, or fed.
#[derive(Debug, Default)]
struct Passing {
    source: Source,
    fed: Vec<Arc<Fed>>,
}

/// Where a channel comes from.
#[derive(Debug, Default)]
enum Source {
    /// From no other node.
    #[default]
    None,
    /// It is looked for.
    Asked,
    /// That node, under that lease.
    Node(String, Token),
}

/// A node that is fed.
#[derive(Debug)]
struct Fed {
    node: String,
    /// Where others may ask it, as far as is known.
    address: Option<String>,
    is_over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// A channel's way to another node, for as long as it pulls it from here.
pub(crate) struct Feed {
    member: Arc<ClusterMember>,
    channel: String,
    fed: Arc<Fed>,
}

/// A channel that this node takes from another, or wants to.
pub(crate) struct NodePull {
    member: Arc<ClusterMember>,
    channel: String,
    has_begun: bool,
}

/// Why a node is not fed.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum NotFed {
    /// It is not here under that lease.
    NotHere,
    /// It is to ask there.
    SentOn(String),
    /// As many are fed as may be, and none of them takes it.
    Full,
}

/// What passes through this node of a channel, for those who look.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThroughHere {
    /// The node that it is pulled from.
    pub(crate) source: Option<String>,
    /// How many nodes pull it from here.
    pub(crate) fed: usize,
}

impl ClusterMember {
    /// A node asks for a channel that this one receives, or pulls, by that lease. One that does not
    /// say who it is, or does not [prove](Self::is_asked_by) it, as of versions before, is fed by
    /// the one that receives it, and not counted.
    pub(crate) fn feed(
        self: &Arc<Self>,
        channel: &str,
        lease: Token,
        puller: Option<&Puller>,
    ) -> Result<Option<Feed>, NotFed> {
        let mut all = self.feeding.lock();
        let is_received = || self.has_lease(channel, lease);
        let is_here = match all.get(channel).map(|it| &it.source) {
            None | Some(Source::None) => is_received(),
            Some(Source::Asked) => false,
            Some(Source::Node(_, own)) => {
                *own == lease && puller.is_some() && self.load().0.accepts
            }
        };
        let own = &self.config.node;
        if !is_here || puller.is_some_and(|it| it.node == *own) {
            return Err(NotFed::NotHere);
        }
        let Some(puller) = puller else {
            return Ok(None);
        };
        let passing = all.entry(channel.to_owned()).or_default();
        // It comes again: its connection of before is lost.
        passing.fed.retain(|it| {
            let is_other = it.node != puller.node;
            if !is_other {
                it.end();
            }
            is_other
        });
        let open = passing.fed.iter().map(|it| self.fed_node(it));
        let (addresses, nodes): (Vec<_>, Vec<_>) = open.unzip();
        match answer_pull(puller, &nodes, self.config.pulls_max) {
            PullAnswer::Feed => {}
            PullAnswer::Full => return Err(NotFed::Full),
            PullAnswer::SendOn(to) => {
                let node = &passing.fed[to].node;
                let address = addresses[to].as_deref().unwrap_or_default();
                info!(
                    "channel {channel}: node {} is sent on to node {node}",
                    puller.node
                );
                self.stats.pulls_sent_on.fetch_add(1, Ordering::Relaxed);
                return Err(NotFed::SentOn(sent_on_url(channel, node, address)));
            }
        }
        let fed = Arc::new(Fed {
            address: self.address_of(&puller.node).map(|(address, _)| address),
            node: puller.node.clone(),
            is_over: AtomicBool::new(false),
            waker: Mutex::default(),
        });
        passing.fed.push(Arc::clone(&fed));
        self.stats.pulls_fed.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Feed {
            member: Arc::clone(self),
            channel: channel.to_owned(),
            fed,
        }))
    }

    /// This node looks for a source of the channel: from now on it feeds nobody, and lets those go
    /// whom it does.
    pub(crate) fn pull(self: &Arc<Self>, channel: &str) -> NodePull {
        let mut all = self.feeding.lock();
        let passing = all.entry(channel.to_owned()).or_default();
        passing.source = Source::Asked;
        passing.end_all();
        NodePull {
            member: Arc::clone(self),
            channel: channel.to_owned(),
            has_begun: false,
        }
    }

    /// Lets nodes go that this one feeds with what it takes from others, if it drains: they find
    /// another, and this one is free once its viewers have gone. What it receives itself they can
    /// have from no other.
    pub(crate) fn let_go_if_draining(&self) {
        if self.load().0.accepts {
            return;
        }
        for passing in self.feeding.lock().values() {
            if matches!(passing.source, Source::Node(..)) {
                passing.end_all();
            }
        }
    }

    /// What passes through here of that channel.
    pub(crate) fn through_here(&self, channel: &str) -> ThroughHere {
        let all = self.feeding.lock();
        let Some(passing) = all.get(channel) else {
            return ThroughHere::default();
        };
        ThroughHere {
            source: match &passing.source {
                Source::Node(node, _) => Some(node.clone()),
                Source::None | Source::Asked => None,
            },
            fed: passing.fed.len(),
        }
    }

    /// Where others ask a node that is fed, and whether they may.
    fn fed_node(&self, fed: &Fed) -> (Option<String>, FedNode) {
        let known = self.address_of(&fed.node);
        // Without the registry all is as it was.
        let accepts = known.as_ref().is_none_or(|(_, accepts)| *accepts);
        let address = known.map(|(address, _)| address);
        let address = address.or_else(|| fed.address.clone());
        let node = FedNode {
            node: Key::of(&fed.node),
            is_open: accepts && address.is_some(),
        };
        (address, node)
    }

    /// Where a node serves RTSP, and whether it takes sessions.
    fn address_of(&self, node: &str) -> Option<(String, bool)> {
        let view = self.view()?;
        let entries = &view.entries;
        let at = entries.binary_search_by(|it| it.node.as_str().cmp(node));
        let entry = entries.get(at.ok()?)?;
        Some((entry.addresses.rtsp.clone()?, entry.accepts))
    }
}

impl Feeding {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Passing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passing {
    fn end_all(&self) {
        self.fed.iter().for_each(|it| it.end());
    }

    const fn is_needed(&self) -> bool {
        !matches!(self.source, Source::None) || !self.fed.is_empty()
    }
}

impl Fed {
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(waker) = lock(&self.waker).take() {
            waker.wake();
        }
    }
}

impl Feed {
    /// Whether it is of that channel.
    pub(crate) fn is_of(&self, channel: &str) -> bool {
        self.channel == channel
    }

    /// Whether the node is to be let go; if not, the task is woken once it is.
    pub(crate) fn is_over(&self, context: Option<&Context<'_>>) -> bool {
        if let Some(context) = context {
            *lock(&self.fed.waker) = Some(context.waker().clone());
        }
        self.fed.is_over.load(Ordering::Acquire)
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut all = self.member.feeding.lock();
        if let Some(passing) = all.get_mut(&self.channel) {
            passing.fed.retain(|it| !Arc::ptr_eq(it, &self.fed));
            if !passing.is_needed() {
                all.remove(&self.channel);
            }
        }
        let counted = &self.member.stats.pulls_fed;
        counted.fetch_sub(1, Ordering::Relaxed);
    }
}

impl NodePull {
    /// Whether nobody is fed any more, so that a source may be asked for.
    pub(crate) fn is_alone(&self) -> bool {
        let all = self.member.feeding.lock();
        all.get(&self.channel).is_none_or(|it| it.fed.is_empty())
    }

    /// That node feeds this one, under that lease, until this is dropped; others may be fed.
    pub(crate) fn begin(&mut self, node: &str, lease: Token) {
        let mut all = self.member.feeding.lock();
        let passing = all.entry(self.channel.clone()).or_default();
        passing.source = Source::Node(node.to_owned(), lease);
        if !std::mem::replace(&mut self.has_begun, true) {
            let counted = &self.member.stats.channels_pulled;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for NodePull {
    fn drop(&mut self) {
        let mut all = self.member.feeding.lock();
        if let Some(passing) = all.get_mut(&self.channel) {
            passing.source = Source::None;
            passing.end_all();
            if !passing.is_needed() {
                all.remove(&self.channel);
            }
        }
        if self.has_begun {
            let counted = &self.member.stats.channels_pulled;
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use onrush_wire::route::{LeaseAnswer, LeaseRequest};

    use super::super::tests::{member, other};
    use super::*;

    const CHANNEL: &str = "live/cam";

    fn puller(node: &str) -> Puller {
        Puller {
            node: node.to_owned(),
            avoided: Vec::new(),
        }
    }

    /// A node that receives the channel by lease 7 and feeds one other at the most.
    fn root() -> (Arc<ClusterMember>, super::super::ChannelClaim) {
        let member = member();
        member.told(vec![other("a"), other("c"), other("d")], Vec::new());
        member.lease_registry(1, std::time::Duration::from_secs(60));
        let claim = member.claim(CHANNEL).unwrap();
        let request = member.next_lease_request().unwrap();
        assert!(matches!(request, LeaseRequest::Create(_)));
        let answer: LeaseAnswer = Ok(7);
        member.lease_answer(&request, answer);
        (member, claim)
    }

    fn refused(answer: Result<Option<Feed>, NotFed>) -> NotFed {
        answer.err().expect("it is not fed")
    }

    #[test]
    fn one_more_than_may_be_fed_is_sent_on() {
        let (member, _claim) = root();
        assert_eq!(
            refused(member.feed(CHANNEL, 6, Some(&puller("a")))),
            NotFed::NotHere
        );
        assert_eq!(
            refused(member.feed(CHANNEL, 7, Some(&puller("b")))),
            NotFed::NotHere
        );
        let first = member.feed(CHANNEL, 7, Some(&puller("a"))).ok().unwrap();
        let sent_on = NotFed::SentOn("rtsp://a.example:8554/live/cam?node=a".to_owned());
        assert_eq!(
            refused(member.feed(CHANNEL, 7, Some(&puller("c")))),
            sent_on
        );
        let avoids = Puller {
            avoided: vec!["a".to_owned()],
            ..puller("c")
        };
        assert_eq!(
            refused(member.feed(CHANNEL, 7, Some(&avoids))),
            NotFed::Full
        );
        // A node of a version before says nothing of itself.
        assert!(member.feed(CHANNEL, 7, None).ok().unwrap().is_none());
        assert_eq!(member.through_here(CHANNEL).fed, 1);
        // It comes again before its first connection is noticed to be lost.
        let again = member.feed(CHANNEL, 7, Some(&puller("a"))).ok().unwrap();
        assert!(first.as_ref().unwrap().is_over(None));
        drop(first);
        assert_eq!(member.through_here(CHANNEL).fed, 1);
        drop(again);
        assert_eq!(member.stats.pulls_fed.load(Ordering::Relaxed), 0);
        assert!(member.feed(CHANNEL, 7, Some(&puller("c"))).is_ok());
        assert!(member.feeding.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn who_has_no_source_feeds_nobody() {
        let member = member();
        let asks = puller("a");
        let asked = || member.feed(CHANNEL, 7, Some(&asks));
        assert_eq!(refused(asked()), NotFed::NotHere);
        let mut pull = member.pull(CHANNEL);
        assert_eq!(refused(asked()), NotFed::NotHere);
        pull.begin("d", 7);
        assert_eq!(member.through_here(CHANNEL).source.as_deref(), Some("d"));
        let feed = asked().ok().unwrap().unwrap();
        assert_eq!(
            refused(member.feed(CHANNEL, 6, Some(&asks))),
            NotFed::NotHere
        );
        assert_eq!(refused(member.feed(CHANNEL, 7, None)), NotFed::NotHere);
        drop(pull);
        assert!(feed.is_over(None), "its source has gone");
        let pull = member.pull(CHANNEL);
        assert!(
            !pull.is_alone(),
            "nothing is asked for before it has been let go"
        );
        drop(feed);
        assert!(pull.is_alone());
        drop(pull);
        assert_eq!(member.stats.channels_pulled.load(Ordering::Relaxed), 0);
        assert!(member.feeding.lock().is_empty(), "nothing is kept");
    }

    #[test]
    fn a_node_that_drains_is_sent_nobody() {
        let (member, _claim) = root();
        let _fed = member.feed(CHANNEL, 7, Some(&puller("a"))).ok().unwrap();
        let mut drains = (*other("a")).clone();
        drains.accepts = false;
        member.told(vec![Arc::new(drains), other("c")], Vec::new());
        assert_eq!(
            refused(member.feed(CHANNEL, 7, Some(&puller("c")))),
            NotFed::Full
        );
        // Without the registry nobody is known, and all is as it was.
        member.told(Vec::new(), Vec::new());
        let answer = refused(member.feed(CHANNEL, 7, Some(&puller("c"))));
        assert!(matches!(answer, NotFed::SentOn(_)), "{answer:?}");
    }
}
