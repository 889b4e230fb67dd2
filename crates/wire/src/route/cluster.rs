//! What a node knows of all nodes, and where it sends a viewer.

use super::Key;

/// One node, as it told the registry last. Rates are of the streams that it plays, in bits a
/// second, by its own admission's account.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Of its name.
    pub key: Key,
    /// What it can hold.
    pub capacity_bps: u64,
    /// What it holds.
    pub load_bps: u64,
    /// Whether it takes new viewers: not while it drains.
    pub accepts: bool,
}

/// What a viewer wants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Film {
    /// Of its path.
    pub key: Key,
    /// What all nodes play of it now, in bits a second; 0 where nobody told, which is true of
    /// nearly all films.
    pub demand_bps: u64,
}

/// How evenly viewers are spread. The more evenly, the more nodes read the same film.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// A film that is in demand has as many homes as it takes for it to be no more than this part
    /// of what a node plays on average, from above 0 to 1. They share its viewers by the room that
    /// they have, and so even out what all the other films, which have one home each, leave
    /// uneven. A node keeps 1 / `film_part` films more for it at the most.
    pub film_part: f64,
    /// A node that is used by so many times the mean takes no new viewers while others take them;
    /// 1 or more (consistent hashing with bounded loads: Mirrokni, Thorup and Zadimoghaddam 2018).
    pub over_mean: f64,
    /// Nobody is sent elsewhere by the two above while a node is used by less than this part of
    /// what it can hold: a cluster at night keeps its films together.
    pub even_above: f64,
    /// A node that is used by this part takes nobody from others.
    pub full_above: f64,
    /// A viewer who was sent on so often is served where he is, if that node has room at all:
    /// what nodes know of each other may differ.
    pub redirects_max: u8,
}

impl Default for Bounds {
    /// A twentieth a film, 1.1 times the mean, above a tenth, full at 0.95, twice.
    fn default() -> Self {
        Self {
            film_part: 0.05,
            over_mean: 1.1,
            even_above: 0.1,
            full_above: 0.95,
            redirects_max: 2,
        }
    }
}

/// A node that a viewer asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// Its place in the list; `None` for one that the registry does not list (yet).
    pub node: Option<usize>,
    /// What it holds at this moment, in bits a second: it knows better than the registry.
    pub load_bps: u64,
    /// How often the viewer has been sent on before.
    pub redirects: u8,
    /// Drawn for this request alone, any number as likely as any other. Who all send viewers to the
    /// one that had the least to do when it was told last send them there together.
    pub draw: u64,
}

/// The nodes that want a film most, in order.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ranking(Box<[u32]>);

impl Ranking {
    /// How many nodes it names.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.0.len()
    }

    /// Their places in the list.
    pub fn places(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|&node| node as usize)
    }
}

/// Where a viewer is served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// Here.
    Here,
    /// There: the place of a node in the list.
    Redirect(usize),
    /// Nowhere: no node has room, this one included.
    Full,
}

/// All nodes, and what follows from them for every film.
#[derive(Clone, Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
    bounds: Bounds,
    /// What part of all that they can hold nodes use.
    mean: f64,
    /// A node that is used by this or more has no room for new viewers while others have.
    room_below: f64,
    /// What a film needs of nodes before it has one home more, in bits a second.
    home_bps: f64,
}

