//! From whom a node takes a channel that another one receives: a tree of pulls that grows by load.
//!
//! Whoever wants a channel asks the node that receives it, the root. A node feeds so many others
//! and no more; one that feeds so many already sends who asks on to one of these ([`answer_pull`]),
//! which may do the same. So only nodes that have the channel anyway carry it, nobody knows the
//! tree as a whole, and all of it is made of what each node knows of itself.
//!
//! There is no loop, because a node keeps two rules: it feeds others only while it is the root or
//! is fed itself, and it lets all go whom it feeds before it asks for a source. So whoever is given
//! a source feeds nobody at that moment, and a new pull closes no circle. The price is that all
//! below a node that goes ask the root again; the way down is short.

use super::Key;
use super::entry::{is_address, is_node_name};

/// Nodes that one node feeds of one channel, where nothing else is said.
pub const PULLS_DEFAULT: u16 = 8;

/// The most that it can be told to feed.
pub const PULLS_MAX: u16 = 256;

/// Nodes that a node asks for a channel, one after the other: by then it has come too far down.
pub const PULL_STEPS_MAX: usize = 16;

/// Nodes that a node does not want to be sent to because it could not take the channel from them.
pub const AVOIDED_MAX: usize = 8;

/// A node that asks another for a channel, as its URL says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Puller {
    /// Its name.
    pub node: String,
    /// Nodes that it is not to be sent on to; [`AVOIDED_MAX`] at the most.
    pub avoided: Vec<String>,
}

/// A node that is fed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FedNode {
    /// Its name.
    pub node: Key,
    /// Whether others may be sent on to it.
    pub is_open: bool,
}

/// What a node answers another that asks it for a channel which it has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PullAnswer {
    /// It is fed.
    Feed,
    /// It is to ask that one of those who are fed.
    SendOn(usize),
    /// There is no room, and nobody to send it to.
    Full,
}

/// What to answer `puller`, if these are fed now and `pulls_max` may be.
///
/// Of those who are fed it is sent to the one that it wants most ([`Key::score`]): many who ask are
/// spread alike, and one that asks again comes to the same as long as that is there.
#[must_use]
pub fn answer_pull(puller: &Puller, fed: &[FedNode], pulls_max: usize) -> PullAnswer {
    let own = Key::of(&puller.node);
    if fed.len() < pulls_max {
        return PullAnswer::Feed;
    }
    let avoided: Vec<_> = puller.avoided.iter().map(|it| Key::of(it)).collect();
    let nodes = fed.iter().enumerate();
    let open = nodes.filter(|(_, it)| it.is_open && it.node != own && !avoided.contains(&it.node));
    let wants = |it: &FedNode| own.score(1.0, it.node);
    let most = open.max_by(|(_, a), (_, b)| wants(a).total_cmp(&wants(b)));
    most.map_or(PullAnswer::Full, |(at, _)| PullAnswer::SendOn(at))
}

impl Puller {
    /// Who asks by that URL, if it is a node that says so.
    #[must_use]
    pub fn of(uri: &str) -> Option<Self> {
        let node = parameter(uri, PULLER).filter(|it| is_node_name(it))?;
        let avoided = parameter(uri, AVOIDED).unwrap_or_default().split(',');
        let avoided = avoided.filter(|it| is_node_name(it)).map(str::to_owned);
        Some(Self {
            node: node.to_owned(),
            avoided: avoided.take(AVOIDED_MAX).collect(),
        })
    }

    /// A node could not take the channel from that one: it does not ask it again, for as long as
    /// there are not too many others.
    pub fn avoid(&mut self, node: &str) {
        self.avoided.retain(|it| it != node);
        if self.avoided.len() >= AVOIDED_MAX {
            self.avoided.remove(0);
        }
        self.avoided.push(node.to_owned());
    }

    /// What stands in the query of a URL that it asks.
    #[must_use]
    pub fn query(&self) -> String {
        let node = &self.node;
        match self.avoided.join(",") {
            avoided if avoided.is_empty() => format!("{PULLER}={node}"),
            avoided => format!("{PULLER}={node}&{AVOIDED}={avoided}"),
        }
    }
}

/// The URL that a node is answered which is sent on to that one, for the channel of that path.
#[must_use]
pub fn sent_on_url(path: &str, node: &str, address: &str) -> String {
    format!("rtsp://{address}/{path}?{NODE}={node}")
}

/// The node that such an answer sends on to: its name and its address.
#[must_use]
pub fn sent_on_to(location: &str) -> Option<(&str, &str)> {
    let node = parameter(location, NODE).filter(|it| is_node_name(it))?;
    let (address, _) = location.strip_prefix("rtsp://")?.split_once('/')?;
    is_address(address).then_some((node, address))
}

