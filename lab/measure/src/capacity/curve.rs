//! What trials around the limit say: how many are held in 95 of 100, and whether that is the aim.
//!
//! A trial that is void says nothing, held or missed, and is left out of the curve either way: to
//! leave out what was missed alone would make the server better than it is. What was missed counts,
//! however often it was held before and after.

use super::record::{CapacityRecord, Run};
use super::report::Row;
use crate::logistic::{Estimate, Logistic, TRIALS_MIN, Trial, part_held};
use crate::stats::{median, to_f64};
use crate::table::{Column, Table, Verdict, table};

/// Of the trials of a server, the part that may be void.
const VOID_PART_MAX: f64 = 0.5;

/// So many trials that were all held say with 95 % that 95 of 100 are: 0.95 to the power of 59 is
/// less than 0.05.
const ALL_HELD_MIN: usize = 59;

impl Row<'_> {
    /// Trials that say something.
    fn counted(&self) -> Vec<Trial> {
        let valid = self.trials.iter().filter(|run| run.void.is_empty());
        let trials = valid.map(|run| Trial {
            number: f64::from(run.clients),
            is_held: run.missed.is_empty(),
        });
        trials.collect()
    }

    /// What trials say of an aim that were all missed or all held, so that no curve has a limit to
    /// find, and whether it is reached. `None` if they say nothing: too few count.
    fn without_limit(&self, aim: f64) -> Option<(String, bool)> {
        let trials = self.counted();
        let void = self.trials.len() - trials.len();
        if trials.len() < TRIALS_MIN || to_f64(void) > VOID_PART_MAX * to_f64(self.trials.len()) {
            return None;
        }
        let held = trials.iter().filter(|trial| trial.is_held).count();
        let least = trials
            .iter()
            .map(|trial| trial.number)
            .fold(f64::MAX, f64::min);
        let at_aim = trials.iter().filter(|trial| trial.number >= aim).count();
        if held == 0 && least <= aim {
            let found = format!(
                "all of {} trials were missed, from {least:.0} on",
                trials.len()
            );
            return Some((found, false));
        }
        let is_sure = held == trials.len() && at_aim >= ALL_HELD_MIN;
        is_sure.then(|| (format!("all of {at_aim} trials of as many were held"), true))
    }

    /// The curve of those; or why there is none.
    fn curve(&self) -> Result<Logistic, String> {
        let (all, trials) = (self.trials.len(), self.counted());
        let void = all - trials.len();
        if to_f64(void) > VOID_PART_MAX * to_f64(all) {
            return Err(format!("{void} of {all} trials are void"));
        }
        Logistic::of(&trials).ok_or_else(|| match trials.len() < TRIALS_MIN {
            true => format!(
                "{} trials are too few: ask for {TRIALS_MIN} or more",
                trials.len()
            ),
            false => format!(
                "{:.0} % of {} trials were held, so that there is no limit among them",
                part_held(&trials) * 100.0,
                trials.len()
            ),
        })
    }
}