impl Cluster {
    /// Of nodes in any order; the same for all who have them in the same order.
    #[must_use]
    pub fn new(nodes: Vec<Node>, bounds: Bounds) -> Self {
        let mut cluster = Self {
            nodes,
            bounds,
            mean: 0.0,
            room_below: 0.0,
            home_bps: 0.0,
        };
        cluster.weigh();
        cluster
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Takes what all nodes told since.
    pub fn told(&mut self, change: impl FnOnce(&mut Vec<Node>)) {
        change(&mut self.nodes);
        self.weigh();
    }

    /// The nodes that want it most, the one that wants it most first: `depth` of them, or all that
    /// take viewers.
    ///
    /// Load has no part in it: it can be kept until a node comes, goes or drains.
    #[must_use]
    pub fn ranking(&self, what: Key, depth: usize) -> Ranking {
        let mut scored: Vec<(f64, u32)> = (0..)
            .zip(&self.nodes)
            .filter(|(_, node)| node.accepts && node.capacity_bps > 0)
            .map(|(place, node)| (score(node, what), place))
            .collect();
        let by_score = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if scored.len() > depth {
            scored.select_nth_unstable_by(depth, by_score);
            scored.truncate(depth);
        }
        scored.sort_unstable_by(by_score);
        Ranking(scored.into_iter().map(|(_, place)| place).collect())
    }

    /// Where a node that was asked sends a viewer.
    ///
    /// `ranking` is the film's. It is [`Cluster::homes`] deep at least, or the film has fewer
    /// homes; how much deeper is a matter of time alone.
    #[must_use]
    pub fn decide(&self, asked: Asked, film: Film, ranking: &Ranking) -> Decision {
        let here_has_room = asked
            .node
            .is_none_or(|here| self.used(here, asked.load_bps) < 1.0);
        if asked.redirects >= self.bounds.redirects_max && here_has_room {
            return Decision::Here;
        }
        match self.home(asked, film, ranking) {
            Some(home) if Some(home) == asked.node => Decision::Here,
            Some(home) => Decision::Redirect(home),
            None if here_has_room => Decision::Here,
            None => Decision::Full,
        }
    }

    /// How many homes a film has: more the more of it is watched.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a number of nodes"
    )]
    pub fn homes(&self, film: Film) -> usize {
        if self.home_bps <= 0.0 {
            return 1;
        }
        let homes = (film.demand_bps as f64 / self.home_bps).ceil() as usize;
        homes.clamp(1, self.nodes.len().max(1))
    }

    /// Of the film's homes the one that was asked, or one that is drawn, each as likely as it has
    /// room; if none has room, the node with room that wants it most.
    fn home(&self, asked: Asked, film: Film, ranking: &Ranking) -> Option<usize> {
        let used = |node: usize| {
            let told = self.nodes[node].load_bps;
            let here = Some(node) == asked.node;
            self.used(node, if here { asked.load_bps } else { told })
        };
        let places =
            |ranked: &[u32]| -> Vec<usize> { ranked.iter().map(|&node| node as usize).collect() };
        let has_room = |node: &usize| used(*node) < self.room_below;
        let (homes, next) = ranking.0.split_at(self.homes(film).min(ranking.0.len()));
        // Another home may have less to do by what was told last; not by enough to send for it
        // somebody who has been sent already, or whom a node takes that is not above the mean.
        let stays = |here: &usize| {
            let is_home = homes.iter().any(|&home| home as usize == *here);
            is_home && has_room(here) && (asked.redirects > 0 || used(*here) <= self.mean)
        };
        if let Some(here) = asked.node.filter(stays) {
            return Some(here);
        }
        let rooms = places(homes).into_iter().filter(has_room);
        let room = |node| (self.room_below - used(node)) * self.capacity(node);
        let at_home = drawn(rooms.map(|node| (node, room(node))).collect(), asked.draw);
        let next = || places(next).into_iter().find(has_room);
        let any = || {
            let all = self.ranking(film.key, self.nodes.len());
            places(&all.0).into_iter().find(has_room)
        };
        at_home.or_else(next).or_else(any)
    }

    /// What part of a node is used.
    #[allow(clippy::cast_precision_loss, reason = "a part")]
    fn used(&self, node: usize, load_bps: u64) -> f64 {
        load_bps as f64 / self.capacity(node)
    }

    #[allow(clippy::cast_precision_loss, reason = "a weight")]
    fn capacity(&self, node: usize) -> f64 {
        self.nodes[node].capacity_bps.max(1) as f64
    }

    #[allow(clippy::cast_precision_loss, reason = "rates")]
    fn weigh(&mut self) {
        let taking = || self.nodes.iter().filter(|node| node.accepts);
        let capacity: f64 = taking().map(|node| node.capacity_bps as f64).sum();
        let load: f64 = taking().map(|node| node.load_bps as f64).sum();
        let mean = if capacity > 0.0 { load / capacity } else { 0.0 };
        let Bounds {
            film_part,
            over_mean,
            even_above,
            full_above,
            ..
        } = self.bounds;
        self.room_below = (mean * over_mean).max(even_above).min(full_above);
        let node_bps = capacity / taking().count().max(1) as f64;
        self.home_bps = film_part * node_bps * mean.max(even_above);
        self.mean = mean;
    }
}

