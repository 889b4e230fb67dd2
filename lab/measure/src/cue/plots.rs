//! Pictures of a record.

use super::report::{Report, Row};
use super::{Contestant, CueRecord, Set};
use crate::plot::{Chart, Drawing, Unit, Value};

/// Who is shown over the number of transfers.
const SHOWN: [Contestant; 4] = [
    Contestant::UserDriven,
    Contestant::UserLoop,
    Contestant::Fair,
    Contestant::Adaptive,
];

/// The pictures that a record gives.
#[must_use]
pub fn all(record: &CueRecord) -> Vec<Drawing> {
    let report = Report::of(record);
    let draw = |title: &str, name: &str, unit: Unit, value: fn(&Row) -> Value| {
        let mut chart = Chart::lines(title)
            .x("transfers at once", Unit::Count)
            .log_x(2)
            .y(name, unit)
            .source(&record.environment);
        for contestant in SHOWN {
            let numbers = record.settings.scaling.iter();
            let points = numbers.filter_map(|&transfers| {
                let row = report.row(Set::Scaling, contestant, transfers)?;
                Some((f64::from(transfers), value(row)))
            });
            chart = chart.series(&contestant.to_string(), points);
        }
        chart
    };
    let rate = |row: &Row| Value::from(row.mb_a_second.as_ref());
    let cost = |row: &Row| Value::from(row.cpu_us_a_mb.as_ref());
    let left = |row: &Row| Value::from(row.left.map(|left| left * 100.0));
    vec![
        Drawing::new(
            "throughput.svg",
            draw(
                "What is moved beside a metering thread",
                "throughput",
                Unit::Named("MB/s"),
                rate,
            ),
        ),
        Drawing::new(
            "left.svg",
            draw(
                "What is left to the metering thread",
                "of what it does alone",
                Unit::Percent,
                left,
            ),
        ),
        Drawing::new(
            "cost.svg",
            draw(
                "Processor time of the senders",
                "CPU per MB",
                Unit::Named("us"),
                cost,
            ),
        ),
    ]
}
