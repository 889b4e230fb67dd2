//! A channel that is pulled from another node of the cluster: from the one that receives it, or one
//! that this sends on to because it feeds as many as it may (`onrush_wire::route::relay`).
//!
//! Each attempt begins at the node that receives the channel. Before it begins, all nodes are let
//! go that take the channel from here, so that no two of them can ever feed each other.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use onrush_wire::route::channel::pull_url;
use onrush_wire::route::relay::{PULL_STEPS_MAX, sent_on_to};
use onrush_wire::route::{ChannelEntry, Follow, Puller, Trace};
use tracing::info;

use super::super::pull_client::PullError;
use super::{Asked, Pulling, Source, ask};
use crate::channels::pull_url::PullUrl;
use crate::cluster::{ChannelClaim, ClusterMember};
use crate::random::random;

/// Where a channel is pulled from.
pub(super) struct Origin {
    pub(super) url: PullUrl,
    /// The lease of the node that receives it, if that is another one.
    pub(super) node: Option<Arc<ChannelEntry>>,
    /// This node's, if it is the source itself.
    claim: Option<ChannelClaim>,
}

/// What is remembered from one attempt to the next.
#[derive(Default)]
pub(super) struct NodeWay {
    /// Who received it last, as far as was known.
    root: Option<Arc<ChannelEntry>>,
    /// Nodes that could not be had it from.
    avoided: Vec<String>,
}

impl NodeWay {
    /// Whether the last attempt was to take it from another node.
    pub(super) const fn is_of_nodes(&self) -> bool {
        self.root.is_some()
    }
}

impl Pulling {
    /// Where to pull from now.
    pub(super) fn origin(&self, way: &mut NodeWay) -> Result<Origin, PullError> {
        let claim = self.claim();
        let held_by = claim.as_ref().and_then(ChannelClaim::refused);
        let last = way.root.take();
        let node = match (&self.cluster, &self.config, held_by) {
            (Some(cluster), None, _) => {
                let holder = cluster.holder_of(&self.path);
                // While the registry is gone it is where it was.
                let last = last.filter(|it| matches!(cluster.follow(it), Follow::GoOn));
                Some(holder.or(last).ok_or(PullError::NoNode)?)
            }
            (Some(_), Some(_), Some(holder)) => Some(Arc::new(holder)),
            _ => None,
        };
        way.root.clone_from(&node);
        let url = match (&node, &self.config) {
            (None, Some(config)) => config.url.clone(),
            (None, None) => return Err(PullError::NoNode),
            (Some(node), _) => self.url_at(node, &node.rtsp, &[])?,
        };
        Ok(Origin {
            url,
            claim: claim.filter(|_| node.is_none()),
            node,
        })
    }

    /// Where the node at that address has it, signed where nodes have keys of URLs.
    fn url_at(
        &self,
        root: &ChannelEntry,
        address: &str,
        avoided: &[String],
    ) -> Result<PullUrl, PullError> {
        let cluster = self.cluster.as_ref().ok_or(PullError::NoNode)?;
        let trace = Trace::new(u64::from_ne_bytes(random()));
        let puller = Puller {
            node: cluster.config().node.clone(),
            avoided: avoided.to_vec(),
        };
        let url = pull_url(root, address, &puller, trace);
        let url = PullUrl::of_node(&url).map_err(|_| PullError::NoNode)?;
        Ok(match cluster.sign(&root.channel) {
            Some(signature) => url.signed_with(signature),
            None => url,
        })
    }

    /// The claim of a channel whose source is configured, once the registry has answered.
    fn claim(&self) -> Option<ChannelClaim> {
        let claim = self.cluster.as_ref().filter(|_| self.config.is_some());
        let claim = claim?.claim(&self.path)?;
        let give_up = Instant::now() + CLAIM_TIME_MAX;
        while claim.is_open() && Instant::now() < give_up && !self.is_stopping() {
            thread::sleep(LOOK_EVERY);
        }
        Some(claim)
    }