impl CapacityRecord {
    /// What half of the trials hold and what 95 of 100 do, and what the host gave meanwhile; `None`
    /// if there were none.
    pub(super) fn curves_told(&self) -> Option<Table> {
        let rows = self.rows();
        let tried = rows.iter().filter(|row| !row.trials.is_empty());
        let of_yardsticks = |row: &Row<'_>, value: fn(&Run) -> Option<f64>| -> Vec<f64> {
            row.trials.iter().filter_map(|run| value(run)).collect()
        };
        let mut table = table! {
            "Trials around the limit, in turns: numbers and order were drawn",
            for row in tried,
            let curve = row.curve(),
            let counted = row.counted(),
            let n50 = curve.as_ref().ok().map(|curve| told(&curve.n50)),
            let n95 = curve.as_ref().ok().map(|curve| told(&curve.n95));
            Column::key("server") => row.of.name(),
            Column::count("trials", 0) => row.trials.len(),
            Column::count("void", 0) => row.trials.len() - counted.len(),
            Column::count("held", 0) => counted.iter().filter(|trial| trial.is_held).count(),
            Column::text("half hold") => n50,
            Column::text("95 of 100 hold") => n95,
            Column::number("addition", crate::plot::Unit::Nanoseconds).fixed("ns", 1.0, 3)
                => median(of_yardsticks(row, |run| Some(run.yardstick?.addition_ns[1]))),
            Column::ns("miss", 0)
                => median(of_yardsticks(row, |run| Some(run.yardstick?.miss_ns[1])));
            notes row.curve().err().into_iter().chain(spread_told(row))
        };
        table.note(
            "In brackets: the interval that holds the true number with 95 %. Addition and miss: \
             fixed work on the server's processor meanwhile, medians of trials.",
        );
        (!table.rows.is_empty()).then_some(table)
    }

    /// Whether our server holds what it is to hold, in each mode, or each peer if nobody else was
    /// asked; nothing if nobody said so.
    pub(super) fn aim_verdicts(&self) -> Vec<Verdict> {
        let Some(aim) = self.settings.aim else {
            return Vec::new();
        };
        let rows = self.rows();
        // A peer's bursts are its own affair, and beside ours it has no aim.
        let has_ours = rows.iter().any(|row| row.of.burst_ns > 0);
        let judged = rows.iter().filter(|row| row.of.burst_ns > 0 || !has_ours);
        let verdict = |row: &Row<'_>| {
            let what = format!("{}: holds {aim} viewers", row.of.name());
            if self.settings.trials == 0 {
                return self.single_try_verdict(row, what, aim);
            }
            match (row.curve(), row.without_limit(f64::from(aim))) {
                (Ok(curve), _) => {
                    let found = format!("95 of 100 trials hold {}", told(&curve.n95));
                    Verdict::new(what, found, curve.n95.number >= f64::from(aim))
                }
                (Err(_), Some((found, is_held))) => Verdict::new(what, found, is_held),
                (Err(why), None) => Verdict::void(what, why),
            }
        };
        judged.map(verdict).collect()
    }

    /// What one try of each number says of an aim. Where the aim was reached only because a number
    /// that had been missed was tried again, nobody knows: the second try does not undo the first.
    /// Nor does anybody where it was missed while the host was in the way.
    fn single_try_verdict(&self, row: &Row<'_>, what: String, aim: u32) -> Verdict {
        // Who was refused is not held, but came all the same.
        let held = row.held.map_or(0, |run| self.served(run));
        let came = row.held.map_or(0, |run| run.clients);
        let hidden = self.runs.iter().find(|run| {
            let is_of_row = run.name() == row.of.name();
            run.is_repeated && is_of_row && run.clients <= aim.max(came)
        });
        if let Some(hidden) = hidden.filter(|_| held >= aim) {
            return Verdict::void(
                what,
                format!(
                    "{held} were held, but {} were missed at first ({}); --trials tells how often",
                    hidden.clients,
                    hidden.missed.join("; ")
                ),
            );
        }
        // Of a trial that nobody missed those are few who were let in.
        let short = row.missed.or(row.held).filter(|_| held < aim);
        let robbed = short.and_then(|run| Some((run.clients, run.account.theft_in_words()?)));
        if let Some((clients, theft)) = robbed {
            return Verdict::void(
                what,
                format!("{held} were held; {theft} while {clients} were tried"),
            );
        }
        let found = format!("{held} were held, of one try; --trials tells how surely");
        Verdict::new(what, found, held >= aim)
    }
}

/// The number, and its interval.
fn told(estimate: &Estimate) -> String {
    let end = |end: Option<f64>| end.map_or_else(|| "?".to_owned(), |end| format!("{end:.0}"));
    let (low, high) = (end(estimate.low), end(estimate.high));
    format!("{:.0} ({low}..{high})", estimate.number)
}

