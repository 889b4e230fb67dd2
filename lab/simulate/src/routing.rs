//! Who is sent where, in three ways.

use std::fmt;

use onrush_wire::route::{Asked, Bounds, Cluster, Decision, Film, Key, Node, Ranking};
use serde::{Deserialize, Serialize};

use crate::Settings;
use crate::audience::Audience;
use crate::script::{film_key, node_key};

/// A way to choose a viewer's node.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The product's: rendezvous hashing, more homes for what is watched more, bounded loads.
    Route,
    /// A film's place on a ring of a hundred points a node; the next node if that one is full.
    Ring,
    /// Whichever node was asked, or any other if that one is full.
    Random,
}

impl Policy {
    /// All of them, the product's first.
    pub const ALL: [Self; 3] = [Self::Route, Self::Ring, Self::Random];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Route => "route",
            Self::Ring => "plain ring",
            Self::Random => "random",
        })
    }
}

/// Where a viewer got to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sent {
    /// The node that serves him, or that he was sent to and that is dead; `None` if all are full.
    pub(crate) to: Option<usize>,
    pub(crate) redirects: u32,
}

/// What a policy sees of the nodes.
#[derive(Debug)]
pub(crate) struct Seen<'a> {
    /// What each plays at this moment, in viewers. A node may use its own alone.
    pub(crate) viewers: &'a [u32],
    /// Which nodes are dead, known or not.
    pub(crate) dead: &'a [bool],
}

/// A policy at work.
#[derive(Debug)]
pub(crate) enum Routing {
    Route(Box<ByRoute>),
    Ring(ByRing),
    Random { node_viewers: u32 },
}

impl Routing {
    pub(crate) fn new(policy: Policy, settings: &Settings) -> Self {
        match policy {
            Policy::Route => Self::Route(Box::new(ByRoute::new(settings))),
            Policy::Ring => Self::Ring(ByRing::new(settings)),
            Policy::Random => Self::Random {
                node_viewers: settings.node_viewers(),
            },
        }
    }

    /// Whether nodes have to know how much the others play.
    pub(crate) const fn wants_loads(&self) -> bool {
        matches!(self, Self::Route(_))
    }

    /// Takes what nodes told: of each, by its place, what it plays; and what is played of each
    /// film.
    pub(crate) fn told(&mut self, viewers: &[(usize, u32)], demand: &[u32]) {
        if let Self::Route(route) = self {
            route.told(viewers, demand);
        }
    }

    /// A node's death is known.
    pub(crate) fn gone(&mut self, node: usize) {
        match self {
            Self::Route(route) => route.gone(node),
            Self::Ring(ring) => ring.points.retain(|&(_, of)| of != node),
            Self::Random { .. } => (),
        }
    }

    /// Where somebody gets to who asks a living node for a film.
    pub(crate) fn send(
        &mut self,
        asked: usize,
        film: u32,
        seen: &Seen<'_>,
        audience: &mut Audience,
    ) -> Sent {
        match self {
            Self::Route(route) => route.send(asked, film, seen, audience),
            Self::Ring(ring) => ring.send(asked, film, seen),
            Self::Random { node_viewers } => {
                let has_room = |&node: &usize| seen.viewers[node] < *node_viewers;
                let others = std::iter::repeat_with(|| audience.one_of(seen.viewers.len()));
                let tries = [asked].into_iter().chain(others).take(20);
                let to = tries.filter(|&node| !seen.dead[node]).find(has_room);
                Sent {
                    to,
                    redirects: to.is_some_and(|to| to != asked).into(),
                }
            }
        }
    }
}

/// The product's code, and what its nodes know.
#[derive(Debug)]
pub(crate) struct ByRoute {
    cluster: Cluster,
    films: Box<[Key]>,
    rankings: Box<[Option<Ranking>]>,
    /// What is told of a film's demand, in viewers; of most nothing.
    demand: Box<[u32]>,
    rate_bps: u64,
}

/// A node tells of the films that are this part of what it plays, or more: a hundred at the most.
const TOLD_PART: f64 = 0.01;
/// Nodes that are kept of a film's ranking.
const DEPTH: usize = 8;

