//! Schedules of transfers: how much a file may move now, and when it is its turn again.
//!
//! Gupta, Baras, Kelley and Roussopoulos gave a transfer a schedule (k, t): k blocks without pause,
//! then a pause t. [`Sets`] is that. [`Bucket`] keeps a rate, [`Shares`] gives those who wait equal
//! shares. All are functions of times and events that the caller brings; none knows a file, a
//! socket or a clock.

use std::collections::BTreeSet;

/// How a transfer is cut in time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Schedule {
    /// As fast as the socket takes it, a quantum at a time, in equal shares with all others that
    /// do.
    #[default]
    Fair,
    /// The paper's: k blocks, then a pause.
    Fixed(Fixed),
    /// So many bytes a second.
    Rate(Rate),
    /// Arranged by what is seen, so that a part of the processor is left to others:
    /// [`super::adaptive`].
    Adaptive,
    /// Fair, and another schedule only while somebody else waits for the processor:
    /// [`super::yielding`].
    Yielding(Yield),
}

/// What holds while somebody waits for the processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Yield {
    /// k blocks, then a pause.
    Fixed(Fixed),
    /// A part of the processor is left to others, as [`Schedule::Adaptive`] does always.
    Share,
}

/// The paper's schedule (k, t).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fixed {
    /// Bytes of a block; 8192 in the paper.
    pub block_bytes: u32,
    /// k: blocks that are moved without pause.
    pub blocks: u32,
    /// t: the pause after them, from when the last of them was taken, in ns.
    pub pause_ns: u64,
}

/// A rate that is kept on average.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    /// Bytes a second.
    pub bytes_a_second: u64,
    /// Bytes that may leave at once after a silence.
    pub burst_bytes: u64,
}

/// What may be done now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grant {
    /// Up to so many bytes, at least one.
    Bytes(u64),
    /// Nothing before this time, in ns.
    Until(u64),
}

impl Fixed {
    /// Bytes of k blocks; at least one.
    #[must_use]
    pub fn set_bytes(self) -> u64 {
        (u64::from(self.block_bytes) * u64::from(self.blocks)).max(1)
    }
}

/// The state of a transfer under the schedule (k, t). In any stretch of time of length t it moves
/// at most k blocks: what of a set could not be sent yet holds back the pause, and with it the next
/// set.
#[derive(Clone, Debug)]
pub struct Sets {
    schedule: Fixed,
    left_bytes: u64,
    resume_ns: u64,
}

impl Sets {
    /// A transfer that has not begun.
    #[must_use]
    pub fn new(schedule: Fixed) -> Self {
        Self {
            schedule,
            left_bytes: schedule.set_bytes(),
            resume_ns: 0,
        }
    }

    /// What may be moved at `now_ns`.
    pub fn grant(&mut self, now_ns: u64) -> Grant {
        if now_ns < self.resume_ns {
            return Grant::Until(self.resume_ns);
        }
        Grant::Bytes(self.left_bytes)
    }

    /// So many bytes of what was granted were moved by `now_ns`.
    ///
    /// # Panics
    /// If it was more than that.
    pub fn spent(&mut self, now_ns: u64, bytes: u64) {
        assert!(bytes <= self.left_bytes, "more than was granted");
        self.left_bytes -= bytes;
        if self.left_bytes == 0 {
            self.left_bytes = self.schedule.set_bytes();
            self.resume_ns = now_ns.saturating_add(self.schedule.pause_ns);
        }
    }
}

/// A rate shared by any number of transfers, each of which reserves a slot and keeps to it. Slots
/// are given in the order they are asked for, so nobody starves; in any stretch of time of length
/// w, slots for at most `burst + rate * w` bytes begin (the generic cell rate algorithm of ITU-T
/// I.371).
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: Rate,
    /// When all that was reserved would have left, at the rate and not a byte sooner.
    filled_to_ns: u64,
}