/// How much the host gave now and then, where there are trials enough to tell.
fn spread_told(row: &Row<'_>) -> Option<String> {
    let yardsticks = row.trials.iter().filter_map(|run| run.yardstick);
    let misses: Vec<_> = yardsticks.map(|yardstick| yardstick.miss_ns[1]).collect();
    let least = misses.iter().copied().reduce(f64::min)?;
    let most = misses.iter().copied().reduce(f64::max)?;
    (most > least * 1.25)
        .then(|| format!("the host gave more and less: a miss took {least:.0} to {most:.0} ns"))
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{record, run};
    use super::*;
    use crate::table::Outcome;
    use crate::yardstick::Yardstick;

    /// Trials of 80 to 119 viewers: of a server that holds so many, in a record with this aim.
    fn tried(holds: u32, aim: u32) -> CapacityRecord {
        let mut runs = vec![run(90, &[], None), run(110, &["late"], None)];
        let trials = (80..120).map(|clients| {
            let missed: &[&str] = if clients > holds { &["late"] } else { &[] };
            Run {
                is_around_limit: true,
                yardstick: Some(Yardstick {
                    samples: 1,
                    addition_ns: [0.4; 3],
                    miss_ns: [80.0; 3],
                }),
                ..run(clients, missed, None)
            }
        });
        runs.extend(trials);
        let mut record = record(runs);
        (record.settings.trials, record.settings.aim) = (40, Some(aim));
        record
    }

    fn outcome(record: &CapacityRecord) -> Outcome {
        let verdicts = record.aim_verdicts();
        assert_eq!(verdicts.len(), 1);
        verdicts[0].outcome
    }

    #[test]
    fn the_aim_is_what_95_of_100_trials_hold() {
        assert_eq!(outcome(&tried(100, 95)), Outcome::Kept);
        assert_eq!(outcome(&tried(100, 105)), Outcome::Missed);
        // Whatever the search had held.
        assert_eq!(outcome(&tried(85, 90)), Outcome::Missed);
        let mut no_aim = tried(100, 95);
        no_aim.settings.aim = None;
        assert_eq!(no_aim.aim_verdicts(), []);
        let mut no_trials = tried(100, 95);
        no_trials.settings.trials = 0;
        no_trials.runs.truncate(2);
        assert_eq!(outcome(&no_trials), Outcome::Missed);
        no_trials.settings.aim = Some(90);
        assert_eq!(outcome(&no_trials), Outcome::Kept);
        assert!(no_trials.aim_verdicts()[0].found.contains("of one try"));
        assert!(no_trials.curves_told().is_none());
    }

    #[test]
    fn an_aim_is_kept_missed_or_void() {
        let judged = |runs: Vec<Run>, aim| {
            let mut record = record(runs);
            record.settings.aim = Some(aim);
            (outcome(&record), record.aim_verdicts().remove(0).found)
        };
        let both = |stolen| vec![run(100, &[], None), run(200, &["late"], stolen)];
        assert_eq!(judged(both(Some(0)), 100).0, Outcome::Kept);
        assert_eq!(judged(both(Some(0)), 101).0, Outcome::Missed);
        // Reached is reached; what was not while the host was in the way is unknown.
        assert_eq!(judged(both(Some(30)), 100).0, Outcome::Kept);
        let (void, found) = judged(both(Some(30)), 101);
        assert_eq!(void, Outcome::Void);
        let said = "100 were held; the host took 30 % of the server's processor while 200 were";
        assert!(found.contains(said), "{found}");
        let none = vec![run(100, &["late"], Some(0))];
        assert_eq!(judged(none, 1).0, Outcome::Missed);
        let peer = Run {
            server: "peer".to_owned(),
            burst_ns: 0,
            ..run(50, &[], None)
        };
        // A peer beside ours has no aim of its own.
        let beside = vec![run(100, &[], None), peer.clone()];
        assert_eq!(judged(beside, 100).0, Outcome::Kept);
        assert_eq!(judged(vec![peer], 51).0, Outcome::Missed);
    }

    #[test]
    fn who_is_refused_is_not_held() {
        let judged = |watching, stolen| {
            let mut run = run(300, &[], stolen);
            run.load.watching = watching;
            let mut record = record(vec![run]);
            (record.settings.load_max_percent, record.settings.aim) = (Some(90), Some(200));
            outcome(&record)
        };
        assert_eq!(judged(200, Some(30)), Outcome::Kept);
        assert_eq!(judged(199, Some(0)), Outcome::Missed);
        assert_eq!(judged(199, Some(30)), Outcome::Void);
    }

    #[test]
    fn trials_without_a_limit_among_them_miss_an_aim_or_are_many() {
        // All missed, from 80 viewers on.
        let missed = tried(70, 95);
        assert_eq!(outcome(&missed), Outcome::Missed);
        let found = &missed.aim_verdicts()[0].found;
        assert!(
            found.contains("all of 40 trials were missed, from 80 on"),
            "{found}"
        );
        // Of an aim below all that were tried they say nothing.
        assert_eq!(outcome(&tried(70, 79)), Outcome::Void);
        // All held: 40 are too few to be sure, and of fewer still are as many viewers as the aim.
        let mut held = tried(200, 80);
        assert_eq!(outcome(&held), Outcome::Void);
        let more: Vec<_> = held.runs[2..21].to_vec();
        held.runs.extend(more);
        assert_eq!(outcome(&held), Outcome::Kept);
        held.settings.aim = Some(81);
        assert_eq!(outcome(&held), Outcome::Void);
    }

    #[test]
    fn a_retry_does_not_hide_a_miss_of_the_search() {
        let mut record = tried(100, 90);
        record.settings.trials = 0;
        record.runs.truncate(2);
        assert_eq!(outcome(&record), Outcome::Kept);
        let first = Run {
            is_repeated: true,
            ..run(90, &["late"], None)
        };
        record.runs.insert(0, first);
        assert_eq!(outcome(&record), Outcome::Void);
        let found = &record.aim_verdicts()[0].found;
        assert!(found.contains("90 were missed at first (late)"), "{found}");
        // What was missed beyond the aim hides nothing.
        record.runs[0].clients = 110;
        assert_eq!(outcome(&record), Outcome::Kept);
        // An aim that is missed all the same is missed.
        record.settings.aim = Some(95);
        assert_eq!(outcome(&record), Outcome::Missed);
    }

    #[test]
    fn trials_do_not_change_what_the_search_has_held() {
        let record = tried(100, 95);
        let rows = record.rows();
        assert_eq!((rows.len(), rows[0].trials.len()), (1, 40));
        assert_eq!(rows[0].held.map(|run| run.clients), Some(90));
        assert_eq!(rows[0].missed.map(|run| run.clients), Some(110));
        let table = record.curves_told().unwrap();
        let told: Vec<_> = table
            .cells(&table.rows[0])
            .map(|(it, cell)| it.tell(cell))
            .collect();
        assert_eq!(told[1..4], ["40", "0", "21"]);
        assert_eq!(told[6..], ["0.400", "80"]);
    }

    #[test]
    fn a_retry_hides_no_miss_among_trials() {
        // Held again and again where it was missed at first: the misses count.
        let mut record = tried(100, 95);
        let held_again = record.runs[2..].iter().map(|run| Run {
            missed: Vec::new(),
            ..run.clone()
        });
        let missed = |run: &Run| Run {
            clients: 84,
            missed: vec!["late".to_owned()],
            ..run.clone()
        };
        let misses: Vec<_> = record.runs[2..10].iter().map(missed).collect();
        let held_again: Vec<_> = held_again.take(8).collect();
        assert_eq!(outcome(&record), Outcome::Kept);
        record.runs.extend(misses);
        record.runs.extend(held_again);
        assert_eq!(outcome(&record), Outcome::Missed);
    }

    #[test]
    fn a_host_that_steals_voids_trials_held_or_missed() {
        let mut record = tried(100, 95);
        let void = "the host took 30 % of the server's processor".to_owned();
        for run in record.runs.iter_mut().skip(2).step_by(3) {
            run.void = vec![void.clone()];
        }
        let rows = record.rows();
        assert_eq!((rows[0].trials.len(), rows[0].counted().len()), (40, 26));
        assert_eq!(outcome(&record), Outcome::Kept);
        // Misses of the time that it took count for nothing.
        for run in record
            .runs
            .iter_mut()
            .skip(2)
            .filter(|run| !run.void.is_empty())
        {
            run.missed = vec!["late".to_owned()];
        }
        assert_eq!(outcome(&record), Outcome::Kept);
        // If it took from nearly all, nothing is known.
        for run in record.runs.iter_mut().skip(2).step_by(2) {
            run.void = vec![void.clone()];
        }
        assert_eq!(outcome(&record), Outcome::Void);
        assert!(record.aim_verdicts()[0].found.contains("trials are void"));
    }

    #[test]
    fn modes_have_curves_of_their_own() {
        let mut record = tried(100, 95);
        let of_other = tried(85, 0).runs.into_iter().map(|run| Run {
            mode: onrush_testkit::testbed::Mode::SoftwareGso,
            ..run
        });
        record.runs.extend(of_other);
        let outcomes: Vec<_> = record
            .aim_verdicts()
            .into_iter()
            .map(|it| it.outcome)
            .collect();
        assert_eq!(outcomes, [Outcome::Kept, Outcome::Missed]);
    }
}