impl ByRoute {
    fn new(settings: &Settings) -> Self {
        let node = |place: u32| Node {
            key: node_key(place),
            capacity_bps: settings.node_bps,
            load_bps: 0,
            accepts: true,
        };
        let nodes = (0..settings.nodes).map(node).collect();
        let films = settings.films as usize;
        Self {
            cluster: Cluster::new(nodes, Bounds::default()),
            films: (0..settings.films).map(film_key).collect(),
            rankings: vec![None; films].into(),
            demand: vec![0; films].into(),
            rate_bps: settings.rate_bps,
        }
    }

    fn told(&mut self, viewers: &[(usize, u32)], demand: &[u32]) {
        let rate_bps = self.rate_bps;
        self.cluster.told(|nodes| {
            for &(node, viewers) in viewers {
                nodes[node].load_bps = u64::from(viewers) * rate_bps;
            }
        });
        let all: u64 = demand.iter().map(|&viewers| u64::from(viewers)).sum();
        let nodes = self.cluster.nodes().iter().filter(|node| node.accepts);
        let told_from = told_from(all, nodes.count());
        for (told, &now) in self.demand.iter_mut().zip(demand) {
            *told = if now < told_from { 0 } else { now };
        }
    }

    fn gone(&mut self, node: usize) {
        self.cluster.told(|nodes| nodes[node].accepts = false);
        self.rankings.fill(None);
    }

    fn send(&mut self, asked: usize, film: u32, seen: &Seen<'_>, audience: &mut Audience) -> Sent {
        let place = film as usize;
        let film = Film {
            key: self.films[place],
            demand_bps: u64::from(self.demand[place]) * self.rate_bps,
        };
        let homes = self.cluster.homes(film);
        let kept = self.rankings[place].take();
        let ranking = kept
            .filter(|ranking| ranking.depth() >= homes.min(seen.viewers.len()))
            .unwrap_or_else(|| self.cluster.ranking(film.key, DEPTH.max(homes * 2)));
        let (mut here, mut redirects) = (asked, 0_u8);
        let to = loop {
            let of = Asked {
                node: Some(here),
                load_bps: u64::from(seen.viewers[here]) * self.rate_bps,
                redirects,
                draw: audience.number(),
            };
            match self.cluster.decide(of, film, &ranking) {
                Decision::Here => break Some(here),
                Decision::Full => break None,
                Decision::Redirect(there) => (here, redirects) = (there, redirects + 1),
            }
            if seen.dead[here] {
                break Some(here);
            }
        };
        self.rankings[place] = Some(ranking);
        Sent {
            to,
            redirects: redirects.into(),
        }
    }
}

/// A ring of consistent hashing (Karger and others 1997).
#[derive(Debug)]
pub(crate) struct ByRing {
    /// In order.
    points: Vec<(Key, usize)>,
    films: Box<[Key]>,
    node_viewers: u32,
}

const POINTS: u32 = 100;

impl ByRing {
    fn new(settings: &Settings) -> Self {
        let of_node = |node: u32| {
            let point = move |i| (Key::of(&format!("node-{node}/{i}")), node as usize);
            (0..POINTS).map(point)
        };
        let mut points: Vec<_> = (0..settings.nodes).flat_map(of_node).collect();
        points.sort_unstable();
        Self {
            points,
            films: (0..settings.films).map(film_key).collect(),
            node_viewers: settings.node_viewers(),
        }
    }

    fn send(&self, asked: usize, film: u32, seen: &Seen<'_>) -> Sent {
        let film = self.films[film as usize];
        let first = self.points.partition_point(|&(point, _)| point < film);
        let (before, after) = self.points.split_at(first);
        let mut turn = after.iter().chain(before);
        let has_room = |node: usize| seen.dead[node] || seen.viewers[node] < self.node_viewers;
        let to = turn
            .find(|&&(_, node)| has_room(node))
            .map(|&(_, node)| node);
        Sent {
            to,
            redirects: to.is_some_and(|to| to != asked).into(),
        }
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a count"
)]
fn told_from(viewers: u64, nodes: usize) -> u32 {
    (viewers as f64 / nodes.max(1) as f64 * TOLD_PART)
        .ceil()
        .max(1.0) as u32
}
