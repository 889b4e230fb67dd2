//! How well the model predicts what had no part in choosing its terms.
//!
//! No term is fitted to a path, but which terms there are was found by looking at paths. So terms
//! are chosen anew, on one half of the paths and rates, no more than half as many as those are made
//! of, and judged on the other half; and the other way round, so that each path is judged once.
//! Terms that were not chosen count for nothing, also where a path of the other half has them.

use super::check::{Checked, ERROR_MAX, with_formulas};
use super::cost::Costs;
use super::formula::Formula;
use super::probe::ModelRecord;
use super::term::Term;
use crate::stats::{median, to_f64};

/// What was measured, and what it is made of.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    /// What it is, for people.
    pub(crate) name: String,
    formula: Formula,
    costs: &'a Costs,
    measured_ns: f64,
}

/// One path, judged by terms that were chosen on others.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What it is, for people.
    pub name: String,
    /// What was measured, in ns.
    pub measured_ns: f64,
    /// How far all terms are off, as a part of what was measured.
    pub error_all: f64,
    /// How far those are off that were chosen on the other half.
    pub error_chosen: f64,
}

/// What both halves say.
#[derive(Clone, Debug, Default)]
pub struct Halves {
    /// Each path once.
    pub judged: Vec<Judged>,
    /// The terms that each half chose, the most telling first, and how many paths it had.
    pub chosen: Vec<(Vec<Term>, usize)>,
}

/// What a record says; `None` if too little was checked.
#[must_use]
pub fn halves(record: &ModelRecord) -> Option<Halves> {
    let modes = record.settings.modes.iter();
    let costs: Vec<_> = modes
        .filter_map(|&mode| Some((mode, Costs::of(record, mode)?)))
        .collect();
    let subjects = costs.iter().flat_map(|(mode, costs)| {
        let checked = with_formulas(record, *mode, Some(costs)).into_iter();
        checked.filter_map(|(formula, checked)| Subject::of(&checked, formula, Some(costs)))
    });
    Halves::of(&subjects.collect::<Vec<_>>())
}

impl<'a> Subject<'a> {
    /// Of what was measured and can be predicted.
    pub(crate) fn of(
        checked: &Checked,
        formula: Option<Formula>,
        costs: Option<&'a Costs>,
    ) -> Option<Self> {
        let (formula, costs) = formula.zip(costs)?;
        let measured_ns = checked.measured_ns.as_ref().ok()?.median;
        let is_known = formula.predict(costs).is_ok() && measured_ns > 0.0;
        is_known.then(|| Self {
            name: format!("{}, {}", checked.path, checked.mode.name()),
            formula,
            costs,
            measured_ns,
        })
    }

    /// How far these terms are off, as a part of what was measured.
    fn error(&self, terms: &[Term]) -> f64 {
        let parts = self.formula.terms.iter();
        let parts = parts.filter(|(_, term)| terms.contains(term));
        let ns: f64 = parts
            .map(|(count, term)| count * self.costs.ns(*term))
            .sum();
        ns / self.measured_ns - 1.0
    }
}

impl Halves {
    /// Cuts in two, every other one of a list in which what is alike stands together, and judges
    /// each half by the other. `None` if there are fewer than four.
    #[must_use]
    pub(crate) fn of(subjects: &[Subject<'_>]) -> Option<Self> {
        if subjects.len() < 4 {
            return None;
        }
        let of_half = |half: usize| -> Vec<&Subject<'_>> {
            let all = subjects.iter().enumerate();
            let its = all.filter(|(number, _)| number % 2 == half);
            its.map(|(_, subject)| subject).collect()
        };
        let mut halves = Self::default();
        for (half, other) in [(0, 1), (1, 0)] {
            let (chosen_on, judged) = (of_half(half), of_half(other));
            let terms = choose(&chosen_on);
            for subject in judged {
                halves.judged.push(Judged {
                    name: subject.name.clone(),
                    measured_ns: subject.measured_ns,
                    error_all: subject.error(&Term::ALL),
                    error_chosen: subject.error(&terms),
                });
            }
            halves.chosen.push((terms, chosen_on.len()));
        }
        halves.judged.sort_by(|a, b| a.name.cmp(&b.name));
        Some(halves)
    }

    /// The part of the paths that are predicted within [`ERROR_MAX`], by all terms and by those
    /// that were chosen on the other half.
    #[must_use]
    pub fn parts_predicted(&self) -> (f64, f64) {
        let part = |error: fn(&Judged) -> f64| {
            let good = self.judged.iter().filter(|it| error(it).abs() <= ERROR_MAX);
            to_f64(good.count()) / to_f64(self.judged.len().max(1))
        };
        (part(|it| it.error_all), part(|it| it.error_chosen))
    }

