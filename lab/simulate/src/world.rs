//! Nodes, viewers and the registry, second by second.

use std::collections::VecDeque;

use crate::Settings;
use crate::audience::Audience;
use crate::routing::{Policy, Routing, Seen};
use crate::script::Arrival;
use crate::shelf::Shelf;

/// All there is.
#[derive(Debug)]
pub(crate) struct World {
    settings: Settings,
    routing: Routing,
    audience: Audience,
    now_s: u32,
    /// By node: what it plays.
    viewers: Vec<u32>,
    dead: Vec<bool>,
    shelves: Vec<Shelf>,
    told: Vec<Told>,
    /// By film: who watches it, wherever.
    demand: Vec<u32>,
    /// By the second from now: who leaves.
    leaving: VecDeque<Vec<Visit>>,
    /// By the second from now: who tries again.
    waiting: VecDeque<Vec<Waiting>>,
    /// Nodes that died, and when that will be known.
    dying: Vec<(usize, u32)>,
    /// Who came, if somebody wants to know.
    pub(crate) arrivals: Option<Vec<Arrival>>,
    pub(crate) counts: Counts,
}

/// What was counted since it was taken last.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    pub(crate) joins: u64,
    /// Joins whose film the node had already.
    pub(crate) warm: u64,
    pub(crate) redirects: u64,
    /// Viewers whom no node had room for.
    pub(crate) refused: u64,
    /// Words of nodes to the registry.
    pub(crate) messages: u64,
    /// Viewers of dead nodes who are served again.
    pub(crate) returned: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Told {
    viewers: u32,
    at_s: u32,
}

#[derive(Clone, Copy, Debug)]
struct Visit {
    node: u32,
    film: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    film: u32,
    /// His node died; else he never had one.
    is_lost: bool,
}

impl World {
    pub(crate) fn new(policy: Policy, settings: &Settings) -> Self {
        let nodes = settings.nodes as usize;
        let shelf = |_| Shelf::new(settings.node_films());
        // Not all tell at once.
        let told = |node: usize| Told {
            viewers: 0,
            at_s: u32::try_from(node).unwrap_or(0) % settings.tell_s.max(1),
        };
        Self {
            settings: settings.clone(),
            routing: Routing::new(policy, settings),
            audience: Audience::new(settings),
            now_s: settings.tell_s,
            viewers: vec![0; nodes],
            dead: vec![false; nodes],
            shelves: (0..nodes).map(shelf).collect(),
            told: (0..nodes).map(told).collect(),
            demand: vec![0; settings.films as usize],
            leaving: VecDeque::new(),
            waiting: VecDeque::new(),
            dying: Vec::new(),
            arrivals: None,
            counts: Counts::default(),
        }
    }

    /// All who are served.
    pub(crate) fn served(&self) -> u64 {
        self.viewers.iter().map(|&viewers| u64::from(viewers)).sum()
    }

    /// What the busiest living node plays, over the mean.
    #[allow(clippy::cast_precision_loss, reason = "a ratio")]
    pub(crate) fn spread(&self) -> f64 {
        let alive = self.dead.iter().filter(|&&dead| !dead).count().max(1);
        let most = self.viewers.iter().copied().max().unwrap_or(0);
        f64::from(most) * alive as f64 / self.served().max(1) as f64
    }

    /// A second goes by, in which so many come on average.
    pub(crate) fn second(&mut self, comes: f64) {
        self.now_s += 1;
        let mut leaving = self.leaving.pop_front().unwrap_or_default().into_iter();
        for waiting in self.waiting.pop_front().unwrap_or_default() {
            self.ask(waiting);
        }
        let (leave, come) = (leaving.len(), self.audience.count(comes) as usize);
        for number in 0..come {
            // In the course of the second, as others come: if all left first, each node would find
            // itself below what all told at the second's end, and keep whom it should send on.
            let left = leave * (number + 1) / come - leave * number / come;
            leaving.by_ref().take(left).for_each(|it| self.leave(it));
            let film = self.audience.film();
            let is_lost = false;
            self.ask(Waiting { film, is_lost });
        }
        leaving.for_each(|it| self.leave(it));
        let known: Vec<_> = self
            .dying
            .extract_if(.., |&mut (_, at)| at <= self.now_s)
            .collect();
        for (node, _) in known {
            self.routing.gone(node);
        }
        self.tell();
    }

