//! `onrush-lab predict`: what each data path will cost here, from what its parts cost.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueHint};
use onrush_group::Way;
use onrush_measure::experiment::Record;
use onrush_measure::model::check::{Checked, ERROR_MAX, PREDICTED_MIN, checked};
use onrush_measure::model::{self, Costs, Load, ModelError, ModelRecord, Settings, Term};
use onrush_paths::Name;

use crate::frame::{VERSION, bar_of_part, command, head, outcome};
use onrush_cli::units::{Rate, Size, Time, within};

/// Predict what each data path will cost here
///
/// Measures what the parts of sending cost (a crossing, a copied byte, a packet, a train, a pinned
/// page), each by a small probe of its own, in network namespaces that it makes for itself; then
/// adds up what each path of the catalogue and each way of a group is made of. Takes about ten
/// seconds and needs root; --from needs neither.
#[derive(Args, Debug)]
pub(crate) struct Predict {
    /// Size of a packet, header included
    #[arg(long, value_name = "SIZE", default_value_t = Size(1328),
          value_parser = within(Size(16), Size(65_507)))]
    packet: Size,

    /// Rate of each client's stream
    #[arg(long, value_name = "RATE", default_value_t = Rate(4_000_000))]
    rate: Rate,

    /// Clients at once
    ///
    /// Of several, each burst is another one's, whose socket no cache holds any more.
    #[arg(long, value_name = "N", default_value_t = 1)]
    clients: u32,

    /// Length of a burst [default: the whole file]
    ///
    /// Packets that are due together can leave as a train. Without it as many do as fit in one
    /// send.
    #[arg(long, value_name = "TIME")]
    burst: Option<Time>,

    /// Only these paths and ways, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,

    /// Tell what each term costs, and what each path is made of
    #[arg(long)]
    terms: bool,

    /// Let the paths move a file, and compare
    ///
    /// Each path moves 64 MiB in the same session, turn about with the probes. Ends with 1 if less
    /// than 80 % of the paths are predicted within 20 % in both modes. Takes a minute.
    #[arg(long, conflicts_with = "from")]
    check: bool,

    /// Write every sample to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,

    /// Take the parts' costs from such a file, measure nothing
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "json")]
    from: Option<PathBuf>,
}

const RTP_HEADER_BYTES: f64 = 12.0;

/// Measures the parts, or reads them, and predicts.
pub(crate) fn run(arguments: &Predict, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: ModelRecord = match &arguments.from {
        Some(file) => Record::read(file, model::NAME)?,
        None => measure(&arguments.settings())?,
    };
    if let Some(file) = &arguments.json {
        record.write(file)?;
    }
    head(&record.environment, out)?;
    let costs = record
        .settings
        .modes
        .iter()
        .map(|&mode| Costs::of(&record, mode));
    let Some(costs) = costs.collect::<Option<Vec<_>>>() else {
        bail!("a probe has no valid sample, so that nothing can be predicted; measure again");
    };
    if arguments.terms {
        print_terms(&costs, out)?;
    }
    // Who asks for clients does not ask how the paths were checked.
    let passed = match record.settings.check && arguments.clients == 1 {
        true => print_check(&checked(&record), out)?,
        false => {
            print_paths(arguments, &costs, out)?;
            true
        }
    };
    let voids = record.runs.iter().filter(|run| run.void.is_some()).count();
    if voids > 0 {
        writeln!(
            out,
            "{voids} of {} turns were void, because packets were lost",
            record.runs.len()
        )?;
    }
    Ok(outcome(passed))
}

/// Carries the probes out, with a bar on stderr.
pub(crate) fn measure(settings: &Settings) -> anyhow::Result<ModelRecord> {
    let measured = model::run(settings, VERSION, &command(), bar_of_part());
    match measured {
        Err(ModelError::Testbed(error)) if error.is_not_permitted() => bail!(
            "{error}: the probes send in network namespaces of their own; try: sudo {}, or --from \
             FILE",
            command()
        ),
        measured => Ok(measured?),
    }
}

