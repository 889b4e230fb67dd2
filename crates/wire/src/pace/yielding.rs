//! Schedules that yield only when somebody waits: whether another thread wants the processor.
//!
//! A pause that nobody uses is lost. So a schedule holds only while the kernel says that the
//! sending thread itself had to wait: its run delay, the time that it was ready to run and another
//! ran (sched(7), `/proc/<pid>/schedstat`). A thread that runs as long as it likes beside one that
//! wants the processor is made to wait within a time slice or two; one that pauses is not, because
//! the other runs in the pauses. Therefore, once it has seen that somebody waits, it yields for a
//! while without looking, and then runs without pauses until it was made to wait again, or had
//! what nobody wanted. The while grows as long as it finds somebody each time: what looking costs
//! the other is a slice or two a second.
//!
//! A line that is slower than the sender leaves the processor free by itself. Whoever else wants it
//! then has it, the sender waits for nobody, and nothing yields.

/// Time that the thread wanted the processor, run or not, after which nobody waits unless it was
/// seen. Longer than a time slice and a tick of the slowest clock that Linux has (100 Hz), so that
/// a neighbour has had its turn.
const LOOK_NS: u64 = 16_000_000;

/// Run delay from which somebody waits: so long, and no less than an eighth of the time that the
/// thread wanted the processor. What interrupts, kernel threads and waking up take is less.
const DELAY_NS: u64 = LOOK_NS / DELAY_PART;

const DELAY_PART: u64 = 8;

/// How long it yields without looking, at first and at the most.
const HOLD_NS: (u64, u64) = (64_000_000, 1_024_000_000);

/// What the kernel has counted of a thread since it began.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RunTimes {
    /// It ran, in ns.
    pub ran_ns: u64,
    /// It was ready to, and another ran, in ns.
    pub delayed_ns: u64,
}

/// Whether the schedule of a thread holds now.
#[derive(Clone, Debug, Default)]
pub struct Yielding {
    state: State,
    /// Where the look that is under way began; `None` if none is.
    begin: Option<RunTimes>,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum State {
    /// Nobody waits, as far as was seen.
    #[default]
    Alone,
    /// Somebody does: pauses are made, and nothing is looked at before then.
    Yielding { until_ns: u64, hold_ns: u64 },
    /// Somebody did, so many ns long: no pauses are made, to see whether it still does.
    Looking { held_ns: u64 },
}

impl Yielding {
    /// Whether the kernel is to be asked before [`Self::observe`].
    #[must_use]
    pub fn wants_to_look(&self, now_ns: u64) -> bool {
        match self.state {
            State::Yielding { until_ns, .. } => now_ns >= until_ns,
            State::Alone | State::Looking { .. } => true,
        }
    }

    /// Takes in what the kernel has counted until `now_ns`.
    pub fn observe(&mut self, now_ns: u64, times: RunTimes) {
        if let State::Yielding { until_ns, hold_ns } = self.state {
            if now_ns < until_ns {
                return;
            }
            self.state = State::Looking { held_ns: hold_ns };
            self.begin = None;
        }
        let begin = *self.begin.get_or_insert(times);
        let delayed_ns = times.delayed_ns.saturating_sub(begin.delayed_ns);
        let wanted_ns = delayed_ns.saturating_add(times.ran_ns.saturating_sub(begin.ran_ns));
        // What was seen last may be long ago, so that the delay alone says nothing.
        if delayed_ns >= DELAY_NS && delayed_ns >= wanted_ns / DELAY_PART {
            let hold_ns = match self.state {
                State::Looking { held_ns } => (2 * held_ns).min(HOLD_NS.1),
                _ => HOLD_NS.0,
            };
            self.state = State::Yielding {
                until_ns: now_ns.saturating_add(hold_ns),
                hold_ns,
            };
            self.begin = None;
        } else if wanted_ns >= LOOK_NS {
            self.state = State::Alone;
            self.begin = Some(times);
        }
    }

    /// Whether pauses are to be made.
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        matches!(self.state, State::Yielding { .. })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn times(ran_ms: u64, delayed_ms: u64) -> RunTimes {
        RunTimes {
            ran_ns: ran_ms * MS,
            delayed_ns: delayed_ms * MS,
        }
    }

    #[test]
    fn an_eighth_of_delay_yields_and_a_little_less_does_not() {
        let mut yielding = Yielding::default();
        yielding.observe(0, times(100, 50));
        assert!(!yielding.is_waited_for(), "what was before says nothing");
        let mut almost = times(113, 50);
        almost.delayed_ns += DELAY_NS - 1;
        yielding.observe(15 * MS, almost);
        assert!(!yielding.is_waited_for());
        almost.delayed_ns += 1;
        yielding.observe(15 * MS, almost);
        assert!(yielding.is_waited_for());
    }

    #[test]
    fn little_delays_do_not_add_up_over_looks() {
        let mut yielding = Yielding::default();
        for look in 0..100 {
            yielding.observe(look * 17 * MS, times(look * 16, look));
            assert!(!yielding.is_waited_for(), "{look}");
        }
    }

