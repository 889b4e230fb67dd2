//! Schedules that arrange themselves: k and t from what transfers were seen to cost.
//!
//! The paper chose (k, t) by hand, from the disk's seek time and the processor's time slice, and
//! found no rule that held for more than one number of transfers. Here the schedule follows from
//! one wish: how much of the processor is to be left to others. What a byte costs is measured as it
//! is sent, with all that its sending drags along; so the rate that all transfers together may have
//! is known, each gets an equal part, and k is as large as a period of a few milliseconds allows,
//! because few large steps cost less than many small ones. The larger k makes bytes cheaper, which
//! raises the rate, until k has no more to give: there it settles.
//!
//! It is a promise of the least that others have. Where they want more of the processor than that,
//! its scheduler decides.
//!
//! A line that is slower than that rate is never held up by it, and a processor that nobody else
//! wants is left idle all the same: the wish is a promise to others, not a guess about them.

use super::schedule::Rate;

/// How long a round of all transfers is to take, in ns. Short enough that a peer notices nothing,
/// long enough that timers of a millisecond serve.
const PERIOD_NS: u64 = 8_000_000;

/// Bytes of a set at the least and at the most.
const SET_BYTES: (u64, u64) = (16 << 10, 1 << 20);

/// Bytes to be read ahead of a transfer, at the least and at the most.
pub const AHEAD_BYTES: (u64, u64) = (1 << 20, 8 << 20);

/// What a new observation weighs against all before it.
const WEIGHT: f64 = 0.25;

/// The largest share that may be asked for others; beyond it transfers would hardly move.
pub const LEFT_TO_OTHERS_MAX: f64 = 0.99;

/// What was seen in a stretch of time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Processor time that the thread has used.
    pub cpu_ns: u64,
    /// Bytes that sockets have taken.
    pub sent_bytes: u64,
    /// Transfers that ran.
    pub transfers: u64,
    /// The longest that one of them waited for a disk.
    pub disk_ns: u64,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arranged {
    /// What all transfers together may send.
    pub rate: Rate,
    /// k: what one of them sends without pause. t follows: until all others have had as much.
    pub set_bytes: u64,
    /// What is read from the disk ahead of a transfer.
    pub ahead_bytes: u64,
}

/// Arranges the schedule of all transfers of a thread.
#[derive(Clone, Debug)]
pub struct Adaptive {
    left_to_others: f64,
    ns_per_byte: Option<f64>,
    disk_ns: f64,
}

impl Adaptive {
    /// Leaves this part of the processor to others, from 0 to [`LEFT_TO_OTHERS_MAX`]; more or less
    /// is taken as the nearest of these.
    #[must_use]
    pub fn new(left_to_others: f64) -> Self {
        Self {
            left_to_others: left_to_others.clamp(0.0, LEFT_TO_OTHERS_MAX),
            ns_per_byte: None,
            disk_ns: 0.0,
        }
    }

