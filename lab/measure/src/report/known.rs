//! Which report a record has: the one table of all experiments.

use super::ReportError;
use crate::capacity::soak;
use crate::experiment::AnyRecord;
use crate::load::http_report::http_report;
use crate::lock::{self, reliability};
use crate::table::Report;
use crate::{capacity, cue, group, http, load, model, paths, primitives, relay, serve};

/// What a record says.
///
/// # Errors
///
/// If it is of no experiment that is known, or not as this program writes it.
pub fn of(record: &AnyRecord) -> Result<Report, ReportError> {
    let report = match record.experiment.as_str() {
        capacity::NAME => record.typed().map(|record| capacity::report(&record)),
        cue::NAME => record.typed().map(|record| cue::report(&record)),
        group::NAME => record.typed().map(|record| group::report(&record)),
        http::NAME => record.typed().map(|record| http::report(&record)),
        load::NAME => record.typed().map(|record| load::report::report(&record)),
        load::http::NAME => record.typed().map(|record| http_report(&record)),
        lock::NAME => record.typed().map(|record| lock::report(&record)),
        model::NAME => record.typed().map(|record| super::model::report(&record)),
        paths::NAME => record.typed().map(|record| paths::report(&record)),
        primitives::NAME => record
            .typed()
            .map(|record| super::primitives::report(&record)),
        relay::NAME => record.typed().map(|record| relay::report(&record)),
        reliability::NAME => record.typed().map(|record| reliability::report(&record)),
        serve::NAME => record.typed().map(|record| serve::report(&record)),
        soak::NAME => record.typed().map(|record| capacity::soak_report(&record)),
        _ => {
            return Err(ReportError::Unknown {
                experiment: record.experiment.clone(),
                version: record.environment.version.clone(),
            });
        }
    };
    report.map_err(|source| ReportError::Fields {
        experiment: record.experiment.clone(),
        version: record.environment.version.clone(),
        source,
    })
}
