//! What a node does about a channel that it receives or wants to: it claims its lease, keeps it,
//! and steps down where another has it. And what nodes do that take the channel from the holder.
//!
//! The registry decides: a lease is an entry that is made only where there is none, and written
//! again only upon the revision that its holder wrote last. What a node believes meanwhile never
//! lasts longer than the registry lets an entry stand. A registry that was lost, and is made anew,
//! knows no holder: in that one leases are taken by those who held them until then, and by others
//! not before all that can have been held are over.

use super::channel::ChannelEntry;
use super::lease::{Lease, LeaseTimes, Token};

/// The registry as a node finds it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Registry {
    /// Another number is another registry: revisions of the two cannot be compared.
    pub id: u64,
    /// Whether leases can be taken there by who held none: not while one may be held that was
    /// taken in a registry before.
    pub is_settled: bool,
}

/// What is to be done next about a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ClaimStep {
    /// Nothing now.
    Wait,
    /// Make the entry, if there is none.
    Create,
    /// Write the entry again, if its revision is this one.
    Renew {
        /// The lease's token.
        token: Token,
        /// What was written last.
        revision: Token,
    },
}

/// What a node asks of the registry about a channel's lease.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LeaseRequest {
    /// Make this entry, if there is none.
    Create(ChannelEntry),
    /// Write this entry, if that is the revision that stands there.
    Renew(ChannelEntry, Token),
    /// Take this entry away, if that is the revision that stands there.
    Release(ChannelEntry, Token),
}

/// What came of it: the entry's revision by now, or else what stands there, if anything does.
pub type LeaseAnswer = Result<Token, Option<(ChannelEntry, Token)>>;

/// What the registry tells by itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LeaseNews {
    /// An entry was written, in this revision.
    Put(ChannelEntry, Token),
    /// The entry of a channel was taken away, by this revision, or its time is over.
    Gone(String, Token),
}

impl LeaseRequest {
    /// The entry that it is about.
    #[must_use]
    pub const fn entry(&self) -> &ChannelEntry {
        match self {
            Self::Create(entry) | Self::Renew(entry, _) | Self::Release(entry, _) => entry,
        }
    }
}

/// How a claim stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Standing {
    /// This node has the lease.
    Holds(Token),
    /// It had it, and could not renew it in time: others do not take the channel from here.
    Lapsed(Token),
    /// It is not known yet.
    Open,
    /// Another node has it.
    Refused(ChannelEntry),
}

/// A claim of one channel. Times are of the node's steady clock, in ns.
#[derive(Clone, Debug)]
pub struct Claim {
    times: LeaseTimes,
    held: Option<Held>,
    /// Who has it, and when to try again.
    refused: Option<(ChannelEntry, u64)>,
    /// It was given up for another node, which has until then to take it.
    given_up_until_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    lease: Lease,
    revision: Token,
    registry: u64,
}

impl Claim {
    /// Of a lease that lasts for so long.
    #[must_use]
    pub const fn new(times: LeaseTimes) -> Self {
        Self {
            times,
            held: None,
            refused: None,
            given_up_until_ns: 0,
        }
    }

    /// Takes how long leases last in this registry.
    pub const fn set_times(&mut self, times: LeaseTimes) {
        self.times = times;
    }

    /// The entry was made, in this revision, by what was asked for then.
    pub fn created(&mut self, registry: Registry, revision: Token, asked_ns: u64) {
        self.refused = None;
        self.held = Some(Held {
            lease: Lease::granted(revision, asked_ns, self.times),
            revision,
            registry: registry.id,
        });
    }

    /// The entry was written again, in this revision, by what was asked for then.
    pub fn renewed(&mut self, revision: Token, asked_ns: u64) {
        if let Some(held) = &mut self.held {
            held.lease.renewed(asked_ns);
            held.revision = revision;
        }
    }

