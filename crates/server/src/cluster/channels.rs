//! Channels of a cluster: which of them this node claims, and which node has the others.
//!
//! A claim says that packets of a channel come here, or would. Whoever made it asks how it
//! [stands](ChannelClaim::standing) and acts by that: a publisher is refused or let go where
//! another node has the lease. What speaks with the registry takes [requests](LeaseRequest) from
//! here and brings answers; nobody here waits for it, but a publisher that has just come.

mod claim;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::route::channel::{CHANNEL_FORMAT, channel_key, of_standby, standby_of};
use onrush_wire::route::{
    ChannelEntry, Claim, ClaimStep, Follow, LeaseAnswer, LeaseNews, LeaseRequest, LeaseTimes,
    Registry, Standing, Token, follow,
};
use tokio::sync::{Notify, watch};
use tracing::{info, warn};

use super::feeding::ThroughHere;
use super::{ClusterMember, IgnoredEntry, lock};

/// Channels that a node claims at once; packets of more come here for this node's viewers alone.
pub const CLAIMS_MAX: usize = 256;

/// How long a publisher that comes is let wait for the registry's answer.
pub const CLAIM_TIME_MAX: Duration = Duration::from_secs(3);

/// What is known of channels, and what is claimed.
pub(super) struct Channels {
    state: Mutex<State>,
    requests: Arc<Notify>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    claims: BTreeMap<String, Slot>,
    /// The channel that was asked for last: those behind it by name are next.
    turn: String,
    /// Leases that are given back.
    releases: Vec<LeaseRequest>,
    /// What was asked for last, and when.
    asked: Option<(LeaseRequest, u64)>,
    /// Leases of other nodes.
    others: BTreeMap<String, Arc<ChannelEntry>>,
    ignored: Vec<IgnoredEntry>,
    registry: Option<KnownRegistry>,
    /// Since when it is reached, if it is.
    reached_ns: Option<u64>,
    times: LeaseTimes,
    is_leaving: bool,
}

struct Slot {
    /// Who claims it here.
    count: usize,
    claim: Claim,
}

#[derive(Clone, Copy)]
struct KnownRegistry {
    id: u64,
    /// From then on no lease of one before is held.
    settled_ns: u64,
}

/// A claim of a channel. Dropping it gives it back.
pub(crate) struct ChannelClaim {
    member: Arc<ClusterMember>,
    channel: String,
}

/// What a page shows of a channel.
#[derive(Clone, Debug)]
pub(crate) struct ChannelRow {
    pub(crate) channel: String,
    pub(crate) node: String,
    pub(crate) lease: Option<Token>,
    pub(crate) is_this: bool,
    /// The node that has a standby of it.
    pub(crate) standby: Option<String>,
    /// What passes through here.
    pub(crate) through_here: ThroughHere,
}

impl Default for Channels {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            requests: Arc::default(),
            changed: watch::Sender::new(0),
        }
    }
}

impl ClusterMember {
    /// What is notified when there is something to ask of the registry.
    #[must_use]
    pub fn lease_requests(&self) -> Arc<Notify> {
        Arc::clone(&self.channels.requests)
    }

    /// The registry that is reached is this one, and leases last so long there.
    pub fn lease_registry(&self, id: u64, lasts: Duration) {
        let mut state = self.lock_channels();
        let lasts_ns = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        state.times = LeaseTimes::lasting(lasts_ns);
        let times = state.times;
        for slot in state.claims.values_mut() {
            slot.claim.set_times(times);
        }
        let settled_ns = match state.registry {
            Some(before) if before.id == id => before.settled_ns,
            Some(_) => monotonic_ns().saturating_add(lasts_ns),
            // It knew none before. Nothing tells whether another node did, and a cluster that
            // starts from nothing is not to wait.
            None => 0,
        };
        // Of another registry a revision says nothing: it may be another node's lease there.
        if state.registry.is_some_and(|before| before.id != id) {
            state.releases.clear();
        } else if let Some((release @ LeaseRequest::Release(..), _)) = state.asked.take()
            && state.releases.len() < CLAIMS_MAX
        {
            // It was not answered when the registry was lost.
            state.releases.push(release);
        }
        state.asked = None;
        state.registry = Some(KnownRegistry { id, settled_ns });
    }

