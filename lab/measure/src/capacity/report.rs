//! What a record of the experiment says: the most that each server held, and at what cost.

use onrush_server::engine::phase::Phase;
use onrush_testkit::testbed::Mode;

use super::account::STOLEN_PART_TOLD;
use super::{CapacityRecord, Run};
use crate::load::report::Report as LoadReport;
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{median, ratio};

/// One server in one mode.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Its name.
    pub server: &'a str,
    /// Who cut trains.
    pub mode: Mode,
    /// Length of a burst; 0 for a peer.
    pub burst_ns: u64,
    /// When within a burst's time streams began.
    pub phase: Phase,
    /// Of a hundred viewers, so many jumped.
    pub jumping_percent: u32,
    /// Every run of it that counts, in the order they were measured.
    pub runs: Vec<&'a Run>,
    /// Those that do not, because they were tried again.
    pub repeated: Vec<&'a Run>,
    /// The largest number that it held on time; `None` if it held none that was tried.
    pub held: Option<&'a Run>,
    /// The smallest number above that it did not; `None` if it held all that were tried.
    pub missed: Option<&'a Run>,
}

/// Of as many viewers as are held where none jumps, so many of 1000 are to be held where some do.
const JUMPING_PERMILLE_MIN: u64 = 800;

/// What jumping costs a server in viewers that it holds.
#[derive(Clone, Debug, PartialEq)]
pub struct JumpVerdict {
    /// Of the row where some jump.
    pub name: String,
    /// How many were held of those; `None` if no number that was tried.
    pub held: Option<u32>,
    /// How many were held where none jumps.
    pub still: Option<u32>,
    /// The largest number that was tried with both, and what a packet cost, in ns: where some jump,
    /// and where none does.
    pub packet_ns: Option<(u32, f64, f64)>,
}

impl JumpVerdict {
    /// Whether enough are held. Where nothing is held there is nothing to compare.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.held.zip(self.still).is_some_and(|(held, still)| {
            u64::from(held) * 1000 >= u64::from(still) * JUMPING_PERMILLE_MIN
        })
    }

    /// For people.
    #[must_use]
    pub fn in_words(&self) -> String {
        let name = &self.name;
        let bound = ratio(JUMPING_PERMILLE_MIN, 1000);
        let Some((held, still)) = self.held.zip(self.still) else {
            return format!(
                "{name}: VOID, none were held on one side; the bound is {bound:.2} of those who do \
                 not jump"
            );
        };
        let word = if self.passed() { "kept" } else { "MISSED" };
        let part = ratio(held.into(), still.into());
        let cost = self
            .packet_ns
            .map_or_else(String::new, |(clients, some, none)| {
                format!(
                    "; with {clients} a packet cost {some:.0} ns and {none:.0} where none jumps"
                )
            });
        format!(
            "{name}: holds {held}, {part:.2} of the {still} where none jumps; bound {bound:.2}: \
             {word}{cost}"
        )
    }
}

/// What a server spent on a run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Its own processor time, as processors.
    pub server_cores: f64,
    /// The same for a packet, in ns.
    pub packet_ns: f64,
    /// Of that, the time of threads that send, as processors; 0 for a peer.
    pub send_cores: f64,
    /// How busy its processor was, for whomever, from 0 to 1.
    pub core_busy: f64,
    /// How busy all others were, together.
    pub other_cores_busy: f64,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Lateness of 999 packets in 1000, in ns.
    pub lateness_ns: i64,
}

