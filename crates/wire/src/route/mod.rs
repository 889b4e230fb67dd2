//! Which of many nodes serves what.
//!
//! Every node decides by itself, from what the registry told it last of the others, and all that
//! know the same decide the same: there is no node that others have to ask. [`Key`] and its score
//! are the hash that all agree on; [`Cluster`] stands on them and sends viewers where their film is
//! warm, and no node gets much more than its part; [`answer_pull`] says from whom a node takes a
//! channel that another one receives; [`Lease`] and [`Fence`], on which a [`Claim`] stands, see to
//! it that one node receives it. What nodes tell each other of themselves is an [`Entry`], and of a
//! channel a [`ChannelEntry`].

pub mod channel;
mod claim;
mod cluster;
pub mod entry;
mod hops;
mod key;
mod lease;
pub mod relay;

pub use channel::{ChannelEntry, ChannelEntryError};
pub use claim::{
    Claim, ClaimStep, Follow, LeaseAnswer, LeaseNews, LeaseRequest, Registry, Standing, follow,
};
pub use cluster::{Asked, Bounds, Cluster, Decision, Film, Node, Ranking};
pub use entry::{Addresses, Entry, EntryError, Scheme, WarmFilm, is_node_name};
pub use hops::{Trace, is_hop_parameter, redirects_of, with_redirects, with_trace};
pub use key::Key;
pub use lease::{Fence, Lease, LeaseTimes, Stale, Token};
pub use relay::{FedNode, PullAnswer, Puller, answer_pull};
