//! `onrush-lab predict`: what each data path will cost here, from what its parts cost.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, ValueHint};
use onrush_group::Way;
use onrush_measure::experiment::Record;
use onrush_measure::model::check::checked;
use onrush_measure::model::halves::halves;
use onrush_measure::model::{self, Costs, Load, ModelRecord, NAME, Settings, group, of_many, path};
use onrush_measure::report::model as model_report;
use onrush_measure::table::{Cell, Column, Report, Table};
use onrush_paths::Name;

use crate::frame::{
    VERSION, bar_of_part, check_writable, command, forget, head, outcome, with_advice,
};
use onrush_cli::units::{Rate, Size, Time, within};

/// Predict what each data path will cost here
///
/// Measures what the parts of sending cost (a crossing, a copied byte, a packet, a train, a pinned
/// page), each by a small probe of its own, in network namespaces that it makes for itself; then
/// adds up what each path of the catalogue and each way of a group is made of. Takes about ten
/// seconds and needs root; --from needs neither.
///
/// Of a record that was made with --check it tells what was found then, unless it is asked for a
/// load: by --packet, --rate, --clients, --burst or --only.
#[derive(Args, Debug)]
pub(crate) struct Predict {
    /// Size of a packet, header included [default: 1328B]
    ///
    /// 1472B at most, which fill an Ethernet frame: larger packets are fragmented and leave in no
    /// trains, and nothing is predicted of them.
    #[arg(long, value_name = "SIZE", value_parser = within(Size(16), Size(1472)))]
    packet: Option<Size>,

    /// Check with packets of these sizes, too
    #[arg(long, value_name = "SIZES", value_delimiter = ',', requires = "check",
          value_parser = within(Size(64), Size(1472)))]
    also: Vec<Size>,

    /// Rate of each client's stream [default: 4Mbit/s]
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,

    /// Clients at once [default: 1]
    ///
    /// Of several, each burst is another one's, whose socket no cache holds any more.
    #[arg(long, value_name = "N")]
    clients: Option<u32>,

    /// Length of a burst [default: the whole file]
    ///
    /// Packets that are due together can leave as a train. Without it as many do as fit in one
    /// send.
    #[arg(long, value_name = "TIME")]
    burst: Option<Time>,

    /// Only these paths and ways, by name
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = path_or_way)]
    only: Vec<String>,

    /// Tell what each term costs, and what each path is made of
    #[arg(long)]
    terms: bool,

    /// Let the paths move a file, and compare
    ///
    /// Each path moves 64 MiB in the same session, turn about with the probes. Ends with 1 if less
    /// than 80 % of the paths are predicted within 20 % in both modes. Takes a minute.
    /// Terms are also chosen anew on one half of the paths and sizes and judged on the other.
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

const PACKET: Size = Size(1328);

const RATE: Rate = Rate(4_000_000);

/// Measures the parts, or reads them, and predicts.
pub(crate) fn run(arguments: &Predict, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let record: ModelRecord = match &arguments.from {
        Some(file) => Record::read(file, NAME)?,
        None => {
            let file = arguments.json.as_deref();
            let is_new = check_writable(file)?;
            measure(&arguments.settings()).inspect_err(|_| forget(file, is_new))?
        }
    };
    if let Some(file) = &arguments.json {
        record.write(file)?;
    }
    head(&record.environment, out)?;
    let modes = record.settings.modes.iter();
    let costs = modes.map(|&mode| Costs::of(&record, mode));
    let Some(costs) = costs.collect::<Option<Vec<_>>>() else {
        bail!("a probe has no valid sample, so that nothing can be predicted; measure again");
    };
    let mut report = Report::default();
    if arguments.terms {
        report.add([model_report::terms(&costs)]);
    }
    // Who asks for a load does not ask how the paths were checked, unless that is done now.
    let is_of_load = arguments.asks_for_load();
    let is_checked = record.settings.check && (arguments.check || !is_of_load);
    if is_checked {
        let checked = checked(&record);
        report.add([model_report::checked(&checked)]);
        report.add([model_report::well_predicted(&checked)]);
        report.add(halves(&record).as_ref().map(model_report::out_of_sample));
    }
    if !is_checked || is_of_load {
        report.add([paths(arguments, &costs)]);
    }
    let voids = record.runs.iter().filter(|run| run.void.is_some()).count();
    if voids > 0 {
        let all = record.runs.len();
        report.text(format!(
            "{voids} of {all} turns were void, because packets were lost"
        ));
    }
    write!(out, "{report}")?;
    Ok(outcome(report.passed()))
}