impl Bucket {
    /// A bucket that nobody has drawn from. A rate or burst of 0 is taken as 1.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self {
            rate: Rate {
                bytes_a_second: rate.bytes_a_second.max(1),
                burst_bytes: rate.burst_bytes.max(1),
            },
            filled_to_ns: 0,
        }
    }

    /// The most bytes that one slot may have.
    #[must_use]
    pub fn slot_bytes_max(&self) -> u64 {
        self.rate.burst_bytes
    }

    /// Bytes of a slot that lets a rate be kept evenly: 20 ms of it, but no less than a page and no
    /// more than the burst.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        (self.rate.bytes_a_second / 50)
            .max(4096)
            .min(self.rate.burst_bytes)
    }

    /// Keeps another rate from now on. What was reserved keeps its time.
    pub fn change(&mut self, now_ns: u64, rate: Rate) {
        let before = self.rate;
        self.rate = Self::new(rate).rate;
        // What is still to leave of what was reserved leaves at the new rate.
        let ahead_ns = u128::from(self.filled_to_ns.saturating_sub(now_ns));
        let ahead_ns =
            ahead_ns * u128::from(before.bytes_a_second) / u128::from(self.rate.bytes_a_second);
        self.filled_to_ns = now_ns.saturating_add(u64::try_from(ahead_ns).unwrap_or(u64::MAX / 4));
    }

    /// Reserves a slot; when it begins.
    ///
    /// # Panics
    /// If `bytes` is more than [`Self::slot_bytes_max`].
    pub fn reserve(&mut self, now_ns: u64, bytes: u64) -> u64 {
        assert!(bytes <= self.rate.burst_bytes, "a slot fits into the burst");
        let filled_to_ns = self.filled_to_ns.max(now_ns) + self.ns_of(bytes);
        self.filled_to_ns = filled_to_ns;
        let burst_ns = self.rate.burst_bytes.saturating_mul(NS) / self.rate.bytes_a_second;
        filled_to_ns.saturating_sub(burst_ns).max(now_ns)
    }

    /// Gives back what of a slot was not used, for those who come later.
    pub fn refund(&mut self, bytes: u64) {
        // Less by one: reserving rounds up, and what is given back must not be more than was taken.
        let ns = self.ns_of(bytes).saturating_sub(1);
        self.filled_to_ns = self.filled_to_ns.saturating_sub(ns);
    }

    /// Rounded up, so that the rate is never exceeded.
    fn ns_of(&self, bytes: u64) -> u64 {
        let ns = (u128::from(bytes) * u128::from(NS)).div_ceil(self.rate.bytes_a_second.into());
        u64::try_from(ns).unwrap_or(u64::MAX / 4)
    }
}

const NS: u64 = 1_000_000_000;

/// A member of [`Shares`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Member(u32);

impl Member {
    /// Its number, from 0, less than there have ever been members at once.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Equal shares for those who wait, by start-time fair queueing (Goyal, Vin and Cheng, 1996):
/// whoever has moved least goes next, and who had nothing to wait for meanwhile gets no credit for
/// it. Two that wait all the time never come to be further apart than the largest turn.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    /// What the turn that was taken last began at, in bytes of each one's share.
    now: u64,
    waiting: BTreeSet<(u64, Member)>,
    members: Vec<Share>,
    free: Vec<Member>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    /// What its last turn ended at.
    end: u64,
    /// What its next turn begins at, while it waits for it.
    waits_at: Option<u64>,
}

impl Shares {
    /// Takes in a member.
    ///
    /// # Panics
    /// If there are 2^32 already.
    pub fn join(&mut self) -> Member {
        if let Some(member) = self.free.pop() {
            return member;
        }
        let number = u32::try_from(self.members.len()).expect("fewer than 2^32 members");
        self.members.push(Share::default());
        Member(number)
    }

    /// Lets a member go.
    pub fn leave(&mut self, member: Member) {
        self.withdraw(member);
        self.members[member.index()].end = 0;
        self.free.push(member);
    }

    /// The member waits for a turn.
    pub fn wait(&mut self, member: Member) {
        let at = self.begin(member);
        self.members[member.index()].waits_at = Some(at);
        self.waiting.insert((at, member));
    }