    /// What to ask of the registry next.
    #[must_use]
    pub fn next_lease_request(&self) -> Option<LeaseRequest> {
        let mut state = self.lock_channels();
        let now_ns = monotonic_ns();
        let request = match state.releases.pop() {
            Some(release) => Some(release),
            None if state.is_leaving => None,
            None => {
                let registry = state.registry?.at(now_ns);
                // In turn: where answers take long the first is due again before the last was asked
                // for.
                let turn = state.turn.as_str();
                let behind = (Bound::Excluded(turn), Bound::Unbounded);
                let before = (Bound::Unbounded, Bound::Included(turn));
                let behind = state.claims.range::<str, _>(behind);
                let mut claims = behind.chain(state.claims.range::<str, _>(before));
                claims.find_map(|(channel, slot)| {
                    let entry = |token| self.channel_entry(channel, token);
                    match slot.claim.step(registry, now_ns) {
                        ClaimStep::Wait => None,
                        ClaimStep::Create => Some(LeaseRequest::Create(entry(0)?)),
                        ClaimStep::Renew { token, revision } => {
                            Some(LeaseRequest::Renew(entry(token)?, revision))
                        }
                    }
                })
            }
        };
        if let Some(request) = &request {
            state.turn.clone_from(&request.entry().channel);
        }
        state.asked = request.clone().map(|request| (request, now_ns));
        request
    }

    /// Takes what came of it.
    pub fn lease_answer(&self, request: &LeaseRequest, answer: LeaseAnswer) {
        let mut state = self.lock_channels();
        let now_ns = monotonic_ns();
        let Some((_, asked_ns)) = state.asked.take_if(|(asked, _)| asked == request) else {
            return;
        };
        let (Some(registry), own) = (state.registry, request.entry()) else {
            return;
        };
        let registry = registry.at(now_ns);
        let is_release = matches!(request, LeaseRequest::Release(..));
        match (state.claims.get_mut(&own.channel), answer) {
            _ if is_release => {}
            // Nobody wants it any more.
            (None, Ok(revision)) => {
                state
                    .releases
                    .push(LeaseRequest::Release(own.clone(), revision));
            }
            (None, Err(_)) => {}
            (Some(slot), Ok(revision)) => match request {
                LeaseRequest::Create(_) => {
                    slot.claim.created(registry, revision, asked_ns);
                    match of_standby(&own.channel) {
                        None => info!("cluster: channel {} is here, lease {revision}", own.channel),
                        Some(channel) => info!("cluster: the standby of {channel} is here"),
                    }
                }
                // Given up meanwhile, by a revision that no longer stands there.
                _ if slot.claim.revision(registry).is_none() => {
                    let release = LeaseRequest::Release(own.clone(), revision);
                    state.releases.push(release);
                }
                _ => slot.claim.renewed(revision, asked_ns),
            },
            (Some(slot), Err(found)) => {
                let holder = found.as_ref().map(|(entry, _)| entry.clone());
                if slot.claim.conflicted(registry, (found, own), now_ns) {
                    self.step_down(&own.channel, holder.as_ref());
                }
            }
        }
        self.channels_changed(state);
    }

    /// Takes what the registry tells by itself.
    pub fn lease_news(&self, news: LeaseNews) {
        let mut state = self.lock_channels();
        let now_ns = monotonic_ns();
        let Some(registry) = state.registry.map(|it| it.at(now_ns)) else {
            return;
        };
        match news {
            LeaseNews::Put(entry, _) => {
                let is_own = self.is_own(&entry);
                let slot = state.claims.get_mut(&entry.channel).filter(|_| !is_own);
                if slot.is_some_and(|it| it.claim.heard(registry, &entry, now_ns)) {
                    self.step_down(&entry.channel, Some(&entry));
                }
            }
            LeaseNews::Gone(channel, by) => {
                if let Some(Slot { claim, .. }) = state.claims.get_mut(&channel) {
                    match claim.revision(registry) {
                        Some(own) if by > own => claim.heard_own_gone(),
                        _ => claim.heard_gone(now_ns),
                    }
                }
            }
        }
        self.channels_changed(state);
    }

