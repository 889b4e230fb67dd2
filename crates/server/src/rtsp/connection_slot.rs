//! A connection's place among those that there may be.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use super::Control;
use crate::network::network;

/// A connection's place among those that may be.
pub(super) struct ConnectionSlot {
    pub(super) control: Rc<Control>,
    pub(super) peer: SocketAddr,
}

impl ConnectionSlot {
    pub(super) fn take(control: &Rc<Control>, peer: SocketAddr) -> Option<Self> {
        let client = network(peer.ip());
        let bounds = &control.statistics.bounds;
        let mut connections = control.connections.borrow_mut();
        let all = control.statistics.connections.load(Ordering::Relaxed);
        let of_address = connections.get(&client).copied().unwrap_or(0);
        if all >= bounds.connections_max.load(Ordering::Relaxed)
            || of_address >= bounds.connections_per_address_max.load(Ordering::Relaxed)
            || !control.has_files(all + 1, 0)
        {
            return None;
        }
        connections.insert(client, of_address + 1);
        control
            .statistics
            .connections
            .store(all + 1, Ordering::Relaxed);
        Some(Self {
            control: Rc::clone(control),
            peer,
        })
    }

    /// Whose it is.
    pub(super) fn ip(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut connections = self.control.connections.borrow_mut();
        let client = network(self.peer.ip());
        let of_address = connections.get_mut(&client).expect("it was counted in");
        *of_address -= 1;
        if *of_address == 0 {
            connections.remove(&client);
        }
        self.control
            .statistics
            .connections
            .fetch_sub(1, Ordering::Relaxed);
    }
}
