//! Which source of this process delivers to which: to a further one at will, but not so that a
//! datagram comes back.
//!
//! A member that an input takes is an edge from one source to another. A change of members is
//! checked whole, under one lock for all sources, before it counts: so two changes cannot close a
//! cycle between them. Only members that are inputs are kept, and a member is looked at further
//! only if its port is that of an input; what this machine's addresses are is asked once a change.
//! Not here: cycles through other relays, and addresses that become this machine's after the
//! change.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::warn;

use super::config::SOURCES_MAX;
use super::input::Input;
use super::members::{Change, MemberError};

/// The inputs of a process, and which source delivers to which of them.
#[derive(Debug)]
pub(super) struct Deliveries {
    inputs: Vec<(String, Input)>,
    by_port: HashMap<u16, Vec<usize>>,
    /// What this machine's addresses are, link-local ones too: a neighbour may have the same as one
    /// of those, and is then taken for this machine.
    host: fn() -> io::Result<Vec<IpAddr>>,
    /// By source, its members that are inputs, and whose: a bit each.
    edges: Mutex<Vec<Edges>>,
}

type Edges = BTreeMap<SocketAddr, u64>;

/// Changes of members, one after the other, as long as it is held.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    deliveries: &'a Deliveries,
    edges: MutexGuard<'a, Vec<Edges>>,
}

impl Deliveries {
    /// Of sources with these names and inputs, in the order of their numbers. Nobody has members
    /// yet.
    pub(super) fn new(inputs: Vec<(String, Input)>, host: fn() -> io::Result<Vec<IpAddr>>) -> Self {
        assert!(inputs.len() <= SOURCES_MAX, "checked before");
        let mut by_port: HashMap<u16, Vec<usize>> = HashMap::new();
        for (source, (_, input)) in inputs.iter().enumerate() {
            let port = input.address.port();
            by_port.entry(port).or_default().push(source);
        }
        Self {
            edges: Mutex::new(vec![Edges::new(); inputs.len()]),
            inputs,
            by_port,
            host,
        }
    }

    /// Keeps others from changing members until it is dropped.
    pub(super) fn changing(&self) -> Changing<'_> {
        Changing {
            deliveries: self,
            edges: self.edges.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// The source that takes in what is sent to `address`, if there is one.
    pub(super) fn taken_by(&self, address: SocketAddr) -> Option<&str> {
        let takers = self.takers(address, &OnceCell::new());
        (takers != 0).then(|| self.inputs[takers.trailing_zeros() as usize].0.as_str())
    }

    /// Whose inputs take what is sent to `address`: a bit each.
    fn takers(&self, address: SocketAddr, host: &OnceCell<HashSet<IpAddr>>) -> u64 {
        let Some(sources) = self.by_port.get(&address.port()) else {
            return 0;
        };
        let is_local = |ip: IpAddr| {
            let ask = || match (self.host)() {
                Ok(addresses) => addresses.into_iter().collect(),
                Err(error) => {
                    warn!("this machine's addresses are not known, loopback aside: {error}");
                    HashSet::new()
                }
            };
            // What is sent to the wildcard goes to this machine, and groups may be joined here.
            let is_own = ip.is_loopback() || ip.is_unspecified() || ip.is_multicast();
            is_own || host.get_or_init(ask).contains(&ip)
        };
        let takes = |source: &&usize| self.inputs[**source].1.takes(address, is_local);
        sources
            .iter()
            .filter(takes)
            .fold(0, |bits, source| bits | 1 << source)
    }

    /// The cycle in words: its sources, then who sends where.
    fn describe(&self, edges: &[Edges], cycle: &[usize]) -> String {
        let name = |source: usize| self.inputs[source].0.as_str();
        let names: Vec<_> = cycle.iter().map(|&source| name(source)).collect();
        let hops = cycle.windows(2).map(|hop| {
            let mut members = edges[hop[0]].iter();
            let (member, _) = members
                .find(|(_, takers)| *takers & (1 << hop[1]) != 0)
                .expect("an edge is a member");
            format!("{} to {member}", name(hop[0]))
        });
        let hops: Vec<_> = hops.collect();
        format!("{} ({})", names.join(" -> "), hops.join(", "))
    }
}

impl Changing<'_> {
    /// Notes a change of the members of a source, if it closes no cycle.
    ///
    /// # Errors
    ///
    /// [`MemberError::Cycle`]; then nothing has changed.
    pub(super) fn apply(&mut self, source: usize, change: &Change) -> Result<(), MemberError> {
        let host = OnceCell::new();
        let mut next = self.edges[source].clone();
        for member in &change.removed {
            next.remove(member);
        }
        let mut has_edge = false;
        for &member in &change.added {
            let takers = self.deliveries.takers(member, &host);
            if takers != 0 {
                next.insert(member, takers);
                has_edge = true;
            }
        }
        let before = std::mem::replace(&mut self.edges[source], next);
        if !has_edge {
            return Ok(());
        }
        let successors = self.edges.iter().map(successors).collect::<Vec<_>>();
        let Some(cycle) = cycle_through(source, &successors) else {
            return Ok(());
        };
        let path = self.deliveries.describe(&self.edges, &cycle);
        // The change made the first hop: without it there was no cycle.
        let first = 1 << cycle[1];
        let mut added = change.added.iter();
        let address = *added
            .find(|member| self.edges[source].get(member).copied().unwrap_or(0) & first != 0)
            .expect("what was there before has no cycle");
        self.edges[source] = before;
        Err(MemberError::Cycle { address, path })
    }
}