    /// Pulls from a node until nobody watches any more.
    pub(super) fn pull_from_node(
        &self,
        (origin, root): (&Origin, &ChannelEntry),
        way: &mut NodeWay,
        has_begun: &mut bool,
    ) -> Result<(), PullError> {
        let cluster = self.cluster.as_ref().ok_or(PullError::NoNode)?;
        let mut pull = cluster.pull(&self.path);
        let give_up = Instant::now() + LET_GO_TIME_MAX;
        while !pull.is_alone() {
            if Instant::now() >= give_up || self.is_stopping() {
                return Err(PullError::Fed);
            }
            thread::sleep(LOOK_EVERY);
        }
        let mut at = root.node.clone();
        let ended = self.walk(cluster, root, (&mut at, &way.avoided));
        let ended = ended.and_then(|source| {
            way.avoided.clear();
            self.tell_source(&at);
            // Whoever asks from now on is fed as soon as there is something.
            pull.begin(&at, root.token);
            self.pull_from(source, origin, has_begun)
        });
        self.tell_source("");
        let error = match ended {
            Ok(_) => return Ok(()),
            // They are not about that node, but about all.
            Err(error @ (PullError::Elsewhere(_) | PullError::GivenUp(_) | PullError::LetGo)) => {
                return Err(error);
            }
            // The URL says who asks by being signed.
            Err(PullError::NoUser) => PullError::NoKey,
            Err(error) => error,
        };
        // Where no way leads down from the root, those that were avoided may be back.
        if at == root.node {
            way.avoided.clear();
            return Err(error);
        }
        let mut asks = Puller {
            node: String::new(),
            avoided: std::mem::take(&mut way.avoided),
        };
        asks.avoid(&at);
        way.avoided = asks.avoided;
        Err(PullError::AtNode(at, Box::new(error)))
    }

    /// Asks from the root on, until a node has it for this one. `at` is the one that is asked.
    fn walk(
        &self,
        cluster: &ClusterMember,
        root: &ChannelEntry,
        (at, avoided): (&mut String, &[String]),
    ) -> Result<Source, PullError> {
        let mut address = root.rtsp.clone();
        let mut asked = vec![cluster.config().node.clone()];
        for _ in 0..PULL_STEPS_MAX {
            let location = match ask(self.url_at(root, &address, avoided)?)? {
                Asked::Source(source) => return Ok(*source),
                Asked::Moved(location) => location,
            };
            let Some((node, there)) = sent_on_to(&location) else {
                return Err(PullError::Moved(location));
            };
            asked.push(at.clone());
            if asked.iter().any(|it| it == node) {
                return Err(PullError::TooFar);
            }
            info!(
                "channel {}: node {at} sends it on to node {node}",
                self.path
            );
            (*at, address) = (node.to_owned(), there.to_owned());
        }
        Err(PullError::TooFar)
    }

    /// For those who look: the node that it is taken from, or another.
    fn tell_source(&self, node: &str) {
        if self.config.is_none() {
            let source = match node {
                "" => "another node".to_owned(),
                node => format!("node {node}"),
            };
            self.state.set_source(source);
        }
    }

    /// Whether it is to be pulled from there any longer: not where another has the lease.
    pub(super) fn check(&self, origin: &Origin) -> Result<(), PullError> {
        if let Some(holder) = origin.claim.as_ref().and_then(ChannelClaim::refused) {
            return Err(PullError::Elsewhere(holder.node));
        }
        let (Some(cluster), Some(node)) = (&self.cluster, &origin.node) else {
            return Ok(());
        };
        if self.is_here() {
            return Err(PullError::GivenUp(node.node.clone()));
        }
        match cluster.follow(node) {
            Follow::GoOn => Ok(()),
            Follow::Moved(holder) => Err(PullError::Elsewhere(holder.node)),
            Follow::Gone => Err(PullError::GivenUp(node.node.clone())),
        }
    }
}

/// How long the registry's answer about a claim is waited for.
const CLAIM_TIME_MAX: Duration = crate::cluster::CLAIM_TIME_MAX;

/// How long nodes are waited for that took the channel from here until now.
const LET_GO_TIME_MAX: Duration = Duration::from_secs(5);

/// How often is looked for either.
const LOOK_EVERY: Duration = Duration::from_millis(20);
