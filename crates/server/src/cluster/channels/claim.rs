//! A claim of a channel, for whoever made it.

use std::fmt;

use onrush_sys::clock::monotonic_ns;
use onrush_wire::route::channel::standby_of;
use onrush_wire::route::{ChannelEntry, LeaseRequest, Standing};
use tokio::time::timeout;

use super::{CLAIM_TIME_MAX, ChannelClaim};

impl ChannelClaim {
    /// How it stands now.
    pub(crate) fn standing(&self) -> Standing {
        let state = self.member.lock_channels();
        let slot = state.claims.get(&self.channel);
        slot.map_or(Standing::Open, |slot| slot.claim.standing(monotonic_ns()))
    }

    /// The other node that has the channel, if one has.
    pub(crate) fn refused(&self) -> Option<ChannelEntry> {
        match self.standing() {
            Standing::Refused(holder) => Some(holder),
            _ => None,
        }
    }

    /// Claims another name.
    pub(crate) fn claim_other(&self, channel: &str) -> Option<Self> {
        self.member.claim(channel)
    }

    /// Gives the lease up if another node has a standby of the channel, which goes on then; whether
    /// it does. This node claims it again if that one does not come.
    pub(crate) fn give_up_to_standby(&self) -> bool {
        let member = &self.member;
        let mut state = member.lock_channels();
        let now_ns = monotonic_ns();
        let has_standby = state.others.contains_key(&standby_of(&self.channel));
        let registry = state.registry.map(|it| it.at(now_ns));
        let (true, Some(registry)) = (has_standby, registry) else {
            return false;
        };
        let slot = state.claims.get_mut(&self.channel);
        let revision = slot.and_then(|slot| slot.claim.give_up(registry, now_ns));
        let entry = member.channel_entry(&self.channel, 0);
        let (Some(entry), Some(revision)) = (entry, revision) else {
            return false;
        };
        state.releases.push(LeaseRequest::Release(entry, revision));
        member.channels_changed(state);
        member.channels.requests.notify_one();
        true
    }

    /// Who refuses it, once the registry has answered. Not waited for while it is not reached, or
    /// leases are not taken there yet, or longer than [`CLAIM_TIME_MAX`]: then it is as if nobody
    /// had the channel, and is found out later.
    pub(crate) async fn settled(&self) -> Option<ChannelEntry> {
        let mut changes = self.member.channels.changed.subscribe();
        let settled = async {
            while self.is_open() {
                if changes.changed().await.is_err() {
                    break;
                }
            }
        };
        drop(timeout(CLAIM_TIME_MAX, settled).await);
        self.refused()
    }

    /// Whether the registry has yet to answer, and is going to.
    pub(crate) fn is_open(&self) -> bool {
        let can_be = {
            let state = self.member.lock_channels();
            let now_ns = monotonic_ns();
            let registry = state.registry.map(|it| it.at(now_ns));
            state.reached_ns.is_some() && registry.is_some_and(|it| it.is_settled)
        };
        can_be && self.standing() == Standing::Open
    }
}

impl Drop for ChannelClaim {
    fn drop(&mut self) {
        let mut state = self.member.lock_channels();
        let Some(slot) = state.claims.get_mut(&self.channel) else {
            return;
        };
        slot.count -= 1;
        if slot.count == 0 {
            self.member.release(&mut state, &self.channel);
        }
        self.member.channels_changed(state);
        self.member.channels.requests.notify_one();
    }
}

impl fmt::Debug for ChannelClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChannelClaim").field(&self.channel).finish()
    }
}