    /// What was asked for was not done, because this stands there, in this revision, or nothing
    /// does by now. `own` is an entry of this node's. Whether it has to step down.
    pub fn conflicted(
        &mut self,
        registry: Registry,
        (found, own): (Option<(ChannelEntry, Token)>, &ChannelEntry),
        now_ns: u64,
    ) -> bool {
        match found {
            None => {
                (self.held, self.refused) = (None, None);
                false
            }
            Some((entry, revision)) if entry.is_same_holder(own) => {
                // An answer was lost. When it was asked for is not known: it is renewed at once.
                let before = self.held.filter(|held| {
                    held.lease.token() == entry.token && held.registry == registry.id
                });
                let lease = before.map_or_else(
                    || Lease::found(entry.token, self.times),
                    |held| held.lease.due_at_once(),
                );
                self.refused = None;
                self.held = Some(Held {
                    lease,
                    revision,
                    registry: registry.id,
                });
                false
            }
            Some((entry, _)) => self.refuse(entry, now_ns),
        }
    }

    /// Another node's entry is there, as the registry tells by itself. Whether this one has to step
    /// down: not if that lease is older than its own.
    pub fn heard(&mut self, registry: Registry, entry: &ChannelEntry, now_ns: u64) -> bool {
        let is_older =
            |held: &Held| held.registry == registry.id && entry.token < held.lease.token();
        match self.held.as_ref().is_some_and(is_older) {
            true => false,
            false => self.refuse(entry.clone(), now_ns),
        }
    }

    /// There is no entry any more.
    pub fn heard_gone(&mut self, now_ns: u64) {
        if let Some((_, again_ns)) = &mut self.refused {
            *again_ns = now_ns;
        }
    }

    /// This node's own entry was taken away: it claims anew.
    pub const fn heard_own_gone(&mut self) {
        self.held = None;
    }

    /// Gives the lease up for a third of its time, so that a node whose standby goes on has it: the
    /// revision that is to be removed, if it is held.
    pub fn give_up(&mut self, registry: Registry, now_ns: u64) -> Option<Token> {
        let revision = self.revision(registry)?;
        self.held = None;
        self.given_up_until_ns = now_ns.saturating_add(self.times.lasts_ns / 3);
        Some(revision)
    }

    /// What is to be done now.
    #[must_use]
    pub fn step(&self, registry: Registry, now_ns: u64) -> ClaimStep {
        if self.refused.is_none() && now_ns < self.given_up_until_ns {
            return ClaimStep::Wait;
        }
        if let Some((_, again_ns)) = &self.refused {
            return match registry.is_settled && now_ns >= *again_ns {
                true => ClaimStep::Create,
                false => ClaimStep::Wait,
            };
        }
        match &self.held {
            Some(held) if held.registry == registry.id => match now_ns >= held.lease.renews_ns() {
                true => ClaimStep::Renew {
                    token: held.lease.token(),
                    revision: held.revision,
                },
                false => ClaimStep::Wait,
            },
            Some(held) if held.lease.holds(now_ns) => ClaimStep::Create,
            _ if registry.is_settled => ClaimStep::Create,
            _ => ClaimStep::Wait,
        }
    }

    /// How it stands.
    #[must_use]
    pub fn standing(&self, now_ns: u64) -> Standing {
        match (&self.refused, &self.held) {
            (Some((holder, _)), _) => Standing::Refused(holder.clone()),
            (None, None) => Standing::Open,
            (None, Some(Held { lease, .. })) => match lease.holds(now_ns) {
                true => Standing::Holds(lease.token()),
                false => Standing::Lapsed(lease.token()),
            },
        }
    }

    /// The revision that is to be removed when the channel is no longer received.
    #[must_use]
    pub fn revision(&self, registry: Registry) -> Option<Token> {
        let held = self.held.filter(|held| held.registry == registry.id);
        held.map(|held| held.revision)
    }

    fn refuse(&mut self, entry: ChannelEntry, now_ns: u64) -> bool {
        let again_ns = now_ns.saturating_add(self.times.lasts_ns / 3);
        self.refused = Some((entry, again_ns));
        self.held.take().is_some()
    }
}

/// What a node does that takes a channel from its holder.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Follow {
    /// It goes on.
    GoOn,
    /// Another has the lease by now: the channel is to be taken from there.
    Moved(ChannelEntry),
    /// Nobody has the lease.
    Gone,
}