fn successors(edges: &Edges) -> u64 {
    edges.values().fold(0, |all, takers| all | takers)
}

/// The shortest way from `start` back to it: the sources on it, `start` at both ends. `successors`
/// says for each source to whom it delivers, a bit each.
fn cycle_through(start: usize, successors: &[u64]) -> Option<Vec<usize>> {
    let mut came_from = vec![None; successors.len()];
    let mut waiting = VecDeque::from([start]);
    while let Some(source) = waiting.pop_front() {
        if successors[source] & (1 << start) != 0 {
            let mut way = vec![start, source];
            while let Some(before) = came_from[way[way.len() - 1]] {
                way.push(before);
            }
            way.reverse();
            return Some(way);
        }
        for (next, came_from) in came_from.iter_mut().enumerate() {
            let is_new = next != start && came_from.is_none();
            if is_new && successors[source] & (1 << next) != 0 {
                *came_from = Some(source);
                waiting.push_back(next);
            }
        }
    }
    None
}

// A bit for each source.
const _: () = assert!(SOURCES_MAX <= u64::BITS as usize);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn host() -> io::Result<Vec<IpAddr>> {
        Ok(vec![
            "10.0.0.1".parse().unwrap(),
            "2001:db8::1".parse().unwrap(),
            "fe80::1".parse().unwrap(),
        ])
    }

    /// Sources a, b, c and so on.
    fn deliveries(inputs: &[&str]) -> Deliveries {
        let named = ('a'..).zip(inputs);
        let inputs = named.map(|(name, input)| (name.to_string(), input.parse().unwrap()));
        Deliveries::new(inputs.collect(), host)
    }

    fn change(added: &[&str], removed: &[&str]) -> Change {
        let all = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        Change {
            added: all(added),
            removed: all(removed),
        }
    }

    fn add(deliveries: &Deliveries, source: usize, member: &str) -> Result<(), String> {
        let mut changing = deliveries.changing();
        let result = changing.apply(source, &change(&[member], &[]));
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn a_cycle_is_named_by_its_sources_and_members() {
        let relay = deliveries(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]);
        assert_eq!(add(&relay, 0, "10.0.0.1:2"), Ok(()), "a chain");
        assert_eq!(add(&relay, 1, "10.0.0.1:3"), Ok(()), "a chain");
        assert_eq!(add(&relay, 0, "10.0.0.1:3"), Ok(()), "by two ways");
        let error = add(&relay, 2, "10.0.0.1:1").unwrap_err();
        for said in ["10.0.0.1:1 cannot", "c -> a -> c (", "a to 10.0.0.1:3"] {
            assert!(error.contains(said), "{said}: {error}");
        }
        let error = add(&relay, 1, "10.0.0.1:1").unwrap_err();
        assert!(error.contains("b -> a -> b (b to 10.0.0.1:1, a to 10.0.0.1:2)"));
        let error = add(&relay, 1, "10.0.0.1:2").unwrap_err();
        assert!(error.contains("b -> b (b to 10.0.0.1:2)"), "{error}");
    }

    #[test]
    fn a_refused_change_leaves_no_edge() {
        let relay = deliveries(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]);
        assert_eq!(add(&relay, 0, "10.0.0.1:2"), Ok(()));
        // The first of them closes no cycle, and goes with the second.
        let both = change(&["10.0.0.1:3", "10.0.0.1:1"], &[]);
        assert!(relay.changing().apply(1, &both).is_err());
        assert_eq!(add(&relay, 2, "10.0.0.1:2"), Ok(()), "b does not reach c");
    }

    #[test]
    fn what_goes_with_a_change_closes_no_cycle_any_more() {
        let relay = deliveries(&["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"]);
        assert_eq!(add(&relay, 0, "10.0.0.1:2"), Ok(()));
        assert_eq!(add(&relay, 1, "10.0.0.1:3"), Ok(()));
        let swapped = change(&["10.0.0.1:3"], &["10.0.0.1:2"]);
        assert_eq!(relay.changing().apply(0, &swapped), Ok(()));
        assert_eq!(add(&relay, 1, "10.0.0.1:1"), Ok(()), "a does not reach b");
        let back = change(&["10.0.0.1:2"], &["10.0.0.1:3"]);
        assert!(relay.changing().apply(0, &back).is_err());
    }

    #[test]
    fn inputs_take_what_reaches_them_by_any_name() {
        for (input, member, is_taken) in [
            ("7", "10.0.0.1:7", true),
            ("7", "[2001:db8::1]:7", true),
            ("7", "[fe80::1%3]:7", true),
            ("7", "[fe80::2%3]:7", false),
            ("0.0.0.0:7", "[fe80::1%3]:7", false),
            ("7", "127.9.9.9:7", true),
            ("7", "[::1]:7", true),
            ("7", "[::ffff:10.0.0.1]:7", true),
            ("7", "[::ffff:127.0.0.1]:7", true),
            ("7", "0.0.0.0:7", true),
            ("7", "10.0.0.1:8", false),
            ("7", "10.0.0.2:7", false),
            ("7", "[2001:db8::2]:7", false),
            ("0.0.0.0:7", "10.0.0.1:7", true),
            ("0.0.0.0:7", "127.0.0.1:7", true),
            ("0.0.0.0:7", "[::1]:7", false),
            ("0.0.0.0:7", "[2001:db8::1]:7", false),
            ("[::ffff:0.0.0.0]:7", "10.0.0.1:7", true),
            ("[::ffff:10.0.0.1]:7", "10.0.0.1:7", true),
            ("10.0.0.1:7", "[::ffff:10.0.0.1]:7", true),
            ("10.0.0.1:7", "127.0.0.1:7", false),
            ("127.0.0.1:7", "127.0.0.2:7", false),
            // Groups are no members, but who says so is not asked here.
            ("239.1.2.3:7%lo", "239.1.2.3:7", true),
            ("10.0.0.9@232.1.2.3:7", "232.1.2.3:7", true),
            ("7", "239.1.2.3:7", true),
        ] {
            let relay = deliveries(&[input]);
            let refused = add(&relay, 0, member);
            assert_eq!(refused.is_err(), is_taken, "{input} {member}");
            let taker = relay.taken_by(member.parse().unwrap());
            assert_eq!(taker, is_taken.then_some("a"), "{input} {member}");
        }
    }

    #[test]
    fn this_machine_is_asked_once_for_ten_thousand_members() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let count = || {
            ASKED.fetch_add(1, Ordering::Relaxed);
            host()
        };
        let inputs = [("a", "5004"), ("b", "10.0.0.1:5006")];
        let inputs = inputs.map(|(name, input)| (name.to_owned(), input.parse().unwrap()));
        let relay = Deliveries::new(inputs.into(), count);
        let members = |port: u16| Change {
            added: (0..10_000_u16)
                .map(|i| {
                    let [high, low] = i.to_be_bytes();
                    SocketAddr::from(([172, 16, high, low], port))
                })
                .collect(),
            removed: Vec::new(),
        };
        for (port, asked) in [(5000, 0), (5006, 0), (5004, 1)] {
            assert_eq!(relay.changing().apply(1, &members(port)), Ok(()));
            assert_eq!(ASKED.load(Ordering::Relaxed), asked, "port {port}");
        }
        assert!(relay.changing().edges.iter().all(Edges::is_empty));
    }

    #[test]
    fn as_many_sources_as_there_may_be_are_followed() {
        let inputs: Vec<_> = (0..SOURCES_MAX)
            .map(|i| {
                (
                    format!("s{i}"),
                    format!("10.0.0.1:{}", 100 + i).parse().unwrap(),
                )
            })
            .collect();
        let relay = Deliveries::new(inputs, host);
        let member = |source: usize| format!("10.0.0.1:{}", 100 + source);
        for source in 1..SOURCES_MAX {
            assert_eq!(add(&relay, source - 1, &member(source)), Ok(()));
        }
        let error = add(&relay, SOURCES_MAX - 1, &member(0)).unwrap_err();
        assert!(error.contains("s63 -> s0 -> s1 -> "), "{error}");
        assert!(error.contains("s62 -> s63 ("), "{error}");
    }

    /// Whether all sources can be put in an order in which each delivers to later ones only.
    fn has_order(successors: &[u64]) -> bool {
        let mut left: Vec<usize> = (0..successors.len()).collect();
        while let Some(at) = left.iter().position(|&source| {
            !left
                .iter()
                .any(|&other| successors[other] & (1 << source) != 0)
        }) {
            left.remove(at);
        }
        left.is_empty()
    }

    /// A source, and whom it begins and ceases to deliver to. The last two are nobody's input.
    type Step = (usize, Vec<usize>, Vec<usize>);

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let some = |max| vec(0..SOURCES + 2, 0..max);
        vec((0..SOURCES, some(3), some(2)), 0..60)
    }

    fn address(source: usize) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 100 + u16::try_from(source).unwrap()))
    }

    const SOURCES: usize = 7;

    proptest! {
        /// Members come and go; each change is refused if, and only if, a cycle would be there.
        #[test]
        fn a_change_is_refused_if_and_only_if_it_closes_a_cycle(steps in steps()) {
            let input = |i| (format!("s{i}"), address(i).to_string().parse().unwrap());
            let relay = Deliveries::new((0..SOURCES).map(input).collect(), host);
            let mut graph = vec![0_u64; SOURCES];
            for (source, mut added, removed) in steps {
                added.retain(|to| !removed.contains(to));
                let mut next = graph.clone();
                removed.iter().for_each(|to| next[source] &= !(1 << to));
                added.iter().for_each(|to| next[source] |= 1 << to);
                next[source] &= (1 << SOURCES) - 1;
                let change = Change {
                    added: added.into_iter().map(address).collect(),
                    removed: removed.into_iter().map(address).collect(),
                };
                let result = relay.changing().apply(source, &change);
                prop_assert_eq!(result.is_ok(), has_order(&next), "{:?} {:?}", next, result);
                if result.is_ok() {
                    graph = next;
                }
            }
        }

        /// What is found is a way that is there, once round; nothing is found only where there is
        /// none.
        #[test]
        fn the_cycle_that_is_named_exists(graph in vec(any::<[u64; 3]>(), 12)) {
            // Each delivers to an eighth of the others: often there is a cycle, often none.
            let graph = graph.into_iter().map(|[a, b, c]| a & b & c & 0xfff);
            let graph: Vec<_> = graph.collect();
            for start in 0..graph.len() {
                let mut reached = graph[start];
                for _ in 0..graph.len() {
                    let through = (0..graph.len()).filter(|i| reached & (1 << i) != 0);
                    reached |= through.fold(0, |all, i| all | graph[i]);
                }
                match cycle_through(start, &graph) {
                    None => prop_assert_eq!(reached & (1 << start), 0),
                    Some(way) => {
                        prop_assert_eq!((way[0], way[way.len() - 1]), (start, start));
                        prop_assert!(way.windows(2).all(|hop| graph[hop[0]] & (1 << hop[1]) != 0));
                        let once: HashSet<_> = way[1..].iter().collect();
                        prop_assert_eq!(once.len(), way.len() - 1, "{:?}", way);
                    }
                }
            }
        }
    }
}
