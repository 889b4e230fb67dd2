//! What the parts of a path cost, and how well paths are predicted from that.

use std::collections::BTreeSet;

use crate::model::check::{self, Checked, ERROR_MAX, PREDICTED_MIN};
use crate::model::halves::{Halves, halves};
use crate::model::probe::Of;
use crate::model::{Costs, ModelRecord, Term};
use crate::table::{Block, Column, Report, Table, Verdict, gather, table};

/// What a record says.
#[must_use]
pub fn report(record: &ModelRecord) -> Report {
    let mut report = Report::new("What the parts of a path cost, and what that predicts");
    let modes = record.settings.modes.iter();
    let costs: Vec<_> = modes.filter_map(|&mode| Costs::of(record, mode)).collect();
    report.add([terms(&costs)]);
    let checked = check::checked(record);
    if !checked.is_empty() {
        report.add([self::checked(&checked)]);
        report.add([well_predicted(&checked)]);
        report.add(halves(record).as_ref().map(out_of_sample));
    }
    let every = Block::Folded("Every turn".to_owned(), vec![turns(record).into()]);
    report.add([every]);
    report
}

/// What one of each part costs.
#[must_use]
pub fn terms(costs: &[Costs]) -> Table {
    let modes = costs.iter().map(|costs| Column::ns(costs.mode.name(), 3));
    let columns: Vec<_> = [Column::key("one costs")]
        .into_iter()
        .chain(modes)
        .collect();
    let mut table = Table::new("What each part of a path costs", columns);
    for term in Term::ALL {
        let ns = costs.iter().map(|costs| costs.ns(term).into());
        let cells = [term.name().into()].into_iter().chain(ns);
        table.row(cells.collect::<Vec<_>>());
    }
    table
}

/// What was predicted beside what was measured.
#[must_use]
pub fn checked(checked: &[Checked]) -> Table {
    let mut table = table! {
        "A packet by each path: predicted from its parts, and measured",
        for it in checked,
        let (predicted, measured) = (it.predicted_ns.as_ref(), it.measured_ns.as_ref()),
        let ns = measured.ok(),
        let unknown = predicted.err().map(ToString::to_string);
        Column::key("path") => it.path.as_str(),
        Column::key("mode") => it.mode.name(),
        Column::ns("predicted", 0) => predicted.ok().copied(),
        Column::ns("measured", 0) => ns.map(|ns| ns.median),
        Column::text("(range)") => ns.map(|ns| format!("({:.0}..{:.0})", ns.min, ns.max)),
        Column::percent("off by", 0) => it.error(),
        Column::text("") => (!it.is_predicted()).then_some("!");
        notes unknown.into_iter().chain(measured.err().cloned())
    };
    let percent = ERROR_MAX * 100.0;
    table.note(format!("! marks what is off by more than {percent:.0} %."));
    table
}

/// How many of the paths are predicted well in all modes.
#[must_use]
pub fn well_predicted(checked: &[Checked]) -> Verdict {
    let names: BTreeSet<_> = checked.iter().map(|it| &it.path).collect();
    let is_good = |name: &&&String| {
        let mut of_name = checked.iter().filter(|it| &it.path == **name);
        of_name.all(Checked::is_predicted)
    };
    let (good, all) = (names.iter().filter(is_good).count(), names.len());
    let percent = crate::stats::ratio(good as u64 * 100, all.max(1) as u64);
    let what = format!(
        "{good} of {all} paths are predicted within {:.0} % in all modes, %",
        ERROR_MAX * 100.0
    );
    Verdict::at_least(what, [percent], PREDICTED_MIN * 100.0, 0)
}

/// What was predicted by terms that were chosen on other paths.
#[must_use]
pub fn out_of_sample(halves: &Halves) -> Table {
    let mut table = table! {
        "Out of sample: each path by terms that were chosen on the other half of paths and sizes",
        for it in &halves.judged;
        Column::key("path") => it.name.as_str(),
        Column::ns("measured", 0) => it.measured_ns,
        Column::percent("all terms off by", 0) => it.error_all,
        Column::percent("chosen ones off by", 0) => it.error_chosen,
        Column::text("") => (it.error_chosen.abs() > ERROR_MAX).then_some("!"),
    };
    let (all, chosen) = halves.parts_predicted();
    let (error_all, error_chosen) = halves.errors();
    let percent = |part: f64| part * 100.0;
    table.note(format!(
        "Within {:.0} %: {:.0} % of these by all terms, {:.0} % by those chosen on the other half; \
         the error in the middle is {:.0} and {:.0} %.",
        percent(ERROR_MAX),
        percent(all),
        percent(chosen),
        percent(error_all),
        percent(error_chosen),
    ));
    for (terms, paths) in &halves.chosen {
        let names: Vec<_> = terms.iter().map(|term| term.name()).collect();
        table.note(format!(
            "{} terms were chosen on {paths} paths: {}",
            names.len(),
            names.join(", ")
        ));
    }
    table.prefixed("out of sample")
}

/// What each turn took, of probes and of paths.
fn turns(record: &ModelRecord) -> Table {
    let valid = record.runs.iter().filter(|run| run.void.is_none());
    let turns = gather(valid.map(|run| {
        let of = match &run.of {
            Of::Probe(probe) => format!("{probe:?}"),
            Of::Path(path) => path.clone(),
        };
        ((run.mode.name(), of), run.cost_ns)
    }));
    table! {
        "Medians", for ((mode, of), ns) in turns;
        Column::key("mode") => mode,
        Column::key("what had its turn") => of,
        Column::ns("processor time of one", 1).with_range().less() => ns,
    }
}
