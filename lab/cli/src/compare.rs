//! `onrush-lab compare`: what changed between two measurements.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use onrush_measure::compare::{CHANCE_MAX, Outcome, Row, SAMPLES_MIN, Side, compare};
use onrush_measure::experiment::AnyRecord;
use onrush_measure::plot::Unit;
use onrush_measure::table::{Column, Report, Table};
use onrush_measure::{cluster, cue, game, group, load, paths, primitives, relay, serve};

use crate::frame::outcome;

/// Say what changed between two measurements, beyond noise
///
/// Takes two files that --json of the same experiment wrote, before and after an upgrade, say, and
/// compares every figure in them. A figure changed if chance alone would part its samples so in
/// less than 1 of 100 cases (rank sum test) and its median moved by more than --beyond; of what
/// there is to be none of, as lost packets, any is worse than none. Ends with 0 if nothing got
/// worse, 1 if something did, 2 if the files cannot be compared.
#[derive(Args, Debug)]
pub(crate) struct Compare {
    /// As it was
    #[arg(value_name = "A.json", value_hint = ValueHint::FilePath)]
    before: PathBuf,

    /// As it is
    #[arg(value_name = "B.json", value_hint = ValueHint::FilePath)]
    after: PathBuf,

    /// Changes of the median that do not count
    ///
    /// What the same machine differs by from one day to the next.
    #[arg(long, value_name = "PART", default_value = "5%", value_parser = part)]
    beyond: f64,

    /// List the figures that stayed the same too
    #[arg(long)]
    all: bool,
}

/// Compares, and tells.
pub(crate) fn run(arguments: &Compare, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let before = AnyRecord::read_any(&arguments.before)?;
    let after = AnyRecord::read_any(&arguments.after)?;
    let compared = compare(&before, &after, arguments.beyond)?;
    let mut report = Report::default();
    for difference in &compared.differences {
        report.text(format!("differs: {difference}"));
    }
    for (outcome, heading) in [
        (Outcome::Worse, "WORSE"),
        (Outcome::Better, "better"),
        (Outcome::Different, "different"),
        (Outcome::Same, "same"),
    ] {
        if outcome != Outcome::Same || arguments.all {
            report.add([table(heading, compared.with(outcome))]);
        }
    }
    for (name, side) in &compared.missing {
        let only = match side {
            Side::Before => "first",
            Side::After => "second",
        };
        report.text(format!("only in the {only}: {name}"));
    }
    let count = |outcome| compared.with(outcome).count();
    report.text(format!(
        "{} figures: {} worse, {} better, {} different, {} not known to differ",
        compared.rows.len(),
        count(Outcome::Worse),
        count(Outcome::Better),
        count(Outcome::Different),
        count(Outcome::Same),
    ));
    let unknown = count(Outcome::Unknown);
    if unknown > 0 {
        let advice = more_samples(&before.experiment);
        report.text(format!("{unknown} have too few samples to tell; {advice}"));
    }
    report.text(format!(
        "chance alone (1 in {:.0}) would make about {:.1} of them seem apart",
        1.0 / CHANCE_MAX,
        compared.by_chance()
    ));
    write!(out, "{report}")?;
    Ok(outcome(count(Outcome::Worse) == 0))
}

/// How there are more samples of an experiment.
fn more_samples(experiment: &str) -> String {
    let enough = format!("take at least {SAMPLES_MIN}");
    match experiment {
        cluster::NAME
        | cue::NAME
        | cue::scan::NAME
        | game::NAME
        | group::NAME
        | paths::NAME
        | relay::NAME
        | serve::NAME => format!("{enough} (--repeats)"),
        primitives::NAME => format!("{enough} (--times)"),
        load::NAME | load::hls::NAME | load::http::NAME => {
            "a load has one of each: make several before and after, and compare each pair"
                .to_owned()
        }
        _ => enough,
    }
}

fn table<'a>(heading: &str, rows: impl Iterator<Item = &'a Row>) -> Table {
    let columns = [
        Column::key(heading),
        Column::number("before", Unit::Count),
        Column::number("after", Unit::Count),
        Column::number("change", Unit::Count),
        Column::number("chance", Unit::Count),
    ];
    let mut table = Table::new("", columns);
    for row in rows {
        let change = match row.ratio.is_finite() {
            true => format!("{:+.1} %", (row.ratio - 1.0) * 100.0),
            false => "from 0".to_owned(),
        };
        table.row([
            row.name.as_str().into(),
            row.unit.tell(row.before.median).into(),
            row.unit.tell(row.after.median).into(),
            change.into(),
            format!("{:.1e}", row.chance).into(),
        ]);
    }
    table
}

/// Reads `5%`.
fn part(text: &str) -> Result<f64, String> {
    let number = text
        .trim()
        .strip_suffix('%')
        .and_then(|number| number.trim().parse::<f64>().ok());
    let percent = number.filter(|percent| (0.0..=1000.0).contains(percent));
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "write 0% to 1000%, as in 5%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_a_percent_sign_and_a_bound() {
        assert_eq!(part("5%"), Ok(0.05));
        assert_eq!(part("1000 %"), Ok(10.0));
        for wrong in ["5", "-1%", "1001%", "%", "nan%"] {
            assert!(part(wrong).is_err(), "{wrong}");
        }
    }
}
