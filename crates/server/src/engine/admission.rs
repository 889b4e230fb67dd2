//! Whether an engine can take one more stream without making others late.
//!
//! What a stream asks of an engine is known before it plays: so many trains and packets a second,
//! all its life. What they cost is not: it depends on the machine, the device and on how many there
//! are. So it is taken from the engine's own clock, again each second: processor time divided by
//! what was sent for it, and of late the dearest second counts. Streams that are paused count as if
//! they played, because they may at any moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onrush_wire::media::Plan;
use onrush_wire::pace::Speed;

use super::STREAM_RATE_MAX;
use super::trains::{OWN_HEADERS_PACKETS, images_per_train};

/// What a thousandth of a train is reckoned to cost, in ps, before anything was sent: about what it
/// does in crowds on the machines that this was written on, where a train of eight packets costs
/// 0.7 to 1.5 us.
const PRICE_PS_FIRST: u64 = 1200;

/// Work that the first reckoning counts for beside what was measured in a second. A few streams say
/// little: most of what they cost is the engine's waking up.
const WORK_FIRST: u64 = 20_000_000;

/// Work of a train, in thousandths of a train.
pub(super) const TRAIN_WORK: u64 = 1000;

/// Work of a packet in a train: what it is worth to a processor, where a device cuts trains a
/// fiftieth of a train, where the kernel does a half. It matters only where streams of different
/// rates meet.
const PACKET_WORK: u64 = 50;

/// Work that a connection counts for where engines are compared: half of what it takes to send 25
/// pictures and 47 frames of sound a second of a live channel on it. A film on it counts by itself.
const CONNECTION_WORK: u64 = 36 * TRAIN_WORK;

/// Of 1000 bursts of a second, so many may be late, and so many in any case.
const LATE_MAX_PERMILLE: u64 = 1;
const LATE_MAX: u64 = 100;

/// Of the bursts of a second, so much may have been joined to the one before: a tenth. More, and
/// the processor is not enough even for those who play.
const JOINED_MAX_SHARE: u64 = 10;

/// What the price of a second before counts for in the next: seven eighths. A price may go down
/// slowly, but goes up at once, because whoever is let in stays.
const PRICE_KEPT: (u64, u64) = (7, 8);

/// After so many seconds with more, no more streams are taken until one without.
const LATE_SECONDS_MAX: u64 = 3;

/// Of 1000, what an engine's own work takes of its processor at the least where its being held up
/// is its doing. Below that others hold it up, and nobody is on time for it that somebody is
/// refused or left out.
const OWN_LOAD_MIN: u64 = 400;

/// The bound on an engine's load that is none.
pub const LOAD_UNLIMITED: u64 = u64::MAX;

/// A burst that leaves so much too late is late.
pub const LATE_NS: i64 = 20_000_000;

/// What a stream asks of its engine, in thousandths of a train a second. It has as many bits as are
/// kept of it: what is given back is what was promised, also where a stream asks for more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Demand(u32);

/// What an engine has promised and what it can keep. Control counts streams in and out; the worker
/// tells the price.
#[derive(Debug)]
pub struct Admission {
    /// The demand of all streams.
    promised: AtomicU64,
    /// What a thousandth of a train costs, in ps; that of the dearest second of late.
    price_ps: AtomicU64,
    /// How busy the worker was in the last second, in ns of processor time.
    busy_ns: AtomicU64,
    /// For how many seconds more were late, or joined, than may be.
    late_seconds: AtomicU64,
    /// The same, without what others did who held the engine up.
    own_late_seconds: AtomicU64,
    /// Some of those who were let in are left out already.
    is_shedding: AtomicBool,
}

/// Of a worker's counters, those that the price is made of.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    pub(super) at_ns: u64,
    pub(super) cpu_ns: u64,
    pub(super) trains: u64,
    pub(super) packets: u64,
    pub(super) bursts: u64,
    pub(super) bursts_late: u64,
    pub(super) bursts_joined: u64,
    /// Of the late ones, those that waited for nothing but the worker.
    pub(super) bursts_held_up: u64,
}

