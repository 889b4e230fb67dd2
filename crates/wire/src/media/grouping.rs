//! Which packets leave together: a track's packets in their order as [bursts](Burst).

use super::plan::Burst;

/// How packets become bursts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// What is due within one interval of so long is due together.
    pub(super) burst_ns: u64,
    /// What is due so much later than a burst, or more, does not leave with it. It does if it is
    /// due earlier and its size allows one send; 0: only what is due together.
    pub(super) reach_ns: u64,
}

/// Takes packets one after the other, and says their bursts: of what is due together each stretch
/// of one size, with the first shorter one at its end.
#[derive(Clone, Debug)]
pub(super) struct Grouping {
    rule: Rule,
    next: u64,
    offset: u64,
    /// The interval in which the last burst began, and when that is due.
    interval: Option<(u64, u64)>,
    open: Option<Burst>,
}

impl Grouping {
    /// For packets from number `first` on.
    pub(super) fn new(first: u64, rule: Rule) -> Self {
        Self {
            rule,
            next: first,
            offset: 0,
            interval: None,
            open: None,
        }
    }

    /// Takes the next packet, by when it is due and the bytes of its image: the burst before it, if
    /// it is not of that.
    pub(super) fn push(&mut self, packet_due_ns: u64, image_bytes: usize) -> Option<Burst> {
        let bytes = image_bytes as u64;
        let (packet, offset) = (self.next, self.offset);
        self.next += 1;
        self.offset += bytes;
        let number = packet_due_ns / self.rule.burst_ns;
        let due_ns = match self.interval {
            Some((before, due_ns)) if before == number => due_ns,
            _ => packet_due_ns,
        };
        let reach_ns = self.rule.reach_ns;
        if let Some(burst) = &mut self.open
            && (burst.due_ns == due_ns || packet_due_ns < burst.due_ns.saturating_add(reach_ns))
            && burst.bytes == u64::from(burst.packets) * u64::from(burst.segment_bytes)
            && bytes <= burst.segment_bytes.into()
        {
            burst.packets += 1;
            burst.bytes += bytes;
            return None;
        }
        self.interval = Some((number, due_ns));
        self.open.replace(Burst {
            first: packet,
            packets: 1,
            due_ns,
            offset,
            bytes,
            segment_bytes: u16::try_from(image_bytes).expect("a packet is below 64 KiB"),
        })
    }

    /// The last burst.
    pub(super) fn end(self) -> Option<Burst> {
        self.open
    }
}

/// Appends to `out` the bursts of packets from `first` on, of which the due time and the bytes of
/// the image are given.
pub(super) fn group_bursts(
    first: u64,
    packets: impl Iterator<Item = (u64, usize)>,
    rule: Rule,
    out: &mut Vec<Burst>,
) {
    let mut grouping = Grouping::new(first, rule);
    for (due_ns, image_bytes) in packets {
        out.extend(grouping.push(due_ns, image_bytes));
    }
    out.extend(grouping.end());
}

/// How many bursts have so many packets. Those of more than [`BurstLengths::MOST`] count as several
/// of as many.
#[derive(Clone, Debug)]
pub(super) struct BurstLengths([u32; Self::MOST as usize]);

impl BurstLengths {
    const MOST: u32 = 64;

    pub(super) fn count(&mut self, burst: &Burst) {
        let mut packets = burst.packets;
        while packets > 0 {
            let length = packets.min(Self::MOST);
            let counted = &mut self.0[length as usize - 1];
            *counted = counted.saturating_add(1);
            packets -= length;
        }
    }

    /// Sends that they take if one carries at most so many packets.
    pub(super) fn sends(&self, packets_max: u32) -> u64 {
        let bursts = (1..).zip(&self.0);
        bursts
            .map(|(packets, &count): (u32, _)| {
                u64::from(packets.div_ceil(packets_max.max(1))) * u64::from(count)
            })
            .sum()
    }
}

impl Default for BurstLengths {
    fn default() -> Self {
        Self([0; Self::MOST as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BURST_NS: u64 = 20_000_000;

    /// First packet, packets and due time in ms of each burst.
    fn grouped(packets: &[(u64, usize)], reach_ms: u64) -> Vec<(u64, u32, u64)> {
        let rule = Rule {
            burst_ns: BURST_NS,
            reach_ns: reach_ms * 1_000_000,
        };
        let packets = packets.iter().map(|&(ms, bytes)| (ms * 1_000_000, bytes));
        let mut bursts = Vec::new();
        group_bursts(7, packets, rule, &mut bursts);
        let facts = bursts
            .iter()
            .map(|it| (it.first - 7, it.packets, it.due_ns / 1_000_000));
        facts.collect()
    }

    #[test]
    fn a_burst_is_of_one_interval_and_one_size() {
        let packets = [(0, 100), (5, 100), (19, 90), (19, 90), (20, 90), (41, 91)];
        let expected = [(0, 3, 0), (3, 1, 0), (4, 1, 20), (5, 1, 41)];
        assert_eq!(grouped(&packets, 0), expected);
    }

    #[test]
    fn a_burst_reaches_no_further_than_its_rule_says() {
        let packets = [(3, 100), (80, 100), (162, 90), (163, 90), (323, 90)];
        assert_eq!(
            grouped(&packets, 160),
            [(0, 3, 3), (3, 1, 163), (4, 1, 323)]
        );
        // Behind a shorter one, or if it is longer, a packet begins another.
        let packets = [(0, 100), (30, 90), (50, 90), (70, 91), (90, 91)];
        assert_eq!(grouped(&packets, 160), [(0, 2, 0), (2, 1, 50), (3, 2, 70)]);
    }

    #[test]
    fn what_cannot_leave_earlier_is_due_in_its_own_interval() {
        // The third is due in one interval with the second, which has left with the first.
        let packets = [(0, 100), (21, 90), (25, 95), (39, 96)];
        assert_eq!(grouped(&packets, 160), [(0, 2, 0), (2, 1, 25), (3, 1, 25)]);
    }

    #[test]
    fn sends_are_bursts_of_at_most_so_many_packets() {
        let mut lengths = BurstLengths::default();
        let burst = |packets| Burst {
            first: 0,
            packets,
            due_ns: 0,
            offset: 0,
            bytes: 1,
            segment_bytes: 1,
        };
        for packets in [1, 8, 9, 64, 65, 200] {
            lengths.count(&burst(packets));
        }
        let sends = |most: u32| [1_u32, 8, 9, 64, 65, 200].map(|it| u64::from(it.div_ceil(most)));
        assert_eq!(lengths.sends(8), sends(8).iter().sum::<u64>());
        assert_eq!(lengths.sends(64), sends(64).iter().sum::<u64>());
        assert_eq!(lengths.sends(1), 347);
    }
}