/// One of these nodes, each as likely as its weight, which is more than 0.
#[allow(clippy::cast_precision_loss, reason = "a part")]
fn drawn(weighted: Vec<(usize, f64)>, draw: u64) -> Option<usize> {
    let all: f64 = weighted.iter().map(|(_, weight)| weight).sum();
    let mut left = all * (draw as f64 / u64::MAX as f64);
    let last = weighted.last().map(|(node, _)| *node);
    let mut nodes = weighted.into_iter();
    let found = nodes.find(|(_, weight)| {
        left -= weight;
        left <= 0.0
    });
    // Sums round.
    found.map(|(node, _)| node).or(last)
}

#[allow(clippy::cast_precision_loss, reason = "a weight")]
fn score(node: &Node, what: Key) -> f64 {
    node.key.score(node.capacity_bps as f64, what)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    const STREAM: u64 = 4_000_000;

    fn node(i: usize, capacity_streams: u64, load_streams: u64) -> Node {
        Node {
            key: Key::of(&format!("node-{i}")),
            capacity_bps: capacity_streams * STREAM,
            load_bps: load_streams * STREAM,
            accepts: true,
        }
    }

    fn film(i: usize) -> Film {
        Film {
            key: Key::of(&format!("film-{i}.mp4")),
            demand_bps: 0,
        }
    }

    /// Numbers that are the same in each run, and evenly spread.
    fn draw() -> u64 {
        thread_local!(static DRAWN: Cell<u64> = const { Cell::new(0) });
        let step = 0x9e37_79b9_7f4a_7c15;
        DRAWN.replace(DRAWN.get().wrapping_add(step))
    }

    fn idle(nodes: usize) -> Cluster {
        Cluster::new(
            (0..nodes).map(|i| node(i, 1000, 0)).collect(),
            Bounds::default(),
        )
    }

    fn decide(
        cluster: &Cluster,
        node: usize,
        load_bps: u64,
        film: Film,
        redirects: u8,
    ) -> Decision {
        let asked = Asked {
            node: Some(node),
            load_bps,
            redirects,
            draw: draw(),
        };
        cluster.decide(asked, film, &cluster.ranking(film.key, cluster.homes(film)))
    }

    /// Where a viewer ends who asks `first`, if nodes know the same.
    fn served_by(cluster: &Cluster, first: usize, film: Film) -> (Option<usize>, u8) {
        let (mut here, mut redirects) = (first, 0);
        loop {
            let load_bps = cluster.nodes()[here].load_bps;
            match decide(cluster, here, load_bps, film, redirects) {
                Decision::Here => return (Some(here), redirects),
                Decision::Full => return (None, redirects),
                Decision::Redirect(there) => (here, redirects) = (there, redirects + 1),
            }
        }
    }

    #[test]
    fn all_nodes_send_a_film_to_one_home() {
        let cluster = idle(10);
        for i in 0..200 {
            let (home, _) = served_by(&cluster, 0, film(i));
            for first in 1..10 {
                let (there, redirects) = served_by(&cluster, first, film(i));
                assert_eq!(there, home);
                assert!(redirects <= 1);
            }
        }
    }

    #[test]
    fn a_node_that_goes_takes_nothing_from_the_others() {
        let mut cluster = idle(10);
        let before: Vec<_> = (0..500)
            .map(|i| served_by(&cluster, 0, film(i)).0)
            .collect();
        cluster.told(|nodes| nodes[7].accepts = false);
        let mut moved = 0;
        for (i, before) in before.into_iter().enumerate() {
            let after = served_by(&cluster, 0, film(i)).0;
            if before == Some(7) {
                assert_ne!(after, Some(7));
                moved += 1;
            } else {
                assert_eq!(after, before);
            }
        }
        assert!((20..90).contains(&moved), "{moved} of about 50");
    }

    #[test]
    fn a_film_in_demand_has_more_homes() {
        // A twentieth of what a node plays on average is 5 streams; or, if that were less than a
        // tenth of what it can hold, a twentieth of this.
        let cluster = Cluster::new(
            (0..10).map(|i| node(i, 1000, 100)).collect(),
            Bounds::default(),
        );
        let wanted = |streams: u64| {
            cluster.homes(Film {
                demand_bps: streams * STREAM,
                ..film(1)
            })
        };
        assert_eq!([0, 1, 5, 6, 50, 10_000].map(wanted), [1, 1, 1, 2, 10, 10]);
    }

    /// Nodes that all believe the same do not send all of a moment's viewers to one of them.
    #[test]
    fn of_several_homes_each_takes_as_many_as_it_has_room() {
        // Up to 220 or so; and one that is above that, which takes nobody.
        let loads = [100, 160, 210, 300, 230];
        let nodes = (0..).zip(loads).map(|(i, load)| node(i, 1000, load));
        let cluster = Cluster::new(nodes.collect(), Bounds::default());
        let hot = Film {
            demand_bps: 10_000 * STREAM,
            ..film(1)
        };
        assert_eq!(cluster.homes(hot), loads.len());
        let mut sent = [0; 5];
        for _ in 0..10_000 {
            let (there, redirects) = served_by(&cluster, 3, hot);
            assert_eq!(redirects, 1);
            sent[there.unwrap()] += 1;
        }
        let rooms = [120, 60, 10].map(|room| room * 10_000 / 190);
        assert_eq!(sent[3..], [0, 0]);
        for (sent, room) in sent.into_iter().zip(rooms) {
            assert!(i32::abs_diff(sent, room) < 300, "{sent} of {room}");
        }
    }

    #[test]
    fn the_ends_of_what_is_drawn_are_nodes() {
        let of = |draw| drawn(vec![(3, 0.1), (4, 0.2), (5, 0.7)], draw);
        assert_eq!([0, u64::MAX / 5, u64::MAX].map(of), [3, 4, 5].map(Some));
        assert_eq!(drawn(Vec::new(), 7), None);
    }

    #[test]
    fn a_node_above_its_part_sends_viewers_on() {
        let cluster = idle(4);
        let home = served_by(&cluster, 0, film(1)).0.unwrap();
        let mut busy = cluster;
        busy.told(|nodes| {
            for (i, node) in nodes.iter_mut().enumerate() {
                node.load_bps = if i == home { 400 } else { 300 } * STREAM;
            }
        });
        let next = served_by(&busy, home, film(1));
        assert!(
            next.0.is_some_and(|next| next != home) && next.1 == 1,
            "{next:?}"
        );
        // At night it does not: films stay together below a tenth of what a node can hold.
        busy.told(|nodes| nodes.iter_mut().for_each(|node| node.load_bps /= 8));
        assert_eq!(served_by(&busy, home, film(1)), (Some(home), 0));
    }

    #[test]
    fn a_viewer_is_not_sent_round_in_circles() {
        // Each of two nodes believes that the other is the idler one.
        let one = Cluster::new(vec![node(0, 100, 90), node(1, 100, 10)], Bounds::default());
        let two = Cluster::new(vec![node(0, 100, 10), node(1, 100, 90)], Bounds::default());
        let wanted = film(1);
        let mut here = 0;
        let mut redirects = 0;
        while let Decision::Redirect(there) = match here {
            0 => decide(&one, 0, 90 * STREAM, wanted, redirects),
            _ => decide(&two, 1, 90 * STREAM, wanted, redirects),
        } {
            here = there;
            redirects += 1;
            assert!(redirects <= Bounds::default().redirects_max);
        }
    }

    #[test]
    fn full_nodes_refuse_and_a_single_one_needs_nobody() {
        let full = Cluster::new(
            vec![node(0, 100, 100), node(1, 100, 100)],
            Bounds::default(),
        );
        assert_eq!(decide(&full, 0, 100 * STREAM, film(1), 0), Decision::Full);
        assert_eq!(decide(&full, 0, 99 * STREAM, film(1), 0), Decision::Here);
        let alone = Cluster::new(Vec::new(), Bounds::default());
        let asked = Asked {
            node: None,
            load_bps: 0,
            redirects: 0,
            draw: 0,
        };
        let ranking = alone.ranking(film(1).key, 1);
        assert_eq!(alone.decide(asked, film(1), &ranking), Decision::Here);
    }

    #[test]
    fn a_node_that_drains_sends_everybody_on() {
        let mut cluster = idle(3);
        cluster.told(|nodes| nodes[1].accepts = false);
        for i in 0..50 {
            assert!(matches!(
                decide(&cluster, 1, 0, film(i), 0),
                Decision::Redirect(0 | 2)
            ));
        }
    }

    #[test]
    fn a_deeper_ranking_changes_nothing() {
        let nodes = (0..20)
            .map(|i| node(i, 1000, 37 * i as u64 % 400))
            .collect();
        let cluster = Cluster::new(nodes, Bounds::default());
        for i in 0..100 {
            let film = Film {
                demand_bps: i as u64 * 10 * STREAM,
                ..film(i)
            };
            let asked = Asked {
                node: None,
                load_bps: 0,
                redirects: 0,
                draw: draw(),
            };
            let by = |depth| cluster.decide(asked, film, &cluster.ranking(film.key, depth));
            let decision = by(cluster.homes(film));
            assert!((0..40).all(|more| by(cluster.homes(film) + more) == decision));
        }
    }

    proptest! {
        /// Whatever the nodes and their load: a viewer is sent to one that takes viewers, is not
        /// above its part, and is not full.
        #[test]
        fn nobody_is_sent_where_there_is_no_room(
            nodes in prop::collection::vec((0..2000_u64, 0..2500_u64, any::<bool>()), 1..40),
            wanted in 0..1000_usize,
            demand in 0..100_000_u64,
            here in any::<prop::sample::Index>(),
        ) {
            let nodes: Vec<Node> = nodes
                .into_iter()
                .enumerate()
                .map(|(i, (capacity, load, accepts))| Node { accepts, ..node(i, capacity, load) })
                .collect();
            let here = here.index(nodes.len());
            let cluster = Cluster::new(nodes, Bounds::default());
            let film = Film { demand_bps: demand * STREAM, ..film(wanted) };
            let own = cluster.nodes()[here].load_bps;
            if let Decision::Redirect(there) = decide(&cluster, here, own, film, 0) {
                let chosen = cluster.nodes()[there];
                prop_assert!(there != here && chosen.accepts);
                prop_assert!(cluster.used(there, chosen.load_bps) < cluster.room_below);
                prop_assert!(cluster.room_below <= Bounds::default().full_above);
            }
        }

        /// As viewers come one by one and every node knows of all, no node gets more than its
        /// bound and one viewer.
        #[test]
        fn no_node_gets_much_more_than_its_part(
            nodes in 2..12_usize,
            viewers in prop::collection::vec(0..30_usize, 200..800),
        ) {
            let mut cluster = idle(nodes);
            let bounds = Bounds::default();
            for (come, viewer) in viewers.iter().enumerate() {
                let (there, _) = served_by(&cluster, come % nodes, film(*viewer));
                let there = there.expect("there is room");
                cluster.told(|nodes| nodes[there].load_bps += STREAM);
            }
            let mean = viewers.len() as f64 / nodes as f64;
            let bound = (mean * bounds.over_mean).max(1000.0 * bounds.even_above) + 1.0;
            for node in cluster.nodes() {
                prop_assert!((node.load_bps / STREAM) as f64 <= bound, "{node:?} of {mean}");
            }
        }
    }
}
