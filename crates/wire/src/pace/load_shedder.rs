//! How many streams to leave out of a sender that is late with all of them, so that the others are
//! on time.
//!
//! Admission lets in no more than can be sent. When the processor is taken away afterwards, every
//! stream is late alike, and for as long as that lasts. Then some are left out instead: those whose
//! work was not done, and a little more, so that what piled up goes. Once nothing was late for some
//! seconds a few are taken back; where that makes the others late again it was too soon, and the
//! next time is later. Who is left out, the caller decides.
//!
//! Work is in whatever unit the caller reckons in. One call a second, by the caller's clock.

/// Seconds in a row that must be late before anybody is left out: a short stall is made good by
/// catching up.
const LATE_SECONDS_MAX: u32 = 3;

/// One in so many bursts may be late in a second that is not.
const LATE_SHARE: u64 = 10;

/// Seconds without lateness before some are taken back: at first, and at the most.
const GOOD_SECONDS: u32 = 3;
const GOOD_SECONDS_MAX: u32 = 160;

/// Of what was done, so much is kept: seven eighths. And of what was asked for, never less than a
/// quarter at once.
const KEPT: (u64, u64) = (7, 8);
const KEPT_MIN_SHARE: u64 = 4;

/// Taken back is a quarter of what plays.
const TAKEN_BACK_SHARE: u64 = 4;

/// What a sender's last second was like.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    /// Work that the streams which are not left out ask for in a second.
    pub asked: u64,
    /// Work that was done.
    pub done: u64,
    /// Bursts that left, and how many of them late because of the sender itself.
    pub bursts: u64,
    /// The late ones.
    pub bursts_late: u64,
    /// Work of the streams that are left out.
    pub left_out: u64,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Keep,
    /// Leave out streams of so much work, or a little more.
    LeaveOut(u64),
    /// Take back streams of so much work, or a little more.
    TakeBack(u64),
}

/// What the seconds before were like.
#[derive(Clone, Debug)]
pub struct LoadShedder {
    /// Below so much work nobody is left out: that little is not what keeps a processor busy.
    work_min: u64,
    late_seconds: u32,
    good_seconds: u32,
    /// Good seconds wanted before some are taken back.
    patience: u32,
    /// Some were taken back, and it is not sure yet that there is room for them.
    is_trying: bool,
}

impl LoadShedder {
    /// One that leaves nobody out where less than `work_min` is asked for.
    #[must_use]
    pub const fn new(work_min: u64) -> Self {
        Self {
            work_min,
            late_seconds: 0,
            good_seconds: 0,
            patience: GOOD_SECONDS,
            is_trying: false,
        }
    }

    /// What to do after a second that was like this.
    pub fn after(&mut self, second: Second) -> Verdict {
        let is_late = second.bursts_late * LATE_SHARE > second.bursts;
        if !is_late {
            self.late_seconds = 0;
            return self.after_good(second);
        }
        self.good_seconds = 0;
        self.late_seconds += 1;
        // Those who were taken back on trial go at once.
        if second.asked <= self.work_min
            || (self.late_seconds < LATE_SECONDS_MAX && !self.is_trying)
        {
            return Verdict::Keep;
        }
        if self.is_trying {
            self.patience = (self.patience * 2).min(GOOD_SECONDS_MAX);
        }
        self.is_trying = false;
        // What piled up is late for a second more.
        self.late_seconds = LATE_SECONDS_MAX - 2;
        let kept = second.done.min(second.asked) / KEPT.1 * KEPT.0;
        let kept = kept.max(second.asked / KEPT_MIN_SHARE).max(self.work_min);
        Verdict::LeaveOut(second.asked.saturating_sub(kept))
    }

