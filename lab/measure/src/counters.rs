//! What processors counted of those who were measured: instructions, cycles, and misses of the
//! last cache, in user and in kernel mode.
//!
//! Such counts hold on a busy host, where times do not, and so can be compared between machines.
//! Many virtual machines show none; a record has none then. The kernel reads and sets the counters
//! of a thread whenever it is given the processor or loses it, which costs time where threads take
//! turns. So nobody counts who was not asked to.

use std::io;

use onrush_primitives::hardware::{self, ThreadCounters};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::stats::ratio;
use crate::table::{Cell, Column, Table, gather};

/// What was counted in one mode.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Events {
    /// Instructions.
    pub instructions: u64,
    /// Cycles of the processor's clock, as fast as it ran.
    pub cycles: u64,
    /// Misses of the last cache.
    pub misses: u64,
}

/// What was counted of those who were measured.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counted {
    /// In user mode.
    pub user: Events,
    /// In kernel mode.
    pub kernel: Events,
}

/// Counters of some threads, and of those that they start; of nobody where none are to be had.
#[derive(Debug, Default)]
pub(crate) struct Counting(Vec<ThreadCounters>);

/// What one run counted, and what it did meanwhile.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Did {
    /// What the row is called.
    pub(crate) name: String,
    pub(crate) counted: Counted,
    /// How many of each unit.
    pub(crate) units: Vec<u64>,
}

/// Whether processors show counters here.
///
/// # Errors
///
/// What the kernel says where they do not, or where this account may not see them.
pub fn available() -> io::Result<()> {
    let this_thread = 0;
    ThreadCounters::open(this_thread).map(drop)
}

impl Counting {
    /// Counts what threads do from now on, if that `is_asked` for.
    pub(crate) fn of_threads(is_asked: bool, threads: &[u32]) -> Self {
        // One that has ended since it was seen has nothing to count.
        let is_there = |opened: &io::Result<_>| {
            let refused = opened.as_ref().err().and_then(io::Error::raw_os_error);
            refused != Some(Errno::SRCH.raw_os_error())
        };
        let open = || threads.iter().map(|&thread| ThreadCounters::open(thread));
        let opened = is_asked.then(|| open().filter(is_there).collect::<Result<_, _>>());
        Self(opened.and_then(Result::ok).unwrap_or_default())
    }

    /// The same of all threads of a process.
    pub(crate) fn of_process(is_asked: bool, process: u32) -> Self {
        Self::of_threads(is_asked, &crate::machine::threads_of(process))
    }

    /// What was counted so far, if anything is.
    pub(crate) fn now(&self) -> Option<Counted> {
        let sum = |all: Counted, counters: &ThreadCounters| {
            let [user, kernel] = counters.read().ok()?;
            Some(Counted {
                user: all.user.and(user.into()),
                kernel: all.kernel.and(kernel.into()),
            })
        };
        let has_some = !self.0.is_empty();
        has_some.then_some(())?;
        self.0.iter().try_fold(Counted::default(), sum)
    }
}

impl Counted {
    /// What was counted from one moment to another.
    pub(crate) fn between(before: Option<Self>, after: Option<Self>) -> Option<Self> {
        let (before, after) = before.zip(after)?;
        Some(Self {
            user: after.user.since(before.user),
            kernel: after.kernel.since(before.kernel),
        })
    }
}

impl Events {
    fn and(self, other: Self) -> Self {
        Self {
            instructions: self.instructions + other.instructions,
            cycles: self.cycles + other.cycles,
            misses: self.misses + other.misses,
        }
    }

    /// Scaled counts may go back by a little.
    fn since(self, earlier: Self) -> Self {
        Self {
            instructions: self.instructions.saturating_sub(earlier.instructions),
            cycles: self.cycles.saturating_sub(earlier.cycles),
            misses: self.misses.saturating_sub(earlier.misses),
        }
    }
}

impl From<hardware::Events> for Events {
    fn from(events: hardware::Events) -> Self {
        let hardware::Events {
            instructions,
            cycles,
            misses,
        } = events;
        Self {
            instructions,
            cycles,
            misses,
        }
    }
}

