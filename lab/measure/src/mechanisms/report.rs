//! What a record says: one table of how many each holds, and curves over bitrates.

use onrush_testkit::testbed::Mode;

use super::record::{Films, MechanismsRecord, Run};
use crate::plot::{Chart, Drawing, Unit};
use crate::serve::Contestant;
use crate::stats::{ratio, to_f64};
use crate::table::{Column, Report, Table, Verdict, gather, table};

/// What the paper's best existing path is, and the one that is to hold more.
const PAPERS_BEST: Contestant = Contestant::RtpSendfile;

/// One mechanism, in one mode, of one rate.
struct Row<'a> {
    of: &'a Run,
    /// The most that were held, if any were.
    held: Option<&'a Run>,
    /// The fewest that were not.
    missed: Option<&'a Run>,
}

/// What a record says.
#[must_use]
pub fn report(record: &MechanismsRecord) -> Report {
    let settings = &record.settings;
    let rows = rows(record);
    let mut report = Report::new("How many timely viewers each way of sending holds");
    report.text(format!(
        "one processor sends; bursts of {} ms; a player buffers {} ms; each number was tried for \
         {:.1} s, once",
        settings.burst_ns / 1_000_000,
        settings.buffer_ns() / 1_000_000,
        ratio(settings.measured_ns, 1_000_000_000),
    ));
    report.add(charts(record, &rows));
    report.add([held(&rows)]);
    report.text(
        "Ways that hand over one packet a send are compared with each other; trains stand apart. \
         Near a limit one try says little: onrush-lab bench capacity --trials tells how surely the \
         server holds a number.",
    );
    report.add(verdicts(&rows));
    report
}

fn rows(record: &MechanismsRecord) -> Vec<Row<'_>> {
    let key = |run: &Run| (run.films, run.mode, run.rate_bps, run.mechanism);
    let runs = gather(record.runs.iter().map(|run| (key(run), run)));
    let rows = runs.into_iter().map(|(_, runs)| Row {
        of: runs[0],
        held: runs
            .iter()
            .copied()
            .filter(|run| run.missed.is_empty())
            .max_by_key(|run| run.sessions),
        missed: runs
            .iter()
            .copied()
            .filter(|run| !run.missed.is_empty())
            .min_by_key(|run| run.sessions),
    });
    let mut rows: Vec<_> = rows.collect();
    // Mechanisms took turns: put those of one curve together.
    let order = |run: &Run| {
        let place = |mechanism| {
            record
                .settings
                .mechanisms
                .iter()
                .position(|&it| it == mechanism)
        };
        let films = (run.films == Films::Each, run.mode == Mode::SoftwareGso);
        (films, run.rate_bps, place(run.mechanism))
    };
    rows.sort_by_key(|row| order(row.of));
    rows
}

impl Row<'_> {
    fn sessions(&self) -> u32 {
        self.held.map_or(0, |run| run.sessions)
    }

    /// Whether each send hands over one packet.
    fn is_single(&self) -> bool {
        !self.of.mechanism.segments()
    }

    /// The row of another mechanism in the same place.
    fn beside<'a>(&self, rows: &'a [Self], mechanism: Contestant) -> Option<&'a Self> {
        let place = |run: &Run| (run.films, run.mode, run.rate_bps);
        rows.iter()
            .find(|row| row.of.mechanism == mechanism && place(row.of) == place(self.of))
    }

    /// Times as many as another holds.
    fn times(&self, other: Option<&Self>) -> Option<f64> {
        let other = other?.sessions();
        (other > 0).then(|| f64::from(self.sessions()) / f64::from(other))
    }
}