    /// Takes all leases that there are, and what is none.
    pub fn leases(&self, leases: Vec<Arc<ChannelEntry>>, ignored: Vec<IgnoredEntry>) {
        let mut state = self.lock_channels();
        let others = leases.into_iter().filter(|entry| !self.is_own(entry));
        state.others = others.map(|it| (it.channel.clone(), it)).collect();
        let counted = &self.stats.channels_ignored;
        counted.store(ignored.len() as u64, Ordering::Relaxed);
        state.ignored = ignored;
        self.channels_changed(state);
    }

    /// Gives all leases back: the node leaves.
    pub fn leave_channels(&self) {
        let mut state = self.lock_channels();
        state.is_leaving = true;
        let channels: Vec<_> = state.claims.keys().cloned().collect();
        for channel in channels {
            self.release(&mut state, &channel);
        }
    }

    /// The registry is reached, or no more.
    pub(super) fn channels_reached(&self, is_reached: bool) {
        let mut state = self.lock_channels();
        state.reached_ns = match (is_reached, state.reached_ns) {
            (true, Some(since_ns)) => Some(since_ns),
            (true, None) => Some(monotonic_ns()),
            (false, _) => None,
        };
        self.channels_changed(state);
    }

    /// Claims a channel, whose packets are to come here; nothing if too many are claimed.
    pub(crate) fn claim(self: &Arc<Self>, channel: &str) -> Option<ChannelClaim> {
        self.keep_claimed(channel).then(|| ChannelClaim {
            member: Arc::clone(self),
            channel: channel.to_owned(),
        })
    }

    /// Claims a channel for as long as there is the server; whether there is room for that.
    pub(crate) fn keep_claimed(&self, channel: &str) -> bool {
        let mut state = self.lock_channels();
        let times = state.times;
        if channel_key(channel).is_none() {
            return false;
        }
        if !state.claims.contains_key(channel) && state.claims.len() >= CLAIMS_MAX {
            warn!("cluster: channel {channel} is for this node alone: {CLAIMS_MAX} are the most");
            return false;
        }
        let slot = state.claims.entry(channel.to_owned());
        let slot = slot.or_insert_with(|| Slot {
            count: 0,
            claim: Claim::new(times),
        });
        slot.count += 1;
        drop(state);
        self.channels.requests.notify_one();
        true
    }

    /// The other node that has the channel, as far as is known.
    pub(crate) fn holder_of(&self, channel: &str) -> Option<Arc<ChannelEntry>> {
        self.lock_channels().others.get(channel).map(Arc::clone)
    }

    /// What follows for who takes a channel from that node.
    pub(crate) fn follow(&self, from: &ChannelEntry) -> Follow {
        let state = self.lock_channels();
        let now = state.others.get(&from.channel).map(|it| &**it);
        // Whoever has a lease needs as long to say so to a registry that is there again.
        let is_certain = state.reached_ns.is_some_and(|since_ns| {
            monotonic_ns().saturating_sub(since_ns) >= state.times.lasts_ns
        });
        follow(from, now, is_certain)
    }

    /// Whether this node receives the channel by that lease, or did until it could not renew it.
    pub(crate) fn has_lease(&self, channel: &str, token: Token) -> bool {
        let state = self.lock_channels();
        let slot = state.claims.get(channel);
        let standing = slot.map(|slot| slot.claim.standing(monotonic_ns()));
        matches!(standing, Some(Standing::Holds(own) | Standing::Lapsed(own)) if own == token)
    }

    /// Whether this node has the channel's lease.
    pub(crate) fn holds(&self, channel: &str) -> bool {
        let state = self.lock_channels();
        let slot = state.claims.get(channel);
        let standing = slot.map(|slot| slot.claim.standing(monotonic_ns()));
        matches!(standing, Some(Standing::Holds(_)))
    }

