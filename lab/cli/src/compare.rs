//! `onrush-lab compare`: what changed between two measurements.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use onrush_measure::compare::{CHANCE_MAX, Comparison, Outcome, Row, SAMPLES_MIN, Side, compare};
use onrush_measure::experiment::AnyRecord;

/// Say what changed between two measurements, beyond noise
///
/// Takes two files that --json of the same experiment wrote, before and after an upgrade, say, and
/// compares every figure in them. A figure changed if chance alone would part its samples so in
/// less than 1 of 100 cases (rank sum test) and its median moved by more than --beyond. Ends with 0
/// if nothing got worse, 1 if something did, 2 if the files cannot be compared.
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
    for difference in &compared.differences {
        writeln!(out, "differs: {difference}")?;
    }
    for (outcome, heading) in [
        (Outcome::Worse, "WORSE"),
        (Outcome::Better, "better"),
        (Outcome::Different, "different"),
        (Outcome::Same, "same"),
    ] {
        let rows: Vec<_> = compared.with(outcome).collect();
        if outcome != Outcome::Same || arguments.all {
            print(heading, &rows, out)?;
        }
    }
    print_rest(&compared, out)?;
    Ok(match compared.with(Outcome::Worse).next() {
        Some(_) => ExitCode::from(1),
        None => ExitCode::SUCCESS,
    })
}

fn print(heading: &str, rows: &[&Row], out: &mut dyn Write) -> anyhow::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\n{heading:<10} {:>12} {:>12} {:>8}  chance",
        "before", "after", "change"
    )?;
    for row in rows {
        let tell = |value| row.unit.tell(value).replace('\u{202f}', "");
        let change = match row.ratio.is_finite() {
            true => format!("{:+.1} %", (row.ratio - 1.0) * 100.0),
            false => "from 0".to_owned(),
        };
        writeln!(
            out,
            "{:<10} {:>12} {:>12} {change:>8}  {:.1e}  {}",
            "",
            tell(row.before.median),
            tell(row.after.median),
            row.chance,
            row.name
        )?;
    }
    Ok(())
}

fn print_rest(compared: &Comparison, out: &mut dyn Write) -> anyhow::Result<()> {
    for (name, side) in &compared.missing {
        let only = if *side == Side::Before {
            "first"
        } else {
            "second"
        };
        writeln!(out, "only in the {only}: {name}")?;
    }
    let count = |outcome| compared.with(outcome).count();
    writeln!(
        out,
        "\n{} figures: {} worse, {} better, {} different, {} not known to differ",
        compared.rows.len(),
        count(Outcome::Worse),
        count(Outcome::Better),
        count(Outcome::Different),
        count(Outcome::Same),
    )?;
    let unknown = count(Outcome::Unknown);
    if unknown > 0 {
        writeln!(
            out,
            "{unknown} have too few samples to tell; take at least {SAMPLES_MIN} (--repeats)"
        )?;
    }
    Ok(writeln!(
        out,
        "chance alone (1 in {:.0}) would make about {:.1} of them seem apart",
        1.0 / CHANCE_MAX,
        compared.by_chance()
    )?)
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