fn held(rows: &[Row<'_>]) -> Table {
    let mut table = table! {
        "The most viewers that were held on time",
        for row in rows,
        let held = row.held,
        let why = row.missed.map(|run| format!("With {}: {}", run.sessions, run.missed.join("; ")));
        Column::key("films") => row.of.films.name(),
        Column::key("mode") => row.of.mode.name(),
        Column::key("rate") => Unit::BitsPerSecond.tell(ratio(row.of.rate_bps, 1)),
        Column::key("way") => row.of.mechanism.name(),
        Column::key("a send has") => if row.is_single() { "a packet" } else { "a train" },
        Column::count("viewers held", 0).more() => vec![f64::from(row.sessions())],
        Column::count("times rtp_sendfile", 1) => row.times(row.beside(rows, PAPERS_BEST)),
        Column::ns("CPU per packet", 0).less() => held.map(|run| vec![run.cpu_ns_a_packet]),
        Column::percent("core busy", 0) => held.map(|run| run.core_busy),
        Column::count("crossings a packet", 3) => held.map(|run| run.crossings_a_packet),
        Column::count("packets a send", 1) => held.map(|run| run.packets_a_send),
        Column::ms("buffer, 999 of 1000", 1)
            => held.and_then(|run| run.needed_ns.map(|ns| ratio(ns, 1)));
        notes why
    };
    let yardsticks = rows.iter().filter_map(|row| row.held);
    let yardsticks: Vec<_> = yardsticks
        .map(|run| to_f64(run.yardstick_ns) / 1e6)
        .collect();
    if let (Some(least), Some(most)) = (
        yardsticks.iter().copied().reduce(f64::min),
        yardsticks.iter().copied().reduce(f64::max),
    ) {
        table.note(format!(
            "A fixed piece of work on the sender's processor took {least:.1} to {most:.1} ms \
             before these runs."
        ));
    }
    table
}

/// One family of curves for each mode and kind of films, where there is more than one rate.
fn charts(record: &MechanismsRecord, rows: &[Row<'_>]) -> Vec<Drawing> {
    let settings = &record.settings;
    if settings.rates_bps.len() < 2 {
        return Vec::new();
    }
    let mut drawings = Vec::new();
    for &films in &settings.films {
        for &mode in &settings.modes {
            let title = match films {
                Films::One => format!("Timely viewers of one film, {}", mode.name()),
                Films::Each => {
                    format!("Timely viewers, each of a film of its own, {}", mode.name())
                }
            };
            let mut chart = Chart::lines(&title)
                .x("rate of each", Unit::BitsPerSecond)
                .y("viewers held", Unit::Count);
            for &mechanism in &settings.mechanisms {
                let its = rows.iter().filter(|row| {
                    let it = row.of;
                    (it.films, it.mode, it.mechanism) == (films, mode, mechanism)
                });
                let points = its.map(|row| (to_f64(row.of.rate_bps), f64::from(row.sessions())));
                chart = chart.series(mechanism.name(), points.collect::<Vec<_>>());
            }
            let file = format!("{}-{films}.svg", mode.name());
            drawings.push(Drawing::new(file, chart));
        }
    }
    drawings
}

/// Whether the server's path holds at least as many as each other way, in each place.
fn verdicts(rows: &[Row<'_>]) -> Vec<Verdict> {
    let ours = rows
        .iter()
        .filter(|row| row.of.mechanism == Contestant::ENGINE);
    let verdict = |row: &Row<'_>| {
        let place = |run: &Run| (run.films, run.mode, run.rate_bps);
        let others = rows.iter().filter(|other| place(other.of) == place(row.of));
        let best = others.max_by_key(|other| other.sessions())?;
        let what = format!(
            "{}, {}, {}: {} holds as many as any",
            row.of.films,
            row.of.mode.name(),
            Unit::BitsPerSecond.tell(ratio(row.of.rate_bps, 1)),
            row.of.mechanism
        );
        let found = format!(
            "{}; the most are {}, by {}",
            row.sessions(),
            best.sessions(),
            best.of.mechanism
        );
        // What lies within the search's step is one number.
        let least = row
            .missed
            .map_or_else(|| row.sessions(), |missed| missed.sessions);
        let is_kept = row.sessions() > 0 && best.sessions() <= least.max(row.sessions());
        Some(Verdict::new(what, found, is_kept))
    };
    ours.filter_map(verdict).collect()
}

#[cfg(test)]
mod tests {
    use super::super::record::{NAME, Settings};
    use super::*;
    use crate::experiment::{Environment, Record};
    use crate::table::Outcome;

    fn run(mechanism: Contestant, rate_bps: u64, sessions: u32, is_held: bool) -> Run {
        Run {
            mode: Mode::Uso,
            rate_bps,
            films: Films::One,
            mechanism,
            sessions,
            missed: if is_held {
                Vec::new()
            } else {
                vec!["late".to_owned()]
            },
            needed_ns: Some(21_000_000),
            cpu_ns_a_packet: 100.0,
            core_busy: 0.9,
            crossings_a_packet: 0.01,
            packets_a_send: 7.6,
            stolen_ns: 0,
            yardstick_ns: 20_000_000,
        }
    }

    fn record(runs: Vec<Run>) -> MechanismsRecord {
        let mut record = Record::new(NAME, Environment::here("1", "c"), Settings::default());
        record.runs = runs;
        record
    }

    #[test]
    fn each_way_has_a_row_and_is_compared_with_the_papers() {
        let rate = 4_000_000;
        let record = record(vec![
            run(Contestant::ENGINE, rate, 4000, true),
            run(PAPERS_BEST, rate, 500, true),
            run(PAPERS_BEST, rate, 1000, false),
            run(Contestant::ENGINE, rate, 8192, false),
            run(Contestant::ENGINE, rate, 6000, true),
            run(PAPERS_BEST, 20_000_000, 100, false),
        ]);
        let rows = rows(&record);
        let told: Vec<_> = rows
            .iter()
            .map(|row| (row.of.mechanism, row.of.rate_bps, row.sessions()))
            .collect();
        let expected = [
            (PAPERS_BEST, rate, 500),
            (Contestant::ENGINE, rate, 6000),
            (PAPERS_BEST, 20_000_000, 0),
        ];
        assert_eq!(told, expected);
        let table = held(&rows);
        let cells: Vec<_> = table
            .cells(&table.rows[1])
            .map(|(column, cell)| column.tell(cell))
            .collect();
        assert_eq!(cells[4..7], ["a train", "6000", "12.0"]);
        assert_eq!(table.rows[1].notes, ["With 8192: late"]);
        assert_eq!(charts(&record, &rows).len(), 4);
        assert!(report(&record).passed());
    }

    #[test]
    fn the_servers_path_is_to_hold_as_many_as_any() {
        let outcome = |ours: u32, missed: u32, other: u32| {
            let record = record(vec![
                run(Contestant::ENGINE, 500_000, ours, true),
                run(Contestant::ENGINE, 500_000, missed, false),
                run(Contestant::MmapWritev, 500_000, other, true),
            ]);
            verdicts(&rows(&record))[0].outcome
        };
        assert_eq!(outcome(4000, 4400, 3000), Outcome::Kept);
        // Within a step of the search.
        assert_eq!(outcome(4000, 4400, 4400), Outcome::Kept);
        assert_eq!(outcome(4000, 4400, 4500), Outcome::Missed);
        let none = record(vec![run(Contestant::ENGINE, 500_000, 10, false)]);
        assert_eq!(verdicts(&rows(&none))[0].outcome, Outcome::Missed);
    }
}
