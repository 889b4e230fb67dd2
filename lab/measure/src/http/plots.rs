//! Pictures of a record.

use super::report::{Report, Row, load_name, name};
use super::{HttpRecord, Load};
use crate::plot::{Chart, Drawing, Unit, Value};

/// The pictures that a record gives.
#[must_use]
pub fn all(record: &HttpRecord) -> Vec<Drawing> {
    let report = Report::of(record);
    let draw =
        |title: &str, loads: &[Load], name_of: &str, unit: Unit, value: fn(&Row) -> Value| {
            let mut chart = Chart::bars(title)
                .categories(loads.iter().map(|&load| load_name(load)))
                .y(name_of, unit)
                .source(&record.environment);
            for contestant in record.settings.contestants() {
                let of = |&load: &Load| {
                    report
                        .row(load, contestant)
                        .map_or_else(|| Value::from(None::<f64>), value)
                };
                chart = chart.values(name(contestant), loads.iter().map(of));
            }
            chart
        };
    let cost = |row: &Row| Value::from(Some(&row.cpu_ms_a_gb));
    let requests = |row: &Row| Value::from(Some(&row.requests_a_second));
    vec![
        Drawing::new(
            "cost.svg",
            draw(
                "Processor time of the server",
                &Load::ALL,
                "CPU per GB",
                Unit::Named("ms"),
                cost,
            ),
        ),
        Drawing::new(
            "requests.svg",
            draw(
                "Files of 100 KB from one processor",
                &[Load::Small],
                "requests a second",
                Unit::Count,
                requests,
            ),
        ),
    ]
}