impl CapacityRecord {
    /// A row for each server, mode and burst, in the order they were measured.
    #[must_use]
    pub fn rows(&self) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for run in &self.runs {
            let is_of = |row: &Row<'_>| {
                (row.server, row.mode, row.burst_ns, row.phase)
                    == (&run.server, run.mode, run.burst_ns, run.phase)
                    && row.jumping_percent == run.jumping_percent
            };
            let place = rows.iter().position(is_of);
            let place = place.unwrap_or_else(|| {
                rows.push(Row {
                    server: &run.server,
                    mode: run.mode,
                    burst_ns: run.burst_ns,
                    phase: run.phase,
                    jumping_percent: run.jumping_percent,
                    runs: Vec::new(),
                    repeated: Vec::new(),
                    held: None,
                    missed: None,
                });
                rows.len() - 1
            });
            let row = &mut rows[place];
            if run.is_repeated {
                row.repeated.push(run);
                continue;
            }
            row.runs.push(run);
            if run.missed.is_empty() {
                if row.held.is_none_or(|held| held.clients < run.clients) {
                    row.held = Some(run);
                }
            } else if row.missed.is_none_or(|missed| missed.clients > run.clients) {
                row.missed = Some(run);
            }
        }
        rows
    }

    /// Whether each row held some number, and enough are held though some jump.
    #[must_use]
    pub fn passed(&self) -> bool {
        let held = self.rows().iter().all(|row| row.held.is_some());
        held && self.jump_verdicts().iter().all(JumpVerdict::passed)
    }

    /// How many are held of viewers of whom some jump, of as many as are held where none does: one
    /// for each row of some, where there is a row of none.
    #[must_use]
    pub fn jump_verdicts(&self) -> Vec<JumpVerdict> {
        let rows = self.rows();
        let clients = |row: &Row<'_>| row.held.map(|run| run.clients);
        let verdict = |row: &Row<'_>| {
            let still = rows.iter().find(|other| {
                let of = |row: &Row<'_>| (row.mode, row.burst_ns, row.phase);
                other.jumping_percent == 0 && other.server == row.server && of(other) == of(row)
            })?;
            Some(JumpVerdict {
                name: row.name(),
                held: clients(row),
                still: clients(still),
                packet_ns: self.packet_ns_beside(row, still),
            })
        };
        let jumping = rows.iter().filter(|row| row.jumping_percent > 0);
        jumping.filter_map(verdict).collect()
    }

    /// What a packet cost of the largest number that was tried with both, in ns: where some jump,
    /// and where none does.
    fn packet_ns_beside(&self, jumping: &Row<'_>, still: &Row<'_>) -> Option<(u32, f64, f64)> {
        let median_of = |row: &Row<'_>, clients| {
            let runs = row.runs.iter().filter(|run| run.clients == clients);
            let ns: Vec<_> = runs.map(|run| self.cost(run).packet_ns).collect();
            median(&ns)
        };
        let common = jumping.runs.iter().map(|run| run.clients);
        let common = common.filter(|&clients| still.runs.iter().any(|run| run.clients == clients));
        let clients = common.max()?;
        Some((
            clients,
            median_of(jumping, clients)?,
            median_of(still, clients)?,
        ))
    }

    /// What `run` cost.
    #[must_use]
    pub fn cost(&self, run: &Run) -> Cost {
        let (load, account) = (&run.load, &run.account);
        let usage = load.server.unwrap_or_default();
        let lateness = load.lateness.quantile_ns(0.999);
        Cost {
            server_cores: ratio(usage.cpu_ns, load.wall_ns),
            packet_ns: ratio(usage.cpu_ns, load.packets_steady),
            send_cores: ratio(account.send_ns(), account.wall_ns),
            core_busy: ratio(account.core_busy_ns, account.wall_ns),
            other_cores_busy: ratio(account.other_cores_busy_ns, account.wall_ns),
            memory_bytes: usage.memory_bytes,
            lateness_ns: lateness.unwrap_or(0),
        }
    }

    /// Why `run` was not held, and what the host did meanwhile; what a packet cost is there for
    /// that, because a host that shares its cores makes it cost more. Of a record from before this
    /// was kept, the first alone.
    #[must_use]
    pub fn why_missed(&self, run: &Run) -> String {
        let mut words = run.missed.clone();
        if run.account.stolen_ns.is_some() {
            words.push(format!("a packet cost {:.0} ns", self.cost(run).packet_ns));
        }
        words.extend(run.account.theft_in_words());
        words.join("; ")
    }

    /// Which runs were tried again, and why: a heading and a note for each; nothing if none was.
    #[must_use]
    pub fn repeats(&self) -> Vec<String> {
        let rows = self.rows();
        let notes = rows.iter().flat_map(|row| {
            let name = row.name();
            let note = move |run: &&Run| {
                format!("  {name} with {}: {}", run.clients, self.why_missed(run))
            };
            row.repeated.iter().map(note)
        });
        let mut notes: Vec<_> = notes.collect();
        let missed = match notes.len() {
            0 => return notes,
            1 => "1 miss was".to_owned(),
            several => format!("{several} misses were"),
        };
        let told = STOLEN_PART_TOLD * 100.0;
        notes.insert(
            0,
            format!(
                "{missed} tried again, because the host took more than {told:.0} % \
         of the server's processor:"
            ),
        );
        notes
    }

    /// What the host took from those that were held: a note for each row where that was something.
    #[must_use]
    pub fn thefts(&self) -> Vec<String> {
        let note = |row: Row<'_>| {
            let held = row.held?;
            let words = held.account.theft_in_words()?;
            Some(format!(
                "{}: {words} while {} watched",
                row.name(),
                held.clients
            ))
        };
        self.rows().into_iter().filter_map(note).collect()
    }

    /// Bytes that the server had read from disks in a second, while all watched.
    #[must_use]
    pub fn disk_bytes_a_second(&self, run: &Run) -> f64 {
        ratio(run.account.disk_bytes, run.account.wall_ns) * 1e9
    }

    /// Bytes of RTP that arrived in a second, while all watched.
    #[must_use]
    pub fn bytes_a_second(&self, run: &Run) -> f64 {
        seen(self, run).bits_a_second / 8.0
    }

    /// Processor time of the threads that read films and build packets, as processors.
    #[must_use]
    pub fn build_cores(&self, run: &Run) -> f64 {
        ratio(run.account.threads_ns("onrush-build"), run.account.wall_ns)
    }

    /// Processor time, lateness and memory over the number of viewers; and a packet's cost over the
    /// length of a burst, if there were several.
    #[must_use]
    pub fn drawings(&self) -> Vec<Drawing> {
        #[allow(clippy::cast_precision_loss, reason = "for a picture")]
        let lateness_ms = |cost: &Cost| cost.lateness_ns as f64 / 1e6;
        #[allow(clippy::cast_precision_loss, reason = "for a picture")]
        let memory_mib = |cost: &Cost| (cost.memory_bytes >> 20) as f64;
        type Value<'a> = &'a dyn Fn(&Cost) -> f64;
        let all: [(&str, &str, &str, Value<'_>); 3] = [
            (
                "cpu",
                "What streams cost the server",
                "processors",
                &|cost| cost.server_cores,
            ),
            (
                "lateness",
                "How late 999 packets in 1000 were at most",
                "ms",
                &lateness_ms,
            ),
            ("memory", "What the server holds", "MiB", &memory_mib),
        ];
        let mut drawings = Vec::new();
        for (name, title, unit, value) in all {
            let mut chart = Chart::lines(title)
                .x("viewers", Unit::Count)
                .y(unit, Unit::Count)
                .source(&self.environment);
            for row in self.rows() {
                let points = row.runs.iter();
                let points = points.map(|run| (f64::from(run.clients), value(&self.cost(run))));
                let mut points: Vec<_> = points.collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                chart = chart.series(&row.name(), points);
            }
            drawings.push(Drawing::new(format!("{name}.svg"), chart));
        }
        if self.settings.bursts_ns.len() > 1 {
            drawings.push(Drawing::new("burst.svg", self.burst_chart()));
        }
        drawings
    }

    /// What a packet costs over the length of a burst, at the largest number that each length held.
    fn burst_chart(&self) -> Chart {
        let mut chart = Chart::lines("What a packet costs the server, by the length of a burst")
            .x("ms of a stream in a burst", Unit::Count)
            .y("ns a packet", Unit::Count)
            .source(&self.environment);
        let rows = self.rows();
        for &mode in &self.settings.modes {
            let ours = rows
                .iter()
                .filter(|row| row.mode == mode && row.burst_ns > 0 && row.jumping_percent == 0);
            #[allow(clippy::cast_precision_loss, reason = "for a picture")]
            let mut points: Vec<_> = ours
                .filter_map(|row| {
                    let packet_ns = self.cost(row.held?).packet_ns;
                    Some((row.burst_ns as f64 / 1e6, packet_ns))
                })
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart = chart.series(mode.name(), points);
        }
        chart
    }
}

