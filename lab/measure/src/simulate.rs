//! `onrush-lab simulate cluster`: a thousand machines by the product's rules, under a virtual
//! clock.

use onrush_simulate::{EVEN, Loss, Policy, Run, Settings, SettingsError};

use crate::experiment::{Environment, Record};
use crate::plot::Unit;
use crate::stats::{median, ratio};
use crate::table::{Column, Report, Table, Verdict, table};

/// Its name in files.
pub const NAME: &str = "simulate-cluster";

/// What is simulated, and what came of each policy.
pub type SimulateRecord = Record<Settings, Run>;

/// How often a viewer may be sent on, on average.
const REDIRECTS_MAX: f64 = 1.0;

/// Carries it out for each policy; `progress` is told which part is done.
///
/// # Errors
///
/// Settings that cannot be simulated.
pub fn run(
    settings: &Settings,
    version: &str,
    command: &str,
    progress: impl Fn(f64),
) -> Result<SimulateRecord, SettingsError> {
    let environment = Environment::here(version, command);
    let mut record = Record::new(NAME, environment, settings.clone());
    for (before, policy) in Policy::ALL.into_iter().enumerate() {
        let part = |done| (ratio(before as u64, 1) + done) / ratio(Policy::ALL.len() as u64, 1);
        let run = onrush_simulate::run(policy, settings, &mut |done| progress(part(done)))?;
        record.runs.push(run);
    }
    Ok(record)
}

/// What a record says.
#[must_use]
pub fn report(record: &SimulateRecord) -> Report {
    let settings = &record.settings;
    let mut report = Report::new("Many machines, simulated");
    report.text(format!(
        "{} viewers of {} films on {} nodes, each of which holds {} viewers and keeps {} films; \
         no byte was sent and no clock read",
        settings.viewers,
        settings.films,
        settings.nodes,
        settings.node_viewers(),
        settings.node_films()
    ));
    report.add([steady(record), losses(record)]);
    for run in record.runs.iter().filter(|run| run.policy == Policy::Route) {
        let what = "the busiest node in any second, over the mean";
        report.add([Verdict::at_most(what, [most(&run.spread)], EVEN, 3)]);
        let redirects = ratio(run.redirects, run.joins);
        let what = "redirects a viewer";
        report.add([Verdict::at_most(what, [redirects], REDIRECTS_MAX, 3)]);
        let what = "viewers whom no node had room for";
        let refused = run.refused + run.losses.iter().map(|loss| loss.refused).sum::<u64>();
        report.add([Verdict::at_most(what, [ratio(refused, 1)], 0.0, 0)]);
    }
    report
}

fn steady(record: &SimulateRecord) -> Table {
    let settings = &record.settings;
    let observed = u64::from(settings.observe_s);
    let a_second = |count: u64| ratio(count, observed);
    let mut table = table! {
        format!("While {} s go by", settings.observe_s), for run in &record.runs;
        Column::key("who is sent where") => run.policy.to_string(),
        Column::percent("film was there", 2).more() => vec![ratio(run.warm, run.joins)],
        Column::count("busiest over mean", 3).less() => middle(&run.spread),
        Column::count("at the most", 3).less() => vec![most(&run.spread)],
        Column::count("redirects a viewer", 3).less() => vec![ratio(run.redirects, run.joins)],
        Column::count("refused", 0).less() => vec![ratio(run.refused, 1)],
        Column::number("from the store a second", Unit::Bytes).less() =>
            vec![a_second(run.store_bytes)],
        Column::count("words to the registry a second", 1).less() => vec![a_second(run.messages)],
    };
    table.note(format!(
        "a word is a node's load and its most watched films, and goes to all {} nodes; a node \
         takes a film from the object store from beginning to end",
        settings.nodes
    ));
    table
}

fn losses(record: &SimulateRecord) -> Table {
    let each = record
        .runs
        .iter()
        .flat_map(|run| run.losses.iter().map(move |loss| (run.policy, loss)));
    let seconds = |time: Option<u32>| Vec::from_iter(time.map(f64::from));
    let mut table = table! {
        "After nodes died, in addition to those before", for (policy, loss) in each;
        Column::key("who is sent where") => policy.to_string(),
        Column::key("died") => died(loss),
        Column::count("viewers", 0) => ratio(loss.viewers, 1),
        Column::count("999 of 1000 served after, s", 0).less() => seconds(loss.served_after_s),
        Column::count("even after, s", 0).less() => seconds(loss.even_after_s),
        Column::count("busiest over mean", 3).less() => vec![loss.spread_max],
        Column::count("refused", 0).less() => vec![ratio(loss.refused, 1)],
        Column::number("from the store", Unit::Bytes).less() => vec![ratio(loss.store_bytes, 1)],
    };
    table.note(format!(
        "even: no node plays more than {EVEN} times the mean; an empty cell: not within {} s. The \
         death of a node is known after {} s, and who meets a dead one tries again within {} s",
        record.settings.loss_s, record.settings.dead_s, record.settings.retry_s
    ));
    table
}

fn died(loss: &Loss) -> String {
    match loss.nodes {
        1 => "1 node".to_owned(),
        nodes => format!("{nodes} nodes"),
    }
}

fn middle(of: &[f64]) -> Vec<f64> {
    Vec::from_iter(median(of))
}

fn most(of: &[f64]) -> f64 {
    of.iter().copied().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_written_read_and_told() {
        let settings = Settings {
            viewers: 5000,
            films: 500,
            settle_s: 60,
            observe_s: 30,
            loss_s: 30,
            ..Settings::quick()
        };
        let record = run(&settings, "0", "onrush-lab", |_| ()).unwrap();
        assert_eq!(record.runs.len(), 3);
        let file = tempfile::NamedTempFile::new().unwrap();
        record.write(file.path()).unwrap();
        let back: SimulateRecord = Record::read(file.path(), NAME).unwrap();
        // Not the records themselves: a float is read as its neighbour now and then.
        let told = report(&back).to_string();
        assert_eq!(told, report(&record).to_string());
        for word in [
            "route",
            "plain ring",
            "random",
            "1 node",
            "redirects a viewer",
        ] {
            assert!(told.contains(word), "{word} in {told}");
        }
    }

    #[test]
    fn an_uneven_node_misses_its_bound() {
        let settings = Settings {
            losses: Vec::new(),
            ..Settings::quick()
        };
        let mut record = Record::new(NAME, Environment::here("0", "x"), settings);
        record.runs.push(Run {
            policy: Policy::Route,
            joins: 100,
            warm: 100,
            redirects: 90,
            refused: 0,
            messages: 1,
            store_bytes: 0,
            spread: vec![1.0, 1.2, 1.0],
            losses: Vec::new(),
        });
        assert!(!report(&record).passed());
        record.runs[0].spread[1] = 1.1;
        assert!(report(&record).passed());
        record.runs[0].redirects = 101;
        assert!(!report(&record).passed());
    }
}