    /// Takes in what was seen, and arranges what follows. Where nothing was sent, nothing was
    /// learned.
    pub fn observe(&mut self, seen: Seen) -> Option<Arranged> {
        if seen.sent_bytes == 0 {
            return None;
        }
        let ns_per_byte = float(seen.cpu_ns.max(1)) / float(seen.sent_bytes);
        let ns_per_byte = match self.ns_per_byte {
            None => ns_per_byte,
            Some(before) => before + WEIGHT * (ns_per_byte - before),
        };
        self.ns_per_byte = Some(ns_per_byte);
        self.disk_ns += WEIGHT * (float(seen.disk_ns) - self.disk_ns);
        let bytes_a_second = (1.0 - self.left_to_others) * 1e9 / ns_per_byte;
        let period_bytes = bytes_a_second * float(PERIOD_NS) / 1e9;
        let each_a_second = bytes_a_second / float(seen.transfers.max(1));
        let set_bytes = whole(period_bytes / float(seen.transfers.max(1)));
        let set_bytes = set_bytes.clamp(SET_BYTES.0, SET_BYTES.1);
        Some(Arranged {
            rate: Rate {
                bytes_a_second: whole(bytes_a_second),
                // A period's worth: a timer that is late by that is made up for.
                burst_bytes: whole(period_bytes).max(set_bytes),
            },
            set_bytes,
            // Twice what is sent while the disk is waited for.
            ahead_bytes: whole(2.0 * each_a_second * self.disk_ns / 1e9)
                .clamp(AHEAD_BYTES.0, AHEAD_BYTES.1),
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "times and sizes below 2^52")]
fn float(number: u64) -> f64 {
    number as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and a cast of more than fits gives the most"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A machine on which a step costs so much, and each byte of it so much.
    #[derive(Clone, Copy, Debug)]
    struct Machine {
        step_ns: f64,
        byte_ns: f64,
        transfers: u64,
        /// What the line carries.
        line: f64,
    }

    impl Machine {
        /// 20 ms under what was arranged: what is seen, and which part of the processor was used.
        fn run(self, arranged: Option<Arranged>) -> (Seen, f64) {
            let (rate, set) = arranged.map_or((1e12, 65_536.0), |arranged| {
                (
                    float(arranged.rate.bytes_a_second),
                    float(arranged.set_bytes),
                )
            });
            let byte_ns = self.byte_ns + self.step_ns / set;
            // It cannot use more than there is.
            let bytes = (rate.min(self.line).min(1e9 / byte_ns)) * 0.020;
            let seen = Seen {
                cpu_ns: whole(bytes * byte_ns),
                sent_bytes: whole(bytes),
                transfers: self.transfers,
                disk_ns: 0,
            };
            (seen, bytes * byte_ns / 20e6)
        }
    }

    #[test]
    fn nothing_sent_is_nothing_learned() {
        let mut adaptive = Adaptive::new(0.5);
        let nothing = Seen {
            cpu_ns: 5_000_000,
            transfers: 3,
            ..Seen::default()
        };
        assert_eq!(adaptive.observe(nothing), None);
    }

    #[test]
    fn a_slow_disk_is_read_further_ahead() {
        let seen = |disk_ns| Seen {
            cpu_ns: 1_000_000,
            sent_bytes: 10_000_000,
            transfers: 1,
            disk_ns,
        };
        let ahead = |disk_ns| {
            let mut adaptive = Adaptive::new(0.5);
            let arranged = (0..50).map(|_| adaptive.observe(seen(disk_ns)));
            arranged
                .last()
                .flatten()
                .expect("bytes were sent")
                .ahead_bytes
        };
        assert_eq!(ahead(0), AHEAD_BYTES.0);
        // 5 GB a second for 400 us, twice.
        assert!(
            (3_900_000..4_100_000).contains(&ahead(400_000)),
            "{}",
            ahead(400_000)
        );
        assert_eq!(ahead(1_000_000_000), AHEAD_BYTES.1);
    }

    #[test]
    fn no_share_and_too_large_a_share_are_the_nearest_that_work() {
        let seen = Seen {
            cpu_ns: 1000,
            sent_bytes: 1000,
            transfers: 1,
            disk_ns: 0,
        };
        let rate = |left| {
            Adaptive::new(left)
                .observe(seen)
                .expect("sent")
                .rate
                .bytes_a_second
        };
        assert_eq!(rate(-1.0), 1_000_000_000);
        assert!(rate(LEFT_TO_OTHERS_MAX) < 10_000_001);
        assert_eq!(rate(LEFT_TO_OTHERS_MAX + 0.001), rate(LEFT_TO_OTHERS_MAX));
    }

    proptest! {
        /// On any machine, with any number of transfers: after ten seconds others have what they
        /// were promised, no more than that is held back, and nothing moves any more. Where a step
        /// costs fifty times what its bytes do, k is long in finding its place; after two seconds
        /// others have nearly what they were promised.
        #[test]
        fn it_settles_where_others_have_their_share(
            left in 0.05f64..0.95,
            step_ns in 0.0f64..20_000.0,
            byte_ns in 0.02f64..5.0,
            transfers in 1u64..500,
            line in 1e6f64..1e11,
        ) {
            let machine = Machine { step_ns, byte_ns, transfers, line };
            let (mut adaptive, mut arranged) = (Adaptive::new(left), None);
            let mut used = Vec::new();
            for _ in 0..500 {
                let (seen, part) = machine.run(arranged);
                arranged = adaptive.observe(seen).or(arranged);
                used.push(part);
            }
            for part in &used[100..] {
                prop_assert!(*part <= 1.0 - left + 0.05, "{part} of {left}");
            }
            let settled = &used[480..];
            let (least, most) = settled.iter().fold((1.0f64, 0.0f64), |(l, m), &x| (l.min(x),
                m.max(x)));
            prop_assert!(most - least < 0.01, "{settled:?}");
            prop_assert!(most <= 1.0 - left + 0.01, "{most} of {left}");
            // Unless the line is what holds it back.
            let of_line = line * (byte_ns + step_ns / float(arranged.unwrap().set_bytes)) / 1e9;
            prop_assert!(least >= (1.0 - left).min(of_line) - 0.02, "{least} {left} {of_line}");
        }
    }
}
