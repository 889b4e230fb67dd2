//! What the host of a virtual machine did during a soak, slice by slice: it takes the server's
//! processor away, or has another machine share its core and cache, so that the same work costs
//! more. Nothing is judged by that, and nothing excused: it is told beside the verdict.

use crate::load::account::STOLEN_PART_TOLD;
use crate::load::{Account, Slice};
use crate::stats::{Summary, ratio};

/// Of the slices, a third each are the first and the last.
const PARTS: usize = 3;

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Host {
    /// Slices in which it was looked at.
    pub(super) slices: usize,
    /// Of those, it took more than [`STOLEN_PART_TOLD`] of the processor in so many.
    pub(super) slices_robbed: usize,
    /// The most that it took of the processor in a slice, from 0 to 1.
    pub(super) stolen_part_max: f64,
    /// What a packet cost the threads that send, in ns: in the cheapest slice, in the middle one,
    /// in the dearest.
    pub(super) packet_ns: [f64; 3],
    /// The same in the first third of the slices, and in the last.
    pub(super) packet_ns_ends: [f64; 2],
}

impl Host {
    /// Of a soak's slices; `None` if it was so short that no packet was sent, or is from before
    /// this was looked at.
    pub(super) fn of(slices: &[Slice]) -> Option<Self> {
        let stolen = slices.iter().filter_map(stolen_part);
        let stolen: Vec<_> = stolen.collect();
        let costs: Vec<_> = slices.iter().filter_map(packet_ns).collect();
        let costs = Summary::of(&costs)?;
        let third = slices.len().div_ceil(PARTS);
        let (first, last) = (&slices[..third], &slices[slices.len() - third..]);
        Some(Self {
            slices: stolen.len(),
            slices_robbed: stolen
                .iter()
                .filter(|&&part| part > STOLEN_PART_TOLD)
                .count(),
            stolen_part_max: stolen.iter().copied().reduce(f64::max)?,
            packet_ns: [costs.min, costs.median, costs.max],
            packet_ns_ends: [packet_ns_of_all(first), packet_ns_of_all(last)],
        })
    }

    /// For people.
    pub(super) fn in_words(&self) -> String {
        let [least, middle, greatest] = self.packet_ns;
        let [first, last] = self.packet_ns_ends;
        let told = STOLEN_PART_TOLD * 100.0;
        let most = self.stolen_part_max * 100.0;
        format!(
            "the host took more than {told:.0} % of the server's processor in {} of {} slices, \
             {most:.0} % at the most; a packet cost {middle:.0} ns ({least:.0} to {greatest:.0}), \
             {first:.0} in the first third and {last:.0} in the last",
            self.slices_robbed, self.slices
        )
    }
}

/// The part of the server's processor that the host took in a slice; `None` if nobody looked.
pub(super) fn stolen_part(slice: &Slice) -> Option<f64> {
    slice.account.as_ref()?.stolen_part()
}

/// What a packet cost the threads that send in a slice, in ns; `None` if nobody looked, or none
/// came.
pub(super) fn packet_ns(slice: &Slice) -> Option<f64> {
    let account = slice.account.as_ref()?;
    (slice.packets > 0).then(|| ratio(account.send_ns(), slice.packets))
}

fn packet_ns_of_all(slices: &[Slice]) -> f64 {
    let accounts = slices.iter().filter_map(|slice| slice.account.as_ref());
    let send_ns = accounts.map(Account::send_ns).sum();
    let packets: u64 = slices.iter().map(|slice| slice.packets).sum();
    ratio(send_ns, packets.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slices of 1000 ns and ten packets each: what the host took of it, and what sending took.
    fn slices(slices: &[(Option<u64>, u64)]) -> Vec<Slice> {
        let slice = |&(stolen_ns, send_ns): &(Option<u64>, u64)| Slice {
            packets: 10,
            account: Some(Account {
                wall_ns: 1000,
                stolen_ns,
                threads: [("onrush-send".to_owned(), send_ns)].into(),
                ..Account::default()
            }),
            ..Slice::default()
        };
        slices.iter().map(slice).collect()
    }

    #[test]
    fn robbed_slices_are_counted_and_costs_of_both_ends_shown() {
        let these = [
            (Some(0), 600),
            (Some(20), 800),
            (Some(21), 900),
            (Some(400), 1500),
            (Some(0), 1700),
        ];
        let host = Host::of(&slices(&these)).unwrap();
        assert_eq!((host.slices, host.slices_robbed), (5, 2));
        assert_eq!(host.packet_ns, [60.0, 90.0, 170.0]);
        assert_eq!(host.packet_ns_ends, [70.0, 160.0]);
        let words = host.in_words();
        for part in [
            "in 2 of 5 slices, 40 %",
            "90 ns (60 to 170), 70 in",
            "and 160 in",
        ] {
            assert!(words.contains(part), "{words}");
        }
    }

    #[test]
    fn of_what_nobody_looked_at_nothing_is_said() {
        assert_eq!(Host::of(&[]), None);
        assert_eq!(Host::of(&slices(&[(None, 5); 3])), None);
        let mut silent = slices(&[(Some(0), 5)]);
        silent[0].packets = 0;
        assert_eq!(Host::of(&silent), None);
        let mut old = slices(&[(Some(0), 5)]);
        old[0].account = None;
        assert_eq!(Host::of(&old), None);
    }
}
