//! Which report a record has: the one table of all experiments.

use super::{ReportError, legacy};
use crate::experiment::AnyRecord;
use crate::lock::{self, reliability};
use crate::table::Report;
use crate::{cue, group, http, model, paths, primitives};

/// What a record says.
///
/// # Errors
///
/// If it is of no experiment that is known, or not as this program writes it.
pub fn of(record: &AnyRecord) -> Result<Report, ReportError> {
    let told = match record.experiment.as_str() {
        cue::NAME => record.typed().map(|record| cue::report(&record)),
        group::NAME => record.typed().map(|record| group::report(&record)),
        http::NAME => record.typed().map(|record| http::report(&record)),
        lock::NAME => record.typed().map(|record| lock::report(&record)),
        reliability::NAME => record.typed().map(|record| reliability::report(&record)),
        model::NAME => record.typed().map(|record| super::model::report(&record)),
        paths::NAME => record.typed().map(|record| paths::report(&record)),
        primitives::NAME => record
            .typed()
            .map(|record| super::primitives::report(&record)),
        _ => match legacy::of(record) {
            Some(told) => told,
            None => {
                return Err(ReportError::Unknown {
                    experiment: record.experiment.clone(),
                    version: record.environment.version.clone(),
                });
            }
        },
    };
    told.map_err(|source| ReportError::Fields {
        experiment: record.experiment.clone(),
        version: record.environment.version.clone(),
        source,
    })
}