impl Demand {
    /// So many thousandths of a train a second.
    pub(super) const fn new(work: u32) -> Self {
        Self(work)
    }

    /// The same number.
    pub(super) const fn thousandths(self) -> u32 {
        self.0
    }

    /// What playing `plan` asks for, in bursts of `burst_ns`.
    pub(super) fn of(plan: &Plan, burst_ns: u64) -> Self {
        let segment_bytes = u16::try_from(plan.image_bytes_max()).unwrap_or(u16::MAX);
        Self::in_trains_of(images_per_train(segment_bytes), plan, burst_ns)
    }

    /// The same with headers of the session's own.
    pub(super) fn of_own_headers(plan: &Plan, burst_ns: u64) -> Self {
        Self::in_trains_of(OWN_HEADERS_PACKETS, plan, burst_ns)
    }

    fn in_trains_of(images_per_train: u32, plan: &Plan, burst_ns: u64) -> Self {
        let packets = plan.rtp_packets();
        // What it may send in any case, however wild its clock is.
        let bytes = plan.images_bytes(0..packets);
        let least_ns = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(STREAM_RATE_MAX);
        let least_ns = u64::try_from(least_ns).unwrap_or(u64::MAX);
        let last_ns = plan.due_ns(packets.saturating_sub(1));
        let duration_ns = last_ns.max(burst_ns).max(least_ns).max(1);
        let a_second = |count: u64| {
            let count = u128::from(count) * 1_000_000_000 / u128::from(duration_ns);
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let trains = plan.sends(images_per_train).unwrap_or_else(|| {
            let bursts = duration_ns.div_ceil(burst_ns.max(1)).min(packets);
            let packets_a_burst = packets.div_ceil(bursts.max(1));
            bursts * packets_a_burst.div_ceil(u64::from(images_per_train))
        });
        let work = a_second(trains).saturating_mul(TRAIN_WORK);
        let work = work.saturating_add(a_second(packets).saturating_mul(PACKET_WORK));
        Self(u32::try_from(work).unwrap_or(u32::MAX))
    }
}

impl Account {
    /// Work done in a second since `then`.
    fn work_since(&self, then: Self) -> u64 {
        self.work_of_trains_since(then, self.trains - then.trains)
    }

    /// Work in a second of all media that left since `then`, also where joined bursts spared a
    /// train.
    pub(super) fn media_work_since(&self, then: Self) -> u64 {
        let spared = self.bursts_joined - then.bursts_joined;
        self.work_of_trains_since(then, self.trains - then.trains + spared)
    }

    fn work_of_trains_since(&self, then: Self, trains: u64) -> u64 {
        let trains = trains.saturating_mul(TRAIN_WORK);
        let packets = (self.packets - then.packets).saturating_mul(PACKET_WORK);
        self.a_second_since(then, trains.saturating_add(packets))
    }

    fn a_second_since(&self, then: Self, count: u64) -> u64 {
        let wall_ns = u128::from((self.at_ns - then.at_ns).max(1));
        let count = u128::from(count) * 1_000_000_000 / wall_ns;
        u64::try_from(count).unwrap_or(u64::MAX)
    }
}

impl Demand {
    /// In thousandths of a train a second, to be added up.
    pub(super) fn work(self) -> u64 {
        self.0.into()
    }

    /// What delivering the same at `speed` asks for. A slower one may be given up at any moment,
    /// and asks for as much as the usual one.
    pub(super) fn at(self, speed: Speed) -> Self {
        let work = u128::from(self.0) * u128::from(speed.max(Speed::NORMAL).thousandths()) / 1000;
        Self(u32::try_from(work).unwrap_or(u32::MAX))
    }

