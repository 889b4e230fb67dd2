//! What a record of the experiment says: the most that each server held, and at what cost.

use onrush_server::engine::phase::Phase;
use onrush_testkit::playout::PART_IN_TIME;

use super::record::{CapacityRecord, Run};
use crate::counters::{self, Did};
use crate::film_kind::FilmKind;
use crate::load::report::Figures;
use crate::plot::{Chart, Drawing, Unit};
use crate::stats::{median, p_value, ratio, to_f64};
use crate::table::{Column, Report, Table, Verdict, gather, table};

/// Of as many viewers as are held where none jumps, the part that is to be held where some do.
const JUMPING_PART_MIN: f64 = 0.8;

/// Of as many viewers as are held of transport streams, the part that is to be held of other films.
const MEDIA_PART_MIN: f64 = 1.0;

/// Over connections, so many times as many viewers as a peer are to be held.
const TIMES_A_PEER_MIN: f64 = 5.0;

/// So many sessions are to be set up in a second of a processor, with Digest.
const SET_UPS_A_SECOND_MIN: f64 = 5000.0;

/// One server in one mode, with bursts of one length.
#[derive(Clone, Debug)]
pub(super) struct Row<'a> {
    /// One of its runs, for what all have in common.
    pub(super) of: &'a Run,
    /// Every run of its searches that counts, in the order they were measured.
    runs: Vec<&'a Run>,
    /// The largest number that it held on time; `None` if it held none that was tried.
    pub(super) held: Option<&'a Run>,
    /// The smallest number that it did not; `None` if it held all that were tried.
    pub(super) missed: Option<&'a Run>,
    /// Its trials around the limit.
    pub(super) trials: Vec<&'a Run>,
}

impl<'a> Row<'a> {
    fn of(all: Vec<&'a Run>) -> Self {
        let of = all[0];
        let counted = all.into_iter().filter(|run| !run.is_repeated);
        let (trials, runs): (Vec<_>, Vec<_>) = counted.partition(|run| run.is_around_limit);
        let (held, missed): (Vec<&Run>, Vec<&Run>) =
            runs.iter().partition(|run| run.missed.is_empty());
        Self {
            of,
            // Of several with as many viewers the first.
            held: held.into_iter().rev().max_by_key(|run| run.clients),
            missed: missed.into_iter().min_by_key(|run| run.clients),
            trials,
            runs,
        }
    }
}

/// What a server spent on a run.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Its own processor time, as processors.
    server_cores: f64,
    /// The same for a packet, in ns.
    packet_ns: f64,
    /// Of that, the time of threads that send, as processors; 0 for a peer.
    send_cores: f64,
    /// How busy its processor was, for whomever, from 0 to 1.
    core_busy: f64,
    /// How busy all others were, together.
    other_cores_busy: f64,
    /// Its memory in bytes.
    memory_bytes: u64,
    /// Lateness of 999 packets in 1000, in ns.
    late_ns: f64,
}

/// What a record says.
#[must_use]
pub fn report(record: &CapacityRecord) -> Report {
    let mut report = Report::new("How many viewers a core holds");
    report.add(record.drawings());
    report.add([record.held_told()]);
    report.add((record.settings.rounds > 1).then(|| record.turns_told()));
    report.add(record.curves_told());
    report.add([record.runs_told()]);
    report.add(record.counted());
    report.add(record.verdicts());
    report
}

