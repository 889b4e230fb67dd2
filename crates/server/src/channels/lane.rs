//! One form of a stream on its way to its receivers: packets gather to trains, which leave to each
//! address of ours that has receivers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use onrush_sys::clock::monotonic_ns;
use onrush_sys::path::{TRAIN_BYTES_MAX, TRAIN_PACKETS_MAX};
use onrush_wire::live::{Train, TrainBuilder};
use onrush_wire::rtp::HEADER_BYTES;

use super::outlet::{Counts, Outlet};

/// One form of the stream and who gets it, by the address of ours that they get it from, with port
/// 0.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) builder: TrainBuilder,
    pub(super) outlets: BTreeMap<SocketAddr, Outlet>,
    /// What left through outlets and [lanes](Self::add_past) that are there no longer.
    pub(super) past: Counts,
    pub(super) trains: u64,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// From a train's arrival until all had it: added up, and at the longest.
    pub(super) passing_ns: (u64, u64),
}

impl Lane {
    pub(super) fn new() -> Self {
        Self {
            builder: TrainBuilder::new(TRAIN_PACKETS_MAX, TRAIN_BYTES_MAX),
            outlets: BTreeMap::new(),
            past: Counts::default(),
            trains: 0,
            packets: 0,
            bytes: 0,
            passing_ns: (0, 0),
        }
    }

    /// Takes a packet in, if anybody gets it. `false` if nobody can.
    pub(super) fn push(&mut self, head: &[u8], payload: &[u8], now_ns: u64) -> bool {
        self.packets += 1;
        self.bytes += (head.len() + payload.len()).saturating_sub(HEADER_BYTES) as u64;
        if self.receivers() == 0 {
            return true;
        }
        let Self {
            builder,
            outlets,
            trains,
            passing_ns,
            ..
        } = self;
        builder.push(head, payload, now_ns, |train| {
            send_train(&train, outlets, trains, passing_ns);
        })
    }

    pub(super) fn flush(&mut self) {
        let Self {
            builder,
            outlets,
            trains,
            passing_ns,
            ..
        } = self;
        builder.flush(|train| send_train(&train, outlets, trains, passing_ns));
    }

    /// Goes on with the counters of a lane that is there no longer.
    pub(super) fn add_past(&mut self, left: &Self) {
        self.past += left.counts();
        self.trains += left.trains;
        self.passing_ns.0 += left.passing_ns.0;
        self.passing_ns.1 = self.passing_ns.1.max(left.passing_ns.1);
    }

    /// What left through all outlets.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = self.past;
        self.outlets.values().for_each(|it| counts += it.counts());
        counts
    }

    pub(super) fn receivers(&self) -> usize {
        self.outlets.values().map(Outlet::len).sum()
    }
}

fn send_train(
    train: &Train<'_>,
    outlets: &mut BTreeMap<SocketAddr, Outlet>,
    trains: &mut u64,
    passing_ns: &mut (u64, u64),
) {
    for outlet in outlets.values_mut().filter(|outlet| outlet.len() > 0) {
        outlet.send(train);
        *trains += 1;
        let passed_ns = monotonic_ns().saturating_sub(train.arrived_ns);
        *passing_ns = (passing_ns.0 + passed_ns, passing_ns.1.max(passed_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_outlive_a_lane_that_goes() {
        let lane = |trains, passing_ns| Lane {
            trains,
            passing_ns,
            past: Counts {
                packets: 10 * trains,
                ..Counts::default()
            },
            ..Lane::new()
        };
        let mut stays = lane(2, (5, 4));
        stays.add_past(&lane(3, (9, 6)));
        assert_eq!((stays.trains, stays.passing_ns), (5, (14, 6)));
        assert_eq!(stays.counts().packets, 50);
    }
}