/// A table for each unit of what was counted for one; without rows where nothing was.
pub(crate) fn tables(units: &[&str], runs: impl IntoIterator<Item = Did>) -> Vec<Table> {
    let rows = gather(runs.into_iter().map(|run| (run.name.clone(), run)));
    let table = |(at, unit): (usize, &&str)| {
        let columns = [
            Column::key("what"),
            Column::count("instructions, user", 1).less(),
            Column::count("instructions, kernel", 1).with_range().less(),
            Column::count("cycles, user", 1),
            Column::count("cycles, kernel", 1),
            Column::count("a cycle, user", 2),
            Column::count("a cycle, kernel", 2),
            Column::count("misses, user", 2),
            Column::count("misses, kernel", 2),
        ];
        let caption = format!("What processors counted {unit}: instructions, cycles, misses");
        let mut table = Table::new(caption, columns);
        table.prefix = (*unit).to_owned();
        for (name, runs) in &rows {
            let of = |value: fn(&Counted) -> f64, is_a_unit: bool| {
                let value = |run: &Did| {
                    let divisor = ratio(run.units[at].max(1), 1);
                    value(&run.counted) / if is_a_unit { divisor } else { 1.0 }
                };
                Cell::Samples(runs.iter().map(value).collect())
            };
            table.row([
                Cell::Text(name.clone()),
                of(|it| ratio(it.user.instructions, 1), true),
                of(|it| ratio(it.kernel.instructions, 1), true),
                of(|it| ratio(it.user.cycles, 1), true),
                of(|it| ratio(it.kernel.cycles, 1), true),
                of(
                    |it| ratio(it.user.instructions, it.user.cycles.max(1)),
                    false,
                ),
                of(
                    |it| ratio(it.kernel.instructions, it.kernel.cycles.max(1)),
                    false,
                ),
                of(|it| ratio(it.user.misses, 1), true),
                of(|it| ratio(it.kernel.misses, 1), true),
            ]);
        }
        table
    };
    units.iter().enumerate().map(table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Report;

    fn events(instructions: u64) -> Events {
        Events {
            instructions,
            cycles: instructions * 2,
            misses: instructions / 100,
        }
    }

    fn did(name: &str, user: u64, kernel: u64) -> Did {
        Did {
            name: name.to_owned(),
            counted: Counted {
                user: events(user),
                kernel: events(kernel),
            },
            units: vec![100, 10],
        }
    }

    #[test]
    fn counts_are_told_of_each_unit_and_modes_apart() {
        let mut report = Report::new("counted");
        report.add(tables(
            &["a packet", "a train"],
            [
                did("ours", 1000, 5000),
                did("theirs", 2000, 9000),
                did("ours", 3000, 7000),
            ],
        ));
        let figures = report.figures();
        let samples = |name: &str| {
            let figure = figures.iter().find(|figure| figure.name == name);
            let all = || {
                figures
                    .iter()
                    .map(|it| it.name.as_str())
                    .collect::<Vec<_>>()
            };
            figure
                .unwrap_or_else(|| panic!("{:?}", all()))
                .samples
                .clone()
        };
        assert_eq!(
            samples("a packet, ours: instructions, kernel"),
            [50.0, 70.0]
        );
        assert_eq!(samples("a train, theirs: instructions, user"), [200.0]);
    }

    #[test]
    fn nobody_counts_who_was_not_asked_to() {
        let mine = std::process::id();
        assert_eq!(Counting::of_process(false, mine).now(), None);
        assert_eq!(Counting::of_threads(true, &[]).now(), None);
        // Where a processor shows counters a process has done something, and elsewhere says so.
        let counting = Counting::of_process(true, mine);
        let begin = counting.now();
        let sum: u64 = (0..1_000_000_u64).map(std::hint::black_box).sum();
        assert!(sum > 0);
        if let Some(counted) = Counted::between(begin, counting.now()) {
            assert!(counted.user.instructions > 1_000_000, "{counted:?}");
        }
        assert!(
            tables(&["a packet"], [])
                .iter()
                .all(|table| table.rows.is_empty())
        );
    }

    #[test]
    fn what_passed_is_what_is_between() {
        let [before, after] = [did("", 100, 200), did("", 150, 190)].map(|it| it.counted);
        let passed = Counted::between(Some(before), Some(after)).unwrap();
        assert_eq!(
            (passed.user, passed.kernel),
            (events(50), Events::default())
        );
        assert_eq!(Counted::between(None, Some(after)), None);
    }
}