fn print_terms(costs: &[Costs], out: &mut dyn Write) -> anyhow::Result<()> {
    write!(out, "\n{:<20}", "one costs, in ns")?;
    for costs in costs {
        write!(out, " {:>14}", costs.mode.name())?;
    }
    writeln!(out)?;
    for term in Term::ALL {
        write!(out, "{:<20}", term.name())?;
        for costs in costs {
            write!(out, " {:>14.3}", costs.ns(term))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_paths(arguments: &Predict, costs: &[Costs], out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|n| n == name);
    let packet_bytes = u32::try_from(arguments.packet.0).map_or(f64::MAX, f64::from);
    #[allow(clippy::cast_precision_loss, reason = "a rate is far below 2^53")]
    let packets_a_second =
        arguments.rate.0 as f64 / 8.0 / packet_bytes * f64::from(arguments.clients);
    write!(out, "\n{:<28}", format!("{} B packets", arguments.packet.0))?;
    for costs in costs {
        let mode = costs.mode.name();
        write!(
            out,
            " {:>14} {:>8} {:>8}",
            format!("{mode} ns"),
            "s/GB",
            "core"
        )?;
    }
    writeln!(out)?;
    let paths = Name::ALL.map(|name| (name.as_str(), "", name.takes_headers(true)));
    let ways = Way::ALL.map(|way| (way.as_str(), "group, ", true));
    let all = paths.into_iter().chain(ways);
    for (name, kind, has_headers) in all.filter(|(name, _, _)| wanted(name)) {
        let shown = format!("{kind}{name}");
        let header_bytes = if has_headers { RTP_HEADER_BYTES } else { 0.0 };
        let load = Load {
            payload_bytes: packet_bytes - header_bytes,
            header_bytes,
            burst_packets: arguments.burst_packets(packet_bytes),
        };
        let formula = match kind {
            "" => model::path(name, &load),
            _ => model::group(name, &load),
        };
        let formula = match arguments.clients {
            // A group has one socket for all.
            2.. if kind.is_empty() => formula.map(|formula| model::of_many(formula, &load)),
            _ => formula,
        };
        match formula {
            Err(error) => writeln!(out, "{shown:<28} not predicted: {error}")?,
            Ok(formula) => {
                write!(out, "{shown:<28}")?;
                for costs in costs {
                    let ns = formula.ns(costs);
                    let percent = ns * packets_a_second / 1e7;
                    write!(
                        out,
                        " {ns:>14.0} {:>8.2} {percent:>6.2} %",
                        ns / load.payload_bytes
                    )?;
                }
                writeln!(out)?;
                if arguments.terms {
                    writeln!(out, "    {formula}")?;
                }
            }
        }
    }
    Ok(())
}

/// Whether as many paths are predicted as have to be.
fn print_check(checked: &[Checked], out: &mut dyn Write) -> anyhow::Result<bool> {
    let part = print_checked(checked, out)?;
    let passed = part >= PREDICTED_MIN;
    writeln!(
        out,
        "{:.0} % were to be: {}",
        PREDICTED_MIN * 100.0,
        if passed { "kept" } else { "MISSED" }
    )?;
    Ok(passed)
}

/// Prints what was predicted beside what was measured; what part is predicted well.
pub(crate) fn print_checked(checked: &[Checked], out: &mut dyn Write) -> anyhow::Result<f64> {
    writeln!(
        out,
        "\n{:<28} {:<14} {:>10} {:>20} {:>8}",
        "ns a packet", "", "predicted", "measured", "off by"
    )?;
    for it in checked {
        let predicted = it
            .predicted_ns
            .as_ref()
            .map_or_else(|_| "-".to_owned(), |ns| format!("{ns:.0}"));
        let measured = it
            .measured_ns
            .as_ref()
            .map_or_else(|_| "-".to_owned(), |summary| summary.told(0));
        let off = it
            .error()
            .map_or_else(String::new, |error| format!("{:+.0} %", error * 100.0));
        let mark = if it.is_predicted() { "" } else { "  !" };
        writeln!(
            out,
            "{:<28} {:<14} {predicted:>10} {measured:>20} {off:>8}{mark}",
            it.path,
            it.mode.name()
        )?;
        let unknown = it.predicted_ns.as_ref().err().map(ToString::to_string);
        for why in unknown.iter().chain(it.measured_ns.as_ref().err()) {
            writeln!(out, "    {why}")?;
        }
    }
    let names: BTreeSet<_> = checked.iter().map(|it| &it.path).collect();
    let is_good = |name: &&&String| {
        checked
            .iter()
            .filter(|it| &it.path == **name)
            .all(Checked::is_predicted)
    };
    let good = names.iter().filter(is_good).count();
    let part = good as f64 / names.len().max(1) as f64;
    writeln!(
        out,
        "\n{good} of {} are predicted within {:.0} % in all modes ({:.0} %)",
        names.len(),
        ERROR_MAX * 100.0,
        part * 100.0,
    )?;
    Ok(part)
}

impl Predict {
    fn settings(&self) -> Settings {
        let packet_bytes = u32::try_from(self.packet.0).unwrap_or(u32::MAX);
        Settings {
            check: self.check,
            packet_bytes,
            ..Settings::default()
        }
    }

    fn burst_packets(&self, packet_bytes: f64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a rate is far below 2^53")]
        let bytes_a_second = self.rate.0 as f64 / 8.0;
        let burst = self
            .burst
            .map(|burst| burst.0.as_secs_f64() * bytes_a_second / packet_bytes);
        burst.unwrap_or(f64::INFINITY)
    }
}