/// Says what follows for who takes a channel by the lease `from`, if `now` is what is known.
///
/// That nothing is known counts only where it is certain: while the registry is not reached, or was
/// not until a moment ago, packets that come say more.
#[must_use]
pub fn follow(from: &ChannelEntry, now: Option<&ChannelEntry>, is_certain: bool) -> Follow {
    match now {
        Some(entry) if entry.is_same_holder(from) => Follow::GoOn,
        Some(entry) => Follow::Moved(entry.clone()),
        None if is_certain => Follow::Gone,
        None => Follow::GoOn,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::route::channel::CHANNEL_FORMAT;

    const SECOND: u64 = 1_000_000_000;
    const TIMES: LeaseTimes = LeaseTimes::lasting(10 * SECOND);
    const REGISTRY: Registry = Registry {
        id: 1,
        is_settled: true,
    };

    fn entry(node: usize, token: Token) -> ChannelEntry {
        ChannelEntry {
            format: CHANNEL_FORMAT,
            channel: "live/cam".to_owned(),
            node: format!("node-{node}"),
            instance: node as u64,
            rtsp: format!("192.0.2.{node}:8554"),
            token,
        }
    }

    #[test]
    fn a_lease_is_taken_kept_and_lapses() {
        let mut claim = Claim::new(TIMES);
        assert_eq!(claim.standing(0), Standing::Open);
        assert_eq!(claim.step(REGISTRY, SECOND), ClaimStep::Create);
        claim.created(REGISTRY, 5, SECOND);
        assert_eq!(claim.step(REGISTRY, 2 * SECOND), ClaimStep::Wait);
        let renew = |revision| ClaimStep::Renew { token: 5, revision };
        assert_eq!(claim.step(REGISTRY, 4 * SECOND), renew(5));
        claim.renewed(9, 4 * SECOND);
        assert_eq!(claim.standing(12 * SECOND - 1), Standing::Holds(5));
        assert_eq!(claim.standing(12 * SECOND), Standing::Lapsed(5));
        // Nobody has taken it meanwhile, or writing upon this revision would fail.
        assert_eq!(claim.step(REGISTRY, 13 * SECOND), renew(9));
        assert_eq!(claim.revision(REGISTRY), Some(9));
        claim.renewed(12, 13 * SECOND);
        assert_eq!(claim.standing(14 * SECOND), Standing::Holds(5));
    }

    #[test]
    fn another_holder_is_respected_until_it_goes() {
        let (mut claim, own) = (Claim::new(TIMES), entry(1, 0));
        let found = Some((entry(2, 7), 8));
        assert!(!claim.conflicted(REGISTRY, (found, &own), 0), "it had none");
        assert_eq!(claim.standing(0), Standing::Refused(entry(2, 7)));
        assert_eq!(claim.step(REGISTRY, SECOND), ClaimStep::Wait);
        // Now and then it is tried, in case that nobody says that it is gone.
        assert_eq!(claim.step(REGISTRY, 4 * SECOND), ClaimStep::Create);
        claim.heard_gone(SECOND);
        assert_eq!(claim.step(REGISTRY, SECOND), ClaimStep::Create);
        assert_eq!(claim.revision(REGISTRY), None);
    }

    #[test]
    fn a_lease_that_is_given_up_is_another_nodes_for_a_while() {
        let mut claim = Claim::new(TIMES);
        assert_eq!(claim.give_up(REGISTRY, 0), None, "it has none");
        claim.created(REGISTRY, 5, 0);
        assert_eq!(claim.give_up(REGISTRY, SECOND), Some(5));
        assert_eq!(claim.standing(SECOND), Standing::Open);
        assert_eq!(claim.step(REGISTRY, 4 * SECOND), ClaimStep::Wait);
        // Nobody wanted it.
        assert_eq!(claim.step(REGISTRY, 5 * SECOND), ClaimStep::Create);
        claim.created(REGISTRY, 9, 5 * SECOND);
        assert_eq!(claim.give_up(REGISTRY, 6 * SECOND), Some(9));
        assert!(!claim.heard(REGISTRY, &entry(2, 11), 6 * SECOND));
        claim.heard_gone(7 * SECOND);
        assert_eq!(claim.step(REGISTRY, 7 * SECOND), ClaimStep::Create);
    }

    #[test]
    fn who_has_the_older_token_steps_down() {
        let mut claim = Claim::new(TIMES);
        claim.created(REGISTRY, 5, 0);
        assert!(!claim.heard(REGISTRY, &entry(2, 4), SECOND));
        assert_eq!(claim.standing(SECOND), Standing::Holds(5));
        assert!(claim.heard(REGISTRY, &entry(2, 6), SECOND));
        assert_eq!(claim.standing(SECOND), Standing::Refused(entry(2, 6)));
        // In another registry revisions begin anew.
        let mut claim = Claim::new(TIMES);
        claim.created(REGISTRY, 5, 0);
        let anew = Registry { id: 2, ..REGISTRY };
        assert!(claim.heard(anew, &entry(2, 1), SECOND));
        // Told by the answer to its own request it steps down as well.
        let mut claim = Claim::new(TIMES);
        claim.created(REGISTRY, 5, 0);
        let found = (Some((entry(2, 6), 6)), &entry(1, 0));
        assert!(claim.conflicted(REGISTRY, found, SECOND));
    }

    #[test]
    fn an_answer_that_was_lost_is_made_good() {
        let (mut claim, own) = (Claim::new(TIMES), entry(1, 0));
        let found = (Some((entry(1, 7), 7)), &own);
        assert!(!claim.conflicted(REGISTRY, found, SECOND));
        // When it was asked for is not known, so it counts once it is renewed.
        assert_eq!(claim.standing(SECOND), Standing::Lapsed(7));
        let renew = |revision| ClaimStep::Renew { token: 7, revision };
        assert_eq!(claim.step(REGISTRY, SECOND), renew(7));
        claim.renewed(8, SECOND);
        assert_eq!(claim.standing(SECOND), Standing::Holds(7));
        // A renewal whose answer was lost: the lease is the same.
        let found = (Some((entry(1, 7), 9)), &own);
        assert!(!claim.conflicted(REGISTRY, found, 5 * SECOND));
        assert_eq!(claim.standing(5 * SECOND), Standing::Holds(7));
        assert_eq!(claim.step(REGISTRY, 5 * SECOND), renew(9));
        // Somebody has taken the entry away.
        assert!(!claim.conflicted(REGISTRY, (None, &own), 6 * SECOND));
        assert_eq!(claim.step(REGISTRY, 6 * SECOND), ClaimStep::Create);
        claim.created(REGISTRY, 11, 6 * SECOND);
        claim.heard_own_gone();
        assert_eq!(claim.step(REGISTRY, 7 * SECOND), ClaimStep::Create);
    }

    #[test]
    fn a_new_registry_is_left_first_to_who_held_a_lease() {
        let anew = Registry {
            id: 2,
            is_settled: false,
        };
        let mut held = Claim::new(TIMES);
        held.created(REGISTRY, 5, 0);
        assert_eq!(held.step(anew, SECOND), ClaimStep::Create);
        assert_eq!(held.revision(anew), None);
        let open = Claim::new(TIMES);
        assert_eq!(open.step(anew, SECOND), ClaimStep::Wait);
        // Whose lease has lapsed is no better off.
        assert_eq!(held.step(anew, 9 * SECOND), ClaimStep::Wait);
        let settled = Registry {
            is_settled: true,
            ..anew
        };
        assert_eq!(held.step(settled, 9 * SECOND), ClaimStep::Create);
        // Nor is who was refused, by a holder that may be there still.
        let mut refused = Claim::new(TIMES);
        let found = (Some((entry(2, 7), 7)), &entry(1, 0));
        assert!(!refused.conflicted(REGISTRY, found, 0));
        assert_eq!(refused.step(anew, 9 * SECOND), ClaimStep::Wait);
        assert_eq!(refused.step(settled, 9 * SECOND), ClaimStep::Create);
        assert_eq!(open.step(settled, 9 * SECOND), ClaimStep::Create);
    }

    #[test]
    fn followers_leave_for_another_holder_or_for_none() {
        let from = entry(1, 5);
        assert_eq!(follow(&from, Some(&from), true), Follow::GoOn);
        // The same node, by a lease that it got anew.
        assert_eq!(follow(&from, Some(&entry(1, 9)), true), Follow::GoOn);
        let other = entry(2, 9);
        let moved = Follow::Moved(other.clone());
        assert_eq!(follow(&from, Some(&other), false), moved);
        assert_eq!(follow(&from, None, false), Follow::GoOn);
        assert_eq!(follow(&from, None, true), Follow::Gone);
    }

    /// A registry whose entries run out, and which may be lost.
    struct Model {
        id: u64,
        revision: Token,
        entry: Option<(ChannelEntry, Token, u64)>,
    }

    impl Model {
        fn found(&mut self, now_ns: u64) -> Option<(ChannelEntry, Token)> {
            self.entry.take_if(|(.., until_ns)| *until_ns <= now_ns);
            let entry = self.entry.as_ref();
            entry.map(|(entry, revision, _)| (entry.clone(), *revision))
        }

        fn write(&mut self, mut entry: ChannelEntry, now_ns: u64) -> Token {
            self.revision += 1;
            if entry.token == 0 {
                entry.token = self.revision;
            }
            self.entry = Some((entry, self.revision, now_ns + TIMES.lasts_ns));
            self.revision
        }

        /// Does what a node asks for, if it is as the node thinks: the new revision.
        fn ask(&mut self, step: ClaimStep, node: usize, now_ns: u64) -> Option<Token> {
            let found = self.found(now_ns).map(|(_, revision)| revision);
            match step {
                ClaimStep::Create if found.is_none() => Some(self.write(entry(node, 0), now_ns)),
                ClaimStep::Renew { token, revision } if found == Some(revision) => {
                    Some(self.write(entry(node, token), now_ns))
                }
                _ => None,
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A node asks; its request and the answer are late by so much, and may be lost.
        Ask(usize, u64, bool, bool),
        /// The registry is lost, and is made anew.
        Lose,
        /// So much time passes, in ms.
        Pass(u64),
    }

    fn events() -> impl Strategy<Value = Event> {
        prop_oneof![
            8 => (0..2_usize, 0..2000_u64, any::<bool>(), any::<bool>())
                .prop_map(|(node, late, a, b)| Event::Ask(node, late, a || b, b || late < 200)),
            1 => Just(Event::Lose),
            3 => (0..6000_u64).prop_map(Event::Pass),
        ]
    }

    proptest! {
        /// Two nodes that knew the registry before it was lost, whose clocks differ by up to 5 % in
        /// rate, whose requests and answers are late or lost as they come, never both hold.
        #[test]
        fn two_nodes_never_hold_at_once(
            rates in prop::array::uniform2(950_u64..=1050),
            events in prop::collection::vec(events(), 1..200),
        ) {
            let mut model = Model { id: 1, revision: 0, entry: None };
            let mut claims = [Claim::new(TIMES), Claim::new(TIMES)];
            // What each node knows: which registry, and when leases can be taken there.
            let mut known = [(1, 0_u64), (1, 0_u64)];
            let mut now_ns = SECOND;
            for event in events {
                match event {
                    Event::Pass(ms) => now_ns += ms * 1_000_000,
                    Event::Lose => {
                        model = Model { id: model.id + 1, revision: 0, entry: None };
                    }
                    Event::Ask(node, late_ms, arrives, is_answered) => {
                        let local = |true_ns: u64| true_ns / 1000 * rates[node];
                        let asked_ns = local(now_ns);
                        if known[node].0 != model.id {
                            known[node] = (model.id, asked_ns + TIMES.lasts_ns);
                        }
                        let is_settled = asked_ns >= known[node].1;
                        let registry = Registry { id: model.id, is_settled };
                        let step = claims[node].step(registry, asked_ns);
                        now_ns += late_ms * 500_000;
                        if step == ClaimStep::Wait || !arrives {
                            continue;
                        }
                        let done = model.ask(step, node, now_ns);
                        let found = model.found(now_ns);
                        now_ns += late_ms * 500_000;
                        let claim = &mut claims[node];
                        match (step, done) {
                            _ if !is_answered => {}
                            (ClaimStep::Create, Some(revision)) => {
                                claim.created(registry, revision, asked_ns);
                            }
                            (_, Some(revision)) => claim.renewed(revision, asked_ns),
                            (_, None) => {
                                let found = (found, &entry(node, 0));
                                claim.conflicted(registry, found, local(now_ns));
                            }
                        }
                    }
                }
                let holding: Vec<_> = (0..2)
                    .map(|node| claims[node].standing(now_ns / 1000 * rates[node]))
                    .filter(|it| matches!(it, Standing::Holds(_)))
                    .collect();
                prop_assert!(holding.len() < 2, "{holding:?} at {now_ns}");
            }
        }
    }
}