    fn leave(&mut self, visit: Visit) {
        self.viewers[visit.node as usize] -= 1;
        self.demand[visit.film as usize] -= 1;
    }

    /// Somebody asks some node.
    fn ask(&mut self, waiting: Waiting) {
        let asked = self.audience.one_of(self.viewers.len());
        if self.dead[asked] {
            // Its name still leads there; the next try is a second later.
            return later(&mut self.waiting, 1, waiting);
        }
        let seen = Seen {
            viewers: &self.viewers,
            dead: &self.dead,
        };
        let sent = self
            .routing
            .send(asked, waiting.film, &seen, &mut self.audience);
        self.counts.redirects += u64::from(sent.redirects);
        let Some(node) = sent.to else {
            self.counts.refused += 1;
            return;
        };
        if self.dead[node] {
            let wait_s = self.audience.within_s(self.settings.retry_s);
            return later(&mut self.waiting, wait_s, waiting);
        }
        self.counts.joins += 1;
        self.counts.returned += u64::from(waiting.is_lost);
        self.counts.warm += u64::from(self.shelves[node].asked(waiting.film));
        self.viewers[node] += 1;
        self.demand[waiting.film as usize] += 1;
        let visit = Visit {
            node: u32::try_from(node).expect("nodes are numbered by u32"),
            film: waiting.film,
        };
        let stay_s = self.audience.stay_s();
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.push(Arrival {
                at_s: self.now_s - self.settings.tell_s,
                film: waiting.film,
                asked: u32::try_from(asked).expect("nodes are numbered by u32"),
                served: visit.node,
                stay_s: u32::try_from(stay_s).unwrap_or(u32::MAX),
            });
        }
        later(&mut self.leaving, stay_s, visit);
    }

    /// Nodes whose load has moved tell the registry, and the others a sign of life now and then.
    fn tell(&mut self) {
        let wants_loads = self.routing.wants_loads();
        let moved = self.settings.tell_part * f64::from(self.settings.node_viewers());
        let mut told = Vec::new();
        for (node, last) in self.told.iter_mut().enumerate() {
            let now = self.viewers[node];
            let has_moved = wants_loads && f64::from(now.abs_diff(last.viewers)) >= moved;
            let is_due = self.now_s >= last.at_s + self.settings.tell_s;
            if self.dead[node] || !(has_moved || is_due) {
                continue;
            }
            *last = Told {
                viewers: now,
                at_s: self.now_s,
            };
            told.push((node, now));
        }
        self.counts.messages += told.len() as u64;
        self.routing.told(&told, &self.demand);
    }

    /// So many of the nodes die, whichever; says how many viewers they had.
    pub(crate) fn lose(&mut self, nodes: u32) -> u64 {
        let mut lost = 0;
        for _ in 0..nodes {
            let node = std::iter::repeat_with(|| self.audience.one_of(self.viewers.len()))
                .find(|&node| !self.dead[node])
                .expect("fewer die than there are");
            self.dead[node] = true;
            self.viewers[node] = 0;
            self.dying.push((node, self.now_s + self.settings.dead_s));
        }
        let dead = &self.dead;
        let mut alone = Vec::new();
        for visits in &mut self.leaving {
            alone.extend(visits.extract_if(.., |visit| dead[visit.node as usize]));
        }
        for visit in alone {
            self.demand[visit.film as usize] -= 1;
            let waiting = Waiting {
                film: visit.film,
                is_lost: true,
            };
            let wait_s = self.audience.within_s(self.settings.retry_s);
            later(&mut self.waiting, wait_s, waiting);
            lost += 1;
        }
        lost
    }
}

/// Puts something so many seconds (1 or more) behind now.
fn later<T>(queue: &mut VecDeque<Vec<T>>, seconds: usize, what: T) {
    if queue.len() < seconds {
        queue.resize_with(seconds, Vec::new);
    }
    queue[seconds - 1].push(what);
}