    /// What it asks for more than `other`.
    pub(super) fn beyond(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Admission {
    /// Counts a stream in, if with it the engine would not be busier than `load_max` of 1000, or if
    /// it is alone. How busy the engine would be, of 1000.
    ///
    /// # Errors
    ///
    /// The same number, if that is too much.
    pub(super) fn take(&self, demand: Demand, load_max: u64) -> Result<u64, u64> {
        let load = self.load_with(demand);
        let others = self.promised.load(Ordering::Relaxed);
        let is_too_much = load > load_max || (self.is_late() && load_max != LOAD_UNLIMITED);
        if others > 0 && is_too_much {
            return Err(load);
        }
        self.promised.fetch_add(demand.work(), Ordering::Relaxed);
        Ok(load)
    }

    /// A stream that was counted in asks for more or less than before.
    pub(super) fn change(&self, before: Demand, after: Demand) {
        self.promised.fetch_add(after.work(), Ordering::Relaxed);
        self.give_back(before);
    }

    /// Counts a stream out.
    pub(super) fn give_back(&self, demand: Demand) {
        self.promised.fetch_sub(demand.work(), Ordering::Relaxed);
    }

    /// For the worker, once a second: what it had done then and has done now.
    pub(super) fn tell(&self, then: Account, now: Account) {
        let work = now.work_since(then);
        let busy_ns = now.a_second_since(then, now.cpu_ns - then.cpu_ns);
        let cost_ps = (WORK_FIRST * PRICE_PS_FIRST).saturating_add(busy_ns.saturating_mul(1000));
        let price_ps = cost_ps / WORK_FIRST.saturating_add(work);
        let kept_ps = self.price_ps.load(Ordering::Relaxed) / PRICE_KEPT.1 * PRICE_KEPT.0;
        self.price_ps
            .store(price_ps.max(kept_ps).max(1), Ordering::Relaxed);
        self.busy_ns.store(busy_ns, Ordering::Relaxed);
        let bursts = now.bursts - then.bursts;
        let late = now.bursts_late - then.bursts_late;
        let held_up = now.bursts_held_up - then.bursts_held_up;
        let joined = now.bursts_joined - then.bursts_joined;
        let is_too_many = |late| late > LATE_MAX && late * 1000 > bursts * LATE_MAX_PERMILLE;
        let is_late = is_too_many(late) || joined * JOINED_MAX_SHARE > bursts;
        // What waited for the disk or the device did so however little the engine has to do.
        let is_own = match self.is_loaded() {
            true => is_late,
            false => is_too_many(late.saturating_sub(held_up)),
        };
        for (seconds, is_late) in [
            (&self.late_seconds, is_late),
            (&self.own_late_seconds, is_own),
        ] {
            let before = seconds.load(Ordering::Relaxed);
            seconds.store(u64::from(is_late) * (before + 1), Ordering::Relaxed);
        }
    }

    /// How busy the engine will be with the streams that it has, of 1000.
    #[must_use]
    pub fn load_promised(&self) -> u64 {
        self.load_with(Demand(0))
    }

    /// The demand of all streams.
    pub(super) fn work(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// The same with what so many connections may ask for, in ps of a second, to compare engines
    /// by.
    pub(super) fn expected_ps(&self, connections: usize) -> u64 {
        let work = CONNECTION_WORK.saturating_mul(connections as u64);
        let work = work.saturating_add(self.promised.load(Ordering::Relaxed));
        work.saturating_mul(self.price_ps.load(Ordering::Relaxed))
    }

    /// How busy it was in the last second, of 1000.
    #[must_use]
    pub fn load_measured(&self) -> u64 {
        self.busy_ns.load(Ordering::Relaxed) / 1_000_000
    }

    /// What a train costs it, in ns, as far as is known.
    #[must_use]
    pub fn train_ns(&self) -> u64 {
        self.price_ps.load(Ordering::Relaxed) * TRAIN_WORK / 1000
    }

    /// For the worker: whether it leaves streams out.
    pub(super) fn set_shedding(&self, is_shedding: bool) {
        self.is_shedding.store(is_shedding, Ordering::Relaxed);
    }

    /// Whether too many bursts have been late for seconds, other than because others held the
    /// engine up, or streams are left out so that they are not.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.is_shedding() || self.own_late_seconds.load(Ordering::Relaxed) >= LATE_SECONDS_MAX
    }

    /// Whether the engine's own work fills so much of its processor that it may be what makes
    /// bursts late.
    pub(super) fn is_loaded(&self) -> bool {
        self.load_promised().max(self.load_measured()) >= OWN_LOAD_MIN
    }

    /// Whether bursts have been late for so many seconds, for whatever reason, or streams are left
    /// out.
    pub(super) fn is_late_for(&self, seconds: u64) -> bool {
        self.is_shedding() || self.late_seconds.load(Ordering::Relaxed) >= seconds
    }

    fn is_shedding(&self) -> bool {
        self.is_shedding.load(Ordering::Relaxed)
    }

    fn load_with(&self, demand: Demand) -> u64 {
        let work = self
            .promised
            .load(Ordering::Relaxed)
            .saturating_add(demand.work());
        let price_ps = self.price_ps.load(Ordering::Relaxed);
        // Rounded up: what is a little more than may be is more.
        let load = (u128::from(work) * u128::from(price_ps)).div_ceil(1_000_000_000);
        u64::try_from(load).unwrap_or(u64::MAX)
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            promised: AtomicU64::new(0),
            price_ps: AtomicU64::new(PRICE_PS_FIRST),
            busy_ns: AtomicU64::new(0),
            late_seconds: AtomicU64::new(0),
            own_late_seconds: AtomicU64::new(0),
            is_shedding: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::shared::StreamShared;
    use super::*;
    use crate::testing::TestSource;

    const SECOND: u64 = 1_000_000_000;

    /// A stream of 4 Mbit/s: 50 trains and 380 packets a second.
    fn demand() -> Demand {
        let test = TestSource::lasting(10_000);
        Demand::of(&test.source.plan(), 20_000_000)
    }

    #[test]
    fn a_stream_asks_for_its_trains_and_packets() {
        let work = demand().work();
        let expected = 50 * TRAIN_WORK + 380 * PACKET_WORK;
        assert!(work.abs_diff(expected) < expected / 50, "{work} {expected}");
        let test = TestSource::lasting(10_000);
        let longer = Demand::of(&test.source.plan(), 100_000_000).work();
        let expected = 10 * TRAIN_WORK + 380 * PACKET_WORK;
        assert!(longer.abs_diff(expected) < expected / 50, "{longer}");
    }

    #[test]
    fn a_clock_that_runs_wild_asks_for_no_more_than_it_gets() {
        // All packets are due at once.
        let wild = TestSource::of(onrush_wire::media::ts::synth::constant_rate(160_000, 0, 1));
        let work = Demand::of(&wild.source.plan(), 20_000_000).work();
        let packets = STREAM_RATE_MAX / 8 / 1328;
        let most = packets * PACKET_WORK + packets / 40 * TRAIN_WORK;
        assert!(work <= most, "{work} {most}");
    }

    #[test]
    fn as_many_are_taken_as_are_kept_and_one_who_leaves_makes_room() {
        let (admission, demand) = (Admission::default(), demand());
        let mut taken = 0;
        while admission.take(demand, 100).is_ok() {
            taken += 1;
        }
        assert_eq!(taken, 100_000_000_000 / (demand.work() * PRICE_PS_FIRST));
        assert_eq!(admission.take(demand, 100), Err(101));
        admission.give_back(demand);
        assert_eq!(admission.take(demand, 100), Ok(100));
        // Whoever is alone is served as well as can be.
        let alone = Admission::default();
        let large = Demand(demand.0 * 1000);
        assert!(alone.take(large, 0).is_ok());
        assert!(alone.take(large, 0).is_err());
    }

    #[test]
    fn who_asks_for_more_than_can_be_kept_leaves_nothing_behind() {
        let (admission, test) = (Admission::default(), TestSource::lasting(100));
        let shared = StreamShared::of_test(&test);
        let large = Demand::new(u32::MAX - 7);
        admission.take(large, LOAD_UNLIMITED).expect("no bound");
        shared.set_demand(large);
        // Played faster, and then as it was recorded.
        for demand in [large.at(Speed::FASTEST), large] {
            admission.change(shared.set_demand(demand), demand);
        }
        assert_eq!(admission.work(), large.work());
        admission.give_back(shared.demand());
        assert_eq!(admission.work(), 0);
    }

    #[test]
    fn the_price_is_what_was_paid() {
        let admission = Admission::default();
        let at = |second: u64, cpu_ns: u64, trains: u64| Account {
            at_ns: second * SECOND,
            cpu_ns,
            trains,
            ..Account::default()
        };
        // A few trains say nothing.
        admission.tell(at(0, 0, 0), at(1, 500_000, 10));
        assert!(
            admission.train_ns().abs_diff(PRICE_PS_FIRST) < 50,
            "{}",
            admission.train_ns()
        );
        // Many do, whatever was thought first: three microseconds each.
        admission.tell(at(1, 0, 0), at(3, SECOND * 6 / 5, 400_000));
        assert!(
            (2700..3000).contains(&admission.train_ns()),
            "{}",
            admission.train_ns()
        );
        assert_eq!(admission.load_measured(), 600);
    }

    #[test]
    fn a_price_goes_up_at_once_and_down_by_an_eighth_a_second() {
        let admission = Admission::default();
        let after = |train_ns: u64| {
            let now = Account {
                at_ns: SECOND,
                cpu_ns: train_ns * 400_000,
                trains: 400_000,
                ..Account::default()
            };
            admission.tell(Account::default(), now);
            admission.train_ns()
        };
        let [dear, less, least] = [2000, 500, 1900].map(after);
        assert!((1900..2000).contains(&dear), "{dear}");
        assert!(less.abs_diff(dear * 7 / 8) < 10, "{less} after {dear}");
        assert!(
            least > less && least < dear,
            "{least}: what was paid now, because it is more"
        );
    }

    #[test]
    fn nobody_is_taken_while_others_are_late() {
        let (admission, demand) = (Admission::default(), demand());
        admission.take(demand, 900).expect("the first");
        let second_of = |cpu_ns, (late, joined)| {
            let then = Account::default();
            let now = Account {
                at_ns: SECOND,
                cpu_ns,
                bursts: 200_000,
                bursts_late: late,
                bursts_held_up: late,
                bursts_joined: joined,
                ..then
            };
            admission.tell(then, now);
            admission.take(demand, 900).is_ok()
        };
        let second = |what| second_of(SECOND * 2 / 5, what);
        let expected = [true, true, false, true, true, true, true];
        assert_eq!(
            [201, 201, 201, 200, 201, 201, 200].map(|n| second((n, 0))),
            expected
        );
        // Nor while they are on time only because bursts are joined.
        let joined = [20_001, 20_001, 20_001, 20_000, 20_001, 20_001, 20_000];
        assert_eq!(joined.map(|n| second((0, n))), expected);
        // An engine that has less to do than that is held up by others, for seven seconds.
        let idle = |what| second_of(SECOND * 2 / 5 - 1, what);
        assert_eq!([(201, 0); 7].map(idle), [true; 7]);
        assert_eq!([(0, 20_001); 7].map(idle), [true; 7]);
        assert!(admission.is_late_for(14), "as whoever has room may know");
        // Also one that does less than it has promised is late by itself.
        let promised = OWN_LOAD_MIN * 1_000_000_000 / admission.train_ns() + 1;
        let promised = Demand::new(u32::try_from(promised).expect("a part of a second"));
        admission.take(promised, LOAD_UNLIMITED).expect("no bound");
        assert_eq!([(201, 0); 3].map(idle), [true, true, false]);
    }

    #[test]
    fn who_waits_for_the_disk_is_late_however_little_there_is_to_do() {
        let admission = Admission::default();
        let is_late = |late, held_up| {
            let now = Account {
                at_ns: SECOND,
                bursts: 1000,
                bursts_late: late,
                bursts_held_up: held_up,
                ..Account::default()
            };
            admission.tell(Account::default(), now);
            admission.is_late()
        };
        let late = [101; 3].map(|late| is_late(late, 0));
        assert_eq!(late, [false, false, true]);
        assert!(!is_late(200, 100), "the others were held up");
    }
}