    /// The error in the middle, likewise, without its sign.
    #[must_use]
    pub fn errors(&self) -> (f64, f64) {
        let middle = |error: fn(&Judged) -> f64| {
            median(self.judged.iter().map(|it| error(it).abs())).unwrap_or(0.0)
        };
        (middle(|it| it.error_all), middle(|it| it.error_chosen))
    }
}

/// Takes one term after the other, each time the one that makes predictions of these paths best,
/// until half of the terms that they are made of are taken, fewer than there are paths, or none
/// makes them better.
fn choose(subjects: &[&Subject<'_>]) -> Vec<Term> {
    let is_used = |term: &Term| {
        let mut formulas = subjects.iter().map(|subject| &subject.formula);
        formulas.any(|formula| formula.count(*term) > 0.0)
    };
    let used: Vec<_> = Term::ALL.into_iter().filter(is_used).collect();
    let most = (used.len() / 2).min(subjects.len().saturating_sub(1));
    let mut chosen = Vec::new();
    let mut left = used;
    while chosen.len() < most {
        let before = loss(subjects, &chosen);
        let with = |term: Term| {
            let terms: Vec<_> = chosen.iter().copied().chain([term]).collect();
            loss(subjects, &terms)
        };
        let losses = left.iter().map(|&term| (with(term), term));
        let Some((after, best)) = losses.min_by(|a, b| a.0.total_cmp(&b.0)) else {
            break;
        };
        if after >= before {
            break;
        }
        chosen.push(best);
        left.retain(|&term| term != best);
    }
    chosen
}

/// How wrong these terms are about these paths: the mean of what each is off, none more than all of
/// it, so that one path that is far off is not all that counts.
fn loss(subjects: &[&Subject<'_>], terms: &[Term]) -> f64 {
    let errors = subjects
        .iter()
        .map(|subject| subject.error(terms).abs().min(1.0));
    errors.sum::<f64>() / to_f64(subjects.len().max(1))
}

#[cfg(test)]
mod tests {
    use onrush_testkit::testbed::Mode;

    use super::super::probe::{Of, Probe, Run};
    use super::super::{NAME, Settings, path};
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::model::Load;

    fn costs() -> Costs {
        let here = Environment::here("1", "c");
        let mut record: ModelRecord = Record::new(NAME, here, Settings::default());
        record
            .runs
            .extend((0..).zip(Probe::ALL).map(|(number, probe)| Run {
                mode: Mode::Uso,
                of: Of::Probe(probe),
                round: 0,
                times: 1,
                cost_ns: 1000.0 + 100.0 * f64::from(number),
                packet_bytes: None,
                void: None,
            }));
        Costs::of(&record, Mode::Uso).unwrap()
    }

    /// Paths whose costs are what their formulas say, but for a part of it.
    fn subjects(costs: &Costs, off: impl Fn(usize) -> f64) -> Vec<Subject<'_>> {
        let load = Load {
            payload_bytes: 1316.0,
            header_bytes: 12.0,
            burst_packets: f64::INFINITY,
        };
        let names = onrush_paths::Name::ALL.into_iter().enumerate();
        let subjects = names.filter_map(|(number, name)| {
            let formula = path(name.as_str(), &load).ok()?;
            let measured_ns = formula.ns(costs) * off(number);
            (measured_ns > 0.0).then(|| Subject {
                name: name.to_string(),
                formula,
                costs,
                measured_ns,
            })
        });
        subjects.collect()
    }

    #[test]
    fn each_path_is_judged_once_by_fewer_terms_than_paths() {
        let costs = costs();
        let subjects = subjects(&costs, |_| 1.0);
        let halves = Halves::of(&subjects).unwrap();
        assert_eq!(halves.judged.len(), subjects.len());
        for (terms, paths) in &halves.chosen {
            assert!(!terms.is_empty() && terms.len() < *paths, "{terms:?}");
        }
        let (all, chosen) = halves.parts_predicted();
        // With every term they are what they are; with half of them most are near.
        assert!(
            (all - 1.0).abs() < 1e-9 && chosen < 1.0 && chosen > 0.3,
            "{chosen}"
        );
        assert!(halves.errors().0 < 1e-9 && halves.errors().1 > 0.0);
    }

    #[test]
    fn a_half_that_is_wrong_is_seen_by_the_other() {
        let costs = costs();
        // Every other path costs thrice what its parts do: no choice on the others tells that.
        let subjects = subjects(&costs, |number| if number % 2 == 0 { 1.0 } else { 3.0 });
        let halves = Halves::of(&subjects).unwrap();
        let odd = halves.judged.iter().filter(|it| it.error_all < -0.6);
        let of_odd: Vec<_> = odd.map(|it| it.error_chosen).collect();
        assert!(of_odd.len() > 5 && of_odd.iter().all(|&error| error < -0.5));
        assert!(Halves::of(&subjects[..3]).is_none());
    }
}
