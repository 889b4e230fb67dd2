//! Which members a packet can be cloned for.

use std::net::IpAddr;

/// What packets must have in common to be clones of each other but for their destination.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) struct LaneKey {
    pub(super) ifindex: u32,
    pub(super) source: IpAddr,
    /// Of the route, where that is less than the device's.
    pub(super) mtu_bytes: Option<u32>,
}

/// Lanes for the MTUs of routes. What is on the way tells those (ICMP), and so could anybody: for
/// what has none there is always room.
pub(super) const MTU_LANES_MAX: usize = 16;

impl LaneKey {
    /// Whether there is room for a lane of this key beside those, of which there may be so many.
    pub(super) fn has_room(&self, lanes: impl Iterator<Item = Self>, lanes_max: usize) -> bool {
        let (mut all, mut of_mtus) = (0, 0);
        for lane in lanes {
            all += 1;
            of_mtus += usize::from(lane.mtu_bytes.is_some());
        }
        all < lanes_max && (self.mtu_bytes.is_none() || of_mtus < MTU_LANES_MAX)
    }
}