    #[test]
    fn what_a_long_time_brought_together_is_nobody() {
        let mut yielding = Yielding::default();
        yielding.observe(0, times(0, 0));
        yielding.observe(3_600_000 * MS, times(1000, 124));
        assert!(!yielding.is_waited_for(), "less than an eighth");
        yielding.observe(7_200_000 * MS, times(2000, 124 + 143));
        assert!(yielding.is_waited_for(), "an eighth");
    }

    #[test]
    fn it_looks_again_and_less_often_while_somebody_is_found() {
        let (mut yielding, mut now_ns, mut seen) = (Yielding::default(), 0, times(0, 0));
        yielding.observe(now_ns, seen);
        let mut held = Vec::new();
        for _ in 0..6 {
            seen.delayed_ns += DELAY_NS;
            yielding.observe(now_ns, seen);
            assert!(yielding.is_waited_for());
            let begin_ns = now_ns;
            while !yielding.wants_to_look(now_ns) {
                now_ns += MS;
            }
            held.push(now_ns - begin_ns);
            yielding.observe(now_ns, seen);
            assert!(!yielding.is_waited_for(), "it looks");
        }
        assert_eq!(held, [64, 128, 256, 512, 1024, 1024].map(|ms| ms * MS));
        // Whoever waited has gone: after one look it is as it was at first.
        seen.ran_ns += LOOK_NS;
        yielding.observe(now_ns, seen);
        seen.delayed_ns += DELAY_NS;
        yielding.observe(now_ns, seen);
        assert!(!yielding.wants_to_look(now_ns + HOLD_NS.0 - 1));
        assert!(yielding.wants_to_look(now_ns + HOLD_NS.0));
    }

    /// A processor that is shared by time, on a clock of its own.
    struct Processor {
        now_ns: u64,
        times: RunTimes,
        slice_ns: u64,
        /// How long the sender has run since it was made to wait last.
        run_ns: u64,
        /// What the neighbour has had.
        left_ns: u64,
    }

    impl Processor {
        /// The sender runs so long, and is made to wait where its slice is over.
        fn run(&mut self, ns: u64, has_neighbour: bool) {
            self.now_ns += ns;
            self.times.ran_ns += ns;
            self.run_ns += ns;
            if has_neighbour && self.run_ns >= self.slice_ns {
                self.run_ns = 0;
                self.now_ns += self.slice_ns;
                self.times.delayed_ns += self.slice_ns;
                self.left_ns += self.slice_ns;
            }
        }

        fn pause(&mut self, ns: u64, has_neighbour: bool) {
            self.now_ns += ns;
            self.run_ns = 0;
            if has_neighbour {
                self.left_ns += ns;
            }
        }
    }

    proptest! {
        /// Whatever the slice, the step and the schedule: alone it never pauses; beside a neighbour
        /// it pauses all the time but a fiftieth, once a second is over; and when the neighbour has
        /// gone, it stops within the longest hold and a look.
        #[test]
        fn it_yields_beside_a_neighbour_and_only_then(
            slice_us in 700u64..10_000,
            step_us in 20u64..1000,
            pause_ms in 1u64..40,
        ) {
            let (step_ns, pause_ns) = (step_us * 1000, pause_ms * MS);
            let mut processor = Processor {
                now_ns: 0,
                times: RunTimes::default(),
                slice_ns: slice_us * 1000,
                run_ns: 0,
                left_ns: 0,
            };
            let mut yielding = Yielding::default();
            let mut stretch = |processor: &mut Processor, ns: u64, has_neighbour: bool| {
                let end_ns = processor.now_ns + ns;
                let (mut paused, mut unpaused) = (0u64, 0u64);
                while processor.now_ns < end_ns {
                    if yielding.wants_to_look(processor.now_ns) {
                        yielding.observe(processor.now_ns, processor.times);
                    }
                    let is_waited_for = yielding.is_waited_for();
                    processor.run(step_ns, has_neighbour);
                    if is_waited_for {
                        paused += 1;
                        processor.pause(pause_ns, has_neighbour);
                    } else {
                        unpaused += step_ns;
                    }
                }
                (paused, unpaused)
            };
            let (paused, _) = stretch(&mut processor, 3000 * MS, false);
            prop_assert_eq!(paused, 0);
            stretch(&mut processor, 3000 * MS, true);
            let before_ns = processor.left_ns;
            let (paused, unpaused_ns) = stretch(&mut processor, 10_000 * MS, true);
            prop_assert!(paused > 0);
            prop_assert!(unpaused_ns < 200 * MS, "{unpaused_ns} ns of ten seconds");
            // The neighbour has no less than the schedule leaves to it, but for what looking costs.
            let left = processor.left_ns - before_ns;
            let whole = 10_000 * MS / (step_ns + pause_ns) * pause_ns;
            prop_assert!(left >= whole / 50 * 48, "{left} of {whole}");
            stretch(&mut processor, HOLD_NS.1 + LOOK_NS + pause_ns + 2 * step_ns, false);
            let (paused, _) = stretch(&mut processor, 1000 * MS, false);
            prop_assert_eq!(paused, 0);
        }
    }
}