impl CapacityRecord {
    /// A row for each server, mode and burst, in the order they were measured.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let key = |run: &Run| (run.mode, run.burst_ns, run.phase, run.jumping_percent);
        let runs = self.runs.iter();
        let runs = runs.map(|run| ((&run.server, &run.path, run.media, key(run)), run));
        let rows = gather(runs).into_iter();
        rows.map(|(_, runs)| Row::of(runs)).collect()
    }

    /// The most that each held, what they cost, and why no more.
    fn held_told(&self) -> Table {
        let is_trial = self.settings.is_trial();
        let notes = |row: &Row<'_>| {
            let theft = row.held.and_then(|run| {
                let words = run.account.theft_in_words()?;
                Some(format!("{words} while {} watched", run.clients))
            });
            let missed = row.missed;
            let missed =
                missed.map(|run| format!("With {}: {}", run.clients, self.why_missed(run)));
            theft.into_iter().chain(missed)
        };
        table! {
            "The most viewers that were held on time, and what they cost",
            for row in self.rows(),
            let cost = row.held.map(|run| self.cost(run)),
            let clients = row.held.map_or(0, |run| self.served(run));
            Column::key("server") => row.of.name(),
            Column::count(if is_trial { "served" } else { "viewers held" }, 0).more()
                => vec![clients],
            Column::percent("its CPU", 1) => cost.map(|cost| cost.server_cores),
            Column::percent("sending", 1) => cost.map(|cost| cost.send_cores),
            Column::ns("a packet", 0) => cost.map(|cost| cost.packet_ns),
            Column::percent("core busy", 0) => cost.map(|cost| cost.core_busy),
            Column::percent("others", 0) => cost.map(|cost| cost.other_cores_busy),
            Column::number("memory", Unit::Bytes).fixed("MiB", 1_048_576.0, 0)
                => cost.map(|cost| cost.memory_bytes),
            Column::ms("late, 999 of 1000", 1) => cost.map(|cost| cost.late_ns);
            notes notes(&row)
        }
    }

    /// What was tried more than once, side by side, and whether it differs by more than chance.
    fn turns_told(&self) -> Table {
        let rows = self.rows();
        let samples = |row: &Row<'_>, value: fn(&Cost) -> f64| -> Vec<f64> {
            row.runs.iter().map(|run| value(&self.cost(run))).collect()
        };
        let (packet_ns, late_ns) = (|cost: &Cost| cost.packet_ns, |cost: &Cost| cost.late_ns);
        let mut table = table! {
            "In turns: medians of all runs",
            for row in &rows,
            let chance = |value| p_value(&samples(&rows[0], value), &samples(row, value));
            Column::key("server") => row.of.name(),
            Column::count("runs", 0) => row.runs.len(),
            Column::ns("a packet", 1) => samples(row, packet_ns),
            Column::count("by chance", 3) => chance(packet_ns),
            Column::ms("late, 999 of 1000", 1) => samples(row, late_ns),
            Column::count("by chance", 3) => chance(late_ns),
        };
        table.note("by chance: of a difference from the first line where there is none");
        table
    }

    /// Each number that was tried: what a packet cost, how soon viewers saw something, and, where
    /// there is anything to tell, what was read, joined and jumped.
    fn runs_told(&self) -> Table {
        type Value = fn(&CapacityRecord, &Run) -> Option<f64>;
        let columns: [(Column, Value); 12] = [
            (Column::ns("CPU per packet", 0).less(), |all, run| {
                Some(all.cost(run).packet_ns)
            }),
            (Column::ms("late, 999 of 1000", 1).less(), |all, run| {
                Some(all.cost(run).late_ns)
            }),
            (Column::ms("buffer", 1).less(), |_, run| needed_ns(run)),
            (Column::ms("first packet", 1), |_, run| start_up_ns(run, 50)),
            (Column::ms("for 99 of 100", 1), |_, run| {
                start_up_ns(run, 99)
            }),
            // What of another server sets viewers up is not known. Records from before it was
            // among what was measured have what it is made of.
            (Column::us("control for each", 0), |all, run| {
                let arrivals = all.settings.arrivals_per_second;
                let made_of = || run.account_coming.set_up_ns(arrivals);
                let ns = run.set_up_ns.or_else(made_of).filter(|&ns| ns > 0)?;
                Some(ratio(ns, 1))
            }),
            // Some are joined in any run: when the first come at once.
            (Column::percent("bursts joined", 1), |_, run| {
                run.joined.filter(|&part| part >= 0.01)
            }),
            (
                Column::number("from disk", Unit::BytesPerSecond).fixed("MB/s", 1e6, 0),
                |_, run| disk_bytes_a_second(run),
            ),
            (
                Column::number("sent", Unit::BytesPerSecond).fixed("MB/s", 1e6, 0),
                |all, run| disk_bytes_a_second(run).map(|_| all.figures(run).bits_a_second / 8.0),
            ),
            (Column::percent("CPU to build", 1), |_, run| {
                let build_ns = run.account.threads_ns("onrush-build");
                disk_bytes_a_second(run).map(|_| ratio(build_ns, run.account.wall_ns))
            }),
            (Column::count("jumped", 0), |_, run| {
                (run.jumping_percent > 0).then(|| ratio(run.load.acts.jumped, 1))
            }),
            (Column::count("jumps", 0), |_, run| {
                (run.jumping_percent > 0).then(|| ratio(run.load.acts.seeks, 1))
            }),
        ];
        let is_known = |value: &Value| self.runs.iter().any(|run| value(self, run).is_some());
        let known = columns.into_iter().filter(|(_, value)| is_known(value));
        let columns: Vec<_> = known.collect();
        let keys = [Column::key("server"), Column::key("viewers")];
        let heads = columns.iter().map(|(column, _)| column.clone());
        let arrivals = self.settings.arrivals_per_second;
        let caption = format!("Each number that was tried; {arrivals} came in a second");
        let mut table = Table::new(caption, keys.into_iter().chain(heads).collect::<Vec<_>>());
        for run in &self.runs {
            let values = columns.iter().map(|(_, value)| match run.is_repeated {
                // It does not count, and is not compared.
                true => value(self, run).into(),
                false => value(self, run).map(|value| vec![value]).into(),
            });
            let names = [run.name().into(), format!("{} viewers", run.clients).into()];
            let row = table.row(names.into_iter().chain(values).collect::<Vec<_>>());
            if run.is_repeated {
                row.note(format!("tried again: {}", self.why_missed(run)));
            }
            if self.settings.is_trial() {
                row.notes.extend(self.events(run));
            }
        }
        table
    }

    /// What happened in a run where more came than were let in, or the server was stopped.
    fn events(&self, run: &Run) -> impl Iterator<Item = String> {
        let load = &run.load;
        let seen = format!(
            "{} watched at the end; {:.3} % of their packets were late, {} lost; at most {} \
             packets of a stream together",
            load.watching,
            self.figures(run).late_part * 100.0,
            load.totals.lost,
            load.totals.burst_packets_max,
        );
        let failures = load.failures.iter();
        let failures = failures.map(|(reason, count)| format!("{count} times: {reason}"));
        [seen]
            .into_iter()
            .chain(failures)
            .chain(run.trouble.iter().cloned())
    }

    /// Whether each server held some number, and enough are held though some jump.
    fn verdicts(&self) -> Vec<Verdict> {
        let rows = self.rows();
        let none = rows.iter().filter(|row| row.held.is_none());
        let none = none.map(|row| {
            Verdict::new(
                row.of.name(),
                "no number that was tried was held on time",
                false,
            )
        });
        let jumping = rows.iter().filter(|row| row.of.jumping_percent > 0);
        let key = |run: &Run| {
            let path = run.path.clone();
            (run.server.clone(), path, run.mode, run.burst_ns, run.phase)
        };
        let jumping = jumping.filter_map(|row| {
            let is_still = |other: &&Row<'_>| {
                let (run, of) = (other.of, row.of);
                run.jumping_percent == 0 && run.media == of.media && key(run) == key(of)
            };
            Some(self.jump_verdict(row, rows.iter().find(is_still)?))
        });
        let others = rows.iter().filter(|row| row.of.media != FilmKind::Ts);
        let of_media = others.filter_map(|row| {
            let is_ts = |other: &&Row<'_>| {
                let (run, of) = (other.of, row.of);
                let is_other = run.media == FilmKind::Ts;
                is_other && run.jumping_percent == of.jumping_percent && key(run) == key(of)
            };
            Some(media_verdict(row, rows.iter().find(is_ts)?))
        });
        let peers = self.peer_verdicts();
        let set_up = self.set_up_verdict();
        let aim = self.aim_verdicts();
        let all = none.chain(jumping).chain(of_media);
        all.chain(peers).chain(set_up).chain(aim).collect()
    }

    /// Viewers of a run that are told as held: in a trial, those who were let in.
    pub(super) fn served(&self, run: &Run) -> u32 {
        match self.settings.is_trial() {
            true => run.load.watching,
            false => run.clients,
        }
    }

    /// Of packets that come on connections: whether ours held so many times as many viewers as each
    /// peer in the same mode, each for a processor. Peers have one; ours has its control on
    /// another, and is charged for it once both together take more than one.
    fn peer_verdicts(&self) -> Vec<Verdict> {
        if !self.settings.transport.is_interleaved() {
            return Vec::new();
        }
        let rows = self.rows();
        // A peer's bursts are its own affair.
        let (peers, ours): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.of.burst_ns == 0);
        let held = |row: &Row<'_>| {
            let run = row.held?;
            Some(f64::from(run.clients) / self.cost(run).server_cores.max(1.0))
        };
        let verdicts = peers.into_iter().filter_map(|peer| {
            let is_same =
                |row: &&&Row<'_>| (row.of.mode, row.of.media) == (peer.of.mode, peer.of.media);
            let its = held(peer)?;
            let ours = ours.iter().filter(is_same).filter_map(|row| held(row));
            let times = ours.fold(0.0, f64::max) / its;
            let what = format!("viewers a processor over those of {}", peer.of.name());
            Some(Verdict::at_least(what, [times], TIMES_A_PEER_MIN, 1))
        });
        verdicts.collect()
    }

    /// Whether control would set up as many sessions in a second of a processor as it has to, where
    /// it asks who viewers are.
    fn set_up_verdict(&self) -> Option<Verdict> {
        let runs = self.runs.iter().filter(|run| !run.is_repeated);
        let set_up_ns = runs.filter_map(|run| run.set_up_ns).filter(|&ns| ns > 0);
        let a_second: Vec<_> = set_up_ns.map(|ns| 1e9 / to_f64(ns)).collect();
        let what = "sessions set up with Digest in a processor's second";
        let is_asked = self.settings.has_users && !a_second.is_empty();
        is_asked.then(|| Verdict::at_least(what.to_owned(), &a_second, SET_UPS_A_SECOND_MIN, 0))
    }

    /// How many are held of viewers of whom some jump, of as many as are held where none does; and
    /// what a packet cost on both sides, of the largest number that was tried on both.
    fn jump_verdict(&self, jumping: &Row<'_>, still: &Row<'_>) -> Verdict {
        let name = jumping.of.name();
        let clients = |row: &Row<'_>| row.held.map(|run| f64::from(run.clients));
        let Some((held, of)) = clients(jumping).zip(clients(still)) else {
            return Verdict::void(name, "none were held on one side");
        };
        let packet_ns = |row: &Row<'_>, clients| {
            let runs = row.runs.iter().filter(|run| run.clients == clients);
            median(runs.map(|run| self.cost(run).packet_ns))
        };
        let tried = jumping.runs.iter().map(|run| run.clients);
        let both = tried.filter_map(|n| Some((n, packet_ns(jumping, n)?, packet_ns(still, n)?)));
        let cost = both
            .max_by_key(|both| both.0)
            .map_or_else(String::new, |(n, some, none)| {
                format!("; with {n} a packet cost {some:.0} ns and {none:.0} where none jumps")
            });
        let part = held / of;
        let found = format!(
            "holds {held}, {part:.2} of the {of} where none jumps, bound at least \
             {JUMPING_PART_MIN:.2}{cost}"
        );
        Verdict::new(name, found, part >= JUMPING_PART_MIN)
    }

    /// What processors counted of the server while all watched, for each packet.
    fn counted(&self) -> Vec<Table> {
        let did = self.runs.iter().filter_map(|run| {
            let (load, account) = (&run.load, &run.account);
            let of_all = u128::from(load.packets_of_all()) * u128::from(account.wall_ns);
            let packets = of_all.checked_div(u128::from(load.wall_ns))?;
            Some(Did {
                name: format!("{}, {} viewers", run.name(), run.clients),
                counted: account.counted?,
                units: vec![u64::try_from(packets).ok()?],
            })
        });
        counters::tables(&["a packet"], did)
    }

    fn cost(&self, run: &Run) -> Cost {
        let (load, account) = (&run.load, &run.account);
        let usage = load.server.unwrap_or_default();
        Cost {
            server_cores: ratio(usage.cpu_ns, load.wall_ns),
            packet_ns: ratio(usage.cpu_ns, load.packets_of_all()),
            send_cores: ratio(account.send_ns(), account.wall_ns),
            core_busy: ratio(account.core_busy_ns, account.wall_ns),
            other_cores_busy: ratio(account.other_cores_busy_ns, account.wall_ns),
            memory_bytes: usage.memory_bytes,
            late_ns: to_f64(load.lateness.quantile_ns(0.999).unwrap_or(0)),
        }
    }

    /// Why `run` was not held, and what the host did meanwhile; what a packet cost is there for
    /// that, because a host that shares its cores makes it cost more. Of a record from before this
    /// was kept, the first alone.
    fn why_missed(&self, run: &Run) -> String {
        let mut words = run.missed.clone();
        if run.account.stolen_ns.is_some() {
            words.push(format!("a packet cost {:.0} ns", self.cost(run).packet_ns));
        }
        words.extend(run.account.theft_in_words());
        // What the host took is among them already.
        let own = run.void.iter().filter(|void| !words.contains(void));
        let own: Vec<_> = own.cloned().collect();
        words.extend(own);
        words.extend(run.yardstick.map(|yardstick| yardstick.in_words()));
        words.join("; ")
    }

    /// What viewers saw of `run`, by the budget of the record.
    fn figures(&self, run: &Run) -> Figures {
        let settings = crate::load::Settings {
            lateness_ns_max: self.settings.lateness_ns_max,
            ..crate::load::Settings::new(Vec::new(), run.clients)
        };
        Figures::of(&settings, &run.load)
    }

    /// Processor time, lateness and memory over the number of viewers; and a packet's cost over the
    /// length of a burst, if there were several.
    fn drawings(&self) -> Vec<Drawing> {
        let lateness_ms = |cost: &Cost| cost.late_ns / 1e6;
        let memory_mib = |cost: &Cost| ratio(cost.memory_bytes, 1 << 20);
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
                .y(unit, Unit::Count);
            for row in self.rows() {
                let points = row.runs.iter();
                let points = points.map(|run| (f64::from(run.clients), value(&self.cost(run))));
                let mut points: Vec<_> = points.collect();
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
                chart = chart.series(&row.of.name(), points);
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
            .y("ns a packet", Unit::Count);
        let rows = self.rows();
        let modes = self.settings.modes.iter();
        let lines = modes.flat_map(|&mode| {
            let paths = self.settings.each_path().into_iter();
            paths.map(move |path| (mode, path))
        });
        for (mode, path) in lines {
            let ours = rows.iter().filter(|row| {
                let is_alone = row.of.jumping_percent == 0 && row.of.media == FilmKind::Ts;
                let is_it = row.of.mode == mode && row.of.path == path;
                is_it && row.of.burst_ns > 0 && is_alone
            });
            let point = |row: &Row<'_>| {
                let packet_ns = self.cost(row.held?).packet_ns;
                Some((ratio(row.of.burst_ns, 1_000_000), packet_ns))
            };
            let mut points: Vec<_> = ours.filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let by = path.map_or_else(String::new, |path| format!(", {path}"));
            chart = chart.series(&format!("{}{by}", mode.name()), points);
        }
        chart
    }
}

