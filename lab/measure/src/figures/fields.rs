//! What fields are called says what is in them: text, flags and the few different values of a count
//! tell what was measured, a field in ns or of a rate is what was found.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Better, Figure};
use crate::plot::Unit;

/// Fields that number runs and do not describe them.
const NUMBERS: [&str; 7] = [
    "repeat", "round", "attempt", "run", "sample", "seed", "order",
];

/// A count with more different values than this describes no run, it is a result.
const VALUES_MAX: usize = 64;

/// The figures of any runs.
pub(super) fn of(runs: &[Value]) -> Vec<Figure> {
    let runs: Vec<_> = runs
        .iter()
        .filter_map(Value::as_object)
        .filter(|run| !is_void(run))
        .collect();
    let counts = describing_counts(&runs);
    let mut figures = BTreeMap::<String, Figure>::new();
    for run in runs {
        let about: Vec<_> = run
            .iter()
            .filter_map(|(name, value)| about(name, value, &counts))
            .collect();
        let about = about.join(", ");
        for (name, samples) in measured(run, "") {
            let (unit, better) = meaning(&name);
            let name = format!("{about}: {name}");
            let figure = figures.entry(name.clone()).or_insert_with(|| Figure {
                name,
                unit,
                better,
                samples: Vec::new(),
            });
            figure.samples.extend(samples);
        }
    }
    figures.into_values().collect()
}

fn is_void(run: &Map<String, Value>) -> bool {
    match run.get("void") {
        Some(Value::Array(reasons)) => !reasons.is_empty(),
        Some(Value::String(_) | Value::Bool(true)) => true,
        _ => false,
    }
}

/// The counts that say what was measured: those with few values, each in several runs.
fn describing_counts(runs: &[&Map<String, Value>]) -> BTreeSet<String> {
    let mut values = BTreeMap::<&str, (BTreeSet<i64>, usize)>::new();
    for (name, value) in runs.iter().flat_map(|run| run.iter()) {
        if let Some(count) = value.as_i64() {
            let (different, seen) = values.entry(name).or_default();
            different.insert(count);
            *seen += 1;
        }
    }
    let describes = |(name, (different, seen)): (&str, (BTreeSet<i64>, usize))| {
        let is_few = different.len() <= VALUES_MAX && different.len() * 2 <= seen;
        let is_about = !NUMBERS.contains(&name) && meaning(name).1 == Better::Neither;
        (is_few && is_about).then(|| name.to_owned())
    };
    values.into_iter().filter_map(describes).collect()
}

fn about(name: &str, value: &Value, counts: &BTreeSet<String>) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(true) => Some(name.to_owned()),
        Value::Number(count) if counts.contains(name) => Some(format!("{name} {count}")),
        _ => None,
    }
}

/// The fields that tell what was found, those of fields in fields too.
fn measured(run: &Map<String, Value>, within: &str) -> Vec<(String, Vec<f64>)> {
    let mut found = Vec::new();
    for (name, value) in run {
        let path = format!("{within}{name}");
        let is_result = meaning(name).1 != Better::Neither || value.is_f64();
        match value {
            Value::Object(fields) => found.extend(measured(fields, &format!("{path}."))),
            Value::Array(values) if meaning(name).1 != Better::Neither => {
                let samples: Vec<_> = values.iter().filter_map(Value::as_f64).collect();
                found.push((path, samples));
            }
            Value::Number(number) if is_result => {
                found.extend(number.as_f64().map(|sample| (path, vec![sample])));
            }
            _ => {}
        }
    }
    found
}

/// What the name of a field says of its value.
fn meaning(name: &str) -> (Unit, Better) {
    match name {
        _ if name.ends_with("_ns") || name.contains("_ns_") => (Unit::Nanoseconds, Better::Less),
        _ if name.ends_with("_bps") => (Unit::BitsPerSecond, Better::More),
        _ if name.ends_with("_bytes_per_second") => (Unit::BytesPerSecond, Better::More),
        _ if name.ends_with("_per_second") => (Unit::Count, Better::More),
        _ => (Unit::Count, Better::Neither),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::experiment::{AnyRecord, Environment, Record};
    use crate::figures;

    fn record(runs: Vec<Value>) -> AnyRecord {
        let mut record = Record::new("x", Environment::here("1", "c"), Value::Null);
        record.runs = runs;
        record
    }

    #[test]
    fn runs_of_the_same_thing_are_one_figure() {
        let run = |way: &str, bytes: u64, repeat: u32, ns: f64| {
            json!({"way": way, "bytes": bytes, "repeat": repeat,
                   "packets_sent": 1000 + bytes + u64::from(repeat), "lock_ns": ns,
                   "inner": {"cpu_ns": 7, "samples_ns": [1, 2]}})
        };
        let mut runs = Vec::new();
        for repeat in 0..3 {
            for bytes in [4096, 8192] {
                runs.push(run("ring", bytes, repeat, f64::from(repeat)));
            }
        }
        let figures = figures::of(&record(runs));
        let names: Vec<_> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert_eq!(names[0], "bytes 4096, ring: inner.cpu_ns");
        let lock = figures
            .iter()
            .find(|figure| figure.name == "bytes 4096, ring: lock_ns")
            .unwrap();
        assert_eq!(lock.samples, [0.0, 1.0, 2.0]);
        assert_eq!((lock.unit, lock.better), (Unit::Nanoseconds, Better::Less));
        let inner = figures
            .iter()
            .find(|figure| figure.name.ends_with("samples_ns"))
            .unwrap();
        assert_eq!(inner.samples, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn void_runs_and_numbers_of_runs_are_left_out() {
        let run = |void: Value| json!({"way": "a", "repeat": 1, "void": void, "x_ns": 1.0});
        let runs = vec![
            run(json!([])),
            run(json!(["why"])),
            run(json!("why")),
            run(json!(null)),
        ];
        let figures = figures::of(&record(runs));
        assert_eq!(figures.len(), 1);
        assert_eq!(
            (figures[0].name.as_str(), figures[0].samples.len()),
            ("a: x_ns", 2)
        );
        assert_eq!(figures::of(&record(vec![Value::Null, json!(3)])), []);
    }

    #[test]
    fn rates_are_good_when_high() {
        assert_eq!(meaning("goodput_bps"), (Unit::BitsPerSecond, Better::More));
        assert_eq!(meaning("cpu_ns_per_packet").1, Better::Less);
        assert_eq!(meaning("packets").1, Better::Neither);
    }
}