impl Row<'_> {
    /// Server, mode and burst in words.
    #[must_use]
    pub fn name(&self) -> String {
        let mode = self.mode.name();
        let phase = match self.phase {
            Phase::AsTheyCome => String::new(),
            phase => format!(", {phase}"),
        };
        let jumping = match self.jumping_percent {
            0 => String::new(),
            percent => format!(", {percent} % jump"),
        };
        match self.burst_ns {
            0 => format!(
                "{}, {mode}{jumping}",
                self.server.split(' ').next().unwrap_or_default()
            ),
            ns => format!(
                "{}, {mode}, bursts of {} ms{phase}{jumping}",
                self.server,
                ns / 1_000_000
            ),
        }
    }
}

/// What viewers saw of `run`, by the budget of the record.
#[must_use]
pub fn seen(record: &CapacityRecord, run: &Run) -> LoadReport {
    let settings = crate::load::Settings {
        lateness_ns_max: record.settings.lateness_ns_max,
        ..crate::load::Settings::new(Vec::new(), run.clients)
    };
    LoadReport::of(&settings, &run.load)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::{Account, Settings};
    use crate::experiment::{Environment, Record};
    use crate::load;

    /// A run of so many viewers in a time of which the host took so many of 100.
    fn run(clients: u32, missed: &[&str], stolen_percent: Option<u64>) -> Run {
        Run {
            server: "onrush".to_owned(),
            mode: Mode::Uso,
            burst_ns: 20_000_000,
            phase: Phase::default(),
            clients,
            jumping_percent: 0,
            load: load::Run {
                packets_steady: 10,
                server: Some(load::Usage {
                    cpu_ns: 1500,
                    memory_bytes: 0,
                }),
                ..load::Run::default()
            },
            account: Account {
                wall_ns: 100,
                stolen_ns: stolen_percent,
                ..Account::default()
            },
            account_coming: Account::default(),
            set_up_ns: None,
            joined: None,
            trouble: Vec::new(),
            missed: missed.iter().map(ToString::to_string).collect(),
            is_repeated: false,
        }
    }

    fn record(runs: Vec<Run>) -> CapacityRecord {
        let environment = Environment::here("1", "onrush-lab bench capacity");
        let mut record = Record::new("capacity", environment, Settings::default());
        record.runs = runs;
        record
    }

    #[test]
    fn what_was_tried_again_is_told_and_does_not_count() {
        let again = |clients| Run {
            is_repeated: true,
            ..run(clients, &["late"], Some(30))
        };
        let record = record(vec![
            run(50, &[], Some(0)),
            again(100),
            run(100, &[], Some(12)),
            again(200),
            run(200, &["late"], Some(2)),
        ]);
        let rows = record.rows();
        let [row] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((row.runs.len(), row.repeated.len()), (3, 2));
        assert_eq!(row.held.map(|run| run.clients), Some(100));
        let missed = row.missed.unwrap();
        assert_eq!((missed.clients, missed.is_repeated), (200, false));
        assert_eq!(record.why_missed(missed), "late; a packet cost 150 ns");
        let name = "onrush, uso, bursts of 20 ms";
        let why = "late; a packet cost 150 ns; the host took 30 % of the server's processor";
        assert_eq!(
            record.repeats(),
            [
                "2 misses were tried again, because the host took more than 2 % of the server's \
                 processor:"
                    .to_owned(),
                format!("  {name} with 100: {why}"),
                format!("  {name} with 200: {why}"),
            ]
        );
        assert_eq!(
            record.thefts(),
            [format!(
                "{name}: the host took 12 % of the server's processor while 100 watched"
            )]
        );
    }

    /// What is said of viewers of whom 30 % jump, where so many were held with and without; 0:
    /// none.
    fn verdict(held: u32, still: u32) -> JumpVerdict {
        let of = |clients: u32, jumping_percent| Run {
            jumping_percent,
            ..run(
                clients.max(1),
                if clients == 0 { &["late"] } else { &[] },
                None,
            )
        };
        let other_mode = Run {
            mode: Mode::SoftwareGso,
            ..of(5000, 0)
        };
        let record = record(vec![of(still, 0), of(held, 30), other_mode]);
        let rows = record.rows();
        assert_eq!(rows.len(), 3, "{rows:?}");
        let verdicts = record.jump_verdicts();
        let [verdict] = &verdicts[..] else {
            panic!("{verdicts:?}");
        };
        assert_eq!(verdict.name, "onrush, uso, bursts of 20 ms, 30 % jump");
        assert_eq!(record.passed(), verdict.passed());
        verdict.clone()
    }

    #[test]
    fn eight_of_ten_are_held_though_some_jump() {
        let (kept, missed) = (verdict(800, 1000), verdict(799, 1000));
        assert!(kept.passed() && !missed.passed());
        let said = kept.in_words();
        assert!(
            said.contains("holds 800, 0.80 of the 1000") && said.ends_with("kept"),
            "{said}"
        );
        assert!(missed.in_words().contains("MISSED"), "{missed:?}");
        for (held, still) in [(0, 1000), (1000, 0), (0, 0)] {
            let void = verdict(held, still);
            assert!(
                !void.passed() && void.in_words().contains("VOID"),
                "{void:?}"
            );
        }
        let same = verdict(1000, 1000);
        assert_eq!(same.packet_ns, Some((1000, 150.0, 150.0)));
        assert!(
            same.in_words()
                .ends_with("with 1000 a packet cost 150 ns and 150 where none jumps")
        );
    }

    #[test]
    fn without_those_who_do_not_jump_there_is_no_verdict() {
        let jumping = Run {
            jumping_percent: 30,
            ..run(50, &[], None)
        };
        assert_eq!(record(vec![jumping]).jump_verdicts(), []);
        assert_eq!(record(vec![run(50, &[], None)]).jump_verdicts(), []);
    }

    #[test]
    fn a_record_from_before_the_host_was_watched_says_what_it_said() {
        let record = record(vec![run(50, &[], None), run(100, &["late", "lost"], None)]);
        assert_eq!(record.why_missed(&record.runs[1]), "late; lost");
        assert_eq!((record.repeats(), record.thefts()), (vec![], vec![]));
        let mut old = serde_json::to_value(&record.runs[1]).unwrap();
        old.as_object_mut().unwrap().remove("is_repeated");
        old.as_object_mut().unwrap().remove("jumping_percent");
        let old: Run = serde_json::from_value(old).unwrap();
        assert_eq!(old, record.runs[1]);
    }
}