/// How many are held of films of another kind, of as many as are held of transport streams.
fn media_verdict(other: &Row<'_>, ts: &Row<'_>) -> Verdict {
    let name = other.of.name();
    let clients = |row: &Row<'_>| row.held.map(|run| f64::from(run.clients));
    let Some((held, of)) = clients(other).zip(clients(ts)) else {
        return Verdict::void(name, "none were held on one side");
    };
    let part = held / of;
    let found = format!(
        "holds {held}, {part:.2} of the {of} of transport streams, bound at least {MEDIA_PART_MIN}"
    );
    Verdict::new(name, found, part >= MEDIA_PART_MIN)
}

impl Run {
    /// Server, mode and burst in words.
    pub(super) fn name(&self) -> String {
        let mut name = match self.burst_ns {
            0 => self.server.split(' ').next().unwrap_or_default().to_owned(),
            _ => self.server.clone(),
        };
        name += &format!(", {}", self.mode.name());
        name.extend(self.path.iter().map(|path| format!(", {path}")));
        if self.burst_ns > 0 {
            name += &format!(", bursts of {} ms", self.burst_ns / 1_000_000);
        }
        if self.phase != Phase::AsTheyCome {
            name += &format!(", {}", self.phase);
        }
        if self.media != FilmKind::Ts {
            name += &format!(", {}", self.media);
        }
        if self.jumping_percent > 0 {
            name += &format!(", {} % jump", self.jumping_percent);
        }
        name
    }
}