    fn after_good(&mut self, second: Second) -> Verdict {
        self.good_seconds += 1;
        if self.good_seconds < self.patience {
            return Verdict::Keep;
        }
        self.good_seconds = 0;
        if self.is_trying {
            self.patience = (self.patience / 2).max(GOOD_SECONDS);
        }
        self.is_trying = second.left_out > 0;
        match self.is_trying {
            true => Verdict::TakeBack((second.asked / TAKEN_BACK_SHARE).max(1)),
            false => Verdict::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WORK_MIN: u64 = 1000;

    /// Streams of the same work, a sender that can do so much in a second, and what becomes of
    /// them.
    struct Model {
        shedder: LoadShedder,
        streams: u64,
        left_out: u64,
        work_each: u64,
    }

    impl Model {
        fn new(streams: u64, work_each: u64) -> Self {
            Self {
                shedder: LoadShedder::new(WORK_MIN),
                streams,
                left_out: 0,
                work_each,
            }
        }

        fn asked(&self) -> u64 {
            (self.streams - self.left_out) * self.work_each
        }

        /// A second. Whether it was late.
        fn second(&mut self, capacity: u64) -> bool {
            let asked = self.asked();
            let is_late = asked > capacity;
            let verdict = self.shedder.after(Second {
                asked,
                done: asked.min(capacity),
                bursts: 1000,
                bursts_late: if is_late { 900 } else { 0 },
                left_out: self.left_out * self.work_each,
            });
            let streams = |work: u64| work.div_ceil(self.work_each);
            match verdict {
                Verdict::Keep => {}
                Verdict::LeaveOut(work) => self.left_out += streams(work),
                Verdict::TakeBack(work) => self.left_out -= streams(work).min(self.left_out),
            }
            assert!(
                self.left_out <= self.streams,
                "{} of {}",
                self.left_out,
                self.streams
            );
            is_late
        }
    }

    proptest! {
        #[test]
        fn those_who_are_kept_are_on_time_nearly_always(
            streams in 200_u64..20_000,
            work_each in 10_u64..100,
            percent in 5_u64..100,
        ) {
            let mut model = Model::new(streams, work_each);
            let capacity = (streams * work_each * percent / 100).max(WORK_MIN + work_each);
            for _ in 0..30 {
                model.second(capacity);
            }
            let late = (0..1000).filter(|_| model.second(capacity)).count();
            // Trials that fail, the rarer the more of them there were.
            prop_assert!(late <= 30, "{} late seconds", late);
            // And not many more are left out than must be, trials aside.
            prop_assert!(model.asked() * 2 > capacity.min(streams * work_each), "{}",
                model.asked());
        }

        #[test]
        fn all_come_back_when_there_is_room_again(
            streams in 200_u64..20_000,
            percent in 1_u64..100,
            seconds in 10_u32..500,
        ) {
            let mut model = Model::new(streams, 50);
            let all = streams * 50;
            for _ in 0..seconds {
                model.second(all * percent / 100);
            }
            for _ in 0..1200 {
                prop_assert!(!model.second(all));
            }
            prop_assert_eq!(model.left_out, 0);
        }

        #[test]
        fn a_stall_that_passes_costs_nobody_a_thing(pauses in proptest::collection::vec((1_usize..3,
            1_usize..9), 1..40)) {
            let mut model = Model::new(1000, 50);
            for (late, good) in pauses {
                for _ in 0..late {
                    model.second(10_000);
                }
                for _ in 0..good {
                    model.second(50_000);
                }
                prop_assert_eq!(model.left_out, 0);
            }
        }
    }

    #[test]
    fn a_few_streams_are_not_what_keeps_a_processor_busy() {
        for (streams, is_relieved) in [(20, false), (21, true)] {
            let mut model = Model::new(streams, 50);
            for _ in 0..100 {
                model.second(50);
            }
            assert_eq!(model.left_out > 0, is_relieved);
            assert!(model.asked() >= WORK_MIN);
        }
    }

    #[test]
    fn the_first_are_left_out_after_the_third_late_second() {
        let mut model = Model::new(1000, 50);
        let left_out: Vec<_> = (0..4)
            .map(|_| {
                model.second(25_000);
                model.left_out
            })
            .collect();
        // Half can be sent: seven eighths of that stay.
        assert_eq!(left_out, [0, 0, 563, 563]);
    }
}