    /// All channels that are known, by name, and what the registry holds that is none.
    pub(crate) fn channel_rows(&self) -> (Vec<ChannelRow>, Vec<IgnoredEntry>) {
        let state = self.lock_channels();
        let now_ns = monotonic_ns();
        let ignored = state.ignored.clone();
        let is_channel = |name: &str| of_standby(name).is_none();
        let standby = |channel: &str| {
            let name = standby_of(channel);
            let slot = state.claims.get(&name);
            let standing = slot.map(|slot| slot.claim.standing(now_ns));
            match standing {
                Some(Standing::Holds(_)) => Some(self.config.node.clone()),
                _ => state.others.get(&name).map(|entry| entry.node.clone()),
            }
        };
        let own = state.claims.iter().filter(|(name, _)| is_channel(name));
        let own = own.filter_map(|(channel, slot)| {
            let lease = match slot.claim.standing(now_ns) {
                Standing::Holds(token) => Some(token),
                Standing::Refused(_) => return None,
                Standing::Lapsed(_) | Standing::Open => None,
            };
            Some(ChannelRow {
                channel: channel.clone(),
                node: self.config.node.clone(),
                lease,
                is_this: true,
                standby: standby(channel),
                through_here: ThroughHere::default(),
            })
        });
        let others = state.others.values();
        let others = others.filter(|entry| is_channel(&entry.channel));
        let others = others.map(|entry| ChannelRow {
            channel: entry.channel.clone(),
            node: entry.node.clone(),
            lease: Some(entry.token),
            is_this: false,
            standby: standby(&entry.channel),
            through_here: ThroughHere::default(),
        });
        let mut rows: Vec<_> = own.chain(others).collect();
        drop(state);
        for row in &mut rows {
            row.through_here = self.through_here(&row.channel);
        }
        rows.sort_by(|a, b| (&a.channel, &a.node).cmp(&(&b.channel, &b.node)));
        (rows, ignored)
    }

    fn channel_entry(&self, channel: &str, token: Token) -> Option<ChannelEntry> {
        let rtsp = self.own.get()?.addresses.rtsp.clone()?;
        Some(ChannelEntry {
            format: CHANNEL_FORMAT,
            channel: channel.to_owned(),
            node: self.config.node.clone(),
            instance: self.instance,
            rtsp,
            token,
        })
    }

    fn is_own(&self, entry: &ChannelEntry) -> bool {
        entry.node == self.config.node && entry.instance == self.instance
    }

    fn step_down(&self, channel: &str, holder: Option<&ChannelEntry>) {
        if of_standby(channel).is_some() {
            return;
        }
        self.stats.stepped_down.fetch_add(1, Ordering::Relaxed);
        let (node, token) = holder.map_or(("another", 0), |it| (&*it.node, it.token));
        warn!(
            "cluster: channel {channel} is at node {node} by now, lease {token}: what comes of it \
             here is let go"
        );
    }

    /// Gives a claim back, with the lease if there is one.
    fn release(&self, state: &mut State, channel: &str) {
        let Some(slot) = state.claims.remove(channel) else {
            return;
        };
        let registry = state.registry.map(|it| it.at(monotonic_ns()));
        let revision = registry.and_then(|registry| slot.claim.revision(registry));
        let entry = self.channel_entry(channel, 0);
        if let Some((entry, revision)) = entry.zip(revision)
            && state.releases.len() < CLAIMS_MAX
        {
            state.releases.push(LeaseRequest::Release(entry, revision));
        }
    }

    fn lock_channels(&self) -> MutexGuard<'_, State> {
        lock(&self.channels.state)
    }

    /// Counts what there is now, and wakes who waits for it.
    fn channels_changed(&self, state: MutexGuard<'_, State>) {
        let now_ns = monotonic_ns();
        let is_channel = |name: &&String| of_standby(name).is_none();
        let held = state.claims.iter().filter(|(name, _)| is_channel(name));
        let held = held.filter(|(_, it)| matches!(it.claim.standing(now_ns), Standing::Holds(_)));
        let own = held.count() as u64;
        let others = state.others.keys().filter(is_channel).count() as u64;
        drop(state);
        self.stats.channels_held.store(own, Ordering::Relaxed);
        self.stats.channels.store(own + others, Ordering::Relaxed);
        self.channels.changed.send_modify(|changes| *changes += 1);
    }
}

impl KnownRegistry {
    const fn at(self, now_ns: u64) -> Registry {
        Registry {
            id: self.id,
            is_settled: now_ns >= self.settled_ns,
        }
    }
}

#[cfg(test)]
mod tests;