/// Carries the probes out, with a bar on stderr.
pub(crate) fn measure(settings: &Settings) -> anyhow::Result<ModelRecord> {
    let measured = model::run(settings, VERSION, &command(), bar_of_part());
    measured.map_err(|error| with_advice(error.into()))
}

/// What each path costs, and what share of a processor the load takes.
fn paths(arguments: &Predict, costs: &[Costs]) -> Table {
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|n| n == name);
    let packet = arguments.packet.unwrap_or(PACKET);
    let packet_bytes = u32::try_from(packet.0).map_or(f64::MAX, f64::from);
    let clients = arguments.clients.unwrap_or(1);
    let packets_a_second = arguments.bytes_a_second() / packet_bytes * f64::from(clients);
    let columns = costs.iter().flat_map(|costs| {
        let mode = costs.mode.name();
        [
            Column::ns(mode, 0),
            Column::count("s/GB", 2),
            Column::percent("core", 2),
        ]
    });
    let columns: Vec<_> = [Column::key("path")].into_iter().chain(columns).collect();
    let mut table = Table::new(format!("Packets of {} B", packet.0), columns);
    let paths = Name::ALL.map(|name| (name.as_str(), "", name.takes_headers(true)));
    let ways = Way::ALL.map(|way| (way.as_str(), "group, ", true));
    let all = paths.into_iter().chain(ways);
    for (name, kind, has_headers) in all.filter(|(name, _, _)| wanted(name)) {
        let header_bytes = if has_headers { RTP_HEADER_BYTES } else { 0.0 };
        let load = Load {
            payload_bytes: packet_bytes - header_bytes,
            header_bytes,
            burst_packets: arguments.burst_packets(packet_bytes),
        };
        let formula = match kind {
            "" => path(name, &load),
            _ => group(name, &load),
        };
        let formula = match clients {
            // A group has one socket for all.
            2.. if kind.is_empty() => formula.map(|formula| of_many(formula, &load)),
            _ => formula,
        };
        let mut cells = vec![Cell::from(format!("{kind}{name}"))];
        let of_modes = formula.iter().flat_map(|formula| {
            costs.iter().flat_map(|costs| {
                let ns = formula.ns(costs);
                [ns, ns / load.payload_bytes, ns * packets_a_second / 1e9]
            })
        });
        cells.extend(of_modes.map(Cell::from));
        let row = table.row(cells);
        match formula {
            Err(error) => row.note(format!("not predicted: {error}")),
            Ok(formula) if arguments.terms => row.note(formula.to_string()),
            Ok(_) => {}
        }
    }
    table
}

impl Predict {
    fn settings(&self) -> Settings {
        let packet = self.packet.unwrap_or(PACKET);
        let packet_bytes = u32::try_from(packet.0).unwrap_or(u32::MAX);
        Settings {
            check: self.check,
            packet_bytes,
            more_packet_bytes: self
                .also
                .iter()
                .filter_map(|size| u32::try_from(size.0).ok())
                .collect(),
            ..Settings::default()
        }
    }

    /// Whether it is asked what a load costs. Packets of a size are what `--check` moves, too.
    fn asks_for_load(&self) -> bool {
        let is_of_rate = self.rate.is_some() || self.clients.is_some() || self.burst.is_some();
        is_of_rate || !self.only.is_empty() || (self.packet.is_some() && !self.check)
    }

    fn burst_packets(&self, packet_bytes: f64) -> f64 {
        let bytes_a_second = self.bytes_a_second();
        let burst = self
            .burst
            .map(|burst| burst.0.as_secs_f64() * bytes_a_second / packet_bytes);
        burst.unwrap_or(f64::INFINITY)
    }

    /// What a client takes.
    #[allow(clippy::cast_precision_loss, reason = "a rate is far below 2^53")]
    fn bytes_a_second(&self) -> f64 {
        self.rate.unwrap_or(RATE).0 as f64 / 8.0
    }
}

/// The name of a path or of a way of a group.
fn path_or_way(text: &str) -> Result<String, String> {
    let names = Name::ALL.map(Name::as_str).into_iter();
    let names: Vec<_> = names.chain(Way::ALL.map(Way::as_str)).collect();
    match names.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "no path and no way is named {text:?}; there are {}",
            names.join(", ")
        )),
    }
}