    /// The member waits no longer.
    pub fn withdraw(&mut self, member: Member) {
        if let Some(at) = self.members[member.index()].waits_at.take() {
            self.waiting.remove(&(at, member));
        }
    }

    /// Whose turn it is of those who wait.
    #[must_use]
    pub fn next(&self) -> Option<Member> {
        self.waiting.first().map(|&(_, member)| member)
    }

    /// The member has moved so many bytes, and waits no longer. Without having waited for its turn
    /// it is charged all the same.
    pub fn spent(&mut self, member: Member, bytes: u64) {
        let begin = self.begin(member);
        self.withdraw(member);
        // Who goes first defines what has been had by all; who jumps the queue does not.
        if self.waiting.first().is_none_or(|&(at, _)| at >= begin) {
            self.now = self.now.max(begin);
        }
        self.members[member.index()].end = begin + bytes;
    }

    /// What the member's next turn begins at.
    fn begin(&self, member: Member) -> u64 {
        let share = self.members[member.index()];
        share.waits_at.unwrap_or_else(|| share.end.max(self.now))
    }

    /// How many members there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How even shares are: 1 if all are equal, 1/n if one of n has all (Jain, Chiu and Hawe, 1984). 1
/// without any.
#[must_use]
pub fn jain(shares: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum, squares) = shares
        .into_iter()
        .fold((0.0, 0.0, 0.0), |(n, s, q), x| (n + 1.0, s + x, q + x * x));
    if squares == 0.0 {
        1.0
    } else {
        sum * sum / (count * squares)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The most bytes that begin in any stretch of `window_ns`, both ends counted in or only the
    /// first.
    fn most_in(moved: &[(u64, u64)], window_ns: u64, closed: bool) -> u64 {
        let within = |at: u64, from: u64| at >= from && (at - from < window_ns + u64::from(closed));
        moved
            .iter()
            .map(|&(from, _)| {
                let of = moved.iter().filter(|&&(at, _)| within(at, from));
                of.map(|&(_, bytes)| bytes).sum()
            })
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn k_blocks_then_a_pause_from_the_last_of_them() {
        let mut sets = Sets::new(Fixed {
            block_bytes: 8192,
            blocks: 3,
            pause_ns: 70,
        });
        assert_eq!(sets.grant(5), Grant::Bytes(3 * 8192));
        sets.spent(6, 8192);
        assert_eq!(sets.grant(1000), Grant::Bytes(2 * 8192));
        sets.spent(1000, 2 * 8192);
        assert_eq!(sets.grant(1069), Grant::Until(1070));
        assert_eq!(sets.grant(1070), Grant::Bytes(3 * 8192));
    }

    #[test]
    #[should_panic(expected = "more than was granted")]
    fn more_than_k_is_our_own_bug() {
        let mut sets = Sets::new(Fixed {
            block_bytes: 1,
            blocks: 3,
            pause_ns: 1,
        });
        sets.spent(0, 4);
    }

    #[test]
    fn a_bucket_lets_a_burst_go_and_then_its_rate() {
        let mut bucket = Bucket::new(Rate {
            bytes_a_second: 1000,
            burst_bytes: 500,
        });
        let second = 1_000_000_000;
        assert_eq!(bucket.reserve(7 * second, 500), 7 * second);
        assert_eq!(bucket.reserve(7 * second, 100), 7 * second + second / 10);
        bucket.refund(100);
        let again = bucket.reserve(7 * second, 100);
        assert!(again >= 7 * second + second / 10 && again < 7 * second + second / 10 + 10);
        assert_eq!(bucket.reserve(60 * second, 500), 60 * second);
    }

    #[test]
    #[should_panic(expected = "fits into the burst")]
    fn a_slot_of_a_byte_more_than_the_burst_is_our_own_bug() {
        let rate = Rate {
            bytes_a_second: 1000,
            burst_bytes: 500,
        };
        Bucket::new(rate).reserve(0, 501);
    }

    #[test]
    fn evenness_is_one_for_equals_and_a_share_for_one_who_has_all() {
        assert!((jain([5.0; 7]) - 1.0).abs() < 1e-9);
        assert!((jain([1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
        assert!((jain([]) - 1.0).abs() < 1e-9);
    }

    proptest! {
        /// Whatever the socket takes of each grant, and whenever it is asked: never more than k per
        /// t, and never a grant that is put off twice.
        #[test]
        fn never_more_than_k_per_t(
            blocks in 1u32..9,
            pause_ns in 1u64..50,
            steps in prop::collection::vec((0u64..30, 0u64..300), 1..200),
        ) {
            let fixed = Fixed { block_bytes: 10, blocks, pause_ns };
            let (mut sets, mut now_ns, mut moved) = (Sets::new(fixed), 0, Vec::new());
            for (later_ns, taken_percent) in steps {
                now_ns += later_ns;
                if let Grant::Until(until_ns) = sets.grant(now_ns) {
                    prop_assert!(until_ns > now_ns && until_ns <= now_ns + pause_ns);
                    now_ns = until_ns;
                }
                let Grant::Bytes(bytes) = sets.grant(now_ns) else {
                    return Err(TestCaseError::fail("put off twice"));
                };
                prop_assert!(bytes > 0);
                let taken = (bytes * taken_percent / 100).min(bytes);
                sets.spent(now_ns, taken);
                moved.push((now_ns, taken));
            }
            prop_assert!(most_in(&moved, pause_ns, false) <= fixed.set_bytes());
        }

        /// Never more than the burst and the rate in any stretch; every slot begins; equals get
        /// equal shares.
        #[test]
        fn a_bucket_keeps_its_rate_and_lets_nobody_starve(
            bytes_a_second in 1u64..2_000_000,
            burst_bytes in 1000u64..20_000,
            steps in prop::collection::vec((0u64..5_000_000, 1u64..1000, 0u8..3), 1..150),
        ) {
            let mut bucket = Bucket::new(Rate { bytes_a_second, burst_bytes });
            let (mut now_ns, mut moved, mut last_ns) = (0, Vec::new(), 0);
            for (later_ns, bytes, used) in steps {
                now_ns += later_ns;
                let begin_ns = bucket.reserve(now_ns, bytes);
                prop_assert!(begin_ns >= now_ns);
                if used == 0 {
                    bucket.refund(bytes);
                } else {
                    prop_assert!(begin_ns >= last_ns, "in the order of asking");
                    last_ns = begin_ns;
                    moved.push((begin_ns, bytes));
                }
            }
            for window_ns in [0, 1_000_000, 77_000_000, 3_000_000_000] {
                let rate_bytes = u128::from(bytes_a_second) * u128::from(window_ns) / 1_000_000_000;
                let most = u64::try_from(rate_bytes).unwrap() + burst_bytes + 1;
                prop_assert!(most_in(&moved, window_ns, true) <= most);
            }
        }

        /// Those who always wait are never further apart than the largest turn, whoever comes, goes
        /// or jumps the queue meanwhile; so equals are even.
        #[test]
        fn shares_are_equal_and_nobody_starves(
            members in 2usize..40,
            turns in prop::collection::vec((1u64..=1000, 0u8..10), 2000),
        ) {
            let mut shares = Shares::default();
            let always: Vec<_> = (0..members).map(|_| shares.join()).collect();
            let mut had = vec![0u64; members];
            let guest = shares.join();
            for (bytes, event) in turns {
                for &member in &always {
                    shares.wait(member);
                }
                match event {
                    0 => shares.wait(guest),
                    1 => shares.withdraw(guest),
                    2 => shares.spent(guest, bytes),
                    _ => {}
                }
                let next = shares.next().expect("somebody waits");
                shares.spent(next, bytes);
                if let Some(place) = always.iter().position(|&member| member == next) {
                    had[place] += bytes;
                }
                let (least, most) = (had.iter().min().unwrap(), had.iter().max().unwrap());
                prop_assert!(most - least <= 1000, "{had:?}");
            }
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let index = jain(had.iter().map(|&bytes| bytes as f64));
            prop_assert!(members > 20 || index >= 0.99, "{index} of {had:?}");
        }
    }
}
