//! Whether viewers of all nodes are to get what a publisher sends: in a cluster one node has a
//! channel, and what comes of it elsewhere stands by.

use std::sync::Arc;

use onrush_wire::route::channel::standby_of;

use crate::cluster::{ChannelClaim, ClusterMember};

/// By what an ingest is sent to viewers.
#[derive(Clone, Debug)]
pub(crate) enum Right {
    /// There is no cluster, or none that it is about.
    Always,
    /// A publisher of this node has it, unless another node has the channel's lease.
    Claim(Arc<ChannelClaim>),
    /// What is taken from the node that has the lease has it, as long as that is not this one.
    OfNode(Arc<ClusterMember>),
}

/// The lease of a channel's standby, for as long as one of this node stands by.
#[derive(Debug, Default)]
pub(super) struct Seat(Option<ChannelClaim>);

impl Right {
    pub(crate) fn is_held(&self, path: &str) -> bool {
        match self {
            Self::Always => true,
            Self::Claim(claim) => claim.refused().is_none(),
            Self::OfNode(member) => !member.holds(path),
        }
    }

    /// The claim of a publisher of this node.
    pub(super) fn claim(&self) -> Option<&Arc<ChannelClaim>> {
        match self {
            Self::Claim(claim) => Some(claim),
            Self::Always | Self::OfNode(_) => None,
        }
    }
}

impl Seat {
    /// Takes the lease of a standby over that was claimed before it came.
    pub(super) fn take(&mut self, claim: ChannelClaim) {
        self.0.get_or_insert(claim);
    }

    /// Has the lease if one of these publishers of the channel stands by: two are here, or one
    /// whose channel another node has. Whether it can stay: not where another node's standby is
    /// first.
    pub(super) fn tend<'a>(
        &mut self,
        path: &str,
        mut claims: impl Iterator<Item = &'a Arc<ChannelClaim>>,
    ) -> bool {
        let (first, second) = (claims.next(), claims.next());
        let is_needed = match (first, second) {
            (None, _) => false,
            (Some(_), Some(_)) => true,
            (Some(only), None) => only.refused().is_some(),
        };
        match (is_needed, first) {
            (true, Some(claim)) if self.0.is_none() => {
                self.0 = claim.claim_other(&standby_of(path));
            }
            (false, _) => self.0 = None,
            _ => {}
        }
        // Two whose channel another node has are one too many.
        if second.is_some() && first.is_some_and(|claim| claim.refused().is_some()) {
            return false;
        }
        let seat = self.0.as_ref();
        seat.is_none_or(|seat| seat.refused().is_none())
    }
}