fn parameter<'a>(uri: &'a str, name: &str) -> Option<&'a str> {
    let (_, query) = uri.split_once('?')?;
    let mut parameters = query.split('&');
    parameters.find_map(|it| it.strip_prefix(name)?.strip_prefix('='))
}

/// The parameter that names the node which asks.
const PULLER: &str = "puller";

/// The one of the nodes that it avoids, with commas between.
const AVOIDED: &str = "avoid";

/// The one that names the node which is asked, where somebody is sent on to it.
const NODE: &str = "node";

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn puller(node: &str, avoided: &[&str]) -> Puller {
        Puller {
            node: node.to_owned(),
            avoided: avoided.iter().map(|&it| it.to_owned()).collect(),
        }
    }

    fn fed(nodes: &[&str]) -> Vec<FedNode> {
        let fed = |node: &&str| FedNode {
            node: Key::of(node),
            is_open: true,
        };
        nodes.iter().map(fed).collect()
    }

    #[test]
    fn who_asks_is_fed_or_sent_on_or_refused() {
        let asks = puller("a", &[]);
        assert_eq!(answer_pull(&asks, &fed(&["b"]), 2), PullAnswer::Feed);
        let mut others = fed(&["b", "c"]);
        let PullAnswer::SendOn(first) = answer_pull(&asks, &others, 2) else {
            panic!("two are fed");
        };
        let name = ["b", "c"][first];
        let second = PullAnswer::SendOn(1 - first);
        assert_eq!(answer_pull(&puller("a", &[name]), &others, 2), second);
        others[first].is_open = false;
        assert_eq!(answer_pull(&asks, &others, 2), second);
        let neither = puller("a", &["b", "c"]);
        assert_eq!(answer_pull(&neither, &others, 2), PullAnswer::Full);
        // Never to itself.
        assert_eq!(answer_pull(&asks, &fed(&["a"]), 1), PullAnswer::Full);
    }

    #[test]
    fn urls_name_who_asks_and_whom_to_ask() {
        let mut asks = puller("media-1.a", &[]);
        let url = |asks: &Puller| format!("rtsp://h:1/live/cam?lease=7&{}", asks.query());
        assert_eq!(Puller::of(&url(&asks)), Some(asks.clone()));
        for number in 0..AVOIDED_MAX + 2 {
            asks.avoid(&format!("n{number}"));
        }
        asks.avoid("n5");
        assert_eq!(asks.avoided.len(), AVOIDED_MAX);
        assert_eq!(asks.avoided[0], "n2");
        assert_eq!(asks.avoided.last().unwrap(), "n5");
        assert_eq!(Puller::of(&url(&asks)), Some(asks));
        for url in ["rtsp://h/a", "rtsp://h/a?puller=", "rtsp://h/a?puller=a b"] {
            assert_eq!(Puller::of(url), None, "{url}");
        }
        let location = sent_on_url("live/cam", "node-2", "[2001:db8::7]:8554");
        assert_eq!(
            sent_on_to(&location),
            Some(("node-2", "[2001:db8::7]:8554"))
        );
        for location in [
            "rtsp://h:1/a",
            "rtsp://u@h:1/a?node=b",
            "http://h:1/a?node=b",
        ] {
            assert_eq!(sent_on_to(location), None, "{location}");
        }
    }

    /// Nodes as they feed each other: node 0 receives the channel.
    struct Network {
        pulls_max: usize,
        /// Whom each feeds, as it thinks itself: one that has gone may still be among them.
        feeds: BTreeMap<usize, Vec<usize>>,
        source: BTreeMap<usize, usize>,
        wants: BTreeMap<usize, Puller>,
    }

    impl Network {
        fn new(pulls_max: usize) -> Self {
            Self {
                pulls_max,
                feeds: BTreeMap::new(),
                source: BTreeMap::new(),
                wants: BTreeMap::new(),
            }
        }

        fn join(&mut self, node: usize) {
            let asks = puller(&format!("node-{node}"), &[]);
            self.wants.entry(node).or_insert(asks);
        }

        /// It goes; whether its source is told is said by `is_told`.
        fn leave(&mut self, node: usize, is_told: bool) {
            self.wants.remove(&node);
            if let Some(source) = self.source.remove(&node)
                && is_told
            {
                self.forget(source, node);
            }
            self.let_go(node);
        }

        fn forget(&mut self, source: usize, node: usize) {
            let fed = self.feeds.entry(source).or_default();
            fed.retain(|it| *it != node);
        }

        /// All whom it feeds lose their source, and let go whom they feed.
        fn let_go(&mut self, node: usize) {
            for fed in self.feeds.remove(&node).unwrap_or_default() {
                if self.source.get(&fed) == Some(&node) {
                    self.source.remove(&fed);
                    self.let_go(fed);
                }
            }
        }

        /// Connections that are closed at the other end are noticed.
        fn notice(&mut self) {
            for (node, fed) in &mut self.feeds {
                fed.retain(|it| self.source.get(it) == Some(node));
            }
        }

        /// Asks from the root on; whether it is fed now.
        fn ask(&mut self, node: usize) -> bool {
            let Some(mut asks) = self.wants.get(&node).cloned() else {
                return false;
            };
            if self.source.contains_key(&node) {
                return true;
            }
            assert!(!self.feeds.contains_key(&node), "who asks feeds nobody");
            let mut at = 0;
            for _ in 0..PULL_STEPS_MAX {
                let has_it = at == 0 || self.source.contains_key(&at);
                let own = self.feeds.entry(at).or_default();
                own.retain(|it| *it != node);
                let fed: Vec<_> = own
                    .iter()
                    .map(|it| FedNode {
                        node: Key::of(&format!("node-{it}")),
                        is_open: true,
                    })
                    .collect();
                match answer_pull(&asks, &fed, self.pulls_max) {
                    PullAnswer::Feed if has_it => {
                        own.push(node);
                        self.source.insert(node, at);
                        asks.avoided.clear();
                        self.wants.insert(node, asks);
                        return true;
                    }
                    PullAnswer::SendOn(next) if has_it => at = own[next],
                    _ => break,
                }
            }
            if !self.source.contains_key(&at) && at != 0 {
                self.feeds.remove(&at);
            }
            match at {
                0 => asks.avoided.clear(),
                _ => asks.avoid(&format!("node-{at}")),
            }
            self.wants.insert(node, asks);
            false
        }

        fn depth(&self, node: usize) -> usize {
            let mut seen = BTreeSet::new();
            let mut at = node;
            while let Some(source) = self.source.get(&at) {
                assert!(seen.insert(at), "a loop at node {at}");
                at = *source;
            }
            seen.len()
        }

        fn check(&self) {
            for (node, fed) in &self.feeds {
                assert!(fed.len() <= self.pulls_max, "node {node} feeds {fed:?}");
            }
            for (node, source) in &self.source {
                assert!(self.feeds[source].contains(node));
                assert!(self.depth(*node) <= PULL_STEPS_MAX);
                let mut at = *node;
                while let Some(source) = self.source.get(&at) {
                    at = *source;
                }
                assert_eq!(at, 0, "node {node} is fed by what has nothing");
            }
        }

        fn settle(&mut self) {
            for _ in 0..40 {
                self.notice();
                let all: Vec<_> = self.wants.keys().copied().collect();
                let fed = all.iter().filter(|node| self.ask(**node)).count();
                if fed == all.len() {
                    return;
                }
            }
            panic!("some get nothing");
        }
    }

    proptest! {
        /// Nodes come and go in any order, with notice and without, and some who lose their source
        /// ask while others have not noticed.
        #[test]
        fn all_are_fed_by_a_tree_whatever_comes_and_goes(
            pulls_max in 2..9_usize,
            events in prop::collection::vec((0..5_u8, 1..120_usize), 1..400),
        ) {
            let mut network = Network::new(pulls_max);
            for (what, node) in events {
                match what {
                    0 => network.join(node),
                    1 => network.leave(node, true),
                    2 => network.leave(node, false),
                    3 => network.notice(),
                    _ => {
                        network.join(node);
                        network.ask(node);
                    }
                }
                network.check();
            }
            network.settle();
            network.check();
        }
    }

    #[test]
    fn a_thousand_nodes_are_near_the_root() {
        for (pulls_max, depth_max) in [(2, 14), (4, 8), (8, 5), (32, 3)] {
            let mut network = Network::new(pulls_max);
            for node in 1..1000 {
                network.join(node);
                assert!(network.ask(node));
            }
            network.check();
            let deepest = (1..1000).map(|node| network.depth(node)).max().unwrap();
            assert!(deepest <= depth_max, "{pulls_max}: {deepest}");
            // One next to the root goes: all come back.
            let gone = network.feeds[&0][0];
            network.leave(gone, true);
            network.settle();
            network.check();
            let deepest = network.source.keys().map(|node| network.depth(*node)).max();
            assert!(
                deepest.unwrap() <= depth_max + 1,
                "{pulls_max}: {deepest:?}"
            );
        }
    }
}