/// How soon so many of a hundred viewers saw something.
fn start_up_ns(run: &Run, percent: usize) -> Option<f64> {
    let mut sorted = run.load.start_up_ns.clone();
    sorted.sort_unstable();
    let last = sorted.len().checked_sub(1)?;
    Some(ratio(sorted[last * percent / 100], 1))
}

/// What 999 of 1000 viewers had enough with, where that was followed.
fn needed_ns(run: &Run) -> Option<f64> {
    let playouts = run.load.playouts.as_ref()?;
    Some(ratio(playouts.needed_ns(PART_IN_TIME)?, 1))
}

/// Bytes that the server had read from disks in a second, while all watched, if that was anything.
fn disk_bytes_a_second(run: &Run) -> Option<f64> {
    let bytes = ratio(run.account.disk_bytes, run.account.wall_ns) * 1e9;
    (bytes >= 1e6).then_some(bytes)
}

#[cfg(test)]
pub(super) mod tests {
    use onrush_testkit::testbed::Mode;

    use super::*;
    use crate::capacity::Settings;
    use crate::experiment::{Environment, Record};
    use crate::load::Transport;
    use crate::load::{self, Account};
    use crate::table::Outcome;

    /// A run of so many viewers in a time of which the host took so many of 100.
    pub(crate) fn run(clients: u32, missed: &[&str], stolen_percent: Option<u64>) -> Run {
        Run {
            server: "onrush".to_owned(),
            mode: Mode::Uso,
            burst_ns: 20_000_000,
            path: None,
            phase: Phase::default(),
            clients,
            jumping_percent: 0,
            media: FilmKind::Ts,
            load: load::Run {
                wall_ns: 1500,
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
            void: Vec::new(),
            is_around_limit: false,
            yardstick: None,
            is_repeated: false,
        }
    }

    pub(crate) fn record(runs: Vec<Run>) -> CapacityRecord {
        let environment = Environment::here("1", "onrush-lab bench capacity");
        let mut record = Record::new("capacity", environment, Settings::default());
        record.runs = runs;
        record
    }

    #[test]
    fn over_connections_ours_holds_five_times_a_peers_viewers() {
        let peer = |clients| Run {
            server: "peer".to_owned(),
            burst_ns: 0,
            ..run(clients, &[], None)
        };
        let outcomes = |transport, ours| {
            let mut record = record(vec![run(ours, &[], None), peer(200)]);
            record.settings.transport = transport;
            let verdicts = record.verdicts().into_iter();
            verdicts.map(|verdict| verdict.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(Transport::Tcp, 1000), [Outcome::Kept]);
        assert_eq!(outcomes(Transport::Tcp, 999), [Outcome::Missed]);
        assert_eq!(outcomes(Transport::Udp, 999), []);
    }

    #[test]
    fn ours_is_charged_for_control_beyond_its_processor() {
        let times = |cpu_ns| {
            let mut ours = run(1000, &[], None);
            ours.load.wall_ns = 1000;
            ours.load.server = Some(load::Usage {
                cpu_ns,
                memory_bytes: 0,
            });
            let peer = Run {
                server: "peer".to_owned(),
                burst_ns: 0,
                ..run(100, &[], None)
            };
            let mut record = record(vec![ours, peer]);
            record.settings.transport = Transport::Tcp;
            record.verdicts().remove(0).found
        };
        assert_eq!(times(1000), "10.0, bound at least 5");
        assert_eq!(times(1250), "8.0, bound at least 5");
    }

    #[test]
    fn set_ups_with_digest_are_judged_by_their_time() {
        let outcomes = |has_users, set_up_ns| {
            let set_up_ns = Some(set_up_ns);
            let mut record = record(vec![Run {
                set_up_ns,
                ..run(10, &[], None)
            }]);
            record.settings.has_users = has_users;
            let verdicts = record.verdicts().into_iter();
            verdicts.map(|verdict| verdict.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(true, 200_000), [Outcome::Kept]);
        assert_eq!(outcomes(true, 200_001), [Outcome::Missed]);
        assert_eq!(outcomes(false, 200_001), []);
    }

    #[test]
    fn each_path_has_a_row_and_a_limit_of_its_own() {
        let by = |path: &str, clients, missed: &[&str]| Run {
            path: Some(path.to_owned()),
            ..run(clients, missed, None)
        };
        let mut record = record(vec![
            by("sendmmsg", 100, &[]),
            by("sendmmsg", 200, &["late"]),
            by("sendto", 50, &[]),
            by("sendto", 100, &["late"]),
        ]);
        let rows = record.rows();
        let held: Vec<_> = rows
            .iter()
            .map(|row| (row.of.name(), row.held.map(|run| run.clients)))
            .collect();
        let name = |path| format!("onrush, uso, {path}, bursts of 20 ms");
        let expected = [(name("sendmmsg"), Some(100)), (name("sendto"), Some(50))];
        assert_eq!(held, expected);
        record.settings.aim = Some(75);
        let outcomes = record.aim_verdicts();
        let outcomes: Vec<_> = outcomes.iter().map(|verdict| verdict.outcome).collect();
        assert_eq!(outcomes, [Outcome::Kept, Outcome::Missed]);
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
        assert_eq!(row.runs.len(), 3);
        assert_eq!(row.held.map(|run| run.clients), Some(100));
        let missed = row.missed.unwrap();
        assert_eq!((missed.clients, missed.is_repeated), (200, false));
        let notes = |table: Table| -> Vec<String> {
            table.rows.into_iter().flat_map(|row| row.notes).collect()
        };
        let robbed = "the host took 12 % of the server's processor while 100 watched";
        let late = "With 200: late; a packet cost 150 ns";
        assert_eq!(notes(record.held_told()), [robbed, late]);
        let why = "tried again: late; a packet cost 150 ns; the host took 30 % of the server's \
                   processor";
        assert_eq!(notes(record.runs_told()), [why; 2]);
        let costs = report(&record).figures();
        assert!(
            costs.iter().all(|figure| figure.samples.len() == 1),
            "{costs:?}"
        );
    }

    /// What is said of viewers of whom 30 % jump, where so many were held with and without; 0:
    /// none.
    fn verdict(held: u32, still: u32) -> Verdict {
        let of = |clients: u32, jumping_percent| {
            let missed: &[&str] = if clients == 0 { &["late"] } else { &[] };
            Run {
                jumping_percent,
                ..run(clients.max(1), missed, None)
            }
        };
        let other_mode = Run {
            mode: Mode::SoftwareGso,
            ..of(5000, 0)
        };
        let record = record(vec![of(still, 0), of(held, 30), other_mode]);
        assert_eq!(record.rows().len(), 3);
        let verdict = record.verdicts().pop().unwrap();
        assert_eq!(verdict.what, "onrush, uso, bursts of 20 ms, 30 % jump");
        assert_eq!(report(&record).passed(), verdict.outcome == Outcome::Kept);
        verdict
    }

    #[test]
    fn as_many_are_held_of_mp4_as_of_transport_streams() {
        let outcome = |mp4: u32| {
            let mp4 = Run {
                media: FilmKind::Mp4,
                ..run(mp4, &[], None)
            };
            let record = record(vec![run(1000, &[], None), mp4]);
            let verdict = record.verdicts().pop().unwrap();
            assert_eq!(verdict.what, "onrush, uso, bursts of 20 ms, mp4");
            verdict.outcome
        };
        assert_eq!(outcome(1000), Outcome::Kept);
        assert_eq!(outcome(999), Outcome::Missed);
    }

    #[test]
    fn eight_of_ten_are_held_though_some_jump() {
        let (kept, missed) = (verdict(800, 1000), verdict(799, 1000));
        assert_eq!(
            (kept.outcome, missed.outcome),
            (Outcome::Kept, Outcome::Missed)
        );
        assert_eq!(
            kept.found,
            "holds 800, 0.80 of the 1000 where none jumps, bound at least 0.80"
        );
        for (held, still) in [(0, 1000), (1000, 0), (0, 0)] {
            assert_eq!(verdict(held, still).outcome, Outcome::Void);
        }
        let cost = "; with 1000 a packet cost 150 ns and 150 where none jumps";
        assert!(verdict(1000, 1000).found.ends_with(cost));
    }

    #[test]
    fn without_those_who_do_not_jump_there_is_no_verdict() {
        let jumping = Run {
            jumping_percent: 30,
            ..run(50, &[], None)
        };
        assert_eq!(record(vec![jumping]).verdicts(), []);
        assert_eq!(record(vec![run(50, &[], None)]).verdicts(), []);
        let none = record(vec![run(50, &["late"], None)]).verdicts();
        assert_eq!(none[0].outcome, Outcome::Missed);
    }

    #[test]
    fn a_record_from_before_the_host_was_watched_says_what_it_said() {
        let record = record(vec![run(50, &[], None), run(100, &["late", "lost"], None)]);
        assert_eq!(record.why_missed(&record.runs[1]), "late; lost");
        assert_eq!(record.held_told().rows[0].notes, ["With 100: late; lost"]);
        let mut old = serde_json::to_value(&record.runs[1]).unwrap();
        for name in ["void", "is_around_limit", "yardstick"] {
            old.as_object_mut().unwrap().remove(name).expect(name);
        }
        old.as_object_mut().unwrap().remove("is_repeated");
        old.as_object_mut().unwrap().remove("jumping_percent");
        let old: Run = serde_json::from_value(old).unwrap();
        assert_eq!(old, record.runs[1]);
    }
}
